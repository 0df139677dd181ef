//! Effects of guests' limits on real packets: tailbound's limits, and those of the kernel.
//!
//! One guest sends to another, and is limited between them: by `tailbound host` with each kind of
//! limit or by its pacer, by each of Linux's rate limiting queueing disciplines that this kernel
//! has, or not at all. There are three loads, each an experiment: streams of RTP (Cheng and Wang,
//! figures 17 and 18), pages (19 and 20) and bulk (21). The limiters take turns (A B C A B C ...),
//! and the result is the ratio within one round.

mod bulk;
mod limiter;
mod stream;
mod web;

use crate::LabError;
use crate::guest::{Outcome, Work};
use crate::pair::{GuestPair, PORT, address, outcome};
use crate::processes::{Rank, Supervisor};
use crate::summarise;
pub use crate::turns::Options as Turns;
use crate::turns::{Place, in_turn};
pub use limiter::Limiter;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use tailbound_experiment::{
    Catalogue, Document, Experiment, Found, Mistake, Mistakes, Run, Trace, catalogue,
};
use tailbound_report::{Chart, ChartAxis, Line, LineStyle, Variant};
use tailbound_sys::process::find_program;
use tailbound_units::{Bytes, Nanos, Rate};

/// The namespace of the limiter between the guests.
const MIDDLE: &str = "middle";
const WARMUP: Nanos = Nanos::from_secs(1);
/// Time for packets in transit after the load.
const GRACE: Nanos = Nanos::from_millis(500);

/// Options of a measurement.
#[derive(Debug, Clone)]
pub struct Options {
    /// Length and number of each load's measurements.
    pub turns: Turns,
    /// The measured limiters; an empty list means all.
    pub only: Vec<Limiter>,
    /// The video that is sent beside the streams at a constant rate.
    pub trace: Trace,
}

/// An experiment with its load. Its file has the checks.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShapedExperiment {
    load: Load,
}

/// The load of the sending guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Load {
    /// Streams of RTP.
    Rtp,
    /// Pages of nginx.
    Http,
    /// Endless TCP and UDP.
    Rate,
}

/// Figures of one limiter in one round.
#[derive(Debug, Clone, Default)]
struct Measured {
    /// Figures by name, with their units.
    figures: BTreeMap<String, (&'static str, f64)>,
    /// Points of lines, by their charts' names.
    lines: BTreeMap<String, Vec<(f64, f64)>>,
}

/// State that the measurements share.
struct Bench<'a> {
    options: &'a Options,
    guests: GuestPair<'a>,
}

/// A load of two guests.
struct Pair {
    sender: Work,
    receiver: Work,
}

impl Experiment for ShapedExperiment {
    type Options = Options;
    type Error = LabError;

    const CATALOGUE: Catalogue = catalogue!("experiments/shaped": "rtp", "http", "rate");

    fn read(document: &Document<'_>) -> Result<Self, Vec<Mistake>> {
        document.whole()
    }

    fn check(&mut self, _: &str, _: &mut Mistakes) {}

    fn outline(&self) -> Vec<Variant> {
        let names = self.load.figures().into_iter();
        let nothing = Measured {
            figures: names.map(|name| (name, ("", f64::NAN))).collect(),
            ..Measured::default()
        };
        let variant = |limiter| variant(limiter, std::slice::from_ref(&nothing));
        Limiter::ALL.map(variant).into()
    }

    /// Moves this process into namespaces of its own, as a run of the lab does.
    fn run(&self, run: &mut Run<'_, Options>) -> Result<Found, LabError> {
        let options = run.options;
        self.load.require_tools()?;
        let place = Place::enter()?;
        let bench = Bench {
            options,
            guests: GuestPair {
                place: &place,
                warmup: WARMUP,
                duration: options.turns.duration,
                // Programs in guests represent separate computers, which share no CPU with the others.
                policy: Rank::OnPath.policy(place.real_time),
            },
        };
        let mut found = place.found(&options.turns);
        let (mut here, mut missing) = (Vec::new(), Vec::new());
        for limiter in Limiter::ALL {
            let is_asked = options.only.is_empty() || options.only.contains(&limiter);
            match limiter.missing()? {
                _ if !is_asked => {
                    missing.push(summarise::unavailable(limiter.name(), "not asked for"));
                }
                None => here.push(limiter),
                Some(why) => missing.push(summarise::unavailable(limiter.name(), &why)),
            }
        }
        let load = self.load;
        let measured = in_turn(run, options.turns.repeat, &here, Limiter::name, |limiter| {
            load.measure(&bench, limiter)
        })?;
        found.charts = charts(load, &measured);
        let ran = measured
            .iter()
            .map(|(limiter, rounds)| variant(*limiter, rounds));
        place.add(ran.chain(missing).collect(), &mut found);
        Ok(found)
    }
}

impl Load {
    /// Returns the names of all measured figures.
    fn figures(self) -> Vec<String> {
        match self {
            Self::Rtp => stream::figures(),
            Self::Http => web::figures(),
            Self::Rate => bulk::figures(),
        }
    }

    fn require_tools(self) -> Result<(), LabError> {
        let of_pages = [("nginx", "nginx-light"), ("ab", "apache2-utils")];
        let of_pages = of_pages.iter().filter(|_| self == Self::Http);
        let tools = [("ip", "iproute2"), ("tc", "iproute2")];
        for (program, package) in tools.iter().chain(of_pages) {
            if find_program(program).is_none() {
                return Err(LabError::Missing { program, package });
            }
        }
        Ok(())
    }

    fn measure(self, bench: &Bench<'_>, limiter: Limiter) -> Result<Measured, LabError> {
        match self {
            Self::Rtp => stream::measure(bench, limiter),
            Self::Http => web::measure(bench, limiter),
            Self::Rate => bulk::measure(bench, limiter),
        }
    }

    /// Returns the axes of its charts.
    fn axes(self) -> (ChartAxis, ChartAxis) {
        match self {
            Self::Rtp => (
                ChartAxis::linear("time", "s"),
                ChartAxis::linear("delay", "ms"),
            ),
            Self::Http => (
                ChartAxis::linear("share of the pages", "%"),
                ChartAxis::linear("waiting", "ms"),
            ),
            Self::Rate => (
                ChartAxis::linear("time", "s"),
                ChartAxis::linear("rate", "%"),
            ),
        }
    }
}

/// Returns a limiter with its figures: medians of the rounds.
fn variant(limiter: Limiter, rounds: &[Measured]) -> Variant {
    let mut variant = Variant {
        name: limiter.name().into(),
        ..Variant::default()
    };
    let first = rounds.first().into_iter().flat_map(|round| &round.figures);
    for (name, (unit, _)) in first {
        let runs = rounds
            .iter()
            .filter_map(|round| Some(round.figures.get(name)?.1));
        variant
            .values
            .insert(name.clone(), summarise::value(unit, runs.collect()));
    }
    variant
}

/// Returns charts with a line for each limiter, from the first round.
fn charts(load: Load, measured: &BTreeMap<Limiter, Vec<Measured>>) -> Vec<Chart> {
    let mut charts: BTreeMap<&str, Vec<Line>> = BTreeMap::new();
    for (limiter, rounds) in measured {
        let lines = rounds.first().into_iter().flat_map(|round| &round.lines);
        for (chart, points) in lines {
            let line = Line::new(limiter.name(), LineStyle::Measured, points.iter().copied());
            charts.entry(chart).or_default().push(line);
        }
    }
    let chart = |(name, lines): (&str, Vec<Line>)| {
        let (x, y) = load.axes();
        Chart {
            name: name.to_owned(),
            title: name.replace('_', " "),
            x,
            y,
            lines,
            note: None,
        }
    };
    charts.into_iter().map(chart).collect()
}

impl Bench<'_> {
    /// Runs a sender and a receiver in two guests, the first of which is limited; returns what
    /// the second one found.
    fn load(
        &self,
        limiter: Limiter,
        limit: Rate,
        work: impl Fn(SocketAddrV4) -> Pair,
    ) -> Result<Outcome, LabError> {
        let mut supervisor = self.guests.supervisor();
        limiter.build(&mut supervisor, self.guests.place, limit)?;
        let Pair { sender, receiver } = work(SocketAddrV4::new(address(2), PORT));
        let first = supervisor.len();
        let arrived = self.start_task(&mut supervisor, 2, receiver, GRACE)?;
        supervisor.wait_ready(first)?;
        self.start_task(&mut supervisor, 1, sender, GRACE)?;
        self.guests.rest(&mut supervisor, first, GRACE)?;
        let outcome = outcome(&mut supervisor, &arrived)?;
        supervisor.end()?;
        Limiter::remove()?;
        Ok(outcome)
    }

    /// Starts a task in a guest. Returns the file of its outcome.
    fn start_task(
        &self,
        supervisor: &mut Supervisor<'_>,
        number: u8,
        work: Work,
        grace: Nanos,
    ) -> Result<PathBuf, LabError> {
        let ends = matches!(
            work,
            Work::RtpSender(_) | Work::RtpReceiver { .. } | Work::Flood { .. } | Work::Pages(_)
        );
        self.guests
            .start_task(supervisor, number, (work, ends), grace)
    }
}

/// Size of a full Ethernet frame.
const FULL: Bytes = Bytes(1514);

#[cfg(test)]
mod tests {
    use super::*;
    use tailbound_experiment::Loaded;

    #[test]
    fn every_experiment_is_sound_and_names_what_is_measured() {
        for name in ShapedExperiment::CATALOGUE.names() {
            let source = ShapedExperiment::CATALOGUE
                .source(name)
                .expect("it is there");
            let loaded = Loaded::<ShapedExperiment>::parse(&source);
            let outline = loaded.expect("sound").experiment.outline();
            assert_eq!(outline.len(), Limiter::ALL.len());
        }
    }
}
