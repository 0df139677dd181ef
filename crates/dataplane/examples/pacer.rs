//! Speed of the pacer in filling a wire.
//!
//! `cargo run --release -p tailbound-dataplane --example pacer` fills one second of a 10 Gbit/s
//! wire at a time, in memory, on one core, with data at several rates and voids in between. It then
//! compares the cost of a frame with ten guests and with ten thousand, and measures the hose
//! model's work of each millisecond: querying used destinations, and changing their limits. Fails
//! below 20 million frames per second, or if a frame costs more than 1.3 times as many nanoseconds
//! with ten thousand guests.

use std::error::Error;
use std::fs;
use std::process::ExitCode;
use tailbound_dataplane::pacer::{Guarantee, Pacer, PacerConfig, WireItem};
use tailbound_dataplane::{GuestId, PacketRecord};
use tailbound_units::{Bytes, Nanos, Rate};

/// Required frames per second when the wire needs voids of all sizes.
const FRAMES: f64 = 20e6;
/// Maximum cost of a frame with ten thousand guests, relative to ten.
const SCALING: f64 = 1.3;
const LINK: Rate = Rate::from_mbit(10_000);
const START: Nanos = Nanos::from_secs(1);

/// A frame of a guest; none is segmented.
const fn frame(guest: u32, len: usize) -> PacketRecord {
    PacketRecord {
        guest,
        destination: 1,
        cut: false,
        ..PacketRecord::new(len)
    }
}

/// CPU time of this thread in nanoseconds, without the time of other processes.
fn cpu_time() -> Result<f64, Box<dyn Error>> {
    let schedstat = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = schedstat.split(' ').next().unwrap_or_default();
    Ok(nanos.parse()?)
}

/// Items on the wire.
#[derive(Debug, Default)]
struct WireTotals {
    data: u64,
    data_bytes: u64,
    voids: u64,
    nanos: f64,
}

/// Fills the wire: guests with frames always waiting share `rate` of the wire evenly, until a
/// number of items has been sent.
fn fill(
    guests: u32,
    each: u32,
    rate: Rate,
    len: usize,
    count: u64,
) -> Result<WireTotals, Box<dyn Error>> {
    let mut pacer = Pacer::new(&PacerConfig::strict(LINK))?;
    let share = Rate(rate.0 / u64::from(guests));
    let guarantee = Guarantee {
        horizon: Nanos::from_millis(300),
        mark: None,
        ..Guarantee::new(share, Bytes(1538), share)
    };
    let mut free = Vec::new();
    for guest in 0..guests {
        pacer.set_guest(START, GuestId::first(guest), Some(&guarantee))?;
        free.extend((0..each).map(|_| frame(guest, len)));
    }
    let mut now = START;
    let mut sent = WireTotals::default();
    let warm = count / 5;
    let mut started = cpu_time()?;
    let mut warmed = false;
    while sent.data + sent.voids < count {
        for frame in free.drain(..) {
            pacer.enqueue(now, frame);
        }
        pacer.batch(now).for_each(|paced| match paced {
            WireItem::Guaranteed { frame, .. } => {
                sent.data += 1;
                sent.data_bytes += frame.wire().0;
                free.push(frame);
            }
            WireItem::BestEffort { .. } | WireItem::Elastic { .. } | WireItem::Local { .. } => {}
            WireItem::Void { .. } => sent.voids += 1,
        });
        if let Some(at) = pacer.poll_at() {
            now = now.max(at);
        }
        if !warmed && sent.data + sent.voids >= warm {
            sent = WireTotals::default();
            (started, warmed) = (cpu_time()?, true);
        }
    }
    sent.nanos = cpu_time()? - started;
    Ok(sent)
}

fn speed() -> Result<bool, Box<dyn Error>> {
    println!("data       frame   data/s     voids/s    frames/s   ns a frame");
    let mut good = true;
    for mbit in [100, 1000, 5000, 9000, 9900] {
        for len in [60, 1514] {
            let sent = fill(10, 40, Rate::from_mbit(mbit), len, 20_000_000)?;
            let frames = (sent.data + sent.voids) as f64;
            let rate = frames / sent.nanos * 1e9;
            println!(
                "{:>4} Gbit/s {len:>4} B {:>6.1} M {:>9.1} M {:>9.1} M {:>9.1}",
                mbit as f64 / 1000.0,
                sent.data as f64 / sent.nanos * 1e3,
                sent.voids as f64 / sent.nanos * 1e3,
                rate / 1e6,
                1e9 / rate
            );
            good &= rate >= FRAMES;
        }
    }
    let mut costs = Vec::new();
    for (guests, each) in [(10, 1000), (10_000, 1)] {
        let mut best = f64::MAX;
        for _ in 0..5 {
            let sent = fill(guests, each, Rate::from_mbit(9000), 1514, 4_000_000)?;
            best = best.min(sent.nanos / sent.data as f64);
        }
        println!("{guests:>6} guests: {best:.1} ns a data frame, with its voids");
        costs.push(best);
    }
    let ratio = costs[1] / costs[0];
    println!("ten thousand guests cost {ratio:.2} times as much a frame as ten");
    hose()?;
    Ok(good && ratio <= SCALING)
}

/// Measures the time of ten thousand guests with fifty limits each, of which ten are used and then
/// changed, for each limit.
fn hose() -> Result<(), Box<dyn Error>> {
    const GUESTS: u32 = 10_000;
    const DESTINATIONS: u64 = 50;
    let mut pacer = Pacer::new(&PacerConfig::strict(LINK))?;
    let share = Rate(LINK.0 / u64::from(GUESTS));
    let guarantee = Guarantee::new(share, Bytes(30_000), LINK);
    for guest in 0..GUESTS {
        pacer.set_guest(Nanos::ZERO, GuestId::first(guest), Some(&guarantee))?;
    }
    for guest in 0..GUESTS {
        for destination in 0..DESTINATIONS {
            pacer.set_destination(
                START,
                GuestId::first(guest),
                destination.into(),
                Some(share),
            )?;
        }
    }
    for id in 0..10 {
        for guest in 0..GUESTS {
            let destination = (u64::from(guest) + 7 * id) % DESTINATIONS;
            let frame = PacketRecord {
                destination: destination.into(),
                ..frame(guest, 1514)
            };
            pacer.enqueue(START, frame);
        }
    }
    let mut now = START;
    while let Some(at) = pacer.poll_at() {
        now = at;
        pacer.batch(now).for_each(drop);
    }
    let mut used = Vec::with_capacity(500_000);
    let started = cpu_time()?;
    pacer.destinations_used(now, |one| used.push(one.flow));
    let asked = cpu_time()?;
    for turn in 1..=10 {
        for flow in &used {
            let rate = Some(Rate(share.0 - turn));
            pacer.set_destination(now, flow.source, flow.destination, rate)?;
        }
    }
    let set = cpu_time()?;
    let limits = used.len() as f64;
    println!(
        "{limits} of 500000 limits used: {:.0} ns each to name them, {:.0} ns to change one",
        (asked - started) / limits,
        (set - asked) / limits / 10.0
    );
    Ok(())
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    Ok(if speed()? {
        ExitCode::SUCCESS
    } else {
        println!("not fast enough");
        ExitCode::FAILURE
    })
}
