//! What an Ethernet wire spends on a frame.

use tailbound_units::WireBytes;

/// Bytes that a wire spends on a frame beside its own: preamble and start
/// delimiter 8, FCS 4, gap 12 (IEEE 802.3).
pub const OVERHEAD: WireBytes = WireBytes(24);

/// The least that a frame takes of the wire: 64 B with its FCS, preamble, gap.
/// 67.2 ns at 10 Gbit/s.
pub const SHORTEST: WireBytes = WireBytes(84);

/// What a frame of `len` bytes (without FCS) takes of the wire.
#[inline]
pub const fn on_the_wire(len: usize) -> WireBytes {
    let bytes = len as u64 + OVERHEAD.0;
    if bytes < SHORTEST.0 {
        SHORTEST
    } else {
        WireBytes(bytes)
    }
}
