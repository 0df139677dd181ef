//! Two cards at a switch, and a loop that waits as the daemon's does: by level-triggered epoll for
//! each port's interest. The drivers kick for nothing until their ports rest. All other kicks keep to
//! the device's notification fields (virtio 1.2, 2.7.10), so one that the loop misses, or that the
//! device did not enable again, leaves frames in a ring for ever.
//!
//! No kick is lost over a rest. A rest changes the interest of the outer epoll alone. A kick still
//! makes the card's own (edge-triggered) epoll ready, and nothing reads that until the outer one
//! reports it: when the rest ends, `EPOLL_CTL_MOD` looks at the card's epoll again. The ring's fields
//! stay enabled all the while, as the last look at the ring before the rest enabled it and found
//! no more; a look that did find more leaves the port ready, and it is read after the rest.

use crate::ports::{PLAIN, Socket, frame, open, socket};
use crate::support::{Build, Machine, feature};
use proptest::prelude::*;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use tailbound_dataplane::PipelineConfig;
use tailbound_switch::port::Port;
use tailbound_switch::{GuestConfig, Interest, Mac, PortIndex, Switch, SwitchConfig};
use tailbound_units::Nanos;

/// The rings of a card.
const RECEIVE: usize = 0;
const SEND: usize = 1;

const ENTRIES: u16 = 16;

/// Frames on their way at most; the queue before a port holds more.
const MOST_WAITING: usize = 60;

/// A port rests for this time at most.
const LONGEST_REST: Nanos = Nanos::from_micros(500);

/// A switch with cards, and the loop around it.
struct Loop {
    switch: Switch,
    ports: Vec<Option<Box<dyn Port>>>,
    epoll: OwnedFd,
    watched: Vec<EventFlags>,
    now: Nanos,
    /// Turns in which a port was not waited for.
    rests: usize,
}

impl Loop {
    fn new(sockets: &[Socket]) -> Self {
        let epoll = epoll::create(CreateFlags::CLOEXEC).expect("an epoll instance");
        let mut config = SwitchConfig::default();
        let mut ports = Vec::new();
        let mut watched = Vec::new();
        for (number, socket) in sockets.iter().enumerate() {
            let mac = Mac([2, 0, 0, 0, 0, number as u8 + 1]);
            let mut guest = GuestConfig::new(format!("guest{number}"), mac);
            guest.pipeline = PipelineConfig::default();
            config.guests.push(guest);
            let port: Box<dyn Port> = Box::new(open(&socket.path, 1));
            let descriptor = port.descriptor().expect("it has one");
            let mark = EventData::new_u64(number as u64);
            epoll::add(&epoll, descriptor, mark, EventFlags::IN).expect("watched");
            watched.push(EventFlags::IN);
            ports.push(Some(port));
        }
        Self {
            switch: Switch::new(config).expect("no rule is broken"),
            ports,
            epoll,
            watched,
            now: Nanos::from_secs(1),
            rests: 0,
        }
    }

    /// A turn, and a look at the descriptors; returns whether there is more to do now.
    fn turn(&mut self) -> bool {
        let turn = self.switch.poll(self.now, &mut self.ports);
        assert!(turn.gone.is_empty(), "{:?}", turn.gone);
        let is_due = self.switch.poll_at(&self.ports);
        self.wait() || turn.busy || is_due.is_some_and(|at| at <= self.now)
    }

    /// As the daemon does, without a timeout.
    fn wait(&mut self) -> bool {
        while let Some((index, Interest { receive, transmit })) = self.switch.poll_interest() {
            let mut flags = EventFlags::empty();
            flags.set(EventFlags::IN, receive || transmit);
            flags.set(EventFlags::OUT, transmit);
            if std::mem::replace(&mut self.watched[index.0], flags) != flags {
                let port = self.ports[index.0].as_ref().expect("it is there");
                let descriptor = port.descriptor().expect("it has one");
                let mark = EventData::new_u64(index.0 as u64);
                epoll::modify(&self.epoll, descriptor, mark, flags).expect("watched");
            }
        }
        self.rests += self.watched.iter().filter(|it| it.is_empty()).count();
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut events = [MaybeUninit::uninit(); 8];
        let (events, _) = epoll::wait(&self.epoll, &mut events, Some(&now)).expect("waited");
        for event in &*events {
            let index = PortIndex(event.data.u64() as usize);
            self.switch.handle_readable(index);
            let port = self.ports[index.0].as_mut().expect("it is there");
            port.note_ready();
            self.switch.handle_writable(index);
        }
        !events.is_empty()
    }

    /// Goes on until nothing is left that can be done within the longest rest.
    fn settle(&mut self) {
        let end = self.now + LONGEST_REST;
        for _ in 0..10_000 {
            if self.turn() {
                continue;
            }
            match self.switch.poll_at(&self.ports) {
                Some(at) if at <= end => self.now = self.now.max(at),
                _ => return,
            }
        }
        panic!("the loop is busy for ever");
    }
}

/// The drivers of both cards, and the frames that the first one sends to the second.
struct Drivers {
    machines: [Machine; 2],
    sent: u32,
    taken: u32,
    /// Buffers that the second has taken, and not offered again.
    kept: Vec<u16>,
}

impl Drivers {
    fn new(sockets: &[Socket], features: u64) -> Self {
        let build = Build {
            features,
            entries: ENTRIES,
            ..Build::default()
        };
        let machine = |at: usize| Machine::start(&sockets[at].path, build);
        Self {
            machines: [machine(0), machine(1)],
            sent: 0,
            taken: 0,
            kept: Vec::new(),
        }
    }

    fn numbered(number: u32) -> Vec<u8> {
        let mut frame = frame(60, 0);
        frame[14..18].copy_from_slice(&number.to_be_bytes());
        frame
    }

    /// Sends a frame if there is room for it.
    fn send(&mut self) {
        let sender = &mut self.machines[0];
        let outstanding = sender.rings[SEND].next.wrapping_sub(sender.used(SEND));
        if outstanding < ENTRIES && (self.sent - self.taken) < MOST_WAITING as u32 {
            sender.send(0, PLAIN, &Self::numbered(self.sent));
            self.sent += 1;
        }
    }

    /// Takes at most `most` frames, without new buffers for them.
    fn take(&mut self, most: usize) {
        for _ in 0..most {
            let machine = &mut self.machines[1];
            let Some((entry, len)) = machine.next_used(RECEIVE) else {
                return;
            };
            assert_eq!(len, 72);
            let mut bytes = vec![0; 60];
            let at = machine.rings[RECEIVE].buffer(entry) + 12;
            let read = vm_memory::Bytes::read_slice(
                &machine.memory,
                &mut bytes,
                vm_memory::GuestAddress(at),
            );
            read.expect("in memory");
            assert_eq!(
                bytes,
                Self::numbered(self.taken),
                "in order, and none is lost"
            );
            self.taken += 1;
            self.kept.push(entry);
        }
    }

    /// Offers at most `most` of the buffers again, and kicks once.
    fn offer(&mut self, most: usize) {
        let count = self.kept.len().min(most);
        for entry in self.kept.drain(..count) {
            self.machines[1].offer(RECEIVE, entry);
        }
        self.machines[1].kick(RECEIVE);
    }

    fn kick_anyway(&self, ring: usize) {
        self.machines[ring % 2].kick_anyway(ring / 2);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Send(usize),
    Take(usize),
    Offer(usize),
    /// Kicks of a ring for nothing: their number, and the microseconds between two.
    Kick(usize, usize, u64),
    Turn,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1usize..40).prop_map(Step::Send),
        2 => (1usize..20).prop_map(Step::Take),
        2 => (1usize..20).prop_map(Step::Offer),
        2 => (0usize..4, 1usize..60, 0u64..20).prop_map(|(r, n, us)| Step::Kick(r, n, us)),
        4 => Just(Step::Turn),
        1 => (0u64..1000).prop_map(Step::Pass),
    ]
}

fn play(features: u64, steps: &[Step]) -> usize {
    let sockets = [socket(), socket()];
    let mut it = Loop::new(&sockets);
    let mut drivers = Drivers::new(&sockets, features);
    it.settle();
    for step in steps {
        match *step {
            Step::Send(count) => (0..count).for_each(|_| drivers.send()),
            Step::Take(count) => drivers.take(count),
            Step::Offer(count) => drivers.offer(count),
            Step::Kick(ring, count, micros) => {
                for _ in 0..count {
                    drivers.kick_anyway(ring);
                    it.wait();
                    it.turn();
                    it.now += Nanos::from_micros(micros);
                }
            }
            Step::Turn => {
                it.turn();
            }
            Step::Pass(micros) => it.now += Nanos::from_micros(micros),
        }
    }
    // As long as the drivers kick as they must, each frame is delivered, also while a port rests.
    let mut rounds = 0;
    while drivers.taken < drivers.sent {
        let before = drivers.taken;
        it.settle();
        drivers.take(usize::MAX);
        drivers.offer(usize::MAX);
        rounds += 1;
        assert!(
            drivers.taken > before || rounds == 1,
            "{} of {} frames came, and no more do",
            drivers.taken,
            drivers.sent
        );
    }
    it.rests
}

proptest! {
    #[test]
    fn no_frame_waits_longer_than_a_rest_for_any_wake_ups(
        has_events in any::<bool>(),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let base = feature::VERSION_1 | feature::PROTOCOL;
        let features = if has_events { base | feature::EVENT_IDX } else { base };
        play(features, &steps);
    }
}
