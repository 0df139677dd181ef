//! How fast the models run: simulated time against real time, on one core.
//!
//! `cargo run --release -p tailbound-hypervisor --example speed [SECONDS]`
//! runs six guests for SECONDS simulated seconds (1000) under each scheduler.
//! Fails if 1000 simulated seconds take more than two.

use std::process::ExitCode;
use std::time::Instant;
use tailbound_hypervisor::{
    Arrivals, Costs, Credit, CreditConfig, Domain, Host, HostError, Load, Machine, Scheduler,
    Simulation, SimulationConfig, Task, VcpuId, Via, Workload, XenVersion,
};
use tailbound_units::Nanos;

/// Real seconds for a thousand simulated ones.
const LIMIT: f64 = 2.0;

/// A driver domain, a server behind it, a stream, a guest that probes its
/// delays, and two that hog the CPU.
fn guests() -> [Workload; 6] {
    let jitter = Nanos::from_micros(100);
    let server = Task::Server {
        arrivals: Arrivals::Every {
            interval: Nanos::from_millis(2),
            jitter,
        },
        service: Nanos::from_micros(50),
        via: Some(Via {
            vcpu: VcpuId(0),
            inbound: Nanos::from_micros(10),
            outbound: Nanos::from_micros(10),
        }),
    };
    let stream = Workload {
        task: Task::Sender {
            period: Nanos::from_millis(20),
            send: Nanos::from_micros(200),
            via: None,
        },
        load: Load::Bursts {
            work: Nanos::from_millis(10),
            sleep: Nanos::from_millis(10),
            jitter,
        },
    };
    let probe = Task::SleepLoop {
        sleep: Nanos::from_millis(1),
        jitter,
        work: Nanos::from_micros(5),
    };
    let hog = Load::DutyCycle {
        busy: Nanos::from_millis(85),
        period: Nanos::from_millis(100),
        jitter,
    };
    [
        Workload::task(Task::Driver),
        Workload::task(server),
        stream,
        Workload::task(probe),
        Workload::load(hog),
        Workload::hog(),
    ]
}

fn host(pcpus: u32) -> Result<Host, HostError> {
    let mut host = Host::new(pcpus)?;
    for _ in guests() {
        let domain = host.add_domain(Domain::default())?;
        host.add_vcpu(domain)?;
    }
    Ok(host)
}

/// Runs and prints one line; whether it was within the limit.
fn measure<S: Scheduler>(name: &str, host: &Host, scheduler: S, seconds: u64) -> bool {
    let machine = Machine::new(host, scheduler, Costs::default());
    let config = SimulationConfig::default();
    let Ok(mut simulation) = Simulation::new(machine, &guests(), config) else {
        return false;
    };
    let mut samples = 0_u64;
    let start = Instant::now();
    simulation.run(Nanos::from_secs(seconds), &mut |_| samples += 1);
    let took = start.elapsed().as_secs_f64();
    let events = simulation.events();
    println!(
        "{name:28} {took:7.3} s for {seconds} simulated s, {:6.1} M events/s ({events} events, {samples} samples)",
        events as f64 / took / 1e6,
    );
    took * 1000.0 <= LIMIT * seconds as f64
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let seconds = match std::env::args().nth(1) {
        Some(seconds) => seconds.parse()?,
        None => 1_000,
    };
    let mut within = true;
    for pcpus in [1, 2] {
        let host = host(pcpus)?;
        for version in [XenVersion::V3_3, XenVersion::V4_1, XenVersion::V4_17] {
            let credit = Credit::new(CreditConfig::xen(version), &host);
            let name = format!("credit {version:?}, {pcpus} pCPU");
            within &= measure(&name, &host, credit, seconds);
        }
    }
    if !within {
        println!("FAIL: more than {LIMIT} s for 1000 simulated s");
        return Ok(ExitCode::FAILURE);
    }
    println!("PASS: at most {LIMIT} s for 1000 simulated s");
    Ok(ExitCode::SUCCESS)
}
