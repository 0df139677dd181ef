//! Figures of a run's outcome.

use super::attribution::{PARTS, Record, SENDER_VCPU, put_parts};
use super::tally::{CLASSES, Outcome};
use tailbound_report::{Series, Value, Variant, empty_histogram};

/// Returns a setting's figures.
pub(super) fn variant(name: &str, outcome: &Outcome, hosts: usize) -> Variant {
    let totals = &outcome.totals;
    let seconds = totals.end.as_secs_f64().max(1e-9);
    let sent = 8.0 * totals.sent as f64 / seconds / hosts.max(1) as f64;
    let mut variant = Variant::of_values(
        name,
        [
            ("messages", outcome.begun as f64, ""),
            (
                "unfinished",
                (outcome.begun - outcome.ended - outcome.lost) as f64,
                "",
            ),
            ("dropped", totals.dropped as f64, ""),
            ("marked", totals.marked as f64, ""),
            ("resent", totals.resent as f64, ""),
            ("timeouts", totals.timeouts as f64, ""),
            ("longest_queue", totals.peak as f64, "B"),
            ("sent_by_a_host", sent, "bit/s"),
            ("packet_events", totals.packets as f64, ""),
        ],
    );
    if outcome.may_lose {
        let lost = Value::new("", outcome.lost as f64);
        variant.values.insert("lost_messages".to_owned(), lost);
    }
    if outcome.snoops {
        let early = Value::new("", totals.early as f64);
        variant
            .values
            .insert("acknowledged_early".to_owned(), early);
    }
    let parts = if outcome.waits { PARTS } else { SENDER_VCPU };
    put_parts(&mut variant, "", &mut outcome.records.clone(), parts);
    for (owner, talk) in (0..).zip(&outcome.talks) {
        let own = outcome.records.iter().filter(|it| it.owner == owner);
        let mut own: Vec<Record> = own.copied().collect();
        put_parts(&mut variant, &format!("{talk}_"), &mut own, parts);
        let mut took = empty_histogram();
        for record in own {
            took.saturating_record(record.took.max(1));
        }
        let mean = Value::new("ns", took.mean());
        variant.values.insert(format!("mean_{talk}"), mean);
        variant.series.insert(talk.clone(), Series::of("ns", &took));
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
