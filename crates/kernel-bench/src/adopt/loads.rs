//! Loads of `tailbound lab run limits` and `noisy` in small form, with the kernel's data path in place of the daemon's.
//!
//! The lab's hosts are daemons. Here two adopted guests share a bridge and an uplink. One has the guarantees of
//! `experiments/limits.toml` in turns, with Bmax = B, and floods. Then the other one sends messages, beside a
//! silent neighbour and beside a flooding one.

use super::{FRAME, PAYLOAD, tailbound};
use crate::Outcome;
use crate::analysis::Sorted;
use crate::load::{PORT, now, sleep_until, socket};
use crate::network::{Guest, add_bridge, join};
use std::net::UdpSocket;
use std::time::Duration;
use tailbound_sys::netns;
use tailbound_units::Nanos;

/// The guarantees of `limits`: B in bits a second, S in bytes.
const GUARANTEES: [(u64, u64); 4] = [
    (10_000_000, 30_000),
    (100_000_000, 30_000),
    (200_000_000, 250_000),
    (500_000_000, 1_250_000),
];
/// The largest deviation of a rate, in thousandths, as in `limits`.
const TOLERANCE: u64 = 5;
/// The time until a rate is steady, and the time that is measured.
const SETTLE: Nanos = Nanos::from_millis(300);
const WINDOW: Nanos = Nanos::from_millis(1_000);
/// The time after a flood until its last frame has left: above the horizon.
const LAST_FRAMES: Nanos = Nanos::from_millis(300);
/// Messages, their payload, and the time between two.
const MESSAGES: u64 = 1_000;
const MESSAGE: [u8; 200] = [0; 200];
const MESSAGE_INTERVAL: Nanos = Nanos::from_millis(1);
/// The longest wait for a message.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The first messages, which find the frames of a former load before them.
const WARM_UP: usize = 10;
/// Frames of the neighbour between two messages: 148 Mbit/s, with a guarantee of 100 Mbit/s.
const NOISE: usize = 12;

pub(super) fn run() -> Outcome<()> {
    let [noisy, quiet, outside] = [Guest::add(1)?, Guest::add(2)?, Guest::add(3)?];
    for (one, other) in [(noisy, quiet), (noisy, outside), (quiet, outside)] {
        one.introduce(other)?;
    }
    add_bridge("switch")?;
    for guest in [noisy, quiet, outside] {
        join("switch", &guest.port_name())?;
    }
    // From both guests: a frame without a receiver would be answered.
    let bind = || UdpSocket::bind(("0.0.0.0", PORT));
    let receiver = netns::within(&outside.namespace(), bind)??;
    receiver.set_read_timeout(Some(TIMEOUT))?;
    let sender = socket(quiet, &outside.address())?;
    let flood = socket(noisy, &outside.address())?;
    for (rate, burst) in GUARANTEES {
        adopt(noisy, outside, rate, burst)?;
        check_rate(rate, rate_of(&flood, outside, rate)?)?;
    }
    adopt(noisy, outside, 100_000_000, 30_000)?;
    adopt(quiet, outside, 50_000_000, 15_000)?;
    let alone = messages(&sender, &receiver, None)?;
    let beside = messages(&sender, &receiver, Some(&flood))?;
    for (name, waits) in [("alone", &alone), ("beside a flood", &beside)] {
        let [median, tail, most] = [500, 999, 1_000].map(|it| Nanos(waits.quantile(it)));
        println!(
            "messages {name}: 0 lost, median {median}, 99.9th percentile {tail}, at most {most}"
        );
    }
    tailbound("release --all")
}

fn adopt(guest: Guest, outside: Guest, rate: u64, burst: u64) -> Outcome<()> {
    let (port, mac, address) = (guest.port_name(), guest.mac_text(), guest.address());
    let uplink = outside.port_name();
    tailbound(&format!(
        "adopt {port} --mac {mac} --ip {address} --uplink {uplink} --guarantee {rate}bit/s,{burst}B --peak {rate}bit/s"
    ))
}

/// Floods at 1.2 times a rate, and returns the rate that leaves the uplink, on the wire.
fn rate_of(flood: &UdpSocket, outside: Guest, rate: u64) -> Outcome<u64> {
    let file = format!(
        "/sys/class/net/{}/statistics/tx_packets",
        outside.port_name()
    );
    let left = || -> Outcome<u64> { Ok(std::fs::read_to_string(&file)?.trim().parse()?) };
    let gap = Nanos(FRAME * 8 * 1_000_000_000 * 10 / 12 / rate);
    let (from, mut first) = (now() + SETTLE, None);
    let mut next = now();
    while next < from + WINDOW {
        sleep_until(next);
        if first.is_none() && now() >= from {
            first = Some((now(), left()?));
        }
        // A full queue is no error of the trial.
        let _ = flood.send(&PAYLOAD);
        next += gap;
    }
    let (begin, before) = first.ok_or("the flood is too short")?;
    let (time, frames) = (now().since(begin), left()? - before);
    sleep_until(now() + LAST_FRAMES);
    Ok(frames * FRAME * 8 * 1_000_000 / (time.0 / 1_000))
}

fn check_rate(wanted: u64, rate: u64) -> Outcome<()> {
    println!("guarantee {wanted} bit/s: {rate} bit/s");
    if rate.abs_diff(wanted) * 1_000 <= wanted * TOLERANCE {
        return Ok(());
    }
    Err(format!("{rate} bit/s, and the guarantee is {wanted}").into())
}

/// Returns the waits of messages from `send` to `recv`; a lost one is an error.
fn messages(
    sender: &UdpSocket,
    receiver: &UdpSocket,
    noise: Option<&UdpSocket>,
) -> Outcome<Sorted> {
    let mut buffer = [0; 2_048];
    // A buffer that a flood has filled would drop the messages.
    receiver.set_nonblocking(true)?;
    while receiver.recv(&mut buffer).is_ok() {}
    receiver.set_nonblocking(false)?;
    let mut waits = Vec::new();
    let mut next = now();
    for _ in 0..MESSAGES {
        sleep_until(next);
        for _ in 0..NOISE {
            if let Some(noise) = noise {
                let _ = noise.send(&PAYLOAD);
            }
        }
        let sent = now();
        sender.send(&MESSAGE)?;
        while receiver.recv(&mut buffer)? != MESSAGE.len() {}
        waits.push(now().since(sent).0);
        next += MESSAGE_INTERVAL;
    }
    sleep_until(now() + LAST_FRAMES);
    Sorted::new(waits.split_off(WARM_UP)).ok_or_else(|| "no message".into())
}
