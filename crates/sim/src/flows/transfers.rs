//! Data on its way: how much of each flow is left, and which flow is done next.

use super::sharing::{LinkId, Sharing};
use crate::net::{NodeId, Time, TournamentQueue};

/// Flows end at whole microseconds: those that should end at once, and differ by a rounding, do.
const TICK: u64 = 1_000_000;
const PICOS_A_SECOND: f64 = 1e12;
/// Flows for which there is room at first.
const FLOWS: usize = 1_024;

/// The kinds of links that a flow may pass: hosts' alone, racks' as well, pods' as well.
pub(super) const TIERS: usize = 3;

/// Flows with data, and their rates.
#[derive(Debug)]
pub(super) struct Transfers {
    sharing: Sharing,
    /// By the flow's number.
    all: Vec<Transfer>,
    due: TournamentQueue,
    /// How many flows `due` has room for.
    room: usize,
    carried: [f64; TIERS],
}

#[derive(Debug, Clone, Copy, Default)]
struct Transfer {
    owner: usize,
    /// Bits that each of the equal flows still has to move since `since`.
    left: f64,
    since: Time,
    rate: f64,
    /// How many equal flows, and how many tiers they pass.
    count: u32,
    tiers: usize,
}

/// What is to be moved.
#[derive(Debug, Clone, Copy)]
pub(super) struct Data {
    /// Who is told when it is done.
    pub(super) owner: usize,
    /// How many equal flows.
    pub(super) count: u32,
    /// Bits of each.
    pub(super) bits: f64,
    /// How many tiers of the network it passes.
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

    /// The links.
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

    /// When the next flow is done.
    pub(super) fn next(&self) -> Time {
        self.due.first().0
    }

    /// Ends all flows that are done, and tells whose they were.
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

    /// Computes the rates after flows came and went at this moment.
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

    /// Sees that every flow has a place in `due`.
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

    /// What all flows moved so far over links of each tier, in bits, up to `now`. A flow passes
    /// two links of each tier and counts once.
    pub(super) fn carried(&mut self, now: Time) -> [f64; TIERS] {
        for id in 0..self.all.len().min(self.room) {
            if self.due.time_of(NodeId(id as u32)) != Time::NEVER {
                self.carry(id, now);
            }
        }
        self.carried
    }

    /// Counts what a flow has moved up to `now`.
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
    /// When it is done if its rate stays.
    fn end(&self) -> Time {
        let picos = self.left / self.rate * PICOS_A_SECOND;
        let ticks = (picos / TICK as f64).ceil();
        // What takes longer than time lasts is not done.
        if ticks.is_nan() || ticks >= (u64::MAX / TICK / 2) as f64 {
            return Time::NEVER;
        }
        let end = self.since.0.saturating_add(ticks as u64 * TICK);
        Time(end.next_multiple_of(TICK))
    }
}
