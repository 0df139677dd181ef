//! Code that the fuzz targets share.

#[cfg(feature = "service")]
#[path = "service.rs"]
pub mod service;

use tailbound_dataplane::{GuestId, Malformed, Packet, Pool};

/// `frame` as it comes from the guest of a slot, or from outside.
pub fn packet(
    pool: &Pool,
    frame: &[u8],
    virtio: Option<[u8; 10]>,
    guest: Option<u32>,
) -> Result<Packet, Malformed> {
    let start = Packet::HEADROOM;
    let mut buffer = pool.buffer(start + frame.len());
    buffer[start..start + frame.len()].copy_from_slice(frame);
    Packet::new(
        buffer,
        start,
        frame.len(),
        virtio,
        guest.map(GuestId::first),
    )
}
