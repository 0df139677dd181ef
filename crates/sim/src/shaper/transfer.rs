//! An endless TCP transfer from a guest to a distant receiver: CUBIC, SACK and RACK, as in Linux.
//!
//! The sender writes a segment at a time, and only if all earlier ones were sent and the ring has
//! room: like a guest's kernel, which holds back a connection whose packets are queued in it (TCP
//! small queues).

use super::guest::Guest;
use crate::tcp::{Congestion, Connection, MSS, Segment, SlowStart, TcpConfig};
use std::collections::VecDeque;
use tailbound_dataplane::PacketRecord;
use tailbound_units::Nanos;

/// Headers of an Ethernet frame with a segment: Ethernet, IPv4, TCP with time stamps.
const HEADERS: usize = 66;
/// An Ethernet frame of a full segment.
pub(super) const FRAME: usize = MSS as usize + HEADERS;

/// Linux with its defaults, except that slow start ends with a loss: only losses in the shaper are
/// measured.
const LINUX: TcpConfig = TcpConfig {
    congestion: Congestion::Cubic,
    slow_start: SlowStart::UntilLoss,
    ..TcpConfig::RACK
};

/// Segments in flight, in the order of their arrival.
type InFlight = VecDeque<(Nanos, Segment)>;

/// Both ends, and the network between them.
#[derive(Debug)]
pub(super) struct Transfer {
    one_way: Nanos,
    sender: Connection,
    receiver: Connection,
    /// Position after the written data, and after the sent data.
    written: u64,
    sent: u64,
    /// Segments for which the guest's ring had no room yet.
    before_ring: VecDeque<Segment>,
    /// Segments in the ring, with the numbers of their frames.
    waiting: VecDeque<(u64, Segment)>,
    number: u64,
    to_receiver: InFlight,
    to_sender: InFlight,
    out: Vec<Segment>,
}

impl Transfer {
    /// Returns an open transfer with this round trip in an idle network.
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
            to_receiver: InFlight::new(),
            to_sender: InFlight::new(),
            out: Vec::new(),
        }
    }

    /// Delivers the segments that have arrived at either end by `now`, and puts sent ones into the
    /// ring.
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

    /// Handles the departure of the frame with this number from the guest at `now`.
    pub(super) fn leave(&mut self, now: Nanos, number: u64) {
        // Frames leave in order: a limit's queue has dropped those before it.
        while let Some((other, segment)) = self.waiting.pop_front() {
            if other == number {
                self.to_receiver.push_back((now + self.one_way, segment));
                return;
            }
        }
    }

    /// Returns the time of the next arrival or timer.
    pub(super) fn poll_at(&self) -> Nanos {
        let first = |in_flight: &InFlight| in_flight.front().map_or(Nanos::MAX, |(at, _)| *at);
        let ends = self.sender.poll_at().min(self.receiver.poll_at());
        ends.min(first(&self.to_receiver))
            .min(first(&self.to_sender))
    }

    /// Sends the receiver's segments to the sender, without a limit.
    fn answer(&mut self, now: Nanos) {
        let comes = now + self.one_way;
        self.to_sender
            .extend(self.out.drain(..).map(|segment| (comes, segment)));
    }

    /// Puts the sender's segments into the ring, and writes more once these were sent.
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

/// Returns the next segment that has arrived by `now`.
fn come(in_flight: &mut InFlight, now: Nanos) -> Option<Segment> {
    let (at, segment) = *in_flight.front()?;
    if at > now {
        return None;
    }
    in_flight.pop_front();
    Some(segment)
}
