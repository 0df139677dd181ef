//! Rate limits of guests, which apply to all destinations.
//!
//! A guest's limit follows the filter and precedes everything else, so it includes traffic to
//! guests here. While the limit holds the maximum, the guest's port is not read. The pacer enforces
//! the limit of a guaranteed guest, so that guaranteed traffic does not wait for the limit.

use super::GuestMut;
use super::Parts;
use super::agenda::{Timer, Work};
use super::steps::CHANGED;
use super::trace::{Released, Wait};
use super::{Ports, Turn};
use crate::index::PortIndex;
use crate::port::BURST;
use tailbound_dataplane::{
    Backlog, Packet, PipelineConfig, Shaper, ShaperConfig, ShaperStats, WindowPosition,
};
use tailbound_metrics::Histogram;
use tailbound_units::{Nanos, Rate};

/// A guest's limit, and the waiting times of its frames.
#[derive(Debug)]
pub(super) struct Limited {
    pub(super) shaper: Shaper<Packet>,
    waits: Histogram,
}

/// Counters of a guest's limit.
#[derive(Debug, Clone)]
pub struct LimitSnapshot {
    /// The rate in bits per second, of Ethernet frames without FCS.
    pub rate: Rate,
    /// The shaper's counters.
    pub stats: ShaperStats,
    /// The queue.
    pub backlog: Backlog,
    /// The position of the window; `None` for other kinds.
    pub window: Option<WindowPosition>,
    /// True if the guest's port is unread because the limit holds the maximum.
    pub unread: bool,
    /// Waiting times of frames.
    pub waits: Histogram,
}

impl Limited {
    /// Makes the limit; `None` if it breaks a rule, which is logged.
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

/// Logs a refused limit. The configuration of a switch is checked before, so this is rare.
fn refuse(guest: &str, rule: &tailbound_dataplane::ShaperError) {
    tracing::error!(guest, %rule, "limit refused; the guest keeps the one that it had");
}

impl GuestMut<'_> {
    /// Changes the guest's limits from `now` on: `out`, or none, of the traffic it sends, and that of
    /// `pipeline`, the way to the guest. Queued frames stay. Returns the cost, in the units of
    /// [`Switch::apply_some`](super::Switch::apply_some): 0 without a change.
    pub fn set_limits(
        &mut self,
        now: Nanos,
        out: Option<&ShaperConfig>,
        pipeline: &PipelineConfig,
    ) -> usize {
        if self.parts.set_limits_of(now, self.port(), out, pipeline) {
            CHANGED
        } else {
            0
        }
    }
}

impl Parts {
    /// Changes the limits of the guest at a port. Returns true if there was a change.
    pub(super) fn set_limits_of(
        &mut self,
        now: Nanos,
        port: PortIndex,
        out: Option<&ShaperConfig>,
        pipeline: &PipelineConfig,
    ) -> bool {
        let Some(guest) = self.table.guest_mut(port) else {
            return false;
        };
        let is_other = guest.pipeline.config() != pipeline;
        if is_other {
            guest.pipeline.reconfigure(now, pipeline);
            self.table.agenda_mut().set(Work::Sending, port, true);
        }
        self.set_limit(now, port, out) || is_other
    }

    /// Changes or removes a guest's limit from now on. Returns true if there was a change.
    fn set_limit(&mut self, now: Nanos, port: PortIndex, limit: Option<&ShaperConfig>) -> bool {
        let Some(guest) = self.table.guest_mut(port) else {
            return false;
        };
        if guest.limit.config.as_ref() == limit {
            return self.place_limit(now, port);
        }
        guest.limit.config = limit.cloned();
        self.place_limit(now, port);
        true
    }

    /// Moves a guest's limit to its place: to the pacer, which caps elastic flows, if that
    /// guarantees the guest a rate, and otherwise to a shaper before everything else. Frames of a
    /// shaper that ends leave when the next turn begins. Returns true if there is another shaper.
    pub(super) fn place_limit(&mut self, now: Nanos, port: PortIndex) -> bool {
        let Some(guest) = self.table.guest_at(port) else {
            return false;
        };
        let (guest, name) = self.table.named_mut(guest);
        let pacer = self.transmitter.pacer_mut();
        let pacer = pacer.filter(|pacer| pacer.guarantee(guest.id).is_some());
        let limit = match (pacer, &guest.limit.config) {
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
        match (&mut guest.limit.shaper, limit) {
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
                    self.admission.add_unlimited(guest.id, waiting);
                }
            }
        }
        // Its port may be read again.
        self.table.agenda_mut().release_soon(port);
        true
    }

    /// Forwards the frames of limits that have ended, and those that limits release by now.
    pub(super) fn release_due(&mut self, now: Nanos, ports: &Ports, turn: &mut Turn) {
        for (guest, packet) in self.admission.take_unlimited() {
            if let Some(port) = self.table.port_of(guest) {
                self.send_on(now, port, packet, ports);
            }
        }
        let mut next = PortIndex::FIRST;
        while let Some(port) = self.table.agenda().next_due(Timer::Release, next, now) {
            next = port.next();
            self.release(now, port, ports);
            self.table.note(port, ports);
            let state = &self.table[port];
            let is_due = self.table.agenda().is_due(Timer::Release, port, now);
            turn.busy |= is_due
                || self.table.is_open(port) && (state.inbound.readable || state.has_received());
        }
    }

    /// Forwards the frames that a guest's limit releases by now: two bursts at most. Updates the
    /// time of the next ones, and whether the guest's port is read.
    pub(super) fn release(&mut self, now: Nanos, from: PortIndex, ports: &Ports) {
        for _ in 0..2 * BURST {
            if self.table[from].inbound.floods.is_full() {
                break;
            }
            let Some(guest) = self.table.guest_mut(from) else {
                return;
            };
            let is_crowded = guest.ingress.is_crowded();
            let Some(limited) = guest.limit.shaper.as_mut().filter(|_| !is_crowded) else {
                break;
            };
            let Some(queued) = limited.shaper.pull(now) else {
                break;
            };
            let waited = now.since(queued.enqueued);
            limited.waits.record(waited);
            if let Some(trace) = self.transmitter.trace_mut() {
                trace.note(now, Released::within(&queued.frame, Wait::Limit, waited));
            }
            self.send_on(now, from, queued.frame, ports);
        }
        let Some(guest) = self.table.guest_mut(from) else {
            return;
        };
        // What is crowded is released when its port is read again.
        let is_crowded = guest.ingress.is_crowded();
        let limited = guest.limit.shaper.as_ref();
        let is_full = limited.is_some_and(|limited| !limited.shaper.is_read());
        let next = limited.and_then(|limited| limited.shaper.poll_at());
        guest.ingress.set_limited(is_full);
        let next = next.filter(|_| !is_crowded);
        self.table
            .agenda_mut()
            .set_timer(Timer::Release, from, next);
    }

    /// Enqueues a guest's frame in the egress of the ports it goes to, or counts it as dropped.
    fn send_on(&mut self, now: Nanos, from: PortIndex, packet: Packet, ports: &Ports) {
        if let Err(reason) = self.dispatch(now, from, packet, ports) {
            self.table[from].counters.drop(reason, 1);
        }
    }
}
