//! The state of a host: what a plan is made from, and the calls that change it.

use super::mac::Mac;
use super::request::UplinkQueue;
use super::step::{Port, Rules};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

/// The programs of tailbound on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attached {
    /// The programs of an uplink.
    Uplink,
    /// The programs of a guest.
    Guest,
}

/// The length of a queue that the kernel chooses for a device without one (`DEFAULT_TX_QUEUE_LEN`).
pub const DEFAULT_LENGTH: u32 = 1_000;

/// The party that attached a queueing discipline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueOrigin {
    /// The kernel, by default.
    Kernel,
    /// An administrator or another program.
    Administrator,
    /// Tailbound.
    Tailbound,
}

/// A device of the host's network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortState {
    /// Its index, name and MAC address.
    pub port: Port,
    /// Its kind, such as `veth`, `tun`, `bond`; `None` for hardware.
    pub kind: Option<String>,
    /// True for the loopback.
    pub is_loopback: bool,
    /// The device that it is a port of.
    pub master: Option<u32>,
    /// The device of this namespace that it is on top of.
    pub parent: Option<u32>,
    /// An XDP program.
    pub xdp: Option<u32>,
    /// The kind of its own queueing discipline.
    pub qdisc: String,
    /// The party that attached that discipline.
    pub origin: QueueOrigin,
    /// The length of its queue, in packets; the kernel makes 0 to [`DEFAULT_LENGTH`] with a
    /// discipline.
    pub queue_length: u32,
    /// True if it has a `clsact`.
    pub clsact: bool,
    /// The kinds of classifiers of other programs at its `clsact` or `ingress`.
    pub classifiers: Vec<String>,
    /// The programs of tailbound.
    pub attached: Option<Attached>,
}

impl PortState {
    /// Returns true if its queueing discipline is tailbound's `fq`.
    pub fn is_queue_ours(&self) -> bool {
        self.origin == QueueOrigin::Tailbound
    }
}

/// A guest's station behind a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenStation {
    /// Its MAC address.
    pub mac: Mac,
    /// Its IP addresses, if they are known; empty if not.
    pub ips: Vec<IpAddr>,
    /// The source of this knowledge, in words.
    pub source: &'static str,
}

/// A guest of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guest {
    /// Its key.
    pub key: String,
    /// Its name.
    pub name: String,
    /// Its kind in one word.
    pub kind: String,
    /// The labels that its starter gave it, if they are known.
    pub labels: BTreeMap<String, String>,
    /// True for a device that belongs to no guest: it is selected by its name only.
    pub is_plain: bool,
    /// The indexes of its devices, with the station behind each, if that is known.
    pub devices: Vec<(u32, Option<SeenStation>)>,
}

/// The abilities of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// True if programs of several owners can be at one device (tcx, Linux 6.6).
    pub tcx: bool,
    /// Why there is no `fq`; only asked for if a request needs it.
    pub fq: Result<(), String>,
    /// Why there are no BPF qdiscs; only asked for if a request wants one.
    pub bpf_qdisc: Result<(), String>,
}

/// The state of a host, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct World {
    /// The boot's identifier.
    pub boot: String,
    /// The number of the network namespace.
    pub namespace: u64,
    /// The devices of the network namespace, by index.
    pub ports: BTreeMap<u32, PortState>,
    /// The guests, by key.
    pub guests: Vec<Guest>,
    /// The process that forwards a device's frames itself, by the device's index.
    pub driven: BTreeMap<u32, String>,
    /// The device of the default route.
    pub default_device: Option<u32>,
    /// The kernel.
    pub kernel: Kernel,
}

impl World {
    /// Returns the device of this name.
    pub fn port_named(&self, name: &str) -> Option<&PortState> {
        let mut ports = self.ports.values();
        ports.find(|port| port.port.name == name)
    }
}

/// A call that failed.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {source}")]
pub struct HostError {
    /// The call, in words.
    pub doing: String,
    /// The system's error.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

impl HostError {
    /// Names the call of an error.
    pub fn new(
        doing: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self {
            doing: doing.into(),
            source: source.into(),
        }
    }
}

impl From<io::Error> for HostError {
    fn from(error: io::Error) -> Self {
        Self::new("the host cannot be read", error)
    }
}

/// The few calls by which a host is changed. Each does its whole work or nothing, unless the process
/// is killed.
pub trait Host {
    /// Reads one device; `None` if there is none of this index.
    ///
    /// # Errors
    /// The kernel cannot be queried.
    fn port(&mut self, index: u32) -> Result<Option<PortState>, HostError>;
    /// Attaches the programs and the queue of an uplink, or sets the mark of present ones.
    ///
    /// # Errors
    /// The kernel refuses; nothing has changed.
    fn attach_uplink(&mut self, index: u32, mark: u32, queue: UplinkQueue)
    -> Result<(), HostError>;
    /// Attaches the programs and, if a limit needs it, the queue of a guest's device; or sets the rules
    /// of present ones.
    ///
    /// # Errors
    /// The kernel refuses; nothing has changed.
    fn attach_guest(&mut self, index: u32, rules: &Rules) -> Result<(), HostError>;
    /// Detaches programs and queue of a device, which may be gone.
    ///
    /// # Errors
    /// The kernel refuses.
    fn detach(&mut self, index: u32) -> Result<(), HostError>;
    /// Removes tailbound's `fq` from a device that lost its programs otherwise.
    ///
    /// # Errors
    /// The kernel refuses.
    fn remove_queue(&mut self, index: u32) -> Result<(), HostError>;
    /// Sets the length of a device's queue.
    ///
    /// # Errors
    /// The kernel refuses.
    fn set_queue_length(&mut self, port: &Port, packets: u32) -> Result<(), HostError>;
    /// Removes a `clsact` without classifiers.
    ///
    /// # Errors
    /// The kernel refuses.
    fn remove_clsact(&mut self, index: u32) -> Result<(), HostError>;
    /// Removes what no device needs any more: pinned programs and maps.
    ///
    /// # Errors
    /// The kernel refuses.
    fn finish(&mut self) -> Result<(), HostError>;
}
