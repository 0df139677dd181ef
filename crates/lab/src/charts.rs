//! What an experiment draws over the count of neighbours. Pure.

use crate::check::read;
use crate::experiment::{Chart, Experiment, Variant};
use tailbound_report::{ChartAxis, Line, LineStyle, Point};

/// The charts of a run, each with a line for every name that has several counts
/// and could run.
pub(crate) fn draw(
    experiment: &Experiment,
    variants: &[tailbound_report::Variant],
) -> Vec<tailbound_report::Chart> {
    let of = |chart| one(chart, experiment, variants);
    experiment.chart.iter().map(of).collect()
}

fn one(
    chart: &Chart,
    experiment: &Experiment,
    variants: &[tailbound_report::Variant],
) -> tailbound_report::Chart {
    let of = chart.of.get_ref();
    let mut lines: Vec<Line> = Vec::new();
    for variant in &experiment.variant {
        let Some(point) = point(variant, of, variants) else {
            continue;
        };
        let family = variant.family();
        match lines.iter_mut().find(|line| line.name == family) {
            Some(line) => line.points.push(point),
            None => lines.push(Line {
                name: family.to_owned(),
                style: LineStyle::Measured,
                points: vec![point],
            }),
        }
    }
    // Latencies differ by orders of magnitude, rates do not.
    let y = match of.split_once('.') {
        Some(_) => ChartAxis::log(of, "ns"),
        None => ChartAxis::linear(of, unit(of, variants)),
    };
    tailbound_report::Chart {
        name: chart.name.get_ref().clone(),
        title: chart.title.clone(),
        x: ChartAxis::linear("neighbours", ""),
        y,
        lines,
        note: None,
    }
}

fn point(variant: &Variant, of: &str, variants: &[tailbound_report::Variant]) -> Option<Point> {
    let count = variant.count()?;
    let ran = variants
        .iter()
        .find(|v| v.name == *variant.name.get_ref())?;
    Some(Point(count as f64, read(ran, of).ok()?))
}

fn unit<'a>(value: &str, variants: &'a [tailbound_report::Variant]) -> &'a str {
    let mut values = variants.iter().filter_map(|v| v.values.get(value));
    values.next().map_or("", |value| value.unit.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailbound_report::Value;

    const GRID: &str = r#"
        name = "x"
        title = "t"
        source = "s"
        duration = "1s"
        hosts = { A = ["A1", "N1", "N2"] }
        hog = [{ name = "hogs", guests = ["N1", "N2"], value = "rate" }]
        variant = [
            { name = "before", neighbours = [2, 1], loads = ["hogs"] },
            { name = "after", neighbours = [1, 2], loads = ["hogs"] },
            { name = "other", loads = ["hogs"] },
        ]
        chart = [{ name = "c", title = "t", of = "rate" }]
    "#;

    fn ran(name: &str, value: f64) -> tailbound_report::Variant {
        let unit = "op/s".to_owned();
        let value = Value {
            unit,
            value,
            spread: None,
        };
        tailbound_report::Variant {
            name: name.into(),
            values: [("rate".into(), value)].into(),
            ..tailbound_report::Variant::default()
        }
    }

    #[test]
    fn each_name_with_counts_is_a_line_in_order_of_them_without_what_did_not_run() {
        let experiment = Experiment::parse(GRID, "x.toml").unwrap();
        let variants = [
            ran("before-2", 20.0),
            ran("before-1", 10.0),
            ran("after-2", 2.0),
            ran("other", 9.0),
        ];
        let charts = draw(&experiment, &variants);
        let lines: Vec<_> = charts[0]
            .lines
            .iter()
            .map(|line| (line.name.as_str(), line.points.as_slice()))
            .collect();
        assert_eq!(
            lines,
            [
                ("before", &[Point(1.0, 10.0), Point(2.0, 20.0)][..]),
                ("after", &[Point(2.0, 2.0)][..]),
            ]
        );
        assert_eq!(charts[0].y.unit, "op/s");
    }
}
