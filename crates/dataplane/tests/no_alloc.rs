//! The packet path allocates nothing for a packet once it is warm.

use tailbound_dataplane::shaper::{BucketConfig, CreditConfig, WindowConfig};
use tailbound_dataplane::{
    Classes, CodelConfig, Fabric, FifoConfig, FqCodelConfig, Frame, Guarantee, GuestId,
    MeterConfig, NicConfig, Pacer, PacerConfig, Packet, Pipeline, PipelineConfig, Pool,
    PriorityConfig, QueueConfig, Shaper, ShaperConfig,
};
use tailbound_units::{Bytes, Nanos, Rate};

#[path = "../src/testing/tcp.rs"]
mod tcp;
use tcp::Tcp;

/// What a port does: a frame from outside is read into a buffer of the pool.
fn read(pool: &Pool, frame: &[u8], virtio: [u8; 10], guest: u32) -> Packet {
    let mut buffer = pool.buffer(Pool::LARGE);
    let start = Packet::HEADROOM;
    buffer[start..start + frame.len()].copy_from_slice(frame);
    let source = Some(GuestId::first(guest));
    Packet::new(buffer, start, frame.len(), Some(virtio), source).expect("well formed")
}

/// Bursts of all kinds of packets from four guests to many addresses, some more
/// than the queue takes; everything is written out.
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
fn nothing_is_allocated_once_it_is_warm() {
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

/// Bursts of all kinds of packets from one guest; everything is handed over.
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
fn nothing_is_allocated_by_a_limit_once_it_is_warm() {
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

/// Bursts of all kinds of packets from two guaranteed guests and one without a
/// guarantee; everything is handed over.
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
fn nothing_is_allocated_by_a_pacer_once_it_is_warm() {
    let mut packets = Vec::new();
    let mut destination = 0;
    for payload in [0, 100, 1448, 30_000, 65_000] {
        let tcp = Tcp {
            payload,
            ..Tcp::default()
        };
        let (frame, virtio) = (tcp.frame(), tcp.virtio());
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

/// Bursts of several flows of two guests that offer more than they are guaranteed, on a wire
/// that is idle: some become elastic, are held and go on as guaranteed.
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
fn nothing_is_allocated_for_elastic_flows_once_it_is_warm() {
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

#[test]
fn the_counter_counts() {
    let counted = allocation_counter::measure(|| drop(Pool::new().buffer(1)));
    assert!(counted.count_total > 0);
}
