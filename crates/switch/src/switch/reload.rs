//! A switch becomes another one, amid traffic.

use super::config::{GuestConfig, SwitchConfig, UPLINK};
use super::guarantees::Pass;
use super::guest::GuestPort;
use super::state::PortState;
use super::uplink::Uplink;
use super::{PortIndex, Switch};
use crate::forward::Forwarding;
use std::collections::HashMap;
use tailbound_dataplane::pacer::PacerError;
use tailbound_dataplane::{EgressConfig, GuestId};
use tailbound_units::Nanos;

impl Switch {
    /// Becomes a switch of `config`. The uplink, and a guest of the same name, keep
    /// their queues, their counters and what was learned from them; the packets that
    /// wait for others are lost. All ports are taken as readable and writable, since
    /// they may be new.
    ///
    /// What guests are guaranteed changes first where it becomes less, so that there is
    /// room for the rest, then the wire, then all else.
    ///
    /// # Errors
    /// As [`Switch::check`]; then nothing has changed.
    pub fn reconfigure(&mut self, now: Nanos, config: SwitchConfig) -> Result<(), PacerError> {
        self.check(&config)?;
        let mut moved = vec![None; self.states.len()];
        let egress = self.replace_uplink(config.uplink, &mut moved)?;
        let gone = self.replace_guests(now, config.guests, &mut moved);
        if let Some(pacer) = self.pacer() {
            for guest in gone {
                let ended = pacer.set_guest(now, guest, None);
                debug_assert!(ended.is_ok(), "the end of a guarantee breaks no rule");
            }
        }
        if let Some(egress) = egress {
            if egress.paced().is_some() {
                self.set_in_pacer(now, Pass::Less);
            }
            let uplink = self.uplink.as_mut();
            let changed = uplink.map_or(Ok(()), |uplink| uplink.reconfigure(now, egress));
            if let Err(rule) = changed {
                tracing::error!(%rule, "the uplink stays paced as it was");
            }
        }
        self.apply(now, []);
        self.classes = config.classes;
        self.share_meters();
        self.replace_forwarding(&moved);
        self.addresses.reconfigure(
            self.guests
                .iter()
                .filter_map(|guest| Some((guest.id, guest.filter.as_ref()?))),
        );
        if self.pacer().is_none() {
            for guest in &mut self.guests {
                guest.ingress.set_crowded(false);
            }
        }
        self.note_all();
        debug_assert_eq!(self.states.len(), self.first_guest() + self.guests.len());
        Ok(())
    }

    /// Shares each meter among the guests that there are.
    fn share_meters(&mut self) {
        let guests = self.guests.len();
        if let Some(uplink) = &mut self.uplink {
            uplink.egress.set_guests(guests);
        }
        for guest in &mut self.guests {
            guest.pipeline.set_guests(guests);
        }
    }

    /// Keeps the uplink, makes or removes it. Returns what a kept one is still to
    /// become. The states are those of the guests before.
    ///
    /// # Errors
    /// The rule that a new uplink's pacer breaks.
    fn replace_uplink(
        &mut self,
        config: Option<EgressConfig>,
        moved: &mut [Option<PortIndex>],
    ) -> Result<Option<EgressConfig>, PacerError> {
        match (&self.uplink, config) {
            (Some(_), Some(config)) => {
                moved[0] = Some(PortIndex(0));
                Ok(Some(config))
            }
            (None, Some(config)) => {
                self.uplink = Some(Uplink::new(config)?);
                self.states.insert(0, PortState::new(UPLINK.to_owned()));
                Ok(None)
            }
            (Some(_), None) => {
                self.uplink = None;
                self.states.remove(0);
                Ok(None)
            }
            (None, None) => Ok(None),
        }
    }

    /// Keeps the guests of the same names, makes and removes others. Returns those that
    /// are gone.
    fn replace_guests(
        &mut self,
        now: Nanos,
        configs: Vec<GuestConfig>,
        moved: &mut [Option<PortIndex>],
    ) -> Vec<GuestId> {
        let first = self.first_guest();
        // Where the guests' ports were before: `moved` is about those.
        let before = moved.len() - self.guests.len();
        let states = self.states.split_off(first);
        let old = states.into_iter().zip(self.guests.drain(..)).zip(before..);
        let mut old: HashMap<String, _> = old
            .map(|((state, guest), port)| (state.name.clone(), (state, guest, port)))
            .collect();
        if let Some(uplink) = self.states.pop() {
            self.states.push(uplink.reopened());
        }
        for (config, index) in configs.into_iter().zip(first..) {
            let (state, guest) = if let Some((state, mut guest, port)) = old.remove(&config.name) {
                moved[port] = Some(PortIndex(index));
                guest.reconfigure(now, config);
                (state.reopened(), guest)
            } else {
                let uplink = &mut self.uplink;
                let id = self.slots.assign(|former| forget(uplink, former));
                let guest = GuestPort::new(id, &config);
                (PortState::new(config.name), guest)
            };
            self.slots.place(guest.id, PortIndex(index));
            self.states.push(state);
            self.guests.push(guest);
        }
        let mut gone: Vec<_> = old.into_values().map(|(_, guest, _)| guest.id).collect();
        gone.sort_unstable();
        for guest in &gone {
            self.slots.release(*guest);
        }
        gone
    }

    fn replace_forwarding(&mut self, moved: &[Option<PortIndex>]) {
        let first = self.first_guest();
        let uplink = self.uplink.as_ref().map(|_| PortIndex(0));
        let guests = self.guests.iter().zip(first..);
        let macs = guests.map(|(guest, index)| (guest.mac, PortIndex(index)));
        let mut forwarding = Forwarding::new(self.states.len(), uplink, macs);
        forwarding.inherit(&self.forwarding, |port| {
            moved.get(port.0).copied().flatten()
        });
        self.forwarding = forwarding;
    }
}

/// Whether nothing waits of a guest that is gone where guests are known by slot alone.
fn forget(uplink: &mut Option<Uplink>, former: GuestId) -> bool {
    let uplink = uplink.as_mut();
    let pacer = uplink.and_then(|uplink| uplink.egress.pacer_mut());
    pacer.is_none_or(|pacer| pacer.forget(former))
}
