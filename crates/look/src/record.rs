//! The form of a record: the evidence of the last hour in a file of at most 50 MB. Pure: bytes in,
//! bytes out.
//!
//! A file is a [`header`] of [`HEADER_SIZE`] bytes and [`SLOTS`] slots of [`SLOT_SIZE`] bytes, one
//! for each slice of time, used in turn: entry `n` is in slot `n` modulo [`SLOTS`]. A slot that has
//! not been written is a hole. An entry is written by one `pwrite`, and has a checksum over all that
//! it is. A writer that is killed leaves at most one entry that is not whole, in the place of the
//! oldest one; [`Record::parse`] takes all others.
//!
//! | at | bytes | header, little endian |
//! |---|---|---|
//! | 0 | 16 | `tailbound record` |
//! | 16 | 4 | version, 1 |
//! | 20 | 4 | number of slots |
//! | 24 | 4 | size of a slot |
//! | 28 | 4 | CRC-32 of the 28 bytes before |
//!
//! | at | bytes | entry, little endian |
//! |---|---|---|
//! | 0 | 4 | `tbe1` |
//! | 4 | 4 | CRC-32 of all that follows |
//! | 8 | 4 | length of the payload |
//! | 12 | 8 | its number |
//! | 20 | 8 | begin of the slice, in nanoseconds since 1970 (UTC) |
//! | 28 | 8 | end of the slice |
//! | 36 | – | payload: `wire::Entry` in Protocol Buffers, compressed (RFC 1950) |

mod message;
mod wire;

use crate::divide::length;
use crate::evidence::{Evidence, ExaminedParts};
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use std::cmp::Reverse;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use tailbound_units::Nanos;

/// The version of the form that is written and read.
pub const VERSION: u32 = 1;
/// The place of the first slot, in bytes from the file's begin.
pub const HEADER_SIZE: usize = 4_096;
/// The slots: an hour of slices of 10 s, and the one that is being written.
pub const SLOTS: usize = 361;
/// The size of a slot, in bytes.
pub const SLOT_SIZE: usize = 135_168;
/// The largest file, in bytes.
pub const FILE_SIZE: usize = HEADER_SIZE + SLOTS * SLOT_SIZE;
const _: () = assert!(FILE_SIZE <= 50_000_000);

const MAGIC: &[u8; 16] = b"tailbound record";
const ENTRY_MAGIC: &[u8; 4] = b"tbe1";
const HEAD_SIZE: usize = 36;
/// The largest entry before its compression, in bytes.
const MAX_RAW: usize = 16 << 20;
/// Largest number of slow periods of each kind and guest in an entry, if there is room.
pub const MAX_KEEP: usize = 60;
/// Times of an entry are within a day of its slice; those of a window, within four hundred.
const DAY: Nanos = Nanos::from_secs(86_400);
const WINDOW: Nanos = Nanos(DAY.0 * 400);

/// A moment by the clock on the wall, in nanoseconds since 1970 (UTC).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wall(pub i64);

/// A guest in a slice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuestEntry {
    /// Its key: stable, and no other guest's.
    pub key: Arc<str>,
    /// Its name, which no other guest of the slice has.
    pub name: Arc<str>,
    /// Its kind, such as `container`.
    pub kind: Arc<str>,
    /// The facts about it that are not known, and why.
    pub notes: Vec<Arc<str>>,
    /// Its evidence; what was examined is that of the slice.
    pub evidence: Evidence,
}

/// A slice of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// The begin and the end by the clock on the wall.
    pub wall: (Wall, Wall),
    /// The seconds by which the host's local time is ahead of UTC.
    pub offset: i32,
    /// The begin on the clock of the evidence.
    pub from: Nanos,
    /// The boot of the host: that clock begins anew with it.
    pub boot: Arc<str>,
    /// The host's name.
    pub host: Arc<str>,
    /// The version of the program that wrote it.
    pub program: Arc<str>,
    /// The parts that could be examined.
    pub examined: ExaminedParts,
    /// The facts that are not known, and why.
    pub notes: Vec<Arc<str>>,
    /// The guests.
    pub guests: Vec<GuestEntry>,
    /// Guests that had no room.
    pub left_out: u32,
}

/// Returns the first bytes of a file.
pub fn header() -> [u8; 32] {
    let mut header = [0; 32];
    header[..16].copy_from_slice(MAGIC);
    let numbers = [VERSION, SLOTS as u32, SLOT_SIZE as u32];
    for (place, number) in header[16..28].chunks_exact_mut(4).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    let sum = crc(&header[..28]);
    header[28..].copy_from_slice(&sum.to_le_bytes());
    header
}

fn crc(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// Makes the entries of a file, one after the other.
#[derive(Debug)]
pub struct Writer {
    next: u64,
    /// The periods that the next entry probably has room for.
    keep: usize,
}

impl Writer {
    /// Goes on behind the entries of `record`.
    pub fn after(record: Option<&Record>) -> Self {
        let last = record.and_then(|record| record.entries.last());
        Self {
            next: last.map_or(0, |last| last.number.saturating_add(1)),
            keep: MAX_KEEP,
        }
    }

    /// Returns the place of the next entry in the file, and its bytes, at most [`SLOT_SIZE`].
    pub fn write(&mut self, mut entry: Entry) -> (u64, Vec<u8>) {
        let number = self.next;
        self.next += 1;
        let payload = self.payload(&mut entry);
        (offset(number), sealed(number, entry.wall, &payload))
    }

    /// The compressed entry: with fewer slow periods of each guest, and at last fewer guests, until
    /// there is room.
    fn payload(&mut self, entry: &mut Entry) -> Vec<u8> {
        let mut keep = self.keep;
        entry
            .guests
            .sort_by_key(|guest| Reverse(weight(&guest.evidence)));
        loop {
            for guest in &mut entry.guests {
                guest.evidence.thin(keep);
            }
            let raw = wire::encode(entry);
            let size = if raw.len() <= MAX_RAW {
                let payload = compressed(&raw);
                if payload.len() <= SLOT_SIZE - HEAD_SIZE {
                    // Each try costs as much as the whole entry, so there are few.
                    self.keep = if payload.len() < SLOT_SIZE * 2 / 3 {
                        (keep * 3 / 2 + 1).min(MAX_KEEP)
                    } else {
                        keep
                    };
                    return payload;
                }
                payload.len()
            } else {
                raw.len()
            };
            if keep > 1 {
                keep = (keep * SLOT_SIZE / size).clamp(1, keep - 1);
                continue;
            }
            let count = entry.guests.len();
            // One guest with more names than there is room for is left out as well.
            let fits = (count * SLOT_SIZE / size * 9 / 10).min(count.saturating_sub(1));
            entry.guests.truncate(fits);
            entry.left_out = entry.left_out.saturating_add((count - fits) as u32);
            if count == 0 {
                entry.notes.clear();
                entry.examined = ExaminedParts::default();
            }
        }
    }
}

/// An entry with its checksum.
fn sealed(number: u64, wall: (Wall, Wall), payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEAD_SIZE];
    bytes[..4].copy_from_slice(ENTRY_MAGIC);
    bytes[8..12].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes[12..20].copy_from_slice(&number.to_le_bytes());
    bytes[20..28].copy_from_slice(&wall.0.0.to_le_bytes());
    bytes[28..36].copy_from_slice(&wall.1.0.to_le_bytes());
    bytes.extend(payload);
    let sum = crc(&bytes[8..]);
    bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// A file whose only entry has this message and the right checksums: for tests of what a stranger
/// may send, which no flip of bits comes to.
pub fn forged(message: &[u8]) -> Vec<u8> {
    let wall = (Wall(0), Wall(10_000_000_000));
    let mut file = header().to_vec();
    file.resize(HEADER_SIZE, 0);
    file.extend(sealed(0, wall, &compressed(message)));
    file
}

/// The delay of a guest, roughly.
fn weight(evidence: &Evidence) -> u64 {
    let requests = evidence.requests.iter().map(|it| length(it).0);
    let waits = evidence.waits.iter();
    let waits = waits.map(|wait| wait.until.saturating_sub(wait.from).0);
    let left_out = &evidence.left_out;
    let sum = requests.chain(waits).fold(0, u64::saturating_add);
    sum.saturating_add(left_out.requests.time.0)
        .saturating_add(left_out.waits.time.0)
}

/// The place of an entry in the file.
fn offset(number: u64) -> u64 {
    HEADER_SIZE as u64 + number % SLOTS as u64 * SLOT_SIZE as u64
}

fn compressed(raw: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    // Writing to a Vec does not fail.
    let _ = encoder.write_all(raw);
    encoder.finish().unwrap_or_default()
}

/// Why bytes are no record that can be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The bytes are something else.
    #[error("is not a record of `tailbound watch --record`")]
    Foreign,
    /// The version is another one.
    #[error("is a record of version {0}; this tailbound reads version {VERSION}")]
    Version(u32),
    /// The first bytes are not as they were written.
    #[error("is a record whose first 32 bytes are damaged")]
    Header,
    /// There is no entry that can be read.
    #[error("is a record without one whole entry ({damaged} are damaged)")]
    Empty {
        /// The entries that are not whole.
        damaged: usize,
    },
}

/// A whole entry that has not been unpacked.
#[derive(Debug, Clone)]
struct PackedEntry {
    number: u64,
    wall: (Wall, Wall),
    payload: Vec<u8>,
}

/// Entries: those of a file that was read, or the last ones that were made.
#[derive(Debug, Default)]
pub struct Record {
    /// In order of number.
    entries: Vec<PackedEntry>,
    damaged: usize,
}

/// The slices of a window.
#[derive(Debug, Default)]
pub struct Window {
    /// The slices, the oldest first, all on one clock.
    pub entries: Vec<Entry>,
    /// Entries that make no sense although their checksums are right.
    pub damaged: usize,
}

impl Record {
    /// Reads a file: all whole entries.
    ///
    /// # Errors
    /// The file is no record, or of another version, or damaged at its begin.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let head = bytes.get(..32).ok_or(RecordError::Foreign)?;
        if head[..16] != MAGIC[..] {
            return Err(RecordError::Foreign);
        }
        let version = number(head, 16);
        if version != VERSION {
            return Err(RecordError::Version(version));
        }
        if head != header() {
            return Err(RecordError::Header);
        }
        let mut record = Self {
            entries: Vec::new(),
            damaged: 0,
        };
        let slots = bytes.get(HEADER_SIZE..).unwrap_or_default();
        for slot in slots.chunks(SLOT_SIZE).take(SLOTS) {
            match packed(slot) {
                Some(entry) => record.entries.push(entry),
                None if slot.iter().all(|byte| *byte == 0) => {}
                None => record.damaged += 1,
            }
        }
        record.entries.sort_by_key(|entry| entry.number);
        Ok(record)
    }

    /// The same, with at least one whole entry.
    ///
    /// # Errors
    /// As [`Self::parse`], or there is none.
    pub fn parse_some(bytes: &[u8]) -> Result<Self, RecordError> {
        let record = Self::parse(bytes)?;
        if record.entries.is_empty() {
            return Err(RecordError::Empty {
                damaged: record.damaged,
            });
        }
        Ok(record)
    }

    /// Takes an entry as [`Writer::write`] made it; the oldest makes room.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.entries.len() == SLOTS {
            self.entries.remove(0);
        }
        self.entries.extend(packed(bytes));
    }

    /// Entries that are not whole: a writer was killed, or the file was damaged or cut.
    pub fn damaged(&self) -> usize {
        self.damaged
    }

    /// The times that it covers, without the gaps.
    pub fn spans(&self) -> Vec<(Wall, Wall)> {
        let mut spans: Vec<(Wall, Wall)> = Vec::new();
        for entry in &self.entries {
            let (from, until) = entry.wall;
            match spans.last_mut() {
                // Slices follow one another within the time that one of them takes to end.
                Some((_, end)) if end.0.abs_diff(from.0) < crate::history::SLICE.0 => *end = until,
                _ => spans.push((from, until)),
            }
        }
        spans
    }

    /// The seconds by which the host's local time was ahead of UTC at the end.
    pub fn offset(&self) -> i32 {
        let last = self.entries.last();
        let last = last.and_then(|last| unpacked(last, |_| Some(DAY)));
        last.map_or(0, |last| last.offset)
    }

    /// Unpacks the last `count` slices, on the clock that they were written by.
    pub fn last(&self, count: usize) -> Window {
        let mut window = Window::default();
        let begin = self.entries.len().saturating_sub(count);
        for packed in &self.entries[begin..] {
            window.add(unpacked(packed, |entry| Some(entry.from)));
        }
        window
    }

    /// Unpacks the slices that overlap `from..until`.
    pub fn window(&self, from: Wall, until: Wall) -> Window {
        let mut window = Window::default();
        // The boot, its clock and the wall's clock at the first slice.
        let mut first: Option<(Arc<str>, Nanos, Wall)> = None;
        let overlap = self
            .entries
            .iter()
            .filter(|it| it.wall.0 < until && it.wall.1 > from);
        for packed in overlap {
            let clock = |entry: &wire::Clock| {
                let at = (Arc::from(entry.boot.as_str()), entry.from, packed.wall.0);
                let (boot, begin, wall) = first.get_or_insert(at).clone();
                let since = if *boot == *entry.boot {
                    entry.from.0.checked_sub(begin.0)?
                } else {
                    u64::try_from(packed.wall.0.0.checked_sub(wall.0)?).ok()?
                };
                (since <= WINDOW.0).then(|| DAY.saturating_add(Nanos(since)))
            };
            window.add(unpacked(packed, clock));
        }
        window
    }
}

impl Window {
    fn add(&mut self, entry: Option<Entry>) {
        match entry {
            Some(entry) => self.entries.push(entry),
            None => self.damaged += 1,
        }
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..at + 4).and_then(|it| it.try_into().ok());
    bytes.map_or(0, u32::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.get(at..at + 8).and_then(|it| it.try_into().ok());
    bytes.map_or(0, u64::from_le_bytes)
}

/// The entry in a slot if it is whole.
fn packed(slot: &[u8]) -> Option<PackedEntry> {
    let head = slot.get(..HEAD_SIZE)?;
    if head[..4] != ENTRY_MAGIC[..] {
        return None;
    }
    let length = usize::try_from(number(head, 8)).ok()?;
    let whole = slot.get(8..HEAD_SIZE.checked_add(length)?)?;
    if crc(whole) != number(head, 4) {
        return None;
    }
    Some(PackedEntry {
        number: long(head, 12),
        wall: (
            Wall(long(head, 20).cast_signed()),
            Wall(long(head, 28).cast_signed()),
        ),
        payload: whole[HEAD_SIZE - 8..].to_vec(),
    })
}

/// Unpacks an entry; `clock` returns the begin of the slice on the clock of the window.
fn unpacked(
    packed: &PackedEntry,
    clock: impl FnOnce(&wire::Clock) -> Option<Nanos>,
) -> Option<Entry> {
    let mut raw = Vec::new();
    let decoder = ZlibDecoder::new(packed.payload.as_slice());
    decoder
        .take(MAX_RAW as u64 + 1)
        .read_to_end(&mut raw)
        .ok()?;
    if raw.len() > MAX_RAW {
        return None;
    }
    let mut entry = wire::decode(&raw, clock)?;
    entry.wall = packed.wall;
    Some(entry)
}

#[cfg(test)]
mod tests;
