//! A split virtqueue from the driver's side (Virtual I/O Device 1.2, section 2.7), each of whose
//! descriptors has a buffer of its own: a header and a frame.

use super::RING_LEN;
use super::memory::Memory;
use crate::tap::VIRTIO_HEADER_LEN;
use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

/// Length of a buffer, in bytes.
pub(super) const BUFFER_LEN: usize = 2048;

const LEN: usize = RING_LEN as usize;
const DESCRIPTOR_LEN: usize = 16;
const AVAILABLE: usize = LEN * DESCRIPTOR_LEN;
/// Behind flags, index, entries and an event index, aligned.
const USED: usize = (AVAILABLE + 6 + 2 * LEN).next_multiple_of(8);
const BUFFERS: usize = (USED + 6 + 8 * LEN).next_multiple_of(4096);

/// `VRING_DESC_F_WRITE`: a descriptor that the device writes to.
const DEVICE_WRITES: u16 = 2;
/// `VRING_AVAIL_F_NO_INTERRUPT`.
const NO_INTERRUPT: u16 = 1;
/// `VRING_USED_F_NO_NOTIFY`.
const NO_NOTIFY: u16 = 1;

#[derive(Debug)]
pub(super) struct Queue {
    /// Offset of the queue in the memory.
    start: usize,
    /// Descriptors that the device does not have.
    free: Vec<u16>,
    /// Index of the next entry of the available ring.
    available: u16,
    /// Index of the next entry of the used ring.
    used: u16,
}

impl Queue {
    /// Bytes of a queue with its buffers.
    pub(super) const LEN: usize = BUFFERS + LEN * BUFFER_LEN;

    /// A queue at `start` whose buffers are all free.
    pub(super) fn for_sending(memory: &Memory, start: usize) -> Self {
        let queue = Self {
            start,
            free: (0..RING_LEN).rev().collect(),
            available: 0,
            used: 0,
        };
        for descriptor in 0..RING_LEN {
            queue.describe(memory, descriptor, 0, 0);
        }
        let flags = memory.word16(start + AVAILABLE);
        flags.store(NO_INTERRUPT, Relaxed);
        queue
    }

    /// A queue at `start` whose buffers the device has all, for frames.
    pub(super) fn for_receiving(memory: &Memory, start: usize) -> Self {
        let mut queue = Self {
            start,
            free: Vec::with_capacity(LEN),
            available: 0,
            used: 0,
        };
        for descriptor in 0..RING_LEN {
            queue.describe(memory, descriptor, BUFFER_LEN, DEVICE_WRITES);
            queue.offer(memory, descriptor);
        }
        queue
    }

    /// Offsets of descriptors, available ring and used ring in the memory.
    pub(super) fn parts(&self) -> [usize; 3] {
        [0, AVAILABLE, USED].map(|part| self.start + part)
    }

    fn buffer(&self, descriptor: u16) -> usize {
        self.start + BUFFERS + usize::from(descriptor) * BUFFER_LEN
    }

    /// Writes a descriptor; the device looks at it once it is offered.
    fn describe(&self, memory: &Memory, descriptor: u16, len: usize, flags: u16) {
        let at = self.start + usize::from(descriptor) * DESCRIPTOR_LEN;
        let address = memory.address(self.buffer(descriptor));
        memory.word64(at).store(address, Relaxed);
        memory.word32(at + 8).store(len as u32, Relaxed);
        memory.word16(at + 12).store(flags, Relaxed);
    }

    /// Makes a descriptor available to the device.
    fn offer(&mut self, memory: &Memory, descriptor: u16) {
        let entry = usize::from(self.available % RING_LEN);
        let available = self.start + AVAILABLE;
        let ring = memory.word16(available + 4 + 2 * entry);
        ring.store(descriptor, Relaxed);
        self.available = self.available.wrapping_add(1);
        // After the entry and the buffer that it refers to.
        memory.word16(available + 2).store(self.available, Release);
    }

    /// Takes the next descriptor that the device has used, with the number of bytes that it wrote.
    fn next_used(&mut self, memory: &Memory) -> io::Result<Option<(u16, usize)>> {
        let used = self.start + USED;
        if memory.word16(used + 2).load(Acquire) == self.used {
            return Ok(None);
        }
        let at = used + 4 + 8 * usize::from(self.used % RING_LEN);
        let descriptor = memory.word32(at).load(Relaxed);
        let len = memory.word32(at + 4).load(Relaxed) as usize;
        let descriptor = u16::try_from(descriptor).ok();
        let descriptor = descriptor.filter(|it| *it < RING_LEN && len <= BUFFER_LEN);
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "a damaged used ring");
        let descriptor = descriptor.ok_or_else(damaged)?;
        self.used = self.used.wrapping_add(1);
        Ok(Some((descriptor, len)))
    }

    /// Takes back the buffers that the device has read.
    pub(super) fn reclaim(&mut self, memory: &Memory) -> io::Result<()> {
        while let Some((descriptor, _)) = self.next_used(memory)? {
            self.free.push(descriptor);
        }
        Ok(())
    }

    /// Entries that the device has.
    pub(super) fn outstanding(&self) -> u16 {
        self.available.wrapping_sub(self.used)
    }

    /// Offers a frame behind an empty header. Returns `false` if no buffer is free.
    pub(super) fn push(&mut self, memory: &mut Memory, frame: &[u8]) -> io::Result<bool> {
        if self.free.is_empty() {
            self.reclaim(memory)?;
        }
        let Some(descriptor) = self.free.pop() else {
            return Ok(false);
        };
        let buffer = self.buffer(descriptor);
        memory.write(buffer, &[0; VIRTIO_HEADER_LEN]);
        memory.write(buffer + VIRTIO_HEADER_LEN, frame);
        self.describe(memory, descriptor, VIRTIO_HEADER_LEN + frame.len(), 0);
        self.offer(memory, descriptor);
        Ok(true)
    }

    /// Passes the next frame that the device wrote to `handle`, and offers its buffer again.
    /// Returns `false` if there is none.
    pub(super) fn take(
        &mut self,
        memory: &Memory,
        handle: &mut impl FnMut(&[u8]),
    ) -> io::Result<bool> {
        let Some((descriptor, len)) = self.next_used(memory)? else {
            return Ok(false);
        };
        let mut bytes = [0; BUFFER_LEN];
        memory.read(self.buffer(descriptor), &mut bytes[..len]);
        self.offer(memory, descriptor);
        if let Some(frame) = bytes[..len].get(VIRTIO_HEADER_LEN..) {
            handle(frame);
        }
        Ok(true)
    }

    /// Returns `true` if the device has to be notified of new entries.
    pub(super) fn wants_notification(&self, memory: &Memory) -> bool {
        // The new index before the flag (2.7.13.4).
        fence(SeqCst);
        memory.word16(self.start + USED).load(Relaxed) & NO_NOTIFY == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The device's side of a queue.
    struct Device {
        start: usize,
        seen: u16,
    }

    impl Device {
        /// Takes the next available descriptor: its number and its buffer's length.
        fn next(&mut self, memory: &Memory) -> Option<(u16, usize)> {
            let available = self.start + AVAILABLE;
            if memory.word16(available + 2).load(Acquire) == self.seen {
                return None;
            }
            let entry = usize::from(self.seen % RING_LEN);
            self.seen = self.seen.wrapping_add(1);
            let descriptor = memory.word16(available + 4 + 2 * entry).load(Relaxed);
            let at = self.start + usize::from(descriptor) * DESCRIPTOR_LEN;
            let len = memory.word32(at + 8).load(Relaxed) as usize;
            Some((descriptor, len))
        }

        fn done(&self, memory: &Memory, descriptor: u32, len: u32) {
            let used = self.start + USED;
            let index = memory.word16(used + 2);
            let at = used + 4 + 8 * usize::from(index.load(Relaxed) % RING_LEN);
            memory.word32(at).store(descriptor, Relaxed);
            memory.word32(at + 4).store(len, Relaxed);
            index.fetch_add(1, Release);
        }
    }

    /// A queue that is not the first one, and its device.
    fn memory() -> (Memory, usize, Device) {
        let start = Queue::LEN;
        (
            Memory::new(2 * Queue::LEN).unwrap(),
            start,
            Device { start, seen: 0 },
        )
    }

    #[test]
    fn frames_that_are_sent_are_read_by_the_device_in_order_and_their_buffers_come_back() {
        let (mut memory, start, mut device) = memory();
        let mut queue = Queue::for_sending(&memory, start);
        // More than an index counts.
        for round in 0..300_u32 {
            for frame in 0..u32::from(RING_LEN) {
                let bytes = (round * 1000 + frame).to_ne_bytes();
                assert!(queue.push(&mut memory, &bytes).unwrap());
            }
            assert!(!queue.push(&mut memory, b"no room").unwrap());
            assert_eq!(queue.outstanding(), RING_LEN);
            for frame in 0..u32::from(RING_LEN) {
                let (descriptor, len) = device.next(&memory).unwrap();
                assert_eq!(len, VIRTIO_HEADER_LEN + 4);
                let mut bytes = [9; VIRTIO_HEADER_LEN + 4];
                memory.read(queue.buffer(descriptor), &mut bytes);
                assert_eq!(bytes[..VIRTIO_HEADER_LEN], [0; VIRTIO_HEADER_LEN]);
                let number = u32::from_ne_bytes(bytes[VIRTIO_HEADER_LEN..].try_into().unwrap());
                assert_eq!(number, round * 1000 + frame);
                device.done(&memory, descriptor.into(), 0);
            }
            assert!(device.next(&memory).is_none());
            queue.reclaim(&memory).unwrap();
            assert_eq!(queue.outstanding(), 0);
        }
    }

    #[test]
    fn frames_that_the_device_wrote_are_received_and_their_buffers_offered_again() {
        let (mut memory, start, mut device) = memory();
        let mut queue = Queue::for_receiving(&memory, start);
        for round in 0..700_u32 {
            let mut sent = Vec::new();
            for frame in 0..100_u32 {
                let (descriptor, len) = device.next(&memory).expect("a buffer");
                assert_eq!(len, BUFFER_LEN);
                let bytes = (round * 1000 + frame).to_ne_bytes();
                memory.write(queue.buffer(descriptor) + VIRTIO_HEADER_LEN, &bytes);
                device.done(&memory, descriptor.into(), VIRTIO_HEADER_LEN as u32 + 4);
                sent.push(bytes.to_vec());
            }
            let mut received = Vec::new();
            while queue
                .take(&memory, &mut |frame| received.push(frame.to_vec()))
                .unwrap()
            {}
            assert_eq!(received, sent);
        }
    }

    #[test]
    fn a_used_ring_with_impossible_entries_is_an_error() {
        for (descriptor, len) in [
            (u32::from(RING_LEN), 20),
            (1 << 16, 20),
            (0, BUFFER_LEN as u32 + 1),
        ] {
            let (memory, start, device) = memory();
            let mut queue = Queue::for_receiving(&memory, start);
            device.done(&memory, descriptor, len);
            let taken = queue.take(&memory, &mut |_| panic!("no frame"));
            assert!(taken.is_err(), "{descriptor} {len}");
        }
    }

    #[test]
    fn the_device_is_notified_unless_it_asks_not_to_be() {
        let (memory, start, _) = memory();
        let queue = Queue::for_sending(&memory, start);
        assert!(queue.wants_notification(&memory));
        memory.word16(start + USED).store(NO_NOTIFY, Relaxed);
        assert!(!queue.wants_notification(&memory));
    }
}
