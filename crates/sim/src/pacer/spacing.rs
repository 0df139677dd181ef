//! Positions of frames on the wire compared with their departures.

use super::FRAME;
use super::host::Host;
use crate::scenario::Scenario;
use crate::{Threads, parallel};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;
use tailbound_dataplane::PacketRecord;
use tailbound_dataplane::pacer::{Guarantee, PacerConfig, PacerError, void};
use tailbound_experiment::{ExperimentError, Run, RunOutput, Section};
use tailbound_report::Variant;
use tailbound_units::{Bytes, Nanos, Position, Rate, WireBytes};

/// Departure times and the wire; a variant per load. Guests always have queued frames.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spacing {
    /// Rate of the wire.
    pub link: Rate,
    /// Sets of guests: one variant each.
    pub load: Vec<Load>,
}

/// A set of guests: one variant.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Name of the variant.
    pub name: String,
    /// Guests, with random shares of the wire.
    pub guests: u32,
    /// Sum of the guarantees, in percent of the wire.
    pub percent: u64,
    /// Shortest and longest frame on the wire; a length per guest.
    pub frames: (u64, u64),
    /// The first guest's frames.
    pub count: u64,
    /// Delay of each turn of the host's loop.
    #[serde(default)]
    pub late: Nanos,
}

/// Measurements of a load.
#[derive(Debug, Default)]
struct LoadMeasurements {
    frames: u64,
    /// Frames before their departure.
    early: u64,
    /// Frames that collided with other frames, also on a wire without voids.
    collided: u64,
    /// Largest delay of a frame after its departure without a collision.
    late: WireBytes,
    /// Largest delay of a frame after its position on a wire without voids.
    behind: WireBytes,
    /// Largest delay of a frame after its departure.
    latest: WireBytes,
    /// Largest difference of a departure of the first guest from its exact time.
    drift: i128,
}

impl Scenario for Spacing {
    fn check(&self, section: &mut Section<'_>) {
        section.count("load", self.load.len(), 1..=100);
        for (index, load) in self.load.iter().enumerate() {
            let mut section = section.item("load", index);
            let (short, long) = load.frames;
            section.range("guests", load.guests, 1..=1_000);
            section.range("percent", load.percent, 1..=100);
            section.range("frames", short, void::SHORTEST.0..=long);
            section.range("frames", long, short..=FRAME);
            section.range("count", load.count, 2..=100_000_000_000);
            section.range("late", load.late, Nanos::ZERO..=Nanos::from_secs(1));
        }
    }

    fn outline(&self) -> Vec<Variant> {
        let loads = self.load.iter();
        loads
            .map(|load| self.variant(load, &LoadMeasurements::default()))
            .collect()
    }

    fn run(&self, run: &mut Run<'_, Threads>) -> Result<RunOutput, ExperimentError> {
        let seed = run.seed;
        let name = |load: &Load| load.name.clone();
        let mut found = RunOutput::of(parallel::map(run, &self.load, name, |load| {
            let watched = self.watch(load, seed);
            watched.map(|seen| self.variant(load, &seen))
        })?);
        found.condition("link", self.link.to_string());
        for load in &self.load {
            let text = format!(
                "{} guests, {} %, {} to {} B, host late by {}",
                load.guests, load.percent, load.frames.0, load.frames.1, load.late
            );
            found.condition(format!("load_{}", load.name), text);
        }
        Ok(found)
    }
}

impl Spacing {
    fn watch(&self, load: &Load, seed: u64) -> Result<LoadMeasurements, PacerError> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut host = Host::new(&PacerConfig::strict(self.link))?;
        host.late = load.late;
        let weights: Vec<u64> = (0..load.guests)
            .map(|_| random.random_range(1..=20))
            .collect();
        let all: u64 = weights.iter().sum();
        let mut rates = Vec::new();
        for weight in weights {
            let rate = u128::from(self.link.0) * u128::from(load.percent * weight);
            let rate = (rate / u128::from(100 * all)) as u64;
            let guarantee = Guarantee::new(Rate(rate), Bytes(FRAME), self.link);
            let mut random = Pcg64Mcg::seed_from_u64(random.random());
            let (short, long) = load.frames;
            let frame = move || PacketRecord::on_wire(random.random_range(short..=long));
            if rates.is_empty() {
                let frames = std::iter::repeat_with(frame).take(load.count as usize);
                host.add(Some(&guarantee), frames)?;
            } else {
                // About as many frames as the first guest's time needs.
                let ends = u128::from(load.count) * u128::from(rate) / u128::from(rates[0]);
                let frames = std::iter::repeat_with(frame).take(ends as usize);
                host.add(Some(&guarantee), frames)?;
            }
            rates.push(rate);
        }
        let mut found = LoadMeasurements::default();
        let (link, rate) = (i128::from(self.link.0), i128::from(rates[0]));
        // End of the frames on a wire without voids, bytes of the first guest, and their first
        // position.
        let (mut ideal, mut sent, mut since) = (Position::ZERO, 0_i128, None);
        host.run(Nanos::MAX, |frame, departure, at| {
            let wire = frame.wire();
            let free = ideal.max(departure);
            ideal = free + wire;
            found.frames += 1;
            found.early += u64::from(at < departure);
            let late = at.since(departure);
            found.latest = found.latest.max(late);
            found.behind = found.behind.max(at.since(free));
            if free > departure {
                found.collided += 1;
            } else {
                found.late = found.late.max(late);
            }
            if frame.guest == 0 {
                let since = *since.get_or_insert(departure);
                sent += i128::from(wire.0);
                // The bytes beyond the first burst are limited to the rate.
                let paid = (sent - i128::from(FRAME)).max(0);
                let exact = paid * link / rate;
                let off = i128::from((departure - since).0) - exact;
                found.drift = found.drift.max(off.abs());
            }
        });
        Ok(found)
    }

    fn variant(&self, load: &Load, seen: &LoadMeasurements) -> Variant {
        let nanos = |bytes: WireBytes| bytes.0 as f64 * 8e9 / self.link.0 as f64;
        let collisions = 100.0 * seen.collided as f64 / seen.frames as f64;
        Variant::of_values(
            &load.name,
            [
                ("frames", seen.frames as f64, ""),
                ("early", seen.early as f64, ""),
                ("late_alone_max", seen.late.0 as f64, "B"),
                ("late_alone_max_time", nanos(seen.late), "ns"),
                ("behind_wire_without_voids_max", seen.behind.0 as f64, "B"),
                ("collided", collisions, "%"),
                ("late_max_time", nanos(seen.latest), "ns"),
                ("drift_max", seen.drift as f64, "B"),
            ],
        )
    }
}
