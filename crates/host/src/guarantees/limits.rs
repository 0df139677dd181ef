//! Rate limits of each guest, and their sources.
//!
//! If the placement service limits a guest's VM, the service's limit applies to the directions that
//! it names. For other directions, and for terms that the service does not define (depths, memory,
//! gains), the configuration's apply.

use super::{Guarantees, Guest, from_service};
use crate::config::{Config, GuestConfig, LimitConfig, LimitError};
use std::collections::HashMap;
use tailbound_api::{InLimit, LimitKind, OutLimit, VmGuarantee};
use tailbound_dataplane::shaper::{BucketConfig, WindowConfig};
use tailbound_dataplane::{Guarantee, PacerConfig, PipelineConfig, RateLimit, ShaperConfig};
use tailbound_units::Bytes;

/// The configured pipelines to a guest, without and with a limit in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pipelines {
    /// The pipeline without a limit in.
    open: PipelineConfig,
    /// The pipeline with a limit in.
    limited: PipelineConfig,
}

/// The limits of a guest in the switch, beside its guarantee.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The limit of the traffic that the guest sends.
    pub(crate) out: Option<ShaperConfig>,
    /// The pipeline to the guest, with the limit of its traffic.
    pub(crate) pipeline: PipelineConfig,
}

impl Pipelines {
    pub(super) fn of(config: &Config, guest: &GuestConfig) -> Self {
        Self {
            open: config.way_to(guest, false),
            limited: config.way_to(guest, true),
        }
    }
}

/// The limit of a guest, and its author in each direction.
#[derive(Debug, Clone)]
pub(crate) struct AuthoredLimit {
    pub(crate) limit: LimitConfig,
    /// True if the placement service set the limit out.
    pub(crate) is_out_by_service: bool,
    /// True if the placement service set the limit in.
    pub(crate) is_in_by_service: bool,
}

impl Guarantees {
    /// Returns the limits of the guest at `place` among the ports'.
    pub(crate) fn limits_at(&self, place: usize) -> Option<Limits> {
        let guest = self.guests.get(place)?;
        let limit = self.limit_of(guest);
        let pipeline = match limit.inward {
            Some(_) => &guest.pipelines.limited,
            None => &guest.pipelines.open,
        };
        Some(Limits {
            out: limit.out,
            pipeline: PipelineConfig {
                limit: limit.inward,
                ..pipeline.clone()
            },
        })
    }

    /// Returns the limits of all guests, in the order of their ports.
    pub(crate) fn limits(&self) -> impl Iterator<Item = Limits> {
        (0..self.guests.len()).filter_map(|place| self.limits_at(place))
    }

    /// Returns the limit of each limited guest, by its name.
    pub(crate) fn limits_by_name(&self) -> HashMap<&str, AuthoredLimit> {
        let limited = self.guests.iter().filter_map(|guest| {
            let limit = self.limit_of(guest);
            if limit == LimitConfig::default() {
                return None;
            }
            let known = self.known(guest).map(|known| &known.limit);
            let limit = AuthoredLimit {
                limit,
                is_out_by_service: known.is_some_and(|known| known.out.is_some()),
                is_in_by_service: known.is_some_and(|known| known.inward.is_some()),
            };
            Some((guest.name.as_str(), limit))
        });
        limited.collect()
    }

    /// Checks that the placement service's guarantee fits into the guest's limits.
    pub(super) fn allows(&self, guest: &Guest, guarantee: &Guarantee) -> Result<(), LimitError> {
        self.limit_of(guest).allows(guarantee)
    }

    fn limit_of(&self, guest: &Guest) -> LimitConfig {
        let file = guest.limit.as_ref();
        match self.known(guest) {
            Some(known) if !known.limit.is_none() => service_limit(self.wire.as_ref(), known, file),
            _ => file.cloned().unwrap_or_default(),
        }
    }
}

/// Returns the limit of a VM that the placement service knows.
fn service_limit(
    wire: Option<&PacerConfig>,
    known: &VmGuarantee,
    file: Option<&LimitConfig>,
) -> LimitConfig {
    let burst = wire.and_then(|wire| Some(from_service(wire, known, None)?.burst));
    let file_out = file.and_then(|file| file.out.as_ref());
    let file_in = file.and_then(|file| file.inward);
    LimitConfig {
        out: match known.limit.out {
            Some(limit) => Some(out(limit, file_out, burst)),
            None => file_out.cloned(),
        },
        inward: match known.limit.inward {
            Some(limit) => Some(inward(limit, file_in)),
            None => file_in,
        },
    }
}

/// Returns the service's limit out, with the configuration's other terms if its limit is of the
/// same kind and the terms fit the rate. A bucket holds a guaranteed burst.
fn out(limit: OutLimit, file: Option<&ShaperConfig>, burst: Option<Bytes>) -> ShaperConfig {
    let OutLimit { kind, rate } = limit;
    let of_file = match (kind, file) {
        (LimitKind::Bucket, Some(ShaperConfig::Bucket(file))) => {
            Some(ShaperConfig::Bucket(BucketConfig {
                rate,
                ..file.clone()
            }))
        }
        (LimitKind::SmoothWindow, Some(ShaperConfig::SmoothWindow(file))) => {
            Some(ShaperConfig::SmoothWindow(WindowConfig {
                rate,
                ..file.clone()
            }))
        }
        _ => None,
    };
    let fits = of_file.filter(|config| config.check().is_ok());
    let mut config = fits.unwrap_or_else(|| match kind {
        LimitKind::Bucket => ShaperConfig::Bucket(BucketConfig::new(rate)),
        LimitKind::SmoothWindow => ShaperConfig::SmoothWindow(WindowConfig::new(rate)),
    });
    if let (ShaperConfig::Bucket(bucket), Some(burst)) = (&mut config, burst) {
        let depth = bucket.limit().depth();
        if depth < burst {
            bucket.depth = Some(burst);
        }
    }
    config
}

fn inward(limit: InLimit, file: Option<RateLimit>) -> RateLimit {
    let of_file = RateLimit {
        rate: limit.rate,
        depth: file.and_then(|file| file.depth),
    };
    if of_file.check().is_ok() {
        of_file
    } else {
        RateLimit::new(limit.rate)
    }
}

#[cfg(test)]
mod tests;
