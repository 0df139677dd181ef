//! Guarantees that change, come and go while frames wait.

use super::harness::{Host, LINK, ROUNDING, Record, SentItem, check_wire, conform, excess, frame};
use super::*;
use crate::queue::{FifoConfig, QueueConfig};
use proptest::prelude::*;

fn guarantee(mbit: u64) -> Guarantee {
    Guarantee::new(Rate::from_mbit(mbit), Bytes(5000), LINK)
}

fn ids(host: &Host, guest: u32) -> Vec<u64> {
    host.of(guest).map(|(_, frame)| frame.id).collect()
}

fn set(host: &mut Host, guest: u32, guarantee: Option<&Guarantee>) {
    let now = host.now;
    host.pacer
        .set_guest(now, GuestId::first(guest), guarantee)
        .expect("sound");
}

#[test]
fn a_new_rate_holds_from_the_next_frame_on_without_a_burst_or_a_pause() {
    let mut host = Host::new(&PacerConfig::strict(LINK), &[guarantee(100)]);
    for id in 0..2000 {
        host.ring(0, host.now, frame(id, 0, 1538));
    }
    host.run_until(Nanos::from_millis(21));
    let slow = host.pacer.stats().guaranteed.packets;
    set(&mut host, 0, Some(&guarantee(1000)));
    host.run_until(Nanos::from_secs(1));
    assert_eq!(ids(&host, 0), (0..2000).collect::<Vec<_>>());
    let frames: Vec<_> = host.of(0).collect();
    let gaps: Vec<_> = frames.windows(2).map(|w| w[1].0.at - w[0].0.at).collect();
    // 153.8 KB of the wire a frame before, 15.38 KB after; one frame had a departure.
    let changed = gaps
        .iter()
        .rposition(|gap| *gap > 150_000)
        .expect("slow at first");
    assert!(
        (slow as usize - 2..slow as usize + 2).contains(&changed),
        "{changed} of {slow}"
    );
    assert!(
        gaps[changed + 1..]
            .iter()
            .all(|gap| gap.abs_diff(15_380) <= 84),
        "{:?}",
        &gaps[changed..]
    );
}

#[test]
fn a_lower_rate_takes_back_tokens_above_the_new_bucket() {
    let mut host = Host::new(&PacerConfig::strict(LINK), &[guarantee(1000)]);
    let lower = Guarantee {
        burst: Bytes(1538),
        ..guarantee(10)
    };
    set(&mut host, 0, Some(&lower));
    for id in 0..5 {
        host.ring(0, host.now, frame(id, 0, 1538));
    }
    host.run_until(Nanos::from_secs(1));
    let departures: Vec<_> = host
        .of(0)
        .map(|(sent, _)| (sent.departure.expect("guaranteed"), sent.wire))
        .collect();
    conform(&PacerConfig::strict(LINK), &lower, &departures);
}

#[test]
fn a_guest_that_gets_a_guarantee_keeps_its_order() {
    let mut host = Host::new(&PacerConfig::strict(LINK), &[guarantee(9000)]);
    // Best effort has a tenth of the link, and another guest's frames among it.
    for id in 0..4000 {
        host.ring(0, host.now, frame(id, 0, 1538));
    }
    for id in 0..200 {
        host.ring(1, host.now, frame(id, 1, 1538));
        host.ring(2, host.now, frame(id, 2, 1538));
    }
    host.run_until(Nanos::from_millis(1) + Nanos::from_micros(300));
    let waited = host.pacer.best_effort().packets;
    assert!(waited > 300, "{waited}");
    set(&mut host, 1, Some(&guarantee(500)));
    for id in 200..300 {
        host.ring(1, host.now, frame(id, 1, 1538));
    }
    host.run_until(Nanos::from_secs(1));
    assert_eq!(ids(&host, 1), (0..300).collect::<Vec<_>>());
    assert_eq!(ids(&host, 2), (0..200).collect::<Vec<_>>());
    check_wire(&host.sent);
}

#[test]
fn a_guest_that_loses_its_guarantee_keeps_its_order() {
    let mut host = Host::new(&PacerConfig::strict(LINK), &[guarantee(100)]);
    for id in 0..100 {
        host.ring(0, host.now, frame(id, 0, 1538));
    }
    host.run_until(Nanos::from_millis(2));
    set(&mut host, 0, None);
    assert_eq!(host.pacer.guarantee(GuestId::first(0)), None);
    host.run_until(Nanos::from_secs(1));
    assert_eq!(ids(&host, 0), (0..100).collect::<Vec<_>>());
    // Those that have left had departures; the rest leaves at the link's rate.
    let scheduled = host
        .of(0)
        .take_while(|(sent, _)| sent.departure.is_some())
        .count();
    let after: Vec<_> = host.of(0).skip(scheduled).map(|(sent, _)| sent).collect();
    assert!(after.iter().all(|sent| sent.departure.is_none()));
    assert!((8..20).contains(&scheduled), "{scheduled}");
    let took = after[after.len() - 1].at - after[0].at;
    assert_eq!(took, (after.len() as u64 - 1) * 1538);
}

#[test]
fn taken_frames_and_their_memory_count_once() {
    let mut host = Host::new(&PacerConfig::strict(LINK), &[guarantee(100)]);
    let id = GuestId::first(0);
    let rate = Some(Rate::from_mbit(10));
    let limited = host.pacer.set_destination(host.now, id, 2, rate);
    limited.expect("sound");
    for number in 0..20 {
        let frame = Record {
            destination: 1 + u128::from(number % 2 == 0),
            ..frame(number, 0, 1538)
        };
        host.pacer.enqueue(host.now, frame);
    }
    let taken = WireCount {
        packets: 20,
        bytes: WireBytes(20 * 1538),
    };
    assert_eq!(host.pacer.guest_stats(id).map(|it| it.taken), Some(taken));
    let memory = |host: &Host| host.pacer.core.guests.find(id).map(|it| it.backlog.memory);
    let before = memory(&host);
    assert!(before > Some(Bytes(20 * 1538)));
    set(&mut host, 0, None);
    assert_eq!(memory(&host).unwrap_or_default(), Bytes(0), "best effort");
    set(&mut host, 0, Some(&guarantee(100)));
    assert_eq!(memory(&host), before);
}

#[test]
fn frames_of_all_guests_may_have_512_mib_by_default() {
    assert_eq!(PacerConfig::new(LINK).memory, Bytes(512 << 20));
}

#[test]
fn another_queue_of_best_effort_has_its_own_limit() {
    let config = PacerConfig::strict(LINK);
    let mut host = Host::new(&config, &[guarantee(100)]);
    let two = PacerConfig {
        best_effort: QueueConfig::Fifo(FifoConfig {
            packets: 2,
            ..FifoConfig::default()
        }),
        ..config
    };
    host.pacer.reconfigure(host.now, &two).expect("sound");
    for id in 0..5 {
        host.pacer.enqueue(host.now, frame(id, 7, 1538));
    }
    let queue = host.pacer.stats().queue;
    assert_eq!((queue.pushed.packets, queue.drops.full), (5, 3));
}

/// One step of a random history.
#[derive(Debug, Clone)]
enum Step {
    Send(u32, u64, u8),
    Guarantee(u32, Option<(u64, u64)>),
    Limit(u32, u8, Option<u64>),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let guest = 0..3_u32;
    prop_oneof![
        6 => (guest.clone(), 84..=1538_u64, 0..3_u8).prop_map(|(g, wire, to)| Step::Send(g, wire, to)),
        1 => (guest.clone(), proptest::option::of((1..3000_u64, 1538..50_000_u64))).prop_map(|(g, to)| Step::Guarantee(g, to)),
        1 => (guest, 0..3_u8, proptest::option::of(1..3000_u64)).prop_map(|(g, to, mbit)| Step::Limit(g, to, mbit)),
        2 => (0..200_000_u64).prop_map(Step::Pass),
    ]
}

proptest! {
    /// No frame is lost or overtakes one of its flow, and what is scheduled under one
    /// guarantee conforms to it.
    #[test]
    fn configuration_changes_lose_and_reorder_no_frames(steps in proptest::collection::vec(step(), 1..400)) {
        let config = PacerConfig::strict(LINK);
        let mut host = Host::new(&config, &[]);
        // Under which guarantee each frame was taken.
        let mut contract: Vec<(u32, Option<Guarantee>, Vec<u64>)> = Vec::new();
        let mut sent = 0;
        for (id, step) in (0..).zip(steps) {
            match step {
                Step::Send(guest, wire, to) => {
                    let mut frame = frame(id, guest, wire);
                    frame.destination = to.into();
                    host.ring(guest as usize, host.now, frame);
                    sent += 1;
                }
                Step::Guarantee(guest, to) => {
                    let to = to.map(|(mbit, burst)| Guarantee::new(Rate::from_mbit(mbit), Bytes(burst), LINK));
                    host.pacer.set_guest(host.now, GuestId::first(guest), to.as_ref()).expect("sound");
                    contract.push((guest, to, Vec::new()));
                }
                Step::Limit(guest, to, mbit) => {
                    let rate = mbit.map(Rate::from_mbit);
                    // Refused where the guest has no guarantee.
                    let _ = host.pacer.set_destination(host.now, GuestId::first(guest), to.into(), rate);
                }
                Step::Pass(nanos) => host.run_until(host.now + Nanos(nanos)),
            }
        }
        host.run_until(host.now + Nanos::from_secs(60));
        let frames: Vec<&SentItem> = host.sent.iter().filter(|sent| sent.frame.is_some()).collect();
        prop_assert_eq!(frames.len(), sent);
        prop_assert_eq!(host.pacer.stats().drops, PacerDrops::default());
        prop_assert_eq!(host.pacer.waiting(), 0);
        check_wire(&host.sent);
        for guest in 0..3 {
            for destination in 0..3 {
                let flow = host.of(guest).filter(|(_, frame)| frame.destination == destination);
                prop_assert!(flow.map(|(_, frame)| frame.id).is_sorted());
            }
        }
    }

    /// A guest cannot gain a burst by having its guarantee changed: over any
    /// interval, the largest burst and the largest rate.
    #[test]
    fn changes_add_no_burst(
        changes in proptest::collection::vec((10..1000_u64, 1538..20_000_u64, 1..2_000_000_u64), 1..10),
    ) {
        let mut host = Host::new(&PacerConfig::strict(LINK), &[guarantee(10)]);
        for id in 0..3000 {
            host.ring(0, host.now, frame(id, 0, 1000));
        }
        let (mut rate, mut burst) = (10, 5000);
        for (mbit, bytes, nanos) in changes {
            let next = Guarantee::new(Rate::from_mbit(mbit), Bytes(bytes), LINK);
            set(&mut host, 0, Some(&next));
            host.run_until(host.now + Nanos(nanos));
            rate = rate.max(mbit);
            burst = burst.max(bytes);
        }
        host.run_until(host.now + Nanos::from_millis(20));
        let departures = host.of(0).map(|(sent, _)| (sent.departure.expect("guaranteed"), sent.wire));
        let over = excess(LINK, Rate::from_mbit(rate), burst, departures);
        prop_assert!(over < ROUNDING, "{over}");
    }
}
