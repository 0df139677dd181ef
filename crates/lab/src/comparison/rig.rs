//! Two guests, each a network namespace, between which backends are measured in turn.

use super::Options;
use crate::LabError;
use crate::build::batch;
use crate::guest::{GUEST_INTERFACE, Outcome, Work, now};
use crate::processes::{POLL, Start, Supervisor};
use crate::session::{Phases, Session};
use crate::topology::{Guest, GuestPort, Topology, namespace_path};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use tailbound_sys::sched::Policy;
use tailbound_units::Nanos;

/// The port on which guests listen.
pub(super) const PORT: u16 = 7_000;
/// The address of the receiving guest.
pub(super) const RECEIVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 2), PORT);
/// The namespace of the backend between the guests.
pub(super) const MIDDLE: &str = "middle";
/// The time from the start signal until tasks begin.
const LEAD: Nanos = Nanos::from_millis(200);

/// The setting of a measurement.
pub(super) struct Rig<'a> {
    pub(super) session: &'a Session,
    pub(super) options: &'a Options,
    /// Length of a load before samples count.
    pub(super) warmup: Nanos,
    /// Time for packets in transit after a load.
    pub(super) grace: Nanos,
    /// The scheduling class of programs in guests.
    pub(super) policy: Option<Policy>,
    /// Number of the round, from 1.
    pub(super) round: u32,
}

impl Rig<'_> {
    /// Returns a program of this name in a namespace, on any CPU.
    pub(super) fn program<'n>(&self, name: &str, netns: &'n str, args: Vec<String>) -> Start<'n> {
        Start {
            args,
            ..Start::new(name, name, netns, self.session.cpus.all)
        }
    }

    /// Starts a daemon in a namespace, and waits until it is ready. Returns its index.
    pub(super) fn daemon(
        &self,
        supervisor: &mut Supervisor<'_>,
        netns: &str,
        config: &str,
    ) -> Result<usize, LabError> {
        let session = self.session;
        let first = supervisor.len();
        let daemon = session.daemon("the host's daemon", netns, "host.toml", config)?;
        supervisor.start(Start {
            cpus: session.cpus.all,
            ..daemon
        })?;
        supervisor.wait_ready(first)?;
        Ok(first)
    }

    /// Starts a task in a guest. Returns the file of its outcome.
    pub(super) fn start_task(
        &self,
        supervisor: &mut Supervisor<'_>,
        number: u8,
        work: Work,
        grace: Nanos,
    ) -> Result<PathBuf, LabError> {
        let ends = work.ends();
        let phases = Phases {
            warmup: self.warmup,
            duration: self.options.duration,
            grace,
        };
        let guest = guest_name(number);
        let (path, outcome) = self.session.write_task(&guest, work, phases)?;
        supervisor.start(Start {
            cpus: self.session.cpus.all,
            policy: self.policy,
            ends,
            ..self.session.task(format!("guest {number}"), &guest, &path)
        })?;
        Ok(outcome)
    }

    /// Starts the measurement of the children from `first` on, and waits for its time and `grace`.
    pub(super) fn rest(
        &self,
        supervisor: &mut Supervisor<'_>,
        first: usize,
        grace: Nanos,
    ) -> Result<(), LabError> {
        supervisor.wait_ready(first)?;
        let start = now().saturating_add(LEAD);
        supervisor.start_at(&format!("{}\n", start.as_nanos()))?;
        supervisor.rest((LEAD + self.warmup + self.options.duration + grace).into())
    }

    /// Connects two guests, and runs a sender in the first one and a receiver in the second one.
    /// Returns their outcomes; that of a sender that does not end is empty.
    pub(super) fn load(
        &self,
        connect: impl FnOnce(&mut Supervisor<'_>) -> Result<(), LabError>,
        sender: Work,
        receiver: Work,
    ) -> Result<[Outcome; 2], LabError> {
        let mut supervisor = self.session.supervisor();
        connect(&mut supervisor)?;
        let first = supervisor.len();
        let arrived = self.start_task(&mut supervisor, 2, receiver, self.grace)?;
        supervisor.wait_ready(first)?;
        let ends = sender.ends();
        let sent = self.start_task(&mut supervisor, 1, sender, self.grace)?;
        self.rest(&mut supervisor, first, self.grace)?;
        let arrived = outcome(&mut supervisor, &arrived)?;
        let sent = if ends {
            outcome(&mut supervisor, &sent)?
        } else {
            Outcome::default()
        };
        supervisor.end()?;
        remove_namespaces()?;
        Ok([sent, arrived])
    }
}

/// Waits for the outcome of a task.
pub(super) fn outcome(supervisor: &mut Supervisor<'_>, path: &Path) -> Result<Outcome, LabError> {
    while !path.exists() {
        supervisor.rest(POLL)?;
    }
    Outcome::read(path)
}

pub(super) fn guest_name(number: u8) -> String {
    Guest::alone(number).name
}

pub(super) fn add_namespace(name: &str) -> Result<(), LabError> {
    batch("ip", None, &format!("netns add {name}\n"))
}

/// Removes all namespaces of a measurement, and with them all interfaces.
pub(super) fn remove_namespaces() -> Result<(), LabError> {
    let all = namespace_path("");
    let entries = std::fs::read_dir(&all).map_err(LabError::file("reading", &all))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let delete = names.map(|name| format!("netns del {name}\n"));
    batch("ip", None, &delete.collect::<String>())
}

/// Makes a veth pair between an interface and `portN` in the middle.
pub(super) fn connect(number: u8, netns: &str, interface: &str) -> Result<(), LabError> {
    let pair = format!(
        "link add {interface} netns {netns} type veth peer name port{number} netns {MIDDLE}\n"
    );
    batch("ip", None, &pair)?;
    batch("ip", Some(MIDDLE), &format!("link set port{number} up\n"))
}

/// Makes a guest behind a TAP, or behind a veth pair whose other end is in the middle. It has no
/// static entries for MAC addresses, because a daemon learns of the receiver by its replies.
pub(super) fn add_guest(number: u8, port: GuestPort) -> Result<(), LabError> {
    let topology = Topology::without_hosts(vec![Guest::alone(number)], port);
    for guest in &topology.guests {
        add_namespace(&guest.name)?;
        if port == GuestPort::Veth {
            connect(number, &guest.name, GUEST_INTERFACE)?;
        }
        batch("ip", Some(&guest.name), &topology.guest_links(guest))?;
    }
    Ok(())
}

/// Makes a bridge of both ports in the middle.
pub(super) fn bridge() -> Result<(), LabError> {
    let commands = "\
        link add bridge type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n\
        link set port1 master bridge up\n\
        link set port2 master bridge up\n\
        link set bridge up\n";
    batch("ip", Some(MIDDLE), commands)
}

/// Returns the port of a guest behind a TAP, for a daemon's configuration.
pub(super) fn tap_port(number: u8) -> String {
    let netns = namespace_path(&guest_name(number));
    let netns = netns.display();
    format!("kind = \"tap\", interface = \"{GUEST_INTERFACE}\", netns = \"{netns}\"")
}

/// Returns a guest with this port and more keys, for a daemon's configuration.
pub(super) fn guest_config(number: u8, port: &str, more: &str) -> String {
    let guest = Guest::alone(number);
    let mac = guest.mac_text();
    let Guest { name, ip, .. } = guest;
    format!(
        "[[guest]]\nname = \"{name}\"\nmac = \"{mac}\"\nip = [\"{ip}\"]\nport = {{ {port} }}\n{more}"
    )
}
