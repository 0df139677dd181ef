//! What comes from a port, checked, and on its way to others.

use super::uplink::Uplink;
use super::{Ports, Switch, Turn};
use crate::forward::{Learned, NoRoute, PortIndex, Verdict};
use crate::mac::Mac;
use crate::port::{BURST, More, Received};
use crate::reason::Reason;
use tailbound_dataplane::{Frame, Packet};
use tailbound_units::Nanos;

/// Segments that a burst may have. A port whose packets have more is not read, and
/// they come in the next turns; of full frames no burst has as many. A
/// packet may be cut to hundreds of frames, so a count of packets bounds no work.
pub(super) const SEGMENTS: usize = 256;

impl Switch {
    /// Receives a burst, where the port may be read and nothing of the last one is
    /// left.
    pub(super) fn receive(
        &mut self,
        now: Nanos,
        from: PortIndex,
        ports: &mut Ports,
        turn: &mut Turn,
    ) {
        if !self.is_read(from) {
            return;
        }
        let state = &mut self.states[from.0];
        if !state.received.is_empty() {
            return;
        }
        let Some(port) = &mut ports[from.0] else {
            state.readable = false;
            return;
        };
        match port.receive(now, &self.pool, &mut self.burst) {
            Ok(More::No) => state.readable = false,
            Ok(More::Maybe) => turn.busy = true,
            Err(error) => {
                state.readable = false;
                turn.gone.push((from, error));
            }
        }
        state.counters.drop(Reason::Truncated, self.burst.truncated);
        self.burst.truncated = 0;
        state.received.extend(self.burst.frames.drain(..));
    }

    /// Forwards what was received from a port, as far as a turn's work goes.
    pub(super) fn forward_received(
        &mut self,
        now: Nanos,
        from: PortIndex,
        ports: &Ports,
        turn: &mut Turn,
    ) {
        if self.states[from.0].received.is_empty() || !self.is_read(from) {
            return;
        }
        let dropped = self.uplink_drops();
        let mut segments = 0;
        let mut refused = 0;
        while segments < SEGMENTS
            && let Some(received) = self.states[from.0].received.pop_front()
        {
            match self.forward(now, from, received, ports) {
                Ok(cut_to) => segments += cut_to,
                Err(reason) => {
                    self.states[from.0].counters.drop(reason, 1);
                    segments += 1;
                    refused += 1;
                }
            }
        }
        if self.uplink_drops() > dropped || refused > BURST / 2 {
            self.throttle(now, from, segments);
        }
        turn.busy |= !self.states[from.0].received.is_empty() && self.is_read(from);
    }

    /// Frames that a paced uplink dropped for want of room.
    fn uplink_drops(&self) -> u64 {
        self.uplink.as_ref().map_or(0, Uplink::drops)
    }

    /// Leaves the port unread for as long as a paced uplink takes for so many full
    /// frames, so that what is dropped costs others little.
    fn throttle(&mut self, now: Nanos, from: PortIndex, frames: usize) {
        let uplink = self.uplink.as_ref();
        let Some(paced) = uplink.and_then(|uplink| uplink.egress.paced()) else {
            return;
        };
        let until = now + paced.time_for(frames);
        if let Some(guest) = self.guest_at(from) {
            guest.ingress.throttle(until);
        }
    }

    /// Brings one frame into the egress of the ports it goes to; returns how many
    /// segments it may be cut to.
    fn forward(
        &mut self,
        now: Nanos,
        from: PortIndex,
        received: Received,
        ports: &Ports,
    ) -> Result<usize, Reason> {
        let state = &mut self.states[from.0];
        state.counters.received.add(received.len);
        let guest = from.0.checked_sub(usize::from(self.uplink.is_some()));
        let guest = guest.map(|guest| &self.guests[guest]);
        let source = guest.map(|guest| guest.id);
        let Received {
            buffer,
            start,
            len,
            virtio,
        } = received;
        let packet = Packet::new(buffer, start, len, virtio, source).map_err(|malformed| {
            tracing::debug!(port = state.name, %malformed, "dropped a frame");
            Reason::Malformed
        })?;
        if let Some(filter) = guest.and_then(|guest| guest.filter.as_ref()) {
            filter.check(&packet)?;
        }
        let segments = packet.segments();
        match self.forwarding.learn(now, from, Mac(packet.source_mac())) {
            Learned::Accepted | Learned::Full => {}
            Learned::ForbiddenMove => return Err(Reason::MacMove),
            Learned::Invalid => return Err(Reason::InvalidSource),
        }
        match self
            .forwarding
            .route(now, from, Mac(packet.destination_mac()))
        {
            Verdict::To(to) => self.push(now, from, to, packet, ports),
            Verdict::Flood => self.flood(now, from, packet, ports),
            Verdict::Drop(NoRoute::LinkLocal) => return Err(Reason::LinkLocalGroup),
            Verdict::Drop(NoRoute::SamePort) => return Err(Reason::SamePort),
            Verdict::Drop(NoRoute::Unknown) => return Err(Reason::UnknownDestination),
        }
        Ok(segments)
    }

    /// Copies a frame for every port but the one it came from; the last takes
    /// the frame itself.
    fn flood(&mut self, now: Nanos, from: PortIndex, packet: Packet, ports: &Ports) {
        let mut last = None;
        for index in (0..self.states.len()).filter(|index| *index != from.0) {
            if let Some(port) = last.replace(PortIndex(index)) {
                self.push(now, from, port, packet.duplicate(), ports);
            }
        }
        if let Some(port) = last {
            self.push(now, from, port, packet, ports);
        }
    }
}
