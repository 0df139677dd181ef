//! Frames of guests.

use std::net::Ipv4Addr;
use tailbound_dataplane::testing::frames::{self, Segment, ipv4};

pub(crate) type Mac = [u8; 6];

/// A frame, with its virtio header.
pub(crate) type VirtioFrame = (Vec<u8>, Option<[u8; 10]>);

pub(crate) const VICTIM: Mac = [2, 0, 0, 0, 0, 1];
pub(crate) const NEIGHBOUR: Mac = [2, 0, 0, 0, 0, 2];
pub(crate) const GATEWAY: Mac = [2, 9, 9, 9, 9, 9];
pub(crate) const VICTIM_IP: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
pub(crate) const NEIGHBOUR_IP: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
pub(crate) const FAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// Payload of a full frame.
pub(crate) const FULL: usize = 1472;

/// Behaviour of a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Neighbour {
    /// Conforms, in one connection: a few of its full frames are queued at each moment,
    Conforming,
    /// or a few of the shortest.
    ConformingSmall,
    /// Floods with full frames,
    Flood,
    /// with the shortest ones,
    Tiny,
    /// with frames that claim the highest class by DSCP and, every other one, by an
    /// 802.1Q tag,
    Tags,
    /// with a connection a frame,
    Flows,
    /// with a destination a frame,
    Addresses,
    /// with frames to unknown stations,
    Unknown,
    /// or with packets to be segmented into 500 frames each.
    Segments,
}

impl Neighbour {
    /// All attacks.
    pub(crate) const ALL: [Self; 7] = [
        Self::Flood,
        Self::Tiny,
        Self::Tags,
        Self::Flows,
        Self::Addresses,
        Self::Unknown,
        Self::Segments,
    ];

    /// Returns the reference: a neighbour that conforms, with frames of the same length.
    pub(crate) const fn conforming(self) -> Self {
        match self {
            Self::Conforming | Self::Flood | Self::Tags => Self::Conforming,
            _ => Self::ConformingSmall,
        }
    }

    /// Returns the frame of this number, with its virtio header.
    pub(crate) fn frame(self, n: u64) -> VirtioFrame {
        let small = |to: Ipv4Addr, port: u16| {
            let udp = udp(port, &[0; 4]);
            ethernet(GATEWAY, NEIGHBOUR, &ipv4(NEIGHBOUR_IP, to, 17, &udp))
        };
        let full = || {
            let udp = udp(9, &[0; FULL]);
            ethernet(GATEWAY, NEIGHBOUR, &ipv4(NEIGHBOUR_IP, FAR, 17, &udp))
        };
        let frame = match self {
            Self::Conforming | Self::Flood => full(),
            Self::ConformingSmall | Self::Tiny => small(FAR, 9),
            Self::Tags => {
                let mut frame = full();
                frame[15] = 46 << 2;
                if n.is_multiple_of(2) {
                    // PCP 7, VLAN 0.
                    frame.splice(12..12, [0x81, 0x00, 0xe0, 0x00]);
                }
                frame
            }
            Self::Flows => small(FAR, n as u16),
            Self::Addresses => {
                let [_, .., a, b] = (n as u32).to_be_bytes();
                small(Ipv4Addr::new(198, 18, a, b), 9)
            }
            Self::Unknown => {
                let mut frame = small(FAR, 9);
                let station = (n as u32).wrapping_mul(2_654_435_761).to_be_bytes();
                frame[..2].copy_from_slice(&[2, 8]);
                frame[2..6].copy_from_slice(&station);
                frame
            }
            Self::Segments => return segments(),
        };
        (frame, None)
    }
}

/// Makes a TCP packet to be segmented into 500 segments of one byte.
fn segments() -> VirtioFrame {
    let tcp = Segment {
        flags: 0x10,
        payload: vec![0; 500],
        ..Segment::default()
    };
    let frame = ethernet(
        GATEWAY,
        NEIGHBOUR,
        &ipv4(NEIGHBOUR_IP, FAR, 6, &tcp.bytes()),
    );
    let mut virtio = [1, 1, 54, 0, 1, 0, 34, 0, 16, 0];
    virtio[2..4].copy_from_slice(&54u16.to_le_bytes());
    (frame, Some(virtio))
}

/// The victim's full frame number `n`.
pub(crate) fn victims(n: u32) -> Vec<u8> {
    let payload = [&n.to_be_bytes()[..], &[0; FULL - 4]].concat();
    let udp = udp(9, &payload);
    ethernet(GATEWAY, VICTIM, &ipv4(VICTIM_IP, FAR, 17, &udp))
}

/// The number in a frame of [`victims`], with or without a tag; `None` for another's.
pub(crate) fn number(frame: &[u8]) -> Option<u32> {
    if frame[6..12] != VICTIM {
        return None;
    }
    let tag = if frame[12..14] == [0x81, 0x00] { 4 } else { 0 };
    let payload = tag + 14 + 20 + 8;
    let number = frame[payload..].first_chunk()?;
    Some(u32::from_be_bytes(*number))
}

/// A frame by which the switch learns where the gateway is.
pub(crate) fn greeting() -> Vec<u8> {
    let udp = udp(9, &[0; 4]);
    ethernet(VICTIM, GATEWAY, &ipv4(FAR, VICTIM_IP, 17, &udp))
}

fn ethernet(to: Mac, from: Mac, packet: &[u8]) -> Vec<u8> {
    frames::ethernet(to, from, 0x0800, packet)
}

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    frames::udp(7, port, payload)
}
