//! Encoding of the datagrams between hosts (docs/explanation/hose.md, *Datagrams*).
//!
//! A datagram is a [`Header`], entries, and a MAC over both. [`Envelope::read`] returns the two
//! hosts and the key's epoch, for the lookup of the key. [`Envelope::open`] verifies the MAC before
//! any other use. [`Message::parse`] then validates all entries.

use crate::ids::{
    Address, ClassesCode, Destination, Epoch, HostId, MachineId, PairId, Revision, SequenceNumber,
    Station,
};
use crate::keys::{self, Key, KeyEpoch};
use tailbound_units::{Bytes, Nanos, Rate};

/// The longest datagram, in bytes of UDP payload: below any path's MTU of 1500
/// with IPv6 and a tunnel.
pub const MAX_DATAGRAM: usize = 1400;

/// Largest number of a VM's announced addresses.
pub const MAX_ADDRESSES: usize = 32;

/// Maximum length of a VM's name: two names of 63 bytes, a number and two slashes.
pub const MAX_NAME: usize = 140;

/// Magic number and version.
const MAGIC: [u8; 4] = *b"TBH3";
const HEADER: usize = 88;
const MAC: usize = keys::LENGTH;

const MACHINE: u8 = 1;
const REQUEST: u8 = 2;
const GRANT: u8 = 3;
/// The same with bytes of an inward burst. Hosts of earlier versions, which have no machines with
/// one, never get these.
const REQUEST_WITH_BURST: u8 = 4;
const GRANT_WITH_BURST: u8 = 5;

/// Encoding of an unknown station.
const NO_STATION: [u8; 6] = [0; 6];

/// The bit of the header's flags that pledges.
const PLEDGE: u16 = 1;

/// Reason why a datagram is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Too short or too long.
    #[error("its length is not between a header's and {MAX_DATAGRAM} B")]
    Length,
    /// The magic number or the version differs.
    #[error("it does not start as version 3 does")]
    Version,
    /// The MAC does not match the key of the two hosts.
    #[error("its MAC is wrong")]
    Mac,
    /// The MAC is right, but the entries are invalid.
    #[error("its entries cannot be read")]
    Entries,
}

/// An unverified datagram.
#[derive(Debug, Clone, Copy)]
pub struct Envelope<'d> {
    /// The claimed sender.
    pub from: HostId,
    /// The claimed receiver.
    pub to: HostId,
    /// The claimed epoch of the key.
    pub key: KeyEpoch,
    body: &'d [u8],
    mac: &'d [u8],
}

impl<'d> Envelope<'d> {
    /// Reads a datagram's length, version and hosts.
    ///
    /// # Errors
    /// [`Malformed::Length`] and [`Malformed::Version`].
    pub fn read(datagram: &'d [u8]) -> Result<Self, Malformed> {
        if !(HEADER + MAC..=MAX_DATAGRAM).contains(&datagram.len()) {
            return Err(Malformed::Length);
        }
        let (body, mac) = datagram.split_at(datagram.len() - MAC);
        let mut bytes = Reader(body);
        if bytes.take() != Some(&MAGIC) {
            return Err(Malformed::Version);
        }
        let (from, to) = (bytes.u64(), bytes.u64());
        let (from, to) = from.zip(to).ok_or(Malformed::Length)?;
        let key = bytes.u32().ok_or(Malformed::Length)?;
        Ok(Self {
            from: HostId(from),
            to: HostId(to),
            key: KeyEpoch(key),
            body,
            mac,
        })
    }

    /// Checks the MAC, in constant time, and returns all before it.
    ///
    /// # Errors
    /// [`Malformed::Mac`].
    pub fn open(self, key: &Key) -> Result<&'d [u8], Malformed> {
        let verified = key.verifies(self.body, self.mac);
        verified.then_some(self.body).ok_or(Malformed::Mac)
    }
}

/// Header of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The host that sends it.
    pub from: HostId,
    /// The host that it is for.
    pub to: HostId,
    /// Epoch of the signing key.
    pub key: KeyEpoch,
    /// Latest key epoch of the sender.
    pub latest_key: KeyEpoch,
    /// Classes of the sender's fabric; 0 without classes.
    pub classes: ClassesCode,
    /// The sender's epoch towards this receiver, never 0.
    pub epoch: Epoch,
    /// Sequence number from this sender to this receiver in this epoch.
    pub sequence: SequenceNumber,
    /// The sender's clock as it sent this.
    pub time: Nanos,
    /// The receiver's epoch as known to the sender; 0 before the first datagram.
    pub echo_epoch: Epoch,
    /// The receiver's latest `time` that the sender received.
    pub echo_time: Nanos,
    /// The version of the sender's list of machines.
    pub revision: Revision,
    /// The version of the receiver's list that the sender has completely; 0 for none.
    pub known: Revision,
    /// Number of VMs on the sender's list.
    pub machines: u16,
    /// True for a pledge: until `echo_time` plus the pledge's length the sender's VMs send to the
    /// receiver's VMs only what was granted.
    pub pledge: bool,
}

/// A VM of the sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnnouncedMachine {
    /// Its number in entries.
    pub id: MachineId,
    /// Its station, if known.
    pub station: Option<Station>,
    /// The VM's name, `OWNER/NAME/NUMBER`.
    pub name: String,
    /// Guaranteed bandwidth B.
    pub bandwidth: Rate,
    /// Static share of each of its senders without a grant: B/(N-1).
    pub share: Rate,
    /// Its addresses.
    pub addresses: Vec<Address>,
}

impl AnnouncedMachine {
    /// Returns its destinations.
    pub(crate) fn destinations(&self) -> impl Iterator<Item = Destination> + '_ {
        let station = self.station.map(Destination::Station);
        let addresses = self.addresses.iter().copied().map(Destination::Address);
        station.into_iter().chain(addresses)
    }
}

/// An entry of a datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A machine is on the host that sends the datagram.
    Machine(AnnouncedMachine),
    /// Rate request of the pair's sender, a VM of the sending host.
    Request {
        /// Sender and receiver.
        pair: PairId,
        /// Demand within its limits; 0 returns the grant.
        demand: Rate,
        /// Sequence number of the latest grant that it keeps; 0 for none.
        confirms: SequenceNumber,
        /// Bytes of the receiver's inward burst that it wants, beyond the part of each sender. If
        /// the grant is returned: not 0 if the sender's bucket was full.
        wanted: Bytes,
    },
    /// Grant of the pair's receiver, a VM of the sending host.
    Grant {
        /// Sender and receiver.
        pair: PairId,
        /// Granted rate.
        rate: Rate,
        /// Lent bytes of the receiver's inward burst.
        lent: Bytes,
    },
}

impl Entry {
    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::Machine(machine) => {
                to.push(MACHINE);
                to.extend(machine.id.0.to_be_bytes());
                to.extend(machine.station.map_or(NO_STATION, Station::mac));
                to.extend(machine.bandwidth.0.to_be_bytes());
                to.extend(machine.share.0.to_be_bytes());
                to.push(machine.name.len() as u8);
                to.extend(machine.name.as_bytes());
                to.push(machine.addresses.len() as u8);
                for address in &machine.addresses {
                    to.extend(address.0.to_be_bytes());
                }
            }
            Self::Request {
                pair,
                demand,
                confirms,
                wanted,
            } => {
                let has_burst = *wanted > Bytes::ZERO;
                to.push(if has_burst {
                    REQUEST_WITH_BURST
                } else {
                    REQUEST
                });
                to.extend(pair.sender.0.to_be_bytes());
                to.extend(pair.receiver.0.to_be_bytes());
                to.extend(demand.0.to_be_bytes());
                to.extend(confirms.0.to_be_bytes());
                if has_burst {
                    to.extend(wanted.0.to_be_bytes());
                }
            }
            Self::Grant { pair, rate, lent } => {
                let has_burst = *lent > Bytes::ZERO;
                to.push(if has_burst { GRANT_WITH_BURST } else { GRANT });
                to.extend(pair.sender.0.to_be_bytes());
                to.extend(pair.receiver.0.to_be_bytes());
                to.extend(rate.0.to_be_bytes());
                if has_burst {
                    to.extend(lent.0.to_be_bytes());
                }
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(match from.take::<1>()?[0] {
            MACHINE => {
                let id = MachineId(from.u32()?);
                let station = match *from.take()? {
                    NO_STATION => None,
                    mac => Some(Station::new(mac)?),
                };
                let bandwidth = Rate(from.u64()?);
                let share = Rate(from.u64()?);
                let len = usize::from(from.take::<1>()?[0]);
                if len > MAX_NAME {
                    return None;
                }
                let name = std::str::from_utf8(from.slice(len)?).ok()?.to_owned();
                let count = usize::from(from.take::<1>()?[0]);
                if count > MAX_ADDRESSES {
                    return None;
                }
                let addresses = (0..count)
                    .map(|_| Some(Address(u128::from_be_bytes(*from.take()?))))
                    .collect::<Option<_>>()?;
                Self::Machine(AnnouncedMachine {
                    id,
                    station,
                    name,
                    bandwidth,
                    share,
                    addresses,
                })
            }
            kind @ (REQUEST | REQUEST_WITH_BURST) => Self::Request {
                pair: from.pair()?,
                demand: Rate(from.u64()?),
                confirms: SequenceNumber(from.u64()?),
                wanted: from.burst(kind == REQUEST_WITH_BURST)?,
            },
            kind @ (GRANT | GRANT_WITH_BURST) => Self::Grant {
                pair: from.pair()?,
                rate: Rate(from.u64()?),
                lent: from.burst(kind == GRANT_WITH_BURST)?,
            },
            _ => return None,
        })
    }
}

/// The unread bytes.
struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn slice(&mut self, len: usize) -> Option<&'b [u8]> {
        let (taken, left) = self.0.split_at_checked(len)?;
        self.0 = left;
        Some(taken)
    }

    fn take<const N: usize>(&mut self) -> Option<&'b [u8; N]> {
        let (taken, left) = self.0.split_first_chunk()?;
        self.0 = left;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().copied().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().copied().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().copied().map(u64::from_be_bytes)
    }

    /// Bytes of an inward burst; not zero if they are present.
    fn burst(&mut self, is_present: bool) -> Option<Bytes> {
        if !is_present {
            return Some(Bytes::ZERO);
        }
        self.u64().filter(|bytes| *bytes > 0).map(Bytes)
    }

    fn pair(&mut self) -> Option<PairId> {
        Some(PairId {
            sender: MachineId(self.u32()?),
            receiver: MachineId(self.u32()?),
        })
    }
}

/// A parsed datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The header.
    pub header: Header,
    /// The entries in order.
    pub entries: Vec<Entry>,
}

impl Message {
    /// Parses the result of [`Envelope::open`]. Never panics on any bytes.
    ///
    /// # Errors
    /// [`Malformed::Length`], [`Malformed::Version`] and [`Malformed::Entries`].
    pub fn parse(body: &[u8]) -> Result<Self, Malformed> {
        if body.len() > MAX_DATAGRAM - MAC {
            return Err(Malformed::Length);
        }
        let mut bytes = Reader(body);
        if bytes.take() != Some(&MAGIC) {
            return Err(Malformed::Version);
        }
        let header = Self::header(&mut bytes).ok_or(Malformed::Length)?;
        let mut entries = Vec::new();
        while !bytes.0.is_empty() {
            entries.push(Entry::read(&mut bytes).ok_or(Malformed::Entries)?);
        }
        Ok(Self { header, entries })
    }

    fn header(bytes: &mut Reader<'_>) -> Option<Header> {
        Some(Header {
            from: HostId(bytes.u64()?),
            to: HostId(bytes.u64()?),
            key: KeyEpoch(bytes.u32()?),
            latest_key: KeyEpoch(bytes.u32()?),
            classes: ClassesCode(bytes.u64()?),
            epoch: Epoch(bytes.u64()?),
            sequence: SequenceNumber(bytes.u64()?),
            time: Nanos(bytes.u64()?),
            echo_epoch: Epoch(bytes.u64()?),
            echo_time: Nanos(bytes.u64()?),
            revision: Revision(bytes.u32()?),
            known: Revision(bytes.u32()?),
            machines: bytes.u16()?,
            pledge: match bytes.u16()? {
                0 => false,
                PLEDGE => true,
                _ => return None,
            },
        })
    }
}

/// Writer of one datagram.
#[derive(Debug, Default)]
pub struct Writer {
    body: Vec<u8>,
}

impl Writer {
    /// Starts a datagram, and drops one that was not finished.
    pub fn start(&mut self, header: &Header) {
        self.body.clear();
        self.body.extend(MAGIC);
        self.body.extend(header.from.0.to_be_bytes());
        self.body.extend(header.to.0.to_be_bytes());
        self.body.extend(header.key.0.to_be_bytes());
        self.body.extend(header.latest_key.0.to_be_bytes());
        for number in [
            header.classes.0,
            header.epoch.0,
            header.sequence.0,
            header.time.0,
            header.echo_epoch.0,
            header.echo_time.0,
        ] {
            self.body.extend(number.to_be_bytes());
        }
        self.body.extend(header.revision.0.to_be_bytes());
        self.body.extend(header.known.0.to_be_bytes());
        self.body.extend(header.machines.to_be_bytes());
        let flags = if header.pledge { PLEDGE } else { 0 };
        self.body.extend(flags.to_be_bytes());
    }

    /// Adds an entry. Returns false if it does not fit.
    #[must_use]
    pub fn push(&mut self, entry: &Entry) -> bool {
        let before = self.body.len();
        entry.write(&mut self.body);
        let fits = self.body.len() + MAC <= MAX_DATAGRAM;
        if !fits {
            self.body.truncate(before);
        }
        fits
    }

    /// Signs the datagram with the key of its two hosts and returns all of it.
    pub fn finish(&mut self, key: &Key) -> &[u8] {
        key.seal(&mut self.body);
        &self.body
    }
}
