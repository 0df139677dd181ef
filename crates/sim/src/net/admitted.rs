//! Tenants that were admitted, all of whom burst at the worst moment.
//!
//! Read [`Admitted`] first: what the data centre and its tenants are like.
//! `traffic` is who sends to whom and when, `judge` what is held against what.

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

/// Data centres that are filled and then simulated.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Admitted {
    /// How many data centres, each with its own tenants.
    pub centres: u32,
    /// Below the core.
    pub pods: u32,
    /// In each pod.
    pub racks: u32,
    /// In each rack.
    pub hosts: u32,
    /// On each host.
    pub slots: u32,
    /// The longest frame.
    pub frame: Bytes,
    /// Between a host and its rack.
    pub host_link: UplinkSpec,
    /// Between a rack and its pod.
    pub rack_link: UplinkSpec,
    /// Between a pod and the core.
    pub pod_link: UplinkSpec,
    /// How many machines tenants have on average; exponential, two at least.
    pub mean_vms: u32,
    /// What they ask for.
    pub class: Vec<TenantClass>,
    /// The data centre is full when so many in a row were refused.
    pub refusals: u32,
    /// How many runs have a target, a port that all tenants send to who can: the
    /// fullest ports first.
    pub targeted_runs: u32,
    /// How many times traffic goes between pairs drawn at random.
    pub shuffles: u32,
    /// How long a run goes on after the last sender has begun.
    pub time: Nanos,
    /// Besides Silo: the same requests, up to the same load.
    pub controls: Vec<Policy>,
}

/// A kind of tenants.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantClass {
    /// How often it comes, against the others.
    pub weight: u32,
    /// What each machine is promised.
    pub guarantee: Guarantee,
}

impl Admitted {
    /// The empty data centre.
    ///
    /// # Errors
    /// It is not one; or it has parallel links, which the simulator does not
    /// know.
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

    /// What a tenant asks for.
    fn request(&self, random: &mut Pcg64Mcg) -> Request {
        let weights = self.class.iter().map(|class| class.weight).sum::<u32>();
        let ticket = random.random_range(0..weights.max(1));
        let class = drawn(ticket.into(), self.class.iter().map(|class| class.weight));
        let vms = exponential(random, f64::from(self.mean_vms)).round();
        Request {
            vms: (vms as u32).max(2),
            guarantee: class.map(|place| self.class[place].guarantee),
            cpu: 0,
            memory: Bytes::ZERO,
            domains: None,
            cpu_reservation: None,
            message: None,
        }
    }

    /// Fills data centre `number`: under Silo until it is full, under others with
    /// the same requests until as many slots are taken.
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

    /// Admits tenants until it is full, or until so many slots are taken.
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

    /// How long a run goes on after the last sender has begun.
    fn after(&self) -> Time {
        self.time.into()
    }
}

/// Taken slots.
fn used(dc: &Datacentre) -> u32 {
    dc.topology().resources(NodeId::TOP).slots - dc.free(NodeId::TOP).slots
}
