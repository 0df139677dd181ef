//! From a port's configuration to an open port.

use super::inherit::Inherited;
use crate::config::PortConfig;
use crate::port::{AfPacketPort, AfXdpError, AfXdpPort, TapPort};
use std::path::Path;
use std::time::Duration;
use tailbound_switch::Mac;
use tailbound_switch::port::{PcapError, PcapPort, Port};
use tailbound_sys::packet::PacketError;
use tailbound_sys::tap::TapError;
use tailbound_sys::veth::{self, OtherEnd, Place};
use tailbound_vhost::{VhostConfig, VhostPort};

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
        "the other end of {interface:?} leaves it to this one to cut packets inside of tunnels, \
         which is not done here, and does not stop when it is told; run `{command}`"
    )]
    Tunnels {
        /// The interface.
        interface: String,
        /// What mends it.
        command: String,
    },
}

/// Has the other end of a veth cut by itself what a packet socket cannot hand over.
fn leave_no_tunnels(interface: &str, netns: Option<&Path>) -> Result<(), OpenError> {
    match veth::switch_off(interface, netns) {
        Ok(OtherEnd::None | OtherEnd::Cuts) => Ok(()),
        Ok(OtherEnd::Leaves(place)) => Err(OpenError::Tunnels {
            interface: interface.to_owned(),
            command: place.command(),
        }),
        Ok(OtherEnd::Unseen { index }) => {
            let command = Place::somewhere("NAME").command();
            tracing::warn!(
                interface,
                index,
                "the other end is in a network namespace that is not seen here; what it leaves \
                 to be cut inside of tunnels is dropped: run there `{command}`"
            );
            Ok(())
        }
        Err(error) => {
            tracing::warn!(interface, %error, "cannot ask what the other end leaves to be cut");
            Ok(())
        }
    }
}

/// Opens a port, or goes on with the descriptor that was `inherited` for it. A TAP that is
/// made here gets the guest's `mac`; `epoch` is the time of day at the clock's zero, for
/// captures.
pub(super) fn open(
    config: &PortConfig,
    mac: Option<Mac>,
    epoch: Duration,
    inherited: &mut Inherited,
) -> Result<Box<dyn Port>, OpenError> {
    Ok(match config {
        PortConfig::Tap { interface, netns } => {
            let netns = netns.as_deref();
            let adopted = inherited.take(config, |fd| TapPort::adopt(fd, interface, netns));
            match adopted {
                Some(port) => Box::new(port),
                None => Box::new(TapPort::open(interface, netns, mac)?),
            }
        }
        PortConfig::AfPacket { interface, netns } => {
            let netns = netns.as_deref();
            let adopted = inherited.take(config, |fd| AfPacketPort::adopt(fd, interface, netns));
            if let Some(port) = adopted {
                Box::new(port)
            } else {
                let port = AfPacketPort::open(interface, netns)?;
                leave_no_tunnels(interface, netns)?;
                Box::new(port)
            }
        }
        PortConfig::AfXdp {
            interface,
            netns,
            mode,
            queues,
        } => Box::new(AfXdpPort::open(
            interface,
            netns.as_deref(),
            *mode,
            *queues,
        )?),
        PortConfig::VhostUser {
            socket,
            mode,
            user,
            queues,
        } => Box::new(VhostPort::open(VhostConfig {
            socket,
            mode: *mode,
            user: *user,
            queues: *queues,
        })?),
        PortConfig::Pcap { read, write } => {
            Box::new(PcapPort::open(read.as_deref(), write.as_deref(), epoch)?)
        }
    })
}
