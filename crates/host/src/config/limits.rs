//! Rate limits of guests, in both directions, and their checks.

use super::draft::Draft;
use super::{Config, GuestConfig};
use serde::Deserialize;
use std::fmt::Write as _;
use tailbound_dataplane::{Guarantee, RateLimit, ShaperConfig, ShaperError};
use tailbound_document::{Problem, Step};
use tailbound_units::{Bytes, Rate};

/// Rate limits of a guest, in Ethernet frames without FCS.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitConfig {
    /// Limit of traffic from the guest; none.
    #[serde(default)]
    pub out: Option<ShaperConfig>,
    /// Limit of traffic to the guest; none.
    #[serde(default, rename = "in")]
    pub inward: Option<RateLimit>,
}

/// A limit that contradicts a guarantee.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// A window's delays and a guarantee's delays are two different promises.
    #[error("the limit out is no bucket, and only a bucket lets pass what is guaranteed")]
    Kind,
    /// The limit would delay guaranteed traffic.
    #[error("the limit {direction} of {limit} is below the guaranteed {bandwidth}")]
    Rate {
        /// `out` or `in`.
        direction: &'static str,
        /// The limit.
        limit: Rate,
        /// The guaranteed bandwidth.
        bandwidth: Rate,
    },
    /// The bucket would delay a guaranteed burst.
    #[error("the limit's depth of {depth} is below the guaranteed burst of {burst}")]
    Depth {
        /// The bucket's depth.
        depth: Bytes,
        /// The guaranteed burst.
        burst: Bytes,
    },
}

impl LimitError {
    /// Returns the direction and key of the mistake, and a valid setting.
    fn advice(&self) -> (&'static str, Option<&'static str>, String) {
        match self {
            Self::Kind => ("out", Some("kind"), "use kind \"bucket\"".to_owned()),
            Self::Rate {
                direction,
                bandwidth,
                ..
            } => (direction, Some("rate"), format!("use at least {bandwidth}")),
            Self::Depth { burst, .. } => ("out", None, format!("say `depth = \"{burst}\"`")),
        }
    }
}

impl LimitConfig {
    /// Checks that the guarantee fits into the limit.
    ///
    /// # Errors
    /// The violated rule.
    pub fn allows(&self, guarantee: &Guarantee) -> Result<(), LimitError> {
        let Guarantee {
            bandwidth, burst, ..
        } = *guarantee;
        let inward = self.inward.as_ref().map(|limit| ("in", limit.rate));
        let out = self.out.as_ref().map(|limit| ("out", limit.rate()));
        for (direction, limit) in out.into_iter().chain(inward) {
            if limit < bandwidth {
                return Err(LimitError::Rate {
                    direction,
                    limit,
                    bandwidth,
                });
            }
        }
        match &self.out {
            Some(ShaperConfig::Bucket(bucket)) => {
                let depth = bucket.limit().depth();
                if depth < burst {
                    return Err(LimitError::Depth { depth, burst });
                }
                Ok(())
            }
            Some(_) => Err(LimitError::Kind),
            None => Ok(()),
        }
    }
}

/// Returns all mistakes about limits in `draft`.
pub(super) fn check(draft: &Draft) -> Vec<Problem> {
    let guests = draft.guests.iter();
    let wrong = guests.filter_map(|(index, guest)| {
        let limit = guest.limit.as_ref()?;
        check_one(*index, guest, limit)
    });
    wrong.collect()
}

fn check_one(index: usize, guest: &GuestConfig, limit: &LimitConfig) -> Option<Problem> {
    let at = |direction: Option<&'static str>, key: Option<&'static str>, message| {
        let place = [Step::Key("guest"), Step::Index(index), Step::Key("limit")];
        let keys = direction.into_iter().chain(key).map(Step::Key);
        let path: Vec<_> = place.into_iter().chain(keys).collect();
        Some(Problem { path, message })
    };
    if limit.out.is_none() && limit.inward.is_none() {
        let message = "it limits nothing; set `out = { kind = \"bucket\", rate = ... }`, `in = { \
            rate = ... }` or both";
        return at(None, None, message.to_owned());
    }
    let out = limit.out.as_ref().and_then(|out| out.check().err());
    let inward = limit.inward.as_ref().and_then(|limit| limit.check().err());
    let rules = [("out", out), ("in", inward)];
    let rule = rules
        .into_iter()
        .find_map(|(direction, rule)| Some((direction, rule?)));
    if let Some((direction, rule)) = rule {
        let (key, advice) = advice(&rule);
        return at(Some(direction), key, format!("{rule}; {advice}"));
    }
    let guarantee = guest.guarantee.as_ref()?;
    let rule = limit.allows(guarantee).err()?;
    let (direction, key, advice) = rule.advice();
    at(Some(direction), key, format!("{rule}; {advice}"))
}

/// Returns the key that a rule is about, if the file may have that key, and a valid setting.
fn advice(rule: &ShaperError) -> (Option<&'static str>, String) {
    match rule {
        ShaperError::NoRate => (
            Some("rate"),
            "set a rate above 0, or remove the limit".to_owned(),
        ),
        ShaperError::Depth { .. } => (Some("depth"), "use at least this depth".to_owned()),
        ShaperError::DepthTooLong { .. } => (None, "use a higher rate, or less depth".to_owned()),
        ShaperError::Bounds { dmin, width, .. } => {
            let dmax = dmin.saturating_add(*width);
            (None, format!("use a dmax of at least {dmax}"))
        }
        ShaperError::NoWidth => (Some("width"), "use 3ms".to_owned()),
        ShaperError::Interval { packet, .. } => (None, format!("use at least {packet}, or 1s")),
        ShaperError::NoInterval => (Some("interval"), "use 50ms".to_owned()),
        ShaperError::Percent { .. } => (None, "use at most 100".to_owned()),
        ShaperError::Memory { .. } => (Some("memory"), "use at least this size".to_owned()),
    }
}

impl Config {
    /// Explains, in lines for operators, how each guest's limit relates to the other mechanisms
    /// that delay its frames. Empty if no guest has a limit.
    pub fn explain_limits(&self) -> String {
        let mut text = String::new();
        let is_paced = self
            .uplink
            .as_ref()
            .is_some_and(|uplink| uplink.pacer.is_some());
        for guest in &self.guests {
            let Some(limit) = &guest.limit else { continue };
            // Writing to a string cannot fail.
            let _ = write!(text, "limit of {}:", guest.name);
            if let Some(out) = &limit.out {
                let _ = write!(text, " out {} ({}),", out.rate(), kind(out));
                let after = match (guest.guarantee, is_paced) {
                    (Some(guarantee), _) => {
                        let bandwidth = guarantee.bandwidth;
                        format!(" of which its guarantee of {bandwidth} never waits")
                    }
                    (None, true) => " before best effort under the pacer".to_owned(),
                    (None, false) => " before the queue of the uplink".to_owned(),
                };
                text.push_str(&after);
            }
            if let Some(inward) = &limit.inward {
                let comma = if limit.out.is_some() { ";" } else { "" };
                let _ = write!(text, "{comma} in {} (bucket), before its port", inward.rate);
            }
            text.push('\n');
        }
        text
    }
}

const fn kind(limit: &ShaperConfig) -> &'static str {
    match limit {
        ShaperConfig::Bucket(_) => "bucket",
        ShaperConfig::SmoothWindow(_) => "smooth window",
        ShaperConfig::Credit(_) => "credit",
    }
}

#[cfg(test)]
mod tests;
