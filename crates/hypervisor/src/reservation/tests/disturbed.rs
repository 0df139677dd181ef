//! A thread beside some that take its CPU at the worst moment, and interrupts and steal that do:
//! each part of the bound is reached here, so that none can be left out.

use super::{micros, pool};
use crate::reservation::{Deadline, Disturbance, Latency, Pool};
use crate::testing::host;
use crate::{Costs, Enforcement, Event, Machine, PcpuId, SchedDeadline, VcpuId, Wake};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tailbound_units::Nanos;

/// The thread that is looked at. Behind it are those that lie in wait for it, and behind them
/// those that stand for interrupts and steal, one for each CPU.
const TARGET: VcpuId = VcpuId(0);

#[derive(Debug, Clone)]
struct Case {
    cpus: u32,
    /// Of the one that is looked at, and of the others.
    reservations: Vec<Deadline>,
    disturbance: Disturbance,
    enforcement: Enforcement,
    demand: Nanos,
    seed: u64,
}

/// CPU time that may be taken from one CPU: a burst, and a share in the long run.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: Nanos,
    at: Nanos,
}

/// A case as it runs.
struct Run<'a> {
    case: &'a Case,
    machine: Machine<SchedDeadline>,
    random: Pcg64Mcg,
    /// Next wakes of the threads.
    wakes: Vec<Nanos>,
    buckets: Vec<Bucket>,
    asked: Nanos,
    longest: Nanos,
    left: u32,
}

impl Case {
    fn pool(&self) -> Pool {
        pool(self.cpus, &self.reservations, self.disturbance)
    }

    fn at_once(&self) -> Nanos {
        self.disturbance.interrupts + self.disturbance.steal
    }

    /// Returns the longest of `answers` answers.
    fn longest(&self, answers: u32) -> Nanos {
        let mut reservations = self.reservations.clone();
        // It comes before all others, and is never throttled.
        let twice = self.at_once() + self.at_once();
        let taker = Deadline {
            runtime: twice,
            deadline: twice,
            period: twice,
        };
        reservations.resize(reservations.len() + self.cpus as usize, taker);
        let host = host(self.cpus, reservations.len() as u32);
        let scheduler = SchedDeadline::new(&host, &reservations, self.enforcement).unwrap();
        let bucket = Bucket {
            tokens: self.at_once(),
            at: Nanos::ZERO,
        };
        let run = Run {
            case: self,
            machine: Machine::new(&host, scheduler, Costs::default()),
            random: Pcg64Mcg::seed_from_u64(self.seed),
            wakes: vec![Nanos(1); reservations.len()],
            buckets: vec![bucket; self.cpus as usize],
            asked: Nanos::ZERO,
            longest: Nanos::ZERO,
            left: answers,
        };
        run.finish()
    }
}

impl Run<'_> {
    fn finish(mut self) -> Nanos {
        let mut events = Vec::new();
        while self.left > 0 {
            let next = self.wakes.iter().copied().min().unwrap_or(Nanos::MAX);
            let now = self.machine.next_at().min(next);
            events.clear();
            self.machine.advance(now, &mut events);
            for event in &events {
                if let Event::Done { vcpu: TARGET, .. } = event {
                    self.longest = self.longest.max(now - self.asked);
                    self.left -= 1;
                    let period = self.case.reservations[0].period.0;
                    // Mostly at once, when its runtime is just used up.
                    let pause = [1_000, 1_000, 100_000, 2 * period][self.random.random_range(0..4)];
                    self.wakes[0] = now + Nanos(self.random.random_range(1..=pause));
                }
            }
            for vcpu in 0..self.wakes.len() {
                if self.wakes[vcpu] <= now {
                    self.wakes[vcpu] = Nanos::MAX;
                    self.wake(now, VcpuId(vcpu as u32));
                }
            }
            self.machine.dispatch(&mut events);
            self.lie_in_wait(now);
        }
        self.longest
    }

    fn wake(&mut self, now: Nanos, vcpu: VcpuId) {
        let Some(given) = self.case.reservations.get(vcpu.index()) else {
            self.take(now, vcpu.0 - self.case.reservations.len() as u32);
            return;
        };
        let work = if vcpu == TARGET {
            self.asked = now;
            self.case.demand
        } else {
            // Some on and on until the kernel stops it.
            given.runtime + self.case.disturbance.overrun
        };
        if !self.machine.has_work(vcpu) {
            self.machine.wake(vcpu, work, Wake::Event);
        }
    }

    /// Takes the permitted time from a CPU: as work of the running thread, or as the work of no
    /// thread.
    fn take(&mut self, now: Nanos, cpu: u32) {
        let bucket = &mut self.buckets[cpu as usize];
        let earned = (now - bucket.at).0 * self.case.disturbance.share / 1000;
        bucket.at = now;
        bucket.tokens = (bucket.tokens + Nanos(earned)).min(self.case.at_once());
        let due = bucket.tokens;
        let taker = VcpuId(self.case.reservations.len() as u32 + cpu);
        if due == Nanos::ZERO || self.machine.has_work(taker) {
            return;
        }
        let running = self.machine.current(PcpuId(cpu));
        let work = running.and_then(|vcpu| Some((vcpu, self.machine.work_left(vcpu)?)));
        match work.filter(|_| self.random.random()) {
            Some((vcpu, left)) if left > Nanos::ZERO => self.machine.set_work(vcpu, left + due),
            _ => {
                self.machine.wake(taker, due, Wake::Event);
            }
        }
        self.buckets[cpu as usize].tokens = Nanos::ZERO;
    }

    /// Has all others come where they hurt most: when the target, which waits for its next
    /// period, has it, or as it works.
    fn lie_in_wait(&mut self, now: Nanos) {
        let target = self.case.reservations[0];
        let is_throttled = self.machine.has_work(TARGET) && self.machine.runs_on(TARGET).is_none();
        let deadline = self.machine.scheduler().deadline(TARGET);
        let begin = deadline + target.period - target.deadline;
        let span = target.period.0;
        for other in 1..self.wakes.len() {
            let is_set = (now..Nanos::MAX).contains(&self.wakes[other]);
            if is_set || self.machine.has_work(VcpuId(other as u32)) {
                continue;
            }
            self.wakes[other] = if is_throttled && begin > now && self.random.random_range(0..8) > 0
            {
                begin
            } else {
                now + Nanos(self.random.random_range(1..=span))
            };
        }
    }
}

/// Parameters of a case.
#[derive(Debug, Clone)]
struct Parts {
    cpus: u32,
    /// The target's period in microseconds, its deadline in thousandths of that, and its density.
    target: (u64, u64, u64),
    /// Of each other its deadline in hundredths of the target's, and its part of what is left.
    others: Vec<(u64, u64)>,
    /// Burst of interrupts and of steal in microseconds, and their share in thousandths.
    taken: (u64, u64, u64),
    enforcement: Enforcement,
    /// The target's work in hundredths of its runtime.
    demand: u64,
    seed: u64,
}

impl Parts {
    /// Reservations that fill CPUs up to what interrupts and steal take of them.
    fn case(&self) -> Case {
        let (period, at, density) = self.target;
        let (interrupts, steal, share) = self.taken;
        let deadline = period * at / 1000;
        let target = micros(deadline * density / 1000, deadline, period);
        let left = u64::from(self.cpus) * (999 - share - target.density());
        let parts = self.others.iter().map(|(_, part)| part).sum::<u64>();
        let most = if self.cpus == 1 {
            999
        } else {
            target.density()
        };
        let others = self.others.iter().map(|(early, part)| {
            let before = deadline * early / 100;
            let density = (left * part / parts.max(1)).saturating_sub(2).min(most);
            micros((before * density / 1000).max(2), before, before)
        });
        let overrun = match self.enforcement {
            Enforcement::Timer => Nanos::ZERO,
            Enforcement::Tick { every, .. } => every,
        };
        Case {
            cpus: self.cpus,
            reservations: [target].into_iter().chain(others).collect(),
            disturbance: Disturbance {
                overrun,
                interrupts: Nanos::from_micros(interrupts + 1),
                steal: Nanos::from_micros(steal + 1),
                share,
            },
            enforcement: self.enforcement,
            demand: Nanos(target.runtime.0 * self.demand / 100),
            seed: self.seed,
        }
    }
}

fn ticks() -> impl Strategy<Value = Enforcement> {
    (50_000_u64..400_000, any::<u64>()).prop_map(|(every, at)| Enforcement::Tick {
        every: Nanos(every),
        at: Nanos(at % every),
    })
}

fn anyhow() -> impl Strategy<Value = Parts> {
    let target = (4_000_u64..20_000, 300_u64..=1000, 50_u64..500);
    let others = prop::collection::vec((50_u64..=100, 0_u64..100), 1..7);
    let taken = (0_u64..200, 0_u64..200, 0_u64..100);
    let enforcement = prop_oneof![Just(Enforcement::Timer), ticks()];
    let demand = prop_oneof![Just(100_u64), Just(200), Just(300), 20_u64..300];
    (
        1_u32..3,
        target,
        others,
        taken,
        enforcement,
        demand,
        any::<u64>(),
    )
        .prop_map(
            |(cpus, target, others, taken, enforcement, demand, seed)| Parts {
                cpus,
                target,
                others,
                taken,
                enforcement,
                demand,
                seed,
            },
        )
}

/// One that fills the CPU, and some that do next to nothing and overrun that by nearly a tick:
/// what comes due with the target is late by all of them.
fn crowded() -> impl Strategy<Value = Parts> {
    (anyhow(), ticks(), 4_usize..8, 20_u64..90).prop_map(|(parts, enforcement, count, demand)| {
        let mut others = vec![(100, 0); count];
        others[0] = (100, 1);
        Parts {
            cpus: 1,
            others,
            taken: (0, 0, 0),
            enforcement,
            demand,
            ..parts
        }
    })
}

fn case() -> impl Strategy<Value = Case> {
    prop_oneof![3 => anyhow(), 1 => crowded()].prop_map(|parts| parts.case())
}

proptest! {
    #[test]
    fn no_response_exceeds_the_bound_under_disturbance(case in case()) {
        let services = case.pool().services(&case.reservations);
        prop_assume!(services.is_ok());
        let promised = services.unwrap()[0].latency(case.demand).total();
        let longest = case.longest(100);
        prop_assert!(longest <= promised, "{longest} > {promised}: {case:?}");
    }
}

/// For each part of the bound there is a case that takes longer than all others allow.
#[test]
fn each_part_of_the_bound_is_needed() {
    let mut runner = TestRunner::deterministic();
    let mut needed = [false; 4];
    let mut nearest = [0.0_f64; 4];
    for _ in 0..400 {
        let case = case().new_tree(&mut runner).unwrap().current();
        let Ok(services) = case.pool().services(&case.reservations) else {
            continue;
        };
        let latency = services[0].latency(case.demand);
        let longest = case.longest(100);
        assert!(
            longest <= latency.total(),
            "{longest} > {latency:?}: {case:?}"
        );
        let Latency {
            blackout,
            overrun,
            charged,
            lateness,
            ..
        } = latency;
        for (place, part) in [blackout, overrun, charged, lateness]
            .into_iter()
            .enumerate()
        {
            let without = latency.total() - part;
            needed[place] |= longest > without;
            if part > Nanos::ZERO {
                let share = longest.as_secs_f64() / without.as_secs_f64();
                nearest[place] = nearest[place].max(share);
            }
        }
    }
    println!("of the bound without each part the longest took {nearest:?}");
    assert_eq!(
        needed, [true; 4],
        "blackout, overrun, charged, lateness: {nearest:?}"
    );
}
