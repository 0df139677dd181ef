//! `tailbound probe workflows`: to nodes that answer, to such that do not as they should, and
//! between guests that are namespaces of their own.

mod probe_server;
mod program;

use probe_server::Server;
use program::{CommandOutput, Folder, PROGRAM, run_anywhere};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use tailbound_probe::wire::{HEADER, Header, Kind, REQUEST};
use tailbound_sys::probe::required::{Part, skipped};

/// Short runs with few workflows.
const SHORT: &str = "--rates 200 --duration 100ms";

fn workflows(line: &str) -> CommandOutput {
    run_anywhere(&format!("probe workflows {line}"))
}

/// A connection of a stand-in: its socket, and the received call.
type Called<'a> = (&'a mut TcpStream, Header);

/// Answers a call; returns false to end the connection.
type Say = fn(Called<'_>) -> bool;

/// The answer to a call.
fn answer(call: Header) -> Vec<u8> {
    let Kind::Request(size) = call.kind else {
        panic!("{call:?} is no call");
    };
    let kind = Kind::Response(size);
    let mut bytes = Header { kind, ..call }.encode().to_vec();
    bytes.resize(HEADER + size.bytes(), 0x5a);
    bytes
}

fn next_call(stream: &mut TcpStream) -> Option<Header> {
    let mut call = [0; HEADER + REQUEST];
    stream.read_exact(&mut call).ok()?;
    Some(Header::decode(call.first_chunk().unwrap()).unwrap())
}

/// Starts a node that answers each call by `say` until `say` returns false. Returns its address.
fn stand_in(say: impl Fn(Called<'_>) -> bool + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            while let Some(call) = next_call(&mut stream) {
                if !say((&mut stream, call)) {
                    break;
                }
            }
        }
    });
    address
}

/// Two nodes, each of which answers what the other one is asked.
fn crossed() -> [String; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let addresses = [0, 1].map(|place: usize| listeners[place].local_addr().unwrap().to_string());
    std::thread::spawn(move || {
        // A closed connection with a call in it would be reset, and the answer lost with it.
        let mut open = Vec::new();
        loop {
            let mut streams = [0, 1].map(|place: usize| listeners[place].accept().unwrap().0);
            let calls = [0, 1].map(|place: usize| next_call(&mut streams[place]));
            if let [Some(first), Some(second)] = calls {
                // Whoever is gone has had enough.
                let _ = streams[0].write_all(&answer(second));
                let _ = streams[1].write_all(&answer(first));
                open.push(streams);
            }
        }
    });
    addresses
}

/// The reasons for which nodes were given up, of all runs.
fn reasons(document: &Value) -> Vec<String> {
    let runs = document["runs"].as_array().unwrap().iter();
    let nodes = runs.flat_map(|run| run["given_up"].as_array().unwrap());
    nodes
        .map(|node| node["reason"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn nodes_that_answer_wrongly_are_named_and_their_workflows_counted_as_lost() {
    let good = Server::start();
    let sayings: [(Say, &[&str]); 4] = [
        (
            |(stream, _)| stream.write_all(&[b'x'; 9000]).is_ok(),
            &["TBRP"],
        ),
        // Doubled: to the next call, or to none.
        (
            |(stream, call)| {
                stream
                    .write_all(&[answer(call), answer(call)].concat())
                    .is_ok()
            },
            &["to another call", "more than it was asked"],
        ),
        // Short.
        (
            |(stream, call)| {
                let _ = stream.write_all(&answer(call)[..700]);
                false
            },
            &["closed the connection"],
        ),
        // Long: 4 KB where 2 were asked for, and the other way round.
        (
            |(stream, call)| {
                let mut bytes = answer(call);
                bytes[11] ^= 0x08;
                stream.write_all(&bytes).is_ok()
            },
            &["length or reserved bytes"],
        ),
    ];
    for (say, expected) in sayings {
        let bad = stand_in(say);
        let line = format!("{} {bad} --output json {SHORT}", good.address);
        let document = workflows(&line).ended(1).json();
        let reasons = reasons(&document);
        assert!(!reasons.is_empty());
        for reason in reasons {
            assert!(
                expected.iter().any(|part| reason.contains(part)),
                "{reason}"
            );
        }
        let fan_out = &document["runs"][1];
        assert_eq!(fan_out["workflow"], "fan-out");
        assert!(fan_out["lost"].as_u64().unwrap() > 0, "{fan_out}");
        assert_eq!(fan_out["timed_out"], 0);
        assert_eq!(fan_out["given_up"][0]["node"], bad.as_str());
        assert_eq!(fan_out["time_ns"]["max"], Value::Null);
    }
}

#[test]
fn a_line_for_each_workflow_of_the_kind_comes_before_the_document() {
    let node = Server::start();
    let line = format!("{} --only fan-out --output jsonl {SHORT}", node.address);
    let text = workflows(&line).done();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (document, workflows) = lines.split_last().unwrap();
    let [run] = &document["runs"].as_array().unwrap()[..] else {
        panic!("{document}");
    };
    assert_eq!(run["workflows"], workflows.len());
    let times = workflows.iter().map(|line| line["time_ns"].as_u64());
    assert!(times.clone().all(|time| time.is_some()), "{text}");
    // The histogram has three digits.
    let max = run["time_ns"]["max"].as_u64().unwrap();
    assert!(max.abs_diff(times.flatten().max().unwrap()) <= max / 500);
    for line in workflows {
        let said = ["kind", "workflow", "among"].map(|key| line[key].as_str().unwrap());
        assert_eq!(said, ["workflow", "fan-out", "all"]);
    }
    let due: Vec<_> = workflows
        .iter()
        .map(|line| line["due_ns"].as_u64())
        .collect();
    assert!(due.iter().max() > due.iter().min(), "{text}");
}

#[test]
fn answers_from_another_node_end_the_node_as_faulty() {
    let [first, second] = crossed();
    // Of so many sequences some call either.
    let often = "--rates 4000 --duration 50ms --output json";
    let document = workflows(&format!("{first} {second} {often}"))
        .ended(1)
        .json();
    let fan_out = &document["runs"][1];
    assert_eq!(fan_out["lost"], fan_out["workflows"]);
    let reasons = reasons(&document);
    let given_up = reasons
        .iter()
        .filter(|reason| reason.contains("to another call"));
    assert!(given_up.count() >= 2, "{reasons:?}");
}

#[test]
fn a_selection_has_to_be_one_of_these_nodes() {
    let folder = Folder::new();
    let wrong = |selection: &str| {
        folder.write("selection.json", selection);
        folder
            .run("probe workflows a:1 --selected selection.json")
            .failed(2)
    };
    assert!(wrong("{}").contains("not what tailbound select --output json prints"));
    assert!(wrong(r#"{"schema": 2, "nodes": []}"#).contains("schema 2 is not 1"));
    assert!(wrong(r#"{"schema": 1, "nodes": []}"#).contains("keeps no node"));
    let other = r#"{"schema": 1, "nodes": [{"node": "b", "file": "c.json", "use": "keep"}]}"#;
    assert!(wrong(other).contains("b is kept and is none of the called nodes"));
}

/// Guests in namespaces of their own behind a bridge, and the last of them calls the others.
const GUESTS: &str = r#"
set -e
mount -t tmpfs tmpfs /run
ip link add br0 type bridge
ip link set br0 up
for guest in 1 2 3 4 5; do
    ip netns add g$guest
    ip link add v$guest type veth peer name eth0 netns g$guest
    ip link set v$guest master br0 up
    ip -n g$guest address add 10.9.0.$guest/24 dev eth0
    ip -n g$guest link set eth0 up
done
for guest in 1 2 3 4; do
    ip netns exec g$guest "$PROGRAM" probe serve --listen 10.9.0.$guest:7413 >/run/said$guest &
    servers="$servers $!"
    until grep -q serving /run/said$guest; do sleep 0.01; done
done
ip netns exec g5 "$PROGRAM" probe workflows 10.9.0.1:7413 10.9.0.2:7413 10.9.0.3:7413 \
    10.9.0.4:7413 --rates 400 --duration 400ms --selected "$SELECTED" --output json || code=$?
kill $servers
exit ${code:-0}
"#;

fn between_guests(selected: &Path) -> Option<CommandOutput> {
    let mut unshare = vec!["--net", "--mount", "--kill-child"];
    if !rustix::process::geteuid().is_root() {
        unshare.extend(["--user", "--map-root-user"]);
    }
    let run = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(&unshare).args(arguments);
        command.env("PROGRAM", PROGRAM).env("SELECTED", selected);
        command.output().ok()
    };
    if !run(&["ip", "link"]).is_some_and(|output| output.status.success()) {
        skipped(Part::NetworkNamespaces, "unshare or ip fails");
        return None;
    }
    run(&["sh", "-c", GUESTS]).map(CommandOutput::new)
}

#[test]
fn workflows_run_between_guests_with_and_without_a_selection() {
    let directory = tempfile::tempdir().unwrap();
    let selected = directory.path().join("selection.json");
    let node = |node: &str, file: &str, what: &str| serde_json::json!({"node": node, "file": file, "use": what});
    let nodes = [
        node("10.9.0.1", "a.json", "keep"),
        node("b", "results/10.9.0.2.json", "keep"),
        node("c", "10.9.0.3.json", "spare"),
        node("d", "10.9.0.4", "keep"),
    ];
    let selection = serde_json::json!({"schema": 1, "nodes": nodes});
    std::fs::write(&selected, selection.to_string()).unwrap();
    let Some(output) = between_guests(&selected) else {
        return;
    };
    let document = output.ended(0).json();
    assert_eq!(document["kind"], "probe-workflows");
    let runs = document["runs"].as_array().unwrap();
    let kinds: Vec<_> = runs
        .iter()
        .map(|run| {
            (
                run["workflow"].as_str().unwrap(),
                run["among"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        kinds,
        [
            ("sequential", "all"),
            ("sequential", "selected"),
            ("fan-out", "all"),
            ("fan-out", "selected")
        ]
    );
    for (run, expected) in runs.iter().zip([16, 16, 160, 160]) {
        let begun = run["workflows"].as_i64().unwrap();
        // Poisson: five standard deviations.
        assert!((begun - expected).pow(2) < 25 * expected, "{begun}");
        assert_eq!((&run["timed_out"], &run["lost"]), (&0.into(), &0.into()));
        assert!(run["time_ns"]["max"].as_u64().unwrap() > 0);
        // So few do not carry it.
        assert_eq!(run["time_ns"]["p99_9"], Value::Null);
        assert_eq!(run["nodes"].as_array().unwrap().len(), 3);
    }
    let called = runs[3]["nodes"].as_array().unwrap();
    assert!(!called.contains(&"10.9.0.3:7413".into()), "{called:?}");
    assert_eq!(document["gains"][1]["workflow"], "fan-out");
    assert_eq!(document["gains"][1]["p99_9_percent"], Value::Null);
}
