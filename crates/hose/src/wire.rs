//! What goes between hosts, byte for byte. docs/hose.md draws it.
//!
//! A datagram is a [`Header`], entries, and a MAC over both. [`Key::open`] checks
//! the MAC before anything else is looked at; [`Message::parse`] then walks all
//! entries once, so that reading them later cannot fail.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use std::fmt;

/// The longest datagram, in bytes of UDP payload: below any path's MTU of 1500
/// with IPv6 and a tunnel.
pub const MAX_DATAGRAM: usize = 1400;

/// The shortest key that is taken, in bytes: as long as the hash (RFC 2104, 3).
pub const SHORTEST_KEY: usize = 32;

/// Addresses of one machine that are announced.
pub const MAX_ADDRESSES: usize = 32;

/// Bytes of a machine's name: two names of 63 bytes, a number and two slashes.
pub const MAX_NAME: usize = 140;

/// What every datagram of this version starts with.
const MAGIC: [u8; 4] = *b"TBH1";
const HEADER: usize = 72;
const MAC: usize = 32;

const MACHINE: u8 = 1;
const REQUEST: u8 = 2;
const GRANT: u8 = 3;

/// The bit of the header's flags that pledges.
const PLEDGE: u16 = 1;

/// A host, by a hash of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u64);

impl HostId {
    /// The host that is called `name`: the first 8 bytes of its SHA-256.
    pub fn of(name: &str) -> Self {
        let digest = Sha256::digest(name.as_bytes());
        Self(
            digest
                .iter()
                .take(8)
                .fold(0, |id, byte| id << 8 | u64::from(*byte)),
        )
    }
}

/// The key that all hosts share: HMAC-SHA256 (RFC 2104), and not shown.
#[derive(Clone)]
pub struct Key(Hmac<Sha256>);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0.clone().finalize() == other.0.clone().finalize()
    }
}

impl Eq for Key {}

impl Key {
    /// The key of these bytes; `None` below [`SHORTEST_KEY`].
    pub fn new(secret: &[u8]) -> Option<Self> {
        if secret.len() < SHORTEST_KEY {
            return None;
        }
        Hmac::new_from_slice(secret).ok().map(Self)
    }

    /// Adds the MAC of what is in `datagram`.
    fn seal(&self, datagram: &mut Vec<u8>) {
        let mac = self.0.clone().chain_update(&datagram).finalize();
        datagram.extend_from_slice(&mac.into_bytes());
    }

    /// What a datagram says, if its MAC is right. Compares in constant time.
    ///
    /// # Errors
    /// [`Malformed::Length`], [`Malformed::Version`] and [`Malformed::Mac`].
    pub fn open<'d>(&self, datagram: &'d [u8]) -> Result<&'d [u8], Malformed> {
        if !(HEADER + MAC..=MAX_DATAGRAM).contains(&datagram.len()) {
            return Err(Malformed::Length);
        }
        if !datagram.starts_with(&MAGIC) {
            return Err(Malformed::Version);
        }
        let (body, mac) = datagram.split_at(datagram.len() - MAC);
        let verified = self.0.clone().chain_update(body).verify_slice(mac);
        verified.map_err(|_| Malformed::Mac).map(|()| body)
    }
}

/// Why a datagram is none of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Too short or too long.
    #[error("its length is not between a header's and {MAX_DATAGRAM} B")]
    Length,
    /// It is something else, or of another version.
    #[error("it does not start as version 1 does")]
    Version,
    /// Whoever made it does not have the key.
    #[error("its MAC is wrong")]
    Mac,
    /// The MAC is right, but its entries are none.
    #[error("its entries cannot be read")]
    Entries,
}

/// What each datagram starts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Who sends it.
    pub from: HostId,
    /// Who is meant.
    pub to: HostId,
    /// When the sender started: rises with each restart, never 0.
    pub epoch: u64,
    /// Rises by one with each datagram from this sender in this epoch to this
    /// receiver.
    pub seq: u64,
    /// The sender's clock as it sent this, in nanoseconds.
    pub time: u64,
    /// The receiver's epoch as the sender knows it; 0 if it was never heard.
    pub echo_epoch: u64,
    /// The receiver's latest `time` that the sender has heard.
    pub echo_time: u64,
    /// Which list of machines is the sender's.
    pub revision: u32,
    /// Which list of the receiver's the sender has whole; 0 for none.
    pub known: u32,
    /// How many machines are on the sender's list.
    pub machines: u16,
    /// Whether the sender pledges: until `echo_time` and the pledge's length its
    /// machines send to the receiver's what they were granted, and nothing else.
    pub pledge: bool,
}

/// A machine of the sender's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announced {
    /// Its number in entries.
    pub id: u32,
    /// `OWNER/NAME/NUMBER`.
    pub name: String,
    /// B, in bits a second.
    pub bandwidth: u64,
    /// What each of its senders may use unasked: B/(N-1), in bits a second.
    pub share: u64,
    /// Where it is; IPv4 as IPv4-mapped IPv6 addresses.
    pub addresses: Vec<u128>,
}

/// What one entry says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A machine is at the sender's.
    Machine(Announced),
    /// The sender's machine `sender` wants to send to the receiver's machine
    /// `receiver`.
    Request {
        /// The id of the machine that sends.
        sender: u32,
        /// The id of the machine that receives.
        receiver: u32,
        /// How much it has to send and may, in bits a second; 0: nothing, and it
        /// has given back what it was granted.
        demand: u64,
        /// The `seq` of the latest grant that it keeps to; 0 for none.
        seen: u64,
    },
    /// The receiver's machine `sender` may send to the sender's `receiver`.
    Grant {
        /// The id of the machine that sends.
        sender: u32,
        /// The id of the machine that receives.
        receiver: u32,
        /// How fast, in bits a second.
        rate: u64,
    },
}

impl Entry {
    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::Machine(machine) => {
                to.push(MACHINE);
                to.extend(machine.id.to_be_bytes());
                to.extend(machine.bandwidth.to_be_bytes());
                to.extend(machine.share.to_be_bytes());
                to.push(machine.name.len() as u8);
                to.extend(machine.name.as_bytes());
                to.push(machine.addresses.len() as u8);
                for address in &machine.addresses {
                    to.extend(address.to_be_bytes());
                }
            }
            Self::Request {
                sender,
                receiver,
                demand,
                seen,
            } => {
                to.push(REQUEST);
                to.extend(sender.to_be_bytes());
                to.extend(receiver.to_be_bytes());
                to.extend(demand.to_be_bytes());
                to.extend(seen.to_be_bytes());
            }
            Self::Grant {
                sender,
                receiver,
                rate,
            } => {
                to.push(GRANT);
                to.extend(sender.to_be_bytes());
                to.extend(receiver.to_be_bytes());
                to.extend(rate.to_be_bytes());
            }
        }
    }

    fn read(from: &mut Bytes<'_>) -> Option<Self> {
        Some(match from.take::<1>()?[0] {
            MACHINE => {
                let id = from.u32()?;
                let bandwidth = from.u64()?;
                let share = from.u64()?;
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
                    .map(|_| Some(u128::from_be_bytes(*from.take()?)))
                    .collect::<Option<_>>()?;
                Self::Machine(Announced {
                    id,
                    name,
                    bandwidth,
                    share,
                    addresses,
                })
            }
            REQUEST => Self::Request {
                sender: from.u32()?,
                receiver: from.u32()?,
                demand: from.u64()?,
                seen: from.u64()?,
            },
            GRANT => Self::Grant {
                sender: from.u32()?,
                receiver: from.u32()?,
                rate: from.u64()?,
            },
            _ => return None,
        })
    }
}

/// What is left to read.
struct Bytes<'b>(&'b [u8]);

impl<'b> Bytes<'b> {
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
}

/// A datagram that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// From whom, when, and what else goes with each.
    pub header: Header,
    /// What it says.
    pub entries: Vec<Entry>,
}

impl Message {
    /// Reads what [`Key::open`] let through.
    ///
    /// # Errors
    /// [`Malformed`]; never panics, whatever the bytes.
    pub fn parse(body: &[u8]) -> Result<Self, Malformed> {
        if body.len() > MAX_DATAGRAM - MAC {
            return Err(Malformed::Length);
        }
        let mut bytes = Bytes(body);
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

    fn header(bytes: &mut Bytes<'_>) -> Option<Header> {
        Some(Header {
            from: HostId(bytes.u64()?),
            to: HostId(bytes.u64()?),
            epoch: bytes.u64()?,
            seq: bytes.u64()?,
            time: bytes.u64()?,
            echo_epoch: bytes.u64()?,
            echo_time: bytes.u64()?,
            revision: bytes.u32()?,
            known: bytes.u32()?,
            machines: bytes.u16()?,
            pledge: match u16::from_be_bytes(*bytes.take()?) {
                0 => false,
                PLEDGE => true,
                _ => return None,
            },
        })
    }
}

/// Fills one datagram.
#[derive(Debug, Default)]
pub struct Writer {
    body: Vec<u8>,
}

impl Writer {
    /// Starts a datagram; whatever was in it is gone.
    pub fn start(&mut self, header: &Header) {
        self.body.clear();
        self.body.extend(MAGIC);
        for number in [
            header.from.0,
            header.to.0,
            header.epoch,
            header.seq,
            header.time,
            header.echo_epoch,
            header.echo_time,
        ] {
            self.body.extend(number.to_be_bytes());
        }
        self.body.extend(header.revision.to_be_bytes());
        self.body.extend(header.known.to_be_bytes());
        self.body.extend(header.machines.to_be_bytes());
        let flags = if header.pledge { PLEDGE } else { 0 };
        self.body.extend(flags.to_be_bytes());
    }

    /// Adds an entry; false, and nothing is added, where it does not fit.
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

    /// The datagram with its MAC.
    pub fn finish(&mut self, key: &Key) -> &[u8] {
        key.seal(&mut self.body);
        &self.body
    }
}
