//! Guests that were added over the control socket. A file beside the configuration stores them in
//! the same format, and they are part of the configuration as if its file named them.

use super::Config;
use super::error::ConfigError;
use super::sources::{self, Guests, Source};
use crate::{durable, places};
use serde::Serialize;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tailbound_document::{Document, DocumentError, Problem, Step};

/// The first lines of the file.
const HEAD: &str = "\
# Guests that came by the control socket of `tailbound host`, which writes this file anew with
# each change. Change them by `tailbound host add-guest` and `remove-guest`.
";

/// The name, in mistakes, of a text that came with a request.
pub(crate) const REQUEST: &str = "<request>";

/// A change of the added guests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// Adds guests.
    Add {
        /// `[[guest]]` sections.
        text: String,
        /// Rule for guests of the same names that were added before.
        before: Before,
    },
    /// Removes one guest.
    Remove {
        /// The guest's name.
        name: String,
    },
}

/// Rule for added guests of the same names with other values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// An earlier guest of the same name is an error.
    No,
    /// Earlier guests of the same names are replaced, others are added.
    Maybe,
    /// A guest without an earlier one of the same name is an error.
    Yes,
}

/// Reason why the added guests did not change.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The changed configuration has mistakes.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The request contains no guest.
    #[error("there is no guest in it; write `[[guest]]` before each")]
    Nobody,
    /// The configuration's own file contains the guest.
    #[error(
        "the guest {name} is in {}; {advice} there, and send the daemon SIGHUP to reload the file",
        file.display()
    )]
    InFile {
        /// The guest's name.
        name: String,
        /// The path of the configuration.
        file: PathBuf,
        /// The advice: `change it` or `take it out`.
        advice: &'static str,
    },
    /// The file of the added guests cannot be replaced.
    #[error(
        "{}: cannot be written: {source}; guests that are added are kept there, name a file of \
         your own with `added = ...` in the configuration",
        path.display()
    )]
    Keep {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// The guests that came by the control socket.
#[derive(Debug, Clone)]
pub(crate) struct AddedGuests {
    path: PathBuf,
    /// The content of the file.
    text: String,
    /// The file's sections; empty if the file is not valid TOML.
    sections: Vec<toml::Table>,
}

/// The content of the file, without its head.
#[derive(Serialize)]
struct Sections<'s> {
    guest: &'s [toml::Table],
}

impl AddedGuests {
    /// Reads the file at `path`. A missing file contains no guests.
    fn read(path: PathBuf) -> Result<Self, DocumentError> {
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            // A default name may exceed the system's limit on file names.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidFilename
                ) =>
            {
                String::new()
            }
            Err(source) => return Err(DocumentError::Read { path, source }),
        };
        let sections = sections(&text);
        Ok(Self {
            path,
            text,
            sections,
        })
    }

    /// Returns the same file with other sections.
    fn with(&self, sections: Vec<toml::Table>) -> Self {
        let all = toml::to_string(&Sections { guest: &sections });
        let all = all.expect("the text was TOML before");
        let is_empty = sections.is_empty();
        Self {
            path: self.path.clone(),
            text: if is_empty {
                String::new()
            } else {
                format!("{HEAD}\n{all}")
            },
            sections,
        }
    }

    fn source(&self) -> Source {
        Source {
            name: self.path.clone(),
            text: self.text.clone(),
        }
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the names of the added guests.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.sections.iter().filter_map(called)
    }

    fn has(&self, name: &str) -> bool {
        self.names().any(|known| known == name)
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// The file could not be replaced; it is unchanged.
    pub(crate) fn write(&self) -> Result<(), ChangeError> {
        let written = durable::make_room(&self.path)
            .and_then(|()| durable::replace(&self.path, self.text.as_bytes()));
        written.map_err(|source| ChangeError::Keep {
            path: self.path.clone(),
            source,
        })
    }
}

/// The name of a section's guest.
fn called(section: &toml::Table) -> Option<&str> {
    section.get("name")?.as_str()
}

/// Returns the `[[guest]]` sections of a text; none if the text is not valid TOML.
fn sections(text: &str) -> Vec<toml::Table> {
    let whole = text.parse::<toml::Table>().unwrap_or_default();
    let guests = whole.get("guest").and_then(toml::Value::as_array);
    let guests = guests.into_iter().flatten();
    guests
        .filter_map(|guest| guest.as_table().cloned())
        .collect()
}

/// The files that a configuration is made of, as they were read last.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    file: Arc<Source>,
    added: Arc<AddedGuests>,
}

impl Files {
    /// Reads the file at `path`, and the file of its added guests.
    ///
    /// # Errors
    /// One of the files cannot be read.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| DocumentError::Read {
            path: path.to_owned(),
            source,
        })?;
        let place = added(&text).unwrap_or_else(|| default_place(path));
        let name = path.to_owned();
        Ok(Self {
            file: Arc::new(Source { name, text }),
            added: Arc::new(AddedGuests::read(place)?),
        })
    }

    /// Parses the configuration.
    ///
    /// # Errors
    /// All mistakes in either file.
    pub(crate) fn parse(&self) -> Result<Config, ConfigError> {
        if self.added.text.is_empty() {
            return sources::parse(&self.file, &[]);
        }
        let source = self.added.source();
        let guests = Guests {
            source: &source,
            except: &[],
        };
        sources::parse(&self.file, &[guests])
    }

    /// The guests that were added.
    pub(crate) fn added(&self) -> &Arc<AddedGuests> {
        &self.added
    }

    /// The configuration's file.
    pub(crate) fn path(&self) -> &Path {
        &self.file.name
    }

    /// Applies `change`, and returns the new files and the new configuration; `None` if the change
    /// has no effect.
    ///
    /// # Errors
    /// The change is invalid: all mistakes, those of the request's text under the name [`REQUEST`].
    pub(crate) fn changed(&self, change: &Change) -> Result<Option<(Self, Config)>, ChangeError> {
        match change {
            Change::Add { text, before } => self.with(text, *before),
            Change::Remove { name } => self.without(name),
        }
    }

    fn with(&self, text: &str, before: Before) -> Result<Option<(Self, Config)>, ChangeError> {
        let current = self.parse()?;
        let request = Source {
            name: REQUEST.into(),
            text: text.to_owned(),
        };
        let mut remaining = self.added.sections.clone();
        let (mut except, mut wrong) = (Vec::new(), Vec::new());
        for (place, guest) in sources::guests(&request) {
            let known = current.guests.iter().find(|it| it.name == guest.name);
            if known == Some(&guest) {
                except.push(place);
            } else if self.added.has(&guest.name) {
                remaining.retain(|section| called(section) != Some(guest.name.as_str()));
                if before == Before::No {
                    wrong.push(others(place, &guest.name));
                }
            } else if known.is_some() && before != Before::No {
                return Err(self.in_file(&guest.name, "change it"));
            } else if before == Before::Yes {
                wrong.push(unknown_guest(place, &guest.name));
            }
        }
        let new = sections(text).into_iter().enumerate();
        let new = new.filter(|(place, _)| !except.contains(place));
        let new: Vec<_> = new.map(|(_, section)| section).collect();
        let remaining = if remaining.len() == self.added.sections.len() {
            self.added.source()
        } else {
            self.added.with(remaining).source()
        };
        let wrong = sources::locate(&request, wrong);
        let name = Path::new(REQUEST);
        let more = [(&remaining, &[][..]), (&request, &except[..])];
        let more = more.map(|(source, except)| Guests { source, except });
        let config = match sources::parse(&self.file, &more) {
            Ok(config) => ConfigError::of([(name, wrong)]).map(|()| config),
            Err(error) => Err(error.with(name, wrong)),
        }?;
        if new.is_empty() {
            let is_there = !except.is_empty();
            return if is_there {
                Ok(None)
            } else {
                Err(ChangeError::Nobody)
            };
        }
        let all = [sections(&remaining.text), new].concat();
        Ok(Some((self.keeping(self.added.with(all)), config)))
    }

    fn without(&self, name: &str) -> Result<Option<(Self, Config)>, ChangeError> {
        if !self.added.has(name) {
            let current = self.parse()?;
            if current.guests.iter().any(|guest| guest.name == name) {
                return Err(self.in_file(name, "take it out"));
            }
            return Ok(None);
        }
        let mut sections = self.added.sections.clone();
        sections.retain(|section| called(section) != Some(name));
        let next = self.keeping(self.added.with(sections));
        let config = next.parse()?;
        Ok(Some((next, config)))
    }

    fn in_file(&self, name: &str, advice: &'static str) -> ChangeError {
        ChangeError::InFile {
            name: name.to_owned(),
            file: self.file.name.clone(),
            advice,
        }
    }

    fn keeping(&self, added: AddedGuests) -> Self {
        Self {
            file: Arc::clone(&self.file),
            added: Arc::new(added),
        }
    }
}

/// Returns the names of the guests in a text, as far as the text can be parsed.
pub(crate) fn names_in(text: &str) -> Vec<String> {
    let sections = sections(text);
    let names = sections.iter().filter_map(called);
    names.map(str::to_owned).collect()
}

/// The mistake of a guest that was added before with other values.
fn others(place: usize, name: &str) -> Problem {
    at_name(
        place,
        format!("{name} was added before, with other values; use --replace to change it"),
    )
}

/// The mistake of a guest that was not added before.
fn unknown_guest(place: usize, name: &str) -> Problem {
    at_name(
        place,
        format!("{name} is none of the guests that were added; add it by add-guest"),
    )
}

fn at_name(place: usize, message: String) -> Problem {
    let path = [Step::Key("guest"), Step::Index(place), Step::Key("name")];
    Problem::new(&path, message)
}

/// Returns the path of the file of added guests, if the configuration names one.
fn added(text: &str) -> Option<PathBuf> {
    let document = Document::parse(text).ok()?;
    let mut entries = document.entries();
    let entry = entries.find(|entry| entry.key() == "added")?;
    entry.read(&mut Vec::new())
}

/// The default path for the file of added guests: a file named after the configuration at `path`,
/// in the state directory.
fn default_place(path: &Path) -> PathBuf {
    places::state_directory().join(places::name(path, ".guests.toml"))
}

#[cfg(test)]
mod tests;
