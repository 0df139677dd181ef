//! Messages of several UDP datagrams, sent at times that all senders know, or at the same time by
//! all senders. Their latency is one way, from the scheduled start of the message to the arrival of
//! its last datagram, like Silo's promise (4.1); sender and receiver read the same clock.

use super::{Outcome, Sample, Schedule, Starter, now};
use crate::arrivals::poisson;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::Duration;
use tailbound_units::{Bytes, Nanos};

const MAGIC: [u8; 4] = *b"tbm1";
/// Length of the header in front of each datagram, in bytes.
pub(super) const HEADER: usize = 24;
/// The longest datagram in a frame, in bytes.
const MAX_DATAGRAM: u64 = 1472;
/// Ethernet's, IP's and UDP's part of a frame on the wire.
const OVERHEAD: u64 = 24 + 14 + 20 + 8;
/// Time after the load's end in which datagrams may still arrive.
const DRAIN: Nanos = Nanos::from_millis(300);

/// Configuration of the sender.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Messages {
    /// The address of the receiver.
    pub to: SocketAddrV4,
    /// The size of a message on the wire, all overhead included.
    pub size: Bytes,
    /// Start times of messages.
    pub moments: Moments,
}

/// Start times of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Moments {
    /// At the load's start and in this interval.
    Every(Nanos),
    /// At random.
    Random {
        /// The mean time between two messages.
        mean_gap: Nanos,
        /// Seed of the times.
        seed: u64,
    },
}

/// Header of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// The message, counted by its sender.
    pub(crate) message: u32,
    /// The datagram's index in the message.
    pub(crate) place: u32,
    /// Number of datagrams of the message.
    pub(crate) of: u32,
    /// Scheduled start of the message.
    pub(crate) start: Nanos,
}

impl Header {
    pub(super) fn write(self, datagram: &mut [u8]) {
        datagram[..4].copy_from_slice(&MAGIC);
        datagram[4..8].copy_from_slice(&self.message.to_be_bytes());
        datagram[8..12].copy_from_slice(&self.place.to_be_bytes());
        datagram[12..16].copy_from_slice(&self.of.to_be_bytes());
        datagram[16..HEADER].copy_from_slice(&self.start.as_nanos().to_be_bytes());
    }

    /// Reads a header; `None` for a datagram that is no part of a message.
    pub(crate) fn read(datagram: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER] = datagram.first_chunk()?;
        let number = |at: usize| {
            let bytes = header[at..at + 4].try_into().expect("four bytes");
            u32::from_be_bytes(bytes)
        };
        let start = header[16..].try_into().expect("eight bytes");
        (header[..4] == MAGIC).then(|| Self {
            message: number(4),
            place: number(8),
            of: number(12),
            start: Nanos(u64::from_be_bytes(start)),
        })
    }
}

/// Returns the sizes, without headers, of the datagrams of a message of `size` on the wire: full
/// frames and a rest. If the rest would be too short for a header, the frame before it is
/// shortened.
fn datagrams(size: Bytes) -> Vec<usize> {
    const FULL: u64 = MAX_DATAGRAM + OVERHEAD;
    /// The shortest datagram, in bytes on the wire.
    const MIN_MESSAGE: u64 = HEADER as u64 + OVERHEAD;
    let count = size.as_u64().div_ceil(FULL).max(1);
    let mut frames = vec![FULL; count as usize];
    let rest = size.as_u64().saturating_sub((count - 1) * FULL);
    if let [.., before, last] = frames.as_mut_slice() {
        *last = rest.max(MIN_MESSAGE);
        *before -= *last - rest;
    } else if let [only] = frames.as_mut_slice() {
        *only = rest.max(MIN_MESSAGE);
    }
    let payload = |frame: u64| (frame - OVERHEAD) as usize;
    frames.into_iter().map(payload).collect()
}

pub(super) fn send(starter: &Starter<'_>, span: Nanos, messages: &Messages) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(messages.to)?;
    let parts = datagrams(messages.size);
    let mut datagram = [0x5a; MAX_DATAGRAM as usize];
    let moments: Vec<Nanos> = match messages.moments {
        Moments::Every(gap) => (0..span.as_nanos() / gap.as_nanos().max(1))
            .map(|n| Nanos(gap.as_nanos() * n))
            .collect(),
        Moments::Random { mean_gap, seed } => {
            let arrivals = poisson(seed, mean_gap, span, 1).into_iter();
            arrivals.map(|arrival| arrival.at).collect()
        }
    };
    let schedule = starter.ready()?;
    let mut outcome = Outcome::default();
    for (message, moment) in moments.into_iter().enumerate() {
        let start = schedule.start.saturating_add(moment);
        super::sleep_until(start);
        for (place, part) in parts.iter().enumerate() {
            let header = Header {
                message: message as u32,
                place: place as u32,
                of: parts.len() as u32,
                start,
            };
            header.write(&mut datagram);
            match socket.send(&datagram[..*part]) {
                // The datagram is lost if its port is closed or if there is no room, as on the
                // wire.
                Ok(_) | Err(_) => {}
            }
        }
        outcome.amount += u64::from(schedule.counts(start));
    }
    starter.finish(&outcome)
}

/// A message whose first datagram has arrived.
struct PartialMessage {
    start: Nanos,
    missing: u32,
    last: Nanos,
}

pub(super) fn receive(starter: &Starter<'_>, port: u16) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
    // Room for one whole message of each sender. A smaller buffer works as well.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 8 << 20);
    socket.set_read_timeout(Some(Duration::from_millis(20)))?;
    let schedule = starter.ready_to_listen()?;
    let mut buffer = [0; 2048];
    let mut arriving: BTreeMap<(SocketAddr, u32), PartialMessage> = BTreeMap::new();
    let end = schedule.to.saturating_add(DRAIN);
    loop {
        let received = socket.recv_from(&mut buffer);
        let at = now();
        if at >= end {
            break;
        }
        let (length, from) = match received {
            Ok(received) => received,
            Err(error) if super::events::is_retry(&error) => continue,
            Err(error) => return Err(error),
        };
        let Some(header) = Header::read(&buffer[..length]) else {
            continue;
        };
        let message = arriving
            .entry((from, header.message))
            .or_insert(PartialMessage {
                start: header.start,
                missing: header.of,
                last: at,
            });
        message.missing = message.missing.saturating_sub(1);
        message.last = at;
    }
    starter.finish(&summary(&arriving, &schedule))
}

fn summary(arriving: &BTreeMap<(SocketAddr, u32), PartialMessage>, schedule: &Schedule) -> Outcome {
    let counted = arriving.iter();
    let counted = counted.filter(|(_, message)| schedule.counts(message.start));
    let whole = counted.filter(|(_, message)| message.missing == 0);
    let samples = whole.map(|((_, number), message)| Sample {
        arrival: *number,
        start: message.start,
        end: message.last,
    });
    Outcome {
        samples: samples.collect(),
        ..Outcome::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn on_wire(parts: &[usize]) -> u64 {
        parts.iter().map(|part| *part as u64 + OVERHEAD).sum()
    }

    #[test]
    fn a_burst_of_silo_is_full_frames_and_a_rest() {
        let parts = datagrams(Bytes(100_000));
        assert_eq!((parts.len(), on_wire(&parts)), (66, 100_000));
    }

    #[test]
    fn only_whole_messages_of_the_measured_time_count() {
        let schedule = Schedule {
            start: Nanos(0),
            from: Nanos(100),
            to: Nanos(200),
            give_up: Nanos(300),
        };
        let from: SocketAddr = "10.0.0.1:1".parse().unwrap();
        let message = |start, missing| PartialMessage {
            start: Nanos(start),
            missing,
            last: Nanos(start + 7),
        };
        let arriving = BTreeMap::from([
            ((from, 0), message(50, 0)),
            ((from, 1), message(150, 0)),
            ((from, 2), message(160, 1)),
        ]);
        let outcome = summary(&arriving, &schedule);
        assert_eq!(outcome.samples.len(), 1);
        assert_eq!(outcome.samples[0].latency(), Nanos(7));
    }

    proptest! {
        #[test]
        fn a_message_is_as_long_as_asked_for(size in 90u64..1_000_000) {
            let parts = datagrams(Bytes(size));
            prop_assert!(parts.iter().all(|part| (HEADER..=MAX_DATAGRAM as usize).contains(part)));
            prop_assert_eq!(on_wire(&parts), size);
        }

        #[test]
        fn headers_are_read_as_written_and_others_refused(
            message: u32, place: u32, of: u32, start: u64, length in 0usize..HEADER,
        ) {
            let header = Header { message, place, of, start: Nanos(start) };
            let mut datagram = [0; 100];
            header.write(&mut datagram);
            prop_assert_eq!(Header::read(&datagram), Some(header));
            prop_assert_eq!(Header::read(&datagram[..length]), None);
            datagram[0] ^= 1;
            prop_assert_eq!(Header::read(&datagram), None);
        }
    }
}
