//! Schedulability of `SCHED_DEADLINE` reservations in Linux: whether a set of reservations is kept,
//! and the longest delay of a thread with one. The module is pure and computes in exact integers.
//!
//! The kernel's own admission control proves neither. It compares the sum of runtime / period with
//! the CPUs, which on more than one CPU bounds the lateness of deadlines and does not exclude
//! missed ones. It ignores deadlines that are shorter than periods
//! (`Documentation/scheduler/sched-deadline.rst`, sections 3 and 5). A [`Pool`] is a set of CPUs
//! with a proof. A reservation counts there by its density, runtime / deadline. The finer test of
//! the demand by each moment (Baruah, Rosier and Howell, Real-Time Systems 2, 1990) holds for
//! threads that run until their work of a period is done. A guest sleeps and wakes at any time, and
//! receives its density until its deadline from the kernel, so that a guest admitted by that test
//! could delay others.
//!
//! A [`Disturbance`] is CPU time that reservations lose: interrupts, steal, and threads that
//! overrun their runtime by up to a tick if only ticks enforce it. A [`Service`] is the guaranteed
//! part of a reservation under a disturbance.
//!
//! Budgets are CPU time at full speed. A thread completes less work in its budget while another
//! hardware thread shares its core, or while the core runs slower.

#[cfg(test)]
mod tests;

use tailbound_units::Nanos;
use thiserror::Error;

/// `runtime` of CPU in each `period`, by `deadline` after the period's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    /// CPU time in each period.
    pub runtime: Nanos,
    /// Time limit for the runtime in each period, at most the period.
    pub deadline: Nanos,
    /// The period.
    pub period: Nanos,
}

impl Deadline {
    /// Returns the longest time without a CPU for a runnable thread, provided that no deadline is
    /// missed and every budget is enforced without delay: P + D - 2Q. Such a thread had its runtime
    /// at the start of one period, and has the next at the end of the deadline.
    ///
    /// # Panics
    /// The reservation is not 0 < runtime <= deadline <= period.
    pub fn blackout(&self) -> Nanos {
        assert!(self.is_possible(), "{self:?} is no reservation");
        self.period + self.deadline - self.runtime - self.runtime
    }

    /// Returns the longest uninterrupted run of a thread that also reclaims unreserved CPU time
    /// (`SCHED_FLAG_RECLAIM`); `None` if it is unbounded. The kernel grants reservations `share`
    /// thousandths of each CPU, detects a used-up runtime up to `overrun` late, and misses no
    /// deadline. The bound is for a CPU on which threads without a reservation are waiting, and
    /// ignores the fair server.
    ///
    /// The thread's runtime is charged at a rate of at least runtime / period / share, so that it
    /// lasts for at most U = share * period. The run may begin with a full runtime at the deadline,
    /// last U until the runtime is used up, and continue as long as each check finds that the
    /// period has already ended. Each period brings the run closer to that end by the CPU time that
    /// the kernel withholds, (1 - share) * period.
    pub fn longest_run(&self, share: u64, overrun: Nanos) -> Option<Nanos> {
        let rest = u128::from(CPU.checked_sub(share).filter(|rest| *rest > 0)?);
        let scaled = |time: Nanos| u128::from(time.0) * u128::from(CPU);
        let period = u128::from(self.period.0);
        let lasts = period * u128::from(share);
        let periods = 1 + (scaled(overrun) + lasts).div_ceil(period * rest);
        let longest = (periods * lasts).div_ceil(CPU.into()) + 2 * u128::from(overrun.0);
        u64::try_from(longest).ok().map(Nanos)
    }

    /// Returns runtime / deadline in thousandths of a CPU, rounded up.
    ///
    /// # Panics
    /// The deadline is zero.
    pub fn density(&self) -> u64 {
        let density = (u128::from(self.runtime.0) * 1000).div_ceil(self.deadline.0.into());
        u64::try_from(density).unwrap_or(u64::MAX)
    }

    pub(crate) fn is_possible(&self) -> bool {
        let Self {
            runtime,
            deadline,
            period,
        } = *self;
        Nanos::ZERO < runtime && runtime <= deadline && deadline <= period
    }
}

/// CPU time that a pool's reservations lose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Disturbance {
    /// Longest run of a thread beyond its runtime before the kernel stops it: one tick, or zero
    /// with timers (`HRTICK_DL`).
    pub overrun: Nanos,
    /// Longest burst of interrupts on one CPU.
    pub interrupts: Nanos,
    /// Longest burst of time that the hypervisor below the host's kernel takes from one CPU.
    pub steal: Nanos,
    /// Long-run share of interrupts and steal together, in thousandths of a CPU. In any interval
    /// they take at most this share of each CPU, plus one burst of each.
    pub share: u64,
}

/// CPUs that the same reservations use and no others, by earliest deadline first on all of
/// them: any that the pool keeps, whenever their threads sleep and wake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// Number of CPUs.
    pub cpus: u32,
    /// Largest number of reservations.
    pub threads: u32,
    /// The largest density of one, in thousandths of a CPU.
    pub largest: u64,
    /// The largest sum of all densities, in thousandths of a CPU.
    pub reservable: u64,
    /// CPU time that the reservations lose.
    pub disturbance: Disturbance,
}

/// Reason why reservations cannot be promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Unschedulable {
    /// Not 0 < runtime <= deadline <= period.
    #[error("it takes 0 < runtime <= deadline <= period")]
    Impossible,
    /// No bound is proved for the pool.
    #[error("its densities, and what takes time beside them, are too much for {0} CPUs")]
    Pool(u32),
    /// The number of reservations exceeds the pool's limit.
    #[error("there are {0} reservations, more than the pool keeps")]
    Threads(usize),
    /// The density of a reservation exceeds the pool's limit.
    #[error("a runtime of {0} thousandths of its deadline is more than the pool keeps")]
    Largest(u64),
    /// The sum of the densities exceeds the pool's limit.
    #[error("all together are {0} thousandths of a CPU, more than the pool keeps")]
    Sum(u64),
    /// Overruns, interrupts and steal may take longer than a period leaves.
    #[error("others may make it late by {0}, more than its period leaves beside its runtime")]
    Late(Nanos),
}

/// One CPU, in the unit of densities.
const CPU: u64 = 1000;

impl Pool {
    /// Returns the longest lateness of a deadline, rounded up to a microsecond; `None` without a
    /// proof.
    ///
    /// M CPUs keep all deadlines if the sum of the densities is at most M - (M - 1) times the
    /// largest (Goossens, Funk and Baruah, Real-Time Systems 25, 2003). A thread pays for an
    /// overrun with its next runtime. At any moment, each thread has therefore taken at most one
    /// overrun too much of the CPU time that is due by then. On one CPU a deadline is missed by at
    /// most the sum of these overruns and of the bursts, during a busy period.
    ///
    /// On several CPUs let S be the capacity of the M CPUs that remains beside the sum and the
    /// largest density, and E the CPU time that is taken too much. The completed work is never less
    /// than in a schedule, delayed by E / S, that serves each thread at its density. Otherwise
    /// there would be a first job that is behind this schedule, since at least E / S. In that time
    /// either all CPUs were busy or the job's thread was running. The completed work would then
    /// exceed the densities by S times that duration, less E.
    pub fn lateness(&self) -> Option<Nanos> {
        let Disturbance {
            overrun,
            interrupts,
            steal,
            share,
        } = self.disturbance;
        let wide = u64::from(self.cpus);
        let all = wide.checked_mul(CPU.checked_sub(share)?)?;
        let others = wide.saturating_sub(1).checked_mul(self.largest)?;
        let spare = all.checked_sub(others)?.checked_sub(self.reservable)?;
        let overruns = u128::from(overrun.0) * u128::from(self.threads.saturating_sub(1));
        let aside = (u128::from(interrupts.0) + u128::from(steal.0)) * u128::from(wide);
        let spare = if wide == 1 { all } else { spare };
        match (overruns + aside, spare) {
            (0, _) => Some(Nanos::ZERO),
            (_, 0) => None,
            (extra, spare) => {
                let lateness = (extra * u128::from(CPU)).div_ceil(spare.into());
                let micros = u64::try_from(lateness.div_ceil(1000)).ok()?;
                micros.checked_mul(1000).map(Nanos)
            }
        }
    }

    /// Returns what a reservation is worth in this pool.
    ///
    /// # Errors
    /// The pool does not keep it.
    pub fn service(&self, reservation: Deadline) -> Result<Service, Unschedulable> {
        if !reservation.is_possible() {
            return Err(Unschedulable::Impossible);
        }
        let lateness = self.lateness().ok_or(Unschedulable::Pool(self.cpus))?;
        if reservation.density() > self.largest {
            return Err(Unschedulable::Largest(reservation.density()));
        }
        // A deadline that is missed by more begins a period anew, with all of its runtime.
        if reservation.period - reservation.runtime < lateness {
            return Err(Unschedulable::Late(lateness));
        }
        Ok(Service {
            reservation,
            disturbance: self.disturbance,
            lateness,
        })
    }

    /// Returns the longest time for which `cpus` CPUs of the pool can all run `reservations`
    /// without a break, so that threads of lower priority have none of these CPUs. The pool must
    /// keep the reservations. The result is rounded up to a microsecond, and `None` if no bound is
    /// proved.
    ///
    /// In an interval of length L a reservation takes at most runtime / period of L plus a deadline
    /// and its lateness, plus another runtime (left over at the start, and not yet used at the
    /// end), plus two overruns: a thread whose period had ended at the kernel's check continues
    /// immediately, into another overrun. Overruns are paid back. On several CPUs a reservation
    /// takes at most L.
    pub fn longest_hold(&self, cpus: u32, reservations: &[Deadline]) -> Option<Nanos> {
        /// One CPU, in a finer unit.
        const WHOLE: u128 = 1_000_000_000;
        /// Limit on the iterations. More of them would find a shorter stretch, but each result is a
        /// bound.
        const TURNS: u32 = 1000;
        let wide = |time: Nanos| u128::from(time.0);
        let lateness = wide(self.lateness()?);
        let overruns = 2 * wide(self.disturbance.overrun);
        let cpus = u128::from(cpus);
        let share = |one: &Deadline| (wide(one.runtime) * WHOLE).div_ceil(wide(one.period));
        let takes = |one: &Deadline, stretch: u128| {
            let in_share = share(one) * (stretch + wide(one.deadline) + lateness);
            in_share.div_ceil(WHOLE) + wide(one.runtime) + overruns
        };
        let all: u128 = reservations.iter().map(share).sum();
        let free = (cpus * WHOLE).checked_sub(all).filter(|free| *free > 0)?;
        let at_once: u128 = reservations.iter().map(|one| takes(one, 0)).sum();
        let mut stretch = (at_once * WHOLE).div_ceil(free);
        for _ in 0..TURNS {
            let takes = |one: &Deadline| takes(one, stretch).min(stretch);
            let next = reservations.iter().map(takes).sum::<u128>() / cpus;
            if next >= stretch {
                break;
            }
            stretch = next;
        }
        let micros = u64::try_from(stretch.div_ceil(1000)).ok()?;
        micros.checked_mul(1000).map(Nanos)
    }

    /// Returns what each of `reservations` is worth, all of them together.
    ///
    /// # Errors
    /// The pool does not keep them.
    pub fn services(&self, reservations: &[Deadline]) -> Result<Vec<Service>, Unschedulable> {
        let services: Result<Vec<_>, _> =
            reservations.iter().map(|one| self.service(*one)).collect();
        let services = services?;
        if services.len() > self.threads as usize {
            return Err(Unschedulable::Threads(services.len()));
        }
        let densities = reservations.iter().map(Deadline::density);
        let sum = densities.fold(0, u64::saturating_add);
        if sum > self.reservable {
            return Err(Unschedulable::Sum(sum));
        }
        Ok(services)
    }
}

/// Guaranteed service of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    reservation: Deadline,
    disturbance: Disturbance,
    lateness: Nanos,
}

/// Bound on the duration of some work of a thread, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Latency {
    /// The CPU time itself.
    pub demand: Nanos,
    /// Time without a CPU before the work, and between its parts if it is longer than a runtime.
    pub blackout: Nanos,
    /// Additional time because the thread itself overran its runtime before.
    pub overrun: Nanos,
    /// Additional time because interrupts and steal are charged to the thread.
    pub charged: Nanos,
    /// Lateness of its deadlines, because others overran, and interrupts and steal took their CPUs.
    pub lateness: Nanos,
}

impl Latency {
    /// Returns the sum of all parts.
    pub fn total(&self) -> Nanos {
        let Self {
            demand,
            blackout,
            overrun,
            charged,
            lateness,
        } = *self;
        let parts = [demand, blackout, overrun, charged, lateness];
        parts.into_iter().fold(Nanos::ZERO, Nanos::saturating_add)
    }
}

impl Service {
    /// Returns the longest time without a CPU for a thread that could run.
    pub fn blackout(&self) -> Nanos {
        let least = Nanos(1);
        self.latency(least).total().saturating_sub(least)
    }

    /// Returns the longest duration of `demand` of CPU time, from the moment when the thread has
    /// this work; [`Nanos::MAX`] and more if it is unbounded. Earlier unfinished work must be
    /// included in `demand`.
    ///
    /// In the worst case the thread has just used up its runtime and overrun it, which moved its
    /// deadline. Afterwards it has one runtime in each period, at the end of each deadline.
    pub fn latency(&self, demand: Nanos) -> Latency {
        if demand == Nanos::ZERO {
            return Latency::default();
        }
        let ideal = self.under(demand, Nanos::ZERO);
        let overrun = self.under(demand, self.disturbance.overrun);
        Latency {
            demand,
            blackout: ideal.saturating_sub(demand),
            overrun: overrun.saturating_sub(ideal),
            charged: self.disturbed(demand).saturating_sub(overrun),
            lateness: self.lateness,
        }
    }

    /// Returns the longest duration of `demand` if no deadline is missed and this thread may
    /// overrun its runtime.
    fn under(&self, demand: Nanos, overrun: Nanos) -> Nanos {
        let Deadline {
            runtime,
            deadline,
            period,
        } = self.reservation;
        let wide = |time: Nanos| u128::from(time.0);
        let (demand, overrun) = (wide(demand), wide(overrun));
        // Its deadline was moved on by so many periods, and is by so many more.
        let before = overrun / wide(runtime) + 1;
        let during = (demand + overrun).div_ceil(wide(runtime));
        let without = (before + during) * wide(period - runtime) + overrun;
        let total = without + demand - wide(period - deadline);
        Nanos(u64::try_from(total).unwrap_or(u64::MAX))
    }

    /// Returns the longest duration if interrupts and steal are charged to the thread, as most
    /// kernels do.
    fn disturbed(&self, demand: Nanos) -> Nanos {
        let Disturbance {
            overrun,
            interrupts,
            steal,
            share,
        } = self.disturbance;
        let at_once = demand.saturating_add(interrupts).saturating_add(steal);
        let mut total = Nanos::ZERO;
        // What they take grows with the time that they have.
        for _ in 0..100 {
            let time = total.saturating_add(self.lateness);
            let more = (u128::from(time.0) * u128::from(share)).div_ceil(CPU.into());
            let more = Nanos(u64::try_from(more).unwrap_or(u64::MAX));
            let next = self.under(at_once.saturating_add(more), overrun);
            if next == total {
                return total;
            }
            total = next;
        }
        Nanos::MAX
    }
}
