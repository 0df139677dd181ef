//! Frames like those before them: the decision for a frame is known for the next one with the same addresses.
//!
//! The forwarding table keeps a few decisions for each port, found by a frame's stations and, behind a filter,
//! by its source address: the frame passes, and its way through the table. A decision is valid while the table
//! is of the same generation; a reload, which may change filters, begins another. Frames that claim anything are
//! decided one by one, as are those from addresses that a guest chose: the address book notes their use.

use super::Switch;
use crate::filter::SpoofFilter;
use crate::forward::{Addresses, Forwarding, Way};
use crate::index::PortIndex;
use crate::mac::Mac;
use tailbound_dataplane::Packet;
use tailbound_units::Nanos;

/// The rules for frames from a port.
struct Rules<'s> {
    from: PortIndex,
    /// The filter of the port's guest, if it has one.
    filter: Option<&'s SpoofFilter>,
    forwarding: &'s Forwarding,
}

impl<'s> Rules<'s> {
    #[inline]
    fn of(switch: &'s Switch, from: PortIndex) -> Self {
        let guest = switch.table.guest(from);
        Self {
            from,
            filter: guest.and_then(|guest| guest.checks.filter.as_ref()),
            forwarding: &switch.forwarding,
        }
    }

    /// Returns the addresses that a decision depends on; `None` for frames that are decided one by one.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for every frame")]
    fn addresses(&self, packet: &Packet) -> Option<Addresses> {
        let plain = packet.as_plain()?;
        let (destination, source) = plain.stations();
        Some(Addresses {
            destination,
            source,
            ip: if self.checks.filter.is_some() {
                plain.ip_source()
            } else {
                0
            },
        })
    }

    /// Decides for an admitted frame: its way, if that is the same for all frames of its addresses.
    fn decide(&self, packet: &Packet) -> Option<Way> {
        // The filter reads the headers behind an unspecified source, so such frames are decided one by one.
        let is_own = |filter: &SpoofFilter| {
            let source = packet.ip_source();
            source.is_some_and(|source| !source.is_unspecified() && filter.owns(source))
        };
        if !self.checks.filter.is_none_or(is_own) {
            return None;
        }
        let (source, destination) = (Mac(packet.source_mac()), Mac(packet.destination_mac()));
        self.forwarding.way(self.from, source, destination)
    }
}

/// Returns the way of a frame, if it is known that the frame passes, and notes its sender as
/// [`Switch::admit`] does.
#[inline]
pub(super) fn known_way(
    switch: &mut Switch,
    now: Nanos,
    from: PortIndex,
    packet: &Packet,
) -> Option<Way> {
    let rules = Rules::of(switch, from);
    let addresses = rules.addresses(packet)?;
    let way = rules.forwarding.kept(from, addresses)?;
    debug_assert_eq!(Some(way), rules.decide(packet), "for {addresses:?}");
    switch.forwarding.learn_again(now, way);
    Some(way)
}

/// Keeps the decision for a frame that [`Switch::admit`] accepted.
pub(super) fn keep_way(switch: &mut Switch, from: PortIndex, packet: &Packet) {
    let rules = Rules::of(switch, from);
    let decided = rules.addresses(packet).zip(rules.decide(packet));
    if let Some((addresses, way)) = decided {
        switch.forwarding.keep(from, addresses, way);
    }
}
