//! An experiment from its text to its result.

use crate::evaluate::evaluate;
use crate::sentence::Sentence;
use crate::verdict::verdict;
use crate::{
    Catalogue, CdfSpec, ChartSpec, Check, Curve, ExperimentError, Mistakes, Name, Noise, Source,
};
use serde::Deserialize;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use tailbound_document::{Document, DocumentError, Mistake};
use tailbound_report::{Chart, Results, SCHEMA, Variant};

/// A kind of experiments: its own part of a file, and its runs.
pub trait Experiment: Sized {
    /// Options of a run beside its seed.
    type Options;
    /// Error of a run.
    type Error: From<ExperimentError>;

    /// The experiments that come with the program.
    const CATALOGUE: Catalogue;

    /// Reads the keys of this kind.
    ///
    /// # Errors
    /// All values that do not fit.
    fn read(document: &Document<'_>) -> Result<Self, Vec<Mistake>>;

    /// Adds the mistakes of values with the right types. Paths in the experiment are relative to
    /// `file`; contents of these files may be kept.
    fn check(&mut self, file: &str, mistakes: &mut Mistakes);

    /// Returns the variants of a run with the names of all figures, and no values: checks are
    /// validated against them before a run. It must not panic on an experiment that
    /// [`Experiment::check`] refuses.
    fn outline(&self) -> Vec<Variant>;

    /// Returns the contents of the files that the experiment names, as text: with the same seed,
    /// and the same text of its own, the experiment has the same result.
    fn inputs(&self) -> String {
        String::new()
    }

    /// Returns the charts of the experiment.
    fn charts(&self) -> &[ChartSpec] {
        &[]
    }

    /// Returns the curves of these charts.
    fn curves(&self) -> Vec<Curve> {
        Vec::new()
    }

    /// Runs the experiment.
    ///
    /// # Errors
    /// The run did not end.
    fn run(&self, run: &mut Run<'_, Self::Options>) -> Result<RunOutput, Self::Error>;
}

/// Inputs of a run beside its experiment, and the receiver of its progress.
pub struct Run<'r, O> {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Options of the run.
    pub options: &'r O,
    /// Receiver of progress messages.
    pub progress: &'r mut Progress<'r>,
}

/// Receiver of a run's progress messages.
pub type Progress<'p> = dyn FnMut(&str) + Send + 'p;

/// Result of a run, before it is judged.
#[derive(Debug, Clone, Default)]
pub struct RunOutput {
    /// The compared variants.
    pub variants: Vec<Variant>,
    /// Charts beside those of the experiment.
    pub charts: Vec<Chart>,
    /// Conditions of the run.
    pub conditions: BTreeMap<String, Json>,
    /// Disturbances of the computer during the run.
    pub noise: Noise,
}

impl RunOutput {
    /// Returns a result with these variants and without conditions.
    pub fn of(variants: Vec<Variant>) -> Self {
        Self {
            variants,
            ..Self::default()
        }
    }

    /// Adds a condition of the run.
    pub fn condition(&mut self, name: impl Into<String>, value: impl Into<Json>) {
        self.conditions.insert(name.into(), value.into());
    }
}

/// Common keys of all experiments.
#[derive(Debug, Clone, Deserialize)]
struct Head {
    /// Name of the experiment and its results.
    name: Name,
    /// Subject in one line.
    title: String,
    /// Reproduced paper and section.
    source: String,
    /// Charts of distributions.
    #[serde(default)]
    cdf: Vec<CdfSpec>,
    /// Expectations for the verdict.
    #[serde(default)]
    check: Vec<Check>,
    /// Comparison of two variants in one sentence.
    sentence: Option<Sentence>,
    /// Labels of series, values and variants.
    #[serde(default)]
    words: BTreeMap<Name, String>,
}

/// The keys of [`Head`].
const HEAD: &[&str] = &[
    "name", "title", "source", "cdf", "check", "sentence", "words",
];

/// An experiment without mistakes.
#[derive(Debug, Clone)]
pub struct Loaded<E> {
    /// Part of its kind.
    pub experiment: E,
    head: Head,
}

impl<E: Experiment> Loaded<E> {
    /// Reads and checks an experiment.
    ///
    /// # Errors
    /// All its mistakes.
    pub fn parse(source: &Source) -> Result<Self, ExperimentError> {
        Self::parse_changed(source, |_| {})
    }

    /// Reads an experiment, applies `change`, and checks it then.
    ///
    /// # Errors
    /// All its mistakes.
    pub fn parse_changed(
        source: &Source,
        change: impl FnOnce(&mut E),
    ) -> Result<Self, ExperimentError> {
        let mistakes = |mistakes| DocumentError::Mistakes {
            path: source.file.clone().into(),
            mistakes,
        };
        let document = Document::parse(&source.text).map_err(mistakes)?;
        let head = document.only(HEAD).whole::<Head>();
        let own = E::read(&document.without(HEAD));
        let (head, mut experiment) = match (head, own) {
            (Ok(head), Ok(own)) => (head, own),
            (head, own) => {
                let mut all = head.err().unwrap_or_default();
                all.extend(own.err().unwrap_or_default());
                all.sort_by_key(|mistake| mistake.location);
                return Err(mistakes(all).into());
            }
        };
        change(&mut experiment);
        let mut found = Mistakes::new(&head.name);
        found.plain(&head.name);
        experiment.check(&source.file, &mut found);
        check_expectations(&experiment, &head, &mut found);
        let found = found.locate(&document);
        if found.is_empty() {
            Ok(Self { experiment, head })
        } else {
            Err(mistakes(found).into())
        }
    }

    /// Returns the name of the experiment and of its result.
    pub fn name(&self) -> &str {
        self.head.name.get_ref()
    }

    /// Returns the title in one line.
    pub fn title(&self) -> &str {
        &self.head.title
    }

    /// Returns the paper and section that it reproduces.
    pub fn source(&self) -> &str {
        &self.head.source
    }

    /// Returns the names of its checks.
    pub fn checks(&self) -> impl Iterator<Item = &str> {
        let names = self.head.check.iter();
        names.map(|check| check.name.get_ref().as_str())
    }

    /// Runs the experiment and judges its result.
    ///
    /// # Errors
    /// The run did not end.
    pub fn run(
        &self,
        seed: u64,
        options: &E::Options,
        progress: &mut Progress<'_>,
    ) -> Result<Results, E::Error> {
        let found = self.experiment.run(&mut Run {
            seed,
            options,
            progress,
        })?;
        let curves = self.experiment.curves();
        let asked = self.experiment.charts().iter();
        let asked = asked.map(|chart| chart.draw(&curves, &found.variants));
        let distributions = self.head.cdf.iter().map(|cdf| cdf.draw(&found.variants));
        let charts = found.charts.into_iter().chain(asked).chain(distributions);
        let mut charts: Vec<Chart> = charts.collect();
        let expected = &self.head.check;
        let checks = evaluate(expected, &found.variants, &charts, &found.noise);
        let (verdict, verdict_reason) = verdict(&found.variants, &found.noise, &checks);
        let sentence = self.head.sentence.as_ref();
        let sentence = sentence.map(|it| it.tell(verdict, &found.variants));
        let words = self.head.words.iter();
        let words = words.map(|(name, words)| (name.get_ref().clone(), words.clone()));
        let words: BTreeMap<String, String> = words.collect();
        // After the checks, which identify lines by their names.
        for line in charts.iter_mut().flat_map(|chart| &mut chart.lines) {
            if let Some(words) = words.get(&line.name) {
                line.name.clone_from(words);
            }
        }
        Ok(Results {
            schema: SCHEMA,
            experiment: self.head.name.get_ref().clone(),
            title: self.head.title.clone(),
            source: self.head.source.clone(),
            made: None,
            seed,
            conditions: found.conditions,
            variants: found.variants,
            charts,
            checks,
            verdict,
            verdict_reason,
            sentence,
            words,
        })
    }
}

/// Validates the checks and charts of an experiment against its outline.
fn check_expectations<E: Experiment>(experiment: &E, head: &Head, mistakes: &mut Mistakes) {
    let variants = experiment.outline();
    let (charts, curves) = (experiment.charts(), experiment.curves());
    let names = charts.iter().map(|chart| &chart.name);
    mistakes.names("chart", names.chain(head.cdf.iter().map(|cdf| &cdf.name)));
    for chart in charts {
        chart.check(&curves, &variants, mistakes);
    }
    for cdf in &head.cdf {
        cdf.check(&variants, mistakes);
    }
    if let Some(sentence) = &head.sentence {
        sentence.check(&variants, mistakes);
    }
    for name in head.words.keys() {
        let known = variants.iter().flat_map(|variant| {
            let measured = variant.series.keys().chain(variant.values.keys());
            std::iter::once(&variant.name).chain(measured)
        });
        mistakes.known("name", name, known.map(String::as_str));
    }
    mistakes.names("check", head.check.iter().map(|check| &check.name));
    for check in &head.check {
        check.check(&variants, (charts, &curves), mistakes);
    }
}
