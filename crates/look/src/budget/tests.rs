use super::*;

const LIMIT: Nanos = Nanos::from_millis(10);
const TICK: u64 = 50;

fn ms(time: u64) -> Nanos {
    Nanos::from_millis(time)
}

/// The programs that are attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Attached {
    packets: bool,
    interrupts: bool,
    waits: bool,
}

impl Attached {
    const ALL: Self = Self {
        packets: true,
        interrupts: true,
        waits: true,
    };
    const NONE: Self = Self {
        packets: false,
        interrupts: false,
        waits: false,
    };
}

/// A host with programs of a given cost, in virtual time.
struct Host {
    budget: Budget,
    now: Nanos,
    attached: Attached,
    is_counted: bool,
    /// The run time of the programs of packets.
    ran: Nanos,
    /// The cost of the programs of soft interrupts, in millionths of a core, and their run time.
    interrupts: u64,
    interrupts_ran: Nanos,
    /// The run time of the programs of waits.
    waits_ran: Nanos,
    /// The CPU time of the process, in millionths of a core.
    own: u64,
    steps: usize,
}

impl Host {
    fn new() -> Self {
        Self {
            budget: Budget::new(LIMIT, ms(0)),
            now: ms(0),
            attached: Attached::ALL,
            is_counted: false,
            ran: ms(0),
            interrupts: 0,
            interrupts_ran: ms(0),
            waits_ran: ms(0),
            own: 0,
            steps: 0,
        }
    }

    /// Passes a time in which the programs cost these parts of a core, in millionths.
    fn pass(&mut self, time: Nanos, waits: u64, packets: u64) {
        let end = self.now + time;
        while self.now < end {
            while let Some(step) = self.budget.poll(self.now) {
                self.take(step, waits, packets);
            }
            self.now += ms(TICK);
            if self.attached.packets {
                self.ran += Nanos(TICK * packets);
            }
            if self.attached.waits {
                self.waits_ran += Nanos(TICK * waits);
            }
            if self.attached.interrupts {
                self.interrupts_ran += Nanos(TICK * self.interrupts);
            }
            self.budget
                .spend(Nanos(self.now.0 / 1_000_000 * self.own), self.now);
        }
    }

    fn take(&mut self, step: Step, waits: u64, packets: u64) {
        self.steps += 1;
        let before = (self.attached, self.is_counted);
        match step {
            Step::Attach => self.attached = Attached::ALL,
            Step::Detach => {
                self.attached.packets = false;
                self.attached.interrupts = self.budget.keeps_interrupts();
            }
            Step::DetachInterrupts => self.attached.interrupts = false,
            Step::DetachWaits => self.attached = Attached::NONE,
            Step::BeginCount => self.is_counted = true,
            Step::EndCount => self.is_counted = false,
        }
        assert_ne!(before, (self.attached, self.is_counted), "{step:?}");
        assert!(self.attached.interrupts || !self.is_counted);
        if step == Step::EndCount {
            let cost = Cost {
                time: ms(TICK),
                waits: Nanos(TICK * waits),
                interrupts: Nanos(TICK * self.interrupts),
                packets: Nanos(TICK * if self.attached.packets { packets } else { 0 }),
            };
            self.budget.report(Some(cost), self.now);
        }
    }

    /// The run time of all programs in a second, in nanoseconds, in the last `time`.
    fn cost(&self, time: Nanos) -> u64 {
        let ran = self.ran + self.waits_ran + self.interrupts_ran;
        ran.0 / (time.0 / 1_000_000_000)
    }

    /// The part of the last `time` in which the programs were attached, in thousandths.
    fn attached(&self, time: Nanos) -> u64 {
        let from = self.now.saturating_sub(time);
        self.budget.packets().attached(from, self.now).0 * 1_000 / time.0
    }
}

#[test]
fn a_host_within_the_budget_is_examined_all_the_time() {
    let mut host = Host::new();
    host.pass(ms(60_000), 4_000, 6_000);
    assert_eq!(host.attached(ms(60_000)), 1_000);
    assert!(host.budget.packets().covers(ms(1), ms(60_000)));
    assert!((110..=120).contains(&host.steps), "{}", host.steps);
}

#[test]
fn a_host_above_the_budget_is_examined_for_part_of_the_time() {
    for (waits, packets, part) in [(0, 20_000, 500), (4_000, 24_000, 250), (0, 100_000, 100)] {
        let mut host = Host::new();
        host.pass(ms(60_000), waits, packets);
        let attached = host.attached(ms(60_000));
        assert!(attached.abs_diff(part) <= 15, "{attached} {part}");
        // The cost of all programs is the budget, within the length of a tick.
        let cost = host.ran.0 / 60 + waits * 1_000;
        assert!(cost <= LIMIT.0 * 11 / 10, "{cost}");
    }
}

#[test]
fn a_cost_that_cannot_be_met_leaves_the_shortest_part() {
    for (waits, packets) in [(0, 5_000_000), (50_000, 200_000)] {
        let mut host = Host::new();
        host.pass(ms(160_000), waits, packets);
        let attached = host.attached(ms(160_000));
        assert!((14..=18).contains(&attached), "{attached}");
    }
}

#[test]
fn programs_of_waits_that_take_the_budget_leave_an_eighth_of_it() {
    let mut host = Host::new();
    host.pass(ms(60_000), 50_000, 10_000);
    let attached = host.attached(ms(60_000));
    assert!(attached.abs_diff(125) <= 15, "{attached}");
    assert!(host.cost(ms(60_000)) <= LIMIT.0 * 11 / 10);
}

/// Each case has the parts in which packets and waits are examined, in thousandths.
#[test]
fn waits_are_examined_for_a_part_of_the_time_if_they_take_too_much() {
    for (waits, packets, own, parts) in [
        // An eighth of the budget is left to packets, and the rest to waits.
        (20_000, 10_000, 0, [125, 438]),
        // With few packets, all are examined together.
        (20_000, 1_000, 0, [476, 476]),
        (20_000, 0, 4_000, [300, 300]),
        // Packets are too costly: they are examined for the shortest part.
        (7_500, 160_000, 2_800, [16, 627]),
        // Waits alone take less than the budget, and all with it.
        (8_000, 20_000, 0, [100, 1_000]),
    ] {
        let mut host = Host::new();
        host.own = own;
        host.pass(ms(30_000), waits, packets);
        let from = host.now;
        (host.ran, host.waits_ran) = (ms(0), ms(0));
        host.pass(ms(160_000), waits, packets);
        let waits_part = host.budget.waits().attached(from, host.now).0 * 1_000 / 160_000_000_000;
        for (seen, wanted) in [host.attached(ms(160_000)), waits_part]
            .into_iter()
            .zip(parts)
        {
            assert!(
                seen.abs_diff(wanted) <= 30,
                "{waits} {packets}: {seen} {wanted}"
            );
        }
        assert!(host.cost(ms(160_000)) + own * 1_000 <= LIMIT.0 * 11 / 10);
    }
}

#[test]
fn interrupts_are_not_timed_while_waits_are_not_examined() {
    let mut host = Host::new();
    host.interrupts = 500;
    host.pass(ms(60_000), 12_000, 60_000);
    let [waits, interrupts] = [host.budget.waits(), host.budget.interrupts()]
        .map(|spans| spans.attached(ms(0), ms(60_000)));
    assert!(
        interrupts <= waits && waits < ms(50_000),
        "{interrupts:?} {waits:?}"
    );
    assert!(host.cost(ms(60_000)) <= LIMIT.0 * 11 / 10);
}

#[test]
fn the_cpu_time_of_the_process_is_a_part_of_the_budget() {
    let mut host = Host::new();
    host.own = 4_000;
    host.pass(ms(20_000), 1_000, 20_000);
    host.ran = ms(0);
    host.pass(ms(60_000), 1_000, 20_000);
    // 5 of 20 ms in a second are left.
    let attached = host.attached(ms(60_000));
    assert!(attached.abs_diff(250) <= 25, "{attached}");
    let cost = host.ran.0 / 60 + (1_000 + host.own) * 1_000;
    assert!(cost <= LIMIT.0 * 11 / 10, "{cost}");
}

#[test]
fn a_busy_first_second_of_the_process_is_not_counted() {
    let mut budget = Budget::new(LIMIT, ms(0));
    budget.spend(ms(700), ms(500));
    budget.spend(ms(900), ms(1_000));
    assert_eq!(budget.cost(), ms(0));
    budget.spend(ms(902), ms(2_000));
    assert_eq!(budget.cost(), ms(2));
    // Ten seconds are averaged.
    for second in 3..=30 {
        budget.spend(ms(902), ms(second * 1_000));
    }
    assert_eq!(budget.cost(), ms(0));
    // At most half of the budget is charged.
    budget.spend(ms(1_902), ms(31_000));
    assert_eq!(budget.cost(), ms(5));
}

#[test]
fn cheap_soft_interrupts_are_timed_while_packets_are_not_examined() {
    let mut host = Host::new();
    host.interrupts = 1_000;
    host.pass(ms(60_000), 2_000, 70_000);
    // 7 of 70 ms in a second are left to packets.
    let attached = host.attached(ms(60_000));
    assert!(attached.abs_diff(100) <= 15, "{attached}");
    assert!(host.budget.interrupts().covers(ms(0), ms(60_000)));
    let cost = (host.ran.0 + host.interrupts_ran.0) / 60 + 2_000_000;
    assert!(cost <= LIMIT.0 * 11 / 10, "{cost}");
}

#[test]
fn costly_soft_interrupts_are_timed_with_packets_alone() {
    let mut host = Host::new();
    host.interrupts = 20_000;
    host.pass(ms(60_000), 2_000, 60_000);
    // 8 of 80 ms in a second.
    let attached = host.attached(ms(60_000));
    assert!(attached.abs_diff(100) <= 15, "{attached}");
    let timed = host.budget.interrupts().attached(ms(0), ms(60_000));
    assert_eq!(timed, host.budget.packets().attached(ms(0), ms(60_000)));
    // They become cheap, and are timed all the time, until they are costly again: also within a pause.
    host.interrupts = 1_000;
    host.pass(ms(60_000), 2_000, 60_000);
    assert!(host.budget.interrupts().covers(ms(90_000), ms(120_000)));
    for is_attached in [false, true].repeat(3) {
        while host.attached.packets == is_attached {
            host.pass(ms(TICK), 2_000, 500_000);
        }
    }
    host.interrupts = 20_000;
    host.pass(ms(3_000), 2_000, 500_000);
    assert!(!host.attached.packets && !host.attached.interrupts);
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
    let packets = host.budget.packets();
    assert!(packets.covers(ms(10), ms(240)));
    assert!(
        !packets.covers(ms(10), ms(260)),
        "it was detached at 250 ms"
    );
    assert!(!packets.covers(ms(260), ms(270)));
    assert!(
        !packets.covers(ms(490), ms(510)),
        "it was attached at 500 ms"
    );
    assert!(packets.covers(ms(510), ms(740)));
    assert_eq!(packets.attached(ms(200), ms(600)), ms(150));
    assert_eq!(host.budget.cost(), ms(20));
    host.budget.forget(ms(600));
    let attached = host.budget.packets().attached(ms(0), ms(600));
    assert_eq!(attached, ms(100));
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
