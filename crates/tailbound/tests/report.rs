//! `tailbound report`, run as its user runs it.

mod program;

use program::{CommandOutput, Folder, PROGRAM, histograms, run_anywhere};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use tailbound_report::{
    Provenance, Results, SCHEMA, Series, Stats, Variant, Verdict, empty_histogram,
};

/// A result file with one variant whose round trips took `rtt` nanoseconds.
fn run(folder: &Folder, name: &str, rtt: u64) -> PathBuf {
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
    results.write(folder.path()).unwrap().json
}

#[test]
fn show_prints_the_verdict_and_the_table() {
    let folder = Folder::new();
    run(&folder, "one", 1_500_000);
    insta::assert_snapshot!(folder.run("report show one.json").done(), @r"
    PASS  one: nothing was expected

    rtt      50th     90th     99th   99.9th      max     mean  count  unanswered  unexplained
    fifo  1.50 ms  1.50 ms  1.50 ms  1.50 ms  1.50 ms  1.50 ms   1000           0            0
    ");
}

#[test]
fn show_writes_the_page_and_prints_the_picture() {
    let folder = Folder::new();
    run(&folder, "one", 1_500_000);
    folder.run("report show one.json --html page.html").done();
    assert!(folder.read("page.html").starts_with("<!DOCTYPE html>"));
    for view in ["percentiles", "full", "tail"] {
        let picture = folder.run(&format!("report show one.json --svg rtt --view {view}"));
        assert!(picture.out.starts_with("<svg"), "{view}");
    }
    let unknown = folder.run("report show one.json --svg fct").failed(2);
    assert_eq!(unknown, "tailbound: no series \"fct\"; there are: rtt\n");
}

#[test]
fn compare_lists_differing_conditions_before_ratios() {
    let folder = Folder::new();
    run(&folder, "one", 1_500_000);
    run(&folder, "two", 3_000_000);
    insta::assert_snapshot!(folder.run("report compare one.json two.json").done(), @r"
    A  PASS  one  one.json
    B  PASS  two  two.json

    different condition  A    B
    kernel               one  two

    rtt   run     50th     90th     99th   99.9th      max     mean  count
    fifo  A    1.50 ms  1.50 ms  1.50 ms  1.50 ms  1.50 ms  1.50 ms   1000
          B    3.00 ms  3.00 ms  3.00 ms  3.00 ms  3.00 ms  3.00 ms   1000
          B/A    2.00x    2.00x    2.00x    2.00x    2.00x       2x     1x
    ");
    let json = folder
        .run("report compare one.json two.json --output json")
        .json();
    assert_eq!(json["schema"], 1);
    assert_eq!(json["figures"][0]["statistic"], "p50");
}

#[test]
fn a_bad_file_is_one_line_and_exit_code_2() {
    let folder = Folder::new();
    run(&folder, "one", 1);
    folder.write("bad.json", "{}");
    for line in ["report show bad.json", "report compare one.json bad.json"] {
        let output = folder.run(line).ended(2);
        assert_eq!(output.out, "");
        assert_eq!(
            output.err,
            "tailbound: bad.json: not a result file: missing field `schema` at line 1 column 2; \
             use the NAME.json that an experiment wrote\n"
        );
    }
}

#[test]
fn the_help_is_stable() {
    for command in ["", "show", "compare"] {
        let help = run_anywhere(&format!("report {command} --help")).done();
        insta::assert_snapshot!(format!("help {command}"), help);
    }
}

#[test]
fn a_result_shows_its_date_version_and_commit() {
    let folder = Folder::new();
    let file = run(&folder, "one", 1_500_000);
    let made = Provenance {
        at: "2026-01-31T09:05:01Z".to_owned(),
        version: "1.2.3".to_owned(),
        commit: Some("1f2e3d4c5b6a".to_owned()),
    };
    let dated = Results {
        made: Some(made),
        ..Results::read(&file).unwrap()
    };
    let file = dated.write(folder.path()).unwrap();
    assert_eq!(Results::read(&file.json).unwrap(), dated);
    let shown = folder.run("report show one.json").done();
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
    let folder = Folder::new();
    let file = run(&folder, "one", 1_500_000);
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
    results.write(folder.path()).unwrap();
    folder.run("report export one.json --hlog one.hlog").done();
    let found: BTreeMap<_, _> = histograms(&folder.read("one.hlog"))
        .into_iter()
        .map(|(tag, times)| (tag, (times.len(), times.max() / 100_000)))
        .collect();
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
    let folder = Folder::new();
    let file = run(&folder, "one", 1_500_000);
    let out = folder.join("out");
    std::fs::create_dir(&out).unwrap();
    // No file may be longer than one block, as on a disk that has no more.
    let script = "trap '' XFSZ; ulimit -f 1; exec \"$@\"";
    let page = out.join("page.html");
    std::fs::write(&page, "as before").unwrap();
    let output = Command::new("sh")
        .args(["-c", script, "sh", PROGRAM])
        .args(["report", "show", file.to_str().unwrap(), "--html"])
        .arg(&page)
        .output()
        .unwrap();
    let said = CommandOutput::new(output).failed(2);
    let cause = "page.html: cannot be written: File too large (os error 27); raise the limit";
    assert!(said.contains(cause), "{said}");
    let there: Vec<_> = std::fs::read_dir(&out).unwrap().collect();
    assert_eq!(there.len(), 1, "{there:?}");
    assert_eq!(std::fs::read_to_string(&page).unwrap(), "as before");
}
