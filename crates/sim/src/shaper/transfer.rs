//! A TCP transfer without end from a guest to a receiver far away: CUBIC, SACK and RACK, as in
//! Linux.
//!
//! The sender writes a segment at a time, and only where all before it is on its way and the ring
//! has room: as a guest's kernel, which holds back a connection whose packets wait in it (TCP
//! small queues).

use super::guest::Guest;
use crate::tcp::{Congestion, Connection, MSS, Segment, SlowStart, TcpConfig};
use std::collections::VecDeque;
use tailbound_dataplane::PacketRecord;
use tailbound_units::Nanos;

/// What an Ethernet frame has beside a segment's data: IPv4, TCP with time stamps.
const HEADERS: usize = 66;
/// An Ethernet frame of a full segment.
pub(super) const FRAME: usize = MSS as usize + HEADERS;

/// Linux with its defaults, but that slow start ends in losses: the shaper's are what is looked at.
const LINUX: TcpConfig = TcpConfig {
    congestion: Congestion::Cubic,
    slow_start: SlowStart::UntilLoss,
    ..TcpConfig::RACK
};

/// What is on its way, in the order in which it comes.
type Way = VecDeque<(Nanos, Segment)>;

/// Both ends, and what is between them.
#[derive(Debug)]
pub(super) struct Transfer {
    one_way: Nanos,
    sender: Connection,
    receiver: Connection,
    /// The place behind all that was written, and behind what was sent of it.
    written: u64,
    sent: u64,
    /// What the guest's ring had no room for yet.
    before_ring: VecDeque<Segment>,
    /// What was put into the ring and has not left, by the number of its frame.
    waiting: VecDeque<(u64, Segment)>,
    number: u64,
    to_receiver: Way,
    to_sender: Way,
    out: Vec<Segment>,
}

impl Transfer {
    /// One that is open, and whose round trip takes so long where nothing waits.
    pub(super) fn new(round_trip: Nanos) -> Self {
        Self {
            one_way: Nanos(round_trip.0 / 2),
            sender: Connection::established(LINUX, round_trip),
            receiver: Connection::established(LINUX, round_trip),
            written: 1,
            sent: 1,
            before_ring: VecDeque::new(),
            waiting: VecDeque::new(),
            number: 0,
            to_receiver: Way::new(),
            to_sender: Way::new(),
            out: Vec::new(),
        }
    }

    /// Takes what has come to either end by `now`, and puts what is sent into the ring.
    pub(super) fn poll(&mut self, now: Nanos, guest: &mut Guest) {
        while let Some(segment) = come(&mut self.to_receiver, now) {
            self.receiver.receive(now, &segment, &mut self.out);
            self.receiver.read(now, &mut self.out);
            self.answer(now);
        }
        if self.receiver.poll_at() <= now {
            self.receiver.poll(now, &mut self.out);
            self.answer(now);
        }
        while let Some(segment) = come(&mut self.to_sender, now) {
            self.sender.receive(now, &segment, &mut self.out);
            self.send(now, guest);
        }
        if self.sender.poll_at() <= now {
            self.sender.poll(now, &mut self.out);
        }
        self.send(now, guest);
    }

    /// A frame of this number has left the guest at `now`.
    pub(super) fn leave(&mut self, now: Nanos, number: u64) {
        // They leave in order: a limit's queue has dropped those before it.
        while let Some((other, segment)) = self.waiting.pop_front() {
            if other == number {
                self.to_receiver.push_back((now + self.one_way, segment));
                return;
            }
        }
    }

    /// When something comes or is due.
    pub(super) fn poll_at(&self) -> Nanos {
        let first = |way: &Way| way.front().map_or(Nanos::MAX, |(at, _)| *at);
        let ends = self.sender.poll_at().min(self.receiver.poll_at());
        ends.min(first(&self.to_receiver))
            .min(first(&self.to_sender))
    }

    /// What the receiver says goes to the sender; nothing limits that.
    fn answer(&mut self, now: Nanos) {
        let comes = now + self.one_way;
        self.to_sender
            .extend(self.out.drain(..).map(|segment| (comes, segment)));
    }

    /// Puts what the sender sends into the ring, and writes more where that has gone.
    fn send(&mut self, now: Nanos, guest: &mut Guest) {
        self.fill(guest);
        while guest.has_room() && self.written == self.sent {
            self.written += u64::from(MSS);
            self.sender.write(now, MSS.into(), &mut self.out);
            self.fill(guest);
        }
    }

    fn fill(&mut self, guest: &mut Guest) {
        for segment in self.out.drain(..) {
            self.sent = self.sent.max(segment.end());
            self.before_ring.push_back(segment);
        }
        while guest.has_room()
            && let Some(segment) = self.before_ring.pop_front()
        {
            self.number += 1;
            self.waiting.push_back((self.number, segment));
            guest.send(PacketRecord {
                id: self.number,
                ..PacketRecord::new(segment.len as usize + HEADERS)
            });
        }
    }
}

/// The next of those that have come by `now`.
fn come(way: &mut Way, now: Nanos) -> Option<Segment> {
    let (at, segment) = *way.front()?;
    if at > now {
        return None;
    }
    way.pop_front();
    Some(segment)
}
