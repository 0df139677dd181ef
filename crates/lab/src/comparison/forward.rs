//! Throughput in frames from one guest to another through tailbound, behind each kind of port,
//! compared with the alternatives of an operator: a Linux bridge (the kernel's own limit) and Open
//! vSwitch's userspace datapath, both with their fastest port, a veth pair. A bare loop of read and
//! write between the same TAPs is the limit of that kind of port.
//!
//! Two guests exchange one TCP stream, then a flood of the smallest UDP frames, then such frames at
//! a fixed rate.

use super::rig::{
    MIDDLE, PORT, RECEIVER, Rig, add_guest, add_namespace, bridge, guest_config, guest_name,
    remove_namespaces, tap_port,
};
use super::{Bench, Ratio};
use crate::LabError;
use crate::build::tool;
use crate::guest::{Flood, Outcome, TapOf, Work, now};
use crate::measurement::Measurement;
use crate::processes::{Start, Supervisor};
use crate::session::{Phases, Tool};
use crate::tools::words;
use crate::topology::{GuestPort, namespace_path};
use std::path::Path;
use tailbound_sys::procfs;
use tailbound_units::{Bytes, Nanos};

/// UDP payload of the smallest Ethernet frame: 64 bytes with the FCS.
const SMALL_PAYLOAD: Bytes = Bytes(64 - 4 - 14 - 20 - 8);
/// The smallest frames per second that are offered in the run with a fixed rate.
const OFFERED: u32 = 300_000;
/// Length of an idle daemon's observation.
const IDLE: Nanos = Nanos::from_secs(5);
/// The guests of an idle daemon.
const IDLE_GUESTS: u8 = 4;
/// Directory of Open vSwitch's sockets: in the lab's own `/run`.
const OVS_RUN: &str = "/run/openvswitch";
const OVS_SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// The figures of every backend.
const FIGURES: [&str; 5] = [
    "bulk_bit_s",
    "small_packets_s",
    "small_loss",
    "offered_packets_s",
    "offered_loss",
];
/// The share of a core that an idle daemon uses.
const IDLE_SHARE: &str = "idle_cpu_share";

const BULK_AND_SMALL: &[(&str, &str)] = &[("bulk", FIGURES[0]), ("small", FIGURES[1])];

const fn ratio(of: Backend, to: Backend) -> Ratio {
    Ratio {
        of: of.name(),
        to: to.name(),
        figures: BULK_AND_SMALL,
    }
}

const RATIOS: [Ratio; 6] = [
    ratio(Backend::Tap, Backend::Copy),
    ratio(Backend::Tap, Backend::Bridge),
    ratio(Backend::Tap, Backend::Ovs),
    ratio(Backend::Tap, Backend::OvsTso),
    ratio(Backend::Packet, Backend::Bridge),
    Ratio {
        figures: BULK_AND_SMALL.split_at(1).1,
        ..ratio(Backend::Xdp, Backend::Bridge)
    },
];

/// A backend from one guest to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Backend {
    /// A Linux bridge.
    Bridge,
    /// A loop of read and write between two TAPs.
    Copy,
    /// `tailbound host` with meter, tag, anti-spoofing and FQ-CoDel, and guests behind TAPs.
    Tap,
    /// `tailbound host` with veth pairs and packet sockets.
    Packet,
    /// `tailbound host` with veth pairs and `AF_XDP`.
    Xdp,
    /// Open vSwitch's userspace datapath with its default settings.
    Ovs,
    /// Open vSwitch's userspace datapath with userspace TSO, which is off by default.
    OvsTso,
}

/// The comparison of forwarding.
pub(super) struct Forward;

impl Bench for Forward {
    fn backends(&self) -> Vec<&'static str> {
        Backend::ALL.map(Backend::name).into()
    }

    fn tools(&self) -> &'static [Tool] {
        &[
            ("ip", "iproute2"),
            ("ethtool", "ethtool"),
            ("ovs-vswitchd", "openvswitch-switch"),
        ]
    }

    fn figures(&self, backend: usize) -> Vec<String> {
        let idle = (Backend::ALL[backend] == Backend::Tap).then_some(IDLE_SHARE);
        let figures = FIGURES.into_iter().chain(idle);
        figures.map(str::to_owned).collect()
    }

    fn ratios(&self) -> &'static [Ratio] {
        &RATIOS
    }

    fn measure(&self, rig: &Rig<'_>, backend: usize) -> Result<Measurement, LabError> {
        let backend = Backend::ALL[backend];
        let mut measured = Measurement::default();
        if backend == Backend::Tap && rig.round == 1 {
            measured.value(IDLE_SHARE, "", idle_share(rig)?);
        }
        let build = |supervisor: &mut Supervisor<'_>| backend.build(supervisor, rig);
        let (sender, receiver) = (
            Work::BulkSender { to: RECEIVER },
            Work::BulkReceiver { port: PORT },
        );
        let [_, bulk] = rig.load(build, sender, receiver)?;
        let small = |offered| {
            let flood = Work::Flood(Flood {
                to: RECEIVER,
                payload: SMALL_PAYLOAD,
                offered,
                segment: None,
            });
            rig.load(build, flood, Work::Sink { port: PORT })
        };
        let (flood, offered) = (small(None)?, small(Some(OFFERED))?);
        let lost = |[sent, arrived]: &[Outcome; 2]| {
            1.0 - arrived.amount as f64 / sent.amount.max(1) as f64
        };
        let [
            bulk_rate,
            small_rate,
            small_loss,
            offered_rate,
            offered_loss,
        ] = FIGURES;
        measured.value(bulk_rate, "bit/s", bulk.rate() * 8.0);
        measured.value(small_rate, "packets/s", flood[1].rate());
        measured.value(small_loss, "ratio", lost(&flood));
        // The packets that the sender could send.
        measured.value(offered_rate, "packets/s", offered[0].rate());
        measured.value(offered_loss, "ratio", lost(&offered));
        Ok(measured)
    }
}

impl Backend {
    const ALL: [Self; 7] = [
        Self::Bridge,
        Self::Copy,
        Self::Tap,
        Self::Packet,
        Self::Xdp,
        Self::Ovs,
        Self::OvsTso,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Bridge => "bridge",
            Self::Copy => "copy",
            Self::Tap => "tailbound",
            Self::Packet => "tailbound-packet",
            Self::Xdp => "tailbound-xdp",
            Self::Ovs => "open-vswitch",
            Self::OvsTso => "open-vswitch-tso",
        }
    }

    /// Makes two guests and connects them.
    fn build(self, supervisor: &mut Supervisor<'_>, rig: &Rig<'_>) -> Result<(), LabError> {
        if matches!(self, Self::Tap | Self::Copy) {
            (1..=2).try_for_each(|number| add_guest(number, GuestPort::Tap))?;
        } else {
            add_namespace(MIDDLE)?;
            (1..=2).try_for_each(|number| add_guest(number, GuestPort::Veth))?;
        }
        // AF_XDP conveys no offloads. Without TSO, Open vSwitch neither segments packets nor
        // completes checksums.
        if matches!(self, Self::Xdp | Self::Ovs) {
            for number in 1..=2 {
                let name = guest_name(number);
                tool("ip", &format!("netns exec {name} ethtool -K eth0 tx off"))?;
            }
        }
        match self {
            // A daemon without an uplink can run in a guest's namespace.
            Self::Tap => daemon(supervisor, rig, &guest_name(1), 2, tap_port).map(drop),
            Self::Packet => daemon(supervisor, rig, MIDDLE, 2, |number| {
                format!("kind = \"af-packet\", interface = \"port{number}\"")
            })
            .map(drop),
            Self::Xdp => daemon(supervisor, rig, MIDDLE, 2, |number| {
                format!("kind = \"af-xdp\", interface = \"port{number}\"")
            })
            .map(drop),
            Self::Copy => copy(supervisor, rig),
            Self::Bridge => bridge(),
            Self::Ovs | Self::OvsTso => open_vswitch(supervisor, rig, self == Self::OvsTso),
        }
    }
}

/// Starts a daemon with `count` guests behind these ports; returns its index.
fn daemon(
    supervisor: &mut Supervisor<'_>,
    rig: &Rig<'_>,
    netns: &str,
    count: u8,
    port: impl Fn(u8) -> String,
) -> Result<usize, LabError> {
    let guest = |number| {
        let port = port(number);
        // Frames of AF_XDP are those of the wire, and `segment` must be set for them.
        let more = format!(
            "pipeline = {{ segment = {}, meter = {{}}, queue = {{ kind = \"fq-codel\" }} }}\n",
            port.contains("af-xdp"),
        );
        guest_config(number, &port, &more)
    };
    rig.daemon(
        supervisor,
        netns,
        &(1..=count).map(guest).collect::<String>(),
    )
}

/// Returns the share of a core that an idle daemon uses.
fn idle_share(rig: &Rig<'_>) -> Result<f64, LabError> {
    let mut supervisor = rig.session.supervisor();
    (1..=IDLE_GUESTS).try_for_each(|number| add_guest(number, GuestPort::Tap))?;
    let netns = guest_name(1);
    let daemon = daemon(&mut supervisor, rig, &netns, IDLE_GUESTS, tap_port)?;
    // Guests send a few frames when their interface comes up.
    supervisor.rest(rig.warmup.into())?;
    let pid = supervisor.member(daemon).child.id();
    let used = || procfs::cpu_time(pid).map_err(LabError::io("reading the daemon's CPU time"));
    let before = (now(), used()?);
    supervisor.rest(IDLE.into())?;
    let after = (now(), used()?);
    supervisor.end()?;
    remove_namespaces()?;
    Ok(after.1.since(before.1).as_secs_f64() / after.0.since(before.0).as_secs_f64())
}

/// Starts a bare loop between two guests behind TAPs.
fn copy(supervisor: &mut Supervisor<'_>, rig: &Rig<'_>) -> Result<(), LabError> {
    let taps = [1, 2].map(|number| TapOf {
        interface: "eth0".into(),
        netns: namespace_path(&guest_name(number)),
    });
    let phases = Phases {
        warmup: Nanos::ZERO,
        duration: Nanos::ZERO,
        grace: Nanos::ZERO,
    };
    let (path, _) = rig
        .session
        .write_task("copy", Work::Copy { taps }, phases)?;
    let first = supervisor.len();
    supervisor.start(Start {
        cpus: rig.session.cpus.all,
        ..rig.session.task("the bare loop", &guest_name(1), &path)
    })?;
    supervisor.wait_ready(first)
}

fn open_vswitch(supervisor: &mut Supervisor<'_>, rig: &Rig<'_>, tso: bool) -> Result<(), LabError> {
    let directory = Path::new(OVS_RUN);
    let _ = std::fs::remove_dir_all(directory);
    std::fs::create_dir_all(directory).map_err(LabError::file("creating", directory))?;
    let (database, socket) = (format!("{OVS_RUN}/conf.db"), format!("{OVS_RUN}/db.sock"));
    tool("ovsdb-tool", &format!("create {database} {OVS_SCHEMA}"))?;
    let mut start = |name, line: &str| supervisor.start(rig.program(name, MIDDLE, words(line)));
    let remote = format!("{database} --remote=punix:{socket}");
    start("ovsdb-server", &remote)?;
    // The server may not listen yet: retry for at most ten seconds.
    let vsctl = |line: &str| {
        let line = format!("-t 10 --retry --db=unix:{socket} {line}");
        tool("ovs-vsctl", &line)
    };
    vsctl("--no-wait init")?;
    let set_tso = format!("other_config:userspace-tso-enable={tso}");
    vsctl(&format!("--no-wait set Open_vSwitch . {set_tso}"))?;
    let local = "--disable-system --disable-system-route";
    start("ovs-vswitchd", &format!("unix:{socket} {local}"))?;
    // A bridge of that switch, with both ports.
    vsctl(
        "add-br bridge -- set bridge bridge datapath_type=netdev \
         -- add-port bridge port1 -- add-port bridge port2",
    )
}
