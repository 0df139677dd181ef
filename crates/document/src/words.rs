//! Messages of serde and of TOML in the terms of a file.

/// Returns the words that a message of serde's quotes: the first, and the others.
pub(crate) fn quoted(message: &str) -> (&str, Vec<&str>) {
    let mut quoted = message.split('`').skip(1).step_by(2);
    (quoted.next().unwrap_or_default(), quoted.collect())
}

/// Returns a message of serde's in the terms of a file: what is wrong; what would be right.
pub(crate) fn explain(message: &str) -> String {
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

/// Changes `what, expected this` to `what; expected this`.
pub(crate) fn semicolon(message: &str) -> String {
    message.trim_end().replacen(", expected", "; expected", 1)
}

/// Returns TOML's term for a type that serde expects; serde's own if TOML has none.
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

/// Returns the message that `word` is not among the `known` ones, with the nearest of them; `what`
/// names its kind, such as "key". If the nearest is less certain, the message lists all.
pub fn unknown_word(what: &str, word: &str, known: &[&str]) -> String {
    let list = || format!("known here: {}", known.join(", "));
    match (alike(word, known), nearest(word, known)) {
        (Some(meant), _) => format!("unknown {what} `{word}`; did you mean `{meant}`?"),
        (None, Some(meant)) => {
            let list = list();
            format!("unknown {what} `{word}`; did you mean `{meant}`? {list}")
        }
        (None, None) => format!("unknown {what} `{word}`; {}", list()),
    }
}

/// Returns the known word for which `word` is probably a misspelling.
pub(crate) fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    alike(word, known).or_else(|| edited(word, known))
}

/// Returns the known word that has most of its letters in the same positions.
fn alike<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let close = known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(word, candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    close.map(|(_, candidate)| *candidate)
}

/// Returns the known word that `word` becomes by few edits. A short word with two exchanged
/// letters, such as `mca`, has too few letters in their positions to be alike.
fn edited<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let lower = word.to_lowercase();
    let length = word.chars().count();
    let allowed = if length < 2 { 0 } else { (length / 4).max(1) };
    let edits = known.iter().map(|candidate| {
        let edits = strsim::osa_distance(&lower, &candidate.to_lowercase());
        (edits, *candidate)
    });
    let close = edits.filter(|(edits, _)| *edits <= allowed);
    close.min_by_key(|(edits, _)| *edits).map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions_are_found_by_similarity_and_by_edits() {
        let known = ["name", "mac", "ip", "slaac"];
        for (word, expected) in [
            ("nam", "did you mean `name`?"),
            (
                "mca",
                "did you mean `mac`? known here: name, mac, ip, slaac",
            ),
            (
                "MAC",
                "did you mean `mac`? known here: name, mac, ip, slaac",
            ),
            ("pi", "did you mean `ip`? known here: name, mac, ip, slaac"),
            ("colour", "known here: name, mac, ip, slaac"),
            ("x", "known here: name, mac, ip, slaac"),
        ] {
            let expected = format!("unknown key `{word}`; {expected}");
            assert_eq!(unknown_word("key", word, &known), expected);
        }
    }
}
