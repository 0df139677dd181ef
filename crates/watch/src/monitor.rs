//! The loop of `why` and `watch`: from the kernel's measurements of guests to evidence.
//!
//! [`GuestMonitor`] looks for guests once a second, or down to once in 10 s if that costs more than 0.1 % of a
//! core, and takes late waits for a CPU each 50 ms. Evidence is judged by slices of 10 s, the
//! first of 2 s (`Slices`), and forgotten after 80 s. It changes nothing on the host, and the BPF
//! programs end with this process. On a busy host programs are attached for a part of the time, those that cost
//! most for the smallest (`Expense`). Waits are examined for as long as interrupts are timed.

mod expense;
mod handles;
mod packets;
mod recorder;
mod records;
mod slices;

pub(crate) use recorder::contents;

use crate::document::GuestDocument;
use crate::{Row, Snapshot};
use expense::Expense;
use packets::{GuestName, Packets};
use records::{Record, Records};
use rustix::time::{ClockId, clock_gettime};
use slices::{Facts, SliceGuest, Slices};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tailbound_agent::inventory::{Guest, Inventory, Owner, ThreadOwner};
use tailbound_agent::tail::Tail;
use tailbound_look::evidence::{CpuWait, Evidence, ExaminedParts, Interruption, Occupant, Run};
use tailbound_look::record::{GuestEntry, MAX_KEEP};
use tailbound_look::{Verdict, judge};
use tailbound_sys::thread::{PolicyNumber, ThreadId};
use tailbound_sys::waits::{Kind, LateWait, Run as SeenRun};
use tailbound_units::Nanos;

/// The time between two readings of late waits: the kernel keeps some hundred.
const SAMPLE: Duration = Duration::from_millis(50);
/// The time between two looks for guests.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The pause between two looks, in times of the CPU time that a look takes.
const PAUSE_FACTOR: u32 = 1_000;
/// [`PAUSE_FACTOR`] while one guest alone is examined: its CPU time is assigned to the CPU of its
/// last run, so the looks must be frequent.
const CHOSEN_PAUSE_FACTOR: u32 = 400;
/// The shortest wait that is examined of all guests.
pub const MIN_WAIT: Nanos = Nanos::from_millis(1);
/// [`MIN_WAIT`] if one guest alone is examined. A request may wait several times, and a thread gets a
/// CPU for less than 1 ms at a time if many compute.
pub const MIN_WAIT_OF_ONE: Nanos = Nanos::from_micros(250);
/// The window that is judged by all evidence. A longer one is judged by what its slices keep: the
/// slowest periods of each.
pub const RECENT: Nanos = Nanos::from_secs(60);
/// The time that all evidence is held: [`RECENT`], and a slice with late looks.
const HELD: Nanos = Nanos::from_secs(80);
/// Largest number of examined threads of one guest, if it is the only one.
const MAX_THREADS: usize = 1_024;

/// The guests of a host, and the evidence about them.
pub struct GuestMonitor {
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
    begin: Instant,
    notes: Vec<String>,
    slices: Slices,
}

impl GuestMonitor {
    /// Opens the measurement of waits of at least `min_wait`, and looks for guests; none is examined yet.
    /// Windows of up to `window` can be judged. A record names the version `program`.
    ///
    /// # Errors
    /// Processes cannot be read.
    pub fn open(min_wait: Nanos, window: Nanos, program: &str) -> io::Result<Self> {
        let mut inventory = Inventory::new()?;
        inventory.look(Instant::now())?;
        let mut monitor = Self {
            inventory,
            tail: Tail::open_with_interrupts(min_wait).map_err(|error| error.to_string()),
            packets: Packets::open(),
            expense: Expense::new(clock()),
            only: None,
            records: Records::default(),
            threads: HashMap::new(),
            names: BTreeMap::new(),
            next_look: Instant::now(),
            begin: Instant::now(),
            notes: Vec::new(),
            slices: Slices::begin(clock(), window > RECENT, program),
        };
        monitor.name();
        Ok(monitor)
    }

    /// The guests.
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// Returns the reason why neither waits nor packets can be measured; `None` if one of them can.
    pub fn unmeasurable(&self) -> Option<String> {
        let waits = self.tail.as_ref().err()?;
        let packets = self.packets.examined().err()?;
        Some(format!(
            "waits for a CPU cannot be measured: {waits}; packets cannot be measured: {packets}"
        ))
    }

    /// Examines one guest alone.
    pub fn choose(&mut self, key: &Arc<str>) {
        self.only = Some(Arc::clone(key));
        self.inventory.bound(MAX_THREADS);
    }

    /// Writes the evidence of the last hour to a file from now on.
    ///
    /// # Errors
    /// The file cannot be written, or is no record.
    pub fn record(&mut self, file: &Path) -> io::Result<()> {
        self.slices.record(file)
    }

    /// Returns the unknown facts, with reasons.
    pub fn notes(&self) -> impl Iterator<Item = &String> {
        let notes = self.inventory.notes().iter().chain(&self.notes);
        notes.chain(self.packets.notes()).chain(self.expense.note())
    }

    /// Examines guests until `end`.
    ///
    /// # Errors
    /// Processes cannot be read, or the record cannot be written.
    pub fn run_until(&mut self, end: Instant) -> io::Result<()> {
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

    /// As [`run_until`](Self::run_until), for a window that is judged as a whole: looks at the end, too, since
    /// the time behind the last look has neither CPU use nor counters.
    ///
    /// # Errors
    /// As [`run_until`](Self::run_until).
    pub fn run_window(&mut self, end: Instant) -> io::Result<()> {
        self.run_until(end)?;
        self.next_look = Instant::now();
        self.run_until(Instant::now())
    }

    /// Looks for guests, and examines those that there are.
    fn look(&mut self, now: Instant) -> io::Result<()> {
        let before = cpu_time();
        self.take_waits();
        // The BPF programs' slots may change their guests below.
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
        // Exited threads stay until their waits are read.
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
            for (thread, lost) in tail.lost() {
                if let Some(key) = self.threads.get(&thread) {
                    self.records.of(key).lose(clock(), lost);
                }
            }
        }
        self.threads.retain(|thread, _| followed.contains(thread));
        let moment = clock();
        for guest in &guests {
            let record = self.records.of(&guest.key);
            record.look(moment, guest, only.is_some());
        }
        // The packets of all guests: an unexamined one may delay the examined one.
        let named = self.inventory.guests().iter().map(|guest| GuestName {
            guest,
            name: Arc::clone(self.names.get(&guest.key).unwrap_or(&guest.key)),
            is_examined: is_examined(&guest),
        });
        self.packets.follow(moment, &named.collect::<Vec<_>>());
        let cost = cpu_time().saturating_sub(before);
        // A slice costs more than a look, once in ten seconds: no reason to look less often.
        if self.slices.left(moment) == Nanos::ZERO {
            self.end_slice(moment)?;
        }
        // The counters of a slice come from the look at its end.
        let left = self.slices.left(moment);
        let factor = match self.only {
            Some(_) => CHOSEN_PAUSE_FACTOR,
            None => PAUSE_FACTOR,
        };
        let pause = (cost * factor).min(Duration::from(left));
        self.next_look = now + LOOK_INTERVAL.max(pause);
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
        // Removed guests stay: a wait may name them.
        self.names.extend(guests.iter().map(name));
    }

    /// Takes the late waits that have ended.
    fn take_waits(&mut self) {
        let Ok(tail) = &mut self.tail else {
            return;
        };
        let mut owners: Owners = HashMap::new();
        let times_softirqs = tail.times_softirqs();
        let is_whole = |from, until| self.expense.examines_waits(times_softirqs, from, until);
        for (thread, wait) in tail.late_waits() {
            let Some(key) = self.threads.get(&thread) else {
                continue;
            };
            // Otherwise its interrupts would count as the time of others, or its begin is unknown.
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

    /// Ends the present slice if it is longer than a sample interval (50 ms).
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn finish(&mut self) -> io::Result<()> {
        self.run_window(Instant::now())?;
        let now = clock();
        if now.saturating_sub(self.slices.from()) > Nanos::from(SAMPLE) {
            self.end_slice(now)?;
        }
        Ok(())
    }

    /// Judges the slice that ends now, and forgets old evidence.
    fn end_slice(&mut self, now: Nanos) -> io::Result<()> {
        let from = self.slices.from();
        let only = self.only.clone();
        let guests = self.inventory.guests().iter();
        let guests = guests.filter(|guest| only.as_ref().is_none_or(|key| *key == guest.key));
        let judged = guests.map(|guest| {
            let mut evidence = self.evidence(guest, from, now);
            evidence.thin(MAX_KEEP);
            let name = self.names.get(&guest.key).unwrap_or(&guest.key);
            SliceGuest {
                kind: guest.identity.kind(),
                verdict: judge(&evidence),
                entry: GuestEntry {
                    key: Arc::clone(&guest.key),
                    name: Arc::clone(name),
                    kind: guest.identity.kind().into(),
                    notes: guest.notes.iter().map(|it| it.as_str().into()).collect(),
                    evidence,
                },
            }
        });
        let judged: Vec<_> = judged.collect();
        for guest in &judged {
            self.records.of(&guest.entry.key).count(&guest.verdict);
        }
        let facts = Facts {
            examined: self.examined(from, now),
            notes: self.notes().map(|note| note.as_str().into()).collect(),
        };
        self.slices.end(now, judged, facts)?;
        self.forget(now);
        Ok(())
    }

    /// The parts that can be examined, in an interval.
    fn examined(&self, from: Nanos, now: Nanos) -> ExaminedParts {
        ExaminedParts {
            cpu: self.tail.as_ref().map(|_| ()).map_err(Clone::clone),
            packets: self.packets.examined(),
            interrupts: self
                .tail
                .as_ref()
                .map_or(Ok(()), |tail| tail.interrupts().map_err(str::to_owned)),
            steal: Ok(()),
            time: self.expense.packets_time(from, now),
            interrupts_time: match &self.tail {
                Ok(tail) => self.expense.waits_time(tail.times_softirqs(), from, now),
                Err(_) => None,
            },
        }
    }

    /// All evidence about a guest since `from`, which is not longer ago than [`RECENT`].
    fn evidence(&self, guest: &Guest, from: Nanos, now: Nanos) -> Evidence {
        let empty = Record::default();
        let record = self.records.get(&guest.key).unwrap_or(&empty);
        let name = self.names.get(&guest.key);
        let mut evidence = Evidence {
            guest: name.map_or_else(|| guest.name.clone(), ToString::to_string),
            window: now.saturating_sub(from),
            lost_waits: record.lost(from),
            interruptions: record.interruptions(from),
            cpu_use: record.cpu_use(from),
            limits: record.limits(from, guest),
            handles: handles::handles(guest),
            examined: self.examined(from, now),
            ..Evidence::default()
        };
        self.packets.enter(&guest.key, from, &mut evidence);
        // A request that ended in this time may have begun before, and waited then.
        let begun = evidence.requests.iter().map(|request| request.begun);
        evidence.waits = record.waits(begun.fold(from, Nanos::min));
        evidence
    }

    /// The guests that are examined, each with the verdict on the last `window`.
    pub fn judge_all(&self, window: Nanos) -> Vec<(&Guest, Verdict)> {
        let only = self.only.as_ref();
        let guests = self.inventory.guests().iter();
        let guests = guests.filter(|guest| only.is_none_or(|key| *key == guest.key));
        let now = clock();
        if window <= RECENT {
            let from = now.saturating_sub(window);
            let verdict = |guest| judge(&self.evidence(guest, from, now));
            return guests.map(|guest| (guest, verdict(guest))).collect();
        }
        let mut slices = self.slices.evidence(window);
        let mut verdict = |guest: &Guest| {
            let parts = slices.remove(&guest.key).unwrap_or_default();
            let last = self.evidence(guest, self.slices.from(), now);
            judge(&Evidence::join(parts.into_iter().chain([last])))
        };
        guests.map(|guest| (guest, verdict(guest))).collect()
    }

    /// All guests with their verdicts on the last `window`.
    pub fn snapshot(&self, window: Nanos) -> Snapshot {
        let elapsed = self.begin.elapsed();
        let window = window.min(Nanos::from(elapsed));
        let rows = self.judge_all(window).into_iter().map(|(guest, verdict)| {
            let record = self.records.get(&guest.key);
            let counts = record.map(Record::counts).cloned().unwrap_or_default();
            let hour = self.slices.hours().of_guest(&guest.key);
            Row::new(GuestDocument::of(guest), verdict, counts, hour)
        });
        let rows = rows.collect();
        let notes = self.notes().cloned().collect();
        Snapshot::new(window, (elapsed, cpu_time()), rows, notes)
    }

    /// Forgets evidence that no window has any more.
    fn forget(&mut self, now: Nanos) {
        let from = now.saturating_sub(HELD);
        self.records.forget(from);
        self.packets.forget(from);
        self.expense.forget(from);
        let guests = self.inventory.guests();
        let known: BTreeSet<_> = guests.iter().map(|guest| &guest.key).collect();
        self.records.retain(|key| known.contains(key));
        let named = self.slices.history().labels().map(|label| &label.key);
        let known: BTreeSet<_> = known.into_iter().chain(named).cloned().collect();
        self.names.retain(|key, _| known.contains(key));
    }
}

/// The owners that were found in one reading, by number, group, policy and name.
type Owners = HashMap<(u32, u64, PolicyNumber, String), ThreadOwner>;

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
        let runs: Arc<[_]> = runs.map(|run| self.run(run)).collect();
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

    fn owned(&mut self, run: &SeenRun) -> ThreadOwner {
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
fn clock() -> Nanos {
    Nanos::from(time_of(ClockId::Monotonic))
}

/// The CPU time of this process.
pub fn cpu_time() -> Duration {
    time_of(ClockId::ProcessCPUTime)
}

fn time_of(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    let whole = u64::try_from(now.tv_sec).expect("no clock with a negative time is read");
    let part = u32::try_from(now.tv_nsec).expect("the part of a second is below 10^9 ns");
    Duration::new(whole, part)
}
