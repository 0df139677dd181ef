//! What came of a run, as figures.

use super::attribution::{self, NAMES};
use super::tally::{CLASSES, Outcome};
use tailbound_report::{Series, Value, Variant, empty_histogram};

/// A setting's figures.
pub(super) fn variant(name: &str, outcome: &Outcome, hosts: usize) -> Variant {
    let totals = &outcome.totals;
    let seconds = totals.end.as_secs_f64().max(1e-9);
    let sent = 8.0 * totals.sent as f64 / seconds / hosts.max(1) as f64;
    let mut variant = Variant::of_values(
        name,
        [
            ("messages", outcome.begun as f64, ""),
            ("unfinished", (outcome.begun - outcome.ended) as f64, ""),
            ("dropped", totals.dropped as f64, ""),
            ("marked", totals.marked as f64, ""),
            ("resent", totals.resent as f64, ""),
            ("timeouts", totals.timeouts as f64, ""),
            ("longest_queue", totals.peak as f64, "B"),
            ("sent_by_a_host", sent, "bit/s"),
            ("packet_events", totals.packets as f64, ""),
        ],
    );
    let mut records = outcome.records.clone();
    for (slowest, of) in [("slowest_1_percent", 100), ("slowest_0_1_percent", 10)] {
        let parts = attribution::of_slowest(&mut records, of);
        for (name, part) in NAMES.iter().zip(parts) {
            let value = Value::new("ns", part);
            variant.values.insert(format!("{slowest}_{name}"), value);
        }
    }
    let mut all = empty_histogram();
    for (name, took) in CLASSES.iter().zip(&outcome.took) {
        let _ = all.add(took);
        let series = Series::of("ns", took);
        // Tables of means that have no percentiles are compared with values.
        let mean = Value::new("ns", took.mean());
        variant.values.insert(format!("mean_{name}"), mean);
        variant.series.insert((*name).to_owned(), series);
    }
    let all = Series::of("ns", &all);
    variant.series.insert("all".to_owned(), all);
    if let Some(tenants) = &outcome.tenants {
        tenants.put(&mut variant);
    }
    variant
}
