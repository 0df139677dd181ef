//! A host in a network namespace of its own: a bridge with three interfaces, two of guests (slots 0
//! and 1) and one to the outside. In `taps` they are TAPs, and each frame is written by hand; in
//! `sockets` they are veths, and the kernel's own TCP is behind them.

mod frames;
mod sockets;
mod taps;

use super::*;
use crate::probe::required::{Part, skipped};
use crate::{netns, tap, timer};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The interfaces, by their names in the host.
const GUEST: &str = "guest0";
const NEIGHBOUR: &str = "guest1";
const OUTSIDE: &str = "uplink";
const LINKS: [&str; 3] = [GUEST, NEIGHBOUR, OUTSIDE];

/// A host, and the tracer there.
struct Host {
    name: String,
    tracer: Tracer,
}

impl Drop for Host {
    fn drop(&mut self) {
        for end in ["", GUEST, NEIGHBOUR, OUTSIDE] {
            let name = format!("{}{end}", self.name);
            let _ = Command::new("ip").args(["netns", "del", &name]).output();
        }
    }
}

/// Runs a command with words between spaces.
fn run(line: &str) -> bool {
    let mut words = line.split(' ');
    let command = Command::new(words.next().unwrap()).args(words).output();
    let output = command.unwrap_or_else(|error| panic!("{line}: {error}"));
    if !output.status.success() {
        eprintln!("{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.success()
}

fn path_of(name: &str) -> PathBuf {
    Path::new("/run/netns").join(name)
}

/// Makes a network namespace in which the kernel sends nothing by itself.
fn namespace(name: &str) -> bool {
    let quiet = || std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    run(&format!("ip netns add {name}"))
        && netns::within(&path_of(name), quiet).is_ok_and(|written| written.is_ok())
}

impl Host {
    /// Makes a host with a bridge, and has `link` make each interface.
    fn new(slow: Nanos, link: impl Fn(&str, &str) -> bool) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("pk{}-{number}", std::process::id());
        let is_root = rustix::process::geteuid().is_root();
        if !is_root || !namespace(&name) {
            skipped(Part::NetworkNamespaces, "`ip netns add` as root fails");
            return None;
        }
        let settings = Settings {
            slots: 4,
            slow,
            sample_shift: 0,
        };
        let tracer = match netns::within(&path_of(&name), || Tracer::load(&settings)).unwrap() {
            Ok(tracer) => tracer,
            Err(error) => {
                skipped(Part::BpfPackets, error);
                run(&format!("ip netns del {name}"));
                return None;
            }
        };
        let mut host = Self { name, tracer };
        let name = host.name.clone();
        assert!(run(&format!(
            "ip -n {name} link add br0 type bridge mcast_snooping 0"
        )));
        assert!(run(&format!("ip -n {name} link set br0 up")));
        for end in LINKS {
            assert!(link(&name, end));
            assert!(run(&format!("ip -n {name} link set {end} master br0 up")));
        }
        for (slot, end) in (0..).zip([GUEST, NEIGHBOUR]) {
            let index = host.index(end);
            host.tracer.follow(index, slot).unwrap();
        }
        Some(host)
    }

    fn index(&self, interface: &str) -> u32 {
        let find = || {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
            Ok::<_, io::Error>(rustix::net::netdevice::name_to_index(&socket, interface)?)
        };
        netns::within(&path_of(&self.name), find).unwrap().unwrap()
    }

    /// Adds to the interface to the outside a queue of a rate, such as `20mbit`.
    fn shape(&self, rate: &str, burst: u32, limit: u32) {
        let name = &self.name;
        assert!(run(&format!(
            "tc -n {name} qdisc replace dev {OUTSIDE} root tbf rate {rate} burst {burst} limit {limit}"
        )));
    }

    fn read(&self, slot: u32) -> Measurement {
        self.tracer.read(slot).unwrap()
    }

    fn slow_requests(&mut self) -> Vec<SlowRequest> {
        let mut requests = Vec::new();
        self.tracer.events(|event| match event {
            Event::Slow(request) => requests.push(request),
        });
        requests
    }

    /// Returns drops by name.
    fn drops(&self, slot: u32, direction: Direction) -> Vec<(String, u64)> {
        let drops = self.read(slot).drops;
        let of = drops.into_iter().filter(|it| it.0.0 == direction);
        of.map(|((_, reason), count)| {
            let name = self.tracer.reason(reason);
            (name.unwrap_or_default().to_owned(), count)
        })
        .collect()
    }
}

#[test]
fn a_histogram_has_each_time_between_its_bounds() {
    assert_eq!(Histogram::lower(0), 0);
    assert_eq!(Histogram::lower(1), 256);
    assert_eq!(Histogram::lower(2), 320);
    assert_eq!(Histogram::lower(5), 512);
    assert!((0..BUCKETS).all(|at| Histogram::lower(at) < Histogram::lower(at + 1)));
    let mut histogram = Histogram::default();
    assert_eq!(histogram.quantile(0.5), Nanos(0));
    histogram.counts[1] = 99;
    histogram.counts[5] = 1;
    histogram.longest = 600;
    histogram.sum = 99 * 300 + 600;
    assert_eq!(histogram.quantile(0.5), Nanos(320));
    assert_eq!(histogram.quantile(1.0), Nanos(600));
    assert_eq!(histogram.mean(), Nanos(303));
    assert_eq!(histogram.since(&histogram).count(), 0);
}

/// Needs no interfaces, so that it can run in any kernel (`scripts/bpf-guest`).
#[test]
fn the_kernel_takes_the_program() {
    let settings = Settings {
        slots: 1,
        slow: Nanos(0),
        sample_shift: 0,
    };
    match Tracer::load(&settings) {
        Ok(tracer) => assert!(tracer.missing().is_empty(), "{:?}", tracer.missing()),
        Err(error) => skipped(Part::BpfPackets, error),
    }
}

#[test]
fn slots_and_interfaces_have_limits() {
    let Some(mut host) = Host::new(Nanos(0), taps::link) else {
        return;
    };
    let error = host.tracer.follow(7, 4).unwrap_err();
    assert_eq!(error.to_string(), "there is no slot 4: there are 4");
    for way in 1..=4 {
        host.tracer.follow(100 + way * 4096, 2).unwrap();
    }
    let error = host.tracer.follow(100 + 5 * 4096, 2).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("interface 20580 cannot be followed")
    );
    host.tracer.forget(100 + 4096);
    host.tracer.follow(100 + 5 * 4096, 2).unwrap();
}

#[test]
fn a_dropped_tracer_unloads_all_its_programs() {
    let Some(mut host) = Host::new(Nanos(0), taps::link) else {
        return;
    };
    let parts = TRACEPOINTS.into_iter().chain(OPTIONAL);
    let own: Vec<u32> = parts
        .map(|(name, _)| {
            host.tracer
                .programs
                .program(name)
                .unwrap()
                .info()
                .unwrap()
                .id()
        })
        .collect();
    let loaded = || {
        let all = aya::programs::loaded_programs().flatten();
        all.filter(|program| own.contains(&program.id())).count()
    };
    assert_eq!(loaded(), own.len());
    let settings = Settings {
        slots: 1,
        slow: Nanos(0),
        sample_shift: 0,
    };
    host.tracer = Tracer::load(&settings).unwrap();
    // The kernel frees them after a grace period of RCU.
    for _ in 0..500 {
        if loaded() == 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{} programs are left", loaded());
}
