//! The IPv4 header of a frame, for assigning a class by flow.

use super::FlowKey;
use crate::checksum;
use tailbound_classes::{Class, Mark};

/// The bits of the DSCP in the TOS byte.
pub(crate) const DSCP: u8 = 0xfc;

/// The header of an IPv4 frame without a VLAN tag, and the frame's class.
#[derive(Debug)]
pub struct Ipv4Header<'p> {
    flow: FlowKey,
    len: usize,
    header: &'p mut [u8; 20],
    class: &'p mut Class,
}

impl<'p> Ipv4Header<'p> {
    #[inline]
    pub(crate) const fn new(
        flow: FlowKey,
        len: usize,
        header: &'p mut [u8; 20],
        class: &'p mut Class,
    ) -> Self {
        Self {
            flow,
            len,
            header,
            class,
        }
    }

    /// Same as [`crate::Frame::flow`].
    #[inline]
    pub const fn flow(&self) -> FlowKey {
        self.flow
    }

    /// Same as [`crate::Frame::len`]: the length of the frame, not of the header.
    #[inline]
    pub const fn frame_len(&self) -> usize {
        self.len
    }

    /// Same as [`crate::Frame::set_class`].
    #[inline]
    pub const fn set_class(self, class: Class, mark: Mark) {
        *self.class = class;
        replace_tos(self.header, DSCP, mark.dscp << 2);
    }
}

/// An IPv4 address as an IPv4-mapped IPv6 address.
#[inline]
pub(crate) const fn mapped(address: u32) -> u128 {
    0xffff_0000_0000 | address as u128
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
