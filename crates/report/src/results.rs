//! A whole run, and its file.

use crate::SCHEMA;
use crate::chart::{Chart, null_is_nan};
use crate::error::ReportError;
use crate::provenance::Provenance;
use crate::stats::Stats;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;

/// Result of an experiment. Serialized, this is the result file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Version of the format, [`SCHEMA`].
    pub schema: u32,
    /// Name of the experiment and of its files.
    pub experiment: String,
    /// Title in one line.
    pub title: String,
    /// The paper and section it reproduces.
    pub source: String,
    /// Origin of the result; absent before it is written, and in files of versions without this
    /// field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Provenance>,
    /// Seed of all random numbers of the run.
    pub seed: u64,
    /// Conditions of the run: link rate, kernel, CPUs, durations.
    pub conditions: BTreeMap<String, serde_json::Value>,
    /// The compared configurations, in the order of the experiment.
    pub variants: Vec<Variant>,
    /// Figures over the varied quantity, beside the paper's results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub charts: Vec<Chart>,
    /// The experiment's expectations and their outcomes.
    pub checks: Vec<CheckResult>,
    /// The outcome.
    pub verdict: Verdict,
    /// Reason of the verdict, in one line.
    pub verdict_reason: String,
    /// The result in one sentence, for readers of nothing else; only if the experiment defines its
    /// subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sentence: Option<String>,
    /// Readable labels of series, values and variants, by their stable names. A name without one
    /// is its own label.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub words: BTreeMap<String, String>,
}

/// One configuration and its measurements.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// Stable name: an interface.
    pub name: String,
    /// Reason why it could not run here; then it has no series and no values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// Distributions by their stable names.
    pub series: BTreeMap<String, Series>,
    /// Single figures by their stable names.
    pub values: BTreeMap<String, Value>,
    /// Upper bounds of the samples of a series, by the series' name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bounds: BTreeMap<String, Vec<Bound>>,
}

/// An upper bound of samples, which is shown beside them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// Its source in a word: "promised", "computed".
    pub name: String,
    /// Figure, in the series' unit.
    pub value: u64,
}

/// Least and greatest over the repeats, by the key of the statistic
/// ([`crate::Statistic::key`]).
pub type Spread = BTreeMap<String, [u64; 2]>;

/// A distribution.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Unit of every figure: "ns".
    pub unit: String,
    /// The samples that the computer's own noise did not disturb. Checks are judged on these and on
    /// `all`. With several repeats each figure is the median over them, and `hdr` and the count
    /// merge all repeats.
    #[serde(flatten)]
    pub stats: Stats,
    /// All samples, with the disturbed ones.
    pub all: Stats,
    /// Number of disturbed samples, by cause.
    pub hit: Hit,
    /// Late samples that were not disturbed: the mechanism's own tail.
    pub unexplained: u64,
    /// Unanswered requests. They are in no histogram.
    pub unanswered: u64,
    /// The range of each figure of `stats` over the repeats, when there were several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
}

/// Samples beside time in which this computer had no CPU for the measurement, late or not, by
/// cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hit {
    /// Our own infrastructure waited in a run queue.
    pub ours: u64,
    /// The hypervisor gave the CPU to another VM (steal).
    pub stolen: u64,
}

impl Hit {
    /// Returns the number of disturbed samples.
    pub const fn total(self) -> u64 {
        self.ours.saturating_add(self.stolen)
    }
}

/// A single figure.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// Its unit: "bit/s", "op/s".
    pub unit: String,
    /// Figure; the median if there are repeats. A figure that could not be computed (not a number,
    /// infinite) is `null` in the file and is read as not a number.
    #[serde(deserialize_with = "null_is_nan")]
    pub value: f64,
    /// Least and greatest over the repeats, when there were several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<[f64; 2]>,
}

impl Series {
    /// Returns a series without disturbed samples.
    pub fn of(unit: &str, samples: &Histogram<u64>) -> Self {
        let stats = Stats::from_histogram(samples);
        Self {
            unit: unit.to_owned(),
            all: stats.clone(),
            stats,
            ..Self::default()
        }
    }
}

impl Value {
    /// Returns a figure that was measured once.
    pub fn new(unit: &str, value: f64) -> Self {
        Self {
            unit: unit.to_owned(),
            value,
            spread: None,
        }
    }
}

impl Variant {
    /// Returns a variant of single figures: name, figure and unit of each.
    pub fn of_values<const N: usize>(name: &str, values: [(&str, f64, &str); N]) -> Self {
        let values = values.map(|(name, value, unit)| (name.to_owned(), Value::new(unit, value)));
        Self {
            name: name.to_owned(),
            values: values.into(),
            ..Self::default()
        }
    }
}

/// One expectation of the experiment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CheckResult {
    /// Stable name.
    pub name: String,
    /// Expected range: ">= 0.56".
    pub want: String,
    /// The measured figure; `None` if the check is NOT TESTED, or if the figure could not be
    /// computed.
    pub got: Option<f64>,
    /// True if the expectation held.
    pub pass: bool,
    /// Source of the expectation: paper and section.
    pub source: String,
    /// Figure of the paper, if it has one: "1.35 ms", or "10 % to 66 %".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<String>,
    /// A note, for example the reason why there is no figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Reason why it is NOT TESTED: a variant that it needs did not run, or there were too few
    /// samples. Then it neither held nor failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_judged: Option<String>,
    /// Noise of the computer that may have decided the outcome: then the check is not judged,
    /// either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<String>,
    /// Range of the figure if the check is known to miss: outside it the check fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<String>,
    /// Known reason of the miss: the verdict does not depend on the check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misses: Option<String>,
}

impl CheckResult {
    /// Returns its outcome.
    pub const fn outcome(&self) -> Outcome {
        match (&self.not_judged, &self.noise, self.pass, &self.misses) {
            (Some(_), _, _, _) => Outcome::NotTested,
            (None, Some(_), _, _) => Outcome::Noisy,
            (None, None, true, _) => Outcome::Pass,
            (None, None, false, None) => Outcome::Fail,
            (None, None, false, Some(_)) => Outcome::Misses,
        }
    }

    /// Returns the reason why it was not judged or did not hold, or else the note.
    pub fn remark(&self) -> Option<&str> {
        let why = self.not_judged.as_deref().or(self.noise.as_deref());
        let why = why.or(self.misses.as_deref());
        why.or(self.note.as_deref())
    }
}

/// Outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The expectation held.
    Pass,
    /// The expectation did not hold.
    Fail,
    /// The expectation did not hold, for a known reason.
    Misses,
    /// The computer was too busy with other work to judge.
    Noisy,
    /// A variant that it needs did not run, or there were too few samples.
    NotTested,
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Pass => "pass",
            Self::Fail => "FAIL",
            Self::Misses => "known miss",
            Self::Noisy => "NOISY",
            Self::NotTested => "NOT TESTED",
        })
    }
}

/// The outcome of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// A check held, and none failed or was noisy; or the run has no checks.
    Pass,
    /// A check failed without noise, or all checks are known misses.
    Fail,
    /// The computer was too busy with other work to judge.
    Noisy,
    /// No check held, and one was not tested: a variant did not run, or had too few samples.
    #[serde(rename = "NOT TESTED", alias = "UNJUDGED")]
    NotTested,
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::Noisy => "NOISY",
            Self::NotTested => "NOT TESTED",
        })
    }
}

impl Results {
    /// Reads a result file.
    ///
    /// # Errors
    /// The file cannot be read, is not JSON of this shape, has another schema, or one of its
    /// histograms is damaged.
    pub fn read(path: &Path) -> Result<Self, ReportError> {
        let bytes = fs::read(path).map_err(|source| ReportError::Read {
            path: path.to_owned(),
            source,
        })?;
        let results = Self::from_slice(&bytes, path)?;
        results
            .check_histograms()
            .map_err(|error| error.in_file(path))?;
        Ok(results)
    }

    fn from_slice(bytes: &[u8], path: &Path) -> Result<Self, ReportError> {
        /// The schema is read first: a later one may have any other shape.
        #[derive(Deserialize)]
        struct Head {
            schema: u64,
        }
        let format = |source| ReportError::Format {
            path: path.to_owned(),
            source,
        };
        let Head { schema } = serde_json::from_slice(bytes).map_err(format)?;
        if schema != u64::from(SCHEMA) {
            return Err(ReportError::Schema {
                path: path.to_owned(),
                found: schema,
            });
        }
        serde_json::from_slice(bytes).map_err(format)
    }

    fn check_histograms(&self) -> Result<(), ReportError> {
        for variant in &self.variants {
            for (name, series) in &variant.series {
                for (set, stats) in [("", &series.stats), (".all", &series.all)] {
                    if let Err(source) = stats.histogram() {
                        return Err(ReportError::Histogram {
                            place: format!("variant {:?}, series {name}{set}", variant.name),
                            source,
                        });
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the text of the result file.
    #[expect(
        clippy::missing_panics_doc,
        reason = "the expected conditions always hold"
    )]
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self)
            .expect("strings as keys and plain values always serialize");
        text.push('\n');
        text
    }

    /// Returns the names of all series of all variants. Series with the most samples come first:
    /// they are the subject of the run.
    pub fn series_names(&self) -> Vec<&str> {
        let mut samples: BTreeMap<&str, u64> = BTreeMap::new();
        for variant in &self.variants {
            for (name, series) in &variant.series {
                *samples.entry(name).or_default() += series.all.count;
            }
        }
        let mut names: Vec<_> = samples.keys().copied().collect();
        // Stable: equal counts stay in the order of the names.
        names.sort_by_key(|name| std::cmp::Reverse(samples[name]));
        names
    }

    /// Returns the readable label of a series, a value or a variant.
    pub fn label<'r>(&'r self, name: &'r str) -> &'r str {
        self.words.get(name).map_or(name, String::as_str)
    }

    /// Returns whether any variant has a bound of that series.
    pub(crate) fn has_bounds(&self, series: &str) -> bool {
        let mut variants = self.variants.iter();
        variants.any(|variant| variant.bounds.contains_key(series))
    }

    /// Returns the names of all values, over all variants.
    pub fn value_names(&self) -> BTreeSet<&str> {
        self.variants
            .iter()
            .flat_map(|variant| variant.values.keys().map(String::as_str))
            .collect()
    }

    /// Returns the chart of that name.
    ///
    /// # Errors
    /// There is no such chart.
    pub fn chart(&self, name: &str) -> Result<&Chart, ReportError> {
        let mut charts = self.charts.iter();
        charts.find(|chart| chart.name == name).ok_or_else(|| {
            let names = self.charts.iter().map(|chart| chart.name.as_str());
            ReportError::NoChart {
                name: name.into(),
                known: names.collect::<Vec<_>>().join(", "),
            }
        })
    }

    /// Returns the variant of that name.
    pub fn variant(&self, name: &str) -> Option<&Variant> {
        self.variants.iter().find(|variant| variant.name == name)
    }
}

impl ReportError {
    fn in_file(self, path: &Path) -> Self {
        match self {
            Self::Histogram { place, source } => Self::Histogram {
                place: format!("{}: {place}", path.display()),
                source,
            },
            other => other,
        }
    }
}
