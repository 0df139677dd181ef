//! Tables of our own: the same bytes for the same table.

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};
use std::sync::Arc;

/// What a column has, a value a row.
#[derive(Debug)]
pub(crate) enum Column {
    Numbers(Vec<i64>),
    Texts(Vec<String>),
    /// Of which some could not be computed.
    Measured(Vec<Option<f64>>),
}

impl Column {
    fn field(&self, name: &str) -> Result<TypePtr> {
        let (of, repetition, logical) = match self {
            Self::Numbers(_) => (Physical::INT64, Repetition::REQUIRED, None),
            Self::Texts(_) => {
                let text = Some(LogicalType::String);
                (Physical::BYTE_ARRAY, Repetition::REQUIRED, text)
            }
            Self::Measured(_) => (Physical::DOUBLE, Repetition::OPTIONAL, None),
        };
        let field = Type::primitive_type_builder(name, of);
        let field = field.with_repetition(repetition).with_logical_type(logical);
        Ok(Arc::new(field.build()?))
    }
}

/// A file of one table, columns of the same length.
pub(crate) fn table(columns: &[(String, Column)]) -> Vec<u8> {
    write(columns).expect("columns of the same length, into memory")
}

fn write(columns: &[(String, Column)]) -> Result<Vec<u8>> {
    let fields = columns.iter().map(|(name, column)| column.field(name));
    let fields = fields.collect::<Result<_>>()?;
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
                writer
                    .typed::<Int64Type>()
                    .write_batch(numbers, None, None)?;
            }
            Column::Texts(texts) => {
                let texts: Vec<_> = texts
                    .iter()
                    .map(|it| ByteArray::from(it.as_str()))
                    .collect();
                writer
                    .typed::<ByteArrayType>()
                    .write_batch(&texts, None, None)?;
            }
            Column::Measured(values) => {
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
