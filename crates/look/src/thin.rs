//! Makes evidence small, and joins that of several slices. The slowest periods stay with all that
//! their causes need; the others are counted.

use crate::divide::{end, is_interrupt, length};
use crate::evidence::{
    CpuWait, Evidence, ExaminedParts, Interruption, Limits, Occupant, QueueWaits, Run, SlowRequest,
    Sum,
};
use crate::periods::{SLOW, is_slow, shared, slow_part};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use tailbound_units::Nanos;

/// Waits for a CPU that are kept for each request that is kept, on average.
const WAITS_PER_REQUEST: usize = 8;
/// Requests that are looked at for each one that is kept: those behind them are much shorter.
const TRIES_PER_REQUEST: usize = 4;
/// Runs of one wait that are kept if few periods are, and if many are.
const RUNS: RangeInclusive<usize> = 4..=32;
/// Owners of runs in a part of a wait, on average.
const OWNERS: usize = 8;

impl Evidence {
    /// Keeps at most `keep` of the slowest periods of each kind, and counts the others.
    pub fn thin(&mut self, keep: usize) {
        self.thin_requests(keep);
        self.thin_waits(keep);
        self.thin_interruptions(keep);
        self.packets = merged(std::mem::take(&mut self.packets));
        let mean = |waits: &QueueWaits| waits.time.0 / waits.count.max(1);
        self.packets.retain(|waits| mean(waits) >= SLOW.0);
        self.packets.sort_by_key(|waits| Reverse(mean(waits)));
        for waits in self.packets.drain(keep.min(self.packets.len())..) {
            self.left_out.packets.add(waits.count, waits.time);
        }
        self.stalls.retain(|stall| stall.time > Nanos::ZERO);
        self.stalls.sort_by_key(|stall| Reverse(stall.time));
        for stall in self.stalls.drain(keep.min(self.stalls.len())..) {
            self.left_out.stalls.add(stall.count, stall.time);
        }
    }

    /// A request is kept only with all waits of the guest's threads meanwhile: without them the
    /// guest would be blamed.
    fn thin_requests(&mut self, keep: usize) {
        self.requests.sort_by_key(|it| Reverse(length(it)));
        let mut room = keep * WAITS_PER_REQUEST;
        let mut kept = Vec::new();
        let mut tries = keep * TRIES_PER_REQUEST;
        for request in std::mem::take(&mut self.requests) {
            if kept.len() == keep || tries == 0 {
                self.left_out.requests.add(1, length(&request));
                continue;
            }
            tries -= 1;
            let needs = self.waits.iter().filter(|it| overlaps(it, &request));
            let needs = needs.count();
            if needs <= room || kept.is_empty() {
                room = room.saturating_sub(needs);
                kept.push(request);
            } else {
                self.left_out.requests.add(1, length(&request));
            }
        }
        self.requests = kept;
    }

    fn thin_waits(&mut self, keep: usize) {
        let is_needed = |wait: &CpuWait| self.requests.iter().any(|it| overlaps(wait, it));
        let (needed, mut rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waits)
            .into_iter()
            .partition(is_needed);
        let (mut needed, size) = (needed, keep * WAITS_PER_REQUEST);
        needed.sort_by_key(|wait| Reverse(wait.until.saturating_sub(wait.from)));
        rest.extend(needed.drain(size.min(needed.len())..));
        rest.sort_by_key(|wait| Reverse(wait.until.saturating_sub(wait.from)));
        let beyond = rest.split_off(keep.min(rest.len()));
        for wait in beyond.iter().filter(|wait| is_slow(wait)) {
            let time = wait.until.saturating_sub(wait.from);
            self.left_out.waits.add(1, time);
        }
        self.left_out.shared = self.left_out.shared.saturating_add(shared(&beyond));
        needed.extend(rest);
        needed.sort_by_key(|wait| (wait.from, wait.thread));
        let size = (keep * 2).clamp(*RUNS.start(), *RUNS.end());
        for wait in &mut needed {
            wait.runs = condensed(contiguous(wait.runs.to_vec()), size).into();
        }
        self.waits = needed;
    }

    /// Interruptions explain requests, and the longest are slow periods by themselves.
    fn thin_interruptions(&mut self, keep: usize) {
        let requests = &self.requests;
        let is_needed = |run: &Interruption| {
            let mut requests = requests.iter();
            requests.any(|it| run.until > it.begun && run.from < end(it))
        };
        let longest = |run: &Interruption| Reverse(run.stolen.saturating_add(run.interrupted));
        let (mut needed, mut rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.interruptions)
            .into_iter()
            .partition(is_needed);
        needed.sort_by_key(longest);
        let size = (keep * WAITS_PER_REQUEST).min(needed.len());
        rest.extend(needed.drain(size..));
        rest.retain(|run| slow_part(run).is_some());
        rest.sort_by_key(longest);
        for time in rest
            .drain(keep.min(rest.len())..)
            .filter_map(|run| slow_part(&run))
        {
            self.left_out.waits.add(1, time);
        }
        needed.extend(rest);
        needed.sort_by_key(|run| (run.from, run.thread));
        self.interruptions = needed;
    }

    /// Joins the evidence about one guest in consecutive windows, the oldest first.
    pub fn join(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut parts = parts.into_iter();
        let mut whole = parts.next().unwrap_or_default();
        for mut part in parts {
            let time = examined_part(&whole, &part, |examined| examined.time);
            let interrupts_time = examined_part(&whole, &part, |it| it.interrupts_time);
            whole.guest = part.guest;
            whole.window = whole.window.saturating_add(part.window);
            whole.answered = whole.answered.saturating_add(part.answered);
            whole.requests.append(&mut part.requests);
            whole.packets.append(&mut part.packets);
            whole.stalls.append(&mut part.stalls);
            whole.waits.append(&mut part.waits);
            whole.interruptions.append(&mut part.interruptions);
            whole.lost_waits = whole.lost_waits.saturating_add(part.lost_waits);
            whole.left_out.join(&part.left_out);
            whole.cpu_use.append(&mut part.cpu_use);
            whole.limits.join(part.limits);
            whole.examined.join(part.examined);
            whole.examined.time = time;
            whole.examined.interrupts_time = interrupts_time;
            whole.handles = part.handles;
        }
        // A wait is in two slices if a request of the later one needs it.
        let order = |wait: &CpuWait| (wait.from, wait.until, wait.thread);
        whole.waits.sort_by_key(order);
        whole.waits.dedup_by_key(|wait| order(wait));
        let order = |run: &Interruption| (run.from, run.until, run.thread);
        whole.interruptions.sort_by_key(order);
        whole.interruptions.dedup();
        whole
    }
}

/// The examined part of two windows; `None` if all of both.
fn examined_part(
    first: &Evidence,
    second: &Evidence,
    part: impl Fn(&ExaminedParts) -> Option<Nanos>,
) -> Option<Nanos> {
    let [a, b] = [first, second].map(|it| (part(&it.examined), it.window));
    let is_partial = a.0.is_some() || b.0.is_some();
    is_partial.then(|| a.0.unwrap_or(a.1).saturating_add(b.0.unwrap_or(b.1)))
}

/// Returns true if a thread of the guest waited during a request.
fn overlaps(wait: &CpuWait, request: &SlowRequest) -> bool {
    wait.until > request.begun && wait.from < end(request)
}

/// Joins the waits behind the same guest: their mean stays.
fn merged(waits: Vec<QueueWaits>) -> Vec<QueueWaits> {
    let mut found: Vec<QueueWaits> = Vec::new();
    for it in waits {
        let is_same =
            |other: &&mut QueueWaits| other.ahead == it.ahead && other.is_outward == it.is_outward;
        match found.iter_mut().find(is_same) {
            Some(same) => {
                same.until = same.until.max(it.until);
                same.count = same.count.saturating_add(it.count);
                same.time = same.time.saturating_add(it.time);
            }
            None => found.push(it),
        }
    }
    found
}

/// Joins runs of the same owner that follow one another without a gap.
fn contiguous(runs: Vec<Run>) -> Vec<Run> {
    let mut found: Vec<Run> = Vec::new();
    for run in runs {
        match found.last_mut() {
            Some(last)
                if last.until == run.from
                    && last.occupant == run.occupant
                    && last.is_real_time == run.is_real_time =>
            {
                last.until = run.until;
                last.stolen = last.stolen.saturating_add(run.stolen);
                last.interrupted = last.interrupted.saturating_add(run.interrupted);
            }
            _ => found.push(run),
        }
    }
    found
}

/// Joins the runs of each owner within a part of a wait if there are more than `size`: the time of
/// each owner stays, and only the order in a part is lost. The owners with the least time lose their
/// names, not their kind.
fn condensed(runs: Vec<Run>, size: usize) -> Vec<Run> {
    if runs.len() <= size {
        return runs;
    }
    let parts = (size / OWNERS).max(1);
    let mut found: Vec<Run> = Vec::new();
    for part in runs.chunks(runs.len().div_ceil(parts)) {
        let mut owners = by_owner(part.iter().cloned());
        let small = owners.split_off((size / parts).min(owners.len()));
        let nameless = small.into_iter().map(|run| Run {
            occupant: nameless(run.occupant),
            ..run
        });
        owners.extend(by_owner(nameless));
        let mut at = part[0].from;
        for mut run in owners {
            let length = run.until.saturating_sub(run.from);
            run.from = at;
            at = at.saturating_add(length);
            run.until = at;
            found.push(run);
        }
    }
    found
}

/// Sums up runs by owner, the longest first. Their begins are lost.
fn by_owner(runs: impl Iterator<Item = Run>) -> Vec<Run> {
    let mut owners: BTreeMap<_, Run> = BTreeMap::new();
    for run in runs {
        let length = run.until.saturating_sub(run.from);
        let owner = owners.entry((run.occupant.clone(), run.is_real_time));
        let sum = owner.or_insert_with(|| Run {
            from: Nanos::ZERO,
            until: Nanos::ZERO,
            stolen: Nanos::ZERO,
            interrupted: Nanos::ZERO,
            ..run.clone()
        });
        sum.until = sum.until.saturating_add(length);
        sum.stolen = sum.stolen.saturating_add(run.stolen);
        sum.interrupted = sum.interrupted.saturating_add(run.interrupted);
    }
    let mut owners: Vec<_> = owners.into_values().collect();
    owners.sort_by_key(|run| Reverse(run.until));
    owners
}

/// One of several owners of a kind.
fn nameless(occupant: Occupant) -> Occupant {
    match occupant {
        Occupant::Guest(_) => Occupant::Guest("other guests".into()),
        Occupant::Program(_) => Occupant::Program("other programs".into()),
        Occupant::Kernel(name) if is_interrupt(&name) => Occupant::Kernel("irq/others".into()),
        Occupant::Kernel(_) => Occupant::Kernel("other threads".into()),
        Occupant::Exited(_) => Occupant::Exited("others".into()),
        occupant @ (Occupant::Own | Occupant::Idle) => occupant,
    }
}

impl Sum {
    fn add(&mut self, count: u64, time: Nanos) {
        self.count = self.count.saturating_add(count);
        self.time = self.time.saturating_add(time);
    }
}

impl crate::evidence::LeftOut {
    fn join(&mut self, other: &Self) {
        for (sum, other) in [
            (&mut self.requests, other.requests),
            (&mut self.packets, other.packets),
            (&mut self.stalls, other.stalls),
            (&mut self.waits, other.waits),
        ] {
            sum.add(other.count, other.time);
        }
        self.shared = self.shared.saturating_add(other.shared);
    }
}

impl Limits {
    fn join(&mut self, other: Self) {
        self.quota = other.quota.or(self.quota.take());
        self.throttled_periods = self
            .throttled_periods
            .saturating_add(other.throttled_periods);
        self.throttled = self.throttled.saturating_add(other.throttled);
        for limit in other.interfaces {
            let mut known = self.interfaces.iter_mut();
            match known.find(|it| it.text == limit.text && it.is_outward == limit.is_outward) {
                Some(known) => known.was_reached |= limit.was_reached,
                None => self.interfaces.push(limit),
            }
        }
    }
}

impl ExaminedParts {
    /// A part is examined if it was in both.
    fn join(&mut self, other: Self) {
        for (part, other) in [
            (&mut self.cpu, other.cpu),
            (&mut self.packets, other.packets),
            (&mut self.interrupts, other.interrupts),
            (&mut self.steal, other.steal),
        ] {
            if part.is_ok() {
                *part = other;
            }
        }
    }
}

#[cfg(test)]
mod tests;
