//! Logs of flows: CSV with a line of names, and a row a message.

use super::{Guest, LONGEST, Recording, ReplayError};
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

/// A mistake in a row: in which of its columns, and what is wrong.
type Wrong = (usize, String);

/// Adds the rows of a log.
pub(super) fn read(path: &Path, text: &str, recording: &mut Recording) -> Result<(), ReplayError> {
    let wrong = |line: usize, row: &str, (column, what): Wrong| ReplayError::Log {
        path: path.to_owned(),
        line,
        column: 1 + row
            .split(',')
            .take(column)
            .map(|it| it.len() + 1)
            .sum::<usize>(),
        what,
    };
    let takes_all = recording.guests.is_empty();
    let mut rows = text.lines().zip(1..);
    let names = COLUMNS.join(",");
    match rows.next() {
        Some((row, _)) if row.trim_end() == names => {}
        Some((row, line)) => {
            let what = format!("a log of flows begins with the line `{names}`");
            return Err(wrong(line, row, (0, what)));
        }
        None => return Err(wrong(1, "", (0, "the file is empty".to_owned()))),
    }
    let (mut first, mut last) = (None, 0);
    for (row, line) in rows.filter(|(row, _)| !row.trim().is_empty()) {
        let row = row.trim_end();
        let [time, guest, destination, bytes] =
            fields(row).map_err(|what| wrong(line, row, what))?;
        let time = number(time, 0, 0..=u64::MAX).map_err(|what| wrong(line, row, what))?;
        let bytes = number(bytes, 3, 1..=MOST).map_err(|what| wrong(line, row, what))?;
        let came = Nanos(time.saturating_sub(*first.get_or_insert(time)));
        if time < std::mem::replace(&mut last, time) {
            let what = "it is before the row above: rows are in the order of their times";
            return Err(wrong(line, row, (0, what.to_owned())));
        }
        if came > LONGEST {
            let what = "it is more than a month after the first row";
            return Err(wrong(line, row, (0, what.to_owned())));
        }
        let Some(guest) = guest_of(recording, guest, takes_all) else {
            recording.left_out.of_others += 1;
            continue;
        };
        if recording.guests.len() > MOST_GUESTS {
            let what = format!("a log of one host has at most {MOST_GUESTS} guests");
            return Err(wrong(line, row, (1, what)));
        }
        recording.add(guest, came, packets(destination, bytes));
        recording.check_size(path)?;
    }
    Ok(())
}

/// The fields of a row.
fn fields(row: &str) -> Result<[&str; COLUMNS.len()], Wrong> {
    let fields: Vec<&str> = row.split(',').map(str::trim).collect();
    let number = fields.len();
    let fields: [&str; COLUMNS.len()] = fields.try_into().map_err(|_| {
        let what = format!("a row has {} fields, and this one {number}", COLUMNS.len());
        (0, what)
    })?;
    match fields.iter().position(|field| field.is_empty()) {
        Some(column) => Err((column, format!("`{}` is empty", COLUMNS[column]))),
        None => Ok(fields),
    }
}

/// A field that is a whole number within `range`.
fn number(field: &str, column: usize, range: std::ops::RangeInclusive<u64>) -> Result<u64, Wrong> {
    let number = field.parse().ok().filter(|it| range.contains(it));
    number.ok_or_else(|| {
        let (name, least, most) = (COLUMNS[column], range.start(), range.end());
        let what = format!("`{name}` is {field:?}, and not a whole number from {least} to {most}");
        (column, what)
    })
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
