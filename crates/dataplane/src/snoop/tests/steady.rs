//! The fast path of early acknowledgement has the same results: a host on which it is disabled
//! makes the same frames of the same input.

use super::wire::{GUEST, Tcp, pool};
use crate::snoop::{
    Bare, Change, Direction, FlowId, Link, Mode, Origin, Plain, RingPlacement, Sight, Snoop,
    SnoopConfig, SnoopMode, SnoopStats, StoredFrame, TcpFrame,
};
use crate::{Class, FlowKey, Frame, GuestId, Mark, Packet, TcpMaker};
use proptest::prelude::*;
use tailbound_units::{Bytes, Nanos};

/// Longer frames are packets before segmentation into this size.
const SEGMENT: u16 = 400;

/// A packet that is never plain.
struct Devious(Packet);

impl Frame for Devious {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn source(&self) -> Option<GuestId> {
        self.0.source()
    }
    fn flow(&self) -> Option<FlowKey> {
        self.0.flow()
    }
    fn truesize(&self) -> Bytes {
        self.0.truesize()
    }
    fn class(&self) -> Class {
        self.0.class()
    }
    fn set_class(&mut self, class: Class, mark: Mark) {
        self.0.set_class(class, mark);
    }
    fn segments(&self) -> usize {
        self.0.segments()
    }
    fn segment(self, mut sink: impl FnMut(Self)) {
        self.0.segment(|packet| sink(Self(packet)));
    }
}

impl TcpFrame for Devious {
    type Maker = TcpMaker;

    fn sight(&self, direction: Direction) -> Option<Sight> {
        self.0.sight(direction)
    }
    fn plain(&self, _: Direction) -> Option<Plain> {
        None
    }
    fn link(&self) -> Link {
        self.0.link()
    }
    fn is_intact(&self) -> bool {
        self.0.is_intact()
    }
    fn change(&mut self, change: &Change) {
        self.0.change(change);
    }
    fn again(&self) -> Self {
        Self(self.0.again())
    }
    fn part(&self, from: u32, len: u32) -> Self {
        Self(self.0.part(from, len))
    }
    fn bare(maker: &TcpMaker, bare: &Bare) -> Self {
        Self(Packet::bare(maker, bare))
    }
}

impl StoredFrame for Devious {
    fn to_bytes(&self) -> Vec<u8> {
        self.0.to_bytes()
    }
    fn from_bytes(maker: &TcpMaker, bytes: &[u8]) -> Option<Self> {
        Packet::from_bytes(maker, bytes).map(Self)
    }
    fn hash(maker: &TcpMaker, flow: &FlowId) -> u32 {
        Packet::hash(maker, flow)
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    /// The peer sends `len` bytes, beginning `back` bytes before its next one.
    Data {
        back: u32,
        len: usize,
        odd: u8,
    },
    /// The guest acknowledges all received bytes except the last `less`.
    Answer {
        less: u32,
        window: u16,
        odd: u8,
    },
    /// The following frames are not placed.
    Unplaced(bool),
    Wait(u64),
    Runs,
    Drain(bool),
    Mode(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let often = |rare: u8| prop_oneof![12 => Just(0_u8), 1 => 1..rare];
    let back = prop_oneof![12 => Just(0_u32), 1 => 1_u32..500];
    let len = prop_oneof![4 => 1_usize..400, 1 => 400_usize..20_000];
    let data = (back, len, often(10));
    let data = data.prop_map(|(back, len, odd)| Step::Data { back, len, odd });
    let less = prop_oneof![3 => Just(0_u32), 1 => 1_u32..900];
    let window = prop_oneof![8 => Just(2000_u16), 1 => 0_u16..3000];
    let answer = (less, window, often(9));
    let answer = answer.prop_map(|(less, window, odd)| Step::Answer { less, window, odd });
    let step = prop_oneof![
        12 => data,
        8 => answer,
        1 => any::<bool>().prop_map(Step::Unplaced),
        2 => prop_oneof![5 => 0_u64..30, 1 => 200_u64..3000].prop_map(Step::Wait),
        1 => Just(Step::Runs),
        1 => prop::bool::weighted(0.2).prop_map(Step::Drain),
        1 => prop::bool::weighted(0.2).prop_map(Step::Mode),
    ];
    prop::collection::vec(step, 0..60)
}

/// Frames, counters, the next timer, and the exported state.
type State = (Vec<(char, Vec<u8>)>, Counts, Option<Nanos>, Vec<u8>);
type Counts = (SnoopStats, [usize; Mode::LABELS.len()], Bytes, bool);

/// A host and its output.
struct Host<F: TcpFrame> {
    snoop: Snoop<F>,
    out: Vec<(char, Vec<u8>)>,
    maker: TcpMaker,
}

impl<F: StoredFrame<Maker = TcpMaker>> Host<F> {
    fn new(config: SnoopConfig, make: fn(Packet) -> F) -> (Self, fn(Packet) -> F) {
        let maker = TcpMaker {
            pool: pool(),
            guest: GUEST,
        };
        let host = Self {
            snoop: Snoop::new(config, maker.clone()),
            out: Vec::new(),
            maker,
        };
        (host, make)
    }

    fn take(&mut self, now: Nanos, placed: RingPlacement, frame: &Tcp, make: fn(Packet) -> F) {
        let packet = make(frame.packet_of(&self.maker.pool, SEGMENT));
        if frame.to_guest {
            let passed = self.snoop.handle_ingress(now, packet);
            self.snoop.handle_placed(placed);
            self.out.extend(passed.map(|it| ('i', it.to_bytes())));
        } else {
            let passed = self.snoop.handle_egress(now, packet, Origin::OUTSIDE);
            self.out.extend(passed.map(|it| ('o', it.to_bytes())));
        }
    }

    /// The host's visible state.
    fn state(&mut self, now: Nanos) -> State {
        let Self { snoop, out, .. } = self;
        out.extend(std::iter::from_fn(|| snoop.poll_to_guest()).map(|it| ('g', it.to_bytes())));
        out.extend(std::iter::from_fn(|| snoop.poll_to_peer()).map(|it| ('p', it.to_bytes())));
        let mut told = Vec::new();
        snoop.export(now, &mut told);
        let known = (snoop.stats(), snoop.modes(), snoop.retained(), snoop.owes());
        (std::mem::take(out), known, snoop.poll_at(), told)
    }
}

/// Positions of the two ends in the connection.
struct Ends {
    peer: u32,
    guest: u32,
    clock: u32,
    stamped: bool,
    v6: bool,
}

impl Ends {
    fn segment(&mut self, to_guest: bool, odd: u8) -> Tcp {
        self.clock += 1;
        let mut options = Vec::new();
        if self.stamped && odd != 1 {
            // A timestamp that is older than others, and an unusual layout.
            let clock = self.clock - if odd == 2 { 50 } else { 0 };
            let [a, b, c, d] = clock.to_be_bytes();
            options = vec![1, 1, 8, 10, a, b, c, d, 0, 0, 0, 7];
            if odd == 3 {
                options.rotate_left(2);
            }
        }
        Tcp {
            to_guest,
            v6: self.v6,
            port: 999,
            tag: (odd == 4).then_some(5),
            traffic_class: if odd == 5 { 3 } else { 2 },
            hops: 64,
            seq: if to_guest { self.peer } else { self.guest },
            ack: if to_guest { self.guest } else { self.peer },
            flags: match odd {
                6 => 0x11,
                7 => 0x58,
                8 => 0x18,
                9 => 0x19,
                _ => 0x10,
            },
            window: 2000,
            options,
            payload: Vec::new(),
        }
    }

    fn step(&mut self, step: &Step) -> Option<Tcp> {
        match *step {
            Step::Data { back, len, odd } => {
                let mut segment = self.segment(true, odd);
                segment.seq = self.peer.wrapping_sub(back);
                segment.payload = vec![odd; len];
                let end = segment.seq.wrapping_add(len as u32);
                if end.wrapping_sub(self.peer).cast_signed() > 0 {
                    self.peer = end;
                }
                Some(segment)
            }
            Step::Answer { less, window, odd } => {
                let mut segment = self.segment(false, odd);
                segment.ack = self.peer.wrapping_sub(less);
                segment.window = window;
                if odd == 8 {
                    segment.payload = vec![3; 40];
                    self.guest = self.guest.wrapping_add(40);
                }
                Some(segment)
            }
            _ => None,
        }
    }
}

fn do_both(config: SnoopConfig, mut ends: Ends, steps: &[Step]) -> Result<u64, TestCaseError> {
    let (mut short, plain) = Host::new(config, |packet| packet);
    let (mut long, devious) = Host::new(config, Devious);
    let mut now = Nanos::from_secs(5);
    let mut placed = RingPlacement::All;
    let mut open = ends.segment(false, 0);
    (open.seq, open.flags) = (open.seq.wrapping_sub(1), 0x12);
    let opening = [open, ends.segment(false, 0)];
    let opening = opening.map(Some).into_iter().zip([&Step::Runs; 2]);
    let rest: Vec<_> = steps.iter().map(|step| (ends.step(step), step)).collect();
    for (frame, step) in opening.chain(rest) {
        now += Nanos::from_micros(300);
        if let Some(frame) = frame {
            let placed = std::mem::replace(&mut placed, RingPlacement::All);
            short.take(now, placed, &frame, plain);
            long.take(now, placed, &frame, devious);
        }
        match *step {
            Step::Unplaced(lost) => {
                placed = if lost {
                    RingPlacement::Lost
                } else {
                    RingPlacement::Waits
                }
            }
            Step::Wait(millis) => {
                now += Nanos::from_millis(millis);
                short.snoop.handle_timeout(now);
                long.snoop.handle_timeout(now);
            }
            Step::Runs => {
                short.snoop.handle_alive(now);
                long.snoop.handle_alive(now);
            }
            Step::Drain(begins) if begins => {
                short.snoop.begin_drain();
                long.snoop.begin_drain();
            }
            Step::Drain(_) => {
                short.snoop.end_drain();
                long.snoop.end_drain();
            }
            Step::Mode(strict) => {
                let mode = if strict {
                    SnoopMode::Strict
                } else {
                    SnoopMode::Retaining
                };
                short.snoop.reconfigure(now, SnoopConfig { mode, ..config });
                long.snoop.reconfigure(now, SnoopConfig { mode, ..config });
            }
            Step::Data { .. } | Step::Answer { .. } => {}
        }
        prop_assert_eq!(short.state(now), long.state(now), "after {:?}", step);
    }
    Ok(short.snoop.stats().early)
}

proptest! {
    #[test]
    fn the_steady_path_emits_the_same_frames_as_the_full_path(
        steps in steps(),
        stamped in any::<bool>(),
        v6 in prop::bool::weighted(0.2),
        start in prop_oneof![Just(1000_u32), Just(u32::MAX - 1500)],
        tight in any::<bool>(),
    ) {
        let most = if tight { 12_000 } else { 120_000 };
        let config = SnoopConfig {
            window: Bytes(8192),
            flow: Bytes(most),
            guest: Bytes(most),
            flows: 4,
            ..SnoopConfig::default()
        };
        let ends = Ends { peer: start, guest: start, clock: 1000, stamped, v6 };
        do_both(config, ends, &steps)?;
    }
}

#[test]
fn both_paths_acknowledge_in_order_data_early() {
    let ends = Ends {
        peer: 1000,
        guest: 1000,
        clock: 1000,
        stamped: true,
        v6: false,
    };
    let (data, answer) = (
        Step::Data {
            back: 0,
            len: 300,
            odd: 0,
        },
        Step::Answer {
            less: 0,
            window: 2000,
            odd: 0,
        },
    );
    let steps = [data, data, answer].repeat(10);
    let early = do_both(SnoopConfig::default(), ends, &steps);
    assert_eq!(early.expect("the same"), 20);
}

/// Segments that are plain by the headers that were found; the most common layout is found by bytes.
#[test]
fn plain_segments_have_no_tag_and_no_option_but_timestamps() {
    let plain = Tcp {
        port: 999,
        seq: 5,
        ack: 6,
        flags: 0x10,
        window: 100,
        hops: 64,
        payload: vec![7; 100],
        ..Tcp::default()
    };
    let stamps = vec![1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 7];
    let with = |change: fn(&mut Tcp)| {
        let mut tcp = plain.clone();
        change(&mut tcp);
        tcp
    };
    let stamped = Tcp {
        options: stamps,
        ..plain.clone()
    };
    for (tcp, is_plain) in [
        (plain.clone(), true),
        (stamped, true),
        (with(|tcp| tcp.flags = 0x18), true),
        (with(|tcp| tcp.flags = 0x11), false),
        (with(|tcp| tcp.flags = 0x30), false),
        (with(|tcp| tcp.tag = Some(5)), false),
        (with(|tcp| tcp.v6 = true), false),
        (with(|tcp| tcp.options = vec![3, 3, 7]), false),
    ] {
        let frame = tcp.packet(&pool());
        let sight = frame.sight(Direction::ToPeer).expect("TCP");
        let by_headers = Plain::of(&sight, frame.link());
        assert_eq!(by_headers.is_some(), is_plain, "{tcp:?}");
        let by_bytes = frame.plain(Direction::ToPeer);
        assert!(by_bytes.is_none() || by_bytes == by_headers, "{tcp:?}");
    }
}
