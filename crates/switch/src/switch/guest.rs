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

/// What acknowledges TCP in a guest's place.
pub(super) type Answering = Box<Snoop<Packet>>;

/// The port of a guest.
#[derive(Debug)]
pub(super) struct GuestPort {
    pub(super) id: GuestId,
    pub(super) mac: Mac,
    /// Where it is; `None` until its port was asked, and taken for here.
    pub(super) presence: Option<Presence>,
    pub(super) filter: Option<SpoofFilter>,
    /// For frames to groups.
    pub(super) groups: Option<Budget>,
    /// For frames to addresses that nobody is known to have.
    pub(super) unknown: Option<Budget>,
    pub(super) coverage: Coverage,
    /// What it is to be guaranteed on a paced uplink.
    pub(super) guarantee: Option<Guarantee>,
    /// Why it is not, as long as the pacer refuses that.
    pub(super) refusal: Option<Refusal>,
    pub(super) ingress: Ingress,
    /// What it may send.
    pub(super) limit: Option<ShaperConfig>,
    /// What holds it to that; `None` where nothing has to, or the pacer does.
    pub(super) limited: Option<Box<Limited>>,
    /// Tells what conforms to its senders' guarantees from all else that comes for it;
    /// `None` where nobody said what they are.
    pub(super) inward: Option<Inward>,
    /// The queue before the port.
    pub(super) pipeline: Pipeline<Packet>,
    /// Acknowledges TCP for the guest; `None` where it does so itself.
    pub(super) snoop: Option<Answering>,
    /// It is to do so itself as soon as it has all that was acknowledged for it.
    pub(super) snoop_ends: bool,
    /// How far the guest was with its ring when that was last asked.
    pub(super) progress: u64,
    /// Waits of the frames that it sent, wherever they went.
    pub(super) sent: Sojourns,
    /// Waits of the frames that came for it from outside, or from a guest here that is
    /// guaranteed something.
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
            filter: config.filter.clone(),
            groups: config.groups.map(Budget::new),
            unknown: config.unknown.map(Budget::new),
            coverage: config.coverage,
            guarantee: config.guarantee,
            refusal: None,
            ingress: Ingress::default(),
            limit: config.limit.clone(),
            limited: config
                .limit
                .as_ref()
                .and_then(|limit| Limited::new(&config.name, limit)),
            inward: None,
            pipeline: Pipeline::new(&config.pipeline),
            snoop: None,
            snoop_ends: false,
            progress: 0,
            sent: Sojourns::default(),
            received: Sojourns::default(),
        }
    }

    /// Whether it is on another host, or nowhere.
    pub(super) fn is_away(&self) -> bool {
        self.presence == Some(Presence::Away)
    }

    /// How many frames wait for its limit.
    pub(super) fn waits_for_limit(&self) -> usize {
        let limited = self.limited.as_ref();
        limited.map_or(0, |limited| limited.shaper.backlog().packets)
    }

    /// Becomes one of `config`, but for its queue; what waits goes on waiting. What it had
    /// is left there, to be freed later.
    pub(super) fn reconfigure(&mut self, config: &mut GuestConfig) {
        self.mac = config.mac;
        std::mem::swap(&mut self.filter, &mut config.filter);
        replace_budget(&mut self.groups, config.groups);
        replace_budget(&mut self.unknown, config.unknown);
        self.coverage = config.coverage;
        self.guarantee = config.guarantee;
    }
}

/// A budget that stays keeps what was spent of it.
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

    /// The histogram of each class.
    pub(super) fn by_class(&self) -> impl Iterator<Item = (Class, &Histogram)> {
        Class::ALL.into_iter().zip(&self.0)
    }
}
