//! The packet path allocates no memory for a packet after it has warmed up.

use tailbound_dataplane::shaper::{BucketConfig, CreditConfig, WindowConfig};
use tailbound_dataplane::snoop::{Origin, RingPlacement};
use tailbound_dataplane::{
    Classes, CodelConfig, Fabric, FifoConfig, FqCodelConfig, Frame, Guarantee, GuestId,
    MeterConfig, NicConfig, Pacer, PacerConfig, Packet, Pipeline, PipelineConfig, Pool,
    PriorityConfig, QueueConfig, Shaper, ShaperConfig, Snoop, SnoopConfig, SnoopMode, TcpMaker,
};
use tailbound_units::{Bytes, Nanos, Rate};

#[path = "../src/testing/frames.rs"]
mod frames;
#[path = "../src/testing/tcp.rs"]
mod tcp;
use tcp::Tcp;

/// Reads a frame as a port does: from outside into a buffer of the pool.
fn read(pool: &Pool, frame: &[u8], virtio: [u8; 10], guest: u32) -> Packet {
    let mut buffer = pool.buffer(Pool::LARGE);
    let start = Packet::HEADROOM;
    buffer[start..start + frame.len()].copy_from_slice(frame);
    let source = Some(GuestId::first(guest));
    Packet::new(buffer, start, frame.len(), Some(virtio), source).expect("well formed")
}

/// Bursts of all kinds of packets from four guests to many addresses, some beyond the queue's
/// limit; all of them are written.
fn burst(
    pipeline: &mut Pipeline<Packet>,
    pool: &Pool,
    packets: &[(Vec<u8>, [u8; 10])],
    round: u32,
) {
    let now = Nanos::from_secs(1) + Nanos::from_millis(u64::from(round));
    for guest in 0..4 {
        for (frame, virtio) in packets {
            let mut packet = read(pool, frame, *virtio, guest);
            if guest == 3 {
                packet.complete_checksum();
                packet = packet.duplicate();
            }
            pipeline.push(now, packet);
        }
    }
    let mut now = now;
    while let Some(at) = pipeline.poll_at() {
        now = now.max(at);
        if let Some(mut departure) = pipeline.pull(now) {
            assert!(departure.frame.with_virtio_header().len() > 10);
        }
    }
}

#[test]
fn a_warm_data_path_allocates_no_memory() {
    let mut packets = Vec::new();
    for v6 in [false, true] {
        for payload in [0, 100, 1448, 30_000, 65_000] {
            let tcp = Tcp {
                v6,
                payload,
                ..Tcp::default()
            };
            packets.push((tcp.frame(), tcp.virtio()));
        }
    }
    let queues = [
        QueueConfig::Fifo(FifoConfig {
            packets: 200,
            ..FifoConfig::default()
        }),
        QueueConfig::Codel(CodelConfig::default()),
        QueueConfig::FqCodel(FqCodelConfig {
            packets: 200,
            ..FqCodelConfig::default()
        }),
        QueueConfig::Priority(PriorityConfig::default()),
    ];
    for queue in queues {
        for segment in [false, true] {
            let mut pipeline = Pipeline::new(&PipelineConfig {
                meter: Some(MeterConfig::default()),
                classes: Some(Classes::of(Fabric::SmallFlowsFirst)),
                segment,
                queue: queue.clone(),
                limit: None,
                nic: Some(NicConfig::new(Rate::from_mbit(1000))),
            });
            let pool = Pool::new();
            for round in 0..3 {
                burst(&mut pipeline, &pool, &packets, round);
            }
            let counted = allocation_counter::measure(|| {
                for round in 3..20 {
                    burst(&mut pipeline, &pool, &packets, round);
                }
            });
            assert_eq!(counted.count_total, 0, "{queue:?}, segment = {segment}");
        }
    }
}

/// Bursts of all kinds of packets from one guest; all of them are passed on.
fn shaped_burst(
    shaper: &mut Shaper<Packet>,
    pool: &Pool,
    packets: &[(Vec<u8>, [u8; 10])],
    round: u32,
) {
    let mut now = Nanos::from_secs(1) + Nanos::from_millis(u64::from(round) * 1500);
    for (frame, virtio) in packets {
        while !shaper.is_read() {
            now = now.max(shaper.poll_at().expect("frames wait"));
            drop(shaper.pull(now));
        }
        shaper.push(now, read(pool, frame, *virtio, 0));
    }
    while let Some(at) = shaper.poll_at() {
        now = now.max(at);
        drop(shaper.pull(now));
    }
}

#[test]
fn a_warm_rate_limiter_allocates_no_memory() {
    let mut packets = Vec::new();
    for payload in [0, 100, 1448, 30_000, 65_000] {
        let tcp = Tcp {
            payload,
            flags: 0x10,
            ..Tcp::default()
        };
        packets.push((tcp.frame(), tcp.virtio()));
    }
    let rate = Rate::from_mbit(20);
    let mut slow = BucketConfig::new(rate);
    slow.queue = QueueConfig::default();
    for config in [
        ShaperConfig::Bucket(slow),
        ShaperConfig::SmoothWindow(WindowConfig::new(rate)),
        ShaperConfig::Credit(CreditConfig::new(rate, Nanos::from_millis(5))),
    ] {
        let pool = Pool::new();
        let mut shaper = Shaper::new(&config).expect("sound");
        for round in 0..3 {
            shaped_burst(&mut shaper, &pool, &packets, round);
        }
        let counted = allocation_counter::measure(|| {
            for round in 3..20 {
                shaped_burst(&mut shaper, &pool, &packets, round);
            }
        });
        assert_eq!(counted.count_total, 0, "{config:?}");
        assert!(shaper.stats().sent.packets > 1000);
    }
}

/// Bursts of all kinds of packets from two guaranteed guests and one without a guarantee; all of
/// them are passed on.
fn paced_burst(
    pacer: &mut Pacer<Packet>,
    pool: &Pool,
    packets: &[(Vec<u8>, [u8; 10])],
    round: u32,
) {
    let mut now = Nanos::from_secs(1) + Nanos::from_millis(u64::from(round) * 200);
    for guest in 0..3 {
        for (frame, virtio) in packets.iter().chain(packets) {
            while !pacer.is_read(GuestId::first(guest)) {
                now = now.max(pacer.poll_at().expect("frames wait"));
                pacer.batch(now).for_each(drop);
            }
            pacer.enqueue(now, read(pool, frame, *virtio, guest));
        }
    }
    while let Some(at) = pacer.poll_at() {
        now = now.max(at);
        pacer.batch(now).for_each(drop);
    }
}

#[test]
fn a_warm_pacer_allocates_no_memory() {
    let mut packets = Vec::new();
    let mut destination = 0;
    for payload in [0, 100, 1448, 30_000, 65_000] {
        let tcp = Tcp {
            payload,
            ..Tcp::default()
        };
        let (mut frame, virtio) = (tcp.frame(), tcp.virtio());
        // The source port: several flows wait in one line.
        frame[35] = packets.len() as u8;
        let flow = read(&Pool::new(), &frame, virtio, 0).flow().expect("IPv4");
        destination = flow.destination;
        packets.push((frame, virtio));
    }
    let link = Rate::from_mbit(10_000);
    let mut pacer = Pacer::new(&PacerConfig::strict(link)).expect("sound");
    let guarantee = Guarantee::new(Rate::from_mbit(100), Bytes(30_000), link);
    for guest in 0..2 {
        pacer
            .set_guest(Nanos(1), GuestId::first(guest), Some(&guarantee))
            .expect("sound");
    }
    let limit = Some(Rate::from_mbit(50));
    pacer
        .set_destination(Nanos(1), GuestId::first(0), destination, limit)
        .expect("sound");
    let pool = Pool::new();
    for round in 0..3 {
        paced_burst(&mut pacer, &pool, &packets, round);
    }
    let counted = allocation_counter::measure(|| {
        for round in 3..20 {
            paced_burst(&mut pacer, &pool, &packets, round);
        }
    });
    assert_eq!(counted.count_total, 0);
    let stats = pacer.stats();
    assert!(stats.guaranteed.packets > 1000 && stats.best_effort.packets > 500);
    assert!(stats.voids.packets > 1000 && stats.unread > 10, "{stats:?}");
}

/// Bursts of several flows of two guests that exceed their guarantees, on an idle wire: some flows
/// become elastic, are held and continue as guaranteed.
fn elastic_burst(
    pacer: &mut Pacer<Packet>,
    pool: &Pool,
    flows: &[(Vec<u8>, [u8; 10])],
    round: u32,
) {
    let mut now = Nanos::from_secs(1) + Nanos::from_millis(u64::from(round) * 200);
    for _ in 0..20 {
        for guest in 0..2 {
            for (frame, virtio) in flows {
                pacer.enqueue(now, read(pool, frame, *virtio, guest));
            }
        }
        now += Nanos::from_micros(200);
        while pacer.poll_at().is_some_and(|at| at <= now) {
            pacer.batch(now).for_each(drop);
        }
    }
    while let Some(at) = pacer.poll_at() {
        now = now.max(at);
        pacer.batch(now).for_each(drop);
    }
}

#[test]
fn warm_elastic_flows_allocate_no_memory() {
    let flows = (0..6).map(|flow| {
        let tcp = Tcp {
            payload: [1448, 30_000][flow % 2],
            ..Tcp::default()
        };
        let mut frame = tcp.frame();
        // Its source port, behind the headers of Ethernet and IPv4.
        frame[35] = flow as u8;
        (frame, tcp.virtio())
    });
    let flows: Vec<_> = flows.collect();
    let link = Rate::from_mbit(10_000);
    let mut pacer = Pacer::new(&PacerConfig::new(link)).expect("sound");
    let guarantee = Guarantee::new(Rate::from_mbit(100), Bytes(30_000), link);
    for guest in 0..2 {
        pacer
            .set_guest(Nanos(1), GuestId::first(guest), Some(&guarantee))
            .expect("sound");
    }
    let pool = Pool::new();
    for round in 0..3 {
        elastic_burst(&mut pacer, &pool, &flows, round);
    }
    let before = pacer.stats();
    let counted = allocation_counter::measure(|| {
        for round in 3..20 {
            elastic_burst(&mut pacer, &pool, &flows, round);
        }
    });
    assert_eq!(counted.count_total, 0);
    let stats = pacer.stats();
    assert!(
        stats.elastic.packets - before.elastic.packets > 1000,
        "{stats:?}"
    );
    assert!(
        stats.guaranteed.packets - before.guaranteed.packets > 100,
        "{stats:?}"
    );
}

/// A TCP segment between a guest and its peer, whose checksum the host's stack vouches for.
fn between(pool: &Pool, to_guest: bool, numbers: [u32; 2], flags: u8, payload: usize) -> Packet {
    let tcp = Tcp {
        sequence: numbers[0],
        flags,
        payload,
        gso: 0,
        ..Tcp::default()
    };
    let mut frame = tcp.frame();
    frame[42..46].copy_from_slice(&numbers[1].to_be_bytes());
    frame[48..50].copy_from_slice(&60_000_u16.to_be_bytes());
    if !to_guest {
        // Stations, addresses and ports the other way.
        for (at, len) in [(0, 6), (26, 4), (34, 2)] {
            let (front, back) = frame.split_at_mut(at + len);
            front[at..].swap_with_slice(&mut back[..len]);
        }
    }
    let start = Packet::HEADROOM;
    let mut buffer = pool.buffer(start + frame.len());
    buffer[start..start + frame.len()].copy_from_slice(&frame);
    let vouched = to_guest.then_some([2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let source = (!to_guest).then_some(GuestId::first(0));
    Packet::new(buffer, start, frame.len(), vouched, source).expect("well formed")
}

/// Segments that are acknowledged early, some of which the guest reports as lost, and the guest's
/// own acknowledgements.
fn acknowledged_early(snoop: &mut Snoop<Packet>, pool: &Pool, round: u32) {
    let mut now = Nanos::from_secs(1) + Nanos::from_secs(u64::from(round));
    let first = 1 + round * 20 * 1448;
    for n in 0..20 {
        let segment = between(pool, true, [first + n * 1448, 100], 0x10, 1448);
        assert!(snoop.handle_ingress(now, segment).is_some());
        let lost = round % 2 == 1 && n == 19;
        snoop.handle_placed(if lost {
            RingPlacement::Lost
        } else {
            RingPlacement::All
        });
        while snoop.poll_to_peer().is_some() {}
    }
    for ack in [0, 0, 0, 0, 4, 10, 19, 20] {
        let said = between(pool, false, [100, first + ack * 1448], 0x10, 0);
        drop(snoop.handle_egress(now, said, Origin::OUTSIDE));
        while snoop.poll_to_guest().is_some() {}
        now += Nanos::from_millis(1);
    }
    snoop.handle_timeout(now + Nanos::from_millis(400));
    assert!(!snoop.owes());
}

#[test]
fn warm_early_acknowledgement_allocates_no_memory() {
    for mode in [SnoopMode::Retaining, SnoopMode::Strict] {
        let pool = Pool::new();
        let maker = TcpMaker {
            pool: pool.clone(),
            guest: GuestId::first(0),
        };
        let config = SnoopConfig {
            mode,
            ..SnoopConfig::default()
        };
        let mut snoop = Snoop::new(config, maker);
        for (numbers, flags) in [([99, 1], 0x12), ([100, 1], 0x10)] {
            let said = between(&pool, false, numbers, flags, 0);
            drop(snoop.handle_egress(Nanos::from_secs(1), said, Origin::OUTSIDE));
        }
        for round in 0..4 {
            acknowledged_early(&mut snoop, &pool, round);
        }
        // The frames themselves are made of vectors: their allocations are counted separately.
        let frames = allocation_counter::measure(|| {
            for ack in 0..28 {
                let to_guest = ack < 20;
                let len = if to_guest { 1448 } else { 0 };
                drop(between(&pool, to_guest, [1, 1], 0x10, len));
            }
        });
        let before = snoop.stats().early;
        let counted = allocation_counter::measure(|| {
            for round in 4..24 {
                acknowledged_early(&mut snoop, &pool, round);
            }
        });
        assert_eq!(counted.count_total, 20 * frames.count_total, "{mode:?}");
        assert!(snoop.stats().early - before >= 380, "{:?}", snoop.stats());
    }
}

#[test]
fn the_counter_counts() {
    let counted = allocation_counter::measure(|| drop(Pool::new().buffer(1)));
    assert!(counted.count_total > 0);
}
