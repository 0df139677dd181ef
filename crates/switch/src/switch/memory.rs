//! Release of unused memory.

use super::agenda::earlier;
use super::table::PortTable;
use super::transmitter::Transmitter;
use crate::index::PortIndex;
use tailbound_dataplane::{Pool, Spare};
use tailbound_units::Nanos;

/// Schedule for freeing unused memory in small batches: buffers after a second in which every
/// turn had too many, and then the capacity of queues that was not needed for two seconds.
#[derive(Debug, Default)]
pub(super) struct GiveBack {
    /// The time to free the next few buffers, while there are too many.
    next: Option<Nanos>,
    /// The round over the queues, while any may have too much capacity.
    round: Option<QueueRound>,
}

/// A round over all queues, one port after the other.
#[derive(Debug)]
struct QueueRound {
    at: Nanos,
    port: PortIndex,
    /// The remaining excess of the visited queues.
    left: Spare,
    /// True if something was freed since the last report.
    freed: bool,
}

impl GiveBack {
    /// Time for which buffers are unused before they are freed: short lulls cost nothing.
    const AFTER: Nanos = Nanos::from_secs(1);
    /// The time for queues: longer than the interval for which `CoDel` uses its past state (RFC
    /// 8289, 4.4).
    const AFTER_QUEUES: Nanos = Nanos::from_secs(2);
    /// Interval between two batches. 700 MB of large buffers are freed in 2 s.
    const EVERY: Nanos = Nanos::from_millis(10);
    /// Ports that are visited in one step.
    const PORTS: usize = 16;

    pub(super) fn poll_at(&self) -> Option<Nanos> {
        earlier(self.next, self.round.as_ref().map(|round| round.at))
    }
}

impl GiveBack {
    /// Frees a batch of memory if that is due; returns true after the last one.
    #[inline]
    pub(super) fn give_back(
        &mut self,
        now: Nanos,
        pool: &Pool,
        table: &mut PortTable,
        transmitter: &mut Transmitter,
    ) -> bool {
        if !pool.has_excess() && self.round.is_none() {
            self.next = None;
            return false;
        }
        self.give_some_back(now, pool, table, transmitter)
    }

    #[inline(never)]
    fn give_some_back(
        &mut self,
        now: Nanos,
        pool: &Pool,
        table: &mut PortTable,
        transmitter: &mut Transmitter,
    ) -> bool {
        if self.give_back_buffers(now, pool) && self.round.is_none() {
            // The queues that held these buffers have capacity for as many frames.
            self.round = Some(QueueRound {
                at: now,
                port: PortIndex::FIRST,
                left: Spare::Nothing,
                freed: true,
            });
        }
        let round = self.round.take_if(|round| round.at <= now);
        round.is_some_and(|round| self.go_on_round(now, round, table, transmitter))
    }

    /// Frees a few buffers if that is due; returns true after the last of them.
    fn give_back_buffers(&mut self, now: Nanos, pool: &Pool) -> bool {
        if !pool.has_excess() {
            self.next = None;
            return false;
        }
        let next = self.next.get_or_insert(now + Self::AFTER);
        if *next > now {
            return false;
        }
        *next = now + Self::EVERY;
        pool.give_back();
        let is_done = !pool.has_excess();
        if is_done {
            self.next = None;
        }
        is_done
    }

    /// Visits some queues; returns true if these were the last, and something was freed.
    fn go_on_round(
        &mut self,
        now: Nanos,
        mut round: QueueRound,
        table: &mut PortTable,
        transmitter: &mut Transmitter,
    ) -> bool {
        let mut visits = Self::PORTS;
        while round.port < table.end() && visits > 0 {
            let left = transmitter.give_back(round.port, table);
            round.left = round.left.max(left);
            round.port = round.port.next();
            visits -= 1;
        }
        round.freed |= round.left == Spare::More;
        round.at = now + Self::EVERY;
        let mut is_done = false;
        if round.port >= table.end() {
            round.port = PortIndex::FIRST;
            match std::mem::replace(&mut round.left, Spare::Nothing) {
                Spare::Nothing => return round.freed,
                Spare::InUse => {
                    round.at = now + Self::AFTER_QUEUES;
                    is_done = std::mem::take(&mut round.freed);
                }
                Spare::More => {}
            }
        }
        self.round = Some(round);
        is_done
    }
}
