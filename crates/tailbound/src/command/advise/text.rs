//! The text for people.

use super::document::{Document, JudgementResult, PointResult, UsageResult};
use std::fmt::Write as _;
use tailbound_report::{NOTHING, Paint, Table, human};
use tailbound_units::{Bytes, Nanos, Rate};

pub(super) fn text(document: &Document, paint: Paint) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    for fault in &document.faults {
        let word = if fault.decisive {
            "NOT SURE"
        } else {
            "warning"
        };
        let _ = writeln!(out, "{}: {}", paint.doubtful(word), fault.message);
    }
    if !document.faults.is_empty() {
        out.push('\n');
    }
    let best = &document.best;
    let _ = writeln!(
        out,
        "Request ({}): {}\n\nIt is for {} for {} machines, from {} of {}.",
        best.judgement.verdict,
        paint.strong(&best.flags),
        document.question,
        document.machines,
        human(document.time_ns as f64, "ns"),
        document.recordings.join(", "),
    );
    out += &price(best, document.machines);
    if best.requests_burst_in {
        out += "S_in needs hosts that exchange rates and report `limits.inward_bursts`.\n";
    }
    out += &certainty(document);
    out.push('\n');
    out += &frontier(document, paint);
    if let Some(dry_run) = &document.dry_run {
        out.push('\n');
        if dry_run.fits {
            let _ = writeln!(
                out,
                "dry run: the service would place it on {} hosts",
                dry_run.hosts
            );
        } else {
            let refusal = dry_run.refusal.as_deref().unwrap_or("no reason");
            let _ = writeln!(out, "dry run: the service would refuse it: {refusal}");
            for near in &dry_run.nearest {
                let _ = writeln!(out, "  {near} would pass now");
            }
        }
    }
    if let Some(usage) = &document.usage {
        out.push('\n');
        out += &used(usage);
    }
    out
}

fn price(best: &PointResult, machines: u32) -> String {
    let silo = best.price.silo_slots.map_or_else(
        || "no tenant has room".to_owned(),
        |slots| format!("it takes {slots:.1} slots"),
    );
    format!(
        "The tenant takes {:.1} slots, at least {machines}: {} such tenants fill the data centre. \
         With Silo's (N-1)·S at the rate of the links {silo}.\n",
        best.price.slots, best.price.tenants
    )
}

/// Returns the sentences about the judgement.
fn certainty(document: &Document) -> String {
    let judgement = &document.best.judgement;
    let JudgementResult {
        messages,
        late,
        late_at_most,
        ..
    } = judgement;
    let mut out = format!(
        "Its choice is from the first {} messages. Of the {messages} after them {late} were late, and \
         with 95 % certainty at most {} will be if traffic stays as recorded.\n",
        document.chosen_on,
        percent(*late_at_most)
    );
    let allowed = percent(document.allowed_late);
    match judgement.verdict {
        "missed" => {
            let _ = writeln!(
                out,
                "More than the allowed {allowed} were late: the advice does not hold."
            );
        }
        "held" => {
            let needed = (2.0 * 9.0 / document.allowed_late).ceil();
            let _ = writeln!(
                out,
                "The allowed {allowed} are not sure: a recording needs about {needed} messages of \
                 independent times."
            );
        }
        _ => {}
    }
    if judgement.late > 0 {
        let _ = writeln!(
            out,
            "In {} separate episodes {} were late for S, {} for S_in, {} for Bmax.",
            judgement.episodes,
            judgement.late_for_burst,
            judgement.late_for_burst_in,
            judgement.late_for_burst_rate
        );
    }
    out
}

fn frontier(document: &Document, paint: Paint) -> String {
    let head = [
        "B", "S", "S_in", "d", "Bmax", "slots", "Silo", "late", "at most", "verdict",
    ];
    let mut table = Table::new(&head, &[9]);
    for point in &document.frontier {
        let silo = point.price.silo_slots;
        table.row([
            Rate(point.bandwidth_bit_s).to_string(),
            Bytes(point.burst_bytes).to_string(),
            Bytes(point.burst_in_bytes).to_string(),
            Nanos(point.delay_ns).to_string(),
            Rate(point.burst_rate_bit_s).to_string(),
            format!("{:.1}", point.price.slots),
            silo.map_or(NOTHING.to_owned(), |slots| format!("{slots:.1}")),
            point.judgement.late.to_string(),
            percent(point.judgement.late_at_most),
            point.judgement.verdict.to_owned(),
        ]);
    }
    table.render(paint)
}

/// Returns the sentences about the used part of a guarantee.
fn used(usage: &UsageResult) -> String {
    let (burst, needed) = (usage.burst_bytes, usage.needed_burst_bytes);
    let mut out = format!("{}: ", usage.tenant);
    if needed > burst {
        let _ = writeln!(
            out,
            "messages waited: at {} they need a burst of {}, and have {}",
            Rate(usage.bandwidth_bit_s),
            Bytes(needed),
            Bytes(burst)
        );
    } else {
        let _ = writeln!(
            out,
            "of the burst of {} at most {} was used, {:.0} %",
            Bytes(burst),
            Bytes(needed),
            needed as f64 / burst.max(1) as f64 * 100.0
        );
    }
    if let Some(needed) = usage.needed_bandwidth_bit_s {
        let has = usage.bandwidth_bit_s;
        let _ = writeln!(
            out,
            "  with this burst {} would do, {:.0} % of {}",
            Rate(needed),
            needed as f64 / has as f64 * 100.0,
            Rate(has)
        );
    }
    for level in usage
        .levels
        .iter()
        .filter(|level| level.direction == "sent")
    {
        if level.highest_bytes * 2 <= burst {
            let _ = writeln!(
                out,
                "  {} never used more than {} of it",
                level.machine,
                Bytes(level.highest_bytes)
            );
        }
    }
    out
}

/// Returns a share as a percentage with two digits that matter.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let digits = (1.0 - percent.max(1e-9).log10().floor()).clamp(0.0, 9.0) as usize;
    format!("{percent:.digits$} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_has_two_digits_that_matter() {
        for (share, text) in [
            (1e-4, "0.010 %"),
            (0.000_016_4, "0.0016 %"),
            (0.5, "50 %"),
            (1.0, "100 %"),
            (0.0, "0.000000000 %"),
        ] {
            assert_eq!(percent(share), text);
        }
    }
}
