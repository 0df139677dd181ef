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

/// The configuration of a host: its guests, its uplink and its services.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// The address that serves Prometheus metrics; none by default.
    pub metrics: Option<SocketAddr>,
    /// The OpenTelemetry collector that receives the metrics by OTLP; none by default.
    pub otlp: Option<Endpoint>,
    /// The priority classes of the network behind the uplink. Without this key, frames get no
    /// class.
    pub classes: Option<Classes>,
    /// The port that leads to other hosts. A host without one only connects its guests.
    pub uplink: Option<UplinkConfig>,
    /// One entry for each guest.
    pub guests: Vec<GuestConfig>,
    /// The CPU to which the packet loop is pinned; not pinned by default. Other programs are not
    /// kept away from it.
    pub cpu: Option<u32>,
    /// The scheduling class of the packet loop: a real-time class if the system permits it by
    /// default.
    pub loop_class: LoopClass,
    /// The vCPU agent; disabled by default.
    pub vcpu: Option<AgentConfig>,
    /// The exchange of rates with other hosts; disabled by default.
    pub hose: Option<HoseConfig>,
    /// The file that stores guests added over the control socket. By default it is in the state
    /// directory and named after the configuration file.
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

/// The port that leads to other hosts, and its queues.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UplinkConfig {
    /// The interface or socket.
    pub port: PortConfig,
    /// The queue in front of the uplink; a FIFO of 1,000 packets by default. With a `pacer`, only
    /// the `meter` applies.
    #[serde(default)]
    pub pipeline: PipelineConfig,
    /// Paces guests to their guarantees; disabled by default.
    #[serde(default)]
    pub pacer: Option<PacerConfig>,
    /// True: frames without a VLAN tag get a priority tag (VLAN 0, IEEE 802.1Q, 6.9), for switches
    /// that ignore the DSCP. False by default.
    #[serde(default)]
    pub priority_tag: bool,
    /// Token bucket for broadcast and multicast frames that arrive from the uplink. Each copy is
    /// charged. 100 Mbit/s and 12.5 MB by default.
    #[serde(default = "outside_groups")]
    pub groups: BudgetConfig,
}

/// A VM or container.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestConfig {
    /// The guest's name in logs and metrics.
    pub name: String,
    /// The guest's MAC address.
    pub mac: Mac,
    /// The guest's IP addresses and prefixes; no other guest may list them. IPv6 link-local
    /// addresses need not be listed.
    #[serde(default)]
    pub ip: Vec<Prefix>,
    /// Prefixes in which the guest may choose IPv6 addresses (SLAAC). Several guests may have the
    /// same prefix. None by default.
    #[serde(default)]
    pub slaac: Vec<Prefix>,
    /// The maximum number of self-chosen IPv6 addresses in use, link-local ones included; 16 by
    /// default.
    #[serde(default = "chosen_addresses")]
    pub chosen_addresses: usize,
    /// True: the guest may act as a DHCP server. False by default.
    #[serde(default)]
    pub dhcp_server: bool,
    /// Network roles that the guest may have beside a plain station's; none by default.
    #[serde(default)]
    pub guard: GuardConfig,
    /// Token bucket for broadcast and multicast frames that the guest sends. Each copy is charged.
    /// 10 Mbit/s by default.
    #[serde(default)]
    pub groups: BudgetConfig,
    /// Token bucket for frames to unknown MAC addresses, which are flooded; 10 Mbit/s by default.
    #[serde(default)]
    pub unknown: BudgetConfig,
    /// The VM of the placement service that this guest is. Without this key, the service promises
    /// the guest nothing.
    #[serde(default)]
    pub vm: Option<VmName>,
    /// The guest's guarantee on the uplink; none by default. If the placement service knows the
    /// guest's `vm`, the service's guarantee applies instead.
    #[serde(default)]
    pub guarantee: Option<Guarantee>,
    /// Rate limits in both directions; unlimited by default.
    #[serde(default)]
    pub limit: Option<LimitConfig>,
    /// The interface or socket.
    pub port: PortConfig,
    /// True: frames with another source MAC or IP address than the guest's are dropped. True by
    /// default.
    #[serde(default = "yes")]
    pub anti_spoofing: bool,
    /// The queue in front of the guest. By default a FIFO of 1,000 packets, or FQ-CoDel for a guest
    /// with a limit or with rates granted to other hosts (`hose`, `vm`).
    #[serde(default)]
    pub pipeline: Option<PipelineConfig>,
    /// Early acknowledgement of TCP while the guest waits for a CPU: `"retaining"`, `"strict"` or a
    /// whole `SnoopConfig`; disabled by default.
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

/// An interface or socket that frames are received from and sent to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum PortConfig {
    /// A TAP device, created if it does not exist.
    Tap {
        /// The interface's name.
        interface: String,
        /// The network namespace of the interface, as a file; the daemon's own by default.
        netns: Option<PathBuf>,
    },
    /// An existing interface that is up, by packet sockets.
    AfPacket {
        /// The interface's name.
        interface: String,
        /// The network namespace of the interface, as a file; the daemon's own by default.
        netns: Option<PathBuf>,
        /// True: the other end of a veth segments tunnelled packets itself, which the daemon cannot
        /// query. False by default.
        #[serde(default)]
        cuts_tunnels: bool,
        /// The length of the interface's transmit queue, in packets; unchanged by default.
        txqueuelen: Option<u32>,
        /// True: receive packet steering moves the receive work of the guest's end of a veth to
        /// CPUs other than the packet loop's, unless the veth already has steering CPUs. True by
        /// default.
        #[serde(default = "yes")]
        rps: bool,
    },
    /// An existing interface that is up, by `AF_XDP` sockets that bypass the kernel's network stack.
    AfXdp {
        /// The interface's name.
        interface: String,
        /// The network namespace of the interface, as a file; the daemon's own by default.
        netns: Option<PathBuf>,
        /// Access to the frames: with `"zero-copy"` the NIC uses the sockets' memory directly. By
        /// default `"auto"`: zero-copy if the driver supports it.
        #[serde(default)]
        mode: AfXdpMode,
        /// The number of receive queues that are read; all by default.
        queues: Option<u32>,
        /// True: the other end of a veth segments tunnelled packets itself, which the daemon cannot
        /// query. False by default.
        #[serde(default)]
        cuts_tunnels: bool,
    },
    /// The virtio NIC of a VM, by vhost-user.
    VhostUser {
        /// The vhost-user socket between the daemon and the VMM.
        socket: PathBuf,
        /// `"server"`: the daemon creates the socket and the VMM connects; `"client"`: the reverse.
        /// `"server"` by default.
        #[serde(default)]
        mode: Mode,
        /// The numeric UID of the VMM, if it is neither the daemon's own nor root.
        user: Option<u32>,
        /// The maximum number of queue pairs; 1 by default.
        #[serde(default = "one")]
        queues: usize,
        /// A pcap file that receives the beginning of each frame in both directions; none by
        /// default.
        capture: Option<PathBuf>,
    },
    /// Capture files instead of an interface.
    Pcap {
        /// The capture that is replayed once, with its original spacing.
        read: Option<PathBuf>,
        /// The capture to which sent frames are written.
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
