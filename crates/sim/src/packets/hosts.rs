//! All hosts: their connections, the timers of those, and the messages on them.

use super::attribution::{Parts, Record, Way};
use super::packet::{LAST, Packet};
use super::promises::Promises;
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
    /// Where the time of its question went, if it is an answer.
    before: Parts,
    written: Nanos,
    /// When its last byte was sent first,
    sent: Nanos,
    /// and for how long the connection had stood still: when it was written, then since.
    stalled: Nanos,
    /// Timeouts of the connection before it.
    timeouts: u64,
}

/// A message that is to be written.
#[derive(Debug, Clone, Copy)]
struct Fresh {
    begun: Nanos,
    kind: Kind,
    size: u64,
    before: Parts,
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
    /// Who owns the connection.
    owner: u32,
    written: u64,
    read: u64,
    messages: VecDeque<Message>,
    /// How many of them wait to be sent to their ends.
    unsent: u32,
    /// When something was sent or came last,
    active: Nanos,
    /// and how long there was nothing before timeouts.
    stalled: Nanos,
}

impl End {
    /// Data goes, behind its end of the stream.
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
    /// Each host's, where its frames are metered.
    meters: Vec<Meter>,
    workload: Workload,
    /// What is promised to frames, where something is.
    pub(super) promises: Promises,
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
    /// Who owns the connection.
    pub(super) owner: u32,
}

impl Hosts {
    pub(super) fn new(
        tcp: TcpConfig,
        places: impl Iterator<Item = Place>,
        meters: Vec<Meter>,
        workload: Workload,
        promises: Promises,
        tally: Tally,
    ) -> Self {
        let end = |place: Place| End {
            tcp: Connection::established(tcp, place.round_trip),
            route: place.route,
            host: place.host,
            armed: Nanos::MAX,
            owner: place.owner,
            written: 0,
            read: 0,
            messages: VecDeque::new(),
            unsent: 0,
            active: Nanos::ZERO,
            stalled: Nanos::ZERO,
        };
        Self {
            ends: places.map(end).collect(),
            timers: BinaryHeap::new(),
            meters,
            workload,
            promises,
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
    fn write(&mut self, now: Nanos, number: u32, fresh: Fresh, out: &mut Vec<Packet>) {
        let Fresh {
            begun,
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
            kind,
            before,
            written: now,
            sent: Nanos::MAX,
            stalled: end.stalled,
            timeouts: end.tcp.resent().1,
        });
        end.tcp.write(now, size, &mut self.segments);
        self.flush(now, number, out);
    }

    /// Sends what an end has to send, and sets its timer.
    fn flush(&mut self, now: Nanos, number: u32, out: &mut Vec<Packet>) {
        let to = self.ends[number as usize ^ 1].host;
        let end = &mut self.ends[number as usize];
        for segment in self.segments.drain(..) {
            let mut packet = Packet::new(now, segment, number ^ 1, end.route);
            if segment.len > 0 {
                // The stream's first byte has place 1.
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
            out.push(packet);
        }
        let at = end.tcp.poll_at();
        if at < end.armed {
            end.armed = at;
            self.timers.push(Reverse((at, number)));
        }
    }

    /// An end has read bytes: messages may be whole.
    fn read(&mut self, now: Nanos, packet: &Packet, bytes: u64, out: &mut Vec<Packet>) {
        let number = packet.to;
        let end = &mut self.ends[number as usize];
        let to = end.host;
        end.read += bytes;
        let read = end.read;
        let from = number as usize ^ 1;
        while let Some(message) = self.ends[from].messages.front()
            && message.end <= read
        {
            let message = *message;
            let end = &mut self.ends[from];
            end.messages.pop_front();
            let mut parts = message.before;
            let way = Way {
                written: message.written,
                first_sent: message.sent,
                came: now,
                stalled: message.stalled,
            };
            parts.add(&way, packet);
            match message.kind {
                Kind::Flow | Kind::Answer => {
                    let record = Record {
                        owner: end.owner,
                        hosts: (end.host, to),
                        begun: message.begun,
                        size: message.size,
                        timed_out: end.tcp.resent().1 > message.timeouts,
                        took: now.since(message.begun).0,
                        parts,
                    };
                    self.workload.end(now, end.owner);
                    self.tally.end(record);
                }
                Kind::Question(size) => {
                    let answer = Fresh {
                        begun: message.begun,
                        kind: Kind::Answer,
                        size,
                        before: parts,
                    };
                    self.write(now, number, answer, out);
                }
            }
        }
    }

    /// Opens a connection between the hosts of one on which nothing was sent; returns its first end.
    fn open_as(&mut self, number: u32) -> u32 {
        let first = self.ends.len();
        let same = number as usize & !1;
        self.ends.extend_from_within(same..same + 2);
        first as u32 | (number & 1)
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
                kind,
                size,
                before: Parts::default(),
            };
            self.write(now, number, fresh, out);
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
                let timeouts = end.tcp.resent().1;
                end.tcp.poll(now, &mut self.segments);
                if end.tcp.resent().1 > timeouts {
                    end.stalled += now.since(end.active);
                }
            }
            self.flush(now, number, out);
        }
    }

    fn receive(&mut self, now: Time, packet: Packet, out: &mut Vec<Packet>) {
        let now = now.floor();
        self.promises.hold(now, &packet);
        let end = &mut self.ends[packet.to as usize];
        end.active = now;
        end.tcp.receive(now, &packet.segment, &mut self.segments);
        let bytes = end.tcp.read(now, &mut self.segments);
        self.flush(now, packet.to, out);
        if bytes > 0 {
            self.read(now, &packet, bytes, out);
        }
    }
}
