//! Measures the waits of guests' threads: each wait in the kernel if possible, sums otherwise.

use super::division::divide;
use super::entries::{Entries, candidates};
use super::guest::Guest;
use super::meters::{AgentSnapshot, MeterKey, Source};
use super::tail::Tail;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tailbound_sys::root::Root;
use tailbound_sys::thread::{Schedstat, Tasks, ThreadId};
use tailbound_units::Nanos;

/// Measures threads.
#[derive(Debug)]
pub struct Gauge {
    tail: Option<Tail>,
    /// Reason why waits are approximate.
    why: Option<String>,
    /// The threads that are measured.
    keys: BTreeMap<ThreadId, MeterKey>,
    /// Threads that are no longer measured, until the next reading.
    gone: BTreeMap<ThreadId, MeterKey>,
    /// Guests of threads, by thread number.
    names: HashMap<u32, String>,
    /// True if the next sample reads everything: once for each look at guests.
    is_due: bool,
    last: HashMap<ThreadId, Schedstat>,
    tasks: HashMap<u32, Tasks>,
}

impl Gauge {
    /// Opens a gauge without threads; it measures in the kernel if `bpf` is true and the kernel
    /// supports it.
    pub fn open(bpf: bool, late: Nanos) -> Self {
        let tail = if bpf {
            Tail::open(late).map_err(|error| error.to_string())
        } else {
            Err("bpf = false".to_owned())
        };
        let (tail, why) = match tail {
            Ok(tail) => (Some(tail), None),
            Err(why) => {
                tracing::warn!("waits are approximate and have no percentiles: {why}");
                (None, Some(why))
            }
        };
        Self {
            tail,
            why,
            keys: BTreeMap::new(),
            gone: BTreeMap::new(),
            names: HashMap::new(),
            is_due: false,
            last: HashMap::new(),
            tasks: HashMap::new(),
        }
    }

    /// The source of waits.
    pub const fn source(&self) -> Source {
        if self.tail.is_some() {
            Source::Measured
        } else {
            Source::Approximate
        }
    }

    /// The reason why waits are approximate; `None` if each is measured.
    pub fn why_approximate(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// Measures the threads of those of `guests` that `which` picks, and no others, from now on.
    ///
    /// # Errors
    /// Some threads cannot be measured; the message has the reason.
    pub fn follow(
        &mut self,
        guests: &[Guest],
        which: impl Fn(&Guest) -> bool,
    ) -> Result<(), String> {
        let all = || {
            guests
                .iter()
                .flat_map(|guest| guest.threads.iter().map(move |it| (guest, it)))
        };
        let picked = all().filter(|(guest, _)| which(guest));
        let keys = picked.map(|(guest, thread)| (thread.id, MeterKey::of(guest, thread)));
        let before = std::mem::replace(&mut self.keys, keys.collect());
        self.gone.extend(before);
        let names = all().map(|(guest, thread)| {
            let key = MeterKey::of(guest, thread);
            (thread.id.tid, format!("{} {}", key.guest, key.thread))
        });
        self.names = names.collect();
        // What is kept is of these threads alone.
        self.tasks.clear();
        self.is_due = true;
        let Some(tail) = &mut self.tail else {
            return Ok(());
        };
        let threads: BTreeSet<_> = self.keys.keys().copied().collect();
        match tail.follow(&threads) {
            Ok(0) => Ok(()),
            Ok(beyond) => Err(format!(
                "{beyond} threads of guests are not measured: there are too many; have fewer \
                 rules, or smaller ones"
            )),
            Err(error) => Err(format!("cannot measure the waits of all threads: {error}")),
        }
    }

    /// Measures those guests from now on, and returns which of their threads have entered a guest
    /// until now.
    pub(crate) fn entries(&mut self, guests: &[Guest], which: impl Fn(&Guest) -> bool) -> Entries {
        // The caller that measures them reports threads that cannot be measured.
        let _ = self.follow(guests, &which);
        let threads = candidates(guests.iter().filter(|guest| which(guest)));
        match &mut self.tail {
            Some(tail) => tail.entries(&threads),
            None => Entries::Unknown(self.why.clone().unwrap_or_default()),
        }
    }

    /// Enters what was measured since the last time.
    pub fn sample(&mut self, into: &mut AgentSnapshot) {
        let Some(tail) = &mut self.tail else {
            for (key, between) in self.readings() {
                into.enter_run(&key, between.run);
                into.enter_mean(&key, &between);
            }
            return;
        };
        // These would be lost if they were not taken in time; the rest is sums.
        for (thread, wait) in tail.late_waits() {
            if let Some(key) = self.keys.get(&thread).or_else(|| self.gone.get(&thread)) {
                let division = divide(&wait, |tid| self.names.get(&tid).cloned());
                into.enter_late(key, &division);
            }
        }
        if !std::mem::take(&mut self.is_due) {
            return;
        }
        for (thread, new) in tail.read() {
            if let Some(key) = self.keys.get(&thread).or_else(|| self.gone.get(&thread)) {
                into.enter(key, &new);
            }
        }
        self.gone.clear();
        for (key, between) in self.readings() {
            into.enter_run(&key, between.run);
        }
    }

    /// Reads how long each thread ran and waited since the last time.
    fn readings(&mut self) -> Vec<(MeterKey, Schedstat)> {
        let mut last = HashMap::with_capacity(self.last.len());
        let mut readings = Vec::new();
        for (thread, key) in &self.keys {
            let tasks = match self.tasks.entry(thread.pid) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => match Tasks::open(&Root::default(), thread.pid) {
                    Ok(tasks) => place.insert(tasks),
                    Err(_) => continue,
                },
            };
            let Ok(Some(now)) = tasks.schedstat(thread.tid) else {
                continue;
            };
            last.insert(*thread, now);
            if let Some(before) = self.last.get(thread) {
                readings.push((key.clone(), since(before, &now)));
            }
        }
        self.last = last;
        readings
    }
}

/// Returns what happened between two readings.
fn since(before: &Schedstat, now: &Schedstat) -> Schedstat {
    Schedstat {
        run: now.run.since(before.run),
        wait: now.wait.since(before.wait),
        count: now.count.saturating_sub(before.count),
    }
}
