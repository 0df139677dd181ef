//! Packet sockets on an interface of the host: the uplink, or a guest behind a veth.

use crate::join;
use crate::steered::SteeredEnd;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use tailbound_dataplane::pacer::void;
use tailbound_dataplane::{Buffer, Packet, Pool, VoidFrame};
use tailbound_switch::port::{
    BURST, Burst, Estate, More, Outgoing, Port, Received, Spare, TransmitResult,
};
use tailbound_sys::packet::{self, Batch, PacketError, Socket};
use tailbound_sys::tap::{VIRTIO_HEADER_LEN, is_gone};
use tailbound_units::{Nanos, WireBytes};

const _: () = assert!(BURST <= Batch::LEN);

/// The place of the virtio header, so that the frame behind it has the headroom of a [`Packet`].
const OFFSET: usize = Packet::HEADROOM - VIRTIO_HEADER_LEN;

/// Memory that is newly allocated for the buffers of a turn. Buffers for a whole burst of large
/// packets, 4 MiB, would delay packets by a millisecond until the kernel has mapped them. Fewer
/// frames are received until then.
const FRESH: usize = 256 << 10;

const _: () = assert!(FRESH >= Pool::LARGE, "one of any size");

const MAC_ADDRESSES: usize = 12;
const ETHERNET: usize = 14;
const TAG: usize = 4;

const ENOBUFS: i32 = rustix::io::Errno::NOBUFS.raw_os_error();

/// A packet socket with offloads: packets of up to 64 KiB cross it as a whole, in both directions.
#[derive(Debug)]
pub struct AfPacketPort {
    socket: Socket,
    batch: Batch,
    received: Vec<packet::Received>,
    voids: Voids,
    /// The receive CPUs of the other end, restored when the port is dropped.
    steered: SteeredEnd,
}

/// Voids of the interface's own station, behind a virtio header without offloads.
#[derive(Debug)]
struct Voids(Box<[u8]>);

impl Voids {
    fn new(address: [u8; 6]) -> Self {
        let mut bytes = vec![0; VIRTIO_HEADER_LEN];
        bytes.extend_from_slice(VoidFrame::new(address).bytes(void::MAX_VOID));
        Self(bytes.into())
    }

    /// Returns the header and the frame that takes `wire` bytes of the wire.
    fn get(&self, wire: WireBytes) -> &[u8] {
        let frame = wire.clamp(void::SHORTEST, void::MAX_VOID) - void::OVERHEAD;
        &self.0[..VIRTIO_HEADER_LEN + frame.0 as usize]
    }
}

impl AfPacketPort {
    /// Opens `interface` in `netns`. It must exist and be up.
    pub fn open(interface: &str, netns: Option<&Path>) -> Result<Self, PacketError> {
        let socket = Socket::open(interface, netns)?;
        let address = socket.address().map_err(|source| PacketError::Other {
            interface: interface.to_owned(),
            step: "read the MAC address",
            source,
        })?;
        Ok(Self::new(socket, address))
    }

    /// Continues with a descriptor that another process opened by [`AfPacketPort::open`].
    ///
    /// # Errors
    /// The descriptor is not that of the interface in the namespace, or the interface is gone or
    /// down.
    pub fn adopt(fd: OwnedFd, interface: &str, netns: Option<&Path>) -> io::Result<Self> {
        let socket = Socket::adopt(fd, interface, netns)?;
        let address = socket.address()?;
        Ok(Self::new(socket, address))
    }

    fn new(socket: Socket, address: [u8; 6]) -> Self {
        Self {
            socket,
            voids: Voids::new(address),
            batch: Batch::new(),
            received: Vec::with_capacity(BURST),
            steered: SteeredEnd::default(),
        }
    }

    /// Moves the receive work of the other end of a guest's veth away from the packet loop, which is
    /// bound to `cpu` or to the CPUs of this thread. If that fails, the log has a line, and the port
    /// works without steering.
    pub fn steer(&self, interface: String, netns: Option<PathBuf>, cpu: Option<u32>) {
        self.steered.begin(interface, netns, cpu);
    }

    /// Opens a port as [`AfPacketPort::open`], but receives only broadcast and multicast.
    pub(super) fn open_for_groups(
        interface: &str,
        netns: Option<&Path>,
    ) -> Result<Self, PacketError> {
        let port = Self::open(interface, netns)?;
        port.socket
            .only_groups()
            .map_err(|source| PacketError::Other {
                interface: interface.to_owned(),
                step: "receive groups alone",
                source,
            })?;
        Ok(port)
    }
}

/// Fills a burst of buffers with the pool's unused ones, and a few new ones.
fn refill(buffers: &mut Vec<Buffer>, pool: &Pool, size: usize) {
    let mut fresh = FRESH / size;
    while buffers.len() < BURST {
        let unused = pool.unused(size);
        fresh -= usize::from(unused.is_none());
        buffers.push(unused.unwrap_or_else(|| pool.buffer(size)));
        if fresh == 0 {
            return;
        }
    }
}

/// Restores the tag that the kernel removed behind the MAC addresses. The frame then starts [`TAG`]
/// bytes earlier, and the offsets in the virtio header grow by [`TAG`] bytes.
fn put_tag_back(frame: &mut Received, tag: [u8; TAG]) {
    if frame.len < MAC_ADDRESSES || frame.start < TAG {
        // Too short for Ethernet: the switch drops the frame.
        return;
    }
    let start = frame.start - TAG;
    let bytes = &mut frame.buffer[start..];
    bytes.copy_within(TAG..TAG + MAC_ADDRESSES, 0);
    bytes[MAC_ADDRESSES..MAC_ADDRESSES + TAG].copy_from_slice(&tag);
    frame.start = start;
    frame.len += TAG;
    if let Some(header) = &mut frame.virtio {
        const NEEDS_CSUM: u8 = 1;
        const HDR_LEN: usize = 2;
        const CSUM_START: usize = 6;
        move_behind_tag(header, HDR_LEN);
        if header[0] & NEEDS_CSUM != 0 {
            move_behind_tag(header, CSUM_START);
        }
    }
}

/// Adds the length of a tag to the 16 bits at `at`.
fn move_behind_tag(header: &mut [u8; VIRTIO_HEADER_LEN], at: usize) {
    let place = u16::from_le_bytes([header[at], header[at + 1]]);
    let moved = place.saturating_add(TAG as u16);
    header[at..at + 2].copy_from_slice(&moved.to_le_bytes());
}

impl Port for AfPacketPort {
    fn receive(&mut self, _now: Nanos, pool: &Pool, burst: &mut Burst) -> io::Result<More> {
        let Spare { heads, tails } = &mut burst.spare;
        refill(heads, pool, Pool::SMALL);
        refill(tails, pool, Pool::LARGE);
        let places = heads.len().min(tails.len());
        let result = self
            .socket
            .receive(&mut self.batch, OFFSET, heads, tails, &mut self.received);
        match result {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(More::No),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(More::Maybe),
            Err(error) => return Err(error),
        }
        let buffers = heads.iter_mut().zip(tails);
        for (received, (head, tail)) in self.received.iter().zip(buffers) {
            if received.truncated {
                burst.truncated += 1;
                continue;
            }
            let buffer = join(pool, head, tail, OFFSET, received.len);
            let mut frame = Received {
                start: Packet::HEADROOM,
                len: received.len.saturating_sub(VIRTIO_HEADER_LEN),
                virtio: buffer[OFFSET..].first_chunk().copied(),
                buffer,
            };
            if let Some(tag) = received.vlan_tag {
                put_tag_back(&mut frame, tag);
            }
            burst.frames.push(frame);
        }
        if self.received.len() < places {
            return Ok(More::No);
        }
        Ok(More::Maybe)
    }

    fn transmit(
        &mut self,
        _now: Nanos,
        outgoing: &mut VecDeque<Outgoing>,
    ) -> io::Result<TransmitResult> {
        let mut sent = TransmitResult::default();
        while let Some(first) = outgoing.front() {
            let lost = u64::from(matches!(first, Outgoing::Frame { .. }));
            let voids = &self.voids;
            let wire = outgoing.iter_mut().map(|next| match next {
                Outgoing::Frame { frame, .. } => frame.with_virtio_header(),
                Outgoing::Void { wire } => voids.get(*wire),
            });
            match self.socket.transmit(&mut self.batch, wire) {
                Ok(count) => {
                    for next in outgoing.drain(..count) {
                        sent.add(&next);
                    }
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    sent.full = true;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if is_gone(&error) => return Err(error),
                // The queue of the interface had no room and dropped it
                // (packet_snd returns what dev_queue_xmit said).
                Err(error) if error.raw_os_error() == Some(ENOBUFS) => sent.device_full += lost,
                Err(_) => sent.refused += lost,
            }
            outgoing.pop_front();
        }
        Ok(sent)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn longest(&self) -> Option<usize> {
        let mtu = self.socket.mtu().ok()?;
        Some(mtu as usize + ETHERNET)
    }

    fn pause(&mut self) -> Option<Estate> {
        self.steered.leave(true);
        None
    }

    fn resume(&mut self) {
        self.steered.leave(false);
    }

    fn take_overruns(&mut self) -> u64 {
        self.socket.take_overruns().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_takes_little_memory_anew_and_all_that_lies_unused() {
        let pool = Pool::new();
        let mut buffers = Vec::new();
        let mut turns = 0;
        while buffers.len() < BURST {
            let before = buffers.len();
            refill(&mut buffers, &pool, Pool::LARGE);
            let taken = (buffers.len() - before) * Pool::LARGE;
            assert!((1..=FRESH).contains(&taken), "{taken} bytes at once");
            turns += 1;
        }
        assert!(turns > 1);
        refill(&mut buffers, &pool, Pool::LARGE);
        assert_eq!(buffers.len(), BURST);
        buffers.clear();
        refill(&mut buffers, &pool, Pool::LARGE);
        assert_eq!(buffers.len(), BURST, "they lay unused");
    }

    #[test]
    fn a_tag_that_the_kernel_took_out_goes_back_behind_the_addresses() {
        let mut buffer = Pool::new().buffer(Pool::SMALL);
        let frame: Vec<u8> = (0..60).collect();
        buffer[Packet::HEADROOM..Packet::HEADROOM + 60].copy_from_slice(&frame);
        let mut received = Received {
            buffer,
            start: Packet::HEADROOM,
            len: 60,
            // A checksum left to do: csum_start 34, csum_offset 16.
            virtio: Some([1, 0, 54, 0, 0, 0, 34, 0, 16, 0]),
        };
        put_tag_back(&mut received, [0x81, 0, 0xa0, 7]);
        let bytes = &received.buffer[received.start..received.start + received.len];
        let expected = [&frame[..12], &[0x81, 0, 0xa0, 7], &frame[12..]].concat();
        assert_eq!(bytes, expected);
        assert_eq!(received.virtio, Some([1, 0, 58, 0, 0, 0, 38, 0, 16, 0]));
    }

    #[test]
    fn a_frame_too_short_for_a_tag_stays_as_it_is() {
        let mut received = Received {
            buffer: Pool::new().buffer(Pool::SMALL),
            start: Packet::HEADROOM,
            len: 11,
            virtio: None,
        };
        put_tag_back(&mut received, [0x81, 0, 0, 1]);
        assert_eq!((received.start, received.len), (Packet::HEADROOM, 11));
    }

    #[test]
    fn a_void_is_the_interfaces_own_and_takes_the_wire_time_that_was_asked_for() {
        let voids = Voids::new([2, 0, 0, 0, 0, 9]);
        for wire in [84, 85, 1538].map(WireBytes) {
            let bytes = voids.get(wire);
            assert_eq!(&bytes[..VIRTIO_HEADER_LEN], [0; VIRTIO_HEADER_LEN]);
            let frame = &bytes[VIRTIO_HEADER_LEN..];
            assert_eq!(frame[..6], frame[6..12]);
            assert_eq!(void::on_the_wire(frame.len()), wire);
        }
    }
}
