//! The top of the chain: what a guest may send to one destination.

use super::config::slowest;
use super::rate_change::RateChange;
use crate::{FlowKey, GuestId};
use tailbound_units::exact::{Charged, TokenBucket};
use tailbound_units::{Position, Rate, WireBytes};

/// The place of a limit that is not among those in use.
pub(super) const NOT_USED: u32 = u32::MAX;

/// The deepest bucket that every link can count at every rate: a terabyte.
const DEEPEST: WireBytes = WireBytes(1 << 40);

/// What a flow with a limit did since it was last asked: its demand, as far as it
/// shows. See [`super::Pacer::destinations_used`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowUse {
    /// The guest and its destination.
    pub flow: FlowKey,
    /// Its limit now; 0 where it is closed.
    pub rate: Rate,
    /// Bytes on the wire of the frames that had their turn.
    pub taken: WireBytes,
    /// What its bucket lacks to be full, in bytes on the wire.
    pub lacks: WireBytes,
    /// Whether frames waited for the limit: the flow would send more than it does.
    pub backlogged: bool,
}

/// {`B_i`, S} of one destination, and what it let pass.
#[derive(Debug)]
pub(super) struct Limit {
    bucket: TokenBucket<Position>,
    /// The part of the frozen virtual time in which the bucket has filled.
    made_up: WireBytes,
    /// What was charged for the first frame of the line, where that waits for it.
    charged: Option<Charged<Position>>,
    /// Where it is closed: since when the bucket does not fill.
    closed: Option<Position>,
    /// The rate of the wire whose bytes are counted, where it is open: one look tells
    /// whether a frame can be charged at once.
    open_on: Rate,
    /// Whether a frame waited for it since its use was asked for.
    pub(super) waited: bool,
    /// What passed since then.
    pub(super) taken: WireBytes,
    pub(super) key: FlowKey,
    /// Its place among those in use, or [`NOT_USED`].
    pub(super) place: u32,
    /// The next in its chain of the table, and the next of its guest.
    pub(super) chain: u32,
    pub(super) sibling: u32,
}

impl Limit {
    /// A limit with this bucket, closed since a moment or open. `lost` is what virtual time was
    /// frozen for until now.
    pub(super) fn new(
        key: FlowKey,
        bucket: TokenBucket<Position>,
        closed: Option<Position>,
        lost: WireBytes,
    ) -> Self {
        let mut limit = Self {
            bucket,
            made_up: lost,
            charged: None,
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

    /// Whether it is that of a guest's frames to this destination.
    #[inline(always)]
    pub(super) fn is_of(&self, source: GuestId, destination: u128) -> bool {
        self.key.source == source && self.key.destination == destination
    }

    /// Whether it counts the bytes of a wire of this rate.
    pub(super) fn is_on(&self, link: Rate) -> bool {
        self.bucket.byte() == link.0
    }

    /// Counts the wire as it is now, whichever it counted before.
    pub(super) fn translate(&mut self, change: &RateChange) {
        if !self.is_on(change.new) {
            let fresh = on_link(self.open_rate(), self.burst(), change.new);
            self.reconfigure(&fresh, change.start, change.at(change.start));
        }
    }

    /// Notes whether a frame can be charged at once.
    fn note_open(&mut self) {
        self.open_on = if self.closed.is_some() {
            Rate(0)
        } else {
            Rate(self.bucket.byte())
        };
    }

    /// Bits a second now.
    pub(super) const fn rate(&self) -> Rate {
        if self.closed.is_some() {
            Rate(0)
        } else {
            self.bucket.rate()
        }
    }

    /// Bits a second, or those that it had when it was closed.
    pub(super) const fn open_rate(&self) -> Rate {
        self.bucket.rate()
    }

    pub(super) fn burst(&self) -> WireBytes {
        self.bucket.burst()
    }

    /// What the bucket holds at `now`.
    pub(super) fn holds(&self, now: Position) -> WireBytes {
        self.bucket.tokens(self.closed.unwrap_or(now))
    }

    /// What the bucket lacks to be full at `now`.
    pub(super) fn lacks(&self, now: Position) -> WireBytes {
        self.bucket.lacks(self.closed.unwrap_or(now))
    }

    /// Lets the bucket hold so many bytes at `now`, or as many as it can.
    pub(super) fn hold(&mut self, bytes: WireBytes, now: Position) {
        self.bucket = self.bucket.empty(now);
        self.bucket.fill(bytes, now);
        self.closed = self.closed.map(|_| now);
    }

    /// Whether it is open, and counts the bytes of the wire as that is now.
    #[inline(always)]
    pub(super) fn is_open(&self, change: &RateChange) -> bool {
        self.open_on == change.new
    }

    /// Lets the bucket of an open limit fill while virtual time was frozen, for `lost` bytes of the
    /// wire in all. The frame that was charged last is released at `release`.
    #[inline(always)]
    pub(super) fn make_up(&mut self, lost: WireBytes, release: Position) {
        if self.made_up != lost {
            self.fill_for(lost, release);
        }
    }

    #[cold]
    #[inline(never)]
    fn fill_for(&mut self, lost: WireBytes, release: Position) {
        self.bucket.pass((lost - self.made_up).0, release);
        self.made_up = lost;
    }

    /// Does not let it fill for what virtual time was frozen for until now.
    pub(super) const fn pass_over(&mut self, lost: WireBytes) {
        self.made_up = lost;
    }

    /// Charges the first frame of the line, which comes at `at`, where the limit is open.
    /// Returns `None` where the frame is released then, or else when it is to be.
    #[inline(always)]
    pub(super) fn charge_open(&mut self, at: Position, wire: WireBytes) -> Option<Position> {
        let charged = self.bucket.charge(at, wire);
        if charged.leaves <= at {
            return None;
        }
        self.waited = true;
        self.charged = Some(charged);
        Some(charged.leaves)
    }

    /// The same for any limit. Returns `Ok` where the frame is released at `at`, or else when
    /// it is to be; `None`: when the limit, which is closed, is opened.
    #[inline(never)]
    pub(super) fn charge(
        &mut self,
        at: Position,
        wire: WireBytes,
        change: &RateChange,
    ) -> Result<(), Option<Position>> {
        self.translate(change);
        if self.closed.is_none() {
            let release = self.charge_open(at, wire);
            return release.map_or(Ok(()), |release| Err(Some(release)));
        }
        self.stay_closed(at);
        if self.bucket.holds(at, wire) {
            self.bucket.charge(at, wire);
            return Ok(());
        }
        self.waited = true;
        Err(None)
    }

    /// Takes back what was charged for a frame that is not to be sent, or not now.
    pub(super) fn refund(&mut self) {
        if let Some(charged) = self.charged.take() {
            self.bucket.refund(charged);
        }
    }

    /// Gives back what was charged for the first frame of the line, which was released and
    /// is not to be sent. What the bucket held before is in it again: had it been full, it
    /// is.
    pub(super) fn give_back(&mut self, wire: WireBytes, now: Position) {
        self.bucket.fill(wire, self.closed.unwrap_or(now));
    }

    /// Lets the bucket fill no longer from `now` on. Virtual time was frozen for `lost` until then.
    pub(super) fn close(&mut self, now: Position, lost: WireBytes) {
        self.pass_over(lost);
        self.closed.get_or_insert(now);
        self.note_open();
    }

    /// Lets the bucket fill again from `now` on. Virtual time was frozen for `lost` until then.
    pub(super) fn open(&mut self, now: Position, lost: WireBytes) {
        if self.closed.is_some() {
            self.pass_over(lost);
        }
        self.stay_closed(now);
        self.closed = None;
        self.note_open();
    }

    /// Keeps what the bucket of a closed limit holds until `now`.
    fn stay_closed(&mut self, now: Position) {
        if let Some(since) = &mut self.closed
            && *since < now
        {
            self.bucket.pause(*since, now);
            *since = now;
        }
    }

    /// Puts it among those that were used, where it is not; its line is `index`.
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

    /// Whether it fills at `rate` and holds `burst` where it is open.
    pub(super) fn is(&self, rate: Rate, burst: WireBytes) -> bool {
        self.bucket.is(rate, burst)
    }

    /// Takes another bucket's rate and burst over at `from`, which is `to` on its wire.
    pub(super) fn reconfigure(
        &mut self,
        fresh: &TokenBucket<Position>,
        from: Position,
        to: Position,
    ) {
        self.stay_closed(from);
        self.closed = self.closed.map(|_| to);
        self.bucket.reconfigure(fresh, from, to);
        self.charged = None;
        self.note_open();
    }
}

/// A full bucket on a wire of `link`: at its rate, or the nearest that the link can count.
/// Whoever limits destinations knows nothing of the link.
fn on_link(rate: Rate, burst: WireBytes, link: Rate) -> TokenBucket<Position> {
    let rate = rate.clamp(slowest(link), link);
    let bucket = TokenBucket::on_wire(link, rate, burst.min(DEEPEST));
    bucket.unwrap_or_else(|| unreachable!("at a rate and of a depth that can be counted"))
}
