//! An exchange of rates that a reload has ended: its limits are removed in pieces, before another
//! one begins.

use super::inward::set_policer;
use super::{guest_of, set};
use tailbound_hose::{HoseState, Incoming, Machines};
use tailbound_switch::{Mac, Switch};
use tailbound_units::Nanos;

/// The remaining limits of an exchange of rates. See the module.
#[derive(Debug)]
pub(crate) struct Former(Box<HoseState>);

impl Former {
    /// Makes the former exchange of a state.
    pub(super) fn new(now: Nanos, mut state: HoseState) -> Self {
        state.set_machines(now, Machines::default());
        Self(Box::new(state))
    }

    /// Removes some of the limits. Returns true if any are left.
    pub(crate) fn wind_up(&mut self, now: Nanos, switch: &mut Switch) -> bool {
        let state = &mut self.0;
        let is_left = state.wind_up(now);
        if let Some(pacer) = switch.pacer() {
            for change in state.poll_changes() {
                if let Err(error) = set(now, pacer, change) {
                    tracing::debug!(?change, %error, "the guest of a limit is gone");
                }
            }
        }
        for change in state.poll_stations() {
            switch.set_limited_by_station(Mac(change.station.mac()), change.announced);
        }
        for change in state.poll_incoming(now) {
            if let Incoming::Closed { guest } = change
                && let Some(guest) = guest_of(guest)
            {
                set_policer(now, switch, guest, None);
            }
        }
        is_left
    }
}
