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
/// An application computes so long before its guest looks whether there is something else to
/// do: frames that have come go first then, as in a softirq.
const COMPUTED: Nanos = Nanos::from_micros(200);

/// What a guest does beside receiving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Its application looks at a connection.
    Application(End),
    /// Its TCP looks at its timers.
    Timer(End),
    /// An application computes: what the caller calls it, and what is left of it.
    Compute(u32, Nanos),
}

/// A host whose guests talk.
pub(super) type TalkingHost = XenHost<Frame, Work>;

/// Who talks: a machine of its own, or a guest of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Station {
    /// A machine that is never busy.
    Bare,
    /// A guest of the host at this place.
    Guest(usize, VcpuId),
    /// The driver domain of the host at this place.
    Driver(usize),
}

/// A segment with data as its sender sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) connection: u32,
    pub(super) at: Nanos,
    /// Behind its last byte.
    pub(super) end: u64,
}

/// What happens on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A frame is at the end of its wire, by its place in [`Net::flying`].
    Arrival(usize),
    /// A timer of a connection may be due.
    Timer(End),
    /// What [`Net::wake_at`] asked for.
    Wake(u32),
}

/// One end as the applications' machines see it.
#[derive(Debug)]
struct Half {
    station: usize,
    connection: Option<Connection>,
    /// When its timer is set to, at the latest.
    armed: Nanos,
    /// Its timer, its application is about to run.
    timer_pending: bool,
    application_pending: bool,
    /// Segments with data that wait for the application, which sleeps in a read
    /// (`tcp_prequeue`, Linux until 4.14): its own time is used to receive them.
    prequeue: VecDeque<Frame>,
}

/// What happens on connections, for whoever uses them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notice {
    /// An application runs as there is something new on its connection.
    Ready(End),
    /// What was asked for with [`Net::wake_at`].
    Wake(u32),
}

/// The whole.
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
    /// Ends whose applications run once their guest's softirq is through.
    ready: Vec<End>,
    notices: Vec<Notice>,
    scratch: Vec<Segment>,
    resets: u64,
    /// What those who open connections send, if it is to be kept.
    trace: Option<Vec<Sent>>,
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

    /// Connections that a host has reset.
    pub(super) fn resets(&self) -> u64 {
        self.resets
    }

    /// From now on keeps what those who open connections send.
    pub(super) fn keep_trace(&mut self) {
        self.trace = Some(Vec::new());
    }

    /// What was kept.
    pub(super) fn trace(&self) -> &[Sent] {
        self.trace.as_deref().unwrap_or_default()
    }

    pub(super) fn hosts(&self) -> &[TalkingHost] {
        &self.hosts
    }

    /// Asks for a [`Notice::Wake`].
    pub(super) fn wake_at(&mut self, at: Nanos, token: u32) {
        self.push(at, Event::Wake(token));
    }

    fn push(&mut self, at: Nanos, event: Event) {
        self.counter += 1;
        self.events.push(Reverse((at, self.counter, event)));
    }

    /// Lets a station compute, and asks for a [`Notice::Wake`] once it has.
    pub(super) fn compute(&mut self, station: usize, cost: Nanos, token: u32) {
        if let Station::Guest(host, guest) = self.stations[station].0 {
            let piece = cost.min(COMPUTED);
            let work = Work::Compute(token, cost - piece);
            self.hosts[host].work(guest, work, piece, Wake::Timer);
        } else {
            self.wake_at(self.now + cost, token);
        }
    }

    /// Pings over what [`Net::link`] made. [`Notice::Ready`] tells that the answer is here.
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

    /// Two ends between which there is no connection yet.
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

    /// An end of a connection.
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

    /// Forgets a connection whose ends are done.
    pub(super) fn forget(&mut self, connection: u32) {
        for side in Side::BOTH {
            self.half(End { connection, side }).connection = None;
        }
    }

    /// Does something with an end, and sends what comes of it.
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

    /// Sends an end's segments, and sees to its timer.
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
                trace.push(Sent {
                    connection: end.connection,
                    at: self.now,
                    end: segment.sequence + u64::from(segment.len),
                });
            }
            self.put(end, Frame::new(end.peer(), segment));
        }
        self.scratch = out;
    }

    /// A frame leaves an end.
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

    /// The station's wire is its host's: guests of one host share it.
    fn wire_of(&self, host: usize) -> usize {
        let of_host = |(station, _): &(Station, Wire)| match station {
            Station::Bare => false,
            Station::Guest(at, _) | Station::Driver(at) => *at == host,
        };
        self.stations.iter().position(of_host).unwrap_or(0)
    }

    /// Goes on to the next notice, to `until` at the latest.
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

    /// Brings all hosts to now. Returns whether there was something to do.
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
                    // It goes on behind what has come meanwhile.
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

    /// An end's TCP gets a segment.
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

    /// The end's TCP works on a segment.
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

    /// The end's application is to look at it.
    fn has_news(&mut self, end: End) {
        if !self.is_guest(end) {
            self.notices.push(Notice::Ready(end));
        } else if !std::mem::replace(&mut self.half(end).application_pending, true) {
            self.ready.push(end);
        }
    }

    /// The applications of a guest run whose connections have news.
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

    /// The application of a guest runs: for the next segment, or just so.
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
