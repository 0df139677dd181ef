//! Instructions per packet through the whole switch, counted by valgrind: the number does not
//! depend on the number of other guests.
//!
//! Two guests send to each other in turn, one packet per turn of the loop, which is the most
//! expensive case. With 500 guests, of which 498 are silent, the limit is 1.2 times that cost.
//! The limits are in this file, and a run beyond them fails.
//!
//! Needs valgrind and `gungraun-runner` of the same version as the crate.

#![allow(missing_docs, reason = "the benchmark macros write public items")]

use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind};
use std::collections::VecDeque;
use std::hint::black_box;
use std::io;
use std::ops::Range;
use tailbound_dataplane::{
    EgressConfig, FqCodelConfig, PacedPipelineConfig, PacerConfig, Packet, PipelineConfig, Pool,
    QueueConfig,
};
use tailbound_switch::port::{Burst, More, Outgoing, Port, Received, TransmitResult};
use tailbound_switch::{GuestConfig, Mac, PortIndex, Switch, SwitchConfig};
use tailbound_units::{Nanos, Rate};

const PACKETS: u64 = 5_000;
/// Packets before the counted ones.
const WARM: u64 = 64;
const START: Nanos = Nanos::from_secs(1);
/// A frame of 60 bytes.
const LEN: usize = 60;

/// The most instructions per packet with two guests.
const TWO: u64 = 3_900;

/// A guest that has one frame for another whenever it is readable, and takes all frames.
struct Station {
    from: Mac,
    to: Mac,
}

impl Port for Station {
    fn receive(&mut self, _now: Nanos, pool: &Pool, burst: &mut Burst) -> io::Result<More> {
        let mut buffer = pool.buffer(Packet::HEADROOM + LEN);
        let frame = &mut buffer[Packet::HEADROOM..][..LEN];
        frame.fill(0);
        frame[..6].copy_from_slice(&self.to.0);
        frame[6..12].copy_from_slice(&self.from.0);
        frame[12..18].copy_from_slice(&[8, 0, 0x45, 0, 0, 46]);
        frame[30..34].copy_from_slice(&[192, 0, 2, 1]);
        burst.frames.push(Received {
            buffer,
            start: Packet::HEADROOM,
            len: LEN,
            virtio: None,
        });
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

type Host = (Switch, Vec<Option<Box<dyn Port>>>);

fn mac(guest: usize) -> Mac {
    let [high, low] = (guest as u16).to_be_bytes();
    Mac([2, 0, 0, 0, high, low])
}

/// Makes a host with a paced uplink and `guests` guests. The two in the middle have sent to each
/// other already.
fn warm(guests: usize) -> Host {
    let fq_codel = PipelineConfig {
        queue: QueueConfig::FqCodel(FqCodelConfig::default()),
        ..PipelineConfig::default()
    };
    let pacer = PacerConfig::strict(Rate::from_mbit(10_000));
    let config = SwitchConfig {
        outside: None,
        uplink: Some(EgressConfig::Pacer(PacedPipelineConfig::new(pacer))),
        guests: (0..guests)
            .map(|guest| GuestConfig {
                pipeline: fq_codel.clone(),
                ..GuestConfig::new(format!("g{guest}"), mac(guest))
            })
            .collect(),
        classes: None,
    };
    let station = |from, to| Some(Box::new(Station { from, to }) as Box<dyn Port>);
    // The uplink itself sends nothing.
    let mut ports = vec![station(mac(0xffff), mac(0))];
    ports.extend((0..guests).map(|guest| station(mac(guest), mac(guest ^ 1))));
    let mut switch = Switch::new(config).expect("no rule is broken");
    // All ports are looked at once.
    switch.poll(START, &mut ports);
    while switch.poll_interest().is_some() {}
    turns(guests, (switch, ports), 0..WARM)
}

/// Runs turns of one packet each, by the two guests in the middle.
fn turns(guests: usize, (mut switch, mut ports): Host, packets: Range<u64>) -> Host {
    let first = 1 + guests / 4 * 2;
    for packet in packets {
        let now = START + Nanos::from_micros(12 * (packet + 1));
        switch.handle_readable(PortIndex(first + (packet % 2) as usize));
        let turn = switch.poll(now, &mut ports);
        assert!(turn.gone.is_empty());
        while let Some(interest) = switch.poll_interest() {
            black_box(interest);
        }
        black_box(switch.poll_at(&ports));
    }
    (switch, ports)
}

fn limit(per_packet: u64) -> LibraryBenchmarkConfig {
    LibraryBenchmarkConfig::default()
        .tool(Callgrind::default().hard_limits([(EventKind::Ir, per_packet * PACKETS)]))
        .clone()
}

#[library_benchmark]
#[bench::of_two_guests(args = (2, warm(2)), config = limit(TWO))]
#[bench::of_two_among_500(args = (500, warm(500)), config = limit(TWO * 12 / 10))]
fn packet_between_guests(guests: usize, host: Host) -> Host {
    turns(guests, host, black_box(WARM..WARM + PACKETS))
}

library_benchmark_group!(name = switch, benchmarks = packet_between_guests);

main!(library_benchmark_groups = switch);
