//! Whole experiments, short.

use super::*;
use crate::Threads;
use tailbound_experiment::{Experiment as _, ExperimentError, Loaded, Source};
use tailbound_report::{Results, Verdict};
use tailbound_units::{Bytes, Nanos};

/// An experiment of this virtual time for each point, or of three nodes.
fn shortened(source: &Source, time: Nanos) -> Result<Loaded<VcpuExperiment>, ExperimentError> {
    Loaded::parse_changed(source, |experiment| match experiment {
        VcpuExperiment::Sweep(sweep) => sweep.duration = time,
        VcpuExperiment::Population(population) => {
            population.population.nodes = 3;
            population.population.samples = 3000;
            population.population.network_test = Nanos::from_secs(10);
            if let Some(workflows) = &mut population.workflows {
                (workflows.draws, workflows.candidates, workflows.keep) = (3, 3, 2);
            }
            if let Some(pairs) = &mut population.pairs {
                pairs.time = Nanos::from_secs(2);
            }
            if let Some(drift) = &mut population.drift {
                drift.days = 2;
            }
        }
        VcpuExperiment::Networks(networks) => {
            for point in &mut networks.point {
                shorten(&mut point.work, time);
            }
        }
    })
}

fn shorten(work: &mut Work, time: Nanos) {
    let count = (1 + time.as_nanos() / 200_000_000) as u32;
    match work {
        Work::Transfers(transfers) => {
            transfers.count = transfers.count.min(count);
            transfers.size = transfers.size.min(Bytes(50_000));
        }
        Work::Pings(pings) => pings.count = pings.count.min(count),
        Work::Web(web) => {
            web.duration = Nanos::from_millis(100);
            web.clients = 10;
        }
        Work::Messages(Pattern::Broadcast(messages) | Pattern::AllToAll(messages)) => {
            messages.count = 2 + count;
        }
        Work::Messages(Pattern::Factorise(equations)) => equations.order = 100,
    }
}

fn short(name: &str, time: Nanos, seed: u64, threads: usize) -> Results {
    let source = VcpuExperiment::CATALOGUE.source(name).unwrap();
    let loaded = shortened(&source, time).unwrap();
    loaded.run(seed, &Threads(threads), &mut |_| {}).unwrap()
}

#[test]
fn vcpu_results_depend_on_the_seed_not_on_threads() {
    let time = Nanos::from_millis(200);
    // One of each kind: a sweep, nodes, pairs of them, weeks of them, and a network.
    for name in [
        "bobtail-fig4",
        "bobtail-fig9",
        "bobtail-fig2",
        "bobtail-fig3",
        "snoop-rtt",
    ] {
        let one = short(name, time, 7, 1);
        assert_eq!(one.to_json(), short(name, time, 7, 8).to_json(), "{name}");
        let other = short(name, time, 8, 2);
        assert_ne!(one.variants, other.variants, "{name}");
    }
}

#[test]
fn every_experiment_measures_the_series_of_its_outline() {
    for name in VcpuExperiment::CATALOGUE.names() {
        let source = VcpuExperiment::CATALOGUE.source(name).unwrap();
        let loaded = shortened(&source, Nanos::from_millis(100)).unwrap();
        let results = loaded.run(1, &Threads(1), &mut |_| {}).unwrap();
        assert!(results.checks.iter().all(|check| !check.source.is_empty()));
        // All charts are drawn.
        assert!(tailbound_report::page(&results).is_ok(), "{name}");
        let outline = loaded.experiment.outline();
        assert_eq!(outline.len(), results.variants.len(), "{name}");
        for (outline, variant) in outline.iter().zip(&results.variants) {
            assert_eq!(outline.name, variant.name, "{name}");
            assert!(outline.series.keys().eq(variant.series.keys()), "{name}");
            assert!(outline.values.keys().eq(variant.values.keys()), "{name}");
        }
    }
}

#[test]
fn a_minute_shows_the_figures_that_need_no_more() {
    for name in ["bobtail-fig5", "qos-fig14-15"] {
        let results = short(name, Nanos::from_secs(60), 1, 2);
        assert_eq!(results.verdict, Verdict::Pass, "{}", results.summary(false));
    }
}

#[test]
fn a_scheduler_without_the_mechanism_fails_the_check() {
    let mut source = VcpuExperiment::CATALOGUE.source("qos-fig14-15").unwrap();
    source.text = source.text.replace(
        "edf = { class = { tested = { kind = \"aperiodic\", deadline = \"3ms\" } } }",
        "credit = { version = \"4.1\" }",
    );
    let loaded = shortened(&source, Nanos::from_secs(60)).unwrap();
    let results = loaded.run(1, &Threads(2), &mut |_| {}).unwrap();
    assert_eq!(results.verdict, Verdict::Fail);
    let reason = "1 of 5 checks failed: deadline_3ms; no noise, time is virtual";
    assert_eq!(results.verdict_reason, reason);
}

#[test]
fn progress_is_reported_for_every_run() {
    let source = VcpuExperiment::CATALOGUE.source("qos-fig16").unwrap();
    let loaded = shortened(&source, Nanos::from_millis(100)).unwrap();
    let mut heard = Vec::new();
    let mut progress = |done: &str| heard.push(done.to_owned());
    loaded.run(1, &Threads(2), &mut progress).unwrap();
    let all: Vec<_> = (0..=6).map(|done| format!("{done} of 6")).collect();
    assert_eq!(heard, all);
}
