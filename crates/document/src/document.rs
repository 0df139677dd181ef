//! A TOML file with the location of each value, and what serde's messages mean.

use crate::{Location, Mistake, Problem, Step};
use serde::de::DeserializeOwned;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, ValueDeserializer};

/// A file that is TOML.
#[derive(Debug)]
pub struct Document<'t> {
    text: &'t str,
    root: Spanned<DeValue<'t>>,
    /// Keys at the top of the file that are read elsewhere.
    elsewhere: &'static [&'static str],
}

impl<'t> Document<'t> {
    /// Reads `text` as TOML.
    ///
    /// # Errors
    /// Every mistake in its syntax, in the order of their location; at least one.
    pub fn parse(text: &'t str) -> Result<Self, Vec<Mistake>> {
        let (table, errors) = DeTable::parse_recoverable(text);
        let root = Spanned::new(table.span(), DeValue::Table(table.into_inner()));
        let document = Self {
            text,
            root,
            elsewhere: &[],
        };
        if errors.is_empty() {
            return Ok(document);
        }
        let mut mistakes: Vec<_> = errors
            .iter()
            .map(|error| {
                let place = error.span().unwrap_or_default();
                let what = match (error.message(), text.get(place.clone())) {
                    ("duplicate key", Some(key)) => {
                        format!("the key `{key}` is set for the second time; leave one of the two")
                    }
                    (message, _) => semicolon(message),
                };
                document.mistake(place, format!("not TOML: {what}"))
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

    /// Reads all of the file as one type. Each entry at the top, and each table of a
    /// list there, is left out once it is found not to fit, so that a mistake in one
    /// does not hide those in the others.
    ///
    /// # Errors
    /// All values that do not fit, in the order of their location.
    pub fn whole<T: DeserializeOwned>(&self) -> Result<T, Vec<Mistake>> {
        let mut rest = self.root.clone();
        let mut left_out = Vec::new();
        let mut mistakes: Vec<Mistake> = Vec::new();
        loop {
            let error = match T::deserialize(ValueDeserializer::from(rest.clone())) {
                Ok(read) if mistakes.is_empty() => return Ok(read),
                Ok(_) => break,
                Err(error) => error,
            };
            let message = error.message();
            let named = message.split('`').nth(1).unwrap_or_default();
            // What was left out is missing, and that is no other mistake.
            if message.starts_with("missing field") && left_out.iter().any(|key| key == named) {
                break;
            }
            let span = error.span().unwrap_or_else(|| rest.span());
            let span = narrow(&rest, &span, message);
            mistakes.push(self.mistake(span.clone(), self.explain(&rest, &span, message)));
            match leave_out(&mut rest, &span) {
                Some(key) => left_out.push(key),
                None => break,
            }
        }
        mistakes.sort_by_key(|mistake| mistake.location);
        Err(mistakes)
    }

    /// The same file as if only these keys were at its top.
    #[must_use]
    pub fn only(&self, keys: &[&str]) -> Self {
        self.filtered(&[], |key| keys.contains(&key))
    }

    /// The same file as if these keys, which are read elsewhere, were not at its top.
    #[must_use]
    pub fn without(&self, keys: &'static [&'static str]) -> Self {
        self.filtered(keys, |key| !keys.contains(&key))
    }

    /// Whether a key is at the top of the file.
    pub fn has(&self, key: &str) -> bool {
        self.root.get_ref().get(key).is_some()
    }

    fn filtered(&self, elsewhere: &'static [&'static str], keep: impl Fn(&str) -> bool) -> Self {
        let mut root = self.root.clone();
        if let DeValue::Table(table) = root.as_mut() {
            let keys = table.keys().map(|key| key.get_ref().to_string());
            let dropped: Vec<String> = keys.filter(|key| !keep(key)).collect();
            for key in dropped {
                table.remove(key.as_str());
            }
        }
        Self {
            text: self.text,
            root,
            elsewhere,
        }
    }

    /// A message of serde's in the words of a file. An unknown key at the top may be
    /// meant as one that is read elsewhere.
    fn explain(&self, root: &Spanned<DeValue<'_>>, place: &Range<usize>, message: &str) -> String {
        let (word, known) = quoted(message);
        let is_top = root.get_ref().get(word).is_some();
        if is_top && message.starts_with("unknown field") {
            unknown_word("key", word, &[self.elsewhere, &known].concat())
        } else {
            self.explain_at(place, message)
        }
    }

    /// The same of what stands at `place`.
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
                let message = self.explain_at(&place, error.message());
                mistakes.push(self.mistake(place, message));
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

    /// How many values the list has; none where the value is no list.
    pub fn items(&self) -> usize {
        self.value.get_ref().as_array().map_or(0, |list| list.len())
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

/// The words that a message of serde's quotes: the first, and the others.
fn quoted(message: &str) -> (&str, Vec<&str>) {
    let mut quoted = message.split('`').skip(1).step_by(2);
    (quoted.next().unwrap_or_default(), quoted.collect())
}

/// Takes the entry at the top of the file in which something stands at `span`, or the
/// table of a list there, out of `root`. Returns its key; nothing where no entry has
/// anything there.
fn leave_out(root: &mut Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<String> {
    let DeValue::Table(table) = root.as_mut() else {
        return None;
    };
    let mut entries = table.iter();
    let found = entries.find(|(key, value)| key.span() == *span || holds(value, span));
    let key = found.map(|(key, _)| key.get_ref().to_string())?;
    let value = table.get_mut(key.as_str())?;
    if let DeValue::Array(list) = value.as_mut()
        && list.iter().any(|item| holds(item, span))
    {
        let items = std::mem::replace(list, DeArray::new()).into_iter();
        *list = items.filter(|item| !holds(item, span)).collect();
    } else {
        table.remove(key.as_str());
    }
    Some(key)
}

/// Whether a value, a key of it, or a value in it stands at `span`.
fn holds(value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> bool {
    value.span() == *span
        || match value.get_ref() {
            DeValue::Table(table) => {
                let mut entries = table.iter();
                entries.any(|(key, value)| key.span() == *span || holds(value, span))
            }
            DeValue::Array(list) => list.iter().any(|item| holds(item, span)),
            _ => false,
        }
}

/// A message of serde's in the words of a file: what is wrong; what would be right.
fn explain(message: &str) -> String {
    let (first, known) = quoted(message);
    if message.starts_with("unknown field") {
        unknown_word("key", first, &known)
    } else if message.starts_with("unknown variant") {
        unknown_word("kind", first, &known)
    } else if message.starts_with("missing field") {
        format!("the key `{first}` is missing; add `{first} = ...` here")
    } else {
        let message = message.trim_end();
        match message.split_once(", expected ") {
            Some((what, expected)) => format!("{what}; expected {}", in_words_of_toml(expected)),
            None => message.to_owned(),
        }
    }
}

/// `what, expected this` becomes `what; expected this`.
fn semicolon(message: &str) -> String {
    message.trim_end().replacen(", expected", "; expected", 1)
}

/// What serde expects, in the words that TOML has for it; its own where it says more.
fn in_words_of_toml(expected: &str) -> &str {
    match expected {
        "a string" | "string" => "a text in quotes",
        "a sequence" => "a list, such as [\"a\", \"b\"]",
        "a map" => "a table, such as { key = 1 }",
        "a boolean" => "true or false",
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "i32" | "i64" => "a whole number",
        "f32" | "f64" => "a number",
        "socket address" => "an address and port in quotes, such as \"127.0.0.1:9464\"",
        "IP address" | "IPv4 address" | "IPv6 address" => "an IP address in quotes",
        _ if expected.starts_with("struct ") => "a table, such as { key = 1 }",
        _ => expected,
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct File {
        name: String,
        size: u8,
        #[serde(default)]
        item: Vec<Item>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct Item {
        weight: u8,
    }

    fn mistakes(document: &Document<'_>) -> Vec<String> {
        let mistakes = document.whole::<File>().unwrap_err();
        mistakes.iter().map(ToString::to_string).collect()
    }

    const WRONG: &str = "name = 1\nsize = 300\ncolour = 2\n[[item]]\nweight = -1\n\
                         [[item]]\nweight = 1\n[[item]]\nweigth = 1\n";

    #[test]
    fn a_mistake_in_one_section_hides_none_in_the_others() {
        let document = Document::parse(WRONG).unwrap();
        assert_eq!(
            mistakes(&document),
            [
                "1:8: invalid type: integer `1`; expected a text in quotes",
                "2:8: invalid value: integer `300`; expected a whole number from 0 to 255",
                "3:1: unknown key `colour`; known here: name, size, item",
                "5:10: invalid value: integer `-1`; expected a whole number from 0 to 255",
                "9:1: unknown key `weigth`; did you mean `weight`?",
            ]
        );
    }

    #[test]
    fn an_address_that_is_none_is_quoted_beside_one_that_would_be() {
        #[derive(Debug, Deserialize)]
        #[expect(dead_code, reason = "only read")]
        struct Addresses {
            metrics: std::net::SocketAddr,
            ip: Vec<std::net::IpAddr>,
        }
        let text = "metrics = \"127.0.0.1\"\nip = [\"10.0.0\"]\n";
        let document = Document::parse(text).unwrap();
        let told = document.whole::<Addresses>().unwrap_err();
        let told: Vec<_> = told.iter().map(ToString::to_string).collect();
        let expected = [
            "1:11: \"127.0.0.1\" is no address and port; write for example \"127.0.0.1:9464\"",
            "2:7: \"10.0.0\" is no IP address; write for example \"10.0.0.1\"",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn a_key_that_is_missing_is_told_unless_its_value_was_wrong() {
        let document = Document::parse("name = 1\nsize = 1").unwrap();
        let told = mistakes(&document);
        assert!(
            told.len() == 1 && told[0].starts_with("1:8: invalid type"),
            "{told:?}"
        );
        let missing = "1:1: the key `name` is missing; add `name = ...` here";
        assert_eq!(mistakes(&Document::parse("size = 1").unwrap()), [missing]);
    }

    #[test]
    fn keys_that_are_read_elsewhere_are_no_mistake_and_still_known() {
        let document = Document::parse("titel = 1\nname = \"x\"\nsize = 1\ncheck = 1").unwrap();
        let own = document.without(&["title", "check"]);
        assert_eq!(
            mistakes(&own),
            ["1:1: unknown key `titel`; did you mean `title`?"]
        );
        assert!(own.has("name") && !own.has("check"));
        let name = document
            .only(&["name"])
            .whole::<std::collections::BTreeMap<String, String>>();
        assert_eq!(name.unwrap().len(), 1);
    }
}
