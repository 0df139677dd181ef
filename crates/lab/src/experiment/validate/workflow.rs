//! Checks of nodes, selections and workflows beyond their types.

use super::within;
use crate::experiment::{LabExperiment, Nodes, Selection, Variant};
use tailbound_experiment::Mistakes;
use tailbound_units::Nanos;

const SLEEPS: std::ops::RangeInclusive<Nanos> = Nanos::from_micros(50)..=Nanos::from_millis(10);
const MAX_RATE: u32 = 10_000;

impl LabExperiment {
    pub(super) fn check_workflows(&self, mistakes: &mut Mistakes) {
        let Some(nodes) = &self.nodes else {
            let selections = self.selection.iter().map(|it| &it.name);
            for name in self.workflow.iter().map(|it| &it.name).chain(selections) {
                mistakes.at(name, "calls nodes: say in [nodes] who they are");
            }
            return;
        };
        for node in &nodes.guests {
            self.check_two_guests(&nodes.client, node, mistakes);
            if self.is_machine(node.get_ref()) {
                mistakes.at(node, "is a machine: a node is a guest that is none");
            }
        }
        mistakes.unique("node", nodes.guests.iter());
        if nodes.guests.is_empty() {
            let rule = "name at least one guest";
            mistakes.top().table("nodes").at("guests", rule);
        }
        for selection in &self.selection {
            self.check_selection(nodes, selection, mistakes);
        }
        for workflow in &self.workflow {
            let most = nodes.guests.len().max(1);
            within(&workflow.name, "group", workflow.group, 1..=most, mistakes);
            within(
                &workflow.name,
                "rate",
                workflow.rate,
                1..=MAX_RATE,
                mistakes,
            );
        }
    }

    fn check_selection(&self, nodes: &Nodes, selection: &Selection, mistakes: &mut Mistakes) {
        let Selection { name, keep, .. } = selection;
        let most = nodes.guests.len().max(1);
        within(name, "keep", *keep, 1..=most, mistakes);
        within(name, "sleep", selection.sleep, SLEEPS, mistakes);
        let marks = selection.samples >= 1 && selection.low_mark <= selection.samples / 5;
        if !marks {
            mistakes.at(name, "needs samples of at least 1 and 5 low_marks");
        }
        if selection.time() >= self.warmup {
            let rule = "its sleeps take longer than the warm-up, in which they are slept: choose \
                        fewer or shorter ones, or a longer warmup";
            mistakes.at(name, rule);
        }
    }

    /// Checks the selection and the workflows of a variant.
    pub(super) fn check_called(&self, variant: &Variant, mistakes: &mut Mistakes) {
        let mut selections = variant.running(&self.selection);
        let Some(selection) = selections.next() else {
            return;
        };
        if selections.next().is_some() {
            mistakes.at(&variant.name, "has two selections: choose one");
        }
        for workflow in variant.running(&self.workflow) {
            if workflow.group > selection.keep {
                let (group, keep) = (workflow.group, selection.keep);
                let message = format!("calls {group} nodes where {keep} are kept");
                mistakes.at(&workflow.name, message);
            }
        }
    }
}
