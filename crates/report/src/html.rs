//! A run as one page: no script, no external resource, light and dark.
//!
//! All text from the results goes through [`escape`], and the page forbids scripts and requests to
//! itself, so a file from another source can be rendered and opened.

use crate::chart_plot::chart_svg;
use crate::error::ReportError;
use crate::plot::{LEAST_FOR_TAIL, View, distribution_svg};
use crate::results::{CheckResult, Results, Series, Variant, Verdict};
use crate::stats::Statistic;
use crate::summary::{carried, figure, figures, missing};
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
        put!(out, "<h2>Checks</h2>");
        let head = ["check", "want", "got", "result", "source"].map(str::to_owned);
        table(out, "", head, |out| {
            self.checks.iter().for_each(|check| check_row(out, check));
        });
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
        let labels = Statistic::ALL.map(Statistic::label).into_iter();
        let noise = ["unanswered", "unexplained", "disturbed: ours", "hypervisor"];
        let head = std::iter::once("variant").chain(labels).chain(noise);
        table(out, FIGURES, head.map(str::to_owned), |out| {
            for variant in &self.variants {
                let head = self.head_of(variant);
                match variant.series.get(name) {
                    Some(series) => series_rows(out, &head, series),
                    None => remark(out, &head, variant, Statistic::ALL.len() + noise.len()),
                }
            }
        });
        put!(
            out,
            "<p class=\"note\">Disturbed: samples beside time in which the \
             measurement had no CPU, late or not, by cause: the test's own processes (ours) or the \
             hypervisor (stolen). The figures are without them, the row below a variant has all \
             samples, and a check is judged on both. Unexplained: late and not disturbed, the \
             mechanism's own tail. Unanswered requests are in no figure.{}</p>",
            if self.any_series(name, |series| series.spread.is_some()) {
                " Figures are medians over the repeats, with least and greatest below."
            } else {
                ""
            }
        );
        self.bounds(out, name);
        if self.any_series(name, |series| series.stats.count >= LEAST_FOR_TAIL) {
            self.picture(out, name, View::Tail)?;
        }
        self.picture(out, name, View::Full)
    }

    /// Writes the bounds of a series, and the share of samples above them.
    fn bounds(&self, out: &mut String, name: &str) {
        if !self.has_bounds(name) {
            return;
        }
        let head = ["variant", "bound", "at", "p99.9", "samples above"].map(str::to_owned);
        table(out, FIGURES, head, |out| {
            for [variant, cells @ ..] in self.bound_rows(name) {
                let head = format!("<th>{}</th>", escape(self.label(&variant)));
                row(out, &head, cells.map(|cell| escape(&cell)));
            }
        });
    }

    /// Returns whether a series of that name in any variant satisfies `is_so`.
    fn any_series(&self, name: &str, is_so: impl Fn(&Series) -> bool) -> bool {
        let mut variants = self.variants.iter();
        variants.any(|variant| variant.series.get(name).is_some_and(&is_so))
    }

    /// Returns the head of a variant's row: its label, with its name as a tooltip.
    fn head_of(&self, variant: &Variant) -> String {
        let label = escape(self.label(&variant.name));
        if label == escape(&variant.name) {
            return format!("<th>{label}</th>");
        }
        format!("<th title=\"{}\">{label}</th>", escape(&variant.name))
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
        put!(out, "<h2>Values</h2>");
        let labels = names.iter().map(|name| escape(self.label(name)));
        let head = std::iter::once("variant".to_owned()).chain(labels);
        table(out, FIGURES, head, |out| {
            for variant in &self.variants {
                let head = self.head_of(variant);
                if variant.values.is_empty() {
                    remark(out, &head, variant, names.len());
                    continue;
                }
                let cell = |name: &&str| {
                    let Some(value) = variant.values.get(*name) else {
                        return NOTHING.to_owned();
                    };
                    let shown = |figure| escape(&human(figure, &value.unit));
                    let spread = value.spread.map(|ends| ends.map(shown));
                    shown(value.value) + &range(spread)
                };
                row(out, &head, names.iter().map(cell));
            }
        });
    }

    fn conditions(&self, out: &mut String) {
        put!(out, "<h2>Conditions</h2>");
        table(out, "", [], |out| {
            put!(out, "<tr><th>seed</th><td>{}</td></tr>", self.seed);
            if let Some(made) = &self.made {
                let words = escape(&made.words());
                put!(out, "<tr><th>made</th><td>{words}</td></tr>");
            }
            for (key, value) in &self.conditions {
                let (key, value) = (escape(key), escape(&plain(value)));
                put!(
                    out,
                    "<tr><th>{key}</th><td class=\"long\">{value}</td></tr>"
                );
            }
        });
    }
}

/// The class of tables of figures.
const FIGURES: &str = " class=\"figures\"";

/// Writes a table with these escaped heads, if there are any, and the rows that `rows` writes.
fn table(
    out: &mut String,
    class: &str,
    head: impl IntoIterator<Item = String>,
    rows: impl FnOnce(&mut String),
) {
    put!(out, "<div class=\"wide\"><table{class}>");
    let head = head.into_iter().map(|cell| format!("<th>{cell}</th>"));
    let head: String = head.collect();
    if !head.is_empty() {
        put!(out, "<thead><tr>{head}</tr></thead>");
    }
    put!(out, "<tbody>");
    rows(out);
    put!(out, "</tbody></table></div>");
}

/// Writes a row with this head and these escaped cells.
fn row(out: &mut String, head: &str, cells: impl IntoIterator<Item = String>) {
    let cells = cells.into_iter().map(|cell| format!("<td>{cell}</td>"));
    put!(out, "<tr>{head}{}</tr>", cells.collect::<String>());
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
    let unit = &series.unit;
    let cell = |statistic: Statistic| {
        let shown = |value| escape(&figure(value, statistic, unit));
        let spread = series.spread.as_ref();
        let spread = spread
            .and_then(|spread| spread.get(statistic.key()))
            .filter(|_| statistic.is_carried_by(series.stats.count))
            .map(|ends| ends.map(shown));
        escape(&carried(&series.stats, statistic, unit)) + &range(spread)
    };
    let counts = [
        series.unanswered,
        series.unexplained,
        series.hit.ours,
        series.hit.stolen,
    ];
    let counts = counts.map(|count| count.to_string());
    row(
        out,
        head,
        Statistic::ALL.map(cell).into_iter().chain(counts),
    );
    if series.hit.total() > 0 {
        let all = figures(&series.all, unit).map(|cell| format!("<td>{}</td>", escape(&cell)));
        put!(
            out,
            "<tr class=\"soft\"><td>disturbed included</td>{}{}</tr>",
            all.concat(),
            "<td></td>".repeat(4)
        );
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
