//! Experiments from their text to their verdict, of a kind whose measurements are in its file.

use proptest::prelude::*;
use serde::Deserialize;
use std::cell::Cell;
use tailbound_document::{Document, Mistake};
use tailbound_experiment::{
    Catalogue, Cause, ChartSpec, Curve, Disturbance, Experiment, ExperimentError, Harm, Loaded,
    Mistakes, Name, Noise, Run, RunOutput, Source,
};
use tailbound_report::{
    Bound, CheckResult, Outcome, Results, Series, Stats, Value, Variant, Verdict, empty_histogram,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Toy {
    #[serde(default)]
    watched: bool,
    variant: Vec<ToyVariant>,
    #[serde(default)]
    chart: Vec<ChartSpec>,
}

/// The figures of a variant: `samples` of `rtt`, 2,000 by default, and the value `rate`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToyVariant {
    name: Name,
    x: Option<f64>,
    #[serde(default)]
    rtt: u64,
    #[serde(default)]
    rate: f64,
    unavailable: Option<String>,
    promised: Option<u64>,
    #[serde(default)]
    stolen: u64,
    /// Latency of disturbed samples.
    stolen_rtt: Option<u64>,
    #[serde(default)]
    disturbed: Option<String>,
    /// The harm of the disturbance: "slower" or "lost"; by default a delay.
    harm: Option<String>,
    /// The largest share of delayed samples, by default all.
    delayed: Option<f64>,
    /// Samples of `rtt` that took something else, and how long they took.
    #[serde(default)]
    late: u64,
    #[serde(default)]
    late_rtt: u64,
    /// The percentage of the CPUs that others used.
    share: Option<f64>,
    samples: Option<u64>,
    #[serde(default)]
    unanswered: u64,
}

impl ToyVariant {
    fn measure(&self) -> Variant {
        let mut variant = Variant {
            unavailable: self.unavailable.clone(),
            ..Variant::of_values(self.name.get_ref(), [("rate", self.rate, "op/s")])
        };
        let mut samples = empty_histogram();
        if self.rtt > 0 {
            let count = self.samples.unwrap_or(2_000);
            let in_time = count - self.stolen - self.late;
            samples.record_n(self.rtt, in_time).unwrap();
            samples.record_n(self.late_rtt, self.late).unwrap();
        }
        let mut rtt = Series::of("ns", &samples);
        if self.stolen > 0 {
            let took = self.stolen_rtt.unwrap_or(self.rtt);
            samples.record_n(took, self.stolen).unwrap();
            rtt.all = Stats::from_histogram(&samples);
        }
        rtt.hit.stolen = self.stolen;
        rtt.unanswered = self.unanswered;
        variant.series.insert("rtt".to_owned(), rtt);
        let bounds = self.promised.iter().flat_map(|promised| {
            // What is computed is less here.
            [("promised", *promised), ("computed", promised * 4 / 5)].map(|(name, value)| Bound {
                name: name.to_owned(),
                value,
            })
        });
        variant.bounds.insert("rtt".to_owned(), bounds.collect());
        variant
    }
}

impl Experiment for Toy {
    /// Counts its runs.
    type Options = Cell<u32>;
    type Error = ExperimentError;

    const CATALOGUE: Catalogue = Catalogue {
        folder: "toys",
        embedded: &[("one", SOUND)],
    };

    fn read(document: &Document<'_>) -> Result<Self, Vec<Mistake>> {
        document.whole()
    }

    fn check(&mut self, _: &str, mistakes: &mut Mistakes) {
        mistakes.names("variant", self.variant.iter().map(|it| &it.name));
        mistakes.top().count("variant", self.variant.len(), 1..=10);
    }

    fn outline(&self) -> Vec<Variant> {
        self.variant.iter().map(ToyVariant::measure).collect()
    }

    fn charts(&self) -> &[ChartSpec] {
        &self.chart
    }

    fn curves(&self) -> Vec<Curve> {
        let point = |it: &ToyVariant| Some((it.x?, it.name.get_ref().clone()));
        vec![Curve {
            name: "toy".to_owned(),
            points: self.variant.iter().filter_map(point).collect(),
        }]
    }

    fn run(&self, run: &mut Run<'_, Cell<u32>>) -> Result<RunOutput, Self::Error> {
        run.options.set(run.options.get() + 1);
        let disturbed = self.variant.iter().filter_map(|it| {
            Some(Disturbance {
                variant: it.name.get_ref().clone(),
                figures: Some(vec![it.disturbed.clone()?]).filter(|it| it[0] != "all"),
                cause: match it.share {
                    Some(share) => Cause::Share("other programs used", share, "of the CPUs"),
                    None => Cause::Event("a neighbour took the core".to_owned()),
                },
                harm: match it.harm.as_deref() {
                    None => Harm::Delayed(it.delayed.unwrap_or(1.0)),
                    Some("slower") => Harm::Slower,
                    Some("lost") => Harm::Lost,
                    Some(other) => panic!("{other}"),
                },
            })
        });
        let noise = if self.watched {
            Noise::Watched(disturbed.collect())
        } else {
            Noise::Virtual
        };
        Ok(RunOutput {
            variants: self.variant.iter().map(ToyVariant::measure).collect(),
            noise,
            ..RunOutput::default()
        })
    }
}

const SOUND: &str = r#"
name = "one"
title = "t"
source = "s"

[[variant]]
name = "before"
x = 1
rtt = 1000
rate = 200

[[variant]]
name = "after"
x = 2
rtt = 250
rate = 196
promised = 500

[[variant]]
name = "spare"
rtt = 400
rate = 100

[[chart]]
name = "rates"
title = "t"
x = { label = "x" }
y = { label = "rate", unit = "op/s" }
of = ["rate"]
paper = [{ name = "paper", points = [[1, 200], [2, 190]] }]

[[check]]
name = "faster"
kind = "reduction"
of = "rtt.p99"
from = "before"
at = ["after"]
at_least = 0.5
source = "s"
"#;

/// Returns [`SOUND`] with replacements.
fn with(changes: &[(&str, &str)]) -> String {
    changes.iter().fold(SOUND.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    })
}

fn load(text: &str) -> Result<Loaded<Toy>, String> {
    let source = Source {
        text: text.to_owned(),
        file: "x.toml".to_owned(),
    };
    Loaded::parse(&source).map_err(|error| error.to_string())
}

/// Runs the experiment of a sound text.
fn run_text(text: &str) -> Results {
    let loaded = load(text).unwrap();
    loaded.run(1, &Cell::new(0), &mut |_| {}).unwrap()
}

fn run(changes: &[(&str, &str)]) -> Results {
    run_text(&with(changes))
}

/// Returns the result of the only check, which is replaced by this text.
fn judged(check: &str) -> CheckResult {
    let (whole, _) = SOUND.split_once("[[check]]").unwrap();
    let text = format!("{whole}[[check]]\nname = \"c\"\nsource = \"s\"\n{check}");
    run_text(&text).checks.remove(0)
}

const BOTH: &str = "from = \"before\"\nat = [\"after\"]";

/// Kind, figure, variants and bound of a check; the expected figure, the text of the expectation,
/// and whether it holds.
type Case = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    f64,
    &'static str,
    bool,
);

#[rustfmt::skip]
const CASES: &[Case] = &[
    ("reduction", "rtt.p99", BOTH, "at_least = 0.75", 0.75, ">= 0.75", true),
    ("reduction", "rtt.mean", BOTH, "at_least = 0.76", 0.75, ">= 0.76", false),
    ("reduction", "rate", BOTH, "at_most = 0.03", 0.02, "<= 0.03", true),
    ("increase", "rate", BOTH, "at_least = -0.03", -0.02, ">= -0.03", true),
    ("times-lower", "rtt.max", BOTH, "at_least = 4", 4.0, ">= 4", true),
    ("ratio", "rtt.p50", BOTH, "at_most = 0.2", 0.25, "<= 0.2", false),
    ("difference", "rate", BOTH, "at_least = -4", -4.0, ">= -4op/s", true),
    ("of-promise", "rtt.p50", "at = [\"after\"]", "at_most = 1", 0.5, "<= 1", true),
    ("of-bound", "rtt.p50", "at = [\"after\"]", "at_most = 0.6", 0.625, "<= 0.6", false),
    ("value", "rtt.p50", "at = [\"after\"]", "at_most = 249", 250e-6, "<= 0.000249 ms", false),
    ("value", "rtt.count", "at = [\"after\"]", "at_least = 1999\nat_most = 2000", 2000.0,
     "1999 to 2000", true),
    ("distance", "rates", "from = \"paper\"", "at_most = 6", 6.0, "<= 6op/s", true),
];

#[test]
fn each_kind_of_check_is_computed_as_documented() {
    for &(kind, of, variants, bound, got, want, pass) in CASES {
        let text = format!("kind = \"{kind}\"\nof = \"{of}\"\n{variants}\n{bound}\n");
        let result = judged(&text);
        let off = (result.got.unwrap() - got).abs();
        assert!(off < 1e-9, "{text}: {result:?}");
        assert_eq!((result.want.as_str(), result.pass), (want, pass), "{text}");
    }
}

#[test]
fn the_variant_furthest_from_the_bound_decides_a_check() {
    let text = "of = \"rtt.p50\"\nat = [\"after\", \"before\", \"spare\"]\nat_most = \"500ns\"\n";
    let result = judged(text);
    assert!(
        !result.pass && (result.got.unwrap() - 1e-3).abs() < 1e-9,
        "{result:?}"
    );
    assert_eq!(result.note.as_deref(), Some("the furthest of 3: before"));
}

const AWAY: (&str, &str) = (
    "name = \"after\"",
    "name = \"after\"\nunavailable = \"no reason\"",
);

#[test]
fn a_check_uses_the_substitute_of_a_variant_that_did_not_run() {
    let spare = (
        "at = [\"after\"]",
        "at = [\"after\"]\ninstead = [\"spare\"]",
    );
    let results = run(&[AWAY, spare]);
    let check = &results.checks[0];
    assert!(check.pass, "{check:?}");
    assert_eq!(check.note.as_deref(), Some("of variant spare"));
}

#[test]
fn only_checks_of_a_variant_that_did_not_run_are_not_tested() {
    let results = run(&[AWAY]);
    let check = &results.checks[0];
    let why = "variant after could not run: no reason";
    assert_eq!(check.not_judged.as_deref(), Some(why));
    assert_eq!(
        (check.pass, check.got, check.outcome()),
        (false, None, Outcome::NotTested)
    );
    assert_eq!(results.verdict, Verdict::NotTested);
    let reason = format!("no check could be tested: {why}; no noise, time is virtual");
    assert_eq!(results.verdict_reason, reason);
    // It ran and shows nothing: that is no excuse.
    let results = run(&[("rtt = 250", "rtt = 0")]);
    let check = &results.checks[0];
    assert_eq!(
        (check.pass, check.got, check.outcome()),
        (false, None, Outcome::Fail)
    );
    assert_eq!(check.note.as_deref(), Some("variant after has no rtt.p99"));
    assert_eq!(results.verdict, Verdict::Fail);
}

#[test]
fn a_division_by_nothing_fails() {
    let results = run(&[
        ("rate = 200", "rate = 0"),
        ("of = \"rtt.p99\"", "of = \"rate\""),
    ]);
    assert_eq!(results.verdict, Verdict::Fail);
    let note = results.checks[0].note.as_deref();
    assert_eq!(note, Some("rate went from 0 to 196"));
}

const MORE: &str = "\n[[check]]\nname = \"more\"\nof = \"rate\"\nat = [\"spare\"]\nat_most = 1\n\
                    source = \"s\"\n";

#[test]
fn the_verdict_counts_passed_checks_and_names_the_others() {
    let results = run(&[]);
    assert_eq!(results.verdict, Verdict::Pass);
    let reason = "the check holds; no noise, time is virtual";
    assert_eq!(results.verdict_reason, reason);
    let results = run_text(&format!("{SOUND}{MORE}"));
    assert_eq!(results.verdict, Verdict::Fail);
    let reason = "1 of 2 checks failed: more; no noise, time is virtual";
    assert_eq!(results.verdict_reason, reason);
    let results = run_text(&format!("{}{MORE}", with(&[AWAY])));
    let reason = "1 of 1 checks failed: more, 1 NOT TESTED: faster; no noise, time is virtual";
    assert_eq!(results.verdict_reason, reason);
    let holds = MORE.replace("at_most", "at_least");
    let results = run_text(&format!("{}{holds}", with(&[AWAY])));
    assert_eq!(results.verdict, Verdict::Pass);
    let reason = "the check holds, 1 NOT TESTED: faster; no noise, time is virtual";
    assert_eq!(results.verdict_reason, reason);
}

const WATCHED: (&str, &str) = ("source = \"s\"\n", "source = \"s\"\nwatched = true\n");

#[test]
fn known_misses_are_reported_and_decide_no_verdict() {
    // The figure is 0.75.
    let missed = known_miss("at_least = 0.9", "[0.7, 0.8]");
    let results = run(&[(LIMIT, &missed)]);
    let reason = "no check holds, 1 known not to hold: faster; no noise, time is virtual";
    assert_eq!(
        (results.verdict, results.verdict_reason.as_str()),
        (Verdict::Fail, reason)
    );
    let holds = "\n[[check]]\nname = \"more\"\nof = \"rate\"\nat = [\"after\"]\nat_least = 1\nsource = \"s\"\n";
    let text = with(&[(LIMIT, &missed)]) + holds;
    let results = run_text(&text);
    let reason = "the check holds, 1 known not to hold: faster; no noise, time is virtual";
    assert_eq!(
        (results.verdict, results.verdict_reason.as_str()),
        (Verdict::Pass, reason)
    );
    let check = &results.checks[0];
    assert_eq!(
        (check.outcome(), check.remark(), check.known.as_deref()),
        (Outcome::Misses, Some("why"), Some("0.7 to 0.8"))
    );
    // One that holds after all is counted, and says so.
    let held = known_miss("at_least = 0.5", "[0.4, 0.8]");
    let results = run(&[(LIMIT, &held)]);
    assert_eq!(results.verdict, Verdict::Pass);
    let remark = results.checks[0].remark().unwrap();
    assert_eq!(remark, "it holds, though it was known to miss: why");
}

/// The limit of the sound experiment's check.
const LIMIT: &str = "at_least = 0.5\nsource = \"s\"";

/// Returns a limit with a known miss.
fn known_miss(limit: &str, known: &str) -> String {
    format!("{limit}\nsource = \"s\"\nmisses = {{ known = {known}, cause = \"why\" }}")
}

#[test]
fn a_known_miss_that_moves_fails_on_either_side() {
    for (limit, known) in [
        ("at_least = 0.9", "[0.76, 0.8]"),
        ("at_least = 0.9", "[0.6, 0.74]"),
        // It holds now, and is not where it was known to be.
        ("at_least = 0.5", "[0.3, 0.4]"),
    ] {
        let results = run(&[(LIMIT, &known_miss(limit, known))]);
        let check = &results.checks[0];
        assert_eq!(check.outcome(), Outcome::Fail, "{limit} {known}");
        assert_eq!(results.verdict, Verdict::Fail);
        let remark = check.remark().unwrap();
        assert_eq!(remark, "it left the range of its known miss: why");
    }
    for (limit, miss, message) in [
        (
            "at_least = 0.9",
            "{ known = [0.7, 0.8], cause = \" \" }",
            "misses without a cause",
        ),
        (
            "at_least = 0.9",
            "{ known = [0.8, 0.7], cause = \"why\" }",
            "a is more than b",
        ),
        (
            "at_least = 0.5",
            "{ known = [0.6, 0.8], cause = \"why\" }",
            "within the limits",
        ),
        ("at_least = 0.9", "\"why\"", "expected a table"),
    ] {
        let text = format!("{limit}\nsource = \"s\"\nmisses = {miss}");
        let error = load(&with(&[(LIMIT, &text)])).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn a_check_of_a_paper_s_figure_has_two_limits_around_it() {
    let source = |limits: &str, paper: &str| {
        format!("{limits}\nsource = {{ text = \"s\", paper = {paper} }}")
    };
    let results = run(&[(LIMIT, &source("at_least = 0.5\nat_most = 0.9", "0.8"))]);
    let check = &results.checks[0];
    assert_eq!((check.pass, check.paper.as_deref()), (true, Some("0.8")));
    let results = run(&[(
        LIMIT,
        &source("at_least = 0.5\nat_most = 0.9", "[0.6, 0.8]"),
    )]);
    assert_eq!(results.checks[0].paper.as_deref(), Some("0.6 to 0.8"));
    for (limits, paper, message) in [
        ("at_least = 0.5", "0.8", "needs at_least and at_most"),
        (
            "at_least = 0.5\nat_most = 0.7",
            "0.8",
            "is outside the limits",
        ),
        (
            "at_least = 0.5\nat_most = 0.7",
            "[0.4, 0.6]",
            "is outside the limits",
        ),
        (
            "at_least = 0.5\nat_most = 0.9",
            "[0.8, 0.6]",
            "a is more than b",
        ),
        (
            "at_least = 0.5\nat_most = 0.9",
            "true",
            "a figure, or the lowest and the highest",
        ),
    ] {
        let error = load(&with(&[(LIMIT, &source(limits, paper))])).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
#[rustfmt::skip]
fn a_distribution_is_drawn_for_each_variant_beside_the_paper() {
    let cdf = "\n[[cdf]]\nname = \"all\"\ntitle = \"t\"\nx = { label = \"x\", unit = \"ns\" }\nof = \"rtt\"\n\
               at = [\"before\", \"spare\"]\npaper = [{ name = \"paper\", points = [[300, 50]] }]\n";
    let results = run_text(&(SOUND.to_owned() + cdf));
    let chart = results.chart("all").unwrap();
    let names: Vec<_> = chart.lines.iter().map(|line| line.name.as_str()).collect();
    assert_eq!(names, ["before", "spare", "paper"]);
    // Every percentile, in order, of samples that are all the same.
    assert_eq!(chart.lines[0].points.len(), 101);
    assert_eq!(
        (chart.lines[0].points[50].0, chart.lines[0].points[50].1),
        (1000.0, 50.0)
    );
    assert!(tailbound_report::page(&results).is_ok());
    for (from, to, message) in [
        ("of = \"rtt\"\nat", "of = \"rt\"\nat", "unknown series `rt`"),
        ("\"spare\"]", "\"spar\"]", "unknown variant `spar`"),
        ("at = [\"before\", \"spare\"]", "at = []", "shows nothing"),
        ("name = \"all\"", "name = \"rates\"", "chart \"rates\" is there twice"),
    ] {
        assert!(cdf.contains(from), "{from}");
        let error = load(&(SOUND.to_owned() + &cdf.replace(from, to))).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

/// Returns the verdict and its reason if [`SOUND`] is watched and `after` has these lines instead
/// of its series.
fn watched(after: &str) -> (Verdict, String) {
    let results = run(&[WATCHED, ("rtt = 250\n", after)]);
    (results.verdict, results.verdict_reason)
}

#[test]
fn a_check_fails_only_if_few_disturbed_samples_cannot_save_it() {
    // A 99th percentile allows 0.1 %: 2 of 2,000 samples.
    for (rtt, stolen, stolen_rtt, verdict) in [
        (250, 0, 0, Verdict::Pass),
        // It holds without and with them, for any number of them.
        (250, 1_000, 260, Verdict::Pass),
        (250, 2, 900, Verdict::Pass),
        // It fails either way.
        (900, 0, 0, Verdict::Fail),
        (900, 2, 100, Verdict::Fail),
        (900, 3, 100, Verdict::Noisy),
        (900, 1_000, 900, Verdict::Noisy),
        // They decide, in either direction.
        (250, 30, 900, Verdict::Noisy),
        (900, 1_985, 100, Verdict::Noisy),
    ] {
        let took = format!("rtt = {rtt}\nstolen = {stolen}\nstolen_rtt = {stolen_rtt}\n");
        let (found, reason) = watched(&took);
        assert_eq!(found, verdict, "{took}: {reason}");
    }
    // Nothing rests on that one.
    let results = run(&[WATCHED, ("rtt = 400\n", "rtt = 400\nstolen = 1000\n")]);
    assert_eq!(results.verdict, Verdict::Pass);
}

#[test]
fn a_mean_is_noisy_above_one_percent_of_disturbed_samples() {
    let mean = ("of = \"rtt.p99\"", "of = \"rtt.mean\"");
    for (stolen, verdict) in [(20, Verdict::Fail), (21, Verdict::Noisy)] {
        let after = format!("rtt = 900\nstolen = {stolen}\n");
        let results = run(&[WATCHED, mean, ("rtt = 250\n", &after)]);
        assert_eq!(results.verdict, verdict, "{}", results.verdict_reason);
    }
}

#[test]
#[rustfmt::skip]
fn noise_is_named_in_every_verdict() {
    for (after, verdict, reason) in [
        ("rtt = 250\n", Verdict::Pass, "the check holds; none of 6000 samples was disturbed"),
        (
            "rtt = 900\nstolen = 2\n",
            Verdict::Fail,
            "1 of 1 checks failed: faster; 2 of 6000 samples were disturbed (2 by the hypervisor, \
             0 by a wait for a CPU)",
        ),
        (
            "rtt = 900\nstolen = 3\n",
            Verdict::Noisy,
            "no check holds, 1 too noisy to judge: faster; use --repeat or a quieter computer; 3 of \
             6000 samples were disturbed (3 by the hypervisor, 0 by a wait for a CPU)",
        ),
    ] {
        assert_eq!(watched(after), (verdict, reason.to_owned()));
    }
    let results = run(&[WATCHED, ("rtt = 250\n", "rtt = 900\nstolen = 3\n")]);
    let why = "3 of 2000 samples were disturbed (3 by the hypervisor, 0 by a wait for a CPU) of \
               variant after; rtt.p99 allows 0.1 %";
    assert_eq!(results.checks[0].noise.as_deref(), Some(why));
}

#[test]
fn a_figure_of_too_few_samples_is_not_tested_whether_it_holds_or_not() {
    for (of, samples, outcome) in [
        ("rtt.p50", 19, Outcome::NotTested),
        ("rtt.p50", 20, Outcome::Pass),
        ("rtt.p90", 99, Outcome::NotTested),
        ("rtt.p90", 100, Outcome::Pass),
        ("rtt.p99", 999, Outcome::NotTested),
        ("rtt.p99", 1_000, Outcome::Pass),
        ("rtt.p99_9", 9_999, Outcome::NotTested),
        ("rtt.p99_9", 10_000, Outcome::Pass),
        ("rtt.mean", 29, Outcome::NotTested),
        ("rtt.mean", 30, Outcome::Pass),
        ("rtt.max", 1, Outcome::Pass),
    ] {
        let before = format!("rtt = 1000\nsamples = {samples}\n");
        let of = format!("of = \"{of}\"");
        let changes = [("rtt = 1000\n", before.as_str()), ("of = \"rtt.p99\"", &of)];
        // The other variant has enough.
        let enough = ("rtt = 250\n", "rtt = 250\nsamples = 10000\n");
        let results = run(&[&changes[..], &[WATCHED, enough]].concat());
        assert_eq!(results.checks[0].outcome(), outcome, "{before}{of}");
        // In virtual time a sample is as good as any.
        let results = run(&[&changes[..], &[enough]].concat());
        assert_eq!(results.checks[0].outcome(), Outcome::Pass, "{before}{of}");
        // No check fails with too few samples, either.
        let slow = ("rtt = 250\n", "rtt = 2500\nsamples = 10000\n");
        let results = run(&[&changes[..], &[WATCHED, slow]].concat());
        let failed = results.checks[0].outcome() == Outcome::Fail;
        assert_eq!(failed, outcome == Outcome::Pass, "{before}{of}");
    }
}

#[test]
fn a_run_passes_with_untested_checks_and_counts_them() {
    let few = ("rtt = 250\n", "rtt = 250\nsamples = 50\n");
    let text = with(&[WATCHED, few]);
    let results = run_text(&text);
    let why = "rtt.p99 wants 1000 samples, variant after has 50";
    assert_eq!(results.checks[0].not_judged.as_deref(), Some(why));
    assert_eq!(
        (results.checks[0].pass, results.checks[0].got),
        (false, None)
    );
    let reason = format!("no check could be tested: {why}; none of 4050 samples was disturbed");
    assert_eq!(
        (results.verdict, results.verdict_reason),
        (Verdict::NotTested, reason)
    );
    let holds = MORE.replace("at_most", "at_least");
    let results = run_text(&format!("{text}{holds}"));
    let reason = "the check holds, 1 NOT TESTED: faster; none of 4050 samples was disturbed";
    assert_eq!(
        (results.verdict, results.verdict_reason.as_str()),
        (Verdict::Pass, reason)
    );
}

#[test]
fn a_check_may_want_more_samples_than_its_figure_does() {
    let wants = |count: u32| {
        let more = format!("at_least = 0.5\nsamples = {count}\n");
        run(&[("at_least = 0.5\n", &more)]).checks[0].outcome()
    };
    assert_eq!(wants(2_000), Outcome::Pass);
    assert_eq!(wants(2_001), Outcome::NotTested);
}

#[test]
fn a_check_wants_thirty_of_the_events_that_decide_its_figure() {
    let of = "of = \"rtt.p50\"\ndriven_by = \"rtt\"";
    let tested = |samples: u32| {
        let after = format!("rtt = 250\nsamples = {samples}\n");
        let results = run(&[WATCHED, ("rtt = 250\n", &after), ("of = \"rtt.p99\"", of)]);
        results.checks[0].outcome()
    };
    assert_eq!(tested(30), Outcome::Pass);
    assert_eq!(tested(29), Outcome::NotTested);
}

#[test]
fn requests_without_an_answer_are_no_reason_to_test_less() {
    let after = "rtt = 900\nsamples = 50\nunanswered = 950\n";
    assert_eq!(watched(after).0, Verdict::Fail);
    // None was answered.
    assert_eq!(watched("rtt = 0\nunanswered = 1000\n").0, Verdict::Fail);
}

#[test]
fn only_checks_of_a_disturbed_value_are_noisy() {
    let disturbed = ("rate = 196\n", "rate = 196\ndisturbed = \"rate\"\n");
    let results = run(&[WATCHED, disturbed]);
    assert_eq!(results.verdict, Verdict::Pass);
    let told = "; none of 6000 samples was disturbed, a neighbour took the core in variant after";
    assert!(
        results.verdict_reason.ends_with(told),
        "{}",
        results.verdict_reason
    );
    let results = run(&[WATCHED, disturbed, ("of = \"rtt.p99\"", "of = \"rate\"")]);
    assert_eq!(results.verdict, Verdict::Noisy);
    let why = "rate of variant after was disturbed: a neighbour took the core";
    assert_eq!(results.checks[0].noise.as_deref(), Some(why));
    assert_eq!(results.checks[0].outcome(), Outcome::Noisy);
}

#[test]
fn no_figure_of_a_disturbed_series_is_judged() {
    let disturbed = ("rate = 196\n", "rate = 196\ndisturbed = \"rtt\"\n");
    let results = run(&[WATCHED, disturbed]);
    assert_eq!(results.verdict, Verdict::Noisy);
    let results = run(&[WATCHED, disturbed, ("of = \"rtt.p99\"", "of = \"rate\"")]);
    assert_ne!(results.verdict, Verdict::Noisy);
}

#[test]
fn a_check_is_judged_if_delayed_samples_cannot_change_it() {
    let disturbed = |late: u64, late_rtt: u64, share: f64| {
        format!("late = {late}\nlate_rtt = {late_rtt}\ndisturbed = \"rtt\"\ndelayed = {share}\n")
    };
    // The first needs 60 samples of 2,000 to be half: they may be what was delayed.
    for (share, verdict) in [(0.01, Verdict::Pass), (0.04, Verdict::Noisy)] {
        let before = format!("rtt = 400\n{}", disturbed(60, 1_000, share));
        let results = run(&[WATCHED, ("rtt = 1000\n", &before)]);
        assert_eq!(results.verdict, verdict, "{}", results.verdict_reason);
    }
    // The second is late 60 or 600 times.
    for (late, share, verdict) in [
        (60, 0.04, Verdict::Noisy),
        (60, 0.01, Verdict::Fail),
        (600, 0.04, Verdict::Fail),
        (600, 1.5, Verdict::Noisy),
    ] {
        let after = format!("rtt = 250\n{}", disturbed(late, 900, share));
        let (found, reason) = watched(&after);
        assert_eq!(found, verdict, "{reason}");
        assert!(reason.contains("a neighbour took the core"), "{reason}");
    }
    // It says nothing of a figure that is no series'.
    let rate = ("of = \"rtt.p99\"", "of = \"rate\"");
    let of_rate = "rate = 196\ndisturbed = \"rate\"\ndelayed = 0.01\n";
    let results = run(&[WATCHED, ("rate = 196\n", of_rate), rate]);
    assert_eq!(results.verdict, Verdict::Noisy);
}

const SLOWER: &str = "disturbed = \"all\"\nharm = \"slower\"\n";

#[test]
fn a_variant_slowed_by_other_programs_is_noisy_not_failed() {
    let slower = |rate: f64| format!("rate = {rate}\n{SLOWER}");
    let one = |rate: f64, bound: &str| {
        let check = format!(
            "\n[[check]]\nname = \"c\"\nof = \"rate\"\nat = [\"after\"]\n{bound}\nsource = \"s\"\n"
        );
        let text = with(&[WATCHED, ("rate = 196\n", &slower(rate))]) + &check;
        run_text(&text).checks[1].outcome()
    };
    assert_eq!(one(196.0, "at_most = 200"), Outcome::Pass);
    assert_eq!(one(196.0, "at_most = 100"), Outcome::Noisy);
    assert_eq!(one(196.0, "at_least = 200"), Outcome::Noisy);
    // What is slow may be above a lower bound for no other reason.
    assert_eq!(one(196.0, "at_least = 100"), Outcome::Noisy);
    // A comparison may have come out either way: that of two variants holds here.
    let results = run(&[WATCHED, ("rate = 196\n", &slower(196.0))]);
    assert_eq!(results.verdict, Verdict::Noisy);
}

#[test]
fn a_disturbance_is_reported_once_with_range_and_variants() {
    let busy = |rate: &str, share: f64| format!("{rate}{SLOWER}share = {share}\n");
    let (one, other) = (busy("rate = 196\n", 90.4), busy("rate = 100\n", 98.0));
    let results = run(&[WATCHED, ("rate = 196\n", &one)]);
    let told = ", other programs used 90 % of the CPUs in variant after";
    let reason = &results.verdict_reason;
    assert!(reason.ends_with(told), "{reason}");
    let results = run(&[WATCHED, ("rate = 196\n", &one), ("rate = 100\n", &other)]);
    let told = ", other programs used 90 to 98 % of the CPUs in 2 variants";
    let reason = &results.verdict_reason;
    assert!(reason.ends_with(told), "{reason}");
    assert_eq!(reason.matches("other programs").count(), 1, "{reason}");
}

#[test]
fn a_variant_that_was_lost_to_load_makes_the_verdict_noisy() {
    let lost = "rtt = 250\nunavailable = \"too busy\"\ndisturbed = \"all\"\nharm = \"lost\"\n";
    let (verdict, reason) = watched(lost);
    assert_eq!(verdict, Verdict::Noisy, "{reason}");
    assert!(
        reason.ends_with("a neighbour took the core in variant after"),
        "{reason}"
    );
    // That it did not run for another reason is told as it was.
    let away = "rtt = 250\nunavailable = \"too busy\"\n";
    assert_eq!(watched(away).0, Verdict::NotTested);
}

#[test]
fn an_undisturbed_check_fails_beside_a_noisy_one() {
    let more = "\n[[check]]\nname = \"more\"\nof = \"rate\"\nat = [\"after\"]\n\
                at_least = 100000\nsource = \"s\"\n";
    let disturbed = ("rate = 196\n", "rate = 196\ndisturbed = \"rtt\"\n");
    let text = with(&[WATCHED, disturbed]) + more;
    let results = run_text(&text);
    let reason = "1 of 1 checks failed: more, 1 too noisy to judge: faster; none of 6000 samples \
                  was disturbed, a neighbour took the core in variant after";
    assert_eq!(
        (results.verdict, results.verdict_reason.as_str()),
        (Verdict::Fail, reason)
    );
}

const SENTENCE: &str = "[sentence]\nwhat = \"answers\"\ndid = \"took\"\nseries = \"rtt\"\n\
                        at = \"after\"\nfrom = \"before\"\n\n[[variant]]\nname = \"before\"";

#[test]
#[rustfmt::skip]
fn a_run_ends_with_the_sentence_that_its_experiment_defines() {
    assert_eq!(run(&[]).sentence, None);
    let told = ("[[variant]]\nname = \"before\"", SENTENCE);
    let said = run(&[told]).sentence.unwrap();
    assert_eq!(
        said,
        "99 of 100 answers took 250 ns, and 1 us without tailbound."
    );
    for (from, to, message) in [
        ("series = \"rtt\"", "series = \"rt\"", "unknown series `rt`"),
        ("at = \"after\"\nfrom", "at = \"aftr\"\nfrom", "unknown variant `aftr`"),
    ] {
        let error = load(&with(&[told, (from, to)])).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn labels_are_accepted_only_for_measured_names() {
    let words = |text: &str| {
        let text = format!("[words]\n{text}\n\n[[variant]]\nname = \"before\"");
        load(&with(&[("[[variant]]\nname = \"before\"", &text)]))
    };
    assert!(run(&[]).words.is_empty());
    let error = words("rt = \"Time\"").unwrap_err();
    assert!(
        error.contains("unknown name `rt`; did you mean `rtt`?"),
        "{error}"
    );
    words("rtt = \"Time until the answer\"\nbefore = \"without it\"").unwrap();
}

/// A text in [`SOUND`], its replacement, and the whole message.
#[rustfmt::skip]
const MISTAKES: &[(&str, &str, &str)] = &[
    ("at = [\"after\"]", "at = [\"aftr\"]",
     "x.toml:37:7: unknown variant `aftr`; did you mean `after`?"),
    ("of = \"rtt.p99\"", "of = \"of_nothing\"",
     "x.toml:35:6: unknown value `of_nothing`; known here: rate"),
    ("of = \"rtt.p99\"", "of = \"fct.p99\"", "x.toml:35:6: unknown series `fct`; known here: rtt"),
    ("of = \"rtt.p99\"", "of = \"rtt.p98\"",
     "x.toml:35:6: unknown statistic `p98`; did you mean `p99`?"),
    ("at_least = 0.5", "at_least = 40",
     "x.toml:38:12: at_least 40: a reduction is a fraction, 1 at most; write 0.4 for 40 %"),
    ("at_least = 0.5", "at_least = 0.5\nat_most = 0.4",
     "x.toml:33:8: at_least is more than at_most: nothing is both"),
    ("at_least = 0.5\n", "", "x.toml:33:8: needs at_least or at_most, or both"),
    ("of = \"rtt.p99\"", "of = \"rate\"\nsamples = 100",
     "x.toml:36:11: samples: rate is a single value; leave it out, or name a series"),
    ("from = \"before\"\n", "", "x.toml:33:8: needs a `from` to compare with"),
    ("kind = \"reduction\"\n", "",
     "x.toml:33:8: has a `from`, but its kind compares nothing: use another kind"),
    ("at = [\"after\"]\n", "", "x.toml:33:8: judges no variant: name some in `at`"),
    ("kind = \"reduction\"\nof = \"rtt.p99\"\nfrom = \"before\"",
     "kind = \"of-promise\"\nof = \"rtt.p99\"\ninstead = [\"spare\"]",
     "x.toml:35:6: variant \"spare\" has nothing promised for it"),
    ("kind = \"reduction\"\nof = \"rtt.p99\"", "kind = \"distance\"\nof = \"rate\"",
     "x.toml:35:6: unknown chart `rate`; did you mean `rates`?"),
    ("kind = \"reduction\"\nof = \"rtt.p99\"", "kind = \"distance\"\nof = \"rates\"",
     "x.toml:36:8: unknown line of the paper `before`; known here: paper"),
    ("of = [\"rate\"]", "of = [\"rat\"]", "x.toml:29:7: unknown value `rat`; did you mean `rate`?"),
    ("name = \"one\"", "name = \"../one\"",
     "x.toml:2:8: the name \"../one\": use up to 60 letters, digits, '-', '_' and '.'"),
    ("name = \"spare\"", "name = \"after\"",
     "x.toml:20:8: variant \"after\" is there twice: use another name"),
];

#[test]
fn experiment_mistakes_are_reported_once_with_their_place() {
    let mut wrong = Vec::new();
    for (from, to, message) in MISTAKES {
        let got = load(&with(&[(from, to)])).map(drop).unwrap_err();
        if got != *message {
            wrong.push(format!("{to}\nwanted {message}\ngot    {got}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn all_mistakes_are_reported_together_in_text_order() {
    let error = load(&with(&[
        ("name = \"spare\"", "name = \"a/b\""),
        ("of = [\"rate\"]", "of = []"),
        ("at = [\"after\"]", "at = [\"later\", \"never\"]"),
        ("at_least = 0.5", "at_least = 50"),
    ]));
    let error = error.map(drop).unwrap_err();
    let places: Vec<_> = error
        .lines()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    let expected = [
        "x.toml:20:8:",
        "x.toml:25:8:",
        "x.toml:37:7:",
        "x.toml:37:16:",
        "x.toml:38:12:",
    ];
    assert_eq!(places, expected, "{error}");
    // Values of the wrong type come first: the rest says nothing before they are right.
    let error = load(&with(&[
        ("title = \"t\"", "titel = \"t\""),
        ("rtt = 1000", "rtt = \"fast\""),
        ("rtt = 250", "wrt = 250"),
        ("at_least = 0.5", "at_least = nan"),
    ]));
    let error = error.map(drop).unwrap_err();
    let told: Vec<_> = error
        .lines()
        .map(|line| line.split(';').next().unwrap())
        .collect();
    assert_eq!(
        told,
        [
            "x.toml:1:1: the key `title` is missing",
            "x.toml:3:1: unknown key `titel`",
            "x.toml:9:7: invalid type: string \"fast\"",
            "x.toml:15:1: unknown key `wrt`",
            "x.toml:38:12: not a number",
        ],
        "{error}"
    );
}

#[test]
fn a_mistake_costs_no_run() {
    let runs = Cell::new(0);
    if let Ok(loaded) = load(&with(&[("at = [\"after\"]", "at = [\"typo\"]")])) {
        loaded.run(1, &runs, &mut |_| {}).unwrap();
    }
    assert_eq!(runs.get(), 0);
    load(SOUND).unwrap().run(1, &runs, &mut |_| {}).unwrap();
    assert_eq!(runs.get(), 1);
}

#[test]
fn charts_are_drawn_from_the_variants_that_have_a_place() {
    let results = run(&[]);
    let lines: Vec<_> = results.charts[0]
        .lines
        .iter()
        .map(|it| it.name.as_str())
        .collect();
    assert_eq!(lines, ["measured", "paper"]);
    let points: Vec<f64> = results.charts[0].lines[0]
        .points
        .iter()
        .map(|it| it.1)
        .collect();
    assert_eq!(points, [200.0, 196.0]);
}

#[test]
fn unknown_experiments_are_refused_with_the_known_names() {
    let source = Toy::CATALOGUE.source("one").unwrap();
    assert_eq!(
        (source.text.as_str(), source.file.as_str()),
        (SOUND, "toys/one.toml")
    );
    let error = Toy::CATALOGUE.source("two").unwrap_err().to_string();
    assert_eq!(
        error,
        "there is no experiment \"two\"; name a file, or one of one"
    );
    let error = Toy::CATALOGUE
        .source("no/such.toml")
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("no/such.toml: cannot be read: "),
        "{error}"
    );
    let value = Value::new("op/s", 200.0);
    assert_eq!(run(&[]).variants[0].values["rate"], value);
}

proptest! {
    #[test]
    fn any_text_is_accepted_or_refused_and_never_panics(text: String) {
        let _ = load(&text);
    }

    #[test]
    fn a_corrupted_sound_experiment_never_panics_the_parser(
        at in 0..SOUND.len(), length in 0usize..20, other in "[ -~\n]{0,10}|.{0,3}",
    ) {
        let end = (at + length).min(SOUND.len());
        let text = format!("{}{other}{}", &SOUND[..at], &SOUND[end..]);
        let _ = load(&text);
    }
}
