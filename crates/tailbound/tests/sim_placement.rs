//! `tailbound sim placement` from outside.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tailbound_report::Results;

fn tailbound(directory: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tailbound"));
    command.args(["sim", "placement"]).args(args);
    // What is made at different times is the same.
    command.env("SOURCE_DATE_EPOCH", "1000000000");
    command.current_dir(directory).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The microbenchmark's network and tenants with a pod for 100 requests. A typical decision may
/// examine `at_most` ports.
fn experiment(directory: &Path, at_most: &str) -> String {
    let shown = tailbound(directory, &["show", "microbenchmark"]);
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    let whole = text(&shown.stdout);
    let tenants = &whole[..whole.find("[[point]]").unwrap()];
    format!(
        r#"{tenants}[[point]]
name = "small"
network = "10G"
pods = 1
mean_vms = 10
requests = 100

[[check]]
name = "ports"
of = "ports.p50"
at = ["small"]
at_most = {at_most}
source = "nowhere"
"#
    )
}

#[test]
fn experiments_are_listed_with_what_they_show() {
    let directory = tempfile::tempdir().unwrap();
    let list = tailbound(directory.path(), &["list"]);
    assert_eq!(list.status.code(), Some(0));
    let names: Vec<String> = text(&list.stdout)
        .lines()
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["microbenchmark", "scale", "policies"]);
}

#[test]
fn a_run_says_its_verdict_first_and_ends_with_its_exit_code() {
    let directory = tempfile::tempdir().unwrap();
    for (at_most, code, verdict) in [("1000", 0, "PASS  "), ("0", 1, "FAIL  ")] {
        let mine = experiment(directory.path(), at_most);
        fs::write(directory.path().join("mine.toml"), mine).unwrap();
        let run = tailbound(directory.path(), &["run", "mine.toml", "--out", "reports"]);
        assert_eq!(run.status.code(), Some(code), "{}", text(&run.stderr));
        let out = text(&run.stdout);
        assert!(out.starts_with(verdict), "{out}");
        let report = "reports/placement-microbenchmark";
        assert!(out.contains(&format!("report  {report}.html\n")), "{out}");
        let results = directory.path().join(format!("{report}.json"));
        let results = Results::read(&results).unwrap();
        let hosts = results.variant("small").unwrap().values["hosts"].value;
        assert_eq!(hosts as u32, 1_000);
        // Progress is for terminals.
        assert_eq!(text(&run.stderr), "");
    }
}

#[test]
fn mistakes_are_named_with_their_place() {
    let directory = tempfile::tempdir().unwrap();
    let right = experiment(directory.path(), "1000");
    let run = |wrong: &str| {
        fs::write(directory.path().join("mine.toml"), wrong).unwrap();
        let run = tailbound(directory.path(), &["run", "mine.toml"]);
        assert_eq!(run.status.code(), Some(2));
        let error = text(&run.stderr);
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    };
    let unknown = run(&right.replace("network = \"10G\"", "network = \"1T\""));
    assert!(unknown.starts_with("mine.toml:"), "{unknown}");
    assert!(unknown.contains("`1T`"), "{unknown}");
    // More than 4 million slots.
    let huge = run(&right.replace("pods = 1\n", "pods = 2000\n"));
    assert!(huge.starts_with("tailbound: "), "{huge}");
    assert!(huge.contains("small"), "{huge}");
    let missing = tailbound(directory.path(), &["show", "nothing"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("there is no experiment \"nothing\""));
    // Decisions follow one from the other.
    let threads = tailbound(directory.path(), &["run", "mine.toml", "--threads", "2"]);
    assert_eq!(threads.status.code(), Some(64));
}
