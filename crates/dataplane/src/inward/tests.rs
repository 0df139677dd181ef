use super::*;
use proptest::prelude::*;

const B: Rate = Rate::from_mbit(1000);
const S: Bytes = Bytes(15_380);
const FULL: u64 = 1538;
/// A byte in units of bits times nanoseconds per second, in which tokens are counted.
const BYTE: u128 = 8_000_000_000;

fn config(senders: u32, jitter: Nanos) -> InwardConfig {
    InwardConfig {
        bandwidth: B,
        burst: S,
        burst_in: None,
        senders,
        jitter,
    }
}

/// Senders 0 to n-1 with these rates.
fn inward(config: InwardConfig, rates: &[Rate]) -> Inward {
    let mut inward = Inward::new(Nanos::ZERO, config);
    for (id, rate) in rates.iter().enumerate() {
        let id = id as u64;
        inward.add_sender(Nanos::ZERO, SenderId(id), [u128::from(id)]);
        inward.set_rate(Nanos::ZERO, SenderId(id), *rate);
    }
    inward
}

/// Pseudo-random numbers (xorshift64*): one seed, one run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % end.max(1)
    }
}

/// A token bucket by its definition, in bits times nanoseconds per second.
struct Tokens {
    held: u128,
    most: u128,
    at: u64,
}

impl Tokens {
    fn full(bytes: u64) -> Self {
        let most = u128::from(bytes) * BYTE;
        Self {
            held: most,
            most,
            at: 0,
        }
    }

    fn fill(&mut self, now: u64, rate: Rate) {
        let more = u128::from(now - self.at) * u128::from(rate.0);
        self.held = (self.held + more).min(self.most);
        self.at = now;
    }

    /// Takes the tokens of `bytes`, if the bucket has them.
    fn take(&mut self, bytes: u64) -> bool {
        let work = u128::from(bytes) * BYTE;
        let holds = work <= self.held;
        if holds {
            self.held -= work;
        }
        holds
    }
}

/// A VM that conforms to {`B_i`, S} of its receiver and to {B, S} of its own, by a clock that is
/// 900 ppm fast.
struct Sender {
    rate: Rate,
    to_receiver: Tokens,
    to_all: Tokens,
    arrived: u64,
}

/// An event at the receiver's host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Raised(u64, Rate),
    Comes(u64, u64),
    Lowered(u64, Rate),
}

/// Returns all events at the receiver's host in 30 ms, with senders that conform to their changing
/// rates; the delay of frames is at least `takes` and at most `jitter` longer.
fn conforming(random: &mut Random, count: u64, takes: u64, jitter: u64) -> Vec<(u64, Event)> {
    let share = Rate(B.0 / count);
    let mut senders: Vec<_> = (0..count)
        .map(|_| Sender {
            rate: share,
            to_receiver: Tokens::full(S.0),
            to_all: Tokens::full(S.0),
            arrived: 0,
        })
        .collect();
    let mut told = vec![share; count as usize];
    let mut raises: Vec<(u64, usize, Rate)> = Vec::new();
    let mut events = Vec::new();
    let (mut now, mut settled) = (0, 0);
    while now < 30_000_000 {
        now += random.below(20_000);
        raises.retain(|(at, id, rate)| {
            if *at <= now {
                senders[*id].fill(now);
                senders[*id].rate = *rate;
            }
            *at > now
        });
        let (from, to) = (random.below(count) as usize, random.below(count) as usize);
        if from != to && now >= settled && random.below(8) == 0 {
            // One sender lowers its rate and confirms it, and another one receives the rest.
            let less = Rate(random.below(senders[from].rate.0 + 1));
            let rest = senders[from].rate - less;
            senders[from].fill(now);
            senders[from].rate = less;
            let heard = now + takes + random.below(1_000_000);
            events.push((heard, Event::Lowered(from as u64, less)));
            told[from] = less;
            told[to] += rest;
            events.push((heard, Event::Raised(to as u64, told[to])));
            settled = heard + random.below(1_000_000);
            raises.push((settled, to, told[to]));
        }
        for (id, sender) in senders.iter_mut().enumerate() {
            sender.fill(now);
            for _ in 0..[0, 0, 1, 100][random.below(4) as usize] {
                let wire = [84, FULL, 84 + random.below(FULL - 84)][random.below(3) as usize];
                if !sender.sends(wire) {
                    break;
                }
                let at = now + takes + random.below(jitter + 1);
                sender.arrived = sender.arrived.max(at);
                events.push((sender.arrived, Event::Comes(id as u64, wire)));
            }
        }
    }
    events.sort_by_key(|(at, event)| (*at, matches!(event, Event::Lowered(..))));
    events
}

impl Sender {
    fn fill(&mut self, now: u64) {
        let fast = |rate: Rate| Rate(rate.0 + rate.0 * 9 / 10_000);
        self.to_receiver.fill(now, fast(self.rate));
        self.to_all.fill(now, fast(B));
    }

    fn sends(&mut self, wire: u64) -> bool {
        let work = u128::from(wire) * BYTE;
        work <= self.to_all.held && self.to_receiver.take(wire) && self.to_all.take(wire)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    /// Frames of conforming senders are never taken for excess: for any frames, in bursts or not,
    /// under any bunching by the network, and while rates move from one sender to another.
    #[test]
    fn frames_that_conform_at_their_senders_conform_at_the_receiver(
        seed in 1u64.., count in 1u64..8, takes in 0u64..100_000,
        jitter in prop_oneof![Just(0u64), 0u64..5_000_000],
    ) {
        let mut random = Random(seed);
        let events = conforming(&mut random, count, takes, jitter);
        let rates = vec![Rate(B.0 / count); count as usize];
        let mut inward = inward(config(count as u32, Nanos(jitter)), &rates);
        let mut frames = 0;
        for (at, event) in events {
            let now = Nanos(at);
            match event {
                Event::Raised(id, rate) | Event::Lowered(id, rate) => {
                    inward.set_rate(now, SenderId(id), rate);
                }
                Event::Comes(id, wire) => {
                    frames += 1;
                    let admission = inward.admit(now, Some(SenderId(id)), WireBytes(wire));
                    prop_assert_eq!(admission, Admission::Conforming, "{} at {}", id, now);
                }
            }
        }
        prop_assert!(frames > 10);
        prop_assert_eq!(inward.stats().conforming.packets, frames);
    }

    /// For any arrivals, over any time each sender gets at most its bucket's allowance, and all
    /// together at most the joint one; a sender in excess does not affect conforming senders.
    #[test]
    fn a_sender_that_exceeds_its_rate_takes_nothing_from_others(
        seed in 1u64.., count in 2u64..8, jitter in 0u64..5_000_000,
    ) {
        let mut random = Random(seed);
        let share = Rate(B.0 / count);
        let config = config(count as u32, Nanos(jitter));
        let mut inward = inward(config, &vec![share; count as usize]);
        let mut honest: Vec<_> = (1..count).map(|_| Tokens::full(S.0)).collect();
        let deep = |burst: u64, rate: Rate| burst + faster(rate).bytes_in(Nanos(jitter)).0 + 1;
        let mut liar = Tokens::full(deep(S.0 + FRAME.0, share));
        let mut all = Tokens::full(deep((S.0 + FRAME.0) * count, B));
        let mut now = 0;
        for _ in 0..3000 {
            now += random.below(20_000);
            liar.fill(now, faster(share));
            all.fill(now, faster(B));
            for _ in 0..random.below(20) {
                let admission = inward.admit(Nanos(now), Some(SenderId(0)), WireBytes(FULL));
                if admission == Admission::Conforming {
                    prop_assert!(liar.take(FULL) && all.take(FULL), "more than may come");
                }
            }
            for (id, tokens) in (1u64..).zip(&mut honest) {
                tokens.fill(now, share);
                while random.below(4) > 0 && tokens.take(FULL) {
                    let admission = inward.admit(Nanos(now), Some(SenderId(id)), WireBytes(FULL));
                    prop_assert_eq!(admission, Admission::Conforming);
                    prop_assert!(all.take(FULL), "more than may come");
                }
            }
        }
        prop_assert!(inward.stats().exceeding.packets > 100);
    }
}

#[test]
fn all_to_one_at_once_conforms_and_one_frame_more_does_not() {
    let mut inward = inward(config(50, Nanos::ZERO), &[Rate::ZERO; 50]);
    let mut admit = |id, wire| inward.admit(Nanos(1), Some(SenderId(id)), WireBytes(wire));
    for id in 0..50 {
        for _ in 0..S.0 / FULL {
            assert_eq!(admit(id, FULL), Admission::Conforming);
        }
        // A frame that waited for others of its guest.
        assert_eq!(admit(id, FULL), Admission::Conforming);
        assert_eq!(admit(id, FULL), Admission::Exceeding);
    }
    let stats = inward.stats();
    assert_eq!(
        (stats.conforming.packets, stats.exceeding.packets),
        (550, 50)
    );
}

#[test]
fn all_together_conform_up_to_an_inward_burst() {
    let limited = InwardConfig {
        burst_in: Some(Bytes(100 * FULL)),
        ..config(50, Nanos::ZERO)
    };
    let mut inward = inward(limited, &[Rate::ZERO; 50]);
    for id in 0..50 {
        for _ in 0..S.0 / FULL {
            inward.admit(Nanos(1), Some(SenderId(id)), WireBytes(FULL));
        }
    }
    let stats = inward.stats();
    // And a frame of each.
    assert_eq!(
        (stats.conforming.packets, stats.exceeding.packets),
        (150, 350)
    );
    // An inward burst above the sum of all bursts is no limit.
    let unlimited = InwardConfig {
        burst_in: Some(Bytes(501 * FULL)),
        ..limited
    };
    assert_eq!(unlimited.all(), config(50, Nanos::ZERO).all());
}

#[test]
fn a_machine_has_one_bucket_for_all_its_sources_and_a_stranger_none() {
    let mut inward = Inward::new(Nanos::ZERO, config(2, Nanos::ZERO));
    inward.add_sender(Nanos::ZERO, SenderId(7), [1, 2]);
    let mut admit = |source| {
        let sender = inward.sender(source);
        inward.admit(Nanos(1), sender, WireBytes(FULL))
    };
    let both: Vec<_> = [1, 2]
        .iter()
        .cycle()
        .take(12)
        .map(|of| admit(*of))
        .collect();
    assert!(both[..11].iter().all(|one| *one == Admission::Conforming));
    assert_eq!(both[11], Admission::Exceeding);
    assert_eq!(admit(3), Admission::Unannounced);
    inward.remove_sender(SenderId(7));
    assert_eq!(inward.sender(1), None);
}

#[test]
fn a_lower_rate_applies_after_the_jitter_of_frames_in_flight() {
    const JITTER: Nanos = Nanos::from_millis(1);
    let rate = Rate::from_mbit(500);
    let mut inward = inward(config(2, JITTER), &[rate]);
    let mut now = Nanos::from_millis(10);
    // Sends at the maximum for this time; returns the rate in Mbit/s.
    let mut rate_over = |inward: &mut Inward, time: Nanos| {
        let before = inward.stats().conforming.bytes;
        let end = now + time;
        while now < end {
            now += Nanos::from_micros(10);
            while inward.admit(now, Some(SenderId(0)), WireBytes(84)) == Admission::Conforming {}
        }
        let bytes = (inward.stats().conforming.bytes - before).0;
        bytes * 8 / (time.0 / 1000)
    };
    rate_over(&mut inward, JITTER);
    assert_eq!(rate_over(&mut inward, JITTER), 500);
    inward.set_rate(Nanos::from_millis(12), SenderId(0), Rate::from_mbit(100));
    assert_eq!(rate_over(&mut inward, JITTER), 500, "it may be on its way");
    // The sender has exceeded the lower rate by 0.4 Mbit, in a burst or later.
    let after = rate_over(&mut inward, Nanos::from_millis(8));
    assert!((50..=100).contains(&after), "{after}");
    assert_eq!(rate_over(&mut inward, JITTER), 100);
    // A higher rate applies immediately, and its `jitter`, too.
    inward.set_rate(Nanos::from_millis(22), SenderId(0), rate);
    let at_once = rate_over(&mut inward, JITTER);
    assert!((899..=901).contains(&at_once), "{at_once}");
    assert_eq!(rate_over(&mut inward, JITTER), 500);
}

/// A pacer without void frames delivers batches: a frame whose release is up to `EARLY` away leaves
/// now, also at the time of a new grant.
#[test]
fn frames_early_by_at_most_the_jitter_conform() {
    const EARLY: Nanos = Nanos::from_millis(5);
    let rate = Rate::from_mbit(20);
    let mut inward = inward(config(2, EARLY), &[Rate::ZERO]);
    let mut sent = 0;
    let mut send_until = |inward: &mut Inward, now: Nanos, most: Bytes| {
        while (sent + 1) * FULL <= most.0 {
            sent += 1;
            let admission = inward.admit(now, Some(SenderId(0)), WireBytes(FULL));
            assert_eq!(admission, Admission::Conforming, "frame {sent} at {now}");
        }
    };
    // The burst of a sender without a grant.
    send_until(&mut inward, Nanos::from_millis(1), S);
    for cycle in 0..20 {
        let granted = Nanos::from_millis(10 + 40 * cycle);
        inward.set_rate(granted, SenderId(0), rate);
        for after in 0..20 {
            let after = Nanos::from_millis(after);
            let before = Nanos::from_millis(20 * cycle);
            let released = rate.bytes_in(before + after + EARLY);
            send_until(&mut inward, granted + after, S + released);
        }
        inward.set_rate(granted + Nanos::from_millis(20), SenderId(0), Rate::ZERO);
    }
}

/// Grants may change at any frequency: each counts while it is valid, and at most twice the jitter
/// longer.
#[test]
fn no_change_of_a_rate_and_back_gives_more_than_the_rates_allow() {
    const JITTER: Nanos = Nanos::from_millis(1);
    let rate = Rate::from_mbit(500);
    let config = config(2, JITTER);
    let mut inward = inward(config, &[rate]);
    let deep = S.0 + FRAME.0 + faster(rate).bytes_in(JITTER).0;
    let mut now = Nanos::ZERO;
    for _ in 0..200 {
        for other in [Rate::ZERO, rate] {
            inward.set_rate(now, SenderId(0), other);
            for _ in 0..30 {
                now += Nanos::from_micros(100);
                while inward.admit(now, Some(SenderId(0)), WireBytes(84)) == Admission::Conforming {
                }
            }
        }
    }
    // Of 6 ms the grant is valid for 3, and counts for at most 2 more.
    let most = deep + faster(rate).bytes_in(Nanos(now.0 * 5 / 6)).0 + 84;
    let bytes = inward.stats().conforming.bytes.0;
    assert!(bytes <= most, "{bytes} of {most}");
}

#[test]
fn a_new_guarantee_keeps_the_bucket_levels() {
    let mut inward = inward(config(2, Nanos::ZERO), &[Rate::ZERO]);
    for _ in 0..11 {
        inward.admit(Nanos(1), Some(SenderId(0)), WireBytes(FULL));
    }
    let mut twice = *inward.config();
    twice.burst = Bytes(2 * S.0);
    inward.reconfigure(Nanos(2), twice);
    let admission = inward.admit(Nanos(3), Some(SenderId(0)), WireBytes(FULL));
    assert_eq!(admission, Admission::Exceeding, "no change gives a burst");
}
