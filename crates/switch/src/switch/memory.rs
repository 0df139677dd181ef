//! Memory that nobody needs any more.

use super::{Ports, Switch};
use crate::forward::PortIndex;
use crate::reason::Reason;
use tailbound_dataplane::{Frame, Packet};
use tailbound_units::Nanos;

/// When buffers that lie unused are freed: from a second on that there were too many in
/// every turn, a few at a time.
#[derive(Debug, Default)]
pub(super) struct GiveBack {
    /// When to free the next few, while there are too many.
    next: Option<Nanos>,
}

impl GiveBack {
    /// How long buffers lie unused before they are freed: short lulls cost nothing.
    const AFTER: Nanos = Nanos::from_secs(1);
    /// Between two few. 700 MB of large buffers are freed in 2 s.
    const EVERY: Nanos = Nanos::from_millis(10);

    pub(super) const fn poll_at(&self) -> Option<Nanos> {
        self.next
    }
}

impl Switch {
    /// Frees a few buffers where that is due; returns whether these were the last.
    pub(super) fn give_back(&mut self, now: Nanos) -> bool {
        if !self.pool.has_excess() {
            self.excess.next = None;
            return false;
        }
        let next = self.excess.next.get_or_insert(now + GiveBack::AFTER);
        if *next > now {
            return false;
        }
        *next = now + GiveBack::EVERY;
        self.pool.give_back();
        let is_done = !self.pool.has_excess();
        if is_done {
            self.excess.next = None;
        }
        is_done
    }

    /// Whether a port can carry a frame. The kernel would refuse it, after it waited and
    /// was paid for; what is to be cut is another matter.
    pub(super) fn fits(&mut self, packet: &Packet, to: PortIndex, ports: &Ports) -> bool {
        let tag = if packet.vlan().is_some() {
            Packet::TAG
        } else {
            0
        };
        let len = packet.len() - tag;
        let longest = self.states[to.0].longest;
        if len <= longest || packet.offload().gso.is_some() {
            return true;
        }
        // Not known yet, or another one by now.
        let Some(port) = &ports[to.0] else {
            return true;
        };
        let longest = port.longest().unwrap_or(usize::MAX);
        self.states[to.0].longest = longest;
        let fits = len <= longest;
        if !fits {
            self.states[to.0].counters.drop(Reason::AboveMtu, 1);
        }
        fits
    }
}
