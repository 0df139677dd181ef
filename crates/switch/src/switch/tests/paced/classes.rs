//! Which class a frame has, and which marks, on a paced wire.

use super::*;
use tailbound_dataplane::{Class, Coverage};

#[test]
fn guaranteed_frames_are_high_and_all_others_and_groups_are_best_effort() {
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
fn with_the_hose_what_a_machine_sends_where_no_limit_is_set_leaves_as_best_effort() {
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

#[test]
fn a_meter_takes_the_high_class_from_a_flow_that_sends_much_and_the_pace_stays() {
    let mut config = paced(&wire(), Some(guarantee(100)), None);
    pacing(&mut config).meter = Some(MeterConfig {
        rate: Rate::from_mbit(1),
        burst: Bytes(4000),
        ..MeterConfig::default()
    });
    let mut bench = bench(config);
    for n in 0..10 {
        bench.send(A, &full(A, n));
    }
    bench.run(bench.now + Nanos::from_millis(10));
    let meter = bench.port(UPLINK).meter;
    assert_eq!((meter.high, meter.best_effort), (2, 8));
    assert_eq!(bench.pacing().stats.guaranteed.packets, 10);
    let high = bench
        .sent(UPLINK)
        .iter()
        .filter(|frame| frame[15] >> 2 == 46)
        .count();
    assert_eq!(high, 2);
    assert_eq!(Class::default(), Class::BestEffort);
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
