//! Which commit a program is of: what make finds, in a clone and elsewhere.

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

/// What `scripts/commit` says of sources in `directory`.
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
fn the_commit_is_that_of_a_clone_and_of_nothing_around_it() {
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
