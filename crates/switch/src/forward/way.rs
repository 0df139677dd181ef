//! Known ways: the result of all look-ups in the table for frames between two stations, which a
//! caller may keep.
//!
//! A way is valid for a [`Generation`], which ends with each change of the table that can end a way.
//! A new station ends none: only frames whose stations were known have a way. Times are not a
//! part of the way: a station that was learned is noted as seen, and ages, at its place in the table.

use super::{Entry, Forwarding, Pinned, PortIndex};
use crate::mac::Mac;
use tailbound_units::Nanos;

/// The number of the present routes. A known route, and the place of a station, are the same in the
/// same generation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Generation(u64);

impl Generation {
    /// Begins the next generation.
    pub(super) const fn end(&mut self) {
        self.0 += 1;
    }
}

/// The way of frames between two known stations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Way {
    /// The place of the source, if it is learned.
    source: Option<Entry>,
    /// The port of a guest here, or the place of a learned destination.
    to: Result<PortIndex, Entry>,
}

impl Forwarding {
    /// Returns the way of frames from `source` at a port, which was just learned, to `destination`;
    /// `None` unless both are known, and the way is the same for all frames of this generation.
    pub(crate) fn way(&self, from: PortIndex, source: Mac, destination: Mac) -> Option<Way> {
        let source = match self.guests.get(&source) {
            Some(pinned) if pinned.port() == from => None,
            _ => {
                let entry = self.entries.get(&source)?;
                (self.ports.get(from.0) == Some(&entry.home())).then_some(())?;
                Some(*entry)
            }
        };
        let to = match self.guests.get(&destination) {
            Some(Pinned::Here(port)) => Ok(*port),
            Some(Pinned::Away(_)) => return None,
            None => Err(*self.entries.get(&destination)?),
        };
        (to != Ok(from) && !destination.is_multicast()).then_some(Way { source, to })
    }

    /// Begins another generation, so that no way is known.
    #[cfg(test)]
    pub(crate) const fn end_generation(&mut self) {
        self.generation.end();
    }

    /// Learns the source of a frame again that takes a known way: as [`Self::learn`], which accepts
    /// it.
    pub(crate) fn learn_again(&mut self, now: Nanos, way: Way) {
        if let Some(entry) = way.source
            && let Some(home) = self.homes.get_mut(entry.home())
            && let Some(station) = home.stations.get_mut(entry.place())
        {
            station.seen = now;
        }
    }

    /// Returns the port of a known way's destination, as [`Self::port_of`] does.
    pub(crate) fn leads_to(&self, way: Way) -> Option<PortIndex> {
        match way.to {
            Ok(port) => Some(port),
            Err(entry) => self.homes.get(entry.home())?.port,
        }
    }

    /// Returns the port that a known way leads to, as [`Self::route`] does; `None` if the
    /// destination has aged.
    pub(crate) fn follow(&mut self, now: Nanos, from: PortIndex, way: Way) -> Option<PortIndex> {
        match way.to {
            Ok(port) => Some(port),
            Err(entry) => self.used(now, from, entry).filter(|port| *port != from),
        }
    }
}
