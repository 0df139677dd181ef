//! Reception: bursts of ports, which become checked packets one by one.

use super::table::{PortTable, Source};
use super::work::Cost;
use super::{Ports, Turn};
use crate::index::PortIndex;
use crate::port::{Burst, More, Received};
use crate::reason::Reason;
use tailbound_dataplane::{Classes, HashKeys, Mark, Packet, Pool};
use tailbound_units::Nanos;

/// The ingress of the switch: buffers, and the burst that is received.
#[derive(Debug)]
pub(super) struct Receiver {
    pool: Pool,
    burst: Burst,
    /// The classes of the fabric behind the uplink.
    classes: Option<Classes>,
    /// The port that is served first in the next round, if it has anything to receive.
    first: PortIndex,
}

impl Receiver {
    /// Makes a receiver with the keys for the hashes of connections.
    pub(super) fn new(keys: HashKeys) -> Self {
        Self {
            pool: Pool::with_keys(keys),
            burst: Burst::default(),
            classes: None,
            first: PortIndex::FIRST,
        }
    }

    /// Returns the buffers.
    pub(super) const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Sets the classes of the fabric behind the uplink.
    pub(super) const fn set_classes(&mut self, classes: Option<Classes>) {
        self.classes = classes;
    }

    /// Sets the marks of the fabric's delay classes.
    pub(super) fn set_delay_marks(&mut self, marks: impl IntoIterator<Item = Mark>) {
        self.classes = self.classes.map(|classes| classes.with_urgent(marks));
    }

    /// Returns the port that is served first in the next round.
    pub(super) const fn first(&self) -> PortIndex {
        self.first
    }

    /// Sets the port that is served first in the next round.
    pub(super) const fn set_first(&mut self, first: PortIndex) {
        self.first = first;
    }

    /// Receives a burst if all of the last one is forwarded.
    pub(super) fn receive(
        &mut self,
        now: Nanos,
        from: PortIndex,
        table: &mut PortTable,
        ports: &mut Ports,
        turn: &mut Turn,
    ) {
        let state = &mut table[from];
        if state.has_received() {
            return;
        }
        let Some(port) = &mut ports[from.0] else {
            state.inbound.readable = false;
            return;
        };
        match port.receive(now, &self.pool, &mut self.burst) {
            Ok(More::No) => state.inbound.readable = false,
            Ok(More::Maybe) => turn.busy = true,
            Err(error) => {
                state.inbound.readable = false;
                turn.gone.push((from, error));
            }
        }
        state.counters.drop(Reason::Truncated, self.burst.truncated);
        self.burst.truncated = 0;
        let pieces = std::mem::take(&mut self.burst.pieces);
        if pieces > 0 {
            state.inbound.share.charge(Cost::of_pieces(pieces));
        }
        if self.burst.frames.len() > 1 {
            state.inbound.frames.extend(self.burst.frames.drain(..));
        } else if let Some(only) = self.burst.frames.pop() {
            state.inbound.frames.push_back(only);
        }
    }

    /// Makes the packet of a received frame, and counts it; an error is the reason to drop it.
    pub(super) fn packet(
        &self,
        source: Source,
        received: Received,
        table: &mut PortTable,
    ) -> Result<Packet, Reason> {
        let state = &mut table[source.port];
        state.counters.received.add(received.len);
        let Received {
            buffer,
            start,
            len,
            virtio,
        } = received;
        let mut packet =
            Packet::new(buffer, start, len, virtio, source.guest).map_err(|malformed| {
                tracing::debug!(port = state.name, %malformed, "dropped a frame");
                if malformed.is_unsupported_segmentation() {
                    Reason::UnsupportedGso
                } else {
                    Reason::Malformed
                }
            })?;
        if source.guest.is_none()
            && let Some(classes) = self.classes
        {
            packet.read_class(classes);
        }
        Ok(packet)
    }

    /// Copies a frame of the host's own, as if it was received.
    pub(super) fn copy(&self, frame: &[u8]) -> Received {
        let end = Packet::HEADROOM + frame.len();
        let mut buffer = self.pool.buffer(end);
        buffer[Packet::HEADROOM..end].copy_from_slice(frame);
        Received {
            buffer,
            start: Packet::HEADROOM,
            len: frame.len(),
            virtio: None,
        }
    }
}
