//! Frames that the host itself sends in a guest's name, to try what the guest is guaranteed.

use super::{Ports, Switch};
use crate::port::{BURST, Received};
use tailbound_dataplane::{GuestId, Packet};
use tailbound_units::Nanos;

/// For how long frames wait in the pacer: less than any destination's limit drops them after.
const AHEAD: Nanos = Nanos::from_micros(500);
/// What a frame takes of the memory beside its bytes, about.
const ASIDE: u64 = 600;

impl Switch {
    /// Takes copies of a frame as if a guest had sent them, as many as keep its guarantee busy where
    /// this was called so long ago: they pass all that its own frames pass, and are charged to its limit and its guarantee. Where
    /// nothing is guaranteed to it, something of it waits to be forwarded, or its port is left unread,
    /// none is taken. Returns how many were.
    pub fn send_as(&mut self, guest: GuestId, frame: &[u8], ago: Nanos, ports: &Ports) -> usize {
        let Some(port) = self.slots.port_of(guest) else {
            return 0;
        };
        if !self.is_open(port) || self.is_drained(port) || self.states[port.0].has_received() {
            return 0;
        }
        let uplink = self.uplink.as_ref();
        let pacer = uplink.and_then(|uplink| uplink.egress.pacer());
        let Some((pacer, guarantee)) = pacer.and_then(|it| Some((it, it.guarantee(guest)?))) else {
            return 0;
        };
        let length = frame.len() as u64;
        let in_time = |time: Nanos| guarantee.bandwidth.bytes_in(time).0 / length;
        // What its bucket has saved meanwhile leaves at once.
        let saved = in_time(ago).min(guarantee.burst.0 / length);
        let each = length + ASIDE;
        let missing =
            ((in_time(AHEAD).max(2) + saved) * each).saturating_sub(pacer.memory_of(guest).0);
        let missing = (missing.div_ceil(each) as usize).min(BURST);
        let end = Packet::HEADROOM + frame.len();
        for _ in 0..missing {
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
        missing
    }
}
