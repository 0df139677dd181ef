//! A host in virtual time: a switch, guests that write to rings, and a wire.

use super::frames::{
    NEIGHBOUR, NEIGHBOUR_IP, Neighbour, VICTIM, VICTIM_IP, greeting, number, victims,
};
use super::{Promise, frames};
use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tailbound_dataplane::pacer::void;
use tailbound_dataplane::{
    EgressConfig, Guarantee, HashKeys, PacedPipelineConfig, PacerConfig, Packet, Pool,
};
use tailbound_switch::port::{BURST, Burst, More, Outgoing, Port, Received, TransmitResult};
use tailbound_switch::{
    BudgetConfig, GuestConfig, Mac, PortIndex, SpoofFilter, Switch, SwitchConfig,
};
use tailbound_units::{Bytes, Nanos, Rate, WireBytes};

const LINK: Rate = Rate::from_mbit(100);
const START: Nanos = Nanos::from_secs(1);

/// The victim's messages: 6 KB every 2 ms on average, 24.6 Mbit/s.
const FRAMES: u32 = 4;
const MEAN_GAP: f64 = 2e6;

/// Frames that a ring holds: a TAP's.
const RING: u64 = 1000;
/// Most bytes of a conforming neighbour on the host: about 2 ms of its share of the link, or of its
/// guarantee.
const WINDOW: u64 = 12_000;

/// Measurements of the victim.
pub(crate) struct VictimMeasurements {
    /// For each message whose frames all arrived, in their order: the time from its arrival until
    /// its last byte has left.
    pub(crate) latencies: Vec<u64>,
    /// The rate of its frames on the wire, in Mbit/s, from the first arrival to the last departure.
    pub(crate) rate: f64,
    /// Frames of the neighbour that were read per second; `sent` has those on the wire.
    pub(crate) read: f64,
    pub(crate) sent: f64,
}

/// The frames on the uplink's wire.
#[derive(Default)]
struct Wire {
    /// The time up to which the wire is busy.
    taken: Nanos,
    /// The time at which each of the victim's frames has left, by number.
    ends: Vec<Option<Nanos>>,
}

/// Counters of a neighbour's frames.
#[derive(Default)]
struct FrameCounters {
    read: AtomicU64,
    sent: AtomicU64,
    /// Most of its frames on the host, if it conforms.
    window: u64,
}

impl FrameCounters {
    fn both(&self) -> (u64, u64) {
        let (read, sent) = (&self.read, &self.sent);
        (read.load(Ordering::Relaxed), sent.load(Ordering::Relaxed))
    }

    fn has_room(&self) -> bool {
        let (read, sent) = self.both();
        read < sent + self.window
    }
}

struct Uplink {
    wire: Arc<Mutex<Wire>>,
    neighbour: Arc<FrameCounters>,
    greets: bool,
}

impl Port for Uplink {
    fn receive(&mut self, _: Nanos, pool: &Pool, burst: &mut Burst) -> io::Result<More> {
        if std::mem::take(&mut self.greets) {
            receive(pool, burst, &greeting(), None);
        }
        Ok(More::No)
    }

    fn transmit(
        &mut self,
        now: Nanos,
        outgoing: &mut VecDeque<Outgoing>,
    ) -> io::Result<TransmitResult> {
        let mut wire = self.wire.lock().expect("no thread panicked");
        let mut sent = TransmitResult::default();
        wire.taken = wire.taken.max(now);
        for next in outgoing.drain(..) {
            let length: WireBytes = match &next {
                Outgoing::Frame { frame, .. } => void::on_the_wire(frame.bytes().len()),
                Outgoing::Void { wire } => *wire,
            };
            wire.taken += LINK.time_for(length.into());
            if let Outgoing::Frame { frame, .. } = &next {
                let end = wire.taken;
                if let Some(number) = number(frame.bytes()) {
                    wire.ends[number as usize] = Some(end);
                } else {
                    self.neighbour.sent.fetch_add(1, Ordering::Relaxed);
                }
            }
            sent.add(&next);
        }
        Ok(sent)
    }
}

/// Receives a frame.
fn receive(pool: &Pool, burst: &mut Burst, frame: &[u8], virtio: Option<[u8; 10]>) {
    let end = Packet::HEADROOM + frame.len();
    let mut buffer = pool.buffer(end);
    buffer[Packet::HEADROOM..end].copy_from_slice(frame);
    burst.frames.push(Received {
        buffer,
        start: Packet::HEADROOM,
        len: frame.len(),
        virtio,
    });
}

/// Arrival times of a guest's frames.
enum Arrivals {
    /// At these times.
    At(Vec<Nanos>),
    /// At this interval, without end; frames beyond the ring are lost.
    Every(Nanos),
    /// Whenever few of them are on the host.
    Window,
}

/// A guest's port.
struct Guest {
    arrivals: Arrivals,
    /// The number of the next frame.
    next: u64,
    frame: Box<dyn Fn(u64) -> frames::VirtioFrame + Send>,
    counted: Arc<FrameCounters>,
}

impl Guest {
    /// Returns the arrival time of the next frame; `None` if that depends on the host.
    fn comes(&self) -> Option<Nanos> {
        match &self.arrivals {
            Arrivals::At(moments) => moments.get(self.next as usize).copied(),
            Arrivals::Every(gap) => Some(START + Nanos(gap.0 * self.next)),
            Arrivals::Window => self.counted.has_room().then_some(START),
        }
    }
}

impl Port for Guest {
    fn receive(&mut self, now: Nanos, pool: &Pool, burst: &mut Burst) -> io::Result<More> {
        if let Arrivals::Every(gap) = self.arrivals {
            let came = now.since(START).0 / gap.0;
            self.next = self.next.max(came.saturating_sub(RING));
        }
        for _ in 0..BURST {
            if self.comes().is_none_or(|at| at > now) {
                return Ok(More::No);
            }
            let (frame, virtio) = (self.frame)(self.next);
            receive(pool, burst, &frame, virtio);
            self.next += 1;
            self.counted.read.fetch_add(1, Ordering::Relaxed);
        }
        Ok(More::Maybe)
    }

    fn transmit(
        &mut self,
        _: Nanos,
        outgoing: &mut VecDeque<Outgoing>,
    ) -> io::Result<TransmitResult> {
        outgoing.clear();
        Ok(TransmitResult::default())
    }

    fn receive_at(&self) -> Option<Nanos> {
        match self.arrivals {
            // Looked at after each turn.
            Arrivals::Window => None,
            _ => self.comes(),
        }
    }
}

/// Returns random arrival times of messages, each repeated for each of its frames.
fn messages(count: usize, frames: u32, mean: f64, mut random: u64) -> Vec<Nanos> {
    let mut at = START.0 as f64;
    let mut moments = Vec::new();
    for _ in 0..count {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let uniform = ((random >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
        at -= uniform.ln() * mean;
        moments.extend((0..frames).map(|_| Nanos(at as u64)));
    }
    moments
}

fn guarantee(promise: Promise) -> Option<Guarantee> {
    let rate = Rate::from_mbit(40);
    (promise == Promise::Guaranteed).then(|| Guarantee::new(rate, Bytes(24_000), rate))
}

fn guest(name: &str, mac: [u8; 6], ip: Ipv4Addr, promise: Promise) -> GuestConfig {
    GuestConfig {
        filter: Some(SpoofFilter::new(Mac(mac), [ip.into()])),
        groups: Some(BudgetConfig::default()),
        unknown: Some(BudgetConfig::default()),
        guarantee: guarantee(promise),
        ..GuestConfig::new(name, Mac(mac))
    }
}

fn switch(victim: Promise, neighbour: Promise) -> Switch {
    let wire = PacerConfig {
        batch: Nanos::from_micros(250),
        frame: Bytes(1542),
        ..PacerConfig::strict(LINK)
    };
    let uplink = PacedPipelineConfig {
        priority_tag: true,
        ..PacedPipelineConfig::new(wire)
    };
    let config = SwitchConfig {
        outside: None,
        uplink: Some(EgressConfig::Pacer(uplink)),
        guests: vec![
            guest("victim", VICTIM, VICTIM_IP, victim),
            guest("neighbour", NEIGHBOUR, NEIGHBOUR_IP, neighbour),
        ],
        classes: None,
    };
    Switch::with_keys(config, HashKeys::FIXED).expect("no rule is broken")
}

/// Returns the arrival times of a neighbour's frames.
fn arrivals(does: Neighbour) -> Arrivals {
    match does {
        Neighbour::Conforming | Neighbour::ConformingSmall => Arrivals::Window,
        // More than the wire carries, 149,000 of the shortest a second: a half more, or twice
        // that.
        Neighbour::Segments => Arrivals::Every(Nanos::from_micros(1600)),
        Neighbour::Flood | Neighbour::Tags => Arrivals::Every(Nanos::from_micros(60)),
        _ => Arrivals::Every(Nanos(4_500)),
    }
}

/// Measures the victim's messages beside a neighbour.
pub(crate) fn watch(
    victim: Promise,
    neighbour: Promise,
    does: Neighbour,
    count: usize,
) -> VictimMeasurements {
    let came = messages(count, FRAMES, MEAN_GAP, 7);
    let last = came.last().copied().unwrap_or(START);
    let wire = Arc::new(Mutex::new(Wire {
        ends: vec![None; came.len()],
        ..Wire::default()
    }));
    let longest = void::on_the_wire(does.frame(0).0.len());
    let counted = Arc::new(FrameCounters {
        window: WINDOW / longest.0,
        ..FrameCounters::default()
    });
    let uplink = Uplink {
        wire: Arc::clone(&wire),
        neighbour: Arc::clone(&counted),
        greets: true,
    };
    let first = Guest {
        arrivals: Arrivals::At(came.clone()),
        next: 0,
        frame: Box::new(|n| (victims(n as u32), None)),
        counted: Arc::default(),
    };
    let second = Guest {
        arrivals: arrivals(does),
        next: 0,
        frame: Box::new(move |n| does.frame(n)),
        counted: Arc::clone(&counted),
    };
    let mut ports: Vec<Option<Box<dyn Port>>> = vec![
        Some(Box::new(uplink)),
        Some(Box::new(first)),
        Some(Box::new(second)),
    ];
    let mut switch = switch(victim, neighbour);
    let is_windowed = does == does.conforming();
    let end = last + Nanos::from_millis(200);
    let mut now = START;
    while now < end {
        let before = counted.both();
        let turn = switch.poll(now, &mut ports);
        assert!(turn.gone.is_empty());
        if is_windowed && counted.has_room() {
            switch.handle_readable(PortIndex(2));
        }
        let goes_on = is_windowed && counted.both() != before;
        if !turn.busy && !goes_on {
            let next = switch.poll_at(&ports);
            now = now.max(next.unwrap_or(end));
        }
    }
    seen(&came, &wire.lock().expect("no thread panicked"), &counted)
}

fn seen(came: &[Nanos], wire: &Wire, neighbour: &FrameCounters) -> VictimMeasurements {
    let frames = FRAMES as usize;
    let messages = came.chunks(frames).zip(wire.ends.chunks(frames));
    let mut latencies = Vec::new();
    for (came, ends) in messages {
        let ends: Option<Vec<_>> = ends.iter().copied().collect();
        if let Some(end) = ends.and_then(|ends| ends.into_iter().max()) {
            latencies.push(end.since(came[0]).0);
        }
    }
    let left = wire.ends.iter().flatten();
    let bits = left.clone().count() as f64 * 1542.0 * 8.0;
    let last = left.max().copied().unwrap_or(START);
    let (read, sent) = neighbour.both();
    let seconds = last.since(START).as_secs_f64();
    VictimMeasurements {
        latencies,
        rate: bits / 1e6 / seconds,
        read: read as f64 / seconds,
        sent: sent as f64 / seconds,
    }
}
