//! The slow periods of a guest: those of its requests, frames, waits for receivers, or threads.

use crate::cause::{Cause, Kind};
use crate::divide::{
    Division, Requests, divide_interruption, divide_packet, divide_stall, divide_wait, length,
    span, time_in_wait,
};
use crate::evidence::{CpuWait, Evidence, Interruption, Sum};
use std::cmp::Reverse;
use std::iter::repeat_n;
use tailbound_units::Nanos;

/// Largest number of slow periods that are judged: the slowest.
const MAX_PERIODS: usize = 60;
/// Waits for a CPU are nothing to speak of if they are less than this part of the window, and none
/// is as long as [`LONG_WAIT`].
const NEGLIGIBLE: u64 = 1_000;
/// Slow requests are nothing to speak of if they are less than one in this many, and none is as
/// long as [`LONG_WAIT`].
const ONE_IN: u64 = 100;
/// Packets are sampled if they were examined in less than one in this many parts of the window.
const SAMPLED_PART: u64 = 2;
/// A sample of requests of which none was slow rules slow ones out if it is as large: with a probability of
/// 95 %, fewer than one in a hundred are slow then (the rule of three).
const ENOUGH_SAMPLED: u64 = 300;
/// A frame that waits for less, or a wait for a receiver that is shorter, is no slow period.
pub(crate) const SLOW: Nanos = Nanos::from_millis(1);
/// Waits of frames, and waits for receivers, that are examined.
const MAX_MEANS: usize = 10_000;
/// A wait that is worth a word by itself.
const LONG_WAIT: Nanos = Nanos::from_millis(20);

/// The kind of slow periods that a verdict is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// Slow requests to the guest, or of it.
    Requests,
    /// Frames of bulk flows.
    Packets,
    /// Waits for a peer that took no more data from the guest.
    Windows,
    /// Waits of the guest's threads for a CPU: there were no requests, or they were not measured.
    Waits,
}

/// Returns true if packets were examined in a small part of the window.
pub(crate) fn is_sampled(evidence: &Evidence) -> bool {
    let examined = evidence.examined.time;
    examined.is_some_and(|time| time.0.saturating_mul(SAMPLED_PART) < evidence.window.0)
}

/// Returns true if the requests that were answered in time rule slow ones out.
pub(crate) fn is_proof(evidence: &Evidence) -> bool {
    let enough = if is_sampled(evidence) {
        ENOUGH_SAMPLED
    } else {
        1
    };
    evidence.answered >= enough
}

pub(crate) fn sum(lengths: &[Nanos]) -> Nanos {
    let lengths = lengths.iter();
    lengths.fold(Nanos::ZERO, |sum, length| sum.saturating_add(*length))
}

/// A time in which a thread could have run and did not.
enum Wait<'e> {
    /// The thread was ready and had no CPU.
    Ready(&'e CpuWait),
    /// Others took most of its run.
    Interrupted(&'e Interruption),
}

impl Wait<'_> {
    fn divide(&self) -> Division {
        match self {
            Self::Ready(wait) => divide_wait(wait),
            Self::Interrupted(run) => divide_interruption(run),
        }
    }
}

/// The slow periods of a guest.
pub(crate) struct Periods {
    pub(crate) basis: Basis,
    /// The length of each.
    pub(crate) lengths: Vec<Nanos>,
    /// The divisions of the slowest, slowest first.
    pub(crate) divisions: Vec<Division>,
    /// The shorter ones that the evidence does not have.
    pub(crate) left_out: Sum,
}

impl Periods {
    /// Divides the slowest waits alone: a wait is as long as its division. Runs of which others took most
    /// are waits, too.
    pub(crate) fn of_waits(evidence: &Evidence) -> Self {
        let waits = evidence.waits.iter().filter(|wait| is_slow(wait));
        let waits = waits.map(|it| (it.until.saturating_sub(it.from), Wait::Ready(it)));
        let runs = evidence.interruptions.iter();
        let runs = runs.filter_map(|it| Some((slow_part(it)?, Wait::Interrupted(it))));
        let (lengths, slowest) = slowest(waits.chain(runs));
        Self {
            basis: Basis::Waits,
            divisions: slowest.iter().map(Wait::divide).collect(),
            lengths,
            left_out: left_out(Basis::Waits, evidence),
        }
    }

    fn of(basis: Basis, mut divisions: Vec<Division>, evidence: &Evidence) -> Self {
        divisions.retain(|division| division.length() > Nanos::ZERO);
        divisions.sort_by_key(|division| Reverse(division.length()));
        let lengths = divisions.iter().map(Division::length).collect();
        divisions.truncate(MAX_PERIODS);
        Self {
            basis,
            lengths,
            divisions,
            left_out: left_out(basis, evidence),
        }
    }

    /// The sum of all lengths.
    fn delay(&self) -> Nanos {
        sum(&self.lengths).saturating_add(self.left_out.time)
    }

    /// Divides the slowest requests alone: each of them is compared with all waits.
    fn of_requests(evidence: &Evidence) -> Self {
        let (lengths, slowest) = slowest(evidence.requests.iter().map(|it| (length(it), it)));
        let spans: Vec<_> = slowest.iter().map(|it| span(it)).collect();
        let is_within = |wait: &&CpuWait| {
            let mut spans = spans.iter();
            spans.any(|(from, until)| wait.from < *until && wait.until > *from)
        };
        let mut requests = Requests::new(evidence.waits.iter().filter(is_within), evidence);
        let slowest = slowest.into_iter();
        Self {
            basis: Basis::Requests,
            divisions: slowest.map(|it| requests.divide(it)).collect(),
            lengths,
            left_out: left_out(Basis::Requests, evidence),
        }
    }
}

/// The periods that the evidence counts and does not have.
fn left_out(basis: Basis, evidence: &Evidence) -> Sum {
    match basis {
        Basis::Requests => evidence.left_out.requests,
        Basis::Packets => evidence.left_out.packets,
        Basis::Windows => evidence.left_out.stalls,
        Basis::Waits => evidence.left_out.waits,
    }
}

/// Returns the lengths of periods, the longest first, and the periods that are judged.
fn slowest<T>(timed: impl Iterator<Item = (Nanos, T)>) -> (Vec<Nanos>, Vec<T>) {
    let mut timed: Vec<_> = timed.filter(|(time, _)| *time > Nanos::ZERO).collect();
    timed.sort_by_key(|(time, _)| Reverse(*time));
    let lengths = timed.iter().map(|(time, _)| *time).collect();
    timed.truncate(MAX_PERIODS);
    (lengths, timed.into_iter().map(|(_, it)| it).collect())
}

/// The slow periods of a guest: its requests or its waits for receivers, those with more delay; if
/// neither was slow, frames of bulk flows, else its waits for a CPU.
pub(crate) fn periods(evidence: &Evidence) -> Periods {
    let requests = Periods::of_requests(evidence);
    let stalls = evidence.stalls.iter().map(|stall| (stall, stall.count));
    let windows = Periods::of(Basis::Windows, of_means(stalls, divide_stall), evidence);
    let is_quiet = is_negligible(Basis::Requests, &requests.lengths, evidence);
    if !is_quiet && requests.delay() >= windows.delay() {
        return requests;
    }
    let packets = evidence.packets.iter().map(|waits| (waits, waits.count));
    let packets = of_means(packets, |waits| divide_packet(waits, &evidence.limits));
    let packets = Periods::of(Basis::Packets, packets, evidence);
    if !is_negligible(Basis::Packets, &packets.lengths, evidence) {
        return packets;
    }
    if !is_negligible(Basis::Windows, &windows.lengths, evidence) {
        return windows;
    }
    // Requests that were answered in time are the better evidence: its threads may wait for a CPU.
    if !is_quiet || is_proof(evidence) {
        return requests;
    }
    let waits = Periods::of_waits(evidence);
    if evidence.answered > 0 && is_negligible(Basis::Waits, &waits.lengths, evidence) {
        return requests;
    }
    waits
}

/// Returns true if a wait is a slow period by itself; shorter ones may be parts of requests.
pub(crate) fn is_slow(wait: &CpuWait) -> bool {
    wait.until.since(wait.from) >= SLOW
}

/// The time that others took of a run, if that is a slow period by itself: most of the run.
pub(crate) fn slow_part(run: &Interruption) -> Option<Nanos> {
    let taken = run.stolen.saturating_add(run.interrupted);
    (taken >= SLOW && has_half(taken, run.until.since(run.from))).then_some(taken)
}

/// The time in which threads that lost their CPU shared it with others.
pub(crate) fn shared(waits: &[CpuWait]) -> Nanos {
    let preempted = waits
        .iter()
        .filter(|wait| wait.was_preempted && is_slow(wait));
    let is_shared = |cause: &Cause| {
        matches!(
            cause.kind,
            Kind::NeighbourCpu | Kind::ProgramCpu | Kind::GuestItself
        )
    };
    let shared = preempted.map(|wait| time_in_wait(wait, is_shared));
    shared.fold(Nanos::ZERO, Nanos::saturating_add)
}

/// Slow periods of which intervals have a count and the mean.
fn of_means<'e, T: 'e>(
    intervals: impl Iterator<Item = (&'e T, u64)>,
    divide: impl Fn(&'e T) -> Division,
) -> Vec<Division> {
    intervals
        .map(|(interval, count)| (divide(interval), count))
        .filter(|(division, _)| division.length() >= SLOW)
        .flat_map(|(division, count)| {
            repeat_n(division, usize::try_from(count).unwrap_or(usize::MAX))
        })
        .take(MAX_MEANS)
        .collect()
}

/// Returns true if slow periods are nothing to speak of: no request is, if fewer than one of a
/// hundred were slow, and none was as long as [`LONG_WAIT`].
pub(crate) fn is_negligible(basis: Basis, lengths: &[Nanos], evidence: &Evidence) -> bool {
    let is_short = lengths.iter().all(|length| *length < LONG_WAIT);
    let left_out = left_out(basis, evidence);
    let count = left_out.count.saturating_add(lengths.len() as u64);
    let is_little = match basis {
        Basis::Requests => count.saturating_mul(ONE_IN) < evidence.answered,
        Basis::Waits | Basis::Packets | Basis::Windows => {
            let examined = &evidence.examined;
            let time = match basis {
                Basis::Waits => examined.interrupts_time,
                _ => examined.time,
            };
            let time = time.unwrap_or(evidence.window);
            sum(lengths).saturating_add(left_out.time).0 < time.0 / NEGLIGIBLE
        }
    };
    lengths.is_empty() || is_short && is_little
}

pub(crate) fn has_half(part: Nanos, whole: Nanos) -> bool {
    part.0 >= whole.0.div_ceil(2)
}
