//! One scheduler running one point.

use super::experiment::{AnyScheduler, Experiment, Guest, Point, SchedulerSpec};
use super::recorder::Recorder;
use std::collections::BTreeMap;
use tailbound_hypervisor::{
    Domain, Host, Machine, PcpuId, PcpuSet, Simulation, SimulationConfig, VcpuId, VcpuStats,
    Workload,
};
use tailbound_report::{Value, Variant};
use tailbound_units::Nanos;

/// The value for how often a second a vCPU was taken off although it would have
/// gone on.
pub(crate) const PREEMPTIONS: &str = "preemptions";

/// The value for how far apart the guests are whose mean is `cpu`.
pub(crate) fn range_of(cpu: &str) -> String {
    format!("{cpu}_range")
}

/// Why a run cannot be made.
pub(crate) struct Mistake {
    pub(crate) of: Of,
    pub(crate) message: String,
}

/// What is wrong.
pub(crate) enum Of {
    Scheduler,
    Point,
}

impl Mistake {
    fn of_point(error: &impl ToString) -> Self {
        Self {
            of: Of::Point,
            message: error.to_string(),
        }
    }
}

/// Makes the host with its guests, at time 0.
pub(crate) fn prepare(
    experiment: &Experiment,
    scheduler: &SchedulerSpec,
    point: &Point,
    seed: u64,
) -> Result<Simulation<AnyScheduler>, Mistake> {
    let guests = point.kinds(experiment);
    let host = host(experiment, &guests).map_err(|error| Mistake::of_point(&error))?;
    let scheduler = scheduler.build(&host, &guests).map_err(|message| Mistake {
        of: Of::Scheduler,
        message,
    })?;
    let workload = |guest: &&Guest| Workload {
        task: guest.task,
        load: guest.load,
    };
    let workloads: Vec<_> = guests.iter().map(workload).collect();
    let config = SimulationConfig {
        seed,
        timer_slop: experiment.timer_slop,
    };
    let mut machine = Machine::new(&host, scheduler, experiment.costs);
    for (vcpu, guest) in (0..).map(VcpuId).zip(&guests) {
        if let Some(refill) = guest.cache_refill {
            machine.set_cache_refill(vcpu, refill);
        }
    }
    Simulation::new(machine, &workloads, config).map_err(|error| Mistake::of_point(&error))
}

fn host(
    experiment: &Experiment,
    guests: &[&Guest],
) -> Result<Host, tailbound_hypervisor::HostError> {
    let mut host = Host::new(experiment.pcpus)?;
    for guest in guests {
        let domain = host.add_domain(Domain {
            weight: guest.weight,
            cap: guest.cap,
        })?;
        if guest.pin.is_empty() {
            host.add_vcpu(domain)?;
            continue;
        }
        let mut affinity = PcpuSet::new();
        for &pcpu in &guest.pin {
            affinity.insert(PcpuId(pcpu));
        }
        host.add_pinned_vcpu(domain, affinity)?;
    }
    Ok(host)
}

/// Runs it and says what was measured.
pub(crate) fn measure(
    experiment: &Experiment,
    scheduler: &SchedulerSpec,
    point: &Point,
    seed: u64,
) -> Result<Variant, String> {
    let mut simulation =
        prepare(experiment, scheduler, point, seed).map_err(|mistake| mistake.message)?;
    let guests = point.kinds(experiment);
    let mut recorder = Recorder::new(experiment, &guests);
    simulation.run(experiment.warmup, &mut |sample| recorder.take(sample));
    recorder.clear();
    let before = all_stats(&simulation, guests.len());
    let duration = point.duration.unwrap_or(experiment.duration);
    let end = experiment.warmup.saturating_add(duration);
    simulation.run(end, &mut |sample| recorder.take(sample));
    let after = all_stats(&simulation, guests.len());

    let mut values: BTreeMap<String, Value> = recorder.counts().collect();
    let used: Vec<Used> = before
        .iter()
        .zip(&after)
        .map(|(before, after)| Used::between(before, after))
        .collect();
    cpu_values(&mut values, &guests, &used, duration);
    let preemptions: u64 = used.iter().map(|used| used.preemptions).sum();
    let preemptions = preemptions as f64 / duration.as_secs_f64();
    values.insert(PREEMPTIONS.to_owned(), value("/s", preemptions));
    Ok(Variant {
        name: experiment.variant_name(scheduler, point),
        series: recorder.series(),
        values,
        ..Variant::default()
    })
}

fn all_stats(simulation: &Simulation<AnyScheduler>, vcpus: usize) -> Vec<VcpuStats> {
    let machine = simulation.machine();
    let ids = (0..vcpus as u32).map(VcpuId);
    ids.map(|vcpu| machine.stats(vcpu)).collect()
}

/// What a vCPU had while it was measured.
struct Used {
    run: Nanos,
    overhead: Nanos,
    preemptions: u64,
}

impl Used {
    fn between(before: &VcpuStats, after: &VcpuStats) -> Self {
        Self {
            run: after.run - before.run,
            overhead: after.overhead.since(before.overhead),
            preemptions: after.preemptions - before.preemptions,
        }
    }
}

fn cpu_values(
    values: &mut BTreeMap<String, Value>,
    guests: &[&Guest],
    used: &[Used],
    duration: Nanos,
) {
    let percent = |time: Nanos| 100.0 * time.as_nanos() as f64 / duration.as_nanos() as f64;
    let mut cpu: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut work: BTreeMap<&str, f64> = BTreeMap::new();
    for (guest, used) in guests.iter().zip(used) {
        if let Some(name) = &guest.cpu {
            cpu.entry(name.get_ref())
                .or_default()
                .push(percent(used.run));
        }
        if let Some(name) = &guest.work {
            *work.entry(name.get_ref()).or_default() += percent(used.run.since(used.overhead));
        }
    }
    for (name, shares) in cpu {
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        values.insert(name.to_owned(), value("%", mean));
        if shares.len() > 1 {
            let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
            let greatest = shares.iter().copied().fold(0.0, f64::max);
            let range = 100.0 * (greatest - least) / mean;
            values.insert(range_of(name), value("%", range));
        }
    }
    for (name, done) in work {
        values.insert(name.to_owned(), value("%", done));
    }
}

fn value(unit: &str, value: f64) -> Value {
    Value {
        unit: unit.to_owned(),
        value,
        spread: None,
    }
}
