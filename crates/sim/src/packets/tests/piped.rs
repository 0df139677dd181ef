//! Hosts whose packets pass the data path's own pipeline to their links.

use super::*;

/// Guests a, b and c on host 0: two send 64 KB at a time without a pause, each to a host of its
/// own, the third queries a fourth host; `rest` is the setting.
fn bulk(rest: &str) -> String {
    format!(
        r#"
[messages]
duration = "100ms"
star = {{ hosts = 4, link = {{ rate = "1Gbit/s", delay = "20us" }} }}
guest = [
    {{ name = "a", host = 0 }}, {{ name = "b", host = 0 }}, {{ name = "c", host = 0 }},
    {{ name = "d", host = 1 }}, {{ name = "e", host = 2 }}, {{ name = "f", host = 3 }},
]
[[messages.talk]]
name = "query"
from = "c"
to = "f"
every = "2ms"
message = {{ fixed = "1000B" }}
[[messages.talk]]
name = "first"
from = "a"
to = "d"
message = {{ fixed = "63712B" }}
[[messages.talk]]
name = "second"
from = "b"
to = "e"
message = {{ fixed = "63712B" }}
[[messages.setting]]
name = "one"
{rest}
"#
    )
}

fn run(rest: &str) -> Outcome {
    let messages = messages(&bulk(rest));
    messages.simulate(&messages.setting[0], 1).unwrap()
}

/// Times of a talk, in microseconds: the median and the longest.
fn took(outcome: &Outcome, owner: u32) -> (u64, u64) {
    let own = outcome.records.iter().filter(|it| it.owner == owner);
    let mut took: Vec<u64> = own.map(|it| it.took / 1_000).collect();
    took.sort_unstable();
    (took[took.len() / 2], took[took.len() - 1])
}

/// A packet of 64 KiB is 44 frames on the wire, one after the other, independent of where it is
/// segmented.
#[test]
fn a_large_packets_latency_equals_that_of_its_frames() {
    let quiet = "quiet = [\"query\", \"second\"]";
    let least = |rest: &str| {
        let outcome = run(&format!("{quiet}\n{rest}"));
        assert_eq!((outcome.totals.dropped, outcome.totals.resent), (0, 0));
        let all = outcome.records.iter().map(|it| it.took);
        (all.min().unwrap(), outcome.ended)
    };
    let plain = least("transport = { initial_window = 44 }");
    // 44 frames, the last of them over two links of 20 us.
    assert!(plain.0.abs_diff(8 * 45 * 1_538 + 40_000) < 200, "{plain:?}");
    for segment in [false, true] {
        let piped = format!(
            "pipeline = {{ segment = {segment}, offload = true }}\ntransport = {{ initial_window = 44 }}"
        );
        assert_eq!(least(&piped), plain, "segment {segment}");
    }
}

/// Small is Better, 4.2: if packets of 64 KiB are queued, a packet of another flow waits for whole
/// ones, even in a fair queue.
#[test]
fn a_query_waits_for_a_frame_where_packets_are_cut_before_the_queue() {
    let queue = |queue: &str, segment: bool| {
        let outcome = run(&format!(
            "pipeline = {{ queue = {{ kind = \"{queue}\" }}, segment = {segment}, offload = true }}\n\
             transport = {{ initial_window = 44 }}"
        ));
        assert_eq!(outcome.begun, outcome.ended);
        took(&outcome, 0)
    };
    let whole = queue("fq-codel", false);
    let cut = queue("fq-codel", true);
    let in_line = queue("fifo", true);
    // Half a packet on the wire on average, and at most one of each of the other two; the same for
    // frames. In a FIFO it waits for all packets before it.
    assert!(
        (250..400).contains(&whole.0) && whole.1 < 1_200,
        "{whole:?}"
    );
    assert!(cut.0 < 75 && cut.1 < 90, "{cut:?}");
    assert!(in_line.0 > 2 * whole.0, "{in_line:?}");
}

/// Over any interval at most the limit and its burst leave.
#[test]
fn a_limit_is_kept() {
    let outcome = run(
        "pipeline = { limit = { rate = \"100Mbit/s\", depth = \"4KB\" } }\nquiet = [\"second\"]",
    );
    let bits = 8.0 * outcome.totals.sent as f64 / outcome.totals.end.as_secs_f64();
    // Frames take 24 B more of the wire, and acknowledgements of the others are beside.
    assert!((95e6..110e6).contains(&bits), "{bits}");
}

/// The pipeline's own meter marks small flows for switches, as the meter of hosts without one: a
/// query overtakes the traffic of two senders to its host.
#[test]
fn a_pipeline_meters() {
    let text = |rest: &str| {
        let text = bulk(&format!("switches = {{ classes = 2 }}\n{rest}"));
        let text = text.replace("\"b\", host = 0", "\"b\", host = 3");
        let text = text.replace("\"e\", host = 2", "\"e\", host = 1");
        text.replace("\"f\", host = 3", "\"f\", host = 1")
    };
    let meter = "meter = { rate = \"10Mbit/s\", burst = \"30KB\" }";
    let pipeline = "pipeline = { queue = { kind = \"fq-codel\" } }";
    let query = |rest: &str| {
        let messages = messages(&text(rest));
        let outcome = messages.simulate(&messages.setting[0], 1).unwrap();
        took(&outcome, 0)
    };
    let without = query(pipeline);
    let with = query(&format!("{pipeline}\n{meter}"));
    assert!(without.0 > 300, "{without:?}");
    assert!(with.0 < 75 && with.1 < 90, "{with:?}");
}

#[test]
fn pipeline_mistakes_are_reported() {
    for (rest, expected) in [
        (
            "pipeline = {}\nswitches = { host_buffer = \"100KB\" }",
            "leave out `host_buffer`",
        ),
        (
            "pipeline = {}\ntransport = { congestion = \"dctcp\" }\nhull = {}",
            "does not go with `tenants`, `hull`",
        ),
        (
            "pipeline = { limit = { rate = \"0bit/s\" } }",
            "a limit of 0 passes nothing",
        ),
        ("pipeline = { nic = { rate = \"1kbit/s\" } }", "choose"),
        (
            "pipeline = { queue = { kind = \"red\" } }",
            "unknown kind `red`",
        ),
        ("pipeline = { size = 1 }", "unknown key `size`"),
    ] {
        let told = refused(&bulk(rest));
        assert!(told.contains(expected), "{expected}: {told}");
    }
}
