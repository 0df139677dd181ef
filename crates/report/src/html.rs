//! A run as one page: no script, no external resource, light and dark.
//!
//! All text from the results goes through [`escape`], and the page forbids scripts and requests to
//! itself, so a file from another source can be rendered and opened.

use crate::chart_plot::chart_svg;
use crate::error::ReportError;
use crate::plot::{LEAST_FOR_TAIL, View, distribution_svg};
use crate::results::{CheckResult, Results, Series, Variant, Verdict};
use crate::stats::{Statistic, Stats};
use crate::summary::{carried, figure, missing};
use crate::text::{NOTHING, human, plain};
use std::fmt::Write as _;

const STYLE: &str = include_str!("page.css");

/// Writes to a `String`, which does not fail.
macro_rules! put {
    ($out:expr, $($arguments:tt)*) => {
        let _ = writeln!($out, $($arguments)*);
    };
}

/// Returns the page of a run: verdict, checks, charts, each series with its pictures,
/// values, conditions.
///
/// # Errors
/// A histogram is damaged.
pub fn page(results: &Results) -> Result<String, ReportError> {
    let mut out = String::new();
    results.head(&mut out);
    // The picture of the main series is before everything else.
    let names = results.series_names();
    if let Some(first) = names.first() {
        results.picture(&mut out, first, View::Percentiles)?;
    }
    results.checks(&mut out);
    results.charts(&mut out)?;
    for (index, name) in names.into_iter().enumerate() {
        results.series(&mut out, name, index > 0)?;
    }
    results.values(&mut out);
    results.conditions(&mut out);
    put!(
        out,
        "<footer>All of this, histograms included, is in {}.json beside this page. \
         Made by tailbound {}.</footer>\n</body>\n</html>",
        escape(&results.experiment),
        env!("CARGO_PKG_VERSION")
    );
    Ok(out)
}

impl Results {
    fn head(&self, out: &mut String) {
        let (name, title) = (escape(&self.experiment), escape(&self.title));
        put!(
            out,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" \
             content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{} {name}: {title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>",
            self.verdict
        );
        let class = match self.verdict {
            Verdict::Pass => "pass",
            Verdict::Fail => "fail",
            Verdict::Noisy | Verdict::NotTested => "noisy",
        };
        put!(
            out,
            "<h1>{name}: {title}</h1>\n<p class=\"soft\">{}</p>\n\
             <div class=\"verdict\"><span class=\"badge {class}\">{}</span> <span>{}</span></div>",
            escape(&self.source),
            self.verdict,
            escape(&self.verdict_reason)
        );
        if let Some(sentence) = &self.sentence {
            put!(out, "<p>{}</p>", escape(sentence));
        }
    }

    fn checks(&self, out: &mut String) {
        if self.checks.is_empty() {
            return;
        }
        put!(
            out,
            "<h2>Checks</h2>\n<div class=\"wide\"><table>\n<thead><tr><th>check</th><th>want</th>\
             <th>got</th><th>result</th><th>source</th></tr></thead>\n<tbody>"
        );
        for check in &self.checks {
            check_row(out, check);
        }
        put!(out, "</tbody></table></div>");
    }

    fn charts(&self, out: &mut String) -> Result<(), ReportError> {
        if self.charts.is_empty() {
            return Ok(());
        }
        put!(out, "<h2>Charts</h2>");
        for chart in &self.charts {
            put!(out, "<figure>\n{}</figure>", chart_svg(chart)?);
            if let Some(note) = &chart.note {
                put!(out, "<p class=\"note\">{}</p>", escape(note));
            }
        }
        Ok(())
    }

    /// Writes a series; `with_percentiles` unless the top of the page has that picture.
    fn series(
        &self,
        out: &mut String,
        name: &str,
        with_percentiles: bool,
    ) -> Result<(), ReportError> {
        let label = self.label(name);
        put!(out, "<h2>{}</h2>", escape(label));
        if label != name {
            let name = escape(name);
            put!(out, "<p class=\"note\">Its name in the file is {name}.</p>");
        }
        if with_percentiles {
            self.picture(out, name, View::Percentiles)?;
        }
        put!(
            out,
            "<div class=\"wide\"><table class=\"figures\">\n<thead><tr><th>variant</th>"
        );
        for label in Statistic::ALL.map(Statistic::label) {
            put!(out, "<th>{label}</th>");
        }
        put!(
            out,
            "<th>unanswered</th><th>unexplained</th><th>disturbed: ours</th><th>hypervisor</th></tr></thead>\n<tbody>"
        );
        for variant in &self.variants {
            match variant.series.get(name) {
                Some(series) => series_rows(out, &self.head_of(variant), series),
                None => remark(
                    out,
                    &self.head_of(variant),
                    variant,
                    Statistic::ALL.len() + 4,
                ),
            }
        }
        put!(
            out,
            "</tbody></table></div>\n<p class=\"note\">Disturbed: samples beside time in which the \
             measurement had no CPU, late or not, by cause: the test's own processes (ours) or the \
             hypervisor (stolen). The figures are without them, the row below a variant has all \
             samples, and a check is judged on both. Unexplained: late and not disturbed, the \
             mechanism's own tail. Unanswered requests are in no figure.{}</p>",
            if self.has_spread(name) {
                " Figures are medians over the repeats, with least and greatest below."
            } else {
                ""
            }
        );
        self.bounds(out, name);
        if self.has_tail(name) {
            self.picture(out, name, View::Tail)?;
        }
        self.picture(out, name, View::Full)
    }

    /// Writes the bounds of a series, and the share of samples above them.
    fn bounds(&self, out: &mut String, name: &str) {
        if !self.has_bounds(name) {
            return;
        }
        put!(
            out,
            "<div class=\"wide\"><table class=\"figures\">\n<thead><tr><th>variant</th><th>bound</th>\
             <th>at</th><th>p99.9</th><th>samples above</th></tr></thead>\n<tbody>"
        );
        for [variant, cells @ ..] in self.bound_rows(name) {
            put!(out, "<tr><th>{}</th>", escape(self.label(&variant)));
            for cell in cells {
                put!(out, "<td>{}</td>", escape(&cell));
            }
            put!(out, "</tr>");
        }
        put!(out, "</tbody></table></div>");
    }

    /// Returns true if a variant has enough samples of a series for a picture of its slowest tenth.
    fn has_tail(&self, name: &str) -> bool {
        let mut series = self
            .variants
            .iter()
            .filter_map(|variant| variant.series.get(name));
        series.any(|series| series.stats.count >= LEAST_FOR_TAIL)
    }

    /// Returns the head of a variant's row: its label, with its name as a tooltip.
    fn head_of(&self, variant: &Variant) -> String {
        let label = escape(self.label(&variant.name));
        if label == escape(&variant.name) {
            return format!("<th>{label}</th>");
        }
        format!("<th title=\"{}\">{label}</th>", escape(&variant.name))
    }

    fn has_spread(&self, name: &str) -> bool {
        let mut series = self
            .variants
            .iter()
            .filter_map(|variant| variant.series.get(name));
        series.any(|series| series.spread.is_some())
    }

    fn picture(&self, out: &mut String, name: &str, view: View) -> Result<(), ReportError> {
        put!(
            out,
            "<figure>\n{}</figure>",
            distribution_svg(self, name, view)?
        );
        Ok(())
    }

    fn values(&self, out: &mut String) {
        let names = self.value_names();
        if names.is_empty() {
            return;
        }
        put!(
            out,
            "<h2>Values</h2>\n<div class=\"wide\"><table class=\"figures\">\n<thead><tr><th>variant</th>"
        );
        for name in &names {
            put!(out, "<th>{}</th>", escape(self.label(name)));
        }
        put!(out, "</tr></thead>\n<tbody>");
        for variant in &self.variants {
            if variant.values.is_empty() {
                remark(out, &self.head_of(variant), variant, names.len());
                continue;
            }
            put!(out, "<tr>{}", self.head_of(variant));
            for name in &names {
                let Some(value) = variant.values.get(*name) else {
                    put!(out, "<td>{NOTHING}</td>");
                    continue;
                };
                let shown = |figure| escape(&human(figure, &value.unit));
                let spread = value.spread.map(|ends| ends.map(shown));
                put!(out, "<td>{}{}</td>", shown(value.value), range(spread));
            }
            put!(out, "</tr>");
        }
        put!(out, "</tbody></table></div>");
    }

    fn conditions(&self, out: &mut String) {
        put!(
            out,
            "<h2>Conditions</h2>\n<div class=\"wide\"><table>\n<tbody>\n<tr><th>seed</th><td>{}</td></tr>",
            self.seed
        );
        if let Some(made) = &self.made {
            put!(
                out,
                "<tr><th>made</th><td>{}</td></tr>",
                escape(&made.words())
            );
        }
        for (key, value) in &self.conditions {
            put!(
                out,
                "<tr><th>{}</th><td class=\"long\">{}</td></tr>",
                escape(key),
                escape(&plain(value))
            );
        }
        put!(out, "</tbody></table></div>");
    }
}

fn check_row(out: &mut String, check: &CheckResult) {
    let result = check.outcome();
    // Classes of the style sheet; NOT TESTED has no colour.
    let class = result.to_string().to_ascii_lowercase();
    let got = check
        .got
        .map_or_else(|| NOTHING.into(), |got| human(got, ""));
    let note = check.remark().map_or_else(String::new, |note| {
        format!("<span class=\"spread\">{}</span>", escape(note))
    });
    put!(
        out,
        "<tr><th>{}</th><td>{}</td><td>{got}</td><td class=\"{class}\">{result}</td>\
         <td class=\"long\">{}{note}</td></tr>",
        escape(&check.name),
        escape(&check.want),
        escape(&check.source)
    );
}

/// Writes a variant's figures, and below them those with the disturbed samples.
fn series_rows(out: &mut String, head: &str, series: &Series) {
    put!(out, "<tr>{head}");
    for statistic in Statistic::ALL {
        let shown = |value| escape(&figure(value, statistic, &series.unit));
        let spread = series
            .spread
            .as_ref()
            .and_then(|spread| spread.get(statistic.key()))
            .filter(|_| statistic.is_carried_by(series.stats.count))
            .map(|ends| ends.map(shown));
        put!(
            out,
            "<td>{}{}</td>",
            escape(&carried(&series.stats, statistic, &series.unit)),
            range(spread)
        );
    }
    put!(
        out,
        "<td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
        series.unanswered,
        series.unexplained,
        series.hit.ours,
        series.hit.stolen
    );
    if series.hit.total() > 0 {
        put!(out, "<tr class=\"soft\"><td>disturbed included</td>");
        all_cells(out, &series.all, &series.unit);
        put!(out, "<td></td><td></td><td></td><td></td></tr>");
    }
}

fn all_cells(out: &mut String, stats: &Stats, unit: &str) {
    for statistic in Statistic::ALL {
        put!(out, "<td>{}</td>", escape(&carried(stats, statistic, unit)));
    }
}

fn remark(out: &mut String, head: &str, variant: &Variant, columns: usize) {
    put!(
        out,
        "<tr class=\"soft\">{head}<td class=\"remark\" colspan=\"{columns}\">{}</td></tr>",
        escape(&missing(variant))
    );
}

fn range(ends: Option<[String; 2]>) -> String {
    ends.map_or_else(String::new, |[least, greatest]| {
        format!("<span class=\"spread\">{least} to {greatest}</span>")
    })
}

/// Returns the text for an element or a quoted attribute.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}
