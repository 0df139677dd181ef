//! Questions; nothing is changed.

use super::{Denied, Ledger};
use std::ops::Bound;
use std::sync::Arc;
use tailbound_api::{
    Explanation, Host, HostGuarantees, HostState, HostedRun, Line, Nearest, Overload, Page,
    PairBound, Placed, PortState, Role, Run, Status, Tenant, VmGuarantee,
};
use tailbound_placement::{
    AdmitError, Direction, NodeId, Placement, Port, PortId, Request, TenantId,
};
use tailbound_units::Nanos;

/// Which tenants are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantFilter {
    /// Only this owner's.
    pub owner: Option<String>,
    /// Only those of this name.
    pub name: Option<String>,
}

/// Without an end; the largest number that all readers of JSON's integers of 64
/// bits take.
const NO_END: u64 = i64::MAX as u64;

impl Ledger {
    /// A tenant.
    pub fn tenant(&self, id: TenantId) -> Option<&Arc<Tenant>> {
        self.tenants.get(&id)
    }

    /// The owner's tenant of this name.
    pub fn tenant_named(&self, owner: &str, name: &str) -> Option<&Arc<Tenant>> {
        self.tenant(self.owners.find(owner, name)?)
    }

    /// Some tenants in ascending order of their numbers, from the one after
    /// `after` on.
    pub fn tenants(
        &self,
        filter: &TenantFilter,
        after: Option<TenantId>,
        limit: usize,
    ) -> Page<Arc<Tenant>> {
        let from = after.unwrap_or(TenantId(0));
        match (&filter.owner, &filter.name) {
            (Some(owner), Some(name)) => {
                let found = self.tenant_named(owner, name).into_iter();
                page(found.filter(|tenant| tenant.id > from), limit)
            }
            (Some(owner), None) => {
                let ids = self.owners.after(owner, from);
                page(ids.filter_map(|id| self.tenant(id)), limit)
            }
            (None, name) => {
                let range = (Bound::Excluded(from), Bound::Unbounded);
                let all = self.tenants.range(range).map(|(_, tenant)| tenant);
                let named =
                    |tenant: &&Arc<Tenant>| name.as_ref().is_none_or(|name| tenant.name == *name);
                page(all.filter(named), limit)
            }
        }
    }

    /// Whether a request would pass now, and where; nothing is reserved.
    pub fn fit(&self, request: &Request) -> Result<Explanation, Denied> {
        match self.datacentre.fit(request) {
            Ok(placement) => Ok(self.fits(&placement)),
            Err(AdmitError::Refused(refusal)) => Ok(Explanation {
                fits: false,
                hosts: Vec::new(),
                refusal: Some(refusal.to_string()),
                overload: None,
                nearest: Vec::new(),
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// The same, and if it would not pass, why and what would. Takes as long as
    /// some fifty decisions.
    pub fn explain(&self, request: &Request) -> Result<Explanation, Denied> {
        let Some(why) = self.datacentre.explain(request)? else {
            return self.fit(request);
        };
        let nearest = why.nearest.iter().map(|near| Nearest {
            change: near.to_string(),
            request: near.apply(request),
        });
        Ok(Explanation {
            fits: false,
            hosts: Vec::new(),
            refusal: Some(why.refusal.to_string()),
            overload: why.overload.as_ref().map(|found| {
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

    pub(super) fn placed(&self, placement: &Placement) -> Vec<Placed> {
        let topology = self.datacentre.topology();
        let hosts = placement.hosts().iter();
        hosts
            .map(|(host, vms)| Placed {
                host: topology.name(*host).to_owned(),
                vms: *vms,
            })
            .collect()
    }

    /// A host with its machines and ports.
    pub fn host(&self, name: &str) -> Option<Host> {
        let node = self.host_node(name)?;
        let mut host = self.host_in_list(node);
        for (id, _) in self.machines_at(node) {
            let Some(tenant) = self.tenants.get(&id) else {
                continue;
            };
            let runs = tenant.runs.iter().filter(|run| run.host == name);
            host.vms.extend(runs.map(|run| HostedRun {
                tenant: id,
                owner: tenant.owner.clone(),
                name: tenant.name.clone(),
                first: run.first,
                count: run.count,
            }));
        }
        host.ports = [Direction::Up, Direction::Down]
            .map(|direction| self.port(PortId { node, direction }))
            .into();
        Some(host)
    }

    /// Some hosts in the order of the tree, from the one after `after` on.
    ///
    /// # Errors
    /// There is no host `after`.
    pub fn hosts(
        &self,
        state: Option<HostState>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<Host>, Denied> {
        let hosts = self.datacentre.topology().hosts();
        let from = match after {
            None => 0,
            Some(name) => {
                let node = self.host_node(name);
                let node = node.ok_or_else(|| Denied::NotFound(format!("host {name:?}")))?;
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

    /// What is promised to the machines of a host.
    pub fn guarantees(&self, host: &str) -> Option<HostGuarantees> {
        let node = self.host_node(host)?;
        let mut vms: Vec<(&Tenant, u32)> = Vec::new();
        for (id, _) in self.machines_at(node) {
            let Some(tenant) = self.tenants.get(&id) else {
                continue;
            };
            let runs = tenant.runs.iter().filter(|run| run.host == host);
            let numbers = runs.flat_map(|run| run.first..run.first + run.count);
            vms.extend(numbers.map(|number| (&**tenant, number)));
        }
        vms.sort_by_key(|(tenant, number)| (&tenant.owner, &tenant.name, *number));
        let vms = vms.into_iter().map(|(tenant, number)| VmGuarantee {
            vm: format!("{}/{}/{number}", tenant.owner, tenant.name),
            tenant: tenant.id,
            tenant_vms: tenant.request.vms,
            guarantee: tenant.request.guarantee,
        });
        Some(HostGuarantees {
            host: host.to_owned(),
            state: self.state(node),
            revision: self.revision,
            vms: vms.collect(),
        })
    }

    /// How long a frame takes at most from one machine of a tenant to another.
    ///
    /// # Errors
    /// There is no such tenant or machine.
    pub fn bound(&self, id: TenantId, from: u32, to: u32) -> Result<PairBound, Denied> {
        let missing = || Denied::NotFound(format!("tenant {}", id.0));
        let tenant = self.tenant(id).ok_or_else(missing)?;
        let (one, other) = (self.machine(tenant, from)?, self.machine(tenant, to)?);
        let topology = self.datacentre.topology();
        let path = topology.path(one, other);
        let ports: Vec<PortState> = path.into_iter().map(|port| self.port(port)).collect();
        let now = ports.iter().map(|port| port.bound_ns);
        Ok(PairBound {
            from,
            to,
            from_host: topology.name(one).to_owned(),
            to_host: topology.name(other).to_owned(),
            promised: tenant.request.guarantee.and_then(|given| given.delay),
            capacity: topology.delay(one, other),
            now: Nanos(now.fold(0, u64::saturating_add).min(NO_END)),
            ports,
        })
    }

    fn machine(&self, tenant: &Tenant, number: u32) -> Result<NodeId, Denied> {
        let holds = |run: &&Run| (run.first..run.first + run.count).contains(&number);
        let run = tenant.runs.iter().find(holds);
        run.and_then(|run| self.node(&run.host)).ok_or_else(|| {
            let Tenant { owner, name, .. } = tenant;
            Denied::NotFound(format!("machine {owner}/{name}/{number}"))
        })
    }

    /// A port, and what is promised over it.
    pub fn port(&self, id: PortId) -> PortState {
        let topology = self.datacentre.topology();
        let port = topology.port(id);
        let bound = self.datacentre.bound(id);
        PortState {
            name: topology.port_name(id),
            rate_bit_s: port.rate,
            reserved_bit_s: self.datacentre.load(id).rate(),
            capacity_ns: port.capacity.0,
            bound_ns: bound.map_or(NO_END, |bound| bound.delay.0),
            room_bytes: port.room / 8,
            backlog_bytes: bound.map_or(NO_END, |bound| bound.backlog.div_ceil(8)),
            headroom: self.datacentre.headroom(id),
        }
    }

    /// Whether a host gets machines.
    pub fn state(&self, host: NodeId) -> HostState {
        if !self.datacentre.is_closed(host) {
            return HostState::Open;
        }
        let name = self.datacentre.topology().name(host);
        self.hosts.get(name).copied().unwrap_or_default()
    }

    /// How many machines a host has.
    pub fn used(&self, host: NodeId) -> u32 {
        self.machines_at(host).map(|(_, count)| count).sum()
    }

    /// The tenants with machines on a host, in ascending order, and how many
    /// each has there.
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

    /// The service and the data centre in short.
    pub fn status(&self, role: Role, leader: Option<String>) -> Status {
        let topology = self.datacentre.topology();
        let hosts = topology.hosts().len() as u64;
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            role,
            leader,
            revision: self.revision,
            policy: self.topology.policy,
            tenants: self.tenants.len() as u64,
            hosts,
            open_hosts: hosts - self.hosts.len() as u64,
            slots: u64::from(topology.resources(NodeId::TOP).slots),
            used: self.used,
        }
    }

    fn host_node(&self, name: &str) -> Option<NodeId> {
        let topology = self.datacentre.topology();
        self.node(name).filter(|node| topology.is_host(*node))
    }

    fn host_in_list(&self, node: NodeId) -> Host {
        let topology = self.datacentre.topology();
        let above = std::iter::successors(topology.parent(node), |node| topology.parent(*node));
        Host {
            name: topology.name(node).to_owned(),
            path: above
                .filter(|node| *node != NodeId::TOP)
                .map(|node| topology.name(node).to_owned())
                .collect(),
            state: self.state(node),
            slots: topology.resources(node).slots,
            used: self.used(node),
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

fn line(line: &tailbound_placement::Line) -> Line {
    Line {
        rate_bit_s: line.rate,
        burst_bits: line.burst,
    }
}

fn overload(overload: &tailbound_placement::Overload, port: &Port) -> Overload {
    let lines = |load: &tailbound_placement::Load| {
        let lines = load.lines().iter();
        lines.map(line).collect()
    };
    Overload {
        port: overload.name.clone(),
        message: overload.to_string(),
        rate_bit_s: overload.rate,
        room_bytes: overload.room / 8,
        backlog_bytes: overload.backlog.map(|bits| bits.div_ceil(8)),
        capacity_ns: overload.capacity.0,
        late_ns: overload.late().map(|late| late.0),
        carried: lines(&overload.carried),
        added: lines(&overload.added),
        feed: port.feed.as_ref().map(line),
    }
}
