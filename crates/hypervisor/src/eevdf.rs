//! Linux's fair scheduler since 6.12, EEVDF: earliest eligible virtual deadline first.
//!
//! A vCPU here is a thread of class `SCHED_OTHER`. Its *virtual runtime* is its CPU time divided by
//! its weight; the queue's *average* is the weighted average of all runnable threads. A thread that
//! is not ahead of the average is eligible, and the eligible thread with the earliest *virtual
//! deadline* runs. The virtual deadline is one slice after the thread last received a new one. The
//! scheduler checks when a thread wakes or blocks, and at each tick. With the feature `HRTICK` a
//! timer also fires at the virtual deadline of the running thread, as long as another is in the
//! queue.
//!
//! The rules are those of `kernel/sched/fair.c` of Linux 6.18 with its default features: placement
//! by kept lag, `RUN_TO_PARITY` (the chosen thread runs until its slice, or the shortest of the
//! queue, is over, unless a waking thread has a shorter one: `PREEMPT_SHORT`), and `DELAY_DEQUEUE`
//! with `DELAY_ZERO` (a thread that falls asleep ahead of the average stays in the queue until it
//! is not, so that it does not sleep its debt off).
//!
//! The model excludes groups, `SCHED_IDLE` and `SCHED_BATCH`. It does not balance between CPUs: a
//! vCPU stays on its home.

#[cfg(test)]
mod record;
#[cfg(test)]
mod tests;

use crate::{Current, Host, PcpuId, PcpuSet, Scheduler, Slice, VcpuId, Wake};
use serde::{Deserialize, Serialize};
use tailbound_units::Nanos;
use thiserror::Error;

/// The weight of a thread with nice 0, and of a domain with the default weight.
const NICE_0: i64 = 1024;
/// Limits on a thread's own slice.
const SLICES: [Nanos; 2] = [Nanos::from_micros(100), Nanos::from_millis(100)];

/// The timer of a slice fires no sooner than this after it is set.
const SOONEST: Nanos = Nanos::from_micros(10);

/// Build and boot options of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EevdfConfig {
    /// Slice of a thread without its own one (`base_slice_ns`). Linux has 0.7 ms with one CPU, 1.4
    /// ms with two or three, 2.1 ms with four to seven, 2.8 ms with more.
    pub slice: Nanos,
    /// The time between two ticks (`CONFIG_HZ`).
    pub tick: Nanos,
    /// True if a timer ends slices (`HRTICK`, off by default).
    pub timer: bool,
}

impl EevdfConfig {
    /// Returns the default configuration of a host with `cpus` CPUs and 250 ticks a second.
    pub fn of_cpus(cpus: u32) -> Self {
        let factor = 1 + cpus.clamp(1, 8).ilog2();
        Self {
            slice: Nanos::from_micros(700 * u64::from(factor)),
            tick: Nanos::from_millis(4),
            timer: false,
        }
    }
}

impl Default for EevdfConfig {
    fn default() -> Self {
        Self::of_cpus(8)
    }
}

/// Settings that Linux refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EevdfError {
    /// The number of slices is not that of vCPUs.
    #[error("{slices} slices for {vcpus} vCPUs")]
    Count {
        /// Number of passed slices.
        slices: usize,
        /// Number of the host's vCPUs.
        vcpus: usize,
    },
    /// A slice that is too short or too long.
    #[error("a slice is {low} to {high}, not {0}", low = SLICES[0], high = SLICES[1])]
    Slice(Nanos),
    /// A tick of zero, with which time would never pass.
    #[error("the tick must not be zero")]
    Tick,
}

/// A thread.
#[derive(Debug, Clone)]
struct Entity {
    home: usize,
    /// 1024 for nice 0.
    weight: i64,
    /// Length of its slice in nanoseconds.
    slice: i64,
    vruntime: i64,
    deadline: i64,
    /// Distance behind the average when it left the queue.
    lag: i64,
    /// Virtual runtime until which it cannot be preempted.
    protected: i64,
    /// Moment up to which its CPU time is counted, while it runs.
    counted: Nanos,
    /// True if it sleeps but stays in the queue because it is ahead of the average.
    is_delayed: bool,
}

impl Entity {
    /// CPU time in virtual time.
    fn virtual_time(&self, time: i64) -> i64 {
        (i128::from(time) * i128::from(NICE_0) / i128::from(self.weight)) as i64
    }

    fn is_protected(&self) -> bool {
        self.protected > self.vruntime
    }
}

/// Threads that need one CPU.
#[derive(Debug, Clone, Default)]
struct Queue {
    current: Option<usize>,
    /// Queued threads without the running one.
    waiting: Vec<usize>,
    /// Moment of the next tick, while a thread runs.
    tick: Option<Nanos>,
    /// Moment at which the timer of the current slice fires.
    timer: Option<Nanos>,
}

impl Queue {
    fn all(&self) -> impl Iterator<Item = usize> {
        self.waiting.iter().copied().chain(self.current)
    }
}

/// The scheduler.
#[derive(Debug, Clone)]
pub struct Eevdf {
    config: EevdfConfig,
    entities: Vec<Entity>,
    queues: Vec<Queue>,
}

impl Eevdf {
    /// Returns one for `host`; `slices` are those that threads asked for, by vCPU.
    ///
    /// # Errors
    /// [`EevdfError`].
    pub fn new(
        config: EevdfConfig,
        host: &Host,
        slices: &[Option<Nanos>],
    ) -> Result<Self, EevdfError> {
        let vcpus = host.vcpus();
        if slices.len() != vcpus.len() {
            return Err(EevdfError::Count {
                slices: slices.len(),
                vcpus: vcpus.len(),
            });
        }
        if config.tick == Nanos::ZERO {
            return Err(EevdfError::Tick);
        }
        let all = slices.iter().flatten().chain([&config.slice]);
        let [low, high] = SLICES;
        if let Some(wrong) = all.copied().find(|it| !(low..=high).contains(it)) {
            return Err(EevdfError::Slice(wrong));
        }
        let entity = |(vcpu, slice): (&crate::Vcpu, &Option<Nanos>)| {
            let weight = i64::from(host.domains()[vcpu.domain.index()].weight);
            Entity {
                home: vcpu.home.index(),
                weight: weight * NICE_0 / i64::from(crate::DEFAULT_WEIGHT),
                slice: slice.unwrap_or(config.slice).0.cast_signed(),
                vruntime: 0,
                deadline: 0,
                lag: 0,
                protected: 0,
                counted: Nanos::ZERO,
                is_delayed: false,
            }
        };
        Ok(Self {
            config,
            entities: vcpus.iter().zip(slices).map(entity).collect(),
            queues: vec![Queue::default(); host.pcpus() as usize],
        })
    }

    /// Returns sums over all runnable threads: of weights, and of weighted virtual runtimes above
    /// `from`.
    fn sums(&self, queue: usize, from: i64) -> (i128, i128) {
        let all = self.queues[queue].all().map(|index| &self.entities[index]);
        all.fold((0, 0), |(weights, sum), it| {
            let weight = i128::from(it.weight);
            (
                weights + weight,
                sum + weight * i128::from(it.vruntime - from),
            )
        })
    }

    /// The average of a queue, rounded down.
    fn average(&self, queue: usize) -> i64 {
        let Some(from) = self.queues[queue].all().next() else {
            return 0;
        };
        let from = self.entities[from].vruntime;
        let (weights, sum) = self.sums(queue, from);
        from + sum.div_euclid(weights) as i64
    }

    fn is_eligible(&self, queue: usize, index: usize) -> bool {
        self.sums(queue, self.entities[index].vruntime).1 >= 0
    }

    /// Returns the shortest slice of the runnable threads.
    fn shortest(&self, queue: usize) -> i64 {
        let all = self.queues[queue].all();
        let slices = all.map(|index| self.entities[index].slice);
        slices.min().unwrap_or(i64::MAX)
    }

    /// Counts the CPU time of the running thread (`update_curr`). Returns whether the CPU must
    /// reschedule.
    fn count(&mut self, queue: usize, now: Nanos) -> bool {
        let Queue {
            current: Some(index),
            ref waiting,
            ..
        } = self.queues[queue]
        else {
            return false;
        };
        let is_alone = waiting.is_empty();
        let it = &mut self.entities[index];
        let ran = (now - it.counted).0.cast_signed();
        if ran == 0 {
            return false;
        }
        it.counted = now;
        it.vruntime += it.virtual_time(ran);
        let is_over = it.vruntime >= it.deadline;
        if is_over {
            it.deadline = it.vruntime + it.virtual_time(it.slice);
        }
        !is_alone && (is_over || !it.is_protected())
    }

    /// Records the distance of a thread behind the average, within limits (`update_entity_lag`).
    fn note_lag(&mut self, queue: usize, index: usize) {
        let average = self.average(queue);
        let tick = self.config.tick.0.cast_signed();
        let it = &mut self.entities[index];
        let limit = it.virtual_time((2 * it.slice).max(tick));
        it.lag = (average - it.vruntime).clamp(-limit, limit);
    }

    /// Restores the distance from the average that a thread had when it left, as it will be once
    /// the thread is in the queue (`place_entity`).
    fn place(&mut self, queue: usize, index: usize) {
        let average = self.average(queue);
        let (weights, _) = self.sums(queue, average);
        let it = &mut self.entities[index];
        // Beside nobody it is the average, wherever that is.
        if weights > 0 {
            let lag = i128::from(it.lag) * (weights + i128::from(it.weight)) / weights;
            it.vruntime = average - lag as i64;
        }
        it.deadline = it.vruntime + it.virtual_time(it.slice);
    }

    /// Chooses (`__pick_eevdf`). The current one counts while it wants the CPU.
    fn pick(&self, queue: usize, protect: bool) -> Option<usize> {
        let Queue {
            current, waiting, ..
        } = &self.queues[queue];
        let current = *current;
        if waiting.is_empty() {
            return current;
        }
        if let (None, [alone]) = (current, &waiting[..]) {
            return Some(*alone);
        }
        let current = current.filter(|index| self.is_eligible(queue, *index));
        if let Some(index) = current
            && protect
            && self.entities[index].is_protected()
        {
            return current;
        }
        let eligible = waiting.iter().copied();
        let eligible = eligible.filter(|index| self.is_eligible(queue, *index));
        // Of two with one deadline the one that runs goes on only where nobody else is first.
        let best = eligible.min_by_key(|index| self.entities[*index].deadline);
        match (current, best) {
            (Some(current), Some(best))
                if self.entities[current].deadline < self.entities[best].deadline =>
            {
                Some(current)
            }
            (_, Some(best)) => Some(best),
            (current, None) => current,
        }
    }

    fn leave(&mut self, queue: usize, index: usize) {
        self.note_lag(queue, index);
        self.queues[queue].waiting.retain(|other| *other != index);
        let it = &mut self.entities[index];
        if std::mem::take(&mut it.is_delayed) {
            it.lag = it.lag.min(0);
        }
    }

    /// Removes the running thread from its CPU: it waits, or sleeps.
    fn put(&mut self, queue: usize, index: usize, is_runnable: bool) {
        if !is_runnable && self.is_eligible(queue, index) {
            self.note_lag(queue, index);
            self.queues[queue].current = None;
            return;
        }
        if !is_runnable {
            self.note_lag(queue, index);
            self.entities[index].is_delayed = true;
        }
        let queue = &mut self.queues[queue];
        queue.current = None;
        queue.waiting.push(index);
    }

    /// Puts a thread on its CPU.
    fn set(&mut self, queue: usize, index: usize, now: Nanos) {
        let shortest = self.shortest(queue);
        let row = &mut self.queues[queue];
        row.waiting.retain(|other| *other != index);
        row.current = Some(index);
        let it = &mut self.entities[index];
        it.counted = now;
        it.protected = it.deadline;
        if shortest < it.slice {
            let until = it.vruntime + it.virtual_time(shortest);
            it.protected = it.protected.min(until);
        }
    }

    /// Sets the timer for the virtual deadline of the current one (`hrtick_start_fair`).
    fn arm(&mut self, queue: usize, now: Nanos) {
        let row = &mut self.queues[queue];
        row.timer = None;
        if let Some(index) = row.current
            && self.config.timer
            && !row.waiting.is_empty()
        {
            let it = &self.entities[index];
            let left = i128::from(it.deadline - it.vruntime) * i128::from(it.weight);
            let left = Nanos(u64::try_from(left / i128::from(NICE_0)).unwrap_or(0));
            row.timer = Some(it.counted + left.max(SOONEST));
            debug_assert!(it.counted == now, "its CPU time is counted first");
        }
    }

    /// Returns whether who wakes has the CPU asked (`check_preempt_wakeup_fair`).
    fn preempts(&mut self, queue: usize, index: usize) -> bool {
        let Some(current) = self.queues[queue].current else {
            return true;
        };
        let is_short = self.entities[index].slice < self.entities[current].slice;
        if self.pick(queue, !is_short) == Some(index) {
            let it = &mut self.entities[current];
            if is_short && it.is_protected() {
                it.protected = it.vruntime;
            }
            return true;
        }
        if is_short {
            let shortest = self.shortest(queue);
            let it = &mut self.entities[current];
            let until = it.vruntime + it.virtual_time(shortest);
            it.protected = it.protected.min(until);
        }
        false
    }
}

impl Scheduler for Eevdf {
    fn wake(&mut self, now: Nanos, vcpu: VcpuId, _cause: Wake, raise: &mut PcpuSet) {
        let index = vcpu.index();
        let queue = self.entities[index].home;
        let mut ask = false;
        if self.entities[index].is_delayed {
            self.note_lag(queue, index);
            if self.entities[index].lag > 0 {
                self.queues[queue].waiting.retain(|other| *other != index);
                self.entities[index].lag = 0;
                self.place(queue, index);
                self.queues[queue].waiting.push(index);
            }
            self.entities[index].is_delayed = false;
        } else {
            ask = self.count(queue, now);
            self.place(queue, index);
            self.queues[queue].waiting.push(index);
            self.arm(queue, now);
        }
        ask |= self.count(queue, now);
        if ask || self.preempts(queue, index) {
            raise.insert(PcpuId(queue as u32));
        }
    }

    fn sleep(&mut self, now: Nanos, vcpu: VcpuId, raise: &mut PcpuSet) {
        let index = vcpu.index();
        let queue = self.entities[index].home;
        self.count(queue, now);
        if self.queues[queue].current == Some(index) {
            raise.insert(PcpuId(queue as u32));
        } else {
            self.leave(queue, index);
        }
    }

    fn schedule(
        &mut self,
        now: Nanos,
        pcpu: PcpuId,
        current: Option<Current>,
        _raise: &mut PcpuSet,
    ) -> Slice {
        let queue = pcpu.index();
        self.count(queue, now);
        if let Some(current) = current {
            let index = current.vcpu.index();
            if current.yielded {
                let it = &mut self.entities[index];
                it.deadline += it.virtual_time(it.slice);
            }
            if !current.runnable {
                self.put(queue, index, false);
            }
        }
        let next = loop {
            let picked = self.pick(queue, true);
            match picked {
                // It is not ahead any more: now it sleeps.
                Some(index) if self.entities[index].is_delayed => self.leave(queue, index),
                picked => break picked,
            }
        };
        if self.queues[queue].current != next {
            if let Some(index) = self.queues[queue].current {
                self.put(queue, index, true);
            }
            if let Some(index) = next {
                self.set(queue, index, now);
            }
        }
        self.arm(queue, now);
        let tick = self.config.tick;
        let row = &mut self.queues[queue];
        row.tick = match (next, row.tick) {
            (None, _) => None,
            (Some(_), Some(at)) if at > now => Some(at),
            (Some(_), _) => Some(Nanos((now.0 / tick.0 + 1).saturating_mul(tick.0))),
        };
        Slice {
            next: next.map(|index| VcpuId(index as u32)),
            until: None,
        }
    }

    fn poll_at(&self) -> Option<Nanos> {
        let all = self.queues.iter();
        all.flat_map(|queue| [queue.tick, queue.timer])
            .flatten()
            .min()
    }

    fn timer(&mut self, now: Nanos, raise: &mut PcpuSet) {
        for queue in 0..self.queues.len() {
            if self.queues[queue].timer.is_some_and(|at| at <= now) {
                self.queues[queue].timer = None;
                raise.insert(PcpuId(queue as u32));
            }
            let Some(at) = self.queues[queue].tick.filter(|at| *at <= now) else {
                continue;
            };
            self.queues[queue].tick = Some(at.saturating_add(self.config.tick));
            if self.count(queue, now) {
                raise.insert(PcpuId(queue as u32));
            }
        }
    }
}
