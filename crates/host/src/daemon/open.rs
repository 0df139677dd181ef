//! From a port's configuration to an open port.

use super::inherit::Inherited;
use crate::config::PortConfig;
use crate::port::{AfPacketPort, AfXdpError, AfXdpPort, TapPort};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;
use tailbound_switch::Mac;
use tailbound_switch::port::{CapturedPort, PcapError, PcapPort, Port};
use tailbound_sys::packet::PacketError;
use tailbound_sys::tap::TapError;
use tailbound_sys::veth::{self, OtherEnd, Place};
use tailbound_sys::{link, memory};
use tailbound_units::Bytes;
use tailbound_vhost::{Allowance, Charges, VhostConfig, VhostPort};

/// Why a port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A TAP.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// An interface of the host.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// An interface of the host, past its stack.
    #[error(transparent)]
    Xdp(#[from] AfXdpError),
    /// A virtual machine's card.
    #[error(transparent)]
    Vhost(#[from] tailbound_vhost::OpenError),
    /// A capture.
    #[error(transparent)]
    Pcap(#[from] PcapError),
    /// What comes could not be cut.
    #[error(
        "the other end of {interface:?} leaves the segmentation of tunnelled packets to this \
            end, which does not support it, and the offload cannot be disabled; run `{command}`"
    )]
    Tunnels {
        /// The interface.
        interface: String,
        /// What mends it.
        command: String,
    },
    /// Nobody knows whether what comes could be cut.
    #[error(
        "the other end of {interface:?} may leave the segmentation of tunnelled packets to this \
            end, which does not support it, and its offloads cannot be queried: {why}; run \
            `{command}` there, and set `cuts_tunnels = true` for the port"
    )]
    Unasked {
        /// The interface.
        interface: String,
        /// Why not.
        why: String,
        /// What mends it.
        command: String,
    },
}

/// A veth, whose other end is to cut by itself what is inside of tunnels.
#[derive(Debug)]
struct Veth {
    interface: String,
    netns: Option<PathBuf>,
    /// That it does so is said by whoever made it.
    is_said: bool,
}

impl Veth {
    /// What may be one.
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

    /// Has the other end cut by itself what a packet socket cannot hand over.
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
        let found = veth::switch_off(&self.interface, self.netns.as_deref());
        let unknown = match found {
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

/// Asks of ports that are read already, as they go on with descriptors or are back, what
/// others are asked before: on a thread, as that takes a while and each frame counts.
pub(super) fn review<'p>(ports: impl Iterator<Item = &'p PortConfig>) {
    let veths: Vec<_> = ports.filter_map(Veth::of).collect();
    if veths.is_empty() {
        return;
    }
    let thread = std::thread::Builder::new().name("tunnels".to_owned());
    let reviewing = thread.spawn(move || {
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

/// When the other end of a veth is asked what it leaves to be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// Before the port is used, which it is not where tunnels are left to it.
    Before,
    /// By [`review`], as the packet loop is waiting.
    Later,
}

impl Asked {
    fn ask(self, config: &PortConfig) -> Result<(), OpenError> {
        let veth = Veth::of(config).filter(|_| self == Self::Before);
        veth.map_or(Ok(()), |veth| veth.leave_no_tunnels())
    }
}

/// Has an interface hold at most so many packets that wait to be sent.
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
    /// The way out of the host.
    Uplink,
    /// Of the guest with this address.
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
pub(super) struct Opening {
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

/// The allowance of all cards of this process; `None` if it had no limit when it began.
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

/// Opens a packet socket, or goes on with the one that was `inherited`.
fn open_packet(
    config: &PortConfig,
    Opening { side, cpu, .. }: Opening,
    inherited: &mut Inherited,
    asked: Asked,
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
        let port = AfPacketPort::open(interface, netns)?;
        asked.ask(config)?;
        port
    };
    if let Some(packets) = *txqueuelen {
        bound_queue(interface, netns, packets)?;
    }
    if *rps && side != Side::Uplink {
        let netns = netns.map(Path::to_owned);
        port.steered().begin(interface.clone(), netns, cpu);
    }
    Ok(port)
}

/// Opens a port, or goes on with the descriptor that was `inherited` for it. A TAP that is
/// made here gets the guest's address.
pub(super) fn open(
    config: &PortConfig,
    opening: Opening,
    inherited: &mut Inherited,
    asked: Asked,
) -> Result<Box<dyn Port>, OpenError> {
    let Opening { side, epoch, .. } = opening;
    Ok(match config {
        PortConfig::Tap { interface, netns } => {
            let netns = netns.as_deref();
            let adopted = inherited.take(config, |fd| TapPort::adopt(fd, interface, netns));
            match adopted {
                Some(port) => Box::new(port),
                None => Box::new(TapPort::open(interface, netns, side.mac())?),
            }
        }
        PortConfig::AfPacket { .. } => Box::new(open_packet(config, opening, inherited, asked)?),
        PortConfig::AfXdp {
            interface,
            netns,
            mode,
            queues,
            ..
        } => {
            let port = AfXdpPort::open(interface, netns.as_deref(), *mode, *queues)?;
            asked.ask(config)?;
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
