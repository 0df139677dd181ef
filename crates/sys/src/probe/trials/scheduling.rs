//! Trials of scheduling classes, control groups and their accounts.

use super::{advice, root, text};
use crate::probe::TrialResult;
use crate::{real_time, sched};
use rustix::thread::CapabilitySet;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;
use tailbound_units::Nanos;

/// Remedy for a missing permission to set the class of others' threads.
pub(super) const RAISE: &str = "run as root, or in a service with AmbientCapabilities=CAP_SYS_NICE";

/// Returns true if this process may set the class of others' threads.
fn may_raise() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_NICE))
}

pub(in crate::probe) fn real_time_loop() -> TrialResult {
    let trial = std::thread::spawn(real_time::try_it).join();
    match trial.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
        Ok(()) => TrialResult::works("gave a thread SCHED_FIFO 1"),
        Err(error) => TrialResult::lacks(
            error.to_string(),
            advice("LimitRTPRIO=1 and RestrictRealtime=no in the unit, or ulimit -r 1"),
        ),
    }
}

pub(in crate::probe) fn sched_deadline() -> TrialResult {
    let reservation = sched::Deadline {
        runtime: Nanos::from_micros(500),
        deadline: Nanos::from_millis(3),
        period: Nanos::from_millis(3),
    };
    let Err(error) = sched::probe(sched::Policy::Deadline(reservation)) else {
        return TrialResult::works("gave a thread 0.5 ms in 3 ms");
    };
    match rustix::io::Errno::from_io_error(&error) {
        Some(rustix::io::Errno::PERM) if !may_raise() => {
            TrialResult::lacks("EPERM: this process has no CAP_SYS_NICE", advice(RAISE))
        }
        Some(rustix::io::Errno::PERM) => TrialResult::lacks(
            "EPERM in spite of CAP_SYS_NICE: the CPU mask does not cover the root domain, \
             or real time has no budget",
            advice(
                "run outside of taskset and cpusets; sysctl -w kernel.sched_rt_runtime_us=950000",
            ),
        ),
        Some(rustix::io::Errno::BUSY) => TrialResult::lacks(
            "EBUSY: other deadlines have taken the bandwidth",
            advice("end them: ps -eLo pid,tid,cls,comm | grep DLN"),
        ),
        _ => TrialResult::lacks(error.to_string(), advice("use Linux >= 3.14")),
    }
}

pub(in crate::probe) fn custom_slice() -> TrialResult {
    // Unlike every kernel's default.
    let slice = Nanos::from_micros(300);
    slice_given(slice, sched::probe_slice(slice), may_raise())
}

pub(super) fn slice_given(asked: Nanos, seen: io::Result<Nanos>, may_raise: bool) -> TrialResult {
    let old = || advice("use Linux >= 6.12");
    match seen {
        // A process may set the slice of its own thread; guests' threads belong to other users.
        Ok(seen) if seen == asked && !may_raise => TrialResult::lacks(
            format!("{asked} read back, but this process has no CAP_SYS_NICE for others' threads"),
            advice(RAISE),
        ),
        Ok(seen) if seen == asked => TrialResult::works(format!("{asked} read back")),
        Ok(seen) => TrialResult::lacks(format!("asked for {asked}, {seen} read back"), old()),
        Err(error) => TrialResult::lacks(error.to_string(), old()),
    }
}

pub(in crate::probe) fn schedstat() -> TrialResult {
    let seen = text("/proc/self/schedstat").and_then(|text| crate::thread::parse_schedstat(&text));
    match seen {
        // A process that runs was given a CPU.
        Some(seen) if seen.count > 0 => TrialResult::works(format!("{} waited so far", seen.wait)),
        Some(_) => TrialResult::lacks(
            "/proc/self/schedstat stays at zero",
            advice("use a kernel with CONFIG_SCHED_INFO"),
        ),
        None => TrialResult::lacks(
            "/proc/self/schedstat is not there",
            advice("use a kernel with CONFIG_SCHED_INFO"),
        ),
    }
}

pub(in crate::probe) fn cpu_weight() -> TrialResult {
    let groups = text("/proc/self/cgroup").unwrap_or_default();
    let mounts = crate::cgroup::Mounts::read(&crate::root::Root::default()).unwrap_or_default();
    match mounts.directory(&crate::cgroup::parse_groups(&groups), "cpu") {
        Some((at, true)) => TrialResult::works(format!("cpu.weight (cgroup v2), {}", at.display())),
        Some((at, false)) => {
            TrialResult::works(format!("cpu.shares (cgroup v1), {}", at.display()))
        }
        None => TrialResult::lacks(
            "this process is in no group with the cpu controller",
            advice("echo +cpu > /sys/fs/cgroup/cgroup.subtree_control, or start it by systemd"),
        ),
    }
}

pub(in crate::probe) fn autogroup() -> TrialResult {
    match text("/proc/sys/kernel/sched_autogroup_enabled").as_deref() {
        Some("1") => TrialResult::lacks(
            "autogroups are on: a nice value counts only within its session",
            root("sysctl -w kernel.sched_autogroup_enabled=0"),
        ),
        _ => TrialResult::works("nice values count for the whole machine"),
    }
}

pub(in crate::probe) fn cpuset() -> TrialResult {
    // Each line: device, mount point, type, options.
    let mounts = text("/proc/self/mounts").unwrap_or_default();
    let unified = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (_, at, kind) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| at.to_owned())
    });
    let boot = advice("boot with systemd.unified_cgroup_hierarchy=1 and without cgroup v1");
    let Some(at) = unified else {
        return TrialResult::lacks("no cgroup v2 is mounted", boot);
    };
    let controllers = text(&format!("{at}/cgroup.controllers")).unwrap_or_default();
    if controllers.split(' ').any(|name| name == "cpuset") {
        TrialResult::works(format!("cgroup v2 at {at}"))
    } else {
        TrialResult::lacks(format!("cgroup v2 at {at} has no cpuset controller"), boot)
    }
}

pub(in crate::probe) fn rt_group_sched() -> TrialResult {
    let budget = [
        "/sys/fs/cgroup/cpu/cpu.rt_runtime_us",
        "/sys/fs/cgroup/cpu,cpuacct/cpu.rt_runtime_us",
    ];
    if let Some(path) = budget.into_iter().find(|path| Path::new(path).exists()) {
        return TrialResult::lacks(
            format!(
                "RT_GROUP_SCHED is on: {path}; SCHED_FIFO in a cgroup without a budget fails with EPERM"
            ),
            advice(
                "boot with rt_group_sched=0 where the kernel knows it, or use one without CONFIG_RT_GROUP_SCHED",
            ),
        );
    }
    match kernel_config() {
        Some(config) if config.contains("CONFIG_RT_GROUP_SCHED=y") => TrialResult::lacks(
            "the kernel has RT_GROUP_SCHED: with cgroup v2, real-time threads must stay in the root group",
            advice(
                "boot with rt_group_sched=0 where the kernel knows it, or use one without CONFIG_RT_GROUP_SCHED",
            ),
        ),
        Some(_) => TrialResult::works("the kernel has no RT_GROUP_SCHED"),
        None => TrialResult::works(
            "no budget files seen, and the kernel's configuration cannot be read",
        ),
    }
}

pub(in crate::probe) fn sched_ext() -> TrialResult {
    match text("/sys/kernel/sched_ext/state") {
        Some(state) => TrialResult::works(format!("the kernel has it, {}", state.trim())),
        None => TrialResult::lacks(
            "/sys/kernel/sched_ext is not there",
            advice("nothing to do: no class needs it"),
        ),
    }
}

pub(in crate::probe) fn group_reservations() -> TrialResult {
    let groups = text("/proc/self/cgroup").unwrap_or_default();
    let mounts = crate::cgroup::Mounts::read(&crate::root::Root::default()).unwrap_or_default();
    let of = mounts.directory(&crate::cgroup::parse_groups(&groups), "cpu");
    let file = of.map(|(group, _)| group.join("cpu.rt.max"));
    match file.filter(|file| file.exists()) {
        Some(file) => TrialResult::works(format!("the kernel has it, {}", file.display())),
        None => TrialResult::lacks(
            "this process's control group has no cpu.rt.max",
            advice("nothing to do: no class needs it"),
        ),
    }
}

/// Returns true if the kernel times interrupts (`CONFIG_IRQ_TIME_ACCOUNTING`). A kernel that does
/// not, or whose configuration is unknown, samples them at its ticks.
#[must_use]
pub fn times_interrupts() -> bool {
    kernel_config().is_some_and(|config| config.contains("CONFIG_IRQ_TIME_ACCOUNTING=y"))
}

/// Returns the configuration that this kernel was built with: from the kernel itself, or else from
/// its package.
pub(super) fn kernel_config() -> Option<String> {
    /// Longest kernel configuration that is read, in bytes; a typical one has 300 KB.
    const MAX_CONFIG_BYTES: u64 = 4 << 20;
    let own = fs::File::open("/proc/config.gz").and_then(|file| {
        let mut config = String::new();
        let unpacked = flate2::read::GzDecoder::new(file);
        unpacked
            .take(MAX_CONFIG_BYTES)
            .read_to_string(&mut config)?;
        Ok(config)
    });
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    own.ok()
        .or_else(|| text(&format!("/boot/config-{release}")))
}
