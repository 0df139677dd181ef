//! The waits of real threads, held against a second tracer: the same waits, measured twice, so
//! that nothing depends on what else the machine does.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use tailbound_agent::division::{Cause, divide};
use tailbound_agent::tail::Tail;
use tailbound_metrics::FineHistogram;
use tailbound_sys::cpuset::{Cpus, affinity, set_affinity};
use tailbound_sys::probe::required::{Part, skipped};
use tailbound_sys::root::Root;
use tailbound_sys::thread::{Tasks, ThreadId};
use tailbound_sys::waits::LateWait;
use tailbound_units::Nanos;

/// Number of vCPUs, and of the cycles of work and sleep of each.
const VCPUS: usize = 2;
const TURNS: u64 = 400;
const HOGS: usize = 3;

/// Shortest late wait.
const LATE_WAIT: Nanos = Nanos::from_millis(1);

const GUEST: &str = "TAILBOUND_TEST_GUEST";

/// Not a test of its own: a process with threads that have the names and behaviour of vCPUs. They
/// start at the first input line, and the process reports their end.
#[test]
fn guest_process() {
    if std::env::var_os(GUEST).is_none() {
        return;
    }
    let go = Arc::new(AtomicBool::new(false));
    // A thread takes its name itself, when it first runs.
    let named = Arc::new(Barrier::new(VCPUS + 1));
    let vcpus: Vec<_> = (0..VCPUS as u64)
        .map(|number| {
            let (go, named) = (Arc::clone(&go), Arc::clone(&named));
            let vcpu = std::thread::Builder::new().name(format!("CPU {number}/TCG"));
            let run = move || {
                named.wait();
                run_vcpu(number + 1, &go);
            };
            vcpu.spawn(run).unwrap()
        })
        .collect();
    named.wait();
    println!("started");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    go.store(true, Ordering::Release);
    for vcpu in &vcpus {
        vcpu.thread().unpark();
    }
    for vcpu in vcpus {
        vcpu.join().unwrap();
    }
    println!("done");
    // The numbers of the threads stay known until the end.
    std::io::stdin().read_line(&mut line).unwrap();
}

fn run_vcpu(seed: u64, go: &AtomicBool) {
    while !go.load(Ordering::Acquire) {
        std::thread::park();
    }
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for _ in 0..TURNS {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        std::thread::sleep(Duration::from_micros(100 + random % 1_500));
        spin(Duration::from_micros(random % 1_000));
    }
}

fn spin(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// A child process with messages in both directions; it ends with this value.
struct Talker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Talker {
    fn start(command: &mut Command) -> std::io::Result<Self> {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        Ok(Self {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        })
    }

    /// Reads up to a line with `word`; `false` if there is none.
    fn hear(&mut self, word: &str) -> bool {
        let mut lines = (&mut self.output).lines();
        lines.any(|line| line.is_ok_and(|line| line.contains(word)))
    }

    fn tell(&mut self) {
        let input = self.input.as_mut().unwrap();
        input.write_all(b"\n").unwrap();
        input.flush().unwrap();
    }
}

impl Drop for Talker {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Threads that compute until they are dropped, on one CPU.
struct Hogs {
    end: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Hogs {
    fn start(cpu: Cpus) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let threads = (0..HOGS).map(|_| {
            let end = Arc::clone(&end);
            let hog = std::thread::Builder::new().name("tb-hog".to_owned());
            hog.spawn(move || {
                set_affinity(0, &cpu).unwrap();
                while !end.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
            .unwrap()
        });
        Self {
            threads: threads.collect(),
            end,
        }
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Records wake-ups and switches of these threads by perf, until told to end.
fn perf(vcpus: &[u32], data: &Path) -> Option<Talker> {
    let either = |names: &[&str]| {
        let mut any = Vec::new();
        for name in names {
            any.extend(vcpus.iter().map(|tid| format!("{name}=={tid}")));
        }
        any.join("||")
    };
    // The descriptions of events are mounted for perf alone, where nobody has.
    let script = format!(
        "[ -e /sys/kernel/tracing/events ] || mount -t tracefs tracefs /sys/kernel/tracing || exit
         exec perf record -q -a -k CLOCK_MONOTONIC -o {} -e sched:sched_switch --filter '{}' \
         -e sched:sched_waking --filter '{}' -- sh -c 'echo recording; read line' 2>&1",
        data.display(),
        either(&["prev_pid", "next_pid"]),
        either(&["pid"]),
    );
    let mut command = Command::new("unshare");
    let talker = Talker::start(command.args(["-m", "sh", "-c", &script]));
    let mut talker = match talker {
        Ok(talker) => talker,
        Err(error) => {
            skipped(Part::Perf, error);
            return None;
        }
    };
    if talker.hear("recording") {
        return Some(talker);
    }
    skipped(Part::Perf, "perf does not record the scheduler's events");
    None
}

/// A thread, as observed by perf.
#[derive(Debug, Default)]
struct ThreadWaits {
    left: Option<(u64, bool)>,
    woken: Option<u64>,
    waits: Vec<u64>,
    unknown: u64,
}

/// Makes waits of what perf recorded.
fn waits(data: &Path, vcpus: &[u32]) -> BTreeMap<u32, ThreadWaits> {
    let output = Command::new("perf")
        .args(["script", "--ns", "-F", "time,event,trace", "-i"])
        .arg(data)
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut seen: BTreeMap<_, _> = vcpus
        .iter()
        .map(|tid| (*tid, ThreadWaits::default()))
        .collect();
    for line in text.lines() {
        let (time, event) = line.trim_start().split_once(": ").unwrap();
        let (seconds, nanos) = time.split_once('.').unwrap();
        let now = seconds.parse::<u64>().unwrap() * 1_000_000_000 + nanos.parse::<u64>().unwrap();
        let number = |name: &str| -> Option<u32> {
            let (_, rest) = event.split_once(name)?;
            rest.split(' ').next()?.parse().ok()
        };
        if let Some(tid) = number(" pid=") {
            if let Some(seen) = seen.get_mut(&tid) {
                let stale = seen.left.is_some_and(|(left, _)| seen.woken < Some(left));
                if stale || seen.woken.is_none() || seen.left.is_none() {
                    seen.woken = Some(now);
                }
            }
            continue;
        }
        let runs_on = event.contains("prev_state=R");
        if let Some(seen) = number("prev_pid=").and_then(|tid| seen.get_mut(&tid)) {
            seen.left = Some((now, runs_on));
        }
        if let Some(seen) = number("next_pid=").and_then(|tid| seen.get_mut(&tid)) {
            match (seen.left.take(), seen.woken.take()) {
                (Some((left, true)), _) => seen.waits.push(now - left),
                (Some((left, false)), Some(woken)) if woken >= left => {
                    seen.waits.push(now - woken);
                }
                (Some(_), _) => seen.unknown += 1,
                (None, _) => {}
            }
        }
    }
    seen
}

fn start_guest() -> (Talker, Vec<ThreadId>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let command = command.args(["--exact", "guest_process", "--nocapture"]);
    let mut guest = Talker::start(command.env(GUEST, "1")).unwrap();
    assert!(guest.hear("started"));
    let tasks = Tasks::open(&Root::default(), guest.child.id()).unwrap();
    let threads = tasks.list().unwrap().into_iter();
    let vcpus = threads.filter(|tid| {
        let stat = tasks.stat(*tid).unwrap();
        stat.is_some_and(|stat| stat.name.starts_with("CPU "))
    });
    let vcpus: Vec<_> = vcpus
        .map(|tid| tailbound_agent::thread(tid).unwrap())
        .collect();
    assert_eq!(vcpus.len(), VCPUS);
    (guest, vcpus)
}

/// All waits of a thread.
fn all(new: &[(ThreadId, tailbound_agent::tail::New)], vcpu: ThreadId) -> FineHistogram {
    let mut histogram = FineHistogram::default();
    for (_, new) in new.iter().filter(|(thread, _)| *thread == vcpu) {
        new.woken.enter(&mut histogram);
        new.preempted.enter(&mut histogram);
    }
    histogram
}

fn open() -> Option<Tail> {
    match Tail::open(LATE_WAIT) {
        Ok(tail) => Some(tail),
        Err(error) => {
            skipped(Part::BpfWaits, error);
            None
        }
    }
}

/// A machine that stands between the two tracers' readings of one moment makes them differ; three
/// times is no accident.
#[test]
fn waits_match_a_second_tracer_and_name_the_hogs() {
    let mut differ = Vec::new();
    for _ in 0..3 {
        let Some(found) = measured_twice() else {
            return;
        };
        if found.is_empty() {
            return;
        }
        differ.extend(found);
    }
    panic!("{}", differ.join("; "));
}

/// Measures waits twice; returns where quantiles are more than 5 % apart.
fn measured_twice() -> Option<Vec<String>> {
    let mut tail = open()?;
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("perf.data");
    let (mut guest, vcpus) = start_guest();
    let tids: Vec<_> = vcpus.iter().map(|vcpu| vcpu.tid).collect();
    let mut recorder = perf(&tids, &data)?;
    let cpu = Cpus::one(affinity(0).unwrap().iter().next().unwrap());
    for tid in &tids {
        set_affinity(*tid, &cpu).unwrap();
    }
    let threads: BTreeSet<_> = vcpus.iter().copied().collect();
    assert_eq!(tail.follow(&threads).unwrap(), 0);
    let hogs = Hogs::start(cpu);
    guest.tell();
    let mut late = Vec::new();
    let done = {
        let wait = std::thread::scope(|scope| {
            let guest = &mut guest;
            let waiting = scope.spawn(move || guest.hear("done"));
            while !waiting.is_finished() {
                late.extend(tail.late_waits());
                std::thread::sleep(Duration::from_millis(20));
            }
            waiting.join()
        });
        wait.unwrap()
    };
    assert!(done);
    drop(hogs);
    late.extend(tail.late_waits());
    let new = tail.read();
    recorder.tell();
    assert!(recorder.child.wait().unwrap().success());
    let seen = waits(&data, &tids);
    let mut differ = Vec::new();
    for vcpu in &vcpus {
        let (told, seen) = (all(&new, *vcpu), &seen[&vcpu.tid]);
        let mut exact = seen.waits.clone();
        exact.sort_unstable();
        assert!(exact.len() as u64 >= TURNS, "{} waits", exact.len());
        let unknown: u64 = new.iter().map(|(_, new)| new.unknown).sum();
        let missing = told.count().abs_diff(exact.len() as u64);
        let most = unknown + seen.unknown + 2;
        assert!(missing <= most, "{} of {}", told.count(), exact.len());
        for share in [0.5, 0.99, 0.999, 1.0] {
            let rank = (share * exact.len() as f64).ceil() as usize;
            let is = exact[rank.max(1) - 1] as f64;
            let says = told.quantile(share).unwrap().0 as f64;
            println!("{share}: {says} of {is}");
            if (says / is - 1.0).abs() >= 0.05 {
                differ.push(format!("{share}: {says} of {is}"));
            }
        }
        let (is, says) = (*exact.last().unwrap() as f64, told.longest().0 as f64);
        if (says / is - 1.0).abs() >= 0.05 {
            differ.push(format!("longest: {says} of {is}"));
        }
        in_their_buckets(&told, &late, *vcpu);
    }
    assert_eq!(new.iter().map(|(_, new)| new.lost).sum::<u64>(), 0);
    named(&late);
    Some(differ)
}

/// The kernel counts each wait in the bucket that has it: late ones are known one by one.
fn in_their_buckets(told: &FineHistogram, late: &[(ThreadId, LateWait)], vcpu: ThreadId) {
    let mut exact = FineHistogram::default();
    for (_, wait) in late.iter().filter(|(thread, _)| *thread == vcpu) {
        exact.record(wait.until.since(wait.from));
    }
    let least = FineHistogram::bucket(LATE_WAIT.0);
    let beyond = |histogram: &FineHistogram| -> Vec<_> {
        let used = histogram.used().filter(|(bucket, _)| *bucket > least);
        used.collect()
    };
    assert_eq!(beyond(told), beyond(&exact));
}

/// The hogs, which never sleep on the only CPU there is, are named.
fn named(late: &[(ThreadId, LateWait)]) {
    let (mut hogs, mut others) = (0, 0);
    for (_, wait) in late {
        let division = divide(wait, |_| None);
        let hog = division.others.iter().find(|(name, _)| name == "tb-hog");
        hogs += hog.map_or(0, |(_, time)| time.0);
        others += division.causes.get(&Cause::Others).map_or(0, |time| time.0);
    }
    println!("hogs {hogs} of others {others}");
    assert!(hogs > 0 && hogs <= others);
}
