//! Watches the CPU time that this computer loses while an experiment runs: the readings of
//! [`crate::noise`].

use crate::guest::now;
use crate::noise::LossTotal;
use crate::watcher::Watcher;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;
use tailbound_agent::OfferConfig;
use tailbound_agent::losses::{LargestLosses, Meter};
use tailbound_agent::observer::Observer;
use tailbound_sys::cpuset::Cpus;
use tailbound_sys::procfs::{self, Reread};
use tailbound_sys::sched::Policy;
use tailbound_units::Nanos;

/// Interval of the readings of threads.
pub(crate) const THREADS_EVERY: Nanos = Nanos::from_millis(2);
/// Interval of the readings of CPUs: the kernel's values change no faster.
pub(crate) const CPUS_EVERY: Nanos = procfs::TICK;

/// Readings of a monitor.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Time that the hypervisor has taken from each CPU.
    pub(crate) stolen: BTreeMap<u32, LossTotal>,
    /// CPU time taken by interrupts, as measured by the vCPU agent.
    pub(crate) taken: LargestLosses,
    /// Time that each thread of each process waited in a run queue.
    pub(crate) waited: BTreeMap<u32, Vec<LossTotal>>,
    /// Total wait of threads that run vCPUs, by guest.
    pub(crate) vcpus: BTreeMap<String, Vec<LossTotal>>,
}

/// A thread that runs a vCPU.
#[derive(Debug, Clone)]
pub(crate) struct VcpuOf {
    pub(crate) guest: String,
    pub(crate) process: u32,
    pub(crate) thread: u32,
}

/// Watches all CPUs, the present threads of these processes, and those of `vcpus`. With `priority`
/// the monitor itself does not wait.
pub(crate) fn start(
    processes: &[u32],
    vcpus: &[VcpuOf],
    priority: Option<Policy>,
) -> io::Result<Watcher<Record>> {
    let open = |process, thread| {
        Reread::open(format!("/proc/{process}/task/{thread}/schedstat"))
            .map(|file| (file, LossTotal::default()))
    };
    let mut vcpus = vcpus
        .iter()
        .map(|vcpu| Ok((vcpu.guest.clone(), open(vcpu.process, vcpu.thread)?)))
        .collect::<io::Result<Vec<_>>>()?;
    let mut threads = Vec::new();
    for pid in processes {
        for thread in procfs::threads(*pid)? {
            threads.push((*pid, open(*pid, thread)?));
        }
    }
    let mut stat = Reread::open("/proc/stat")?;
    let counted = Observer::new()?.interrupt_time();
    Watcher::start("monitor", priority, move |stopped| {
        let mut record = Record::default();
        let mut meter = Meter::new(counted, OfferConfig::default().share);
        let all: Cpus = (0..Cpus::MAX).collect();
        let (mut next, mut next_cpus) = (now(), now());
        while !stopped.load(Ordering::Relaxed) {
            let at = now();
            if at >= next_cpus {
                next_cpus = at.saturating_add(CPUS_EVERY);
                let text = stat.text()?.unwrap_or_default();
                record.taken = meter.read(at, text, &all);
                for steal in procfs::parse_steal(text) {
                    let lost = record.stolen.entry(steal.cpu).or_default();
                    lost.read(at, steal.total, procfs::TICK);
                }
            }
            for (_, (schedstat, lost)) in &mut vcpus {
                let text = schedstat.text()?.unwrap_or_default();
                if let Some(wait) = procfs::parse_run_delay(text) {
                    lost.read(at, wait, Nanos(1));
                }
            }
            for (_, (schedstat, lost)) in &mut threads {
                let text = schedstat.text()?.unwrap_or_default();
                if let Some(wait) = procfs::parse_run_delay(text) {
                    lost.read_stalls(at, wait);
                }
            }
            next = next.saturating_add(THREADS_EVERY).max(at);
            crate::guest::sleep_until(next);
        }
        for (pid, (_, lost)) in threads {
            record.waited.entry(pid).or_default().push(lost);
        }
        for (guest, (_, lost)) in vcpus {
            record.vcpus.entry(guest).or_default().push(lost);
        }
        Ok(record)
    })
}
