//! A hostile monitor and its guest: one move after the other, each drawn from a seed.

mod guest;

use crate::machine::{
    self, BASE, Build, Descriptor, LEN, MONITOR, Machine, Monitor, feature, memfd, request,
};
use crate::random::Random;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{FallocateFlags, OFlags, fallocate, fcntl_getfl, fcntl_setfl, ftruncate};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// The time that a monitor waits for an answer before its next move.
const ANSWER: Duration = Duration::from_millis(100);

/// The longest time for a move while the monitor sets up its card.
const START: Duration = Duration::from_millis(500);

/// The longest hole that is punched into memory: the packet loop waits for a hole.
const LONGEST_HOLE: u64 = 256 << 10;

/// Connections that are kept open beside the monitor's own.
const MAX_STRANGERS: usize = 8;

/// Features that a guest may choose alone, beside those of a network card.
const FEATURES: [u64; 8] = [
    feature::MRG_RXBUF,
    feature::EVENT_IDX,
    feature::INDIRECT,
    feature::CSUM,
    feature::CSUM | feature::HOST_TSO4,
    feature::CSUM | feature::HOST_TSO4 | feature::HOST_ECN,
    feature::GUEST_CSUM,
    feature::GUEST_CSUM | feature::GUEST_TSO4,
];

type Move = fn(&mut Hostile, &mut Random) -> io::Result<()>;

/// All moves, by name.
const MOVES: [(&str, Move); 24] = [
    ("starts another machine", Hostile::start),
    ("sends frames", Hostile::send_honest),
    ("sends frames that are refused", Hostile::send_refused),
    ("floods", Hostile::flood),
    ("floods again", Hostile::flood),
    ("offers random descriptors", Hostile::describe_randomly),
    ("offers empty descriptors", Hostile::describe_empty),
    ("offers the longest chains", Hostile::describe_longest),
    ("offers short buffers", Hostile::offer_short),
    ("takes its frames", Hostile::take),
    ("jumps with an index", Hostile::jump),
    ("scribbles over a ring", Hostile::scribble),
    ("kicks often", Hostile::kick_often),
    ("makes calls wait", Hostile::make_calls_wait),
    ("gives events that wait", Hostile::give_waiting_events),
    ("shrinks its memory", Hostile::shrink),
    ("punches a hole", Hostile::punch),
    ("resets", Hostile::reset),
    ("sets a ring up wrongly", Hostile::set_up_wrongly),
    ("changes its memory", Hostile::change_memory),
    ("sends a random message", Hostile::send_message),
    ("logs its pages", Hostile::log_pages),
    ("connects strangers", Hostile::connect_strangers),
    ("leaves amid a message", Hostile::leave_amid),
];

/// The name of the move with this number.
pub(crate) fn name(seed: u64, number: u64) -> &'static str {
    Random::of_move(seed, number).pick(&MOVES).0
}

/// The other guests, whom frames go to: their MAC addresses.
pub(crate) type Others = [[u8; 6]; 2];

/// A monitor and its guest.
pub(crate) struct Hostile {
    socket: PathBuf,
    mac: [u8; 6],
    others: Others,
    machine: Option<Machine>,
    /// The present length of its memory. Nothing is written behind that, since it would grow.
    len: u64,
    strangers: Vec<UnixStream>,
    /// Machines that were started.
    pub(crate) starts: u64,
}

impl Hostile {
    pub(crate) fn new(socket: PathBuf, mac: [u8; 6], others: Others) -> Self {
        Self {
            socket,
            mac,
            others,
            machine: None,
            len: 0,
            strangers: Vec::new(),
            starts: 0,
        }
    }

    /// Makes the move with this number. A monitor whose connection has ended connects again
    /// before most moves.
    pub(crate) fn make_move(&mut self, seed: u64, number: u64) {
        let mut random = Random::of_move(seed, number);
        let (_, act) = random.pick(&MOVES);
        if self.has_broken_ring() && !random.once_in(3) {
            self.machine = None;
        }
        if self.machine.is_none() && !random.once_in(4) {
            // Refusals are expected here.
            let _ = self.start(&mut random);
        }
        if act(self, &mut random).is_err() && !random.once_in(4) {
            self.machine = None;
        }
    }

    /// True if the device has given up a ring: most moves have no effect on it then.
    fn has_broken_ring(&self) -> bool {
        let rings = self.machine.iter().flat_map(|machine| &machine.rings);
        let mut errors = rings.map(|ring| &ring.error);
        // Reading one that was made to wait could wait.
        errors.any(|error| {
            fcntl_getfl(error).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
                && machine::rang(error)
        })
    }

    fn start(&mut self, random: &mut Random) -> io::Result<()> {
        self.machine = None;
        // A card serves one connection at a time, so strangers keep its monitor waiting.
        if !random.once_in(16) {
            self.strangers.clear();
        }
        let mut features = feature::VERSION_1 | feature::PROTOCOL;
        for one in FEATURES {
            if random.once_in(2) {
                features |= one;
            }
        }
        if random.once_in(8) {
            features &= !random.pick(&[feature::VERSION_1, feature::PROTOCOL]);
        }
        let build = Build {
            features,
            pairs: random.pick(&[1, 1, 2]),
            entries: random.pick(&[16, 64, 256, 512]),
            buffer: random.pick(&[1, 13, 60, 2048, 2048, 2048]),
        };
        let stream = UnixStream::connect(&self.socket)?;
        stream.set_write_timeout(Some(ANSWER))?;
        let monitor = Monitor::new(stream);
        monitor.stream.set_read_timeout(Some(START))?;
        let machine = Machine::try_start_at(monitor, build)?;
        machine.monitor.stream.set_read_timeout(Some(ANSWER))?;
        self.machine = Some(machine);
        self.len = LEN;
        self.starts += 1;
        Ok(())
    }

    fn machine(&mut self) -> io::Result<&mut Machine> {
        self.machine
            .as_mut()
            .ok_or(io::ErrorKind::NotConnected.into())
    }

    /// A ring by its number, of those that send (1) or receive (0).
    fn ring(&mut self, random: &mut Random, direction: usize) -> io::Result<usize> {
        let pairs = self.machine()?.build.pairs as u64;
        Ok(2 * random.below(pairs) as usize + direction)
    }

    fn any_ring(&mut self, random: &mut Random) -> io::Result<usize> {
        let direction = random.below(2) as usize;
        self.ring(random, direction)
    }

    /// Writes to the guest's memory by its file, since a mapping of memory that was shrunk would
    /// end this process.
    fn poke(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let len = self.len;
        let file = &self.machine()?.file;
        match at.checked_sub(BASE) {
            Some(offset) if offset + bytes.len() as u64 <= len => file.write_all_at(bytes, offset),
            _ => Ok(()),
        }
    }

    fn peek(&mut self, at: u64) -> io::Result<u16> {
        let mut word = [0; 2];
        let file = &self.machine()?.file;
        // Memory that was shrunk reads as zero.
        let _ = file.read_at(&mut word, at - BASE)?;
        Ok(u16::from_le_bytes(word))
    }

    fn describe_at(&mut self, at: u64, descriptor: Descriptor) -> io::Result<()> {
        let bytes = [
            &descriptor.at.to_le_bytes()[..],
            &descriptor.len.to_le_bytes(),
            &descriptor.flags.to_le_bytes(),
            &descriptor.next.to_le_bytes(),
        ];
        self.poke(at, &bytes.concat())
    }

    fn describe(&mut self, ring: usize, entry: u16, descriptor: Descriptor) -> io::Result<()> {
        let at = self.machine()?.rings[ring].at + 16 * u64::from(entry);
        self.describe_at(at, descriptor)
    }

    /// Makes these heads available, given back by the device or not, and kicks.
    fn offer(&mut self, index: usize, heads: impl IntoIterator<Item = u16>) -> io::Result<()> {
        for head in heads {
            let ring = &mut self.machine()?.rings[index];
            let at = ring.available() + 4 + 2 * u64::from(ring.next % ring.entries);
            ring.next = ring.next.wrapping_add(1);
            self.poke(at, &head.to_le_bytes())?;
        }
        let ring = &self.machine()?.rings[index];
        let (at, next) = (ring.available() + 2, ring.next);
        self.poke(at, &next.to_le_bytes())?;
        self.kick(index)
    }

    /// Kicks, unless the write would wait.
    fn kick(&mut self, ring: usize) -> io::Result<()> {
        let kick = &self.machine()?.rings[ring].kick;
        let mut one = [PollFd::new(kick, PollFlags::OUT)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        if poll(&mut one, Some(&now))? > 0 {
            rustix::io::write(kick, &1_u64.to_ne_bytes())?;
        }
        Ok(())
    }

    fn tell(&mut self, code: u32, words: &[u64], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.machine()?.monitor.tell(code, words, descriptors)
    }

    fn give_waiting_events(&mut self, random: &mut Random) -> io::Result<()> {
        let index = self.any_ring(random)?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        if random.once_in(2) {
            make_wait(&event)?;
        } else {
            // Reading this one waits.
            let flags = fcntl_getfl(&event)?;
            fcntl_setfl(&event, flags - OFlags::NONBLOCK)?;
        }
        let code = random.pick(&[
            request::SET_VRING_KICK,
            request::SET_VRING_CALL,
            request::SET_VRING_ERR,
        ]);
        self.tell(code, &[index as u64], &[event.as_fd()])?;
        if code == request::SET_VRING_KICK {
            self.machine()?.rings[index].kick = event;
        }
        self.kick(index)
    }

    fn shrink(&mut self, random: &mut Random) -> io::Result<()> {
        let len = self.len;
        let to = random
            .pick(&[0, 4096, len / 2, len.saturating_sub(4096)])
            .min(len);
        ftruncate(&self.machine()?.file, to)?;
        self.len = to;
        if random.once_in(2) {
            // It grows again, with nothing in it.
            ftruncate(&self.machine()?.file, len)?;
            self.len = len;
        }
        let ring = self.any_ring(random)?;
        self.kick(ring)
    }

    fn punch(&mut self, random: &mut Random) -> io::Result<()> {
        let index = self.any_ring(random)?;
        let len = self.len;
        let at = self.machine()?.rings[index].at - BASE + random.below(4 << 20);
        let hole = 1 + random.below(LONGEST_HOLE);
        if at + hole <= len {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&self.machine()?.file, flags, at, hole)?;
        }
        self.kick(index)
    }

    fn reset(&mut self, random: &mut Random) -> io::Result<()> {
        let index = self.any_ring(random)?;
        match random.below(3) {
            0 => self.tell(request::RESET_OWNER, &[], &[]),
            1 => {
                let monitor = &mut self.machine()?.monitor;
                monitor.ask(request::GET_VRING_BASE, &[index as u64])?;
                self.machine()?.start_ring(index)
            }
            _ => {
                let enable = random.below(2) << 32;
                self.tell(request::SET_VRING_ENABLE, &[index as u64 | enable], &[])
            }
        }
    }

    fn set_up_wrongly(&mut self, random: &mut Random) -> io::Result<()> {
        let index = self.any_ring(random)? as u64;
        let ring = &self.machine()?.rings[index as usize];
        let place = |at: u64| at - BASE + MONITOR;
        let mut addresses = [
            index,
            place(ring.at),
            place(ring.used()),
            place(ring.available()),
            0,
        ];
        match random.below(3) {
            0 => {
                let at = 1 + random.below(3) as usize;
                let (wild, shift) = (random.word(), random.below(100));
                addresses[at] = random.pick(&[wild, addresses[at] + shift, addresses[1]]);
                self.tell(request::SET_VRING_ADDR, &addresses, &[])
            }
            1 => {
                let number = random.pick(&[0, 1, 2, 3, 1024, 32_768, random.clone().below(70_000)]);
                self.tell(request::SET_VRING_NUM, &[index | number << 32], &[])
            }
            _ => {
                let base = random.below(1 << 32);
                self.tell(request::SET_VRING_BASE, &[index | base << 32], &[])
            }
        }
    }

    fn change_memory(&mut self, random: &mut Random) -> io::Result<()> {
        let count = 1 + random.below(8);
        let mut words = vec![count];
        for region in 0..count {
            let wild = random.word();
            let page = random.below(1 << 12) << 12;
            words.extend(random.pick(&[
                [BASE, LEN, MONITOR, 0],
                [region << 24, 1 << 20, MONITOR + (region << 24), 0],
                [BASE + page, 1 << 20, MONITOR + page, 4096],
                [wild, 1 << 20, MONITOR, 0],
                [BASE, wild, MONITOR, 0],
                [BASE, 1 << 20, wild, wild],
            ]));
        }
        let files: Vec<_> = (0..count)
            .map(|_| memfd(random.pick(&[4096, 1 << 20, LEN])))
            .collect();
        let mut descriptors: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        descriptors.truncate(random.pick(&[8, 8, 8, 1, 0]));
        if random.once_in(3) {
            // The right one once more, amid its traffic.
            let file = self.machine()?.file.try_clone()?;
            let region = [1, BASE, LEN, MONITOR, 0];
            return self.tell(request::SET_MEM_TABLE, &region, &[file.as_fd()]);
        }
        self.tell(request::SET_MEM_TABLE, &words, &descriptors)
    }

    /// The bytes of a request that may be wrong in each part.
    fn message(random: &mut Random) -> Vec<u8> {
        let code = random.below(48) as u32;
        let flags = random.pick(&[1, 1, 1, 9, 5, 0, random.clone().word() as u32]);
        let words = random.below(6) as usize;
        let body: Vec<_> = (0..words)
            .flat_map(|_| random.word().to_le_bytes())
            .collect();
        let wild = random.word() as u32;
        let len = random.pick(&[body.len() as u32, body.len() as u32, 8, 4096, wild]);
        let header = [code, flags, len].map(u32::to_le_bytes).concat();
        [header, body].concat()
    }

    fn send_message(&mut self, random: &mut Random) -> io::Result<()> {
        let bytes = Self::message(random);
        let event = eventfd(0, EventfdFlags::CLOEXEC)?;
        let file = memfd(random.pick(&[0, 4096, 1 << 20]));
        let all = [event.as_fd(), file.as_fd(), event.as_fd(), file.as_fd()];
        let count = random.pick(&[0, 0, 1, 2, 4]);
        let monitor = &mut self.machine()?.monitor;
        monitor.send(&bytes, &all[..count])?;
        // Its answer, if any, is taken, so that the next one is that of the next request.
        let wait = Some(Duration::from_millis(10));
        monitor.stream.set_read_timeout(wait)?;
        let read = monitor.stream.read(&mut [0; 4096]);
        monitor.stream.set_read_timeout(Some(ANSWER))?;
        match read {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    fn log_pages(&mut self, random: &mut Random) -> io::Result<()> {
        let file = memfd(random.pick(&[0, 4096, 1 << 20]));
        let len = random.pick(&[0, 1, 4096, 1 << 20, random.clone().word()]);
        let features = self.machine()?.build.features | feature::LOG_ALL;
        let message = Monitor::message(request::SET_LOG_BASE, &[len, 0]);
        let monitor = &mut self.machine()?.monitor;
        monitor.send(&message, &[file.as_fd()])?;
        monitor.answer()?;
        self.tell(request::SET_FEATURES, &[features], &[])?;
        for _ in 0..random.below(20) {
            self.tell(request::SEND_RARP, &[random.next()], &[])?;
        }
        Ok(())
    }

    fn connect_strangers(&mut self, random: &mut Random) -> io::Result<()> {
        for _ in 0..=random.below(10) {
            let mut stream = UnixStream::connect(&self.socket)?;
            stream.set_write_timeout(Some(ANSWER))?;
            let bytes = Self::message(random);
            let _ = stream.write_all(&bytes);
            if random.once_in(2) {
                self.strangers.push(stream);
            }
        }
        let excess = self.strangers.len().saturating_sub(MAX_STRANGERS);
        self.strangers.drain(..excess);
        Ok(())
    }

    fn leave_amid(&mut self, random: &mut Random) -> io::Result<()> {
        let message = Self::message(random);
        let len = random.below(message.len() as u64) as usize;
        self.machine()?.monitor.stream.write_all(&message[..len])?;
        self.strangers.clear();
        self.machine = None;
        Ok(())
    }
}

/// Makes every write to an eventfd wait. None of the calls here waits, though the daemon may
/// write to it meanwhile.
fn make_wait(event: &OwnedFd) -> io::Result<()> {
    let flags = fcntl_getfl(event)?;
    fcntl_setfl(event, flags | OFlags::NONBLOCK)?;
    machine::rang(event);
    let full = (u64::MAX - 1).to_ne_bytes();
    if let Err(error) = rustix::io::write(event, &full)
        && error != rustix::io::Errno::AGAIN
    {
        return Err(error.into());
    }
    fcntl_setfl(event, flags - OFlags::NONBLOCK)?;
    Ok(())
}
