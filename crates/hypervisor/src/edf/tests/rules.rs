//! The rules one by one.

use super::*;
use crate::testing::Script;
use crate::{Event, HostError};
use proptest::prelude::*;

const DRIVER: DomainClass = DomainClass::Driver;
const NORMAL: DomainClass = DomainClass::Normal;

fn script(pcpus: u32, classes: &[DomainClass]) -> Script<EdfCredit> {
    let host = host(pcpus, classes.len() as u32);
    Script::new(&host, edf(&host, classes))
}

#[test]
fn a_claim_begins_at_the_last_look_before_its_deadline() {
    let mut script = script(1, &[aperiodic(3.0), NORMAL]);
    script.hog(0.0, 1).run(20.1);
    script.wake(20.3, 0, 0.05).run(30.0);
    assert_eq!(
        script.starts(0),
        [ms(23.0)],
        "due at 23.3, looked at every 0.5"
    );
}

#[test]
fn a_claim_that_begins_at_a_timer_check_delays_no_due_claim() {
    let mut script = script(1, &[aperiodic(3.0), aperiodic(3.0), NORMAL]);
    script.hog(0.0, 2).run(20.1);
    script.wake(20.3, 0, 0.05).wake(23.0, 1, 0.05).run(30.0);
    assert_eq!(script.starts(0), [ms(23.0)], "due at 23.3");
}

#[test]
fn events_during_a_slice_have_one_claim_by_the_deadline_of_the_first() {
    let mut script = script(1, &[aperiodic(3.0), NORMAL]);
    script.hog(0.0, 1).run(2.0);
    // Its slice is from 5 to 5.5.
    script
        .wake(2.2, 0, 5.0)
        .wake(5.1, 0, 0.1)
        .wake(5.3, 0, 0.1)
        .run(5.6);
    let deadline = script.machine.scheduler().deadline(VcpuId(0));
    assert_eq!(deadline, Some(ms(8.1)));
    script.run(9.0);
    assert_eq!(script.starts(0)[1], ms(8.0));
    let stopped = script.log.iter().filter_map(|event| match *event {
        Event::Stopped {
            vcpu: VcpuId(0),
            at,
            ..
        } => Some(at),
        _ => None,
    });
    // Of the slice of the last one 0.2 ms were had at once.
    assert_eq!(stopped.take(2).collect::<Vec<_>>(), [5.5, 8.3].map(ms));
}

#[test]
fn a_claim_is_good_for_one_slice_and_the_rest_waits_for_credit() {
    let mut script = script(1, &[aperiodic(3.0), NORMAL]);
    script.hog(0.0, 1).run(5.0);
    script.wake(5.2, 0, 100.0).run(8.4);
    assert_eq!(script.machine.runs_on(VcpuId(0)), Some(PcpuId(0)));
    let deadline = script.machine.scheduler().deadline(VcpuId(0));
    assert_eq!(deadline, Some(ms(8.2)));
    script.run(8.6);
    assert_eq!(script.machine.scheduler().deadline(VcpuId(0)), None);
}

#[test]
fn boost_goes_before_a_claim_that_is_not_due_and_never_before_one_that_is() {
    let mut script = script(1, &[aperiodic(3.0), NORMAL, NORMAL, NORMAL]);
    script.hog(0.0, 1).run(12.0);
    script.wake(12.2, 0, 0.4).wake(12.4, 2, 5.0).run(14.9);
    assert_eq!(script.starts(2), [ms(12.4)], "the claim has time");
    script.wake(15.2, 3, 0.1).run(15.3);
    assert_eq!(script.starts(0), [ms(15.0)], "preempts BOOST");
    assert!(script.starts(3).is_empty(), "BOOST does not preempt it");
    script.run(15.4);
    assert_eq!(script.machine.runs_on(VcpuId(0)), None);
}

#[test]
fn real_time_vcpus_are_not_boosted_and_others_are() {
    let mut script = script(1, &[aperiodic(3.0), NORMAL, NORMAL]);
    script.hog(0.0, 1).wake(12.1, 0, 0.1).wake(12.2, 2, 0.1);
    script.run(12.2);
    let class = |vcpu| {
        script
            .machine
            .scheduler()
            .credit()
            .account(VcpuId(vcpu))
            .class
    };
    assert_eq!(class(0), crate::credit::Class::Under);
    assert_eq!(class(2), crate::credit::Class::Boost);
}

#[test]
fn a_timer_of_its_own_gives_an_aperiodic_vcpu_no_claim() {
    let host = host(1, 2);
    let mut edf = edf(&host, &[aperiodic(3.0), periodic(3.0)]);
    let mut raise = PcpuSet::new();
    for vcpu in [VcpuId(0), VcpuId(1)] {
        edf.wake(ms(1.0), vcpu, Wake::Timer, &mut raise);
    }
    assert_eq!(edf.deadline(VcpuId(0)), None);
    assert_eq!(edf.deadline(VcpuId(1)), Some(ms(4.0)));
    edf.notify(ms(2.0), VcpuId(0), &mut raise);
    assert_eq!(edf.deadline(VcpuId(0)), Some(ms(5.0)), "an event does");
    edf.sleep(ms(3.0), VcpuId(0), &mut raise);
    assert_eq!(edf.deadline(VcpuId(0)), None, "no longer");
}

#[test]
fn claims_of_a_domain_with_a_period_begin_that_far_apart() {
    let class = DomainClass::Periodic {
        deadline: ms(3.0),
        period: Some(ms(20.0)),
    };
    let mut script = script(1, &[class, NORMAL]);
    script.hog(0.0, 1).run(12.0);
    for (at, deadline) in [(12.0, 15.0), (25.0, 35.0), (70.0, 73.0)] {
        script.wake(at, 0, 0.05).run(at);
        let claim = script.machine.scheduler().deadline(VcpuId(0));
        assert_eq!(claim, Some(ms(deadline)), "from {at}");
        script.run(at + 12.0);
    }
}

#[test]
fn an_indebted_vcpu_draws_on_its_reserve_on_an_event() {
    let mut script = script(1, &[aperiodic(3.0), NORMAL, NORMAL]);
    script
        .hog(0.0, 1)
        .hog(0.0, 2)
        .wake(100.0, 0, 60.0)
        .run(100.0);
    while script.machine.has_work(VcpuId(0)) {
        script.run(script.machine.now().as_millis_f64() + 1.0);
    }
    let account =
        |script: &Script<EdfCredit>| script.machine.scheduler().credit().account(VcpuId(0));
    let reserve = |script: &Script<EdfCredit>| script.machine.scheduler().reserve(VcpuId(0));
    let before = account(&script);
    assert!(before.credit < 0, "{before:?}");
    assert_eq!(reserve(&script), 300);
    let now = script.machine.now().as_millis_f64();
    script.wake(now + 1.0, 0, 0.4).run(now + 4.5);
    assert!(!script.machine.has_work(VcpuId(0)), "in time");
    assert_eq!(reserve(&script), 296, "0.4 ms");
    assert_eq!(account(&script).credit, before.credit);
    script.run(now + 35.0);
    assert!(reserve(&script) >= 296, "carried over the next accounting");
}

#[test]
fn the_driver_domain_preempts_all_and_is_preempted_by_none() {
    let mut script = script(1, &[DRIVER, NORMAL, NORMAL]);
    script.hog(0.0, 1).run(0.4);
    script.wake(0.5, 0, 200.0).wake(3.0, 2, 1.0).run(250.0);
    assert_eq!(script.starts(0), [ms(0.5)]);
    let stops = script.log.iter().filter(|event| match event {
        Event::Stopped { vcpu, .. } => *vcpu == VcpuId(0),
        _ => false,
    });
    assert_eq!(stops.count(), 1, "200 ms in one go, far into debt");
    assert!(script.starts(2)[0] >= ms(200.5));
}

#[test]
fn a_driver_vcpu_lets_another_run_after_a_slice() {
    let mut script = script(1, &[DRIVER, DRIVER, NORMAL]);
    script.wake(0.0, 0, 100.0).wake(5.0, 1, 1.0).run(100.0);
    assert_eq!(script.starts(1), [ms(30.0)]);
}

#[test]
fn real_time_vcpus_stay_off_the_driver_domains_pcpu() {
    let classes = [
        DRIVER,
        aperiodic(3.0),
        periodic(3.0),
        aperiodic(5.0),
        NORMAL,
    ];
    let mut script = script(2, &classes);
    for vcpu in 1..5 {
        script.hog(0.1 * f64::from(vcpu), vcpu);
    }
    for at in 1..100 {
        script.wake(f64::from(at) * 3.0, 0, 1.0);
        script.wake(f64::from(at) * 2.9, 1, 0.1);
    }
    script.run(400.0);
    for event in &script.log {
        if let Event::Started { vcpu, pcpu, .. } = *event {
            match classes[vcpu.index()] {
                DomainClass::Driver => assert_eq!(pcpu, PcpuId(0)),
                DomainClass::Normal => {}
                _ => assert_eq!(pcpu, PcpuId(1), "{vcpu:?}"),
            }
        }
    }
    assert!(
        script.share(4) > 0.5,
        "the normal one has the driver's idle time"
    );
}

#[test]
fn a_pcpu_that_would_idle_takes_the_earliest_claim_first() {
    let host = {
        let mut host = Host::new(2).unwrap();
        for pinned in [true, false, false, false] {
            let domain = host.add_domain(Domain::default()).unwrap();
            let first: PcpuSet = [PcpuId(0)].into_iter().collect();
            let affinity = if pinned { first } else { host.all_pcpus() };
            host.add_pinned_vcpu(domain, affinity).unwrap();
        }
        host
    };
    let classes = [NORMAL, NORMAL, aperiodic(9.0), aperiodic(5.0)];
    let mut script = Script::new(&host, edf(&host, &classes));
    script.hog(0.0, 0).wake(0.0, 1, 10.0).run(8.0);
    script.wake(8.1, 2, 5.0).wake(8.2, 3, 5.0).run(10.1);
    assert_eq!(script.starts(3), [ms(10.0)]);
    assert_eq!(script.machine.runs_on(VcpuId(3)), Some(PcpuId(1)));
}

#[test]
fn the_timer_does_not_fire_without_claims() {
    let mut script = script(1, &[aperiodic(3.0), NORMAL]);
    script.hog(0.0, 0).hog(0.0, 1).run(1_000.0);
    let before = script.machine.events();
    script.run(2_000.0);
    let ran = script.machine.events() - before;
    assert!(
        ran < 200,
        "{ran} events in a second, of which 100 are ticks"
    );
}

#[test]
fn impossible_edf_configurations_are_refused() {
    let host = host(1, 2);
    let good = EdfConfig::default();
    let error =
        |config, classes: &[DomainClass]| EdfCredit::new(config, &host, classes).unwrap_err();
    let count = EdfError::Count {
        classes: 1,
        domains: 2,
    };
    assert_eq!(error(good, &[NORMAL]), count);
    let no_slice = EdfConfig {
        slice: Nanos::ZERO,
        ..good
    };
    assert_eq!(error(no_slice, &[NORMAL; 2]), EdfError::Zero("slice"));
    let greedy = EdfConfig {
        reserve: 101,
        ..good
    };
    assert_eq!(error(greedy, &[NORMAL; 2]), EdfError::Reserve(101));
    let short = EdfError::Deadline {
        domain: 1,
        deadline: ms(0.4),
        timer: ms(0.5),
    };
    assert_eq!(error(good, &[NORMAL, aperiodic(0.4)]), short);
    let class = DomainClass::Periodic {
        deadline: ms(3.0),
        period: Some(ms(2.0)),
    };
    assert!(matches!(
        error(good, &[class, NORMAL]),
        EdfError::Period { .. }
    ));
    assert_eq!(error(good, &[DRIVER, periodic(3.0)]), EdfError::NoPcpu(1));
    assert_eq!(
        EdfError::from(HostError::Domain(7)).to_string(),
        "domain 7 does not exist"
    );
}

fn any_class() -> impl Strategy<Value = DomainClass> {
    prop_oneof![
        Just(NORMAL),
        (5_u64..80).prop_map(|tenths| aperiodic(tenths as f64 / 10.0)),
        (5_u64..80, proptest::option::of(0_u64..200)).prop_map(|(tenths, more)| {
            let deadline = Nanos::from_micros(100 * tenths);
            let period = more.map(|more| deadline + Nanos::from_micros(100 * more));
            DomainClass::Periodic { deadline, period }
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn queues_agree_and_the_driver_is_never_preempted(
        pcpus in 2_u32..4,
        domains in proptest::collection::vec((any_class(), prop_oneof![Just(0_u32), 10_u32..60]), 1..8),
        steps in proptest::collection::vec((0_usize..9, 0_u64..3_000, 1_u64..40_000, 0_u8..8), 1..80),
    ) {
        let mut host = Host::new(pcpus).unwrap();
        let mut classes = vec![DRIVER];
        classes.extend(domains.iter().map(|&(class, _)| class));
        let caps = std::iter::once(0).chain(domains.iter().map(|&(_, cap)| cap));
        for cap in caps {
            let domain = host.add_domain(Domain { weight: 256, cap }).unwrap();
            host.add_vcpu(domain).unwrap();
        }
        let mut machine = Machine::new(&host, edf(&host, &classes), Costs::default());
        let mut events = Vec::new();
        let mut now = Nanos::ZERO;
        for (vcpu, gap, work, pause) in steps {
            now += Nanos::from_micros(gap);
            while let Some(at) = machine.poll_at().filter(|&at| at <= now) {
                machine.advance(at, &mut events);
                machine.dispatch(&mut events);
            }
            machine.advance(now, &mut events);
            let vcpu = VcpuId((vcpu % classes.len()) as u32);
            machine.wake(vcpu, Nanos::from_micros(work), Wake::Event);
            if pause == 0 && vcpu != VcpuId(0) {
                machine.pause(vcpu);
            } else {
                machine.unpause(vcpu);
            }
            machine.dispatch(&mut events);
            let scheduler = machine.scheduler();
            for pcpu in 0..pcpus {
                let pcpu = PcpuId(pcpu);
                let queued = scheduler.credit.queue(pcpu).len();
                prop_assert!(queued == 0 || machine.current(pcpu).is_some());
                if let Some((deadline, vcpu)) = scheduler.claims.first(pcpu) {
                    prop_assert_eq!(scheduler.deadline(vcpu), Some(deadline));
                    prop_assert!(machine.runs_on(vcpu).is_none());
                    prop_assert!(scheduler.checks.earliest() <= machine.now() + deadline);
                }
            }
        }
        for event in events {
            match event {
                Event::Stopped { vcpu: VcpuId(0), runnable, .. } => prop_assert!(!runnable),
                Event::Started { vcpu, pcpu, .. } if classes[vcpu.index()].deadline().is_some() => {
                    prop_assert_ne!(pcpu, PcpuId(0));
                }
                _ => {}
            }
        }
    }
}
