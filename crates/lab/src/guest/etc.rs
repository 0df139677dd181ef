//! A client of memcached with the key sizes, value sizes and times between requests
//! of Facebook's ETC pool.
//!
//! Closed loop: a worker has one connection and one request on it. The next one is
//! due a random time after the one before *was* due, and goes out then, or as soon
//! as the answer is in. So the load is what was asked for as long as answers come in
//! time, and falls when they do not, as with Silo's synchronous clients (6.1). Time
//! counts from sending: what became due while a worker waited shows in the requests
//! answered, not in their time.

mod draw;

use super::events::{ALARM, Events, is_retry};
use super::{Outcome, Sample, Schedule, Starter, now};
use crate::arrivals::seed_for;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};
use tailbound_units::{Bytes, Nanos};

/// Values that a client keeps on the server.
const ITEMS: usize = 256;
/// How long a server may take to listen, and to store a value.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct Config {
    pub(super) server: SocketAddrV4,
    pub(super) workers: usize,
    pub(super) mean_gap: Nanos,
    pub(super) largest: Bytes,
    pub(super) seed: u64,
}

/// A value on the server: how it is asked for, and how long the answer is.
struct Item {
    request: Vec<u8>,
    answer: u64,
}

/// A request that is out.
struct Pending {
    sample: Sample,
    item: usize,
    sent: usize,
    missing: u64,
}

struct Worker {
    stream: TcpStream,
    random: Pcg64Mcg,
    /// When the next request is to go out.
    due: Nanos,
    /// Its number.
    number: u32,
    pending: Option<Pending>,
}

struct Client<'a> {
    config: &'a Config,
    items: Vec<Item>,
    workers: Vec<Worker>,
    outcome: Outcome,
    buffer: Vec<u8>,
}

pub(super) fn run(starter: &Starter<'_>, config: &Config) -> io::Result<()> {
    let mut client = Client {
        config,
        items: store(config)?,
        workers: Vec::with_capacity(config.workers),
        outcome: Outcome::default(),
        buffer: vec![0; 64 << 10],
    };
    let mut events = Events::new()?;
    for place in 0..config.workers {
        let stream = connect(config.server)?;
        stream.set_nonblocking(true)?;
        events.add(&stream, place as u64)?;
        client.workers.push(Worker {
            stream,
            random: Pcg64Mcg::seed_from_u64(seed_for(config.seed, &format!("worker {place}"))),
            due: Nanos::ZERO,
            number: place as u32,
            pending: None,
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
                if worker.pending.is_some() {
                    waiting = true;
                } else if worker.due < schedule.to && at < schedule.to {
                    alarm = alarm.min(worker.due);
                }
            }
            if over || !waiting && alarm == schedule.give_up {
                let pending = self.workers.iter().filter_map(|w| w.pending.as_ref());
                let counted = pending.filter(|pending| schedule.counts(pending.sample.start));
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

    /// Lets a worker send its next request if it is time.
    fn ask(&mut self, place: usize, schedule: &Schedule) -> io::Result<()> {
        let worker = &mut self.workers[place];
        let at = now();
        // What became due in time may go out late, but not after the end.
        if worker.pending.is_some() || worker.due > at || at >= schedule.to {
            return Ok(());
        }
        let item = worker.random.random_range(0..self.items.len());
        worker.pending = Some(Pending {
            sample: Sample {
                arrival: worker.number,
                start: at,
                end: at,
            },
            item,
            sent: 0,
            missing: self.items[item].answer,
        });
        worker.number = worker.number.wrapping_add(self.config.workers as u32);
        worker.next(self.config.mean_gap);
        self.send(place)
    }

    fn send(&mut self, place: usize) -> io::Result<()> {
        let worker = &mut self.workers[place];
        let Some(pending) = &mut worker.pending else {
            return Ok(());
        };
        let request = &self.items[pending.item].request;
        while pending.sent < request.len() {
            match worker.stream.write(&request[pending.sent..]) {
                Ok(written) => pending.sent += written,
                Err(error) if is_retry(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn proceed(&mut self, place: usize, schedule: &Schedule) -> io::Result<()> {
        self.send(place)?;
        loop {
            let worker = &mut self.workers[place];
            let length = match worker.stream.read(&mut self.buffer) {
                Ok(0) => return Err(io::ErrorKind::ConnectionReset.into()),
                Ok(length) => length as u64,
                Err(error) if is_retry(&error) => return Ok(()),
                Err(error) => return Err(error),
            };
            let Some(pending) = &mut worker.pending else {
                return Err(io::Error::other("memcached answers what nobody asked"));
            };
            pending.missing = pending.missing.saturating_sub(length);
            if pending.missing > 0 {
                continue;
            }
            let mut sample = pending.sample;
            worker.pending = None;
            sample.end = now();
            if schedule.counts(sample.start) {
                self.outcome.samples.push(sample);
            }
            self.outcome.amount += u64::from(schedule.counts(sample.end));
        }
    }
}

impl Worker {
    fn next(&mut self, mean_gap: Nanos) {
        let gap = draw::gap(&mut self.random, mean_gap);
        self.due = self.due.saturating_add(gap);
    }
}

/// A connection; the server may have just been started.
fn connect(server: SocketAddrV4) -> io::Result<TcpStream> {
    let begun = Instant::now();
    loop {
        match TcpStream::connect_timeout(&server.into(), PATIENCE) {
            Ok(stream) => {
                super::control_congestion(&stream)?;
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error)
                if error.kind() == io::ErrorKind::ConnectionRefused
                    && begun.elapsed() < PATIENCE =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => {
                let message = format!("memcached at {server}: {error}");
                return Err(io::Error::new(error.kind(), message));
            }
        }
    }
}

/// Puts values of random sizes on the server.
fn store(config: &Config) -> io::Result<Vec<Item>> {
    let mut random = Pcg64Mcg::seed_from_u64(seed_for(config.seed, "items"));
    let mut stream = connect(config.server)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut items = Vec::with_capacity(ITEMS);
    let mut commands = Vec::new();
    for place in 0..ITEMS {
        // Clients differ by their seeds, so one never changes another's values.
        let unique = format!("{:08x}.{place:x}", config.seed as u32);
        let key = format!("{unique:.<0$}", draw::key(&mut random));
        let size = draw::value(&mut random, config.largest.as_u64());
        write!(commands, "set {key} 0 0 {size}\r\n")?;
        commands.resize(commands.len() + size as usize, b'x');
        commands.extend(b"\r\n");
        items.push(Item {
            answer: format!("VALUE {key} 0 {size}\r\n").len() as u64 + size + END.len() as u64,
            request: format!("get {key}\r\n").into_bytes(),
        });
    }
    stream.write_all(&commands)?;
    let replies = BufReader::new(io::Read::take(&stream, 512 * ITEMS as u64)).lines();
    for reply in replies.take(ITEMS) {
        let reply = reply?;
        if reply != "STORED" {
            let message = format!("memcached at {} does not store: {reply}", config.server);
            return Err(io::Error::other(message));
        }
    }
    Ok(items)
}

/// What ends an answer, after the value.
const END: &str = "\r\nEND\r\n";
