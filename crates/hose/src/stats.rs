//! Counters, and reasons for dropped datagrams.

use crate::ids::{ClassesCode, HostId};
use crate::wire::Malformed;

/// Reason for a dropped datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DropReason {
    /// The datagram is malformed.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The datagram is for another host.
    #[error("it is for another host")]
    Misdirected,
    /// The sender is no configured peer.
    #[error("it is from a host that is no peer")]
    Stranger,
    /// This host lacks the key of the datagram.
    #[error("it is signed with a key of its host and this one that is not here")]
    NoKey,
    /// The sending host's frames have other classes.
    #[error("its host has other classes than this one")]
    Classes {
        /// The host.
        host: HostId,
        /// Classes of the sending host.
        classes: ClassesCode,
    },
    /// The datagram is a duplicate.
    #[error("it came before")]
    Duplicate,
    /// The datagram belongs to an earlier epoch, or is too late.
    #[error("it is of an earlier epoch, or too late")]
    Old,
    /// The epoch is more than an hour ahead of this host's time of day.
    #[error("its epoch is more than an hour ahead; the time of day is wrong there, or here")]
    Ahead,
}

/// Number of dropped datagrams by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HoseDrops {
    length: u64,
    version: u64,
    mac: u64,
    entries: u64,
    misdirected: u64,
    stranger: u64,
    no_key: u64,
    classes: u64,
    duplicate: u64,
    old: u64,
    ahead: u64,
}

impl HoseDrops {
    pub(crate) fn count(&mut self, dropped: DropReason) {
        *match dropped {
            DropReason::Malformed(Malformed::Length) => &mut self.length,
            DropReason::Malformed(Malformed::Version) => &mut self.version,
            DropReason::Malformed(Malformed::Mac) => &mut self.mac,
            DropReason::Malformed(Malformed::Entries) => &mut self.entries,
            DropReason::Misdirected => &mut self.misdirected,
            DropReason::Stranger => &mut self.stranger,
            DropReason::NoKey => &mut self.no_key,
            DropReason::Classes { .. } => &mut self.classes,
            DropReason::Duplicate => &mut self.duplicate,
            DropReason::Old => &mut self.old,
            DropReason::Ahead => &mut self.ahead,
        } += 1;
    }

    /// Returns the label and the count of each reason.
    pub const fn by_reason(&self) -> [(&'static str, u64); 11] {
        [
            ("length", self.length),
            ("version", self.version),
            ("mac", self.mac),
            ("entries", self.entries),
            ("misdirected", self.misdirected),
            ("stranger", self.stranger),
            ("no_key", self.no_key),
            ("classes", self.classes),
            ("duplicate", self.duplicate),
            ("old", self.old),
            ("ahead", self.ahead),
        ]
    }
}

/// Counters since the start, and current levels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HoseStats {
    /// Accepted datagrams.
    pub received: u64,
    /// Sent datagrams.
    pub sent: u64,
    /// Dropped datagrams.
    pub dropped: HoseDrops,
    /// Entries of unknown VMs or pairs.
    pub unknown: u64,
    /// Pairs and VMs beyond the limit of a table.
    pub no_room: u64,
    /// Active pairs that fell back to their static share at the end of a lease.
    pub fallbacks: u64,
    /// Ended pledges to a host, after which static shares apply to its VMs.
    pub silences: u64,
    /// Restarts of peers.
    pub restarts: u64,
    /// Changes of this host's epoch because a peer refused it.
    pub epochs_changed: u64,
    /// Peers with a datagram within four heartbeats.
    pub alive: u64,
    /// Configured peers.
    pub peers: u64,
    /// Peers with a key.
    pub keyed: u64,
    /// Peers whose last datagram had other classes.
    pub other_classes: u64,
    /// Pairs that send from this host.
    pub pairs: u64,
    /// Active pairs among them.
    pub open: u64,
    /// Pairs that receive at this host and have a grant.
    pub granted: u64,
}
