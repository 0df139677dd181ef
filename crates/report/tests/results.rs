//! The result file: written results are read back, and no input causes a panic.

mod sample;

use proptest::prelude::*;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;
use tailbound_report::{ReportError, Results, Stats, empty_histogram};
use tempfile::TempDir;

static SAMPLE: LazyLock<Vec<u8>> = LazyLock::new(|| sample::results().to_json().into_bytes());

fn file_with(contents: &[u8]) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.json");
    fs::write(&path, contents).unwrap();
    (directory, path)
}

fn message(contents: &[u8]) -> String {
    let (_directory, path) = file_with(contents);
    let error = Results::read(&path).unwrap_err().to_string();
    error.replace(path.to_str().unwrap(), "run.json")
}

#[test]
fn written_results_read_back_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let results = sample::results();
    let written = results
        .write(&directory.path().join("not/yet/there"))
        .unwrap();
    assert_eq!(written.json.file_name().unwrap(), "traps.json");
    assert_eq!(Results::read(&written.json).unwrap(), results);
}

#[test]
fn figures_without_the_longest_samples_match_the_rest() {
    let mut samples = empty_histogram();
    samples.record_n(100, 90).unwrap();
    samples.record_n(500, 10).unwrap();
    let all = Stats::from_histogram(&samples);
    assert_eq!(all.without_longest(0.0), all);
    let fewer = all.without_longest(0.055);
    assert_eq!(
        (fewer.count, fewer.p90, fewer.p99, fewer.mean),
        (94, 100, 500, 117)
    );
    assert_eq!(all.without_longest(0.1).max, 100);
    assert_eq!(all.without_longest(1.0), Stats::default());
    assert_eq!(all.without_longest(7.0), Stats::default());
}

#[test]
fn the_file_has_the_fields_that_the_format_promises() {
    let json: Value = serde_json::from_str(&sample::results().to_json()).unwrap();
    assert_eq!(json["schema"], 1);
    assert_eq!(json["verdict"], "FAIL");
    assert_eq!(json["variants"][2]["name"], "vcpu-only");
    assert!(json["variants"][2]["unavailable"].is_string());
    let small = &json["variants"][1]["series"]["small_fct"];
    for field in [
        "count",
        "mean",
        "p50",
        "p90",
        "p99",
        "p99_9",
        "max",
        "unanswered",
    ] {
        assert!(small[field].is_u64(), "{field}: {}", small[field]);
        if field != "unanswered" {
            assert!(small["all"][field].is_u64(), "all.{field}");
        }
    }
    assert_eq!(small["unit"], "ns");
    assert_eq!(small["hit"], json!({"ours": 3, "stolen": 37}));
    // The first bytes of a deflated V2 histogram, as HdrHistogram logs have them.
    assert!(small["hdr"].as_str().unwrap().starts_with("HISTFAAA"));
    assert_eq!(
        json["variants"][1]["values"]["bulk_bit_s"]["value"],
        93_100_000.0
    );
    assert_eq!(json["checks"][0]["got"], 0.9834);
    assert_eq!(json["checks"][1]["got"], Value::Null);
}

#[test]
fn figures_come_from_the_histogram() {
    let mut histogram = empty_histogram();
    for value in 1..=1000 {
        histogram.record(value).unwrap();
    }
    let stats = Stats::from_histogram(&histogram);
    assert_eq!(
        [
            stats.count,
            stats.p50,
            stats.p90,
            stats.p99,
            stats.p99_9,
            stats.max
        ],
        [1000, 500, 900, 990, 999, 1000]
    );
    assert_eq!(stats.mean, 501);
    assert_eq!(stats.histogram().unwrap(), histogram);
    assert_eq!(Stats::default().max, 0);
    assert!(Stats::default().histogram().unwrap().is_empty());
}

#[test]
fn a_plain_v2_histogram_is_read_too() {
    use base64::Engine as _;
    use hdrhistogram::serialization::{Serializer as _, V2Serializer};
    let mut histogram = empty_histogram();
    histogram.record_n(1_234_567, 3).unwrap();
    let mut bytes = Vec::new();
    V2Serializer::new()
        .serialize(&histogram, &mut bytes)
        .unwrap();
    let mut stats = Stats::from_histogram(&histogram);
    stats.hdr = base64::engine::general_purpose::STANDARD.encode(bytes);
    assert_eq!(stats.histogram().unwrap(), histogram);
}

#[test]
fn a_figure_that_could_not_be_computed_survives_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let mut results = sample::results();
    results.variants[0]
        .values
        .get_mut("bulk_bit_s")
        .unwrap()
        .value = f64::INFINITY;
    let written = results.write(directory.path()).unwrap();
    let back = Results::read(&written.json).unwrap();
    assert!(back.variants[0].values["bulk_bit_s"].value.is_nan());
}

#[test]
fn a_wrong_file_gives_one_clear_error() {
    assert_eq!(
        message(b"PK\x03\x04"),
        "run.json: not a result file: expected value at line 1 column 1; \
         use the NAME.json that an experiment wrote"
    );
    assert_eq!(
        message(br#"{"schema": 1, "experiment": "traps"}"#),
        "run.json: not a result file: missing field `title` at line 1 column 36; \
         use the NAME.json that an experiment wrote"
    );
    assert_eq!(
        message(br#"{"schema": 2, "anything": "else"}"#),
        "run.json: schema 2, but this program reads schema 1; \
         use the version of tailbound that wrote it, or run the experiment again"
    );
    let mut damaged = sample::results();
    damaged.variants[1]
        .series
        .get_mut("small_fct")
        .unwrap()
        .all
        .hdr = "HISTFAAA".into();
    assert_eq!(
        message(damaged.to_json().as_bytes()),
        "run.json: variant \"unpatched\", series small_fct.all: the histogram is damaged: \
         6 bytes, but the header requires 8"
    );
    let missing = Results::read(&PathBuf::from("/nonexistent/x.json")).unwrap_err();
    assert_eq!(
        missing.to_string(),
        "/nonexistent/x.json: cannot be read: No such file or directory (os error 2)"
    );
}

#[test]
fn an_experiment_cannot_write_outside_its_directory() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["", "..", "../traps", "a/b", ".hidden"] {
        let results = Results {
            experiment: name.into(),
            ..sample::results()
        };
        let error = results.write(directory.path()).unwrap_err();
        assert!(
            matches!(error, ReportError::Name { .. }),
            "{name:?}: {error}"
        );
    }
}

/// A plain V2 histogram with any header and any counts behind it.
fn plain_histogram() -> impl Strategy<Value = Vec<u8>> {
    let header = (0_u32..8, any::<u64>(), any::<u64>(), 0_u32..64);
    let sane = (0_u32..=5, 1_u64..1000, 2000_u64..u64::MAX, Just(0));
    let counts = proptest::collection::vec(any::<u8>(), 0..64);
    (prop_oneof![header, sane], counts, any::<bool>()).prop_map(
        |((digits, low, high, lie), counts, negative)| {
            let mut counts = counts;
            if negative {
                counts.extend([0xff; 9]); // i64::MIN, which has no negative
            }
            let mut bytes = 0x1c84_9313_u32.to_be_bytes().to_vec();
            bytes.extend((counts.len() as u32 + lie * 0x0400_0000).to_be_bytes());
            bytes.extend(0_u32.to_be_bytes());
            bytes.extend(digits.to_be_bytes());
            bytes.extend(low.to_be_bytes());
            bytes.extend(high.to_be_bytes());
            bytes.extend(1.0_f64.to_be_bytes());
            bytes.extend(counts);
            bytes
        },
    )
}

fn every_figure_can_be_asked_for(hdr: String) {
    let stats = Stats {
        hdr,
        ..Stats::default()
    };
    if let Ok(histogram) = stats.histogram() {
        let _ = Stats::from_histogram(&histogram);
    }
}

proptest! {
    #[test]
    fn no_bytes_make_read_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (_directory, path) = file_with(&bytes);
        prop_assert!(Results::read(&path).is_err());
    }

    #[test]
    fn a_file_with_one_byte_changed_is_read_or_refused(place in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = SAMPLE.clone();
        let place = place.index(bytes.len());
        bytes[place] = byte;
        let (_directory, path) = file_with(&bytes);
        if let Ok(results) = Results::read(&path) {
            let _ = results.summary(true);
        }
    }

    #[test]
    fn no_text_makes_a_histogram_panic(text in "[A-Za-z0-9+/=]{0,80}") {
        every_figure_can_be_asked_for(text.clone());
        every_figure_can_be_asked_for(format!("HISTFAAA{text}"));
    }

    #[test]
    fn no_header_and_no_counts_make_a_histogram_panic(bytes in plain_histogram()) {
        use base64::Engine as _;
        every_figure_can_be_asked_for(base64::engine::general_purpose::STANDARD.encode(bytes));
    }

    #[test]
    fn samples_survive_the_text(values in proptest::collection::vec(0_u64..3_600_000_000_000, 0..200)) {
        let mut histogram = empty_histogram();
        for value in values {
            histogram.record(value).unwrap();
        }
        prop_assert_eq!(Stats::from_histogram(&histogram).histogram().unwrap(), histogram);
    }
}

#[test]
fn a_latency_of_minutes_is_kept_however_it_is_recorded() {
    let mut histogram = empty_histogram();
    histogram.saturating_record(180_000_000_000);
    let off = Stats::from_histogram(&histogram)
        .max
        .abs_diff(180_000_000_000);
    assert!(off < 180_000_000, "{off}");
}
