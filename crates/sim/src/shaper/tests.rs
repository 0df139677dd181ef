//! The experiments in short forms, and that they can fail.

use super::ShaperExperiment;
use crate::Threads;
use crate::testing::{assert_mistakes, assert_outlined, parse, replaced, source};
use tailbound_experiment::Loaded;
use tailbound_report::Verdict;

/// Loads an experiment of the program, with replacements in its text.
fn load(name: &str, changes: &[(&str, &str)]) -> Loaded<ShaperExperiment> {
    let mut text = replaced(&source::<ShaperExperiment>(name).text, changes);
    // A limit that others are on both sides of.
    if name == "rate" {
        let is_kept = |it: &&str| !it.contains("-16-") && *it != "\"16Mbit/s\"";
        text = text
            .split(", ")
            .filter(is_kept)
            .collect::<Vec<_>>()
            .join(", ");
    }
    parse(&text).expect("a sound experiment")
}

const CREDIT_50: &str =
    "[[rate.shaper]]\nname = \"credit-50\"\nkind = \"credit\"\ninterval = \"50ms\"\n";
const CREDIT_30: &str =
    "[[rate.shaper]]\nname = \"credit-30\"\nkind = \"credit\"\ninterval = \"30ms\"\n";
const CREDIT_250_HZ: &str = "[[rate.shaper]]\nname = \"credit-5-250hz\"\nkind = \"credit\"\n\
                             interval = \"5ms\"\ntick = \"4ms\"\n";

/// Short forms of all experiments that still prove something.
const SHORT: [(&str, &[(&str, &str)]); 5] = [
    (
        "rtp",
        &[
            ("time = \"120s\"", "time = \"20s\""),
            // A shorter time has a wider spread.
            ("known = [0.2, 0.25]", "known = [0.2, 0.35]"),
            ("known = [0.22, 0.29]", "known = [0.2, 0.4]"),
        ],
    ),
    ("key-frames", &[("time = \"120s\"", "time = \"20s\"")]),
    ("video", &[("time = \"120s\"", "time = \"20s\"")]),
    ("http", &[("requests = 1000", "requests = 300")]),
    (
        "rate",
        &[
            ("time = \"120s\"", "time = \"20s\""),
            // Nothing is expected of these.
            (CREDIT_50, ""),
            (CREDIT_30, ""),
            (CREDIT_250_HZ, ""),
        ],
    ),
];

#[test]
fn every_experiment_holds() {
    for (name, changes) in SHORT {
        let loaded = load(name, changes);
        let results = loaded.run(1, &Threads(1), &mut |_| {}).expect("it runs");
        let checks = &results.checks;
        assert_eq!(results.verdict, Verdict::Pass, "{name}: {checks:?}");
        assert_outlined(&loaded, &results);
    }
}

/// All except the last, which divides its work in the same way, and takes as long as all of them.
#[test]
fn results_depend_on_the_seed_not_on_the_threads() {
    for (name, changes) in &SHORT[..4] {
        let loaded = load(name, changes);
        let run = |threads| {
            let results = loaded.run(1, &Threads(threads), &mut |_| {});
            results.expect("it runs").to_json()
        };
        assert_eq!(run(1), run(2), "{name}");
    }
}

#[test]
fn invalid_shaper_settings_are_named_with_their_place() {
    assert_mistakes::<ShaperExperiment>(
        "rtp",
        r#"
[98, 100] => [0, 100]
    loads 0: choose 1 to 1000
interval = "50ms" => interval = "0s"
    interval 0ns: choose
width = "100us" => width = "0s"
    width 0ns: choose
kind = "fifo" => kind = "fifo"\nwidth = "1ms"
    width is a key of kind = "smooth-window" alone
"#,
    );
    assert_mistakes::<ShaperExperiment>(
        "http",
        r"
clients = 10 => clients = 0
    clients 0: choose 1 to
",
    );
    assert_mistakes::<ShaperExperiment>(
        "rate",
        r#"
time = "120s" => time = "5s"
    time 5s: choose
of = "least_in_10s" => of = "least"
    unknown value `least`
"#,
    );
}
