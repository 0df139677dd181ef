//! Results for admitted tenants: violations under each policy.

use super::{Admitted, CentreOutcome};
use crate::distribution::{distribution, percentile, sorted};
use crate::net::CLASSES;
use crate::net::random::{LONGEST_FRAME, exact};
use crate::scenario::Scenario;
use crate::{Threads, parallel};
use std::iter;
use tailbound_experiment::{ExperimentError, Run, RunOutput, Section};
use tailbound_placement::Policy;
use tailbound_report::{Chart, ChartAxis, Variant};
use tailbound_units::{Nanos, Rate};

// Guaranteed and best-effort traffic are distinguished.
const _: () = assert!(CLASSES == 2);

impl Scenario for Admitted {
    fn check(&self, section: &mut Section<'_>) {
        section.range("centres", self.centres, 1..=10_000);
        section.range("pods", self.pods, 1..=100);
        section.range("racks", self.racks, 1..=100);
        section.range("hosts", self.hosts, 1..=1_000);
        let hosts = u64::from(self.pods) * u64::from(self.racks) * u64::from(self.hosts);
        if !(2..=10_000).contains(&hosts) {
            section.at("hosts", format!("{hosts} hosts in all: choose 2 to 10000"));
        }
        section.range("slots", self.slots, 1..=1_000);
        section.range("mean_vms", self.mean_vms, 1..=10_000);
        section.range("refusals", self.refusals, 1..=10_000);
        section.range("targeted_runs", self.targeted_runs, 0..=10_000);
        section.range("shuffles", self.shuffles, 0..=10_000);
        section.range("frame", self.frame.0, 84..=LONGEST_FRAME);
        section.range("time", self.time, Nanos(1)..=Nanos::from_secs(10));
        section.count("class", self.class.len(), 1..=100);
        let weights: u64 = self.class.iter().map(|class| u64::from(class.weight)).sum();
        if !(1..=u64::from(u32::MAX)).contains(&weights) {
            let message = format!("weights of {weights} in all: choose 1 to {}", u32::MAX);
            section.at("class", message);
        }
        let links = [
            ("host_link", &self.host_link),
            ("rack_link", &self.rack_link),
            ("pod_link", &self.pod_link),
        ];
        for (key, link) in links {
            section.table(key).range("links", link.links, 1..=1);
            section.hold(key, exact(link.rate, Rate::from_mbit(1)));
        }
        section.hold("centres", self.topology().map(drop));
    }

    fn outline(&self) -> Vec<Variant> {
        let names = self.policies().map(Policy::name);
        names.map(|name| of_policy(name, &[])).collect()
    }

    fn run(&self, run: &mut Run<'_, Threads>) -> Result<RunOutput, ExperimentError> {
        let seed = run.seed;
        let centres = |policy| (0..self.centres).map(move |number| (policy, number));
        let items: Vec<(Policy, u32)> = self.policies().flat_map(centres).collect();
        let name = |(policy, _): &(Policy, u32)| policy.name().to_owned();
        let outcomes = parallel::map(run, &items, name, |&(policy, number)| {
            self.judge(policy, seed, number)
        })?;
        let mut found = RunOutput::default();
        let mut lines = Vec::new();
        let of_centres = outcomes.chunks(self.centres as usize);
        for (policy, outcomes) in self.policies().zip(of_centres) {
            let name = policy.name();
            found.variants.push(of_policy(name, outcomes));
            let ports = sorted(outcomes.iter().flat_map(|it| it.ports.iter().copied()));
            if !ports.is_empty() {
                lines.push(distribution(name, &ports));
            }
        }
        found.charts.push(Chart {
            name: "queues".to_owned(),
            title: "The longest queue of each port against the bound for its tenants".to_owned(),
            x: ChartAxis::linear("longest queue seen, of the bound", "%"),
            y: ChartAxis::linear("ports with at most this", "%"),
            lines,
            note: Some(
                "Without best effort. A port has no bound if more may come in the long run \
                 than leaves."
                    .to_owned(),
            ),
        });
        found.condition("centres", self.centres);
        found.condition("hosts", self.pods * self.racks * self.hosts);
        found.condition("slots_of_a_host", self.slots);
        found.condition("mean_vms", self.mean_vms);
        found.condition("refusals_until_full", self.refusals);
        Ok(found)
    }
}

impl Admitted {
    /// Returns Silo, and the control policies.
    fn policies(&self) -> impl Iterator<Item = Policy> {
        iter::once(Policy::Silo).chain(self.controls.iter().copied())
    }
}

fn of_policy(name: &str, outcomes: &[CentreOutcome]) -> Variant {
    let sum = |of: &dyn Fn(&CentreOutcome) -> u64| outcomes.iter().map(of).sum::<u64>() as f64;
    let most = |of: &dyn Fn(&CentreOutcome) -> f64| {
        100.0 * outcomes.iter().map(of).fold(0.0_f64, f64::max)
    };
    let ports = sorted(outcomes.iter().flat_map(|it| it.ports.iter().copied()));
    let of_path_bound = most(&|it| it.path_bounds.part);
    Variant::of_values(
        name,
        [
            ("slots_used", sum(&|it| it.slots.into()), ""),
            ("tenants", sum(&|it| it.tenants.into()), ""),
            ("runs", sum(&|it| it.runs.into()), ""),
            ("events", sum(&|it| it.events), ""),
            ("frames", sum(&|it| it.frames), ""),
            ("lost_frames", sum(&|it| it.dropped), ""),
            ("queues_over_room", sum(&|it| it.rooms.over), ""),
            ("queues_over_bound", sum(&|it| it.bounds.over), ""),
            ("flows_later_than_promised", sum(&|it| it.promises.over), ""),
            ("flows_over_path_capacity", sum(&|it| it.paths.over), ""),
            ("flows_over_path_bound", sum(&|it| it.path_bounds.over), ""),
            ("queue_of_room_max", most(&|it| it.rooms.part), "%"),
            ("queue_of_bound_p50", 100.0 * percentile(&ports, 50.0), "%"),
            ("queue_of_bound_p90", 100.0 * percentile(&ports, 90.0), "%"),
            ("queue_of_bound_max", most(&|it| it.bounds.part), "%"),
            ("delay_of_promise_max", most(&|it| it.promises.part), "%"),
            ("delay_of_path_capacity_max", most(&|it| it.paths.part), "%"),
            ("delay_of_path_bound_max", of_path_bound, "%"),
        ],
    )
}
