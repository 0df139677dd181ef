//! Departures are at most the limit and the depth, and no less; waiting frames stay in order.

use super::harness::{Bench, GuestFrame, constant};
use crate::queue::{FifoConfig, PriorityConfig, QueueConfig};
use crate::shaper::{BucketConfig, CreditConfig, ShaperConfig, WindowConfig};
use crate::{Class, Control, Frame, PacketRecord, Shaper};
use proptest::prelude::*;
use tailbound_units::{Bytes, Nanos, Rate};

fn bucket(rate: Rate) -> ShaperConfig {
    ShaperConfig::Bucket(BucketConfig::new(rate))
}

fn fifo(rate: Rate) -> ShaperConfig {
    ShaperConfig::Bucket(BucketConfig {
        queue: QueueConfig::Fifo(FifoConfig::default()),
        ..BucketConfig::new(rate)
    })
}

fn smooth(rate: Rate) -> ShaperConfig {
    ShaperConfig::SmoothWindow(WindowConfig::new(rate))
}

fn frames() -> impl Strategy<Value = Vec<GuestFrame>> {
    let control = prop_oneof![
        4 => Just(None),
        1 => Just(Some(Control::Acknowledgement)),
        1 => Just(Some(Control::Opening)),
        1 => Just(Some(Control::Closing)),
    ];
    let frame = (0u64..4_000_000, 60usize..=1514, 0u16..4, control);
    prop::collection::vec(frame, 1..300).prop_map(|frames| {
        let mut at = Nanos::from_secs(1);
        let frames = frames.into_iter().map(|(gap, len, port, control)| {
            // Some come at once.
            at += Nanos(if gap % 3 == 0 { 0 } else { gap });
            let len = if control.is_some() {
                60 + len % 69
            } else {
                len
            };
            GuestFrame {
                at,
                len,
                port,
                control,
            }
        });
        frames.collect()
    })
}

proptest! {
    #[test]
    fn over_any_time_no_more_leaves_than_limit_and_depth(
        frames in frames(), mbit in 1u64..50, kind in 0..3,
    ) {
        let rate = Rate::from_mbit(mbit);
        let config = [bucket, fifo, smooth][kind as usize](rate);
        let mut bench = Bench::new(&config);
        let sent = frames.len() as u64;
        bench.run(frames, Nanos::from_secs(600));
        let stats = bench.shaper.stats();
        let lost = bench.lost + stats.queue.drops.total();
        prop_assert_eq!(bench.left.len() as u64, sent - lost);
        let depth = rate.bytes_in(Nanos::from_millis(20)).0.max(3028);
        // One more packet if any bypassed the queue.
        let depth = depth + if stats.at_once.packets > 0 { 1514 } else { 0 };
        for (index, first) in bench.left.iter().enumerate() {
            let mut sum = 0;
            for last in &bench.left[index..] {
                sum += last.len as u64;
                let allowed = u128::from(rate.0) * u128::from(last.at.since(first.at).0);
                let allowed = allowed + u128::from(depth) * 8_000_000_000;
                prop_assert!(u128::from(sum) * 8_000_000_000 <= allowed,
                    "{sum} B in {}", last.at.since(first.at));
            }
        }
    }

    #[test]
    fn frames_queued_for_a_window_keep_their_order(
        frames in frames(), mbit in 1u64..50,
    ) {
        let config = smooth(Rate::from_mbit(mbit));
        let mut bench = Bench::new(&config);
        let frames = frames.into_iter().map(|frame| GuestFrame { control: None, ..frame });
        bench.run(frames, Nanos::from_secs(600));
        prop_assert!(bench.left.is_sorted_by_key(|left| left.id));
    }

    /// For any changes of the limit, no frame is lost and none overtakes another.
    #[test]
    fn a_shaper_change_keeps_queued_frames_in_order(
        count in 1usize..60, before in 0..3, after in 0..3, mbit in 1u64..20,
    ) {
        let credit = |rate| ShaperConfig::Credit(CreditConfig::new(rate, Nanos::from_millis(30)));
        let kinds = [fifo, smooth, credit];
        let mut shaper = Shaper::new(&kinds[before as usize](Rate::from_mbit(1))).expect("sound");
        let now = Nanos::from_secs(1);
        for id in 0..count as u64 {
            shaper.push(now, PacketRecord { id, ..PacketRecord::new(1000) });
        }
        let mut ids = Vec::new();
        while let Some(queued) = shaper.pull(now) {
            ids.push(queued.frame.id);
        }
        shaper.reconfigure(now, &kinds[after as usize](Rate::from_mbit(mbit))).expect("sound");
        while let Some(at) = shaper.poll_at() {
            ids.extend(shaper.pull(at).map(|queued| queued.frame.id));
        }
        prop_assert_eq!(ids, (0..count as u64).collect::<Vec<_>>());
    }
}

/// UDP that is always backlogged gets the limit in each second after the first.
#[test]
fn a_backlogged_guest_gets_its_limit_each_second() {
    for config in [bucket, fifo, smooth] {
        for mbit in [4, 8, 16, 32] {
            let rate = Rate::from_mbit(mbit);
            let mut bench = Bench::new(&config(rate));
            let time = (Nanos::ZERO, Nanos::from_secs(20));
            bench.run(constant(1514, 3e6 * mbit as f64, time), time.1);
            for second in &bench.seconds()[1..] {
                let part = *second as f64 * 8.0 / rate.0 as f64;
                assert!((part - 1.0).abs() < 0.005, "{part} at {mbit} Mbit/s");
            }
        }
    }
}

#[test]
fn the_shaper_stops_reading_at_its_memory_bound() {
    for config in [bucket, fifo, smooth] {
        let config = config(Rate::from_mbit(1));
        let mut shaper = Shaper::new(&config).expect("sound");
        for i in 0..20_000 {
            if shaper.is_read() {
                shaper.push(Nanos(i), PacketRecord::new(65_000));
            }
        }
        let held = shaper.backlog().memory;
        assert!(held < Bytes((256 << 10) + 70_000), "{held}");
        assert!(!shaper.is_read());
    }
}

/// A sender that ignores `is_read` loses the frames that have no room.
#[test]
fn frames_pushed_into_a_full_shaper_are_dropped_and_counted() {
    let mut shaper = Shaper::new(&smooth(Rate::from_mbit(1))).expect("sound");
    for i in 0..20_000 {
        shaper.push(Nanos(i), PacketRecord::new(1514));
    }
    assert!(shaper.backlog().memory < Bytes(512 << 10));
    let stats = shaper.stats();
    let waits = shaper.backlog().packets as u64;
    assert_eq!(stats.queue.drops.full + waits, 20_000);
}

#[test]
fn a_large_packet_is_segmented_before_the_shaper() {
    let mut bench = Bench::new(&smooth(Rate::from_mbit(4)));
    bench.run([GuestFrame::data(Nanos::ZERO, 64_000)], Nanos::from_secs(5));
    assert!(bench.left.iter().all(|left| left.len <= 1514));
    assert_eq!(bench.shaper.stats().segmented, 1);
    let took = bench.left.last().expect("it left").at;
    // 66,904 B with all headers, less the 10,000 of the bucket.
    let expected = Rate::from_mbit(4).time_for(Bytes(66_904 - 10_000));
    assert!(
        took.0.abs_diff(expected.0) < 4_000_000,
        "{took} for {expected}"
    );
}

#[test]
fn an_idle_window_shrinks_back_to_zero() {
    let config = smooth(Rate::from_mbit(4));
    let mut bench = Bench::new(&config);
    bench.run(
        constant(1514, 8e6, (Nanos::ZERO, Nanos::from_secs(10))),
        Nanos::from_secs(11),
    );
    let window = bench.shaper.window(Nanos::from_secs(11)).expect("smooth");
    assert!(window.least > Nanos::from_millis(90), "{window:?}");
    assert_eq!(window.greatest, window.least + Nanos::from_millis(3));
    let mut before = window.least;
    for second in 12..=18 {
        let window = bench.shaper.window(Nanos::from_secs(second));
        let least = window.expect("smooth").least;
        assert!(least <= before && before.since(least) <= Nanos::from_millis(98));
        before = least;
    }
    assert_eq!(before, Nanos::ZERO);
}

#[test]
fn at_another_rate_the_same_bytes_wait() {
    let mut bench = Bench::new(&smooth(Rate::from_mbit(4)));
    let end = Nanos::from_secs(10);
    bench.run(constant(1514, 8e6, (Nanos::ZERO, end)), end);
    let before = bench.shaper.window(end).expect("smooth").least;
    let next = smooth(Rate::from_mbit(8));
    bench.shaper.reconfigure(end, &next).expect("sound");
    let after = bench.shaper.window(end).expect("smooth").least;
    assert!(after.0.abs_diff(before.0 / 2) <= 1, "{before} to {after}");
}

/// A new configuration creates no second burst: the bucket keeps its level.
#[test]
fn a_change_gives_no_second_burst() {
    let (slow, fast) = (fifo(Rate::from_mbit(4)), fifo(Rate::from_mbit(5)));
    let mut shaper = Shaper::new(&slow).expect("sound");
    let now = Nanos::from_secs(1);
    let mut left = 0;
    for round in 0..100 {
        let config = if round % 2 == 0 { &fast } else { &slow };
        shaper.push(now, PacketRecord::new(1514));
        shaper.reconfigure(now, config).expect("sound");
        while let Some(queued) = shaper.pull(now) {
            left += queued.frame.len();
        }
    }
    assert!(left <= 12_500, "{left} B at one moment");
}

/// Behind a new limit, frames leave in order of arrival, also those that a bucket's queue had sorted.
#[test]
fn frames_of_a_sorted_queue_return_to_their_order_of_arrival() {
    let rate = Rate::from_mbit(1);
    let sorted = ShaperConfig::Bucket(BucketConfig {
        queue: QueueConfig::Priority(PriorityConfig::default()),
        ..BucketConfig::new(rate)
    });
    let mut shaper = Shaper::new(&sorted).expect("sound");
    for id in 0..6 {
        let class = [Class::Lowest, Class::Small][id as usize % 2];
        let frame = PacketRecord {
            id,
            class,
            ..PacketRecord::new(1000)
        };
        shaper.push(Nanos(id), frame);
    }
    shaper.reconfigure(Nanos(6), &smooth(rate)).expect("sound");
    let ids: Vec<_> = shaper.into_waiting().map(|frame| frame.id).collect();
    assert_eq!(ids, [0, 1, 2, 3, 4, 5]);
}
