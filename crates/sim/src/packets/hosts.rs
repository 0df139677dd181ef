//! All hosts: their connections, the timers of those, and the messages on them.

use super::packet::Packet;
use super::tally::Tally;
use super::workload::{Kind, Workload};
use crate::net::{Node, Time};
use crate::tcp::{Connection, Segment, TcpConfig};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use tailbound_dataplane::{FlowKey, GuestId, Meter};
use tailbound_units::Nanos;

/// A message on its way.
#[derive(Debug, Clone, Copy)]
struct Message {
    /// Behind its last byte, of all on this connection.
    end: u64,
    begun: Nanos,
    size: u64,
    kind: Kind,
}

/// One end of a connection; the other one's number differs in the last bit.
#[derive(Debug, Clone)]
struct End {
    tcp: Connection,
    /// The first place of its way in the routes.
    route: u32,
    host: u32,
    /// The earliest entry among the timers.
    armed: Nanos,
    written: u64,
    read: u64,
    messages: VecDeque<Message>,
}

/// The node of all hosts.
#[derive(Debug)]
pub(super) struct Hosts {
    ends: Vec<End>,
    timers: BinaryHeap<Reverse<(Nanos, u32)>>,
    /// Each host's, where its frames are metered.
    meters: Vec<Meter>,
    workload: Workload,
    pub(super) tally: Tally,
    segments: Vec<Segment>,
    begun: Vec<(u32, Kind, u64)>,
}

/// Where a connection's end is, the first place of its way in the routes, and how long a round
/// trip takes where nothing waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) host: u32,
    pub(super) route: u32,
    pub(super) round_trip: Nanos,
}

/// The classes of frames of small flows, and of all others.
const SMALL: u8 = 0;
const BULK: u8 = 1;

impl Hosts {
    pub(super) fn new(
        tcp: TcpConfig,
        places: impl Iterator<Item = Place>,
        meters: Vec<Meter>,
        workload: Workload,
        tally: Tally,
    ) -> Self {
        let end = |place: Place| End {
            tcp: Connection::established(tcp, place.round_trip),
            route: place.route,
            host: place.host,
            armed: Nanos::MAX,
            written: 0,
            read: 0,
            messages: VecDeque::new(),
        };
        Self {
            ends: places.map(end).collect(),
            timers: BinaryHeap::new(),
            meters,
            workload,
            tally,
            segments: Vec::new(),
            begun: Vec::new(),
        }
    }

    /// How often segments were sent again, and how often by a timeout.
    pub(super) fn resent(&self) -> (u64, u64) {
        let each = self.ends.iter().map(|end| end.tcp.resent());
        each.fold((0, 0), |all, it| (all.0 + it.0, all.1 + it.1))
    }

    /// A message of so many bytes begins on a connection.
    fn write(
        &mut self,
        now: Nanos,
        number: u32,
        (begun, kind, size): (Nanos, Kind, u64),
        out: &mut Vec<Packet>,
    ) {
        let end = &mut self.ends[number as usize];
        end.written += size;
        end.messages.push_back(Message {
            end: end.written,
            begun,
            size,
            kind,
        });
        end.tcp.write(now, size, &mut self.segments);
        self.flush(now, number, out);
    }

    /// Sends what an end has to send, and sets its timer.
    fn flush(&mut self, now: Nanos, number: u32, out: &mut Vec<Packet>) {
        let to = self.ends[number as usize ^ 1].host;
        let end = &mut self.ends[number as usize];
        for segment in self.segments.drain(..) {
            let mut packet = Packet {
                to: number ^ 1,
                next: end.route,
                size: Packet::size_of(&segment),
                class: SMALL,
                segment,
            };
            if let Some(meter) = self.meters.get_mut(end.host as usize) {
                let flow = FlowKey {
                    source: GuestId::first(end.host),
                    destination: to.into(),
                };
                if !meter.is_of_small_flow(now, flow, packet.len()) {
                    packet.class = BULK;
                }
            }
            out.push(packet);
        }
        let at = end.tcp.poll_at();
        if at < end.armed {
            end.armed = at;
            self.timers.push(Reverse((at, number)));
        }
    }

    /// An end has read bytes: messages may be whole.
    fn read(&mut self, now: Nanos, number: u32, bytes: u64, out: &mut Vec<Packet>) {
        let end = &mut self.ends[number as usize];
        end.read += bytes;
        let read = end.read;
        let from = number as usize ^ 1;
        while let Some(message) = self.ends[from].messages.front()
            && message.end <= read
        {
            let message = *message;
            self.ends[from].messages.pop_front();
            match message.kind {
                Kind::Flow | Kind::Answer => self.tally.end(now, message.begun, message.size),
                Kind::Question(size) => {
                    self.write(now, number, (message.begun, Kind::Answer, size), out);
                }
            }
        }
    }

    fn begin(&mut self, now: Nanos, out: &mut Vec<Packet>) {
        let mut begun = std::mem::take(&mut self.begun);
        self.workload.begin(&mut begun);
        for (number, kind, size) in begun.drain(..) {
            self.tally.begin(now);
            self.write(now, number, (now, kind, size), out);
        }
        self.begun = begun;
    }
}

impl Node<Packet> for Hosts {
    fn poll_at(&self) -> Time {
        let timer = self.timers.peek().map_or(Nanos::MAX, |first| first.0.0);
        timer.min(self.workload.next_at()).into()
    }

    fn poll(&mut self, now: Time, out: &mut Vec<Packet>) {
        let now = now.floor();
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
            if end.tcp.poll_at() <= now {
                end.tcp.poll(now, &mut self.segments);
            }
            self.flush(now, number, out);
        }
    }

    fn receive(&mut self, now: Time, packet: Packet, out: &mut Vec<Packet>) {
        let now = now.floor();
        let end = &mut self.ends[packet.to as usize];
        end.tcp.receive(now, &packet.segment, &mut self.segments);
        let bytes = end.tcp.read(now, &mut self.segments);
        self.flush(now, packet.to, out);
        if bytes > 0 {
            self.read(now, packet.to, bytes, out);
        }
    }
}
