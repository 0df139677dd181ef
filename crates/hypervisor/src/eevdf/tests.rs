use super::*;
use crate::testing::{Script, host, ms};
use crate::{Domain, Event};
use proptest::prelude::*;

const TICK: Nanos = Nanos::from_millis(4);

fn linux(host: &Host, slice_ms: f64) -> Eevdf {
    let config = EevdfConfig {
        slice: ms(slice_ms),
        tick: TICK,
        timer: false,
    };
    Eevdf::new(config, host, &vec![None; host.vcpus().len()]).unwrap()
}

fn script(vcpus: u32, slice_ms: f64) -> Script<Eevdf> {
    let host = host(1, vcpus);
    let linux = linux(&host, slice_ms);
    Script::new(&host, linux)
}

fn ran(script: &Script<Eevdf>, vcpu: u32) -> Nanos {
    script.machine.stats(VcpuId(vcpu)).run
}

#[test]
fn the_base_slice_follows_the_number_of_cpus() {
    let slices = [1, 2, 3, 4, 7, 8, 64].map(|cpus| EevdfConfig::of_cpus(cpus).slice);
    assert_eq!(slices, [0.7, 1.4, 1.4, 2.1, 2.1, 2.8, 2.8].map(ms));
}

#[test]
fn hogs_change_at_the_tick_after_their_slice() {
    let mut script = script(2, 2.8);
    script.hog(0.0, 0).hog(0.0, 1).run(40.0);
    assert_eq!(script.starts(0)[..3], [0.0, 8.0, 16.0].map(ms));
    assert_eq!(script.starts(1)[..3], [4.0, 12.0, 20.0].map(ms));
    let mut script = self::script(2, 5.0);
    script.hog(0.0, 0).hog(0.0, 1).run(40.0);
    assert_eq!(script.starts(1)[..2], [8.0, 24.0].map(ms));
}

#[test]
fn a_timer_ends_slices_before_the_tick() {
    let host = host(1, 2);
    let config = EevdfConfig {
        timer: true,
        ..EevdfConfig::of_cpus(8)
    };
    let linux = Eevdf::new(config, &host, &[None, None]).unwrap();
    let mut script = Script::new(&host, linux);
    script.hog(0.0, 0).hog(0.0, 1).run(40.0);
    assert_eq!(script.starts(1)[..2], [2.8, 8.4].map(ms));
}

#[test]
fn a_wake_after_the_hogs_slice_runs_immediately() {
    let mut script = script(2, 1.4);
    // Nobody looked at the hog's slice since the tick at 4 ms.
    script.hog(0.0, 0).wake(6.0, 1, 0.1).run(10.0);
    assert_eq!(script.starts(1), [ms(6.0)]);
}

#[test]
fn a_wake_above_its_share_waits_for_the_tick() {
    // It took 1 ms at once, and sleeps for too little to be behind again.
    let mut script = script(2, 1.4);
    script.hog(0.0, 0).wake(5.5, 1, 1.0).wake(6.6, 1, 1.0);
    script.run(20.0);
    assert_eq!(script.starts(1), [ms(5.5), ms(8.0)]);
}

#[test]
fn a_shorter_slice_interrupts_one_that_is_protected() {
    let host = host(1, 3);
    let config = EevdfConfig::of_cpus(8);
    for (slice, start) in [(None, 8.0), (Some(ms(0.1)), 0.5)] {
        let linux = Eevdf::new(config, &host, &[None, None, slice]).unwrap();
        let mut script = Script::new(&host, linux);
        script.hog(0.0, 0).hog(0.0, 1).wake(0.5, 2, 0.1).run(10.0);
        assert_eq!(script.starts(2)[0], ms(start), "{slice:?}");
    }
}

#[test]
fn debt_is_not_slept_off() {
    // Beside a hog one works 3 ms of 6 by the clock: half of the CPU, whatever it owes when it
    // falls asleep.
    let mut script = script(2, 1.4);
    script.hog(0.0, 0);
    for round in 0..100 {
        script.wake(f64::from(round) * 20.0, 1, 9.0);
    }
    script.run(2_000.0);
    let share = script.share(1);
    assert!((0.44..=0.46).contains(&share), "{share}");
}

#[test]
fn eevdf_settings_that_linux_refuses_are_refused() {
    let host = host(1, 2);
    let new = |config, slices: &[Option<Nanos>]| Eevdf::new(config, &host, slices).map(|_| ());
    let config = EevdfConfig::default();
    let count = EevdfError::Count {
        slices: 1,
        vcpus: 2,
    };
    assert_eq!(new(config, &[None]), Err(count));
    for slice in [ms(0.09), ms(100.1)] {
        let wrong = Err(EevdfError::Slice(slice));
        assert_eq!(new(config, &[None, Some(slice)]), wrong);
        assert_eq!(new(EevdfConfig { slice, ..config }, &[None; 2]), wrong);
    }
    let tick = Nanos::ZERO;
    assert_eq!(
        new(EevdfConfig { tick, ..config }, &[None; 2]),
        Err(EevdfError::Tick)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A thread that always needs the CPU is never further from its share than a tick and two
    /// slices, and no time is lost.
    #[test]
    fn hogs_get_their_shares(
        weights in proptest::collection::vec(64_u32..1024, 2..6),
        wakes in proptest::collection::vec((0_u32..900, 1_u32..40), 0..40),
    ) {
        let mut host = Host::new(1).unwrap();
        for weight in weights.iter().copied().chain([256]) {
            let domain = host.add_domain(Domain { weight, cap: 0 }).unwrap();
            host.add_vcpu(domain).unwrap();
        }
        let linux = linux(&host, 1.4);
        let mut script = Script::new(&host, linux);
        for vcpu in 0..weights.len() as u32 {
            script.hog(0.0, vcpu);
        }
        let mut free = 0.0;
        for (at, tenths) in wakes {
            // Not while it may still have work.
            let at = f64::from(at).max(free);
            script.wake(at, weights.len() as u32, f64::from(tenths) / 10.0);
            free = at + 200.0;
        }
        script.run(20_000.0);
        let all: u64 = (0..=weights.len() as u32).map(|vcpu| ran(&script, vcpu).0).sum();
        prop_assert_eq!(Nanos(all), ms(20_000.0));
        let per_weight = (0..).zip(&weights).map(|(vcpu, weight)| {
            ran(&script, vcpu).0 as f64 / 1e6 / f64::from(*weight)
        });
        let per_weight: Vec<_> = per_weight.collect();
        let lightest = f64::from(*weights.iter().min().unwrap());
        let (low, high) = per_weight.iter().fold((f64::MAX, 0.0_f64), |(low, high), each| {
            (low.min(*each), high.max(*each))
        });
        prop_assert!((high - low) * lightest <= 2.0 * (4.0 + 2.0 * 1.4), "{per_weight:?}");
    }
}

#[test]
fn a_queue_that_empties_begins_anew() {
    let mut script = script(2, 1.4);
    script
        .wake(0.0, 0, 1.0)
        .wake(10.0, 1, 1.0)
        .wake(10.5, 0, 1.0)
        .run(20.0);
    assert_eq!(script.machine.stats(VcpuId(0)).run, ms(2.0));
    let done = |event: &&Event| matches!(event, Event::Done { .. });
    assert_eq!(script.log.iter().filter(done).count(), 3);
}
