//! Common parts of all pictures: colours, sizes, and axes with ticks of our choice.

use crate::text::{prefix, tick, with_unit};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::ops::Range;

/// Okabe and Ito's palette, which colour-blind readers can distinguish, without its yellow, which
/// is too faint on white. After these, lines are dashed.
pub(crate) const PALETTE: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x22, 0x22, 0x22),
    RGBColor(0x56, 0xb4, 0xe9),
];
pub(crate) const PAPER: RGBColor = RGBColor(0xff, 0xff, 0xff);
pub(crate) const INK: RGBColor = RGBColor(0x33, 0x33, 0x33);
const GRID: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);

pub(crate) const WIDTH: u32 = 900;
pub(crate) const HEIGHT: u32 = 380;
pub(crate) const LABEL: f64 = 16.0;

pub(crate) type Failed = Box<dyn std::error::Error>;
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(crate) type Plot<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<Axis, Axis>>;

/// A range with ticks of our choice, each with its label.
pub(crate) struct Axis {
    pub(crate) range: Range<f64>,
    pub(crate) ticks: Vec<(f64, String)>,
    /// Label of the axis; may be empty.
    pub(crate) label: String,
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (start, end): (i32, i32)) -> i32 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        start + (share * f64::from(end - start)).round() as i32
    }
    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            return Vec::new();
        }
        self.ticks.iter().map(|(at, _)| *at).collect()
    }
    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let label = self
            .ticks
            .iter()
            .find(|(at, _)| at.total_cmp(value).is_eq());
        label.map_or_else(String::new, |(_, label)| label.clone())
    }
}

pub(crate) fn font(size: f64) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

/// Draws a plot's grid, ticks and labels.
pub(crate) fn axes<'a>(
    area: &Area<'a>,
    x: Axis,
    y: Axis,
    y_width: u32,
) -> Result<Plot<'a>, Failed> {
    let (x_label, y_label) = (x.label.clone(), y.label.clone());
    let mut chart = ChartBuilder::on(area)
        .margin_right(24)
        .margin_top(6)
        .margin_left(if y.label.is_empty() { 0 } else { 10 })
        .x_label_area_size(if x.label.is_empty() { 34 } else { 54 })
        .y_label_area_size(y_width)
        .build_cartesian_2d(x, y)?;
    let mut mesh = chart.configure_mesh();
    mesh.axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .label_style(font(LABEL));
    if !x_label.is_empty() {
        mesh.x_desc(x_label);
    }
    if !y_label.is_empty() {
        mesh.y_desc(y_label);
    }
    mesh.draw()?;
    Ok(chart)
}

/// Returns a logarithmic axis over `range`, which is in powers of ten. Ticks are at 1, 2 and 5 of
/// each decade, at decades only if the range has many, and denser if it is shorter than half a
/// decade. All have the prefix of the unit that fits the middle, which the label names.
pub(crate) fn log_axis(range: Range<f64>, label: &str, unit: &str) -> Axis {
    let middle = 10_f64.powf(f64::midpoint(range.start, range.end));
    let (scale, unit) = prefix(middle, unit);
    let steps: &[f64] = match range.end - range.start {
        wide if wide > 3.5 => &[1.0],
        wide if wide > 0.5 => &[1.0, 2.0, 5.0],
        _ => &[1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
    };
    let ticks = (range.start.floor() as i32..=range.end.ceil() as i32)
        .flat_map(|decade| steps.iter().map(move |step| 10_f64.powi(decade) * step))
        .map(|value| (value.log10(), tick(value / scale)))
        .filter(|(at, _)| range.contains(at))
        .collect();
    Axis {
        range,
        ticks,
        label: with_unit(label, unit),
    }
}

/// Appearance of a line in a legend: pieces from and to these positions.
pub(crate) type Swatch = &'static [(i32, i32)];
pub(crate) const SOLID: Swatch = &[(4, 24)];
pub(crate) const DASHED: Swatch = &[(4, 12), (16, 24)];
pub(crate) const DOTTED: Swatch = &[(4, 7), (10, 13), (16, 19), (22, 25)];

/// Returns the width of a legend with these names; the backend cannot measure text, so it depends on
/// the length of the longest.
pub(crate) fn legend_width<'n>(names: impl Iterator<Item = &'n str>) -> u32 {
    let longest = names.map(|name| name.chars().count()).max();
    (longest.unwrap_or(0) as u32 * 8 + 60).min(WIDTH / 3)
}

/// Draws a legend: the colour, the swatch and the name of each line.
pub(crate) fn draw_legend<'n>(
    area: &Area<'_>,
    lines: impl Iterator<Item = (RGBColor, Swatch, &'n str)>,
) -> Result<(), Failed> {
    for (y, (colour, swatch, name)) in (20..).step_by(24).zip(lines) {
        for &(from, to) in swatch {
            let piece = vec![(from, y), (to, y)];
            area.draw(&PathElement::new(piece, colour.stroke_width(3)))?;
        }
        let text = font(LABEL).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(name.to_owned(), (32, y), text))?;
    }
    Ok(())
}
