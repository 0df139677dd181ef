//! Effect of an attacking neighbour on a guest of its host: the whole switch, from the guests'
//! ports to the uplink's wire, in virtual time.
//!
//! `cargo test -p tailbound-switch --test noisy -- --nocapture` prints the table in
//! docs/reference/host.md. Processing takes no time here; `experiments/noisy.toml` measures the
//! cost of small frames for the host's processor.

mod frames;
mod host;

use frames::Neighbour;
use host::{VictimMeasurements, watch};

/// The promise to a guest: 40 of the link's 100 Mbit/s, or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Promise {
    Guaranteed,
    BestEffort,
}

/// The number of messages, larger in optimized builds.
const MESSAGES: usize = if cfg!(debug_assertions) { 200 } else { 5000 };

/// Returns the latency that this many thousandths of all messages do not exceed, in milliseconds.
fn quantile(seen: &VictimMeasurements, thousandths: usize) -> f64 {
    let mut latencies = seen.latencies.clone();
    latencies.sort_unstable();
    let rank = (latencies.len() * thousandths).div_ceil(1000);
    latencies[rank - 1] as f64 / 1e6
}

/// The time of a full frame on the link, in milliseconds.
const FULL_FRAME: f64 = 0.12336;

/// Runs every attack of a neighbour, beside a conforming one: no message is lost, the rate stays,
/// and the 99.9th percentile is at most 1 % longer. Without a guarantee it may be a full frame
/// longer, since it depends on chance which frame is on the wire when another arrives.
fn compare(victim: Promise, neighbour: Promise) {
    let conforming = [Neighbour::Conforming, Neighbour::ConformingSmall];
    let conforming = conforming.map(|does| (does, watch(victim, neighbour, does, MESSAGES)));
    for does in Neighbour::ALL {
        let seen = watch(victim, neighbour, does, MESSAGES);
        let conforming = conforming
            .iter()
            .find(|(like, _)| *like == does.conforming());
        let (_, conforming) = conforming.expect("both are there");
        let (tail, before) = (quantile(&seen, 999), quantile(conforming, 999));
        let row = format!(
            "| {victim:?} | {neighbour:?} | {does:?} | {:.2} ms | {tail:.2} ms | {:+.2} % | \
             {:.2} Mbit/s | {:.0} | {:.0} |",
            quantile(&seen, 500),
            100.0 * (tail / before - 1.0),
            seen.rate,
            seen.read,
            seen.sent,
        );
        println!("{row}");
        assert_eq!(seen.latencies.len(), MESSAGES, "lost: {row}");
        let most = match victim {
            Promise::Guaranteed => 1.01 * before,
            Promise::BestEffort => before + FULL_FRAME,
        };
        assert!(tail <= most, "{row}");
        assert!(seen.rate >= 0.99 * conforming.rate, "{row}");
    }
}

#[test]
fn a_guaranteed_guest_beside_a_guaranteed_attacker() {
    compare(Promise::Guaranteed, Promise::Guaranteed);
}

#[test]
fn a_guaranteed_guest_beside_a_best_effort_attacker() {
    compare(Promise::Guaranteed, Promise::BestEffort);
}

#[test]
fn a_best_effort_guest_beside_a_guaranteed_attacker() {
    compare(Promise::BestEffort, Promise::Guaranteed);
}

#[test]
fn a_best_effort_guest_beside_a_best_effort_attacker() {
    compare(Promise::BestEffort, Promise::BestEffort);
}
