//! `tailbound adopt --list`: the adopted guests.

use super::super::output::{self, Output};
use super::lateness::LatenessRow;
use super::{Places, SCHEMA};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use tailbound_adopt::live::Live;
use tailbound_adopt::{Action, Entry, Journal as _};

#[derive(Debug, Serialize)]
struct Document {
    /// Absent until frames have waited for a departure time.
    #[serde(skip_serializing_if = "Option::is_none")]
    lateness: Option<LatenessRow>,
    guests: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    /// False if the host was booted since, or in another network namespace.
    in_force: bool,
    /// Dropped frames by reason, of all devices of the guest.
    drops: BTreeMap<&'static str, u64>,
    #[serde(flatten)]
    entry: Entry,
}

pub(super) fn run(places: &Places, form: Output) -> Result<Exit, Failure> {
    let here = Live::here()?;
    let mut live = places.live();
    let entries = places.preview().entries()?.into_iter();
    let rows = entries.map(|entry| {
        let in_force = here.boot == entry.boot && here.namespace == entry.namespace;
        let mut drops = BTreeMap::new();
        let steps = entry.steps.iter().filter(|_| in_force);
        let guests = steps.filter(|step| matches!(step.action, Action::Guest { .. }));
        for step in guests {
            // A device that is gone has no counters.
            for (reason, count) in live.drops(step.port.index).unwrap_or_default() {
                *drops.entry(reason).or_default() += count;
            }
        }
        Row {
            in_force,
            drops,
            entry,
        }
    });
    let guests = rows.collect();
    let document = Document {
        lateness: LatenessRow::read(&mut live)?,
        guests,
    };
    output::print(&match form {
        Output::Json => output::json("adopted", SCHEMA, &document),
        Output::Text => {
            let lateness = document.lateness.as_ref().map(LatenessRow::text);
            text(&document.guests) + &lateness.unwrap_or_default()
        }
    });
    Ok(Exit::Holds)
}

fn text(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "no guest is adopted\n".to_owned();
    }
    let mut out = String::new();
    for row in rows {
        let state = if row.in_force {
            ""
        } else {
            " (not in force: `tailbound adopt --again`)"
        };
        // Writing to a String does not fail.
        let _ = writeln!(out, "{}{state}", row.entry.name);
        if let Some(uplink) = &row.entry.uplink {
            let _ = writeln!(out, "  uplink: {uplink}");
        }
        for step in &row.entry.steps {
            let _ = writeln!(out, "  {step}");
        }
        let drops = row.drops.iter();
        let drops: Vec<_> = drops.map(|(why, count)| format!("{why} {count}")).collect();
        if !drops.is_empty() {
            let _ = writeln!(out, "  dropped frames: {}", drops.join(", "));
        }
    }
    out
}
