//! Waiting frames of a guest, by length and memory, and the bounds of both.

use super::Guarantee;
use super::index::LineIndex;
use tailbound_units::{Bytes, Nanos, WireBytes};

/// Minimum memory limit of a guest at any bandwidth: four large packets with the smallest segments,
/// or 900 full frames.
const LEAST_MEMORY: Bytes = Bytes(2 << 20);

/// Memory limit of a guest, as time at its bandwidth.
const MEMORY_IN_TIME: Nanos = Nanos::from_millis(20);

/// Permission to read a guest's ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ring {
    Read,
    /// The guest's frames wait for {B, S}. `by` is the line of the last frame.
    Unread {
        by: LineIndex,
    },
}

/// The backlog of a guest. The module describes it.
#[derive(Debug)]
pub(super) struct Backlog {
    /// Length on the wire of all frames in lines whose first frame is released.
    pub(super) released: WireBytes,
    /// Limit of `released` beyond which the ring is not read: the bytes that the guest may send
    /// within its horizon.
    headroom: WireBytes,
    /// Memory of the guest's frames, its limit, and the limit of one line.
    pub(super) memory: Bytes,
    bound: Bytes,
    share: Bytes,
    /// Half of either limit.
    half_bound: Bytes,
    half_share: Bytes,
    ring: Ring,
    /// True if the guest is among those whose rings may be read again.
    is_noted: bool,
}

impl Backlog {
    /// Creates an empty backlog without memory.
    pub(super) fn new(guarantee: &Guarantee) -> Self {
        Self {
            released: WireBytes::ZERO,
            headroom: guarantee.bandwidth.bytes_in(guarantee.horizon).into(),
            memory: Bytes(0),
            bound: Bytes(0),
            share: Bytes(0),
            half_bound: Bytes(0),
            half_share: Bytes(0),
            ring: Ring::Read,
            is_noted: false,
        }
    }

    /// Maximum memory of a guest with this guarantee, without the common limit.
    pub(super) fn most_memory(guarantee: &Guarantee) -> Bytes {
        let in_time = guarantee.bandwidth.bytes_in(MEMORY_IN_TIME);
        in_time.max(LEAST_MEMORY)
    }

    /// Sets the memory limit: the part of a guest with this guarantee if `there` bytes are divided
    /// into `parts`.
    pub(super) fn set_bound(&mut self, guarantee: &Guarantee, there: Bytes, parts: Bytes) {
        let most = Self::most_memory(guarantee);
        let part = u128::from(most.0) * u128::from(there.0) / u128::from(parts.0);
        self.bound = most.min(Bytes(part as u64));
        self.share = Bytes(self.bound.0 / 4);
        self.half_bound = Bytes(self.bound.0 / 2);
        self.half_share = Bytes(self.share.0 / 2);
    }

    /// Takes over the horizon of a new guarantee.
    pub(super) const fn reconfigure(&mut self, fresh: &Self) {
        self.headroom = fresh.headroom;
    }

    /// Limit of all frames' memory.
    pub(super) const fn bound(&self) -> Bytes {
        self.bound
    }

    /// Limit of the memory of one line.
    pub(super) const fn share(&self) -> Bytes {
        self.share
    }

    /// Half of the limit of one line: further frames are marked.
    #[inline(always)]
    pub(super) const fn half_share(&self) -> Bytes {
        self.half_share
    }

    /// Checks whether the memory exceeds its limit.
    pub(super) fn is_above_bound(&self) -> bool {
        self.memory > self.bound
    }

    /// Checks whether {B, S} delays the frames, or the memory is above half of the bound, so that
    /// the ring must not be read.
    #[inline(always)]
    pub(super) fn is_crowded(&self) -> bool {
        self.released > self.headroom || self.memory > self.half_bound
    }

    /// Checks whether frames of these additional lengths leave the guest uncrowded.
    pub(super) fn has_room_for(&self, wire: WireBytes, memory: Bytes) -> bool {
        let memory = Bytes(self.memory.0 + memory.0);
        self.released + wire <= self.headroom && memory <= self.half_bound
    }

    /// Checks whether the backlog has shrunk by a quarter, with this memory of one line.
    fn has_shrunk(&self, line: Bytes) -> bool {
        self.released <= self.headroom / 4 * 3
            && line.0 <= self.share.0 / 8 * 3
            && self.memory.0 <= self.bound.0 / 8 * 3
    }

    /// Checks whether the ring may be read.
    #[inline(always)]
    pub(super) fn is_read(&self) -> bool {
        self.ring == Ring::Read
    }

    /// The line of the last frame before the ring was not read any more; `None` if it is read.
    pub(super) const fn unread_by(&self) -> Option<LineIndex> {
        match self.ring {
            Ring::Read => None,
            Ring::Unread { by } => Some(by),
        }
    }

    /// Stops reading the ring from the last frame on, which is of this line.
    pub(super) const fn leave_unread(&mut self, line: LineIndex) {
        self.ring = Ring::Unread { by: line };
    }

    /// Permits reading the ring again if no frame waits for {B, S}, or the backlog has shrunk by a
    /// quarter, with this memory of the last frame's line. Returns whether the host needs a report
    /// of it.
    pub(super) fn read_again(&mut self, waits: bool, line: Bytes) -> bool {
        let has_room = !waits || self.has_shrunk(line);
        if has_room {
            self.ring = Ring::Read;
        }
        has_room && self.note()
    }

    /// Notes a report to the host that it may read the ring again. Returns false if one is noted
    /// already.
    pub(super) const fn note(&mut self) -> bool {
        !std::mem::replace(&mut self.is_noted, true)
    }

    /// Forgets the note after the report.
    pub(super) const fn forget_note(&mut self) {
        self.is_noted = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailbound_units::Rate;

    fn backlog() -> Backlog {
        let rate = Rate::from_mbit(100);
        let guarantee = Guarantee::new(rate, Bytes(3000), rate);
        let mut backlog = Backlog::new(&guarantee);
        let most = Backlog::most_memory(&guarantee);
        backlog.set_bound(&guarantee, most, most);
        backlog
    }

    #[test]
    fn a_ring_is_read_again_when_a_quarter_has_left_and_the_host_gets_one_report() {
        let mut backlog = backlog();
        let (line, room) = (LineIndex::new(3), WireBytes(25_000));
        assert!(backlog.has_room_for(room, Bytes(0)));
        assert!(!backlog.has_room_for(room + WireBytes(1), Bytes(0)));
        backlog.released = room + WireBytes(1);
        assert!(backlog.is_crowded());
        backlog.leave_unread(line);
        assert_eq!(backlog.unread_by(), Some(line));
        backlog.released = WireBytes(18_751);
        assert!(!backlog.read_again(true, Bytes(0)));
        backlog.released = WireBytes(18_750);
        assert!(backlog.read_again(true, Bytes(0)) && backlog.is_read());
        backlog.leave_unread(line);
        assert!(!backlog.read_again(false, Bytes(0)), "a report is noted");
        backlog.forget_note();
        backlog.leave_unread(line);
        assert!(backlog.read_again(false, Bytes(0)));
    }

    #[test]
    fn a_part_of_the_memory_is_the_bound() {
        let mut backlog = backlog();
        assert_eq!(backlog.bound(), LEAST_MEMORY);
        let guarantee = Guarantee::new(Rate(1), Bytes(1), Rate(1));
        backlog.set_bound(&guarantee, Bytes(1 << 20), Bytes(4 << 20));
        assert_eq!(backlog.bound(), Bytes(512 << 10));
        backlog.memory = backlog.bound();
        assert!(backlog.is_crowded() && !backlog.is_above_bound());
        backlog.memory.0 += 1;
        assert!(backlog.is_above_bound());
    }
}
