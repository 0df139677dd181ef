//! `tailbound report`, run as its user runs it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tailbound_report::{
    Provenance, Results, SCHEMA, Series, Stats, Variant, Verdict, empty_histogram,
};

fn tailbound(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tailbound"))
        .args(arguments)
        .env_remove("COLUMNS")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A result file with one variant whose round trips took `rtt` nanoseconds.
fn run(directory: &Path, name: &str, rtt: u64) -> PathBuf {
    let mut histogram = empty_histogram();
    histogram.record_n(rtt, 1_000).unwrap();
    let stats = Stats::from_histogram(&histogram);
    let series = Series {
        unit: "ns".into(),
        all: stats.clone(),
        stats,
        ..Series::default()
    };
    let results = Results {
        schema: SCHEMA,
        experiment: name.into(),
        title: "Round trips".into(),
        source: "Small is Better, table 4".into(),
        made: None,
        seed: 1,
        conditions: BTreeMap::from([("kernel".into(), name.into())]),
        variants: vec![Variant {
            name: "fifo".into(),
            series: BTreeMap::from([("rtt".into(), series)]),
            ..Variant::default()
        }],
        charts: Vec::new(),
        checks: Vec::new(),
        verdict: Verdict::Pass,
        verdict_reason: "nothing was expected".into(),
        sentence: None,
        words: BTreeMap::new(),
    };
    results.write(directory).unwrap().json
}

#[test]
fn show_prints_the_verdict_and_the_table() {
    let directory = tempfile::tempdir().unwrap();
    let file = run(directory.path(), "one", 1_500_000);
    let shown = tailbound(&["report", "show", file.to_str().unwrap()]);
    assert!(shown.status.success());
    insta::assert_snapshot!(text(&shown.stdout), @r"
    PASS  one: nothing was expected

    rtt      50th     90th     99th   99.9th      max     mean  count  unanswered  unexplained
    fifo  1.50 ms  1.50 ms  1.50 ms  1.50 ms  1.50 ms  1.50 ms   1000           0            0
    ");
}

#[test]
fn show_writes_the_page_and_prints_the_picture() {
    let directory = tempfile::tempdir().unwrap();
    let file = run(directory.path(), "one", 1_500_000);
    let page = directory.path().join("page.html");
    let (file, page) = (file.to_str().unwrap(), page.to_str().unwrap());
    assert!(
        tailbound(&["report", "show", file, "--html", page])
            .status
            .success()
    );
    assert!(
        std::fs::read_to_string(page)
            .unwrap()
            .starts_with("<!DOCTYPE html>")
    );
    for view in ["percentiles", "full", "tail"] {
        let picture = tailbound(&["report", "show", file, "--svg", "rtt", "--view", view]);
        assert!(text(&picture.stdout).starts_with("<svg"), "{view}");
    }
    let unknown = tailbound(&["report", "show", file, "--svg", "fct"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert_eq!(
        text(&unknown.stderr),
        "tailbound: no series \"fct\"; there are: rtt\n"
    );
}

#[test]
fn compare_shows_ratios_after_what_differs() {
    let directory = tempfile::tempdir().unwrap();
    let a = run(directory.path(), "one", 1_500_000);
    let b = run(directory.path(), "two", 3_000_000);
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    let compared = tailbound(&["report", "compare", a, b]);
    assert!(compared.status.success());
    let shown = text(&compared.stdout).replace(directory.path().to_str().unwrap(), "DIR");
    insta::assert_snapshot!(shown, @r"
    A  PASS  one  DIR/one.json
    B  PASS  two  DIR/two.json

    different condition  A    B
    kernel               one  two

    rtt   run     50th     90th     99th   99.9th      max     mean  count
    fifo  A    1.50 ms  1.50 ms  1.50 ms  1.50 ms  1.50 ms  1.50 ms   1000
          B    3.00 ms  3.00 ms  3.00 ms  3.00 ms  3.00 ms  3.00 ms   1000
          B/A    2.00x    2.00x    2.00x    2.00x    2.00x       2x     1x
    ");
    let json = tailbound(&["report", "compare", a, b, "--output", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["schema"], 1);
    assert_eq!(json["figures"][0]["statistic"], "p50");
}

#[test]
fn a_bad_file_is_one_line_and_exit_code_2() {
    let directory = tempfile::tempdir().unwrap();
    let good = run(directory.path(), "one", 1);
    let bad = directory.path().join("bad.json");
    std::fs::write(&bad, "{}").unwrap();
    let (good, bad) = (good.to_str().unwrap(), bad.to_str().unwrap());
    for arguments in [
        ["report", "show", bad].as_slice(),
        &["report", "compare", good, bad],
    ] {
        let output = tailbound(arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty());
        assert_eq!(
            text(&output.stderr),
            format!(
                "tailbound: {bad}: not a result file: missing field `schema` at line 1 column 2; \
                 use the NAME.json that an experiment wrote\n"
            )
        );
    }
}

#[test]
fn the_help_is_stable() {
    for command in ["", "show", "compare"] {
        let arguments = ["report", command, "--help"];
        let arguments = arguments
            .into_iter()
            .filter(|argument| !argument.is_empty());
        let help = tailbound(&arguments.collect::<Vec<_>>());
        insta::assert_snapshot!(format!("help {command}"), text(&help.stdout));
    }
}

#[test]
fn a_result_says_when_and_by_what_it_was_made() {
    let directory = tempfile::tempdir().unwrap();
    let file = run(directory.path(), "one", 1_500_000);
    let made = Provenance {
        at: "2026-01-31T09:05:01Z".to_owned(),
        version: "1.2.3".to_owned(),
        commit: Some("1f2e3d4c5b6a".to_owned()),
    };
    let dated = Results {
        made: Some(made),
        ..Results::read(&file).unwrap()
    };
    let file = dated.write(directory.path()).unwrap();
    assert_eq!(Results::read(&file.json).unwrap(), dated);
    let shown = tailbound(&["report", "show", file.json.to_str().unwrap()]);
    let shown = text(&shown.stdout);
    assert_eq!(
        shown.lines().nth(1),
        Some("made  2026-01-31 09:05 UTC, tailbound 1.2.3 (1f2e3d4c5b6a)")
    );
    let page = std::fs::read_to_string(&file.html).unwrap();
    assert!(
        page.contains("<th>made</th><td>2026-01-31 09:05 UTC, tailbound 1.2.3 (1f2e3d4c5b6a)</td>")
    );
}

#[test]
fn an_exported_log_has_every_histogram_under_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let file = run(directory.path(), "one", 1_500_000);
    // A name that no tag can have, and samples that were hit.
    let mut results = Results::read(&file).unwrap();
    let mut variant = results.variants[0].clone();
    variant.name = "fifo, slow".into();
    let mut all = empty_histogram();
    all.record_n(7_000_000, 1_003).unwrap();
    let series = variant.series.get_mut("rtt").unwrap();
    series.all = Stats::from_histogram(&all);
    series.unit = "B".into();
    results.variants.push(variant);
    let file = results.write(directory.path()).unwrap().json;
    let log = directory.path().join("one.hlog");
    let arguments = [
        "report",
        "export",
        file.to_str().unwrap(),
        "--hlog",
        log.to_str().unwrap(),
    ];
    let exported = tailbound(&arguments);
    assert!(exported.status.success(), "{}", text(&exported.stderr));
    let log = std::fs::read_to_string(&log).unwrap();
    let mut found = BTreeMap::new();
    for entry in IntervalLogIterator::new(log.as_bytes()) {
        let LogEntry::Interval(interval) = entry.unwrap() else {
            continue;
        };
        let bytes = BASE64.decode(interval.encoded_histogram()).unwrap();
        let times: Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .unwrap();
        let tag = interval.tag().unwrap().as_str().to_owned();
        found.insert(tag, (times.len(), times.max() / 100_000));
    }
    let expected = [
        ("fifo/rtt", (1_000, 15)),
        ("fifo,_slow/rtt(B)", (1_000, 15)),
        ("fifo,_slow/rtt(B)/all", (1_003, 70)),
    ];
    let expected = expected.map(|(tag, of)| (tag.replace(',', "_"), of));
    assert_eq!(found, BTreeMap::from(expected));
}

#[test]
fn a_page_that_does_not_fit_is_not_left_behind_half_written() {
    let directory = tempfile::tempdir().unwrap();
    let file = run(directory.path(), "one", 1_500_000);
    let out = directory.path().join("out");
    std::fs::create_dir(&out).unwrap();
    // No file may be longer than one block, as on a disk that has no more.
    let script = "trap '' XFSZ; ulimit -f 1; exec \"$@\"";
    let page = out.join("page.html");
    std::fs::write(&page, "as before").unwrap();
    let output = Command::new("sh")
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_tailbound")])
        .args(["report", "show", file.to_str().unwrap(), "--html"])
        .arg(&page)
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let cause = "page.html: cannot be written: File too large (os error 27); raise the limit";
    assert!(said.contains(cause), "{said}");
    let there: Vec<_> = std::fs::read_dir(&out).unwrap().collect();
    assert_eq!(there.len(), 1, "{there:?}");
    assert_eq!(std::fs::read_to_string(&page).unwrap(), "as before");
}
