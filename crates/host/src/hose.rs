//! The hose model's socket and clock: rates are exchanged with other hosts, and
//! set in the pacer.
//!
//! [`tailbound_hose`] decides; docs/hose.md has the protocol.

mod config;
mod inward;
mod key;
pub(crate) mod metrics;

pub use config::{HoseConfig, PeerConfig};
pub use key::KeyError;

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tailbound_api::VmName;
use tailbound_dataplane::pacer::{MAX_RATIO, PacerError};
use tailbound_dataplane::{self as dataplane, Guarantee, GuestId, Pacer, Packet};
use tailbound_hose::wire::MAX_DATAGRAM;
use tailbound_hose::{
    self as hose, Address, Change, Destination, Dropped, Epoch, FlowKey, HoseState, HoseStats,
    HostId, Incoming, Key, Machine, Station, StationChange, TimeOfDay,
};
use tailbound_switch::{Mac, Switch};
use tailbound_units::{Bytes, Nanos, Rate};

/// Datagrams that are read in a turn.
const DATAGRAMS: usize = 64;

/// How long limits of another process are kept that nobody has confirmed: peers that live
/// say within some milliseconds what they know.
const KEPT: Nanos = Nanos::from_secs(1);

/// Why rates cannot be exchanged.
#[derive(Debug, thiserror::Error)]
pub enum HoseError {
    /// The key cannot be used.
    #[error("hose: the key {path}: {source}", path = path.display())]
    Key {
        /// The file that was to have it.
        path: PathBuf,
        /// What is wrong with it.
        source: KeyError,
    },
    /// The address cannot be listened at.
    #[error("hose: cannot listen at {address}: {source}; is another tailbound host running?")]
    Listen {
        /// The address of `listen`.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// A guest that may take part in the exchange of rates.
#[derive(Debug, Clone)]
pub struct HoseGuest {
    /// Its id in the switch and the pacer.
    pub id: GuestId,
    /// The machine that it is.
    pub vm: VmName,
    /// Its MAC address.
    pub mac: Mac,
    /// Its IP addresses.
    pub ips: Vec<IpAddr>,
    /// Its guarantee; it takes no part without.
    pub guarantee: Option<Guarantee>,
    /// How many machines its tenant has, as the placement service says.
    pub tenant_vms: Option<u32>,
    /// How long a frame may wait on its way to it, where the placement service promises
    /// that.
    pub delay: Option<Nanos>,
}

/// The counters of the exchange of rates.
#[derive(Debug, Clone, Copy)]
pub struct HoseSnapshot {
    /// What the protocol has counted.
    pub state: HoseStats,
    /// Datagrams that the system did not send.
    pub send_failures: u64,
    /// Rates that the pacer did not take.
    pub refused: u64,
}

/// Exchanges rates with other hosts.
#[derive(Debug)]
pub struct Hose {
    config: HoseConfig,
    /// The key of this host and each peer.
    keys: HashMap<HostId, Key>,
    socket: UdpSocket,
    state: HoseState,
    /// What is left of the state before a reload: limits to be taken away, and stations
    /// that are announced no longer, or not yet again.
    withdrawn: Vec<Change>,
    withdrawn_stations: Vec<Station>,
    /// The same of what may come for guests, and whether these are others.
    closed: Vec<Incoming>,
    renewed: bool,
    /// Limits that were in force before this process, until others come or that is over.
    kept: HashSet<dataplane::FlowKey>,
    kept_until: Nanos,
    addresses: HashMap<HostId, SocketAddr>,
    /// The addresses that datagrams may come from.
    senders: HashSet<IpAddr>,
    guests: Vec<HoseGuest>,
    /// What each guest that is sent to had taken from its port as of the last sample.
    drained: HashMap<GuestId, Bytes>,
    next_sample: Nanos,
    /// Whether anything may have been used since the last sample.
    unsampled: bool,
    now: Nanos,
    send_failures: u64,
    refused: u64,
}

/// An exchange of rates that is to be, or to become another one: what takes files and
/// sockets is done, by whatever thread.
#[derive(Debug)]
pub struct HoseSetup {
    config: HoseConfig,
    keys: HashMap<HostId, Key>,
    /// `None` where the one that runs listens there already.
    socket: Option<UdpSocket>,
}

impl HoseSetup {
    /// Reads the keys and listens, but for where one that runs is `listening` already.
    ///
    /// # Errors
    /// A key or the address cannot be used.
    pub fn open(config: HoseConfig, listening: Option<SocketAddr>) -> Result<Self, HoseError> {
        let is_new = listening != Some(config.listen);
        Ok(Self {
            keys: read_keys(&config)?,
            socket: is_new.then(|| listen(config.listen)).transpose()?,
            config,
        })
    }

    /// Begins where none runs; `None` where the socket is that of one that did.
    pub fn start(self, now: Nanos) -> Option<Hose> {
        Some(Hose::new(self.config, self.keys, self.socket?, now))
    }
}

impl Hose {
    /// Listens, and knows no machine yet.
    ///
    /// # Errors
    /// The key or the address cannot be used.
    pub fn open(config: &HoseConfig, now: Nanos) -> Result<Self, HoseError> {
        let keys = read_keys(config)?;
        let socket = listen(config.listen)?;
        Ok(Self::new(config.clone(), keys, socket, now))
    }

    fn new(config: HoseConfig, keys: HashMap<HostId, Key>, socket: UdpSocket, now: Nanos) -> Self {
        Self {
            state: state(&config, now, &keys),
            addresses: addresses(&config),
            senders: senders(&config),
            config,
            keys,
            socket,
            withdrawn: Vec::new(),
            withdrawn_stations: Vec::new(),
            closed: Vec::new(),
            renewed: false,
            kept: HashSet::new(),
            kept_until: Nanos::MAX,
            guests: Vec::new(),
            drained: HashMap::new(),
            next_sample: now,
            unsampled: false,
            now,
            send_failures: 0,
            refused: 0,
        }
    }

    /// Sets which guests there are: these and no others.
    pub fn set_guests(&mut self, now: Nanos, guests: Vec<HoseGuest>) {
        let machines = guests.iter().filter_map(|guest| {
            let guarantee = guest.guarantee?;
            let tenant = format!("{}/{}", guest.vm.owner, guest.vm.tenant);
            let told = guest.tenant_vms;
            let size = told.or_else(|| self.config.machines.get(&tenant).copied());
            Some(Machine {
                guest: hose::GuestId(guest.id.get().get()),
                name: guest.vm.to_string(),
                station: Station::new(guest.mac.0),
                addresses: guest.ips.iter().copied().map(Address::from).collect(),
                bandwidth: guarantee.bandwidth,
                burst: guarantee.burst,
                tenant_machines: size.unwrap_or(0),
            })
        });
        let machines = machines.collect();
        self.state.set_machines(now, machines);
        let here: HashSet<_> = guests.iter().map(|guest| guest.id).collect();
        self.drained.retain(|guest, _| here.contains(guest));
        self.guests = guests;
        self.renewed = true;
    }

    /// Lets flows be limited as they are, until something else is known of them, for a
    /// second at most: what another process agreed on is better than nothing.
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

    /// The stations that are limited as such by a limit that is kept.
    fn kept_stations(&self) -> impl Iterator<Item = Station> + '_ {
        let flows = self.kept.iter();
        flows.filter_map(|flow| match destination(flow.destination) {
            Destination::Station(station) => Some(station),
            Destination::Address(_) => None,
        })
    }

    /// Ends what was kept for now and of which nothing else has become known.
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

    /// The address that it listens at.
    pub fn address(&self) -> SocketAddr {
        self.config.listen
    }

    /// Takes another configuration. Where anything has changed, the exchange starts
    /// anew, as after a restart. Returns whether the socket is another one.
    pub fn reconfigure(&mut self, now: Nanos, setup: HoseSetup) -> bool {
        let HoseSetup {
            config,
            keys,
            socket,
        } = setup;
        // A new key may be in the same file.
        if config == self.config && keys == self.keys {
            return false;
        }
        let is_another = socket.is_some();
        if let Some(socket) = socket {
            self.socket = socket;
        }
        self.withdrawn_stations.extend(self.state.stations());
        self.state.set_machines(now, Vec::new());
        self.withdrawn.extend(self.state.poll_changes());
        self.closed.extend(self.state.poll_incoming(now));
        let changed = self.state.poll_stations();
        self.withdrawn_stations
            .extend(changed.map(|change| change.station));
        self.state = state(&config, now, &keys);
        self.keys = keys;
        self.addresses = addresses(&config);
        self.senders = senders(&config);
        self.config = config;
        let guests = std::mem::take(&mut self.guests);
        self.set_guests(now, guests);
        is_another
    }

    /// The socket, which is readable when a datagram is there.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Reads the datagrams that are there, 64 at most, and sets the rates that
    /// follow.
    pub fn handle_readable(&mut self, now: Nanos, pacer: &mut Pacer<Packet>) {
        // A byte more than any datagram has: what is longer shows.
        let mut buffer = [0; MAX_DATAGRAM + 1];
        let today = today();
        for _ in 0..DATAGRAMS {
            match self.socket.recv_from(&mut buffer) {
                Ok((len, from)) => {
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
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Nothing more is there; or what an earlier one met on its way
                // (ICMP), which its silence will tell.
                Err(_) => break,
            }
        }
        self.exchange(now, pacer);
    }

    /// Notes what each guest has taken from its port, where that is due: to be called
    /// before each [`Self::poll`]. `drained` says how much that is so far, and whether
    /// frames wait for it there.
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

    /// Notes what was used, sends what is due and sets the rates that follow. To
    /// be called after each turn in which the pacer took a frame, and at
    /// [`Self::poll_at`].
    pub fn poll(&mut self, now: Nanos, pacer: &mut Pacer<Packet>) {
        self.unsampled = now < self.next_sample;
        if !self.unsampled {
            self.next_sample = now + self.state.interval();
            pacer.destinations_used(now, |used| {
                let flow = FlowKey {
                    guest: hose::GuestId(used.flow.source.get().get()),
                    destination: destination(used.flow.destination),
                };
                let taken = used.taken.into();
                self.state.handle_usage(now, flow, taken, used.backlogged);
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
            withdrawn,
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
        for change in withdrawn.drain(..).chain(state.poll_changes()) {
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

    /// Hands over the stations that are limited as such from now on, and those that are
    /// not any more.
    pub fn poll_stations(&mut self) -> impl Iterator<Item = (Mac, bool)> + '_ {
        let withdrawn = self.withdrawn_stations.drain(..);
        let withdrawn = withdrawn.map(|station| (Mac(station.mac()), false));
        let changes = self.state.poll_stations();
        withdrawn.chain(
            changes.map(|StationChange { station, announced }| (Mac(station.mac()), announced)),
        )
    }

    /// The stations that are limited as such.
    pub fn stations(&self) -> impl Iterator<Item = Mac> + '_ {
        self.state.stations().map(|station| Mac(station.mac()))
    }

    /// When [`Self::poll`] is to be called next.
    pub fn poll_at(&self) -> Option<Nanos> {
        let used = self.unsampled || self.state.has_open_pairs();
        let sample = used || self.state.has_grants();
        let sample = sample.then_some(self.next_sample);
        let kept = (!self.kept.is_empty()).then_some(self.kept_until);
        let times = [sample, self.state.poll_at(), kept];
        times.into_iter().flatten().min()
    }

    /// All counters, as they are now.
    pub fn snapshot(&self) -> HoseSnapshot {
        HoseSnapshot {
            state: self.state.stats(self.now),
            send_failures: self.send_failures,
            refused: self.refused,
        }
    }
}

/// What the pacer calls a destination.
fn destination(known_as: u128) -> Destination {
    let bytes = known_as.to_be_bytes();
    let station = bytes.last_chunk().and_then(|mac| Station::new(*mac));
    match station.filter(|station| dataplane::FlowKey::station(station.mac()) == known_as) {
        Some(station) => Destination::Station(station),
        None => Destination::Address(Address(known_as)),
    }
}

/// The same the other way round.
fn known_as(destination: Destination) -> u128 {
    match destination {
        Destination::Station(station) => dataplane::FlowKey::station(station.mac()),
        Destination::Address(address) => address.0,
    }
}

/// Sets a rate, or the nearest that the pacer can count.
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

/// The guest that was announced under this number.
fn guest_of(guest: hose::GuestId) -> Option<GuestId> {
    NonZeroU64::new(guest.0).map(GuestId::from)
}

fn listen(address: SocketAddr) -> Result<UdpSocket, HoseError> {
    let bound = UdpSocket::bind(address).and_then(|socket| {
        socket.set_nonblocking(true)?;
        Ok(socket)
    });
    bound.map_err(|source| HoseError::Listen { address, source })
}

/// The key of this host and each peer, of the secret that these two share, or all do.
fn read_keys(config: &HoseConfig) -> Result<HashMap<HostId, Key>, HoseError> {
    let read = |path: &Path| {
        key::read(path).map_err(|source| HoseError::Key {
            path: path.to_owned(),
            source,
        })
    };
    let shared = config.key_file.as_deref().map(read).transpose()?;
    let mut keys = HashMap::new();
    for PeerConfig { host, key_file, .. } in &config.peers {
        let own = key_file.as_deref().map(read).transpose()?;
        if let Some(secret) = own.as_ref().or(shared.as_ref()) {
            keys.insert(HostId::of(host), secret.pair_key(&config.host, host));
        }
    }
    Ok(keys)
}

fn state(config: &HoseConfig, now: Nanos, keys: &HashMap<HostId, Key>) -> HoseState {
    let hose = hose::HoseConfig {
        host: HostId::of(&config.host),
        epoch: Epoch::starting(today()),
        interval: config.interval,
        peers: addresses(config).into_keys().collect(),
    };
    let mut state = HoseState::new(now, hose);
    state.set_keys(now, |host| keys.get(&host).cloned());
    state
}

fn addresses(config: &HoseConfig) -> HashMap<HostId, SocketAddr> {
    let peers = config.peers.iter();
    peers
        .map(|peer| (HostId::of(&peer.host), peer.address))
        .collect()
}

fn senders(config: &HoseConfig) -> HashSet<IpAddr> {
    config.peers.iter().map(|peer| peer.address.ip()).collect()
}

fn today() -> TimeOfDay {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let nanos = since.map_or(0, |since| since.as_nanos());
    TimeOfDay(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;
    use tailbound_dataplane::PacerConfig;

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
    fn a_peers_own_secret_counts_before_that_of_all() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, secret: &str| {
            let path = directory.path().join(name);
            write(&path, secret).unwrap();
            set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
            path
        };
        let all = "0123456789abcdef0123456789abcdef";
        let own = "fedcba9876543210fedcba9876543210";
        let (all_file, own_file) = (file("all", all), file("own", own));
        let text = format!(
            "host = 'a'\nlisten = '127.0.0.1:0'\nkey_file = {all_file:?}\n\
             [[peer]]\nhost = 'b'\naddress = '127.0.0.2:9'\nkey_file = {own_file:?}\n\
             [[peer]]\nhost = 'c'\naddress = '127.0.0.3:9'\n"
        );
        let keys = read_keys(&toml::from_str(&text).unwrap()).unwrap();
        let key = |secret: &str, peer| {
            let secret = hose::Secret::new(secret.as_bytes()).unwrap();
            secret.pair_key("a", peer)
        };
        assert_eq!(keys[&HostId::of("b")], key(own, "b"));
        assert_eq!(keys[&HostId::of("c")], key(all, "c"));
        let missing = text.replace("own", "gone");
        let refused = read_keys(&toml::from_str(&missing).unwrap());
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("gone: cannot be read"), "{message}");
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
        let mut hose = Hose::open(&toml::from_str(&text).unwrap(), Nanos::ZERO).unwrap();
        let mut pacer = Pacer::new(&PacerConfig::new(Rate::from_mbit(1000))).unwrap();
        let to = hose.socket.local_addr().unwrap();
        for from in ["127.0.0.2:0", "127.0.0.3:0", "127.0.0.3:0"] {
            let sender = UdpSocket::bind(from).unwrap();
            sender.send_to(b"garbage", to).unwrap();
        }
        hose.handle_readable(Nanos::ZERO, &mut pacer);
        let dropped = hose.snapshot().state.dropped.by_reason();
        let counted: Vec<_> = dropped
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(counted, [("length", 1), ("stranger", 2)]);
    }
}
