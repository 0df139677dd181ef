//! Logs of flows: CSV with a line of names, or Parquet, and a row for each message.

use super::{Guest, MAX_RECORDING, MOST_PACKETS, Recording};
use crate::rows::{self, Row, Wrong};
use std::path::Path;
use tailbound_dataplane::PacketRecord;
use tailbound_units::Nanos;

/// The columns, in their order.
const COLUMNS: [&str; 4] = ["time_ns", "guest", "destination", "bytes"];

/// Largest packet that TCP sends: 45 segments of 1448 B, and their headers once.
const SEGMENT: u64 = 1448;
const AT_ONCE: u64 = 45 * SEGMENT;
const HEADERS: u64 = 66;

/// Largest number of guests of a log: each requires a pass over all of it.
const MOST_GUESTS: usize = 1024;

/// The largest message, in bytes: 1 GB.
const MAX_MESSAGE_BYTES: u64 = 1_000_000_000;

/// Adds the rows of a log.
pub(super) fn read(path: &Path, recording: &mut Recording) -> Result<(), Wrong> {
    let mut messages = Messages::of(recording);
    rows::read(path, COLUMNS, MOST_PACKETS, |row| messages.add(row))
}

/// State of reading a log's messages.
struct Messages<'r> {
    recording: &'r mut Recording,
    /// True if every sender is a guest.
    takes_all: bool,
    first: Option<u64>,
    last: u64,
}

impl<'r> Messages<'r> {
    fn of(recording: &'r mut Recording) -> Self {
        Self {
            takes_all: recording.guests.is_empty(),
            recording,
            first: None,
            last: 0,
        }
    }

    fn add(&mut self, row: &Row<'_, 4>) -> Result<(), Wrong> {
        let (guest, destination) = (row.text(1)?, row.text(2)?);
        let time = row.number(0, 0..=u64::MAX)?;
        let bytes = row.number(3, 1..=MAX_MESSAGE_BYTES)?;
        let came = Nanos(time.saturating_sub(*self.first.get_or_insert(time)));
        if time < std::mem::replace(&mut self.last, time) {
            let what = "it is before the row above: rows are in the order of their times";
            return Err(row.wrong(0, what));
        }
        if came > MAX_RECORDING {
            let what = "it is more than a month after the first row";
            return Err(row.wrong(0, what));
        }
        let Some(guest) = guest_of(self.recording, guest, self.takes_all) else {
            self.recording.left_out.of_others += 1;
            return Ok(());
        };
        if self.recording.guests.len() > MOST_GUESTS {
            let what = format!("a log of one host has at most {MOST_GUESTS} guests");
            return Err(row.wrong(1, what));
        }
        self.recording.add(guest, came, packets(destination, bytes));
        self.recording.check_size().map_err(Wrong::file)
    }
}

/// Returns the number of the guest of that name, which is added if all senders are guests.
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

/// Returns the packets that TCP sends for a message.
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

/// Returns a number for a name: FNV-1a, 128 bits, so that no two of a log collide.
fn address(name: &str) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    name.bytes().fold(BASIS, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(PRIME)
    })
}
