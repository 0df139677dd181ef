//! The loop that `why` and `watch` share: from what the kernel measures of guests to evidence.
//!
//! [`Sight`] looks for guests once a second, or less often if that costs more than 1 % of a core,
//! and takes late waits for a CPU each [`SAMPLE`]. It changes nothing on the host, and the BPF
//! programs end with this process. On a busy host those that cost most are attached for a part of the
//! time ([`Expense`]): waits are then examined in that part alone if interrupts are.

mod document;
mod expense;
mod handles;
mod packets;
mod records;

pub(super) use document::{GuestDocument, VerdictDocument};

use expense::Expense;
use packets::{GuestName, Packets};
use records::{Record, Records};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tailbound_agent::inventory::{Guest, Inventory, Owned, Owner};
use tailbound_agent::tail::Tail;
use tailbound_look::evidence::{CpuWait, Evidence, Examined, Interruption, Occupant, Run};
use tailbound_look::{Verdict, judge};
use tailbound_sys::thread::{PolicyNumber, ThreadId};
use tailbound_sys::waits::{Kind, LateWait, Run as SeenRun};
use tailbound_units::Nanos;

/// The time between two readings of late waits: the kernel keeps some hundred.
const SAMPLE: Duration = Duration::from_millis(50);
/// The time between two looks for guests.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The pause between two looks, in times of the CPU time that a look takes.
const PAUSE_FACTOR: u32 = 100;
/// The shortest wait that is examined of all guests.
pub(super) const MIN_WAIT: Nanos = Nanos::from_millis(1);
/// The same if one guest alone is: a request may wait several times, and a thread gets a CPU for less
/// than 1 ms at a time where many compute.
pub(super) const MIN_WAIT_OF_ONE: Nanos = Nanos::from_micros(250);
/// Threads of one guest that are examined, if it is the only one.
const MAX_THREADS: usize = 1_024;

/// The guests of a host, and the evidence about them.
pub(super) struct Sight {
    inventory: Inventory,
    /// The measurement of waits, or why there is none.
    tail: Result<Tail, String>,
    packets: Packets,
    expense: Expense,
    /// The only guest to examine, by key; else all.
    only: Option<Arc<str>>,
    records: Records,
    /// The guests whose threads are followed.
    threads: HashMap<ThreadId, Arc<str>>,
    /// The names of guests that no other has, by key.
    names: BTreeMap<Arc<str>, Arc<str>>,
    next_look: Instant,
    notes: Vec<String>,
}

impl Sight {
    /// Opens the measurement of waits of at least `min_wait`, and looks for guests; none is examined yet.
    pub(super) fn open(min_wait: Nanos) -> std::io::Result<Self> {
        let mut inventory = Inventory::new()?;
        inventory.look(Instant::now())?;
        let mut sight = Self {
            inventory,
            tail: Tail::open_with_interrupts(min_wait).map_err(|error| error.to_string()),
            packets: Packets::open(),
            expense: Expense::new(clock()),
            only: None,
            records: Records::default(),
            threads: HashMap::new(),
            names: BTreeMap::new(),
            next_look: Instant::now(),
            notes: Vec::new(),
        };
        sight.name();
        Ok(sight)
    }

    /// The guests.
    pub(super) fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// Why neither waits nor packets can be measured; `None` if one of them can.
    pub(super) fn blind(&self) -> Option<String> {
        let waits = self.tail.as_ref().err()?;
        let packets = self.packets.examined().err()?;
        Some(format!(
            "waits for a CPU cannot be measured: {waits}; packets cannot be measured: {packets}"
        ))
    }

    /// Examines one guest alone.
    pub(super) fn choose(&mut self, key: &Arc<str>) {
        self.only = Some(Arc::clone(key));
        self.inventory.bound(MAX_THREADS);
    }

    /// The facts that are not known, and why.
    pub(super) fn notes(&self) -> impl Iterator<Item = &String> {
        let notes = self.inventory.notes().iter().chain(&self.notes);
        notes.chain(self.packets.notes()).chain(self.expense.note())
    }

    /// Examines guests until `end`.
    pub(super) fn run_until(&mut self, end: Instant) -> std::io::Result<()> {
        loop {
            let now = Instant::now();
            if now >= self.next_look {
                self.look(now)?;
            }
            self.take_waits();
            self.packets.take();
            self.expense
                .keep(clock(), &mut self.packets, &mut self.tail);
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(SAMPLE.min(left));
        }
    }

    /// Looks for guests, and examines those that there are.
    fn look(&mut self, now: Instant) -> std::io::Result<()> {
        let before = cpu_time();
        self.take_waits();
        // Before slots change their guests.
        self.packets.take();
        self.inventory.look(now)?;
        self.name();
        self.notes.clear();
        let only = self.only.clone();
        let is_examined = |guest: &&Guest| only.as_ref().is_none_or(|key| *key == guest.key);
        let guests: Vec<_> = self.inventory.guests().iter().filter(is_examined).collect();
        let keyed = guests.iter().flat_map(|guest| {
            let threads = guest.threads.iter();
            threads.map(|thread| (thread.id, Arc::clone(&guest.key)))
        });
        // A thread that has exited meanwhile still has waits to take.
        self.threads.extend(keyed);
        let followed: BTreeSet<_> = guests
            .iter()
            .flat_map(|guest| guest.threads.iter().map(|thread| thread.id))
            .collect();
        if let Ok(tail) = &mut self.tail {
            match tail.follow(&followed) {
                Ok(0) => {}
                Ok(beyond) => self
                    .notes
                    .push(format!("{beyond} threads are too many to be measured")),
                Err(error) => self
                    .notes
                    .push(format!("not all threads are measured: {error}")),
            }
            for (thread, new) in tail.read() {
                if let Some(key) = self.threads.get(&thread) {
                    self.records.of(key).lose(clock(), new.lost);
                }
            }
        }
        self.threads.retain(|thread, _| followed.contains(thread));
        let moment = clock();
        for guest in &guests {
            let record = self.records.of(&guest.key);
            record.look(moment, guest, only.is_some());
        }
        // The packets of all: a guest that is not examined may stand in the way of the one that is.
        let named = self.inventory.guests().iter().map(|guest| GuestName {
            guest,
            name: Arc::clone(self.names.get(&guest.key).unwrap_or(&guest.key)),
            is_examined: is_examined(&guest),
        });
        self.packets.follow(moment, &named.collect::<Vec<_>>());
        let cost = cpu_time().saturating_sub(before);
        self.next_look = now + LOOK_INTERVAL.max(cost * PAUSE_FACTOR);
        Ok(())
    }

    /// Finds a unique name for each guest.
    fn name(&mut self) {
        let guests = self.inventory.guests();
        let mut count: HashMap<&str, u32> = HashMap::new();
        for guest in guests {
            *count.entry(&guest.name).or_default() += 1;
        }
        let name = |guest: &Guest| {
            let name = if count[guest.name.as_str()] > 1 {
                format!("{} ({})", guest.name, guest.key)
            } else {
                guest.name.clone()
            };
            (Arc::clone(&guest.key), name.into())
        };
        // Those that are gone may still be named by a wait.
        self.names.extend(guests.iter().map(name));
    }

    /// Takes the late waits that have ended.
    fn take_waits(&mut self) {
        let Ok(tail) = &mut self.tail else {
            return;
        };
        let mut owners: Owners = HashMap::new();
        let times_softirqs = tail.times_softirqs();
        let is_whole = |from, until| !times_softirqs || self.expense.covers(from, until);
        for (thread, wait) in tail.late_waits() {
            let Some(key) = self.threads.get(&thread) else {
                continue;
            };
            // Else its interrupts would count as the time of others.
            if !is_whole(wait.from, wait.until) {
                continue;
            }
            let occupants = Occupants {
                inventory: &mut self.inventory,
                owners: &mut owners,
                names: &self.names,
                own: key,
            };
            let wait = occupants.wait(thread, &wait);
            self.records.of(key).add(wait);
        }
        for (thread, seen) in tail.interruptions() {
            let Some(key) = self.threads.get(&thread) else {
                continue;
            };
            if !is_whole(seen.from, seen.until) {
                continue;
            }
            self.records.of(key).interrupt(Interruption {
                thread: thread.tid,
                from: seen.from,
                until: seen.until,
                stolen: seen.stolen,
                interrupted: seen.interrupted,
            });
        }
    }

    /// The evidence about a guest in the last `window`.
    fn evidence(&self, guest: &Guest, window: Nanos) -> Evidence {
        let empty = Record::default();
        let record = self.records.get(&guest.key).unwrap_or(&empty);
        let now = clock();
        let from = now.saturating_sub(window);
        let name = self.names.get(&guest.key);
        let mut evidence = Evidence {
            guest: name.map_or_else(|| guest.name.clone(), ToString::to_string),
            window,
            waits: record.waits(from),
            lost_waits: record.lost(from),
            interruptions: record.interruptions(from),
            cpu_use: record.cpu_use(from),
            limits: record.limits(from, guest),
            handles: handles::handles(guest),
            examined: Examined {
                cpu: self.tail.as_ref().map(|_| ()).map_err(Clone::clone),
                packets: self.packets.examined(),
                interrupts: self
                    .tail
                    .as_ref()
                    .map_or(Ok(()), |tail| tail.interrupts().map_err(str::to_owned)),
                steal: Ok(()),
                time: self.expense.examined(from, now),
            },
            ..Evidence::default()
        };
        self.packets.enter(&guest.key, from, &mut evidence);
        evidence
    }

    /// The verdict on a guest in the last `window`.
    pub(super) fn judge(&self, guest: &Guest, window: Nanos) -> Verdict {
        judge(&self.evidence(guest, window))
    }

    /// Forgets what happened before the last `window`.
    pub(super) fn forget(&mut self, window: Nanos) {
        let from = clock().saturating_sub(window);
        self.records.forget(from);
        self.packets.forget(from);
        self.expense.forget(from);
        let guests = self.inventory.guests();
        let known: BTreeSet<_> = guests.iter().map(|guest| &guest.key).collect();
        self.records.retain(|key| known.contains(key));
    }
}

/// The owners that were found in one reading, by number, group, policy and name.
type Owners = HashMap<(u32, u64, PolicyNumber, String), Owned>;

/// Finds the owners of the threads that ran during a wait.
struct Occupants<'s> {
    inventory: &'s mut Inventory,
    owners: &'s mut Owners,
    names: &'s BTreeMap<Arc<str>, Arc<str>>,
    /// The key of the guest that waited.
    own: &'s Arc<str>,
}

impl Occupants<'_> {
    fn wait(mut self, thread: ThreadId, wait: &LateWait) -> CpuWait {
        let overlaps = |run: &&SeenRun| run.until > wait.from && run.from < wait.until;
        let runs = wait.runs.iter().filter(overlaps);
        let runs: Vec<_> = runs.map(|run| self.run(run)).collect();
        CpuWait {
            thread: thread.tid,
            was_preempted: wait.kind == Kind::Preempted,
            from: wait.from,
            until: wait.until,
            reservation: wait.reservation,
            quota: wait.quota,
            runs,
        }
    }

    fn run(&mut self, run: &SeenRun) -> Run {
        let (occupant, is_real_time) = if run.tid == 0 {
            (Occupant::Idle, false)
        } else {
            let owned = self.owned(run);
            (self.occupant(owned.owner), owned.is_real_time)
        };
        Run {
            from: run.from,
            until: run.until,
            occupant,
            is_real_time,
            stolen: run.stolen,
            interrupted: run.interrupted,
        }
    }

    fn owned(&mut self, run: &SeenRun) -> Owned {
        let key = (run.tid, run.group, run.policy, run.name.clone());
        if let Some(known) = self.owners.get(&key) {
            return known.clone();
        }
        let owned = self.inventory.owner(run);
        self.owners.insert(key, owned.clone());
        owned
    }

    fn occupant(&self, owner: Owner) -> Occupant {
        match owner {
            Owner::Guest(key) if key == *self.own => Occupant::Own,
            Owner::Guest(key) => {
                let name = self.names.get(&key).map_or(&key, |name| name);
                Occupant::Guest(Arc::clone(name))
            }
            Owner::Program(name) => Occupant::Program(name.into()),
            Owner::Kernel(name) => Occupant::Kernel(name.into()),
            Owner::Exited(name) => Occupant::Exited(name.into()),
        }
    }
}

/// The monotonic clock.
pub(super) fn clock() -> Nanos {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Nanos::from_secs(u64::try_from(now.tv_sec).unwrap_or(0))
        + Nanos(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// The CPU time of this process.
pub(super) fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let whole = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(whole, u32::try_from(now.tv_nsec).unwrap_or(0))
}
