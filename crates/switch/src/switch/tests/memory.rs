//! Memory on the host that a guest can occupy.

use super::*;
use tailbound_dataplane::{FqCodelConfig, Pool, Spare};

/// The memory limit of each queue.
const MEMORY: Bytes = Bytes(4 << 20);

fn queue(memory: Bytes) -> PipelineConfig {
    PipelineConfig {
        queue: QueueConfig::FqCodel(FqCodelConfig {
            packets: 1 << 20,
            memory,
            ..FqCodelConfig::default()
        }),
        ..PipelineConfig::default()
    }
}

/// A switch whose queues to B and to the uplink are bounded, and whose ports are full.
fn bench(segment: bool, memory: Bytes) -> Bench {
    let mut bench = Bench::new(&PipelineConfig::default());
    let uplink = PipelineConfig {
        segment,
        ..queue(memory)
    };
    let mut config = config(&uplink);
    for guest in &mut config.guests {
        guest.pipeline = queue(memory);
    }
    bench.switch = Switch::new(config).expect("no rule is broken");
    for port in [UPLINK, B] {
        bench.wires[port].borrow_mut().room = Some(0);
    }
    bench
}

/// UDP of `len` bytes over IPv4 from A.
fn frame(to: Mac, destination: std::net::Ipv4Addr, len: usize) -> Vec<u8> {
    let payload = udp(1, 2, &vec![7; len - 42]);
    ethernet(to, MAC_A, 0x0800, &ipv4(A4, destination, 17, &payload))
}

/// Returns the memory of an idle switch: the pool's minimum, and the ports' own.
fn rest() -> u64 {
    4 * Pool::KEPT as u64
}

/// Frames of any length take at most twice the memory limit of their queue, and 10 s after they
/// left only the memory of an idle switch is held.
#[test]
fn queued_frames_hold_bounded_memory_and_free_it_after_they_leave() {
    for len in [60, 1514, 2033, 2100, 4100, 9000, 16_400, 65_000] {
        let mut bench = bench(false, MEMORY);
        let frames = 8 * MEMORY.0 as usize / len.max(2048);
        for n in 0..frames as u32 {
            // Half to a guest whose port is full, half out of the host.
            let to = if n % 2 == 0 { MAC_B } else { GATEWAY };
            bench.send(A, &frame(to, std::net::Ipv4Addr::from(n), len));
            if n % 32 == 31 {
                bench.settle();
            }
        }
        let held = bench.switch.parts.receiver.pool().held();
        assert!(held.0 <= 2 * 2 * MEMORY.0, "{len}: {held} for two queues");
        assert!(held.0 >= MEMORY.0, "{len}: {held} is no test");
        for port in [UPLINK, B] {
            bench.wires[port].borrow_mut().room = None;
            bench.switch.handle_writable(PortIndex(port));
        }
        let end = bench.now + Nanos::from_secs(10);
        bench.run(end);
        assert!(!bench.sent(B).is_empty() && !bench.sent(UPLINK).is_empty());
        let held = bench.switch.parts.receiver.pool().held();
        assert!(held.0 <= rest(), "{len}: {held} at rest");
        for guest in bench.switch.parts.table.guests_mut() {
            assert_eq!(guest.pipeline.give_back(), Spare::Nothing, "{len}");
        }
        let uplink = bench
            .switch
            .parts
            .transmitter
            .uplink_mut()
            .expect("there is one");
        assert_eq!(uplink.egress_mut().give_back(), Spare::Nothing, "{len}");
        assert_eq!(
            bench.switch.poll_at(&bench.ports),
            None,
            "a timer without need"
        );
    }
}

/// Frames of one length after another, so that each length takes buffers of another size.
#[test]
fn changing_lengths_hold_no_more() {
    let memory = Bytes(8 * MEMORY.0);
    let mut bench = bench(false, memory);
    for len in [2033, 2100, 9000, 65_000, 60, 16_400, 2100, 60] {
        for n in 0..2 * memory.0 as usize / len.max(2048) {
            bench.send(A, &frame(MAC_B, B4, len));
            if n % 32 == 31 {
                bench.settle();
            }
        }
        bench.settle();
        let held = bench.switch.parts.receiver.pool().held();
        // And what each size keeps, and a burst that was received.
        let more = (4 * Pool::SPARED + BURST * Pool::LARGE) as u64;
        assert!(held.0 <= memory.0 + more, "{len}: {held}");
    }
}

/// 500 segments of one packet of 64 KiB: each has its own buffer.
#[test]
fn segments_hold_at_most_twice_the_memory_of_their_queue() {
    let mut bench = bench(true, MEMORY);
    let payload = vec![7; 60_000];
    let tcp = [
        &[
            0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0,
        ][..],
        &payload,
    ]
    .concat();
    let frame = ethernet(GATEWAY, MAC_A, 0x0800, &ipv4(A4, FAR, 6, &tcp));
    let mut virtio = [1, 1, 0, 0, 120, 0, 34, 0, 16, 0];
    virtio[2] = 54;
    for _ in 0..1000 {
        let wire = bench.wires[A].clone();
        wire.borrow_mut()
            .to_port
            .push_back((frame.clone(), Some(virtio)));
        bench.switch.handle_readable(PortIndex(A));
        bench.settle();
    }
    let held = bench.switch.parts.receiver.pool().held();
    // One overload drops half of the longest queue.
    assert!((MEMORY.0 / 2..=2 * MEMORY.0).contains(&held.0), "{held}");
}

/// Too long frames are dropped early: the kernel would refuse them after they waited.
#[test]
fn frames_above_the_mtu_of_their_port_are_dropped_and_counted() {
    let mut bench = Bench::new(&PipelineConfig::default());
    bench.wires[UPLINK].borrow_mut().longest = Some(1514);
    for len in [1514, 1515, 2100] {
        bench.send(A, &frame(GATEWAY, FAR, len));
    }
    bench.send(A, &frame(MAC_B, B4, 2100));
    bench.settle();
    assert_eq!(bench.sent(UPLINK).len(), 1);
    assert_eq!(bench.drops(UPLINK, "above_mtu"), 2);
    assert_eq!(bench.sent(B).len(), 1, "its port carries any");
    // The MTU is another one now.
    bench.wires[UPLINK].borrow_mut().longest = Some(9014);
    bench.send(A, &frame(GATEWAY, FAR, 9014));
    bench.settle();
    assert_eq!(bench.sent(UPLINK).len(), 1);
}
