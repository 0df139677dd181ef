//! Control packets that may bypass the queue, and their budget.
//!
//! Control packets are short and rare, and delay others: a connection waits for its SYN, a peer's
//! window for its acknowledgement, all traffic for ARP. A guest that sends only control packets
//! gets the budget and no more.

use super::config::{ControlConfig, LONGEST_CONTROL};
use crate::Control;
use tailbound_units::exact::{BYTE_IN_NANOS, TokenBucket};
use tailbound_units::{Nanos, Rate, WireBytes};

/// Maximum length of a DNS request or answer: 512 bytes (RFC 1035, 2.3.4) with the headers of UDP,
/// IPv6 and Ethernet, and two VLAN tags.
const LONGEST_NAME: usize = 512 + 8 + 40 + 22;

/// Budget of packets that bypass the queue.
#[derive(Debug)]
pub(super) struct Pass {
    /// `None`: no packet bypasses the queue.
    budget: Option<TokenBucket<Nanos>>,
    names: bool,
    /// Part of the budget that is reserved for opening connections.
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

    /// Checks whether a packet is within the budget. `None` if the packet may never bypass the
    /// queue.
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
            // A FIN or RST before the data of its own flow would end it too early.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_its_part_of_the_limit() {
        let config = ControlConfig::default();
        let pass = Pass::new(Some(&config), Rate::from_mbit(4));
        let budget = pass.budget.expect("there is a limit");
        assert_eq!(budget.rate(), Rate::from_mbit(4).percent(5));
        assert_eq!(budget.burst(), WireBytes(64 * 128));
    }
}
