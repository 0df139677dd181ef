use super::*;
use crate::evidence::{
    Ahead, CpuUse, CpuWait, Direction, ExaminedParts, Interruption, Occupant, Points, QueueWaits,
    SlowRequest, Stall,
};
use crate::testing::{evidence, guest, served, waits};
use proptest::prelude::*;

#[test]
fn the_cause_of_most_of_the_delay_is_named_with_its_largest_name() {
    let mut all = waits(&[40; 50], &guest("web-7"));
    all.extend(waits(&[30; 8], &guest("batch")));
    all.extend(waits(&[10; 8], &Occupant::Idle));
    let verdict = judge(&evidence(all));
    let because = Cause::by(Kind::NeighbourCpu, &"web-7".into());
    assert_eq!(verdict.finding, Finding::Because(because));
    assert_eq!(
        (verdict.slow, verdict.judged, verdict.affected),
        (66, 60, 58)
    );
    assert_eq!(verdict.delay, Nanos::from_millis(2_320));
}

#[test]
fn without_a_majority_cause_the_finding_is_mixed() {
    let mut all = waits(&[40; 4], &guest("web-7"));
    all.extend(waits(&[40; 4], &Occupant::Idle));
    all.extend(waits(&[40; 4], &Occupant::Own));
    let verdict = judge(&evidence(all));
    assert_eq!(verdict.finding, Finding::Unknown(Doubt::Mixed));
}

#[test]
fn guests_and_programs_together_are_a_busy_host_and_none_of_them_is_named() {
    let mut all = waits(&[40; 4], &guest("web-7"));
    all.extend(waits(&[40; 4], &Occupant::Program("tar".into())));
    all.extend(waits(&[40; 4], &Occupant::Own));
    let verdict = judge(&evidence(all));
    assert_eq!(verdict.finding, Finding::Because(Cause::of(Kind::BusyHost)));
    assert_eq!(verdict.affected, 8);
}

#[test]
fn two_slow_periods_prove_nothing() {
    let verdict = judge(&evidence(waits(&[400, 300], &guest("web-7"))));
    assert_eq!(verdict.finding, Finding::Unknown(Doubt::TooFew));
}

#[test]
fn one_second_in_two_slow_periods_names_a_cause() {
    let because = Finding::Because(Cause::by(Kind::NeighbourCpu, &"web-7".into()));
    let finding = |lengths: &[u64]| judge(&evidence(waits(lengths, &guest("web-7")))).finding;
    assert_eq!(finding(&[600, 400]), because);
    assert_eq!(finding(&[600, 399]), Finding::Unknown(Doubt::TooFew));
    assert_eq!(finding(&[5_000]), Finding::Unknown(Doubt::TooFew));
    // The long one is of another cause.
    let mut mixed = waits(&[600, 200], &guest("web-7"));
    mixed.extend(waits(&[700], &Occupant::Idle));
    let verdict = judge(&evidence(mixed));
    assert_eq!(verdict.finding, Finding::Unknown(Doubt::TooFew));
}

#[test]
fn waits_for_an_exited_thread_have_no_cause() {
    let verdict = judge(&evidence(waits(&[40; 9], &Occupant::Exited("cc1".into()))));
    assert_eq!(verdict.finding, Finding::Unknown(Doubt::NoCause));
}

#[test]
fn negligible_waits_are_nothing_slow() {
    let quiet = judge(&evidence(waits(&[2; 20], &guest("web-7"))));
    assert_eq!(quiet.finding, Finding::NothingSlow);
    // One of these alone is worth a word, and so are many.
    let long = judge(&evidence(waits(&[21], &guest("web-7"))));
    assert_eq!(long.finding, Finding::Unknown(Doubt::TooFew));
    let many = judge(&evidence(waits(&[2; 30], &guest("web-7"))));
    assert!(matches!(many.finding, Finding::Because(_)));
    assert_eq!(judge(&evidence(Vec::new())).finding, Finding::NothingSlow);
}

#[test]
fn waits_with_fast_requests_are_nothing_slow() {
    let mut fast = evidence(waits(&[40; 9], &guest("web-7")));
    fast.answered = 1_000;
    assert_eq!(judge(&fast).finding, Finding::NothingSlow);
}

/// Requests that waited for a peer for this number of microseconds.
fn requests(lengths_us: &[u64]) -> Vec<SlowRequest> {
    let request = |length: &u64| {
        let (begun, end) = (Nanos::from_secs(1), Nanos(1_000_000_000 + length * 1_000));
        SlowRequest {
            direction: Direction::Made,
            begun,
            points: Points {
                sent: begun,
                left: begun,
                arrived: end,
                delivered: end,
                taken: None,
            },
            peer: "10.0.0.9".into(),
            ..served([0; 5])
        }
    };
    lengths_us.iter().map(request).collect()
}

fn stall(count: u64, time: Nanos) -> Stall {
    Stall {
        from: Nanos::ZERO,
        until: Nanos::from_secs(1),
        count,
        time,
    }
}

#[test]
fn few_slow_requests_among_many_are_shown_as_nothing_slow() {
    let few = |answered, lengths_us: &[u64]| {
        judge(&Evidence {
            answered,
            requests: requests(lengths_us),
            ..evidence(waits(&[40; 9], &guest("web-7")))
        })
    };
    let quiet = few(1_000, &[4_000; 9]);
    assert_eq!(quiet.finding, Finding::NothingSlow);
    let words = "9 of its 1000 requests took longer than 1 ms, the longest 4.0 ms";
    assert!(quiet.sentence().contains(words), "{}", quiet.sentence());
    // One in a hundred, or a long one, is worth a word.
    let because = Finding::Because(Cause::by(Kind::Delay, &"10.0.0.9".into()));
    assert_eq!(few(900, &[4_000; 9]).finding, because);
    let long = few(1_000, &[20_000, 4_000]);
    assert_eq!(long.finding, Finding::Unknown(Doubt::TooFew));
}

#[test]
fn closed_windows_are_slow_receivers_unless_requests_dominate() {
    let mut closed = evidence(Vec::new());
    closed.stalls = vec![stall(20, Nanos::from_millis(800))];
    closed.answered = 50;
    let verdict = judge(&closed);
    let because = Finding::Because(Cause::of(Kind::SlowReceiver));
    assert_eq!(
        (verdict.basis, &verdict.finding),
        (Basis::Windows, &because)
    );
    assert_eq!(
        (verdict.slow, verdict.longest),
        (20, Nanos::from_millis(40))
    );
    closed.requests = requests(&[4_000]);
    assert_eq!(judge(&closed).finding, because);
    closed.requests = requests(&[90_000; 9]);
    assert_eq!(judge(&closed).basis, Basis::Requests);
    // Some microseconds are nothing.
    closed.requests = Vec::new();
    closed.stalls = vec![stall(20, Nanos::from_millis(4))];
    assert_eq!(judge(&closed).finding, Finding::NothingSlow);
}

/// Runs of a length, a second apart, of which soft interrupts took a part, in milliseconds.
fn interrupted(count: u64, length: u64, part: u64) -> Vec<Interruption> {
    let run = |index: u64| Interruption {
        thread: 7,
        from: Nanos::from_millis(index * 1_000 + 500),
        until: Nanos::from_millis(index * 1_000 + 500 + length),
        stolen: Nanos::ZERO,
        interrupted: Nanos::from_millis(part),
    };
    (0..count).map(run).collect()
}

#[test]
fn runs_that_interrupts_took_are_waits_for_a_cpu_and_long_runs_are_not() {
    let mut taken = evidence(Vec::new());
    taken.interruptions = interrupted(30, 3, 2);
    taken.interruptions.extend(interrupted(30, 100, 9));
    let verdict = judge(&taken);
    let because = Finding::Because(Cause::of(Kind::Interrupts));
    assert_eq!((verdict.basis, &verdict.finding), (Basis::Waits, &because));
    assert_eq!((verdict.slow, verdict.delay), (30, Nanos::from_millis(60)));
}

/// Evidence of 5 s, of which packets were examined for half a second: requests of 4 ms, of which soft
/// interrupts took a part, in milliseconds.
fn sampled(requests: u64, part: u64, waits: Vec<CpuWait>) -> Evidence {
    let request = |index: u64| {
        let from = index * 1_000 + 500;
        served([from, from, from, from + 4, from + 4])
    };
    let mut sampled = Evidence {
        window: Nanos::from_secs(5),
        answered: requests,
        requests: (0..requests).map(request).collect(),
        interruptions: interrupted(requests, 4, part),
        ..evidence(waits)
    };
    sampled.examined.time = Some(Nanos::from_millis(500));
    sampled
}

#[test]
fn sampled_requests_that_leave_a_doubt_are_judged_by_waits_if_these_agree() {
    let softirqs = Occupant::Kernel("ksoftirqd/1".into());
    let finding = |sampled: &Evidence| {
        let verdict = judge(sampled);
        (verdict.basis, verdict.finding)
    };
    let because = Finding::Because(Cause::by(Kind::Interrupts, &"ksoftirqd/1".into()));
    let few = sampled(2, 3, waits(&[5; 4], &softirqs));
    assert_eq!(finding(&few), (Basis::Waits, because.clone()));
    // Nor do one of four milliseconds prove anything; the rest has no known cause.
    let mixed = sampled(5, 1, waits(&[5; 5], &softirqs));
    assert_eq!(finding(&mixed), (Basis::Waits, because));
    // Waits with another cause, or that many delays do not have, are no answer.
    let doubt = |doubt| (Basis::Requests, Finding::Unknown(doubt));
    let other = sampled(2, 3, waits(&[5; 4], &guest("web-7")));
    assert_eq!(finding(&other), doubt(Doubt::TooFew));
    let rare = sampled(5, 0, waits(&[5; 5], &softirqs));
    assert_eq!(finding(&rare), doubt(Doubt::NoCause));
    // Requests that were examined all the time are the better evidence.
    let mut whole = sampled(2, 3, waits(&[5; 4], &softirqs));
    whole.examined.time = None;
    assert_eq!(finding(&whole), doubt(Doubt::TooFew));
    whole.examined.time = Some(Nanos::from_millis(2_500));
    assert_eq!(finding(&whole), doubt(Doubt::TooFew));
}

#[test]
fn kernel_interrupt_counts_settle_a_doubt_that_involves_them() {
    let finding = |part, interrupts| {
        let mut mixed = sampled(5, part, Vec::new());
        mixed.examined.time = None;
        // Nothing of the rest was the guest's own.
        mixed.cpu_use = vec![CpuUse {
            from: Nanos::ZERO,
            until: Nanos::from_secs(5),
            ran: Nanos::ZERO,
            interrupts: Nanos::from_millis(interrupts),
        }];
        let verdict = judge(&mixed);
        let [line, ..] = verdict.evidence();
        assert_eq!(
            line.contains("Interrupts had"),
            interrupts >= 1_250,
            "{line}"
        );
        (verdict.finding, verdict.affected)
    };
    let because = Finding::Because(Cause::of(Kind::Interrupts));
    assert_eq!(finding(1, 1_250), (because, 5));
    let doubt = Finding::Unknown(Doubt::NoCause);
    assert_eq!(finding(1, 1_249).0, doubt);
    assert_eq!(finding(0, 4_000).0, doubt);
}

#[test]
fn interrupts_lead_over_each_cause_but_not_all_programs() {
    let mut verdict = judge(&evidence(Vec::new()));
    verdict.judged_delay = Nanos::from_millis(100);
    let mut leads = |interrupts: u64, programs: [u64; 2]| {
        let share = |cause, time| Share {
            cause,
            time: Nanos::from_millis(time),
            periods: 0,
        };
        let program = |name: &str, time| share(Cause::by(Kind::ProgramCpu, &name.into()), time);
        verdict.shares = vec![
            share(Cause::of(Kind::Interrupts), interrupts),
            program("a", programs[0]),
            program("b", programs[1]),
            share(Cause::of(Kind::GuestItself), 50),
        ];
        interrupts_lead(&verdict)
    };
    assert!(leads(20, [15, 15]));
    assert!(!leads(20, [21, 0]));
    assert!(!leads(19, [15, 15]));
}

#[test]
fn a_few_sampled_requests_that_were_fast_rule_nothing_out() {
    let finding = |answered, lengths: &[u64]| {
        let mut fast = sampled(0, 0, waits(lengths, &guest("web-7")));
        fast.answered = answered;
        let verdict = judge(&fast);
        (verdict.basis, verdict.finding)
    };
    let because = Finding::Because(Cause::by(Kind::NeighbourCpu, &"web-7".into()));
    assert_eq!(finding(299, &[40; 4]), (Basis::Waits, because));
    let quiet = (Basis::Requests, Finding::NothingSlow);
    assert_eq!(finding(300, &[40; 4]), quiet);
    assert_eq!(finding(299, &[1; 4]), quiet);
}

#[test]
fn a_small_sample_beside_many_interrupts_is_undecided() {
    let finding = |answered, interrupts| {
        let mut fast = sampled(0, 0, Vec::new());
        fast.answered = answered;
        fast.cpu_use = vec![CpuUse {
            from: Nanos::ZERO,
            until: Nanos::from_secs(5),
            ran: Nanos::ZERO,
            interrupts: Nanos::from_millis(interrupts),
        }];
        let verdict = judge(&fast);
        let whether = verdict.sentence().contains("I do not know whether");
        assert_eq!(whether, verdict.finding != Finding::NothingSlow);
        verdict.finding
    };
    assert_eq!(finding(299, 1_250), Finding::Unknown(Doubt::SmallSample));
    assert_eq!(finding(300, 1_250), Finding::NothingSlow);
    assert_eq!(finding(299, 1_249), Finding::NothingSlow);
}

#[test]
fn lost_waits_and_nothing_measured_are_no_verdict() {
    let mut lost = evidence(waits(&[40; 9], &guest("web-7")));
    lost.lost_waits = 10;
    assert_eq!(judge(&lost).finding, Finding::Unknown(Doubt::Lost));
    let mut blind = evidence(Vec::new());
    blind.examined = ExaminedParts {
        cpu: Err("no BTF".to_owned()),
        packets: Err("no BTF".to_owned()),
        ..ExaminedParts::default()
    };
    let verdict = judge(&blind);
    assert_eq!(verdict.finding, Finding::Unknown(Doubt::Nothing));
    assert_eq!(verdict.unexamined.len(), 2);
}

#[test]
fn a_short_wait_is_no_slow_period_by_itself() {
    let mut short = waits(&[40; 9], &guest("web-7"));
    for wait in &mut short {
        wait.until = wait.from.saturating_add(Nanos::from_micros(999));
    }
    let verdict = judge(&evidence(short));
    assert_eq!(verdict.finding, Finding::NothingSlow);
    assert_eq!((verdict.slow, verdict.delay), (0, Nanos::ZERO));
}

#[test]
fn the_worst_guest_comes_first() {
    let named = |name: &str, lengths: &[u64]| {
        judge(&Evidence {
            guest: name.to_owned(),
            ..evidence(waits(lengths, &guest("web-7")))
        })
    };
    let mut all = [
        named("quiet", &[1]),
        named("b", &[40; 5]),
        named("worst", &[40; 50]),
        named("a", &[40; 5]),
    ];
    all.sort_by(worse_first);
    assert_eq!(
        all.map(|verdict| verdict.guest),
        ["worst", "a", "b", "quiet"]
    );
}

#[test]
fn a_guest_that_computes_without_a_pause_comes_after_those_that_it_delays() {
    let mut hog = evidence(waits(&[40; 50], &guest("db-3")));
    hog.guest = "hog".to_owned();
    hog.waits
        .iter_mut()
        .for_each(|wait| wait.was_preempted = true);
    let mut all = [
        judge(&hog),
        judge(&evidence(waits(&[40; 5], &guest("hog")))),
    ];
    all.sort_by(worse_first);
    assert_eq!(all[0].guest, "db-3");
    // A quota is no sharing.
    let quota = Nanos::from_millis(40);
    hog.waits.iter_mut().for_each(|wait| wait.quota = quota);
    all[1] = judge(&hog);
    all.sort_by(worse_first);
    assert_eq!(all[0].guest, "hog");
}

proptest! {
    #[test]
    fn shares_are_the_delay_and_none_is_above_the_whole(
        lengths in prop::collection::vec((1..5_000_u64, 0..4_usize), 0..90),
    ) {
        let occupants = [guest("a"), guest("b"), Occupant::Idle, Occupant::Own];
        let all = lengths.iter().flat_map(|(length, by)| waits(&[*length], &occupants[*by]));
        let verdict = judge(&evidence(all.collect()));
        let sum: u64 = verdict.shares.iter().map(|share| share.time.0).sum();
        prop_assert_eq!(Nanos(sum), verdict.judged_delay);
        prop_assert!(verdict.judged_delay <= verdict.delay);
        prop_assert!(verdict.affected <= verdict.judged && verdict.judged <= verdict.slow);
        let _ = (verdict.sentence(), verdict.evidence(), verdict.remedy());
    }
}

#[test]
fn frames_that_wait_in_a_queue_name_the_guest_ahead_if_no_request_is_slow() {
    let behind = |count, time| {
        let mut bulk = evidence(Vec::new());
        bulk.answered = 50;
        bulk.packets = vec![QueueWaits {
            until: Nanos::from_secs(1),
            count,
            time,
            is_outward: true,
            ahead: Ahead::Guest("web-7".into()),
        }];
        judge(&bulk)
    };
    let slow = behind(100, Nanos::from_millis(700));
    let because = Cause::by(Kind::HostQueue, &"web-7".into());
    assert_eq!(slow.finding, Finding::Because(because));
    assert_eq!((slow.basis, slow.slow), (Basis::Packets, 100));
    // Less than a millisecond each.
    assert_eq!(
        behind(100, Nanos::from_millis(90)).finding,
        Finding::NothingSlow
    );
}

#[test]
fn thousands_of_slow_requests_are_counted_and_the_slowest_sixty_divided() {
    let lengths: Vec<_> = (0..10_000).map(|index| 2_000 + index % 500).collect();
    let busy = judge(&Evidence {
        answered: 10_000,
        requests: requests(&lengths),
        ..evidence(waits(&vec![40; 10_000], &guest("web-7")))
    });
    assert_eq!((busy.slow, busy.judged), (10_000, 60));
    assert_eq!(busy.longest, Nanos::from_micros(2_499));
}
