//! A guest that exceeds its guarantee while the wire is idle.

use super::FRAME;
use super::host::{Host, PoissonMessages, START};
use crate::scenario::Scenario;
use crate::{Threads, parallel};
use serde::Deserialize;
use std::collections::HashMap;
use tailbound_dataplane::PacketRecord;
use tailbound_dataplane::pacer::{Guarantee, PacerConfig, PacerError, WireCount, WireItem};
use tailbound_experiment::{ExperimentError, Run, RunOutput, Section};
use tailbound_report::{Chart, ChartAxis, Line, LineStyle, Variant};
use tailbound_units::{Bytes, Nanos, Position, Rate, WireBytes};

/// A guest on an idle wire.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Elastic {
    /// Rate of the wire.
    pub link: Rate,
    /// Hold time of a formerly elastic flow's frames.
    pub drain: Nanos,
    /// Guarantee of the measured guest.
    pub guest: Guarantee,
    /// Its offered load, in percent of the wire.
    pub offered: u64,
    /// Its flows.
    pub flows: u16,
    /// Guarantee of a neighbour, which sends 90 % of it, frame by frame.
    pub neighbour: Guarantee,
    /// Time from which guests without a guarantee fill the wire.
    pub busy_from: Nanos,
    /// Their end.
    pub busy_until: Nanos,
    /// Duration.
    pub time: Nanos,
}

/// A frame on the wire.
struct SentFrame {
    at: Position,
    frame: PacketRecord,
    /// Guaranteed position of the frame.
    departure: Option<Position>,
    is_elastic: bool,
}

/// All frames on the wire.
#[derive(Default)]
struct WireLog {
    sent: Vec<SentFrame>,
    elastic: WireCount,
}

/// The guests' numbers.
const GUEST: u32 = 0;
const NEIGHBOUR: u32 = 1;

/// Time besides `drain` after which others and the guest have reached their steady state.
const SETTLED: Nanos = Nanos::from_millis(1);

impl Scenario for Elastic {
    fn check(&self, section: &mut Section<'_>) {
        section.range("drain", self.drain, Nanos::ZERO..=Nanos::from_secs(1));
        section.range("offered", self.offered, 1..=1_000);
        section.range("flows", self.flows, 1..=1_000);
        section.range("time", self.time, SETTLED..=Nanos::from_secs(10));
        let settled = self.drain + SETTLED;
        section.range("busy_from", self.busy_from, SETTLED + SETTLED..=self.time);
        let least = self.busy_from + settled + SETTLED;
        section.range("busy_until", self.busy_until, least..=self.time);
    }

    fn outline(&self) -> Vec<Variant> {
        let nothing = WireLog::default();
        let names = ["on", "off"].into_iter();
        names
            .map(|name| self.variant(name, &nothing, &nothing))
            .collect()
    }

    fn run(&self, run: &mut Run<'_, Threads>) -> Result<RunOutput, ExperimentError> {
        let seed = run.seed;
        let variants = [("on", true), ("off", false)];
        let name = |(name, _): &(&str, bool)| (*name).to_owned();
        let watched = parallel::map(run, &variants, name, |(_, is_on)| self.watch(*is_on, seed))?;
        let mut found = RunOutput::default();
        let mut lines = Vec::new();
        for ((name, _), it) in variants.iter().zip(&watched) {
            found.variants.push(self.variant(name, it, &watched[1]));
            lines.push(Line::new(*name, LineStyle::Measured, self.over_time(it)));
        }
        let promised = self.guest.bandwidth.0 as f64 / 1e6;
        let ends = [0, self.time.0].map(|at| (at as f64 / 1e6, promised));
        lines.push(Line::new("guaranteed", LineStyle::Bound, ends));
        found.charts.push(Chart {
            name: "rate".to_owned(),
            title: "Sent bytes of the guest in each millisecond".to_owned(),
            x: ChartAxis::linear("time", "ms"),
            y: ChartAxis::linear("rate", "Mbit/s"),
            lines,
            note: Some(format!(
                "Others fill the wire from {} to {}.",
                self.busy_from, self.busy_until
            )),
        });
        found.condition("link", self.link.to_string());
        found.condition("drain", self.drain.to_string());
        found.condition("flows", self.flows);
        Ok(found)
    }
}

impl Elastic {
    fn watch(&self, is_on: bool, seed: u64) -> Result<WireLog, PacerError> {
        let mut host = Host::new(&PacerConfig {
            work_conserving: is_on,
            drain: self.drain,
            ..PacerConfig::new(self.link)
        })?;
        let mean = self.link.percent(self.offered).time_for(Bytes(FRAME)).0;
        let flows = u64::from(self.flows);
        let frames = PoissonMessages::new(1, mean, seed).map(move |frame| PacketRecord {
            port: (frame.id % flows) as u16,
            ..frame
        });
        let end = START + self.time;
        host.add(
            Some(&self.guest),
            frames.take_while(move |frame| frame.came < end),
        )?;
        let offers = self.neighbour.bandwidth.percent(90);
        let frames = (0..).map(move |id| PacketRecord {
            id,
            came: START + offers.time_for(Bytes(id * FRAME)),
            ..PacketRecord::on_wire(FRAME)
        });
        host.add(
            Some(&self.neighbour),
            frames.take_while(move |frame| frame.came < end),
        )?;
        let (from, until) = (START + self.busy_from, START + self.busy_until);
        let pause = self.link.percent(200).time_for(Bytes(FRAME));
        let flood = (0..).map(move |id| PacketRecord {
            id,
            came: from + Nanos(pause.0 * id),
            ..PacketRecord::on_wire(FRAME)
        });
        host.add(None, flood.take_while(move |frame| frame.came < until))?;
        let mut found = WireLog::default();
        host.run_paced(end, |paced| {
            let (at, frame, departure, is_elastic) = match paced {
                WireItem::Guaranteed {
                    frame,
                    departure,
                    at,
                    ..
                } => (at, frame, Some(departure), false),
                WireItem::Elastic { frame, at, .. } => (at, frame, None, true),
                WireItem::BestEffort { .. } | WireItem::Local { .. } | WireItem::Void { .. } => {
                    return;
                }
            };
            found.sent.push(SentFrame {
                at,
                frame,
                departure,
                is_elastic,
            });
        });
        found.elastic = host.pacer.stats().elastic;
        Ok(found)
    }

    /// Returns the position on the wire of a time after the start.
    fn position(&self, after: Nanos) -> Position {
        Position(self.link.bytes_in(START + after).0)
    }

    /// Returns the bytes that a guest sends between two times.
    fn bytes(&self, seen: &WireLog, guest: u32, from: Nanos, until: Nanos) -> f64 {
        let span = self.position(from)..self.position(until);
        let sent = seen.sent.iter();
        let within = sent.filter(|sent| sent.frame.guest == guest && span.contains(&sent.at));
        within.map(|sent| sent.frame.wire().0).sum::<u64>() as f64
    }

    /// Returns the guest's rate in each millisecond, in Mbit/s.
    fn over_time(&self, seen: &WireLog) -> Vec<(f64, f64)> {
        let millis = self.time.0 / 1_000_000;
        let each = (0..millis).map(|at| {
            let span = [at, at + 1].map(Nanos::from_millis);
            let bytes = self.bytes(seen, GUEST, span[0], span[1]);
            (at as f64 + 0.5, bytes * 8.0 / 1e3)
        });
        each.collect()
    }

    fn variant(&self, name: &str, seen: &WireLog, off: &WireLog) -> Variant {
        let idle = (SETTLED, self.busy_from);
        let wire = self.link.bytes_in(idle.1.since(idle.0)).0 as f64;
        let left = wire - self.bytes(seen, NEIGHBOUR, idle.0, idle.1);
        let used = 100.0 * self.bytes(seen, GUEST, idle.0, idle.1) / left;
        let busy = (self.busy_from + self.drain + SETTLED, self.busy_until);
        let promised = self.guest.bandwidth.bytes_in(busy.1.since(busy.0)).0 as f64;
        let back = 100.0 * self.bytes(seen, GUEST, busy.0, busy.1) / promised;
        let (departs, begins) = later(seen, off);
        Variant::of_values(
            name,
            [
                ("used_of_idle_wire", used, "%"),
                ("got_of_guarantee_when_busy", back, "%"),
                ("elastic", seen.elastic.packets as f64, ""),
                ("overtaken", self.overtaken(seen) as f64, ""),
                ("neighbour_departs_off_max", departs.0 as f64, "B"),
                ("neighbour_begins_later_max", begins.0 as f64, "B"),
            ],
        )
    }

    /// Returns the number of frames that others of their flow overtake if each elastic frame waits
    /// in the network for `drain`, and no other frame waits.
    fn overtaken(&self, seen: &WireLog) -> u64 {
        let drain = WireBytes::from(self.link.bytes_in(self.drain));
        let of_guest = seen.sent.iter().filter(|sent| sent.frame.guest == GUEST);
        let mut arrivals: Vec<_> = of_guest
            .map(|sent| {
                let waits = if sent.is_elastic {
                    drain
                } else {
                    WireBytes::ZERO
                };
                (sent.at + waits, sent.frame)
            })
            .collect();
        arrivals.sort_by_key(|(at, _)| *at);
        let mut last = HashMap::new();
        let mut overtaken = 0;
        for (_, frame) in arrivals {
            let last = last.entry(frame.port).or_insert(0);
            overtaken += u64::from(frame.id < *last);
            *last = frame.id.max(*last);
        }
        overtaken
    }
}

/// Returns the difference of the neighbour's departures, and the delay of its frames, compared with
/// a run without elastic flows.
fn later(seen: &WireLog, off: &WireLog) -> (WireBytes, WireBytes) {
    let of = |seen: &'_ WireLog| {
        let sent = seen.sent.iter();
        let own = sent.filter(|sent| sent.frame.guest == NEIGHBOUR);
        own.filter_map(|sent| Some((sent.departure?, sent.at)))
            .collect::<Vec<_>>()
    };
    let (mut departs, mut begins) = (WireBytes::ZERO, WireBytes::ZERO);
    for (on, off) in of(seen).into_iter().zip(of(off)) {
        departs = departs.max(on.0.since(off.0)).max(off.0.since(on.0));
        begins = begins.max(on.1.since(off.1));
    }
    (departs, begins)
}
