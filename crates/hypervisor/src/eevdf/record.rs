//! The model beside wake-ups of real threads: `cargo run -p tailbound-agent --example wakeups`, on
//! a machine of two CPUs with Linux 6.18.

use super::*;
use crate::testing::ms;
use crate::{Costs, Domain, Guests, Happening, Load, Machine, Workload};

/// For each thread of a load how long it is busy by the clock and sleeps, in ms; one that sleeps
/// for 0 is a hog.
type Loaded = &'static [(f64, f64)];

/// Of the wake-ups later than the median, the 99th and the 99.9th percentile the least late, in us.
type Late = [f64; 3];

/// Median delay of a wake-up beside a thread of lower priority: the cost of the wake-up itself.
const BY_ITSELF: f64 = 16.5;
/// By how much a number may be off.
const OFF: f64 = 0.3;

/// Returns the lateness of wake-ups in the model beside a load on one CPU, for a thread that sleeps
/// for 1.5 to 4.5 ms, then works for 0.1 ms.
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

/// Each load, and what was measured beside it: means of two runs.
const LOADS: [(Loaded, Late); 6] = [
    (&[(0.0, 0.0)], [16.7, 3351.3, 3938.8]),
    (&[(0.0, 0.0); 2], [16.5, 3979.1, 5022.3]),
    (&[(0.0, 0.0); 5], [17.0, 4157.3, 8680.0]),
    (&[(50.0, 50.0)], [16.6, 2972.3, 4511.4]),
    (&[(5.0, 5.0); 3], [16.5, 4412.0, 7452.5]),
    (&[(0.0, 0.0), (20.0, 20.0)], [16.8, 4016.0, 5240.6]),
];

#[test]
fn all_percentiles_are_as_measured() {
    for (load, measured) in LOADS {
        let found = wakeups(EevdfConfig::of_cpus(2), load, 100);
        println!("{load:?}: {found:.1?}, measured {measured:.1?}");
        for (found, measured) in found.into_iter().zip(measured) {
            let off = found / measured - 1.0;
            assert!(off.abs() <= OFF, "{load:?}: {off:.2}");
        }
    }
}
