//! One socket of one receive queue: its memory and its four rings.

use super::chunks::Chunks;
use super::metadata;
use super::ring::{Consumer, Mapping, Offsets, Producer};
use rustix::net::sockopt;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpRingOffset, XdpUmemReg,
    XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Entries of the rings of received frames, and of chunks for them.
const RECEIVING: u32 = 2048;
/// Entries of the ring of frames to send.
const SENDING: u32 = 2048;
/// Chunks to send from: more than the ring has, since the NIC has some as well.
const SENDING_CHUNKS: u32 = 2 * SENDING;
/// Entries of the ring of sent frames: all that can be on their way.
const SENT: u32 = 2 * SENDING;

/// Offset of a frame to send in its chunk: space for its metadata, in a cache line of its own.
const SEND_OFFSET: usize = 64;
const _: () = assert!(metadata::LEN <= SEND_OFFSET);

/// Bytes that the kernel leaves free before a frame that it puts into a chunk
/// (`XDP_PACKET_HEADROOM`).
const RECEIVE_HEADROOM: u32 = 256;

/// Frames that the kernel may send in one system call in copy mode
/// (`XDP_MAX_TX_SKB_BUDGET`, since Linux 6.17; 32 before).
const SEND_BUDGET: (libc::c_int, u32) = (9, 256);

/// Most wake-ups of the kernel per burst, if it stops halfway.
const KICKS: u32 = SENDING / 32;

/// Sizes of chunks: half a page holds a frame of 1500 B of payload; drivers accept at most a page.
const CHUNKS: [u32; 2] = [2048, 4096];

/// Returns the smallest chunk that holds a frame of `len` bytes (without FCS) in both directions.
pub(super) fn chunk_for(len: u32) -> Option<u32> {
    CHUNKS
        .into_iter()
        .find(|chunk| len.saturating_add(RECEIVE_HEADROOM) <= *chunk)
}

/// The longest frame, in bytes without FCS.
pub const MAX_FRAME_BYTES: u32 = CHUNKS[1] - RECEIVE_HEADROOM;

/// Settings of a socket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// Bytes of a chunk.
    pub(super) chunk: u32,
    /// True if the socket sends; otherwise it only receives.
    pub(super) sends: bool,
    /// True if frames may have launch times.
    pub(super) launch_times: bool,
}

/// Frames lost or refused, since the socket was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    /// Lost before they could be received: the ring was full, or had no chunk.
    pub overruns: u64,
    /// Descriptors that one side found wrong. Always 0 if both sides are correct.
    pub invalid: u64,
}

/// Reason why a frame was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendRefusal {
    /// The ring is full at present.
    Full,
    /// The frame is longer than a chunk, or this queue does not send.
    TooLong,
}

/// A socket for the frames of one receive queue, one of which also sends.
/// Non-blocking.
#[derive(Debug)]
pub struct Queue {
    fd: OwnedFd,
    chunks: Chunks,
    plan: Plan,
    fill: Producer<u64>,
    received: Consumer<libc::xdp_desc>,
    sent: Consumer<u64>,
    send: Option<Producer<libc::xdp_desc>>,
    /// Dropped after the descriptor; the kernel keeps its pages as long as it needs them.
    memory: Mapping,
}

impl Queue {
    /// Makes a socket with its memory and its rings. The fill ring is full: drivers read it when
    /// the socket is bound, even if it only sends.
    pub(super) fn new(plan: Plan) -> io::Result<Self> {
        let kind = SocketType::RAW;
        let fd = rustix::net::socket_with(AddressFamily::XDP, kind, SocketFlags::CLOEXEC, None)?;
        let chunks_to_send = if plan.sends { SENDING_CHUNKS } else { 0 };
        let mut chunks = Chunks::new(plan.chunk, RECEIVING, chunks_to_send);
        let memory = Mapping::anonymous(chunks.bytes())?;
        let (flags, tx_metadata_len) = if plan.launch_times {
            (metadata::UMEM_FLAG, metadata::LEN as u32)
        } else {
            (0, 0)
        };
        let registration = XdpUmemReg {
            addr: memory.base() as u64,
            len: memory.len() as u64,
            chunk_size: plan.chunk,
            headroom: 0,
            flags: XdpUmemRegFlags::from_bits_retain(flags),
            tx_metadata_len,
        };
        sockopt::set_xdp_umem_reg(&fd, registration)?;
        sockopt::set_xdp_umem_fill_ring_size(&fd, RECEIVING)?;
        sockopt::set_xdp_umem_completion_ring_size(&fd, SENT)?;
        sockopt::set_xdp_rx_ring_size(&fd, RECEIVING)?;
        if plan.sends {
            sockopt::set_xdp_tx_ring_size(&fd, SENDING)?;
            // Without it one call sends less.
            let _ = set_option(&fd, SEND_BUDGET.0, SEND_BUDGET.1);
        }
        let offsets = sockopt::xdp_mmap_offsets(&fd)?;
        let ring = |at: u64, offsets: XdpRingOffset, size: u32, entry: usize| {
            let len = usize::try_from(offsets.desc).map_err(|_| io::ErrorKind::InvalidData)?;
            let mapping = Mapping::shared(fd.as_fd(), at, len + size as usize * entry)?;
            let offsets = Offsets {
                producer: offsets.producer,
                consumer: offsets.consumer,
                entries: offsets.desc,
                flags: offsets.flags,
            };
            io::Result::Ok((mapping, offsets))
        };
        let (address, descriptor) = (size_of::<u64>(), size_of::<libc::xdp_desc>());
        let (mapping, at) = ring(XDP_UMEM_PGOFF_FILL_RING, offsets.fr, RECEIVING, address)?;
        let mut fill = Producer::new(mapping, &at, RECEIVING)?;
        let (mapping, at) = ring(XDP_UMEM_PGOFF_COMPLETION_RING, offsets.cr, SENT, address)?;
        let sent = Consumer::new(mapping, &at, SENT)?;
        let (mapping, at) = ring(XDP_PGOFF_RX_RING, offsets.rx, RECEIVING, descriptor)?;
        let received = Consumer::new(mapping, &at, RECEIVING)?;
        let sending = if plan.sends {
            let (mapping, at) = ring(XDP_PGOFF_TX_RING, offsets.tx, SENDING, descriptor)?;
            Some(Producer::new(mapping, &at, SENDING)?)
        } else {
            None
        };
        for address in chunks.give_receiving() {
            fill.push(address);
        }
        fill.publish();
        Ok(Self {
            fd,
            chunks,
            plan,
            fill,
            received,
            sent,
            send: sending,
            memory,
        })
    }

    /// Binds the socket to a queue of an interface of this thread's network namespace.
    pub(super) fn bind(&self, interface: u32, queue: u32, zero_copy: bool) -> io::Result<()> {
        let mode = if zero_copy {
            SocketAddrXdpFlags::XDP_ZEROCOPY
        } else {
            SocketAddrXdpFlags::XDP_COPY
        };
        let flags = mode | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        let address = SocketAddrXdp::new(flags, interface, queue);
        Ok(rustix::net::bind(&self.fd, &address)?)
    }

    /// Returns true if the kernel reports when it needs a wake-up (need-wakeup, since Linux 5.4),
    /// so that not every burst takes one.
    pub fn tells_when_to_wake(&self) -> bool {
        self.fill.has_flags()
    }

    /// Passes at most `most` received frames to `take`, in order, and returns their chunks to the
    /// kernel. Returns the number of frames.
    pub fn receive(&mut self, most: usize, mut take: impl FnMut(&[u8])) -> usize {
        let mut count = 0;
        while count < most
            && let Some(descriptor) = self.received.pop()
        {
            count += 1;
            let (address, len) = (descriptor.addr, descriptor.len);
            let Some(place) = self.chunks.received(address, len) else {
                continue;
            };
            // SAFETY: `received` checked that the place lies in one chunk of the
            // memory, and that the kernel had that chunk and gave it back: it
            // does not write to it until it is in the fill ring again, which is
            // after the last use of these bytes.
            take(unsafe {
                std::slice::from_raw_parts(self.memory.base().add(place.start), place.len())
            });
            // There is always room: the ring has an entry for each chunk.
            self.fill.push(self.chunks.give_back(&place));
        }
        if count > 0 {
            self.received.release();
            self.fill.publish();
            if self.fill.needs_wakeup() {
                self.wake_receiving();
            }
        }
        count
    }

    /// Wakes a driver that waits for chunks. An error of the socket shows at the next send or poll.
    fn wake_receiving(&self) {
        let mut nothing = [0_u8; 0];
        let flags = rustix::net::RecvFlags::DONTWAIT;
        let _ = rustix::net::recv(&self.fd, &mut nothing[..], flags);
    }

    /// Sets the bytes with which every void starts: the beginning of `frame`, up to the longest
    /// void.
    pub fn set_void(&mut self, frame: &[u8]) {
        let len = frame.len().min(self.plan.chunk as usize - SEND_OFFSET);
        let at = self.chunks.voids() as usize + SEND_OFFSET;
        // SAFETY: the chunk of voids is the last of the memory, and `len` more
        // bytes are in it. The kernel at most reads it, and where it does now,
        // the frame that leaves has some of the old bytes and some of the new.
        unsafe {
            std::ptr::copy_nonoverlapping(frame.as_ptr(), self.memory.base().add(at), len);
        }
    }

    /// Takes a frame to send, without FCS; it leaves with the next [`Queue::flush`]. `launch` is
    /// its launch time, in nanoseconds of the NIC's clock, for a NIC with launch times.
    pub fn send(&mut self, frame: &[u8], launch: Option<u64>) -> Result<(), SendRefusal> {
        let Some(ring) = &mut self.send else {
            return Err(SendRefusal::TooLong);
        };
        if frame.len() > self.plan.chunk as usize - SEND_OFFSET {
            return Err(SendRefusal::TooLong);
        }
        if !ring.has_room() {
            return Err(SendRefusal::Full);
        }
        let Some(chunk) = self.chunks.take_sending() else {
            return Err(SendRefusal::Full);
        };
        let at = chunk as usize + SEND_OFFSET;
        let metadata = launch.filter(|_| self.plan.launch_times);
        // SAFETY: the chunk was just taken from those that are ours, so the
        // kernel does not look at it; it holds `SEND_OFFSET` bytes and the
        // frame, as was checked above.
        unsafe {
            let bytes = self.memory.base().add(at);
            std::ptr::copy_nonoverlapping(frame.as_ptr(), bytes, frame.len());
            if let Some(time) = metadata {
                let request = metadata::launch_at(time);
                let before = bytes.sub(metadata::LEN);
                std::ptr::copy_nonoverlapping(request.as_ptr(), before, metadata::LEN);
            }
        }
        let options = metadata.map_or(0, |_| metadata::DESCRIPTOR_FLAG);
        ring.push(libc::xdp_desc {
            addr: at as u64,
            len: frame.len() as u32,
            options,
        });
        Ok(())
    }

    /// Takes a void of `len` bytes without FCS: a descriptor of the bytes of
    /// [`Queue::set_void`], nothing more.
    pub fn send_void(&mut self, len: usize) -> Result<(), SendRefusal> {
        let Some(ring) = &mut self.send else {
            return Err(SendRefusal::TooLong);
        };
        if len > self.plan.chunk as usize - SEND_OFFSET {
            return Err(SendRefusal::TooLong);
        }
        let entered = ring.push(libc::xdp_desc {
            addr: self.chunks.voids() + SEND_OFFSET as u64,
            len: len as u32,
            options: 0,
        });
        if entered {
            Ok(())
        } else {
            Err(SendRefusal::Full)
        }
    }

    /// Takes back the chunks of sent frames.
    pub fn reap(&mut self) {
        let mut any = false;
        while let Some(address) = self.sent.pop() {
            self.chunks.sent(address);
            any = true;
        }
        if any {
            self.sent.release();
        }
    }

    /// Passes the taken frames to the kernel, and wakes the kernel if it needs that. Frames that it
    /// does not send now stay in the ring.
    ///
    /// # Errors
    /// The interface is gone or down ([`crate::tap::is_gone`]).
    pub fn flush(&mut self) -> io::Result<()> {
        if let Some(ring) = &mut self.send {
            ring.publish();
        }
        for _ in 0..KICKS {
            let Some(ring) = &mut self.send else {
                break;
            };
            let before = ring.pending();
            if before == 0 || !ring.needs_wakeup() {
                break;
            }
            let flags = SendFlags::DONTWAIT;
            // Other errors: the kernel stopped halfway, since its budget was used up or a queue had
            // no room. It continues with the rest.
            if let Err(errno) = rustix::net::send(&self.fd, &[], flags) {
                let error = io::Error::from(errno);
                if crate::tap::is_gone(&error) {
                    return Err(error);
                }
            }
            self.reap();
            let after = self.send.as_mut().map_or(0, Producer::pending);
            if after >= before {
                break;
            }
        }
        Ok(())
    }

    /// Returns true if the kernel has frames to send and does not continue by itself.
    pub fn is_stuck(&mut self) -> bool {
        let ring = self.send.as_mut();
        ring.is_some_and(|ring| ring.pending() > 0 && ring.needs_wakeup())
    }

    /// Returns the losses.
    pub fn losses(&self) -> Losses {
        let kernel = sockopt::xdp_statistics(&self.fd).ok();
        let of = |count: Option<u64>| count.unwrap_or(0);
        kernel.map_or_else(Losses::default, |kernel| Losses {
            overruns: kernel.rx_dropped
                + of(kernel.rx_ring_full)
                + of(kernel.rx_fill_ring_empty_descs),
            invalid: kernel.rx_invalid_descs + kernel.tx_invalid_descs + self.chunks.invalid(),
        })
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sets a numeric option of `SOL_XDP`.
fn set_option(fd: &OwnedFd, option: libc::c_int, value: u32) -> io::Result<()> {
    // SAFETY: the kernel reads four bytes from a valid reference.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            option,
            (&raw const value).cast(),
            size_of::<u32>() as libc::socklen_t,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::required::{Part, skipped};

    #[test]
    fn a_chunk_has_room_for_a_frame_and_the_kernel_headroom() {
        assert_eq!(chunk_for(1514 + 8), Some(2048));
        assert_eq!(chunk_for(1793), Some(4096));
        assert_eq!(chunk_for(MAX_FRAME_BYTES), Some(4096));
        assert_eq!(chunk_for(MAX_FRAME_BYTES + 1), None);
        assert_eq!(chunk_for(u32::MAX), None);
    }

    /// Makes an unbound socket, which needs no interface; `None`, with a line of output, if the
    /// computer forbids it.
    fn queue(launch_times: bool) -> Option<Queue> {
        let plan = Plan {
            chunk: 2048,
            sends: true,
            launch_times,
        };
        Queue::new(plan)
            .inspect_err(|error| skipped(Part::AfXdp, error))
            .ok()
    }

    #[test]
    fn the_kernel_takes_memory_with_room_for_launch_times() {
        let Some(mut queue) = queue(true) else { return };
        let frame = [7; 100];
        assert_eq!(queue.send(&frame, Some(0x0102_0304)), Ok(()));
        // The first chunk to send from, behind those that receive.
        let at = RECEIVING as usize * 2048 + SEND_OFFSET;
        // SAFETY: both lie in the memory; nobody sends, since it is not bound.
        let bytes = unsafe {
            let start = queue.memory.base().add(at - metadata::LEN);
            std::slice::from_raw_parts(start, metadata::LEN + frame.len())
        };
        assert_eq!(bytes[..metadata::LEN], metadata::launch_at(0x0102_0304));
        assert_eq!(bytes[metadata::LEN..], frame);
    }

    #[test]
    fn frames_too_long_for_a_chunk_or_a_full_queue_are_refused() {
        let Some(mut queue) = queue(false) else {
            return;
        };
        let longest = vec![0; 2048 - SEND_OFFSET];
        assert_eq!(
            queue.send(&[&longest[..], &[0]].concat(), None),
            Err(SendRefusal::TooLong)
        );
        assert_eq!(queue.send_void(2048), Err(SendRefusal::TooLong));
        for _ in 0..SENDING / 2 {
            assert_eq!(queue.send(&longest, None), Ok(()));
            assert_eq!(queue.send_void(1514), Ok(()));
        }
        assert_eq!(queue.send(&longest, None), Err(SendRefusal::Full));
        assert_eq!(queue.send_void(60), Err(SendRefusal::Full));
    }
}
