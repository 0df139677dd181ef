//! What a reservation of Linux's `SCHED_DEADLINE` is worth: whether all of them together
//! can be kept, and how long a thread with one takes at most for what it has to do. Pure, in
//! exact whole numbers.
//!
//! The kernel's own admission control is no proof of either: it compares the sum of runtime /
//! period with the CPUs, which on more than one CPU bounds how late deadlines may be, not
//! that they are kept, and does not look at deadlines that are shorter than periods
//! (`Documentation/scheduler/sched-deadline.rst`, sections 3 and 5). A [`Pool`] is CPUs on which
//! it is proved. A reservation counts there as its density, runtime / deadline. The finer test
//! of the demand by each moment (Baruah, Rosier and Howell, Real-Time Systems 2, 1990) holds for
//! threads that run until their work of a period is done; a guest sleeps and wakes when it likes,
//! and the kernel then gives it its density until its deadline, so that by that test it could
//! make others late.
//!
//! What else takes time is a [`Disturbance`]: interrupts, steal, and threads that overrun
//! their runtime by up to a tick where the kernel enforces it by the tick alone. A [`Service`] is
//! what is left of a reservation with all of that.
//!
//! Budgets are CPU time at full speed. What a thread gets done in it is less while its core is
//! shared with another hardware thread, or runs slower.

#[cfg(test)]
mod tests;

use tailbound_units::Nanos;
use thiserror::Error;

/// `runtime` of CPU in each `period`, by `deadline` after the period's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    /// CPU time in each period.
    pub runtime: Nanos,
    /// By when it is given, at most the period.
    pub deadline: Nanos,
    /// The period.
    pub period: Nanos,
}

impl Deadline {
    /// Returns the longest time without a CPU for a thread that could run, where no deadline is
    /// missed and every budget is enforced at once: it had its runtime at the start of one
    /// period, and has the next at the end of the deadline. P + D - 2Q.
    ///
    /// # Panics
    /// It does not take 0 < runtime <= deadline <= period.
    pub fn blackout(&self) -> Nanos {
        assert!(self.is_possible(), "{self:?} is no reservation");
        self.period + self.deadline - self.runtime - self.runtime
    }

    /// Returns for how long a thread with it runs at a stretch at most that may have what other
    /// reservations leave of a CPU as well (`SCHED_FLAG_RECLAIM`), where the kernel gives
    /// reservations `share` thousandths of each CPU, looks for up to `overrun` too late whether
    /// its runtime is used up, and no deadline is missed; `None` where that has no end. As long
    /// others without a reservation wait, the fair server aside.
    ///
    /// Its runtime is charged at runtime / period / share of the time at least, so that it lasts
    /// for U = share * period. It may begin with all of it at its deadline, be U before it is
    /// used up, and go on as long as a look at it finds the end of its period to be past: each
    /// period brings that nearer by what the kernel keeps from it, (1 - share) * period.
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

/// What takes time of CPUs with reservations, beside these.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Disturbance {
    /// How long a thread may run beyond its runtime before the kernel stops it: one tick, or
    /// nothing where a timer does (`HRTICK_DL`).
    pub overrun: Nanos,
    /// What interrupts take of a CPU at once.
    pub interrupts: Nanos,
    /// What whoever runs the host's kernel as a guest takes of a CPU at once.
    pub steal: Nanos,
    /// What both take in the long run, in thousandths of a CPU: of each CPU, in any time, at
    /// most this share of it beside what they take at once.
    pub share: u64,
}

/// CPUs that the same reservations use and no others, by earliest deadline first on all of
/// them: any that the pool keeps, whenever their threads sleep and wake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// How many CPUs.
    pub cpus: u32,
    /// How many reservations at most.
    pub threads: u32,
    /// The largest density of one, in thousandths of a CPU.
    pub largest: u64,
    /// The largest sum of all densities, in thousandths of a CPU.
    pub reservable: u64,
    /// What else takes their time.
    pub disturbance: Disturbance,
}

/// Why reservations cannot be promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Unschedulable {
    /// Not 0 < runtime <= deadline <= period.
    #[error("it takes 0 < runtime <= deadline <= period")]
    Impossible,
    /// Nothing is proved of the pool.
    #[error("its densities, and what takes time beside them, are too much for {0} CPUs")]
    Pool(u32),
    /// There are too many.
    #[error("there are {0} reservations, more than the pool keeps")]
    Threads(usize),
    /// One is too dense.
    #[error("a runtime of {0} thousandths of its deadline is more than the pool keeps")]
    Largest(u64),
    /// All together are too dense.
    #[error("all together are {0} thousandths of a CPU, more than the pool keeps")]
    Sum(u64),
    /// Overruns, interrupts and steal may take longer than a period leaves.
    #[error("others may make it late by {0}, more than its period leaves beside its runtime")]
    Late(Nanos),
}

/// One CPU, in the unit of densities.
const CPU: u64 = 1000;

impl Pool {
    /// Returns by how much deadlines are missed at most, rounded up to a microsecond; `None` where
    /// nothing is proved.
    ///
    /// M CPUs keep all deadlines if the densities add up to M - (M - 1) times the largest at most
    /// (Goossens, Funk and Baruah, Real-Time Systems 25, 2003). What a thread overruns it pays
    /// with its next runtime, so that of what is due by any moment it has taken one overrun too
    /// much at most. On one CPU a deadline is missed by all of that at most, as long as a busy
    /// stretch is. On several let S be all that the M CPUs have left beside the sum and the
    /// largest, E what is taken too much. Work done by then is never less than in a schedule that
    /// gives each thread its density, E / S later: else there were a job that came first of those
    /// that are behind in it, at least E / S ago, and since then either all CPUs were busy, or
    /// that thread ran; what they did is then more than the densities by S of that time less E.
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

    /// Returns for how long at a stretch `cpus` CPUs of the pool may all run `reservations`, which
    /// it keeps, so that whoever goes behind them has none of these CPUs; rounded up to a
    /// microsecond. `None` where nothing proves an end.
    ///
    /// In a stretch of L one has no more than runtime / period of L and a deadline, its lateness
    /// and another runtime: what it had left at the start, and what it need not have used by the
    /// end. And two overruns: one whose end was past when the kernel looked goes on at once, into
    /// another. What is overrun is paid back. On several CPUs it has L at most.
    pub fn longest_hold(&self, cpus: u32, reservations: &[Deadline]) -> Option<Nanos> {
        /// One CPU, finely.
        const WHOLE: u128 = 1_000_000_000;
        /// More would find a shorter stretch, and each that is found is a bound.
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

/// What a thread gets of its reservation for sure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    reservation: Deadline,
    disturbance: Disturbance,
    lateness: Nanos,
}

/// How long a thread takes at most, part by part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Latency {
    /// The CPU time itself.
    pub demand: Nanos,
    /// Without a CPU before it, and between its parts where it is longer than a runtime.
    pub blackout: Nanos,
    /// More of that since it overran its runtime itself.
    pub overrun: Nanos,
    /// More of that since interrupts and steal count as run by it.
    pub charged: Nanos,
    /// By how much its deadlines are missed: others overran, and interrupts and steal took
    /// their CPUs.
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

    /// Returns how long `demand` of CPU time takes at most, from whenever the thread has it to do;
    /// [`Nanos::MAX`] and more where that has no end. What it has to do before counts as well.
    ///
    /// It may just have used its runtime up, and more by an overrun, which moved its deadline on;
    /// then it has one runtime in each period, at the end of each deadline.
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

    /// How long `demand` takes if no deadline is missed, and this thread may overrun its runtime.
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

    /// The same where interrupts and steal are charged to it, as most kernels do.
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
