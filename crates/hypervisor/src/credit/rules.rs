//! Each rule that a release changed, in both forms.

use super::{Class, Credit, CreditConfig, Ratelimit, XenVersion};
use crate::testing::{Script, host, ms};
use crate::{Domain, Event, Host, PcpuId, PcpuSet, VcpuId, Wake};
use tailbound_units::Nanos;

fn credit(version: XenVersion, host: &Host) -> Script<Credit> {
    Script::new(host, Credit::new(CreditConfig::xen(version), host))
}

/// A guest that sleeps across each tick, beside a hog.
fn dodger(version: XenVersion) -> Script<Credit> {
    let host = host(1, 2);
    let mut script = credit(version, &host);
    script.hog(0.0, 0);
    for tick in 1..300 {
        script.wake(10.0 * f64::from(tick) + 0.1, 1, 9.8);
    }
    script.run(3_000.0);
    script
}

#[test]
fn until_3_4_a_vcpu_that_sleeps_across_ticks_pays_nothing() {
    let script = dodger(XenVersion::V3_3);
    let account = script.machine.scheduler().account(VcpuId(1));
    assert_eq!(account.credit, 0);
    assert!(script.share(1) > 0.95, "{}", script.share(1));
}

#[test]
fn in_4_1_a_vcpu_that_sleeps_across_ticks_pays_in_boost() {
    // The exact debit takes the credit; but classes are set for active vCPUs
    // only, and this one is never found running.
    let script = dodger(XenVersion::V4_1);
    let account = script.machine.scheduler().account(VcpuId(1));
    let used = script.machine.stats(VcpuId(1)).run.0 / 100_000;
    assert_eq!(account.credit, -(used.cast_signed()));
    assert_eq!((account.active, account.class), (false, Class::Boost));
    assert!(script.share(1) > 0.95, "{}", script.share(1));
}

#[test]
fn since_4_2_the_ratelimit_exposes_tick_dodgers() {
    for version in [XenVersion::V4_2, XenVersion::V4_8] {
        let share = dodger(version).share(1);
        assert!(share < 0.6, "{version:?}: {share}");
    }
}

#[test]
fn weight_is_the_domains_until_4_0_and_each_vcpus_since() {
    // Domain 0 has two vCPUs, domain 1 one; all hogs, weights equal.
    let mut host = Host::new(1).expect("one");
    let two = host.add_domain(Domain::default()).expect("a weight");
    let one = host.add_domain(Domain::default()).expect("a weight");
    for domain in [two, two, one] {
        host.add_vcpu(domain).expect("the domain exists");
    }
    for (version, expected) in [(XenVersion::V3_3, 0.5), (XenVersion::V4_1, 1.0 / 3.0)] {
        let mut script = credit(version, &host);
        script.hog(0.0, 0).hog(0.0, 1).hog(0.0, 2).run(9_000.0);
        let share = script.share(2);
        assert!((share - expected).abs() < 0.02, "{version:?}: {share}");
    }
}

/// The credit of a vCPU that is sampled once and then sleeps until it has more
/// than a slice's worth.
fn surplus(version: XenVersion) -> i64 {
    let host = host(1, 2);
    let mut script = credit(version, &host);
    script.hog(0.0, 1).wake(5.0, 0, 10.0).run(500.0);
    let account = script.machine.scheduler().account(VcpuId(0));
    assert!(!account.active);
    account.credit
}

#[test]
fn more_than_a_slices_worth_is_lost_until_4_0_and_halved_since() {
    assert_eq!(surplus(XenVersion::V3_3), 0);
    let halved = surplus(XenVersion::V4_1);
    assert!((150..=225).contains(&halved), "{halved}");
}

#[test]
fn a_capped_domain_gets_its_cap_and_does_not_wake_in_boost() {
    let mut host = Host::new(1).expect("one");
    for cap in [20, 0] {
        let domain = Domain {
            cap,
            ..Domain::default()
        };
        let domain = host.add_domain(domain).expect("a weight");
        host.add_vcpu(domain).expect("the domain exists");
    }
    for version in [XenVersion::V3_3, XenVersion::V4_2, XenVersion::V4_17] {
        let mut script = credit(version, &host);
        // Alone, so that nothing but the cap holds it back.
        script.hog(0.0, 0).run(30.0);
        let mut parked = 0;
        for millis in 31..6_000 {
            script.run(f64::from(millis));
            let account = script.machine.scheduler().account(VcpuId(0));
            assert_ne!(account.class, Class::Boost);
            parked += u32::from(account.parked);
        }
        assert!(parked > 3_000, "{parked}");
        let share = script.share(0);
        assert!((share - 0.2).abs() < 0.02, "{version:?}: {share}");
    }
}

/// A low-class waiter and a runner that yields: who runs then?
fn after_yield(version: XenVersion, at: f64) -> Option<VcpuId> {
    let host = host(1, 2);
    let mut script = credit(version, &host);
    // At 65 vCPU 1, which is OVER, waits for vCPU 0, UNDER.
    script.hog(0.0, 0).hog(0.0, 1).run(65.0);
    assert_eq!(
        script.machine.scheduler().account(VcpuId(1)).class,
        Class::Over
    );
    // A ping lets vCPU 0 enter RUNNING again at 65.05.
    script.machine.pause(VcpuId(0));
    script.machine.dispatch(&mut script.log);
    script.machine.unpause(VcpuId(0));
    script.machine.dispatch(&mut script.log);
    script.run(at);
    script.machine.yield_now(VcpuId(0));
    script.machine.dispatch(&mut script.log);
    script.machine.current(PcpuId(0))
}

#[test]
fn a_yield_lets_a_lower_class_run_since_4_1() {
    assert_eq!(after_yield(XenVersion::V3_3, 68.0), Some(VcpuId(0)));
    assert_eq!(after_yield(XenVersion::V4_1, 68.0), Some(VcpuId(1)));
    assert_eq!(after_yield(XenVersion::V4_2, 68.0), Some(VcpuId(1)));
}

#[test]
fn a_yield_beats_the_ratelimit_since_4_8() {
    // vCPU 0 began to run at 66, when the ratelimit of vCPU 1 was over.
    assert_eq!(after_yield(XenVersion::V4_2, 66.5), Some(VcpuId(0)));
    assert_eq!(after_yield(XenVersion::V4_8, 66.5), Some(VcpuId(1)));
}

/// Four pCPUs; vCPU 0 runs on pCPU 0, the others idle. vCPU 1, at home on
/// pCPU 0, wakes. Which pCPUs are raised?
fn tickled(version: XenVersion, affinity: &[u32]) -> Vec<u32> {
    let mut host = Host::new(4).expect("four");
    let domain = host.add_domain(Domain::default()).expect("a weight");
    let only_0 = PcpuSet::first(1);
    host.add_pinned_vcpu(domain, only_0).expect("pinned");
    let affinity: PcpuSet = affinity.iter().copied().map(PcpuId).collect();
    host.add_pinned_vcpu(domain, affinity).expect("pinned");
    let mut script = credit(version, &host);
    script.hog(0.0, 0).run(15.0);
    let mut scheduler = script.machine.scheduler().clone();
    scheduler.vcpus[1].home = PcpuId(0);
    let mut raise = PcpuSet::new();
    crate::Scheduler::wake(&mut scheduler, ms(15.0), VcpuId(1), Wake::Event, &mut raise);
    raise.iter().map(|pcpu| pcpu.0).collect()
}

#[test]
fn a_wake_raises_all_idlers_or_one_and_its_own_pcpu_or_only_an_idler() {
    assert_eq!(tickled(XenVersion::V3_3, &[0, 1, 2, 3]), [0, 1, 2, 3]);
    assert_eq!(tickled(XenVersion::V4_1, &[0, 1, 2, 3]), [0, 1]);
    assert_eq!(tickled(XenVersion::V4_2, &[0, 2, 3]), [0, 2]);
    assert_eq!(tickled(XenVersion::V4_8, &[0, 2, 3]), [2]);
    assert_eq!(tickled(XenVersion::V4_8, &[0]), [0]);
}

/// Two pCPUs; a hog that may run on both runs on pCPU 0, pCPU 1 idles. A vCPU
/// that may only run on pCPU 0 wakes. Where is the hog then, and in which
/// class?
fn pushed(version: XenVersion) -> (Option<PcpuId>, Class) {
    let mut host = Host::new(2).expect("two");
    let domain = host.add_domain(Domain::default()).expect("a weight");
    host.add_vcpu(domain).expect("the domain exists");
    host.add_pinned_vcpu(domain, PcpuSet::first(1))
        .expect("pinned");
    let mut script = credit(version, &host);
    script.hog(0.0, 0).wake(15.0, 1, 3.0).run(16.0);
    assert_eq!(script.machine.runs_on(VcpuId(1)), Some(PcpuId(0)));
    let class = script.machine.scheduler().account(VcpuId(0)).class;
    (script.machine.runs_on(VcpuId(0)), class)
}

#[test]
fn a_preempted_hog_finds_an_idle_pcpu() {
    // Until 4.2 the idler is raised for the one that woke only if that may run
    // there; so the hog waits.
    assert_eq!(pushed(XenVersion::V4_2), (None, Class::Under));
    assert_eq!(pushed(XenVersion::V4_8), (Some(PcpuId(1)), Class::Under));
    // Since 4.13 the test never holds.
    assert_eq!(pushed(XenVersion::V4_17), (None, Class::Under));
    let mut config = CreditConfig::xen(XenVersion::V4_8);
    config.push = super::Push::Always;
    let mut host = Host::new(2).expect("two");
    let domain = host.add_domain(Domain::default()).expect("a weight");
    host.add_vcpu(domain).expect("the domain exists");
    host.add_pinned_vcpu(domain, PcpuSet::first(1))
        .expect("pinned");
    let mut script = Script::new(&host, Credit::new(config, &host));
    script.hog(0.0, 0).wake(15.0, 1, 3.0).run(16.0);
    let class = script.machine.scheduler().account(VcpuId(0)).class;
    assert_eq!(class, Class::Boost, "until 4.6 a move counts as a sleep");
}

#[test]
fn an_idle_pcpu_steals_unless_the_cache_is_warm() {
    let host = host(2, 3);
    for (delay, expected) in [(0.0, 1), (5.0, 0)] {
        let mut config = CreditConfig::xen(XenVersion::V4_2);
        config.migration_delay = ms(delay);
        let mut script = Script::new(&host, Credit::new(config, &host));
        // vCPU 0 and 2 share pCPU 0; vCPU 1 on pCPU 1 blocks at 31, when vCPU
        // 0 has just stopped.
        script.hog(0.0, 0).hog(0.0, 2).wake(0.0, 1, 31.0).run(31.0);
        let idle = script.machine.current(PcpuId(1)).is_none();
        assert_eq!(idle, delay > 0.0);
        let migrations: u64 = (0..3)
            .map(|vcpu| script.machine.stats(VcpuId(vcpu)).migrations)
            .sum();
        assert_eq!(migrations, expected, "delay {delay}");
    }
}

/// Returns the first two vCPUs that are stolen. Of four pCPUs all are busy except the first, which
/// steals; `waiters` wait on theirs, in these classes.
fn stolen(config: CreditConfig, own: Option<Class>, waiters: &[(u32, Class)]) -> [Option<u32>; 2] {
    let host = host(4, 12);
    let mut credit = Credit::new(config, &host);
    for pcpu in 1..4 {
        credit.enter(ms(0.0), PcpuId(pcpu), Some(VcpuId(pcpu)));
    }
    let own = own.map(|class| (0, class));
    for (vcpu, &(pcpu, class)) in (4..).zip(own.iter().chain(waiters)) {
        credit.vcpus[vcpu].home = PcpuId(pcpu);
        credit.vcpus[vcpu].account.class = class;
        credit.enqueue(VcpuId(vcpu as u32), false);
    }
    [1.0, 1.5].map(|at| {
        let picked = credit.pick(ms(at), PcpuId(0))?;
        // Its place in `waiters`.
        Some(picked.0 - 4).filter(|_| credit.vcpus[picked.index()].home == PcpuId(0))
    })
}

#[test]
fn a_pcpu_steals_only_a_vcpu_of_a_better_class() {
    let config = CreditConfig::xen(XenVersion::V4_2);
    let steals = |own, waiter| stolen(config, own, &[(2, waiter)])[0];
    assert_eq!(steals(None, Class::Over), Some(0));
    // With one of its own that is 0, the waiter is 1.
    assert_eq!(steals(Some(Class::Over), Class::Over), Some(0));
    assert_eq!(steals(Some(Class::Over), Class::Under), Some(1));
    assert_eq!(steals(Some(Class::Under), Class::Boost), Some(0));
}

#[test]
fn stealing_starts_at_the_neighbour_or_after_the_last_victim() {
    use Class::Under;
    let waiters = [(1, Under), (1, Under), (3, Under)];
    let neighbour = stolen(CreditConfig::xen(XenVersion::V4_2), None, &waiters);
    assert_eq!(neighbour, [Some(0), Some(1)]);
    let in_turn = stolen(CreditConfig::xen(XenVersion::V4_8), None, &waiters);
    assert_eq!(in_turn, [Some(0), Some(2)]);
}

#[test]
fn stealing_is_rate_limited_and_skips_yielding_vcpus() {
    let mut config = CreditConfig::xen(XenVersion::V4_17);
    config.steal_interval = ms(1.0);
    let waiters = [(1, Class::Under), (2, Class::Under)];
    assert_eq!(stolen(config, None, &waiters), [Some(0), None]);

    let host = host(2, 3);
    for (yielding, expected) in [
        (super::Yielding::BeatsRatelimit, Some(VcpuId(2))),
        (super::Yielding::NotStolen, None),
    ] {
        config.yielding = yielding;
        let mut credit = Credit::new(config, &host);
        credit.enter(ms(0.0), PcpuId(1), Some(VcpuId(1)));
        credit.vcpus[2].home = PcpuId(1);
        credit.vcpus[2].yielded = true;
        credit.enqueue(VcpuId(2), false);
        assert_eq!(credit.pick(ms(1.0), PcpuId(0)), expected);
    }
}

#[test]
fn an_idler_that_was_raised_counts_as_taken_since_4_9() {
    for (version, second) in [(XenVersion::V4_8, 1), (XenVersion::V4_17, 2)] {
        let host = host(3, 3);
        let mut credit = Credit::new(CreditConfig::xen(version), &host);
        credit.enter(ms(0.0), PcpuId(0), Some(VcpuId(0)));
        let mut raised = [PcpuSet::new(); 2];
        for (vcpu, raise) in [1, 2].into_iter().zip(&mut raised) {
            credit.vcpus[vcpu].home = PcpuId(0);
            // Turns are taken; without them both would fall on the first.
            credit.pcpus[0].last_tickled = PcpuId(0);
            let vcpu = VcpuId(vcpu as u32);
            crate::Scheduler::wake(&mut credit, ms(1.0), vcpu, Wake::Event, raise);
        }
        let lowest = raised.map(|set| set.lowest());
        assert_eq!(lowest, [Some(PcpuId(1)), Some(PcpuId(second))]);
    }
}

#[test]
fn a_pcpu_that_idles_again_is_raised_again() {
    let host = host(2, 3);
    let mut script = credit(XenVersion::V4_8, &host);
    script
        .hog(0.0, 0)
        .wake(0.0, 1, 5.0)
        .wake(10.0, 2, 1.0)
        .run(11.0);
    // vCPU 2 is at home beside the hog, but pCPU 1 idles since 5.
    assert_eq!(script.starts(2), [ms(10.0)]);
    assert_eq!(script.machine.stats(VcpuId(0)).preemptions, 0);
}

#[test]
fn a_pinned_vcpu_never_leaves_its_pcpus() {
    let mut host = Host::new(2).expect("two");
    let domain = host.add_domain(Domain::default()).expect("a weight");
    for _ in 0..3 {
        host.add_pinned_vcpu(domain, PcpuSet::first(1))
            .expect("pinned");
    }
    let mut script = credit(XenVersion::V4_8, &host);
    script.hog(0.0, 0).hog(0.0, 1).hog(0.0, 2).run(1_000.0);
    assert_eq!(script.machine.busy(PcpuId(1)), Nanos::ZERO);
    let on_1 = |event: &Event| {
        matches!(
            event,
            Event::Started {
                pcpu: PcpuId(1),
                ..
            }
        )
    };
    assert!(!script.log.iter().any(on_1));
}

#[test]
fn a_hogs_slice_has_the_configured_length() {
    let host = host(1, 2);
    let config = CreditConfig {
        tslice: ms(5.0),
        ..CreditConfig::xen(XenVersion::V4_2)
    };
    let mut script = Script::new(&host, Credit::new(config, &host));
    script.hog(0.0, 0).hog(0.0, 1).run(21.0);
    assert_eq!(script.starts(0), [0.0, 10.0, 20.0].map(ms));
    assert_eq!(script.starts(1), [5.0, 15.0].map(ms));
}

#[test]
fn parameters_outside_xens_range_are_clamped() {
    let host = host(1, 1);
    let config = CreditConfig {
        tslice: Nanos::ZERO,
        ratelimit: Nanos::MAX,
        ratelimit_rule: Ratelimit::Full,
        ..CreditConfig::xen(XenVersion::V4_2)
    };
    let credit = Credit::new(config, &host);
    assert_eq!(credit.config().tslice, ms(1.0));
    assert_eq!(credit.config().ratelimit, ms(1.0));
}

#[test]
fn a_heavy_hog_among_light_ones_falls_short_of_its_weight() {
    // While the light ones run their slices it saves up more than 300 credits,
    // so it is no longer active, and half is taken: Xen, not the model.
    let mut host = Host::new(1).expect("one");
    for weight in [1_024, 64, 64, 64, 64] {
        let domain = Domain { weight, cap: 0 };
        let domain = host.add_domain(domain).expect("a weight");
        host.add_vcpu(domain).expect("the domain exists");
    }
    let mut script = credit(XenVersion::V4_2, &host);
    for vcpu in 0..5 {
        script.hog(0.0, vcpu);
    }
    let share = script.run(12_000.0).share(0);
    assert!((0.3..0.4).contains(&share), "{share} of 0.8");
}
