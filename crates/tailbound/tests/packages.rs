//! The contents of packages: the lists in packaging/files.toml, and Debian's maintainer scripts.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use toml::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file of a package: where it comes from below the repository, and where it goes.
type File = (String, String, String);

/// The files of the packages `tailbound` and `tailbound-lab`.
fn packages() -> [BTreeSet<File>; 2] {
    let lists = fs::read_to_string(root().join("packaging/files.toml")).unwrap();
    let lists: Value = lists.parse::<toml::Table>().unwrap().into();
    assert_eq!(lists.as_table().unwrap().len(), 2);
    ["tailbound", "tailbound-lab"].map(|package| {
        let files = lists[package].as_array().unwrap().iter();
        let files = files.map(|file| {
            let text = |index: usize| file[index].as_str().unwrap();
            let to = format!("/{}", text(1));
            (text(0).to_owned(), to, text(2).to_owned())
        });
        files.collect()
    })
}

#[test]
fn an_unwritable_prefix_is_reported_with_a_remedy() {
    let install = root().join("scripts/install");
    let output = Command::new(install).arg("/proc/nowhere").output();
    let output = output.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(
        said.starts_with("scripts/install: cannot write to /proc/nowhere/"),
        "{said}"
    );
    assert!(
        said.ends_with("make install PREFIX=$HOME/.local\n"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn packages_are_made_of_files_that_are_there() {
    for (source, to, mode) in packages().into_iter().flatten() {
        assert!(to.ends_with('/'), "{to} is a directory");
        // `make deb` checks the files that `scripts/stage` makes.
        let is_program = if source.starts_with("target/package/") {
            source.starts_with("target/package/tailbound")
        } else {
            let file = fs::metadata(root().join(&source)).expect(&source);
            file.permissions().mode() & 0o111 != 0
        };
        assert_eq!(mode == "755", is_program, "{source}");
    }
}

#[test]
fn no_two_packages_share_a_file() {
    let [main, lab] = packages().map(|files| -> BTreeSet<_> {
        let files = files.into_iter();
        files.map(|(source, to, _)| to + &source).collect()
    });
    assert!(main.is_disjoint(&lab));
}

#[test]
fn maintainer_scripts_handle_each_packaged_unit() {
    let [main, lab] = packages();
    let unit = |file: &File| {
        let is_unit = file.1 == "/usr/lib/systemd/system/";
        is_unit.then(|| file.0.rsplit_once('/').unwrap().1.to_owned())
    };
    let units: BTreeSet<_> = main.iter().filter_map(unit).collect();
    assert!(!units.is_empty());
    assert_eq!(lab.iter().find_map(unit), None);
    for script in ["postinst", "prerm", "postrm"] {
        let path = root().join(format!("packaging/debian/tailbound.{script}"));
        let text = fs::read_to_string(path).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("units=\""));
        let named = line.unwrap().trim_end_matches('"').split(' ');
        let named: BTreeSet<_> = named.map(str::to_owned).collect();
        assert_eq!(named, units, "{script}");
    }
}

#[test]
fn each_launcher_is_packaged_with_its_imports() {
    let [files, _] = packages();
    let to = "/usr/share/tailbound/launchers/";
    let packaged: BTreeSet<_> = files
        .iter()
        .filter(|file| file.1 == to)
        .map(|file| file.0.rsplit_once('/').unwrap().1.to_owned())
        .collect();
    let there = fs::read_dir(root().join("contrib/launchers")).unwrap();
    let names = there.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    // What is left is tests of them, and what Python compiled.
    let launchers = names.filter(|name| !name.starts_with("try-") && !name.starts_with("__"));
    assert_eq!(packaged, launchers.collect());
}

#[test]
fn each_unit_is_packaged_and_its_default_configuration_is_valid() {
    let [files, _] = packages();
    let sources: BTreeSet<_> = files.into_iter().map(|it| it.0).collect();
    for entry in fs::read_dir(root().join("contrib")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".service") {
            assert!(sources.contains(&format!("contrib/{name}")), "{name}");
        }
    }
    let default = root().join("packaging/etc/host.toml");
    let example = fs::read_to_string(&default).unwrap();
    // Comments are sentences; what is to be uncommented has no space behind the sign.
    let uncommented: String = example
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(line) if !line.is_empty() && !line.starts_with(' ') => format!("{line}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let directory = tempfile::tempdir().unwrap();
    let whole = directory.path().join("host.toml");
    fs::write(&whole, uncommented).unwrap();
    for file in [&default, &whole] {
        let output = Command::new(env!("CARGO_BIN_EXE_tailbound"))
            .args(["check-config", "--without-added"])
            .arg(file)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
}

#[test]
fn the_package_has_the_version_of_the_program() {
    let changelog = fs::read_to_string(root().join("packaging/debian/changelog")).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let first = format!("tailbound ({version}-1) ");
    assert!(changelog.starts_with(&first), "{changelog}");
}

#[test]
fn completions_are_scripts_that_complete() {
    let directory = tempfile::tempdir().unwrap();
    let completions = |shell: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_tailbound"))
            .args(["completions", shell])
            .output()
            .unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let script = directory.path().join("tailbound");
    fs::write(&script, completions("bash")).unwrap();
    let asked = "COMP_WORDS=(tailbound place rel); COMP_CWORD=2; \
                 _tailbound tailbound rel place; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let output = Command::new("bash")
        .args(["--norc", "-c", &format!("source \"$0\"; {asked}")])
        .arg(&script)
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "relocate\n",
        "{output:?}"
    );
    assert!(completions("zsh").starts_with("#compdef tailbound\n"));
    assert!(completions("fish").contains("complete -c tailbound"));
}
