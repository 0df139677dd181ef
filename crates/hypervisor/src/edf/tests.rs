//! Latency and shares; the rules one by one are in `rules`.

mod exact;
mod rules;
mod stepped;

use super::*;
use crate::testing::{host, ms};
use crate::{
    Arrivals, Costs, CreditConfig, Domain, Load, Machine, Simulation, SimulationConfig, Task,
    Workload, XenVersion,
};

const SERVICE: Nanos = Nanos::from_micros(50);

fn aperiodic(deadline: f64) -> DomainClass {
    DomainClass::Aperiodic {
        deadline: ms(deadline),
    }
}

fn periodic(deadline: f64) -> DomainClass {
    DomainClass::Periodic {
        deadline: ms(deadline),
        period: None,
    }
}

/// The first domains are `first`, the others normal.
fn edf(host: &Host, first: &[DomainClass]) -> EdfCredit {
    let mut classes = first.to_vec();
    classes.resize(host.domains().len(), DomainClass::Normal);
    EdfCredit::new(EdfConfig::default(), host, &classes).unwrap()
}

fn credit(host: &Host) -> Credit {
    Credit::new(CreditConfig::xen(XenVersion::V4_1), host)
}

/// Answers a ping every 11.3 ms beside `load`.
fn pinged(load: Load) -> Workload {
    let arrivals = Arrivals::Every {
        interval: ms(11.3),
        jitter: ms(0.1),
    };
    let task = Task::Server {
        arrivals,
        service: SERVICE,
        via: None,
    };
    Workload { task, load }
}

/// `first`, and hogs on the rest of `host`.
fn beside_hogs<S: Scheduler>(host: &Host, scheduler: S, first: &[Workload]) -> Simulation<S> {
    let mut workloads = first.to_vec();
    workloads.resize(host.vcpus().len(), Workload::hog());
    let machine = Machine::new(host, scheduler, Costs::default());
    Simulation::new(machine, &workloads, SimulationConfig::default()).unwrap()
}

/// The longest sample of each vCPU up to `end`, and how many there were.
fn longest<S: Scheduler>(simulation: &mut Simulation<S>, end: Nanos) -> Vec<(Nanos, u64)> {
    let mut longest = vec![(Nanos::ZERO, 0); simulation.machine().vcpus()];
    simulation.run(end, &mut |sample| {
        let row = &mut longest[sample.vcpu.index()];
        *row = (row.0.max(sample.took), row.1 + 1);
    });
    longest
}

fn pings_are_in_time(count: u64) {
    for deadline in [3.0, 5.0, 8.0] {
        for load in [Load::Endless, Load::None] {
            let host = host(1, 6);
            let scheduler = edf(&host, &[aperiodic(deadline)]);
            let mut simulation = beside_hogs(&host, scheduler, &[pinged(load)]);
            let end = Nanos(count * ms(11.35).0);
            let (longest, answered) = longest(&mut simulation, end)[0];
            assert!(answered + 5 > count, "{answered}");
            assert!(longest <= ms(deadline) + SERVICE, "{longest}, {load:?}");
            let in_vain = ms(deadline) - ms(0.5);
            assert!(longest > in_vain, "{longest}: no sooner than it must");
        }
    }
}

#[test]
fn pings_beside_five_hogs_are_never_later_than_the_deadline() {
    pings_are_in_time(10_000);
}

#[test]
#[ignore = "a million pings: run it in release"]
fn a_million_pings_beside_five_hogs_are_never_later_than_the_deadline() {
    pings_are_in_time(1_000_000);
}

#[test]
fn a_ping_to_a_busy_guest_waits_for_five_slices_under_plain_credit() {
    let host = host(1, 6);
    let mut simulation = beside_hogs(&host, credit(&host), &[pinged(Load::Endless)]);
    let (longest, _) = longest(&mut simulation, ms(60_000.0))[0];
    assert!((ms(130.0)..=ms(151.0)).contains(&longest), "{longest}");
}

/// Six busy guests, the first of each class in turn, for `seconds`.
fn shares_are_equal(seconds: u64) {
    for class in [aperiodic(3.0), periodic(3.0), periodic(1.0)] {
        let host = host(1, 6);
        let workload = pinged(Load::Endless);
        let mut simulation = beside_hogs(&host, edf(&host, &[class]), &[workload]);
        simulation.run(Nanos::from_secs(seconds), &mut |_| {});
        for vcpu in 0..6 {
            let run = simulation.machine().stats(VcpuId(vcpu)).run;
            let part = run.as_secs_f64() / seconds as f64 * 6.0;
            assert!((part - 1.0).abs() < 0.01, "{class:?}: vCPU {vcpu}: {part}");
        }
    }
}

#[test]
fn six_busy_guests_share_equally_for_any_class_of_the_first() {
    shares_are_equal(120);
}

#[test]
#[ignore = "1000 simulated seconds: run it in release"]
fn six_busy_guests_have_equal_shares_over_1000_seconds() {
    shares_are_equal(1_000);
}

#[test]
fn five_hogs_share_equally_beside_a_guest_that_only_answers() {
    let host = host(1, 6);
    let scheduler = edf(&host, &[aperiodic(3.0)]);
    let mut simulation = beside_hogs(&host, scheduler, &[pinged(Load::None)]);
    simulation.run(Nanos::from_secs(120), &mut |_| {});
    let run = |vcpu| simulation.machine().stats(VcpuId(vcpu)).run.as_secs_f64();
    let left = 120.0 - run(0);
    for vcpu in 1..6 {
        let part = run(vcpu) / left * 5.0;
        assert!((part - 1.0).abs() < 0.01, "vCPU {vcpu}: {part}");
    }
}

#[test]
fn a_flood_of_events_buys_hardly_more_than_the_share() {
    let host = host(1, 4);
    let flood = Workload::task(Task::Server {
        arrivals: Arrivals::Poisson { mean: ms(0.1) },
        service: ms(0.08),
        via: None,
    });
    let mut simulation = beside_hogs(&host, edf(&host, &[aperiodic(0.5)]), &[flood]);
    simulation.run(Nanos::from_secs(120), &mut |_| {});
    let run = simulation.machine().stats(VcpuId(0)).run.as_secs_f64();
    // With so few others some save more than 300, of which Xen takes half.
    assert!((run / 30.0 - 1.0).abs() < 0.05, "{run} of 30 s");
}

/// A sender of a frame every 40 ms that computes 55 % of the time, with 60 % of
/// the weight, beside `neighbours` (`QoS` Scheduling, figures 12 and 13).
fn frames<S: Scheduler>(neighbours: u32, scheduler: impl Fn(&Host) -> S) -> Nanos {
    let mut host = Host::new(1).unwrap();
    for vcpu in 0..=neighbours {
        let weight = if vcpu == 0 { 600 } else { 400 / neighbours };
        let domain = host.add_domain(Domain { weight, cap: 0 }).unwrap();
        host.add_vcpu(domain).unwrap();
    }
    let task = Task::Sender {
        period: ms(40.0),
        send: ms(0.2),
        via: None,
    };
    let load = Load::DutyCycle {
        busy: ms(5.5),
        period: ms(10.0),
        jitter: ms(0.1),
    };
    let scheduler = scheduler(&host);
    let mut simulation = beside_hogs(&host, scheduler, &[Workload { task, load }]);
    longest(&mut simulation, ms(120_000.0))[0].0
}

#[test]
fn a_periodic_sender_is_as_late_beside_five_neighbours_as_beside_one() {
    for deadline in [3.0, 5.0] {
        for neighbours in 1..=5 {
            let late = frames(neighbours, |host| edf(host, &[periodic(deadline)]));
            let most = ms(deadline) + ms(0.2);
            assert!(late <= most, "{late} beside {neighbours}, {deadline} ms");
        }
    }
    let plain = frames(2, credit);
    assert!(plain > ms(25.0), "{plain} under plain credit");
}

#[test]
fn several_deadlines_are_late_by_the_others_slices_at_most() {
    let deadlines = [3.0, 3.0, 5.0, 8.0];
    let host = host(1, 7);
    let scheduler = edf(&host, &deadlines.map(aperiodic));
    let first = [pinged(Load::Endless); 4];
    let mut simulation = beside_hogs(&host, scheduler, &first);
    let longest = longest(&mut simulation, ms(60_000.0));
    for (deadline, (longest, _)) in deadlines.into_iter().zip(longest) {
        let most = ms(deadline) + ms(3.0 * 0.5) + SERVICE;
        assert!(longest <= most, "{longest} of {deadline} ms");
    }
}
