//! The last frames of a daemon: queued frames are sent, and guests take early acknowledged data,
//! before it ends or another daemon continues.

use super::HostError;
use super::clock::Clock;
use super::ports::PortSet;
use crate::wake::Signals;
use tailbound_switch::{Switch, Turn};
use tailbound_units::Nanos;

/// The longest time for draining the queues after SIGTERM.
const DRAIN: Nanos = Nanos::from_secs(1);

/// The longest time for guests to take early acknowledged data.
const SETTLE: Nanos = Nanos::from_millis(400);

/// The parts of the daemon that move its last frames.
pub(super) struct Drain<'d> {
    pub(super) clock: Clock,
    pub(super) signals: &'d Signals,
    pub(super) switch: &'d mut Switch,
    pub(super) ports: &'d mut PortSet,
}

impl Drain<'_> {
    /// Delivers early acknowledged data to guests, for at most [`SETTLE`], then resets the
    /// connections whose guests have not taken it: the successor does not know that data.
    pub(super) fn settle_guests(&mut self) -> Result<(), HostError> {
        self.switch.drain_snoops(false);
        let deadline = self.clock.now() + SETTLE;
        while self.switch.owes_guests() {
            let now = self.clock.now();
            if now >= deadline {
                self.switch.abort_snoops(now, self.ports.all());
                break;
            }
            let turn = self.switch.poll(now, self.ports.all_mut());
            let is_busy = turn.busy;
            self.handle_gone(now, turn);
            let next = self.switch.poll_at(self.ports.all()).unwrap_or(deadline);
            let next = if is_busy { now } else { next.min(deadline) };
            self.wait(now, next)?;
        }
        Ok(())
    }

    /// Sends queued frames for at most [`DRAIN`], and receives nothing. Returns the number of
    /// frames still queued.
    pub(super) fn empty_queues(&mut self) -> Result<usize, HostError> {
        let deadline = self.clock.now() + DRAIN;
        loop {
            let now = self.clock.now();
            let turn = self.switch.drain(now, self.ports.all_mut());
            self.handle_gone(now, turn);
            let waiting = self.switch.waiting(self.ports.all());
            if waiting == 0 || now >= deadline {
                return Ok(waiting);
            }
            let next = self.switch.poll_at(self.ports.all()).unwrap_or(deadline);
            self.wait(now, next.min(deadline))?;
        }
    }

    fn handle_gone(&mut self, now: Nanos, turn: Turn) {
        for (port, error) in turn.gone {
            self.ports.handle_lost(now, port, &error);
        }
    }

    fn wait(&mut self, now: Nanos, until: Nanos) -> Result<(), HostError> {
        self.ports.wait(now, Some(until), self.switch, self.signals)
    }
}
