//! Traffic to a guest within its senders' guarantees, and beyond.

use super::*;
use std::net::Ipv4Addr;
use tailbound_dataplane::{FqCodelConfig, InwardConfig, SenderId};

/// Ten full frames.
const BURST_OF_10: Bytes = Bytes(15_380);

/// The difference between the last byte of a VM's address and its number.
const MACHINE: u8 = 100;

/// The address of a VM of A's tenant elsewhere.
fn machine(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 1, MACHINE + number)
}

/// Makes a full frame for A from an address behind the uplink, guaranteed or not, with a unique
/// number.
fn to_a(from: Ipv4Addr, guaranteed: bool, number: u16) -> Vec<u8> {
    let payload = [&number.to_be_bytes()[..], &[0; 1470]].concat();
    let mut packet = ipv4(from, A4, 17, &udp(1, 2, &payload));
    packet[1] = if guaranteed { 46 << 2 } else { 0 };
    ethernet(MAC_A, GATEWAY, 0x0800, &packet)
}

fn number(frame: &[u8]) -> (u8, u16) {
    (frame[29], u16::from_be_bytes([frame[42], frame[43]]))
}

/// A's tenant has VMs 1 and 2 elsewhere, which may send 100 Mbit/s each to A. A's queue has 60
/// packets.
fn bench(held: bool) -> Bench {
    let mut config = config(&PipelineConfig::default());
    config.guests[0].pipeline.queue = QueueConfig::FqCodel(FqCodelConfig {
        packets: 60,
        ..FqCodelConfig::default()
    });
    let mut bench = Bench::new(&PipelineConfig::default());
    bench.switch = Switch::new(config).expect("no rule is broken");
    let a = bench.switch.guests().next().expect("A").0;
    let inward = InwardConfig {
        bandwidth: Rate::from_mbit(200),
        burst_in: None,
        burst: BURST_OF_10,
        senders: 2,
        jitter: Nanos::ZERO,
    };
    let mut guest = bench.switch.guest_mut(a).expect("A");
    guest.set_inward(bench.now, held.then_some(inward));
    if let Some(inward) = guest.inward() {
        for number in [1, 2] {
            let id = SenderId(number.into());
            let address = machine(number).to_ipv6_mapped().to_bits();
            inward.add_sender(bench.now, id, [address]);
            inward.set_rate(bench.now, id, Rate::from_mbit(100));
        }
    }
    bench.wires[A].borrow_mut().room = Some(0);
    bench
}

impl Bench {
    /// Delivers A's queued frames.
    fn delivered(&mut self) -> Vec<(u8, u16)> {
        self.wires[A].borrow_mut().room = None;
        self.switch.handle_writable(PortIndex(A));
        self.settle();
        self.sent(A).iter().map(|frame| number(frame)).collect()
    }
}

/// A flood from outside and from a guest of the host fills A's queue. Later frames within the
/// guarantees of A's tenant are neither dropped nor delayed behind the flood.
#[test]
fn conforming_frames_are_delivered_before_a_flood_without_drops() {
    for held in [true, false] {
        let mut bench = bench(held);
        for n in 0..500 {
            bench.send(UPLINK, &to_a(FAR, false, n));
            bench.send(B, &datagram(MAC_A, MAC_B, (B4, A4), n));
        }
        bench.settle();
        for n in 0..10 {
            bench.send(UPLINK, &to_a(machine(1), true, n));
            bench.send(UPLINK, &to_a(machine(2), true, n));
        }
        bench.settle();
        let delivered = bench.delivered();
        // A burst was offered to the port before, which had no room.
        let conforming = |(from, _): &&(u8, u16)| *from > MACHINE;
        let first = delivered[BURST..].iter().take_while(conforming).count();
        assert_eq!(first, if held { 20 } else { 0 }, "{delivered:?}");
        let port = bench.port(A);
        let dropped: u64 = port.drops.iter().map(|(_, count)| count).sum();
        assert_eq!(dropped + delivered.len() as u64, 1020);
    }
}

/// Backpressure concerns only the guaranteed traffic of A's senders: a flood from others fills A's
/// queue, and takes nothing from the granted rates.
#[test]
fn the_drained_count_covers_conforming_frames_and_no_flood() {
    let mut bench = bench(true);
    let a = bench.switch.guests().next().expect("A").0;
    for n in 0..500 {
        bench.send(UPLINK, &to_a(FAR, false, n));
        bench.send(B, &datagram(MAC_A, MAC_B, (B4, A4), n));
    }
    bench.settle();
    let drained = |bench: &Bench, guest| Some(bench.switch.guest(guest)?.drained());
    assert_eq!(drained(&bench, a), Some((Bytes(0), false)));
    for n in 0..10 {
        bench.send(UPLINK, &to_a(machine(1), true, n));
        bench.send(UPLINK, &to_a(machine(2), true, n));
    }
    bench.settle();
    assert_eq!(drained(&bench, a), Some((Bytes(0), true)));
    bench.delivered();
    let taken = Bytes(20 * 1514);
    assert_eq!(drained(&bench, a), Some((taken, false)));
    assert_eq!(drained(&bench, GuestId::first(9)), None);
}

/// A sender whose host does not enforce its guarantee, and a sender that is not announced: their
/// excess has a lower priority, and takes nothing from a sender within its guarantee.
#[test]
fn excess_and_unannounced_frames_get_a_lower_priority() {
    let mut bench = bench(true);
    for n in 0..40 {
        bench.send(UPLINK, &to_a(FAR, true, n));
        bench.send(UPLINK, &to_a(machine(1), true, n));
    }
    for n in 0..10 {
        bench.send(UPLINK, &to_a(machine(2), true, n));
    }
    bench.settle();
    let delivered = bench.delivered();
    // A burst, and the frame that may have waited for its guest's others; then the excess that was
    // offered to the port before the other burst arrived.
    let ours = |sender: u8, frames: u16| (0..frames).map(move |n| (MACHINE + sender, n));
    let expected: Vec<_> = ours(1, 11).collect();
    assert_eq!(delivered[..11], expected);
    let expected: Vec<_> = ours(2, 10).collect();
    assert_eq!(delivered[BURST..BURST + 10], expected);
    let stats = bench.guest(A).inward.expect("it is held");
    let counts = [stats.conforming, stats.exceeding, stats.unannounced];
    assert_eq!(counts.map(|count| count.packets), [21, 29, 40]);
    assert_eq!(stats.conforming.bytes.0, 21 * 1538);
    // Best effort of an announced sender is no excess.
    bench.send(UPLINK, &to_a(machine(1), false, 0));
    bench.settle();
    let stats = bench.guest(A).inward.expect("it is held");
    assert_eq!(stats.exceeding.packets, 29);
}

#[test]
fn a_reload_keeps_sender_state_until_its_guest_is_removed() {
    let mut bench = bench(true);
    for n in 0..11 {
        bench.send(UPLINK, &to_a(machine(1), true, n));
    }
    bench.settle();
    let same = config(&PipelineConfig::default());
    bench
        .switch
        .reconfigure(bench.now, same.clone())
        .expect("no rule is broken");
    bench.send(UPLINK, &to_a(machine(1), true, 11));
    bench.settle();
    let stats = bench.guest(A).inward.expect("it is held");
    assert_eq!((stats.conforming.packets, stats.exceeding.packets), (11, 1));
    let a = bench.switch.guests().next().expect("A").0;
    let mut without = same.clone();
    without.guests.remove(0);
    bench
        .switch
        .reconfigure(bench.now, without)
        .expect("no rule is broken");
    assert!(bench.switch.guest(a).is_none());
    bench
        .switch
        .reconfigure(bench.now, same)
        .expect("no rule is broken");
    assert!(bench.guest(A).inward.is_none());
}
