//! Whole experiments, short.

use super::run::{run_points, run_population};
use super::*;
use tailbound_report::{Results, Verdict};
use tailbound_units::Nanos;

fn options(experiment: &str, seed: u64, threads: usize) -> Options {
    Options {
        experiment: experiment.to_owned(),
        seed,
        threads,
    }
}

/// An embedded experiment of at most this virtual time a point, or of three nodes.
fn short(name: &str, time: Nanos, seed: u64, threads: usize) -> Results {
    let (text, file) = source_text(name).unwrap();
    let options = options(name, seed, threads);
    if Population::is_in(&text) {
        let mut population = Population::parse(&text, &file).unwrap();
        population.population.nodes = 3;
        population.population.samples = 3000;
        population.population.network_test = Nanos::from_secs(10);
        return run_population(&population, &options, |_, _| {}).unwrap();
    }
    let mut experiment = Experiment::parse(&text, &file).unwrap();
    experiment.duration = time;
    run_points(&experiment, &options, |_, _| {}).unwrap()
}

#[test]
fn every_experiment_runs_and_its_bytes_depend_on_the_seed_alone() {
    let time = Nanos::from_secs(1);
    for &(name, _) in EMBEDDED {
        let one = short(name, time, 7, 1);
        let many = short(name, time, 7, 8);
        assert_eq!(one.to_json(), many.to_json(), "{name}");
        assert!(one.checks.iter().all(|check| !check.source.is_empty()));
        // Whatever can be drawn is drawn.
        assert!(one.to_html().is_ok(), "{name}");
    }
    let other = short("bobtail-fig4", time, 8, 2);
    assert_ne!(short("bobtail-fig4", time, 7, 2).to_json(), other.to_json());
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
    let (text, file) = source_text("qos-fig14-15").unwrap();
    let text = text.replace(
        "edf = { class = { tested = { kind = \"aperiodic\", deadline = \"3ms\" } } }",
        "credit = { version = \"4.1\" }",
    );
    let mut experiment = Experiment::parse(&text, &file).unwrap();
    experiment.duration = Nanos::from_secs(60);
    let results = run_points(&experiment, &options("", 1, 2), |_, _| {}).unwrap();
    assert_eq!(results.verdict, Verdict::Fail);
    assert_eq!(results.verdict_reason, "1 of 5 checks failed: deadline_3ms");
}

#[test]
fn progress_is_heard_up_to_the_last_run() {
    let (text, file) = source_text("qos-fig16").unwrap();
    let mut experiment = Experiment::parse(&text, &file).unwrap();
    experiment.duration = Nanos::from_millis(100);
    let mut heard = Vec::new();
    run_points(&experiment, &options("", 1, 2), |done, all| {
        heard.push((done, all));
    })
    .unwrap();
    assert_eq!(heard, (0..=6).map(|done| (done, 6)).collect::<Vec<_>>());
}
