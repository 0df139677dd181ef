//! Comparison of each moment of small sets of guests with the exact schedule.

use super::stepped::{Kind, Rules, Stepped};
use super::*;
use crate::{PcpuId, Wake};
use proptest::prelude::*;

/// Unit of all times; each costs one credit.
const UNIT: Nanos = Nanos::from_micros(100);

fn units(count: u64) -> Nanos {
    Nanos(UNIT.0 * count)
}

/// Work of `who`.
#[derive(Debug, Clone, Copy)]
struct WorkArrival {
    at: u64,
    who: usize,
    work: u64,
    is_event: bool,
}

/// Guests, and what they are given.
#[derive(Debug, Clone)]
struct Set {
    pcpus: u32,
    rules: Rules,
    kinds: Vec<Kind>,
    given: Vec<WorkArrival>,
    /// Number of compared units.
    until: u64,
}

impl Set {
    fn any() -> impl Strategy<Value = Self> {
        const UNTIL: u64 = 400;
        let guest = (0_u8..3, 0_u64..40, proptest::option::of(0_u64..40));
        let guests = proptest::collection::vec(guest, 2..=4);
        let work = prop_oneof![3 => 1_u64..=12, 1 => Just(UNTIL)];
        let given = (
            0..UNTIL,
            0_usize..4,
            work,
            prop_oneof![3 => Just(true), 1 => Just(false)],
        );
        let given = proptest::collection::vec(given, 1..50);
        let tslice = prop_oneof![Just((10_u64, 10_u64)), Just((30, 10)), Just((60, 20))];
        let reserve = prop_oneof![Just(0_i64), Just(10), Just(100)];
        let rules = (1_u64..=6, 1_u64..=6, tslice, reserve);
        let rules = rules.prop_map(|(slice, timer, (tslice, tick), reserve)| Rules {
            slice,
            timer,
            tslice,
            tick,
            reserve,
        });
        let all = (1_u32..=2, any::<bool>(), rules, guests, given);
        all.prop_map(|(pcpus, has_driver, rules, guests, given)| {
            let kind = |(kind, more, period): (u8, u64, Option<u64>)| {
                let deadline = rules.timer + more;
                let period = period.map(|more| deadline + more);
                match kind {
                    0 => Kind::Normal,
                    1 => Kind::Aperiodic { deadline },
                    _ => Kind::Periodic { deadline, period },
                }
            };
            let mut kinds: Vec<_> = guests.into_iter().map(kind).collect();
            if has_driver && pcpus > 1 {
                kinds[0] = Kind::Driver;
            }
            let count = kinds.len();
            let given = given
                .into_iter()
                .map(|(at, who, work, is_event)| WorkArrival {
                    at,
                    who: who % count,
                    work,
                    is_event,
                });
            Self {
                pcpus,
                rules,
                given: given.collect(),
                kinds,
                until: UNTIL,
            }
        })
    }

    fn edf(&self, host: &Host) -> EdfCredit {
        let class = |kind: &Kind| match *kind {
            Kind::Driver => DomainClass::Driver,
            Kind::Normal => DomainClass::Normal,
            Kind::Aperiodic { deadline } => DomainClass::Aperiodic {
                deadline: units(deadline),
            },
            Kind::Periodic { deadline, period } => DomainClass::Periodic {
                deadline: units(deadline),
                period: period.map(units),
            },
        };
        let classes: Vec<_> = self.kinds.iter().map(class).collect();
        let config = EdfConfig {
            credit: CreditConfig {
                tslice: units(self.rules.tslice),
                ..CreditConfig::xen(XenVersion::V4_1)
            },
            slice: units(self.rules.slice),
            timer: units(self.rules.timer),
            reserve: self.rules.reserve as u32,
        };
        EdfCredit::new(config, host, &classes).unwrap()
    }

    /// Runs it, and looks at each unit who runs, and what the others have.
    fn check(&self) -> Result<(), TestCaseError> {
        let host = host(self.pcpus, self.kinds.len() as u32);
        let mut machine = Machine::new(&host, self.edf(&host), Costs::default());
        let mut exact = Stepped::new(self.pcpus as usize, self.rules, &self.kinds);
        let mut events = Vec::new();
        for unit in 0..self.until {
            let now = units(unit);
            while let Some(at) = machine.poll_at().filter(|at| *at < now) {
                machine.advance(at, &mut events);
                machine.dispatch(&mut events);
            }
            machine.advance(now, &mut events);
            for given in self.given.iter().filter(|given| given.at == unit) {
                let cause = if given.is_event {
                    Wake::Event
                } else {
                    Wake::Timer
                };
                machine.wake(VcpuId(given.who as u32), units(given.work), cause);
                exact.give(unit, given.who, given.work, given.is_event);
            }
            machine.dispatch(&mut events);
            while machine.poll_at() == Some(now) {
                machine.advance(now, &mut events);
                machine.dispatch(&mut events);
            }
            exact.decide(unit);
            self.compare(unit, &machine, &exact)?;
            exact.pass(unit);
        }
        Ok(())
    }

    fn compare(
        &self,
        unit: u64,
        machine: &Machine<EdfCredit>,
        exact: &Stepped,
    ) -> Result<(), TestCaseError> {
        for pcpu in 0..self.pcpus {
            let runs = machine.current(PcpuId(pcpu)).map(VcpuId::index);
            let must = exact.runs(pcpu as usize);
            prop_assert_eq!(runs, must, "pCPU {} at {}: {:?}", pcpu, unit, exact);
        }
        for who in 0..self.kinds.len() {
            let Some(account) = exact.account(who) else {
                continue;
            };
            let (edf, vcpu) = (machine.scheduler(), VcpuId(who as u32));
            let deadline = edf.deadline(vcpu).map(|at| at.0 / UNIT.0);
            let has = (
                deadline,
                edf.credit().account(vcpu).credit,
                edf.reserve(vcpu),
            );
            prop_assert_eq!(has, account, "vCPU {} at {}: {:?}", who, unit, exact);
        }
        Ok(())
    }
}

/// Two real-time guests of these kinds and a hog, each pair of moments of two events.
#[test]
fn each_phase_of_two_events_is_served_as_the_exact_schedule_has_it() {
    let rules = Rules {
        slice: 5,
        timer: 5,
        tslice: 30,
        tick: 10,
        reserve: 10,
    };
    let kinds = |deadline| {
        let period = Some(deadline + 3);
        [
            Kind::Aperiodic { deadline },
            Kind::Periodic { deadline, period },
            Kind::Periodic {
                deadline,
                period: None,
            },
        ]
    };
    let given = |at, who, work| WorkArrival {
        at,
        who,
        work,
        is_event: true,
    };
    let moments = (0..11).flat_map(|first| (0..11).map(move |second| (first, second)));
    for (first, second) in moments {
        let pairs = kinds(5)
            .into_iter()
            .flat_map(|one| kinds(7).map(|other| (one, other)));
        for ((one, other), pcpus) in pairs.flat_map(|pair| [(pair, 1), (pair, 2)]) {
            let set = Set {
                pcpus,
                rules,
                kinds: vec![one, other, Kind::Normal, Kind::Normal],
                given: vec![
                    given(0, 2, 100),
                    given(0, 3, 100),
                    given(12 + first, 0, 7),
                    given(12 + second, 1, 7),
                    given(14 + second, 0, 2),
                ],
                until: 50,
            };
            set.check().unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_running_vcpu_matches_the_exact_schedule(set in Set::any()) {
        set.check()?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30_000))]

    #[test]
    #[ignore = "a minute"]
    fn many_sets_run_as_the_exact_schedule_has_it(set in Set::any()) {
        set.check()?;
    }
}
