//! A packet inside a host whose guests wait for CPUs.

use super::attribution::Stay;
use super::line::Tier;
use super::packet::Packet;
use crate::xen_host::{Carried, Step};
use tailbound_units::Nanos;

/// A packet in a host, and the times of its steps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inside {
    pub(super) packet: Packet,
    arrived: Nanos,
    bridged: Nanos,
    taken: Nanos,
}

impl Inside {
    pub(super) fn new(packet: Packet) -> Self {
        let never = Nanos::ZERO;
        Self {
            packet,
            arrived: never,
            bridged: never,
            taken: never,
        }
    }

    /// Returns the time until the guest's ring, and from there until the guest read it.
    pub(super) fn stay(&self) -> Stay {
        Stay {
            ring: self.bridged.since(self.arrived),
            vcpu: self.taken.since(self.bridged),
        }
    }
}

impl Carried for Inside {
    fn passes(&mut self, step: Step, now: Nanos) -> bool {
        match step {
            Step::Arrived => self.arrived = now,
            Step::Bridged => self.bridged = now,
            Step::Taken => self.taken = now,
            Step::Answered => {}
            Step::Left => {
                let since = (now.0 as u32).wrapping_sub(self.packet.sent);
                self.packet.waited[Tier::Host as usize] = since;
            }
        }
        false
    }
}
