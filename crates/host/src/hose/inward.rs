//! Polices traffic to guests by the rates of its senders.

use super::{GUESTS, Hose, HoseGuest, guest_of, known_as};
use tailbound_dataplane::pacer::{Home, MAX_RATIO};
use tailbound_dataplane::{GuestId, Inward, InwardConfig, SenderId};
use tailbound_hose::{HostId, Incoming};
use tailbound_switch::Switch;
use tailbound_units::{Nanos, Rate};

impl Hose {
    /// Sets the rates that a guest's senders may use now. Call it after each [`Hose::poll`].
    pub fn hold_senders(&mut self, now: Nanos, switch: &mut Switch) {
        // They are none, but for the moments at which something changes.
        let changes: Vec<_> = self.state.poll_incoming(now).collect();
        for change in changes {
            self.hold(now, switch, change);
        }
        if let Some(from) = self.renewing.take() {
            let end = self.guests.len().min(from + GUESTS);
            for guest in &self.guests[from..end] {
                self.renew(now, switch, guest);
                self.set_home(switch, guest);
            }
            self.renewing = (end < self.guests.len()).then_some(end);
        }
    }

    /// Sets the place of a guest and of its tenant's hosts, which limit its bursts.
    fn set_home(&self, switch: &mut Switch, guest: &HoseGuest) {
        let guarantee = guest.guarantee.filter(|it| it.bursts.is_per_subtree());
        let groups = guarantee.and(guest.groups.clone());
        let home = groups.map(|groups| Home {
            host: HostId::of(&self.exchange.config.host).0,
            machines: guest.tenant_vms.unwrap_or(0),
            groups,
        });
        if let Some(pacer) = switch.pacer() {
            pacer.set_home(guest.id, home);
        }
    }

    /// Updates the permitted jitter of a guest's senders.
    fn renew(&self, now: Nanos, switch: &mut Switch, guest: &HoseGuest) {
        let jitter = self.jitter_of(Some(guest));
        if let Some(inward) = policer(switch, guest.id)
            && inward.config().jitter != jitter
        {
            let config = InwardConfig {
                jitter,
                ..*inward.config()
            };
            inward.reconfigure(now, config);
        }
    }

    fn hold(&self, now: Nanos, switch: &mut Switch, change: Incoming) {
        let Some(guest) = guest_of(change.guest()) else {
            return;
        };
        match change {
            Incoming::Receiver { limits, .. } => {
                let config = InwardConfig {
                    bandwidth: limits.bandwidth,
                    burst: limits.burst,
                    burst_in: limits.burst_in,
                    senders: u32::try_from(limits.senders).unwrap_or(u32::MAX),
                    jitter: self.jitter(guest),
                };
                set_policer(now, switch, guest, Some(config));
            }
            Incoming::Closed { .. } => set_policer(now, switch, guest, None),
            Incoming::Sender {
                sender, sources, ..
            } => {
                let sources = sources.into_iter().map(known_as);
                if let Some(inward) = policer(switch, guest) {
                    inward.add_sender(now, SenderId(sender.0), sources);
                }
            }
            Incoming::Rate { sender, rate, .. } => {
                // What a pacer cannot count, the sender's rounds up.
                let link = switch.wire().map_or(Rate::ZERO, |wire| wire.link);
                let rate = match rate {
                    Rate::ZERO => rate,
                    rate => rate.max(Rate(link.0.div_ceil(MAX_RATIO))),
                };
                if let Some(inward) = policer(switch, guest) {
                    inward.set_rate(now, SenderId(sender.0), rate);
                }
            }
            Incoming::Gone { sender, .. } => {
                if let Some(inward) = policer(switch, guest) {
                    inward.remove_sender(SenderId(sender.0));
                }
            }
        }
    }

    /// Returns the largest difference between the delays of two frames to a guest.
    fn jitter(&self, guest: GuestId) -> Nanos {
        self.jitter_of(self.guests.iter().find(|known| known.id == guest))
    }

    fn jitter_of(&self, guest: Option<&HoseGuest>) -> Nanos {
        let promised = guest.and_then(|guest| guest.delay);
        self.exchange.config.jitter + promised.unwrap_or(Nanos::ZERO)
    }
}

/// Returns the policer of a guest's senders.
fn policer(switch: &mut Switch, guest: GuestId) -> Option<&mut Inward> {
    switch.guest_mut(guest)?.inward()
}

/// Sets or removes the policer of a guest's senders.
pub(super) fn set_policer(
    now: Nanos,
    switch: &mut Switch,
    guest: GuestId,
    config: Option<InwardConfig>,
) {
    if let Some(mut guest) = switch.guest_mut(guest) {
        guest.set_inward(now, config);
    }
}
