use super::*;
use crate::testing::{host, ms};
use crate::{
    Arrivals, Costs, CreditConfig, Load, Machine, Simulation, SimulationConfig, Task, Workload,
    XenVersion,
};

const TIMER: Nanos = Nanos::from_micros(500);
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

/// The first domain is `first`, the others are normal.
fn classes(host: &Host, first: DomainClass) -> Vec<DomainClass> {
    let mut classes = vec![DomainClass::Normal; host.domains().len()];
    classes[0] = first;
    classes
}

fn edf(host: &Host, first: DomainClass) -> EdfCredit {
    EdfCredit::new(EdfConfig::default(), host, &classes(host, first)).unwrap()
}

/// A server of pings that also does `load`, beside `hogs`.
fn pinged(load: Load, interval: f64, hogs: usize) -> Vec<Workload> {
    let arrivals = Arrivals::Every {
        interval: ms(interval),
        jitter: ms(0.1),
    };
    let task = Task::Server {
        arrivals,
        service: SERVICE,
        via: None,
    };
    let mut workloads = vec![Workload::hog(); hogs + 1];
    workloads[0] = Workload { task, load };
    workloads
}

fn simulation<S: Scheduler>(host: &Host, scheduler: S, workloads: &[Workload]) -> Simulation<S> {
    let machine = Machine::new(host, scheduler, Costs::default());
    Simulation::new(machine, workloads, SimulationConfig::default()).unwrap()
}

/// The longest sample in `seconds`, and how many there were.
fn longest<S: Scheduler>(simulation: &mut Simulation<S>, seconds: u64) -> (Nanos, u64) {
    let mut longest = (Nanos::ZERO, 0);
    simulation.run(Nanos::from_secs(seconds), &mut |sample| {
        longest = (longest.0.max(sample.took), longest.1 + 1);
    });
    longest
}

#[test]
fn a_ping_to_a_busy_guest_beside_five_hogs_is_never_later_than_its_deadline() {
    for deadline in [3.0, 5.0, 8.0] {
        let host = host(1, 6);
        let workloads = pinged(Load::Endless, 11.3, 5);
        let mut simulation = simulation(&host, edf(&host, aperiodic(deadline)), &workloads);
        let (longest, count) = longest(&mut simulation, 120);
        assert!(count > 10_000, "{count}");
        assert!(
            longest <= ms(deadline) + SERVICE,
            "{longest} of {deadline} ms"
        );
        assert!(
            longest + TIMER > ms(deadline),
            "{longest}: not earlier than needed"
        );
    }
}

#[test]
fn the_same_ping_waits_for_five_slices_under_plain_credit() {
    let host = host(1, 6);
    let credit = Credit::new(CreditConfig::xen(XenVersion::V4_1), &host);
    let mut simulation = simulation(&host, credit, &pinged(Load::Endless, 11.3, 5));
    let (longest, _) = longest(&mut simulation, 120);
    assert!((ms(120.0)..=ms(151.0)).contains(&longest), "{longest}");
}

#[test]
fn a_ping_to_an_idle_guest_beside_five_hogs_is_never_later_than_its_deadline() {
    let host = host(1, 6);
    let workloads = pinged(Load::None, 11.3, 5);
    let mut simulation = simulation(&host, edf(&host, aperiodic(3.0)), &workloads);
    let (longest, count) = longest(&mut simulation, 120);
    assert!(
        count > 10_000 && longest <= ms(3.0) + SERVICE,
        "{longest} in {count}"
    );
}

#[test]
fn shares_of_six_busy_guests_are_equal_whatever_class_the_first_has() {
    for class in [aperiodic(3.0), periodic(3.0), DomainClass::Normal] {
        let host = host(1, 6);
        let workloads = pinged(Load::Endless, 11.3, 5);
        let mut simulation = simulation(&host, edf(&host, class), &workloads);
        simulation.run(Nanos::from_secs(300), &mut |_| {});
        for vcpu in 0..6 {
            let run = simulation.machine().stats(VcpuId(vcpu)).run.as_secs_f64();
            assert!(
                (run / 50.0 - 1.0).abs() < 0.01,
                "{class:?}: vCPU {vcpu} had {run} s"
            );
        }
    }
}
