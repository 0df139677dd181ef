//! Parquet tables: rows of whole numbers and texts, read, and tables of results, written.
//!
//! The `parquet` crate reads and writes. It takes as much memory as the file declares.

#[cfg(test)]
mod tests;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{ChunkReader, FileReader as _, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::record::Field;
use parquet::schema::types::Type;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Returns true if a file begins like Parquet. The file must be at its begin, and is there again
/// afterwards.
pub(crate) fn is_it(mut file: &File) -> io::Result<bool> {
    const MAGIC: &[u8] = b"PAR1";
    let mut head = Vec::new();
    file.take(MAGIC.len() as u64).read_to_end(&mut head)?;
    file.rewind()?;
    Ok(head == MAGIC)
}

/// A mistake in a table: its place, and a right value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// Number of the row, from 1 on, if one row is wrong.
    row: Option<u64>,
    /// Name of the column, if one is wrong.
    column: Option<&'static str>,
    what: String,
}

impl Wrong {
    /// A mistake of the file as a whole.
    pub(crate) fn file(what: impl Into<String>) -> Self {
        let (row, column) = (None, None);
        let what = what.into();
        Self { row, column, what }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(row) = self.row {
            write!(f, "row {row}, ")?;
        }
        if let Some(column) = self.column {
            write!(f, "column `{column}`: ")?;
        }
        f.write_str(&self.what)
    }
}

/// A row of `N` fields.
#[derive(Debug)]
pub(crate) struct Row<const N: usize> {
    names: [&'static str; N],
    fields: [Field; N],
    number: u64,
}

impl<const N: usize> Row<N> {
    /// A mistake in a field.
    pub(crate) fn wrong(&self, field: usize, what: impl Into<String>) -> Wrong {
        Wrong {
            row: Some(self.number),
            column: Some(self.names[field]),
            what: what.into(),
        }
    }

    /// A field that is a whole number within `range`.
    ///
    /// # Errors
    /// The field has another type or value.
    pub(crate) fn number(&self, field: usize, range: RangeInclusive<u64>) -> Result<u64, Wrong> {
        let value = &self.fields[field];
        let number = match *value {
            Field::Byte(it) => it.into(),
            Field::Short(it) => it.into(),
            Field::Int(it) => it.into(),
            Field::Long(it) => it.into(),
            Field::UByte(it) => it.into(),
            Field::UShort(it) => it.into(),
            Field::UInt(it) => it.into(),
            Field::ULong(it) => it.into(),
            _ => -1_i128,
        };
        let fits = u64::try_from(number).ok().filter(|it| range.contains(it));
        fits.ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            let what = format!("{value} is not a whole number from {least} to {most}");
            self.wrong(field, what)
        })
    }

    /// A field that is a text of at least one character.
    ///
    /// # Errors
    /// The field has another type, or is empty.
    pub(crate) fn text(&self, field: usize) -> Result<&str, Wrong> {
        match &self.fields[field] {
            Field::Str(text) if text.is_empty() => Err(self.wrong(field, "is empty")),
            Field::Str(text) => Ok(text),
            other => Err(self.wrong(field, format!("{other} is no text"))),
        }
    }
}

/// Calls `take` with each row of a file, of the columns with these names; others are not read.
///
/// # Errors
/// The file is no Parquet, lacks a column or has more rows than `most`; or the error of `take`.
pub(crate) fn read<const N: usize>(
    file: impl ChunkReader + 'static,
    names: [&'static str; N],
    most: u64,
    mut take: impl FnMut(Row<N>) -> Result<(), Wrong>,
) -> Result<(), Wrong> {
    let file = SerializedFileReader::new(file).map_err(|error| unreadable(&error))?;
    let about = file.metadata().file_metadata();
    if u64::try_from(about.num_rows()).is_ok_and(|rows| rows > most) {
        let what = format!("has more than {most} rows: take a part of it");
        return Err(Wrong::file(what));
    }
    let there = about.schema().get_fields();
    let mut fields = Vec::with_capacity(N);
    for name in names {
        let Some(field) = there.iter().find(|field| field.name() == name) else {
            let there: Vec<_> = there.iter().map(|field| field.name()).collect();
            let what = format!("is not there: there is `{}`", there.join("`, `"));
            return Err(Wrong {
                row: None,
                column: Some(name),
                what,
            });
        };
        fields.push(Arc::clone(field));
    }
    let wanted = Type::group_type_builder(about.schema().name()).with_fields(fields);
    let wanted = wanted.build().map_err(|error| unreadable(&error))?;
    let rows = file
        .get_row_iter(Some(wanted))
        .map_err(|error| unreadable(&error))?;
    for (row, number) in rows.zip(1..) {
        let mut row = row.map_err(|error| unreadable(&error))?.into_columns();
        // Columns have the order of the names that were wanted.
        let fields = names.map(|_| row.remove(0).1);
        take(Row {
            names,
            fields,
            number,
        })?;
    }
    Ok(())
}

fn unreadable(error: &ParquetError) -> Wrong {
    Wrong::file(format!("is no Parquet that can be read: {error}"))
}

/// A column of a table of results, a value each row.
#[derive(Debug)]
pub(crate) enum Column {
    Numbers(Vec<i64>),
    Texts(Vec<String>),
    /// Figures; `None` if one could not be computed.
    Figures(Vec<Option<f64>>),
}

impl Column {
    fn field(&self, name: &str) -> ParquetResult<Type> {
        let (physical, repetition, logical) = match self {
            Self::Numbers(_) => (Physical::INT64, Repetition::REQUIRED, None),
            Self::Texts(_) => {
                let text = Some(LogicalType::String);
                (Physical::BYTE_ARRAY, Repetition::REQUIRED, text)
            }
            Self::Figures(_) => (Physical::DOUBLE, Repetition::OPTIONAL, None),
        };
        let field = Type::primitive_type_builder(name, physical);
        field
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build()
    }
}

/// A file of one table of columns of the same length: the same bytes for the same table.
pub(crate) fn table(columns: &[(String, Column)]) -> Vec<u8> {
    write(columns).expect("columns of the same length, into memory")
}

fn write(columns: &[(String, Column)]) -> ParquetResult<Vec<u8>> {
    let fields = columns
        .iter()
        .map(|(name, column)| column.field(name).map(Arc::new));
    let fields = fields.collect::<ParquetResult<_>>()?;
    let schema = Type::group_type_builder("table")
        .with_fields(fields)
        .build()?;
    let properties = Arc::new(WriterProperties::builder().build());
    let mut file = SerializedFileWriter::new(Vec::new(), Arc::new(schema), properties)?;
    let mut part = file.next_row_group()?;
    for (_, column) in columns {
        let mut writer = part.next_column()?.expect("a column of the schema");
        match column {
            Column::Numbers(numbers) => {
                let writer = writer.typed::<Int64Type>();
                writer.write_batch(numbers, None, None)?;
            }
            Column::Texts(texts) => {
                let texts = texts.iter().map(|it| ByteArray::from(it.as_str()));
                let writer = writer.typed::<ByteArrayType>();
                writer.write_batch(&texts.collect::<Vec<_>>(), None, None)?;
            }
            Column::Figures(values) => {
                let levels: Vec<i16> = values.iter().map(|it| it.is_some().into()).collect();
                let there: Vec<_> = values.iter().copied().flatten().collect();
                let writer = writer.typed::<DoubleType>();
                writer.write_batch(&there, Some(&levels), None)?;
            }
        }
        writer.close()?;
    }
    part.close()?;
    file.into_inner()
}
