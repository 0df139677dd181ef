//! The hose model's socket and clock: rates are exchanged with other hosts, and
//! set in the pacer.
//!
//! [`tailbound_hose`] decides; docs/explanation/hose.md has the protocol.

mod config;
mod former;
mod inward;
pub(crate) mod metrics;
mod setup;

pub use config::{HoseConfig, Issuer, PeerConfig};
pub(crate) use former::Former;
pub use setup::HoseError;
pub(crate) use setup::{HoseSetup, Placement};

use crate::control::{KeyClient, KeyStatus, Keys};
use setup::{addresses, senders, state, today};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use tailbound_api::VmName;
use tailbound_dataplane::pacer::{MAX_RATIO, PacerError};
use tailbound_dataplane::{self as dataplane, Classes, Guarantee, GuestId, Pacer, Packet};
use tailbound_hose::wire::MAX_DATAGRAM;
use tailbound_hose::{
    self as hose, Address, Change, ClassesCode, Destination, Dropped, FlowKey, HoseState,
    HoseStats, HostId, Machine, Machines, Station, StationChange,
};
use tailbound_switch::{Mac, Switch};
use tailbound_units::{Bytes, Nanos, Rate};

/// Bytes that are read per turn; each datagram counts as [`DATAGRAM`] more. The total is some eight
/// full datagrams, or twenty short ones.
const READ: usize = 16 * 1024;

/// Fixed cost of a datagram, in units of the cost of hashing one of its bytes.
const DATAGRAM: usize = 512;

/// Largest number of guests that one turn visits.
const GUESTS: usize = 64;

/// The longest time for keeping unconfirmed limits of another process: live peers send their state
/// within some milliseconds.
const KEPT: Nanos = Nanos::from_secs(1);

/// A guest that may take part in the exchange of rates.
#[derive(Debug, Clone)]
pub struct HoseGuest {
    /// Its id in the switch and the pacer.
    pub id: GuestId,
    /// The VM's name.
    pub vm: VmName,
    /// Its MAC address.
    pub mac: Mac,
    /// Its IP addresses.
    pub ips: Vec<IpAddr>,
    /// The guest's guarantee. Without one, the guest takes no part.
    pub guarantee: Option<Guarantee>,
    /// The number of VMs of the guest's tenant, by the placement service.
    pub tenant_vms: Option<u32>,
    /// The longest delay of a frame on its way to the guest, if the placement service promises one.
    pub delay: Option<Nanos>,
}

/// The present guests, while they are collected.
#[derive(Debug, Default)]
pub struct HoseGuests {
    guests: Vec<HoseGuest>,
    /// The guests that take part.
    machines: Machines,
}

/// The result of a reconfigured exchange of rates.
#[derive(Debug)]
pub(crate) struct Renewed {
    /// The former exchange, which has ended.
    pub(crate) former: Option<Former>,
    /// True if another exchange begins, which knows no VMs.
    pub(crate) begins: bool,
    pub(crate) has_other_socket: bool,
}

/// The counters of the exchange of rates.
#[derive(Debug, Clone, Copy)]
pub struct HoseSnapshot {
    /// The counters of the protocol.
    pub state: HoseStats,
    /// Datagrams that the system failed to send.
    pub send_failures: u64,
    /// Rates that the pacer refused.
    pub refused: u64,
    /// The state of the keys that the placement service issues, if it does.
    pub(crate) issued: Option<KeyStatus>,
}

/// The peers and settings of an exchange: with others, the exchange starts anew.
#[derive(Debug, PartialEq, Eq)]
struct Exchange {
    config: HoseConfig,
    /// The classes in which this host marks frames.
    classes: Option<Classes>,
    /// The keys with other hosts that come from files.
    keys: Keys,
}

/// Exchanges rates with other hosts.
#[derive(Debug)]
pub struct Hose {
    exchange: Exchange,
    /// The keys that the placement service issues. `asks` is the client that requests them.
    issued: Keys,
    asks: Option<KeyClient>,
    /// The classes of hosts that differ from this one's, as last logged.
    differing: HashMap<HostId, ClassesCode>,
    socket: UdpSocket,
    state: HoseState,
    /// Stations that were limited as such before this process, and are no longer.
    withdrawn_stations: Vec<Station>,
    /// The next guest to visit after a change of guests.
    renewing: Option<usize>,
    /// Limits that were in force before this process, until others replace them or `kept_until`.
    kept: HashSet<dataplane::FlowKey>,
    kept_until: Nanos,
    addresses: HashMap<HostId, SocketAddr>,
    /// The addresses that datagrams may come from.
    senders: HashSet<IpAddr>,
    guests: Vec<HoseGuest>,
    /// For each guest that receives traffic, the bytes that it had taken from its port at the last
    /// sample.
    drained: HashMap<GuestId, Bytes>,
    next_sample: Nanos,
    /// True if a rate may have been used since the last sample.
    unsampled: bool,
    now: Nanos,
    send_failures: u64,
    refused: u64,
}

impl Hose {
    /// Makes an exchange that knows no VMs yet.
    fn new(exchange: Exchange, asks: Option<KeyClient>, socket: UdpSocket, now: Nanos) -> Self {
        let Exchange { config, .. } = &exchange;
        let mut hose = Self {
            state: state(&exchange, now),
            addresses: addresses(config),
            senders: senders(config),
            exchange,
            issued: Keys::new(),
            asks,
            differing: HashMap::new(),
            socket,
            withdrawn_stations: Vec::new(),
            renewing: None,
            kept: HashSet::new(),
            kept_until: Nanos::MAX,
            guests: Vec::new(),
            drained: HashMap::new(),
            next_sample: now,
            unsampled: false,
            now,
            send_failures: 0,
            refused: 0,
        };
        hose.set_keys(now);
        hose
    }

    /// Signs datagrams with the available keys: keys from files precede those that the placement
    /// service issues.
    fn set_keys(&mut self, now: Nanos) {
        let (own, issued) = (&self.exchange.keys, &self.issued);
        self.state.set_keys(now, |host| {
            let keys = own.get(&host).or_else(|| issued.get(&host));
            keys.cloned()
        });
    }

    /// Applies the placement service's keys, if there are new ones.
    pub fn take_keys(&mut self, now: Nanos) {
        if let Some(keys) = self.asks.as_ref().and_then(KeyClient::take) {
            self.issued = keys;
            self.set_keys(now);
        }
    }

    /// Adds a guest to a collection.
    pub fn gather(&self, gathered: &mut HoseGuests, guest: HoseGuest) {
        if let Some(guarantee) = guest.guarantee {
            let tenant = format!("{}/{}", guest.vm.owner, guest.vm.tenant);
            let told = guest.tenant_vms;
            let size = told.or_else(|| self.exchange.config.machines.get(&tenant).copied());
            gathered.machines.push(Machine {
                guest: hose::GuestId(guest.id.get().get()),
                name: guest.vm.to_string(),
                station: Station::new(guest.mac.0),
                addresses: guest.ips.iter().copied().map(Address::from).collect(),
                bandwidth: guarantee.bandwidth,
                burst: guarantee.burst,
                tenant_machines: size.unwrap_or(0),
            });
        }
        gathered.guests.push(guest);
    }

    /// Replaces the present guests. The consequences come into force in pieces, with each
    /// [`Self::poll`].
    pub fn set_guests(&mut self, now: Nanos, gathered: HoseGuests) {
        let HoseGuests { guests, machines } = gathered;
        self.state.set_machines(now, machines);
        let here: HashSet<_> = guests.iter().map(|guest| guest.id).collect();
        self.drained.retain(|guest, _| here.contains(guest));
        self.guests = guests;
        self.renewing = Some(0);
    }

    /// Returns true if changes of guests are not completely in force yet.
    pub(crate) fn is_changing(&self) -> bool {
        self.renewing.is_some() || self.state.is_changing()
    }

    /// Keeps flows limited as they are until their limits are known, for a second at most: another
    /// process's agreement is better than no limit.
    pub(crate) fn keep_for_now(
        &mut self,
        now: Nanos,
        limited: Vec<dataplane::FlowKey>,
        switch: &mut Switch,
    ) {
        if limited.is_empty() {
            return;
        }
        self.kept.extend(limited);
        self.kept_until = now + KEPT;
        for station in self.kept_stations() {
            switch.set_limited_by_station(Mac(station.mac()), true);
        }
    }

    /// Returns the stations that are limited as such by a kept limit.
    fn kept_stations(&self) -> impl Iterator<Item = Station> + '_ {
        let flows = self.kept.iter();
        flows.filter_map(|flow| match destination(flow.destination) {
            Destination::Station(station) => Some(station),
            Destination::Address(_) => None,
        })
    }

    /// Removes the kept limits that nothing has confirmed.
    fn end_kept(&mut self, now: Nanos, pacer: &mut Pacer<Packet>) {
        if now < self.kept_until {
            return;
        }
        self.kept_until = Nanos::MAX;
        let announced: HashSet<_> = self.state.stations().collect();
        let over = self.kept_stations();
        let over: Vec<_> = over
            .filter(|station| !announced.contains(station))
            .collect();
        self.withdrawn_stations.extend(over);
        for flow in self.kept.drain() {
            let ended = pacer.set_destination(now, flow.source, flow.destination, None);
            if let Err(error) = ended {
                tracing::debug!(%error, "a guest of a limit that was kept is gone");
            }
        }
    }

    /// Returns the local address.
    pub fn address(&self) -> SocketAddr {
        self.exchange.config.listen
    }

    /// Applies another configuration. If anything has changed, the exchange starts anew, as after a
    /// restart, and the caller must set the guests again.
    pub(crate) fn reconfigure(&mut self, now: Nanos, setup: HoseSetup) -> Renewed {
        let HoseSetup {
            exchange,
            asks,
            socket,
        } = setup;
        // The service is asked again in any case.
        self.asks = asks;
        // A new key may be in the same file.
        if exchange == self.exchange {
            return Renewed {
                former: None,
                begins: false,
                has_other_socket: false,
            };
        }
        let has_other_socket = socket.is_some();
        if let Some(socket) = socket {
            self.socket = socket;
        }
        let former = std::mem::replace(&mut self.state, state(&exchange, now));
        self.addresses = addresses(&exchange.config);
        self.senders = senders(&exchange.config);
        self.exchange = exchange;
        self.differing.clear();
        if self.asks.is_none() {
            self.issued.clear();
        }
        self.set_keys(now);
        Renewed {
            former: Some(Former::new(now, former)),
            begins: true,
            has_other_socket,
        }
    }

    /// Ends the exchange.
    pub(crate) fn end(self, now: Nanos) -> Former {
        Former::new(now, self.state)
    }

    /// Returns the socket, which is readable when a datagram has arrived.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Reads some of the waiting datagrams, some eight to twenty at most. [`Self::poll`] sets the
    /// resulting rates.
    pub fn handle_readable(&mut self, now: Nanos) {
        // A byte more than the longest datagram, so that longer ones are noticed.
        let mut buffer = [0; MAX_DATAGRAM + 1];
        let today = today();
        let mut read = 0;
        while read < READ {
            read += DATAGRAM;
            match self.socket.recv_from(&mut buffer) {
                Ok((len, from)) => {
                    read += len;
                    // Before the MAC is computed: a guest may not send from a peer's
                    // address, and could else have this host hash all that it sends.
                    let handled = if self.senders.contains(&from.ip()) {
                        self.state.handle_datagram(now, today, &buffer[..len])
                    } else {
                        self.state.handle_dropped(Dropped::Stranger);
                        Err(Dropped::Stranger)
                    };
                    if let Err(dropped) = handled {
                        tracing::debug!(%from, %dropped, "dropped a datagram with rates");
                        self.tell_of_classes(dropped);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Nothing more is there; or what an earlier one met on its way
                // (ICMP), which its silence will tell.
                Err(_) => break,
            }
        }
    }

    /// Logs, once, that another host has other classes.
    fn tell_of_classes(&mut self, dropped: Dropped) {
        let Dropped::Classes { host, classes } = dropped else {
            return;
        };
        if self.differing.insert(host, classes) == Some(classes) {
            return;
        }
        let peers = self.exchange.config.peers.iter();
        let mut named = peers.filter(|peer| HostId::of(&peer.host) == host);
        let host = named.next().map_or("?", |peer| &peer.host);
        let word = |classes: Option<Classes>| {
            classes.map_or_else(|| "none known here".to_owned(), |known| known.to_string())
        };
        tracing::error!(
            host,
            theirs = word(Classes::from_code(classes.0)),
            ours = word(self.exchange.classes),
            "a host of the same fabric has other classes, and its messages are ignored: its \
                machines and those here get static shares; make `[classes]` equal on both"
        );
    }

    /// Samples the bytes that each guest has taken from its port, if a sample is due. Call it
    /// before each [`Self::poll`]. `drained` returns the guest's total so far, and true if frames
    /// wait for it there.
    pub fn note_drained(
        &mut self,
        now: Nanos,
        mut drained: impl FnMut(GuestId) -> Option<(Bytes, bool)>,
    ) {
        if now < self.next_sample || !self.state.has_grants() {
            return;
        }
        let before = &mut self.drained;
        self.state.sample_drained(now, |guest| {
            let guest = guest_of(guest)?;
            let (bytes, waiting) = drained(guest)?;
            let last = before.insert(guest, bytes).unwrap_or(bytes);
            Some((bytes.saturating_sub(last), waiting))
        });
    }

    /// Reads the usage of the rates, sends the due datagrams and sets the resulting rates. Call it
    /// after each turn in which the pacer took a frame, and at [`Self::poll_at`].
    pub fn poll(&mut self, now: Nanos, pacer: &mut Pacer<Packet>) {
        self.unsampled = now < self.next_sample;
        if !self.unsampled {
            self.next_sample = now + self.state.interval();
            pacer.destinations_used(now, |used| {
                let flow = FlowKey {
                    guest: hose::GuestId(used.flow.source.get().get()),
                    destination: destination(used.flow.destination),
                };
                let usage = hose::Usage {
                    taken: used.taken.into(),
                    lacks: used.lacks.into(),
                    waiting: used.backlogged,
                };
                self.state.handle_usage(now, flow, usage);
            });
            self.state.handle_sample_end(now);
        }
        self.exchange(now, pacer);
    }

    fn exchange(&mut self, now: Nanos, pacer: &mut Pacer<Packet>) {
        self.now = now;
        self.end_kept(now, pacer);
        let Self {
            state,
            socket,
            kept,
            addresses,
            send_failures,
            refused,
            ..
        } = self;
        state.poll_datagrams(now, today(), |host, datagram| {
            let sent = match addresses.get(&host) {
                Some(address) => socket.send_to(datagram, address).is_ok(),
                None => false,
            };
            *send_failures += u64::from(!sent);
        });
        for change in state.poll_changes() {
            if !kept.is_empty()
                && let Some(source) = guest_of(change.flow.guest)
            {
                let destination = known_as(change.flow.destination);
                kept.remove(&dataplane::FlowKey {
                    source,
                    destination,
                });
            }
            if let Err(error) = set(now, pacer, change) {
                *refused += 1;
                tracing::debug!(?change, %error, "the pacer does not take a rate");
            }
        }
    }

    /// Returns the stations that are limited as such from now on (true), and those that are no
    /// longer (false).
    pub fn poll_stations(&mut self) -> impl Iterator<Item = (Mac, bool)> + '_ {
        let withdrawn = self.withdrawn_stations.drain(..);
        let withdrawn = withdrawn.map(|station| (Mac(station.mac()), false));
        let changes = self.state.poll_stations();
        withdrawn.chain(
            changes.map(|StationChange { station, announced }| (Mac(station.mac()), announced)),
        )
    }

    /// Returns the time at which [`Self::poll`] must be called next.
    pub fn poll_at(&self) -> Option<Nanos> {
        let used = self.unsampled || self.state.has_open_pairs();
        let sample = used || self.state.has_grants();
        let sample = sample.then_some(self.next_sample);
        let kept = (!self.kept.is_empty()).then_some(self.kept_until);
        let renewing = self.renewing.map(|_| self.now);
        let times = [sample, self.state.poll_at(), kept, renewing];
        times.into_iter().flatten().min()
    }

    /// Returns all counters.
    pub fn snapshot(&self) -> HoseSnapshot {
        HoseSnapshot {
            state: self.state.stats(self.now),
            send_failures: self.send_failures,
            refused: self.refused,
            issued: self.asks.as_ref().map(KeyClient::status),
        }
    }
}

/// Converts the pacer's key of a destination.
fn destination(known_as: u128) -> Destination {
    let bytes = known_as.to_be_bytes();
    let station = bytes.last_chunk().and_then(|mac| Station::new(*mac));
    match station.filter(|station| dataplane::FlowKey::station(station.mac()) == known_as) {
        Some(station) => Destination::Station(station),
        None => Destination::Address(Address(known_as)),
    }
}

/// Returns the pacer's key of a destination.
fn known_as(destination: Destination) -> u128 {
    match destination {
        Destination::Station(station) => dataplane::FlowKey::station(station.mac()),
        Destination::Address(address) => address.0,
    }
}

/// Sets a rate, or the nearest one that the pacer can represent.
fn set(now: Nanos, pacer: &mut Pacer<Packet>, change: Change) -> Result<(), PacerError> {
    let Change { flow, rate } = change;
    let Some(guest) = guest_of(change.flow.guest) else {
        return Ok(());
    };
    let destination = known_as(flow.destination);
    let nearest = match pacer.set_destination(now, guest, destination, rate) {
        Err(PacerError::TooSlow { link, .. }) => Rate(link.0.div_ceil(MAX_RATIO)),
        Err(PacerError::AboveLink { link, .. }) => link,
        // Without a guarantee there is no limit either.
        Err(PacerError::NotGuaranteed(_)) if rate.is_none() => return Ok(()),
        other => return other,
    };
    pacer.set_destination(now, guest, destination, Some(nearest))
}

/// Returns the guest with this number in the exchange.
fn guest_of(guest: hose::GuestId) -> Option<GuestId> {
    NonZeroU64::new(guest.0).map(GuestId::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_destination_is_told_apart_from_an_address() {
        let station = Station::new([2, 0, 0, 0, 0, 7]).unwrap();
        let known_as = dataplane::FlowKey::station(station.mac());
        assert_eq!(destination(known_as), Destination::Station(station));
        for address in [0xffff_0a00_0001, 0xfd00 << 112 | 7, 0x0100 << 112] {
            let expected = Destination::Address(Address(address));
            assert_eq!(destination(address), expected);
        }
    }

    #[test]
    fn what_comes_from_no_peers_address_is_not_even_looked_at() {
        let directory = tempfile::tempdir().unwrap();
        let key_file = directory.path().join("key");
        write(&key_file, "0123456789abcdef0123456789abcdef").unwrap();
        set_permissions(&key_file, Permissions::from_mode(0o400)).unwrap();
        let text = format!(
            "host = 'a'\nlisten = '127.0.0.1:0'\nkey_file = {key_file:?}\n\
             [[peer]]\nhost = 'b'\naddress = '127.0.0.2:9'"
        );
        let config = toml::from_str(&text).unwrap();
        let setup = HoseSetup::open(config, None, None, Placement::none()).unwrap();
        let mut hose = setup.start(Nanos::ZERO).unwrap();
        let to = hose.socket.local_addr().unwrap();
        for from in ["127.0.0.2:0", "127.0.0.3:0", "127.0.0.3:0"] {
            let sender = UdpSocket::bind(from).unwrap();
            sender.send_to(b"garbage", to).unwrap();
        }
        hose.handle_readable(Nanos::ZERO);
        let dropped = hose.snapshot().state.dropped.by_reason();
        let counted: Vec<_> = dropped
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(counted, [("length", 1), ("stranger", 2)]);
    }
}
