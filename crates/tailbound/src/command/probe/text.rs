//! Results of a probe as text: the verdict, a table, further remarks.

use super::document::{CpuDocument, Document};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use tailbound_probe::NodeVerdict;
use tailbound_report::{NOTHING, Paint, Table, human};

/// Returns the beginning of the first line: the verdict in its colour.
pub(super) fn painted(line: &str, outcome: NodeVerdict, colour: bool) -> String {
    let (paint, word) = (Paint(colour), outcome.word());
    let rest = line.strip_prefix(word).unwrap_or(line);
    let word = match outcome {
        NodeVerdict::Good => paint.good(word),
        NodeVerdict::Bad => paint.bad(word),
        NodeVerdict::Unsure | NodeVerdict::Inconclusive => paint.doubtful(word),
    };
    word + rest
}

/// Returns the whole text.
pub(super) fn render(document: &Document, colour: bool) -> String {
    let mut out = painted(&document.line, document.verdict, colour);
    out += "\n\n";
    let head = [
        "cpu",
        "verdict",
        "sleeps",
        "late",
        "ours",
        "stolen",
        "quota",
        "unexplained",
        "50th",
        "99th",
        "99.9th",
        "max",
        "guest",
        "probe",
    ];
    // A guest without a quota is shown without that column.
    let has_quota = document.cpus.iter().any(|cpu| cpu.counts.quota > 0);
    let shown = |column: usize| has_quota || head[column] != "quota";
    let columns: Vec<usize> = (0..head.len()).filter(|column| shown(*column)).collect();
    let heads: Vec<_> = columns.iter().map(|column| head[*column]).collect();
    let mut table = Table::new(&heads, &[1]);
    for cpu in &document.cpus {
        let row = row(cpu);
        let cells: Vec<String> = columns.iter().map(|column| row[*column].clone()).collect();
        table.row(cells);
    }
    out += &table.render(Paint(colour));
    let mut notes: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for cpu in &document.cpus {
        for note in &cpu.notes {
            notes.entry(note).or_default().push(cpu.cpu.to_string());
        }
    }
    if !notes.is_empty() {
        out.push('\n');
    }
    for (note, cpus) in notes {
        let cpus = match cpus.len() {
            all if all == document.cpus.len() => String::new(),
            _ => format!("CPU {}: ", cpus.join(", ")),
        };
        // Writing to a String does not fail.
        let _ = writeln!(out, "note  {cpus}{note}");
    }
    out
}

fn row(cpu: &CpuDocument) -> Vec<String> {
    let time = |nanos: u64| human(nanos as f64, "ns");
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let (counts, sleeps) = (&cpu.counts, &cpu.sleep_ns);
    vec![
        cpu.cpu.to_string(),
        cpu.verdict.to_string(),
        counts.samples.to_string(),
        counts.late.to_string(),
        counts.ours.to_string(),
        counts.stolen.to_string(),
        counts.quota.to_string(),
        counts.unexplained.to_string(),
        time(sleeps.p50),
        time(sleeps.p99),
        time(sleeps.p99_9),
        time(sleeps.max),
        cpu.busy.map_or_else(|| NOTHING.into(), percent),
        percent(cpu.cost),
    ]
}
