//! A running load, and how its outcomes become figures.

use super::crew::Crew;
use crate::LabError;
use crate::guest::Outcome;
use crate::measurement::{MeasuredSeries, Measurement};
use crate::monitor::Record;
use crate::noise::{Losses, judge};
use crate::topology::Guest;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tailbound_units::Nanos;

/// Adds the figures of a load to a measurement, from the outcomes of its tasks.
type Read<'a> =
    Box<dyn Fn(&Reading<'_>, Vec<Outcome>, &mut Measurement) -> Result<(), LabError> + 'a>;

/// A running load.
pub(super) struct Load<'a> {
    /// Outcome files of its tasks.
    pub(super) outcomes: Vec<PathBuf>,
    /// A program that starts with the load, because it cannot wait for a start message.
    pub(super) late: Option<Late<'a>>,
    /// The children whose waits for a CPU are disturbances.
    pub(super) on_path: Vec<usize>,
    /// Maximum of a sample's passages through each child, if known.
    pub(super) passages: Option<usize>,
    pub(super) read: Read<'a>,
}

/// A program in a guest, which starts with the load.
pub(super) struct Late<'a> {
    pub(super) guest: &'a Guest,
    /// The program and its arguments.
    pub(super) words: Vec<String>,
    /// Its index among the children after its start.
    pub(super) child: Option<usize>,
}

/// Input of a load's figures beside its outcomes.
pub(super) struct Reading<'r> {
    pub(super) crew: &'r Crew<'r>,
    pub(super) record: &'r Record,
    /// Begin and end of the time in which samples count.
    pub(super) counted: [Nanos; 2],
    /// CPU share of each host's daemon in that time, in percent.
    pub(super) daemon_cpu: &'r BTreeMap<&'r str, f64>,
    /// CPU time that the hypervisor took,
    pub(super) stolen: &'r Losses<'r>,
    /// and that the children on the load's path waited for.
    pub(super) ours: &'r Losses<'r>,
    /// Output of the program that started with the load.
    pub(super) output: String,
}

impl Reading<'_> {
    /// Returns the series with the class of each sample.
    pub(super) fn judged(&self, series: MeasuredSeries) -> MeasuredSeries {
        MeasuredSeries {
            classes: judge(&series.samples, self.stolen, self.ours),
            ..series
        }
    }
}

impl<'a> Load<'a> {
    /// Returns a load without children on its path.
    pub(super) fn new(
        outcomes: Vec<PathBuf>,
        read: impl Fn(&Reading<'_>, Vec<Outcome>, &mut Measurement) -> Result<(), LabError> + 'a,
    ) -> Self {
        Self {
            outcomes,
            late: None,
            on_path: Vec::new(),
            passages: None,
            read: Box::new(read),
        }
    }

    /// Returns a load whose figure is the series of all samples.
    pub(super) fn series(name: &'a str, outcomes: Vec<PathBuf>) -> Self {
        Self::new(outcomes, move |reading, outcomes, measured| {
            let series = reading.judged(samples(outcomes));
            measured.series.insert(name.to_owned(), series);
            Ok(())
        })
    }

    /// Returns a load whose figure is a sum over all outcomes.
    pub(super) fn sum(
        name: &'a str,
        unit: &'static str,
        outcomes: Vec<PathBuf>,
        of: fn(&Outcome) -> f64,
    ) -> Self {
        Self::new(outcomes, move |_, outcomes, measured| {
            measured.value(name, unit, outcomes.iter().map(of).sum());
            Ok(())
        })
    }

    /// Returns the load with these children on its path; `passages` is the maximum of a sample's
    /// passages through each of them, if it is known.
    pub(super) fn through(mut self, on_path: Vec<usize>, passages: Option<usize>) -> Self {
        self.on_path = on_path;
        self.passages = passages;
        self
    }
}

/// Returns the samples of all outcomes.
pub(super) fn samples(outcomes: Vec<Outcome>) -> MeasuredSeries {
    let mut series = MeasuredSeries::default();
    for outcome in outcomes {
        series.samples.extend(outcome.samples);
        series.unanswered += outcome.unanswered;
    }
    series
}
