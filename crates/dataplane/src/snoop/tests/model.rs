//! Model test of all mechanisms together: a peer that sends; a network that loses, reorders and
//! duplicates; a ring; and a guest that waits, drops in-window data behind its ring, moves or
//! crashes. Checks byte by byte that early-acknowledged data arrives, and that the peer receives
//! only segments that a correct receiver would send.

use crate::snoop::{
    Bare, Change, Direction, Flags, FlowId, Handshake, Link, Mode, Options, Origin, RingPlacement,
    Segment, Seq, Sight, Snoop, SnoopConfig, SnoopMode, TcpFrame, Timestamps,
};
use crate::{Frame, GuestId};
use proptest::prelude::*;
use std::collections::VecDeque;
use tailbound_units::{Bytes, Nanos};

const FLOW: FlowId = FlowId {
    guest: [0, 1],
    peer: [0, 2],
    ports: (80 << 16) + 999,
    v6: false,
};
const SCALE: u8 = 2;
/// Bytes of the guest's receive buffer, for a peer that sends segments one by one.
const BUFFER: u32 = 3000;
/// The factor of all sizes for a peer that sends up to 60 KB in one frame.
const LARGE: u32 = 20;
const MSS: u32 = 300;

/// A segment of a connection whose bytes are their numbers.
#[derive(Debug, Clone)]
struct Record {
    direction: Direction,
    segment: Segment,
    /// True for a frame that the host made.
    is_host: bool,
    /// Its checksum is right.
    is_intact: bool,
}

impl Frame for Record {
    fn len(&self) -> usize {
        66 + self.segment.payload as usize
    }
    fn source(&self) -> Option<GuestId> {
        (self.direction == Direction::ToPeer).then_some(GuestId::first(0))
    }
}

impl TcpFrame for Record {
    type Maker = ();

    fn sight(&self, _: Direction) -> Option<Sight> {
        Some(Sight {
            flow: FLOW,
            hash: 7,
            segment: Some(self.segment),
        })
    }
    fn link(&self) -> Link {
        Link::default()
    }
    fn is_intact(&self) -> bool {
        self.is_intact
    }
    fn change(&mut self, change: &Change) {
        self.segment.seq = change.seq;
        self.segment.ack = change.ack;
        self.segment.window = change.window;
        if let (Some(old), Some(new)) = (&mut self.segment.options.timestamps, change.timestamps) {
            *old = new;
        }
        if let Some(ack) = change.sacks_after {
            let blocks: Vec<_> = self.segment.options.sacks.iter().collect();
            self.segment.options.sacks = crate::snoop::Sacks::default();
            for (left, right) in blocks.into_iter().filter(|(left, _)| left.is_after(ack)) {
                self.segment.options.sacks.add(left, right);
            }
        }
    }
    fn again(&self) -> Self {
        let mut again = self.clone();
        again.is_host = true;
        again
    }
    fn part(&self, from: u32, len: u32) -> Self {
        assert!(from + len <= self.segment.payload, "within it");
        assert!(self.is_intact, "a part gets a checksum of its own");
        let mut part = self.clone();
        part.segment.seq = self.segment.seq + from;
        part.segment.payload = len;
        part.is_host = true;
        if from + len < self.segment.payload {
            part.segment.flags = Flags(part.segment.flags.0 & !Flags::FIN.0);
        }
        part
    }
    fn bare((): &(), bare: &Bare) -> Self {
        assert_eq!(bare.flow, FLOW);
        Self {
            direction: bare.direction,
            segment: Segment {
                seq: bare.seq,
                ack: bare.ack,
                flags: bare.flags,
                window: bare.window,
                options: Options {
                    timestamps: bare.timestamps,
                    ..Options::default()
                },
                ..Segment::default()
            },
            is_host: true,
            is_intact: true,
        }
    }
}

/// Ranges of numbers that arrived out of order.
#[derive(Debug, Clone, Default)]
struct Ranges(Vec<(Seq, Seq)>);

impl Ranges {
    fn add(&mut self, left: Seq, right: Seq) {
        let (mut left, mut right) = (left, right);
        self.0.retain(|(l, r)| {
            let touches = !l.is_after(right) && !left.is_after(*r);
            if touches {
                left = left.earliest(*l);
                right = right.latest(*r);
            }
            !touches
        });
        self.0.push((left, right));
    }

    fn has(&self, left: Seq, right: Seq) -> bool {
        self.0
            .iter()
            .any(|(l, r)| !l.is_after(left) && !right.is_after(*r))
    }

    /// The end of what follows `from` without a hole; takes it out.
    fn take_from(&mut self, from: Seq) -> Seq {
        let mut end = from;
        self.0.retain(|(left, right)| {
            let follows = !left.is_after(end);
            if follows {
                end = end.latest(*right);
            }
            !follows
        });
        end
    }
}

/// The guest's end, as strict as real stacks.
#[derive(Debug)]
struct Guest {
    next: Seq,
    unread: u32,
    ahead: Ranges,
    /// The furthest right edge that it advertised.
    edge: Seq,
    /// Maximum window that it offers at present: it grows with arriving data.
    offered: u32,
    buffer: u32,
    sent: Seq,
    acked: Seq,
    recent: u32,
    last_ack: Seq,
    is_closed: bool,
}

impl Guest {
    fn window(&self) -> u32 {
        let free = self.buffer.saturating_sub(self.unread).min(self.offered);
        // The guest keeps its promises.
        let promised = if self.edge.is_after(self.next) {
            self.edge.since(self.next)
        } else {
            0
        };
        free.max(promised).next_multiple_of(1 << SCALE)
    }
}

/// The peer's end.
#[derive(Debug)]
struct Peer {
    una: Seq,
    next: Seq,
    edge: Seq,
    /// The guest's bytes.
    received: Seq,
    recent: u32,
    fin: Option<Seq>,
    /// Bytes that the peer sent twice.
    twice: Ranges,
    /// The most bytes that it sends in one frame.
    most: u32,
}

#[derive(Debug)]
struct World {
    snoop: Snoop<Record>,
    now: Nanos,
    stamped: bool,
    mode: SnoopMode,
    peer: Peer,
    guest: Guest,
    to_guest: VecDeque<Record>,
    to_peer: VecDeque<Record>,
    ring: VecDeque<Record>,
    /// Bytes that the guest's stack dropped behind its ring.
    dropped: u32,
    reset: bool,
    /// Last state that the peer received: its right edge, its acknowledgement, its blocks.
    said: (Seq, Seq),
    named: Vec<(Seq, Seq)>,
    /// The time of the last acknowledgement to the peer.
    said_at: Nanos,
    /// The factor of all sizes: 1 or [`LARGE`].
    times: u32,
}

/// The peer's numbers begin again soon, the guest's too.
const START: Seq = Seq(u32::MAX - 4000);
const OWN: Seq = Seq(u32::MAX - 1500);

impl World {
    fn new(mode: SnoopMode, stamped: bool, times: u32, is_narrow: bool) -> Self {
        // Half of the guests offer little at first, and more as data comes.
        let offered = times * if is_narrow { 2 * MSS } else { BUFFER };
        let bytes = |bytes: u32| Bytes(u64::from(bytes * times));
        let config = SnoopConfig {
            mode,
            window: bytes(8000),
            flow: bytes(6000),
            guest: bytes(9000),
            flows: 2,
        };
        let mut world = Self {
            snoop: Snoop::new(config, ()),
            now: Nanos::from_secs(1),
            stamped,
            mode,
            peer: Peer {
                una: START,
                next: START,
                edge: START + offered,
                received: OWN,
                recent: 0,
                fin: None,
                twice: Ranges::default(),
                most: MSS * times,
            },
            guest: Guest {
                next: START,
                unread: 0,
                ahead: Ranges::default(),
                edge: START + offered,
                offered,
                buffer: BUFFER * times,
                sent: OWN,
                acked: OWN,
                recent: 0,
                last_ack: START,
                is_closed: false,
            },
            to_guest: VecDeque::new(),
            to_peer: VecDeque::new(),
            ring: VecDeque::new(),
            dropped: 0,
            reset: false,
            said: (START + offered, START),
            named: Vec::new(),
            said_at: Nanos::ZERO,
            times,
        };
        world.handshake();
        world
    }

    fn stamps(&self, echo: u32) -> Option<Timestamps> {
        self.stamped.then_some(Timestamps {
            value: (self.now.0 / 1_000_000) as u32,
            echo,
        })
    }

    fn handshake(&mut self) {
        let segment = Segment {
            seq: OWN - 1,
            ack: START,
            window: self.guest.offered as u16,
            flags: Flags::SYN.with(Flags::ACK),
            options: Options {
                timestamps: self.stamps(0),
                handshake: Handshake {
                    mss: Some(MSS as u16),
                    scale: Some(SCALE),
                },
                ..Options::default()
            },
            ..Segment::default()
        };
        let record = Record {
            direction: Direction::ToPeer,
            segment,
            is_host: false,
            is_intact: true,
        };
        let passed = self.snoop.handle_egress(self.now, record, Origin::OUTSIDE);
        assert!(passed.is_some());
        // The guest's first segment.
        self.guest_says(0, &[]);
        self.to_peer.clear();
    }

    /// The peer sends `len` bytes from `seq` on.
    fn peer_sends(&mut self, seq: Seq, len: u32, congestion: bool) {
        let end = seq + len;
        if seq.is_before(self.peer.next) {
            self.peer
                .twice
                .add(seq, end.earliest(self.peer.next).latest(seq + 1));
        }
        self.peer.next = self.peer.next.latest(end);
        let mut segment = self.peer_segment(seq);
        segment.payload = len;
        segment.largest = len.min(MSS) as u16;
        segment.congestion = congestion;
        if self.peer.fin == Some(end) {
            segment.flags = segment.flags.with(Flags::FIN);
            self.peer.next = self.peer.next.latest(end + 1);
        }
        self.put_to_guest(segment);
    }

    fn peer_segment(&self, seq: Seq) -> Segment {
        Segment {
            seq,
            ack: self.peer.received,
            window: 5000,
            // The peer has answered all marks that it received.
            flags: Flags::ACK.with(Flags::CWR),
            options: Options {
                timestamps: self.stamps(self.peer.recent),
                ..Options::default()
            },
            ..Segment::default()
        }
    }

    fn put_to_guest(&mut self, segment: Segment) {
        self.to_guest.push_back(Record {
            direction: Direction::ToGuest,
            segment,
            is_host: false,
            is_intact: true,
        });
    }

    /// The peer sends what it has not sent; where it `closes`, with its FIN.
    fn peer_sends_new(&mut self, len: u32, congestion: bool, closes: bool) {
        let next = self.peer.next;
        let room = if self.peer.edge.is_after(next) {
            self.peer.edge.since(next)
        } else {
            0
        };
        let len = len
            .min(room.saturating_sub(closes.into()))
            .min(self.peer.most);
        if len > 0 && self.peer.fin.is_none() {
            self.peer.fin = closes.then_some(next + len);
            self.peer_sends(next, len, congestion);
        }
    }

    /// The peer's tail loss probe (RFC 8985, 7.3): its last segment once more.
    fn peer_probes(&mut self) {
        let Peer { una, next, fin, .. } = self.peer;
        let end = fin.unwrap_or(next).earliest(next);
        if una.is_before(next) {
            let from = if end.is_after(una) && end.since(una) > MSS {
                end - MSS
            } else {
                una.earliest(end)
            };
            self.peer_sends(from, end.since(from), false);
        }
    }

    /// The peer's timer: the first of what it misses, or a probe.
    fn peer_resends(&mut self) {
        let Peer { una, next, .. } = self.peer;
        if una.is_before(next) {
            let end = self.peer.fin.unwrap_or(next).earliest(next);
            let len = if end.is_after(una) {
                end.since(una).min(self.peer.most)
            } else {
                0
            };
            self.peer_sends(una, len, false);
        } else if !self.peer.edge.is_after(next) {
            let segment = self.peer_segment(next - 1);
            self.put_to_guest(segment);
        }
    }

    /// A frame reaches the ring, or the host keeps it.
    fn arrive(&mut self, at: usize, ring_is_full: bool) {
        let Some(frame) = self.to_guest.remove(at) else {
            return;
        };
        let (segment, is_intact) = (frame.segment, frame.is_intact);
        let before = self.said;
        let passed = self.snoop.handle_ingress(self.now, frame);
        let handed_on = passed.as_ref().map(|frame| frame.segment);
        let is_lost = passed.is_some() && ring_is_full;
        self.ring.extend(passed.filter(|_| !is_lost));
        let placed = match (is_lost, self.mode) {
            (false, _) => RingPlacement::All,
            (true, SnoopMode::Retaining) => RingPlacement::Lost,
            (true, SnoopMode::Strict) => RingPlacement::Waits,
        };
        self.snoop.handle_placed(placed);
        self.collect();
        if is_intact {
            self.check_not_silent(before, &segment, handed_on.as_ref());
        }
    }

    /// A byte that is next in order, and fits the window that the peer was shown, is kept and
    /// acknowledged, or goes to the guest; or the peer receives a duplicate acknowledgement, or
    /// received one at most 12 ms before.
    fn check_not_silent(&self, before: (Seq, Seq), segment: &Segment, passed: Option<&Segment>) {
        let (edge, next) = before;
        let has_next =
            |segment: &Segment| !segment.seq.is_after(next) && segment.bytes_end().is_after(next);
        let is_due = has_next(segment) && edge.is_after(next) && !self.reset;
        let is_taken = self.said.1.is_after(next) || passed.is_some_and(has_next);
        let pause = SnoopConfig::REPEAT + Nanos::from_millis(2);
        let is_told = self.now.since(self.said_at) <= pause;
        assert!(
            !is_due || is_taken || is_told,
            "a byte in order vanishes: {segment:?}"
        );
    }

    /// A damaged frame arrives, and its original later.
    fn damage(&mut self, at: usize, amount: u8) {
        let Some(frame) = self.to_guest.get(at) else {
            return;
        };
        let mut damaged = frame.clone();
        damaged.is_intact = false;
        let segment = &mut damaged.segment;
        let bit = 1_u32 << (amount % 31);
        let flag = [Flags::FIN, Flags::RST, Flags::SYN, Flags::ACK];
        match amount % 7 {
            0 => segment.seq = segment.seq + bit,
            1 => segment.ack = segment.ack + bit,
            2 => segment.window ^= bit as u16,
            3 => segment.congestion ^= true,
            4 | 5 => segment.flags.0 ^= flag[usize::from(amount / 7 % 4)].0,
            _ => {
                if let Some(stamps) = &mut segment.options.timestamps {
                    stamps.value ^= bit;
                }
            }
        }
        let passed = self.snoop.handle_ingress(self.now, damaged);
        self.ring.extend(passed);
        self.snoop.handle_placed(RingPlacement::All);
        self.collect();
    }

    fn collect(&mut self) {
        while let Some(frame) = self.snoop.poll_to_guest() {
            let segment = &frame.segment;
            // The host's segments are within the guest's window.
            assert!(
                !segment.end().is_after(self.guest.edge + 1),
                "beyond the guest's window"
            );
            self.ring.push_back(frame);
        }
        while let Some(frame) = self.snoop.poll_to_peer() {
            self.say(frame);
        }
    }

    /// Sends a segment to the peer, and checks it by the rules of a receiver.
    fn say(&mut self, frame: Record) {
        let segment = &frame.segment;
        if segment.flags.has(Flags::RST) {
            assert!(!segment.seq.is_after(self.guest.sent), "in its window");
            self.reset = true;
            return;
        }
        let (edge, last) = self.said;
        let ack = segment.ack;
        assert!(!ack.is_before(last), "an acknowledgement goes back");
        assert!(!ack.is_after(self.peer.next), "of what was never sent");
        let right = ack + (u32::from(segment.window) << SCALE);
        assert!(!right.is_before(edge), "a right edge moves to the left");
        self.said = (right, ack);
        self.said_at = self.now;
        for (left, right) in &self.named {
            let renegs = !left.is_after(ack) && ack.is_before(*right);
            assert!(!renegs, "an acknowledgement within a block that was named");
        }
        for (left, right) in segment.options.sacks.iter() {
            if left.is_after(ack) {
                self.named.push((left, right));
            } else {
                let is_true = self.peer.twice.has(left, right);
                assert!(is_true, "the peer did not send {left:?} to {right:?} twice");
            }
        }
        self.named.retain(|(_, right)| right.is_after(ack));
        self.to_peer.push_back(frame);
    }

    /// The guest sends `len` bytes, or acknowledges.
    fn guest_says(&mut self, len: u32, twice: &[(Seq, Seq)]) {
        let seq = self.guest.sent;
        self.guest_sends(seq, len, twice);
    }

    fn guest_sends(&mut self, seq: Seq, len: u32, twice: &[(Seq, Seq)]) {
        let window = self.guest.window();
        let mut segment = Segment {
            seq,
            ack: self.guest.next + u32::from(self.guest.is_closed),
            payload: len,
            largest: len as u16,
            window: (window >> SCALE) as u16,
            flags: Flags::ACK,
            options: Options {
                timestamps: self.stamps(self.guest.recent),
                ..Options::default()
            },
            congestion: false,
        };
        for (left, right) in twice.iter().chain(self.guest.ahead.0.iter().rev()) {
            segment.options.sacks.add(*left, *right);
        }
        self.guest.edge = self
            .guest
            .edge
            .latest(segment.ack + (u32::from(segment.window) << SCALE));
        self.guest.last_ack = segment.ack;
        self.guest.sent = self.guest.sent.latest(seq + len);
        let record = Record {
            direction: Direction::ToPeer,
            segment,
            is_host: false,
            is_intact: true,
        };
        let passed = self.snoop.handle_egress(self.now, record, Origin::OUTSIDE);
        if let Some(frame) = passed {
            self.say(frame);
        }
        self.collect();
    }

    /// The guest processes the next frame of its ring, or drops it behind.
    fn guest_takes(&mut self, drops: bool) {
        let Some(frame) = self.ring.pop_front() else {
            return;
        };
        let Record {
            segment, is_intact, ..
        } = frame;
        self.snoop.handle_alive(self.now);
        if !is_intact {
            return;
        }
        if drops && self.mode == SnoopMode::Retaining {
            self.dropped += 1;
            return;
        }
        let (seq, end) = (segment.seq, segment.end());
        let guest = &mut self.guest;
        if segment.flags.has(Flags::RST) {
            self.reset = true;
            return;
        }
        let stamps = segment.options.timestamps;
        let is_old = stamps.is_some_and(|it| Seq(it.value).is_before(Seq(guest.recent)));
        let is_outside = end.is_before(guest.last_ack)
            || seq.is_after(guest.edge)
            || end.is_after(guest.edge + u32::from(segment.flags.has(Flags::FIN)))
            || is_old
            || segment.ack.is_after(guest.sent);
        if is_outside {
            return self.guest_says(0, &[]);
        }
        if let Some(stamps) = stamps
            && !seq.is_after(guest.last_ack)
        {
            guest.recent = guest.recent.max(stamps.value);
        }
        guest.acked = guest.acked.latest(segment.ack);
        if segment.payload == 0 && !segment.flags.has(Flags::FIN) {
            if seq.is_before(guest.next) {
                self.guest_says(0, &[]);
            }
            return;
        }
        let bytes_end = seq + segment.payload;
        let mut twice = Vec::new();
        if segment.payload > 0 {
            if !bytes_end.is_after(guest.next) || guest.ahead.has(seq, bytes_end) {
                twice.push((seq, bytes_end));
            } else if seq.is_after(guest.next) {
                guest.ahead.add(seq, bytes_end);
            } else {
                let before = guest.next;
                guest.next = guest.ahead.take_from(bytes_end);
                guest.unread += guest.next.since(before);
                guest.offered = (guest.offered + 2 * MSS * self.times).min(guest.buffer);
            }
        }
        if segment.flags.has(Flags::FIN) && bytes_end == guest.next {
            guest.is_closed = true;
        }
        assert!(
            guest.unread <= guest.buffer + MSS * self.times,
            "within its buffer"
        );
        self.guest_says(0, &twice);
    }

    fn guest_reads(&mut self, bytes: u32) {
        let before = self.guest.window();
        self.guest.unread -= bytes.min(self.guest.unread);
        if self.guest.window() > before {
            self.guest_says(0, &[]);
        }
    }

    fn peer_hears(&mut self, at: usize) {
        let Some(frame) = self.to_peer.remove(at) else {
            return;
        };
        let Segment { seq, ack, .. } = frame.segment;
        let end = frame.segment.end();
        self.peer.una = self.peer.una.latest(ack);
        let right = ack + (u32::from(frame.segment.window) << SCALE);
        self.peer.edge = self.peer.edge.latest(right);
        if seq == self.peer.received && frame.segment.payload > 0 {
            self.peer.received = end;
            let next = self.peer.next;
            let segment = self.peer_segment(next);
            self.put_to_guest(segment);
        } else if frame.segment.payload > 0 {
            let segment = self.peer_segment(self.peer.next);
            self.put_to_guest(segment);
        }
        if let Some(stamps) = frame.segment.options.timestamps {
            self.peer.recent = stamps.value;
        }
    }

    fn pass(&mut self, millis: u64) {
        self.now += Nanos::from_millis(millis);
        self.snoop.handle_timeout(self.now);
        self.collect();
    }

    fn step(&mut self, action: u8, amount: u8) {
        let at = usize::from(amount % 3);
        let len = (u32::from(amount) + 60) * self.times;
        match action % 23 {
            0..=3 => self.peer_sends_new(len, false, false),
            4 => self.peer_sends_new(len, amount.is_multiple_of(3), false),
            21 if amount > 150 => self.peer_sends_new(len, false, true),
            21 | 22 => self.peer_probes(),
            5 => self.peer_resends(),
            6 | 7 => self.arrive(0, false),
            8 => self.arrive(at, amount.is_multiple_of(2)),
            9 => drop(self.to_guest.pop_front()),
            10 => {
                let again = self.to_guest.front().cloned();
                if let Some(frame) = again {
                    let Segment { seq, payload, .. } = frame.segment;
                    // Copies by the network count as the peer's for the guest.
                    self.peer.twice.add(seq, seq + payload.max(1));
                    self.to_guest.push_back(frame);
                }
            }
            11 | 12 => self.guest_takes(false),
            13 => self.guest_takes(amount.is_multiple_of(2)),
            14 => self.guest_reads(u32::from(amount) * 16 * self.times),
            15 => self.guest_says(u32::from(amount), &[]),
            16 => self.peer_hears(0),
            17 => self.peer_hears(at),
            18 => match amount % 4 {
                0 => drop(self.to_peer.pop_front()),
                1 if amount > 240 && self.peer.fin.is_none() => {
                    self.peer.fin = Some(self.peer.next);
                }
                2 if amount > 200 => self.snoop.begin_drain(),
                2 => self.snoop.end_drain(),
                _ => self.guest_sends(self.guest.acked, 0, &[]),
            },
            19 => self.damage(at, amount),
            _ => self.pass(u64::from(amount)),
        }
    }

    fn is_settled(&self) -> bool {
        self.guest.next == self.peer.fin.unwrap_or(self.peer.next)
            && self.peer.una == self.peer.next
            && self.peer.received == self.guest.sent
            && self.ring.is_empty()
    }

    /// Ends all faults: all sent data arrives.
    fn settle(&mut self) {
        for _ in 0..400 {
            if self.is_settled() || self.reset {
                return;
            }
            while !self.to_guest.is_empty() {
                self.arrive(0, false);
            }
            while !self.ring.is_empty() {
                self.guest_takes(false);
            }
            self.guest_reads(self.guest.buffer);
            if self.guest.acked.is_before(self.guest.sent) {
                let len = self.guest.sent.since(self.guest.acked);
                self.guest_sends(self.guest.acked, len, &[]);
            }
            while !self.to_peer.is_empty() {
                self.peer_hears(0);
            }
            self.pass(1);
            self.snoop.handle_alive(self.now);
            self.pass(121_000);
            self.peer_resends();
        }
        panic!("it never settles: {self:#?}");
    }
}

/// Runs a case: random steps, then a phase without faults.
fn explore(mode: SnoopMode, stamped: bool, moves: bool, times: u32, tape: &[(u8, u8)]) {
    let is_narrow = tape.first().is_some_and(|(_, amount)| *amount >= 128);
    let mut world = World::new(mode, stamped, times, is_narrow);
    for (action, amount) in tape {
        world.step(*action, *amount);
        if world.reset {
            break;
        }
        // A peer can rely on each acknowledged byte.
        let owed = world.snoop.drained().bytes;
        let told = world.said.1.since(START);
        let taken = world.guest.next.since(START) + u32::from(world.guest.is_closed);
        assert!(
            u64::from(told) <= u64::from(taken) + owed,
            "told {told}, {owed} owed"
        );
        assert!(world.snoop.retained() <= world.snoop.config().guest);
        let mut counts = [0; Mode::LABELS.len()];
        for flow in world.snoop.flows() {
            counts[flow.mode.index()] += 1;
        }
        assert_eq!(world.snoop.modes(), counts);
        assert_eq!(world.snoop.owes(), owed > 0);
    }
    if moves && !world.reset {
        // Moves to another host: no data is owed at the old one, and no state is known at the new
        // one.
        world.snoop.begin_drain();
        for _ in 0..100 {
            if world.snoop.drained().is_done() || world.reset {
                break;
            }
            while !world.ring.is_empty() {
                world.guest_takes(false);
            }
            world.guest_reads(world.guest.buffer);
            world.pass(1);
            world.snoop.handle_alive(world.now);
            world.pass(121_000);
        }
        if !world.reset {
            assert!(world.snoop.drained().is_done(), "it does not drain");
            assert_eq!(world.snoop.retained(), Bytes(0));
            // The guest runs while its memory is copied.
            while !world.ring.is_empty() {
                world.guest_takes(false);
            }
            world.snoop = Snoop::new(*world.snoop.config(), ());
            // Promises beyond the guest's own window are not valid elsewhere.
            world.said.0 = world.guest.edge.earliest(world.said.0);
        }
    }
    if !world.reset {
        world.settle();
    }
    if world.reset {
        assert!(
            world.dropped >= 15,
            "nothing but a guest that drops all is reset"
        );
        return;
    }
    assert_eq!(world.snoop.drained().bytes, 0);
    let by_mode = world.snoop.modes();
    assert!(by_mode.iter().sum::<usize>() <= 1);
    assert_eq!(
        world.snoop.retained(),
        Bytes(0),
        "{by_mode:?} {:?}",
        Mode::LABELS
    );
}

fn cases(count: u32) -> ProptestConfig {
    ProptestConfig {
        cases: count,
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    }
}

fn strategy() -> impl Strategy<Value = (bool, bool, bool, Vec<(u8, u8)>)> {
    let tape = prop::collection::vec(any::<(u8, u8)>(), 0..160);
    (any::<bool>(), any::<bool>(), any::<bool>(), tape)
}

fn run_case(times: u32, (strict, stamped, moves, tape): (bool, bool, bool, Vec<(u8, u8)>)) {
    let mode = if strict {
        SnoopMode::Strict
    } else {
        SnoopMode::Retaining
    };
    explore(mode, stamped, moves, times, &tape);
}

proptest! {
    #![proptest_config(cases(10_000))]

    #[test]
    fn no_byte_that_was_acknowledged_is_lost(case in strategy()) {
        run_case(1, case);
    }

    #[test]
    fn no_byte_of_segments_that_are_yet_to_be_cut_is_lost(case in strategy()) {
        run_case(LARGE, case);
    }
}

proptest! {
    #![proptest_config(cases(1_000_000))]

    #[test]
    #[ignore = "takes minutes: for the night"]
    fn no_byte_that_was_acknowledged_is_lost_in_a_million_cases(case in strategy()) {
        run_case(1, case);
    }

    #[test]
    #[ignore = "takes minutes: for the night"]
    fn no_byte_of_segments_that_are_yet_to_be_cut_is_lost_in_a_million_cases(case in strategy()) {
        run_case(LARGE, case);
    }
}
