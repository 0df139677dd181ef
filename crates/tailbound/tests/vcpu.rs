//! `tailbound vcpu` from the command line, on a process of its own. No privilege
//! is needed: only a time slice changes.

use std::process::{Child, Command, Output};
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

fn vcpu(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tailbound"))
        .arg("vcpu")
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn what_a_file_gives_is_written_where_it_says_and_taken_back_from_there() {
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
    let directory = tempfile::tempdir().unwrap();
    let (file, state) = (
        directory.path().join("v.toml"),
        directory.path().join("v.json"),
    );
    let rules = format!(
        "state = \"{}\"\nbeside_others = true\n[[guest]]\npid = {}\n\
         class = {{ kind = \"aperiodic\", slice = \"300us\", weight = 1 }}\n",
        state.display(),
        sleeper.0.id()
    );
    std::fs::write(&file, rules).unwrap();

    let apply = ["apply", "--config", file.to_str().unwrap(), "--dry-run"];
    let last_line = |output: &Output| {
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines().last().unwrap_or_default().to_owned()
    };
    let previewed = vcpu(&apply);
    assert_eq!(last_line(&previewed), "nothing was done (--dry-run)");
    assert_eq!(now(), before);

    let applied = vcpu(&apply[..3]);
    assert!(applied.status.success(), "{applied:?}");
    assert_eq!(last_line(&applied), "1 changed, 0 were as they should be");
    assert_eq!(now(), slice);
    assert!(state.exists(), "the file's state, not the default one");

    let restored = vcpu(&["restore", "--state", state.to_str().unwrap()]);
    assert!(restored.status.success(), "{restored:?}");
    assert_eq!(
        now(),
        before,
        "read from the kernel, not from what was said"
    );
}

#[test]
fn a_runtime_beyond_its_deadline_is_refused_with_what_would_do() {
    let own = std::process::id().to_string();
    let class = ["--class", "periodic", "--runtime", "5ms", "--period", "3ms"];
    let refused = vcpu(&[&["apply", "--pid", own.as_str()][..], &class].concat());
    assert_eq!(refused.status.code(), Some(64));
    let message = String::from_utf8(refused.stderr).unwrap();
    assert!(message.contains("at most 3ms"), "{message}");
}

#[test]
fn threads_as_json_have_each_key_once_and_times_in_nanoseconds() {
    let own = std::process::id().to_string();
    let list = [
        "list",
        "--pid",
        &own,
        "--interval",
        "1ms",
        "--output",
        "json",
    ];
    let listed = vcpu(&list);
    assert!(listed.status.success(), "{listed:?}");
    let text = String::from_utf8(listed.stdout).unwrap();
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
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
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
    let own = std::process::id().to_string();
    let top = |more: &[&str]| {
        let arguments = [
            "top",
            "--pid",
            &own,
            "--interval",
            "300ms",
            "--late",
            "100us",
        ];
        vcpu(&[&arguments, more].concat())
    };
    let told = top(&["--output", "json"]);
    let text = top(&["--once"]);
    let refused = top(&[]);
    drop(end);
    waker.unwrap().join().unwrap();
    assert!(told.status.success() && text.status.success(), "{told:?}");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("p99.9") && text.contains("waker"), "{text}");

    let document: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
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
fn a_trace_has_each_long_wait_with_who_ran_meanwhile() {
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let hogs = (0..=2 * cpus).map(|_| {
        let stop = std::sync::Arc::clone(&stop);
        let hog = move || while !stop.load(std::sync::atomic::Ordering::Relaxed) {};
        let named = std::thread::Builder::new().name("hog".to_owned());
        named.spawn(hog).unwrap()
    });
    let hogs: Vec<_> = hogs.collect();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace.json");
    let own = std::process::id().to_string();
    let trace = |more: &[&str]| {
        let out = file.to_str().unwrap();
        let arguments = ["trace", "--pid", &own, "--duration", "500ms", "--out", out];
        let mut command = Command::new(env!("CARGO_BIN_EXE_tailbound"));
        command.args(arguments).args(more).output().unwrap()
    };
    let told = trace(&["--least", "200us"]);
    let nobody = trace(&["--guest", "nobody"]);
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for hog in hogs {
        hog.join().unwrap();
    }
    let short = trace(&["--least", "1us"]);
    assert_eq!(short.status.code(), Some(64), "{short:?}");
    if let Err(error) = tailbound_sys::waits::Tracer::try_load() {
        assert_eq!(told.status.code(), Some(2), "{told:?}");
        skipped(Part::BpfWaits, error.to_string());
        return;
    }
    assert_eq!(nobody.status.code(), Some(2), "{nobody:?}");
    assert!(told.status.success(), "{told:?}");
    check_trace(&std::fs::read(&file).unwrap());
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
fn an_interval_in_which_nothing_can_be_measured_is_a_wrong_argument() {
    for interval in ["0s", "999us", "3601s"] {
        let refused = vcpu(&["list", "--interval", interval]);
        assert_eq!(refused.status.code(), Some(64), "{interval}");
        let message = String::from_utf8(refused.stderr).unwrap();
        assert!(
            message.contains("waits are measured for 1ms to "),
            "{message}"
        );
    }
}

#[test]
fn a_process_that_does_not_run_is_said_to() {
    // Above what the kernel can give out.
    let apply = [
        "apply",
        "--level",
        "normal",
        "--dry-run",
        "--pid",
        "4194305",
    ];
    for arguments in [&["list", "--pid", "4194305"][..], &apply] {
        let refused = vcpu(arguments);
        let message = String::from_utf8(refused.stderr).unwrap();
        assert!(
            message.contains("no process 4194305 is running"),
            "{message}"
        );
    }
}
