//! A hostile monitor and its guest that make random moves, beside two honest guests whose probes
//! must neither be lost nor wait.
//!
//! `TAILBOUND_HOSTILE_SECONDS` sets the duration of the moves, `PROPTEST_RNG_SEED` their seed. A
//! violation prints the seed and the last moves. A move depends on the seed and its number alone;
//! the time at which it meets the daemon does not.

#[path = "../../../vhost/tests/support/mod.rs"]
mod machine;
mod monitor;
mod random;
#[path = "../support/mod.rs"]
mod support;
mod victim;
mod watch;

use machine::{Build, Machine};
use monitor::Hostile;
use random::Random;
use rustix::process::Signal;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use support::{
    Daemon, Guest, MEASURED, METRICS, command, datagram_of, kinds, plugged_in, sandboxed, until,
};
use victim::{Delays, Victims};
use watch::Watch;

/// The pause after a move, at most 5 ms.
const MOST_PAUSE: Duration = Duration::from_millis(5);

/// Added to 1.2 times the idle 99th percentile. A build with debug assertions, on two CPUs that
/// other programs use as well, forwards one burst of a flood in this time.
const MARGIN: Duration = Duration::from_millis(5);

/// Memory and descriptors that the daemon may have more when the monitor is gone.
const MORE_KIB: u64 = 32 << 10;
const MORE_DESCRIPTORS: usize = 4;

/// The number of the hostile guest: its MAC and IP addresses end in it.
const HOSTILE: u8 = 3;

/// Not a test of its own: the process of the daemon below.
#[test]
fn daemon_process() {
    support::daemon_process();
}

/// The duration of the moves.
fn duration() -> Duration {
    let seconds = std::env::var("TAILBOUND_HOSTILE_SECONDS");
    let seconds = seconds.map_or(4, |text| text.parse().expect("whole seconds"));
    Duration::from_secs(seconds)
}

fn seed() -> u64 {
    if let Ok(text) = std::env::var("PROPTEST_RNG_SEED") {
        return text.parse().expect("a number");
    }
    let now = std::time::UNIX_EPOCH.elapsed().expect("it is after 1970");
    Random::of_move(now.as_nanos() as u64, std::process::id().into()).next()
}

/// Two guests with a guarantee, and a card whose guest has none.
fn config(guests: [&Guest; 2], socket: &Path) -> String {
    let guarantee = "guarantee = { bandwidth = \"10Mbit/s\", burst = \"15KB\", \
                     burst_rate = \"100Mbit/s\" }\n";
    let [one, two] = guests.map(Guest::section);
    let socket = socket.display();
    format!(
        "metrics = {METRICS:?}\n\
         [uplink]\nport = {{ kind = \"af-packet\", interface = \"up0\" }}\n\
         pacer = {{ link = \"1Gbit/s\" }}\n\
         {one}{guarantee}{two}{guarantee}\
         [[guest]]\nname = \"hostile\"\nmac = \"02:00:00:00:00:{HOSTILE:02x}\"\n\
         ip = [\"10.77.0.{HOSTILE}\"]\n\
         port = {{ kind = \"vhost-user\", socket = \"{socket}\", queues = 2 }}\n"
    )
}

/// The uplink and its far end, where nothing listens.
fn cable() {
    let veth = ["link", "add", "up0", "type", "veth", "peer", "name", "far0"];
    command("ip", &veth);
    for end in ["up0", "far0"] {
        command("ip", &["link", "set", end, "up"]);
    }
    plugged_in("up0", None);
}

/// Makes moves until the run is over; returns how many, and how many machines were started.
fn be_hostile(socket: &Path, others: [[u8; 6]; 2], seed: u64, watch: &Watch) -> (u64, u64) {
    let mac = [2, 0, 0, 0, 0, HOSTILE];
    let mut hostile = Hostile::new(socket.to_owned(), mac, others);
    let mut number = 0;
    while !watch.is_over() {
        watch.moved(number, monitor::name(seed, number));
        hostile.make_move(seed, number);
        number += 1;
        let pause = Random::of_move(!seed, number).below(MOST_PAUSE.as_micros() as u64);
        thread::sleep(Duration::from_micros(pause));
    }
    (number, hostile.starts)
}

/// Probes beside the moves of a hostile monitor; returns the delays and prints the moves.
fn probe_beside_moves(
    daemon: &Daemon,
    victims: &mut Victims<'_>,
    socket: &Path,
    seed: u64,
    watch: &Watch,
) -> Delays {
    let others = victims.macs();
    let begin = Instant::now();
    let (delays, (moves, starts)) = thread::scope(|scope| {
        let hostile = scope.spawn(|| be_hostile(socket, others, seed, watch));
        scope.spawn(|| {
            while !watch.is_over() && begin.elapsed() < duration() {
                watch.ask(daemon);
                thread::sleep(Duration::from_millis(500).min(duration()));
            }
            watch.end();
        });
        let delays = victims.probe(daemon, watch, || !watch.is_over());
        (delays, hostile.join().expect("no panic"))
    });
    let received = "tailbound_packets_total{port=\"hostile\",direction=\"received\"}";
    let frames = daemon.metric(received).unwrap_or_default();
    eprintln!(
        "{MEASURED}seed {seed}: {moves} moves in {:?}, {starts} machines, {frames} frames of theirs",
        begin.elapsed()
    );
    if watch.text().is_none() {
        assert!(starts > 0 && frames > 0.0, "the moves have no effect");
    }
    delays
}

/// Waits until the daemon has no more than before; a violation if it keeps more.
fn judge_usage(daemon: &Daemon, before: (u64, usize), watch: &Watch) {
    let now = || (daemon.resident(), daemon.descriptors());
    let is_back = |(memory, descriptors): (u64, usize)| {
        memory <= before.0 + MORE_KIB && descriptors <= before.1 + MORE_DESCRIPTORS
    };
    let begin = Instant::now();
    while !is_back(now()) && begin.elapsed() < machine::STEP_TIMEOUT {
        thread::sleep(Duration::from_millis(50));
    }
    let after = now();
    eprintln!("{MEASURED}KiB of memory and descriptors: {before:?} before, {after:?} after");
    if !is_back(after) {
        watch.violated(&format!(
            "{after:?} KiB and descriptors are kept, of {before:?}"
        ));
    }
}

fn judge_delays(idle: &Delays, beside: &Delays, watch: &Watch) {
    eprintln!("{MEASURED}idle: {}", idle.text());
    eprintln!("{MEASURED}beside a hostile monitor: {}", beside.text());
    let bound = idle.p99() * 12 / 10 + MARGIN;
    if beside.p99() > bound {
        watch.violated(&format!(
            "99 % of probes took {:?}, not {bound:?}",
            beside.p99()
        ));
    }
}

/// A machine that keeps to the rules is served at the socket that the hostile monitor had.
fn serve_honestly(socket: &Path, daemon: &Daemon) {
    let mut machine = Machine::start(socket, Build::default());
    let sent = "tailbound_packets_total{port=\"hostile\",direction=\"received\"}";
    let before = daemon.metric(sent).unwrap_or_default();
    let to = [2, 0, 0, 0, 0, 1];
    let mac = [2, 0, 0, 0, 0, HOSTILE];
    let frame = datagram_of(to, mac, [10, 77, 0, HOSTILE], 1);
    machine.send(0, [0; 10], &frame);
    until("a frame of the next machine", || {
        daemon.metric(sent) > Some(before)
    });
}

#[test]
fn no_moves_of_a_hostile_monitor_lose_or_delay_an_honest_guests_probes() {
    let name = "no_moves_of_a_hostile_monitor_lose_or_delay_an_honest_guests_probes";
    sandboxed(name, || {
        let seed = seed();
        let kind = kinds()[0];
        let guests = [Guest::new(kind, 1), Guest::new(kind, 2)];
        let guests = [&guests[0], &guests[1]];
        cable();
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("card");
        let mut daemon = Daemon::start(&config(guests, &socket));
        let mut victims = Victims::new(guests);
        victims.wait_until_they_pass();
        let watch = Watch::default();
        let begin = Instant::now();
        let idle_time = (duration() / 4).clamp(Duration::from_secs(1), Duration::from_mins(1));
        let idle = victims.probe(&daemon, &watch, || begin.elapsed() < idle_time);
        let before = (daemon.resident(), daemon.descriptors());
        let beside = probe_beside_moves(&daemon, &mut victims, &socket, seed, &watch);
        judge_delays(&idle, &beside, &watch);
        if daemon.metrics().is_some() {
            judge_usage(&daemon, before, &watch);
        }
        if let Some(violations) = watch.text() {
            let log = daemon.log();
            let lines: Vec<_> = log.lines().collect();
            let end = lines[lines.len().saturating_sub(30)..].join("\n");
            panic!("PROPTEST_RNG_SEED={seed} repeats these moves:\n{violations}{end}");
        }
        serve_honestly(&socket, &daemon);
        daemon.signal(Signal::TERM);
        assert!(daemon.wait().success(), "{}", daemon.log());
    });
}
