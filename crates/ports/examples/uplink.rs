//! Compares the cost of sending by an `AF_XDP` and an `AF_PACKET` uplink: packets per second and
//! CPU time per packet, for data frames and voids.
//!
//! `make bench-uplink`, or `cargo run --release -p tailbound-host --example
//! uplink [ROUNDS]` (root; about half a minute with 5 rounds)
//!
//! Runs in its own network namespace, on a veth pair: one end is the port, and the kernel drops and
//! counts the frames that come out of the other end. The two kinds take turns, each with every
//! load. The result is the median, over the rounds, of the ratio within a round. Times are those of
//! `Port::transmit` alone, in bursts of [`BATCH`]; the frames are made in the same way for both
//! kinds. CPU time is that of this thread, to which the kernel's part of sending is billed, and
//! that of the same CPU's `ksoftirqd`, which takes over under load.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use std::error::Error;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};
use tailbound_dataplane::{Packet, Pool};
use tailbound_ports::{AfPacketPort, AfXdpMode, AfXdpPort};
use tailbound_switch::port::{Outgoing, Port};
use tailbound_sys::cpuset::{Cpus, affinity, set_affinity};
use tailbound_sys::thread::parse_schedstat;
use tailbound_sys::user_namespace;
use tailbound_units::{Nanos, WireBytes};

const ROUNDS: usize = 5;
const DURATION: Duration = Duration::from_millis(500);
/// Frames and voids in one call: 50 us of a 10 Gbit/s wire hold 40 full frames and voids of the
/// same length.
const BATCH: usize = 40;
const DEVICE: &str = "port0";
const FAR: &str = "far0";
const KINDS: [&str; 2] = ["af-packet", "af-xdp"];

/// The frames that are sent: a name, and the frame's bytes without FCS, or the void's length on the
/// wire.
#[derive(Clone, Copy)]
enum Load {
    Data(&'static str, usize),
    Void(&'static str, u64),
}

const LOADS: [Load; 4] = [
    Load::Data("data, 64 B", 60),
    Load::Data("data, 1518 B", 1514),
    Load::Void("voids, 84 B of wire", 84),
    Load::Void("voids, 1538 B of wire", 1538),
];

/// The measurement of one load on one kind of port.
#[derive(Clone, Copy)]
struct LoadMeasurement {
    packets_s: f64,
    cpu_ns: f64,
    /// Share of the sent frames that did not come out of the other end.
    lost: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let rounds = match std::env::args().nth(1) {
        Some(text) => text.parse()?,
        None => ROUNDS,
    };
    user_namespace::enter()?;
    ip(&format!("link add {DEVICE} type veth peer name {FAR}"))?;
    for device in [DEVICE, FAR] {
        fs::write(
            format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6"),
            "1",
        )?;
        ip(&format!("link set {device} up"))?;
    }
    // One CPU, so that both kinds have the same caches and the same ksoftirqd.
    let cpu = affinity(0)?.iter().last().ok_or("there is a CPU")?;
    set_affinity(0, &Cpus::one(cpu))?;
    let softirq = ksoftirqd(cpu);
    let mut measured = ByKindAndLoad::default();
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        for (load, what) in LOADS.into_iter().enumerate() {
            for (kind, measured) in measured.iter_mut().enumerate() {
                let mut port = open(kind)?;
                measured[load].push(measure(port.as_mut(), what, softirq.as_deref())?);
            }
        }
    }
    print(&measured, rounds, cpu, softirq.is_some());
    Ok(())
}

fn open(kind: usize) -> Result<Box<dyn Port>, Box<dyn Error>> {
    Ok(if kind == 0 {
        Box::new(AfPacketPort::open(DEVICE, None)?)
    } else {
        Box::new(AfXdpPort::open(DEVICE, None, AfXdpMode::Auto, Some(1))?)
    })
}

/// Sends for [`DURATION`] of time in `transmit`.
fn measure(
    port: &mut dyn Port,
    load: Load,
    softirq: Option<&str>,
) -> Result<LoadMeasurement, Box<dyn Error>> {
    let pool = Pool::new();
    let template = match load {
        Load::Data(_, len) => Some(frame(&pool, len)?),
        Load::Void(..) => None,
    };
    let mut outgoing = VecDeque::with_capacity(BATCH);
    let mut run = |until: Duration| -> Result<(u64, Duration, Duration), Box<dyn Error>> {
        let (mut count, mut wall, mut cpu) = (0, Duration::ZERO, Duration::ZERO);
        while wall < until {
            outgoing.resize_with(BATCH, || match (&template, load) {
                (Some(packet), _) => Outgoing::frame(packet.duplicate()),
                (None, Load::Void(_, wire)) => Outgoing::Void {
                    wire: WireBytes(wire),
                },
                (None, Load::Data(..)) => unreachable!("data has a template"),
            });
            let (start, before) = (Instant::now(), thread_time());
            let result = port.transmit(Nanos::ZERO, &mut outgoing)?;
            cpu += thread_time().saturating_sub(before);
            if result.full {
                wait(port)?;
            }
            wall += start.elapsed();
            if result.losses().iter().any(|(_, count)| *count > 0) {
                return Err("the port lost frames itself".into());
            }
            count += result.packets + result.voids;
        }
        Ok((count, wall, cpu))
    };
    // Warms caches and the pool.
    run(DURATION / 10)?;
    settle()?;
    let (came_before, softirq_before) = (came()?, run_time(softirq));
    let (sent, wall, cpu) = run(DURATION)?;
    settle()?;
    let came = came()? - came_before;
    let cpu = cpu + run_time(softirq).saturating_sub(softirq_before);
    Ok(LoadMeasurement {
        packets_s: sent as f64 / wall.as_secs_f64(),
        cpu_ns: cpu.as_nanos() as f64 / sent as f64,
        lost: 1.0 - came as f64 / sent as f64,
    })
}

/// Makes a UDP datagram to an address without a station.
fn frame(pool: &Pool, len: usize) -> Result<Packet, Box<dyn Error>> {
    let mut bytes = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 7, 8, 0, 0x45, 0];
    bytes.extend(((len - 14) as u16).to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 7, 10, 0, 0, 9]);
    bytes.extend([0, 7, 0, 9]);
    bytes.extend(((len - 34) as u16).to_be_bytes());
    bytes.resize(len, 0);
    let mut buffer = pool.buffer(Packet::HEADROOM + len);
    buffer[Packet::HEADROOM..][..len].copy_from_slice(&bytes);
    Ok(Packet::new(buffer, Packet::HEADROOM, len, None, None)?)
}

/// Waits until the port has room, as the daemon does.
fn wait(port: &dyn Port) -> Result<(), Box<dyn Error>> {
    let descriptor = port.descriptor().ok_or("both kinds have one")?;
    let events = PollFlags::OUT | PollFlags::IN;
    let mut ready = [PollFd::new(&descriptor, events)];
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: 10_000_000,
    };
    poll(&mut ready, Some(&timeout))?;
    Ok(())
}

/// Waits until no more comes out of the other end.
fn settle() -> Result<(), Box<dyn Error>> {
    let mut before = came()?;
    loop {
        std::thread::sleep(Duration::from_millis(20));
        let now = came()?;
        if now == before {
            return Ok(());
        }
        before = now;
    }
}

/// Returns the number of frames that came out of the other end.
fn came() -> Result<u64, Box<dyn Error>> {
    // NAME: bytes packets ...
    let table = fs::read_to_string("/proc/thread-self/net/dev")?;
    let line = table
        .lines()
        .find_map(|line| line.trim().strip_prefix(FAR)?.strip_prefix(':'));
    let packets = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(packets.ok_or("the interface is there")?.parse()?)
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

/// Returns the file with the run time of the CPU's ksoftirqd, if this process can see it.
fn ksoftirqd(cpu: u32) -> Option<String> {
    let name = format!("ksoftirqd/{cpu}\n");
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let process = entry.path();
        let comm = fs::read_to_string(process.join("comm")).ok()?;
        (comm == name).then(|| process.join("schedstat").display().to_string())
    })
}

/// Returns the run time of a schedstat file's thread.
fn run_time(path: Option<&str>) -> Duration {
    let text = path.and_then(|path| fs::read_to_string(path).ok());
    let seen = text.and_then(|text| parse_schedstat(&text));
    seen.unwrap_or_default().run.into()
}

fn ip(arguments: &str) -> Result<(), Box<dyn Error>> {
    let status = Command::new("ip").args(arguments.split(' ')).status()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("ip {arguments} failed").into())
    }
}

/// The median; of an even number the lower one, which was measured.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len().saturating_sub(1) / 2)
        .copied()
        .unwrap_or(f64::NAN)
}

type ByKindAndLoad = [[Vec<LoadMeasurement>; LOADS.len()]; KINDS.len()];

fn print(measured: &ByKindAndLoad, rounds: usize, cpu: u32, softirq: bool) {
    let beside = if softirq { "with" } else { "without" };
    println!(
        "veth, {rounds} rounds of {} ms, bursts of {BATCH}, CPU {cpu}, {beside} its ksoftirqd; \
         medians",
        DURATION.as_millis()
    );
    println!("load                   port        packets/s   CPU ns/packet   lost");
    for (load, what) in LOADS.into_iter().enumerate() {
        let (Load::Data(name, _) | Load::Void(name, _)) = what;
        for (kind, port) in KINDS.into_iter().enumerate() {
            let all = &measured[kind][load];
            println!(
                "{name:<22} {port:<9} {:>11.0} {:>15.0} {:>6.3}",
                median(all.iter().map(|m| m.packets_s)),
                median(all.iter().map(|m| m.cpu_ns)),
                median(all.iter().map(|m| m.lost)),
            );
        }
        let [packet, xdp] = [&measured[0][load], &measured[1][load]];
        let ratio = |of: fn(&LoadMeasurement) -> f64| {
            median(
                packet
                    .iter()
                    .zip(xdp)
                    .map(|(packet, xdp)| of(xdp) / of(packet)),
            )
        };
        println!(
            "{name:<22} ratio     {:>11.2} {:>15.2}",
            ratio(|m| m.packets_s),
            ratio(|m| m.cpu_ns),
        );
    }
}
