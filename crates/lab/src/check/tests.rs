use super::*;
use crate::experiment::Experiment;
use tailbound_report::{Series, Stats, Value, empty_histogram};

/// The checks of an experiment with variants `before`, `after` and `instead`,
/// written as in its file.
fn checks(text: &str) -> Vec<Check> {
    let text = format!(
        r#"
        name = "x"
        title = "t"
        source = "s"
        duration = "1s"
        hosts = {{ A = ["A1"], B = ["B1"] }}
        pipeline.p = {{ nic_queue = "1ms", config = {{}} }}
        ping = [{{ name = "ping", from = "A1", to = "B1", every = "1ms", series = "rtt" }}]
        bulk = [{{ name = "bulk", from = "A1", to = "B1", value = "rate" }}]
        variant = [
            {{ name = "before", pipeline = "p", loads = ["ping", "bulk"] }},
            {{ name = "after", pipeline = "p", loads = ["ping", "bulk"] }},
            {{ name = "instead", pipeline = "p", loads = ["ping", "bulk"] }},
        ]
        check = [{{ name = "c", source = "s", {text} }}]
        "#
    );
    Experiment::parse(&text, "x.toml").unwrap().check
}

fn variant(name: &str, latency: u64, rate: f64) -> Variant {
    let mut histogram = empty_histogram();
    histogram.record_n(latency, 100).unwrap();
    let series = Series {
        stats: Stats::from_histogram(&histogram),
        all: Stats::from_histogram(&histogram),
        ..Series::default()
    };
    let value = Value {
        value: rate,
        ..Value::default()
    };
    Variant {
        name: name.into(),
        series: [("rtt".into(), series)].into(),
        values: [("rate".into(), value)].into(),
        ..Variant::default()
    }
}

fn unavailable(name: &str) -> Variant {
    Variant {
        name: name.into(),
        unavailable: Some("no reason".into()),
        ..Variant::default()
    }
}

fn single(text: &str, variants: &[Variant]) -> CheckResult {
    evaluate(&checks(text), variants).remove(0)
}

#[test]
fn each_kind_is_computed_as_it_says() {
    let variants = [variant("before", 1000, 200.0), variant("after", 250, 196.0)];
    for (text, got, pass) in [
        (
            r#"kind = "reduction", of = "rtt.p99", from = "before", to = ["after"], at_least = 0.75"#,
            0.75,
            true,
        ),
        (
            r#"kind = "reduction", of = "rtt.mean", from = "before", to = ["after"], at_least = 0.76"#,
            0.75,
            false,
        ),
        (
            r#"kind = "reduction", of = "rate", from = "before", to = ["after"], at_most = 0.03"#,
            0.02,
            true,
        ),
        (
            r#"kind = "increase", of = "rate", from = "after", to = ["before"], at_most = 0.02"#,
            4.0 / 196.0,
            false,
        ),
        (
            r#"kind = "times-lower", of = "rtt.max", from = "before", to = ["after"], at_least = 4.0"#,
            4.0,
            true,
        ),
        (
            r#"kind = "value", of = "rtt.p50", to = ["after"], at_most = 249.0"#,
            250.0,
            false,
        ),
    ] {
        let result = single(text, &variants);
        assert!(
            (result.got.unwrap() - got).abs() < 1e-9,
            "{text}: {result:?}"
        );
        assert_eq!(result.pass, pass, "{text}");
    }
}

const JUDGED: &str = r#"kind = "reduction", of = "rtt.p99", from = "before", to = ["after", "instead"], at_least = 0.5"#;

#[test]
fn where_a_variant_could_not_run_the_next_is_judged_and_the_result_says_so() {
    let variants = [
        variant("before", 1000, 1.0),
        unavailable("after"),
        variant("instead", 400, 1.0),
    ];
    let result = single(JUDGED, &variants);
    assert!(result.pass);
    assert_eq!(result.note.as_deref(), Some("of variant instead"));
}

#[test]
fn a_check_whose_variants_could_not_run_is_not_passed_and_says_why() {
    let variants = [variant("before", 1000, 1.0), unavailable("after")];
    let result = single(JUDGED, &variants);
    assert!(!result.pass && result.got.is_none());
    let note = result.note.clone().unwrap();
    assert!(
        note.contains("not judged") && note.contains("no reason"),
        "{note}"
    );
    let (verdict, reason) = verdict(&checks(JUDGED), &[], &variants, &[result]);
    assert_eq!(verdict, Verdict::Noisy, "{reason}");
}

#[test]
fn a_division_by_nothing_is_not_judged() {
    let variants = [variant("before", 10, 0.0), variant("after", 10, 0.0)];
    let text = r#"kind = "reduction", of = "rate", from = "before", to = ["after"], at_most = 0.1"#;
    assert_eq!(single(text, &variants).got, None);
}

#[test]
fn a_failed_check_fails_the_run_and_is_named() {
    let variants = [variant("before", 1000, 1.0), variant("after", 900, 1.0)];
    let expected = checks(JUDGED);
    let (verdict, reason) = verdict(&expected, &[], &variants, &evaluate(&expected, &variants));
    assert_eq!(
        (verdict, reason.as_str()),
        (Verdict::Fail, "1 of 1 checks failed: c")
    );
}

#[test]
fn too_many_hit_samples_forbid_a_verdict_only_where_a_check_rests_on_them() {
    let expected = checks(JUDGED);
    let with_hits = |name: &str, ours| {
        let mut variant = variant(name, 100, 1.0);
        variant.series.get_mut("rtt").unwrap().hit.ours = ours;
        variant
    };
    let judge = |hits_after, other| {
        let variants = [
            variant("before", 1000, 1.0),
            with_hits("after", hits_after),
            with_hits("alone", other),
        ];
        verdict(&expected, &[], &variants, &evaluate(&expected, &variants)).0
    };
    assert_eq!(judge(5, 0), Verdict::Pass);
    assert_eq!(judge(6, 0), Verdict::Noisy);
    assert_eq!(judge(0, 50), Verdict::Pass);
}

#[test]
fn what_was_done_on_a_core_that_others_used_is_not_judged() {
    let text = r#"kind = "reduction", of = "rate", from = "before", to = ["after"], at_most = 0.1"#;
    let expected = checks(text);
    let judge = |share, on_core: &[&str]| {
        let mut after = variant("after", 100, 0.5);
        let value = Value {
            value: share,
            ..Value::default()
        };
        after.values.insert(FOREIGN_SHARE.into(), value);
        let variants = [variant("before", 100, 1.0), after];
        let results = evaluate(&expected, &variants);
        verdict(&expected, on_core, &variants, &results).0
    };
    assert_eq!(judge(0.031, &["rate"]), Verdict::Noisy);
    assert_eq!(judge(0.03, &["rate"]), Verdict::Fail);
    assert_eq!(judge(0.5, &["other"]), Verdict::Fail);
}
