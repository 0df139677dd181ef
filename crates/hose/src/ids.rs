//! Identifiers of the protocol, each with a type of its own.

use sha2::{Digest, Sha256};
use std::net::IpAddr;
use tailbound_units::Nanos;

/// A guest of this host, by a number that the caller chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuestId(pub u64);

/// An IP address; IPv4 as an IPv4-mapped IPv6 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub u128);

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        Self(match ip {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
            IpAddr::V6(v6) => v6.to_bits(),
        })
    }
}

/// Unicast MAC address of a station, not all zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Station([u8; 6]);

impl Station {
    /// Returns the station; `None` for a group or zero address.
    pub fn new(mac: [u8; 6]) -> Option<Self> {
        (mac[0] & 1 == 0 && mac != [0; 6]).then_some(Self(mac))
    }

    /// Returns its MAC address.
    pub const fn mac(self) -> [u8; 6] {
        self.0
    }
}

/// Destination address of a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
    /// Frames to its station, with any IP address.
    Station(Station),
    /// Frames to its IP address through an unannounced station, a router.
    Address(Address),
}

/// A guest's traffic to one destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// The guest that sends.
    pub guest: GuestId,
    /// The destination.
    pub destination: Destination,
}

/// A host, by a hash of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u64);

impl HostId {
    /// Returns the host with this name: the first 8 bytes of its SHA-256.
    pub fn of(name: &str) -> Self {
        let digest = Sha256::digest(name.as_bytes());
        Self(
            digest
                .iter()
                .take(8)
                .fold(0, |id, byte| id << 8 | u64::from(*byte)),
        )
    }
}

/// Classes and marks of a host as one number that the caller chooses. Equal numbers mean equal
/// classes. 0 is a host without classes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ClassesCode(pub u64);

impl ClassesCode {
    /// A host without classes.
    pub const NONE: Self = Self(0);

    /// Returns whether hosts with these classes may be in one fabric.
    pub(crate) fn agrees_with(self, other: Self) -> bool {
        self == other || self == Self::NONE || other == Self::NONE
    }
}

/// A machine, by a number that its host chose. Another host's machine may have
/// the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineId(pub u32);

/// The time of day, in nanoseconds since 1970. Unlike [`Nanos`], it may be wrong, and
/// may jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeOfDay(pub u64);

/// Epoch of a host towards one peer: the time of day at its start, or a later one if the peer knows
/// a later one. 0 means that no datagram was received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Largest difference of two hosts' clocks.
    const CLOCKS: Nanos = Nanos::from_secs(3600);

    /// Returns the epoch of a host that starts now.
    pub fn starting(today: TimeOfDay) -> Self {
        Self(today.0.max(1))
    }

    /// The last one that may have started by now on any host whose clock is right.
    pub(crate) const fn latest(today: TimeOfDay) -> Self {
        Self(today.0).an_hour_on()
    }

    /// Returns the last epoch that a host which knows this one accepts from the same peer, for any
    /// time of day.
    pub(crate) const fn an_hour_on(self) -> Self {
        Self(self.0.saturating_add(Self::CLOCKS.0))
    }

    /// Returns the epoch with which the life that began as `life` continues after this one; `None`
    /// if there is none. Different lives continue with different epochs from the same one: up to 20
    /// minutes later, by the digits of their own beginning.
    pub(crate) fn after(self, life: Self) -> Option<Self> {
        let later = life.0 % (1 << 40);
        self.0.checked_add(1 + later).map(Self)
    }

    /// Returns the epoch that the life which began as `life` tries if it does not know an accepted
    /// one: a quarter of an hour later each time, which is less than the hour that a host accepts.
    pub(crate) fn tried(self, life: Self, tries: u32) -> Self {
        let quarters = u64::from(tries) * (Self::CLOCKS.0 / 4);
        let later = quarters + life.0 % (1 << 36);
        Self(self.0.saturating_add(later))
    }
}

/// The number of a datagram: rises by one with each from one host to another in
/// one epoch. The first is 1; 0 is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceNumber(pub u64);

impl SequenceNumber {
    /// The number of the datagram after this one.
    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Version of a host's list of machines. The first is 1; 0 is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u32);

impl Revision {
    /// The version after this one.
    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A machine that sends and one that receives, each by its own host's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PairId {
    /// The machine that sends.
    pub sender: MachineId,
    /// The machine that receives.
    pub receiver: MachineId,
}

/// A peer, as a place in the list of peers; behind the last one is this host itself,
/// where pairs are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PeerIndex(pub(crate) usize);

/// A pair of a machine here and one at a peer, in either direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PairKey {
    /// The other machine's host.
    pub(crate) peer: PeerIndex,
    /// Sender and receiver.
    pub(crate) pair: PairId,
}
