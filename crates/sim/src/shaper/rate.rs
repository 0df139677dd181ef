//! Rate of bulk transfers, as in figure 21: endless UDP, and TCP.

use super::guest::Guest;
use super::kind::{self, Shaped};
use super::transfer::{FRAME, Transfer};
use crate::scenario::Scenario;
use crate::{Threads, parallel};
use serde::Deserialize;
use std::convert::Infallible;
use tailbound_dataplane::PacketRecord;
use tailbound_experiment::{ExperimentError, Run, RunOutput, Section};
use tailbound_report::{Chart, ChartAxis, Line, LineStyle, Variant};
use tailbound_units::{Nanos, Rate};

/// Bulk of a guest.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// Limits to compare.
    pub shaper: Vec<Shaped>,
    /// Rates of Ethernet frames.
    pub limits: Vec<Rate>,
    /// Round trips of TCP without the limit.
    pub round_trips: Vec<Nanos>,
    /// Duration.
    pub time: Nanos,
    /// Interval of samples.
    pub sample: Nanos,
}

/// Transport of the bulk.
#[derive(Debug, Clone, Copy)]
enum Transport {
    Udp,
    Tcp(Nanos),
}

type NamedCase<'s> = (String, &'s Shaped, Rate, Transport);

impl Scenario for Rates {
    fn check(&self, section: &mut Section<'_>) {
        kind::check(&self.shaper, section);
        for limit in &self.limits {
            section.range("limits", *limit, Rate(100_000)..=Rate::from_mbit(1_000));
        }
        let millis = Nanos::from_millis;
        for round_trip in &self.round_trips {
            section.range("round_trips", *round_trip, Nanos(1_000)..=millis(1_000));
        }
        section.range("sample", self.sample, millis(100)..=millis(60_000));
        let least = Nanos(10 * self.sample.0).max(Nanos::from_secs(20));
        section.range("time", self.time, least..=Nanos::from_secs(3600));
    }

    fn outline(&self) -> Vec<Variant> {
        let variants = self.variants().into_iter();
        variants
            .map(|(name, _, limit, _)| self.variant(&name, limit, &[]))
            .collect()
    }

    fn run(&self, run: &mut Run<'_, Threads>) -> Result<RunOutput, ExperimentError> {
        let variants = self.variants();
        let name = |(name, ..): &NamedCase<'_>| name.clone();
        let left = parallel::map(run, &variants, name, |(_, shaped, limit, transport)| {
            Ok::<_, Infallible>(self.watch(shaped, *limit, *transport))
        })?;
        let mut found = RunOutput::default();
        let mut lines = Vec::new();
        for ((name, _, limit, _), left) in variants.iter().zip(&left) {
            found.variants.push(self.variant(name, *limit, left));
            let samples = self.samples(left, self.sample).into_iter().enumerate();
            let sample = self.sample.as_secs_f64();
            let points = samples.map(|(i, bytes)| {
                let at = (i as f64 + 0.5) * sample;
                (at, bytes as f64 * 8.0 / sample / 1e6)
            });
            lines.push(Line::new(name.as_str(), LineStyle::Measured, points));
        }
        found.charts.push(Chart {
            name: "rate".to_owned(),
            title: format!("Sent rate, each {}", self.sample),
            x: ChartAxis::linear("time", "s"),
            y: ChartAxis::linear("rate", "Mbit/s"),
            lines,
            note: None,
        });
        Ok(found)
    }
}

impl Rates {
    fn variants(&self) -> Vec<NamedCase<'_>> {
        let mut all = Vec::new();
        for shaped in &self.shaper {
            for limit in &self.limits {
                let mbit = limit.0 as f64 / 1e6;
                let name = format!("{}-{mbit}", shaped.name);
                all.push((format!("{name}-udp"), shaped, *limit, Transport::Udp));
                for trip in &self.round_trips {
                    let millis = trip.as_millis_f64();
                    let name = format!("{name}-tcp-{millis}ms");
                    all.push((name, shaped, *limit, Transport::Tcp(*trip)));
                }
            }
        }
        all
    }

    /// Returns the departures, each with its time and bytes.
    fn watch(&self, shaped: &Shaped, limit: Rate, transport: Transport) -> Vec<(Nanos, u64)> {
        let mut guest = Guest::new(shaped.config(limit).as_ref());
        match transport {
            Transport::Udp => self.udp(&mut guest, limit),
            Transport::Tcp(round_trip) => self.tcp(&mut guest, round_trip),
        }
    }

    /// Sends at twice the limit.
    fn udp(&self, guest: &mut Guest, limit: Rate) -> Vec<(Nanos, u64)> {
        let gap = FRAME as u64 * 4_000_000_000 / limit.0;
        let mut left = Vec::new();
        let mut next = Nanos::ZERO;
        loop {
            let now = guest.poll_at().map_or(next, |at| at.min(next));
            if now >= self.time {
                return left;
            }
            if next <= now {
                guest.send(PacketRecord::new(FRAME));
                next += Nanos(gap);
            }
            guest.leave(now, |frame| left.push((now, frame.len as u64)));
        }
    }

    fn tcp(&self, guest: &mut Guest, round_trip: Nanos) -> Vec<(Nanos, u64)> {
        let mut transfer = Transfer::new(round_trip);
        let mut left = Vec::new();
        let mut now = Nanos::ZERO;
        loop {
            transfer.poll(now, guest);
            guest.leave(now, |frame| {
                left.push((now, frame.len as u64));
                transfer.leave(now, frame.id);
            });
            let next = transfer.poll_at();
            let next = guest.poll_at().map_or(next, |at| at.min(next));
            if next >= self.time {
                return left;
            }
            now = now.max(next);
        }
    }

    /// Returns the bytes that left in each interval of this length.
    fn samples(&self, left: &[(Nanos, u64)], each: Nanos) -> Vec<u64> {
        let mut samples = vec![0; (self.time.0 / each.0) as usize];
        for (at, bytes) in left {
            if let Some(sample) = samples.get_mut((at.0 / each.0) as usize) {
                *sample += bytes;
            }
        }
        samples
    }

    fn variant(&self, name: &str, limit: Rate, left: &[(Nanos, u64)]) -> Variant {
        let part = |bytes: u64, time: Nanos| {
            100.0 * bytes as f64 / (limit.0 as f64 / 8.0 * time.as_secs_f64())
        };
        let second = Nanos::from_secs(1);
        // A sliding second, not one of the clock's.
        let (mut sum, mut first, mut most) = (0, 0, 0);
        for (at, bytes) in left {
            sum += bytes;
            while at.since(left[first].0) > second {
                sum -= left[first].1;
                first += 1;
            }
            most = most.max(sum);
        }
        let samples = self.samples(left, self.sample).into_iter().skip(1);
        let least_sample = part(samples.min().unwrap_or(0), self.sample);
        let seconds = self.samples(left, second);
        let later = seconds.get(1..).unwrap_or_default();
        let off = later.iter();
        let off = off.map(|bytes| (part(*bytes, second) - 100.0).abs());
        let ten = |seconds: &[u64]| part(seconds.iter().sum(), Nanos::from_secs(10));
        let least = |seconds: &[u64]| {
            let tens = seconds.windows(10).map(ten);
            tens.fold(f64::INFINITY, f64::min)
        };
        Variant::of_values(
            name,
            [
                ("most_in_a_second", part(most, second), "%"),
                ("off_in_a_second", off.fold(0.0, f64::max), "%"),
                ("least_in_a_sample", least_sample, "%"),
                ("least_in_10s", least(&seconds), "%"),
                // In the first second a connection finds its window.
                ("later_in_10s", least(later), "%"),
                (
                    "mean",
                    part(left.iter().map(|it| it.1).sum(), self.time),
                    "%",
                ),
            ],
        )
    }
}
