//! Machines, the wires between them, and connections.

use super::frame::{End, Frame, Kind, Side};
use crate::net::{Time, Wire};
use crate::tcp::{Connection, Segment, TcpConfig};
use crate::xen_host::{DRIVER, Output, XenHost};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use tailbound_hypervisor::{VcpuId, Wake};
use tailbound_units::{Bytes, Nanos, Rate};

/// The links: Gigabit Ethernet with a round trip of 0.1 ms.
const RATE: Rate = Rate(1_000_000_000);
const ONE_WAY: Nanos = Nanos::from_micros(38);
/// A guest's CPU time for a call of its application, and for a byte that it copies.
const CALL: Nanos = Nanos::from_micros(2);
const COPIED_BYTE: Nanos = Nanos(1);
/// Time that an application computes before its guest checks for other work: received frames are
/// handled first then, as in a softirq.
const COMPUTED: Nanos = Nanos::from_micros(200);

/// Work of a guest besides receiving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// An application handles its connection.
    Application(End),
    /// The guest's TCP handles its timers.
    Timer(End),
    /// An application computes: token of the caller, and remaining time.
    Compute(u32, Nanos),
}

/// A host whose guests have connections.
pub(super) type TalkingHost = XenHost<Frame, Work>;

/// Owner of connections: a machine of its own, or a guest of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Station {
    /// A machine that is never busy.
    Bare,
    /// A guest of the host with this index.
    Guest(usize, VcpuId),
    /// The driver domain of the host with this index.
    Driver(usize),
}

/// A segment with data, as sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TracedSegment {
    pub(super) connection: u32,
    pub(super) at: Nanos,
    /// Position after its last byte.
    pub(super) end: u64,
}

/// A timed event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Arrival of a frame at the end of its wire, by its place in [`Net::flying`].
    Arrival(usize),
    /// A timer of a connection, which may be due.
    Timer(End),
    /// The event that [`Net::wake_at`] requested.
    Wake(u32),
}

/// One end, as the application's machine sees it.
#[derive(Debug)]
struct Half {
    station: usize,
    connection: Option<Connection>,
    /// Latest time at which its timer is set to expire.
    armed: Nanos,
    /// True if its timer, or its application, is scheduled to run.
    timer_pending: bool,
    application_pending: bool,
    /// Data segments that wait for the application, which sleeps in a read (`tcp_prequeue`, Linux
    /// until 4.14): they are received in its own CPU time.
    prequeue: VecDeque<Frame>,
}

/// An event on a connection, for its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notice {
    /// An application runs because its connection has changed.
    Ready(End),
    /// The event that [`Net::wake_at`] requested.
    Wake(u32),
}

/// The whole network.
pub(super) struct Net {
    now: Nanos,
    tcp: TcpConfig,
    hosts: Vec<TalkingHost>,
    stations: Vec<(Station, Wire)>,
    connections: Vec<[Half; 2]>,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    counter: u64,
    flying: Vec<Frame>,
    free: Vec<usize>,
    /// Ends whose applications run once their guest's softirq is complete.
    ready: Vec<End>,
    notices: Vec<Notice>,
    scratch: Vec<Segment>,
    resets: u64,
    /// Data segments of the ends that opened connections, if they are recorded.
    trace: Option<Vec<TracedSegment>>,
}

impl Net {
    pub(super) fn new(tcp: TcpConfig, hosts: Vec<TalkingHost>, stations: Vec<Station>) -> Self {
        let station = |station| (station, Wire::new(RATE));
        Self {
            now: Nanos::ZERO,
            tcp,
            hosts,
            stations: stations.into_iter().map(station).collect(),
            connections: Vec::new(),
            events: BinaryHeap::new(),
            counter: 0,
            flying: Vec::new(),
            free: Vec::new(),
            ready: Vec::new(),
            notices: Vec::new(),
            scratch: Vec::new(),
            resets: 0,
            trace: None,
        }
    }

    pub(super) fn now(&self) -> Nanos {
        self.now
    }

    /// Number of connections that a host has reset.
    pub(super) fn resets(&self) -> u64 {
        self.resets
    }

    /// Starts recording the data segments of the ends that open connections.
    pub(super) fn keep_trace(&mut self) {
        self.trace = Some(Vec::new());
    }

    /// Returns the recorded segments.
    pub(super) fn trace(&self) -> &[TracedSegment] {
        self.trace.as_deref().unwrap_or_default()
    }

    pub(super) fn hosts(&self) -> &[TalkingHost] {
        &self.hosts
    }

    /// Schedules a [`Notice::Wake`].
    pub(super) fn wake_at(&mut self, at: Nanos, token: u32) {
        self.push(at, Event::Wake(token));
    }

    fn push(&mut self, at: Nanos, event: Event) {
        self.counter += 1;
        self.events.push(Reverse((at, self.counter, event)));
    }

    /// Computes for `cost` on a station, and schedules a [`Notice::Wake`] at the end.
    pub(super) fn compute(&mut self, station: usize, cost: Nanos, token: u32) {
        if let Station::Guest(host, guest) = self.stations[station].0 {
            let piece = cost.min(COMPUTED);
            let work = Work::Compute(token, cost - piece);
            self.hosts[host].work(guest, work, piece, Wake::Timer);
        } else {
            self.wake_at(self.now + cost, token);
        }
    }

    /// Sends a ping over a [`Net::link`]. [`Notice::Ready`] reports the answer.
    pub(super) fn ping(&mut self, end: End) {
        self.put(end, Frame::echo(end.peer()));
    }

    /// Opens a connection from one station to another.
    pub(super) fn connect(&mut self, from: usize, to: usize) -> End {
        let end = self.link(from, to);
        let mut out = std::mem::take(&mut self.scratch);
        let opened = Connection::connect(self.now, self.tcp, &mut out);
        self.half(end).connection = Some(opened);
        self.emit(end, out);
        end
    }

    /// Creates two ends without a connection.
    pub(super) fn link(&mut self, from: usize, to: usize) -> End {
        let half = |station| Half {
            station,
            connection: None,
            armed: Nanos::MAX,
            timer_pending: false,
            application_pending: false,
            prequeue: VecDeque::new(),
        };
        self.connections.push([half(from), half(to)]);
        End {
            connection: (self.connections.len() - 1) as u32,
            side: Side::Opener,
        }
    }

    fn half(&mut self, end: End) -> &mut Half {
        &mut self.connections[end.connection as usize][end.side as usize]
    }

    /// Returns the connection of an end.
    pub(super) fn end(&self, end: End) -> Option<&Connection> {
        let half = &self.connections[end.connection as usize][end.side as usize];
        half.connection.as_ref()
    }

    pub(super) fn write(&mut self, end: End, bytes: u64) {
        self.with(end, |connection, now, out| {
            connection.write(now, bytes, out);
        });
    }

    pub(super) fn close(&mut self, end: End) {
        self.with(end, Connection::close);
    }

    pub(super) fn read(&mut self, end: End) -> u64 {
        self.with(end, Connection::read).unwrap_or(0)
    }

    /// Removes a connection whose ends are complete.
    pub(super) fn forget(&mut self, connection: u32) {
        for side in Side::BOTH {
            self.half(End { connection, side }).connection = None;
        }
    }

    /// Applies a function to an end, and sends the resulting segments.
    fn with<R>(
        &mut self,
        end: End,
        what: impl FnOnce(&mut Connection, Nanos, &mut Vec<Segment>) -> R,
    ) -> Option<R> {
        let now = self.now;
        let mut out = std::mem::take(&mut self.scratch);
        let connection = self.half(end).connection.as_mut();
        let result = connection.map(|it| what(it, now, &mut out));
        self.emit(end, out);
        result
    }

    /// Sends an end's segments, and sets its timer.
    fn emit(&mut self, end: End, mut out: Vec<Segment>) {
        let half = self.half(end);
        let due = half
            .connection
            .as_ref()
            .map_or(Nanos::MAX, Connection::poll_at);
        if due < half.armed {
            half.armed = due;
            self.push(due, Event::Timer(end));
        }
        for segment in out.drain(..) {
            if let (Some(trace), Side::Opener, 1..) = (&mut self.trace, end.side, segment.len) {
                trace.push(TracedSegment {
                    connection: end.connection,
                    at: self.now,
                    end: segment.sequence + u64::from(segment.len),
                });
            }
            self.put(end, Frame::new(end.peer(), segment));
        }
        self.scratch = out;
    }

    /// Sends a frame from an end.
    fn put(&mut self, end: End, frame: Frame) {
        let station = self.half(end).station;
        match self.stations[station].0 {
            Station::Bare => self.transmit(station, frame),
            Station::Guest(host, guest) => self.hosts[host].send(guest, frame),
            Station::Driver(host) => self.transmit(self.wire_of(host), frame),
        }
    }

    /// Puts a frame onto a station's wire.
    fn transmit(&mut self, station: usize, frame: Frame) {
        let now = Time::from(self.now);
        let sent = self.stations[station]
            .1
            .send(now, Bytes(frame.on_the_wire()));
        let place = self.free.pop().unwrap_or_else(|| {
            self.flying.push(frame);
            self.flying.len() - 1
        });
        self.flying[place] = frame;
        self.push(sent.ceil() + ONE_WAY, Event::Arrival(place));
    }

    /// Returns the index of a host's wire: guests of one host share it.
    fn wire_of(&self, host: usize) -> usize {
        let of_host = |(station, _): &(Station, Wire)| match station {
            Station::Bare => false,
            Station::Guest(at, _) | Station::Driver(at) => *at == host,
        };
        self.stations.iter().position(of_host).unwrap_or(0)
    }

    /// Runs until the next notice, to `until` at the latest.
    pub(super) fn poll(&mut self, until: Nanos) -> Option<Notice> {
        loop {
            if !self.notices.is_empty() {
                return Some(self.notices.remove(0));
            }
            let event = self.events.peek().map_or(Nanos::MAX, |Reverse(it)| it.0);
            let host = self.hosts.iter().map(TalkingHost::poll_at).min();
            let next = event.min(host.unwrap_or(Nanos::MAX));
            if next > until {
                self.now = until;
                return None;
            }
            self.now = next;
            if self.run_hosts() {
                continue;
            }
            if event <= next
                && let Some(Reverse((_, _, event))) = self.events.pop()
            {
                self.handle(event);
            }
        }
    }

    /// Advances all hosts to the current time. Returns true if there was an event.
    fn run_hosts(&mut self) -> bool {
        let mut busy = false;
        for host in 0..self.hosts.len() {
            while let Some((at, output)) = self.hosts[host].poll(self.now) {
                debug_assert_eq!(at, self.now);
                busy = true;
                match output {
                    Output::Receive(frame) => self.receive(frame),
                    Output::Received(guest) => self.run_applications(host, guest),
                    Output::Wire(frame) => self.transmit(self.wire_of(host), frame),
                    // The rest is queued behind the work that arrived meanwhile.
                    Output::Done(guest, Work::Compute(token, left)) if left > Nanos::ZERO => {
                        let piece = left.min(COMPUTED);
                        let work = Work::Compute(token, left - piece);
                        self.hosts[host].work(guest, work, piece, Wake::Timer);
                    }
                    Output::Done(_, work) => self.done(work),
                }
            }
        }
        busy
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Wake(token) => self.notices.push(Notice::Wake(token)),
            Event::Arrival(place) => {
                self.free.push(place);
                let frame = self.flying[place];
                let station = self.half(frame.to).station;
                match self.stations[station].0 {
                    Station::Bare => self.receive(frame),
                    Station::Guest(host, guest) => {
                        self.hosts[host].arrive(self.now, guest, frame);
                    }
                    Station::Driver(host) => self.hosts[host].arrive(self.now, DRIVER, frame),
                }
            }
            Event::Timer(end) => self.timer(end),
        }
    }

    fn timer(&mut self, end: End) {
        let now = self.now;
        let half = self.half(end);
        half.armed = Nanos::MAX;
        let Some(connection) = &half.connection else {
            return;
        };
        let (due, station) = (connection.poll_at(), half.station);
        if due > now {
            if due < Nanos::MAX {
                half.armed = due;
                self.push(due, Event::Timer(end));
            }
            return;
        }
        match self.stations[station].0 {
            Station::Bare | Station::Driver(_) => self.done(Work::Timer(end)),
            Station::Guest(host, guest) => {
                let half = self.half(end);
                if !std::mem::replace(&mut half.timer_pending, true) {
                    self.hosts[host].work(guest, Work::Timer(end), CALL, Wake::Timer);
                }
            }
        }
    }

    fn done(&mut self, work: Work) {
        match work {
            Work::Application(end) => {
                if let Some(frame) = self.half(end).prequeue.pop_front() {
                    self.process(frame);
                }
                self.notices.push(Notice::Ready(end));
                if self.half(end).prequeue.is_empty() {
                    self.half(end).application_pending = false;
                } else {
                    self.application(end);
                }
            }
            Work::Compute(token, _) => self.notices.push(Notice::Wake(token)),
            Work::Timer(end) => {
                self.half(end).timer_pending = false;
                self.with(end, |connection, now, out| {
                    if connection.poll_at() <= now {
                        connection.poll(now, out);
                    }
                });
            }
        }
    }

    /// Delivers a segment to an end's TCP.
    fn receive(&mut self, frame: Frame) {
        let end = frame.to;
        let tcp = self.tcp;
        match (frame.kind, end.side) {
            (Kind::Segment, _) => {}
            (Kind::Reset, _) => {
                self.resets += 1;
                return;
            }
            // Answered in the softirq.
            (Kind::Echo, Side::Accepter) => return self.put(end, Frame::echo(end.peer())),
            (Kind::Echo, Side::Opener) => return self.notices.push(Notice::Ready(end)),
        }
        let known = self.half(end).connection.is_some();
        if !known {
            let is_new = frame.segment.sequence == 0 && frame.segment.len == 0;
            if end.side == Side::Opener || !is_new {
                return;
            }
            let mut out = std::mem::take(&mut self.scratch);
            let accepted = Connection::accept(self.now, tcp, &frame.segment, &mut out);
            self.half(end).connection = Some(accepted);
            self.emit(end, out);
            return;
        }
        if tcp.prequeue && self.is_guest(end) && frame.segment.len > 0 {
            self.half(end).prequeue.push_back(frame);
            self.has_news(end);
        } else {
            self.process(frame);
        }
    }

    fn is_guest(&self, end: End) -> bool {
        let half = &self.connections[end.connection as usize][end.side as usize];
        matches!(self.stations[half.station].0, Station::Guest(..))
    }

    /// Processes a segment in the end's TCP.
    fn process(&mut self, frame: Frame) {
        let news = self.with(frame.to, |connection, now, out| {
            let before = (connection.is_open(), connection.acknowledged());
            connection.receive(now, &frame.segment, out);
            let after = (connection.is_open(), connection.acknowledged());
            connection.readable() > 0 || connection.is_finished() || before != after
        });
        if news == Some(true) {
            self.has_news(frame.to);
        }
    }

    /// Schedules the end's application.
    fn has_news(&mut self, end: End) {
        if !self.is_guest(end) {
            self.notices.push(Notice::Ready(end));
        } else if !std::mem::replace(&mut self.half(end).application_pending, true) {
            self.ready.push(end);
        }
    }

    /// Runs the applications of a guest whose connections have changed.
    fn run_applications(&mut self, host: usize, guest: VcpuId) {
        for end in std::mem::take(&mut self.ready) {
            let station = self.half(end).station;
            if self.stations[station].0 == Station::Guest(host, guest) {
                self.application(end);
            } else {
                self.ready.push(end);
            }
        }
    }

    /// Runs the application of a guest: for the next segment, or without one.
    fn application(&mut self, end: End) {
        let half = self.half(end);
        let bytes = half.prequeue.front().map_or(0, |frame| frame.segment.len);
        let station = half.station;
        if let Station::Guest(host, guest) = self.stations[station].0 {
            let cost = CALL + Nanos(COPIED_BYTE.0 * u64::from(bytes));
            self.hosts[host].work(guest, Work::Application(end), cost, Wake::Event);
        }
    }
}
