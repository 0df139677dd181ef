//! A copy of the workspace in which one crate has mutants: all else are symbolic links.

use crate::find::find;
use crate::part::Part;
use crate::rewrite::{Numbered, Rewritten, SWITCH, rewrite};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The source of the module that selects a mutant.
const SOURCE: &str = include_str!("switch.txt");

/// The source files of a crate with the mutants of some parts.
#[derive(Debug)]
pub(crate) struct Sources {
    /// Below the crate's `src`, without code for tests.
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) mutants: BTreeMap<String, Vec<Numbered>>,
}

fn fail(path: &Path) -> impl FnOnce(std::io::Error) -> String + '_ {
    move |error| format!("{}: {error}", path.display())
}

/// Adds the source files below a folder, by their paths below `base`.
fn walk(base: &Path, folder: &Path, into: &mut BTreeMap<String, String>) -> Result<(), String> {
    for entry in fs::read_dir(folder).map_err(fail(folder))? {
        let path = entry.map_err(fail(folder))?.path();
        if path.is_dir() {
            walk(base, &path, into)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path
                .strip_prefix(base)
                .expect("the folder is below the base");
            let text = fs::read_to_string(&path).map_err(fail(&path))?;
            into.insert(name.to_string_lossy().into_owned(), text);
        }
    }
    Ok(())
}

/// Returns the path without `.rs` of a module that a file declares.
fn child(file: &str, module: &str) -> String {
    let stem = file.strip_suffix(".rs").unwrap_or(file);
    let (folder, name) = stem.rsplit_once('/').unwrap_or(("", stem));
    let within = match name {
        "lib" | "main" | "mod" => folder,
        _ => stem,
    };
    format!("{within}/{module}")
        .trim_start_matches('/')
        .to_owned()
}

/// Reads the files of a crate and finds all mutants of parts of it, with numbers from 1.
pub(crate) fn read(root: &Path, parts: &[Part]) -> Result<Sources, String> {
    let base = root.join("crates").join(parts[0].folder).join("src");
    let mut files = BTreeMap::new();
    walk(&base, &base, &mut files)?;
    let mut found = BTreeMap::new();
    let mut tests = BTreeSet::new();
    for (file, text) in &files {
        let (mutants, modules) = find(text).map_err(|error| format!("{file}: {error}"))?;
        found.insert(file.clone(), mutants);
        tests.extend(modules.iter().map(|module| child(file, module)));
    }
    let is_test = |file: &str| {
        let stem = file.strip_suffix(".rs").unwrap_or(file);
        tests
            .iter()
            .any(|test| stem == test || stem.starts_with(&format!("{test}/")))
    };
    found.retain(|file, _| parts.iter().any(|part| part.has(file)) && !is_test(file));
    let mut number = 0;
    let mutants = found.into_iter().map(|(file, mutants)| {
        let numbered = mutants.into_iter().map(|mutant| {
            number += 1;
            Numbered { number, mutant }
        });
        (file, numbered.collect())
    });
    let mutants = mutants.collect();
    Ok(Sources { files, mutants })
}

/// The copy.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) root: PathBuf,
    /// The folder of the crate with mutants, and its name below `crates`.
    pub(crate) package: PathBuf,
    pub(crate) folder: &'static str,
}

fn link(from: &Path, to: &Path) -> Result<(), String> {
    if fs::symlink_metadata(to).is_ok() {
        if to.is_symlink() {
            return Ok(());
        }
        fs::remove_dir_all(to)
            .or_else(|_| fs::remove_file(to))
            .map_err(fail(to))?;
    }
    symlink(from, to).map_err(fail(to))
}

/// Links all entries of a folder, except some, into another one.
fn link_all(from: &Path, to: &Path, except: &[&str]) -> Result<(), String> {
    if to.is_symlink() {
        fs::remove_file(to).map_err(fail(to))?;
    }
    fs::create_dir_all(to).map_err(fail(to))?;
    for entry in fs::read_dir(from).map_err(fail(from))? {
        let path = entry.map_err(fail(from))?.path();
        let name = path.file_name().expect("an entry has a name").to_owned();
        if !except.iter().any(|it| name == **it) {
            link(&path, &to.join(name))?;
        }
    }
    Ok(())
}

/// Links the files of a folder and of those in it, without Rust's.
fn link_others(from: &Path, to: &Path) -> Result<(), String> {
    fs::create_dir_all(to).map_err(fail(to))?;
    for entry in fs::read_dir(from).map_err(fail(from))? {
        let path = entry.map_err(fail(from))?.path();
        let name = path.file_name().expect("an entry has a name");
        if path.is_dir() {
            link_others(&path, &to.join(name))?;
        } else if path.extension().is_none_or(|extension| extension != "rs") {
            link(&path, &to.join(name))?;
        }
    }
    Ok(())
}

/// Writes a file, unless it has this text: its time decides whether it is compiled anew.
fn write(path: &Path, text: &str) -> Result<(), String> {
    if fs::read_to_string(path).is_ok_and(|before| before == text) {
        return Ok(());
    }
    let folder = path.parent().expect("a file is in a folder");
    fs::create_dir_all(folder).map_err(fail(folder))?;
    fs::write(path, text).map_err(fail(path))
}

impl Tree {
    /// Makes the copy below `target`.
    pub(crate) fn make(root: &Path, target: &Path, folder: &'static str) -> Result<Self, String> {
        let root = root.canonicalize().map_err(fail(root))?;
        let tree = target.join("tree");
        let crates = root.join("crates");
        link_all(&root, &tree, &["crates", "target", ".git"])?;
        link_all(&crates, &tree.join("crates"), &[folder])?;
        let package = tree.join("crates").join(folder);
        let original = crates.join(folder);
        link_all(&original, &package, &["src", "Cargo.toml"])?;
        link_others(&original.join("src"), &package.join("src"))?;
        let manifest = original.join("Cargo.toml");
        let text = fs::read_to_string(&manifest).map_err(fail(&manifest))?;
        // The module that selects a mutant is not safe code.
        write(
            &package.join("Cargo.toml"),
            &text.replace("[lints]\nworkspace = true\n", ""),
        )?;
        Ok(Self {
            root: tree,
            package,
            folder,
        })
    }

    /// Writes the sources with all mutants but those that are `dropped`.
    pub(crate) fn write(
        &self,
        sources: &Sources,
        dropped: &BTreeSet<u32>,
    ) -> Result<BTreeMap<String, Rewritten>, String> {
        let all = sources.mutants.values().flatten();
        let size = all.map(|it| it.number + 1).max().unwrap_or(1);
        let mut files = BTreeMap::new();
        for (file, text) in &sources.files {
            let of_file = sources.mutants.get(file).map_or(&[][..], Vec::as_slice);
            let used = of_file.iter().filter(|it| !dropped.contains(&it.number));
            let mut rewritten = rewrite(text, &used.cloned().collect::<Vec<_>>());
            if file == "lib.rs" {
                rewritten.text += &SOURCE.replace("SIZE", &size.to_string());
            }
            write(&self.package.join("src").join(file), &rewritten.text)?;
            files.insert(file.clone(), rewritten);
        }
        assert!(
            SOURCE.contains(SWITCH),
            "the module has the name that is called"
        );
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::child;

    #[test]
    fn modules_of_the_root_are_beside_it_and_those_of_others_below() {
        assert_eq!(child("lib.rs", "tests"), "tests");
        assert_eq!(child("queue/codel.rs", "tests"), "queue/codel/tests");
        assert_eq!(child("queue/mod.rs", "tests"), "queue/tests");
    }
}
