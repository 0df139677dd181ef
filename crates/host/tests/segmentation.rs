//! Our segmentation against the kernel's, byte for byte.
//!
//! A packet with a GSO header is sent on a veth that segments nothing in
//! hardware (`gso_max_size 1000`), so the kernel cuts it in software before its
//! peer, where we read, sees it.

mod support;

use support::{Nic, command, sandboxed, until};
use tailbound_dataplane::{Frame, Packet, Pool};

const MAC_A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const MAC_B: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// A TCP packet that is yet to be cut.
#[derive(Debug, Clone, Copy)]
struct Case {
    ipv6: bool,
    payload: usize,
    size: u16,
    flags: u8,
    /// Bytes of TCP options: 0, or 12 of time stamps.
    options: usize,
    ecn: bool,
}

const FIN_PSH_ACK: u8 = 0x19;
const CWR_PSH_ACK: u8 = 0x98;
const ACK: u8 = 0x10;

impl Case {
    fn tcp_start(self) -> usize {
        if self.ipv6 { 54 } else { 34 }
    }

    fn headers(self) -> usize {
        self.tcp_start() + 20 + self.options
    }

    /// The frame and its virtio header; checksums are left to do.
    fn frame(self) -> ([u8; 10], Vec<u8>) {
        let tcp = 20 + self.options + self.payload;
        let mut frame = [&MAC_B[..], &MAC_A].concat();
        let mut pseudo: u32;
        if self.ipv6 {
            frame.extend([0x86, 0xdd, 0x60, 0x02, 0x34, 0x56]);
            frame.extend((tcp as u16).to_be_bytes());
            frame.extend([6, 64]);
            for last in [1, 2] {
                frame.extend([0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
            }
            pseudo = words(&frame[22..54]);
        } else {
            frame.extend([0x08, 0x00, 0x45, 0x02]);
            frame.extend(((20 + tcp) as u16).to_be_bytes());
            // An id that wraps on the way.
            frame.extend([0xff, 0xfe, 0x40, 0, 64, 6, 0, 0]);
            frame.extend([10, 77, 0, 1, 10, 77, 0, 2]);
            pseudo = words(&frame[26..34]);
            let sum = !fold(words(&frame[14..34]));
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        frame.extend([0x13, 0x88, 0x13, 0x89]);
        // A sequence number that wraps on the way.
        frame.extend([0xff, 0xff, 0xfc, 0x00, 0x12, 0x34, 0x56, 0x78]);
        frame.extend([((20 + self.options) as u8 / 4) << 4, self.flags, 1, 0]);
        pseudo += 6 + tcp as u32;
        frame.extend(fold(pseudo).to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(&[1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8][..self.options]);
        frame.extend((0..self.payload).map(|i| (i * 7 + i / 256) as u8));
        let gso_type = if self.ipv6 { 4 } else { 1 } | if self.ecn { 0x80 } else { 0 };
        let mut header = [0; 10];
        header[0] = 1;
        header[1] = gso_type;
        header[2..4].copy_from_slice(&(self.headers() as u16).to_le_bytes());
        header[4..6].copy_from_slice(&self.size.to_le_bytes());
        header[6..8].copy_from_slice(&(self.tcp_start() as u16).to_le_bytes());
        header[8..10].copy_from_slice(&16u16.to_le_bytes());
        (header, frame)
    }

    fn segments(self) -> usize {
        self.payload.div_ceil(usize::from(self.size))
    }
}

/// The sum of 16-bit words, not folded.
fn words(bytes: &[u8]) -> u32 {
    let pairs = bytes.chunks(2);
    pairs
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low)))
        .sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The frames that our own code makes of it.
fn ours(header: [u8; 10], frame: &[u8]) -> Vec<Vec<u8>> {
    let end = Packet::HEADROOM + frame.len();
    let mut buffer = Pool::new().buffer(end);
    buffer[Packet::HEADROOM..end].copy_from_slice(frame);
    let packet = Packet::new(buffer, Packet::HEADROOM, frame.len(), Some(header), None)
        .expect("well formed");
    let mut segments = Vec::new();
    packet.segment(|mut segment| {
        segment.complete_checksum();
        segments.push(segment.bytes().to_vec());
    });
    segments
}

/// Whether the TCP checksum of a segment is right, computed here.
fn tcp_checksum_holds(case: Case, segment: &[u8]) -> bool {
    let addresses = if case.ipv6 { 22..54 } else { 26..34 };
    let tcp = &segment[case.tcp_start()..];
    fold(words(&segment[addresses]) + 6 + tcp.len() as u32 + words(tcp)) == 0xffff
}

#[test]
fn segments_are_those_that_the_kernel_makes() {
    sandboxed("segments_are_those_that_the_kernel_makes", || {
        let link = ["link", "add", "v0", "type", "veth", "peer", "name", "v1"];
        command("ip", &link);
        command("ip", &["link", "set", "v0", "gso_max_size", "1000", "up"]);
        command("ip", &["link", "set", "v1", "up"]);
        let mut near = Nic::open("v0", None);
        let mut far = Nic::open("v1", None);
        let mut cases = Vec::new();
        for ipv6 in [false, true] {
            // With 12 bytes of options, 1428 fills 1500 bytes of IPv6.
            for (payload, size) in [
                (2856, 1428),
                (65_000, 1428),
                (65_000, 1400),
                (1429, 1428),
                (5001, 536),
            ] {
                for (flags, ecn) in [(FIN_PSH_ACK, false), (CWR_PSH_ACK, true), (ACK, false)] {
                    for options in [0, 12] {
                        cases.push(Case {
                            ipv6,
                            payload,
                            size,
                            flags,
                            options,
                            ecn,
                        });
                    }
                }
            }
        }
        for case in cases {
            let (header, frame) = case.frame();
            near.send_with(header, &frame);
            let mut kernel = Vec::new();
            until("the kernel's segments", || {
                for mut packet in far.receive() {
                    if packet.destination_mac() == MAC_B {
                        // A veth leaves the checksum to do; it is checked below.
                        packet.complete_checksum();
                        kernel.push(packet.bytes().to_vec());
                    }
                }
                kernel.len() >= case.segments()
            });
            let ours = ours(header, &frame);
            assert_eq!(kernel.len(), ours.len(), "{case:?}");
            for (i, (kernel, ours)) in kernel.iter().zip(&ours).enumerate() {
                assert!(
                    tcp_checksum_holds(case, kernel),
                    "{case:?}: the kernel's {i}"
                );
                assert!(tcp_checksum_holds(case, ours), "{case:?}: ours {i}");
                assert_eq!(kernel, ours, "{case:?}: segment {i}");
            }
        }
    });
}
