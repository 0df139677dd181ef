//! Ports of a real host: one file a kind.
//!
//! What a port is, and those for tests and captures, is in [`tailbound_switch::port`].

mod af_packet;
mod af_xdp;
mod tap;

pub use af_packet::AfPacketPort;
pub use af_xdp::{AfXdpError, AfXdpMode, AfXdpPort};
pub use tap::TapPort;

use tailbound_dataplane::{Buffer, Pool};

/// Puts a frame, of which the first part was received into `head` and the rest
/// into `tail` as if the two were one buffer, into one of the two: small frames
/// keep the small buffer, and only the start of a large one is copied.
///
/// Both start at `offset` in the buffer; `len` counts from there. The buffer
/// that is used is replaced by a fresh one.
fn join(pool: &Pool, head: &mut Buffer, tail: &mut Buffer, offset: usize, len: usize) -> Buffer {
    let end = offset + len;
    let head_len = head.len();
    if end <= head_len {
        return std::mem::replace(head, pool.buffer(head_len));
    }
    tail[offset..head_len].copy_from_slice(&head[offset..]);
    let fresh = pool.buffer(tail.len());
    std::mem::replace(tail, fresh)
}
