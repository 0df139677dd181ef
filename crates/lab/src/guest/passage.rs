//! The passage of a message's datagrams between two points of their path, for example through a
//! port of the switch or from ring to ring.

use super::message::Header;
use super::packet::{on_wire, read};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use tailbound_units::{Bytes, Nanos};

/// All datagrams, by their sender, the number of their message, and their index in it.
pub(crate) type Passages = BTreeMap<(Ipv4Addr, u32, u32), Passage>;

/// One datagram.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Passage {
    /// Scheduled start of its message.
    pub(crate) start: Nanos,
    /// Number of datagrams of its message.
    pub(crate) of: u32,
    /// Its bytes on the wire.
    pub(crate) wire: Bytes,
    /// Time at the first point.
    pub(crate) entered: Option<Nanos>,
    /// Time at the second point.
    pub(crate) left: Option<Nanos>,
}

/// Returns the datagram in a frame whose tag the kernel has removed; `None` if the frame is no part
/// of a message.
pub(crate) fn passage_of<'p>(frame: &[u8], all: &'p mut Passages) -> Option<&'p mut Passage> {
    let seen = read(frame)?;
    let header = Header::read(seen.data)?;
    let key = (seen.from, header.message, header.place);
    let passage = all.entry(key).or_default();
    passage.start = header.start;
    passage.of = header.of;
    passage.wire = Bytes(on_wire(seen.len));
    Some(passage)
}
