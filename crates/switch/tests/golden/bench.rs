//! A switch on ports that replay one capture and write another, in manual time.

use super::frames::{Capture, SEGMENT};
use super::record::{Line, Record};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tailbound_dataplane::{GuestId, HashKeys, Pacer, Packet, Pool};
use tailbound_switch::port::{Burst, More, Outgoing, PcapPort, Port, TransmitResult};
use tailbound_switch::{PortIndex, Switch, SwitchConfig, UPLINK};
use tailbound_units::{Nanos, Rate};

/// The time at which the captures begin.
const START: Nanos = Nanos::from_secs(1);

/// The interval at which the bytes sent to each destination are sampled.
const SAMPLE: Nanos = Nanos::from_millis(2);

/// Data of a port beside its capture, and its settings.
#[derive(Debug, Default)]
struct Tape {
    /// Launch times of sent items, voids included.
    launches: Vec<Option<Nanos>>,
    /// The number of items that the port takes before it is full; `None`: unlimited.
    room: Option<usize>,
}

/// A pcap port with an offload, and one that can be full.
struct Recorder {
    port: PcapPort,
    tape: Arc<Mutex<Tape>>,
}

/// Makes the virtio header of a guest's kernel for a TCP packet that is longer than a frame.
pub(crate) fn virtio(len: usize) -> Option<[u8; 10]> {
    let mut header = [1, 1, 54, 0, 0, 0, 34, 0, 16, 0];
    header[4..6].copy_from_slice(&(SEGMENT as u16).to_le_bytes());
    (len > 1514).then_some(header)
}

impl Port for Recorder {
    fn receive(&mut self, now: Nanos, pool: &Pool, burst: &mut Burst) -> io::Result<More> {
        let more = self.port.receive(now, pool, burst)?;
        for frame in &mut burst.frames {
            frame.virtio = virtio(frame.len);
        }
        Ok(more)
    }

    fn transmit(
        &mut self,
        now: Nanos,
        outgoing: &mut VecDeque<Outgoing>,
    ) -> io::Result<TransmitResult> {
        let mut tape = self.tape.lock().expect("no thread panicked");
        let count = outgoing.len().min(tape.room.unwrap_or(usize::MAX));
        tape.room = tape.room.map(|room| room - count);
        let mut taken: VecDeque<_> = outgoing.drain(..count).collect();
        tape.launches.extend(taken.iter().map(|next| match next {
            Outgoing::Frame { launch_at, .. } => *launch_at,
            Outgoing::Void { .. } => None,
        }));
        let mut sent = self.port.transmit(now, &mut taken)?;
        sent.full = !outgoing.is_empty();
        Ok(sent)
    }

    fn receive_at(&self) -> Option<Nanos> {
        self.port.receive_at()
    }
}

/// A switch, its ports, and the time.
pub(crate) struct Bench {
    pub(crate) switch: Switch,
    names: Vec<String>,
    ports: Vec<Option<Box<dyn Port>>>,
    /// Ports that the configuration does not name at present.
    idle: BTreeMap<String, Box<dyn Port>>,
    tapes: BTreeMap<String, Arc<Mutex<Tape>>>,
    directory: tempfile::TempDir,
    now: Nanos,
    /// Source of the loop's lateness, which changes with each wake-up.
    dice: u64,
    next_sample: Option<Nanos>,
    lines: Vec<Line>,
}

impl Bench {
    /// Makes a switch of `config`, with the received frames of each port.
    pub(crate) fn new(config: &SwitchConfig, captures: Vec<(&str, Capture)>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut bench = Self {
            switch: Switch::with_keys(config.clone(), HashKeys::FIXED).expect("no rule"),
            names: Vec::new(),
            ports: Vec::new(),
            idle: BTreeMap::new(),
            tapes: BTreeMap::new(),
            directory,
            now: START,
            dice: 1,
            next_sample: None,
            lines: Vec::new(),
        };
        for (name, capture) in captures {
            let read = bench.path(name, "in");
            capture.write(&read);
            let write = bench.path(name, "out");
            let port = PcapPort::open(Some(&read), Some(&write), Duration::ZERO);
            let tape = Arc::<Mutex<Tape>>::default();
            let recorder = Recorder {
                port: port.expect("a capture"),
                tape: Arc::clone(&tape),
            };
            bench.tapes.insert(name.to_owned(), tape);
            bench.idle.insert(name.to_owned(), Box::new(recorder));
        }
        bench.connect(config);
        bench
    }

    fn path(&self, name: &str, way: &str) -> PathBuf {
        self.directory.path().join(format!("{name}.{way}.pcap"))
    }

    /// Connects the ports that `config` names.
    fn connect(&mut self, config: &SwitchConfig) {
        let ports = self.names.drain(..).zip(self.ports.drain(..));
        self.idle
            .extend(ports.filter_map(|(name, port)| Some((name, port?))));
        let uplink = config.uplink.iter().map(|_| UPLINK);
        let guests = config.guests.iter().map(|guest| guest.name.as_str());
        for name in uplink.chain(guests) {
            self.names.push(name.to_owned());
            self.ports.push(self.idle.remove(name));
        }
    }

    /// Reloads to `config`, with its guests in any order.
    pub(crate) fn reconfigure(&mut self, what: &str, config: SwitchConfig) {
        self.connect(&config);
        let result = self.switch.reconfigure(self.now, config);
        let refused = if result.is_err() { ", refused" } else { "" };
        self.note(format!("reload: {what}{refused}"));
    }

    /// Adds an event to the record.
    pub(crate) fn note(&mut self, what: String) {
        self.lines.push(Line::note(self.now, what));
    }

    /// Sets the number of items that a port takes before it is full.
    pub(crate) fn set_room(&mut self, name: &str, room: Option<usize>) {
        self.tapes[name].lock().expect("no thread panicked").room = room;
        let index = self.names.iter().position(|known| known == name);
        self.switch
            .handle_writable(PortIndex(index.expect("a port")));
    }

    /// Starts sampling the bytes sent to each destination, as the exchange of rates does.
    pub(crate) fn sample(&mut self) {
        self.next_sample = Some(self.now);
    }

    pub(crate) fn pacer(&mut self) -> &mut Pacer<Packet> {
        self.switch.pacer().expect("the uplink is paced")
    }

    /// Limits a guest's rate to one destination, as the exchange of rates does.
    pub(crate) fn limit(
        &mut self,
        guest: u32,
        station: super::frames::Station,
        rate: Option<Rate>,
    ) {
        let now = self.now;
        let destination = station.ip.to_ipv6_mapped().to_bits();
        let guest = GuestId::first(guest);
        let set = self.pacer().set_destination(now, guest, destination, rate);
        set.expect("no rule is broken");
        let rate = rate.map_or("no limit".to_owned(), |rate| rate.to_string());
        self.note(format!("limit: {} to {}: {rate}", guest.slot(), station.ip));
    }

    pub(crate) fn now(&self) -> Nanos {
        self.now
    }

    /// Runs until `millis` milliseconds after the start, late by up to 30 us each time.
    pub(crate) fn run(&mut self, millis: u64) {
        let until = START + Nanos::from_millis(millis);
        for _ in 0..100_000 {
            let turn = self.switch.poll(self.now, &mut self.ports);
            assert!(turn.gone.is_empty(), "a capture vanished");
            self.take_samples();
            if turn.busy {
                // The next turn is not for free.
                self.now += Nanos(700);
                continue;
            }
            let next = self.switch.poll_at(&self.ports);
            let next = next.into_iter().chain(self.next_sample).min();
            match next.map(|at| at.max(self.now)) {
                Some(at) if at < until => self.now = at + self.lateness(),
                _ => {
                    self.now = until;
                    return;
                }
            }
        }
        let snapshot = self.switch.snapshot(&mut self.ports);
        panic!(
            "the switch is busy for ever at {}: {}",
            self.now,
            super::record::counters(&snapshot)
        );
    }

    fn lateness(&mut self) -> Nanos {
        self.dice = self
            .dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        match self.dice >> 61 {
            0 => Nanos(self.dice >> 32 & 0x7fff),
            _ => Nanos(self.dice >> 32 & 0x3ff),
        }
    }

    fn take_samples(&mut self) {
        let now = self.now;
        if self.next_sample.is_none_or(|next| next > now) {
            return;
        }
        self.next_sample = Some(now + SAMPLE);
        let mut used = Vec::new();
        self.pacer().destinations_used(now, |flow| {
            let destination = flow.flow.destination as u32;
            let backlogged = if flow.backlogged { " backlogged" } else { "" };
            used.push(format!(
                "used: {} to {}: {} B{backlogged}",
                flow.flow.source.slot(),
                std::net::Ipv4Addr::from_bits(destination),
                flow.taken.0,
            ));
        });
        used.sort();
        for line in used {
            self.note(line);
        }
    }

    /// Returns the record of events and counters.
    pub(crate) fn finish(mut self) -> Record {
        let counters = super::record::counters(&self.switch.snapshot(&mut self.ports));
        let waiting = self.switch.waiting(&self.ports);
        // Captures are complete when their ports are dropped.
        self.ports.clear();
        self.idle.clear();
        let mut record = Record::new(std::mem::take(&mut self.lines));
        for (name, tape) in &self.tapes {
            record.add_port(
                name,
                &self.path(name, "out"),
                &tape.lock().expect("no thread panicked").launches,
            );
        }
        record.add_counters(&counters, waiting);
        record
    }
}
