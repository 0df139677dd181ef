//! The verdicts of a node over weeks (Bobtail, 2.3).

use crate::verdict::NodeVerdict;
use serde::{Deserialize, Serialize};

/// Tolerance in seconds for the interval between two runs. Beyond twice the planned interval and
/// this tolerance, the node's state in between is unknown.
const SLACK_S: f64 = 300.0;

/// A run of the probe, in as few words as a file for weeks takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Seconds since 1970 at its start.
    pub at: f64,
    /// Planned interval to the next run's start, in seconds.
    pub every: f64,
    /// Verdict of the run.
    pub verdict: NodeVerdict,
    /// Sleeps of the worst vCPU.
    pub sleeps: u64,
    /// Late sleeps among these.
    pub late: u64,
    /// Late ones that the guest caused itself.
    pub ours: u64,
    /// Late sleeps that the hypervisor caused, by its own count of steal.
    pub stolen: u64,
    /// The 99.9th percentile of the sleeps in nanoseconds.
    pub p99_9: u64,
    /// The longest.
    pub max: u64,
}

/// A time in which a node was the same at each run that decided.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Stretch {
    /// GOOD or BAD.
    pub verdict: NodeVerdict,
    /// Seconds since 1970 at the start of its first run that decided.
    pub from: f64,
    /// Seconds since 1970 at the start of its last run that decided.
    pub to: f64,
    /// Number of runs with this verdict.
    pub runs: u64,
}

impl Stretch {
    /// Returns its minimum length in seconds.
    pub fn length(&self) -> f64 {
        self.to - self.from
    }
}

/// Verdicts of a node over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct History {
    /// Runs by what they found: GOOD, UNSURE, INCONCLUSIVE, BAD.
    pub good: u64,
    /// Number of UNSURE runs.
    pub unsure: u64,
    /// Spoiled by the guest itself.
    pub inconclusive: u64,
    /// Number of BAD runs: neighbours keep the CPU.
    pub bad: u64,
    /// Number of changes between BAD and GOOD while the node was watched.
    pub changes: u64,
    /// Number of intervals between runs that were too long.
    pub gaps: u64,
    /// The current stretch.
    pub now: Option<Stretch>,
    /// The longest time that it was GOOD.
    pub longest_good: Option<Stretch>,
    /// The longest time that it was BAD.
    pub longest_bad: Option<Stretch>,
}

impl History {
    /// Makes the history from the runs, in the order in which they were made.
    pub fn of<'r>(runs: impl IntoIterator<Item = &'r Run>) -> Self {
        Self::told(runs, &mut |_| {})
    }

    /// Makes the history, and calls `hears` with each stretch when it is over, and with the last
    /// one at the end. Figure 3 shows the lengths of these stretches.
    pub fn told<'r>(
        runs: impl IntoIterator<Item = &'r Run>,
        hears: &mut impl FnMut(Stretch),
    ) -> Self {
        let mut history = Self::default();
        let mut before: Option<&Run> = None;
        for run in runs {
            let is_gap = before.is_some_and(|before| {
                let apart = run.at - before.at;
                // A clock that was set back is no time that was watched, either.
                !(0.0..=2.0 * before.every + SLACK_S).contains(&apart)
            });
            before = Some(run);
            if is_gap {
                history.gaps += 1;
                history.end(hears);
            }
            history.add(run, hears);
        }
        let now = history.now;
        history.end(hears);
        history.now = now;
        history
    }

    /// Returns the number of runs.
    pub fn runs(&self) -> u64 {
        self.good + self.unsure + self.inconclusive + self.bad
    }

    fn add(&mut self, run: &Run, hears: &mut impl FnMut(Stretch)) {
        match run.verdict {
            NodeVerdict::Good => self.good += 1,
            NodeVerdict::Bad => self.bad += 1,
            // These say nothing against what it was.
            NodeVerdict::Unsure => self.unsure += 1,
            NodeVerdict::Inconclusive => self.inconclusive += 1,
        }
        if !matches!(run.verdict, NodeVerdict::Good | NodeVerdict::Bad) {
            return;
        }
        if let Some(now) = &mut self.now
            && now.verdict == run.verdict
        {
            now.to = run.at;
            now.runs += 1;
            return;
        }
        self.changes += u64::from(self.now.is_some());
        self.end(hears);
        self.now = Some(Stretch {
            verdict: run.verdict,
            from: run.at,
            to: run.at,
            runs: 1,
        });
    }

    /// Ends the present stretch.
    fn end(&mut self, hears: &mut impl FnMut(Stretch)) {
        let Some(ended) = self.now.take() else {
            return;
        };
        hears(ended);
        let longest = match ended.verdict {
            NodeVerdict::Good => &mut self.longest_good,
            _ => &mut self.longest_bad,
        };
        if longest.is_none_or(|longest| ended.length() > longest.length()) {
            *longest = Some(ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use NodeVerdict::{Bad, Good, Inconclusive, Unsure};

    const HOUR: f64 = 3600.0;

    fn run(hour: u32, verdict: NodeVerdict) -> Run {
        Run {
            at: 1e9 + HOUR * f64::from(hour),
            every: HOUR,
            verdict,
            sleeps: 100_000,
            late: 0,
            ours: 0,
            stolen: 0,
            p99_9: 1,
            max: 2,
        }
    }

    fn history(runs: &[(u32, NodeVerdict)]) -> History {
        let runs: Vec<_> = runs
            .iter()
            .map(|(hour, verdict)| run(*hour, *verdict))
            .collect();
        History::of(&runs)
    }

    fn hours(stretch: Option<Stretch>) -> Option<(NodeVerdict, f64, f64, u64)> {
        let hour = |at: f64| (at - 1e9) / HOUR;
        stretch.map(|it| (it.verdict, hour(it.from), hour(it.to), it.runs))
    }

    #[test]
    fn a_node_keeps_its_verdict_until_a_decisive_run() {
        let found = [
            Good,
            Good,
            Unsure,
            Good,
            Inconclusive,
            Bad,
            Bad,
            Unsure,
            Good,
        ];
        let runs: Vec<_> = (0..).zip(found).collect();
        let history = history(&runs);
        assert_eq!((history.runs(), history.changes, history.gaps), (9, 2, 0));
        assert_eq!((history.good, history.bad), (4, 2));
        assert_eq!((history.unsure, history.inconclusive), (2, 1));
        assert_eq!(hours(history.now), Some((Good, 8.0, 8.0, 1)));
        assert_eq!(hours(history.longest_good), Some((Good, 0.0, 3.0, 3)));
        assert_eq!(hours(history.longest_bad), Some((Bad, 5.0, 6.0, 2)));
    }

    #[test]
    fn gaps_between_runs_belong_to_no_stretch() {
        let found = [
            (0, Bad),
            (1, Bad),
            (3, Bad),
            (6, Bad),
            (7, Bad),
            (5, Bad),
            (6, Good),
        ];
        let history = history(&found);
        assert_eq!((history.gaps, history.changes), (2, 1));
        assert_eq!(hours(history.longest_bad), Some((Bad, 0.0, 3.0, 3)));
        // A stretch that goes on may be the longest.
        assert_eq!(hours(history.longest_good), Some((Good, 6.0, 6.0, 1)));
    }

    #[test]
    fn each_stretch_is_reported_once() {
        let found = [Good, Good, Bad, Unsure, Good, Good];
        let runs: Vec<_> = (0..)
            .zip(found)
            .map(|(hour, verdict)| run(hour, verdict))
            .collect();
        let mut told = Vec::new();
        let history = History::told(&runs, &mut |stretch| told.push(hours(Some(stretch))));
        let wanted = [(Good, 0.0, 1.0, 2), (Bad, 2.0, 2.0, 1), (Good, 4.0, 5.0, 2)];
        assert_eq!(told, wanted.map(Some));
        assert_eq!(history, History::of(&runs));
    }

    #[test]
    fn an_empty_history_has_no_verdict() {
        assert_eq!(history(&[]), History::default());
        let unsure = history(&[(0, Unsure), (1, Inconclusive)]);
        assert_eq!((unsure.runs(), unsure.now), (2, None));
    }

    #[test]
    fn a_run_is_a_short_line() {
        let late = Run {
            at: 1_790_000_000.0,
            sleeps: 600_000,
            late: 1_000,
            ours: 100,
            stolen: 900,
            p99_9: 30_000_000,
            max: 123_456_789,
            ..run(0, Inconclusive)
        };
        let line = serde_json::to_string(&late).unwrap();
        assert!(line.len() < 160, "{} bytes: {line}", line.len());
        assert_eq!(serde_json::from_str::<Run>(&line).unwrap(), late);
    }
}
