//! Owners of the chunks of a socket's memory: the kernel or this process.
//!
//! The first chunks receive, the next ones send, the last one has the bytes of every void and is
//! sent from repeatedly: the kernel only reads it. Descriptors from the kernel are checked here:
//! one that is not of a chunk of the kernel's is counted and otherwise ignored.

use std::ops::Range;

/// The chunks of a socket.
#[derive(Debug)]
pub(super) struct Chunks {
    /// Bytes of a chunk, a power of two.
    size: u64,
    receiving: u64,
    sending: u64,
    /// For each chunk, true if the kernel has it; without the last one.
    with_kernel: Box<[bool]>,
    /// Chunks to send from that this process has.
    free: Vec<u64>,
    /// The number of chunks that the kernel returned although it did not have them.
    invalid: u64,
}

impl Chunks {
    /// Makes `receiving` and `sending` chunks of `size` bytes, and the one of voids. This process
    /// has all of them.
    pub(super) fn new(size: u32, receiving: u32, sending: u32) -> Self {
        let (receiving, sending) = (u64::from(receiving), u64::from(sending));
        Self {
            size: u64::from(size),
            receiving,
            sending,
            with_kernel: vec![false; (receiving + sending) as usize].into(),
            free: (receiving..receiving + sending).rev().collect(),
            invalid: 0,
        }
    }

    /// Returns the total size in bytes.
    pub(super) fn bytes(&self) -> usize {
        ((self.receiving + self.sending + 1) * self.size) as usize
    }

    /// Returns the address of the chunk of voids.
    pub(super) fn voids(&self) -> u64 {
        (self.receiving + self.sending) * self.size
    }

    /// Hands the chunks to receive into over to the kernel, and returns their addresses.
    pub(super) fn give_receiving(&mut self) -> impl Iterator<Item = u64> + use<> {
        self.with_kernel[..self.receiving as usize].fill(true);
        let size = self.size;
        (0..self.receiving).map(move |chunk| chunk * size)
    }

    /// Takes the chunk of a received frame from the kernel, and returns the place of the frame.
    /// `None` if the kernel had no such chunk or the frame exceeds it.
    pub(super) fn received(&mut self, address: u64, len: u32) -> Option<Range<usize>> {
        let chunk = address / self.size;
        let end = address.checked_add(u64::from(len))?;
        let fits = end <= (chunk + 1) * self.size;
        if chunk >= self.receiving || !self.with_kernel[chunk as usize] || !fits {
            self.invalid += 1;
            return None;
        }
        self.with_kernel[chunk as usize] = false;
        Some(address as usize..end as usize)
    }

    /// Returns the chunk of a received frame to the kernel; the result is its address.
    pub(super) fn give_back(&mut self, frame: &Range<usize>) -> u64 {
        let chunk = frame.start as u64 / self.size;
        self.with_kernel[chunk as usize] = true;
        chunk * self.size
    }

    /// Hands a chunk to send from over to the kernel, and returns its address.
    pub(super) fn take_sending(&mut self) -> Option<u64> {
        let chunk = self.free.pop()?;
        self.with_kernel[chunk as usize] = true;
        Some(chunk * self.size)
    }

    /// Takes back the chunk at `address`, which the kernel has sent.
    pub(super) fn sent(&mut self, address: u64) {
        let chunk = address / self.size;
        if chunk == self.receiving + self.sending {
            return;
        }
        let sending = self.receiving..self.receiving + self.sending;
        if !sending.contains(&chunk) || !self.with_kernel[chunk as usize] {
            self.invalid += 1;
            return;
        }
        self.with_kernel[chunk as usize] = false;
        self.free.push(chunk);
    }

    /// Returns the number of refused descriptors.
    pub(super) fn invalid(&self) -> u64 {
        self.invalid
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: u32 = 2048;

    #[test]
    fn a_chunk_returns_to_its_pool_after_use() {
        let mut chunks = Chunks::new(SIZE, 2, 1);
        assert_eq!(chunks.bytes(), 4 * 2048);
        assert_eq!(chunks.give_receiving().collect::<Vec<_>>(), [0, 2048]);
        let frame = chunks.received(2048 + 256, 100).expect("the kernel had it");
        assert_eq!(frame, 2304..2404);
        assert_eq!(chunks.give_back(&frame), 2048);
        let address = chunks.take_sending().expect("one is free");
        assert_eq!((address, chunks.take_sending()), (4096, None));
        chunks.sent(address + 64);
        assert_eq!(chunks.take_sending(), Some(4096));
        assert_eq!(chunks.invalid(), 0);
    }

    #[test]
    fn the_chunk_of_voids_may_come_back_as_often_as_it_likes() {
        let mut chunks = Chunks::new(SIZE, 1, 1);
        let voids = chunks.voids();
        for _ in 0..3 {
            chunks.sent(voids);
        }
        assert_eq!((chunks.invalid(), chunks.free.len()), (0, 1));
    }

    #[test]
    fn a_chunk_that_comes_back_twice_is_counted_and_not_handed_out_twice() {
        let mut chunks = Chunks::new(SIZE, 1, 1);
        let address = chunks.take_sending().expect("one is free");
        chunks.sent(address);
        chunks.sent(address);
        assert_eq!((chunks.invalid(), chunks.free.len()), (1, 1));
    }

    proptest! {
        #[test]
        fn descriptors_of_any_bits_stay_in_the_memory_and_no_chunk_is_lost_or_doubled(
            steps in prop::collection::vec((any::<bool>(), prop_oneof![0..5 * 2048_u64, any::<u64>()], prop_oneof![0..3000_u32, any::<u32>()]), 0..100),
        ) {
            let mut chunks = Chunks::new(SIZE, 2, 2);
            let _ = chunks.give_receiving();
            for (receive, address, len) in steps {
                if receive {
                    if let Some(frame) = chunks.received(address, len) {
                        prop_assert!(frame.end <= 2 * SIZE as usize);
                        chunks.give_back(&frame);
                    }
                } else {
                    chunks.take_sending();
                    chunks.sent(address);
                }
                let out = chunks.with_kernel.iter().filter(|with| **with).count();
                prop_assert_eq!(out + chunks.free.len(), 4);
                let mut free = chunks.free.clone();
                free.sort_unstable();
                free.dedup();
                prop_assert_eq!(free.len(), chunks.free.len());
            }
        }
    }
}
