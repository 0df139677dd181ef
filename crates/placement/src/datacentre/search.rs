//! Greedy search by height: a host, a rack, a pod, all (Silo 4.2.3).
//!
//! Of the racks with enough free slots, those with the fewest are tried first: best fit, so that others
//! keep room for larger tenants. Racks without any machine come last. Hosts, pods, and the hosts of a rack are tried in order.

use super::classes::{Classes, Links};
use super::complete::{self, Outcome};
use super::index::Room;
use super::known::KnownHosts;
use super::loads::{Key, Loads};
use super::ports::{BOTH, Cut};
use super::{Datacentre, Placement, PlacementError};
use crate::load::{Interval, Waits};
use crate::request::{Policy, Request};
use crate::topology::{NodeId, PortId, Resources};
use tailbound_units::Nanos;

/// Default limit on the ports that a decision checks before it gives up: about a millisecond.
pub(super) const EFFORT: u32 = 20_000;

/// The search for one request.
pub(super) struct Search<'a> {
    pub(super) dc: &'a Datacentre,
    pub(super) request: &'a Request,
    /// The number of classes above the request's.
    pub(super) rank: usize,
    pub(super) policy: Policy,
    /// Load of the request on ports; None without a guarantee.
    pub(super) loads: Option<Loads>,
    /// The node below which all machines have to be.
    pub(super) scope: NodeId,
    /// Limit on the machines of a host.
    host_limit: u32,
    /// Rule that excludes hosts with long paths.
    near: Near,
    /// The number of ports that were looked at, and the most that may be.
    pub(super) checks: u32,
    pub(super) effort: u32,
    pub(super) seen: KnownHosts,
    chosen_hosts: Vec<ChosenHost>,
}

/// Combinations of hosts for which no path between two exceeds a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Near {
    /// All hosts.
    All,
    /// Hosts whose paths to and from the scope take at most half of the limit: any two of them.
    Half(Nanos),
    /// Hosts that are near enough to all hosts chosen before.
    Pairs(Nanos),
}

/// A host that was chosen.
#[derive(Debug, Clone, Copy)]
struct ChosenHost {
    host: NodeId,
    vms: u32,
    /// The longest path to the scope, and from it, of this host and all that were chosen before.
    longest: (Nanos, Nanos),
}

/// Finds a placement for a request by the data centre's rules: the first, or where few hosts have
/// room any. Also returns how often a port was looked at: hardly more than `effort` for the first,
/// and ten times as often for any.
pub(super) fn fit(
    dc: &Datacentre,
    request: &Request,
    effort: u32,
) -> (Result<Placement, PlacementError>, u32) {
    let mut search = Search::new(dc, request, dc.policy);
    search.effort = effort;
    let result = search.first();
    let Err(error @ (PlacementError::Ports | PlacementError::Effort { .. })) = result else {
        return (result, search.checks);
    };
    // What does not fit without a look at any port is refused for that.
    let mut without_ports = Search::new(dc, request, Policy::Locality);
    without_ports.effort = effort;
    if let Err(why @ (PlacementError::Slots { .. } | PlacementError::Domains)) =
        without_ports.first()
    {
        return (Err(why), search.checks);
    }
    let (outcome, looks) = complete::search(dc, request, &Placement::default(), effort);
    let looks = search.checks.saturating_add(looks);
    let result = match outcome {
        Outcome::Found(placement) => Ok(placement),
        Outcome::Nowhere => Err(PlacementError::Ports),
        Outcome::Unproved => Err(PlacementError::Unproved),
        Outcome::GaveUp => Err(PlacementError::Effort { looks }),
        Outcome::TooMany if search.is_impossible() => Err(PlacementError::Ports),
        Outcome::TooMany if error == PlacementError::Ports => Err(PlacementError::Unfound),
        Outcome::TooMany => Err(error),
    };
    (result, looks)
}

/// Height of the nodes of which those with the fewest free slots are tried first: racks.
const TIGHTEST_FIRST: u8 = 1;

/// The nodes that have enough free below them, lowest first.
pub(super) struct Scopes<'a> {
    dc: &'a Datacentre,
    request: &'a Request,
    height: u8,
    /// The last node of this height.
    last: Option<Room>,
}

impl<'a> Scopes<'a> {
    pub(super) fn new(dc: &'a Datacentre, request: &'a Request) -> Self {
        // Several fault domains are never below one.
        let apart = request.domains.filter(|domains| domains.count > 1);
        Self {
            dc,
            request,
            height: apart.map_or(0, |domains| domains.height.saturating_add(1)),
            last: None,
        }
    }

    /// Continues with the next height.
    fn skip_height(&mut self) {
        self.height += 1;
        self.last = None;
    }

    pub(super) fn next(&mut self) -> Option<NodeId> {
        loop {
            let slots = self.dc.slots.get(usize::from(self.height))?;
            let least = self.request.vms;
            let next = if self.height == TIGHTEST_FIRST {
                slots.next_tightest(self.last, least)
            } else {
                slots.next_room(self.last, least)
            };
            let Some(next) = next else {
                self.skip_height();
                continue;
            };
            self.last = Some(next);
            let node = self.dc.topology.at_height(self.height)[next.index as usize];
            let free = self.dc.free(node);
            let vms = u64::from(self.request.vms);
            // Requests are bounded, so that these products fit.
            if free.cpu >= self.request.cpu * vms && free.memory.0 >= self.request.memory.0 * vms {
                return Some(node);
            }
        }
    }
}

impl<'a> Search<'a> {
    pub(super) fn new(dc: &'a Datacentre, request: &'a Request, policy: Policy) -> Self {
        let source = request.source(policy, &dc.topology);
        Self {
            dc,
            request,
            rank: dc.topology.rank(request.class()),
            policy,
            loads: source.map(|source| Loads::new(source, request.vms)),
            scope: NodeId::TOP,
            host_limit: u32::MAX,
            near: Near::All,
            checks: 0,
            effort: dc.effort,
            seen: KnownHosts::default(),
            chosen_hosts: Vec::new(),
        }
    }

    /// Places all machines below the first scope that takes them, or returns why none does.
    pub(super) fn first(&mut self) -> Result<Placement, PlacementError> {
        let mut error = self.no_slots();
        let mut scopes = Scopes::new(self.dc, self.request);
        while let Some(scope) = scopes.next() {
            // Its summary, at least.
            self.checks += 2;
            if self.checks > self.effort {
                return Err(PlacementError::Effort { looks: self.checks });
            }
            match self.try_scope(scope) {
                Ok(placement) => return Ok(placement),
                Err(effort @ PlacementError::Effort { .. }) => return Err(effort),
                Err(PlacementError::Ports) if self.is_hopeless() => {
                    error = error.nearer(PlacementError::Ports);
                    scopes.skip_height();
                }
                Err(next) => error = error.nearer(next),
            }
        }
        Err(error)
    }

    /// Places all machines below `scope`, or returns why it does not take them.
    pub(super) fn try_scope(&mut self, scope: NodeId) -> Result<Placement, PlacementError> {
        let vms = self.request.vms;
        self.scope = scope;
        if self.dc.topology.is_host(scope) {
            return if self.dc.vms_that_fit(scope, self.request) >= vms {
                Ok(Placement::new([(scope, vms)]))
            } else {
                Err(self.no_slots())
            };
        }
        self.set_near()?;
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
        if let Some(placement) = self.try_hosts(largest.slots.min(vms))? {
            return Ok(placement);
        }
        if let Near::Half(limit) = self.near {
            self.near = Near::Pairs(limit);
            if let Some(placement) = self.try_hosts(largest.slots.min(vms))? {
                return Ok(placement);
            }
        }
        Err(self.not_here())
    }

    /// Places all machines on the hosts below the scope, no more than `limit` on one.
    fn try_hosts(&mut self, mut limit: u32) -> Result<Option<Placement>, PlacementError> {
        let (scope, vms) = (self.scope, self.request.vms);
        // Full hosts first. Where the last host would get so few that all the
        // others' bursts meet there, equal parts may still do (Silo figure 5).
        loop {
            self.host_limit = limit;
            self.chosen_hosts.clear();
            let placed = self.fill(scope, vms);
            if placed == vms {
                return Ok(Some(self.take_found()));
            }
            if self.checks > self.effort {
                return Err(PlacementError::Effort { looks: self.checks });
            }
            if vms - placed >= limit {
                // Each host had as many as its ports carry.
                return Ok(None);
            }
            // Only in a rack: higher up it would be tried in every rack.
            limit -= 1;
            let hosts = self.dc.topology.children(scope).count() as u64;
            let few = u64::from(limit) * hosts < u64::from(vms);
            if self.loads.is_none() || self.dc.topology.height(scope) > 1 || few {
                return Ok(None);
            }
        }
    }

    fn take_found(&mut self) -> Placement {
        Placement::new(
            self.chosen_hosts
                .drain(..)
                .map(|host| (host.host, host.vms)),
        )
    }

    /// Sets which hosts below the scope are near enough to each other; an error if none are.
    fn set_near(&mut self) -> Result<(), PlacementError> {
        self.near = Near::All;
        let limit = self.request.guarantee.and_then(|guarantee| guarantee.delay);
        if let Some(limit) = limit.filter(|_| self.policy == Policy::Silo) {
            let (longest, least) = self
                .dc
                .topology
                .of_rank(self.rank)
                .delays_within(self.scope);
            if least > limit {
                return Err(PlacementError::Delay { least, limit });
            }
            if longest > limit {
                self.near = Near::Half(limit);
            }
        }
        Ok(())
    }

    fn not_here(&self) -> PlacementError {
        if self.loads.is_some() && self.policy != Policy::Locality {
            PlacementError::Ports
        } else if self.request.domains.is_some() {
            PlacementError::Domains
        } else {
            self.no_slots()
        }
    }

    /// Places the machines on the hosts of a rack in parts as equal as possible, after
    /// [`Self::try_scope`] has found another placement.
    pub(super) fn equal_parts(&mut self, rack: NodeId) -> Option<Placement> {
        let hosts = self.dc.topology.children(rack).count() as u32;
        if self.dc.topology.height(rack) != 1 {
            return None;
        }
        self.host_limit = self.request.vms.div_ceil(hosts);
        self.chosen_hosts.clear();
        let all = self.fill(rack, self.request.vms) == self.request.vms;
        all.then(|| self.take_found())
    }

    /// Sets the node below which all machines are, for [`Self::most_at`].
    pub(super) fn look_below(&mut self, scope: NodeId) {
        self.scope = scope;
    }

    /// Returns the most machines from `least` to `most` that a host's ports may carry; zero if
    /// none.
    pub(super) fn most_at(
        &mut self,
        host: NodeId,
        least: u32,
        most: u32,
    ) -> Result<u32, PlacementError> {
        if self.checks > self.effort {
            return Err(PlacementError::Effort { looks: self.checks });
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

    fn no_slots(&self) -> PlacementError {
        PlacementError::Slots {
            wanted: self.request.vms,
            free: self.dc.free(NodeId::TOP).slots,
        }
    }

    /// Places up to `want` machines below a node, so that all its ports and those below may carry
    /// them, and returns how many.
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
        let mark = self.chosen_hosts.len();
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
            self.chosen_hosts.truncate(mark);
            want = placed.min(want - 1);
        }
    }

    /// Returns how many of `want` machines may be below a node by its slots and by fault domains.
    pub(super) fn allowed_at(&self, node: NodeId, want: u32) -> u32 {
        let mut want = want.min(self.dc.free(node).slots);
        if self.dc.topology.parent(node) == Some(self.scope) {
            // Below this node alone they were tried before.
            want = want.min(self.request.vms - 1);
        }
        if let Some(domains) = self.request.domains
            && self.dc.is_domain(node, domains.height)
        {
            want = want.min(domains.most(self.request.vms));
        }
        want
    }

    fn fill_host(&mut self, host: NodeId, want: u32) -> u32 {
        let Some(longest) = self.longest_with(host) else {
            return 0;
        };
        let fit = self.dc.vms_that_fit(host, self.request);
        let most = want.min(self.host_limit).min(fit);
        let count = self.most_on(host, most);
        if count > 0 {
            self.chosen_hosts.push(ChosenHost {
                host,
                vms: count,
                longest,
            });
        }
        count
    }

    /// Returns the longest paths to and from the scope with this host added to the chosen ones;
    /// None if it is not near enough.
    fn longest_with(&self, host: NodeId) -> Option<(Nanos, Nanos)> {
        if self.near == Near::All {
            return Some((Nanos::ZERO, Nanos::ZERO));
        }
        let (up, down) = self.dc.topology.of_rank(self.rank).delays(host, self.scope);
        let chosen = self.chosen_hosts.last().map(|found| found.longest);
        let is_near = match (self.near, chosen) {
            (Near::All, _) | (Near::Pairs(_), None) => true,
            (Near::Half(limit), _) => up.max(down) <= Nanos(limit.0 / 2),
            (Near::Pairs(limit), Some((longest_up, longest_down))) => {
                up + longest_down <= limit && longest_up + down <= limit
            }
        };
        let (longest_up, longest_down) = chosen.unwrap_or_default();
        is_near.then(|| (longest_up.max(up), longest_down.max(down)))
    }

    /// Returns the largest number of machines that the node's ports may carry, of those tried:
    /// small numbers one by one, large ones in steps of an eighth.
    pub(super) fn most_through(&mut self, node: NodeId, most: u32) -> u32 {
        if most > 1 && !self.may_any(node, most) {
            return 0;
        }
        let mut count = most;
        while count > 0 && !self.may_pass(node, count) {
            count -= (count / 8).max(1);
        }
        count
    }

    /// Returns false if the ports of a node cannot carry the traffic of any number of machines up to
    /// `most` below it.
    fn may_any(&mut self, node: NodeId, most: u32) -> bool {
        let any = Interval { least: 1, most };
        most >= self.request.vms || self.policy == Policy::Locality || self.may_any_pass(node, any)
    }

    /// Returns whether both ports of a node may carry what `count` machines below it exchange with
    /// the others.
    fn may_pass(&mut self, node: NodeId, count: u32) -> bool {
        let Some(loads) = &mut self.loads else {
            return true;
        };
        if self.policy == Policy::Locality {
            self.checks += 2;
            return true;
        }
        let vms = self.request.vms;
        let cut = Cut { below: count, vms };
        // Bursts of many meet at the port down, which more often is too small.
        for direction in BOTH.into_iter().rev() {
            self.checks += 1;
            let id = PortId { node, direction };
            let topology = self.dc.topology.of_rank(self.rank);
            let load = loads.at_least(Key {
                senders: Interval::point(cut.senders(direction)),
                waits: Waits::point(topology.wait_before(id, self.scope)),
                parts: topology.port(id).parts,
            });
            if !Classes(self.dc).may_carry(self.rank, load, id, Links::Reported) {
                return false;
            }
        }
        true
    }
}
