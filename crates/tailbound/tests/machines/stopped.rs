//! A VM that is stopped, and the frames that arrive for it meanwhile.

use super::card::{self, Build};
use super::machine::{Machine, PROGRAM, Process, until};
use super::support::MEASURED;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const FRAMES: u64 = 5_000;
/// Number of frames that leave a queue in one burst.
const BURST: u64 = 32;

/// A guest's counters in its daemon, in frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counts {
    /// Frames received from the guest.
    received: u64,
    /// Frames sent to the guest.
    sent: u64,
    /// Frames for the guest that a queue dropped.
    dropped: u64,
    /// Frames that are queued for the guest.
    waiting: u64,
}

/// Returns a guest's state as the daemon of a directory shows it.
fn shown(directory: &Path, guest: &str) -> Value {
    let show = Command::new(PROGRAM)
        .args(["host", "show", "--output", "json", "--config"])
        .arg(directory.join("host.toml"))
        .arg("--runtime-dir")
        .arg(directory)
        .output();
    let mut shown: Value = serde_json::from_slice(&show.unwrap().stdout).unwrap();
    let guests = shown["guests"].as_array_mut().unwrap();
    let found = guests.iter_mut().find(|it| it["name"] == guest);
    found.unwrap().take()
}

fn counts(directory: &Path, guest: &str) -> Counts {
    let guest = shown(directory, guest);
    let packets = |what: &str| guest[what]["packets"].as_u64().unwrap();
    // What the guest itself may not send is counted there as well.
    let by_queue =
        ["queue_full", "overload", "codel"].map(|reason| guest["drops"][reason].as_u64());
    Counts {
        received: packets("received"),
        sent: packets("sent"),
        dropped: by_queue.into_iter().flatten().sum(),
        waiting: packets("backlog"),
    }
}

/// Returns the number of a guest's frames that waited at least `at_least`, by the buckets of the
/// histogram.
fn waited(directory: &Path, guest: &str, at_least: Duration) -> u64 {
    let at_least = at_least.as_nanos();
    let guest = shown(directory, guest);
    let waits = guest["waits"].as_array().unwrap().iter();
    let of_guest = waits.filter(|waits| waits["direction"] == "sent");
    let buckets = of_guest.flat_map(|waits| waits["buckets"].as_array().unwrap());
    let long = buckets.filter(|bucket| {
        let up_to = bucket["up_to_ns"].as_u64();
        up_to.is_none_or(|up_to| u128::from(up_to) >= at_least)
    });
    long.filter_map(|bucket| bucket["count"].as_u64()).sum()
}

/// Returns the number of frames that a VM's kernel has received.
fn heard(machine: &mut Machine) -> u64 {
    let text = machine.run("ip -j -s link show eth0");
    let link: Value = serde_json::from_str(&text).unwrap();
    link[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
}

fn signal(process: &Process, signal: Signal) {
    let pid = Pid::from_child(&process.0);
    kill_process(pid, signal).unwrap();
}

/// Stops `m2`, which receives frames of the test's driver only. Resumes it when all frames are
/// accounted for, and at the earliest after `time`.
pub(crate) fn every_frame_is_accounted_for(directory: &Path, m2: &mut Machine, time: Duration) {
    let mut driver = card::Machine::start(&directory.join("driver.card"), Build::default());
    let there = || counts(directory, "m2");
    let before = until("nothing under way", || {
        let nobody_else = shown(directory, "m1")["link"] == "away";
        let counts = there();
        (nobody_else && counts.waiting == 0).then_some(counts)
    });
    let heard_before = heard(m2);
    signal(&m2.process, Signal::STOP);
    let mut frame = vec![0; 200];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 3, 0x88, 0xb5]);
    for _ in 0..FRAMES {
        card::until("room", || {
            (driver.rings[1].next.wrapping_sub(driver.used(1)) < 16).then_some(())
        });
        driver.send(0, [0; 10], &frame);
    }
    let at = until("all of them", || {
        let at = there();
        let known = at.sent - before.sent + at.dropped - before.dropped + at.waiting;
        let all_taken = counts(directory, "driver").received == FRAMES;
        (all_taken && known == FRAMES).then_some(at)
    });
    assert!(at.waiting > 500, "{at:?}: they wait where they are seen");
    let stopped = Instant::now();
    std::thread::sleep(time.saturating_sub(stopped.elapsed()));
    signal(&m2.process, Signal::CONT);
    let after = until("what waited", || {
        let after = there();
        let known = after.sent - before.sent + after.dropped - before.dropped;
        (after.waiting == 0 && known == FRAMES).then_some(after)
    });
    // Its own kernel has what the daemon says that it was sent.
    let sent = after.sent - before.sent;
    until("what its kernel heard", || {
        (heard(m2) - heard_before == sent).then_some(())
    });
    // Those that were still to come when it ran again have waited that long. A burst had left
    // its queue when the ring became full, and counts as long as it was in that.
    let late = after.sent - at.sent;
    let long = waited(directory, "driver", time);
    assert!(
        late > BURST && long + BURST >= late,
        "{long} of {late} frames waited {time:?}"
    );
    eprintln!(
        "{MEASURED}a machine that did not run for {time:?} and {FRAMES} frames: it got {sent}, of \
         which {late} waited for it; dropped {}",
        after.dropped - before.dropped,
    );
}
