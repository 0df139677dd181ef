//! `tailbound calc` on the networks that come with tailbound.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// Runs where the networks are, so that messages name them in short.
fn calc(arguments: &[&str]) -> Output {
    let networks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/networks");
    Command::new(env!("CARGO_BIN_EXE_tailbound"))
        .arg("calc")
        .args(arguments)
        .current_dir(networks)
        .env_remove("COLUMNS")
        .output()
        .unwrap()
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_buffer_that_may_overflow_is_named_first() {
    let output = calc(&["silo-figure-5a.toml"]);
    assert_eq!(output.status.code(), Some(1));
    insta::assert_snapshot!("silo-figure-5a", text(output.stdout));
}

#[test]
fn priorities_have_rows_of_their_own() {
    let output = calc(&["two-racks.toml"]);
    assert_eq!(output.status.code(), Some(0));
    insta::assert_snapshot!("two-racks", text(output.stdout));
}

#[test]
fn the_json_document_has_exact_whole_numbers() {
    let output = calc(&["disco-tandem.toml", "--output", "json"]);
    assert_eq!(output.status.code(), Some(0));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schema"], 1);
    assert_eq!(document["kind"], "calc");
    assert_eq!(document["holds"], true);
    // 55 s and 450 B, as the Disco calculator publishes.
    assert_eq!(
        document["flows"][0]["total"]["delay_ns"],
        55_000_000_000_u64
    );
    assert_eq!(
        document["flows"][0]["path"],
        serde_json::json!(["s0", "s1"])
    );
    assert_eq!(document["ports"][1]["backlog_bytes"], 450);
    assert_eq!(document["ports"][1]["priorities"][0]["load_bit_s"], 80);
    assert_eq!(document["ports"][1]["buffer_bytes"], Value::Null);
}

#[test]
fn a_file_without_bounds_says_where_and_why() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bad.toml");
    std::fs::write(
        &path,
        "frame = \"1500B\"\n[[port]]\nname = \"p\"\nrte = \"1Gbit/s\"\n",
    )
    .unwrap();
    let output = calc(&[path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let path = path.display();
    let expected = format!(
        "{path}:1:1: the network has no flow, so nothing has a bound; add `[[flow]]`\n\
         {path}:4:1: unknown key `rte`; did you mean `rate`?\n"
    );
    assert_eq!(text(output.stderr), expected);
}

#[test]
fn the_help_is_stable() {
    insta::assert_snapshot!("calc-help", text(calc(&["--help"]).stdout));
}
