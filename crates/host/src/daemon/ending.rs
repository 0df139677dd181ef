//! The end of a daemon, and the start of the next one.

use super::connections::Connections;
use super::handover::{Heir, Legacy, MOST_OF_CONNECTIONS, State, Successor};
use super::inherit::CardKeys;
use super::level::Levels;
use super::open;
use super::plan::PortPlan;
use super::poller::SUCCESSOR;
use super::store::Store;
use super::{Clock, DRAIN, Daemon, HostError, Instance};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tailbound_switch::port::Port;
use tailbound_switch::{Mac, Switch};
use tailbound_units::Nanos;

/// The longest time for pausing ports, because a successor waits for only 2 s.
const MAX_PAUSE: Nanos = Nanos::from_millis(500);

/// The longest time for guests to take early acknowledged data.
const SETTLE: Nanos = Nanos::from_millis(400);

/// The ports of a daemon, by their index.
type OpenPorts = Vec<Option<Box<dyn Port>>>;

/// Opens the ports of `plans`, or continues with the ones from the daemon before. Returns them, and
/// the set of those that systemd stores.
pub(super) fn go_on(
    legacy: Legacy,
    plans: &[PortPlan],
    clock: &Clock,
    switch: &mut Switch,
) -> Result<(OpenPorts, Store), HostError> {
    let mut inherited = legacy.ports;
    let ports = plans
        .iter()
        .map(|plan| plan.open(clock, &mut inherited).map(Some));
    let ports: OpenPorts = ports.collect::<Result<_, _>>()?;
    switch.look_for_guests(clock.now(), &ports);
    let stations = legacy.stations.iter();
    let stations = stations.map(|(mac, port)| (Mac(*mac), port.as_str()));
    switch.learn(clock.now(), stations);
    legacy.connections.resume(clock.now(), switch);
    let (kept, others) = inherited.keys();
    let adopted = plans.iter().filter(|plan| {
        let key = plan.key.as_ref();
        key.is_some_and(|key| kept.contains(key))
    });
    open::review(adopted.map(|plan| &plan.port));
    Ok((ports, Store::new(kept, &others)))
}

/// Returns the socket at which another daemon requests a takeover.
pub(super) fn listener(instance: Option<&Instance>) -> Option<(u64, BorrowedFd<'_>)> {
    let listener = instance?.listener.as_ref()?;
    Some((SUCCESSOR, listener.as_fd()))
}

impl Daemon {
    /// Stores the descriptors of some ports in systemd, for a restart after a crash.
    pub(super) fn keep_descriptors(&mut self, ports: impl Iterator<Item = usize>) {
        for port in ports {
            if let Some((key, descriptor)) =
                descriptor(&self.plans[port], self.ports[port].as_deref())
            {
                self.store.keep(key, descriptor);
            }
        }
    }

    /// Sends the queued frames and hands the ports over to the daemon that requests them. Returns
    /// true if that daemon took them. Otherwise the ports are read again.
    pub(super) fn hand_over(&mut self) -> Result<bool, HostError> {
        let listener = self.instance.as_ref();
        let Some(listener) = listener.and_then(|instance| instance.listener.as_ref()) else {
            return Ok(false);
        };
        let successor = match Successor::accept(listener) {
            Ok(Some(successor)) => successor,
            Ok(None) => {
                tracing::warn!("a daemon of another version requests the ports");
                return Ok(false);
            }
            Err(error) => {
                tracing::debug!(%error, "the request for the ports has ended");
                return Ok(false);
            }
        };
        if !successor.takes_connections {
            self.settle_guests()?;
        }
        let unsent = self.drain_queues()?;
        let connections = self.connections(successor.takes_connections)?;
        let (heirs, theirs) = self.pause_ports();
        let ports = self.plans.iter().zip(&self.ports);
        let descriptors = ports.filter_map(|(plan, port)| descriptor(plan, port.as_deref()));
        let (keys, mut descriptors): (Vec<_>, Vec<_>) =
            descriptors.map(|(key, fd)| (key.to_owned(), fd)).unzip();
        let ports = descriptors.len() + heirs.len();
        descriptors.extend(theirs.iter().map(AsFd::as_fd));
        let levels = Levels::of(&mut self.switch, self.clock.now());
        let levels = serde_json::to_value(levels).unwrap_or_default();
        let stations = self.switch.stations();
        let state = State {
            keys,
            stations: stations
                .map(|(mac, port)| (mac.0, port.to_owned()))
                .collect(),
            estates: heirs,
            levels,
            ..State::default()
        };
        match successor.give(state, connections, &descriptors) {
            Ok(()) => {
                tracing::info!(ports, unsent, "handed over");
                Ok(true)
            }
            Err(error) => {
                tracing::warn!(%error, "the daemon that asked for the ports did not take them");
                for port in self.ports.iter_mut().flatten() {
                    port.resume();
                }
                self.switch.drain_snoops(true);
                Ok(false)
            }
        }
    }

    /// Returns the state of the connections, for a successor that accepts it. If there is more than
    /// it accepts, it gets none, and the connections are reset.
    fn connections(&mut self, are_taken: bool) -> Result<Connections, HostError> {
        if !are_taken {
            return Ok(Connections::default());
        }
        let now = self.clock.now();
        if let Some(all) = Connections::of(&self.switch, now, MOST_OF_CONNECTIONS) {
            return Ok(all);
        }
        tracing::warn!("more is known of connections than is handed over");
        self.settle_guests()?;
        Ok(Connections::default())
    }

    /// Pauses ports that are more than a descriptor, and returns the state with which another
    /// daemon continues. Ports that take longer than [`MAX_PAUSE`] are opened anew.
    fn pause_ports(&mut self) -> (Vec<Heir>, Vec<OwnedFd>) {
        let deadline = self.clock.now() + MAX_PAUSE;
        let (mut heirs, mut descriptors) = (Vec::new(), Vec::new());
        for (plan, port) in self.plans.iter().zip(&mut self.ports) {
            let Some(port) = port else {
                continue;
            };
            let Some(keys) = CardKeys::of(&plan.port) else {
                // It waits for nothing, and has no more than its descriptor.
                port.pause();
                continue;
            };
            if self.clock.now() < deadline
                && let Some(estate) = port.pause()
            {
                heirs.push(Heir::new(keys, &estate));
                descriptors.extend(estate.descriptors);
            }
        }
        (heirs, descriptors)
    }

    /// Delivers early acknowledged data to guests, for at most [`SETTLE`], then resets the
    /// connections whose guests have not taken it: the successor does not know that data.
    fn settle_guests(&mut self) -> Result<(), HostError> {
        self.switch.drain_snoops(false);
        let deadline = self.clock.now() + SETTLE;
        while self.switch.owes_guests() {
            let now = self.clock.now();
            if now >= deadline {
                self.switch.abort_snoops(now, &self.ports);
                break;
            }
            let turn = self.switch.poll(now, &mut self.ports);
            for (port, error) in turn.gone {
                self.lost(now, port, &error);
            }
            let next = self.switch.poll_at(&self.ports).unwrap_or(deadline);
            let next = if turn.busy { now } else { next.min(deadline) };
            self.wait(now, Some(next))?;
        }
        Ok(())
    }

    /// Sends queued frames for at most [`DRAIN`], and receives nothing. Returns the number of
    /// frames still queued.
    pub(super) fn drain(&mut self) -> Result<usize, HostError> {
        self.settle_guests()?;
        self.drain_queues()
    }

    fn drain_queues(&mut self) -> Result<usize, HostError> {
        let deadline = self.clock.now() + DRAIN;
        loop {
            let now = self.clock.now();
            for (port, error) in self.switch.drain(now, &mut self.ports).gone {
                self.lost(now, port, &error);
            }
            let waiting = self.switch.waiting(&self.ports);
            if waiting == 0 || now >= deadline {
                return Ok(waiting);
            }
            let next = self.switch.poll_at(&self.ports).unwrap_or(deadline);
            self.wait(now, Some(next.min(deadline)))?;
        }
    }
}

/// Returns the descriptor of a port that is nothing more, with its key.
fn descriptor<'p>(
    plan: &'p PortPlan,
    port: Option<&'p dyn Port>,
) -> Option<(&'p str, BorrowedFd<'p>)> {
    Some((plan.key.as_deref()?, port?.descriptor()?))
}
