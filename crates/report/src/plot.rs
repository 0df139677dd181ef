//! Pictures of a series as SVG: one colour for each variant, the same in every picture of a run.
//!
//! Latencies span decades, so the x axis is logarithmic in every view. The pictures have a
//! background and are self-contained; the page embeds them inline and recolours them by attribute
//! in dark mode.

use crate::canvas::{
    Area, Axis, DASHED, Failed, HEIGHT, INK, LABEL, PALETTE, PAPER, Plot, SOLID, Swatch, WIDTH,
    axes, draw_legend, font, legend_width, log_axis,
};
use crate::error::ReportError;
use crate::results::{Bound, Results};
use crate::stats::Statistic;
use crate::text::human;
use hdrhistogram::Histogram;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::ops::Range;

/// View of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// A line for each variant from the median to the largest sample, with a mark at each
    /// percentile of the tables: an overview.
    Percentiles,
    /// The whole cumulative distribution.
    Full,
    /// The slowest tenth: the share of samples slower than x, down to one in ten thousand, on a
    /// logarithmic axis.
    Tail,
}

/// Height of one variant in the view of percentiles, in pixels.
const ROW: u32 = 34;
/// The tail view starts at the 90th percentile and ends at the 99.99th, or at one sample of the
/// largest variant if that is a larger share.
const TAIL: Range<f64> = -4.0..-1.0;
/// Smallest number of samples for a tail: ten of them are in it.
pub(crate) const LEAST_FOR_TAIL: u64 = 100;

/// A variant's samples, not empty.
struct Curve {
    /// Its label.
    name: String,
    colour: RGBColor,
    dashed: bool,
    samples: Histogram<u64>,
    bounds: Vec<Bound>,
}

impl Curve {
    /// Returns its entry in the legend.
    fn entry(&self) -> (RGBColor, Swatch, &str) {
        let swatch = if self.dashed { DASHED } else { SOLID };
        (self.colour, swatch, &self.name)
    }

    /// Returns the share of one sample, as a power of ten.
    fn one_sample(&self) -> f64 {
        -(self.samples.len() as f64).log10()
    }
}

fn names(curves: &[Curve]) -> impl Iterator<Item = &str> {
    curves.iter().map(|curve| curve.name.as_str())
}

/// Draws the distributions of one series over all variants, as an SVG document.
/// Variants without samples of it are left out.
///
/// # Errors
/// No variant has the series, or a histogram is damaged.
pub fn distribution_svg(
    results: &Results,
    series: &str,
    view: View,
) -> Result<String, ReportError> {
    let (curves, unit) = curves(results, series)?;
    let mut svg = String::new();
    let words = results.label(series);
    draw(&mut svg, &curves, words, &unit, view).map_err(|error| ReportError::Drawing {
        series: series.into(),
        reason: error.to_string(),
    })?;
    Ok(svg)
}

fn curves(results: &Results, name: &str) -> Result<(Vec<Curve>, String), ReportError> {
    let mut curves = Vec::new();
    let mut unit = None;
    for (index, variant) in results.variants.iter().enumerate() {
        let Some(series) = variant.series.get(name) else {
            continue;
        };
        unit.get_or_insert_with(|| series.unit.clone());
        let samples = series.stats.histogram();
        let samples = samples.map_err(|source| ReportError::Histogram {
            place: format!("variant {:?}, series {name}", variant.name),
            source,
        })?;
        if !samples.is_empty() {
            curves.push(Curve {
                name: results.label(&variant.name).to_owned(),
                colour: PALETTE[index % PALETTE.len()],
                dashed: index >= PALETTE.len(),
                samples,
                bounds: variant.bounds.get(name).cloned().unwrap_or_default(),
            });
        }
    }
    let unit = unit.ok_or_else(|| ReportError::NoSeries {
        name: name.into(),
        known: results.series_names().join(", "),
    })?;
    Ok((curves, unit))
}

fn draw(
    svg: &mut String,
    curves: &[Curve],
    words: &str,
    unit: &str,
    view: View,
) -> Result<(), Failed> {
    let height = match view {
        View::Percentiles => 112 + ROW * curves.len() as u32,
        View::Full | View::Tail => HEIGHT,
    };
    let root = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
    root.fill(&PAPER)?;
    let title = match view {
        View::Percentiles => {
            format!("{words}: from the median to the slowest, marks at 50, 90, 99 and 99.9 %")
        }
        View::Full => format!("{words}: the whole distribution"),
        View::Tail => format!("{words}: the slowest tenth"),
    };
    let largest = curves.iter().map(|curve| curve.samples.len()).max();
    root.draw(&Text::new(title, (14, 12), font(17.0)))?;
    if curves.is_empty() {
        root.draw(&Text::new("no samples", (14, 50), font(LABEL)))?;
    } else if view == View::Tail && largest < Some(LEAST_FOR_TAIL) {
        let few = format!("fewer than {LEAST_FOR_TAIL} samples: too few for a tail");
        root.draw(&Text::new(few, (14, 50), font(LABEL)))?;
    } else {
        let (_, body) = root.split_vertically(30);
        match view {
            View::Percentiles => percentiles(&body, curves, words, unit)?,
            View::Full => full(&body, curves, words, unit)?,
            View::Tail => tail(&body, curves, words, unit)?,
        }
    }
    root.present()?;
    Ok(())
}

fn full(body: &Area<'_>, curves: &[Curve], words: &str, unit: &str) -> Result<(), Failed> {
    let low = curves.iter().map(|curve| curve.samples.min()).min();
    let (plot, legend) = body.split_horizontally(WIDTH - legend_width(names(curves)));
    let shares = [0.0, 0.25, 0.5, 0.75, 0.9, 1.0];
    let y = Axis {
        range: 0.0..1.0,
        ticks: shares.map(|y| (y, format!("{:.0} %", y * 100.0))).into(),
        label: "share of samples that took at most this".to_owned(),
    };
    let mut chart = axes(&plot, x_axis(curves, low, words, unit), y, 80)?;
    for curve in curves {
        let total = curve.samples.len() as f64;
        let mut below = 0;
        let mut points = Vec::new();
        for step in curve.samples.iter_recorded() {
            let x = place(step.value_iterated_to());
            points.push((x, below as f64 / total));
            below += step.count_at_value();
            points.push((x, below as f64 / total));
        }
        line(&mut chart, curve, points)?;
    }
    draw_bounds(&mut chart, curves, 0.0..1.0)?;
    draw_legend(&legend, curves.iter().map(Curve::entry))
}

fn tail(body: &Area<'_>, curves: &[Curve], words: &str, unit: &str) -> Result<(), Failed> {
    let low = curves
        .iter()
        .map(|curve| curve.samples.value_at_quantile(0.9))
        .min();
    let (plot, legend) = body.split_horizontally(WIDTH - legend_width(names(curves)));
    let ticks = [
        (-1.0, "10 % (p90)"),
        (-2.0, "1 % (p99)"),
        (-3.0, "0.1 % (p99.9)"),
        (-4.0, "0.01 % (p99.99)"),
    ];
    let lowest = curves
        .iter()
        .map(Curve::one_sample)
        .fold(TAIL.end, f64::min);
    let range = lowest.max(TAIL.start)..TAIL.end;
    let ticks = ticks.into_iter().filter(|(y, _)| *y >= range.start);
    let y = Axis {
        range: range.clone(),
        ticks: ticks.map(|(y, label)| (y, label.into())).collect(),
        label: "share of samples slower than this".to_owned(),
    };
    let mut chart = axes(&plot, x_axis(curves, low, words, unit), y, 150)?;
    for curve in curves {
        let total = curve.samples.len() as f64;
        // One sample is the smallest share: below it the line would be invented.
        let least = curve.one_sample().max(range.start);
        let log = |above: u64| (above as f64 / total).log10().max(least);
        let mut above = curve.samples.len();
        let mut points = Vec::new();
        for step in curve.samples.iter_recorded() {
            let x = place(step.value_iterated_to());
            let before = log(above);
            above -= step.count_at_value();
            if log(above) <= TAIL.end {
                points.push((x, before.min(TAIL.end)));
                points.push((x, log(above)));
            }
        }
        line(&mut chart, curve, points)?;
    }
    draw_bounds(&mut chart, curves, range)?;
    draw_legend(&legend, curves.iter().map(Curve::entry))
}

fn percentiles(body: &Area<'_>, curves: &[Curve], words: &str, unit: &str) -> Result<(), Failed> {
    let low = curves
        .iter()
        .map(|curve| curve.samples.value_at_quantile(0.5))
        .min();
    // The first variant is at the top.
    let rows = curves.len() as f64;
    let row = |index: usize| rows - 1.0 - index as f64;
    let y = Axis {
        range: -0.6..rows - 0.4,
        ticks: (0..)
            .zip(curves)
            .map(|(index, curve)| (row(index), curve.name.clone()))
            .collect(),
        label: String::new(),
    };
    let with_bounds = |curve: &Curve| !curve.bounds.is_empty();
    let first_bound = curves.iter().position(with_bounds).unwrap_or(curves.len());
    let mut chart = axes(
        body,
        x_axis(curves, low, words, unit),
        y,
        legend_width(names(curves)) - 20,
    )?;
    for (index, curve) in curves.iter().enumerate() {
        let y = row(index);
        let at = |quantile| (place(curve.samples.value_at_quantile(quantile)), y);
        line(&mut chart, curve, vec![at(0.5), at(1.0)])?;
        let marks = [
            (Statistic::P50, 0.5, 6),
            (Statistic::P90, 0.9, 3),
            (Statistic::P99, 0.99, 5),
            (Statistic::P999, 0.999, 3),
        ];
        // Percentiles that too few samples support are not marked.
        let count = curve.samples.len();
        let carried = marks.into_iter().filter(|mark| mark.0.is_carried_by(count));
        chart
            .draw_series(carried.map(|(_, quantile, size)| {
                Circle::new(at(quantile), size, curve.colour.filled())
            }))?;
        chart.draw_series([PathElement::new(
            vec![(at(1.0).0, y - 0.2), (at(1.0).0, y + 0.2)],
            curve.colour.stroke_width(2),
        )])?;
        for bound in &curve.bounds {
            let x = place(bound.value);
            draw_bound(&mut chart, x, y - 0.42..y + 0.42)?;
            // Names are at the first variant only: below they would repeat.
            if index == first_bound {
                let above = font(13.0).pos(Pos::new(HPos::Right, VPos::Bottom));
                chart.draw_series([Text::new(bound.name.clone(), (x, y + 0.42), above)])?;
            }
        }
        // One label at the left and one at the right, so that they never overlap.
        let texts = [
            (Statistic::P50, 0.5, HPos::Right),
            (Statistic::P99, 0.99, HPos::Left),
        ];
        for (_, quantile, side) in texts.into_iter().filter(|it| it.0.is_carried_by(count)) {
            let value = human(curve.samples.value_at_quantile(quantile) as f64, unit);
            let above = font(13.0).pos(Pos::new(side, VPos::Bottom));
            let (x, y) = at(quantile);
            chart.draw_series([Text::new(value, (x, y + 0.17), above)])?;
        }
    }
    Ok(())
}

/// Draws a dashed line at each bound over the whole height, with its name; most variants share
/// them.
fn draw_bounds(chart: &mut Plot<'_>, curves: &[Curve], y: Range<f64>) -> Result<(), Failed> {
    let all = curves.iter().flat_map(|curve| &curve.bounds);
    let mut different: Vec<&Bound> = Vec::new();
    for bound in all {
        let alike = |other: &&Bound| {
            let apart = place(other.value) - place(bound.value);
            other.name == bound.name && apart.abs() < 0.01
        };
        if !different.iter().any(alike) {
            different.push(bound);
        }
    }
    for (index, bound) in different.into_iter().enumerate() {
        let x = place(bound.value);
        draw_bound(chart, x, y.clone())?;
        // Staggered, so that neighbours' names do not overlap.
        let height = y.start + (y.end - y.start) * (0.06 + 0.07 * (index % 4) as f64);
        let beside = font(13.0).pos(Pos::new(HPos::Right, VPos::Center));
        chart.draw_series([Text::new(format!("{} ", bound.name), (x, height), beside)])?;
    }
    Ok(())
}

fn draw_bound(chart: &mut Plot<'_>, x: f64, y: Range<f64>) -> Result<(), Failed> {
    let points = [(x, y.start), (x, y.end)];
    chart.draw_series(DashedLineSeries::new(points, 5, 4, INK.stroke_width(1)))?;
    Ok(())
}

/// Returns the position of a value on the x axis. Zero has no logarithm and has the position of
/// one.
fn place(value: u64) -> f64 {
    (value.max(1) as f64).log10()
}

/// Returns the axis: the logarithm of the unit, from `low` to the largest sample or bound with some
/// space on both sides.
fn x_axis(curves: &[Curve], low: Option<u64>, words: &str, unit: &str) -> Axis {
    let samples = curves.iter().map(|curve| curve.samples.max());
    let bounds = curves.iter().flat_map(|curve| &curve.bounds);
    let bounds = || bounds.clone().map(|bound| bound.value);
    let high = samples.chain(bounds()).max();
    let low = low.into_iter().chain(bounds()).min();
    let (low, high) = (place(low.unwrap_or(1)), place(high.unwrap_or(1)));
    let room = ((high - low) * 0.08).max(0.02);
    log_axis(low - room..high + room, words, unit)
}

/// Draws a curve without successive points at the same pixel.
fn line(chart: &mut Plot<'_>, curve: &Curve, points: Vec<(f64, f64)>) -> Result<(), Failed> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    let mut last_pixel = None;
    for point in points {
        let pixel = chart.backend_coord(&point);
        if last_pixel != Some(pixel) {
            kept.push(point);
            last_pixel = Some(pixel);
        }
    }
    let style = curve.colour.stroke_width(2);
    if curve.dashed {
        chart.draw_series(DashedLineSeries::new(kept, 8, 4, style))?;
    } else {
        chart.draw_series(LineSeries::new(kept, style))?;
    }
    Ok(())
}
