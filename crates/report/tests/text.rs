//! What a terminal shows.

mod sample;

use serde_json::json;
use tailbound_report::{Comparison, Results, Verdict};

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
fn colours_come_only_when_asked_for() {
    let results = sample::results();
    assert!(!results.summary(false).contains('\x1b'));
    let coloured = results.summary(true);
    assert!(coloured.starts_with("\x1b[31;1mFAIL\x1b[0m  traps: "));
}

#[test]
fn a_comparison_names_other_conditions_first_and_what_only_one_has() {
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
fn a_run_is_like_itself() {
    let results = sample::results();
    let comparison = Comparison::new(("a", &results), ("b", &results));
    assert!(comparison.conditions.is_empty() && comparison.only_a.is_empty());
    assert!(
        comparison
            .figures
            .iter()
            .all(|pair| pair.ratio == Some(1.0))
    );
    // Three variants with two series of seven figures and one value each.
    assert_eq!(comparison.figures.len(), 3 * (2 * 7 + 1));
}
