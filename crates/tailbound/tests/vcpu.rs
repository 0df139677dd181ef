//! `tailbound vcpu` from the command line, on a process of its own. No privilege
//! is needed: only a time slice changes.

mod program;

use program::{CommandOutput, Folder, run_anywhere};
use std::process::{Child, Command};
use tailbound_sys::probe::required::{Part, skipped};
use tailbound_sys::{sched, thread};
use tailbound_units::Nanos;

struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn vcpu(line: &str) -> CommandOutput {
    run_anywhere(&format!("vcpu {line}"))
}

#[test]
fn apply_uses_the_files_state_path_and_restore_undoes_it() {
    let slice = Nanos::from_micros(300);
    if sched::probe_slice(slice).ok() != Some(slice) {
        skipped(
            Part::CustomSlice,
            "this kernel has no time slices of a thread's own",
        );
        return;
    }
    let sleeper = Sleeper(Command::new("sleep").arg("60").spawn().unwrap());
    let now = || thread::scheduling(sleeper.0.id()).unwrap().runtime;
    let before = now();
    let folder = Folder::new();
    let (file, state) = (folder.join("v.toml"), folder.join("v.json"));
    let rules = format!(
        "state = \"{}\"\nbeside_others = true\n[[guest]]\npid = {}\n\
         class = {{ kind = \"aperiodic\", slice = \"300us\", weight = 1 }}\n",
        state.display(),
        sleeper.0.id()
    );
    folder.write("v.toml", rules);

    let apply = format!("apply --config {}", file.display());
    let last_line = |output: CommandOutput| {
        let text = output.done();
        text.lines().last().unwrap_or_default().to_owned()
    };
    let previewed = vcpu(&format!("{apply} --dry-run"));
    assert_eq!(last_line(previewed), "nothing was done (--dry-run)");
    assert_eq!(now(), before);

    let applied = vcpu(&apply);
    assert_eq!(last_line(applied), "1 changed, 0 were as they should be");
    assert_eq!(now(), slice);
    assert!(state.exists(), "the file's state, not the default one");

    vcpu(&format!("restore --state {}", state.display())).done();
    assert_eq!(
        now(),
        before,
        "read from the kernel, not from what was said"
    );
}

#[test]
fn a_runtime_above_its_deadline_is_refused_with_the_maximum() {
    let class = "--class periodic --runtime 5ms --period 3ms";
    let own = std::process::id();
    let message = vcpu(&format!("apply --pid {own} {class}")).failed(64);
    assert!(message.contains("at most 3ms"), "{message}");
}

#[test]
fn threads_as_json_have_each_key_once_and_times_in_nanoseconds() {
    let own = std::process::id();
    let listed = vcpu(&format!("list --pid {own} --interval 1ms --output json")).ended(0);
    let text = &listed.out;
    for thread in text.split("\"guest\":").skip(1) {
        for line in thread.lines().filter(|line| line.contains("\": ")) {
            let (key, _) = line.trim().split_once(": ").unwrap();
            assert_eq!(
                thread.matches(&format!("{key}: ")).count(),
                1,
                "{key} of {text}"
            );
        }
    }
    let document = listed.json();
    assert_eq!(
        (&document["schema"], &document["interval_ns"]),
        (&2.into(), &1_000_000.into())
    );
    let mine = |thread: &&serde_json::Value| thread["tid"] == std::process::id();
    let threads = document["threads"].as_array().unwrap();
    let first = threads.iter().find(mine).unwrap();
    for key in [
        "policy",
        "mean_wait_ns",
        "waited_ns",
        "ran_ns",
        "runtime_ns",
    ] {
        assert!(first[key].is_u64(), "{key} in {first}");
    }
    assert!(first["scheduling"].is_string());
}

#[test]
fn top_shows_each_threads_tail_without_a_terminal() {
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let waker = std::thread::Builder::new().name("waker".to_owned());
    let waker = waker.spawn(move || {
        let pause = std::time::Duration::from_millis(1);
        while ended.recv_timeout(pause) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {}
    });
    let own = std::process::id();
    let top = |more: &str| {
        vcpu(&format!(
            "top --pid {own} --interval 300ms --late 100us {more}"
        ))
    };
    let told = top("--output json");
    let text = top("--once");
    let refused = top("");
    drop(end);
    waker.unwrap().join().unwrap();
    refused.failed(2);
    let text = text.done();
    assert!(text.contains("p99.9") && text.contains("waker"), "{text}");

    let document = told.ended(0).json();
    assert_eq!(
        (&document["schema"], &document["kind"]),
        (&1.into(), &"vcpu-top".into())
    );
    assert_eq!(document["late_ns"], 100_000);
    let threads = document["threads"].as_array().unwrap();
    let waker = threads.iter().find(|it| it["thread"] == "waker").unwrap();
    assert!(waker["all"]["count"].as_u64() > Some(1), "{waker}");
    if let Some(why) = document["approximate"].as_str() {
        assert!(
            waker["woken"].is_null() && text.contains("APPROXIMATE"),
            "{text}"
        );
        skipped(Part::BpfWaits, why);
        return;
    }
    let quantile = |name: &str| waker["woken"][name].as_u64().unwrap();
    assert!(quantile("p50_ns") <= quantile("p99_9_ns"));
    assert!(quantile("p99_9_ns") <= quantile("longest_ns"));
}

/// Threads that compute all the time, more than there are CPUs, wait for one again and again.
#[test]
fn a_trace_lists_long_waits_with_the_threads_that_ran() {
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let hogs = (0..=2 * cpus).map(|_| {
        let stop = std::sync::Arc::clone(&stop);
        let hog = move || while !stop.load(std::sync::atomic::Ordering::Relaxed) {};
        let named = std::thread::Builder::new().name("hog".to_owned());
        named.spawn(hog).unwrap()
    });
    let hogs: Vec<_> = hogs.collect();
    let folder = Folder::new();
    let own = std::process::id();
    let trace = |more: &str| {
        folder.run(&format!(
            "trace --pid {own} --duration 500ms --out trace.json {more}"
        ))
    };
    let told = trace("--least 200us");
    let absent = trace("--guest nobody");
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for hog in hogs {
        hog.join().unwrap();
    }
    trace("--least 1us").failed(64);
    if let Err(error) = tailbound_sys::waits::Tracer::try_load() {
        told.failed(2);
        skipped(Part::BpfWaits, error.to_string());
        return;
    }
    absent.failed(2);
    told.done();
    check_trace(&std::fs::read(folder.join("trace.json")).unwrap());
}

/// Holds what is in a trace of waits of 200 us and more, some of which are hogs', against its format.
fn check_trace(document: &[u8]) {
    let document: serde_json::Value = serde_json::from_slice(document).unwrap();
    let events = document["traceEvents"].as_array().unwrap();
    let number = |event: &serde_json::Value, key: &str| event[key].as_f64().unwrap();
    let span = |event| {
        let begin = number(event, "ts");
        (begin, begin + number(event, "dur"))
    };
    let slices: Vec<_> = events.iter().filter(|it| it["ph"] == "X").collect();
    let is_wait = |event: &&serde_json::Value| {
        event["name"]
            .as_str()
            .is_some_and(|name| name.starts_with("waits after"))
    };
    let mut waits = 0;
    let mut current = (0.0, 0.0);
    for slice in &slices {
        assert!(slice["pid"].is_u64() && slice["tid"].is_u64(), "{slice}");
        let (begin, end) = span(slice);
        if is_wait(slice) {
            waits += 1;
            current = (begin, end);
            assert!(number(slice, "dur") >= 200.0, "{slice}");
        } else {
            // Who ran meanwhile is within the wait before it, to the last digit of a nanosecond.
            assert!(
                begin >= current.0 - 1e-3 && end <= current.1 + 1e-3,
                "{slice} {current:?}"
            );
        }
    }
    assert!(
        waits > 1 && slices.len() > waits,
        "{waits} of {}",
        slices.len()
    );
    let threads = events.iter().filter(|it| it["name"] == "thread_name");
    let mut names = threads.map(|it| it["args"]["name"].as_str().unwrap());
    assert!(names.any(|name| name.contains("hog")), "{events:?}");
}

#[test]
fn intervals_outside_the_measurable_range_are_refused() {
    for interval in ["0s", "999us", "3601s"] {
        let message = vcpu(&format!("list --interval {interval}")).failed(64);
        assert!(
            message.contains("waits are measured for 1ms to "),
            "{message}"
        );
    }
}

#[test]
fn a_missing_process_is_reported_by_its_id() {
    // Above what the kernel can give out.
    for line in [
        "list --pid 4194305",
        "apply --level normal --dry-run --pid 4194305",
    ] {
        let message = vcpu(line).err;
        assert!(
            message.contains("no process 4194305 is running"),
            "{message}"
        );
    }
}
