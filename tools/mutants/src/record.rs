//! The record of scores: for each part its mutants, those that tests kill, and the survivors with
//! reasons.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use toml::Value;

/// The file of the record.
pub(crate) const FILE: &str = "tests/mutants.toml";

const HEAD: &str = "\
# Mutants of each part (tools/mutants): their number, those that the part's unit tests kill, and the
# survivors, each with the reason why no test kills it. A reason that begins with `equivalent:` is a proof
# that no test can: such mutants do not count. `scripts/mutants PART` compares, and
# `scripts/mutants --write PART` records.
";

/// A mutant in words that do not change with its line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) file: String,
    pub(crate) function: String,
    pub(crate) change: String,
}

/// The score of a part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Score {
    pub(crate) mutants: usize,
    pub(crate) killed: usize,
    /// The reason of each survivor; empty until a person states it.
    pub(crate) survivors: BTreeMap<Key, String>,
}

impl Score {
    /// Mutants that a test could kill: all except those that are proved equivalent.
    pub(crate) fn mortal(&self) -> usize {
        let reasons = self.survivors.values();
        let equivalent = reasons.filter(|reason| reason.starts_with("equivalent:"));
        self.mutants - equivalent.count()
    }
}

/// The scores by part.
pub(crate) type Scores = BTreeMap<String, Score>;

/// Reads a record.
pub(crate) fn parse(text: &str) -> Result<Scores, String> {
    let table: toml::Table = text.parse().map_err(|error| format!("{FILE}: {error}"))?;
    let number = |value: &Value, name: &str| {
        let number = value.get(name).and_then(Value::as_integer);
        let number = number.and_then(|it| usize::try_from(it).ok());
        number.ok_or_else(|| format!("{FILE}: a part without {name}"))
    };
    let words = |value: &Value, name: &str| {
        let word = value.get(name).and_then(Value::as_str);
        word.map(str::to_owned)
            .ok_or_else(|| format!("{FILE}: a survivor without {name}"))
    };
    let mut scores = Scores::new();
    for (name, value) in &table {
        let mut score = Score {
            mutants: number(value, "mutants")?,
            killed: number(value, "killed")?,
            survivors: BTreeMap::new(),
        };
        for survivor in value
            .get("survivor")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let key = Key {
                file: words(survivor, "file")?,
                function: words(survivor, "function")?,
                change: words(survivor, "change")?,
            };
            score.survivors.insert(key, words(survivor, "reason")?);
        }
        scores.insert(name.clone(), score);
    }
    Ok(scores)
}

/// Returns the text of a record.
pub(crate) fn text(scores: &Scores) -> String {
    let mut out = HEAD.to_owned();
    // Writing to a String does not fail.
    for (name, score) in scores {
        let Score {
            mutants,
            killed,
            survivors,
        } = score;
        let _ = write!(out, "\n[{name}]\nmutants = {mutants}\nkilled = {killed}\n");
        for (key, reason) in survivors {
            let _ = write!(out, "\n[[{name}.survivor]]\n");
            let lines = [
                ("file", &key.file),
                ("function", &key.function),
                ("change", &key.change),
                ("reason", reason),
            ];
            for (word, value) in lines {
                let _ = writeln!(out, "{word} = {}", Value::String(value.clone()));
            }
        }
    }
    out
}

/// Keeps the reasons of survivors that a record has already.
pub(crate) fn keep_reasons(score: &mut Score, before: Option<&Score>) {
    for (key, reason) in &mut score.survivors {
        if let Some(known) = before.and_then(|before| before.survivors.get(key)) {
            reason.clone_from(known);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_keeps_reasons() {
        let key = |change: &str| Key {
            file: "lib.rs".into(),
            function: "f".into(),
            change: change.into(),
        };
        let mut score = Score {
            mutants: 10,
            killed: 8,
            survivors: [
                (key("\"a\" < b -> a"), "equivalent: same".to_owned()),
                (key("1 -> 2"), String::new()),
            ]
            .into(),
        };
        let scores = Scores::from([("units".to_owned(), score.clone())]);
        assert_eq!(parse(&text(&scores)), Ok(scores.clone()));
        let before = score.clone();
        assert_eq!(before.mortal(), 9);
        score.survivors.values_mut().for_each(String::clear);
        keep_reasons(&mut score, Some(&before));
        assert_eq!(score, before);
    }
}
