//! The share of the thread that each port gets: deficit round robin over the ports that have work
//! (Shreedhar and Varghese, SIGCOMM 1995), in nanoseconds of that thread.
//!
//! A packet is charged to the port that it came from, as are the descriptors of a ring that were
//! read for it. The descriptors of a ring that it is put into are charged to the port of that ring,
//! on a separate credit. A packet may be segmented into hundreds of frames or go to many ports, and
//! its cost is known only when it is forwarded. So a port pays afterwards: it continues while it
//! has credit, falls into debt by less than the cost of its last packet, and is skipped in the
//! following rounds until its share of them has made up for the debt. In any period a port that
//! always has work causes at most the work of any other such port, plus a quantum and its most
//! expensive packet.
//!
//! The charge is the general cost of frames. If a port takes longer, its time is measured
//! ([`super::timing`]).

use crate::port::BURST;
use std::ops::AddAssign;
use tailbound_units::Nanos;

/// The cost of a frame beside the copies of its bytes, in nanoseconds: a pair of TAPs carries
/// 248,000 of the shortest frames a second.
const FRAME: i64 = 4032;

/// The cost of five bytes, in nanoseconds: the pair carries 9.5 Gbit/s in packets of 64 KiB, one of
/// which takes 14 times as long as a short frame.
const FIVE_BYTES: i64 = 4;

/// The cost of a descriptor of a ring, in nanoseconds, with the copy of a byte.
const PIECE: i64 = 50;

/// The share of a port in a round, in nanoseconds: a burst of full Ethernet frames.
const QUANTUM: i64 = BURST.cast_signed() as i64 * (FRAME + 1514 * FIVE_BYTES / 5);

/// The host's cost of forwarding a packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// Frames that the packet becomes, on all ports that it goes to.
    pub(super) frames: usize,
    /// The bytes of these frames.
    pub(super) bytes: usize,
    /// Descriptors that were read for them.
    pub(super) pieces: usize,
}

impl Cost {
    /// The cost of a frame that is dropped before it goes anywhere.
    pub(super) const DROPPED: Self = Self {
        frames: 1,
        bytes: 0,
        pieces: 0,
    };

    /// Returns the cost of reading descriptors.
    pub(super) const fn of_pieces(pieces: usize) -> Self {
        Self {
            frames: 0,
            bytes: 0,
            pieces,
        }
    }
}

impl Cost {
    /// Returns the number of frames that are worth this time.
    pub(super) const fn frames_in(time: Nanos) -> u64 {
        time.0 / FRAME.cast_unsigned()
    }

    /// Returns the time of the cost in general.
    pub(super) fn worth(self) -> Nanos {
        /// A bound beyond any count, so that the sum does not overflow.
        const MAX_COUNT: u64 = 1 << 40;
        let number = |count| MAX_COUNT.min(count as u64);
        let frames = number(self.frames) * FRAME.cast_unsigned();
        let bytes = number(self.bytes) * FIVE_BYTES.cast_unsigned() / 5;
        Nanos(frames + bytes + number(self.pieces) * PIECE.cast_unsigned())
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.frames += other.frames;
        self.bytes += other.bytes;
        self.pieces += other.pieces;
    }
}

/// The time that a port may still cause in this round, in nanoseconds; negative if it caused
/// more than its share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Credit(i64);

impl Credit {
    /// Adds the share of a round. The unused part of earlier ones is lost.
    pub(super) fn begin_round(&mut self) {
        self.0 = (self.0 + QUANTUM).min(QUANTUM);
    }

    /// Returns true if no credit is left.
    pub(super) const fn is_spent(self) -> bool {
        self.0 <= 0
    }

    /// Returns the share of a round.
    pub(super) const fn share() -> Nanos {
        Nanos(QUANTUM.cast_unsigned())
    }

    /// Returns the charges since the credit was `before`.
    pub(super) fn paid_since(self, before: Self) -> Nanos {
        Nanos(u64::try_from(before.0.saturating_sub(self.0)).unwrap_or(0))
    }

    /// Charges forwarded packets.
    pub(super) fn charge(&mut self, cost: Cost) {
        self.charge_time(cost.worth());
    }

    /// Charges time.
    pub(super) fn charge_time(&mut self, time: Nanos) {
        let time = i64::try_from(time.0).unwrap_or(i64::MAX);
        self.0 = self.0.saturating_sub(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_pays_for_one_full_burst_and_excess_is_paid_later() {
        let full = Cost {
            frames: 1,
            bytes: 1514,
            pieces: 0,
        };
        let mut credit = Credit::default();
        credit.begin_round();
        for n in 0..BURST {
            assert!(!credit.is_spent(), "after {n} frames");
            credit.charge(full);
        }
        assert!(credit.is_spent());
        // 512 frames of 60 bytes are 12 bursts of 32 full ones, and a bit.
        credit.begin_round();
        credit.charge(Cost {
            frames: 512,
            bytes: 512 * 60,
            pieces: 0,
        });
        let mut rounds = 0;
        while credit.is_spent() {
            credit.begin_round();
            rounds += 1;
        }
        assert_eq!(rounds, 12);
    }

    #[test]
    fn an_idle_port_accumulates_no_credit() {
        let mut credit = Credit::default();
        credit.begin_round();
        let share = credit;
        credit.begin_round();
        assert_eq!(credit, share);
    }
}
