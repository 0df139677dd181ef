//! A VM as a port sees it: a VMM that speaks vhost-user, and a virtio driver over shared memory.
//! Both keep to the rules unless a test requests a violation.

// Each test file uses its own part of this.
#![allow(dead_code)]

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};

/// Time limit for any step on a busy computer.
pub(crate) const STEP_TIMEOUT: Duration = Duration::from_secs(20);

/// Repeats `done` until it is there.
pub(crate) fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = done() {
            return found;
        }
        assert!(
            start.elapsed() < STEP_TIMEOUT,
            "{what}: not after {STEP_TIMEOUT:?}"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Requests, by their numbers in the vhost-user specification.
pub(crate) mod request {
    pub(crate) const GET_FEATURES: u32 = 1;
    pub(crate) const SET_FEATURES: u32 = 2;
    pub(crate) const SET_OWNER: u32 = 3;
    pub(crate) const RESET_OWNER: u32 = 4;
    pub(crate) const SET_MEM_TABLE: u32 = 5;
    pub(crate) const SET_LOG_BASE: u32 = 6;
    pub(crate) const SET_VRING_NUM: u32 = 8;
    pub(crate) const SET_VRING_ADDR: u32 = 9;
    pub(crate) const SET_VRING_BASE: u32 = 10;
    pub(crate) const GET_VRING_BASE: u32 = 11;
    pub(crate) const SET_VRING_KICK: u32 = 12;
    pub(crate) const SET_VRING_CALL: u32 = 13;
    pub(crate) const SET_VRING_ERR: u32 = 14;
    pub(crate) const GET_PROTOCOL_FEATURES: u32 = 15;
    pub(crate) const SET_PROTOCOL_FEATURES: u32 = 16;
    pub(crate) const GET_QUEUE_NUM: u32 = 17;
    pub(crate) const SET_VRING_ENABLE: u32 = 18;
    pub(crate) const SEND_RARP: u32 = 19;
}

/// Bits of features.
pub(crate) mod feature {
    pub(crate) const CSUM: u64 = 1;
    pub(crate) const GUEST_CSUM: u64 = 1 << 1;
    pub(crate) const GUEST_TSO4: u64 = 1 << 7;
    pub(crate) const GUEST_ECN: u64 = 1 << 9;
    pub(crate) const HOST_TSO4: u64 = 1 << 11;
    pub(crate) const HOST_ECN: u64 = 1 << 13;
    pub(crate) const MRG_RXBUF: u64 = 1 << 15;
    pub(crate) const LOG_ALL: u64 = 1 << 26;
    pub(crate) const INDIRECT: u64 = 1 << 28;
    pub(crate) const EVENT_IDX: u64 = 1 << 29;
    pub(crate) const PROTOCOL: u64 = 1 << 30;
    pub(crate) const VERSION_1: u64 = 1 << 32;
    pub(crate) const GUEST_USO4: u64 = 1 << 54;
    pub(crate) const HOST_USO: u64 = 1 << 56;
}

/// Protocol features: queues, log, acknowledgements.
const PROTOCOL: u64 = 1 | 1 << 1 | 1 << 3;

/// A monitor's end of the socket.
pub(crate) struct Monitor {
    pub(crate) stream: UnixStream,
    acknowledges: bool,
}

impl Monitor {
    pub(crate) fn connect(socket: &Path) -> Self {
        let stream = until("a socket that listens", || UnixStream::connect(socket).ok());
        Self::new(stream)
    }

    pub(crate) fn accept(listener: &UnixListener) -> Self {
        Self::new(listener.accept().expect("it connects").0)
    }

    /// Leaves, and is connected to again.
    pub(crate) fn accept_after_leaving(self, listener: &UnixListener) -> Self {
        drop(self);
        Self::accept(listener)
    }

    pub(crate) fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(STEP_TIMEOUT)).expect("set");
        Self {
            stream,
            acknowledges: false,
        }
    }

    pub(crate) fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let parts = [IoSlice::new(bytes)];
        sendmsg(&self.stream, &parts, &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    fn header(code: u32, flags: u32, len: usize) -> Vec<u8> {
        [code, 1 | flags, len as u32].map(u32::to_le_bytes).concat()
    }

    /// The bytes of a request.
    pub(crate) fn message(code: u32, words: &[u64]) -> Vec<u8> {
        let body: Vec<_> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        [Self::header(code, 0, body.len()), body].concat()
    }

    /// Waits for the answer to a request that was sent by hand.
    pub(crate) fn answer(&mut self) -> io::Result<Vec<u8>> {
        self.reply()
    }

    fn reply(&mut self) -> io::Result<Vec<u8>> {
        let mut header = [0; 12];
        self.stream.read_exact(&mut header)?;
        let len = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        let mut body = vec![0; len as usize];
        self.stream.read_exact(&mut body)?;
        Ok(body)
    }

    /// Sends a request without an answer; it is carried out when this returns, where
    /// acknowledgements were agreed on.
    pub(crate) fn tell(
        &mut self,
        code: u32,
        words: &[u64],
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        const NEED_REPLY: u32 = 8;
        let body: Vec<_> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let flags = if self.acknowledges { NEED_REPLY } else { 0 };
        let header = Self::header(code, flags, body.len());
        self.send(&[header, body].concat(), descriptors)?;
        if self.acknowledges && self.reply()? != [0; 8] {
            return Err(io::Error::other("refused"));
        }
        Ok(())
    }

    /// Sends a request that is answered by a number.
    pub(crate) fn ask(&mut self, code: u32, words: &[u64]) -> io::Result<u64> {
        self.send(&Self::message(code, words), &[])?;
        let reply = self.reply()?;
        let word = reply.first_chunk().ok_or(io::ErrorKind::InvalidData)?;
        Ok(u64::from_le_bytes(*word))
    }

    /// Two halves of a word.
    fn pair(low: u32, high: u32) -> u64 {
        u64::from(low) | u64::from(high) << 32
    }
}

/// The configuration of a VM.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Build {
    pub(crate) features: u64,
    /// Pairs of rings.
    pub(crate) pairs: usize,
    /// Entries of each ring.
    pub(crate) entries: u16,
    /// Bytes of each buffer to receive into.
    pub(crate) buffer: u32,
}

impl Default for Build {
    fn default() -> Self {
        Self {
            features: feature::VERSION_1
                | feature::MRG_RXBUF
                | feature::EVENT_IDX
                | feature::INDIRECT
                | feature::PROTOCOL,
            pairs: 1,
            entries: 16,
            buffer: 2048,
        }
    }
}

/// Addresses of the memory, as the guest and the VMM see it, and its length in bytes.
pub(crate) const BASE: u64 = 1 << 20;
pub(crate) const MONITOR: u64 = 0x7f00_0000_0000;
pub(crate) const LEN: u64 = 32 << 20;

/// Flags of a descriptor.
pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const IS_INDIRECT: u16 = 4;

/// A descriptor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Descriptor {
    pub(crate) at: u64,
    pub(crate) len: u32,
    pub(crate) flags: u16,
    pub(crate) next: u16,
}

impl Descriptor {
    /// A buffer that the device reads, the last of its chain.
    pub(crate) const fn of(at: u64, len: u32) -> Self {
        Self {
            at,
            len,
            flags: 0,
            next: 0,
        }
    }

    pub(crate) const fn with(self, flags: u16) -> Self {
        Self { flags, ..self }
    }
}

/// A ring as its driver has it.
pub(crate) struct Ring {
    pub(crate) at: u64,
    pub(crate) entries: u16,
    pub(crate) next: u16,
    pub(crate) seen: u16,
    /// As `next` was at the last look at whether the device wants a kick.
    looked: Cell<u16>,
    pub(crate) kick: OwnedFd,
    pub(crate) call: OwnedFd,
    pub(crate) error: OwnedFd,
    buffers: u64,
    /// From the buffer of one entry to that of the next.
    apart: u64,
    buffer: u32,
}

impl Ring {
    pub(crate) fn available(&self) -> u64 {
        self.at + 16 * u64::from(self.entries)
    }

    pub(crate) fn used(&self) -> u64 {
        (self.available() + 6 + 2 * u64::from(self.entries)).next_multiple_of(4096)
    }

    /// The buffer of an entry.
    pub(crate) fn buffer(&self, entry: u16) -> u64 {
        self.buffers + u64::from(entry) * self.apart
    }
}

/// A guest and its monitor.
pub(crate) struct Machine {
    pub(crate) memory: GuestMemoryMmap,
    pub(crate) file: File,
    pub(crate) rings: Vec<Ring>,
    pub(crate) monitor: Monitor,
    pub(crate) build: Build,
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd")
}

/// Returns true if an eventfd was written to, and resets it.
pub(crate) fn rang(event: &OwnedFd) -> bool {
    let mut count = [0; 8];
    rustix::io::read(event, &mut count).is_ok()
}

/// Makes every write to an eventfd wait, as a hostile monitor can: the counter is full, and the
/// open file, which both processes have, waits for room.
pub(crate) fn make_wait(event: &OwnedFd) {
    const FULL: u64 = u64::MAX - 1;
    // It may have been made to wait before.
    let flags = fcntl_getfl(event).expect("an open file");
    fcntl_setfl(event, flags | OFlags::NONBLOCK).expect("set");
    until("the counter is full", || {
        rang(event);
        rustix::io::write(event, &FULL.to_ne_bytes()).ok()
    });
    fcntl_setfl(event, flags - OFlags::NONBLOCK).expect("set");
}

pub(crate) fn memfd(len: u64) -> File {
    let fd = memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd");
    ftruncate(&fd, len).expect("as long as that");
    File::from(fd)
}

impl Machine {
    /// A machine that has started at the other end of a socket, with all its buffers to
    /// receive offered.
    pub(crate) fn start(socket: &Path, build: Build) -> Self {
        Self::start_at(Monitor::connect(socket), build)
    }

    pub(crate) fn start_at(monitor: Monitor, build: Build) -> Self {
        let mut machine = Self::build(monitor, build);
        machine.negotiate().expect("agreed");
        machine.start_rings().expect("started");
        machine
    }

    /// The same for a monitor that the port may refuse.
    pub(crate) fn try_start_at(monitor: Monitor, build: Build) -> io::Result<Self> {
        let mut machine = Self::build(monitor, build);
        machine.negotiate()?;
        machine.start_rings()?;
        Ok(machine)
    }

    /// Builds a VM whose receive buffers are offered before its VMM has sent any message.
    fn build(monitor: Monitor, build: Build) -> Self {
        let file = memfd(LEN);
        let offset = FileOffset::new(file.try_clone().expect("cloned"), 0);
        let ranges = [(GuestAddress(BASE), LEN as usize, Some(offset))];
        let memory = GuestMemoryMmap::from_ranges_with_files(ranges).expect("mapped");
        let room = LEN / (2 * build.pairs as u64);
        let ring = |index: u64| Ring {
            at: BASE + index * room,
            entries: build.entries,
            next: 0,
            seen: 0,
            looked: Cell::new(0),
            kick: event(),
            call: event(),
            error: event(),
            buffers: BASE + index * room + (1 << 20).min(room / 4),
            apart: (room - (1 << 20).min(room / 4)) / u64::from(build.entries) / 16 * 16,
            buffer: build.buffer,
        };
        let rings = (0..2 * build.pairs as u64).map(ring).collect();
        let mut machine = Self {
            memory,
            file,
            rings,
            monitor,
            build,
        };
        machine.offer_all();
        machine
    }

    /// Offers all buffers of the rings to receive.
    fn offer_all(&mut self) {
        for index in (0..self.rings.len()).step_by(2) {
            for entry in 0..self.build.entries {
                self.offer(index, entry);
            }
        }
    }

    /// Offers the buffer of an entry to receive into, in memory that the guest has used.
    pub(crate) fn offer(&mut self, ring: usize, entry: u16) {
        let ring_ref = &self.rings[ring];
        let descriptor = Descriptor::of(ring_ref.buffer(entry), ring_ref.buffer).with(WRITE);
        for page in (0..u64::from(descriptor.len)).step_by(4096) {
            self.write(0u8, descriptor.at + page);
        }
        self.describe(ring, entry, descriptor);
        self.make_available(ring, entry);
    }

    /// The features and the memory.
    pub(crate) fn negotiate(&mut self) -> io::Result<()> {
        use request::{
            GET_FEATURES, GET_PROTOCOL_FEATURES, SET_FEATURES, SET_MEM_TABLE, SET_OWNER,
            SET_PROTOCOL_FEATURES,
        };
        let monitor = &mut self.monitor;
        monitor.tell(SET_OWNER, &[], &[])?;
        if self.build.features & feature::PROTOCOL != 0 {
            // As QEMU does, before it says that it has chosen this.
            monitor.tell(request::SET_VRING_ENABLE, &[Monitor::pair(0, 1)], &[])?;
        }
        let offered = monitor.ask(GET_FEATURES, &[])?;
        assert_eq!(
            offered & self.build.features,
            self.build.features,
            "offered"
        );
        if self.build.features & feature::PROTOCOL != 0 {
            let offered = monitor.ask(GET_PROTOCOL_FEATURES, &[])?;
            assert_eq!(offered & PROTOCOL, PROTOCOL, "offered");
            monitor.tell(SET_PROTOCOL_FEATURES, &[PROTOCOL], &[])?;
            monitor.acknowledges = true;
        }
        monitor.tell(SET_FEATURES, &[self.build.features], &[])?;
        let region = [1, BASE, LEN, MONITOR, 0];
        monitor.tell(SET_MEM_TABLE, &region, &[self.file.as_fd()])
    }

    /// Starts all rings where they stand.
    pub(crate) fn start_rings(&mut self) -> io::Result<()> {
        (0..self.rings.len()).try_for_each(|index| self.start_ring(index))
    }

    pub(crate) fn start_ring(&mut self, index: usize) -> io::Result<()> {
        use request::{
            SET_VRING_ADDR, SET_VRING_BASE, SET_VRING_CALL, SET_VRING_ENABLE, SET_VRING_ERR,
            SET_VRING_KICK, SET_VRING_NUM,
        };
        let ring = &self.rings[index];
        let monitor = &mut self.monitor;
        let place = |address: u64| address - BASE + MONITOR;
        let number = index as u32;
        let (table, used, available) = (ring.at, ring.used(), ring.available());
        monitor.tell(
            SET_VRING_NUM,
            &[Monitor::pair(number, ring.entries.into())],
            &[],
        )?;
        let addresses = [
            u64::from(number),
            place(table),
            place(used),
            place(available),
            0,
        ];
        monitor.tell(SET_VRING_ADDR, &addresses, &[])?;
        monitor.tell(
            SET_VRING_BASE,
            &[Monitor::pair(number, ring.seen.into())],
            &[],
        )?;
        monitor.tell(SET_VRING_ERR, &[number.into()], &[ring.error.as_fd()])?;
        monitor.tell(SET_VRING_CALL, &[number.into()], &[ring.call.as_fd()])?;
        monitor.tell(SET_VRING_KICK, &[number.into()], &[ring.kick.as_fd()])?;
        if self.build.features & feature::PROTOCOL != 0 {
            monitor.tell(SET_VRING_ENABLE, &[Monitor::pair(number, 1)], &[])?;
        }
        Ok(())
    }

    /// Stops a ring, and returns where it stands.
    pub(crate) fn stop_ring(&mut self, index: usize) -> u16 {
        let state = self
            .monitor
            .ask(request::GET_VRING_BASE, &[index as u64])
            .expect("stopped");
        (state >> 32) as u16
    }

    /// Sets a file as the log of written pages, with `len` bytes of it.
    pub(crate) fn set_log(&mut self, file: &File, len: u64) {
        let message = Monitor::message(request::SET_LOG_BASE, &[len, 0]);
        self.monitor.send(&message, &[file.as_fd()]).expect("sent");
        self.monitor.reply().expect("answered");
    }

    /// Forgets all that was in memory, as a guest that boots again. Its rings are empty.
    pub(crate) fn forget(&mut self) {
        let nothing = vec![0; LEN as usize];
        let cleared = self.memory.write_slice(&nothing, GuestAddress(BASE));
        cleared.expect("in memory");
        for ring in &mut self.rings {
            (ring.next, ring.seen) = (0, 0);
        }
    }

    /// Starts anew after its device was stopped, with all its buffers to receive offered.
    pub(crate) fn boot_again(&mut self) {
        self.forget();
        self.offer_all();
        self.negotiate().expect("agreed");
        self.start_rings().expect("started");
    }

    /// Goes on with another connection, without the guest noticing.
    pub(crate) fn reconnect(&mut self, socket: &Path) {
        self.monitor = Monitor::connect(socket);
        self.negotiate().expect("agreed");
        self.start_rings().expect("started");
    }

    pub(crate) fn write<T: vm_memory::ByteValued>(&self, value: T, at: u64) {
        self.memory
            .write_obj(value, GuestAddress(at))
            .expect("in memory");
    }

    pub(crate) fn read(&self, at: u64) -> u16 {
        let word = self.memory.load::<u16>(GuestAddress(at), Ordering::SeqCst);
        word.expect("in memory")
    }

    /// Writes a descriptor of a ring's table.
    pub(crate) fn describe(&self, ring: usize, entry: u16, descriptor: Descriptor) {
        let at = self.rings[ring].at + 16 * u64::from(entry);
        self.describe_at(at, descriptor);
    }

    pub(crate) fn describe_at(&self, at: u64, descriptor: Descriptor) {
        self.write(descriptor.at, at);
        self.write(descriptor.len, at + 8);
        self.write(descriptor.flags, at + 12);
        self.write(descriptor.next, at + 14);
    }

    /// Offers the chain that begins at a descriptor. The device is kicked by [`Self::kick`].
    pub(crate) fn make_available(&mut self, index: usize, head: u16) {
        let ring = &mut self.rings[index];
        let at = ring.available() + 4 + 2 * u64::from(ring.next % ring.entries);
        ring.next = ring.next.wrapping_add(1);
        let (next, place) = (ring.next, ring.available() + 2);
        self.write(head, at);
        let stored = self
            .memory
            .store(next, GuestAddress(place), Ordering::SeqCst);
        stored.expect("in memory");
    }

    /// Kicks the device if it wants that: as Linux does, for entries made available since
    /// the last look alone (virtio 1.2, 2.7.10).
    pub(crate) fn kick(&self, index: usize) -> bool {
        let ring = &self.rings[index];
        let (new, old) = (ring.next, ring.looked.replace(ring.next));
        fence(Ordering::SeqCst);
        let wants = if self.build.features & feature::EVENT_IDX != 0 {
            let event = self.read(ring.used() + 4 + 8 * u64::from(ring.entries));
            new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
        } else {
            self.read(ring.used()) & 1 == 0
        };
        if wants {
            self.kick_anyway(index);
        }
        wants
    }

    pub(crate) fn kick_anyway(&self, index: usize) {
        rustix::io::write(&self.rings[index].kick, &1u64.to_ne_bytes()).expect("kicked");
    }

    fn header_len(&self) -> usize {
        if self.build.features & (feature::VERSION_1 | feature::MRG_RXBUF) == 0 {
            10
        } else {
            12
        }
    }

    /// Sends a frame by a pair's ring, in one descriptor, with its virtio header.
    pub(crate) fn send(&mut self, pair: usize, header: [u8; 10], frame: &[u8]) {
        let index = 2 * pair + 1;
        let entry = self.rings[index].next % self.build.entries;
        let at = self.rings[index].buffer(entry);
        let mut bytes = header.to_vec();
        bytes.resize(self.header_len(), 0);
        bytes.extend_from_slice(frame);
        let written = self.memory.write_slice(&bytes, GuestAddress(at));
        written.expect("in memory");
        let len = bytes.len() as u32;
        let descriptor = Descriptor::of(at, len);
        self.describe(index, entry, descriptor);
        self.make_available(index, entry);
        self.kick(index);
    }

    /// Returns the number of chains of a ring that the device has returned.
    pub(crate) fn used(&self, index: usize) -> u16 {
        self.read(self.rings[index].used() + 2)
    }

    /// Returns the next chain that the device has returned: the entry, and the number of written
    /// bytes.
    pub(crate) fn next_used(&mut self, index: usize) -> Option<(u16, u32)> {
        let used = self.used(index);
        let ring = &mut self.rings[index];
        if ring.seen == used {
            return None;
        }
        let at = ring.used() + 4 + 8 * u64::from(ring.seen % ring.entries);
        ring.seen = ring.seen.wrapping_add(1);
        let element: [u32; 2] = self.memory.read_obj(GuestAddress(at)).expect("in memory");
        Some((element[0] as u16, element[1]))
    }

    /// Returns the next frame for the guest, and its virtio header; offers its buffers again if
    /// `again` is set.
    pub(crate) fn receive(&mut self, pair: usize, again: bool) -> Option<([u8; 12], Vec<u8>)> {
        let index = 2 * pair;
        let mut bytes = Vec::new();
        let mut left = 1;
        let header_len = self.header_len();
        while left > 0 {
            let (entry, len) = self.next_used(index)?;
            let at = self.rings[index].buffer(entry);
            let mut part = vec![0; len as usize];
            self.memory
                .read_slice(&mut part, GuestAddress(at))
                .expect("in memory");
            if bytes.is_empty() && header_len == 12 {
                left = usize::from(u16::from_le_bytes([part[10], part[11]]));
                assert!(left > 0, "a frame has a buffer");
            }
            bytes.extend(part);
            left -= 1;
            if again {
                self.offer(index, entry);
            }
        }
        if again {
            self.kick(index);
        }
        let mut header = [0; 12];
        header[..header_len].copy_from_slice(&bytes[..header_len]);
        Some((header, bytes.split_off(header_len)))
    }
}

/// Waits until a descriptor is readable; returns whether it is, in time.
pub(crate) fn is_readable(descriptor: BorrowedFd<'_>, time: Duration) -> bool {
    let mut one = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: time.as_secs().cast_signed(),
        tv_nsec: time.subsec_nanos().into(),
    };
    poll(&mut one, Some(&timeout)).expect("polled") > 0
}
