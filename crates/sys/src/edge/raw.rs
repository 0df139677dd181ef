//! Keys and values of the maps, as `edge/tables.h` has them, and their conversions.

use super::rules::{
    Bucket, Counters, DropReason, GrantedRate, GuestRules, HORIZON, Lateness, MAX_HORIZON, Prefix,
    RateUsage,
};
use super::{EdgeError, Guard};
use aya::Pod;
use std::net::{IpAddr, Ipv6Addr};
use tailbound_units::{Bytes, Nanos};

/// `struct offload`: the number of segments of the longest packet before the limit, and by the limit.
pub(super) type RawOffload = [u32; 2];

/// The version of `tables.h`, and of what the programs do with it.
pub(super) const LAYOUT: u64 = 4;

/// The work of a byte: bits times nanoseconds a second.
const BYTE: u128 = 8_000_000_000;
/// Limits of buckets, within which no product in `bucket.h` exceeds 64 bits.
const RATES: std::ops::RangeInclusive<u64> = 1_000..=400_000_000_000;
const MAX_BURST: u64 = 1_000_000_000;
const MAX_DEPTH: u128 = 1 << 40;

/// The shortest frame on the wire, with preamble, gap and check sequence.
const SHORTEST_FRAME: u32 = 84;

const SHAPES: usize = 4;
const OWN6: usize = Guard::MAX_PREFIXES + 1;
const OPEN6: usize = Guard::MAX_OPEN + 1;
const CHOSEN: usize = Guard::MAX_CHOSEN as usize;

const GUARDS: u32 = 1;
const TAGS: u32 = 2;
const HAS_PCP: u32 = 4;
const IS_SPLIT: u32 = 8;
const IS_DIRECT: u32 = 16;
const HAS_LINES: u32 = 64;

/// `struct shape`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) rate: u64,
    pub(super) depth: u64,
    pub(super) depth_rest: u64,
}

impl Shape {
    fn new(name: &str, bucket: Bucket) -> Result<Self, EdgeError> {
        let Bucket { rate, burst } = bucket;
        if !RATES.contains(&rate.0) {
            return Err(EdgeError::Rule(format!(
                "{name}: a rate of {rate} is out of range; use 1kbit/s to 400Gbit/s"
            )));
        }
        let work = u128::from(burst.0) * BYTE;
        let depth = work / u128::from(rate.0);
        if !(1..=MAX_BURST).contains(&burst.0) || depth > MAX_DEPTH {
            return Err(EdgeError::Rule(format!(
                "{name}: a burst of {burst} at {rate} is out of range; use 1B to 1GB, and at most \
                 what the rate carries in 1,000 s"
            )));
        }
        Ok(Self {
            rate: rate.0,
            depth: depth as u64,
            depth_rest: (work % u128::from(rate.0)) as u64,
        })
    }

    fn of(name: &str, bucket: Option<Bucket>) -> Result<Self, EdgeError> {
        bucket.map_or(Ok(Self::default()), |bucket| Self::new(name, bucket))
    }
}

/// `struct prefix4`, in network order.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Prefix4 {
    address: [u8; 4],
    mask: [u8; 4],
}

/// `struct prefix6`, in network order.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Prefix6 {
    address: [u8; 16],
    mask: [u8; 16],
}

/// Numbers of entries in [`Prefixes`], and of addresses that a guest may choose.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    own4: u32,
    own6: u32,
    open6: u32,
    chosen: u32,
}

/// A guest's bits of the firewall mark.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Mark {
    value: u32,
    mask: u32,
}

/// A guest's prefixes.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Prefixes {
    own4: [Prefix4; Guard::MAX_PREFIXES],
    own6: [Prefix6; OWN6],
    open6: [Prefix6; OPEN6],
}

impl Prefixes {
    const NONE: Self = {
        let none4 = Prefix4 {
            address: [0; 4],
            mask: [0; 4],
        };
        let none6 = Prefix6 {
            address: [0; 16],
            mask: [0; 16],
        };
        Self {
            own4: [none4; Guard::MAX_PREFIXES],
            own6: [none6; OWN6],
            open6: [none6; OPEN6],
        }
    };
}

/// The number of a guest's rules, and the interface of its bridge, for ways past it; 0 for none.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Version {
    generation: u32,
    bridge: u32,
}

/// The place of the buckets of a guest's destinations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Split {
    /// No destination has one.
    Not,
    /// The splitter, before the bridge.
    Before,
    /// The qdisc of the uplink.
    InQueue,
}

/// `struct rules`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rules {
    mac: [u8; 6],
    /// DSCP and PCP.
    tag: [u8; 2],
    flags: u32,
    roles: u32,
    counts: Counts,
    mark: Mark,
    /// Its place among the sides.
    pub(super) slot: u32,
    /// The longest packet to an uplink, in bytes on the wire; 0 for any.
    longest: u32,
    horizon: u64,
    version: Version,
    shapes: [Shape; SHAPES],
    prefixes: Prefixes,
}

const _: () = assert!(size_of::<Rules>() == 64 + 4 * 24 + 16 * 8 + (17 + 4) * 32);

impl Rules {
    /// Checks and converts the rules. `mark_mask` is that of the uplinks.
    pub(super) fn new(rules: &GuestRules, mark_mask: u32) -> Result<Self, EdgeError> {
        let horizon = rules.horizon.unwrap_or(HORIZON);
        if horizon > MAX_HORIZON {
            return Err(EdgeError::Rule(format!(
                "a horizon of {horizon} is too long; use at most {MAX_HORIZON}"
            )));
        }
        let guarantee = rules.guarantee;
        let peak = guarantee.and_then(|it| {
            let rate = it.peak?;
            Some(Bucket {
                rate,
                burst: it.frame,
            })
        });
        let mut raw = Self {
            mac: [0; 6],
            tag: [0; 2],
            flags: 0,
            roles: 0,
            counts: Counts::default(),
            mark: Mark::default(),
            slot: 0,
            longest: longest(guarantee.and_then(|it| it.packet))?,
            horizon: horizon.0,
            version: Version::default(),
            shapes: [
                Shape::of("the limit outward", rules.outward)?,
                Shape::of("the guarantee", guarantee.map(|it| it.bucket))?,
                Shape::of("the peak rate", peak)?,
                Shape::of("the limit inward", rules.inward)?,
            ],
            prefixes: Prefixes::NONE,
        };
        if let Some(tag) = rules.tag {
            if tag.dscp > 63 || tag.pcp.is_some_and(|pcp| pcp > 7) {
                return Err(EdgeError::Rule(
                    "a DSCP is at most 63, and a PCP at most 7".to_owned(),
                ));
            }
            raw.flags |= TAGS | if tag.pcp.is_some() { HAS_PCP } else { 0 };
            raw.tag = [tag.dscp, tag.pcp.unwrap_or(0)];
        }
        if let Some(mark) = rules.mark {
            if mark == 0 || mark & !mark_mask != 0 {
                return Err(EdgeError::Rule(format!(
                    "the mark {mark:#x} is not within the uplink's bits {mark_mask:#x}, or 0"
                )));
            }
            raw.mark = Mark {
                value: mark,
                mask: mark_mask,
            };
        }
        if let Some(guard) = &rules.guard {
            raw.guard(guard)?;
        }
        if rules.is_direct && rules.guard.is_none() {
            return Err(EdgeError::Rule(
                "frames pass a bridge directly only from a guest whose addresses are checked"
                    .to_owned(),
            ));
        }
        Ok(raw)
    }

    /// Lets frames to other guests of the bridge with this index pass it directly.
    pub(super) const fn pass_bridge(&mut self, bridge: u32) {
        self.flags |= IS_DIRECT;
        self.version.bridge = bridge;
    }

    /// Notes where the buckets of destinations are.
    pub(super) const fn split(&mut self, split: Split) {
        let bits = match split {
            Split::Not => 0,
            Split::Before => IS_SPLIT,
            Split::InQueue => HAS_LINES,
        };
        self.flags = self.flags & !(IS_SPLIT | HAS_LINES) | bits;
    }

    /// Returns where the buckets of destinations are.
    pub(super) const fn split_place(&self) -> Split {
        if self.flags & IS_SPLIT != 0 {
            Split::Before
        } else if self.flags & HAS_LINES != 0 {
            Split::InQueue
        } else {
            Split::Not
        }
    }

    /// Takes the place of rules that are in force; `None` for the first ones in `slot`.
    pub(super) fn succeed(&mut self, before: Option<&Self>, slot: u32) {
        self.slot = slot;
        let generation = before.map_or(0, |before| before.version.generation);
        self.version.generation = generation.wrapping_add(1).max(1);
        self.split(before.map_or(Split::Not, Self::split_place));
    }

    /// The number of these rules among all of the guest.
    pub(super) const fn generation(&self) -> u32 {
        self.version.generation
    }

    /// The place of [`Self::plain`], another one for each generation.
    pub(super) const fn plain_place(&self) -> u32 {
        self.slot * 2 + self.version.generation % 2
    }

    /// The part of the rules that plain frames need.
    pub(super) fn plain(&self) -> Plain {
        const IPV4: [u8; 2] = [0x08, 0x00];
        let mut head = [0; 8];
        head[..6].copy_from_slice(&self.mac);
        head[6..].copy_from_slice(&IPV4);
        let first = self.prefixes.own4[0];
        let has_address = self.counts.own4 > 0;
        Plain {
            head: u64::from_ne_bytes(head),
            address: u32::from_ne_bytes(first.address),
            mask: u32::from_ne_bytes(first.mask),
            mark: self.mark.value,
            mark_mask: self.mark.mask,
            flags: if has_address { self.flags } else { 0 },
            dscp: u32::from(self.tag[0]),
        }
    }

    fn guard(&mut self, guard: &Guard) -> Result<(), EdgeError> {
        let too_many = |what: &str, most: usize| {
            EdgeError::Rule(format!(
                "a guest has at most {most} {what}; use shorter prefixes"
            ))
        };
        self.flags |= GUARDS;
        self.mac = guard.mac;
        self.roles = guard.roles.0;
        if guard.max_chosen > Guard::MAX_CHOSEN {
            return Err(EdgeError::Rule(format!(
                "a guest can choose at most {} addresses",
                Guard::MAX_CHOSEN
            )));
        }
        self.counts.chosen = guard.max_chosen;
        let (mut own4, mut own6) = (Vec::new(), vec![prefix6(link_local(guard.mac), 128)]);
        for Prefix { address, length } in &guard.own {
            check_length(*address, *length)?;
            match address {
                IpAddr::V4(address) => own4.push(prefix4(address.octets(), *length)),
                IpAddr::V6(address) => own6.push(prefix6(*address, *length)),
            }
        }
        if guard.own.is_empty() {
            own4.push(prefix4([0; 4], 0));
            own6.push(prefix6(Ipv6Addr::UNSPECIFIED, 0));
        }
        let mut open = vec![prefix6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 64)];
        for Prefix { address, length } in &guard.open {
            check_length(*address, *length)?;
            let IpAddr::V6(address) = address else {
                return Err(EdgeError::Rule(
                    "guests choose IPv6 addresses only; list an IPv4 prefix as the guest's own"
                        .to_owned(),
                ));
            };
            open.push(prefix6(*address, *length));
        }
        self.counts.own4 = fill(&mut self.prefixes.own4, &own4)
            .ok_or_else(|| too_many("IPv4 prefixes", Guard::MAX_PREFIXES))?;
        self.counts.own6 = fill(&mut self.prefixes.own6, &own6)
            .ok_or_else(|| too_many("IPv6 prefixes", Guard::MAX_PREFIXES))?;
        self.counts.open6 = fill(&mut self.prefixes.open6, &open)
            .ok_or_else(|| too_many("open prefixes", Guard::MAX_OPEN))?;
        Ok(())
    }

    /// The longest packet to an uplink, in bytes on the wire; 0 for any.
    pub(super) const fn longest(&self) -> u32 {
        self.longest
    }

    /// Returns true if frames to the guest wait.
    pub(super) const fn limits_inward(&self) -> bool {
        self.shapes[3].rate > 0
    }

    /// Returns true if the guest's frames to other guests wait, at their interfaces.
    pub(super) const fn limits_outward(&self) -> bool {
        self.shapes[0].rate > 0
    }

    /// The guest's mark; 0 for none.
    pub(super) const fn mark(&self) -> u32 {
        self.mark.value
    }

    /// The guest's MAC as a key of `stations`.
    pub(super) fn station(&self) -> Option<u64> {
        let mac = self
            .mac
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        (self.flags & GUARDS != 0).then_some(mac)
    }

    /// The guest's own IPv6 prefixes, with their lengths. One of all addresses claims none.
    pub(super) fn configured(&self) -> impl Iterator<Item = (u32, [u8; 16])> + '_ {
        let own = self.prefixes.own6[..self.counts.own6 as usize].iter();
        own.map(|it| (u128::from_be_bytes(it.mask).count_ones(), it.address))
            .filter(|(length, _)| *length > 0)
    }

    /// Returns true if the guest may choose `address`.
    pub(super) fn is_open(&self, address: [u8; 16]) -> bool {
        let open = &self.prefixes.open6[..self.counts.open6 as usize];
        open.iter().any(|prefix| prefix.contains(address))
    }
}

impl Prefix6 {
    fn contains(&self, address: [u8; 16]) -> bool {
        let masked = u128::from_be_bytes(address) & u128::from_be_bytes(self.mask);
        masked == u128::from_be_bytes(self.address)
    }
}

fn longest(packet: Option<Bytes>) -> Result<u32, EdgeError> {
    let Some(packet) = packet else { return Ok(0) };
    let longest = u32::try_from(packet.0).ok();
    let longest = longest.filter(|longest| *longest >= SHORTEST_FRAME);
    longest.ok_or_else(|| {
        EdgeError::Rule(format!(
            "a longest packet of {packet} is out of range; use {SHORTEST_FRAME}B to 1GB"
        ))
    })
}

fn check_length(address: IpAddr, length: u8) -> Result<(), EdgeError> {
    let bits = if address.is_ipv4() { 32 } else { 128 };
    if length > bits {
        return Err(EdgeError::Rule(format!(
            "{address}/{length}: a prefix has at most {bits} bits"
        )));
    }
    Ok(())
}

/// Copies entries to the front of a table; `None` if they do not fit.
fn fill<T: Copy>(table: &mut [T], entries: &[T]) -> Option<u32> {
    table.get_mut(..entries.len())?.copy_from_slice(entries);
    Some(entries.len() as u32)
}

fn prefix4(address: [u8; 4], length: u8) -> Prefix4 {
    let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
    let address = (u32::from_be_bytes(address) & mask).to_be_bytes();
    let mask = mask.to_be_bytes();
    Prefix4 { address, mask }
}

fn prefix6(address: Ipv6Addr, length: u8) -> Prefix6 {
    let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
    let address = (u128::from(address) & mask).to_be_bytes();
    let mask = mask.to_be_bytes();
    Prefix6 { address, mask }
}

/// The link-local address that follows from a MAC (RFC 4291, appendix A).
fn link_local(mac: [u8; 6]) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets[..2].copy_from_slice(&[0xfe, 0x80]);
    octets[8..11].copy_from_slice(&mac[..3]);
    octets[8] ^= 2;
    octets[11..13].copy_from_slice(&[0xff, 0xfe]);
    octets[13..].copy_from_slice(&mac[3..]);
    octets.into()
}

/// The number of slots.
pub(super) const SLOTS: u32 = 4096;

/// The places of a guest's sides in their array: outward, then inward.
pub(super) const fn sides(slot: u32) -> [u32; 2] {
    [slot * 2, slot * 2 + 1]
}

/// `struct bucket`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RawBucket {
    due: u64,
    rest: u64,
    shape: Shape,
}

/// `struct side`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Side {
    lock: u32,
    ifindex: u32,
    buckets: [RawBucket; 3],
    delayed: u64,
    charged: u64,
    horizon: u64,
    generation: u32,
    flags: u32,
    pcp: u32,
    longest: u32,
    slot: u32,
    unused: u32,
}

const _: () = assert!(size_of::<Side>() == 8 + 3 * 40 + 24 + 24);

/// `struct uplink`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RawUplink {
    pub(super) mark: u32,
    /// Its bridge; 0 for none.
    pub(super) bridge: u32,
}

/// `struct port`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Port {
    pub(super) place: u32,
    pub(super) ifindex: u32,
}

/// The number of entries of `ports`.
pub(super) const PORTS: u32 = 8192;

/// `struct plain`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Plain {
    head: u64,
    address: u32,
    mask: u32,
    mark: u32,
    mark_mask: u32,
    flags: u32,
    dscp: u32,
}

const _: () = assert!(size_of::<Plain>() == 32);

/// `struct way`: the way, and its end.
pub(super) type RawWay = [u64; 2];

/// The number of ways of a guest.
pub(super) const WAYS: u32 = 8;

/// `struct line_key`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LineKey {
    pub(super) slot: u32,
    unused: u16,
    pub(super) station: [u8; 6],
}

impl LineKey {
    pub(super) const fn new(slot: u32, station: [u8; 6]) -> Self {
        Self {
            slot,
            unused: 0,
            station,
        }
    }

    /// Returns the key as the programs have it.
    pub(super) fn bytes(&self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&self.slot.to_ne_bytes());
        bytes[6..].copy_from_slice(&self.station);
        bytes
    }
}

const _: () = assert!(size_of::<LineKey>() == 12);

/// `struct line`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line {
    shape: Shape,
    /// The shape without grants; of rate 0 for a line that needs none.
    alone: Shape,
    horizon: u64,
    pub(super) place: u32,
    unused: u32,
}

impl Line {
    /// The bucket of a destination, whose frames wait as long as others of its guest.
    pub(super) fn new(bucket: Bucket, of: &Rules, place: u32) -> Result<Self, EdgeError> {
        Ok(Self {
            shape: Shape::new("the rate to a destination", bucket)?,
            alone: Shape::default(),
            horizon: of.horizon,
            place,
            unused: 0,
        })
    }

    /// The bucket of a destination with a rate of an exchange.
    pub(super) fn granted(rate: &GrantedRate, place: u32) -> Result<Self, EdgeError> {
        let GrantedRate {
            bucket,
            alone,
            horizon,
        } = *rate;
        Ok(Self {
            shape: Shape::new("the granted rate", bucket)?,
            alone: Shape::new("the rate without a grant", alone)?,
            horizon: horizon.0,
            place,
            unused: 0,
        })
    }

    /// Returns true if an exchange of rates set it.
    pub(super) const fn is_granted(&self) -> bool {
        self.alone.rate != 0
    }
}

const _: () = assert!(size_of::<Line>() == 64);

/// `struct lease`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RawLease {
    pub(super) until: u64,
    pub(super) pledged: u64,
}

const _: () = assert!(size_of::<RawLease>() == 16);

/// `struct line_side`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LineSide {
    lock: u32,
    unused: u32,
    bucket: RawBucket,
    delayed: u64,
    charged: u64,
}

impl LineSide {
    /// The empty bucket of a line at a time of `CLOCK_MONOTONIC`.
    pub(super) fn empty(line: &Line, now: Nanos) -> Self {
        let Line { shape, .. } = *line;
        Self {
            bucket: RawBucket {
                due: now.0.saturating_add(shape.depth),
                rest: shape.depth_rest,
                shape,
            },
            ..Self::default()
        }
    }

    #[cfg(test)]
    pub(super) const fn charged(&self) -> u64 {
        self.charged
    }

    /// Returns the bucket at a time.
    pub(super) fn usage(&self, now: Nanos) -> RateUsage {
        let RawBucket { due, shape, .. } = self.bucket;
        let bytes = |time: u64| {
            let work = u128::from(time) * u128::from(shape.rate);
            Bytes(u64::try_from(work / BYTE).unwrap_or(u64::MAX))
        };
        RateUsage {
            charged: Bytes(self.charged),
            lacks: bytes(due.saturating_sub(now.0)),
            burst: bytes(shape.depth),
        }
    }
}

const _: () = assert!(size_of::<LineSide>() == 8 + 40 + 16);

/// The largest number of destinations with buckets, of all guests together.
pub(super) const LINES: u32 = 16_384;

/// `struct drops`.
pub(super) type Drops = [u64; DropReason::ALL.len()];

impl Counters {
    pub(super) const fn new(drops: Drops, outward: &Side, inward: &Side) -> Self {
        Self {
            drops,
            delayed_outward: outward.delayed,
            delayed_inward: inward.delayed,
            charged_outward: Bytes(outward.charged),
            charged_inward: Bytes(inward.charged),
        }
    }
}

/// `struct choice`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) ifindex: u32,
    pub(super) slot: u32,
    pub(super) used: u64,
}

/// `struct choices`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Choices {
    pub(super) address: [[u8; 16]; CHOSEN],
    pub(super) used: [u64; CHOSEN],
}

impl Choices {
    pub(super) const NONE: Self = Self {
        address: [[0; 16]; CHOSEN],
        used: [0; CHOSEN],
    };
}

/// `struct interface`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) is_uplink: u32,
    pub(super) way: u32,
    pub(super) adds_clsact: u32,
    pub(super) queue: u32,
}

/// `struct lateness`, of one CPU.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RawLateness {
    pub(super) buckets: [u64; Lateness::BUCKETS],
    pub(super) max: u64,
}

impl RawLateness {
    /// The sum over CPUs.
    pub(super) fn sum(cpus: &[Self]) -> Lateness {
        let mut sum = Lateness {
            buckets: [0; Lateness::BUCKETS],
            max: Nanos::ZERO,
        };
        for cpu in cpus {
            for (all, of) in sum.buckets.iter_mut().zip(cpu.buckets) {
                *all += of;
            }
            sum.max = sum.max.max(Nanos(cpu.max));
        }
        sum
    }
}

// SAFETY: whole numbers and arrays of them, without padding, as the assertions on sizes and the
// members of 4 and 8 bytes show; every pattern of bits is a value.
unsafe impl Pod for Rules {}
// SAFETY: as above.
unsafe impl Pod for Side {}
// SAFETY: as above.
unsafe impl Pod for Choice {}
// SAFETY: as above.
unsafe impl Pod for Choices {}
// SAFETY: as above.
unsafe impl Pod for Interface {}
// SAFETY: as above.
unsafe impl Pod for RawLateness {}
// SAFETY: as above.
unsafe impl Pod for RawUplink {}
// SAFETY: as above.
unsafe impl Pod for Port {}
// SAFETY: as above.
unsafe impl Pod for Plain {}
// SAFETY: as above.
unsafe impl Pod for LineKey {}
// SAFETY: as above.
unsafe impl Pod for Line {}
// SAFETY: as above.
unsafe impl Pod for LineSide {}
// SAFETY: as above.
unsafe impl Pod for RawLease {}

#[cfg(test)]
mod tests {
    use super::*;
    use tailbound_units::exact::{BYTE_IN_NANOS, TokenBucket};
    use tailbound_units::{Rate, WireBytes};

    #[test]
    fn a_shape_is_the_depth_of_the_exact_bucket() {
        for (rate, burst) in [(1_000_000_000, 15_000), (7_123_456_789, 1_538), (3, 1)] {
            let bucket = Bucket {
                rate: Rate(rate * 1_000),
                burst: Bytes(burst),
            };
            let Ok(shape) = Shape::new("it", bucket) else {
                continue;
            };
            let exact = TokenBucket::<Nanos>::new(BYTE_IN_NANOS, bucket.rate, WireBytes(burst));
            let exact = exact.expect("in range");
            assert_eq!(
                exact.fill_time(),
                shape.depth + u64::from(shape.depth_rest > 0)
            );
        }
    }

    #[test]
    fn rules_out_of_range_are_refused() {
        let refused = |rules: &GuestRules| Rules::new(rules, 0xff00).is_err();
        let bucket = |rate, burst| {
            Some(Bucket {
                rate: Rate(rate),
                burst: Bytes(burst),
            })
        };
        for wrong in [
            bucket(0, 1500),
            bucket(999, 1500),
            bucket(1 << 39, 1500),
            bucket(1000, 0),
            bucket(1000, 1 << 20),
        ] {
            let outward = GuestRules {
                outward: wrong,
                ..GuestRules::default()
            };
            assert!(refused(&outward), "{wrong:?}");
        }
        for mark in [0, 1, 0x1_0000] {
            let rules = GuestRules {
                mark: Some(mark),
                ..GuestRules::default()
            };
            assert!(refused(&rules), "{mark}");
        }
        let many = (0..17).map(|last| Prefix::from(IpAddr::from([10, 0, 0, last])));
        let rules = GuestRules {
            guard: Some(Guard::new([2; 6], many)),
            ..GuestRules::default()
        };
        assert!(refused(&rules));
        assert!(!refused(&GuestRules::default()));
    }

    #[test]
    fn prefixes_lose_their_later_bits() {
        assert_eq!(
            prefix4([10, 1, 2, 3], 9),
            Prefix4 {
                address: [10, 0, 0, 0],
                mask: [255, 128, 0, 0]
            }
        );
        assert_eq!(prefix4([10, 1, 2, 3], 0), Prefix4::default());
        let whole = prefix6("fd00::1".parse().expect("an address"), 128);
        assert_eq!(whole.mask, [255; 16]);
        assert!(whole.contains(whole.address));
        assert_eq!(
            link_local([2, 0, 0, 0, 0, 1]).to_string(),
            "fe80::ff:fe00:1"
        );
    }
}
