//! Placements that a caller chooses: each is admitted as it is, or refused with the rule and the
//! place.
//!
//! Read [`admit`], [`change`] and [`put`] first. [`candidates`] has the same rules for many hosts,
//! without a change.

pub mod candidates;

use super::restore::placeable;
use super::{AdmitError, Datacentre, Placement, PlacementError, PortOverload, Tenant, TenantId};
use crate::host::{HostOffer, HostRule};
use crate::request::Request;
use crate::topology::NodeId;
use serde::{Deserialize, Serialize};
use std::fmt;
use tailbound_units::{Bytes, Rate};

/// Largest number of machines in a data centre, whose sums of guarantees are within 64 bits.
pub const MAX_VMS: u64 = 4_000_000;

/// The rule that refuses a placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = PlacementRule))]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// There is no such host.
    UnknownHost,
    /// The owner has another tenant of this name; for adoptions alone.
    Exists,
    /// The host is drained or failed, or keeps no guarantees: not any, or not as late as it is.
    State,
    /// The host has too few slots.
    Slots,
    /// The host has too little CPU, or keeps too little for reservations.
    Cpu,
    /// The host has too little memory.
    Memory,
    /// A fault domain would have more than its part of the machines.
    Domain,
    /// A path between two machines may take longer than the guaranteed delay.
    Delay,
    /// A link or a host's pacer has too little bandwidth.
    Capacity,
    /// A port's queue may grow over its capacity.
    Queue,
}

impl Rule {
    /// Returns the kind of a host's rule.
    const fn of(rule: &HostRule) -> Self {
        match rule {
            HostRule::NoGuarantee
            | HostRule::NoMachines
            | HostRule::Late { .. }
            | HostRule::Packets { .. }
            | HostRule::WarmingUp => Self::State,
            HostRule::Bandwidth { .. }
            | HostRule::BurstRate { .. }
            | HostRule::Slow { .. }
            | HostRule::Burst { .. }
            | HostRule::Bursts { .. }
            | HostRule::InwardBursts { .. }
            | HostRule::InwardFrame { .. }
            | HostRule::DelayClass { .. }
            | HostRule::Sum { .. } => Self::Capacity,
            HostRule::Queue { .. } => Self::Queue,
            HostRule::NoCpu
            | HostRule::Cpu { .. }
            | HostRule::CpuTaken
            | HostRule::CpuSum { .. }
            | HostRule::CpuThreads { .. } => Self::Cpu,
        }
    }
}

/// A refusal of a placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The rule.
    pub rule: Rule,
    /// The host that has too little, if it is one.
    pub host: Option<String>,
    /// The port that would carry too much, if it is one.
    pub port: Option<String>,
    /// The missing amount with its unit, if it is one.
    pub excess: Option<String>,
    /// The reason in one sentence.
    pub sentence: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.sentence)
    }
}

impl std::error::Error for Refusal {}

impl Refusal {
    fn of_host(dc: &Datacentre, host: NodeId, rule: Rule, why: impl fmt::Display) -> Self {
        let name = dc.topology.name(host);
        Self {
            rule,
            host: Some(name.to_owned()),
            port: None,
            excess: None,
            sentence: format!("host {name:?}: {why}"),
        }
    }

    fn with_excess(mut self, excess: impl fmt::Display) -> Self {
        self.excess = Some(excess.to_string());
        self
    }

    fn of_rule(dc: &Datacentre, host: NodeId, rule: HostRule) -> Self {
        let refusal = Self::of_host(dc, host, Rule::of(&rule), rule);
        match rule {
            HostRule::Sum { sum, link } => refusal.with_excess(Rate(sum.0.saturating_sub(link.0))),
            HostRule::Late { measured, counted } => {
                refusal.with_excess(measured.saturating_sub(counted.unwrap_or_default()))
            }
            _ => refusal,
        }
    }

    /// Returns the rule of a request that no placement keeps.
    pub fn of_placement(error: &PlacementError) -> Self {
        let (rule, excess) = match error {
            PlacementError::Delay { least, limit } => {
                (Rule::Delay, Some(least.saturating_sub(*limit).to_string()))
            }
            PlacementError::Fabric { .. } => (Rule::Delay, None),
            PlacementError::Domains => (Rule::Domain, None),
            PlacementError::Slots { wanted, free } => {
                let excess = match wanted.saturating_sub(*free) {
                    0 => None,
                    1 => Some("1 machine".to_owned()),
                    missing => Some(format!("{missing} machines")),
                };
                (Rule::Slots, excess)
            }
            PlacementError::Cpu { .. } => (Rule::Cpu, None),
            PlacementError::Hosts { rule, .. } | PlacementError::HostOfMachines { rule, .. } => {
                (Rule::of(rule), None)
            }
            PlacementError::Ports
            | PlacementError::Beside
            | PlacementError::Overload
            | PlacementError::Unfound
            | PlacementError::Unproved
            | PlacementError::Effort { .. } => (Rule::Queue, None),
        };
        let host = match error {
            PlacementError::Hosts { host, .. }
            | PlacementError::HostOfMachines { host, .. }
            | PlacementError::Cpu { host, .. } => Some(host.to_string()),
            _ => None,
        };
        Self {
            rule,
            host,
            port: None,
            excess,
            sentence: error.to_string(),
        }
    }

    fn of_port(overload: &PortOverload) -> Self {
        let sum = overload.carried.plus(&overload.added).rate();
        let (rule, excess) = match overload.excess() {
            Some(bits) if sum <= overload.rate => {
                (Rule::Queue, Bytes(bits.div_ceil(8)).to_string())
            }
            _ => {
                let more = Rate(sum.saturating_sub(overload.rate));
                (Rule::Capacity, more.to_string())
            }
        };
        Self {
            rule,
            host: None,
            port: Some(overload.name.clone()),
            excess: Some(excess),
            sentence: overload.to_string(),
        }
    }
}

/// Reason why a placement was not reserved; nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PinnedError {
    /// The request makes no sense, or the tenant is unknown or exists.
    #[error(transparent)]
    Tenant(#[from] AdmitError),
    /// A rule refuses the placement.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// Reserves a placement for a new tenant.
///
/// # Errors
/// The number is taken, the placement is not one of the request, or a rule refuses it.
pub fn admit(
    dc: &mut Datacentre,
    id: TenantId,
    request: &Request,
    placement: Placement,
) -> Result<(), PinnedError> {
    let tenant = placeable(dc, id, request, placement)?;
    verify(dc, &tenant, tenant.placement.hosts())?;
    dc.reserve(id, tenant.request, tenant.placement);
    Ok(())
}

/// Replaces a tenant's request and placement. Hosts that have no more machines than before keep
/// them, also if they are closed.
///
/// # Errors
/// There is no such tenant, the placement is not one of the request, or a rule refuses it.
pub fn change(
    dc: &mut Datacentre,
    id: TenantId,
    request: &Request,
    placement: Placement,
) -> Result<(), PinnedError> {
    let checked = dc.without(id, |dc, old| {
        let tenant = placeable(dc, id, request, placement)?;
        let before = |host: NodeId| {
            let hosts = old.placement.hosts();
            let place = hosts.binary_search_by_key(&host, |(host, _)| *host);
            place.map_or(0, |place| hosts[place].1)
        };
        let hosts = tenant.placement.hosts().iter().copied();
        let grown: Vec<_> = hosts
            .filter(|(host, count)| *count > before(*host))
            .collect();
        verify(dc, &tenant, &grown)?;
        Ok::<_, PinnedError>(tenant)
    })?;
    let tenant = checked?;
    dc.release(id)?;
    dc.reserve(id, tenant.request, tenant.placement);
    Ok(())
}

/// Returns the rule that a new tenant with this placement would break, without a change.
///
/// # Errors
/// A rule refuses the placement.
pub fn check(dc: &Datacentre, request: &Request, placement: &Placement) -> Result<(), Refusal> {
    let tenant = Tenant {
        request: *request,
        placement: placement.clone(),
    };
    verify(dc, &tenant, placement.hosts())
}

/// Checks the fault domains of a placement.
///
/// # Errors
/// A domain would have more than its part of the machines.
pub fn check_domains(
    dc: &Datacentre,
    request: &Request,
    placement: &Placement,
) -> Result<(), Refusal> {
    let checked = dc.verify_domains(request, placement);
    checked.map_err(|error| Refusal::of_placement(&error))
}

/// A tenant whose machines run.
#[derive(Debug, Clone)]
pub struct Running {
    /// The tenant's number.
    pub id: TenantId,
    /// The request, for the machines of the placement.
    pub request: Request,
    /// The hosts of the machines.
    pub placement: Placement,
    /// True if the machines run there although a rule refuses them. Their delay, fault domains and
    /// the fabric are not checked then.
    pub is_misfit: bool,
}

/// Puts tenants where their machines run. Neither the load of ports nor the resources of hosts are
/// checked: [`Datacentre::ports_over`] and [`overfull`] return those with too much, which get no
/// further machines.
///
/// # Errors
/// A placement is not one of its request. Then no tenant was put.
pub fn put(
    dc: &mut Datacentre,
    tenants: impl IntoIterator<Item = Running>,
) -> Result<(), (TenantId, AdmitError)> {
    let mut done: Vec<TenantId> = Vec::new();
    let mut hosts: Vec<NodeId> = Vec::new();
    for running in tenants {
        let id = running.id;
        match running.checked(dc) {
            Ok(tenant) => {
                dc.count(&tenant, true);
                hosts.extend(tenant.placement.hosts().iter().map(|(host, _)| *host));
                dc.tenants.insert(id, tenant);
                done.push(id);
            }
            Err(error) => {
                for id in done {
                    if let Some(tenant) = dc.tenants.remove(&id) {
                        dc.count(&tenant, false);
                    }
                }
                return Err((id, error));
            }
        }
    }
    hosts.sort_unstable();
    hosts.dedup();
    dc.refresh(hosts);
    Ok(())
}

/// Returns the hosts whose machines use more slots, CPU or memory than the host has, in ascending
/// order.
pub fn overfull(dc: &Datacentre) -> impl Iterator<Item = NodeId> {
    dc.free.overfull()
}

impl Running {
    fn checked(self, dc: &Datacentre) -> Result<Tenant, AdmitError> {
        if u64::from(self.request.vms) > MAX_VMS {
            return Err(AdmitError::Count {
                placed: self.placement.vms(),
                vms: self.request.vms,
            });
        }
        let tenant = placeable(dc, self.id, &self.request, self.placement)?;
        if !self.is_misfit {
            dc.check(&tenant.request)?;
            dc.verify_place(&tenant.request, &tenant.placement)?;
        }
        Ok(tenant)
    }
}

/// Checks every rule for a tenant that is not in the data centre. Only the `grown` hosts need to be
/// open and to have the resources for their machines.
fn verify(dc: &Datacentre, tenant: &Tenant, grown: &[(NodeId, u32)]) -> Result<(), Refusal> {
    let Tenant { request, placement } = tenant;
    for &(host, count) in grown {
        verify_host(dc, request, host, count)?;
    }
    if let Err(AdmitError::NoPlacement(error)) = dc.check(request) {
        return Err(Refusal::of_placement(&error));
    }
    let place = dc.verify_place(request, placement);
    place.map_err(|error| Refusal::of_placement(&error))?;
    if dc.verify_network(request, placement).is_err() {
        let worst = dc.overload(request, placement.clone());
        return Err(worst.map_or_else(
            || Refusal::of_placement(&PlacementError::Overload),
            |worst| Refusal::of_port(&worst),
        ));
    }
    let links = dc.verify_links(request, placement);
    links.map_err(|error| Refusal::of_placement(&error))
}

/// Checks that a host takes `count` more machines of a request: its state, its resources, and the
/// limits that it reported.
fn verify_host(
    dc: &Datacentre,
    request: &Request,
    host: NodeId,
    count: u32,
) -> Result<(), Refusal> {
    if dc.is_closed(host) {
        let why = "it is drained or failed, and gets no machines";
        return Err(Refusal::of_host(dc, host, Rule::State, why));
    }
    if dc.offer(host) == HostOffer::Nothing {
        return Err(Refusal::of_rule(dc, host, HostRule::NoMachines));
    }
    let free = dc.free[host.index()];
    if free.slots < count {
        let why = format!("{} of its slots are free, not {count}", free.slots);
        let refusal = Refusal::of_host(dc, host, Rule::Slots, why);
        return Err(refusal.with_excess(count - free.slots));
    }
    let wanted = request.cpu.saturating_mul(count.into());
    if free.cpu < wanted {
        let why = format!("{} thousandths of a CPU are free, not {wanted}", free.cpu);
        let refusal = Refusal::of_host(dc, host, Rule::Cpu, why);
        return Err(refusal.with_excess(wanted - free.cpu));
    }
    let wanted = Bytes(request.memory.0.saturating_mul(count.into()));
    if free.memory < wanted {
        let why = format!("{} of its memory are free, not {wanted}", free.memory);
        let refusal = Refusal::of_host(dc, host, Rule::Memory, why);
        return Err(refusal.with_excess(wanted - free.memory));
    }
    let result = dc.check_machines(host, request, count);
    result.map_err(|rule| Refusal::of_rule(dc, host, rule))
}
