//! The verdict on a run. Pure.
//!
//! A check that rests on a variant that did not run is *not judged*: it neither
//! holds nor fails, and where all are the run is UNJUDGED. One that is known to miss and does is told, and decides nothing.
//! Whatever noise the machine made is told with every verdict;
//! where there was too much of it for a check, there is none but NOISY.

use crate::Check;
use tailbound_report::{CheckResult, Hit, Variant, Verdict};

/// A variant with more samples set apart than this cannot be judged.
const MAX_HIT_SHARE: f64 = 0.05;

/// What is known of the machine's own noise during a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Noise {
    /// Time was virtual: no noise reaches it.
    #[default]
    Virtual,
    /// Times are the machine's own, and nobody watched what else it did.
    Unknown,
    /// The machine was watched: samples that were hit are set apart in their series,
    /// and these are the other figures that it disturbed.
    Watched(Vec<Disturbance>),
}

/// Figures of a variant that the machine's noise made useless.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disturbance {
    /// The variant.
    pub variant: String,
    /// Its values, and its series.
    pub figures: Vec<String>,
    /// What happened.
    pub why: String,
}

/// The verdict on checks and why, in one line. `expected` are those that rest on what
/// noise can reach.
pub(crate) fn verdict(
    expected: &[Check],
    variants: &[Variant],
    noise: &Noise,
    checks: &[CheckResult],
) -> (Verdict, String) {
    if let Some(why) = too_noisy(expected, variants, noise) {
        let reason = format!("{why}: too noisy to judge, use --repeat or a quieter machine");
        return (Verdict::Noisy, reason);
    }
    let (verdict, reason) = judge(checks);
    (verdict, format!("{reason}; {}", told(noise, variants)))
}

fn judge(checks: &[CheckResult]) -> (Verdict, String) {
    let (mut failed, mut not_judged, mut known) = (Vec::new(), Vec::new(), Vec::new());
    for result in checks {
        let name = result.name.as_str();
        match (&result.not_judged, result.pass, &result.misses) {
            (Some(_), _, _) => not_judged.push(name),
            (None, false, None) => failed.push(name),
            (None, false, Some(_)) => known.push(name),
            (None, true, _) => {}
        }
    }
    let judged = checks.len() - not_judged.len() - known.len();
    let rest = [(&known, "known not to hold"), (&not_judged, "not judged")];
    let told = rest.iter().filter(|(names, _)| !names.is_empty());
    let told = told.map(|(names, what)| format!(", {} {what}: {}", names.len(), names.join(", ")));
    let rest = told.collect::<Vec<_>>().concat();
    if !failed.is_empty() {
        let (number, names) = (failed.len(), failed.join(", "));
        let reason = format!("{number} of {judged} checks failed: {names}{rest}");
        return (Verdict::Fail, reason);
    }
    match (judged, checks.first()) {
        (_, None) => (Verdict::Pass, "nothing is expected of this run".to_owned()),
        (0, Some(first)) if known.is_empty() => {
            let why = first.not_judged.as_deref().unwrap_or_default();
            (
                Verdict::Unjudged,
                format!("no check could be judged: {why}"),
            )
        }
        (0, _) => (Verdict::Fail, format!("no check holds{rest}")),
        (1, _) => (Verdict::Pass, format!("the check holds{rest}")),
        (_, _) if rest.is_empty() => (Verdict::Pass, format!("all {judged} checks hold")),
        (_, _) => (Verdict::Pass, format!("{judged} checks hold{rest}")),
    }
}

/// Why the machine was too noisy to judge: too many samples were hit of a series that
/// a check rests on, or a value was disturbed.
fn too_noisy(expected: &[Check], variants: &[Variant], noise: &Noise) -> Option<String> {
    let Noise::Watched(disturbed) = noise else {
        return None;
    };
    for it in disturbed {
        let is_needed = |check: &&Check| {
            let mut figures = it.figures.iter().map(String::as_str);
            let rests = |figure| figure == check.of.get_ref() || Some(figure) == check.series();
            check.names(&it.variant) && figures.any(rests)
        };
        if let Some(check) = expected.iter().find(is_needed) {
            let (of, variant) = (check.of.get_ref(), &it.variant);
            return Some(format!(
                "{of} of variant {variant} was disturbed: {}",
                it.why
            ));
        }
    }
    for variant in variants {
        for (name, series) in &variant.series {
            let rests =
                |check: &Check| check.series() == Some(name.as_str()) && check.names(&variant.name);
            let (hit, all) = (series.hit.total(), series.all.count);
            let share = hit as f64 / all.max(1) as f64;
            if share > MAX_HIT_SHARE && expected.iter().any(rests) {
                return Some(format!(
                    "{} of {all} samples of {name} in variant {} were hit by the machine's own \
                     noise",
                    of_kinds(series.hit),
                    variant.name
                ));
            }
        }
    }
    None
}

/// The noise in one clause.
pub(crate) fn told(noise: &Noise, variants: &[Variant]) -> String {
    match noise {
        Noise::Virtual => "no noise, time is virtual".to_owned(),
        Noise::Unknown => "times are this machine's, its noise is not known".to_owned(),
        Noise::Watched(disturbed) => {
            let series = variants.iter().flat_map(|variant| variant.series.values());
            let (mut hit, mut all) = (Hit::default(), 0);
            for series in series {
                hit.ours += series.hit.ours;
                hit.stolen += series.hit.stolen;
                all += series.all.count;
            }
            let more = disturbed.iter().map(|it| format!(", {}", it.why));
            let more: String = more.collect();
            format!("noise hit {} of {all} samples{more}", of_kinds(hit))
        }
    }
}

/// How many samples were hit, by whose fault.
fn of_kinds(hit: Hit) -> String {
    match hit.total() {
        0 => "none".to_owned(),
        number => format!("{number} ({} stolen, {} ours)", hit.stolen, hit.ours),
    }
}
