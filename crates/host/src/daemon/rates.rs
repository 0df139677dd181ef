//! The exchange of rates with other hosts ([`crate::hose`]), and the ones that a reload has ended,
//! until their limits are removed.

use super::poller::HOSE;
use super::ports::PortSet;
use crate::hose::{Former, Hose, HoseSetup, HoseSnapshot, Reconfiguration};
use crate::retire::retire;
use std::collections::VecDeque;
use std::net::SocketAddr;
use tailbound_switch::Switch;
use tailbound_units::Nanos;

/// The exchange of rates of the daemon.
#[derive(Default)]
pub(super) struct RateExchange {
    /// The running exchange, if one is configured.
    hose: Option<Hose>,
    /// Ended exchanges, until their limits are removed.
    former: VecDeque<Former>,
    /// True if datagrams from other hosts may be waiting.
    is_readable: bool,
}

impl RateExchange {
    /// Makes an exchange that runs, if one is configured.
    pub(super) fn new(hose: Option<Hose>) -> Self {
        Self {
            hose,
            ..Self::default()
        }
    }

    /// Returns the running exchange.
    pub(super) const fn running(&self) -> Option<&Hose> {
        self.hose.as_ref()
    }

    /// Returns the running exchange.
    pub(super) const fn running_mut(&mut self) -> Option<&mut Hose> {
        self.hose.as_mut()
    }

    /// Returns the address of the running exchange.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.hose.as_ref().map(Hose::address)
    }

    /// Returns the counters of the running exchange.
    pub(super) fn snapshot(&self) -> Option<HoseSnapshot> {
        self.hose.as_ref().map(Hose::snapshot)
    }

    /// Notes that datagrams from other hosts wait.
    pub(super) const fn handle_readable(&mut self) {
        self.is_readable = true;
    }

    /// Applies new keys, if there are some.
    pub(super) fn take_keys(&mut self, now: Nanos) {
        if let Some(hose) = &mut self.hose {
            hose.take_keys(now);
        }
    }

    /// Returns true while limits of a former exchange are removed.
    pub(super) fn is_winding_up(&self) -> bool {
        !self.former.is_empty()
    }

    /// Exchanges rates with other hosts if that is due: a bounded piece of work, like all work
    /// between packets.
    pub(super) fn poll(&mut self, now: Nanos, switch: &mut Switch) {
        if let Some(former) = self.former.front_mut() {
            // Another exchange owns the limits from then on.
            if !former.wind_up(now, switch) {
                retire(self.former.pop_front());
            }
            return;
        }
        let Some(hose) = &mut self.hose else {
            return;
        };
        hose.note_drained(now, |guest| Some(switch.guest(guest)?.drained()));
        let Some(pacer) = switch.pacer() else {
            return;
        };
        if std::mem::take(&mut self.is_readable) {
            hose.handle_readable(now);
        }
        hose.poll(now, pacer);
        for (station, limited) in hose.poll_stations() {
            switch.set_limited_by_station(station, limited);
        }
        hose.hold_senders(now, switch);
    }

    /// Returns the time of the next datagram or sample.
    pub(super) fn poll_at(&self) -> Option<Nanos> {
        self.hose.as_ref().and_then(Hose::poll_at)
    }

    /// Starts, changes or ends the exchange, and watches its socket. Returns true if another one
    /// begins.
    pub(super) fn reconfigure(
        &mut self,
        now: Nanos,
        setup: Option<HoseSetup>,
        ports: &PortSet,
    ) -> bool {
        self.is_readable = true;
        let renewed = match (&mut self.hose, setup) {
            (Some(running), Some(setup)) => running.reconfigure(now, setup),
            (None, Some(setup)) => {
                self.hose = setup.start(now);
                Reconfiguration {
                    former: None,
                    begins: true,
                    has_other_socket: true,
                }
            }
            (Some(_), None) => Reconfiguration {
                former: self.hose.take().map(|over| over.end(now)),
                begins: false,
                has_other_socket: false,
            },
            (None, None) => return false,
        };
        self.former.extend(renewed.former);
        let hose = self.hose.as_ref().filter(|_| renewed.has_other_socket);
        if let Some(Err(error)) = hose.map(|hose| ports.watch_other(HOSE, hose.descriptor())) {
            tracing::error!(%error, "no notification of rate datagrams: they are read late");
        }
        renewed.begins
    }
}
