//! Tuple parameters: their number in each crate, compared with a list.
//!
//! A call shows no names of a tuple's parts, so a function takes them as parameters of their own or
//! as a struct. Parameters of closures and of tests do not count. The numbers in the list only fall,
//! also compared with earlier commits.

use crate::source::Modules;
use std::collections::BTreeMap;

/// The list.
pub(crate) const FILE: &str = "tests/tuple-parameters.toml";

/// The functions with tuple parameters in each crate, one entry for each parameter.
pub(crate) type Functions = BTreeMap<String, Vec<String>>;

/// The number of tuple parameters in each crate.
pub(crate) type Counts = BTreeMap<String, usize>;

/// Adds the functions of a library or binary.
pub(crate) fn measure(name: &str, modules: &Modules, found: &mut Functions) {
    for module in &modules.0 {
        for tuple in &module.tuples {
            let place = format!("{}:{}", module.file.display(), tuple.line);
            let found = found.entry(name.to_owned()).or_default();
            found.push(format!("{place}: {}", tuple.function));
        }
    }
}

/// Reads a list.
pub(crate) fn parse(text: &str) -> Result<Counts, String> {
    let list: toml::Table = text.parse().map_err(|error| format!("{FILE}: {error}"))?;
    let counts = list.get("parameters").and_then(toml::Value::as_table);
    let counts = counts.into_iter().flatten().map(|(name, count)| {
        let count = count.as_integer().and_then(|it| usize::try_from(it).ok());
        let count = count.ok_or_else(|| format!("{FILE}: {name} has no number of parameters"))?;
        Ok((name.clone(), count))
    });
    counts.collect()
}

/// Returns differences between the list and the functions, and rises since the lists of earlier
/// commits, a line each.
pub(crate) fn judge(list: &Counts, found: &Functions, bases: &[(String, Counts)]) -> Vec<String> {
    let mut wrong = Vec::new();
    let names: std::collections::BTreeSet<_> = list.keys().chain(found.keys()).collect();
    for name in names {
        let listed = list.get(name).copied().unwrap_or(0);
        let functions = found.get(name).map_or(&[][..], Vec::as_slice);
        let count = functions.len();
        if count > listed {
            wrong.push(format!(
                "{name}: {count} tuple parameters, {listed} in {FILE}; use a struct, or a parameter \
                 for each part:"
            ));
            wrong.extend(functions.iter().map(|function| format!("    {function}")));
        } else if count < listed {
            wrong.push(format!(
                "{FILE}: {name}: {listed} in the list, {count} in the code; lower the number"
            ));
        }
    }
    for (commit, base) in bases {
        for (name, count) in list {
            let before = base.get(name).copied().unwrap_or(0);
            if *count > before {
                wrong.push(format!(
                    "{FILE}: {name}: {count}, and {before} in {commit}; numbers only fall"
                ));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests;
