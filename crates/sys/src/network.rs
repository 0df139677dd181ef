//! The state of this thread's network namespace that `tailbound adopt` depends on: devices with
//! their masters, queueing disciplines, classifiers, addresses, the default route and learned
//! stations ([`read`](self)); and the one thing that it sets by rtnetlink, the [`queue`] of a
//! device. Reading needs no privilege, changes need `CAP_NET_ADMIN`.

mod events;
mod forwarding;
pub mod queue;
mod read;

use std::net::IpAddr;

pub use events::LinkEvents;
pub use forwarding::{Forwarding, forwarding};
pub use read::{
    addresses, classifiers, default_device, devices, learned, namespace, qdiscs, station,
};

/// A MAC address.
pub type Mac = [u8; 6];

/// A device of this network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its kind, such as `veth`, `tun`, `bond`, `vlan`; `None` for hardware and the loopback.
    pub kind: Option<String>,
    /// The index of the device that it is a port of: a bridge, a bond, a VRF, Open vSwitch.
    pub master: Option<u32>,
    /// The index of its parent or its other end, which may be in another namespace.
    pub other: Option<u32>,
    /// True if `other` is an index of another namespace.
    pub is_other_elsewhere: bool,
    /// Its MAC address; `None` if it has none of 6 bytes.
    pub mac: Option<Mac>,
    /// True if an administrator enabled it.
    pub is_up: bool,
    /// True for the loopback.
    pub is_loopback: bool,
    /// The number of an attached XDP program.
    pub xdp: Option<u32>,
    /// The number of its transmit queues, at least 1.
    pub queues: u32,
    /// The length of a transmit queue, in packets.
    pub queue_length: u32,
}

/// A queueing discipline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qdisc {
    /// The device's index.
    pub index: u32,
    /// Its kind, such as `noqueue`, `fq`, `clsact`.
    pub kind: String,
    /// Its handle; 0 if the kernel attached it by default.
    pub handle: u32,
    /// The handle of the class that it is attached to; [`ROOT`] for the device's own.
    pub parent: u32,
    /// Of `fq`: the largest number of packets of one flow.
    pub flow_limit: Option<u32>,
}

/// The parent of a device's own queueing discipline (`TC_H_ROOT`).
pub const ROOT: u32 = 0xffff_ffff;

/// A direction through a device, as the host sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Frames that the device receives.
    Ingress,
    /// Frames that it sends.
    Egress,
}

/// A classifier at the `clsact` or `ingress` of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classifier {
    /// The frames that it sees.
    pub side: Side,
    /// Its kind, such as `bpf`, `u32`, `matchall`.
    pub kind: String,
    /// The name of a BPF program.
    pub program: Option<String>,
    /// True if it has an action that sends frames to another device (`mirred`).
    pub redirects: bool,
}

/// An address of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The device's index.
    pub index: u32,
    /// The address.
    pub ip: IpAddr,
}

impl Address {
    /// Returns true for an IPv6 address that every enabled device chooses by itself.
    pub fn is_link_local(&self) -> bool {
        matches!(self.ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
    }
}

/// A station that a bridge has seen at one of its ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Learned {
    /// The index of the port.
    pub port: u32,
    /// The station's address.
    pub mac: Mac,
}
