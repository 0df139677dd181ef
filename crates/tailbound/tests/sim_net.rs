//! `tailbound sim net` from outside.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tailbound_report::Results;

fn tailbound(directory: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tailbound"));
    command.args(args);
    // What is made at different times is the same.
    command.env("SOURCE_DATE_EPOCH", "1000000000");
    command.current_dir(directory).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn figure_5_runs_by_its_name_and_from_its_file_with_the_same_result() {
    let directory = tempfile::tempdir().unwrap();
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../experiments/net/silo-figure5.toml"
    );
    let run = |name: &str, out: &str| {
        let run = tailbound(directory.path(), &["sim", "net", "run", name, "--out", out]);
        assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
        assert!(text(&run.stdout).starts_with("PASS  silo-figure5: "));
        Results::read(&directory.path().join(out).join("silo-figure5.json")).unwrap()
    };
    let results = run("silo-figure5", "one");
    assert_eq!(results, run(file, "other"));
    // The files are the calculus's own.
    let calc = tailbound(
        directory.path(),
        &[
            "calc",
            "--output",
            "json",
            concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../../experiments/networks/silo-figure-5b.toml"
            ),
        ],
    );
    let calc: serde_json::Value = serde_json::from_slice(&calc.stdout).unwrap();
    let bound = calc["ports"][2]["backlog_bytes"].as_f64().unwrap();
    let simulated = results.variant("b").unwrap().values["backlog_simulated"].value;
    assert!(
        simulated > 0.99 * bound && simulated <= bound,
        "{simulated} of {bound}"
    );
}

#[test]
fn a_random_network_is_a_file_for_the_calculus() {
    let directory = tempfile::tempdir().unwrap();
    let network = tailbound(
        directory.path(),
        &["sim", "net", "network", "17", "--seed", "5"],
    );
    assert_eq!(network.status.code(), Some(0));
    fs::write(directory.path().join("17.toml"), &network.stdout).unwrap();
    let calc = tailbound(directory.path(), &["calc", "17.toml"]);
    assert_eq!(calc.status.code(), Some(0), "{}", text(&calc.stderr));
    let wrong = ["sim", "net", "network", "17", "--of", "silo-figure5"];
    let wrong = tailbound(directory.path(), &wrong);
    assert_eq!(wrong.status.code(), Some(2));
    assert_eq!(
        text(&wrong.stderr),
        "tailbound: variant silo-figure5: it has no random networks\n"
    );
}

#[test]
fn mistakes_are_named_with_their_place() {
    let directory = tempfile::tempdir().unwrap();
    let random =
        text(&tailbound(directory.path(), &["sim", "net", "show", "random-networks"]).stdout);
    let figure = text(&tailbound(directory.path(), &["sim", "net", "show", "silo-figure5"]).stdout);
    let cases = [
        (
            &random,
            "load = 100",
            "load = 101",
            "15:8: load 101: choose 1 to 100",
        ),
        (
            &random,
            "\"40Gbit/s\"",
            "\"7Gbit/s\"",
            "14:9: a rate of 7Gbit/s: choose",
        ),
        (
            &random,
            "ports = [2, 6]",
            "ports = [7, 6]",
            "10:9: ports 7: choose 1 to 6",
        ),
        (
            &random,
            "[random]",
            "[admitted]",
            "unknown key `burst_frames`",
        ),
        (
            &figure,
            "name = \"b\"",
            "name = \"a\"",
            "network \"a\" is there twice",
        ),
        (
            &figure,
            "silo-figure-5a",
            "nowhere.toml",
            "nowhere.toml: cannot be read",
        ),
    ];
    for (whole, right, wrong, message) in cases {
        fs::write(
            directory.path().join("mine.toml"),
            whole.replace(right, wrong),
        )
        .unwrap();
        let run = tailbound(directory.path(), &["sim", "net", "run", "mine.toml"]);
        assert_eq!(run.status.code(), Some(2), "{wrong}");
        let error = text(&run.stderr);
        assert!(error.starts_with("mine.toml:"), "{error}");
        assert!(error.contains(message), "{error}");
    }
}
