//! Rows of whole numbers and texts from a file: CSV with a line of names, JSON lines, or Parquet.
//!
//! The crates `csv`, `serde_json` and `parquet` read the files: CSV and JSON lines a row at a time,
//! Parquet with as much memory as the file declares. Columns are found by their names; other columns are ignored.

#[cfg(test)]
mod tests;

use csv::{ErrorKind, ReaderBuilder, StringRecord, Trim};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, FileReader as _, SerializedFileReader};
use parquet::record::Field;
use parquet::schema::types::Type;
use serde_json::{Map, Value};
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek as _};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

/// The first bytes of a Parquet file.
const PARQUET: &[u8] = b"PAR1";

/// A mistake in a file: its place, and a correct value. As text it continues after the file's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    place: Place,
    /// Name of the column, if one field is wrong.
    column: Option<&'static str>,
    what: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    File,
    /// Line of a CSV file or of JSON lines, from 1 on; of the first empty line above the row, if there are any.
    Line(u64),
    /// Row of a Parquet file, from 1 on.
    Row(u64),
}

impl Wrong {
    /// Returns a mistake of the file as a whole.
    pub(crate) fn file(what: impl Into<String>) -> Self {
        Self {
            place: Place::File,
            column: None,
            what: what.into(),
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::File => f.write_str(": ")?,
            Place::Line(line) => write!(f, ":{line}: ")?,
            Place::Row(row) => write!(f, ": row {row}, ")?,
        }
        if let Some(column) = self.column {
            write!(f, "column `{column}`: ")?;
        }
        f.write_str(&self.what)
    }
}

impl From<io::Error> for Wrong {
    fn from(error: io::Error) -> Self {
        Self::file(format!("it cannot be read: {error}"))
    }
}

impl From<ParquetError> for Wrong {
    fn from(error: ParquetError) -> Self {
        Self::file(format!("it is no Parquet that can be read: {error}"))
    }
}

impl From<csv::Error> for Wrong {
    fn from(error: csv::Error) -> Self {
        let what = match error.kind() {
            ErrorKind::UnequalLengths {
                expected_len, len, ..
            } => format!("a row has {expected_len} fields, and this one {len}"),
            _ => format!("it is no CSV that can be read: {error}"),
        };
        let line = error.position().map(csv::Position::line);
        Self {
            place: line.map_or(Place::File, Place::Line),
            column: None,
            what,
        }
    }
}

/// A row of `N` fields.
#[derive(Debug)]
pub(crate) struct Row<'r, const N: usize> {
    names: [&'static str; N],
    fields: [Cell<'r>; N],
    place: Place,
}

/// A field of either format.
#[derive(Debug, Clone, Copy)]
enum Cell<'r> {
    Csv(&'r str),
    Json(&'r Value),
    Parquet(&'r Field),
}

impl fmt::Display for Cell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Csv(text) => write!(f, "{text:?}"),
            Self::Json(value) => write!(f, "{value}"),
            Self::Parquet(field) => write!(f, "{field}"),
        }
    }
}

impl<const N: usize> Row<'_, N> {
    /// Returns a mistake in a field.
    pub(crate) fn wrong(&self, field: usize, what: impl Into<String>) -> Wrong {
        Wrong {
            place: self.place,
            column: Some(self.names[field]),
            what: what.into(),
        }
    }

    /// Returns a field that is a whole number within `range`.
    ///
    /// # Errors
    /// The field has another type or value.
    pub(crate) fn number(&self, field: usize, range: RangeInclusive<u64>) -> Result<u64, Wrong> {
        let cell = self.fields[field];
        let number = match cell {
            Cell::Csv(text) => text.parse().ok(),
            Cell::Json(value) => value.as_u64(),
            Cell::Parquet(field) => whole(field).and_then(|number| number.try_into().ok()),
        };
        let number = number.filter(|number| range.contains(number));
        number.ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            let what = format!("{cell} is not a whole number from {least} to {most}");
            self.wrong(field, what)
        })
    }

    /// Returns a field that is a text of at least one character.
    ///
    /// # Errors
    /// The field has another type, or is empty.
    pub(crate) fn text(&self, field: usize) -> Result<&str, Wrong> {
        match self.fields[field] {
            Cell::Csv("") => Err(self.wrong(field, "is empty")),
            Cell::Parquet(Field::Str(text)) if text.is_empty() => {
                Err(self.wrong(field, "is empty"))
            }
            Cell::Json(Value::String(text)) if text.is_empty() => {
                Err(self.wrong(field, "is empty"))
            }
            Cell::Csv(text) => Ok(text),
            Cell::Json(Value::String(text)) | Cell::Parquet(Field::Str(text)) => Ok(text),
            cell @ (Cell::Json(_) | Cell::Parquet(_)) => {
                Err(self.wrong(field, format!("{cell} is no text")))
            }
        }
    }
}

fn whole(field: &Field) -> Option<i128> {
    Some(match *field {
        Field::Byte(it) => it.into(),
        Field::Short(it) => it.into(),
        Field::Int(it) => it.into(),
        Field::Long(it) => it.into(),
        Field::UByte(it) => it.into(),
        Field::UShort(it) => it.into(),
        Field::UInt(it) => it.into(),
        Field::ULong(it) => it.into(),
        _ => return None,
    })
}

/// Calls `take` with each row of a file, of the columns with these names.
///
/// # Errors
/// The file cannot be read, lacks a column or has more rows than `most`; or the error of `take`.
pub(crate) fn read<const N: usize>(
    path: &Path,
    names: [&'static str; N],
    most: usize,
    take: impl FnMut(&Row<'_, N>) -> Result<(), Wrong>,
) -> Result<(), Wrong> {
    let mut file = File::open(path)?;
    let mut head = Vec::new();
    (&file).take(PARQUET.len() as u64).read_to_end(&mut head)?;
    file.rewind()?;
    if head == PARQUET {
        of_parquet(file, names, most, take)
    } else if head.first() == Some(&b'{') {
        of_json_lines(BufReader::new(file), names, most, take)
    } else {
        of_csv(file, names, most, take)
    }
}

fn of_csv<const N: usize>(
    file: impl Read,
    names: [&'static str; N],
    most: usize,
    mut take: impl FnMut(&Row<'_, N>) -> Result<(), Wrong>,
) -> Result<(), Wrong> {
    let mut reader = ReaderBuilder::new().trim(Trim::All).from_reader(file);
    let heads: Vec<_> = reader.headers()?.iter().map(str::to_owned).collect();
    if heads.is_empty() {
        let what = format!("it is empty: begin with the line `{}`", names.join(","));
        return Err(Wrong::file(what));
    }
    let columns = columns(names, &heads)?;
    let mut record = StringRecord::new();
    for number in 0.. {
        if !reader.read_record(&mut record)? {
            break;
        }
        if number == most {
            return Err(too_many(most));
        }
        take(&Row {
            names,
            fields: columns.map(|column| Cell::Csv(&record[column])),
            place: Place::Line(record.position().map_or(0, csv::Position::line)),
        })?;
    }
    Ok(())
}

fn of_json_lines<const N: usize>(
    file: impl BufRead,
    names: [&'static str; N],
    most: usize,
    mut take: impl FnMut(&Row<'_, N>) -> Result<(), Wrong>,
) -> Result<(), Wrong> {
    for (line, number) in file.lines().zip(1..) {
        if number > most {
            return Err(too_many(most));
        }
        let place = Place::Line(number as u64);
        let at = |column, what| Wrong {
            place,
            column,
            what,
        };
        let object: Map<String, Value> = serde_json::from_str(&line?).map_err(|error| {
            at(
                None,
                format!("it is no JSON object that can be read: {error}"),
            )
        })?;
        if let Some(name) = names.into_iter().find(|name| !object.contains_key(*name)) {
            return Err(at(Some(name), "is not there".to_owned()));
        }
        take(&Row {
            names,
            fields: names.map(|name| Cell::Json(&object[name])),
            place,
        })?;
    }
    Ok(())
}

fn of_parquet<const N: usize>(
    file: impl ChunkReader + 'static,
    names: [&'static str; N],
    most: usize,
    mut take: impl FnMut(&Row<'_, N>) -> Result<(), Wrong>,
) -> Result<(), Wrong> {
    let file = SerializedFileReader::new(file)?;
    let about = file.metadata().file_metadata();
    if usize::try_from(about.num_rows()).is_ok_and(|rows| rows > most) {
        return Err(too_many(most));
    }
    let there = about.schema().get_fields();
    let heads: Vec<_> = there.iter().map(|field| field.name()).collect();
    let fields = columns(names, &heads)?.map(|column| Arc::clone(&there[column]));
    let wanted = Type::group_type_builder(about.schema().name());
    let wanted = wanted.with_fields(fields.into()).build()?;
    for (row, number) in file.get_row_iter(Some(wanted))?.zip(1..) {
        // Columns have the order of the names that were wanted.
        let row = row?.into_columns();
        take(&Row {
            names,
            fields: std::array::from_fn(|column| Cell::Parquet(&row[column].1)),
            place: Place::Row(number),
        })?;
    }
    Ok(())
}

/// Returns the index of each name among the columns of a file.
fn columns<const N: usize>(
    names: [&'static str; N],
    heads: &[impl AsRef<str>],
) -> Result<[usize; N], Wrong> {
    let index = |name: &str| heads.iter().position(|head| head.as_ref() == name);
    if let Some(name) = names.into_iter().find(|name| index(name).is_none()) {
        let heads: Vec<_> = heads.iter().map(AsRef::as_ref).collect();
        let what = format!("is not there: there is `{}`", heads.join("`, `"));
        return Err(Wrong {
            place: Place::File,
            column: Some(name),
            what,
        });
    }
    Ok(names.map(|name| index(name).unwrap_or_default()))
}

fn too_many(most: usize) -> Wrong {
    Wrong::file(format!("has more than {most} rows: take a part of it"))
}
