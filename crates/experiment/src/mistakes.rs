//! Mistakes of an experiment whose values all have the right type.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use tailbound_document::{Document, Mistake, Step, unknown_word};

/// A text with its location in its file.
pub type Name = toml::Spanned<String>;

/// The longest permitted name, in bytes.
const LONGEST_NAME: usize = 60;

/// The mistakes of an experiment, collected.
#[derive(Debug)]
pub struct Mistakes {
    /// Location of the experiment's own name, which is the location of mistakes of the whole
    /// experiment.
    name: Range<usize>,
    found: Vec<(Spot, String)>,
}

/// Location of a mistake.
#[derive(Debug)]
enum Spot {
    /// At these bytes of the text.
    Span(Range<usize>),
    /// At the value at this path.
    Path(Vec<Step>),
}

/// A table of the file, whose values are named by their keys.
#[derive(Debug)]
pub struct Section<'m> {
    mistakes: &'m mut Mistakes,
    path: Vec<Step>,
}

impl Mistakes {
    pub(crate) fn new(name: &Name) -> Self {
        Self {
            name: name.span(),
            found: Vec::new(),
        }
    }

    /// Returns whether there is no mistake so far.
    pub const fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Adds a mistake at a name.
    pub fn at(&mut self, name: &Name, message: impl Into<String>) {
        self.at_span(name.span(), message);
    }

    /// Adds a mistake at the bytes `span` of the text.
    pub fn at_span(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.found.push((Spot::Span(span), message.into()));
    }

    /// Adds a mistake of the experiment as a whole.
    pub fn of_whole(&mut self, message: impl Into<String>) {
        self.at_span(self.name.clone(), message);
    }

    /// Returns the top of the file.
    pub const fn top(&mut self) -> Section<'_> {
        Section {
            mistakes: self,
            path: Vec::new(),
        }
    }

    /// Checks that names are usable in files, on command lines and in figures such as `rtt.p99`,
    /// and that they are unique; `what` is the kind of the named things.
    pub fn names<'n>(&mut self, what: &str, names: impl Iterator<Item = &'n Name> + Clone) {
        names.clone().for_each(|name| self.plain(name));
        self.unique(what, names);
    }

    /// Checks that names are unique.
    pub fn unique<'n>(&mut self, what: &str, names: impl Iterator<Item = &'n Name>) {
        let mut seen = BTreeSet::new();
        for name in names {
            let text = name.get_ref();
            if !seen.insert(text) {
                let message = format!("{what} {text:?} is there twice: use another name");
                self.at(name, message);
            }
        }
    }

    /// Checks that a name is usable in files, on command lines and in figures.
    pub fn plain(&mut self, name: &Name) {
        let text = name.get_ref();
        // The name of a scheduler may contain a release: "xen-4.1".
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if text.is_empty() || text.len() > LONGEST_NAME || !text.chars().all(fits) {
            let message = format!(
                "the name {text:?}: use up to {LONGEST_NAME} letters, digits, '-', '_' and '.'"
            );
            self.at(name, message);
        }
    }

    /// Checks that `name` is among the `known` ones; `what` is the kind of the named thing. Returns
    /// whether it is known.
    pub fn known<'n>(
        &mut self,
        what: &str,
        name: &Name,
        known: impl IntoIterator<Item = &'n str>,
    ) -> bool {
        self.known_word(what, name.get_ref(), name, known)
    }

    /// Checks that `word`, a part of the text at `name`, is among the `known` ones.
    pub(crate) fn known_word<'n>(
        &mut self,
        what: &str,
        word: &str,
        name: &Name,
        known: impl IntoIterator<Item = &'n str>,
    ) -> bool {
        let mut words: Vec<&str> = Vec::new();
        for known in known {
            if known == word {
                return true;
            }
            if !words.contains(&known) {
                words.push(known);
            }
        }
        if words.is_empty() {
            words.push("none");
        }
        self.at(name, unknown_word(what, word, &words));
        false
    }

    /// Returns the mistakes with their lines and columns, in the order of the text.
    pub(crate) fn locate(self, document: &Document<'_>) -> Vec<Mistake> {
        let located = |(spot, message)| match spot {
            Spot::Span(span) => document.mistake(span, message),
            Spot::Path(path) => document.mistake(document.find(&path), message),
        };
        let mut mistakes: Vec<Mistake> = self.found.into_iter().map(located).collect();
        mistakes.sort_by_key(|mistake| mistake.location);
        mistakes.dedup();
        mistakes
    }
}

impl Section<'_> {
    /// Returns the table at a key.
    pub fn table(&mut self, key: &'static str) -> Section<'_> {
        self.step(&[Step::Key(key)])
    }

    /// Returns a table of the list at a key, counted from 0.
    pub fn item(&mut self, key: &'static str, index: usize) -> Section<'_> {
        self.step(&[Step::Key(key), Step::Index(index)])
    }

    fn step(&mut self, steps: &[Step]) -> Section<'_> {
        Section {
            mistakes: self.mistakes,
            path: [&self.path, steps].concat(),
        }
    }

    /// Adds a mistake at the value of a key.
    pub fn at(&mut self, key: &'static str, message: impl Into<String>) {
        let path = self.step(&[Step::Key(key)]).path;
        self.mistakes.found.push((Spot::Path(path), message.into()));
    }

    /// Checks that the value of a key lies between two bounds.
    pub fn range<T: Copy + PartialOrd + Display>(
        &mut self,
        key: &'static str,
        got: T,
        range: RangeInclusive<T>,
    ) {
        if !range.contains(&got) {
            let (least, most) = range.into_inner();
            self.at(key, format!("{key} {got}: choose {least} to {most}"));
        }
    }

    /// Checks the number of items of a list.
    pub fn count(&mut self, key: &'static str, got: usize, range: RangeInclusive<usize>) {
        if !range.contains(&got) {
            let (least, most) = range.into_inner();
            self.at(
                key,
                format!("{key}: {got} of them: choose {least} to {most}"),
            );
        }
    }

    /// Adds the error of the value of a key, if there is one.
    pub fn hold<E: Display>(&mut self, key: &'static str, done: Result<(), E>) {
        if let Err(message) = done {
            self.at(key, message.to_string());
        }
    }
}
