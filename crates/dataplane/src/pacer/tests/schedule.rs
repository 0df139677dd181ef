//! Contents of the wire, byte by byte.

use super::harness::{
    Host, LINK, ROUNDING, Record, SentItem, check_wire, conform, excess, excess_of_all_pairs, frame,
};
use super::*;
use crate::queue::{FifoConfig, QueueConfig};
use proptest::prelude::*;
use tailbound_units::Position;

fn shape(sent: &[SentItem]) -> Vec<(u64, u64, Option<u64>)> {
    let start = sent[0].at;
    let frame = |sent: &SentItem| Some(sent.frame?.id);
    sent.iter()
        .map(|s| (s.at - start, s.wire, frame(s)))
        .collect()
}

#[test]
fn figure_9_of_the_paper() {
    // VM 1 has 2 Gbit/s and VM 2 has 1 Gbit/s of 10: of every ten frames on the
    // wire, two are the one's and one the other's.
    let guarantee = |mbit| {
        let rate = Rate::from_mbit(mbit);
        Guarantee::new(rate, Bytes(1538), rate)
    };
    let mut host = Host::new(
        &PacerConfig::strict(LINK),
        &[guarantee(2000), guarantee(1000)],
    );
    for id in 0..8 {
        host.ring(0, host.now, frame(id, 0, 1538));
    }
    for id in 100..104 {
        host.ring(1, host.now, frame(id, 1, 1538));
    }
    host.run_until(Nanos::from_secs(1));
    let slots: Vec<_> = shape(&host.sent);
    for (at, wire, _) in &slots {
        assert_eq!((at % 1538, *wire), (0, 1538));
    }
    let data: Vec<_> = slots
        .iter()
        .filter_map(|(at, _, id)| Some((at / 1538, (*id)?)))
        .collect();
    // Both begin immediately; the second is behind the first, and its own departures continue. Of
    // two with equal departures, the one that was added first is first.
    let expected = [
        (0, 0),
        (1, 100),
        (5, 1),
        (10, 101),
        (11, 2),
        (15, 3),
        (20, 102),
        (21, 4),
        (25, 5),
        (30, 103),
        (31, 6),
        (35, 7),
    ];
    assert_eq!(data, expected);
    assert_eq!(slots.len(), 36);
    let stats = host.pacer.stats();
    assert_eq!((stats.guaranteed.packets, stats.voids.packets), (12, 24));
    assert_eq!(stats.voids.bytes, WireBytes(24 * 1538));
}

#[test]
fn a_gap_that_no_void_fits_into_delays_one_frame_and_no_other() {
    let rate = Rate::from_mbit(9500);
    let mut host = Host::new(
        &PacerConfig::strict(LINK),
        &[Guarantee::new(rate, Bytes(1538), LINK)],
    );
    for id in 0..20 {
        host.ring(0, host.now, frame(id, 0, 1538));
    }
    host.run_until(Nanos::from_secs(1));
    // 1538 B at 9.5 Gbit/s: 1618.947... bytes of the wire, a gap of 81.
    let data = host
        .of(0)
        .map(|(sent, _)| (sent.at, sent.departure.expect("guaranteed")));
    let start = host.sent[0].at;
    for (i, (at, departure)) in (0..).zip(data) {
        assert_eq!(departure - start, (i * 1538 * 10_000_u64).div_ceil(9500));
        assert!(at - departure < void::SHORTEST.0, "{i}");
    }
    check_wire(&host.sent);
}

#[test]
fn an_idle_link_stays_idle_and_a_slow_guest_costs_few_voids() {
    let rate = Rate::from_mbit(10);
    let mut host = Host::new(
        &PacerConfig::strict(LINK),
        &[Guarantee::new(rate, Bytes(1538), rate)],
    );
    for id in 0..100 {
        host.ring(0, host.now, frame(id, 0, 1538));
    }
    host.run_until(Nanos::from_secs(1));
    // One frame every 1.23 ms: voids for half a batch before it at most.
    let stats = host.pacer.stats();
    assert_eq!(stats.guaranteed.packets, 100);
    assert!(
        stats.voids.bytes <= WireBytes(100 * 31_250),
        "{:?}",
        stats.voids.bytes
    );
    assert_eq!(host.pacer.poll_at(), None);
}

#[test]
fn the_nic_never_holds_more_than_a_batch_and_a_frame() {
    let mut host = Host::new(
        &PacerConfig::strict(LINK),
        &[Guarantee::new(LINK, Bytes(1 << 20), LINK)],
    );
    for id in 0..1000 {
        host.ring(0, host.now, frame(id, 0, 1538));
    }
    while !host.rings[0].is_empty() || host.pacer.waiting() > 0 {
        let before = host.sent.len();
        host.now = host.wake_at().expect("frames wait").max(host.now);
        host.turn();
        let wire = host.sent.last().map_or(0, |sent| sent.at + sent.wire);
        let position = host.pacer.clock().advance(host.now).0;
        assert!(wire <= position + 62_500 + 1538);
        // At least half a batch, except at the end.
        let handed_over = host.sent.len() - before;
        assert!(
            handed_over >= 20 || host.pacer.waiting() == 0,
            "{handed_over}"
        );
    }
}

#[test]
fn best_effort_takes_all_that_is_left_and_the_guarantee_stays() {
    // 60 % in full frames: departures are 2563 B apart, two frames do not fit.
    let rate = Rate::from_mbit(6000);
    for best_effort in [1538, 700, 84] {
        let mut host = Host::new(
            &PacerConfig::strict(LINK),
            &[Guarantee::new(rate, Bytes(1538), LINK)],
        );
        let end = host.now + Nanos::from_millis(20);
        for id in 0..10_000 {
            host.ring(0, host.now, frame(id, 0, 1538));
        }
        for nanos in (0..20_000_000).step_by(50_000) {
            // Two batches' worth at first and a tenth more than is left: some always wait.
            let bytes = if nanos == 0 { 125_000 } else { 27_500 };
            for id in 0..bytes / best_effort {
                host.ring(1, host.now + Nanos(nanos), frame(id, 1, best_effort));
            }
        }
        host.run_until(end);
        check_wire(&host.sent);
        let stats = host.pacer.stats();
        assert_eq!(stats.voids.packets, 0);
        assert!(
            stats.max_lateness < void::SHORTEST.max(WireBytes(best_effort)),
            "{:?}",
            stats.max_lateness
        );
        let departures: Vec<_> = host
            .of(0)
            .map(|(sent, _)| sent.departure.expect("guaranteed"))
            .collect();
        for (i, departure) in (0..).zip(&departures) {
            assert_eq!(
                departure - departures[0],
                (i * 1538 * 10_000_u64).div_ceil(6000)
            );
        }
        let link = LINK.bytes_in(Nanos::from_millis(20)).0;
        for (bytes, share) in [
            (stats.guaranteed.bytes.0, 600),
            (stats.best_effort.bytes.0, 400),
        ] {
            let share = link * share / 1000;
            assert!(bytes.abs_diff(share) < link / 1000, "{bytes} of {share}");
        }
    }
}

#[test]
fn a_best_effort_frame_that_has_begun_is_not_interrupted_and_delays_only_once() {
    let rate = Rate::from_mbit(6000);
    let mut host = Host::new(
        &PacerConfig::strict(LINK),
        &[Guarantee::new(rate, Bytes(1538), LINK)],
    );
    // Departures every 2563 1/3 B; best effort after the first, from 1538 to 3038.
    for id in 0..6 {
        host.ring(0, host.now, frame(id, 0, 1538));
    }
    host.ring(1, host.now, frame(0, 1, 1500));
    host.run_until(Nanos::from_secs(1));
    check_wire(&host.sent);
    let start = host.sent[0].at;
    let at: Vec<_> = host.of(0).map(|(sent, _)| sent.at - start).collect();
    assert_eq!(at, [0, 3038, 5127, 7690, 10_254, 12_817]);
}

#[test]
fn best_effort_alone_takes_the_whole_link_without_voids() {
    let mut host = Host::new(&PacerConfig::strict(LINK), &[]);
    for id in 0..3000 {
        host.ring(0, host.now, frame(id, 0, 1538));
    }
    host.run_until(Nanos::from_secs(1));
    let stats = host.pacer.stats();
    assert_eq!((stats.best_effort.packets, stats.voids.packets), (3000, 0));
    let last = host.sent.last().expect("sent");
    assert_eq!(last.at - host.sent[0].at, 2999 * 1538);
}

#[test]
fn no_voids_are_sent_where_the_nic_keeps_launch_times() {
    let rate = Rate::from_mbit(1000);
    let config = PacerConfig {
        voids: false,
        ..PacerConfig::strict(LINK)
    };
    let mut host = Host::new(&config, &[Guarantee::new(rate, Bytes(1538), rate)]);
    for id in 0..10 {
        host.ring(0, host.now, frame(id, 0, 1538));
    }
    host.run_until(Nanos::from_secs(1));
    let clock = host.pacer.clock();
    let at: Vec<_> = host
        .sent
        .iter()
        .map(|sent| clock.moment(Position(sent.at)) - clock.moment(Position(host.sent[0].at)))
        .collect();
    assert_eq!(at[..3], [Nanos(0), Nanos(12_304), Nanos(24_608)]);
    assert_eq!(host.pacer.stats().voids.packets, 0);
}

#[test]
fn a_frame_that_comes_during_a_batch_is_scheduled_from_its_end_on() {
    let peak = Rate::from_mbit(1000);
    let full = Guarantee::new(Rate::from_mbit(8000), Bytes(1 << 20), LINK);
    let paced = Guarantee::new(peak, Bytes(20_000), peak);
    let mut host = Host::new(&PacerConfig::strict(LINK), &[full, paced]);
    for id in 0..1000 {
        host.ring(0, host.now, frame(id, 0, 1538));
    }
    host.turn();
    let taken = host
        .sent
        .last()
        .map(|sent| sent.at + sent.wire)
        .expect("a batch");
    host.now += Nanos(1000);
    for id in 0..4 {
        host.ring(1, host.now, frame(2000 + id, 1, 1538));
    }
    host.run_until(Nanos::from_secs(1));
    let departures: Vec<_> = host
        .of(1)
        .map(|(sent, _)| sent.departure.expect("guaranteed") - taken)
        .collect();
    assert_eq!(departures, [0, 15_380, 30_760, 46_140]);
}

/// Frames without a guarantee always wait; or they are of a guest whose flow is elastic.
fn worst_delay_beside_a_full_wire(is_elastic: bool, arrivals: &[(u64, u64)]) -> u64 {
    let config = PacerConfig {
        best_effort: QueueConfig::Fifo(FifoConfig {
            packets: 10_000,
            ..FifoConfig::default()
        }),
        ..PacerConfig::new(LINK)
    };
    let few = Guarantee::new(Rate::from_mbit(1000), Bytes(100_000), LINK);
    let mut host = Host::new(&config, &[few, few]);
    let filler = if is_elastic { 1 } else { 2 };
    let (mut now, mut came) = (host.now, Vec::new());
    for (id, &(gap, wire)) in (0..).zip(arrivals) {
        now += Nanos(gap);
        came.push(WireClock::new(LINK).advance(now).0);
        host.ring(0, now, frame(id, 0, wire));
    }
    for n in 0..(now - host.now).0 / 1000 {
        let at = host.now + Nanos(n * 1000);
        host.ring(filler, at, frame(n, filler as u32, 1538));
    }
    host.run_until(now + Nanos::from_millis(1));
    let delays: Vec<_> = host
        .of(0)
        .zip(came)
        .map(|((sent, _), came)| sent.at - came)
        .collect();
    assert_eq!(delays.len(), arrivals.len());
    delays.into_iter().max().unwrap_or(0)
}

#[test]
fn a_frame_during_a_batch_is_late_by_a_batch_and_a_frame_at_most() {
    // Every 117 us and a bit: at all places of a batch.
    let arrivals = [(117_331, 1538); 60];
    for is_elastic in [false, true] {
        let worst = worst_delay_beside_a_full_wire(is_elastic, &arrivals);
        // 50 us of 10 Gbit/s.
        assert!((32_000..=62_500 + 1538).contains(&worst), "{worst}");
    }
}

#[test]
fn frames_beyond_the_horizon_stay_in_the_ring() {
    let rate = Rate::from_mbit(100);
    let guarantee = Guarantee {
        horizon: Nanos::from_millis(1),
        ..Guarantee::new(rate, Bytes(1538), rate)
    };
    let mut host = Host::new(&PacerConfig::strict(LINK), &[guarantee]);
    for id in 0..100 {
        host.ring(0, host.now, frame(id, 0, 1538));
    }
    host.turn();
    // 12.5 KB within a millisecond: one frame has left, one has its departure, and eight
    // wait for their turn.
    assert_eq!((host.rings[0].len(), host.pacer.waiting()), (90, 9));
    assert!(!host.pacer.is_read(GuestId::first(0)));
    let mut most = 0;
    while let Some(at) = host.wake_at() {
        host.now = at.max(host.now);
        host.turn();
        most = most.max(host.pacer.waiting());
    }
    assert_eq!((host.of(0).count(), most), (100, 10));
    let stats = host
        .pacer
        .guest_stats(GuestId::first(0))
        .expect("guaranteed");
    assert!(
        stats.unread > 10 && stats.dropped == 0,
        "read again when a quarter is gone: {stats:?}"
    );
}

#[test]
fn frames_that_wait_for_long_are_marked_and_not_dropped_while_the_ring_is_left_unread() {
    let rate = Rate::from_mbit(100);
    let guarantee = Guarantee::new(rate, Bytes(1538), rate);
    let mut host = Host::new(&PacerConfig::strict(LINK), &[guarantee]);
    for id in 0..4000 {
        host.ring(0, host.now, frame(id, 0, 1538));
    }
    host.run_until(Nanos::from_secs(1));
    let marked: Vec<_> = host.of(0).map(|(_, frame)| frame.marked).collect();
    assert_eq!(marked.len(), 4000);
    // Nothing within the first interval, then ever more.
    let first = marked.iter().position(|marked| *marked);
    assert!(
        first.is_some_and(|first| (162..200).contains(&first)),
        "{first:?}"
    );
    let of = |range: std::ops::Range<usize>| marked[range].iter().filter(|marked| **marked).count();
    assert!(
        of(200..1200) < of(3000..4000),
        "{} {}",
        of(200..1200),
        of(3000..4000)
    );
    let stats = host
        .pacer
        .guest_stats(GuestId::first(0))
        .expect("guaranteed");
    assert_eq!((stats.marked as usize, stats.dropped), (of(0..4000), 0));
}

#[test]
fn a_link_that_was_down_is_followed_by_no_burst() {
    let rate = Rate::from_mbit(1000);
    let config = PacerConfig::strict(LINK);
    let guarantee = Guarantee::new(rate, Bytes(3000), LINK);
    let mut host = Host::new(&config, &[guarantee, guarantee]);
    for guest in 0..2 {
        for id in 0..1000 {
            host.ring(guest, host.now, frame(id, guest as u32, 1538));
        }
    }
    host.run_until(Nanos::from_millis(3));
    let before = host.sent.len();
    // No batch is requested for a second; frames continue to arrive.
    for millis in 4..1000 {
        let now = Nanos::from_millis(millis);
        for (guest, ring) in (0..).map(GuestId::first).zip(&mut host.rings) {
            while host.pacer.is_read(guest) {
                let (_, frame) = ring.pop_front().expect("backlogged");
                host.pacer.enqueue(now, frame);
            }
        }
    }
    // Two horizons of frames wait, not a second's.
    assert!(host.pacer.waiting() < 2 * 170, "{}", host.pacer.waiting());
    host.now = Nanos::from_secs(1);
    host.run_until(Nanos::from_secs(3));
    let stopped = host.pacer.stats().frozen;
    assert!(stopped > Nanos::from_millis(990), "{stopped}");
    // On the real clock, over every interval, the stall included.
    let shift = LINK.bytes_in(stopped).0;
    for guest in 0..2 {
        let real = host.sent.iter().enumerate().filter_map(|(i, sent)| {
            let frame = sent.frame.filter(|frame| frame.guest == guest)?;
            let late = if i < before { 0 } else { shift };
            Some((sent.at + late, void::on_the_wire(frame.len).0))
        });
        // Two guests collide on the wire: by one frame.
        let over = excess(LINK, rate, 3000 + 1538, real);
        assert!(over <= 0, "{over}");
        assert_eq!(host.of(guest).count(), 1000);
    }
}

#[test]
fn host_lateness_within_catch_up_costs_no_bandwidth() {
    let rate = Rate::from_mbit(1000);
    let config = PacerConfig {
        catch_up: Nanos::from_millis(5),
        ..PacerConfig::strict(LINK)
    };
    let mut host = Host::new(&config, &[Guarantee::new(rate, Bytes(3000), LINK)]);
    for id in 0..20_000 {
        host.ring(0, host.now, frame(id, 0, 1538));
    }
    host.late = Nanos::from_micros(400);
    host.run_until(Nanos::from_secs(10));
    assert_eq!(host.pacer.stats().frozen, Nanos::ZERO);
    let frames: Vec<_> = host.of(0).map(|(sent, _)| (sent.at, sent.wire)).collect();
    let (first, last) = (frames[10].0, frames[19_999].0);
    let got = 19_989 * 1538 * LINK.0 / (last - first);
    assert!(got.abs_diff(rate.0) < rate.0 / 500, "{got}");
}

/// Returns a host that is late by 400 us at each wake-up, and the bytes that its guest of 1 Gbit/s,
/// which always has frames, got in a million of its rate. They go to a destination with this limit.
fn got_from_a_late_host(burst: u64, peak: Rate, limit: Option<Rate>) -> (Host, u64) {
    let rate = Rate::from_mbit(1000);
    let config = PacerConfig::strict(LINK);
    let mut host = Host::new(&config, &[Guarantee::new(rate, Bytes(burst), peak)]);
    let to = GuestId::first(0);
    host.pacer
        .set_destination(host.now, to, 7, limit)
        .expect("sound");
    for id in 0..20_000 {
        let frame = Record {
            destination: 7,
            ..frame(id, 0, 1538)
        };
        // A limit leaves no ring unread: no more of these wait than a line may hold.
        let behind = Bytes(id.saturating_sub(200) * 1538);
        let at = limit.map_or(Nanos::ZERO, |limit| limit.time_for(behind));
        host.ring(0, host.now + at, frame);
    }
    host.late = Nanos::from_micros(400);
    host.run_until(Nanos::from_secs(10));
    assert_eq!(host.of(0).count(), 20_000);
    let moments = || host.of(0).map(|(sent, _)| sent.moment.0);
    let (first, last) = (
        moments().min().expect("some"),
        moments().max().expect("some"),
    );
    let bits = u128::from((20_000 * 1538 - burst) * 8);
    let got = bits * 1_000_000_000 * 1_000_000 / u128::from(last - first) / u128::from(rate.0);
    (host, got as u64)
}

#[test]
fn a_guest_recovers_host_lateness_up_to_its_burst() {
    let rate = Rate::from_mbit(1000);
    for limit in [None, Some(rate)] {
        // 1 Gbit/s is 50 KB in 400 us.
        let (host, got) = got_from_a_late_host(100_000, LINK, limit);
        let frozen = host.pacer.stats().frozen;
        assert!(frozen > Nanos::from_millis(20), "{frozen}");
        assert!(
            (998_000..1_004_000).contains(&got),
            "{got} with limit {limit:?}"
        );
    }
    // Two frames make up for 25 us of them.
    let (_, got) = got_from_a_late_host(3076, LINK, None);
    assert!(got < 500_000, "{got}");
    // Nothing is sent faster than Bmax.
    let (_, got) = got_from_a_late_host(100_000, rate, None);
    assert!(got < 500_000, "{got}");
}

/// A long wait is a guest's own excess if its ring was left unread, or frames were held back.
#[test]
fn the_excess_of_a_guest_is_counted_and_a_guest_that_conforms_has_none() {
    let rate = Rate::from_mbit(100);
    let half = Rate::from_mbit(50);
    let guarantee = Guarantee::new(rate, Bytes(3076), rate);
    // A frame of 1,538 B takes 123 us at the guaranteed rate.
    for (every, limit, unread, held_back) in [
        (200, None, false, false),
        (200, Some(rate), false, false),
        (100, None, true, false),
        (200, Some(half), false, true),
    ] {
        let mut host = Host::new(&PacerConfig::strict(LINK), &[guarantee]);
        let guest = GuestId::first(0);
        let set = host.pacer.set_destination(host.now, guest, 7, limit);
        set.expect("sound");
        for id in 0..2_000 {
            let frame = Record {
                destination: 7,
                ..frame(id, 0, 1538)
            };
            host.ring(0, host.now + Nanos::from_micros(id * every), frame);
        }
        host.run_until(Nanos::from_secs(1));
        let stats = host.pacer.guest_stats(guest).expect("guaranteed");
        let (packets, waits) = (stats.taken.packets, stats.held_back);
        assert_eq!(stats.unread > 0, unread, "{every} us, {limit:?}: {stats:?}");
        assert_eq!(
            waits * 100 > packets,
            held_back,
            "{every} us, {limit:?}: {stats:?}"
        );
    }
}

#[test]
fn due_frames_are_late_by_at_most_catch_up() {
    let catch_up = Nanos::from_millis(5);
    let config = PacerConfig {
        catch_up,
        ..PacerConfig::strict(LINK)
    };
    let rate = Rate::from_mbit(9000);
    let mut host = Host::new(&config, &[Guarantee::new(rate, Bytes(3000), LINK)]);
    for id in 0..20_000 {
        host.ring(0, host.now, frame(id, 0, 1538));
    }
    // A turn a millisecond, of a batch each: a twentieth of the link.
    host.late = Nanos::from_millis(1);
    host.run_until(Nanos::from_millis(400));
    let stats = host.pacer.stats();
    assert!(stats.guaranteed.packets > 10_000 && stats.frozen > Nanos::from_millis(200));
    let most = LINK.bytes_in(catch_up + config.batch) + Bytes(1538);
    assert!(
        stats.max_lateness <= most.into(),
        "{:?} > {most}",
        stats.max_lateness
    );
}

#[test]
fn many_guests_at_once_leave_in_turn() {
    let share = Rate(LINK.0 / 200);
    let guarantees = [Guarantee::new(share, Bytes(3076), Rate::from_mbit(1000)); 200];
    let config = PacerConfig::strict(LINK);
    let mut host = Host::new(&config, &guarantees);
    for guest in 0..200 {
        for id in 0..20 {
            host.ring(guest, host.now, frame(id, guest as u32, 1538));
        }
    }
    host.run_until(Nanos::from_secs(1));
    check_wire(&host.sent);
    for guest in 0..200 {
        let departures: Vec<_> = host
            .of(guest)
            .map(|(sent, _)| (sent.departure.expect("guaranteed"), sent.wire))
            .collect();
        assert_eq!(departures.len(), 20);
        conform(&config, &guarantees[0], &departures);
    }
}

prop_compose! {
    fn guarantee(guests: u64)(
        bandwidth in 1_000_000..=LINK.0 / guests,
        above in 0..=100_u64,
        burst in 1538..200_000_u64,
    ) -> Guarantee {
        let burst_rate = bandwidth + (LINK.0 - bandwidth) / 100 * above;
        Guarantee::new(Rate(bandwidth), Bytes(burst), Rate(burst_rate))
    }
}

proptest! {
    /// At any time of arrival, and for any contents of the wire.
    #[test]
    fn a_frame_that_conforms_waits_for_a_batch_and_a_frame_at_most(
        is_elastic: bool,
        arrivals in proptest::collection::vec((13_000..400_000_u64, 84..=1538_u64), 1..30),
    ) {
        prop_assert!(worst_delay_beside_a_full_wire(is_elastic, &arrivals) <= 62_500 + 1538);
    }

    #[test]
    fn the_quick_check_is_the_definition(
        rate in 1..20_000_000_000_u64,
        burst in 0..5000_u64,
        steps in proptest::collection::vec((0..5000_u64, 84..1538_u64), 1..60),
    ) {
        let mut at = 0;
        let frames: Vec<_> = steps.into_iter().map(|(gap, wire)| { at += gap; (at, wire) }).collect();
        let quick = excess(LINK, Rate(rate), burst, frames.iter().copied());
        prop_assert_eq!(quick, excess_of_all_pairs(LINK, Rate(rate), burst, &frames));
    }

    /// Random guests, sizes, arrivals and a host that is sometimes late.
    #[test]
    fn every_guest_conforms_and_the_wire_is_exact(
        guarantees in proptest::collection::vec(guarantee(6), 1..6),
        frames in proptest::collection::vec((0..7_usize, 84..=1538_u64, 0..30_000_u64), 1..600),
        late in 0..100_u64,
    ) {
        let config = PacerConfig::strict(LINK);
        let mut host = Host::new(&config, &guarantees);
        host.late = Nanos::from_micros(late);
        let (mut at, mut count) = (host.now, 0);
        for (id, (guest, wire, gap)) in (0..).zip(frames) {
            // Bursts: every other frame comes with the one before.
            at += Nanos(gap * (id % 2));
            host.ring(guest, at, frame(id, guest as u32, wire));
            count += 1;
        }
        host.run_until(Nanos::from_secs(20));
        prop_assert_eq!(host.sent.iter().filter(|sent| sent.frame.is_some()).count(), count);
        check_wire(&host.sent);
        for (guest, guarantee) in (0..).zip(&guarantees) {
            let departures: Vec<_> = host.of(guest).map(|(sent, _)| (sent.in_real_time, sent.wire)).collect();
            conform(&config, guarantee, &departures);
            let ids: Vec<_> = host.of(guest).map(|(_, frame)| frame.id).collect();
            prop_assert!(ids.is_sorted());
        }
        prop_assert_eq!(host.pacer.waiting(), 0);
    }

    /// A single guest: the contents of the wire conform, except for one void.
    #[test]
    fn a_guest_alone_conforms_on_the_wire(
        guarantee in guarantee(1),
        lens in proptest::collection::vec(84..=1538_u64, 1..400),
    ) {
        let config = PacerConfig::strict(LINK);
        let mut host = Host::new(&config, &[guarantee]);
        for (id, wire) in (0..).zip(lens) {
            host.ring(0, host.now, frame(id, 0, wire));
        }
        host.run_until(Nanos::from_secs(20));
        let sent: Vec<_> = host.of(0).map(|(sent, _)| (sent.at, sent.wire)).collect();
        let over = excess(LINK, guarantee.bandwidth, guarantee.burst.0, sent.iter().copied());
        let void = i128::from(void::SHORTEST.0) * i128::from(guarantee.bandwidth.0);
        prop_assert!(over < void + ROUNDING, "{over}");
    }
}
