//! Disturbed samples and variants, and figures of too few samples.

use crate::toy::{MORE, WATCHED, run, run_text, with};
use tailbound_report::{Outcome, Verdict};

/// Returns the verdict and its reason if [`SOUND`] is watched and `after` has these lines instead
/// of its series.
fn watched(after: &str) -> (Verdict, String) {
    let results = run(&[WATCHED, ("rtt = 250\n", after)]);
    (results.verdict, results.verdict_reason)
}

#[test]
fn a_check_fails_only_if_few_disturbed_samples_cannot_save_it() {
    // A 99th percentile allows 0.1 %: 2 of 2,000 samples.
    for (rtt, stolen, stolen_rtt, verdict) in [
        (250, 0, 0, Verdict::Pass),
        // It holds without and with them, for any number of them.
        (250, 1_000, 260, Verdict::Pass),
        (250, 2, 900, Verdict::Pass),
        // It fails either way.
        (900, 0, 0, Verdict::Fail),
        (900, 2, 100, Verdict::Fail),
        (900, 3, 100, Verdict::Noisy),
        (900, 1_000, 900, Verdict::Noisy),
        // They decide, in either direction.
        (250, 30, 900, Verdict::Noisy),
        (900, 1_985, 100, Verdict::Noisy),
    ] {
        let took = format!("rtt = {rtt}\nstolen = {stolen}\nstolen_rtt = {stolen_rtt}\n");
        let (found, reason) = watched(&took);
        assert_eq!(found, verdict, "{took}: {reason}");
    }
    // Nothing rests on that one.
    let results = run(&[WATCHED, ("rtt = 400\n", "rtt = 400\nstolen = 1000\n")]);
    assert_eq!(results.verdict, Verdict::Pass);
}

#[test]
fn a_mean_is_noisy_above_one_percent_of_disturbed_samples() {
    let mean = ("of = \"rtt.p99\"", "of = \"rtt.mean\"");
    for (stolen, verdict) in [(20, Verdict::Fail), (21, Verdict::Noisy)] {
        let after = format!("rtt = 900\nstolen = {stolen}\n");
        let results = run(&[WATCHED, mean, ("rtt = 250\n", &after)]);
        assert_eq!(results.verdict, verdict, "{}", results.verdict_reason);
    }
}

#[test]
#[rustfmt::skip]
fn noise_is_named_in_every_verdict() {
    for (after, verdict, reason) in [
        ("rtt = 250\n", Verdict::Pass, "the check holds; none of 6000 samples was disturbed"),
        (
            "rtt = 900\nstolen = 2\n",
            Verdict::Fail,
            "1 of 1 checks failed: faster; 2 of 6000 samples were disturbed (2 by the hypervisor, \
             0 by a wait for a CPU)",
        ),
        (
            "rtt = 900\nstolen = 3\n",
            Verdict::Noisy,
            "no check holds, 1 too noisy to judge: faster; use --repeat or a quieter computer; 3 of \
             6000 samples were disturbed (3 by the hypervisor, 0 by a wait for a CPU)",
        ),
    ] {
        assert_eq!(watched(after), (verdict, reason.to_owned()));
    }
    let results = run(&[WATCHED, ("rtt = 250\n", "rtt = 900\nstolen = 3\n")]);
    let why = "3 of 2000 samples were disturbed (3 by the hypervisor, 0 by a wait for a CPU) of \
               variant after; rtt.p99 allows 0.1 %";
    assert_eq!(results.checks[0].noise.as_deref(), Some(why));
}

#[test]
fn a_figure_of_too_few_samples_is_not_tested_whether_it_holds_or_not() {
    for (of, samples, outcome) in [
        ("rtt.p50", 19, Outcome::NotTested),
        ("rtt.p50", 20, Outcome::Pass),
        ("rtt.p90", 99, Outcome::NotTested),
        ("rtt.p90", 100, Outcome::Pass),
        ("rtt.p99", 999, Outcome::NotTested),
        ("rtt.p99", 1_000, Outcome::Pass),
        ("rtt.p99_9", 9_999, Outcome::NotTested),
        ("rtt.p99_9", 10_000, Outcome::Pass),
        ("rtt.mean", 29, Outcome::NotTested),
        ("rtt.mean", 30, Outcome::Pass),
        ("rtt.max", 1, Outcome::Pass),
    ] {
        let before = format!("rtt = 1000\nsamples = {samples}\n");
        let of = format!("of = \"{of}\"");
        let changes = [("rtt = 1000\n", before.as_str()), ("of = \"rtt.p99\"", &of)];
        // The other variant has enough.
        let enough = ("rtt = 250\n", "rtt = 250\nsamples = 10000\n");
        let results = run(&[&changes[..], &[WATCHED, enough]].concat());
        assert_eq!(results.checks[0].outcome(), outcome, "{before}{of}");
        // In virtual time a sample is as good as any.
        let results = run(&[&changes[..], &[enough]].concat());
        assert_eq!(results.checks[0].outcome(), Outcome::Pass, "{before}{of}");
        // No check fails with too few samples, either.
        let slow = ("rtt = 250\n", "rtt = 2500\nsamples = 10000\n");
        let results = run(&[&changes[..], &[WATCHED, slow]].concat());
        let failed = results.checks[0].outcome() == Outcome::Fail;
        assert_eq!(failed, outcome == Outcome::Pass, "{before}{of}");
    }
}

#[test]
fn a_run_passes_with_untested_checks_and_counts_them() {
    let few = ("rtt = 250\n", "rtt = 250\nsamples = 50\n");
    let text = with(&[WATCHED, few]);
    let results = run_text(&text);
    let why = "rtt.p99 wants 1000 samples, variant after has 50";
    assert_eq!(results.checks[0].not_judged.as_deref(), Some(why));
    assert_eq!(
        (results.checks[0].pass, results.checks[0].got),
        (false, None)
    );
    let reason = format!("no check could be tested: {why}; none of 4050 samples was disturbed");
    assert_eq!(
        (results.verdict, results.verdict_reason),
        (Verdict::NotTested, reason)
    );
    let holds = MORE.replace("at_most", "at_least");
    let results = run_text(&format!("{text}{holds}"));
    let reason = "the check holds, 1 NOT TESTED: faster; none of 4050 samples was disturbed";
    assert_eq!(
        (results.verdict, results.verdict_reason.as_str()),
        (Verdict::Pass, reason)
    );
}

#[test]
fn a_check_may_want_more_samples_than_its_figure_does() {
    let wants = |count: u32| {
        let more = format!("at_least = 0.5\nsamples = {count}\n");
        run(&[("at_least = 0.5\n", &more)]).checks[0].outcome()
    };
    assert_eq!(wants(2_000), Outcome::Pass);
    assert_eq!(wants(2_001), Outcome::NotTested);
}

#[test]
fn a_check_wants_thirty_of_the_events_that_decide_its_figure() {
    let of = "of = \"rtt.p50\"\ndriven_by = \"rtt\"";
    let tested = |samples: u32| {
        let after = format!("rtt = 250\nsamples = {samples}\n");
        let results = run(&[WATCHED, ("rtt = 250\n", &after), ("of = \"rtt.p99\"", of)]);
        results.checks[0].outcome()
    };
    assert_eq!(tested(30), Outcome::Pass);
    assert_eq!(tested(29), Outcome::NotTested);
}

#[test]
fn requests_without_an_answer_are_no_reason_to_test_less() {
    let after = "rtt = 900\nsamples = 50\nunanswered = 950\n";
    assert_eq!(watched(after).0, Verdict::Fail);
    // None was answered.
    assert_eq!(watched("rtt = 0\nunanswered = 1000\n").0, Verdict::Fail);
}

#[test]
fn only_checks_of_a_disturbed_value_are_noisy() {
    let disturbed = ("rate = 196\n", "rate = 196\ndisturbed = \"rate\"\n");
    let results = run(&[WATCHED, disturbed]);
    assert_eq!(results.verdict, Verdict::Pass);
    let told = "; none of 6000 samples was disturbed, a neighbour took the core in variant after";
    assert!(
        results.verdict_reason.ends_with(told),
        "{}",
        results.verdict_reason
    );
    let results = run(&[WATCHED, disturbed, ("of = \"rtt.p99\"", "of = \"rate\"")]);
    assert_eq!(results.verdict, Verdict::Noisy);
    let why = "rate of variant after was disturbed: a neighbour took the core";
    assert_eq!(results.checks[0].noise.as_deref(), Some(why));
    assert_eq!(results.checks[0].outcome(), Outcome::Noisy);
}

#[test]
fn no_figure_of_a_disturbed_series_is_judged() {
    let disturbed = ("rate = 196\n", "rate = 196\ndisturbed = \"rtt\"\n");
    let results = run(&[WATCHED, disturbed]);
    assert_eq!(results.verdict, Verdict::Noisy);
    let results = run(&[WATCHED, disturbed, ("of = \"rtt.p99\"", "of = \"rate\"")]);
    assert_ne!(results.verdict, Verdict::Noisy);
}

#[test]
fn a_check_is_judged_if_delayed_samples_cannot_change_it() {
    let disturbed = |late: u64, late_rtt: u64, share: f64| {
        format!("late = {late}\nlate_rtt = {late_rtt}\ndisturbed = \"rtt\"\ndelayed = {share}\n")
    };
    // The first needs 60 samples of 2,000 to be half: they may be what was delayed.
    for (share, verdict) in [(0.01, Verdict::Pass), (0.04, Verdict::Noisy)] {
        let before = format!("rtt = 400\n{}", disturbed(60, 1_000, share));
        let results = run(&[WATCHED, ("rtt = 1000\n", &before)]);
        assert_eq!(results.verdict, verdict, "{}", results.verdict_reason);
    }
    // The second is late 60 or 600 times.
    for (late, share, verdict) in [
        (60, 0.04, Verdict::Noisy),
        (60, 0.01, Verdict::Fail),
        (600, 0.04, Verdict::Fail),
        (600, 1.5, Verdict::Noisy),
    ] {
        let after = format!("rtt = 250\n{}", disturbed(late, 900, share));
        let (found, reason) = watched(&after);
        assert_eq!(found, verdict, "{reason}");
        assert!(reason.contains("a neighbour took the core"), "{reason}");
    }
    // It says nothing of a figure that is no series'.
    let rate = ("of = \"rtt.p99\"", "of = \"rate\"");
    let of_rate = "rate = 196\ndisturbed = \"rate\"\ndelayed = 0.01\n";
    let results = run(&[WATCHED, ("rate = 196\n", of_rate), rate]);
    assert_eq!(results.verdict, Verdict::Noisy);
}

const SLOWER: &str = "disturbed = \"all\"\nharm = \"slower\"\n";

#[test]
fn a_variant_slowed_by_other_programs_is_noisy_not_failed() {
    let slower = |rate: f64| format!("rate = {rate}\n{SLOWER}");
    let one = |rate: f64, bound: &str| {
        let check = format!(
            "\n[[check]]\nname = \"c\"\nof = \"rate\"\nat = [\"after\"]\n{bound}\nsource = \"s\"\n"
        );
        let text = with(&[WATCHED, ("rate = 196\n", &slower(rate))]) + &check;
        run_text(&text).checks[1].outcome()
    };
    assert_eq!(one(196.0, "at_most = 200"), Outcome::Pass);
    assert_eq!(one(196.0, "at_most = 100"), Outcome::Noisy);
    assert_eq!(one(196.0, "at_least = 200"), Outcome::Noisy);
    // A slow sample may exceed a lower bound by noise alone.
    assert_eq!(one(196.0, "at_least = 100"), Outcome::Noisy);
    // A comparison may have come out either way: that of two variants holds here.
    let results = run(&[WATCHED, ("rate = 196\n", &slower(196.0))]);
    assert_eq!(results.verdict, Verdict::Noisy);
}

#[test]
fn a_disturbance_is_reported_once_with_range_and_variants() {
    let busy = |rate: &str, share: f64| format!("{rate}{SLOWER}share = {share}\n");
    let (one, other) = (busy("rate = 196\n", 90.4), busy("rate = 100\n", 98.0));
    let results = run(&[WATCHED, ("rate = 196\n", &one)]);
    let told = ", other programs used 90 % of the CPUs in variant after";
    let reason = &results.verdict_reason;
    assert!(reason.ends_with(told), "{reason}");
    let results = run(&[WATCHED, ("rate = 196\n", &one), ("rate = 100\n", &other)]);
    let told = ", other programs used 90 to 98 % of the CPUs in 2 variants";
    let reason = &results.verdict_reason;
    assert!(reason.ends_with(told), "{reason}");
    assert_eq!(reason.matches("other programs").count(), 1, "{reason}");
}

#[test]
fn a_variant_that_was_lost_to_load_makes_the_verdict_noisy() {
    let lost = "rtt = 250\nunavailable = \"too busy\"\ndisturbed = \"all\"\nharm = \"lost\"\n";
    let (verdict, reason) = watched(lost);
    assert_eq!(verdict, Verdict::Noisy, "{reason}");
    assert!(
        reason.ends_with("a neighbour took the core in variant after"),
        "{reason}"
    );
    // That it did not run for another reason is told as it was.
    let away = "rtt = 250\nunavailable = \"too busy\"\n";
    assert_eq!(watched(away).0, Verdict::NotTested);
}

#[test]
fn an_undisturbed_check_fails_beside_a_noisy_one() {
    let more = "\n[[check]]\nname = \"more\"\nof = \"rate\"\nat = [\"after\"]\n\
                at_least = 100000\nsource = \"s\"\n";
    let disturbed = ("rate = 196\n", "rate = 196\ndisturbed = \"rtt\"\n");
    let text = with(&[WATCHED, disturbed]) + more;
    let results = run_text(&text);
    let reason = "1 of 1 checks failed: more, 1 too noisy to judge: faster; none of 6000 samples \
                  was disturbed, a neighbour took the core in variant after";
    assert_eq!(
        (results.verdict, results.verdict_reason.as_str()),
        (Verdict::Fail, reason)
    );
}
