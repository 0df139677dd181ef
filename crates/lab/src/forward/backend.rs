//! The backends from one guest to another.

use crate::LabError;
use crate::build::batch;
use crate::guest::{self, TapOf, Task, Work};
use crate::pair::{BRIDGE, address, configure, guest_name, mac};
use crate::processes::{Ready, Start, Supervisor};
use crate::tools::words;
use crate::topology::namespace_path;
use crate::turns::Place;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use tailbound_sys::process::{find_program, program_path};
use tailbound_units::Nanos;

/// The namespace of the backend between the guests.
const MIDDLE: &str = "middle";
/// Directory of Open vSwitch's sockets: in the lab's own `/run`.
const OVS_RUN: &str = "/run/openvswitch";
const OVS_SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// A backend from one guest to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Backend {
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

/// The kind of a port of `tailbound host`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A TAP in the guest.
    Tap,
    /// A packet socket on the host's end of a veth pair.
    Packet,
    /// An `AF_XDP` socket on the host's end of a veth pair.
    Xdp,
}

impl Backend {
    pub(super) const ALL: [Self; 7] = [
        Self::Bridge,
        Self::Copy,
        Self::Tap,
        Self::Packet,
        Self::Xdp,
        Self::Ovs,
        Self::OvsTso,
    ];

    pub(super) const fn name(self) -> &'static str {
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

    /// Checks that the programs of all backends are installed.
    pub(super) fn require_tools() -> Result<(), LabError> {
        for (program, package) in [
            ("ip", "iproute2"),
            ("ethtool", "ethtool"),
            ("ovs-vswitchd", "openvswitch-switch"),
        ] {
            if find_program(program).is_none() {
                return Err(LabError::Missing { program, package });
            }
        }
        Ok(())
    }

    /// Makes two guests and connects them.
    pub(super) fn build(
        self,
        supervisor: &mut Supervisor<'_>,
        place: &Place,
    ) -> Result<(), LabError> {
        match self {
            Self::Tap => tailbound(supervisor, place, Kind::Tap, 2).map(drop),
            Self::Packet => tailbound(supervisor, place, Kind::Packet, 2).map(drop),
            Self::Xdp => tailbound(supervisor, place, Kind::Xdp, 2).map(drop),
            Self::Copy => copy(supervisor, place),
            Self::Bridge => {
                veth_pairs()?;
                batch("ip", Some(MIDDLE), BRIDGE)
            }
            Self::Ovs | Self::OvsTso => {
                veth_pairs()?;
                open_vswitch(supervisor, place, self == Self::OvsTso)
            }
        }
    }

    /// Removes all interfaces.
    pub(super) fn remove(self) -> Result<(), LabError> {
        if !matches!(self, Self::Copy | Self::Tap) {
            batch("ip", None, &format!("netns del {MIDDLE}\n"))?;
        }
        remove_guests(2)
    }
}

pub(super) fn remove_guests(count: u8) -> Result<(), LabError> {
    let delete = |number| format!("netns del {}\n", guest_name(number));
    batch("ip", None, &(1..=count).map(delete).collect::<String>())
}

fn add_guests(count: u8) -> Result<(), LabError> {
    let add = |number| format!("netns add {}\n", guest_name(number));
    batch("ip", None, &(1..=count).map(add).collect::<String>())
}

fn veth_pairs() -> Result<(), LabError> {
    add_guests(2)?;
    batch(
        "ip",
        None,
        &format!(
            "netns add {MIDDLE}\n\
             link add eth0 netns {one} type veth peer name port1 netns {MIDDLE}\n\
             link add eth0 netns {two} type veth peer name port2 netns {MIDDLE}\n",
            one = guest_name(1),
            two = guest_name(2)
        ),
    )?;
    batch("ip", Some(MIDDLE), "link set port1 up\nlink set port2 up\n")?;
    (1..=2).try_for_each(configure)
}

/// Makes guests behind TAPs.
fn taps(count: u8) -> Result<(), LabError> {
    add_guests(count)?;
    (1..=count).try_for_each(|number| {
        let name = guest_name(number);
        batch("ip", Some(&name), "tuntap add dev eth0 mode tap vnet_hdr\n")?;
        configure(number)
    })
}

/// Makes guests behind veth pairs whose frames have their final lengths and checksums: offloads
/// that `AF_XDP` cannot convey are off.
fn plain_veth_pairs() -> Result<(), LabError> {
    veth_pairs()?;
    (1..=2).try_for_each(|number| {
        let name = guest_name(number);
        tool("ip", &format!("netns exec {name} ethtool -K eth0 tx off"))
    })
}

/// Starts a daemon with `count` guests, two behind veth pairs; returns its index.
pub(super) fn tailbound(
    supervisor: &mut Supervisor<'_>,
    place: &Place,
    kind: Kind,
    count: u8,
) -> Result<usize, LabError> {
    match kind {
        Kind::Tap => taps(count)?,
        Kind::Packet => veth_pairs()?,
        Kind::Xdp => plain_veth_pairs()?,
    }
    // The daemon has no uplink: with TAPs it can run in a guest's namespace.
    let netns = match kind {
        Kind::Tap => namespace_path(&guest_name(1)),
        Kind::Packet | Kind::Xdp => namespace_path(MIDDLE),
    };
    let mut config = String::new();
    for number in 1..=count {
        let name = guest_name(number);
        let port = match kind {
            Kind::Tap => {
                let netns = namespace_path(&name);
                let netns = netns.display();
                format!("kind = \"tap\", interface = \"eth0\", netns = \"{netns}\"")
            }
            Kind::Packet => format!("kind = \"af-packet\", interface = \"port{number}\""),
            Kind::Xdp => format!("kind = \"af-xdp\", interface = \"port{number}\""),
        };
        // Frames of AF_XDP are those of the wire, and `segment` must be set for them.
        let segment = kind == Kind::Xdp;
        // Writing to a string cannot fail.
        let _ = write!(
            config,
            "[[guest]]\n\
             name = \"{name}\"\n\
             mac = \"{mac}\"\n\
             ip = [\"{ip}\"]\n\
             port = {{ {port} }}\n\
             pipeline = {{ segment = {segment}, meter = {{}}, \
             queue = {{ kind = \"fq-codel\" }} }}\n",
            mac = mac(number),
            ip = address(number),
        );
    }
    place.daemon(supervisor, &config, &netns)
}

/// Starts a bare loop between two guests behind TAPs.
fn copy(supervisor: &mut Supervisor<'_>, place: &Place) -> Result<(), LabError> {
    taps(2)?;
    let taps = [1, 2].map(|number| TapOf {
        interface: "eth0".into(),
        netns: namespace_path(&guest_name(number)),
    });
    let task = Task {
        work: Work::Copy { taps },
        warmup: Nanos::ZERO,
        duration: Nanos::ZERO,
        grace: Nanos::ZERO,
        outcome: place.run_dir.path().join("copy.outcome.json"),
    };
    let path = place.run_dir.path().join("copy.task.json");
    task.write(&path)?;
    let (args, netns) = (guest::command(&path), namespace_path(&guest_name(1)));
    let first = supervisor.len();
    supervisor.start(Start {
        name: "the bare loop".into(),
        program: place.program.clone(),
        args,
        netns: &netns,
        cpus: place.cpus.all,
        policy: None,
        ready: Ready::Stdout(guest::READY),
        ends: false,
    })?;
    supervisor.wait_ready(first)
}

fn open_vswitch(supervisor: &mut Supervisor<'_>, place: &Place, tso: bool) -> Result<(), LabError> {
    if !tso {
        // Without TSO, Open vSwitch neither segments packets nor completes checksums.
        for number in 1..=2 {
            let name = guest_name(number);
            tool("ip", &format!("netns exec {name} ethtool -K eth0 tx off"))?;
        }
    }
    let directory = Path::new(OVS_RUN);
    let _ = std::fs::remove_dir_all(directory);
    std::fs::create_dir_all(directory).map_err(LabError::file("creating", directory))?;
    let (database, socket) = (format!("{OVS_RUN}/conf.db"), format!("{OVS_RUN}/db.sock"));
    tool("ovsdb-tool", &format!("create {database} {OVS_SCHEMA}"))?;
    let middle = namespace_path(MIDDLE);
    let mut start = |program: &str, line: &str| {
        supervisor.start(Start {
            name: program.to_owned(),
            program: program.into(),
            args: words(line),
            netns: &middle,
            cpus: place.cpus.all,
            policy: None,
            ready: Ready::Silent,
            ends: false,
        })
    };
    start(
        "ovsdb-server",
        &format!("{database} --remote=punix:{socket}"),
    )?;
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

/// Runs a program that ends by itself.
fn tool(program: &'static str, line: &str) -> Result<(), LabError> {
    let output = Command::new(program_path(program))
        .args(words(line))
        .output();
    let output = output.map_err(LabError::io(format!("running {program}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(LabError::Build {
        command: format!("{program} {line}"),
        message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
