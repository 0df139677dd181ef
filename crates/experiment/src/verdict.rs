//! The verdict on a run. Pure.
//!
//! A check that rests on a variant that did not run is *not judged*: it neither
//! holds nor fails, and where all are the run is UNJUDGED. One that is known to miss and does is
//! told, and decides nothing. Whatever noise the machine made is told with every verdict. A check
//! that there was too much of it for is not judged, either: unless others fail that noise did not
//! reach, the run is NOISY.

use crate::Check;
use tailbound_report::{CheckResult, Hit, Outcome, Variant, Verdict};

/// What rests on a series with more samples set apart than this cannot be judged, unless it holds
/// with them as well.
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
    /// What that may have done to a check.
    pub harm: Harm,
}

/// What noise may have done to a check that rests on what it disturbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// Helped it or kept it from holding: it is not judged.
    Either,
    /// Kept it from holding, and nothing else: where it holds all the same, it is judged.
    Against,
}

/// The verdict on checks and why, in one line. What fails where nothing disturbs it fails;
/// otherwise a check that noise may have decided leaves the run without a verdict.
pub(crate) fn verdict(
    variants: &[Variant],
    noise: &Noise,
    checks: &[CheckResult],
) -> (Verdict, String) {
    let (verdict, reason) = judge(checks);
    (verdict, format!("{reason}; {}", told(noise, variants)))
}

fn judge(checks: &[CheckResult]) -> (Verdict, String) {
    let names = |outcome: Outcome| -> Vec<&str> {
        let come_out = checks.iter().filter(|it| it.outcome() == outcome);
        come_out.map(|it| it.name.as_str()).collect()
    };
    let (failed, noisy, held) = (
        names(Outcome::Fail),
        names(Outcome::Noisy),
        names(Outcome::Pass),
    );
    let (known, not_judged) = (names(Outcome::Misses), names(Outcome::NotJudged));
    let rest = [
        (&known, "known not to hold"),
        (&not_judged, "not judged"),
        (&noisy, "too noisy to judge"),
    ];
    let told = rest.iter().filter(|(names, _)| !names.is_empty());
    let told = told.map(|(names, what)| format!(", {} {what}: {}", names.len(), names.join(", ")));
    let rest = told.collect::<Vec<_>>().concat();
    let why = |of: fn(&CheckResult) -> Option<&String>| {
        checks.iter().find_map(of).map_or("", String::as_str)
    };
    if !failed.is_empty() {
        let (number, judged) = (failed.len(), failed.len() + held.len());
        let reason = format!(
            "{number} of {judged} checks failed: {}{rest}",
            failed.join(", ")
        );
        return (Verdict::Fail, reason);
    }
    if !noisy.is_empty() {
        let why = why(|it| it.noise.as_ref());
        let holds = holds(held.len());
        let reason = format!("{why}; {holds}{rest}, use --repeat or a quieter machine");
        return (Verdict::Noisy, reason);
    }
    match held.len() {
        _ if checks.is_empty() => (Verdict::Pass, "nothing is expected of this run".to_owned()),
        0 if known.is_empty() => {
            let why = why(|it| it.not_judged.as_ref());
            (
                Verdict::Unjudged,
                format!("no check could be judged: {why}"),
            )
        }
        0 => (Verdict::Fail, format!("no check holds{rest}")),
        number if number > 1 && rest.is_empty() => {
            (Verdict::Pass, format!("all {number} checks hold"))
        }
        number => (Verdict::Pass, format!("{}{rest}", holds(number))),
    }
}

fn holds(number: usize) -> String {
    match number {
        0 => "no check holds".to_owned(),
        1 => "the check holds".to_owned(),
        number => format!("{number} checks hold"),
    }
}

/// Why the machine was too noisy for a check that `holds` or does not: a figure that it rests on
/// was disturbed, or too many samples of its series were hit, unless it `holds_with_hit` ones too.
pub(crate) fn too_noisy(
    check: &Check,
    variants: &[Variant],
    noise: &Noise,
    holds: bool,
    holds_with_hit: impl Fn() -> bool,
) -> Option<String> {
    let Noise::Watched(disturbed) = noise else {
        return None;
    };
    let is_disturbed = |it: &&Disturbance| {
        let mut figures = it.figures.iter().map(String::as_str);
        let rests = |figure| figure == check.of.get_ref() || Some(figure) == check.series();
        let is_harm = !(holds && it.harm == Harm::Against);
        is_harm && check.names(&it.variant) && figures.any(rests)
    };
    if let Some(it) = disturbed.iter().find(is_disturbed) {
        let (of, variant) = (check.of.get_ref(), &it.variant);
        return Some(format!(
            "{of} of variant {variant} was disturbed: {}",
            it.why
        ));
    }
    let hit = |variant: &&Variant| {
        let name = check.series()?;
        let series = variant.series.get(name)?;
        let (hit, all) = (series.hit.total(), series.all.count);
        let share = hit as f64 / all.max(1) as f64;
        (share > MAX_HIT_SHARE).then(|| {
            format!(
                "{} of {all} samples of {name} in variant {} were hit by the machine's own noise",
                of_kinds(series.hit),
                variant.name
            )
        })
    };
    let mut rests_on = variants.iter().filter(|variant| check.names(&variant.name));
    let hit = rests_on.find_map(|variant| hit(&variant));
    hit.filter(|_| !(holds && holds_with_hit()))
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
