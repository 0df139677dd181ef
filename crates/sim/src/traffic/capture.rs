//! Captures of many machines' frames.

use super::{CollectedMessages, Fault};
use crate::replay::{CapturedFrame, Guest, ReplayError, each_frame};
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::path::Path;
use tailbound_advise::{Direction, Kind, MachineId, Message, PlateauDetector, wire_size};
use tailbound_units::{Bytes, Nanos};

/// Longest pause within a message.
const LONGEST_PAUSE: Nanos = Nanos::from_micros(100);

/// Ethernet header, and the longest frame that is not segmented later.
const ETHERNET: usize = 14;
const LONGEST_FRAME: u32 = 1_518;
/// Preamble, FCS and gap; the shortest frame on the wire; TCP's headers in a frame.
const BESIDE: u64 = 24;
const SHORTEST_FRAME: u64 = 84;
const HEADERS: u64 = 66;

/// Bytes of a frame that identify it in two captures.
const IDENTITY: usize = 64;

/// Frames of earlier captures, so that a frame in two of them counts once.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// Numbers of equal frames: kept ones of all captures, and those of the present one.
    frames: HashMap<u64, (u32, u32)>,
}

impl Copies {
    fn begin_capture(&mut self) {
        for (_, present) in self.frames.values_mut() {
            *present = 0;
        }
    }

    /// Returns true if an earlier capture has the frame.
    fn is_known(&mut self, frame: &CapturedFrame<'_>) -> bool {
        let mut hasher = DefaultHasher::new();
        (frame.len, &frame.bytes[..frame.bytes.len().min(IDENTITY)]).hash(&mut hasher);
        let (kept, present) = self.frames.entry(hasher.finish()).or_default();
        *present += 1;
        let is_known = *present <= *kept;
        *kept = (*kept).max(*present);
        is_known
    }
}

/// The end points of a frame, with a number for its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Ends {
    from: [u8; 6],
    to: [u8; 6],
    /// Ports of TCP or UDP of the sender and the receiver.
    ports: (u16, u16),
}

impl Ends {
    const fn reversed(self) -> Self {
        Self {
            from: self.to,
            to: self.from,
            ports: (self.ports.1, self.ports.0),
        }
    }
}

/// The parts of a frame's headers that messages need.
struct Headers {
    ends: Ends,
    kind: Kind,
    /// Sequence number and length of the data of a TCP segment.
    tcp: Option<(u32, u32)>,
}

/// State of one direction of a connection.
#[derive(Debug, Default)]
struct Flow {
    /// Index of the message that is not complete, and the time of its last frame.
    open: Option<(usize, Nanos)>,
    /// Sequence number behind the last byte.
    next: Option<u32>,
}

/// Counts of the TCP segments of a capture.
#[derive(Debug, Default)]
struct Segments {
    all: u64,
    again: u64,
    missing: u64,
}

/// State of reading a capture.
struct Frames<'c> {
    collected: &'c mut CollectedMessages,
    copies: &'c mut Copies,
    stations: HashMap<[u8; 6], MachineId>,
    flows: HashMap<Ends, Flow>,
    segments: Segments,
    sent: PlateauDetector,
    received: PlateauDetector,
    seen: u64,
    last: Nanos,
}

/// Adds the messages of a capture.
pub(super) fn read(
    path: &Path,
    machines: &[Guest],
    copies: &mut Copies,
    collected: &mut CollectedMessages,
) -> Result<(), ReplayError> {
    let stations = machines.iter().zip(0..);
    let stations: HashMap<_, _> = stations
        .filter_map(|(guest, index)| Some((guest.mac?, MachineId::new(index))))
        .collect();
    if stations.is_empty() {
        let what = "whose frames are a machine's? Name all of the tenant: --guest NAME=MAC";
        return Err(ReplayError::Capture {
            path: path.to_owned(),
            what: what.to_owned(),
        });
    }
    copies.begin_capture();
    let mut frames = Frames {
        collected,
        copies,
        stations,
        flows: HashMap::new(),
        segments: Segments::default(),
        sent: PlateauDetector::default(),
        received: PlateauDetector::default(),
        seen: 0,
        last: Nanos::ZERO,
    };
    let lost = each_frame(path, |frame| frames.add(&frame))?;
    frames.finish(path, lost);
    Ok(())
}

impl Frames<'_> {
    fn add(&mut self, frame: &CapturedFrame<'_>) -> Result<(), String> {
        let Some(headers) = headers(frame) else {
            return Ok(());
        };
        let ends = headers.ends;
        let from = self.stations.get(&ends.from).copied();
        let to = self.stations.get(&ends.to).copied();
        if from.or(to).is_none() || self.copies.is_known(frame) {
            return Ok(());
        }
        let at = u64::try_from(frame.at.as_nanos()).map_err(|_| "its times are too large")?;
        // A time before the last one is replaced by the last one.
        self.last = self.last.max(Nanos(at));
        let wire = on_the_wire(frame.len);
        self.seen += 1;
        if from.is_some() {
            self.sent.add(self.last, wire);
        }
        if to.is_some() {
            self.received.add(self.last, wire);
        }
        if let Some((sequence, length)) = headers.tcp {
            self.count(ends, sequence, length);
        }
        self.collected.check_size()?;
        let message = Message {
            at: self.last,
            from,
            to,
            wire,
            kind: headers.kind,
        };
        self.add_to_message(ends, message);
        Ok(())
    }

    /// Adds a frame to the message of its connection, or begins a message.
    fn add_to_message(&mut self, ends: Ends, frame: Message) {
        let messages = &mut self.collected.messages;
        if frame.kind == Kind::Control {
            messages.push(frame);
            return;
        }
        if let Some(answered) = self.flows.get_mut(&ends.reversed()) {
            answered.open = None;
        }
        let flow = self.flows.entry(ends).or_default();
        let open = flow
            .open
            .filter(|(_, last)| frame.at.since(*last) <= LONGEST_PAUSE);
        let index = if let Some((index, _)) = open {
            messages[index].wire += frame.wire;
            index
        } else {
            messages.push(frame);
            messages.len() - 1
        };
        flow.open = Some((index, frame.at));
    }

    /// Counts segments that were sent again, and missing ones.
    fn count(&mut self, ends: Ends, sequence: u32, length: u32) {
        if length == 0 {
            return;
        }
        self.segments.all += 1;
        let next = &mut self.flows.entry(ends).or_default().next;
        let behind = sequence.wrapping_add(length);
        // Sequence numbers are compared modulo 2^32 (RFC 9293, 3.4).
        match next.map(|next| sequence.wrapping_sub(next).cast_signed()) {
            Some(distance) if distance < 0 => self.segments.again += 1,
            Some(distance) => {
                self.segments.missing += u64::from(distance > 0);
                *next = Some(behind);
            }
            None => *next = Some(behind),
        }
    }

    fn finish(self, path: &Path, lost: u64) {
        let faults = &mut self.collected.faults;
        let path = || path.to_owned();
        for (direction, detector) in [
            (Direction::Sent, &self.sent),
            (Direction::Received, &self.received),
        ] {
            if let Some(plateau) = detector.plateau() {
                faults.push(Fault::FullQueue {
                    path: path(),
                    direction,
                    plateau,
                });
            }
        }
        let of = |count: u64, all: u64| count as f64 / all.max(1) as f64;
        if lost > 0 {
            faults.push(Fault::Lost {
                path: path(),
                frames: lost,
                share: of(lost, self.seen + lost),
            });
        }
        let Segments {
            all,
            again,
            missing,
        } = self.segments;
        if missing > 0 {
            faults.push(Fault::Missing {
                path: path(),
                places: missing,
                share: of(missing, all),
            });
        }
        if again > 0 {
            faults.push(Fault::SentAgain {
                path: path(),
                segments: again,
                share: of(again, all),
            });
        }
    }
}

/// Returns the length on the wire of a frame that is segmented by the NIC if it is too long.
fn on_the_wire(len: u32) -> Bytes {
    if len > LONGEST_FRAME {
        wire_size(Bytes(u64::from(len) - HEADERS))
    } else {
        Bytes((u64::from(len) + BESIDE).max(SHORTEST_FRAME))
    }
}

/// Returns the headers of a frame; `None` if not even Ethernet's was captured.
fn headers(frame: &CapturedFrame<'_>) -> Option<Headers> {
    let (to, rest) = frame.bytes.split_first_chunk::<6>()?;
    let (from, _) = rest.split_first_chunk::<6>()?;
    let mut headers = Headers {
        ends: Ends {
            from: *from,
            to: *to,
            ports: (0, 0),
        },
        kind: Kind::Control,
        tcp: None,
    };
    // Without IP, TCP and UDP a frame is no application's.
    if let Some(payload) = transport(frame, &mut headers)
        && payload > 0
    {
        headers.kind = Kind::Data;
    }
    Some(headers)
}

/// Reads the headers of TCP or UDP over IPv4 or IPv6, and returns the length of the data.
fn transport(frame: &CapturedFrame<'_>, headers: &mut Headers) -> Option<u32> {
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    let bytes = frame.bytes;
    let word = |at: usize| Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
    let (mut ether_type, mut at) = (word(12)?, ETHERNET);
    while matches!(ether_type, 0x8100 | 0x88a8) {
        (ether_type, at) = (word(at + 2)?, at + 4);
    }
    let (protocol, start, end) = match ether_type {
        0x0800 => {
            let start = at + usize::from(bytes.get(at)? & 15) * 4;
            let total = word(at + 2)?;
            // Zero for a packet that is longer than the field can say.
            let end = (total > 0).then_some(at + usize::from(total));
            (*bytes.get(at + 9)?, start, end)
        }
        0x86dd => {
            let length = word(at + 4)?;
            let end = (length > 0).then_some(at + 40 + usize::from(length));
            (*bytes.get(at + 6)?, at + 40, end)
        }
        _ => return None,
    };
    let end = end.unwrap_or(frame.len as usize).min(frame.len as usize);
    headers.ends.ports = (word(start)?, word(start + 2)?);
    let header = match protocol {
        TCP => usize::from(*bytes.get(start + 12)? >> 4) * 4,
        UDP => 8,
        _ => return None,
    };
    let payload = end.saturating_sub(start + header) as u32;
    if protocol == TCP {
        let sequence = u32::from_be_bytes(*bytes.get(start + 4..)?.first_chunk()?);
        headers.tcp = Some((sequence, payload));
    }
    Some(payload)
}
