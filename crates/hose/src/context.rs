//! Context of both sides of a host.

use crate::config::Times;
use crate::ids::PeerIndex;
use crate::schedule::Schedule;
use crate::view::View;
use tailbound_units::Nanos;

/// The moment, what is known at it, and where the host notes what it does next.
#[derive(Debug)]
pub(crate) struct Context<'h> {
    pub(crate) now: Nanos,
    pub(crate) times: Times,
    pub(crate) view: &'h View,
    pub(crate) schedule: &'h mut Schedule,
}

impl Context<'_> {
    /// See [`Schedule::recompute_soon`].
    pub(crate) fn recompute_soon(&mut self) {
        self.schedule.recompute_soon(self.now);
    }

    /// Schedules a datagram to a peer at a time. This host exchanges with itself each interval while there is
    /// a grant.
    pub(crate) fn expedite_datagram_at(&mut self, at: Nanos, peer: PeerIndex) {
        if at <= self.now {
            self.expedite_datagram(peer);
        } else if peer != self.view.here() {
            self.schedule.expedite_datagram(at, peer);
        }
    }

    /// Schedules a datagram to a peer soon. This host exchanges with itself at its next division.
    pub(crate) fn expedite_datagram(&mut self, peer: PeerIndex) {
        if peer == self.view.here() {
            self.recompute_soon();
        } else {
            self.schedule.expedite_datagram(self.now, peer);
        }
    }
}
