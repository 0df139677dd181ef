//! Sends requests at random moments and measures until the last byte of each
//! answer.
//!
//! Open loop: a request starts when its moment comes, whatever became of the
//! ones before. Each connection carries one request at a time; when all are
//! busy another is opened. Time counts from when the request was *to* start, so
//! a late answer hides nothing (no coordinated omission).

use super::events::{ALARM, Events, is_retry};
use super::{Outcome, Protocol, Sample, Schedule, Starter, Task, memcached, now, protocol};
use crate::arrivals::{Arrival, poisson};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::time::Duration;
use tailbound_units::{Bytes, Nanos};

/// More connections than this to one server mean that it is lost.
const MAX_CONNECTIONS: usize = 2048;

pub(super) struct Config<'a> {
    pub(super) servers: &'a [SocketAddrV4],
    pub(super) protocol: Protocol,
    pub(super) answer: Bytes,
    pub(super) mean_gap: Nanos,
    pub(super) connections: usize,
    pub(super) seed: u64,
}

/// A request that is out.
struct Pending {
    sample: Sample,
    unsent: usize,
    missing: u64,
}

struct Connection {
    stream: TcpStream,
    server: usize,
    pending: Option<Pending>,
}

struct Client<'a> {
    config: &'a Config<'a>,
    request: Vec<u8>,
    answer_length: u64,
    events: Events,
    connections: Vec<Connection>,
    /// Idle connections to each server, the one that rested longest first.
    idle: Vec<VecDeque<usize>>,
    outcome: Outcome,
    buffer: Vec<u8>,
}

pub(super) fn run(starter: &Starter<'_>, task: &Task, config: &Config<'_>) -> io::Result<()> {
    let span = task.warmup + task.duration;
    let arrivals = poisson(config.seed, config.mean_gap, span, config.servers.len());
    let mut client = Client::new(config, arrivals.len())?;
    client.connect_all()?;
    let schedule = starter.ready()?;
    client.run(&schedule, &arrivals)?;
    client.outcome.samples.sort_by_key(|sample| sample.arrival);
    starter.finish(&client.outcome)
}

impl<'a> Client<'a> {
    fn new(config: &'a Config<'a>, arrivals: usize) -> io::Result<Self> {
        let size = config.answer.as_u64();
        let (request, answer_length) = match config.protocol {
            Protocol::Own => {
                let size = u32::try_from(size).unwrap_or(protocol::MAX_ANSWER);
                (protocol::request(size).to_vec(), u64::from(size))
            }
            Protocol::Memcached => {
                for server in config.servers {
                    memcached::store(*server, size)?;
                }
                (memcached::REQUEST.to_vec(), memcached::answer_length(size))
            }
        };
        Ok(Self {
            config,
            request,
            answer_length,
            events: Events::new()?,
            connections: Vec::new(),
            idle: vec![VecDeque::new(); config.servers.len()],
            outcome: Outcome {
                samples: Vec::with_capacity(arrivals),
                ..Outcome::default()
            },
            buffer: vec![0; 256 << 10],
        })
    }

    /// Opens the connections that are there from the start.
    fn connect_all(&mut self) -> io::Result<()> {
        for (server, address) in self.config.servers.iter().enumerate() {
            for _ in 0..self.config.connections {
                let patience = Duration::from_secs(5);
                let stream = TcpStream::connect_timeout(&(*address).into(), patience)
                    .map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))?;
                stream.set_nonblocking(true)?;
                let key = self.add(stream, server)?;
                self.idle[server].push_back(key);
            }
        }
        Ok(())
    }

    fn add(&mut self, stream: TcpStream, server: usize) -> io::Result<usize> {
        super::control_congestion(&stream)?;
        stream.set_nodelay(true)?;
        let key = self.connections.len();
        self.events.add(&stream, key as u64)?;
        self.connections.push(Connection {
            stream,
            server,
            pending: None,
        });
        Ok(key)
    }

    /// Starts to open another connection; the request follows when it is there.
    fn connect_another(&mut self, server: usize) -> io::Result<usize> {
        if self.connections.len() >= MAX_CONNECTIONS * self.config.servers.len() {
            return Err(io::Error::other(format!(
                "{MAX_CONNECTIONS} requests to each server wait for an answer"
            )));
        }
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&socket, &self.config.servers[server]) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        self.add(TcpStream::from(socket), server)
    }

    fn run(&mut self, schedule: &Schedule, arrivals: &[Arrival]) -> io::Result<()> {
        let mut next = 0;
        let mut happened = Vec::new();
        loop {
            let moment = |arrival: &Arrival| schedule.start.saturating_add(arrival.at);
            while let Some(arrival) = arrivals.get(next) {
                if moment(arrival) > now() {
                    break;
                }
                self.ask(next as u32, moment(arrival), arrival.peer)?;
                next += 1;
            }
            let over = now() >= schedule.give_up;
            let waiting = |connection: &&Connection| connection.pending.is_some();
            if over || next == arrivals.len() && !self.connections.iter().any(|c| waiting(&c)) {
                self.outcome.unanswered = self
                    .connections
                    .iter()
                    .filter_map(|connection| connection.pending.as_ref())
                    .filter(|pending| schedule.counts(pending.sample.start))
                    .count() as u64;
                return Ok(());
            }
            let alarm = arrivals.get(next).map_or(schedule.give_up, moment);
            self.events.set_alarm(alarm)?;
            self.events.wait(&mut happened)?;
            for key in happened.iter().filter(|key| **key != ALARM) {
                self.proceed(*key as usize, schedule)?;
            }
        }
    }

    fn ask(&mut self, arrival: u32, start: Nanos, server: usize) -> io::Result<()> {
        let key = match self.idle[server].pop_front() {
            Some(key) => key,
            None => self.connect_another(server)?,
        };
        self.connections[key].pending = Some(Pending {
            sample: Sample {
                arrival,
                start,
                end: start,
            },
            unsent: self.request.len(),
            missing: self.answer_length,
        });
        self.send(key)
    }

    /// Sends what is left of a request; what does not fit now goes when the
    /// socket says so.
    fn send(&mut self, key: usize) -> io::Result<()> {
        let connection = &mut self.connections[key];
        let Some(pending) = &mut connection.pending else {
            return Ok(());
        };
        while pending.unsent > 0 {
            let from = self.request.len() - pending.unsent;
            match connection.stream.write(&self.request[from..]) {
                Ok(written) => pending.unsent -= written,
                // Not connected yet: the socket becomes writable when it is.
                Err(error) if is_retry(&error) => break,
                Err(error) if error.kind() == io::ErrorKind::NotConnected => break,
                Err(error) => return Err(self.lost(key, &error)),
            }
        }
        Ok(())
    }

    fn proceed(&mut self, key: usize, schedule: &Schedule) -> io::Result<()> {
        self.send(key)?;
        loop {
            let connection = &mut self.connections[key];
            let length = match connection.stream.read(&mut self.buffer) {
                Ok(0) => return Err(self.lost(key, &io::ErrorKind::ConnectionReset.into())),
                Ok(length) => length as u64,
                Err(error) if is_retry(&error) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(()),
                Err(error) => return Err(self.lost(key, &error)),
            };
            let Some(pending) = &mut connection.pending else {
                return Err(io::Error::other("a server answers what nobody asked"));
            };
            pending.missing = pending.missing.saturating_sub(length);
            if pending.missing == 0 {
                let mut sample = pending.sample;
                sample.end = now();
                if schedule.counts(sample.start) {
                    self.outcome.samples.push(sample);
                }
                connection.pending = None;
                self.idle[connection.server].push_back(key);
            }
        }
    }

    fn lost(&self, key: usize, error: &io::Error) -> io::Error {
        let server = self.config.servers[self.connections[key].server];
        io::Error::new(
            error.kind(),
            format!("the connection to {server} is lost: {error}"),
        )
    }
}
