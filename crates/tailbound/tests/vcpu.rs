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
        "state = \"{}\"\n[[guest]]\npid = {}\n\
         class = {{ kind = \"aperiodic\", slice = \"300us\", weight = 1 }}\n",
        state.display(),
        sleeper.0.id()
    );
    std::fs::write(&file, rules).unwrap();

    let applied = vcpu(&["apply", "--config", file.to_str().unwrap()]);
    assert!(applied.status.success(), "{applied:?}");
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
