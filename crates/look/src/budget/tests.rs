use super::*;

const LIMIT: Nanos = Nanos::from_millis(10);
const TICK: u64 = 50;

fn ms(time: u64) -> Nanos {
    Nanos::from_millis(time)
}

/// A host with programs of a given cost, in virtual time.
struct Host {
    budget: Budget,
    now: Nanos,
    is_attached: bool,
    is_counted: bool,
    /// The run time of the costly programs.
    ran: Nanos,
    steps: usize,
}

impl Host {
    fn new() -> Self {
        Self {
            budget: Budget::new(LIMIT, ms(0)),
            now: ms(0),
            is_attached: true,
            is_counted: false,
            ran: ms(0),
            steps: 0,
        }
    }

    /// Passes a time in which the programs cost these parts of a core, in millionths.
    fn pass(&mut self, time: Nanos, steady: u64, costly: u64) {
        let end = self.now + time;
        while self.now < end {
            while let Some(step) = self.budget.poll(self.now) {
                self.take(step, steady, costly);
            }
            self.now += ms(TICK);
            if self.is_attached {
                self.ran += Nanos(TICK * costly);
            }
        }
    }

    fn take(&mut self, step: Step, steady: u64, costly: u64) {
        self.steps += 1;
        let changed = match step {
            Step::Attach => !std::mem::replace(&mut self.is_attached, true),
            Step::Detach => std::mem::replace(&mut self.is_attached, false),
            Step::BeginCount => !std::mem::replace(&mut self.is_counted, true),
            Step::EndCount => std::mem::replace(&mut self.is_counted, false),
        };
        assert!(changed, "{step:?}");
        assert!(self.is_attached || !self.is_counted);
        if step == Step::EndCount {
            let cost = Cost {
                time: ms(TICK),
                steady: Nanos(TICK * steady),
                costly: Nanos(TICK * costly),
            };
            self.budget.report(Some(cost), self.now);
        }
    }

    /// The part of the last `time` in which the programs were attached, in thousandths.
    fn attached(&self, time: Nanos) -> u64 {
        let from = self.now.saturating_sub(time);
        self.budget.attached(from, self.now).0 * 1_000 / time.0
    }
}

#[test]
fn a_host_within_the_budget_is_examined_all_the_time_and_counted_once_a_second() {
    let mut host = Host::new();
    host.pass(ms(60_000), 4_000, 6_000);
    assert_eq!(host.attached(ms(60_000)), 1_000);
    assert!(host.budget.covers(ms(1), ms(60_000)));
    assert!((110..=120).contains(&host.steps), "{}", host.steps);
}

#[test]
fn a_host_above_the_budget_is_examined_for_the_part_of_the_time_that_it_allows() {
    for (steady, costly, part) in [(0, 20_000, 500), (4_000, 24_000, 250), (0, 100_000, 100)] {
        let mut host = Host::new();
        host.pass(ms(60_000), steady, costly);
        let attached = host.attached(ms(60_000));
        assert!(attached.abs_diff(part) <= 15, "{attached} {part}");
        // The cost of all programs is the budget, within the length of a tick.
        let cost = host.ran.0 / 60 + steady * 1_000;
        assert!(cost <= LIMIT.0 * 11 / 10, "{cost}");
    }
}

#[test]
fn a_cost_that_cannot_be_met_leaves_the_shortest_part() {
    for (steady, costly) in [(0, 5_000_000), (50_000, 200_000)] {
        let mut host = Host::new();
        host.pass(ms(160_000), steady, costly);
        let attached = host.attached(ms(160_000));
        assert!((14..=18).contains(&attached), "{attached}");
    }
}

#[test]
fn steady_programs_that_take_the_budget_leave_a_quarter_of_it() {
    let mut host = Host::new();
    host.pass(ms(60_000), 50_000, 10_000);
    let attached = host.attached(ms(60_000));
    assert!(attached.abs_diff(250) <= 15, "{attached}");
}

#[test]
fn a_single_large_count_changes_nothing() {
    let mut host = Host::new();
    for _ in 0..20 {
        host.pass(ms(900), 0, 5_000);
        // One count of each second, or none, sees this.
        host.pass(ms(TICK), 0, 80_000);
    }
    assert_eq!(host.attached(ms(19_000)), 1_000);
}

#[test]
fn load_that_comes_and_goes_changes_the_part() {
    let mut host = Host::new();
    host.pass(ms(10_000), 0, 1_000);
    assert_eq!(host.attached(ms(10_000)), 1_000);
    // It was attached for a second before the first count that sees it, and pauses for three.
    host.pass(ms(20_000), 0, 40_000);
    let loaded = host.attached(ms(15_000));
    assert!(loaded.abs_diff(250) <= 30, "{loaded}");
    // Some counts later it is examined all the time again.
    host.pass(ms(10_000), 0, 1_000);
    assert_eq!(host.attached(ms(7_000)), 1_000);
}

#[test]
fn an_interval_is_covered_if_the_programs_were_attached_in_all_of_it() {
    let mut host = Host::new();
    host.pass(ms(2_000), 0, 20_000);
    let budget = &host.budget;
    assert!(budget.covers(ms(10), ms(240)));
    assert!(!budget.covers(ms(10), ms(260)), "it was detached at 250 ms");
    assert!(!budget.covers(ms(260), ms(270)));
    assert!(
        !budget.covers(ms(490), ms(510)),
        "it was attached at 500 ms"
    );
    assert!(budget.covers(ms(510), ms(740)));
    assert_eq!(budget.attached(ms(200), ms(600)), ms(150));
    assert_eq!(host.budget.cost(), ms(20));
    host.budget.forget(ms(600));
    assert_eq!(host.budget.attached(ms(0), ms(600)), ms(100));
}

#[test]
fn without_a_count_the_programs_stay_attached() {
    let mut budget = Budget::new(LIMIT, ms(0));
    assert_eq!(budget.poll(ms(0)), Some(Step::BeginCount));
    assert_eq!(budget.poll(ms(0)), None);
    assert_eq!(budget.poll(ms(70)), Some(Step::EndCount));
    budget.report(None, ms(70));
    assert_eq!(budget.poll(ms(1_069)), None);
    assert_eq!(budget.poll(ms(1_070)), Some(Step::BeginCount));
}
