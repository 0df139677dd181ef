//! What early acknowledgement counts.

use super::mode::Pause;

/// What early acknowledgement did for a guest, since its beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SnoopStats {
    /// Segments acknowledged before the guest did.
    pub early: u64,
    /// Acknowledgements that were said again since they may have been lost.
    pub repeated: u64,
    /// Acknowledgements of the guest that said nothing new to the peer.
    pub suppressed: u64,
    /// Segments of the guest whose acknowledgement or window was rewritten.
    pub rewritten: u64,
    /// Segments that were kept until the guest's window opened.
    pub withheld: u64,
    /// Segments sent to the guest once more.
    pub resent: u64,
    /// Probes sent to the guest, whose window was closed.
    pub probes: u64,
    /// How often less was placed beyond the guest's window from then on, since it lost that: at
    /// most twice.
    pub narrowed: u64,
    /// Segments beyond the guest's window that were not kept, in the order of [`Pause::ALL`]; their
    /// peers retransmit them.
    pub refused: [u64; Pause::ALL.len()],
    /// Connections reset since the guest did not take what was acknowledged.
    pub resets: u64,
    /// Connections forgotten since another needed the room.
    pub evicted: u64,
    /// Connections not followed, for want of room.
    pub crowded: u64,
}

impl SnoopStats {
    /// Counts a segment that was not kept, and why.
    pub(super) const fn note_refused(&mut self, why: Pause) {
        self.refused[why as usize] += 1;
    }

    /// Segments beyond the guest's window that were not kept.
    pub fn beyond(&self) -> u64 {
        self.refused.iter().sum()
    }
}
