//! The last hour of all guests of a host, in slices of 10 s; the first slice is shorter.
//!
//! [`History::add`] takes the verdict on a guest in one slice; the evidence may be forgotten then.
//! [`History::recent`] sums up a window for all guests, the slowest first: the last minute, the last
//! hour. [`History::series`] has the slices of one guest in order, for a picture. A slice in which
//! nothing was slow takes no memory, and [`History::span`] is the time that was examined, so a gap
//! within it means that nothing was slow. No clock, no I/O.
//!
//! Bounded: [`MAX_GUESTS`] guests, [`HOUR`], [`MAX_PARTS`] causes in a slice; 250 bytes for a slice in
//! which a guest was slow, so less than 100 MB if all of them are slow all the time.

use crate::cause::{Cause, Kind};
use crate::judge::{Doubt, Finding, Share, Verdict, named, sort_shares, time_of};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tailbound_units::Nanos;

/// The length of a slice.
pub const SLICE: Nanos = Nanos::from_secs(10);
/// The length of the first slice, so that the hour and a record soon have something.
pub const FIRST_SLICE: Nanos = Nanos::from_secs(2);
/// The time that is kept.
pub const HOUR: Nanos = Nanos::from_secs(3_600);
/// Largest number of slices in that time.
const MAX_SLICES: usize = 360;
/// Largest number of stored guests; those with the latest slow periods remain.
pub const MAX_GUESTS: usize = 1_024;
/// Number of a slice's stored causes: the largest.
pub const MAX_PARTS: usize = 3;

/// A guest, as the history knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Its key: stable, and no other guest's.
    pub key: Arc<str>,
    /// Its name, which no other guest has at the same time.
    pub name: Arc<str>,
    /// Its kind, such as `container`.
    pub kind: &'static str,
}

/// A slice in which a guest had slow periods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// Its begin, on the clock of the evidence.
    pub from: Nanos,
    /// Its end.
    pub until: Nanos,
    /// The slow periods.
    pub slow: u64,
    /// The sum of their lengths.
    pub delay: Nanos,
    /// The part of `delay` by which guests are ranked; see [`Verdict::ranked_delay`].
    pub ranked_delay: Nanos,
    /// The longest.
    pub longest: Nanos,
    /// The cause of this slice alone; a few slow periods in it prove nothing.
    pub finding: Finding,
    /// The delay that was divided among causes, of which `parts` are parts; zero if the slow periods
    /// were nothing to speak of.
    pub judged_delay: Nanos,
    /// The largest causes, the largest first; the rest of `judged_delay` has others.
    pub parts: Box<[Share]>,
}

/// The slow periods of a guest in a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The guest.
    pub label: Label,
    /// The slices that had slow periods.
    pub slices: usize,
    /// The slow periods.
    pub slow: u64,
    /// The sum of their lengths.
    pub delay: Nanos,
    /// The part of `delay` by which guests are ranked.
    pub ranked_delay: Nanos,
    /// The longest.
    pub longest: Nanos,
    /// The cause of most of the delay of the whole window, if there is one.
    pub finding: Finding,
    /// The delay that was divided among causes.
    pub judged_delay: Nanos,
    /// The causes, the largest first. Their sum is at most `judged_delay`: the rest has causes that
    /// were small in each slice.
    pub shares: Vec<Share>,
}

impl Summary {
    /// The time of all causes of a kind in the judged delay; [`Kind::BusyHost`] is all other guests
    /// and programs.
    pub fn time(&self, kind: Kind) -> Nanos {
        time_of(kind, |kind| {
            let its = self.shares.iter().filter(|share| share.cause.kind == kind);
            Nanos(its.map(|share| share.time.0).sum())
        })
    }

    /// The part of the judged delay that the cause has which is named, in thousandths.
    pub fn permille(&self) -> Option<u16> {
        let Finding::Because(cause) = &self.finding else {
            return None;
        };
        let part = u128::from(self.time(cause.kind).0) * 1_000;
        u16::try_from(part / u128::from(self.judged_delay.0.max(1))).ok()
    }
}

/// The slices of one guest.
#[derive(Debug)]
struct Track {
    label: Label,
    /// The end of the last slice in which it was examined.
    seen: Nanos,
    slices: VecDeque<Slice>,
}

/// The last hour of all guests.
#[derive(Debug, Default)]
pub struct History {
    tracks: BTreeMap<Arc<str>, Track>,
    /// The begin of the first slice, and the end of the last.
    span: Option<(Nanos, Nanos)>,
}

impl History {
    /// An empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// Enters the verdict on a guest in the slice `from..until`. Slices come in order of time; those
    /// of one guest do not overlap.
    pub fn add(&mut self, label: &Label, from: Nanos, until: Nanos, verdict: &Verdict) {
        let (began, _) = self.span.unwrap_or((from, until));
        self.span = Some((began, until));
        if !self.tracks.contains_key(&label.key) {
            self.make_room();
        }
        let track = self.tracks.entry(Arc::clone(&label.key));
        let track = track.or_insert_with(|| Track {
            label: label.clone(),
            seen: until,
            slices: VecDeque::new(),
        });
        track.label = label.clone();
        track.seen = until;
        if verdict.slow > 0 {
            if track.slices.len() == MAX_SLICES {
                track.slices.pop_front();
            }
            if track.slices.len() == MAX_SLICES / 4 {
                // Doubled capacities would waste a third of the memory.
                track.slices.reserve_exact(MAX_SLICES - MAX_SLICES / 4);
            }
            track.slices.push_back(slice(from, until, verdict));
        }
    }

    /// Forgets the slices that ended more than an hour before `now`, and guests that were not
    /// examined since.
    pub fn forget(&mut self, now: Nanos) {
        let from = now.saturating_sub(HOUR);
        self.tracks.retain(|_, track| {
            while track.slices.front().is_some_and(|it| it.until <= from) {
                track.slices.pop_front();
            }
            track.seen > from
        });
        self.span = self
            .span
            .filter(|(_, end)| *end > from)
            .map(|(began, end)| (began.max(from), end));
    }

    /// The time that was examined, at most the last hour.
    pub fn span(&self) -> Option<(Nanos, Nanos)> {
        self.span
    }

    /// The guests that were examined in the last hour, by key.
    pub fn labels(&self) -> impl Iterator<Item = &Label> {
        self.tracks.values().map(|track| &track.label)
    }

    /// The slices of a guest that had slow periods, the oldest first.
    pub fn series(&self, key: &str) -> impl DoubleEndedIterator<Item = &Slice> {
        let track = self.tracks.get(key);
        track.into_iter().flat_map(|track| track.slices.iter())
    }

    /// Sums up the slices of each guest that ended in the last `window`, the slowest guest first.
    /// A guest without slow periods is in it as well if it was examined in that time.
    pub fn recent(&self, window: Nanos) -> Vec<Summary> {
        let (_, end) = self.span.unwrap_or_default();
        let from = end.saturating_sub(window);
        let examined = self.tracks.values().filter(|track| track.seen > from);
        let mut found: Vec<_> = examined.map(|track| track.sum(from)).collect();
        found.sort_by(|a, b| {
            let is_quiet = |it: &Summary| it.finding == Finding::NothingSlow;
            is_quiet(a)
                .cmp(&is_quiet(b))
                .then_with(|| b.ranked_delay.cmp(&a.ranked_delay))
                .then_with(|| a.label.name.cmp(&b.label.name))
        });
        found
    }

    /// Makes room for one more guest.
    fn make_room(&mut self) {
        while self.tracks.len() >= MAX_GUESTS {
            let last_slow = |track: &Track| track.slices.back().map(|slice| slice.until);
            let oldest = self
                .tracks
                .iter()
                .min_by_key(|(_, track)| (last_slow(track), track.seen));
            let Some(key) = oldest.map(|(key, _)| Arc::clone(key)) else {
                return;
            };
            self.tracks.remove(&key);
        }
    }
}

impl Track {
    fn sum(&self, from: Nanos) -> Summary {
        let mut sum = Summary {
            label: self.label.clone(),
            slices: 0,
            slow: 0,
            delay: Nanos::ZERO,
            ranked_delay: Nanos::ZERO,
            longest: Nanos::ZERO,
            finding: Finding::NothingSlow,
            judged_delay: Nanos::ZERO,
            shares: Vec::new(),
        };
        let mut causes: BTreeMap<&Cause, (Nanos, usize)> = BTreeMap::new();
        let mut doubt = None;
        for slice in self.slices.iter().filter(|slice| slice.until > from) {
            sum.slices += 1;
            sum.slow = sum.slow.saturating_add(slice.slow);
            sum.delay = sum.delay.saturating_add(slice.delay);
            sum.ranked_delay = sum.ranked_delay.saturating_add(slice.ranked_delay);
            sum.longest = sum.longest.max(slice.longest);
            sum.judged_delay = sum.judged_delay.saturating_add(slice.judged_delay);
            for part in &slice.parts {
                let (time, periods) = causes.entry(&part.cause).or_default();
                *time = time.saturating_add(part.time);
                *periods += part.periods;
            }
            if let Finding::Unknown(why) = slice.finding {
                doubt = Some(why);
            }
        }
        let share = |(cause, (time, periods)): (&Cause, (Nanos, usize))| Share {
            cause: cause.clone(),
            time,
            periods,
        };
        sum.shares = causes.into_iter().map(share).collect();
        sort_shares(&mut sum.shares);
        sum.finding = if sum.judged_delay > Nanos::ZERO {
            let (kind, doubt) = named(
                |kind| sum.time(kind),
                sum.judged_delay,
                |kind| {
                    let has = |share: &&Share| time_of(kind, |it| its(share, it)) > Nanos::ZERO;
                    sum.shares.iter().filter(has).map(|it| it.periods).sum()
                },
            );
            finding(kind, doubt, &sum.shares)
        } else {
            doubt.map_or(Finding::NothingSlow, Finding::Unknown)
        };
        sum
    }
}

/// The time of a share if its cause is of a kind.
fn its(share: &Share, kind: Kind) -> Nanos {
    if share.cause.kind == kind {
        share.time
    } else {
        Nanos::ZERO
    }
}

fn finding(kind: Kind, doubt: Option<Doubt>, shares: &[Share]) -> Finding {
    if let Some(doubt) = doubt {
        return Finding::Unknown(doubt);
    }
    let mut names = shares.iter().filter(|share| share.cause.kind == kind);
    Finding::Because(Cause {
        kind,
        by: names.find_map(|share| share.cause.by.clone()),
    })
}

fn slice(from: Nanos, until: Nanos, verdict: &Verdict) -> Slice {
    let is_quiet = verdict.finding == Finding::NothingSlow;
    let mut parts: Vec<_> = verdict.shares.iter().collect();
    if is_quiet {
        parts.clear();
    }
    parts.sort_by_key(|share| Reverse(share.time));
    parts.truncate(MAX_PARTS);
    Slice {
        from,
        until,
        slow: verdict.slow as u64,
        delay: verdict.delay,
        ranked_delay: verdict.ranked_delay,
        longest: verdict.longest,
        finding: verdict.finding.clone(),
        judged_delay: if is_quiet {
            Nanos::ZERO
        } else {
            verdict.judged_delay
        },
        parts: parts.into_iter().cloned().collect(),
    }
}

#[cfg(test)]
mod tests;
