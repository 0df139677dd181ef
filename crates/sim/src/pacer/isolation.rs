//! A guest within its guarantee, beside others that exceed theirs.

use super::FRAME;
use super::host::{Host, PoissonMessages, START};
use crate::scenario::Scenario;
use crate::{Threads, parallel};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;
use std::iter;
use tailbound_dataplane::pacer::{Guarantee, PacerConfig, PacerError, void};
use tailbound_dataplane::{GuestId, PacketRecord};
use tailbound_experiment::{ExperimentError, Run, RunOutput, Section};
use tailbound_report::{Series, Variant, empty_histogram};
use tailbound_units::{Bytes, Nanos, Position, Rate, WireBytes};

/// The guests.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Isolation {
    /// Rate of the wire.
    pub link: Rate,
    /// Guarantee of the measured guest.
    pub guest: Guarantee,
    /// Length of its messages, in full frames.
    pub frames: u64,
    /// Its messages.
    pub messages: u64,
    /// Average load of these messages, in percent of its bandwidth.
    pub load: u64,
    /// Its neighbours.
    pub neighbours: u32,
    /// Guarantee of each neighbour.
    pub neighbour: Guarantee,
    /// Destinations of a neighbour that opens flows, each with its own limit.
    pub flows: u32,
    /// Flood of guests without a guarantee, in percent of the wire.
    pub flood: u64,
    /// Measured time.
    pub time: Nanos,
}

/// Traffic of the neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Neighbours {
    /// There are no neighbours.
    Alone,
    /// Random messages within their guarantees.
    Conforming,
    /// Packets of 64 KB, always queued.
    Flood,
    /// The shortest frames, always queued.
    Tiny,
    /// Frames to another destination each, always queued.
    Flows,
    /// A flood of frames to unknown addresses, without a guarantee.
    Unknown,
    /// One of each kind in turn, and the flood.
    All,
}

const VARIANTS: [(&str, Neighbours); 7] = [
    ("alone", Neighbours::Alone),
    ("conforming", Neighbours::Conforming),
    ("flood", Neighbours::Flood),
    ("tiny", Neighbours::Tiny),
    ("flows", Neighbours::Flows),
    ("unknown", Neighbours::Unknown),
    ("all", Neighbours::All),
];

/// Measurements of the guest.
#[derive(Default)]
struct GuestMeasurements {
    /// Time of each message, from its arrival until its last byte has left.
    latencies: Vec<u64>,
    /// Rate with frames always queued, in bit/s.
    rate: f64,
}

impl Scenario for Isolation {
    fn check(&self, section: &mut Section<'_>) {
        section.range("frames", self.frames, 1..=1_000);
        section.range("messages", self.messages, 1..=100_000_000);
        section.range("load", self.load, 1..=99);
        section.range("neighbours", self.neighbours, 1..=1_000);
        section.range("flows", self.flows, 1..=1_000_000);
        section.range("flood", self.flood, 1..=1_000);
        section.range(
            "time",
            self.time,
            Nanos::from_millis(1)..=Nanos::from_secs(100),
        );
    }

    fn outline(&self) -> Vec<Variant> {
        let nothing = GuestMeasurements::default();
        let names = VARIANTS.iter();
        names
            .map(|(name, _)| self.variant(name, &nothing, &nothing))
            .collect()
    }

    fn run(&self, run: &mut Run<'_, Threads>) -> Result<RunOutput, ExperimentError> {
        let seed = run.seed;
        let name = |(name, _): &(&str, _)| (*name).to_owned();
        for variant in &VARIANTS {
            let fits = self.fits(variant.1);
            fits.map_err(|error| ExperimentError::run(&name(variant), error))?;
        }
        let outcomes = parallel::map(run, &VARIANTS, name, |(_, neighbours)| {
            self.watch(*neighbours, seed)
        })?;
        let mut found = RunOutput::default();
        for ((name, _), it) in VARIANTS.iter().zip(&outcomes) {
            found.variants.push(self.variant(name, it, &outcomes[0]));
        }
        found.condition("link", self.link.to_string());
        for (name, guarantee) in [("guest", &self.guest), ("neighbour", &self.neighbour)] {
            let text = format!(
                "{}, {}, {}",
                guarantee.bandwidth, guarantee.burst, guarantee.burst_rate
            );
            found.condition(name, text);
        }
        found.condition("message", Bytes(self.frames * FRAME).to_string());
        found.condition("neighbours", self.neighbours);
        found.condition("flows", self.flows);
        Ok(found)
    }
}

impl Isolation {
    fn variant(&self, name: &str, seen: &GuestMeasurements, alone: &GuestMeasurements) -> Variant {
        let mut latencies = empty_histogram();
        for latency in &seen.latencies {
            latencies.saturating_record(*latency);
        }
        // Message by message: the same messages arrive at the same times.
        let added = seen.latencies.iter().zip(&alone.latencies);
        let added = added.map(|(here, alone)| here.saturating_sub(*alone)).max();
        let mut variant = Variant::of_values(
            name,
            [
                ("rate", seen.rate, "bit/s"),
                ("added_max", added.unwrap_or(0) as f64, "ns"),
                ("added_bound", self.most_added(), "ns"),
            ],
        );
        let latency = Series::of("ns", &latencies);
        variant.series.insert("latency".to_owned(), latency);
        variant
    }

    /// Returns the largest delay of a message due to neighbours: a batch with the frame at its end,
    /// which are on the wire already; then the bursts of all others at the same time, and a void.
    fn most_added(&self) -> f64 {
        let batch = self.link.bytes_in(PacerConfig::strict(self.link).batch);
        let bursts = u64::from(self.neighbours) * self.neighbour.burst.0 + self.guest.burst.0;
        let most = batch.0 + FRAME + bursts + void::SHORTEST.0;
        self.link.time_for(Bytes(most)).0 as f64
    }

    /// Checks that the pacer accepts all guarantees, without a run.
    fn fits(&self, neighbours: Neighbours) -> Result<(), PacerError> {
        let mut host = Host::new(&PacerConfig::strict(self.link))?;
        host.add(Some(&self.guest), iter::empty())?;
        self.add_neighbours(&mut host, neighbours, &mut Pcg64Mcg::seed_from_u64(0))
    }

    fn watch(&self, neighbours: Neighbours, seed: u64) -> Result<GuestMeasurements, PacerError> {
        Ok(GuestMeasurements {
            latencies: self.latencies(neighbours, seed)?,
            rate: self.rate(neighbours, seed)?,
        })
    }

    fn latencies(&self, neighbours: Neighbours, seed: u64) -> Result<Vec<u64>, PacerError> {
        let mut host = Host::new(&PacerConfig::strict(self.link))?;
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mean = self.between(self.guest.bandwidth.percent(self.load));
        let messages = PoissonMessages::new(self.frames, mean, random.random());
        let messages = messages.take((self.messages * self.frames) as usize);
        let guest = host.add(Some(&self.guest), messages)?;
        self.add_neighbours(&mut host, neighbours, &mut random)?;
        let mut latencies = Vec::with_capacity(self.messages as usize);
        // Until its messages are complete: neighbours never end. The run proceeds in steps of a
        // second, because only sent frames show the end.
        let mut end = START;
        while (latencies.len() as u64) < self.messages {
            end += Nanos::from_millis(10);
            let link = self.link;
            host.run(end, |frame, _, at| {
                if frame.guest as usize == guest.slot() && frame.id % self.frames == self.frames - 1
                {
                    let came = Position(link.bytes_in(frame.came).0);
                    let took = at + frame.wire() - came;
                    latencies.push(link.time_for(took.into()).0);
                }
            });
        }
        Ok(latencies)
    }

    fn rate(&self, neighbours: Neighbours, seed: u64) -> Result<f64, PacerError> {
        let mut host = Host::new(&PacerConfig::strict(self.link))?;
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let guest = host.add(
            Some(&self.guest),
            iter::repeat(PacketRecord::on_wire(FRAME)),
        )?;
        self.add_neighbours(&mut host, neighbours, &mut random)?;
        // Its burst is over after a tenth.
        let start = Position(self.link.bytes_in(START + Nanos(self.time.0 / 10)).0);
        let (mut bytes, mut first, mut last) = (WireBytes::ZERO, None, Position::ZERO);
        host.run(START + self.time, |frame, departure, _| {
            if frame.guest as usize == guest.slot() && departure >= start {
                if first.is_some() {
                    bytes += frame.wire();
                }
                first = first.or(Some(departure));
                last = departure;
            }
        });
        let took = (last - first.unwrap_or(last)).max(WireBytes(1));
        Ok(bytes.0 as f64 * self.link.0 as f64 / took.0 as f64)
    }

    /// Returns the mean time between messages with this average rate.
    fn between(&self, rate: Rate) -> u64 {
        rate.time_for(Bytes(self.frames * FRAME)).0
    }

    fn add_neighbours(
        &self,
        host: &mut Host,
        neighbours: Neighbours,
        random: &mut Pcg64Mcg,
    ) -> Result<(), PacerError> {
        const EACH: [Neighbours; 4] = [
            Neighbours::Flood,
            Neighbours::Tiny,
            Neighbours::Flows,
            Neighbours::Conforming,
        ];
        if neighbours == Neighbours::Alone {
            return Ok(());
        }
        for number in 0..self.neighbours {
            let does = match neighbours {
                Neighbours::All => EACH[number as usize % EACH.len()],
                one => one,
            };
            self.add_neighbour(host, does, random.random())?;
        }
        if neighbours == Neighbours::All {
            self.add_neighbour(host, Neighbours::Unknown, random.random())?;
        }
        Ok(())
    }

    fn add_neighbour(
        &self,
        host: &mut Host,
        does: Neighbours,
        seed: u64,
    ) -> Result<(), PacerError> {
        let promised = Some(&self.neighbour);
        let flows = self.flows;
        match does {
            Neighbours::Alone | Neighbours::All => {}
            Neighbours::Conforming => {
                let mean = self.between(self.neighbour.bandwidth.percent(90));
                host.add(promised, PoissonMessages::new(self.frames, mean, seed))?;
            }
            Neighbours::Flood => {
                host.add(promised, iter::repeat(PacketRecord::new(65_226)))?;
            }
            Neighbours::Tiny => {
                host.add(
                    promised,
                    iter::repeat(PacketRecord::on_wire(void::SHORTEST.0)),
                )?;
            }
            Neighbours::Flows => {
                let frames = (0..flows).cycle().map(|destination| PacketRecord {
                    destination: destination.into(),
                    ..PacketRecord::on_wire(FRAME)
                });
                let guest = host.add(promised, frames)?;
                self.limit(host, guest)?;
            }
            Neighbours::Unknown => {
                let pause = self
                    .link
                    .percent(self.flood / u64::from(self.neighbours).max(1));
                let pause = pause.time_for(Bytes(FRAME));
                let mut came = START;
                let frames = (0..flows).cycle().map(move |destination| {
                    came += pause;
                    PacketRecord {
                        came,
                        destination: destination.into(),
                        ..PacketRecord::on_wire(FRAME)
                    }
                });
                host.add(None, frames)?;
            }
        }
        Ok(())
    }

    /// Limits each destination to an equal share of a neighbour's bandwidth, like the hose model.
    fn limit(&self, host: &mut Host, guest: GuestId) -> Result<(), PacerError> {
        let share = self.neighbour.bandwidth.0 / u64::from(self.flows);
        // No limit may be slower than this.
        let share = Rate(share.max(self.link.0.div_ceil(1_000_000)));
        for destination in 0..self.flows {
            let pacer = &mut host.pacer;
            pacer.set_destination(Nanos::ZERO, guest, destination.into(), Some(share))?;
        }
        Ok(())
    }
}
