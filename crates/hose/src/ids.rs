//! Who and what the protocol speaks of, each number a type of its own.

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

/// The MAC address of a station, which is no group's and not all zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Station([u8; 6]);

impl Station {
    /// The station of this MAC address; `None` where it is none.
    pub fn new(mac: [u8; 6]) -> Option<Self> {
        (mac[0] & 1 == 0 && mac != [0; 6]).then_some(Self(mac))
    }

    /// Its MAC address.
    pub const fn mac(self) -> [u8; 6] {
        self.0
    }
}

/// What a machine is reached by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
    /// What goes to it by Ethernet, whatever address it names.
    Station(Station),
    /// What goes to it through a station that nobody has announced: a router.
    Address(Address),
}

/// All that a guest sends to one destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// The guest that sends.
    pub guest: GuestId,
    /// What it sends to.
    pub destination: Destination,
}

/// A host, by a hash of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u64);

impl HostId {
    /// The host that is called `name`: the first 8 bytes of its SHA-256.
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

/// The classes that a host gives frames, and their marks, as one number that the caller
/// chooses: equal where these are. 0 is a host that gives frames no class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ClassesCode(pub u64);

impl ClassesCode {
    /// Of a host that gives frames no class.
    pub const NONE: Self = Self(0);

    /// Whether hosts of these classes may be in one fabric.
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

/// One life of a host, as towards one other: the time of day at its start, or later
/// than that where the other has heard of a later one. 0 is no life, and means "never
/// heard".
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl Epoch {
    /// How far apart the clocks of two hosts may be.
    const CLOCKS: Nanos = Nanos::from_secs(3600);

    /// The epoch of a life that starts now.
    pub fn starting(today: TimeOfDay) -> Self {
        Self(today.0.max(1))
    }

    /// The last one that may have started by now on any host whose clock is right.
    pub(crate) const fn latest(today: TimeOfDay) -> Self {
        Self(today.0).an_hour_on()
    }

    /// The last one that one who knows this takes from its host, whatever the time of
    /// day is.
    pub(crate) const fn an_hour_on(self) -> Self {
        Self(self.0.saturating_add(Self::CLOCKS.0))
    }

    /// The one that the life which began as `life` goes on with, where this is taken;
    /// `None` where there is none. Another life goes on with another one, though it
    /// hears of the same: below 20 minutes later, by the digits of its own beginning.
    pub(crate) fn after(self, life: Self) -> Option<Self> {
        let later = life.0 % (1 << 40);
        self.0.checked_add(1 + later).map(Self)
    }

    /// The one that the life which began as `life` tries, where nobody says what is taken: a
    /// quarter of an hour later each time, which is less than what is taken at once.
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

/// One version of a host's list of machines. The first is 1; 0 is none.
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
    /// Both machines.
    pub(crate) pair: PairId,
}
