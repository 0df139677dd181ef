//! Simulating does not allocate: a run of minutes costs no memory traffic.

use tailbound_hypervisor::{
    Arrivals, Costs, Credit, CreditConfig, Domain, Host, Load, Machine, Simulation,
    SimulationConfig, Task, Workload, XenVersion,
};
use tailbound_units::Nanos;

#[test]
fn after_its_first_seconds_a_simulation_does_not_allocate() {
    let mut host = Host::new(2).expect("two pCPUs");
    for _ in 0..6 {
        let domain = host.add_domain(Domain::default()).expect("a weight");
        host.add_vcpu(domain).expect("the domain exists");
    }
    let server = Workload {
        task: Task::Server {
            arrivals: Arrivals::Poisson {
                mean: Nanos::from_millis(2),
            },
            service: Nanos::from_micros(100),
            via: None,
        },
        load: Load::DutyCycle {
            busy: Nanos::from_millis(20),
            period: Nanos::from_millis(100),
            jitter: Nanos::from_micros(100),
        },
    };
    let hog = Workload::hog();
    let credit = Credit::new(CreditConfig::xen(XenVersion::V4_17), &host);
    let machine = Machine::new(&host, credit, Costs::default());
    let guests = [server, server, server, server, hog, hog];
    let mut simulation =
        Simulation::new(machine, &guests, SimulationConfig::default()).expect("can be run");
    let mut samples = 0_u64;
    simulation.run(Nanos::from_secs(20), &mut |_| samples += 1);
    let allocated = allocation_counter::measure(|| {
        simulation.run(Nanos::from_secs(25), &mut |_| samples += 1);
    });
    assert_eq!(allocated.count_total, 0, "after {samples} samples");
}
