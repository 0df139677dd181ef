//! Watches the effect of a port of the switch on messages: the wait of each datagram in its queue,
//! the largest backlog, and the lost datagrams.
//!
//! A frame is observed when it enters the switch and when it arrives behind the port; the wire
//! between has no delay. The port has dropped the frames that entered and never arrived.

use super::events::{ALARM, Events};
use super::passage::{Passages, passage_of};
use super::{Outcome, Sample, Schedule, Starter, now};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use tailbound_sys::packet::{Batch, Socket};
use tailbound_sys::tap::VIRTIO_HEADER_LEN;
use tailbound_units::Nanos;

/// Observed interfaces, from the switch's namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// The ports through which the frames enter.
    pub enter: Vec<String>,
    /// The port whose queue the frames pass.
    pub port: String,
    /// The interface behind that port, and its namespace.
    pub behind: (String, PathBuf),
}

/// Stored bytes of each frame: its headers and a message's.
const STORED: usize = 128;
/// Longer than any queue's delay.
const DRAIN: Nanos = Nanos::from_millis(300);

pub(super) fn run(starter: &Starter<'_>, watch: &Watch) -> io::Result<()> {
    let mut sockets =
        vec![Socket::open(&watch.behind.0, Some(&watch.behind.1)).map_err(io::Error::other)?];
    for port in &watch.enter {
        sockets.push(Socket::open(port, None).map_err(io::Error::other)?);
    }
    let mut events = Events::new()?;
    for (key, socket) in sockets.iter().enumerate() {
        events.add(socket, key as u64)?;
    }
    let mut batch = Batch::new();
    let mut heads = vec![vec![0; STORED]; Batch::LEN];
    let mut tails = vec![Vec::new(); Batch::LEN];
    let mut received = Vec::with_capacity(Batch::LEN);
    let mut happened = Vec::new();
    let mut passages = Passages::new();

    let drops_before = drops(&watch.port)?;
    let schedule = starter.ready()?;
    events.set_alarm(schedule.to.saturating_add(DRAIN))?;
    loop {
        events.wait(&mut happened)?;
        for key in &happened {
            if *key == ALARM {
                for socket in &sockets {
                    if socket.take_overruns()? > 0 {
                        let lost = "frames were lost to the watch itself";
                        return Err(io::Error::other(lost));
                    }
                }
                let dropped = drops(&watch.port)?.saturating_sub(drops_before);
                return starter.finish(&summary(&passages, &schedule, dropped));
            }
            let behind = *key == 0;
            let Some(socket) = sockets.get(*key as usize) else {
                continue;
            };
            loop {
                let at = now();
                match socket.receive(&mut batch, 0, &mut heads, &mut tails, &mut received) {
                    Ok(()) => {}
                    Err(error) if super::events::is_retry(&error) => break,
                    Err(error) => return Err(error),
                }
                for (frame, head) in received.iter().zip(&heads) {
                    let stored = head.get(VIRTIO_HEADER_LEN..frame.len.min(STORED));
                    let passage = stored.and_then(|it| passage_of(it, &mut passages));
                    if let Some(passage) = passage {
                        *if behind {
                            &mut passage.left
                        } else {
                            &mut passage.entered
                        } = Some(at);
                    }
                }
            }
        }
    }
}

fn summary(passages: &Passages, schedule: &Schedule, dropped: u64) -> Outcome {
    let mut outcome = Outcome::default();
    // By message: senders that start together count together.
    let (mut rounds, mut with_loss) = (BTreeSet::new(), BTreeSet::new());
    let mut lost = 0;
    // Arrived and departed bytes, in order of time; at the same time, departures are first.
    let mut steps: Vec<(Nanos, i64)> = Vec::new();
    let counted = passages.iter().filter(|(_, it)| schedule.counts(it.start));
    for ((_, message, _), passage) in counted {
        let Some(entered) = passage.entered else {
            continue;
        };
        rounds.insert(message);
        let Some(left) = passage.left else {
            lost += 1;
            with_loss.insert(message);
            continue;
        };
        // Two sockets are read one after the other.
        let left = left.max(entered);
        outcome.samples.push(Sample {
            arrival: *message,
            start: entered,
            end: left,
        });
        let bytes = passage.wire.as_u64().cast_signed();
        steps.extend([(entered, bytes), (left, -bytes)]);
    }
    outcome.samples.sort_by_key(|sample| sample.start);
    steps.sort_unstable();
    let backlog = steps.iter().scan(0, |backlog, (_, bytes)| {
        *backlog += bytes;
        Some(*backlog)
    });
    let without_loss = rounds.len() - with_loss.len();
    let figures = [
        ("rounds", rounds.len() as f64),
        ("rounds_with_loss", with_loss.len() as f64),
        ("rounds_without_loss", without_loss as f64),
        ("frames_lost", f64::from(lost)),
        ("port_drops", dropped as f64),
        ("backlog_peak", backlog.max().unwrap_or(0) as f64),
    ];
    outcome.figures = figures
        .map(|(name, figure)| (name.to_owned(), figure))
        .into();
    outcome
}

/// Returns the number of drops in a port's queues, from the kernel's own counters.
fn drops(port: &str) -> io::Result<u64> {
    let output = Command::new("tc")
        .args(["-s", "-j", "qdisc", "show", "dev", port])
        .output()?;
    let queues: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout)?;
    // The root's counter includes its leaves' counters.
    let root = queues.iter().find(|queue| queue["root"] == true);
    let root = root.ok_or_else(|| io::Error::other(format!("{port} has no queue")))?;
    Ok(root["drops"].as_u64().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::super::passage::Passage;
    use super::*;
    use std::net::Ipv4Addr;
    use tailbound_units::Bytes;

    const SCHEDULE: Schedule = Schedule {
        start: Nanos(0),
        from: Nanos(100),
        to: Nanos(1000),
        give_up: Nanos(2000),
    };

    fn passage(start: u64, entered: u64, left: Option<u64>) -> Passage {
        Passage {
            start: Nanos(start),
            of: 3,
            wire: Bytes(1000),
            entered: Some(Nanos(entered)),
            left: left.map(Nanos),
        }
    }

    #[test]
    fn loss_backlog_and_delay_are_those_of_the_measured_rounds() {
        let from = Ipv4Addr::new(10, 77, 1, 1);
        let passages = Passages::from([
            ((from, 0, 0), passage(50, 51, None)),
            ((from, 1, 0), passage(100, 110, Some(120))),
            ((from, 1, 1), passage(100, 111, Some(130))),
            ((from, 1, 2), passage(100, 120, None)),
            ((from, 2, 0), passage(200, 210, Some(220))),
        ]);
        let outcome = summary(&passages, &SCHEDULE, 1);
        assert_eq!(outcome.samples.len(), 3);
        assert_eq!(outcome.samples[1].latency(), Nanos(19));
        let figure = |name: &str| outcome.figures[name] as u64;
        assert_eq!((figure("rounds"), figure("rounds_with_loss")), (2, 1));
        assert_eq!((figure("frames_lost"), figure("port_drops")), (1, 1));
        assert_eq!(figure("backlog_peak"), 2000);
    }
}
