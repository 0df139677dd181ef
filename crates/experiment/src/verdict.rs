//! The verdict on a run. Pure.
//!
//! A check that depends on a variant that did not run, or on too few samples, is NOT TESTED: it
//! neither holds nor fails. A check that noise on the computer may have decided is NOISY. A check
//! with a known miss decides nothing. The run fails if a check fails, is NOISY if a check is and no
//! other fails, and is NOT TESTED if no check was tested. The reason of every verdict states the
//! noise, each cause once.

use crate::Check;
use std::fmt;
use tailbound_report::{CheckResult, Hit, Outcome, Statistic, Variant, Verdict};

/// Knowledge of the computer's noise during a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Noise {
    /// Time was virtual: no noise affects it.
    #[default]
    Virtual,
    /// Times are this computer's, and its noise was not watched.
    Unknown,
    /// The computer was watched: disturbed samples are separated in their series, and this list has
    /// the other disturbed figures.
    Watched(Vec<Disturbance>),
}

/// Figures of a variant that noise made useless.
#[derive(Debug, Clone, PartialEq)]
pub struct Disturbance {
    /// The variant.
    pub variant: String,
    /// Its values and series; `None` for all of them.
    pub figures: Option<Vec<String>>,
    /// Cause of the disturbance.
    pub cause: Cause,
    /// Possible effect on a check.
    pub harm: Harm,
}

impl Disturbance {
    /// Returns whether the check's figure was disturbed.
    fn reaches(&self, check: &Check) -> bool {
        self.figures.as_ref().is_none_or(|figures| {
            let mut figures = figures.iter().map(String::as_str);
            figures.any(|figure| figure == check.of.get_ref() || Some(figure) == check.series())
        })
    }

    /// Returns the disturbance of the check's figure, in words.
    pub(crate) fn of(&self, check: &Check) -> String {
        let (of, variant) = (check.of.get_ref(), &self.variant);
        format!("{of} of variant {variant} was disturbed: {}", self.cause)
    }
}

/// Returns the disturbance that delayed the most samples of the check's series in this variant,
/// with the largest share of samples that it may have delayed.
pub(crate) fn delayed<'n>(
    check: &Check,
    variant: &str,
    noise: &'n Noise,
) -> Option<(f64, &'n Disturbance)> {
    let Noise::Watched(disturbed) = noise else {
        return None;
    };
    let delays = disturbed.iter().filter_map(|it| match it.harm {
        Harm::Delayed(share) if it.variant == variant && it.reaches(check) => Some((share, it)),
        _ => None,
    });
    delays.max_by(|(one, _), (other, _)| one.total_cmp(other))
}

/// The cause of a disturbance. Causes that differ in their percentage alone are reported as one.
#[derive(Debug, Clone, PartialEq)]
pub enum Cause {
    /// An event.
    Event(String),
    /// A percentage, with the words before and after: "other programs used", 90.0, "of the CPUs".
    Share(&'static str, f64, &'static str),
}

impl Cause {
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Event(one), Self::Event(another)) => one == another,
            (Self::Share(who, _, of), Self::Share(other_who, _, of_other)) => {
                (who, of) == (other_who, of_other)
            }
            _ => false,
        }
    }

    fn percent(&self) -> Option<f64> {
        match self {
            Self::Event(_) => None,
            Self::Share(_, percent, _) => Some(*percent),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event(what) => formatter.write_str(what),
            Self::Share(who, percent, of) => write!(formatter, "{who} {percent:.0} % {of}"),
        }
    }
}

/// Possible effect of noise on a check that depends on disturbed figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Harm {
    /// The figures of the variant were slower. That may help a comparison or a lower bound; an upper
    /// bound on a figure of one variant that holds is judged.
    Slower,
    /// Some samples of the series were delayed, at most this share of them, and none was
    /// accelerated: a check is judged if it comes out the same without this share of the longest
    /// samples, in each of the variants that it depends on. Figures of no series count as disturbed
    /// in either direction.
    Delayed(f64),
    /// The variant ended before it had figures.
    Lost,
}

impl Harm {
    /// Returns whether a check that holds is judged despite the disturbance.
    fn spares(self, check: &Check) -> bool {
        match self {
            Self::Lost => false,
            Self::Delayed(_) => check.series().is_some(),
            Self::Slower => check.from.is_none() && check.at_least.is_none(),
        }
    }
}

/// Returns the verdict on checks and its reason in one line. A check that fails without a
/// disturbance fails the run; otherwise a check that noise may have decided makes the run NOISY.
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
    let (known, not_tested) = (names(Outcome::Misses), names(Outcome::NotTested));
    let rest = [
        (&known, "known not to hold"),
        (&not_tested, "NOT TESTED"),
        (&noisy, "too noisy to judge"),
    ];
    let told = rest.iter().filter(|(names, _)| !names.is_empty());
    let told = told.map(|(names, what)| format!(", {} {what}: {}", names.len(), names.join(", ")));
    let rest = told.collect::<Vec<_>>().concat();
    if !failed.is_empty() {
        let (number, judged) = (failed.len(), failed.len() + held.len());
        let reason = format!(
            "{number} of {judged} checks failed: {}{rest}",
            failed.join(", ")
        );
        return (Verdict::Fail, reason);
    }
    if !noisy.is_empty() {
        let holds = holds(held.len());
        let reason = format!("{holds}{rest}; use --repeat or a quieter computer");
        return (Verdict::Noisy, reason);
    }
    match held.len() {
        _ if checks.is_empty() => (Verdict::Pass, "nothing is expected of this run".to_owned()),
        0 if !not_tested.is_empty() => {
            let why = checks.iter().find_map(|it| it.not_judged.as_deref());
            let why = why.unwrap_or_default();
            let reason = match known.len() {
                0 => format!("no check could be tested: {why}"),
                _ => format!("no check holds{rest}: {why}"),
            };
            (Verdict::NotTested, reason)
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

/// Returns the reason if the check has too few samples for a test: a variant that it depends on has
/// fewer samples than its figure needs. Unanswered requests count as samples, because they must not
/// prevent a test. In virtual time only the check's own minimum counts.
pub(crate) fn too_few(check: &Check, rests_on: &[&Variant], noise: &Noise) -> Option<String> {
    let (series, statistic) = check.of.get_ref().split_once('.')?;
    let wanted = match noise {
        Noise::Virtual => 0,
        _ => Statistic::of_key(statistic)?.wanted_samples(),
    };
    let wanted = wanted.max(check.samples.as_ref().map_or(0, |it| *it.get_ref()));
    let fewest = |series: &str| {
        let counted = rests_on.iter().filter_map(|variant| {
            let series = variant.series.get(series)?;
            Some((series.all.count + series.unanswered, &variant.name))
        });
        counted.min_by_key(|(count, _)| *count)
    };
    if let Some(driver) = check
        .driven_by
        .as_ref()
        .filter(|_| *noise != Noise::Virtual)
    {
        let (driver, wanted) = (driver.get_ref(), Statistic::Mean.wanted_samples());
        if let Some((has, variant)) = fewest(driver).filter(|(has, _)| *has < wanted) {
            return Some(format!(
                "{series}.{statistic} depends on {driver}, which wants {wanted} samples, variant \
                 {variant} has {has}"
            ));
        }
    }
    let (has, variant) = fewest(series)?;
    (has < wanted).then(|| {
        format!("{series}.{statistic} wants {wanted} samples, variant {variant} has {has}")
    })
}

/// Returns the reason if noise ended a variant that the check needs.
pub(crate) fn lost(check: &Check, noise: &Noise, judged: bool) -> Option<String> {
    let Noise::Watched(disturbed) = noise else {
        return None;
    };
    let needs = |variant: &str| {
        let mut named = check.at.iter().chain(&check.from);
        named.any(|name| name.get_ref() == variant) || !judged && check.names(variant)
    };
    let mut lost = disturbed.iter().filter(|it| it.harm == Harm::Lost);
    let it = lost.find(|it| needs(&it.variant))?;
    Some(format!("variant {} was lost: {}", it.variant, it.cause))
}

/// Returns the reason if the computer was too noisy for a check that `holds` or does not: a figure
/// that it depends on was disturbed; it holds only with or only without the disturbed samples; or
/// it fails either way and the share of disturbed samples exceeds its figure's allowance.
pub(crate) fn too_noisy(
    check: &Check,
    rests_on: &[&Variant],
    noise: &Noise,
    holds: bool,
    holds_with_hit: impl FnOnce() -> bool,
) -> Option<String> {
    let Noise::Watched(disturbed) = noise else {
        return None;
    };
    let is_disturbed = |it: &&Disturbance| {
        let is_variant = rests_on.iter().any(|variant| variant.name == it.variant);
        let is_spared = matches!(it.harm, Harm::Delayed(_)) || holds;
        it.reaches(check) && is_variant && !(is_spared && it.harm.spares(check))
    };
    if let Some(it) = disturbed.iter().find(is_disturbed) {
        return Some(it.of(check));
    }
    let holds_with_hit = holds_with_hit();
    let (series, statistic) = check.of.get_ref().split_once('.')?;
    let allowance = Statistic::of_key(statistic)?.allowance();
    // The variant with the largest share of disturbed samples.
    let set_apart = rests_on.iter().filter_map(|variant| {
        let series = variant.series.get(series)?;
        let share = series.hit.total() as f64 / series.all.count.max(1) as f64;
        Some((share, series, &variant.name))
    });
    let (share, of, variant) = set_apart.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let amount = format!(
        "{} of variant {variant}",
        disturbed_samples(of.hit, of.all.count)
    );
    match (holds, holds_with_hit) {
        (true, true) => None,
        (false, false) => (share > allowance).then(|| {
            let allowed = (allowance * 1e4).round() / 1e2;
            format!("{amount}; {series}.{statistic} allows {allowed} %")
        }),
        (true, false) => Some(format!("{amount}; it holds only without them")),
        (false, true) => Some(format!("{amount}; it holds only with them")),
    }
}

/// Returns the noise in one clause: each cause once.
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
            let samples = (all > 0).then(|| disturbed_samples(hit, all));
            let noise: Vec<String> = samples.into_iter().chain(causes(disturbed)).collect();
            if noise.is_empty() {
                "nothing disturbed it".to_owned()
            } else {
                noise.join(", ")
            }
        }
    }
}

/// Returns each cause once, with the range of its percentages and the variants that it disturbed.
fn causes(disturbed: &[Disturbance]) -> Vec<String> {
    let mut groups: Vec<Vec<&Disturbance>> = Vec::new();
    for it in disturbed {
        let known = groups.iter_mut();
        let mut known = known.filter(|group| group.iter().all(|one| one.cause.is_like(&it.cause)));
        match known.next() {
            Some(group) => group.push(it),
            None => groups.push(vec![it]),
        }
    }
    let text = |group: Vec<&Disturbance>| {
        let first = &group[0];
        let shares = || group.iter().filter_map(|it| it.cause.percent());
        let least = shares().fold(f64::INFINITY, f64::min).round();
        let most = shares().fold(0.0, f64::max).round();
        let cause = match &first.cause {
            Cause::Share(who, _, of) if least < most => {
                format!("{who} {least:.0} to {most:.0} % {of}")
            }
            cause => cause.to_string(),
        };
        let mut names: Vec<&str> = group.iter().map(|it| it.variant.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        match names[..] {
            [name] => format!("{cause} in variant {name}"),
            _ => format!("{cause} in {} variants", names.len()),
        }
    };
    groups.into_iter().map(text).collect()
}

/// Returns the number of disturbed samples, by cause.
fn disturbed_samples(hit: Hit, all: u64) -> String {
    match hit.total() {
        0 => format!("none of {all} samples was disturbed"),
        number => format!(
            "{number} of {all} samples were disturbed ({} by the hypervisor, {} by a wait for a CPU)",
            hit.stolen, hit.ours
        ),
    }
}
