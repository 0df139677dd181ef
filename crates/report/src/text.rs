//! Figures in readable form, and tables with aligned columns.

use std::fmt::Write as _;

/// Placeholder for a missing figure.
pub const NOTHING: &str = "-";

/// Returns `value` of `unit` with three significant digits and a fitting prefix: "12.3 ms", "93.1
/// Mbit/s", "1.50 MB", "42 op/s".
pub fn human(value: f64, unit: &str) -> String {
    if !value.is_finite() {
        return NOTHING.into();
    }
    let (scale, name) = prefix(value, unit);
    format!("{} {name}", digits(value / scale))
        .trim_end()
        .to_owned()
}

/// Returns the divisor and the name of the unit with a prefix that fits `value`.
pub(crate) fn prefix(value: f64, unit: &str) -> (f64, &str) {
    let steps: &[(f64, &str)] = match unit {
        "ns" => &[(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")],
        "bit/s" => &[
            (1e9, "Gbit/s"),
            (1e6, "Mbit/s"),
            (1e3, "kbit/s"),
            (1.0, "bit/s"),
        ],
        "B" => &[(1e9, "GB"), (1e6, "MB"), (1e3, "KB"), (1.0, "B")],
        _ => return (1.0, unit),
    };
    // A value that would round up to 1000 of a step belongs to the next one.
    let fits = |step: &&(f64, &str)| value.abs() >= step.0 * 0.9995;
    let step = steps.iter().find(fits).or(steps.last());
    step.copied().unwrap_or((1.0, unit))
}

/// Returns three significant digits; whole numbers stay whole.
pub(crate) fn digits(value: f64) -> String {
    let size = value.abs();
    if value.fract() == 0.0 && size < 1e15 {
        return format!("{value:.0}");
    }
    let decimals = match size {
        _ if size >= 99.95 => 0,
        _ if size >= 9.995 => 1,
        _ if size >= 0.9995 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// Returns the label of an axis' tick: no unit, and no trailing zeros.
pub(crate) fn tick(value: f64) -> String {
    let size = value.abs();
    let text = if size > 0.0 && size < 0.1 && size > 1e-9 {
        // One digit more than the first that is not zero.
        let decimals = (-size.log10()).ceil() as usize + 1;
        format!("{value:.decimals$}")
    } else {
        digits(value)
    };
    if text.contains('.') {
        let text = text.trim_end_matches('0').trim_end_matches('.');
        return text.to_owned();
    }
    text
}

/// Returns `label (unit)`, or one of them if the other is empty.
pub(crate) fn with_unit(label: &str, unit: &str) -> String {
    match (label, unit) {
        (label, "") => label.to_owned(),
        ("", unit) => unit.to_owned(),
        (label, unit) => format!("{label} ({unit})"),
    }
}

/// Returns the ratio as "0.42x"; [`NOTHING`] without a ratio.
pub(crate) fn ratio(value: Option<f64>) -> String {
    match value {
        Some(value) if value.is_finite() => format!("{}x", digits(value)),
        _ => NOTHING.into(),
    }
}

/// Returns a JSON value on one line, text without its quotes.
pub(crate) fn plain(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Colours of a terminal, or none.
#[derive(Debug, Clone, Copy)]
pub struct Paint(pub bool);

impl Paint {
    /// Paints a good result: green.
    pub fn good(self, text: &str) -> String {
        self.wrap("32;1", text)
    }
    /// Paints a bad result: red.
    pub fn bad(self, text: &str) -> String {
        self.wrap("31;1", text)
    }
    /// Paints a doubtful result: yellow.
    pub fn doubtful(self, text: &str) -> String {
        self.wrap("33;1", text)
    }
    /// Paints an emphasis: bold.
    pub fn strong(self, text: &str) -> String {
        self.wrap("1", text)
    }
    fn wrap(self, code: &str, text: &str) -> String {
        if self.0 {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.into()
        }
    }
}

/// A table of text: the first column and those in `left` are left-aligned, the others
/// right-aligned. Cells have no colours, so that widths are true.
#[derive(Debug)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Row>,
    left: Vec<usize>,
}

#[derive(Debug)]
enum Row {
    Cells(Vec<String>),
    /// A name, and a text across all other columns.
    Remark(String, String),
}

impl Table {
    /// Returns a table with these heads; the columns in `left` are left-aligned, like the first.
    pub fn new(head: &[&str], left: &[usize]) -> Self {
        Self {
            head: head.iter().map(|&cell| one_line(cell)).collect(),
            rows: Vec::new(),
            left: left.to_vec(),
        }
    }

    /// Adds a row of cells.
    pub fn row<S: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let cells = cells.into_iter().map(|cell| one_line(cell.as_ref()));
        self.rows.push(Row::Cells(cells.collect()));
    }

    /// Adds a row with a name and a text across all other columns.
    pub fn remark(&mut self, name: &str, text: &str) {
        self.rows.push(Row::Remark(one_line(name), one_line(text)));
    }

    /// Returns the table, a line for each row, with a newline after the last.
    pub fn render(&self, paint: Paint) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| match row {
                Row::Cells(cells) => cells.get(column),
                Row::Remark(name, _) => (column == 0).then_some(name),
            });
            cells
                .chain(self.head.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let line = |cells: &[String]| {
            let mut line = String::new();
            for (column, (cell, &width)) in cells.iter().zip(&widths).enumerate() {
                let gap = if column == 0 { "" } else { "  " };
                // Writing to a String does not fail.
                let _ = if column == 0 || self.left.contains(&column) {
                    write!(line, "{gap}{cell:<width$}")
                } else {
                    write!(line, "{gap}{cell:>width$}")
                };
            }
            line.truncate(line.trim_end().len());
            line
        };
        let mut out = paint.strong(&line(&self.head));
        for row in &self.rows {
            out.push('\n');
            match row {
                Row::Cells(cells) => out += &line(cells),
                Row::Remark(name, text) => {
                    let _ = write!(out, "{name:<0$}  {text}", widths[0]);
                }
            }
        }
        out.push('\n');
        out
    }
}

/// Returns `text` with control characters replaced by spaces: they could break a line, or control a
/// terminal.
pub fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_fitting_unit() {
        for (value, unit, text) in [
            (0.0, "ns", "0 ns"),
            (999.0, "ns", "999 ns"),
            (1_000.0, "ns", "1 us"),
            (12_345.0, "ns", "12.3 us"),
            (999_960.0, "ns", "1.00 ms"),
            (4_560_000.0, "ns", "4.56 ms"),
            (61_000_000_000.0, "ns", "61 s"),
            (93_120_000.0, "bit/s", "93.1 Mbit/s"),
            (1500.0, "B", "1.50 KB"),
            (1234.56, "op/s", "1235 op/s"),
            (-0.25, "", "-0.250"),
            (f64::NAN, "op/s", "-"),
        ] {
            assert_eq!(human(value, unit), text);
        }
    }

    #[test]
    fn ticks_have_no_unit_and_no_zeros_at_the_end() {
        for (value, text) in [
            (0.0, "0"),
            (0.005, "0.005"),
            (0.05, "0.05"),
            (0.2, "0.2"),
            (2.0 / 10.0 + 0.1, "0.3"),
            (1.5, "1.5"),
            (500.0, "500"),
            (-20.0, "-20"),
        ] {
            assert_eq!(tick(value), text);
        }
        assert_eq!(with_unit("Time", "ms"), "Time (ms)");
        assert_eq!(with_unit("neighbours", ""), "neighbours");
    }

    #[test]
    fn a_table_lines_up_and_a_remark_runs_on() {
        let mut table = Table::new(&["name", "x", "note"], &[2]);
        table.row(["a", "1", "left"]);
        table.row(["longer", "1000", "b"]);
        table.remark("c", "not available: nothing");
        let expected = "\
name       x  note
a          1  left
longer  1000  b
c       not available: nothing
";
        assert_eq!(table.render(Paint(false)), expected);
    }

    #[test]
    fn terminal_escape_codes_in_files_are_removed() {
        assert_eq!(one_line("a\x1b[31m\nb"), "a [31m b");
    }
}
