//! A bucket that is charged at departures, under a rate that changes meanwhile.

use super::config::slowest;
use super::rate_change::RateChange;
use std::mem;
use tailbound_units::exact::{Charged, TokenBucket};
use tailbound_units::{Position, Rate, WireBytes};

/// Maximum depth of a bucket on every link at every rate: a terabyte.
const DEEPEST: WireBytes = WireBytes(1 << 40);

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

/// The virtual time that was frozen until now, and the last change of the wire.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sight<'c> {
    pub(super) lost: WireBytes,
    pub(super) change: &'c RateChange,
}

/// A frame that has its turn at a position, and departs then or later.
#[derive(Debug, Clone, Copy)]
pub(super) struct Departing {
    pub(super) at: Position,
    pub(super) departure: Position,
    pub(super) wire: WireBytes,
}

/// The bucket {rate, burst} of a destination, or of a subtree of destinations.
#[derive(Debug)]
pub(super) struct Account {
    bucket: TokenBucket<Position>,
    /// The part of the frozen virtual time in which the bucket has filled.
    made_up: WireBytes,
    last: LastCharge,
    /// Position since which the bucket is closed and does not fill.
    closed: Option<Position>,
    /// The rate of the wire whose bytes are counted, while the bucket is open: one comparison decides
    /// whether a frame can be checked.
    open_on: Rate,
    /// The same while frames are charged to no other bucket: one comparison decides whether a frame
    /// can be charged.
    alone_on: Rate,
    /// True if frames are charged to the bucket of a subtree, too.
    is_shared: bool,
}

impl Account {
    /// Creates an account with this bucket, closed since a position or open. Virtual time was
    /// frozen for `lost` bytes until now.
    pub(super) fn new(
        bucket: TokenBucket<Position>,
        closed: Option<Position>,
        lost: WireBytes,
    ) -> Self {
        let mut account = Self {
            bucket,
            made_up: lost,
            last: LastCharge::default(),
            closed,
            open_on: Rate(0),
            alone_on: Rate(0),
            is_shared: false,
        };
        account.note_open();
        account
    }

    /// Creates an account of no depth, which [`Account::configure`] changes.
    pub(super) fn full(link: Rate, lost: WireBytes) -> Self {
        Self::new(on_link(link, WireBytes::ZERO, link), None, lost)
    }

    /// Changes rate and depth at `at`; a rate of 0 closes the bucket. Virtual time was frozen for
    /// `lost` bytes until then. A bucket that was full stays full.
    pub(super) fn configure(
        &mut self,
        rate: Rate,
        depth: WireBytes,
        link: Rate,
        at: Position,
        lost: WireBytes,
    ) {
        let open_rate = if rate == Rate(0) {
            self.open_rate()
        } else {
            rate
        };
        let fresh = on_link(open_rate, depth, link);
        let owes = self.lacks(at);
        let deepens = depth > self.burst();
        self.change(at, |account| {
            if rate == Rate(0) {
                account.close(at, lost);
            } else {
                account.open(at, lost);
            }
            account.reconfigure(&fresh, at, at);
            if deepens {
                account.hold(depth.saturating_sub(owes), at);
            }
        });
    }

    /// Changes the rate at `at`: see [`Account::configure`].
    pub(super) fn set_rate(&mut self, rate: Rate, link: Rate, at: Position, lost: WireBytes) {
        if self.rate() != rate {
            self.configure(rate, self.burst(), link, at, lost);
        }
    }

    /// Records whether frames are charged to the bucket of a subtree, too.
    pub(super) fn share(&mut self, is_shared: bool) {
        self.is_shared = is_shared;
        self.note_open();
    }

    /// Checks whether the bucket counts the bytes of a wire of this rate.
    #[inline(always)]
    pub(super) fn is_on(&self, link: Rate) -> bool {
        self.bucket.byte() == link.0
    }

    /// Converts the bucket to the present wire, from any earlier one.
    #[inline(always)]
    pub(super) fn translate(&mut self, change: &RateChange) {
        if !self.is_on(change.new) {
            self.translate_to(change);
        }
    }

    #[cold]
    #[inline(never)]
    fn translate_to(&mut self, change: &RateChange) {
        let fresh = on_link(self.open_rate(), self.burst(), change.new);
        let departing = self.revert(change.start);
        self.reconfigure(&fresh, change.start, change.at(change.start));
        self.last.before.leaves = change.at(self.last.before.leaves);
        if let Some((departure, wire)) = departing {
            self.charge_translated(change.at(departure), wire);
        }
    }

    /// Updates `open_on` and `alone_on`.
    fn note_open(&mut self) {
        self.open_on = if self.closed.is_some() {
            Rate(0)
        } else {
            Rate(self.bucket.byte())
        };
        self.alone_on = if self.is_shared {
            Rate(0)
        } else {
            self.open_on
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

    /// Rate while open; of a closed bucket, the rate before it was closed.
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

    /// Checks whether the bucket is open, and counts the bytes of the present wire.
    #[inline(always)]
    pub(super) fn is_open(&self, change: &RateChange) -> bool {
        self.open_on == change.new
    }

    /// Checks the same of a bucket without subtrees around it.
    #[inline(always)]
    pub(super) fn is_alone(&self, change: &RateChange) -> bool {
        self.alone_on == change.new
    }

    /// Fills an open bucket for the time in which virtual time was frozen, `lost`
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

    /// Returns the position at which a frame that comes at `at` conforms to an open bucket.
    #[inline(always)]
    pub(super) fn conforms_at(&mut self, at: Position, wire: WireBytes) -> Position {
        self.bucket.conforms_at(at, wire)
    }

    /// Checks whether a frame that comes at `at` conforms to any bucket then, or at the departure of
    /// the frame before it. Returns that position. Otherwise the error is the position at which the
    /// frame conforms, or `None` if it must wait until the closed bucket opens.
    #[inline]
    pub(super) fn check(
        &mut self,
        at: Position,
        wire: WireBytes,
        Sight { lost, change }: Sight<'_>,
    ) -> Result<Position, Option<Position>> {
        let was_on = self.is_on(change.new);
        self.translate(change);
        let from = at.max(self.last_departure());
        if let Some(since) = self.closed {
            self.pass_over(lost);
            let holds = self.bucket.holds(since, wire);
            return if holds { Ok(from) } else { Err(None) };
        }
        if was_on {
            self.make_up(lost);
        } else {
            self.pass_over(lost);
        }
        let release = self.conforms_at(from, wire);
        if release > from {
            Err(Some(release))
        } else {
            Ok(from)
        }
    }

    /// Charges a frame that departs at `departure` to an open bucket.
    #[inline(always)]
    pub(super) fn charge_open(&mut self, departure: Position, wire: WireBytes) {
        self.last.before = self.bucket.charge(departure, wire);
        self.last.before.leaves = departure;
        self.last.wire = wire;
        self.last.is_revertible = true;
    }

    /// Charges a frame that departs at `departure` to an open bucket if it conforms at `at`. The rate
    /// may fall until the departure, so tokens of that time do not count. Otherwise the error is the
    /// position at which the frame conforms.
    #[inline(always)]
    pub(super) fn charge_conforming(&mut self, frame: Departing) -> Result<(), Option<Position>> {
        let Departing {
            at,
            departure,
            wire,
        } = frame;
        let before = self.bucket.charge_departing(at, departure, wire);
        let before = before.map_err(Some)?;
        self.last = LastCharge {
            before,
            wire,
            is_revertible: true,
        };
        Ok(())
    }

    /// Does the same for any bucket. The error is `None` if the frame must wait until the bucket
    /// opens.
    #[inline(never)]
    pub(super) fn charge_if_conforming(
        &mut self,
        frame: Departing,
        sight: Sight<'_>,
    ) -> Result<(), Option<Position>> {
        self.check(frame.at, frame.wire, sight)?;
        self.charge(frame.departure, frame.wire, sight.change);
        Ok(())
    }

    /// Charges a frame that departs at `departure` to any bucket.
    #[inline]
    pub(super) fn charge(&mut self, departure: Position, wire: WireBytes, change: &RateChange) {
        self.translate(change);
        self.charge_translated(departure, wire);
    }

    /// Charges a frame that departs at `departure` to a bucket that counts the present wire.
    #[inline(always)]
    fn charge_translated(&mut self, departure: Position, wire: WireBytes) {
        if let Some(since) = self.closed {
            // The clock of a closed bucket stands still.
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

    /// Keeps the tokens of a closed bucket until `now`.
    fn stay_closed(&mut self, now: Position) {
        if let Some(since) = &mut self.closed
            && *since < now
        {
            self.bucket.pause(*since, now);
            *since = now;
        }
    }

    /// Checks whether the bucket, when open, has this rate and burst.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A charge is reverted, or refunded after the bucket has changed.
    #[test]
    fn a_frame_that_is_taken_back_costs_no_tokens() {
        let link = Rate::from_mbit(10_000);
        let (now, wire, burst) = (Position(50_000_000), WireBytes(1_538), WireBytes(5_000));
        for changes in [false, true] {
            let bucket = on_link(Rate::from_mbit(100), burst, link);
            let mut account = Account::new(bucket, None, WireBytes::ZERO);
            account.charge(now, wire, &RateChange::none(link));
            if changes {
                account.change(now, |_| {});
            }
            assert_eq!(account.holds(now), burst - wire);
            account.take_back(now, wire, now);
            assert_eq!(account.holds(now), burst);
        }
    }
}
