//! A virtio header and a frame from a hostile guest: an admitted packet can be tagged, cut,
//! finished and written out, and the packet that the spoofing check has seen is the one that goes
//! out.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tailbound_dataplane::{Class, Classes, Frame, Pool, VIRTIO_HEADER};
use tailbound_fuzz::packet;

fuzz_target!(|data: &[u8]| {
    let Some((virtio, frame)) = data.split_first_chunk::<VIRTIO_HEADER>() else {
        return;
    };
    let pool = Pool::new();
    for guest in [None, Some(1)] {
        let Ok(mut packet) = packet(&pool, frame, Some(*virtio), guest) else {
            continue;
        };
        let seen = (packet.source_mac(), packet.ip_source(), packet.claim());
        let len = packet.len();
        packet.set_class(
            Class::Guaranteed,
            Classes::default().mark(Class::Guaranteed),
        );
        packet.set_class(Class::Lowest, Classes::default().mark(Class::Lowest));
        packet.mark_congestion();
        let mut whole = packet.duplicate();
        whole.complete_checksum();
        assert_eq!(seen, (whole.source_mac(), whole.ip_source(), whole.claim()));
        assert_eq!(whole.with_virtio_header().len(), VIRTIO_HEADER + len);
        let expected = packet.segments();
        let mut segments = 0;
        packet.segment(|mut segment| {
            segments += 1;
            segment.complete_checksum();
            assert_eq!(seen.0, segment.source_mac());
            assert_eq!(seen.1, segment.ip_source());
            assert!(segment.len() <= len);
        });
        assert_eq!(segments, expected);
    }
});
