//! The counts of a guest since the begin of the measurement.

use tailbound_look::{Kind, Verdict};
use tailbound_metrics::Histogram;
use tailbound_units::Nanos;

/// Number of kinds of causes.
const KINDS: usize = Kind::ALL.len();

/// The counts of a guest, which only rise.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    slow: u64,
    /// By kind of cause, in the order of [`Kind::ALL`].
    delay: [Nanos; KINDS],
    /// The delay of periods that were not among the slowest of their interval.
    not_judged: Nanos,
    waits: Histogram,
}

impl Counts {
    /// Counts the verdict on an interval; intervals do not overlap.
    pub fn add(&mut self, verdict: &Verdict) {
        self.slow += verdict.slow as u64;
        for share in &verdict.shares {
            let place = Kind::ALL.iter().position(|kind| *kind == share.cause.kind);
            let sum = &mut self.delay[place.unwrap_or(KINDS - 1)];
            *sum = sum.saturating_add(share.time);
        }
        let rest = verdict.delay.saturating_sub(verdict.judged_delay);
        self.not_judged = self.not_judged.saturating_add(rest);
    }

    /// Counts a late wait for a CPU.
    pub fn wait(&mut self, length: Nanos) {
        self.waits.record(length);
    }

    /// Counts some delay of each cause.
    #[cfg(test)]
    pub(crate) fn add_all_causes(&mut self) {
        self.slow += 123_456;
        self.delay = [Nanos(12_345_678_901); KINDS];
        self.not_judged = Nanos(12_345_678_901);
    }

    /// The slow periods.
    pub const fn slow(&self) -> u64 {
        self.slow
    }

    /// The delay of each kind of cause that has any, by its stable name; `not-judged` has that of periods
    /// which were not among the slowest of their interval.
    pub fn delay(&self) -> impl Iterator<Item = (&'static str, Nanos)> {
        let kinds = Kind::ALL.iter().map(|kind| kind.name());
        let named = kinds.zip(self.delay);
        named
            .chain([("not-judged", self.not_judged)])
            .filter(|(_, time)| *time > Nanos::ZERO)
    }

    /// The late waits for a CPU.
    pub const fn waits(&self) -> &Histogram {
        &self.waits
    }
}
