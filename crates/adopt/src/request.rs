//! The request of an adoption.

use super::mac::Mac;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use tailbound_units::{Bytes, Nanos, Rate};

/// The shortest burst: about ten full frames on the wire.
const MIN_BURST: Bytes = Bytes(15_000);
/// The burst by default is what the rate sends in 1 / this of a second.
const BURST_PART: u64 = 1_000;

/// The longest packet of a guest with a guarantee by default: 64 KiB in segments of 536 bytes (the default
/// of RFC 9293, 3.7.1), counted on the wire.
pub const LONGEST_PACKET: Bytes = Bytes(80_000);
/// The shortest limit on packets: a full frame on the wire.
const FULL_FRAME: Bytes = Bytes(1_538);

/// Reads the longest packet of a guest.
///
/// # Errors
/// No size, or one that is below a full frame or above 1 GB.
pub fn longest_packet(text: &str) -> Result<Bytes, String> {
    let packet: Bytes = text.parse().map_err(|error| format!("{error}"))?;
    if packet < FULL_FRAME || packet > Bytes(1_000_000_000) {
        return Err(format!(
            "{packet} is not between one frame, {FULL_FRAME}, and 1GB"
        ));
    }
    Ok(packet)
}

/// A rate and a burst, counted on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// The rate.
    pub rate: Rate,
    /// The burst.
    pub burst: Bytes,
}

impl Bucket {
    /// Returns the bucket of this rate with the burst by default: 1 ms of the rate, at least
    /// 15 KB.
    pub fn of(rate: Rate) -> Self {
        let burst = Bytes(rate.0 / 8 / BURST_PART);
        Self {
            rate,
            burst: burst.max(MIN_BURST),
        }
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with a burst of {}", self.rate, self.burst)
    }
}

impl FromStr for Bucket {
    type Err = String;

    /// Reads `100Mbit/s` or `100Mbit/s,30KB`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (rate, burst) = match text.split_once(',') {
            Some((rate, burst)) => (rate, Some(burst)),
            None => (text, None),
        };
        let rate: Rate = rate.trim().parse().map_err(|error| format!("{error}"))?;
        if rate.0 < 8_000 {
            return Err("a rate below 8 kbit/s; write for example 100Mbit/s".to_owned());
        }
        let mut bucket = Self::of(rate);
        if let Some(burst) = burst {
            bucket.burst = burst.trim().parse().map_err(|error| format!("{error}"))?;
            // A full frame has to fit.
            if bucket.burst.0 < 1_538 {
                return Err("a burst below one frame; write for example 15KB".to_owned());
            }
        }
        Ok(bucket)
    }
}

/// The deviations from a guarantee {B, S} by which departures may exceed it: S' = S + packet + B·J.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowance {
    /// The longest packet to the uplink that the guest may send, in bytes on the wire: [`LONGEST_PACKET`]
    /// without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet: Option<Bytes>,
    /// The longest lateness J: a later host refuses the guarantee. Any without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness: Option<Nanos>,
}

/// The devices that are named, instead of those that are found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Devices {
    /// The name of the uplink; found by the plan if absent.
    pub uplink: Option<String>,
    /// The name of the guest's only device to adopt; all without.
    pub interface: Option<String>,
    /// The queueing discipline of the uplink; without, the one that it got for another guest, or `fq`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qdisc: Option<UplinkQueue>,
}

/// The queueing discipline of an uplink.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UplinkQueue {
    /// The kernel's `fq`, by departure times.
    #[default]
    Fq,
    /// Tailbound's own, of BPF programs: buckets are charged when frames depart.
    Bpf,
}

impl UplinkQueue {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fq => "fq",
            Self::Bpf => "a BPF qdisc",
        }
    }

    /// Returns true for the default, which is not written.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
    pub(crate) const fn is_default(&self) -> bool {
        matches!(self, Self::Fq)
    }
}

/// The protection that is asked for, the same for each selected guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// True if the guard of sources is wanted.
    pub guard: bool,
    /// The DSCP of the guest's packets.
    pub dscp: Option<u8>,
    /// The limit on frames of the guest.
    pub outward: Option<Bucket>,
    /// The limit on frames to the guest.
    pub inward: Option<Bucket>,
    /// The guarantee.
    pub guarantee: Option<Bucket>,
    /// The rate within a burst of the guarantee (Bmax); that of the uplink without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak: Option<Rate>,
    /// The deviations from the guarantee that were counted with.
    #[serde(flatten)]
    pub allowance: Allowance,
    /// The machine of the placement service that the guest is: `OWNER/NAME/NUMBER`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<String>,
    /// True if frames may pass the guest's bridge directly.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub direct: bool,
    /// Named devices.
    #[serde(flatten)]
    pub devices: Devices,
    /// The guest's MAC address, instead of the one that is found.
    pub mac: Option<Mac>,
    /// The guest's IP addresses, instead of those that are found.
    pub ips: Vec<IpAddr>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            guard: true,
            dscp: None,
            outward: None,
            inward: None,
            guarantee: None,
            peak: None,
            allowance: Allowance::default(),
            vm: None,
            direct: false,
            devices: Devices::default(),
            mac: None,
            ips: Vec::new(),
        }
    }
}

impl Request {
    /// Returns true if frames need departure times, and with them `fq`.
    pub fn needs_fq(&self) -> bool {
        self.outward.is_some() || self.inward.is_some() || self.guarantee.is_some()
    }

    /// Returns true if it fits one guest only.
    pub fn is_for_one(&self) -> bool {
        let is_named = self.mac.is_some() || self.devices.interface.is_some() || self.vm.is_some();
        is_named || !self.ips.is_empty()
    }
}

/// The guests that are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All guests with a device on the host.
    All,
    /// Guests by name, key or device, with `*` for any text.
    Patterns(Vec<String>),
}

/// Returns true if `*` in a pattern can stand for texts that make it `text`.
pub fn fits(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(text) = text.strip_prefix(start) else {
        return false;
    };
    let ends = text.char_indices().map(|(at, _)| at);
    let mut ends = ends.chain([text.len()]);
    ends.any(|at| fits(rest, &text[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_has_a_burst_that_holds_a_frame() {
        let bucket: Bucket = "100Mbit/s".parse().unwrap();
        assert_eq!((bucket.rate.0, bucket.burst.0), (100_000_000, 15_000));
        let bucket: Bucket = "1Gbit/s, 30KB".parse().unwrap();
        assert_eq!((bucket.rate.0, bucket.burst.0), (1_000_000_000, 30_000));
        let fast: Bucket = "1Gbit/s".parse().unwrap();
        assert_eq!(fast.burst, Bytes(125_000));
        for wrong in ["", "fast", "0bit/s", "1Mbit/s,", "1Mbit/s,100B", ",1KB"] {
            assert!(wrong.parse::<Bucket>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_longest_packet_holds_a_frame() {
        assert_eq!(longest_packet("80KB"), Ok(LONGEST_PACKET));
        assert_eq!(longest_packet("1538B"), Ok(FULL_FRAME));
        for wrong in ["", "1537B", "2GB", "many"] {
            assert!(longest_packet(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, is_fit) in [
            ("web", "web", true),
            ("web", "web-1", false),
            ("web-*", "web-1", true),
            ("*", "", true),
            ("*-1*", "web-1", true),
            ("w*b-*2", "web-1", false),
            ("é*", "éa漢", true),
        ] {
            assert_eq!(fits(pattern, text), is_fit, "{pattern} {text}");
        }
    }
}
