use super::*;
use smoltcp::wire::EthernetFrame;

#[test]
fn every_gap_that_a_frame_fits_into_is_filled_exactly_with_as_few_as_can_be() {
    for gap in SHORTEST.0..20_000 {
        let (mut left, mut count) = (gap, 0);
        while left > 0 {
            let wire = next(WireBytes(left)).0;
            assert!(
                (SHORTEST.0..=MAX_VOID.0).contains(&wire) && wire <= left,
                "{gap}: {wire} of {left}"
            );
            left -= wire;
            count += 1;
        }
        assert_eq!(count, gap.div_ceil(MAX_VOID.0), "{gap}");
    }
}

#[test]
fn a_shorter_gap_is_overrun_by_less_than_the_shortest_void() {
    for gap in 1..SHORTEST.0 {
        assert_eq!(next(WireBytes(gap)), SHORTEST);
    }
}

#[test]
fn a_void_is_addressed_to_its_own_sender() {
    let void = VoidFrame::new([2, 0, 0, 0, 0, 7]);
    for wire in [SHORTEST, WireBytes(500), MAX_VOID] {
        let bytes = void.bytes(wire);
        assert_eq!(on_the_wire(bytes.len()), wire);
        let frame = EthernetFrame::new_checked(bytes).expect("a frame");
        assert_eq!(frame.src_addr(), frame.dst_addr());
        assert!(frame.src_addr().is_unicast());
    }
    assert_eq!(void.bytes(WireBytes::ZERO).len(), 60);
    assert_eq!(void.bytes(WireBytes::MAX).len(), 1514);
}

#[test]
fn short_frames_take_the_shortest_slot() {
    assert_eq!(
        [on_the_wire(14), on_the_wire(60), on_the_wire(61)],
        [84, 84, 85].map(WireBytes)
    );
    assert_eq!(on_the_wire(1514), WireBytes(1538));
}
