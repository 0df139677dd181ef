//! Columns of whole numbers, by their names.

use super::pages::{Bounded, Pages};
use parquet::basic::{ConvertedType, LogicalType, Type};
use parquet::column::reader::get_column_reader;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
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

/// A row of `N` numbers.
#[derive(Debug, Clone, Copy)]
pub struct Row<const N: usize> {
    numbers: [i128; N],
    names: [&'static str; N],
    number: u64,
}

impl<const N: usize> Row<N> {
    /// Something is wrong with a field.
    pub fn wrong(&self, field: usize, what: impl Into<String>) -> Wrong {
        Wrong {
            row: Some(self.number),
            column: Some(self.names[field]),
            what: what.into(),
        }
    }

    /// A field, if it is within `range`.
    ///
    /// # Errors
    /// It is not.
    pub fn number(&self, field: usize, range: RangeInclusive<u64>) -> Result<u64, Wrong> {
        let number = self.numbers[field];
        let fits = u64::try_from(number).ok().filter(|it| range.contains(it));
        fits.ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            let what = format!("{number} is not a whole number from {least} to {most}");
            self.wrong(field, what)
        })
    }
}

/// Hands the rows of a file over one by one, of the columns with these names; others are not read.
/// What is in memory at once does not depend on what the file says.
///
/// # Errors
/// The file is no Parquet, lacks a column, has more rows than `most`, no number where one should
/// be; or what `take` says.
pub fn read<const N: usize>(
    file: impl ChunkReader + 'static,
    names: [&'static str; N],
    most: u64,
    mut take: impl FnMut(Row<N>) -> Result<(), Wrong> + Send,
) -> Result<(), Wrong> {
    // A thread of its own, as groups in a file's schema may be nested without end.
    thread::scope(|scope| {
        let work = || rows(&Arc::new(Bounded(file)), names, most, &mut take);
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
    names: [&'static str; N],
    most: u64,
    take: &mut impl FnMut(Row<N>) -> Result<(), Wrong>,
) -> Result<(), Wrong> {
    let about = about(file)?;
    let schema = about.file_metadata().schema_descr();
    let mut places = [0; N];
    for (place, name) in places.iter_mut().zip(names) {
        *place = find(schema, name)?;
    }
    let mut before = 0;
    for part in about.row_groups() {
        let rows = u64::try_from(part.num_rows()).unwrap_or(u64::MAX);
        if rows > most - before {
            let what = format!("has more than {most} rows: take a part of it");
            return Err(Wrong::file(what));
        }
        read_part(file, part, (names, places), before, take)?;
        before += rows;
    }
    Ok(())
}

fn read_part<const N: usize, R: ChunkReader + 'static>(
    file: &Arc<Bounded<R>>,
    part: &RowGroupMetaData,
    (names, places): ([&'static str; N], [usize; N]),
    mut before: u64,
    take: &mut impl FnMut(Row<N>) -> Result<(), Wrong>,
) -> Result<(), Wrong> {
    let mut left = part.num_rows() as usize;
    let mut columns = Vec::with_capacity(N);
    for (name, place) in names.into_iter().zip(places) {
        columns.push(Column::new(file, part.column(place), left, name)?);
    }
    while left > 0 {
        let batch = left.min(BATCH);
        for column in &mut columns {
            column.read(batch, before)?;
        }
        for row in 0..batch {
            let number = before + row as u64 + 1;
            take(Row {
                numbers: std::array::from_fn(|column| columns[column].read[row]),
                names,
                number,
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

/// Where the column of a name is, if it has whole numbers.
fn find(schema: &SchemaDescriptor, name: &'static str) -> Result<usize, Wrong> {
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
    let is_number = matches!(column.physical_type(), Type::INT32 | Type::INT64)
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
        };
    if !is_number || column.max_rep_level() > 0 {
        let is = column.logical_type_ref().map_or_else(
            || column.physical_type().to_string(),
            |logical| format!("{logical:?}"),
        );
        let what = format!("is of type {is}: write whole numbers, INT64");
        return Err(Wrong::column(name, what));
    }
    Ok(place)
}

/// A part of a column, as it is read.
struct Column {
    name: &'static str,
    numbers: ColumnReader,
    is_unsigned: bool,
    /// Whether a row may be without a number.
    has_levels: bool,
    /// What was read last.
    read: Vec<i128>,
}

impl Column {
    fn new<R: ChunkReader + 'static>(
        file: &Arc<Bounded<R>>,
        part: &ColumnChunkMetaData,
        rows: usize,
        name: &'static str,
    ) -> Result<Self, Wrong> {
        let about = part.column_descr_ptr();
        let width = if about.physical_type() == Type::INT32 {
            4
        } else {
            8
        };
        let pages = Pages::new(file, part, rows, width).map_err(|error| failed(name, &error))?;
        let is_unsigned = match about.logical_type_ref() {
            Some(LogicalType::Integer(it)) => !it.is_signed,
            _ => false,
        };
        Ok(Self {
            name,
            is_unsigned,
            has_levels: about.max_def_level() > 0,
            numbers: get_column_reader(about, Box::new(pages)),
            read: Vec::new(),
        })
    }

    /// Reads so many rows, of which that many are `before`.
    fn read(&mut self, rows: usize, before: u64) -> Result<(), Wrong> {
        let is_unsigned = self.is_unsigned;
        let read = match &mut self.numbers {
            ColumnReader::Int32ColumnReader(reader) => batch(reader, rows, self.has_levels, |it| {
                if is_unsigned {
                    (it as u32).into()
                } else {
                    it.into()
                }
            }),
            ColumnReader::Int64ColumnReader(reader) => batch(reader, rows, self.has_levels, |it| {
                if is_unsigned {
                    (it as u64).into()
                } else {
                    it.into()
                }
            }),
            _ => unreachable!("`find` takes INT32 and INT64 alone"),
        };
        let name = self.name;
        match read.map_err(|error| failed(name, &error))? {
            Batch::Whole(read) if read.len() == rows => {
                self.read = read;
                Ok(())
            }
            Batch::Whole(read) => Err(Wrong {
                row: Some(before + read.len() as u64 + 1),
                column: Some(name),
                what: "is missing: the column is shorter than the table".to_owned(),
            }),
            Batch::Null(row) => Err(Wrong {
                row: Some(before + row as u64 + 1),
                column: Some(name),
                what: "is null: write a number".to_owned(),
            }),
        }
    }
}

/// Rows that were read, or which of them has nothing.
enum Batch {
    Whole(Vec<i128>),
    Null(usize),
}

fn batch<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    has_levels: bool,
    number: impl Fn(T::T) -> i128,
) -> Result<Batch, ParquetError> {
    let (mut levels, mut numbers) = (Vec::new(), Vec::new());
    let mut records = 0;
    while records < rows {
        let levels = has_levels.then_some(&mut levels);
        let (read, ..) = reader.read_records(rows - records, levels, None, &mut numbers)?;
        if read == 0 {
            break;
        }
        records += read;
    }
    if let Some(null) = levels.iter().position(|level| *level == 0) {
        return Ok(Batch::Null(null));
    }
    Ok(Batch::Whole(numbers.into_iter().map(number).collect()))
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
