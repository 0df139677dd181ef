//! Which control packets pass at once, and their budget.
//!
//! They are short and few, and what they stand for waits for them: a connection for its SYN,
//! a peer's window for its acknowledgement, everything for ARP. Who sends nothing else gets
//! the budget and no more.

use super::config::{ControlConfig, LONGEST_CONTROL};
use crate::Control;
use tailbound_units::exact::{BYTE_IN_NANOS, TokenBucket};
use tailbound_units::{Nanos, Rate, WireBytes};

/// The longest that a request for a name may be, or its answer: 512 bytes (RFC 1035, 2.3.4)
/// with the headers of UDP, IPv6 and Ethernet, and two VLAN tags.
const LONGEST_NAME: usize = 512 + 8 + 40 + 22;

/// The budget for what passes at once.
#[derive(Debug)]
pub(super) struct Pass {
    /// `None`: nothing passes.
    budget: Option<TokenBucket<Nanos>>,
    names: bool,
    /// What is kept for connections that are being opened.
    reserved: WireBytes,
}

impl Pass {
    pub(super) fn new(config: Option<&ControlConfig>, rate: Rate) -> Self {
        let budget = config.and_then(|config| {
            let rate =
                Rate(u64::try_from(u128::from(rate.0) * u128::from(config.percent) / 100).ok()?);
            let burst = WireBytes(u64::from(config.packets) * LONGEST_CONTROL as u64);
            TokenBucket::new(BYTE_IN_NANOS, rate, burst)
        });
        Self {
            reserved: budget.map_or(WireBytes::ZERO, |budget| budget.burst() / 2),
            budget,
            names: config.is_some_and(|config| config.dns),
        }
    }

    /// Whether a packet is within the budget. `None` where it is none of those that pass,
    /// however much there is.
    pub(super) fn admits(
        &self,
        now: Nanos,
        control: Control,
        len: usize,
        flow_waits: bool,
    ) -> Option<bool> {
        let longest = match control {
            Control::Name if self.names => LONGEST_NAME,
            Control::Name => return None,
            _ => LONGEST_CONTROL,
        };
        let budget = self.budget.filter(|_| len <= longest)?;
        let len = WireBytes(len as u64);
        Some(match control {
            Control::Opening => budget.holds(now, len),
            // What overtakes the data of its own flow ends it too early.
            Control::Closing if flow_waits => false,
            _ => budget.holds(now, len + self.reserved),
        })
    }

    pub(super) fn charge(&mut self, now: Nanos, len: usize) {
        if let Some(budget) = &mut self.budget {
            budget.charge(now, WireBytes(len as u64));
        }
    }
}
