//! Forwarding of frames by destination MAC address.
//!
//! A guest's address is in the configuration and pinned to the guest's port: a move to another port
//! (a MAC move) is counted and not followed. While the guest is away, its address may be behind the
//! uplink, and at no other guest. Other addresses are learned from the source addresses of frames,
//! as an 802.1D bridge does (IEEE 802.1Q, 8.7), from the uplink and from guests that may send with
//! several addresses (`anti_spoofing = false`).
//!
//! Unlike a bridge, a host knows that strangers are behind the uplink. So an unknown unicast
//! address is never flooded. Frames to it from a guest go to the uplink alone; frames from the
//! uplink are dropped.

mod decisions;
mod way;

pub(crate) use decisions::Addresses;
use decisions::Decisions;
use way::Generation;
pub(crate) use way::Way;

use crate::index::PortIndex;
use crate::mac::Mac;
use std::collections::HashMap;
use tailbound_dataplane::NumberHash;
use tailbound_units::Nanos;

/// A table by MAC addresses. Strangers choose addresses, so each table is hashed with its own
/// secret.
pub(crate) type ByMac<T> = HashMap<Mac, T, NumberHash>;

/// Place of a guest's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pinned {
    /// At the guest's port.
    Here(PortIndex),
    /// Behind the uplink: the guest of this port is on another host, or not running.
    Away(PortIndex),
}

impl Pinned {
    /// Returns the guest's port, wherever the guest is.
    pub const fn port(self) -> PortIndex {
        match self {
            Self::Here(port) | Self::Away(port) => port,
        }
    }
}

/// Forwarding decision for a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// To this port, which is not the frame's origin.
    To(PortIndex),
    /// To the uplink, since the destination is unknown: the network behind the uplink may have to
    /// flood the frame.
    Unknown(PortIndex),
    /// To the guest of this port, which is away: see [`Forwarding::route_outside`].
    Away(PortIndex),
    /// To every port except the frame's origin.
    Flood,
    /// To no port.
    Drop(NoRoute),
}

/// Reason why a frame has no route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRoute {
    /// The address is reserved for the link itself (IEEE 802.1Q, 8.6.3).
    LinkLocal,
    /// The destination is behind the port that the frame came from.
    SamePort,
    /// The destination is unknown, and there is no uplink to try.
    Unknown,
}

/// Result of [`Forwarding::learn`] for a source address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learned {
    /// The address is known at this port, possibly since now.
    Accepted,
    /// The address is pinned to another port, as it is a guest's: a forbidden MAC move. The frame
    /// must be dropped.
    ForbiddenMove,
    /// The address is no station's (a group's, or all zeros). The frame must be dropped.
    Invalid,
    /// The address was not entered, since the port has its maximum number of entries. The frame may
    /// still be forwarded.
    Full,
}

/// The place of a learned station. It is the same for a [`Generation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    home: u32,
    /// The index of the station in its home.
    place: u32,
}

impl Entry {
    /// The index of the home.
    #[inline]
    const fn home(self) -> usize {
        self.home as usize
    }

    /// The index of the station in its home.
    #[inline]
    const fn place(self) -> usize {
        self.place as usize
    }
}

/// A learned station.
#[derive(Debug, Clone, Copy)]
struct Station {
    mac: Mac,
    seen: Nanos,
}

/// The stations that were learned at one port. Ports can change their index without a visit to
/// their stations.
#[derive(Debug, Default)]
struct Home {
    /// The port; `None` if the port is gone.
    port: Option<PortIndex>,
    stations: Vec<Station>,
    /// The time of the last removal of aged stations, which visits all of them at most once a
    /// second.
    swept: Nanos,
}

/// The forwarding table (FDB).
#[derive(Debug, Default)]
pub struct Forwarding {
    uplink: Option<PortIndex>,
    guests: ByMac<Pinned>,
    entries: ByMac<Entry>,
    homes: Vec<Home>,
    /// The home of each port, by [`PortIndex`].
    ports: Vec<usize>,
    /// Homes whose ports are gone: some of their stations may still have to be removed.
    gone: Vec<usize>,
    /// Unused homes.
    free: Vec<usize>,
    generation: Generation,
    decisions: Decisions,
}

impl Forwarding {
    /// An entry that was not refreshed for this long is removed
    /// (IEEE 802.1Q, table 8-6).
    pub const AGEING: Nanos = Nanos::from_secs(300);
    /// Most addresses learned from one port. Each port has its own share, so no port can displace
    /// another's entries.
    pub const ENTRIES_PER_PORT: usize = 1024;

    /// Makes a table for `ports` ports, with the guests' addresses pinned.
    pub fn new(
        ports: usize,
        uplink: Option<PortIndex>,
        guests: impl IntoIterator<Item = (Mac, PortIndex)>,
    ) -> Self {
        let mut table = Self::default();
        let fresh = (0..ports).map(|_| None);
        let guests = guests.into_iter();
        let guests = guests.map(|(mac, port)| (mac, Pinned::Here(port)));
        table.reconfigure(fresh, uplink, guests.collect());
        table
    }

    /// Changes the ports and pins the guests' addresses; `before` has the former index of each
    /// port. Stations of a port stay at it. Stations of removed ports are no longer used, and the
    /// caller must remove them ([`Self::forget_gone`]). The call takes time for each port, and none
    /// for the stations.
    pub fn reconfigure(
        &mut self,
        before: impl Iterator<Item = Option<PortIndex>>,
        uplink: Option<PortIndex>,
        guests: ByMac<Pinned>,
    ) {
        self.generation.end();
        for home in &self.ports {
            self.homes[*home].port = None;
        }
        let old = std::mem::take(&mut self.ports);
        for before in before {
            let kept = before.and_then(|port| old.get(port.0).copied());
            let home = kept.or_else(|| self.free.pop()).unwrap_or_else(|| {
                self.homes.push(Home::default());
                self.homes.len() - 1
            });
            self.homes[home].port = Some(PortIndex(self.ports.len()));
            self.ports.push(home);
        }
        let homes = &self.homes;
        let gone = old.into_iter().filter(|home| homes[*home].port.is_none());
        self.gone.extend(gone);
        self.uplink = uplink;
        self.guests = guests;
    }

    /// Removes at most `stations` stations of removed ports; returns true when none are left.
    pub fn forget_gone(&mut self, mut stations: usize) -> bool {
        while let Some(home) = self.gone.last().copied() {
            while let Some(station) = self.homes[home].stations.last().copied() {
                if stations == 0 {
                    return false;
                }
                stations -= 1;
                self.forget(station.mac);
            }
            self.gone.pop();
            self.free.push(home);
        }
        true
    }

    /// Sets a guest's place. If the guest is here, a learned entry of its address is removed.
    pub fn pin(&mut self, guest: Mac, place: Pinned) {
        self.generation.end();
        self.guests.insert(guest, place);
        if matches!(place, Pinned::Here(_)) {
            self.forget(guest);
        }
    }

    /// Removes a station.
    pub fn forget(&mut self, mac: Mac) {
        if let Some(entry) = self.entries.remove(&mac) {
            self.leave(entry);
        }
    }

    /// Removes a station from the list of its home.
    fn leave(&mut self, entry: Entry) {
        self.generation.end();
        let stations = &mut self.homes[entry.home()].stations;
        stations.swap_remove(entry.place());
        if let Some(moved) = stations.get(entry.place())
            && let Some(moved) = self.entries.get_mut(&moved.mac)
        {
            moved.place = entry.place;
        }
    }

    /// Learns that `source` has sent from `port`.
    pub fn learn(&mut self, now: Nanos, port: PortIndex, source: Mac) -> Learned {
        if source.is_multicast() || source.0 == [0; 6] {
            return Learned::Invalid;
        }
        match self.guests.get(&source) {
            Some(pinned) if pinned.port() == port => return Learned::Accepted,
            Some(Pinned::Away(_)) if self.uplink == Some(port) => {}
            Some(_) => return Learned::ForbiddenMove,
            None => {}
        }
        let Some(home) = self.ports.get(port.0).copied() else {
            return Learned::Full;
        };
        if let Some(entry) = self.entries.get(&source)
            && entry.home() == home
        {
            self.homes[home].stations[entry.place()].seen = now;
            return Learned::Accepted;
        }
        if self.homes[home].stations.len() >= Self::ENTRIES_PER_PORT {
            self.sweep(now, home);
            return Learned::Full;
        }
        self.forget(source);
        let stations = &mut self.homes[home].stations;
        let entry = Entry {
            home: home as u32,
            place: stations.len() as u32,
        };
        stations.push(Station {
            mac: source,
            seen: now,
        });
        self.entries.insert(source, entry);
        Learned::Accepted
    }

    /// Removes aged entries of one port, at most once a second.
    fn sweep(&mut self, now: Nanos, home: usize) {
        let swept = &mut self.homes[home].swept;
        if now.since(*swept) < Nanos::from_secs(1) {
            return;
        }
        *swept = now;
        for place in (0..self.homes[home].stations.len()).rev() {
            let station = self.homes[home].stations[place];
            if now.since(station.seen) >= Self::AGEING {
                self.forget(station.mac);
            }
        }
    }

    /// Returns the route of a frame from `from` to `destination`.
    ///
    /// A station behind the uplink stays known while frames are sent to it: a router may answer
    /// from another address than the one at which it is reached.
    pub fn route(&mut self, now: Nanos, from: PortIndex, destination: Mac) -> Verdict {
        if destination.is_multicast() {
            return if destination.is_link_local_group() {
                Verdict::Drop(NoRoute::LinkLocal)
            } else {
                Verdict::Flood
            };
        }
        match self.guests.get(&destination) {
            Some(Pinned::Here(port)) if *port == from => Verdict::Drop(NoRoute::SamePort),
            Some(Pinned::Here(port)) => Verdict::To(*port),
            Some(Pinned::Away(home)) => Verdict::Away(*home),
            None => self.route_outside(now, from, destination),
        }
    }

    /// Returns the route of a frame that is for no guest here.
    pub fn route_outside(&mut self, now: Nanos, from: PortIndex, destination: Mac) -> Verdict {
        let known = self.known(now, from, destination);
        if let Some(port) = known.filter(|port| *port != from) {
            return Verdict::To(port);
        }
        match self.uplink {
            uplink if known.is_some() || uplink == Some(from) => Verdict::Drop(NoRoute::SamePort),
            // The destination may be one for which the table had no room.
            Some(uplink) if self.is_full(uplink) => Verdict::To(uplink),
            Some(uplink) => Verdict::Unknown(uplink),
            None => Verdict::Drop(NoRoute::Unknown),
        }
    }

    /// Returns the port behind which the destination of a frame from `from` was learned.
    fn known(&mut self, now: Nanos, from: PortIndex, destination: Mac) -> Option<PortIndex> {
        let entry = *self.entries.get(&destination)?;
        self.used(now, from, entry)
    }

    /// Returns the port of a learned station to which a frame from `from` is sent, unless the station
    /// has aged.
    fn used(&mut self, now: Nanos, from: PortIndex, entry: Entry) -> Option<PortIndex> {
        let home = self.homes.get_mut(entry.home())?;
        let port = home.port?;
        let station = home.stations.get_mut(entry.place())?;
        if now.since(station.seen) >= Self::AGEING {
            return None;
        }
        if Some(port) == self.uplink && from != port {
            station.seen = now;
        }
        Some(port)
    }

    fn is_full(&self, port: PortIndex) -> bool {
        let home = self.ports.get(port.0);
        home.is_some_and(|home| self.homes[*home].stations.len() >= Self::ENTRIES_PER_PORT)
    }

    /// Returns the port at which a station was last seen, or that of the guest with this address,
    /// even if that guest is away.
    pub fn port_of(&self, mac: Mac) -> Option<PortIndex> {
        let pinned = self.guests.get(&mac).map(|pinned| pinned.port());
        pinned.or_else(|| self.learned_at(mac))
    }

    /// Returns the port by which a station is reached: the uplink, or none, for a guest that is
    /// away.
    pub fn reached_by(&self, mac: Mac) -> Option<PortIndex> {
        match self.guests.get(&mac) {
            Some(Pinned::Here(port)) => Some(*port),
            Some(Pinned::Away(_)) | None => self.learned_at(mac),
        }
    }

    /// Returns the port of the guest with this address, if the guest is away.
    pub fn away(&self, mac: Mac) -> Option<PortIndex> {
        match self.guests.get(&mac)? {
            Pinned::Away(port) => Some(*port),
            Pinned::Here(_) => None,
        }
    }

    fn learned_at(&self, mac: Mac) -> Option<PortIndex> {
        self.homes[self.entries.get(&mac)?.home()].port
    }

    /// Returns the port behind which strangers are.
    pub const fn uplink(&self) -> Option<PortIndex> {
        self.uplink
    }

    /// Returns the learned addresses with their ports.
    pub fn learned(&self) -> impl Iterator<Item = (Mac, PortIndex)> {
        let homes = self.homes.iter();
        let stations = homes.filter_map(|home| Some((home.port?, &home.stations)));
        stations
            .flat_map(|(port, stations)| stations.iter().map(move |station| (station.mac, port)))
    }

    /// Returns the number of learned addresses, without the guests' own.
    pub fn entries(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UPLINK: PortIndex = PortIndex(0);
    const A: PortIndex = PortIndex(1);
    const B: PortIndex = PortIndex(2);
    const MAC_A: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const MAC_B: Mac = Mac([2, 0, 0, 0, 0, 2]);
    const NOW: Nanos = Nanos::from_secs(1000);

    fn table() -> Forwarding {
        Forwarding::new(3, Some(UPLINK), [(MAC_A, A), (MAC_B, B)])
    }

    fn stranger(n: u16) -> Mac {
        let [high, low] = n.to_be_bytes();
        Mac([2, 1, 0, 0, high, low])
    }

    #[test]
    fn local_guests_reach_each_other_without_the_uplink() {
        assert_eq!(table().route(NOW, A, MAC_B), Verdict::To(B));
    }

    #[test]
    fn an_unknown_address_goes_to_the_uplink_alone_and_never_back() {
        let mut table = table();
        assert_eq!(table.route(NOW, A, stranger(1)), Verdict::Unknown(UPLINK));
        assert_eq!(
            table.route(NOW, UPLINK, stranger(1)),
            Verdict::Drop(NoRoute::SamePort)
        );
        let mut isolated = Forwarding::new(2, None, [(MAC_A, PortIndex(0)), (MAC_B, PortIndex(1))]);
        assert_eq!(
            isolated.route(NOW, PortIndex(0), stranger(1)),
            Verdict::Drop(NoRoute::Unknown)
        );
    }

    #[test]
    fn broadcast_and_multicast_flood_and_link_local_groups_do_not() {
        let mut table = table();
        assert_eq!(table.route(NOW, A, Mac::BROADCAST), Verdict::Flood);
        assert_eq!(
            table.route(NOW, UPLINK, Mac([0x33, 0x33, 0, 0, 0, 1])),
            Verdict::Flood
        );
        assert_eq!(
            table.route(NOW, A, Mac([0x01, 0x80, 0xc2, 0, 0, 0x0e])),
            Verdict::Drop(NoRoute::LinkLocal)
        );
        assert_eq!(
            table.route(NOW, A, Mac([0x01, 0x80, 0xc2, 0, 0, 0x10])),
            Verdict::Flood
        );
    }

    #[test]
    fn no_port_can_claim_a_guests_mac_address() {
        let mut table = table();
        assert_eq!(table.learn(NOW, UPLINK, MAC_A), Learned::ForbiddenMove);
        assert_eq!(table.learn(NOW, B, MAC_A), Learned::ForbiddenMove);
        assert_eq!(table.learn(NOW, A, MAC_A), Learned::Accepted);
        assert_eq!(table.route(NOW, B, MAC_A), Verdict::To(A));
        assert_eq!(table.entries(), 0);
    }

    #[test]
    fn a_station_is_learned_moves_and_is_forgotten_after_five_minutes() {
        let mut table = table();
        table.learn(NOW, A, stranger(1));
        assert_eq!(table.route(NOW, B, stranger(1)), Verdict::To(A));
        table.learn(NOW, B, stranger(1));
        assert_eq!(table.route(NOW, A, stranger(1)), Verdict::To(B));
        let last = NOW + Forwarding::AGEING - Nanos(1);
        assert_eq!(table.route(last, A, stranger(1)), Verdict::To(B));
        let late = NOW + Forwarding::AGEING;
        assert_eq!(table.route(late, A, stranger(1)), Verdict::Unknown(UPLINK));
    }

    #[test]
    fn a_router_that_never_sends_with_its_own_address_stays_known_while_it_is_used() {
        let mut table = table();
        table.learn(NOW, UPLINK, stranger(1));
        let mut now = NOW;
        for _ in 0..10 {
            now += Forwarding::AGEING - Nanos(1);
            assert_eq!(table.route(now, A, stranger(1)), Verdict::To(UPLINK));
        }
        // From outside alone it does not.
        now += Forwarding::AGEING;
        assert_eq!(table.route(now, A, stranger(1)), Verdict::Unknown(UPLINK));
    }

    #[test]
    fn a_full_station_table_treats_no_address_as_unknown() {
        let mut table = table();
        for n in 0..=1024 {
            table.learn(NOW, UPLINK, stranger(n));
        }
        assert_eq!(table.route(NOW, A, stranger(2000)), Verdict::To(UPLINK));
    }

    #[test]
    fn one_ports_stations_cannot_crowd_out_anothers_and_aged_ones_make_room() {
        let mut table = table();
        for n in 0..2000 {
            table.learn(NOW, UPLINK, stranger(n));
        }
        assert_eq!(table.entries(), Forwarding::ENTRIES_PER_PORT);
        assert_eq!(table.learn(NOW, A, stranger(3000)), Learned::Accepted);
        let late = NOW + Forwarding::AGEING;
        assert_eq!(table.learn(late, UPLINK, stranger(5000)), Learned::Full);
        // The other port's stays: it is in nobody's way.
        assert_eq!(table.entries(), 1);
        assert_eq!(
            table.route(late, B, stranger(3000)),
            Verdict::Unknown(UPLINK)
        );
        assert_eq!(table.learn(late, UPLINK, stranger(5000)), Learned::Accepted);
    }

    #[test]
    fn learned_stations_survive_a_change_of_ports() {
        let mut old = table();
        old.learn(NOW, A, stranger(1));
        old.learn(NOW, B, stranger(2));
        old.learn(NOW, UPLINK, stranger(3));
        // Guest A leaves, and stranger 3 becomes a guest.
        let guests = [(MAC_B, Pinned::Here(A)), (stranger(3), Pinned::Here(B))];
        let before = [Some(UPLINK), Some(B), None];
        old.reconfigure(
            before.into_iter(),
            Some(UPLINK),
            guests.into_iter().collect(),
        );
        old.forget(stranger(3));
        assert_eq!(old.route(NOW, UPLINK, stranger(2)), Verdict::To(A));
        assert_eq!(old.route(NOW, UPLINK, stranger(3)), Verdict::To(B));
        assert_eq!(old.route(NOW, A, stranger(1)), Verdict::Unknown(UPLINK));
        assert!(!old.forget_gone(0));
        assert!(old.forget_gone(1));
        assert_eq!(old.entries(), 1);
        assert_eq!(old.route(NOW, UPLINK, stranger(2)), Verdict::To(A));
    }

    #[test]
    fn a_port_that_comes_in_place_of_another_knows_nothing_of_its_stations() {
        let mut table = table();
        for round in 0..10 {
            table.learn(NOW, A, stranger(1));
            table.learn(NOW, B, stranger(2));
            let guests = [(MAC_A, Pinned::Here(A)), (MAC_B, Pinned::Here(B))];
            let before = [Some(UPLINK), None, Some(B)];
            table.reconfigure(
                before.into_iter(),
                Some(UPLINK),
                guests.into_iter().collect(),
            );
            assert_eq!(table.route(NOW, B, stranger(1)), Verdict::Unknown(UPLINK));
            assert_eq!(table.route(NOW, A, stranger(2)), Verdict::To(B));
            // Whoever is late with it forgets the right ones.
            if round % 3 == 2 {
                assert!(table.forget_gone(100));
            }
            table.check();
        }
        assert!(table.forget_gone(100));
        assert!(table.homes.len() <= 3 + 3);
    }

    impl Forwarding {
        /// Every entry and its home refer to each other.
        fn check(&self) {
            let stations = self.homes.iter().map(|home| home.stations.len());
            assert_eq!(stations.sum::<usize>(), self.entries.len());
            for (mac, entry) in &self.entries {
                assert_eq!(self.homes[entry.home()].stations[entry.place()].mac, *mac);
            }
            for (port, home) in self.ports.iter().enumerate() {
                assert_eq!(self.homes[*home].port, Some(PortIndex(port)));
            }
        }
    }

    #[test]
    fn the_address_of_a_guest_that_is_away_is_the_uplinks_and_no_other_guests() {
        let mut table = table();
        table.pin(MAC_A, Pinned::Away(A));
        assert_eq!(table.route(NOW, B, MAC_A), Verdict::Away(A));
        let outside = table.route_outside(NOW, B, MAC_A);
        assert_eq!(outside, Verdict::Unknown(UPLINK));
        let nowhere = Verdict::Drop(NoRoute::SamePort);
        assert_eq!(table.route_outside(NOW, UPLINK, MAC_A), nowhere);
        assert_eq!(table.learn(NOW, B, MAC_A), Learned::ForbiddenMove);
        assert_eq!(table.learn(NOW, UPLINK, MAC_A), Learned::Accepted);
        let outside = table.route_outside(NOW, B, MAC_A);
        assert_eq!(outside, Verdict::To(UPLINK));
        assert_eq!(table.route_outside(NOW, UPLINK, MAC_A), nowhere);
        assert_eq!(
            (table.port_of(MAC_A), table.away(MAC_A)),
            (Some(A), Some(A))
        );
        assert_eq!(table.reached_by(MAC_A), Some(UPLINK));
        // It sends before its card is seen to be in use.
        assert_eq!(table.learn(NOW, A, MAC_A), Learned::Accepted);
        table.pin(MAC_A, Pinned::Here(A));
        assert_eq!(table.route(NOW, UPLINK, MAC_A), Verdict::To(A));
        assert_eq!(table.learn(NOW, UPLINK, MAC_A), Learned::ForbiddenMove);
        assert_eq!((table.entries(), table.away(MAC_A)), (0, None));
    }

    proptest! {
        #[test]
        fn no_frame_goes_back_and_every_count_holds(
            events in prop::collection::vec((0usize..3, any::<[u8; 6]>(), any::<[u8; 6]>(), 0u64..400), 1..300)
        ) {
            let mut table = table();
            let mut now = NOW;
            for (port, source, destination, seconds) in events {
                // A small set of addresses, so that they meet again.
                let source = Mac([source[0] & 3, 0, 0, 0, 0, source[5] & 7]);
                let destination = Mac([destination[0] & 3, 0, 0, 0, 0, destination[5] & 7]);
                now += Nanos::from_secs(seconds);
                let learned = table.learn(now, PortIndex(port), source);
                if source == MAC_A && port != A.0 {
                    prop_assert_eq!(learned, Learned::ForbiddenMove);
                }
                if let Verdict::To(to) = table.route(now, PortIndex(port), destination) {
                    prop_assert_ne!(to, PortIndex(port));
                }
                if port != A.0 {
                    prop_assert_eq!(table.route(now, PortIndex(port), MAC_A), Verdict::To(A));
                }
                table.check();
            }
        }
    }
}
