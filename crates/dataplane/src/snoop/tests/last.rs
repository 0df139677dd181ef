//! The end of a peer's stream: a FIN with the last byte, tail loss probes, retransmissions. No byte
//! is dropped without an answer.

use super::script::{World, config, run};
use crate::snoop::Pause;
use crate::snoop::SnoopConfig;
use crate::snoop::SnoopMode::{Retaining, Strict};
use tailbound_units::Bytes;

/// A handshake as in `rules`; then the guest has no room for more.
const FULL: &str = "
    guest > S. 0 ack 1 win 10000 mss 1460 ws 2 sackok
    peer < S. 0 ack 1 win 10000
    guest > P. 1:2 ack 1 win 2500
    peer < P. 1:2
    peer > . 1 ack 2
    guest < . 1 ack 2
    peer > . 1:10001 ack 2 gso 1000
    guest < . 1:10001
    host < . 2 ack 10001 win 3000          # up to 22,001
    guest > . 2 ack 10001 win 0
    peer < . 2 ack 10001";

fn retaining(script: &str) {
    run(Retaining, &format!("{FULL}\n{script}"));
}

fn world(script: &str) -> World {
    let mut world = World::new(config(Retaining), false);
    world.run_whole(&format!("{FULL}\n{script}"));
    world
}

/// A peer's last segment, with a FIN.
#[test]
fn the_bytes_before_a_fin_are_kept_and_acknowledged_and_the_fin_goes_with_them() {
    retaining(
        "peer > FP. 10001:12001 ack 2
         host < . 2 ack 12001
         owed 2000
         mode closing
         guest > . 2 ack 10001 win 2500     # its application has read
         guest < FP. 10001:12001
         guest > . 2 ack 12002 win 2000
         peer < . 2 ack 12002
         drained
         forgotten",
    );
    // As far as there is room; the FIN with the last byte alone.
    let mut few = World::new(config(Retaining), false);
    few.run_whole(&format!(
        "{FULL}
         peer > FP. 10001:12001 ack 2 gso 1000
         host < . 2 ack 12001
         guest > . 2 ack 10001 win 250
         guest < . 10001:11001
         guest > . 2 ack 11001 win 250
         guest < FP. 11001:12001
         guest > . 2 ack 12002 win 2500
         peer < . 2 ack 12002
         forgotten"
    ));
}

/// A guest with room receives the whole segment, and its peer the acknowledgement of the bytes.
#[test]
fn a_fin_within_the_window_is_the_guests_to_acknowledge() {
    run(
        Retaining,
        "guest > S. 0 ack 1 win 10000 mss 1460 ws 2 sackok
         peer < S. 0 ack 1 win 10000
         peer > FP. 1:3001 ack 1
         guest < FP. 1:3001
         host < . 1 ack 3001
         mode closing
         owed 3000
         guest > . 1 ack 3002 win 2500
         peer < . 1 ack 3002
         drained
         forgotten",
    );
}

/// A tail loss probe (RFC 8985, 7.3) is the last segment once more.
#[test]
fn a_tail_loss_probe_with_a_fin_is_answered_and_changes_nothing() {
    retaining(
        "peer > FP. 10001:12001 ack 2
         host < . 2 ack 12001
         peer > FP. 11001:12001 ack 2       # the acknowledgement is on its way
         host < . 2 ack 12001
         peer > F. 12001 ack 2              # it came: the FIN is all that is left
         +12ms
         peer > F. 12001 ack 2
         host < . 2 ack 12001
         guest > . 2 ack 10001 win 2500
         guest < FP. 10001:12001
         +12ms
         peer > F. 12001 ack 2              # nothing is held back of it now
         guest < F. 12001
         host < . 2 ack 12001
         guest > . 2 ack 12002 win 2000
         peer < . 2 ack 12002
         peer > F. 12001 ack 2              # its acknowledgement was lost
         guest < F. 12001
         guest > . 2 ack 12002 win 2000
         peer < . 2 ack 12002
         forgotten",
    );
    // The first of it was lost on its way: the probe has the bytes that are next, and the rest
    // comes again.
    retaining(
        "peer > FP. 11001:12001 ack 2
         host < . 2 ack 10001
         mode unexpected_sequence
         peer > . 10001:11001 ack 2
         host < . 2 ack 11001
         peer > FP. 11001:12001 ack 2
         host < . 2 ack 12001
         guest > . 2 ack 10001 win 2500
         guest < . 10001:11001
         guest < FP. 11001:12001
         guest > . 2 ack 12002 win 2000
         peer < . 2 ack 12002",
    );
}

/// A peer that missed an acknowledgement retransmits, with more bytes in the same segment.
#[test]
fn new_bytes_behind_a_retransmission_are_retained() {
    retaining(
        "peer > . 10001:11001 ack 2
         host < . 2 ack 11001
         peer > . 10001:13001 ack 2
         host < . 2 ack 13001
         peer > F. 12001:13001 ack 2        # one that closed meanwhile
         guest > . 2 ack 10001 win 2500
         guest < . 10001:11001
         guest < . 11001:13001
         guest < F. 13001
         guest > . 2 ack 13002 win 2000
         peer < . 2 ack 13002
         forgotten",
    );
}

/// A FIN behind bytes that the guest drops goes with them again.
#[test]
fn a_fin_that_the_guest_drops_with_the_bytes_before_it_is_sent_again() {
    for fin in ["peer > FP. 10001:12001 ack 1", "peer > . 10001:12001 ack 1"] {
        let alone = !fin.contains('F');
        let more = if alone {
            "peer > F. 12001 ack 1\n guest < F. 12001"
        } else {
            ""
        };
        let first = if alone { "." } else { "FP." };
        let last = if alone { "guest < F. 12001" } else { "" };
        run(
            Retaining,
            &format!(
                "guest > S. 0 ack 1 win 10000 mss 1460 ws 2 sackok
                 peer < S. 0 ack 1 win 10000
                 peer > . 1:10001 ack 1
                 guest < . 1:10001
                 host < . 1 ack 10001
                 {fin}
                 guest < {first} 10001:12001
                 host < . 1 ack 12001
                 {more}
                 guest > . 1 ack 10001 win 0        # it drops what is beyond its window
                 guest > . 1 ack 10001 win 2500
                 guest < {first} 10001:12001
                 {last}
                 guest > . 1 ack 12002 win 2500
                 peer < . 1 ack 12002
                 forgotten"
            ),
        );
    }
    // It gets no further than the ring.
    run(
        Retaining,
        "guest > S. 0 ack 1 win 10000 mss 1460 ws 2 sackok
         peer < S. 0 ack 1 win 10000
         peer > . 1:1001 ack 1
         guest < . 1:1001
         host < . 1 ack 1001
         loses
         peer > FP. 1001:2001 ack 1
         guest < FP. 1001:2001
         host < . 1 ack 2001
         guest > . 1 ack 1001 win 2500
         guest < FP. 1001:2001
         guest > . 1 ack 2002 win 2500
         peer < . 1 ack 2002
         forgotten",
    );
}

/// A segment that cannot be retained, and that the guest could only drop, is answered once in 10
/// ms.
#[test]
fn a_segment_that_cannot_be_kept_is_answered_by_a_duplicate() {
    let told = world(
        "peer > . 10001:11001 ack 2 ce
         host < . 2 ack 10001 win 3000
         mode congestion
         peer > . 10001:11001 ack 2
         +12ms
         peer > FP. 10001:11001 ack 2
         host < . 2 ack 10001 win 3000
         +12ms
         peer > W. 10001:11001 ack 2
         host < . 2 ack 11001
         guest > . 2 ack 10001 win 2500
         guest < .W 10001:11001
         guest > . 2 ack 11001 win 2500
         peer < . 2 ack 11001",
    );
    let mut refused = [0; Pause::ALL.len()];
    refused[Pause::Congestion as usize] = 3;
    assert_eq!(told.snoop.stats().refused, refused);
    let told = world(
        "drain
         peer > FP. 10001:11001 ack 2
         host < . 2 ack 10001 win 3000
         mode draining
         drained
         guest > . 2 ack 10001 win 2500
         peer < . 2 ack 10001
         peer > FP. 10001:11001 ack 2
         guest < FP. 10001:11001
         guest > . 2 ack 11002 win 2500
         peer < . 2 ack 11002",
    );
    assert_eq!(told.snoop.stats().beyond(), 1);
    // There is no room for it here.
    let config = SnoopConfig {
        flow: Bytes(2 * 2304),
        ..config(Retaining)
    };
    let mut world = World::new(config, false);
    world.run_whole(
        "guest > S. 0 ack 1 win 2000 mss 1460
         peer < S. 0 ack 1 win 2000
         peer > . 1:1001 ack 1
         guest < . 1:1001
         host < . 1 ack 1001
         peer > . 1001:2001 ack 1
         guest < . 1001:2001
         host < . 1 ack 2001
         guest > . 1 ack 2001 win 0
         peer < . 1 ack 2001
         peer > . 2001:2051 ack 1
         host < . 1 ack 2051
         peer > . 2051:2101 ack 1
         host < . 1 ack 2101
         peer > FP. 2101:2151 ack 1
         host < . 1 ack 2101
         mode retained
         guest > . 1 ack 2001 win 2000
         guest < . 2001:2051
         guest < . 2051:2101
         guest > . 1 ack 2101 win 2000
         peer < . 1 ack 2101
         peer > FP. 2101:2151 ack 1
         guest < FP. 2101:2151
         host < . 1 ack 2151
         guest > . 1 ack 2152 win 2000
         peer < . 1 ack 2152",
    );
}

/// A FIN without bytes is answered likewise, here of a peer that acknowledges bytes that were never sent.
#[test]
fn a_fin_that_cannot_be_kept_is_answered_by_a_duplicate() {
    let told = world(
        "peer > . 10001:11001 ack 2
         host < . 2 ack 11001
         peer > F. 11001 ack 9
         host < . 2 ack 11001
         peer > F. 11001 ack 2
         guest > . 2 ack 10001 win 2500
         guest < . 10001:11001
         guest < F. 11001
         guest > . 2 ack 11002 win 2500
         peer < . 2 ack 11002",
    );
    assert_eq!(told.snoop.stats().withheld, 1);
}

/// The guest itself answers on a connection that is off.
#[test]
fn a_connection_that_is_off_leaves_acknowledging_to_the_guest() {
    retaining(
        "peer > . 10001:11001 ack 2 kind 19
         guest < . 10001:11001
         mode md5
         guest > . 2 ack 10001 win 0
         peer < . 2 ack 10001",
    );
}

/// Strict mode retains no data: the guest acknowledges a FIN and the data with it.
#[test]
fn strict_leaves_the_last_segment_to_the_guest() {
    run(
        Strict,
        "guest > S. 0 ack 1 win 10000 mss 1460 ws 2 sackok
         peer < S. 0 ack 1 win 10000
         guest > P. 1:2 ack 1 win 2500
         peer < P. 1:2
         peer > FP. 1:3001 ack 2
         guest < FP. 1:3001
         mode closing
         guest > . 2 ack 3002 win 2500
         peer < . 2 ack 3002",
    );
}
