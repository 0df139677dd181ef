use crate::packet::Packet;
use crate::snoop::{Bare, Direction, Flags, FlowId, Link, Plain, Seq, TcpFrame, Timestamps};
use crate::{Frame, GuestId, HashKeys, Pool, TcpMaker};
use proptest::prelude::*;

fn maker() -> TcpMaker {
    TcpMaker {
        pool: Pool::with_keys(HashKeys::FIXED),
        guest: GuestId::first(2),
    }
}

prop_compose! {
    fn bare()(
        to_peer in any::<bool>(),
        v6 in prop::bool::weighted(0.1),
        addresses in any::<[u32; 2]>(),
        ports in any::<u32>(),
        hash in any::<u32>(),
        stations in any::<[u8; 12]>(),
        tag in prop::option::weighted(0.1, 0x8100_0001_u32..0x8100_0fff),
        dscp in 0_u32..64,
        hops in any::<u8>(),
        numbers in any::<[u32; 2]>(),
        window in any::<u16>(),
        flags in prop_oneof![Just(0x10_u16), Just(0x18), Just(0x110), Just(0x14)],
        stamps in prop::option::weighted(0.9, any::<[u32; 2]>()),
    ) -> Bare {
        let mut stations = stations;
        // Neither is a group's.
        (stations[0], stations[6]) = (2, 2);
        let [guest, peer] = addresses.map(|address| [0, u64::from(address)]);
        Bare {
            direction: if to_peer { Direction::ToPeer } else { Direction::ToGuest },
            flow: FlowId { guest, peer, ports, v6 },
            hash,
            link: Link {
                stations,
                tag: tag.unwrap_or(0),
                top: if v6 { 0x6000_0000 | dscp << 22 } else { 0x4500_0000 | dscp << 18 },
                hops,
            },
            seq: Seq(numbers[0]),
            ack: Seq(numbers[1]),
            flags: Flags(flags),
            window,
            timestamps: stamps.map(|[value, echo]| Timestamps { value, echo }),
        }
    }
}

/// A frame as it comes in, with some of its bytes changed.
fn incoming(maker: &TcpMaker, bare: &Bare, payload: usize, changes: &[(u8, u8)]) -> Option<Packet> {
    let mut bytes = Packet::bare(maker, bare).bytes().to_vec();
    bytes.resize(bytes.len() + payload, 7);
    let at = if bare.link.tag == 0 { 14 } else { 18 };
    let (field, before) = if bare.flow.v6 {
        (at + 4, at + 40)
    } else {
        (at + 2, at)
    };
    let len = (bytes.len() - before) as u16;
    bytes[field..field + 2].copy_from_slice(&len.to_be_bytes());
    for (at, value) in changes {
        if let Some(byte) = bytes.get_mut(usize::from(*at)) {
            *byte = *value;
        }
    }
    let mut buffer = maker.pool.buffer(Packet::HEADROOM + bytes.len());
    buffer[Packet::HEADROOM..Packet::HEADROOM + bytes.len()].copy_from_slice(&bytes);
    let source = (bare.direction == Direction::ToPeer).then_some(maker.guest);
    Packet::new(buffer, Packet::HEADROOM, bytes.len(), None, source).ok()
}

proptest! {
    #[test]
    fn the_fixed_offset_writer_agrees_with_the_general_writer(bare in bare()) {
        let maker = maker();
        let mut frames = [Packet::bare(&maker, &bare), Packet::write_any(&maker, bare)];
        for frame in &mut frames {
            frame.complete_checksum();
            prop_assert!(frame.is_intact());
        }
        let [one, other] = frames;
        prop_assert_eq!(one.bytes(), other.bytes());
        prop_assert_eq!(format!("{one:?}"), format!("{other:?}"));
        prop_assert_eq!((one.flow(), one.connection()), (other.flow(), other.connection()));
    }

    #[test]
    fn the_fixed_offset_reader_agrees_with_the_general_reader(
        bare in bare(),
        payload in 0_usize..200,
        changes in prop::collection::vec((12_u8..70, any::<u8>()), 0..3),
    ) {
        let maker = maker();
        let Some(frame) = incoming(&maker, &bare, payload, &changes) else {
            return Ok(());
        };
        let found = frame.sight(bare.direction);
        let found = found.and_then(|sight| Plain::of(&sight, frame.link()));
        let read = frame.plain(bare.direction);
        prop_assert!(read.is_none() || read == found, "{read:?}, {found:?}");
        let is_usual = !bare.flow.v6 && bare.link.tag == 0 && bare.flags.only(Flags(!8)) == Flags::ACK;
        if changes.is_empty() {
            prop_assert_eq!(read.is_some(), is_usual);
        }
    }

    #[test]
    fn the_fixed_offset_checksum_agrees_with_the_general_check(
        bare in bare(),
        payload in 0_usize..2000,
        change in prop::option::of((26_usize..66, 1_u8..)),
    ) {
        let maker = maker();
        let frame = incoming(&maker, &bare, payload, &[]);
        let mut frame = frame.expect("well formed");
        frame.leave_checksum();
        frame.complete_checksum();
        let mut is_damaged = false;
        if let Some((at, bits)) = change
            && let Some(byte) = frame.bytes_mut().get_mut(at)
        {
            *byte ^= bits;
            is_damaged = true;
        }
        if let Some(plain) = frame.plain(bare.direction) {
            prop_assert_eq!(frame.is_plain_intact(&plain), frame.is_intact());
            prop_assert_eq!(frame.is_intact(), !is_damaged);
        }
    }
}
