//! UDP, streams of a constant rate, and traces.

use super::*;

#[test]
fn a_udp_messages_latency_is_its_wire_and_link_time() {
    let alone = messages(&format!(
        r#"{STAR}
flows = {{ every = "40ms", sizes = {{ fixed = "10000B" }} }}
[[messages.setting]]
name = "one"
transport = {{ protocol = "udp" }}
"#
    ));
    let outcome = alone.simulate(&alone.setting[0], 3).unwrap();
    assert!(outcome.begun > 3 && outcome.begun == outcome.ended);
    // Six datagrams of 1472 B, 1538 B on the wire, and one of 1168 B.
    let expected = 8 * (6 * 1_538 + 1_234) + 12_304 + 40_000;
    for message in outcome.messages() {
        let took = message.took.0;
        assert!(took.abs_diff(expected) < 200, "{took} for {expected}");
    }
    // No host acknowledges, so the links carry no other frames.
    let frames = 7 * outcome.begun;
    assert!(outcome.totals.packets <= 2 * frames + 28, "{frames}");
}

/// Lost messages stay lost, all of them are reported, and an open loop goes on.
#[test]
fn messages_over_udp_are_lost_where_queues_are_full() {
    let burst = |buffer: &str| {
        let any = messages(&format!(
            r#"{STAR}
bursts = {{ every = "40ms", size = "20KB" }}
[[messages.setting]]
name = "one"
transport = {{ protocol = "udp" }}
switches = {{ buffer = "{buffer}" }}
"#
        ));
        any.simulate(&any.setting[0], 1).unwrap()
    };
    let outcome = burst("100KB");
    assert_eq!((outcome.begun, outcome.ended, outcome.lost), (6, 6, 0));
    let outcome = burst("10KB");
    assert!(outcome.lost > 0 && outcome.totals.dropped >= outcome.lost);
    assert_eq!((outcome.begun, outcome.ended), (6, 6 - outcome.lost));
    assert_eq!((outcome.totals.resent, outcome.totals.timeouts), (0, 0));
    let variant = burst_variant(&outcome);
    assert!((variant.values["lost_messages"].value - outcome.lost as f64).abs() < 0.5);
    assert!(variant.values["unfinished"].value.abs() < 0.5);
}

fn burst_variant(outcome: &Outcome) -> tailbound_report::Variant {
    crate::packets::figures::variant("one", outcome, 4)
}

/// A lost question is given up after 200 ms, and the next one is sent then.
#[test]
fn a_talk_over_udp_beside_tcp_goes_on_after_a_loss() {
    let talks = messages(
        r#"
[messages]
duration = "2s"
stops = true
star = { hosts = 3, link = { rate = "100Mbit/s", delay = "20us" } }
guest = [{ name = "asks", host = 0 }, { name = "bulk", host = 1 }, { name = "answers", host = 2 }]
[[messages.talk]]
name = "query"
from = "asks"
to = "answers"
message = { fixed = "1400B" }
answer = { fixed = "1000B" }
protocol = "udp"
[[messages.talk]]
name = "bulk"
from = "bulk"
to = "answers"
message = { fixed = "3MB" }
[[messages.setting]]
name = "one"
switches = { buffer = "6KB" }
transport = { congestion = "newreno", receive_window = "1MB" }
"#,
    );
    let outcome = talks.simulate(&talks.setting[0], 1).unwrap();
    let queries = outcome.records.iter().filter(|it| it.owner == 0).count() as u64;
    assert!(outcome.lost >= 2, "{}", outcome.lost);
    // One after the other, and 200 ms for each loss: less than all of the 2 s.
    assert!(
        outcome.lost <= 10 && queries > 20,
        "{queries}, {}",
        outcome.lost
    );
    // The messages beside it use TCP: all of them are received.
    let bulk = outcome.records.iter().filter(|it| it.owner == 1).count() as u64;
    assert!(bulk > 3 && outcome.begun == queries + bulk + outcome.lost);
}

#[test]
fn streams_send_at_equal_distances() {
    let streams = messages(&format!(
        r#"{STAR}
streams = {{ every = "20ms", size = "200B", peers = {{ some = 2 }} }}
[[messages.setting]]
name = "one"
transport = {{ protocol = "udp" }}
"#
    ));
    let outcome = streams.simulate(&streams.setting[0], 1).unwrap();
    // Four hosts with two streams each, five times in 100 ms.
    assert_eq!((outcome.begun, outcome.ended), (40, 40));
    let mut last = std::collections::BTreeMap::new();
    for message in outcome.messages() {
        let pair = (message.from, message.to);
        if let Some(before) = last.insert(pair, message.begun) {
            assert_eq!(message.begun, before + Nanos::from_millis(20));
        }
        // A message without queueing takes two wires and two links.
        assert!(message.took >= Nanos(2 * 8 * 266 + 40_000 - 2));
    }
    assert_eq!(last.len(), 8);
    assert!(last.values().any(|at| *at != Nanos::from_millis(80)));
}

fn trace(rows: &str, more: &str) -> Result<Messages, String> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("trace.csv"), rows).unwrap();
    let source = Source {
        file: folder.path().join("mine.toml").display().to_string(),
        text: format!(
            "name = \"mine\"\ntitle = \"t\"\nsource = \"s\"\n{STAR}\
             trace = {{ file = \"trace.csv\"{more} }}\n[[messages.setting]]\nname = \"one\"\n"
        ),
    };
    let loaded = Loaded::<PacketsExperiment>::parse(&source);
    let loaded = loaded.map_err(|error| error.to_string())?;
    let input = loaded.experiment.inputs();
    assert!(input.contains("from: 2, to: 0, bytes: 5000"), "{input}");
    Ok(loaded.experiment.messages.unwrap())
}

/// Messages are those of the file, except those after the duration.
#[test]
fn a_trace_is_sent_as_it_stands_in_its_file() {
    let rows = "start_ns,source,destination,bytes\n0,2,0,5000\n1000000,1,3,200\n1000000,2,0,7\n\
                99999999,3,2,1\n100000000,0,1,1\n";
    for more in ["", ", own_connections = true"] {
        let messages = trace(rows, more).unwrap();
        let outcome = messages.simulate(&messages.setting[0], 1).unwrap();
        let mut told: Vec<_> = outcome
            .messages()
            .map(|it| (it.begun.0, it.from, it.to, it.size.0))
            .collect();
        told.sort_unstable();
        let expected = [
            (0, 2, 0, 5_000),
            (1_000_000, 1, 3, 200),
            (1_000_000, 2, 0, 7),
            (99_999_999, 3, 2, 1),
        ];
        assert_eq!(told, expected);
    }
}

#[test]
fn trace_mistakes_are_reported_with_their_place_in_both_files() {
    let told = trace("start_ns,source,destination,bytes\n0,4,0,5000\n", "").unwrap_err();
    assert!(told.contains("mine.toml:8:"), "{told}");
    let expected = "trace.csv:2: column `source`: \"4\" is not";
    assert!(told.contains(expected), "{told}");
    let told = trace("PAR1\u{15}\u{4}", "").unwrap_err();
    assert!(
        told.contains("trace.csv: it is no Parquet that can be read: EOF: Parquet file too small"),
        "{told}"
    );
}
