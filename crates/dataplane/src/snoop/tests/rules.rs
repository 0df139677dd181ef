//! Each rule of `docs/explanation/snoop.md` as a script: those of fixed text in `rules.txt`, the others here.
//! The first lines of most are a handshake: the guest has room for 10,000 bytes in steps of 4,
//! and segments have 1,000.

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

/// Tests with their cases.
const SCRIPTS: &str = include_str!("rules.txt");

/// The names of the tests in [`SCRIPTS`], and their texts.
fn tests() -> impl Iterator<Item = (&'static str, &'static str)> {
    let tests = SCRIPTS.split("\ntest ").skip(1);
    tests.map(|test| test.split_once('\n').expect("a test has cases"))
}

/// Runs the cases of a test in [`SCRIPTS`].
fn play(name: &str) {
    let (_, cases) = tests().find(|test| test.0 == name).expect("it is there");
    for case in cases.split("case ").skip(1) {
        let (head, script) = case.split_once('\n').expect("a case has a script");
        let (modes, handshake) = head.split_once(' ').expect("modes and a handshake");
        let modes = match modes {
            "both" => &[Retaining, Strict][..],
            "retaining" => &[Retaining],
            "strict" => &[Strict],
            other => panic!("{other}"),
        };
        let handshake = match handshake {
            "plain" => PLAIN,
            "stamped" => STAMPED,
            "no" => "",
            other => panic!("{other}"),
        };
        for mode in modes {
            run(*mode, &after(handshake, script));
        }
    }
}

/// A test for each of these names, and a list of them.
macro_rules! scripts {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            play(stringify!($name));
        })*

        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

scripts! {
    an_acknowledgement_is_not_acknowledged
    only_what_changes_a_connection_stops
    the_number_is_behind_all_that_the_guest_sent
    strict_stays_within_the_guests_window
    what_is_kept_is_placed_ahead_of_an_open_window
    what_the_guest_drops_ahead_of_its_window_is_withheld
    what_the_guest_has_no_room_for_waits_for_its_window
    what_the_guest_drops_is_sent_again
    a_hole_that_the_guest_names_is_filled_at_once
    duplicates_of_the_guest_bring_the_lost_segment_back
    where_nothing_came_of_what_follows_all_of_it_is_sent_again
    a_hole_at_the_end_of_the_guests_window_is_filled_as_far_as_that_goes
    a_hole_is_for_the_guest_to_close
    what_comes_again_is_acknowledged_again
    acknowledgements_that_say_nothing_new_are_dropped
    no_right_edge_moves_to_the_left
    data_carries_the_latest_acknowledgement
    what_does_not_stand_in_the_ring_is_not_acknowledged
    what_is_lost_before_the_ring_is_sent_again
    windows_are_shifted_as_both_ends_agreed
    timestamps_are_those_that_the_guest_would_send
    what_is_sent_again_has_the_latest_time
    what_is_out_of_order_brings_no_later_time_before_the_guest
    congestion_is_told_by_the_guest
    counters_of_marks_are_the_guests
    a_server_is_answered_for_from_its_first_word_on_or_what_is_kept
    a_connection_is_known_until_both_ends_have_closed
    a_handshake_that_comes_twice_ends_nothing
    an_acknowledgement_looks_as_the_guests_frames_do
    only_what_comes_from_the_peers_side_is_answered
    a_spoofed_acknowledgement_is_not_answered
    a_reset_is_believed_where_it_is_exact
    a_drain_ends_with_nothing_owed
    a_guest_that_is_gone_leaves_no_silence
    nothing_is_kept_of_a_connection_that_its_peer_has_closed
    a_small_window_gets_what_fits
    what_the_peer_says_is_brought_before_the_guests_window
}

#[test]
fn each_script_is_a_test() {
    assert_eq!(tests().map(|test| test.0).collect::<Vec<_>>(), NAMES);
}

fn both(script: &str) {
    for mode in [Retaining, Strict] {
        run(mode, &after(PLAIN, script));
    }
}

fn retaining(script: &str) {
    run(Retaining, &after(PLAIN, script));
}

/// Rule 4, retaining: a guest that lost data beyond its window gets a smaller window, and none
/// after a second loss.
#[test]
fn a_guest_that_drops_data_beyond_its_window_gets_less_of_it() {
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
fn the_window_closes_at_the_memory_limit() {
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

/// Rule 10. The window that the guest may promise is constant.
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

/// Rule 13. Options that are not known, or that an acknowledgement would have to be signed for.
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

/// Rule 16. Data that may be damaged is not acknowledged; a packet that will be segmented is
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
    let scripts = [include_str!("rules.rs"), SCRIPTS].concat();
    for rule in rules {
        let named = ["///", "##"].map(|mark| format!("{mark} Rule {rule}"));
        let mut rests = named.iter().flat_map(|named| scripts.split(named).skip(1));
        assert!(
            rests.any(|rest| rest.starts_with(['.', ','])),
            "rule {rule}"
        );
    }
}

#[test]
fn each_mode_has_its_own_label() {
    let mut labels = crate::snoop::Mode::LABELS.to_vec();
    labels.sort_unstable();
    labels.dedup();
    assert_eq!(labels.len(), crate::snoop::Mode::LABELS.len());
    let _ = SnoopMode::default();
}
