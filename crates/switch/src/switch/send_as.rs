//! Frames that the host itself sends in a guest's name, to try what the guest is guaranteed.

use super::{Ports, Switch};
use crate::port::{BURST, Received};
use tailbound_dataplane::{GuestId, Packet};

impl Switch {
    /// Takes a burst of copies of a frame as if a guest had sent them: they pass all that its own
    /// frames pass, and are charged to its limit and its guarantee. Where something of the guest's
    /// waits to be forwarded, or its port is left unread, none is taken. Returns how many were.
    pub fn send_as(&mut self, guest: GuestId, frame: &[u8], ports: &Ports) -> usize {
        let Some(port) = self.slots.port_of(guest) else {
            return 0;
        };
        if !self.is_open(port) || self.is_drained(port) || self.states[port.0].has_received() {
            return 0;
        }
        let end = Packet::HEADROOM + frame.len();
        for _ in 0..BURST {
            let mut buffer = self.pool.buffer(end);
            buffer[Packet::HEADROOM..end].copy_from_slice(frame);
            self.states[port.0].received.push_back(Received {
                buffer,
                start: Packet::HEADROOM,
                len: frame.len(),
                virtio: None,
            });
        }
        self.note(port, ports);
        BURST
    }
}
