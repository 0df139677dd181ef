//! Queries; nothing is changed.

use super::{Ledger, LedgerError, runs};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use tailbound_api::{
    Classes, Explanation, Host, HostGuarantees, HostPlace, HostShare, HostState, HostedRun,
    KEEPS_DELAY_CLASSES, KEEPS_INWARD_BURSTS, Line, MoveEnd, Nearest, Overload, Page, PairBound,
    PortState, Role, Status, Tenant, TenantState, VmGuarantee,
};
use tailbound_placement::{
    AdmitError, Datacentre, Direction, Guarantee, NodeId, Placement, PlacementError, Port, PortId,
    Request, TenantId, bound_of_class,
};
use tailbound_units::Nanos;

/// Selects the tenants of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantFilter {
    /// Only tenants of this owner.
    pub owner: Option<String>,
    /// Only tenants with this name.
    pub name: Option<String>,
    /// Only tenants in this state.
    pub state: Option<TenantState>,
}

/// Stands for "no bound": the largest number that every reader of 64-bit integers in JSON takes.
const NO_END: u64 = i64::MAX as u64;

impl Ledger {
    /// Returns a tenant by its number, without its standing ([`Self::with_standing`]).
    pub fn tenant(&self, id: TenantId) -> Option<&Arc<Tenant>> {
        self.tenants.get(&id)
    }

    /// Returns the owner's tenant of this name.
    pub fn tenant_named(&self, owner: &str, name: &str) -> Option<&Arc<Tenant>> {
        self.tenant(self.owners.find(owner, name)?)
    }

    /// Returns a page of tenants in ascending order of their numbers, beginning behind `after`.
    pub fn tenants(
        &self,
        filter: &TenantFilter,
        after: Option<TenantId>,
        limit: usize,
    ) -> Page<Arc<Tenant>> {
        let from = after.unwrap_or(TenantId(0));
        let is_in_state = |tenant: &&Arc<Tenant>| {
            let state = filter.state;
            state.is_none_or(|state| self.standings.state(tenant.id) == state)
        };
        match (&filter.owner, &filter.name) {
            (Some(owner), Some(name)) => {
                let tenants = self.tenant_named(owner, name).into_iter();
                let tenants = tenants.filter(|tenant| tenant.id > from);
                page(tenants.filter(is_in_state), limit)
            }
            (Some(owner), None) => {
                let ids = self.owners.after(owner, from);
                let all = ids.filter_map(|id| self.tenant(id));
                page(all.filter(is_in_state), limit)
            }
            (None, name) => {
                let named =
                    |tenant: &&Arc<Tenant>| name.as_ref().is_none_or(|name| tenant.name == *name);
                if filter
                    .state
                    .is_some_and(|state| state != TenantState::Admitted)
                {
                    // Few tenants are in these states.
                    let ids = self.standings.not_admitted_after(from);
                    let all = ids.filter_map(|id| self.tenant(id));
                    return page(all.filter(is_in_state).filter(named), limit);
                }
                let range = (Bound::Excluded(from), Bound::Unbounded);
                let all = self.tenants.range(range).map(|(_, tenant)| tenant);
                page(all.filter(is_in_state).filter(named), limit)
            }
        }
    }

    /// Returns whether a request would be admitted now, and where. Nothing is reserved.
    pub fn fit(&self, request: &Request) -> Result<Explanation, LedgerError> {
        let request = &self.datacentre.topology().with_class(*request);
        match self.datacentre.fit(request) {
            Ok(placement) => Ok(self.fits(&placement)),
            Err(AdmitError::NoPlacement(error)) => Ok(Explanation {
                fits: false,
                hosts: Vec::new(),
                refusal: Some(error.to_string()),
                overload: None,
                nearest: Vec::new(),
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the same, and if the request would be refused, why and which requests would be
    /// admitted. Takes as long as some fifty decisions.
    pub fn explain(&self, request: &Request) -> Result<Explanation, LedgerError> {
        let request = &self.datacentre.topology().with_class(*request);
        let Some(report) = self.datacentre.explain(request)? else {
            return self.fit(request);
        };
        let nearest = report.nearest.iter().map(|adjustment| Nearest {
            change: adjustment.to_string(),
            request: adjustment.apply_in(self.datacentre.topology(), request),
        });
        Ok(Explanation {
            fits: false,
            hosts: Vec::new(),
            refusal: Some(report.error.to_string()),
            overload: report.overload.as_ref().map(|found| {
                let topology = self.datacentre.topology();
                overload(found, topology.port(found.port))
            }),
            nearest: nearest.collect(),
        })
    }

    fn fits(&self, placement: &Placement) -> Explanation {
        Explanation {
            fits: true,
            hosts: self.placed(placement),
            refusal: None,
            overload: None,
            nearest: Vec::new(),
        }
    }

    pub(super) fn placed(&self, placement: &Placement) -> Vec<HostShare> {
        let topology = self.datacentre.topology();
        let hosts = placement.hosts().iter();
        hosts
            .map(|(host, vms)| HostShare {
                host: topology.name(*host).to_owned(),
                vms: *vms,
            })
            .collect()
    }

    /// Returns a host with its machines and ports.
    pub fn host(&self, name: &str) -> Option<Host> {
        let node = self.host_node(name)?;
        let mut host = self.host_in_list(node);
        host.said = self.word(node, true);
        for (id, _) in self.machines_at(node) {
            let Some(tenant) = self.tenants.get(&id) else {
                continue;
            };
            let runs = tenant.runs.iter().filter(|run| *run.host == *name);
            let arrives = tenant.moving.iter().filter(|moving| moving.to == name);
            let all = runs.map(|run| (run.first, run.count));
            let all = all.chain(arrives.map(|moving| (moving.vm, 1)));
            host.vms.extend(all.map(|(first, count)| HostedRun {
                tenant: id,
                owner: tenant.owner.clone(),
                name: tenant.name.clone(),
                first,
                count,
            }));
        }
        host.ports = [Direction::Up, Direction::Down]
            .map(|direction| self.port(PortId { node, direction }))
            .into();
        Some(host)
    }

    /// Returns a page of hosts in the order of the tree, beginning behind `after`.
    ///
    /// # Errors
    /// There is no host `after`.
    pub fn hosts(
        &self,
        state: Option<HostState>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<Host>, LedgerError> {
        let hosts = self.datacentre.topology().hosts();
        let from = match after {
            None => 0,
            Some(name) => {
                let node = self.host_node(name);
                let node = node.ok_or_else(|| LedgerError::NotFound(format!("host {name:?}")))?;
                hosts.partition_point(|host| *host <= node)
            }
        };
        let mut items: Vec<Host> = Vec::new();
        for host in &hosts[from..] {
            if state.is_some_and(|state| state != self.state(*host)) {
                continue;
            }
            if items.len() == limit {
                let next = items.last().map(|host| host.name.clone());
                return Ok(Page { items, next });
            }
            items.push(self.host_in_list(*host));
        }
        Ok(Page { items, next: None })
    }

    /// The classes of the fabric.
    pub fn classes(&self) -> Classes {
        self.datacentre.topology().classes()
    }

    /// Returns the classes of a host's frames, by its report, if they differ from the topology's.
    fn other_classes(&self, host: NodeId) -> Option<Classes> {
        let host_classes = self.last_report(host)?.report.classes();
        host_classes.filter(|classes| *classes != self.classes())
    }

    /// Returns whether there is a host of this name.
    pub fn host_exists(&self, name: &str) -> bool {
        self.host_node(name).is_some()
    }

    /// Returns the tenants with machines on a host, in ascending order; none if the host is
    /// unknown.
    pub fn tenants_at(&self, host: &str) -> Vec<TenantId> {
        let host = self.host_node(host);
        host.map_or_else(Vec::new, |host| self.index.at(host))
    }

    /// Returns the number of the last change of a tenant.
    pub const fn last_change(&self) -> u64 {
        self.next_id.saturating_sub(1)
    }

    /// Returns the names of the other hosts with which a host shares a tenant; `None` if there is no
    /// such host. A moving machine counts on both of its hosts.
    pub fn peers(&self, host: &str) -> Option<BTreeSet<String>> {
        let node = self.host_node(host)?;
        let topology = self.datacentre.topology();
        let mut peers: Vec<NodeId> = Vec::new();
        for id in self.index.at(node) {
            let placed = self.datacentre.tenant(id);
            let hosts = placed.map_or(&[][..], |tenant| tenant.placement.hosts());
            peers.extend(hosts.iter().map(|(host, _)| *host));
        }
        peers.sort_unstable();
        peers.dedup();
        let others = peers.into_iter().filter(|peer| *peer != node);
        Some(others.map(|peer| topology.name(peer).to_owned()).collect())
    }

    /// Returns the guarantees of the machines on a host.
    pub fn guarantees(&self, host: &str) -> Option<HostGuarantees> {
        let node = self.host_node(host)?;
        let mut vms: Vec<(&Tenant, u32, Option<MoveEnd>)> = Vec::new();
        for (id, _) in self.machines_at(node) {
            let Some(tenant) = self.tenants.get(&id) else {
                continue;
            };
            let runs = tenant.runs.iter().filter(|run| *run.host == *host);
            let numbers = runs.flat_map(|run| run.first..run.first + run.count);
            let moving = tenant.moving.as_ref();
            vms.extend(numbers.map(|number| {
                let leaves = moving.is_some_and(|moving| moving.vm == number);
                (&**tenant, number, leaves.then_some(MoveEnd::Leaves))
            }));
            let arrives = moving.filter(|moving| moving.to == host);
            vms.extend(arrives.map(|moving| (&**tenant, moving.vm, Some(MoveEnd::Arrives))));
        }
        vms.sort_by_key(|(tenant, number, _)| (&tenant.owner, &tenant.name, *number));
        let places = places(self, vms.iter().map(|(tenant, ..)| *tenant));
        let vms = vms.into_iter().map(|(tenant, number, moves)| VmGuarantee {
            vm: format!("{}/{}/{number}", tenant.owner, tenant.name),
            tenant: tenant.id,
            tenant_vms: tenant.request.vms,
            guarantee: enforceable(self, node, tenant),
            cpu_reservation: tenant.request.cpu_reservation,
            limit: tenant.limit,
            moves,
        });
        Some(HostGuarantees {
            host: host.to_owned(),
            state: self.state(node),
            revision: self.log.revision,
            change: self.last_change(),
            classes: self.datacentre.topology().classes(),
            delay_classes: self.datacentre.topology().delay_classes().to_vec(),
            vms: vms.collect(),
            places,
        })
    }

    /// Returns how long a frame takes at most from one machine of a tenant to another.
    ///
    /// # Errors
    /// There is no such tenant or machine, or the fabric bounds nothing.
    pub fn bound(&self, id: TenantId, from: u32, to: u32) -> Result<PairBound, LedgerError> {
        let missing = || LedgerError::NotFound(format!("tenant {}", id.0));
        let tenant = self.tenant(id).ok_or_else(missing)?;
        let (one, other) = (self.machine(tenant, from)?, self.machine(tenant, to)?);
        let topology = self.datacentre.topology();
        let fabric = topology.classes().fabric();
        if !fabric.promises_delays() {
            return Err(PlacementError::Fabric { fabric }.into());
        }
        let class = tenant.request.class();
        let of_class = topology.of_class(class).unwrap_or(topology);
        let path = topology.path(one, other).into_iter();
        let ports: Vec<PortState> = path
            .map(|port| port_state(&self.datacentre, class, port))
            .collect();
        let now = ports.iter().map(|port| port.bound_ns);
        let capacity = of_class.delay(one, other);
        Ok(PairBound {
            from,
            to,
            from_host: topology.name(one).to_owned(),
            to_host: topology.name(other).to_owned(),
            class,
            promised: tenant.request.guarantee.and_then(|given| given.delay),
            capacity,
            now: Nanos(now.fold(0, u64::saturating_add).min(NO_END)),
            message: self.message_bound(tenant, [one, other], capacity),
            ports,
        })
    }

    pub(super) fn machine(&self, tenant: &Tenant, number: u32) -> Result<NodeId, LedgerError> {
        let host = runs::host_of(&tenant.runs, number);
        host.and_then(|host| self.node(host)).ok_or_else(|| {
            let Tenant { owner, name, .. } = tenant;
            LedgerError::NotFound(format!("machine {owner}/{name}/{number}"))
        })
    }

    /// Returns a port and what is promised over it, to frames of the ordinary class.
    pub fn port(&self, id: PortId) -> PortState {
        port_state(&self.datacentre, None, id)
    }

    /// Returns whether a host is open, drained or failed.
    pub fn state(&self, host: NodeId) -> HostState {
        if !self.datacentre.is_closed(host) {
            return HostState::Open;
        }
        let name = self.datacentre.topology().name(host);
        self.hosts.get(name).copied().unwrap_or_default()
    }

    /// Returns the number of machines on a host.
    pub fn used(&self, host: NodeId) -> u32 {
        self.machines_at(host).map(|(_, count)| count).sum()
    }

    /// Returns the tenants with machines on a host in ascending order, and how many each has
    /// there.
    pub fn machines_at(&self, host: NodeId) -> impl Iterator<Item = (TenantId, u32)> {
        self.index.at(host).into_iter().map(move |id| {
            let count = self.datacentre.tenant(id).and_then(|tenant| {
                let hosts = tenant.placement.hosts();
                let place = hosts.binary_search_by_key(&host, |(host, _)| *host);
                place.ok().map(|place| hosts[place].1)
            });
            (id, count.unwrap_or(0))
        })
    }

    /// Returns a summary of the service and the data centre.
    pub fn status(&self, role: Role, leader: Option<String>) -> Status {
        let topology = self.datacentre.topology();
        let hosts = topology.hosts().len() as u64;
        let (pending, degraded) = self.not_admitted();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            role,
            leader,
            revision: self.log.revision,
            policy: self.topology.policy,
            tenants: self.tenants.len() as u64,
            pending,
            degraded,
            hosts,
            open_hosts: hosts - self.hosts.len() as u64,
            slots: u64::from(topology.resources(NodeId::TOP).slots),
            used: self.used,
        }
    }

    pub(super) fn host_node(&self, name: &str) -> Option<NodeId> {
        let topology = self.datacentre.topology();
        self.node(name).filter(|node| topology.is_host(*node))
    }

    fn host_in_list(&self, node: NodeId) -> Host {
        let topology = self.datacentre.topology();
        Host {
            name: topology.name(node).to_owned(),
            path: path(self, node),
            state: self.state(node),
            slots: topology.resources(node).slots,
            used: self.used(node),
            other_classes: self.other_classes(node),
            lateness: topology.lateness(node),
            reserved_cpu: self.datacentre.reserved(node),
            said: self.word(node, false),
            vms: Vec::new(),
            ports: Vec::new(),
        }
    }
}

fn page<'a>(mut all: impl Iterator<Item = &'a Arc<Tenant>>, limit: usize) -> Page<Arc<Tenant>> {
    let items: Vec<Arc<Tenant>> = all.by_ref().take(limit).cloned().collect();
    let last = items.last().map(|tenant| tenant.id.0.to_string());
    let next = last.filter(|_| all.next().is_some());
    Page { items, next }
}

fn line(curve: &tailbound_placement::AffineCurve) -> Line {
    Line {
        rate_bit_s: curve.rate,
        burst_bits: curve.burst,
    }
}

fn overload(overload: &tailbound_placement::PortOverload, port: &Port) -> Overload {
    let lines = |load: &tailbound_placement::Load| load.curves().iter().map(line).collect();
    Overload {
        port: overload.name.clone(),
        message: overload.to_string(),
        rate_bit_s: overload.rate,
        room_bytes: overload.backlog_limit / 8,
        backlog_bytes: overload.backlog.map(|bits| bits.div_ceil(8)),
        capacity_ns: overload.capacity.0,
        late_ns: overload.late().map(|late| late.0),
        carried: lines(&overload.carried),
        added: lines(&overload.added),
        feed: port.feed.as_ref().map(line),
    }
}

/// Returns a tenant's guarantee as a host receives it. A host of an earlier version knows no
/// number of bursts: with one burst for each receiver it gets none, and with fewer it gets no
/// guarantee, because it would send more than admission counts. A host whose pacer limits no inward
/// bursts gets no guarantee of a tenant with an inward burst, and one without delay classes none of a
/// tenant of such a class.
fn enforceable(ledger: &Ledger, host: NodeId, tenant: &Tenant) -> Option<Guarantee> {
    let guarantee = tenant.request.guarantee?;
    let limits = ledger
        .last_report(host)
        .map(|last_report| last_report.report.limits);
    if guarantee.burst_in.is_some() {
        let keeps = limits.map_or(KEEPS_INWARD_BURSTS, |limits| {
            limits.is_some_and(|limits| limits.inward_bursts)
        });
        if !keeps {
            return None;
        }
    }
    if guarantee.class.is_some() {
        let keeps = limits.map_or(KEEPS_DELAY_CLASSES, |limits| {
            limits.is_some_and(|limits| limits.delay_classes)
        });
        if !keeps {
            return None;
        }
    }
    if !guarantee.counted_bursts().is_per_subtree() {
        return Some(Guarantee {
            bursts: None,
            ..guarantee
        });
    }
    let keeps = limits.is_none_or(|limits| limits.is_some_and(|limits| limits.subtree_bursts));
    keeps.then_some(guarantee)
}

/// Returns the positions of the hosts of all of these tenants that have a number of bursts into
/// each subtree.
fn places<'a>(ledger: &Ledger, tenants: impl Iterator<Item = &'a Tenant>) -> Vec<HostPlace> {
    let limited = tenants.filter(|tenant| {
        let guarantee = tenant.request.guarantee.as_ref();
        guarantee.is_some_and(|guarantee| guarantee.counted_bursts().is_per_subtree())
    });
    // Machines of one tenant stand next to each other.
    let mut last = None;
    let once = limited.filter(|tenant| last.replace(tenant.id) != Some(tenant.id));
    let hosts: BTreeSet<&str> = once.flat_map(Tenant::hosts).collect();
    let places = hosts.into_iter().filter_map(|host| {
        let node = ledger.node(host)?;
        Some(HostPlace {
            host: host.to_owned(),
            path: path(ledger, node),
        })
    });
    places.collect()
}

/// Returns the names of the groups above a node, from the nearest to the highest.
fn path(ledger: &Ledger, node: NodeId) -> Vec<String> {
    let topology = ledger.datacentre.topology();
    let above = std::iter::successors(topology.parent(node), |node| topology.parent(*node));
    let groups = above.filter(|node| *node != NodeId::TOP);
    groups.map(|node| topology.name(node).to_owned()).collect()
}

/// Returns a port and what is promised over it to frames of a class.
fn port_state(datacentre: &Datacentre, class: Option<u8>, id: PortId) -> PortState {
    let topology = datacentre.topology();
    let port = topology.of_class(class).unwrap_or(topology).port(id);
    let bound = bound_of_class(datacentre, class, id);
    PortState {
        name: topology.port_name(id),
        rate_bit_s: port.rate,
        reserved_bit_s: datacentre.load(id).rate(),
        capacity_ns: port.capacity.0,
        bound_ns: bound.map_or(NO_END, |bound| bound.delay.0),
        room_bytes: port.backlog_limit / 8,
        backlog_bytes: bound.map_or(NO_END, |bound| bound.backlog.div_ceil(8)),
        headroom: datacentre.headroom(id),
    }
}
