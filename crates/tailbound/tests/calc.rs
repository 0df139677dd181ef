//! `tailbound calc` on the networks that come with tailbound.

mod program;

use program::{CommandOutput, Folder, run};
use serde_json::Value;
use std::path::Path;

/// Runs where the networks are, so that messages name them in short.
fn calc(line: &str) -> CommandOutput {
    let networks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/networks");
    run(&networks, &format!("calc {line}"))
}

#[test]
fn a_buffer_that_may_overflow_is_named_first() {
    insta::assert_snapshot!("silo-figure-5a", calc("silo-figure-5a.toml").ended(1).out);
}

#[test]
fn priorities_have_rows_of_their_own() {
    insta::assert_snapshot!("two-racks", calc("two-racks.toml").done());
}

#[test]
fn the_json_document_has_exact_whole_numbers() {
    let document = calc("disco-tandem.toml --output json").json();
    assert_eq!(document["schema"], 1);
    assert_eq!(document["kind"], "calc");
    assert_eq!(document["holds"], true);
    // 55 s and 450 B, as the Disco calculator publishes.
    let flow = &document["flows"][0];
    assert_eq!(flow["total"]["delay_ns"], 55_000_000_000_u64);
    assert_eq!(flow["path"], serde_json::json!(["s0", "s1"]));
    assert_eq!(document["ports"][1]["backlog_bytes"], 450);
    assert_eq!(document["ports"][1]["priorities"][0]["load_bit_s"], 80);
    assert_eq!(document["ports"][1]["buffer_bytes"], Value::Null);
}

#[test]
fn a_network_without_bounds_is_an_error_with_its_place() {
    let folder = Folder::new();
    folder.write(
        "bad.toml",
        "frame = \"1500B\"\n[[port]]\nname = \"p\"\nrte = \"1Gbit/s\"\n",
    );
    let output = folder.run("calc bad.toml").ended(2);
    assert_eq!(output.out, "");
    assert_eq!(
        output.err,
        "bad.toml:1:1: the network has no flow, so nothing has a bound; add `[[flow]]`\n\
         bad.toml:4:1: unknown key `rte`; did you mean `rate`?\n"
    );
}

#[test]
fn the_help_is_stable() {
    insta::assert_snapshot!("calc-help", calc("--help").done());
}
