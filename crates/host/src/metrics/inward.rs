//! Metrics of the traffic to guests, within their senders' guarantees and beyond.

use std::fmt::Error;
use tailbound_dataplane::pacer::WireCount;
use tailbound_metrics::{Encoder, counter};
use tailbound_switch::Snapshot;

/// Encodes the counters of the guests whose senders are policed.
pub(super) fn encode(snapshot: &Snapshot, encoder: &mut Encoder<'_>) -> Result<(), Error> {
    let guests = snapshot.guests.iter();
    let counts = guests.filter_map(|guest| {
        let inward = guest.inward?;
        Some([
            (&guest.port.name, "conforming", inward.conforming),
            (&guest.port.name, "exceeding", inward.exceeding),
            (&guest.port.name, "unannounced", inward.unannounced),
        ])
    });
    let counts: Vec<_> = counts.flatten().collect();
    if counts.is_empty() {
        return Ok(());
    }
    let of = |number: fn(WireCount) -> u64| {
        let samples = counts.iter().map(|(guest, admission, count)| {
            let labels = [
                ("guest", (*guest).clone()),
                ("admission", (*admission).to_owned()),
            ];
            (labels, number(*count))
        });
        samples.collect::<Vec<_>>()
    };
    counter(
        encoder,
        "tailbound_inward_packets",
        "Packets that came for the guest in the guaranteed class, by whether its senders are \
         guaranteed that much",
        &of(|count| count.packets),
    )?;
    counter(
        encoder,
        "tailbound_inward_bytes",
        "Wire bytes of these packets: preamble, FCS and gap included",
        &of(|count| count.bytes.0),
    )
}
