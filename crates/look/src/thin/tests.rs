use super::*;
use crate::cause::{Cause, Kind};
use crate::evidence::{Ahead, Occupant, Stall};
use crate::judge::{Finding, judge};
use crate::testing::{self, evidence, guest, waits};

/// A request that the guest served from `from` for `length`, in ms.
fn served(from: u64, length: u64) -> SlowRequest {
    testing::served([from, from, from, from + length, from + length])
}

#[test]
fn a_thinned_verdict_is_the_verdict() {
    let mut all = waits(&[40; 70], &guest("web-7"));
    all.extend(waits(&[30; 20], &guest("batch")));
    all[0].was_preempted = true;
    let mut thin = evidence(all);
    let whole = judge(&thin);
    thin.thin(60);
    assert_eq!(thin.waits.len(), 60);
    assert_eq!(judge(&thin), whole);
    thin.thin(5);
    let few = judge(&thin);
    assert_eq!((few.slow, few.delay), (whole.slow, whole.delay));
    assert_eq!(few.ranked_delay, whole.ranked_delay);
    assert_eq!(few.finding, whole.finding);
}

#[test]
fn slow_requests_that_are_left_out_still_count() {
    let mut thin = evidence(Vec::new());
    thin.answered = 1_000;
    thin.requests = (0..20).map(|index| served(index * 100, 4)).collect();
    let whole = judge(&thin);
    assert_ne!(whole.finding, Finding::NothingSlow);
    thin.thin(4);
    // Four of a thousand would be nothing.
    let few = judge(&thin);
    assert_eq!((few.slow, few.delay), (whole.slow, whole.delay));
    assert_eq!(few.finding, whole.finding);
}

#[test]
fn a_request_is_kept_with_the_waits_that_explain_it_or_not_at_all() {
    // A wait of 2 ms each second; each request has one wait.
    let mut thin = evidence(waits(&[2; 40], &guest("web-7")));
    thin.requests = (0..40).map(|index| served(index * 1_000, 2)).collect();
    // One that spans nine of them, which is more than there is room for.
    thin.requests.push(served(500, 30));
    thin.requests.push(served(5_500, 9_000));
    thin.requests.push(served(15_500, 9_100));
    thin.answered = 43;
    let mut two = thin.clone();
    two.thin(2);
    // Nine of sixteen places leave none for nine more; a request of 30 ms needs none.
    assert_eq!(two.requests, [served(15_500, 9_100), served(500, 30)]);
    thin.thin(1);
    assert_eq!(thin.requests, [served(15_500, 9_100)]);
    assert_eq!(thin.left_out.requests.count, 42);
    // Eight of nine, and one more for their own sake.
    assert_eq!(thin.waits.len(), 9);
    let mut roomy = evidence(waits(&[2; 40], &guest("web-7")));
    roomy.requests = (0..40).map(|index| served(index * 1_000, 2)).collect();
    roomy.answered = 40;
    roomy.thin(20);
    let because = Cause::by(Kind::NeighbourCpu, &"web-7".into());
    assert_eq!(judge(&roomy).finding, Finding::Because(because));
}

#[test]
fn frames_behind_the_same_guest_are_joined_and_fast_ones_dropped() {
    let behind = |count, time_ms, ahead| QueueWaits {
        until: Nanos::from_secs(1),
        count,
        time: Nanos::from_millis(time_ms),
        is_outward: true,
        ahead,
    };
    let mut thin = evidence(Vec::new());
    thin.packets = vec![
        behind(10, 50, Ahead::Guest("web-7".into())),
        behind(30, 250, Ahead::Guest("web-7".into())),
        behind(1_000, 20, Ahead::Own),
        behind(5, 10, Ahead::Unknown),
    ];
    thin.stalls = vec![
        Stall {
            from: Nanos::ZERO,
            until: Nanos::from_secs(1),
            count: 2,
            time: Nanos::from_millis(700),
        };
        3
    ];
    thin.thin(1);
    assert_eq!(
        thin.packets,
        [behind(40, 300, Ahead::Guest("web-7".into()))]
    );
    let left = thin.left_out;
    assert_eq!(
        (left.packets.count, left.packets.time),
        (5, Nanos::from_millis(10))
    );
    assert_eq!((thin.stalls.len(), left.stalls.count), (1, 4));
}

#[test]
fn joined_slices_keep_each_wait_once_and_the_worst_coverage() {
    let slice = |waits: Vec<CpuWait>, periods| {
        let mut slice = evidence(waits);
        slice.window = Nanos::from_secs(10);
        slice.limits.throttled_periods = periods;
        slice.answered = 5;
        slice
    };
    let all = waits(&[40; 6], &guest("web-7"));
    let mut late = slice(all[2..].to_vec(), 3);
    late.examined.packets = Err("no BTF".to_owned());
    let joined = Evidence::join([slice(all[..3].to_vec(), 2), late, slice(Vec::new(), 0)]);
    assert_eq!(joined.waits, all);
    assert_eq!(joined.window, Nanos::from_secs(30));
    assert_eq!((joined.answered, joined.limits.throttled_periods), (15, 5));
    assert_eq!(joined.examined.packets, Err("no BTF".to_owned()));
    assert_eq!(joined.examined.cpu, Ok(()));
}

#[test]
fn a_wait_with_many_runs_keeps_the_time_of_each_owner() {
    let mut all = waits(&[120; 5], &guest("web-7"));
    for wait in &mut all {
        let owners = [guest("web-7"), guest("batch"), Occupant::Own];
        let run = |index: u64| Run {
            from: Nanos(wait.from.0 + index * 1_000_000),
            until: Nanos(wait.from.0 + index * 1_000_000 + 900_000),
            occupant: owners[index as usize % 3].clone(),
            is_real_time: index.is_multiple_of(2),
            stolen: Nanos(if index == 7 { 500_000 } else { 0 }),
            interrupted: Nanos::ZERO,
        };
        wait.runs = (0..120).map(run).collect();
    }
    let mut thin = evidence(all);
    let whole = judge(&thin);
    thin.thin(60);
    assert!(thin.waits.iter().all(|wait| wait.runs.len() <= 32));
    let few = judge(&thin);
    let times = |verdict: &crate::Verdict| Kind::ALL.map(|kind| verdict.time(kind));
    assert_eq!(times(&few), times(&whole));
    // Four runs have no room for six owners: some lose their names, and none its kind.
    thin.thin(1);
    assert!(thin.waits[0].runs.len() <= 11);
    let few = judge(&thin);
    let fifth = |times: [Nanos; Kind::ALL.len()]| times.map(|time| time.0 / 5);
    assert_eq!(times(&few).map(|time| time.0), fifth(times(&whole)));
}

#[test]
fn interruptions_of_kept_requests_stay_and_the_examined_time_is_a_sum() {
    let run = |from: u64| Interruption {
        thread: 7,
        from: Nanos::from_millis(from),
        until: Nanos::from_millis(from + 10),
        stolen: Nanos::ZERO,
        interrupted: Nanos::from_millis(4),
    };
    let mut seen = evidence(Vec::new());
    seen.requests = vec![served(100, 50), served(500, 20), served(900, 20)];
    seen.interruptions = vec![run(120), run(300), run(505), run(905)];
    seen.thin(2);
    assert_eq!(seen.requests.len(), 2);
    assert!(seen.interruptions.contains(&run(120)));
    assert!(!seen.interruptions.contains(&run(300)));
    assert_eq!(seen.interruptions.len(), 2);
    let mut partial = seen.clone();
    partial.examined.time = Some(Nanos::from_secs(15));
    partial.examined.interrupts_time = Some(Nanos::from_secs(30));
    let joined = Evidence::join([partial, seen.clone()]);
    assert_eq!(joined.examined.time, Some(Nanos::from_secs(75)));
    let interrupts_time = joined.examined.interrupts_time;
    assert_eq!(interrupts_time, Some(Nanos::from_secs(90)));
    assert_eq!(joined.interruptions, seen.interruptions);
    assert_eq!(Evidence::join([seen.clone(), seen]).examined.time, None);
}

#[test]
fn runs_that_others_took_are_kept_like_waits_and_the_shorter_ones_counted() {
    let run = |index: u64, taken: u64| Interruption {
        thread: 7,
        from: Nanos::from_millis(index * 100),
        until: Nanos::from_millis(index * 100 + 30),
        stolen: Nanos::ZERO,
        interrupted: Nanos::from_millis(taken),
    };
    let mut thin = evidence(Vec::new());
    // Half of a run is slow, a third is not.
    thin.interruptions = (0..20).map(|index| run(index, 15 + index % 10)).collect();
    thin.interruptions.extend([run(30, 10), run(31, 10)]);
    let whole = judge(&thin);
    thin.thin(4);
    assert_eq!(thin.interruptions.len(), 4);
    let few = judge(&thin);
    assert_eq!((few.slow, few.delay), (whole.slow, whole.delay));
    assert_eq!((few.slow, few.finding), (20, whole.finding));
}
