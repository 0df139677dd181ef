//! `tailbound sim run` and `report merge`, as their users run them.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const EXPERIMENT: &str = r#"
name = "small"
title = "Answers among four hosts"
source = "nowhere"

[messages]
duration = "2ms"

[messages.star]
hosts = 4
link = { rate = "1Gbit/s", delay = "20us" }

[messages.queries]
every = "200us"
question = "100B"
answer = { fixed = "20KB" }

[[messages.setting]]
name = "one"
"#;

const SCENARIO: &str = r#"
name = "mine"
title = "Answers, by how many ask"
experiment = "packets/small.toml"
repetitions = 4
show = ["all.p50"]

[[vary]]
key = "messages.star.hosts"
range = { from = 3, to = 8, step = 1 }
"#;

/// All points of [`SCENARIO`].
const POINTS: usize = 24;

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tailbound"));
    command.args(args).current_dir(folder);
    // Reports made at different times are the same.
    command.env("SOURCE_DATE_EPOCH", "1000000000");
    command
}

fn run(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().unwrap()
}

/// Returns the output of a command that succeeds.
fn said(folder: &Path, args: &[&str]) -> String {
    let output = run(folder, args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the message of a command that ends with `code`.
fn refused(folder: &Path, args: &[&str], code: i32) -> String {
    let output = run(folder, args);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
    error
}

/// A folder with a scenario and its experiment.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("small.toml"), EXPERIMENT).unwrap();
    fs::write(folder.path().join("grid.toml"), SCENARIO).unwrap();
    folder
}

/// A folder as [`folder`] makes it, whose points take long enough to be interrupted.
fn slow_folder() -> tempfile::TempDir {
    let folder = folder();
    let slow = EXPERIMENT.replace("\"2ms\"", "\"40ms\"");
    fs::write(folder.path().join("small.toml"), slow).unwrap();
    folder
}

/// All that follows from the scenario: rows and report, by name.
fn store(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for folder in [directory.to_owned(), directory.join("rows")] {
        for file in fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            if path.is_file() {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                files.push((name, fs::read(path).unwrap()));
            }
        }
    }
    files.sort();
    files
}

/// Returns the number of rows in a directory.
fn rows(directory: &Path) -> usize {
    let Ok(files) = fs::read_dir(directory.join("rows")) else {
        return 0;
    };
    let paths = files.map(|file| file.unwrap().path());
    paths
        .filter(|path| path.extension() == Some("row".as_ref()))
        .count()
}

/// Starts a run one point at a time, and waits until it has some more rows.
fn begun(folder: &Path, out: &str) -> Child {
    let before = rows(&folder.join(out));
    let args = ["sim", "run", "grid.toml", "--out", out, "--threads", "1"];
    let mut child = command(folder, &args)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while rows(&folder.join(out)) < before + 3 {
        assert_eq!(
            child.try_wait().unwrap(),
            None,
            "it ended before it had rows"
        );
        std::thread::yield_now();
    }
    child
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
}

#[test]
fn a_grid_is_run_once_and_reported() {
    let folder = folder();
    let folder = folder.path();
    let first = said(folder, &["sim", "run", "grid.toml"]);
    assert!(first.starts_with("PASS  mine: "), "{first}");
    assert!(first.contains("\none hosts=3 "), "{first}");
    assert!(first.contains("\nreport  out/mine/mine.html\n"), "{first}");
    assert!(
        first.ends_with("rows    24 of 24 are in out/mine, 24 of them new\n"),
        "{first}"
    );
    let before = store(&folder.join("out/mine"));
    let again = said(folder, &["sim", "run", "grid.toml", "--output", "json"]);
    let again: serde_json::Value = serde_json::from_str(&again).unwrap();
    let counts = ["points", "asked", "rows", "computed"].map(|key| again[key].as_u64().unwrap());
    assert_eq!(counts, [24, 24, 24, 0]);
    assert_eq!(
        (&again["schema"], &again["kind"]),
        (&1.into(), &"grid".into())
    );
    assert_eq!(again["report"]["csv"], "out/mine/mine.csv");
    assert_eq!(again["report"]["parquet"], "out/mine/mine.parquet");
    let parquet = fs::read(folder.join("out/mine/mine.parquet")).unwrap();
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
    assert_eq!(store(&folder.join("out/mine")), before);
    // The page has the distributions with their bands.
    let shown = said(
        folder,
        &["report", "show", "out/mine/mine.json", "--chart", "cdf-all"],
    );
    assert!(shown.starts_with("<svg"), "{shown}");
    // Another scenario is not mixed with it.
    let other = SCENARIO.replace("repetitions = 4", "repetitions = 5");
    fs::write(folder.join("grid.toml"), other).unwrap();
    let error = refused(folder, &["sim", "run", "grid.toml"], 2);
    assert!(
        error.starts_with("tailbound: out/mine has rows of another grid: "),
        "{error}"
    );
    assert_eq!(store(&folder.join("out/mine")), before);
}

#[test]
fn shards_merged_are_the_whole_byte_by_byte() {
    let folder = folder();
    let folder = folder.path();
    said(folder, &["sim", "run", "grid.toml", "--out", "whole"]);
    for shard in ["1/3", "2/3", "3/3"] {
        let out = shard.replace('/', "-of-");
        let args = ["sim", "run", "grid.toml", "--shard", shard, "--out", &out];
        let text = said(folder, &args);
        assert!(text.starts_with("rows    8 of 8 are in "), "{text}");
        assert!(
            text.contains("16 of 24 points are of other shards: "),
            "{text}"
        );
    }
    let error = refused(
        folder,
        &["report", "merge", "1-of-3", "2-of-3", "--out", "part"],
        2,
    );
    assert!(
        error.starts_with("tailbound: 8 of 24 rows are missing, point 2 first"),
        "{error}"
    );
    let merge = [
        "report", "merge", "1-of-3", "2-of-3", "3-of-3", "--out", "merged",
    ];
    let text = said(folder, &merge);
    assert!(text.contains("\nreport  merged/mine.html\n"), "{text}");
    assert_eq!(store(&folder.join("whole")), store(&folder.join("merged")));
    // One directory for all shards will do, too.
    for shard in ["1/2", "2/2"] {
        let args = [
            "sim",
            "run",
            "grid.toml",
            "--shard",
            shard,
            "--out",
            "shared",
        ];
        assert_eq!(said(folder, &args).contains("\nreport  "), shard == "2/2");
    }
    assert_eq!(store(&folder.join("whole")), store(&folder.join("shared")));
    let error = refused(folder, &["sim", "run", "grid.toml", "--shard", "4/3"], 64);
    assert!(error.contains("\"4/3\" is no part: write 2/8"), "{error}");
    let error = refused(folder, &["report", "merge", "nowhere"], 2);
    assert!(
        error.starts_with("tailbound: nowhere is no grid: "),
        "{error}"
    );
}

#[test]
fn a_run_that_was_killed_goes_on_without_a_wrong_or_doubled_row() {
    let folder = slow_folder();
    let folder = folder.path();
    said(folder, &["sim", "run", "grid.toml", "--out", "whole"]);
    let mut child = begun(folder, "killed");
    child.kill().unwrap();
    child.wait().unwrap();
    let there = rows(&folder.join("killed"));
    assert!((3..POINTS).contains(&there), "{there}");
    let text = said(
        folder,
        &[
            "sim",
            "run",
            "grid.toml",
            "--out",
            "killed",
            "--output",
            "json",
        ],
    );
    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    // The point that ran may have left its row in the last moment.
    let computed = told["computed"].as_u64().unwrap() as usize;
    assert!(computed <= POINTS - 3 && computed > 0, "{text}");
    assert_eq!(told["rows"], 24);
    let files = |name| {
        let mut files = store(&folder.join(name));
        // What was being written when it was killed has no row's name.
        files.retain(|(name, _)| !name.starts_with('.'));
        files
    };
    assert_eq!(files("whole"), files("killed"));
}

#[test]
fn a_run_that_is_interrupted_ends_its_points_and_goes_on_later() {
    let folder = slow_folder();
    let folder = folder.path();
    for (signalled, code) in [
        (rustix::process::Signal::INT, 130),
        (rustix::process::Signal::TERM, 143),
    ] {
        let mut child = begun(folder, "halted");
        signal(&child, signalled);
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let error: Vec<String> = stderr.lines().map(Result::unwrap).collect();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{error:?}");
        let there = rows(&folder.join("halted"));
        assert_eq!(
            error,
            [
                "tailbound: points that run are ended first; a second signal ends immediately",
                &format!(
                    "tailbound: interrupted: {there} of 24 rows are there; run it again to go on"
                ),
            ]
        );
    }
    said(folder, &["sim", "run", "grid.toml", "--out", "halted"]);
    said(folder, &["sim", "run", "grid.toml", "--out", "whole"]);
    assert_eq!(store(&folder.join("whole")), store(&folder.join("halted")));
}

#[test]
fn a_corrupt_row_is_named_and_computed_again_and_never_merged() {
    let folder = folder();
    let folder = folder.path();
    said(folder, &["sim", "run", "grid.toml", "--out", "mine"]);
    let before = store(&folder.join("mine"));
    let path = folder.join("mine/rows/000007.row");
    let text = fs::read_to_string(&path).unwrap();
    // A figure that could well be one.
    let figure = text.find("\"value\":").unwrap() + "\"value\":".len();
    let mut bytes = text.into_bytes();
    bytes[figure] = if bytes[figure] == b'1' { b'2' } else { b'1' };
    fs::write(&path, bytes).unwrap();
    let error = refused(folder, &["report", "merge", "mine", "--out", "merged"], 2);
    let wanted = "tailbound: mine/rows/000007.row: its checksum is not that of what it holds; ";
    assert!(error.starts_with(wanted), "{error}");
    let output = run(folder, &["sim", "run", "grid.toml", "--out", "mine"]);
    assert_eq!(output.status.code(), Some(0));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.starts_with(wanted), "{error}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.ends_with("rows    24 of 24 are in mine, 1 of them new\n"),
        "{text}"
    );
    assert_eq!(store(&folder.join("mine")), before);
}

#[test]
fn what_is_wrong_is_told_with_its_place_before_anything_runs() {
    let folder = folder();
    let folder = folder.path();
    let run = ["sim", "run", "grid.toml"];
    for (scenario, experiment, wanted) in [
        (
            SCENARIO.replace("repetitions", "repetition"),
            EXPERIMENT.to_owned(),
            "grid.toml:5:1: ",
        ),
        (
            SCENARIO.replace("from = 3", "from = 1"),
            EXPERIMENT.to_owned(),
            "grid.toml:10:9: ",
        ),
        (
            SCENARIO.replace("small.toml", "large.toml"),
            EXPERIMENT.to_owned(),
            "grid.toml:4:14: ",
        ),
        (
            SCENARIO.replace("packets/small.toml", "placement/policies"),
            EXPERIMENT.to_owned(),
            "grid.toml:4:14: ",
        ),
        (
            SCENARIO.to_owned(),
            EXPERIMENT.replace("20us", "20 miles"),
            "small.toml:11:36: ",
        ),
        (
            SCENARIO.to_owned(),
            EXPERIMENT.replace("{ fixed = \"20KB\" }", "{}"),
            "small.toml:16:10: ",
        ),
    ] {
        fs::write(folder.join("grid.toml"), scenario).unwrap();
        fs::write(folder.join("small.toml"), experiment).unwrap();
        let error = refused(folder, &run, 2);
        assert!(error.starts_with(wanted), "{wanted} {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    assert!(!folder.join("out").exists());
    let error = refused(folder, &["sim", "run", "nothing.toml"], 2);
    assert!(error.starts_with("tailbound: nothing.toml: "), "{error}");
    // A log whose rows are out of order.
    let log = "time_ns,guest,destination,bytes\n5,web,db,100\n4,web,db,100\n";
    fs::write(folder.join("log.csv"), log).unwrap();
    let error = refused(folder, &["sim", "replay", "log.csv"], 2);
    assert!(
        error.starts_with("tailbound: log.csv:3: column `time_ns`: it is before the row above"),
        "{error}"
    );
}
