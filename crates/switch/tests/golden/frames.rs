//! Frames of guests and of the outside, in captures that are made here.

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, Endianness, TsResolution};
use std::fs::File;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;
use tailbound_dataplane::testing::frames::{self, Ipv4, Segment, ethernet};

/// A sender or receiver.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Station {
    pub(crate) mac: [u8; 6],
    pub(crate) ip: Ipv4Addr,
}

const fn station(mac: [u8; 6], last: u8) -> Station {
    Station {
        mac,
        ip: Ipv4Addr::new(10, 77, 0, last),
    }
}

pub(crate) const A: Station = station([2, 0, 0, 0, 0, 1], 1);
pub(crate) const B: Station = station([2, 0, 0, 0, 0, 2], 2);
pub(crate) const C: Station = station([2, 0, 0, 0, 0, 3], 3);
/// Stations behind the uplink: each has its own IP address, and all have one router's MAC.
pub(crate) const FAR: Station = far(1);
pub(crate) const BROADCAST: [u8; 6] = [0xff; 6];

/// The `n`th station behind the uplink.
pub(crate) const fn far(n: u8) -> Station {
    Station {
        mac: [2, 9, 9, 9, 9, 9],
        ip: Ipv4Addr::new(192, 0, 2, n),
    }
}

/// Makes a datagram of `len` bytes of payload, with a unique number.
pub(crate) fn udp(from: Station, to: Station, n: u32, len: usize) -> Vec<u8> {
    datagram(from, to, n, len, 0)
}

/// Makes such a datagram with a given TOS byte.
pub(crate) fn datagram(from: Station, to: Station, n: u32, len: usize, tos: u8) -> Vec<u8> {
    let mut payload = n.to_be_bytes().to_vec();
    payload.resize(len, n as u8);
    between(from, to, 17, tos, &frames::udp(7, 9, &payload))
}

/// Makes a frame of an IPv4 packet.
fn between(from: Station, to: Station, protocol: u8, tos: u8, payload: &[u8]) -> Vec<u8> {
    let header = Ipv4 {
        tos,
        ..Ipv4::new(from.ip, to.ip, protocol)
    };
    ethernet(to.mac, from.mac, 0x0800, &header.packet(payload))
}

/// Makes the `n`th packet of a TCP connection that takes marks (ECT(0)), of `segments` full
/// segments. With more than one it is longer than a frame, and the port describes its segmentation
/// ([`super::bench::virtio`]).
pub(crate) fn tcp(from: Station, to: Station, n: u32, segments: usize) -> Vec<u8> {
    let segment = Segment {
        ports: [40_000, 80],
        seq: n * (segments * SEGMENT) as u32,
        ack: 1,
        flags: 0x10,
        window: 512,
        options: Vec::new(),
        payload: vec![n as u8; segments * SEGMENT],
    };
    between(from, to, 6, 2, &segment.bytes())
}

/// Bytes of payload in a full segment of [`tcp`].
pub(crate) const SEGMENT: usize = 1448;

/// Makes an ARP request.
pub(crate) fn arp(from: Station, target: Station) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, 1];
    packet.extend(from.mac);
    packet.extend(from.ip.octets());
    packet.extend([0; 6]);
    packet.extend(target.ip.octets());
    ethernet(BROADCAST, from.mac, 0x0806, &packet)
}

/// Inserts a VLAN tag into a frame.
pub(crate) fn tagged(frame: &[u8], tci: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0], &tci.to_be_bytes(), &frame[12..]].concat()
}

/// Replaces the destination of a frame.
pub(crate) fn to(mac: [u8; 6], frame: &[u8]) -> Vec<u8> {
    [&mac[..], &frame[6..]].concat()
}

/// The received frames of one port, with their times.
#[derive(Debug, Default)]
pub(crate) struct Capture(Vec<(u64, Vec<u8>)>);

impl Capture {
    /// Adds a frame at this time after the start, in microseconds.
    pub(crate) fn at(&mut self, micros: u64, frame: Vec<u8>) {
        self.0.push((micros * 1000, frame));
    }

    /// Adds frames at regular times in a range, in microseconds.
    pub(crate) fn every(
        &mut self,
        micros: std::ops::Range<u64>,
        step: u64,
        mut frame: impl FnMut(u32) -> Vec<u8>,
    ) {
        let times = micros.step_by(step as usize);
        for (n, time) in (0..).zip(times) {
            self.at(time, frame(n));
        }
    }

    /// Writes the capture. The first frame is at zero, so that all captures begin at the same time.
    pub(crate) fn write(mut self, path: &Path) {
        self.0.sort_by_key(|(time, _)| *time);
        if let Some((first, _)) = self.0.first_mut() {
            *first = 0;
        }
        let header = PcapHeader {
            version_major: 2,
            version_minor: 4,
            ts_correction: 0,
            ts_accuracy: 0,
            snaplen: 1 << 18,
            datalink: DataLink::ETHERNET,
            ts_resolution: TsResolution::NanoSecond,
            endianness: Endianness::native(),
        };
        let file = File::create(path).expect("a file");
        let mut writer = PcapWriter::with_header(file, header).expect("written");
        for (time, frame) in &self.0 {
            let time = Duration::from_nanos(*time);
            let packet = PcapPacket::new(time, frame.len() as u32, frame);
            writer.write_packet(&packet).expect("written");
        }
    }
}
