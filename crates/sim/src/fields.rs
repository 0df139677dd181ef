//! Rows of a file in any format: CSV or Parquet.

use crate::{columnar, csv};
use std::ops::RangeInclusive;

/// The fields of a row, and the positions of errors.
pub(crate) trait Fields {
    type Wrong;

    /// Returns a field that is an integer within `range`.
    fn number(&self, field: usize, range: RangeInclusive<u64>) -> Result<u64, Self::Wrong>;

    /// Returns a field that is a non-empty text.
    fn text(&self, field: usize) -> Result<&str, Self::Wrong>;

    /// Returns an error in a field.
    fn wrong(&self, field: usize, what: String) -> Self::Wrong;
}

impl<const N: usize> Fields for csv::Row<'_, N> {
    type Wrong = csv::Wrong;

    fn number(&self, field: usize, range: RangeInclusive<u64>) -> Result<u64, csv::Wrong> {
        self.number(field, range)
    }

    fn text(&self, field: usize) -> Result<&str, csv::Wrong> {
        // A row with an empty field is refused before.
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
