//! A pod that containerd starts by CRI, with the chain of the CNI plugins ptp and tailbound-cni, and with the
//! guarantee of its claim: the departures of a burst of the pod from the uplink.
//!
//! `tailbound-kernel-bench adopt pod RATE BURST`, in the machine of `scripts/pod-guest`, which has the claim
//! of the pod, the runtime and its configuration. RATE is in bits a second and BURST in bytes.

use super::TAILBOUND;
use crate::Outcome;
use crate::analysis::{effective_burst, lateness, mean_rate};
use crate::figures::{Figures, Unit};
use crate::load::{now, sleep_until, socket_within, wait_until};
use crate::network::{Guest, index, run as ip};
use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tailbound_sys::departures::{Departure, Log};
use tailbound_units::{Bytes, Nanos, Rate};

/// The runtime's socket, as in its configuration.
const SOCKET: &str = "/run/containerd.sock";
const IMAGE: &str = "localhost/busybox:1";
/// The host's address beside the outside.
const GATEWAY: &str = "10.0.0.254";
/// Addresses of pods, as in the network's configuration.
const PODS: &str = "10.88.0.0/24";
/// Preamble, gap and check sequence of a frame, in bytes.
const OVERHEAD: u64 = 24;
const PAYLOAD: [u8; 1472] = [0; 1472];
/// A full frame on the wire.
const FRAME: Bytes = Bytes(1538);
/// Frames of the pod's burst.
const FRAMES: usize = 600;
/// Longest start of the runtime, by the machine's clock.
const START: Duration = Duration::from_mins(2);
/// The largest deviation of the rate, in thousandths.
const TOLERANCE: u64 = 10;

/// The guarantee of the pod's claim.
#[derive(Clone, Copy)]
struct Guarantee {
    rate: Rate,
    burst: Bytes,
}

/// Runs the trial; an error names what is wrong.
pub(crate) fn run(rate: &str, burst: &str) -> Outcome<()> {
    let guarantee = Guarantee {
        rate: Rate(rate.parse()?),
        burst: Bytes(burst.parse()?),
    };
    let outside = Guest::add(3)?;
    let uplink = outside.port_name();
    ip(&format!("ip addr add {GATEWAY}/24 dev {uplink}"))?;
    let space = outside.namespace_name();
    ip(&format!("ip -n {space} route add {PODS} via {GATEWAY}"))?;
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
    let mut runtime = Command::new("containerd")
        .args(["-c", "/etc/containerd.toml"])
        .stdin(Stdio::null())
        .spawn()?;
    let done = start(&mut runtime).and_then(|()| pod(outside, guarantee));
    runtime.kill()?;
    runtime.wait()?;
    done
}

/// Waits for the runtime, and imports the image.
fn start(runtime: &mut Child) -> Outcome<()> {
    let begin = Instant::now();
    while UnixStream::connect(SOCKET).is_err() {
        if let Some(status) = runtime.try_wait()? {
            return Err(format!("containerd: {status}").into());
        }
        if begin.elapsed() > START {
            return Err(format!("containerd has no socket after {START:?}").into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let words = "-a /run/containerd.sock -n k8s.io image import --snapshotter native /image.tar";
    command("ctr", words).map(drop)
}

/// Starts the pod as kubelet does, measures, and removes it.
fn pod(outside: Guest, guarantee: Guarantee) -> Outcome<()> {
    let mut kubelet = Command::new("sandbox")
        .args([SOCKET, "/pod.json", IMAGE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let output = kubelet.stdout.take().ok_or("no pipe")?;
    BufReader::new(output).read_line(&mut line)?;
    let measured = if line == "running\n" {
        measure(outside, guarantee)
    } else {
        Err("the pod does not run".into())
    };
    drop(kubelet.stdin.take());
    let status = kubelet.wait()?;
    measured?;
    if !status.success() {
        return Err(format!("removing the pod: {status}").into());
    }
    let left = command(TAILBOUND, "adopt --list")?;
    if left != "no guest is adopted\n" || Path::new("/sys/fs/bpf/tailbound").exists() {
        return Err(format!("the removed pod is left: {left}").into());
    }
    Ok(())
}

/// Sends a burst from the pod, and compares its departures from the uplink with the guarantee.
fn measure(outside: Guest, guarantee: Guarantee) -> Outcome<()> {
    let list = command(TAILBOUND, "adopt --list --output json")?;
    println!("list {}", list.replace('\n', " "));
    let pod = namespace()?;
    let sender = socket_within(&pod, &outside.address())?;
    let receiver = socket_within(&outside.namespace(), &sender.local_addr()?.ip().to_string())?;
    // All tables of neighbours have their entries.
    sender.send(&[0])?;
    receiver.recv(&mut [0])?;
    let uplink = index(&outside.port_name())?;
    let mut log = Log::load(4096)?;
    log.watch(uplink)?;
    // The first burst after a boot meets code and caches that nothing has used yet.
    for _ in 0..2 {
        // The bucket is full.
        sleep_until(now().saturating_add(Nanos::from_millis(100)));
        log.clear()?;
        for _ in 0..FRAMES {
            sender.send(&PAYLOAD)?;
        }
        let left = || Ok(frames(&log, uplink)?.len() >= FRAMES);
        wait_until(&format!("{FRAMES} frames leave the uplink"), left)?;
    }
    check(&frames(&log, uplink)?, guarantee)
}

/// The full frames that left the uplink, with their lengths on the wire.
fn frames(log: &Log, uplink: u32) -> Outcome<Vec<Departure>> {
    let all = log.read()?.into_iter();
    let own = all.filter(|it| it.interface == uplink && it.len.0 > PAYLOAD.len() as u64);
    let on_wire = |it: Departure| Departure {
        len: Bytes(it.len.0 + OVERHEAD * u64::from(it.frames)),
        ..it
    };
    Ok(own.map(on_wire).collect())
}

/// Prints the figures of the departures, and compares them with the guarantee.
fn check(departures: &[Departure], guarantee: Guarantee) -> Outcome<()> {
    let Guarantee { rate, burst } = guarantee;
    // Without those of the bucket, and some more.
    let bucket = (burst.0 / FRAME.0) as usize + 10;
    let paced = departures.get(bucket..).unwrap_or_default();
    let mean = mean_rate(paced).ok_or("too few frames have no rate")?;
    let used = effective_burst(departures, rate);
    let late = lateness(departures).into_iter().max().unwrap_or_default();
    let mut figures = Figures::default();
    figures.add("pod.frames", departures.len() as u64, Unit::Count);
    figures.add("pod.rate", mean.as_bit_s(), Unit::BitsPerSecond);
    figures.add("pod.burst", used.0, Unit::Bytes);
    figures.add("pod.late.max", late, Unit::Nanos);
    print!("{figures}");
    if mean.as_bit_s().abs_diff(rate.as_bit_s()) * 1_000 > rate.as_bit_s() * TOLERANCE {
        return Err(format!("the rate is {mean}, and that of the claim {rate}").into());
    }
    // B·J bytes more, by frames of the bucket that leave late by J.
    let lateness_bytes = u128::from(rate.as_bit_s()) * u128::from(late) / 8_000_000_000;
    let most = burst.0 + FRAME.0 + u64::try_from(lateness_bytes)?;
    let least = burst.0.saturating_sub(FRAME.0);
    if !(least..=most).contains(&used.0) {
        return Err(format!("the burst is {used}, and not from {least} to {most} bytes").into());
    }
    Ok(())
}

/// The network namespace that the runtime made.
fn namespace() -> Outcome<PathBuf> {
    let spaces = std::fs::read_dir("/run/netns")?.flatten();
    let mut spaces = spaces.filter(|it| it.file_name().to_string_lossy().starts_with("cni-"));
    let found = spaces.next().ok_or("the pod has no network namespace")?;
    Ok(found.path())
}

/// The output of a program that has to succeed.
fn command(program: &str, words: &str) -> Outcome<String> {
    let output = Command::new(program)
        .args(words.split(' '))
        .stdin(Stdio::null())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{program} {words}: {text}{errors}").into());
    }
    Ok(text)
}
