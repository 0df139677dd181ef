//! Attacks by a guest with a virtio card, or by its monitor.

use crate::Pace;
use crate::machine::{
    self, BASE, Build, Descriptor, IS_INDIRECT, LEN, MONITOR, Machine, NEXT, WRITE, feature,
    make_wait, memfd, rang, request,
};
use crate::moves::Attack;
use crate::support::long_datagram;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The rings of a card: frames come by the first, and leave by the second.
const RECEIVE: usize = 0;
const SEND: usize = 1;

const ENTRIES: u16 = 256;

/// The interval of a neighbour's frames to the guest that attacks: 40,000/s.
const FRAME_EVERY: Duration = Duration::from_micros(25);
const FRAME_LEN: usize = 600;

fn build(buffer: u32) -> Build {
    Build {
        entries: ENTRIES,
        buffer,
        ..Build::default()
    }
}

/// A datagram of a length between two guests, by their numbers.
pub(crate) fn frame(to: u8, from: u8, len: usize) -> Vec<u8> {
    let mac = |number| [2, 0, 0, 0, 0, number];
    long_datagram(mac(to), mac(from), [10, 77, 0, from], 7, len)
}

/// The places of a ring that are free.
fn room(machine: &Machine, ring: usize) -> u16 {
    let outstanding = machine.rings[ring].next.wrapping_sub(machine.used(ring));
    machine.rings[ring].entries.saturating_sub(outstanding)
}

/// Has a ring begin anew that the device has broken.
fn restart(machine: &mut Machine, ring: usize) {
    let base = machine.stop_ring(ring);
    let used = machine.used(ring);
    let broken = &mut machine.rings[ring];
    (broken.next, broken.seen) = (base, base);
    let (available, used_at) = (broken.available() + 2, broken.used() + 2);
    machine.write(base, available);
    if used != base {
        machine.write(base, used_at);
    }
    machine.start_ring(ring).expect("started");
}

/// A card that sends as a neighbour does.
pub(crate) struct Sender {
    machine: Machine,
    frame: Vec<u8>,
}

impl Sender {
    pub(crate) fn new(socket: &Path, frame: Vec<u8>) -> Self {
        Self {
            machine: Machine::start(socket, build(2048)),
            frame,
        }
    }

    /// Sends a frame if there is room for one.
    pub(crate) fn send(&mut self) -> u64 {
        if room(&self.machine, SEND) == 0 {
            return 0;
        }
        self.machine.send(0, [0; 10], &self.frame);
        1
    }
}

/// A sender at a rate.
pub(crate) struct PacedSender {
    sender: Sender,
    pace: Pace,
}

impl PacedSender {
    pub(crate) fn new(sender: Sender, pace: Pace) -> Self {
        Self { sender, pace }
    }
}

impl Attack for PacedSender {
    fn step(&mut self) -> u64 {
        self.pace.wait();
        self.sender.send()
    }
}

/// n01: a monitor makes writes to its eventfds wait, and its guest has frames given back.
pub(crate) struct WaitingCalls {
    sender: Sender,
    until: Instant,
}

impl WaitingCalls {
    pub(crate) fn new(socket: &Path, frame: Vec<u8>) -> Self {
        let mut build = build(2048);
        // The driver is called for each frame.
        build.features &= !feature::EVENT_IDX;
        let machine = Machine::start(socket, build);
        Self {
            sender: Sender { machine, frame },
            until: Instant::now(),
        }
    }
}

impl Attack for WaitingCalls {
    fn step(&mut self) -> u64 {
        const WRITE_WAIT: Duration = Duration::from_millis(100);
        if Instant::now() >= self.until {
            // This ends the write that waits, and the next one waits.
            self.rest();
            self.until = Instant::now() + WRITE_WAIT;
        }
        let sent = self.sender.send();
        std::thread::sleep(Duration::from_millis(1));
        sent
    }

    fn rest(&mut self) {
        let ring = &self.sender.machine.rings[SEND];
        for event in [&ring.call, &ring.error] {
            make_wait(event);
        }
    }
}

/// n02: before each frame 510 descriptors of an indirect table, which are empty or have a byte.
pub(crate) struct LongChains(Machine);

impl LongChains {
    const BEFORE: u16 = 510;

    pub(crate) fn new(socket: &Path, to: u8, from: u8, len: u32) -> Self {
        let machine = Machine::start(socket, build(2048));
        let ring = &machine.rings[SEND];
        let (at, table) = (ring.buffer(0), ring.buffer(1));
        let before = Self::BEFORE as usize * len as usize;
        let bytes = [vec![0; 12], frame(to, from, 60 + before)].concat();
        let memory = &machine.memory;
        let written = vm_memory::Bytes::write_slice(memory, &bytes, vm_memory::GuestAddress(at));
        written.expect("in memory");
        for entry in 0..=Self::BEFORE {
            let is_last = entry == Self::BEFORE;
            let descriptor = Descriptor {
                at: at + u64::from(entry) * u64::from(len),
                len: if is_last { 72 } else { len },
                flags: if is_last { 0 } else { NEXT },
                next: entry + 1,
            };
            machine.describe_at(table + 16 * u64::from(entry), descriptor);
        }
        for entry in 0..ENTRIES {
            let descriptor =
                Descriptor::of(table, 16 * (u32::from(Self::BEFORE) + 1)).with(IS_INDIRECT);
            machine.describe(SEND, entry, descriptor);
        }
        Self(machine)
    }
}

impl Attack for LongChains {
    fn step(&mut self) -> u64 {
        if rang(&self.0.rings[SEND].error) {
            restart(&mut self.0, SEND);
        }
        let count = room(&self.0, SEND);
        for _ in 0..count {
            let entry = self.0.rings[SEND].next % ENTRIES;
            self.0.make_available(SEND, entry);
        }
        self.0.kick(SEND);
        std::thread::sleep(Duration::from_micros(50));
        count.into()
    }
}

/// n03: receive buffers of one byte, while a neighbour sends to the guest.
pub(crate) struct ShortBuffers {
    machine: Machine,
    neighbour: Sender,
    pace: Pace,
}

impl ShortBuffers {
    pub(crate) fn new(sockets: [&Path; 2], numbers: [u8; 2]) -> Self {
        let [socket, other] = sockets;
        let [own, neighbour] = numbers;
        Self {
            machine: Machine::start(socket, build(1)),
            neighbour: Sender::new(other, frame(own, neighbour, FRAME_LEN)),
            pace: Pace::each(FRAME_EVERY),
        }
    }
}

impl Attack for ShortBuffers {
    fn step(&mut self) -> u64 {
        self.pace.wait();
        if rang(&self.machine.rings[RECEIVE].error) {
            restart(&mut self.machine, RECEIVE);
            for entry in 0..ENTRIES {
                self.machine.offer(RECEIVE, entry);
            }
        }
        self.neighbour.send()
    }
}

/// n04: kicks without anything to do.
pub(crate) struct Kicks(Machine);

impl Kicks {
    pub(crate) fn new(socket: &Path) -> Self {
        Self(Machine::start(socket, build(2048)))
    }
}

impl Attack for Kicks {
    fn step(&mut self) -> u64 {
        const KICKS: u64 = 500;
        for _ in 0..KICKS / 2 {
            self.0.kick_anyway(SEND);
            self.0.kick_anyway(RECEIVE);
        }
        KICKS
    }
}

/// n06: each frame that a neighbour sends is received on a page that is in no memory yet.
pub(crate) struct FreshPages {
    machine: Machine,
    neighbour: Sender,
    file: File,
    /// The next fresh page, and the next of those that are used again.
    page: u64,
    known: u64,
    pace: Pace,
}

impl FreshPages {
    /// A second region of memory, of which pages are used once in each window.
    const LEN: u64 = 1 << 30;
    const AT: u64 = BASE + LEN;

    pub(crate) fn new(sockets: [&Path; 2], numbers: [u8; 2]) -> Self {
        let [socket, other] = sockets;
        let [own, neighbour] = numbers;
        let mut machine = Machine::start(socket, build(2048));
        let file = memfd(Self::LEN);
        let regions = [
            2,
            BASE,
            LEN,
            MONITOR,
            0,
            Self::AT,
            Self::LEN,
            MONITOR + LEN,
            0,
        ];
        let files = [machine.file.try_clone().expect("cloned")];
        let descriptors = [files[0].as_fd(), file.as_fd()];
        let monitor = &mut machine.monitor;
        let told = monitor.tell(request::SET_MEM_TABLE, &regions, &descriptors);
        told.expect("carried out");
        Self {
            machine,
            neighbour: Sender::new(other, frame(own, neighbour, FRAME_LEN)),
            file,
            page: 0,
            known: 0,
            pace: Pace::each(FRAME_EVERY),
        }
    }

    /// Offers a buffer for each that was used, on pages that no process has touched if `is_fresh`, and
    /// else on the pages at the begin of the memory again and again.
    fn offer(&mut self, is_fresh: bool) {
        let mut is_offered = false;
        while let Some((entry, _)) = self.machine.next_used(RECEIVE) {
            let page = if is_fresh { self.page } else { self.known };
            let descriptor = Descriptor::of(Self::AT + page * 4096, 2048).with(WRITE);
            if is_fresh {
                self.page = (page + 1) % (Self::LEN / 4096);
            } else {
                self.known = (page + 1) % 256;
            }
            self.machine.describe(RECEIVE, entry, descriptor);
            self.machine.make_available(RECEIVE, entry);
            is_offered = true;
        }
        if is_offered {
            self.machine.kick(RECEIVE);
        }
    }
}

impl Attack for FreshPages {
    fn step(&mut self) -> u64 {
        self.pace.wait();
        let before = self.page;
        self.offer(true);
        self.neighbour.send();
        (self.page + Self::LEN / 4096 - before) % (Self::LEN / 4096)
    }

    /// Receives the same frames, in buffers that are used again.
    fn behave(&mut self) {
        self.pace.wait();
        self.offer(false);
        self.neighbour.send();
    }

    /// Frees all touched pages, as a balloon does.
    fn rest(&mut self) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = fallocate(&self.file, flags, 0, Self::LEN);
    }
}

/// n05: a monitor that punches holes into the memory into which the packet loop writes frames: a page
/// fault in a hole waits until all of it is punched.
pub(crate) struct Holes {
    guest: FreshPages,
    is_on: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
    puncher: Option<JoinHandle<()>>,
    /// Locked while a hole is made and filled.
    at_work: Arc<Mutex<()>>,
}

impl Holes {
    /// Bytes of a hole: it takes 0.05 s, and 0.2 s to fill again.
    const LEN: u64 = 1 << 29;

    /// Time in which the packet loop can find out.
    const BEFORE: Duration = Duration::from_secs(4);

    pub(crate) fn new(sockets: [&Path; 2], numbers: [u8; 2]) -> Self {
        let guest = FreshPages::new(sockets, numbers);
        let file = guest.file.try_clone().expect("cloned");
        let flags: [Arc<AtomicBool>; 2] = Default::default();
        let [is_on, is_over] = flags.clone();
        let at_work = Arc::new(Mutex::new(()));
        let work = Arc::clone(&at_work);
        let puncher = std::thread::spawn(move || {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            while !flags[1].load(Ordering::Relaxed) {
                let _at_work = work.lock().expect("no panic");
                if flags[0].load(Ordering::Relaxed) {
                    for kind in [FallocateFlags::empty(), hole] {
                        fallocate(&file, kind, 0, Self::LEN).expect("of a memfd");
                    }
                } else {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let puncher = Some(puncher);
        let mut holes = Self {
            guest,
            is_on,
            is_over,
            puncher,
            at_work,
        };
        let begin = Instant::now();
        while begin.elapsed() < Self::BEFORE {
            holes.step();
        }
        holes.rest();
        holes
    }
}

impl Attack for Holes {
    fn step(&mut self) -> u64 {
        self.is_on.store(true, Ordering::Relaxed);
        self.guest.page %= Self::LEN / 4096;
        self.guest.step();
        1
    }

    fn rest(&mut self) {
        self.is_on.store(false, Ordering::Relaxed);
        drop(self.at_work.lock().expect("no panic"));
    }

    /// Receives the same frames, in memory without holes.
    fn behave(&mut self) {
        self.guest.behave();
    }
}

impl Drop for Holes {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(puncher) = self.puncher.take() {
            puncher.join().expect("no panic");
        }
    }
}

/// n12: a guest that breaks its ring, and a monitor that starts it again.
pub(crate) struct BrokenRing(Machine);

impl BrokenRing {
    pub(crate) fn new(socket: &Path) -> Self {
        Self(Machine::start(socket, build(2048)))
    }
}

impl Attack for BrokenRing {
    fn step(&mut self) -> u64 {
        self.0.rings[SEND].next = self.0.rings[SEND].next.wrapping_add(0x4000);
        self.0.make_available(SEND, 0);
        self.0.kick_anyway(SEND);
        let error = &self.0.rings[SEND].error;
        let is_broken = machine::is_readable(error.as_fd(), Duration::from_millis(50));
        rang(error);
        restart(&mut self.0, SEND);
        is_broken.into()
    }
}
