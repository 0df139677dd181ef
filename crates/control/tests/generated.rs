//! Clients that off-the-shelf generators make of the `OpenAPI` document call the service.

use crate::api_support::{OPERATOR, Place};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use tailbound_sys::probe::required::{Part, skipped};

/// The last line of each client's output.
const DONE: &str = "all answers are as the client expects\n";

/// Returns the folder that a script of `scripts/` prints; `None`, with a report, without the generator.
fn generator(script: &str) -> Option<PathBuf> {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts");
    let why = match Command::new(scripts.join(script)).output() {
        Ok(found) if found.status.success() => {
            return Some(String::from_utf8_lossy(&found.stdout).trim().into());
        }
        Ok(found) => {
            let why = String::from_utf8_lossy(&found.stderr);
            why.lines().last().unwrap_or("it failed").to_owned()
        }
        Err(error) => error.to_string(),
    };
    skipped(Part::ClientGenerator, why);
    None
}

fn done(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}{errors}");
    said
}

#[test]
fn a_python_client_of_the_document_calls_the_service() {
    let Some(programs) = generator("client-generator") else {
        return;
    };
    let place = Place::start();
    let dir = tempfile::tempdir().unwrap();
    let document = dir.path().join("openapi.json");
    std::fs::write(&document, place.get("", "/openapi.json").body).unwrap();
    let said = done(
        Command::new(programs.join("openapi-python-client"))
            .args(["generate", "--meta", "none", "--path"])
            .arg(&document)
            .arg("--output-path")
            .arg(dir.path().join("client")),
    );
    // Schemas that this version of the generator does not know; no other is lost.
    let lost = |line: &&str| line.starts_with("Unable to process schema");
    let lost: Vec<_> = said.lines().filter(lost).collect();
    let known = ["AgedHostLine", "MoveStep_type_0"];
    assert!(lost.len() <= known.len(), "{said}");
    for line in lost {
        assert!(known.iter().any(|it| line.contains(it)), "{line}");
    }
    let answer = done(
        Command::new(programs.join("python3"))
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/client.py"))
            .arg(dir.path())
            .args([&place.url, OPERATOR]),
    );
    assert_eq!(answer, DONE);
}

#[test]
#[ignore = "installs packages and takes half a minute: make nightly"]
fn a_typescript_client_of_the_document_calls_the_service() {
    let Some(tools) = generator("typescript-generator") else {
        return;
    };
    let place = Place::start();
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::write(
        dir.join("openapi.json"),
        place.get("", "/openapi.json").body,
    )
    .unwrap();
    std::fs::copy(tools.join("package.json"), dir.join("package.json")).unwrap();
    std::os::unix::fs::symlink(tools.join("node_modules"), dir.join("node_modules")).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/client.ts");
    std::fs::copy(source, dir.join("client.ts")).unwrap();
    let tool = |name: &str| tools.join("node_modules/.bin").join(name);
    let generate = ["openapi.json", "-o", "schema.d.ts"];
    done(
        Command::new(tool("openapi-typescript"))
            .args(generate)
            .current_dir(dir),
    );
    let strict = [
        "--strict",
        "--skipLibCheck",
        "--target",
        "es2022",
        "--module",
        "nodenext",
    ];
    done(
        Command::new(tool("tsc"))
            .args(strict)
            .arg("client.ts")
            .current_dir(dir),
    );
    let answer = done(
        Command::new("node")
            .arg("client.js")
            .args([&place.url, OPERATOR])
            .current_dir(dir),
    );
    assert_eq!(answer, DONE);
}

/// Rewrites a schema of JSON Schema 2020-12 in the form of `OpenAPI` 3.0, the newest one that the
/// generator reads: `null` among the types becomes `nullable`.
fn in_form_of_3_0(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(in_form_of_3_0),
        Value::Object(entries) => {
            entries.remove("propertyNames");
            entries.values_mut().for_each(in_form_of_3_0);
            if let Some(Value::Array(types)) = entries.get("type") {
                let kind = types.iter().find(|kind| *kind != "null").cloned();
                entries.insert("type".to_owned(), kind.unwrap());
                entries.insert("nullable".to_owned(), true.into());
            }
            if let Some(Value::Array(mut kinds)) = entries.remove("oneOf") {
                let all = kinds.len();
                kinds.retain(|kind| kind["type"] != "null");
                if kinds.len() < all {
                    entries.insert("nullable".to_owned(), true.into());
                }
                let word = if kinds.len() == 1 { "allOf" } else { "oneOf" };
                entries.insert(word.to_owned(), kinds.into());
            }
        }
        _ => {}
    }
}

#[test]
#[ignore = "gets a generator through Go's module proxy: make nightly"]
fn a_go_client_of_the_document_calls_the_service() {
    let Some(tools) = generator("go-generator") else {
        return;
    };
    let place = Place::start();
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut document = place.get("", "/openapi.json").json();
    document["openapi"] = "3.0.3".into();
    in_form_of_3_0(&mut document);
    std::fs::write(dir.join("openapi.json"), document.to_string()).unwrap();
    for file in ["go.mod", "go.sum"] {
        std::fs::copy(tools.join("module").join(file), dir.join(file)).unwrap();
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/client.go");
    std::fs::copy(source, dir.join("main.go")).unwrap();
    std::fs::create_dir(dir.join("place")).unwrap();
    let generate = ["-generate", "types,client", "-package", "place"];
    done(
        Command::new(tools.join("oapi-codegen"))
            .args(generate)
            .args(["-o", "place/place.go", "openapi.json"])
            .current_dir(dir),
    );
    done(
        Command::new("go")
            .args(["build", "-mod=mod", "-o", "client", "."])
            .env("GOFLAGS", "")
            .current_dir(dir),
    );
    let answer = done(Command::new(dir.join("client")).args([&place.url, OPERATOR]));
    assert_eq!(answer, DONE);
}
