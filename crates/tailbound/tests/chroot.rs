//! The lab and `doctor` in a plain chroot, whose root directory is no mount point.

use std::fs;
use std::process::{Command, Output};
use tailbound_sys::probe::required::{Part, skipped};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tailbound");

/// Makes a chroot of this computer's directories in `$1`, and runs the other arguments in it. It
/// compares the mounts outside of the chroot before and after.
const CHROOT: &str = r#"
set -eu
root=$1
shift
for directory in usr bin sbin lib lib64 etc dev proc sys; do
    [ -e "/$directory" ] || continue
    if [ -L "/$directory" ]; then
        cp -P "/$directory" "$root/"
    else
        mkdir "$root/$directory"
        mount --rbind "/$directory" "$root/$directory"
    fi
done
mkdir -p "$root/run" "$root/var" "$root/work"
mkdir -m 1777 "$root/tmp"
cp "$PROGRAM" "$root/tailbound"
mount --make-rshared /
before=$(cat /proc/self/mountinfo)
code=0
chroot $USERSPEC "$root" /bin/sh -c 'cd /work && exec "$@"' sh "$@" || code=$?
[ "$before" = "$(cat /proc/self/mountinfo)" ] || { echo "mounts outside were changed"; exit 9; }
exit $code
"#;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs a command in a new chroot; `None` if namespaces are not allowed.
fn inside(userspec: &str, command: &[&str]) -> Option<Output> {
    let root = tempfile::tempdir().unwrap();
    // In a network of its own, where no other lab is met.
    let mut enter = vec!["--mount", "--net"];
    if !is_root() {
        enter.extend(["--user", "--map-root-user"]);
    }
    let tried = Command::new("unshare").args(&enter).arg("true").output();
    if !tried.is_ok_and(|it| it.status.success()) {
        skipped(Part::NetworkNamespaces, "namespaces are not allowed");
        return None;
    }
    // Other users enter it, too.
    fs::set_permissions(
        root.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let output = Command::new("unshare")
        .args(&enter)
        .args(["sh", "-c", CHROOT, "sh"])
        .arg(root.path())
        .args(command)
        .env("PROGRAM", PROGRAM)
        .env("USERSPEC", userspec)
        .env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        )
        .output()
        .unwrap();
    Some(output)
}

#[test]
fn the_lab_runs_in_a_plain_chroot() {
    let run = "lab run traps --variants unpatched,patched --duration 300ms --out out";
    let command: Vec<_> = ["/tailbound"].into_iter().chain(run.split(' ')).collect();
    let Some(output) = inside("", &command) else {
        return;
    };
    let printed = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    let verdicts = ["PASS ", "FAIL ", "NOISY ", "NOT TESTED "];
    let is_judged = verdicts.iter().any(|word| printed.starts_with(word));
    assert!(is_judged, "{printed}{said}");
    // The report is in the directory from which it was run.
    assert!(printed.contains("out/traps.html"), "{printed}");
}

#[test]
fn the_doctor_finds_a_plain_chroot_ready() {
    let Some(output) = inside("", &["/tailbound", "doctor", "demo"]) else {
        return;
    };
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    assert!(printed.starts_with("demo   ready"), "{printed}");
}

#[test]
fn an_ordinary_user_in_a_chroot_reads_one_sentence() {
    if !is_root() {
        skipped(
            Part::OrdinaryUser,
            "only root enters a chroot as another user",
        );
        return;
    }
    let nobody = "--userspec=65534:65534";
    let Some(output) = inside(nobody, &["/tailbound", "doctor", "demo"]) else {
        return;
    };
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    let sentence = "inside a chroot the kernel makes no user namespace for an ordinary user";
    assert_eq!(printed.matches(sentence).count(), 1, "{printed}");
    assert_eq!(printed.matches("not tried: ").count(), 1, "{printed}");
}
