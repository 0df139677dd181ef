//! A driver that writes while the device reads: memory whose bytes change with each read, and the
//! rules that a ring must keep for all contents.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use tailbound_dataplane::{Packet, Pool};
use tailbound_switch::port::BURST;
use tailbound_vhost::ring::{Format, Layout, Put, Ring, RingError};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestRegionMmap};

/// Length of the guest's memory in bytes. It begins at address zero.
pub(crate) const LEN: usize = 64 << 10;

/// Memory of a driver that writes whenever the device looks.
pub(crate) struct Shifting {
    memory: GuestMemoryMmap,
    /// The driver's writes, one at each read: address and value.
    writes: RefCell<VecDeque<(u16, u8)>>,
    looks: Cell<usize>,
}

impl Shifting {
    pub(crate) fn new(contents: &[u8], writes: impl IntoIterator<Item = (u16, u8)>) -> Self {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), LEN)]).expect("mapped");
        let len = contents.len().min(LEN);
        memory
            .write_slice(&contents[..len], GuestAddress(0))
            .expect("there");
        Self {
            memory,
            writes: RefCell::new(writes.into_iter().collect()),
            looks: Cell::new(0),
        }
    }
}

impl GuestMemoryBackend for Shifting {
    type R = GuestRegionMmap;

    fn num_regions(&self) -> usize {
        self.memory.num_regions()
    }

    fn find_region(&self, addr: GuestAddress) -> Option<&GuestRegionMmap> {
        self.looks.set(self.looks.get() + 1);
        if let Some((at, byte)) = self.writes.borrow_mut().pop_front() {
            self.memory
                .write_slice(&[byte], GuestAddress(at.into()))
                .expect("there");
        }
        self.memory.find_region(addr)
    }

    fn iter(&self) -> impl Iterator<Item = &GuestRegionMmap> {
        self.memory.iter()
    }
}

/// Puts one frame into a guest's buffers.
pub(crate) fn put<M: GuestMemoryBackend>(
    ring: &mut Ring,
    memory: &M,
    format: Format,
    header: &[u8; 10],
    frame: &[u8],
) -> Result<Put, RingError> {
    let mut filling = ring.fill(memory)?;
    let put = filling.put(format, header, frame)?;
    filling.finish()?;
    Ok(put)
}

/// The device's next step.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    Take(u8),
    Put(u16),
    Wait,
    Room,
    Call,
}

impl Step {
    /// One for each byte.
    pub(crate) fn of(byte: u8, more: u8) -> Self {
        match byte % 5 {
            0 => Self::Take(more),
            1 => Self::Put(u16::from(more) * 257),
            2 => Self::Wait,
            3 => Self::Room,
            _ => Self::Call,
        }
    }
}

/// The most that a step may look at memory: for each chain of a burst its descriptors,
/// twice, and what it is offered and given back by.
const MOST_LOOKS: usize = BURST * (2 * 512 + 8) + 256 * 3 + 16;

/// Runs a ring over memory that shifts.
///
/// # Panics
/// A step does not keep to what is promised, or costs more than it may.
pub(crate) fn run(memory: &Shifting, layout: Layout, format: Format, steps: &[Step]) {
    let Ok(mut ring) = Ring::start(layout, memory) else {
        return;
    };
    let pool = Pool::new();
    for step in steps {
        memory.looks.set(0);
        let before = ring.index();
        let is_right = match *step {
            Step::Take(most) => {
                let most = usize::from(most) % BURST + 1;
                let mut frames = Vec::new();
                let taken = ring.take(memory, format, most, &pool, &mut frames);
                for frame in frames {
                    assert!(frame.len <= Packet::MAX_FRAME, "{} bytes", frame.len);
                    assert!(frame.start + frame.len <= frame.buffer.len());
                    // Whatever it is, it is a packet or a reason against it.
                    let _ = Packet::new(frame.buffer, frame.start, frame.len, frame.virtio, None);
                }
                taken.map(|taken| {
                    assert!(taken.chains <= most);
                    let went = usize::from(ring.index().wrapping_sub(before));
                    assert_eq!(went, taken.chains);
                })
            }
            Step::Put(len) => {
                let bytes = vec![7; usize::from(len)];
                put(&mut ring, memory, format, &[0; 10], &bytes).map(|put| {
                    assert_eq!(put == Put::Done, ring.index() != before);
                })
            }
            Step::Wait => ring.wait(memory).map(drop),
            Step::Room => ring.wait_for_room(memory).map(drop),
            Step::Call => ring.must_call(memory).map(drop),
        };
        let looks = memory.looks.get();
        assert!(looks <= MOST_LOOKS, "{looks} looks for {step:?}");
        if is_right.is_err() {
            return;
        }
    }
}
