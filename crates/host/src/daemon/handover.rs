//! Takeovers: this daemon continues with the ports of the one before ([`Legacy`]), and hands them
//! over to the one that requests them.

use super::HostError;
use super::connections::Connections;
use super::drain::Drain;
use super::legacy::{Heir, Legacy, MOST_OF_CONNECTIONS, State, Successor};
use super::level::Levels;
use super::takeover::Instance;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use tailbound_units::Nanos;

/// The longest time for pausing ports, because a successor waits for only 2 s.
const MAX_PAUSE: Nanos = Nanos::from_millis(500);

/// The right to be the daemon of a configuration, with the way to pass it on.
pub(super) struct Handover {
    /// `None` for a daemon without a lock, which nothing takes over.
    instance: Option<Instance>,
}

impl Handover {
    /// Makes the handover of a daemon with the lock `instance`.
    pub(super) const fn new(instance: Option<Instance>) -> Self {
        Self { instance }
    }

    /// Returns, once, the handover of the daemon before, or the descriptors that systemd stored of
    /// it.
    pub(super) fn take_legacy(&mut self) -> Legacy {
        let legacy = self.instance.as_mut().and_then(|own| own.legacy.take());
        legacy.unwrap_or_else(Legacy::from_systemd)
    }

    /// Returns, once, the control socket; `None` if there is none.
    pub(super) fn take_control(&mut self) -> Option<UnixListener> {
        self.instance.as_mut()?.control.take()
    }

    /// Returns the socket at which another daemon requests a takeover.
    pub(super) fn listener(&self) -> Option<&UnixListener> {
        self.instance.as_ref()?.listener.as_ref()
    }

    /// Accepts the request of another daemon; `None`, with a line in the log, if it is none.
    pub(super) fn accept(&self) -> Option<Successor> {
        match Successor::accept(self.listener()?) {
            Ok(None) => {
                tracing::warn!("a daemon of another version requests the ports");
                None
            }
            Ok(successor) => successor,
            Err(error) => {
                tracing::debug!(%error, "the request for the ports has ended");
                None
            }
        }
    }
}

/// Sends the queued frames and hands the ports over to a successor. Returns true if it took them.
/// Otherwise the ports are read again.
///
/// # Errors
/// The system fails to wait for the ports.
pub(super) fn hand_over(successor: Successor, mut drain: Drain<'_>) -> Result<bool, HostError> {
    if !successor.takes_connections {
        drain.settle_guests()?;
    }
    let unsent = drain.empty_queues()?;
    let connections = if successor.takes_connections {
        connections(&mut drain)?
    } else {
        Connections::default()
    };
    let (heirs, theirs) = pause_ports(&mut drain);
    let own = drain.ports.descriptors();
    let (keys, mut descriptors): (Vec<_>, Vec<_>) =
        own.map(|(key, fd)| (key.to_owned(), fd)).unzip();
    let ports = descriptors.len() + heirs.len();
    descriptors.extend(theirs.iter().map(AsFd::as_fd));
    let levels = Levels::of(drain.switch, drain.clock.now());
    let stations = drain.switch.stations();
    let state = State {
        keys,
        stations: stations
            .map(|(mac, port)| (mac.0, port.to_owned()))
            .collect(),
        estates: heirs,
        levels: serde_json::to_value(levels).unwrap_or_default(),
        ..State::default()
    };
    match successor.give(state, connections, &descriptors) {
        Ok(()) => {
            tracing::info!(ports, unsent, "handed over");
            Ok(true)
        }
        Err(error) => {
            tracing::warn!(%error, "the daemon that asked for the ports did not take them");
            drain.ports.resume();
            drain.switch.drain_snoops(true);
            Ok(false)
        }
    }
}

/// Returns the state of the connections, for a successor that accepts it. If there is more than it
/// accepts, it gets none, and the connections are reset.
fn connections(drain: &mut Drain<'_>) -> Result<Connections, HostError> {
    let now = drain.clock.now();
    if let Some(all) = Connections::of(drain.switch, now, MOST_OF_CONNECTIONS) {
        return Ok(all);
    }
    tracing::warn!("more is known of connections than is handed over");
    drain.settle_guests()?;
    Ok(Connections::default())
}

/// Pauses ports that are more than a descriptor, and returns the state with which another daemon
/// continues. Ports that take longer than [`MAX_PAUSE`] are opened anew.
fn pause_ports(drain: &mut Drain<'_>) -> (Vec<Heir>, Vec<OwnedFd>) {
    let deadline = drain.clock.now() + MAX_PAUSE;
    let (mut heirs, mut descriptors) = (Vec::new(), Vec::new());
    for (keys, estate) in drain.ports.pause(&drain.clock, deadline) {
        heirs.push(Heir::new(keys, &estate));
        descriptors.extend(estate.descriptors);
    }
    (heirs, descriptors)
}
