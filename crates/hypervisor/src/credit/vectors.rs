//! Scenarios whose outcome is known to the microsecond from Xen's source.
//!
//! The hog has always run past a tick and is therefore in class UNDER. Times are in milliseconds.

use super::{Boost, Class, Credit, CreditConfig, XenVersion};
use crate::testing::{Script, host, ms};
use crate::{Event, PcpuId, VcpuId};
use tailbound_units::Nanos;

const HOG: u32 = 0;
const PING: u32 = 1;
const IO: u32 = 2;

fn script(version: XenVersion, vcpus: u32) -> Script<Credit> {
    let host = host(1, vcpus);
    Script::new(&host, Credit::new(CreditConfig::xen(version), &host))
}

/// The hog enters RUNNING again at 15.05, after a ping of 0.05; the next ping
/// wakes `after`. When does that run?
fn second_ping(version: XenVersion, after: f64) -> Nanos {
    let mut script = script(version, 2);
    script.hog(0.0, HOG).wake(15.0, PING, 0.05);
    script.wake(15.05 + after, PING, 0.05).run(25.0);
    assert_eq!(script.starts(HOG)[1], ms(15.05));
    script.starts(PING)[1]
}

#[test]
fn tv1a_a_ping_20_us_after_the_hog_began_waits_for_the_ratelimit() {
    assert_eq!(second_ping(XenVersion::V4_2, 0.02), ms(16.07));
    assert_eq!(second_ping(XenVersion::V4_8, 0.02), ms(16.05));
    assert_eq!(second_ping(XenVersion::V4_17, 0.02), ms(16.05));
}

#[test]
fn tv1b_a_ping_300_us_after_the_hog_began_waits_for_the_ratelimit() {
    assert_eq!(second_ping(XenVersion::V4_2, 0.3), ms(16.35));
    assert_eq!(second_ping(XenVersion::V4_8, 0.3), ms(16.05));
    assert_eq!(second_ping(XenVersion::V4_17, 0.3), ms(16.05));
}

#[test]
fn tv1d_a_ping_5_ms_after_the_hog_began_runs_at_once() {
    assert_eq!(second_ping(XenVersion::V4_2, 5.0), ms(20.05));
    assert_eq!(second_ping(XenVersion::V4_8, 5.0), ms(20.05));
}

#[test]
fn without_a_ratelimit_a_ping_runs_at_once() {
    assert_eq!(second_ping(XenVersion::V4_1, 0.02), ms(15.07));
    assert_eq!(second_ping(XenVersion::V3_3, 0.02), ms(15.07));
}

#[test]
fn since_4_8_the_ratelimit_sets_no_timer_below_100_us() {
    let host = host(1, 2);
    let config = CreditConfig {
        ratelimit: ms(0.1),
        ..CreditConfig::xen(XenVersion::V4_8)
    };
    let mut script = Script::new(&host, Credit::new(config, &host));
    script.hog(0.0, HOG).wake(15.0, PING, 0.05);
    script.wake(15.07, PING, 0.05).run(20.0);
    // 80 us of the limit are left, 20 us after the hog began.
    assert_eq!(script.starts(PING), [15.0, 15.17].map(ms));
}

#[test]
fn tv2_two_equal_hogs_switch_every_30_ms() {
    for version in [XenVersion::V4_1, XenVersion::V4_2, XenVersion::V4_8] {
        let mut script = script(version, 2);
        script.hog(0.0, 0).hog(0.0, 1).run(130.0);
        assert_eq!(script.starts(0), [0.0, 60.0, 120.0].map(ms));
        assert_eq!(script.starts(1), [30.0, 90.0].map(ms));
    }
}

/// The hog runs; at 101 an I/O guest wakes with a burst of 25, at 102 a ping.
/// When does the ping run, and when the I/O guest?
fn ping_beside_burst(version: XenVersion, boost: Boost) -> (Vec<Nanos>, Vec<Nanos>) {
    let host = host(1, 3);
    let config = CreditConfig {
        boost,
        ..CreditConfig::xen(version)
    };
    let mut script = Script::new(&host, Credit::new(config, &host));
    script.hog(0.0, HOG).wake(101.0, IO, 25.0);
    script.wake(102.0, PING, 0.05).run(140.0);
    (script.starts(PING), script.starts(IO))
}

#[test]
fn tv3_boost_does_not_preempt_boost_so_the_ping_waits_for_the_burst() {
    for version in [XenVersion::V4_1, XenVersion::V4_2, XenVersion::V4_8] {
        let (ping, io) = ping_beside_burst(version, Boost::NonePreempts);
        assert_eq!(ping, [126.0].map(ms));
        assert_eq!(io, [101.0].map(ms));
    }
}

#[test]
fn tv3b_where_boost_preempts_boost_the_ping_runs_at_once() {
    for version in [XenVersion::V4_1, XenVersion::V4_2, XenVersion::V4_8] {
        for boost in [Boost::PreemptsTail, Boost::PreemptsHead] {
            let (ping, io) = ping_beside_burst(version, boost);
            assert_eq!(ping, [102.0].map(ms));
            assert_eq!(io, [101.0, 102.05].map(ms));
        }
    }
}

#[test]
fn a_preempting_boost_goes_behind_or_before_the_one_that_waits() {
    for (boost, first) in [(Boost::PreemptsTail, IO), (Boost::PreemptsHead, PING)] {
        // Both wait behind the hog's ratelimit, which began at 15.05.
        let host = host(1, 3);
        let config = CreditConfig {
            boost,
            ..CreditConfig::xen(XenVersion::V4_2)
        };
        let mut script = Script::new(&host, Credit::new(config, &host));
        script.hog(0.0, HOG).wake(15.0, PING, 0.05);
        script.wake(15.1, IO, 0.1).wake(15.2, PING, 0.1).run(20.0);
        let io = script.starts(IO)[0];
        let ping = script.starts(PING)[1];
        assert_eq!(io < ping, first == IO, "{boost:?}: {io:?} {ping:?}");
    }
}

#[test]
fn a_tick_demotes_the_boosted_runner_but_the_one_that_waits_goes_on_waiting() {
    let mut script = script(XenVersion::V4_1, 3);
    script.hog(0.0, HOG).wake(101.0, IO, 40.0);
    script.wake(102.0, PING, 0.05).run(111.0);
    let scheduler = script.machine.scheduler();
    assert_eq!(scheduler.account(VcpuId(IO)).class, Class::Under);
    assert_eq!(scheduler.account(VcpuId(PING)).class, Class::Boost);
    assert_eq!(script.machine.current(PcpuId(0)), Some(VcpuId(IO)));
    // Its slice of 30 ms ends.
    script.run(140.0);
    assert_eq!(script.starts(PING), [131.0].map(ms));
}

#[test]
fn one_more_wake_lets_the_older_waiter_run() {
    let host = host(1, 4);
    let mut script = Script::new(
        &host,
        Credit::new(CreditConfig::xen(XenVersion::V4_1), &host),
    );
    script.hog(0.0, HOG).wake(101.0, IO, 40.0);
    script
        .wake(102.0, PING, 0.05)
        .wake(112.0, 3, 0.05)
        .run(140.0);
    assert_eq!(script.starts(PING), [112.0].map(ms));
    assert_eq!(script.starts(3), [112.05].map(ms));
}

#[test]
fn the_accounting_of_an_instant_comes_before_its_decision() {
    let mut script = script(XenVersion::V4_2, 2);
    script.hog(0.0, 0).hog(0.0, 1).run(60.0);
    // At 60 vCPU 1 has used 300 and the accounting gave it 150. Had its slice
    // ended first, it would have been queued as UNDER.
    let account = script.machine.scheduler().account(VcpuId(1));
    assert_eq!((account.credit, account.class), (-150, Class::Over));
    assert_eq!(script.machine.current(PcpuId(0)), Some(VcpuId(0)));
    let stopped = script.log.iter().filter_map(|event| match event {
        Event::Stopped { vcpu, at, .. } => Some((vcpu.0, *at)),
        _ => None,
    });
    assert_eq!(stopped.collect::<Vec<_>>(), [(0, ms(30.0)), (1, ms(60.0))]);
}
