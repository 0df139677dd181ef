//! Replay of recorded traffic of a host's guests in virtual time: its tail latency under other
//! mechanisms.
//!
//! A [`Recording`] has the packets that the guests of one host sent, with their times: a capture,
//! or a log of flows. [`replay`] sends them through one [`Discipline`] out of the host, the mechanisms of
//! the data path themselves, onto a wire of the link's rate, and returns the departure time of each
//! message's last bit. [`Network::least_delay`] returns the shortest delay that the network behind
//! the host could guarantee.
//!
//! The recorded packets are sent at their recorded times in any case: no sender slows down when its
//! packets wait longer, and no sender retransmits lost packets. The result is therefore for this
//! load, not for TCP in another network.

mod capture;
mod log;
mod placement;
mod run;
mod tail;

pub use placement::{Network, NoPlace};
pub use run::{Discipline, replay};
pub use tail::Tail;

pub use crate::rows::Wrong;
pub(crate) use capture::{CapturedFrame, each as each_frame, is_capture};

use crate::pacer::Excess;
use std::path::{Path, PathBuf};
use tailbound_dataplane::{Guarantee, PacketRecord};
use tailbound_units::{Bytes, Nanos, Position, Rate, WireBytes};

/// Reason for which a replay is impossible.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The file is no capture of Ethernet frames, is damaged or too large.
    #[error("{}: {what}", path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// The error.
        what: String,
    },
    /// A log of flows has an error.
    #[error("{}{wrong}", path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// Its line or row, its column, the error, and the expected format.
        wrong: Wrong,
    },
    /// A topology has an error.
    #[error("{}: {what}", path.display())]
    Topology {
        /// The file.
        path: PathBuf,
        /// The error.
        what: String,
    },
    /// The recording has no packet of the guests.
    #[error("{}: nothing in it is sent by {guests}", path.display())]
    Nothing {
        /// The file.
        path: PathBuf,
        /// Names of the guests.
        guests: String,
    },
    /// The pacer refuses a guarantee.
    #[error("guest {name}: {source}")]
    Guarantee {
        /// Name of the guest.
        name: String,
        /// The rule that is broken.
        source: tailbound_dataplane::pacer::PacerError,
    },
    /// The sum of the guarantees exceeds the link.
    #[error(
        "the guarantees are {sum} together, and the link has {link}: a larger link, or a smaller \
         --fit than {fit} times what each guest sent on average"
    )]
    TooMuch {
        /// Sum over all guests.
        sum: Rate,
        /// The link.
        link: Rate,
        /// Factor of the averages.
        fit: f64,
    },
}

/// A guest of the recorded host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guest {
    /// Its name; in a log of flows, the name in its rows.
    pub name: String,
    /// Its MAC address in a capture.
    pub mac: Option<[u8; 6]>,
    /// Its guarantee.
    pub guarantee: Option<Guarantee>,
}

/// Packets that are not part of a recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Frames of other senders: mostly received ones.
    pub of_others: u64,
    /// Frames to another guest of the host, which do not use a wire.
    pub local: u64,
    /// Malformed frames: too short, or contradictory.
    pub malformed: u64,
}

/// A message: a row of a log, or a frame of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) guest: u32,
    /// Time since the first message.
    pub(crate) came: Nanos,
}

/// Packets that the guests of a host sent, in the order of time.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// The guests; without a list of them, those of a log in the order of their first rows.
    pub guests: Vec<Guest>,
    /// Packets that were left out.
    pub left_out: LeftOut,
    /// Packets in the order of `came`, which counts from the first one on; each has the number of
    /// its message as its `id`.
    packets: Vec<PacketRecord>,
    messages: Vec<Message>,
}

impl Recording {
    /// Reads a capture (pcap or pcapng) of Ethernet frames, or a log of flows (CSV or Parquet with
    /// the columns `time_ns`, `guest`, `destination`, `bytes`). Packets of other senders than
    /// `guests` are left out; if `guests` is empty, all senders of a log are guests.
    ///
    /// # Errors
    /// The file cannot be read, is neither, has an error, or has no packet of the guests.
    pub fn read(path: &Path, guests: Vec<Guest>) -> Result<Self, ReplayError> {
        let unreadable = |source| ReplayError::Unreadable {
            path: path.to_owned(),
            source,
        };
        let mut recording = Self {
            guests,
            ..Self::default()
        };
        let names: Vec<_> = recording.guests.iter().map(|g| g.name.clone()).collect();
        if capture::is_capture(path).map_err(unreadable)? {
            capture::read(path, &mut recording)?;
        } else {
            let read = log::read(path, &mut recording);
            read.map_err(|wrong| ReplayError::Log {
                path: path.to_owned(),
                wrong,
            })?;
        }
        if recording.messages.is_empty() {
            return Err(ReplayError::Nothing {
                path: path.to_owned(),
                guests: if names.is_empty() {
                    "any guest".to_owned()
                } else {
                    names.join(", ")
                },
            });
        }
        Ok(recording)
    }

    /// Returns the time from the first message to the last.
    pub fn time(&self) -> Nanos {
        (self.messages.last()).map_or(Nanos::ZERO, |message| message.came)
    }

    /// Returns the largest guarantee of the guests, each part for itself.
    pub fn largest_guarantee(&self) -> Option<Guarantee> {
        let guarantees = self.guests.iter().filter_map(|guest| guest.guarantee);
        guarantees.reduce(|one, other| Guarantee {
            bandwidth: one.bandwidth.max(other.bandwidth),
            burst: one.burst.max(other.burst),
            burst_rate: one.burst_rate.max(other.burst_rate),
            ..one
        })
    }

    /// Returns the guaranteed time of a guest's largest message if the network delays each frame by
    /// at most `delay`: M/Bmax + d up to the burst S, S/Bmax + (M - S)/B + d beyond (Silo, 4.1).
    /// `None` without a guarantee.
    pub fn promised(&self, guest: u32, delay: Nanos) -> Option<Nanos> {
        let guarantee = self.guests[guest as usize].guarantee?;
        let message = self.largest(guest);
        let at_once = message.min(guarantee.burst);
        let later = guarantee
            .bandwidth
            .time_for(message.saturating_sub(at_once));
        Some(guarantee.burst_rate.time_for(at_once) + later + delay)
    }

    /// Returns the largest message of a guest, on the wire.
    fn largest(&self, guest: u32) -> Bytes {
        let mut largest = 0;
        let (mut message, mut sum) = (None, 0);
        for packet in self.packets.iter().filter(|packet| packet.guest == guest) {
            if message.replace(packet.id) != Some(packet.id) {
                sum = 0;
            }
            sum += on_the_wire(packet).0;
            largest = largest.max(sum);
        }
        Bytes(largest)
    }

    /// Returns the number of a guest's messages, and their length on the wire.
    pub fn sent(&self, guest: u32) -> (usize, WireBytes) {
        let of = |number: &u32| *number == guest;
        let messages = self.messages.iter().map(|message| message.guest).filter(of);
        let packets = self.packets.iter().filter(|packet| packet.guest == guest);
        let wire = packets.fold(WireBytes::ZERO, |sum, packet| sum + on_the_wire(packet));
        (messages.count(), wire)
    }

    /// Returns the average rate of a guest, on the wire; at least one bit a second.
    pub fn mean(&self, guest: u32) -> Rate {
        let (_, sent) = self.sent(guest);
        // Below a millisecond there is no meaningful average.
        let time = u128::from(self.time().0.max(1_000_000));
        let rate = u128::from(sent.0) * 8_000_000_000 / time;
        Rate(u64::try_from(rate).unwrap_or(u64::MAX).max(1))
    }

    /// Returns the smallest burst with which all packets of a guest conform to a bandwidth of
    /// `rate`, on a link of `link`: with this burst, no packet of the guest would have waited for
    /// its guarantee.
    pub fn burst_for(&self, guest: u32, link: Rate, rate: Rate) -> Bytes {
        let mut excess = Excess::new(link, rate, Bytes(0));
        for packet in self.packets.iter().filter(|packet| packet.guest == guest) {
            let at = u128::from(packet.came.0) * u128::from(link.0) / 8_000_000_000;
            let at = Position(u64::try_from(at).unwrap_or(u64::MAX));
            excess.add(at, on_the_wire(packet));
        }
        Bytes(u64::try_from(excess.bytes().max(0)).unwrap_or(u64::MAX))
    }

    /// Sets the guarantee of each guest without one: `fit` times its average rate, the smallest
    /// burst for this rate, and an equal part of the link as its burst rate.
    ///
    /// # Errors
    /// The sum exceeds the link.
    pub fn fit(&mut self, link: Rate, fit: f64) -> Result<(), ReplayError> {
        for guest in 0..self.guests.len() as u32 {
            if self.guests[guest as usize].guarantee.is_some() || self.sent(guest).0 == 0 {
                continue;
            }
            // In steps that a person can read and write.
            let steps = (self.mean(guest).0 as f64 * fit / STEP.0 as f64).ceil() as u64;
            let rate = Rate(steps.max(1).saturating_mul(STEP.0)).min(link);
            let burst = self.burst_for(guest, link, rate).max(LEAST_BURST);
            // If the sum of these is at most the link, no burst waits for another.
            let burst_rate = Rate(link.0 / self.guests.len() as u64).max(rate);
            self.guests[guest as usize].guarantee = Some(Guarantee::new(rate, burst, burst_rate));
        }
        let guarantees = self.guests.iter().filter_map(|guest| guest.guarantee);
        let sum = guarantees.fold(Rate(0), |sum, it| sum.saturating_add(it.bandwidth));
        if sum > link {
            return Err(ReplayError::TooMuch { sum, link, fit });
        }
        Ok(())
    }

    /// Checks that there is room for another message; returns the reason otherwise.
    fn check_size(&self) -> Result<(), String> {
        if self.packets.len() <= MOST_PACKETS {
            return Ok(());
        }
        let memory = Bytes((MOST_PACKETS * size_of::<PacketRecord>()) as u64);
        Err(format!(
            "more than {MOST_PACKETS} packets, which take {memory} of memory: replay a part of it"
        ))
    }

    /// Adds a message of packets that arrive together, not before the last one.
    fn add(&mut self, guest: u32, came: Nanos, packets: impl IntoIterator<Item = PacketRecord>) {
        let id = self.messages.len() as u64;
        self.messages.push(Message { guest, came });
        self.packets
            .extend(packets.into_iter().map(|packet| PacketRecord {
                id,
                came,
                guest,
                ..packet
            }));
    }
}

/// Largest number of packets of a recording.
const MOST_PACKETS: usize = 50_000_000;
/// Longest recording: a month.
const MAX_RECORDING: Nanos = Nanos::from_secs(31 * 24 * 3600);

/// Smallest burst, one longest frame, and step of a fitted bandwidth.
const LEAST_BURST: Bytes = Bytes(1538);
const STEP: Rate = Rate(100_000);

/// Returns the length of a packet's segments on the wire.
fn on_the_wire(packet: &PacketRecord) -> WireBytes {
    use tailbound_dataplane::Frame as _;
    let mut wire = WireBytes::ZERO;
    packet.segment(|segment| wire += segment.wire());
    wire
}

#[cfg(test)]
mod tests;
