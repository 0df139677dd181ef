//! The port of a guest.

use super::config::GuestConfig;
use super::ingress::Ingress;
use super::limited::Limited;
use crate::budget::{Budget, BudgetConfig};
use crate::filter::SpoofFilter;
use crate::mac::Mac;
use crate::port::Presence;
use tailbound_dataplane::pacer::PacerError;
use tailbound_dataplane::{
    Class, Coverage, Guarantee, GuestId, Inward, Packet, Pipeline, ShaperConfig, Snoop,
};
use tailbound_metrics::Histogram;

/// The early acknowledgement of a guest's TCP.
pub(super) type Answering = Box<Snoop<Packet>>;

/// The port of a guest: its identity, and the state of each part of the switch for it.
#[derive(Debug)]
pub(super) struct GuestPort {
    pub(super) id: GuestId,
    pub(super) mac: Mac,
    /// The guest's place; `None` until its port was queried, and then treated as here.
    pub(super) presence: Option<Presence>,
    pub(super) checks: Checks,
    pub(super) ingress: Ingress,
    pub(super) limit: Limit,
    pub(super) promise: Promise,
    /// Separates traffic that conforms to its senders' guarantees from the rest; `None` if the
    /// senders' guarantees are unknown.
    pub(super) inward: Option<Inward>,
    /// The queue in front of the port.
    pub(super) pipeline: Pipeline<Packet>,
    pub(super) early: Early,
    pub(super) waits: Waits,
}

/// Checks of the frames that a guest sends, before they are forwarded.
#[derive(Debug, Default)]
pub(super) struct Checks {
    pub(super) filter: Option<SpoofFilter>,
    /// The budget for frames to groups.
    pub(super) groups: Option<Budget>,
    /// The budget for frames to unknown addresses.
    pub(super) unknown: Option<Budget>,
}

/// The limit of the traffic that a guest sends.
#[derive(Debug)]
pub(super) struct Limit {
    pub(super) config: Option<ShaperConfig>,
    /// The queue that enforces the limit; `None` without a limit, or if the pacer enforces it.
    pub(super) shaper: Option<Box<Limited>>,
}

/// The guarantee of a guest on a paced uplink.
#[derive(Debug, Default)]
pub(super) struct Promise {
    /// The traffic that it covers.
    pub(super) coverage: Coverage,
    /// The guarantee that the guest should have.
    pub(super) guarantee: Option<Guarantee>,
    /// The reason for a refused guarantee, as long as the pacer refuses it.
    pub(super) refusal: Option<Refusal>,
}

/// Early acknowledgement of a guest's TCP.
#[derive(Debug, Default)]
pub(super) struct Early {
    /// `None` if it is disabled.
    pub(super) snoop: Option<Answering>,
    /// True if it ends as soon as the guest has all early acknowledged data.
    pub(super) ends: bool,
    /// The guest's progress in its ring at the last query.
    pub(super) progress: u64,
}

/// Waits of a guest's frames.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// Frames that the guest sent, to any destination.
    pub(super) sent: Sojourns,
    /// Frames to the guest from outside, or from a guaranteed guest here.
    pub(super) received: Sojourns,
}

/// A guarantee that breaks a rule of the pacer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) rule: PacerError,
    pub(super) guarantee: Guarantee,
}

impl GuestPort {
    pub(super) fn new(id: GuestId, config: &GuestConfig) -> Self {
        Self {
            id,
            mac: config.mac,
            presence: None,
            checks: Checks {
                filter: config.filter.clone(),
                groups: config.groups.map(Budget::new),
                unknown: config.unknown.map(Budget::new),
            },
            ingress: Ingress::default(),
            limit: Limit {
                config: config.limit.clone(),
                shaper: config
                    .limit
                    .as_ref()
                    .and_then(|limit| Limited::new(&config.name, limit)),
            },
            promise: Promise {
                coverage: config.coverage,
                guarantee: config.guarantee,
                refusal: None,
            },
            inward: None,
            pipeline: Pipeline::new(&config.pipeline),
            early: Early::default(),
            waits: Waits::default(),
        }
    }

    /// Returns true if the guest is on another host, or not running.
    pub(super) fn is_away(&self) -> bool {
        self.presence == Some(Presence::Away)
    }

    /// Returns the number of frames that wait for the guest's limit.
    pub(super) fn waits_for_limit(&self) -> usize {
        let limited = self.limit.shaper.as_ref();
        limited.map_or(0, |limited| limited.shaper.backlog().packets)
    }

    /// Applies `config`, except for its queue; queued frames stay. The old parts move to `config`,
    /// to be freed later.
    pub(super) fn reconfigure(&mut self, config: &mut GuestConfig) {
        self.mac = config.mac;
        let Self {
            checks, promise, ..
        } = self;
        std::mem::swap(&mut checks.filter, &mut config.filter);
        replace_budget(&mut checks.groups, config.groups);
        replace_budget(&mut checks.unknown, config.unknown);
        promise.coverage = config.coverage;
        promise.guarantee = config.guarantee;
    }
}

/// Returns true if a port is a guest's, and that guest is on another host or not running.
pub(super) fn is_away(guest: Option<&GuestPort>) -> bool {
    guest.is_some_and(GuestPort::is_away)
}

/// Replaces a budget. A budget that stays keeps its spent part.
pub(super) fn replace_budget(budget: &mut Option<Budget>, config: Option<BudgetConfig>) {
    match (budget.as_mut(), config) {
        (Some(budget), Some(config)) => budget.reconfigure(config),
        (_, config) => *budget = config.map(Budget::new),
    }
}

/// Waits by class.
#[derive(Debug, Clone, Default)]
pub(super) struct Sojourns([Histogram; Class::ALL.len()]);

impl Sojourns {
    pub(super) fn of(&mut self, class: Class) -> &mut Histogram {
        &mut self.0[class as usize]
    }

    /// Returns the histogram of each class.
    pub(super) fn by_class(&self) -> impl Iterator<Item = (Class, &Histogram)> {
        Class::ALL.into_iter().zip(&self.0)
    }
}
