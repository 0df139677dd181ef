//! The experiments in short forms, and that they can fail.

use super::PacerExperiment;
use crate::Threads;
use tailbound_experiment::{Experiment as _, Loaded, Source};
use tailbound_report::Verdict;

/// Loads an experiment of the program, with replacements in its text.
fn parse(name: &str, changes: &[(&str, &str)]) -> Result<Loaded<PacerExperiment>, String> {
    let mut source = PacerExperiment::CATALOGUE
        .source(name)
        .expect("it comes with the program");
    for (from, to) in changes {
        assert!(source.text.contains(from), "{name} has no {from}");
        source.text = source.text.replacen(from, to, 1);
    }
    Loaded::parse(&source).map_err(|error| error.to_string())
}

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
        let loaded = parse(name, changes).expect("a sound experiment");
        let results = loaded.run(1, &Threads(1), &mut |_| {}).expect("it runs");
        let checks = &results.checks;
        assert_eq!(results.verdict, Verdict::Pass, "{name}: {checks:?}");
        // The measurements have the names of the outline.
        for (outline, variant) in loaded.experiment.outline().iter().zip(&results.variants) {
            assert_eq!(outline.name, variant.name, "{name}");
            assert!(outline.series.keys().eq(variant.series.keys()), "{name}");
            assert!(outline.values.keys().eq(variant.values.keys()), "{name}");
        }
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
fn results_follow_from_the_seed_whatever_the_number_of_threads() {
    for (name, changes) in SHORTEST {
        let loaded = parse(name, changes).expect("a sound experiment");
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
    let cases = [
        (
            "silo-table1",
            "frames = 10",
            "frames = 0",
            "frames 0: choose 1 to 1000",
        ),
        (
            "silo-table1",
            "late = [99, 77, ",
            "late = [99, ",
            "5 figures for 6 bandwidths",
        ),
        (
            "silo-table1",
            "[100, 140",
            "[90, 140",
            "bandwidths 90: choose 100 to",
        ),
        ("limits", "\"30KB\", ", "\"1KB\", ", "bursts 1KB: choose"),
        (
            "spacing",
            "frames = [84, 1538]",
            "frames = [83, 1538]",
            "frames 83: choose 84",
        ),
        (
            "conformance",
            "port = \"10Gbit/s\"",
            "port = \"7Gbit/s\"",
            "a rate of 7Gbit/s: choose",
        ),
        (
            "isolation",
            "load = 60",
            "load = 100",
            "load 100: choose 1 to 99",
        ),
        (
            "elastic",
            "busy_until = \"50ms\"",
            "busy_until = \"22ms\"",
            "busy_until 22ms: choose 23ms to 100ms",
        ),
        (
            "isolation",
            "[isolation]",
            "[limits]",
            "unknown key `flood`",
        ),
    ];
    for (name, right, wrong, message) in cases {
        let error = parse(name, &[(right, wrong)]).expect_err(message);
        assert!(
            error.starts_with(&format!("experiments/pacer/{name}.toml:")),
            "{error}"
        );
        assert!(error.contains(message), "{error}");
    }
    let source = Source {
        text: "name = \"x\"\ntitle = \"\"\nsource = \"\"\n".to_owned(),
        file: "x.toml".to_owned(),
    };
    let error = Loaded::<PacerExperiment>::parse(&source).expect_err("of no kind");
    assert!(error.to_string().contains("has 0 scenarios"), "{error}");
}

#[test]
fn a_check_of_what_is_not_there_is_refused_before_anything_runs() {
    for (name, right, wrong, message) in [
        (
            "spacing",
            "of = \"early\"",
            "of = \"erly\"",
            "unknown value `erly`; did you mean `early`?",
        ),
        (
            "spacing",
            "at = [\"one-guest\",",
            "at = [\"no-guest\",",
            "unknown variant `no-guest`",
        ),
        (
            "isolation",
            "latency.p99_9",
            "latncy.p99_9",
            "unknown series `latncy`",
        ),
        (
            "isolation",
            "latency.p99_9",
            "latency.p99.9",
            "unknown statistic `p99.9`",
        ),
        (
            "isolation",
            "from = \"conforming\"",
            "from = \"nobody\"",
            "unknown variant `nobody`",
        ),
        (
            "limits",
            "at = [\"all\"]",
            "at = [\"none\"]",
            "unknown variant `none`",
        ),
        (
            "conformance",
            "at = [\"networks\"]",
            "at = [\"network\"]",
            "did you mean `networks`?",
        ),
        (
            "silo-table1",
            "of = \"furthest_from_erlang\"",
            "of = \"far\"",
            "unknown value `far`",
        ),
    ] {
        let error = parse(name, &[(right, wrong)]).expect_err(message);
        assert!(
            error.starts_with(&format!("experiments/pacer/{name}.toml:")),
            "{error}"
        );
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn a_guarantee_that_the_pacer_refuses_is_named_by_its_rule() {
    let [one, three] = [1, 3].map(|gbit| format!("guest = {{ bandwidth = \"{gbit}Gbit/s\""));
    let loaded = parse("isolation", &[(&one, &three)]).expect("sound by itself");
    // Before anything runs, which would take half a minute.
    let error = loaded.run(1, &Threads(1), &mut |said| panic!("it runs: {said}"));
    let error = error.expect_err("3 and 8 times 1 Gbit/s of 10").to_string();
    assert!(
        error.contains("all bandwidths together would be"),
        "{error}"
    );
}
