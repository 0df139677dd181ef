//! Our segmentation against the kernel's, byte for byte, and guests' unsegmented packets through a
//! daemon.
//!
//! A packet with a GSO header is sent on a veth that segments nothing in
//! hardware (`gso_max_size 1000`), so the kernel cuts it in software before its
//! peer, where we read, sees it.

mod support;

use std::path::Path;
use support::{Daemon, Guest, Kind, METRICS, Nic, command, kinds, plugged_in, sandboxed, until};
use tailbound_dataplane::testing::frames::{Ipv4, Ipv6, Segment, ethernet, plain_sum, udp};
use tailbound_dataplane::{Frame, Packet, Pool};
use tailbound_sys::veth::{self, OtherEnd};

const MAC_A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const MAC_B: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// A TCP or UDP packet that is yet to be cut.
#[derive(Debug, Clone, Copy)]
struct Case {
    ipv6: bool,
    udp: bool,
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
    fn transport(self) -> usize {
        if self.ipv6 { 54 } else { 34 }
    }

    fn headers(self) -> usize {
        self.transport() + self.transport_header()
    }

    fn transport_header(self) -> usize {
        if self.udp { 8 } else { 20 + self.options }
    }

    fn protocol(self) -> u8 {
        if self.udp { 17 } else { 6 }
    }

    /// The frame and its virtio header; checksums are left to do.
    fn frame(self) -> ([u8; 10], Vec<u8>) {
        let payload: Vec<u8> = (0..self.payload).map(|i| (i * 7 + i / 256) as u8).collect();
        let (from, to) = ([10, 77, 0, 1], [10, 77, 0, 2]);
        let six = |last| [0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
        let addresses = if self.ipv6 {
            [six(1), six(2)].concat()
        } else {
            [from, to].concat()
        };
        let transport = self.transport_of(payload, &addresses);
        let frame = if self.ipv6 {
            let packet = Ipv6 {
                label: 0x23456,
                hops: 64,
                ..Ipv6::new(six(1).into(), six(2).into(), self.protocol())
            };
            ethernet(MAC_B, MAC_A, 0x86dd, &packet.packet(&transport))
        } else {
            let packet = Ipv4 {
                tos: 2,
                // An id that wraps on the way.
                id: 0xfffe,
                ..Ipv4::new(from.into(), to.into(), self.protocol())
            };
            ethernet(MAC_B, MAC_A, 0x0800, &packet.packet(&transport))
        };
        let gso_type = match (self.udp, self.ipv6) {
            (true, _) => 5,
            (false, true) => 4,
            (false, false) => 1,
        } | if self.ecn { 0x80 } else { 0 };
        let mut header = [0; 10];
        header[0] = 1;
        header[1] = gso_type;
        header[2..4].copy_from_slice(&(self.headers() as u16).to_le_bytes());
        header[4..6].copy_from_slice(&self.size.to_le_bytes());
        header[6..8].copy_from_slice(&(self.transport() as u16).to_le_bytes());
        let field: u16 = if self.udp { 6 } else { 16 };
        header[8..10].copy_from_slice(&field.to_le_bytes());
        (header, frame)
    }

    /// The TCP segment or the datagram; its checksum is left to do.
    fn transport_of(self, payload: Vec<u8>, addresses: &[u8]) -> Vec<u8> {
        if self.udp {
            let mut datagram = udp(5000, 5001, &payload);
            let sum = plain_sum(addresses, 17 + datagram.len() as u64);
            datagram[6..8].copy_from_slice(&sum.to_be_bytes());
            return datagram;
        }
        let segment = Segment {
            ports: [5000, 5001],
            // A sequence number that wraps on the way.
            seq: 0xffff_fc00,
            ack: 0x1234_5678,
            flags: self.flags.into(),
            window: 256,
            options: [1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8][..self.options].to_vec(),
            payload,
        };
        segment.partial(addresses)
    }

    fn segments(self) -> usize {
        self.payload.div_ceil(usize::from(self.size))
    }
}

/// Returns the frames of our own segmentation.
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

/// Verifies the TCP or UDP checksum of a segment, computed here.
fn checksum_holds(case: Case, segment: &[u8]) -> bool {
    let addresses = if case.ipv6 { 22..54 } else { 26..34 };
    let checked = &segment[case.transport()..];
    let pseudo = plain_sum(
        &segment[addresses],
        u64::from(case.protocol()) + checked.len() as u64,
    );
    plain_sum(checked, pseudo.into()) == 0xffff
}

fn cases() -> Vec<Case> {
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
                        udp: false,
                        payload,
                        size,
                        flags,
                        options,
                        ecn,
                    });
                }
            }
            cases.push(Case {
                ipv6,
                udp: true,
                payload,
                size,
                flags: 0,
                options: 0,
                ecn: false,
            });
        }
    }
    cases
}

#[test]
fn segments_equal_those_of_the_kernel() {
    sandboxed("segments_equal_those_of_the_kernel", || {
        let link = ["link", "add", "v0", "type", "veth", "peer", "name", "v1"];
        command("ip", &link);
        command("ip", &["link", "set", "v0", "gso_max_size", "1000", "up"]);
        command("ip", &["link", "set", "v1", "up"]);
        plugged_in("v0", None);
        let mut near = Nic::open("v0", None);
        let mut far = Nic::open("v1", None);
        for case in cases() {
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
                assert!(checksum_holds(case, kernel), "{case:?}: the kernel's {i}");
                assert!(checksum_holds(case, ours), "{case:?}: ours {i}");
                assert_eq!(kernel, ours, "{case:?}: segment {i}");
            }
        }
    });
}

/// Not a test of its own: the process of the daemon below.
#[test]
fn daemon_process() {
    support::daemon_process();
}

/// A hundred packets of ten datagrams each, as QUIC sends them (`UDP_SEGMENT`).
#[test]
fn datagrams_that_a_guest_leaves_to_cut_arrive() {
    sandboxed("datagrams_that_a_guest_leaves_to_cut_arrive", || {
        for kind in kinds() {
            for segment in [false, true] {
                let (a, b) = (Guest::new(kind, 1), Guest::new(kind, 2));
                let sections = [a.section(), b.section()]
                    .map(|section| format!("{section}pipeline = {{ segment = {segment} }}\n"));
                let config = format!("metrics = {METRICS:?}\n{}", sections.concat());
                let daemon = Daemon::start(&config);
                let (mut near, mut far) = (a.nic(), b.nic());
                let case = Case {
                    ipv6: false,
                    udp: true,
                    payload: 12_000,
                    size: 1200,
                    flags: 0,
                    options: 0,
                    ecn: false,
                };
                let (header, frame) = case.frame();
                let mut datagrams = 0;
                for _ in 0..100 {
                    near.send_with(header, &frame);
                    let received = far.receive();
                    datagrams += count(&received);
                }
                until("all datagrams", || {
                    datagrams += count(&far.receive());
                    datagrams >= 1000
                });
                assert_eq!(datagrams, 1000, "{kind:?}, {}", daemon.log());
                if kind == Kind::Veth {
                    // A namespace's end takes its time.
                    a.unplug();
                    b.unplug();
                }
            }
        }
    });
}

/// Counts the datagrams of a UDP case in received packets.
fn count(packets: &[Packet]) -> usize {
    let ours = packets
        .iter()
        .filter(|packet| packet.destination_mac() == MAC_B);
    ours.map(Frame::segments).sum()
}

#[test]
fn an_open_port_disables_segmentation_inside_tunnels() {
    sandboxed("an_open_port_disables_segmentation_inside_tunnels", || {
        for kind in kinds() {
            let guest = Guest::new(kind, 1);
            let (device, _) = guest.device();
            let netns = guest.netns();
            let takes = || veth::takes_tunnels(device, Some(&netns)).expect("it is there");
            if kind == Kind::Veth {
                assert!(takes(), "a veth does by default");
                let before = veth::other_end(&guest.name, None).expect("it is there");
                let OtherEnd::Leaves(place) = before else {
                    panic!("{before:?}");
                };
                assert_eq!(place.interface, device);
            }
            let config = format!("metrics = {METRICS:?}\n{}", guest.section());
            let _daemon = Daemon::start(&config);
            assert!(!takes());
            if kind == Kind::Veth {
                let after = veth::other_end(&guest.name, None).expect("it is there");
                assert_eq!(after, OtherEnd::Cuts);
            }
        }
        // Both ends in one namespace.
        let ends = ["link", "add", "v0", "type", "veth", "peer", "name", "v1"];
        command("ip", &ends);
        assert!(veth::takes_tunnels("v1", None).expect("it is there"));
        assert_eq!(veth::switch_off("v0", None).expect("ours"), OtherEnd::Cuts);
        assert!(!veth::takes_tunnels("v1", None).expect("it is there"));
        assert!(veth::takes_tunnels("v0", None).expect("it is there"));
    });
}

#[test]
fn a_port_with_a_hidden_peer_opens_only_with_cuts_tunnels() {
    let name = "a_port_with_a_hidden_peer_opens_only_with_cuts_tunnels";
    sandboxed(name, || {
        let hidden = Path::new("/run/netns/hidden");
        command("ip", &["netns", "add", "hidden"]);
        let (near, far) = (
            ["link", "add", "h0", "type", "veth"],
            ["peer", "name", "h1"],
        );
        command("ip", &[&near[..], &far, &["netns", "hidden"]].concat());
        command("ip", &["link", "set", "h0", "up"]);
        let found = |is_named: bool| match veth::other_end("h0", None).expect("it is there") {
            OtherEnd::Leaves(place) => is_named && place.netns.as_deref() == Some(hidden),
            OtherEnd::Unseen { netns: None, .. } => !is_named,
            other => panic!("{other:?}"),
        };
        assert!(found(true));
        // From here on only this descriptor keeps it.
        let kept = std::fs::File::open(hidden).expect("it is there");
        command("ip", &["netns", "del", "hidden"]);
        assert!(found(false));
        let config = |more: &str| {
            format!(
                "metrics = {METRICS:?}\n[[guest]]\nname = \"h\"\n\
                 mac = \"02:00:00:00:00:01\"\nip = [\"10.77.0.1\"]\n\
                 port = {{ kind = \"af-packet\", interface = \"h0\"{more} }}\n"
            )
        };
        let mut refused = Daemon::spawn(&config(""));
        assert!(!refused.wait().success());
        let log = refused.log();
        for part in [
            "port h (af-packet h0): the other end of \"h0\" may leave the segmentation",
            "a network namespace that is not seen from here",
            "run `ethtool -K NAME tx-gre-segmentation off",
            "`cuts_tunnels = true`",
        ] {
            assert!(log.contains(part), "{log}");
        }
        let _daemon = Daemon::start(&config(", cuts_tunnels = true"));
        drop(kept);
    });
}
