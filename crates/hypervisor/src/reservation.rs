//! What a reservation of Linux's `SCHED_DEADLINE` is worth: whether all of them together
//! can be kept, and the longest time that one of them leaves its thread without a CPU.
//! Pure, in exact whole numbers.
//!
//! The kernel's own admission control is no proof of either: it compares the sum of runtime /
//! period with the CPUs, which on more than one CPU bounds how late deadlines may be, not
//! that they are kept, and does not look at deadlines that are shorter than periods
//! (`Documentation/scheduler/sched-deadline.rst`, sections 3 and 5). The tests here are
//! sufficient: what passes keeps every deadline, if nothing else takes the CPUs' time.
//! What else does is the caller's to add: interrupts, steal, and threads that overrun
//! their runtime by up to a tick where the kernel enforces it by the tick alone.
//!
//! Budgets are CPU time at full speed. What a thread gets done in it is less while its core is
//! shared with another hardware thread, or runs slower.

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

/// Why reservations cannot be promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Unschedulable {
    /// Not 0 < runtime <= deadline <= period.
    #[error("reservation {0}: it takes 0 < runtime <= deadline <= period")]
    Impossible(usize),
    /// On one CPU more is due by some moment than there is time until then.
    #[error("by {by} after all start together {demand} of CPU time is due")]
    Demand {
        /// The moment, from the common start.
        by: Nanos,
        /// What is due by then.
        demand: Nanos,
    },
    /// The density test of several CPUs does not hold.
    #[error("their runtimes are too large a part of their deadlines for {0} CPUs")]
    Density(u32),
    /// There are more moments to look at than [`MAX_MOMENTS`].
    #[error(
        "the demand on that CPU has to be looked at for too long; use periods that divide \
             each other, or less than all of the CPU"
    )]
    TooLong,
}

/// At how many moments the demand of one CPU is compared with the time at most.
pub const MAX_MOMENTS: u32 = 1_000_000;

impl Deadline {
    /// Returns the longest time without a CPU for a thread that could run, where
    /// [`schedulable`] holds and every budget is enforced at once: it had its runtime at the
    /// start of one period, and has the next at the end of the deadline. P + D - 2Q.
    ///
    /// # Panics
    /// The runtime is longer than the deadline, or that longer than the period.
    pub fn blackout(&self) -> Nanos {
        assert!(self.is_possible(), "{self:?} is no reservation");
        self.period + self.deadline - self.runtime - self.runtime
    }

    fn is_possible(&self) -> bool {
        let Self {
            runtime,
            deadline,
            period,
        } = *self;
        Nanos::ZERO < runtime && runtime <= deadline && deadline <= period
    }

    /// What is due of it by `at` after a period's start, at most.
    fn demand(&self, at: Nanos) -> u128 {
        if at < self.deadline {
            return 0;
        }
        let jobs = (at - self.deadline).0 / self.period.0 + 1;
        u128::from(jobs) * u128::from(self.runtime.0)
    }
}

/// Proves that `reservations` are all kept on `cpus` CPUs that no others with deadlines use,
/// by earliest deadline first on all of them.
///
/// On one CPU that is so if the sum of runtime / deadline is at most 1, and otherwise exactly
/// if no more is due by any moment than there is time (Baruah, Rosier and Howell, Real-Time
/// Systems 2, 1990). On M CPUs if the sum is at most M - (M - 1) times the largest (Goossens,
/// Funk and Baruah, Real-Time Systems 25, 2003, with densities for utilisations).
///
/// # Errors
/// What is wrong, or why it cannot be said.
pub fn schedulable(reservations: &[Deadline], cpus: u32) -> Result<(), Unschedulable> {
    if let Some(index) = reservations.iter().position(|one| !one.is_possible()) {
        return Err(Unschedulable::Impossible(index));
    }
    let densities = reservations
        .iter()
        .map(|one| Fraction::up(one.runtime, one.deadline));
    let largest = densities.clone().max().unwrap_or(Fraction(0));
    let sum: u128 = densities.map(|density| density.0).sum();
    let cpus_wide = u128::from(cpus);
    let bound = (cpus_wide * ONE).checked_sub(cpus_wide.saturating_sub(1) * largest.0);
    if bound.is_some_and(|bound| sum <= bound) {
        return Ok(());
    }
    match cpus {
        1 => demand_holds(reservations),
        _ => Err(Unschedulable::Density(cpus)),
    }
}

/// One, in the unit of [`Fraction`].
const ONE: u128 = 1 << 64;

/// A part of one CPU, in units of 2^-64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Fraction(u128);

impl Fraction {
    /// Returns `part` of `whole`, rounded up: what holds of it holds of the exact one.
    fn up(part: Nanos, whole: Nanos) -> Self {
        Self((u128::from(part.0) * ONE).div_ceil(u128::from(whole.0)))
    }
}

/// Compares what is due with the time, at each moment at which something becomes due, up to
/// the end of the longest stretch without an idle moment.
fn demand_holds(reservations: &[Deadline]) -> Result<(), Unschedulable> {
    let utilisation: u128 = reservations
        .iter()
        .map(|one| Fraction::up(one.runtime, one.period).0)
        .sum();
    if utilisation > ONE + reservations.len() as u128 {
        // Sooner or later more is due than there is time; a stretch ends never.
        return first_excess(reservations, None);
    }
    first_excess(reservations, busy_stretch(reservations))
}

/// Returns how long the CPU is busy without a pause when all start together; `None` where
/// that does not end soon.
fn busy_stretch(reservations: &[Deadline]) -> Option<Nanos> {
    let mut length: u64 = reservations.iter().map(|one| one.runtime.0).sum();
    for _ in 0..MAX_MOMENTS {
        let asked = reservations
            .iter()
            .map(|one| u128::from(length.div_ceil(one.period.0)) * u128::from(one.runtime.0));
        let next = u64::try_from(asked.sum::<u128>()).ok()?;
        if next == length {
            return Some(Nanos(length));
        }
        length = next;
    }
    None
}

fn first_excess(reservations: &[Deadline], end: Option<Nanos>) -> Result<(), Unschedulable> {
    let mut at = Nanos::ZERO;
    for _ in 0..MAX_MOMENTS {
        let after = |one: &Deadline| {
            if at < one.deadline {
                return one.deadline;
            }
            let jobs = (at - one.deadline).0 / one.period.0 + 1;
            one.deadline + Nanos(jobs * one.period.0)
        };
        let Some(next) = reservations.iter().map(after).min() else {
            return Ok(());
        };
        at = next;
        if end.is_some_and(|end| at > end) {
            return Ok(());
        }
        let demand: u128 = reservations.iter().map(|one| one.demand(at)).sum();
        if demand > u128::from(at.0) {
            let demand = Nanos(u64::try_from(demand).unwrap_or(u64::MAX));
            return Err(Unschedulable::Demand { by: at, demand });
        }
    }
    Err(Unschedulable::TooLong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn micros(runtime: u64, deadline: u64, period: u64) -> Deadline {
        Deadline {
            runtime: Nanos::from_micros(runtime),
            deadline: Nanos::from_micros(deadline),
            period: Nanos::from_micros(period),
        }
    }

    /// The longest time without a CPU, and whether every deadline is kept, over `length`
    /// whole units: earliest deadline first on so many CPUs, a unit at a time.
    fn simulate(reservations: &[(u64, u64, u64)], cpus: usize, length: u64) -> (Vec<u64>, bool) {
        let mut left = vec![0; reservations.len()];
        let mut due = vec![0; reservations.len()];
        let (mut gap, mut longest) = (vec![0; left.len()], vec![0; left.len()]);
        let mut kept = true;
        for now in 0..length {
            for (index, (runtime, deadline, period)) in reservations.iter().enumerate() {
                kept &= left[index] == 0 || due[index] > now;
                if now % period == 0 {
                    (left[index], due[index]) = (*runtime, now + deadline);
                }
            }
            let mut order: Vec<usize> = (0..left.len()).filter(|n| left[*n] > 0).collect();
            order.sort_by_key(|n| (due[*n], *n));
            for index in 0..left.len() {
                if order[..order.len().min(cpus)].contains(&index) {
                    left[index] -= 1;
                    gap[index] = 0;
                } else {
                    gap[index] += 1;
                }
                longest[index] = longest[index].max(gap[index]);
            }
        }
        (longest, kept)
    }

    #[test]
    fn the_blackout_is_period_and_deadline_without_the_runtime_twice() {
        assert_eq!(micros(1000, 4000, 4000).blackout(), Nanos::from_millis(6));
        assert_eq!(micros(1000, 2000, 4000).blackout(), Nanos::from_millis(4));
        assert_eq!(micros(4000, 4000, 4000).blackout(), Nanos::ZERO);
    }

    #[test]
    fn what_one_cpu_cannot_keep_is_told_by_when() {
        // Density 1.25, but what is due always fits.
        let tight = [micros(1000, 2000, 8000), micros(3000, 4000, 8000)];
        assert_eq!(schedulable(&tight, 1), Ok(()));
        let over = [micros(2000, 3000, 8000), micros(2000, 3000, 8000)];
        let by = Nanos::from_millis(3);
        let demand = Nanos::from_millis(4);
        assert_eq!(
            schedulable(&over, 1),
            Err(Unschedulable::Demand { by, demand })
        );
        // The kernel admits the second to two CPUs, since it is 1.4 in all.
        let heavy = [
            micros(10, 100, 100),
            micros(10, 100, 100),
            micros(80, 101, 101),
        ];
        assert_eq!(schedulable(&heavy, 2), Ok(()));
        let dhall = [
            micros(20, 100, 100),
            micros(20, 100, 100),
            micros(99, 101, 101),
        ];
        assert_eq!(schedulable(&dhall, 2), Err(Unschedulable::Density(2)));
        assert_eq!(
            schedulable(&[micros(5, 4, 9)], 1),
            Err(Unschedulable::Impossible(0))
        );
        assert_eq!(schedulable(&[], 1), Ok(()));
    }

    fn reservation() -> impl Strategy<Value = (u64, u64, u64)> {
        let periods = prop::sample::select(vec![4u64, 5, 6, 8, 10, 12]);
        periods.prop_flat_map(|period| {
            let deadlines = 1..=period;
            deadlines.prop_flat_map(move |deadline| {
                (1..=deadline).prop_map(move |runtime| (runtime, deadline, period))
            })
        })
    }

    proptest! {
        #[test]
        fn what_is_said_to_be_kept_is_kept_and_no_gap_exceeds_the_blackout(
            reservations in prop::collection::vec(reservation(), 1..5),
            cpus in 1u32..4,
        ) {
            let exact: Vec<_> = reservations.iter().map(|(q, d, p)| micros(*q, *d, *p)).collect();
            let verdict = schedulable(&exact, cpus);
            // All start together, and again after the least common multiple of the periods.
            let (longest, kept) = simulate(&reservations, cpus as usize, 240);
            prop_assert!(verdict.is_err() || kept, "{reservations:?}");
            if cpus == 1 {
                // On one CPU the answer is exact.
                prop_assert_eq!(verdict.is_ok(), kept, "{:?} {:?}", reservations, verdict);
            }
            if verdict.is_ok() {
                for (one, longest) in exact.iter().zip(longest) {
                    prop_assert!(Nanos::from_micros(longest) <= one.blackout(), "{reservations:?}");
                }
            }
        }
    }
}
