//! Comparisons of backends on this computer: forwarding and NICs with their alternatives, and
//! guests' limits with those of the kernel.
//!
//! The backends take turns (A B C A B C ...), and a ratio is that of one round, so that a change of
//! the computer's speed affects both. [`Comparison`] has a load, and each load is a `Bench`: its
//! backends, its figures and their measurement.

mod cards;
mod forward;
mod http;
mod limiter;
mod limits;
mod rate;
mod rig;
mod rtp;

pub use limiter::Limiter;

use crate::LabError;
use crate::core_use::CpuUse;
use crate::disturbed::Disturbances;
use crate::measurement::Measurement;
use crate::processes::Rank;
use crate::rounds::{rounds, taken};
use crate::session::{Session, Tool, require};
use crate::summarise;
use rig::Rig;
use serde::Deserialize;
use std::collections::BTreeMap;
use tailbound_experiment::{
    Catalogue, Document, Experiment, Mistake, Mistakes, Run, RunOutput, Trace, catalogue,
};
use tailbound_report::{Chart, ChartAxis, Line, LineStyle, Value, Variant};
use tailbound_units::Nanos;

/// Options of a comparison.
#[derive(Debug, Clone)]
pub struct Options {
    /// Length of each load's measurement.
    pub duration: Nanos,
    /// Number of measurements of each backend, in turn.
    pub repeat: u32,
    /// The measured backends, by name; an empty list means all.
    pub only: Vec<&'static str>,
    /// The video that is sent beside streams at a constant rate.
    pub trace: Trace,
}

/// A comparison with its load. Its file has the checks.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    load: Load,
}

/// The load of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Load {
    /// TCP and the smallest frames between two guests.
    Forward,
    /// Frames between two VMs' NICs.
    Cards,
    /// Streams of RTP from a limited guest.
    Rtp,
    /// Pages of nginx in a limited guest.
    Http,
    /// Endless TCP and UDP from a limited guest.
    Rate,
}

impl Load {
    const fn bench(self) -> &'static dyn Bench {
        match self {
            Self::Forward => &forward::Forward,
            Self::Cards => &cards::Cards,
            Self::Rtp => &limits::Limits::Rtp,
            Self::Http => &limits::Limits::Http,
            Self::Rate => &limits::Limits::Rate,
        }
    }
}

/// A measurement of several backends.
trait Bench {
    /// Returns the names of the backends, in the order of their turns.
    fn backends(&self) -> Vec<&'static str>;

    /// Returns the programs that all measurements need.
    fn tools(&self) -> &'static [Tool];

    /// Returns the names of a backend's figures, except for its ratios.
    fn figures(&self, backend: usize) -> Vec<String>;

    /// Returns the ratios between figures of two backends.
    fn ratios(&self) -> &'static [Ratio] {
        &[]
    }

    /// Returns the label and the unit of the axes of its charts.
    fn axes(&self) -> [(&'static str, &'static str); 2] {
        [("", ""); 2]
    }

    /// Returns the length of a load before samples count.
    fn warmup(&self) -> Nanos {
        Nanos::from_millis(500)
    }

    /// Returns the time for packets in transit after a load.
    fn grace(&self) -> Nanos {
        Nanos::ZERO
    }

    /// Returns the rank of programs in guests; by default they have no class of their own.
    fn rank(&self) -> Option<Rank> {
        None
    }

    /// Returns the reason if a backend is unavailable on this computer.
    fn missing(&self, _backend: usize) -> Result<Option<String>, LabError> {
        Ok(None)
    }

    /// Measures a backend once.
    fn measure(&self, rig: &Rig<'_>, backend: usize) -> Result<Measurement, LabError>;
}

/// Figures of a backend relative to figures of another backend.
struct Ratio {
    /// The backend,
    of: &'static str,
    /// and the other one.
    to: &'static str,
    /// The figures, each after its short name: the ratio is `SHORT_to_BACKEND`.
    figures: &'static [(&'static str, &'static str)],
}

impl Ratio {
    /// Returns the name of each ratio, and its figure.
    fn names(&self) -> impl Iterator<Item = (String, &'static str)> {
        let to = self.to.replace('-', "_");
        let figures = self.figures.iter();
        figures.map(move |(short, figure)| (format!("{short}_to_{to}"), *figure))
    }
}

impl Experiment for Comparison {
    type Options = Options;
    type Error = LabError;

    const CATALOGUE: Catalogue = catalogue!(
        "experiments": "forward", "cards", "shaped/rtp", "shaped/http", "shaped/rate",
    );

    fn read(document: &Document<'_>) -> Result<Self, Vec<Mistake>> {
        document.whole()
    }

    fn check(&mut self, _: &str, _: &mut Mistakes) {}

    fn outline(&self) -> Vec<Variant> {
        let bench = self.load.bench();
        let variant = |(index, name): (usize, &'static str)| {
            let ratios = bench.ratios().iter().filter(|ratio| ratio.of == name);
            let ratios = ratios.flat_map(Ratio::names).map(|(name, _)| name);
            let figures = bench.figures(index).into_iter().chain(ratios);
            Variant {
                name: name.to_owned(),
                values: figures.map(|name| (name, Value::default())).collect(),
                ..Variant::default()
            }
        };
        let backends = bench.backends().into_iter().enumerate();
        backends.map(variant).collect()
    }

    /// Moves this process into namespaces of its own, as a run of the lab does.
    fn run(&self, run: &mut Run<'_, Options>) -> Result<RunOutput, LabError> {
        let (bench, options) = (self.load.bench(), run.options);
        require(bench.tools().iter().copied())?;
        let session = Session::enter(false)?;
        let mut output = session.found(options.duration, options.repeat);
        let backends = bench.backends();
        let mut missing = Vec::new();
        for (index, name) in backends.iter().enumerate() {
            let is_chosen = options.only.is_empty() || options.only.contains(name);
            missing.push(if is_chosen {
                bench.missing(index)?
            } else {
                Some("not asked for".to_owned())
            });
        }
        let is_here = |index: &usize| missing[*index].is_none();
        let running: Vec<usize> = (0..backends.len()).filter(is_here).collect();
        let names: Vec<&str> = running.iter().map(|index| backends[*index]).collect();
        let mut rig = Rig {
            session: &session,
            options,
            warmup: bench.warmup(),
            grace: bench.grace(),
            policy: bench.rank().and_then(|rank| session.policy(rank)),
            round: 0,
        };
        let (repeat, progress) = (options.repeat, &mut *run.progress);
        let mut measured = rounds(&names, repeat, None, progress, |index, round, announce| {
            announce("measuring");
            rig.round = round;
            let before = CpuUse::read(std::iter::empty());
            let measured = bench.measure(&rig, running[index]);
            if measured.is_err() {
                // The next measurement must not find the namespaces of this one.
                let _ = rig::remove_namespaces();
            }
            Ok(Measurement {
                cpus_taken: taken(before),
                ..measured?
            })
        })?;
        add_ratios(bench.ratios(), &names, &mut measured);
        output.charts = charts(bench, &names, &measured);
        let mut disturbances = Disturbances::default();
        let mut measured = measured.into_iter();
        for (name, missing) in backends.iter().zip(missing) {
            let mut repeats = Vec::new();
            let why = missing.or_else(|| {
                repeats = measured.next().unwrap_or_default();
                disturbances.add_runs(name, &mut repeats)
            });
            output.variants.push(match why {
                Some(why) => summarise::unavailable(name, &why),
                None => summarise::variant(name, &repeats),
            });
        }
        disturbances.finish(&mut output);
        Ok(output)
    }
}

/// Adds the ratios between the measurements of the same round.
fn add_ratios(ratios: &[Ratio], names: &[&str], measured: &mut [Vec<Measurement>]) {
    let index = |backend: &str| names.iter().position(|name| *name == backend);
    for ratio in ratios {
        let (Some(of), Some(to)) = (index(ratio.of), index(ratio.to)) else {
            continue;
        };
        for round in 0..measured[of].len() {
            for (name, figure) in ratio.names() {
                let get = |backend: usize| Some(measured[backend][round].values.get(figure)?.1);
                if let (Some(ours), Some(theirs)) = (get(of), get(to)) {
                    measured[of][round].value(name, "", ours / theirs);
                }
            }
        }
    }
}

/// Returns charts with a line for each backend, from the first round.
fn charts(bench: &dyn Bench, names: &[&str], measured: &[Vec<Measurement>]) -> Vec<Chart> {
    let mut charts: BTreeMap<&str, Vec<Line>> = BTreeMap::new();
    for (name, rounds) in names.iter().zip(measured) {
        let lines = rounds.first().into_iter().flat_map(|round| &round.lines);
        for (chart, points) in lines {
            let line = Line::new(*name, LineStyle::Measured, points.iter().copied());
            charts.entry(chart).or_default().push(line);
        }
    }
    let [x, y] = bench.axes();
    let chart = |(name, lines): (&str, Vec<Line>)| Chart {
        name: name.to_owned(),
        title: name.replace('_', " "),
        x: ChartAxis::linear(x.0, x.1),
        y: ChartAxis::linear(y.0, y.1),
        lines,
        note: None,
    };
    charts.into_iter().map(chart).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailbound_experiment::Loaded;

    #[test]
    fn every_comparison_is_sound_and_names_its_figures() {
        for name in Comparison::CATALOGUE.names() {
            let source = Comparison::CATALOGUE.source(name).unwrap();
            let loaded = Loaded::<Comparison>::parse(&source).unwrap();
            let outline = loaded.experiment.outline();
            assert!(outline.iter().all(|it| !it.values.is_empty()), "{name}");
        }
    }

    #[test]
    fn a_ratio_compares_figures_of_one_round() {
        let measured = |figure: f64| {
            let mut measured = Measurement::default();
            measured.value("small_s", "/s", figure);
            measured
        };
        let ratio = Ratio {
            of: "ours",
            to: "other-one",
            figures: &[("small", "small_s")],
        };
        let mut all = [
            vec![measured(1.0), measured(6.0)],
            vec![measured(2.0), Measurement::default()],
        ];
        add_ratios(&[ratio], &["ours", "other-one"], &mut all);
        assert_eq!(all[0][0].values["small_to_other_one"], ("", 0.5));
        // The other backend was lost in the second round.
        assert_eq!(all[0][1].values.len(), 1);
    }
}
