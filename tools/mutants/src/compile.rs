//! Compiles a crate with mutants. A mutant that is no valid code is dropped.

use crate::part::Part;
use crate::rewrite::Rewritten;
use crate::run::Program;
use crate::tree::{Sources, Tree};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Greatest number of attempts: an attempt shows the errors of one pass of the compiler.
const ATTEMPTS: usize = 25;
/// Exit code of `timeout` for a program that it ended.
const TIMED_OUT: i32 = 124;

/// The end of the time for all parts; `None` without one.
pub(crate) type Deadline = Option<Instant>;

/// A crate whose mutants all compile.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) programs: Vec<Program>,
    /// The mutants that are no valid code.
    pub(crate) dropped: BTreeSet<u32>,
}

/// An error of the compiler: its text, and each place that it names, by the file.
struct CompileError {
    text: String,
    places: Vec<(String, Range<usize>)>,
}

fn places(message: &Value, into: &mut Vec<(String, Range<usize>)>) {
    let of = |span: &Value| {
        let number = |name: &str| usize::try_from(span[name].as_u64()?).ok();
        let file = span["file_name"].as_str()?.to_owned();
        Some((file, number("byte_start")?..number("byte_end")?))
    };
    let spans = message["spans"].as_array();
    let (first, rest): (Vec<_>, Vec<_>) = spans
        .into_iter()
        .flatten()
        .partition(|span| span["is_primary"] == true);
    into.extend(first.into_iter().chain(rest).filter_map(of));
    for note in message["children"].as_array().into_iter().flatten() {
        places(note, into);
    }
}

/// Puts the crates of others that a build of the workspace has compiled into a new target directory:
/// copies of what cargo writes in place, and links to all else.
fn borrow_dependencies(built: &Path, target: &Path) -> Result<(), String> {
    let into = target.join("debug");
    if into.exists() || !built.exists() {
        return Ok(());
    }
    std::fs::create_dir_all(&into).map_err(|error| error.to_string())?;
    for (folder, how) in [(".fingerprint", "-a"), ("build", "-a"), ("deps", "-al")] {
        let mut command = Command::new("cp");
        let status = command.arg(how).arg(built.join(folder)).arg(&into).status();
        if !status.is_ok_and(|status| status.success()) {
            return Err(format!("cp: {folder} of {}", built.display()));
        }
    }
    Ok(())
}

/// The errors of a build, and the programs that it made.
type BuildOutput = (Vec<CompileError>, Vec<Program>);

/// Builds, or only checks, the tests, until `deadline`. Returns the errors and the programs; `None` if
/// the time did not suffice.
fn cargo(
    tree: &Tree,
    target: &Path,
    parts: &[Part],
    builds: bool,
    deadline: Deadline,
) -> Result<Option<BuildOutput>, String> {
    let mut command = Command::new("timeout");
    // 0 is no limit.
    command.arg(
        deadline
            .map_or(0, |at| {
                at.saturating_duration_since(Instant::now())
                    .as_secs()
                    .max(1)
            })
            .to_string(),
    );
    command.arg(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(&tree.root)
        .arg(if builds { "test" } else { "check" });
    command.args(["--locked", "--quiet", "--message-format", "json", "--lib"]);
    command.args(if builds {
        &["--no-run"][..]
    } else {
        &["--profile", "test"]
    });
    for test in parts.iter().flat_map(|part| part.tests) {
        command.args(["--test", test]);
    }
    let users = parts.iter().flat_map(|part| part.users);
    for folder in users.chain([&tree.folder]) {
        command.args(["--package", &format!("tailbound-{folder}")]);
    }
    command.arg("--target-dir").arg(target);
    command
        .env("CARGO_PROFILE_DEV_DEBUG", "false")
        .stderr(Stdio::null());
    let output = command
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    if output.status.code() == Some(TIMED_OUT) {
        return Ok(None);
    }
    let mut errors = Vec::new();
    let mut programs = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(value) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let message = &value["message"];
        if message["level"] == "error" && !message["spans"].as_array().is_none_or(Vec::is_empty) {
            let mut all = Vec::new();
            places(message, &mut all);
            let text = message["rendered"].as_str().unwrap_or_default().to_owned();
            errors.push(CompileError { text, places: all });
        }
        if let (true, Some(path)) = (
            value["profile"]["test"] == true,
            value["executable"].as_str(),
        ) {
            let manifest = value["manifest_path"].as_str().unwrap_or_default();
            let folder = Path::new(manifest).parent().unwrap_or(&tree.root);
            programs.push(Program {
                path: path.into(),
                folder: folder.to_owned(),
            });
        }
    }
    if errors.is_empty() && !output.status.success() {
        return Err("cargo ended without an error of the crate".into());
    }
    Ok(Some((errors, programs)))
}

/// Returns the mutants to which the errors are due.
fn blamed(
    tree: &Tree,
    files: &BTreeMap<String, Rewritten>,
    errors: &[CompileError],
) -> Result<BTreeSet<u32>, String> {
    let prefix = format!("crates/{}/src/", tree.folder);
    let mut all = BTreeSet::new();
    for error in errors {
        let mut of_error = Vec::new();
        for (file, rewritten) in files {
            let name = format!("{prefix}{file}");
            let of_file = error.places.iter().filter(|(file, _)| *file == name);
            let of_file: Vec<_> = of_file.map(|(_, place)| place.clone()).collect();
            of_error.extend(rewritten.blamed(&of_file));
        }
        if of_error.is_empty() {
            return Err(format!("an error is of no mutant:\n{}", error.text));
        }
        all.extend(of_error);
    }
    Ok(all)
}

/// Compiles the crate, and drops mutants until it succeeds; `None` if the time did not suffice.
pub(crate) fn compile(
    tree: &Tree,
    target: &Path,
    sources: &Sources,
    parts: &[Part],
    deadline: Deadline,
) -> Result<Option<Compiled>, String> {
    borrow_dependencies(Path::new("target/debug"), target)?;
    let mut dropped = BTreeSet::new();
    let mut checked = false;
    for _ in 0..ATTEMPTS {
        let files = tree.write(sources, &dropped)?;
        let Some((errors, programs)) = cargo(tree, target, parts, checked, deadline)? else {
            return Ok(None);
        };
        if !errors.is_empty() {
            dropped.extend(blamed(tree, &files, &errors)?);
        } else if !checked {
            checked = true;
        } else {
            return Ok(Some(Compiled { programs, dropped }));
        }
    }
    Err(format!(
        "the crate does not compile after {ATTEMPTS} attempts"
    ))
}
