//! Frames that go to all ports.

use super::*;

const GUESTS: usize = 42;

/// Copies in a turn.
const COPIES: usize = 4;

fn mac(n: usize) -> Mac {
    Mac([2, 7, 0, 0, 0, n as u8])
}

/// A switch of an uplink, A, B and more guests.
fn bench() -> (Bench, SwitchConfig) {
    let mut bench = Bench::new(&PipelineConfig::default());
    let mut config = config(&PipelineConfig::default());
    for n in 2..GUESTS {
        config
            .guests
            .push(GuestConfig::new(format!("other{n}"), mac(n)));
        let (port, wire) = MemoryPort::new();
        bench.ports.push(Some(Box::new(port)));
        bench.wires.push(wire);
    }
    bench.switch = Switch::new(config.clone()).expect("no rule is broken");
    bench.settle();
    (bench, config)
}

fn broadcast_arp_request(n: u8) -> Vec<u8> {
    let mut asked = A4.octets();
    asked[3] = n;
    ethernet(
        Mac::BROADCAST,
        GATEWAY,
        0x0806,
        &arp(1, GATEWAY, FAR, asked.into()),
    )
}

impl Bench {
    /// Frames that have left by all ports.
    fn left(&self) -> usize {
        let wires = self.wires.iter();
        wires.map(|wire| wire.borrow().from_port.len()).sum()
    }
}

#[test]
fn others_are_served_between_the_copies_of_a_broadcast() {
    let (mut bench, _) = bench();
    for n in 0..3 {
        bench.send(UPLINK, &broadcast_arp_request(n));
    }
    // Behind them, for one station.
    bench.send(UPLINK, &datagram(MAC_B, GATEWAY, (FAR, B4), 1));
    let mut before = 0;
    let mut turns = 0;
    loop {
        bench.send(A, &a_to_b(turns));
        let turn = bench.switch.poll(bench.now, &mut bench.ports);
        let left = bench.left();
        turns += 1;
        let own = if turns == 1 { 2 } else { 1 };
        assert!(
            left - before <= COPIES + own,
            "turn {turns}: {}",
            left - before
        );
        before = left;
        let sent = bench.wires[B].borrow();
        let to_b = sent.from_port.iter();
        let to_b = to_b.filter(|(_, frame)| frame[..6] == MAC_B.0).count();
        assert_eq!(to_b, usize::from(turns) + 1, "each turn serves A");
        if !turn.busy {
            break;
        }
    }
    assert_eq!(usize::from(turns), (3 * GUESTS).div_ceil(COPIES));
    for guest in A..=GUESTS {
        let sent = bench.sent(guest);
        let copies = sent.iter().filter(|frame| frame[..6] == Mac::BROADCAST.0);
        let copies: Vec<_> = copies.cloned().collect();
        assert_eq!(
            copies,
            [
                broadcast_arp_request(0),
                broadcast_arp_request(1),
                broadcast_arp_request(2)
            ],
            "{guest}"
        );
    }
}

#[test]
fn a_storm_of_broadcasts_keeps_their_order_and_loses_none() {
    let (mut bench, _) = bench();
    for n in 0..200 {
        bench.send(UPLINK, &broadcast_arp_request(n));
    }
    bench.settle();
    let expected: Vec<_> = (0..200).map(broadcast_arp_request).collect();
    for guest in A..=GUESTS {
        assert_eq!(bench.sent(guest), expected, "{guest}");
    }
}

/// Guests leave and change places amid the copies of a broadcast: those that stay have one each.
#[test]
fn each_guest_that_stays_over_a_reload_has_one_copy() {
    let (mut bench, mut config) = bench();
    bench.send(UPLINK, &broadcast_arp_request(1));
    bench.switch.poll(bench.now, &mut bench.ports);
    bench.switch.poll(bench.now, &mut bench.ports);
    let had = bench.left();
    assert!(had > 0 && had < GUESTS / 2);
    // A and every third leave, and the others come in the opposite order.
    let mut place = 0;
    let guests = std::mem::take(&mut config.guests);
    let mut ports = std::mem::take(&mut bench.ports).into_iter();
    let mut wires = std::mem::take(&mut bench.wires).into_iter();
    let uplink = (ports.next().expect("one"), wires.next().expect("one"));
    let mut stay: Vec<_> = (guests.into_iter().zip(ports.zip(wires)))
        .filter(|_| {
            place += 1;
            place % 3 != 1
        })
        .collect();
    stay.reverse();
    (bench.ports, bench.wires) = (vec![uplink.0], vec![uplink.1]);
    for (guest, (port, wire)) in stay {
        config.guests.push(guest);
        bench.ports.push(port);
        bench.wires.push(wire);
    }
    bench
        .switch
        .reconfigure(bench.now, config)
        .expect("no rule is broken");
    bench.settle();
    for guest in A..bench.wires.len() {
        assert_eq!(bench.sent(guest), [broadcast_arp_request(1)], "{guest}");
    }
}

#[test]
fn a_drained_switch_sends_all_copies() {
    let (mut bench, _) = bench();
    bench.send(UPLINK, &broadcast_arp_request(1));
    bench.switch.poll(bench.now, &mut bench.ports);
    assert!(bench.switch.waiting(&bench.ports) > 0);
    for _ in 0..GUESTS {
        bench.switch.drain(bench.now, &mut bench.ports);
    }
    assert_eq!(bench.switch.waiting(&bench.ports), 0);
    assert_eq!(bench.left(), GUESTS);
}
