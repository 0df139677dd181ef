//! A pair at its sender's host.

use super::confirmation::Confirmation;
use super::flow::Flow;
use super::loan::Loan;
use crate::ids::{Destination, PairKey, SequenceNumber};
use crate::machines::LocalIndex;
use tailbound_units::{Nanos, Rate};

/// State of a pair, with its grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Without demand and grant.
    Idle,
    /// Demand without a grant.
    Requesting,
    /// A granted rate.
    Granted {
        /// Rate during the lease.
        rate: Rate,
        /// End of the lease.
        lease: Nanos,
    },
    /// The lease ended because the receiver's host was silent; the static share applies.
    FellBack {
        /// The last grant, above the share.
        granted: Rate,
    },
}

impl State {
    /// Returns whether the pair is active.
    pub(super) const fn is_open(self) -> bool {
        !matches!(self, Self::Idle)
    }

    /// Returns the last grant.
    pub(super) const fn granted(self) -> Rate {
        match self {
            Self::Idle | Self::Requesting => Rate::ZERO,
            Self::Granted { rate, .. } => rate,
            Self::FellBack { granted } => granted,
        }
    }

    /// Returns the usable part of the grant. `share` is the static share.
    pub(super) fn allowed(self, now: Nanos, share: Rate) -> Rate {
        match self {
            Self::Granted { rate, lease } if now <= lease => rate,
            _ => self.granted().min(share),
        }
    }

    /// Returns whether the lease of a grant has ended.
    pub(super) fn is_over(self, now: Nanos) -> bool {
        matches!(self, Self::Granted { lease, .. } if now > lease)
    }

    /// Returns whether the lease has ended and lowers the rate.
    pub(super) fn falls_back(self, now: Nanos, share: Rate) -> bool {
        matches!(self, Self::Granted { rate, lease } if now > lease && rate > share)
    }
}

/// State of a pair that sends from this host.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) key: PairKey,
    /// Its sender.
    pub(super) local: LocalIndex,
    /// Flows by destination: its station, and its addresses through routers.
    pub(super) flows: Vec<Flow>,
    /// Static share, usable without a grant if nothing is pledged.
    pub(super) share: Rate,
    pub(super) state: State,
    /// The latest grant that it keeps to.
    pub(super) confirmation: Confirmation,
    /// The time from which its returned grants are void: frames may leave by them before.
    pub(super) returns_at: Nanos,
    /// Demand; zero while the pair is idle.
    pub(super) demand: Rate,
    /// Requested rate; zero while the pair is idle.
    pub(super) request: Rate,
    /// Rate of all its flows together.
    pub(super) rate: Rate,
    /// The burst that the receiver's host lends it.
    pub(super) loan: Loan,
}

impl Pair {
    /// An idle pair that keeps to no grant up to datagram `latest_grant`.
    pub(super) fn new(
        key: PairKey,
        local: LocalIndex,
        share: Rate,
        latest_grant: SequenceNumber,
    ) -> Self {
        Self {
            key,
            local,
            flows: Vec::new(),
            share,
            state: State::Idle,
            confirmation: Confirmation::new(latest_grant),
            returns_at: Nanos::ZERO,
            demand: Rate::ZERO,
            request: Rate::ZERO,
            rate: Rate::ZERO,
            loan: Loan::default(),
        }
    }

    /// Returns whether it has a flow for each of these destinations, and no other.
    pub(super) fn is_to(&self, destinations: &[Destination]) -> bool {
        let flows = self.flows.iter().map(|flow| flow.destination);
        flows.eq(destinations.iter().copied())
    }
}
