use super::*;
use proptest::prelude::*;

/// Returns the probability that a run with `late` late ones of `samples` stops early, computed
/// independently: one sleep at a time, with a look after each.
fn stops(good_at: &[u64], samples: u64, late: u64) -> f64 {
    let mut likely = vec![0.0; late as usize + 1];
    likely[0] = 1.0;
    let mut stopped = 0.0;
    for sleep in 0..samples - 1 {
        for count in (0..=late as usize).rev() {
            let missing = (late - count as u64) as f64;
            let hit = likely[count] * missing / (samples - sleep) as f64;
            likely[count] -= hit;
            if hit > 0.0 {
                likely[count + 1] += hit;
            }
        }
        for (count, moment) in good_at.iter().enumerate() {
            if sleep + 1 >= *moment && count < likely.len() {
                stopped += std::mem::take(&mut likely[count]);
            }
        }
    }
    stopped
}

/// Counts the sets of late places whose path stops early, and all of them.
fn sets(good_at: &[u64], samples: u64, late: u64) -> (u128, u128) {
    let mut going = vec![0_u128; late as usize + 1];
    going[0] = 1;
    let (mut stopped, mut all) = (0, 1);
    for n in 0..u128::from(late) {
        all = all * (u128::from(samples) - n) / (n + 1);
    }
    for sleep in 1..=samples {
        for count in (1..going.len()).rev() {
            going[count] += going[count - 1];
        }
        for (count, paths) in going.iter_mut().enumerate() {
            let done = good_at.get(count).is_some_and(|moment| sleep >= *moment);
            if done && sleep < samples {
                // The rest of the late ones may lie anywhere later.
                let (rest, missing) = (samples - sleep, late - count as u64);
                let ways = (0..missing).fold(1_u128, |ways, n| {
                    ways * u128::from(rest.saturating_sub(n)) / u128::from(n + 1)
                });
                stopped += std::mem::take(paths) * ways;
            }
        }
    }
    (stopped, all)
}

#[test]
fn a_bad_run_of_the_papers_length_stops_good_at_most_once_in_twenty() {
    let good_at = good_at(600_000, 13, 0.05);
    let wrong = stops(&good_at, 600_000, 14);
    assert!(wrong <= 0.05, "{wrong}");
    // Nearly all that may be spent is: the run stops as early as it can.
    assert!(wrong > 0.0499, "{wrong}");
}

#[test]
fn a_run_with_more_late_sleeps_stops_good_even_less_often() {
    let good_at = good_at(20_000, 13, 0.05);
    let wrong: Vec<f64> = (14..40).map(|late| stops(&good_at, 20_000, late)).collect();
    assert!(wrong.is_sorted_by(|fewer, more| fewer > more), "{wrong:?}");
}

#[test]
fn a_node_without_late_sleeps_is_good_after_a_fifth_of_the_run() {
    let good_at = good_at(600_000, 13, 0.05);
    assert_eq!(
        good_at,
        [
            119_213, 250_197, 319_530, 379_854, 432_612, 477_943, 515_773, 546_078, 568_984,
            584_850, 594_376, 598_770, 599_926, 600_000
        ]
    );
    // 15 s if a sleep of 100 us takes no more than 125 us.
    assert!(good_at[0] * 125 < 15_000_000);
}

#[test]
fn counted_set_by_set_no_bound_is_passed() {
    for (samples, low, alpha) in [(60, 3, 0.05), (100, 2, 0.2), (40, 5, 0.5), (12, 10, 0.3)] {
        let good_at = good_at(samples, low, alpha);
        let (stopped, all) = sets(&good_at, samples, low + 1);
        let exact = stopped as f64 / all as f64;
        assert!(exact <= alpha, "{samples} {low} {alpha}: {exact}");
        assert!((stops(&good_at, samples, low + 1) - exact).abs() < 1e-12);
    }
}

#[test]
fn with_a_low_mark_of_zero_nearly_the_whole_run_is_needed() {
    // One late sleep lies in the last n with a probability of n / M.
    assert_eq!(good_at(1000, 0, 0.05), [951]);
}

#[test]
fn the_highest_low_mark_keeps_its_bound() {
    let good_at = good_at(600, 255, 0.05);
    assert!(stops(&good_at, 600, 256) <= 0.05);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_boundary_keeps_its_error_bound_for_any_parameters(
        low in 0_u64..20, more in 1_u64..300, alpha in 0.0001_f64..0.5,
    ) {
        let samples = low + more;
        let good_at = good_at(samples, low, alpha);
        prop_assert!(good_at.is_sorted());
        prop_assert_eq!(good_at.len() as u64, low + 1);
        prop_assert!(*good_at.last().unwrap() <= samples);
        prop_assert!(stops(&good_at, samples, low + 1) <= alpha);
    }
}
