//! Every figure of every row, as a table: CSV.

use super::{Manifest, Row};
use std::fmt::Write as _;
use tailbound_report::Statistic;

/// Every figure of every row: a line each, with what was varied.
pub fn csv(manifest: &Manifest, rows: &[Row]) -> String {
    let mut text = "point,repetition,seed".to_owned();
    for key in &manifest.keys {
        let _ = write!(text, ",{}", quoted(key));
    }
    text += ",variant,figure,unit,value\n";
    for row in rows {
        let planned = &manifest.points[row.point];
        let mut head = format!("{},{},{}", row.point, planned.repetition, planned.seed);
        for value in &planned.settings {
            let _ = write!(head, ",{}", quoted(value));
        }
        for variant in &row.results.variants {
            let mut line = |figure: &str, unit: &str, value: f64| {
                // Writing to a String does not fail.
                let name = quoted(&variant.name);
                let _ = write!(text, "{head},{name},{},{},", quoted(figure), quoted(unit));
                // One that could not be computed is empty.
                let _ = if value.is_finite() {
                    writeln!(text, "{value}")
                } else {
                    writeln!(text)
                };
            };
            for (name, value) in &variant.values {
                line(name, &value.unit, value.value);
            }
            for (name, series) in &variant.series {
                for statistic in Statistic::ALL {
                    let figure = format!("{name}.{}", statistic.key());
                    line(&figure, &series.unit, series.stats.get(statistic) as f64);
                }
            }
        }
    }
    text
}

/// A field as RFC 4180 has it.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
