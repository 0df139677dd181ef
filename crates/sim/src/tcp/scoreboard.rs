//! Segments in flight and the lost ones among them, by SACK (RFC 2018) and RACK (RFC 8985).

use super::{Sack, Segment};
use std::collections::VecDeque;
use tailbound_units::Nanos;

/// Segments beyond a hole that make it a loss while no reordering was seen (RFC 8985, 6.2).
const DUPLICATES: u32 = 3;
/// Number of recoveries for which a widened reordering window is kept (RFC 8985, 6.2).
const KEPT: u32 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Flying,
    /// The receiver has the segment.
    Sacked,
    /// The segment must be retransmitted.
    Lost,
}

/// A segment that was sent and is not acknowledged.
#[derive(Debug, Clone, Copy)]
struct SentSegment {
    sequence: u64,
    at: Nanos,
    /// Number in the order of sending, to order segments that were sent at the same instant.
    number: u32,
    len: u16,
    state: State,
    resent: bool,
    /// True if it counts once more as in flight ([`Scoreboard::pipe`]).
    again: bool,
}

impl SentSegment {
    fn end(&self) -> u64 {
        self.sequence + u64::from(self.len)
    }
}

/// Result of an acknowledgement.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Delivered {
    /// Newly acknowledged segments, by position or by SACK.
    pub(super) segments: u32,
    /// Round trip of the oldest of these segments that were sent only once.
    pub(super) round_trip: Option<Nanos>,
    /// Round trip of the last of these segments.
    pub(super) latest: Option<Nanos>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Scoreboard {
    sent: VecDeque<SentSegment>,
    sacked: u32,
    lost: u32,
    /// Segments of `sent` that were sent more than once.
    resent: u32,
    /// Number of sent segments, retransmissions included.
    count: u32,
    /// The delivered segment that was sent last: its number, its round trip.
    rack: u32,
    rack_took: Nanos,
    /// Highest position that was delivered.
    highest: u64,
    reordered: bool,
    /// Reordering window, in quarters of a round trip.
    late: u32,
    /// Number of recoveries for which the reordering window is kept.
    kept: u32,
    widened_until: u64,
}

impl Scoreboard {
    /// Segments in flight.
    pub(super) fn flying(&self) -> u32 {
        self.outstanding() - self.sacked - self.lost
    }

    /// Segments that are not acknowledged by position.
    pub(super) fn outstanding(&self) -> u32 {
        self.sent.len() as u32
    }

    pub(super) fn has_sacked(&self) -> bool {
        self.sacked > 0
    }

    pub(super) fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// Records the first transmission of a segment.
    pub(super) fn send(&mut self, now: Nanos, sequence: u64, len: u16) {
        self.count = self.count.wrapping_add(1);
        self.sent.push_back(SentSegment {
            sequence,
            at: now,
            number: self.count,
            len,
            state: State::Flying,
            resent: false,
            again: false,
        });
    }

    /// Retransmits the first lost segment: returns its position and its end.
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

    /// Marks the last segment for retransmission, as a probe.
    pub(super) fn probe(&mut self) {
        if let Some(last) = self.sent.back_mut()
            && last.state == State::Flying
        {
            last.state = State::Lost;
            self.lost += 1;
        }
    }

    /// Handles the acknowledgement of a segment, up to `ack` and by blocks beyond.
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
                self.sack(now, from, to, least, &mut delivered);
            }
            self.widen(ack, &segment.sack);
        }
        delivered
    }

    fn sack(&mut self, now: Nanos, from: u64, to: u64, least: Nanos, all: &mut Delivered) {
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

    /// Records a delivered segment (RFC 8985, 6.2, steps 1 to 3).
    fn deliver(&mut self, now: Nanos, it: SentSegment, least: Nanos, all: &mut Delivered) {
        all.segments += 1;
        let took = now.since(it.at);
        if it.resent {
            // Faster than any round trip: the acknowledgement is for the first transmission.
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

    /// Widens the reordering window: a segment arrived twice, so it was late and not lost (RFC
    /// 8985, 6.2, step 4).
    fn widen(&mut self, ack: u64, sack: &Sack) {
        if sack.duplicate && ack > self.widened_until {
            self.widened_until = self.sent.back().map_or(ack, SentSegment::end);
            self.late += 1;
            self.kept = KEPT;
        }
    }

    /// Records the end of a recovery.
    pub(super) fn recovered(&mut self) {
        self.kept = self.kept.saturating_sub(1);
        if self.kept == 0 {
            self.late = 0;
        }
    }

    /// Marks the segments that are lost by `now`. Returns true if there was a new one, and the time
    /// of the next call.
    pub(super) fn detect(
        &mut self,
        now: Nanos,
        smoothed: Nanos,
        least: Nanos,
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

    /// Handles a timeout: the first segment is lost, and all that were sent a round trip ago (RFC
    /// 8985, 6.3).
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

/// Counting as ns-3 does ([`super::Recovery::Ns3`]).
impl Scoreboard {
    pub(super) fn sacked_segments(&self) -> u32 {
        self.sacked
    }

    /// Number of segments with a SACK that end at or before `ack`.
    pub(super) fn sacked_up_to(&self, ack: u64) -> u32 {
        let first = self.sent.iter().take_while(|it| it.end() <= ack);
        first.filter(|it| it.state == State::Sacked).count() as u32
    }

    /// True if one of the segments that end at or before `ack` was retransmitted.
    pub(super) fn is_resent_up_to(&self, ack: u64) -> bool {
        let mut first = self.sent.iter().take_while(|it| it.end() <= ack);
        first.any(|it| it.resent)
    }

    /// Lets retransmitted segments with a SACK count as in flight.
    pub(super) fn settle(&mut self) {
        if self.resent > 0 {
            for it in &mut self.sent {
                it.again |= it.resent && it.state == State::Sacked;
            }
        }
    }

    /// Segments in flight, as ns-3 counts them.
    pub(super) fn pipe(&self) -> u32 {
        let again = if self.resent > 0 {
            self.sent.iter().filter(|it| it.again).count() as u32
        } else {
            0
        };
        self.flying() + again
    }

    /// Marks segments below three with a SACK as lost, unless they were retransmitted.
    pub(super) fn lose_by_count(&mut self) {
        let mut above = 0;
        for it in self.sent.iter_mut().rev() {
            above += u32::from(it.state == State::Sacked);
            if above >= DUPLICATES && it.state == State::Flying {
                if it.resent {
                    it.again = false;
                } else {
                    it.state = State::Lost;
                    self.lost += 1;
                }
            }
        }
    }

    /// Marks the first segment as lost, unless it was retransmitted.
    pub(super) fn lose_head(&mut self) {
        if let Some(head) = self.sent.front_mut()
            && head.state == State::Flying
        {
            head.state = State::Lost;
            self.lost += 1;
        }
    }

    pub(super) fn is_second_lost(&self) -> bool {
        let second = self.sent.get(1);
        second.is_some_and(|it| it.state == State::Lost)
    }

    /// True if the first segment, a full one, was retransmitted and is not lost since.
    pub(super) fn is_head_resent(&self) -> bool {
        let head = self.sent.front();
        head.is_some_and(|it| it.resent && u32::from(it.len) == super::MSS)
    }

    /// Retransmits the first segment without a SACK that was sent once; the first of all if it is
    /// `forced`. Returns its begin and end.
    pub(super) fn resend_unsacked(&mut self, now: Nanos, forced: bool) -> Option<(u64, u64)> {
        let mut sent = self.sent.iter_mut();
        let it = if forced {
            sent.next()?
        } else {
            sent.find(|it| it.state == State::Flying && !it.resent)?
        };
        it.again |= !it.resent;
        self.resent += u32::from(!it.resent);
        self.count = self.count.wrapping_add(1);
        (it.at, it.number, it.resent) = (now, self.count, true);
        Some((it.sequence, it.end()))
    }

    /// Handles a timeout: all segments without a SACK are lost, and none was retransmitted.
    pub(super) fn lose_all(&mut self) {
        self.resent = 0;
        for it in &mut self.sent {
            if it.state == State::Flying {
                it.state = State::Lost;
                self.lost += 1;
            }
            (it.resent, it.again) = (false, false);
        }
    }
}

/// Returns true if the first number was sent after the second; numbers wrap around after 2^32.
const fn is_after(one: u32, other: u32) -> bool {
    one.wrapping_sub(other).cast_signed() > 0
}
