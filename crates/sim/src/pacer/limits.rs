//! Configured rates compared with measured ones: rates and pauses.

use super::FRAME;
use super::host::{Host, START};
use crate::scenario::Scenario;
use crate::{Threads, parallel};
use serde::Deserialize;
use std::iter;
use tailbound_dataplane::PacketRecord;
use tailbound_dataplane::pacer::{Guarantee, PacerConfig, PacerError};
use tailbound_experiment::{ExperimentError, Run, RunOutput, Section};
use tailbound_report::{Chart, ChartAxis, Line, LineStyle, Value, Variant};
use tailbound_units::{Bytes, Nanos, Position, Rate, WireBytes};

/// Configured and measured rates, for all buckets and lengths; a variant per rate and bucket, and
/// `all`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Rate of the wire, and Bmax.
    pub link: Rate,
    /// Configured rates.
    pub rates: Vec<Rate>,
    /// Depths of the buckets.
    pub bursts: Vec<Bytes>,
    /// Lengths of packets, without FCS, preamble and gap.
    pub lengths: Vec<usize>,
    /// Measured time, after the burst.
    pub time: Nanos,
    /// Other limiters, measured elsewhere, not judged.
    #[serde(default)]
    pub other: Vec<Other>,
}

/// Another limiter.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Other {
    /// Program.
    pub name: String,
    /// Configured rate.
    pub rate: Rate,
    /// Depth of the bucket.
    pub burst: Bytes,
    /// Length of the packets.
    pub length: u32,
    /// Measured rate.
    pub got: Rate,
    /// Longest pause, if known.
    pub pause: Option<Nanos>,
}

/// One bucket with packets of one length.
#[derive(Debug, Clone, Copy)]
struct Case {
    rate: Rate,
    burst: Bytes,
    length: usize,
}

/// Measurements of a case.
#[derive(Debug, Clone, Copy, Default)]
struct CaseMeasurements {
    /// Deviation of the rate over the time, in percent of the configured one.
    error: f64,
    /// Longest pause, in packet times at the rate.
    pause: f64,
    frames: u64,
}

impl Scenario for Limits {
    fn check(&self, section: &mut Section<'_>) {
        section.count("rates", self.rates.len(), 1..=100);
        section.count("bursts", self.bursts.len(), 1..=100);
        section.count("lengths", self.lengths.len(), 1..=100);
        section.range("time", self.time, Nanos(1)..=Nanos::from_secs(10));
        for rate in &self.rates {
            section.range("rates", *rate, Rate(self.link.0 / 1_000_000)..=self.link);
        }
        for burst in &self.bursts {
            section.range("bursts", *burst, Bytes(FRAME)..=Bytes(1_000_000_000));
        }
        for length in &self.lengths {
            section.range("lengths", *length, 60..=65_550);
        }
    }

    fn outline(&self) -> Vec<Variant> {
        let cases = self.cases();
        self.variants(&cases, &vec![CaseMeasurements::default(); cases.len()])
    }

    fn run(&self, run: &mut Run<'_, Threads>) -> Result<RunOutput, ExperimentError> {
        let cases = self.cases();
        let name = |_: &_| "all".to_owned();
        let measured = parallel::map(run, &cases, name, |case| self.measure(*case))?;
        let mut found = RunOutput {
            variants: self.variants(&cases, &measured),
            charts: vec![
                self.rate_chart(&cases, &measured),
                self.pause_chart(&cases, &measured),
            ],
            ..RunOutput::default()
        };
        found.condition("link", self.link.to_string());
        found.condition("time", self.time.to_string());
        Ok(found)
    }
}

impl Limits {
    fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for &rate in &self.rates {
            for &burst in &self.bursts {
                let case = |&length| Case {
                    rate,
                    burst,
                    length,
                };
                cases.extend(self.lengths.iter().map(case));
            }
        }
        cases
    }

    /// Returns all cases together, each bucket, and the other limiters.
    fn variants(&self, cases: &[Case], measured: &[CaseMeasurements]) -> Vec<Variant> {
        let mut variants = vec![all(measured)];
        let per_bucket = self.lengths.len().max(1);
        for (cases, measured) in cases.chunks(per_bucket).zip(measured.chunks(per_bucket)) {
            variants.push(bucket(cases, measured));
        }
        for other in self.other.iter().map(Other::variant) {
            let known = variants.iter_mut().find(|it| it.name == other.name);
            match known {
                Some(known) => known.values.extend(other.values),
                None => variants.push(other),
            }
        }
        variants
    }

    /// Measures a sender that always has packets queued, from the end of its burst on.
    fn measure(&self, case: Case) -> Result<CaseMeasurements, PacerError> {
        let Case {
            rate,
            burst,
            length,
        } = case;
        let mut host = Host::new(&PacerConfig::strict(self.link))?;
        let guarantee = Guarantee::new(rate, burst, self.link);
        host.add(Some(&guarantee), iter::repeat(PacketRecord::new(length)))?;
        let start = Position(self.link.bytes_in(START).0) + self.burst_time(rate, burst);
        let end = start + self.link.bytes_in(self.time).into();
        let (mut first, mut last) = (None, Position::ZERO);
        let [mut bytes, mut pause, mut longest] = [WireBytes::ZERO; 3];
        let mut frames = 0;
        host.run(host.clock().moment(end), |frame, _, at| {
            if at < start || at > end {
                return;
            }
            longest = longest.max(frame.wire());
            if first.is_none() {
                first = Some(at);
            } else {
                bytes += frame.wire();
                pause = pause.max(at - last);
            }
            last = at;
            frames += 1;
        });
        let took = last - first.unwrap_or(last);
        let got = bytes.0 as f64 * self.link.0 as f64 / took.0 as f64;
        let packet = longest.0 as f64 * self.link.0 as f64 / rate.0 as f64;
        Ok(CaseMeasurements {
            error: 100.0 * (got / rate.0 as f64 - 1.0),
            pause: pause.0 as f64 / packet,
            frames,
        })
    }

    /// Returns the time of a burst at the link's rate, in the wire's time, with two frames of
    /// margin, including the tokens that accumulate meanwhile. At the link's own rate there is no
    /// visible burst.
    fn burst_time(&self, rate: Rate, burst: Bytes) -> WireBytes {
        let time = u128::from(burst.0 + 2 * FRAME) * u128::from(self.link.0);
        let time = time.checked_div(u128::from(self.link.0 - rate.0));
        WireBytes(time.map_or(0, |time| time as u64))
    }

    /// Returns the worst of all buckets for each rate, by length.
    fn lines(
        &self,
        cases: &[Case],
        measured: &[CaseMeasurements],
        figure: impl Fn(&CaseMeasurements) -> f64,
        is_worse: impl Fn(f64, f64) -> bool,
    ) -> Vec<Line> {
        let point = |rate: &Rate, length: usize| {
            let same = cases.iter().zip(measured);
            let same = same.filter(|(case, _)| case.rate == *rate && case.length == length);
            let figures = same.map(|(_, it)| figure(it));
            let most = figures.reduce(|a, b| if is_worse(b, a) { b } else { a });
            (rate.0 as f64, most.unwrap_or(f64::NAN))
        };
        let line = |length: &usize| {
            let points = self.rates.iter().map(|rate| point(rate, *length));
            Line::new(format!("{length} B"), LineStyle::Measured, points)
        };
        self.lengths.iter().map(line).collect()
    }

    fn rate_chart(&self, cases: &[Case], measured: &[CaseMeasurements]) -> Chart {
        let got = |it: &CaseMeasurements| 100.0 + it.error;
        let away = |a: f64, b: f64| (a - 100.0).abs() > (b - 100.0).abs();
        let mut lines = self.lines(cases, measured, got, away);
        let other = |other: &Other| {
            let name = format!("{}, {} B", other.name, other.length);
            let point = (other.rate.0 as f64, 100.0 + other.error());
            Line::new(name, LineStyle::Paper, [point])
        };
        // A name with a length is one line.
        for other in self.other.iter().map(other) {
            match lines.iter_mut().find(|line| line.name == other.name) {
                Some(line) => line.points.extend(other.points),
                None => lines.push(other),
            }
        }
        Chart {
            name: "rate".to_owned(),
            title: "Delivered part of configured rates, with the worst bucket".to_owned(),
            x: ChartAxis::log("configured", "bit/s"),
            y: ChartAxis::log("delivered, of the configured rate", "%"),
            lines,
            note: Some(
                "Other limiters: measured with their own buckets, which their variants name."
                    .to_owned(),
            ),
        }
    }

    fn pause_chart(&self, cases: &[Case], measured: &[CaseMeasurements]) -> Chart {
        let mut lines = self.lines(cases, measured, |it| it.pause, |a, b| a > b);
        let ends = [self.rates.iter().min(), self.rates.iter().max()];
        let ends = ends.iter().flatten().map(|rate| (rate.0 as f64, 2.0));
        lines.push(Line::new("two packet times", LineStyle::Bound, ends));
        Chart {
            name: "pause".to_owned(),
            title: "Longest pause of a sender that always has packets waiting".to_owned(),
            x: ChartAxis::log("configured", "bit/s"),
            y: ChartAxis::linear("longest pause, in packet times at the rate", ""),
            lines,
            note: None,
        }
    }
}

impl Other {
    fn error(&self) -> f64 {
        100.0 * (self.got.0 as f64 / self.rate.0 as f64 - 1.0)
    }

    fn variant(&self) -> Variant {
        let mut variant = Variant {
            name: format!("{} {} {}", self.name, self.rate, self.burst),
            ..Variant::default()
        };
        let mut put = |name: &str, figure, unit| {
            let name = format!("{name}_{}", self.length);
            variant.values.insert(name, Value::new(unit, figure));
        };
        put("error", self.error(), "%");
        if let Some(pause) = self.pause {
            let packet = self.rate.time_for(Bytes(u64::from(self.length).min(FRAME)));
            put("pause", pause.0 as f64 / packet.0 as f64, "");
        }
        variant
    }
}

fn all(measured: &[CaseMeasurements]) -> Variant {
    let most =
        |figure: fn(&CaseMeasurements) -> f64| measured.iter().map(figure).fold(0.0, f64::max);
    let frames: u64 = measured.iter().map(|it| it.frames).sum();
    Variant::of_values(
        "all",
        [
            ("cases", measured.len() as f64, ""),
            ("frames", frames as f64, ""),
            ("error_max", most(|it| it.error.abs()), "%"),
            ("pause_max", most(|it| it.pause), ""),
        ],
    )
}

fn bucket(cases: &[Case], measured: &[CaseMeasurements]) -> Variant {
    let mut variant = Variant {
        name: format!("{} {}", cases[0].rate, cases[0].burst),
        ..Variant::default()
    };
    for (case, measured) in cases.iter().zip(measured) {
        let mut put = |name: &str, figure, unit| {
            let name = format!("{name}_{}", case.length);
            variant.values.insert(name, Value::new(unit, figure));
        };
        put("error", measured.error, "%");
        put("pause", measured.pause, "");
    }
    variant
}
