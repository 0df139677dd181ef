//! The top of the bucket chain: a guest's limit to one destination.

use super::account::Account;
use super::index::{EntryIndex, LineIndex, NodeIndex, Table, UsedIndex};
use crate::{FlowKey, GuestId};
use tailbound_units::exact::TokenBucket;
use tailbound_units::{Bytes, Position, Rate, WireBytes};

/// Use of a limit since the last query: the flow's demand, as far as it is visible. See
/// [`super::Pacer::destinations_used`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowUse {
    /// The guest and its destination.
    pub flow: FlowKey,
    /// The present limit; 0 if it is closed.
    pub rate: Rate,
    /// Bytes on the wire of the frames that had their turn.
    pub taken: WireBytes,
    /// Bytes on the wire that the bucket lacks to be full, or that of its host.
    pub lacks: WireBytes,
    /// True if frames waited for the limit: the flow would send more than it does.
    pub backlogged: bool,
    /// Bytes on the wire of the frames that wait now.
    pub queued: WireBytes,
}

/// A flow whose frames began to wait for its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingFlow {
    /// The guest and its destination.
    pub flow: FlowKey,
    /// Bytes on the wire of the frames that wait now.
    pub queued: WireBytes,
}

/// Lines whose limits were used since the last query.
pub(super) type UsedLines = Table<UsedIndex, LineIndex>;

/// Most flows in [`BeganToWait`]. Later ones are found with the use of their limits.
const MAX_BEGAN: usize = 64;

/// Flows whose frames began to wait for their limits since the last query, at most [`MAX_BEGAN`].
#[derive(Debug, Default)]
pub(super) struct BeganToWait(Vec<FlowKey>);

impl BeganToWait {
    #[cold]
    fn push(&mut self, flow: FlowKey) {
        if self.0.len() < MAX_BEGAN {
            self.0.push(flow);
        }
    }

    /// Returns and removes them.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = FlowKey> + '_ {
        self.0.drain(..)
    }
}

/// Buckets around a destination that others share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    /// None.
    Alone,
    /// Unknown, because the place of the destination is: it may not send.
    Unplaced,
    /// The entry in the tree of its guest, and the smallest node around it.
    Below { leaf: EntryIndex, node: NodeIndex },
}

/// {`B_i`, S} of one destination, and the traffic that passed it.
#[derive(Debug)]
pub(super) struct Limit {
    pub(super) account: Account,
    /// True if a frame has waited for the limit since the last query of its use.
    waited: bool,
    /// Bytes that have passed since the last query.
    pub(super) taken: WireBytes,
    /// Bytes of the receiver's inward burst that are lent to it.
    pub(super) lent: Bytes,
    pub(super) key: FlowKey,
    /// Its place in the list of used limits; `NONE` if it was not used.
    pub(super) used: UsedIndex,
    /// The next limit in its chain of the table, and the next of its guest.
    pub(super) chain: LineIndex,
    pub(super) sibling: LineIndex,
    pub(super) sharing: Sharing,
}

impl Limit {
    /// Creates a limit with this bucket, closed since a position or open. Virtual time was frozen
    /// for `lost` bytes until now.
    pub(super) fn new(
        key: FlowKey,
        bucket: TokenBucket<Position>,
        closed: Option<Position>,
        lost: WireBytes,
    ) -> Self {
        Self {
            account: Account::new(bucket, closed, lost),
            waited: false,
            taken: WireBytes::ZERO,
            lent: Bytes::ZERO,
            key,
            used: UsedIndex::NONE,
            chain: LineIndex::NONE,
            sibling: LineIndex::NONE,
            sharing: Sharing::Alone,
        }
    }

    /// Records that a frame waits for the limit.
    #[inline(always)]
    pub(super) fn wait(&mut self, began: &mut BeganToWait) {
        if !std::mem::replace(&mut self.waited, true) {
            began.push(self.key);
        }
    }

    /// Returns whether a frame has waited since the last call, and starts again: `waits` if one
    /// still does.
    pub(super) fn take_waited(&mut self, waits: bool) -> bool {
        std::mem::replace(&mut self.waited, waits)
    }

    /// Use of a limit without a frame, beside a shared bucket that is not full.
    pub(super) const fn unused(&self, lacks: WireBytes) -> FlowUse {
        FlowUse {
            flow: self.key,
            rate: self.account.rate(),
            taken: WireBytes::ZERO,
            lacks,
            backlogged: false,
            queued: WireBytes::ZERO,
        }
    }

    /// Its entry in the tree of its guest's destinations, if it has one.
    pub(super) const fn leaf(&self) -> Option<EntryIndex> {
        match self.sharing {
            Sharing::Below { leaf, .. } => Some(leaf),
            Sharing::Alone | Sharing::Unplaced => None,
        }
    }

    /// Checks whether the limit is that of a guest's frames to this destination.
    #[inline(always)]
    pub(super) fn is_of(&self, source: GuestId, destination: u128) -> bool {
        self.key.source == source && self.key.destination == destination
    }

    /// Adds the limit to the used ones, unless it is among them; its line is `index`.
    #[inline(always)]
    pub(super) fn note(&mut self, index: LineIndex, used: &mut UsedLines) {
        if self.used.is_none() {
            self.note_first(index, used);
        }
    }

    #[cold]
    fn note_first(&mut self, index: LineIndex, used: &mut UsedLines) {
        self.used = used.push(index);
    }
}
