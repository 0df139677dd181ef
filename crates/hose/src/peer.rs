//! What is known of another host.

use super::replay::Window;
use super::wire::{Announced, HostId};
use std::collections::BTreeMap;
use tailbound_units::Nanos;

/// Machines of one host that are kept.
pub(super) const MAX_MACHINES: usize = 4096;

/// Another host.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) id: HostId,
    pub(super) window: Window,
    /// The number of the last datagram to it.
    pub(super) seq: u64,
    /// When anything came from it.
    pub(super) heard: Option<Nanos>,
    /// The latest moment on its clock that was heard, and when, on ours.
    pub(super) time: u64,
    pub(super) time_heard: Nanos,
    /// The latest moment on our clock that it has heard.
    pub(super) echo: Option<Nanos>,
    /// Its machines send ours what they were granted and nothing else, up to then.
    pub(super) pledged_to_us: Nanos,
    /// Ours send its what they were granted and nothing else, up to then.
    pub(super) pledged: Nanos,
    /// Whether they do so.
    pub(super) bound: bool,
    pub(super) last_sent: Option<Nanos>,
    /// When the next datagram goes there.
    pub(super) due: Nanos,
    /// The revision of our machines that it has.
    pub(super) known: u32,
    /// Its machines by their ids, and which list that is.
    pub(super) machines: BTreeMap<u32, Announced>,
    pub(super) revision: u32,
    /// The next list, as far as it came.
    pub(super) draft: BTreeMap<u32, Announced>,
    pub(super) draft_revision: u32,
    /// Every pair that sends to its machines.
    pub(super) pairs: Vec<usize>,
    /// Those in use.
    pub(super) open: Vec<usize>,
    /// Those that gave back what they were granted, which it is to hear.
    pub(super) parked: Vec<usize>,
    /// Grants of pairs that are none here, which it is to hear too: the sender,
    /// the receiver, and by which datagram.
    pub(super) strays: Vec<(u32, u32, u64)>,
    /// What its machines were granted by ours.
    pub(super) grants: Vec<usize>,
}

impl Peer {
    /// A peer that was never heard. What this host may have pledged to it before
    /// it started again stands, until `pledged` at the latest.
    pub(super) fn new(id: HostId, now: Nanos, pledged: Nanos) -> Self {
        Self {
            id,
            window: Window::default(),
            seq: 0,
            heard: None,
            time: 0,
            time_heard: Nanos::ZERO,
            echo: None,
            pledged_to_us: Nanos::ZERO,
            pledged,
            bound: true,
            last_sent: None,
            due: now,
            known: 0,
            machines: BTreeMap::new(),
            revision: 0,
            draft: BTreeMap::new(),
            draft_revision: 0,
            pairs: Vec::new(),
            open: Vec::new(),
            parked: Vec::new(),
            strays: Vec::new(),
            grants: Vec::new(),
        }
    }

    /// Takes one machine of the list `revision`, which has `count` in all. True
    /// when the list is whole now.
    pub(super) fn learn(&mut self, revision: u32, count: u16, machine: Option<Announced>) -> bool {
        if revision <= self.revision || revision < self.draft_revision {
            return false;
        }
        if revision > self.draft_revision {
            self.draft_revision = revision;
            self.draft.clear();
        }
        if let Some(machine) = machine
            && self.draft.len() < MAX_MACHINES
        {
            self.draft.insert(machine.id, machine);
        }
        if self.draft.len() != usize::from(count) {
            return false;
        }
        self.revision = revision;
        self.machines = std::mem::take(&mut self.draft);
        true
    }
}
