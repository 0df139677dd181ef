//! Checks of nodes, selections and workflows beyond their types.

use super::Checker;
use crate::experiment::{Nodes, Selection, Variant};
use tailbound_units::Nanos;

const SLEEPS: std::ops::RangeInclusive<Nanos> = Nanos::from_micros(50)..=Nanos::from_millis(10);
const MAX_RATE: u32 = 10_000;

impl Checker<'_, '_> {
    pub(super) fn check_workflows(&mut self) {
        let Some(nodes) = &self.lab.nodes else {
            let selections = self.lab.selection.iter().map(|it| &it.name);
            for name in self
                .lab
                .workflow
                .iter()
                .map(|it| &it.name)
                .chain(selections)
            {
                self.wrong(name, "calls nodes: list them in [nodes]");
            }
            return;
        };
        for node in &nodes.guests {
            self.check_two_guests(&nodes.client, node);
            if self.lab.is_machine(node.get_ref()) {
                self.wrong(node, "is a machine: a node is a guest that is none");
            }
        }
        self.mistakes.unique("node", nodes.guests.iter());
        if nodes.guests.is_empty() {
            let rule = "name at least one guest";
            self.mistakes.top().table("nodes").at("guests", rule);
        }
        for selection in &self.lab.selection {
            self.check_selection(nodes, selection);
        }
        for workflow in &self.lab.workflow {
            let most = nodes.guests.len().max(1);
            self.within(&workflow.name, "group", workflow.group, 1..=most);
            self.within(&workflow.name, "rate", workflow.rate, 1..=MAX_RATE);
        }
    }

    fn check_selection(&mut self, nodes: &Nodes, selection: &Selection) {
        let Selection { name, keep, .. } = selection;
        let most = nodes.guests.len().max(1);
        self.within(name, "keep", *keep, 1..=most);
        self.within(name, "sleep", selection.sleep, SLEEPS);
        let marks = selection.samples >= 1 && selection.low_mark <= selection.samples / 5;
        if !marks {
            self.wrong(name, "needs samples of at least 1 and 5 low_marks");
        }
        if selection.time() >= self.lab.warmup {
            let rule = "its sleeps take longer than the warm-up, in which they are slept: choose \
                        fewer or shorter ones, or a longer warmup";
            self.wrong(name, rule);
        }
    }

    /// Checks the selection and the workflows of a variant.
    pub(super) fn check_called(&mut self, variant: &Variant) {
        let mut selections = variant.running(&self.lab.selection);
        let Some(selection) = selections.next() else {
            return;
        };
        if selections.next().is_some() {
            self.wrong(&variant.name, "has two selections: choose one");
        }
        for workflow in variant.running(&self.lab.workflow) {
            if workflow.group > selection.keep {
                let (group, keep) = (workflow.group, selection.keep);
                let message = format!("calls {group} nodes where {keep} are kept");
                self.wrong(&workflow.name, message);
            }
        }
    }
}
