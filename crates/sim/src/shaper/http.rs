//! Pages of a web server, as in figures 19 and 20: connection time and waiting time as defined by
//! `ab`.
//!
//! A connection for each page: SYN and its answer, a request, an acknowledgement of it, and the
//! page in TCP's slow start (RFC 5681, from 10 segments on). No frame is lost. Requests, and the
//! clients' acknowledgements, do not wait.

use super::guest::{Guest, percentile};
use super::kind::{self, Shaped};
use crate::scenario::Scenario;
use crate::{Threads, parallel};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use serde::Deserialize;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::convert::Infallible;
use tailbound_dataplane::{Control, PacketRecord};
use tailbound_experiment::{ExperimentError, Run, RunOutput, Section};
use tailbound_report::Variant;
use tailbound_units::{Bytes, Nanos, Rate};

/// Pages of a web server.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// Limits to compare.
    pub shaper: Vec<Shaped>,
    /// Rate of Ethernet frames.
    pub limit: Rate,
    /// Round trip without the limit.
    pub round_trip: Nanos,
    /// Pages.
    pub requests: u32,
    /// Clients, each with one page at a time: variants `NAME-closed`.
    pub clients: u32,
    /// Load of pages at random times, in percent of the limit: `NAME-open`.
    pub load: u64,
}

/// The paper's pages: sizes in KB, and their number in ten.
const PAGES: [(usize, u32); 5] = [(2, 1), (4, 2), (8, 4), (16, 2), (32, 1)];
/// Mean length of a page's frames: 8.1 segments, the answer to a SYN, and an acknowledgement.
const MEAN: u64 = 12_400;
/// Length of the headers of a page's segment, and its largest payload.
const HEADERS: usize = 66;
const PAYLOAD: usize = 1448;
/// Length of the header of an answer, in bytes.
const ANSWER: usize = 280;
/// Lengths of SYN and its answer, and of acknowledgements, as Ethernet frames.
const SYN: usize = 74;
const ACK: usize = 66;
/// Initial window of a page, in segments.
const FIRST: u32 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loop {
    Closed,
    Open,
}

/// Events of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A client begins.
    Begin,
    /// A SYN arrives at the server.
    Opened(u32),
    /// The client receives the answer to it.
    Connected(u32),
    /// A request arrives at the server.
    Requested(u32),
    /// The client receives one more segment of a page.
    Received(u32),
    /// The server receives the acknowledgement.
    Acknowledged(u32),
}

/// A page in transfer.
#[derive(Debug, Clone, Copy)]
struct Page {
    begun: Nanos,
    connected: Nanos,
    waited: Option<Nanos>,
    /// Segments in all, sent, received by the client, and in flight, and the window.
    segments: u32,
    sent: u32,
    received: u32,
    window: u32,
    flying: u32,
}

/// Measured times, in milliseconds.
#[derive(Debug, Default)]
struct PageTimes {
    connected: Vec<f64>,
    waited: Vec<f64>,
    all: Vec<f64>,
    took: f64,
}

impl Scenario for Http {
    fn check(&self, section: &mut Section<'_>) {
        kind::check(&self.shaper, section);
        section.range("limit", self.limit, Rate(100_000)..=Rate::from_mbit(1_000));
        let millis = Nanos::from_millis;
        section.range("round_trip", self.round_trip, Nanos(1_000)..=millis(1_000));
        section.range("requests", self.requests, 10..=60_000);
        section.range("clients", self.clients, 1..=1_000);
        section.range("load", self.load, 1..=200);
    }

    fn outline(&self) -> Vec<Variant> {
        let nothing = PageTimes::default();
        let names = self.variants().into_iter();
        names.map(|(name, ..)| variant(&name, &nothing)).collect()
    }

    fn run(&self, run: &mut Run<'_, Threads>) -> Result<RunOutput, ExperimentError> {
        let variants = self.variants();
        let seed = run.seed;
        let name = |(name, ..): &(String, &Shaped, Loop)| name.clone();
        let watched = parallel::map(run, &variants, name, |(_, shaped, kind)| {
            Ok::<_, Infallible>(Server::new(self, shaped, *kind, seed).run())
        })?;
        let mut found = RunOutput::default();
        for ((name, ..), it) in variants.iter().zip(&watched) {
            found.variants.push(variant(name, it));
        }
        found.condition("limit", self.limit.to_string());
        found.condition("clients", self.clients);
        found.condition("open_load", format!("{} %", self.load));
        Ok(found)
    }
}

impl Http {
    fn variants(&self) -> Vec<(String, &Shaped, Loop)> {
        let shapers = self.shaper.iter();
        let all = shapers.flat_map(|shaped| {
            let loops = [("closed", Loop::Closed), ("open", Loop::Open)];
            loops.map(|(word, kind)| (format!("{}-{word}", shaped.name), shaped, kind))
        });
        all.collect()
    }
}

/// A server and its clients.
struct Server<'h> {
    http: &'h Http,
    kind: Loop,
    guest: Guest,
    random: Pcg64,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    /// Number of events; it orders simultaneous ones.
    count: u64,
    pages: Vec<Page>,
    watched: PageTimes,
}

impl<'h> Server<'h> {
    fn new(http: &'h Http, shaped: &Shaped, kind: Loop, seed: u64) -> Self {
        Self {
            http,
            kind,
            guest: Guest::new(shaped.config(http.limit).as_ref()),
            random: Pcg64::seed_from_u64(seed),
            events: BinaryHeap::new(),
            count: 0,
            pages: Vec::new(),
            watched: PageTimes::default(),
        }
    }

    fn at(&mut self, at: Nanos, event: Event) {
        self.count += 1;
        self.events.push(Reverse((at, self.count, event)));
    }

    fn run(mut self) -> PageTimes {
        match self.kind {
            Loop::Closed => (0..self.http.clients).for_each(|_| self.at(Nanos::ZERO, Event::Begin)),
            Loop::Open => self.at(Nanos::ZERO, Event::Begin),
        }
        let trip = Nanos(self.http.round_trip.0 / 2);
        loop {
            let next = self.events.peek().map(|Reverse((at, ..))| *at);
            let times = [next, self.guest.poll_at()];
            let Some(now) = times.into_iter().flatten().min() else {
                return self.watched;
            };
            while let Some(Reverse((at, ..))) = self.events.peek()
                && *at <= now
                && let Some(Reverse((_, _, event))) = self.events.pop()
            {
                self.handle(now, event);
            }
            let mut left = Vec::new();
            self.guest.leave(now, |frame| left.push(frame));
            for frame in left {
                let page = frame.id as u32;
                match frame.control {
                    None => self.at(now + trip, Event::Received(page)),
                    Some(Control::Opening) => self.at(now + trip, Event::Connected(page)),
                    Some(_) => {}
                }
            }
        }
    }

    fn handle(&mut self, now: Nanos, event: Event) {
        let trip = Nanos(self.http.round_trip.0 / 2);
        match event {
            Event::Begin => self.begin(now),
            Event::Opened(page) => self.send(page, SYN, Some(Control::Opening)),
            Event::Connected(page) => {
                self.pages[page as usize].connected = now;
                self.at(now + trip, Event::Requested(page));
            }
            Event::Requested(page) => {
                self.send(page, ACK, Some(Control::Acknowledgement));
                self.send_some(page);
            }
            Event::Received(page) => {
                let it = &mut self.pages[page as usize];
                let connected = it.connected;
                it.waited.get_or_insert(now.since(connected));
                it.received += 1;
                let is_whole = it.received == it.segments;
                self.at(now + trip, Event::Acknowledged(page));
                if is_whole {
                    self.end(now, page);
                }
            }
            Event::Acknowledged(page) => {
                let it = &mut self.pages[page as usize];
                it.window += 1;
                it.flying -= 1;
                self.send_some(page);
            }
        }
    }

    fn begin(&mut self, now: Nanos) {
        let number = self.pages.len() as u32;
        if number >= self.http.requests {
            return;
        }
        let mut place = self.random.random_range(0..10u32);
        let size = PAGES.iter().find(|(_, of_ten)| {
            let is_it = place < *of_ten;
            place = place.saturating_sub(*of_ten);
            is_it
        });
        let size = size.map_or(0, |(size, _)| size * 1024) + ANSWER;
        self.pages.push(Page {
            begun: now,
            connected: now,
            waited: None,
            segments: size.div_ceil(PAYLOAD) as u32,
            sent: 0,
            received: 0,
            window: FIRST,
            flying: 0,
        });
        let trip = Nanos(self.http.round_trip.0 / 2);
        self.at(now + trip, Event::Opened(number));
        if self.kind == Loop::Open {
            let each = self.http.limit.time_for(Bytes(MEAN)).0 * 100 / self.http.load;
            let uniform: f64 = self.random.random();
            let pause = -(1.0 - uniform).ln() * each as f64;
            self.at(now + Nanos(pause as u64), Event::Begin);
        }
    }

    fn send(&mut self, page: u32, len: usize, control: Option<Control>) {
        self.guest.send(PacketRecord {
            id: page.into(),
            control,
            port: page as u16,
            ..PacketRecord::new(len)
        });
    }

    /// Sends the segments that the window of a page allows, all of full size.
    fn send_some(&mut self, page: u32) {
        loop {
            let it = &mut self.pages[page as usize];
            if it.sent == it.segments || it.flying == it.window {
                return;
            }
            it.sent += 1;
            it.flying += 1;
            self.send(page, HEADERS + PAYLOAD, None);
        }
    }

    fn end(&mut self, now: Nanos, page: u32) {
        let it = self.pages[page as usize];
        let watched = &mut self.watched;
        watched
            .connected
            .push(it.connected.since(it.begun).as_millis_f64());
        let waited = it.waited.unwrap_or_default();
        watched.waited.push(waited.as_millis_f64());
        watched.all.push(now.since(it.begun).as_millis_f64());
        watched.took = now.as_secs_f64();
        if self.kind == Loop::Closed {
            self.at(now, Event::Begin);
        }
    }
}

fn variant(name: &str, it: &PageTimes) -> Variant {
    let sorted = |times: &[f64]| {
        let mut sorted = times.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted
    };
    let (connected, waited) = (sorted(&it.connected), sorted(&it.waited));
    let all = sorted(&it.all);
    Variant::of_values(
        name,
        [
            ("connect_p50", percentile(&connected, 50.0), "ms"),
            ("connect_p99", percentile(&connected, 99.0), "ms"),
            ("connect_max", percentile(&connected, 100.0), "ms"),
            ("wait_p50", percentile(&waited, 50.0), "ms"),
            ("wait_p99", percentile(&waited, 99.0), "ms"),
            ("wait_max", percentile(&waited, 100.0), "ms"),
            ("all_p99", percentile(&all, 99.0), "ms"),
            ("requests_s", it.all.len() as f64 / it.took, "1/s"),
        ],
    )
}
