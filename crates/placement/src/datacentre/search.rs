//! Greedy first fit by height: a host, a rack, a pod, all (Silo 4.2.3).

use super::{Datacentre, Placement, ports::BOTH};
use crate::load::Source;
use crate::request::{Policy, Request};
use crate::topology::{NodeId, PortId, Resources};
use tailbound_units::Nanos;

/// How many ports a decision looks at before it gives up, if not said
/// otherwise; less than half a millisecond.
pub(super) const EFFORT: u32 = 20_000;

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There are not enough slots, CPUs or memory.
    #[error(
        "{wanted} {} not fit: {free} {} free, if CPUs and memory allow",
        if *wanted == 1 { "machine does" } else { "machines do" },
        if *free == 1 { "slot is" } else { "slots are" }
    )]
    Slots {
        /// How many were asked for.
        wanted: u32,
        /// Free slots.
        free: u32,
    },
    /// The tree has no hosts that are near enough to each other.
    #[error(
        "a delay of {limit} cannot be promised: the nearest place with enough slots takes {least}"
    )]
    Delay {
        /// What could be.
        least: Nanos,
        /// What was asked for.
        limit: Nanos,
    },
    /// There are slots, but wherever they are, a port would carry too much.
    #[error("there are slots, but wherever they are, a port's queue may grow over its capacity")]
    Ports,
    /// Slots are there, but not in enough fault domains.
    #[error("the machines cannot be kept apart as asked for")]
    Domains,
    /// Many places were tried; there may be one that was not.
    #[error("no place was found among the first {ports} ports")]
    Effort {
        /// How many were looked at.
        ports: u32,
    },
}

/// The search for one request.
pub(super) struct Search<'a> {
    pub(super) dc: &'a Datacentre,
    pub(super) request: &'a Request,
    pub(super) policy: Policy,
    pub(super) source: Option<Source>,
    /// Below which node all machines are to be.
    pub(super) scope: NodeId,
    /// No host gets more.
    host_limit: u32,
    /// A host is left out if its way up or down takes more than half of this.
    delay_limit: Option<Nanos>,
    /// How many ports it has looked at, and how many it may.
    pub(super) checks: u32,
    pub(super) effort: u32,
    /// Of which height this was asked last, and the answer.
    pub(super) hopeless: Option<(u8, bool)>,
    found: Vec<(NodeId, u32)>,
}

/// The first place for a request by the data centre's rules, and how many ports
/// were looked at for it: few more than `effort` at most.
pub(super) fn fit(
    dc: &Datacentre,
    request: &Request,
    effort: u32,
) -> (Result<Placement, Refusal>, u32) {
    let mut search = Search::new(dc, request, dc.policy);
    search.effort = effort;
    (search.first(), search.checks)
}

/// The nodes that have enough free below them, lowest first.
pub(super) struct Scopes<'a> {
    dc: &'a Datacentre,
    request: &'a Request,
    height: u8,
    rank: usize,
}

impl<'a> Scopes<'a> {
    pub(super) fn new(dc: &'a Datacentre, request: &'a Request) -> Self {
        // Several fault domains are never below one.
        let apart = request.domains.filter(|domains| domains.count > 1);
        Self {
            dc,
            request,
            height: apart.map_or(0, |domains| domains.height.saturating_add(1)),
            rank: 0,
        }
    }

    /// Goes on with higher ones.
    fn skip_height(&mut self) {
        self.height += 1;
        self.rank = 0;
    }

    pub(super) fn next(&mut self) -> Option<NodeId> {
        loop {
            let slots = self.dc.slots.get(usize::from(self.height))?;
            let Some(rank) = slots.next(self.rank, self.request.vms) else {
                self.skip_height();
                continue;
            };
            self.rank = rank + 1;
            let node = self.dc.topology.at_height(self.height)[rank];
            let free = self.dc.free(node);
            let vms = u64::from(self.request.vms);
            // Requests are bounded, so that these products fit.
            if free.cpu >= self.request.cpu * vms && free.memory.0 >= self.request.memory.0 * vms {
                return Some(node);
            }
        }
    }
}

impl Refusal {
    /// Of two reasons the one that is nearer to a success.
    fn nearer(self, other: Self) -> Self {
        let order = |refusal: &Self| match refusal {
            Self::Slots { .. } => 0,
            Self::Delay { .. } => 1,
            Self::Domains => 2,
            Self::Ports => 3,
            Self::Effort { .. } => 4,
        };
        match (self, other) {
            (Self::Delay { least: one, .. }, Self::Delay { least: next, .. }) if one <= next => {
                self
            }
            _ if order(&other) >= order(&self) => other,
            _ => self,
        }
    }
}

impl<'a> Search<'a> {
    pub(super) fn new(dc: &'a Datacentre, request: &'a Request, policy: Policy) -> Self {
        Self {
            dc,
            request,
            policy,
            source: request.source(policy, dc.topology.frame()),
            scope: NodeId::TOP,
            host_limit: u32::MAX,
            delay_limit: None,
            checks: 0,
            effort: dc.effort,
            hopeless: None,
            found: Vec::new(),
        }
    }

    /// All machines below the first scope that takes them, or why not.
    pub(super) fn first(&mut self) -> Result<Placement, Refusal> {
        let mut refusal = self.no_slots();
        let mut scopes = Scopes::new(self.dc, self.request);
        while let Some(scope) = scopes.next() {
            match self.try_scope(scope) {
                Ok(placement) => return Ok(placement),
                Err(effort @ Refusal::Effort { .. }) => return Err(effort),
                Err(Refusal::Ports) if self.is_hopeless() => {
                    refusal = refusal.nearer(Refusal::Ports);
                    scopes.skip_height();
                }
                Err(next) => refusal = refusal.nearer(next),
            }
        }
        Err(refusal)
    }

    /// All machines below `scope`, or why not.
    pub(super) fn try_scope(&mut self, scope: NodeId) -> Result<Placement, Refusal> {
        let vms = self.request.vms;
        self.scope = scope;
        if self.dc.topology.is_host(scope) {
            return if self.dc.room_at(scope, self.request) >= vms {
                Ok(Placement::new([(scope, vms)]))
            } else {
                Err(self.no_slots())
            };
        }
        self.set_delay_limit()?;
        let largest = self
            .dc
            .summary(scope)
            .map_or_else(Resources::default, |it| it.largest);
        if largest.cpu < self.request.cpu || largest.memory < self.request.memory {
            return Err(self.no_slots());
        }
        if self.is_hopeless()
            || self.most_below(scope) < vms
            || self.dc.topology.height(scope) > 1 && self.is_too_small(scope, vms)
        {
            return Err(self.not_here());
        }
        // Full hosts first. Where the last host would get so few that all the
        // others' bursts meet there, equal parts may still do (Silo figure 5).
        let mut limit = largest.slots.min(vms);
        loop {
            self.host_limit = limit;
            self.found.clear();
            if self.fill(scope, vms) == vms {
                return Ok(Placement::new(self.found.drain(..)));
            }
            if self.checks > self.effort {
                return Err(Refusal::Effort { ports: self.checks });
            }
            // Only in a rack: higher up it would be tried in every rack.
            limit -= 1;
            let hosts = self.dc.topology.children(scope).count() as u64;
            let few = u64::from(limit) * hosts < u64::from(vms);
            if self.source.is_none() || self.dc.topology.height(scope) > 1 || few {
                break;
            }
        }
        Err(self.not_here())
    }

    /// Which hosts below the scope are near enough to each other; or none are.
    fn set_delay_limit(&mut self) -> Result<(), Refusal> {
        self.delay_limit = None;
        let limit = self.request.guarantee.and_then(|guarantee| guarantee.delay);
        if let Some(limit) = limit.filter(|_| self.policy == Policy::Silo) {
            let (longest, least) = self.dc.topology.delays_within(self.scope);
            if least > limit {
                return Err(Refusal::Delay { least, limit });
            }
            self.delay_limit = (longest > limit).then_some(limit);
        }
        Ok(())
    }

    fn not_here(&self) -> Refusal {
        if self.source.is_some() && self.policy != Policy::Locality {
            Refusal::Ports
        } else if self.request.domains.is_some() {
            Refusal::Domains
        } else {
            self.no_slots()
        }
    }

    /// The machines in parts as equal as may be on the hosts of a rack, after
    /// [`Self::try_scope`] has found another way.
    pub(super) fn equal_parts(&mut self, rack: NodeId) -> Option<Placement> {
        let hosts = self.dc.topology.children(rack).count() as u32;
        if self.dc.topology.height(rack) != 1 {
            return None;
        }
        self.host_limit = self.request.vms.div_ceil(hosts);
        self.found.clear();
        let all = self.fill(rack, self.request.vms) == self.request.vms;
        all.then(|| Placement::new(self.found.drain(..)))
    }

    /// Sets the node below which all machines are, for [`Self::most_at`].
    pub(super) fn look_below(&mut self, scope: NodeId) {
        self.scope = scope;
    }

    /// The most machines from `least` to `most` that a host's ports may carry;
    /// zero if none.
    pub(super) fn most_at(&mut self, host: NodeId, least: u32, most: u32) -> Result<u32, Refusal> {
        if self.checks > self.effort {
            return Err(Refusal::Effort { ports: self.checks });
        }
        let mut count = most;
        while count >= least && self.checks <= self.effort {
            if self.may_pass(host, count) {
                return Ok(count);
            }
            count -= 1;
        }
        Ok(0)
    }

    fn no_slots(&self) -> Refusal {
        Refusal::Slots {
            wanted: self.request.vms,
            free: self.dc.free(NodeId::TOP).slots,
        }
    }

    /// Places up to `want` machines below a node, so that all its ports and
    /// those below may carry them, and says how many.
    pub(super) fn fill(&mut self, node: NodeId, want: u32) -> u32 {
        let mut want = self.allowed_at(node, want);
        self.checks += 1;
        if want == 0 || self.checks > self.effort {
            return 0;
        }
        if self.dc.topology.is_host(node) {
            return self.fill_host(node, want);
        }
        if node != self.scope {
            want = want.min(self.most_below(node));
        }
        let mark = self.found.len();
        loop {
            if node != self.scope {
                want = self.most_through(node, want);
            }
            if want == 0 {
                return 0;
            }
            let mut placed = 0;
            for child in self.dc.topology.children(node) {
                placed += self.fill(child, want - placed);
                if placed == want {
                    return placed;
                }
            }
            if node == self.scope || placed > 0 && self.may_pass(node, placed) {
                return placed;
            }
            // Fewer than hoped for, and for these few the ports are too small.
            self.found.truncate(mark);
            want = placed.min(want - 1);
        }
    }

    /// How many of `want` may be below a node by its slots and by fault domains.
    pub(super) fn allowed_at(&self, node: NodeId, want: u32) -> u32 {
        let mut want = want.min(self.dc.free(node).slots);
        if self.dc.topology.parent(node) == Some(self.scope) {
            // Below this node alone they were tried before.
            want = want.min(self.request.vms - 1);
        }
        if let Some(domains) = self.request.domains
            && self.is_domain(node, domains.height)
        {
            want = want.min(self.request.vms.div_ceil(domains.count));
        }
        want
    }

    fn fill_host(&mut self, host: NodeId, want: u32) -> u32 {
        if let Some(limit) = self.delay_limit {
            let (up, down) = self.dc.topology.delays(host, self.scope);
            if up.max(down) > Nanos(limit.0 / 2) {
                return 0;
            }
        }
        let room = self.dc.room_at(host, self.request);
        let most = want.min(self.host_limit).min(room);
        let count = self.most_through(host, most);
        if count > 0 {
            self.found.push((host, count));
        }
        count
    }

    /// The largest number that the node's ports may carry, of those tried: few
    /// numbers one by one, many in steps of an eighth.
    fn most_through(&mut self, node: NodeId, most: u32) -> u32 {
        let mut count = most;
        while count > 0 && !self.may_pass(node, count) {
            count -= (count / 8).max(1);
        }
        count
    }

    /// Whether both ports of a node may carry what `count` machines below it
    /// exchange with the others.
    fn may_pass(&mut self, node: NodeId, count: u32) -> bool {
        let Some(source) = self.source else {
            return true;
        };
        BOTH.into_iter().all(|direction| {
            self.checks += 1;
            let port = PortId { node, direction };
            let topology = &self.dc.topology;
            let load = source.at(topology, port, (count, self.request.vms), self.scope);
            let sum = self.dc.load(port).plus(&load);
            self.policy.allows(&sum, topology.port(port))
        })
    }

    /// Whether a node fails as a whole: no higher than `height`, and its parent
    /// is.
    fn is_domain(&self, node: NodeId, height: u8) -> bool {
        let topology = &self.dc.topology;
        topology.height(node) <= height
            && topology
                .parent(node)
                .is_none_or(|parent| topology.height(parent) > height)
    }
}
