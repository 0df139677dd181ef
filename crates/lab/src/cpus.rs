//! Assignment of CPUs.
//!
//! One CPU plays the core that guests share. Daemons, other guests and the monitor run on the other
//! CPUs. A computer with a single CPU has no separation.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// The CPUs that this process may use, and their purposes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cpus {
    /// All of them.
    pub(crate) all: CpuSet,
    /// Number of these CPUs.
    pub(crate) count: u32,
    /// The core that guests share.
    pub(crate) shared_core: u32,
    /// CPUs for all other processes and threads.
    pub(crate) others: CpuSet,
}

impl Cpus {
    /// Detects the CPUs that this thread may use.
    pub(crate) fn detect() -> io::Result<Self> {
        let all = sched_getaffinity(None)?;
        let shared_core = (0..CpuSet::MAX_CPU)
            .find(|cpu| all.is_set(*cpu))
            .unwrap_or(0);
        let mut others = all;
        if all.count() > 1 {
            others.unset(shared_core);
        }
        Ok(Self {
            all,
            count: all.count(),
            shared_core: shared_core as u32,
            others,
        })
    }

    /// Returns the shared core alone.
    pub(crate) fn shared(&self) -> CpuSet {
        let mut cpus = CpuSet::new();
        cpus.set(self.shared_core as usize);
        cpus
    }

    /// Keeps the calling thread, and the processes that it starts, off the shared core.
    pub(crate) fn leave_shared_core(&self) -> io::Result<()> {
        Ok(sched_setaffinity(None, &self.others)?)
    }
}

/// Returns the size of the shared core's L2 cache in bytes; 1 MiB if the kernel does not report it.
pub(crate) fn l2_size(cpu: u32) -> u64 {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/cache/index2/size");
    let size = std::fs::read_to_string(path).ok().and_then(|text| {
        let kib: u64 = text.trim().strip_suffix('K')?.parse().ok()?;
        Some(kib << 10)
    });
    size.unwrap_or(1 << 20)
}
