//! The current tails of all guests, for a screen.

use super::agent::AgentError;
use super::division::Cause;
use super::gauge::Gauge;
use super::meters::{AgentSnapshot, Late, Meter, MeterKey, Source};
use super::rule::GuestRule;
use super::scan::Scanner;
use serde::Serialize;
use tailbound_metrics::FineHistogram;
use tailbound_units::Nanos;

/// Quantiles of waits, none more than 2.2 % off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    /// Number of waits.
    pub count: u64,
    /// The median; no wait, no quantile.
    pub p50_ns: Option<u64>,
    /// The 99th percentile.
    pub p99_ns: Option<u64>,
    /// The 99.9th percentile.
    pub p99_9_ns: Option<u64>,
    /// The longest one, exactly.
    pub longest_ns: Option<u64>,
}

impl Quantiles {
    fn of(waits: &FineHistogram) -> Self {
        let quantile = |share| waits.quantile(share).map(|time| time.0);
        let count = waits.count();
        Self {
            count,
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            p99_9_ns: quantile(0.999),
            longest_ns: (count > 0).then_some(waits.longest().0),
        }
    }
}

/// The threads of a guest that have the same role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ThreadTail {
    /// The guest's name.
    pub guest: String,
    /// Their role.
    pub thread: String,
    /// All their waits.
    pub all: Quantiles,
    /// Waits from the wake-up on; `None` if waits are approximate.
    pub woken: Option<Quantiles>,
    /// Waits after another thread got their CPU; `None` if waits are approximate.
    pub preempted: Option<Quantiles>,
    /// Run time.
    pub ran_ns: u64,
}

impl ThreadTail {
    fn of(source: Source, key: &MeterKey, meter: &Meter) -> Self {
        let measured = |waits| (source == Source::Measured).then(|| Quantiles::of(waits));
        Self {
            guest: key.guest.clone(),
            thread: key.thread.clone(),
            all: Quantiles::of(&meter.waits()),
            woken: measured(&meter.woken),
            preempted: measured(&meter.preempted),
            ran_ns: meter.cpu.0,
        }
    }
}

/// A cause of late waits, or a thread that ran meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Share<N> {
    /// What, or who.
    pub name: N,
    /// Duration in nanoseconds.
    pub time_ns: u64,
}

/// The late waits of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GuestLate {
    /// The guest's name.
    pub guest: String,
    /// Number of late waits.
    pub waits: u64,
    /// Number of further late waits, which were not read in time.
    pub lost: u64,
    /// Their causes, the longest first.
    pub causes: Vec<Share<Cause>>,
    /// The threads that ran instead, the longest first.
    pub culprits: Vec<Share<String>>,
}

impl GuestLate {
    fn of(guest: &str, late: &Late) -> Self {
        let causes = late.causes.iter().map(|(cause, time)| Share {
            name: *cause,
            time_ns: time.0,
        });
        let mut causes: Vec<_> = causes.collect();
        causes.sort_by_key(|share| std::cmp::Reverse(share.time_ns));
        let culprits = late.others.longest().into_iter().map(|(name, time)| Share {
            name: name.to_owned(),
            time_ns: time.0,
        });
        Self {
            guest: guest.to_owned(),
            waits: late.waits,
            lost: late.lost,
            causes,
            culprits: culprits.collect(),
        }
    }
}

/// Measurements of all guests since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Reading {
    /// The reason why waits are approximate, without tails; `None` if each wait was measured.
    pub approximate: Option<String>,
    /// Shortest late wait in nanoseconds.
    pub late_ns: u64,
    /// Their threads, by guest and role.
    pub threads: Vec<ThreadTail>,
    /// The guests that had late waits, by name.
    pub late: Vec<GuestLate>,
    /// Unknown properties of a guest, with the reasons.
    pub notes: Vec<String>,
}

/// Measures all guests, those without a rule too.
#[derive(Debug)]
pub struct Live {
    /// The processes to measure besides guests that are recognised.
    rules: Vec<GuestRule>,
    scanner: Scanner,
    gauge: Gauge,
    late: Nanos,
    snapshot: AgentSnapshot,
    notes: Vec<String>,
}

impl Live {
    /// Opens a measurement without threads; waits of `late` and longer are divided. Processes that
    /// `rules` name are measured in addition to recognised guests.
    ///
    /// # Errors
    /// [`AgentError::Observe`].
    pub fn open(late: Nanos, rules: Vec<GuestRule>) -> Result<Self, AgentError> {
        Ok(Self {
            rules,
            scanner: Scanner::new().map_err(AgentError::Observe)?,
            gauge: Gauge::open(true, late),
            late,
            snapshot: AgentSnapshot::default(),
            notes: Vec::new(),
        })
    }

    /// Updates the list of guests, and reads the measurements of the former ones.
    ///
    /// # Errors
    /// [`AgentError::Observe`].
    pub fn look(&mut self) -> Result<(), AgentError> {
        let guests = self.scanner.scan(&self.rules);
        let guests = guests.map_err(AgentError::Observe)?;
        let followed = self.gauge.follow(&guests, |_| true);
        self.snapshot.source = self.gauge.source();
        let names = self.scanner.missing_names().map(str::to_owned);
        self.notes = followed.err().into_iter().chain(names).collect();
        self.sample();
        Ok(())
    }

    /// Reads measurements before they are lost: best called every 100 ms.
    pub fn sample(&mut self) {
        self.gauge.sample(&mut self.snapshot);
    }

    /// Returns what was measured until now.
    pub fn reading(&self) -> Reading {
        let AgentSnapshot {
            source,
            meters,
            late,
            ..
        } = &self.snapshot;
        let threads = meters.iter();
        let threads = threads.map(|(key, meter)| ThreadTail::of(*source, key, meter));
        Reading {
            approximate: self.gauge.why_approximate().map(str::to_owned),
            late_ns: self.late.0,
            threads: threads.collect(),
            late: late
                .iter()
                .map(|(guest, late)| GuestLate::of(guest, late))
                .collect(),
            notes: self.notes.clone(),
        }
    }
}
