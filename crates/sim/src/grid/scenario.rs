//! A scenario: its TOML file, and the points of its grid.

use super::vary::{self, Vary};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;
use tailbound_experiment::{Document, ExperimentError, Mistake, Name, Source};
use toml::{Spanned, Table};

/// Largest number of points of a grid.
const MAX_POINTS: usize = 100_000;

/// A scenario's file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Name of the grid, directory and report.
    name: Name,
    /// Purpose, in one line.
    title: String,
    /// Varied experiment: KIND/NAME or KIND/FILE.toml.
    experiment: Name,
    /// Runs of each combination, with different seeds; 1.
    #[serde(default = "one")]
    repetitions: Spanned<u32>,
    /// Seed of the first repetition, others follow it; 1.
    #[serde(default = "first")]
    seed: u64,
    /// Varied keys. Each combination of values is a point.
    #[serde(default)]
    vary: Vec<Vary>,
    /// Figures of charts over the first varied key.
    #[serde(default)]
    show: Vec<String>,
}

fn one() -> Spanned<u32> {
    Spanned::new(0..0, 1)
}

const fn first() -> u64 {
    1
}

/// A grid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// Purpose of the grid, in one line.
    pub title: String,
    /// KIND/NAME of the experiment.
    pub experiment: String,
    /// Varied keys.
    pub keys: Vec<String>,
    /// Figures of the charts over the first key.
    pub show: Vec<String>,
    /// The points, those of one combination one after the other.
    pub points: Vec<GridPoint>,
}

/// One deterministic run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GridPoint {
    /// The values of the keys, as text.
    pub settings: Vec<String>,
    /// The repetition, from 0.
    pub repetition: u32,
    /// Seed of all random numbers.
    pub seed: u64,
    /// The experiment.
    pub source: Source,
    /// Hash of the inputs of the point's result, in 32 bytes as text: two points with the same hash
    /// are equal.
    pub key: String,
}

/// A combination of values.
struct Combination {
    table: Table,
    settings: Vec<String>,
    /// Position of each value in the file.
    spans: Vec<Range<usize>>,
}

impl Scenario {
    /// Returns the kind of its experiment.
    pub fn kind(&self) -> &str {
        self.experiment.split_once('/').map_or("", |it| it.0)
    }

    /// Describes a point: `messages.flows.load = 0.5, repetition 2`.
    pub fn told(&self, point: usize) -> String {
        let point = &self.points[point];
        let pairs = self.keys.iter().zip(&point.settings);
        let pairs = pairs.map(|(key, value)| format!("{key} = {value}, "));
        format!(
            "{}repetition {}",
            pairs.collect::<String>(),
            point.repetition
        )
    }

    /// Reads a scenario, for the program with this `version`: rows of two versions are never mixed.
    /// `find` returns the text of an experiment. `check` checks an experiment and returns the
    /// content that it read from other files ([`tailbound_experiment::Experiment::inputs`]); it is
    /// called for every combination of values.
    ///
    /// # Errors
    /// All errors of the file, with their positions; an error about a value that the experiment
    /// does not accept has the value's position in the scenario.
    ///
    /// # Panics
    /// `check` accepts a text that is not TOML.
    pub fn parse(
        source: &Source,
        version: &str,
        find: impl Fn(&str) -> Result<Source, ExperimentError>,
        check: impl Fn(&str, &Source) -> Result<String, ExperimentError>,
    ) -> Result<Self, ExperimentError> {
        let failed = |mistakes| ExperimentError::mistakes(&source.file, mistakes);
        let document = Document::parse(&source.text).map_err(failed)?;
        let file: File = document.whole().map_err(failed)?;
        let mistakes = file.mistakes(&document);
        if !mistakes.is_empty() {
            return Err(failed(mistakes));
        }
        let experiment = file.experiment.get_ref();
        let not_found = |error: ExperimentError| {
            failed(vec![
                document.mistake(file.experiment.span(), error.to_string()),
            ])
        };
        let base = find(experiment).map_err(not_found)?;
        // An error of the experiment itself has its position there.
        check(experiment, &base)?;
        let table: Table = base.text.parse().expect("the checked text is TOML");
        let varied = VariedScenario {
            file: &file,
            version,
            document: &document,
            base: &base,
            check: |source: &Source| check(experiment, source),
        };
        let points = varied.points(&table).map_err(failed)?;
        Ok(Self {
            name: file.name.into_inner(),
            title: file.title,
            experiment: file.experiment.into_inner(),
            keys: (file.vary.iter())
                .map(|vary| vary.key.get_ref().clone())
                .collect(),
            show: file.show,
            points,
        })
    }
}

/// A scenario's file, and the experiment that it varies.
struct VariedScenario<'s, C> {
    file: &'s File,
    version: &'s str,
    document: &'s Document<'s>,
    base: &'s Source,
    check: C,
}

impl<C: Fn(&Source) -> Result<String, ExperimentError>> VariedScenario<'_, C> {
    /// Returns all points.
    fn points(&self, table: &Table) -> Result<Vec<GridPoint>, Vec<Mistake>> {
        let combinations = self.combinations(table)?;
        let (mut points, mut mistakes) = (Vec::new(), Vec::new());
        for combination in &combinations {
            let source = self.source(&combination.table);
            match (self.check)(&source) {
                Ok(inputs) => self.repeat(combination, &source, &inputs, &mut points),
                Err(error) => mistakes.extend(self.blame(table, combination, &error)),
            }
        }
        // Other combinations with an invalid value report the same error.
        mistakes.sort_by_key(|mistake: &Mistake| mistake.location);
        mistakes.dedup();
        if mistakes.is_empty() {
            Ok(points)
        } else {
            Err(mistakes)
        }
    }

    fn combinations(&self, table: &Table) -> Result<Vec<Combination>, Vec<Mistake>> {
        let mut all = vec![Combination {
            table: table.clone(),
            settings: Vec::new(),
            spans: Vec::new(),
        }];
        for vary in &self.file.vary {
            let mut more = Vec::new();
            for (before, (value, span)) in all
                .iter()
                .flat_map(|it| vary.all().map(move |value| (it, value)))
            {
                let mut table = before.table.clone();
                vary::put(&mut table, vary.key.get_ref(), &value)
                    .map_err(|why| vec![self.document.mistake(vary.key.span(), why)])?;
                more.push(Combination {
                    table,
                    settings: [&before.settings[..], &[vary::text(&value)]].concat(),
                    spans: [&before.spans[..], &[span]].concat(),
                });
            }
            all = more;
        }
        Ok(all)
    }

    fn source(&self, table: &Table) -> Source {
        Source {
            text: table.to_string(),
            file: self.base.file.clone(),
        }
    }

    fn repeat(
        &self,
        combination: &Combination,
        source: &Source,
        inputs: &str,
        points: &mut Vec<GridPoint>,
    ) {
        let kind = self.file.experiment.get_ref().split('/').next();
        for repetition in 0..*self.file.repetitions.get_ref() {
            let seed = self.file.seed.wrapping_add(repetition.into());
            points.push(GridPoint {
                settings: combination.settings.clone(),
                repetition,
                seed,
                source: source.clone(),
                key: key(&[
                    self.version,
                    kind.unwrap_or_default(),
                    &seed.to_string(),
                    &source.text,
                    inputs,
                ]),
            });
        }
    }

    /// Returns the errors of a combination, at the value that is invalid by itself; if each value
    /// is valid without the others, at the last one.
    fn blame(
        &self,
        table: &Table,
        combination: &Combination,
        error: &ExperimentError,
    ) -> Vec<Mistake> {
        let alone = |place: &usize| {
            let vary = &self.file.vary[*place];
            let value = vary
                .all()
                .find(|(_, span)| *span == combination.spans[*place]);
            let value =
                value.filter(|(value, _)| vary::text(value) == combination.settings[*place]);
            let mut table = table.clone();
            value.is_some_and(|(value, _)| {
                let _ = vary::put(&mut table, vary.key.get_ref(), &value);
                let found = (self.check)(&self.source(&table)).err();
                found.is_some_and(|found| found.messages() == error.messages())
            })
        };
        let place = (0..combination.spans.len()).find(alone);
        let (span, with) = match (place, combination.spans.last()) {
            (Some(place), _) => (combination.spans[place].clone(), place..place + 1),
            (None, Some(last)) => (last.clone(), 0..combination.spans.len()),
            (None, None) => (self.file.experiment.span(), 0..0),
        };
        let pairs = self.file.vary.iter().zip(&combination.settings);
        let pairs: Vec<String> = pairs
            .map(|(vary, value)| format!("{} = {value}", vary.key.get_ref()))
            .collect();
        let with = pairs[with].join(", ");
        let messages = error.messages().into_iter();
        let mistake = |why| {
            self.document
                .mistake(span.clone(), format!("with {with}: {why}"))
        };
        messages.map(mistake).collect()
    }
}

/// Returns the hash of all parts, 32 bytes as text: the key of a [`Row`](super::Row).
pub fn key(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex(&hash.finalize())
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl File {
    /// Returns the contradictions and exceeded limits in the file.
    fn mistakes(&self, document: &Document<'_>) -> Vec<Mistake> {
        let mut found = Vec::new();
        let mut at = |span, why: String| found.push(document.mistake(span, why));
        let name = self.name.get_ref();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
            let why = format!("the name {name:?}; use letters, digits, '-', '_' and '.'");
            at(self.name.span(), why);
        }
        if *self.repetitions.get_ref() == 0 {
            let why = "repetitions = 0; choose 1 or more".to_owned();
            at(self.repetitions.span(), why);
        }
        let mut keys = BTreeSet::new();
        let mut points = u128::from(*self.repetitions.get_ref());
        for vary in &self.vary {
            let key = vary.key.get_ref();
            if !keys.insert(key) {
                at(vary.key.span(), format!("{key} is varied twice"));
            }
            match vary.mistake() {
                Some((span, why)) => at(span, why),
                None => points = points.saturating_mul(vary.count() as u128),
            }
        }
        if points > MAX_POINTS as u128 {
            let why = format!("the grid has {points} points; {MAX_POINTS} at most");
            at(self.name.span(), why);
        }
        found.sort_by_key(|mistake: &Mistake| mistake.location);
        found
    }
}
