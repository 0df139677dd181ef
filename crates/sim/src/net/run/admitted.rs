//! Admitted tenants: what broke under which policy.

use super::{Found, distribution, failed, percentile, sorted, variant};
use crate::net::admitted::{Admitted, CentreOutcome};
use crate::{Options, SimError, parallel};
use serde_json::json;
use tailbound_placement::Policy;
use tailbound_report::{Chart, ChartAxis, Variant};

/// Data centres of admitted tenants, a variant each policy.
pub(super) fn admitted_tenants(
    admitted: &Admitted,
    options: &Options,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Found, SimError> {
    let policies: Vec<Policy> = [Policy::Silo]
        .into_iter()
        .chain(admitted.controls.iter().copied())
        .collect();
    let items: Vec<(Policy, u32)> = policies
        .iter()
        .flat_map(|policy| (0..admitted.centres).map(|number| (*policy, number)))
        .collect();
    let judge = |&(policy, number): &(Policy, u32)| {
        let outcome = admitted.judge(policy, options.seed, number);
        outcome.map_err(|error| failed(policy_name(policy))(error.to_string()))
    };
    let outcomes = parallel::map(&items, options.threads, judge, |done| {
        progress(done, items.len());
    });
    let outcomes: Vec<CentreOutcome> = outcomes.into_iter().collect::<Result<_, _>>()?;
    let mut found = Found::default();
    let mut lines = Vec::new();
    for (policy, outcomes) in policies
        .iter()
        .zip(outcomes.chunks(admitted.centres as usize))
    {
        found
            .variants
            .push(of_policy(policy_name(*policy), outcomes));
        let ports = sorted(outcomes.iter().flat_map(|it| it.ports.iter().copied()));
        if !ports.is_empty() {
            lines.push(distribution(policy_name(*policy), &ports));
        }
    }
    found.charts.push(Chart {
        name: "queues".to_owned(),
        title: "The longest queue of each port against the bound for its tenants".to_owned(),
        x: ChartAxis::linear("longest queue seen, of the bound", "%"),
        y: ChartAxis::linear("ports with at most this", "%"),
        lines,
        note: Some(
            "Without best effort. A port has no bound where more may come in the long run than \
             leaves."
                .to_owned(),
        ),
    });
    let conditions = [
        ("centres", json!(admitted.centres)),
        (
            "hosts",
            json!(admitted.pods * admitted.racks * admitted.hosts),
        ),
        ("slots_of_a_host", json!(admitted.slots)),
        ("mean_vms", json!(admitted.mean_vms)),
        ("refusals_until_full", json!(admitted.refusals)),
    ];
    let conditions = conditions.map(|(name, value)| (name.to_owned(), value));
    found.conditions.extend(conditions);
    Ok(found)
}

fn policy_name(policy: Policy) -> &'static str {
    match policy {
        Policy::Silo => "silo",
        Policy::Oktopus => "oktopus",
        Policy::OktopusBursts => "oktopus-bursts",
        Policy::Locality => "locality",
    }
}

fn of_policy(name: &str, outcomes: &[CentreOutcome]) -> Variant {
    let sum = |of: &dyn Fn(&CentreOutcome) -> u64| outcomes.iter().map(of).sum::<u64>() as f64;
    let most = |of: &dyn Fn(&CentreOutcome) -> f64| {
        100.0 * outcomes.iter().map(of).fold(0.0_f64, f64::max)
    };
    let ports = sorted(outcomes.iter().flat_map(|it| it.ports.iter().copied()));
    variant(
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
            (
                "delay_of_path_bound_max",
                most(&|it| it.path_bounds.part),
                "%",
            ),
        ],
    )
}
