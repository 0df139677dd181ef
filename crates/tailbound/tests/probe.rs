//! `tailbound probe` and `tailbound select`, run as their users run them: short
//! runs, on loopback, bounded.

mod probe_server;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use probe_server::Server;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Output};

fn tailbound(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tailbound"))
        .args(arguments)
        .env_remove("COLUMNS")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A run of a fraction of a second. Nothing below one minute is late, so that the output does not
/// depend on the computer.
const QUIET: [&str; 11] = [
    "probe",
    "--samples",
    "300",
    "--low-mark",
    "1",
    "--late",
    "60s",
    "--confidence",
    "0.9",
    "--time-limit",
    "60s",
];

fn with<'a>(base: &[&'a str], more: &[&'a str]) -> Output {
    tailbound(&[base, more].concat())
}

/// A run in which all sleeps are late: sleeps of 1 µs take longer than 2 µs.
const ALL_LATE: [&str; 7] = ["probe", "--sleep", "1us", "--late", "2us", "--busy", "1"];

#[test]
fn a_quiet_node_is_good_in_the_first_line_and_the_exit_code() {
    let output = with(&QUIET, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    let mut lines = shown.lines();
    let first = lines.next().unwrap();
    assert!(first.starts_with("GOOD  CPU "), "{first}");
    assert!(first.ends_with("sleeps late; 90 % sure without the rest"));
    assert_eq!(lines.next(), Some(""));
    assert!(lines.next().unwrap().starts_with("cpu  verdict"));
}

#[test]
fn a_node_whose_sleeps_are_late_is_bad_or_found_busy() {
    let output = with(&ALL_LATE, &["--output", "line"]);
    let line = text(&output.stdout);
    assert!(line.len() <= 81 && line.ends_with('\n'), "{line}");
    match output.status.code() {
        Some(1) => assert!(line.starts_with("BAD  CPU "), "{line}"),
        // Other tests run on the same CPUs.
        Some(2) => assert!(line.starts_with("INCONCLUSIVE  CPU "), "{line}"),
        other => panic!("{other:?}: {line}"),
    }
}

#[test]
fn an_exact_run_makes_every_sleep() {
    let quiet: Vec<_> = QUIET.iter().take(7).copied().collect();
    let output = with(&quiet, &["--exact", "--output", "json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schema"], 1);
    assert_eq!(document["kind"], "probe");
    assert_eq!(document["verdict"], "GOOD");
    assert_eq!(document["config"]["exact"], true);
    assert_eq!(document["config"]["high_mark"], 5);
    for cpu in document["cpus"].as_array().unwrap() {
        assert_eq!(cpu["samples"], 300);
        assert_eq!(cpu["late"], 0);
        assert_eq!(cpu["sleep_ns"]["count"], 300);
        assert!(cpu["sleep_ns"]["p50"].as_u64().unwrap() >= 100_000);
    }
}

#[test]
fn lines_of_json_end_with_the_document() {
    let output = with(&QUIET, &["--output", "jsonl"]);
    let shown = text(&output.stdout);
    let lines: Vec<Value> = shown
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (last, intervals) = lines.split_last().unwrap();
    assert_eq!(last["kind"], "probe");
    assert!(!intervals.is_empty());
    assert!(intervals.iter().all(|line| line["kind"] == "interval"));
    let slept: u64 = intervals
        .iter()
        .map(|line| line["sleep_ns"]["count"].as_u64().unwrap())
        .sum();
    let all = last["cpus"].as_array().unwrap().iter();
    assert_eq!(
        slept,
        all.map(|cpu| cpu["samples"].as_u64().unwrap()).sum::<u64>()
    );
}

#[test]
fn the_histogram_log_is_one_that_others_read() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sleeps.hlog");
    let arguments = [
        "--output",
        "json",
        "--histogram-log",
        file.to_str().unwrap(),
    ];
    let output = with(&QUIET, &arguments);
    assert_eq!(output.status.code(), Some(0));
    let log = std::fs::read_to_string(&file).unwrap();
    assert_eq!(
        log.lines().nth(1),
        Some("#[Histogram log format version 1.3]")
    );
    let mut slept: BTreeMap<String, u64> = BTreeMap::new();
    for entry in IntervalLogIterator::new(log.as_bytes()) {
        let LogEntry::Interval(interval) = entry.unwrap() else {
            continue;
        };
        let bytes = BASE64.decode(interval.encoded_histogram()).unwrap();
        let sleeps: Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .unwrap();
        assert!(sleeps.min() >= 99_000, "{}", sleeps.min());
        let tag = interval.tag().unwrap().as_str().to_owned();
        *slept.entry(tag).or_default() += sleeps.len();
    }
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    for cpu in document["cpus"].as_array().unwrap() {
        let tag = format!("cpu{}", cpu["cpu"]);
        assert_eq!(cpu["samples"], slept[&tag]);
    }
    let nowhere = with(&QUIET, &["--histogram-log", "/nowhere/sleeps.hlog"]);
    assert_eq!(nowhere.status.code(), Some(2));
}

#[test]
fn wrong_arguments_have_a_code_that_no_verdict_has() {
    for (arguments, message) in [
        (["--samples", "0"].as_slice(), "0 samples cannot decide"),
        (&["--sleep", "0"], "a sleep of 0 never yields the CPU"),
        (&["--late", "50us"], "always late at 50us"),
        (&["--low-mark", "9", "--high-mark", "8"], "the low mark 9"),
        (&["--confidence", "1"], "a confidence of 1"),
        (&["--cpus", "1000"], "CPU 1000 is not among those"),
        (&["--cpus", "3-1"], "\"3-1\" is not a list of CPUs"),
        (&["--sleep=-1us"], "does not start with a number"),
        (&["--nonsense"], "--nonsense"),
        (&["network"], "<NODE>"),
        (&["network", "a:1", "--rates", "0"], "0 calls a second"),
        (&["network", "a:1", "--duration", "0"], "0ns for each rate"),
        (&["workflows", "a:1", "--rates", "0"], "0 calls a second"),
        (&["workflows", "a:1", "--groups", "2"], "1 to 1 are there"),
        (&["workflows", "a:1", "--groups", "0"], "a group of 0 nodes"),
        (&["workflows", "a"], "a node is HOST:PORT"),
        (&["serve", "--connections", "0"], "0 is not in 1..=4096"),
    ] {
        let output = with(&["probe"], arguments);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}");
        assert!(output.stdout.is_empty());
        let stderr = text(&output.stderr);
        assert!(stderr.contains(message), "{arguments:?}: {stderr}");
    }
}

#[test]
fn calls_are_answered_and_too_few_of_them_decide_nothing() {
    let server = Server::start();
    let output = tailbound(&[
        "probe",
        "network",
        &server.address,
        "--rates",
        "300,600",
        "--duration",
        "200ms",
        "--output",
        "json",
    ]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["kind"], "probe-network");
    assert_eq!(document["verdict"], "INCONCLUSIVE");
    let node = &document["nodes"][0];
    assert!(
        node["reason"]
            .as_str()
            .unwrap()
            .contains("have no 99.9th percentile")
    );
    for (rate, expected) in [(0, 60), (1, 120)] {
        let rate = &node["rates"][rate];
        assert_eq!(rate["unanswered"], 0);
        assert_eq!(rate["broken"], Value::Null);
        assert_eq!(rate["time_ns"]["count"], rate["calls"]);
        let calls = rate["calls"].as_i64().unwrap();
        // Poisson: five standard deviations.
        assert!((calls - expected).abs() < 55, "{calls}");
    }
}

#[test]
fn a_node_that_cannot_be_reached_is_inconclusive() {
    let address = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let output = tailbound(&["probe", "network", &address, "--duration", "1ms"]);
    assert_eq!(output.status.code(), Some(2));
    let expected = format!("INCONCLUSIVE  {address}: cannot be reached: ");
    assert!(text(&output.stdout).starts_with(&expected));
}

#[test]
fn a_node_that_answers_nonsense_is_charged_with_every_call() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&[b'x'; 4000]).unwrap();
        // Until the caller has had enough.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let output = tailbound(&[
        "probe",
        "network",
        &address,
        "--rates",
        "10000",
        "--duration",
        "1s",
        "--output",
        "json",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rate = &document["nodes"][0]["rates"][0];
    assert_eq!(rate["unanswered"], rate["calls"]);
    assert_eq!(rate["late"], rate["calls"]);
    assert!(rate["broken"].as_str().unwrap().contains("TBRP"));
}

#[test]
fn a_server_cuts_off_who_sends_nonsense_and_goes_on() {
    let server = Server::start();
    for nonsense in [
        b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n\r\n".as_slice(),
        &[0; 37],
    ] {
        let mut stream = server.connect();
        stream.write_all(nonsense).unwrap();
        let mut answer = Vec::new();
        // Closed, or reset where something was left unread.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty());
    }
    // Half a call, and gone.
    server.connect().write_all(b"TBRP\x01").unwrap();
    let output = tailbound(&[
        "probe",
        "network",
        &server.address,
        "--rates",
        "1000",
        "--duration",
        "50ms",
        "--output",
        "json",
    ]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["nodes"][0]["rates"][0]["unanswered"], 0);
}

#[test]
fn a_server_has_no_room_for_more_connections_than_it_was_given() {
    let server = Server::start();
    let open = [server.connect(), server.connect()];
    let mut beyond = server.connect();
    let mut answer = Vec::new();
    assert_eq!(beyond.read_to_end(&mut answer).unwrap_or(0), 0);
    drop(open);
}

/// The result of a probe, as far as `select` looks at it.
fn result(directory: &Path, node: &str, verdict: &str, late: u64) -> String {
    let document = serde_json::json!({
        "schema": 1, "kind": "probe", "node": node, "verdict": verdict,
        "cpus": [
            {"samples": 600_000, "late": 0, "sleep_ns": {"p99_9": 150_000}},
            {"samples": 600_000, "late": late, "sleep_ns": {"p99_9": 200_000}},
        ],
    });
    let file = directory.join(format!("{node}.json"));
    std::fs::write(&file, document.to_string()).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn select_keeps_the_best_and_says_when_they_are_short() {
    let directory = tempfile::tempdir().unwrap();
    let node = |node, verdict, late| result(directory.path(), node, verdict, late);
    let files = [
        node("a", "GOOD", 9),
        node("b", "BAD", 400),
        node("c", "GOOD", 0),
        node("d", "UNSURE", 30),
    ];
    let mut arguments: Vec<_> = ["select", "--keep", "1"].to_vec();
    arguments.extend(files.iter().map(String::as_str));
    let output = tailbound(&arguments);
    assert_eq!(output.status.code(), Some(0));
    let shown = text(&output.stdout).replace(directory.path().to_str().unwrap(), "DIR");
    insta::assert_snapshot!(shown, @r"
    ENOUGH  2 of 4 nodes are GOOD, 1 wanted

    node  use    verdict  network  late  sleeps  99.9th  file
    c     keep   GOOD     -           0  600000  200 us  DIR/c.json
    a     spare  GOOD     -           9  600000  200 us  DIR/a.json
    d     drop   UNSURE   -          30  600000  200 us  DIR/d.json
    b     drop   BAD      -         400  600000  200 us  DIR/b.json
    ");
    arguments[2] = "3";
    let output = tailbound(&arguments);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stdout).replace(directory.path().to_str().unwrap(), "DIR");
    insta::assert_snapshot!(shown, @r"
    SHORT  2 of 4 nodes are GOOD, 3 wanted

    node  use   verdict  network  late  sleeps  99.9th  file
    c     keep  GOOD     -           0  600000  200 us  DIR/c.json
    a     keep  GOOD     -           9  600000  200 us  DIR/a.json
    d     test  UNSURE   -          30  600000  200 us  DIR/d.json
    b     drop  BAD      -         400  600000  200 us  DIR/b.json

    note  `tailbound probe network` may approve 1 of use test
    ");
}

#[test]
fn two_results_of_one_node_are_named_once() {
    let directory = tempfile::tempdir().unwrap();
    let a = result(directory.path(), "a", "GOOD", 9);
    let b = result(directory.path(), "b", "GOOD", 9);
    let said = |files: &[&str]| {
        let arguments = [&["select"], files, &["--keep", "1"]].concat();
        let output = tailbound(&arguments);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(said(&[&a, &b]), "");
    let warned = said(&[&a, &b, &a, &b]);
    assert_eq!(warned.lines().count(), 1, "{warned}");
    let wanted =
        format!("tailbound: warning: {a} and {a} are both of a node a, which counts twice");
    assert!(warned.starts_with(&wanted), "{warned}");
}

/// The result of a network test of nodes with these verdicts.
fn network(directory: &Path, nodes: &[(&str, &str)]) -> String {
    let nodes: Vec<_> = nodes
        .iter()
        .map(|(node, verdict)| serde_json::json!({"node": node, "verdict": verdict}))
        .collect();
    let document = serde_json::json!({
        "schema": 1, "kind": "probe-network", "node": "client", "verdict": "BAD", "nodes": nodes,
    });
    let file = directory.join("network.json");
    std::fs::write(&file, document.to_string()).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn the_network_test_decides_what_sleeps_leave_open_and_says_how_many_to_start() {
    let directory = tempfile::tempdir().unwrap();
    let node = |node, verdict, late| result(directory.path(), node, verdict, late);
    let files = [
        node("a", "GOOD", 0),
        node("b", "UNSURE", 20),
        node("10.0.0.3", "UNSURE", 30),
        node("d", "BAD", 90),
        network(
            directory.path(),
            &[
                ("a:7413", "GOOD"),
                ("b:7413", "BAD"),
                ("10.0.0.3:7413", "GOOD"),
                ("d:7413", "BAD"),
            ],
        ),
    ];
    let mut arguments: Vec<_> = ["select", "--keep", "2"].to_vec();
    arguments.extend(files.iter().map(String::as_str));
    let output = tailbound(&arguments);
    let shown = text(&output.stdout).replace(directory.path().to_str().unwrap(), "DIR");
    insta::assert_snapshot!(shown, @r"
    ENOUGH  2 of 4 nodes are GOOD, 2 wanted

    node      use   verdict  network  late  sleeps  99.9th  file
    a         keep  GOOD     GOOD        0  600000  200 us  DIR/a.json
    10.0.0.3  keep  UNSURE   GOOD       30  600000  200 us  DIR/10.0.0.3.json
    b         drop  UNSURE   BAD        20  600000  200 us  DIR/b.json
    d         drop  BAD      BAD        90  600000  200 us  DIR/d.json

    note  of 4 nodes with both tests 50 % are good, of which the sleeps missed 50 %: start 4.0 for each to keep
    ");
    network(directory.path(), &[("elsewhere:7413", "GOOD")]);
    let output = tailbound(&arguments);
    assert_eq!(output.status.code(), Some(2));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("elsewhere:7413 was tested and has no probe's result"));
}

#[test]
fn marks_are_found_from_nodes_that_both_tests_judged() {
    let directory = tempfile::tempdir().unwrap();
    let node = |name: &str, late: u64, samples: u64| {
        let document = serde_json::json!({
            "schema": 1, "kind": "probe", "node": name, "verdict": "GOOD",
            "config": {"samples": 600_000, "span_ns": 100_000_000_000_u64},
            "cpus": [{"samples": samples, "late": late, "elapsed_ns": 1_000_000_000,
                      "sleep_ns": {"p99_9": 1}}],
        });
        let file = directory.path().join(format!("{name}.json"));
        std::fs::write(&file, document.to_string()).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let files = [
        node("a", 1, 600_000),
        // As many in a whole run.
        node("b", 33, 200_000),
        network(directory.path(), &[("a:1", "GOOD"), ("b:1", "BAD")]),
    ];
    let mut arguments: Vec<_> = ["probe", "calibrate"].to_vec();
    arguments.extend(files.iter().map(String::as_str));
    let output = tailbound(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    insta::assert_snapshot!(text(&output.stdout), @r"
    --low-mark 13 --high-mark 65

    of 1 bad nodes 0.0 % are called GOOD; of 1 good ones the sleeps alone miss 0.0 %, and 0.0 % are called BAD
    note  fewer than 10 nodes of a kind are not representative
    note  1 runs ended early, and their late sleeps are scaled to a whole one: --exact
    ");
    network(directory.path(), &[("a:1", "GOOD"), ("b:1", "GOOD")]);
    let output = tailbound(&arguments);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("none of 2 nodes failed the network test"));
}

#[test]
fn select_refuses_what_is_no_result() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("other.json");
    for (content, message) in [
        ("", "not the result of tailbound probe"),
        ("{\"schema\": 1}", "not the result of tailbound probe"),
        (
            "{\"schema\":1,\"kind\":\"rate\",\"node\":\"a\",\"verdict\":\"GOOD\",\"cpus\":[]}",
            "a result of kind \"rate\"",
        ),
        (
            "{\"schema\":2,\"kind\":\"probe\",\"node\":\"a\",\"verdict\":\"GOOD\",\"cpus\":[]}",
            "schema 2 is not 1",
        ),
        (
            "{\"schema\":1,\"kind\":\"probe\",\"node\":\"a\",\"verdict\":\"GOOD\",\"cpus\":[]}",
            "it has no vCPU",
        ),
    ] {
        std::fs::write(&file, content).unwrap();
        let output = tailbound(&["select", "--keep", "1", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2));
        let stderr = text(&output.stderr);
        assert!(stderr.contains(message), "{stderr}");
    }
}

/// A run of `probe watch` of a fraction of a second.
fn watch(file: &Path, more: &[&str]) -> Output {
    let mut arguments = vec!["probe", "watch", file.to_str().unwrap()];
    arguments.extend(&QUIET[1..]);
    arguments.extend(more);
    tailbound(&arguments)
}

#[test]
fn a_watch_goes_on_with_its_file_and_tells_what_the_node_was() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("node.jsonl");
    for runs in 1..=2 {
        let output = watch(&file, &["--runs", "1"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let told = text(&output.stdout);
        let line = format!("; runs: {runs}\n");
        assert!(
            told.starts_with("GOOD  CPU ") && told.contains(&line),
            "{told}"
        );
        // One that was ended while it wrote left half a line.
        let mut kept = std::fs::OpenOptions::new()
            .append(true)
            .open(&file)
            .unwrap();
        kept.write_all(b"{\"at\":17").unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap();
    assert_eq!(kept.lines().count(), 3);
    let length = kept.lines().map(str::len).max().unwrap();
    assert!(length < 200, "{length} bytes a line");
    let shown = tailbound(&[
        "probe",
        "watch",
        "--show",
        "--output",
        "json",
        file.to_str().unwrap(),
    ]);
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(
        (&shown["kind"], &shown["good"]),
        (&"probe-watch".into(), &2.into())
    );
    assert_eq!(shown["now"]["runs"], 2);
    assert_eq!(shown["gaps"], 0);
}

#[test]
fn a_watch_tells_stretches_and_gaps_and_refuses_what_it_cannot_keep() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("node.jsonl");
    let line = |hour: u32, verdict: &str| {
        format!(
            "{{\"at\":{}.5,\"every\":3600.0,\"verdict\":\"{verdict}\",\"sleeps\":9,\"late\":0,\
             \"ours\":0,\"stolen\":0,\"p99_9\":1,\"max\":2}}\n",
            1_790_000_000 + 3600 * hour
        )
    };
    let runs = [
        (0, "BAD"),
        (30, "GOOD"),
        (31, "GOOD"),
        (32, "UNSURE"),
        (33, "BAD"),
        (34, "BAD"),
    ];
    let lines: String = runs.map(|(hour, verdict)| line(hour, verdict)).concat();
    std::fs::write(&file, &lines).unwrap();
    let show = || tailbound(&["probe", "watch", "--show", file.to_str().unwrap()]);
    let shown = show();
    assert_eq!(shown.status.code(), Some(1));
    insta::assert_snapshot!("watch", text(&shown.stdout));
    std::fs::write(&file, format!("{lines}GOOD\n")).unwrap();
    let refused = text(&show().stderr);
    assert!(
        refused.contains("node.jsonl:7: no line of tailbound probe watch"),
        "{refused}"
    );
    let refused = watch(&file, &["--every", "1s"]);
    assert_eq!(refused.status.code(), Some(64), "{}", text(&refused.stderr));
    std::fs::write(&file, lines).unwrap();
    let held = std::fs::File::open(&file).unwrap();
    held.lock().unwrap();
    let refused = watch(&file, &["--runs", "1"]);
    assert_eq!(refused.status.code(), Some(2));
    let refused = text(&refused.stderr);
    assert!(refused.contains("another watch keeps it"), "{refused}");
}

#[test]
fn pairs_tell_whose_the_long_tails_are() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = ["a", "b", "c", "d"];
    let found = [" .x.", ". x.", ".. .", ".xx "];
    let files = nodes.iter().zip(found).map(|(caller, row)| {
        let others = nodes
            .iter()
            .zip(row.chars())
            .filter(|(_, found)| *found != ' ');
        let others = others.map(|(node, found)| {
            let (verdict, time) = if found == 'x' {
                ("BAD", 31_000_000)
            } else {
                ("GOOD", 700_000)
            };
            let times = |p99_9: u64| serde_json::json!({"time_ns": {"p99_9": p99_9}});
            serde_json::json!({
                "node": format!("{node}:7413"), "verdict": verdict,
                "rates": [times(time), times(time / 2)],
            })
        });
        let document = serde_json::json!({
            "schema": 1, "kind": "probe-network", "node": caller, "verdict": "BAD",
            "nodes": others.collect::<Vec<_>>(),
        });
        let file = directory.path().join(format!("{caller}.json"));
        std::fs::write(&file, document.to_string()).unwrap();
        file.to_str().unwrap().to_owned()
    });
    let files: Vec<_> = files.collect();
    let mut arguments = vec!["probe", "pairs"];
    arguments.extend(files.iter().map(String::as_str));
    let output = tailbound(&arguments);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    insta::assert_snapshot!("pairs", text(&output.stdout));
    arguments.push(&files[0]);
    let twice = text(&tailbound(&arguments).stderr);
    assert!(twice.contains("a.json: the second test by a"), "{twice}");
    std::fs::write(
        &files[0],
        r#"{"schema":1,"kind":"probe","node":"a","verdict":"GOOD","cpus":[]}"#,
    )
    .unwrap();
    let wrong = tailbound(&["probe", "pairs", &files[0]]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("a.json: a probe's result"));
}

#[test]
fn the_help_is_stable() {
    for command in [
        "probe",
        "probe serve",
        "probe network",
        "probe workflows",
        "probe calibrate",
        "probe pairs",
        "probe watch",
        "select",
    ] {
        let mut arguments: Vec<_> = command.split(' ').collect();
        arguments.push("--help");
        let help = tailbound(&arguments);
        assert!(help.status.success());
        insta::assert_snapshot!(format!("help {command}"), text(&help.stdout));
    }
}
