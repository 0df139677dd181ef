//! Shortest delay that a network could guarantee to a tenant with such guests.

use super::ReplayError;
use std::path::Path;
use std::sync::Arc;
use tailbound_placement::{
    DEFAULT_BURSTS, Datacentre, FaultDomains, Guarantee, Policy, Request, Spec, Topology,
};
use tailbound_units::{Bytes, Nanos, Rate};

/// The network of a data centre.
#[derive(Debug)]
pub struct Network(Arc<Topology>);

/// The topology has no place for a tenant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{machines} machines with {bandwidth} and bursts of {burst}: {why}")]
pub struct NoPlace {
    /// Number of machines.
    pub machines: u32,
    /// Guaranteed bandwidth of each.
    pub bandwidth: Rate,
    /// Burst of each.
    pub burst: Bytes,
    /// Reason of the refusal, at the longest delay of the search.
    pub why: String,
}

/// Range of the search: from one microsecond to ten seconds.
const DELAYS: (Nanos, Nanos) = (Nanos::from_micros(1), Nanos::from_secs(10));

impl Network {
    /// Reads a topology (TOML), in the format of `tailbound place`.
    ///
    /// # Errors
    /// The file cannot be read, or breaks a rule.
    pub fn read(path: &Path) -> Result<Self, ReplayError> {
        let text = std::fs::read_to_string(path).map_err(|source| ReplayError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        let topology = Spec::from_toml(&text).and_then(|spec| spec.build());
        let topology = topology.map_err(|error| ReplayError::Topology {
            path: path.to_owned(),
            what: error.to_string(),
        })?;
        Ok(Self(Arc::new(topology)))
    }

    /// Returns the shortest delay with which a tenant of `machines` machines, on at least two
    /// hosts, is admitted to the empty data centre by Silo's rules (4.2), each with the pacer's
    /// `guarantee`.
    ///
    /// # Errors
    /// The tenant is refused with any delay.
    pub fn least_delay(
        &self,
        machines: u32,
        guarantee: &tailbound_dataplane::Guarantee,
    ) -> Result<Nanos, NoPlace> {
        let ask = |delay: Nanos| {
            let request = Request {
                vms: machines,
                guarantee: Some(Guarantee {
                    bandwidth: guarantee.bandwidth,
                    burst: guarantee.burst,
                    delay: Some(delay),
                    burst_rate: Some(guarantee.burst_rate),
                    bursts: Some(DEFAULT_BURSTS),
                    burst_in: None,
                    class: None,
                }),
                cpu: 0,
                memory: Bytes(0),
                // On a single host, no traffic would pass the network.
                domains: Some(FaultDomains {
                    height: 0,
                    count: 2,
                }),
                cpu_reservation: None,
                message: None,
            };
            Datacentre::new(Arc::clone(&self.0), Policy::Silo).fit(&request)
        };
        let (mut refused, mut admitted) = DELAYS;
        if let Err(error) = ask(admitted) {
            return Err(NoPlace {
                machines,
                bandwidth: guarantee.bandwidth,
                burst: guarantee.burst,
                why: error.to_string(),
            });
        }
        while admitted.0 - refused.0 > 1 {
            let middle = Nanos(refused.0.midpoint(admitted.0));
            match ask(middle) {
                Ok(_) => admitted = middle,
                Err(_) => refused = middle,
            }
        }
        Ok(admitted)
    }
}
