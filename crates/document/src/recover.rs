//! Finds all values of a section that do not fit, one after the other.

use crate::words::{explain, nearest, quoted, unknown_word};
use crate::{Document, Mistake};
use serde::de::DeserializeOwned;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeArray, DeValue, ValueDeserializer};

/// Maximum of mistakes that are found in one section. Each costs another reading of the section, so
/// this bounds the time for a file with many mistakes.
const MAX_ROUNDS: usize = 50;

/// A key that is ignored from now on.
struct LeftOut {
    /// The span of the table or list that it was in.
    parent: Range<usize>,
    /// The key; empty for an item of a list.
    key: String,
}

impl<'t> Document<'t> {
    /// Reads all of the file as one type.
    ///
    /// # Errors
    /// All values that do not fit, in the order of their location.
    pub fn whole<T: DeserializeOwned>(&self) -> Result<T, Vec<Mistake>> {
        let mut mistakes = Vec::new();
        let read = self.section(&self.root, &mut mistakes);
        mistakes.sort_by_key(|mistake| mistake.location);
        read.ok_or(mistakes)
    }

    /// Reads a value. A key or an item that does not fit is left out, and the value is read
    /// again, so that a mistake does not hide those that follow.
    pub(crate) fn section<T: DeserializeOwned>(
        &self,
        value: &Spanned<DeValue<'t>>,
        mistakes: &mut Vec<Mistake>,
    ) -> Option<T> {
        let first = mistakes.len();
        let mut rest = value.clone();
        let mut left_out: Vec<LeftOut> = Vec::new();
        for _ in 0..MAX_ROUNDS {
            let error = match T::deserialize(ValueDeserializer::from(rest.clone())) {
                Ok(read) if mistakes.len() == first => return Some(read),
                Ok(_) => break,
                Err(error) => error,
            };
            let message = error.message();
            let span = error.span().unwrap_or_else(|| rest.span());
            let span = narrow(&rest, &span, message);
            if !follows(&rest, &span, message, &left_out) {
                let mistake = self.mistake(span.clone(), self.explain(&rest, &span, message));
                if !mistakes[first..].contains(&mistake) {
                    mistakes.push(mistake);
                }
            }
            let Some(out) = leave_out(&mut rest, &span) else {
                break;
            };
            // A misspelt key is not reported as missing as well.
            let (word, known) = quoted(message);
            let meant = nearest(word, &known).filter(|_| message.starts_with("unknown field"));
            left_out.extend(meant.map(|meant| LeftOut {
                parent: out.parent.clone(),
                key: meant.to_owned(),
            }));
            left_out.push(out);
        }
        None
    }

    /// Returns a message of serde's in the terms of a file. An unknown key at the top may be a
    /// misspelt key of another reader.
    fn explain(&self, root: &Spanned<DeValue<'_>>, place: &Range<usize>, message: &str) -> String {
        let (word, known) = quoted(message);
        let is_top = self.is_root(root) && root.get_ref().get(word).is_some();
        if is_top && message.starts_with("unknown field") {
            unknown_word("key", word, &[self.elsewhere, &known].concat())
        } else {
            self.explain_at(place, message)
        }
    }

    fn is_root(&self, value: &Spanned<DeValue<'_>>) -> bool {
        value.span() == self.root.span()
    }

    /// Returns the message for the value at `place`.
    fn explain_at(&self, place: &Range<usize>, message: &str) -> String {
        let (what, example) = match message.trim_end() {
            "invalid socket address syntax" => ("address and port", "127.0.0.1:9464"),
            "invalid IP address syntax" => ("IP address", "10.0.0.1"),
            "invalid IPv4 address syntax" => ("IPv4 address", "10.0.0.1"),
            "invalid IPv6 address syntax" => ("IPv6 address", "fd00::1"),
            _ => return explain(message),
        };
        let written = self.text.get(place.clone());
        // Inside of tagged enums the place is the table around it.
        let written = written.filter(|text| text.starts_with(['"', '\'']));
        let written = written.unwrap_or("a text here");
        format!("{written} is no {what}; write for example \"{example}\"")
    }
}

/// Returns whether an error at `span` only follows from what was left out there: a key that is now
/// missing, or a rule over several keys.
fn follows(
    root: &Spanned<DeValue<'_>>,
    span: &Range<usize>,
    message: &str,
    left_out: &[LeftOut],
) -> bool {
    let mut inside = left_out
        .iter()
        .filter(|out| find(root, span).is_some_and(|value| holds(value, &out.parent)));
    if message.starts_with("missing field") {
        let (named, _) = quoted(message);
        return inside.any(|out| out.key == named);
    }
    let is_own = ["unknown ", "invalid type", "invalid value"]
        .iter()
        .any(|start| message.starts_with(start));
    !is_own && inside.next().is_some()
}

/// Returns the value at `span`.
fn find<'v, 't>(
    value: &'v Spanned<DeValue<'t>>,
    span: &Range<usize>,
) -> Option<&'v Spanned<DeValue<'t>>> {
    if value.span() == *span {
        return Some(value);
    }
    match value.get_ref() {
        DeValue::Table(table) => table.values().find_map(|value| find(value, span)),
        DeValue::Array(list) => list.iter().find_map(|value| find(value, span)),
        _ => None,
    }
}

/// Returns whether a value, or one in it, stands at `span`.
fn holds(value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> bool {
    find(value, span).is_some()
}

/// Takes the innermost entry of a table or item of a list out whose key or value stands at
/// `span`; `None` if no entry or item stands there.
fn leave_out(value: &mut Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<LeftOut> {
    let parent = value.span();
    match value.as_mut() {
        DeValue::Table(table) => {
            let mut deeper = table.iter_mut();
            if let Some(out) = deeper.find_map(|(_, value)| leave_out(value, span)) {
                return Some(out);
            }
            let mut entries = table.iter();
            let found = entries.find(|(key, value)| key.span() == *span || value.span() == *span);
            let key = found.map(|(key, _)| key.get_ref().to_string())?;
            table.remove(key.as_str());
            Some(LeftOut { parent, key })
        }
        DeValue::Array(list) => {
            let mut deeper = list.iter_mut();
            if let Some(out) = deeper.find_map(|value| leave_out(value, span)) {
                return Some(out);
            }
            let before = list.len();
            let items = std::mem::replace(list, DeArray::new()).into_iter();
            *list = items.filter(|item| item.span() != *span).collect();
            (list.len() < before).then(|| LeftOut {
                parent,
                key: String::new(),
            })
        }
        _ => None,
    }
}

/// Returns the span of the key or text that a message names. Inside of tagged enums serde only
/// knows the table around it.
fn narrow(value: &Spanned<DeValue<'_>>, place: &Range<usize>, message: &str) -> Range<usize> {
    let named = message.split('`').nth(1).unwrap_or_default();
    let found = if message.starts_with("unknown ") {
        within(value, place, named)
    } else {
        find(value, place).and_then(|around| quoted_item(around, message))
    };
    found.unwrap_or_else(|| place.clone())
}

/// Returns the span of the text in a list that a message quotes at its start, as types with a text
/// form do: serde only knows the list.
fn quoted_item(list: &Spanned<DeValue<'_>>, message: &str) -> Option<Range<usize>> {
    let mut items = list.get_ref().as_array()?.iter();
    let item = items.find(|item| {
        let text = item.get_ref().as_str();
        text.is_some_and(|text| message.starts_with(&format!("{text:?}")))
    });
    item.map(Spanned::span)
}

/// Returns the span of `name`, as a key or as a text, in the table at `place`.
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
