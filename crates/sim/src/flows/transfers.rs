//! Data in transfer: remaining bits of each flow, and the next flow to end.

use super::sharing::{LinkId, Sharing};
use crate::net::{NodeId, Time, TournamentQueue};

/// Flows end at whole microseconds, in picoseconds: flows that should end together, and differ by
/// rounding, do.
const TICK: u64 = 1_000_000;
const PICOS_A_SECOND: f64 = 1e12;
/// Initial capacity, in flows.
const FLOWS: usize = 1_024;

/// Number of tiers of links that a flow may pass: only hosts', racks' too, pods' too.
pub(super) const TIERS: usize = 3;

/// Flows with data, and their rates.
#[derive(Debug)]
pub(super) struct Transfers {
    sharing: Sharing,
    /// Transfers, by the flow's number.
    all: Vec<Transfer>,
    due: TournamentQueue,
    /// Capacity of `due`, in flows.
    room: usize,
    carried: [f64; TIERS],
}

#[derive(Debug, Clone, Copy, Default)]
struct Transfer {
    owner: usize,
    /// Remaining bits of each of the equal flows at `since`.
    left: f64,
    since: Time,
    rate: f64,
    /// Number of equal flows, and of tiers that they pass.
    count: u32,
    tiers: usize,
}

/// Data to transfer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Data {
    /// Owner, who is notified of the end.
    pub(super) owner: usize,
    /// Number of equal flows.
    pub(super) count: u32,
    /// Bits of each flow.
    pub(super) bits: f64,
    /// Number of the network's tiers that it passes.
    pub(super) tiers: usize,
}

impl Transfers {
    pub(super) fn new() -> Self {
        Self {
            sharing: Sharing::default(),
            all: Vec::new(),
            due: TournamentQueue::new(FLOWS),
            room: FLOWS,
            carried: [0.0; TIERS],
        }
    }

    /// Returns the links.
    pub(super) fn links(&mut self) -> &mut Sharing {
        &mut self.sharing
    }

    /// Starts flows over these links. They have no rate before [`Self::settle`].
    pub(super) fn start(&mut self, now: Time, way: &[LinkId], data: Data) {
        let id = self.sharing.add(way, data.count) as usize;
        if id >= self.all.len() {
            self.all.resize(id + 1, Transfer::default());
        }
        self.all[id] = Transfer {
            owner: data.owner,
            left: data.bits,
            since: now,
            rate: 0.0,
            count: data.count,
            tiers: data.tiers,
        };
    }

    /// Returns the end of the next flow.
    pub(super) fn next(&self) -> Time {
        self.due.first().0
    }

    /// Ends all flows that are complete, and calls `done` with their owners.
    pub(super) fn finish(&mut self, now: Time, mut done: impl FnMut(usize)) {
        loop {
            let (at, flow) = self.due.first();
            if at > now {
                return;
            }
            let id = flow.index();
            self.carry(id, now);
            self.due.set(flow, Time::NEVER);
            self.sharing.remove(flow.0);
            done(self.all[id].owner);
        }
    }

    /// Computes the rates after flows were added and removed at `now`.
    pub(super) fn settle(&mut self, now: Time) {
        let changed = self.sharing.update().to_vec();
        self.make_room();
        for id in changed {
            self.carry(id as usize, now);
            let transfer = &mut self.all[id as usize];
            transfer.rate = self.sharing.rate(id);
            self.due.set(NodeId(id), transfer.end());
        }
    }

    /// Extends `due` to all flows.
    fn make_room(&mut self) {
        let needed = self.all.len();
        if needed <= self.room {
            return;
        }
        let mut larger = TournamentQueue::new(needed.next_power_of_two());
        for flow in (0..self.room as u32).map(NodeId) {
            larger.set(flow, self.due.time_of(flow));
        }
        self.due = larger;
        self.room = needed.next_power_of_two();
    }

    /// Returns the bits that all flows have moved over links of each tier up to `now`. A flow
    /// passes two links of each tier and counts once.
    pub(super) fn carried(&mut self, now: Time) -> [f64; TIERS] {
        for id in 0..self.all.len().min(self.room) {
            if self.due.time_of(NodeId(id as u32)) != Time::NEVER {
                self.carry(id, now);
            }
        }
        self.carried
    }

    /// Adds the bits that a flow has moved up to `now`.
    fn carry(&mut self, id: usize, now: Time) {
        let transfer = &mut self.all[id];
        let seconds = now.since(transfer.since).0 as f64 / PICOS_A_SECOND;
        let moved = (transfer.rate * seconds).min(transfer.left);
        transfer.left -= moved;
        transfer.since = now;
        for tier in &mut self.carried[..transfer.tiers] {
            *tier += moved * f64::from(transfer.count);
        }
    }
}

impl Transfer {
    /// Returns the end of the transfer at its current rate.
    fn end(&self) -> Time {
        let picos = self.left / self.rate * PICOS_A_SECOND;
        let ticks = (picos / TICK as f64).ceil();
        // A transfer beyond the range of `Time` never ends.
        if ticks.is_nan() || ticks >= (u64::MAX / TICK / 2) as f64 {
            return Time::NEVER;
        }
        let end = self.since.0.saturating_add(ticks as u64 * TICK);
        Time(end.next_multiple_of(TICK))
    }
}
