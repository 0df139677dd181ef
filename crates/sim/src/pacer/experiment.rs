//! An experiment as data: what its TOML file says, checked.

use super::{Conformance, Isolation, Limits, Messages, Spacing};
use crate::vcpu::experiment::{Name, Problem, find_text, invalid, plain, problem, unique};
use crate::{Check, ExperimentError};
use serde::Deserialize;
use std::collections::BTreeSet;

/// An experiment: one of its kinds, and what is expected of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Names the result files.
    pub name: Name,
    /// What it shows, in one line.
    pub title: String,
    /// Paper and section.
    pub source: String,
    /// Late messages by burst and bandwidth; each burst is a variant.
    pub messages: Option<Messages>,
    /// Configured rates against measured ones; each rate with each bucket is a
    /// variant, and all of them together: `all`.
    pub limits: Option<Limits>,
    /// Departures against the wire; each load is a variant.
    pub spacing: Option<Spacing>,
    /// Hosts that send to one port, against the bounds; one variant: `networks`.
    pub conformance: Option<Conformance>,
    /// A guest beside attackers; each attack is a variant.
    pub isolation: Option<Isolation>,
    /// What is expected.
    #[serde(default)]
    pub check: Vec<Check>,
}

/// The one kind that an experiment has.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind<'e> {
    Messages(&'e Messages),
    Limits(&'e Limits),
    Spacing(&'e Spacing),
    Conformance(&'e Conformance),
    Isolation(&'e Isolation),
}

macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        &[$((
            $name,
            include_str!(concat!("../../../../experiments/pacer/", $name, ".toml")),
        )),*]
    };
}

/// The experiments that come with the program, name and text.
pub const EMBEDDED: &[(&str, &str)] = embedded![
    "silo-table1",
    "limits",
    "spacing",
    "conformance",
    "isolation"
];

/// The text of an experiment: one that comes with the program by its name, else
/// a file. The second of the pair names it in messages.
///
/// # Errors
/// There is neither.
pub fn source_text(name_or_path: &str) -> Result<(String, String), ExperimentError> {
    find_text(EMBEDDED, "experiments/pacer", name_or_path)
}

impl Experiment {
    /// Reads and checks an experiment. `file` is for messages.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn parse(text: &str, file: &str) -> Result<Self, ExperimentError> {
        let experiment: Self =
            toml::from_str(text).map_err(|error| ExperimentError::from_toml(text, file, &error))?;
        experiment
            .validate()
            .map_err(|problem| invalid(text, file, problem))?;
        Ok(experiment)
    }

    /// What kind it is of. `None` where it has none or several.
    pub(super) fn kind(&self) -> Option<Kind<'_>> {
        let kinds = [
            self.messages.as_ref().map(Kind::Messages),
            self.limits.as_ref().map(Kind::Limits),
            self.spacing.as_ref().map(Kind::Spacing),
            self.conformance.as_ref().map(Kind::Conformance),
            self.isolation.as_ref().map(Kind::Isolation),
        ];
        let mut kinds = kinds.into_iter().flatten();
        kinds.next().filter(|_| kinds.next().is_none())
    }

    fn validate(&self) -> Result<(), Problem> {
        plain(&self.name)?;
        let wrong = |message: String| Err(problem(&self.name, message));
        let mistake = match self.kind() {
            None => {
                return wrong(
                    "is not of one kind: write one of [messages], [limits], [spacing], \
                     [conformance], [isolation]"
                        .to_owned(),
                );
            }
            Some(Kind::Messages(messages)) => messages.mistake(),
            Some(Kind::Limits(limits)) => limits.mistake(),
            Some(Kind::Spacing(spacing)) => spacing.mistake(),
            Some(Kind::Conformance(conformance)) => conformance.mistake(),
            Some(Kind::Isolation(isolation)) => isolation.mistake(),
        };
        let mut seen = BTreeSet::new();
        for check in &self.check {
            plain(&check.name)?;
            unique(&mut seen, &check.name, "check")?;
            if check.at_least.is_none() && check.at_most.is_none() {
                return Err(problem(&check.name, "needs at_least or at_most, or both"));
            }
        }
        mistake.map_or(Ok(()), wrong)
    }
}

/// The longest frame that the experiments send, on the wire: 1500 B of payload.
pub(super) const FRAME: u64 = 1538;
