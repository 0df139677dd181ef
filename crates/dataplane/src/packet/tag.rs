//! Priority tags (IEEE 802.1Q, 6.9): VLAN tags of VLAN 0, which carry only a frame's priority.

use super::facts::Destination;
use super::wire::{ETHERNET, TAG, be16, is_tag};
use super::{Packet, VIRTIO_HEADER};
use tailbound_classes::Mark;

/// Length of the destination and source addresses, in bytes.
const ADDRESSES: usize = 12;

/// The TPID of 802.1Q; a provider's tag (802.1ad) has another.
const TPID: [u8; 2] = [0x81, 0x00];

impl Packet {
    /// Length of a tag in bytes.
    pub const TAG: usize = TAG;

    /// Inserts a priority tag with `mark`'s PCP behind the frame's addresses, unless it has a tag.
    /// The offsets of the remaining work move along; segments get the tag, too.
    pub(super) fn insert_priority_tag(&mut self, mark: Mark) {
        if is_tag(be16(self.bytes(), ADDRESSES)) {
            return;
        }
        if usize::from(self.facts().start) < VIRTIO_HEADER + TAG {
            *self = self.duplicate();
        }
        let facts = self.facts_mut();
        facts.start -= TAG as u16;
        facts.len += TAG as u32;
        facts.headers.network += TAG as u8;
        if facts.destination == Destination::PlainIpv4 {
            facts.destination = Destination::Ip;
        }
        if facts.headers.transport != 0 {
            facts.headers.transport += TAG as u16;
        }
        if let Some(checksum) = &mut facts.offload.checksum {
            checksum.start += TAG as u16;
        }
        if let Some(gso) = &mut facts.offload.gso {
            gso.header_len += TAG as u16;
        }
        let bytes = self.bytes_mut();
        bytes.copy_within(TAG..TAG + ADDRESSES, 0);
        bytes[ADDRESSES..ETHERNET].copy_from_slice(&TPID);
        bytes[ETHERNET..ETHERNET + 2].copy_from_slice(&[mark.pcp << 5, 0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Frame;
    use crate::testing::packet;
    use crate::testing::tcp::Tcp;
    use proptest::prelude::*;
    use tailbound_classes::{Class, Classes, Fabric};

    proptest! {
        /// The bytes, the virtio header and every segment are those of a packet
        /// that came with the tag.
        #[test]
        fn a_tagged_packet_is_as_if_its_guest_had_tagged_it(
            v6: bool, first: bool, ip_options in 0usize..3, payload in 1usize..5000,
            gso in prop_oneof![Just(0u16), 500u16..1448],
        ) {
            let class = if first { Class::Small } else { Class::Lowest };
            let mark = Classes::of(Fabric::SmallFlowsFirst).mark(class);
            let plain = Tcp { v6, ip_options, payload, gso, ..Tcp::default() };
            let tci = if first { 5 << 13 } else { 0 };
            let tagged = Tcp { tags: vec![(0x8100, tci)], ..plain.clone() };

            let mut ours = packet(&plain.frame(), Some(plain.virtio())).expect("well formed");
            ours.set_class(class, mark);
            ours.add_priority_tag(mark);
            let mut theirs = packet(&tagged.frame(), Some(tagged.virtio())).expect("well formed");
            theirs.set_class(class, mark);
            prop_assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
            prop_assert_eq!(ours.with_virtio_header(), theirs.with_virtio_header());
            prop_assert_eq!(ours.flow(), theirs.flow());

            ours.add_priority_tag(mark);
            prop_assert_eq!(ours.len(), theirs.len(), "once is enough");
            let (mut cut, mut expected) = (Vec::new(), Vec::new());
            ours.segment(|mut segment| {
                segment.complete_checksum();
                cut.push(segment.bytes().to_vec());
            });
            theirs.segment(|mut segment| {
                segment.complete_checksum();
                expected.push(segment.bytes().to_vec());
            });
            prop_assert_eq!(cut, expected);
        }
    }

    #[test]
    fn non_ip_frames_without_headroom_get_a_priority_tag() {
        let mut arp = vec![0xff; 12];
        arp.extend([0x08, 0x06, 0, 1, 8, 0, 6, 4]);
        arp.resize(60, 7);
        let mut buffer = crate::Pool::new().buffer(200);
        buffer[VIRTIO_HEADER..VIRTIO_HEADER + 60].copy_from_slice(&arp);
        let mut packet = Packet::new(buffer, VIRTIO_HEADER, 60, None, None).expect("well formed");
        packet.add_priority_tag(Classes::default().mark(Class::Lowest));
        let expected = [&arp[..12], &[0x81, 0, 0, 0], &arp[12..]].concat();
        assert_eq!(packet.bytes(), expected);
        assert_eq!(
            packet.with_virtio_header()[..VIRTIO_HEADER],
            [0; VIRTIO_HEADER]
        );
    }
}
