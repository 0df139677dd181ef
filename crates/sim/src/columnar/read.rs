//! Columns of whole numbers and of texts, by their names.

use super::pages::{Bounded, Pages, Values};
use parquet::basic::{ConvertedType, LogicalType, Type};
use parquet::column::reader::get_column_reader;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader,
    ParquetStatisticsPolicy, RowGroupMetaData,
};
use parquet::file::reader::{ChunkReader, Length as _};
use parquet::schema::types::{ColumnDescPtr, SchemaDescriptor};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::thread;

/// What a file says of itself takes no more than that, in bytes: 500 parts of four columns.
const MOST_FOOTER: u64 = 256 << 10;
/// What reading takes of a stack at most, in bytes: a footer of that size nests 52,000 deep.
const STACK: usize = 512 << 20;
/// Rows that are in memory at once.
const BATCH: usize = 1024;
/// Texts that are read at once: until they are copied each may keep a page of its own.
const TEXTS: usize = 32;
/// The longest text, in bytes.
const LONGEST_TEXT: usize = 255;

/// What is in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Whole numbers.
    Numbers,
    /// Texts of at most 255 bytes.
    Texts,
}

/// Something that is wrong: where, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// From 1 on, if it is a row that is wrong.
    pub row: Option<u64>,
    /// Its name, if it is one column that is wrong.
    pub column: Option<&'static str>,
    /// What is, and what would be right.
    pub what: String,
}

impl Wrong {
    /// Something of the file as a whole.
    pub fn file(what: impl Into<String>) -> Self {
        let (row, column) = (None, None);
        let what = what.into();
        Self { row, column, what }
    }

    fn column(column: &'static str, what: impl fmt::Display) -> Self {
        let (row, column) = (None, Some(column));
        let what = what.to_string();
        Self { row, column, what }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { row, column, what } = self;
        match (row, column) {
            (Some(row), Some(column)) => write!(f, "row {row}, column `{column}`: {what}"),
            (Some(row), None) => write!(f, "row {row}: {what}"),
            (None, Some(column)) => write!(f, "column `{column}`: {what}"),
            (None, None) => write!(f, "{what}"),
        }
    }
}

/// A row of `N` fields.
#[derive(Debug, Clone, Copy)]
pub struct Row<'r, const N: usize> {
    columns: &'r [Column],
    /// Which of those in memory it is.
    at: usize,
    /// Which of the file, from 1 on.
    number: u64,
}

impl<const N: usize> Row<'_, N> {
    /// Something is wrong with a field.
    pub fn wrong(&self, field: usize, what: impl Into<String>) -> Wrong {
        Wrong {
            row: Some(self.number),
            column: Some(self.columns[field].name),
            what: what.into(),
        }
    }

    /// A field, if it is within `range`.
    ///
    /// # Errors
    /// It is not.
    pub fn number(&self, field: usize, range: RangeInclusive<u64>) -> Result<u64, Wrong> {
        let Cells::Numbers(numbers) = &self.columns[field].read else {
            return Err(self.wrong(field, "is no number"));
        };
        let number = numbers[self.at];
        let fits = u64::try_from(number).ok().filter(|it| range.contains(it));
        fits.ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            let what = format!("{number} is not a whole number from {least} to {most}");
            self.wrong(field, what)
        })
    }

    /// A field that is a text of at least one character.
    ///
    /// # Errors
    /// It is not.
    pub fn text(&self, field: usize) -> Result<&str, Wrong> {
        let Cells::Texts(texts) = &self.columns[field].read else {
            return Err(self.wrong(field, "is no text"));
        };
        match &texts[self.at] {
            Ok(text) if text.is_empty() => Err(self.wrong(field, "is empty")),
            Ok(text) => Ok(text),
            Err(what) => Err(self.wrong(field, *what)),
        }
    }
}

/// Hands the rows of a file over one by one, of the columns with these names; others are not read.
/// What is in memory at once does not depend on what the file says.
///
/// # Errors
/// The file is no Parquet, lacks a column, has more rows than `most`, no number or text where one
/// should be; or what `take` says.
pub fn read<const N: usize>(
    file: impl ChunkReader + 'static,
    columns: [(&'static str, Kind); N],
    most: u64,
    mut take: impl FnMut(Row<'_, N>) -> Result<(), Wrong> + Send,
) -> Result<(), Wrong> {
    // A thread of its own, as groups in a file's schema may be nested without end.
    thread::scope(|scope| {
        let work = || rows(&Arc::new(Bounded(file)), columns, most, &mut take);
        let reader = thread::Builder::new().stack_size(STACK);
        match reader.spawn_scoped(scope, work) {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|_| Err(no_parquet("it contradicts itself"))),
            Err(error) => Err(Wrong::file(format!("cannot be read: {error}"))),
        }
    })
}

fn rows<const N: usize, R: ChunkReader + 'static>(
    file: &Arc<Bounded<R>>,
    columns: [(&'static str, Kind); N],
    most: u64,
    take: &mut impl FnMut(Row<'_, N>) -> Result<(), Wrong>,
) -> Result<(), Wrong> {
    let about = about(file)?;
    let schema = about.file_metadata().schema_descr();
    let mut places = [0; N];
    for (place, (name, kind)) in places.iter_mut().zip(columns) {
        *place = find(schema, name, kind)?;
    }
    let mut before = 0;
    for part in about.row_groups() {
        let rows = u64::try_from(part.num_rows()).unwrap_or(u64::MAX);
        if rows > most - before {
            let what = format!("has more than {most} rows: take a part of it");
            return Err(Wrong::file(what));
        }
        read_part(file, part, (columns.map(|it| it.0), places), before, take)?;
        before += rows;
    }
    Ok(())
}

fn read_part<const N: usize, R: ChunkReader + 'static>(
    file: &Arc<Bounded<R>>,
    part: &RowGroupMetaData,
    (names, places): ([&'static str; N], [usize; N]),
    mut before: u64,
    take: &mut impl FnMut(Row<'_, N>) -> Result<(), Wrong>,
) -> Result<(), Wrong> {
    let mut left = part.num_rows() as usize;
    let mut columns = Vec::with_capacity(N);
    let mut readers = Vec::with_capacity(N);
    for (name, place) in names.into_iter().zip(places) {
        readers.push(Reader::new(file, part.column(place), left, name)?);
    }
    while left > 0 {
        let batch = left.min(BATCH);
        columns.clear();
        for reader in &mut readers {
            columns.push(reader.read(batch, before)?);
        }
        for at in 0..batch {
            take(Row {
                columns: &columns,
                at,
                number: before + at as u64 + 1,
            })?;
        }
        left -= batch;
        before += batch as u64;
    }
    Ok(())
}

/// What a file says of itself, without what it says of the numbers in it.
fn about<R: ChunkReader>(file: &Bounded<R>) -> Result<ParquetMetaData, Wrong> {
    const END: u64 = 8;
    let length = file.len();
    let end = length
        .checked_sub(END)
        .map(|end| file.get_bytes(end, END as usize));
    let Some(Ok(end)) = end else {
        return Err(no_parquet(format!("it has {length} B")));
    };
    let (footer, _) = end.split_at(4);
    let footer = u32::from_le_bytes(footer.try_into().expect("four of eight bytes"));
    if u64::from(footer) > MOST_FOOTER {
        return Err(no_parquet(format!(
            "its footer would have {footer} B, of at most {MOST_FOOTER}"
        )));
    }
    let nothing = ParquetStatisticsPolicy::SkipAll;
    let options = ParquetMetaDataOptions::new()
        .with_column_stats_policy(nothing.clone())
        .with_encoding_stats_policy(nothing.clone())
        .with_size_stats_policy(nothing);
    let reader = ParquetMetaDataReader::new().with_metadata_options(Some(options));
    reader
        .parse_and_finish(file)
        .map_err(|error| no_parquet(said(&error)))
}

/// Where the column of a name is, if it has what it should.
fn find(schema: &SchemaDescriptor, name: &'static str, kind: Kind) -> Result<usize, Wrong> {
    let is_it = |column: &ColumnDescPtr| column.path().parts() == [name];
    let Some(place) = schema.columns().iter().position(is_it) else {
        let there: Vec<_> = schema
            .columns()
            .iter()
            .take(16)
            .map(|it| it.name())
            .collect();
        let there = there.join("`, `");
        let what = format!("is not there: there is `{there}`");
        return Err(Wrong::column(name, what));
    };
    let column = schema.column(place);
    let (fits, right) = match kind {
        Kind::Numbers => (has_numbers(&column), "whole numbers, INT64"),
        Kind::Texts => (has_texts(&column), "texts, BYTE_ARRAY with STRING"),
    };
    if !fits || column.max_rep_level() > 0 {
        let is = column.logical_type_ref().map_or_else(
            || column.physical_type().to_string(),
            |logical| format!("{logical:?}"),
        );
        let what = format!("is of type {is}: write {right}");
        return Err(Wrong::column(name, what));
    }
    Ok(place)
}

fn has_numbers(column: &ColumnDescPtr) -> bool {
    matches!(column.physical_type(), Type::INT32 | Type::INT64)
        && match column.logical_type_ref() {
            None => !matches!(
                column.converted_type(),
                ConvertedType::DECIMAL
                    | ConvertedType::DATE
                    | ConvertedType::TIME_MILLIS
                    | ConvertedType::TIME_MICROS
                    | ConvertedType::TIMESTAMP_MILLIS
                    | ConvertedType::TIMESTAMP_MICROS
            ),
            Some(logical) => matches!(logical, LogicalType::Integer(_)),
        }
}

fn has_texts(column: &ColumnDescPtr) -> bool {
    column.physical_type() == Type::BYTE_ARRAY
        && match column.logical_type_ref() {
            None => column.converted_type() == ConvertedType::UTF8,
            Some(logical) => matches!(logical, LogicalType::String),
        }
}

/// What was read of a column last.
#[derive(Debug)]
struct Column {
    name: &'static str,
    read: Cells,
}

#[derive(Debug)]
enum Cells {
    Numbers(Vec<i128>),
    /// Each, or what is wrong with it.
    Texts(Vec<Result<Box<str>, &'static str>>),
}

/// A part of a column, as it is read.
struct Reader {
    name: &'static str,
    values: ColumnReader,
    is_unsigned: bool,
    /// Whether a row may be without a value.
    has_levels: bool,
}

impl Reader {
    fn new<R: ChunkReader + 'static>(
        file: &Arc<Bounded<R>>,
        part: &ColumnChunkMetaData,
        rows: usize,
        name: &'static str,
    ) -> Result<Self, Wrong> {
        let about = part.column_descr_ptr();
        let of = match about.physical_type() {
            Type::INT32 => Values::Fixed(4),
            Type::INT64 => Values::Fixed(8),
            _ => Values::Texts,
        };
        let pages = Pages::new(file, part, rows, of).map_err(|error| failed(name, &error))?;
        let is_unsigned = match about.logical_type_ref() {
            Some(LogicalType::Integer(it)) => !it.is_signed,
            _ => false,
        };
        Ok(Self {
            name,
            is_unsigned,
            has_levels: about.max_def_level() > 0,
            values: get_column_reader(about, Box::new(pages)),
        })
    }

    /// Reads so many rows, of which that many are `before`.
    fn read(&mut self, rows: usize, before: u64) -> Result<Column, Wrong> {
        let (name, levels) = (self.name, self.has_levels);
        let is_unsigned = self.is_unsigned;
        let place = (name, before);
        let read = match &mut self.values {
            ColumnReader::Int32ColumnReader(reader) => {
                Cells::Numbers(whole(reader, rows, rows, levels, place, |it| {
                    if is_unsigned {
                        (it as u32).into()
                    } else {
                        it.into()
                    }
                })?)
            }
            ColumnReader::Int64ColumnReader(reader) => {
                Cells::Numbers(whole(reader, rows, rows, levels, place, |it| {
                    if is_unsigned {
                        (it as u64).into()
                    } else {
                        it.into()
                    }
                })?)
            }
            ColumnReader::ByteArrayColumnReader(reader) => {
                Cells::Texts(whole(reader, rows, TEXTS, levels, place, |it| text(&it))?)
            }
            _ => unreachable!("`find` takes INT32, INT64 and BYTE_ARRAY alone"),
        };
        Ok(Column { name, read })
    }
}

/// A text of its own, apart from its page.
fn text(bytes: &ByteArray) -> Result<Box<str>, &'static str> {
    if bytes.len() > LONGEST_TEXT {
        return Err("has more than 255 B: write a shorter name");
    }
    let text = std::str::from_utf8(bytes.data());
    text.map(Box::from)
        .map_err(|_| "is no text: write it in UTF-8")
}

/// So many rows, `at_once` in each step. `name` and `before` are the column's, and what of it was
/// read before.
fn whole<T: DataType, V>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    at_once: usize,
    has_levels: bool,
    (name, before): (&'static str, u64),
    value: impl Fn(T::T) -> V,
) -> Result<Vec<V>, Wrong> {
    let mut all = Vec::with_capacity(rows);
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    let wrong = |row: usize, what: &str| Wrong {
        row: Some(before + row as u64 + 1),
        column: Some(name),
        what: what.to_owned(),
    };
    while all.len() < rows {
        let next = at_once.min(rows - all.len());
        let levels_of = has_levels.then_some(&mut levels);
        let read = reader.read_records(next, levels_of, None, &mut values);
        let (read, ..) = read.map_err(|error| failed(name, &error))?;
        if let Some(null) = levels.iter().position(|level| *level == 0) {
            return Err(wrong(all.len() + null, "is null: write a value"));
        }
        if read == 0 {
            let what = "is missing: the column is shorter than the table";
            return Err(wrong(all.len(), what));
        }
        levels.clear();
        all.extend(values.drain(..).map(&value));
    }
    Ok(all)
}

fn failed(column: &'static str, error: &ParquetError) -> Wrong {
    Wrong::column(column, said(error))
}

fn no_parquet(why: impl fmt::Display) -> Wrong {
    Wrong::file(format!("is no Parquet that can be read: {why}"))
}

/// An error in its own words.
fn said(error: &ParquetError) -> String {
    match error {
        ParquetError::General(what) | ParquetError::EOF(what) => what.clone(),
        error => error.to_string(),
    }
}
