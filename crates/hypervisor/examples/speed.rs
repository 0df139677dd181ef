//! Speed of the models: simulated time against real time, on one core.
//!
//! `cargo run --release -p tailbound-hypervisor --example speed [SECONDS]`
//! runs six guests for SECONDS simulated seconds (1000) under each scheduler.
//! Fails if 1000 simulated seconds of theirs take more than two.

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;
use tailbound_hypervisor::{
    Arrivals, Costs, Credit, Credit2, Credit2Config, CreditConfig, Domain, DomainClass, EdfConfig,
    EdfCredit, Host, HostError, Load, Machine, Reservation, Rtds, Scheduler, Simulation,
    SimulationConfig, Task, VcpuId, Via, Workload, WorkloadError, XenVersion,
};
use tailbound_units::Nanos;

/// Real seconds for a thousand simulated ones.
const LIMIT: f64 = 2.0;

/// A driver domain, a server behind it, a stream, a guest that probes its
/// delays, and two that hog the CPU. `driver` is the first one's vCPU.
fn guests(driver: u32) -> [Workload; 6] {
    let jitter = Nanos::from_micros(100);
    let server = Task::Server {
        arrivals: Arrivals::Every {
            interval: Nanos::from_millis(2),
            jitter,
        },
        service: Nanos::from_micros(50),
        via: Some(Via {
            vcpu: VcpuId(driver),
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

/// Returns a host with `times` copies of the six guests.
fn host(pcpus: u32, times: u32) -> Result<(Host, Vec<Workload>), HostError> {
    let mut host = Host::new(pcpus)?;
    let mut workloads = Vec::new();
    for time in 0..times {
        for workload in guests(6 * time) {
            let domain = host.add_domain(Domain::default())?;
            host.add_vcpu(domain)?;
            workloads.push(workload);
        }
    }
    Ok((host, workloads))
}

/// Runs, prints one line, and returns the seconds it took.
fn measure<S: Scheduler>(
    name: &str,
    (host, workloads): &(Host, Vec<Workload>),
    scheduler: S,
    seconds: u64,
) -> Result<f64, WorkloadError> {
    let machine = Machine::new(host, scheduler, Costs::default());
    let mut simulation = Simulation::new(machine, workloads, SimulationConfig::default())?;
    let mut samples = 0_u64;
    let start = Instant::now();
    simulation.run(Nanos::from_secs(seconds), &mut |_| samples += 1);
    let took = start.elapsed().as_secs_f64();
    let events = simulation.events();
    let rate = events as f64 / took / 1e6;
    println!(
        "{name:24} {:2} pCPUs {:3} vCPUs: {took:6.3} s for {seconds} simulated s, {rate:5.1} M events/s ({events} events, {samples} samples)",
        host.pcpus(),
        host.vcpus().len(),
    );
    Ok(took)
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let seconds = match std::env::args().nth(1) {
        Some(seconds) => seconds.parse()?,
        None => 1_000,
    };
    let xen = CreditConfig::xen;
    let mut worst = 0.0_f64;
    for pcpus in [1, 2] {
        let six = host(pcpus, 1)?;
        for version in [XenVersion::V3_3, XenVersion::V4_1, XenVersion::V4_17] {
            let credit = Credit::new(xen(version), &six.0);
            let name = format!("credit {version:?}");
            worst = worst.max(measure(&name, &six, credit, seconds)?);
        }
    }
    let one = host(1, 1)?;
    let mut classes = [DomainClass::Normal; 6];
    classes[1] = DomainClass::Aperiodic {
        deadline: Nanos::from_millis(3),
    };
    classes[2] = DomainClass::Periodic {
        deadline: Nanos::from_millis(5),
        period: None,
    };
    let edf = EdfCredit::new(EdfConfig::default(), &one.0, &classes)?;
    worst = worst.max(measure("EDF + credit", &one, edf, seconds)?);
    let credit2 = Credit2::new(Credit2Config::default(), &one.0);
    worst = worst.max(measure("credit2", &one, credit2, seconds)?);
    let rtds = Rtds::new(&one.0, &[Reservation::default(); 6])?;
    worst = worst.max(measure("RTDS", &one, rtds, seconds)?);
    // Beyond the promise: hundreds of vCPUs.
    let many = host(32, 40)?;
    let credit = Credit::new(xen(XenVersion::V4_17), &many.0);
    measure("credit V4_17", &many, credit, seconds.div_ceil(40))?;
    let worst = worst * 1000.0 / seconds as f64;
    if worst > LIMIT {
        println!("FAIL: six guests take {worst:.2} s for 1000 simulated s, limit {LIMIT} s");
        return Ok(ExitCode::FAILURE);
    }
    println!("PASS: six guests take {worst:.2} s for 1000 simulated s, limit {LIMIT} s");
    Ok(ExitCode::SUCCESS)
}
