//! Length of Ethernet frames on a wire.

use tailbound_units::WireBytes;

/// Bytes on the wire in addition to a frame's own: preamble and start delimiter 8, FCS 4, gap 12
/// (IEEE 802.3).
pub const OVERHEAD: WireBytes = WireBytes(24);

/// Minimum length of a frame on the wire: 64 B with FCS, plus preamble and gap. 67.2 ns at 10
/// Gbit/s.
pub const SHORTEST: WireBytes = WireBytes(84);

/// Returns the length on the wire of a frame of `len` bytes (without FCS).
#[inline]
pub const fn on_the_wire(len: usize) -> WireBytes {
    let bytes = len as u64 + OVERHEAD.0;
    if bytes < SHORTEST.0 {
        SHORTEST
    } else {
        WireBytes(bytes)
    }
}
