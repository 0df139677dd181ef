//! `tailbound sim pacer` from outside.

use std::path::Path;
use std::process::{Command, Output};
use tailbound_report::Results;

fn tailbound(directory: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tailbound"));
    command.args(["sim", "pacer"]).args(args);
    // What is made at different times is the same.
    command.env("SOURCE_DATE_EPOCH", "1000000000");
    command.current_dir(directory).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn experiments_are_listed_and_a_shown_one_can_be_changed_and_run() {
    let directory = tempfile::tempdir().unwrap();
    let list = text(&tailbound(directory.path(), &["list"]).stdout);
    let names: Vec<_> = list.lines().filter_map(|it| it.split(' ').next()).collect();
    assert_eq!(
        names,
        [
            "silo-table1",
            "limits",
            "spacing",
            "conformance",
            "isolation",
            "elastic"
        ]
    );
    let shown = text(&tailbound(directory.path(), &["show", "conformance"]).stdout);
    let shorter = shown.replace("networks = 4000", "networks = 20");
    assert_ne!(shown, shorter);
    std::fs::write(directory.path().join("mine.toml"), shorter).unwrap();
    let run = tailbound(directory.path(), &["run", "mine.toml", "--out", "reports"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    assert!(text(&run.stdout).starts_with("PASS  conformance: "));
    let results = Results::read(&directory.path().join("reports/conformance.json")).unwrap();
    assert_eq!(results.conditions["networks"], 20);
    assert!(directory.path().join("reports/conformance.html").exists());
}

#[test]
fn the_long_experiment_can_be_read() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../experiments/pacer/drift.toml"
    );
    let directory = tempfile::tempdir().unwrap();
    let shown = tailbound(directory.path(), &["show", file]);
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    let shorter = text(&shown.stdout).replace("count = 1000000000", "count = 10000");
    std::fs::write(directory.path().join("drift.toml"), shorter).unwrap();
    let run = tailbound(directory.path(), &["run", "drift.toml"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
}
