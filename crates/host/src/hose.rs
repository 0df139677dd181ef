//! The hose model's socket and clock: rates are exchanged with other hosts, and
//! set in the pacer.
//!
//! [`tailbound_hose`] decides; docs/explanation/hose.md has the protocol.

mod channel;
mod config;
mod former;
mod inward;
mod kept;
mod kernel;
pub(crate) mod metrics;
mod sampling;
mod setup;

pub use config::{HoseConfig, Issuer, PeerConfig};
pub(crate) use former::Former;
pub use kernel::{KernelExchange, KernelGuest, KernelHoseError, KernelInward, read_section};
pub use setup::HoseError;
pub(crate) use setup::{HoseSetup, Placement};

use crate::control::{KeyClient, KeyStatus, Keys};
use channel::{Channel, ReceivedDatagram};
use kept::KeptLimits;
use sampling::SampleTimes;
use setup::{state, today};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use tailbound_api::VmName;
use tailbound_dataplane::pacer::{HostGroups, MAX_RATIO, PacerError, Place};
use tailbound_dataplane::{self as dataplane, Classes, Guarantee, GuestId, Pacer, Packet};
use tailbound_hose::{
    self as hose, Address, Change, ClassesCode, Destination, DropReason, FlowKey, HoseState,
    HoseStats, HostId, InwardBurst, Machine, Machines, Station, StationChange,
};
use tailbound_switch::{Mac, Switch};
use tailbound_units::{Bursts, Bytes, Nanos, Rate};

/// Largest number of guests that one turn visits.
const GUESTS: usize = 64;

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
    /// The inward burst of each VM of the guest's tenant, by the placement service.
    pub burst_in: Option<Bytes>,
    /// The longest delay of a frame on its way to the guest, if the placement service promises one.
    pub delay: Option<Nanos>,
    /// The groups of hosts of its tenant, if the placement service knows the guest.
    pub groups: Option<Arc<HostGroups>>,
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
pub(crate) struct Reconfiguration {
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
    channel: Channel,
    state: HoseState,
    kept: KeptLimits,
    sampling: SampleTimes,
    guests: Vec<HoseGuest>,
    /// The next guest to visit after a change of guests.
    renewing: Option<usize>,
    now: Nanos,
    /// The number of rates that the pacer refused.
    refused: u64,
}

impl Hose {
    /// Makes an exchange that knows no VMs yet.
    fn new(exchange: Exchange, asks: Option<KeyClient>, socket: UdpSocket, now: Nanos) -> Self {
        let mut hose = Self {
            state: state(&exchange, now),
            channel: Channel::new(socket, &exchange.config),
            exchange,
            issued: Keys::new(),
            asks,
            differing: HashMap::new(),
            kept: KeptLimits::default(),
            sampling: SampleTimes::new(now),
            guests: Vec::new(),
            renewing: None,
            now,
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
            let service_size = guest.tenant_vms;
            let size = service_size.or_else(|| self.exchange.config.machines.get(&tenant).copied());
            gathered.machines.push(Machine {
                guest: hose::GuestId(guest.id.get().get()),
                name: guest.vm.to_string(),
                station: Station::new(guest.mac.0),
                addresses: guest.ips.iter().copied().map(Address::from).collect(),
                bandwidth: guarantee.bandwidth,
                burst: guarantee.burst,
                inward: inward(&guarantee, guest.burst_in),
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
        self.sampling.retain(&here);
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
        self.kept.keep(now, limited);
        for station in self.kept.stations() {
            switch.set_limited_by_station(Mac(station.mac()), true);
        }
    }

    /// Returns the local address.
    pub fn address(&self) -> SocketAddr {
        self.exchange.config.listen
    }

    /// Applies another configuration. If anything has changed, the exchange starts anew, as after a
    /// restart, and the caller must set the guests again.
    pub(crate) fn reconfigure(&mut self, now: Nanos, setup: HoseSetup) -> Reconfiguration {
        let HoseSetup {
            exchange,
            asks,
            socket,
        } = setup;
        // The service is asked again in any case.
        self.asks = asks;
        // A new key may be in the same file.
        if exchange == self.exchange {
            return Reconfiguration {
                former: None,
                begins: false,
                has_other_socket: false,
            };
        }
        let has_other_socket = socket.is_some();
        self.channel.reconfigure(socket, &exchange.config);
        let former = std::mem::replace(&mut self.state, state(&exchange, now));
        self.exchange = exchange;
        self.differing.clear();
        if self.asks.is_none() {
            self.issued.clear();
        }
        self.set_keys(now);
        Reconfiguration {
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
        self.channel.descriptor()
    }

    /// Reads some of the waiting datagrams, some eight to twenty at most. [`Self::poll`] sets the
    /// resulting rates.
    pub fn handle_readable(&mut self, now: Nanos) {
        let today = today();
        let mut differing = Vec::new();
        let state = &mut self.state;
        self.channel.receive(|from, received| {
            let handled = match received {
                ReceivedDatagram::Datagram(datagram) => state.handle_datagram(now, today, datagram),
                ReceivedDatagram::Stranger => {
                    state.handle_dropped(DropReason::Stranger);
                    Err(DropReason::Stranger)
                }
            };
            if let Err(dropped) = handled {
                tracing::debug!(%from, %dropped, "dropped a datagram with rates");
                differing.extend(differing_classes(dropped));
            }
        });
        for (host, classes) in differing {
            self.log_classes(host, classes);
        }
    }

    /// Logs, once, that another host has other classes.
    fn log_classes(&mut self, host: HostId, classes: ClassesCode) {
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
        if !self.sampling.is_due(now) || !self.state.has_grants() {
            return;
        }
        let sampling = &mut self.sampling;
        self.state.sample_drained(now, |guest| {
            let guest = guest_of(guest)?;
            let (bytes, waiting) = drained(guest)?;
            Some((sampling.taken(guest, bytes), waiting))
        });
    }

    /// Reads the usage of the rates, sends the due datagrams and sets the resulting rates. Call it
    /// after each turn in which the pacer took a frame, and at [`Self::poll_at`].
    pub fn poll(&mut self, now: Nanos, pacer: &mut Pacer<Packet>) {
        for waiting in pacer.flows_that_wait() {
            let (flow, queued) = (flow_of(waiting.flow), waiting.queued.into());
            self.state.handle_waiting(now, flow, queued);
        }
        if self.sampling.begin(now, self.state.interval()) {
            pacer.destinations_used(now, |used| {
                let usage = hose::Usage {
                    taken: used.taken.into(),
                    lacks: used.lacks.into(),
                    waiting: used.backlogged,
                    queued: used.queued.into(),
                };
                self.state.handle_usage(now, flow_of(used.flow), usage);
            });
            self.state.handle_sample_end(now);
        }
        self.exchange(now, pacer);
    }

    fn exchange(&mut self, now: Nanos, pacer: &mut Pacer<Packet>) {
        self.now = now;
        self.kept.end(now, self.state.stations(), pacer);
        let Self {
            state,
            channel,
            kept,
            refused,
            ..
        } = self;
        state.poll_datagrams(now, today(), |host, datagram| {
            if let Some(len) = channel.send(host, datagram) {
                pacer.take_wire(now, len);
            }
        });
        for change in state.poll_changes() {
            if !kept.is_empty()
                && let Some(source) = guest_of(change.flow.guest)
            {
                let destination = known_as(change.flow.destination);
                kept.replace(&dataplane::FlowKey {
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
        let withdrawn = self.kept.take_withdrawn();
        let withdrawn = withdrawn.map(|station| (Mac(station.mac()), false));
        let changes = self.state.poll_stations();
        withdrawn.chain(
            changes.map(|StationChange { station, announced }| (Mac(station.mac()), announced)),
        )
    }

    /// Returns the time at which [`Self::poll`] must be called next.
    pub fn poll_at(&self) -> Option<Nanos> {
        let used = self.sampling.is_open() || self.state.has_open_pairs();
        let sample = used || self.state.has_grants();
        let sample = sample.then(|| self.sampling.next());
        let renewing = self.renewing.map(|_| self.now);
        let times = [sample, self.state.poll_at(), self.kept.poll_at(), renewing];
        times.into_iter().flatten().min()
    }

    /// Returns all counters.
    pub fn snapshot(&self) -> HoseSnapshot {
        HoseSnapshot {
            state: self.state.stats(self.now),
            send_failures: self.channel.send_failures(),
            refused: self.refused,
            issued: self.asks.as_ref().map(KeyClient::status),
        }
    }
}

/// Returns the host that dropped datagrams come from, and its classes, if these are the reason.
const fn differing_classes(dropped: DropReason) -> Option<(HostId, ClassesCode)> {
    match dropped {
        DropReason::Classes { host, classes } => Some((host, classes)),
        _ => None,
    }
}

/// Converts the pacer's key of a flow.
fn flow_of(flow: dataplane::FlowKey) -> FlowKey {
    FlowKey {
        guest: hose::GuestId(flow.source.get().get()),
        destination: destination(flow.destination),
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
    let Change {
        flow,
        rate,
        lent,
        receiver,
        ..
    } = change;
    let Some(guest) = guest_of(change.flow.guest) else {
        return Ok(());
    };
    let destination = known_as(flow.destination);
    let bursts = pacer.guarantee(guest).map(|guarantee| guarantee.bursts);
    if bursts.is_some_and(Bursts::is_per_subtree) || receiver.destinations > 1 {
        let place = Place {
            host: receiver.host.0,
            machine: receiver.machine.into(),
        };
        pacer.set_place(guest, destination, rate.map(|_| place));
    }
    let nearest = match pacer.set_destination(now, guest, destination, rate) {
        Ok(()) => rate,
        Err(PacerError::TooSlow { link, .. }) => Some(Rate(link.0.div_ceil(MAX_RATIO))),
        Err(PacerError::AboveLink { link, .. }) => Some(link),
        // Without a guarantee there is no limit either.
        Err(PacerError::NotGuaranteed(_)) if rate.is_none() => return Ok(()),
        error => return error,
    };
    if nearest != rate {
        pacer.set_destination(now, guest, destination, nearest)?;
    }
    pacer.lend(now, guest, destination, lent);
    Ok(())
}

/// Returns the inward burst of a guest whose pacer has a part of each receiver's.
fn inward(guarantee: &Guarantee, burst_in: Option<Bytes>) -> Option<InwardBurst> {
    let (part, most) = guarantee.credit.zip(burst_in)?;
    Some(InwardBurst { most, part })
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
    use tailbound_dataplane::{PacerConfig, Pool, WireItem};

    #[test]
    fn station_destinations_are_distinguished_from_ip_addresses() {
        let station = Station::new([2, 0, 0, 0, 0, 7]).unwrap();
        let known_as = dataplane::FlowKey::station(station.mac());
        assert_eq!(destination(known_as), Destination::Station(station));
        for address in [0xffff_0a00_0001, 0xfd00 << 112 | 7, 0x0100 << 112] {
            let expected = Destination::Address(Address(address));
            assert_eq!(destination(address), expected);
        }
    }

    /// An exchange of host `a` with the peer `b`, whose address is not in use.
    fn exchange() -> Hose {
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
        setup.start(Nanos::ZERO).unwrap()
    }

    /// Returns the position at which a frame without a guarantee begins.
    fn begin(pacer: &mut Pacer<Packet>, now: Nanos) -> u64 {
        const LEN: usize = 60;
        let mut buffer = Pool::new().buffer(Packet::HEADROOM + LEN);
        buffer[Packet::HEADROOM..][..LEN].fill(0);
        let packet = Packet::new(buffer, Packet::HEADROOM, LEN, None, None).unwrap();
        pacer.enqueue(now, packet);
        let mut begins = Vec::new();
        pacer.batch(now).for_each(|item| match item {
            WireItem::BestEffort { at, .. } => begins.push(at.0),
            other => panic!("{other:?}"),
        });
        begins[0]
    }

    #[test]
    fn datagrams_take_their_time_of_the_wire() {
        let mut hose = exchange();
        let config = PacerConfig::strict(Rate::from_mbit(1000));
        let (mut pacer, mut idle) = (Pacer::new(&config).unwrap(), Pacer::new(&config).unwrap());
        // The first datagram greets the peer.
        hose.poll(Nanos::ZERO, &mut pacer);
        // 88 B of the datagram's header, 32 of its MAC, 42 of other headers, and 24 of the wire.
        let later = begin(&mut pacer, Nanos::ZERO) - begin(&mut idle, Nanos::ZERO);
        assert_eq!(later, 88 + 32 + 42 + 24);
    }

    #[test]
    fn datagrams_from_addresses_of_no_peer_are_dropped_unparsed() {
        let mut hose = exchange();
        let to = hose.channel.local_address().unwrap();
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
