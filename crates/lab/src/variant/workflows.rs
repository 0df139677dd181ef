//! Workflows between guests: starts the nodes and their client, and reads the kept nodes.

use super::crew::{Crew, Role};
use super::load::Load;
use crate::LabError;
use crate::experiment::{Nodes, Selection, Workflow};
use crate::guest::{Choice, Flows, NodeSelection, Work, Workflows};
use crate::measurement::Measurement;
use crate::topology::Guest;
use crate::vm::GuestCommand;
use std::path::{Path, PathBuf};
use tailbound_units::Nanos;
use toml::Spanned;

/// Returns the nodes of a variant with workflows.
fn nodes<'a>(crew: &Crew<'a>) -> Result<Vec<&'a Guest>, LabError> {
    let experiment = crew.experiment();
    let has_workflows = crew.variant.running(&experiment.workflow).next().is_some();
    let nodes = experiment.nodes.iter().filter(|_| has_workflows);
    let guests = nodes.flat_map(|nodes| &nodes.guests);
    guests.map(|name| crew.guest(name)).collect()
}

/// Starts the servers on the nodes, and their probes if the variant selects nodes.
pub(super) fn start_nodes(crew: &mut Crew<'_>) -> Result<(), LabError> {
    let experiment = crew.experiment();
    let selection = crew.variant.running(&experiment.selection).next();
    let first = crew.supervisor.len();
    let nodes = nodes(crew)?;
    let on_shared = nodes.iter().filter(|node| crew.shares_core(node)).count();
    let most = on_shared.max(nodes.len() - on_shared).max(1) as u64;
    // Number of nodes on each core so far.
    let mut before = [0; 2];
    for guest in nodes {
        let program = crew.context.session.program.display().to_string();
        let listen = format!("--listen={}", address(guest));
        let words = [&program, "probe", "serve", &listen].map(str::to_owned);
        let command = GuestCommand::Program(words.into());
        crew.start(guest, "server of calls", command, Role::Node)?;
        if let Some(selection) = selection {
            let result = result_of(crew, guest);
            // The report of an earlier repeat.
            let _ = std::fs::remove_file(&result);
            let before = &mut before[usize::from(crew.shares_core(guest))];
            let after = selection.spread(experiment.warmup).as_nanos() * *before / most;
            *before += 1;
            let work = Work::Probe {
                args: selection.args(experiment.warmup),
                after: Nanos(after),
                result: Some(result),
            };
            crew.start_task(guest, "probe", work, Role::Node)?;
        }
    }
    crew.supervisor.wait_ready(first)
}

/// Starts the client of the nodes.
pub(super) fn start<'a>(crew: &mut Crew<'a>) -> Result<Vec<Load<'a>>, LabError> {
    let experiment = crew.experiment();
    let nodes = nodes(crew)?;
    let Some(Nodes { client, guests }) = experiment.nodes.as_ref().filter(|_| !nodes.is_empty())
    else {
        return Ok(Vec::new());
    };
    let mut runs = Vec::new();
    for workflow in crew.variant.running(&experiment.workflow) {
        let [variant, name] = [&crew.variant.name, &workflow.name].map(Spanned::get_ref);
        let outcome = format!("{variant}-{name}.outcome.json");
        let outcome = crew.context.session.directory().join(outcome);
        // Of an earlier repeat.
        let _ = std::fs::remove_file(&outcome);
        let run = Flows {
            group: workflow.group,
            args: workflow.args(experiment.duration, crew.context.seed),
            outcome,
        };
        runs.push((workflow, run));
    }
    let work = Work::Workflows(Workflows {
        nodes: nodes.iter().map(|node| address(node)).collect(),
        choice: choice(crew, &nodes),
        runs: runs.iter().map(|(_, run)| run.clone()).collect(),
    });
    let guest = crew.guest(client)?;
    let (child, _) = crew.start_task(guest, "client of workflows", work, Role::Measures)?;
    // The nodes' own waits are the subject of the measurement.
    let mut on_path = crew.daemons_of(std::iter::once(client).chain(guests));
    on_path.push(child);
    let load = |(workflow, run): (&'a Workflow, Flows)| {
        Load::series(&workflow.series, vec![run.outcome]).through(on_path.clone(), None)
    };
    Ok(runs.into_iter().map(load).collect())
}

fn choice(crew: &Crew<'_>, nodes: &[&Guest]) -> Option<Choice> {
    let mut selections = crew.variant.running(&crew.experiment().selection);
    let selection = selections.next()?;
    Some(Choice {
        results: nodes.iter().map(|node| result_of(crew, node)).collect(),
        keep: selection.keep,
        selection: selection_file(crew),
    })
}

/// Returns the path of a node's probe report, from which `select` derives the node's name.
fn result_of(crew: &Crew<'_>, node: &Guest) -> PathBuf {
    let directory = crew.context.session.directory();
    directory.join(format!("{}.json", node.ip))
}

fn selection_file(crew: &Crew<'_>) -> PathBuf {
    crew.context.session.directory().join("selection.json")
}

/// Adds the values of the selection, if there is one.
pub(super) fn add_selection(crew: &Crew<'_>, measured: &mut Measurement) -> Result<(), LabError> {
    let nodes = nodes(crew)?;
    if choice(crew, &nodes).is_none() {
        return Ok(());
    }
    let selection = read(&selection_file(crew))?;
    let selected_nodes: Vec<&Guest> = nodes
        .into_iter()
        .filter(|node| selection.kept().any(|kept| kept == node.ip.to_string()))
        .collect();
    let workflows = crew.variant.running(&crew.experiment().workflow);
    let largest = workflows.map(|it| it.group).max().unwrap_or(0);
    if selected_nodes.len() < largest {
        measured.flaw = Some(format!(
            "only {} nodes are kept, too few for a group of {largest}: on a busy machine their \
             own sleeps are late",
            selected_nodes.len()
        ));
    }
    let shared = selected_nodes
        .iter()
        .filter(|node| crew.shares_core(node))
        .count();
    let counts = [selection.good, selected_nodes.len(), shared];
    for (name, count) in Selection::VALUES.into_iter().zip(counts) {
        measured.value(name, "", count as f64);
    }
    Ok(())
}

/// Returns the address of a node's server.
fn address(node: &Guest) -> String {
    format!("{}:{}", node.ip, Nodes::PORT)
}

fn read(path: &Path) -> Result<NodeSelection, LabError> {
    let text = std::fs::read(path).map_err(LabError::file("reading", path))?;
    let selection = serde_json::from_slice(&text).map_err(std::io::Error::from);
    selection.map_err(LabError::file("reading", path))
}
