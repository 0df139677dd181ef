//! Runs of whole networks.

mod classes;
mod datagrams;
mod hull;
mod machines;
mod piped;
mod snooped;
mod tenants;

use super::attribution::{NAMES, Record};
use super::*;
use std::fmt::Write as _;
use tailbound_experiment::{Experiment as _, Loaded, Source};
use tailbound_units::Nanos;

fn messages(text: &str) -> Messages {
    let source = Source {
        file: "test.toml".to_owned(),
        text: format!("name = \"test\"\ntitle = \"t\"\nsource = \"s\"\n{text}"),
    };
    let loaded = Loaded::<PacketsExperiment>::parse(&source);
    let loaded = loaded.unwrap_or_else(|error| panic!("{error}"));
    loaded.experiment.messages.expect("there are messages")
}

/// Returns the errors of an invalid experiment.
fn refused(text: &str) -> String {
    let source = Source {
        file: "bad.toml".to_owned(),
        text: format!("name = \"bad\"\ntitle = \"t\"\nsource = \"s\"\n{text}"),
    };
    let error = Loaded::<PacketsExperiment>::parse(&source).err();
    error.expect("it has mistakes").to_string()
}

const STAR: &str = r#"
[messages]
duration = "100ms"
star = { hosts = 4, link = { rate = "1Gbit/s", delay = "20us" } }
"#;

#[test]
fn a_tcp_messages_latency_is_its_wire_and_link_time() {
    let alone = messages(&format!(
        r#"{STAR}
flows = {{ every = "40ms", sizes = {{ fixed = "10000B" }} }}
[[messages.setting]]
name = "one"
"#
    ));
    let outcome = alone.simulate(&alone.setting[0], 3).unwrap();
    assert!(outcome.begun > 3 && outcome.begun == outcome.ended);
    // Seven segments at once: six of 1538 B and one of 1402 B; the last goes over both links, each
    // of 20 us, without waiting at the second.
    let bits = 8 * (6 * 1_538 + 1_402);
    let expected = bits + 12_304 + 40_000;
    let took = &outcome.took[0];
    assert!(
        took.min().abs_diff(expected) < 200,
        "{} for {expected}",
        took.min()
    );
    assert_eq!((outcome.totals.dropped, outcome.totals.resent), (0, 0));
}

#[test]
fn an_answer_takes_a_round_trip_more() {
    let alone = messages(&format!(
        r#"{STAR}
queries = {{ every = "40ms", question = "100B", answer = {{ fixed = "1448B" }} }}
[[messages.setting]]
name = "one"
"#
    ));
    let outcome = alone.simulate(&alone.setting[0], 3).unwrap();
    // 190 B there, 1538 B back, over two links each way; the question is acknowledged before.
    let expected = 8 * (2 * (190 + 1_538) + 90) + 80_000;
    let least = outcome.took[0].min();
    assert!(least.abs_diff(expected) < 200, "{least} for {expected}");
}

/// All hosts send to one: the receiver's link carries all data, and every message is received.
#[test]
fn a_burst_fills_the_link_of_its_receiver() {
    for congestion in ["newreno", "cubic", "dctcp"] {
        let burst = messages(&format!(
            r#"{STAR}
bursts = {{ every = "90ms", size = "1MB" }}
[[messages.setting]]
name = "one"
transport = {{ congestion = "{congestion}", least_timeout = "1ms" }}
switches = {{ buffer = "100KB", mark_at = "30KB" }}
"#
        ));
        let outcome = burst.simulate(&burst.setting[0], 1).unwrap();
        assert_eq!((outcome.begun, outcome.ended), (3, 3));
        assert!(outcome.totals.peak <= 100_000);
        assert!(outcome.totals.dropped > 0 || congestion == "dctcp");
        // 3 MB and their headers take 25.5 ms.
        let longest = outcome.took[2].max() as f64 / 1e6;
        assert!(
            (25.4..32.0).contains(&longest),
            "{congestion}: {longest} ms"
        );
    }
}

/// Marks keep the queue of long flows near the threshold; losses fill the buffer.
#[test]
fn dctcp_keeps_the_queue_short_and_the_link_full() {
    let mut peaks = Vec::new();
    for congestion in ["newreno", "dctcp"] {
        let long = messages(&format!(
            r#"
[messages]
duration = "10ms"
star = {{ hosts = 3, link = {{ rate = "1Gbit/s", delay = "20us" }} }}
bursts = {{ every = "9ms", size = "20MB" }}
[[messages.setting]]
name = "one"
transport = {{ congestion = "{congestion}" }}
switches = {{ buffer = "1MB", mark_at = "30KB" }}
"#
        ));
        let outcome = long.simulate(&long.setting[0], 1).unwrap();
        let took = outcome.took[3].max();
        peaks.push((outcome.totals.peak, took, outcome.ended));
    }
    let [reno, dctcp] = peaks[..] else { panic!() };
    assert_eq!(reno.0 / 10_000, 99);
    // Slow start overshoots once.
    assert!(dctcp.0 < 150_000, "{}", dctcp.0);
}

#[test]
fn small_flows_go_before_bulk_where_switches_have_classes() {
    let text = |rest: &str| {
        messages(&format!(
            r#"
[messages]
duration = "300ms"
fat_tree = {{ pods = 2, edges = 2, hosts = 2, aggregations = 2, cores = 1, host = {{ rate = "1Gbit/s", delay = "5us" }}, edge = {{ rate = "1Gbit/s", delay = "5us" }}, core = {{ rate = "1Gbit/s", delay = "5us" }} }}
flows = {{ every = "2ms", sizes = {{ pareto = {{ shape = 1.05, mean = "100KB", most = "10MB" }} }} }}
[[messages.setting]]
name = "one"
{rest}
"#
        ))
    };
    let fifo = text("");
    let classes = text(
        "switches = { classes = 2, apart = true }\nmeter = { rate = \"10Mbit/s\", burst = \"30KB\" }",
    );
    let p99 = |messages: &Messages| {
        let outcome = messages.simulate(&messages.setting[0], 1).unwrap();
        assert_eq!(outcome.begun, outcome.ended);
        outcome.took[0].value_at_quantile(0.9)
    };
    let (fifo, classes) = (p99(&fifo), p99(&classes));
    assert!(classes * 10 < fifo * 9, "{classes} of {fifo} ns");
}

#[test]
fn equal_seeds_give_equal_results_and_other_seeds_differ() {
    let any = messages(&format!(
        r#"{STAR}
flows = {{ every = "1ms", sizes = {{ pareto = {{ shape = 1.2, mean = "50KB", most = "1MB" }} }}, peers = {{ some = 2 }} }}
[[messages.setting]]
name = "one"
"#
    ));
    let short = |seed| {
        let outcome = any.simulate(&any.setting[0], seed).unwrap();
        (outcome.totals, outcome.begun)
    };
    assert_eq!(short(1), short(1));
    assert_ne!(short(1), short(2));
}

/// A connection that carries many messages keeps its window, and a new connection has the initial
/// one.
#[test]
fn a_message_with_a_connection_of_its_own_begins_with_the_initial_window() {
    let longest_and_shortest = |own: &str| {
        let any = messages(&format!(
            r#"
[messages]
duration = "1s"
star = {{ hosts = 4, link = {{ rate = "1Gbit/s", delay = "200us" }} }}
flows = {{ every = "300ms", sizes = {{ fixed = "100KB" }}, peers = {{ some = 1 }}{own} }}
[[messages.setting]]
name = "one"
transport = {{ restarts = false }}
"#
        ));
        let outcome = any.simulate(&any.setting[0], 1).unwrap();
        let took: Vec<_> = outcome.messages().map(|it| it.took.0).collect();
        assert!(took.len() as u64 == outcome.begun && took.len() > 8);
        for it in outcome.messages() {
            assert!(it.from != it.to && it.from.max(it.to) < 4);
            assert_eq!(it.size, tailbound_units::Bytes(100_000));
        }
        (*took.iter().max().unwrap(), *took.iter().min().unwrap())
    };
    // 10 segments, 20 and the last 40 follow each other by a round trip of 0.8 ms.
    let (longest, shortest) = longest_and_shortest(", own_connections = true");
    assert!(longest - shortest < 1_000, "{shortest} to {longest} ns");
    let (same, kept) = longest_and_shortest("");
    assert_eq!(same, longest);
    assert!(kept + 1_000_000 < longest, "{kept} to {longest} ns");
}

/// A connection of a single message is closed after it, and packets still in flight for it do not
/// reach the next one.
#[test]
fn connections_of_messages_own_are_freed() {
    let any = messages(
        r#"
[messages]
duration = "2s"
star = { hosts = 4, link = { rate = "1Gbit/s", delay = "20us" } }
flows = { every = "2ms", sizes = { pareto = { shape = 1.2, mean = "100KB", most = "1MB" } }, own_connections = true }
[[messages.setting]]
name = "one"
transport = { least_timeout = "1ms", delayed_ack = "1ms" }
switches = { buffer = "20KB" }
"#,
    );
    let outcome = any.simulate(&any.setting[0], 1).unwrap();
    assert_eq!(outcome.begun, outcome.ended);
    let Totals {
        connections,
        resent,
        timeouts,
        ..
    } = outcome.totals;
    // Losses and needless retransmissions, so that frames arrive for closed connections.
    assert!(resent > 1_000 && timeouts > 10, "{resent}, {timeouts}");
    assert!(outcome.begun > 3_000);
    assert!(connections < 12 + 200, "{connections} of {}", outcome.begun);
}

/// Busy ports use the memory that other ports used before: ports have no memory of their own.
#[test]
fn a_frame_on_its_way_takes_200_bytes_at_most() {
    let tree = messages(
        r#"
[messages]
duration = "10ms"
fat_tree = { pods = 8, edges = 4, hosts = 4, aggregations = 4, cores = 4, host = { rate = "1Gbit/s", delay = "5us" }, edge = { rate = "1Gbit/s", delay = "5us" }, core = { rate = "1Gbit/s", delay = "5us" } }
flows = { every = "6ms", sizes = { pareto = { shape = 1.2, mean = "250KB", most = "1MB" } }, peers = { some = 16 } }
[[messages.setting]]
name = "one"
transport = { congestion = "dctcp", least_timeout = "10ms", delayed_ack = "1ms" }
switches = { buffer = "375KB", mark_at = "30KB" }
"#,
    );
    let totals = tree.simulate(&tree.setting[0], 1).unwrap().totals;
    assert!(totals.flying > 500, "{}", totals.flying);
    let each = totals.memory as f64 / totals.flying as f64;
    assert!(each <= 200.0, "{each} B of {}", totals.flying);
}

/// Short flows take as long as without other flows, and long ones are as fast as with TCP.
#[test]
fn pfabric_serves_short_flows_first() {
    let star = |setting: &str| {
        let any = messages(&format!(
            r#"
[messages]
duration = "200ms"
star = {{ hosts = 8, link = {{ rate = "1Gbit/s", delay = "5us" }} }}
flows = {{ every = "3ms", sizes = {{ pareto = {{ shape = 1.2, mean = "200KB", most = "5MB" }} }}, own_connections = true }}
[[messages.setting]]
name = "one"
{setting}
"#
        ));
        let outcome = any.simulate(&any.setting[0], 1).unwrap();
        assert_eq!(outcome.begun, outcome.ended);
        outcome
    };
    let tcp = star(
        r#"transport = { congestion = "dctcp", least_timeout = "1ms", delayed_ack = "100us" }
switches = { buffer = "240KB", mark_at = "30KB" }"#,
    );
    let pfabric = star(
        r#"transport = { congestion = "pfabric", initial_window = 6, least_timeout = "210us", probes = false, restarts = false, delayed_ack = "0us" }
switches = { buffer = "18KB", host_buffer = "18KB", pfabric = true }"#,
    );
    assert!(pfabric.totals.dropped > 0);
    let p99 = |outcome: &Outcome| outcome.took[1].value_at_quantile(0.99);
    let (slow, fast) = (p99(&tcp), p99(&pfabric));
    assert!(fast * 2 < slow, "{fast} of {slow} ns");
    let mean = |outcome: &Outcome| outcome.took[2].mean();
    assert!(
        mean(&pfabric) < 1.5 * mean(&tcp),
        "{} of {} ns",
        mean(&pfabric),
        mean(&tcp)
    );
}

/// A port holds more than its part of a burst if the other ports of its switch are idle.
#[test]
fn a_shared_buffer_takes_a_burst_that_ports_apart_lose() {
    let lost = |switches: &str| {
        let burst = messages(&format!(
            r#"{STAR}
bursts = {{ every = "90ms", size = "40KB" }}
[[messages.setting]]
name = "one"
transport = {{ initial_window = 40, least_timeout = "1ms" }}
switches = {{ {switches} }}
"#
        ));
        burst.simulate(&burst.setting[0], 1).unwrap().totals.dropped
    };
    // Three of 40 KB at once, of which the link takes a third meanwhile: some 85 KB wait.
    assert!(lost(r#"buffer = "50KB""#) > 10);
    assert_eq!(lost(r#"shared = { buffer = "200KB", alpha = 1.0 }"#), 0);
    assert!(lost(r#"shared = { buffer = "200KB", alpha = 0.25 }"#) > 10);
}

#[test]
fn a_stopped_load_sends_only_the_counted_messages() {
    let sent = |stops: bool| {
        let any = messages(&format!(
            r#"
[messages]
duration = "10ms"
stops = {stops}
star = {{ hosts = 4, link = {{ rate = "1Gbit/s", delay = "20us" }} }}
flows = {{ every = "5ms", sizes = {{ fixed = "500KB" }} }}
[[messages.setting]]
name = "one"
"#
        ));
        let outcome = any.simulate(&any.setting[0], 1).unwrap();
        let last = outcome.messages().map(|it| it.begun).max().unwrap();
        assert!(outcome.begun == outcome.ended && last < Nanos::from_millis(10));
        (
            outcome.totals.sent as f64 / (500_000 * outcome.begun) as f64,
            outcome.begun,
        )
    };
    let (stopped, went_on) = (sent(true), sent(false));
    assert_eq!(stopped.1, went_on.1);
    let (stopped, went_on) = (stopped.0, went_on.0);
    // Headers, acknowledgements and retransmissions are less than a tenth.
    assert!((1.0..1.15).contains(&stopped), "{stopped}");
    assert!(went_on > 1.2, "{went_on}");
}

#[test]
fn a_window_of_one_segment_waits_for_an_acknowledgement_that_is_held_back() {
    for (quick_acks, waits) in [(0, true), (16, false)] {
        let one = messages(&format!(
            r#"{STAR}
flows = {{ every = "40ms", sizes = {{ fixed = "2896B" }}, own_connections = true }}
[[messages.setting]]
name = "one"
transport = {{ initial_window = 1, delayed_ack = "1ms", quick_acks = {quick_acks} }}
"#
        ));
        let outcome = one.simulate(&one.setting[0], 3).unwrap();
        let least = outcome.messages().map(|it| it.took).min().unwrap();
        assert_eq!(least > Nanos::from_millis(1), waits, "{least}");
    }
}

#[test]
fn packet_experiment_mistakes_are_reported_with_their_place() {
    let bursts = "bursts = { every = \"1ms\", size = \"1KB\" }";
    for (load, rest, expected) in [
        (
            "",
            "",
            "bad.toml:5:1: 0 loads: write one of `flows`, `queries`, `bursts`",
        ),
        (
            bursts,
            "switches = { classes = 9 }",
            "classes 9: choose 1 to 8",
        ),
        (
            "flows = { every = \"1ms\", sizes = { } }",
            "",
            "0 sizes: write one of `fixed`, `pareto`, `empirical`",
        ),
        (
            "flows = { every = \"1ms\", sizes = { fixed = \"1KB\" }, peers = { some = 4 } }",
            "",
            "4 peers of 4 hosts: choose 1 to 3",
        ),
        (
            bursts,
            "transport = { congestion = \"dctcp\", sack = false }",
            "DCTCP takes marks with SACK alone: leave it out",
        ),
        (
            bursts,
            "transport = { congestion = \"pfabric\" }",
            "pFabric is switches and hosts",
        ),
        (
            bursts,
            "switches = { pfabric = true, classes = 2 }\ntransport = { congestion = \"pfabric\" }",
            "pFabric has its own order",
        ),
        (
            bursts,
            "switches = { shared = { buffer = \"1MB\", alpha = 0.0 } }",
            "alpha 0: choose 0.001 to 1000",
        ),
    ] {
        let setting = "[[messages.setting]]\nname = \"one\"";
        let told = refused(&format!("{STAR}{load}\n{setting}\n{rest}\n"));
        assert!(told.contains(expected), "{told}");
    }
}

#[test]
fn all_experiments_that_come_with_the_program_are_read() {
    for name in PacketsExperiment::CATALOGUE.names().collect::<Vec<_>>() {
        let source = PacketsExperiment::CATALOGUE.source(name).unwrap();
        let loaded = Loaded::<PacketsExperiment>::parse(&source);
        let loaded = loaded.unwrap_or_else(|error| panic!("{error}"));
        assert!(loaded.checks().count() > 0, "{name}");
        let messages = loaded.experiment.messages.unwrap();
        assert!(messages.longest() > Nanos::ZERO);
    }
}

/// Senders that a full port clocks reach it at equal instants. If the first hosts always took the
/// room, the others would lose whole windows: one in six messages would have a timeout.
#[test]
fn hosts_that_send_in_step_share_a_full_port() {
    let folder = tempfile::tempdir().unwrap();
    let mut rows = "start_ns,source,destination,bytes\n".to_owned();
    for round in 0..10_u64 {
        let mut starts: Vec<u64> = (1..9)
            .map(|host| (host * 15_485_863 + round * host * 32_452_843) % 50_000)
            .collect();
        starts.sort_unstable();
        for (host, start) in (0..).zip(starts) {
            let (start, host) = (200_000_000 * round + start, 1 + (3 * host + round) % 8);
            writeln!(rows, "{start},{host},0,64000").unwrap();
        }
    }
    std::fs::write(folder.path().join("incast.csv"), rows).unwrap();
    let source = Source {
        file: folder.path().join("incast.toml").display().to_string(),
        text: r#"
name = "incast"
title = "t"
source = "s"
[messages]
duration = "2s"
stops = true
star = { hosts = 9, link = { rate = "1Gbit/s", delay = "20us" } }
trace = { file = "incast.csv", own_connections = true }
[[messages.setting]]
name = "one"
switches = { buffer = "129192B" }
transport = { congestion = "newreno", probes = false, least_timeout = "10ms", delayed_ack = "1ms" }
"#
        .to_owned(),
    };
    let loaded = Loaded::<PacketsExperiment>::parse(&source).unwrap();
    let incast = loaded.experiment.messages.unwrap();
    let outcome = incast.simulate(&incast.setting[0], 1).unwrap();
    assert_eq!((outcome.begun, outcome.ended), (80, 80));
    assert!(outcome.totals.dropped > 500, "{}", outcome.totals.dropped);
    let timeouts = outcome.totals.timeouts;
    assert!(timeouts <= 3, "{timeouts} timeouts of 80 messages");
}
