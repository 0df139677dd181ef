//! The load goes from half the limit to twice the limit, and back.

use super::harness::{Bench, constant};
use crate::shaper::{ShaperConfig, WindowConfig};
use std::fmt::Write as _;
use tailbound_units::{Nanos, Rate};

const SECONDS: u64 = 30;

/// Departures in each second as a part of the limit, and the window's position at its end.
fn step(mbit: u64) -> (Bench, Vec<(f64, f64)>) {
    let rate = Rate::from_mbit(mbit);
    let config = ShaperConfig::SmoothWindow(WindowConfig::new(rate));
    let mut bench = Bench::new(&config);
    let loads = [(0, 0.5), (10, 2.0), (20, 0.5)];
    let mut windows = Vec::new();
    for (from, load) in loads {
        let frames = constant(
            1514,
            load * rate.0 as f64,
            (Nanos::from_secs(from), Nanos::from_secs(from + 10)),
        );
        let mut frames = frames.peekable();
        for second in from + 1..=from + 10 {
            let end = Nanos::from_secs(second);
            let some = std::iter::from_fn(|| frames.next_if(|frame| frame.at < end));
            bench.run(some.collect::<Vec<_>>(), end);
            let window = bench.shaper.window(end).expect("smooth");
            windows.push(window.least.as_millis_f64());
        }
    }
    let parts = bench.seconds().into_iter();
    let parts = parts.map(|bytes| bytes as f64 * 8.0 / rate.0 as f64);
    let rows = parts.zip(windows).collect();
    (bench, rows)
}

#[test]
fn a_step_is_settled_within_five_seconds() {
    let mut table = String::from("second");
    let steps: Vec<_> = [4, 8, 16, 32].map(|mbit| (mbit, step(mbit))).into();
    for (mbit, _) in &steps {
        write!(table, "  {mbit:>2} Mbit/s: left  window").expect("a string");
    }
    for second in 0..SECONDS as usize {
        write!(table, "\n{second:>6}").expect("a string");
        for (_, (_, rows)) in &steps {
            let (left, window) = rows[second];
            write!(table, "  {:>13.2} %  {window:>4.1} ms", left * 100.0).expect("a string");
        }
    }
    table.push('\n');
    for (mbit, (bench, rows)) in &steps {
        let limit = mbit * 125_000;
        let worst = bench.worst_second();
        assert!(
            worst * 100 <= limit * 102,
            "{worst} B in a second of {limit}"
        );
        for (second, (left, window)) in rows.iter().enumerate() {
            let load = if (10..20).contains(&second) { 1.0 } else { 0.5 };
            if second % 10 >= 5 {
                assert!(
                    (left / load - 1.0).abs() < 0.01,
                    "{left} in second {second}"
                );
                let moved = (window - rows[second - 1].1).abs();
                assert!(
                    moved < 3.0,
                    "{moved} ms in second {second} at {mbit} Mbit/s"
                );
            }
        }
    }
    assert_eq!(table, include_str!("step.txt"), "\n{table}");
}
