//! One pair as its sender's host has it.

use super::flow::Flow;
use crate::ids::{Destination, PairKey, SequenceNumber};
use crate::machines::LocalIndex;
use tailbound_units::{Nanos, Rate};

/// What a pair does, and what it was granted for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It has nothing to send, and holds nothing.
    Idle,
    /// It has something to send, and was granted nothing.
    Requesting,
    /// It was granted a rate.
    Granted {
        /// How fast it may send while the lease lasts.
        rate: Rate,
        /// When the lease is over.
        lease: Nanos,
    },
    /// Its lease ran out, as the receiver's host was silent: it keeps to the static
    /// share.
    FellBack {
        /// What it was granted, which was more than the share.
        granted: Rate,
    },
}

impl State {
    /// Whether it is in use.
    pub(super) const fn is_open(self) -> bool {
        !matches!(self, Self::Idle)
    }

    /// What was granted last.
    pub(super) const fn granted(self) -> Rate {
        match self {
            Self::Idle | Self::Requesting => Rate::ZERO,
            Self::Granted { rate, .. } => rate,
            Self::FellBack { granted } => granted,
        }
    }

    /// What it may use of what it was granted. `share` is its static share.
    pub(super) fn allowed(self, now: Nanos, share: Rate) -> Rate {
        match self {
            Self::Granted { rate, lease } if now <= lease => rate,
            _ => self.granted().min(share),
        }
    }

    /// Whether its lease has run out and leaves it less than it was granted.
    pub(super) fn falls_back(self, now: Nanos, share: Rate) -> bool {
        matches!(self, Self::Granted { rate, lease } if now > lease && rate > share)
    }
}

/// One pair.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) key: PairKey,
    /// Its sender.
    pub(super) local: LocalIndex,
    /// By destination: its station, and its addresses through routers.
    pub(super) flows: Vec<Flow>,
    /// The static share: what it may use unasked when nothing is pledged.
    pub(super) share: Rate,
    pub(super) state: State,
    /// The datagram with the latest grant that it keeps to.
    pub(super) latest_grant: SequenceNumber,
    /// What it has to send. Nothing while it is idle.
    pub(super) demand: Rate,
    /// What is requested. Nothing while it is idle.
    pub(super) request: Rate,
    /// What its flows may send together.
    pub(super) rate: Rate,
}

impl Pair {
    /// An idle pair that keeps to no grant up to datagram `latest_grant`.
    pub(super) const fn new(
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
            latest_grant,
            demand: Rate::ZERO,
            request: Rate::ZERO,
            rate: Rate::ZERO,
        }
    }

    /// Whether it has a flow for each of these destinations, and no other.
    pub(super) fn is_to(&self, destinations: &[Destination]) -> bool {
        let flows = self.flows.iter().map(|flow| flow.destination);
        flows.eq(destinations.iter().copied())
    }
}
