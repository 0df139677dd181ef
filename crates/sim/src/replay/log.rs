//! Logs of flows: CSV with a line of names, and a row a message.

use super::{Guest, LONGEST, Recording, ReplayError};
use crate::csv::{self, Wrong};
use std::path::Path;
use tailbound_dataplane::PacketRecord;
use tailbound_units::Nanos;

/// The columns, in their order.
const COLUMNS: [&str; 4] = ["time_ns", "guest", "destination", "bytes"];

/// What TCP hands over at once at most: 45 segments of 1448 B, and their headers once.
const SEGMENT: u64 = 1448;
const AT_ONCE: u64 = 45 * SEGMENT;
const HEADERS: u64 = 66;

/// The guests of a log at most: each takes a look at all of it.
const MOST_GUESTS: usize = 1024;

/// The largest message: 1 GB.
const MOST: u64 = 1_000_000_000;

/// Adds the rows of a log.
pub(super) fn read(path: &Path, text: &str, recording: &mut Recording) -> Result<(), ReplayError> {
    let wrong = |Wrong { line, column, what }| ReplayError::Log {
        path: path.to_owned(),
        line,
        column,
        what,
    };
    let takes_all = recording.guests.is_empty();
    let (mut first, mut last) = (None, 0);
    for row in csv::rows(text, COLUMNS, "a log of flows").map_err(wrong)? {
        let row = row.map_err(wrong)?;
        let [_, guest, destination, _] = row.fields;
        let time = row.number(0, 0..=u64::MAX).map_err(wrong)?;
        let bytes = row.number(3, 1..=MOST).map_err(wrong)?;
        let came = Nanos(time.saturating_sub(*first.get_or_insert(time)));
        if time < std::mem::replace(&mut last, time) {
            let what = "it is before the row above: rows are in the order of their times";
            return Err(wrong(row.wrong(0, what)));
        }
        if came > LONGEST {
            let what = "it is more than a month after the first row";
            return Err(wrong(row.wrong(0, what)));
        }
        let Some(guest) = guest_of(recording, guest, takes_all) else {
            recording.left_out.of_others += 1;
            continue;
        };
        if recording.guests.len() > MOST_GUESTS {
            let what = format!("a log of one host has at most {MOST_GUESTS} guests");
            return Err(wrong(row.wrong(1, what)));
        }
        recording.add(guest, came, packets(destination, bytes));
        recording.check_size(path)?;
    }
    Ok(())
}

/// The number of the guest of that name, which is new where all are taken.
fn guest_of(recording: &mut Recording, name: &str, takes_all: bool) -> Option<u32> {
    let guests = &mut recording.guests;
    let known = guests.iter().position(|guest| guest.name == name);
    if known.is_none() && takes_all {
        guests.push(Guest {
            name: name.to_owned(),
            mac: None,
            guarantee: None,
        });
    }
    let number = known.or_else(|| takes_all.then(|| guests.len() - 1));
    number.map(|number| number as u32)
}

/// A message as TCP hands it over.
fn packets(destination: &str, bytes: u64) -> impl Iterator<Item = PacketRecord> {
    let destination = address(destination);
    (0..bytes.div_ceil(AT_ONCE)).map(move |number| {
        let payload = (bytes - number * AT_ONCE).min(AT_ONCE);
        PacketRecord {
            destination,
            ..PacketRecord::new((HEADERS + payload) as usize)
        }
    })
}

/// A number for a name: FNV-1a, 128 bits, so that no two of a log meet.
fn address(name: &str) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    name.bytes().fold(BASIS, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(PRIME)
    })
}
