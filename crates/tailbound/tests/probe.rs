//! `tailbound probe` and `tailbound select`, run as their users run them: short
//! runs, on loopback, bounded.

mod probe_server;
mod program;

use probe_server::Server;
use program::{CommandOutput, Folder, histograms, run_anywhere as run};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};

/// A run of a fraction of a second. Nothing below one minute is late, so that the output does not
/// depend on the computer.
const QUIET: &str = "probe --samples 300 --low-mark 1 --late 60s";

/// Ends a quiet run early.
const EARLY: &str = "--confidence 0.9 --time-limit 60s";

fn quiet(more: &str) -> CommandOutput {
    run(&format!("{QUIET} {EARLY} {more}"))
}

/// A run in which all sleeps are late: sleeps of 1 µs take longer than 2 µs.
const ALL_LATE: &str = "probe --sleep 1us --late 2us --busy 1";

#[test]
fn a_quiet_node_is_good_in_the_first_line_and_the_exit_code() {
    let shown = quiet("").done();
    let mut lines = shown.lines();
    let first = lines.next().unwrap();
    assert!(first.starts_with("GOOD  CPU "), "{first}");
    assert!(first.ends_with("sleeps late; 90 % sure without the rest"));
    assert_eq!(lines.next(), Some(""));
    assert!(lines.next().unwrap().starts_with("cpu  verdict"));
}

#[test]
fn a_node_whose_sleeps_are_late_is_bad_or_found_busy() {
    let output = run(&format!("{ALL_LATE} --output line"));
    let line = output.out;
    assert!(line.len() <= 81 && line.ends_with('\n'), "{line}");
    match output.code {
        Some(1) => assert!(line.starts_with("BAD  CPU "), "{line}"),
        // Other tests run on the same CPUs.
        Some(2) => assert!(line.starts_with("INCONCLUSIVE  CPU "), "{line}"),
        other => panic!("{other:?}: {line}"),
    }
}

#[test]
fn an_exact_run_makes_every_sleep() {
    let document = run(&format!("{QUIET} --exact --output json")).json();
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
    let shown = quiet("--output jsonl").out;
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
fn the_histogram_log_has_the_standard_format() {
    let folder = Folder::new();
    let file = folder.join("sleeps.hlog");
    let document = quiet(&format!("--output json --histogram-log {}", file.display())).json();
    let log = folder.read("sleeps.hlog");
    assert_eq!(
        log.lines().nth(1),
        Some("#[Histogram log format version 1.3]")
    );
    let mut slept: BTreeMap<String, u64> = BTreeMap::new();
    for (tag, sleeps) in histograms(&log) {
        assert!(sleeps.min() >= 99_000, "{}", sleeps.min());
        *slept.entry(tag).or_default() += sleeps.len();
    }
    for cpu in document["cpus"].as_array().unwrap() {
        let tag = format!("cpu{}", cpu["cpu"]);
        assert_eq!(cpu["samples"], slept[&tag]);
    }
    quiet("--histogram-log /nowhere/sleeps.hlog").failed(2);
}

#[test]
fn wrong_arguments_have_a_code_that_no_verdict_has() {
    for (line, message) in [
        ("--samples 0", "0 samples cannot decide"),
        ("--sleep 0", "a sleep of 0 never yields the CPU"),
        ("--late 50us", "always late at 50us"),
        ("--low-mark 9 --high-mark 8", "the low mark 9"),
        ("--confidence 1", "a confidence of 1"),
        ("--cpus 1000", "CPU 1000 is not among those"),
        ("--cpus 3-1", "\"3-1\" is not a list of CPUs"),
        ("--sleep=-1us", "does not start with a number"),
        ("--nonsense", "--nonsense"),
        ("network", "<NODE>"),
        ("network a:1 --rates 0", "0 calls a second"),
        ("network a:1 --duration 0", "0ns for each rate"),
        ("workflows a:1 --rates 0", "0 calls a second"),
        ("workflows a:1 --groups 2", "1 to 1 are there"),
        ("workflows a:1 --groups 0", "a group of 0 nodes"),
        ("workflows a", "a node is HOST:PORT"),
        ("serve --connections 0", "0 is not in 1..=4096"),
    ] {
        let output = run(&format!("probe {line}")).ended(64);
        assert_eq!(output.out, "", "{line}");
        assert!(output.err.contains(message), "{line}: {}", output.err);
    }
}

#[test]
fn calls_are_answered_and_too_few_of_them_decide_nothing() {
    let server = Server::start();
    let line = "--rates 300,600 --duration 200ms --output json";
    let output = run(&format!("probe network {} {line}", server.address)).ended(2);
    let document = output.json();
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
    let output = run(&format!("probe network {address} --duration 1ms")).ended(2);
    let expected = format!("INCONCLUSIVE  {address}: cannot be reached: ");
    assert!(output.out.starts_with(&expected));
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
    let line = "--rates 10000 --duration 1s --output json";
    let output = run(&format!("probe network {address} {line}")).ended(1);
    let document = output.json();
    let rate = &document["nodes"][0]["rates"][0];
    assert_eq!(rate["unanswered"], rate["calls"]);
    assert_eq!(rate["late"], rate["calls"]);
    assert!(rate["broken"].as_str().unwrap().contains("TBRP"));
}

#[test]
fn the_server_closes_invalid_connections_and_keeps_serving() {
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
    let line = "--rates 1000 --duration 50ms --output json";
    let output = run(&format!("probe network {} {line}", server.address));
    let document = output.json();
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

/// Writes the result of a probe, as far as `select` looks at it.
fn result(folder: &Folder, node: &str, verdict: &str, late: u64) {
    let document = serde_json::json!({
        "schema": 1, "kind": "probe", "node": node, "verdict": verdict,
        "cpus": [
            {"samples": 600_000, "late": 0, "sleep_ns": {"p99_9": 150_000}},
            {"samples": 600_000, "late": late, "sleep_ns": {"p99_9": 200_000}},
        ],
    });
    folder.write(&format!("{node}.json"), document.to_string());
}

#[test]
fn select_keeps_the_best_nodes_and_reports_a_shortage() {
    let folder = Folder::new();
    result(&folder, "a", "GOOD", 9);
    result(&folder, "b", "BAD", 400);
    result(&folder, "c", "GOOD", 0);
    result(&folder, "d", "UNSURE", 30);
    let output = folder.run("select --keep 1 a.json b.json c.json d.json");
    insta::assert_snapshot!(output.ended(0).out, @r"
    ENOUGH  2 of 4 nodes are GOOD, 1 wanted

    node  use    verdict  network  late  sleeps  99.9th  file
    c     keep   GOOD     -           0  600000  200 us  c.json
    a     spare  GOOD     -           9  600000  200 us  a.json
    d     drop   UNSURE   -          30  600000  200 us  d.json
    b     drop   BAD      -         400  600000  200 us  b.json
    ");
    let output = folder.run("select --keep 3 a.json b.json c.json d.json");
    insta::assert_snapshot!(output.ended(1).out, @r"
    SHORT  2 of 4 nodes are GOOD, 3 wanted

    node  use   verdict  network  late  sleeps  99.9th  file
    c     keep  GOOD     -           0  600000  200 us  c.json
    a     keep  GOOD     -           9  600000  200 us  a.json
    d     test  UNSURE   -          30  600000  200 us  d.json
    b     drop  BAD      -         400  600000  200 us  b.json

    note  `tailbound probe network` may approve 1 of use test
    ");
}

#[test]
fn two_results_of_one_node_are_named_once() {
    let folder = Folder::new();
    result(&folder, "a", "GOOD", 9);
    result(&folder, "b", "GOOD", 9);
    let said = |files: &str| folder.run(&format!("select {files} --keep 1")).ended(0).err;
    assert_eq!(said("a.json b.json"), "");
    let warned = said("a.json b.json a.json b.json");
    assert_eq!(warned.lines().count(), 1, "{warned}");
    let wanted = "tailbound: warning: a.json and a.json are both of a node a, which counts twice";
    assert!(warned.starts_with(wanted), "{warned}");
}

/// Writes the result of a network test of nodes with these verdicts.
fn network(folder: &Folder, nodes: &[(&str, &str)]) {
    let nodes: Vec<_> = nodes
        .iter()
        .map(|(node, verdict)| serde_json::json!({"node": node, "verdict": verdict}))
        .collect();
    let document = serde_json::json!({
        "schema": 1, "kind": "probe-network", "node": "client", "verdict": "BAD", "nodes": nodes,
    });
    folder.write("network.json", document.to_string());
}

#[test]
fn the_network_test_settles_nodes_with_unsure_sleep_results() {
    let folder = Folder::new();
    result(&folder, "a", "GOOD", 0);
    result(&folder, "b", "UNSURE", 20);
    result(&folder, "10.0.0.3", "UNSURE", 30);
    result(&folder, "d", "BAD", 90);
    let nodes = [
        ("a:7413", "GOOD"),
        ("b:7413", "BAD"),
        ("10.0.0.3:7413", "GOOD"),
        ("d:7413", "BAD"),
    ];
    network(&folder, &nodes);
    let line = "select --keep 2 a.json b.json 10.0.0.3.json d.json network.json";
    insta::assert_snapshot!(folder.run(line).out, @r"
    ENOUGH  2 of 4 nodes are GOOD, 2 wanted

    node      use   verdict  network  late  sleeps  99.9th  file
    a         keep  GOOD     GOOD        0  600000  200 us  a.json
    10.0.0.3  keep  UNSURE   GOOD       30  600000  200 us  10.0.0.3.json
    b         drop  UNSURE   BAD        20  600000  200 us  b.json
    d         drop  BAD      BAD        90  600000  200 us  d.json

    note  of 4 nodes with both tests 50 % are good, of which the sleeps missed 50 %: start 4.0 for each to keep
    ");
    network(&folder, &[("elsewhere:7413", "GOOD")]);
    let error = folder.run(line).failed(2);
    assert!(error.contains("elsewhere:7413 was tested and has no probe's result"));
}

#[test]
fn marks_are_found_from_nodes_that_both_tests_judged() {
    let folder = Folder::new();
    let node = |name: &str, late: u64, samples: u64| {
        let document = serde_json::json!({
            "schema": 1, "kind": "probe", "node": name, "verdict": "GOOD",
            "config": {"samples": 600_000, "span_ns": 100_000_000_000_u64},
            "cpus": [{"samples": samples, "late": late, "elapsed_ns": 1_000_000_000,
                      "sleep_ns": {"p99_9": 1}}],
        });
        folder.write(&format!("{name}.json"), document.to_string());
    };
    node("a", 1, 600_000);
    // As many in a whole run.
    node("b", 33, 200_000);
    network(&folder, &[("a:1", "GOOD"), ("b:1", "BAD")]);
    let line = "probe calibrate a.json b.json network.json";
    insta::assert_snapshot!(folder.run(line).done(), @r"
    --low-mark 13 --high-mark 65

    of 1 bad nodes 0.0 % are called GOOD; of 1 good ones the sleeps alone miss 0.0 %, and 0.0 % are called BAD
    note  fewer than 10 nodes of a kind are not representative
    note  1 runs ended early, and their late sleeps are scaled to a whole one: --exact
    ");
    network(&folder, &[("a:1", "GOOD"), ("b:1", "GOOD")]);
    let error = folder.run(line).failed(2);
    assert!(error.contains("none of 2 nodes failed the network test"));
}

#[test]
fn select_refuses_files_that_are_no_probe_results() {
    let folder = Folder::new();
    let document = |schema: u32, kind: &str| {
        format!(r#"{{"schema":{schema},"kind":"{kind}","node":"a","verdict":"GOOD","cpus":[]}}"#)
    };
    for (content, message) in [
        (String::new(), "not the result of tailbound probe"),
        (
            r#"{"schema": 1}"#.to_owned(),
            "not the result of tailbound probe",
        ),
        (document(1, "rate"), "a result of kind \"rate\""),
        (document(2, "probe"), "schema 2 is not 1"),
        (document(1, "probe"), "it has no vCPU"),
    ] {
        folder.write("other.json", content);
        let error = folder.run("select --keep 1 other.json").failed(2);
        assert!(error.contains(message), "{error}");
    }
}

/// Runs `probe watch` for a fraction of a second.
fn watch(folder: &Folder, more: &str) -> CommandOutput {
    let flags = QUIET.trim_start_matches("probe ");
    folder.run(&format!("probe watch node.jsonl {flags} {EARLY} {more}"))
}

#[test]
fn a_watch_resumes_its_file_and_reports_the_nodes_history() {
    let folder = Folder::new();
    for runs in 1..=2 {
        let told = watch(&folder, "--runs 1").done();
        let line = format!("; runs: {runs}\n");
        assert!(
            told.starts_with("GOOD  CPU ") && told.contains(&line),
            "{told}"
        );
        // One that was ended while it wrote left half a line.
        let mut kept = std::fs::OpenOptions::new()
            .append(true)
            .open(folder.join("node.jsonl"))
            .unwrap();
        kept.write_all(b"{\"at\":17").unwrap();
    }
    let kept = folder.read("node.jsonl");
    assert_eq!(kept.lines().count(), 3);
    let length = kept.lines().map(str::len).max().unwrap();
    assert!(length < 200, "{length} bytes a line");
    let shown = folder
        .run("probe watch --show --output json node.jsonl")
        .json();
    assert_eq!(
        (&shown["kind"], &shown["good"]),
        (&"probe-watch".into(), &2.into())
    );
    assert_eq!(shown["now"]["runs"], 2);
    assert_eq!(shown["gaps"], 0);
}

#[test]
fn a_watch_reports_stretches_and_gaps_and_refuses_bad_files() {
    let folder = Folder::new();
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
    folder.write("node.jsonl", &lines);
    let show = || folder.run("probe watch --show node.jsonl");
    insta::assert_snapshot!("watch", show().ended(1).out);
    folder.write("node.jsonl", format!("{lines}GOOD\n"));
    let refused = show().err;
    assert!(
        refused.contains("node.jsonl:7: no line of tailbound probe watch"),
        "{refused}"
    );
    watch(&folder, "--every 1s").failed(64);
    folder.write("node.jsonl", lines);
    let held = std::fs::File::open(folder.join("node.jsonl")).unwrap();
    held.lock().unwrap();
    let refused = watch(&folder, "--runs 1").failed(2);
    assert!(refused.contains("another watch keeps it"), "{refused}");
}

#[test]
fn pairs_attribute_long_tails_to_nodes() {
    let folder = Folder::new();
    let nodes = ["a", "b", "c", "d"];
    let found = [" .x.", ". x.", ".. .", ".xx "];
    for (caller, row) in nodes.iter().zip(found) {
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
        folder.write(&format!("{caller}.json"), document.to_string());
    }
    let line = "probe pairs a.json b.json c.json d.json";
    insta::assert_snapshot!("pairs", folder.run(line).ended(1).out);
    let twice = folder.run(&format!("{line} a.json")).err;
    assert!(twice.contains("a.json: the second test by a"), "{twice}");
    folder.write(
        "a.json",
        r#"{"schema":1,"kind":"probe","node":"a","verdict":"GOOD","cpus":[]}"#,
    );
    let wrong = folder.run("probe pairs a.json").failed(2);
    assert!(wrong.contains("a.json: a probe's result"));
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
        let help = run(&format!("{command} --help")).done();
        insta::assert_snapshot!(format!("help {command}"), help);
    }
}
