//! Where things stand in a configuration file, and what serde's messages mean.

use super::{Config, GuestConfig, Mistake, UplinkConfig};
use crate::hose::HoseConfig;
use crate::vcpu::VcpuConfig;
use serde::de::DeserializeOwned;
use std::net::SocketAddr;
use std::ops::Range;
use tailbound_units::Place;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// A step on the way to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Key(&'static str),
    Index(usize),
}

/// The sections of a configuration that could be read.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) metrics: Option<SocketAddr>,
    pub(super) uplink: Option<UplinkConfig>,
    /// There is an uplink that could not be read.
    pub(super) unread_uplink: bool,
    pub(super) cpu: Option<u32>,
    pub(super) vcpu: Option<VcpuConfig>,
    pub(super) hose: Option<HoseConfig>,
    /// Each with its place in the file's list.
    pub(super) guests: Vec<(usize, GuestConfig)>,
}

impl From<Draft> for Config {
    fn from(draft: Draft) -> Self {
        Self {
            metrics: draft.metrics,
            uplink: draft.uplink,
            cpu: draft.cpu,
            vcpu: draft.vcpu,
            hose: draft.hose,
            guests: draft.guests.into_iter().map(|(_, guest)| guest).collect(),
        }
    }
}

/// A file that is TOML.
#[derive(Debug)]
pub(crate) struct Document<'t> {
    text: &'t str,
    root: Spanned<DeValue<'t>>,
}

const TOP: &[&str] = &["metrics", "cpu", "uplink", "guest", "vcpu", "hose"];

impl<'t> Document<'t> {
    pub(crate) fn parse(text: &'t str) -> Result<Self, Vec<Mistake>> {
        let (table, errors) = DeTable::parse_recoverable(text);
        let root = Spanned::new(table.span(), DeValue::Table(table.into_inner()));
        let document = Self { text, root };
        if errors.is_empty() {
            return Ok(document);
        }
        let mut mistakes: Vec<_> = errors
            .iter()
            .map(|error| {
                let place = error.span().unwrap_or_default();
                document.mistake(place, format!("not TOML: {}", semicolon(error.message())))
            })
            .collect();
        mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
        Err(mistakes)
    }

    /// Reads each section by itself, so that a mistake in one does not hide
    /// those in the others.
    pub(super) fn read(&self) -> (Draft, Vec<Mistake>) {
        let mut draft = Draft::default();
        let mut mistakes = Vec::new();
        let Some(root) = self.root.get_ref().as_table() else {
            return (draft, mistakes);
        };
        for (key, value) in root {
            match key.get_ref().as_ref() {
                "metrics" => draft.metrics = self.section(value, &mut mistakes),
                "uplink" => {
                    draft.uplink = self.section(value, &mut mistakes);
                    draft.unread_uplink = draft.uplink.is_none();
                }
                "cpu" => draft.cpu = self.section(value, &mut mistakes),
                "vcpu" => draft.vcpu = self.section(value, &mut mistakes),
                "hose" => draft.hose = self.section(value, &mut mistakes),
                "guest" => match value.get_ref().as_array() {
                    Some(guests) => {
                        for (index, guest) in guests.iter().enumerate() {
                            let guest = self.section(guest, &mut mistakes);
                            draft.guests.extend(guest.map(|guest| (index, guest)));
                        }
                    }
                    None => mistakes.push(self.mistake(
                        key.span(),
                        "`guest` is not a list; write `[[guest]]` before each guest".to_owned(),
                    )),
                },
                unknown => {
                    mistakes.push(self.mistake(key.span(), unknown_word("key", unknown, TOP)));
                }
            }
        }
        (draft, mistakes)
    }

    /// Reads all of the file as one section.
    pub(crate) fn whole<T: DeserializeOwned>(&self) -> Result<T, Vec<Mistake>> {
        let mut mistakes = Vec::new();
        self.section(&self.root, &mut mistakes).ok_or(mistakes)
    }

    fn section<T: DeserializeOwned>(
        &self,
        value: &Spanned<DeValue<'t>>,
        mistakes: &mut Vec<Mistake>,
    ) -> Option<T> {
        match T::deserialize(ValueDeserializer::from(value.clone())) {
            Ok(read) => Some(read),
            Err(error) => {
                let place = error.span().unwrap_or_else(|| value.span());
                let place = narrow(value, &place, error.message());
                mistakes.push(self.mistake(place, explain(error.message())));
                None
            }
        }
    }

    /// Where the value at `steps` stands; where there is none, what is around
    /// it.
    pub(crate) fn find(&self, steps: &[Step]) -> Range<usize> {
        let mut value = &self.root;
        for step in steps {
            let next = match step {
                Step::Key(key) => value.get_ref().get(*key),
                Step::Index(index) => value.get_ref().get(*index),
            };
            match next {
                Some(next) => value = next,
                None => break,
            }
        }
        value.span()
    }

    pub(crate) fn mistake(&self, place: Range<usize>, message: String) -> Mistake {
        let Place { line, column } = Place::of(self.text, place.start);
        Mistake {
            line,
            column,
            message,
        }
    }
}

/// The place of the key or text that a message names, where serde only knows
/// the table around it (it does so inside of tagged enums).
fn narrow(value: &Spanned<DeValue<'_>>, place: &Range<usize>, message: &str) -> Range<usize> {
    let named = message.split('`').nth(1).unwrap_or_default();
    let found = if message.starts_with("unknown ") {
        within(value, place, named)
    } else {
        None
    };
    found.unwrap_or_else(|| place.clone())
}

/// Where `name` stands, as a key or as a text, in the table at `place`.
fn within(value: &Spanned<DeValue<'_>>, place: &Range<usize>, name: &str) -> Option<Range<usize>> {
    let inside = value.span() == *place;
    match value.get_ref() {
        DeValue::Table(table) => table.iter().find_map(|(key, value)| {
            if inside && key.get_ref() == name {
                return Some(key.span());
            }
            if inside && value.get_ref().as_str() == Some(name) {
                return Some(value.span());
            }
            // Inside the table at `place`, tagged enums may nest.
            let place = if inside { value.span() } else { place.clone() };
            within(value, &place, name)
        }),
        DeValue::Array(list) => list.iter().find_map(|value| within(value, place, name)),
        _ => None,
    }
}

/// A message of serde's in the words of a configuration: what is wrong; what
/// would be right.
fn explain(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let first = quoted.next().unwrap_or_default();
    let known: Vec<_> = quoted.collect();
    if message.starts_with("unknown field") {
        unknown_word("key", first, &known)
    } else if message.starts_with("unknown variant") {
        unknown_word("kind", first, &known)
    } else if message.starts_with("missing field") {
        format!("the key `{first}` is missing; add `{first} = ...` here")
    } else {
        semicolon(message)
    }
}

/// `what, expected this` becomes `what; expected this`.
fn semicolon(message: &str) -> String {
    message.trim_end().replacen(", expected", "; expected", 1)
}

fn unknown_word(what: &str, word: &str, known: &[&str]) -> String {
    let close = known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(word, candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match close {
        Some((_, candidate)) => format!("unknown {what} `{word}`; did you mean `{candidate}`?"),
        None => format!("unknown {what} `{word}`; known here: {}", known.join(", ")),
    }
}
