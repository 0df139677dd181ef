//! Whether an experiment found what the paper says. Pure.

use super::experiment::{Check, CheckKind};
use tailbound_report::{Chart, CheckResult, LineStyle, Point, Statistic, Variant, Verdict};

/// A figure and its unit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Found {
    pub(crate) value: f64,
    pub(crate) unit: String,
}

/// Judges every check.
pub(crate) fn evaluate(
    checks: &[Check],
    variants: &[Variant],
    charts: &[Chart],
) -> Vec<CheckResult> {
    checks
        .iter()
        .map(|check| one(check, variants, charts))
        .collect()
}

fn one(check: &Check, variants: &[Variant], charts: &[Chart]) -> CheckResult {
    let (low, high) = bounds(check);
    let found = match check.kind {
        CheckKind::Distance => distance(check, charts),
        _ => worst(check, variants),
    };
    let (got, unit, note) = match found {
        Ok((found, note)) => (Some(found.value), found.unit, note),
        Err(why) => (None, String::new(), Some(format!("not judged: {why}"))),
    };
    CheckResult {
        name: check.name.get_ref().clone(),
        want: want(check, &unit),
        got: got.map(|got| got / scale(check, &unit).0),
        pass: got.is_some_and(|got| low <= got && got <= high),
        source: check.source.clone(),
        note,
    }
}

fn bounds(check: &Check) -> (f64, f64) {
    (
        check.at_least.map_or(f64::NEG_INFINITY, |figure| figure.0),
        check.at_most.map_or(f64::INFINITY, |figure| figure.0),
    )
}

/// Times are told in milliseconds, long ones in seconds: (what to divide by, the
/// unit).
fn scale<'u>(check: &Check, unit: &'u str) -> (f64, &'u str) {
    let bounds = check.at_least.iter().chain(&check.at_most);
    let long = bounds.fold(0.0, |most: f64, bound| most.max(bound.0)) >= 1e9;
    match unit {
        "ns" if long => (1e9, " s"),
        "ns" => (1e6, " ms"),
        "%" => (1.0, " %"),
        other => (1.0, other),
    }
}

fn want(check: &Check, unit: &str) -> String {
    let (scale, unit) = scale(check, unit);
    let text = |figure: f64| format!("{}{unit}", (figure / scale * 1e6).round() / 1e6);
    match (check.at_least, check.at_most) {
        (Some(low), Some(high)) => format!("{} to {}", text(low.0), text(high.0)),
        (Some(low), None) => format!(">= {}", text(low.0)),
        (None, high) => format!("<= {}", text(high.map_or(f64::INFINITY, |it| it.0))),
    }
}

/// What was found, and where if there was a choice.
type Judged = Result<(Found, Option<String>), String>;

/// The figure of the variant that is furthest from what is expected.
fn worst(check: &Check, variants: &[Variant]) -> Judged {
    let (low, high) = bounds(check);
    let excess = |found: &Found| (low - found.value).max(found.value - high);
    let mut worst: Option<(Found, &str)> = None;
    for at in &check.at {
        let found = figure(check, at.get_ref(), variants)?;
        if worst
            .as_ref()
            .is_none_or(|(it, _)| excess(&found) > excess(it))
        {
            worst = Some((found, at.get_ref()));
        }
    }
    let (found, at) = worst.ok_or("names no variant")?;
    let note = (check.at.len() > 1).then(|| format!("the furthest of {}: {at}", check.at.len()));
    Ok((found, note))
}

fn figure(check: &Check, at: &str, variants: &[Variant]) -> Result<Found, String> {
    let named = |name: &str| {
        let variant = variants.iter().find(|variant| variant.name == name);
        let variant = variant.ok_or_else(|| format!("variant {name} did not run"))?;
        read(variant, check.of.get_ref())
    };
    let b = named(at)?;
    let Some(from) = &check.from else {
        return Ok(b);
    };
    let a = named(from.get_ref())?;
    let (value, unit) = match check.kind {
        CheckKind::Ratio => (b.value / a.value, String::new()),
        CheckKind::Reduction => (100.0 * (1.0 - b.value / a.value), "%".to_owned()),
        CheckKind::Difference => (b.value - a.value, b.unit),
        CheckKind::Value | CheckKind::Distance => (b.value, b.unit),
    };
    if value.is_finite() {
        Ok(Found { value, unit })
    } else {
        Err(format!("from {} to {}", a.value, b.value))
    }
}

/// A figure of a variant: `SERIES.STATISTIC` or the name of a value.
pub(crate) fn read(variant: &Variant, of: &str) -> Result<Found, String> {
    let missing = || format!("variant {} has no {of}", variant.name);
    let Some((series, statistic)) = of.split_once('.') else {
        let value = variant.values.get(of).filter(|it| it.value.is_finite());
        let value = value.ok_or_else(missing)?;
        return Ok(Found {
            value: value.value,
            unit: value.unit.clone(),
        });
    };
    let series = variant.series.get(series).ok_or_else(missing)?;
    let mut statistics = Statistic::ALL.into_iter();
    let statistic = statistics.find(|known| known.key() == statistic);
    match statistic {
        Some(Statistic::Count) => Ok(Found {
            value: series.stats.count as f64,
            unit: String::new(),
        }),
        Some(statistic) if series.stats.count > 0 => Ok(Found {
            value: series.stats.get(statistic) as f64,
            unit: series.unit.clone(),
        }),
        _ => Err(missing()),
    }
}

/// The largest distance of the first measured line from a line of the paper.
fn distance(check: &Check, charts: &[Chart]) -> Judged {
    let named = |what: &str| format!("there is no {what} of this name");
    let chart = charts
        .iter()
        .find(|chart| chart.name == *check.of.get_ref());
    let chart = chart.ok_or_else(|| named("chart"))?;
    let line = |wanted: LineStyle, name: Option<&str>| {
        let mut lines = chart.lines.iter();
        lines.find(|line| line.style == wanted && name.is_none_or(|name| name == line.name))
    };
    let from = check.from.as_ref().map(|name| name.get_ref().as_str());
    let paper = line(LineStyle::Paper, from).ok_or_else(|| named("line"))?;
    let measured = line(LineStyle::Measured, None).ok_or_else(|| named("line"))?;
    let mut furthest: Option<(f64, f64)> = None;
    for &Point(x, y) in &paper.points {
        let at = measured
            .points
            .iter()
            .find(|point| point.0.total_cmp(&x).is_eq());
        let got = at.filter(|point| point.1.is_finite());
        let got = got.ok_or_else(|| format!("nothing was measured at {x}"))?;
        let away = (got.1 - y).abs();
        if furthest.is_none_or(|(most, _)| away > most) {
            furthest = Some((away, x));
        }
    }
    let (value, x) = furthest.ok_or("the line has no points")?;
    let unit = chart.y.unit.clone();
    let note = format!("the furthest of {}: at {x}", paper.points.len());
    Ok((Found { value, unit }, Some(note)))
}

/// The verdict and why, in one line.
pub(crate) fn verdict(checks: &[CheckResult]) -> (Verdict, String) {
    let failed: Vec<_> = checks.iter().filter(|check| !check.pass).collect();
    if failed.is_empty() {
        let reason = match checks.len() {
            0 => "nothing is expected of this run".to_owned(),
            1 => "the check holds".to_owned(),
            all => format!("all {all} checks hold"),
        };
        return (Verdict::Pass, reason);
    }
    let names: Vec<_> = failed.iter().map(|check| check.name.as_str()).collect();
    let reason = format!(
        "{} of {} checks failed: {}",
        failed.len(),
        checks.len(),
        names.join(", ")
    );
    (Verdict::Fail, reason)
}
