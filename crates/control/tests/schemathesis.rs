//! The API fuzzed against its own `OpenAPI` document: every answer is one that the
//! document declares, what the document allows is not called malformed, and what
//! it forbids is not done.

use crate::api_support::{ACME, OPERATOR, Place};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tailbound_sys::probe::required::{Part, skipped};

/// Requests made up for each operation and phase.
const EXAMPLES: u32 = 8;
/// The same at night.
const EXAMPLES_AT_NIGHT: u32 = 100;
/// Time limit of a run, which takes about 20 s.
const RUN_TIMEOUT: Duration = Duration::from_mins(3);

/// Returns the path of the fuzzer, or the reason why it is missing.
fn schemathesis() -> Result<String, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/schemathesis");
    let found = Command::new(script)
        .output()
        .map_err(|error| error.to_string())?;
    if found.status.success() {
        Ok(String::from_utf8_lossy(&found.stdout).trim().to_owned())
    } else {
        let why = String::from_utf8_lossy(&found.stderr);
        Err(why.lines().last().unwrap_or("it failed").to_owned())
    }
}

/// Phases of the fuzzer. `coverage` tries each value that a schema distinguishes; its size depends
/// on the document, and not on the number of examples.
const ALL: &str = "examples,coverage,fuzzing,stateful";
/// For a second identity in CI: the same document, and most of its answers are 403.
const WITHOUT_COVERAGE: &str = "examples,fuzzing,stateful";

fn fuzz(token: &str, phases: &str, examples: u32) {
    let program = match schemathesis() {
        Ok(program) => program,
        Err(why) => {
            skipped(Part::Schemathesis, why);
            return;
        }
    };
    let place = Place::start();
    for i in 0..3 {
        place.admit(&format!("t{i}"), 2);
    }
    let dir = tempfile::tempdir().unwrap();
    let report = std::fs::File::create(dir.path().join("report")).unwrap();
    let begin = Instant::now();
    let mut running = Command::new(program)
        .arg("--config-file")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schemathesis.toml"))
        .arg("run")
        .arg(format!("{}/openapi.json", place.url))
        .args(["--header", &format!("Authorization: Bearer {token}")])
        .args(["--checks", "all", "--phases", phases])
        .args(["--seed", "1", "--max-examples", &examples.to_string()])
        .args(["--generation-database", "none", "--no-color"])
        // They have no end by themselves; their own tests read them.
        .args(["--exclude-path", "/v1/hosts/{name}/guarantees/stream"])
        .args(["--exclude-path", "/v1/events"])
        .args(["--exclude-path-regex", "^/v1/changes/"])
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stdout(report.try_clone().unwrap())
        .stderr(report)
        .spawn()
        .unwrap();
    let ended = loop {
        match running.try_wait().unwrap() {
            Some(status) => break status.success(),
            None if begin.elapsed() > RUN_TIMEOUT * examples.div_ceil(EXAMPLES) => {
                running.kill().unwrap();
                running.wait().unwrap();
                break false;
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    let report = std::fs::read_to_string(dir.path().join("report")).unwrap();
    // A run that tested nothing is no success either.
    assert!(ended && report.contains(" passed, "), "{report}");
}

#[test]
fn an_operators_answers_conform_to_the_openapi_document() {
    fuzz(OPERATOR, ALL, EXAMPLES);
}

#[test]
fn a_tenants_answers_conform_to_the_openapi_document() {
    fuzz(ACME, WITHOUT_COVERAGE, EXAMPLES);
}

#[test]
#[ignore = "takes minutes"]
fn many_fuzzed_answers_conform_to_the_openapi_document() {
    fuzz(OPERATOR, ALL, EXAMPLES_AT_NIGHT);
    fuzz(ACME, ALL, EXAMPLES_AT_NIGHT);
}
