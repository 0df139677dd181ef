//! Device side of a split ring (virtio 1.2, 2.7). Chains are taken and returned in order.
//!
//! The module accesses memory only, and no files. Data of the driver may be wrong and may change
//! during a read: each descriptor is copied once, and only the copy is checked. The addresses of
//! the ring's parts are looked up once per burst, and a burst is returned in one step, so the
//! driver's core and this one share few cache lines.

use std::sync::atomic::{Ordering, fence};
use tailbound_dataplane::{Packet, Pool, VIRTIO_HEADER};
use tailbound_switch::port::{BURST, BURST_BYTES, Received};
use virtio_queue::desc::split::Descriptor;
use virtio_queue::{Queue, QueueT};
use vm_memory::bitmap::BS;
use vm_memory::{
    Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryRegion, MemoryRegionAddress,
    VolatileMemory, VolatileSlice,
};

/// The longest header before a frame.
pub const HEADER: usize = 12;

/// The largest ring, in entries.
pub const MAX_RING_ENTRIES: u16 = 32_768;

/// Maximum of descriptors per frame. Chains of drivers are shorter, and this bounds the cost of a
/// guest's chain.
const MOST_PIECES: usize = 512;

/// Maximum of chains per frame.
const MOST_CHAINS: u16 = 256;

/// Length of a descriptor, in bytes.
const DESCRIPTOR: usize = 16;

/// A burst ends with the frame that reaches this number of descriptors. Bursts of Linux are
/// shorter: a packet has at most `MAX_SKB_FRAGS` + 2, and one of 64 KiB takes 33 buffers of 2 KiB.
pub(crate) const BURST_PIECES: usize = 34 * BURST;

/// Length of a frame that fits the buffers of every driver (virtio 1.2, 5.1.6.3.1).
const FULL_FRAME: usize = 1514;

/// Number of successive frames, none longer than [`FULL_FRAME`], that do not fit the buffers before
/// a ring is broken. Each costs up to [`MOST_PIECES`] descriptors.
const MOST_REFUSED: u32 = 256;

/// `VRING_AVAIL_F_NO_INTERRUPT`.
const NO_INTERRUPT: u16 = 1;

/// Reason why a ring is unusable until its driver starts it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// Its size.
    #[error("a ring of {0} entries: a power of 2 up to {MAX_RING_ENTRIES} is wanted")]
    Size(u32),
    /// A part of it.
    #[error("its {0} is not where the guest has memory, or not aligned")]
    Place(&'static str),
    /// More is available than there are entries.
    #[error("its driver offers more chains than it has entries")]
    Index,
    /// A chain that begins behind the table.
    #[error("a chain begins at descriptor {0}, behind its table")]
    Head(u16),
    /// A chain whose end is not in its table.
    #[error("a chain has no end within its table")]
    Endless,
    /// A chain of too many descriptors.
    #[error("a chain has more than {MOST_PIECES} descriptors")]
    Long,
    /// A chain with a buffer that is for the other direction.
    #[error("a chain has a buffer for the other direction")]
    Direction,
    /// A buffer outside.
    #[error("a buffer is not where the guest has memory")]
    Outside,
    /// A descriptor that only costs a look.
    #[error("a chain has a descriptor of no bytes")]
    Empty,
    /// Buffers that no frame fits into, one frame after the other.
    #[error("its buffers are too short for each of {MOST_REFUSED} frames in a row")]
    Short,
}

/// Addresses of a ring as declared by the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Number of entries.
    pub size: u32,
    /// The guest's address of its descriptors.
    pub descriptors: u64,
    /// Of the part that the driver writes.
    pub available: u64,
    /// Of the part that the device writes.
    pub used: u64,
    /// Interrupts and kicks are named by their index.
    pub event_index: bool,
}

/// Format of a ring's headers and chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// Bytes of the header before each frame: 10 or 12.
    pub header: usize,
    /// A frame may take several chains.
    pub mergeable: bool,
}

/// Outcome of the delivery of a frame to the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// The frame is in the ring.
    Done,
    /// There is no room: nothing has changed.
    Full,
    /// There will never be room: the buffers are too short.
    TooLong,
}

/// Frame taken from a ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameChains {
    /// Number of the frame's chains.
    pub chains: usize,
    /// Number of chains that are longer than any frame.
    pub truncated: u64,
    /// Number of their descriptors.
    pub pieces: usize,
}

/// A buffer: its address and its length.
type Piece = (GuestAddress, usize);

/// Device side of a split ring.
#[derive(Debug)]
pub struct Ring {
    queue: Queue,
    /// Used index at the last check for a requested call; `None` before the first check.
    called: Option<u16>,
    /// The driver must kick for further chains.
    waits: bool,
    /// Unpublished chains: written to the used part behind its index.
    unpublished: u16,
    /// Room for the buffers of a frame.
    pieces: Vec<Piece>,
    /// Frames in a row that did not fit, of those that fit into what a driver has to offer.
    refused: u32,
}

/// Guest memory with the log of writes.
type Slice<'m, M> =
    VolatileSlice<'m, BS<'m, <<M as GuestMemoryBackend>::R as GuestMemoryRegion>::B>>;

/// Returns the memory of `len` bytes at a guest's address if it is contiguous.
#[inline]
fn slice<M: GuestMemoryBackend>(memory: &M, at: u64, len: usize) -> Option<Slice<'_, M>> {
    let region = memory.find_region(GuestAddress(at))?;
    let offset = at.checked_sub(region.start_addr().0)?;
    region.get_slice(MemoryRegionAddress(offset), len).ok()
}

/// The parts of a ring in memory.
struct Parts<'m, M: GuestMemoryBackend> {
    table: Slice<'m, M>,
    available: Slice<'m, M>,
    used: Slice<'m, M>,
}

impl<'m, M: GuestMemoryBackend> Parts<'m, M> {
    /// Looks for them.
    fn of(queue: &Queue, memory: &'m M) -> Result<Self, RingError> {
        let size = usize::from(queue.size());
        let part = |name, at, len| slice(memory, at, len).ok_or(RingError::Place(name));
        Ok(Self {
            table: part("table of descriptors", queue.desc_table(), 16 * size)?,
            available: part("available part", queue.avail_ring(), 6 + 2 * size)?,
            used: part("used part", queue.used_ring(), 6 + 8 * size)?,
        })
    }

    /// The index that the driver will write next, of at most `size` chains behind `next`.
    fn available(&self, next: u16, size: u16) -> Result<u16, RingError> {
        let outside = |_| RingError::Place("available part");
        let index = self.available.load(2, Ordering::Acquire).map_err(outside)?;
        let index = u16::from_le(index);
        if index.wrapping_sub(next) > size {
            return Err(RingError::Index);
        }
        Ok(index)
    }

    /// The head of the chain with an index.
    fn head(&self, index: u16, size: u16) -> Result<u16, RingError> {
        let at = 4 + 2 * usize::from(index % size);
        let head = self.available.get_ref::<u16>(at);
        head.map(|head| u16::from_le(head.load()))
            .map_err(|_| RingError::Place("available part"))
    }

    /// Returns a chain without publishing it.
    fn give_back(&self, index: u16, size: u16, head: u16, written: u32) -> Result<(), RingError> {
        let at = 4 + 8 * usize::from(index % size);
        let used = self.used.get_ref::<[u32; 2]>(at);
        used.map(|used| used.store([u32::from(head).to_le(), written.to_le()]))
            .map_err(|_| RingError::Place("used part"))
    }

    /// Publishes all chains up to an index.
    fn publish(&self, index: u16) -> Result<(), RingError> {
        let stored = self.used.store(index.to_le(), 2, Ordering::Release);
        stored.map_err(|_| RingError::Place("used part"))
    }
}

impl Ring {
    /// Starts a ring at its used index. Chains that the driver offered since then are still
    /// available.
    ///
    /// # Errors
    /// The ring is not in the guest's memory.
    pub fn start<M: GuestMemoryBackend>(layout: Layout, memory: &M) -> Result<Self, RingError> {
        let size = u16::try_from(layout.size).unwrap_or(u16::MAX);
        let mut queue = Queue::new(MAX_RING_ENTRIES).map_err(|_| RingError::Size(layout.size))?;
        queue
            .try_set_size(size)
            .map_err(|_| RingError::Size(layout.size))?;
        let descriptors = GuestAddress(layout.descriptors);
        queue
            .try_set_desc_table_address(descriptors)
            .map_err(|_| RingError::Place("table of descriptors"))?;
        queue
            .try_set_avail_ring_address(GuestAddress(layout.available))
            .map_err(|_| RingError::Place("available part"))?;
        queue
            .try_set_used_ring_address(GuestAddress(layout.used))
            .map_err(|_| RingError::Place("used part"))?;
        queue.set_event_idx(layout.event_index);
        queue.set_ready(true);
        let mut ring = Self {
            queue,
            called: None,
            waits: true,
            unpublished: 0,
            pieces: Vec::with_capacity(MOST_PIECES),
            refused: 0,
        };
        ring.check(memory)?;
        let used = ring.queue.used_idx(memory, Ordering::Acquire);
        let used = used.map_err(|_| RingError::Place("used part"))?;
        ring.queue.set_next_used(used.0);
        ring.queue.set_next_avail(used.0);
        Ok(ring)
    }

    /// Returns the driver's progress: its available index and its used event index (without the
    /// event index feature, any value).
    ///
    /// # Errors
    /// The ring is no longer in the guest's memory.
    pub fn progress<M: GuestMemoryBackend>(&self, memory: &M) -> Result<u32, RingError> {
        let parts = Parts::of(&self.queue, memory)?;
        let load = |at| {
            let word: Result<u16, _> = parts.available.load(at, Ordering::Acquire);
            word.map(u16::from_le)
                .map_err(|_| RingError::Place("available part"))
        };
        let event = load(4 + 2 * usize::from(self.queue.size()))?;
        Ok(u32::from(load(2)?) << 16 | u32::from(event))
    }

    /// Checks that each part of the ring is in one region of the guest's memory.
    pub fn check<M: GuestMemoryBackend>(&self, memory: &M) -> Result<(), RingError> {
        Parts::of(&self.queue, memory).map(drop)
    }

    /// The index of the chain that is taken next, and given back next.
    pub fn index(&self) -> u16 {
        self.queue.next_avail()
    }

    /// Takes a burst of at most `most` frames from the guest, and returns their chains.
    ///
    /// # Errors
    /// The driver violated the rules; the ring is unusable.
    pub fn take<M: GuestMemoryBackend>(
        &mut self,
        memory: &M,
        format: Format,
        most: usize,
        pool: &Pool,
        frames: &mut Vec<Received>,
    ) -> Result<FrameChains, RingError> {
        self.take_until(memory, format, most, pool, frames, || false)
    }

    /// As [`Self::take`], but ends the burst after the chain behind which `is_enough` returns true.
    pub(crate) fn take_until<M: GuestMemoryBackend>(
        &mut self,
        memory: &M,
        format: Format,
        most: usize,
        pool: &Pool,
        frames: &mut Vec<Received>,
        is_enough: impl Fn() -> bool,
    ) -> Result<FrameChains, RingError> {
        self.quieten(memory)?;
        let parts = Parts::of(&self.queue, memory)?;
        let size = self.queue.size();
        let available = parts.available(self.queue.next_avail(), size)?;
        self.unpublished = 0;
        let mut taken = FrameChains::default();
        let mut bytes = 0;
        while taken.chains < most
            && bytes < BURST_BYTES
            && taken.pieces < BURST_PIECES
            && !is_enough()
            && self.queue.next_avail() != available
        {
            self.pieces.clear();
            let (head, len) = self.gather_next(memory, &parts, false)?;
            self.give_back(&parts, head, 0)?;
            taken.chains += 1;
            taken.pieces += self.pieces.len();
            if len > format.header + Packet::MAX_FRAME {
                taken.truncated += 1;
                continue;
            }
            bytes += len;
            frames.push(copy_in(memory, format, &self.pieces, len, pool)?);
        }
        self.publish(&parts)?;
        Ok(taken)
    }

    /// Begins to put frames into the guest's buffers.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn fill<'r, 'm, M: GuestMemoryBackend>(
        &'r mut self,
        memory: &'m M,
    ) -> Result<FrameWriter<'r, 'm, M>, RingError> {
        self.quieten(memory)?;
        let parts = Parts::of(&self.queue, memory)?;
        let available = parts.available(self.queue.next_avail(), self.queue.size())?;
        self.unpublished = 0;
        Ok(FrameWriter {
            ring: self,
            memory,
            parts,
            available,
            pieces: 0,
        })
    }

    /// Has the driver kick when it offers more. Returns whether it already does.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn wait<M: GuestMemoryBackend>(&mut self, memory: &M) -> Result<bool, RingError> {
        self.waits = true;
        let more = self.queue.enable_notification(memory);
        more.map_err(|_| RingError::Place("used part"))
    }

    /// As [`Self::wait`], if the offered chains are too few: the driver must kick for the next one.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn wait_for_room<M: GuestMemoryBackend>(&mut self, memory: &M) -> Result<bool, RingError> {
        let available = |ring: &Self| {
            let index = ring.queue.avail_idx(memory, Ordering::Acquire);
            index.map_err(|_| RingError::Place("available part"))
        };
        let before = available(self)?;
        // What is there is too little: it is the next one that is waited for.
        let next = self.queue.next_avail();
        self.queue.set_next_avail(before.0);
        let more = self.wait(memory);
        self.queue.set_next_avail(next);
        more
    }

    /// Returns whether the driver requested a call for the chains returned since the last check.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn must_call<M: GuestMemoryBackend>(&mut self, memory: &M) -> Result<bool, RingError> {
        let new = self.queue.next_used();
        if self.called == Some(new) {
            return Ok(false);
        }
        // What was given back is seen before it is asked whether anybody waits for it.
        fence(Ordering::SeqCst);
        let available = self.queue.avail_ring();
        let at = if self.queue.event_idx_enabled() {
            available + 4 + 2 * u64::from(self.queue.size())
        } else {
            available
        };
        let word: u16 = memory
            .load(GuestAddress(at), Ordering::Relaxed)
            .map_err(|_| RingError::Place("available part"))?;
        let word = u16::from_le(word);
        let Some(old) = self.called.replace(new) else {
            return Ok(true);
        };
        Ok(if self.queue.event_idx_enabled() {
            // virtio 1.2, 2.7.7.2: whether the index that it waits for is among them.
            new.wrapping_sub(word).wrapping_sub(1) < new.wrapping_sub(old)
        } else {
            word & NO_INTERRUPT == 0
        })
    }

    /// The driver need not kick while the ring is looked at anyway.
    fn quieten<M: GuestMemoryBackend>(&mut self, memory: &M) -> Result<(), RingError> {
        if std::mem::take(&mut self.waits) {
            let done = self.queue.disable_notification(memory);
            done.map_err(|_| RingError::Place("used part"))?;
        }
        Ok(())
    }

    /// The next chain: its head, and how much its buffers hold, which are behind those in
    /// `pieces`.
    fn gather_next<'m, M: GuestMemoryBackend>(
        &mut self,
        memory: &'m M,
        parts: &Parts<'m, M>,
        is_written: bool,
    ) -> Result<(u16, usize), RingError> {
        let next = self.queue.next_avail();
        let head = parts.head(next, self.queue.size())?;
        self.queue.set_next_avail(next.wrapping_add(1));
        let len = gather(memory, &parts.table, head, is_written, &mut self.pieces)?;
        Ok((head, len))
    }

    /// Returns a chain; it is published with the burst.
    fn give_back<M: GuestMemoryBackend>(
        &mut self,
        parts: &Parts<'_, M>,
        head: u16,
        written: u32,
    ) -> Result<(), RingError> {
        let index = self.queue.next_used().wrapping_add(self.unpublished);
        self.unpublished = self.unpublished.wrapping_add(1);
        parts.give_back(index, self.queue.size(), head, written)
    }

    /// Publishes all returned chains together, so that a driver sees all chains of a frame.
    fn publish<M: GuestMemoryBackend>(&mut self, parts: &Parts<'_, M>) -> Result<(), RingError> {
        let count = std::mem::take(&mut self.unpublished);
        if count == 0 {
            return Ok(());
        }
        let next = self.queue.next_used().wrapping_add(count);
        self.queue.set_next_used(next);
        parts.publish(next)
    }
}

/// Writer of frames into a guest's buffers. The driver sees them at the end of the burst.
#[must_use = "nothing is there before `finish`"]
pub struct FrameWriter<'r, 'm, M: GuestMemoryBackend> {
    ring: &'r mut Ring,
    memory: &'m M,
    parts: Parts<'m, M>,
    /// The index of the chain that the driver will offer next, as far as is known.
    available: u16,
    /// Descriptors that were looked at.
    pieces: usize,
}

impl<M: GuestMemoryBackend> FrameWriter<'_, '_, M> {
    /// Puts a frame. `header` is its virtio header, without the number of buffers.
    ///
    /// # Errors
    /// As [`Ring::take`].
    pub fn put(
        &mut self,
        format: Format,
        header: &[u8; VIRTIO_HEADER],
        frame: &[u8],
    ) -> Result<Put, RingError> {
        let wanted = format.header + frame.len();
        let before = (self.ring.queue.next_avail(), self.ring.unpublished);
        self.ring.pieces.clear();
        let (mut room, mut chains) = (0, 0u16);
        let put = loop {
            if room >= wanted {
                break Put::Done;
            }
            if chains > 0 && (!format.mergeable || chains == MOST_CHAINS) {
                break Put::TooLong;
            }
            if !self.has_next()? {
                break Put::Full;
            }
            let gathered = self.ring.gather_next(self.memory, &self.parts, true);
            let (head, len) = match gathered {
                // All the buffers together, where each chain by itself is none too long.
                Err(RingError::Long) if chains > 0 => break Put::TooLong,
                other => other?,
            };
            let written = len.min(wanted - room);
            self.ring.give_back(&self.parts, head, written as u32)?;
            room += len;
            chains += 1;
        };
        self.pieces += self.ring.pieces.len();
        if put != Put::Done {
            self.ring.queue.set_next_avail(before.0);
            self.ring.unpublished = before.1;
            if put == Put::TooLong && frame.len() <= FULL_FRAME {
                self.ring.refused += 1;
                if self.ring.refused >= MOST_REFUSED {
                    return Err(RingError::Short);
                }
            }
            return Ok(put);
        }
        self.ring.refused = 0;
        let mut full = [0; HEADER];
        full[..VIRTIO_HEADER].copy_from_slice(header);
        full[VIRTIO_HEADER..].copy_from_slice(&chains.to_le_bytes());
        let parts = [&full[..format.header], frame];
        copy_out(self.memory, &self.ring.pieces, parts)?;
        Ok(put)
    }

    /// The number of descriptors that were looked at so far, also for frames that did not fit.
    pub const fn pieces(&self) -> usize {
        self.pieces
    }

    /// Returns whether a chain is available, after another read of the driver's index.
    fn has_next(&mut self) -> Result<bool, RingError> {
        let next = self.ring.queue.next_avail();
        if next == self.available {
            self.available = self.parts.available(next, self.ring.queue.size())?;
        }
        Ok(next != self.available)
    }

    /// Publishes the frames. [`Ring::must_call`] returns whether the driver needs a call.
    ///
    /// # Errors
    /// As [`Ring::take`].
    pub fn finish(self) -> Result<(), RingError> {
        self.ring.publish(&self.parts)
    }
}

/// Appends the buffers of a chain to `pieces`, and returns their size.
fn gather<'m, M: GuestMemoryBackend>(
    memory: &'m M,
    table: &Slice<'m, M>,
    head: u16,
    is_written: bool,
    pieces: &mut Vec<Piece>,
) -> Result<usize, RingError> {
    let mut indirect: Option<Slice<'m, M>> = None;
    let mut entry = usize::from(head);
    let mut left = table.len() / DESCRIPTOR;
    if entry >= left {
        return Err(RingError::Head(head));
    }
    let mut len = 0usize;
    loop {
        let table = indirect.as_ref().unwrap_or(table);
        if left == 0 {
            return Err(RingError::Endless);
        }
        // One that is not in the table is none.
        let descriptor = table.get_ref::<Descriptor>(DESCRIPTOR * entry);
        let descriptor = descriptor.map_err(|_| RingError::Endless)?.load();
        let size = descriptor.len() as usize;
        if descriptor.refers_to_indirect_table() {
            // A table in a table, or a part of a descriptor, is none.
            if indirect.is_some() || !size.is_multiple_of(DESCRIPTOR) {
                return Err(RingError::Endless);
            }
            let found = slice(memory, descriptor.addr().0, size);
            indirect = Some(found.ok_or(RingError::Outside)?);
            (entry, left) = (0, size / DESCRIPTOR);
            continue;
        }
        if descriptor.is_write_only() != is_written {
            return Err(RingError::Direction);
        }
        if pieces.len() == MOST_PIECES {
            return Err(RingError::Long);
        }
        if size == 0 {
            return Err(RingError::Empty);
        }
        pieces.push((descriptor.addr(), size));
        len = len.saturating_add(size);
        if !descriptor.has_next() {
            return Ok(len);
        }
        entry = usize::from(descriptor.next());
        left -= 1;
    }
}

/// Copies a frame of `len` bytes with its header out of the guest's memory.
fn copy_in<M: GuestMemoryBackend>(
    memory: &M,
    format: Format,
    pieces: &[Piece],
    len: usize,
    pool: &Pool,
) -> Result<Received, RingError> {
    let start = Packet::HEADROOM - format.header;
    let mut buffer = pool.buffer(start + len);
    let mut at = start;
    for (from, len) in pieces {
        let to = &mut buffer[at..][..*len];
        match slice(memory, from.0, *len) {
            Some(piece) => {
                piece.copy_to(to);
            }
            // It is of several regions, or outside.
            None => memory
                .read_slice(to, *from)
                .map_err(|_| RingError::Outside)?,
        }
        at += len;
    }
    // A chain that is shorter than its header has no frame.
    let is_whole = len >= format.header;
    Ok(Received {
        virtio: buffer[start..].first_chunk().copied().filter(|_| is_whole),
        start: Packet::HEADROOM,
        len: len.saturating_sub(format.header),
        buffer,
    })
}

/// Copies two parts in sequence into buffers of sufficient size.
fn copy_out<M: GuestMemoryBackend>(
    memory: &M,
    pieces: &[Piece],
    [mut part, mut rest]: [&[u8]; 2],
) -> Result<(), RingError> {
    let mut left = part.len() + rest.len();
    // Nearly all frames go into one buffer.
    if let [(to, room)] = pieces
        && left <= *room
        && let Some(piece) = slice(memory, to.0, left)
        && let Ok((first, second)) = piece.split_at(part.len())
    {
        first.copy_from(part);
        second.copy_from(rest);
        return Ok(());
    }
    for (to, room) in pieces {
        let len = left.min(*room);
        left -= len;
        let piece = slice(memory, to.0, len);
        let mut at = 0;
        while at < len {
            if part.is_empty() {
                part = std::mem::take(&mut rest);
            }
            let (now, behind) = part.split_at(part.len().min(len - at));
            let written = if let Some(piece) = &piece {
                let to = piece.subslice(at, now.len());
                to.map(|to| to.copy_from(now)).ok()
            } else {
                // It is of several regions, or outside.
                let to = GuestAddress(to.0.wrapping_add(at as u64));
                memory.write_slice(now, to).ok()
            };
            written.ok_or(RingError::Outside)?;
            at += now.len();
            part = behind;
        }
    }
    Ok(())
}
