//! The core of the packet loop, and the clocks by which its work is measured.

use std::io;
use tailbound_switch::{Stopwatch, Switches};
use tailbound_sys::cpuset::{Cpus, affinity, set_affinity};
use tailbound_units::Nanos;

/// The CPUs on which the packet loop may run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Core {
    /// All CPUs of the process.
    all: Cpus,
}

impl Core {
    /// Returns the CPUs of the calling thread. Call it in the packet loop's thread.
    pub(super) fn detect() -> io::Result<Self> {
        Ok(Self { all: affinity(0)? })
    }

    /// Pins the calling thread to `cpu`, or permits all CPUs. If `cpu` is unusable or the only CPU,
    /// all are permitted and the log has a warning.
    pub(super) fn take(&self, cpu: Option<u32>) {
        let wanted = match cpu {
            None => self.all,
            Some(cpu) if !self.all.contains(cpu) => {
                tracing::warn!(cpu, usable = %self.all, "the packet loop runs anywhere: it may not use that CPU");
                self.all
            }
            Some(cpu) if self.all.count() == 1 => {
                tracing::warn!(
                    cpu,
                    "the packet loop has no CPU of its own: this is the only one"
                );
                self.all
            }
            Some(cpu) => Cpus::one(cpu),
        };
        if let Err(error) = set_affinity(0, &wanted) {
            tracing::warn!(%error, cpus = %wanted, "the packet loop stays where it is");
        }
    }
}

impl Core {
    /// Runs `work` while the calling thread may use all CPUs. Threads that it starts may do so,
    /// too: a port's threads do not wait for the packet loop's CPU.
    pub(super) fn anywhere<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = affinity(0).ok().filter(|before| *before != self.all);
        if before.is_some() {
            let _ = set_affinity(0, &self.all);
        }
        let done = work();
        if let Some(before) = before
            && let Err(error) = set_affinity(0, &before)
        {
            tracing::warn!(%error, cpus = %before, "the packet loop does not come back to its CPU");
        }
        done
    }
}

/// Measures the time that ports take of the packet loop. Use it in the packet loop's thread.
#[derive(Debug)]
pub(super) struct LoopWatch;

impl Stopwatch for LoopWatch {
    fn now(&mut self) -> Nanos {
        tailbound_sys::timer::now()
    }

    fn switches(&mut self) -> Switches {
        let [waits, losses] = tailbound_sys::timer::context_switches();
        Switches { waits, losses }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_moves_to_its_core_and_back() {
        std::thread::spawn(|| {
            let core = Core::detect().unwrap();
            let first = core.all.iter().next().unwrap();
            core.take(Some(first));
            let expected = if core.all.count() == 1 {
                core.all
            } else {
                Cpus::one(first)
            };
            assert_eq!(affinity(0).unwrap(), expected);
            core.take(Some(Cpus::MAX - 1));
            assert_eq!(affinity(0).unwrap(), core.all);
        })
        .join()
        .unwrap();
    }
}
