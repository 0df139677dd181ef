//! A client of memcached with the key sizes, value sizes and times between requests of Facebook's
//! ETC pool.
//!
//! Closed loop: a worker has one connection and one request on it. The next request is due a random
//! time after the previous one *was* due, and is sent at that time or after the answer. The load is
//! therefore exact as long as answers arrive in time, and falls otherwise, as with Silo's
//! synchronous clients (6.1). Latency counts from sending: requests that became due while a worker
//! waited reduce the number of answered requests and not their latency.

mod draw;

use super::events::{ALARM, Events};
use super::stream::Exchange;
use super::{Outcome, Sample, Schedule, Starter, memcached, now};
use crate::arrivals::seed_for;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddrV4;
use std::rc::Rc;
use std::time::Duration;
use tailbound_units::{Bytes, Nanos};

/// Number of a client's values on the server.
const ITEMS: usize = 256;
/// Time limit for a server to store a value.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// Configuration of the requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    /// Address of memcached.
    pub server: SocketAddrV4,
    /// Connections, each with one request at a time.
    pub workers: usize,
    /// The mean time between two requests of each worker.
    pub mean_gap: Nanos,
    /// The size of the largest value.
    pub largest: Bytes,
    /// Seed of sizes and times.
    pub seed: u64,
}

/// A value on the server: its request, and the length of its answer.
struct Item {
    request: Rc<[u8]>,
    answer: u64,
}

struct Worker {
    exchange: Exchange,
    random: Pcg64Mcg,
    /// Due time of the next request.
    due: Nanos,
    /// Number of the next request.
    number: u32,
}

struct Client<'a> {
    config: &'a Requests,
    items: Vec<Item>,
    workers: Vec<Worker>,
    outcome: Outcome,
    buffer: Vec<u8>,
}

pub(super) fn run(starter: &Starter<'_>, config: &Requests) -> io::Result<()> {
    let mut client = Client {
        config,
        items: store(config)?,
        workers: Vec::with_capacity(config.workers),
        outcome: Outcome::default(),
        buffer: vec![0; 64 << 10],
    };
    let mut events = Events::new()?;
    for place in 0..config.workers {
        let stream = memcached::connect(config.server)?;
        stream.set_nonblocking(true)?;
        events.add(&stream, place as u64)?;
        client.workers.push(Worker {
            exchange: Exchange::new(stream),
            random: Pcg64Mcg::seed_from_u64(seed_for(config.seed, &format!("worker {place}"))),
            due: Nanos::ZERO,
            number: place as u32,
        });
    }
    let schedule = starter.ready()?;
    client.run(&mut events, &schedule)?;
    client.outcome.samples.sort_by_key(|sample| sample.arrival);
    client.outcome.time = schedule.to.since(schedule.from);
    starter.finish(&client.outcome)
}

impl Client<'_> {
    fn run(&mut self, events: &mut Events, schedule: &Schedule) -> io::Result<()> {
        for worker in &mut self.workers {
            worker.due = schedule.start;
            worker.next(self.config.mean_gap);
        }
        let mut happened = Vec::new();
        loop {
            let at = now();
            let over = at >= schedule.give_up;
            let mut alarm = schedule.give_up;
            let mut waiting = false;
            for place in 0..self.workers.len() {
                self.ask(place, schedule)?;
                let worker = &self.workers[place];
                if worker.exchange.waits_since().is_some() {
                    waiting = true;
                } else if worker.due < schedule.to && at < schedule.to {
                    alarm = alarm.min(worker.due);
                }
            }
            if over || !waiting && alarm == schedule.give_up {
                let pending = self
                    .workers
                    .iter()
                    .filter_map(|it| it.exchange.waits_since());
                let counted = pending.filter(|start| schedule.counts(*start));
                self.outcome.unanswered = counted.count() as u64;
                return Ok(());
            }
            events.set_alarm(alarm)?;
            events.wait(&mut happened)?;
            for key in happened.iter().filter(|key| **key != ALARM) {
                self.proceed(*key as usize, schedule)?;
            }
        }
    }

    /// Sends a worker's next request if it is due.
    fn ask(&mut self, place: usize, schedule: &Schedule) -> io::Result<()> {
        let worker = &mut self.workers[place];
        let at = now();
        // A request that became due in time may be sent late, but not after the end.
        if worker.exchange.waits_since().is_some() || worker.due > at || at >= schedule.to {
            return Ok(());
        }
        let item = &self.items[worker.random.random_range(0..self.items.len())];
        let sample = Sample {
            arrival: worker.number,
            start: at,
            end: at,
        };
        worker.number = worker.number.wrapping_add(self.config.workers as u32);
        worker.next(self.config.mean_gap);
        worker
            .exchange
            .ask(sample, Rc::clone(&item.request), item.answer)
    }

    fn proceed(&mut self, place: usize, schedule: &Schedule) -> io::Result<()> {
        let exchange = &mut self.workers[place].exchange;
        if let Some(sample) = exchange.proceed(&mut self.buffer)? {
            if schedule.counts(sample.start) {
                self.outcome.samples.push(sample);
            }
            self.outcome.amount += u64::from(schedule.counts(sample.end));
        }
        Ok(())
    }
}

impl Worker {
    fn next(&mut self, mean_gap: Nanos) {
        let gap = draw::gap(&mut self.random, mean_gap);
        self.due = self.due.saturating_add(gap);
    }
}

/// Stores values of random sizes on the server.
fn store(config: &Requests) -> io::Result<Vec<Item>> {
    let mut random = Pcg64Mcg::seed_from_u64(seed_for(config.seed, "items"));
    let stream = memcached::connect(config.server)?;
    stream.set_read_timeout(Some(STORE_TIMEOUT))?;
    let mut items = Vec::with_capacity(ITEMS);
    let mut values = Vec::with_capacity(ITEMS);
    for place in 0..ITEMS {
        // Clients differ by their seeds, so a client never changes another's values.
        let unique = format!("{:08x}.{place:x}", config.seed as u32);
        let key = format!("{unique:.<0$}", draw::key(&mut random));
        let size = draw::value(&mut random, config.largest.as_u64());
        items.push(Item {
            answer: memcached::answer_length(&key, size),
            request: memcached::request(&key).into(),
        });
        values.push((key, size));
    }
    memcached::store(stream, &values)?;
    Ok(items)
}
