use super::*;
use crate::GuestId;
use crate::testing::Record;
use proptest::prelude::*;
use std::collections::BTreeMap;
use tailbound_units::Rate;

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
fn guests_share_the_wire_equally_for_any_packet_size() {
    let small = (0..5000).map(|id| Record::new(id, 1, 60));
    let large = (0..500).map(|id| Record::new(id, 2, 1514));
    let huge = (0..20).map(|id| Record::new(id, 3, 64_000));
    let outside = (0..500).map(|id| Record {
        source: None,
        ..Record::new(id, 0, 1000)
    });
    let frames = small.chain(large).chain(huge).chain(outside);
    let mut queue = filled(FqCodelConfig::default(), frames);
    let mut sent = BTreeMap::new();
    while sent.values().sum::<u64>() < 1_000_000 {
        let frame = pull(&mut queue).expect("more waits");
        *sent.entry(frame.source).or_default() += on_the_wire(frame.len).0;
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
    assert_eq!(stats.drops.overload, u64::from(BATCH));
    // They slow their sender down as CoDel's own would.
    let counts = queue.flows.all.iter().map(|flow| flow.control.count());
    assert_eq!(counts.max(), Some(BATCH));
    let left: Vec<_> = std::iter::from_fn(|| pull(&mut queue)).collect();
    let of = |guest| {
        left.iter()
            .filter(move |f| f.source == Some(GuestId::first(guest)))
    };
    assert_eq!(of(2).count(), 11, "the small flow loses nothing");
    assert_eq!(of(1).map(|f| f.id).min(), Some(u64::from(BATCH)));
}

#[test]
fn fq_codel_bounds_its_memory_under_huge_packets() {
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
    let loops = queue.flows.all.iter().map(|flow| flow.control.dropping());
    assert_eq!(loops.collect::<Vec<_>>(), [true, false]);
}

proptest! {
    #[test]
    fn fq_codel_delivers_in_order_or_counts_a_drop(
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

fn of(id: u64, guest: u32, connection: u32, len: usize) -> Record {
    Record {
        connection: connection.wrapping_mul(0x9e37_79b9),
        ..Record::new(id, guest, len)
    }
}

#[test]
fn a_message_does_not_wait_behind_the_bulk_of_its_own_guest() {
    let bulk = (0..1000).map(|id| of(id, 1, 1, 1514));
    let mut queue = filled(FqCodelConfig::default(), bulk);
    assert_eq!(pull(&mut queue).map(|f| f.id), Some(0));
    push(&mut queue, &mut QueueStats::default(), of(5000, 1, 2, 100));
    assert_eq!(pull(&mut queue).map(|f| f.id), Some(5000));
}

#[test]
fn a_guest_gets_no_more_by_opening_connections() {
    // Nor is it served before others that were idle: each of its connections is new.
    let many = (0..2000).map(|id| of(id, 1, id as u32, 500));
    let one = (0..2000).map(|id| of(10_000 + id, 2, 0, 500));
    let mut queue = filled(FqCodelConfig::default(), many.chain(one));
    let mut sent = [0_u32; 3];
    for step in 0..1000 {
        let frame = pull(&mut queue).expect("more waits");
        sent[frame.source.map_or(0, GuestId::slot)] += 1;
        assert!(sent[1] <= sent[2] + 5, "after {step}");
    }
    assert!(sent[1].abs_diff(sent[2]) <= 5, "{sent:?}");
    push(
        &mut queue,
        &mut QueueStats::default(),
        of(50_000, 3, 0, 100),
    );
    let position = (0..10).position(|_| pull(&mut queue).is_some_and(|f| f.id == 50_000));
    assert!(
        position.is_some_and(|position| position <= 4),
        "{position:?}"
    );
}

#[test]
fn a_flood_of_one_outsider_does_not_hold_up_another_nor_a_guest() {
    let outside = |id, sender| Record {
        source: None,
        ..of(id, 0, sender, 1514)
    };
    let mut queue = filled(FqCodelConfig::default(), (0..1000).map(|id| outside(id, 1)));
    assert_eq!(pull(&mut queue).map(|f| f.id), Some(0));
    push(&mut queue, &mut QueueStats::default(), outside(5000, 2));
    assert_eq!(pull(&mut queue).map(|f| f.id), Some(5000));
    push(&mut queue, &mut QueueStats::default(), of(6000, 7, 0, 100));
    let soon: Vec<_> = (0..2)
        .filter_map(|_| pull(&mut queue))
        .map(|f| f.id)
        .collect();
    assert!(soon.contains(&6000), "{soon:?}");
}

#[test]
fn flows_are_forgotten_when_idle_and_no_more_are_kept_than_wait() {
    let config = FqCodelConfig {
        flows: 1 << 16,
        ..FqCodelConfig::default()
    };
    let mut queue = filled(config, []);
    queue.flows = Flows::new(64);
    let mut stats = QueueStats::default();
    for id in 0..20_000 {
        push(
            &mut queue,
            &mut stats,
            of(id, id as u32 % 7, id as u32, 100),
        );
        if id % 10 == 9 {
            while pull(&mut queue).is_some() {}
        }
    }
    assert!(queue.flows.all.len() <= 90, "{}", queue.flows.all.len());
    assert_eq!(stats.drops.total(), 0);
}

#[test]
fn a_later_guest_of_a_slot_does_not_wait_behind_the_former() {
    let (former, later) = (GuestId::first(1), GuestId::first(1).successor());
    let from = |id, guest| Record {
        source: Some(guest),
        ..Record::new(id, 1, 1514)
    };
    let mut queue = filled(
        FqCodelConfig::default(),
        (0..100).map(|id| from(id, former)),
    );
    let mut stats = QueueStats::default();
    assert_eq!(pull(&mut queue).map(|f| f.id), Some(0));
    push(&mut queue, &mut stats, from(500, later));
    assert_eq!(pull(&mut queue).map(|f| f.id), Some(500));
    while pull(&mut queue).is_some() {}
    // The former guest's source is reused.
    push(&mut queue, &mut stats, Record::new(0, 2, 100));
    assert_eq!(queue.sources.all.len(), 3);
}

#[test]
fn guests_that_hold_much_memory_with_little_bytes_lose_first() {
    // 60 bytes hold a buffer, as 1,514 do: a guest that floods with the smallest frames is the one
    // that fills the queue.
    let small = |id| Record {
        truesize: Some(2304),
        ..Record::new(id, 1, 60)
    };
    let full = |id| Record {
        truesize: Some(2304),
        ..Record::new(id, 2, 1514)
    };
    let config = FqCodelConfig {
        memory: Bytes(2304 * 1000),
        ..FqCodelConfig::default()
    };
    let mut queue = filled(config, (0..200).map(full));
    let mut stats = QueueStats::default();
    for id in 0..5000 {
        push(&mut queue, &mut stats, small(id));
        assert!(queue.backlog().memory <= config.memory);
    }
    assert!(stats.drops.overload > 3000);
    let left = std::iter::from_fn(|| pull(&mut queue));
    assert_eq!(left.filter(|frame| frame.len == 1514).count(), 200);
}

/// One flow with TCP's additive increase and multiplicative decrease (Reno) at 10 Mbit/s
/// and 10 ms, for a minute. Once, `large` frames of another guest. Returns the waits of
/// the flow's packets, sorted.
fn reno(large: Option<Record>) -> Vec<u64> {
    const RATE: Rate = Rate::from_mbit(10);
    let mut queue = FqCodel::new(FqCodelConfig::default());
    let mut stats = QueueStats::default();
    let (mut now, mut id) = (NOW, 0);
    let (mut window, mut flying, mut recovers) = (10.0_f64, 0_u64, 0);
    // When acknowledgements come, and of which packet; the last one that came.
    let (mut acks, mut latest) = (std::collections::VecDeque::<(Nanos, u64)>::new(), 0);
    let mut waits = Vec::new();
    let mut large = large;
    while now < NOW + Nanos::from_secs(60) {
        while let Some(&(at, acked)) = acks.front()
            && at <= now
        {
            acks.pop_front();
            // Those that are missing were dropped.
            let lost = acked - latest - 1;
            flying -= lost + 1;
            if lost > 0 && acked > recovers {
                window = (window / 2.0).max(2.0);
                recovers = id;
            } else {
                window += 1.0 / window;
            }
            latest = acked;
        }
        let mut push = |frame| {
            let enqueued = now;
            queue.enqueue(Queued { frame, enqueued }, &mut stats);
        };
        while (flying as f64) < window.floor() {
            id += 1;
            flying += 1;
            push(Record::new(id, 1, 1514));
        }
        if now > NOW + Nanos::from_secs(1)
            && let Some(frame) = large.take()
        {
            push(frame);
        }
        let Some(left) = queue.dequeue(now, &mut stats) else {
            now = acks
                .front()
                .map_or(now + Nanos::from_millis(1), |(at, _)| (*at).max(now));
            continue;
        };
        let waited = now.since(left.enqueued);
        now += RATE.time_for(Bytes(left.frame.len as u64));
        if left.frame.source == Some(GuestId::first(1)) {
            waits.push(waited.0);
            acks.push_back((now + Nanos::from_millis(10), left.frame.id));
        }
    }
    waits.sort_unstable();
    waits
}

#[test]
fn one_large_frame_of_another_guest_does_not_switch_codel_off() {
    // With the longest frame ever seen in place of the MTU, the 99th percentile was 53 ms.
    let at = |waits: &[u64], percent: usize| waits[waits.len() * percent / 100];
    let alone = reno(None);
    let beside = reno(Some(Record::new(0, 2, 64_000)));
    assert!(alone.len() > 40_000, "the link is busy: {}", alone.len());
    for percent in [50, 99] {
        let (alone, beside) = (at(&alone, percent), at(&beside, percent));
        assert!(alone < 16_000_000, "{percent} %: {alone} ns");
        assert!(
            beside.abs_diff(alone) < alone / 20,
            "{percent} %: {alone}, {beside}"
        );
    }
}

#[test]
fn scalable_senders_are_marked_as_soon_as_their_packets_wait() {
    let mut queue = FqCodel::new(FqCodelConfig {
        ce_threshold: Some(Nanos::from_millis(1)),
        ecn: false,
        ..FqCodelConfig::default()
    });
    let mut stats = QueueStats::default();
    for (id, is_scalable, waited) in [(0, true, 999), (1, true, 1001), (2, false, 1001)] {
        let frame = Record {
            takes_marks: true,
            is_scalable,
            ..Record::new(id, 1, 1514)
        };
        push(&mut queue, &mut stats, frame);
        let left = queue.dequeue(NOW + Nanos::from_micros(waited), &mut stats);
        let marked = left.is_some_and(|queued| queued.frame.marked);
        assert_eq!(marked, id == 1);
    }
    assert_eq!((stats.marked_scalable, stats.marked), (1, 0));
}

/// A guest that opens a connection for each packet has its flows emptied by an overload, and all of
/// them wait for their turns without packets.
#[test]
fn flows_that_overloads_have_emptied_do_not_hold_up_the_next_overload() {
    let config = FqCodelConfig {
        packets: 500,
        ..FqCodelConfig::default()
    };
    let mut queue = FqCodel::new(config);
    let mut stats = QueueStats::default();
    for id in 0..20_000 {
        push(&mut queue, &mut stats, of(id, 1, id as u32, 60));
        assert!(queue.backlog().packets <= 500);
    }
    assert_eq!(stats.drops.overload, 19_500);
    assert_eq!(std::iter::from_fn(|| pull(&mut queue)).count(), 500);
}

/// Fills the queue with frames of this number of flows, and empties it.
fn fill_and_empty(queue: &mut FqCodel<Record>, flows: u32) {
    let mut stats = QueueStats::default();
    for n in 0..flows {
        let frame = Record {
            connection: n.wrapping_mul(0x9e37_79b9),
            ..Record::new(n.into(), n % 40, 100)
        };
        push(queue, &mut stats, frame);
    }
    while pull(queue).is_some() {}
    assert_eq!(stats.drops.total(), 0);
}

#[test]
fn an_idle_queue_frees_its_slots_and_flows() {
    let config = FqCodelConfig {
        packets: 100_000,
        memory: Bytes(1 << 30),
        ..FqCodelConfig::default()
    };
    let mut queue = FqCodel::new(config);
    assert_eq!(queue.give_back(), Spare::Nothing);
    for _ in 0..2 {
        fill_and_empty(&mut queue, 40_000);
        assert!(!queue.flows.all.is_empty());
        let places = queue.frames.places();
        assert!(places >= 40_000);
        // While it is in use it keeps what it has.
        for _ in 0..3 {
            fill_and_empty(&mut queue, 2);
            assert_eq!(queue.give_back(), Spare::InUse);
        }
        push(
            &mut queue,
            &mut QueueStats::default(),
            Record::new(1, 1, 100),
        );
        assert_eq!(queue.give_back(), Spare::InUse);
        assert_eq!(pull(&mut queue).map(|frame| frame.id), Some(1));
        assert_eq!(queue.give_back(), Spare::InUse);
        assert_eq!(queue.frames.places(), places);
        let mut looks = 0;
        while queue.give_back() == Spare::More {
            let before = places.saturating_sub(looks * 16 * 1024);
            assert!(queue.frames.places() < before, "a bounded part each time");
            looks += 1;
        }
        assert!((3..5).contains(&looks), "{looks}");
        assert_eq!((queue.frames.places(), queue.flows.all.len()), (0, 0));
        assert_eq!(queue.sources.all.len(), 1);
    }
}

proptest! {
    /// Frees memory between any operations: frames leave in the same order.
    #[test]
    fn freeing_memory_changes_no_order_of_frames(
        steps in prop::collection::vec((0_u32..5, 0_u64..40, 0_usize..60, any::<bool>()), 1..60),
    ) {
        let queue = || FqCodel::new(FqCodelConfig::default());
        let (mut kept, mut given) = (queue(), queue());
        let mut stats = QueueStats::default();
        let mut id = 0;
        for (guest, frames, pulls, gives) in steps {
            for _ in 0..frames {
                id += 1;
                for queue in [&mut kept, &mut given] {
                    push(queue, &mut stats, Record::new(id, guest, 700));
                }
            }
            for _ in 0..pulls {
                prop_assert_eq!(pull(&mut kept).map(|f| f.id), pull(&mut given).map(|f| f.id));
            }
            if gives {
                // Without waiting frames all turns end before: forgotten flows are idle.
                prop_assert!(kept.backlog().packets > 0 || pull(&mut kept).is_none());
                prop_assert!(given.backlog().packets > 0 || pull(&mut given).is_none());
                let looked = given.give_back();
                prop_assert!(given.backlog().packets == 0 || looked == Spare::InUse);
            }
            prop_assert_eq!(kept.backlog(), given.backlog());
        }
    }
}

proptest! {
    /// The short end of the only turn leaves the queue in the state that a search for a frame does:
    /// all later frames leave in the same order, or are dropped.
    #[test]
    fn the_short_end_of_the_only_turn_changes_no_order(
        steps in prop::collection::vec((0_u32..3, 0_u64..4, 0_usize..9, 0_u64..40), 1..80),
    ) {
        let queue = || FqCodel::new(FqCodelConfig::default());
        let (mut searched, mut ended) = (queue(), queue());
        let mut stats = [QueueStats::default(); 2];
        let (mut id, mut now) = (0, Nanos::ZERO);
        for (guest, frames, pulls, millis) in steps {
            for _ in 0..frames {
                id += 1;
                let frame = Record::new(id, guest, 700);
                for (queue, stats) in [&mut searched, &mut ended].into_iter().zip(&mut stats) {
                    let queued = Queued { frame, enqueued: now };
                    queue.enqueue(queued, stats);
                }
            }
            now += Nanos::from_millis(millis);
            for _ in 0..pulls {
                let [of_searched, of_ended] = &mut stats;
                let found = searched.dequeue(now, of_searched);
                let is_none = ended.is_empty() && ended.end_only_turn();
                let taken = if is_none { None } else { ended.dequeue(now, of_ended) };
                prop_assert_eq!(found.map(|it| it.frame.id), taken.map(|it| it.frame.id));
            }
            prop_assert_eq!(stats[0], stats[1]);
        }
    }
}

/// RFC 8290, 4.1 and 5.2, and Linux's number of flows.
#[test]
fn defaults_are_those_of_the_standard() {
    let fq = FqCodelConfig::default();
    assert_eq!((fq.flows, fq.packets), (1024, 10_240));
    assert_eq!((fq.quantum, fq.mtu), (Bytes(1514), Bytes(1514)));
    let times = (Nanos::from_millis(5), Nanos::from_millis(100));
    assert_eq!((fq.target, fq.interval), times);
    let codel = crate::queue::codel::CodelConfig::default();
    assert_eq!((codel.target, codel.interval), times);
    assert_eq!((codel.mtu, codel.packets), (Bytes(1514), 1000));
}

#[test]
fn a_queue_is_empty_as_long_as_it_has_no_frame() {
    let mut queue = filled(FqCodelConfig::default(), []);
    assert!(queue.is_empty());
    push(
        &mut queue,
        &mut QueueStats::default(),
        Record::new(1, 1, 100),
    );
    assert!(!queue.is_empty());
    assert!(pull(&mut queue).is_some());
    assert!(queue.is_empty());
}

/// More flows than the largest table are kept while they have frames, and no longer.
#[test]
fn idle_flows_beyond_the_largest_table_are_forgotten() {
    let config = FqCodelConfig {
        flows: usize::MAX,
        ..FqCodelConfig::default()
    };
    let mut queue = filled(config, []);
    for n in 0..80_000 {
        let frame = of(n.into(), 1 + n % 2, n, 100);
        push(&mut queue, &mut QueueStats::default(), frame);
        assert!(pull(&mut queue).is_some() && pull(&mut queue).is_none());
    }
    assert_eq!(queue.flows.all.len(), 65_536);
}
