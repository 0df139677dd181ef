//! The search for the worst timing of senders.
//!
//! If flows meet after their first queue, starting together is not the worst case: an early burst
//! has left before the other one arrives. For each flow the search shifts the other flows so that
//! the end of their burst reaches the first common port just before the flow's own slowest frame.
//! The shift changes all waiting times before, so it is repeated a few times; then random shifts
//! are tried. The measurements of all runs count, for every flow and port.

use super::calc::{Calc, Observed};
use super::{Fabric, Frame, NodeId, Observer, Pattern, Time};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// Search for the worst timing of each flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Effort {
    /// Restarts from the times at which others meet the flow.
    pub search_restarts: u32,
    /// Random shifts of another flow.
    pub random_trials: u32,
}

/// A search and its measurements.
pub(crate) struct Search<'c, 'n> {
    calc: &'c Calc<'n>,
    /// Change of every network before it runs: none, except in tests.
    change: &'c dyn Fn(&mut Fabric),
    random: &'c mut Pcg64Mcg,
    observed: Observed,
    /// Number of the last frame of each flow's burst.
    ends: Vec<u32>,
    /// First position of each flow in the routes, and the end of all.
    places: Vec<usize>,
}

/// Arrival times of one frame of each flow at each node on its path.
struct Marks {
    numbers: Vec<u32>,
    /// Times, by position in the routes.
    times: Vec<Time>,
}

impl Observer for Marks {
    fn arrives(&mut self, now: Time, _: NodeId, frame: &Frame) {
        if self.numbers[frame.flow as usize] == frame.number {
            self.times[frame.next as usize - 1] = now;
        }
    }
}

impl<'c, 'n> Search<'c, 'n> {
    pub(crate) fn new(
        calc: &'c Calc<'n>,
        change: &'c dyn Fn(&mut Fabric),
        random: &'c mut Pcg64Mcg,
    ) -> Self {
        let network = calc.network();
        let mut places = Vec::new();
        let mut place = 0;
        for flow in network.flows() {
            places.push(place);
            place += flow.path.len() + 1;
        }
        places.push(place);
        let end = |burst: u64| (burst / network.frame().0 - 1) as u32;
        Self {
            calc,
            change,
            random,
            observed: Observed::default(),
            ends: network
                .flows()
                .iter()
                .map(|flow| end(flow.burst.0))
                .collect(),
            places,
        }
    }

    /// Runs all steps: all flows together, each flow met by the others, random senders.
    pub(crate) fn all(mut self, effort: Effort) -> Observed {
        let flows = self.ends.len();
        let together = vec![Time::ZERO; flows];
        self.run(&together, Pattern::Greedy, &mut ());
        self.run(&together, Pattern::Random, &mut ());
        for target in 0..flows {
            self.meet(target, effort);
        }
        self.observed
    }

    /// Runs the network once. Returns each flow's longest delay and the number of its frame.
    fn run(
        &mut self,
        starts: &[Time],
        pattern: Pattern,
        observer: &mut impl Observer,
    ) -> Vec<(Time, u32)> {
        let mut fabric = self.calc.fabric(starts, pattern, false);
        (self.change)(&mut fabric);
        let mut run = fabric.start(self.random.random());
        run.run(Time::NEVER, observer);
        self.observed.add(&run);
        let flows = run.flows().iter();
        flows.map(|flow| (flow.longest, flow.slowest)).collect()
    }

    /// Searches for the worst timing of the others for one flow.
    fn meet(&mut self, target: usize, effort: Effort) {
        // The others may begin this much earlier.
        let base = self.calc.horizon();
        let mut starts = vec![base; self.ends.len()];
        let mut slowest = self.ends[target];
        let mut best = (Time::ZERO, starts.clone());
        for _ in 0..=effort.search_restarts {
            let mut marks = Marks {
                numbers: self.ends.clone(),
                times: vec![Time::NEVER; self.places[self.ends.len()]],
            };
            marks.numbers[target] = slowest;
            let (longest, number) = self.run(&starts, Pattern::Greedy, &mut marks)[target];
            if longest > best.0 {
                best = (longest, starts.clone());
            }
            slowest = number;
            self.shift(target, &marks, &mut starts);
        }
        for trial in 0..effort.random_trials {
            let mut starts = best.1.clone();
            let other = self.random.random_range(0..starts.len());
            // Coarse at first, then finer.
            let most = (base.0 >> trial.min(40)).max(2);
            let moved = starts[other].0 + self.random.random_range(0..most);
            starts[other] = Time(moved.saturating_sub(most / 2));
            let (longest, _) = self.run(&starts, Pattern::Greedy, &mut ())[target];
            if longest > best.0 {
                best = (longest, starts);
            }
        }
    }

    /// Shifts the others so that the ends of their bursts arrive at the first port that they share
    /// with the target just before its frame.
    fn shift(&self, target: usize, marks: &Marks, starts: &mut [Time]) {
        let flows = self.calc.network().flows();
        let path = &flows[target].path;
        for (index, flow) in flows.iter().enumerate() {
            let meeting = path.iter().enumerate().find_map(|(hop, port)| {
                let theirs = flow.path.iter().position(|it| it == port)?;
                Some((hop, theirs))
            });
            let Some((ours, theirs)) = meeting.filter(|_| index != target) else {
                continue;
            };
            let ours = marks.times[self.places[target] + ours];
            let theirs = marks.times[self.places[index] + theirs];
            if ours < Time::NEVER && theirs < Time::NEVER {
                // Of two frames at the same instant either may be first; a shift of one picosecond
                // decides it.
                let moved = (starts[index].0 + ours.0).saturating_sub(theirs.0 + 1);
                starts[index] = Time(moved);
            }
        }
    }
}
