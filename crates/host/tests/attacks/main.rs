//! Two honest guests with a guarantee beside each known attack: their probes' 99th percentile
//! during the attack is at most 1.2 times that of the idle windows of the same run, and a flow of
//! 10 Mbit/s keeps 99 % of its rate.
//!
//! The packet loop and the prober have one CPU, and the attack has another one, so that only the
//! daemon can make a probe late. If the kernel itself is the limit, a Linux bridge with the
//! same ports is the control.
//!
//! `cargo test --release -p tailbound-host --test attacks -- --nocapture --test-threads 1`;
//! `TAILBOUND_ATTACK_PAIRS` sets the pairs of windows (3, each 0.8 s). With more, the controls are
//! measured as well if no attack exceeds its bound.

mod bridge;
mod cards;
#[path = "../../../vhost/tests/support/mod.rs"]
mod machine;
mod measure;
mod moves;
mod noise;
#[path = "../support/mod.rs"]
mod support;
mod verdict;

use bridge::Bridge;
use measure::{EndAtLast, Phase, Prober, Run, WINDOW};
use moves::{Attack, Connections, Filters, Frames, Spin};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};
use support::{Daemon, Guest, Kind, MEASURED, METRICS, Nic, command, kinds, plugged_in, sandboxed};
use tailbound_sys::cpuset::{Cpus, affinity, set_affinity};
use verdict::Verdict;

/// The numbers of guests: their MAC and IP addresses end in them.
const HOSTILE: u8 = 3;
const NEIGHBOUR: u8 = 4;
const THIRD: u8 = 5;

/// Silent guests of the attack with broadcasts.
const SILENT: u8 = 37;

/// Not a test of its own: the process of the daemon below.
#[test]
fn daemon_process() {
    support::daemon_process();
}

/// Pairs of windows in CI: 1,050 probes of each kind.
const PAIRS: u32 = 3;

fn pairs() -> u32 {
    let pairs = std::env::var("TAILBOUND_ATTACK_PAIRS");
    pairs.map_or(PAIRS, |text| text.parse().expect("a whole number"))
}

/// The interval at which the daemon's descriptors are counted.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Steps at a rate, without a sleep.
pub(crate) struct Pace {
    every: Duration,
    due: Instant,
}

impl Pace {
    pub(crate) fn each(every: Duration) -> Self {
        Self {
            every,
            due: Instant::now(),
        }
    }

    /// Waits for the next step; steps that are late are left out.
    pub(crate) fn wait(&mut self) {
        while Instant::now() < self.due {
            std::hint::spin_loop();
        }
        self.due = (self.due + self.every).max(Instant::now());
    }
}

/// The CPU of the packet loop and the prober, and that of the attack.
#[derive(Clone, Copy)]
struct Places {
    path: u32,
    attack: u32,
}

/// `None` on one CPU, where an attacker's own CPU time delays all others.
fn places() -> Option<Places> {
    let cpus = affinity(0).expect("it runs somewhere");
    let mut cpus = cpus.iter();
    let places = cpus.next().zip(cpus.next());
    if places.is_none() {
        eprintln!("{MEASURED}nothing, as there is one CPU only");
    }
    places.map(|(path, attack)| Places { path, attack })
}

/// The ports of a daemon.
struct Bench {
    victims: [Guest; 2],
    third: Guest,
    directory: tempfile::TempDir,
    silent: u8,
}

impl Bench {
    fn new(victims: Kind, third: Kind, silent: u8) -> Self {
        // The kernel's own ends of TAPs would send to groups in the idle windows.
        for which in ["all", "default"] {
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"), "1");
        }
        let veth = ["link", "add", "up0", "type", "veth", "peer", "name", "far0"];
        command("ip", &veth);
        for end in ["up0", "far0"] {
            command("ip", &["link", "set", end, "up"]);
        }
        plugged_in("up0", None);
        Self {
            victims: [1, 2].map(|number| Guest::new(victims, number)),
            third: Guest::new(third, THIRD),
            directory: tempfile::tempdir().expect("a directory"),
            silent,
        }
    }

    fn socket(&self, number: u8) -> PathBuf {
        self.directory.path().join(format!("card{number}"))
    }

    /// Two guests with a guarantee, one guest without, two cards, and silent TAPs.
    fn config(&self, cpu: u32) -> String {
        let guarantee = "guarantee = { bandwidth = \"20Mbit/s\", burst = \"15KB\", \
                         burst_rate = \"100Mbit/s\" }\n";
        let mut config = format!(
            "metrics = {METRICS:?}\ncpu = {cpu}\n\
             [uplink]\nport = {{ kind = \"af-packet\", interface = \"up0\" }}\n\
             pacer = {{ link = \"1Gbit/s\" }}\n"
        );
        for victim in &self.victims {
            config += &victim.section();
            config += guarantee;
        }
        config += &self.third.section();
        for number in [HOSTILE, NEIGHBOUR] {
            let socket = self.socket(number);
            let _ = write!(
                config,
                "[[guest]]\nname = \"card{number}\"\nmac = \"02:00:00:00:00:{number:02x}\"\n\
                 ip = [\"10.77.0.{number}\"]\n\
                 port = {{ kind = \"vhost-user\", socket = \"{}\" }}\n",
                socket.display()
            );
        }
        for number in 0..self.silent {
            let _ = write!(
                config,
                "[[guest]]\nname = \"silent{number}\"\nmac = \"06:00:00:00:00:{number:02x}\"\n\
                 ip = [\"10.78.0.{number}\"]\n\
                 port = {{ kind = \"tap\", interface = \"silent{number}\" }}\n"
            );
        }
        config
    }

    fn victims(&self) -> [&Guest; 2] {
        let [one, two] = &self.victims;
        [one, two]
    }
}

/// Measures beside an attack, and returns how much of that was done and the most descriptors of the
/// daemon. Both threads make what they need by themselves, as a packet's buffers stay on a thread.
fn measure(
    daemon: Option<&Daemon>,
    victims: [&Guest; 2],
    attack: impl FnOnce() -> Box<dyn Attack> + Send,
    places: Places,
) -> (Run, u64, usize) {
    let phase = Phase::default();
    let (ready, is_ready) = channel();
    thread::scope(|scope| {
        let attacker = scope.spawn(|| {
            set_affinity(0, &Cpus::one(places.attack)).expect("a CPU that this thread may have");
            let mut attack = attack();
            ready.send(()).expect("the prober waits");
            moves::attack(&mut *attack, &phase)
        });
        let prober = scope.spawn(|| {
            let _end = EndAtLast(&phase);
            let mut prober = Prober::new(victims, daemon, places.path);
            prober.wait_until_they_pass();
            let is_ready = is_ready;
            is_ready.recv().expect("the attack is made");
            prober.run(pairs(), &phase)
        });
        let mut most = 0;
        while !phase.is_over() {
            most = most.max(daemon.map_or(0, Daemon::descriptors));
            thread::sleep(LOOK_EVERY);
        }
        let run = prober.join().expect("no panic");
        (run, attacker.join().expect("no panic"), most)
    })
}

/// An attack on a daemon, by its name, and the ports that it takes.
struct Scene {
    name: &'static str,
    /// The kinds of the victims and of the third guest; `None` for a TAP if there is one.
    kinds: [Option<Kind>; 2],
    silent: u8,
    /// Steps that show that the attack took place, for each second of it.
    least: u64,
    /// The part of its CPU that the packet loop may have beyond what it has without the attack.
    most_more_cpu: f64,
    /// Descriptors that the daemon may open for it.
    most_descriptors: usize,
}

impl Scene {
    fn of(name: &'static str, least: u64) -> Self {
        Self {
            name,
            kinds: [None; 2],
            silent: 0,
            least,
            most_more_cpu: 1.0,
            most_descriptors: usize::MAX,
        }
    }

    /// Measures it.
    fn play(
        &self,
        attack: impl FnOnce(&Bench) -> Box<dyn Attack> + Send,
        places: Places,
    ) -> (Run, Verdict) {
        let kind = kinds()[0];
        let [victims, third] = self.kinds.map(|it| it.unwrap_or(kind));
        let bench = Bench::new(victims, third, self.silent);
        let mut daemon = Daemon::start(&bench.config(places.path));
        drop(bench.third.nic());
        let before = daemon.descriptors();
        let attack = || attack(&bench);
        let measured = measure(Some(&daemon), bench.victims(), attack, places);
        self.judge_descriptors(measured.2.saturating_sub(before));
        let left = daemon.metric("tailbound_loop_class_left_total");
        let left = left.unwrap_or_default();
        eprintln!(
            "{MEASURED}{}: the loop left its class {left} times",
            self.name
        );
        daemon.signal(rustix::process::Signal::TERM);
        assert!(daemon.wait().success(), "{}", daemon.log());
        self.report(measured)
    }

    /// Judges the descriptors that the daemon opened for the attack.
    fn judge_descriptors(&self, opened: usize) {
        let name = self.name;
        eprintln!("{MEASURED}{name}: {opened} descriptors more");
        assert!(
            opened <= self.most_descriptors,
            "{name}: {opened} descriptors"
        );
    }

    fn report(&self, (run, steps, _): (Run, u64, usize)) -> (Run, Verdict) {
        run.print(self.name);
        let seconds = (WINDOW * pairs()).as_secs_f64();
        // Programs beside the attack may take a tenth of its CPU.
        let least = (0.9 * seconds * self.least as f64) as u64;
        assert!(steps >= least, "{}: {steps} steps, not {least}", self.name);
        // A share of a CPU that others have slowed is larger with the attack and without.
        let (share, quiet) = (run.attack.loop_share(), run.idle.loop_share());
        assert!(
            share - quiet <= self.most_more_cpu,
            "{}: the loop had {share:.2} of its CPU, and {quiet:.2} without the attack",
            self.name
        );
        let verdict = run.verdict();
        (run, verdict)
    }
}

/// A verdict NOISY is printed, and no failure.
fn accept(name: &str, verdict: &Verdict) {
    assert!(!matches!(verdict, Verdict::Misses(_)), "{name} {verdict}");
}

/// Runs an attack with cards in a sandbox, and judges it.
fn attacked(test: &str, scene: &Scene, attack: impl FnOnce(&Bench) -> Box<dyn Attack> + Send) {
    sandboxed(test, || {
        let Some(places) = places() else { return };
        let (_, verdict) = scene.play(attack, places);
        accept(scene.name, &verdict);
    });
}

/// True if the control is measured, too: beside a miss, and in long runs.
fn wants_control(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Misses(_)) || pairs() > PAIRS
}

fn boxed(attack: impl Attack + 'static) -> Box<dyn Attack> {
    Box::new(attack)
}

/// The same on a bridge, as the bound if the kernel itself is the limit.
fn judge_beside(name: &str, run: &Run, verdict: &Verdict, control: &Run) {
    control.print(&format!("{name}, on a bridge"));
    let added = |run: &Run| {
        let [idle, attack] = [&run.idle, &run.attack].map(|it| it.whole(99));
        attack.saturating_sub(idle)
    };
    let is_bridges =
        matches!(control.verdict(), Verdict::Misses(_)) && added(run) <= added(control);
    if !is_bridges {
        accept(name, verdict);
    }
}

#[test]
#[ignore = "no attack; measures"]
fn n00_the_cpu_time_of_an_attack_alone() {
    sandboxed("n00_the_cpu_time_of_an_attack_alone", || {
        let Some(places) = places() else { return };
        // Not judged: no attack, but the noise of this computer.
        let _ = Scene::of("n00 control, CPU time alone", 1).play(|_| boxed(Spin), places);
    });
}

#[test]
fn n01_calls_that_wait() {
    let scene = Scene::of("n01 calls that wait", 200);
    attacked("n01_calls_that_wait", &scene, |bench| {
        let frame = cards::frame(THIRD, HOSTILE, 60);
        boxed(cards::WaitingCalls::new(&bench.socket(HOSTILE), frame))
    });
}

#[test]
fn n02_chains_of_empty_descriptors() {
    // The card breaks the ring again and again, and the attack restarts it.
    let scene = Scene::of("n02 chains of 510 empty descriptors", 500);
    attacked("n02_chains_of_empty_descriptors", &scene, |bench| {
        let socket = bench.socket(HOSTILE);
        boxed(cards::LongChains::new(&socket, THIRD, HOSTILE, 0))
    });
}

#[test]
fn n02_chains_of_one_byte_descriptors() {
    let scene = Scene::of("n02 chains of 510 descriptors of a byte", 1000);
    attacked("n02_chains_of_one_byte_descriptors", &scene, |bench| {
        let socket = bench.socket(HOSTILE);
        boxed(cards::LongChains::new(&socket, THIRD, HOSTILE, 1))
    });
}

fn both(bench: &Bench) -> [PathBuf; 2] {
    [HOSTILE, NEIGHBOUR].map(|number| bench.socket(number))
}

fn paths(sockets: &[PathBuf; 2]) -> [&Path; 2] {
    sockets.each_ref().map(PathBuf::as_path)
}

#[test]
fn n03_receive_buffers_of_one_byte() {
    let scene = Scene::of("n03 receive buffers of a byte", 1000);
    attacked("n03_receive_buffers_of_one_byte", &scene, |bench| {
        let sockets = both(bench);
        let numbers = [HOSTILE, NEIGHBOUR];
        boxed(cards::ShortBuffers::new(paths(&sockets), numbers))
    });
}

#[test]
fn n04_kicks() {
    let scene = Scene {
        // Of a quiet CPU it has 0.15, and 0.08 without the attack; beside other work 0.30 and 0.21. Before
        // ports that wake the loop for nothing rested it had 0.95.
        most_more_cpu: 0.16,
        ..Scene::of("n04 kicks", 50_000)
    };
    attacked("n04_kicks", &scene, |bench| {
        boxed(cards::Kicks::new(&bench.socket(HOSTILE)))
    });
}

/// A control group with a limit of memory, as the daemon's unit has: only then does the daemon count
/// the pages that it touches first.
struct MemoryGroup {
    parent: PathBuf,
    path: PathBuf,
}

impl MemoryGroup {
    /// Moves this process into a new group, of version 1 or 2; `None` without the right to do so.
    fn enter() -> Option<Self> {
        let kinds = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ];
        kinds.into_iter().find_map(|(parent, limit)| {
            let path = Path::new(parent).join(format!("tailbound-attack-{}", std::process::id()));
            fs::create_dir(&path).ok()?;
            let group = Self {
                parent: parent.into(),
                path,
            };
            fs::write(group.path.join(limit), (8u64 << 30).to_string()).ok()?;
            Self::join(&group.path).ok()?;
            Some(group)
        })
    }

    fn join(group: &Path) -> std::io::Result<()> {
        fs::write(group.join("cgroup.procs"), std::process::id().to_string())
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = Self::join(&self.parent);
        let _ = fs::remove_dir(&self.path);
    }
}

#[test]
fn n06_first_touches_of_pages() {
    sandboxed("n06_first_touches_of_pages", || {
        let Some(places) = places() else { return };
        let group = MemoryGroup::enter();
        if group.is_none() {
            eprintln!("{MEASURED}n06 without a control group, so that nothing counts pages");
        }
        let scene = Scene::of("n06 first touches of pages", 1000);
        let attack = |bench: &Bench| {
            let sockets = both(bench);
            boxed(cards::FreshPages::new(
                paths(&sockets),
                [HOSTILE, NEIGHBOUR],
            ))
        };
        let (_, verdict) = scene.play(attack, places);
        drop(group);
        accept(scene.name, &verdict);
    });
}

#[test]
fn n07_long_receive_filters_of_a_container() {
    sandboxed("n07_long_receive_filters_of_a_container", || {
        let Some(places) = places() else { return };
        let scene = Scene {
            kinds: [None, Some(Kind::Veth)],
            ..Scene::of("n07 a container's filters", 200)
        };
        let every = Duration::from_millis(1);
        let mut filters = None;
        let (run, verdict) = scene.play(
            |bench| {
                filters = Some(Filters::open(&bench.third));
                let frame = cards::frame(THIRD, NEIGHBOUR, 60);
                let sender = cards::Sender::new(&bench.socket(NEIGHBOUR), frame);
                boxed(cards::PacedSender::new(sender, Pace::each(every)))
            },
            places,
        );
        drop(filters);
        if !wants_control(&verdict) {
            return accept(scene.name, &verdict);
        }
        let bridge = Bridge::new(&[1, 2, NEIGHBOUR, THIRD]);
        let _filters = Filters::open(bridge.guest(THIRD));
        let attack = || {
            boxed(Frames {
                nic: bridge.guest(NEIGHBOUR).nic(),
                frame: cards::frame(THIRD, NEIGHBOUR, 60),
                pace: Pace::each(every),
            })
        };
        let victims = [bridge.guest(1), bridge.guest(2)];
        let (control, ..) = measure(None, victims, attack, places);
        judge_beside(scene.name, &run, &verdict, &control);
    });
}

#[test]
fn n08_connections_to_the_metrics() {
    let scene = Scene {
        // One for each of 16 connections, and some for connections that begin or end.
        most_descriptors: 24,
        ..Scene::of("n08 silent connections", 100)
    };
    attacked("n08_connections_to_the_metrics", &scene, |_| {
        boxed(Connections::default())
    });
}

#[test]
fn n11_broadcasts_from_outside() {
    sandboxed("n11_broadcasts_from_outside", || {
        let Some(places) = places() else { return };
        let scene = Scene {
            silent: SILENT,
            ..Scene::of("n11 20,000 broadcasts a second from outside", 5000)
        };
        let broadcasts = || {
            let mut frame = cards::frame(0, 9, 60);
            frame[..6].copy_from_slice(&[0xff; 6]);
            boxed(Frames {
                nic: Nic::open("far0", None),
                frame,
                pace: Pace::each(Duration::from_micros(50)),
            })
        };
        let (run, verdict) = scene.play(|_| broadcasts(), places);
        if !wants_control(&verdict) {
            return accept(scene.name, &verdict);
        }
        let bridge = Bridge::new(&[1, 2, NEIGHBOUR, THIRD, HOSTILE]);
        bridge::add_silent(SILENT);
        bridge::add("up0");
        let victims = [bridge.guest(1), bridge.guest(2)];
        let (control, ..) = measure(None, victims, broadcasts, places);
        judge_beside(scene.name, &run, &verdict, &control);
    });
}

#[test]
fn n12_a_ring_that_breaks_and_starts_again() {
    let scene = Scene::of("n12 a ring that breaks and starts again", 20);
    attacked("n12_a_ring_that_breaks_and_starts_again", &scene, |bench| {
        boxed(cards::BrokenRing::new(&bench.socket(HOSTILE)))
    });
}

#[test]
fn n05_holes_in_memory_that_is_in_use() {
    let scene = Scene::of("n05 holes in memory that is in use", 1000);
    attacked("n05_holes_in_memory_that_is_in_use", &scene, |bench| {
        let sockets = both(bench);
        boxed(cards::Holes::new(paths(&sockets), [HOSTILE, NEIGHBOUR]))
    });
}
