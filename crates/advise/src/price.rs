//! The price of a guarantee: slots of a data centre, by the project's own admission.

use std::sync::Arc;
use tailbound_placement::{
    DEFAULT_BURSTS, Datacentre, Direction, Guarantee, Policy, PortId, Request, Spec, TenantId,
    Topology,
};
use tailbound_units::{Bytes, Nanos, Rate};

/// The default data centre: one pod of ten racks, each with 40 hosts of four slots on 10 Gbit/s. Its
/// ports are those of the project's placement experiments (`experiments/placement`).
pub const DEFAULT_TOPOLOGY: &str = include_str!("topology.toml");

/// A guarantee of each machine of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuple {
    /// B: average bandwidth.
    pub bandwidth: Rate,
    /// S: bytes that a machine may send at Bmax after a time below B.
    pub burst: Bytes,
    /// `S_in`: bytes that may be on their way to one machine beyond its B.
    pub burst_in: Bytes,
    /// d: longest wait of a frame in queues of the network.
    pub delay: Nanos,
    /// Bmax: rate of a burst.
    pub burst_rate: Rate,
}

/// A data centre without tenants.
#[derive(Debug, Clone)]
pub struct Fabric(Arc<Topology>);

/// Number of equal tenants that a data centre has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    /// Number of machines of each tenant.
    pub machines: u32,
    /// Number of tenants.
    pub tenants: u32,
    /// Slots of the data centre.
    pub slots: u32,
}

impl Price {
    /// Returns the slots that a tenant takes: its own, and its part of those that cannot be sold
    /// beside such tenants.
    pub fn slots_of_tenant(self) -> f64 {
        f64::from(self.slots) / f64::from(self.tenants)
    }
}

impl Tuple {
    /// Returns the request of a tenant without `S_in`: (N-1)·S may be on the way to each machine.
    pub fn request(&self, machines: u32) -> Request {
        self.request_with(machines, Some(self.burst_rate), None)
    }

    /// Returns the request of a tenant with `S_in`, for hosts that limit inward bursts.
    pub fn inward_request(&self, machines: u32) -> Request {
        self.request_with(machines, Some(self.burst_rate), Some(self.burst_in))
    }

    /// Returns the request without advice on bursts: (N-1)·S may be on the way to each machine, at
    /// the rate of the links.
    pub(crate) fn silo(&self, machines: u32) -> Request {
        self.request_with(machines, None, None)
    }

    fn request_with(
        &self,
        machines: u32,
        burst_rate: Option<Rate>,
        burst_in: Option<Bytes>,
    ) -> Request {
        Request {
            vms: machines,
            guarantee: Some(Guarantee {
                bandwidth: self.bandwidth,
                burst: self.burst,
                delay: Some(self.delay),
                burst_rate,
                bursts: Some(DEFAULT_BURSTS),
                burst_in,
                class: None,
            }),
            cpu: 0,
            memory: Bytes::ZERO,
            domains: None,
            cpu_reservation: None,
            message: None,
        }
    }
}

impl Fabric {
    /// Returns the data centre of a topology.
    pub fn new(topology: Topology) -> Self {
        Self(Arc::new(topology))
    }

    /// Reads a topology (TOML) in the format of `tailbound place`.
    ///
    /// # Errors
    /// The topology breaks a rule.
    pub fn from_toml(text: &str) -> Result<Self, tailbound_placement::SpecError> {
        Ok(Self::new(Spec::from_toml(text)?.build()?))
    }

    /// Returns the rate of the fastest link of a host.
    pub fn link(&self) -> Rate {
        let hosts = self.0.hosts().iter();
        let rates = hosts.map(|host| {
            let port = PortId {
                node: *host,
                direction: Direction::Up,
            };
            self.0.port(port).rate
        });
        Rate(rates.max().unwrap_or(0))
    }

    /// Returns the longest frame on the wire.
    pub(crate) fn frame(&self) -> Bytes {
        self.0.frame()
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> u32 {
        self.0.resources(tailbound_placement::NodeId::TOP).slots
    }

    /// Returns the price of a request: the empty data centre is filled with such tenants until one
    /// is refused.
    ///
    /// # Errors
    /// The reason why the first one is refused.
    pub fn price(&self, request: &Request) -> Result<Price, String> {
        let mut datacentre = Datacentre::new(Arc::clone(&self.0), Policy::Silo);
        let request = &self.0.with_class(*request);
        let mut tenants = 0;
        let refusal = loop {
            match datacentre.admit(TenantId(u64::from(tenants)), request) {
                Ok(_) => tenants += 1,
                Err(refusal) => break refusal,
            }
        };
        if tenants == 0 {
            return Err(refusal.to_string());
        }
        Ok(Price {
            machines: request.vms,
            tenants,
            slots: self.slots(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_price_of_a_small_guarantee_is_its_machines() {
        let fabric = Fabric::from_toml(DEFAULT_TOPOLOGY).unwrap();
        assert_eq!(
            (fabric.slots(), fabric.link()),
            (1_600, Rate::from_mbit(10_000))
        );
        let mut tuple = Tuple {
            bandwidth: Rate::from_mbit(10),
            burst: Bytes(1_538),
            burst_in: Bytes(1_538),
            delay: Nanos::from_millis(1),
            burst_rate: Rate::from_mbit(100),
        };
        let price = fabric.price(&tuple.request(16)).unwrap();
        assert_eq!((price.tenants, price.slots_of_tenant()), (100, 16.0));
        // A link of 10 Gbit/s has room for two at most, beside other machines of other tenants.
        tuple.bandwidth = Rate::from_mbit(4_000);
        tuple.burst_rate = Rate::from_mbit(4_000);
        let price = fabric.price(&tuple.request(16)).unwrap();
        assert!(price.slots_of_tenant() >= 32.0, "{price:?}");
        tuple.delay = Nanos::from_micros(100);
        let refusal = fabric.price(&tuple.request(16)).unwrap_err();
        assert!(refusal.contains("delay"), "{refusal}");
    }
}
