//! `tailbound host --takeover` with real processes on real interfaces.

#[path = "../../host/tests/support/mod.rs"]
mod support;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, Signal, kill_process};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use support::{Guest, Kind, Nic, datagram, sandboxed, until};

/// The guest's guaranteed rate in Mbit/s. The burst is more than the guest sends in a test: with a
/// full bucket the guest would never be paced.
const MBIT: u64 = 20;
const BURST: u64 = 2_000_000;
/// Bytes that may arrive late because a thread of the test, or the daemon, does not run: 100 ms at
/// the guaranteed rate.
const CAUGHT_UP: u64 = MBIT * 1_000_000 / 8 / 10;
/// A full frame, and on the wire.
const LEN: usize = 1514;
const WIRE: u64 = 1538;

/// A daemon as a process of its own, and a guest that sends through its paced uplink.
struct Host {
    directory: tempfile::TempDir,
    far: Guest,
    guest: Guest,
    /// Number of daemons that were started.
    started: Cell<u32>,
}

impl Host {
    /// One whose guest has no guarantee and no limit.
    fn unpaced(kind: Kind) -> Self {
        let host = Self::of(kind);
        let config = format!(
            "[uplink]\nport = {{ kind = \"af-packet\", interface = {:?} }}\n{}",
            host.far.name,
            host.guest.section(),
        );
        fs::write(host.path("host.toml"), config).expect("written");
        host
    }

    fn of(kind: Kind) -> Self {
        Self {
            directory: tempfile::tempdir().expect("a directory"),
            guest: Guest::new(kind, 1),
            far: Guest::new(Kind::Veth, 2),
            started: Cell::new(0),
        }
    }

    fn new() -> Self {
        let host = Self::of(Kind::Veth);
        let config = format!(
            "[uplink]\nport = {{ kind = \"af-packet\", interface = {:?} }}\n\
             pacer = {{ link = \"100Mbit/s\", batch = \"1ms\", \
             work_conserving = false }}\n{}\
             guarantee = {{ bandwidth = \"{MBIT}Mbit/s\", burst = \"{BURST}B\", \
             burst_rate = \"100Mbit/s\" }}\n",
            host.far.name,
            host.guest.section(),
        );
        fs::write(host.path("host.toml"), config).expect("written");
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tailbound"));
        command
            .args(["host", "--config", "host.toml", "--runtime-dir", "run"])
            .args(more)
            .current_dir(self.directory.path());
        command
    }

    /// Starts a daemon.
    fn start(&self, more: &[&str]) -> Daemon {
        let log = self.path(&format!("log-{}", self.started.get()));
        self.started.set(self.started.get() + 1);
        let child = self
            .command(more)
            .stdout(Stdio::null())
            .stderr(File::create(&log).expect("created"))
            .spawn()
            .expect("it is built");
        Daemon(child, log)
    }

    /// Returns the output of a daemon that refuses to start.
    fn refused(&self, more: &[&str]) -> Output {
        let output = self.command(more).output().expect("it is built");
        assert_eq!(output.status.code(), Some(2));
        output
    }

    /// Waits until a daemon has the lock, and its ports.
    fn is_run_by(&self, daemon: &Daemon) {
        let pid = format!("{}\n", daemon.0.id());
        until("the lock", || {
            let locks = fs::read_dir(self.path("run")).into_iter().flatten();
            let mut locks = locks.filter_map(|lock| fs::read_to_string(lock.ok()?.path()).ok());
            locks.any(|text| text == pid)
        });
        until("its ports", || daemon.said(" ready "));
    }

    fn traffic(&self) -> Traffic {
        Traffic::start(self, Duration::from_micros(200))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if thread::panicking() {
            for entry in fs::read_dir(self.directory.path()).into_iter().flatten() {
                let path = entry.map(|entry| entry.path()).unwrap_or_default();
                let text = fs::read_to_string(&path).unwrap_or_default();
                eprintln!("{}:\n{text}", path.display());
            }
        }
    }
}

/// A process, and where its log is.
struct Daemon(Child, PathBuf);

impl Daemon {
    fn said(&self, what: &str) -> bool {
        fs::read_to_string(&self.1).is_ok_and(|log| log.contains(what))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it runs");
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("it is our child").is_some()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Numbered frames from the guest at three times its guaranteed rate, and those that arrive behind
/// the uplink.
struct Traffic {
    stop: Arc<AtomicBool>,
    /// The sending thread, which returns the number of sent frames.
    sender: Option<JoinHandle<u32>>,
    nic: Nic,
    to: [u8; 6],
    /// The receiver's answer. Without an answer the receiver's address is unknown to the daemon,
    /// and frames to an unknown address have a budget.
    answer: Vec<u8>,
    /// Numbers that came, and when.
    came: Vec<(u32, Instant)>,
}

impl Traffic {
    /// A frame after each such pause.
    fn start(host: &Host, pause: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let netns = host.guest.netns();
        // Waits until it is there.
        drop(host.guest.nic());
        let device = host.guest.device().0;
        let head = datagram(&host.far, &host.guest, 0);
        let to = host.far.mac;
        let answer = datagram(&host.guest, &host.far, 0);
        // Before the first frame is sent.
        let mut nic = host.far.nic();
        nic.send(&answer);
        let stopped = Arc::clone(&stop);
        let sender = thread::spawn(move || {
            let mut nic = Nic::open(device, Some(&netns));
            let mut number = 0_u32;
            while !stopped.load(Ordering::Relaxed) {
                let mut frame = head.clone();
                // The number is the datagram's payload.
                frame[42..46].copy_from_slice(&number.to_be_bytes());
                frame.resize(LEN, 0);
                let len = (LEN - 14) as u16;
                frame[16..18].copy_from_slice(&len.to_be_bytes());
                frame[38..40].copy_from_slice(&(len - 20).to_be_bytes());
                nic.send(&frame);
                number += 1;
                thread::sleep(pause);
            }
            number
        });
        Self {
            stop,
            sender: Some(sender),
            nic,
            to,
            answer,
            came: Vec::new(),
        }
    }

    /// Takes what came, and answers.
    fn look(&mut self) {
        let before = self.came.len();
        for packet in self.nic.receive() {
            let bytes = packet.bytes();
            if bytes.len() == LEN && bytes[..6] == self.to {
                let number = bytes[42..46].try_into().map(u32::from_be_bytes);
                self.came.push((number.expect("four"), Instant::now()));
            }
        }
        if self.came.len() > before {
            self.nic.send(&self.answer);
        }
    }

    /// Waits for `frames` more frames.
    fn more(&mut self, frames: usize) {
        let wanted = self.came.len() + frames;
        until("traffic", || {
            self.look();
            self.came.len() >= wanted
        });
    }

    /// Waits for frames that were sent after `since` by a daemon without any observed traffic;
    /// returns the arrival of the first frame.
    fn again(&mut self, since: Instant) -> Instant {
        // What the last one had sent is there at once.
        thread::sleep(Duration::from_millis(1));
        self.look();
        let before = self.came.len();
        self.more(1);
        let (_, at) = self.came[before];
        assert!(at > since);
        at
    }

    /// Returns how many frames were sent.
    fn stop(&mut self) -> u32 {
        self.stop.store(true, Ordering::Relaxed);
        let sender = self.sender.take().expect("it is stopped once");
        sender.join().expect("it only sends")
    }

    /// Stops, and returns how many frames are lost: none came twice or out of order.
    fn lost(&mut self) -> u32 {
        let sent = self.stop();
        // The last may be lost as well.
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(2)
            && self.came.last().is_none_or(|(last, _)| last + 1 != sent)
        {
            self.look();
            thread::sleep(Duration::from_millis(1));
        }
        assert!(self.came.windows(2).all(|two| two[0].0 < two[1].0));
        sent - self.came.len() as u32
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

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

/// A stand-in for systemd: it stores the descriptors that a daemon sends.
struct Keeper {
    kept: Arc<Mutex<BTreeMap<String, OwnedFd>>>,
    socket: PathBuf,
}

impl Keeper {
    fn new(host: &Host) -> Self {
        let socket = host.path("notify");
        let listener = UnixDatagram::bind(&socket).expect("bound");
        let kept = Arc::<Mutex<BTreeMap<_, _>>>::default();
        let keeps = Arc::clone(&kept);
        thread::spawn(move || {
            loop {
                let (text, descriptor) = message(&listener);
                let name = text.lines().find_map(|line| line.strip_prefix("FDNAME="));
                let Some(name) = name else { continue };
                let mut kept = keeps.lock().expect("nobody panics");
                if let Some(descriptor) = descriptor {
                    assert!(text.contains("FDSTORE=1"));
                    kept.insert(name.to_owned(), descriptor);
                } else if text.contains("FDSTOREREMOVE=1") {
                    kept.remove(name);
                }
            }
        });
        Self { kept, socket }
    }

    fn len(&self) -> usize {
        self.kept.lock().expect("nobody panics").len()
    }

    /// Starts a daemon as systemd does, with what was kept of the one before.
    fn start(&self, host: &Host) -> Daemon {
        let kept = self.kept.lock().expect("nobody panics");
        let names: Vec<_> = kept.keys().cloned().collect();
        let mut script = String::new();
        for (place, descriptor) in (3..).zip(kept.values()) {
            let copy = rustix::io::fcntl_dupfd_cloexec(descriptor, 100).expect("a copy");
            rustix::io::fcntl_setfd(&copy, rustix::io::FdFlags::empty()).expect("ours");
            let _ = write!(script, "exec {place}<&{0} {0}<&-;", copy.as_raw_fd());
            // For the child, as long as this process lives.
            std::mem::forget(copy);
        }
        script += "LISTEN_PID=$$ exec \"$0\" \"$@\"";
        let log = host.path(&format!("log-kept-{}", names.len()));
        let child = Command::new("bash")
            .args(["-c", &script, env!("CARGO_BIN_EXE_tailbound")])
            .args(["host", "--config", "host.toml", "--runtime-dir", "run"])
            .current_dir(host.directory.path())
            .env("NOTIFY_SOCKET", &self.socket)
            .env("FDSTORE", "64")
            .env("LISTEN_FDS", names.len().to_string())
            .env("LISTEN_FDNAMES", names.join(":"))
            .stdout(Stdio::null())
            .stderr(File::create(&log).expect("created"))
            .spawn()
            .expect("there is bash");
        Daemon(child, log)
    }
}

/// A message of a daemon, and the descriptor in it.
fn message(listener: &UnixDatagram) -> (String, Option<OwnedFd>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 4096];
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let got = recvmsg(listener, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC);
    let got = got.expect("it is ours").bytes;
    let rights = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut some) => some.next(),
        _ => None,
    });
    (text(&bytes[..got]), rights)
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
