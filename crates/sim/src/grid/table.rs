//! Every figure of every row, as a table: CSV and Parquet.

use super::{Manifest, Row};
use crate::columnar::{self, Column};
use tailbound_report::Statistic;

/// A figure of a row.
struct Line<'r> {
    row: &'r Row,
    variant: &'r str,
    figure: String,
    unit: &'r str,
    /// The figure; `None` if it could not be computed.
    value: Option<f64>,
}

fn lines(rows: &[Row]) -> impl Iterator<Item = Line<'_>> {
    let variants = rows
        .iter()
        .flat_map(|row| row.results.variants.iter().map(move |it| (row, it)));
    variants.flat_map(|(row, variant)| {
        let values = variant.values.iter();
        let values = values.map(|(name, it)| (name.clone(), &it.unit, it.value));
        let series = variant.series.iter().flat_map(|(name, series)| {
            Statistic::ALL.into_iter().map(move |statistic| {
                let figure = format!("{name}.{}", statistic.key());
                (figure, &series.unit, series.stats.get(statistic) as f64)
            })
        });
        values.chain(series).map(move |(figure, unit, value)| Line {
            row,
            variant: &variant.name,
            figure,
            unit,
            value: value.is_finite().then_some(value),
        })
    })
}

/// Returns every figure of every row as CSV: a line each, with the varied values.
///
/// # Panics
/// Never: all rows have the same length, and memory takes every write.
pub(super) fn csv(manifest: &Manifest, rows: &[Row]) -> Vec<u8> {
    write(manifest, rows).expect("rows of the same length, into memory")
}

fn write(manifest: &Manifest, rows: &[Row]) -> csv::Result<Vec<u8>> {
    let mut writer = csv::WriterBuilder::new();
    let mut table = Vec::new();
    let mut writer = writer.has_headers(false).from_writer(&mut table);
    let keys = manifest.keys.iter().map(String::as_str);
    let heads = ["point", "repetition", "seed"].into_iter().chain(keys);
    writer.write_record(heads.chain(["variant", "figure", "unit", "value"]))?;
    for line in lines(rows) {
        let planned = &manifest.points[line.row.point];
        let value = line.value.map(|value| value.to_string());
        writer.serialize((
            (line.row.point, planned.repetition, planned.seed),
            &planned.settings,
            // A figure that could not be computed is empty.
            (line.variant, line.figure, line.unit, value),
        ))?;
    }
    writer.flush()?;
    drop(writer);
    Ok(table)
}

/// Returns the table as Parquet: `point`, `repetition` and `seed` are INT64, `value` is a DOUBLE
/// that is null if it could not be computed, all other columns are text.
pub(super) fn parquet(manifest: &Manifest, rows: &[Row]) -> Vec<u8> {
    let numbers = |of: &dyn Fn(&Row) -> u64| {
        // A seed of 2^63 or more is the negative number of the same bits.
        Column::Numbers(lines(rows).map(|line| of(line.row).cast_signed()).collect())
    };
    let texts = |of: &dyn Fn(Line<'_>) -> String| Column::Texts(lines(rows).map(of).collect());
    let planned = |row: &Row| &manifest.points[row.point];
    let mut columns = vec![
        ("point".to_owned(), numbers(&|row| row.point as u64)),
        (
            "repetition".to_owned(),
            numbers(&|row| planned(row).repetition.into()),
        ),
        ("seed".to_owned(), numbers(&|row| planned(row).seed)),
    ];
    for (at, key) in manifest.keys.iter().enumerate() {
        let setting = texts(&|line| planned(line.row).settings[at].clone());
        columns.push((key.clone(), setting));
    }
    let value = Column::Figures(lines(rows).map(|line| line.value).collect());
    columns.extend([
        ("variant".to_owned(), texts(&|line| line.variant.to_owned())),
        ("figure".to_owned(), texts(&|line| line.figure)),
        ("unit".to_owned(), texts(&|line| line.unit.to_owned())),
        ("value".to_owned(), value),
    ]);
    columnar::table(&columns)
}
