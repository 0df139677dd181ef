//! The effect of a class on a guest in a pod beside ten other pods with a hog each, compared with
//! the same guest in a group at the top.
//!
//! `cargo run --release -p tailbound-agent --example pods` (root, and no kubelet on the
//! machine; five minutes)
//!
//! The guest is one thread that sleeps 1.5 to 4.5 ms and computes for 0.1 ms; the hogs share all
//! CPUs with it. All are in groups as the kubelet creates them:
//! `kubepods/burstable/podUID/CONTAINER`. Lateness is the time from the timer to the run of the
//! thread. The lateness without other pods is that of this computer.

use std::error::Error;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tailbound_agent::budget::desired;
use tailbound_agent::scan::Scanner;
use tailbound_agent::{Agent, AgentConfig};
use tailbound_sys::cgroup::Mounts;
use tailbound_sys::root::Root;

const HOGS: usize = 10;
const ROUNDS: usize = 5;
const SECONDS: u64 = 12;
const PERIODIC: &str = "class = { kind = \"periodic\", runtime = \"1ms\", deadline = \"4ms\", \
                        period = \"4ms\" }";

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1).as_deref() {
        Some("hog") => loop {
            std::hint::spin_loop();
        },
        Some("guest") => return guest(),
        _ => {}
    }
    let variants = [
        ("beside nobody", true, "level = \"normal\"", 0),
        ("normal, in a pod", true, "level = \"normal\"", HOGS),
        ("high, in a pod", true, "level = \"high\"", HOGS),
        ("high, at the top", false, "level = \"high\"", HOGS),
        ("periodic, in a pod", true, PERIODIC, HOGS),
    ];
    println!("{HOGS} hogs, each in a group beside it, {SECONDS} s each; median of {ROUNDS}, in us");
    println!("{:<20} {:>7} {:>7} {:>7}", "", "p50", "p99", "p99.9");
    let mut seen = vec![Vec::new(); variants.len()];
    for _ in 0..ROUNDS {
        for (found, (_, nested, class, hogs)) in seen.iter_mut().zip(variants) {
            found.push(measure(nested, class, hogs)?);
        }
    }
    for (found, (name, ..)) in seen.iter().zip(variants) {
        let median = |column: usize| {
            let mut values: Vec<_> = found.iter().map(|run| run[column]).collect();
            values.sort_unstable();
            values[values.len() / 2]
        };
        let [p50, p99, p999] = [0, 1, 2].map(median);
        println!("{name:<20} {p50:>7} {p99:>7} {p999:>7}");
    }
    Ok(())
}

/// Groups that are removed at the end.
struct Groups(Vec<PathBuf>);

impl Groups {
    /// Makes a group and those above it, and hands the cpu controller down to it.
    fn make(&mut self, root: &Path, path: &str) -> std::io::Result<PathBuf> {
        let mut at = root.to_owned();
        for name in path.split('/') {
            // Version 1 hands down nothing, and needs not to.
            let _ = fs::write(at.join("cgroup.subtree_control"), "+cpu");
            at.push(name);
            if !at.exists() {
                fs::create_dir(&at)?;
                self.0.push(at.clone());
            }
        }
        Ok(at)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for group in self.0.iter().rev() {
            let _ = fs::remove_dir(group);
        }
    }
}

/// Processes that end with this.
struct Running(Vec<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn start(what: &str, group: &Path) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    let child = command
        .arg(what)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let child = child.spawn()?;
    fs::write(group.join("cgroup.procs"), child.id().to_string())?;
    Ok(child)
}

/// The guest's 50th, 99th and 99.9th percentile, in microseconds.
fn measure(nested: bool, class: &str, hogs: usize) -> Result<[u64; 3], Box<dyn Error>> {
    let mounts = Mounts::read(&Root::default())?;
    let root = mounts.legacy("cpu").or(mounts.unified.as_deref());
    let root = root.ok_or("no hierarchy has the cpu controller")?;
    let group = |name: &str| {
        if nested {
            format!("kubepods/burstable/pod{name}/{}", name.repeat(16))
        } else {
            format!("tailbound-{name}")
        }
    };
    if root.join("kubepods").exists() {
        return Err("there is a kubelet here".into());
    }
    let mut groups = Groups(Vec::new());
    let own = groups.make(root, &group("aaaa"))?;
    let mut running = Running(Vec::new());
    for hog in 0..hogs {
        let other = groups.make(root, &group(&format!("b{hog:03}")))?;
        running.0.push(start("hog", &other)?);
    }
    running.0.push(start("guest", &own)?);
    let guest = running.0.last_mut().ok_or("it was started")?;
    let mut lines = BufReader::new(guest.stdout.take().ok_or("a pipe")?).lines();
    lines.next().ok_or("the guest ended")??;

    let rules = format!("[[guest]]\npid = {}\n{class}\n", guest.id());
    let rules = AgentConfig::parse(&rules)
        .map_err(|wrong| format!("{wrong:?}"))?
        .rules;
    let mut scanner = Scanner::new()?;
    let guests = scanner.scan(&rules)?;
    let state = std::env::temp_dir().join(format!("tailbound-{}.json", std::process::id()));
    let mut agent = Agent::open(&state)?;
    let wanted = desired(&rules, &guests, scanner.cpus()?, |_| false);
    let plan = agent.plan(&wanted.desired)?;
    agent.apply(&plan)?;
    drop(guest.stdin.take());
    let seen = lines.next().ok_or("the guest ended")??;
    agent.restore()?;
    drop(running);
    let mut numbers = seen.split(' ').map(str::parse);
    let mut next = || numbers.next().ok_or("three numbers");
    Ok([next()??, next()??, next()??])
}

/// The guest: reports its start, waits until its input ends, and reports its lateness.
fn guest() -> Result<(), Box<dyn Error>> {
    println!("ready");
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let mut late = Vec::new();
    let mut random = 88_172_645_463_325_252_u64;
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(SECONDS) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let pause = Duration::from_micros(1500 + random % 3000);
        let due = Instant::now() + pause;
        std::thread::sleep(pause);
        late.push(due.elapsed().as_micros());
        let ran = cpu_time() + Duration::from_micros(100);
        while cpu_time() < ran {
            std::hint::spin_loop();
        }
    }
    late.sort_unstable();
    let at = |share: f64| late[((late.len() as f64 * share) as usize).min(late.len() - 1)];
    println!("{} {} {}", at(0.5), at(0.99), at(0.999));
    Ok(())
}

fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let (seconds, nanos) = (now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned());
    Duration::from_secs(seconds) + Duration::from_nanos(nanos)
}
