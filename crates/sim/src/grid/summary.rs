//! Summary of a grid's rows: the repetitions of each combination as one variant, and charts with
//! confidence bands.

use super::{Manifest, Row};
use std::collections::{BTreeMap, BTreeSet};
use tailbound_experiment::figure_of;
use tailbound_report::{
    Chart, ChartAxis, Line, LineStyle, Point, Results, SCHEMA, Series, Value, Variant, Verdict,
    empty_histogram,
};

/// The 97.5th percentile of Student's t distribution, by degrees of freedom from 1.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// The 97.5th percentile of the normal distribution.
const NORMAL: f64 = 1.96;
/// Largest number of lines of a chart: the number of colours.
const LINES: usize = 8;
/// Largest number of charts of the distributions of a series.
const CHARTS: usize = 4;
/// Percentiles in charts.
const SHARES: [f64; 26] = [
    0.1, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0, 45.0, 50.0, 55.0, 60.0, 65.0,
    70.0, 75.0, 80.0, 85.0, 90.0, 95.0, 98.0, 99.0, 99.9, 100.0,
];

/// The repetitions of one combination.
struct Combination<'r> {
    /// The values of the keys.
    settings: &'r [String],
    rows: Vec<&'r Row>,
}

impl<'r> Combination<'r> {
    /// Returns the names of the experiment's variants.
    fn variants(&self) -> impl Iterator<Item = &'r str> {
        let first = self.rows.first().copied();
        let variants = first.into_iter().flat_map(|row| &row.results.variants);
        variants.map(|variant| variant.name.as_str())
    }
}

/// Returns the result of a grid. Checks of its experiment are not judged: they were written for its
/// own values.
///
/// Variants are called `NAME KEY=VALUE`, with the last words of keys that have several values.
/// Their values are medians of the repetitions, with the least and the greatest; their series have
/// the samples of all.
pub(super) fn summary(manifest: &Manifest, rows: &[Row]) -> Results {
    let combinations = combinations(manifest, rows);
    let sampled = sampled(rows);
    let variants = combinations.iter().flat_map(|it| variants(manifest, it));
    let variants = variants.map(|mut variant| {
        variant
            .series
            .retain(|name, _| sampled.contains(name.as_str()));
        variant
    });
    let repetitions = manifest.points.iter().map(|it| it.repetition + 1).max();
    let mut conditions = BTreeMap::new();
    let mut condition = |name: &str, value: serde_json::Value| {
        conditions.insert(name.to_owned(), value);
    };
    condition("experiment", manifest.experiment.clone().into());
    condition("points", manifest.points.len().into());
    condition("repetitions", repetitions.into());
    condition("varied", manifest.keys.clone().into());
    let charts = charts(manifest, &combinations, &sampled);
    let first = rows.first();
    Results {
        schema: SCHEMA,
        experiment: manifest.name.clone(),
        title: manifest.title.clone(),
        source: first.map_or_else(String::new, |row| row.results.source.clone()),
        made: None,
        seed: manifest.points.first().map_or(0, |point| point.seed),
        conditions,
        variants: variants.collect(),
        charts,
        checks: Vec::new(),
        verdict: Verdict::Pass,
        verdict_reason: "nothing is expected of a grid".to_owned(),
        sentence: None,
        words: BTreeMap::new(),
    }
}

fn combinations<'r>(manifest: &'r Manifest, rows: &'r [Row]) -> Vec<Combination<'r>> {
    let mut all: Vec<Combination<'r>> = Vec::new();
    for row in rows {
        let settings = &manifest.points[row.point].settings;
        match all.last_mut() {
            Some(last) if last.settings == settings => last.rows.push(row),
            _ => all.push(Combination {
                settings,
                rows: vec![row],
            }),
        }
    }
    all
}

/// Returns the last word of a key.
fn word(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

/// Returns `KEY=VALUE` of all keys except the first `skip`, without keys that have only one value.
fn told(manifest: &Manifest, settings: &[String], skip: usize) -> String {
    let differs = |key: usize| {
        let mut points = manifest.points.iter();
        points.any(|point| point.settings[key] != settings[key])
    };
    let keys = (skip..settings.len()).filter(|key| differs(*key));
    let pairs: Vec<String> = keys
        .map(|key| format!("{}={}", word(&manifest.keys[key]), settings[key]))
        .collect();
    pairs.join(" ")
}

fn variants(manifest: &Manifest, combination: &Combination<'_>) -> Vec<Variant> {
    let told = told(manifest, combination.settings, 0);
    let names = combination.variants();
    names
        .map(|name| {
            let all: Vec<&Variant> = (combination.rows.iter())
                .filter_map(|row| row.results.variant(name))
                .collect();
            let mut variant = merged(&all);
            let called = format!("{name} {told}");
            called.trim_end().clone_into(&mut variant.name);
            variant
        })
        .collect()
}

/// Merges repetitions of a variant.
fn merged(all: &[&Variant]) -> Variant {
    let mut variant = all
        .first()
        .map_or_else(Variant::default, |it| (*it).clone());
    for (name, value) in &mut variant.values {
        let figures = all.iter().filter_map(|it| it.values.get(name));
        let mut figures: Vec<f64> = figures.map(|it| it.value).collect();
        figures.sort_by(f64::total_cmp);
        *value = Value::new(&value.unit, median(&figures));
        if let [least, .., greatest] = figures[..] {
            value.spread = Some([least, greatest]);
        }
    }
    for (name, series) in &mut variant.series {
        let mut samples = empty_histogram();
        for stats in all.iter().filter_map(|it| it.series.get(name)) {
            if let Ok(more) = stats.stats.histogram() {
                // A histogram that resizes itself accepts every figure.
                let _ = samples.add(more);
            }
        }
        *series = Series::of(&series.unit, &samples);
    }
    variant
}

/// Returns the median of sorted figures.
fn median(figures: &[f64]) -> f64 {
    let middle = figures.len() / 2;
    if figures.len() % 2 == 1 {
        figures[middle]
    } else {
        f64::midpoint(figures[middle - 1], figures[middle])
    }
}

/// Returns the series that have a sample in any row.
fn sampled(rows: &[Row]) -> BTreeSet<&str> {
    let variants = rows.iter().flat_map(|row| &row.results.variants);
    let series = variants.flat_map(|variant| &variant.series);
    let sampled = series.filter(|(_, series)| series.all.count > 0);
    sampled.map(|(name, _)| name.as_str()).collect()
}

fn charts(
    manifest: &Manifest,
    combinations: &[Combination<'_>],
    sampled: &BTreeSet<&str>,
) -> Vec<Chart> {
    let figures = manifest.show.iter();
    let figures = figures.map(|figure| over_first(manifest, combinations, figure));
    let series = sampled.iter();
    let series = series.flat_map(|name| distributions(manifest, combinations, name));
    figures.chain(series).collect()
}

/// Values of the first varied key on an axis: numbers, if all of them are numbers with the same
/// unit; otherwise their positions, from 1 on.
struct Axis<'m> {
    values: Vec<&'m str>,
    /// Unit of the numbers.
    unit: Option<&'m str>,
}

impl<'m> Axis<'m> {
    fn new(manifest: &'m Manifest) -> Self {
        let mut values: Vec<&str> = Vec::new();
        let all = manifest.points.iter().filter_map(|it| it.settings.first());
        for value in all {
            if !values.contains(&value.as_str()) {
                values.push(value);
            }
        }
        let mut units = values.iter().map(|value| number(value).map(|it| it.1));
        let unit = units.next().flatten();
        let is_same = unit.is_some() && units.all(|it| it == unit);
        Self {
            values,
            unit: unit.filter(|_| is_same),
        }
    }

    fn at(&self, value: &str) -> Option<f64> {
        match self.unit {
            Some(_) => number(value).map(|it| it.0),
            None => Some(self.values.iter().position(|it| *it == value)? as f64 + 1.0),
        }
    }

    fn axis(&self, key: &str) -> ChartAxis {
        if let Some(unit) = self.unit {
            return ChartAxis::linear(key, unit);
        }
        let places = self.values.iter().zip(1..);
        let places: Vec<_> = places.map(|(it, place)| format!("{place}: {it}")).collect();
        ChartAxis::linear(&format!("{key} ({})", places.join(", ")), "")
    }
}

/// Splits a text into a number and its unit.
fn number(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| c != '.' && c != '-' && !c.is_ascii_digit());
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    Some((number.parse().ok()?, unit.trim_start()))
}

/// Chart of a figure over the first varied key: means over the repetitions, with their 95 %
/// confidence bands.
fn over_first(manifest: &Manifest, combinations: &[Combination<'_>], figure: &str) -> Chart {
    let mut lines: BTreeMap<String, Vec<(f64, Band)>> = BTreeMap::new();
    let mut unit = String::new();
    let axis = Axis::new(manifest);
    for combination in combinations {
        let x = combination.settings.first().and_then(|it| axis.at(it));
        for name in combination.variants() {
            let figures: Vec<f64> = (combination.rows.iter())
                .filter_map(|row| figure_of(row.results.variant(name)?, figure))
                .map(|value| {
                    unit.clone_from(&value.unit);
                    value.value
                })
                .collect();
            let (Some(x), Some(band)) = (x, Band::of(&figures)) else {
                continue;
            };
            let others = told(manifest, combination.settings, 1);
            let name = format!("{name} {others}").trim_end().to_owned();
            lines.entry(name).or_default().push((x, band));
        }
    }
    let all = lines.len();
    let shown = lines.into_iter().take(LINES);
    Chart {
        name: figure.to_owned(),
        title: format!("{figure}: means, and the bands in which they are with 95 % confidence"),
        x: axis.axis(manifest.keys.first().map_or("", |key| word(key))),
        y: ChartAxis::linear(figure, &unit),
        lines: shown
            .flat_map(|(name, points)| with_band(&name, &points))
            .collect(),
        note: left_out(all, LINES),
    }
}

/// Returns the note of a chart that does not show all lines.
fn left_out(all: usize, shown: usize) -> Option<String> {
    (all > shown).then(|| format!("{shown} of {all} lines are drawn; the table has all figures"))
}

/// Charts of the distributions of a series: the mean over the repetitions at each percentile, and
/// its band. If there are many lines, they are divided among several charts.
fn distributions(manifest: &Manifest, combinations: &[Combination<'_>], name: &str) -> Vec<Chart> {
    let (mut lines, mut unit) = (Vec::new(), String::new());
    let of_all = combinations
        .iter()
        .flat_map(|it| it.variants().map(move |name| (it, name)));
    let of_all: Vec<_> = of_all.collect();
    for (combination, variant) in of_all.iter().take(LINES * CHARTS) {
        let rows = combination.rows.iter();
        let series = rows.filter_map(|row| row.results.variant(variant)?.series.get(name));
        let samples: Vec<_> = series
            .filter_map(|series| {
                unit.clone_from(&series.unit);
                series.stats.histogram().ok().filter(|it| !it.is_empty())
            })
            .collect();
        let points = SHARES.iter().filter_map(|percent| {
            let figures = samples
                .iter()
                .map(|it| it.value_at_percentile(*percent) as f64);
            Some((*percent, Band::of(&figures.collect::<Vec<_>>())?))
        });
        let points: Vec<_> = points.collect();
        let told = told(manifest, combination.settings, 0);
        let told = format!("{variant} {told}").trim_end().to_owned();
        // The share is on the y axis.
        let mut of_line = with_band(&told, &points);
        for point in of_line.iter_mut().flat_map(|line| &mut line.points) {
            *point = Point(point.1, point.0);
        }
        lines.push(of_line);
    }
    let chart = |(place, lines): (usize, &[Vec<Line>])| Chart {
        name: match place {
            0 => format!("cdf-{name}"),
            more => format!("cdf-{name}-{}", more + 1),
        },
        title: format!("{name}: how samples are distributed, with 95 % confidence bands"),
        x: ChartAxis::log(name, &unit),
        y: ChartAxis::linear("share of the samples", "%"),
        lines: lines.concat(),
        note: left_out(of_all.len(), LINES * CHARTS),
    };
    lines.chunks(LINES).enumerate().map(chart).collect()
}

/// A mean, and the limits of its 95 % confidence band.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Band {
    low: f64,
    mean: f64,
    high: f64,
}

impl Band {
    /// Returns the band of repetitions; `None` without figures. With a single figure the band has
    /// no limits.
    fn of(figures: &[f64]) -> Option<Self> {
        let count = figures.len() as f64;
        let mean = figures.iter().sum::<f64>() / count;
        let half = match figures.len() {
            0 => return None,
            1 => f64::NAN,
            more => {
                let squares = figures.iter().map(|it| (it - mean).powi(2)).sum::<f64>();
                let t = T.get(more - 2).copied().unwrap_or(NORMAL);
                t * (squares / (count - 1.0) / count).sqrt()
            }
        };
        Some(Self {
            low: mean - half,
            mean,
            high: mean + half,
        })
    }
}

fn with_band(name: &str, points: &[(f64, Band)]) -> Vec<Line> {
    let line = |name: String, style, of: fn(&Band) -> f64| {
        Line::new(name, style, points.iter().map(|(x, band)| (*x, of(band))))
    };
    let mut lines = vec![line(name.to_owned(), LineStyle::Measured, |band| band.mean)];
    if points.iter().any(|(_, band)| band.low.is_finite()) {
        lines.push(line(format!("{name}, low"), LineStyle::Band, |band| {
            band.low
        }));
        lines.push(line(format!("{name}, high"), LineStyle::Band, |band| {
            band.high
        }));
    }
    lines
}
