//! Rows of a file, whatever the file is: CSV or Parquet.

use crate::{columnar, csv};
use std::ops::RangeInclusive;

/// The fields of a row, and where something is wrong with them.
pub(crate) trait Fields {
    type Wrong;

    /// A field that is a whole number within `range`.
    fn number(&self, field: usize, range: RangeInclusive<u64>) -> Result<u64, Self::Wrong>;

    /// A field that is a text, and not empty.
    fn text(&self, field: usize) -> Result<&str, Self::Wrong>;

    /// Something is wrong with a field.
    fn wrong(&self, field: usize, what: String) -> Self::Wrong;
}

impl<const N: usize> Fields for csv::Row<'_, N> {
    type Wrong = csv::Wrong;

    fn number(&self, field: usize, range: RangeInclusive<u64>) -> Result<u64, csv::Wrong> {
        self.number(field, range)
    }

    fn text(&self, field: usize) -> Result<&str, csv::Wrong> {
        // A row that has an empty field is refused before.
        Ok(self.fields[field])
    }

    fn wrong(&self, field: usize, what: String) -> csv::Wrong {
        self.wrong(field, what)
    }
}

impl<const N: usize> Fields for columnar::Row<N> {
    type Wrong = columnar::Wrong;

    fn number(&self, field: usize, range: RangeInclusive<u64>) -> Result<u64, columnar::Wrong> {
        self.number(field, range)
    }

    fn text(&self, field: usize) -> Result<&str, columnar::Wrong> {
        self.text(field)
    }

    fn wrong(&self, field: usize, what: String) -> columnar::Wrong {
        self.wrong(field, what)
    }
}
