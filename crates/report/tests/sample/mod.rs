//! A run of two series in four variants, of which one was not possible.

use serde_json::json;
use std::collections::BTreeMap;
use tailbound_report::{
    Chart, ChartAxis, CheckResult, Hit, Line, LineStyle, Point, Results, SCHEMA, Series, Stats,
    Value, Variant, Verdict, empty_histogram,
};

/// Returns `count` samples: nine tenths spread evenly from `typical` to twice that, the rest up to
/// `tail`, the same on every call.
pub(crate) fn stats(count: u64, typical: u64, tail: u64) -> Stats {
    let mut histogram = empty_histogram();
    for index in 0..count {
        let place = index as f64 / count as f64;
        let value = if place < 0.9 {
            typical as f64 * (1.0 + place / 0.9)
        } else {
            let far = (place - 0.9) / 0.1;
            2.0 * typical as f64 * (tail as f64 / (2.0 * typical as f64)).powf(far)
        };
        histogram.record(value as u64).unwrap();
    }
    Stats::from_histogram(&histogram)
}

fn series(count: u64, typical: u64, tail: u64) -> Series {
    let stats = stats(count, typical, tail);
    Series {
        unit: "ns".into(),
        all: stats.clone(),
        stats,
        ..Series::default()
    }
}

fn variant(name: &str, small: (u64, u64), bulk: f64) -> Variant {
    let bulk = Value {
        unit: "bit/s".into(),
        value: bulk,
        spread: None,
    };
    Variant {
        name: name.into(),
        unavailable: None,
        series: BTreeMap::from([
            ("small_fct".into(), series(9_000, small.0, small.1)),
            ("large_fct".into(), series(90, 1_000_000_000, 1_900_000_000)),
        ]),
        values: BTreeMap::from([("bulk_bit_s".into(), bulk)]),
        ..Variant::default()
    }
}

/// Returns a figure over three points beside the paper's, and a bound.
fn chart() -> Chart {
    let line = |name: &str, style, points: &[(f64, f64)]| Line {
        name: name.into(),
        style,
        points: points.iter().map(|&(x, y)| Point(x, y)).collect(),
    };
    Chart {
        name: "p99_9_by_neighbours".into(),
        title: "99.9th percentile against neighbours".into(),
        x: ChartAxis::linear("neighbours", ""),
        y: ChartAxis::log("99.9th percentile", "ns"),
        lines: vec![
            line(
                "measured",
                LineStyle::Measured,
                &[(0.0, 2e5), (1.0, 1.2e7), (2.0, 4e7)],
            ),
            line("paper", LineStyle::Paper, &[(1.0, 1e7), (2.0, 3e7)]),
            line("bound", LineStyle::Bound, &[(0.0, 1e7), (2.0, 1e7)]),
        ],
        note: Some("The paper's points are from its text.".into()),
    }
}

fn checks() -> Vec<CheckResult> {
    vec![
        CheckResult {
            name: "p99_small_fct_reduction".into(),
            want: ">= 0.56".into(),
            got: Some(0.9834),
            pass: true,
            source: "Small is Better, 5.1".into(),
            ..CheckResult::default()
        },
        CheckResult {
            name: "vcpu_only_p99_reduction".into(),
            want: ">= 0.2".into(),
            pass: false,
            source: "Small is Better, 5.2".into(),
            not_judged: Some("vcpu-only is not available".into()),
            ..CheckResult::default()
        },
    ]
}

pub(crate) fn results() -> Results {
    let mut unpatched = variant("unpatched", (4_000_000, 220_000_000), 93_100_000.0);
    let small = unpatched.series.get_mut("small_fct").unwrap();
    small.all = stats(9_040, 4_000_000, 380_000_000);
    small.hit = Hit {
        ours: 3,
        stolen: 37,
    };
    small.unexplained = 412;
    small.unanswered = 2;
    let mut patched = variant("patched", (600_000, 3_400_000), 91_800_000.0);
    patched.series.get_mut("small_fct").unwrap().spread = Some(BTreeMap::from([
        ("p50".into(), [880_000, 930_000]),
        ("p99".into(), [2_700_000, 3_600_000]),
    ]));
    patched.values.get_mut("bulk_bit_s").unwrap().spread = Some([91_100_000.0, 92_400_000.0]);
    let vcpu_only = Variant {
        name: "vcpu-only".into(),
        unavailable: Some("SCHED_DEADLINE needs CAP_SYS_NICE".into()),
        ..Variant::default()
    };
    Results {
        schema: SCHEMA,
        experiment: "traps".into(),
        title: "Three latency traps open, and close".into(),
        source: "Small is Better, 5.1".into(),
        made: None,
        seed: 1,
        conditions: BTreeMap::from([
            ("cpus".into(), json!(2)),
            ("kernel".into(), json!("6.18.44")),
            ("link_bit_s".into(), json!(100_000_000)),
        ]),
        variants: vec![
            variant("alone", (500_000, 1_600_000), 94_000_000.0),
            unpatched,
            vcpu_only,
            patched,
        ],
        charts: vec![chart()],
        checks: checks(),
        verdict: Verdict::Fail,
        verdict_reason: "vcpu_only_p99_reduction has no figure: vcpu-only is not available".into(),
        sentence: None,
        words: BTreeMap::new(),
    }
}
