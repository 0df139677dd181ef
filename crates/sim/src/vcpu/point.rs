//! A run of one scheduler at one point.

use super::recorder::Recorder;
use super::sweep::{Guest, Point, Sweep};
use crate::scheduler::{AnyScheduler, SchedulerSpec};
use std::collections::BTreeMap;
use tailbound_hypervisor::{
    Domain, Host, Machine, PcpuId, PcpuSet, Simulation, SimulationConfig, VcpuId, VcpuStats,
    Workload,
};
use tailbound_report::{Value, Variant};
use tailbound_units::Nanos;

/// Reason for which a run is impossible.
pub(crate) struct Refusal {
    pub(crate) of: Of,
    pub(crate) message: String,
}

/// Invalid part of the sweep.
pub(crate) enum Of {
    Scheduler,
    Point,
}

impl Refusal {
    fn of_point(error: &impl ToString) -> Self {
        Self {
            of: Of::Point,
            message: error.to_string(),
        }
    }
}

/// Builds the host with its guests, at time 0.
pub(crate) fn prepare(
    sweep: &Sweep,
    scheduler: &SchedulerSpec,
    point: &Point,
    seed: u64,
) -> Result<Simulation<AnyScheduler>, Refusal> {
    let guests = point.kinds(sweep);
    let host = host(sweep, &guests).map_err(|error| Refusal::of_point(&error))?;
    let names: Vec<_> = guests
        .iter()
        .map(|guest| guest.name.get_ref().as_str())
        .collect();
    let scheduler = scheduler.build(&host, &names).map_err(|message| Refusal {
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
        timer_slop: sweep.timer_slop,
    };
    let mut machine = Machine::new(&host, scheduler, sweep.costs);
    for (vcpu, guest) in (0..).map(VcpuId).zip(&guests) {
        if let Some(refill) = guest.cache_refill {
            machine.set_cache_refill(vcpu, refill);
        }
    }
    Simulation::new(machine, &workloads, config).map_err(|error| Refusal::of_point(&error))
}

fn host(sweep: &Sweep, guests: &[&Guest]) -> Result<Host, tailbound_hypervisor::HostError> {
    let mut host = Host::new(sweep.pcpus)?;
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

/// Runs the host and returns its measurements.
pub(crate) fn measure(
    sweep: &Sweep,
    scheduler: &SchedulerSpec,
    point: &Point,
    seed: u64,
) -> Result<Variant, String> {
    let mut simulation =
        prepare(sweep, scheduler, point, seed).map_err(|refusal| refusal.message)?;
    let guests = point.kinds(sweep);
    let mut recorder = Recorder::new(sweep, &guests);
    simulation.run(sweep.warmup, &mut |sample| recorder.take(sample));
    recorder.clear();
    let before = all_stats(&simulation, guests.len());
    let duration = point.duration.unwrap_or(sweep.duration);
    let end = sweep.warmup.saturating_add(duration);
    simulation.run(end, &mut |sample| recorder.take(sample));
    let after = all_stats(&simulation, guests.len());
    let used = before.iter().zip(&after);
    let used: Vec<CpuUsage> = used
        .map(|(before, after)| CpuUsage::between(before, after))
        .collect();
    let name = sweep.variant_name(scheduler, point);
    Ok(variant(name, &recorder, &guests, &used, duration))
}

/// Returns the variant with the names of all values.
pub(crate) fn outline(sweep: &Sweep, scheduler: &SchedulerSpec, point: &Point) -> Variant {
    let guests = point.kinds(sweep);
    let recorder = Recorder::new(sweep, &guests);
    let used: Vec<CpuUsage> = guests.iter().map(|_| CpuUsage::default()).collect();
    let name = sweep.variant_name(scheduler, point);
    variant(name, &recorder, &guests, &used, sweep.duration)
}

fn variant(
    name: String,
    recorder: &Recorder,
    guests: &[&Guest],
    used: &[CpuUsage],
    duration: Nanos,
) -> Variant {
    let mut values: BTreeMap<String, Value> = recorder.counts().collect();
    cpu_values(&mut values, guests, used, duration);
    // Preemptions of runnable vCPUs per second.
    let preemptions: u64 = used.iter().map(|used| used.preemptions).sum();
    let preemptions = preemptions as f64 / duration.as_secs_f64();
    values.insert("preemptions".to_owned(), Value::new("/s", preemptions));
    Variant {
        name,
        series: recorder.series(),
        values,
        ..Variant::default()
    }
}

fn all_stats(simulation: &Simulation<AnyScheduler>, vcpus: usize) -> Vec<VcpuStats> {
    let machine = simulation.machine();
    let ids = (0..vcpus as u32).map(VcpuId);
    ids.map(|vcpu| machine.stats(vcpu)).collect()
}

/// CPU time and preemptions of a vCPU during the measurement.
#[derive(Default)]
struct CpuUsage {
    run: Nanos,
    overhead: Nanos,
    preemptions: u64,
}

impl CpuUsage {
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
    used: &[CpuUsage],
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
        values.insert(name.to_owned(), Value::new("%", mean));
        if shares.len() > 1 {
            let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
            let greatest = shares.iter().copied().fold(0.0, f64::max);
            let range = 100.0 * (greatest - least) / mean;
            values.insert(format!("{name}_range"), Value::new("%", range));
        }
    }
    for (name, done) in work {
        values.insert(name.to_owned(), Value::new("%", done));
    }
}
