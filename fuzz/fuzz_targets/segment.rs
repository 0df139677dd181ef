//! Segmentation of packets that are mostly right: every segment parses again, declares its length,
//! and together they carry the payload.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use tailbound_dataplane::packet::segment::on_the_wire;
use tailbound_dataplane::{Packet, Pool};
use tailbound_fuzz::packet;

#[derive(Debug, Arbitrary)]
struct Input {
    v6: bool,
    tagged: bool,
    ip_options: u8,
    tcp_options: u8,
    size: u16,
    flags: u8,
    payload: u16,
    damage: Vec<(u8, u8)>,
}

impl Input {
    /// A virtio header and a frame; where its IP and TCP headers end.
    fn frame(&self) -> ([u8; 10], Vec<u8>, usize) {
        let mut frame = vec![2; 12];
        if self.tagged {
            frame.extend([0x81, 0, 0xe0, 5]);
        }
        let options = usize::from(self.ip_options % 11) * 4;
        let tcp_header = 20 + usize::from(self.tcp_options % 11) * 4;
        let payload = usize::from(self.payload).min(65_000);
        let tcp_len = tcp_header + payload;
        if self.v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((tcp_len as u16).to_be_bytes());
            frame.extend([6, 64]);
            frame.extend([0xfd; 32]);
        } else {
            frame.extend([8, 0, 0x45 + (options / 4) as u8, 0]);
            frame.extend(((20 + options + tcp_len) as u16).to_be_bytes());
            frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            frame.resize(frame.len() + options, 1);
        }
        let transport = frame.len();
        frame.resize(transport + tcp_header, 1);
        frame[transport + 12] = (tcp_header as u8) << 2;
        frame[transport + 13] = self.flags;
        let end = frame.len();
        frame.extend((0..payload).map(|i| i as u8));
        for (at, value) in &self.damage {
            if let Some(byte) = frame.get_mut(usize::from(*at)) {
                *byte = *value;
            }
        }
        let mut virtio = [1, if self.v6 { 4 } else { 1 }, 0, 0, 0, 0, 0, 0, 16, 0];
        virtio[4..6].copy_from_slice(&self.size.to_le_bytes());
        virtio[6..8].copy_from_slice(&(transport as u16).to_le_bytes());
        (virtio, frame, end)
    }
}

fuzz_target!(|input: Input| {
    let pool = Pool::new();
    let (virtio, frame, end) = input.frame();
    let Ok(whole) = packet(&pool, &frame, Some(virtio), Some(1)) else {
        return;
    };
    let headers = whole.offload().gso.map(|gso| usize::from(gso.header_len));
    let segments = on_the_wire(whole);
    let Some(headers) = headers else {
        assert_eq!(segments.len(), 1);
        return;
    };
    assert!(headers == end || !input.damage.is_empty());
    let mut payload = Vec::new();
    for segment in &segments {
        let read = packet(&pool, segment, None, Some(1)).expect("a segment is a packet");
        assert_eq!(Packet::bytes(&read), segment);
        assert!(segment.len() - headers <= usize::from(input.size));
        payload.extend_from_slice(&segment[headers..]);
    }
    assert_eq!(payload, frame[headers..]);
});
