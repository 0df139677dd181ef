//! Bounds of the cost of connections, for any behaviour of a guest and its peers.

use super::script::{World, config};
use super::wire::{GUEST, Tcp, pool};
use crate::snoop::{Origin, RingPlacement, Snoop, SnoopConfig, SnoopMode, TcpFrame};
use crate::{Packet, TcpMaker};
use proptest::prelude::*;
use tailbound_units::{Bytes, Nanos};

const NOW: Nanos = Nanos::from_secs(9);

fn snoop(config: SnoopConfig) -> (Snoop<Packet>, crate::Pool) {
    let pool = pool();
    let maker = TcpMaker {
        pool: pool.clone(),
        guest: GUEST,
    };
    (Snoop::new(config, maker), pool)
}

/// The guest's SYN-ACK to a peer's port.
fn answer(port: u16) -> Tcp {
    Tcp {
        port,
        ack: 1,
        flags: 0x12,
        window: 60_000,
        ..Tcp::default()
    }
}

fn data(port: u16, seq: u32) -> Tcp {
    Tcp {
        to_guest: true,
        port,
        seq,
        ack: 1,
        flags: 0x10,
        window: 100,
        payload: vec![7; 1000],
        ..Tcp::default()
    }
}

#[test]
fn a_full_table_forgets_the_one_idle_for_longest_and_none_that_is_owed() {
    let (mut snoop, pool) = snoop(SnoopConfig {
        flows: 3,
        ..config(SnoopMode::Retaining)
    });
    let mut now = NOW;
    for port in 1..=3 {
        now += Nanos::from_secs(5);
        snoop.handle_egress(now, answer(port).packet(&pool), Origin::OUTSIDE);
    }
    // The first connection has retained data.
    now = NOW + Nanos::from_secs(5);
    snoop.handle_ingress(now, data(1, 1).packet(&pool));
    for port in 4..=9 {
        now += Nanos::from_secs(30);
        snoop.handle_egress(now, answer(port).packet(&pool), Origin::OUTSIDE);
        let ports: Vec<_> = snoop.flows().map(|flow| flow.flow.ports as u16).collect();
        assert_eq!(ports.len(), 3);
        assert!(ports.contains(&1) && ports.contains(&port), "{ports:?}");
    }
    assert_eq!(snoop.stats().evicted, 6);
    // If all connections have retained data, another one is not tracked.
    for port in [8, 9] {
        snoop.handle_ingress(now, data(port, 1).packet(&pool));
    }
    snoop.handle_egress(now, answer(10).packet(&pool), Origin::OUTSIDE);
    assert_eq!((snoop.len(), snoop.stats().crowded), (3, 1));
    // Fewer connections on a running guest: those with retained data stay.
    snoop.reconfigure(
        now,
        SnoopConfig {
            flows: 1,
            ..*snoop.config()
        },
    );
    assert_eq!((snoop.len(), snoop.drained().flows), (3, 3));
    assert!(snoop.poll_at().is_some(), "their timers go on");
    let answered = Tcp {
        flags: 0x10,
        seq: 1,
        ack: 1001,
        window: 60_000,
        ..answer(8)
    };
    snoop.handle_egress(now, answered.packet(&pool), Origin::OUTSIDE);
    snoop.reconfigure(
        now,
        SnoopConfig {
            flows: 2,
            ..*snoop.config()
        },
    );
    assert_eq!((snoop.len(), snoop.drained().flows), (2, 2));
}

#[test]
fn retained_bytes_are_bounded_per_guest() {
    let guest = Bytes(20 * 2304);
    let (mut snoop, pool) = snoop(SnoopConfig {
        flow: Bytes(15 * 2304),
        guest,
        ..config(SnoopMode::Retaining)
    });
    for port in 1..=4 {
        snoop.handle_egress(NOW, answer(port).packet(&pool), Origin::OUTSIDE);
        for n in 0..40 {
            snoop.handle_ingress(NOW, data(port, 1 + 1000 * n).packet(&pool));
        }
    }
    assert_eq!(snoop.retained(), guest);
    let held: Vec<_> = snoop.flows().map(|flow| flow.retained.0 / 2304).collect();
    assert_eq!(held, [15, 5, 0, 0]);
    assert_eq!(snoop.abort(), 2, "peers of two are told");
    assert_eq!(snoop.retained(), Bytes(0));
}

/// An early acknowledgement promises at most half of the free memory: a segment may need twice its
/// bytes. Without a limit the guest's own window of 60,000 would be promised again.
#[test]
fn half_of_the_free_memory_is_promised_to_the_peer() {
    let promised = 59_500;
    for flags in [0x10, 0x18] {
        let (mut snoop, pool) = snoop(SnoopConfig {
            flow: Bytes(2 * promised + 2304),
            guest: Bytes(1 << 20),
            ..config(SnoopMode::Retaining)
        });
        snoop.handle_egress(NOW, answer(1).packet(&pool), Origin::OUTSIDE);
        let segment = Tcp {
            flags,
            ..data(1, 1)
        };
        snoop.handle_ingress(NOW, segment.packet(&pool));
        let early = Tcp::read(snoop.poll_to_peer().expect("acknowledged early"));
        assert_eq!(
            (early.ack, u64::from(early.window)),
            (1001, promised),
            "{flags:#x}"
        );
    }
}

#[test]
fn a_connection_that_both_ends_have_closed_is_forgotten_after_a_minute() {
    let mut world = World::new(config(SnoopMode::Retaining), false);
    world.run(
        "guest > S. 0 ack 1 win 10000
         peer < S. 0
         guest > F. 1 ack 1
         peer < F. 1
         peer > F. 1 ack 2
         guest < F. 1
         guest > . 2 ack 2
         peer < . 2
         mode closing
         +61000ms",
    );
    let other = answer(7).packet(&world.pool);
    world.snoop.handle_egress(world.now, other, Origin::OUTSIDE);
    assert_eq!(world.snoop.len(), 1);
}

/// A connection that ends while its segments are on their way to the ring.
#[test]
fn a_forgotten_connection_sends_no_acknowledgement() {
    for mode in [SnoopMode::Strict, SnoopMode::Retaining] {
        let (mut snoop, pool) = snoop(config(mode));
        snoop.handle_egress(NOW, answer(1).packet(&pool), Origin::OUTSIDE);
        let spoken = Tcp {
            flags: 0x10,
            seq: 1,
            ..answer(1)
        };
        snoop.handle_egress(NOW, spoken.packet(&pool), Origin::OUTSIDE);
        let reset = Tcp {
            flags: 0x14,
            payload: Vec::new(),
            ..data(1, 1001)
        };
        assert!(
            snoop
                .handle_ingress(NOW, data(1, 1).packet(&pool))
                .is_some()
        );
        while snoop.poll_to_peer().is_some() {}
        // Exact for strict, which has not acknowledged yet, where it is before that.
        let reset = if mode == SnoopMode::Strict {
            Tcp { seq: 1, ..reset }
        } else {
            reset
        };
        assert!(snoop.handle_ingress(NOW, reset.packet(&pool)).is_some());
        snoop.handle_placed(RingPlacement::All);
        assert!(snoop.is_empty() && !snoop.has_for_peer());
        assert_eq!(snoop.modes().iter().sum::<usize>(), 0);
    }
}

/// A change of mode while data is retained: the data is delivered first.
#[test]
fn a_change_of_mode_loses_nothing() {
    let mut world = World::new(config(SnoopMode::Retaining), false);
    world.run(
        "guest > S. 0 ack 1 win 1000
         peer < S. 0
         peer > . 1:1001 ack 1
         guest < . 1:1001
         host < . 1 ack 1001
         guest > . 1 ack 1001 win 0
         peer < . 1 ack 1001
         peer > . 1001:2001 ack 1
         host < . 1 ack 2001",
    );
    world
        .snoop
        .reconfigure(world.now, config(SnoopMode::Strict));
    world.run(
        "guest > . 1 ack 1001 win 5000
         guest < . 1001:2001
         peer > . 2001:3001 ack 1
         guest < . 2001:3001
         mode draining
         guest > . 1 ack 3001 win 5000
         peer < . 1 ack 3001
         peer > . 3001:4001 ack 1
         guest < . 3001:4001
         host < . 1 ack 4001",
    );
}

#[test]
fn invalid_snoop_configurations_report_a_mistake() {
    let right = SnoopConfig::default();
    assert_eq!(right.mistake(), None);
    for wrong in [
        SnoopConfig { flows: 0, ..right },
        SnoopConfig {
            window: Bytes(1),
            ..right
        },
        SnoopConfig {
            flow: Bytes(17 << 20),
            ..right
        },
        SnoopConfig {
            guest: Bytes(3 << 30),
            ..right
        },
    ] {
        assert!(wrong.mistake().is_some(), "{wrong:?}");
    }
}

proptest! {
    /// Segments without a connection, in both directions: the code never panics, and retains only
    /// acknowledged data.
    #[test]
    fn segments_without_a_connection_cause_no_panic(
        frames in prop::collection::vec(
            (any::<bool>(), any::<u32>(), any::<u32>(), 0u16..512, any::<u16>(),
             prop::collection::vec(any::<u8>(), 0..40), 0usize..50, 0u8..4), 1..60),
        strict: bool,
    ) {
        let mode = if strict { SnoopMode::Strict } else { SnoopMode::Retaining };
        let (mut snoop, pool) = snoop(config(mode));
        let mut now = NOW;
        for (to_guest, seq, ack, flags, window, options, payload, near) in frames {
            now += Nanos::from_millis(u64::from(window) / 50);
            // Half of them are near each other.
            let small = |number: u32| if near > 1 { number % 60 } else { number };
            let tcp = Tcp {
                to_guest,
                port: u16::from(near % 2),
                seq: small(seq),
                ack: small(ack),
                flags,
                window,
                options,
                payload: vec![1; payload],
                ..Tcp::default()
            };
            let frame = tcp.packet(&pool);
            if to_guest {
                snoop.handle_ingress(now, frame);
                snoop.handle_placed(RingPlacement::All);
            } else {
                snoop.handle_egress(now, frame, Origin::OUTSIDE);
            }
            snoop.handle_timeout(now);
            while let Some(frame) = snoop.poll_to_guest() {
                Tcp::read(frame);
            }
            while let Some(frame) = snoop.poll_to_peer() {
                Tcp::read(frame);
            }
            prop_assert!(snoop.drained().bytes > 0 || snoop.retained() == Bytes(0)
                || snoop.flows().any(|flow| flow.retained > Bytes(0)));
        }
    }

    /// A part has the right bytes, for any headers around them.
    #[test]
    fn a_part_of_a_segment_has_its_own_header_and_bytes(
        v6: bool, from in 0usize..300, part in 1usize..300, rest in 0usize..300,
    ) {
        let len = from + part + rest;
        let tcp = Tcp { v6, payload: (0..len).map(|n| n as u8).collect(), ..data(1, 5) };
        let cut = Tcp::read(tcp.packet(&pool()).part(from as u32, part as u32));
        let expected = Tcp {
            seq: 5 + from as u32,
            payload: (from..from + part).map(|n| n as u8).collect(),
            ..tcp
        };
        prop_assert_eq!(cut, expected);
    }
}
