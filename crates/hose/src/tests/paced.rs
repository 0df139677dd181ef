//! Hosts that exchange rates and pace real packets by them, in virtual time.

use super::net::{Faults, Net, address, machine};
use super::tcp::Ack;
use crate::{Address, Change, Destination, FlowKey, GuestId, Machine, Usage};
use std::collections::VecDeque;
use tailbound_dataplane::pacer::MAX_RATIO;
use tailbound_dataplane::{
    self as dataplane, Class, Connection, Frame, Guarantee, Mark, Pacer, PacerConfig, WireItem,
};
use tailbound_units::{Bytes, Nanos, Rate};

const LINK: Rate = Rate::from_mbit(50);
const B: Rate = Rate(2_100_000);
const FRAME: Bytes = Bytes(1538);

/// Guests with packets to send, and the pacer that takes them.
pub(super) struct Paces {
    pacer: Pacer<Record>,
    /// By guest.
    rings: Vec<VecDeque<Record>>,
    /// Frames that have left since the last call, with their times.
    pub(super) left: Vec<(Nanos, Record)>,
    /// Smallest rate that a pacer of its link can represent.
    least: Rate,
    /// True if limits are set; otherwise they stay unchanged.
    pub(super) follows: bool,
}

fn flow_of(flow: dataplane::FlowKey) -> FlowKey {
    FlowKey {
        guest: GuestId(flow.source.slot() as u64),
        destination: Destination::Address(Address(flow.destination)),
    }
}

impl Paces {
    pub(super) fn new(pacer: Pacer<Record>, link: Rate) -> Self {
        Self {
            pacer,
            rings: Vec::new(),
            left: Vec::new(),
            least: Rate(link.0.div_ceil(MAX_RATIO)),
            follows: true,
        }
    }

    /// Queues a packet of a guest.
    pub(super) fn give(&mut self, packet: Record) {
        let guest = packet.source as usize;
        if self.rings.len() <= guest {
            self.rings.resize_with(guest + 1, VecDeque::new);
        }
        self.rings[guest].push_back(packet);
    }

    /// Changes the guarantee of its first guest.
    pub(super) fn guarantee(&mut self, clock: Nanos, guarantee: &Guarantee) {
        let guest = dataplane::GuestId::first(0);
        self.pacer.set_guest(clock, guest, Some(guarantee)).unwrap();
    }

    /// Sets a limit, unless these stay what they are.
    pub(super) fn set(&mut self, clock: Nanos, change: Change) {
        if !self.follows {
            return;
        }
        let guest = dataplane::GuestId::first(change.flow.guest.0 as u32);
        let Destination::Address(to) = change.flow.destination else {
            panic!("no station is announced");
        };
        let rate = change.rate.map(|rate| match rate {
            Rate::ZERO => rate,
            rate => rate.max(self.least),
        });
        self.pacer
            .set_destination(clock, guest, to.0, rate)
            .unwrap();
        self.pacer.lend(clock, guest, to.0, change.lent);
    }

    /// Calls `tell` for each flow that was used since the last call, or whose bucket is not
    /// full.
    pub(super) fn used(&mut self, clock: Nanos, mut tell: impl FnMut(FlowKey, Usage)) {
        self.pacer.destinations_used(clock, |used| {
            let usage = Usage {
                taken: used.taken.into(),
                lacks: used.lacks.into(),
                waiting: used.backlogged,
                queued: used.queued.into(),
            };
            tell(flow_of(used.flow), usage);
        });
    }

    /// Calls `tell` for each flow whose frames began to wait since the last call, with their bytes.
    pub(super) fn flows_that_wait(&mut self, mut tell: impl FnMut(FlowKey, Bytes)) {
        for waiting in self.pacer.flows_that_wait() {
            tell(flow_of(waiting.flow), waiting.queued.into());
        }
    }

    /// A turn of a packet loop.
    pub(super) fn turn(&mut self, clock: Nanos) {
        for (guest, ring) in self.rings.iter_mut().enumerate() {
            while self.pacer.is_read(dataplane::GuestId::first(guest as u32))
                && let Some(packet) = ring.pop_front()
            {
                self.pacer.enqueue(clock, packet);
            }
        }
        let batch = self.pacer.batch(clock);
        let wire = batch.clock();
        batch.for_each(|paced| {
            if let WireItem::Guaranteed { frame, at, .. } = paced {
                self.left.push((wire.moment(at), frame));
            }
        });
    }
}

/// Content of a packet.
#[derive(Debug, Clone, Copy)]
pub(super) enum Content {
    /// Content without a meaning.
    Filler,
    /// A segment of a stream, by number.
    Data(u64),
    /// Acknowledgement for the stream in the other direction.
    Ack(Ack),
}

/// A packet of a guest as the pacer sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    pub(super) len: usize,
    pub(super) source: u32,
    pub(super) destination: Address,
    pub(super) content: Content,
}

/// The longest frame that is not cut.
const MTU: usize = 1514;

impl Frame for Record {
    fn len(&self) -> usize {
        self.len
    }
    fn source(&self) -> Option<dataplane::GuestId> {
        Some(dataplane::GuestId::first(self.source))
    }
    fn flow(&self) -> Option<dataplane::FlowKey> {
        Some(dataplane::FlowKey {
            source: dataplane::GuestId::first(self.source),
            destination: self.destination.0,
        })
    }
    /// Data and acknowledgements of one pair are of two streams.
    fn connection(&self) -> Connection {
        Connection(matches!(self.content, Content::Ack(_)).into())
    }
    fn class(&self) -> Class {
        Class::Lowest
    }
    fn set_class(&mut self, _: Class, _: Mark) {}
    fn segments(&self) -> usize {
        self.len.div_ceil(MTU)
    }
    fn segment(self, mut sink: impl FnMut(Self)) {
        let mut left = self.len;
        while left > 0 {
            let len = left.min(MTU);
            sink(Self { len, ..self });
            left -= len;
        }
    }
}

/// Four hosts with a machine each, which are guaranteed B and a burst of a frame.
fn four() -> Net {
    let machines = (0..4).map(|host| vec![machine(host, 0, B, 4)]);
    let mut net = Net::new(machines.collect(), Faults::NONE, 7);
    net.slice = Nanos::from_micros(100);
    net.run_for(Nanos::from_millis(10));
    for host in 0..4 {
        let mut config = PacerConfig::strict(LINK);
        config.batch = Nanos::from_millis(5);
        let mut guarantee = Guarantee::new(B, FRAME, Rate::from_mbit(5));
        guarantee.horizon = Nanos::from_millis(10);
        // What waits for its rate is not lost.
        guarantee.mark = None;
        let mut pacer = Pacer::new(&config).unwrap();
        pacer
            .set_guest(Nanos::ZERO, dataplane::GuestId::first(0), Some(&guarantee))
            .unwrap();
        net.pace(host, Paces::new(pacer, LINK));
    }
    // Buckets fill.
    net.run_for(Nanos::from_millis(100));
    net
}

fn packet(to: usize, len: usize) -> Record {
    Record {
        len,
        source: 0,
        destination: address(to, 0),
        content: Content::Filler,
    }
}

fn send(net: &mut Net, from: usize, packet: Record) {
    let paces = net.hosts[from].paces.as_mut().unwrap();
    paces.give(packet);
}

fn sent(net: &Net, from: usize) -> u64 {
    let left = &net.hosts[from].paces.as_ref().unwrap().left;
    left.iter().map(|(_, packet)| packet.len as u64).sum()
}

#[test]
fn packets_many_times_the_burst_leave_at_the_fair_share() {
    let mut net = four();
    // At a third of B the longest takes 0.75 s: a TCP that waits for the limit of an
    // idle pair would wait for ever.
    for from in 1..4 {
        for len in [64, 32_000, 65_000, 3_000] {
            send(&mut net, from, packet(0, len));
        }
    }
    let start = net.now;
    let share = Rate(B.0 / 3);
    for _ in 0..11 {
        net.run_for(Nanos::from_millis(100));
        let fair = share.bytes_in(net.now.since(start)).0;
        for from in 1..4 {
            let sent = sent(&net, from);
            // A burst and a batch more; without what headers and gaps take, and
            // what the exchange, the horizon and the batch take, less.
            let least = fair * 9 / 10 - share.bytes_in(Nanos::from_millis(30)).0;
            let most = fair + FRAME.0 + share.bytes_in(Nanos::from_millis(10)).0;
            assert!(
                (least..most).contains(&sent),
                "{sent} of {fair} from {from}"
            );
        }
    }
    net.run_for(Nanos::from_millis(100));
    for from in 1..4 {
        assert_eq!(sent(&net, from), 64 + 32_000 + 65_000 + 3_000);
    }
}

#[test]
fn a_burst_leaves_without_an_answer_and_later_frames_wait() {
    let mut net = four();
    net.cut[0] = true;
    for _ in 0..3 {
        send(&mut net, 1, packet(0, 700));
    }
    net.run_for(Nanos::from_millis(100));
    assert_eq!(sent(&net, 1), 1400);
    // The pledge is over.
    net.run_for(Nanos::from_millis(700));
    assert_eq!(sent(&net, 1), 2100);
}

/// Four hosts with a machine each, which are guaranteed ten frames of burst.
fn four_that_burst(bandwidth: Rate, burst: Bytes) -> Net {
    let link = Rate::from_mbit(1_000);
    let machines = (0..4).map(|host| {
        let machine = machine(host, 0, bandwidth, 4);
        vec![Machine { burst, ..machine }]
    });
    let mut net = Net::new(machines.collect(), Faults::NONE, 11);
    net.slice = Nanos::from_micros(50);
    net.run_for(Nanos::from_millis(10));
    for host in 0..4 {
        let mut pacer = Pacer::new(&PacerConfig::strict(link)).unwrap();
        let guarantee = Guarantee::new(bandwidth, burst, link);
        pacer
            .set_guest(Nanos::ZERO, dataplane::GuestId::first(0), Some(&guarantee))
            .unwrap();
        net.pace(host, Paces::new(pacer, link));
    }
    net.run_for(Nanos::from_millis(20));
    net
}

#[test]
fn bursts_that_all_send_to_one_are_whole_again_when_their_shares_have_filled_them() {
    let (bandwidth, frames) = (Rate::from_mbit(100), 10);
    let burst = Bytes(frames * FRAME.0);
    let mut net = four_that_burst(bandwidth, burst);
    // What a third of B needs for a burst, and an exchange.
    let share = Rate(bandwidth.0 / 3);
    let every = share.time_for(burst) + Nanos::from_millis(4);
    for round in 1..=30 {
        for from in 1..4 {
            for _ in 0..frames {
                send(&mut net, from, packet(0, 1514));
            }
        }
        net.run_for(Nanos::from_micros(500));
        for from in 1..4 {
            let left = sent(&net, from);
            assert_eq!(left, round * frames * 1514, "round {round} from {from}");
        }
        net.run_for(every.since(Nanos::from_micros(500)));
    }
}
