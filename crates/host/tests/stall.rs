//! How long a reload or a scrape stalls packets on a host of many guests.

mod support;

use rustix::process::Signal;
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use support::{Daemon, Guest, Kind, MEASURED, METRICS, Nic, datagram, sandboxed, until};

/// Not a test of its own: the process of the daemons below.
#[test]
fn daemon_process() {
    support::daemon_process();
}

/// Guests that send nothing, beside the two that do.
const IDLE: u32 = 498;

/// What a reload takes at most, with 250 TAPs made and as many closed.
const RELOAD: Duration = Duration::from_secs(1);

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

/// How long a packet takes from one guest to the other, one after the other, while
/// `running` says so.
fn delays(
    guests: &[&Guest; 2],
    nics: &mut [Nic; 2],
    mut running: impl FnMut() -> bool,
) -> Vec<Duration> {
    let frame = datagram(guests[1], guests[0], 7);
    let [from, to] = nics;
    let mut delays = Vec::new();
    while running() {
        let sent = Instant::now();
        from.send(&frame);
        while !to.receive().iter().any(|packet| packet.bytes() == frame) {
            assert!(sent.elapsed() < Duration::from_secs(5), "it is lost");
            std::hint::spin_loop();
        }
        delays.push(sent.elapsed());
    }
    delays
}

/// Prints median, 99.9th percentile and worst.
fn report(what: &str, delays: &mut [Duration]) {
    delays.sort();
    let at = |part: usize| delays[(delays.len() - 1) * part / 1000];
    eprintln!(
        "{MEASURED}{what}: {} packets between two guests took {:?} (median), {:?} (99.9 %), {:?} \
         (worst)",
        delays.len(),
        at(500),
        at(999),
        at(1000),
    );
}

/// Prints how long packets take while nothing else happens, while configurations come into
/// force, and while metrics are scraped.
///
/// `cargo test --release -p tailbound-host --test stall -- --ignored --nocapture`
#[test]
#[ignore = "measures, and judges nothing"]
fn how_long_a_reload_stalls_packets() {
    sandboxed("how_long_a_reload_stalls_packets", || {
        const TIMES: u32 = 10;
        let (a, b) = (Guest::new(Kind::Veth, 1), Guest::new(Kind::Veth, 2));
        let guests = [&a, &b];
        let daemon = Daemon::start(&config(&guests, 0..IDLE));
        let mut nics = [a.nic(), b.nic()];
        let start = Instant::now();
        let quiet = || start.elapsed() < Duration::from_secs(2);
        report("alone", &mut delays(&guests, &mut nics, quiet));
        let mut applied = 0.0;
        for (what, others) in [
            ("the same again", 0..IDLE),
            ("half of the guests are others", 250..250 + IDLE),
        ] {
            let mut all = Vec::new();
            for n in 0..TIMES {
                let idle = if n % 2 == 0 { others.clone() } else { 0..IDLE };
                let path = daemon.directory.path().join("host.toml");
                std::fs::write(path, config(&guests, idle)).expect("written");
                daemon.signal(Signal::HUP);
                let asked = Instant::now();
                all.extend(delays(&guests, &mut nics, || asked.elapsed() < RELOAD));
                applied += 1.0;
                until("the reload", || {
                    daemon.metric("tailbound_reloads_total{result=\"applied\"}") == Some(applied)
                });
            }
            report(what, &mut all);
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
            report("scrapes", &mut delays(&guests, &mut nics, running));
        });
    });
}
