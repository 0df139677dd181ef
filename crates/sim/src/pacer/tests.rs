//! The experiments in short forms, and that they can fail.

use super::PacerExperiment;
use crate::Threads;
use crate::testing::{assert_mistakes, assert_outlined, load, parse};
use tailbound_report::Verdict;

/// Short forms of all experiments that still prove something.
const SHORT: [(&str, &[(&str, &str)]); 6] = [
    (
        "silo-table1",
        &[
            ("messages = 300000", "messages = 5000"),
            // A single late message is a large part of the few.
            (
                "at_least = 0.05\nat_most = 0.15",
                "at_least = 0\nat_most = 1",
            ),
            ("at_most = 0.5", "at_most = 3"),
            ("at_most = 1\n", "at_most = 4\n"),
            ("at_least = 98", "at_least = 70"),
            ("at_least = -7\nat_most = -5", "at_most = -3"),
            (
                "at_least = 32\nat_most = 34",
                "at_least = 30\nat_most = 100",
            ),
        ],
    ),
    (
        "limits",
        &[
            ("time = \"1s\"", "time = \"3ms\""),
            ("[\"10Mbit/s\", \"33Mbit/s\", ", "["),
            ("\"30KB\", \"100KB\", \"1250KB\"", "\"30KB\""),
        ],
    ),
    (
        "spacing",
        &[
            ("count = 2000000", "count = 20000"),
            ("count = 2000000", "count = 20000"),
            ("count = 300000", "count = 2000"),
            ("count = 300000", "count = 2000"),
            (
                "count = 20000\n\n[[spacing.load]]\nname = \"late",
                "count = 200\n\n[[spacing.load]]\nname = \"late",
            ),
            ("count = 300000", "count = 2000"),
        ],
    ),
    ("conformance", &[("networks = 4000", "networks = 60")]),
    (
        "isolation",
        &[
            ("messages = 20000", "messages = 200"),
            ("flows = 100000", "flows = 100"),
            ("time = \"1s\"", "time = \"5ms\""),
            // The tail of few messages is a single message.
            ("at_most = 1.05", "at_most = 1.1"),
            ("at_most = 1.1\n", "at_most = 1.2\n"),
        ],
    ),
    (
        "elastic",
        &[
            ("busy_from = \"20ms\"", "busy_from = \"5ms\""),
            ("busy_until = \"50ms\"", "busy_until = \"15ms\""),
            ("time = \"100ms\"", "time = \"20ms\""),
        ],
    ),
];

#[test]
fn every_experiment_holds() {
    for (name, changes) in SHORT {
        let loaded = load::<PacerExperiment>(name, changes);
        let results = loaded.run(1, &Threads(1), &mut |_| {}).expect("it runs");
        let checks = &results.checks;
        assert_eq!(results.verdict, Verdict::Pass, "{name}: {checks:?}");
        assert_outlined(&loaded, &results);
    }
}

/// Shorter forms of the random experiments, which prove nothing.
const SHORTEST: [(&str, &[(&str, &str)]); 5] = [
    ("silo-table1", &[("messages = 300000", "messages = 1000")]),
    ("spacing", SHORT[2].1),
    ("conformance", &[("networks = 4000", "networks = 4")]),
    (
        "isolation",
        &[
            ("messages = 20000", "messages = 50"),
            ("flows = 100000", "flows = 10"),
            ("time = \"1s\"", "time = \"1ms\""),
        ],
    ),
    ("elastic", SHORT[5].1),
];

#[test]
fn results_depend_on_the_seed_not_on_the_threads() {
    for (name, changes) in SHORTEST {
        let loaded = load::<PacerExperiment>(name, changes);
        let run = |seed, threads| {
            let results = loaded.run(seed, &Threads(threads), &mut |_| {});
            results.expect("it runs")
        };
        let results = run(1, 2);
        // All experiments divide their work in the same way.
        if name == "spacing" || name == "conformance" {
            // Compared as text, because values may be NaN.
            assert_eq!(results.to_json(), run(1, 1).to_json(), "{name}");
        }
        assert_ne!(results.variants, run(2, 2).variants, "{name}");
    }
}

#[test]
fn mistakes_are_named_with_their_place() {
    assert_mistakes::<PacerExperiment>(
        "silo-table1",
        r"
frames = 10 => frames = 0
    frames 0: choose 1 to 1000
late = [99, 77,  => late = [99,
    5 figures for 6 bandwidths
[100, 140 => [90, 140
    bandwidths 90: choose 100 to
",
    );
    assert_mistakes::<PacerExperiment>(
        "limits",
        r#"
"30KB",  => "1KB",
    bursts 1KB: choose
"#,
    );
    assert_mistakes::<PacerExperiment>(
        "spacing",
        r"
frames = [84, 1538] => frames = [83, 1538]
    frames 83: choose 84
",
    );
    assert_mistakes::<PacerExperiment>(
        "conformance",
        r#"
port = "10Gbit/s" => port = "7Gbit/s"
    a rate of 7Gbit/s: choose
"#,
    );
    assert_mistakes::<PacerExperiment>(
        "isolation",
        r"
load = 60 => load = 100
    load 100: choose 1 to 99
[isolation] => [limits]
    unknown key `flood`
",
    );
    assert_mistakes::<PacerExperiment>(
        "elastic",
        r#"
busy_until = "50ms" => busy_until = "22ms"
    busy_until 22ms: choose 23ms to 100ms
"#,
    );
    let error = parse::<PacerExperiment>("name = \"x\"\ntitle = \"\"\nsource = \"\"\n");
    let error = error.expect_err("of no kind");
    assert!(error.contains("has 0 scenarios"), "{error}");
}

#[test]
fn a_check_with_an_unknown_name_is_refused_before_the_run() {
    assert_mistakes::<PacerExperiment>(
        "spacing",
        r#"
of = "early" => of = "erly"
    unknown value `erly`; did you mean `early`?
at = ["one-guest", => at = ["no-guest",
    unknown variant `no-guest`
"#,
    );
    assert_mistakes::<PacerExperiment>(
        "isolation",
        r#"
latency.p99_9 => latncy.p99_9
    unknown series `latncy`
latency.p99_9 => latency.p99.9
    unknown statistic `p99.9`
from = "conforming" => from = "nobody"
    unknown variant `nobody`
"#,
    );
    assert_mistakes::<PacerExperiment>(
        "limits",
        r#"
at = ["all"] => at = ["none"]
    unknown variant `none`
"#,
    );
    assert_mistakes::<PacerExperiment>(
        "conformance",
        r#"
at = ["networks"] => at = ["network"]
    did you mean `networks`?
"#,
    );
    assert_mistakes::<PacerExperiment>(
        "silo-table1",
        r#"
of = "furthest_from_erlang" => of = "far"
    unknown value `far`
"#,
    );
}

#[test]
fn a_guarantee_that_the_pacer_refuses_is_named_by_its_rule() {
    let [one, three] = [1, 3].map(|gbit| format!("guest = {{ bandwidth = \"{gbit}Gbit/s\""));
    let loaded = load::<PacerExperiment>("isolation", &[(&one, &three)]);
    // Before anything runs, which would take half a minute.
    let error = loaded.run(1, &Threads(1), &mut |said| panic!("it runs: {said}"));
    let error = error.expect_err("3 and 8 times 1 Gbit/s of 10").to_string();
    assert!(
        error.contains("all bandwidths together would be"),
        "{error}"
    );
}
