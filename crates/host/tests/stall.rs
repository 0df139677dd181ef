//! Measures the delay of packets by a reload or a scrape on a host of many guests.

mod support;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use support::{Daemon, Guest, Kind, MEASURED, METRICS, Nic, datagram, sandboxed, until};
use tailbound_sys::procfs::{Reread, parse_run_delay};

/// Not a test of its own: the process of the daemons below.
#[test]
fn daemon_process() {
    support::daemon_process();
}

/// Guests that send nothing, beside the two that do.
const IDLE: u32 = 498;

/// The longest permitted reload, with 250 TAPs created and as many closed.
const RELOAD: Duration = Duration::from_secs(1);

/// The longest permitted delay of a packet by a reload or a scrape.
const PROMISED: Duration = Duration::from_micros(200);

/// Two guests, and silent ones behind TAPs by number.
fn config(guests: &[&Guest; 2], idle: impl Iterator<Item = u32>) -> String {
    let mut config = format!("metrics = {METRICS:?}\n");
    for guest in guests {
        config += &guest.section();
    }
    for n in idle {
        let [_, _, high, low] = n.to_be_bytes();
        let _ = write!(
            config,
            "[[guest]]\nname = \"idle{n}\"\nmac = \"06:00:00:00:{high:02x}:{low:02x}\"\n\
             ip = [\"10.78.{high}.{low}\"]\nport = {{ kind = \"tap\", interface = \"idle{n}\" }}\n"
        );
    }
    config
}

/// Times for which two threads were runnable and waited for a processor.
struct Waits {
    /// The packet loop's, and that of this thread.
    both: [Reread; 2],
}

impl Waits {
    fn of(daemon: &Daemon) -> Self {
        let tasks = [daemon.packet_loop(), "/proc/thread-self".into()];
        let open = |task: PathBuf| Reread::open(task.join("schedstat"));
        Self {
            both: tasks.map(|task| open(task).expect("the threads run")),
        }
    }

    /// Returns the sum of both threads' times.
    fn total(&mut self) -> Duration {
        let waits = self.both.iter_mut().map(|thread| {
            let text = thread.text().expect("read").unwrap_or_default();
            parse_run_delay(text).expect("three numbers").0
        });
        Duration::from_nanos(waits.sum())
    }
}

/// The delay of a packet.
#[derive(Clone, Copy)]
struct Delay {
    whole: Duration,
    /// The delay without the times that either thread waited for a processor.
    without_waits: Duration,
}

/// Measures the delay of packets from one guest to the other, one after the other, while `running`
/// returns true.
fn delays(
    guests: &[&Guest; 2],
    nics: &mut [Nic; 2],
    waits: &mut Waits,
    mut running: impl FnMut() -> bool,
) -> Vec<Delay> {
    let frame = datagram(guests[1], guests[0], 7);
    let [from, to] = nics;
    let mut delays = Vec::new();
    while running() {
        let before = waits.total();
        let sent = Instant::now();
        from.send(&frame);
        while !to.receive().iter().any(|packet| packet.bytes() == frame) {
            assert!(sent.elapsed() < Duration::from_secs(5), "it is lost");
            std::hint::spin_loop();
        }
        let whole = sent.elapsed();
        let waited = waits.total().saturating_sub(before);
        delays.push(Delay {
            whole,
            without_waits: whole.saturating_sub(waited),
        });
    }
    delays
}

/// Prints median, 99.9th percentile and worst, with waits for a processor and without.
fn report(what: &str, delays: &[Delay]) {
    let percentiles = |part: fn(&Delay) -> Duration| {
        let mut sorted: Vec<_> = delays.iter().map(part).collect();
        sorted.sort();
        let at = |part: usize| sorted[(sorted.len() - 1) * part / 1000];
        format!("{:?}, {:?}, {:?}", at(500), at(999), at(1000))
    };
    eprintln!(
        "{MEASURED}{what}: {} packets between two guests took {} (median, 99.9 %, worst), of \
         that {} without waits for a processor",
        delays.len(),
        percentiles(|delay| delay.whole),
        percentiles(|delay| delay.without_waits),
    );
}

/// Prints the most CPU time of the packet loop's work beside packets in one turn, for which a
/// packet may have to wait, and returns it.
fn report_aside(daemon: &Daemon) -> Duration {
    let count = daemon.metric("tailbound_loop_aside_seconds_count");
    let sum = daemon.metric("tailbound_loop_aside_seconds_sum");
    let most = daemon.metric("tailbound_loop_aside_max_seconds");
    let (count, sum) = (count.expect("counted"), sum.expect("counted"));
    let most = Duration::from_secs_f64(most.expect("counted"));
    eprintln!(
        "{MEASURED}in {count} turns with something beside packets the loop itself took {:?} of \
         CPU time (mean), {most:?} (worst)",
        Duration::from_secs_f64(sum / count),
    );
    most
}

/// Prints the delays of packets while nothing else happens, during reloads, and during scrapes.
/// Checks the CPU time that the packet loop itself takes, not the time that the system makes it
/// wait.
///
/// `cargo test --release -p tailbound-host --test stall -- --ignored --nocapture`
#[test]
#[ignore = "measures, and judges what is promised of a release build"]
fn measure_packet_stalls_during_reloads() {
    sandboxed("measure_packet_stalls_during_reloads", || {
        const TIMES: u32 = 10;
        let (a, b) = (Guest::new(Kind::Veth, 1), Guest::new(Kind::Veth, 2));
        let guests = [&a, &b];
        let daemon = Daemon::start(&config(&guests, 0..IDLE));
        let mut nics = [a.nic(), b.nic()];
        let mut waits = Waits::of(&daemon);
        let start = Instant::now();
        let quiet = || start.elapsed() < Duration::from_secs(2);
        let alone = delays(&guests, &mut nics, &mut waits, quiet);
        report("alone", &alone);
        // A hypervisor takes a processor away and does not say so to the clock of a thread.
        let taken = alone.iter().map(|delay| delay.without_waits).max();
        let taken = taken.expect("it runs for two seconds");
        let mut applied = 0.0;
        for (what, others) in [
            ("the same again", 0..IDLE),
            ("half of the guests are others", 250..250 + IDLE),
        ] {
            let mut all = Vec::new();
            for n in 0..TIMES {
                let idle = if n % 2 == 0 { others.clone() } else { 0..IDLE };
                daemon.configure(&config(&guests, idle));
                let asked = Instant::now();
                let running = || asked.elapsed() < RELOAD;
                all.extend(delays(&guests, &mut nics, &mut waits, running));
                applied += 1.0;
                until("the reload", || {
                    daemon.metric("tailbound_reloads_total{result=\"applied\"}") == Some(applied)
                });
            }
            report(what, &all);
            report_aside(&daemon);
        }
        let (done, ended) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..TIMES {
                    assert!(daemon.metrics().is_some());
                }
                done.send(()).expect("it is waited for");
            });
            let running = || ended.try_recv().is_err();
            let delays = delays(&guests, &mut nics, &mut waits, running);
            report("scrapes", &delays);
        });
        let most = report_aside(&daemon);
        let is_judged = !cfg!(debug_assertions);
        assert!(
            !is_judged || most <= PROMISED.max(taken),
            "a turn took {most:?}, not {PROMISED:?}, where nothing beside packets took {taken:?}"
        );
    });
}
