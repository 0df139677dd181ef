//! The segments of a burst share acknowledgements, two at most. Nothing else depends on bursts.

use super::wire::{GUEST, Tcp, pool};
use crate::snoop::{Origin, RingPlacement, Snoop, SnoopConfig};
use crate::{Packet, TcpMaker};
use proptest::prelude::*;
use tailbound_units::{Bytes, Nanos};

/// The peers' ports.
const PORTS: [u16; 2] = [998, 999];
/// Longer frames are packets before segmentation into this size.
const SEGMENT: u16 = 400;
const START: u32 = 1000;

/// A segment of a burst.
#[derive(Debug, Clone, Copy)]
struct Data {
    connection: usize,
    len: usize,
    /// True if another comes first, so that it is out of order.
    is_early: bool,
}

fn bursts() -> impl Strategy<Value = Vec<Vec<Data>>> {
    let connection = prop_oneof![5 => Just(0_usize), 1 => Just(1)];
    let len = prop_oneof![5 => 1_usize..=400, 1 => 401_usize..2000];
    let data = (connection, len, prop::bool::weighted(0.05));
    let data = data.prop_map(|(connection, len, is_early)| Data {
        connection,
        len,
        is_early,
    });
    prop::collection::vec(prop::collection::vec(data, 1..12), 1..6)
}

fn segment(to_guest: bool, port: u16, ack: u32, clock: u32) -> Tcp {
    let [a, b, c, d] = clock.to_be_bytes();
    Tcp {
        to_guest,
        port,
        hops: 64,
        ack,
        flags: 0x10,
        window: u16::MAX,
        options: vec![1, 1, 8, 10, a, b, c, d, 0, 0, 0, 7],
        ..Tcp::default()
    }
}

/// A host with two open connections.
fn host() -> (Snoop<Packet>, TcpMaker) {
    let maker = TcpMaker {
        pool: pool(),
        guest: GUEST,
    };
    let config = SnoopConfig {
        flow: Bytes(1 << 30),
        guest: Bytes(1 << 31),
        ..SnoopConfig::default()
    };
    let mut snoop = Snoop::new(config, maker.clone());
    for port in PORTS {
        let open = Tcp {
            flags: 0x12,
            ..segment(false, port, START, 1)
        };
        snoop.handle_egress(
            Nanos::from_secs(5),
            open.packet(&maker.pool),
            Origin::OUTSIDE,
        );
    }
    (snoop, maker)
}

/// An acknowledgement, and the timestamp that it echoes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Answer {
    port: u16,
    ack: u32,
    echo: u32,
}

fn answers(snoop: &mut Snoop<Packet>) -> Vec<Answer> {
    let packets: Vec<_> = std::iter::from_fn(|| snoop.poll_to_peer()).collect();
    assert!(!snoop.has_for_peer());
    let answer = |packet| {
        let tcp = Tcp::read(packet);
        let echo = tcp.options[8..12].try_into().expect("four bytes");
        Answer {
            port: tcp.port,
            ack: tcp.ack,
            echo: u32::from_be_bytes(echo),
        }
    };
    packets.into_iter().map(answer).collect()
}

/// Checks the answers to a burst, given those to its segments one by one: each is one of them, in
/// order, for two segments at most, with the echo of the first segment that it acknowledges.
fn check(shared: &[Answer], single: &[Answer]) -> Result<(), TestCaseError> {
    for port in PORTS {
        let of = |answers: &[Answer]| -> Vec<Answer> {
            let its = answers.iter().filter(|it| it.port == port);
            its.copied().collect()
        };
        let (shared, single) = (of(shared), of(single));
        prop_assert_eq!(
            shared.last().map(|it| it.ack),
            single.last().map(|it| it.ack)
        );
        let mut rest = single.as_slice();
        for answer in shared {
            let place = rest.iter().position(|it| it.ack == answer.ack);
            let place = place.expect("an acknowledgement of a segment's end");
            prop_assert!(place < 2, "{answer:?} is for {} segments", place + 1);
            prop_assert_eq!(answer.echo, rest[0].echo);
            rest = &rest[place + 1..];
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn two_segments_of_a_burst_share_an_acknowledgement(bursts in bursts()) {
        let now = Nanos::from_secs(5);
        let ((mut together, maker), (mut alone, _)) = (host(), host());
        let (mut next, mut clock) = ([START; 2], 1000);
        for burst in bursts {
            let mut single = Vec::new();
            let is_plain = burst.iter().all(|it| {
                it.connection == 0 && it.len <= usize::from(SEGMENT) && !it.is_early
            });
            let count = burst.len();
            for Data { connection, len, is_early } in burst {
                clock += 1;
                let mut data = segment(true, PORTS[connection], 1, clock);
                data.seq = next[connection].wrapping_add(u32::from(is_early) * 500);
                data.payload = vec![7; len];
                if !is_early {
                    next[connection] += len as u32;
                }
                let [one, other] = [(); 2].map(|()| data.packet_of(&maker.pool, SEGMENT));
                let passed = together.handle_ingress(now, one).map(|it| it.bytes().to_vec());
                let expected = alone.handle_ingress(now, other).map(|it| it.bytes().to_vec());
                prop_assert_eq!(passed, expected);
                alone.handle_placed(RingPlacement::All);
                single.extend(answers(&mut alone));
            }
            together.handle_placed(RingPlacement::All);
            let shared = answers(&mut together);
            check(&shared, &single)?;
            if is_plain && single.len() == count {
                prop_assert_eq!(shared.len(), count.div_ceil(2));
            }
            prop_assert_eq!(together.stats(), alone.stats());
            prop_assert_eq!(together.retained(), alone.retained());
            let mut states = [Vec::new(), Vec::new()];
            together.export(now, &mut states[0]);
            alone.export(now, &mut states[1]);
            prop_assert_eq!(&states[0], &states[1]);
        }
    }
}

/// A packet before segmentation is acknowledged alone.
#[test]
fn a_packet_of_many_segments_shares_no_acknowledgement() {
    let (mut snoop, maker) = host();
    let now = Nanos::from_secs(5);
    let mut seq = START;
    for len in [400, 1200, 400, 400] {
        let data = Tcp {
            seq,
            payload: vec![7; len],
            ..segment(true, PORTS[0], 1, seq)
        };
        seq += len as u32;
        assert!(
            snoop
                .handle_ingress(now, data.packet_of(&maker.pool, SEGMENT))
                .is_some()
        );
    }
    snoop.handle_placed(RingPlacement::All);
    let acks: Vec<_> = answers(&mut snoop)
        .iter()
        .map(|it| it.ack - START)
        .collect();
    assert_eq!(acks, [400, 1600, 2400]);
}
