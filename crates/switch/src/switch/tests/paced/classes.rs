//! Classes and marks of frames on a paced wire.

use super::*;
use tailbound_dataplane::pacer::DelayClass;
use tailbound_dataplane::{Class, Classes, Coverage, Fabric, Mark};

#[test]
fn guaranteed_frames_go_first_and_all_others_and_groups_are_of_the_lowest_class() {
    let wire = PacerConfig {
        frame: Bytes(1542),
        ..wire()
    };
    let mut config = paced(&wire, Some(guarantee(100)), None);
    pacing(&mut config).priority_tag = true;
    let mut bench = bench(config);
    bench.send(A, &full(A, 1));
    bench.send(B, &full(B, 2));
    let who = ethernet(Mac::BROADCAST, MAC_A, 0x0806, &arp(1, MAC_A, A4, B4));
    bench.send(A, &who);
    bench.run(bench.now + Nanos::from_millis(10));
    let sent: Vec<_> = bench.sent(UPLINK);
    let sent = sent.iter().filter(|frame| frame[12..14] == [0x81, 0]);
    let mut tags: Vec<_> = sent
        .map(|frame| {
            (
                frame.len(),
                frame[6..12].to_vec(),
                frame[14],
                frame[19] >> 2,
            )
        })
        .collect();
    tags.sort();
    // Length with the tag, source, PCP in the upper three bits, DSCP.
    assert_eq!(
        tags,
        [
            (64, MAC_A.0.to_vec(), 0, who[15] >> 2),
            (1518, MAC_A.0.to_vec(), 5 << 5, 46),
            (1518, MAC_B.0.to_vec(), 0, 0),
        ]
    );
    // The guests themselves see no tag.
    assert_eq!(bench.sent(B), [who]);
}

#[test]
fn frames_of_a_delay_class_have_its_mark() {
    let wire = PacerConfig {
        frame: Bytes(1542),
        ..wire()
    };
    let mark = Mark { dscp: 48, pcp: 6 };
    let mut urgent = guarantee(100);
    urgent.class = DelayClass::new(1, mark);
    let mut config = paced(&wire, Some(urgent), None);
    pacing(&mut config).priority_tag = true;
    let mut bench = bench(config);
    bench.send(A, &full(A, 1));
    bench.send(B, &full(B, 2));
    bench.run(bench.now + Nanos::from_millis(10));
    let sent = bench.sent(UPLINK);
    let sent = sent.iter().filter(|frame| frame[12..14] == [0x81, 0]);
    let mut tags: Vec<_> = sent.map(|it| (it[14] >> 5, it[19] >> 2)).collect();
    tags.sort_unstable();
    assert_eq!(tags, [(0, 0), (6, 48)]);
}

#[test]
fn hose_traffic_to_unlimited_destinations_has_the_lowest_class() {
    let no_machine = paced(&wire(), Some(guarantee(100)), None);
    let mut machine = no_machine.clone();
    machine.guests[0].coverage = Coverage::LimitedDestinations;
    let mut bench = bench(machine.clone());
    let far = FAR.to_ipv6_mapped().to_bits();
    let limited = Some(Rate::from_mbit(10));
    for (config, limit, dscp) in [
        (&machine, None, 0),
        (&machine, limited, 46),
        (&no_machine, None, 46),
        (&no_machine, limited, 46),
        (&machine, None, 0),
    ] {
        let now = bench.now;
        let config = config.clone();
        bench
            .switch
            .reconfigure(now, config)
            .expect("no rule is broken");
        let pacer = bench.switch.pacer().expect("the uplink is paced");
        pacer
            .set_destination(now, GuestId::first(0), far, limit)
            .expect("no rule is broken");
        bench.send(A, &full(A, 0));
        bench.run(bench.now + Nanos::from_millis(100));
        let sent = bench.sent(UPLINK).into_iter().find(|f| read(f).is_some());
        assert_eq!(sent.map(|frame| frame[15] >> 2), Some(dscp));
    }
    // Paced all the same.
    let pacer = bench.switch.pacer().expect("the uplink is paced");
    let stats = pacer.guest_stats(GuestId::first(0));
    assert_eq!(stats.map(|stats| stats.taken.packets), Some(5));
}

/// Sends a frame from A; returns its DSCP on the wire, and the limited destinations that it was
/// charged to.
fn charged(bench: &mut Bench, frame: &[u8]) -> (Option<u8>, Vec<u128>) {
    bench.send(A, frame);
    bench.run(bench.now + Nanos::from_millis(100));
    let sent = bench.sent(UPLINK).into_iter().find(|f| f[..6] != f[6..12]);
    let (now, mut used) = (bench.now, Vec::new());
    let pacer = bench.switch.pacer().expect("the uplink is paced");
    pacer.destinations_used(now, |flow| used.push(flow.flow.destination));
    (sent.map(|frame| frame[15] >> 2), used)
}

#[test]
fn frames_to_a_limited_mac_are_charged_to_it_for_any_ip_address() {
    // The guest writes the station of one machine, and the address of another.
    let mut config = paced(&wire(), Some(guarantee(100)), None);
    config.guests[0].coverage = Coverage::LimitedDestinations;
    let mut bench = bench(config);
    let far = FAR.to_ipv6_mapped().to_bits();
    let station = FlowKey::station(GATEWAY.0);
    let limit = |bench: &mut Bench, destination, rate| {
        let now = bench.now;
        let pacer = bench.switch.pacer().expect("the uplink is paced");
        let set = pacer.set_destination(now, GuestId::first(0), destination, rate);
        set.expect("no rule is broken");
    };
    limit(&mut bench, far, Some(Rate::from_mbit(100)));
    limit(&mut bench, station, Some(Rate::from_mbit(1)));
    assert_eq!(charged(&mut bench, &full(A, 0)), (Some(46), vec![far]));
    bench.switch.set_limited_by_station(GATEWAY, true);
    assert_eq!(charged(&mut bench, &full(A, 1)), (Some(46), vec![station]));
    // Nor does it help to name no address at all.
    let padded = [arp(1, MAC_A, A4, FAR), vec![0; 1000]].concat();
    let frame = ethernet(GATEWAY, MAC_A, 0x0806, &padded);
    assert_eq!(charged(&mut bench, &frame).1, [station]);
    // A station of another tenant's VM has no limit here, so frames to it have no guarantee.
    limit(&mut bench, station, None);
    assert_eq!(charged(&mut bench, &full(A, 2)), (Some(0), vec![]));
    bench.switch.set_limited_by_station(GATEWAY, false);
    assert_eq!(charged(&mut bench, &full(A, 3)), (Some(46), vec![far]));
}

/// A meter of 1 Mbit/s and two full frames, for ten full frames each of A, which has a larger
/// guarantee, and of B, which has none: returns the number of each guest's frames by DSCP.
fn metered(fabric: Fabric) -> [Vec<(u8, usize)>; 2] {
    let mut config = paced(&wire(), Some(guarantee(100)), None);
    config.classes = Some(Classes::of(fabric));
    let pacing = pacing(&mut config);
    pacing.classes = Classes::of(fabric);
    pacing.meter = Some(MeterConfig {
        rate: Rate::from_mbit(1),
        burst: Bytes(4000),
        ..MeterConfig::default()
    });
    let mut bench = bench(config);
    for n in 0..10 {
        bench.send(A, &full(A, n));
        bench.send(B, &full(B, n));
    }
    bench.run(bench.now + Nanos::from_millis(10));
    assert_eq!(bench.pacing().stats.guaranteed.packets, 10);
    let sent = bench.sent(UPLINK);
    [MAC_A, MAC_B].map(|source| {
        let of = sent
            .iter()
            .filter(|frame| frame[6..12] == source.0 && read(frame).is_some());
        let mut dscps: Vec<_> = of.map(|frame| frame[15] >> 2).collect();
        dscps.sort_unstable();
        let groups = dscps.chunk_by(|one, next| one == next);
        groups.map(|group| (group[0], group.len())).collect()
    })
}

/// Regression: a meter tagged a guaranteed guest's conforming frames down, and their bound did not
/// hold.
#[test]
fn conforming_frames_of_a_guaranteed_guest_keep_the_class_of_their_bound() {
    let [guaranteed, best_effort] = metered(Fabric::ThreeClasses);
    assert_eq!(guaranteed, [(46, 10)]);
    assert_eq!(best_effort, [(0, 8), (18, 2)]);
    let [guaranteed, best_effort] = metered(Fabric::GuaranteesFirst);
    assert_eq!(guaranteed, [(46, 10)]);
    assert_eq!(best_effort, [(0, 10)]);
    // No bound there: a guarantee is a limit, and flows of all are metered.
    let [guaranteed, best_effort] = metered(Fabric::SmallFlowsFirst);
    assert_eq!(guaranteed, [(0, 8), (46, 2)]);
    assert_eq!(best_effort, [(0, 8), (46, 2)]);
}

#[test]
fn received_frames_are_counted_in_the_class_of_their_dscp_mark() {
    let mut config = paced(&wire(), None, None);
    config.classes = Some(Classes::of(Fabric::ThreeClasses));
    let mut bench = bench(config);
    for (n, dscp) in (0..).zip([46, 18, 18, 0, 34]) {
        let mut frame = datagram(MAC_A, GATEWAY, (FAR, A4), n);
        frame[15] = dscp << 2;
        bench.send(UPLINK, &frame);
    }
    bench.run(bench.now + Nanos::from_millis(1));
    let received = bench.guest(A).sojourns;
    let received = received.iter().filter(|of| of.direction == "received");
    let counts: Vec<_> = received
        .map(|of| (of.class, of.histogram.count()))
        .collect();
    assert_eq!(counts, [("guaranteed", 1), ("small", 2), ("lowest", 2)]);
    assert_eq!(Class::default(), Class::Lowest);
}

#[test]
fn marks_reach_the_wire_with_right_checksums() {
    let marking = Guarantee {
        mark: Some(Nanos::from_micros(200)),
        ..guarantee(20)
    };
    let mut bench = bench(paced(&wire(), Some(marking), None));
    // TCP with ECT(0), 8 segments each, its checksum left to the NIC.
    for n in 0..20u32 {
        let (frame, virtio) = tcp_segments(n);
        bench.wires[A]
            .borrow_mut()
            .to_port
            .push_back((frame, Some(virtio)));
    }
    bench.switch.handle_readable(PortIndex(A));
    bench.run(bench.now + Nanos::from_secs(1));
    let (mut marked, mut segments, mut payload) = (0, 0, VecDeque::new());
    for frame in bench.sent(UPLINK) {
        if frame[..6] == frame[6..12] {
            continue;
        }
        let ip = smoltcp::wire::Ipv4Packet::new_checked(&frame[14..]).expect("IPv4");
        assert!(ip.verify_checksum());
        assert_eq!(ip.dscp(), 46);
        marked += u32::from(ip.ecn() == 3);
        let addresses = (ip.src_addr().into(), ip.dst_addr().into());
        let tcp = smoltcp::wire::TcpPacket::new_checked(ip.payload()).expect("TCP");
        assert!(tcp.verify_checksum(&addresses.0, &addresses.1));
        payload.push_back(tcp.seq_number().0);
        segments += 1;
    }
    assert_eq!(segments, 160);
    assert!(marked > 100, "{marked} marked");
    assert!(payload.make_contiguous().is_sorted());
    assert_eq!(bench.guest_pacing(A).stats.marked, u64::from(marked));
}

/// A TCP packet of 8 segments that takes marks, as a guest's kernel hands it over.
fn tcp_segments(n: u32) -> (Vec<u8>, [u8; 10]) {
    tcp(A, n, 8 * 1448, 1448)
}
