//! Helpers of tests: frames as bytes, and a frame without bytes.

pub mod frames;
#[cfg(test)]
mod record;
#[cfg(test)]
pub(crate) mod tcp;

#[cfg(test)]
pub(crate) use record::Record;

use crate::{GuestId, HashKeys, Malformed, Packet, Pool};

/// Returns a packet from guest 1, in a pool of its own.
///
/// # Errors
/// The frame is malformed.
pub fn packet(frame: &[u8], virtio: Option<[u8; 10]>) -> Result<Packet, Malformed> {
    packet_from(frame, virtio, Some(GuestId::first(1)))
}

/// Returns a packet from a guest, or from elsewhere, in a pool of its own.
///
/// # Errors
/// The frame is malformed.
pub fn packet_from(
    frame: &[u8],
    virtio: Option<[u8; 10]>,
    source: Option<GuestId>,
) -> Result<Packet, Malformed> {
    let pool = Pool::with_keys(HashKeys::FIXED);
    let mut buffer = pool.buffer(Packet::HEADROOM + frame.len());
    buffer[Packet::HEADROOM..Packet::HEADROOM + frame.len()].copy_from_slice(frame);
    Packet::new(buffer, Packet::HEADROOM, frame.len(), virtio, source)
}
