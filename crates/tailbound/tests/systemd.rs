//! The units of `contrib`, held to docs/how-to/systemd.md: keys that systemd 247 knows, and as little
//! that they may do.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tailbound_sys::probe::required::{Part, skipped};

/// The oldest systemd that the units are for.
const OLDEST: u32 = 247;

/// Highest exposure of each unit, out of 10.
const MAX_EXPOSURE: [(&str, f64); 3] = [("host", 3.0), ("vcpu", 3.0), ("place", 2.0)];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn document() -> String {
    fs::read_to_string(root().join("docs/how-to/systemd.md")).unwrap()
}

/// The cells of a table's rows whose first cell passes.
fn rows(document: &str, passes: impl Fn(&str) -> bool) -> Vec<Vec<String>> {
    let rows = document.lines().filter_map(|line| {
        let cells = line.strip_prefix('|')?.strip_suffix('|')?;
        Some(
            cells
                .split('|')
                .map(|cell| cell.trim().to_owned())
                .collect(),
        )
    });
    rows.filter(|row: &Vec<String>| passes(&row[0])).collect()
}

fn in_backquotes(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Since when systemd has each key, by the document.
fn versions() -> BTreeMap<String, u32> {
    let is_version = |cell: &str| cell == "before 230" || cell.parse::<u32>().is_ok();
    let mut found = BTreeMap::new();
    for row in rows(&document(), is_version) {
        let since = row[0].parse().unwrap_or(0);
        let words = row[1].split(" (in ").next().unwrap();
        for key in in_backquotes(words) {
            let before = found.insert(key.to_owned(), since);
            assert_eq!(before, None, "{key} is in two rows");
        }
    }
    found
}

/// Every file below `directory` with one of these endings.
fn files(directory: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, endings));
        } else if endings
            .iter()
            .any(|ending| path.extension().is_some_and(|it| it == *ending))
        {
            found.push(path);
        }
    }
    found
}

/// The keys of a unit; a line that goes on on the next one has none of its own there.
fn keys(unit: &Path) -> Vec<String> {
    let text = fs::read_to_string(unit).unwrap().replace("\\\n", " ");
    let lines = text
        .lines()
        .filter(|line| !line.starts_with(['#', '[', ';']));
    let pairs = lines.filter_map(|line| line.split_once('='));
    pairs.map(|(key, _)| key.trim().to_owned()).collect()
}

#[test]
fn units_have_no_key_that_the_oldest_systemd_lacks() {
    let versions = versions();
    let mut used = BTreeSet::new();
    let contrib = root().join("contrib");
    for unit in files(&contrib, &["service", "conf"]) {
        let newest = match unit.strip_prefix(&contrib).unwrap().iter().next() {
            Some(directory) if directory == "systemd-254" => 254,
            _ => OLDEST,
        };
        for key in keys(&unit) {
            let since = versions.get(&key);
            let known = since.is_some_and(|since| *since <= newest);
            assert!(known, "{}: {key} is of {since:?}", unit.display());
            used.insert(key);
        }
    }
    let listed: BTreeSet<_> = versions.into_keys().collect();
    assert_eq!(listed, used, "the document lists what is used");
}

fn service(name: &str) -> PathBuf {
    root().join(format!("contrib/tailbound-{name}.service"))
}

/// Runs `systemd-analyze`; returns `None` if this computer lacks it.
fn analyze(arguments: &[&str], files: &[PathBuf]) -> Option<std::process::Output> {
    let mut command = Command::new("systemd-analyze");
    match command.args(arguments).args(files).output() {
        Ok(output) => Some(output),
        Err(error) => {
            skipped(Part::SystemdAnalyze, error);
            None
        }
    }
}

#[test]
fn systemd_finds_no_fault_in_the_units() {
    let directory = tempfile::tempdir().unwrap();
    let copies: Vec<_> = MAX_EXPOSURE
        .iter()
        .map(|(name, _)| {
            // The program is not installed here.
            let text = fs::read_to_string(service(name)).unwrap();
            let text = text.replace("/usr/bin/tailbound", env!("CARGO_BIN_EXE_tailbound"));
            let copy = directory.path().join(format!("tailbound-{name}.service"));
            fs::write(&copy, text).unwrap();
            copy
        })
        .collect();
    let Some(output) = analyze(&["verify", "--man=no"], &copies) else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((&*said, output.status.code()), ("", Some(0)));
}

#[test]
fn each_units_remaining_exposure_is_small_and_documented() {
    let points = rows(&document(), |cell| cell.starts_with('`'));
    for (column, (name, most)) in MAX_EXPOSURE.into_iter().enumerate() {
        let threshold = format!("--threshold={}", most * 10.0);
        let arguments = ["security", "--offline=true", "--json=short", &threshold];
        let Some(output) = analyze(&arguments, &[service(name)]) else {
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{name} exposes more than {most}: {said}"
        );
        let found: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        let left: BTreeSet<_> = found
            .iter()
            .filter(|point| point["exposure"].as_str().is_some_and(|it| it != "0.0"))
            // systemd 252 has one name with a bracket too many.
            .map(|point| point["json_field"].as_str().unwrap().trim_end_matches(')'))
            .collect();
        let named: BTreeSet<_> = points
            .iter()
            .filter(|row| row[1 + column] == "x")
            .flat_map(|row| in_backquotes(&row[0]))
            .collect();
        assert_eq!(left, named, "{name}");
    }
}
