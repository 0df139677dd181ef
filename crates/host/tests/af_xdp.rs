//! `AF_XDP` ports on real interfaces, and voids before a real bridge.

mod support;

use rustix::process::Signal;
use std::collections::VecDeque;
use std::process::Command;
use support::{
    Daemon, Guest, Kind, METRICS, Nic, command, datagram_of, plugged_in, sandboxed, until,
};
use tailbound_dataplane::testing::frames::plain_sum;
use tailbound_dataplane::{Packet, Pool};
use tailbound_ports::{AfPacketPort, AfXdpMode, AfXdpPort};
use tailbound_switch::port::{Burst, Outgoing, Port};
use tailbound_sys::probe::required::{Part, skipped};
use tailbound_sys::veth;
use tailbound_units::{Nanos, WireBytes};

/// Not a test of its own: the process of the daemon below.
#[test]
fn daemon_process() {
    support::daemon_process();
}

const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const GUEST: [u8; 6] = [2, 0, 0, 0, 0, 7];
const FAR: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// Makes the veth pair `up0` and `far`, with `up0` at [`OUR_MAC`].
fn cable() {
    cable_of("1");
}

/// Makes a cable as [`cable`], with this number of queues in each direction.
fn cable_of(queues: &str) {
    let queues = ["numrxqueues", queues, "numtxqueues", queues];
    let link = [&["link", "add", "up0"][..], &queues, &["type", "veth"]].concat();
    let peer = [&["peer", "name", "far"][..], &queues].concat();
    command("ip", &[link, peer].concat());
    command(
        "ip",
        &["link", "set", "up0", "address", "02:00:00:00:00:01"],
    );
    for device in ["up0", "far"] {
        // Neighbour discovery and the like would be counted as well.
        let off = format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6");
        std::fs::write(off, "1").expect("it is our own namespace");
        command("ip", &["link", "set", device, "up"]);
    }
    plugged_in("up0", None);
}

/// Opens the port of `up0`; `None`, with a line of output, if this computer forbids it.
fn open(queues: Option<u32>) -> Option<AfXdpPort> {
    match AfXdpPort::open("up0", None, AfXdpMode::Auto, queues) {
        Ok(port) => Some(port),
        Err(error) => {
            skipped(Part::AfXdp, error);
            None
        }
    }
}

fn packet(pool: &Pool, bytes: &[u8]) -> Packet {
    let mut buffer = pool.buffer(Packet::HEADROOM + bytes.len());
    buffer[Packet::HEADROOM..][..bytes.len()].copy_from_slice(bytes);
    Packet::new(buffer, Packet::HEADROOM, bytes.len(), None, None).expect("well-formed")
}

/// Returns the frames that `port` receives until `enough` returns true, as bytes.
fn receive(port: &mut dyn Port, pool: &Pool, enough: impl Fn(&[Vec<u8>]) -> bool) -> Vec<Vec<u8>> {
    let mut seen = Vec::new();
    until("frames", || {
        let mut burst = Burst::default();
        port.receive(Nanos::ZERO, pool, &mut burst)
            .expect("the interface is there");
        seen.extend(burst.frames.iter().map(|frame| {
            let end = frame.start + frame.len;
            frame.buffer[frame.start..end].to_vec()
        }));
        enough(&seen)
    });
    seen
}

fn program_on(device: &str) -> bool {
    let output = Command::new("ip")
        .args(["-details", "link", "show", device])
        .output()
        .expect("ip was there a moment ago");
    String::from_utf8_lossy(&output.stdout).contains("prog/xdp")
}

#[test]
fn guests_frames_come_by_the_sockets_and_the_hosts_own_stay_with_its_stack() {
    sandboxed(
        "guests_frames_come_by_the_sockets_and_the_hosts_own_stay_with_its_stack",
        || {
            cable();
            let Some(mut port) = open(None) else { return };
            assert!(program_on("up0"));
            let pool = Pool::new();
            let (mut far, mut stack) = (Nic::open("far", None), Nic::open("up0", None));
            let to = |mac, n| datagram_of(mac, FAR, [10, 77, 0, 9], n);
            let (guest, own, all) = (to(GUEST, 1), to(OUR_MAC, 2), to([0xff; 6], 3));
            for frame in [&own, &all, &guest] {
                far.send(frame);
            }
            let both = |seen: &[Vec<u8>]| seen.contains(&guest) && seen.contains(&all);
            let seen = receive(&mut port, &pool, both);
            assert!(!seen.contains(&own), "the host's own frame was taken");
            let mut heard = Vec::new();
            until("the stack's frames", || {
                heard.extend(stack.receive().iter().map(|packet| packet.bytes().to_vec()));
                heard.contains(&own) && heard.contains(&all)
            });
            assert!(!heard.contains(&guest), "the guest's frame came both ways");
            drop(port);
            until("the program to be gone", || !program_on("up0"));
        },
    );
}

#[test]
fn more_frames_than_the_rings_hold_leave_in_order_with_voids_between_them() {
    sandboxed(
        "more_frames_than_the_rings_hold_leave_in_order_with_voids_between_them",
        || {
            cable();
            let Some(mut port) = open(Some(1)) else {
                return;
            };
            let pool = Pool::new();
            let mut far = Nic::open("far", None);
            let count = 10_000_u16;
            let mut outgoing = VecDeque::new();
            let mut expected = Vec::new();
            let (mut sent, mut seen) = ((0, 0), Vec::new());
            for n in 0..count {
                let frame = datagram_of(FAR, GUEST, [10, 77, 0, 7], n);
                outgoing.push_back(Outgoing::frame(packet(&pool, &frame)));
                outgoing.push_back(Outgoing::Void {
                    wire: WireBytes(84 + u64::from(n) % 1455),
                });
                expected.push(n);
                // A few at a time, so that the far socket's buffer holds them.
                if n % 16 != 15 {
                    continue;
                }
                until("room", || {
                    let now = port.transmit(Nanos::ZERO, &mut outgoing).expect("up");
                    assert_eq!((now.refused, now.device_full), (0, 0));
                    sent = (sent.0 + now.packets, sent.1 + now.voids);
                    outgoing.is_empty()
                });
                collect(&mut far, &mut seen);
            }
            until("the last frame", || {
                collect(&mut far, &mut seen);
                seen.len() >= expected.len()
            });
            assert_eq!(sent, (u64::from(count), u64::from(count)));
            assert_eq!(seen, expected);
        },
    );
}

/// Adds the numbers of the guest's frames that came; checks that all others are
/// voids.
fn collect(far: &mut Nic, seen: &mut Vec<u16>) {
    for packet in far.receive() {
        let bytes = packet.bytes();
        if packet.source_mac() == GUEST {
            seen.push(u16::from_be_bytes([bytes[42], bytes[43]]));
        } else {
            assert_eq!(packet.source_mac(), OUR_MAC);
            assert_eq!(packet.destination_mac(), OUR_MAC);
        }
    }
}

#[test]
fn unsupported_af_xdp_settings_are_refused_with_a_remedy() {
    sandboxed(
        "unsupported_af_xdp_settings_are_refused_with_a_remedy",
        || {
            cable();
            if open(None).is_none() {
                return;
            }
            let error = AfXdpPort::open("up0", None, AfXdpMode::ZeroCopy, None);
            let error = error.expect_err("a veth has none").to_string();
            assert!(error.contains("has no zero-copy"), "{error}");
            assert!(!program_on("up0"), "a program was left behind");
            assert!(AfXdpPort::open("up0", None, AfXdpMode::Copy, None).is_ok());
            command("ip", &["link", "set", "up0", "mtu", "3819"]);
            let error = AfXdpPort::open("up0", None, AfXdpMode::Auto, None);
            let error = error.expect_err("too long for a chunk").to_string();
            assert!(error.contains("mtu 3818"), "{error}");
        },
    );
}

#[test]
fn every_receive_queue_is_read() {
    sandboxed("every_receive_queue_is_read", || {
        cable_of("2");
        let Some(mut port) = open(None) else { return };
        let error = AfXdpPort::open("up0", None, AfXdpMode::Copy, Some(3));
        let error = error.expect_err("there are two").to_string();
        assert!(error.contains("has 2 receive queues, not 3"), "{error}");
        let pool = Pool::new();
        let mut far = Nic::open("far", None);
        // Flows are spread over the queues by a hash of their addresses.
        let frames: Vec<_> = (0..64)
            .map(|n| datagram_of(GUEST, FAR, [10, 77, 1, n as u8], n))
            .collect();
        for frame in &frames {
            far.send(frame);
        }
        let all = |seen: &[Vec<u8>]| frames.iter().all(|frame| seen.contains(frame));
        receive(&mut port, &pool, all);
    });
}

#[test]
fn an_interface_that_vanishes_ends_the_port_also_where_nothing_is_sent() {
    sandboxed(
        "an_interface_that_vanishes_ends_the_port_also_where_nothing_is_sent",
        || {
            cable();
            let Some(mut port) = open(None) else { return };
            command("ip", &["link", "delete", "up0"]);
            let pool = Pool::new();
            until("an error", || {
                let mut burst = Burst::default();
                port.receive(Nanos::ZERO, &pool, &mut burst).is_err()
            });
        },
    );
}

#[test]
fn a_daemon_paces_with_voids_through_it() {
    sandboxed("a_daemon_paces_with_voids_through_it", || {
        cable();
        if open(None).is_none() {
            return;
        }
        let guest = Guest::new(Kind::Veth, 7);
        let uplink = "[uplink]\nport = { kind = \"af-xdp\", interface = \"up0\" }\n\
                      pacer = { link = \"100Mbit/s\", batch = \"5ms\", \
                      work_conserving = false }\n";
        let guarantee = "guarantee = { bandwidth = \"10Mbit/s\", burst = \"3KB\", \
                         burst_rate = \"10Mbit/s\", horizon = \"50ms\" }\n";
        let config = format!(
            "metrics = {METRICS:?}\n{uplink}\n{}{guarantee}",
            guest.section()
        );
        assert!(veth::takes_tunnels("far", None).expect("it is there"));
        let daemon = Daemon::start(&config);
        assert!(!veth::takes_tunnels("far", None).expect("it is there"));
        let (mut far, mut nic) = (Nic::open("far", None), guest.nic());
        let count: u16 = 100;
        // The first nineteen leave immediately: shorter frames of the length of a longest one. 84 B
        // at 10 Mbit/s are 67 us, nine tenths of which remain at 100 Mbit/s: one void between two
        // of the others, unless the daemon is late after the end of a batch, of 74 frames, or of
        // the 32 frames of one read. A daemon without a CPU meanwhile is late more often, so one of
        // ten attempts must succeed.
        let expected = usize::from(count) - 19 - 6 - 4;
        let enough = (0..10).any(|_| {
            // All of them wait before the first is read.
            daemon.stop();
            for n in 0..count {
                nic.send(&datagram_of(FAR, GUEST, [10, 77, 0, 7], n));
            }
            daemon.signal(Signal::CONT);
            let (mut numbers, mut voids) = (Vec::new(), 0);
            until("all frames", || {
                for packet in far.receive() {
                    voids += usize::from(is_void(&packet));
                    let bytes = packet.bytes();
                    if packet.source_mac() == GUEST && packet.destination_mac() == FAR {
                        numbers.push(u16::from_be_bytes([bytes[42], bytes[43]]));
                    }
                }
                numbers.len() >= usize::from(count)
            });
            let log = daemon.log();
            assert_eq!(numbers, (0..count).collect::<Vec<_>>(), "{log}");
            println!("{voids} voids");
            voids >= expected
        });
        assert!(enough, "{expected} voids of ten times none");
    });
}

#[test]
fn a_checksum_that_was_left_to_the_nic_is_finished_before_the_frame_leaves() {
    sandboxed(
        "a_checksum_that_was_left_to_the_nic_is_finished_before_the_frame_leaves",
        || {
            cable();
            let Some(mut port) = open(Some(1)) else {
                return;
            };
            let pool = Pool::new();
            let mut far = Nic::open("far", None);
            let mut frame = datagram_of(FAR, GUEST, [10, 77, 0, 7], 5);
            // As a guest leaves it: the sum of the pseudo-header alone.
            let pseudo = plain_sum(&frame[26..34], 17 + 26);
            frame[40..42].copy_from_slice(&pseudo.to_be_bytes());
            let mut buffer = pool.buffer(Pool::SMALL);
            buffer[Packet::HEADROOM..][..frame.len()].copy_from_slice(&frame);
            // UDP at 34, its checksum 6 bytes on.
            let virtio = Some([1, 0, 0, 0, 0, 0, 34, 0, 6, 0]);
            let packet = Packet::new(buffer, Packet::HEADROOM, frame.len(), virtio, None);
            let packet = packet.expect("well-formed");
            let mut outgoing = VecDeque::from([Outgoing::frame(packet)]);
            let sent = port.transmit(Nanos::ZERO, &mut outgoing).expect("up");
            assert_eq!(sent.packets, 1);
            let mut whole = Vec::new();
            until("the frame", || {
                whole.extend(far.receive());
                !whole.is_empty()
            });
            assert!(whole[0].offload().checksum.is_none());
            // With its pseudo-header and its checksum a datagram sums to all ones.
            let bytes = whole[0].bytes();
            assert_eq!(plain_sum(&bytes[26..60], 17 + 26), 0xffff);
        },
    );
}

#[test]
fn a_daemon_that_is_killed_leaves_no_program_behind() {
    sandboxed("a_daemon_that_is_killed_leaves_no_program_behind", || {
        cable();
        if open(None).is_none() {
            return;
        }
        let uplink = "[uplink]\nport = { kind = \"af-xdp\", interface = \"up0\" }\n\
                      pipeline = { segment = true }\n";
        let config = format!("metrics = {METRICS:?}\n{uplink}");
        let mut daemon = Daemon::start(&config);
        assert!(program_on("up0"), "{}", daemon.log());
        daemon.signal(rustix::process::Signal::KILL);
        daemon.wait();
        until("the program to be gone", || !program_on("up0"));
        // And the next one finds its place free.
        let daemon = Daemon::start(&config);
        assert!(program_on("up0"), "{}", daemon.log());
    });
}

/// A bridge with three ports: `far`, where `up0` is plugged in, and two others.
fn bridge() {
    command("ip", &["link", "add", "br0", "type", "bridge"]);
    let off = "/proc/sys/net/ipv6/conf/br0/disable_ipv6";
    std::fs::write(off, "1").expect("it is our own namespace");
    for (port, host) in [("p1", "h1"), ("p2", "h2")] {
        let link = ["link", "add", port, "type", "veth", "peer", "name", host];
        command("ip", &link);
        for device in [port, host] {
            let off = format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6");
            std::fs::write(off, "1").expect("it is our own namespace");
            command("ip", &["link", "set", device, "up"]);
        }
    }
    for port in ["far", "p1", "p2"] {
        command("ip", &["link", "set", port, "master", "br0"]);
    }
    command("ip", &["link", "set", "br0", "up"]);
    // STP is off, so a port forwards as soon as it is up.
    let forwarding = |port: &str| {
        let path = format!("/sys/class/net/{port}/brport/state");
        std::fs::read_to_string(path).is_ok_and(|state| state.trim() == "3")
    };
    // Without /sys of this namespace the frames below are sent until they come.
    until("the bridge", || {
        !std::path::Path::new("/sys/class/net/br0").exists()
            || ["far", "p1", "p2"].into_iter().all(forwarding)
    });
}

/// A frame from [`OUR_MAC`] of an experimental type: netfilter inspects IP even in a bridge, and
/// ignores this type.
fn plain(to: [u8; 6], n: u16) -> Vec<u8> {
    let mut frame = [&to[..], &OUR_MAC, &[0x88, 0xb6]].concat();
    frame.extend(n.to_be_bytes());
    frame.resize(60, 0);
    frame
}

/// Recognizes voids by their type, for any addresses.
fn is_void(packet: &Packet) -> bool {
    packet.bytes()[12..14] == [0x88, 0xb5]
}

/// Sends data and voids through a bridge: data comes out of every other port, no
/// void out of any.
fn voids_end_in_the_bridge(port: &mut dyn Port) {
    let pool = Pool::new();
    let mut nics = ["up0", "h1", "h2"].map(|device| Nic::open(device, None));
    // The bridge learns the place of `up0`; frames before that do not count.
    let hello = plain([0xff; 6], 999);
    let send = |port: &mut dyn Port, mut outgoing: VecDeque<Outgoing>| {
        until("room", || {
            port.transmit(Nanos::ZERO, &mut outgoing).expect("up");
            outgoing.is_empty()
        });
    };
    for nic in &mut nics[1..] {
        until("the bridge to forward", || {
            let frame = Outgoing::frame(packet(&pool, &hello));
            send(port, VecDeque::from([frame]));
            let heard = nic.receive();
            heard.iter().any(|packet| packet.bytes() == hello)
        });
    }
    let unknown = [2, 0xee, 0, 0, 0, 1];
    let mut outgoing = VecDeque::new();
    for n in 0..100 {
        let wire = WireBytes(84 + u64::from(n) * 14);
        outgoing.push_back(Outgoing::Void { wire });
        // Floods, since nobody is at that address.
        let frame = plain(unknown, n);
        outgoing.push_back(Outgoing::frame(packet(&pool, &frame)));
        outgoing.push_back(Outgoing::Void {
            wire: WireBytes(1538),
        });
    }
    send(port, outgoing);
    let mut voids = 0;
    for nic in &mut nics[1..] {
        let mut data = 0;
        until("the data frames", || {
            for packet in nic.receive() {
                voids += usize::from(is_void(&packet));
                data += usize::from(packet.destination_mac() == unknown);
            }
            data >= 100
        });
        assert_eq!(data, 100);
    }
    // Nor did any come back. The last frame went through after the last void
    // but one, so there is nothing more to wait for but that one.
    std::thread::sleep(std::time::Duration::from_millis(50));
    for nic in &mut nics {
        let came = nic.receive();
        voids += came.iter().filter(|packet| is_void(packet)).count();
    }
    assert_eq!(voids, 0, "voids came out of the bridge");
}

#[test]
fn a_bridge_drops_the_voids_of_a_packet_socket_and_forwards_data() {
    sandboxed(
        "a_bridge_drops_the_voids_of_a_packet_socket_and_forwards_data",
        || {
            cable();
            bridge();
            let mut port = AfPacketPort::open("up0", None).expect("it is up");
            voids_end_in_the_bridge(&mut port);
        },
    );
}

#[test]
fn a_bridge_drops_the_voids_of_an_af_xdp_socket_and_forwards_data() {
    sandboxed(
        "a_bridge_drops_the_voids_of_an_af_xdp_socket_and_forwards_data",
        || {
            cable();
            bridge();
            let Some(mut port) = open(None) else { return };
            voids_end_in_the_bridge(&mut port);
        },
    );
}
