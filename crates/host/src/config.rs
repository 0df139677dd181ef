//! The host's configuration: what is in the file, and what is wrong with it.
//!
//! [`Config::load`] reads a file whole and reports every mistake it can find,
//! each with its line and column: first all of TOML's own, then one a section
//! where the values have the wrong type or an unknown key, then what contradicts
//! itself. Only a configuration without any is returned.
//!
//! Guests that came by the control socket are part of it as if they stood in the file.

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

pub use added::ChangeError;
pub(crate) use added::{Before, Change, Files, REQUEST, names_in};
pub use error::ConfigError;
pub use limits::{LimitConfig, LimitError};

use crate::hose::HoseConfig;
use crate::port::AfXdpMode;
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
use tailbound_switch::{BudgetConfig, GuardConfig, Mac, Prefix, SpoofFilter};
use tailbound_units::{Bytes, Rate};
use tailbound_vhost::Mode;

/// What a host forwards for whom.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// Where metrics are served; not at all by default.
    pub metrics: Option<SocketAddr>,
    /// The collector that is told them by OTLP; none by default.
    pub otlp: Option<Endpoint>,
    /// The classes of the fabric behind the uplink; `None` for a host that gives frames
    /// no class.
    pub classes: Option<Classes>,
    /// The way out; a host without one only connects its guests.
    pub uplink: Option<UplinkConfig>,
    /// The guests.
    pub guests: Vec<GuestConfig>,
    /// The CPU that the packet loop has to itself as far as this program goes;
    /// any by default.
    pub cpu: Option<u32>,
    /// The scheduling class of the packet loop; a real-time one if the system permits it.
    pub loop_class: LoopClass,
    /// The vCPU agent; none by default.
    pub vcpu: Option<AgentConfig>,
    /// The exchange of rates with other hosts; none by default.
    pub hose: Option<HoseConfig>,
    /// The file that keeps guests that came by the control socket; one of the
    /// configuration's name in the state directory by default.
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
    /// The same, and an error if the system refuses it.
    Fifo,
    /// The class of the process.
    Share,
}

/// The way out of the host.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UplinkConfig {
    /// Where it is.
    pub port: PortConfig,
    /// The way of a packet to it; a FIFO of 1000 packets by default. With a
    /// `pacer` only its meter counts.
    #[serde(default)]
    pub pipeline: PipelineConfig,
    /// Paces guests to what they are guaranteed; nothing by default.
    #[serde(default)]
    pub pacer: Option<PacerConfig>,
    /// Whether a frame without a VLAN tag gets one of VLAN 0 (IEEE 802.1Q, 6.9:
    /// a priority tag), so that switches that look at no DSCP know its class.
    /// False by default.
    #[serde(default)]
    pub priority_tag: bool,
    /// A budget for frames from outside to groups (broadcast and multicast), each copy
    /// counted; 100 Mbit/s and 12.5 MB by default.
    #[serde(default = "outside_groups")]
    pub groups: BudgetConfig,
}

/// A guest.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestConfig {
    /// Its name in logs and metrics.
    pub name: String,
    /// Its MAC address.
    pub mac: Mac,
    /// Its IP addresses and prefixes, nobody else's. IPv6 link-local addresses need
    /// not be listed.
    #[serde(default)]
    pub ip: Vec<Prefix>,
    /// Prefixes in which it chooses IPv6 addresses by itself; several guests may have
    /// the same. None by default.
    #[serde(default)]
    pub slaac: Vec<Prefix>,
    /// How many addresses it may choose at once, link-local ones among them; 16 by
    /// default.
    #[serde(default = "chosen_addresses")]
    pub chosen_addresses: usize,
    /// Whether it hands out addresses (DHCP); false by default.
    #[serde(default)]
    pub dhcp_server: bool,
    /// Its roles in the network beside a station's; none by default.
    #[serde(default)]
    pub guard: GuardConfig,
    /// What it may send to groups (broadcast and multicast), each copy counted;
    /// 10 Mbit/s by default.
    #[serde(default)]
    pub groups: BudgetConfig,
    /// What it may send to addresses that nobody is known to have; 10 Mbit/s by
    /// default.
    #[serde(default)]
    pub unknown: BudgetConfig,
    /// Which machine of the placement service it is; none, without a promise, by
    /// default.
    #[serde(default)]
    pub vm: Option<VmName>,
    /// What it is guaranteed on the uplink, unless the placement service knows its
    /// machine: then that service's word counts. Nothing by default.
    #[serde(default)]
    pub guarantee: Option<Guarantee>,
    /// What it may send and be sent at most; any amount by default.
    #[serde(default)]
    pub limit: Option<LimitConfig>,
    /// Where it is.
    pub port: PortConfig,
    /// Whether it may send in its own name only; true by default.
    #[serde(default = "yes")]
    pub anti_spoofing: bool,
    /// The way of a packet to it; by default a FIFO of 1000 packets, or FQ-CoDel where
    /// other hosts are told what may come for it (`hose`, `vm`), or that has a limit.
    #[serde(default)]
    pub pipeline: Option<PipelineConfig>,
    /// How far TCP is acknowledged in its place, while it waits for its CPU: `"retaining"`,
    /// `"strict"` or all of a [`SnoopConfig`]; not at all by default.
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

/// Where frames come from and go to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum PortConfig {
    /// A TAP, which is made where there is none yet.
    Tap {
        /// Its name.
        interface: String,
        /// The network namespace it lives in, as a file; the daemon's own by
        /// default.
        netns: Option<PathBuf>,
    },
    /// An interface that exists and is up.
    AfPacket {
        /// Its name.
        interface: String,
        /// The network namespace it lives in, as a file; the daemon's own by
        /// default.
        netns: Option<PathBuf>,
        /// Whether the other end of a veth cuts packets inside of tunnels by itself, though
        /// the daemon cannot ask it; false by default.
        #[serde(default)]
        cuts_tunnels: bool,
        /// How many packets the interface holds that it has not sent; as many as it does by
        /// default.
        txqueuelen: Option<u32>,
        /// True: the other end of a guest's veth receives on other CPUs than the packet
        /// loop's (receive packet steering), unless it names CPUs itself; true by default.
        #[serde(default = "yes")]
        rps: bool,
    },
    /// An interface that exists and is up, past the kernel's stack.
    AfXdp {
        /// Its name.
        interface: String,
        /// The network namespace it lives in, as a file; the daemon's own by
        /// default.
        netns: Option<PathBuf>,
        /// Whether the NIC is to use the sockets' memory itself; where it can, by
        /// default.
        #[serde(default)]
        mode: AfXdpMode,
        /// How many of its receive queues are read; all by default.
        queues: Option<u32>,
        /// Whether the other end of a veth cuts packets inside of tunnels by itself, though
        /// the daemon cannot ask it; false by default.
        #[serde(default)]
        cuts_tunnels: bool,
    },
    /// The network card of a virtual machine, by vhost-user.
    VhostUser {
        /// The socket that the machine's monitor is spoken to by.
        socket: PathBuf,
        /// Whether the socket is made here, and the monitor connects, or the other way
        /// about; made here by default.
        #[serde(default)]
        mode: Mode,
        /// The user that the monitor runs as, by number, where that is neither the
        /// daemon's own nor root.
        user: Option<u32>,
        /// Pairs of queues that the guest may use; 1 by default.
        #[serde(default = "one")]
        queues: usize,
        /// Gets the start of each frame that passes the card, both ways; none by default.
        capture: Option<PathBuf>,
    },
    /// Captures in place of an interface.
    Pcap {
        /// Replayed, once, at the spacing it was captured with.
        read: Option<PathBuf>,
        /// Gets what is sent.
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
    /// Reads a configuration: its file, and the guests that were added to it.
    ///
    /// # Errors
    /// All mistakes found.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Files::read(path)?.parse()
    }

    /// Reads a configuration's file alone, whoever was added to it.
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

    /// Whether rates are exchanged for a guest: for machines alone.
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

    /// The same without a limit in, for a guest that has one or not.
    fn open_pipeline_of(&self, guest: &GuestConfig, is_limited: bool) -> PipelineConfig {
        guest.pipeline.clone().unwrap_or_else(|| PipelineConfig {
            queue: if self.is_in_hose(guest) || is_limited {
                // What exceeds its senders' guarantees is served below those, and what waits
                // for a limit, fairly.
                QueueConfig::FqCodel(FqCodelConfig::default())
            } else {
                QueueConfig::default()
            },
            ..PipelineConfig::default()
        })
    }

    /// That with what follows from the whole configuration.
    pub(crate) fn way_to(&self, guest: &GuestConfig, is_limited: bool) -> PipelineConfig {
        let pipeline = self.open_pipeline_of(guest, is_limited);
        let link = pipeline.nic.as_ref().map(|nic| nic.rate);
        // Between guests a frame keeps its marks, unless it is metered.
        self.classified(&pipeline, link, pipeline.meter.is_some())
    }

    /// In one line: what this host connects.
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
