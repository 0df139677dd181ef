//! Threads that are measured in the kernel, and their measurements since the previous reading.

use super::entries::Entries;
use std::collections::{BTreeMap, BTreeSet};
use tailbound_metrics::FineHistogram;
use tailbound_sys::probe::times_interrupts;
use tailbound_sys::thread::ThreadId;
use tailbound_sys::waits::{
    BUCKETS, Interruption, LateWait, Settings, ThreadWaits, Tracer, Waits, WaitsError,
};
use tailbound_units::Nanos;

/// Smallest number of measured threads: the kernel needs 3.8 KB for each.
const MIN_THREADS: u32 = 256;
/// Largest number of measured threads.
const MAX_THREADS: u32 = 16_384;

/// The waits of one kind between two readings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewWaits {
    counts: Box<[u32; BUCKETS]>,
    sum: Nanos,
    /// Longest of all waits that were read until now.
    longest: Nanos,
}

impl NewWaits {
    /// The kernel counts modulo 2^32.
    fn between(before: Option<&Waits>, now: &Waits) -> Self {
        let mut counts = Box::new(now.counts);
        if let Some(before) = before {
            for (count, before) in counts.iter_mut().zip(before.counts) {
                *count = count.wrapping_sub(before);
            }
        }
        let before = before.map_or(0, |before| before.sum);
        Self {
            counts,
            sum: Nanos(now.sum.wrapping_sub(before)),
            longest: Nanos(now.longest),
        }
    }

    /// Adds them to a histogram.
    pub fn enter(&self, histogram: &mut FineHistogram) {
        let counts = self.counts.iter().map(|count| u64::from(*count));
        histogram.add(counts, self.sum, self.longest);
    }
}

/// Measurements of a thread between two readings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct New {
    /// Waits from a wake-up on.
    pub woken: NewWaits,
    /// Waits after another thread got its CPU.
    pub preempted: NewWaits,
    /// Times it was given a CPU after a wait of unknown length.
    pub unknown: u64,
    /// Late waits that were lost.
    pub lost: u64,
}

impl New {
    fn between(before: Option<&ThreadWaits>, now: &ThreadWaits) -> Self {
        let since = |of: fn(&ThreadWaits) -> u64| of(now) - before.map_or(0, of);
        Self {
            woken: NewWaits::between(before.map(|before| &before.woken), &now.woken),
            preempted: NewWaits::between(before.map(|before| &before.preempted), &now.preempted),
            unknown: since(|measured| measured.unknown),
            lost: since(|measured| measured.lost),
        }
    }
}

/// A thread that is measured.
#[derive(Debug)]
struct Place {
    number: u32,
    before: Option<ThreadWaits>,
}

/// Measures threads in the kernel.
#[derive(Debug)]
pub struct Tail {
    late: Nanos,
    /// True if soft interrupts are timed where the kernel does not time interrupts.
    times_softirqs: bool,
    capacity: u32,
    tracer: Tracer,
    places: BTreeMap<ThreadId, Place>,
    free: Vec<u32>,
    /// Waits of threads that are not measured any more.
    last: Vec<(ThreadId, New)>,
    /// The threads that have entered a guest since they are measured.
    entered: BTreeSet<ThreadId>,
    /// Late waits that were taken before places got other threads.
    taken: Vec<(ThreadId, LateWait)>,
    /// Interruptions of threads that are not measured any more.
    interruptions: Vec<(ThreadId, Interruption)>,
    /// True if all waits are counted.
    histograms: bool,
    /// The lost waits of all threads until the last reading.
    lost: u64,
}

impl Tail {
    /// Opens a measurement without threads; waits of `late` or longer are reported one by one.
    ///
    /// # Errors
    /// [`WaitsError`] names the missing feature.
    pub fn open(late: Nanos) -> Result<Self, WaitsError> {
        Self::open_as(late, false, true)
    }

    /// Opens a measurement of late waits alone, which costs less than [`open`](Self::open): other waits are
    /// not counted, and entries into guests are not recorded. Soft interrupts are timed if the kernel does not time interrupts; that costs a time stamp
    /// at the beginning and the end of each.
    ///
    /// # Errors
    /// [`WaitsError`] names the part that this host lacks.
    pub fn open_with_interrupts(late: Nanos) -> Result<Self, WaitsError> {
        Self::open_as(late, !times_interrupts(), false)
    }

    fn open_as(late: Nanos, times_softirqs: bool, histograms: bool) -> Result<Self, WaitsError> {
        Ok(Self {
            late,
            times_softirqs,
            capacity: MIN_THREADS,
            tracer: load(late, times_softirqs, histograms, MIN_THREADS)?,
            places: BTreeMap::new(),
            free: (0..MIN_THREADS).rev().collect(),
            last: Vec::new(),
            entered: BTreeSet::new(),
            taken: Vec::new(),
            interruptions: Vec::new(),
            histograms,
            lost: 0,
        })
    }

    /// Returns which of these threads have entered a guest, of those that are measured.
    pub fn entries(&mut self, threads: &BTreeSet<ThreadId>) -> Entries {
        if let Err(why) = self.tracer.note_entries() {
            return Entries::Unknown(why.to_owned());
        }
        let mut known = BTreeMap::new();
        for (thread, place) in &self.places {
            if !threads.contains(thread) {
                continue;
            }
            // It is read no more once it has.
            let entered = self.entered.contains(thread)
                || self.tracer.has_entered(place.number).unwrap_or(false);
            if entered {
                self.entered.insert(*thread);
            }
            known.insert(*thread, entered);
        }
        self.entered
            .retain(|thread| self.places.contains_key(thread));
        Entries::Known(known)
    }

    /// Returns the shortest late wait.
    pub const fn late(&self) -> Nanos {
        self.late
    }

    /// Measures these threads from now on and no others; returns how many of them are too many.
    ///
    /// # Errors
    /// The kernel refuses a larger table; those that were measured still are.
    pub fn follow(&mut self, threads: &BTreeSet<ThreadId>) -> Result<usize, WaitsError> {
        self.taken = self.late_waits();
        self.interruptions = self.interruptions();
        let ended_threads = self.places.keys().copied();
        let ended_threads = ended_threads
            .filter(|thread| !threads.contains(thread))
            .collect();
        self.leave(ended_threads);
        let wanted = u32::try_from(threads.len()).unwrap_or(u32::MAX);
        let capacity = wanted.clamp(MIN_THREADS, MAX_THREADS).next_power_of_two();
        if capacity > self.capacity {
            self.grow(capacity)?;
        }
        let mut beyond = 0;
        for thread in threads {
            if self.places.contains_key(thread) {
                continue;
            }
            let Some(number) = self.free.pop() else {
                beyond += 1;
                continue;
            };
            // One that has exited meanwhile is nobody.
            if self.tracer.follow(thread.tid, number).is_err() {
                self.free.push(number);
                continue;
            }
            let before = None;
            self.places.insert(*thread, Place { number, before });
        }
        Ok(beyond)
    }

    fn leave(&mut self, threads: Vec<ThreadId>) {
        for thread in threads {
            if let Some(place) = self.places.remove(&thread) {
                self.tracer.leave(thread.tid);
                if let Ok(now) = self.tracer.read(place.number) {
                    let new = New::between(place.before.as_ref(), &now);
                    self.last.push((thread, new));
                }
                self.free.push(place.number);
            }
        }
    }

    /// Loads anew, with room for more.
    fn grow(&mut self, capacity: u32) -> Result<(), WaitsError> {
        let mut tracer = load(self.late, self.times_softirqs, self.histograms, capacity)?;
        // There is no error in stopping.
        let _ = tracer.trace_waits(self.tracer.traces_waits());
        tracer.time_softirqs(self.tracer.times_softirqs());
        self.leave(self.places.keys().copied().collect());
        self.tracer = tracer;
        self.capacity = capacity;
        self.lost = 0;
        self.free = (0..capacity).rev().collect();
        Ok(())
    }

    /// The tracer, for measurements of its cost.
    pub const fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    /// Returns what was measured since the last time.
    pub fn read(&mut self) -> Vec<(ThreadId, New)> {
        let mut all = std::mem::take(&mut self.last);
        for (thread, place) in &mut self.places {
            let Ok(now) = self.tracer.read(place.number) else {
                continue;
            };
            all.push((*thread, New::between(place.before.as_ref(), &now)));
            place.before = Some(now);
        }
        all
    }

    /// Returns the late waits that were lost since the last time: as [`read`](Self::read), but threads are
    /// read only if there are any.
    pub fn lost(&mut self) -> Vec<(ThreadId, u64)> {
        let lost = self.tracer.lost().unwrap_or(self.lost);
        let new = if std::mem::replace(&mut self.lost, lost) == lost {
            std::mem::take(&mut self.last)
        } else {
            self.read()
        };
        let lost = new.into_iter().map(|(thread, new)| (thread, new.lost));
        lost.filter(|(_, lost)| *lost > 0).collect()
    }

    /// Takes the late waits of the threads that are measured.
    pub fn late_waits(&mut self) -> Vec<(ThreadId, LateWait)> {
        let mut all = std::mem::take(&mut self.taken);
        let mut seen = Vec::new();
        while let Some(wait) = self.tracer.next_late() {
            seen.push(wait);
        }
        if seen.is_empty() {
            return all;
        }
        let threads = self.threads();
        let known = |wait: LateWait| Some((*threads.get(&wait.place)?, wait));
        all.extend(seen.into_iter().filter_map(known));
        all
    }

    /// Takes the runs of measured threads that lost much time to interrupts or the hypervisor.
    pub fn interruptions(&mut self) -> Vec<(ThreadId, Interruption)> {
        let mut all = std::mem::take(&mut self.interruptions);
        let mut seen = Vec::new();
        while let Some(interruption) = self.tracer.next_interruption() {
            seen.push(interruption);
        }
        if seen.is_empty() {
            return all;
        }
        let threads = self.threads();
        let known = |run: Interruption| Some((*threads.get(&run.place)?, run));
        all.extend(seen.into_iter().filter_map(known));
        all
    }

    /// Checks that the time of interrupts is known.
    ///
    /// # Errors
    /// The reason, in words.
    pub fn interrupts(&self) -> Result<(), &str> {
        if self.times_softirqs {
            return self.tracer.interrupts();
        }
        if times_interrupts() {
            return Ok(());
        }
        Err("the kernel lacks CONFIG_IRQ_TIME_ACCOUNTING")
    }

    /// Returns true if soft interrupts are timed by the program, as the kernel does not time
    /// interrupts.
    pub const fn times_softirqs(&self) -> bool {
        self.times_softirqs
    }

    /// Stops or starts to time soft interrupts, if the program does.
    pub fn time_softirqs(&mut self, is_timed: bool) {
        self.tracer.time_softirqs(is_timed);
    }

    /// Stops or starts to measure waits. A wait that began before the start is not reported.
    ///
    /// # Errors
    /// The reason why they are not measured, as text.
    pub fn trace_waits(&mut self, is_traced: bool) -> Result<(), &str> {
        self.tracer.trace_waits(is_traced)
    }

    /// The thread of each place.
    fn threads(&self) -> BTreeMap<u32, ThreadId> {
        let places = self.places.iter();
        places
            .map(|(thread, place)| (place.number, *thread))
            .collect()
    }
}

fn load(
    late: Nanos,
    times_softirqs: bool,
    histograms: bool,
    threads: u32,
) -> Result<Tracer, WaitsError> {
    Tracer::load(&Settings {
        threads,
        late,
        bounds: &FineHistogram::BUCKET_BOUNDS_NS,
        cells: &FineHistogram::cells(),
        times_softirqs,
        histograms,
        entries: histograms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(count: u32, sum: u64) -> Waits {
        let mut counts = [0; BUCKETS];
        counts[100] = count;
        Waits {
            sum,
            longest: 70,
            counts,
        }
    }

    #[test]
    fn new_waits_are_correct_when_the_kernels_counter_wraps() {
        let (before, now) = (waits(u32::MAX - 1, 1_000), waits(3, 1_500));
        let mut histogram = FineHistogram::default();
        NewWaits::between(Some(&before), &now).enter(&mut histogram);
        assert_eq!((histogram.count(), histogram.sum()), (5, Nanos(500)));
        NewWaits::between(None, &now).enter(&mut histogram);
        assert_eq!((histogram.count(), histogram.sum()), (8, Nanos(2_000)));
        assert_eq!(histogram.longest(), Nanos(70));
    }
}
