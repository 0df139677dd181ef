//! CSV with a line of names: its rows, and the positions of errors.

use std::ops::RangeInclusive;

/// An error: position, from 1 on, and the expected format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) line: usize,
    /// Column, in characters.
    pub(crate) column: usize,
    pub(crate) what: String,
}

/// A row of `N` fields, none of which is empty.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<'t, const N: usize> {
    pub(crate) fields: [&'t str; N],
    names: [&'static str; N],
    text: &'t str,
    line: usize,
}

/// Returns the rows of a file whose first line has these names; `what` describes the file in
/// errors.
pub(crate) fn rows<'t, const N: usize>(
    text: &'t str,
    names: [&'static str; N],
    what: &str,
) -> Result<impl Iterator<Item = Result<Row<'t, N>, Wrong>>, Wrong> {
    let mut lines = text.lines().zip(1..);
    let head = names.join(",");
    let wrong = |what| Wrong {
        line: 1,
        column: 1,
        what,
    };
    match lines.next() {
        Some((first, _)) if first.trim_end() == head => {}
        Some(_) => return Err(wrong(format!("{what} begins with the line `{head}`"))),
        None => return Err(wrong("the file is empty".to_owned())),
    }
    let there = lines.filter(|(text, _)| !text.trim().is_empty());
    Ok(there.map(move |(text, line)| Row::of(text.trim_end(), line, names)))
}

impl<'t, const N: usize> Row<'t, N> {
    fn of(text: &'t str, line: usize, names: [&'static str; N]) -> Result<Self, Wrong> {
        let fields: Vec<&str> = text.split(',').map(str::trim).collect();
        let number = fields.len();
        let row = |fields| Self {
            fields,
            names,
            text,
            line,
        };
        let Ok(fields) = fields.try_into() else {
            let what = format!("a row has {N} fields, and this one {number}");
            return Err(row([""; N]).wrong(0, what));
        };
        let row = row(fields);
        match row.fields.iter().position(|field| field.is_empty()) {
            Some(place) => Err(row.wrong(place, format!("`{}` is empty", names[place]))),
            None => Ok(row),
        }
    }

    /// Returns an error in a field.
    pub(crate) fn wrong(&self, field: usize, what: impl Into<String>) -> Wrong {
        let before = self.text.split(',').take(field);
        Wrong {
            line: self.line,
            column: 1 + before.map(|it| it.chars().count() + 1).sum::<usize>(),
            what: what.into(),
        }
    }

    /// Returns a field that is an integer within `range`.
    pub(crate) fn number(&self, field: usize, range: RangeInclusive<u64>) -> Result<u64, Wrong> {
        let text = self.fields[field];
        let number = text.parse().ok().filter(|it| range.contains(it));
        number.ok_or_else(|| {
            let (name, least, most) = (self.names[field], range.start(), range.end());
            let what =
                format!("`{name}` is {text:?}, and not a whole number from {least} to {most}");
            self.wrong(field, what)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_column_of_what_is_wrong_counts_characters() {
        let text = "guest,bytes\nwärmefühler µ,many\n";
        let mut rows = rows(text, ["guest", "bytes"], "a test").expect("its names are there");
        let row = rows.next().expect("a row").expect("of two fields");
        let wrong = row.number(1, 0..=9).expect_err("`many` is no number");
        assert_eq!((wrong.line, wrong.column), (2, 15));
    }
}
