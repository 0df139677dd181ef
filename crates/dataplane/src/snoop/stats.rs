//! Counters of early acknowledgement.

use super::mode::Pause;

/// Counters of a guest's early acknowledgement since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SnoopStats {
    /// Segments that were acknowledged before the guest did.
    pub early: u64,
    /// Acknowledgements that were repeated because they may have been lost.
    pub repeated: u64,
    /// Acknowledgements of the guest that were dropped because the peer knew their contents.
    pub suppressed: u64,
    /// Segments of the guest whose acknowledgement or window was rewritten.
    pub rewritten: u64,
    /// Segments that were retained until the guest's window opened.
    pub withheld: u64,
    /// Segments that were retransmitted to the guest.
    pub resent: u64,
    /// Probes to a guest with a closed window.
    pub probes: u64,
    /// Reductions of the limit beyond the guest's window, after the guest lost segments there: at
    /// most two.
    pub narrowed: u64,
    /// Segments beyond the guest's window that were not retained, in the order of [`Pause::ALL`];
    /// their peers retransmit them.
    pub refused: [u64; Pause::ALL.len()],
    /// Connections that were reset because the guest did not take acknowledged data.
    pub resets: u64,
    /// Connections that were forgotten because another needed the room.
    pub evicted: u64,
    /// Connections that were not tracked because the table was full.
    pub crowded: u64,
}

impl SnoopStats {
    /// Counts a segment that was not retained, by reason.
    pub(super) const fn note_refused(&mut self, why: Pause) {
        self.refused[why as usize] += 1;
    }

    /// Number of segments beyond the guest's window that were not retained.
    pub fn beyond(&self) -> u64 {
        self.refused.iter().sum()
    }
}
