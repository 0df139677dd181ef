//! The top of the bucket chain: a guest's limit to one destination.

use super::config::slowest;
use super::rate_change::RateChange;
use crate::{FlowKey, GuestId};
use std::mem;
use tailbound_units::exact::{Charged, TokenBucket};
use tailbound_units::{Position, Rate, WireBytes};

/// The place of a limit that was not used.
pub(super) const NOT_USED: u32 = u32::MAX;

/// Maximum depth of a bucket on every link at every rate: a terabyte.
const DEEPEST: WireBytes = WireBytes(1 << 40);

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

/// The last charge of a bucket; by default that of no frame.
#[derive(Debug, Clone, Copy, Default)]
struct LastCharge {
    /// The bucket before it, and the departure of the charged frame.
    before: Charged<Position>,
    /// The length of the frame.
    wire: WireBytes,
    /// False if the bucket has changed since, so that the charge cannot be reverted.
    is_revertible: bool,
}

/// {`B_i`, S} of one destination, and the traffic that passed it.
#[derive(Debug)]
pub(super) struct Limit {
    bucket: TokenBucket<Position>,
    /// The part of the frozen virtual time in which the bucket has filled.
    made_up: WireBytes,
    last: LastCharge,
    /// Position since which the limit is closed and the bucket does not fill.
    closed: Option<Position>,
    /// The rate of the wire whose bytes are counted, while the limit is open: one comparison
    /// decides whether a frame can be charged.
    open_on: Rate,
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
        let mut limit = Self {
            bucket,
            made_up: lost,
            last: LastCharge::default(),
            closed,
            open_on: Rate(0),
            waited: false,
            taken: WireBytes::ZERO,
            key,
            place: NOT_USED,
            chain: super::store::NIL,
            sibling: super::store::NIL,
        };
        limit.note_open();
        limit
    }

    /// Checks whether the limit is that of a guest's frames to this destination.
    #[inline(always)]
    pub(super) fn is_of(&self, source: GuestId, destination: u128) -> bool {
        self.key.source == source && self.key.destination == destination
    }

    /// Checks whether the limit counts the bytes of a wire of this rate.
    pub(super) fn is_on(&self, link: Rate) -> bool {
        self.bucket.byte() == link.0
    }

    /// Converts the limit to the present wire, from any earlier one.
    pub(super) fn translate(&mut self, change: &RateChange) {
        if !self.is_on(change.new) {
            let fresh = on_link(self.open_rate(), self.burst(), change.new);
            let departing = self.revert(change.start);
            self.reconfigure(&fresh, change.start, change.at(change.start));
            self.last.before.leaves = change.at(self.last.before.leaves);
            if let Some((departure, wire)) = departing {
                self.charge_translated(change.at(departure), wire);
            }
        }
    }

    /// Updates `open_on`.
    fn note_open(&mut self) {
        self.open_on = if self.closed.is_some() {
            Rate(0)
        } else {
            Rate(self.bucket.byte())
        };
    }

    /// Present rate.
    pub(super) const fn rate(&self) -> Rate {
        if self.closed.is_some() {
            Rate(0)
        } else {
            self.bucket.rate()
        }
    }

    /// Rate while open; of a closed limit, the rate before it was closed.
    pub(super) const fn open_rate(&self) -> Rate {
        self.bucket.rate()
    }

    pub(super) fn burst(&self) -> WireBytes {
        self.bucket.burst()
    }

    /// Tokens in the bucket at `now`.
    pub(super) fn holds(&self, now: Position) -> WireBytes {
        self.bucket.tokens(self.closed.unwrap_or(now))
    }

    /// Tokens that the bucket lacks to be full at `now`.
    pub(super) fn lacks(&self, now: Position) -> WireBytes {
        self.bucket.lacks(self.closed.unwrap_or(now))
    }

    /// Sets the tokens in the bucket at `now`, up to its depth.
    pub(super) fn hold(&mut self, bytes: WireBytes, now: Position) {
        self.bucket = self.bucket.empty(now);
        self.bucket.fill(bytes, now);
        self.closed = self.closed.map(|_| now);
    }

    /// Changes the bucket at `at`. A frame that departs later is charged again then.
    pub(super) fn change(&mut self, at: Position, change: impl FnOnce(&mut Self)) {
        let departing = self.revert(at);
        change(self);
        if let Some((departure, wire)) = departing {
            self.charge_translated(departure, wire);
        }
    }

    /// Reverts the last charge if its frame departs after `at`, and returns the departure and the
    /// frame's length. A charge up to `at` cannot be reverted from now on: the bucket changes.
    fn revert(&mut self, at: Position) -> Option<(Position, WireBytes)> {
        let LastCharge {
            before,
            wire,
            is_revertible,
        } = self.last;
        self.last.is_revertible = false;
        if !is_revertible || before.leaves <= at {
            return None;
        }
        self.bucket.refund(before);
        Some((before.leaves, wire))
    }

    /// Checks whether the limit is open, and counts the bytes of the present wire.
    #[inline(always)]
    pub(super) fn is_open(&self, change: &RateChange) -> bool {
        self.open_on == change.new
    }

    /// Fills the bucket of an open limit for the time in which virtual time was frozen, `lost`
    /// bytes of the wire in total.
    #[inline(always)]
    pub(super) fn make_up(&mut self, lost: WireBytes) {
        if self.made_up != lost {
            self.fill_for(lost);
        }
    }

    #[cold]
    #[inline(never)]
    fn fill_for(&mut self, lost: WireBytes) {
        let ticks = (lost - self.made_up).0;
        let LastCharge { before, wire, .. } = self.last;
        self.bucket.set_len(wire);
        self.bucket.pass(ticks, before.leaves, Position::ZERO);
        self.made_up = lost;
    }

    /// Excludes the virtual time that was frozen until now from the bucket's filling.
    pub(super) const fn pass_over(&mut self, lost: WireBytes) {
        self.made_up = lost;
    }

    /// The departure of the last charged frame: the next one conforms no earlier.
    #[inline(always)]
    pub(super) const fn last_departure(&self) -> Position {
        self.last.before.leaves
    }

    /// Returns the position at which a frame that comes at `at` conforms to an open limit.
    #[inline(always)]
    pub(super) fn conforms_at(&mut self, at: Position, wire: WireBytes) -> Position {
        self.bucket.conforms_at(at, wire)
    }

    /// Checks whether a closed limit has tokens for a frame.
    pub(super) fn has_tokens(&self, wire: WireBytes) -> bool {
        let since = self.closed.unwrap_or(Position::ZERO);
        self.bucket.holds(since, wire)
    }

    /// Charges a frame that departs at `departure` to an open limit.
    #[inline(always)]
    pub(super) fn charge_open(&mut self, departure: Position, wire: WireBytes) {
        self.last.before = self.bucket.charge(departure, wire);
        self.last.before.leaves = departure;
        self.last.wire = wire;
        self.last.is_revertible = true;
    }

    /// Charges a frame that departs at `departure` to any limit.
    #[inline(never)]
    pub(super) fn charge(&mut self, departure: Position, wire: WireBytes, change: &RateChange) {
        self.translate(change);
        self.charge_translated(departure, wire);
    }

    /// Charges a frame that departs at `departure` to a limit that counts the present wire.
    fn charge_translated(&mut self, departure: Position, wire: WireBytes) {
        if let Some(since) = self.closed {
            // The clock of a closed limit stands still.
            self.charge_open(since, wire);
            self.last.before.leaves = departure;
        } else {
            self.charge_open(departure, wire);
        }
    }

    /// Reverts the charge of a frame that is not sent: the bucket's last, if it departs then.
    pub(super) fn take_back(&mut self, departure: Position, wire: WireBytes, now: Position) {
        let last = mem::take(&mut self.last);
        if last.before.leaves != departure || last.wire != wire {
            // The frame was charged before the limit existed.
            self.last = last;
        } else if last.is_revertible {
            self.bucket.refund(last.before);
        } else {
            self.bucket.fill(wire, self.closed.unwrap_or(now));
        }
    }

    /// Charges the last charged frame, of this length, at its new departure.
    pub(super) fn charge_anew(&mut self, before: Position, departure: Position, wire: WireBytes) {
        if self.last_departure() == before {
            self.take_back(before, wire, before);
            self.charge_translated(departure, wire);
        }
    }

    /// Stops the filling of the bucket at `now`. Virtual time was frozen for `lost` bytes until
    /// then.
    pub(super) fn close(&mut self, now: Position, lost: WireBytes) {
        self.pass_over(lost);
        self.closed.get_or_insert(now);
        self.note_open();
    }

    /// Resumes the filling of the bucket at `now`. Virtual time was frozen for `lost` bytes until
    /// then.
    pub(super) fn open(&mut self, now: Position, lost: WireBytes) {
        if self.closed.is_some() {
            self.pass_over(lost);
        }
        self.stay_closed(now);
        self.closed = None;
        self.note_open();
    }

    /// Keeps the tokens of a closed limit's bucket until `now`.
    fn stay_closed(&mut self, now: Position) {
        if let Some(since) = &mut self.closed
            && *since < now
        {
            self.bucket.pause(*since, now);
            *since = now;
        }
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

    /// Checks whether the limit's bucket, when open, has this rate and burst.
    pub(super) fn is(&self, rate: Rate, burst: WireBytes) -> bool {
        self.bucket.is(rate, burst)
    }

    /// Takes over another bucket's rate and burst at `from`, which is `to` on that bucket's wire.
    pub(super) fn reconfigure(
        &mut self,
        fresh: &TokenBucket<Position>,
        from: Position,
        to: Position,
    ) {
        self.stay_closed(from);
        self.closed = self.closed.map(|_| to);
        self.bucket.reconfigure(fresh, from, to);
        self.note_open();
    }
}

/// Returns a full bucket on a wire of `link`: at its rate, or the nearest rate that the link can
/// count. The limit's source does not know the link.
fn on_link(rate: Rate, burst: WireBytes, link: Rate) -> TokenBucket<Position> {
    let rate = rate.clamp(slowest(link), link);
    let bucket = TokenBucket::on_wire(link, rate, burst.min(DEEPEST));
    bucket.unwrap_or_else(|| unreachable!("at a rate and of a depth that can be counted"))
}
