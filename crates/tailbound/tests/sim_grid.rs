//! `tailbound sim run` and `report merge`, as their users run them.

mod program;

use program::{Folder, tailbound, words};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

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

/// A folder with a scenario and its experiment.
fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("small.toml", EXPERIMENT);
    folder.write("grid.toml", SCENARIO);
    folder
}

/// A folder as [`folder`] makes it, whose points take long enough to be interrupted.
fn slow_folder() -> Folder {
    let folder = folder();
    folder.write("small.toml", EXPERIMENT.replace("\"2ms\"", "\"40ms\""));
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
fn begun(folder: &Folder, out: &str) -> Child {
    let before = rows(&folder.join(out));
    let line = format!("sim run grid.toml --out {out} --threads 1");
    let mut child = tailbound()
        .args(words(&line))
        .current_dir(folder.path())
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
    let first = folder.run("sim run grid.toml").done();
    assert!(first.starts_with("PASS  mine: "), "{first}");
    assert!(first.contains("\none hosts=3 "), "{first}");
    assert!(first.contains("\nreport  out/mine/mine.html\n"), "{first}");
    assert!(
        first.ends_with("rows    24 of 24 are in out/mine, 24 of them new\n"),
        "{first}"
    );
    let before = store(&folder.join("out/mine"));
    let again = folder.run("sim run grid.toml --output json").done();
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
    let shown = folder
        .run("report show out/mine/mine.json --chart cdf-all")
        .done();
    assert!(shown.starts_with("<svg"), "{shown}");
    // Another scenario is not mixed with it.
    let other = SCENARIO.replace("repetitions = 4", "repetitions = 5");
    folder.write("grid.toml", other);
    let error = folder.run("sim run grid.toml").failed(2);
    assert!(
        error.starts_with("tailbound: out/mine has rows of another grid: "),
        "{error}"
    );
    assert_eq!(store(&folder.join("out/mine")), before);
}

#[test]
fn shards_merged_are_the_whole_byte_by_byte() {
    let folder = folder();
    folder.run("sim run grid.toml --out whole").done();
    for shard in ["1/3", "2/3", "3/3"] {
        let out = shard.replace('/', "-of-");
        let line = format!("sim run grid.toml --shard {shard} --out {out}");
        let text = folder.run(&line).done();
        assert!(text.starts_with("rows    8 of 8 are in "), "{text}");
        assert!(
            text.contains("16 of 24 points are of other shards: "),
            "{text}"
        );
    }
    let error = folder
        .run("report merge 1-of-3 2-of-3 --out part")
        .failed(2);
    assert!(
        error.starts_with("tailbound: 8 of 24 rows are missing, point 2 first"),
        "{error}"
    );
    let text = folder
        .run("report merge 1-of-3 2-of-3 3-of-3 --out merged")
        .done();
    assert!(text.contains("\nreport  merged/mine.html\n"), "{text}");
    assert_eq!(store(&folder.join("whole")), store(&folder.join("merged")));
    // One directory for all shards will do, too.
    for shard in ["1/2", "2/2"] {
        let line = format!("sim run grid.toml --shard {shard} --out shared");
        assert_eq!(
            folder.run(&line).done().contains("\nreport  "),
            shard == "2/2"
        );
    }
    assert_eq!(store(&folder.join("whole")), store(&folder.join("shared")));
    let error = folder.run("sim run grid.toml --shard 4/3").failed(64);
    assert!(error.contains("\"4/3\" is no part: write 2/8"), "{error}");
    let error = folder.run("report merge nowhere").failed(2);
    assert!(
        error.starts_with("tailbound: nowhere is no grid: "),
        "{error}"
    );
}

#[test]
fn a_run_that_was_killed_goes_on_without_a_wrong_or_doubled_row() {
    let folder = slow_folder();
    folder.run("sim run grid.toml --out whole").done();
    let mut child = begun(&folder, "killed");
    child.kill().unwrap();
    child.wait().unwrap();
    let there = rows(&folder.join("killed"));
    assert!((3..POINTS).contains(&there), "{there}");
    let text = folder
        .run("sim run grid.toml --out killed --output json")
        .done();
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
    for (signalled, code) in [
        (rustix::process::Signal::INT, 130),
        (rustix::process::Signal::TERM, 143),
    ] {
        let mut child = begun(&folder, "halted");
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
    folder.run("sim run grid.toml --out halted").done();
    folder.run("sim run grid.toml --out whole").done();
    assert_eq!(store(&folder.join("whole")), store(&folder.join("halted")));
}

#[test]
fn a_corrupt_row_is_named_and_computed_again_and_never_merged() {
    let folder = folder();
    folder.run("sim run grid.toml --out mine").done();
    let before = store(&folder.join("mine"));
    let path = folder.join("mine/rows/000007.row");
    let text = fs::read_to_string(&path).unwrap();
    // A figure that could well be one.
    let figure = text.find("\"value\":").unwrap() + "\"value\":".len();
    let mut bytes = text.into_bytes();
    bytes[figure] = if bytes[figure] == b'1' { b'2' } else { b'1' };
    fs::write(&path, bytes).unwrap();
    let error = folder.run("report merge mine --out merged").failed(2);
    let wanted = "tailbound: mine/rows/000007.row: its checksum is not that of what it holds; ";
    assert!(error.starts_with(wanted), "{error}");
    let output = folder.run("sim run grid.toml --out mine").ended(0);
    assert!(output.err.starts_with(wanted), "{}", output.err);
    let text = output.out;
    assert!(
        text.ends_with("rows    24 of 24 are in mine, 1 of them new\n"),
        "{text}"
    );
    assert_eq!(store(&folder.join("mine")), before);
}

#[test]
fn grid_mistakes_are_named_with_their_place_before_any_run() {
    let folder = folder();
    for (file, from, to, wanted) in [
        ("grid.toml", "repetitions", "repetition", "grid.toml:5:1: "),
        ("grid.toml", "from = 3", "from = 1", "grid.toml:10:9: "),
        ("grid.toml", "small.toml", "large.toml", "grid.toml:4:14: "),
        (
            "grid.toml",
            "packets/small.toml",
            "placement/policies",
            "grid.toml:4:14: ",
        ),
        ("small.toml", "20us", "20 miles", "small.toml:11:36: "),
        (
            "small.toml",
            "{ fixed = \"20KB\" }",
            "{}",
            "small.toml:16:10: ",
        ),
    ] {
        let right = folder.read(file);
        folder.write(file, right.replace(from, to));
        let error = folder.run("sim run grid.toml").failed(2);
        assert!(error.starts_with(wanted), "{wanted} {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        folder.write(file, right);
    }
    assert!(!folder.join("out").exists());
    let error = folder.run("sim run nothing.toml").failed(2);
    assert!(error.starts_with("tailbound: nothing.toml: "), "{error}");
    // A log whose rows are out of order.
    let log = "time_ns,guest,destination,bytes\n5,web,db,100\n4,web,db,100\n";
    folder.write("log.csv", log);
    let error = folder.run("sim replay log.csv").failed(2);
    assert!(
        error.starts_with("tailbound: log.csv:3: column `time_ns`: it is before the row above"),
        "{error}"
    );
}
