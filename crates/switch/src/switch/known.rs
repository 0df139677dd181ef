//! Frames like those before them: the decision for a frame is known for the next one with the same addresses.
//!
//! The forwarding table keeps a few decisions for each port, found by a frame's stations and, behind a filter,
//! by its source address: the frame passes, and its way through the table. A decision is valid while the table
//! is of the same generation; a reload, which may change filters, begins another. Frames that claim anything are
//! decided one by one, as are those from addresses that a guest chose: the address book notes their use.

use super::Parts;
use super::table::Source;
use crate::filter::SpoofFilter;
use crate::forward::{Addresses, Way};
use crate::index::PortIndex;
use crate::mac::Mac;
use tailbound_dataplane::Packet;
use tailbound_units::Nanos;

/// Returns the addresses that a decision for a frame depends on; `None` for frames that are decided
/// one by one.
#[inline(always)]
#[expect(clippy::inline_always, reason = "once for every frame")]
fn addresses(source: Source, packet: &Packet) -> Option<Addresses> {
    let plain = packet.as_plain()?;
    let (destination, station) = plain.stations();
    Some(Addresses {
        destination,
        source: station,
        ip: if source.is_filtered {
            plain.ip_source()
        } else {
            0
        },
    })
}

/// Decides for an admitted frame: its way, if that is the same for all frames of its addresses.
fn decide(parts: &Parts, from: PortIndex, packet: &Packet) -> Option<Way> {
    // The filter reads the headers behind an unspecified source, so such frames are decided one by one.
    let is_own = |filter: &SpoofFilter| {
        let source = packet.ip_source();
        source.is_some_and(|source| !source.is_unspecified() && filter.owns(source))
    };
    let guest = parts.table.guest(from);
    let filter = guest.and_then(|guest| guest.checks.filter.as_ref());
    if !filter.is_none_or(is_own) {
        return None;
    }
    let (source, destination) = (Mac(packet.source_mac()), Mac(packet.destination_mac()));
    parts.forwarding.way(from, source, destination)
}

/// Returns the way of a frame, if it is known that the frame passes, and notes its sender as
/// [`Parts::admit`] does.
#[inline(always)]
#[expect(clippy::inline_always, reason = "once for every frame")]
pub(super) fn known_way(
    parts: &mut Parts,
    now: Nanos,
    source: Source,
    packet: &Packet,
) -> Option<Way> {
    let addresses = addresses(source, packet)?;
    let way = parts.forwarding.kept(source.port, addresses)?;
    debug_assert_eq!(
        Some(way),
        decide(parts, source.port, packet),
        "for {addresses:?}"
    );
    parts.forwarding.learn_again(now, way);
    Some(way)
}

/// Keeps the decision for a frame that [`Parts::admit`] accepted.
pub(super) fn keep_way(parts: &mut Parts, source: Source, packet: &Packet) {
    let decided = addresses(source, packet).zip(decide(parts, source.port, packet));
    if let Some((addresses, way)) = decided {
        parts.forwarding.keep(source.port, addresses, way);
    }
}
