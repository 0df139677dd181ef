//! Ports of a real host on its interfaces: TAP, `AF_PACKET` and `AF_XDP`, one file for each kind.
//!
//! [`tailbound_switch::port`] defines ports, and has those for tests and captures; a VM's vhost-user
//! port is a crate of its own. Ports are apart from the daemon because each frame passes them: they
//! are compiled for speed, and the daemon for size.

mod af_packet;
mod af_xdp;
mod steered;
mod tap;

pub use af_packet::AfPacketPort;
pub use af_xdp::{AfXdpError, AfXdpMode, AfXdpPort};
pub use tap::TapPort;

use tailbound_dataplane::{Buffer, Pool};

/// Shorter frames are copied into a buffer of this size.
const MIDDLE: usize = Pool::SIZES[Pool::SIZES.len() - 2];

/// Joins the two parts of a frame, of which the first was received into `head` and the rest into
/// `tail` as if the two were one buffer. A small frame keeps the small buffer, a frame of up to
/// [`MIDDLE`] is copied whole, and of a larger one only the start is copied.
///
/// Both start at `offset` in the buffer; `len` counts from there. The buffer
/// that is used is replaced by a fresh one.
fn join(pool: &Pool, head: &mut Buffer, tail: &mut Buffer, offset: usize, len: usize) -> Buffer {
    let end = offset + len;
    let head_len = head.len();
    if end <= head_len {
        return std::mem::replace(head, pool.buffer(head_len));
    }
    if end <= MIDDLE {
        let mut whole = pool.buffer(end);
        whole[offset..head_len].copy_from_slice(&head[offset..]);
        whole[head_len..end].copy_from_slice(&tail[head_len..end]);
        return whole;
    }
    tail[offset..head_len].copy_from_slice(&head[offset..]);
    let fresh = pool.buffer(tail.len());
    std::mem::replace(tail, fresh)
}
