//! What a host's guests sent, sent again in virtual time: what their tail would have been.
//!
//! A [`Recording`] is what the guests of one host handed over, and when: a capture, or a log
//! of flows. [`replay`] sends it through one [`Way`] out of the host, the mechanisms of the
//! data path themselves, onto a wire of the link's rate, and says of each message when its
//! last bit left. [`Network::least_delay`] says what the network behind the host could promise.
//!
//! What was recorded is sent as it came, whatever becomes of it: no sender slows down as it
//! waits longer, and none sends again what is lost. So the answer is about this load, not
//! about what TCP would have made of another network.

mod capture;
mod log;
mod placement;
mod run;
mod tail;

pub use placement::{Network, NoPlace};
pub use run::{Way, replay};
pub use tail::Tail;

use crate::pacer::Excess;
use std::path::{Path, PathBuf};
use tailbound_dataplane::{Guarantee, PacketRecord};
use tailbound_units::{Bytes, Nanos, Position, Rate, WireBytes};

/// Why nothing can be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The capture is none of Ethernet frames, or broken.
    #[error("{}: {what}", path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A row of a log of flows has a mistake.
    #[error("{}:{line}:{column}: {what}", path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// The line, from 1 on.
        line: usize,
        /// The column, from 1 on.
        column: usize,
        /// What is wrong, and what would be right.
        what: String,
    },
    /// A log of flows as Parquet has a mistake.
    #[error("{}: {wrong}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// Its row and column, what is wrong, and what would be right.
        wrong: crate::columnar::Wrong,
    },
    /// It does not fit the memory.
    #[error(
        "{}: more than {} packets, which take {} of memory: replay a part of it",
        path.display(), MOST_PACKETS, Bytes((MOST_PACKETS * size_of::<PacketRecord>()) as u64)
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// A topology with a mistake.
    #[error("{}: {what}", path.display())]
    Topology {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Nothing in it is from one of the guests.
    #[error("{}: nothing in it is sent by {guests}", path.display())]
    Nothing {
        /// The file.
        path: PathBuf,
        /// The names of those looked for.
        guests: String,
    },
    /// What the pacer says to the guarantees.
    #[error("guest {name}: {source}")]
    Guarantee {
        /// Whose.
        name: String,
        /// The rule that is broken.
        source: tailbound_dataplane::pacer::PacerError,
    },
    /// The guarantees are together more than the link.
    #[error(
        "the guarantees are {sum} together, and the link has {link}: a larger link, or a smaller \
         --fit than {fit} times what each guest sent on average"
    )]
    TooMuch {
        /// Of all guests.
        sum: Rate,
        /// The link.
        link: Rate,
        /// By how much the averages were multiplied.
        fit: f64,
    },
}

/// A guest of the host that was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guest {
    /// Its name; in a log of flows, what its rows call it.
    pub name: String,
    /// Its station in a capture.
    pub mac: Option<[u8; 6]>,
    /// What it is guaranteed.
    pub guarantee: Option<Guarantee>,
}

/// What was not taken from a recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Frames of others than the guests: what came in, mostly.
    pub of_others: u64,
    /// Frames that go to another guest of the host, and to no wire.
    pub local: u64,
    /// Frames that are none: too short, or contradicting themselves.
    pub malformed: u64,
}

/// A message: a row of a log, or a frame of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) guest: u32,
    /// From the first one on.
    pub(crate) came: Nanos,
}

/// What the guests of a host handed over, in the order of its time.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// The guests; without a list of them, those of a log in the order of their first rows.
    pub guests: Vec<Guest>,
    /// What was not taken.
    pub left_out: LeftOut,
    /// In the order of their `came`, which counts from the first one on; each has the number
    /// of its message as its `id`.
    packets: Vec<PacketRecord>,
    messages: Vec<Message>,
}

impl Recording {
    /// Reads a capture (pcap or pcapng) of Ethernet frames, or a log of flows (CSV or Parquet with the
    /// columns `time_ns`, `guest`, `destination`, `bytes`). What is of none of `guests` is
    /// left out; a log has its own guests where none are named.
    ///
    /// # Errors
    /// The file cannot be read, is neither, has a mistake, or has nothing of the guests.
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
            log::read(path, &mut recording)?;
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

    /// How long it lasts, from the first message to the last.
    pub fn time(&self) -> Nanos {
        (self.messages.last()).map_or(Nanos::ZERO, |message| message.came)
    }

    /// The largest of what guests are guaranteed, each part for itself.
    pub fn largest_guarantee(&self) -> Option<Guarantee> {
        let guarantees = self.guests.iter().filter_map(|guest| guest.guarantee);
        guarantees.reduce(|one, other| Guarantee {
            bandwidth: one.bandwidth.max(other.bandwidth),
            burst: one.burst.max(other.burst),
            burst_rate: one.burst_rate.max(other.burst_rate),
            ..one
        })
    }

    /// Within what time a guest's largest message is promised to be there, where the network
    /// delays each frame by `delay` at most: M/Bmax + d up to the burst S, S/Bmax +
    /// (M - S)/B + d beyond (Silo, 4.1). `None` without a guarantee.
    pub fn promised(&self, guest: u32, delay: Nanos) -> Option<Nanos> {
        let guarantee = self.guests[guest as usize].guarantee?;
        let message = self.largest(guest);
        let at_once = message.min(guarantee.burst);
        let later = guarantee
            .bandwidth
            .time_for(message.saturating_sub(at_once));
        Some(guarantee.burst_rate.time_for(at_once) + later + delay)
    }

    /// The largest message of a guest, on the wire.
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

    /// How many messages a guest sent, and what they take of the wire.
    pub fn sent(&self, guest: u32) -> (usize, WireBytes) {
        let of = |number: &u32| *number == guest;
        let messages = self.messages.iter().map(|message| message.guest).filter(of);
        let packets = self.packets.iter().filter(|packet| packet.guest == guest);
        let wire = packets.fold(WireBytes::ZERO, |sum, packet| sum + on_the_wire(packet));
        (messages.count(), wire)
    }

    /// What a guest sent on average, on the wire. At least one bit a second.
    pub fn mean(&self, guest: u32) -> Rate {
        let (_, sent) = self.sent(guest);
        // Shorter than a millisecond, nothing has an average.
        let time = u128::from(self.time().0.max(1_000_000));
        let rate = u128::from(sent.0) * 8_000_000_000 / time;
        Rate(u64::try_from(rate).unwrap_or(u64::MAX).max(1))
    }

    /// The least burst with which all that a guest sent keeps to a bandwidth of `rate`, on
    /// a link of `link`: with it, nothing of the guest would have waited for its guarantee.
    pub fn burst_for(&self, guest: u32, link: Rate, rate: Rate) -> Bytes {
        let mut excess = Excess::new(link, rate, Bytes(0));
        for packet in self.packets.iter().filter(|packet| packet.guest == guest) {
            let at = u128::from(packet.came.0) * u128::from(link.0) / 8_000_000_000;
            let at = Position(u64::try_from(at).unwrap_or(u64::MAX));
            excess.add(at, on_the_wire(packet));
        }
        Bytes(u64::try_from(excess.bytes().max(0)).unwrap_or(u64::MAX))
    }

    /// Guarantees each guest that has no guarantee `fit` times what it sent on average, the
    /// least burst that goes with it, and an equal part of the link for it.
    ///
    /// # Errors
    /// They are more than the link together.
    pub fn fit(&mut self, link: Rate, fit: f64) -> Result<(), ReplayError> {
        for guest in 0..self.guests.len() as u32 {
            if self.guests[guest as usize].guarantee.is_some() || self.sent(guest).0 == 0 {
                continue;
            }
            // In steps that one can read and write.
            let steps = (self.mean(guest).0 as f64 * fit / STEP.0 as f64).ceil() as u64;
            let rate = Rate(steps.max(1).saturating_mul(STEP.0)).min(link);
            let burst = self.burst_for(guest, link, rate).max(LEAST_BURST);
            // As long as these are together no more than the link, no burst waits for another.
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

    /// Whether there is room for what comes next.
    fn check_size(&self, path: &Path) -> Result<(), ReplayError> {
        if self.packets.len() <= MOST_PACKETS {
            return Ok(());
        }
        Err(ReplayError::TooLarge {
            path: path.to_owned(),
        })
    }

    /// Adds a message of packets that come at once. Their time is not before the last one's.
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

/// The packets of a recording at most, and how long it lasts: a month.
const MOST_PACKETS: usize = 50_000_000;
const LONGEST: Nanos = Nanos::from_secs(31 * 24 * 3600);

/// The least burst, one longest frame, and of what a fitted bandwidth is a multiple.
const LEAST_BURST: Bytes = Bytes(1538);
const STEP: Rate = Rate(100_000);

/// What a packet takes of the wire, in its segments.
fn on_the_wire(packet: &PacketRecord) -> WireBytes {
    use tailbound_dataplane::Frame as _;
    let mut wire = WireBytes::ZERO;
    packet.segment(|segment| wire += segment.wire());
    wire
}

#[cfg(test)]
mod tests;
