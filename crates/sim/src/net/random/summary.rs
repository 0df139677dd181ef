//! Results for random networks: violations, and ratios of measurements to bounds.

use super::{DelayTightness, Outcome, RandomNetworks};
use crate::distribution::{distribution, percentile, sorted};
use crate::net::Wire;
use crate::scenario::Scenario;
use crate::{Threads, parallel};
use serde_json::json;
use tailbound_experiment::{ExperimentError, Run, RunOutput, Section};
use tailbound_report::{Chart, ChartAxis, Line, LineStyle, Variant};
use tailbound_units::Rate;

/// The longest frame that is simulated, in bytes.
pub(crate) const LONGEST_FRAME: u64 = 65_536;

/// Checks that the rate of a link can be simulated exactly.
pub(crate) fn exact(rate: Rate, least: Rate) -> Result<(), String> {
    if Wire::is_whole(rate) && rate >= least {
        return Ok(());
    }
    Err(format!(
        "a rate of {rate}: choose one of at least {least} that divides 8000Gbit/s"
    ))
}

impl Scenario for RandomNetworks {
    fn check(&self, section: &mut Section<'_>) {
        let (ports, flows) = (self.ports, self.flows);
        section.range("networks", self.networks, 1..=10_000_000);
        section.range("ports", ports.0, 1..=ports.1);
        section.range("ports", ports.1, 1..=64);
        section.range("flows", flows.0, 1..=flows.1);
        section.range("flows", flows.1, 1..=256);
        section.range("burst_frames", self.burst_frames, 1..=1_000);
        section.range("load", self.load, 1..=100);
        section.range("two_priorities", self.two_priorities, 0..=100);
        section.count("frames", self.frames.len(), 1..=100);
        section.count("rates", self.rates.len(), 1..=100);
        let mut effort = section.table("effort");
        effort.range("search_restarts", self.effort.search_restarts, 0..=1_000);
        effort.range("random_trials", self.effort.random_trials, 0..=1_000);
        for frame in &self.frames {
            section.range("frames", frame.0, 1..=LONGEST_FRAME);
        }
        for rate in &self.rates {
            section.hold("rates", exact(*rate, Rate::from_mbit(1)));
        }
    }

    fn outline(&self) -> Vec<Variant> {
        vec![Tight::of(&[]).variant(&[])]
    }

    fn run(&self, run: &mut Run<'_, Threads>) -> Result<RunOutput, ExperimentError> {
        let seed = run.seed;
        let numbers: Vec<u32> = (0..self.networks).collect();
        let name = |number: &u32| format!("network {number}");
        let outcomes = parallel::map(run, &numbers, name, |&number| {
            self.judge(&self.draw(seed, number), seed, number, &|_| {})
        })?;
        let tight = Tight::of(&outcomes);
        let mut found = RunOutput {
            variants: vec![tight.variant(&outcomes)],
            charts: vec![
                tight.delay_chart(),
                by_hops(&outcomes),
                tight.backlog_chart(),
            ],
            ..RunOutput::default()
        };
        found.condition("networks", self.networks);
        found.condition("ports", json!(self.ports));
        found.condition("flows", json!(self.flows));
        found.condition("burst_frames", self.burst_frames);
        found.condition("most_load_percent", self.load);
        found.condition("search_restarts", self.effort.search_restarts);
        found.condition("random_trials", self.effort.random_trials);
        self.tell_violation(seed, &outcomes, &mut found);
        Ok(found)
    }
}

impl RandomNetworks {
    /// Reports the violations of the first network that has any, and a smallest part of it with a
    /// violation.
    fn tell_violation(&self, seed: u64, outcomes: &[Outcome], found: &mut RunOutput) {
        let Some(number) = outcomes.iter().position(|it| !it.violations.is_empty()) else {
            return;
        };
        let drawn = self.draw(seed, number as u32);
        let small = self.shrink(&drawn, seed, number as u32, &|_| {});
        let all = outcomes[number].violations.iter().map(ToString::to_string);
        found.condition("violated_network", number);
        found.condition("violations", all.collect::<Vec<_>>());
        found.condition("violated_network_shrunk", small.to_toml());
    }
}

/// Ratios of measurements to bounds, sorted.
struct Tight {
    /// Ratios of each flow to the smaller bound.
    both: Vec<f64>,
    /// Ratios to the bound by total flow analysis.
    total: Vec<f64>,
    /// Ratios to the bound by separated flow analysis.
    separated: Vec<f64>,
    /// Largest ratio of the flows of each network.
    best_of_network: Vec<f64>,
    /// Ratio of each port.
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
        let sfa_smaller = 100.0 * sfa_smaller / both.len() as f64;
        let [tfa, sfa, of_network] = [&self.total, &self.separated, &self.best_of_network]
            .map(|figures| percent(figures, 50.0));
        Variant::of_values(
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
                ("delay_tightness_tfa_p50", tfa, "%"),
                ("delay_tightness_sfa_p50", sfa, "%"),
                ("network_tightness_p50", of_network, "%"),
                ("backlog_tightness_p50", percent(backlogs, 50.0), "%"),
                ("backlog_tightness_p90", percent(backlogs, 90.0), "%"),
                ("backlog_tightness_max", percent(backlogs, 100.0), "%"),
                ("flows_where_sfa_is_smaller", sfa_smaller, "%"),
            ],
        )
    }

    fn delay_chart(&self) -> Chart {
        Chart {
            name: "delay-tightness".to_owned(),
            title: "Longest delay of a flow, as a part of its bound".to_owned(),
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
            title: "Largest backlog of a port, as a part of its bound".to_owned(),
            x: ChartAxis::linear("largest backlog seen, of the bound", "%"),
            y: ChartAxis::linear("ports with at most this", "%"),
            lines: vec![distribution("all priorities", &self.backlogs)],
            note: None,
        }
    }
}

/// Chart of the ratio by the length of the path.
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
    let line = |name: &str, percent: f64| {
        let points = (1..).zip(&by_hops);
        let points = points.map(|(hops, it)| (f64::from(hops), 100.0 * percentile(it, percent)));
        Line::new(name, LineStyle::Measured, points)
    };
    Chart {
        name: "delay-tightness-by-hops".to_owned(),
        title: "Delay as a part of its bound, by the length of the path".to_owned(),
        x: ChartAxis::linear("ports on the path", ""),
        y: ChartAxis::linear("longest delay seen, of the bound", "%"),
        lines: vec![line("90th", 90.0), line("median", 50.0), line("10th", 10.0)],
        note: None,
    }
}
