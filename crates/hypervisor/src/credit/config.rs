//! The rules that changed from one Xen release to the next.
//!
//! Read [`CreditConfig::xen`] first: the releases as rows of this table. The
//! papers ran on Xen 3.3 (vSnoop), 4.1 (Bobtail, Cheng and Wang) and 4.2 (Small
//! is Better).

use serde::{Deserialize, Serialize};
use tailbound_units::Nanos;

/// A release of Xen whose rules are known in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum XenVersion {
    /// Xen 3.3, 2008.
    #[serde(rename = "3.3")]
    V3_3,
    /// Xen 4.1, 2011.
    #[serde(rename = "4.1")]
    V4_1,
    /// Xen 4.2, 2012.
    #[serde(rename = "4.2")]
    V4_2,
    /// Xen 4.8, 2016.
    #[serde(rename = "4.8")]
    V4_8,
    /// Xen 4.17, 2022.
    #[serde(rename = "4.17")]
    V4_17,
}

/// How CPU time is paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Debit {
    /// The vCPU that a tick finds running pays for the whole tick, others pay nothing (until 3.4).
    /// A vCPU can dodge ticks.
    FlatAtTick,
    /// A vCPU pays for its CPU time, rounded to the nearest credit (4.0 to 4.2).
    Rounded,
    /// A vCPU pays for its CPU time, and the remainder is carried (from 4.3, commit `cf0c29d1a9`).
    Residual,
}

/// Trigger of the accounting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccountingTimer {
    /// Every third tick of the first pCPU (3.3).
    MasterTick,
    /// A timer of its own (from 3.4).
    Own,
}

/// Scope of a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WeightOf {
    /// The domain's, however many vCPUs it has (until 4.0).
    Domain,
    /// Each active vCPU's (from 4.1, commit `3a37d430ce`).
    Vcpu,
}

/// Remaining credit of a vCPU that has saved more than a slice's worth and is no longer active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Surplus {
    /// No credit (until 4.0).
    Zero,
    /// Half (from 4.1, commit `c92d5f4e0f`).
    Halve,
}

/// Effect of a yield.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Yielding {
    /// The scheduler chooses again, without further effect (until 4.0).
    Plain,
    /// One vCPU of a lower class goes first (from 4.1, commit `5fc9f5ef6c`).
    Flag,
    /// As `Flag`, also within the ratelimit (from 4.8).
    BeatsRatelimit,
    /// As `BeatsRatelimit`, and a vCPU that yielded is not stolen while it waits (from 4.18, commit
    /// `e282067cf2`).
    NotStolen,
}

/// pCPUs that a wake disturbs.
///
/// The raised idler or the vCPU's own pCPU may come too late: the first to schedule takes the vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tickle {
    /// All idlers, and its own if the running class is lower (until 4.0).
    AllIdlers,
    /// One idler in turn, and its own if the running class is lower (4.1, 4.2;
    /// commit `e4434634c4`).
    OneIdler,
    /// Only an idler if one fits; its own if none does and the running class is
    /// lower (from 4.3, commit `ebce2d836c`).
    IdlerFirst,
}

/// Condition for moving a vCPU that a wake preempted to another pCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Push {
    /// The vCPU stays in its queue (until 4.2). Also from 4.13: there the test for an idler looks
    /// at the affinity of the vCPU that woke, for which no idler was found, and never holds.
    Never,
    /// Whenever there are idlers, none of which the woken one may use; it wakes
    /// elsewhere as if it had slept, into BOOST (4.3 to 4.6, commit
    /// `ebce2d836c`).
    Always,
    /// If one of the idlers can take it, and it is not boosted (4.7 to 4.12,
    /// commits `f02a5760c7` and `66c7449a4d`).
    ToIdler,
}

/// Minimum run of a vCPU before another may preempt it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ratelimit {
    /// No limit (until 4.1).
    None,
    /// A vCPU that comes too early waits a whole limit from then (4.2 to 4.7, commit `64908a0466`).
    Full,
    /// The vCPU waits for the rest of the limit, at least 100 us (from 4.8, commit `0053127890`).
    Remaining,
}

/// Order in which a pCPU without work of class UNDER visits the others.
///
/// Later releases (from 4.9) leave out pCPUs with one runnable vCPU. That saves time but changes
/// nothing, and is not modelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Steal {
    /// Begins with the neighbour (until 4.4).
    FromNeighbour,
    /// Begins after the last pCPU that was stolen from (from 4.5).
    AfterLastVictim,
}

/// Effect of a wake into BOOST on a running vCPU in BOOST (Small is Better, section 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Boost {
    /// Waits for it, as in every release.
    NonePreempts,
    /// Preempts it, but queues behind those already waiting in BOOST.
    PreemptsTail,
    /// Preempts it and goes before those already waiting in BOOST.
    PreemptsHead,
}

/// The rules and parameters of a credit scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreditConfig {
    /// Longest run of a vCPU before the next of its class; also the period of the accounting. A
    /// tick is a third of it, or all of it below 3 ms. Constant 30 ms until 4.1; 1 to 1000 ms
    /// since, and clipped to that.
    pub tslice: Nanos,
    /// The limit's length; 0: no limit. Xen accepts 100 us to 500 ms; more than
    /// `tslice` is clipped to that.
    pub ratelimit: Nanos,
    /// Application of the limit.
    pub ratelimit_rule: Ratelimit,
    /// A vCPU that ran less than this ago is not stolen, its cache being warm.
    /// Xen's default is 0.
    pub migration_delay: Nanos,
    /// How CPU time is paid for.
    pub debit: Debit,
    /// Trigger of the accounting.
    pub accounting: AccountingTimer,
    /// Scope of a weight.
    pub weight_of: WeightOf,
    /// Remaining credit above a slice's worth.
    pub surplus: Surplus,
    /// Effect of a yield.
    pub yielding: Yielding,
    /// pCPUs that a wake disturbs.
    pub tickle: Tickle,
    /// If set, an idler counts as taken as soon as it is raised (from 4.9, commit `47d5292995`).
    pub claim_idler: bool,
    /// Condition for moving a preempted vCPU.
    pub push: Push,
    /// If set, a running vCPU behind which others wait moves to an idler at a tick (from 4.3;
    /// before, on a host of equal pCPUs, none is better than the own).
    pub seek_idler: bool,
    /// Order in which other pCPUs are visited for stealing.
    pub steal: Steal,
    /// A pCPU looks for work to steal at most once in this time (1 ms from
    /// 4.18, commit `58feb9e0ac`; before, 0).
    pub steal_interval: Nanos,
    /// Effect of a wake into BOOST on a running vCPU in BOOST.
    pub boost: Boost,
}

impl CreditConfig {
    /// The rules of a release, with its default parameters.
    pub const fn xen(version: XenVersion) -> Self {
        let v4_2 = Self {
            tslice: Nanos::from_millis(30),
            ratelimit: Nanos::from_millis(1),
            ratelimit_rule: Ratelimit::Full,
            migration_delay: Nanos::ZERO,
            debit: Debit::Rounded,
            accounting: AccountingTimer::Own,
            weight_of: WeightOf::Vcpu,
            surplus: Surplus::Halve,
            yielding: Yielding::Flag,
            tickle: Tickle::OneIdler,
            claim_idler: false,
            push: Push::Never,
            seek_idler: false,
            steal: Steal::FromNeighbour,
            steal_interval: Nanos::ZERO,
            boost: Boost::NonePreempts,
        };
        let v4_1 = Self {
            ratelimit: Nanos::ZERO,
            ratelimit_rule: Ratelimit::None,
            ..v4_2
        };
        let v4_8 = Self {
            ratelimit_rule: Ratelimit::Remaining,
            debit: Debit::Residual,
            yielding: Yielding::BeatsRatelimit,
            tickle: Tickle::IdlerFirst,
            push: Push::ToIdler,
            seek_idler: true,
            steal: Steal::AfterLastVictim,
            ..v4_2
        };
        match version {
            XenVersion::V3_3 => Self {
                debit: Debit::FlatAtTick,
                accounting: AccountingTimer::MasterTick,
                weight_of: WeightOf::Domain,
                surplus: Surplus::Zero,
                yielding: Yielding::Plain,
                tickle: Tickle::AllIdlers,
                ..v4_1
            },
            XenVersion::V4_1 => v4_1,
            XenVersion::V4_2 => v4_2,
            XenVersion::V4_8 => v4_8,
            XenVersion::V4_17 => Self {
                claim_idler: true,
                push: Push::Never,
                ..v4_8
            },
        }
    }

    /// Three ticks a slice, or one if it is shorter than 3 ms.
    pub(super) fn ticks_per_tslice(&self) -> u64 {
        if self.tslice < Nanos::from_millis(3) {
            1
        } else {
            3
        }
    }

    /// The tick's period, in whole microseconds.
    pub(super) fn tick(&self) -> Nanos {
        Nanos::from_micros(self.tslice.0 / 1_000 / self.ticks_per_tslice())
    }

    /// Returns the income of a pCPU in a slice: 10 credits a millisecond.
    pub(super) fn credits_per_tslice(&self) -> i64 {
        i64::try_from(self.tslice.0 / 100_000).expect("a slice is at most 1 s")
    }

    /// Returns the configuration with its parameters clipped to the range that Xen accepts.
    pub(super) fn clipped(mut self) -> Self {
        self.tslice = self
            .tslice
            .clamp(Nanos::from_millis(1), Nanos::from_secs(1));
        self.ratelimit = self.ratelimit.min(self.tslice);
        self
    }
}
