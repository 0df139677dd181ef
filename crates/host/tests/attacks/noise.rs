//! CPU time that other programs and a hypervisor took from the packet loop and the prober.

use crate::support::Daemon;
use rustix::time::{ClockId, clock_gettime};
use std::path::PathBuf;
use std::time::Duration;
use tailbound_sys::procfs::{Reread, parse_cpu_time, parse_schedstat};

/// Times of a thread since its start.
#[derive(Debug, Clone, Copy, Default)]
struct Thread {
    run: Duration,
    /// For which it could have run.
    wait: Duration,
}

impl Thread {
    /// Zero for a thread that has ended.
    fn of(file: &mut Reread) -> Self {
        let text = file.text().ok().flatten().unwrap_or_default();
        parse_schedstat(text).map_or(Self::default(), |(run, wait)| Self {
            run: Duration::from_nanos(run.0),
            wait: Duration::from_nanos(wait.0),
        })
    }

    fn since(self, before: Self) -> Self {
        Self {
            run: self.run.saturating_sub(before.run),
            wait: self.wait.saturating_sub(before.wait),
        }
    }
}

/// Times of the two threads that share a CPU.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Times {
    packet_loop: Thread,
    prober: Thread,
}

impl Times {
    /// The time since `before` in which one of the two waited for the CPU and the other one had
    /// it not. A wait for the other one is not lost: it is the daemon's delay.
    pub(crate) fn lost_since(self, before: Self) -> Duration {
        let packet_loop = self.packet_loop.since(before.packet_loop);
        let prober = self.prober.since(before.prober);
        let of_loop = packet_loop.wait.saturating_sub(prober.run);
        let of_prober = prober.wait.saturating_sub(packet_loop.run);
        of_loop + of_prober
    }

    /// The CPU time of both since `before`.
    fn run_since(self, before: Self) -> Duration {
        self.loop_since(before) + self.prober.since(before.prober).run
    }

    /// The CPU time of the packet loop since `before`.
    fn loop_since(self, before: Self) -> Duration {
        self.packet_loop.since(before.packet_loop).run
    }
}

/// Reads times of a daemon's packet loop and of the thread that made this.
pub(crate) struct Account {
    /// `None` on a bridge.
    packet_loop: Option<Reread>,
    prober: Reread,
    system: Reread,
    cpu: u32,
}

/// The use of the threads' CPU, by all programs, in ticks of 10 ms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Use {
    times: Times,
    busy: Duration,
    /// By a hypervisor.
    stolen: Duration,
}

impl Use {
    /// The CPU time of other programs since `before`, and time that a hypervisor took.
    pub(crate) fn of_others_since(self, before: Self) -> (Duration, Duration) {
        let busy = self.busy.saturating_sub(before.busy);
        let own = self.times.run_since(before.times);
        let stolen = self.stolen.saturating_sub(before.stolen);
        (busy.saturating_sub(own), stolen)
    }

    /// The CPU time of the packet loop since `before`.
    pub(crate) fn of_loop_since(self, before: Self) -> Duration {
        self.times.loop_since(before.times)
    }
}

impl Account {
    /// For threads that have this CPU.
    pub(crate) fn of(daemon: Option<&Daemon>, cpu: u32) -> Self {
        let open = |task: PathBuf| Reread::open(task.join("schedstat")).expect("it runs");
        Self {
            packet_loop: daemon.map(|it| open(it.packet_loop())),
            prober: open("/proc/thread-self".into()),
            system: Reread::open("/proc/stat").expect("there is /proc"),
            cpu,
        }
    }

    pub(crate) fn times(&mut self) -> Times {
        // Of a thread that runs the file has its time until the last tick.
        let run = clock_gettime(ClockId::ThreadCPUTime);
        let run = Duration::new(run.tv_sec.unsigned_abs(), run.tv_nsec as u32);
        let packet_loop = self.packet_loop.as_mut();
        Times {
            packet_loop: packet_loop.map(Thread::of).unwrap_or_default(),
            prober: Thread {
                run,
                ..Thread::of(&mut self.prober)
            },
        }
    }

    /// The use of the CPU so far.
    pub(crate) fn used(&mut self) -> Use {
        let times = self.times();
        let text = self.system.text().ok().flatten().unwrap_or_default();
        let cpu = parse_cpu_time(text, self.cpu);
        let stolen = cpu.and_then(|cpu| cpu.steal);
        Use {
            times,
            busy: Duration::from_nanos(cpu.map_or(0, |cpu| cpu.busy.0)),
            stolen: Duration::from_nanos(stolen.map_or(0, |stolen| stolen.0)),
        }
    }
}
