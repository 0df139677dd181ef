//! Pictures of charts as SVG.

use crate::canvas::{
    Axis, DASHED, DOTTED, Failed, HEIGHT, INK, LABEL, PALETTE, PAPER, Plot, SOLID, Swatch, WIDTH,
    axes, draw_legend, font, legend_width, log_axis,
};
use crate::chart::{Chart, ChartAxis, Line, LineStyle, Point, Scale};
use crate::error::ReportError;
use crate::text::{prefix, tick, with_unit};
use plotters::prelude::*;
use std::ops::Range;

/// Maximum of points of a line with marks: more marks would hide the line.
const MOST_MARKS: usize = 40;
/// Figures beyond this value look like infinity on any axis.
const FAR: f64 = 1e100;

/// Draws a chart as an SVG document.
///
/// # Errors
/// The plotting library failed.
pub fn chart_svg(chart: &Chart) -> Result<String, ReportError> {
    let mut svg = String::new();
    chart.draw(&mut svg).map_err(|error| ReportError::Drawing {
        series: chart.name.clone(),
        reason: error.to_string(),
    })?;
    Ok(svg)
}

impl Chart {
    fn draw(&self, svg: &mut String) -> Result<(), Failed> {
        let root = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
        root.fill(&PAPER)?;
        root.draw(&Text::new(self.title.clone(), (14, 12), font(17.0)))?;
        let curves = self.curves();
        let places = || {
            curves
                .iter()
                .flat_map(|curve| curve.pieces.iter().flatten())
        };
        let x = span(places().map(|place| place.0));
        let y = span(places().map(|place| place.1));
        let (Some(x), Some(y)) = (x, y) else {
            root.draw(&Text::new("no points", (14, 50), font(LABEL)))?;
            root.present()?;
            return Ok(());
        };
        let (x, y) = (self.x.over(x), self.y.over(y));
        let longest = y.ticks.iter().map(|(_, label)| label.chars().count()).max();
        let labels = longest.unwrap_or(0).min(20) as u32 * 8 + 40;
        let (_, body) = root.split_vertically(30);
        let (area, legend) = body.split_horizontally(
            WIDTH - legend_width(self.lines.iter().map(|line| line.name.as_str())),
        );
        let mut plot = axes(&area, x, y, labels)?;
        for curve in &curves {
            curve.draw(&mut plot)?;
        }
        let named = curves
            .iter()
            .filter(|curve| curve.line.style != LineStyle::Band);
        draw_legend(&legend, named.map(Curve::entry))?;
        root.present()?;
        Ok(())
    }

    fn curves(&self) -> Vec<Curve<'_>> {
        let mut used = [0_usize; 2];
        let mut next = |style: usize| {
            used[style] += 1;
            PALETTE[(used[style] - 1) % PALETTE.len()]
        };
        let mut last = INK;
        let curve = |line: &'_ Line| {
            let colour = match line.style {
                LineStyle::Measured => next(0),
                LineStyle::Paper => next(1),
                LineStyle::Band => last,
                LineStyle::Bound => INK,
            };
            last = colour;
            colour
        };
        let colours: Vec<RGBColor> = self.lines.iter().map(curve).collect();
        let curve = |(line, colour)| Curve {
            line,
            colour,
            pieces: self.pieces(&line.points),
        };
        self.lines.iter().zip(colours).map(curve).collect()
    }

    /// Returns the positions of the points on the axes, cut wherever a point cannot be drawn.
    fn pieces(&self, points: &[Point]) -> Vec<Vec<(f64, f64)>> {
        let mut pieces = vec![Vec::new()];
        for point in points {
            match (self.x.place(point.0), self.y.place(point.1)) {
                (Some(x), Some(y)) => pieces.last_mut().expect("never empty").push((x, y)),
                _ => pieces.push(Vec::new()),
            }
        }
        pieces.retain(|piece| !piece.is_empty());
        pieces
    }
}

impl ChartAxis {
    /// Returns the position of a figure, if it can be drawn.
    fn place(&self, figure: f64) -> Option<f64> {
        let usable = figure.abs() <= FAR;
        match self.scale {
            Scale::Linear => usable.then_some(figure),
            Scale::Log => (usable && figure > 1.0 / FAR).then(|| figure.log10()),
        }
    }

    /// Returns the axis for figures with positions in `range`.
    fn over(&self, range: Range<f64>) -> Axis {
        let Range { start, end } = range;
        // Equal figures still need some space around them.
        let width = (end - start).max(end.abs().max(1.0) * 1e-6);
        match self.scale {
            Scale::Log => {
                let range = start - 0.06 * width..end + 0.06 * width;
                log_axis(range, &self.label, &self.unit)
            }
            Scale::Linear => {
                let from_zero = start >= 0.0 && start <= end / 2.0;
                let low = if from_zero { 0.0 } else { start - 0.06 * width };
                linear_axis(low..end + 0.06 * width, &self.label, &self.unit)
            }
        }
    }
}

/// Returns an axis with five to ten ticks, at 1, 2 or 5 times a power of ten.
fn linear_axis(range: Range<f64>, label: &str, unit: &str) -> Axis {
    let (scale, unit) = prefix(range.start.abs().max(range.end.abs()), unit);
    let rough = (range.end - range.start) / 8.0;
    let decade = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|step| step * decade)
        .into_iter()
        .find(|step| *step >= rough)
        .unwrap_or(rough);
    let first = (range.start / step).ceil();
    let ticks = (0..=10)
        .map(|index| (first + f64::from(index)) * step)
        .take_while(|at| *at <= range.end)
        .map(|at| (at, tick(at / scale)))
        .collect();
    Axis {
        range,
        ticks,
        label: with_unit(label, unit),
    }
}

fn span(places: impl Iterator<Item = f64>) -> Option<Range<f64>> {
    places.fold(None, |range: Option<Range<f64>>, at| match range {
        Some(range) => Some(range.start.min(at)..range.end.max(at)),
        None => Some(at..at),
    })
}

/// A line ready to be drawn.
struct Curve<'c> {
    line: &'c Line,
    colour: RGBColor,
    pieces: Vec<Vec<(f64, f64)>>,
}

impl Curve<'_> {
    /// Returns its entry in the legend.
    fn entry(&self) -> (RGBColor, Swatch, &str) {
        let swatch = match self.line.style {
            LineStyle::Measured | LineStyle::Band => SOLID,
            LineStyle::Paper => DASHED,
            LineStyle::Bound => DOTTED,
        };
        (self.colour, swatch, &self.line.name)
    }

    fn draw(&self, plot: &mut Plot<'_>) -> Result<(), Failed> {
        let style = self.colour.stroke_width(2);
        let marks = self.line.points.len() <= MOST_MARKS;
        for piece in &self.pieces {
            let points = piece.iter().copied();
            match self.line.style {
                LineStyle::Measured => plot.draw_series(LineSeries::new(points, style))?,
                LineStyle::Band => {
                    let thin = self.colour.stroke_width(1);
                    plot.draw_series(LineSeries::new(points, thin))?
                }
                LineStyle::Paper => plot.draw_series(DashedLineSeries::new(points, 8, 5, style))?,
                LineStyle::Bound => plot.draw_series(DashedLineSeries::new(points, 2, 4, style))?,
            };
            let points = piece.iter().copied().filter(|_| marks);
            match self.line.style {
                LineStyle::Measured => {
                    plot.draw_series(points.map(|at| Circle::new(at, 4, self.colour.filled())))?;
                }
                LineStyle::Paper => {
                    let hollow = self.colour.stroke_width(2);
                    plot.draw_series(points.map(|at| Circle::new(at, 6, hollow)))?;
                }
                LineStyle::Bound | LineStyle::Band => {}
            }
        }
        Ok(())
    }
}
