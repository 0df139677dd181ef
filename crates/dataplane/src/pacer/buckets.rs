//! The lower two thirds of a guest's bucket chain: {B, S} and {Bmax, one frame}.

use super::{Guarantee, PacerConfig};
use tailbound_units::exact::TokenBucket;
use tailbound_units::{Position, WireBytes};

/// The buckets of a guest. The module describes them.
#[derive(Debug)]
pub(super) struct Buckets {
    /// {B, S}.
    average: TokenBucket<Position>,
    /// {Bmax, one frame}.
    peak: TokenBucket<Position>,
    /// The part of the frozen virtual time in which {B, S} has filled.
    made_up: WireBytes,
    /// The length of the last charged frame, whose cost both buckets have computed.
    wire: WireBytes,
    /// The departure of the frame that has one, or of the last frame that had one; no later frame
    /// departs earlier, even after changes.
    last_departure: Position,
}

impl Buckets {
    /// Creates full buckets. `None` if one would be too deep.
    pub(super) fn new(config: &PacerConfig, guarantee: &Guarantee) -> Option<Self> {
        let link = config.link;
        Some(Self {
            average: TokenBucket::on_wire(link, guarantee.bandwidth, guarantee.burst.into())?,
            peak: TokenBucket::on_wire(link, guarantee.burst_rate, config.longest_frame())?,
            made_up: WireBytes::ZERO,
            wire: WireBytes::ZERO,
            last_departure: Position::ZERO,
        })
    }

    /// The departure of the frame that has one, or of the last frame that had one.
    #[inline(always)]
    pub(super) const fn last_departure(&self) -> Position {
        self.last_departure
    }

    /// Sets the last departure, on a wire whose positions are new.
    pub(super) const fn move_last_departure(&mut self, to: Position) {
        self.last_departure = to;
    }

    /// {B, S} itself, full.
    pub(super) fn full_average(&self) -> TokenBucket<Position> {
        self.average.full()
    }

    /// Fills {B, S} for frozen virtual time, of `lost` bytes of the wire in all: the guarantee counts
    /// real time. The guest sends the missed frames afterwards, no faster than Bmax.
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
        // {B, S} is never full before {Bmax, one frame}. Otherwise a frame that waits for that
        // bucket would be charged before it departs, and {B, S} would fill beyond S meanwhile.
        let peak = self.peak.full_at();
        self.average.pass(ticks, self.last_departure, peak);
        self.made_up = lost;
    }

    /// Tokens in {B, S} at `now`.
    pub(super) fn tokens(&self, now: Position) -> WireBytes {
        self.average.tokens(now)
    }

    /// Checks whether {B, S} holds this number of bytes at `at`.
    pub(super) fn holds(&self, at: Position, wire: WireBytes) -> bool {
        self.average.holds(at, wire)
    }

    /// Adds tokens to {B, S} at `now`, up to its depth.
    pub(super) fn fill(&mut self, bytes: WireBytes, now: Position) {
        self.average.fill(bytes, now);
    }

    /// Empties the buckets at `now`, which is not before the last departure.
    pub(super) fn drain(&mut self, now: Position) {
        self.average = self.average.empty(now);
        self.peak = self.peak.empty(now);
    }

    /// Empties the buckets of a new guest at `now`. Virtual time was frozen for `lost` bytes until
    /// then.
    pub(super) fn start_empty(&mut self, now: Position, lost: WireBytes) {
        self.drain(now);
        self.made_up = lost;
    }

    /// Takes over rates and depths of `fresh`. `from`, which is `to` on its link, is not before the
    /// last departure.
    pub(super) fn reconfigure(&mut self, fresh: &Self, from: Position, to: Position) {
        debug_assert!(from >= self.last_departure, "frames keep their departures");
        self.average.reconfigure(&fresh.average, from, to);
        self.peak.reconfigure(&fresh.peak, from, to);
        // The frame that has a departure counts until then.
        self.average.set_len(self.wire);
        self.peak.set_len(self.wire);
    }

    /// Charges a frame that arrives at `arrival` and returns its departure.
    #[inline(always)]
    pub(super) fn schedule(&mut self, arrival: Position, wire: WireBytes) -> Position {
        // A bucket {B, S} that filled meanwhile may permit a departure before that of the last
        // charged frame.
        let average = self.charge_average(arrival, wire).max(self.last_departure);
        self.last_departure = self.peak.charge_again(average).leaves;
        self.last_departure
    }

    /// Charges a frame to another guest of this host, which is not charged to {Bmax, one frame}.
    pub(super) fn schedule_local(&mut self, arrival: Position, wire: WireBytes) -> Position {
        let leaves = self.charge_average(arrival, wire);
        self.last_departure = leaves.max(self.last_departure);
        self.last_departure
    }

    /// Charges a frame to {B, S}, and returns the time at which it leaves that bucket. Both buckets
    /// then know its length.
    #[inline(always)]
    fn charge_average(&mut self, arrival: Position, wire: WireBytes) -> Position {
        if wire != self.wire {
            self.wire = wire;
            self.average.set_len(wire);
            self.peak.set_len(wire);
        }
        self.average.charge_again(arrival).leaves
    }

    /// Refunds the frame that has a departure time after `at`, up to which the wire is taken: it
    /// waits for {B, S}. {Bmax, one frame} may have fewer tokens than before. A frame to a guest of
    /// this host was not charged to it.
    pub(super) fn take_back(&mut self, wire: WireBytes, at: Position, is_local: bool) {
        self.average.fill(wire, at);
        if !is_local {
            self.peak.fill(wire, at);
        }
        // All frames that were passed on departed before.
        self.last_departure = self.last_departure.min(at);
    }

    /// Charges the frame that has a departure time before `at` again, from `at` on.
    pub(super) fn charge_anew(&mut self, wire: WireBytes, at: Position, is_local: bool) {
        self.take_back(wire, at, is_local);
        if is_local {
            self.schedule_local(at, wire);
        } else {
            self.schedule(at, wire);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailbound_units::{Bytes, Rate};

    /// A frame that waits for {B, S} departs as before when it is charged again.
    #[test]
    fn a_frame_that_is_charged_anew_keeps_its_departure() {
        let link = Rate::from_mbit(10_000);
        let guarantee = Guarantee::new(Rate::from_mbit(100), Bytes(3_076), link);
        let (now, wire) = (Position(50_000_000), WireBytes(1_538));
        for is_local in [false, true] {
            let mut buckets = Buckets::new(&PacerConfig::strict(link), &guarantee).expect("sound");
            let mut schedule = || {
                if is_local {
                    buckets.schedule_local(now, wire)
                } else {
                    buckets.schedule(now, wire)
                }
            };
            let departures = [(); 3].map(|()| schedule());
            // A hundredth of the link.
            assert_eq!(departures[2], now + WireBytes(153_800));
            buckets.charge_anew(wire, now + wire, is_local);
            assert_eq!(buckets.last_departure(), departures[2]);
        }
    }
}
