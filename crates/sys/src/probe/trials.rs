//! The trials of the table, in its order.

use super::{Mend, Outcome, kvm};
use crate::process::find_program;
use crate::steering;
use crate::veth::{OtherEnd, other_end};
use crate::{packet, procfs, real_time, sched, tap, xdp};
use rustix::thread::CapabilitySet;
use std::fs;
use std::io::{self, ErrorKind, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};
use tailbound_units::Nanos;

fn root(command: impl Into<String>) -> Mend {
    Mend::Root(command.into())
}

fn advice(text: impl Into<String>) -> Mend {
    Mend::Advice(text.into())
}

fn text(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The trial runs inside a namespace, so the capability is there.
pub(super) fn network_namespace() -> Outcome {
    Outcome::works("made one")
}

/// The same: a process that could not enter a user namespace does not run this.
pub(super) fn user_namespace() -> Outcome {
    Outcome::works("made one")
}

/// Returns the reason why an ordinary user could not enter a user namespace, from the switches that
/// kernels and distributions have for it.
pub(super) fn user_namespace_refused(error: String) -> Outcome {
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
    let mend = match off {
        Some((_, _, setting)) => root(format!("sysctl -w {setting}")),
        None => advice("run as root; in a container, allow unshare(2) in its seccomp profile"),
    };
    Outcome::lacks(error, mend)
}

pub(super) fn tap() -> Outcome {
    let driver = "/dev/net/tun";
    let opened = fs::OpenOptions::new().read(true).write(true).open(driver);
    if let Err(error) = opened {
        let mend = match error.kind() {
            ErrorKind::NotFound => root("modprobe tun"),
            _ => root(format!("chmod 0666 {driver}")),
        };
        return Outcome::lacks(format!("{driver}: {error}"), mend);
    }
    match tap::Tap::open("tbprobe0", None) {
        Ok(_) => Outcome::works("made one with checksum and TSO offload"),
        Err(error) => Outcome::lacks(error.to_string(), module_or_kernel("tun", "TUN")),
    }
}

pub(super) fn packet() -> Outcome {
    // A packet socket wants an interface that is up.
    if let Err(error) = command("ip", "link set lo up") {
        return error.lacks(advice("run as root, or where user namespaces are allowed"));
    }
    match packet::Socket::open("lo", None) {
        Ok(_) => Outcome::works("opened one with PACKET_VNET_HDR"),
        Err(error) => Outcome::lacks(
            error.to_string(),
            advice("run as root, or where user namespaces are allowed"),
        ),
    }
}

pub(super) fn veth() -> Outcome {
    link("veth", "link add tbprobe1 type veth peer name tbprobe2")
}

/// Lists the veths whose other ends leave the segmentation of tunnels to this one, as far as these
/// ends can be seen.
pub(super) fn tunnels() -> Outcome {
    let interfaces = fs::read_dir("/sys/class/net").into_iter().flatten();
    let names = interfaces
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let ends = names.filter_map(|name| Some((other_end(&name, None).ok()?, name)));
    let (mut veths, mut leave, mut unseen) = (0, Vec::new(), 0);
    for (end, name) in ends {
        match end {
            OtherEnd::None => continue,
            OtherEnd::Cuts => {}
            OtherEnd::Unseen { .. } => unseen += 1,
            OtherEnd::Leaves(place) => leave.push((name, place.command())),
        }
        veths += 1;
    }
    let seen = format!("of {veths} veths here {unseen} have their other end out of sight");
    match leave.first() {
        None => Outcome::works(format!("{seen}, no other leaves tunnels to be cut")),
        Some((name, command)) => Outcome::lacks(
            format!(
                "{seen}; {} leave tunnels to be cut, {name} among them, which the host daemon \
                 switches off where it opens them",
                leave.len()
            ),
            Mend::Root(command.clone()),
        ),
    }
}

/// Tries to move the receive work of a veth's other end to another CPU.
pub(super) fn receive_steering() -> Outcome {
    let cpus = match steering::receivers(None) {
        Ok(Some(cpus)) => cpus,
        Ok(None) => {
            return Outcome::lacks(
                "there is one CPU, on which the packet loop runs",
                advice("add a second CPU to the host"),
            );
        }
        Err(error) => return Outcome::lacks(error.to_string(), advice("mount sysfs at /sys")),
    };
    match steering::probe() {
        Ok(()) => Outcome::works(format!("wrote to rps_cpus; guests would receive on {cpus}")),
        Err(error) => Outcome::lacks(
            format!("a sysfs of its own: {error}"),
            advice("run as root, on a kernel with CONFIG_RPS"),
        ),
    }
}

pub(super) fn bridge() -> Outcome {
    link("bridge", "link add tbprobe3 type bridge")
}

fn link(module: &str, arguments: &str) -> Outcome {
    match command("ip", arguments) {
        Ok(()) => Outcome::works("made one"),
        Err(error) => error.lacks(module_or_kernel(module, &module.to_uppercase())),
    }
}

pub(super) fn htb() -> Outcome {
    qdisc("htb", "")
}

/// Classifies by DSCP, as the lab's switch does.
pub(super) fn u32_filter() -> Outcome {
    let steps = [
        "qdisc replace dev lo root handle 1: htb",
        "class replace dev lo parent 1: classid 1:1 htb rate 1mbit",
        "filter replace dev lo parent 1: protocol ip prio 1 u32 match ip dsfield 0xb8 0xfc flowid 1:1",
    ];
    match steps.iter().try_for_each(|step| command("tc", step)) {
        Ok(()) => Outcome::works("set one up"),
        Err(error) => error.lacks(module_or_kernel("cls_u32", "NET_CLS_U32")),
    }
}

pub(super) fn tbf() -> Outcome {
    qdisc("tbf", "rate 1mbit burst 32k latency 50ms")
}

pub(super) fn fq_codel() -> Outcome {
    qdisc("fq_codel", "")
}

pub(super) fn cake() -> Outcome {
    qdisc("cake", "bandwidth 1mbit")
}

pub(super) fn fq() -> Outcome {
    qdisc("fq", "maxrate 1mbit")
}

fn qdisc(kind: &str, arguments: &str) -> Outcome {
    match command(
        "tc",
        &format!("qdisc replace dev lo root {kind} {arguments}"),
    ) {
        Ok(()) => Outcome::works("set one up"),
        Err(error) => error.lacks(module_or_kernel(
            &format!("sch_{kind}"),
            &format!("NET_SCH_{}", kind.to_uppercase()),
        )),
    }
}

/// Opens sockets on a veth as an uplink would, in the fastest mode.
pub(super) fn af_xdp() -> Outcome {
    let steps = [
        "link add tbprobe4 type veth peer name tbprobe5",
        "link set tbprobe4 up",
        "link set tbprobe5 up",
    ];
    if let Err(error) = steps.iter().try_for_each(|step| command("ip", step)) {
        return error.lacks(module_or_kernel("veth", "VETH"));
    }
    match xdp::Xdp::open("tbprobe4", None, xdp::AttachPreference::Any, None) {
        Ok(opened) => {
            let wakes = if opened.queues.iter().all(xdp::Queue::tells_when_to_wake) {
                "the kernel flags when it must be woken"
            } else {
                "the kernel is woken each time, it has no need-wakeup"
            };
            Outcome::works(format!("on a veth: {}; {wakes}", opened.mode))
        }
        Err(xdp::XdpError::NoXdp) => Outcome::lacks(
            "the kernel has no AF_XDP",
            advice("use a kernel with CONFIG_XDP_SOCKETS"),
        ),
        Err(error) => Outcome::lacks(error.to_string(), advice("run as root")),
    }
}

pub(super) fn zero_copy() -> Outcome {
    by_driver("zero-copy", |features| features.zero_copy)
}

pub(super) fn launch_time() -> Outcome {
    by_driver("launch times", |features| features.launch_time)
}

/// Lists this computer's interfaces by their drivers' support of a feature.
fn by_driver(feature: &str, has: fn(&xdp::Features) -> bool) -> Outcome {
    let table = text("/proc/thread-self/net/dev").unwrap_or_default();
    // Two lines of headings, then `NAME: counters`.
    let names = table
        .lines()
        .skip(2)
        .filter_map(|line| line.split_once(':'));
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for name in names
        .map(|(name, _)| name.trim())
        .filter(|name| *name != "lo")
    {
        match xdp::Features::of(name, None) {
            Ok(features) if has(&features) => with.push(name),
            Ok(_) => without.push(name),
            Err(error) => {
                return Outcome::lacks(
                    format!("{name}: drivers cannot be asked ({error})"),
                    advice("use Linux >= 6.3"),
                );
            }
        }
    }
    if with.is_empty() {
        let whose = if without.is_empty() {
            "there is no interface here".to_owned()
        } else {
            format!("no driver has {feature}: {}", without.join(", "))
        };
        return Outcome::lacks(whose, advice("use a NIC whose driver has it"));
    }
    Outcome::works(with.join(", "))
}

/// Remedy for a missing permission to set the class of others' threads.
const RAISE: &str = "run as root, or in a service with AmbientCapabilities=CAP_SYS_NICE";

/// Returns true if this process may set the class of others' threads.
fn may_raise() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_NICE))
}

pub(super) fn real_time_loop() -> Outcome {
    let trial = std::thread::spawn(real_time::try_it).join();
    match trial.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
        Ok(()) => Outcome::works("gave a thread SCHED_FIFO 1"),
        Err(error) => Outcome::lacks(
            error.to_string(),
            advice("LimitRTPRIO=1 and RestrictRealtime=no in the unit, or ulimit -r 1"),
        ),
    }
}

pub(super) fn sched_deadline() -> Outcome {
    let reservation = sched::Deadline {
        runtime: Nanos::from_micros(500),
        deadline: Nanos::from_millis(3),
        period: Nanos::from_millis(3),
    };
    let Err(error) = sched::probe(sched::Policy::Deadline(reservation)) else {
        return Outcome::works("gave a thread 0.5 ms in 3 ms");
    };
    match rustix::io::Errno::from_io_error(&error) {
        Some(rustix::io::Errno::PERM) if !may_raise() => {
            Outcome::lacks("EPERM: this process has no CAP_SYS_NICE", advice(RAISE))
        }
        Some(rustix::io::Errno::PERM) => Outcome::lacks(
            "EPERM in spite of CAP_SYS_NICE: the CPU mask does not cover the root domain, \
             or real time has no budget",
            advice(
                "run outside of taskset and cpusets; sysctl -w kernel.sched_rt_runtime_us=950000",
            ),
        ),
        Some(rustix::io::Errno::BUSY) => Outcome::lacks(
            "EBUSY: other deadlines have taken the bandwidth",
            advice("end them: ps -eLo pid,tid,cls,comm | grep DLN"),
        ),
        _ => Outcome::lacks(error.to_string(), advice("use Linux >= 3.14")),
    }
}

pub(super) fn custom_slice() -> Outcome {
    // Unlike every kernel's default.
    let slice = Nanos::from_micros(300);
    slice_given(slice, sched::probe_slice(slice), may_raise())
}

fn slice_given(asked: Nanos, seen: io::Result<Nanos>, may_raise: bool) -> Outcome {
    let old = || advice("use Linux >= 6.12");
    match seen {
        // A thread of one's own may have a slice; guests' threads are somebody else's.
        Ok(seen) if seen == asked && !may_raise => Outcome::lacks(
            format!("{asked} read back, but this process has no CAP_SYS_NICE for others' threads"),
            advice(RAISE),
        ),
        Ok(seen) if seen == asked => Outcome::works(format!("{asked} read back")),
        Ok(seen) => Outcome::lacks(format!("asked for {asked}, {seen} read back"), old()),
        Err(error) => Outcome::lacks(error.to_string(), old()),
    }
}

pub(super) fn schedstat() -> Outcome {
    let seen = text("/proc/self/schedstat").and_then(|text| crate::thread::parse_schedstat(&text));
    match seen {
        // A process that runs was given a CPU.
        Some(seen) if seen.count > 0 => Outcome::works(format!("{} waited so far", seen.wait)),
        Some(_) => Outcome::lacks(
            "/proc/self/schedstat stays at zero",
            advice("use a kernel with CONFIG_SCHED_INFO"),
        ),
        None => Outcome::lacks(
            "/proc/self/schedstat is not there",
            advice("use a kernel with CONFIG_SCHED_INFO"),
        ),
    }
}

/// Loads the program that measures waits, and unloads it.
#[cfg(feature = "waits")]
pub(super) fn bpf_waits() -> Outcome {
    use crate::waits::{Tracer, WaitsError};
    match Tracer::try_load() {
        Ok(tracer) => Outcome::works(format!("loaded; {}", tracer.way())),
        Err(WaitsError::Load(error)) => no_bpf(&error),
        Err(WaitsError::Io(error)) => no_bpf(&refused(&error)),
    }
}

#[cfg(not(feature = "waits"))]
pub(super) fn bpf_waits() -> Outcome {
    not_built()
}

/// Loads the program that measures packets, and unloads it.
#[cfg(feature = "packets")]
pub(super) fn bpf_packets() -> Outcome {
    use crate::packets::{PacketsError, Tracer};
    match Tracer::try_load() {
        Ok(tracer) if tracer.missing().is_empty() => Outcome::works("loaded"),
        Ok(tracer) => Outcome::works(format!("loaded without {}", tracer.missing().join("; "))),
        Err(PacketsError::Load(error)) => no_bpf(&error),
        Err(error) => no_bpf(&refused(&error)),
    }
}

#[cfg(not(feature = "packets"))]
pub(super) fn bpf_packets() -> Outcome {
    not_built()
}

#[cfg(any(not(feature = "waits"), not(feature = "packets")))]
fn not_built() -> Outcome {
    Outcome::lacks(
        "this program was built without it",
        advice("use tailbound as it is shipped"),
    )
}

#[cfg(any(feature = "waits", feature = "packets"))]
fn refused(error: &dyn std::error::Error) -> crate::bpf_program::LoadError {
    crate::bpf_program::LoadError::Refused(error.to_string())
}

/// Returns the outcome if a BPF program cannot be loaded.
#[cfg(any(feature = "waits", feature = "packets"))]
fn no_bpf(error: &crate::bpf_program::LoadError) -> Outcome {
    use crate::bpf_program::LoadError;
    let locked = text("/sys/kernel/security/lockdown").unwrap_or_default();
    let mend = match &error {
        LoadError::NotPermitted if locked.contains("[confidentiality]") => {
            "start the kernel with lockdown=integrity: with confidentiality no program may read it"
        }
        LoadError::NotPermitted => {
            "run as root, or with AmbientCapabilities=CAP_BPF CAP_PERFMON; not in a container's \
             user namespace"
        }
        LoadError::NoBtf(_) => "use a kernel with CONFIG_DEBUG_INFO_BTF",
        LoadError::Refused(_) => {
            "use Linux 6.1 or later; if this is one, report its `uname -r` and these words"
        }
    };
    Outcome::lacks(error.to_string(), advice(mend))
}

/// Looks for the kernel's types and the capabilities. No program is loaded: that takes a second.
pub(super) fn bpf_edge() -> Outcome {
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Outcome::lacks(
            "the kernel has no BTF",
            advice("use a kernel with CONFIG_DEBUG_INFO_BTF"),
        );
    }
    let wanted = CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::NET_ADMIN;
    let own = rustix::thread::capabilities(None).map(|own| own.effective);
    match own {
        Ok(own) if own.contains(wanted) => Outcome::works("BTF, and the capabilities"),
        _ => Outcome::lacks(
            "this process lacks CAP_BPF, CAP_PERFMON or CAP_NET_ADMIN",
            advice("run as root of the host"),
        ),
    }
}

/// Looks whether a BPF file system is mounted.
pub(super) fn bpf_fs() -> Outcome {
    const PATH: &str = "/sys/fs/bpf";
    const MAGIC: u64 = 0xcafe_4a11;
    let found = rustix::fs::statfs(PATH).map(|it| it.f_type as u64 & 0xffff_ffff);
    if found == Ok(MAGIC) {
        return Outcome::works(format!("mounted at {PATH}"));
    }
    let mend = root(format!("mount -t bpf bpf {PATH}"));
    Outcome::lacks(format!("none is mounted at {PATH}"), mend)
}

/// Queries the programs of the loopback's ingress.
pub(super) fn tcx() -> Outcome {
    const LOOPBACK: u32 = 1;
    match crate::bpf::count_attached(LOOPBACK, crate::bpf::TCX_INGRESS) {
        Ok(_) => Outcome::works("the programs of the loopback can be queried"),
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Outcome::lacks(
            "not allowed to query the programs of an interface",
            advice("run as root of the host"),
        ),
        Err(error) => Outcome::lacks(
            format!("{error}; clsact is used instead"),
            advice("use Linux 6.6 or later beside other programs on guests' interfaces"),
        ),
    }
}

/// Looks among the kernel's types for the operations of a BPF qdisc.
pub(super) fn bpf_qdisc() -> Outcome {
    const NAME: &[u8] = b"bpf_struct_ops_Qdisc_ops\0";
    let types = std::fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
    let mut words = types.split_inclusive(|byte| *byte == 0);
    if words.any(|word| word == NAME) {
        return Outcome::works("the kernel has it; fq is the default without --qdisc bpf");
    }
    Outcome::lacks(
        "this kernel has no BPF qdiscs; guests' frames wait in fq",
        advice("use Linux 6.16 or later with CONFIG_NET_SCH_BPF where bursts must be exact"),
    )
}

pub(super) fn cpu_weight() -> Outcome {
    let groups = text("/proc/self/cgroup").unwrap_or_default();
    let mounts = crate::cgroup::Mounts::read(&crate::root::Root::default()).unwrap_or_default();
    match mounts.directory(&crate::cgroup::parse_groups(&groups), "cpu") {
        Some((at, true)) => Outcome::works(format!("cpu.weight (cgroup v2), {}", at.display())),
        Some((at, false)) => Outcome::works(format!("cpu.shares (cgroup v1), {}", at.display())),
        None => Outcome::lacks(
            "this process is in no group with the cpu controller",
            advice("echo +cpu > /sys/fs/cgroup/cgroup.subtree_control, or start it by systemd"),
        ),
    }
}

pub(super) fn autogroup() -> Outcome {
    match text("/proc/sys/kernel/sched_autogroup_enabled").as_deref() {
        Some("1") => Outcome::lacks(
            "autogroups are on: a nice value counts only within its session",
            root("sysctl -w kernel.sched_autogroup_enabled=0"),
        ),
        _ => Outcome::works("nice values count for the whole machine"),
    }
}

pub(super) fn cpuset() -> Outcome {
    // Each line: device, mount point, type, options.
    let mounts = text("/proc/self/mounts").unwrap_or_default();
    let unified = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (_, at, kind) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| at.to_owned())
    });
    let boot = advice("boot with systemd.unified_cgroup_hierarchy=1 and without cgroup v1");
    let Some(at) = unified else {
        return Outcome::lacks("no cgroup v2 is mounted", boot);
    };
    let controllers = text(&format!("{at}/cgroup.controllers")).unwrap_or_default();
    if controllers.split(' ').any(|name| name == "cpuset") {
        Outcome::works(format!("cgroup v2 at {at}"))
    } else {
        Outcome::lacks(format!("cgroup v2 at {at} has no cpuset controller"), boot)
    }
}

pub(super) fn rt_group_sched() -> Outcome {
    let budget = [
        "/sys/fs/cgroup/cpu/cpu.rt_runtime_us",
        "/sys/fs/cgroup/cpu,cpuacct/cpu.rt_runtime_us",
    ];
    if let Some(path) = budget.into_iter().find(|path| Path::new(path).exists()) {
        return Outcome::lacks(
            format!(
                "RT_GROUP_SCHED is on: {path}; SCHED_FIFO in a cgroup without a budget fails with EPERM"
            ),
            advice(
                "boot with rt_group_sched=0 where the kernel knows it, or use one without CONFIG_RT_GROUP_SCHED",
            ),
        );
    }
    match kernel_config() {
        Some(config) if config.contains("CONFIG_RT_GROUP_SCHED=y") => Outcome::lacks(
            "the kernel has RT_GROUP_SCHED: with cgroup v2, real-time threads must stay in the root group",
            advice(
                "boot with rt_group_sched=0 where the kernel knows it, or use one without CONFIG_RT_GROUP_SCHED",
            ),
        ),
        Some(_) => Outcome::works("the kernel has no RT_GROUP_SCHED"),
        None => {
            Outcome::works("no budget files seen, and the kernel's configuration cannot be read")
        }
    }
}

pub(super) fn sched_ext() -> Outcome {
    match text("/sys/kernel/sched_ext/state") {
        Some(state) => Outcome::works(format!("the kernel has it, {}", state.trim())),
        None => Outcome::lacks(
            "/sys/kernel/sched_ext is not there",
            advice("nothing to do: no class needs it"),
        ),
    }
}

pub(super) fn group_reservations() -> Outcome {
    let groups = text("/proc/self/cgroup").unwrap_or_default();
    let mounts = crate::cgroup::Mounts::read(&crate::root::Root::default()).unwrap_or_default();
    let of = mounts.directory(&crate::cgroup::parse_groups(&groups), "cpu");
    let file = of.map(|(group, _)| group.join("cpu.rt.max"));
    match file.filter(|file| file.exists()) {
        Some(file) => Outcome::works(format!("the kernel has it, {}", file.display())),
        None => Outcome::lacks(
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
fn kernel_config() -> Option<String> {
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

pub(super) fn steal() -> Outcome {
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
        (false, _) => Outcome::works("not a guest: nothing can be stolen"),
        (true, 0) => Outcome::lacks(
            "a guest without steal time: what its host takes shows as the mechanism's own tail",
            advice("measure on the host itself, or where its hypervisor reports steal"),
        ),
        (true, _) => Outcome::works(format!("a guest; {share:.2} % stolen since boot")),
    }
}

/// Runs a VM of one instruction.
pub(super) fn kvm() -> Outcome {
    machine_run(kvm::halt())
}

fn machine_run(result: io::Result<()>) -> Outcome {
    match result {
        Ok(()) => Outcome::works("ran a machine of one instruction"),
        Err(error) if error.kind() == ErrorKind::NotFound => Outcome::lacks(
            "/dev/kvm is not there",
            advice(
                "switch virtualization on in the firmware, or nested virtualization in the host",
            ),
        ),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Outcome::lacks(
            format!("/dev/kvm: {error}"),
            root("usermod -aG kvm $(id -un); newgrp kvm"),
        ),
        Err(error) => Outcome::lacks(
            format!("/dev/kvm is there, but no machine runs: {error}"),
            advice("use a host whose KVM works; QEMU's emulation does without"),
        ),
    }
}

pub(super) fn cpus() -> Outcome {
    match std::thread::available_parallelism().map_or(1, usize::from) {
        1 => Outcome::lacks("1", advice("use a machine with 2 CPUs or more")),
        count => Outcome::works(count.to_string()),
    }
}

pub(super) fn tool(name: &str, package: &str) -> Outcome {
    match find_program(name) {
        Some(path) => Outcome::works(path.display().to_string()),
        None => Outcome::lacks(format!("{name} is not installed"), install(package)),
    }
}

fn install(package: &str) -> Mend {
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
fn module_or_kernel(module: &str, option: &str) -> Mend {
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
    /// Returns the outcome: the missing program, or else the remedy `mend`.
    fn lacks(self, mend: Mend) -> Outcome {
        match self {
            Self::Missing(program) => {
                Outcome::lacks(format!("{program} is not installed"), install("iproute2"))
            }
            Self::Failed(said) => Outcome::lacks(said, mend),
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
