//! Guests with limits, in virtual time.

use super::*;
use tailbound_dataplane::shaper::{BucketConfig, RateLimit, WindowConfig};
use tailbound_dataplane::{Guarantee, PacedPipelineConfig, PacerConfig, ShaperConfig};

/// 500 B per millisecond.
const LIMIT: Rate = Rate::from_mbit(4);

fn smooth(rate: Rate) -> ShaperConfig {
    ShaperConfig::SmoothWindow(WindowConfig::new(rate))
}

fn bucket(rate: Rate) -> ShaperConfig {
    ShaperConfig::Bucket(BucketConfig {
        queue: QueueConfig::default(),
        ..BucketConfig::new(rate)
    })
}

/// Makes a configuration with a limit of A.
fn limited(limit: Option<ShaperConfig>) -> SwitchConfig {
    let mut config = config(&PipelineConfig::default());
    config.guests[0].limit = limit;
    config
}

impl Bench {
    fn limited(limit: ShaperConfig) -> Self {
        let mut bench = Self::new(&PipelineConfig::default());
        bench.become_limited(Some(limit));
        bench
    }

    fn become_limited(&mut self, limit: Option<ShaperConfig>) {
        let changed = self.switch.reconfigure(self.now, limited(limit));
        changed.expect("no rule is broken");
    }

    fn waits(&mut self) -> usize {
        let limit = self.guest(A).limit;
        limit.map_or(0, |limit| limit.backlog.packets)
    }
}

/// A datagram of 1,000 B.
fn long(to: Mac, address: std::net::Ipv4Addr, n: u16) -> Vec<u8> {
    let mut payload = n.to_be_bytes().to_vec();
    payload.resize(1000 - 14 - 20 - 8, 0);
    let packet = ipv4(A4, address, 17, &udp(1, 2, &payload));
    ethernet(to, MAC_A, 0x0800, &packet)
}

fn outside(n: u16) -> Vec<u8> {
    long(GATEWAY, FAR, n)
}

fn bytes(frames: &[Vec<u8>]) -> usize {
    frames.iter().map(Vec::len).sum()
}

/// The limit includes traffic to guests here and to the wire, in its order, and the guest's port is
/// not read while the limit holds the maximum.
#[test]
fn a_guests_limit_covers_local_and_uplink_traffic() {
    for limit in [smooth(LIMIT), bucket(LIMIT)] {
        let mut bench = Bench::limited(limit);
        for n in 0..2000 {
            let frame = match n % 2 {
                0 => outside(n),
                _ => long(MAC_B, B4, n),
            };
            bench.send(A, &frame);
        }
        let begin = bench.now;
        bench.run(begin + Nanos::from_secs(1));
        assert!(!bench.is_read(A));
        let (out, here) = (bench.sent(UPLINK), bench.sent(B));
        let sent = bytes(&out) + bytes(&here);
        assert!(sent <= 510_000 && sent > 490_000, "{sent} B");
        assert!(out.len().abs_diff(here.len()) <= 2);
        bench.run(begin + Nanos::from_secs(10));
        let all = out.len() + here.len() + bench.sent(UPLINK).len() + bench.sent(B).len();
        assert_eq!(all, 2000);
        assert!(bench.is_read(A));
        assert_eq!(bench.waits(), 0);
    }
}

#[test]
fn others_do_not_wait_for_a_guest_that_is_at_its_limit() {
    let mut bench = Bench::limited(smooth(LIMIT));
    for n in 0..500 {
        bench.send(A, &outside(n));
    }
    bench.run(bench.now + Nanos::from_millis(200));
    assert!(bench.waits() > 0);
    bench.sent(UPLINK);
    bench.send(B, &datagram(GATEWAY, MAC_B, (B4, FAR), 7));
    bench.settle();
    assert_eq!(bench.sent(UPLINK).len(), 1);
}

/// After a limit has ended, its queued frames leave before later ones, and none is lost.
#[test]
fn a_removed_limit_releases_its_queue_in_order() {
    for limit in [smooth(LIMIT), bucket(LIMIT)] {
        let mut bench = Bench::limited(limit);
        for n in 0..300 {
            bench.send(A, &outside(n));
        }
        bench.run(bench.now + Nanos::from_millis(100));
        assert!(bench.waits() > 0);
        bench.become_limited(None);
        bench.settle();
        let sent = bench.sent(UPLINK);
        assert_eq!(sent.len(), 300);
        let numbers = sent.iter().map(|frame| [frame[42], frame[43]]);
        assert!(numbers.map(u16::from_be_bytes).is_sorted());
        assert!(bench.is_read(A) && bench.guest(A).limit.is_none());
    }
}

#[test]
fn another_limit_holds_from_then_on() {
    let mut bench = Bench::limited(bucket(LIMIT));
    for n in 0..5000 {
        bench.send(A, &outside(n));
    }
    bench.run(bench.now + Nanos::from_secs(1));
    bench.sent(UPLINK);
    for (config, rate) in [
        (smooth(Rate::from_mbit(8)), 1_000_000),
        (bucket(Rate::from_mbit(2)), 250_000),
        (smooth(Rate::from_mbit(4)), 500_000),
    ] {
        bench.become_limited(Some(config));
        bench.run(bench.now + Nanos::from_secs(1));
        let sent = bytes(&bench.sent(UPLINK));
        assert!(sent.abs_diff(rate) < rate / 20, "{sent} B of {rate}");
    }
}

/// Makes a configuration in which A has a guarantee of 8 Mbit/s and 15,380 B, and a limit of 16
/// Mbit/s.
fn guaranteed(is_guaranteed: bool, limit: Option<Rate>) -> SwitchConfig {
    let link = Rate::from_mbit(1000);
    let mut config = limited(limit.map(bucket));
    config.uplink = Some(EgressConfig::Pacer(PacedPipelineConfig::new(
        PacerConfig::new(link),
    )));
    let guarantee = Guarantee::new(Rate::from_mbit(8), Bytes(15_380), link);
    config.guests[0].guarantee = is_guaranteed.then_some(guarantee);
    config
}

impl Bench {
    fn become_guaranteed(&mut self, is_guaranteed: bool, limit: Option<Rate>) {
        let config = guaranteed(is_guaranteed, limit);
        let changed = self.switch.reconfigure(self.now, config);
        changed.expect("no rule is broken");
    }

    /// Sends 32 Mbit/s from A to the outside for `millis` milliseconds; returns the bytes that
    /// left.
    fn flood(&mut self, millis: u16) -> usize {
        let mut sent = 0;
        for n in 0..millis {
            for frame in 0..4 {
                self.send(A, &outside(4 * n + frame));
            }
            self.run(self.now + Nanos::from_millis(1));
            sent += bytes(&self.sent(UPLINK));
        }
        sent
    }
}

/// A guest with a guarantee within its limit sends its guarantee without delay, and at most its
/// limit on an idle wire.
#[test]
fn a_limit_caps_traffic_beyond_the_guarantee() {
    let limit = Rate::from_mbit(16);
    let mut bench = Bench::new(&PipelineConfig::default());
    bench.become_guaranteed(true, Some(limit));
    let sent = bench.flood(2000);
    let most = 4_000_000 + 40_000;
    assert!(sent <= most, "{sent} B");
    assert!(sent > 3_900_000, "{sent} B");
    // What else it sends within its guarantee does not wait behind that.
    let small = ipv4(A4, FAR, 17, &udp(3, 4, b"small"));
    let small = ethernet(GATEWAY, MAC_A, 0x0800, &small);
    bench.send(A, &small);
    bench.run(bench.now + Nanos::from_micros(500));
    // As short as a frame may be.
    let first = bench.sent(UPLINK).first().map(Vec::len);
    assert_eq!(first, Some(60));
    let counted = bench.guest(A).limit.expect("it has one");
    assert_eq!(counted.rate, limit);
    assert!(counted.stats.sent.packets > 3900 && counted.backlog.memory.0 > 0);
}

/// Traffic to a guest here is included: together with traffic to the wire it is within the limit,
/// and each frame is counted once.
#[test]
fn local_traffic_of_a_guaranteed_guest_counts_against_its_limit() {
    let limit = Rate::from_mbit(16);
    let sent = |here: u16, elsewhere: u16| {
        let mut bench = Bench::new(&PipelineConfig::default());
        bench.become_guaranteed(true, Some(limit));
        let (mut to_guest, mut to_wire) = (0, 0);
        for n in 0..2000 {
            for frame in 0..here {
                bench.send(A, &long(MAC_B, B4, 4 * n + frame));
            }
            for frame in 0..elsewhere {
                bench.send(A, &outside(4 * n + frame));
            }
            bench.run(bench.now + Nanos::from_millis(1));
            to_guest += bytes(&bench.sent(B));
            // Not the voids between.
            let mut wire = bench.sent(UPLINK);
            wire.retain(|frame| frame[12..14] == [8, 0]);
            to_wire += bytes(&wire);
        }
        let counted = bench.guest(A).limit.expect("it has one").stats.sent;
        assert_eq!(counted.bytes, (to_guest + to_wire) as u64);
        (to_guest, to_wire)
    };
    let most = 4_000_000 + 40_000;
    // Alone, traffic to guests here has the guarantee, minus the overhead of frames.
    let (here, none) = sent(4, 0);
    assert!(
        none == 0 && (1_900_000..=2_016_000).contains(&here),
        "{here} B"
    );
    let (here, wire) = sent(4, 4);
    assert!(here + wire <= most, "{here} B here, {wire} B on the wire");
    assert!(
        here + wire >= 1_900_000 && here > 0 && wire > 0,
        "{here} B here, {wire} B on the wire"
    );
}

/// The limit stays in force when the guarantee or the limit changes, in any order.
#[test]
fn a_limit_goes_on_where_a_guarantee_begins_or_ends() {
    let limit = Some(Rate::from_mbit(16));
    let mut bench = Bench::new(&PipelineConfig::default());
    for is_guaranteed in [false, true, false, true] {
        bench.become_guaranteed(is_guaranteed, limit);
        // Frames that waited in the pacer for an ended guarantee leave immediately.
        bench.flood(20);
        let sent = bench.flood(500);
        assert!((980_000..1_040_000).contains(&sent), "{sent} B");
        // It waits for a shaper, or in the pacer.
        assert_eq!(bench.waits() > 0, !is_guaranteed);
    }
    bench.become_guaranteed(true, Some(Rate::from_mbit(24)));
    let sent = bench.flood(500);
    assert!((1_450_000..1_560_000).contains(&sent), "{sent} B");
    bench.become_guaranteed(true, None);
    let sent = bench.flood(500);
    assert!(sent > 1_900_000, "{sent} B");
    assert!(bench.guest(A).limit.is_none());
}

/// All traffic to a guest is within its limit in, and large packets are segmented.
#[test]
fn traffic_to_a_guest_is_held_to_its_inbound_limit() {
    let mut bench = Bench::new(&PipelineConfig::default());
    let mut config = config(&PipelineConfig::default());
    config.guests[1].pipeline.limit = Some(RateLimit::new(LIMIT));
    bench
        .switch
        .reconfigure(bench.now, config)
        .expect("no rule");
    for n in 0..900 {
        bench.send(A, &long(MAC_B, B4, n));
    }
    bench.run(bench.now + Nanos::from_secs(1));
    let sent = bytes(&bench.sent(B));
    assert!(sent <= 510_000 && sent > 490_000, "{sent} B");
}

/// A drained guest is finished only when none of its frames waits for its limit.
#[test]
fn a_drain_waits_for_frames_queued_at_the_limit() {
    let mut bench = Bench::limited(smooth(LIMIT));
    for n in 0..100 {
        bench.send(A, &outside(n));
    }
    bench.settle();
    let a = bench.guest(A).id;
    let mut guest = bench.switch.guest_mut(a).expect("A");
    guest.set_drained(true, &bench.ports);
    bench.settle();
    let waits = |bench: &Bench| bench.switch.guest(a).is_some_and(GuestRef::waits);
    assert!(waits(&bench));
    let before = bench.switch.waiting(&bench.ports);
    assert!(before > 0);
    while waits(&bench) {
        let at = bench.switch.poll_at(&bench.ports).expect("it is due");
        bench.run(at);
    }
    assert_eq!(bench.switch.waiting(&bench.ports), 0);
}
