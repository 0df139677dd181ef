//! A TOML file with the location of each value, and what serde's messages mean.

use crate::{Location, Mistake, Problem, Step};
use serde::de::DeserializeOwned;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// A file that is TOML.
#[derive(Debug)]
pub struct Document<'t> {
    text: &'t str,
    root: Spanned<DeValue<'t>>,
}

impl<'t> Document<'t> {
    /// Reads `text` as TOML.
    ///
    /// # Errors
    /// Every mistake in its syntax, in the order of their location; at least one.
    pub fn parse(text: &'t str) -> Result<Self, Vec<Mistake>> {
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
        mistakes.sort_by_key(|mistake| mistake.location);
        Err(mistakes)
    }

    /// The entries at the top of the file, each to be read by itself, so that a
    /// mistake in one does not hide those in the others.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_, 't>> {
        let table = self.root.get_ref().as_table();
        table.into_iter().flatten().map(|(key, value)| Entry {
            document: self,
            key: key.get_ref(),
            key_span: key.span(),
            value,
        })
    }

    /// Reads all of the file as one type.
    ///
    /// # Errors
    /// The first value that does not fit the type.
    pub fn whole<T: DeserializeOwned>(&self) -> Result<T, Vec<Mistake>> {
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

    /// The span of the value at `path`; of what is around it where there is none.
    pub fn find(&self, path: &[Step]) -> Range<usize> {
        let mut value = &self.root;
        for step in path {
            let next = match step {
                Step::Key(key) => value.get_ref().get(*key),
                Step::Name(name) => value.get_ref().get(name.as_str()),
                Step::Index(index) => value.get_ref().get(*index),
            };
            match next {
                Some(next) => value = next,
                None => break,
            }
        }
        value.span()
    }

    /// A mistake at the bytes `span` of the text.
    pub fn mistake(&self, span: Range<usize>, message: impl Into<String>) -> Mistake {
        Mistake {
            location: Location::of(self.text, span.start),
            message: message.into(),
        }
    }

    /// Where each problem stands, in the order of their location.
    pub fn locate(&self, problems: impl IntoIterator<Item = Problem>) -> Vec<Mistake> {
        let mut mistakes: Vec<_> = problems
            .into_iter()
            .map(|problem| self.mistake(self.find(&problem.path), problem.message))
            .collect();
        mistakes.sort_by_key(|mistake| mistake.location);
        mistakes
    }
}

/// A key at the top of a file, and its value.
#[derive(Debug)]
pub struct Entry<'d, 't> {
    document: &'d Document<'t>,
    key: &'d str,
    key_span: Range<usize>,
    value: &'d Spanned<DeValue<'t>>,
}

impl Entry<'_, '_> {
    /// The key.
    pub fn key(&self) -> &str {
        self.key
    }

    /// Reads the value; where it does not fit, adds why to `mistakes`.
    pub fn read<T: DeserializeOwned>(&self, mistakes: &mut Vec<Mistake>) -> Option<T> {
        self.document.section(self.value, mistakes)
    }

    /// Reads each table of a list by itself, and returns those that fit with their
    /// index. `[[key]]` is how a file writes such a list.
    pub fn read_list<T: DeserializeOwned>(&self, mistakes: &mut Vec<Mistake>) -> Vec<(usize, T)> {
        let key = self.key;
        let Some(list) = self.value.get_ref().as_array() else {
            mistakes.push(self.wrong_key(format!(
                "`{key}` is not a list; write `[[{key}]]` before each {key}"
            )));
            return Vec::new();
        };
        let items = list.iter().enumerate();
        items
            .filter_map(|(index, item)| Some((index, self.document.section(item, mistakes)?)))
            .collect()
    }

    /// A mistake at the key.
    pub fn wrong_key(&self, message: impl Into<String>) -> Mistake {
        self.document.mistake(self.key_span.clone(), message)
    }
}

/// The span of the key or text that a message names. Inside of tagged enums serde
/// only knows the table around it.
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

/// A message of serde's in the words of a file: what is wrong; what would be right.
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

/// Says that `word` is not among the `known` ones, and which of them is nearest;
/// `what` says what the word is, such as "key".
pub fn unknown_word(what: &str, word: &str, known: &[&str]) -> String {
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
