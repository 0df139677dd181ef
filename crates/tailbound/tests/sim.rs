//! `tailbound sim` and `tailbound reproduce` from outside.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tailbound_report::Results;

fn tailbound(directory: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tailbound"));
    command.args(["sim", "vcpu"]).args(args);
    // What is made at different times is the same.
    command.env("SOURCE_DATE_EPOCH", "1000000000");
    command.current_dir(directory).output().unwrap()
}

fn reproduce(directory: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tailbound"));
    command.arg("reproduce").args(args);
    command.current_dir(directory).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Two guests for a second; the longest ping may take `at_most`.
fn experiment(at_most: &str) -> String {
    format!(
        r#"
name = "mine"
title = "Two guests on one core"
source = "nowhere"
duration = "1s"

[[scheduler]]
name = "xen"
credit = {{ version = "4.1" }}

[[guest]]
name = "server"
task = {{ kind = "server", arrivals = {{ kind = "poisson", mean = "5ms" }}, service = "20us" }}
load = {{ kind = "endless" }}
series = "rtt"

[[point]]
name = "two"
guests = ["server", "server"]

[[check]]
name = "fast"
of = "rtt.max"
at = ["two"]
at_most = "{at_most}"
source = "nowhere"
"#
    )
}

#[test]
fn a_run_says_its_verdict_first_and_ends_with_its_exit_code() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("mine.toml");
    for (at_most, code, verdict) in [("1s", 0, "PASS  mine: "), ("1us", 1, "FAIL  mine: ")] {
        fs::write(&file, experiment(at_most)).unwrap();
        let run = tailbound(directory.path(), &["run", "mine.toml", "--out", "reports"]);
        assert_eq!(run.status.code(), Some(code));
        let out = text(&run.stdout);
        assert!(out.starts_with(verdict), "{out}");
        assert!(out.ends_with("\nreport  reports/mine.html\n"), "{out}");
        // Progress is for terminals.
        assert_eq!(text(&run.stderr), "");
    }
    fs::write(&file, experiment("soon")).unwrap();
    let run = tailbound(directory.path(), &["run", "mine.toml"]);
    assert_eq!(run.status.code(), Some(2));
    let error = text(&run.stderr);
    assert!(error.starts_with("mine.toml:25:11: "), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn a_run_follows_from_its_seed_whatever_the_number_of_threads() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("mine.toml"), experiment("1s")).unwrap();
    let run = |seed: &str, threads: &str| {
        let args = [
            "run",
            "mine.toml",
            "--seed",
            seed,
            "--threads",
            threads,
            "--output",
            "json",
        ];
        text(&tailbound(directory.path(), &args).stdout)
    };
    let one = run("1", "1");
    assert_eq!(one, run("1", "3"));
    assert_ne!(one, run("2", "1"));
    let results: Results = serde_json::from_str(&one).unwrap();
    assert_eq!((results.experiment.as_str(), results.seed), ("mine", 1));
}

#[test]
fn experiments_are_listed_and_shown_and_the_shown_one_can_be_run() {
    let directory = tempfile::tempdir().unwrap();
    let list = text(&tailbound(directory.path(), &["list"]).stdout);
    insta::assert_snapshot!("list", list);
    let shown = text(&tailbound(directory.path(), &["show", "qos-fig16"]).stdout);
    let shorter = shown.replace("\nduration = \"1000s\"\n", "\nduration = \"60s\"\n");
    assert_ne!(shown, shorter);
    fs::write(directory.path().join("copy.toml"), shorter).unwrap();
    let run = tailbound(directory.path(), &["run", "copy.toml"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let error = tailbound(directory.path(), &["show", "fig16"]);
    assert_eq!(error.status.code(), Some(2));
    assert!(
        text(&error.stderr).contains("there is no experiment \"fig16\"; name a file, or one of")
    );
}

#[test]
fn the_help_is_stable() {
    let directory = tempfile::tempdir().unwrap();
    for args in [&["--help"][..], &["run", "--help"]] {
        let help = text(&tailbound(directory.path(), args).stdout);
        insta::assert_snapshot!(format!("help {}", args[0]), help);
    }
    let help = text(&reproduce(directory.path(), &["--help"]).stdout);
    insta::assert_snapshot!("help reproduce", help);
}

#[test]
fn the_items_of_the_papers_are_listed_and_those_of_seconds_are_run() {
    let directory = tempfile::tempdir().unwrap();
    let listed = text(&reproduce(directory.path(), &["--list"]).stdout);
    assert_eq!(listed.lines().count(), 131);
    let vsnoop = text(&reproduce(directory.path(), &["vsnoop", "--list"]).stdout);
    assert_eq!(vsnoop.lines().count(), 15);
    // One that runs, one that takes too long, one that other commands hold.
    let items = [
        "silo-10",
        "bobtail-16",
        "silo-1",
        "--quick",
        "--page",
        "page.md",
    ];
    let run = reproduce(directory.path(), &items);
    let out = text(&run.stdout);
    assert_eq!(run.status.code(), Some(0), "{out}{}", text(&run.stderr));
    assert!(out.starts_with("PASS       silo-10"), "{out}");
    assert!(out.contains("bursts alone in a: 400000B (wanted "), "{out}");
    assert!(out.contains("not run    bobtail-16"), "{out}");
    assert!(out.contains("-          silo-1 "), "{out}");
    let page = fs::read_to_string(directory.path().join("page.md")).unwrap();
    let told = "**PASS** (nine machines, the paper's)<br>bursts alone in a";
    assert!(page.contains(told), "{page}");
    // Nothing runs for a page that cannot be written.
    let refused = reproduce(directory.path(), &["silo-10", "--page", "none/page.md"]);
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(text(&refused.stdout), "");
    let error = text(&refused.stderr);
    assert!(
        error.contains("--page none/page.md: none is no directory"),
        "{error}"
    );
}

#[test]
fn what_came_out_of_items_is_kept_and_priced_first() {
    let directory = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| text(&reproduce(directory.path(), args).stdout);
    let keep = ["silo-10", "vsnoop-4", "--results", "kept"];
    // The second of two experiments alone, and then both.
    let part = run(&[&keep[..], &["--shard", "2/2"]].concat());
    assert!(part.starts_with("not run    silo-10"), "{part}");
    assert!(part.contains("PASS       vsnoop-4"), "{part}");
    let row = directory.path().join("kept/vcpu/snoop-sequence.row");
    let written = || fs::metadata(&row).unwrap().modified().unwrap();
    let before = written();
    let all = run(&keep);
    assert!(all.starts_with("PASS       silo-10"), "{all}");
    assert_eq!(written(), before);
    let damaged = fs::read_to_string(&row)
        .unwrap()
        .replace("\"seed\":1", "\"seed\":2");
    fs::write(&row, damaged).unwrap();
    let again = reproduce(directory.path(), &keep);
    assert_eq!(text(&again.stdout), all);
    assert!(text(&again.stderr).contains("snoop-sequence.row: its checksum"));
    // A page of full sizes has the items that have one, and says what they would take.
    run(&[
        "vsnoop-4",
        "--full",
        "--results",
        "kept",
        "--page",
        "page.md",
    ]);
    let page = fs::read_to_string(directory.path().join("page.md")).unwrap();
    let at = |name: &str| page.lines().find(|line| line.contains(name)).unwrap();
    assert!(!page.contains("bursts of nine VMs"), "{page}");
    let far = "**not run** (50 centres of 10 racks of 40 hosts, 60 ms, takes 10800s)";
    assert!(at("table 4: outliers").contains(far), "{page}");
    let price = run(&["silo-32", "--full", "--price"]);
    assert!(price.starts_with("packets/silo-fig12 "), "{price}");
    assert!(
        price.contains("50 centres of 10 racks of 40 hosts"),
        "{price}"
    );
}

/// The check that every kind of experiments gets, wrong in the same three ways.
const TYPOS: &str = "\n[[check]]\nname = \"typo\"\nkind = \"reduction\"\nof = \"no_such_value\"\n\
                     at = [\"no-such-variant\"]\nfrom = \"nobody\"\nat_least = 40\nsource = \"s\"\n";

#[test]
fn a_check_that_names_what_is_not_there_is_refused_before_anything_runs_in_every_kind() {
    let directory = tempfile::tempdir().unwrap();
    for (kind, name) in [
        (&["sim", "vcpu"][..], "bobtail-fig9"),
        (&["sim", "vcpu"], "schedulers"),
        (&["sim", "net"], "random-networks"),
        (&["sim", "pacer"], "limits"),
        (&["sim", "placement"], "microbenchmark"),
        (&["lab"], "traps"),
    ] {
        let run = |args: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_tailbound"));
            command.args(kind).args(args).current_dir(directory.path());
            command.output().unwrap()
        };
        let whole = text(&run(&["show", name]).stdout);
        let first = whole.lines().count() + 2;
        fs::write(directory.path().join("typo.toml"), whole + TYPOS).unwrap();
        let refused = run(&["run", "typo.toml"]);
        let error = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{name}: {error}");
        let places: Vec<_> = error
            .lines()
            .map(|it| it.split(' ').next().unwrap())
            .collect();
        let expected: Vec<_> = [(3, 6), (4, 7), (5, 8), (6, 12)]
            .map(|(line, column)| format!("typo.toml:{}:{column}:", first + line))
            .into();
        assert_eq!(places, expected, "{name}: {error}");
        let messages = [
            "unknown value",
            "unknown variant",
            "unknown variant",
            "write 0.4 for 40 %",
        ];
        for (line, message) in error.lines().zip(messages) {
            assert!(line.contains(message), "{name}: {error}");
        }
        // Nothing ran.
        assert!(!directory.path().join("out").exists(), "{name}");
    }
}

/// The page's own example, as printed.
#[test]
fn a_recording_is_replayed_as_the_page_shows() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let page = fs::read_to_string(format!("{root}/docs/reference/sim-replay.md")).unwrap();
    let (_, example) = page.split_once("```\n$ tailbound ").unwrap();
    let (example, _) = example.split_once("\n```\n").unwrap();
    let (command, wanted) = example.split_once(".toml\n").unwrap();
    let command = command.replace("\\\n", "") + ".toml";
    let replay = |more: &[&str]| {
        let mut tailbound = Command::new(env!("CARGO_BIN_EXE_tailbound"));
        tailbound.args(command.split_whitespace()).args(more);
        let run = tailbound.current_dir(root).output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        (
            run.status.code(),
            String::from_utf8(run.stdout).unwrap(),
            said,
        )
    };
    let (code, said, error) = replay(&[]);
    assert_eq!(
        (code, said.trim_end()),
        (Some(0), wanted.trim_end()),
        "{error}"
    );
    let (_, json, _) = replay(&["--output", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["schema"], &json["kind"]),
        (&1.into(), &"replay".into())
    );
    assert_eq!(json["guests"][1]["ways"][0]["way"], "fifo");
    // More than the link has.
    let (code, _, error) = replay(&["--fit", "9"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("a smaller --fit than 9"), "{error}");
}
