//! Opens a port from its configuration.

mod forwarded;

use super::inherit::InheritedPorts;
use crate::config::PortConfig;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;
use tailbound_ports::{AfPacketPort, AfXdpError, AfXdpPort, TapPort};
use tailbound_switch::Mac;
use tailbound_switch::port::{CapturedPort, PcapError, PcapPort, Port};
use tailbound_sys::packet::PacketError;
use tailbound_sys::tap::TapError;
use tailbound_sys::veth::{self, OtherEnd, Place};
use tailbound_sys::{link, memory};
use tailbound_units::Bytes;
use tailbound_vhost::{Allowance, Charges, VhostConfig, VhostPort};

/// Reason why a port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The TAP cannot be opened.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// The interface's packet sockets cannot be opened.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// The interface's `AF_XDP` sockets cannot be opened.
    #[error(transparent)]
    Xdp(#[from] AfXdpError),
    /// The VM's card cannot be opened.
    #[error(transparent)]
    Vhost(#[from] tailbound_vhost::OpenError),
    /// The capture cannot be opened.
    #[error(transparent)]
    Pcap(#[from] PcapError),
    /// The kernel forwards its frames, too.
    #[error(transparent)]
    Forwarded(#[from] forwarded::ForwardedBy),
    /// Received packets could not be segmented.
    #[error(
        "the other end of {interface:?} leaves the segmentation of tunnelled packets to this \
            end, which does not support it, and the offload cannot be disabled; run `{command}`"
    )]
    Tunnels {
        /// The interface.
        interface: String,
        /// The command that solves the problem.
        command: String,
    },
    /// Received packets might be impossible to segment; the interface's offloads are unknown.
    #[error(
        "the other end of {interface:?} may leave the segmentation of tunnelled packets to this \
            end, which does not support it, and its offloads cannot be queried: {why}; run \
            `{command}` there, and set `cuts_tunnels = true` for the port"
    )]
    Unasked {
        /// The interface.
        interface: String,
        /// The reason why the offloads cannot be queried.
        why: String,
        /// The command that solves the problem.
        command: String,
    },
}

/// A veth whose other end must segment tunnelled packets itself.
#[derive(Debug)]
struct Veth {
    interface: String,
    netns: Option<PathBuf>,
    /// True if the configuration declares that the other end does so.
    is_said: bool,
}

impl Veth {
    /// Returns the port as a veth if it may be one.
    fn of(config: &PortConfig) -> Option<Self> {
        let (PortConfig::AfPacket {
            interface,
            netns,
            cuts_tunnels,
            ..
        }
        | PortConfig::AfXdp {
            interface,
            netns,
            cuts_tunnels,
            ..
        }) = config
        else {
            return None;
        };
        Some(Self {
            interface: interface.clone(),
            netns: netns.clone(),
            is_said: *cuts_tunnels,
        })
    }

    /// Disables the offload at the other end if a packet socket cannot hand over its packets.
    fn leave_no_tunnels(&self) -> Result<(), OpenError> {
        let interface = self.interface.clone();
        let unasked = |why: String, netns: Option<PathBuf>, name: &str| OpenError::Unasked {
            interface: interface.clone(),
            why,
            command: Place {
                netns,
                interface: name.to_owned(),
            }
            .command(),
        };
        let outcome = veth::switch_off(&self.interface, self.netns.as_deref());
        let unknown = match outcome {
            Ok(OtherEnd::None | OtherEnd::Cuts) => return Ok(()),
            Ok(OtherEnd::Leaves(place)) => {
                let command = place.command();
                return Err(OpenError::Tunnels { interface, command });
            }
            Ok(OtherEnd::Unseen { index, netns }) => {
                let how = match netns {
                    None => "is not seen from here",
                    Some(_) => "may not be entered (CAP_SYS_ADMIN)",
                };
                let why = format!("it is number {index} of a network namespace that {how}");
                unasked(why, netns, "NAME")
            }
            Err(error) => unasked(error.to_string(), None, "NAME"),
        };
        if self.is_said {
            tracing::debug!(why = %unknown, "its configuration declares that the other end \
                segments");
            return Ok(());
        }
        Err(unknown)
    }
}

/// Checks ports that are in use already, as they were inherited or are back, in the way in which
/// others are checked before. The check runs on a thread: it takes milliseconds, and frames are
/// forwarded meanwhile.
pub(super) fn review<'p>(ports: impl Iterator<Item = &'p PortConfig>) {
    let ports: Vec<_> = ports.cloned().collect();
    let veths: Vec<_> = ports.iter().filter_map(Veth::of).collect();
    if ports.is_empty() {
        return;
    }
    let thread = std::thread::Builder::new().name("tunnels".to_owned());
    let reviewing = thread.spawn(move || {
        for port in ports {
            // Guests and uplinks alike: an address alone is known too late to be refused.
            if let Err(error) = forwarded::check(&port, Side::Uplink) {
                tracing::error!(%error, "until then its frames are forwarded twice");
            }
        }
        for veth in veths {
            if let Err(error) = veth.leave_no_tunnels() {
                tracing::error!(%error, "until then such packets are dropped and counted");
            }
        }
    });
    if let Err(error) = reviewing {
        tracing::error!(%error, "cannot query the offloads of veths' other ends");
    }
}

/// Time of the checks of an interface and of a veth's other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OffloadCheck {
    /// Before the port is used. A port with the offload is not opened.
    Before,
    /// By [`review`], because the packet loop is waiting.
    Later,
}

impl OffloadCheck {
    fn ask(self, config: &PortConfig) -> Result<(), OpenError> {
        let veth = Veth::of(config).filter(|_| self == Self::Before);
        veth.map_or(Ok(()), |veth| veth.leave_no_tunnels())
    }

    fn forwarded(self, config: &PortConfig, side: Side) -> Result<(), OpenError> {
        match self {
            Self::Before => Ok(forwarded::check(config, side)?),
            Self::Later => Ok(()),
        }
    }
}

/// Limits an interface's transmit queue to `packets`.
fn bound_queue(interface: &str, netns: Option<&Path>, packets: u32) -> Result<(), OpenError> {
    let set = link::set_queue_length(interface, netns, packets);
    set.map_err(|source| {
        OpenError::Packet(PacketError::Other {
            interface: interface.to_owned(),
            step: "set `txqueuelen`",
            source,
        })
    })
}

/// The owner of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The uplink of the host.
    Uplink,
    /// The guest with this address.
    Guest(Mac),
}

impl Side {
    const fn mac(self) -> Option<Mac> {
        match self {
            Self::Uplink => None,
            Self::Guest(mac) => Some(mac),
        }
    }
}

/// The circumstances in which a port is opened, beside its configuration.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenContext {
    pub(super) side: Side,
    /// The CPU that the packet loop is bound to.
    pub(super) cpu: Option<u32>,
    /// The time of day at the clock's zero, for captures.
    pub(super) epoch: Duration,
}

/// The memory that the system charges to this process.
struct OwnGroup;

impl Charges for OwnGroup {
    fn limit(&mut self) -> Option<Bytes> {
        memory::limit()
    }

    fn charged(&mut self) -> Option<Bytes> {
        memory::charged_of_shared()
    }
}

/// Returns the allowance of all cards of this process; `None` if it had no limit when it began.
fn allowance() -> Option<&'static Allowance> {
    static ALLOWANCE: OnceLock<Option<Allowance>> = OnceLock::new();
    let start = || {
        memory::limit()?;
        let started = Allowance::start(OwnGroup);
        if let Err(error) = &started {
            tracing::warn!(%error, "nothing limits what guests' memory is charged to this process");
        }
        started.ok()
    };
    ALLOWANCE.get_or_init(start).as_ref()
}

/// Opens a packet socket, or continues with the `inherited` one.
fn open_packet(
    config: &PortConfig,
    OpenContext { side, cpu, .. }: OpenContext,
    inherited: &mut InheritedPorts,
    offload_check: OffloadCheck,
) -> Result<AfPacketPort, OpenError> {
    let PortConfig::AfPacket {
        interface,
        netns,
        txqueuelen,
        rps,
        cuts_tunnels: _,
    } = config
    else {
        unreachable!("it is asked for packet sockets alone");
    };
    let netns = netns.as_deref();
    let adopted = inherited.take(config, |fd| AfPacketPort::adopt(fd, interface, netns));
    let port = if let Some(port) = adopted {
        port
    } else {
        offload_check.forwarded(config, side)?;
        let port = AfPacketPort::open(interface, netns)?;
        offload_check.ask(config)?;
        port
    };
    if let Some(packets) = *txqueuelen {
        bound_queue(interface, netns, packets)?;
    }
    if *rps && side != Side::Uplink {
        let netns = netns.map(Path::to_owned);
        port.steer(interface.clone(), netns, cpu);
    }
    Ok(port)
}

/// Opens a port, or continues with the descriptor that was `inherited` for it. A TAP that is
/// created here gets the guest's address.
pub(super) fn open(
    config: &PortConfig,
    opening: OpenContext,
    inherited: &mut InheritedPorts,
    offload_check: OffloadCheck,
) -> Result<Box<dyn Port>, OpenError> {
    let OpenContext { side, epoch, .. } = opening;
    Ok(match config {
        PortConfig::Tap { interface, netns } => {
            let netns = netns.as_deref();
            let adopted = inherited.take(config, |fd| TapPort::adopt(fd, interface, netns));
            if let Some(port) = adopted {
                Box::new(port)
            } else {
                offload_check.forwarded(config, side)?;
                Box::new(TapPort::open(interface, netns, side.mac())?)
            }
        }
        PortConfig::AfPacket { .. } => {
            Box::new(open_packet(config, opening, inherited, offload_check)?)
        }
        PortConfig::AfXdp {
            interface,
            netns,
            mode,
            queues,
            ..
        } => {
            offload_check.forwarded(config, side)?;
            let port = AfXdpPort::open(interface, netns.as_deref(), *mode, *queues)?;
            offload_check.ask(config)?;
            Box::new(port)
        }
        PortConfig::VhostUser {
            socket,
            mode,
            user,
            queues,
            capture,
        } => {
            let card = VhostConfig {
                allowance: allowance(),
                socket,
                mode: *mode,
                user: *user,
                queues: *queues,
            };
            let adopted = inherited.take_estate(config, |estate| VhostPort::go_on(card, estate));
            let port = Box::new(match adopted {
                Some(port) => port,
                None => VhostPort::open(card)?,
            });
            match capture {
                Some(path) => Box::new(CapturedPort::open(port, path, epoch)?),
                None => port,
            }
        }
        PortConfig::Pcap { read, write } => {
            Box::new(PcapPort::open(read.as_deref(), write.as_deref(), epoch)?)
        }
    })
}
