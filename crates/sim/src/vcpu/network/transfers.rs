//! Transfers one after the other, each over a connection of its own.

use super::frame::{End, Side};
use super::net::{Net, Notice};
use crate::tcp::Connection;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tailbound_units::{Bytes, Nanos};

/// What is transferred.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) size: Bytes,
    pub(super) count: u32,
    pub(super) parallel: u32,
    /// Between the end of one and the next: 0 to this, evenly.
    pub(super) pause: Nanos,
    pub(super) seed: u64,
}

/// One transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Transfer {
    /// When the receiver's application had its first byte, and its last.
    pub(super) received: (Nanos, Nanos),
    /// When the sender opened the connection, and when the receiver's end came back.
    pub(super) sent: (Nanos, Nanos),
    /// Segments sent again, and timeouts.
    pub(super) resent: (u64, u64),
}

#[derive(Debug, Clone, Copy)]
struct Running {
    opener: End,
    began: Nanos,
    is_written: bool,
    is_closed: bool,
    first: Option<Nanos>,
    last: Nanos,
    bytes: u64,
}

/// Where the sender and the receiver are among the stations.
const SENDER: usize = 0;
const RECEIVER: usize = 1;

/// Runs all transfers from station 0 to station 1. `None` if they come to no end by `limit`.
pub(super) fn run(net: &mut Net, plan: Plan, limit: Nanos) -> Option<Vec<Transfer>> {
    let mut random = Pcg64Mcg::seed_from_u64(plan.seed);
    let mut running: Vec<Option<Running>> = vec![None; plan.parallel as usize];
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
                    running[slot as usize] = Some(Running {
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
        let of = |it: &Option<Running>| it.is_some_and(|it| it.opener.connection == end.connection);
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

impl Running {
    fn receive(&mut self, net: &mut Net, end: End) {
        let bytes = net.read(end);
        if bytes > 0 {
            self.last = net.now();
            // The copying began so much earlier.
            self.first
                .get_or_insert(net.now().saturating_sub(Nanos(bytes)));
            self.bytes += bytes;
        }
        if !self.is_closed && net.end(end).is_some_and(Connection::is_finished) {
            self.is_closed = true;
            net.close(end);
        }
    }

    /// Returns whether the transfer is complete.
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
            received: (self.first.unwrap_or(self.last), self.last),
            sent: (self.began, net.now()),
            resent: net.end(self.opener).map_or((0, 0), Connection::resent),
        }
    }
}

impl Transfer {
    /// Bytes a second as the receiver's application saw them.
    pub(super) fn throughput(&self, size: Bytes) -> u64 {
        let took = (self.received.1 - self.received.0).as_nanos().max(1);
        (u128::from(size.0) * 1_000_000_000 / u128::from(took)) as u64
    }
}
