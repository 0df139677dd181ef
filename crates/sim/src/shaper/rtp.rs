//! A stream of RTP over UDP (RFC 3550): MPEG-TS, as in figures 17 and 18.

use super::guest::{Guest, percentile};
use super::kind::{self, Shaped};
use crate::scenario::Scenario;
use crate::{Threads, parallel};
use serde::Deserialize;
use std::convert::Infallible;
use tailbound_dataplane::PacketRecord;
use tailbound_experiment::{ExperimentError, Run, RunOutput, Section, Trace};
use tailbound_report::{Chart, ChartAxis, Line, LineStyle, Variant};
use tailbound_units::{Bytes, Nanos, Rate};

/// A stream of media.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rtp {
    /// Limits to compare.
    pub shaper: Vec<Shaped>,
    /// Rate of Ethernet frames, unless `video` sets it.
    pub limit: Option<Rate>,
    /// Loads in percent of the limit, a variant each.
    pub loads: Vec<u64>,
    /// Length of Ethernet frames, in bytes.
    pub frame: u64,
    /// Duration.
    pub time: Nanos,
    /// Pictures; frames at equal intervals without it.
    pub key_frames: Option<KeyFrames>,
    /// A recorded video, repeated; its mean rate sets each load's limit.
    #[serde(default)]
    pub video: bool,
}

/// Headers of a packet of a video: RTP, UDP, IPv4 and Ethernet.
const HEADERS: u64 = 12 + 8 + 20 + 14;

/// The stream of one load, and its limit.
#[derive(Debug)]
struct Stream {
    limit: Rate,
    /// Sending time of each frame.
    sent: Vec<Nanos>,
}

/// Pictures, some of them larger; frames at equal intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyFrames {
    /// Pictures per second.
    pub pictures: u64,
    /// Pictures per key frame.
    pub every: u64,
    /// Size of a key frame, as a multiple of others.
    pub factor: u64,
}

/// Measurements of a stream.
#[derive(Debug, Default, Clone)]
struct StreamMeasurement {
    /// Time at which each frame was sent, and time at which it left, in milliseconds.
    frames: Vec<(f64, f64)>,
    beyond: u64,
    lost: u64,
    held: u64,
    /// Begin of the window, for each second.
    window: Vec<(f64, f64)>,
}

impl Scenario for Rtp {
    fn check(&self, section: &mut Section<'_>) {
        kind::check(&self.shaper, section);
        for load in &self.loads {
            section.range("loads", *load, 1..=1_000);
        }
        match self.limit {
            Some(_) if self.video => {
                section.at(
                    "limit",
                    "it follows from the mean of the video; leave it out",
                );
            }
            Some(limit) => section.range("limit", limit, Rate(100_000)..=Rate::from_mbit(1_000)),
            None if self.video => {}
            None => section.at("limit", "it is missing; write a rate, or `video = true`"),
        }
        section.range("frame", self.frame, 64..=1514);
        let seconds = Nanos::from_secs;
        section.range("time", self.time, seconds(2)..=seconds(3600));
        if let Some(key) = self.key_frames {
            section.range("pictures", key.pictures, 1..=240);
            section.range("every", key.every, 1..=1_000);
            section.range("factor", key.factor, 1..=1_000);
        }
        if self.video && self.key_frames.is_some() {
            section.at(
                "video",
                "it has key frames of its own; leave `key_frames` out",
            );
        }
    }

    fn outline(&self) -> Vec<Variant> {
        let nothing = StreamMeasurement::default();
        let names = self.variants().into_iter();
        names.map(|(name, ..)| variant(&name, &nothing)).collect()
    }

    fn run(&self, run: &mut Run<'_, Threads>) -> Result<RunOutput, ExperimentError> {
        let variants = self.variants();
        let name = |(name, ..): &(String, &Shaped, u64)| name.clone();
        let watched = parallel::map(run, &variants, name, |(_, shaped, load)| {
            Ok::<_, Infallible>(self.watch(shaped, *load))
        })?;
        let mut found = RunOutput::default();
        let (mut jitters, mut windows) = (Vec::new(), Vec::new());
        for ((name, ..), it) in variants.iter().zip(&watched) {
            found.variants.push(variant(name, it));
            let jitter = jitter(&it.frames);
            let jitter = jitter.zip(&it.frames).step_by(20);
            let points = jitter.map(|(jitter, (_, left))| (left / 1e3, jitter));
            jitters.push(Line::new(name.as_str(), LineStyle::Measured, points));
            if !it.window.is_empty() {
                let window = it.window.iter().copied();
                windows.push(Line::new(name.as_str(), LineStyle::Measured, window));
            }
        }
        let chart = |name: &str, title: &str, unit: &str, lines| Chart {
            name: name.to_owned(),
            title: title.to_owned(),
            x: ChartAxis::linear("time", "s"),
            y: ChartAxis::linear(unit, "ms"),
            lines,
            note: None,
        };
        found.charts = vec![
            chart(
                "jitter",
                "Interarrival jitter (RFC 3550)",
                "jitter",
                jitters,
            ),
            chart("window", "Start of the smooth window", "delay", windows),
        ];
        match self.limit {
            Some(limit) => found.condition("limit", limit.to_string()),
            None => {
                for load in &self.loads {
                    let limit = self.stream(*load).limit;
                    found.condition(format!("limit_{load}"), limit.to_string());
                }
            }
        }
        found.condition("frame", format!("{} B of Ethernet", self.frame));
        Ok(found)
    }
}

impl Rtp {
    fn variants(&self) -> Vec<(String, &Shaped, u64)> {
        let shapers = self.shaper.iter();
        let all = shapers.flat_map(|shaped| {
            let loads = self.loads.iter();
            loads.map(move |load| (format!("{}-{load}", shaped.name), shaped, *load))
        });
        all.collect()
    }

    /// Returns the sending time of each frame.
    fn sent(&self, limit: Rate, load: u64) -> Vec<Nanos> {
        let frame = limit.time_for(Bytes(self.frame)).0 * 100 / load;
        let frames = self.time.0 / frame;
        let Some(key) = self.key_frames else {
            return (0..frames).map(|i| Nanos(i * frame)).collect();
        };
        // The frames of a picture, with the remainder of the earlier ones.
        let picture = 1_000_000_000 / key.pictures;
        let units = key.every - 1 + key.factor;
        let per_group = (key.every * picture) as f64 / frame as f64;
        let mut sent = Vec::new();
        let (mut owed, mut number) = (0.0, 0);
        while number * picture < self.time.0 {
            let units_here = if number % key.every == 0 {
                key.factor
            } else {
                1
            };
            owed += per_group * units_here as f64 / units as f64;
            while owed >= 1.0 {
                sent.push(Nanos(number * picture));
                owed -= 1.0;
            }
            number += 1;
        }
        sent
    }

    fn stream(&self, load: u64) -> Stream {
        if let Some(limit) = self.limit {
            let sent = self.sent(limit, load);
            return Stream { limit, sent };
        }
        let trace = Trace::test_source();
        let once = trace.packets(Bytes(self.frame.saturating_sub(HEADERS)));
        let length = trace.length();
        let mean = Rate(once.len() as u64 * self.frame * 8 * 1_000_000_000 / length.0);
        let rounds = (0..).map(|round| Nanos(round * length.0));
        let rounds = rounds.take_while(|begin| *begin < self.time);
        let sent = rounds.flat_map(|begin| once.iter().map(move |at| begin + *at));
        Stream {
            limit: Rate(mean.0 * 100 / load),
            sent: sent.take_while(|at| *at < self.time).collect(),
        }
    }

    fn watch(&self, kind: &Shaped, load: u64) -> StreamMeasurement {
        let Stream { limit, sent } = self.stream(load);
        let mut guest = Guest::new(kind.config(limit).as_ref());
        let mut sent = sent.into_iter().peekable();
        let mut watched = StreamMeasurement::default();
        let mut second = Nanos::ZERO;
        loop {
            let times = [sent.peek().copied(), guest.poll_at()];
            let Some(now) = times.into_iter().flatten().min() else {
                break;
            };
            while let Some(came) = sent.next_if(|at| *at <= now) {
                guest.send(PacketRecord {
                    came,
                    ..PacketRecord::new(self.frame as usize)
                });
            }
            guest.leave(now, |frame| {
                let times = (frame.came.as_millis_f64(), now.as_millis_f64());
                watched.frames.push(times);
            });
            let Some(shaper) = &guest.shaper else {
                continue;
            };
            watched.held = watched.held.max(shaper.backlog().bytes.0);
            while second <= now
                && let Some(window) = shaper.window(now)
            {
                let at = (second.as_secs_f64(), window.least.as_millis_f64());
                watched.window.push(at);
                second += Nanos::from_secs(1);
            }
        }
        watched.lost = guest.lost;
        let shaper = guest.shaper.as_ref();
        watched.beyond = shaper.map_or(0, |shaper| shaper.stats().beyond_window);
        watched
    }
}

/// Returns the interarrival jitter after each frame except the first (RFC 3550, 6.4.1).
fn jitter(frames: &[(f64, f64)]) -> impl Iterator<Item = f64> {
    let mut jitter = 0.0;
    frames.windows(2).map(move |pair| {
        let apart = (pair[1].1 - pair[0].1) - (pair[1].0 - pair[0].0);
        jitter += (apart.abs() - jitter) / 16.0;
        jitter
    })
}

fn variant(name: &str, it: &StreamMeasurement) -> Variant {
    let gaps = it.frames.windows(2);
    let delta = gaps.map(|pair| pair[1].1 - pair[0].1).fold(0.0, f64::max);
    let mut delays: Vec<_> = it.frames.iter().map(|(sent, left)| left - sent).collect();
    delays.sort_by(f64::total_cmp);
    let count = it.frames.len().max(1) as f64;
    let (sum, most) = jitter(&it.frames).fold((0.0, 0.0f64), |(sum, most), jitter| {
        (sum + jitter, most.max(jitter))
    });
    Variant::of_values(
        name,
        [
            ("jitter_mean", sum / count, "ms"),
            ("jitter_max", most, "ms"),
            ("delta_max", delta, "ms"),
            ("delay_p50", percentile(&delays, 50.0), "ms"),
            ("delay_p99", percentile(&delays, 99.0), "ms"),
            ("delay_max", percentile(&delays, 100.0), "ms"),
            (
                "inside_window",
                100.0 * (1.0 - it.beyond as f64 / count),
                "%",
            ),
            ("held_max", it.held as f64, "B"),
            ("lost", it.lost as f64, ""),
        ],
    )
}
