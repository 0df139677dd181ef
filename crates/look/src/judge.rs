//! The verdict on a guest: the cause of most of its delay, if there is one.

use crate::cause::{Cause, Kind};
use crate::divide::Division;
use crate::evidence::{CpuUse, Evidence, Handles, Limits};
pub use crate::periods::Basis;
use crate::periods::{
    Periods, has_half, is_negligible, is_proof, is_sampled, periods, shared, sum,
};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use tailbound_units::Nanos;

/// A cause is named if at least this many periods have it for at least half of their time.
const MIN_AFFECTED: usize = 3;
/// Of periods this long in sum, [`FEW_LONG`] are enough: no error of a measurement lasts as long, and one
/// alone may be a connection on which the peer answers when something happens.
const LONG_SUM: Nanos = Nanos::from_secs(1);
/// The periods that are enough if they are [`LONG_SUM`] together.
const FEW_LONG: usize = 2;
/// Other evidence settles a doubt about requests only if the cause has one in this many parts of their delay.
const AGREED_PART: u64 = 5;
/// Interrupts slow a guest down if they have one in this many parts of its CPUs: they come in bursts.
const BUSY_PART: u64 = 4;

/// The reason why no cause is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// Most of the delay has no known cause.
    NoCause,
    /// No cause explains half of the delay.
    Mixed,
    /// There were too few slow periods.
    TooFew,
    /// Most of the waits were not read in time.
    Lost,
    /// Nothing was slow in a sample that is too small, and interrupts had much of the guest's CPUs.
    SmallSample,
    /// Nothing could be examined.
    Nothing,
}

/// The finding about a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// Nothing that could be examined was slow.
    NothingSlow,
    /// Most of the delay has this cause.
    Because(Cause),
    /// The cause is not known.
    Unknown(Doubt),
}

/// The part of the delay that one cause has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// The cause.
    pub cause: Cause,
    /// Its time.
    pub time: Nanos,
    /// The periods of which it has at least half.
    pub periods: usize,
}

/// The verdict on a guest in a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The guest's name.
    pub guest: String,
    /// The length of the window.
    pub window: Nanos,
    /// The kind of the periods.
    pub basis: Basis,
    /// The finding.
    pub finding: Finding,
    /// The slow periods of the window.
    pub slow: usize,
    /// The sum of their lengths.
    pub delay: Nanos,
    /// The part of `delay` by which guests are ranked: without the time in which a thread that lost
    /// its CPU shared it with others, as every thread that computes without a pause does.
    pub ranked_delay: Nanos,
    /// The periods that were judged: the slowest.
    pub judged: usize,
    /// The sum of their lengths, which is that of `shares`.
    pub judged_delay: Nanos,
    /// The longest.
    pub longest: Nanos,
    /// The judged periods of which the finding's kind of cause has at least half.
    pub affected: usize,
    /// The causes of the judged delay, the largest first.
    pub shares: Vec<Share>,
    /// Requests that were answered.
    pub answered: u64,
    /// Late waits that were not read in time.
    pub lost_waits: u64,
    /// The guest's limits.
    pub limits: Limits,
    /// The part of the window in which packets were examined; `None` if all of it.
    pub examined: Option<Nanos>,
    /// The part in which interrupts, and with them waits for a CPU, were examined; `None` if all of it.
    pub interrupts_examined: Option<Nanos>,
    /// The part of its CPUs that interrupts had in all of the window, in thousandths, as the kernel counts it;
    /// `None` if it is not known, or less than a quarter.
    pub interrupts_permille: Option<u64>,
    /// The parts that could not be examined, and why.
    pub unexamined: Vec<(&'static str, String)>,
    /// The commands that would change something.
    pub handles: Handles,
}

impl Verdict {
    /// The time of all causes of a kind in the judged delay; [`Kind::BusyHost`] is all other guests
    /// and programs.
    pub fn time(&self, kind: Kind) -> Nanos {
        time_of(kind, |kind| {
            let its = self.shares.iter().filter(|share| share.cause.kind == kind);
            Nanos(its.map(|share| share.time.0).sum())
        })
    }

    /// The names of a kind of cause with their times, the longest first.
    pub fn names(&self, kind: Kind) -> Vec<(Arc<str>, Nanos)> {
        let its = self.shares.iter().filter(|share| share.cause.kind == kind);
        its.filter_map(|share| Some((share.cause.by.clone()?, share.time)))
            .collect()
    }
}

/// Judges a guest.
pub fn judge(evidence: &Evidence) -> Verdict {
    let verdict = verdict_on(periods(evidence), evidence);
    by_waits(&verdict, evidence).unwrap_or(verdict)
}

/// The verdict by the waits of the guest's threads, if sampled requests leave a doubt. Requests that are
/// examined for a small part of the time may be too few or too mixed, and waits are examined longer. Their
/// cause is named only if it is also the largest one of the requests, beside the guest itself.
fn by_waits(verdict: &Verdict, evidence: &Evidence) -> Option<Verdict> {
    let is_doubtful = matches!(
        verdict.finding,
        Finding::Unknown(Doubt::NoCause | Doubt::Mixed | Doubt::TooFew)
    );
    if verdict.basis != Basis::Requests || !is_doubtful || !is_sampled(evidence) {
        return None;
    }
    let largest = largest_other(verdict)?;
    let waits = verdict_on(Periods::of_waits(evidence), evidence);
    let is_same = matches!(&waits.finding, Finding::Because(cause) if cause.kind == largest);
    is_same.then_some(waits)
}

/// The cause with most of the delay beside the guest itself, if it has a part worth a word.
fn largest_other(verdict: &Verdict) -> Option<Kind> {
    let own = [Kind::GuestItself, Kind::Unknown, Kind::BusyHost];
    let others = Kind::ALL.into_iter().filter(|kind| !own.contains(kind));
    let largest = others.max_by_key(|kind| verdict.time(*kind))?;
    has_part(verdict.time(largest), verdict.judged_delay).then_some(largest)
}

/// Returns true if interrupts have a part of the delay worth a word, and no guest, program or other cause that
/// could be named has more. Several programs that have more together are no cause that could be named.
fn interrupts_lead(verdict: &Verdict) -> bool {
    let time = verdict.time(Kind::Interrupts);
    let own = [Kind::GuestItself, Kind::Unknown, Kind::Interrupts];
    let mut others = verdict.shares.iter();
    has_part(time, verdict.judged_delay)
        && others.all(|share| own.contains(&share.cause.kind) || share.time <= time)
}

fn has_part(part: Nanos, whole: Nanos) -> bool {
    part.0 >= whole.0.div_ceil(AGREED_PART)
}

/// The part of the guest's CPUs that interrupts had, in thousandths, if it is large.
fn busy_interrupts(evidence: &Evidence) -> Option<u64> {
    let sum = |of: fn(&CpuUse) -> u64| evidence.cpu_use.iter().map(|it| u128::from(of(it))).sum();
    let whole: u128 = sum(|it| it.until.since(it.from).0);
    let taken: u128 = sum(|it| it.interrupts.0);
    let is_busy = whole > 0 && taken * u128::from(BUSY_PART) >= whole;
    is_busy.then(|| u64::try_from(taken * 1_000 / whole.max(1)).unwrap_or(u64::MAX))
}

fn verdict_on(periods: Periods, evidence: &Evidence) -> Verdict {
    let Periods {
        basis,
        lengths,
        divisions,
        left_out,
    } = periods;
    let delay = sum(&lengths).saturating_add(left_out.time);
    let left_out = usize::try_from(left_out.count).unwrap_or(usize::MAX);
    let shared = match basis {
        Basis::Waits => shared(&evidence.waits).saturating_add(evidence.left_out.shared),
        Basis::Requests | Basis::Packets | Basis::Windows => Nanos::ZERO,
    };
    let mut verdict = Verdict {
        guest: evidence.guest.clone(),
        window: evidence.window,
        basis,
        finding: Finding::NothingSlow,
        slow: lengths.len().saturating_add(left_out),
        delay,
        ranked_delay: delay.saturating_sub(shared),
        judged: divisions.len(),
        judged_delay: Nanos(divisions.iter().map(|it| it.length().0).sum()),
        longest: lengths.iter().copied().max().unwrap_or_default(),
        affected: 0,
        shares: shares(&divisions),
        answered: evidence.answered,
        lost_waits: evidence.lost_waits,
        limits: evidence.limits.clone(),
        examined: evidence.examined.time,
        interrupts_examined: evidence.examined.interrupts_time,
        interrupts_permille: busy_interrupts(evidence),
        unexamined: unexamined(evidence),
        handles: evidence.handles.clone(),
    };
    let is_quiet = is_negligible(basis, &lengths, evidence);
    (verdict.finding, verdict.affected) = find(&verdict, &divisions, is_quiet, evidence);
    verdict
}

/// The order of two verdicts: most delay first, in proportion to the window; guests with nothing slow
/// last, each by name.
pub fn worse_first(a: &Verdict, b: &Verdict) -> Ordering {
    let is_quiet = |it: &Verdict| it.finding == Finding::NothingSlow;
    let weight = |it: &Verdict, other: &Verdict| {
        u128::from(it.ranked_delay.0) * u128::from(other.window.0.max(1))
    };
    is_quiet(a)
        .cmp(&is_quiet(b))
        .then_with(|| weight(b, a).cmp(&weight(a, b)))
        .then_with(|| a.guest.cmp(&b.guest))
}

/// The time of a kind of cause, from the times of those that time is divided to.
pub(crate) fn time_of(kind: Kind, time: impl Fn(Kind) -> Nanos) -> Nanos {
    match kind {
        Kind::BusyHost => time(Kind::NeighbourCpu).saturating_add(time(Kind::ProgramCpu)),
        kind => time(kind),
    }
}

fn shares(divisions: &[Division]) -> Vec<Share> {
    let mut found: BTreeMap<&Cause, (Nanos, usize)> = BTreeMap::new();
    for division in divisions {
        let length = division.length().0;
        for (cause, time) in &division.parts {
            let (sum, periods) = found.entry(cause).or_default();
            sum.0 += time.0;
            *periods += usize::from(time.0 >= length.div_ceil(2));
        }
    }
    let share = |(cause, (time, periods)): (&Cause, (Nanos, usize))| Share {
        cause: cause.clone(),
        time,
        periods,
    };
    let mut shares: Vec<_> = found.into_iter().map(share).collect();
    sort_shares(&mut shares);
    shares
}

/// Puts the largest first.
pub(crate) fn sort_shares(shares: &mut [Share]) {
    shares.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.cause.cmp(&b.cause)));
}

/// The kind of cause with most of the delay, and the reason why it is not named, if there is one.
/// `affected` is the number of periods of which a kind has at least half.
pub(crate) fn named(
    time: impl Fn(Kind) -> Nanos,
    whole: Nanos,
    affected: impl Fn(Kind) -> usize,
) -> (Kind, Option<Doubt>) {
    let divided = Kind::ALL.into_iter().filter(|kind| *kind != Kind::BusyHost);
    let largest = divided.max_by_key(|kind| time(*kind));
    let kind = largest.unwrap_or(Kind::Unknown);
    // Guests and programs together may be the cause if neither alone is.
    let kind = if !has_half(time(kind), whole) && has_half(time(Kind::BusyHost), whole) {
        Kind::BusyHost
    } else {
        kind
    };
    let doubt = if kind == Kind::Unknown {
        Some(Doubt::NoCause)
    } else if !has_half(time(kind), whole) {
        Some(Doubt::Mixed)
    } else if affected(kind) < least_affected(time(kind)) {
        Some(Doubt::TooFew)
    } else {
        None
    };
    (kind, doubt)
}

/// The periods that name a cause of this time.
fn least_affected(time: Nanos) -> usize {
    if time >= LONG_SUM {
        FEW_LONG
    } else {
        MIN_AFFECTED
    }
}

fn unexamined(evidence: &Evidence) -> Vec<(&'static str, String)> {
    let examined = &evidence.examined;
    let parts = [
        ("waits for a CPU", &examined.cpu),
        ("packets", &examined.packets),
        ("time of interrupts", &examined.interrupts),
        ("steal", &examined.steal),
    ];
    let missing = parts
        .into_iter()
        .filter_map(|(part, known)| Some((part, known.as_ref().err()?.clone())));
    missing.collect()
}

/// Returns the finding, and the periods of which its kind of cause has at least half.
fn find(
    verdict: &Verdict,
    divisions: &[Division],
    is_quiet: bool,
    evidence: &Evidence,
) -> (Finding, usize) {
    let examined = &evidence.examined;
    if examined.cpu.is_err() && examined.packets.is_err() {
        return (Finding::Unknown(Doubt::Nothing), 0);
    }
    let read = evidence
        .left_out
        .waits
        .count
        .saturating_add(evidence.waits.len() as u64);
    if evidence.lost_waits > read && verdict.basis != Basis::Packets {
        return (Finding::Unknown(Doubt::Lost), 0);
    }
    if is_quiet {
        // Interrupts that the kernel counted slow some requests, which a small sample need not have.
        let is_doubtful = verdict.interrupts_permille.is_some() && !is_proof(evidence);
        let finding = if is_doubtful && verdict.basis == Basis::Requests {
            Finding::Unknown(Doubt::SmallSample)
        } else {
            Finding::NothingSlow
        };
        return (finding, 0);
    }
    let affected = |kind| {
        let affected = divisions
            .iter()
            .filter(|division| has_half(time_of(kind, |it| division.of(it)), division.length()));
        affected.count()
    };
    let (kind, doubt) = named(|kind| verdict.time(kind), verdict.judged_delay, affected);
    let is_settled = verdict.interrupts_permille.is_some()
        && interrupts_lead(verdict)
        && verdict.basis == Basis::Requests;
    if doubt.is_some() && is_settled {
        // Bursts of interrupts are a part of many requests, and the kernel's own count has them all.
        let kind = Kind::Interrupts;
        let divisions = divisions.iter();
        let affected = divisions.filter(|it| has_part(it.of(kind), it.length()));
        return (Finding::Because(Cause::of(kind)), affected.count());
    }
    let finding = match doubt {
        Some(doubt) => Finding::Unknown(doubt),
        None => Finding::Because(Cause {
            kind,
            by: verdict
                .names(kind)
                .first()
                .map(|(name, _)| Arc::clone(name)),
        }),
    };
    (finding, affected(kind))
}

#[cfg(test)]
mod tests;
