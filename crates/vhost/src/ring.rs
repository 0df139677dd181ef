//! A split ring as the device sees it (virtio 1.2, 2.7): chains are taken in order, and
//! given back in that order.
//!
//! Pure: it knows memory, and no descriptor of a file. Whatever the driver has written
//! may be wrong, and may change while it is read: each descriptor is copied once, by
//! `virtio_queue`, and only the copy is looked at.

use std::sync::atomic::{Ordering, fence};
use tailbound_dataplane::{Packet, Pool, VIRTIO_HEADER};
use tailbound_switch::port::{BURST, BURST_BYTES, Received};
use virtio_queue::{DescriptorChain, Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemory, Permissions};

/// The longest header before a frame.
pub const HEADER: usize = 12;

/// The largest ring.
pub const MOST: u16 = 32_768;

/// Most descriptors that are looked at for one frame: so many are in no driver's chain,
/// and a guest's chain costs the host no more than that.
const MOST_PIECES: usize = 512;

/// `VRING_AVAIL_F_NO_INTERRUPT`.
const NO_INTERRUPT: u16 = 1;

/// Why a ring cannot be used, until its driver starts it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// Its size.
    #[error("a ring of {0} entries: a power of 2 up to {MOST} is wanted")]
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
}

/// Where a ring is, as the driver says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Entries.
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

/// What a ring's header looks like, and what may be in its chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// Bytes of the header before each frame: 10 or 12.
    pub header: usize,
    /// A frame may take several chains.
    pub mergeable: bool,
}

/// What became of a frame for the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// It is in the ring.
    Done,
    /// There is no room: nothing has changed.
    Full,
    /// There will never be room: the buffers are too short.
    TooLong,
}

/// What was taken of a ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taken {
    /// Chains.
    pub chains: usize,
    /// Those with more than any frame.
    pub truncated: u64,
    /// There may be more.
    pub more: bool,
}

/// A buffer: its address and its length.
type Piece = (GuestAddress, usize);

/// A split ring, as the device sees it.
#[derive(Debug)]
pub struct Ring {
    queue: Queue,
    /// Where the used part was when the driver was last asked whether it wants to know;
    /// `None` where it was not.
    called: Option<u16>,
    /// The driver is to kick when it offers more.
    waits: bool,
    /// Room for the buffers of a frame,
    pieces: Vec<Piece>,
    /// and for the chains that go back: heads, and bytes written.
    back: Vec<(u16, u32)>,
}

impl Ring {
    /// Starts where the used part is: what the driver has offered since then is still to
    /// be taken, whoever was here before.
    ///
    /// # Errors
    /// It is not in the guest's memory.
    pub fn start<M: GuestMemory>(layout: Layout, memory: &M) -> Result<Self, RingError> {
        let size = u16::try_from(layout.size).unwrap_or(u16::MAX);
        let mut queue = Queue::new(MOST).map_err(|_| RingError::Size(layout.size))?;
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
            pieces: Vec::with_capacity(MOST_PIECES),
            back: Vec::with_capacity(BURST),
        };
        ring.check(memory)?;
        let used = ring.queue.used_idx(memory, Ordering::Acquire);
        let used = used.map_err(|_| RingError::Place("used part"))?;
        ring.queue.set_next_used(used.0);
        ring.queue.set_next_avail(used.0);
        Ok(ring)
    }

    /// Whether all of it is in the guest's memory.
    pub fn check<M: GuestMemory>(&self, memory: &M) -> Result<(), RingError> {
        let size = usize::from(self.queue.size());
        let parts = [
            (
                "table of descriptors",
                self.queue.desc_table(),
                16 * size,
                Permissions::Read,
            ),
            (
                "available part",
                self.queue.avail_ring(),
                6 + 2 * size,
                Permissions::Read,
            ),
            (
                "used part",
                self.queue.used_ring(),
                6 + 8 * size,
                Permissions::Write,
            ),
        ];
        for (name, at, len, access) in parts {
            if !memory.check_range(GuestAddress(at), len, access) {
                return Err(RingError::Place(name));
            }
        }
        Ok(())
    }

    /// The index of the chain that is taken next, and given back next.
    pub fn index(&self) -> u16 {
        self.queue.next_avail()
    }

    /// Takes a burst of frames from the guest, at most `most`, and gives their chains back.
    ///
    /// # Errors
    /// What the driver has written is against the rules: the ring is of no use any more.
    pub fn take<M: GuestMemory>(
        &mut self,
        memory: &M,
        format: Format,
        most: usize,
        pool: &Pool,
        frames: &mut Vec<Received>,
    ) -> Result<Taken, RingError> {
        self.quieten(memory)?;
        let mut taken = Taken::default();
        let mut bytes = 0;
        self.back.clear();
        let mut chains = self.queue.iter(memory).map_err(|_| RingError::Index)?;
        while taken.chains < most && bytes < BURST_BYTES {
            let Some(chain) = chains.next() else {
                break;
            };
            taken.chains += 1;
            self.back.push((chain.head_index(), 0));
            self.pieces.clear();
            let len = gather(chain, false, &mut self.pieces)?;
            if len > format.header + Packet::MAX_FRAME {
                taken.truncated += 1;
                continue;
            }
            bytes += len;
            frames.push(copy_in(memory, format, &self.pieces, len, pool)?);
        }
        self.give_back(memory)?;
        taken.more = taken.chains == most || bytes >= BURST_BYTES;
        Ok(taken)
    }

    /// Puts a frame into the guest's buffers. `header` is its virtio header, without the
    /// number of buffers. The driver is told by [`Self::must_call`].
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn put<M: GuestMemory>(
        &mut self,
        memory: &M,
        format: Format,
        header: &[u8; VIRTIO_HEADER],
        frame: &[u8],
    ) -> Result<Put, RingError> {
        self.quieten(memory)?;
        let wanted = format.header + frame.len();
        let before = self.queue.next_avail();
        self.back.clear();
        self.pieces.clear();
        let mut room = 0;
        let mut chains = self.queue.iter(memory).map_err(|_| RingError::Index)?;
        let put = loop {
            if room >= wanted {
                break Put::Done;
            }
            let is_first = self.back.is_empty();
            if !is_first && (!format.mergeable || self.back.len() == BURST * 8) {
                break Put::TooLong;
            }
            let Some(chain) = chains.next() else {
                break Put::Full;
            };
            let head = chain.head_index();
            let len = match gather(chain, true, &mut self.pieces) {
                // All the buffers together, where each chain by itself is none too long.
                Err(RingError::Long) if !is_first => break Put::TooLong,
                other => other?,
            };
            let written = len.min(wanted - room);
            self.back.push((head, written as u32));
            room += len;
        };
        if put != Put::Done {
            self.queue.set_next_avail(before);
            return Ok(put);
        }
        let mut full = [0; HEADER];
        full[..VIRTIO_HEADER].copy_from_slice(header);
        full[VIRTIO_HEADER..].copy_from_slice(&(self.back.len() as u16).to_le_bytes());
        copy_out(memory, &self.pieces, [&full[..format.header], frame])?;
        self.give_back(memory)?;
        Ok(put)
    }

    /// Has the driver kick when it offers more. Returns whether it already does.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn wait<M: GuestMemory>(&mut self, memory: &M) -> Result<bool, RingError> {
        self.waits = true;
        let more = self.queue.enable_notification(memory);
        more.map_err(|_| RingError::Place("used part"))
    }

    /// As [`Self::wait`], where the chains that it offers are too few: it is to kick for
    /// the next one.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn wait_for_room<M: GuestMemory>(&mut self, memory: &M) -> Result<bool, RingError> {
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

    /// Whether the driver wants to know of what was given back since it was last asked.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn must_call<M: GuestMemory>(&mut self, memory: &M) -> Result<bool, RingError> {
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
    fn quieten<M: GuestMemory>(&mut self, memory: &M) -> Result<(), RingError> {
        if std::mem::take(&mut self.waits) {
            let done = self.queue.disable_notification(memory);
            done.map_err(|_| RingError::Place("used part"))?;
        }
        Ok(())
    }

    /// Gives chains back, all at once: a driver that sees one of a frame's sees them all.
    fn give_back<M: GuestMemory>(&mut self, memory: &M) -> Result<(), RingError> {
        if self.back.is_empty() {
            return Ok(());
        }
        let outside = |_| RingError::Place("used part");
        let used = self.queue.used_ring();
        let size = self.queue.size();
        let mut next = self.queue.next_used();
        for (head, written) in self.back.drain(..) {
            let at = used + 4 + 8 * u64::from(next % size);
            let element = u64::from(head) | u64::from(written) << 32;
            memory
                .write_obj(element.to_le(), GuestAddress(at))
                .map_err(outside)?;
            next = next.wrapping_add(1);
        }
        self.queue.set_next_used(next);
        memory
            .store(next.to_le(), GuestAddress(used + 2), Ordering::Release)
            .map_err(outside)
    }
}

/// The buffers of a chain, behind those in `pieces`, and how much they hold.
fn gather<M: GuestMemory>(
    chain: DescriptorChain<&M>,
    is_written: bool,
    pieces: &mut Vec<Piece>,
) -> Result<usize, RingError> {
    let head = chain.head_index();
    let mut len = 0usize;
    // Whether another descriptor is to follow.
    let mut goes_on = true;
    let first = pieces.len();
    for descriptor in chain {
        if descriptor.is_write_only() != is_written {
            return Err(RingError::Direction);
        }
        if pieces.len() == MOST_PIECES {
            return Err(RingError::Long);
        }
        pieces.push((descriptor.addr(), descriptor.len() as usize));
        len = len.saturating_add(descriptor.len() as usize);
        goes_on = descriptor.has_next();
    }
    if goes_on {
        // `virtio_queue` ends where a descriptor is not in its table.
        return Err(if pieces.len() == first {
            RingError::Head(head)
        } else {
            RingError::Endless
        });
    }
    Ok(len)
}

/// Copies a frame of `len` bytes with its header out of the guest's memory.
fn copy_in<M: GuestMemory>(
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
        let to = &mut buffer[at..at + len];
        memory
            .read_slice(to, *from)
            .map_err(|_| RingError::Outside)?;
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

/// Copies `parts` one after another into buffers that have room for them.
fn copy_out<M: GuestMemory>(
    memory: &M,
    pieces: &[Piece],
    parts: [&[u8]; 2],
) -> Result<(), RingError> {
    let mut pieces = pieces.iter().copied();
    let (mut to, mut room) = (GuestAddress(0), 0);
    for mut part in parts {
        while !part.is_empty() {
            if room == 0 {
                (to, room) = pieces.next().ok_or(RingError::Outside)?;
            }
            let (now, rest) = part.split_at(room.min(part.len()));
            memory
                .write_slice(now, to)
                .map_err(|_| RingError::Outside)?;
            part = rest;
            room -= now.len();
            to = GuestAddress(to.0.wrapping_add(now.len() as u64));
        }
    }
    Ok(())
}
