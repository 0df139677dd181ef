//! Arrows between crates: those of `cargo metadata`, compared with a table.
//!
//! The table has a row for each crate, its name in the first column and its permitted imports in
//! the last. An arrow of the code that is not in the table is wrong, and an arrow of the table that
//! is not in the code is wrong, too. Imports of tests need no arrow; they must not lead back to the
//! tested crate.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The line that the table stands below.
const HEADING: &str = "## Crates";
/// Prefix of the packages' names, except for the program itself.
const PREFIX: &str = "tailbound-";

/// The imports of each crate.
pub(crate) type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The crates of the workspace, as `cargo metadata --no-deps` describes them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Workspace {
    pub(crate) imports: Arrows,
    pub(crate) tests_import: Arrows,
    /// The root files of each crate's library and binaries.
    pub(crate) roots: BTreeMap<String, Vec<String>>,
}

impl Workspace {
    /// Reads what `cargo metadata` printed.
    pub(crate) fn parse(metadata: &str) -> Result<Self, String> {
        let metadata: Value = serde_json::from_str(metadata).map_err(|error| error.to_string())?;
        let mut workspace = Self::default();
        for package in list(&metadata["packages"]) {
            let name = short(&package["name"]);
            let mut imports = BTreeSet::new();
            let mut tests_import = BTreeSet::new();
            for dependency in list(&package["dependencies"]) {
                if dependency["path"].is_null() {
                    continue;
                }
                let to = short(&dependency["name"]);
                match dependency["kind"].as_str() {
                    Some("dev") => tests_import.insert(to),
                    _ => imports.insert(to),
                };
            }
            let programs = list(&package["targets"]).filter(|target| {
                list(&target["kind"]).any(|kind| matches!(kind.as_str(), Some("lib" | "bin")))
            });
            let roots = programs.filter_map(|target| target["src_path"].as_str());
            let roots = roots.map(str::to_owned).collect();
            workspace.roots.insert(name.clone(), roots);
            workspace.imports.insert(name.clone(), imports);
            workspace.tests_import.insert(name, tests_import);
        }
        Ok(workspace)
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn short(name: &Value) -> String {
    let name = name.as_str().unwrap_or_default();
    name.strip_prefix(PREFIX).unwrap_or(name).to_owned()
}

/// Reads the table of a document.
pub(crate) fn parse(document: &str) -> Result<Arrows, String> {
    let mut table = Arrows::new();
    let section = document.lines().skip_while(|line| *line != HEADING).skip(1);
    for line in section.take_while(|line| !line.starts_with('#')) {
        let Some(row) = line.trim().strip_prefix('|') else {
            continue;
        };
        let cells: Vec<_> = row.trim_end_matches('|').split('|').collect();
        let (first, last) = (cells[0], cells[cells.len() - 1]);
        let mut names = names(first);
        let (Some(name), None) = (names.next(), names.next()) else {
            continue;
        };
        let imports = self::names(last).map(str::to_owned).collect();
        if table.insert(name.to_owned(), imports).is_some() {
            return Err(format!("the table has two rows for {name}"));
        }
    }
    if table.is_empty() {
        return Err(format!("there is no table below \"{HEADING}\""));
    }
    Ok(table)
}

/// Returns the texts between backticks.
fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Returns the differences between the table and the code, a line each.
pub(crate) fn judge(table: &Arrows, workspace: &Workspace) -> Vec<String> {
    let mut wrong = Vec::new();
    let none = BTreeSet::new();
    for (name, imports) in &workspace.imports {
        let Some(allowed) = table.get(name) else {
            wrong.push(format!("{name} has no row in the table"));
            continue;
        };
        for other in imports.difference(allowed) {
            wrong.push(format!("{name} imports {other}; the table does not say so"));
        }
        for other in allowed.difference(imports) {
            wrong.push(format!(
                "the table says {name} imports {other}; it does not"
            ));
        }
        for other in workspace.tests_import.get(name).unwrap_or(&none) {
            if other == name || reaches(table, other, name) {
                wrong.push(format!(
                    "tests of {name} import {other}, which leads back to {name}"
                ));
            }
        }
    }
    for name in table.keys() {
        if !workspace.imports.contains_key(name) {
            wrong.push(format!(
                "the table has a row for {name}; there is no such crate"
            ));
        }
        if reaches(table, name, name) {
            wrong.push(format!("the table leads from {name} back to {name}"));
        }
    }
    wrong
}

fn reaches(table: &Arrows, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(next) = open.pop() {
        for other in table.get(next).into_iter().flatten() {
            if other == to {
                return true;
            }
            if seen.insert(other) {
                open.push(other);
            }
        }
    }
    false
}

#[cfg(test)]
mod tests;
