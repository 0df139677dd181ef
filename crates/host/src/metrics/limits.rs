//! Metrics of guests' limits.

use std::fmt::Error;
use tailbound_metrics::{Encoder, Kind, Labels, Unit, counter, gauge};
use tailbound_switch::{LimitSnapshot, Snapshot};

type Limits<'s> = [(Labels<1>, &'s LimitSnapshot)];

/// A metric's name, its help, and its value for a guest.
type OfGuest = (&'static str, &'static str, fn(&LimitSnapshot) -> u64);

/// Counters of each guest with a limit out.
const COUNTERS: [OfGuest; 8] = [
    (
        "tailbound_limit_packets",
        "The guest's packets that its limit let go, segments counted each",
        |limit| limit.stats.sent.packets,
    ),
    (
        "tailbound_limit_bytes",
        "Their bytes, of Ethernet frames without FCS",
        |limit| limit.stats.sent.bytes,
    ),
    (
        "tailbound_limit_at_once_packets",
        "Small control packets among these that passed before what waited",
        |limit| limit.stats.at_once.packets,
    ),
    ("tailbound_limit_at_once_bytes", "Their bytes", |limit| {
        limit.stats.at_once.bytes
    }),
    (
        "tailbound_limit_lined_up",
        "Small control packets that waited with the rest: beyond their budget, or before the end \
         of what waited of their connection",
        |limit| limit.stats.lined_up,
    ),
    (
        "tailbound_limit_beyond_window",
        "Packets that left later than their smooth window, as the bucket held them",
        |limit| limit.stats.beyond_window,
    ),
    (
        "tailbound_limit_dropped",
        "Packets that were dropped where they waited for the limit",
        |limit| limit.stats.queue.drops.total(),
    ),
    (
        "tailbound_limit_marked",
        "Packets that were marked (ECN) where they waited for the limit",
        |limit| limit.stats.queue.marked + limit.stats.queue.marked_scalable,
    ),
];

/// Gauges of each guest with a limit out.
const GAUGES: [OfGuest; 3] = [
    (
        "tailbound_limit_bits_per_second",
        "Rate limit of the guest, in Ethernet frames without FCS",
        |limit| limit.rate.0,
    ),
    (
        "tailbound_limit_held_bytes",
        "The memory that the guest's packets hold while they wait for its limit",
        |limit| limit.backlog.memory.0,
    ),
    (
        "tailbound_limit_unread",
        "1 while the guest's port is left unread, as as much waits for its limit as may",
        |limit| u64::from(limit.unread),
    ),
];

/// Encodes the limits; nothing if no guest has a limit out.
pub(super) fn encode(snapshot: &Snapshot, encoder: &mut Encoder<'_>) -> Result<(), Error> {
    let guests = snapshot.guests.iter();
    let limits = guests.filter_map(|guest| {
        let limit = guest.limit.as_ref()?;
        Some(([("guest", guest.port.name.clone())], limit))
    });
    let limits: Vec<_> = limits.collect();
    if limits.is_empty() {
        return Ok(());
    }
    let of = |number: fn(&LimitSnapshot) -> u64| {
        let samples = limits.iter();
        let samples = samples.map(|(name, limit)| (name.clone(), number(limit)));
        samples.collect::<Vec<_>>()
    };
    for (name, help, number) in COUNTERS {
        counter(encoder, name, help, &of(number))?;
    }
    for (name, help, number) in GAUGES {
        gauge(encoder, name, help, &of(number))?;
    }
    encode_times(&limits, encoder)
}

fn encode_times(limits: &Limits<'_>, encoder: &mut Encoder<'_>) -> Result<(), Error> {
    let mut waits = encoder.family(
        "tailbound_limit_wait",
        "Queueing delay of packets behind the guest's limit",
        Unit::Seconds,
        Kind::Histogram,
    )?;
    for (name, limit) in limits {
        waits.with(name)?.histogram(&limit.waits)?;
    }
    let windows = limits.iter();
    let windows = windows.filter_map(|(name, limit)| Some((name, limit.window?)));
    let windows: Vec<_> = windows.collect();
    if windows.is_empty() {
        return Ok(());
    }
    let mut least = encoder.family(
        "tailbound_limit_window_least",
        "The least delay of the guest's smooth window now",
        Unit::Seconds,
        Kind::Gauge,
    )?;
    for (name, window) in windows {
        let seconds = window.least.as_secs_f64();
        least.with(name)?.number(seconds)?;
    }
    Ok(())
}
