//! Rate limits of a machine.

use serde::{Deserialize, Serialize};
use std::fmt;
use tailbound_placement::Guarantee;
use tailbound_units::Rate;

/// Rate limits of each machine of a tenant, in Ethernet frames without FCS. A direction that is
/// left out is unlimited.
///
/// A host applies them like the limits of its own file. For a direction that is set here, this
/// limit replaces the file's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct VmLimit {
    /// The limit of all frames that the machine sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out: Option<OutLimit>,
    /// The limit of frames to the machine.
    #[serde(default, rename = "in", skip_serializing_if = "Option::is_none")]
    pub inward: Option<InLimit>,
}

/// The rate limit of frames that a machine sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct OutLimit {
    /// The kind of limiter.
    #[serde(default)]
    pub kind: LimitKind,
    /// The rate, at least one full frame a second: 12112bit/s.
    pub rate: Rate,
}

/// The rate limit of frames to a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct InLimit {
    /// The rate, at least one full frame a second: 12112bit/s.
    pub rate: Rate,
}

/// The kind of limiter for frames that a machine sends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum LimitKind {
    /// A token bucket.
    #[default]
    Bucket,
    /// Delays of a smooth window, with a token bucket below; for machines without a guarantee.
    SmoothWindow,
}

impl LimitKind {
    /// Returns the value in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Bucket => "bucket",
            Self::SmoothWindow => "smooth-window",
        }
    }
}

/// An invalid limit, or a limit that contradicts the guarantee.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// The rate is below one full frame a second.
    #[error(
        "the limit {direction} of {rate} is below one full frame a second; use at least {MIN_RATE}, \
         or leave it out"
    )]
    Low {
        /// `out` or `in`.
        direction: &'static str,
        /// The limit.
        rate: Rate,
    },
    /// The limit is below the guarantee.
    #[error(
        "the limit {direction} of {rate} is below the guaranteed {bandwidth}; use at least that"
    )]
    BelowGuarantee {
        /// `out` or `in`.
        direction: &'static str,
        /// The limit.
        rate: Rate,
        /// The guarantee.
        bandwidth: Rate,
    },
    /// A smooth window and a guarantee exclude each other.
    #[error(
        "a smooth window delays guaranteed bursts; use the kind bucket, or no \
         guarantee"
    )]
    Window,
}

/// The rate of one full Ethernet frame a second.
const MIN_RATE: Rate = Rate(8 * 1514);

impl VmLimit {
    /// Returns true if no direction is limited.
    pub const fn is_none(&self) -> bool {
        self.out.is_none() && self.inward.is_none()
    }

    /// Checks that the limit is valid beside this guarantee.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn check(&self, guarantee: Option<&Guarantee>) -> Result<(), LimitError> {
        let out = self.out.map(|limit| ("out", limit.rate));
        let inward = self.inward.map(|limit| ("in", limit.rate));
        for (direction, rate) in out.into_iter().chain(inward) {
            if rate < MIN_RATE {
                return Err(LimitError::Low { direction, rate });
            }
            let above = guarantee.map(|guarantee| guarantee.bandwidth);
            if let Some(bandwidth) = above.filter(|bandwidth| rate < *bandwidth) {
                return Err(LimitError::BelowGuarantee {
                    direction,
                    rate,
                    bandwidth,
                });
            }
        }
        let is_smooth = self.out.is_some_and(|out| out.kind != LimitKind::Bucket);
        if is_smooth && guarantee.is_some() {
            return Err(LimitError::Window);
        }
        Ok(())
    }
}

/// The limits as text: `out 4Mbit/s (smooth-window), in 20Mbit/s`; empty without limits.
impl fmt::Display for VmLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(out) = self.out {
            write!(f, "out {} ({})", out.rate, out.kind.word())?;
        }
        if let Some(inward) = self.inward {
            let comma = if self.out.is_some() { ", " } else { "" };
            write!(f, "{comma}in {}", inward.rate)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailbound_units::Bytes;

    const NONE: VmLimit = VmLimit {
        out: None,
        inward: None,
    };

    fn out(kind: LimitKind, mbit: u64) -> VmLimit {
        let rate = Rate::from_mbit(mbit);
        VmLimit {
            out: Some(OutLimit { kind, rate }),
            ..NONE
        }
    }

    fn both(out_mbit: u64, in_mbit: u64) -> VmLimit {
        VmLimit {
            inward: Some(InLimit {
                rate: Rate::from_mbit(in_mbit),
            }),
            ..out(LimitKind::Bucket, out_mbit)
        }
    }

    #[test]
    fn a_limit_is_described_in_text() {
        assert!(NONE.is_none() && NONE.to_string().is_empty());
        let smooth = out(LimitKind::SmoothWindow, 4);
        assert_eq!(smooth.to_string(), "out 4Mbit/s (smooth-window)");
        let limit = both(4, 20);
        assert_eq!(limit.to_string(), "out 4Mbit/s (bucket), in 20Mbit/s");
        let inward = VmLimit { out: None, ..limit };
        assert!(!inward.is_none());
        assert_eq!(inward.to_string(), "in 20Mbit/s");
    }

    #[test]
    fn impossible_limits_are_refused_with_a_remedy() {
        let nothing = VmLimit {
            inward: Some(InLimit { rate: Rate(0) }),
            ..NONE
        };
        for (limit, guaranteed, expected) in [
            (out(LimitKind::SmoothWindow, 40), None, None),
            (both(40, 8), Some(8), None),
            (NONE, Some(8), None),
            (
                out(LimitKind::SmoothWindow, 40),
                Some(8),
                Some("use the kind bucket"),
            ),
            (
                both(40, 8),
                Some(9),
                Some("the limit in of 8Mbit/s is below the guaranteed 9Mbit/s"),
            ),
            (
                both(40, 80),
                Some(50),
                Some("the limit out of 40Mbit/s is below"),
            ),
            (
                nothing,
                None,
                Some("the limit in of 0bit/s is below one full frame a second"),
            ),
        ] {
            let guarantee = guaranteed.map(|mbit| Guarantee {
                bandwidth: Rate::from_mbit(mbit),
                burst: Bytes::ZERO,
                delay: None,
                burst_rate: None,
                bursts: None,
                burst_in: None,
                class: None,
            });
            let refusal = limit.check(guarantee.as_ref()).err();
            match (refusal.map(|refusal| refusal.to_string()), expected) {
                (None, None) => {}
                (Some(refusal), Some(part)) => assert!(refusal.contains(part), "{refusal}"),
                (refusal, _) => panic!("{limit:?}: {refusal:?}"),
            }
        }
    }
}
