//! A machine for tests: threads and groups in memory, and failures where a test
//! puts them.

use super::class::CPU;
use super::desired::Desired;
use super::guest::{Guest, GuestThread, Origin, Role, Vmm, WeightBearer};
use super::guidance::KernelVersion;
use super::kernel::Kernel;
use super::observed::{
    Domain, Limits, Observed, ObservedGroup, ObservedMachine, ObservedThread, ThreadState,
};
use super::step::Call;
use super::{Class, Periodic};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use tailbound_sys::cgroup::WeightKind;
use tailbound_sys::cpuset::Cpus;
use tailbound_sys::thread::{Scheduling, ThreadId};
use tailbound_units::Nanos;

pub(super) fn cpus(list: &str) -> Cpus {
    list.parse().unwrap()
}

pub(super) fn id(tid: u32) -> ThreadId {
    ThreadId {
        pid: 1,
        tid,
        start: 100,
    }
}

/// The thread that has a number next.
pub(super) fn next(thread: ThreadId) -> ThreadId {
    ThreadId {
        start: thread.start + 1,
        ..thread
    }
}

pub(super) fn periodic(runtime_us: u64, period_us: u64) -> Class {
    Class::Periodic(reservation(runtime_us, period_us))
}

pub(super) fn reservation(runtime_us: u64, period_us: u64) -> Periodic {
    Periodic {
        runtime: Nanos::from_micros(runtime_us),
        deadline: Nanos::from_micros(period_us),
        period: Nanos::from_micros(period_us),
    }
}

pub(super) fn desired(tid: u32, class: Class) -> Desired {
    Desired {
        name: format!("vm vcpu {tid}"),
        ..Desired::new(id(tid), class)
    }
}

/// A guest of an ordinary user, with `threads` vCPUs.
pub(super) fn guest(name: &str, pid: u32, start: u64, threads: u32) -> Guest {
    let thread = |tid| GuestThread {
        id: ThreadId {
            pid,
            tid: pid + tid,
            start: start + u64::from(tid),
        },
        name: format!("CPU {tid}/KVM"),
        role: Role::Vcpu(tid),
    };
    Guest {
        name: name.to_owned(),
        vmm: Vmm::Qemu,
        pid,
        origin: Origin {
            uid: Some(1000),
            own: false,
            nested: false,
            place: None,
        },
        weighed: WeightBearer::Threads,
        threads: (0..threads).map(thread).collect(),
        qmp: None,
        uuid: None,
        vmid: None,
        rules: Vec::new(),
        other_executable: Vec::new(),
        rule: Some(0),
        notes: Vec::new(),
    }
}

/// Four CPUs in one root domain, with the usual limits.
pub(super) fn machine() -> ObservedMachine {
    ObservedMachine {
        domains: vec![Domain {
            cpus: cpus("0-3"),
            booked: BTreeMap::new(),
            reclaiming: BTreeSet::new(),
        }],
        limits: Limits {
            share: Some(CPU * 95 / 100),
            fair_server: CPU / 20,
            periods: Nanos::from_micros(100)..=Nanos::from_micros(1 << 22),
            overrun: Nanos::from_millis(4),
            tick: Nanos::from_millis(4),
        },
        slices: true,
        slice_timers: true,
        kernel: KernelVersion::new(6, 18),
        privileged: true,
    }
}

#[derive(Debug, Clone)]
pub(super) struct Fake {
    pub(super) threads: BTreeMap<ThreadId, ThreadState>,
    pub(super) groups: BTreeMap<PathBuf, u64>,
    /// The call that fails, counted from zero, and how.
    pub(super) fails: Option<(usize, i32)>,
    /// The thread that ends at that call.
    pub(super) ends: Option<(usize, ThreadId)>,
    /// True if another thread gets its number immediately.
    pub(super) reuses: bool,
    pub(super) calls: usize,
}

impl Fake {
    pub(super) fn new(tids: impl IntoIterator<Item = u32>) -> Self {
        let plain = ThreadState {
            scheduling: Scheduling::PLAIN,
            cpus: cpus("0-3"),
        };
        Self {
            threads: tids.into_iter().map(|tid| (id(tid), plain)).collect(),
            groups: BTreeMap::new(),
            fails: None,
            ends: None,
            reuses: false,
            calls: 0,
        }
    }

    pub(super) fn observe(&self, machine: ObservedMachine) -> Observed {
        let seen = |(thread, state): (&ThreadId, &ThreadState)| {
            let seen = ObservedThread {
                state: *state,
                processor: 0,
                no_real_time: None,
                allowed: cpus("0-3"),
                ours: true,
                autogrouped: false,
                quota: None,
            };
            (*thread, seen)
        };
        let group = |(directory, weight): (&PathBuf, &u64)| {
            let seen = ObservedGroup {
                kind: WeightKind::Weight,
                weight: *weight,
            };
            (directory.clone(), seen)
        };
        Observed {
            threads: self.threads.iter().map(seen).collect(),
            groups: self.groups.iter().map(group).collect(),
            machine,
        }
    }

    fn count(&mut self) -> io::Result<()> {
        let call = self.calls;
        self.calls += 1;
        if let Some((at, thread)) = self.ends
            && at == call
        {
            self.threads.remove(&thread);
            if self.reuses {
                let plain = ThreadState {
                    scheduling: Scheduling::PLAIN,
                    cpus: cpus("0-3"),
                };
                self.threads.insert(next(thread), plain);
            }
        }
        match self.fails {
            Some((at, errno)) if at == call => Err(io::Error::from_raw_os_error(errno)),
            _ => Ok(()),
        }
    }
}

impl Kernel for Fake {
    fn state(&mut self, thread: ThreadId) -> io::Result<Option<ThreadState>> {
        Ok(self.threads.get(&thread).copied())
    }

    fn successor(&mut self, thread: ThreadId) -> io::Result<Option<Scheduling>> {
        let mut threads = self.threads.iter();
        let found = threads.find(|(id, _)| id.tid == thread.tid && **id != thread);
        Ok(found.map(|(_, state)| state.scheduling))
    }

    fn call(&mut self, thread: ThreadId, call: &Call) -> io::Result<()> {
        self.count()?;
        // As the kernel does, by the number alone.
        let mut threads = self.threads.iter_mut();
        let Some((_, state)) = threads.find(|(id, _)| id.tid == thread.tid) else {
            return Err(rustix::io::Errno::SRCH.into());
        };
        match call {
            Call::Release(_) => {
                assert!(state.scheduling.is_deadline(), "nothing to release");
            }
            Call::Affinity(cpus) => {
                assert!(!state.scheduling.is_deadline(), "EBUSY");
                state.cpus = *cpus;
            }
            Call::Schedule(to) => {
                assert!(!to.is_deadline() || state.cpus == cpus("0-3"), "EPERM");
                state.scheduling = *to;
            }
        }
        Ok(())
    }

    fn weight(&mut self, directory: &Path, _: WeightKind) -> Option<u64> {
        self.groups.get(directory).copied()
    }

    fn set_weight(&mut self, directory: &Path, _: WeightKind, weight: u64) -> io::Result<()> {
        self.count()?;
        self.groups.insert(directory.to_owned(), weight);
        Ok(())
    }
}
