//! A run in at most eight lines for a terminal: the verdict, one figure of each variant as a bar,
//! one sentence, the noise, and the page with the rest.

use crate::results::{CheckResult, Hit, Outcome, Results, Variant};
use crate::stats::Statistic;
use crate::text::{NOTHING, Paint, human, one_line};
use std::fmt::Write as _;
use std::path::Path;

/// Maximum of shown variants: with more, the last variant follows the first five.
const MAX_BARS: usize = 6;
/// Maximum of variants in one column; more variants have two columns.
const MAX_BARS_IN_A_COLUMN: usize = 3;
/// The width of all columns together.
const WIDTH: usize = 78;
/// The longest value is "1000 Mbit/s" with a space before it.
const VALUE_WIDTH: usize = 9;
/// Longest label, in columns; longer labels are cut.
const MAX_LABEL_WIDTH: usize = 19;
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// The characters of bars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bars {
    /// Unicode blocks, exact to an eighth of a character.
    Blocks,
    /// ASCII, for a locale without UTF-8.
    Ascii,
}

impl Bars {
    /// Returns a bar over `share` of `width` characters; a share above zero has at least one mark.
    fn bar(self, share: f64, width: usize) -> String {
        let length = share.clamp(0.0, 1.0) * width as f64;
        if self == Self::Ascii {
            let whole = if share > 0.0 { length.max(1.0) } else { 0.0 };
            return "#".repeat(whole.round() as usize);
        }
        let mut eighths = (length * 8.0).round() as usize;
        if share > 0.0 {
            eighths = eighths.max(1);
        }
        "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
    }
}

/// A variant's figure.
struct Bar<'r> {
    label: &'r str,
    value: u64,
    unit: &'r str,
}

impl Results {
    /// Returns the run in at most eight lines, and a line more for each failed check. `page` is the
    /// HTML page with everything else.
    pub fn brief(&self, paint: Paint, bars: Bars, page: &Path) -> String {
        let mut lines = vec![self.verdict_line(paint)];
        lines.extend(self.failed_lines());
        lines.extend(self.bar_lines(bars));
        lines.extend(self.sentence.as_deref().map(one_line));
        lines.extend(self.noise_line());
        lines.push(format!("report  {}", page.display()));
        lines.join("\n") + "\n"
    }

    fn verdict_line(&self, paint: Paint) -> String {
        format!(
            "{}  {}: {}",
            self.verdict.painted(paint),
            one_line(&self.experiment),
            self.counted_checks()
        )
    }

    /// Returns the number of checks by outcome, and why some were not tested.
    fn counted_checks(&self) -> String {
        let number = |outcome| self.with(outcome).count();
        let (held, failed) = (number(Outcome::Pass), number(Outcome::Fail));
        let mut parts = match (held, failed, held + failed) {
            _ if self.checks.is_empty() => vec!["it has no checks".to_owned()],
            (_, _, 0) => Vec::new(),
            (_, 0, 1) => vec!["its check holds".to_owned()],
            (_, 0, judged) => vec![format!("{held} of {judged} checks hold")],
            (_, failed, judged) => vec![format!("{failed} of {judged} checks failed")],
        };
        for (outcome, words) in [
            (Outcome::Misses, "known not to hold"),
            (Outcome::Noisy, "too disturbed to judge"),
            (Outcome::NotTested, "not tested"),
        ] {
            let mut checks = self.with(outcome);
            if let Some(first) = checks.next() {
                let number = 1 + checks.count();
                let why = first.remark().filter(|_| outcome != Outcome::Misses);
                let why = why.map(|why| format!(" ({})", one_line(why)));
                parts.push(format!("{number} {words}{}", why.unwrap_or_default()));
            }
        }
        // A check that needs such a variant has said so.
        if self.with(Outcome::NotTested).next().is_none() {
            parts.extend(not_run(&self.variants));
        }
        parts.join(", ")
    }

    fn with(&self, outcome: Outcome) -> impl Iterator<Item = &CheckResult> {
        self.checks.iter().filter(move |it| it.outcome() == outcome)
    }

    fn failed_lines(&self) -> Vec<String> {
        let line = |check: &CheckResult| {
            let got = check.got.map_or_else(|| NOTHING.into(), |it| human(it, ""));
            let (name, want) = (one_line(&check.name), one_line(&check.want));
            format!("failed  {name}: {got}, expected {want}")
        };
        self.with(Outcome::Fail).map(line).collect()
    }

    /// Returns a title, and the variants' bars: the furthest percentile of the series with the most
    /// samples that all variants have enough samples for.
    fn bar_lines(&self, bars: Bars) -> Vec<String> {
        let Some(name) = self.series_names().first().copied() else {
            return Vec::new();
        };
        let measured = |variant: &'_ Variant| variant.series.get(name).map(|it| it.stats.count);
        let counts = self.variants.iter().filter_map(measured);
        let least = counts.filter(|count| *count > 0).min();
        let Some(statistic) = least.and_then(Statistic::furthest) else {
            return Vec::new();
        };
        let mut chosen = self.bars(name, statistic);
        let left_out = chosen.len().saturating_sub(MAX_BARS);
        if left_out > 0 {
            chosen.drain(MAX_BARS - 1..chosen.len() - 1);
        }
        let more = match left_out {
            0 => String::new(),
            number => format!(" ({number} more variants are on the page)"),
        };
        let title = one_line(self.label(name));
        let mut lines = vec![format!("{title}, {}{more}:", statistic.words())];
        lines.extend(columns(&chosen, bars));
        lines
    }

    /// Returns a bar for each variant that has samples of the series.
    fn bars(&self, name: &str, statistic: Statistic) -> Vec<Bar<'_>> {
        let mut all = Vec::new();
        for variant in &self.variants {
            let series = variant.series.get(name);
            if let Some(series) = series.filter(|it| it.stats.count > 0) {
                all.push(Bar {
                    label: self.label(&variant.name),
                    value: series.stats.get(statistic),
                    unit: &series.unit,
                });
            }
        }
        all
    }

    /// Returns the share of disturbed samples and their causes; `None` if no sample was disturbed.
    fn noise_line(&self) -> Option<String> {
        let (mut hit, mut all) = (Hit::default(), 0);
        for series in self.variants.iter().flat_map(|it| it.series.values()) {
            hit.ours += series.hit.ours;
            hit.stolen += series.hit.stolen;
            all += series.all.count;
        }
        if hit.total() == 0 || all == 0 {
            return None;
        }
        let mut causes = Vec::new();
        for (number, cause) in [
            (hit.stolen, "by the hypervisor"),
            (hit.ours, "by the test's own processes"),
        ] {
            if number > 0 {
                causes.push(format!("{} {cause}", grouped(number)));
            }
        }
        let percent = hit.total() as f64 / all as f64 * 100.0;
        let share = if percent < 0.1 {
            "less than 0.1".to_owned()
        } else {
            format!("{percent:.1}")
        };
        Some(format!(
            "{share} % of the samples were disturbed and are left out: {}.",
            causes.join(", ")
        ))
    }
}

/// Returns the number of variants that did not run, and the first reason; `None` if all ran.
fn not_run(variants: &[Variant]) -> Option<String> {
    let mut reasons = variants.iter().filter_map(|it| it.unavailable.as_deref());
    let why = one_line(reasons.next()?);
    Some(match reasons.count() {
        0 => format!("1 variant did not run ({why})"),
        others => format!("{} variants did not run ({why})", others + 1),
    })
}

/// Returns the lines of bars in one or two columns, column by column.
fn columns(chosen: &[Bar<'_>], bars: Bars) -> Vec<String> {
    let number = if chosen.len() > MAX_BARS_IN_A_COLUMN {
        2
    } else {
        1
    };
    let rows = chosen.len().div_ceil(number);
    let largest = chosen.iter().map(|bar| bar.value).max().unwrap_or(0).max(1);
    let labels = chosen.iter().map(|bar| bar.label.chars().count()).max();
    let label_width = labels.unwrap_or(0).min(MAX_LABEL_WIDTH);
    let column_width = WIDTH / number;
    let bar_width = column_width - label_width - VALUE_WIDTH - 4;
    let cell = |bar: &Bar<'_>| {
        let label: String = one_line(bar.label).chars().take(label_width).collect();
        let drawn = bars.bar(bar.value as f64 / largest as f64, bar_width);
        let value = human(bar.value as f64, bar.unit);
        format!("  {label:<label_width$} {drawn} {value}")
    };
    let row = |row: usize| {
        let mut line = String::new();
        for bar in chosen.iter().skip(row).step_by(rows) {
            let gap = if line.is_empty() {
                0
            } else {
                column_width.saturating_sub(line.chars().count())
            };
            // Writing to a String does not fail.
            let _ = write!(line, "{:gap$}{}", "", cell(bar));
        }
        line
    };
    (0..rows).map(row).collect()
}

/// Returns a count with a comma between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_proportional_and_show_any_nonzero_share() {
        for (share, blocks, ascii) in [
            (1.0, "████", "####"),
            (0.5, "██", "##"),
            (0.28, "█▏", "#"),
            (0.001, "▏", "#"),
            (0.0, "", ""),
        ] {
            assert_eq!(Bars::Blocks.bar(share, 4), blocks, "{share}");
            assert_eq!(Bars::Ascii.bar(share, 4), ascii, "{share}");
        }
    }

    #[test]
    fn thousands_are_apart() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1135, "1,135"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }
}
