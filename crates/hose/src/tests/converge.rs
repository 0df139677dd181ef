//! Time until the rates are the fair ones.

use super::net::{Faults, INTERVAL, Net, machine};
use std::fmt::Write;
use tailbound_units::{Nanos, Rate};

const B: u64 = 1_000_000_000;
const ALL: u64 = u64::MAX;

/// A receiver on host 0 and `senders` machines, each on a host of its own.
fn star(senders: usize, seed: u64) -> Net {
    let count = senders as u32 + 1;
    let machines = (0..=senders)
        .map(|host| vec![machine(host, 0, Rate(B), count)])
        .collect();
    let mut net = Net::new(machines, Faults::NONE, seed);
    net.run_for(Nanos::from_millis(5));
    net
}

/// Returns the time until `expected` holds permanently.
fn settles(net: &mut Net, expected: &[(usize, u64)]) -> Nanos {
    let start = net.now;
    let mut since = None;
    net.run_until(start + Nanos::from_millis(8), |net| {
        let right = expected.iter().all(|(host, rate)| {
            // Within 0.1 %.
            net.rate((*host, 0), (0, 0)).abs_diff(*rate) <= rate / 1000
        });
        if !right {
            since = None;
        } else if since.is_none() {
            since = Some(net.now);
        }
        assert!(net.sum_to((0, 0)) <= B, "{:?}", net.now);
    });
    let found: Vec<_> = expected
        .iter()
        .map(|(host, _)| net.rate((*host, 0), (0, 0)))
        .collect();
    let since = since.unwrap_or_else(|| panic!("{found:?} are not {expected:?}"));
    since.since(start)
}

/// The times to converge after one kind of change.
#[derive(Default)]
struct Times(Vec<Nanos>);

impl Times {
    fn row(&mut self, name: &str, table: &mut String) -> Nanos {
        self.0.sort_unstable();
        let max = *self.0.last().unwrap();
        let median = self.0[self.0.len() / 2];
        writeln!(
            table,
            "{name:24} {median:>10} {max:>10} {:>6}",
            self.0.len()
        )
        .unwrap();
        max
    }
}

/// Prints the figures of docs/explanation/hose.md: `cargo test -p tailbound-hose converge
/// -- --nocapture`.
#[test]
fn a_new_sender_has_its_share_within_1_ms_and_every_change_converged_within_5() {
    let mut table = String::from("change                       median        max   runs\n");
    let mut worst = Nanos::ZERO;
    let mut new = Times::default();
    let mut stopped = Times::default();
    let mut demand = Times::default();
    let mut bandwidth = Times::default();
    for (seed, senders) in [2_usize, 3, 5, 8, 20, 50].into_iter().enumerate() {
        // Large ones take long where nothing is optimised.
        let runs = if senders > 10 { 1 } else { 5 };
        for run in 0..runs {
            let seed = seed as u64 * 100 + run + 1;
            let mut net = star(senders, seed);
            let all = senders as u64;
            // Each at another moment within the interval.
            let jitter = Nanos(net.random.below(INTERVAL.0));
            for host in 1..senders {
                net.demand((host, 0), (0, 0), ALL);
            }
            net.run_for(Nanos::from_millis(8) + jitter);

            net.demand((senders, 0), (0, 0), ALL);
            let fair: Vec<_> = (1..=senders).map(|host| (host, B / all)).collect();
            new.0.push(settles(&mut net, &fair));

            // One has a tenth of its share to send; the others get the rest.
            let little = B / all / 10;
            net.demand((1, 0), (0, 0), little);
            let rest = (B - little * 5 / 4) / (all - 1);
            let expected: Vec<_> = (2..=senders).map(|host| (host, rest)).collect();
            demand.0.push(settles(&mut net, &expected));

            net.demand((1, 0), (0, 0), ALL);
            demand.0.push(settles(&mut net, &fair));

            net.demand((senders, 0), (0, 0), 0);
            let fewer: Vec<_> = (1..senders).map(|host| (host, B / (all - 1))).collect();
            stopped.0.push(settles(&mut net, &fewer));

            let count = senders as u32 + 1;
            net.set_machines(0, vec![machine(0, 0, Rate(B / 2), count)]);
            let half: Vec<_> = (1..senders).map(|host| (host, B / 2 / (all - 1))).collect();
            bandwidth.0.push(settles(&mut net, &half));
            net.set_machines(0, vec![machine(0, 0, Rate(B), count)]);
            bandwidth.0.push(settles(&mut net, &fewer));
        }
    }
    let began = new.row("a new sender", &mut table);
    for (name, times) in [
        ("a sender that stops", &mut stopped),
        ("another demand", &mut demand),
        ("another guarantee", &mut bandwidth),
    ] {
        worst = worst.max(times.row(name, &mut table));
    }
    println!("{table}");
    // Datagrams take 0.1 ms; a sample is 1 ms.
    assert!(began <= Nanos::from_millis(1), "{table}");
    assert!(worst <= Nanos::from_millis(5), "{table}");
}
