//! What is counted, and why a datagram changed nothing.

use crate::ids::{ClassesCode, HostId};
use crate::wire::Malformed;

/// Why a datagram changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Dropped {
    /// It cannot be read.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// It is for another host.
    #[error("it is for another host")]
    Misdirected,
    /// No such peer is configured.
    #[error("it is from a host that is no peer")]
    Stranger,
    /// There is no such key for it and this host.
    #[error("it is signed with a key of its host and this one that is not here")]
    NoKey,
    /// Its host gives frames other classes.
    #[error("its host has other classes than this one")]
    Classes {
        /// The host.
        host: HostId,
        /// Its classes.
        classes: ClassesCode,
    },
    /// It came before.
    #[error("it came before")]
    Duplicate,
    /// It is of an earlier epoch, or too late.
    #[error("it is of an earlier epoch, or too late")]
    Old,
    /// Its epoch is more than an hour ahead of the time of day here.
    #[error("its epoch is more than an hour ahead; the time of day is wrong there, or here")]
    Ahead,
}

/// How many datagrams changed nothing, by reason.
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
    pub(crate) fn count(&mut self, dropped: Dropped) {
        *match dropped {
            Dropped::Malformed(Malformed::Length) => &mut self.length,
            Dropped::Malformed(Malformed::Version) => &mut self.version,
            Dropped::Malformed(Malformed::Mac) => &mut self.mac,
            Dropped::Malformed(Malformed::Entries) => &mut self.entries,
            Dropped::Misdirected => &mut self.misdirected,
            Dropped::Stranger => &mut self.stranger,
            Dropped::NoKey => &mut self.no_key,
            Dropped::Classes { .. } => &mut self.classes,
            Dropped::Duplicate => &mut self.duplicate,
            Dropped::Old => &mut self.old,
            Dropped::Ahead => &mut self.ahead,
        } += 1;
    }

    /// Each reason as one word for a counter's label, and its count.
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

/// What has happened since the start, and what there is now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HoseStats {
    /// Datagrams that were accepted.
    pub received: u64,
    /// Datagrams that were made.
    pub sent: u64,
    /// Datagrams that changed nothing.
    pub dropped: HoseDrops,
    /// Entries that name a machine or a pair that is not here, or not known yet.
    pub unknown: u64,
    /// Pairs and machines for which a table was full.
    pub no_room: u64,
    /// Pairs in use that fell back to their static share, as their lease ran out.
    pub fallbacks: u64,
    /// Pledges to a host that ran out, so that its machines are sent their
    /// static shares.
    pub silences: u64,
    /// Peers that started again.
    pub restarts: u64,
    /// Times that a peer did not take this host's epoch, which was changed to one that
    /// it takes.
    pub epochs_changed: u64,
    /// Peers that were heard within four heartbeats.
    pub alive: u64,
    /// Peers that are configured.
    pub peers: u64,
    /// Those of them that there is a key for.
    pub keyed: u64,
    /// Those whose last datagram was of other classes than this host's.
    pub other_classes: u64,
    /// Pairs that send from here, in use or not.
    pub pairs: u64,
    /// Those of them in use.
    pub open: u64,
    /// Pairs that receive here and were granted something.
    pub granted: u64,
}
