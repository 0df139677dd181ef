use super::*;
use crate::testing::Record;
use proptest::prelude::*;
use std::collections::BTreeMap;

const NOW: Nanos = Nanos(1_000_000_000);

fn push(queue: &mut FqCodel<Record>, stats: &mut QueueStats, frame: Record) {
    queue.enqueue(
        Queued {
            frame,
            enqueued: NOW,
        },
        stats,
    );
}

fn filled(config: FqCodelConfig, frames: impl IntoIterator<Item = Record>) -> FqCodel<Record> {
    let mut queue = FqCodel::new(config);
    let mut stats = QueueStats::default();
    for frame in frames {
        push(&mut queue, &mut stats, frame);
    }
    assert_eq!(stats.drops.total(), 0);
    queue
}

fn pull(queue: &mut FqCodel<Record>) -> Option<Record> {
    let mut stats = QueueStats::default();
    queue.dequeue(NOW, &mut stats).map(|queued| queued.frame)
}

#[test]
fn a_packet_of_an_idle_guest_goes_before_a_standing_queue() {
    let bulk = (0..1000).map(|id| Record::new(id, 1, 1514));
    let mut queue = filled(FqCodelConfig::default(), bulk);
    // The bulk flow uses its turn as a new flow up.
    assert_eq!(pull(&mut queue).map(|f| f.id), Some(0));
    push(
        &mut queue,
        &mut QueueStats::default(),
        Record::new(5000, 2, 100),
    );
    assert_eq!(pull(&mut queue).map(|f| f.id), Some(5000));
    assert_eq!(pull(&mut queue).map(|f| f.id), Some(1));
}

#[test]
fn a_flow_that_emptied_as_new_is_not_new_again_at_once() {
    // RFC 8290, 4.2: else a flow that sends one packet at a time starves the old.
    let bulk = (0..100).map(|id| Record::new(id, 1 + id as u32 % 2, 1514));
    let mut queue = filled(FqCodelConfig::default(), bulk);
    let small = |id| Record::new(id, 3, 100);
    let mut stats = QueueStats::default();
    let next = |queue: &mut _| pull(queue).map(|frame| frame.id);
    // Both bulk flows use up their turns as new flows.
    assert_eq!((next(&mut queue), next(&mut queue)), (Some(0), Some(1)));
    push(&mut queue, &mut stats, small(1000));
    assert_eq!(next(&mut queue), Some(1000));
    // Here the small flow is found empty, and waits behind the others.
    assert_eq!(next(&mut queue), Some(2));
    push(&mut queue, &mut stats, small(1001));
    assert_eq!(next(&mut queue), Some(3));
    assert_eq!(next(&mut queue), Some(1001));
}

#[test]
fn guests_get_the_same_bytes_whatever_their_packets() {
    let small = (0..4000).map(|id| Record::new(id, 1, 100));
    let large = (0..500).map(|id| Record::new(id, 2, 1514));
    let huge = (0..20).map(|id| Record::new(id, 3, 64_000));
    let outside = (0..500).map(|id| Record {
        source: None,
        ..Record::new(id, 0, 1000)
    });
    let frames = small.chain(large).chain(huge).chain(outside);
    let mut queue = filled(FqCodelConfig::default(), frames);
    let mut sent = BTreeMap::new();
    while sent.values().sum::<usize>() < 1_000_000 {
        let frame = pull(&mut queue).expect("more waits");
        *sent.entry(frame.source).or_default() += frame.len;
    }
    assert_eq!(sent.len(), 4);
    for (source, bytes) in sent {
        // A huge packet overshoots its turn, and pays for it after.
        assert!(bytes.abs_diff(250_000) <= 64_000, "{source:?}: {bytes}");
    }
}

#[test]
fn the_longest_flow_loses_from_its_head_in_batches() {
    let config = FqCodelConfig {
        packets: 1000,
        ..FqCodelConfig::default()
    };
    let bulk = (0..990).map(|id| Record::new(id, 1, 1514));
    let small = (0..10).map(|id| Record::new(id, 2, 100));
    let mut queue = filled(config, bulk.chain(small));
    let mut stats = QueueStats::default();
    push(&mut queue, &mut stats, Record::new(10, 2, 100));
    assert_eq!(stats.drops.overload, BATCH as u64);
    let left: Vec<_> = std::iter::from_fn(|| pull(&mut queue)).collect();
    let of = |guest| {
        left.iter()
            .filter(move |f| f.source == Some(GuestId::first(guest)))
    };
    assert_eq!(of(2).count(), 11, "the small flow loses nothing");
    assert_eq!(of(1).map(|f| f.id).min(), Some(BATCH as u64));
}

#[test]
fn memory_is_bounded_whatever_the_packets() {
    let config = FqCodelConfig {
        memory: Bytes(1_000_000),
        ..FqCodelConfig::default()
    };
    let mut queue = FqCodel::new(config);
    let mut stats = QueueStats::default();
    for id in 0..1000 {
        push(
            &mut queue,
            &mut stats,
            Record::new(id, id as u32 % 3, 64_000),
        );
        assert!(queue.backlog().bytes <= config.memory);
    }
    assert!(stats.drops.overload > 900);
}

#[test]
fn guests_beyond_the_flows_share_and_lose_nothing() {
    let config = FqCodelConfig {
        flows: 4,
        ..FqCodelConfig::default()
    };
    let frames = (0..100).map(|id| Record::new(id, u32::MAX - id as u32, 100));
    let mut queue = filled(config, frames);
    assert!(queue.flows.len() <= 4);
    assert_eq!(std::iter::from_fn(|| pull(&mut queue)).count(), 100);
}

#[test]
fn each_guest_has_a_control_loop_of_its_own() {
    let mut queue = FqCodel::new(FqCodelConfig::default());
    let mut stats = QueueStats::default();
    let mut now = NOW;
    for id in 0..4000 {
        now += Nanos::from_micros(500);
        let mut push = |frame| {
            queue.enqueue(
                Queued {
                    frame,
                    enqueued: now,
                },
                &mut stats,
            );
        };
        push(Record::new(id, 1, 1514));
        push(Record::new(id, 1, 1514));
        if id % 10 == 0 {
            push(Record::new(id, 2, 100));
        }
        let left = queue.dequeue(now, &mut stats).expect("a queue stands");
        let waited = now.since(left.enqueued);
        assert!(left.frame.source == Some(GuestId::first(1)) || waited.0 <= 1_000_000);
    }
    assert!(stats.drops.codel > 10);
    let loops: Vec<_> = queue.flows.iter().map(|f| f.control.dropping()).collect();
    assert_eq!(loops, [false, false, true, false]);
}

proptest! {
    #[test]
    fn what_goes_in_comes_out_in_order_or_is_counted_as_dropped(
        steps in prop::collection::vec((0u32..5, 40usize..3000, 0usize..3), 1..800),
        packets in 1usize..100,
        memory in 3000u64..100_000,
    ) {
        let config = FqCodelConfig {
            packets,
            memory: Bytes(memory),
            ..FqCodelConfig::default()
        };
        let mut queue = FqCodel::new(config);
        let mut stats = QueueStats::default();
        let mut last = BTreeMap::new();
        let (mut now, mut pulled) = (NOW, 0u64);
        let total = steps.len() as u64;
        for (id, (guest, len, pulls)) in steps.into_iter().enumerate() {
            now += Nanos::from_millis(3);
            let frame = Record::new(id as u64, guest, len);
            queue.enqueue(Queued { frame, enqueued: now }, &mut stats);
            prop_assert!(queue.backlog().packets <= packets);
            prop_assert!(queue.backlog().bytes.0 <= memory);
            for _ in 0..pulls {
                if let Some(queued) = queue.dequeue(now, &mut stats) {
                    pulled += 1;
                    let before = last.insert(queued.frame.source, queued.frame.id);
                    prop_assert!(before < Some(queued.frame.id));
                }
            }
        }
        let left = queue.backlog().packets as u64;
        prop_assert_eq!(total, pulled + stats.drops.total() + left);
    }
}
