//! All hosts: their connections, timers and messages.

use super::attribution::{PacketTimes, Parts, Record, Stay};
use super::carrier::{Carrier, LOST_AFTER};
use super::hull::HullPacer;
use super::inside::Inside;
use super::machines::{Fresh, Handed, Machines, Work};
use super::packet::{GuestSeat, LAST, Packet, Protocol};
use super::piped::offload;
use super::promises::Promises;
use super::sizes::Kind;
use super::snooped::{self, OpenEnd};
use super::tally::Tally;
use super::workload::Workload;
use crate::net::{Node, Time};
use crate::tcp::{Congestion, Segment, TcpConfig};
use crate::xen_host::Output;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use tailbound_dataplane::{FlowKey, GuestId, Meter};
use tailbound_hypervisor::Wake;
use tailbound_units::Nanos;

/// A message that is not complete.
#[derive(Debug, Clone, Copy)]
struct Message {
    /// Position after its last byte in the stream of the connection.
    end: u64,
    begun: Nanos,
    size: u64,
    /// Number of bytes received; for UDP only, where they arrive in any order.
    arrived: u64,
    kind: Kind,
    /// Parts of the question's time, if the message is an answer.
    before: Parts,
    /// Time at which the guest was due to write it.
    asked: Nanos,
    /// Time at which the guest wrote it.
    written: Nanos,
    /// Time of the first transmission of its last byte.
    sent: Nanos,
    /// Stalled time of the connection: when the message was written, then since.
    stalled: Nanos,
    /// Timeouts of the connection before it.
    timeouts: u64,
}

/// One end of a connection; the number of the other end differs in the last bit.
#[derive(Debug, Clone)]
struct End {
    carrier: Carrier,
    /// First position of its path in the routes.
    route: u32,
    host: u32,
    /// Its guest on the host.
    guest: u32,
    /// True if the guest checks the timer once it runs.
    looks: bool,
    /// Earliest entry among the timers.
    armed: Nanos,
    /// Owner of the connection.
    owner: u32,
    /// Number of earlier connections with this number: their packets are not for this one.
    reused: u8,
    written: u64,
    read: u64,
    messages: VecDeque<Message>,
    /// Number of messages whose last byte was not sent.
    unsent: u32,
    /// Time at which data was last sent or received.
    active: Nanos,
    /// Total time without activity before timeouts.
    stalled: Nanos,
    /// End of the time in which its host paces it (HULL).
    paced_until: Nanos,
}

impl End {
    const fn seat(&self) -> GuestSeat {
        GuestSeat {
            host: self.host,
            guest: self.guest,
        }
    }

    /// Returns the time of the next event: a timer of TCP, or the loss of the oldest message over
    /// UDP.
    fn poll_at(&self) -> Nanos {
        match &self.carrier {
            Carrier::Tcp(tcp) => tcp.poll_at(),
            Carrier::Udp(_) => {
                let oldest = self.messages.front();
                oldest.map_or(Nanos::MAX, |it| it.written + LOST_AFTER)
            }
        }
    }

    /// Removes and returns the oldest message, if `is_one` is true for it.
    fn pop_if(&mut self, is_one: impl FnOnce(&Message) -> bool) -> Option<Message> {
        let is_one = self.messages.front().is_some_and(is_one);
        is_one.then(|| self.messages.pop_front()).flatten()
    }

    /// Records the transmission of data up to a position.
    fn send(&mut self, now: Nanos, end: u64) {
        self.active = now;
        while self.unsent > 0
            && let place = self.messages.len() - self.unsent as usize
            && let Some(message) = self.messages.get_mut(place)
            && message.end <= end
        {
            message.sent = now;
            message.stalled = self.stalled.since(message.stalled);
            self.unsent -= 1;
        }
    }
}

/// The node of all hosts.
#[derive(Debug)]
pub(super) struct Hosts {
    ends: Vec<End>,
    timers: BinaryHeap<Reverse<(Nanos, u32)>>,
    /// Meter of each host, if frames are metered.
    meters: Vec<Meter>,
    workload: Workload,
    /// Hosts whose guests wait for CPUs.
    pub(super) machines: Machines,
    now: Time,
    /// Guarantees for frames, if there are any.
    pub(super) promises: Promises,
    pub(super) tally: Tally,
    /// First ends of free connections, which were used for one message each.
    through: Vec<u32>,
    tcp: TcpConfig,
    /// [`Hosts::resent`] of closed connections.
    resent_before: (u64, u64),
    /// True if frames carry the remaining length of their flow, as in pFabric.
    tells_rest: bool,
    /// True if guests send packets of up to 64 KiB.
    offloads: bool,
    /// HULL's pacers, and the random numbers that select the paced flows.
    hull: Option<(HullPacer, Pcg64Mcg)>,
    segments: Vec<Segment>,
    begun: Vec<(u32, Kind, u64)>,
}

/// Host of an end of a connection, first position of its path in the routes, and round trip in an
/// idle network.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) host: u32,
    /// Guest on the host, from 1.
    pub(super) guest: u32,
    pub(super) route: u32,
    pub(super) round_trip: Nanos,
    pub(super) protocol: Protocol,
    /// Owner of the connection.
    pub(super) owner: u32,
}

/// Parts of the hosts themselves.
#[derive(Debug)]
pub(super) struct OwnParts {
    /// Meter of each host, if frames are metered.
    pub(super) meters: Vec<Meter>,
    /// Hosts whose guests wait for CPUs.
    pub(super) machines: Machines,
}

/// A packet that has arrived at its end.
#[derive(Debug, Clone, Copy)]
struct Arrival<'p> {
    packet: &'p Packet,
    /// Its stay in its host.
    stay: Stay,
}

impl Hosts {
    pub(super) fn new(
        tcp: TcpConfig,
        places: impl Iterator<Item = Place>,
        own: OwnParts,
        workload: Workload,
        promises: Promises,
        tally: Tally,
    ) -> Self {
        let OwnParts { meters, machines } = own;
        let end = |place: Place| End {
            carrier: Carrier::new(place.protocol, tcp, place.round_trip),
            route: place.route,
            host: place.host,
            guest: place.guest,
            looks: false,
            armed: Nanos::MAX,
            owner: place.owner,
            reused: 0,
            written: 0,
            read: 0,
            messages: VecDeque::new(),
            unsent: 0,
            active: Nanos::ZERO,
            stalled: Nanos::ZERO,
            paced_until: Nanos::ZERO,
        };
        let mut hosts = Self {
            ends: places.map(end).collect(),
            timers: BinaryHeap::new(),
            meters,
            workload,
            machines,
            now: Time::ZERO,
            promises,
            tally,
            through: Vec::new(),
            tcp,
            resent_before: (0, 0),
            tells_rest: tcp.congestion == Congestion::PFabric,
            offloads: false,
            hull: None,
            segments: Vec::new(),
            begun: Vec::new(),
        };
        (0..hosts.ends.len()).for_each(|number| hosts.show(number));
        hosts
    }

    /// Announces an open connection to the early acknowledgement of its guest.
    fn show(&mut self, number: usize) {
        let end = &self.ends[number];
        if self.machines.snoops() && end.carrier.protocol() == Protocol::Tcp {
            let open = OpenEnd {
                number: number as u32,
                reused: end.reused,
                route: end.route,
                window: self.tcp.first_receive_window,
            };
            self.machines.open(end.seat(), open);
        }
    }

    /// Makes guests send packets of up to 64 KiB.
    pub(super) const fn offload(&mut self) {
        self.offloads = true;
    }

    /// Installs HULL's pacers in the hosts.
    pub(super) fn pace(&mut self, pacer: HullPacer) {
        self.hull = Some((pacer, Pcg64Mcg::seed_from_u64(0)));
    }

    /// Number of retransmitted segments, and how many of them were due to a timeout.
    pub(super) fn resent(&self) -> (u64, u64) {
        let each = self.ends.iter().map(|end| end.carrier.resent());
        each.fold(self.resent_before, |all, it| (all.0 + it.0, all.1 + it.1))
    }

    /// Number of connections that have memory.
    pub(super) fn connections(&self) -> usize {
        self.ends.len() / 2
    }

    /// Writes a message to a connection.
    fn write(&mut self, now: Nanos, number: u32, fresh: Fresh, out: &mut Vec<Packet>) {
        let Fresh {
            begun,
            asked,
            kind,
            size,
            before,
        } = fresh;
        let end = &mut self.ends[number as usize];
        end.written += size;
        end.unsent += 1;
        end.messages.push_back(Message {
            end: end.written,
            begun,
            size,
            arrived: 0,
            kind,
            before,
            asked,
            written: now,
            sent: Nanos::MAX,
            stalled: end.stalled,
            timeouts: end.carrier.resent().1,
        });
        end.carrier.write(now, size, &mut self.segments);
        self.flush(now, number, out);
    }

    /// Sends the pending data of an end, and sets its timer.
    fn flush(&mut self, now: Nanos, number: u32, out: &mut Vec<Packet>) {
        let to = self.ends[number as usize ^ 1].host;
        let end = &mut self.ends[number as usize];
        let protocol = end.carrier.protocol();
        if self.offloads && protocol == Protocol::Tcp {
            offload(&mut self.segments);
        }
        for segment in self.segments.drain(..) {
            let mut packet = Packet::new(now, protocol, segment, number ^ 1, end.route);
            packet.reused = end.reused;
            if self.tells_rest && segment.len > 0 {
                packet.class = rest(end.written - end.carrier.acknowledged());
            }
            if segment.len > 0 {
                // The stream's first byte has position 1.
                end.send(now, segment.end() - 1);
            }
            if let Some(meter) = self.meters.get_mut(end.host as usize) {
                let flow = FlowKey {
                    source: GuestId::first(end.host),
                    destination: to.into(),
                };
                if !meter.is_of_small_flow(now, flow, packet.len()) {
                    packet.class = LAST;
                }
            }
            if now < end.paced_until && end.host != to {
                packet.pace();
            }
            if self.machines.has(end.host) {
                self.machines.send(end.seat(), packet);
            } else {
                out.push(packet);
            }
        }
        let at = end.poll_at();
        if at < end.armed && !end.looks {
            end.armed = at;
            self.timers.push(Reverse((at, number)));
        }
    }

    /// Handles bytes that an end has read: messages may be complete.
    fn read(&mut self, now: Nanos, came: Arrival<'_>, bytes: u64, out: &mut Vec<Packet>) {
        let number = came.packet.to;
        let end = &mut self.ends[number as usize];
        end.read += bytes;
        let read = end.read;
        let from = number as usize ^ 1;
        while let Some(message) = self.ends[from].pop_if(|it| it.end <= read) {
            self.whole(now, message, came, out);
        }
    }

    /// Handles a datagram: its message may be complete, or lost already.
    fn arrive(&mut self, now: Nanos, came: Arrival<'_>, out: &mut Vec<Packet>) {
        let segment = &came.packet.segment;
        let sender = &mut self.ends[came.packet.to as usize ^ 1];
        // The stream's first byte has position 1.
        let end = segment.end() - 1;
        let place = sender.messages.partition_point(|it| it.end < end);
        let message = sender.messages.get_mut(place);
        let Some(message) = message.filter(|it| it.end - it.size < end) else {
            return;
        };
        message.arrived += u64::from(segment.len);
        if message.arrived == message.size
            && let Some(message) = sender.messages.remove(place)
        {
            self.whole(now, message, came, out);
        }
    }

    /// Handles the completion of a message by this packet.
    fn whole(&mut self, now: Nanos, message: Message, came: Arrival<'_>, out: &mut Vec<Packet>) {
        let Arrival { packet, stay } = came;
        let number = packet.to;
        let to = self.ends[number as usize].host;
        let end = &self.ends[number as usize ^ 1];
        let mut parts = message.before;
        let way = PacketTimes {
            asked: message.asked,
            written: message.written,
            first_sent: message.sent,
            came: now,
            stalled: message.stalled,
            stay,
        };
        parts.add(&way, packet);
        match message.kind {
            Kind::Flow | Kind::Answer => {
                let record = Record {
                    owner: end.owner,
                    hosts: (end.host, to),
                    begun: message.begun,
                    size: message.size,
                    timed_out: end.carrier.resent().1 > message.timeouts,
                    took: now.since(message.begun).0,
                    parts,
                };
                self.workload.end(now, end.owner);
                self.tally.end(record);
            }
            Kind::Question(size) => {
                let answer = Fresh {
                    begun: message.begun,
                    asked: now,
                    kind: Kind::Answer,
                    size,
                    before: parts,
                };
                self.ask(now, number, answer, Wake::Event, out);
            }
        }
    }

    /// Drops messages over UDP that are incomplete for too long.
    fn give_up(&mut self, now: Nanos, number: u32) {
        let end = &mut self.ends[number as usize];
        let owner = end.owner;
        while let Some(message) = end.pop_if(|it| it.written + LOST_AFTER <= now) {
            self.tally.lose(message.begun);
            self.workload.end(now, owner);
        }
    }

    /// Opens a connection between the hosts of an unused connection; returns the end that
    /// corresponds to `number`.
    fn open_as(&mut self, number: u32) -> u32 {
        let same = number as usize & !1;
        let Some(first) = self.through.pop() else {
            let first = self.ends.len();
            self.ends.extend_from_within(same..same + 2);
            (first..first + 2).for_each(|end| self.show(end));
            return first as u32 | (number & 1);
        };
        for side in 0..2 {
            let place = first as usize + side;
            let reused = self.ends[place].reused.wrapping_add(1);
            let end = self.ends[same + side].clone();
            self.ends[place] = End { reused, ..end };
            self.show(place);
        }
        first | (number & 1)
    }

    /// Closes a connection of a single message once all data was received and acknowledged. No
    /// timer is set then, and packets in flight are not for its successor.
    fn close_if_through(&mut self, number: u32) {
        let first = number & !1;
        let ends = &mut self.ends[first as usize..first as usize + 2];
        let is_through = |it: &End| {
            it.messages.is_empty() && it.carrier.is_acknowledged() && it.poll_at() == Nanos::MAX
        };
        let has_sent = ends.iter().any(|it| it.written > 0);
        if !has_sent || !ends.iter().all(is_through) {
            return;
        }
        for end in ends {
            let (resent, timeouts) = end.carrier.resent();
            self.resent_before.0 += resent;
            self.resent_before.1 += timeouts;
            // It has neither written nor read, and no memory has segments of it.
            end.carrier = Carrier::new(end.carrier.protocol(), self.tcp, Nanos::ZERO);
            end.written = 0;
            end.armed = Nanos::MAX;
        }
        self.through.push(first);
    }

    fn begin(&mut self, now: Nanos, out: &mut Vec<Packet>) {
        let mut begun = std::mem::take(&mut self.begun);
        self.workload.begin(&mut begun);
        for (mut number, kind, size) in begun.drain(..) {
            self.tally.begin(now);
            if self.workload.has_own_connections() {
                number = self.open_as(number);
            }
            let fresh = Fresh {
                begun: now,
                asked: now,
                kind,
                size,
                before: Parts::default(),
            };
            self.ask(now, number, fresh, Wake::Timer, out);
        }
        self.begun = begun;
    }

    /// Writes a message: immediately, or once its guest runs.
    fn ask(&mut self, now: Nanos, number: u32, fresh: Fresh, cause: Wake, out: &mut Vec<Packet>) {
        let seat = self.ends[number as usize].seat();
        if self.machines.has(seat.host) {
            self.go_on(now, seat.host, out);
            self.machines.work(seat, Work::Write(number, fresh), cause);
        } else {
            self.write(now, number, fresh, out);
        }
    }

    /// Checks the timer of an end.
    fn look(&mut self, now: Nanos, number: u32, out: &mut Vec<Packet>) {
        let end = &mut self.ends[number as usize];
        let seat = end.seat();
        if end.looks || end.poll_at() > now {
            return self.flush(now, number, out);
        }
        if end.carrier.protocol() == Protocol::Udp {
            self.give_up(now, number);
            return self.flush(now, number, out);
        }
        if self.machines.has(seat.host) {
            end.looks = true;
            self.go_on(now, seat.host, out);
            self.machines.work(seat, Work::Timer(number), Wake::Timer);
        } else {
            self.fire(now, number, out);
        }
    }

    /// Handles the timer of an end's TCP.
    fn fire(&mut self, now: Nanos, number: u32, out: &mut Vec<Packet>) {
        let end = &mut self.ends[number as usize];
        end.looks = false;
        if end.carrier.poll_at() <= now {
            let timeouts = end.carrier.resent().1;
            end.carrier.poll(now, &mut self.segments);
            if end.carrier.resent().1 > timeouts {
                end.stalled += now.since(end.active);
            }
        }
        self.flush(now, number, out);
    }

    /// Advances a host's guests to `now`.
    fn go_on(&mut self, now: Nanos, host: u32, out: &mut Vec<Packet>) {
        while let Some(handed) = self.machines.poll(now, host) {
            self.handle(now, handed, out);
        }
    }

    fn handle(&mut self, now: Nanos, handed: Handed, out: &mut Vec<Packet>) {
        match handed {
            Output::Receive(inside) => {
                let Inside { packet, .. } = inside;
                self.take(now, &packet, inside.stay(), out);
            }
            Output::Wire(inside) => out.push(inside.packet),
            // An application reads in the time of its guest's softirq.
            Output::Received(_) => {}
            Output::Done(_, Work::Write(number, fresh)) => self.write(now, number, fresh, out),
            Output::Done(_, Work::Timer(number)) => self.fire(now, number, out),
        }
    }

    /// Delivers a segment or a datagram to an end.
    fn take(&mut self, now: Nanos, packet: &Packet, stay: Stay, out: &mut Vec<Packet>) {
        let end = &mut self.ends[packet.to as usize];
        if end.reused != packet.reused {
            return;
        }
        end.active = now;
        if let Some((pacer, random)) = &mut self.hull
            && packet.segment.echo_mark
            && random.random_bool(pacer.chance)
        {
            end.paced_until = now + pacer.lasts;
        }
        if let Carrier::Tcp(tcp) = &mut end.carrier {
            let mut segment = packet.segment;
            if self.machines.snoops() {
                let (sent, expected) = tcp.places();
                snooped::unwrap(&mut segment, sent, expected);
            }
            let bytes = tcp.deliver(now, &segment, &mut self.segments);
            self.flush(now, packet.to, out);
            if bytes > 0 {
                self.read(now, Arrival { packet, stay }, bytes, out);
            }
        } else {
            self.arrive(now, Arrival { packet, stay }, out);
        }
        if self.workload.has_own_connections() {
            self.close_if_through(packet.to);
        }
    }
}

/// Returns the remaining length of a flow as a class, in eighths of a power of two: accurate to a
/// tenth.
fn rest(bytes: u64) -> u8 {
    let bytes = bytes.clamp(1, u32::MAX.into());
    let power = bytes.ilog2();
    let eighths = ((bytes << 3) >> power) & 7;
    (8 * power) as u8 + eighths as u8
}

impl Node<Packet> for Hosts {
    fn poll_at(&self) -> Time {
        let timer = self.timers.peek().map_or(Nanos::MAX, |first| first.0.0);
        let own = timer.min(self.workload.next_at()).into();
        // Guests' clocks are in nanoseconds.
        self.machines.poll_at().max(self.now).min(own)
    }

    fn poll(&mut self, time: Time, out: &mut Vec<Packet>) {
        self.now = time;
        let now = time.floor();
        while let Some(host) = self.machines.due(now) {
            self.go_on(now, host, out);
        }
        while self.workload.next_at() <= now {
            self.begin(now, out);
        }
        while let Some(Reverse((at, number))) = self.timers.peek().copied()
            && at <= now
        {
            self.timers.pop();
            let end = &mut self.ends[number as usize];
            if end.armed == at {
                end.armed = Nanos::MAX;
            }
            self.look(now, number, out);
        }
    }

    fn receive(&mut self, time: Time, packet: Packet, out: &mut Vec<Packet>) {
        self.now = time;
        let now = time.floor();
        self.promises.hold(now, &packet);
        let seat = self.ends[packet.to as usize].seat();
        if self.machines.has(seat.host) {
            self.go_on(now, seat.host, out);
            self.machines.arrive(now, seat, packet);
        } else {
            self.take(now, &packet, Stay::default(), out);
        }
    }
}
