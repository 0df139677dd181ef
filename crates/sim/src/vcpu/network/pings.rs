//! Pings of a guest, one after the other, and the parts of their times.

use super::bench::{Bench, Figures, LIMIT, TALKER};
use super::net::{Notice, Station};
use super::spec::PingSpec;
use crate::vcpu::recorder::record;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tailbound_report::{Series, empty_histogram};
use tailbound_units::Nanos;

/// A slice of the credit scheduler, and a tick.
const SLICE: Nanos = Nanos::from_millis(30);
const TICK: Nanos = Nanos::from_millis(10);
/// Upper limit of the time in the driver domain for 93 % of the packets, according to vSnoop's
/// section II.
const BRIEF: Nanos = Nanos::from_micros(450);
/// Waits up to this time do not count, and a wait this near a multiple of a slice is on it.
const NEAR: Nanos = Nanos::from_millis(1);

/// Parts of a ping's time.
struct Trip {
    /// Whole round trip.
    whole: Nanos,
    /// Time from the NIC through the driver domain to the guest's ring.
    driver: Nanos,
    /// Time in the ring, until the guest reads it.
    guest: Nanos,
    /// Time of its answer in the ring on the way out.
    out: Nanos,
}

/// Measures pings.
pub(super) fn measure(bench: &Bench<'_>, spec: &PingSpec) -> Result<Figures, String> {
    let mut net = bench.net(1, vec![Station::Bare, Station::Guest(0, TALKER)])?;
    let mut random = Pcg64Mcg::seed_from_u64(bench.seed);
    let jitter = bench.networks.network.pause;
    let end = net.link(0, 1);
    let mut trips = Vec::new();
    let (mut due, mut began) = (Nanos::ZERO, Nanos::ZERO);
    net.wake_at(due, 0);
    while trips.len() < spec.count as usize {
        match net.poll(LIMIT).ok_or("its pings come to no end")? {
            Notice::Wake(_) => {
                began = net.now();
                net.ping(end);
            }
            Notice::Ready(_) => {
                let marks = net.hosts()[0].marks();
                trips.push(Trip {
                    whole: net.now() - began,
                    driver: marks.bridged - marks.arrived,
                    guest: marks.taken - marks.bridged,
                    out: marks.left - marks.answered,
                });
                let late = Nanos(random.random_range(0..=jitter.as_nanos()));
                due = (due + spec.interval + late).max(net.now());
                net.wake_at(due, 0);
            }
        }
    }
    Ok(figures(&trips))
}

/// Returns the names of all values.
pub(super) fn outline() -> Figures {
    figures(&[])
}

fn figures(trips: &[Trip]) -> Figures {
    let brief = trips.iter().filter(|trip| trip.driver <= BRIEF).count();
    let mut figures = Figures::of([
        (
            "driver_brief",
            100.0 * brief as f64 / trips.len() as f64,
            "%",
        ),
        (
            "guest_on_slices",
            on_multiples(trips, |trip| trip.guest, SLICE),
            "%",
        ),
        (
            "out_on_ticks",
            on_multiples(trips, |trip| trip.out, TICK),
            "%",
        ),
    ]);
    let mut insert = |name: &str, part: fn(&Trip) -> Nanos| {
        let mut histogram = empty_histogram();
        for trip in trips {
            record(&mut histogram, part(trip));
        }
        let series = Series::of("ns", &histogram);
        figures.series.insert(name.to_owned(), series);
    };
    insert("rtt", |trip| trip.whole);
    insert("driver", |trip| trip.driver);
    insert("guest", |trip| trip.guest);
    insert("out", |trip| trip.out);
    figures
}

/// Returns the percentage of waits that are a multiple of `step`, of all waits that count.
fn on_multiples(trips: &[Trip], wait: fn(&Trip) -> Nanos, step: Nanos) -> f64 {
    let waits = trips.iter().map(wait).filter(|&wait| wait > NEAR);
    let (mut all, mut on) = (0_u32, 0_u32);
    for wait in waits {
        let beyond = wait.0 % step.0;
        all += 1;
        on += u32::from(wait >= step - NEAR && beyond.min(step.0 - beyond) <= NEAR.0);
    }
    100.0 * f64::from(on) / f64::from(all)
}
