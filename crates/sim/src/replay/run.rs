//! Replay of a recording through a host, in virtual time.

use super::{Recording, ReplayError, Tail};
use std::collections::VecDeque;
use tailbound_dataplane::{
    Classes, Coverage, Egress, EgressConfig, Fabric, FqCodelConfig, Frame as _, GuestId,
    MeterConfig, NicConfig, Outgoing, PacedPipelineConfig, PacerConfig, PacketRecord,
    PipelineConfig, QueueConfig,
};
use tailbound_units::{Bytes, Nanos, Rate, WireBytes};

/// Start of the recording: guarantees start at zero with empty buckets, which are full by then.
const START: Nanos = Nanos::from_secs(10_000);

/// A way out of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discipline {
    /// Linux's default: one queue, first in, first out.
    Fifo,
    /// Small flows first, larger packets segmented and in fair queues (Small is Better, 3).
    Meter,
    /// Guests are paced to their guarantees (Silo, 4.3), and may use spare bandwidth.
    Guarantees,
}

impl Discipline {
    /// All ways.
    pub const ALL: [Self; 3] = [Self::Fifo, Self::Meter, Self::Guarantees];

    /// Returns the name, one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Meter => "meter",
            Self::Guarantees => "guarantees",
        }
    }

    fn egress(self, link: Rate) -> EgressConfig {
        let meter = MeterConfig {
            // 1 % of the link (Small is Better, 4.2).
            rate: link.percent(1),
            link: Some(link),
            ..MeterConfig::default()
        };
        let nic = Some(NicConfig {
            rate: link,
            limit: None,
            overhead: Bytes(24),
        });
        match self {
            Self::Fifo => EgressConfig::Pipeline(PipelineConfig {
                nic,
                ..PipelineConfig::default()
            }),
            Self::Meter => EgressConfig::Pipeline(PipelineConfig {
                meter: Some(meter),
                segment: true,
                queue: QueueConfig::FqCodel(FqCodelConfig::default()),
                nic,
                classes: Some(Classes::of(Fabric::SmallFlowsFirst)),
                limit: None,
            }),
            Self::Guarantees => EgressConfig::Pacer(PacedPipelineConfig {
                meter: Some(meter),
                ..PacedPipelineConfig::new(PacerConfig::new(link))
            }),
        }
    }
}

/// Sends a recording out of a host by `discipline`, onto a wire of `link`. Returns the times of each
/// guest's messages, in the order of [`Recording::guests`].
///
/// # Errors
/// A guarantee breaks a rule of the pacer.
pub fn replay(
    recording: &Recording,
    link: Rate,
    discipline: Discipline,
) -> Result<Vec<Tail>, ReplayError> {
    let mut host = Host::new(recording, link, discipline)?;
    let mut packets = recording.packets.iter().peekable();
    loop {
        let comes = packets.peek().map(|packet| START + packet.came);
        let Some(now) = comes.into_iter().chain(host.poll_at()).min() else {
            break;
        };
        let now = now.max(host.now);
        while let Some(packet) = packets.next_if(|packet| START + packet.came <= now) {
            host.rings[packet.guest as usize].push_back(*packet);
        }
        host.turn(now);
    }
    Ok(host.tails(recording))
}

/// Guests with rings, a way out, a wire.
struct Host {
    now: Nanos,
    /// Packets of each guest that the host has not read.
    rings: Vec<VecDeque<PacketRecord>>,
    egress: Egress<PacketRecord>,
    wire: Wire,
}

impl Host {
    fn new(recording: &Recording, link: Rate, discipline: Discipline) -> Result<Self, ReplayError> {
        let guarantee = |name: &str, source| ReplayError::Guarantee {
            name: name.to_owned(),
            source,
        };
        let egress = Egress::new(discipline.egress(link));
        let mut egress = egress.map_err(|source| guarantee("of any name", source))?;
        egress.set_guests(recording.guests.len());
        if let Some(pacer) = egress.pacer_mut() {
            for (guest, number) in recording.guests.iter().zip(0..) {
                let id = GuestId::first(number);
                let set = pacer.set_guest(Nanos::ZERO, id, guest.guarantee.as_ref());
                set.map_err(|source| guarantee(&guest.name, source))?;
            }
        }
        let segments = recording.packets.iter();
        let mut frames = vec![0; recording.messages.len()];
        for packet in segments {
            frames[packet.id as usize] += packet.segments();
        }
        Ok(Self {
            now: Nanos::ZERO,
            rings: recording.guests.iter().map(|_| VecDeque::new()).collect(),
            egress,
            wire: Wire {
                link,
                since: Nanos::ZERO,
                carried: WireBytes::ZERO,
                frames,
                left: vec![Nanos::ZERO; recording.messages.len()],
            },
        })
    }

    fn poll_at(&self) -> Option<Nanos> {
        self.egress.poll_at()
    }

    /// Reads the rings as far as the mechanism allows, and sends the permitted frames.
    fn turn(&mut self, now: Nanos) {
        self.now = now;
        let wire = &mut self.wire;
        for (ring, number) in self.rings.iter_mut().zip(0..) {
            match &mut self.egress {
                Egress::Pipeline(pipeline) => {
                    ring.drain(..).for_each(|packet| pipeline.push(now, packet));
                }
                Egress::Pacer(paced) => {
                    while paced.pacer().is_read(GuestId::first(number))
                        && let Some(packet) = ring.pop_front()
                    {
                        paced.push(now, [packet], Coverage::AllDestinations);
                    }
                }
            }
        }
        match &mut self.egress {
            Egress::Pipeline(pipeline) => {
                while let Some(departure) = pipeline.pull(now) {
                    wire.send(now, departure.frame);
                }
            }
            Egress::Pacer(paced) => paced.pull(
                now,
                |next, _| match next {
                    Outgoing::Frame { frame, .. } => wire.send(now, frame),
                    Outgoing::Void { wire: length } => {
                        wire.carry(now, length);
                    }
                },
                // No packet of a recording goes to another guest of the host.
                |_, _| {},
            ),
        }
    }

    fn tails(self, recording: &Recording) -> Vec<Tail> {
        let mut times = vec![(Vec::new(), 0); recording.guests.len()];
        let ends = self.wire.frames.iter().zip(&self.wire.left);
        for (message, (frames, left)) in recording.messages.iter().zip(ends) {
            let (times, lost) = &mut times[message.guest as usize];
            match frames {
                0 => times.push(left.since(START + message.came)),
                _ => *lost += 1,
            }
        }
        let tails = times.into_iter();
        tails.map(|(times, lost)| Tail::new(times, lost)).collect()
    }
}

/// A wire, and the frames that are not on it yet.
struct Wire {
    link: Rate,
    /// Start of the current busy period, and bytes carried since then.
    since: Nanos,
    carried: WireBytes,
    /// By message: number of frames that have not left, and end of the last one.
    frames: Vec<usize>,
    left: Vec<Nanos>,
}

impl Wire {
    /// Returns the end of the carried frames.
    fn free(&self) -> Nanos {
        self.since + self.link.time_for(Bytes(self.carried.0))
    }

    /// Carries a number of bytes as soon as possible; returns their end.
    fn carry(&mut self, now: Nanos, length: WireBytes) -> Nanos {
        if self.free() <= now {
            self.since = now;
            self.carried = WireBytes::ZERO;
        }
        self.carried += length;
        self.free()
    }

    /// Carries a packet in its segments.
    fn send(&mut self, now: Nanos, packet: PacketRecord) {
        let end = self.carry(now, super::on_the_wire(&packet));
        let message = packet.id as usize;
        self.frames[message] -= packet.segments();
        self.left[message] = end;
    }
}
