//! The rules that changed from one Xen release to the next.
//!
//! Read [`CreditConfig::xen`] first: the releases as rows of this table. The
//! papers ran on Xen 3.3 (vSnoop), 4.1 (Bobtail, QoS scheduling) and 4.2 (Small
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
    /// Who is found running by a tick pays for the whole tick, others nothing
    /// (until 3.4). Can be dodged.
    FlatAtTick,
    /// What was used, rounded to the nearest credit (4.0 to 4.2).
    Rounded,
    /// What was used, the remainder carried (from 4.3, commit `cf0c29d1a9`).
    Residual,
}

/// What drives the accounting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccountingTimer {
    /// Every third tick of the master pCPU; none while that idles (3.3).
    MasterTick,
    /// A timer of its own (from 3.4).
    Own,
}

/// Whose the weight is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WeightOf {
    /// The domain's, however many vCPUs it has (until 4.0).
    Domain,
    /// Each active vCPU's (from 4.1, commit `3a37d430ce`).
    Vcpu,
}

/// What is left to a vCPU that has saved more than a slice's worth and is no
/// longer active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Surplus {
    /// Nothing (until 4.0).
    Zero,
    /// Half (from 4.1, commit `c92d5f4e0f`).
    Halve,
}

/// What a yield does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Yielding {
    /// Asks the scheduler again, no more (until 4.0).
    Plain,
    /// Lets one vCPU of a lower class go first (from 4.1, commit `5fc9f5ef6c`).
    Flag,
    /// The same, also within the ratelimit (from 4.8).
    BeatsRatelimit,
}

/// Which pCPUs a wake disturbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tickle {
    /// All idlers, and its own if the running class is lower (until 4.0).
    AllIdlers,
    /// One idler in turn, and its own if the running class is lower (4.1, 4.2;
    /// commit `e4434634c4`).
    OneIdler,
    /// Only an idler if one fits; if none does and the running class is lower,
    /// its own, and who runs there is pushed away (4.3 to 4.6, commit
    /// `ebce2d836c`).
    IdlerOrPush,
    /// The same, but it is pushed away only if an idler can take it (4.7,
    /// commit `f02a5760c7`).
    IdlerOrPushToIdler,
    /// The same, and an idler counts as taken once it is raised (from 4.9,
    /// commit `47d5292995`).
    IdlerClaimed,
}

/// How long a vCPU runs before another may preempt it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ratelimit {
    /// No limit (until 4.1).
    None,
    /// One who comes too early waits a whole limit from then (4.2 to 4.7,
    /// commit `64908a0466`).
    Full,
    /// It waits for the rest of the limit, at least 100 us (from 4.8, commit
    /// `0053127890`).
    Remaining,
}

/// From whom a pCPU steals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Steal {
    /// Every pCPU that is not idle.
    Busy,
    /// Every one with more than one runnable vCPU (from 4.9).
    Crowded,
}

/// What a vCPU that just woke into BOOST does to a running one in BOOST
/// (Small is Better, section 4.1).
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
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CreditConfig {
    /// How long a vCPU runs at most before the next of its class; also the
    /// period of the accounting. A tick is a third of it, or all of it below
    /// 3 ms. Constant 30 ms until 4.1; 1 to 1000 ms since.
    pub tslice: Nanos,
    /// The limit's length; see `ratelimit_rule`. Xen accepts 100 us to 500 ms,
    /// at most `tslice`.
    pub ratelimit: Nanos,
    /// How it is applied.
    pub ratelimit_rule: Ratelimit,
    /// A vCPU that ran less than this ago is not stolen, its cache being warm.
    /// Xen's default is 0.
    pub migration_delay: Nanos,
    /// How CPU time is paid for.
    pub debit: Debit,
    /// What drives the accounting.
    pub accounting: AccountingTimer,
    /// Whose the weight is.
    pub weight_of: WeightOf,
    /// What becomes of more than a slice's worth.
    pub surplus: Surplus,
    /// What a yield does.
    pub yielding: Yielding,
    /// Which pCPUs a wake disturbs.
    pub tickle: Tickle,
    /// From whom a pCPU steals.
    pub steal: Steal,
    /// Whether BOOST preempts BOOST.
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
            steal: Steal::Busy,
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
            tickle: Tickle::IdlerOrPushToIdler,
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
                tickle: Tickle::IdlerClaimed,
                steal: Steal::Crowded,
                ..v4_8
            },
        }
    }
}
