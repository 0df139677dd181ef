//! Evaluates the checks of a run. Pure.

use crate::verdict::{Noise, delayed, lost, too_few, too_noisy};
use crate::{Check, CheckKind, Miss, figure_of};
use tailbound_report::{Chart, CheckResult, LineStyle, Point, Value, Variant};

/// Reason why a check has no figure.
enum Missing {
    /// A variant that it needs did not run.
    Variant(String),
    /// All variants ran, but the figure could not be computed.
    Figure(String),
}

/// A figure and a note about it.
type Judged = Result<(Value, Option<String>), Missing>;

/// Judges every check on the variants that ran, with and without the disturbed samples.
pub(crate) fn evaluate(
    checks: &[Check],
    variants: &[Variant],
    charts: &[Chart],
    noise: &Noise,
) -> Vec<CheckResult> {
    let with_hit = variants.iter().cloned().map(with_hit).collect::<Vec<_>>();
    let judge = |check: &Check| {
        let result = one(check, variants, charts);
        if let Some(why) = lost(check, noise, result.not_judged.is_none()) {
            return CheckResult {
                not_judged: None,
                noise: Some(why),
                ..result
            };
        }
        if result.not_judged.is_some() {
            return result;
        }
        let rests_on = rests_on(check, variants);
        if let Some(why) = too_few(check, &rests_on, noise) {
            return CheckResult {
                got: None,
                pass: false,
                note: None,
                known: None,
                misses: None,
                not_judged: Some(why),
                ..result
            };
        }
        let holds_with_hit = || one(check, &with_hit, charts).pass;
        let why = too_noisy(check, &rests_on, noise, result.pass, holds_with_hit);
        let why = why.or_else(|| delays_decide(check, variants, charts, noise, result.pass));
        CheckResult {
            noise: why,
            ..result
        }
    };
    checks.iter().map(judge).collect()
}

/// Returns the variants whose figures decide a check: the judged ones, and the one that they are
/// compared with.
fn rests_on<'v>(check: &Check, variants: &'v [Variant]) -> Vec<&'v Variant> {
    let from = check.from.as_ref();
    let from = from.and_then(|name| ran(name.get_ref(), variants).ok());
    let mut all = judged(check, variants).unwrap_or_default();
    all.extend(from);
    all
}

/// Returns the variant with its disturbed samples counted.
fn with_hit(mut variant: Variant) -> Variant {
    for series in variant.series.values_mut() {
        series.stats = series.all.clone();
    }
    variant
}

/// Returns the cause of delayed samples in the check's series, if the check may come out the other
/// way without the same number of the longest samples.
///
/// Delays are never negative, so each variant's figure is between the figure of all samples and the
/// figure of the rest. A check is a monotonic function of the judged figure and of the one that it
/// is compared with: equal results at the four ends of these two ranges leave no other one in
/// between.
fn delays_decide(
    check: &Check,
    variants: &[Variant],
    charts: &[Chart],
    noise: &Noise,
    holds: bool,
) -> Option<String> {
    let series = check.series()?;
    let from = check.from.as_ref().map(|name| name.get_ref().as_str());
    let rest = rests_on(check, variants);
    let delays = rest.iter().filter_map(|it| delayed(check, &it.name, noise));
    let (share, most) = delays.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    let ends = [(true, false), (false, true), (true, true)];
    let differs = |(judged, compared): (bool, bool)| {
        let without = |variant: &Variant| {
            let is_compared = from == Some(variant.name.as_str());
            let share = delayed(check, &variant.name, noise).map(|(share, _)| share);
            match share.filter(|_| if is_compared { compared } else { judged }) {
                Some(share) => without_longest(variant.clone(), series, share),
                None => variant.clone(),
            }
        };
        let without: Vec<Variant> = variants.iter().map(without).collect();
        one(check, &without, charts).pass != holds
    };
    // Without samples there is no figure.
    let decides = share >= 1.0 || ends.into_iter().any(differs);
    decides.then(|| most.of(check))
}

/// Returns the variant without this share of the longest samples of a series.
fn without_longest(mut variant: Variant, series: &str, share: f64) -> Variant {
    if let Some(series) = variant.series.get_mut(series) {
        series.stats = series.stats.without_longest(share);
    }
    variant
}

fn one(check: &Check, variants: &[Variant], charts: &[Chart]) -> CheckResult {
    let (low, high) = check.bounds();
    let judged = match check.kind {
        CheckKind::Distance => distance(check, charts),
        _ => worst(check, variants),
    };
    let (found, note, not_judged) = match judged {
        Ok((found, note)) => (Some(found), note, None),
        Err(Missing::Figure(why)) => (None, Some(why), None),
        Err(Missing::Variant(why)) => (None, None, Some(why)),
    };
    let unit = found.as_ref().map_or("", |found| found.unit.as_str());
    let is_within = |low: f64, high: f64| {
        let found = found.as_ref();
        found.is_some_and(|it| low <= it.value && it.value <= high)
    };
    let known = check.misses.as_ref().map(|miss| MissAt {
        miss,
        is_there: is_within(miss.known[0].0, miss.known[1].0),
    });
    let is_expected = is_within(low, high);
    // A known miss that moves is a change, also if the figure is as expected now.
    let pass = is_expected && known.as_ref().is_none_or(|it| it.is_there);
    let note = known
        .as_ref()
        .filter(|_| found.is_some())
        .and_then(|it| it.note(pass))
        .or(note);
    CheckResult {
        name: check.name.get_ref().clone(),
        want: want(check, unit),
        got: found.as_ref().map(|it| it.value / scale(check, unit).0),
        pass,
        source: check.source.text.clone(),
        paper: check
            .source
            .paper
            .filter(|_| found.is_some())
            .map(|it| range(check, unit, it.range())),
        note,
        known: known
            .as_ref()
            .filter(|_| found.is_some())
            .map(|it| range(check, unit, it.range())),
        misses: known
            .filter(|it| it.is_there && !pass && not_judged.is_none())
            .map(|it| it.miss.cause.clone()),
        not_judged,
        noise: None,
    }
}

/// A known miss, and whether the figure is where it is known to be.
struct MissAt<'c> {
    miss: &'c Miss,
    is_there: bool,
}

impl MissAt<'_> {
    const fn range(&self) -> [f64; 2] {
        [self.miss.known[0].0, self.miss.known[1].0]
    }

    /// Returns what a reader should know of a figure that is not in the known range, or that holds.
    fn note(&self, pass: bool) -> Option<String> {
        let cause = &self.miss.cause;
        match (self.is_there, pass) {
            (true, true) => Some(format!("it holds, though it was known to miss: {cause}")),
            (true, false) => None,
            (false, _) => Some(format!("it left the range of its known miss: {cause}")),
        }
    }
}

/// Returns the divisor and the unit of printed figures. Times are printed in milliseconds, long
/// ones in seconds.
fn scale<'u>(check: &Check, unit: &'u str) -> (f64, &'u str) {
    let (low, high) = check.bounds();
    let longest = [low, high].into_iter().filter(|bound| bound.is_finite());
    let is_long = longest.fold(0.0, f64::max) >= 1e9;
    match unit {
        "ns" if is_long => (1e9, " s"),
        "ns" => (1e6, " ms"),
        "%" => (1.0, " %"),
        other => (1.0, other),
    }
}

fn want(check: &Check, unit: &str) -> String {
    match check.bounds() {
        (low, high) if high.is_infinite() => format!(">= {}", text(check, unit, low)),
        (low, high) if low.is_infinite() => format!("<= {}", text(check, unit, high)),
        (low, high) => format!("{} to {}", text(check, unit, low), text(check, unit, high)),
    }
}

/// Returns a figure of the check with its unit.
fn text(check: &Check, unit: &str, figure: f64) -> String {
    let (scale, unit) = scale(check, unit);
    format!("{}{unit}", (figure / scale * 1e6).round() / 1e6)
}

/// Returns a range of figures; a range of one is that figure.
fn range(check: &Check, unit: &str, [low, high]: [f64; 2]) -> String {
    if low.total_cmp(&high).is_eq() {
        text(check, unit, low)
    } else {
        format!("{} to {}", text(check, unit, low), text(check, unit, high))
    }
}

/// Returns the figure of the judged variant with the largest deviation from the expected range.
fn worst(check: &Check, variants: &[Variant]) -> Judged {
    let (low, high) = check.bounds();
    let excess = |found: &Value| (low - found.value).max(found.value - high);
    let from = check.from.as_ref();
    let from = from.map(|name| ran(name.get_ref(), variants)).transpose()?;
    let at = judged(check, variants)?;
    let mut worst: Option<(Value, &Variant)> = None;
    for variant in &at {
        let found = compute(check, from, variant).map_err(Missing::Figure)?;
        let is_worse = |(it, _): &(Value, _)| excess(&found) > excess(it);
        if worst.as_ref().is_none_or(is_worse) {
            worst = Some((found, variant));
        }
    }
    let (found, variant) = worst.ok_or_else(|| Missing::Figure("judges no variant".to_owned()))?;
    let is_named = check.at.iter().any(|name| *name.get_ref() == variant.name);
    let note = match at.len() {
        1 if is_named => None,
        1 => Some(format!("of variant {}", variant.name)),
        several => Some(format!("the furthest of {several}: {}", variant.name)),
    };
    Ok((found, note))
}

/// Returns the judged variants: those of `at` that ran, or the first replacement that ran.
fn judged<'v>(check: &Check, variants: &'v [Variant]) -> Result<Vec<&'v Variant>, Missing> {
    let mut judged = Vec::new();
    let mut missing = None;
    for name in &check.at {
        match ran(name.get_ref(), variants) {
            Ok(variant) => judged.push(variant),
            Err(why) => missing = missing.or(Some(why)),
        }
    }
    if let Some(why) = missing {
        let mut instead = check.instead.iter();
        let instead = instead.find_map(|name| ran(name.get_ref(), variants).ok());
        judged.extend(instead);
        if judged.is_empty() {
            return Err(why);
        }
    }
    Ok(judged)
}

fn ran<'v>(name: &str, variants: &'v [Variant]) -> Result<&'v Variant, Missing> {
    let variant = variants.iter().find(|variant| variant.name == name);
    match variant.map(|variant| (variant, &variant.unavailable)) {
        None => Err(Missing::Variant(format!("variant {name} did not run"))),
        Some((_, Some(why))) => {
            let why = format!("variant {name} could not run: {why}");
            Err(Missing::Variant(why))
        }
        Some((variant, None)) => Ok(variant),
    }
}

/// Returns the check's figure of one variant, or the reason why there is none.
fn compute(check: &Check, from: Option<&Variant>, at: &Variant) -> Result<Value, String> {
    let of = check.of.get_ref();
    let read = |variant: &Variant| {
        figure_of(variant, of).ok_or_else(|| format!("variant {} has no {of}", variant.name))
    };
    let b = read(at)?;
    let a = match (check.kind.bound(), from) {
        (Some(name), _) => bound(name, check, at)?,
        (None, Some(from)) => read(from)?.value,
        (None, None) => return Ok(b),
    };
    let (value, unit) = match check.kind {
        CheckKind::Ratio | CheckKind::OfPromise | CheckKind::OfBound => (b.value / a, ""),
        CheckKind::TimesLower => (a / b.value, ""),
        CheckKind::Reduction => (1.0 - b.value / a, ""),
        CheckKind::Increase => (b.value / a - 1.0, ""),
        CheckKind::Difference => (b.value - a, b.unit.as_str()),
        CheckKind::Value | CheckKind::Distance => (b.value, b.unit.as_str()),
    };
    if value.is_finite() {
        Ok(Value::new(unit, value))
    } else {
        Err(format!("{of} went from {a} to {}", b.value))
    }
}

/// Returns the bound with that name for the samples of the check's series.
fn bound(name: &str, check: &Check, variant: &Variant) -> Result<f64, String> {
    let series = check.series().unwrap_or_default();
    let mut bounds = variant.bounds.get(series).into_iter().flatten();
    let found = bounds.find(|bound| bound.name == name && bound.value > 0);
    let missing = || format!("variant {} has nothing {name} for {series}", variant.name);
    found.map(|bound| bound.value as f64).ok_or_else(missing)
}

/// Returns the largest distance of the first measured line from a line of the paper.
fn distance(check: &Check, charts: &[Chart]) -> Judged {
    let missing = |what: &str| Missing::Figure(format!("there is no {what} of this name"));
    let chart = charts
        .iter()
        .find(|chart| chart.name == *check.of.get_ref());
    let chart = chart.ok_or_else(|| missing("chart"))?;
    let line = |style: LineStyle, name: Option<&str>| {
        let mut lines = chart.lines.iter();
        lines.find(|line| line.style == style && name.is_none_or(|name| name == line.name))
    };
    let from = check.from.as_ref().map(|name| name.get_ref().as_str());
    let paper = line(LineStyle::Paper, from).ok_or_else(|| missing("line of the paper"))?;
    let measured = line(LineStyle::Measured, None).ok_or_else(|| missing("measured line"))?;
    let mut furthest: Option<(f64, f64)> = None;
    for &Point(x, y) in &paper.points {
        let mut points = measured.points.iter();
        let at = points.find(|point| point.0.total_cmp(&x).is_eq());
        let got = at.filter(|point| point.1.is_finite());
        let got = got.ok_or_else(|| Missing::Figure(format!("nothing was measured at {x}")))?;
        let away = (got.1 - y).abs();
        if furthest.is_none_or(|(most, _)| away > most) {
            furthest = Some((away, x));
        }
    }
    let (value, x) = furthest.ok_or_else(|| missing("point"))?;
    let note = format!("the furthest of {}: at {x}", paper.points.len());
    Ok((Value::new(&chart.y.unit, value), Some(note)))
}
