//! Each kind of check, its verdict, known misses and figures of papers.

use crate::toy::{MORE, SOUND, load, run, run_text, with};
use tailbound_report::{CheckResult, Outcome, Verdict};

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
