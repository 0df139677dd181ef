//! Protection against senders without the key, and against arbitrary bytes.

use super::net::{Faults, Net, SECRET, key, machine};
use crate::wire::{
    AnnouncedMachine, Entry, Envelope, Header, MAX_ADDRESSES, MAX_DATAGRAM, Malformed, Message,
    Writer,
};
use crate::{
    Address, ClassesCode, DropReason, Epoch, HostId, KeyEpoch, MachineId, PairId, PairKeys,
    Revision, Secret, SequenceNumber, Station,
};
use proptest::prelude::*;
use std::sync::Arc;
use tailbound_units::{Bytes, Nanos, Rate};

const B: u64 = 1_000_000_000;

/// Two senders that use all of a receiver's bandwidth, and every datagram so far.
fn tapped() -> Net {
    let machines = (0..3).map(|host| vec![machine(host, 0, Rate(B), 3)]);
    let mut net = Net::new(machines.collect(), Faults::NONE, 3);
    net.tapped = Some(Vec::new());
    net.demand((1, 0), (0, 0), u64::MAX);
    net.run_for(Nanos::from_millis(5));
    net.demand((2, 0), (0, 0), u64::MAX);
    net.run_for(Nanos::from_millis(5));
    net
}

/// All that a host decides by.
fn shown(net: &Net, host: usize) -> String {
    let state = &net.hosts[host].state;
    format!(
        "{:?} {:?} {:?} {:?}",
        state.sending, state.receiving, state.schedule, state.view
    )
}

#[test]
fn a_replayed_datagram_changes_nothing_and_is_counted() {
    let mut net = tapped();
    let tapped = net.tapped.take().unwrap();
    assert!(tapped.len() > 20);
    net.run_for(Nanos::from_millis(1));
    for (to, datagram) in &tapped {
        let before = shown(&net, *to);
        let taken = net.deliver(*to, datagram);
        assert!(
            matches!(taken, Err(DropReason::Duplicate | DropReason::Old)),
            "{taken:?}"
        );
        assert_eq!(before, shown(&net, *to));
        // Nor at a host that it was not meant for.
        let other = (*to + 1) % 3;
        let before = shown(&net, other);
        let taken = net.deliver(other, datagram);
        assert_eq!(taken, Err(DropReason::Misdirected));
        assert_eq!(before, shown(&net, other));
    }
    let stats = net.hosts[0].state.stats(net.now);
    let counts: u64 = stats.dropped.by_reason().iter().map(|(_, n)| n).sum();
    assert!(counts > 10, "{stats:?}");
}

#[test]
fn every_flipped_bit_and_every_cut_is_seen() {
    let mut net = tapped();
    let (to, datagram) = net.tapped.take().unwrap().pop().unwrap();
    let before = shown(&net, to);
    for bit in 0..8 * datagram.len() {
        let mut forged = datagram.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        let taken = net.deliver(to, &forged);
        // Whose key it is said to be of is not covered before that is found.
        let expected = match bit / 8 {
            0..4 => DropReason::Malformed(Malformed::Version),
            4..12 => DropReason::Stranger,
            12..20 => DropReason::Misdirected,
            20..24 => DropReason::NoKey,
            _ => DropReason::Malformed(Malformed::Mac),
        };
        assert_eq!(taken, Err(expected), "{bit}");
    }
    for len in 0..datagram.len() {
        let taken = net.deliver(to, &datagram[..len]);
        assert!(matches!(taken, Err(DropReason::Malformed(_))), "{len}");
    }
    assert_eq!(before, shown(&net, to));
}

/// Returns the header of a forged datagram.
fn header_of(from: &str, to: &str) -> Header {
    Header {
        from: HostId::of(from),
        to: HostId::of(to),
        key: KeyEpoch::OWN,
        latest_key: KeyEpoch::OWN,
        classes: ClassesCode::NONE,
        epoch: Epoch(u64::MAX),
        sequence: SequenceNumber(1),
        time: Nanos(1),
        echo_epoch: Epoch(0),
        echo_time: Nanos(0),
        revision: Revision(1),
        known: Revision(0),
        machines: 0,
        pledge: true,
    }
}

/// Returns a forged datagram.
fn datagram(from: &str, to: &str, key: &crate::Key) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.start(&header_of(from, to));
    writer.finish(key).to_vec()
}

#[test]
fn another_key_and_an_unknown_host_are_refused() {
    let mut net = tapped();
    let forged = datagram("mallory", "host-0", &key(0, 1));
    assert_eq!(net.deliver(0, &forged), Err(DropReason::Stranger));
    let other = Secret::new(&[SECRET, b"!"].concat()).unwrap();
    let other = other.pair_key(KeyEpoch::OWN, "host-1", "host-0");
    let forged = datagram("host-1", "host-0", &other);
    let wrong = Err(DropReason::Malformed(Malformed::Mac));
    assert_eq!(net.deliver(0, &forged), wrong);
}

#[test]
fn a_host_cannot_speak_for_another() {
    let mut net = tapped();
    let before = shown(&net, 0);
    // Host 1 has the keys of its own pairs. With none of them it can say anything to
    // host 0 that host 2 might have said.
    for own in [key(1, 0), key(1, 2)] {
        let forged = datagram("host-2", "host-0", &own);
        let wrong = Err(DropReason::Malformed(Malformed::Mac));
        assert_eq!(net.deliver(0, &forged), wrong);
    }
    assert_eq!(before, shown(&net, 0));
    // Nor does what 2 said to it pass as said to 0.
    let mut heard = net.tapped.take().unwrap();
    heard.retain(|(to, datagram)| {
        *to == 1 && Envelope::read(datagram).unwrap().from == HostId::of("host-2")
    });
    let (_, mut heard) = heard.pop().unwrap();
    heard[12..20].copy_from_slice(&HostId::of("host-0").0.to_be_bytes());
    let wrong = Err(DropReason::Malformed(Malformed::Mac));
    assert_eq!(net.deliver(0, &heard), wrong);
    assert_eq!(before, shown(&net, 0));
}

#[test]
fn a_peer_without_a_key_is_ignored_until_it_has_one() {
    let mut net = tapped();
    let clock = net.clock(0);
    let keys = |other| Arc::new(PairKeys::own(key(0, other)));
    net.hosts[0].state.set_keys(clock, |host| {
        let is_2 = host == HostId::of("host-2");
        is_2.then(|| keys(2))
    });
    net.run_for(Nanos::from_millis(700));
    // Host 1 keeps to its static share, and host 2 gets the rest.
    assert_eq!(net.rate((1, 0), (0, 0)), B / 2);
    assert_eq!(net.rate((2, 0), (0, 0)), B / 2);
    let stats = net.hosts[0].state.stats(net.clock(0));
    let dropped = stats.dropped.by_reason();
    assert!(
        dropped
            .iter()
            .any(|(reason, count)| *reason == "no_key" && *count > 0)
    );
    assert_eq!(
        stats.alive,
        1 + u64::from(net.clock(0) < clock + Nanos::from_millis(400))
    );
    net.demand((2, 0), (0, 0), 0);
    let clock = net.clock(0);
    net.hosts[0].state.set_keys(clock, |host| {
        let place = if host == HostId::of("host-1") { 1 } else { 2 };
        Some(keys(place))
    });
    net.run_for(Nanos::from_millis(250));
    assert_eq!(net.rate((1, 0), (0, 0)), B);
}

#[test]
fn the_layout_is_the_documented_one() {
    let header = Header {
        from: HostId(1),
        to: HostId(2),
        key: KeyEpoch(3),
        latest_key: KeyEpoch(4),
        classes: ClassesCode(5),
        epoch: Epoch(6),
        sequence: SequenceNumber(7),
        time: Nanos(8),
        echo_epoch: Epoch(9),
        echo_time: Nanos(10),
        revision: Revision(11),
        known: Revision(12),
        machines: 13,
        pledge: true,
    };
    let mut writer = Writer::default();
    writer.start(&header);
    assert!(writer.push(&Entry::Grant {
        pair: PairId {
            sender: MachineId(14),
            receiver: MachineId(15),
        },
        rate: Rate(16),
        lent: Bytes(17),
    }));
    let bytes = writer.finish(&key(0, 1));
    assert_eq!(bytes.len(), 88 + 25 + 32);
    assert_eq!(&bytes[..4], b"TBH3");
    // Each number's last byte.
    for (place, number) in [
        (11, 1),
        (19, 2),
        (23, 3),
        (27, 4),
        (35, 5),
        (43, 6),
        (51, 7),
    ] {
        assert_eq!(bytes[place], number);
    }
    for (place, number) in [(59, 8), (67, 9), (75, 10), (79, 11), (83, 12), (85, 13)] {
        assert_eq!(bytes[place], number);
    }
    for (place, number) in [(87, 1), (88, 5), (92, 14), (96, 15), (104, 16), (112, 17)] {
        assert_eq!(bytes[place], number);
    }
}

#[test]
fn a_group_is_no_station() {
    for mac in [
        [0xff; 6],
        [1, 0, 0x5e, 0, 0, 1],
        [0x33, 0x33, 0, 0, 0, 1],
        [0; 6],
    ] {
        assert_eq!(Station::new(mac), None);
    }
    let mut net = tapped();
    let (header, mut machine) = (header_of("host-1", "host-0"), vec![1, 0, 0, 0, 9]);
    machine.extend([0xff; 6]);
    machine.extend([0; 18]);
    let mut writer = Writer::default();
    writer.start(&header);
    let mut body = writer.finish(&key(0, 1)).to_vec();
    body.truncate(body.len() - 32);
    body.extend(machine);
    key(0, 1).seal(&mut body);
    let wrong = Err(DropReason::Malformed(Malformed::Entries));
    assert_eq!(net.deliver(0, &body), wrong);
}

fn pair() -> impl Strategy<Value = PairId> {
    any::<(u32, u32)>().prop_map(|(sender, receiver)| PairId {
        sender: MachineId(sender),
        receiver: MachineId(receiver),
    })
}

fn burst() -> impl Strategy<Value = Bytes> {
    prop_oneof![Just(Bytes::ZERO), any::<u64>().prop_map(Bytes)]
}

fn entry() -> impl Strategy<Value = Entry> {
    let machine = (
        any::<u32>(),
        any::<[u8; 6]>(),
        "[a-z0-9/-]{0,60}",
        any::<u64>(),
        any::<u64>(),
        prop::collection::vec(any::<u128>(), 0..=MAX_ADDRESSES),
    );
    prop_oneof![
        machine.prop_map(|(id, mac, name, bandwidth, share, addresses)| {
            Entry::Machine(AnnouncedMachine {
                id: MachineId(id),
                station: Station::new(mac),
                name,
                bandwidth: Rate(bandwidth),
                share: Rate(share),
                addresses: addresses.into_iter().map(Address).collect(),
            })
        }),
        (pair(), any::<u64>(), any::<u64>(), burst()).prop_map(
            |(pair, demand, confirms, wanted)| {
                Entry::Request {
                    pair,
                    demand: Rate(demand),
                    confirms: SequenceNumber(confirms),
                    wanted,
                }
            }
        ),
        (pair(), any::<u64>(), burst()).prop_map(|(pair, rate, lent)| Entry::Grant {
            pair,
            rate: Rate(rate),
            lent,
        }),
    ]
}

proptest! {
    #[test]
    fn an_encoded_value_decodes_to_the_same_value(
        numbers: [u64; 8],
        small: (u32, u32, u16, bool),
        keys: (u32, u32),
        entries in prop::collection::vec(entry(), 0..60),
    ) {
        let header = Header {
            from: HostId(numbers[0]),
            to: HostId(numbers[1]),
            key: KeyEpoch(keys.0),
            latest_key: KeyEpoch(keys.1),
            classes: ClassesCode(numbers[7]),
            epoch: Epoch(numbers[2]),
            sequence: SequenceNumber(numbers[3]),
            time: Nanos(numbers[4]),
            echo_epoch: Epoch(numbers[5]),
            echo_time: Nanos(numbers[6]),
            revision: Revision(small.0),
            known: Revision(small.1),
            machines: small.2,
            pledge: small.3,
        };
        let mut writer = Writer::default();
        writer.start(&header);
        let fitting = entries.iter().take_while(|entry| writer.push(entry)).count();
        let datagram = writer.finish(&key(0, 1));
        prop_assert!(datagram.len() <= MAX_DATAGRAM);
        let envelope = Envelope::read(datagram).unwrap();
        prop_assert_eq!((envelope.from, envelope.to), (header.from, header.to));
        prop_assert_eq!(envelope.key, header.key);
        let body = envelope.open(&key(0, 1)).unwrap().to_vec();
        let message = Message::parse(&body).unwrap();
        prop_assert_eq!(message.header, header);
        prop_assert_eq!(&message.entries[..], &entries[..fitting]);
    }

    #[test]
    fn any_bytes_are_an_error_or_a_message(
        mut bytes in prop::collection::vec(any::<u8>(), 0..1500),
        like_ours: bool,
    ) {
        if like_ours && bytes.len() >= 89 {
            bytes[..4].copy_from_slice(b"TBH3");
            bytes[86..88].fill(0);
            bytes[88] = 1 + bytes[88] % 5;
        }
        if let Ok(envelope) = Envelope::read(&bytes) {
            prop_assert_eq!(envelope.open(&key(0, 1)), Err(Malformed::Mac));
        }
        let _ = Message::parse(&bytes);
    }
}
