use super::*;
use crate::testing::Record;
use proptest::prelude::*;

/// The pseudo-code of RFC 8289, section 5, as it stands there: floating point, a
/// packet is its arrival time and length, what is dropped is listed.
#[derive(Default)]
struct Rfc {
    queue: VecDeque<(u64, usize, u64)>,
    bytes: usize,
    first_above_time: f64,
    drop_next: f64,
    count: u32,
    lastcount: u32,
    dropping: bool,
    dropped: Vec<u64>,
}

const TARGET: f64 = 5e6;
const INTERVAL: f64 = 100e6;

impl Rfc {
    fn control_law(t: f64, count: u32) -> f64 {
        // Its times are integers.
        t + (INTERVAL / f64::from(count).sqrt()).floor()
    }

    fn dodequeue(&mut self, now: f64) -> (Option<(u64, usize, u64)>, bool) {
        let Some(packet) = self.queue.pop_front() else {
            self.first_above_time = 0.0;
            return (None, false);
        };
        self.bytes -= packet.1;
        let mut ok_to_drop = false;
        if now - (packet.0 as f64) < TARGET || self.bytes <= 1514 {
            self.first_above_time = 0.0;
        } else if self.first_above_time == 0.0 {
            self.first_above_time = now + INTERVAL;
        } else if now >= self.first_above_time {
            ok_to_drop = true;
        }
        (Some(packet), ok_to_drop)
    }

    fn deque(&mut self, now: f64) -> Option<u64> {
        let (mut packet, mut ok_to_drop) = self.dodequeue(now);
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
            }
            while now >= self.drop_next && self.dropping {
                self.dropped.extend(packet.map(|p| p.2));
                self.count += 1;
                (packet, ok_to_drop) = self.dodequeue(now);
                if ok_to_drop {
                    self.drop_next = Self::control_law(self.drop_next, self.count);
                } else {
                    self.dropping = false;
                }
            }
        } else if ok_to_drop {
            self.dropped.extend(packet.map(|p| p.2));
            (packet, _) = self.dodequeue(now);
            self.dropping = true;
            let delta = self.count.wrapping_sub(self.lastcount);
            self.count = 1;
            if delta > 1 && now - self.drop_next < 16.0 * INTERVAL {
                self.count = delta;
            }
            self.drop_next = Self::control_law(now, self.count);
            self.lastcount = self.count;
        }
        packet.map(|p| p.2)
    }
}

fn config() -> CodelConfig {
    CodelConfig {
        packets: 100_000,
        ..CodelConfig::default()
    }
}

fn push(codel: &mut Codel<Record>, stats: &mut QueueStats, now: u64, frame: Record) {
    let enqueued = Nanos(now);
    codel.enqueue(Queued { frame, enqueued }, stats);
}

/// Runs both through the same arrivals and departures; each step is the time
/// since the last in us, how many packets come, and how many leave.
fn compare(steps: &[(u64, usize, usize)]) -> (u64, usize) {
    let mut codel = Codel::new(config());
    let mut rfc = Rfc::default();
    let mut stats = QueueStats::default();
    let (mut now, mut id) = (1_000_000_000u64, 0);
    for (gap, arrivals, departures) in steps {
        now += gap * 1000;
        for _ in 0..*arrivals {
            id += 1;
            let len = 100 + (id as usize * 37) % 1400;
            push(&mut codel, &mut stats, now, Record::new(id, 1, len));
            rfc.queue.push_back((now, len, id));
            rfc.bytes += len;
        }
        for _ in 0..*departures {
            let ours = codel.dequeue(Nanos(now), &mut stats).map(|q| q.frame.id);
            assert_eq!(ours, rfc.deque(now as f64), "at {now}");
            assert_eq!(stats.drops.codel as usize, rfc.dropped.len(), "at {now}");
        }
    }
    (stats.drops.codel, codel.backlog().packets)
}

#[test]
fn codel_matches_the_pseudo_code_under_a_standing_queue() {
    // 1.1 times what leaves comes in for 5 s, then nothing, then again: drops
    // begin, quicken, cease, and begin again at the rate of last time.
    let load: Vec<_> = (0..5000)
        .map(|i| (1000, 1 + usize::from(i % 10 == 0), 1))
        .collect();
    let rest: Vec<_> = (0..600).map(|_| (1000, 0, 1)).collect();
    let (drops, _) = compare(&[load.clone(), rest, load].concat());
    assert!(drops > 100, "{drops} drops");
}

proptest! {
    #[test]
    fn codel_matches_the_pseudo_code(
        steps in prop::collection::vec((1u64..5000, 0usize..6, 0usize..5), 0..2000),
    ) {
        compare(&steps);
    }

    #[test]
    fn the_control_law_is_exact(count in 1u32.., interval in 1u64..10_000_000_000) {
        let step = u128::from(control_law(Nanos(interval), Nanos::ZERO, count).0);
        let square = u128::from(interval).pow(2);
        prop_assert!(step.pow(2) * u128::from(count) <= square);
        prop_assert!((step + 1).pow(2) * u128::from(count) > square);
    }
}

#[test]
fn a_short_queue_is_left_alone() {
    let mut codel = Codel::new(config());
    let mut stats = QueueStats::default();
    for i in 0..10_000u64 {
        push(
            &mut codel,
            &mut stats,
            i * 1_000_000,
            Record::new(i, 1, 1514),
        );
        let left = codel.dequeue(Nanos(i * 1_000_000 + 4_999_999), &mut stats);
        assert!(left.is_some());
    }
    assert_eq!(stats.drops.total(), 0);
}

#[test]
fn codel_with_ecn_marks_as_often_as_it_would_drop() {
    let run = |ecn: bool| {
        let mut codel = Codel::new(CodelConfig { ecn, ..config() });
        let mut stats = QueueStats::default();
        let mut marked = 0;
        for i in 0..3000u64 {
            for id in [2 * i, 2 * i + 1] {
                let mut frame = Record::new(id, 1, 1514);
                frame.takes_marks = true;
                push(&mut codel, &mut stats, i * 1_000_000, frame);
            }
            let left = codel.dequeue(Nanos(i * 1_000_000), &mut stats);
            marked += u64::from(left.is_some_and(|q| q.frame.marked));
        }
        assert_eq!(marked, stats.marked);
        (stats.drops.codel, stats.marked)
    };
    let (drops, none) = run(false);
    let (no_drops, marks) = run(true);
    assert_eq!((none, no_drops), (0, 0));
    assert!(
        drops > 50 && marks.abs_diff(drops) <= 1,
        "{drops} and {marks}"
    );
}

#[test]
fn both_limits_hold() {
    let mut codel = Codel::new(CodelConfig {
        packets: 2,
        memory: Bytes(2000),
        ..CodelConfig::default()
    });
    let mut stats = QueueStats::default();
    for len in [1500, 1500, 100, 100] {
        push(&mut codel, &mut stats, 0, Record::new(0, 1, len));
    }
    assert_eq!(stats.drops.full, 2);
    assert_eq!(codel.backlog().bytes, Bytes(1600));
}

#[test]
fn heads_are_borne_until_they_have_waited_too_long_for_an_interval() {
    let dropping = Control {
        first_above: Nanos(100),
        dropping: true,
        ..Control::NEW
    };
    for (now, bears) in [(99, true), (100, false)] {
        let mut control = dropping;
        assert_eq!(control.bears(Nanos(now)), bears);
        assert_eq!(control.dropping(), !bears, "at {now}");
    }
}
