//! The commit of a program: the one that `make` finds, in a clone and elsewhere.

use std::fs;
use std::path::Path;
use std::process::Command;

fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout)
        .unwrap()
        .trim_end()
        .to_owned()
}

/// Returns the output of `scripts/commit` for the sources in `directory`.
fn commit(directory: &Path) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/commit");
    fs::create_dir_all(directory.join("scripts")).unwrap();
    let copy = directory.join("scripts/commit");
    fs::copy(script, &copy).unwrap();
    // By the shell: a copy that some other test's child still has open for writing cannot be run.
    said(Command::new("sh").arg(copy))
}

fn git(directory: &Path, arguments: &[&str]) -> String {
    let own = ["-c", "user.name=a", "-c", "user.email=a@b"];
    said(
        Command::new("git")
            .current_dir(directory)
            .args(own)
            .args(arguments),
    )
}

#[test]
fn the_commit_is_read_only_from_the_clones_root() {
    let directory = tempfile::tempdir().unwrap();
    let clone = directory.path();
    assert_eq!(commit(clone), "");
    git(clone, &["init", "--quiet"]);
    assert_eq!(commit(clone), "", "there is no commit yet");
    fs::write(clone.join("a"), "1").unwrap();
    git(clone, &["add", "a"]);
    git(clone, &["commit", "--quiet", "--message", "a"]);
    let head = git(clone, &["rev-parse", "--short=12", "HEAD"]);
    assert_eq!(commit(clone), head);
    // What lies in it, as an unpacked tarball, is none of it.
    assert_eq!(commit(&clone.join("unpacked")), "");
    fs::write(clone.join("a"), "2").unwrap();
    assert_eq!(commit(clone), head + "+");
}

#[test]
fn the_version_has_the_commit_where_the_build_knew_it() {
    let version = said(Command::new(env!("CARGO_BIN_EXE_tailbound")).arg("--version"));
    let expected = match option_env!("TAILBOUND_COMMIT") {
        None | Some("") => concat!("tailbound ", env!("CARGO_PKG_VERSION")).to_owned(),
        Some(commit) => format!("tailbound {} ({commit})", env!("CARGO_PKG_VERSION")),
    };
    assert_eq!(version, expected);
}

/// The tests' own build has no commit. The test checks the output of a build with a commit by the
/// lines that read it.
#[test]
fn a_build_with_a_commit_shows_it_in_version_and_results() {
    let directory = tempfile::tempdir().unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/command");
    let main = directory.path().join("main.rs");
    let version = sources.join("version.rs");
    let text = format!(
        "#[path = {version:?}] mod version;\n\
         fn main() {{ println!(\"{{}}|{{:?}}\", version::version(), version::commit()); }}\n"
    );
    fs::write(&main, text).unwrap();
    let program = directory.path().join("said");
    for (commit, expected) in [
        (
            Some("1f2e3d4c5b6a+"),
            "9.9.9 (1f2e3d4c5b6a+)|Some(\"1f2e3d4c5b6a+\")",
        ),
        (Some(""), "9.9.9|None"),
        (None, "9.9.9|None"),
    ] {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let mut build = Command::new(rustc);
        build
            .args(["--edition", "2024", "-o"])
            .args([&program, &main]);
        build.env("CARGO_PKG_VERSION", "9.9.9");
        match commit {
            Some(commit) => build.env("TAILBOUND_COMMIT", commit),
            None => build.env_remove("TAILBOUND_COMMIT"),
        };
        said(&mut build);
        assert_eq!(said(&mut Command::new(&program)), expected);
    }
    // Whatever writes results asks the same.
    for writer in ["experiment.rs", "sim/grid.rs"] {
        let text = fs::read_to_string(sources.join(writer)).unwrap();
        let made = text.matches("Provenance::now(").count();
        assert!(made > 0, "{writer}");
        assert_eq!(
            text.matches("command::commit())").count() + text.matches("super::commit())").count(),
            made,
            "{writer}"
        );
    }
}

/// Every target of make that builds a program for a user passes the commit on.
#[test]
fn make_passes_the_commit_to_every_build() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let commit = commit_of(&root);
    for target in ["build", "stage", "demo", "static", "probe-static"] {
        // In place of its recipe: what the recipe would be given.
        let makefile = format!("include Makefile\n{target}:\n\t@echo said=$$TAILBOUND_COMMIT\n");
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("Makefile");
        fs::write(&file, makefile).unwrap();
        let mut make = Command::new("make");
        make.current_dir(&root).env_remove("TAILBOUND_COMMIT");
        make.env_remove("MAKEFLAGS")
            .arg("--silent")
            .arg("-f")
            .arg(&file)
            .arg(target);
        let said = said(&mut make);
        assert!(
            said.lines().any(|line| line == format!("said={commit}")),
            "{target}: {said}"
        );
    }
}

/// Returns the output of `scripts/commit` in its own directory.
fn commit_of(root: &Path) -> String {
    said(Command::new("sh").arg(root.join("scripts/commit")))
}
