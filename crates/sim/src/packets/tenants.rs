//! Tenants: their requests, their placement by its own rules, and their traffic.

use super::packet::{OVERHEAD, Packet};
use super::racks::{BuiltRacks, FRAME};
use crate::placement::{Class, Inward, Workload, WorkloadConfig};
use crate::tcp::MSS;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;
use tailbound_experiment::{Name, Section};
use tailbound_placement::{
    Datacentre, Guarantee, NodeId, Placement, Policy, Request, TenantId, Topology,
};
use tailbound_units::{Bytes, Nanos, Rate};

/// Workload, in racks: rounds of tenants, which arrive until the hosts are full.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tenants {
    /// Data centres, each with its own tenants.
    #[serde(default = "one")]
    pub centres: u32,
    /// Mean VMs of a tenant; exponential, rounded up.
    pub mean_vms: f64,
    /// Least VMs of a tenant; 2.
    #[serde(default = "two")]
    pub least_vms: u32,
    /// Most VMs of a tenant.
    pub most_vms: u32,
    /// Percentage of taken slots that ends arrivals.
    pub occupancy: u32,
    /// Consecutive refusals that end arrivals.
    pub refusals: u32,
    /// Inward burst of each VM, in bursts, and at least the least that admission accepts; not
    /// limited.
    pub inward_bursts: Option<u32>,
    /// Policy that admits the same tenants for all settings. Each setting's own policy places them, or
    /// this one if it cannot place all of them. Without it each policy admits its own tenants.
    pub admitted_by: Option<Policy>,
    /// Classes of tenants.
    pub class: Vec<TenantClass>,
}

/// A class of tenants.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantClass {
    /// Name of its figures.
    pub name: Name,
    /// Relative part of requests.
    #[serde(default = "one")]
    pub weight: u32,
    /// Guarantee of each VM.
    pub guarantee: Guarantee,
    /// Bandwidth and burst are exponential with these means, at least a tenth of that bandwidth and
    /// a frame.
    #[serde(default)]
    pub varied: bool,
    /// No guarantee, but the same traffic.
    #[serde(default)]
    pub best_effort: bool,
    /// Pairs of VMs in a round.
    pub pattern: Pattern,
    /// Lengths of messages.
    pub message: Length,
    /// Part of the bandwidth for rounds.
    pub load: f64,
}

/// Pairs of machines that exchange messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// All machines to one of them, at the same instant.
    AllToOne,
    /// Each machine to each other, at the same instant.
    AllToAll,
}

/// Length of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Length {
    /// The burst's bytes on the wire.
    Burst,
    /// The sender's equal part of the receiver's inward burst in bytes on the wire, at most the
    /// burst.
    Inward,
    /// The bandwidth's bytes in this time, for all messages of a VM in a round.
    Time(Nanos),
    /// Fixed.
    Fixed(Bytes),
}

const fn one() -> u32 {
    1
}

const fn two() -> u32 {
    2
}

/// A tenant that was admitted.
#[derive(Debug, Clone)]
pub(super) struct AdmittedTenant {
    pub(super) class: usize,
    pub(super) guarantee: Guarantee,
    /// True if the tenant has the guarantee.
    pub(super) is_promised: bool,
    /// Host of each machine.
    pub(super) machines: Vec<usize>,
    /// Sending and receiving machine of each connection.
    pub(super) pairs: Vec<(usize, usize)>,
    /// Length of each message, in bytes.
    pub(super) size: u64,
    /// Time of a message according to the guarantee.
    pub(super) estimate: Nanos,
    /// Interval between rounds, and start of the first one.
    pub(super) every: Nanos,
    pub(super) first: Nanos,
}

/// Hosts with tenants.
#[derive(Debug)]
pub(super) struct Centre {
    pub(super) datacentre: Datacentre,
    pub(super) tenants: Vec<AdmittedTenant>,
    /// Requests, and number of refused ones.
    pub(super) asked: u64,
    pub(super) refused: u64,
    /// Number of VMs of all requests.
    pub(super) asked_vms: u64,
    /// True if the setting's own policy placed the tenants.
    pub(super) has_own_places: bool,
    /// Number of slots, and number of taken ones.
    pub(super) slots: u64,
    pub(super) taken: u64,
}

/// A request that was admitted, and where its machines are.
#[derive(Debug, Clone)]
struct Admission {
    /// Number of the request, from 1.
    number: u64,
    class: usize,
    request: Request,
    guarantee: Guarantee,
    placement: Placement,
}

/// Admitted requests, and the numbers of all.
#[derive(Debug)]
struct Admissions {
    datacentre: Datacentre,
    admitted: Vec<Admission>,
    asked: u64,
    asked_vms: u64,
}

impl Admissions {
    /// Places the same tenants by the rules of another policy; `None` if it cannot place all.
    fn placed_by(&self, policy: Policy) -> Option<Self> {
        let mut datacentre = Datacentre::new(self.datacentre.topology().clone(), policy);
        datacentre.assume_paced();
        let mut admitted = Vec::with_capacity(self.admitted.len());
        for admission in &self.admitted {
            let id = TenantId(admission.number);
            let placement = datacentre.admit(id, &admission.request).ok()?;
            admitted.push(Admission {
                placement: placement.clone(),
                ..admission.clone()
            });
        }
        Some(Self {
            datacentre,
            admitted,
            ..*self
        })
    }
}

impl Tenants {
    pub(super) fn check(&self, section: &mut Section<'_>) {
        section.range("centres", self.centres, 1..=1_000);
        section.range("mean_vms", self.mean_vms, 1.0..=10_000.0);
        section.range("most_vms", self.most_vms, 2..=10_000);
        section.range("least_vms", self.least_vms, 2..=self.most_vms.max(2));
        section.range("occupancy", self.occupancy, 1..=100);
        section.range("refusals", self.refusals, 1..=1_000_000);
        if let Some(bursts) = self.inward_bursts {
            section.range("inward_bursts", bursts, 1..=10_000);
        }
        section.count("class", self.class.len(), 1..=100);
        if self.class.iter().all(|class| class.weight == 0) {
            section.at("class", "all classes have weight 0: no tenant would arrive");
        }
        for (place, class) in self.class.iter().enumerate() {
            let mut section = section.item("class", place);
            section.range("load", class.load, 0.001..=1.0);
            let bandwidths = Rate::from_mbit(1)..=Rate::from_mbit(400_000);
            let bandwidth = class.guarantee.bandwidth;
            section.range("bandwidth", bandwidth, bandwidths);
            match class.message {
                Length::Burst => {}
                Length::Inward => {
                    if self.inward_bursts.is_none() && class.guarantee.burst_in.is_none() {
                        let message = "inward: there is no inward burst: write `inward_bursts`";
                        section.at("message", message);
                    }
                }
                Length::Time(time) => {
                    let times = Nanos::from_micros(1)..=Nanos::from_secs(60);
                    section.range("message", time, times);
                }
                Length::Fixed(size) => {
                    section.range("message", size, Bytes(1)..=Bytes(100_000_000));
                }
            }
        }
    }

    /// Places the tenants of a setting with `policy`. The seed determines the requests; the policy of
    /// `admitted_by`, or without it `policy`, determines the admitted ones.
    pub(super) fn place(&self, racks: &BuiltRacks, policy: Policy, seed: u64) -> Centre {
        let first = self.admit(racks, self.admitted_by.unwrap_or(policy), seed);
        let is_other = first.datacentre.policy() != policy;
        let own = is_other.then(|| first.placed_by(policy));
        let has_own_places = !matches!(own, Some(None));
        let of = own.flatten().unwrap_or(first);
        let tenants = of.admitted.iter().map(|admission| {
            let hosts = admission.placement.hosts().iter();
            let machines = hosts.flat_map(|(node, count)| {
                std::iter::repeat_n(racks.host(*node).unwrap_or_default(), *count as usize)
            });
            let seed = seed ^ admission.number.rotate_left(32);
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            self.class[admission.class].placed(admission, machines.collect(), &mut random)
        });
        let tenants: Vec<_> = tenants.collect();
        let slots = of.datacentre.topology().resources(NodeId::TOP).slots;
        let free = of.datacentre.free(NodeId::TOP).slots;
        Centre {
            slots: slots.into(),
            taken: u64::from(slots) - u64::from(free),
            refused: of.asked - tenants.len() as u64,
            datacentre: of.datacentre,
            tenants,
            asked: of.asked,
            asked_vms: of.asked_vms,
            has_own_places,
        }
    }

    /// Admits requests by the rules of a policy until the hosts are full.
    fn admit(&self, racks: &BuiltRacks, policy: Policy, seed: u64) -> Admissions {
        let mut datacentre = Datacentre::new(racks.tree().clone(), policy);
        datacentre.assume_paced();
        let classes: Vec<Class> = self.class.iter().map(TenantClass::requests).collect();
        let config = WorkloadConfig {
            classes: &classes,
            mean_vms: self.mean_vms,
            most_vms: self.most_vms,
            inward: None,
        };
        let mut requests = Workload::new(config, seed);
        let slots = datacentre.topology().resources(NodeId::TOP).slots;
        let taken = |centre: &Datacentre| slots - centre.free(NodeId::TOP).slots;
        let (mut admitted, mut in_a_row) = (Vec::new(), 0);
        let (mut asked, mut asked_vms) = (0, 0);
        while in_a_row < self.refusals && taken(&datacentre) * 100 < slots * self.occupancy {
            let (class, drawn) = requests.next();
            let (request, guarantee) = self.request(class, drawn, datacentre.topology());
            asked += 1;
            asked_vms += u64::from(request.vms);
            let Ok(placement) = datacentre.admit(TenantId(asked), &request) else {
                in_a_row += 1;
                continue;
            };
            in_a_row = 0;
            admitted.push(Admission {
                number: asked,
                class,
                request,
                guarantee,
                placement: placement.clone(),
            });
        }
        Admissions {
            datacentre,
            admitted,
            asked,
            asked_vms,
        }
    }

    /// Returns a drawn request of a class with its limits, and the guarantee that determines its
    /// traffic.
    fn request(
        &self,
        class: usize,
        mut request: Request,
        topology: &Topology,
    ) -> (Request, Guarantee) {
        let kind = &self.class[class];
        request.vms = request.vms.max(self.least_vms);
        request.guarantee = request.guarantee.map(|it| kind.at_least(it));
        if let Some(bursts) = self.inward_bursts {
            let frame = FRAME;
            Inward { bursts, frame }.limit(&mut request);
        }
        request = topology.with_class(request);
        let guarantee = request.guarantee.unwrap_or(kind.guarantee);
        request.guarantee = request.guarantee.filter(|_| !kind.best_effort);
        (request, guarantee)
    }
}

impl TenantClass {
    /// Returns the class as placement's own simulator defines it.
    fn requests(&self) -> Class {
        Class {
            name: self.name.clone(),
            weight: self.weight,
            guarantee: self.guarantee,
            varied: self.varied,
        }
    }

    /// Raises a drawn guarantee to the minimum that a pacer supports and that lets rounds complete.
    fn at_least(&self, drawn: Guarantee) -> Guarantee {
        let least = Rate(self.guarantee.bandwidth.0 / 10);
        let bandwidth = drawn.bandwidth.max(least);
        Guarantee {
            bandwidth,
            burst: drawn.burst.max(FRAME),
            burst_rate: drawn.burst_rate.map(|rate| rate.max(bandwidth)),
            ..drawn
        }
    }

    fn placed(
        &self,
        admission: &Admission,
        machines: Vec<usize>,
        random: &mut Pcg64Mcg,
    ) -> AdmittedTenant {
        let Admission {
            class, guarantee, ..
        } = *admission;
        let number = machines.len();
        let others = (number - 1) as u64;
        let to = random.random_range(0..number);
        let all = 0..number;
        let pairs: Vec<(usize, usize)> = match self.pattern {
            Pattern::AllToOne => all.filter(|it| *it != to).map(|it| (it, to)).collect(),
            Pattern::AllToAll => {
                let to = |from| (0..number).filter(move |to| *to != from);
                all.flat_map(|from| to(from).map(move |to| (from, to)))
                    .collect()
            }
        };
        let bandwidth = guarantee.bandwidth;
        let size = match self.message {
            Length::Burst => payload(guarantee.burst),
            Length::Inward => {
                let part = guarantee.burst_in.map(|inward| Bytes(inward.0 / others));
                payload(part.unwrap_or(guarantee.burst).min(guarantee.burst))
            }
            Length::Time(time) => payload(Bytes(bandwidth.bytes_in(time).0 / others)),
            Length::Fixed(size) => size.0,
        };
        let wire = on_the_wire(size);
        // The busiest machine of the round sends or receives this much, at its whole bandwidth.
        let round = bandwidth.time_for(Bytes(wire.0 * others));
        let every = Nanos((round.0 as f64 / self.load) as u64).max(Nanos(1_000));
        let fits = guarantee.burst.min(wire);
        let fast = guarantee.burst_rate.unwrap_or(bandwidth);
        let estimate = match self.pattern {
            // Silo 4.1: M / Bmax + d, plus the bytes beyond the burst at the bandwidth.
            Pattern::AllToOne => {
                fast.time_for(fits)
                    + bandwidth.time_for(Bytes(wire.0 - fits.0))
                    + guarantee.delay.unwrap_or_default()
            }
            Pattern::AllToAll => round,
        };
        AdmittedTenant {
            class,
            guarantee,
            is_promised: !self.best_effort,
            machines,
            pairs,
            size,
            estimate,
            every,
            first: Nanos(random.random_range(0..every.0)),
        }
    }
}

/// Returns the longest message whose frames take this number of bytes on a wire; one byte at least.
fn payload(wire: Bytes) -> u64 {
    let (full, rest) = (wire.0 / FRAME.0, wire.0 % FRAME.0);
    let mss = u64::from(MSS);
    (full * mss + rest.saturating_sub(OVERHEAD)).max(1)
}

/// Returns the length of a message's frames on the wire.
fn on_the_wire(size: u64) -> Bytes {
    let mss = u64::from(MSS);
    let rest = size % mss;
    let last = if rest > 0 { Packet::length(rest) } else { 0 };
    Bytes(size / mss * FRAME.0 + last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_as_long_as_its_burst_holds() {
        for (wire, size) in [
            (1_538, 1_448),
            (15_000, 9 * 1_448 + 1_158 - 90),
            (3_100, 2 * 1_448),
        ] {
            assert_eq!(payload(Bytes(wire)), size);
            assert!(on_the_wire(size).0 <= wire);
        }
        assert_eq!(on_the_wire(9 * 1_448 + 1_068), Bytes(15_000));
    }
}
