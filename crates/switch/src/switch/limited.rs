//! What guests may send at most, wherever it goes: their limits.
//!
//! A guest's limit stands behind the filter and before all else, so that it counts what goes
//! to guests here as well. While as much waits for it as may, the guest's port is not read.
//! That of a guest which is guaranteed something is held by the pacer, so that what is
//! guaranteed does not wait for it.

use super::steps::CHANGED;
use super::trace::{Released, Wait};
use super::{Ports, Switch, Turn};
use crate::forward::PortIndex;
use crate::port::BURST;
use tailbound_dataplane::{
    Backlog, GuestId, Packet, PipelineConfig, Shaper, ShaperConfig, ShaperStats, WindowPosition,
};
use tailbound_metrics::Histogram;
use tailbound_units::{Nanos, Rate};

/// A guest's limit, and how long its frames waited for it.
#[derive(Debug)]
pub(super) struct Limited {
    pub(super) shaper: Shaper<Packet>,
    waits: Histogram,
}

/// What is counted of a guest's limit.
#[derive(Debug, Clone)]
pub struct LimitSnapshot {
    /// Bits a second, of Ethernet frames without FCS.
    pub rate: Rate,
    /// The shaper's counters.
    pub stats: ShaperStats,
    /// What waits.
    pub backlog: Backlog,
    /// Where the window is; `None` where there is none.
    pub window: Option<WindowPosition>,
    /// The guest's port is left unread, as much waits as may.
    pub unread: bool,
    /// How long frames waited.
    pub waits: Histogram,
}

impl Limited {
    /// `None` where the limit breaks a rule, which is logged.
    pub(super) fn new(guest: &str, config: &ShaperConfig) -> Option<Box<Self>> {
        let shaper = Shaper::new(config);
        let shaper = shaper.inspect_err(|rule| refuse(guest, rule)).ok()?;
        Some(Box::new(Self {
            shaper,
            waits: Histogram::default(),
        }))
    }

    pub(super) fn snapshot(&self, now: Nanos, unread: bool) -> LimitSnapshot {
        LimitSnapshot {
            rate: self.shaper.config().rate(),
            stats: self.shaper.stats(),
            backlog: self.shaper.backlog(),
            window: self.shaper.window(now),
            unread,
            waits: self.waits.clone(),
        }
    }
}

/// Whoever configures a switch has checked it.
fn refuse(guest: &str, rule: &tailbound_dataplane::ShaperError) {
    tracing::error!(guest, %rule, "limit refused; the guest keeps the one that it had");
}

impl Switch {
    /// Holds a guest to other limits from `now` on: `out`, or none, of what it sends, and
    /// that of `pipeline`, the way to it. What waits goes on waiting. A guest that is not
    /// there is passed over. Returns what that cost, as [`Switch::apply_some`] counts it:
    /// nothing where all is as it was.
    pub fn set_limits(
        &mut self,
        now: Nanos,
        guest: GuestId,
        out: Option<&ShaperConfig>,
        pipeline: &PipelineConfig,
    ) -> usize {
        let Some(port) = self.slots.port_of(guest) else {
            return 0;
        };
        if self.set_limits_of(now, port, out, pipeline) {
            CHANGED
        } else {
            0
        }
    }

    /// The same for the guest at a port. Returns whether something is other than it was.
    pub(super) fn set_limits_of(
        &mut self,
        now: Nanos,
        port: PortIndex,
        out: Option<&ShaperConfig>,
        pipeline: &PipelineConfig,
    ) -> bool {
        let Some(guest) = self.guest_at(port) else {
            return false;
        };
        let is_other = guest.pipeline.config() != pipeline;
        if is_other {
            guest.pipeline.reconfigure(now, pipeline);
            self.agenda.sending.set(port.0, true);
        }
        self.set_limit(now, port, out) || is_other
    }

    /// Holds a guest to another limit from now on, or to none. Returns whether it is another
    /// one.
    fn set_limit(&mut self, now: Nanos, port: PortIndex, limit: Option<&ShaperConfig>) -> bool {
        let Some(guest) = self.guest_at(port) else {
            return false;
        };
        if guest.limit.as_ref() == limit {
            return self.place_limit(now, port);
        }
        guest.limit = limit.cloned();
        self.place_limit(now, port);
        true
    }

    /// Lets a guest's limit be held where it is to be: by the pacer, which caps what is elastic,
    /// where that guarantees the guest something, and by a shaper before all else where not.
    /// What waited for a shaper that ends leaves when the next turn begins. Returns whether
    /// the shaper is another one.
    pub(super) fn place_limit(&mut self, now: Nanos, port: PortIndex) -> bool {
        let name = &self.states[port.0].name;
        let Some(place) = port.0.checked_sub(self.first_guest()) else {
            return false;
        };
        let guest = &mut self.guests[place];
        let uplink = self.uplink.as_mut();
        let pacer = uplink.and_then(|uplink| uplink.egress.pacer_mut());
        let pacer = pacer.filter(|pacer| pacer.guarantee(guest.id).is_some());
        let limit = match (pacer, &guest.limit) {
            (Some(pacer), Some(ShaperConfig::Bucket(bucket))) => {
                pacer.set_cap(now, guest.id, Some(&bucket.limit()));
                None
            }
            (Some(pacer), limit) => {
                pacer.set_cap(now, guest.id, None);
                limit.as_ref()
            }
            (None, limit) => limit.as_ref(),
        };
        match (&mut guest.limited, limit) {
            (None, None) => return false,
            (Some(limited), Some(limit)) if limited.shaper.config() == limit => return false,
            (Some(limited), Some(limit)) => {
                if let Err(rule) = limited.shaper.reconfigure(now, limit) {
                    refuse(name, &rule);
                }
            }
            (none @ None, Some(limit)) => *none = Limited::new(name, limit),
            (limited, None) => {
                if let Some(ended) = limited.take() {
                    let waiting = ended.shaper.into_waiting();
                    self.unlimited
                        .extend(waiting.map(|packet| (guest.id, packet)));
                }
            }
        }
        // Its port may be read again.
        self.agenda.releases.set(port.0, Some(Nanos::ZERO));
        true
    }

    /// Sends on what waited for limits that have ended.
    pub(super) fn send_unlimited(&mut self, now: Nanos, ports: &Ports) {
        for (guest, packet) in std::mem::take(&mut self.unlimited) {
            if let Some(port) = self.slots.port_of(guest) {
                self.send_on(now, port, packet, ports);
            }
        }
    }

    /// Sends on what limits let go by now.
    pub(super) fn release_due(&mut self, now: Nanos, ports: &Ports, turn: &mut Turn) {
        self.send_unlimited(now, ports);
        let mut next = 0;
        while let Some(port) = self.agenda.releases.next_due(next, now) {
            next = port + 1;
            let index = PortIndex(port);
            self.release(now, index, ports);
            self.note(index, ports);
            let state = &self.states[port];
            let is_due = self.agenda.releases.get(port).is_some_and(|at| at <= now);
            turn.busy |= is_due || self.is_open(index) && (state.readable || state.has_received());
        }
    }

    /// Sends on what a guest's limit lets go by now: two bursts at most. Notes when there is
    /// more, and whether the guest's port is read.
    pub(super) fn release(&mut self, now: Nanos, from: PortIndex, ports: &Ports) {
        for _ in 0..2 * BURST {
            if self.states[from.0].floods.is_full() {
                break;
            }
            let Some(guest) = self.guest_at(from) else {
                return;
            };
            let is_crowded = guest.ingress.is_crowded();
            let Some(limited) = guest.limited.as_mut().filter(|_| !is_crowded) else {
                break;
            };
            let Some(queued) = limited.shaper.pull(now) else {
                break;
            };
            let waited = now.since(queued.enqueued);
            limited.waits.record(waited);
            if let Some(trace) = &mut self.trace {
                trace.note(now, Released::within(&queued.frame, Wait::Limit, waited));
            }
            self.send_on(now, from, queued.frame, ports);
        }
        self.hand_over(now);
        let Some(guest) = self.guest_at(from) else {
            return;
        };
        // What is crowded is released when its port is read again.
        let is_crowded = guest.ingress.is_crowded();
        let limited = guest.limited.as_ref();
        let is_full = limited.is_some_and(|limited| !limited.shaper.is_read());
        let next = limited.and_then(|limited| limited.shaper.poll_at());
        guest.ingress.set_limited(is_full);
        self.agenda
            .releases
            .set(from.0, next.filter(|_| !is_crowded));
    }

    /// Brings a guest's frame into the egress of the ports it goes to; counts where it is
    /// dropped instead.
    fn send_on(&mut self, now: Nanos, from: PortIndex, packet: Packet, ports: &Ports) {
        if let Err(reason) = self.dispatch(now, from, packet, ports) {
            self.states[from.0].counters.drop(reason, 1);
        }
    }
}
