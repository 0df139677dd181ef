//! Which CPU runs what.
//!
//! One CPU plays the core that guests share. Everything else runs on the others:
//! daemons, the other guests, the monitor. With a single CPU there is no choice.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// The CPUs this process may use, and what for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cpus {
    /// All of them.
    pub(crate) all: CpuSet,
    /// How many those are.
    pub(crate) count: u32,
    /// The core that guests share.
    pub(crate) shared_core: u32,
    /// What runs the rest.
    pub(crate) others: CpuSet,
}

impl Cpus {
    /// Looks at what this thread may use.
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

    /// The shared core alone.
    pub(crate) fn shared(&self) -> CpuSet {
        let mut cpus = CpuSet::new();
        cpus.set(self.shared_core as usize);
        cpus
    }

    /// Keeps the calling thread, and what it starts, off the shared core.
    pub(crate) fn leave_shared_core(&self) -> io::Result<()> {
        Ok(sched_setaffinity(None, &self.others)?)
    }
}

/// The size of the shared core's L2 cache in bytes; 1 MiB where the kernel does
/// not say.
pub(crate) fn l2_size(cpu: u32) -> u64 {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/cache/index2/size");
    let size = std::fs::read_to_string(path).ok().and_then(|text| {
        let kib: u64 = text.trim().strip_suffix('K')?.parse().ok()?;
        Some(kib << 10)
    });
    size.unwrap_or(1 << 20)
}
