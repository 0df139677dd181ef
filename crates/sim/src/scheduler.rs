//! The schedulers that an experiment can name.

use serde::Deserialize;
use std::collections::BTreeMap;
use tailbound_experiment::Name;
use tailbound_hypervisor::credit::{Boost, Ratelimit};
use tailbound_hypervisor::{
    Credit, Credit2, Credit2Config, CreditConfig, DomainClass, EdfConfig, EdfCredit, Host,
    Reservation, Rtds, Scheduler, XenVersion,
};
use tailbound_units::Nanos;

/// A scheduler of the model.
pub(crate) type AnyScheduler = Box<dyn Scheduler + Send>;

/// A scheduler of one kind.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulerSpec {
    /// Name.
    pub name: Name,
    /// Xen's credit scheduler.
    pub credit: Option<CreditSpec>,
    /// EDF + credit: requests by kind of guest; others have none.
    pub edf: Option<EdfSpec>,
    /// Xen's credit2.
    pub credit2: Option<Credit2Config>,
    /// Xen's RTDS: reservations by kind of guest; others have Xen's default.
    pub rtds: Option<BTreeMap<Name, Reservation>>,
}

/// Xen's credit scheduler: a release's rules, and deviations.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreditSpec {
    /// Release.
    pub version: XenVersion,
    /// Slice; fixed 30 ms up to 4.1.
    pub tslice: Option<Nanos>,
    /// Shortest run before preemption; from 4.2.
    pub ratelimit: Option<Nanos>,
    /// Preemption of BOOST by BOOST.
    pub boost: Option<Boost>,
}

/// EDF + credit (`QoS` Scheduling, sections 3.1 and 4).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdfSpec {
    /// Requests by kind of guest.
    pub class: BTreeMap<Name, DomainClass>,
    /// Percentage of a real-time guest's credit for events.
    pub reserve: Option<u32>,
}

impl SchedulerSpec {
    /// Builds the scheduler for a host on which a guest of the kind `guests[i]` is domain and vCPU
    /// `i`.
    pub(crate) fn build(&self, host: &Host, guests: &[&str]) -> Result<AnyScheduler, String> {
        match (&self.credit, &self.edf, &self.credit2, &self.rtds) {
            (Some(credit), None, None, None) => Ok(Box::new(Credit::new(credit.config()?, host))),
            (None, Some(edf), None, None) => {
                let classes = by_guest(&edf.class, guests);
                let mut config = EdfConfig::default();
                config.reserve = edf.reserve.unwrap_or(config.reserve);
                let edf = EdfCredit::new(config, host, &classes);
                Ok(Box::new(edf.map_err(|error| error.to_string())?))
            }
            (None, None, Some(credit2), None) => Ok(Box::new(Credit2::new(*credit2, host))),
            (None, None, None, Some(reservations)) => {
                let reservations = by_guest(reservations, guests);
                let rtds = Rtds::new(host, &reservations);
                Ok(Box::new(rtds.map_err(|error| error.to_string())?))
            }
            _ => Err(
                "needs exactly one kind; write one of credit = { version = \"4.2\" }, \
                 edf = { class = {} }, credit2 = {}, rtds = {}"
                    .to_owned(),
            ),
        }
    }

    /// Returns the kinds of guests that it names.
    pub(crate) fn guests(&self) -> impl Iterator<Item = &Name> {
        let edf = self.edf.iter().flat_map(|edf| edf.class.keys());
        edf.chain(self.rtds.iter().flat_map(BTreeMap::keys))
    }
}

/// Returns the setting of each guest, by its kind.
fn by_guest<T: Clone + Default>(of: &BTreeMap<Name, T>, guests: &[&str]) -> Vec<T> {
    let one = |guest: &&str| {
        let mut kinds = of.iter();
        let kind = kinds.find(|(name, _)| name.get_ref() == guest);
        kind.map(|(_, it)| it.clone()).unwrap_or_default()
    };
    guests.iter().map(one).collect()
}

impl CreditSpec {
    pub(crate) fn config(&self) -> Result<CreditConfig, String> {
        let mut config = CreditConfig::xen(self.version);
        if let Some(tslice) = self.tslice {
            let (low, high) = (Nanos::from_millis(1), Nanos::from_secs(1));
            if !(low..=high).contains(&tslice) {
                return Err(format!("tslice {tslice}: choose {low} to {high}"));
            }
            config.tslice = tslice;
        }
        if let Some(ratelimit) = self.ratelimit {
            if config.ratelimit_rule == Ratelimit::None {
                return Err("there is no ratelimit before Xen 4.2: leave it out".to_owned());
            }
            let low = Nanos::from_micros(100);
            if ratelimit != Nanos::ZERO && !(low..=config.tslice).contains(&ratelimit) {
                return Err(format!(
                    "ratelimit {ratelimit}: choose 0, or {low} to the slice, {}",
                    config.tslice
                ));
            }
            config.ratelimit = ratelimit;
        }
        config.boost = self.boost.unwrap_or(config.boost);
        Ok(config)
    }
}
