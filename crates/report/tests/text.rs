//! Output for a terminal.

mod sample;

use serde_json::json;
use std::path::Path;
use tailbound_report::{Bars, Bound, Comparison, Paint, Results, Verdict};

/// The same experiment on another machine, with other variants.
fn other() -> Results {
    let mut results = sample::results();
    results.verdict = Verdict::Pass;
    results.conditions.insert("kernel".into(), json!("6.12.1"));
    results
        .conditions
        .insert("steal_percent".into(), json!(1.5));
    results.seed = 2;
    results.variants.remove(0);
    results.variants[2].name = "patched-twice".into();
    let unpatched = &mut results.variants[0];
    unpatched.series.get_mut("small_fct").unwrap().stats =
        sample::stats(4_500, 2_000_000, 400_000_000);
    unpatched.series.get_mut("large_fct").unwrap().unit = "us".into();
    unpatched.values.get_mut("bulk_bit_s").unwrap().value = f64::NAN;
    results
}

#[test]
fn the_summary_begins_with_the_verdict() {
    insta::assert_snapshot!(sample::results().summary(false));
}

#[test]
fn a_reason_shared_by_several_checks_is_shown_once() {
    let mut results = sample::results();
    let why = "variant patched could not run: it takes CAP_SYS_NICE";
    for check in &mut results.checks {
        check.not_judged = Some(why.to_owned());
    }
    let summary = results.summary(false);
    assert!(results.checks.len() > 1);
    assert_eq!(summary.matches(why).count(), 1, "{summary}");
    let above = summary.matches("(as above)").count();
    assert_eq!(above, results.checks.len() - 1, "{summary}");
}

#[test]
fn colours_come_only_when_asked_for() {
    let results = sample::results();
    assert!(!results.summary(false).contains('\x1b'));
    let coloured = results.summary(true);
    assert!(coloured.starts_with("\x1b[31;1mFAIL\x1b[0m  traps: "));
}

#[test]
fn a_comparison_lists_conditions_first_and_unmatched_figures() {
    let comparison = Comparison::new(("a.json", &sample::results()), ("b.json", &other()));
    insta::assert_snapshot!(comparison.text(false));
}

#[test]
fn a_comparison_as_json_is_stable() {
    let mut comparison = Comparison::new(("a.json", &sample::results()), ("b.json", &other()));
    comparison
        .figures
        .retain(|pair| pair.variant == "unpatched");
    insta::assert_snapshot!(serde_json::to_string_pretty(&comparison).unwrap());
}

#[test]
fn a_run_compared_with_itself_has_only_equal_figures() {
    let results = sample::results();
    let comparison = Comparison::new(("a", &results), ("b", &results));
    assert!(comparison.conditions.is_empty() && comparison.only_a.is_empty());
    assert!(
        comparison
            .figures
            .iter()
            // Of too few samples there is no percentile on either side.
            .all(|pair| pair.ratio == Some(1.0) || (pair.a, pair.b) == (None, None))
    );
    // Three variants with two series of seven figures and one value each.
    assert_eq!(comparison.figures.len(), 3 * (2 * 7 + 1));
}

#[test]
fn bounds_are_shown_with_the_share_of_samples_above_them() {
    let mut results = sample::results();
    let bound = |name: &str, value| Bound {
        name: name.into(),
        value,
    };
    // The samples of `patched` go up to 3.4 ms.
    let bounds = vec![bound("promised", 5_000_000), bound("computed", 1)];
    results.variants[3]
        .bounds
        .insert("small_fct".into(), bounds);
    let text = results.summary(false);
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.contains("promised") || line.contains("computed"))
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows.len(), 2, "{text}");
    assert_eq!(rows[0][..4], ["patched", "promised", "5", "ms"]);
    assert!(rows[0].ends_with(&["0", "%"]), "{text}");
    assert!(rows[1].ends_with(&["100", "%"]), "{text}");
    let page = tailbound_report::page(&results).unwrap();
    let tables = page.matches("<td>promised</td>").count();
    let pictures = page.matches("\npromised").count();
    assert_eq!(
        (tables, pictures),
        (1, 3),
        "a table, and a line in each picture"
    );
    // What is written is read back.
    let read: Results = serde_json::from_str(&results.to_json()).unwrap();
    assert_eq!(read.variants[3].bounds, results.variants[3].bounds);
}

/// Returns the sample's run with labels and a sentence; all tested checks hold.
fn passed() -> Results {
    let mut results = sample::results();
    results.verdict = Verdict::Pass;
    results.sentence = Some("99 of 100 small answers took 3.06 ms, and 157 ms without it.".into());
    results.words = [
        ("small_fct", "Time until a small answer is complete"),
        ("unpatched", "without tailbound"),
        ("patched", "with tailbound"),
    ]
    .map(|(name, words)| (name.to_owned(), words.to_owned()))
    .into();
    results
}

fn brief(results: &Results, bars: Bars) -> String {
    results.brief(Paint(false), bars, Path::new("out/traps.html"))
}

#[test]
fn the_brief_report_has_eight_lines_at_most() {
    let mut results = passed();
    insta::assert_snapshot!(brief(&results, Bars::Blocks));
    for number in 0..9 {
        let mut another = results.variants[1].clone();
        another.name = format!("another-{number}");
        results.variants.push(another);
        let text = brief(&results, Bars::Ascii);
        assert!(text.lines().count() <= 8, "{text}");
        assert!(text.is_ascii(), "{text}");
        let width = text.lines().filter(|line| line.starts_with("  "));
        let widest = width.map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{text}");
    }
    let text = brief(&results, Bars::Ascii);
    assert!(text.contains("(6 more variants are on the page)"), "{text}");
    assert!(text.contains("another-8"), "{text}");
}

#[test]
fn each_check_that_failed_has_a_line() {
    let mut results = passed();
    results.verdict = Verdict::Fail;
    results.checks[0].pass = false;
    results.checks[1].not_judged = None;
    let text = brief(&results, Bars::Ascii);
    let lines: Vec<_> = text.lines().take(3).collect();
    let expected = [
        "FAIL  traps: 2 of 2 checks failed, 1 variant did not run (SCHED_DEADLINE needs CAP_SYS_NICE)",
        "failed  p99_small_fct_reduction: 0.983, expected >= 0.56",
        "failed  vcpu_only_p99_reduction: -, expected >= 0.2",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn a_noise_cause_shared_by_checks_is_shown_once() {
    let mut results = passed();
    results.verdict = Verdict::Noisy;
    for check in &mut results.checks {
        check.noise = Some("other programs used 90 % of the shared core".to_owned());
        check.not_judged = None;
    }
    let text = brief(&results, Bars::Ascii);
    let line = "NOISY  traps: 2 too disturbed to judge (other programs used 90 % of the shared core), \
                1 variant did not run (SCHED_DEADLINE needs CAP_SYS_NICE)";
    assert_eq!(text.lines().next(), Some(line));
    assert_eq!(text.matches("other programs").count(), 1, "{text}");
}

#[test]
fn a_run_without_samples_has_no_bars() {
    let mut results = passed();
    results.variants.clear();
    let text = brief(&results, Bars::Ascii);
    assert_eq!(text.lines().count(), 3, "{text}");
}

#[test]
fn variants_that_did_not_run_are_counted_with_a_reason() {
    let mut results = passed();
    results.checks.clear();
    let first_line = |results: &Results| {
        let text = brief(results, Bars::Ascii);
        text.lines().next().unwrap_or_default().to_owned()
    };
    let why = "the kernel lacks SCHED_DEADLINE";
    for variant in &mut results.variants {
        variant.unavailable = None;
    }
    assert_eq!(first_line(&results), "PASS  traps: it has no checks");
    results.variants[0].unavailable = Some(why.to_owned());
    let line = format!("PASS  traps: it has no checks, 1 variant did not run ({why})");
    assert_eq!(first_line(&results), line);
    results.variants[1].unavailable = Some("another reason".to_owned());
    let line = format!("PASS  traps: it has no checks, 2 variants did not run ({why})");
    assert_eq!(first_line(&results), line);
}
