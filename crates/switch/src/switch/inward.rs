//! Policing of traffic to a guest by its senders' guarantees.

use super::guest::GuestPort;
use super::{GuestMut, GuestRef};
use std::net::IpAddr;
use tailbound_dataplane::pacer::void;
use tailbound_dataplane::{Admission, Class, FlowKey, Frame, Inward, InwardConfig, Packet};
use tailbound_units::{Bytes, Nanos, WireBytes};

impl<'s> GuestMut<'s> {
    /// Sets the guarantees of the guest's senders: frames that conform are delivered before all
    /// others. `None`: no distinction.
    pub fn set_inward(&mut self, now: Nanos, config: Option<InwardConfig>) {
        match (&mut self.state().inward, config) {
            (Some(inward), Some(config)) => inward.reconfigure(now, config),
            (inward, config) => *inward = config.map(|config| Inward::new(now, config)),
        }
    }

    /// Returns the policer of the guest's senders; `None` if there is none.
    pub fn inward(self) -> Option<&'s mut Inward> {
        self.parts.table[self.index].inward.as_mut()
    }
}

impl GuestRef<'_> {
    /// Returns the bytes that the guest has taken so far of its senders' guaranteed traffic, and true
    /// if more of this traffic is queued. Other traffic has a lower priority and is no measure of
    /// the senders' rates.
    pub fn drained(self) -> (Bytes, bool) {
        self.state().pipeline.first()
    }
}

impl GuestPort {
    /// Enqueues a frame in front of the port; frames that conform to their sender's guarantee go
    /// first.
    pub(super) fn deliver(&mut self, now: Nanos, packet: Packet) {
        if self.conforms(now, &packet) {
            self.pipeline.push_first(now, packet);
        } else {
            self.pipeline.push(now, packet);
        }
    }

    /// Enqueues a frame that the pacer has released for this guest, which needs no second check. It
    /// goes first if it was paced to the rate that this guest's senders may use.
    pub(super) fn deliver_paced(&mut self, now: Nanos, packet: Packet) {
        match packet.class() {
            Class::Guaranteed => self.pipeline.push_first(now, packet),
            Class::Small | Class::Lowest => self.pipeline.push(now, packet),
        }
    }

    fn conforms(&mut self, now: Nanos, packet: &Packet) -> bool {
        let is_guaranteed = packet.class() == Class::Guaranteed && !packet.is_multicast();
        let inward = self.inward.as_mut().filter(|_| is_guaranteed);
        let Some(inward) = inward else {
            return false;
        };
        // By its station, or by its address where it comes through a router.
        let station = FlowKey::station(packet.source_mac());
        let sender = inward.sender(station).or_else(|| {
            let source = match packet.ip_source()? {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
                IpAddr::V6(v6) => v6.to_bits(),
            };
            inward.sender(source)
        });
        inward.admit(now, sender, on_the_wire(packet)) == Admission::Conforming
    }
}

/// Returns the length of a packet's frames on the wire.
fn on_the_wire(packet: &Packet) -> WireBytes {
    match packet.segments() {
        1 => void::on_the_wire(packet.len()),
        // The network stack has merged received frames.
        frames => void::OVERHEAD * frames as u64 + WireBytes(packet.wire_len() as u64),
    }
}
