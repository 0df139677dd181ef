//! Void frames, which fill the gaps between frames of data (Silo 4.3.1).
//!
//! Their destination is their own source address, so the first switch drops them:
//! a bridge never sends a frame back out of the port it came in by (IEEE 802.1Q,
//! 8.6.1, and 8.8 for learning).

pub use crate::ethernet::{OVERHEAD, SHORTEST, on_the_wire};

use tailbound_units::WireBytes;

/// The longest void on the wire: a full frame of 1500 B of payload.
pub const MAX_VOID: WireBytes = WireBytes(1538);

/// Returns the next void for a gap of `gap` bytes, above zero. Voids are as few as possible, the
/// longest first, and together fill exactly a gap of at least [`SHORTEST`]; a shorter gap is
/// overrun by less than that.
#[inline]
pub(super) fn next(gap: WireBytes) -> WireBytes {
    if gap >= MAX_VOID + SHORTEST {
        MAX_VOID
    } else if gap > MAX_VOID {
        // The rest must be a void as well.
        gap - SHORTEST
    } else if gap < SHORTEST {
        SHORTEST
    } else {
        gap
    }
}

/// A void frame's bytes, ready for any length.
#[derive(Debug, Clone)]
pub struct VoidFrame([u8; LONGEST_LEN]);

/// Bytes of the longest void without FCS.
const LONGEST_LEN: usize = (MAX_VOID.0 - OVERHEAD.0) as usize;

impl VoidFrame {
    /// `IEEE 802 Local Experimental Ethertype 1`, which no protocol uses.
    const ETHERTYPE: [u8; 2] = [0x88, 0xb5];

    /// Creates voids of the station `address`, that of the port they leave by.
    pub fn new(address: [u8; 6]) -> Self {
        let mut bytes = [0; LONGEST_LEN];
        bytes[..6].copy_from_slice(&address);
        bytes[6..12].copy_from_slice(&address);
        bytes[12..14].copy_from_slice(&Self::ETHERTYPE);
        Self(bytes)
    }

    /// Returns the frame, without FCS, of `wire` bytes on the wire: [`SHORTEST`] to [`MAX_VOID`].
    pub fn bytes(&self, wire: WireBytes) -> &[u8] {
        let len = wire.clamp(SHORTEST, MAX_VOID) - OVERHEAD;
        &self.0[..len.0 as usize]
    }
}

#[cfg(test)]
mod tests;
