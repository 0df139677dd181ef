//! Bursts by subtree: frames to a host, a rack or a pod, and out of the sender's own.

use super::harness::{Host, LINK, ROUNDING, Record, check_books, check_wire, excess, frame};
use super::*;
use proptest::prelude::*;
use std::sync::Arc;
use tailbound_units::Bursts;

const B: Rate = Rate::from_mbit(900);
const S: u64 = 4 * FRAME;
const FRAME: u64 = 1538;
const GUEST: GuestId = GuestId::first(0);

/// Hosts by their numbers: in each pod are two racks, and in each rack two hosts.
fn groups() -> Arc<HostGroups> {
    let groups = (0..16).map(|host| (host, vec![host / 2, 100 + host / 4]));
    Arc::new(groups.collect())
}

fn guarantee(bursts: Option<u32>) -> Guarantee {
    Guarantee {
        mark: None,
        bursts: bursts.map_or(Bursts::PerReceiver, Bursts::PerSubtree),
        ..Guarantee::new(B, Bytes(S), LINK)
    }
}

/// Creates a sender on a host, of a tenant of this many machines, without destinations.
fn sender(home: u64, machines: u32, bursts: Option<u32>) -> Host {
    let mut host = Host::new(&PacerConfig::strict(LINK), &[guarantee(bursts)]);
    let home = Home {
        host: home,
        machines,
        groups: groups(),
    };
    host.pacer.set_home(GUEST, Some(home));
    host
}

/// Adds a destination of a machine of its own on a host.
fn add(host: &mut Host, destination: u128, place: u64, rate: Rate) {
    let place = Place {
        machine: destination as u64,
        host: place,
    };
    let now = host.now;
    host.pacer.set_place(GUEST, destination, Some(place));
    host.pacer
        .set_destination(now, GUEST, destination, Some(rate))
        .expect("sound");
}

fn send(host: &mut Host, destination: u128, count: u64) {
    for id in 0..count {
        let frame = Record {
            destination,
            ..frame(id, 0, FRAME)
        };
        host.ring(0, host.now, frame);
    }
}

/// Departures to some destinations.
fn departures(host: &Host, to: impl Fn(u128) -> bool) -> Vec<(u64, u64)> {
    let sent = host.of(0).filter(|(_, frame)| to(frame.destination));
    sent.map(|(sent, _)| (sent.departure.expect("guaranteed"), sent.wire))
        .collect()
}

/// A pacer without frames has no next batch, which would apply the change.
#[test]
fn a_change_of_places_wakes_no_pacer_without_frames() {
    let mut host = sender(0, 4, Some(1));
    add(&mut host, 1, 2, Rate::from_mbit(100));
    assert_eq!(host.pacer.poll_at(), None);
}

/// The flows with a frame, or beside a host's bucket that is not full.
fn used(host: &mut Host) -> Vec<(u128, u64)> {
    let mut used = Vec::new();
    host.pacer.destinations_used(host.now, |one| {
        used.push((one.flow.destination, one.lacks.0));
    });
    used.sort_unstable();
    used
}

#[test]
fn all_destinations_of_a_host_are_used_while_its_bucket_is_not_full() {
    let mut host = sender(0, 5, Some(1));
    for (destination, place) in [(1, 4), (2, 4), (3, 4), (4, 5)] {
        add(&mut host, destination, place, Rate::from_mbit(100));
    }
    host.turn();
    assert_eq!(used(&mut host), []);
    send(&mut host, 1, 4);
    host.run_until(host.now + Nanos::from_micros(100));
    let lacking = used(&mut host);
    let of = |destination| lacking.iter().find(|one| one.0 == destination);
    let (own, beside) = (of(1).expect("it sent").1, of(2).expect("beside it").1);
    assert!(beside > 0 && beside < own, "{lacking:?}");
    assert_eq!(of(3), Some(&(3, beside)));
    assert_eq!(of(4), None, "on another host");
    // The host's bucket fills three times as fast as that of its destination.
    let full = Rate::from_mbit(300).time_for(Bytes(S));
    host.run_until(host.now + full);
    let lacking = used(&mut host);
    assert_eq!(lacking.len(), 1, "{lacking:?}");
    assert!(lacking[0].0 == 1 && lacking[0].1 > S / 3, "{lacking:?}");
    host.run_until(host.now + Rate::from_mbit(100).time_for(Bytes(S)));
    assert_eq!(used(&mut host), [(1, 0)]);
    assert_eq!(used(&mut host), []);
}

/// Some senders that send all that they may to some receivers, for 10 ms. Returns the bytes by which
/// they exceed `m·K·S + n·B·t`, over every interval; a negative number is below the curve.
fn excess_of_cut(senders: &[u64], receivers: &[u64], bursts: u32) -> i128 {
    let (m, n) = (senders.len() as u64, receivers.len() as u64);
    let mut all = Vec::new();
    for home in senders {
        let mut host = sender(*home, (m + n) as u32, Some(bursts));
        for (destination, place) in (0..).zip(receivers) {
            add(&mut host, destination, *place, Rate(B.0 / m));
        }
        // On the uplink of the senders' own host, there are as many senders.
        for (other, place) in (100..).zip(senders).skip(1) {
            add(&mut host, other, *place, Rate(B.0 / m));
        }
        for _ in 0..100 {
            for destination in 0..n {
                send(&mut host, destination.into(), 1);
            }
        }
        host.run_until(Nanos::from_millis(11));
        check_wire(&host.sent);
        check_books(&host.pacer);
        all.extend(departures(&host, |to| to < n.into()));
    }
    all.sort_unstable();
    let curve = (Rate(B.0 * n), m * u64::from(bursts) * S);
    let over = excess(LINK, curve.0, curve.1, all.iter().copied());
    assert!(all.len() as u64 > m * n * 10);
    over / i128::from(LINK.0)
}

#[test]
fn each_cut_passes_exactly_one_burst_per_sender() {
    // All on one host, in one rack, in one pod; and out of the senders' host, rack, pod.
    let elsewhere = [0, 1, 2, 0, 1];
    let down = [vec![4; 3], vec![4, 5], vec![4, 6, 7], vec![4, 4, 5, 6]];
    for receivers in down {
        for bursts in [1, 2] {
            if receivers.len() as u32 <= bursts {
                continue;
            }
            let over = excess_of_cut(&elsewhere, &receivers, bursts);
            assert!(over <= 4, "{over} B above, {receivers:?}");
            assert!(
                over > -4 * i128::from(FRAME),
                "{over} B below, {receivers:?}"
            );
        }
    }
    let up = [
        (vec![0; 3], vec![1, 2]),
        (vec![0, 1, 0], vec![2, 4]),
        (vec![0, 2, 0], vec![4, 8]),
    ];
    for (senders, receivers) in up {
        let over = excess_of_cut(&senders, &receivers, 1);
        assert!(over <= 4, "{over} B above, {receivers:?}");
        assert!(
            over > -3 * i128::from(FRAME),
            "{over} B below, {receivers:?}"
        );
    }
}

#[test]
fn without_a_bound_each_machine_takes_a_burst() {
    for bursts in [None, Some(3)] {
        let mut host = sender(0, 4, bursts);
        for destination in 0..3 {
            add(&mut host, destination, 4, Rate::from_mbit(10));
            send(&mut host, destination, 20);
        }
        let wide = Guarantee {
            burst: Bytes(S),
            ..Guarantee::new(LINK, Bytes(S), LINK)
        };
        let wide = Guarantee {
            bursts: guarantee(bursts).bursts,
            ..wide
        };
        host.pacer
            .set_guest(host.now, GUEST, Some(&wide))
            .expect("sound");
        host.run_until(host.now + Nanos::from_micros(500));
        assert_eq!(host.of(0).count(), 12, "{bursts:?}");
    }
}

#[test]
fn addresses_of_one_machine_share_its_burst() {
    let mut host = sender(0, 2, None);
    for destination in 0..3 {
        let place = Place {
            machine: 7,
            host: 4,
        };
        host.pacer.set_place(GUEST, destination, Some(place));
        host.pacer
            .set_destination(host.now, GUEST, destination, Some(Rate::from_mbit(10)))
            .expect("sound");
        send(&mut host, destination, 20);
    }
    host.run_until(host.now + Nanos::from_micros(300));
    assert_eq!(host.of(0).count(), 4);
}

#[test]
fn a_slow_destination_holds_up_no_other_of_its_host() {
    let mut host = sender(0, 5, Some(1));
    let rates = [10, 90, 300, 500];
    for (destination, mbit) in (0..).zip(rates) {
        add(&mut host, destination, 4, Rate::from_mbit(mbit));
        send(&mut host, destination, 150);
    }
    // Rings are in order of coming.
    host.rings[0]
        .make_contiguous()
        .sort_by_key(|(_, frame)| frame.id);
    let start = host.now;
    host.run_until(start + Nanos::from_millis(3));
    for (destination, mbit) in (0..).zip(rates) {
        let bytes: u64 = departures(&host, |to| to == destination)
            .iter()
            .map(|(_, wire)| wire)
            .sum();
        let due = Rate::from_mbit(mbit)
            .bytes_in(Nanos::from_millis(3))
            .0
            .min(150 * FRAME);
        assert!(bytes + 2 * FRAME >= due, "{destination}: {bytes} of {due}");
    }
}

#[test]
fn a_destination_waits_for_its_place_and_shares_the_host_burst() {
    // A host of the same rack is known, and one is not.
    let mut host = sender(0, 3, Some(1));
    add(&mut host, 0, 4, B);
    add(&mut host, 1, 99, B);
    host.pacer.set_place(GUEST, 2, None);
    for destination in 0..2 {
        send(&mut host, destination, 4);
    }
    host.run_until(host.now + Nanos::from_millis(1));
    assert_eq!(departures(&host, |to| to == 0).len(), 4);
    assert_eq!(departures(&host, |to| to == 1).len(), 0, "unknown");
    // It is on the same host as the other one, whose burst is spent.
    let place = Place {
        machine: 1,
        host: 4,
    };
    host.pacer.set_place(GUEST, 1, Some(place));
    for destination in 0..2 {
        host.pacer
            .set_destination(host.now, GUEST, destination, Some(Rate::from_mbit(10)))
            .expect("sound");
    }
    send(&mut host, 0, 4);
    host.run_until(host.now + Nanos::from_millis(1));
    let all = departures(&host, |_| true);
    let within = Rate::from_mbit(20).bytes_in(Nanos::from_millis(1)).0 / FRAME + 5;
    assert!(all.len() as u64 <= 4 + within, "{}", all.len());
    host.run_until(host.now + Nanos::from_millis(20));
    assert_eq!(departures(&host, |to| to == 1).len(), 4);
    check_books(&host.pacer);
}

#[test]
fn a_machine_that_moves_takes_part_in_the_bucket_of_its_new_host() {
    let mut host = sender(0, 5, Some(1));
    for (destination, place) in [(0, 4), (1, 4), (2, 8), (3, 8)] {
        add(&mut host, destination, place, Rate::from_mbit(10));
    }
    // To one machine of the second host: a burst, which its bucket then lacks.
    send(&mut host, 2, 6);
    host.run_until(host.now + Nanos::from_micros(200));
    assert_eq!(departures(&host, |to| to == 2).len(), 4);
    // The other one's frames wait, and a machine of the first host comes there.
    send(&mut host, 3, 2);
    send(&mut host, 0, 6);
    let place = Place {
        machine: 0,
        host: 8,
    };
    host.pacer.set_place(GUEST, 0, Some(place));
    let start = host.now;
    host.run_until(start + Nanos::from_millis(10));
    let moved = host.of(0).filter(|(_, frame)| frame.destination == 0);
    assert!(moved.map(|(_, frame)| frame.id).is_sorted());
    let later = departures(&host, |to| to != 1);
    let bytes: u64 = later.iter().skip(4).map(|(_, wire)| wire).sum();
    let most = Rate::from_mbit(30).bytes_in(Nanos::from_millis(10)).0 + FRAME;
    assert!(
        bytes <= most,
        "{bytes} of {most}: all of them share one burst"
    );
    // All frames get through at the sum of the rates.
    host.run_until(start + Nanos::from_millis(20));
    assert_eq!(host.pacer.waiting(), 0);
    check_books(&host.pacer);
}

#[test]
fn a_restored_pacer_keeps_the_debts_of_its_buckets() {
    let mut host = sender(0, 4, Some(1));
    for destination in 0..3 {
        add(&mut host, destination, 4, Rate::from_mbit(10));
        send(&mut host, destination, 2);
    }
    host.run_until(host.now + Nanos::from_micros(300));
    assert_eq!(host.of(0).count(), 4, "the burst of the host");
    let level = host.pacer.level(host.now, GUEST).expect("guaranteed");
    assert!(level.destinations.iter().all(|it| it.place.is_some()));
    let mut next = sender(0, 4, Some(1));
    next.pacer.fill_bucket(next.now, GUEST, level.holds);
    for destination in level.destinations {
        let now = next.now;
        next.pacer
            .set_destination_level(now, GUEST, destination)
            .expect("sound");
    }
    for destination in 0..3 {
        send(&mut next, destination, 4);
    }
    let start = next.now;
    next.run_until(start + Nanos::from_millis(2));
    let earned = Rate::from_mbit(30).bytes_in(Nanos::from_millis(3)).0;
    let bytes: u64 = departures(&next, |_| true)
        .iter()
        .map(|(_, wire)| wire)
        .sum();
    assert!(bytes <= earned + FRAME, "{bytes} of {earned}");
}

/// Rates of a destination: each from a position on.
type Steps = Vec<(u64, u64)>;

/// Returns the maximum by which departures exceed `burst` and the integral of the rates, over every
/// interval, in bytes times the link's rate.
fn excess_of_steps(rates: &[Steps], burst: u64, frames: &[(u64, u64)]) -> i128 {
    let mut changes: Vec<(u64, i128)> = Vec::new();
    for steps in rates {
        let mut before = 0;
        for (from, rate) in steps {
            changes.push((*from, i128::from(*rate) - before));
            before = i128::from(*rate);
        }
    }
    changes.sort_unstable();
    let mut changes = changes.into_iter().peekable();
    let (mut earned, mut rate, mut at) = (0_i128, 0_i128, 0_u64);
    let (mut sent, mut least, mut worst) = (0_i128, i128::MAX, i128::MIN);
    for (departure, wire) in frames {
        while let Some((from, change)) = changes.next_if(|(from, _)| from <= departure) {
            earned += i128::from(from - at) * rate;
            (rate, at) = (rate + change, from);
        }
        earned += i128::from(departure - at) * rate;
        at = *departure;
        least = least.min(sent - earned);
        sent += i128::from(*wire) * i128::from(LINK.0);
        worst = worst.max(sent - earned - least);
    }
    worst.saturating_sub(i128::from(burst) * i128::from(LINK.0))
}

/// A sender whose rates and places are recorded.
struct Recorder {
    host: Host,
    home: u64,
    places: Vec<u64>,
    rates: Vec<Steps>,
}

impl Recorder {
    fn set_rate(&mut self, destination: usize, rate: Rate) {
        let Host { pacer, now, .. } = &mut self.host;
        let start = pacer.core.chain.advance(*now);
        let from = start.max(pacer.core.chain.wire.taken()).0;
        // Frames of the present batch may have been released at the former rate.
        let batch = (start + pacer.core.chain.wire.batch()).0;
        pacer
            .set_destination(*now, GUEST, destination as u128, Some(rate))
            .expect("sound");
        let steps = &mut self.rates[destination];
        while steps.pop_if(|last| last.0 > from).is_some() {}
        let before = steps.last().map_or(0, |last| last.1);
        let from = if rate.0 < before {
            from.max(batch)
        } else {
            from
        };
        steps.push((from, rate.0));
    }

    /// Checks each subtree that does not hold the sender, and each set beyond its own ones that is
    /// smaller than what is inside.
    fn check(&self, bursts: u64) {
        let places = &self.places;
        let subtree = |level: u64, number: u64| {
            let all = 0..places.len();
            all.filter(move |to| places[*to] / level == number)
                .collect::<Vec<_>>()
        };
        for level in [1, 2, 4] {
            let own = self.home / level;
            for number in (0..8 / level).filter(|number| *number != own) {
                self.check_cut(&subtree(level, number), bursts);
            }
            let inside = subtree(level, own).len() + 1;
            let beyond: Vec<_> = (0..places.len())
                .filter(|to| places[*to] / level != own)
                .collect();
            if beyond.len() < inside {
                self.check_cut(&beyond, bursts);
            }
        }
    }

    fn check_cut(&self, cut: &[usize], bursts: u64) {
        let rates: Vec<_> = cut.iter().map(|to| self.rates[*to].clone()).collect();
        let frames = departures(&self.host, |to| cut.contains(&(to as usize)));
        let burst = S * bursts.min(cut.len() as u64);
        let over = excess_of_steps(&rates, burst, &frames);
        assert!(
            over < 4 * ROUNDING,
            "{} B over {cut:?}",
            over / i128::from(LINK.0)
        );
    }
}

/// Number of random cases: `TAILBOUND_CUTS` sets it.
fn cases() -> u32 {
    let wanted = std::env::var("TAILBOUND_CUTS").ok();
    wanted.map_or(ProptestConfig::default().cases, |wanted| {
        wanted.parse().expect("a number of cases")
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    /// For any places, bursts and rates that change, no cut takes more than its curve, no frame is
    /// lost, each flow keeps its order, and each destination gets its rate in the end.
    #[test]
    fn no_cut_exceeds_its_curve_and_no_destination_waits_for_another(
        home in 0..8_u64,
        places in prop::collection::vec(0..8_u64, 1..9),
        bursts in 1..4_u32,
        steps in prop::collection::vec((0..8_u8, 0..8_usize, 1..40_u64), 1..120),
    ) {
        let host = sender(home, places.len() as u32 + 1, Some(bursts));
        let rates = vec![Vec::new(); places.len()];
        let mut recorder = Recorder { host, home, places, rates };
        let n = recorder.places.len();
        // The sum never exceeds B.
        let most = B.0 / n as u64;
        for to in 0..n {
            let place = recorder.places[to];
            add(&mut recorder.host, to as u128, place, Rate::from_mbit(1));
            recorder.set_rate(to, Rate(most / 2));
        }
        recorder.host.turn();
        let mut count = vec![0_u64; n];
        for (kind, to, amount) in steps {
            let to = to % n;
            match kind {
                0..4 => {
                    for id in count[to]..count[to] + amount {
                        let frame = Record { destination: to as u128, ..frame(id, 0, 84 + id * 97 % 1455) };
                        recorder.host.ring(0, recorder.host.now, frame);
                    }
                    count[to] += amount;
                }
                4..6 => {
                    let now = recorder.host.now;
                    recorder.host.run_until(now + Nanos(amount * 10_000));
                }
                6 => recorder.set_rate(to, Rate(most / 40 * amount)),
                _ => recorder.set_rate(to, Rate(if amount % 2 == 0 { 0 } else { most })),
            }
        }
        for to in 0..n {
            recorder.set_rate(to, Rate(most));
        }
        let bytes = count.iter().max().map_or(0, |count| count * FRAME);
        let time = Rate(most).time_for(Bytes(bytes + S)) + Nanos::from_millis(1);
        let end = recorder.host.now + time;
        recorder.host.run_until(end);
        check_books(&recorder.host.pacer);
        check_wire(&recorder.host.sent);
        prop_assert_eq!(recorder.host.pacer.waiting(), 0);
        for to in 0..n {
            let flow = recorder.host.of(0).filter(|(_, frame)| frame.destination == to as u128);
            prop_assert!(flow.map(|(_, frame)| frame.id).is_sorted());
        }
        // Lines beyond their share of memory drop some.
        let sent = recorder.host.of(0).count() as u64 + recorder.host.dropped();
        prop_assert_eq!(sent, count.iter().sum::<u64>());
        recorder.check(bursts.into());
    }
}
