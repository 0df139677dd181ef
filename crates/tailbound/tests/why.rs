//! `tailbound why` on causes that are injected: containers in control groups and network namespaces
//! of this host, on one CPU.

mod program;

use program::{PROGRAM, run_anywhere};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tailbound_sys::cgroup::Mounts;
use tailbound_sys::cpuset::{Cpus, affinity, set_affinity};
use tailbound_sys::probe::Capability;
use tailbound_sys::probe::required::{Part, skipped};
use tailbound_sys::root::Root;
use tailbound_sys::thread::{PolicyNumber, Scheduling, set_scheduling};

const LOAD: &str = "TAILBOUND_TEST_LOAD";

/// Not a test of its own: a process on one CPU that computes and sleeps in turn, in milliseconds,
/// until it is killed: `CPU COMPUTES SLEEPS`, and `fifo` for a real-time policy.
#[test]
fn load_process() {
    let Ok(load) = std::env::var(LOAD) else {
        return;
    };
    let words: Vec<&str> = load.split(' ').collect();
    let number = |at: usize| words[at].parse::<u64>().unwrap();
    set_affinity(0, &Cpus::one(u32::try_from(number(0)).unwrap())).unwrap();
    if words.get(3) == Some(&"fifo") {
        let fifo = Scheduling {
            policy: PolicyNumber::FIFO,
            priority: 10,
            ..Scheduling::PLAIN
        };
        set_scheduling(0, &fifo).unwrap();
    }
    println!("started");
    let [computes, sleeps] = [number(1), number(2)].map(Duration::from_millis);
    loop {
        let begin = Instant::now();
        while begin.elapsed() < computes {
            std::hint::spin_loop();
        }
        std::thread::sleep(sleeps);
    }
}

/// A process that is killed with this.
struct Load(Child);

impl Load {
    /// Starts it by `command`, up to when it begins.
    fn start(mut command: Command, load: &str) -> Option<Self> {
        let exe = std::env::current_exe().unwrap();
        let command = command
            .arg(exe)
            .args(["--exact", "load_process", "--nocapture", "--test-threads=1"])
            .env(LOAD, load)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let started = lines
            .map_while(Result::ok)
            .any(|line| line.contains("started"));
        let load = Self(child);
        started.then_some(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A network namespace and a control group as a container runtime makes them.
struct Container {
    id: String,
    namespace: String,
    group: PathBuf,
    load: Option<Load>,
}

/// The group above all containers of this process.
fn parent() -> PathBuf {
    groups().join(format!("tbw{}", std::process::id()))
}

/// The directory of groups for the CPU.
fn groups() -> PathBuf {
    let mounts = Mounts::read(&Root::default()).unwrap();
    let legacy = mounts.legacy("cpu").map(Path::to_owned);
    legacy.or(mounts.unified).unwrap()
}

fn ip(arguments: &str) -> bool {
    let mut command = Command::new("ip");
    let command = command.args(arguments.split(' ')).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

impl Container {
    /// Makes a container that runs `load`; `None` if this host lacks a part.
    fn start(letter: char, load: &str) -> Option<Self> {
        let parent = parent();
        let _ = std::fs::create_dir(&parent);
        // Other programs have little of the CPU while these compute.
        for (file, most) in [("cpu.shares", "262144"), ("cpu.weight", "10000")] {
            if parent.join(file).exists() {
                let _ = std::fs::write(parent.join(file), most);
            }
        }
        for above in [groups(), parent.clone()] {
            let _ = std::fs::write(above.join("cgroup.subtree_control"), "+cpu");
        }
        let digits = format!("{:08x}", std::process::id());
        let id = format!("{digits}{}", letter.to_string().repeat(56));
        let mut container = Self {
            namespace: format!("tbw{digits}{letter}"),
            group: parent.join(format!("docker-{id}.scope")),
            id,
            load: None,
        };
        std::fs::create_dir(&container.group).ok()?;
        let namespace = &container.namespace;
        let made = ip(&format!("netns add {namespace}"))
            && ip(&format!(
                "link add {namespace} type veth peer name eth0 netns {namespace}"
            ));
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]);
        let load = made.then(|| Load::start(command, load)).flatten()?;
        let pid = load.0.id().to_string();
        std::fs::write(container.group.join("cgroup.procs"), pid).ok()?;
        container.load = Some(load);
        Some(container)
    }

    /// The name without a runtime that has a better one.
    fn name(&self) -> &str {
        &self.id[..12]
    }

    fn limit(&self, runtime_us: u64, period_us: u64) {
        let write = |file: &str, text: String| std::fs::write(self.group.join(file), text);
        if self.group.join("cpu.max").exists() {
            write("cpu.max", format!("{runtime_us} {period_us}")).unwrap();
        } else {
            write("cpu.cfs_period_us", period_us.to_string()).unwrap();
            write("cpu.cfs_quota_us", runtime_us.to_string()).unwrap();
        }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        self.load = None;
        ip(&format!("link del {}", self.namespace));
        ip(&format!("netns del {}", self.namespace));
        // Its last process may still be leaving.
        for _ in 0..50 {
            if std::fs::remove_dir(&self.group).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = std::fs::remove_dir(parent());
    }
}

/// The last CPU that this process may use.
fn cpu() -> u32 {
    let allowed = affinity(0).unwrap();
    (0..1024).rfind(|cpu| allowed.contains(*cpu)).unwrap()
}

/// A container that computes for 1 ms and sleeps for 3, and one that `neighbour` describes.
fn containers(test: &str, neighbour: &str) -> Option<[Container; 2]> {
    let bpf = Capability::BpfWaits.try_here();
    if !bpf.works {
        skipped(Part::BpfWaits, test);
        return None;
    }
    let cpu = cpu();
    let victim = Container::start('a', &format!("{cpu} 1 3"));
    let neighbour = Container::start('b', &format!("{cpu} {neighbour}"));
    let both = victim.zip(neighbour).map(<[Container; 2]>::from);
    if both.is_none() {
        skipped(Part::CpuWeight, test);
    }
    both
}

fn why(container: &Container) -> serde_json::Value {
    let name = container.name();
    let document = run_anywhere(&format!("why {name} --for 4s --output json")).json();
    let shares = document["shares"].as_array().unwrap();
    let sum: u64 = shares
        .iter()
        .map(|share| share["time_ns"].as_u64().unwrap())
        .sum();
    let judged = document["judged_delay_ns"].as_u64();
    assert_eq!(Some(sum), judged, "{document:#}");
    document
}

/// Asserts a cause and its name.
#[track_caller]
fn because(document: &serde_json::Value, cause: &str, by: Option<&str>) {
    let seen = (document["cause"].as_str(), document["by"].as_str());
    assert_eq!(seen, (Some(cause), by), "{document:#}");
}

#[test]
fn a_hog_in_a_neighbour_is_named() {
    let Some([victim, hog]) = containers("a_hog_in_a_neighbour_is_named", "1000 0") else {
        return;
    };
    because(&why(&victim), "neighbour-cpu", Some(hog.name()));
    let document = run_anywhere("watch --for 3s --output json").ended(0).json();
    let guests = document["guests"].as_array().unwrap();
    let place = |name: &str| guests.iter().position(|it| it["guest"]["name"] == name);
    let (first, second) = (place(victim.name()), place(hog.name()));
    assert!(first.is_some() && first < second, "{document:#}");
    let interface = &guests[first.unwrap()]["guest"]["interfaces"][0]["name"];
    assert_eq!(interface.as_str(), Some(victim.namespace.as_str()));
}

#[test]
fn a_quota_that_is_used_up_is_named() {
    let Some([victim, _idle]) = containers("a_quota_that_is_used_up_is_named", "0 1000") else {
        return;
    };
    victim.limit(10_000, 100_000);
    let document = why(&victim);
    because(&document, "quota", None);
    let command = document["remedy"]["command"].as_str().unwrap();
    assert_eq!(
        command,
        format!("docker update --cpus 0.20 {}", victim.name())
    );
}

#[test]
fn a_real_time_thread_is_named() {
    let Some([victim, _idle]) = containers("a_real_time_thread_is_named", "0 1000") else {
        return;
    };
    let load = format!("{} 30 30 fifo", cpu());
    let Some(_fifo) = Load::start(Command::new("env"), &load) else {
        skipped(Part::SchedFifo, "a_real_time_thread_is_named");
        return;
    };
    let document = why(&victim);
    let program = document["by"].as_str().unwrap_or_default().to_owned();
    because(&document, "real-time", Some(&program));
    assert!(program.starts_with("why-"), "{document:#}");
}

#[test]
fn a_neighbour_that_sleeps_is_not_named() {
    let Some([victim, idle]) = containers("a_neighbour_that_sleeps_is_not_named", "0 1000") else {
        return;
    };
    let document = why(&victim);
    // Other programs of this host may be in its way.
    if document["finding"] != "nothing-slow" {
        assert_ne!(document["cause"], "neighbour-cpu", "{document:#}");
        assert_ne!(document["cause"], "quota", "{document:#}");
        assert!(!document.to_string().contains(idle.name()), "{document:#}");
    }
}

/// The error of a command, which is one line.
fn error(line: &str) -> String {
    let error = run_anywhere(line).failed(2);
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

/// Records into a file until slices are in it, and ends the recorder by kill -9.
fn record(file: &Path, slices: u64) {
    let mut command = Command::new(PROGRAM);
    let command = command.args(["watch", "--record"]).arg(file);
    let mut watch = Load(command.stdout(Stdio::piped()).spawn().unwrap());
    let end = Instant::now() + Duration::from_secs(20 + 15 * slices);
    let size = || std::fs::metadata(file).map_or(0, |seen| seen.len());
    while size() <= HEADER_SIZE + (slices - 1) * SLOT_SIZE {
        assert!(Instant::now() < end, "{} bytes", size());
        assert_eq!(watch.0.try_wait().unwrap(), None);
        std::thread::sleep(Duration::from_millis(100));
    }
    watch.0.kill().unwrap();
}

const HEADER_SIZE: u64 = 4_096;
const SLOT_SIZE: u64 = 135_168;

#[test]
fn a_record_has_the_answer_after_its_recorder_was_killed() {
    let test = "a_record_has_the_answer_after_its_recorder_was_killed";
    let Some([victim, hog]) = containers(test, "1000 0") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("record");
    let file = path.to_str().unwrap();
    record(&path, 1);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    // The time of the record is in the error about another time.
    let outside = error(&format!(
        "why {} --at '2020-01-01 03:12' {file}",
        victim.name()
    ));
    let (_, covers) = outside.split_once("the record covers ").unwrap();
    let begin = format!("{}T{}", &covers[..10], &covers[11..19]);
    let then = format!("why {} --at {begin} {file} --output json", victim.name());
    let document = run_anywhere(&then).ended(0).json();
    because(&document, "neighbour-cpu", Some(hog.name()));
    assert_eq!(document["guest"]["name"], victim.name());
    assert_eq!(document["record"]["slices_with_guest"], 1);
    let command = document["remedy"]["command"].as_str().unwrap();
    assert!(
        command.starts_with("tailbound vcpu apply --container"),
        "{command}"
    );
    // By the time of the day alone, and in words.
    let ask = format!("why {} --at {} {file}", victim.name(), &begin[11..]);
    let said = run_anywhere(&ask).out;
    let between = format!(" between {}", &begin[11..]);
    assert!(said.contains(&between), "{said}");
    let missing = error(&format!("why nowhere --at {begin} {file}"));
    assert!(missing.contains(victim.name()), "{missing}");
    // It goes on in the same file. A recorder that is ended by SIGTERM, meanwhile and of another file,
    // writes the slice that has begun.
    let ended = directory.path().join("ended");
    std::thread::scope(|scope| {
        scope.spawn(|| end_recorder(&ended));
        record(&path, 2);
    });
    let document = run_anywhere(&then).json();
    assert_eq!(document["record"]["slices"], 2, "{document:#}");
    // They would take a CPU from what has no use for them.
    drop([victim, hog]);
    bundle(&directory.path().join("bundle"), file);
}

fn end_recorder(file: &Path) {
    let mut command = Command::new(PROGRAM);
    let mut watch = Load(
        command
            .args(["watch", "--record"])
            .arg(file)
            .spawn()
            .unwrap(),
    );
    let end = Instant::now() + Duration::from_secs(20);
    while !file.exists() {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(50));
    }
    let process = watch.0.id().to_string();
    assert!(
        Command::new("kill")
            .arg(&process)
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(watch.0.wait().unwrap().code(), Some(0));
    let size = std::fs::metadata(file).unwrap().len();
    assert!(size > HEADER_SIZE, "{size} bytes");
}

/// Packs a record for support, and looks at what is in the file.
fn bundle(path: &Path, record: &str) {
    let bundle = path.to_str().unwrap();
    let run = || {
        let mut command = Command::new(PROGRAM);
        let command = command.args(["support-bundle", "--output", bundle, "--record", record]);
        command.env("TOKEN", "secret-4711").output().unwrap()
    };
    let output = run();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let mode = std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    let tar = |arguments: &[&str]| {
        let output = Command::new("tar").args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    let names = String::from_utf8(tar(&["-tzf", bundle])).unwrap();
    let names: Vec<_> = names.lines().collect();
    assert_eq!(
        names,
        ["contents.txt", "version.txt", "doctor.json", "record"]
    );
    assert_eq!(
        tar(&["-xzOf", bundle, "record"]),
        std::fs::read(record).unwrap()
    );
    let all = String::from_utf8_lossy(&tar(&["-xzOf", bundle])).into_owned();
    assert!(!all.contains("secret-4711"));
    let doctor = tar(&["-xzOf", bundle, "doctor.json"]);
    let doctor: serde_json::Value = serde_json::from_slice(&doctor).unwrap();
    assert_eq!(doctor["kind"], "doctor");
    // Nothing is written over.
    let again = run();
    assert_eq!(again.status.code(), Some(2), "{again:?}");
}

#[test]
fn why_self_lists_the_parts_it_cannot_examine() {
    let output = run_anywhere("why --self --for 1s --output json");
    let document = output.json();
    let finding = document["finding"].as_str().unwrap();
    assert_eq!(output.code, Some(if finding == "unknown" { 2 } else { 0 }));
    assert_eq!(document["kind"], "why-self");
    let unexamined = document["unexamined"].as_array().unwrap();
    let parts: Vec<_> = unexamined
        .iter()
        .map(|it| it["part"].as_str().unwrap())
        .collect();
    assert!(
        parts.contains(&"other guests and the host's queues"),
        "{parts:?}"
    );
    // Each part is measured, or listed with the reason.
    for (part, field) in [
        ("late wakes", "wakes"),
        ("steal", "steal_ns"),
        ("quota", "throttled_ns"),
        ("retransmissions", "segments_sent"),
    ] {
        assert_ne!(parts.contains(&part), !document[field].is_null(), "{part}");
    }
}

#[test]
fn a_guest_that_is_not_there_is_one_clear_error() {
    let error = run_anywhere("why no\x1bwhere").failed(2);
    let begin = "tailbound: there is no guest \"no\\u{1b}where\" here; ";
    assert!(error.starts_with(begin), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

/// The state of the host that `why` must not change: lines of commands, settings of the kernel, BPF
/// objects that a process holds or a file pins, and control groups.
fn host_state() -> BTreeMap<String, String> {
    let mut state = BTreeMap::new();
    for command in [
        "ip -d link",
        "ip netns list",
        "tc qdisc show",
        "tc filter show",
        "bridge -d link",
        "nft list ruleset",
    ] {
        let mut words = command.split(' ');
        let output = Command::new(words.next().unwrap()).args(words).output();
        // A host without the command has nothing that it would list.
        if let Ok(output) = output {
            let text = String::from_utf8_lossy(&output.stdout);
            state.insert(command.to_owned(), without_timers(&text));
        }
    }
    walk(Path::new("/proc/sys"), &mut |path| {
        // A setting can be written; the others are counters.
        if !std::fs::metadata(path).is_ok_and(|it| it.permissions().mode() & 0o200 != 0) {
            return;
        }
        if let Ok(value) = std::fs::read_to_string(path) {
            state.insert(path.display().to_string(), value);
        }
    });
    let mut pinned = Vec::new();
    walk(Path::new("/sys/fs/bpf"), &mut |path| {
        pinned.push(path.display().to_string());
    });
    state.insert("pinned BPF objects".to_owned(), pinned.join("\n"));
    let mut groups = Vec::new();
    directories(Path::new("/sys/fs/cgroup"), &mut groups);
    groups.sort();
    state.insert("control groups".to_owned(), groups.join("\n"));
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let held = processes.flat_map(|entry| bpf_objects(&entry.path()));
    let held: BTreeSet<_> = held.collect();
    let held: Vec<_> = held.into_iter().collect();
    state.insert("BPF objects".to_owned(), held.join("\n"));
    state
}

/// Removes the timers of bridges, which run.
fn without_timers(text: &str) -> String {
    let mut is_time = false;
    let words = text.split_inclusive([' ', '\n']).filter(|word| {
        let skip = std::mem::replace(&mut is_time, word.trim_end().ends_with("_timer"));
        !skip
    });
    words.collect()
}

/// The ids of BPF objects that a process holds.
fn bpf_objects(process: &Path) -> Vec<String> {
    let descriptors = std::fs::read_dir(process.join("fdinfo"));
    let descriptors = descriptors.into_iter().flatten().flatten();
    let texts = descriptors.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    let is_id = |line: &&str| {
        ["prog_id:", "map_id:", "link_id:", "btf_id:"]
            .iter()
            .any(|key| line.starts_with(key))
    };
    texts
        .flat_map(|text| {
            let ids = text.lines().filter(is_id).map(str::to_owned);
            ids.collect::<Vec<_>>()
        })
        .collect()
}

fn walk(directory: &Path, take: &mut impl FnMut(&Path)) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&path, take),
            Ok(kind) if kind.is_file() => take(&path),
            _ => {}
        }
    }
}

fn directories(directory: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.push(entry.path().display().to_string());
            directories(&entry.path(), found);
        }
    }
}

/// Returns what `why` changed: `run` starts it and ends it. Counters are the settings that change
/// before. Others may change something meanwhile, but not each time.
fn changes(run: impl Fn()) -> Vec<String> {
    let mut changed = Vec::new();
    for _ in 0..4 {
        let first = host_state();
        let before = host_state();
        run();
        // The kernel frees BPF objects some time after their last holder has gone.
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            let after = host_state();
            let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
            let differs = |name: &&&String| {
                let is_counter =
                    name.starts_with("/proc/sys") && first.get(**name) != before.get(**name);
                !is_counter && before.get(**name) != after.get(**name)
            };
            let differing = names.iter().filter(differs);
            let show = |name: &&String| {
                let value = |state: &BTreeMap<String, String>| state.get(*name).cloned();
                format!("{name}: {:?} -> {:?}", value(&before), value(&after))
            };
            changed = differing.map(show).collect();
            if changed.is_empty() {
                return changed;
            }
            if Instant::now() > end {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    changed
}

#[test]
fn why_leaves_the_host_unchanged_even_when_killed() {
    let test = "why_leaves_the_host_unchanged_even_when_killed";
    let Some([victim, _idle]) = containers(test, "0 1000") else {
        return;
    };
    let start = |time: &str| {
        let mut command = Command::new(PROGRAM);
        let command = command.args(["why", victim.name(), "--for", time]);
        command.stdout(Stdio::null()).spawn().unwrap()
    };
    let whole = changes(|| {
        start("1s").wait().unwrap();
    });
    assert!(whole.is_empty(), "{whole:#?}");
    let killed = changes(|| {
        let mut why = Load(start("600s"));
        let process = PathBuf::from(format!("/proc/{}", why.0.id()));
        let end = Instant::now() + Duration::from_secs(30);
        // It holds BPF links while it measures.
        while !bpf_objects(&process)
            .iter()
            .any(|id| id.starts_with("link_id"))
        {
            assert!(Instant::now() < end, "it holds no BPF objects");
            std::thread::sleep(Duration::from_millis(20));
        }
        // The time in which it measures.
        std::thread::sleep(Duration::from_millis(1_500));
        why.0.kill().unwrap();
    });
    assert!(killed.is_empty(), "{killed:#?}");
}
