//! Watches what the machine takes away while an experiment runs: the readings
//! that [`crate::noise`] judges by.

use crate::guest::now;
use crate::noise::Lost;
use crate::watcher::Watcher;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;
use tailbound_sys::procfs::{self, Reread};
use tailbound_sys::sched::Policy;
use tailbound_units::Nanos;

/// How often threads are looked at.
pub(crate) const THREADS_EVERY: Nanos = Nanos::from_millis(2);
/// How often CPUs are: what is shown of them changes no faster.
pub(crate) const CPUS_EVERY: Nanos = procfs::TICK;

/// What a monitor saw.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Time taken from each CPU by the hypervisor below.
    pub(crate) stolen: BTreeMap<u32, Lost>,
    /// Time that each thread of each process waited in a run queue.
    pub(crate) waited: BTreeMap<u32, Vec<Lost>>,
}

/// Watches all CPUs, and the threads that these processes have now.
/// With `priority` it is not kept waiting itself.
pub(crate) fn start(processes: &[u32], priority: Option<Policy>) -> io::Result<Watcher<Record>> {
    let mut threads = Vec::new();
    for pid in processes {
        for thread in procfs::threads(*pid)? {
            let path = format!("/proc/{pid}/task/{thread}/schedstat");
            threads.push((*pid, Reread::open(path)?, Lost::default()));
        }
    }
    let mut stat = Reread::open("/proc/stat")?;
    Watcher::start("monitor", priority, move |stopped| {
        let mut record = Record::default();
        let (mut next, mut next_cpus) = (now(), now());
        while !stopped.load(Ordering::Relaxed) {
            let at = now();
            if at >= next_cpus {
                next_cpus = at.saturating_add(CPUS_EVERY);
                for steal in procfs::parse_steal(stat.text()?.unwrap_or_default()) {
                    let lost = record.stolen.entry(steal.cpu).or_default();
                    lost.read(at, steal.total, procfs::TICK);
                }
            }
            for (_, schedstat, lost) in &mut threads {
                let text = schedstat.text()?.unwrap_or_default();
                if let Some(wait) = procfs::parse_run_delay(text) {
                    lost.read_stalls(at, wait);
                }
            }
            next = next.saturating_add(THREADS_EVERY).max(at);
            crate::guest::sleep_until(next);
        }
        for (pid, _, lost) in threads {
            record.waited.entry(pid).or_default().push(lost);
        }
        Ok(record)
    })
}
