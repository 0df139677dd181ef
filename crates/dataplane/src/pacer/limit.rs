//! The top of the bucket chain: a guest's limit to one destination.

use super::account::Account;
use crate::{FlowKey, GuestId};
use tailbound_units::exact::TokenBucket;
use tailbound_units::{Position, Rate, WireBytes};

/// The place of a limit that was not used.
pub(super) const NOT_USED: u32 = u32::MAX;

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
    /// Bytes on the wire that the bucket lacks to be full.
    pub lacks: WireBytes,
    /// True if frames waited for the limit: the flow would send more than it does.
    pub backlogged: bool,
}

/// {`B_i`, S} of one destination, and the traffic that passed it.
#[derive(Debug)]
pub(super) struct Limit {
    pub(super) account: Account,
    /// True if a frame has waited for the limit since the last query of its use.
    pub(super) waited: bool,
    /// Bytes that have passed since the last query.
    pub(super) taken: WireBytes,
    pub(super) key: FlowKey,
    /// Place in the list of used limits, or [`NOT_USED`].
    pub(super) place: u32,
    /// The next limit in its chain of the table, and the next of its guest.
    pub(super) chain: u32,
    pub(super) sibling: u32,
    /// Its entry in the tree of its guest's destinations; `NIL` without one.
    pub(super) leaf: u32,
    /// The smallest node around that entry; `NIL` without one.
    pub(super) node: u32,
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
            key,
            place: NOT_USED,
            chain: super::store::NIL,
            sibling: super::store::NIL,
            leaf: super::store::NIL,
            node: super::store::NIL,
        }
    }

    /// Checks whether the limit is that of a guest's frames to this destination.
    #[inline(always)]
    pub(super) fn is_of(&self, source: GuestId, destination: u128) -> bool {
        self.key.source == source && self.key.destination == destination
    }

    /// Adds the limit to the used ones, unless it is among them; its line is `index`.
    #[inline(always)]
    pub(super) fn note(&mut self, index: u32, used: &mut Vec<u32>) {
        if self.place == NOT_USED {
            self.note_first(index, used);
        }
    }

    #[cold]
    fn note_first(&mut self, index: u32, used: &mut Vec<u32>) {
        self.place = used.len() as u32;
        used.push(index);
    }
}
