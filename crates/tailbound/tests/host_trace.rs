//! `tailbound trace --of packets`, with a daemon of the program's own and frames on real interfaces.

mod host_daemon;
#[path = "../../host/tests/support/mod.rs"]
mod support;

use host_daemon::{cable, start, tailbound};
use serde_json::Value;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::process::Process;
use support::{Nic, datagram_of, is_inside, sandboxed};
use tailbound_sys::probe::required::{Part, skipped};
use tailbound_units::Nanos;

const MAC: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 9]];
/// 125 B/ms: a frame of 1,514 B is let go every 12 ms.
const KEYS: &str =
    "guarantee = { bandwidth = \"1Mbit/s\", burst = \"3KB\", burst_rate = \"1Gbit/s\" }\n";

const DAEMON: [&str; 4] = ["--config", "host.toml", "--runtime-dir", "run"];

/// A daemon with this guest and another one.
fn host(directory: &Path, name: &str) -> Process {
    let port =
        |interface| format!("port = {{ kind = \"af-packet\", interface = \"{interface}\" }}\n");
    let text = format!(
        "[uplink]\n{}pacer = {{ link = \"1Gbit/s\", work_conserving = false }}\n\
         [[guest]]\nname = \"{name}\"\nmac = \"02:00:00:00:00:01\"\nip = [\"10.77.0.1\"]\n{KEYS}{}\
         [[guest]]\nname = \"other\"\nmac = \"02:00:00:00:00:02\"\nip = [\"10.77.0.2\"]\n{}",
        port("up1"),
        port("g1"),
        port("g2"),
    );
    std::fs::write(directory.join("host.toml"), text).unwrap();
    start(directory, &DAEMON)
}

fn trace(directory: &Path, more: &[&str]) -> Output {
    let asked = ["trace", "--duration", "1s", "--out", "trace.json"];
    let mut trace = tailbound(directory, &[&asked[..], &DAEMON, more].concat());
    trace.output().unwrap()
}

/// Returns the slices of frames in a trace: name, track, begin and end, in microseconds.
fn slices(document: &Value) -> Vec<(&str, u64, f64, f64)> {
    let events = document["traceEvents"].as_array().unwrap();
    let slices = events.iter().filter(|event| event["cat"] == "packets");
    let slice = |event| -> Option<_> {
        let event: &Value = event;
        let from = event["ts"].as_f64()?;
        let name = event["name"].as_str()?;
        Some((
            name,
            event["tid"].as_u64()?,
            from,
            from + event["dur"].as_f64()?,
        ))
    };
    slices.map(|event| slice(event).unwrap()).collect()
}

/// Holds what is in a trace of frames of 1,514 B, of which few may leave, against what a trace is.
fn check(document: &Value, between: [Nanos; 2]) {
    let slices = slices(document);
    let frames = slices.iter().filter(|it| it.0 == "1514 B, guaranteed");
    let frames: Vec<_> = frames.collect();
    assert!(frames.len() > 3, "{document}");
    assert_eq!(document["otherData"]["frames_missed"], 0);
    let [begin, end] = between.map(|at| at.0 as f64 / 1e3);
    let mut waited = 0;
    for (_, track, from, until) in &frames {
        // On the clock of the threads' waits.
        assert!(
            begin <= *from && *until <= end,
            "{begin} {from} {until} {end}"
        );
        // Sums of microseconds are rounded: a part of a nanosecond may be missing.
        let parts = slices.iter().filter(|(name, on, at, ends)| {
            name.starts_with("waits") && on == track && from <= at && *ends <= until + 0.001
        });
        let parts: f64 = parts.map(|(.., at, ends)| ends - at).sum();
        assert!((parts - (until - from)).abs() < 0.01, "{document}");
        waited += usize::from(until - from > 10_000.0);
    }
    assert!(
        waited > 3,
        "frames wait for their guest's guarantee: {document}"
    );
    let mut tracks: Vec<_> = frames.iter().map(|it| (it.1, it.2, it.3)).collect();
    tracks.sort_by(|one, other| one.partial_cmp(other).unwrap());
    for two in tracks.windows(2) {
        assert!(two[0].0 != two[1].0 || two[0].2 <= two[1].1, "{two:?}");
    }
    let events = document["traceEvents"].as_array().unwrap();
    let about = events.iter().find(|it| it["name"] == "1514 B, guaranteed");
    let about = &about.unwrap()["args"];
    assert_eq!(about["peer"], "10.77.0.9");
    assert!(about["begins_ns"].as_u64() >= about["released_ns"].as_u64());
    assert!(about["taken_ns"].as_u64() >= about["released_ns"].as_u64());
    let names = events.iter().filter(|it| it["ph"] == "M");
    let names: Vec<_> = names.filter_map(|it| it["args"]["name"].as_str()).collect();
    assert!(names.contains(&"to the uplink (1)"), "{names:?}");
}

fn document(file: &[u8]) -> Value {
    serde_json::from_slice(file).unwrap()
}

/// The uplink's and two guests' interfaces.
fn cables() {
    for (one, other) in [("up1", "wire"), ("g1", "v1"), ("g2", "v2")] {
        cable(one, other);
    }
}

/// Does this in a directory with a daemon, while its guest, which this process is by its name, sends
/// more than it may, and another one sends, too.
fn amid_frames(test: impl FnOnce(&Path, &str)) {
    cables();
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    // What a process is called that is a guest by its number.
    let own = std::process::id();
    let name = std::fs::read_to_string("/proc/self/comm").unwrap();
    let name = format!("{}-{own}", name.trim_end());
    let _host = host(directory, &name);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut nics = [Nic::open("v1", None), Nic::open("v2", None)];
            let mut frame = datagram_of(MAC[1], MAC[0], [10, 77, 0, 1], 7);
            frame.resize(1_514, 0);
            let other = datagram_of(MAC[1], [2, 0, 0, 0, 0, 2], [10, 77, 0, 2], 7);
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..4 {
                    nics[0].send(&frame);
                }
                nics[1].send(&other);
                std::thread::sleep(Duration::from_millis(4));
            }
        });
        let ends = Ends(&stop);
        test(directory, &name);
        drop(ends);
    });
}

/// Stops the frames at the end of the test, also after a failure.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A trace of the guest's frames and of this process's threads; `None` where threads cannot be.
fn both(directory: &Path, name: &str) -> Option<Value> {
    let own = std::process::id().to_string();
    let traced = trace(directory, &["--of", "both", "--guest", name, "--pid", &own]);
    if let Err(error) = tailbound_sys::waits::Tracer::try_load() {
        assert_eq!(traced.status.code(), Some(2), "{traced:?}");
        skipped(Part::BpfWaits, error.to_string());
        return None;
    }
    assert!(traced.status.success(), "{traced:?}");
    let said = String::from_utf8(traced.stdout).unwrap();
    assert!(
        said.contains(" threads") && said.contains(" frames of "),
        "{said}"
    );
    Some(document(
        &std::fs::read(directory.join("trace.json")).unwrap(),
    ))
}

#[test]
fn a_trace_has_each_frame_of_a_guest_beside_its_threads() {
    let of_a_guest = |directory: &Path, name: &str| {
        let before = tailbound_sys::timer::now();
        let packets = trace(directory, &["--of", "packets", "--guest", name]);
        let after = tailbound_sys::timer::now();
        let absent = trace(directory, &["--of", "packets", "--guest", "nobody"]);
        let kept = std::fs::read(directory.join("trace.json"));
        assert!(packets.status.success(), "{packets:?}");
        check(&document(&kept.unwrap()), [before, after]);
        let said = String::from_utf8(packets.stdout).unwrap();
        assert!(
            said.contains(&format!("waits of frames of {name}, the longest")),
            "{said}"
        );
        // Who asks for what is not there leaves the file as it was.
        assert_eq!(absent.status.code(), Some(2), "{absent:?}");
        let said = String::from_utf8_lossy(&absent.stderr);
        assert!(said.contains("nobody") && said.contains(name), "{said}");
        let Some(both) = both(directory, name) else {
            return;
        };
        check(&both, [after, tailbound_sys::timer::now()]);
        let tracks = both["traceEvents"].as_array().unwrap();
        let own = std::process::id();
        let threads = tracks
            .iter()
            .filter(|it| it["name"] == "thread_name" && it["pid"] == own);
        assert!(threads.count() > 1, "its threads are there, too");
    };
    sandboxed(
        "a_trace_has_each_frame_of_a_guest_beside_its_threads",
        || amid_frames(of_a_guest),
    );
}

/// What Perfetto's trace processor answers to a question about a trace.
fn perfetto(trace: &Path, sql: &str) -> Vec<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/perfetto");
    let output = std::process::Command::new(script)
        .arg(trace)
        .arg(sql)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    said.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Perfetto leaves out a slice that overlaps another on its track without being within it.
#[test]
#[ignore = "Perfetto's own program comes from PyPI and runs in Chromium, half a minute"]
fn perfetto_finds_each_frame_and_wait() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("perfetto.json");
    if !is_inside() {
        let _ = std::fs::remove_file(&file);
    }
    let keep = |directory: &Path, name: &str| {
        if let Some(both) = both(directory, name) {
            std::fs::write(&file, both.to_string()).unwrap();
        }
    };
    sandboxed("perfetto_finds_each_frame_and_wait", || amid_frames(keep));
    // There is no network in the sandbox, from which Perfetto could come.
    if is_inside() || !file.exists() {
        return;
    }
    let document = document(&std::fs::read(&file).unwrap());
    let nanos = |event: &Value, key: &str| (event[key].as_f64().unwrap() * 1e3).round() as i64;
    let events = document["traceEvents"].as_array().unwrap();
    let ours = events.iter().filter(|event| event["ph"] == "X");
    let mut ours: Vec<_> = ours
        .map(|event| {
            let name = event["name"].as_str().unwrap().to_owned();
            (nanos(event, "ts"), nanos(event, "dur"), name)
        })
        .collect();
    ours.sort();
    let found = perfetto(&file, "select ts, dur, name from slice");
    let mut found: Vec<_> = found
        .iter()
        .map(|row| {
            let number = |key: &str| row[key].as_i64().unwrap();
            let name = row["name"].as_str().unwrap().to_owned();
            (number("ts"), number("dur"), name)
        })
        .collect();
    found.sort();
    assert!(ours.len() > 10);
    assert_eq!(ours, found);
    let faults = "select name, value from stats where severity = 'error' and value > 0";
    assert_eq!(perfetto(&file, faults), Vec::<Value>::new());
}

#[test]
fn a_packet_trace_requires_one_guest_and_a_daemon() {
    let directory = tempfile::tempdir().unwrap();
    for (arguments, code, said) in [
        (&["--of", "packets"][..], 64, "name it with --guest, once"),
        (
            &["--of", "both", "--guest", "a", "--guest", "b"],
            64,
            "name it with --guest, once",
        ),
        (
            &["--of", "packets", "--guest", "a"],
            2,
            "no daemon of host.toml is found",
        ),
    ] {
        let done = trace(directory.path(), arguments);
        assert_eq!(done.status.code(), Some(code), "{done:?}");
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert!(stderr.contains(said), "{stderr}");
        assert!(!directory.path().join("trace.json").exists());
    }
}
