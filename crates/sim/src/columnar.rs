//! Tables of results as Parquet files, with a column for each part of a row.

#[cfg(test)]
mod tests;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::Result as ParquetResult;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use std::sync::Arc;

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
