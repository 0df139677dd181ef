//! The files of `--out`: results as JSON, a page, and the plot of the frontier.

use super::document::{Document, PointResult};
use crate::command::commit;
use crate::exit::Failure;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use tailbound_report::{
    Chart, ChartAxis, CheckResult, Line, LineStyle, Provenance, Results, SCHEMA, Variant, Verdict,
    chart_svg, write_file,
};
use tailbound_units::Rate;

/// Name of the result files.
const NAME: &str = "advise";

/// Writes the files into a directory, which is made if it does not exist.
pub(super) fn write(document: &Document, directory: &Path) -> Result<(), Failure> {
    let results = results(document);
    results.write(directory)?;
    for chart in &results.charts {
        let path = directory.join(format!("{NAME}-{}.svg", chart.name));
        write_file(&path, chart_svg(chart)?)?;
    }
    Ok(())
}

fn results(document: &Document) -> Results {
    let variants = document.frontier.iter().map(variant).collect();
    let doubtful = document.faults.iter().find(|fault| fault.decisive);
    let late = &document.best.judgement;
    let pass = late.verdict != "missed";
    let allowed = document.allowed_late * 100.0;
    let check = CheckResult {
        name: "late".to_owned(),
        want: format!("<= {allowed} %"),
        got: Some(late.late as f64 / late.messages.max(1) as f64 * 100.0),
        pass,
        source: document.question.clone(),
        paper: None,
        note: Some(format!(
            "95 % sure: at most {:.5} %",
            late.late_at_most * 100.0
        )),
        not_judged: doubtful.map(|fault| fault.message.clone()),
        noise: None,
        known: None,
        misses: None,
    };
    let (verdict, reason) = match (doubtful, pass) {
        (Some(fault), _) => (Verdict::NotTested, fault.message.clone()),
        (None, true) => (Verdict::Pass, "the judged half holds".to_owned()),
        (None, false) => (Verdict::Fail, "the judged half does not hold".to_owned()),
    };
    Results {
        schema: SCHEMA,
        experiment: NAME.to_owned(),
        title: format!("Guarantee for {}", document.question),
        source: document.recordings.join(", "),
        made: Some(Provenance::now(commit())),
        seed: 0,
        conditions: conditions(document),
        variants,
        charts: charts(document),
        checks: vec![check],
        verdict,
        verdict_reason: reason,
        sentence: Some(document.best.flags.clone()),
        words: BTreeMap::new(),
    }
}

fn conditions(document: &Document) -> BTreeMap<String, serde_json::Value> {
    let faults: Vec<_> = document.faults.iter().map(|fault| &fault.message).collect();
    [
        ("machines", json!(document.machines)),
        (
            "messages",
            json!(document.chosen_on + document.best.judgement.messages),
        ),
        ("busiest", json!(Rate(document.busiest_bit_s).to_string())),
        ("faults", json!(faults)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

fn variant(point: &PointResult) -> Variant {
    let name = Rate(point.bandwidth_bit_s).to_string();
    Variant::of_values(
        &name,
        [
            ("S", point.burst_bytes as f64, "B"),
            ("S_in", point.burst_in_bytes as f64, "B"),
            ("d", point.delay_ns as f64, "ns"),
            ("Bmax", point.burst_rate_bit_s as f64, "bit/s"),
            ("slots", point.price.slots, ""),
            ("late", point.judgement.late as f64, ""),
        ],
    )
}

fn charts(document: &Document) -> Vec<Chart> {
    let points = &document.frontier;
    let line = |name: &str, style, y: &dyn Fn(&PointResult) -> f64| {
        let places = points
            .iter()
            .map(|point| (point.bandwidth_bit_s as f64, y(point)));
        Line::new(name, style, places)
    };
    let x = || ChartAxis::log("B", "bit/s");
    let silo = |point: &PointResult| point.price.silo_slots.unwrap_or(f64::NAN);
    let machines = f64::from(document.machines);
    vec![
        Chart {
            name: "frontier".to_owned(),
            title: format!("Bursts for {}", document.question),
            x: x(),
            y: ChartAxis::log("burst", "B"),
            lines: vec![
                line("S", LineStyle::Measured, &|point| point.burst_bytes as f64),
                line("S_in", LineStyle::Measured, &|point| {
                    point.burst_in_bytes as f64
                }),
            ],
            note: None,
        },
        Chart {
            name: "price".to_owned(),
            title: "Slots of a tenant".to_owned(),
            x: x(),
            y: ChartAxis::linear("slots", ""),
            lines: vec![
                line("advised", LineStyle::Measured, &|point| point.price.slots),
                line("Silo's (N-1)·S at link rate", LineStyle::Measured, &silo),
                line("machines", LineStyle::Bound, &|_| machines),
            ],
            note: None,
        },
    ]
}
