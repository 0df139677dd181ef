//! A run as one page: no script, no external resource, light and dark.
//!
//! The template escapes all text from the results, and the page forbids scripts and requests to
//! itself, so a file from another source can be rendered and opened. Only the style sheet and the
//! SVG pictures are inserted without escaping.

use crate::chart_plot::chart_svg;
use crate::error::ReportError;
use crate::plot::{LEAST_FOR_TAIL, View, distribution_svg};
use crate::results::{CheckResult, Results, Series, Variant, Verdict};
use crate::stats::Statistic;
use crate::summary::{carried, figure, missing};
use crate::text::{NOTHING, human, plain};
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("page.css");

/// Heads of a series' columns behind those of the statistics.
const COUNTS: [&str; 4] = ["unanswered", "unexplained", "disturbed: ours", "hypervisor"];

/// Returns the page of a run: verdict, checks, charts, each series with its pictures,
/// values, conditions.
///
/// # Errors
/// A histogram is damaged.
pub fn page(results: &Results) -> Result<String, ReportError> {
    let names = results.series_names();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (results.verdict) " " (results.experiment) ": " (results.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (results.head())
                // The picture of the main series is before everything else.
                @if let Some(first) = names.first() {
                    (results.picture(first, View::Percentiles)?)
                }
                (results.checks())
                (results.charts()?)
                @for (index, name) in names.iter().enumerate() {
                    (results.series(name, index > 0)?)
                }
                (results.values())
                (results.conditions())
                footer {
                    "All of this, histograms included, is in " (results.experiment)
                    ".json beside this page. Made by tailbound " (env!("CARGO_PKG_VERSION")) "."
                }
            }
        }
    };
    Ok(page.into_string())
}

impl Results {
    fn head(&self) -> Markup {
        let class = match self.verdict {
            Verdict::Pass => "pass",
            Verdict::Fail => "fail",
            Verdict::Noisy | Verdict::NotTested => "noisy",
        };
        html! {
            h1 { (self.experiment) ": " (self.title) }
            p.soft { (self.source) }
            div.verdict {
                span class={ "badge " (class) } { (self.verdict) }
                " "
                span { (self.verdict_reason) }
            }
            @if let Some(sentence) = &self.sentence {
                p { (sentence) }
            }
        }
    }

    fn checks(&self) -> Markup {
        let heads = ["check", "want", "got", "result", "source"];
        let rows = html! {
            @for check in &self.checks {
                (check_row(check))
            }
        };
        html! {
            @if !self.checks.is_empty() {
                h2 { "Checks" }
                (table(None, &heads, &rows))
            }
        }
    }

    fn charts(&self) -> Result<Markup, ReportError> {
        Ok(html! {
            @if !self.charts.is_empty() {
                h2 { "Charts" }
            }
            @for chart in &self.charts {
                figure { (PreEscaped(chart_svg(chart)?)) }
                @if let Some(note) = &chart.note {
                    p.note { (note) }
                }
            }
        })
    }

    /// Returns a series; `with_percentiles` unless the top of the page has that picture.
    fn series(&self, name: &str, with_percentiles: bool) -> Result<Markup, ReportError> {
        let label = self.label(name);
        let heads = [
            &["variant"][..],
            &Statistic::ALL.map(Statistic::label),
            &COUNTS,
        ]
        .concat();
        let rows = html! {
            @for variant in &self.variants {
                @match variant.series.get(name) {
                    Some(series) => (series_rows(&self.head_of(variant), series)),
                    None => (self.remark(variant, heads.len() - 1)),
                }
            }
        };
        Ok(html! {
            h2 { (label) }
            @if label != name {
                p.note { "Its name in the file is " (name) "." }
            }
            @if with_percentiles {
                (self.picture(name, View::Percentiles)?)
            }
            (table(Some("figures"), &heads, &rows))
            p.note {
                "Disturbed: samples beside time in which the measurement had no CPU, late or not, by \
                 cause: the test's own processes (ours) or the hypervisor (stolen). The figures are \
                 without them, the row below a variant has all samples, and a check is judged on both. \
                 Unexplained: late and not disturbed, the mechanism's own tail. Unanswered requests \
                 are in no figure."
                @if self.has_spread(name) {
                    " Figures are medians over the repeats, with least and greatest below."
                }
            }
            (self.bounds(name))
            @if self.has_tail(name) {
                (self.picture(name, View::Tail)?)
            }
            (self.picture(name, View::Full)?)
        })
    }

    /// Returns the bounds of a series, and the share of samples above them.
    fn bounds(&self, name: &str) -> Markup {
        let heads = ["variant", "bound", "at", "p99.9", "samples above"];
        let rows = html! {
            @for [variant, cells @ ..] in self.bound_rows(name) {
                tr {
                    th { (self.label(&variant)) }
                    @for cell in cells {
                        td { (cell) }
                    }
                }
            }
        };
        html! {
            @if self.has_bounds(name) {
                (table(Some("figures"), &heads, &rows))
            }
        }
    }

    /// Returns all results of a series.
    fn all_of<'r>(&'r self, name: &'r str) -> impl Iterator<Item = &'r Series> {
        let variants = self.variants.iter();
        variants.filter_map(move |variant| variant.series.get(name))
    }

    /// Returns true if a variant has enough samples of a series for a picture of its slowest tenth.
    fn has_tail(&self, name: &str) -> bool {
        let mut all = self.all_of(name);
        all.any(|series| series.stats.count >= LEAST_FOR_TAIL)
    }

    fn has_spread(&self, name: &str) -> bool {
        self.all_of(name).any(|series| series.spread.is_some())
    }

    /// Returns the head of a variant's row: its label, with its name as a tooltip.
    fn head_of(&self, variant: &Variant) -> Markup {
        let label = self.label(&variant.name);
        let name = (label != variant.name).then_some(&variant.name);
        html! {
            th title=[name] { (label) }
        }
    }

    /// Returns the row of a variant without figures.
    fn remark(&self, variant: &Variant, columns: usize) -> Markup {
        html! {
            tr.soft {
                (self.head_of(variant))
                td.remark colspan=(columns) { (missing(variant)) }
            }
        }
    }

    fn picture(&self, name: &str, view: View) -> Result<Markup, ReportError> {
        let svg = PreEscaped(distribution_svg(self, name, view)?);
        Ok(html! {
            figure { (svg) }
        })
    }

    fn values(&self) -> Markup {
        let names = self.value_names();
        let heads: Vec<_> = names.iter().map(|name| self.label(name)).collect();
        let heads = [&["variant"][..], &heads[..]].concat();
        let rows = html! {
            @for variant in &self.variants {
                @if variant.values.is_empty() {
                    (self.remark(variant, names.len()))
                } @else {
                    tr {
                        (self.head_of(variant))
                        @for name in &names {
                            (value_cell(variant, name))
                        }
                    }
                }
            }
        };
        html! {
            @if !names.is_empty() {
                h2 { "Values" }
                (table(Some("figures"), &heads, &rows))
            }
        }
    }

    fn conditions(&self) -> Markup {
        html! {
            h2 { "Conditions" }
            div.wide {
                table {
                    tbody {
                        tr { th { "seed" } td { (self.seed) } }
                        @if let Some(made) = &self.made {
                            tr { th { "made" } td { (made.words()) } }
                        }
                        @for (key, value) in &self.conditions {
                            tr { th { (key) } td.long { (plain(value)) } }
                        }
                    }
                }
            }
        }
    }
}

/// Returns a table that scrolls if it is too wide.
fn table(class: Option<&str>, heads: &[&str], rows: &Markup) -> Markup {
    html! {
        div.wide {
            table class=[class] {
                thead {
                    tr {
                        @for head in heads {
                            th { (head) }
                        }
                    }
                }
                tbody { (rows) }
            }
        }
    }
}

fn check_row(check: &CheckResult) -> Markup {
    let result = check.outcome();
    // Classes of the style sheet; NOT TESTED has no colour.
    let class = result.to_string().to_ascii_lowercase();
    let got = check.got.map(|got| human(got, ""));
    html! {
        tr {
            th { (check.name) }
            td { (check.want) }
            td { (got.as_deref().unwrap_or(NOTHING)) }
            td class=(class) { (result) }
            td.long {
                (check.source)
                @if let Some(note) = check.remark() {
                    span.spread { (note) }
                }
            }
        }
    }
}

/// Returns a variant's figures, and below them those with the disturbed samples.
fn series_rows(head: &Markup, series: &Series) -> Markup {
    let unit = &series.unit;
    let counts = [
        series.unanswered,
        series.unexplained,
        series.hit.ours,
        series.hit.stolen,
    ];
    html! {
        tr {
            (head)
            @for statistic in Statistic::ALL {
                td {
                    (carried(&series.stats, statistic, unit))
                    (range(spread(series, statistic)))
                }
            }
            @for count in counts {
                td { (count) }
            }
        }
        @if series.hit.total() > 0 {
            tr.soft {
                td { "disturbed included" }
                @for statistic in Statistic::ALL {
                    td { (carried(&series.all, statistic, unit)) }
                }
                @for _ in COUNTS {
                    td {}
                }
            }
        }
    }
}

/// Returns the least and the greatest figure over the repeats.
fn spread(series: &Series, statistic: Statistic) -> Option<[String; 2]> {
    let ends = series.spread.as_ref()?.get(statistic.key())?;
    let shown = |value| figure(value, statistic, &series.unit);
    let is_carried = statistic.is_carried_by(series.stats.count);
    is_carried.then(|| ends.map(shown))
}

fn value_cell(variant: &Variant, name: &str) -> Markup {
    let Some(value) = variant.values.get(name) else {
        return html! { td { (NOTHING) } };
    };
    let shown = |figure| human(figure, &value.unit);
    html! {
        td {
            (shown(value.value))
            (range(value.spread.map(|ends| ends.map(shown))))
        }
    }
}

fn range(ends: Option<[String; 2]>) -> Markup {
    html! {
        @if let Some([least, greatest]) = ends {
            span.spread { (least) " to " (greatest) }
        }
    }
}
