//! Namespaces for tests that adopt guests, and commands in them.

use std::path::Path;
use std::process::Command;
use tailbound_sys::probe::required::{Part, skipped};

const INSIDE: &str = "TAILBOUND_TEST_INSIDE";

/// Runs a test in a network and a mount namespace of its own.
pub(crate) fn sandboxed(name: &str, test: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return test();
    }
    if !rustix::process::geteuid().is_root() {
        return skipped(Part::BpfEdge, name);
    }
    let output = Command::new("unshare")
        .args(["--net", "--mount", "--kill-child"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    for line in printed.lines().filter(|it| it.starts_with("skipped: ")) {
        eprintln!("{line}");
    }
    assert!(output.status.success(), "{printed}");
}

/// Mounts a BPF file system in a new directory of `directory`; false if this computer has none.
pub(crate) fn mount_bpf(directory: &Path, test: &str) -> bool {
    let bpf = directory.join("bpf");
    std::fs::create_dir(&bpf).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "bpf", "bpf"])
        .arg(&bpf)
        .status();
    let is_mounted = mounted.is_ok_and(|status| status.success());
    if !is_mounted {
        skipped(Part::BpfEdge, test);
    }
    is_mounted
}

/// Prepares the namespaces: names are the test's own, and devices choose no addresses by themselves.
pub(crate) fn isolate() {
    run("mount -t tmpfs tmpfs /run");
    for which in ["all", "default"] {
        let file = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
        let _ = std::fs::write(file, "1");
    }
    run("ip link set lo up");
}

/// Runs a command that has to succeed.
pub(crate) fn run(line: &str) -> String {
    let words: Vec<_> = line.split(' ').collect();
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {text}{errors}");
    text
}

/// Returns a list without the timers of a bridge and its ports, which run.
pub(crate) fn without_timers(list: &str) -> String {
    let mut kept = Vec::new();
    let mut words = list.split(' ').filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        kept.push(word);
        if word.ends_with("_timer") {
            words.next();
        }
    }
    kept.join(" ")
}

/// Returns the number of replies, and of duplicates.
pub(crate) fn ping(from: &str, to: &str, more: &str) -> (usize, usize) {
    let line = format!("netns exec {from} ping -n -c 3 -i 0.2 -W 1 {more} {to}");
    let words = line.split_ascii_whitespace();
    let output = Command::new("ip").args(words).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let duplicates = text.matches("DUP!").count();
    (text.matches("bytes from").count() - duplicates, duplicates)
}
