//! Divides a slow period among causes. Each nanosecond has one cause, so the parts sum exactly to
//! the period's length.

use crate::cause::{Cause, Kind};
use crate::evidence::{
    Ahead, CpuUse, CpuWait, Direction, Evidence, ExaminedParts, InterfaceLimit, Interruption,
    Limits, Occupant, Points, QueueWaits, Run, Side, SlowRequest, Stall,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use tailbound_units::Nanos;

/// A slow period's time by cause.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Division {
    /// The time of each cause, above zero.
    pub parts: BTreeMap<Cause, Nanos>,
}

impl Division {
    fn add(&mut self, cause: Cause, time: u64) {
        if time > 0 {
            self.parts.entry(cause).or_default().0 += time;
        }
    }

    /// The period's length.
    pub fn length(&self) -> Nanos {
        Nanos(self.parts.values().map(|time| time.0).sum())
    }

    /// The time of all causes of a kind.
    pub fn of(&self, kind: Kind) -> Nanos {
        let its = self.parts.iter().filter(|(cause, _)| cause.kind == kind);
        Nanos(its.map(|(_, time)| time.0).sum())
    }
}

/// A part of a wait that has one cause.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Segment {
    from: u64,
    until: u64,
    cause: Cause,
}

/// The cause of a run on a CPU that the guest waited for.
fn cause_of(run: &Run) -> Cause {
    let named = |kind, name: &Arc<str>| {
        let kind = if run.is_real_time {
            Kind::RealTime
        } else {
            kind
        };
        Cause::by(kind, name)
    };
    match &run.occupant {
        Occupant::Own => Cause::of(Kind::GuestItself),
        Occupant::Idle => Cause::of(Kind::Scheduler),
        Occupant::Guest(name) => named(Kind::NeighbourCpu, name),
        // Threads of interrupts, also if their policy is real-time.
        Occupant::Kernel(name) if is_interrupt(name) => Cause::by(Kind::Interrupts, name),
        Occupant::Program(name) | Occupant::Kernel(name) => named(Kind::ProgramCpu, name),
        // An exited thread's owner is unknown, so it does not count against the host's programs.
        Occupant::Exited(_) => Cause::of(Kind::Unknown),
    }
}

/// Returns true for a thread of the kernel that handles interrupts.
pub(crate) fn is_interrupt(name: &str) -> bool {
    name.starts_with("ksoftirqd/") || name.starts_with("irq/")
}

/// Divides a wait into segments that cover it exactly, in order.
fn segments(wait: &CpuWait) -> Vec<Segment> {
    let mut found = Vec::with_capacity(wait.runs.len() + 1);
    each_segment(wait, |segment| found.push(segment));
    found
}

/// Passes on the segments of a wait, which cover it exactly, in order.
fn each_segment(wait: &CpuWait, mut take: impl FnMut(Segment)) {
    let (from, until) = (wait.from.0, wait.until.0.max(wait.from.0));
    let mut at = from;
    let mut add = |at: &mut u64, end: u64, cause: Cause| {
        let end = end.clamp(*at, until);
        if end > *at {
            take(Segment {
                from: *at,
                until: end,
                cause,
            });
        }
        *at = end;
    };
    // The guest's own limits delay it from the begin, so runs in that time are not the cause.
    let reserved = at.saturating_add(wait.reservation.0);
    add(&mut at, reserved, Cause::of(Kind::Reservation));
    let throttled = at.saturating_add(wait.quota.0);
    add(&mut at, throttled, Cause::of(Kind::Quota));
    for run in wait.runs.iter() {
        add(&mut at, run.from.0, Cause::of(Kind::Unknown));
        let end = run.until.0.clamp(at, until);
        let (stolen, interrupted) = taken_between(run, at, end);
        let stolen = at + stolen;
        add(&mut at, stolen, Cause::of(Kind::Hypervisor));
        let interrupted = at + interrupted;
        add(&mut at, interrupted, Cause::of(Kind::Interrupts));
        add(&mut at, end, cause_of(run));
    }
    add(&mut at, until, Cause::of(Kind::Unknown));
}

/// The time of a wait that has one of some causes, without an allocation.
pub(crate) fn time_in_wait(wait: &CpuWait, is_one: impl Fn(&Cause) -> bool) -> Nanos {
    let mut sum = 0;
    each_segment(wait, |segment| {
        if is_one(&segment.cause) {
            sum += segment.until - segment.from;
        }
    });
    Nanos(sum)
}

/// Returns the parts of a run between two moments that the hypervisor and interrupts took. An idle
/// CPU runs a waiting thread without delay unless the hypervisor or an interrupt has the CPU. So
/// their time is the end of an idle run, if it ends in the interval. Any other run is divided in
/// proportion.
fn taken_between(run: &Run, from: u64, until: u64) -> (u64, u64) {
    let time = until - from;
    if run.occupant == Occupant::Idle && run.until.0 <= until {
        let stolen = run.stolen.0.min(time);
        return (stolen, run.interrupted.0.min(time - stolen));
    }
    let whole = run.until.0.saturating_sub(run.from.0);
    taken(run.stolen, run.interrupted, time, whole)
}

/// Returns the hypervisor's and the interrupts' part of `time`, in proportion to their part of the
/// whole run, whose length is `whole`.
fn taken(stolen: Nanos, interrupted: Nanos, time: u64, whole: u64) -> (u64, u64) {
    let part = |of: Nanos| {
        let part = u128::from(of.0) * u128::from(time) / u128::from(whole.max(1));
        u64::try_from(part).unwrap_or(u64::MAX).min(time)
    };
    let stolen = part(stolen);
    (stolen, part(interrupted).min(time - stolen))
}

/// Divides a wait for a CPU that is a slow period by itself.
pub fn divide_wait(wait: &CpuWait) -> Division {
    let mut division = Division::default();
    each_segment(wait, |Segment { from, until, cause }| {
        division.add(cause, until - from);
    });
    division
}

/// Divides the time that others took of a run of the guest's, which is a wait for its CPU.
pub fn divide_interruption(run: &Interruption) -> Division {
    let mut division = Division::default();
    division.add(Cause::of(Kind::Hypervisor), run.stolen.0);
    division.add(Cause::of(Kind::Interrupts), run.interrupted.0);
    division
}

/// Attributes the mean wait of a frame in a queue of the host.
pub fn divide_packet(waits: &QueueWaits, limits: &Limits) -> Division {
    let mut division = Division::default();
    let cause = queue_cause(&waits.ahead, waits.is_outward, limits);
    division.add(cause, waits.time.0 / waits.count.max(1));
    division
}

/// The cause of a wait in the host's queue.
fn queue_cause(ahead: &Ahead, is_outward: bool, limits: &Limits) -> Cause {
    let reached = |limit: &&InterfaceLimit| limit.was_reached && limit.is_outward == is_outward;
    match (ahead, limits.interfaces.iter().find(reached)) {
        // A limit of this guest's interface never delays a neighbour's frames.
        (Ahead::Guest(name), _) => Cause::by(Kind::HostQueue, name),
        (_, Some(limit)) => Cause::by(Kind::OwnLimit, &limit.text),
        (Ahead::Own, None) => Cause::of(Kind::GuestItself),
        (Ahead::Unknown, None) => Cause::of(Kind::HostQueue),
    }
}

/// Adds the time of frames in the host: `queued` in queues of interfaces, by `cause`; the rest is
/// the wait for soft interrupts. If `queued` is unknown, all of the time counts as queued.
fn add_in_host(cause: Cause, time: u64, queued: Option<Nanos>, division: &mut Division) {
    let queued = queued.map_or(time, |queued| queued.0.min(time));
    division.add(cause, queued);
    division.add(Cause::of(Kind::Interrupts), time - queued);
}

/// Attributes the mean wait for a receiver in an interval.
pub fn divide_stall(stall: &Stall) -> Division {
    let mut division = Division::default();
    let mean = stall.time.0 / stall.count.max(1);
    division.add(Cause::of(Kind::SlowReceiver), mean);
    division
}

/// A guest's CPU time that is not attributed to a slow period yet.
#[derive(Debug)]
pub(crate) struct Budget(Vec<CpuUse>);

impl Budget {
    pub(crate) fn new(cpu_use: &[CpuUse]) -> Self {
        Self(cpu_use.to_vec())
    }

    /// Takes the guest's CPU time within an interval out of the budget, and returns it.
    fn take(&mut self, from: u64, until: u64) -> u64 {
        let mut sum = 0;
        for sample in &mut self.0 {
            let begin = from.max(sample.from.0);
            let overlap = until.min(sample.until.0).saturating_sub(begin);
            let part = overlap.min(sample.ran.0);
            sample.ran.0 -= part;
            sum += part;
        }
        sum
    }
}

/// Divides requests of one guest.
#[derive(Debug)]
pub(crate) struct Requests<'e> {
    waits: Vec<(&'e CpuWait, Vec<Segment>)>,
    limits: &'e Limits,
    interruptions: &'e [Interruption],
    examined: &'e ExaminedParts,
    budget: Budget,
}

impl<'e> Requests<'e> {
    /// `waits` are those that a request may overlap; `evidence` is the guest's.
    pub(crate) fn new(waits: impl Iterator<Item = &'e CpuWait>, evidence: &'e Evidence) -> Self {
        Self {
            waits: waits.map(|wait| (wait, segments(wait))).collect(),
            limits: &evidence.limits,
            interruptions: &evidence.interruptions,
            examined: &evidence.examined,
            budget: Budget::new(&evidence.cpu_use),
        }
    }

    /// Divides a request; no waits beside its [`span`] are needed for that.
    pub(crate) fn divide(&mut self, request: &SlowRequest) -> Division {
        let mut division = Division::default();
        let Points {
            arrived,
            delivered,
            taken,
            sent,
            left,
        } = request.points;
        let inward = queue_cause(&request.ahead_inward, false, self.limits);
        let outward = queue_cause(&request.ahead_outward, true, self.limits);
        let taken = taken.unwrap_or(delivered);
        let queued = request.queued;
        match request.direction {
            Direction::Served => {
                let [arrived, delivered, taken, sent, left] =
                    ordered([arrived, delivered, taken, sent, left]);
                let in_host = delivered - arrived;
                add_in_host(inward, in_host, queued.map(|it| it.inward), &mut division);
                // A frame in the ring and a request in the application wait for the same threads.
                self.divide_inside(request, delivered, taken, sent, &mut division);
                let in_host = left - sent;
                add_in_host(outward, in_host, queued.map(|it| it.outward), &mut division);
            }
            Direction::Made => {
                let [sent, left, arrived, delivered, taken] =
                    ordered([sent, left, arrived, delivered, taken]);
                self.divide_sending(request, sent, &mut division);
                let in_host = left - sent;
                add_in_host(outward, in_host, queued.map(|it| it.outward), &mut division);
                division.add(beyond(request, self.limits), arrived - left);
                let in_host = delivered - arrived;
                add_in_host(inward, in_host, queued.map(|it| it.inward), &mut division);
                self.divide_inside(request, delivered, taken, taken, &mut division);
            }
        }
        division
    }

    /// Divides the time in which the guest sent a request of several segments, up to the last one.
    fn divide_sending(&mut self, request: &SlowRequest, sent: u64, division: &mut Division) {
        let begun = request.begun.0.min(sent);
        if request.zero_window == Some(Side::Peer) || request.retransmits > 0 {
            division.add(beyond(request, self.limits), sent - begun);
        } else {
            self.divide_inside(request, begun, begun, sent, division);
        }
    }

    /// Divides the time inside the guest: in its ring until `taken`, then in its programs.
    fn divide_inside(
        &mut self,
        request: &SlowRequest,
        from: u64,
        taken: u64,
        until: u64,
        division: &mut Division,
    ) {
        let mut at = from;
        while at < until {
            let Some((segment, end)) = self.segment_at(at, until, request.thread) else {
                let end = self.next_wait(at, until, request.thread);
                self.divide_rest(request, at, end, taken, division);
                at = end;
                continue;
            };
            division.add(segment, end - at);
            at = end;
        }
    }

    /// Returns the cause at `at` and its end, by the wait that ends last of those that end by
    /// `until`. The thread that answers must have run before the answer.
    fn segment_at(&self, at: u64, until: u64, thread: Option<u32>) -> Option<(Cause, u64)> {
        let mut candidates: Vec<_> = self.candidates(until, thread).collect();
        candidates.retain(|(wait, _)| wait.from.0 <= at && at < wait.until.0);
        let (_, segments) = candidates.into_iter().max_by_key(|(wait, _)| wait.until)?;
        let is_here = |segment: &&Segment| segment.from <= at && at < segment.until;
        let segment = segments.iter().find(is_here)?;
        // A wait that ends later than this one may begin within it.
        let next = self.next_wait(at, segment.until.min(until), thread);
        Some((segment.cause.clone(), next))
    }

    /// The begin of the next wait after `at`, or `until`.
    fn next_wait(&self, at: u64, until: u64, thread: Option<u32>) -> u64 {
        let begins = self.candidates(u64::MAX, thread);
        let begins = begins
            .map(|(wait, _)| wait.from.0)
            .filter(|from| *from > at);
        begins.min().map_or(until, |begin| begin.min(until))
    }

    fn candidates(
        &self,
        until: u64,
        thread: Option<u32>,
    ) -> impl Iterator<Item = &(&'e CpuWait, Vec<Segment>)> {
        self.waits.iter().filter(move |(wait, _)| {
            let is_its = thread.is_none_or(|thread| wait.thread == thread);
            is_its && wait.until.0 <= until && wait.until > wait.from
        })
    }

    /// Divides time inside the guest in which none of its threads is known to have waited long.
    fn divide_rest(
        &mut self,
        request: &SlowRequest,
        from: u64,
        until: u64,
        taken: u64,
        division: &mut Division,
    ) {
        let time = until - from;
        match request.zero_window {
            Some(Side::Peer) => {
                return division.add(Cause::by(Kind::SlowReceiver, &request.peer), time);
            }
            Some(Side::Guest) => return division.add(Cause::of(Kind::GuestItself), time),
            None => {}
        }
        if self.examined.cpu.is_err() {
            // The guest may have waited for a CPU.
            return division.add(Cause::of(Kind::Unknown), time);
        }
        // A frame in its ring waits for nothing but the guest, as its threads had their CPUs.
        let ring = taken.clamp(from, until);
        division.add(Cause::of(Kind::GuestItself), ring - from);
        let (stolen, interrupted) = self.taken_of_runs(ring, until, request.thread);
        let stolen = stolen.min(until - ring);
        let interrupted = interrupted.min(until - ring - stolen);
        division.add(Cause::of(Kind::Hypervisor), stolen);
        division.add(Cause::of(Kind::Interrupts), interrupted);
        let rest = until - ring - stolen - interrupted;
        let computed = self.budget.take(ring, until).min(rest);
        division.add(Cause::of(Kind::GuestItself), computed);
        // The guest neither ran nor waited for a CPU: a disk, a lock, another service.
        division.add(Cause::of(Kind::Unknown), rest - computed);
    }

    /// The time in an interval that the hypervisor and interrupts took of runs of the guest. Of threads
    /// that ran side by side, the one that lost most counts.
    fn taken_of_runs(&self, from: u64, until: u64, thread: Option<u32>) -> (u64, u64) {
        let mut threads: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for run in self.interruptions {
            let (begin, end) = (from.max(run.from.0), until.min(run.until.0));
            if begin >= end || thread.is_some_and(|thread| thread != run.thread) {
                continue;
            }
            let whole = run.until.0 - run.from.0;
            let (stolen, interrupted) = taken(run.stolen, run.interrupted, end - begin, whole);
            let sum = threads.entry(run.thread).or_default();
            sum.0 += stolen;
            sum.1 += interrupted;
        }
        let most = threads.into_values().max_by_key(|(a, b)| a + b);
        most.unwrap_or_default()
    }
}

/// The cause of the time between a request's leaving the host and its answer.
fn beyond(request: &SlowRequest, limits: &Limits) -> Cause {
    let peer = request.peer_guest.as_ref().unwrap_or(&request.peer);
    let is_sent_again = request.retransmits > 0;
    match request.zero_window {
        Some(Side::Peer) => Cause::by(Kind::SlowReceiver, peer),
        // The peer retransmitted a frame that this host had dropped.
        _ if is_sent_again && request.dropped > 0 => drop_cause(limits),
        _ if request.peer_guest.is_some() => Cause::by(Kind::PeerGuest, peer),
        _ if is_sent_again => Cause::by(Kind::Loss, peer),
        _ => Cause::by(Kind::Delay, peer),
    }
}

/// The cause of a drop in the host: the guest's own limit if one was reached, else a full queue.
fn drop_cause(limits: &Limits) -> Cause {
    let reached = limits.interfaces.iter().find(|limit| limit.was_reached);
    reached.map_or(Cause::of(Kind::HostQueue), |limit| {
        Cause::by(Kind::OwnLimit, &limit.text)
    })
}

/// The length of a request, which is that of its division.
pub(crate) fn length(request: &SlowRequest) -> Nanos {
    let Points {
        arrived,
        delivered,
        taken,
        sent,
        left,
    } = request.points;
    let taken = taken.unwrap_or(delivered);
    let ([first, .., end], begun) = match request.direction {
        Direction::Served => (ordered([arrived, delivered, taken, sent, left]), arrived),
        Direction::Made => (
            ordered([sent, left, arrived, delivered, taken]),
            request.begun,
        ),
    };
    Nanos(end - begun.0.min(first))
}

/// The moment at which a request was over.
pub fn end(request: &SlowRequest) -> Nanos {
    let Points {
        delivered,
        taken,
        left,
        ..
    } = request.points;
    match request.direction {
        Direction::Served => left,
        Direction::Made => taken.unwrap_or(delivered),
    }
}

/// The interval of all moments of a request.
pub(crate) fn span(request: &SlowRequest) -> (Nanos, Nanos) {
    let Points {
        arrived,
        delivered,
        taken,
        sent,
        left,
    } = request.points;
    let moments = [arrived, delivered, taken.unwrap_or(delivered), sent, left];
    let extreme = |pick: fn(Nanos, Nanos) -> Nanos| moments.into_iter().fold(request.begun, pick);
    (extreme(Nanos::min), extreme(Nanos::max))
}

/// Moments, none before the one that precedes it.
fn ordered(moments: [Nanos; 5]) -> [u64; 5] {
    let mut at = 0;
    moments.map(|moment| {
        at = at.max(moment.0);
        at
    })
}

#[cfg(test)]
mod tests;
