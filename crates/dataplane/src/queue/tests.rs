use super::*;
use crate::Class;
use crate::testing::Record;

/// A queue by classes with a frame of the lowest class in every other place.
fn by_class(frames: u64) -> Queue<Record> {
    let mut queue = Queue::new(&QueueConfig::Priority(PriorityConfig::default()));
    for id in 0..frames {
        let class = [Class::Lowest, Class::Small][id as usize % 2];
        let frame = Record {
            class,
            ..Record::new(id, 1, 100)
        };
        queue.push(Nanos(id), frame, &mut QueueStats::default());
    }
    queue
}

#[test]
fn a_new_kind_of_queue_has_all_frames_in_order_of_arrival_and_its_own_limit() {
    let mut queue = by_class(6);
    queue.reconfigure(&QueueConfig::Fifo(FifoConfig {
        packets: 2,
        ..FifoConfig::default()
    }));
    let mut stats = QueueStats::default();
    queue.push(Nanos(6), Record::new(6, 1, 100), &mut stats);
    assert_eq!(stats.drops.full, 1);
    let left = std::iter::from_fn(|| queue.pull(Nanos(7), &mut stats));
    let left: Vec<_> = left.map(|it| (it.frame.id, it.enqueued.0)).collect();
    assert_eq!(left, [0, 1, 2, 3, 4, 5].map(|id| (id, id)));
}
