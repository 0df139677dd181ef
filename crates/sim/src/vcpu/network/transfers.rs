//! Transfers one after the other, each over a connection of its own.

use super::bench::{Bench, Counts, Figures, LIMIT, TALKER};
use super::frame::{End, Side};
use super::net::{Net, Notice, Station};
use super::spec::{Receiver, Sender, TransferSpec};
use crate::tcp::Connection;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use tailbound_report::{Series, empty_histogram};
use tailbound_units::{Bytes, Nanos};

/// Plan of the transfers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) size: Bytes,
    pub(super) count: u32,
    pub(super) parallel: u32,
    /// Largest pause between the end of one and the next; evenly distributed from 0.
    pub(super) pause: Nanos,
    pub(super) seed: u64,
}

/// One transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Transfer {
    pub(super) connection: u32,
    /// Times at which the receiver's application read the first byte, and the last.
    pub(super) received: (Nanos, Nanos),
    /// Times at which the sender opened the connection, and received the receiver's end.
    pub(super) sent: (Nanos, Nanos),
    /// Number of retransmitted segments, and of timeouts.
    pub(super) resent: (u64, u64),
}

#[derive(Debug, Clone, Copy)]
struct RunningTransfer {
    opener: End,
    began: Nanos,
    is_written: bool,
    is_closed: bool,
    first: Option<Nanos>,
    last: Nanos,
    bytes: u64,
}

/// Indexes of the sender and the receiver among the stations.
const SENDER: usize = 0;
const RECEIVER: usize = 1;

/// Measures transfers.
pub(super) fn measure(bench: &Bench<'_>, spec: &TransferSpec) -> Result<Figures, String> {
    let (hosts, sender) = match spec.sender {
        Sender::Bare => (1, Station::Bare),
        Sender::Virtual => (2, Station::Guest(1, TALKER)),
    };
    let receiver = match spec.receiver {
        Receiver::Guest => Station::Guest(0, TALKER),
        Receiver::Driver => Station::Driver(0),
    };
    let mut net = bench.net(hosts, vec![sender, receiver])?;
    if spec.trace {
        net.keep_trace();
    }
    let plan = Plan {
        size: spec.size,
        count: spec.count,
        parallel: spec.connections,
        pause: bench.networks.network.pause,
        seed: bench.seed,
    };
    let transfers =
        run(&mut net, plan, LIMIT).ok_or_else(|| "its transfers come to no end".to_owned())?;
    let mut figures = figures(&transfers, spec.size, &Counts::of(&net));
    figures.sequence = sequence(&net, &transfers);
    Ok(figures)
}

/// Returns the names of all values.
pub(super) fn outline() -> Figures {
    figures(&[], Bytes(0), &Counts::default())
}

/// Returns the sender's progress over time, in the transfer of median length.
fn sequence(net: &Net, transfers: &[Transfer]) -> Vec<(f64, f64)> {
    let mut by_time: Vec<&Transfer> = transfers.iter().collect();
    by_time.sort_unstable_by_key(|it| (it.sent.1 - it.sent.0, it.connection));
    let Some(median) = by_time.get(by_time.len() / 2) else {
        return Vec::new();
    };
    let of_median = net
        .trace()
        .iter()
        .filter(|it| it.connection == median.connection);
    let point = |it: &super::net::TracedSegment| ((it.at - median.sent.0).0 as f64, it.end as f64);
    of_median.map(point).collect()
}

const MEGA: f64 = 1e6;

fn figures(transfers: &[Transfer], size: Bytes, counts: &Counts) -> Figures {
    let mut speeds: Vec<u64> = transfers.iter().map(|it| it.throughput(size)).collect();
    speeds.sort_unstable();
    let at = |place: f64| {
        let place = place.clamp(0.0, speeds.len().saturating_sub(1) as f64) as usize;
        speeds
            .get(place)
            .map_or(f64::NAN, |&speed| speed as f64 / MEGA)
    };
    let count = speeds.len() as f64;
    // The 95 % interval of a median, by ranks.
    let off = 1.96 * count.sqrt() / 2.0;
    let above = speeds.iter().filter(|&&speed| speed > 125_000_000).count() as f64;
    let sum = |of: fn(&Transfer) -> u64| transfers.iter().map(of).sum::<u64>() as f64;
    let mut figures = Figures::of([
        ("median", at(count / 2.0), "MB/s"),
        ("median_low", at(count / 2.0 - off), "MB/s"),
        ("median_high", at(count / 2.0 + off), "MB/s"),
        ("above_link_rate", 100.0 * above / count, "%"),
        ("resent", sum(|it| it.resent.0) / count, ""),
        ("timeouts", sum(|it| it.resent.1) / count, ""),
        ("dropped", counts.dropped as f64 / count, ""),
        ("early", counts.early as f64 / count, ""),
        ("withheld", counts.withheld as f64 / count, ""),
        ("resets", counts.resets as f64, ""),
    ]);
    let (mut speed, mut time) = (empty_histogram(), empty_histogram());
    for transfer in transfers {
        // Both histograms grow to the whole of 64 bits.
        let _ = speed.record(transfer.throughput(size).max(1));
        let took = transfer.sent.1 - transfer.sent.0;
        let _ = time.record(took.as_nanos().max(1));
    }
    figures.series = BTreeMap::from([
        ("throughput".to_owned(), Series::of("B/s", &speed)),
        ("sender_time".to_owned(), Series::of("ns", &time)),
    ]);
    figures
}

/// Runs all transfers from station 0 to station 1. Returns `None` if they are incomplete at
/// `limit`.
pub(super) fn run(net: &mut Net, plan: Plan, limit: Nanos) -> Option<Vec<Transfer>> {
    let mut random = Pcg64Mcg::seed_from_u64(plan.seed);
    let mut running: Vec<Option<RunningTransfer>> = vec![None; plan.parallel as usize];
    let mut done = Vec::new();
    let mut opened = 0;
    for slot in 0..plan.parallel {
        let wait = random.random_range(0..=plan.pause.as_nanos());
        net.wake_at(net.now() + Nanos(wait), slot);
    }
    while done.len() < plan.count as usize {
        let end = match net.poll(limit)? {
            Notice::Wake(slot) => {
                if opened < plan.count {
                    opened += 1;
                    let began = net.now();
                    running[slot as usize] = Some(RunningTransfer {
                        opener: net.connect(SENDER, RECEIVER),
                        began,
                        is_written: false,
                        is_closed: false,
                        first: None,
                        last: began,
                        bytes: 0,
                    });
                }
                continue;
            }
            Notice::Ready(end) => end,
        };
        let of = |it: &Option<RunningTransfer>| {
            it.is_some_and(|it| it.opener.connection == end.connection)
        };
        let Some(slot) = running.iter().position(of) else {
            continue;
        };
        let Some(transfer) = &mut running[slot] else {
            continue;
        };
        let finished = match end.side {
            Side::Accepter => {
                transfer.receive(net, end);
                false
            }
            Side::Opener => transfer.send(net, end, plan.size),
        };
        if finished {
            done.push(transfer.complete(net));
            net.forget(end.connection);
            running[slot] = None;
            let wait = random.random_range(0..=plan.pause.as_nanos());
            net.wake_at(net.now() + Nanos(wait), slot as u32);
        }
    }
    Some(done)
}

impl RunningTransfer {
    fn receive(&mut self, net: &mut Net, end: End) {
        let bytes = net.read(end);
        if bytes > 0 {
            self.last = net.now();
            // The copying began this much earlier.
            self.first
                .get_or_insert(net.now().saturating_sub(Nanos(bytes)));
            self.bytes += bytes;
        }
        if !self.is_closed && net.end(end).is_some_and(Connection::is_finished) {
            self.is_closed = true;
            net.close(end);
        }
    }

    /// Returns true if the transfer is complete.
    fn send(&mut self, net: &mut Net, end: End, size: Bytes) -> bool {
        if !self.is_written && net.end(end).is_some_and(Connection::is_open) {
            self.is_written = true;
            net.write(end, size.0);
            net.close(end);
        }
        net.end(end)
            .is_some_and(|it| it.is_finished() && it.is_acknowledged())
    }

    fn complete(&self, net: &Net) -> Transfer {
        Transfer {
            connection: self.opener.connection,
            received: (self.first.unwrap_or(self.last), self.last),
            sent: (self.began, net.now()),
            resent: net.end(self.opener).map_or((0, 0), Connection::resent),
        }
    }
}

impl Transfer {
    /// Throughput as measured by the receiver's application, in bytes a second.
    pub(super) fn throughput(&self, size: Bytes) -> u64 {
        let took = (self.received.1 - self.received.0).as_nanos().max(1);
        (u128::from(size.0) * 1_000_000_000 / u128::from(took)) as u64
    }
}
