//! Guests that are added and removed.

use super::*;
use tailbound_dataplane::{FqCodelConfig, Guarantee, GuestId, PacedPipelineConfig, PacerConfig};

const LINK: Rate = Rate::from_mbit(1000);

/// A and the port of B stay; the guest of that port changes.
fn with(uplink: &EgressConfig, others: impl IntoIterator<Item = u32>, b: u32) -> SwitchConfig {
    let mut config = config(&PipelineConfig::default());
    config.uplink = Some(uplink.clone());
    config.guests[1].name = format!("B{b}");
    let others = others.into_iter().map(|n| {
        let [a, b, c, d] = n.to_be_bytes();
        GuestConfig::new(format!("other {n}"), Mac([6, 0, a, b, c, d]))
    });
    config.guests.extend(others);
    config
}

fn queue() -> EgressConfig {
    EgressConfig::Pipeline(PipelineConfig {
        queue: QueueConfig::FqCodel(FqCodelConfig::default()),
        nic: Some(NicConfig::new(Rate::from_mbit(10))),
        ..PipelineConfig::default()
    })
}

impl Bench {
    fn become_(&mut self, config: SwitchConfig) {
        let ports = config.guests.len() + 1;
        self.ports.resize_with(ports, || None);
        let changed = self.switch.reconfigure(self.now, config);
        changed.expect("no rule is broken");
    }

    /// Returns the number of A's queued frames that leave before a later one of B.
    fn frames_before_b(&mut self) -> usize {
        for n in 0..100 {
            self.send(A, &datagram(GATEWAY, MAC_A, (A4, FAR), n));
        }
        self.settle();
        self.send(B, &datagram(GATEWAY, MAC_B, (B4, FAR), 0));
        self.run(self.now + Nanos::from_millis(500));
        let sent = self.sent(UPLINK);
        assert_eq!(sent.len(), 101);
        let position = sent.iter().position(|frame| frame[6..12] == MAC_B.0);
        position.expect("B's frame leaves")
    }
}

#[test]
fn no_successor_shares_a_queue_with_a_guest_that_stays() {
    // With a queue of its number modulo 1023, every 1023rd guest did.
    let mut bench = Bench::new(&PipelineConfig::default());
    bench.become_(with(&queue(), [], 0));
    let first = bench.frames_before_b();
    for b in 1..1100 {
        bench.become_(with(&queue(), [], b));
        if (1015..1030).contains(&b) || b % 100 == 0 {
            assert_eq!(bench.frames_before_b(), first, "guest {b}");
        }
    }
}

#[test]
fn after_a_hundred_thousand_guests_the_next_is_as_the_first() {
    after_guests(100_000);
}

#[test]
#[ignore = "takes a quarter of a minute"]
fn after_a_million_guests_the_next_is_as_the_first() {
    after_guests(1_000_000);
}

fn after_guests(guests: u32) {
    const AT_ONCE: u32 = 1000;
    let mut bench = Bench::new(&PipelineConfig::default());
    bench.become_(with(&queue(), [], 0));
    let first = bench.frames_before_b();
    let crowd = |round: u32| with(&queue(), round * AT_ONCE..(round + 1) * AT_ONCE, round);
    for round in 1..=guests / AT_ONCE {
        bench.now += Nanos::from_millis(1);
        bench.become_(crowd(round));
    }
    bench.become_(with(&queue(), [], 0));
    assert_eq!(bench.frames_before_b(), first);
    let most = bench.switch.guests().map(|(id, _)| id.slot()).max();
    assert!(most.is_some_and(|slot| slot <= 2 * AT_ONCE as usize + 4));

    // The pacer accepts a guarantee of a new guest.
    let paced = EgressConfig::Pacer(PacedPipelineConfig::new(PacerConfig::strict(LINK)));
    let mut config = with(&paced, [], 1);
    config.guests[1].guarantee = Some(Guarantee::new(Rate::from_mbit(100), Bytes(15_380), LINK));
    bench.become_(config);
    let (b, _) = bench.switch.guests().nth(1).expect("B");
    assert!(bench.switch.guarantee(b).is_some(), "{b}");
}

#[test]
fn a_slot_is_reused_and_old_queued_frames_become_best_effort() {
    let paced = EgressConfig::Pacer(PacedPipelineConfig::new(PacerConfig::strict(LINK)));
    let guarantee = Guarantee::new(Rate::from_mbit(10), Bytes(15_380), LINK);
    let with = |b| {
        let mut config = with(&paced, [], b);
        config.guests[1].guarantee = Some(guarantee);
        config
    };
    let mut bench = Bench::new(&PipelineConfig::default());
    bench.switch = Switch::new(with(0)).expect("no rule is broken");
    bench.run(bench.now + Nanos::from_secs(1));
    for n in 0..400 {
        bench.send(B, &datagram(GATEWAY, MAC_B, (B4, FAR), n));
    }
    bench.settle();
    let id = |bench: &Bench| bench.switch.guests().nth(1).expect("B").0;
    assert_eq!(id(&bench), GuestId::first(1));
    let uplink = bench.switch.pacer().expect("the uplink is paced");
    let waiting = uplink.waiting();
    assert!(waiting > 10, "{waiting}");
    // One that comes as it goes gets another; the next one gets its slot.
    bench.become_(with(1));
    assert_eq!(id(&bench), GuestId::first(2));
    bench.become_(with(2));
    assert_eq!(id(&bench), GuestId::first(1).successor());
    let b = id(&bench);
    assert_eq!(bench.switch.guarantee(b), Some(&guarantee));
    let uplink = bench.switch.pacer().expect("the uplink is paced");
    assert_eq!(
        (uplink.waiting(), uplink.best_effort().packets),
        (0, waiting)
    );
}
