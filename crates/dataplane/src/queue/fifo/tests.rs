use super::*;
use crate::testing::Record;

fn push(fifo: &mut Fifo<Record>, stats: &mut QueueStats, id: u64, len: usize) {
    let queued = Queued {
        frame: Record::new(id, 1, len),
        enqueued: Nanos::ZERO,
    };
    fifo.enqueue(queued, stats);
}

fn ids(fifo: &mut Fifo<Record>) -> Vec<u64> {
    let mut stats = QueueStats::default();
    std::iter::from_fn(|| fifo.dequeue(Nanos::ZERO, &mut stats))
        .map(|queued| queued.frame.id)
        .collect()
}

#[test]
fn a_full_fifo_drops_new_frames() {
    let mut fifo = Fifo::new(FifoConfig {
        packets: 3,
        ..FifoConfig::default()
    });
    let mut stats = QueueStats::default();
    for id in 0..5 {
        push(&mut fifo, &mut stats, id, 100);
    }
    assert_eq!(stats.drops.full, 2);
    assert_eq!(fifo.backlog().bytes, Bytes(300));
    assert_eq!(ids(&mut fifo), [0, 1, 2]);
    assert_eq!(fifo.backlog(), Backlog::default());
}

#[test]
fn a_large_packet_counts_all_its_bytes() {
    let mut fifo = Fifo::new(FifoConfig {
        packets: 1000,
        memory: Bytes(100_000),
    });
    let mut stats = QueueStats::default();
    push(&mut fifo, &mut stats, 0, 65_000);
    push(&mut fifo, &mut stats, 1, 65_000);
    push(&mut fifo, &mut stats, 2, 35_000);
    assert_eq!(stats.drops.full, 1);
    assert_eq!(ids(&mut fifo), [0, 2]);
}

#[test]
fn a_thousand_packets_of_64_kib_fit_by_default() {
    let mut fifo = Fifo::new(FifoConfig::default());
    let mut stats = QueueStats::default();
    for id in 0..1001 {
        push(&mut fifo, &mut stats, id, 65_550);
    }
    assert_eq!(fifo.backlog().packets, 1000);
}

#[test]
fn the_memory_limit_counts_buffers_and_not_frame_lengths() {
    // 2,100 bytes lie in a buffer of 68 KiB: 32 times what their length says.
    use crate::{Packet, Pool};
    const MEMORY: u64 = 1 << 20;
    let pool = Pool::new();
    let mut fifo = Fifo::new(FifoConfig {
        memory: Bytes(MEMORY),
        ..FifoConfig::default()
    });
    let mut stats = QueueStats::default();
    let mut held = 0;
    for _ in 0..400 {
        let mut buffer = pool.buffer(Packet::HEADROOM + 2100);
        buffer[Packet::HEADROOM..][..14].copy_from_slice(&[2; 14]);
        let before = stats.drops.full;
        let capacity = buffer.len() as u64;
        let frame = Packet::new(buffer, Packet::HEADROOM, 2100, None, None).expect("well formed");
        let enqueued = Nanos::ZERO;
        fifo.enqueue(Queued { frame, enqueued }, &mut stats);
        held += capacity * u64::from(stats.drops.full == before);
        assert!(held <= MEMORY, "{held} bytes held");
    }
    assert!(stats.drops.full > 0 && held > MEMORY / 2);
    let Backlog { bytes, memory, .. } = fifo.backlog();
    assert!(bytes.0 < memory.0 && memory.0 <= MEMORY);
    while fifo.dequeue(Nanos::ZERO, &mut stats).is_some() {}
    assert_eq!(fifo.backlog(), Backlog::default());
}
