//! Locations in a text.

use std::fmt;

/// A location in a text in the form of editors: `line:column`, both from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
}

impl Location {
    /// Returns the location of byte `offset` of `text`; the end of the text for an offset beyond
    /// it.
    pub fn of(text: &str, offset: usize) -> Self {
        Self::within(text, &Self::lines(text), offset)
    }

    /// Returns the byte at which each line of `text` begins.
    pub(crate) fn lines(text: &str) -> Vec<usize> {
        let after = text.match_indices('\n').map(|(newline, _)| newline + 1);
        std::iter::once(0).chain(after).collect()
    }

    /// Returns the same as [`Self::of`], from the beginnings of the lines of `text`.
    pub(crate) fn within(text: &str, lines: &[usize], offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line = lines.partition_point(|start| *start <= before.len());
        let start = lines.get(line - 1).copied().unwrap_or_default();
        Self {
            line,
            column: before[start..].chars().count() + 1,
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.line, self.column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_characters_are_counted_from_one() {
        let text = "ab\nç!\n";
        for (offset, place) in [(0, "1:1"), (3, "2:1"), (5, "2:2"), (7, "3:1"), (99, "3:1")] {
            assert_eq!(Location::of(text, offset).to_string(), place, "{offset}");
        }
    }
}
