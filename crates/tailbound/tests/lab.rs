//! The lab from outside: runs that are shortened, interrupted and broken.
//!
//! The runs share two CPUs and check for each other's processes, so one runs at a time.

#[path = "lab/experiments.rs"]
mod experiments;
mod program;

use experiments::{PLACED, PROBE, TOOLS, WORKFLOWS};
use program::{CommandOutput, tailbound, words};
use std::fs;
use std::io::Read;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tailbound_report::{Results, Verdict};
use tailbound_sys::probe::required::{Part, skipped};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The program in a temporary directory of its own, or why it cannot run here.
struct Lab {
    directory: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Lab {
    fn new() -> Option<Self> {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let unshare = Command::new("unshare")
            .args(["--user", "--map-root-user", "--net", "true"])
            .output();
        let root = rustix::process::geteuid().is_root();
        if !root && !unshare.is_ok_and(|output| output.status.success()) {
            skipped(Part::NetworkNamespaces, "user namespaces are not allowed");
            return None;
        }
        if Command::new("ip").arg("-V").output().is_err() {
            skipped(Part::Ip, "iproute2 is not installed");
            return None;
        }
        wait_for("another lab on this machine", || !another_runs());
        let directory = tempfile::tempdir().unwrap();
        Some(Self {
            directory,
            _turn: turn,
        })
    }

    fn command(&self, line: &str) -> Command {
        let mut command = tailbound();
        command
            .arg("lab")
            .args(words(line))
            .current_dir(self.directory.path())
            .env("TMPDIR", self.directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn output(&self, line: &str) -> CommandOutput {
        CommandOutput::new(self.command(line).output().unwrap())
    }

    /// Runs an experiment, and returns its results. The exit code may be any.
    fn results(&self, line: &str) -> Results {
        let output = self.output(&format!("run {line} --output json"));
        let results = serde_json::from_str(&output.out);
        results.unwrap_or_else(|error| panic!("{error}: {}", output.err))
    }

    /// Starts a long run and waits until its load runs.
    fn start(&self, line: &str) -> Child {
        let lab = self.command(line).spawn().unwrap();
        wait_for("guests", || {
            Self::children(&lab)
                .iter()
                .any(|pid| command_line(*pid).contains("task1.task.json"))
        });
        std::thread::sleep(Duration::from_millis(500));
        lab
    }

    /// The processes that carry the mark of `lab`.
    fn children(lab: &Child) -> Vec<u32> {
        let mark = format!("TAILBOUND_LAB={}.", lab.id());
        processes()
            .into_iter()
            .filter(|pid| environment(*pid).contains(&mark))
            .collect()
    }

    fn run_directory(&self, lab: &Child) -> PathBuf {
        self.directory
            .path()
            .join(format!("tailbound-lab-{}", lab.id()))
    }
}

/// Returns true if another user's lab runs on this computer.
fn another_runs() -> bool {
    let name = SocketAddr::from_abstract_name("tailbound-lab").unwrap();
    UnixStream::connect_addr(&name).is_ok()
}

fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap();
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

fn environment(pid: u32) -> String {
    String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/environ")).unwrap_or_default())
        .into_owned()
}

fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

fn wait_for(what: &str, mut come: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_mins(2);
    while !come() {
        assert!(Instant::now() < end, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

fn finish(mut lab: Child) -> (Option<i32>, String) {
    let mut stderr = String::new();
    lab.stderr
        .take()
        .unwrap()
        .read_to_string(&mut stderr)
        .unwrap();
    (lab.wait().unwrap().code(), stderr)
}

fn results(directory: &Path, name: &str) -> Results {
    Results::read(&directory.join(format!("out/{name}.json"))).unwrap()
}

#[test]
fn a_shortened_experiment_runs_end_to_end_and_writes_its_report() {
    let Some(lab) = Lab::new() else { return };
    // On a machine that stands still for a while, what a second shows says little of the rest.
    let mut shown = String::new();
    let holds = ["1s", "2s", "8s"].into_iter().any(|duration| {
        let began = Instant::now();
        let output = lab.output(&format!(
            "run host-queue --duration {duration} --variants free,segmented"
        ));
        let code = output.code.unwrap();
        assert!(code <= 2, "{}", output.err);
        let results = results(lab.directory.path(), "host-queue");
        assert_eq!(results.variants.len(), 2, "{}", output.err);
        let seconds: u64 = duration.trim_end_matches('s').parse().unwrap();
        let mut answered = Vec::new();
        for variant in &results.variants {
            let rtt = &variant.series["rtt"];
            let sent = rtt.all.count + rtt.unanswered;
            assert_eq!(sent, 100 * seconds, "{}", variant.name);
            answered.push(rtt.all.count);
        }
        assert!(lab.directory.path().join("out/host-queue.html").exists());
        assert!(output.out.contains("out/host-queue.html"));
        // A line each ten seconds, as there is no terminal.
        let lines: Vec<_> = output.err.lines().collect();
        let is_progress = |line: &&str| line.starts_with("lab host-queue: ");
        assert!(lines.iter().all(is_progress), "{lines:?}");
        let tens = began.elapsed().as_secs() / 10;
        assert!(lines.len() as u64 <= tens, "{tens}: {lines:?}");
        // Two variants of eight seconds each take more than ten.
        assert!(duration != "8s" || !lines.is_empty(), "no progress");
        let report = output.out.lines();
        let report = report.filter(|line| !line.starts_with("failed  "));
        assert!(report.count() <= 8, "{}", output.out);
        // The link is 100 Mbit/s: far more would mean that it is not emulated, far less that
        // nothing gets through. A receiver that got no core for a while counts what waited, too.
        let bulk = results.variants[1].values["bulk_bit_s"].value;
        shown = format!("{duration}: answered {answered:?}, {bulk} bit/s");
        (10e6..200e6).contains(&bulk) && answered.iter().all(|count| *count > 90 * seconds)
    });
    assert!(holds, "{shown}");
}

#[test]
fn queries_are_answered_through_the_switch_with_both_sizes() {
    let Some(lab) = Lab::new() else { return };
    // 10 MB take 0.8 s at 100 Mbit/s, and longer on a machine that is busy with other things.
    let results = ["2s", "8s", "20s"].into_iter().find_map(|duration| {
        let flags = format!("--duration {duration} --variants tags-honoured-60");
        let results = lab.results(&format!("switch-queue {flags}"));
        let is_enough = results.variants[0].series["large_fct"].all.count >= 1;
        is_enough.then_some(results)
    });
    let results = results.expect("a large flow ends within 20 s");
    let series = &results.variants[0].series;
    assert_eq!(series["small_fct"].unanswered, 0);
    assert!(series["small_fct"].all.count > 300);
    assert!(series["large_fct"].all.p50 > 790_000_000);
    assert_eq!(
        results.verdict,
        Verdict::NotTested,
        "nothing to compare with"
    );
}

#[test]
fn a_reserved_guest_keeps_the_shared_core_or_reports_the_reason() {
    let Some(lab) = Lab::new() else { return };
    lab.output("run vcpu --duration 400ms --repeat 2");
    let results = results(lab.directory.path(), "vcpu");
    let periodic = results.variant("periodic").unwrap();
    match &periodic.unavailable {
        Some(why) => unavailable(Part::SchedDeadline, "periodic", why),
        None => assert!(periodic.values["shared_core_share"].value >= 0.99),
    }
    let wakeup = &results.variant("default").unwrap().series["wakeup"];
    assert!(wakeup.spread.as_ref().unwrap().contains_key("p99"));
}

#[test]
fn messages_to_a_reserved_guest_have_a_bound_with_its_vcpu_in_it() {
    let Some(lab) = Lab::new() else { return };
    lab.output("run reserved --duration 200ms --variants reserved");
    let results = results(lab.directory.path(), "reserved");
    let reserved = results.variant("reserved").unwrap();
    if let Some(why) = &reserved.unavailable {
        return unavailable(Part::SchedDeadline, "reserved", why);
    }
    // P + D - 2Q alone is 6 ms.
    assert!(reserved.bounds["latency"][0].value > 6_000_000);
    let latency = &reserved.series["latency"];
    assert_eq!(latency.all.count + latency.unanswered, 100);
    let over = ["over_bound", "over_bound_by_machine"].map(|name| reserved.values[name].value);
    assert!(over.iter().sum::<f64>() <= latency.all.count as f64);
}

#[test]
fn each_variant_runs_its_neighbours_or_reports_its_refusal() {
    let Some(lab) = Lab::new() else { return };
    let output = lab.output(
        "run vcpu-classes --duration 1s --variants default-1,default-3,slice-3,periodic-3 --keep",
    );
    let left = kept(lab.directory.path());
    let results = results(lab.directory.path(), "vcpu-classes");
    let mut arrivals = None;
    for variant in &results.variants {
        if let Some(why) = &variant.unavailable {
            let part = match variant.name.split('-').next().unwrap() {
                "slice" => Part::CustomSlice,
                "periodic" => Part::SchedDeadline,
                name => panic!("{name} needs nothing, and: {why}"),
            };
            unavailable(part, &variant.name, why);
            continue;
        }
        let wakeup = &variant.series["wakeup"];
        // Arrivals follow from the seed alone.
        let expected = *arrivals.get_or_insert(wakeup.all.count);
        assert_eq!(wakeup.all.count, expected, "{}", variant.name);
        assert!((600..750).contains(&expected), "{expected}");
        let tasks = left
            .iter()
            .filter(|file| file.starts_with(&format!("{}-task", variant.name)))
            .filter(|file| file.ends_with(".outcome.json"));
        let neighbours: usize = variant.name.rsplit('-').next().unwrap().parse().unwrap();
        assert_eq!(tasks.count(), 1 + neighbours, "{}: {left:?}", variant.name);
        // However many they are, they have one core.
        let share = variant.values["hog_cpu"].value;
        assert!((10.0..101.0).contains(&share), "{}: {share}", variant.name);
    }
    let chart = results
        .charts
        .iter()
        .find(|chart| chart.name == "p99_9_wakeup");
    let default = &chart.unwrap().lines[0];
    let counts: Vec<f64> = default.points.iter().map(|point| point.0).collect();
    assert_eq!((default.name.as_str(), counts), ("default", vec![1.0, 3.0]));
    assert!(output.code.is_some(), "{}", output.err);
}

/// Skips a variant without figures, with its reason. A variant that ran is not skipped if the
/// kernel placed its guest elsewhere: the lab must report this.
fn unavailable(part: Part, variant: &str, why: &str) {
    if !why.starts_with("the kernel ran the guest with the reservation elsewhere") {
        skipped(part, format_args!("{variant}: {why}"));
    }
}

/// The files of a run that kept them.
fn kept(directory: &Path) -> Vec<String> {
    let list = |path: &Path| {
        let entries = fs::read_dir(path).unwrap();
        entries
            .map(|entry| entry.unwrap().path())
            .collect::<Vec<_>>()
    };
    let is_run = |path: &PathBuf| path.to_string_lossy().contains("tailbound-lab-");
    let runs = list(directory).into_iter().filter(is_run);
    runs.flat_map(|run| list(&run))
        .map(|file| file.file_name().unwrap().to_string_lossy().into_owned())
        .collect()
}

/// Returns the flag for the kernel of scripts/guest-kernel, if one was built.
fn guest_kernel() -> String {
    let kernel = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../target/tools/guest-kernel"
    );
    if Path::new(kernel).exists() {
        format!("--guest-kernel {kernel}")
    } else {
        String::new()
    }
}

#[test]
#[ignore = "five runs of virtual machines: five minutes"]
fn messages_between_machines_stay_below_their_bound_in_each_of_five_runs() {
    let Some(lab) = Lab::new() else { return };
    for run in 1..=5 {
        let results = lab.results(&format!("machines {}", guest_kernel()));
        for variant in &results.variants {
            if let Some(why) = &variant.unavailable {
                unavailable(Part::GuestKernel, &variant.name, why);
                continue;
            }
            let ring = &variant.series["ring"].stats;
            assert!(
                ring.count > 100,
                "run {run}, {}: {}",
                variant.name,
                ring.count
            );
            let bounds = variant.bounds.get("ring").into_iter().flatten();
            for bound in bounds.filter(|_| variant.name == "protected") {
                assert!(
                    ring.max <= bound.value,
                    "run {run}, {}: {} ns of {}",
                    variant.name,
                    ring.max,
                    bound.value
                );
            }
        }
    }
}

#[test]
fn the_probe_is_run_in_a_guest_until_its_verdict() {
    let Some(lab) = Lab::new() else { return };
    fs::write(lab.directory.path().join("short.toml"), PROBE).unwrap();
    let results = lab.results(&format!("short.toml {}", guest_kernel()));
    for variant in &results.variants {
        if let Some(why) = &variant.unavailable {
            let part = match variant.name.as_str() {
                "held" => Part::SchedFifo,
                "machine" => Part::GuestKernel,
                name => panic!("{name} needs nothing, and: {why}"),
            };
            unavailable(part, &variant.name, why);
            continue;
        }
        let line = results.conditions[&format!("probe_{}", variant.name)].as_str();
        let word = line.unwrap().split_whitespace().next().unwrap();
        let value = |name: &str| variant.values[name].value;
        assert_eq!(
            value("good") > 0.5,
            word == "GOOD",
            "{}: {line:?}",
            variant.name
        );
        assert_eq!(
            value("bad") > 0.5,
            word == "BAD",
            "{}: {line:?}",
            variant.name
        );
        let sleeps = &variant.series["sleep"].all;
        assert!(sleeps.p50 > 100_000, "{}: {}", variant.name, sleeps.p50);
        if variant.name == "held" {
            // Ten times a second somebody has the core for 10 ms.
            assert!(sleeps.max > 10_000_000, "{}", sleeps.max);
            assert_ne!(word, "GOOD", "{line:?}");
        }
    }
}

#[test]
fn workflows_run_to_nodes_with_busy_neighbours() {
    let Some(lab) = Lab::new() else { return };
    fs::write(lab.directory.path().join("short.toml"), WORKFLOWS).unwrap();
    let results = lab.results("short.toml");
    let selected = results.variant("selected").unwrap();
    if let Some(why) = &selected.unavailable {
        // Not because none was kept.
        assert!(why.contains("CAP_SYS_NICE"), "{why}");
        return unavailable(Part::SchedFifo, "selected", why);
    }
    let value = |name: &str| selected.values[name].value as u32;
    assert!((1..=2).contains(&value("found_good")), "{selected:?}");
    assert_eq!((value("kept"), value("kept_on_shared_core")), (1, 0));
    let count = |name: &str| {
        let series = &selected.series[name];
        series.all.count + series.unanswered
    };
    // Poisson, with means of 20 and 80: five standard deviations.
    assert!((1..=43).contains(&count("sequences")), "{selected:?}");
    assert!((35..=125).contains(&count("fan_outs")), "{selected:?}");
}

#[test]
fn placed_runs_state_the_promised_bound_or_the_refusal() {
    let Some(lab) = Lab::new() else { return };
    fs::write(lab.directory.path().join("placed.toml"), PLACED).unwrap();
    let results = lab.results("placed.toml --variants admitted");
    let admitted = &results.variants[0];
    let latency = &admitted.series["latency"];
    assert_eq!(latency.all.count + latency.unanswered, 25);
    // 6,152 B at the 49 Mbit/s of the pacer, and the delay that the service told.
    let promised = admitted.bounds["latency"].iter();
    let promised: Vec<u64> = promised
        .filter(|bound| bound.name == "promised")
        .map(|bound| bound.value)
        .collect();
    assert_eq!(promised, [20_000_000 + 1_004_409]);

    let said = lab.output("run placed.toml --variants refused").failed(2);
    assert!(said.contains("tailbound place create"), "{said}");
    assert!(said.contains("delay"), "{said}");
}

#[test]
fn a_second_lab_is_refused_while_one_runs() {
    let Some(lab) = Lab::new() else { return };
    let mut first = lab.start("run host-queue --duration 60s");
    let stderr = lab.output("run vcpu --duration 1s").failed(2);
    let expected = format!("another lab runs on this machine (process {})", first.id());
    assert!(stderr.contains(&expected), "{stderr}");
    first.kill().unwrap();
    first.wait().unwrap();
    lab.output("clean");
}

#[test]
fn a_killed_daemon_ends_the_run_with_its_name_and_leaves_nothing() {
    let Some(lab) = Lab::new() else { return };
    let run = lab.start("run host-queue --duration 60s");
    let children = Lab::children(&run);
    let is_daemon = |pid: &&u32| {
        command_line(**pid).contains("host --config") && command_line(**pid).contains("/B.toml")
    };
    let daemon = children.iter().find(is_daemon).unwrap();
    signal(*daemon, rustix::process::Signal::KILL);
    let directory = lab.run_directory(&run);
    let (code, stderr) = finish(run);
    assert_eq!(code, Some(2), "{stderr}");
    let expected = format!("host B's daemon (process {daemon}) died: killed by SIGKILL");
    assert!(stderr.contains(&expected), "{stderr}");
    assert!(children.iter().all(|pid| !alive(*pid)), "children are left");
    assert!(!directory.exists());
}

fn alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

#[test]
fn an_interrupt_ends_the_children_and_the_run() {
    let Some(lab) = Lab::new() else { return };
    for (sent, expected) in [
        (rustix::process::Signal::INT, 130),
        (rustix::process::Signal::TERM, 143),
    ] {
        let run = lab.start("run host-queue --duration 60s");
        let children = Lab::children(&run);
        assert!(children.len() > 3, "{children:?}");
        let directory = lab.run_directory(&run);
        signal(run.id(), sent);
        let (code, stderr) = finish(run);
        assert_eq!(code, Some(expected), "{stderr}");
        assert!(children.iter().all(|pid| !alive(*pid)), "children are left");
        assert!(!directory.exists());
    }
}

#[test]
fn a_killed_lab_leaves_no_process_and_clean_removes_its_directory() {
    let Some(lab) = Lab::new() else { return };
    let mut run = lab.start("run host-queue --duration 60s");
    let children = Lab::children(&run);
    let directory = lab.run_directory(&run);
    // While it runs there is nothing to clean.
    let output = lab.output("clean");
    assert_eq!(output.out, "nothing was left behind\n");
    assert!(directory.exists());

    run.kill().unwrap();
    run.wait().unwrap();
    wait_for("the children's end", || {
        !children.iter().any(|pid| alive(*pid))
    });
    assert!(directory.exists());
    let output = lab.output("clean");
    assert!(
        output
            .out
            .contains(&format!("removed {}", directory.display()))
    );
    assert!(!directory.exists());
}

#[test]
fn clean_ends_processes_of_a_lab_that_is_gone() {
    let Some(lab) = Lab::new() else { return };
    // Process 1 did not start at tick 1 of a machine that runs this test.
    let mut stray = Command::new("sleep")
        .arg("60")
        .env("TAILBOUND_LAB", "1.1")
        .spawn()
        .unwrap();
    let output = lab.output("clean");
    assert!(
        output
            .out
            .contains(&format!("killed process {}", stray.id()))
    );
    assert_eq!(stray.wait().unwrap().code(), None);
}

#[test]
fn a_wrong_experiment_names_file_line_and_column() {
    let Some(lab) = Lab::new() else { return };
    let shown = lab.output("show vcpu");
    let wrong = shown.out.replace("mean_gap = \"5ms\"", "mean_gap = \"5\"");
    let path = lab.directory.path().join("wrong.toml");
    fs::write(&path, wrong).unwrap();
    let stderr = lab.output("run wrong.toml").failed(2);
    assert!(
        stderr.contains("wrong.toml:18:12: \"5\" has no unit"),
        "{stderr}"
    );
}

#[test]
fn installed_programs_can_be_the_load() {
    let Some(lab) = Lab::new() else { return };
    for part in [Part::Iperf3, Part::Memcached] {
        if Command::new(part.name()).arg("--version").output().is_err() {
            skipped(part, "it is not installed");
            return;
        }
    }
    fs::write(lab.directory.path().join("tools.toml"), TOOLS).unwrap();
    let output = lab.output("run tools.toml --output json").done();
    let results: Results = serde_json::from_str(&output).unwrap();
    let variant = &results.variants[0];
    let values = &variant.values;
    assert!(variant.series["fct"].all.count > 50, "{variant:?}");
    assert!((50.0..150.0).contains(&values["rate"].value), "{values:?}");
    assert!(values["jitter"].value < 100.0, "{values:?}");
}
