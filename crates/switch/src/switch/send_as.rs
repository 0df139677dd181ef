//! Frames that the host sends in a guest's name, for a trial of the guest's guarantee.

use super::GuestMut;
use super::Ports;
use crate::port::BURST;
use tailbound_units::Nanos;

/// Time for which frames wait in the pacer: shorter than the wait after which any destination's
/// limit drops them.
const AHEAD: Nanos = Nanos::from_micros(500);
/// Approximate memory of a frame beside its bytes.
const ASIDE: u64 = 600;

impl GuestMut<'_> {
    /// Accepts copies of a frame as if the guest had sent them. Their number keeps the guest's
    /// guarantee busy if the last call was `ago` before. They pass the same checks as the guest's
    /// own frames, and are charged to its limit and its guarantee. None is accepted if the guest
    /// has no guarantee, has frames that wait to be forwarded, or its port is unread. Returns the
    /// number of accepted copies.
    pub fn send_as(&mut self, frame: &[u8], ago: Nanos, ports: &Ports) -> usize {
        let (guest, port) = (self.id(), self.port());
        if !self.parts.table.is_open(port)
            || self.parts.table.is_drained(port)
            || self.parts.table[port].has_received()
        {
            return 0;
        }
        let pacer = self.parts.transmitter.pacer();
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
        for _ in 0..missing {
            let copy = self.parts.receiver.copy(frame);
            self.parts.table[port].inbound.frames.push_back(copy);
        }
        self.parts.table.note(port, ports);
        missing
    }
}
