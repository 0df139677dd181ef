//! CPU time that a host offers to the placement service: reservations that hold for any guest
//! ([`tailbound_hypervisor::reservation`]), given the measured interrupt and steal time of this
//! host.

use super::class::{Bandwidth, CPU};
use super::losses::{LargestLosses, LongRun, Meter};
use super::observed::{Domain, Limits, ObservedMachine};
use super::observer::Observer;
use super::worth::deadline;
use serde::Deserialize;
use std::fmt;
use std::io;
use std::time::Instant;
use tailbound_document::{Problem, Step};
use tailbound_hypervisor::reservation::{Disturbance, Unschedulable};
use tailbound_sys::cpuset::Cpus;
use tailbound_units::Nanos;

pub use tailbound_hypervisor::reservation::Pool;

/// Interval between looks at all reservations of the host, in rounds.
const BOOKED_EVERY: u32 = 10;

/// CPU offered to the placement service.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OfferConfig {
    /// Sum of runtime / deadline of all reservations; half of the provable sum, at most the
    /// kernel's limit.
    pub cpus: Option<Bandwidth>,
    /// Largest runtime / deadline of one reservation; 0.5.
    pub largest: Bandwidth,
    /// Maximum of threads with a reservation; four per CPU.
    pub threads: Option<u32>,
    /// Least burst of interrupts on a CPU; 0.5 ms.
    pub interrupts: Nanos,
    /// Least burst of steal; 0.
    pub steal: Nanos,
    /// Least long-term part of a CPU for interrupts and steal; 0.05.
    pub share: Bandwidth,
}

impl Default for OfferConfig {
    fn default() -> Self {
        Self {
            cpus: None,
            largest: Bandwidth(CPU / 2),
            threads: None,
            interrupts: Nanos::from_micros(500),
            steal: Nanos::ZERO,
            share: Bandwidth(CPU / 20),
        }
    }
}

impl OfferConfig {
    /// Returns everything wrong with it; `at` is its path in the document.
    pub fn check(&self, at: &[Step]) -> Vec<Problem> {
        let shares = [("largest", self.largest), ("share", self.share)];
        let over = shares.into_iter().filter(|(_, share)| share.0 > CPU);
        let wrong = over.map(|(key, share)| Problem {
            path: [at, &[Step::Key(key)]].concat(),
            message: format!("{share} is more than the CPU that it is of; use 0 to 1"),
        });
        wrong.collect()
    }

    /// Returns the pool that is offered of a root domain.
    ///
    /// # Errors
    /// No proof shows that the offer holds, or another thread has reserved more already.
    pub fn pool(
        &self,
        domain: &Domain,
        limits: &Limits,
        losses: LargestLosses,
    ) -> Result<Pool, Withheld> {
        let cpus = domain.cpus.count();
        let wide = u64::from(cpus);
        let largest = thousandths(self.largest);
        let stated = thousandths(self.share);
        let share = stated.max(losses.long_run.thousandths()).min(1000);
        let beyond = Beyond((share > stated).then_some(losses.long_run));
        let others = wide.saturating_sub(1) * largest;
        let proved = (wide * (1000 - share)).saturating_sub(others);
        let capacity = limits.share.map_or(u64::MAX, |share| {
            let each = share.saturating_sub(limits.fair_server);
            u64::try_from(u128::from(wide * each) * 1000 / u128::from(CPU)).unwrap_or(u64::MAX)
        });
        let reservable = match self.cpus {
            Some(cpus) => thousandths(cpus),
            None => (proved / 2).min(capacity),
        };
        let pool = Pool {
            cpus,
            threads: self.threads.unwrap_or(4 * cpus),
            largest,
            reservable,
            disturbance: Disturbance {
                overrun: limits.overrun,
                interrupts: self.interrupts.max(losses.interrupts),
                steal: self.steal.max(losses.steal),
                share,
            },
        };
        if pool.lateness().is_none() {
            return Err(Withheld::Unproved {
                reservable,
                proved,
                beyond,
            });
        }
        if reservable > capacity {
            return Err(Withheld::Kernel {
                reservable,
                capacity,
            });
        }
        if !domain.reclaiming.is_empty() {
            return Err(Withheld::Reclaims {
                cpus: Box::new(domain.cpus),
            });
        }
        let booked: Vec<_> = domain.booked.values().map(|one| deadline(*one)).collect();
        match pool.services(&booked) {
            Ok(_) => Ok(pool),
            Err(Unschedulable::Late(by)) => Err(Withheld::Late {
                by,
                cpus: Box::new(domain.cpus),
                disturbance: pool.disturbance,
                beyond,
            }),
            Err(why) => Err(Withheld::Booked {
                threads: booked.len(),
                cpus: Box::new(domain.cpus),
                why,
            }),
        }
    }
}

/// Converts to thousandths of a CPU, rounded to the nearest.
fn thousandths(bandwidth: Bandwidth) -> u64 {
    let wide = u128::from(bandwidth.0) * 1000 + u128::from(CPU / 2);
    u64::try_from(wide / u128::from(CPU)).unwrap_or(u64::MAX)
}

/// Reason why a host offers nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Withheld {
    /// The offer exceeds the proved amount.
    #[error(
        "no CPU is offered to the placement service: of {reservable} thousandths of a CPU nothing \
         is proved, as {proved} are all that is left beside the largest reservations and what \
         interrupts take{beyond}; lower `cpus` or `largest` of `offer`"
    )]
    Unproved {
        /// The desired offer.
        reservable: u64,
        /// Below how much it would be proved.
        proved: u64,
        /// The disturbances that leave no more, if not the stated ones.
        beyond: Beyond,
    },
    /// The offer exceeds the kernel's limit.
    #[error(
        "no CPU is offered to the placement service: {reservable} thousandths of a CPU are more \
         than the {capacity} that the kernel admits; lower `cpus` of `offer`"
    )]
    Kernel {
        /// The desired offer.
        reservable: u64,
        /// The kernel's limit.
        capacity: u64,
    },
    /// A thread uses more than its reservation.
    #[error(
        "no CPU is offered to the placement service: on {cpus} a thread has more than its \
         reservation (excess = \"reclaim\"), and nothing is proved beside it"
    )]
    Reclaims {
        /// The CPUs of the thread.
        cpus: Box<Cpus>,
    },
    /// Existing reservations exceed the offer.
    #[error(
        "no CPU is offered to the placement service: the {threads} reservations that there are on \
         {cpus} are not within the offer: {why}; end those that are none of its machines', or keep \
         them on other CPUs by a partition"
    )]
    Booked {
        /// Number of reservations.
        threads: usize,
        /// The CPUs of the reservations.
        cpus: Box<Cpus>,
        /// The excess.
        why: Unschedulable,
    },
    /// Disturbances may delay existing reservations beyond their deadlines.
    #[error(
        "no CPU is offered to the placement service: reservations that there are on {cpus} may be \
         late by {by}, more than their periods leave, as others overrun by {} each, interrupts took \
         bursts of {}, and steal {}, beside {} thousandths of a CPU in the long run{beyond}; turn HRTICK_DL \
         on or lower `threads` of `offer`, have interrupts served elsewhere, or raise `share` of \
         `offer` if that is less",
        disturbance.overrun, disturbance.interrupts, disturbance.steal, disturbance.share
    )]
    Late {
        /// Lateness of the deadlines.
        by: Nanos,
        /// The CPUs of the reservations.
        cpus: Box<Cpus>,
        /// The disturbances.
        disturbance: Disturbance,
        /// The measured disturbances beyond the stated ones.
        beyond: Beyond,
    },
}

/// Long-run usage of a CPU, if it exceeds the stated share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beyond(pub Option<LongRun>);

impl fmt::Display for Beyond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(long_run) => write!(f, " ({long_run}, more than `share`)"),
            None => Ok(()),
        }
    }
}

/// Offers again and again, as reservations come and go and more is measured.
#[derive(Debug, Default)]
pub(super) struct Offerer {
    start: Option<Instant>,
    rounds: u32,
    meter: Option<Meter>,
    machine: Option<ObservedMachine>,
}

impl Offerer {
    /// Returns what is offered now; nothing where `config` is none.
    pub(super) fn round(
        &mut self,
        config: Option<&OfferConfig>,
        observer: &Observer,
    ) -> io::Result<Result<Option<Pool>, Withheld>> {
        let Some(config) = config else {
            *self = Self::default();
            return Ok(Ok(None));
        };
        if self.machine.is_none() || self.rounds.is_multiple_of(BOOKED_EVERY) {
            self.machine = Some(observer.machine()?);
        }
        self.rounds = self.rounds.wrapping_add(1);
        let machine = self.machine.iter();
        let domains = machine.flat_map(|machine| {
            machine
                .domains
                .iter()
                .zip(std::iter::repeat(&machine.limits))
        });
        // Those of partitions are whose the partitions are.
        let Some((domain, limits)) = domains.max_by_key(|(domain, _)| domain.cpus.count()) else {
            return Ok(Ok(None));
        };
        let start = *self.start.get_or_insert_with(Instant::now);
        let now = Nanos::from(start.elapsed());
        // What is at once depends on the share beside it.
        let known = self.meter.take();
        let known = known.filter(|meter| meter.stated() == config.share);
        let counted = observer.interrupt_time();
        let meter = known.unwrap_or_else(|| Meter::new(counted, config.share));
        let meter = self.meter.insert(meter);
        let losses = meter.read(now, &observer.stat()?, &domain.cpus);
        Ok(config.pool(domain, limits, losses).map(Some))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{machine, reservation};

    fn offer(config: &OfferConfig, cpus: &str, booked: &[(u64, u64)]) -> Result<Pool, String> {
        let mut machine = machine();
        machine.limits.overrun = Nanos::ZERO;
        let domain = &mut machine.domains[0];
        domain.cpus = cpus.parse().unwrap();
        for (tid, (runtime, period)) in (1..).zip(booked) {
            let reservation = reservation(*runtime, *period);
            domain.booked.insert(crate::testing::id(tid), reservation);
        }
        let offer = config.pool(domain, &machine.limits, LargestLosses::default());
        offer.map_err(|why| why.to_string())
    }

    #[test]
    fn the_default_offer_is_half_of_the_proved_cpu() {
        let config = OfferConfig::default();
        // 4 · 0.95 - 3 · 0.5 are proved.
        let pool = offer(&config, "0-3", &[(1000, 4000), (500, 4000)]).unwrap();
        assert_eq!(
            (pool.reservable, pool.threads, pool.largest),
            (1150, 16, 500)
        );
        assert_eq!(pool.disturbance.interrupts, Nanos::from_micros(500));
        assert_eq!(pool.disturbance.share, 50);
        assert_eq!(offer(&config, "5", &[]).unwrap().reservable, 475);
        let measured = LargestLosses {
            interrupts: Nanos::from_millis(2),
            steal: Nanos::from_millis(30),
            long_run: LongRun::default(),
        };
        let machine = machine();
        let pool = config.pool(&machine.domains[0], &machine.limits, measured);
        let Disturbance {
            overrun,
            interrupts,
            steal,
            ..
        } = pool.unwrap().disturbance;
        assert_eq!(overrun, Nanos::from_millis(4));
        assert_eq!((interrupts, steal), (measured.interrupts, measured.steal));
    }

    #[test]
    fn cpu_that_cannot_be_guaranteed_is_not_offered() {
        let config = |cpus: f64| OfferConfig {
            cpus: Some(Bandwidth::try_from(cpus).unwrap()),
            ..OfferConfig::default()
        };
        let refused = |cpus, booked: &[_]| offer(&config(cpus), "0-3", booked).unwrap_err();
        let unproved = refused(2.4, &[]);
        assert!(
            unproved.contains("2400 thousandths of a CPU nothing is proved, as 2300"),
            "{unproved}"
        );
        let dense = refused(2.0, &[(3000, 4000)]);
        assert!(
            dense.contains("the 1 reservations that there are on 0-3"),
            "{dense}"
        );
        assert!(dense.contains("750 thousandths"), "{dense}");
        let many = refused(0.4, &[(1000, 4000), (1000, 4000)]);
        assert!(
            many.contains("500 thousandths of a CPU, more than"),
            "{many}"
        );
        let busy = OfferConfig {
            interrupts: Nanos::from_millis(50),
            ..OfferConfig::default()
        };
        let late = offer(&busy, "0-3", &[(1000, 4000)]).unwrap_err();
        assert!(late.contains("interrupts took bursts of 50ms"), "{late}");
        assert!(late.contains("raise `share`"), "{late}");
        let small = OfferConfig {
            largest: Bandwidth::try_from(0.05).unwrap(),
            ..config(3.62)
        };
        let beyond = offer(&small, "0-3", &[]).unwrap_err();
        assert!(
            beyond.contains("3620 thousandths of a CPU are more than the"),
            "{beyond}"
        );
    }

    #[test]
    fn an_offer_counts_measured_losses_above_the_stated_share() {
        let config = OfferConfig::default();
        let lost = |thousandths: u64| LargestLosses {
            long_run: LongRun {
                cpu: 3,
                interrupts: Bandwidth(CPU * thousandths / 1000),
                steal: Bandwidth(0),
            },
            ..LargestLosses::default()
        };
        let machine = machine();
        let pool = |config: &OfferConfig, measured| {
            let pool = config.pool(&machine.domains[0], &machine.limits, measured);
            pool.map_err(|why| why.to_string())
        };
        let stated = pool(&config, lost(50)).unwrap();
        let more = pool(&config, lost(150)).unwrap();
        assert_eq!(
            (stated.disturbance.share, more.disturbance.share),
            (50, 150)
        );
        let wide = u64::from(more.cpus);
        assert_eq!(stated.reservable - more.reservable, wide * 100 / 2);
        let much = OfferConfig {
            cpus: Some(Bandwidth(CPU * stated.reservable / 1000)),
            ..config
        };
        assert!(pool(&much, lost(50)).is_ok());
        let withheld = pool(&much, lost(600)).unwrap_err();
        let named = "CPU 3 lost 0.6 of its time to interrupts and 0 to steal, more than `share`";
        assert!(withheld.contains(named), "{withheld}");
    }
}
