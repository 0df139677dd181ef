use super::*;
use crate::queue::{FifoConfig, FqCodelConfig};
use crate::testing::tcp::Tcp;
use crate::testing::{Record, packet};
use crate::{Class, Classes, Fabric, Packet};
use proptest::prelude::*;
use tailbound_units::{Bytes, Rate};

fn patched() -> PipelineConfig {
    PipelineConfig {
        meter: Some(MeterConfig::default()),
        segment: true,
        queue: QueueConfig::FqCodel(FqCodelConfig::default()),
        limit: None,
        nic: Some(NicConfig::new(Rate::from_mbit(100))),
        classes: Some(Classes::of(Fabric::SmallFlowsFirst)),
    }
}

fn drained(pipeline: &mut Pipeline<Record>, now: Nanos) -> Vec<u64> {
    std::iter::from_fn(|| pipeline.pull(now))
        .map(|departure| departure.frame.id)
        .collect()
}

#[test]
fn large_packets_are_metered_whole_and_leave_as_segments() {
    let mut pipeline: Pipeline<Packet> = Pipeline::new(&PipelineConfig {
        nic: None,
        ..patched()
    });
    let large = Tcp::default();
    let small = Tcp {
        payload: 2000,
        ..Tcp::default()
    };
    let now = Nanos::from_secs(1);
    for tcp in [&small, &large] {
        pipeline.push(
            now,
            packet(&tcp.frame(), Some(tcp.virtio())).expect("valid"),
        );
    }
    let classes: Vec<_> = std::iter::from_fn(|| pipeline.pull(now))
        .inspect(|departure| assert!(departure.frame.len() <= 1514))
        .map(|departure| departure.frame.class())
        .collect();
    assert_eq!(classes.len(), 2 + 45);
    assert_eq!(classes[..2], [Class::Small; 2]);
    assert_eq!(classes[2..], [Class::Lowest; 45]);
    assert_eq!(pipeline.stats().frames, 2);
    assert_eq!(pipeline.stats().segmented, 2);
    assert_eq!(pipeline.stats().meter.small, 1);
    assert_eq!(pipeline.stats().queue.pulled.packets, 47);
}

#[test]
fn the_default_pipeline_queues_unsegmented_packets_in_a_fifo() {
    let mut pipeline: Pipeline<Record> = Pipeline::new(&PipelineConfig::default());
    for id in 0..1001 {
        pipeline.push(Nanos(id), Record::new(id, 1, 64_000));
    }
    assert_eq!(pipeline.stats().queue.drops.full, 1);
    let first = pipeline.pull(Nanos(5000)).expect("waits");
    assert_eq!((first.frame.len, first.sojourn), (64_000, Nanos(5000)));
}

#[test]
fn the_nic_queue_paces_and_poll_at_says_when() {
    let mut pipeline: Pipeline<Record> = Pipeline::new(&patched());
    assert_eq!(pipeline.poll_at(), None);
    let start = Nanos::from_secs(1);
    for id in 0..100 {
        pipeline.push(start, Record::new(id, 1, 1250));
    }
    let (mut now, mut sent) = (start, 0);
    while let Some(at) = pipeline.poll_at() {
        assert!(at >= now, "never into the past");
        if at > now {
            assert!(pipeline.pull(Nanos(at.0 - 1)).is_none(), "not earlier");
        }
        now = at;
        let departure = pipeline.pull(now).expect("poll_at promised it");
        assert_eq!(departure.sojourn, now.since(start));
        sent += 1;
    }
    assert_eq!(sent, 100);
    // 100 frames of 100 us, less the three that the NIC holds.
    assert_eq!(now, start + Nanos::from_micros(9_600) + Nanos(1));
}

#[test]
fn a_change_keeps_packets_in_flight_in_order() {
    let kinds = [
        r#"{"kind":"fifo"}"#,
        r#"{"kind":"codel"}"#,
        r#"{"kind":"fq-codel","packets":5}"#,
        r#"{"kind":"priority"}"#,
        r#"{"kind":"fifo","packets":3}"#,
    ];
    let mut pipeline = Pipeline::new(&PipelineConfig::default());
    for id in 0..50u64 {
        // Two of a guest at each moment.
        pipeline.push(Nanos(id / 2), Record::new(id, (id / 2 % 4) as u32, 100));
    }
    for kind in kinds {
        let queue = serde_json::from_str(kind).expect("a queue");
        let config = PipelineConfig {
            queue,
            ..PipelineConfig::default()
        };
        pipeline.reconfigure(Nanos(30), &config);
        assert_eq!(pipeline.backlog().packets, 50);
        assert_eq!(pipeline.backlog().bytes, Bytes(5000));
    }
    // The limit applies to new frames.
    pipeline.push(Nanos(30), Record::new(50, 1, 100));
    assert_eq!(pipeline.stats().queue.drops.full, 1);
    let order = drained(&mut pipeline, Nanos(40));
    assert_eq!(order, (0..50).collect::<Vec<_>>());
}

#[test]
fn a_rate_change_keeps_the_queue_and_the_bytes_in_the_nic() {
    let mut pipeline = Pipeline::new(&patched());
    let now = Nanos::from_secs(1);
    for id in 0..10 {
        pipeline.push(now, Record::new(id, 1, 1250));
    }
    assert_eq!(drained(&mut pipeline, now), [0, 1, 2]);
    let faster = PipelineConfig {
        nic: Some(NicConfig {
            limit: Some(Bytes(3750)),
            ..NicConfig::new(Rate::from_mbit(1000))
        }),
        ..patched()
    };
    pipeline.reconfigure(now, &faster);
    assert_eq!(pipeline.poll_at(), Some(now + Nanos(1)));
    let nic_off = PipelineConfig {
        nic: None,
        ..patched()
    };
    pipeline.reconfigure(now, &nic_off);
    assert_eq!(drained(&mut pipeline, now), [3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn unknown_pipeline_keys_and_kinds_are_refused() {
    let read = serde_json::from_str::<PipelineConfig>;
    let full = r#"{"meter":{"rate":"10Mbit/s","burst":"30KB"},"segment":true,
        "queue":{"kind":"fq-codel"},"nic":{"rate":"100Mbit/s","limit":"3750B"}}"#;
    let config = read(full).expect("valid");
    assert_eq!(config.meter, patched().meter);
    assert_eq!(config.queue, patched().queue);
    let again = serde_json::to_string(&config).expect("can be written");
    assert_eq!(read(&again).expect("valid"), config);
    assert_eq!(read("{}").expect("valid"), PipelineConfig::default());
    for wrong in [
        r#"{"segments":true}"#,
        r#"{"meter":{"speed":"1Mbit/s"}}"#,
        r#"{"queue":{"kind":"fifo","flows":3}}"#,
        r#"{"queue":{"kind":"red"}}"#,
        r#"{"nic":{"rate":"1Gbit/s","ring":5}}"#,
    ] {
        let error = read(wrong).expect_err(wrong).to_string();
        assert!(error.contains("unknown"), "{error}");
    }
}

proptest! {
    /// After any calls, each frame was pulled, was dropped, or waits.
    #[test]
    fn frames_are_pulled_dropped_or_waiting(
        steps in prop::collection::vec((0u64..3_000_000, 0u32..4, 60usize..5000, 0u8..8), 1..400),
    ) {
        let configs = [
            PipelineConfig::default(),
            patched(),
            PipelineConfig {
                queue: QueueConfig::Fifo(FifoConfig { packets: 5, ..FifoConfig::default() }),
                ..patched()
            },
        ];
        let mut pipeline = Pipeline::new(&configs[0]);
        let mut now = Nanos::ZERO;
        for (gap, guest, len, action) in steps {
            now += Nanos(gap);
            match action {
                0..=3 => pipeline.push(now, Record::new(0, guest, len)),
                4..=6 => drop(pipeline.pull(now)),
                _ => pipeline.reconfigure(now, &configs[len % 3]),
            }
            let stats = pipeline.stats().queue;
            let waiting = pipeline.backlog().packets as u64;
            let seen = stats.pulled.packets + stats.drops.total() + waiting;
            prop_assert_eq!(stats.pushed.packets, seen);
            prop_assert_eq!(pipeline.poll_at().is_some(), waiting > 0);
        }
    }
}
