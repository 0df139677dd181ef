//! What is on its way, segment by segment, and which of it is lost: SACK (RFC 2018) and RACK
//! (RFC 8985).

use super::{Sack, Segment};
use std::collections::VecDeque;
use tailbound_units::Nanos;

/// Segments beyond a hole that make it a loss while nothing says that segments are reordered
/// (RFC 8985, 6.2).
const DUPLICATES: u32 = 3;
/// A window for reordering is widened, and kept for so many recoveries (RFC 8985, 6.2).
const KEPT: u32 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Flying,
    /// The receiver has it.
    Sacked,
    /// It is to be sent again.
    Lost,
}

/// A segment that was sent and is not acknowledged.
#[derive(Debug, Clone, Copy)]
struct Sent {
    sequence: u64,
    at: Nanos,
    /// Its number, of all that were sent: what goes at one moment has an order, too.
    number: u32,
    len: u16,
    state: State,
    resent: bool,
}

impl Sent {
    fn end(&self) -> u64 {
        self.sequence + u64::from(self.len)
    }
}

/// What an acknowledgement brought.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Delivered {
    /// Segments that the receiver has and that were not known to be there.
    pub(super) segments: u32,
    /// How long the oldest of those took that were sent once.
    pub(super) round_trip: Option<Nanos>,
    /// How long the last of those took.
    pub(super) latest: Option<Nanos>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Scoreboard {
    sent: VecDeque<Sent>,
    sacked: u32,
    lost: u32,
    /// Of `sent`, those that were sent more than once.
    resent: u32,
    /// How many were sent.
    count: u32,
    /// Of what was delivered, the segment that was sent last: its number, its round trip.
    rack: u32,
    rack_took: Nanos,
    /// The highest end that was delivered.
    highest: u64,
    reordered: bool,
    /// How many quarters of a round trip a segment may be late.
    late: u32,
    /// Recoveries that keep it so.
    kept: u32,
    widened_until: u64,
}

impl Scoreboard {
    /// Segments on their way.
    pub(super) fn flying(&self) -> u32 {
        self.outstanding() - self.sacked - self.lost
    }

    /// Segments that are not acknowledged.
    pub(super) fn outstanding(&self) -> u32 {
        self.sent.len() as u32
    }

    pub(super) fn has_sacked(&self) -> bool {
        self.sacked > 0
    }

    pub(super) fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// A segment is sent for the first time.
    pub(super) fn send(&mut self, now: Nanos, sequence: u64, len: u16) {
        self.count = self.count.wrapping_add(1);
        self.sent.push_back(Sent {
            sequence,
            at: now,
            number: self.count,
            len,
            state: State::Flying,
            resent: false,
        });
    }

    /// Sends the first that is lost again: its place and its end.
    pub(super) fn resend(&mut self, now: Nanos) -> Option<(u64, u64)> {
        if self.lost == 0 {
            return None;
        }
        let mut sent = self.sent.iter_mut();
        let it = sent.find(|it| it.state == State::Lost)?;
        self.resent += u32::from(!it.resent);
        self.lost -= 1;
        self.count = self.count.wrapping_add(1);
        (it.state, it.at, it.number, it.resent) = (State::Flying, now, self.count, true);
        Some((it.sequence, it.end()))
    }

    /// The last segment is to be sent again, as a probe.
    pub(super) fn probe(&mut self) {
        if let Some(last) = self.sent.back_mut()
            && last.state == State::Flying
        {
            last.state = State::Lost;
            self.lost += 1;
        }
    }

    /// Takes what a segment acknowledges, up to `ack` and by blocks beyond.
    pub(super) fn acknowledge(
        &mut self,
        now: Nanos,
        ack: u64,
        segment: &Segment,
        least: Nanos,
    ) -> Delivered {
        let mut delivered = Delivered::default();
        while let Some(first) = self.sent.front()
            && first.end() <= ack
        {
            let first = *first;
            self.sent.pop_front();
            self.resent -= u32::from(first.resent);
            match first.state {
                State::Sacked => self.sacked -= 1,
                State::Lost => self.lost -= 1,
                State::Flying => {}
            }
            if first.state != State::Sacked {
                self.deliver(now, first, least, &mut delivered);
            }
        }
        if segment.sack != Sack::default() {
            for (from, to) in segment.sack.blocks(ack) {
                self.sack(now, (from, to), least, &mut delivered);
            }
            self.widen(ack, &segment.sack);
        }
        delivered
    }

    fn sack(&mut self, now: Nanos, (from, to): (u64, u64), least: Nanos, all: &mut Delivered) {
        let mut place = self.sent.partition_point(|it| it.sequence < from);
        while let Some(it) = self.sent.get_mut(place)
            && it.end() <= to
        {
            place += 1;
            if it.state == State::Sacked {
                continue;
            }
            self.lost -= u32::from(it.state == State::Lost);
            self.sacked += 1;
            it.state = State::Sacked;
            let it = *it;
            self.deliver(now, it, least, all);
        }
    }

    /// RFC 8985, 6.2, steps 1 to 3.
    fn deliver(&mut self, now: Nanos, it: Sent, least: Nanos, all: &mut Delivered) {
        all.segments += 1;
        let took = now.since(it.at);
        if it.resent {
            // Faster than any: it answers to what was sent before.
            if took < least {
                return;
            }
        } else {
            self.reordered |= it.end() < self.highest;
            all.round_trip.get_or_insert(took);
            all.latest = Some(took);
        }
        self.highest = self.highest.max(it.end());
        if is_after(it.number, self.rack) {
            self.rack = it.number;
            self.rack_took = took;
        }
    }

    /// A segment came twice: it was late, and not lost (RFC 8985, 6.2, step 4).
    fn widen(&mut self, ack: u64, sack: &Sack) {
        if sack.duplicate && ack > self.widened_until {
            self.widened_until = self.sent.back().map_or(ack, Sent::end);
            self.late += 1;
            self.kept = KEPT;
        }
    }

    /// A recovery is through.
    pub(super) fn recovered(&mut self) {
        self.kept = self.kept.saturating_sub(1);
        if self.kept == 0 {
            self.late = 0;
        }
    }

    /// Finds what is lost by `now`. Returns whether anything is that was not, and when to look
    /// again.
    pub(super) fn detect(
        &mut self,
        now: Nanos,
        (smoothed, least): (Nanos, Nanos),
        recovers: bool,
    ) -> (bool, Nanos) {
        if self.sacked == 0 && self.resent == 0 {
            return (false, Nanos::MAX);
        }
        let strict = !self.reordered && (recovers || self.sacked >= DUPLICATES);
        let late = if strict {
            Nanos::ZERO
        } else {
            let quarters = u64::from(self.late) + 1;
            Nanos(least.0.saturating_mul(quarters) / 4).min(smoothed)
        };
        let wait = self.rack_took.saturating_add(late);
        let mut again = Nanos::ZERO;
        let mut found = false;
        for it in &mut self.sent {
            if it.state != State::Flying || !is_after(self.rack, it.number) {
                continue;
            }
            let due = it.at.saturating_add(wait);
            if due <= now {
                it.state = State::Lost;
                self.lost += 1;
                found = true;
            } else {
                again = again.max(due);
            }
        }
        let again = if again == Nanos::ZERO {
            Nanos::MAX
        } else {
            again
        };
        (found, again)
    }

    /// A timeout: the first is lost, and what was sent so long ago (RFC 8985, 6.3).
    pub(super) fn time_out(&mut self, now: Nanos) {
        let wait = self.rack_took;
        let mut is_first = true;
        for it in &mut self.sent {
            let is_old = it.at.saturating_add(wait) <= now;
            if it.state == State::Flying && (is_first || is_old) {
                it.state = State::Lost;
                self.lost += 1;
            }
            is_first = false;
        }
    }
}

/// Whether the first was sent after the second; numbers begin anew after 2^32.
const fn is_after(one: u32, other: u32) -> bool {
    one.wrapping_sub(other).cast_signed() > 0
}
