//! The top of the bucket chain: a guest's limit to one destination.

use super::config::slowest;
use super::rate_change::RateChange;
use crate::{FlowKey, GuestId};
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

/// {`B_i`, S} of one destination, and the traffic that passed it.
#[derive(Debug)]
pub(super) struct Limit {
    bucket: TokenBucket<Position>,
    /// The part of the frozen virtual time in which the bucket has filled.
    made_up: WireBytes,
    /// Charge of the line's first frame, while the frame waits for the limit.
    charged: Option<Charged<Position>>,
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
            self.reconfigure(&fresh, change.start, change.at(change.start));
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

    /// Checks whether the limit is open, and counts the bytes of the present wire.
    #[inline(always)]
    pub(super) fn is_open(&self, change: &RateChange) -> bool {
        self.open_on == change.new
    }

    /// Fills the bucket of an open limit for the time in which virtual time was frozen, `lost`
    /// bytes of the wire in total. The last charged frame is released at `release`.
    #[inline(always)]
    pub(super) fn make_up(&mut self, lost: WireBytes, release: Position) {
        if self.made_up != lost {
            self.fill_for(lost, release);
        }
    }

    #[cold]
    #[inline(never)]
    fn fill_for(&mut self, lost: WireBytes, release: Position) {
        let ticks = (lost - self.made_up).0;
        self.bucket.pass(ticks, release, Position::ZERO);
        self.made_up = lost;
    }

    /// Excludes the virtual time that was frozen until now from the bucket's filling.
    pub(super) const fn pass_over(&mut self, lost: WireBytes) {
        self.made_up = lost;
    }

    /// Charges the first frame of the line, which arrives at `at`, to an open limit. Returns `None`
    /// if the frame is released then, or otherwise the position of its release.
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

    /// Charges the first frame of the line to any limit. Returns `Ok` if the frame is released at
    /// `at`. Otherwise the error is the position of its release, or `None` if the frame waits until
    /// the closed limit opens.
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

    /// Refunds the charge of a frame that is not sent, or not now.
    pub(super) fn refund(&mut self) {
        if let Some(charged) = self.charged.take() {
            self.bucket.refund(charged);
        }
    }

    /// Refunds the charge of the line's first frame, which was released and is not sent. The bucket
    /// has the same tokens as before the charge, and is full if it was full.
    pub(super) fn give_back(&mut self, wire: WireBytes, now: Position) {
        self.bucket.fill(wire, self.closed.unwrap_or(now));
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
        self.charged = None;
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
