//! Estimate of the round trip, and retransmission timeout (RFC 6298).

use super::{Congestion, TcpConfig};
use tailbound_units::Nanos;

/// The longest timeout (RFC 6298, 2.5, and `TCP_RTO_MAX`).
const LONGEST_TIMEOUT: Nanos = Nanos::from_secs(120);

#[derive(Debug, Clone)]
pub(super) struct RoundTrip {
    smoothed: Option<Nanos>,
    variation: Nanos,
    least: Nanos,
    /// Number of times that the timeout was doubled.
    pub(super) backoff: u32,
}

impl RoundTrip {
    pub(super) const fn new() -> Self {
        Self {
            smoothed: None,
            variation: Nanos::ZERO,
            least: Nanos::MAX,
            backoff: 0,
        }
    }

    /// Adds a measured round trip.
    pub(super) fn measure(&mut self, took: Nanos) {
        self.least = self.least.min(took);
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(took);
            self.variation = Nanos(took.0 / 2);
            return;
        };
        let off = Nanos(smoothed.0.abs_diff(took.0));
        self.variation = Nanos((3 * self.variation.0 + off.0) / 4);
        self.smoothed = Some(Nanos((7 * smoothed.0 + took.0) / 8));
    }

    pub(super) const fn smoothed(&self) -> Option<Nanos> {
        self.smoothed
    }

    /// Shortest round trip; [`Nanos::MAX`] before the first.
    pub(super) const fn least(&self) -> Nanos {
        self.least
    }

    pub(super) fn timeout(&self, config: &TcpConfig) -> Nanos {
        if config.congestion == Congestion::PFabric {
            return config.least_timeout;
        }
        let base = self.smoothed.map_or(config.first_timeout, |smoothed| {
            // As in Linux, the least timeout is a lower limit of the variation's part.
            smoothed.saturating_add(Nanos(4 * self.variation.0).max(config.least_timeout))
        });
        Nanos(base.0.saturating_mul(1 << self.backoff.min(16))).min(LONGEST_TIMEOUT)
    }
}
