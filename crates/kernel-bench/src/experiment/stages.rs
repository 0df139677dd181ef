//! Buckets of destinations: small messages to an idle destination beside bulk to another one, with the guarantee
//! alone and in two stages.

use crate::Outcome;
use crate::analysis::effective_burst;
use crate::experiment::add_quantiles;
use crate::experiment::cost::{PAYLOADS, cost};
use crate::experiment::edge::OVERHEAD;
use crate::figures::{Figures, Unit};
use crate::load::{now, sleep_until, socket, wait_until};
use crate::network::{Guest, add_bridge, join, mac_text, run as ip};
use std::net::UdpSocket;
use std::path::Path;
use tailbound_sys::departures::{Departure, Log};
use tailbound_sys::edge::{Bucket, Destination, Edge, Guarantee, GuestRules, PIN, UplinkRules};
use tailbound_units::{Bytes, Nanos, Rate};

/// The guarantee of the guest, and the bucket of each destination.
const GUARANTEED: Bucket = Bucket {
    rate: Rate::from_mbit(200),
    burst: Bytes(15_000),
};
const TO_EACH: Bucket = Bucket {
    rate: Rate::from_mbit(25),
    burst: Bytes(15_000),
};
const PEAK: Rate = Rate::from_mbit(2_000);
/// Frames of bulk and messages, which are a millisecond apart. Bulk begins with the sixth one.
const BULK: usize = 200;
const MESSAGES: usize = 60;
const FIRST_BULK: usize = 5;
const APART: Nanos = Nanos::from_millis(1);
/// Frames of messages are shorter than this, and those of bulk are longer.
const SHORT: Bytes = Bytes(200);

/// A station outside that never answers.
const IDLE: ([u8; 6], &str) = ([2, 0, 0, 0, 0, 99], "10.0.0.99");

/// A guest, and the outside with both stations, which the bridge knows.
fn network() -> Outcome<[Guest; 2]> {
    let [guest, outside] = [Guest::add(1)?, Guest::add(3)?];
    add_bridge("switch")?;
    for one in [guest, outside] {
        join("switch", &one.port_name())?;
    }
    guest.introduce(outside)?;
    add_idle(guest, outside)?;
    Ok([guest, outside])
}

/// Adds a station that never answers beyond the outside's port.
pub(super) fn add_idle(guest: Guest, outside: Guest) -> Outcome<()> {
    let idle = mac_text(IDLE.0);
    guest.knows(IDLE.1, &idle)?;
    for station in [&idle, &outside.mac_text()] {
        let port = outside.port_name();
        ip(&format!(
            "bridge fdb replace {station} dev {port} master static"
        ))?;
    }
    Ok(())
}

/// The guarantee of the guest.
pub(super) fn rules() -> GuestRules {
    GuestRules {
        guarantee: Some(Guarantee {
            bucket: GUARANTEED,
            peak: Some(PEAK),
            frame: Bytes(1_538),
            packet: None,
        }),
        ..GuestRules::default()
    }
}

/// The buckets of both destinations.
pub(super) fn destinations(outside: Guest) -> [Destination; 2] {
    [outside.mac(), IDLE.0].map(|station| Destination {
        station,
        bucket: TO_EACH,
    })
}

pub(crate) fn run(figures: &mut Figures) -> Outcome<()> {
    let [guest, outside] = network()?;
    let log = Log::load(4096)?;
    let before = cost(guest, outside, PAYLOADS[0])?;
    let edge = Edge::open(Path::new(PIN))?;
    let mut host = Host {
        edge,
        log,
        guest,
        outside,
    };
    host.edge
        .attach_uplink(outside.port(), &UplinkRules::default())?;
    host.edge.attach_guest(guest.port(), &rules())?;
    host.measure(figures, "one")?;
    let one = cost(guest, outside, PAYLOADS[0])?;
    let destinations = destinations(outside);
    host.edge.set_destinations(guest.port(), &destinations)?;
    host.measure(figures, "two")?;
    let fast = Bucket {
        rate: Rate::from_mbit(90_000),
        burst: Bytes(1_000_000),
    };
    let destination = Destination {
        bucket: fast,
        ..destinations[0]
    };
    host.edge.set_destinations(guest.port(), &[destination])?;
    let two = cost(guest, outside, PAYLOADS[0])?;
    figures.add_signed(
        "more.one",
        one.cast_signed() - before.cast_signed(),
        Unit::Instructions,
    );
    figures.add_signed(
        "more.two",
        two.cast_signed() - before.cast_signed(),
        Unit::Instructions,
    );
    let counters = host.edge.counters(guest.port())?;
    figures.add("drops", counters.dropped(), Unit::Count);
    host.edge.remove()?;
    if Path::new("/sys/class/net/tb-split").exists() {
        return Err("the splitter is left".into());
    }
    Ok(())
}

pub(super) struct Host {
    pub(super) edge: Edge,
    pub(super) log: Log,
    pub(super) guest: Guest,
    pub(super) outside: Guest,
}

impl Host {
    pub(super) fn measure(&mut self, figures: &mut Figures, name: &str) -> Outcome<()> {
        let _receiver = socket(self.outside, &self.guest.address())?;
        let bulk = socket(self.guest, &self.outside.address())?;
        widen(&bulk)?;
        let messages = tailbound_sys::netns::within(&self.guest.namespace(), || {
            let socket = UdpSocket::bind(("0.0.0.0", 7001))?;
            socket.connect((IDLE.1, 7000))?;
            std::io::Result::Ok(socket)
        })??;
        self.log.watch(self.outside.port())?;
        let mut times = Vec::new();
        // The first round meets code and caches that nothing has used yet.
        for _ in 0..2 {
            sleep_until(now().saturating_add(Nanos::from_millis(100)));
            self.log.clear()?;
            times = send(&bulk, &messages)?;
            let all = || Ok(self.departures()?.len() >= BULK + MESSAGES);
            wait_until("all frames leave", all)?;
        }
        let departures = self.departures()?;
        let (small, large): (Vec<_>, Vec<_>) =
            departures.iter().copied().partition(|it| it.len < SHORT);
        let waits = small.iter().zip(&times);
        let waits = waits.map(|(left, sent)| left.time.since(*sent).0).collect();
        add_quantiles(figures, &format!("{name}.message"), waits)?;
        let mut add = |part: &str, departures: &[Departure], rate| {
            let burst = effective_burst(departures, rate);
            figures.add(format!("{name}.{part}"), burst.0, Unit::Bytes);
        };
        add("burst", &departures, GUARANTEED.rate);
        add("at-peak", &departures, PEAK);
        add("to-one", &large, TO_EACH.rate);
        Ok(())
    }

    /// Departures by the uplink, in bytes on the wire.
    fn departures(&self) -> Outcome<Vec<Departure>> {
        let all = self.log.read()?.into_iter();
        let own = all.filter(|it| it.interface == self.outside.port());
        let on_wire = |it: Departure| Departure {
            len: Bytes(it.len.0.max(60) + OVERHEAD),
            ..it
        };
        Ok(own.map(on_wire).collect())
    }
}

/// Sends messages at their times, and between them bulk. Returns when each message was sent.
fn send(bulk: &UdpSocket, messages: &UdpSocket) -> Outcome<Vec<Nanos>> {
    let payload = [0; PAYLOADS[1]];
    let (mut times, mut left) = (Vec::new(), BULK);
    let mut next = now().saturating_add(APART);
    while times.len() < MESSAGES {
        if now() >= next {
            times.push(now());
            messages.send(&payload[..PAYLOADS[0]])?;
            next = next.saturating_add(APART);
        } else if times.len() > FIRST_BULK && left > 0 {
            bulk.send(&payload)?;
            left -= 1;
        } else {
            sleep_until(next);
        }
    }
    Ok(times)
}

/// All 200 frames of bulk wait together, so the socket must hold them.
fn widen(socket: &UdpSocket) -> Outcome<()> {
    rustix::net::sockopt::set_socket_send_buffer_size_force(socket, 4 << 20)?;
    Ok(())
}
