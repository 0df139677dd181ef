//! Each rule of `docs/explanation/snoop.md` as a script. The first lines of most are a handshake: the
//! guest has room for 10,000 bytes in steps of 4, and segments have 1,000.

use super::script::{World, config, run};
use crate::snoop::SnoopMode::{Retaining, Strict};
use crate::snoop::{SnoopConfig, SnoopMode};
use std::fmt::Write;
use tailbound_units::Bytes;

/// A handshake and a script after it.
fn after(handshake: &str, script: &str) -> String {
    format!("{handshake}\n{script}")
}

/// By how much timers may be late: they count in about milliseconds.
const TICKS: u32 = 3;

const PLAIN: &str = "
    guest > S. 0 ack 1 win 10000 mss 1460 ws 2 sackok
    peer < S. 0 ack 1 win 10000
    guest > P. 1:2 ack 1 win 2500
    peer < P. 1:2 ack 1 win 2500
    peer > . 1 ack 2
    guest < . 1 ack 2";

const STAMPED: &str = "
    guest > S. 0 ack 1 win 10000 mss 1460 ws 2 sackok ts 500 100
    peer < S. 0 ack 1 win 10000
    guest > P. 1:2 ack 1 win 2500 ts 501 100
    peer < P. 1:2
    peer > . 1 ack 2 ts 101 501
    guest < . 1 ack 2";

fn both(script: &str) {
    for mode in [Retaining, Strict] {
        run(mode, &after(PLAIN, script));
    }
}

fn retaining(script: &str) {
    run(Retaining, &after(PLAIN, script));
}

fn strict(script: &str) {
    run(Strict, &after(PLAIN, script));
}

/// Rule 1. A segment without payload is not acknowledged: that would never end.
#[test]
fn an_acknowledgement_is_not_acknowledged() {
    both(
        "peer > . 1 ack 2
         guest < . 1
         mode opening",
    );
}

/// Rule 2. PSH has no effect; SYN, FIN, RST and URG stop early acknowledgement.
#[test]
fn only_what_changes_a_connection_stops() {
    both(
        "peer > P. 1:1001 ack 2
         guest < P. 1:1001
         host < . 2 ack 1001",
    );
    both(
        "peer > U. 1:1001 ack 2
         guest < .U 1:1001
         mode urgent",
    );
    strict(
        "peer > F. 1:1001 ack 2
         guest < F. 1:1001
         mode closing",
    );
    retaining(
        "peer > F. 1:1001 ack 2
         guest < F. 1:1001
         host < . 2 ack 1001
         mode closing",
    );
    both(
        "peer > R. 1 ack 2
         guest < R. 1
         unknown",
    );
    both(
        "peer > S. 1:1001 ack 2
         guest < S. 1:1001
         guest > . 2 ack 1 win 2500     # a challenge (RFC 5961) is for the peer
         peer < . 2 ack 1",
    );
}

/// Rule 3. An early acknowledgement has the number of the guest's next byte.
#[test]
fn the_number_is_behind_all_that_the_guest_sent() {
    both(
        "guest > P. 2:502 ack 1 win 2500
         peer < P. 2:502
         guest > P. 2:302 ack 1 win 2500    # once more
         peer < P. 2:302
         peer > . 1:1001 ack 2
         guest < . 1:1001
         host < . 502 ack 1001",
    );
}

/// Rule 4, strict: only data within the guest's window is acknowledged, and no more is promised.
#[test]
fn strict_stays_within_the_guests_window() {
    strict(
        "guest > . 2 ack 1 win 500          # 10,000 were promised
         peer < . 2 ack 1 win 2500
         peer > . 1:9001 ack 2 gso 1000
         guest < . 1:9001
         host < . 2 ack 9001 win 250
         peer > . 9001:10002 ack 2
         guest < . 9001:10002
         mode window",
    );
}

/// Rule 4, retaining: data beyond the guest's window is placed in the ring while the window is
/// open: the window moves as the guest takes data.
#[test]
fn what_is_kept_is_placed_ahead_of_an_open_window() {
    retaining(
        "peer > . 1:9001 ack 2 gso 1000
         guest < . 1:9001 gso 1000
         host < . 2 ack 9001 win 3000
         peer > . 9001:11001 ack 2 gso 1000
         guest < . 9001:11001 gso 1000
         host < . 2 ack 11001 win 3500
         peer > . 11001:12001 ack 2
         guest < . 11001:12001
         host < . 2 ack 12001 win 4000
         guest > . 2 ack 9001 win 1000
         peer > FP. 12001:13001 ack 2
         guest < FP. 12001:13001
         host < . 2 ack 13001
         guest > . 2 ack 12001 win 1000
         guest > . 2 ack 13002 win 1000
         peer < . 2 ack 13002
         drained",
    );
}

/// Rule 4, retaining: a repeated acknowledgement of the guest means that it dropped the data beyond
/// its window. All of that data is sent again as its window has room.
#[test]
fn what_the_guest_drops_ahead_of_its_window_is_withheld() {
    retaining(
        "peer > . 1:10001 ack 2 gso 1000
         guest < . 1:10001
         host < . 2 ack 10001
         peer > . 10001:11001 ack 2
         guest < . 10001:11001
         host < . 2 ack 11001
         peer > . 11001:12001 ack 2
         guest < . 11001:12001
         host < . 2 ack 12001
         guest > . 2 ack 10001 win 300
         guest > . 2 ack 10001 win 300
         guest < . 10001:11001
         peer > . 12001:13001 ack 2         # behind what is withheld
         host < . 2 ack 13001
         guest > . 2 ack 11001 win 500
         guest < . 11001:12001
         guest < . 12001:13001
         guest > . 2 ack 13001 win 2500
         peer < . 2 ack 13001
         peer > . 13001:14001 ack 2
         guest < . 13001:14001
         host < . 2 ack 14001",
    );
    // The guest does not repeat its acknowledgement: the timer.
    retaining(
        "peer > . 1:10001 ack 2 gso 1000
         guest < . 1:10001
         host < . 2 ack 10001
         peer > . 10001:12001 ack 2 gso 1000
         guest < . 10001:12001
         host < . 2 ack 12001
         guest > . 2 ack 9001 win 250
         runs
         +1ms
         runs
         +210ms
         guest < . 9001:10001
         guest > . 2 ack 10001 win 500
         guest < . 10001:12001 gso 1000",
    );
}

/// Rule 4, retaining: behind a closed window, arriving data is acknowledged, queued in order, and
/// sent when there is room; FIN goes behind it.
#[test]
fn what_the_guest_has_no_room_for_waits_for_its_window() {
    retaining(
        "peer > . 1:9001 ack 2 gso 1000
         guest < . 1:9001 gso 1000
         host < . 2 ack 9001 win 3000
         peer > . 9001:10001 ack 2
         guest < . 9001:10001
         host < . 2 ack 10001 win 3500
         peer > . 10001:11001 ack 2
         guest < . 10001:11001
         host < . 2 ack 11001 win 4000
         guest > . 2 ack 10001 win 0        # it read nothing yet, and drops the rest
         peer > P. 11001:12001 ack 2
         host < . 2 ack 12001 win 3750
         peer > F. 12001 ack 2
         guest > . 2 ack 10001 win 260      # room for one
         guest < . 10001:11001 ack 2
         guest > . 2 ack 11001 win 2500
         guest < P. 11001:12001 ack 2
         guest < F. 12001
         guest > . 2 ack 12002 win 2400
         peer < . 2 ack 12002
         drained",
    );
}

/// Rule 4, retaining: data that the guest's stack drops behind its ring is retransmitted, by a
/// timer with back-off, and only while the guest runs.
#[test]
fn what_the_guest_drops_is_sent_again() {
    retaining(
        "peer > . 1:1001 ack 2
         guest < . 1:1001
         host < . 2 ack 1001
         +250ms                             # it waits for its CPU
         +1ms
         runs
         +250ms
         guest < . 1:1001
         +300ms                             # 400 ms from then on, if it runs
         runs
         +110ms
         guest < . 1:1001
         guest > . 2 ack 1001 win 2250
         peer < . 2 ack 1001
         +5000ms
         drained",
    );
}

/// Rule 4, retaining: data that a block shows to be missing is retransmitted immediately, once, and
/// the peer is not informed: frames are never reordered between the host and the guest.
#[test]
fn a_hole_that_the_guest_names_is_filled_at_once() {
    retaining(
        "peer > . 1:1001 ack 2
         guest < . 1:1001
         host < . 2 ack 1001
         peer > . 1001:2001 ack 2
         guest < . 1001:2001
         host < . 2 ack 2001
         peer > . 2001:3001 ack 2
         guest < . 2001:3001
         host < . 2 ack 3001
         peer > . 3001:4001 ack 2
         guest < . 3001:4001
         host < . 2 ack 4001
         guest > . 2 ack 1 win 2500 sack 2001 3001
         guest < . 1:1001
         guest < . 1001:2001
         guest > . 2 ack 1 win 2500 sack 2001 4001
         guest > . 2 ack 1 win 2500 sack 2001 4001
         guest > . 2 ack 4001 win 2500 sack 1 1001   # a duplicate by the host, not the peer
         peer < . 2 ack 4001 no-sack
         guest > . 2 ack 4001 win 2500 sack 1 1001",
    );
}

/// Rule 4, retaining: without blocks it takes three duplicates.
#[test]
fn duplicates_of_the_guest_bring_the_lost_segment_back() {
    retaining(
        "peer > . 1:1001 ack 2
         guest < . 1:1001
         host < . 2 ack 1001
         peer > . 1001:2001 ack 2
         guest < . 1001:2001
         host < . 2 ack 2001
         guest > . 2 ack 1 win 2500
         guest > . 2 ack 1 win 2500
         guest > . 2 ack 1 win 2500
         guest < . 1:1001
         guest > . 2 ack 1 win 2500
         guest > . 2 ack 2001 win 2500
         peer < . 2 ack 2001",
    );
}

/// Rule 4, retaining: a guest that has the retransmitted data, and none behind it, gets all of the
/// rest immediately.
#[test]
fn where_nothing_came_of_what_follows_all_of_it_is_sent_again() {
    retaining(
        "peer > . 1:1001 ack 2
         guest < . 1:1001
         host < . 2 ack 1001
         peer > . 1001:3001 ack 2 gso 1000
         guest < . 1001:3001
         host < . 2 ack 3001
         peer > . 3001:4001 ack 2
         guest < . 3001:4001
         host < . 2 ack 4001
         runs
         +1ms
         runs
         +200ms
         guest < . 1:1001
         guest > . 2 ack 1001 win 2500
         guest < . 1001:3001
         guest < . 3001:4001
         guest > . 2 ack 3001 win 2500
         guest > . 2 ack 4001 win 2500
         peer < . 2 ack 4001",
    );
    // A guest that was slow receives no data twice.
    retaining(
        "peer > . 1:1001 ack 2
         guest < . 1:1001
         host < . 2 ack 1001
         peer > . 1001:3001 ack 2 gso 1000
         guest < . 1001:3001
         host < . 2 ack 3001
         peer > . 3001:4001 ack 2
         guest < . 3001:4001
         host < . 2 ack 4001
         runs
         +1ms
         runs
         +200ms
         guest < . 1:1001
         guest > . 2 ack 3001 win 2500
         guest > . 2 ack 4001 win 2500
         peer < . 2 ack 4001",
    );
}

/// Rule 4, retaining: after a guest lost data beyond its window, less data is placed there, and
/// none after a second loss.
#[test]
fn a_guest_that_drops_what_is_placed_ahead_gets_less_of_it() {
    let segment = |n: u32| format!("{}:{}", 1000 * n + 1, 1000 * n + 1001);
    // So many segments, of which the first are placed.
    let flight = |from: u32, count: u32, placed: u32| {
        let lines = (from..from + count).map(|n| {
            let bytes = segment(n);
            let next = 1000 * n + 1001;
            let place = if n < from + placed { "" } else { "#" };
            format!("peer > . {bytes} ack 2\n{place} guest < . {bytes}\nhost < . 2 ack {next}\n")
        });
        lines.collect::<String>()
    };
    let again = |from: u32, to: u32| {
        let lines = (from..to).map(|n| format!("guest < . {}\n", segment(n)));
        lines.collect::<String>()
    };
    let mut script = flight(0, 80, 80);
    // It has taken 65,000 bytes, and lost what came after.
    script += "guest > . 2 ack 65001 win 2500
        guest > . 2 ack 65001 win 2500 sack 79001 80001\n";
    script += &again(65, 75);
    script += "guest > . 2 ack 80001 win 2500\npeer < . 2 ack 80001\n";
    script += &flight(80, 66, 65);
    script += "guest > . 2 ack 97001 win 0\nguest > . 2 ack 97001 win 4000\n";
    script += &again(97, 113);
    script += "guest > . 2 ack 113001 win 8250\n";
    script += &again(113, 146);
    script += "guest > . 2 ack 146001 win 2500\npeer < . 2 ack 146001\n";
    script += &flight(146, 11, 10);
    script += "guest > . 2 ack 150001 win 2500\n";
    script += &again(156, 157);
    script += "guest > . 2 ack 157001 win 2500\npeer < . 2 ack 157001\n";
    let mut world = World::new(config(Retaining), false);
    world.run_whole(&after(PLAIN, &script));
    assert_eq!(world.snoop.stats().narrowed, 2);
}

/// Rule 4, retaining: data that fills a hole is placed up to the guest's window, even if its peer
/// was shown a larger one and sends more.
#[test]
fn a_hole_at_the_end_of_the_guests_window_is_filled_as_far_as_that_goes() {
    retaining(
        "peer > . 1:9501 ack 2 gso 1000
         guest < . 1:9501 gso 1000
         host < . 2 ack 9501
         guest > . 2 ack 9501 win 125
         peer < . 2 ack 9501
         peer > . 9701:9901 ack 2
         guest < . 9701:9901
         guest > . 2 ack 9501 win 125 sack 9701 9901
         peer < . 2 ack 9501 sack 9701 9901
         mode unexpected_sequence
         peer > . 9501:10501 ack 2 spoilt  # what is cut would be made right
         discard
         peer > . 9501:10501 ack 2
         guest < . 9501:10001
         guest > . 2 ack 10001 win 2500
         peer < . 2 ack 10001
         peer > . 10001:11001 ack 2
         guest < . 10001:11001
         host < . 2 ack 11001",
    );
}

/// Rule 4, retaining: a closed window that is acknowledged ends nothing; one is probed.
#[test]
fn a_closed_window_is_probed_and_ends_nothing() {
    let mut script = String::from(
        "peer > . 1:10001 ack 2 gso 1000
         guest < . 1:10001
         host < . 2 ack 10001
         peer > . 10001:11001 ack 2
         guest < . 10001:11001
         host < . 2 ack 11001
         guest > . 2 ack 10001 win 0\n",
    );
    let mut pause = 200;
    for _ in 0..40 {
        let _ = write!(
            script,
            "runs\n+1ms\nruns\n+{}ms
             guest < . 10000 ack 2
             guest > . 2 ack 10001 win 0\n",
            pause + TICKS
        );
        pause = (2 * pause).min(120_000);
    }
    script += "guest > . 2 ack 10001 win 1000
               guest < . 10001:11001";
    retaining(&script);
}

/// Rule 4, retaining: 15 resends without progress while the guest runs reset both ends.
#[test]
fn fifteen_resends_without_progress_reset_both_ends() {
    let mut script = String::from(
        "peer > . 1:1001 ack 2
         guest < . 1:1001
         host < . 2 ack 1001\n",
    );
    let mut pause = 200;
    for _ in 0..15 {
        let _ = write!(
            script,
            "+{0}ms                 # it waits for its CPU, which is no reason
             runs
             +{0}ms
             guest < . 1:1001\n",
            pause + TICKS
        );
        pause = (2 * pause).min(120_000);
    }
    script += "runs
               +120003ms
               guest < R. 1 ack 2
               host < R. 2 ack 1001
               unknown";
    retaining(&script.replace("runs\n", "+1ms\nruns\n"));
}

/// Rule 4, retaining: at the memory limit the window closes, and no right edge moves to the left.
#[test]
fn where_as_much_is_kept_as_may_be_the_window_closes() {
    let config = SnoopConfig {
        flow: Bytes(4 * 2304),
        ..config(Retaining)
    };
    let script = after(
        PLAIN,
        "peer > . 1:1001 ack 2
         guest < . 1:1001
         host < . 2 ack 1001 win 2250       # up to 10,001, as was promised
         peer > . 1001:2001 ack 2
         guest < . 1001:2001
         host < . 2 ack 2001 win 2000
         peer > . 2001:3001 ack 2
         guest < . 2001:3001
         host < . 2 ack 3001 win 1750
         peer > . 3001:4001 ack 2
         guest < . 3001:4001
         host < . 2 ack 4001 win 1500
         peer > . 4001:5001 ack 2
         guest < . 4001:5001
         mode retained
         guest > . 2 ack 5001 win 2500
         peer < . 2 ack 5001 win 2500",
    );
    World::new(config, false).run_whole(&script);
}

/// Rule 5. A retransmission that fills a hole is not acknowledged early: the guest may have the
/// data behind it, and a sender with SACK would detect reneging.
#[test]
fn a_hole_is_for_the_guest_to_close() {
    both(
        "peer > . 1001:2001 ack 2
         guest < . 1001:2001
         mode unexpected_sequence
         guest > . 2 ack 1 win 2500 sack 1001 2001
         peer < . 2 ack 1 sack 1001 2001
         peer > . 1:1001 ack 2
         guest < . 1:1001
         mode hole
         peer > . 2001:3001 ack 2           # beyond what the guest acknowledged
         guest < . 2001:3001
         guest > . 2 ack 2001 win 2500
         peer < . 2 ack 2001
         guest > . 2 ack 3001 win 2500
         peer < . 2 ack 3001
         peer > . 3001:4001 ack 2
         guest < . 3001:4001
         host < . 2 ack 4001
         mode active",
    );
}

/// Rule 6. Acknowledged data that arrives again is acknowledged again, once in 10 ms; the guest
/// answers keep-alive probes.
#[test]
fn what_comes_again_is_acknowledged_again() {
    both(
        "peer > . 1:1001 ack 2
         guest < . 1:1001
         host < . 2 ack 1001
         peer > . 1:1001 ack 2
         host < . 2 ack 1001
         guest < . 1:1001
         peer > . 1:1001 ack 2
         guest < . 1:1001
         +12ms
         peer > . 1:1001 ack 2
         host < . 2 ack 1001
         guest < . 1:1001
         guest > . 2 ack 1001 win 2500
         peer < . 2 ack 1001
         +12ms
         peer > . 1:1001 ack 2              # the guest has said so itself
         guest < . 1:1001
         guest > . 2 ack 1001 win 2500 sack 1 1001
         peer < . 2 ack 1001 sack 1 1001
         peer > . 1000 ack 2                # keep-alive
         guest < . 1000
         guest > . 2 ack 1001 win 2500
         peer < . 2 ack 1001
         peer > . 1000:1001 ack 2
         guest < . 1000:1001
         guest > . 2 ack 1001 win 2500
         peer < . 2 ack 1001",
    );
    retaining(
        "peer > . 1:1001 ack 2
         guest < . 1:1001
         host < . 2 ack 1001
         peer > . 1000 ack 2                # the guest has not looked yet
         guest < . 1000
         guest > . 2 ack 1 win 2500         # and says of its own that it lives
         peer < . 2 ack 1001
         peer > . 1000:1001 ack 2
         guest < . 1000:1001
         guest > . 2 ack 1 win 2500
         peer < . 2 ack 1001",
    );
}

/// Rule 7. The guest's acknowledgements of acknowledged data are dropped, except for the first of
/// the last byte and those with another window; repetitions cause a retransmission.
#[test]
fn acknowledgements_that_say_nothing_new_are_dropped() {
    both(
        "peer > . 1:1001 ack 2
         guest < . 1:1001
         host < . 2 ack 1001
         peer > . 1001:2001 ack 2
         guest < . 1001:2001
         host < . 2 ack 2001
         guest > . 2 ack 1001 win 2500
         guest > . 2 ack 2001 win 2500
         peer < . 2 ack 2001
         guest > . 2 ack 2001 win 2500
         guest > . 2 ack 2001 win 9000      # its application read
         peer < . 2 ack 2001 win 9000
         guest > . 1 ack 2001 win 9000      # its own keep-alive
         peer < . 1 ack 2001
         peer > . 3001:4001 ack 2
         guest < . 3001:4001
         guest > . 2 ack 2001 win 9000 sack 3001 4001
         peer < . 2 ack 2001 win 9000 sack 3001 4001
         peer > . 4001:5001 ack 2
         guest < . 4001:5001
         guest > . 2 ack 2001 win 9000 sack 3001 5001
         peer < . 2 ack 2001 win 9000 sack 3001 5001",
    );
}

/// Rule 7. A window never shrinks below a promise.
#[test]
fn no_right_edge_moves_to_the_left() {
    retaining(
        "peer > . 1:1001 ack 2
         guest < . 1:1001
         host < . 2 ack 1001 win 3000       # up to 13,001
         guest > . 2 ack 1001 win 2000
         peer < . 2 ack 1001 win 3000
         guest > P. 2:3 ack 1001 win 100
         peer < P. 2:3 ack 1001 win 3000
         peer > . 1001:1002 ack 3
         guest < . 1001:1002
         host < . 3 ack 1002 win 3000       # 11,999 in steps of 4",
    );
}

/// Rule 8. Data of the guest carries the host's acknowledgement, never a lower one.
#[test]
fn data_carries_the_latest_acknowledgement() {
    both(
        "peer > . 1:1001 ack 2
         guest < . 1:1001
         host < . 2 ack 1001
         guest > P. 2:502 ack 1 win 2500
         peer < P. 2:502 ack 1001
         guest > P. 502:602 ack 1 win 2500 sack 1 501
         peer < P. 502:602 ack 1001 no-sack
         guest > P. 602:702 ack 1001 win 2500
         peer < P. 602:702 ack 1001",
    );
}

/// Rule 9. Strict mode acknowledges data in the ring; if some of the frames are not there, none.
#[test]
fn what_does_not_stand_in_the_ring_is_not_acknowledged() {
    strict(
        "full
         peer > . 1:1001 ack 2
         guest < . 1:1001
         mode no_room
         peer > . 1001:2001 ack 2
         guest < . 1001:2001
         guest > . 2 ack 2001 win 2500
         peer < . 2 ack 2001
         peer > . 2001:3001 ack 2
         guest < . 2001:3001
         host < . 2 ack 3001",
    );
}

/// Rule 9. Retained data that was lost before the ring is withheld until the guest acknowledges
/// data.
#[test]
fn what_is_lost_before_the_ring_is_sent_again() {
    retaining(
        "peer > . 1:1001 ack 2
         guest < . 1:1001
         host < . 2 ack 1001
         loses
         peer > . 1001:2001 ack 2
         guest < . 1001:2001
         host < . 2 ack 2001
         peer > . 2001:3001 ack 2
         host < . 2 ack 3001
         guest > . 2 ack 1001 win 2500
         guest < . 1001:2001
         guest < . 2001:3001
         guest > . 2 ack 3001 win 2500
         peer < . 2 ack 3001",
    );
}

/// Rule 10. The first window is not shifted; without a known shift there is no early
/// acknowledgement.
#[test]
fn windows_are_shifted_as_both_ends_agreed() {
    run(
        Strict,
        "guest > S 0 win 8000 mss 1460 ws 3
         peer < S 0 win 8000
         peer > S. 0 ack 1 win 9000 mss 900
         guest < S. 0
         guest > . 1 ack 1 win 8000         # the peer has no shift, so none counts
         peer < . 1 ack 1
         peer > . 1:1001 ack 1
         guest < . 1:1001
         host < . 1 ack 1001 win 7000",
    );
    run(
        Retaining,
        "guest > . 1 ack 1 win 2500
         peer < . 1 ack 1 win 2500
         mode joined
         peer > . 1:1001 ack 1
         guest < . 1:1001
         guest > P. 1:2 ack 1001 win 60000
         peer < P. 1:2 ack 1001 win 60000
         mode joined",
    );
}

/// Rule 10. The guest's promises are limited to a constant.
#[test]
fn the_guests_window_is_held_to_a_constant() {
    let config = SnoopConfig {
        window: Bytes(20_000),
        ..config(Retaining)
    };
    let script = after(
        PLAIN,
        "guest > . 2 ack 1 win 9000
         peer < . 2 ack 1 win 5000
         guest > P. 2:3 ack 1 win 9999
         peer < P. 2:3 ack 1 win 5000",
    );
    World::new(config, false).run(&script);
}

/// Rule 11. The echo is the timestamp of the acknowledged segment, the value the guest's last;
/// segments that PAWS would drop are not acknowledged.
#[test]
fn timestamps_are_those_that_the_guest_would_send() {
    for mode in [Retaining, Strict] {
        let script = after(
            STAMPED,
            "peer > . 1:1001 ack 2 ts 110 501
             guest < . 1:1001
             host < . 2 ack 1001 ts 501 110
             peer > . 2001:3001 ack 2 ts 130 501   # not in order: no echo
             guest < . 2001:3001
             guest > . 2 ack 1001 win 2500 ts 510 110 sack 2001 3001
             peer < . 2 ack 1001
             peer > . 1001:2001 ack 2 ts 140 501
             guest < . 1001:2001
             guest > . 2 ack 3001 win 2500 ts 520 140
             peer < . 2 ack 3001
             peer > . 3001:4001 ack 2 ts 140 501
             guest < . 3001:4001
             host < . 2 ack 4001 ts 520 140
             peer > . 4001:5001 ack 2 ts 139 501
             guest < . 4001:5001
             mode timestamp",
        );
        run(mode, &script);
        let script = after(
            STAMPED,
            "peer > . 1:1001 ack 2
             guest < . 1:1001
             mode timestamp",
        );
        run(mode, &script);
    }
}

/// Rule 11. A retransmission to the guest has a timestamp that is not older than its last.
#[test]
fn what_is_sent_again_has_the_latest_time() {
    let script = after(
        STAMPED,
        "peer > . 1:1001 ack 2 ts 110 501
         guest < . 1:1001
         host < . 2 ack 1001
         guest > P. 2:3 ack 1 win 2500 ts 600 101
         peer < P. 2:3 ack 1001
         peer > . 1001 ack 3 win 777 ts 200 600
         guest < . 1001
         runs
         +1ms
         runs
         +210ms
         guest < . 1:1001 ack 3 win 777 ts 200 600",
    );
    run(Retaining, &script);
}

/// Rule 11. A segment out of order does not make withheld data old: otherwise the guest would drop
/// that data for ever.
#[test]
fn what_is_out_of_order_brings_no_later_time_before_the_guest() {
    let script = after(
        STAMPED,
        "peer > . 1:1001 ack 2 ts 110 501
         guest < . 1:1001
         host < . 2 ack 1001
         loses
         peer > . 1001:2001 ack 2 ts 110 501
         guest < . 1001:2001
         host < . 2 ack 2001
         peer > . 3001 ack 2 ts 120 501
         guest < . 3001 ack 2 ts 120 501
         guest > . 2 ack 1001 win 2500 ts 520 110
         peer < . 2 ack 2001
         guest < . 1001:2001 ts 110 520",
    );
    run(Retaining, &script);
}

/// Rule 12. Data that met congestion is the guest's to acknowledge, until the peer has answered;
/// the guest's echoes all pass.
#[test]
fn congestion_is_told_by_the_guest() {
    both(
        "peer > . 1:1001 ack 2 ce
         guest < . 1:1001
         mode congestion
         guest > E. 2 ack 1001 win 2500
         peer < .E 2 ack 1001
         peer > . 1001:2001 ack 2 ect
         guest < . 1001:2001
         mode congestion
         guest > E. 2 ack 2001 win 2500
         peer < .E 2 ack 2001
         guest > E. 2 ack 2001 win 2500
         peer < .E 2 ack 2001
         peer > W. 2001:3001 ack 2 ect
         guest < .W 2001:3001
         host < . 2 ack 3001
         guest > E. 2 ack 2500 win 2500
         peer < .E 2 ack 3001",
    );
}

/// Rule 12. Counters of marks (RFC 9768) go on in early acknowledgements, and each change passes.
#[test]
fn counters_of_marks_are_the_guests() {
    for mode in [Retaining, Strict] {
        run(
            mode,
            "guest > SW. 0 ack 1 win 10000 mss 1460 ws 2
             peer < S.W 0
             guest > .EA 1 ack 1 win 2500
             peer < .EA 1
             peer > . 1:1001 ack 1
             guest < . 1:1001
             host < .EA 1 ack 1001
             peer > . 1001:2001 ack 1 ce
             guest < . 1001:2001
             guest > .WA 1 ack 2001 win 2500
             peer < .WA 1 ack 2001
             guest > .EWA 1 ack 2001 win 2500
             peer < .EWA 1 ack 2001",
        );
    }
}

/// Rule 13. Options that are unknown, or for which an acknowledgement would need a signature.
#[test]
fn options_that_early_acknowledgement_cannot_answer_for_end_it() {
    for (kind, mode) in [
        (19, "md5"),
        (29, "authentication_option"),
        (30, "multipath"),
        (34, "fast_open"),
        (253, "unknown_option"),
    ] {
        for when in [Retaining, Strict] {
            let script = format!(
                "guest > S. 0 ack 1 win 10000 mss 1460 ws 2 kind {kind}
                 peer < S. 0
                 peer > . 1:1001 ack 1
                 guest < . 1:1001
                 guest > . 1 ack 1001 win 2500
                 peer < . 1 ack 1001 win 2500
                 mode {mode}"
            );
            run(when, &script);
            let script = format!(
                "peer > . 1:1001 ack 2 kind {kind}
                 guest < . 1:1001
                 mode {mode}"
            );
            run(when, &after(PLAIN, &script));
        }
    }
    both(
        "peer > . 1:1001 ack 2 ect tag 5
         guest < . 1:1001
         host < . 2 ack 1001",
    );
    run(
        Retaining,
        "guest > S. 0:5 ack 1 win 10000
         peer < S. 0:5
         mode data_on_syn",
    );
}

/// Rule 14. A server that has not sent data yet may have dropped the end of the handshake: then
/// only retained data justifies an acknowledgement.
#[test]
fn a_server_is_answered_for_from_its_first_word_on_or_what_is_kept() {
    let begin = "guest > S. 0 ack 1 win 10000 mss 1460 ws 2
                 peer < S. 0 ack 1
                 peer > . 1 ack 1
                 guest < . 1
                 peer > P. 1:1001 ack 1
                 guest < P. 1:1001";
    let strict = after(
        begin,
        "mode opening
         guest > . 1 ack 1001 win 2500
         peer < . 1 ack 1001
         peer > P. 1001:2001 ack 1
         guest < P. 1001:2001
         host < . 1 ack 2001",
    );
    run(Strict, &strict);
    run(Retaining, &after(begin, "host < . 1 ack 1001"));
    for mode in [Retaining, Strict] {
        let client = "guest > S 0 win 10000 mss 1460 ws 2
                      peer < S 0
                      peer > S. 0 ack 1 mss 1460 ws 9
                      guest < S. 0
                      peer > P. 1:1001 ack 1      # before the guest could say anything
                      guest < P. 1:1001
                      guest > . 1 ack 1001 win 2500
                      peer < . 1 ack 1001
                      peer > P. 1001:2001 ack 1
                      guest < P. 1001:2001
                      host < . 1 ack 2001";
        run(mode, client);
    }
}

/// Rule 15. FIN is the guest's to acknowledge; a connection stays known until both ends have
/// closed, and a minute longer.
#[test]
fn a_connection_is_known_until_both_ends_have_closed() {
    both(
        "peer > F. 1 ack 2
         guest < F. 1
         guest > . 2 ack 2 win 2500
         peer < . 2 ack 2
         guest > P. 2:502 ack 2 win 2500     # half-closed
         peer < P. 2:502
         peer > . 2 ack 502
         guest < . 2
         guest > F. 502 ack 2 win 2500
         peer < F. 502
         peer > . 2 ack 503
         guest < . 2
         mode closing
         peer > F. 1 ack 503                 # its acknowledgement was lost
         guest < F. 1
         guest > . 503 ack 2 win 2500
         peer < . 503 ack 2",
    );
    both(
        "guest > F. 2 ack 1 win 2500
         peer < F. 2
         peer > . 1:1001 ack 3
         guest < . 1:1001
         host < . 3 ack 1001",
    );
    both(
        "guest > R. 2 ack 1
         peer < R. 2
         unknown",
    );
}

/// Rule 15. A duplicate of a handshake's answer begins no other connection: another connection has
/// other numbers, and the peer of the known one receives a reset.
#[test]
fn a_handshake_that_comes_twice_ends_nothing() {
    both(
        "guest > P. 2:502 ack 1 win 2500
         peer < P. 2:502
         peer > . 1:1001 ack 502
         guest < . 1:1001
         host < . 502 ack 1001
         guest > S. 0 ack 1 win 10000 mss 1460 ws 2 sackok
         peer < S. 0 ack 1 win 10000
         peer > . 1001:2001 ack 502
         guest < . 1001:2001
         host < . 502 ack 2001",
    );
    // The numbers repeat with their clock; the timestamp differs.
    run(
        Retaining,
        &after(
            STAMPED,
            "peer > . 1:1001 ack 2 ts 102 501
             guest < . 1:1001
             host < . 2 ack 1001
             guest > S. 0 ack 1 win 10000 mss 1460 ws 2 sackok ts 275000 200000
             peer < S. 0 ack 1 win 10000
             host < R. 2 ack 1001",
        ),
    );
}

/// Rule 16. Possibly damaged segments are not acknowledged; packets before segmentation are
/// rewritten once.
#[test]
fn checksums_are_checked_and_mended() {
    both(
        "peer > . 1:1001 ack 2 spoilt
         discard
         mode checksum",
    );
    // No field of a damaged segment is used: neither a reset, nor a FIN, nor its acknowledgement.
    for damaged in [
        "peer > R. 1001 ack 2 spoilt",
        "peer > S. 1001 ack 2 spoilt",
        "peer > F. 1001 ack 2 spoilt",
        "peer > FP. 1001:2001 ack 2 spoilt",
        "peer > . 1001 ack 2 win 1 spoilt",
    ] {
        both(&format!(
            "peer > . 1:1001 ack 2
             guest < . 1:1001
             host < . 2 ack 1001
             {damaged}
             discard
             peer > . 1001:2001 ack 2
             guest < . 1001:2001
             host < . 2 ack 2001"
        ));
    }
    // Nor its timestamp, by which the guest would take later segments for old.
    run(
        Retaining,
        &after(
            STAMPED,
            "peer > . 1:1001 ack 2 ts 102 501
             guest < . 1:1001
             host < . 2 ack 1001
             peer > . 1001 ack 2 ts 90000 501 spoilt
             discard
             runs
             +1ms
             runs
             +210ms
             guest < . 1:1001 ts 102 501",
        ),
    );
    // A segment before segmentation contains the sum of the pseudo-header, which is the same for
    // every acknowledgement.
    both(
        "peer > . 1:1001 ack 2
         guest < . 1:1001
         host < . 2 ack 1001
         guest > P. 2:5002 ack 1 win 2500 gso 1000
         peer < P. 2:5002 ack 1001 gso 1000",
    );
}

/// Rule 17. An early acknowledgement has the headers of the guest's last frame, without ECN.
#[test]
fn an_acknowledgement_looks_as_the_guests_frames_do() {
    both(
        "guest > P. 2:3 ack 1 tag 77 ect
         peer < P. 2:3 class 186
         peer > . 1:1001 ack 3
         guest < . 1:1001
         host < . 3 ack 1001 tag 77 class 184 hops 61",
    );
}

/// Rule 18. Only the peer is answered: segments from other locations are not the peer's.
#[test]
fn only_what_comes_from_the_peers_side_is_answered() {
    both(
        "moved
         peer > . 1:1001 ack 2
         guest < . 1:1001
         mode opening",
    );
}

/// Rule 18. The guest answers segments that acknowledge unsent data or are far too old.
#[test]
fn a_spoofed_acknowledgement_is_not_answered() {
    both(
        "peer > . 1:1001 ack 9
         guest < . 1:1001
         mode acknowledgement
         guest > . 2 ack 1 win 2500
         peer < . 2 ack 1",
    );
    both(
        "guest > P. 2:7002 ack 1 win 2500
         peer < P. 2:7002
         peer > . 1 ack 7002
         guest < . 1
         peer > . 1:1001 ack 2 win 6000
         guest < . 1:1001
         mode acknowledgement",
    );
}

/// Rule 18. An inexact reset changes no retained data, and the guest answers it.
#[test]
fn a_reset_is_believed_where_it_is_exact() {
    retaining(
        "peer > . 1:1001 ack 2
         guest < . 1:1001
         host < . 2 ack 1001
         peer > R. 1002 ack 2
         guest < R. 1002
         owed 1000
         guest > . 2 ack 1 win 2500
         peer < . 2 ack 1001
         peer > R. 1001 ack 2
         guest < R. 1001
         unknown",
    );
}

/// Rule 19. Before a move no further data is acknowledged early, and acknowledged data reaches the
/// guest.
#[test]
fn a_drain_ends_with_nothing_owed() {
    retaining(
        "peer > . 1:1001 ack 2
         guest < . 1:1001
         host < . 2 ack 1001
         drain
         owed 1000
         peer > . 1001:2001 ack 2
         guest < . 1001:2001
         mode draining
         guest > . 2 ack 2001 win 2500
         peer < . 2 ack 2001
         drained",
    );
}

/// Rule 19. If the guest is gone, peers with acknowledged data that it lacks get a reset in their
/// window.
#[test]
fn a_guest_that_is_gone_leaves_no_silence() {
    both(
        "peer > . 1:1001 ack 2
         guest < . 1:1001
         host < . 2 ack 1001
         abort
         host < R. 2 ack 1001
         unknown",
    );
    both(
        "abort
         unknown",
    );
    // A restarted guest with the same ports has forgotten the old connection.
    both(
        "peer > . 1:1001 ack 2
         guest < . 1:1001
         host < . 2 ack 1001
         guest > S 70000 win 9000
         host < R. 2 ack 1001
         peer < S 70000",
    );
}

/// The peer's last segment is retained until the guest acknowledges it, and no longer.
#[test]
fn nothing_is_kept_of_a_connection_that_its_peer_has_closed() {
    retaining(
        "peer > . 1:1001 ack 2
         guest < . 1:1001
         host < . 2 ack 1001
         loses
         peer > . 1001:2001 ack 2
         guest < . 1001:2001
         host < . 2 ack 2001
         peer > F. 2001 ack 2
         guest > . 2 ack 1001 win 2500
         guest < . 1001:2001
         guest < F. 2001
         guest > . 2 ack 2001 win 2500
         peer < . 2 ack 2001
         guest > . 2 ack 2002 win 2500
         peer < . 2 ack 2002
         forgotten",
    );
}

/// The part that fits is sent when the guest's window opens partly.
#[test]
fn a_small_window_gets_what_fits() {
    retaining(
        "peer > . 1:10001 ack 2 gso 1000
         guest < . 1:10001
         host < . 2 ack 10001
         peer > . 10001:11001 ack 2
         guest < . 10001:11001
         host < . 2 ack 11001
         guest > . 2 ack 10001 win 100
         runs
         +1ms
         runs
         +210ms
         guest < . 10001:10401
         guest > . 2 ack 10401 win 1000
         guest < . 10401:11001",
    );
}

/// Behind a closed window the guest receives only segments that it can process.
#[test]
fn what_the_peer_says_is_brought_before_the_guests_window() {
    retaining(
        "peer > . 1:10001 ack 2 gso 1000
         guest < . 1:10001
         host < . 2 ack 10001
         peer > . 10001:11001 ack 2
         guest < . 10001:11001
         host < . 2 ack 11001
         guest > P. 2:3 ack 10001 win 0
         peer < P. 2:3 ack 11001
         peer > . 11001 ack 3
         guest < . 10001 ack 3
         peer > . 11000 ack 3               # is it still there?
         guest < . 10000 ack 3
         guest > . 3 ack 10001 win 0
         peer < . 3 ack 11001
         peer > R. 11001 ack 3
         guest < R. 10001
         unknown",
    );
}

/// The document's rules, and the scripts here that name them.
#[test]
fn each_rule_has_a_script() {
    let document = include_str!("../../../../../docs/explanation/snoop.md");
    let rules = document
        .split_once("## The rules")
        .expect("they are there")
        .1;
    let rules = rules.split("\n## ").next().unwrap_or_default();
    let number = |line: &str| line.split_once(". ")?.0.parse().ok();
    let rules: Vec<u32> = rules.lines().filter_map(number).collect();
    assert_eq!(rules, (1..=19).collect::<Vec<_>>());
    let scripts = include_str!("rules.rs");
    for rule in rules {
        let named = format!("/// Rule {rule}");
        let mut rests = scripts.split(&named).skip(1);
        assert!(
            rests.any(|rest| rest.starts_with(['.', ','])),
            "rule {rule}"
        );
    }
}

#[test]
fn each_mode_has_a_word() {
    let mut labels = crate::snoop::Mode::LABELS.to_vec();
    labels.sort_unstable();
    labels.dedup();
    assert_eq!(labels.len(), crate::snoop::Mode::LABELS.len());
    let _ = SnoopMode::default();
}
