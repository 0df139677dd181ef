//! `tailbound host --takeover` with real processes on real interfaces.

#[path = "host_takeover/keeper.rs"]
mod keeper;
#[path = "host_takeover/process.rs"]
mod process;
#[path = "../../host/tests/support/mod.rs"]
mod support;
#[path = "host_takeover/traffic.rs"]
mod traffic;

use keeper::{Keeper, text};
use process::{BURST, Daemon, Host, MBIT};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};
use support::{Kind, sandboxed, until};
use traffic::Traffic;

/// Bytes that may arrive late because a thread of the test, or the daemon, does not run: 100 ms at
/// the guaranteed rate.
const CAUGHT_UP: u64 = MBIT * 1_000_000 / 8 / 10;
/// A full frame on the wire.
const WIRE: u64 = 1538;

#[test]
fn a_second_daemon_is_refused_in_one_sentence_that_names_the_first() {
    let name = "a_second_daemon_is_refused_in_one_sentence_that_names_the_first";
    sandboxed(name, || {
        let host = Host::new();
        let mut first = host.start(&[]);
        let mut traffic = host.traffic();
        traffic.more(10);
        let error = text(&host.refused(&[]).stderr);
        let sentence = format!(
            "tailbound: a daemon already runs for {} as process {}; stop it, or take over from it \
             with --takeover\n",
            fs::canonicalize(host.path("host.toml"))
                .expect("it is there")
                .display(),
            first.0.id()
        );
        assert_eq!(error, sentence);
        // A configuration with mistakes stops nobody.
        let right = fs::read_to_string(host.path("host.toml")).expect("readable");
        fs::write(
            host.path("host.toml"),
            right.replace("100Mbit/s", "100mbps"),
        )
        .expect("written");
        let error = text(&host.refused(&["--takeover"]).stderr);
        assert!(error.contains("host.toml:"), "{error}");
        assert!(!first.has_ended());
        traffic.more(10);
        // When it ends, its lock goes with it.
        first.signal(Signal::TERM);
        until("its end", || first.has_ended());
        let left = fs::read_dir(host.path("run")).expect("it is there").count();
        assert_eq!(left, 0);
    });
}

#[test]
fn a_takeover_after_a_kill_adds_no_burst_and_no_duplicate() {
    let name = "a_takeover_after_a_kill_adds_no_burst_and_no_duplicate";
    sandboxed(name, || {
        let host = Host::new();
        let first = host.start(&[]);
        let mut traffic = host.traffic();
        traffic.more(200);
        first.signal(Signal::KILL);
        let died = Instant::now();
        drop(first);
        traffic.look();
        let before = traffic.came.len();
        let _second = host.start(&["--takeover"]);
        traffic.again(died);
        traffic.more(1300);
        // Since its death no more than the bandwidth allows, and a frame: the bucket
        // was not full again.
        for (count, (_, at)) in (1_u64..).zip(&traffic.came[before..]) {
            let passed = at.duration_since(died).as_micros() as u64;
            let allowed = MBIT * passed / 8 + WIRE;
            let sent = count * WIRE;
            assert!(
                sent <= allowed,
                "{sent} B within {passed} us: frame {count}"
            );
        }
        traffic.stop();
        let numbers: Vec<u32> = traffic.came.iter().map(|(number, _)| *number).collect();
        let different: BTreeSet<u32> = numbers.iter().copied().collect();
        assert_eq!(different.len(), numbers.len(), "a frame came twice");
        assert!(numbers.is_sorted());
    });
}

#[test]
fn a_running_daemon_is_asked_to_end_and_one_that_hangs_is_killed() {
    let name = "a_running_daemon_is_asked_to_end_and_one_that_hangs_is_killed";
    sandboxed(name, || {
        let host = Host::new();
        let mut traffic = host.traffic();
        let mut first = host.start(&["--takeover"]);
        traffic.more(10);
        let mut second = host.start(&["--takeover"]);
        until("the first one's end", || first.has_ended());
        assert!(first.0.wait().expect("it ended").success());
        host.is_run_by(&second);
        // As the vCPU agent knows it.
        let name = fs::read_to_string(format!("/proc/{}/comm", second.0.id()));
        assert_eq!(name.expect("it runs"), "tailbound-loop\n");
        traffic.more(10);
        second.signal(Signal::STOP);
        let started = Instant::now();
        let third = host.start(&["--takeover"]);
        until("the second one's end", || second.has_ended());
        assert!(started.elapsed() >= Duration::from_millis(500));
        assert!(!second.0.wait().expect("it ended").success());
        traffic.again(started);
        traffic.more(10);
        host.is_run_by(&third);
    });
}

#[test]
fn a_daemon_that_is_asked_hands_over_its_ports_and_no_frame_is_lost() {
    let name = "a_daemon_that_is_asked_hands_over_its_ports_and_no_frame_is_lost";
    sandboxed(name, || {
        let host = Host::unpaced(Kind::Veth);
        let mut running = host.start(&[]);
        let mut handed_over = 0;
        // A machine may be so busy that the old one does not answer in time: then it is
        // not asked any longer.
        for _ in 0..20 {
            host.is_run_by(&running);
            let mut traffic = host.traffic();
            traffic.more(200);
            let next = host.start(&["--takeover"]);
            until("its end", || {
                traffic.look();
                running.has_ended()
            });
            traffic.more(200);
            let lost = traffic.lost();
            if running.said("handed over") {
                assert!(running.0.wait().expect("it ended").success());
                assert_eq!(lost, 0);
                handed_over += 1;
            }
            running = next;
            if handed_over == 3 {
                return;
            }
        }
        panic!("only {handed_over} of 20 were handed over");
    });
}

/// Returns the largest excess over the bandwidth within any interval, in bytes of the wire: the
/// credit that the guest had saved.
fn saved(came: &[(u32, Instant)]) -> u64 {
    let Some(&(_, start)) = came.first() else {
        return 0;
    };
    let mut least = i128::MAX;
    let mut most = 0;
    for (count, (_, at)) in (1_i128..).zip(came) {
        let micros = at.duration_since(start).as_micros();
        let earned = i128::from(MBIT) * micros.cast_signed() / 8;
        let sent = count * i128::from(WIRE) - earned;
        least = least.min(sent - i128::from(WIRE));
        most = most.max(sent - least);
    }
    most as u64
}

#[test]
fn planned_takeovers_keep_a_guests_burst_and_never_double_it() {
    let name = "planned_takeovers_keep_a_guests_burst_and_never_double_it";
    sandboxed(name, || {
        let host = Host::new();
        let mut running = host.start(&[]);
        host.is_run_by(&running);
        // A bucket is full after S / B.
        thread::sleep(Duration::from_millis(8 * BURST / MBIT / 1000 + 100));
        let take_over = |running: &mut Daemon, traffic: Option<&mut Traffic>| {
            let next = host.start(&["--takeover"]);
            let mut traffic = traffic;
            until("its end", || {
                if let Some(traffic) = &mut traffic {
                    traffic.look();
                }
                running.has_ended()
            });
            host.is_run_by(&next);
            let handed_over = running.said("handed over");
            *running = next;
            handed_over
        };
        let has_saved = take_over(&mut running, None);
        let mut traffic = host.traffic();
        if has_saved {
            until("what it had saved", || {
                traffic.look();
                saved(&traffic.came) > BURST / 4
            });
        }
        traffic.more(500);
        for _ in 0..3 {
            take_over(&mut running, Some(&mut traffic));
            traffic.more(300);
        }
        traffic.stop();
        // All that it sent, before and after: its burst once.
        let (spent, most) = (saved(&traffic.came), BURST + CAUGHT_UP + 2 * WIRE);
        assert!(spent <= most, "{spent} B, {most} B allowed");
        assert!(has_saved, "the machine is too busy for any handover");
    });
}

#[test]
fn a_successor_that_dies_takes_nothing_with_it() {
    let name = "a_successor_that_dies_takes_nothing_with_it";
    sandboxed(name, || {
        let host = Host::unpaced(Kind::Veth);
        let mut running = host.start(&[]);
        host.is_run_by(&running);
        let mut traffic = host.traffic();
        traffic.more(100);
        let entries = fs::read_dir(host.path("run")).expect("it is there");
        let mut paths = entries.map(|entry| entry.expect("readable").path());
        let socket = paths.find(|path| path.to_string_lossy().contains("takeover-"));
        let socket = socket.expect("it listens");
        for hello in ["tailbound takeover 1\n", "tailbound takeover 9\n", "who"] {
            let mut successor = UnixStream::connect(&socket).expect("it listens");
            successor.write_all(hello.as_bytes()).expect("sent");
            drop(successor);
            traffic.more(200);
        }
        assert!(!running.has_ended());
        assert_eq!(traffic.lost(), 0);
    });
}

/// Most frames that a daemon has taken from a port and not sent while it is not behind: a received
/// burst, and a burst on its way out.
const TAKEN: u32 = 2 * 32;

#[test]
fn after_a_crash_systemd_returns_ports_and_few_frames_drop() {
    let name = "after_a_crash_systemd_returns_ports_and_few_frames_drop";
    sandboxed(name, || {
        for kind in support::kinds() {
            let host = Host::unpaced(kind);
            let keeper = Keeper::new(&host);
            let first = keeper.start(&host);
            until("two descriptors", || keeper.len() == 2);
            // Slow enough for a socket's buffer to last until a busy machine has started the
            // next one.
            let mut traffic = Traffic::start(&host, Duration::from_millis(1));
            traffic.more(200);
            first.signal(Signal::KILL);
            drop(first);
            let second = keeper.start(&host);
            host.is_run_by(&second);
            traffic.more(500);
            assert_eq!(keeper.len(), 2);
            let lost = traffic.lost();
            // A TAP's own queue is short, and the start of a test's build is slow.
            assert!(lost <= TAKEN || kind == Kind::Tap, "{lost} frames lost");
            // What is no port's any more is not kept.
            let config = fs::read_to_string(host.path("host.toml")).expect("readable");
            let uplink = config.split("[[guest]]").next().expect("it begins with it");
            fs::write(host.path("host.toml"), uplink).expect("written");
            second.signal(Signal::HUP);
            until("one descriptor less", || keeper.len() == 1);
        }
    });
}

/// Measures how long guests are cut off, for docs/how-to/takeover.md. Prints the median and the
/// maximum.
///
/// `cargo test --release -p tailbound --test host_takeover -- --ignored --nocapture`
#[test]
#[ignore = "measures, and judges nothing"]
fn how_long_a_takeover_takes() {
    sandboxed("how_long_a_takeover_takes", || {
        let host = Host::new();
        let mut traffic = host.traffic();
        let mut running = host.start(&[]);
        for (what, signal) in [
            ("killed", Some(Signal::KILL)),
            ("asked to end", None),
            ("hangs", Some(Signal::STOP)),
        ] {
            running = measure(what, &host, &mut traffic, running, |running| {
                if let Some(signal) = signal {
                    running.signal(signal);
                }
                host.start(&["--takeover"])
            });
        }
        drop(running);
        let keeper = Keeper::new(&host);
        let running = keeper.start(&host);
        until("two descriptors", || keeper.len() == 2);
        measure(
            "killed, descriptors kept",
            &host,
            &mut traffic,
            running,
            |running| {
                running.signal(Signal::KILL);
                // systemd waits for that, and then `RestartSec`.
                running.0.wait().expect("it is our child");
                keeper.start(&host)
            },
        );
    });
}

/// Has the daemon that runs end and another start, by `next`, 20 times; prints for how long
/// nothing came.
fn measure(
    what: &str,
    host: &Host,
    traffic: &mut Traffic,
    mut running: Daemon,
    mut next: impl FnMut(&mut Daemon) -> Daemon,
) -> Daemon {
    const TIMES: usize = 20;
    let mut gaps = Vec::new();
    while gaps.len() < TIMES {
        host.is_run_by(&running);
        traffic.came.clear();
        traffic.more(100);
        let last = traffic.came.last().expect("some").1;
        let fresh = next(&mut running);
        until("the end", || {
            traffic.look();
            running.has_ended()
        });
        traffic.again(last);
        running = fresh;
        let gap = traffic.came.windows(2).map(|two| two[1].1 - two[0].1);
        gaps.push(gap.max().expect("some"));
    }
    gaps.sort();
    eprintln!(
        "{}{what}: nothing came for {:?} (median), {:?} (worst) of {TIMES}",
        support::MEASURED,
        gaps[TIMES / 2],
        gaps[TIMES - 1]
    );
    running
}
