//! Known traces, and transfers over networks that lose, delay and reorder.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Two ends with a round trip of 1 ms, and a record of their segments.
struct Pair {
    now: Nanos,
    ends: [Connection; 2],
    /// Segments in flight, by arrival and order: receiver and segment.
    way: BTreeMap<(Nanos, u64), (usize, Segment)>,
    sent: u64,
    /// Segments with data that went to the receiver, by when they were sent.
    data: Vec<(Nanos, u64)>,
    /// Acknowledgements without data that came back.
    acks: Vec<(Nanos, u64)>,
}

const ONE_WAY: Nanos = Nanos::from_micros(500);

impl Pair {
    fn new(client: TcpConfig, server: TcpConfig) -> Self {
        let mut out = Vec::new();
        let connecting = Connection::connect(Nanos::ZERO, client, &mut out);
        let mut answer = Vec::new();
        let accepting = Connection::accept(ONE_WAY, server, &out[0], &mut answer);
        let mut pair = Self {
            now: ONE_WAY,
            ends: [connecting, accepting],
            way: BTreeMap::new(),
            sent: 0,
            data: Vec::new(),
            acks: Vec::new(),
        };
        pair.send(1, answer, &mut |_| Some(Nanos::ZERO));
        pair
    }

    /// Sends segments. `fate` returns the additional delay of a segment, or `None` to drop it.
    fn send(
        &mut self,
        from: usize,
        out: Vec<Segment>,
        fate: &mut impl FnMut(&Segment) -> Option<Nanos>,
    ) {
        for segment in out {
            if segment.len > 0 {
                self.data.push((self.now, segment.sequence));
            } else if from == 1 {
                self.acks.push((self.now, segment.ack.unwrap_or(0)));
            }
            self.sent += 1;
            if let Some(late) = fate(&segment) {
                let at = self.now + ONE_WAY + late;
                self.way.insert((at, self.sent), (1 - from, segment));
            }
        }
    }

    /// Runs until no segment is in flight and no timer is set, or until `end`; reads all data on
    /// arrival.
    fn run(&mut self, end: Nanos, fate: &mut impl FnMut(&Segment) -> Option<Nanos>) -> u64 {
        let mut read = 0;
        loop {
            let due = self.ends.iter().map(Connection::poll_at).min();
            let due = due.unwrap_or(Nanos::MAX);
            let arrives = self.way.first_key_value().map_or(Nanos::MAX, |it| it.0.0);
            let now = due.min(arrives);
            if now > end || now == Nanos::MAX {
                return read;
            }
            self.now = now;
            if arrives <= due {
                let Some((_, (to, segment))) = self.way.pop_first() else {
                    return read;
                };
                let mut out = Vec::new();
                self.ends[to].receive(now, &segment, &mut out);
                if to == 1 {
                    read += self.ends[1].read(now, &mut out);
                }
                self.send(to, out, fate);
            } else {
                for from in 0..2 {
                    let mut out = Vec::new();
                    self.ends[from].poll(now, &mut out);
                    self.send(from, out, fate);
                }
            }
        }
    }

    fn transfer(&mut self, bytes: u64, fate: &mut impl FnMut(&Segment) -> Option<Nanos>) -> u64 {
        self.run(Nanos::from_millis(2), &mut |_| Some(Nanos::ZERO));
        let mut out = Vec::new();
        self.ends[0].write(self.now, bytes, &mut out);
        self.ends[0].close(self.now, &mut out);
        self.send(0, out, fate);
        self.run(Nanos::from_secs(100_000), fate)
    }

    /// Number of segments in each round trip of 1 ms.
    fn flights(&self) -> Vec<usize> {
        let first = self.data[0].0;
        let mut flights = BTreeMap::new();
        for (at, _) in &self.data {
            *flights
                .entry((*at - first).as_nanos() / 1_000_000)
                .or_insert(0) += 1;
        }
        flights.into_values().collect()
    }
}

fn config(change: impl Fn(&mut TcpConfig)) -> TcpConfig {
    let mut config = TcpConfig::PAPER;
    change(&mut config);
    config
}

const SEGMENT: u64 = MSS as u64;

#[expect(clippy::unnecessary_wraps, reason = "a fate may be a loss")]
fn unharmed(_: &Segment) -> Option<Nanos> {
    Some(Nanos::ZERO)
}

#[test]
fn slow_start_doubles_when_each_segment_is_acknowledged() {
    let server = config(|it| it.quick_acks = 1_000);
    let mut pair = Pair::new(TcpConfig::PAPER, server);
    assert_eq!(pair.transfer(93 * SEGMENT, &mut unharmed), 93 * SEGMENT);
    assert_eq!(pair.flights(), [3, 6, 12, 24, 48]);
    assert!(pair.ends[0].is_acknowledged() && pair.ends[1].is_finished());
}

#[test]
fn slow_start_grows_by_half_when_every_second_is_acknowledged() {
    let server = config(|it| it.quick_acks = 0);
    let client = config(|it| it.initial_window = 4);
    let mut pair = Pair::new(client, server);
    pair.transfer(46 * SEGMENT, &mut unharmed);
    // Of 19 segments one is not acknowledged yet when the fourth flight leaves.
    assert_eq!(pair.flights(), [4, 6, 9, 12, 15]);
}

#[test]
fn todays_tcp_starts_with_ten_segments() {
    let today = TcpConfig::TODAY;
    let mut pair = Pair::new(today, today);
    pair.transfer(30 * SEGMENT, &mut unharmed);
    assert_eq!(pair.flights(), [10, 20]);
}

#[test]
fn every_second_segment_is_acknowledged_and_a_last_one_after_40_ms() {
    let server = config(|it| it.quick_acks = 0);
    let mut pair = Pair::new(config(|it| it.initial_window = 4), server);
    pair.run(Nanos::from_millis(2), &mut unharmed);
    let mut out = Vec::new();
    let now = pair.now;
    pair.ends[0].write(now, 3 * SEGMENT, &mut out);
    pair.send(0, out, &mut unharmed);
    pair.acks.clear();
    pair.run(Nanos::from_secs(1), &mut unharmed);
    let arrived = now + ONE_WAY;
    let acks = [
        (arrived, 1 + 2 * SEGMENT),
        (arrived + TcpConfig::PAPER.delayed_ack, 1 + 3 * SEGMENT),
    ];
    assert_eq!(pair.acks, acks);
}

#[test]
fn a_hole_is_filled_by_fast_retransmit_and_the_window_halves() {
    let server = config(|it| it.quick_acks = 1_000);
    let mut pair = Pair::new(TcpConfig::PAPER, server);
    // Of the third flight, 9 to 20, the second is lost the first time.
    let mut is_lost = false;
    let mut lose = |segment: &Segment| {
        let hit = segment.sequence == 1 + 10 * SEGMENT && !is_lost;
        is_lost |= hit;
        (!hit).then_some(Nanos::ZERO)
    };
    assert_eq!(pair.transfer(60 * SEGMENT, &mut lose), 60 * SEGMENT);
    assert_eq!(pair.ends[0].resent(), (1, 0), "once, and no timeout");
    let copies = pair.data.iter().filter(|it| it.1 == 1 + 10 * SEGMENT);
    let sent: Vec<_> = copies.map(|it| it.0).collect();
    assert_eq!(
        sent[1] - sent[0],
        Nanos::from_millis(1),
        "a round trip later"
    );
    // 13 were on their way, half of that is 6, and 37 more came one by one: 6 + 7 + 8 + 9 of
    // them for four more.
    assert_eq!(pair.ends[0].congestion_window(), 10);
}

#[test]
fn a_lost_tail_is_sent_again_after_the_timeout_which_doubles() {
    let mut pair = Pair::new(TcpConfig::PAPER, TcpConfig::PAPER);
    pair.run(Nanos::from_millis(2), &mut unharmed);
    let mut out = Vec::new();
    let start = pair.now;
    pair.ends[0].write(start, SEGMENT, &mut out);
    pair.send(0, out, &mut |_| None);
    pair.run(Nanos::from_secs(2), &mut |_| None);
    let sent: Vec<_> = pair
        .data
        .iter()
        .map(|it| (it.0 - start).as_millis_f64())
        .collect();
    let timeout = sent[1];
    assert!((200.0..=203.0).contains(&timeout), "{timeout} ms");
    let doubled = [0.0, 1.0, 3.0, 7.0].map(|times| times * timeout);
    assert_eq!(sent, doubled);
    assert_eq!(pair.ends[0].resent(), (3, 3));
}

#[test]
fn the_window_grows_by_two_segments_for_each_and_limits_the_sender() {
    let server = config(|it| it.quick_acks = 1_000);
    let mut pair = Pair::new(config(|it| it.initial_window = 100), server);
    pair.transfer(40 * SEGMENT, &mut unharmed);
    // 4 fit the first window; each of them brings two more beside itself.
    assert_eq!(pair.flights(), [4, 12, 24]);
}

#[test]
fn an_unread_window_closes_and_is_probed_until_it_opens() {
    let server = config(|it| it.receive_window = 10 * MSS);
    let mut pair = Pair::new(TcpConfig::PAPER, server);
    pair.run(Nanos::from_millis(2), &mut unharmed);
    let (mut out, mut back) = (Vec::new(), Vec::new());
    let mut now = pair.now;
    pair.ends[0].write(now, 30 * SEGMENT, &mut out);
    // The receiver does not read for a minute.
    while now < Nanos::from_secs(60) {
        for segment in std::mem::take(&mut out) {
            pair.ends[1].receive(now, &segment, &mut back);
        }
        for segment in std::mem::take(&mut back) {
            pair.ends[0].receive(now, &segment, &mut out);
        }
        if out.is_empty() {
            now = pair.ends[0].poll_at().min(pair.ends[1].poll_at());
            pair.ends[0].poll(now, &mut out);
            pair.ends[1].poll(now, &mut back);
        }
    }
    assert!(pair.ends[1].readable() > 8 * SEGMENT);
    assert!(pair.ends[1].readable() <= 10 * SEGMENT);
    pair.now = now;
    let mut update = Vec::new();
    let mut read = pair.ends[1].read(now, &mut update);
    pair.send(0, out, &mut unharmed);
    pair.send(1, back, &mut unharmed);
    pair.send(1, update, &mut unharmed);
    read += pair.run(Nanos::from_secs(1_000), &mut unharmed);
    assert_eq!(read, 30 * SEGMENT);
}

/// A transport of SACK and RACK.
fn rack(congestion: Congestion) -> TcpConfig {
    TcpConfig {
        congestion,
        quick_acks: 0,
        receive_window: 10_000_000,
        first_receive_window: 10_000_000,
        ..TcpConfig::RACK
    }
}

/// Loses segments with data by their number, counted from 0 as they are sent.
fn losing(lost: &[usize]) -> impl FnMut(&Segment) -> Option<Nanos> {
    let (lost, mut sent) = (lost.to_vec(), 0);
    move |segment: &Segment| {
        if segment.len == 0 {
            return Some(Nanos::ZERO);
        }
        sent += 1;
        (!lost.contains(&(sent - 1))).then_some(Nanos::ZERO)
    }
}

#[test]
fn sack_repairs_several_losses_of_a_window_at_once() {
    // Duplicates repair one of them a round trip.
    let lost = [26, 28, 30, 32, 34];
    let mut took = Vec::new();
    for recovery in [Recovery::Rack, Recovery::Duplicates] {
        let config = TcpConfig {
            recovery,
            ..rack(Congestion::NewReno)
        };
        let mut pair = Pair::new(config, config);
        let start = pair.now;
        assert_eq!(
            pair.transfer(100 * SEGMENT, &mut losing(&lost)),
            100 * SEGMENT
        );
        assert_eq!(pair.ends[0].resent(), (5, 0), "each once, and no timeout");
        took.push(pair.now - start);
    }
    assert!(took[0] + Nanos::from_millis(3) < took[1], "{took:?}");
}

#[test]
fn a_loss_halves_renos_window_and_leaves_cubic_seven_tenths() {
    for (congestion, expected) in [(Congestion::NewReno, 20), (Congestion::Cubic, 28)] {
        let config = rack(congestion);
        let mut pair = Pair::new(config, config);
        // The first of the third flight, of 40.
        let mut lose = losing(&[30]);
        pair.run(Nanos::from_millis(2), &mut unharmed);
        let mut out = Vec::new();
        pair.ends[0].write(pair.now, 1_000 * SEGMENT, &mut out);
        pair.send(0, out, &mut lose);
        // Until the loss is repaired.
        let mut end = pair.now;
        while pair.ends[0].resent().0 == 0 || pair.ends[0].acknowledged() < 60 * SEGMENT {
            end += Nanos::from_micros(100);
            pair.run(end, &mut lose);
        }
        let window = pair.ends[0].congestion_window();
        assert!(window.abs_diff(expected) <= 2, "{congestion:?}: {window}");
        assert_eq!(pair.ends[0].resent(), (1, 0));
    }
}

#[test]
fn a_lost_tail_is_probed_after_two_round_trips() {
    let config = rack(Congestion::NewReno);
    let mut pair = Pair::new(config, config);
    let start = pair.now;
    assert_eq!(
        pair.transfer(10 * SEGMENT, &mut losing(&[8, 9])),
        10 * SEGMENT
    );
    let (resent, timeouts) = pair.ends[0].resent();
    assert_eq!((resent, timeouts), (2, 0));
    // 2 ms until it is open and begins; a round trip, two until the probe, one for each segment.
    let took = pair.now - start;
    assert!(took < Nanos::from_millis(60), "{took}");
}

#[test]
fn segments_that_are_late_by_less_than_a_quarter_are_not_sent_again() {
    for (late, resent) in [(200, 0), (900, 2)] {
        let config = rack(Congestion::NewReno);
        let mut pair = Pair::new(config, config);
        let mut sent = 0;
        let mut delay = |segment: &Segment| {
            sent += u32::from(segment.len > 0);
            // Fewer than three come before it in the first flight, many later.
            let is_late = segment.len > 0 && (sent == 8 || sent == 30);
            let by = if is_late { late } else { 0 };
            Some(Nanos::from_micros(by))
        };
        assert_eq!(pair.transfer(60 * SEGMENT, &mut delay), 60 * SEGMENT);
        assert_eq!(pair.ends[0].resent().0, resent, "{late} us late");
    }
}

#[test]
fn ecn_marks_are_echoed_exactly_and_dctcp_shrinks_by_alpha() {
    let config = rack(Congestion::Dctcp);
    let mut pair = Pair::new(config, config);
    pair.run(Nanos::from_millis(2), &mut unharmed);
    let mut out = Vec::new();
    pair.ends[0].write(pair.now, 10 * SEGMENT, &mut out);
    assert!(out.iter().all(|it| it.ecn == Ecn::Able));
    // The fourth and the fifth are marked: what is held back goes before each change.
    let mut acks = Vec::new();
    for (number, segment) in out.iter_mut().enumerate() {
        if (3..5).contains(&number) {
            segment.ecn = Ecn::Marked;
        }
        pair.ends[1].receive(pair.now, segment, &mut acks);
    }
    let told = |ack: &Segment| ((ack.ack.unwrap_or(0) - 1) / SEGMENT, ack.echo_mark);
    let told: Vec<_> = acks.iter().map(told).collect();
    let expected = [(2, false), (3, false), (5, true), (7, false), (9, false)];
    assert_eq!(told, expected);
    let mut more = Vec::new();
    for ack in &acks {
        pair.ends[0].receive(pair.now, ack, &mut more);
    }
    // Half of alpha, which is still near one, of 13 segments.
    assert_eq!(pair.ends[0].congestion_window(), 6);
}

/// The last segment is sent and lost before the stream is closed, and goes again before its end.
#[test]
fn a_segment_sent_before_the_close_is_retransmitted_without_fin() {
    let client = TcpConfig {
        initial_window: 1,
        ..rack(Congestion::NewReno)
    };
    let server = TcpConfig {
        first_receive_window: MSS,
        receive_window: 4 * MSS,
        ..client
    };
    let mut pair = Pair::new(client, server);
    assert_eq!(pair.transfer(SEGMENT, &mut losing(&[0])), SEGMENT);
    assert!(pair.ends[0].is_acknowledged() && pair.ends[1].is_finished());
}

proptest! {
    #[test]
    fn with_sack_every_byte_arrives_once_despite_loss_and_delay(
        bytes in 1_u64..300_000,
        congestion in prop_oneof![
            Just(Congestion::NewReno), Just(Congestion::Cubic), Just(Congestion::Dctcp),
        ],
        windows in (1_u32..20, 3_u32..60),
        fates in proptest::collection::vec(0_u32..100, 1..300),
        loss in 0_u32..40,
        late in 0_u32..40,
    ) {
        let client = TcpConfig { initial_window: windows.0, ..rack(congestion) };
        let server = TcpConfig { receive_window: windows.1 * MSS, ..client };
        let mut pair = Pair::new(client, server);
        let mut at = 0;
        let mut fate = |_: &Segment| {
            let fate = fates.get(at).copied().unwrap_or(99);
            at += 1;
            match fate {
                it if it < loss => None,
                it if it < loss + late => Some(Nanos::from_micros(u64::from(it) * 300)),
                _ => Some(Nanos::ZERO),
            }
        };
        prop_assert_eq!(pair.transfer(bytes, &mut fate), bytes);
        prop_assert!(pair.ends[0].is_acknowledged());
    }

    #[test]
    fn without_sack_every_byte_arrives_once_despite_loss_and_delay(
        bytes in 1_u64..300_000,
        windows in (1_u32..20, 3_u32..60),
        fates in proptest::collection::vec(0_u32..100, 1..300),
        loss in 0_u32..30,
        late in 0_u32..30,
    ) {
        let client = config(|it| it.initial_window = windows.0);
        let server = config(|it| it.receive_window = windows.1 * MSS);
        let mut pair = Pair::new(client, server);
        let mut at = 0;
        // What is lost is lost among the first segments only: an end comes.
        let mut fate = |_: &Segment| {
            let fate = fates.get(at).copied().unwrap_or(99);
            at += 1;
            match fate {
                it if it < loss => None,
                it if it < loss + late => Some(Nanos::from_micros(u64::from(it) * 300)),
                _ => Some(Nanos::ZERO),
            }
        };
        prop_assert_eq!(pair.transfer(bytes, &mut fate), bytes);
        prop_assert!(pair.ends[0].is_acknowledged());
    }
}

/// A mark halves the window at first (alpha is 1), one segment for two that arrive, and once a round
/// trip; as in Linux (`tcp_cwnd_reduction`).
#[test]
fn a_mark_reduces_the_window_during_a_round_trip() {
    let config = TcpConfig {
        initial_window: 20,
        ..rack(Congestion::Dctcp)
    };
    let mut sender = Connection::established(config, Nanos::from_millis(1));
    let mut out = Vec::new();
    sender.write(Nanos::ZERO, 100 * SEGMENT, &mut out);
    assert_eq!(out.len(), 20);
    let mut sent = Vec::new();
    for number in 1..=20 {
        let ack = Segment {
            sequence: 1,
            len: 0,
            edge: Edge::None,
            ack: Some(1 + number * SEGMENT),
            window: 1 << 20,
            stamp: 1,
            echo: 1,
            sack: Sack::default(),
            ecn: Ecn::Unable,
            echo_mark: true,
        };
        out.clear();
        sender.receive(Nanos::from_millis(1), &ack, &mut out);
        sent.push(out.len());
    }
    assert_eq!(sent.iter().sum::<usize>(), 10, "{sent:?}");
    assert!(sent.iter().all(|it| *it <= 1), "{sent:?}");
    assert_eq!(sender.congestion_window(), 10);
}

/// RFC 5681, 3.1: a window grows by acknowledgements of new data.
#[test]
fn an_acknowledgement_with_sack_alone_grows_no_window() {
    let config = rack(Congestion::NewReno);
    let mut sender = Connection::established(config, Nanos::from_millis(1));
    let mut out = Vec::new();
    sender.write(Nanos::ZERO, 100 * SEGMENT, &mut out);
    let window = sender.congestion_window();
    // The second segment has arrived, the first is late.
    let mut sack = Sack::default();
    sack.blocks[0] = (MSS, 2 * MSS);
    let ack = Segment {
        sequence: 1,
        len: 0,
        edge: Edge::None,
        ack: Some(1),
        window: 1 << 20,
        stamp: 1,
        echo: 1,
        sack,
        ecn: Ecn::Unable,
        echo_mark: false,
    };
    out.clear();
    sender.receive(Nanos::from_millis(1), &ack, &mut out);
    assert_eq!(sender.congestion_window(), window);
    assert_eq!(out.len(), 1, "limited transmit: one arrived, one is sent");
}

/// Without SACK an acknowledgement that changes the window is no duplicate (RFC 5681, 2): data that
/// is read immediately takes no window. The first of three duplicates counts.
#[test]
fn data_that_is_read_at_once_takes_no_window() {
    let config = TcpConfig {
        receive_window: TcpConfig::TODAY.first_receive_window,
        quick_acks: 1_000,
        ..TcpConfig::TODAY
    };
    let mut ends = [(); 2].map(|()| Connection::established(config, ONE_WAY));
    let mut segments = Vec::new();
    ends[0].write(Nanos::ZERO, 10 * SEGMENT, &mut segments);
    let mut acks = Vec::new();
    let bytes: Vec<u64> = [0, 2, 3]
        .map(|it| ends[1].deliver(ONE_WAY, &segments[it], &mut acks))
        .into();
    assert_eq!(bytes, [SEGMENT, 0, 0]);
    let edges: Vec<_> = acks.iter().map(|it| (it.ack, it.window)).collect();
    assert!(edges.iter().all(|it| *it == edges[0]), "{edges:?}");
}

#[test]
fn ns3s_way_repairs_a_lost_tail_within_a_recovery() {
    // The tail is lost together with a segment that three others tell.
    let config = TcpConfig {
        recovery: Recovery::Ns3,
        ..rack(Congestion::NewReno)
    };
    let mut pair = Pair::new(config, config);
    assert_eq!(
        pair.transfer(30 * SEGMENT, &mut losing(&[20, 29])),
        30 * SEGMENT
    );
    assert_eq!(pair.ends[0].resent().1, 0, "no timeout");
    // A retransmission that is lost waits for a timeout.
    let mut pair = Pair::new(config, config);
    assert_eq!(
        pair.transfer(100 * SEGMENT, &mut losing(&[20, 24])),
        100 * SEGMENT
    );
    assert!(pair.ends[0].is_acknowledged());
}
