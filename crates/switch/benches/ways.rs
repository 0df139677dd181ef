//! Instructions per packet on each way through the whole switch, counted by valgrind: one packet per
//! turn of the loop, and bursts, which a busy host has.
//!
//! The guests have filters, and the one that sends to the paced uplink has a guarantee. The packets
//! are UDP in the shortest frames. The limits are in this file, and a run beyond them fails.
//!
//! Needs valgrind and `gungraun-runner` of the same version as the crate.

#![allow(missing_docs, reason = "the benchmark macros write public items")]

use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind};
use std::collections::VecDeque;
use std::hint::black_box;
use std::io;
use std::net::IpAddr;
use tailbound_dataplane::{
    EgressConfig, FqCodelConfig, Guarantee, HashKeys, PacedPipelineConfig, PacerConfig, Packet,
    PipelineConfig, Pool, QueueConfig, SnoopConfig,
};
use tailbound_switch::port::{Burst, More, Outgoing, Port, Received, TransmitResult};
use tailbound_switch::{GuestConfig, Mac, PortIndex, SpoofFilter, Switch, SwitchConfig};
use tailbound_units::{Bytes, Nanos, Rate};

/// Counted packets: whole bursts.
const PACKETS: u64 = 4_992;
/// Turns before the counted ones.
const WARM: u64 = 64;
const START: Nanos = Nanos::from_secs(1);
/// A frame of 60 bytes.
const LEN: usize = 60;

/// The most instructions per packet, alone in a turn and in a burst.
const SINGLE: u64 = 3_000;
const IN_BURSTS: u64 = 1_500;

/// The address of a station by number.
fn mac(station: u16) -> Mac {
    let [high, low] = station.to_be_bytes();
    Mac([2, 0, 0, 0, high, low])
}

/// Addresses of clients behind the router, as powers of two: one, or 65,536 in turn.
const ONE_CLIENT: u32 = 0;
const CLIENTS_16_BITS: u32 = 16;

/// A station that has a burst of datagrams whenever it is readable, and takes all frames.
struct Sender {
    frame: [u8; LEN],
    burst: usize,
    /// The address of the client in the frame: its offset, and the number of addresses.
    client: (usize, u32),
    /// Datagrams so far.
    sent: u32,
}

impl Sender {
    /// The offsets of the IPv4 addresses.
    const SOURCE: usize = 26;
    const DESTINATION: usize = 30;

    fn new(from: (Mac, [u8; 4]), to: (Mac, [u8; 4]), burst: usize, client: (usize, u32)) -> Self {
        let mut frame = [0; LEN];
        frame[..6].copy_from_slice(&to.0.0);
        frame[6..12].copy_from_slice(&from.0.0);
        frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17]);
        frame[26..30].copy_from_slice(&from.1);
        frame[30..34].copy_from_slice(&to.1);
        // From port 4660 to 5001.
        frame[34..40].copy_from_slice(&[0x12, 0x34, 0x13, 0x89, 0, 26]);
        Self {
            frame,
            burst,
            client,
            sent: 0,
        }
    }
}

impl Port for Sender {
    fn receive(&mut self, _now: Nanos, pool: &Pool, burst: &mut Burst) -> io::Result<More> {
        let (offset, clients) = self.client;
        for _ in 0..self.burst {
            if clients > 0 {
                let client = (self.sent & ((1 << clients) - 1)) as u16;
                self.frame[offset + 2..][..2].copy_from_slice(&client.to_be_bytes());
                self.sent = self.sent.wrapping_add(1);
            }
            let mut buffer = pool.buffer(Packet::HEADROOM + LEN);
            buffer[Packet::HEADROOM..][..LEN].copy_from_slice(&self.frame);
            burst.frames.push(Received {
                buffer,
                start: Packet::HEADROOM,
                len: LEN,
                virtio: None,
            });
        }
        Ok(More::No)
    }

    fn transmit(
        &mut self,
        _now: Nanos,
        outgoing: &mut VecDeque<Outgoing>,
    ) -> io::Result<TransmitResult> {
        let mut sent = TransmitResult::default();
        for next in outgoing.drain(..) {
            sent.add(&next);
        }
        Ok(sent)
    }
}

/// A way through the switch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Guests,
    ToUplink,
    FromUplink,
}

/// A switch of which one port sends bursts of a length.
struct Bursts {
    switch: Switch,
    ports: Vec<Option<Box<dyn Port>>>,
    from: PortIndex,
    to: PortIndex,
    len: u64,
    /// Turns so far.
    turns: u64,
}

/// Makes a host with two filtered guests of which the first has a guarantee, unless it sends to the
/// second; with bursts of this length on one of its ways, from or to as many clients.
fn on(way: Way, len: u64, clients: u32) -> Bursts {
    let stations = [(mac(0xffff), [198, 51, 100, 7]), (mac(0), [192, 0, 2, 1])];
    let [router, first] = stations;
    let second = (mac(1), [192, 0, 2, 2]);
    let guest = |name: &str, (mac, ip): (Mac, [u8; 4])| GuestConfig {
        pipeline: PipelineConfig {
            queue: QueueConfig::FqCodel(FqCodelConfig::default()),
            ..PipelineConfig::default()
        },
        filter: Some(SpoofFilter::new(mac, [IpAddr::from(ip).into()])),
        ..GuestConfig::new(name.to_owned(), mac)
    };
    let rate = Rate::from_mbit(1000);
    let guarantee = Guarantee::new(rate, Bytes(64 * 1024), Rate::from_mbit(10_000));
    let pacer = PacerConfig::strict(Rate::from_mbit(10_000));
    let config = SwitchConfig {
        outside: None,
        uplink: Some(EgressConfig::Pacer(PacedPipelineConfig::new(pacer))),
        guests: vec![
            GuestConfig {
                guarantee: (way != Way::Guests).then_some(guarantee),
                ..guest("first", first)
            },
            guest("second", second),
        ],
        classes: None,
    };
    let (from, to) = match way {
        Way::Guests => (PortIndex(1), PortIndex(2)),
        Way::ToUplink => (PortIndex(1), PortIndex(0)),
        Way::FromUplink => (PortIndex(0), PortIndex(1)),
    };
    let by_guest = if way == Way::Guests { second } else { router };
    // Clients are behind the router: their frames have its MAC address.
    let ends = [
        (router, first, Sender::SOURCE, clients),
        (first, by_guest, Sender::DESTINATION, clients),
        (second, first, Sender::DESTINATION, ONE_CLIENT),
    ];
    let ports = ends
        .map(|(from, to, offset, clients)| Sender::new(from, to, len as usize, (offset, clients)))
        .map(|station| Some(Box::new(station) as Box<dyn Port>));
    let switch = Switch::with_keys(config, HashKeys::FIXED).expect("no rule is broken");
    let mut bursts = Bursts {
        switch,
        ports: ports.into(),
        from,
        to,
        len,
        turns: 0,
    };
    // The router is known, and so are the guests.
    bursts.switch.poll(START, &mut bursts.ports);
    while bursts.switch.poll_interest().is_some() {}
    for _ in 0..WARM {
        bursts.turn();
    }
    bursts
}

impl Bursts {
    fn turn(&mut self) {
        self.turns += 1;
        let now = START + Nanos::from_micros(12 * self.len * self.turns);
        let Self { switch, ports, .. } = self;
        switch.handle_readable(self.from);
        let turn = switch.poll(now, ports);
        assert!(turn.gone.is_empty());
        while let Some(interest) = switch.poll_interest() {
            black_box(interest);
        }
        black_box(switch.poll_at(ports));
    }

    /// Returns the packets that the receiver has taken so far.
    fn taken(&mut self) -> u64 {
        let Self { switch, ports, .. } = self;
        let snapshot = switch.snapshot(ports);
        let mut receivers = snapshot.ports().skip(self.to.0);
        receivers.next().map_or(0, |port| port.sent.0)
    }
}

/// A segment of a connection between a client behind the uplink and a guest.
#[derive(Clone, Copy)]
struct TcpEnd {
    from: (Mac, [u8; 4]),
    to: (Mac, [u8; 4]),
    /// Bytes in a segment.
    payload: u32,
    burst: u32,
    flags: u8,
    seq: u32,
    ack: u32,
}

impl TcpEnd {
    /// Bytes of headers without options.
    const HEADERS: usize = 54;

    fn frame(&self, frame: &mut [u8]) {
        frame[..6].copy_from_slice(&self.to.0.0);
        frame[6..12].copy_from_slice(&self.from.0.0);
        let ip = (40 + self.payload as u16).to_be_bytes();
        let header = [8, 0, 0x45, 0, ip[0], ip[1], 0, 0, 0x40, 0, 64, 6, 0, 0];
        frame[12..26].copy_from_slice(&header);
        frame[26..30].copy_from_slice(&self.from.1);
        frame[30..34].copy_from_slice(&self.to.1);
        // The same port on both ends.
        frame[34..38].copy_from_slice(&[0x13, 0x89, 0x13, 0x89]);
        frame[38..42].copy_from_slice(&self.seq.to_be_bytes());
        frame[42..46].copy_from_slice(&self.ack.to_be_bytes());
        frame[46..54].copy_from_slice(&[0x50, self.flags, 0xff, 0xff, 0, 0, 0, 0]);
    }
}

/// The end of a connection behind a port, which sends a burst whenever it is readable. It expects
/// that bursts of the other end arrive whole.
struct TcpStation {
    end: TcpEnd,
    /// Bytes that arrive between two bursts.
    answered: u32,
}

impl Port for TcpStation {
    fn receive(&mut self, _now: Nanos, pool: &Pool, burst: &mut Burst) -> io::Result<More> {
        self.end.ack += self.answered;
        for _ in 0..self.end.burst {
            let len = TcpEnd::HEADERS + self.end.payload as usize;
            let mut buffer = pool.buffer(Packet::HEADROOM + len);
            self.end.frame(&mut buffer[Packet::HEADROOM..][..len]);
            self.end.seq += self.end.payload;
            burst.frames.push(Received {
                buffer,
                start: Packet::HEADROOM,
                len,
                // The NIC has verified the checksum.
                virtio: Some([2, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            });
        }
        Ok(More::No)
    }

    fn transmit(
        &mut self,
        _now: Nanos,
        outgoing: &mut VecDeque<Outgoing>,
    ) -> io::Result<TransmitResult> {
        let mut sent = TransmitResult::default();
        for next in outgoing.drain(..) {
            sent.add(&next);
        }
        Ok(sent)
    }
}

/// Makes a host whose guest has early acknowledgement, and a connection to it that receives bursts
/// of segments. The guest acknowledges each burst once.
fn answered() -> Bursts {
    const BURST: u32 = 32;
    const PAYLOAD: u32 = 100;
    let client = (mac(0xffff), [198, 51, 100, 7]);
    let server = (mac(0), [192, 0, 2, 1]);
    let config = SwitchConfig {
        outside: None,
        uplink: Some(EgressConfig::Pacer(PacedPipelineConfig::new(
            PacerConfig::strict(Rate::from_mbit(10_000)),
        ))),
        guests: vec![GuestConfig {
            filter: Some(SpoofFilter::new(server.0, [IpAddr::from(server.1).into()])),
            snoop: Some(SnoopConfig::default()),
            ..GuestConfig::new("guest".to_owned(), server.0)
        }],
        classes: None,
    };
    let to_guest = TcpEnd {
        from: client,
        to: server,
        payload: PAYLOAD,
        burst: BURST,
        flags: 0x10,
        seq: 1,
        ack: 1,
    };
    // The answer to the handshake, and then acknowledgements.
    let of_guest = TcpEnd {
        from: server,
        to: client,
        payload: 0,
        burst: 1,
        flags: 0x12,
        seq: 0,
        ack: 1,
    };
    let station = |end, answered| Box::new(TcpStation { end, answered }) as Box<dyn Port>;
    let mut bursts = Bursts {
        switch: Switch::with_keys(config, HashKeys::FIXED).expect("no rule is broken"),
        ports: vec![None, Some(station(of_guest, 0))],
        from: PortIndex(1),
        to: PortIndex(0),
        len: u64::from(BURST),
        turns: 0,
    };
    bursts.turn();
    let acknowledgements = TcpEnd {
        flags: 0x10,
        seq: 1,
        ..of_guest
    };
    bursts.ports = vec![
        Some(station(to_guest, 0)),
        Some(station(acknowledgements, BURST * PAYLOAD)),
    ];
    bursts.switch.handle_opened(PortIndex(0));
    for _ in 0..WARM {
        bursts.turn_of_both();
    }
    bursts
}

impl Bursts {
    /// Turns of a burst to the guest, and of its answer.
    fn turn_of_both(&mut self) {
        for from in [PortIndex(0), PortIndex(1)] {
            self.from = from;
            self.turn();
        }
    }
}

fn limit(per_packet: u64) -> LibraryBenchmarkConfig {
    LibraryBenchmarkConfig::default()
        .tool(Callgrind::default().hard_limits([(EventKind::Ir, per_packet * PACKETS)]))
        .clone()
}

/// Checks that the packets left in time, so that all of their way was counted.
fn check(mut bursts: Bursts) {
    let sent = bursts.len * bursts.turns;
    let taken = bursts.taken();
    // All ports sent once at the begin.
    assert!(sent.abs_diff(taken) <= 3 * bursts.len, "{taken} of {sent}");
}

#[library_benchmark(teardown = check)]
#[bench::between_guests(args = (on(Way::Guests, 1, ONE_CLIENT)), config = limit(SINGLE))]
#[bench::between_guests_in_bursts(args = (on(Way::Guests, 32, ONE_CLIENT)), config = limit(IN_BURSTS))]
#[bench::to_uplink(args = (on(Way::ToUplink, 1, ONE_CLIENT)), config = limit(SINGLE))]
#[bench::to_uplink_in_bursts(args = (on(Way::ToUplink, 32, ONE_CLIENT)), config = limit(IN_BURSTS))]
#[bench::to_many_clients(args = (on(Way::ToUplink, 32, CLIENTS_16_BITS)), config = limit(IN_BURSTS * 115 / 100))]
#[bench::from_uplink(args = (on(Way::FromUplink, 1, ONE_CLIENT)), config = limit(SINGLE))]
#[bench::from_uplink_in_bursts(args = (on(Way::FromUplink, 32, ONE_CLIENT)), config = limit(IN_BURSTS))]
#[bench::from_many_clients(args = (on(Way::FromUplink, 32, CLIENTS_16_BITS)), config = limit(IN_BURSTS * 115 / 100))]
fn way(mut bursts: Bursts) -> Bursts {
    for _ in 0..black_box(PACKETS / bursts.len) {
        bursts.turn();
    }
    bursts
}

/// Checks that all segments were acknowledged early, and that the guest has acknowledged all.
fn check_answered(mut bursts: Bursts) {
    let Bursts { switch, ports, .. } = &mut bursts;
    let snapshot = switch.snapshot(ports);
    let guest = snapshot.guests.first().expect("there is one");
    let snoop = guest.snoop.expect("it is on");
    let segments = PACKETS + WARM * 32;
    assert!(snoop.stats.early + 1 >= segments, "{:?}", snoop.stats);
    assert_eq!(snoop.retained, Bytes(0));
}

#[library_benchmark(teardown = check_answered)]
#[bench::in_bursts(args = (answered()))]
fn early(mut bursts: Bursts) -> Bursts {
    for _ in 0..black_box(PACKETS / bursts.len) {
        bursts.turn_of_both();
    }
    bursts
}

library_benchmark_group!(name = ways, benchmarks = [way, early]);

main!(library_benchmark_groups = ways);
