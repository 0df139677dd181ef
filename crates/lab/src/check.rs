//! Whether an experiment found what it expects. Pure.

use crate::experiment::{Check, CheckKind};
use crate::summarise::figure as figure_of;
use tailbound_report::{CheckResult, Statistic, Variant, Verdict};

/// A variant with more samples set apart than this cannot be judged.
const MAX_HIT_SHARE: f64 = 0.05;

/// Evaluates every check on the variants that ran.
pub fn evaluate(checks: &[Check], variants: &[Variant]) -> Vec<CheckResult> {
    checks.iter().map(|check| one(check, variants)).collect()
}

fn one(check: &Check, variants: &[Variant]) -> CheckResult {
    let found = figure(check, variants);
    let (sign, bound) = match (check.at_least, check.at_most) {
        (Some(bound), _) => (">=", bound),
        (None, bound) => ("<=", bound.unwrap_or(f64::INFINITY)),
    };
    let holds = |got: f64| {
        if sign == ">=" {
            got >= bound
        } else {
            got <= bound
        }
    };
    let (got, note) = match found {
        Ok((got, note)) => (Some(got), note),
        Err(why) => (None, Some(format!("not judged: {why}"))),
    };
    CheckResult {
        name: check.name.get_ref().clone(),
        want: format!("{sign} {bound:.2}"),
        got,
        pass: got.is_some_and(holds),
        source: check.source.clone(),
        note,
    }
}

/// The figure of a check and what must be known with it, or why there is none.
fn figure(check: &Check, variants: &[Variant]) -> Result<(f64, Option<String>), String> {
    let named = |name: &str| {
        variants
            .iter()
            .find(|variant| variant.name == name)
            .ok_or_else(|| format!("variant {name} did not run"))
    };
    let usable = |name: &str| {
        let variant = named(name)?;
        match &variant.unavailable {
            Some(why) => Err(format!("variant {name} could not run: {why}")),
            None => Ok(variant),
        }
    };
    let of = check.of.get_ref();
    let mut candidates = check.to.iter().map(|name| usable(name.get_ref()));
    let first = candidates.next().ok_or("names no variant")?;
    let to = match first {
        Ok(variant) => variant,
        Err(why) => candidates.find_map(Result::ok).ok_or(why)?,
    };
    let fallback = check
        .to
        .first()
        .is_some_and(|name| *name.get_ref() != to.name);
    let note = fallback.then(|| format!("of variant {}", to.name));
    let b = read(to, of)?;
    if check.kind == CheckKind::OfPromise {
        return Ok((b / promised(to, of)?, note));
    }
    let Some(from) = &check.from else {
        return Ok((b, note));
    };
    let a = read(usable(from.get_ref())?, of)?;
    let got = match check.kind {
        CheckKind::Reduction => 1.0 - b / a,
        CheckKind::Increase => b / a - 1.0,
        CheckKind::TimesLower => a / b,
        CheckKind::Value | CheckKind::OfPromise => b,
    };
    if got.is_finite() {
        Ok((got, note))
    } else {
        Err(format!("{of} went from {a} to {b}"))
    }
}

/// What the samples of a series were promised to stay below.
fn promised(variant: &Variant, of: &str) -> Result<f64, String> {
    let series = of.split_once('.').map_or(of, |(series, _)| series);
    let mut bounds = variant.bounds.get(series).into_iter().flatten();
    let promised = bounds.find(|bound| bound.name == PROMISED);
    let promised = promised.filter(|bound| bound.value > 0);
    promised
        .map(|bound| bound.value as f64)
        .ok_or_else(|| format!("variant {} is promised nothing for {of}", variant.name))
}

/// The name of the bound that is a promise.
pub(crate) const PROMISED: &str = "promised";

/// A figure of a variant: `SERIES.STATISTIC` or the name of a value.
pub(crate) fn read(variant: &Variant, of: &str) -> Result<f64, String> {
    let missing = || format!("variant {} has no {of}", variant.name);
    let Some((series, statistic)) = of.split_once('.') else {
        return variant
            .values
            .get(of)
            .map(|value| value.value)
            .ok_or_else(missing);
    };
    let series = variant.series.get(series).ok_or_else(missing)?;
    let statistic = Statistic::ALL
        .into_iter()
        .find(|known| known.key() == statistic);
    match statistic {
        Some(statistic) if series.stats.count > 0 => Ok(figure_of(&series.stats, statistic) as f64),
        _ => Err(missing()),
    }
}

/// The share of a core that went to somebody else, beyond which what was done
/// on it cannot be judged.
const MAX_FOREIGN_SHARE: f64 = 0.03;
/// Its value.
pub(crate) const FOREIGN_SHARE: &str = "foreign_share";

/// The verdict on a run and why, in one line. `on_core` are the values that say
/// what was done on the shared core.
///
/// The machine is too noisy when too many samples were hit of a series that a
/// check rests on, or when others used the core whose work a check is about. Checks that could not be judged because a variant is not available here do
/// not count; with none that could be judged there is nothing to pass.
pub fn verdict(
    expected: &[Check],
    on_core: &[&str],
    variants: &[Variant],
    checks: &[CheckResult],
) -> (Verdict, String) {
    for variant in variants {
        let foreign = variant.values.get(FOREIGN_SHARE).map(|value| value.value);
        let rests = expected.iter().any(|check| {
            on_core.contains(&check.of.get_ref().as_str()) && names(check, &variant.name)
        });
        if let Some(foreign) = foreign.filter(|share| rests && *share > MAX_FOREIGN_SHARE) {
            let reason = format!(
                "other programs used {:.0} % of the shared core in variant {}: too noisy to judge \
                 what was done there, use --repeat or a quieter machine",
                foreign * 100.0,
                variant.name
            );
            return (Verdict::Noisy, reason);
        }
    }
    for variant in variants {
        for (name, series) in &variant.series {
            if !expected
                .iter()
                .any(|check| rests_on(check, &variant.name, name))
            {
                continue;
            }
            let (hit, all) = (series.hit.total(), series.all.count);
            let share = hit as f64 / all.max(1) as f64;
            if share > MAX_HIT_SHARE {
                let reason = format!(
                    "{hit} of {all} samples of {name} in variant {} were hit by the machine's own \
                     noise ({} stolen, {} ours): too noisy to judge, use --repeat or a quieter machine",
                    variant.name, series.hit.stolen, series.hit.ours
                );
                return (Verdict::Noisy, reason);
            }
        }
    }
    let judged: Vec<_> = checks.iter().filter(|check| check.got.is_some()).collect();
    let failed: Vec<_> = judged.iter().filter(|check| !check.pass).collect();
    let listed = |checks: &[&&CheckResult]| {
        let names: Vec<_> = checks.iter().map(|check| check.name.as_str()).collect();
        names.join(", ")
    };
    if !failed.is_empty() {
        let reason = format!(
            "{} of {} checks failed: {}",
            failed.len(),
            judged.len(),
            listed(&failed)
        );
        return (Verdict::Fail, reason);
    }
    let skipped = checks.len() - judged.len();
    let reason = match (judged.len(), skipped) {
        (0, 0) => "nothing is expected of this run".to_owned(),
        (0, _) => {
            let why = checks
                .iter()
                .find_map(|check| check.note.clone())
                .unwrap_or_default();
            return (Verdict::Noisy, format!("cannot judge: {why}"));
        }
        (judged, 0) => format!("all {judged} checks hold"),
        (judged, _) => format!("{judged} checks hold, {skipped} could not be judged"),
    };
    (Verdict::Pass, reason)
}

fn rests_on(check: &Check, variant: &str, series: &str) -> bool {
    let of = check.of.get_ref().split_once('.').map(|(name, _)| name);
    of == Some(series) && names(check, variant)
}

/// Whether a check compares or judges that variant.
fn names(check: &Check, variant: &str) -> bool {
    let mut variants = check.from.iter().chain(&check.to);
    variants.any(|name| name.get_ref() == variant)
}

#[cfg(test)]
mod tests;
