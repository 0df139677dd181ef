//! Metrics of the uplink's pacer.

use std::fmt::Error;
use tailbound_dataplane::pacer::WireCount;
use tailbound_metrics::{Encoder, Kind, Labels, Unit, counter, gauge};
use tailbound_switch::{GuestPacing, PortSnapshot, Snapshot, UplinkPacing};

/// Encodes the pacer; nothing if the uplink is not paced.
pub(super) fn encode(snapshot: &Snapshot, encoder: &mut Encoder<'_>) -> Result<(), Error> {
    let uplink = snapshot.uplink.as_ref();
    let Some(uplink) = uplink.and_then(|uplink| uplink.pacing.as_ref()) else {
        return Ok(());
    };
    encode_uplink(uplink, snapshot.refusals, encoder)?;
    encode_times(uplink, encoder)?;
    let guests = snapshot.guests.iter();
    let guests = guests.filter_map(|guest| Some((&guest.port, guest.pacing.as_ref()?)));
    encode_guests(&guests.collect::<Vec<_>>(), encoder)
}

fn encode_uplink(
    uplink: &UplinkPacing,
    refusals: u64,
    encoder: &mut Encoder<'_>,
) -> Result<(), Error> {
    let stats = uplink.stats;
    let class = |of: fn(WireCount) -> u64| {
        [
            ([("class", "guaranteed".to_owned())], of(stats.guaranteed)),
            ([("class", "local".to_owned())], of(stats.local)),
            ([("class", "best_effort".to_owned())], of(stats.best_effort)),
            ([("class", "elastic".to_owned())], of(stats.elastic)),
        ]
    };
    counter(
        encoder,
        "tailbound_pacer_packets",
        "Packets that the pacer handed over, voids not counted",
        &class(|count| count.packets),
    )?;
    counter(
        encoder,
        "tailbound_pacer_bytes",
        "Wire bytes of these packets: preamble, FCS and gap included",
        &class(|count| count.bytes.0),
    )?;
    let counters = [
        (
            "tailbound_pacer_voids",
            "Void frames sent, which no other counter of packets counts",
            uplink.voids.0,
        ),
        (
            "tailbound_pacer_void_bytes",
            "Wire bytes of void frames",
            uplink.voids.1,
        ),
        (
            "tailbound_pacer_collided",
            "Packets handed over 84 bytes or more after their departure time, as others were before \
             them",
            stats.collided,
        ),
        (
            "tailbound_pacer_backpressure",
            "Times that a guest's port was left unread, as its guarantee is what its packets wait \
             for",
            stats.unread,
        ),
        (
            "tailbound_guarantee_refusals",
            "Guarantees that break a rule of the pacer",
            refusals,
        ),
    ];
    for (name, help, value) in counters {
        counter::<0>(encoder, name, help, &[([], value)])?;
    }
    Ok(())
}

/// Encodes the lateness of the pacer, and the time for which its clock stood still.
fn encode_times(uplink: &UplinkPacing, encoder: &mut Encoder<'_>) -> Result<(), Error> {
    let stats = uplink.stats;
    encoder
        .family(
            "tailbound_pacer_frozen",
            "Time for which the virtual clock stood still because due frames were not sent",
            Unit::Seconds,
            Kind::Counter,
        )?
        .number(stats.frozen.as_secs_f64())?;
    encoder
        .family(
            "tailbound_pacer_max_lateness",
            "The most that a packet was handed over after its departure time",
            Unit::Seconds,
            Kind::Gauge,
        )?
        .number(uplink.max_lateness.as_secs_f64())?;
    let mut lateness = encoder.family(
        "tailbound_pacer_lateness",
        "Lateness of the packet loop's wake-ups; up to half a batch delays no frame",
        Unit::Seconds,
        Kind::Histogram,
    )?;
    lateness.histogram(&uplink.lateness)
}

type Guests<'s> = [(&'s PortSnapshot, &'s GuestPacing)];

/// A metric's name, its help, and its value for a guest.
type OfGuest = (&'static str, &'static str, fn(&GuestPacing) -> u64);

/// Counters of each guest.
const OF_GUESTS: [OfGuest; 8] = [
    (
        "tailbound_pacer_guest_packets",
        "The guest's packets that the pacer took, segments counted each",
        |guest| guest.stats.taken.packets,
    ),
    (
        "tailbound_pacer_guest_bytes",
        "Wire bytes of these packets",
        |guest| guest.stats.taken.bytes.0,
    ),
    (
        "tailbound_pacer_guest_elastic_packets",
        "The guest's packets that left beyond its guarantee, in the lowest class",
        |guest| guest.stats.elastic.packets,
    ),
    (
        "tailbound_pacer_guest_elastic_bytes",
        "Wire bytes of these packets",
        |guest| guest.stats.elastic.bytes.0,
    ),
    (
        "tailbound_pacer_guest_marked",
        "Packets of the guest that were marked (ECN) after a long wait",
        |guest| guest.stats.marked,
    ),
    (
        "tailbound_pacer_guest_backpressure",
        "Times that the guest's port was left unread, as its guarantee is what its packets wait \
         for",
        |guest| guest.stats.unread,
    ),
    (
        "tailbound_pacer_guest_held_back",
        "Times that a packet of the guest had to wait for the limit of its destination",
        |guest| guest.stats.held_back,
    ),
    (
        "tailbound_pacer_guest_dropped",
        "The guest's packets that the pacer dropped: longer than any frame, or beyond what they \
         may hold of the memory, or too long for their destination's limit",
        |guest| guest.stats.dropped,
    ),
];

fn encode_guests(guests: &Guests<'_>, encoder: &mut Encoder<'_>) -> Result<(), Error> {
    let of = |number: fn(&GuestPacing) -> u64| {
        let guests = guests.iter();
        let sample = |(port, pacing): &(&PortSnapshot, &GuestPacing)| (name(port), number(pacing));
        guests.map(sample).collect::<Vec<_>>()
    };
    for (name, help, number) in OF_GUESTS {
        counter(encoder, name, help, &of(number))?;
    }
    gauge(
        encoder,
        "tailbound_pacer_guest_elastic_flows",
        "The guest's flows that are elastic now: they send beyond its guarantee",
        &of(|guest| guest.elastic_flows as u64),
    )?;
    gauge(
        encoder,
        "tailbound_pacer_guest_unread",
        "1 while the guest's port is left unread, as its guarantee is what its packets wait for",
        &of(|guest| u64::from(guest.unread)),
    )?;
    gauge(
        encoder,
        "tailbound_pacer_guest_guarantee_refused",
        "1 while the guest's new guarantee breaks a rule and the old one stays in force",
        &of(|guest| u64::from(guest.refused)),
    )?;
    let bandwidths = guests.iter().filter_map(|(port, pacing)| {
        let guarantee = pacing.guarantee?;
        Some((name(port), guarantee.bandwidth.0))
    });
    gauge(
        encoder,
        "tailbound_pacer_guest_bandwidth_bits_per_second",
        "Rate enforced for the guest; absent for best effort",
        &bandwidths.collect::<Vec<_>>(),
    )?;
    let mut waits = encoder.family(
        "tailbound_pacer_guest_wait",
        "Time in the pacer of the guest's last sent packet",
        Unit::Seconds,
        Kind::Gauge,
    )?;
    for (port, pacing) in guests {
        let seconds = pacing.stats.sojourn.as_secs_f64();
        waits.with(&name(port))?.number(seconds)?;
    }
    Ok(())
}

fn name(port: &PortSnapshot) -> Labels<1> {
    [("guest", port.name.clone())]
}
