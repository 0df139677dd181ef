//! Tenants that were admitted, all of which burst at the worst instant.
//!
//! Read [`Admitted`] first: the data centre and its tenants. `traffic` has the flows and their
//! times, `judge` compares measurements with guarantees.

mod judge;
mod summary;
mod traffic;

pub use judge::{CentreOutcome, Worst};
pub(crate) use traffic::ports;

use super::Time;
use crate::distribution::{drawn, exponential};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;
use tailbound_placement::{
    Datacentre, Guarantee, NodeId, Policy, Request, SpecError, TenantId, Topology, Uniform,
    UplinkSpec,
};
use tailbound_units::{Bytes, Nanos};

/// Filled data centres.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Admitted {
    /// Data centres, each with its own tenants.
    pub centres: u32,
    /// Pods.
    pub pods: u32,
    /// Racks per pod.
    pub racks: u32,
    /// Hosts per rack.
    pub hosts: u32,
    /// Slots per host.
    pub slots: u32,
    /// Longest frame.
    pub frame: Bytes,
    /// Link from host to rack.
    pub host_link: UplinkSpec,
    /// Link from rack to pod.
    pub rack_link: UplinkSpec,
    /// Link from pod to core.
    pub pod_link: UplinkSpec,
    /// Mean VMs of a tenant; exponential, at least 2.
    pub mean_vms: u32,
    /// Classes of tenants.
    pub class: Vec<TenantClass>,
    /// Consecutive refusals at which the data centre is full.
    pub refusals: u32,
    /// Runs with all tenants to one port, fullest ports first.
    pub targeted_runs: u32,
    /// Runs between random pairs.
    pub shuffles: u32,
    /// Time of a run after the last sender's start.
    pub time: Nanos,
    /// Policies besides Silo, with the same requests up to the same load.
    pub controls: Vec<Policy>,
}

/// A class of tenants.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantClass {
    /// Relative part of requests.
    pub weight: u32,
    /// Guarantee of each VM.
    pub guarantee: Guarantee,
}

impl Admitted {
    /// Returns the empty data centre.
    ///
    /// # Errors
    /// The configuration is invalid, or it has parallel links, which the simulator does not
    /// support.
    pub fn topology(&self) -> Result<Topology, SpecError> {
        let uniform = Uniform {
            pods: self.pods,
            racks: self.racks,
            hosts: self.hosts,
            slots: self.slots,
            host_link: self.host_link.clone(),
            rack_link: self.rack_link.clone(),
            pod_link: self.pod_link.clone(),
            frame: self.frame,
        };
        uniform.spec().build()
    }

    /// Returns a random request.
    fn request(&self, random: &mut Pcg64Mcg) -> Request {
        let weights = self.class.iter().map(|class| class.weight).sum::<u32>();
        let ticket = random.random_range(0..weights.max(1));
        let class = drawn(ticket.into(), self.class.iter().map(|class| class.weight));
        let vms = exponential(random, f64::from(self.mean_vms)).round();
        Request {
            vms: (vms as u32).max(2),
            guarantee: class.map(|place| self.class[place].guarantee.with_default_bursts()),
            cpu: 0,
            memory: Bytes::ZERO,
            domains: None,
            cpu_reservation: None,
            message: None,
        }
    }

    /// Fills data centre `number`: under Silo until it is full, under other policies with the same
    /// requests until the same number of slots is taken.
    fn fill(&self, topology: &Topology, policy: Policy, seed: u64) -> Datacentre {
        let mut silo = Datacentre::new(topology.clone(), Policy::Silo);
        self.admit(&mut silo, seed, None);
        if policy == Policy::Silo {
            return silo;
        }
        let mut other = Datacentre::new(topology.clone(), policy);
        self.admit(&mut other, seed, Some(used(&silo)));
        other
    }

    /// Admits tenants until the data centre is full, or until `most` slots are taken.
    fn admit(&self, dc: &mut Datacentre, seed: u64, most: Option<u32>) {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut refused = 0;
        for id in 0.. {
            if refused >= self.refusals || most.is_some_and(|most| used(dc) >= most) {
                break;
            }
            let mut request = self.request(&mut random);
            if let Some(most) = most {
                request.vms = request.vms.min(most - used(dc)).max(2);
            }
            match dc.admit(TenantId(id), &request) {
                Ok(_) => refused = 0,
                Err(_) => refused += 1,
            }
        }
    }

    /// Returns the time of a run after the last sender has begun.
    fn after(&self) -> Time {
        self.time.into()
    }
}

/// Number of taken slots.
fn used(dc: &Datacentre) -> u32 {
    dc.topology().resources(NodeId::TOP).slots - dc.free(NodeId::TOP).slots
}
