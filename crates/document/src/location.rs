//! Where something stands in a text.

use std::fmt;

/// A place in a text, as editors count: `line:column`, both from 1, columns in
/// characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
}

impl Location {
    /// Where byte `offset` of `text` stands; its end for one beyond it.
    pub fn of(text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
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
