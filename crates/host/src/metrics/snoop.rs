//! Metrics of guests' early acknowledgement.

use std::fmt::Error;
use tailbound_dataplane::snoop::{Mode, Pause};
use tailbound_metrics::{Encoder, counter, gauge};
use tailbound_switch::{Snapshot, SnoopSnapshot};

/// Encodes the guests with early acknowledgement.
pub(super) fn encode(snapshot: &Snapshot, encoder: &mut Encoder<'_>) -> Result<(), Error> {
    let guests = snapshot.guests.iter();
    let snoops = guests.filter_map(|guest| Some((&guest.port.name, guest.snoop?)));
    let snoops: Vec<(&String, SnoopSnapshot)> = snoops.collect();
    if snoops.is_empty() {
        return Ok(());
    }
    let modes = snoops.iter().flat_map(|(guest, snoop)| {
        let modes = Mode::LABELS.into_iter().zip(snoop.modes);
        let modes = modes.filter(|(_, count)| *count > 0);
        modes.map(|(mode, count)| {
            let labels = [("guest", (*guest).clone()), ("mode", mode.to_owned())];
            (labels, count as u64)
        })
    });
    gauge(
        encoder,
        "tailbound_snoop_flows",
        "Connections of the guest by whether they are acknowledged early (active), and why not",
        &modes.collect::<Vec<_>>(),
    )?;
    gauge(
        encoder,
        "tailbound_snoop_retained_bytes",
        "Memory of what was acknowledged early and the guest has not acknowledged yet",
        &snoops
            .iter()
            .map(|(guest, snoop)| ([("guest", (*guest).clone())], snoop.retained.0))
            .collect::<Vec<_>>(),
    )?;
    let events = snoops.iter().flat_map(|(guest, snoop)| {
        let stats = snoop.stats;
        let events = [
            ("early", stats.early),
            ("repeated", stats.repeated),
            ("suppressed", stats.suppressed),
            ("rewritten", stats.rewritten),
            ("withheld", stats.withheld),
            ("resent", stats.resent),
            ("probe", stats.probes),
            ("narrowed", stats.narrowed),
            ("beyond", stats.beyond()),
            ("reset", stats.resets),
            ("evicted", stats.evicted),
            ("crowded", stats.crowded),
        ];
        events.map(|(event, count)| {
            let labels = [("guest", (*guest).clone()), ("event", event.to_owned())];
            (labels, count)
        })
    });
    counter(
        encoder,
        "tailbound_snoop_segments",
        "Segments and connections of the guest, by the action of early acknowledgement",
        &events.collect::<Vec<_>>(),
    )?;
    encode_refused(&snoops, encoder)
}

/// Segments that were neither kept nor passed on.
fn encode_refused(
    snoops: &[(&String, SnoopSnapshot)],
    encoder: &mut Encoder<'_>,
) -> Result<(), Error> {
    let refused = snoops.iter().flat_map(|(guest, snoop)| {
        let refused = Pause::ALL.into_iter().zip(snoop.stats.refused);
        let refused = refused.filter(|(_, count)| *count > 0);
        refused.map(|(why, count)| {
            let labels = [
                ("guest", (*guest).clone()),
                ("reason", why.label().to_owned()),
            ];
            (labels, count)
        })
    });
    counter(
        encoder,
        "tailbound_snoop_refused",
        "Segments beyond the guest's window that were not kept, by why; their peers send them again",
        &refused.collect::<Vec<_>>(),
    )
}
