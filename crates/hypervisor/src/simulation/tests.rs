//! Workloads on hosts where what must come out is plain.

use crate::testing::{host, ms};
use crate::{
    Arrivals, Costs, Credit, CreditConfig, Eevdf, EevdfConfig, Host, Load, Machine, Sample,
    Simulation,
};
use crate::{SimulationConfig, Task, VcpuId, Via, Workload, WorkloadError, XenVersion};
use tailbound_units::Nanos;

fn simulation(
    host: &Host,
    workloads: &[Workload],
    config: SimulationConfig,
) -> Result<Simulation<Credit>, WorkloadError> {
    let credit = Credit::new(CreditConfig::xen(XenVersion::V4_1), host);
    Simulation::new(
        Machine::new(host, credit, Costs::default()),
        workloads,
        config,
    )
}

fn samples(host: &Host, workloads: &[Workload], config: SimulationConfig) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut simulation = simulation(host, workloads, config).expect("can be run");
    simulation.run(ms(1_000.0), &mut |sample| samples.push(sample));
    samples
}

fn every(interval: f64, service: f64, via: Option<Via>) -> Workload {
    Workload::task(Task::Server {
        arrivals: Arrivals::Every {
            interval: ms(interval),
            jitter: Nanos::ZERO,
        },
        service: ms(service),
        via,
    })
}

#[test]
fn alone_a_request_takes_its_service_time() {
    let samples = samples(&host(1, 1), &[every(2.0, 0.1, None)], <_>::default());
    assert!((499..=500).contains(&samples.len()));
    assert!(samples.iter().all(|sample| sample.took == ms(0.1)));
    let gaps = samples.windows(2).map(|pair| pair[1].at - pair[0].at);
    assert!(gaps.into_iter().all(|gap| gap == ms(2.0)));
}

#[test]
fn requests_that_come_faster_than_they_are_served_queue() {
    let samples = samples(&host(1, 1), &[every(1.0, 1.5, None)], <_>::default());
    // One is done every 1.5 ms, and each waits 0.5 ms longer than the last.
    let growth = samples.windows(2).map(|pair| pair[1].took - pair[0].took);
    assert!(growth.into_iter().all(|growth| growth == ms(0.5)));
}

#[test]
fn a_synchronous_client_waits_for_the_answer() {
    let closed = Workload::task(Task::Server {
        arrivals: Arrivals::Closed {
            think: ms(1.0),
            jitter: Nanos::ZERO,
        },
        service: ms(0.25),
        via: None,
    });
    let samples = samples(&host(1, 1), &[closed], <_>::default());
    let gaps = samples.windows(2).map(|pair| pair[1].at - pair[0].at);
    assert!(gaps.into_iter().all(|gap| gap == ms(1.25)));
}

#[test]
fn a_workflows_time_is_its_consecutive_calls_and_wire_time() {
    let sequences = Workload::task(Task::Server {
        arrivals: Arrivals::Sequences {
            mean: ms(2.0),
            calls: 10,
            wire: [ms(0.5), ms(0.5), ms(0.5)],
        },
        service: ms(0.25),
        via: None,
    });
    let samples = samples(&host(1, 1), &[sequences], <_>::default());
    // One each 9.5 ms on average.
    assert!((95..115).contains(&samples.len()), "{}", samples.len());
    assert!(samples.iter().all(|sample| sample.took == ms(7.5)));
    let gaps = samples.windows(2).map(|pair| pair[1].at - pair[0].at);
    assert!(gaps.into_iter().all(|gap| gap >= ms(7.5)));
}

#[test]
fn poisson_requests_come_at_their_mean_rate() {
    let poisson = Workload::task(Task::Server {
        arrivals: Arrivals::Poisson { mean: ms(1.0) },
        service: Nanos::ZERO,
        via: None,
    });
    let count = samples(&host(1, 1), &[poisson], <_>::default()).len();
    assert!((900..1_100).contains(&count), "{count}");
}

#[test]
fn a_request_passes_the_driver_domain_both_ways() {
    let via = Via {
        vcpu: VcpuId(1),
        inbound: ms(0.02),
        outbound: ms(0.03),
    };
    let guests = [every(2.0, 0.1, Some(via)), Workload::task(Task::Driver)];
    for pcpus in [1, 2] {
        let samples = samples(&host(pcpus, 2), &guests, <_>::default());
        assert!(samples.len() >= 499);
        assert!(samples.iter().all(|sample| sample.took == ms(0.15)));
    }
}

#[test]
fn a_frame_goes_before_the_encoder_of_its_guest() {
    let sender = Workload {
        task: Task::Sender {
            period: ms(20.0),
            send: ms(0.2),
            via: None,
        },
        load: Load::Endless,
    };
    let samples = samples(&host(1, 1), &[sender], <_>::default());
    assert!((49..=50).contains(&samples.len()));
    assert!(samples.iter().all(|sample| sample.took == ms(0.2)));
}

#[test]
fn a_ping_to_a_guest_that_waits_for_its_slice_waits_with_it() {
    // Six hogs, one of which answers pings: up to 5 x 30 ms, as in figure 14
    // of Cheng and Wang's paper.
    let mut guests = [Workload::hog(); 6];
    guests[0].task = every(7.0, 0.01, None).task;
    let samples = samples(&host(1, 6), &guests, <_>::default());
    let worst = samples.iter().map(|sample| sample.took).max();
    assert!(
        worst > Some(ms(140.0)) && worst < Some(ms(151.0)),
        "{worst:?}"
    );
}

#[test]
fn a_sleep_takes_as_long_as_was_asked_or_the_slop() {
    let sleep = |micros| {
        Workload::task(Task::SleepLoop {
            sleep: Nanos::from_micros(micros),
            work: Nanos::from_micros(5),
            jitter: Nanos::ZERO,
        })
    };
    let config = SimulationConfig {
        seed: 3,
        timer_slop: Nanos::from_micros(50),
    };
    for (asked, slept) in [(1_000, 1_000), (10, 50)] {
        let samples = samples(&host(1, 1), &[sleep(asked)], config);
        let slept = Nanos::from_micros(slept);
        assert!(samples.len() > 900);
        assert!(samples.iter().all(|sample| sample.took == slept));
    }
}

#[test]
fn a_duty_cycle_uses_its_share_and_a_full_one_never_sleeps() {
    for (busy, sleeps) in [(10.0, true), (85.0, true), (100.0, false)] {
        let load = Workload::load(Load::DutyCycle {
            busy: ms(busy),
            period: ms(100.0),
            jitter: Nanos::from_micros(200),
        });
        let mut simulation = simulation(&host(1, 1), &[load], <_>::default()).expect("can be run");
        simulation.run(ms(10_000.0), &mut |_| {});
        let stats = simulation.machine().stats(VcpuId(0));
        let share = stats.run.as_millis_f64() / 10_000.0;
        assert!((share - busy / 100.0).abs() < 0.012, "{share}");
        assert_eq!(stats.wakes > 1, sleeps);
    }
}

#[test]
fn a_switch_costs_the_one_that_comes() {
    let host = host(1, 2);
    let credit = Credit::new(CreditConfig::xen(XenVersion::V4_1), &host);
    let costs = Costs {
        context_switch: ms(0.01),
        migration: ms(1.0),
        cache_refill: ms(0.1),
    };
    let mut machine = Machine::new(&host, credit, costs);
    machine.set_cache_refill(VcpuId(1), ms(0.2));
    let hogs = [Workload::hog(); 2];
    let mut simulation = Simulation::new(machine, &hogs, <_>::default()).expect("can be run");
    simulation.run(ms(120.0), &mut |_| {});
    let overhead = |vcpu| simulation.machine().stats(VcpuId(vcpu)).overhead;
    // At 0 and 30 without a cache to refill, at 60, 90 and 120 with one; the
    // last is not paid yet.
    assert_eq!(overhead(0), ms(0.01 + 0.11));
    assert_eq!(overhead(1), ms(0.01 + 0.21));
}

#[test]
fn a_simulation_run_in_parts_equals_one_run() {
    let guests = [every(2.0, 0.1, None), Workload::hog()];
    let host = host(1, 2);
    let run = |ends: &[f64]| {
        let mut samples = Vec::new();
        let mut simulation = simulation(&host, &guests, <_>::default()).expect("can be run");
        for &end in ends {
            simulation.run(ms(end), &mut |sample| samples.push(sample));
        }
        (format!("{:?}", simulation.machine()), samples)
    };
    assert_eq!(run(&[500.0]), run(&[0.0, 123.456, 300.0, 500.0]));
}

#[test]
fn seeds_differ() {
    let guests = [every(2.0, 0.1, None), Workload::hog()];
    let with = |seed| {
        let config = SimulationConfig {
            seed,
            timer_slop: Nanos::ZERO,
        };
        samples(&host(1, 2), &guests, config)
    };
    assert_eq!(with(1), with(1));
    assert_ne!(with(1), with(2));
}

#[test]
fn impossible_workloads_are_refused() {
    let refused = |guests: &[Workload]| {
        simulation(&host(1, 2), guests, <_>::default()).expect_err("must be refused")
    };
    let duty = |busy, period| {
        Workload::load(Load::DutyCycle {
            busy: ms(busy),
            period: ms(period),
            jitter: Nanos::ZERO,
        })
    };
    let hog = Workload::hog();
    let via = |vcpu| Via {
        vcpu: VcpuId(vcpu),
        inbound: Nanos::ZERO,
        outbound: Nanos::ZERO,
    };
    let count = WorkloadError::Count {
        workloads: 1,
        vcpus: 2,
    };
    assert_eq!(refused(&[hog]), count);
    assert_eq!(
        refused(&[hog, duty(0.0, 1.0)]),
        WorkloadError::Zero(1, "busy")
    );
    assert_eq!(refused(&[duty(2.0, 1.0), hog]), WorkloadError::Busy(0));
    for vcpu in [0, 1, 7] {
        let guests = [every(1.0, 0.1, Some(via(vcpu))), hog];
        assert_eq!(refused(&guests), WorkloadError::NoDriver(0, vcpu));
    }
    assert_eq!(
        refused(&[every(0.0, 0.1, None), hog]),
        WorkloadError::Zero(0, "interval")
    );
}

#[test]
fn a_wall_clock_load_does_not_recover_time_lost_to_others() {
    let (busy, period) = (ms(40.0), ms(100.0));
    let jitter = Nanos::ZERO;
    let wall = Load::WallClock {
        busy,
        period,
        jitter,
    };
    let cpu = Load::DutyCycle {
        busy,
        period,
        jitter,
    };
    // Beside a hog it has half of the time for which it is busy.
    for (load, hogs, share) in [(wall, 0, 0.4), (cpu, 0, 0.4), (wall, 1, 0.2), (cpu, 1, 0.4)] {
        let mut workloads = vec![Workload::load(load)];
        workloads.resize(1 + hogs, Workload::hog());
        let host = host(1, workloads.len() as u32);
        let slices = vec![None; workloads.len()];
        let linux = Eevdf::new(EevdfConfig::default(), &host, &slices).unwrap();
        let machine = Machine::new(&host, linux, Costs::default());
        let mut simulation = Simulation::new(machine, &workloads, <_>::default()).unwrap();
        simulation.run(ms(60_000.0), &mut |_| {});
        let found = simulation.machine().stats(VcpuId(0)).run.as_secs_f64() / 60.0;
        assert!(
            (found - share).abs() < 0.02,
            "{load:?} beside {hogs}: {found}"
        );
    }
}

#[test]
fn a_load_by_the_clock_has_the_period_that_it_is_given() {
    let wall = Workload::load(Load::WallClock {
        busy: ms(10.0),
        period: ms(10.5),
        jitter: Nanos::ZERO,
    });
    let host = host(1, 1);
    let mut simulation = simulation(&host, &[wall], <_>::default()).unwrap();
    simulation.run(ms(1_000.0), &mut |_| {});
    let stats = simulation.machine().stats(VcpuId(0));
    // Each period is what it says, not longer by the work of looking at the clock.
    assert!((95..=96).contains(&stats.wakes), "{stats:?}");
}

#[test]
fn bursts_use_their_part_of_burst_and_sleep() {
    let load = Workload::load(Load::Bursts {
        work: ms(1.0),
        sleep: ms(9.0),
        jitter: Nanos::ZERO,
    });
    let mut simulation = simulation(&host(1, 1), &[load], <_>::default()).expect("can be run");
    simulation.run(ms(10_000.0), &mut |_| {});
    let run = simulation.machine().stats(VcpuId(0)).run;
    assert!(run.0.abs_diff(ms(1_000.0).0) <= ms(1.0).0, "{run}");
}
