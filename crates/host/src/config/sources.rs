//! The texts of one configuration: the file, and the added guests. They are checked together, and
//! each mistake is reported with its place in its own text.

use super::draft::Draft;
use super::error::ConfigError;
use super::{Config, GuestConfig, check};
use std::path::PathBuf;
use tailbound_document::{Document, Mistake, Problem, Step};

/// A text, and its name in errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) name: PathBuf,
    pub(crate) text: String,
}

/// A source of guests beside the file.
pub(super) struct Guests<'s> {
    /// A text with only `[[guest]]` sections.
    pub(super) source: &'s Source,
    /// The indices of the sections that are skipped, counted from 0.
    pub(super) except: &'s [usize],
}

/// Reads a configuration from its file and the guests beside it.
///
/// # Errors
/// All mistakes found, at least one.
pub(super) fn parse(file: &Source, more: &[Guests<'_>]) -> Result<Config, ConfigError> {
    let all = || std::iter::once(file).chain(more.iter().map(|guests| guests.source));
    let mut documents = Vec::new();
    let mut mistakes = Vec::new();
    for source in all() {
        match Document::parse(&source.text) {
            Ok(document) => documents.push(document),
            Err(wrong) => mistakes.push((source.name.as_path(), wrong)),
        }
    }
    ConfigError::of(mistakes)?;
    let (mut draft, wrong) = Draft::read(&documents[0]);
    let mut mistakes = vec![wrong];
    let mut first = vec![0];
    for (document, guests) in documents[1..].iter().zip(more) {
        first.push(draft.sections.count);
        mistakes.push(draft.add_guests(document, guests.except));
    }
    if !more.is_empty() {
        for (index, (document, source)) in documents.iter().zip(all()).enumerate() {
            let end = first
                .get(index + 1)
                .copied()
                .unwrap_or(draft.sections.count);
            let places = (0..end - first[index]).map(|guest| {
                let place = document.find(&[Step::Key("guest"), Step::Index(guest)]);
                let place = document.mistake(place, "").location;
                format!("{}:{place}", source.name.display())
            });
            draft.sections.places.extend(places);
        }
    }
    for problem in check::check(&draft) {
        let (home, problem) = home(problem, &first);
        mistakes[home].extend(documents[home].locate([problem]));
    }
    for wrong in &mut mistakes {
        wrong.sort_by_key(|mistake| mistake.location);
    }
    ConfigError::of(all().map(|source| source.name.as_path()).zip(mistakes))?;
    Ok(draft.into())
}

/// Returns the text that has a mistake, and the mistake's path there. `first` is the index of each
/// text's first guest among all guests.
fn home(mut problem: Problem, first: &[usize]) -> (usize, Problem) {
    if let [Step::Key("guest"), Step::Index(guest), ..] = &mut problem.path[..] {
        let home = first.partition_point(|first| first <= guest) - 1;
        *guest -= first[home];
        return (home, problem);
    }
    (0, problem)
}

/// Returns the guests of a text, each with its index, without those that have mistakes.
pub(super) fn guests(source: &Source) -> Vec<(usize, GuestConfig)> {
    let Ok(document) = Document::parse(&source.text) else {
        return Vec::new();
    };
    let mut draft = Draft::default();
    draft.add_guests(&document, &[]);
    draft.guests
}

/// Returns the places of problems in a text; empty if the text is not valid TOML.
pub(super) fn locate(source: &Source, problems: Vec<Problem>) -> Vec<Mistake> {
    let document = Document::parse(&source.text);
    document.map_or_else(|_| Vec::new(), |document| document.locate(problems))
}
