use super::*;
use crate::queue::{CodelConfig, FifoConfig};
use crate::testing::Record;

fn frame(id: u64, class: Class) -> Record {
    Record {
        class,
        ..Record::new(id, 1, 1000)
    }
}

#[test]
fn each_class_goes_before_those_below_it() {
    let mut queue = Queue::new(&QueueConfig::Priority(PriorityConfig::default()));
    let mut stats = QueueStats::default();
    for id in 0..10 {
        queue.push(Nanos::ZERO, frame(id, Class::Lowest), &mut stats);
    }
    queue.push(Nanos::ZERO, frame(100, Class::Small), &mut stats);
    queue.push(Nanos::ZERO, frame(101, Class::Small), &mut stats);
    queue.push(Nanos::ZERO, frame(102, Class::Guaranteed), &mut stats);
    let order: Vec<_> = std::iter::from_fn(|| queue.pull(Nanos::ZERO, &mut stats))
        .map(|queued| queued.frame.id)
        .collect();
    assert_eq!(order, [102, 100, 101, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(stats.pushed, stats.pulled);
}

#[test]
fn each_class_has_limits_of_its_own() {
    let fifo = |packets| {
        Box::new(QueueConfig::Fifo(FifoConfig {
            packets,
            ..FifoConfig::default()
        }))
    };
    let config = PriorityConfig {
        small: fifo(2),
        lowest: fifo(5),
        ..PriorityConfig::default()
    };
    let mut queue = Queue::new(&QueueConfig::Priority(config));
    let mut stats = QueueStats::default();
    for id in 0..10 {
        queue.push(Nanos::ZERO, frame(id, Class::Small), &mut stats);
        queue.push(Nanos::ZERO, frame(id, Class::Lowest), &mut stats);
    }
    assert_eq!(queue.backlog().packets, 7);
    assert_eq!(stats.drops.full, 13);
}

#[test]
fn an_empty_higher_class_lets_the_lowest_class_send() {
    let config = PriorityConfig {
        small: Box::new(QueueConfig::Codel(CodelConfig::default())),
        ..PriorityConfig::default()
    };
    let mut queue = Queue::new(&QueueConfig::Priority(config));
    let mut stats = QueueStats::default();
    queue.push(Nanos::ZERO, frame(1, Class::Lowest), &mut stats);
    let left = queue.pull(Nanos::ZERO, &mut stats).map(|q| q.frame.id);
    assert_eq!(left, Some(1));
    assert!(queue.pull(Nanos::ZERO, &mut stats).is_none());
}
