//! The model beside wake-ups of real threads: `cargo run -p tailbound-agent --example wakeups`, on a
//! machine of two CPUs with Linux 6.18.

use super::*;
use crate::testing::ms;
use crate::{Costs, Domain, Guests, Happening, Load, Machine, Workload};

/// For each thread of a load how long it is busy by the clock and sleeps, in ms; one that sleeps
/// for 0 is a hog.
type Loaded = &'static [(f64, f64)];

/// Of the wake-ups later than the median, the 99th and the 99.9th percentile the least late, in us.
type Late = [f64; 3];

/// The median beside a thread that anybody preempts: what a wake-up takes by itself.
const BY_ITSELF: f64 = 16.9;
/// By how much a number may be off.
const OFF: f64 = 0.3;

/// How late wake-ups are in the model beside a load on one CPU: of a thread that sleeps for 1.5 to
/// 4.5 ms, then works for 0.1 ms.
fn wakeups(config: EevdfConfig, load: Loaded, seconds: u64) -> Late {
    let mut host = Host::new(1).unwrap();
    for _ in 0..=load.len() {
        let domain = host.add_domain(Domain::default()).unwrap();
        host.add_vcpu(domain).unwrap();
    }
    let linux = Eevdf::new(config, &host, &vec![None; load.len() + 1]).unwrap();
    let machine = Machine::new(&host, linux, Costs::default());
    let mut guests = Guests::<_, Option<Nanos>>::new(machine, <_>::default());
    for (vcpu, (busy, sleep)) in (1..).map(VcpuId).zip(load) {
        let load = if *sleep > 0.0 {
            Load::WallClock {
                busy: ms(*busy),
                period: ms(busy + sleep),
                jitter: Nanos::from_micros(50),
            }
        } else {
            Workload::hog().load
        };
        guests.start_load(vcpu, load);
    }
    let sleeper = VcpuId(0);
    let mut random = crate::random::Random::new(7);
    guests.set_timer(sleeper, ms(20.0));
    let mut late = Vec::new();
    while let Some(happening) = guests.next(Nanos::from_secs(seconds)) {
        match happening {
            Happening::Timer { at, .. } => {
                guests.offer(sleeper, Some(at), Nanos(1), Wake::Timer);
                guests.offer(sleeper, None, ms(0.1), Wake::Timer);
            }
            Happening::Done { at, job, .. } => match job {
                Some(due) => late.push(at - due),
                None => guests.set_timer(sleeper, at + ms(1.5) + random.up_to(ms(3.0))),
            },
        }
    }
    late.sort_unstable();
    let at = |share: f64| late[(late.len() as f64 * share) as usize].0 as f64 / 1e3;
    [0.5, 0.99, 0.999].map(|share| at(share) + BY_ITSELF)
}

/// Each load, what was measured beside it, and which of the three numbers the model has.
const LOADS: [(Loaded, Late, [bool; 3]); 6] = [
    (&[(0.0, 0.0)], [18.9, 1386.9, 1513.6], [true, true, true]),
    (
        &[(0.0, 0.0); 2],
        [20.4, 1478.5, 3905.6],
        [true, true, false],
    ),
    (
        &[(0.0, 0.0); 5],
        [19.3, 1685.8, 2696.0],
        [true, false, false],
    ),
    (&[(50.0, 50.0)], [17.4, 712.6, 1166.8], [true, false, true]),
    (
        &[(5.0, 5.0); 3],
        [17.4, 1503.4, 4425.7],
        [true, true, false],
    ),
    (
        &[(0.0, 0.0), (20.0, 20.0)],
        [20.2, 1254.2, 1861.5],
        [true, false, true],
    ),
];

#[test]
fn twelve_of_eighteen_numbers_are_as_measured() {
    let config = EevdfConfig {
        timer: true,
        ..EevdfConfig::of_cpus(2)
    };
    for (load, measured, expected) in LOADS {
        let found = wakeups(config, load, 100);
        println!("{load:?}: {found:.1?}, measured {measured:.1?}");
        let is_near = |it: usize| (found[it] / measured[it] - 1.0).abs() <= OFF;
        assert_eq!([0, 1, 2].map(is_near), expected, "{load:?}");
    }
}
