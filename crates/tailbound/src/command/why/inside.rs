//! `tailbound why --self`: what a guest can find out by itself, without privilege.

use super::SCHEMA;
use crate::command::output::{self, Output};
use crate::exit::Exit;
use serde::Serialize;
use std::fmt::Write as _;
use tailbound_look::inside::{Inside, Place};
use tailbound_units::Nanos;
use tailbound_watch::inside::measure;

/// The document that `--output json` prints.
#[derive(Debug, Serialize)]
struct Document {
    window_ns: u64,
    finding: &'static str,
    sentence: String,
    evidence: Vec<String>,
    advice: Option<&'static str>,
    wakes: Option<WakesDocument>,
    steal_ns: Option<u64>,
    user_ns: Option<u64>,
    throttled_periods: Option<u64>,
    throttled_ns: Option<u64>,
    segments_sent: Option<u64>,
    segments_sent_again: Option<u64>,
    unexamined: Vec<UnexaminedDocument>,
}

#[derive(Debug, Serialize)]
struct WakesDocument {
    wakes: u64,
    late: u64,
    delay_ns: u64,
    longest_ns: u64,
    queued_ns: u64,
}

#[derive(Debug, Serialize)]
struct UnexaminedDocument {
    part: &'static str,
    why: String,
}

/// Measures for `window`, and prints the answer.
pub(super) fn answer(window: Nanos, form: Output) -> Exit {
    let inside = measure(window);
    output::print(&match form {
        Output::Text => text(&inside),
        Output::Json => output::json("why-self", SCHEMA, &document(&inside)),
    });
    match inside.place() {
        Place::Unknown => Exit::CouldNotRun,
        _ => Exit::Holds,
    }
}

fn text(inside: &Inside) -> String {
    let mut out = format!("{}\n", inside.sentence());
    // Writing to a String does not fail.
    for line in inside.evidence() {
        let _ = writeln!(out, "  {line}");
    }
    if let Some(advice) = inside.advice() {
        let _ = writeln!(out, "Next step: {advice}.");
    }
    out
}

fn document(inside: &Inside) -> Document {
    let unexamined = inside.unexamined().into_iter();
    let throttled = inside.throttled.as_ref().ok();
    let segments = inside.segments.as_ref().ok();
    Document {
        window_ns: inside.window.0,
        finding: inside.place().name(),
        sentence: inside.sentence(),
        evidence: inside.evidence(),
        advice: inside.advice(),
        wakes: inside.wakes.as_ref().ok().map(|wakes| WakesDocument {
            wakes: wakes.count,
            late: wakes.late,
            delay_ns: wakes.delay.0,
            longest_ns: wakes.longest.0,
            queued_ns: wakes.queued.0,
        }),
        steal_ns: inside.steal.as_ref().ok().map(|it| it.0),
        user_ns: inside.user.as_ref().ok().map(|it| it.0.0),
        throttled_periods: throttled.map(|it| it.0),
        throttled_ns: throttled.map(|it| it.1.0),
        segments_sent: segments.map(|it| it.0),
        segments_sent_again: segments.map(|it| it.1),
        unexamined: unexamined
            .map(|(part, why)| UnexaminedDocument { part, why })
            .collect(),
    }
}
