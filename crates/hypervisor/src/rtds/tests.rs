use super::*;
use crate::{Costs, Domain, Event, Machine};
use proptest::prelude::*;

fn ms(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

fn given(budget: u64, period: u64, extratime: bool) -> Reservation {
    Reservation {
        period: ms(period),
        budget: ms(budget),
        extratime,
    }
}

fn machine(pcpus: u32, reservations: &[Reservation]) -> Machine<Rtds> {
    let mut host = Host::new(pcpus).unwrap();
    let domain = host.add_domain(Domain::default()).unwrap();
    for _ in reservations {
        host.add_vcpu(domain).unwrap();
    }
    let rtds = Rtds::new(&host, reservations).unwrap();
    Machine::new(&host, rtds, Costs::default())
}

/// Returns a machine on which all vCPUs work without end.
fn hogs(pcpus: u32, reservations: &[Reservation]) -> Machine<Rtds> {
    let mut machine = machine(pcpus, reservations);
    for vcpu in 0..reservations.len() as u32 {
        machine.wake(VcpuId(vcpu), Nanos::MAX, Wake::Timer);
    }
    machine.dispatch(&mut Vec::new());
    machine
}

fn run(machine: &mut Machine<Rtds>, end: Nanos) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(at) = machine.poll_at().filter(|&at| at < end) {
        machine.advance(at, &mut events);
        machine.dispatch(&mut events);
    }
    machine.advance(end, &mut events);
    events
}

fn ran(machine: &Machine<Rtds>, vcpu: u32) -> Nanos {
    machine.stats(VcpuId(vcpu)).run
}

#[test]
fn a_vcpu_gets_its_budget_each_period_and_no_more() {
    let mut machine = hogs(1, &[given(4, 10, false)]);
    for period in 1..=20 {
        run(&mut machine, ms(10 * period - 6));
        assert_eq!(ran(&machine, 0), ms(4 * period));
        run(&mut machine, ms(10 * period));
        assert_eq!(ran(&machine, 0), ms(4 * period));
    }
}

#[test]
fn extra_time_is_shared_after_all_that_have_budget() {
    let both = [given(4, 10, true), given(3, 10, false)];
    let mut machine = hogs(1, &both);
    run(&mut machine, ms(100));
    assert_eq!((ran(&machine, 0), ran(&machine, 1)), (ms(70), ms(30)));
}

#[test]
fn budget_is_kept_while_a_vcpu_sleeps_and_lost_at_the_end_of_the_period() {
    let mut machine = machine(1, &[given(4, 10, false)]);
    machine.dispatch(&mut Vec::new());
    run(&mut machine, ms(5));
    machine.wake(VcpuId(0), ms(1), Wake::Event);
    machine.dispatch(&mut Vec::new());
    run(&mut machine, ms(7));
    assert_eq!(ran(&machine, 0), ms(1));
    machine.wake(VcpuId(0), ms(20), Wake::Event);
    machine.dispatch(&mut Vec::new());
    run(&mut machine, ms(10));
    assert_eq!(ran(&machine, 0), ms(4), "the rest of the budget");
    run(&mut machine, ms(20));
    assert_eq!(
        ran(&machine, 0),
        ms(8),
        "a new budget, and nothing of the old"
    );
}

#[test]
fn a_waking_vcpu_preempts_the_one_with_the_latest_deadline() {
    let all = [
        given(50, 100, false),
        given(50, 200, false),
        given(1, 10, false),
    ];
    let mut machine = machine(2, &all);
    for hog in 0..2 {
        machine.wake(VcpuId(hog), Nanos::MAX, Wake::Timer);
    }
    machine.dispatch(&mut Vec::new());
    run(&mut machine, ms(5));
    machine.wake(VcpuId(2), ms(1), Wake::Event);
    machine.dispatch(&mut Vec::new());
    let place = machine.runs_on(VcpuId(2));
    assert!(place.is_some());
    assert_eq!(
        machine.runs_on(VcpuId(1)),
        None,
        "its deadline is the latest"
    );
    assert!(machine.runs_on(VcpuId(0)).is_some());
}

#[test]
fn a_new_budget_is_not_announced_to_one_that_waits_for_extra_time() {
    let short = Reservation {
        period: Nanos::from_micros(500),
        budget: Nanos::from_micros(10),
        extratime: true,
    };
    let mut machine = hogs(1, &[given(2, 4, false), short]);
    run(&mut machine, ms(2));
    // Its own, then vCPU 0's whole budget, through three ends of its period.
    assert_eq!(ran(&machine, 1), Nanos::from_micros(10));
}

#[test]
fn rtds_reservations_that_xen_refuses_are_refused() {
    let host = {
        let mut host = Host::new(1).unwrap();
        let domain = host.add_domain(Domain::default()).unwrap();
        host.add_vcpu(domain).unwrap();
        host
    };
    let error = |reservations: &[Reservation]| Rtds::new(&host, reservations).unwrap_err();
    let count = RtdsError::Count {
        reservations: 0,
        vcpus: 1,
    };
    assert_eq!(error(&[]), count);
    let short = Reservation {
        period: Nanos::from_micros(9),
        ..Reservation::default()
    };
    assert_eq!(error(&[short]), RtdsError::Period(0, short.period));
    assert_eq!(error(&[given(11, 10, true)]), RtdsError::Budget(0, ms(11)));
    assert_eq!(error(&[given(0, 10, true)]), RtdsError::Budget(0, ms(0)));
}

/// Reservations that global earliest deadline first can keep on `pcpus`: total
/// utilisation <= pcpus - (pcpus - 1) * the largest (Goossens, Funk, Baruah).
fn schedulable(pcpus: u32, reservations: &[Reservation]) -> bool {
    let parts = reservations
        .iter()
        .map(|given| (given.budget.0 << 20).div_ceil(given.period.0));
    let largest = parts.clone().max().unwrap_or(0);
    let (pcpus, one) = (u64::from(pcpus), 1 << 20);
    parts.sum::<u64>() + (pcpus - 1) * largest <= pcpus * one
}

/// Fills up with reservations as long as they are schedulable.
fn fill(pcpus: u32, wishes: &[(u64, u64)]) -> Vec<Reservation> {
    let mut all: Vec<Reservation> = Vec::new();
    for &(period, percent) in wishes {
        let period = Nanos::from_micros(100 * period);
        all.push(Reservation {
            period,
            budget: Nanos(period.0 * percent / 100).max(SHORTEST),
            extratime: false,
        });
        if !schedulable(pcpus, &all) {
            all.pop();
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn each_busy_vcpu_gets_its_budget_in_each_period_if_the_set_is_schedulable(
        pcpus in 1_u32..5,
        wishes in proptest::collection::vec((5_u64..120, 2_u64..100), 1..14),
    ) {
        let all = fill(pcpus, &wishes);
        let mut machine = hogs(pcpus, &all);
        // Where each is in its periods, and what it had run by the last end.
        let mut ends: Vec<(Nanos, Nanos)> = all.iter().map(|given| (given.period, ms(0))).collect();
        while let Some(&(end, _)) = ends.iter().min().filter(|(end, _)| *end <= ms(150)) {
            run(&mut machine, end);
            for (vcpu, (at, before)) in ends.iter_mut().enumerate() {
                if *at != end {
                    continue;
                }
                let total = ran(&machine, vcpu as u32);
                let got = total - *before;
                let given = all[vcpu];
                prop_assert_eq!(got, given.budget, "vCPU {} of {:?} by {}", vcpu, all, end);
                (*at, *before) = (end + given.period, total);
            }
            machine.dispatch(&mut Vec::new());
        }
    }

    #[test]
    fn without_extra_time_no_vcpu_exceeds_its_budget(
        pcpus in 1_u32..3,
        reservations in proptest::collection::vec((1_u64..8, 8_u64..20), 1..6),
        wakes in proptest::collection::vec((0_usize..6, 0_u64..4_000, 1_u64..9_000), 1..60),
    ) {
        let all: Vec<_> = reservations.iter().map(|&(b, p)| given(b, p, false)).collect();
        let mut machine = machine(pcpus, &all);
        machine.dispatch(&mut Vec::new());
        let mut now = Nanos::ZERO;
        let mut events = Vec::new();
        for (vcpu, gap, work) in wakes {
            now += Nanos::from_micros(gap);
            events.extend(run(&mut machine, now));
            let vcpu = VcpuId((vcpu % all.len()) as u32);
            machine.wake(vcpu, Nanos::from_micros(work), Wake::Event);
            machine.dispatch(&mut events);
        }
        let mut since = vec![None; all.len()];
        let mut used = std::collections::BTreeMap::<(usize, u64), Nanos>::new();
        for event in events {
            match event {
                Event::Started { vcpu, at, .. } => since[vcpu.index()] = Some(at),
                Event::Stopped { vcpu, at, .. } => {
                    let mut from = since[vcpu.index()].take().unwrap();
                    let period = all[vcpu.index()].period.0;
                    while from < at {
                        let end = Nanos((from.0 / period + 1) * period).min(at);
                        *used.entry((vcpu.index(), from.0 / period)).or_default() += end - from;
                        from = end;
                    }
                }
                Event::Done { .. } => {}
            }
        }
        for ((vcpu, period), used) in used {
            prop_assert!(used <= all[vcpu].budget, "vCPU {vcpu} used {used} in period {period}");
        }
    }
}
