mod quota;

use super::*;
use crate::config::Config;
use crate::witness::{CpuTime, NoWitness, QuotaTime, ThreadTime};
use proptest::prelude::*;

const MS: fn(u64) -> Nanos = Nanos::from_millis;
const SLEEP: Nanos = Nanos::from_micros(108);

fn rule(stop: Stop) -> Rule {
    Rule::new(Config {
        stop,
        ..Config::default()
    })
    .unwrap()
}

const EARLY: Stop = Stop::Early { confidence: 0.95 };

/// A guest in virtual time: the content of its `/proc`, and a probe that sleeps in it.
struct Guest {
    probe: Probe,
    now: Nanos,
    thread: Option<ThreadTime>,
    cpu: Option<CpuTime>,
    suspended: Nanos,
    quota: Option<QuotaTime>,
    /// The share of the vCPU, in percent, that other threads use.
    busy: u64,
    /// Number of readings.
    asked: u64,
}

impl Witness for Guest {
    fn thread(&mut self) -> Option<ThreadTime> {
        self.asked += 1;
        self.thread
    }
    fn cpu(&mut self) -> Option<CpuTime> {
        let tick = |time: Nanos| Nanos(time.as_nanos() / 10_000_000 * 10_000_000);
        self.cpu.map(|cpu| CpuTime {
            busy: tick(cpu.busy),
            steal: cpu.steal.map(tick),
        })
    }
    fn suspended(&mut self) -> Option<Nanos> {
        Some(self.suspended)
    }
    fn quota(&mut self) -> Option<QuotaTime> {
        self.quota
    }
}

impl Guest {
    fn new(stop: Stop) -> Self {
        let mut guest = Self {
            probe: Probe::new(rule(stop), MS(5), &mut NoWitness),
            now: MS(5),
            thread: Some(ThreadTime::default()),
            cpu: Some(CpuTime {
                busy: MS(1000),
                steal: Some(MS(1234)),
            }),
            suspended: MS(77),
            quota: None,
            busy: 0,
            asked: 0,
        };
        guest.restart(stop);
        guest
    }

    fn restart(&mut self, stop: Stop) {
        self.probe = Probe::new(rule(stop), self.now, self);
    }

    /// One sleep that takes so long.
    fn sleep(&mut self, takes: Nanos) -> Option<ReasonedVerdict> {
        let begin = self.now;
        self.now = begin + takes;
        if let Some(thread) = &mut self.thread {
            thread.run += Nanos(3_000);
            thread.wait += Nanos(2_000);
        }
        if let Some(cpu) = &mut self.cpu {
            cpu.busy += Nanos(3_000 + takes.as_nanos() * self.busy / 100);
        }
        let sample = Sample {
            begin,
            end: self.now,
        };
        let mut probe = self.probe.clone();
        let verdict = probe.sample(sample, self);
        self.probe = probe;
        verdict
    }

    fn sleeps(&mut self, count: u64) -> Option<ReasonedVerdict> {
        (0..count).find_map(|_| self.sleep(SLEEP))
    }

    fn late(&mut self) -> Option<ReasonedVerdict> {
        self.sleep(MS(30))
    }

    fn stolen(&mut self) -> Option<ReasonedVerdict> {
        if let Some(CpuTime { steal, .. }) = &mut self.cpu {
            *steal = steal.map(|steal| steal + MS(29));
        }
        self.late()
    }

    /// A sleep whose end the quota of the group puts off; the run-queue wait grows meanwhile.
    fn throttled(&mut self) -> Option<ReasonedVerdict> {
        if let Some(quota) = &mut self.quota {
            quota.throttled += MS(29);
        }
        self.ours()
    }

    fn ours(&mut self) -> Option<ReasonedVerdict> {
        if let Some(thread) = &mut self.thread {
            thread.wait += MS(29);
        }
        self.late()
    }

    fn counts(&self) -> [u64; 3] {
        let counts = self.probe.counts();
        [counts.ours, counts.stolen, counts.unexplained]
    }
}

fn line(verdict: Option<ReasonedVerdict>) -> String {
    verdict.map_or_else(|| "none".into(), |verdict| verdict.to_string())
}

#[test]
fn a_quiet_node_is_good_after_a_fifth_of_the_run() {
    let mut guest = Guest::new(EARLY);
    assert_eq!(guest.sleeps(119_212), None);
    assert_eq!(
        line(guest.sleep(SLEEP)),
        "GOOD  0 of 119213 sleeps late; 95 % sure without the rest"
    );
    // At 108 us each.
    assert!(guest.now < Nanos::from_secs(14));
}

#[test]
fn an_exact_run_sleeps_to_the_end() {
    let mut guest = Guest::new(Stop::Exact);
    assert_eq!(guest.sleeps(599_999), None);
    assert_eq!(line(guest.sleep(SLEEP)), "GOOD  0 of 600000 sleeps late");
    assert!(guest.now < Nanos::from_secs(110));
}

#[test]
fn a_node_whose_neighbours_keep_the_cpu_is_bad_at_once() {
    let mut guest = Guest::new(EARLY);
    for _ in 0..65 {
        assert_eq!(guest.sleeps(100), None);
        assert_eq!(guest.stolen(), None);
    }
    assert_eq!(
        line(guest.stolen()),
        "BAD  66 of 6566 sleeps late, 66 of them stolen"
    );
    assert_eq!(guest.counts(), [0, 66, 0]);
}

#[test]
fn between_the_marks_the_verdict_needs_the_whole_run() {
    let mut guest = Guest::new(EARLY);
    for _ in 0..14 {
        assert_eq!(guest.stolen(), None);
    }
    assert_eq!(guest.sleeps(600_000 - 15), None);
    assert_eq!(line(guest.sleep(SLEEP)), "UNSURE  14 of 600000 sleeps late");
}

#[test]
fn each_late_sleep_counts_for_its_cause() {
    let mut guest = Guest::new(EARLY);
    for _ in 0..3 {
        guest.sleeps(250);
        guest.stolen();
        guest.sleeps(250);
        guest.ours();
        guest.sleeps(250);
        guest.late();
    }
    assert_eq!(guest.counts(), [3, 3, 3]);
}

#[test]
fn while_the_hypervisor_keeps_the_cpu_waiting_in_the_run_queue_is_its_fault() {
    let mut guest = Guest::new(EARLY);
    guest.sleeps(250);
    guest.thread.as_mut().unwrap().wait += MS(29);
    guest.stolen();
    assert_eq!(guest.counts(), [0, 1, 0]);
}

#[test]
fn steal_that_punctual_sleeps_lose_too_excuses_no_late_sleep() {
    let mut guest = Guest::new(EARLY);
    // A tenth of all time is stolen in small pieces.
    for _ in 0..40_000 {
        guest.cpu.as_mut().unwrap().steal.as_mut().unwrap().0 += 10_800;
        guest.sleep(SLEEP);
    }
    guest.sleeps(9_000);
    guest.late();
    assert_eq!(guest.counts(), [0, 0, 1]);
}

#[test]
fn a_guest_that_keeps_its_own_cpu_gets_no_verdict() {
    let mut guest = Guest::new(EARLY);
    for _ in 0..65 {
        guest.sleeps(10);
        assert_eq!(guest.ours(), None);
    }
    assert_eq!(
        line(guest.ours()),
        "INCONCLUSIVE  guest busy, CPU 0 %: 66 of 66 late may be its own"
    );
}

#[test]
fn own_late_sleeps_do_not_hide_bad_neighbours() {
    let mut guest = Guest::new(EARLY);
    for _ in 0..60 {
        assert_eq!(guest.ours(), None);
    }
    let verdict = (0..66).find_map(|_| guest.stolen());
    assert_eq!(
        line(verdict),
        "BAD  66 of 126 sleeps late, 66 of them stolen"
    );
}

#[test]
fn own_late_sleeps_that_decide_the_verdict_are_inconclusive() {
    let mut guest = Guest::new(Stop::Exact);
    for _ in 0..14 {
        guest.ours();
    }
    assert_eq!(
        line(guest.sleeps(600_000)),
        "INCONCLUSIVE  guest busy, CPU 0 %: 14 of 14 late may be its own"
    );
}

#[test]
fn unexplained_late_sleeps_in_a_busy_guest_are_inconclusive() {
    let mut guest = Guest::new(EARLY);
    guest.busy = 60;
    guest.sleeps(20_000);
    let verdict = (0..66).find_map(|_| guest.late());
    assert_eq!(
        line(verdict),
        "INCONCLUSIVE  guest busy, CPU 60 %: 66 of 66 late may be its own"
    );
    let mut guest = Guest::new(EARLY);
    guest.busy = 60;
    guest.sleeps(20_000);
    let verdict = (0..66).find_map(|_| guest.stolen());
    assert!(line(verdict).starts_with("BAD"));
}

#[test]
fn a_busy_guest_without_late_sleeps_is_good() {
    let mut guest = Guest::new(EARLY);
    guest.busy = 90;
    assert!(line(guest.sleeps(600_000)).starts_with("GOOD"));
}

#[test]
fn the_probes_own_work_is_not_the_guests() {
    let mut guest = Guest::new(EARLY);
    guest.sleeps(50_000);
    // It computes 3 us of each 108.
    assert!(guest.probe.busy().unwrap() < 0.01);
    guest.busy = 40;
    guest.sleeps(50_000);
    assert!((guest.probe.busy().unwrap() - 0.2).abs() < 0.02);
}

#[test]
fn without_readings_every_late_sleep_counts_with_a_note() {
    let mut probe = Probe::new(rule(EARLY), Nanos::ZERO, &mut NoWitness);
    let mut now = Nanos::ZERO;
    let verdict = (0..66).find_map(|_| {
        let begin = now;
        now += MS(12);
        probe.sample(Sample { begin, end: now }, &mut NoWitness)
    });
    assert_eq!(line(verdict), "BAD  66 of 66 sleeps late, 0 of them stolen");
    assert_eq!(probe.notes(), [Note::NoWait, Note::NoCpu]);
}

#[test]
fn steal_that_goes_back_is_not_believed_any_more() {
    let mut guest = Guest::new(EARLY);
    guest.sleeps(10);
    guest.stolen();
    assert_eq!(guest.counts(), [0, 1, 0]);
    guest.cpu.as_mut().unwrap().steal = Some(MS(10));
    guest.sleeps(10_000);
    guest.stolen();
    assert_eq!(guest.counts(), [0, 0, 2]);
    assert_eq!(guest.probe.notes(), [Note::Steal(StealFault::Backwards)]);
}

#[test]
fn steal_that_is_not_believed_does_not_excuse_this_guest() {
    let mut guest = Guest::new(EARLY);
    guest.sleeps(10_000);
    guest.cpu.as_mut().unwrap().steal = Some(Nanos::from_secs(1000));
    guest.ours();
    assert_eq!(guest.counts(), [1, 0, 0]);
}

#[test]
fn more_steal_than_time_is_not_believed() {
    let mut guest = Guest::new(EARLY);
    guest.sleeps(10_000);
    guest.cpu.as_mut().unwrap().steal = Some(Nanos::from_secs(1000));
    guest.late();
    assert_eq!(guest.counts(), [0, 0, 1]);
    assert_eq!(guest.probe.notes(), [Note::Steal(StealFault::MoreThanTime)]);
}

#[test]
fn a_hypervisor_that_reports_no_steal_is_named() {
    for steal in [None, Some(Nanos::ZERO)] {
        let mut guest = Guest::new(EARLY);
        guest.cpu.as_mut().unwrap().steal = steal;
        guest.restart(EARLY);
        guest.late();
        assert_eq!(guest.counts(), [0, 0, 1]);
        assert_eq!(guest.probe.notes(), [Note::NoSteal]);
    }
}

#[test]
fn a_clock_that_goes_back_ends_the_run() {
    let mut guest = Guest::new(EARLY);
    guest.sleeps(10);
    guest.now = guest.now.saturating_sub(Nanos(500));
    assert_eq!(
        line(guest.sleep(SLEEP)),
        "INCONCLUSIVE  the clock went back by 500ns"
    );
    let mut probe = Probe::new(rule(EARLY), Nanos::ZERO, &mut NoWitness);
    let backwards = Sample {
        begin: Nanos(9),
        end: Nanos(2),
    };
    assert_eq!(
        line(probe.sample(backwards, &mut NoWitness)),
        "INCONCLUSIVE  the clock went back by 7ns"
    );
}

#[test]
fn a_guest_that_was_suspended_gets_no_verdict() {
    let mut guest = Guest::new(EARLY);
    guest.sleeps(10_000);
    // Two clocks cannot be read at one moment.
    guest.suspended += Nanos::from_micros(90);
    assert_eq!(guest.sleeps(10_000), None);
    guest.suspended += Nanos::from_secs(2);
    assert_eq!(
        line(guest.sleeps(20_000)),
        "INCONCLUSIVE  the guest was suspended for 2000 ms"
    );
}

#[test]
fn a_pause_is_one_late_sleep_and_is_named() {
    let mut guest = Guest::new(EARLY);
    guest.sleeps(10);
    let pause = Nanos::from_secs(12);
    assert_eq!(guest.sleep(pause), None);
    assert_eq!(guest.probe.counts().late, 1);
    assert_eq!(guest.probe.notes(), [Note::Pause(pause)]);
}

#[test]
fn a_run_that_takes_too_long_ends() {
    let mut guest = Guest::new(EARLY);
    let rule = Rule::new(Config {
        time_limit: Nanos::from_secs(10),
        ..Config::default()
    });
    guest.probe = Probe::new(rule.unwrap(), guest.now, &mut NoWitness);
    let verdict = (0..600_000).find_map(|_| guest.sleep(Nanos::from_micros(200)));
    assert_eq!(
        line(verdict),
        "INCONCLUSIVE  only 50000 of 600000 sleeps in 10s"
    );
}

#[test]
fn stretched_sleeps_end_the_run_by_its_time() {
    // Beside a neighbour that always computes, under a ratelimit of 1 ms.
    let mut guest = Guest::new(EARLY);
    let verdict = (0..600_000).find_map(|_| guest.sleep(Nanos::from_micros(1040)));
    assert_eq!(
        line(verdict),
        "GOOD  0 of 19105 sleeps late; 95 % sure without the rest"
    );
    assert!(guest.now < Nanos::from_secs(20));
    let mut guest = Guest::new(Stop::Exact);
    let verdict = (0..600_000).find_map(|_| guest.sleep(Nanos::from_micros(1040)));
    assert_eq!(line(verdict), "GOOD  0 of 96154 sleeps late");
}

#[test]
fn punctual_sleeps_are_sampled_every_10_ms() {
    let mut guest = Guest::new(EARLY);
    guest.sleeps(100_000);
    // Every 10 ms, where readings cost nothing.
    assert!((1000..=1081).contains(&guest.asked), "{}", guest.asked);
}

#[test]
fn expensive_readings_are_taken_less_often() {
    let mut guest = Guest::new(EARLY);
    let asked = |guest: &mut Guest| {
        let (from, before) = (guest.now, guest.asked);
        while guest.now < from + Nanos::from_secs(10) {
            let asked = guest.asked;
            guest.sleep(SLEEP);
            if guest.asked > asked {
                guest.now += Nanos::from_micros(200);
            }
        }
        guest.asked - before
    };
    guest.now += Nanos::from_micros(200);
    // 0.2 ms each: every 100 ms.
    let asked = asked(&mut guest);
    assert!((97..=101).contains(&asked), "{asked}");
}

/// A neighbour that computes for `busy` of each `period`, as a guest beside it sees it under Xen's
/// credit scheduler: the guest waits for up to a slice of 30 ms, then preempts, except in the
/// neighbour's first millisecond.
fn beside_a_hog(guest: &mut Guest, busy: Nanos, period: Nanos, lates: u64) {
    let slice = MS(30).min(busy);
    while guest.probe.counts().late < lates {
        let wake = guest.now + SLEEP;
        let at = Nanos(wake.as_nanos() % period.as_nanos());
        let takes = if at < slice {
            SLEEP + slice.since(at)
        } else if at < busy {
            Nanos::from_micros(1040)
        } else {
            SLEEP
        };
        if let Some(CpuTime { steal, .. }) = &mut guest.cpu {
            *steal = steal.map(|steal| steal + takes.since(SLEEP));
        }
        guest.sleep(takes);
    }
}

#[test]
fn late_sleeps_beside_a_neighbour_in_step_with_the_probe_are_stolen() {
    // Periods that are multiples of how often steal is read, and ones that are not.
    for (busy, period) in [
        (50, 100),
        (30, 100),
        (12, 100),
        (80, 100),
        (15, 20),
        (12, 40),
        (33, 77),
    ] {
        for phase in 0..period {
            let mut guest = Guest::new(EARLY);
            guest.now += MS(phase);
            guest.restart(EARLY);
            beside_a_hog(&mut guest, MS(busy), MS(period), 20);
            let [ours, stolen, unexplained] = guest.counts();
            assert!(
                stolen * 10 >= 20 * 9,
                "{busy} of {period} ms from {phase}: {ours}, {stolen}, {unexplained}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn an_exact_run_in_a_quiet_guest_matches_algorithm_1(
        durations in prop::collection::vec(prop_oneof![9 => 100_u64..9_999, 1 => 10_000_u64..40_000], 500),
        low in 0_u64..60, more in 0_u64..60,
    ) {
        let config = Config {
            samples: 500,
            low_mark: low,
            high_mark: low + more,
            stop: Stop::Exact,
            ..Config::default()
        };
        let late = durations.iter().filter(|us| **us >= 10_000).count() as u64;
        let rule = Rule::new(config).unwrap();
        let mut probe = Probe::new(rule.clone(), Nanos::ZERO, &mut NoWitness);
        let mut now = Nanos::ZERO;
        let verdict = durations.iter().find_map(|us| {
            let begin = now;
            now += Nanos::from_micros(*us);
            probe.sample(Sample { begin, end: now }, &mut NoWitness)
        });
        prop_assert_eq!(verdict.map(|verdict| verdict.outcome), Some(rule.answer(late)));
    }

    #[test]
    fn any_clocks_and_readings_yield_counts_that_add_up(
        samples in prop::collection::vec((any::<u64>(), any::<u64>()), 1..50),
        readings in prop::collection::vec(any::<[u64; 5]>(), 200),
    ) {
        struct Any(std::vec::IntoIter<[u64; 5]>);
        impl Witness for Any {
            fn thread(&mut self) -> Option<ThreadTime> {
                let [run, wait, ..] = self.0.next()?;
                Some(ThreadTime { run: Nanos(run), wait: Nanos(wait) })
            }
            fn cpu(&mut self) -> Option<CpuTime> {
                let [_, _, busy, steal, some] = self.0.next()?;
                Some(CpuTime { busy: Nanos(busy), steal: (some % 2 == 0).then_some(Nanos(steal)) })
            }
            fn suspended(&mut self) -> Option<Nanos> {
                Some(Nanos(self.0.next()?[0]))
            }
        }
        let mut witness = Any(readings.into_iter());
        let mut probe = Probe::new(rule(EARLY), Nanos::ZERO, &mut witness);
        for (begin, end) in samples {
            let verdict = probe.sample(Sample { begin: Nanos(begin), end: Nanos(end) }, &mut witness);
            let counts = probe.counts();
            prop_assert_eq!(counts.late, counts.ours + counts.stolen + counts.unexplained);
            let _ = probe.notes();
            if let Some(verdict) = verdict {
                prop_assert!(!verdict.to_string().is_empty());
                break;
            }
        }
    }
}
