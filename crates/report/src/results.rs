//! The whole of a run, and its file.

use crate::chart::Chart;
use crate::error::ReportError;
use crate::stats::Stats;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// The version of the file format. It changes when a field changes its meaning
/// or goes away; a field that is added does not change it.
pub const SCHEMA: u32 = 1;

/// What an experiment found. Serialized, this is the result file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The name of the experiment; the files are called after it.
    pub experiment: String,
    /// What it shows, in one line.
    pub title: String,
    /// The paper and section it reproduces.
    pub source: String,
    /// Everything random in the run follows from this.
    pub seed: u64,
    /// What the run depended on: link rate, kernel, CPUs, durations.
    pub conditions: BTreeMap<String, serde_json::Value>,
    /// The configurations that were compared, in the order of the experiment.
    pub variants: Vec<Variant>,
    /// Figures over what was varied, beside what the paper says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub charts: Vec<Chart>,
    /// What the experiment expects, and whether it held.
    pub checks: Vec<CheckResult>,
    /// The outcome.
    pub verdict: Verdict,
    /// Why, in one line.
    pub verdict_reason: String,
}

/// One configuration, and what was measured with it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// Stable name: an interface.
    pub name: String,
    /// Why it could not run here; then it has no series and no values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// Distributions by their stable names.
    pub series: BTreeMap<String, Series>,
    /// Single figures by their stable names.
    pub values: BTreeMap<String, Value>,
    /// What the samples of a series should not exceed, by the series' name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bounds: BTreeMap<String, Vec<Bound>>,
}

/// A figure that samples should not exceed, beside which they are shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// Where it comes from, in a word: "promised", "computed".
    pub name: String,
    /// The figure, in the series' unit.
    pub value: u64,
}

/// Least and greatest over the repeats, by the key of the statistic
/// ([`crate::Statistic::key`]).
pub type Spread = BTreeMap<String, [u64; 2]>;

/// A distribution.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The unit of every figure: "ns".
    pub unit: String,
    /// The samples that were not hit by the machine's own noise. Checks rest on
    /// these. With several repeats each figure is the median over them, `hdr`
    /// and the count in it are of all repeats merged.
    #[serde(flatten)]
    pub stats: Stats,
    /// All samples, those that were hit included.
    pub all: Stats,
    /// How many were hit, by whose fault.
    pub hit: Hit,
    /// Late samples that were not hit: the mechanism's own tail.
    pub unexplained: u64,
    /// Requests that got no answer. They are in no histogram.
    pub unanswered: u64,
    /// The range of each figure of `stats` over the repeats, when there were several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
}

/// Samples that were late because this machine had no CPU for the measurement,
/// by whose fault.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hit {
    /// Our own infrastructure waited in a run queue.
    pub ours: u64,
    /// The hypervisor below gave the CPU to somebody else (steal).
    pub stolen: u64,
}

impl Hit {
    /// How many samples were set apart.
    pub const fn total(self) -> u64 {
        self.ours.saturating_add(self.stolen)
    }
}

/// A single figure.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// Its unit: "bit/s", "op/s".
    pub unit: String,
    /// The figure; the median when there are repeats. One that could not be
    /// computed (not a number, infinite) is `null` in the file and reads back
    /// as not a number.
    #[serde(deserialize_with = "null_is_nan")]
    pub value: f64,
    /// Least and greatest over the repeats, when there were several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<[f64; 2]>,
}

pub(crate) fn null_is_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// One expectation of the experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckResult {
    /// Stable name.
    pub name: String,
    /// What was expected: ">= 0.56".
    pub want: String,
    /// What was found; nothing when a variant it needs could not run.
    pub got: Option<f64>,
    /// Whether it held.
    pub pass: bool,
    /// Where the expectation comes from: paper and section.
    pub source: String,
    /// What else there is to know, such as why there is no figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl CheckResult {
    /// How it came out, in a word: without a figure there is nothing to judge.
    pub const fn outcome(&self) -> &'static str {
        match (self.got, self.pass) {
            (None, _) => "not judged",
            (Some(_), true) => "pass",
            (Some(_), false) => "FAIL",
        }
    }
}

/// The outcome of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// Every check held.
    Pass,
    /// A check did not hold.
    Fail,
    /// The machine was too busy with other things to judge.
    Noisy,
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::Noisy => "NOISY",
        })
    }
}

/// The files of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The result file.
    pub json: PathBuf,
    /// The page that shows it.
    pub html: PathBuf,
}

impl Results {
    /// Reads a result file.
    ///
    /// # Errors
    /// It cannot be read, is not JSON of this shape, has another schema, or one
    /// of its histograms is damaged.
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
        /// The schema comes first: a later one may have any other shape.
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

    /// Writes `EXPERIMENT.json` and the page `EXPERIMENT.html` into `directory`,
    /// which is made if it is not there. The JSON is written first, so that it is
    /// there even when the page cannot be made.
    ///
    /// # Errors
    /// The experiment's name cannot name a file, the directory cannot be written
    /// to, or a histogram is damaged.
    pub fn write(&self, directory: &Path) -> Result<Written, ReportError> {
        let stem = self.file_stem()?;
        let json = directory.join(format!("{stem}.json"));
        let html = directory.join(format!("{stem}.html"));
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| ReportError::Write { path, source }
        };
        fs::create_dir_all(directory).map_err(failed(directory))?;
        fs::write(&json, self.to_json()).map_err(failed(&json))?;
        fs::write(&html, self.to_html()?).map_err(failed(&html))?;
        Ok(Written { json, html })
    }

    /// The result file's text.
    #[expect(clippy::missing_panics_doc, reason = "what is expected cannot fail")]
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self)
            .expect("strings as keys and plain values always serialize");
        text.push('\n');
        text
    }

    /// The names of all series of all variants. Those with the most samples come
    /// first: they are what the run is about.
    pub fn series_names(&self) -> Vec<&str> {
        let mut samples: BTreeMap<&str, u64> = BTreeMap::new();
        for variant in &self.variants {
            for (name, series) in &variant.series {
                *samples.entry(name).or_default() += series.all.count;
            }
        }
        let mut names: Vec<_> = samples.keys().copied().collect();
        // Stable: equals stay in the order of their names.
        names.sort_by_key(|name| std::cmp::Reverse(samples[name]));
        names
    }

    /// Whether any variant has a bound of that series.
    pub(crate) fn has_bounds(&self, series: &str) -> bool {
        let mut variants = self.variants.iter();
        variants.any(|variant| variant.bounds.contains_key(series))
    }

    /// The names of all values, over all variants.
    pub fn value_names(&self) -> BTreeSet<&str> {
        self.variants
            .iter()
            .flat_map(|variant| variant.values.keys().map(String::as_str))
            .collect()
    }

    /// The variant of that name.
    pub fn variant(&self, name: &str) -> Option<&Variant> {
        self.variants.iter().find(|variant| variant.name == name)
    }

    fn file_stem(&self) -> Result<&str, ReportError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        match self.experiment.as_str() {
            name if !name.is_empty() && !name.starts_with('.') && name.chars().all(plain) => {
                Ok(name)
            }
            name => Err(ReportError::Name { name: name.into() }),
        }
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
