//! Random networks: violations, and how near the bounds are.

use super::{Found, distribution, failed, percentile, sorted, variant};
use crate::net::random::{DelayTightness, Outcome, RandomNetworks};
use crate::{Options, SimError, parallel};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use tailbound_report::{Chart, ChartAxis, Line, LineStyle, Point, Variant};

/// All networks of an experiment, as one variant.
pub(super) fn random_networks(
    random: &RandomNetworks,
    options: &Options,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Found, SimError> {
    let numbers: Vec<u32> = (0..random.networks).collect();
    let judge = |&number: &u32| {
        let drawn = random.draw(options.seed, number);
        random
            .judge(&drawn, options.seed, number, &|_| {})
            .map_err(|error| failed(&format!("network {number}"))(error.to_string()))
    };
    let outcomes = parallel::map(&numbers, options.threads, judge, |done| {
        progress(done, numbers.len());
    });
    let outcomes: Vec<Outcome> = outcomes.into_iter().collect::<Result<_, _>>()?;
    let mut conditions: BTreeMap<String, Json> = [
        ("networks", json!(random.networks)),
        ("ports", json!(random.ports)),
        ("flows", json!(random.flows)),
        ("burst_frames", json!(random.burst_frames)),
        ("most_load_percent", json!(random.load)),
        ("meetings", json!(random.effort.meetings)),
        ("chances", json!(random.effort.chances)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    if let Some(number) = outcomes.iter().position(|it| !it.violations.is_empty()) {
        let drawn = random.draw(options.seed, number as u32);
        let small = random.shrink(&drawn, options.seed, number as u32, &|_| {});
        let all: Vec<_> = outcomes[number]
            .violations
            .iter()
            .map(ToString::to_string)
            .collect();
        conditions.insert("violated_network".to_owned(), json!(number));
        conditions.insert("violations".to_owned(), json!(all));
        conditions.insert("violated_network_shrunk".to_owned(), json!(small.to_toml()));
    }
    let tight = Tight::of(&outcomes);
    Ok(Found {
        variants: vec![tight.variant(&outcomes)],
        charts: vec![
            tight.delay_chart(),
            by_hops(&outcomes),
            tight.backlog_chart(),
        ],
        conditions,
    })
}

/// Parts of bounds that were reached, sorted.
struct Tight {
    /// Of each flow, of the smaller bound,
    both: Vec<f64>,
    /// of that by total flow analysis,
    total: Vec<f64>,
    /// and by separated flow analysis.
    separated: Vec<f64>,
    /// Of each network, that of its flow that comes nearest.
    best_of_network: Vec<f64>,
    /// Of each port.
    backlogs: Vec<f64>,
}

impl Tight {
    fn of(outcomes: &[Outcome]) -> Self {
        let flows = || outcomes.iter().flat_map(|outcome| &outcome.delays);
        let best = |outcome: &Outcome| {
            let delays = outcome.delays.iter().map(DelayTightness::best);
            delays.fold(0.0, f64::max)
        };
        let backlogs = outcomes.iter().flat_map(|it| it.backlogs.iter().copied());
        Self {
            both: sorted(flows().map(DelayTightness::best)),
            total: sorted(flows().map(|it| it.total)),
            separated: sorted(flows().map(|it| it.separated)),
            best_of_network: sorted(outcomes.iter().map(best)),
            backlogs: sorted(backlogs),
        }
    }

    fn variant(&self, outcomes: &[Outcome]) -> Variant {
        let violated = |of: &str| {
            let violations = outcomes.iter().flat_map(|outcome| &outcome.violations);
            violations.filter(|it| it.what.starts_with(of)).count() as f64
        };
        let percent = |figures: &[f64], at: f64| 100.0 * percentile(figures, at);
        let flows = outcomes.iter().flat_map(|outcome| &outcome.delays);
        let sfa_smaller = flows.filter(|it| it.separated > it.total).count() as f64;
        let events = outcomes.iter().map(|it| it.events as f64).sum();
        let (both, backlogs) = (&self.both, &self.backlogs);
        variant(
            "networks",
            [
                ("networks", outcomes.len() as f64, ""),
                ("flows", both.len() as f64, ""),
                ("events", events, ""),
                ("delay_violations", violated("delay"), ""),
                ("backlog_violations", violated("backlog"), ""),
                ("delay_tightness_p10", percent(both, 10.0), "%"),
                ("delay_tightness_p50", percent(both, 50.0), "%"),
                ("delay_tightness_p90", percent(both, 90.0), "%"),
                ("delay_tightness_max", percent(both, 100.0), "%"),
                ("delay_tightness_tfa_p50", percent(&self.total, 50.0), "%"),
                (
                    "delay_tightness_sfa_p50",
                    percent(&self.separated, 50.0),
                    "%",
                ),
                (
                    "network_tightness_p50",
                    percent(&self.best_of_network, 50.0),
                    "%",
                ),
                ("backlog_tightness_p50", percent(backlogs, 50.0), "%"),
                ("backlog_tightness_p90", percent(backlogs, 90.0), "%"),
                ("backlog_tightness_max", percent(backlogs, 100.0), "%"),
                (
                    "flows_where_sfa_is_smaller",
                    100.0 * sfa_smaller / both.len() as f64,
                    "%",
                ),
            ],
        )
    }

    fn delay_chart(&self) -> Chart {
        Chart {
            name: "delay-tightness".to_owned(),
            title: "How much of its bound the longest delay of a flow reaches".to_owned(),
            x: ChartAxis::linear("longest delay seen, of the bound", "%"),
            y: ChartAxis::linear("flows with at most this", "%"),
            lines: vec![
                distribution("the smaller bound", &self.both),
                distribution("TFA", &self.total),
                distribution("SFA", &self.separated),
            ],
            note: Some("A bound that is exceeded would be right of 100 %.".to_owned()),
        }
    }

    fn backlog_chart(&self) -> Chart {
        Chart {
            name: "backlog-tightness".to_owned(),
            title: "How much of its bound the largest backlog of a port reaches".to_owned(),
            x: ChartAxis::linear("largest backlog seen, of the bound", "%"),
            y: ChartAxis::linear("ports with at most this", "%"),
            lines: vec![distribution("all priorities", &self.backlogs)],
            note: None,
        }
    }
}

/// The longer the path, the less of the bound is reached.
fn by_hops(outcomes: &[Outcome]) -> Chart {
    let flows = || outcomes.iter().flat_map(|outcome| &outcome.delays);
    let most = flows().map(|flow| flow.hops).max().unwrap_or(0);
    let by_hops: Vec<_> = (1..=most)
        .map(|hops| {
            sorted(
                flows()
                    .filter(|it| it.hops == hops)
                    .map(DelayTightness::best),
            )
        })
        .collect();
    let line = |name: &str, percent: f64| Line {
        name: name.to_owned(),
        style: LineStyle::Measured,
        points: by_hops
            .iter()
            .enumerate()
            .map(|(index, figures)| Point((index + 1) as f64, 100.0 * percentile(figures, percent)))
            .collect(),
    };
    Chart {
        name: "delay-tightness-by-hops".to_owned(),
        title: "How much of its bound a delay reaches, by the length of the path".to_owned(),
        x: ChartAxis::linear("ports on the path", ""),
        y: ChartAxis::linear("longest delay seen, of the bound", "%"),
        lines: vec![line("90th", 90.0), line("median", 50.0), line("10th", 10.0)],
        note: None,
    }
}
