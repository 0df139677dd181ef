//! Large types: numbers of their methods and fields, compared with a list.
//!
//! A type is large with more than [`MAX_METHODS`] methods or more than [`MAX_FIELDS`] fields. The
//! methods of all its inherent impls add up; those of traits and of tests do not count. The fields
//! of an enum are those of its largest variant. Each large type is in the list with its numbers and
//! the reason why it is one type. Compared with earlier commits, no type joins the list, and no
//! number above a limit rises.

use crate::resolve::definition;
use crate::source::Modules;
use std::collections::BTreeMap;
use std::fmt;

/// The list.
pub(crate) const FILE: &str = "tests/large-types.toml";

const MAX_METHODS: usize = 40;
const MAX_FIELDS: usize = 12;

/// The crate of a type, and its path in the crate.
pub(crate) type Key = (String, String);

/// Size of a type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) methods: usize,
    pub(crate) fields: usize,
}

impl Size {
    const LIMITS: Self = Self {
        methods: MAX_METHODS,
        fields: MAX_FIELDS,
    };

    const fn is_large(self) -> bool {
        self.exceeds(Self::LIMITS)
    }

    /// Checks for a number that is above its limit and above that of the other size.
    const fn exceeds(self, other: Self) -> bool {
        (self.methods > MAX_METHODS && self.methods > other.methods)
            || (self.fields > MAX_FIELDS && self.fields > other.fields)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { methods, fields } = self;
        write!(formatter, "methods = {methods}, fields = {fields}")
    }
}

pub(crate) type Sizes = BTreeMap<Key, Size>;

/// Adds the types of a library or binary.
pub(crate) fn measure(name: &str, modules: &Modules, sizes: &mut Sizes) {
    let key = |module, item: &str| {
        let path = match modules.path(module) {
            root if root == "crate" => item.to_owned(),
            path => format!("{path}::{item}"),
        };
        (name.to_owned(), path)
    };
    for (index, module) in modules.0.iter().enumerate() {
        for (item, fields) in &module.fields {
            sizes.entry(key(index, item)).or_default().fields = *fields;
        }
        for (path, methods) in &module.impls {
            // Nothing for a type that a macro defines.
            if let Some((home, item)) = definition(modules, index, path) {
                sizes.entry(key(home, &item)).or_default().methods += methods;
            }
        }
    }
}

/// Reads a list.
pub(crate) fn parse(text: &str) -> Result<Sizes, String> {
    let list: toml::Table = text.parse().map_err(|error| format!("{FILE}: {error}"))?;
    let mut sizes = Sizes::new();
    let entries = list.get("type").and_then(toml::Value::as_array);
    for entry in entries.into_iter().flatten() {
        let wrong = |key: &str| format!("{FILE}: an entry has no valid `{key}`: {entry}");
        let text = |key| {
            let text = entry.get(key).and_then(toml::Value::as_str);
            text.ok_or_else(|| wrong(key))
        };
        let number = |key| {
            let number = entry.get(key).and_then(toml::Value::as_integer);
            let number = number.and_then(|number| usize::try_from(number).ok());
            number.ok_or_else(|| wrong(key))
        };
        if text("reason")?.split_whitespace().count() < 3 {
            return Err(wrong("reason"));
        }
        let key = (text("crate")?.to_owned(), text("type")?.to_owned());
        let size = Size {
            methods: number("methods")?,
            fields: number("fields")?,
        };
        if sizes.insert(key, size).is_some() {
            return Err(format!("{FILE}: two entries for the same type: {entry}"));
        }
    }
    Ok(sizes)
}

/// Returns differences between the list and the types, and rises since the lists of earlier
/// commits, a line each.
pub(crate) fn judge(list: &Sizes, sizes: &Sizes, bases: &[(String, Sizes)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for ((name, path), size) in sizes.iter().filter(|(_, size)| size.is_large()) {
        if !list.contains_key(&(name.clone(), path.clone())) {
            wrong.push(format!(
                "{name}: {path}: {size}: more than {MAX_METHODS} methods or {MAX_FIELDS} fields; \
                 divide the type"
            ));
        }
    }
    for (key, listed) in list {
        let (name, path) = key;
        match sizes.get(key) {
            None => wrong.push(format!(
                "{FILE}: {name} has no type {path}; remove the entry"
            )),
            Some(size) if !size.is_large() => wrong.push(format!(
                "{FILE}: {name}: {path}: {size}: within the limits; remove the entry"
            )),
            Some(size) if size != listed => wrong.push(format!(
                "{FILE}: {name}: {path}: {size} in the code, {listed} in the list; numbers only \
                 fall"
            )),
            Some(_) => {}
        }
    }
    for (commit, base) in bases {
        for (key, size) in list {
            let (name, path) = key;
            match before(base, list, key) {
                None => wrong.push(format!(
                    "{FILE}: {name}: {path} is not in the list of {commit}; divide the type"
                )),
                Some(before) if size.exceeds(before) => wrong.push(format!(
                    "{FILE}: {name}: {path}: {size}, and {before} in {commit}; numbers only fall"
                )),
                Some(_) => {}
            }
        }
    }
    wrong
}

/// Returns the size of a type in an earlier list, also if the type had another crate or module.
fn before(base: &Sizes, list: &Sizes, key: &Key) -> Option<Size> {
    if let Some(size) = base.get(key) {
        return Some(*size);
    }
    let item = |(_, path): &Key| path.rsplit("::").next().map(str::to_owned);
    let mut gone = base.iter().filter(|(key, _)| !list.contains_key(*key));
    let moved = gone.find(|(other, _)| item(other) == item(key));
    moved.map(|(_, size)| *size)
}

#[cfg(test)]
mod tests;
