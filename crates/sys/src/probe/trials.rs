//! The trials of the table: of namespaces, virtual machines and tools here, of others in a file for each subject.

pub(super) mod bpf;
pub(super) mod network;
pub(super) mod scheduling;

use super::{Remedy, TrialResult, kvm};
use crate::process::find_program;
use crate::procfs;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::{Command, Stdio};

fn root(command: impl Into<String>) -> Remedy {
    Remedy::Root(command.into())
}

fn advice(text: impl Into<String>) -> Remedy {
    Remedy::Advice(text.into())
}

fn text(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The trial runs inside a namespace, so the capability is there.
pub(super) fn network_namespace() -> TrialResult {
    TrialResult::works("made one")
}

/// The same: a process that could not enter a user namespace does not run this.
pub(super) fn user_namespace() -> TrialResult {
    TrialResult::works("made one")
}

/// Returns the reason why an ordinary user could not enter a user namespace, from the switches that
/// kernels and distributions have for it.
pub(super) fn user_namespace_refused(error: String) -> TrialResult {
    let switches = [
        (
            "/proc/sys/user/max_user_namespaces",
            "0",
            "user.max_user_namespaces=10000",
        ),
        (
            "/proc/sys/kernel/unprivileged_userns_clone",
            "0",
            "kernel.unprivileged_userns_clone=1",
        ),
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ];
    let off = switches
        .into_iter()
        .find(|(path, off, _)| text(path).as_deref() == Some(off));
    let remedy = match off {
        Some((_, _, setting)) => root(format!("sysctl -w {setting}")),
        None => advice("run as root; in a container, allow unshare(2) in its seccomp profile"),
    };
    TrialResult::lacks(error, remedy)
}

pub(super) fn steal() -> TrialResult {
    let guest = text("/proc/cpuinfo")
        .is_some_and(|cpus| cpus.split_whitespace().any(|flag| flag == "hypervisor"));
    let stat = text("/proc/stat").unwrap_or_default();
    let stolen: u64 = procfs::parse_steal(&stat)
        .iter()
        .map(|cpu| cpu.total.as_nanos())
        .sum();
    // The first line sums all CPUs: user, nice, system, idle, ... in ticks.
    let ticks: u64 = stat.lines().next().map_or(0, |line| {
        line.split_whitespace()
            .skip(1)
            .take(8)
            .flat_map(str::parse::<u64>)
            .sum()
    });
    let share = 100.0 * stolen as f64 / (ticks.max(1) * procfs::TICK.as_nanos()) as f64;
    match (guest, stolen) {
        (false, _) => TrialResult::works("not a guest: nothing can be stolen"),
        (true, 0) => TrialResult::lacks(
            "a guest without steal time: what its host takes shows as the mechanism's own tail",
            advice("measure on the host itself, or where its hypervisor reports steal"),
        ),
        (true, _) => TrialResult::works(format!("a guest; {share:.2} % stolen since boot")),
    }
}

/// Runs a VM of one instruction.
pub(super) fn kvm() -> TrialResult {
    machine_run(kvm::halt())
}

fn machine_run(result: io::Result<()>) -> TrialResult {
    match result {
        Ok(()) => TrialResult::works("ran a machine of one instruction"),
        Err(error) if error.kind() == ErrorKind::NotFound => TrialResult::lacks(
            "/dev/kvm is not there",
            advice(
                "switch virtualization on in the firmware, or nested virtualization in the host",
            ),
        ),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => TrialResult::lacks(
            format!("/dev/kvm: {error}"),
            root("usermod -aG kvm $(id -un); newgrp kvm"),
        ),
        Err(error) => TrialResult::lacks(
            format!("/dev/kvm is there, but no machine runs: {error}"),
            advice("use a host whose KVM works; QEMU's emulation does without"),
        ),
    }
}

pub(super) fn cpus() -> TrialResult {
    match std::thread::available_parallelism().map_or(1, usize::from) {
        1 => TrialResult::lacks("1", advice("use a machine with 2 CPUs or more")),
        count => TrialResult::works(count.to_string()),
    }
}

pub(super) fn tool(name: &str, package: &str) -> TrialResult {
    match find_program(name) {
        Some(path) => TrialResult::works(path.display().to_string()),
        None => TrialResult::lacks(format!("{name} is not installed"), install(package)),
    }
}

fn install(package: &str) -> Remedy {
    let managers = [
        ("apt-get", "apt-get install -y"),
        ("dnf", "dnf install -y"),
        ("zypper", "zypper install -y"),
        ("pacman", "pacman -S --noconfirm"),
        ("apk", "apk add"),
    ];
    match managers
        .iter()
        .find(|(program, _)| find_program(program).is_some())
    {
        Some((_, command)) => root(format!("{command} {package}")),
        None => advice(format!("install the package {package}")),
    }
}

/// Returns the remedy for a missing part of the kernel: its module, if this kernel has modules.
fn module_or_kernel(module: &str, option: &str) -> Remedy {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    if Path::new("/lib/modules").join(release).exists() {
        root(format!("modprobe {module}"))
    } else {
        advice(format!("use a kernel with CONFIG_{option}"))
    }
}

/// Reason why a program of iproute2 failed.
enum CommandError {
    /// The program is missing.
    Missing(String),
    /// The program's error message.
    Failed(String),
}

impl CommandError {
    /// Returns the outcome: the missing program, or else `remedy`.
    fn lacks(self, remedy: Remedy) -> TrialResult {
        match self {
            Self::Missing(program) => {
                TrialResult::lacks(format!("{program} is not installed"), install("iproute2"))
            }
            Self::Failed(said) => TrialResult::lacks(said, remedy),
        }
    }
}

/// Runs `program`, one of iproute2's, with `arguments`, which are split at spaces. The error has
/// the first line of its output.
fn command(program: &str, arguments: &str) -> Result<(), CommandError> {
    use CommandError::{Failed, Missing};
    let path = find_program(program).ok_or_else(|| Missing(program.to_owned()))?;
    let output = Command::new(path)
        .args(arguments.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .map_err(|error: io::Error| Failed(format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().next().unwrap_or("failed without a word");
    Err(Failed(format!("{program}: {line}")))
}

#[cfg(test)]
mod tests;
