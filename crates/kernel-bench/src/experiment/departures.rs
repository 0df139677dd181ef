//! Departures behind two queues of the kernel: a burst through a bridge and `tbf`, and datagrams
//! with departure times behind `fq`.

use crate::Outcome;
use crate::analysis::{effective_burst, gaps, lateness, mean_rate};
use crate::experiment::add_quantiles;
use crate::figures::{Figures, Unit};
use crate::load::{now, sleep_until, socket, wait_until};
use crate::network::{Guest, add_bridge, join, run as ip};
use tailbound_sys::departures::{Departure, Log};
use tailbound_sys::txtime;
use tailbound_units::{Nanos, Rate};

const RATE: Rate = Rate::from_mbit(100);
const PAYLOAD: [u8; 1472] = [0; 1472];
/// Datagrams of the burst, of frames of 1,514 B.
const BURST: usize = 600;
/// Datagrams with departure times, and the time from one to the next.
const TIMED: u64 = 500;
const SPACING: Nanos = Nanos::from_micros(200);

pub(crate) fn run(figures: &mut Figures) -> Outcome<()> {
    let (from, to) = (Guest::add(1)?, Guest::add(2)?);
    from.introduce(to)?;
    add_bridge("switch")?;
    join("switch", &from.port_name())?;
    join("switch", &to.port_name())?;
    // So that the kernel refuses nothing; it drops what this socket has no room for.
    let _receiver = socket(to, &from.address())?;
    let mut log = Log::load(4096)?;
    behind_tbf(figures, &mut log, from, to)?;
    behind_fq(figures, &mut log, from, to)
}

/// Sends as fast as the sender can; `tbf` on the receiver's port lets 15,000 B through and then
/// keeps the rate.
fn behind_tbf(figures: &mut Figures, log: &mut Log, from: Guest, to: Guest) -> Outcome<()> {
    ip(&format!(
        "tc qdisc add dev {} root tbf rate 100mbit burst 15000 limit 2000000",
        to.port_name()
    ))?;
    let sender = socket(from, &to.address())?;
    log.watch(to.port())?;
    // The first burst after a boot meets code and caches that nothing has used yet.
    for round in 0..2 {
        log.clear()?;
        for _ in 0..BURST {
            sender.send(&PAYLOAD)?;
        }
        let left = || Ok(log.count()? >= BURST as u64);
        wait_until(&format!("{BURST} frames leave tbf in round {round}"), left)?;
        // The bucket is full again.
        sleep_until(now().saturating_add(Nanos::from_millis(10)));
    }
    let departures = log.read()?;
    let rate = mean_rate(&departures).ok_or("one frame has no rate")?;
    let burst = effective_burst(&departures, RATE);
    figures.add("tbf.frames", departures.len() as u64, Unit::Count);
    figures.add("tbf.rate", rate.as_bit_s(), Unit::BitsPerSecond);
    figures.add("tbf.burst", burst.0, Unit::Bytes);
    add_quantiles(figures, "tbf.gap", gaps(&departures))
}

/// Sends each datagram 2 ms before it is due, by `fq` of the sender's own interface.
fn behind_fq(figures: &mut Figures, log: &mut Log, from: Guest, to: Guest) -> Outcome<()> {
    ip(&format!(
        "tc -n {} qdisc add dev eth0 root fq flow_limit 1000",
        from.namespace_name()
    ))?;
    let sender = socket(from, &to.address())?;
    txtime::enable(&sender)?;
    log.watch(from.inner())?;
    log.clear()?;
    let start = now().saturating_add(Nanos::from_millis(10));
    let ahead = Nanos::from_millis(2);
    for number in 0..TIMED {
        let due = start.saturating_add(Nanos(number * SPACING.0));
        sleep_until(due.saturating_sub(ahead));
        txtime::send(&sender, &PAYLOAD, due)?;
    }
    let count = || -> Outcome<Vec<Departure>> {
        let all = log.read()?.into_iter();
        Ok(all.filter(|it| it.interface == from.inner()).collect())
    };
    wait_until("all frames leave fq", || Ok(count()?.len() as u64 >= TIMED))?;
    let departures = count()?;
    figures.add("fq.frames", departures.len() as u64, Unit::Count);
    figures.add(
        "fq.timed",
        departures.iter().filter(|it| it.due.is_some()).count() as u64,
        Unit::Count,
    );
    add_quantiles(figures, "fq.late", lateness(&departures))?;
    add_quantiles(figures, "fq.gap", gaps(&departures))
}
