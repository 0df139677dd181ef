//! The counters of the exchange of rates, as text.

use super::HoseSnapshot;
use std::fmt::Error;
use tailbound_metrics::{Encoder, counter, gauge};

pub(crate) fn encode(snapshot: &HoseSnapshot, encoder: &mut Encoder<'_>) -> Result<(), Error> {
    encode_messages(snapshot, encoder)?;
    encode_events(snapshot, encoder)?;
    let HoseSnapshot { state, .. } = snapshot;
    gauge(
        encoder,
        "tailbound_hose_peers",
        "Other hosts, by state: configured, recently heard, with a key, ignored because of other \
            classes",
        &[
            (word("state", "configured"), state.peers),
            (word("state", "alive"), state.alive),
            (word("state", "keyed"), state.keyed),
            (word("state", "other_classes"), state.other_classes),
        ],
    )?;
    encode_keys(snapshot, encoder)?;
    gauge(
        encoder,
        "tailbound_hose_pairs",
        "Pairs of a machine here and one elsewhere: with a limit, in use, and granted something \
         as a receiver",
        &[
            (word("state", "known"), state.pairs),
            (word("state", "sending"), state.open),
            (word("state", "receiving"), state.granted),
        ],
    )
}

/// Encodes the state of the keys that the placement service issues, if it does.
fn encode_keys(snapshot: &HoseSnapshot, encoder: &mut Encoder<'_>) -> Result<(), Error> {
    let Some(issued) = snapshot.issued else {
        return Ok(());
    };
    gauge::<0>(
        encoder,
        "tailbound_hose_key_epoch",
        "The latest epoch of the keys that the placement service issued; 0: none ever",
        &[([], u64::from(issued.epoch))],
    )?;
    counter::<0>(
        encoder,
        "tailbound_hose_key_failures",
        "Times that the placement service issued no keys when it was asked",
        &[([], issued.failures)],
    )
}

/// Returns a label with one of its words.
fn word(name: &'static str, word: &str) -> [(&'static str, String); 1] {
    [(name, word.to_owned())]
}

fn encode_messages(snapshot: &HoseSnapshot, encoder: &mut Encoder<'_>) -> Result<(), Error> {
    let HoseSnapshot { state, .. } = snapshot;
    counter(
        encoder,
        "tailbound_hose_messages",
        "Datagrams with rates that were accepted from other hosts, and sent to them",
        &[
            (word("direction", "received"), state.received),
            (word("direction", "sent"), state.sent),
        ],
    )?;
    let dropped: Vec<_> = state
        .dropped
        .by_reason()
        .into_iter()
        .map(|(reason, count)| (word("reason", reason), count))
        .collect();
    counter(
        encoder,
        "tailbound_hose_messages_dropped",
        "Datagrams that changed nothing",
        &dropped,
    )
}

/// Encodes counters without labels.
fn encode_events(snapshot: &HoseSnapshot, encoder: &mut Encoder<'_>) -> Result<(), Error> {
    let HoseSnapshot { state, .. } = snapshot;
    for (name, help, value) in [
        (
            "tailbound_hose_send_failures",
            "Datagrams that the system did not send",
            snapshot.send_failures,
        ),
        (
            "tailbound_hose_entries_unknown",
            "Requests and grants for machines that are not known here",
            state.unknown,
        ),
        (
            "tailbound_hose_no_room",
            "Pairs and machines for which there was no room",
            state.no_room,
        ),
        (
            "tailbound_hose_fallbacks",
            "Pairs in use that fell back to their static share, as the receiver's host was silent",
            state.fallbacks,
        ),
        (
            "tailbound_hose_silences",
            "Pledges to other hosts that ran out, so that their machines are sent static shares",
            state.silences,
        ),
        (
            "tailbound_hose_restarts",
            "Other hosts that started again",
            state.restarts,
        ),
        (
            "tailbound_hose_epochs_changed",
            "Other hosts that did not take this one's epoch, as a clock was wrong, and take another",
            state.epochs_changed,
        ),
        (
            "tailbound_hose_rates_refused",
            "Rates that the pacer did not take",
            snapshot.refused,
        ),
    ] {
        counter::<0>(encoder, name, help, &[([], value)])?;
    }
    Ok(())
}
