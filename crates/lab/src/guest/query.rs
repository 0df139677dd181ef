//! Sends requests at random times and measures until the last byte of each answer.
//!
//! Open loop: a request starts at its scheduled time, independently of earlier requests. Each
//! connection carries one request at a time; if all are busy, another connection is opened. Latency
//! counts from the *scheduled* start, so that a late answer hides nothing (no coordinated
//! omission).

use super::events::{ALARM, Events};
use super::stream::{Exchange, connect};
use super::{Outcome, Sample, Schedule, Starter, now, protocol};
use crate::arrivals::{Arrival, poisson};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddrV4, TcpStream};
use std::rc::Rc;
use std::time::Duration;
use tailbound_units::{Bytes, Nanos};

/// Limit of connections to one server, above which the server counts as lost.
const MAX_CONNECTIONS: usize = 2048;

/// Configuration of the client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Queries {
    /// The servers.
    pub servers: Vec<SocketAddrV4>,
    /// The size of an answer.
    pub answer: Bytes,
    /// The mean time between requests.
    pub mean_gap: Nanos,
    /// Connections to each server that are open from the start.
    pub connections: usize,
    /// Seed of the arrivals.
    pub seed: u64,
}

struct Connection {
    exchange: Exchange,
    server: usize,
}

struct Client<'a> {
    config: &'a Queries,
    request: Rc<[u8]>,
    answer_length: u64,
    events: Events,
    connections: Vec<Connection>,
    /// Idle connections to each server, the connection with the longest idle time first.
    idle: Vec<VecDeque<usize>>,
    outcome: Outcome,
    buffer: Vec<u8>,
}

pub(super) fn run(starter: &Starter<'_>, span: Nanos, config: &Queries) -> io::Result<()> {
    let arrivals = poisson(config.seed, config.mean_gap, span, config.servers.len());
    let mut client = Client::new(config, arrivals.len())?;
    client.connect_all()?;
    let schedule = starter.ready()?;
    client.run(&schedule, &arrivals)?;
    client.outcome.samples.sort_by_key(|sample| sample.arrival);
    starter.finish(&client.outcome)
}

impl<'a> Client<'a> {
    fn new(config: &'a Queries, arrivals: usize) -> io::Result<Self> {
        let size = u32::try_from(config.answer.as_u64()).unwrap_or(protocol::MAX_ANSWER);
        Ok(Self {
            config,
            request: protocol::request(size).into(),
            answer_length: u64::from(size),
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

    /// Opens the connections that are open from the start.
    fn connect_all(&mut self) -> io::Result<()> {
        for (server, address) in self.config.servers.iter().enumerate() {
            for _ in 0..self.config.connections {
                let patience = Duration::from_secs(5);
                let stream = TcpStream::connect_timeout(&(*address).into(), patience)
                    .map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))?;
                stream.set_nonblocking(true)?;
                super::control_congestion(&stream)?;
                let key = self.add(stream, server)?;
                self.idle[server].push_back(key);
            }
        }
        Ok(())
    }

    fn add(&mut self, stream: TcpStream, server: usize) -> io::Result<usize> {
        stream.set_nodelay(true)?;
        let key = self.connections.len();
        self.events.add(&stream, key as u64)?;
        let exchange = Exchange::new(stream);
        self.connections.push(Connection { exchange, server });
        Ok(key)
    }

    /// Begins to open another connection; the request follows when it is established.
    fn connect_another(&mut self, server: usize) -> io::Result<usize> {
        if self.connections.len() >= MAX_CONNECTIONS * self.config.servers.len() {
            return Err(io::Error::other(format!(
                "{MAX_CONNECTIONS} requests to each server wait for an answer"
            )));
        }
        let stream = connect(self.config.servers[server])?;
        self.add(stream, server)
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
            let waiting = || {
                self.connections
                    .iter()
                    .filter_map(|it| it.exchange.waits_since())
            };
            if over || next == arrivals.len() && waiting().next().is_none() {
                let counted = waiting().filter(|start| schedule.counts(*start));
                self.outcome.unanswered = counted.count() as u64;
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
        let sample = Sample {
            arrival,
            start,
            end: start,
        };
        let (request, answer) = (Rc::clone(&self.request), self.answer_length);
        let result = self.connections[key].exchange.ask(sample, request, answer);
        result.map_err(|error| self.lost(key, &error))
    }

    fn proceed(&mut self, key: usize, schedule: &Schedule) -> io::Result<()> {
        let connection = &mut self.connections[key];
        let answered = connection.exchange.proceed(&mut self.buffer);
        if let Some(sample) = answered.map_err(|error| self.lost(key, &error))? {
            if schedule.counts(sample.start) {
                self.outcome.samples.push(sample);
            }
            self.idle[self.connections[key].server].push_back(key);
        }
        Ok(())
    }

    fn lost(&self, key: usize, error: &io::Error) -> io::Error {
        let server = self.config.servers[self.connections[key].server];
        io::Error::new(
            error.kind(),
            format!("the connection to {server} is lost: {error}"),
        )
    }
}
