//! Names of what rates are set for, as the caller has them.

/// A guest of this host, by a number that the caller chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuestId(pub u32);

/// All that a guest sends to one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// The guest that sends.
    pub source: GuestId,
    /// The destination's address; IPv4 as an IPv4-mapped IPv6 address.
    pub destination: u128,
}
