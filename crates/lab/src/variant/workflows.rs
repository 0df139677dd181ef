//! Workflows between guests: starts the nodes and their client, and reads the kept nodes.

use super::{Measurement, Output, Role, Run, Source};
use crate::LabError;
use crate::experiment::{Nodes, Selection};
use crate::guest::{Choice, Chosen, Flows, Work, Workflows};
use crate::topology::Guest;
use crate::vm::Asked;
use std::path::{Path, PathBuf};
use tailbound_units::Nanos;

impl<'a> Run<'a> {
    /// Returns the time in which samples count: each workflow has the experiment's duration, in
    /// turn.
    pub(super) fn duration(&self) -> Nanos {
        let experiment = self.context.experiment;
        let workflows = self.variant.running(&experiment.workflow).count();
        Nanos(experiment.duration.as_nanos() * workflows.max(1) as u64)
    }

    /// Returns the nodes of a variant with workflows.
    fn nodes(&self) -> Result<Vec<&'a Guest>, LabError> {
        let experiment = self.context.experiment;
        let has_workflows = self.variant.running(&experiment.workflow).next().is_some();
        let nodes = experiment.nodes.iter().filter(|_| has_workflows);
        let guests = nodes.flat_map(|nodes| &nodes.guests);
        guests.map(|name| self.guest(name)).collect()
    }

    /// Starts the servers on the nodes, and their probes if the variant selects nodes.
    pub(super) fn start_nodes(&mut self) -> Result<(), LabError> {
        let experiment = self.context.experiment;
        let selection = self.variant.running(&experiment.selection).next();
        let nodes = self.nodes()?;
        let on_shared = nodes.iter().filter(|node| self.shares_core(node)).count();
        let most = on_shared.max(nodes.len() - on_shared).max(1) as u64;
        // Number of nodes on each core so far.
        let mut before = [0; 2];
        for guest in nodes {
            let program = self.context.session.program.display().to_string();
            let listen = format!("--listen={}", address(guest));
            let words = [&program, "probe", "serve", &listen].map(str::to_owned);
            let asked = Asked::Program(words.into());
            self.start(guest, "server of calls", asked, Role::Node { ends: false })?;
            if let Some(selection) = selection {
                let result = self.result_of(guest);
                // The report of an earlier repeat.
                let _ = std::fs::remove_file(&result);
                let before = &mut before[usize::from(self.shares_core(guest))];
                let after = selection.spread(experiment.warmup).as_nanos() * *before / most;
                *before += 1;
                let work = Work::Probe {
                    args: selection.args(experiment.warmup),
                    after: Nanos(after),
                    result: Some(result),
                };
                self.start_task(guest, "probe", work, Role::Node { ends: true })?;
            }
        }
        Ok(())
    }

    /// Starts the client of the nodes.
    pub(super) fn start_workflows(&mut self) -> Result<(), LabError> {
        let experiment = self.context.experiment;
        let nodes = self.nodes()?;
        let Some(Nodes { client, .. }) = experiment.nodes.as_ref().filter(|_| !nodes.is_empty())
        else {
            return Ok(());
        };
        let guest = self.guest(client)?;
        let choice = self.choice(&nodes);
        let mut runs = Vec::new();
        for workflow in self.variant.running(&experiment.workflow) {
            let name = format!(
                "{}-{}.outcome.json",
                self.variant.name.get_ref(),
                workflow.name.get_ref()
            );
            let outcome = self.context.session.directory().join(name);
            // Of an earlier repeat.
            let _ = std::fs::remove_file(&outcome);
            let args = workflow.args(experiment.duration, self.context.seed);
            let group = workflow.group;
            let run = Flows {
                group,
                args,
                outcome,
            };
            runs.push((workflow, run));
        }
        let work = Work::Workflows(Workflows {
            nodes: nodes.iter().map(|node| address(node)).collect(),
            choice,
            runs: runs.iter().map(|(_, run)| run.clone()).collect(),
        });
        let (place, _) = self.start_task(guest, "client of workflows", work, Role::Measures)?;
        // The nodes' own waits are the subject of the measurement.
        let called = experiment.nodes.iter().flat_map(|nodes| &nodes.guests);
        let mut on_path = self.daemons_of(std::iter::once(client).chain(called));
        on_path.push(place);
        for (workflow, run) in runs {
            let series = Output::Series(workflow.series.clone());
            self.load(series, Source::Own(vec![run.outcome]), on_path.clone());
        }
        Ok(())
    }

    fn choice(&self, nodes: &[&Guest]) -> Option<Choice> {
        let mut selections = self.variant.running(&self.context.experiment.selection);
        let selection = selections.next()?;
        Some(Choice {
            results: nodes.iter().map(|node| self.result_of(node)).collect(),
            keep: selection.keep,
            selection: self.selection_file(),
        })
    }

    /// Returns the path of a node's probe report, from which `select` derives the node's name.
    fn result_of(&self, node: &Guest) -> PathBuf {
        let directory = self.context.session.directory();
        directory.join(format!("{}.json", node.ip))
    }

    fn selection_file(&self) -> PathBuf {
        self.context.session.directory().join("selection.json")
    }

    /// Adds the values of the selection, if there is one.
    pub(super) fn add_selection(&self, measured: &mut Measurement) -> Result<(), LabError> {
        let nodes = self.nodes()?;
        if self.choice(&nodes).is_none() {
            return Ok(());
        }
        let selection = read(&self.selection_file())?;
        let kept: Vec<&Guest> = nodes
            .into_iter()
            .filter(|node| selection.kept().any(|kept| kept == node.ip.to_string()))
            .collect();
        let workflows = self.variant.running(&self.context.experiment.workflow);
        let largest = workflows.map(|it| it.group).max().unwrap_or(0);
        if kept.len() < largest {
            measured.flaw = Some(format!(
                "only {} nodes are kept, too few for a group of {largest}: on a busy machine their \
                 own sleeps are late",
                kept.len()
            ));
        }
        let shared = kept.iter().filter(|node| self.shares_core(node)).count();
        let counts = [selection.good, kept.len(), shared];
        for (name, count) in Selection::VALUES.into_iter().zip(counts) {
            measured.value(name, "", count as f64);
        }
        Ok(())
    }
}

/// Returns the address of a node's server.
fn address(node: &Guest) -> String {
    format!("{}:{}", node.ip, Nodes::PORT)
}

fn read(path: &Path) -> Result<Chosen, LabError> {
    let text = std::fs::read(path).map_err(LabError::file("reading", path))?;
    let selection = serde_json::from_slice(&text).map_err(std::io::Error::from);
    selection.map_err(LabError::file("reading", path))
}
