//! Configuration of the host: the content of the file, and its mistakes.
//!
//! [`Config::load`] reads a complete file and reports every mistake that it can find, each with its
//! line and column: first all of TOML's own, then one for each section with values of the wrong
//! type or an unknown key, then contradictions. Only a configuration without mistakes is returned.
//!
//! Guests added over the control socket are part of the configuration, as if the file named them.

mod added;
mod check;
mod classes;
mod draft;
mod error;
mod guard;
mod limits;
mod memory;
mod pacing;
mod snoop;
mod sources;
mod unread;

pub use added::ChangeError;
pub(crate) use added::{Before, Change, Files, REQUEST, names_in};
pub use error::ConfigError;
pub use limits::{LimitConfig, LimitError};

use crate::hose::HoseConfig;
use draft::Draft;
use serde::Deserialize;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tailbound_agent::AgentConfig;
use tailbound_api::VmName;
use tailbound_dataplane::{
    Classes, FqCodelConfig, Guarantee, PacerConfig, PipelineConfig, QueueConfig, SnoopConfig,
};
use tailbound_document::{Document, DocumentError, Mistake};
use tailbound_otlp::Endpoint;
use tailbound_ports::AfXdpMode;
use tailbound_switch::{BudgetConfig, GuardConfig, Mac, Prefix, SpoofFilter};
use tailbound_units::{Bytes, Rate};
use tailbound_vhost::Mode;

/// The configuration of a host: its guests, its uplink and its services.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// Loopback address and port of the metrics; none.
    pub metrics: Option<SocketAddr>,
    /// OpenTelemetry collector of the metrics (OTLP); none.
    pub otlp: Option<Endpoint>,
    /// Priority classes of the network and their marks; `guarantees-first` with a pacer,
    /// `small-flows-first` with a meter, otherwise none.
    pub classes: Option<Classes>,
    /// Uplink. Without one the host only connects its guests.
    pub uplink: Option<UplinkConfig>,
    /// Guests.
    pub guests: Vec<GuestConfig>,
    /// CPU of the packet loop; any. The daemon's other threads avoid it if they can.
    pub cpu: Option<u32>,
    /// Class of the packet loop. `auto`, the default: `SCHED_FIFO` at the lowest priority if
    /// permitted (`CAP_SYS_NICE`, or `RLIMIT_RTPRIO` of 1); a real-time class stays. `fifo`: the
    /// same, or an error. `share`: that of the process.
    pub loop_class: LoopClass,
    /// vCPU agent; none.
    pub vcpu: Option<AgentConfig>,
    /// Exchange of rates with other hosts; none.
    pub hose: Option<HoseConfig>,
    /// File of guests that the control socket added; in `/var/lib/tailbound` (systemd:
    /// `$STATE_DIRECTORY`), named after the configuration.
    pub added: Option<PathBuf>,
}

/// The scheduling class of the packet loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoopClass {
    /// `SCHED_FIFO` of the lowest priority if the system permits it, else the class of the process.
    /// A class that is real time already stays.
    #[default]
    Auto,
    /// As `auto`, but an error if the system refuses the class.
    Fifo,
    /// The class of the process.
    Share,
}

/// The port to other hosts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UplinkConfig {
    /// The interface or socket.
    pub port: PortConfig,
    /// Pipeline to the uplink; a FIFO of 1,000 packets. With a `pacer` it may only have a `meter`.
    #[serde(default)]
    pub pipeline: PipelineConfig,
    /// Paces guests to their guarantees; none.
    #[serde(default)]
    pub pacer: Option<PacerConfig>,
    /// Adds a priority tag (802.1Q, VLAN 0) with the class's PCP, for switches that ignore DSCP;
    /// false. Needs a pacer.
    #[serde(default)]
    pub priority_tag: bool,
    /// Token bucket of broadcast and multicast frames from the uplink; 100 Mbit/s and 12.5 MB.
    #[serde(default = "outside_groups")]
    pub groups: BudgetConfig,
}

/// A VM or container.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestConfig {
    /// Label in metrics: 1 to 64 letters, digits, `-`, `_`, `.`; unique; not `uplink`.
    pub name: String,
    /// MAC address; unique.
    pub mac: Mac,
    /// Addresses and prefixes of this guest alone. `anti_spoofing` requires `ip` or `slaac`.
    /// Link-local addresses need no entry.
    #[serde(default)]
    pub ip: Vec<Prefix>,
    /// IPv6 prefixes of 64 bits for addresses that the guest configures itself (SLAAC); none.
    /// Guests may share them.
    #[serde(default)]
    pub slaac: Vec<Prefix>,
    /// Maximum of simultaneous autoconfigured addresses, with link-local ones, 1 to 256; 16.
    #[serde(default = "chosen_addresses")]
    pub chosen_addresses: usize,
    /// Permits a DHCP server (IPv4 and IPv6); false.
    #[serde(default)]
    pub dhcp_server: bool,
    /// Further permitted roles; none.
    #[serde(default)]
    pub guard: GuardConfig,
    /// Token bucket of broadcast and multicast frames; 10 Mbit/s and 1.25 MB.
    #[serde(default)]
    pub groups: BudgetConfig,
    /// Token bucket of frames to unknown MAC addresses; 10 Mbit/s and 1.25 MB.
    #[serde(default)]
    pub unknown: BudgetConfig,
    /// VM in the placement service; unique. Without it, the service promises nothing.
    #[serde(default)]
    pub vm: Option<VmName>,
    /// Guarantee on the uplink; best effort. The service's guarantee for a known `vm` replaces it.
    #[serde(default)]
    pub guarantee: Option<Guarantee>,
    /// Rate limits in both directions; none.
    #[serde(default)]
    pub limit: Option<LimitConfig>,
    /// The interface or socket.
    pub port: PortConfig,
    /// Drops frames with other sources than the guest's addresses; true.
    #[serde(default = "yes")]
    pub anti_spoofing: bool,
    /// Pipeline to the guest; a FIFO of 1,000 packets, or FQ-CoDel with a limit `in`, or with
    /// `hose` and a `vm`.
    #[serde(default)]
    pub pipeline: Option<PipelineConfig>,
    /// Acknowledges TCP while the guest waits for its CPU: `"retaining"`, `"strict"` or a whole
    /// `SnoopConfig`; none. For `vhost-user` ports.
    #[serde(default, deserialize_with = "snoop::read")]
    pub snoop: Option<SnoopConfig>,
}

fn yes() -> bool {
    true
}

/// Some 150,000 copies of the shortest frames in a second: a tenth of a CPU.
fn outside_groups() -> BudgetConfig {
    BudgetConfig {
        rate: Rate::from_mbit(100),
        burst: Bytes(12_500_000),
    }
}

fn chosen_addresses() -> usize {
    SpoofFilter::MOST_ADDRESSES
}

/// An interface or socket of frames.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum PortConfig {
    /// A TAP, created if missing.
    Tap {
        /// Name of the interface.
        interface: String,
        /// The interface's network namespace (`/run/netns/NAME`); the daemon's own.
        netns: Option<PathBuf>,
    },
    /// An existing, enabled interface.
    AfPacket {
        /// Name of the interface.
        interface: String,
        /// The interface's network namespace (`/run/netns/NAME`); the daemon's own.
        netns: Option<PathBuf>,
        /// True: the veth's other end does not segment tunnels, although the daemon cannot check
        /// it; false.
        #[serde(default)]
        cuts_tunnels: bool,
        /// Length of the transmit queue, in packets, 1 to 65,536; unchanged.
        txqueuelen: Option<u32>,
        /// Moves receive work at a veth's other end to other CPUs than the packet loop's, unless it
        /// has a mask; true.
        #[serde(default = "yes")]
        rps: bool,
    },
    /// An existing, enabled interface without the kernel's network stack.
    AfXdp {
        /// Name of the interface.
        interface: String,
        /// The interface's network namespace (`/run/netns/NAME`); the daemon's own.
        netns: Option<PathBuf>,
        /// `"zero-copy"`: the NIC uses the sockets' memory. `"copy"`: the kernel copies. `"auto"`,
        /// the default: the best working mode.
        #[serde(default)]
        mode: AfXdpMode,
        /// Receive queues to read, from queue 0 on; all.
        queues: Option<u32>,
        /// True: the veth's other end does not segment tunnels, although the daemon cannot check
        /// it; false.
        #[serde(default)]
        cuts_tunnels: bool,
    },
    /// The virtio NIC of a VM.
    VhostUser {
        /// Socket to the VMM; a path of at most 96 bytes.
        socket: PathBuf,
        /// `"server"`, the default: the daemon creates the socket; `"client"`: the VMM does.
        #[serde(default)]
        mode: Mode,
        /// UID of the VMM, unless the daemon's or root.
        user: Option<u32>,
        /// Maximum of queue pairs, 1 to 64; 1.
        #[serde(default = "one")]
        queues: usize,
        /// File for each frame's beginning (pcap), both directions; none.
        capture: Option<PathBuf>,
    },
    /// Capture files instead of an interface.
    Pcap {
        /// Capture to replay once, at its own timing.
        read: Option<PathBuf>,
        /// Capture of sent frames, with times in nanoseconds.
        write: Option<PathBuf>,
    },
}

const fn one() -> usize {
    1
}

impl fmt::Display for PortConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, interface, netns) = match self {
            Self::Tap { interface, netns } => ("tap", interface, netns),
            Self::AfPacket {
                interface, netns, ..
            } => ("af-packet", interface, netns),
            Self::AfXdp {
                interface, netns, ..
            } => ("af-xdp", interface, netns),
            Self::VhostUser { socket, .. } => {
                return write!(f, "vhost-user {}", socket.display());
            }
            Self::Pcap { read, write } => {
                let name = |path: &Option<PathBuf>| {
                    path.as_ref()
                        .map_or("-".into(), |path| path.display().to_string())
                };
                return write!(f, "pcap {} > {}", name(read), name(write));
            }
        };
        write!(f, "{kind} {interface}")?;
        match netns {
            Some(netns) => write!(f, " in {}", netns.display()),
            None => Ok(()),
        }
    }
}

impl Config {
    /// Reads a configuration: its file, and the added guests.
    ///
    /// # Errors
    /// All mistakes found.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Files::read(path)?.parse()
    }

    /// Reads a configuration's file alone, without the added guests.
    ///
    /// # Errors
    /// All mistakes found.
    pub fn load_file(path: &Path) -> Result<Self, ConfigError> {
        Ok(DocumentError::load(path, Self::parse)?)
    }

    /// Reads a configuration from its text.
    ///
    /// # Errors
    /// All mistakes found, in the order of their place; at least one.
    pub fn parse(text: &str) -> Result<Self, Vec<Mistake>> {
        let document = Document::parse(text)?;
        let (draft, mut mistakes) = Draft::read(&document);
        mistakes.extend(document.locate(check::check(&draft)));
        if mistakes.is_empty() {
            return Ok(draft.into());
        }
        mistakes.sort_by_key(|mistake| mistake.location);
        Err(mistakes)
    }

    /// Returns true if rates are exchanged for the guest: only for VMs of the placement service.
    pub(crate) fn is_in_hose(&self, guest: &GuestConfig) -> bool {
        self.hose.is_some() && guest.vm.is_some()
    }

    /// The way of a packet to a guest, with its limit in the file.
    pub(crate) fn pipeline_of(&self, guest: &GuestConfig) -> PipelineConfig {
        let limit = guest.limit.as_ref().and_then(|limit| limit.inward);
        PipelineConfig {
            limit,
            ..self.open_pipeline_of(guest, limit.is_some())
        }
    }

    /// Returns the same pipeline without a limit in, for a guest with or without a limit.
    fn open_pipeline_of(&self, guest: &GuestConfig, is_limited: bool) -> PipelineConfig {
        guest.pipeline.clone().unwrap_or_else(|| PipelineConfig {
            queue: if self.is_in_hose(guest) || is_limited {
                // Frames beyond their senders' guarantees have a lower priority, and frames that
                // wait for a limit are served fairly.
                QueueConfig::FqCodel(FqCodelConfig::default())
            } else {
                QueueConfig::default()
            },
            ..PipelineConfig::default()
        })
    }

    /// Returns the guest's pipeline with the settings that follow from the whole configuration.
    pub(crate) fn way_to(&self, guest: &GuestConfig, is_limited: bool) -> PipelineConfig {
        let pipeline = self.open_pipeline_of(guest, is_limited);
        let link = pipeline.nic.as_ref().map(|nic| nic.rate);
        // Between guests a frame keeps its marks, unless it is metered.
        self.classified(&pipeline, link, pipeline.meter.is_some())
    }

    /// Summarizes in one line which ports this host connects.
    pub fn summary(&self) -> String {
        let guests = self.guests.len();
        let plural = if guests == 1 { "" } else { "s" };
        match &self.uplink {
            Some(uplink) => format!("{guests} guest{plural}, uplink {}", uplink.port),
            None => format!("{guests} guest{plural}, no uplink"),
        }
    }
}

#[cfg(test)]
mod tests;
