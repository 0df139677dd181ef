//! An IPv4 header, as far as a class is given by it.

use super::{FlowKey, GuestId};
use crate::checksum;
use tailbound_classes::{Class, Mark};

/// The bits of the DSCP in the TOS byte.
pub(crate) const DSCP: u8 = 0xfc;

/// The header of an IPv4 frame without a VLAN tag, and the frame's class.
#[derive(Debug)]
pub struct Ipv4Header<'p> {
    source: GuestId,
    len: usize,
    header: &'p mut [u8; 20],
    class: &'p mut Class,
}

impl<'p> Ipv4Header<'p> {
    #[inline]
    pub(crate) const fn new(
        source: GuestId,
        len: usize,
        header: &'p mut [u8; 20],
        class: &'p mut Class,
    ) -> Self {
        Self {
            source,
            len,
            header,
            class,
        }
    }

    /// As [`crate::Frame::flow`].
    #[inline]
    pub fn flow(&self) -> FlowKey {
        FlowKey {
            source: self.source,
            destination: destination(self.header),
        }
    }

    /// As [`crate::Frame::len`]: the frame's bytes, not the header's.
    #[inline]
    pub const fn frame_len(&self) -> usize {
        self.len
    }

    /// As [`crate::Frame::set_class`].
    #[inline]
    pub const fn set_class(self, class: Class, mark: Mark) {
        *self.class = class;
        replace_tos(self.header, DSCP, mark.dscp << 2);
    }
}

/// The destination in an IPv4 header, as an IPv4-mapped IPv6 address.
#[inline]
pub(crate) fn destination(header: &[u8; 20]) -> u128 {
    let [.., a, b, c, d] = *header;
    0xffff_0000_0000 | u128::from(u32::from_be_bytes([a, b, c, d]))
}

/// Replaces the bits of `mask` in an IPv4 header's TOS byte.
#[inline]
pub(crate) const fn replace_tos(header: &mut [u8; 20], mask: u8, value: u8) {
    let (old, new) = (header[1], (header[1] & !mask) | value);
    if old != new {
        // The other byte of the word stays, so it cancels out.
        let checksum = u16::from_be_bytes([header[10], header[11]]);
        let updated = checksum::update(checksum, old as u16, new as u16);
        header[1] = new;
        [header[10], header[11]] = updated.to_be_bytes();
    }
}
