//! The current measurements of guests' threads.

use super::class::Periodic;
use super::division::{Cause, Culprits, Division};
use super::guest::{Guest, GuestThread, Role};
use super::offer::Pool;
use super::tail::New;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tailbound_metrics::FineHistogram;
use tailbound_sys::cgroup::QuotaThrottling;
use tailbound_sys::thread::Schedstat;
use tailbound_units::Nanos;

/// The source of waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Source {
    /// The kernel measures each wait.
    Measured,
    /// The sums in `schedstat` are read: each wait between two readings is entered with their mean.
    #[default]
    Approximate,
}

/// The waits of a guest's threads that have the same role.
#[derive(Debug, Clone, Default)]
pub struct Meter {
    /// Waits for a CPU from the wake-up on, if each wait is measured.
    pub woken: FineHistogram,
    /// Waits after another thread got their CPU, if each wait is measured.
    pub preempted: FineHistogram,
    /// All their waits, if those are approximate.
    pub approximate: FineHistogram,
    /// Number of runs after a wait of unknown length.
    pub unknown: u64,
    /// Run time.
    pub cpu: Nanos,
    /// Their class, as wanted.
    pub class: &'static str,
    /// True if all threads have the class.
    pub in_force: bool,
}

impl Meter {
    /// Returns all measured waits, for every cause.
    pub fn measured(&self) -> FineHistogram {
        let mut all = self.woken.clone();
        all.merge(&self.preempted);
        all
    }

    /// Returns all waits, including approximate ones.
    pub fn waits(&self) -> FineHistogram {
        let mut all = self.measured();
        all.merge(&self.approximate);
        all
    }

    /// Adds another meter; the class is in force if it is for both.
    pub fn merge(&mut self, other: &Self) {
        self.woken.merge(&other.woken);
        self.preempted.merge(&other.preempted);
        self.approximate.merge(&other.approximate);
        self.unknown += other.unknown;
        self.cpu = self.cpu.saturating_add(other.cpu);
        self.class = other.class;
        self.in_force &= other.in_force;
    }
}

/// The late waits of a guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Late {
    /// Number of late waits.
    pub waits: u64,
    /// Number of further late waits without details: they were not read in time.
    pub lost: u64,
    /// Their causes.
    pub causes: BTreeMap<Cause, Nanos>,
    /// The threads that ran instead.
    pub others: Culprits,
}

impl Late {
    fn add(&mut self, division: &Division) {
        self.waits += 1;
        for (cause, time) in &division.causes {
            let sum = self.causes.entry(*cause).or_default();
            *sum = sum.saturating_add(*time);
        }
        self.others.add(&division.others);
    }
}

/// Threads of a guest that are measured together, unless each is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Its vCPUs.
    Vcpu,
    /// Helpers of the vCPUs.
    Helper,
    /// The threads of a guest that is no virtual machine.
    Task,
    /// The packet loop of the host.
    PacketLoop,
}

impl Group {
    /// Its stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vcpu => "vcpu",
            Self::Helper => "helper",
            Self::Task => "task",
            Self::PacketLoop => "packet-loop",
        }
    }
}

/// The subject of a meter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MeterKey {
    /// The guest's name.
    pub guest: String,
    /// The role of its threads.
    pub group: Group,
    /// The role of its threads, such as `vcpu 0` or `emulator`; for a guest that is no
    /// virtual machine their name.
    pub thread: String,
}

impl MeterKey {
    /// Returns the meter of a thread: each vCPU has one, the others share one for their role.
    pub fn of(guest: &Guest, thread: &GuestThread) -> Self {
        let (group, name) = match thread.role {
            Role::Vcpu(_) => (Group::Vcpu, thread.role.to_string()),
            Role::Task => (Group::Task, thread.name.clone()),
            Role::PacketLoop => (Group::PacketLoop, thread.role.to_string()),
            Role::Claim(_) => (Group::Helper, Role::Emulator.to_string()),
            Role::Io | Role::Vhost | Role::Emulator => (Group::Helper, thread.role.to_string()),
        };
        Self {
            guest: guest.name.clone(),
            group,
            thread: name,
        }
    }

    /// The one that all threads of its group have in common.
    #[must_use]
    pub fn of_group(&self) -> Self {
        Self {
            guest: self.guest.clone(),
            group: self.group,
            thread: self.group.name().to_owned(),
        }
    }
}

/// The agent's measurements.
#[derive(Debug, Clone, Default)]
pub struct AgentSnapshot {
    /// The source of waits.
    pub source: Source,
    /// True if metrics show each thread separately, and its waits in the finest buckets.
    pub detail: bool,
    /// The meters of the guests that are measured.
    pub meters: BTreeMap<MeterKey, Meter>,
    /// Late waits by guest, if waits are measured.
    pub late: BTreeMap<String, Late>,
    /// Throttling by CPU quotas, by guest with a rule and by quota.
    pub throttled: BTreeMap<(String, PathBuf), QuotaThrottling>,
    /// Number of drifts of its threads or its group, by guest.
    pub drift: BTreeMap<String, u64>,
    /// Number of standstills by guest: a thread was runnable, and got no CPU in its reservation for
    /// many periods.
    pub standstills: BTreeMap<String, u64>,
    /// Number of failures to apply its class, by guest; errors of the agent as a whole have the
    /// empty name.
    pub errors: BTreeMap<String, u64>,
    /// Reservations in force of each vCPU, by guest; only of guests that have a rule or a manager
    /// vouches for.
    pub reservations: BTreeMap<String, Vec<Option<Periodic>>>,
    /// CPU time that the placement service may reserve on this host.
    pub offer: Option<Pool>,
}

impl AgentSnapshot {
    /// Enters waits that the kernel measured.
    pub(crate) fn enter(&mut self, key: &MeterKey, new: &New) {
        let meter = self.meters.entry(key.clone()).or_default();
        new.woken.enter(&mut meter.woken);
        new.preempted.enter(&mut meter.preempted);
        meter.unknown += new.unknown;
        if new.lost > 0 {
            self.late.entry(key.guest.clone()).or_default().lost += new.lost;
        }
    }

    /// Enters a late wait.
    pub(crate) fn enter_late(&mut self, key: &MeterKey, division: &Division) {
        let late = self.late.entry(key.guest.clone()).or_default();
        late.add(division);
    }

    /// Enters how long a thread ran between two readings.
    pub(crate) fn enter_run(&mut self, key: &MeterKey, ran: Nanos) {
        let meter = self.meters.entry(key.clone()).or_default();
        meter.cpu = meter.cpu.saturating_add(ran);
    }

    /// Enters the waits between two readings, each with their mean.
    pub(crate) fn enter_mean(&mut self, key: &MeterKey, between: &Schedstat) {
        if let Some(mean) = between.wait.0.checked_div(between.count) {
            let meter = self.meters.entry(key.clone()).or_default();
            meter.approximate.record_many(Nanos(mean), between.count);
        }
    }
}

/// Shared with the server of metrics.
pub type Shared = Arc<Mutex<AgentSnapshot>>;
