//! Capabilities of this computer: one table for `tailbound doctor`, for tests that skip, and for
//! error messages.
//!
//! Each row has a [`Capability`], its purpose, its requirements, and a trial. Trials use the real
//! feature if that is cheap, and leave nothing behind: those with [`Place::Namespace`] change the
//! network namespace they run in, and run in a temporary one.

pub(crate) mod kvm;
pub mod required;
mod trials;

pub use trials::scheduling::times_interrupts;

use std::fmt;
use std::io;

/// A feature that this computer has or lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the table has a description of each")]
pub enum Capability {
    NetworkNamespaces,
    UserNamespaces,
    Tap,
    PacketVnetHeader,
    Veth,
    TunnelOffloads,
    ReceiveSteering,
    Bridge,
    Htb,
    U32,
    Tbf,
    FqCodel,
    Cake,
    Fq,
    AfXdp,
    AfXdpZeroCopy,
    LaunchTime,
    SchedDeadline,
    RealTimeLoop,
    CustomSlice,
    Schedstat,
    BpfWaits,
    /// BPF programs at the tracepoints of packets.
    BpfPackets,
    BpfEdge,
    BpfFs,
    Tcx,
    BpfQdisc,
    CpuWeight,
    Autogroup,
    Cpuset,
    RtGroupSched,
    SchedExt,
    GroupReservations,
    Steal,
    Kvm,
    Cpus,
    Ip,
    Tc,
    Ping,
    Iperf3,
    Memcached,
    Valgrind,
    OpenVSwitch,
    Qemu,
}

/// The place in which a trial must run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In any process; the trial changes nothing.
    Anywhere,
    /// As root of a temporary network namespace.
    Namespace,
}

/// A use of this computer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// Run the demo.
    Demo,
    /// Forward guests' packets.
    Host,
    /// Set the scheduling class of guests' vCPUs.
    Vcpu,
    /// Find the reason why a guest is slow.
    Look,
    /// Protect guests in the network that they have.
    Adopt,
    /// Probe from inside a guest.
    Probe,
    /// Serve placements.
    Place,
    /// Run all experiments, tests and benchmarks.
    Lab,
}

impl Purpose {
    /// Every purpose, in the order of the report.
    pub const ALL: [Self; 8] = [
        Self::Demo,
        Self::Host,
        Self::Vcpu,
        Self::Look,
        Self::Adopt,
        Self::Probe,
        Self::Place,
        Self::Lab,
    ];

    /// Returns the stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Demo => "demo",
            Self::Host => "host",
            Self::Vcpu => "vcpu",
            Self::Look => "look",
            Self::Adopt => "adopt",
            Self::Probe => "probe",
            Self::Place => "place",
            Self::Lab => "lab",
        }
    }
}

/// A row of the table.
#[derive(Debug)]
pub struct Probe {
    /// The capability.
    pub capability: Capability,
    /// The stable name.
    pub name: &'static str,
    /// The purpose of the capability.
    pub purpose: &'static str,
    /// The requirements, as in "not supported (requires ...)".
    pub requires: &'static str,
    /// The uses that are impossible without it.
    pub needed_by: &'static [Purpose],
    /// The uses that work without it, but less well, or not in every way.
    pub helps: &'static [Purpose],
    /// The place in which its trial runs.
    pub place: Place,
    trial: fn() -> TrialResult,
}

/// Result of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialResult {
    /// True if the capability can be used.
    pub works: bool,
    /// The observation.
    pub detail: String,
    /// The remedy, if it does not work.
    pub remedy: Option<Remedy>,
}

/// Remedy for a missing capability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// A command that root must run.
    Root(String),
    /// Advice, if no single command is a remedy.
    Advice(String),
}

impl fmt::Display for Remedy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(command) if rustix::process::geteuid().is_root() => {
                formatter.write_str(command)
            }
            Self::Root(command) => write!(formatter, "sudo {command}"),
            Self::Advice(text) => formatter.write_str(text),
        }
    }
}

impl TrialResult {
    fn works(detail: impl Into<String>) -> Self {
        Self {
            works: true,
            detail: detail.into(),
            remedy: None,
        }
    }
    fn lacks(detail: impl Into<String>, remedy: Remedy) -> Self {
        Self {
            works: false,
            detail: detail.into(),
            remedy: Some(remedy),
        }
    }
}

/// Returns the outcome for user (and with them network) namespaces after
/// [`crate::user_namespace::enter`] failed with `error`.
pub fn namespaces_refused(error: &crate::user_namespace::EnterError) -> TrialResult {
    use crate::user_namespace::EnterError;
    let text = error.to_string();
    match (error, text.split_once("; ")) {
        (EnterError::UserInChroot | EnterError::Chroot { .. }, Some((what, remedy))) => {
            TrialResult::lacks(what, Remedy::Advice(remedy.into()))
        }
        _ => trials::user_namespace_refused(text),
    }
}

/// Returns the outcome of a trial that could not be run.
pub fn not_tried(why: &str) -> TrialResult {
    TrialResult::lacks(
        format!("not tried: {why}"),
        Remedy::Advice("mend that first".into()),
    )
}

/// Turns this process from root's into the user 65534's for good, so that it has an ordinary
/// user's permissions.
///
/// # Errors
/// The process is not root, or has other threads, whose ids would stay.
pub fn become_ordinary_user() -> io::Result<()> {
    use rustix::process::{DumpableBehavior, Gid, Uid, set_dumpable_behavior};
    let (user, group) = (Uid::from_raw(65534), Gid::from_raw(65534));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(group, group, group)?;
    rustix::thread::set_thread_res_uid(user, user, user)?;
    // Changed ids make /proc/self belong to root, id maps included.
    Ok(set_dumpable_behavior(DumpableBehavior::Dumpable)?)
}

impl Capability {
    /// Returns the capability's row.
    pub fn probe(self) -> &'static Probe {
        // A test holds the table to the order of the enum.
        &TABLE[self as usize]
    }

    /// Runs the trial in the calling thread, which must be in the place that [`Probe::place`]
    /// requires. Takes well under a second.
    pub fn try_here(self) -> TrialResult {
        (self.probe().trial)()
    }

    /// Returns the text for an error or a skipped test without the capability: "htb is not
    /// supported (requires `CONFIG_NET_SCH_HTB` and tc)".
    pub fn unsupported(self) -> String {
        let Probe { name, requires, .. } = self.probe();
        format!("{name} is not supported (requires {requires})")
    }
}

macro_rules! table {
    ($($capability:ident, $name:literal, [$($needs:ident)*] [$($helps:ident)*], $place:ident,
       $trial:expr, $purpose:literal, $requires:literal;)*) => {
        /// Every capability, in the order of the report.
        pub const TABLE: &[Probe] = &[$(Probe {
            capability: Capability::$capability,
            name: $name,
            purpose: $purpose,
            requires: $requires,
            needed_by: &[$(Purpose::$needs),*],
            helps: &[$(Purpose::$helps),*],
            place: Place::$place,
            trial: $trial,
        }),*];
    };
}

table! {
    NetworkNamespaces, "netns", [Demo Lab] [Host], Namespace, trials::network_namespace,
        "the lab's hosts and guests", "CAP_SYS_ADMIN or user namespaces";
    UserNamespaces, "user-namespaces", [] [Demo Lab], Namespace, trials::user_namespace,
        "the lab without root", "unprivileged user namespaces";
    Tap, "tap", [] [Host Lab], Namespace, trials::network::tap,
        "guests behind a TAP", "/dev/net/tun and CAP_NET_ADMIN";
    PacketVnetHeader, "af-packet", [Demo Host Lab] [], Namespace, trials::network::packet,
        "uplinks, and guests behind a veth", "CAP_NET_RAW and PACKET_VNET_HDR";
    Veth, "veth", [Demo Lab] [Host], Namespace, trials::network::veth,
        "the lab's cables", "CONFIG_VETH and ip";
    TunnelOffloads, "tunnel-offloads", [] [Host], Anywhere, trials::network::tunnels,
        "tunnels (VXLAN, GRE) of guests behind a veth", "the guests' ends cut what is inside of tunnels";
    ReceiveSteering, "rps", [] [Host], Namespace, trials::network::receive_steering,
        "receive filters of guests behind a veth beside the packet loop", "Linux >= 5.2 with CONFIG_RPS, two CPUs and CAP_SYS_ADMIN";
    Bridge, "bridge", [Demo Lab] [], Namespace, trials::network::bridge,
        "the lab's switch", "CONFIG_BRIDGE and ip";
    Htb, "htb", [Demo Lab] [], Namespace, trials::network::htb,
        "the rate and the classes of a switch port", "CONFIG_NET_SCH_HTB and tc";
    U32, "u32", [Demo Lab] [], Namespace, trials::network::u32_filter,
        "the tag that a switch port sorts by", "CONFIG_NET_CLS_U32 and tc";
    Tbf, "tbf", [Demo Lab] [], Namespace, trials::network::tbf,
        "the wire of a host's NIC", "CONFIG_NET_SCH_TBF and tc";
    FqCodel, "fq-codel", [] [Lab], Namespace, trials::network::fq_codel,
        "Linux' FQ-CoDel beside the limits of guests", "CONFIG_NET_SCH_FQ_CODEL and tc";
    Cake, "cake", [] [Lab], Namespace, trials::network::cake,
        "Linux' CAKE beside the limits of guests", "CONFIG_NET_SCH_CAKE and tc";
    Fq, "fq", [] [Adopt Lab], Namespace, trials::network::fq,
        "limits and guarantees of adopted guests; Linux' fair queue in the lab", "CONFIG_NET_SCH_FQ and tc";
    AfXdp, "af-xdp", [] [Host], Namespace, trials::network::af_xdp,
        "uplinks that bypass the kernel's stack", "CONFIG_XDP_SOCKETS, CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF";
    AfXdpZeroCopy, "af-xdp-zero-copy", [] [Host], Anywhere, trials::network::zero_copy,
        "uplinks whose NIC reads frames from where they are", "a NIC whose driver has it, and Linux >= 6.3";
    LaunchTime, "launch-time", [] [Host], Anywhere, trials::network::launch_time,
        "pacing by the NIC, without void frames", "a NIC whose driver has it, and Linux >= 6.14";
    SchedDeadline, "sched-deadline", [] [Vcpu Lab], Anywhere, trials::scheduling::sched_deadline,
        "the periodic class of vCPU threads", "CAP_SYS_NICE and free bandwidth";
    RealTimeLoop, "real-time-loop", [] [Host], Anywhere, trials::scheduling::real_time_loop,
        "a packet loop that is there when a frame is due", "CAP_SYS_NICE or RLIMIT_RTPRIO >= 1 (LimitRTPRIO=1)";
    CustomSlice, "custom-slice", [] [Vcpu Lab], Anywhere, trials::scheduling::custom_slice,
        "the aperiodic class of vCPU threads", "Linux >= 6.12";
    Schedstat, "schedstat", [Vcpu] [], Anywhere, trials::scheduling::schedstat,
        "waits of vCPU threads for a CPU", "CONFIG_SCHED_INFO";
    BpfWaits, "bpf-waits", [] [Vcpu Look], Anywhere, trials::bpf::bpf_waits,
        "each wait of guests' threads, and who ran instead", "Linux >= 6.1 with BTF, CAP_BPF and CAP_PERFMON";
    BpfPackets, "bpf-packets", [] [Look], Anywhere, trials::bpf::bpf_packets,
        "slow requests of guests, and whose packets were ahead", "Linux >= 6.1 with BTF, CAP_BPF and CAP_PERFMON";
    BpfEdge, "bpf-edge", [Adopt] [], Anywhere, trials::bpf::bpf_edge,
        "programs on guests' interfaces", "BTF, CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN";
    BpfFs, "bpffs", [Adopt] [], Anywhere, trials::bpf::bpf_fs,
        "programs that stay without a process", "a BPF file system at /sys/fs/bpf";
    Tcx, "tcx", [] [Adopt], Anywhere, trials::bpf::tcx,
        "programs of several owners on one interface", "Linux >= 6.6";
    BpfQdisc, "bpf-qdisc", [] [Adopt], Anywhere, trials::bpf::bpf_qdisc,
        "frames that are charged when they leave (adopt --qdisc bpf)", "Linux >= 6.16 with CONFIG_NET_SCH_BPF";
    CpuWeight, "cpu-weight", [] [Vcpu], Anywhere, trials::scheduling::cpu_weight,
        "the weight of a guest that has a control group of its own", "the cpu controller of cgroup v2 or v1";
    Autogroup, "no-autogroup", [] [Vcpu], Anywhere, trials::scheduling::autogroup,
        "the weight of a guest that has no control group of its own", "kernel.sched_autogroup_enabled = 0";
    Cpuset, "cpuset", [] [Vcpu], Anywhere, trials::scheduling::cpuset,
        "CPU partitions, so that pinned vCPUs may have deadlines", "cgroup v2 with the cpuset controller";
    RtGroupSched, "no-rt-group-sched", [] [Vcpu], Anywhere, trials::scheduling::rt_group_sched,
        "real-time classes inside cgroups", "a kernel that does not budget real time by cgroup";
    SchedExt, "sched-ext", [] [], Anywhere, trials::scheduling::sched_ext,
        "a scheduler of a guest's own; nothing here uses it yet", "Linux >= 6.12 with CONFIG_SCHED_CLASS_EXT";
    GroupReservations, "group-reservations", [] [], Anywhere, trials::scheduling::group_reservations,
        "one reservation for all threads of a guest; nothing here uses it yet", "a kernel with cpu.rt.max in cgroup v2";
    Steal, "steal-time", [] [Demo Probe Lab], Anywhere, trials::steal,
        "telling the machine's noise from the mechanism's tail", "steal time from the hypervisor";
    Kvm, "kvm", [] [Host Vcpu], Namespace, trials::kvm,
        "virtual machines that need no emulation", "/dev/kvm";
    Cpus, "cpus", [] [Demo Lab], Anywhere, trials::cpus,
        "guests that do not wait for their own measurement", "2 CPUs";
    Ip, "ip", [Demo Lab] [Host], Anywhere, || trials::tool("ip", "iproute2"),
        "building the lab", "the package iproute2";
    Tc, "tc", [Demo Lab] [], Anywhere, || trials::tool("tc", "iproute2"),
        "shaping the lab's switch ports", "the package iproute2";
    Ping, "ping", [] [Lab], Anywhere, || trials::tool("ping", "iputils-ping"),
        "load named ping", "the package iputils-ping";
    Iperf3, "iperf3", [] [Lab], Anywhere, || trials::tool("iperf3", "iperf3"),
        "load named iperf3", "the package iperf3";
    Memcached, "memcached", [] [Lab], Anywhere, || trials::tool("memcached", "memcached"),
        "load named memcached", "the package memcached";
    Valgrind, "valgrind", [] [Lab], Anywhere, || trials::tool("valgrind", "valgrind"),
        "instruction counts in make bench", "the package valgrind";
    OpenVSwitch, "ovs", [] [Lab], Anywhere, || trials::tool("ovs-vsctl", "openvswitch-switch"),
        "the peer in make bench", "the package openvswitch-switch";
    Qemu, "qemu", [] [Lab], Anywhere, || trials::tool("qemu-system-x86_64", "qemu-system-x86"),
        "tests of the vCPU agent on a real hypervisor", "the package qemu-system-x86";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_table_is_in_the_order_of_the_enum() {
        for (index, probe) in TABLE.iter().enumerate() {
            assert_eq!(probe.capability as usize, index, "{}", probe.name);
        }
        let last = Capability::Qemu as usize;
        assert_eq!(TABLE.len(), last + 1);
    }

    #[test]
    fn each_probe_has_a_use_or_states_that_it_has_none() {
        for probe in TABLE {
            let both = probe.helps.iter().any(|it| probe.needed_by.contains(it));
            assert!(!both, "{}", probe.name);
            // What is only looked at is asked for by no purpose, and says so.
            let is_used = !probe.needed_by.is_empty() || !probe.helps.is_empty();
            let says_unused = probe.purpose.ends_with("; nothing here uses it yet");
            assert!(is_used != says_unused, "{}", probe.name);
        }
    }

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<_> = TABLE.iter().map(|probe| probe.name).collect();
        assert_eq!(names.len(), TABLE.len());
    }

    #[test]
    fn each_harmless_trial_reports_its_finding_and_a_remedy() {
        for probe in TABLE.iter().filter(|probe| probe.place == Place::Anywhere) {
            let outcome = probe.capability.try_here();
            assert!(!outcome.detail.is_empty(), "{}", probe.name);
            assert_eq!(outcome.works, outcome.remedy.is_none(), "{}", probe.name);
        }
    }

    #[test]
    fn an_unsupported_capability_is_named_with_its_requirement() {
        assert_eq!(
            Capability::CustomSlice.unsupported(),
            "custom-slice is not supported (requires Linux >= 6.12)"
        );
    }
}
