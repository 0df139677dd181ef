//! What comes from a port, checked, and on its way to others.

use super::link::Link;
use super::paced::PacedWay;
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
        let link = &mut self.links[from.0];
        if link.is_stalled() || !link.unread.is_empty() {
            return;
        }
        let Some(port) = &mut ports[from.0] else {
            link.readable = false;
            return;
        };
        match port.receive(now, &self.pool, &mut self.burst) {
            Ok(More::No) => link.readable = false,
            Ok(More::Maybe) => turn.busy = true,
            Err(error) => {
                link.readable = false;
                turn.gone.push((from, error));
            }
        }
        link.counters.drop(Reason::Truncated, self.burst.truncated);
        self.burst.truncated = 0;
        link.unread.extend(self.burst.frames.drain(..));
    }

    /// Forwards what was received from a port, as far as a turn's work goes.
    pub(super) fn forward_read(
        &mut self,
        now: Nanos,
        from: PortIndex,
        ports: &Ports,
        turn: &mut Turn,
    ) {
        let link = &self.links[from.0];
        if link.unread.is_empty() || link.is_stalled() {
            return;
        }
        let dropped = self.uplink_drops();
        let mut segments = 0;
        let mut refused = 0;
        while segments < SEGMENTS
            && let Some(received) = self.links[from.0].unread.pop_front()
        {
            match self.forward(now, from, received, ports) {
                Ok(cut_to) => segments += cut_to,
                Err(reason) => {
                    self.links[from.0].counters.drop(reason, 1);
                    segments += 1;
                    refused += 1;
                }
            }
        }
        if self.uplink_drops() > dropped || refused > BURST / 2 {
            self.pause(now, from, segments);
        }
        let link = &self.links[from.0];
        turn.busy |= !link.unread.is_empty() && !link.is_stalled();
    }

    /// Frames that a paced uplink dropped for want of room.
    fn uplink_drops(&self) -> u64 {
        let uplink = self.forwarding.uplink();
        let link = uplink.and_then(|uplink| self.links.get(uplink.0));
        link.and_then(Link::paced).map_or(0, PacedWay::drops)
    }

    /// Lets as much time pass before the port is read again as a paced uplink takes
    /// for so many full frames, so that what is dropped costs others little.
    fn pause(&mut self, now: Nanos, from: PortIndex, frames: usize) {
        let Some(paced) = self.links.iter().find_map(Link::paced) else {
            return;
        };
        let pause = paced.time_for(frames);
        if let Some(guest) = &mut self.links[from.0].guest {
            if guest.stalled.is_empty() {
                guest.retry_at = now + pause;
            }
            guest.paused = true;
        }
    }

    /// Brings one frame into the pipelines of the ports it goes to; gives how many
    /// it may be cut to.
    fn forward(
        &mut self,
        now: Nanos,
        from: PortIndex,
        received: Received,
        ports: &Ports,
    ) -> Result<usize, Reason> {
        let link = &mut self.links[from.0];
        link.counters.received.add(received.len);
        let source = link.guest.as_ref().map(|guest| guest.id);
        let Received {
            buffer,
            start,
            len,
            virtio,
        } = received;
        let packet = Packet::new(buffer, start, len, virtio, source).map_err(|malformed| {
            tracing::debug!(port = link.name, %malformed, "dropped a frame");
            Reason::Malformed
        })?;
        if let Some(guard) = link.guest.as_ref().and_then(|guest| guest.guard.as_ref()) {
            guard.check(&packet)?;
        }
        let segments = packet.segments();
        match self.forwarding.learn(now, from, Mac(packet.source_mac())) {
            Learned::Accepted | Learned::Full => {}
            Learned::Claimed => return Err(Reason::MacClaimed),
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
        for index in (0..self.links.len()).filter(|index| *index != from.0) {
            if let Some(port) = last.replace(PortIndex(index)) {
                self.push(now, from, port, packet.duplicate(), ports);
            }
        }
        if let Some(port) = last {
            self.push(now, from, port, packet, ports);
        }
    }
}
