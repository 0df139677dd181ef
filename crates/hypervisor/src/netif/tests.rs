//! Each rule of the ring.

use super::*;
use proptest::prelude::*;

fn tuned() -> NetifConfig {
    NetifConfig {
        least_target: 192,
        ..NetifConfig::default()
    }
}

/// Passes `frames` frames and copies them; returns how many were placed, queued, dropped.
fn give(ring: &mut Receive<u32>, frames: u32) -> (u32, u32, u32) {
    let mut fates = (0, 0, 0);
    for frame in 0..frames {
        match ring.give(frame) {
            EnqueueResult::Placed => fates.0 += 1,
            EnqueueResult::Queued => fates.1 += 1,
            EnqueueResult::Dropped => fates.2 += 1,
        }
    }
    ring.answer();
    fates
}

/// The guest's turn: it takes all that is there; whether netback is sent an event.
fn drain(ring: &mut Receive<u32>) -> bool {
    let mut event = false;
    loop {
        let taken = (0..POLL_BUDGET).map_while(|_| ring.take()).count();
        event |= ring.end_poll();
        if taken < POLL_BUDGET && !ring.sleep() {
            return event;
        }
    }
}

#[test]
fn a_new_ring_has_its_least_target_posted_and_wants_twice_that() {
    // The first fill finds nothing posted: less than a quarter.
    for (config, target, room) in [(NetifConfig::default(), 128, 45), (tuned(), 256, 192 - 19)] {
        let ring = Receive::<u32>::new(config);
        assert_eq!((ring.target(), ring.room()), (target, room));
    }
}

#[test]
fn frames_fill_the_ring_then_32_queue_slots_then_drop() {
    let mut ring = Receive::new(NetifConfig::default());
    assert_eq!(give(&mut ring, 100), (45, 32, 23));
    assert_eq!((ring.waiting(), ring.dropped()), (45, 23));
    let mut ring = Receive::new(tuned());
    assert_eq!(give(&mut ring, 300), (173, 32, 95));
}

#[test]
fn without_scatter_gather_the_last_slot_is_used_too() {
    let config = NetifConfig {
        reserved: 1,
        ..NetifConfig::default()
    };
    assert_eq!(give(&mut Receive::new(config), 100), (64, 32, 4));
}

#[test]
fn few_missing_slots_are_not_posted() {
    let mut ring = Receive::new(NetifConfig::default());
    // All 64 are short of the target of 128, so the first turn posts.
    give(&mut ring, 1);
    drain(&mut ring);
    assert_eq!(ring.room(), 128 - 19);
    give(&mut ring, 40);
    drain(&mut ring);
    assert_eq!(ring.room(), 128 - 40 - 19, "40 of 127 are less than half");
    give(&mut ring, 30);
    drain(&mut ring);
    assert!(ring.room() > 100, "70 are more");
}

#[test]
fn the_ring_target_falls_by_one_per_idle_poll_to_the_minimum() {
    let mut ring = Receive::new(NetifConfig::default());
    let mut targets = Vec::new();
    for _ in 0..2_000 {
        give(&mut ring, 1);
        drain(&mut ring);
        targets.push(ring.target());
    }
    assert!(targets.windows(2).all(|pair| pair[0] - pair[1] <= 1));
    assert_eq!(*targets.last().expect("some"), 64);
}

/// The targets over bursts that fill the ring, after small ones.
fn targets_under_bursts(reserved: u32) -> Vec<u64> {
    let mut ring = Receive::new(NetifConfig {
        reserved,
        ..NetifConfig::default()
    });
    for _ in 0..2_000 {
        give(&mut ring, 1);
        drain(&mut ring);
    }
    let burst = |_| {
        give(&mut ring, 300);
        drain(&mut ring);
        ring.resume();
        ring.answer();
        drain(&mut ring);
        ring.target()
    };
    (0..4).map(burst).collect()
}

#[test]
fn the_target_doubles_when_less_than_a_quarter_is_left_up_to_256() {
    // The poll that finds little in use takes one off each time.
    assert_eq!(targets_under_bursts(1), [128, 254, 256, 254]);
}

#[test]
fn the_target_stays_where_netback_stops_before_a_quarter_is_left() {
    // 20 reserved slots are more than a quarter of 64.
    assert_eq!(targets_under_bursts(20), [64; 4]);
}

#[test]
fn an_event_is_sent_once_for_all_frames_until_the_guest_sleeps_again() {
    let mut ring = Receive::new(NetifConfig::default());
    assert!(!ring.answer(), "nothing was copied");
    ring.give(1);
    ring.give(2);
    assert!(ring.take().is_none(), "not copied yet");
    assert!(ring.answer());
    ring.give(3);
    assert!(!ring.answer(), "it is awake");
    assert_eq!([ring.take(), ring.take(), ring.take()], [1, 2, 3].map(Some));
    ring.give(4);
    assert!(!ring.answer());
    assert!(ring.sleep(), "one came meanwhile");
    assert_eq!(ring.take(), Some(4));
    assert!(!ring.sleep());
    ring.give(5);
    assert!(ring.answer());
}

#[test]
fn netback_is_notified_of_posted_slots_only_while_it_waits() {
    let mut ring = Receive::new(NetifConfig::default());
    give(&mut ring, 10);
    assert!(!drain(&mut ring));
    give(&mut ring, 300);
    assert_eq!(ring.room(), 0);
    assert_eq!(ring.resume(), 0, "nothing was posted");
    assert!(drain(&mut ring));
    assert_eq!(ring.resume(), 32);
}

#[test]
fn a_guest_sends_an_event_when_netback_has_seen_all() {
    let mut ring = Transmit::default();
    assert!(ring.send(1));
    assert!(!ring.send(2));
    assert_eq!(ring.take(), Some(1));
    assert!(!ring.send(3));
    assert_eq!(
        [ring.take(), ring.take(), ring.take()],
        [Some(2), Some(3), None]
    );
    assert!(ring.send(4));
}

proptest! {
    /// No frame is lost that was placed or queued, none changes its order, and a ring that
    /// the guest empties goes on for ever.
    #[test]
    fn frames_come_out_in_order_and_no_ring_gets_stuck(
        least in NetifConfig::TARGETS,
        reserved in 1_u32..=20,
        bursts in proptest::collection::vec(0_u32..300, 1..100),
    ) {
        let reserved = reserved.min(least / 2);
        let mut ring = Receive::new(NetifConfig { least_target: least, reserved, queue: 32 });
        let (mut sent, mut seen) = (0_u32, Vec::new());
        let mut kept = Vec::new();
        for burst in bursts {
            for _ in 0..burst {
                sent += 1;
                if ring.give(sent) != EnqueueResult::Dropped {
                    kept.push(sent);
                }
            }
            ring.answer();
            // The guest's turn, then netback's, until all is through.
            loop {
                while let Some(frame) = ring.take() {
                    seen.push(frame);
                }
                let heard = ring.end_poll();
                ring.sleep();
                if heard {
                    ring.resume();
                    ring.answer();
                } else if ring.waiting() == 0 {
                    break;
                }
            }
            prop_assert!(ring.room() > 0, "it takes more");
            prop_assert!(ring.target() <= u64::from(SLOTS));
        }
        prop_assert_eq!(seen, kept);
    }
}
