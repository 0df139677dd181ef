//! Exhaustive search for a placement among few hosts. It finds placements that first fit misses, or
//! proves that there is none.
//!
//! The tree is walked host by host, and the numbers of machines on each host are tried from the
//! largest down. As soon as all hosts below a node have their numbers, both ports of the node are
//! checked, with the paths that exist between the machines so far: a port that is overloaded then
//! stays overloaded. At the end all ports are checked once more, with all paths. The result for a
//! port's load is cached. A number is skipped if the remaining hosts, racks and pods cannot take
//! the remaining machines within their own ports' limits.

use super::classes::{Classes, Links};
use super::ports::{BOTH, Crossing, Cut};
use super::totals::Totals;
use super::{Datacentre, Placement};
use crate::load::{Source, Wait};
use crate::request::{Policy, Request};
use crate::topology::{Direction, NodeId, PortId};
use std::collections::HashMap;
use tailbound_units::Nanos;

/// Limit on the hosts with room among which all placements are tried: the number of bits in a mask.
const HOSTS: usize = 64;
/// Largest request, in machines, for which the sums of hosts, racks and pods are computed: the time
/// is proportional to the square of the number.
const MACHINES: u32 = 4_096;

/// Result of the search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A place that keeps every promise.
    Found(Placement),
    /// No placement exists: all were tried.
    Nowhere,
    /// No placement was found. All were tried, and some were refused only by the approximate curves
    /// of a port's tenants.
    Unproved,
    /// The effort ended before all were tried.
    GaveUp,
    /// The number of hosts with room is above the limit.
    TooMany,
}

/// Effort of this search as a multiple of first fit's: it is the last search.
const TIMES: u32 = 10;

/// Tries every placement for a request that keeps the machines of `base` where they are. Also
/// returns the number of checks of ports and hosts, hardly more than ten times `effort`.
pub(super) fn search(
    dc: &Datacentre,
    request: &Request,
    base: &Placement,
    effort: u32,
) -> (Outcome, u32) {
    let effort = effort.saturating_mul(TIMES);
    let Some(mut all) = Complete::new(dc, request, base, effort) else {
        return (Outcome::TooMany, 0);
    };
    all.walk(0, request.vms);
    let outcome = match all.best.take() {
        Some(placement) => Outcome::Found(placement),
        None if all.looks > effort => Outcome::GaveUp,
        None if dc.are_all_over(dc.topology.rank(request.class()), &all.refused()) => {
            Outcome::Nowhere
        }
        None => Outcome::Unproved,
    };
    (outcome, all.looks)
}

/// A node with hosts that may take machines.
#[derive(Debug, Clone)]
struct Site {
    node: NodeId,
    /// The place of its parent; its own of the top.
    parent: usize,
    /// Limit on the machines of its fault domain.
    most: u32,
    /// Number of machines below it so far.
    below: u32,
    /// The longest way of these up to its port.
    up: Wait,
}

/// A host that may take machines.
#[derive(Debug, Clone)]
struct Candidate {
    host: NodeId,
    site: usize,
    /// Number of machines that it has and keeps.
    least: u32,
    /// Upper bound on its machines from its own limits.
    most: u32,
    /// Candidates (by bit) whose paths to this one are short enough.
    near: u64,
    /// The candidate before it, if both are interchangeable.
    same: Option<usize>,
    /// Upper bound on the machines of all candidates after it, computed before the walk.
    after: Totals,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    /// Chooses the number of machines of a candidate.
    Choose(usize),
    /// Check the ports of a site when all hosts below have their machines.
    Close(usize),
}

struct Complete<'a> {
    dc: &'a Datacentre,
    source: Option<Source>,
    request: &'a Request,
    base: &'a Placement,
    sites: Vec<Site>,
    candidates: Vec<Candidate>,
    steps: Vec<Step>,
    chosen: Vec<u32>,
    /// The candidates that have machines.
    placed: u64,
    /// Cached results: whether a port of a site may carry this number of senders with this waiting
    /// time before the port.
    known: HashMap<(PortId, u32, Wait), bool>,
    looks: u32,
    effort: u32,
    best: Option<Placement>,
}

impl<'a> Complete<'a> {
    /// Returns None if too many hosts have room.
    fn new(
        dc: &'a Datacentre,
        request: &'a Request,
        base: &'a Placement,
        effort: u32,
    ) -> Option<Self> {
        let hosts = hosts_with_room(dc, request, base)?;
        let mut new = Self {
            dc,
            source: request.source(dc.policy, &dc.topology),
            request,
            base,
            sites: Vec::new(),
            candidates: Vec::with_capacity(hosts.len()),
            steps: Vec::new(),
            chosen: vec![0; hosts.len()],
            placed: 0,
            known: HashMap::new(),
            looks: 0,
            effort,
            best: None,
        };
        let mut above: Vec<NodeId> = hosts.clone();
        for host in &hosts {
            let mut at = *host;
            while let Some(parent) = dc.topology.parent(at) {
                above.push(parent);
                at = parent;
            }
        }
        above.sort_unstable();
        above.dedup();
        new.add(NodeId::TOP, 0, &above);
        new.set_near();
        new.set_same();
        new.set_most();
        new.set_after();
        Some(new)
    }

    /// Adds a node with what is below it, of the `above` ones.
    fn add(&mut self, node: NodeId, parent: usize, above: &[NodeId]) {
        let site = self.sites.len();
        let domains = self.request.domains;
        let domains = domains.filter(|it| self.dc.is_domain(node, it.height));
        self.sites.push(Site {
            node,
            parent,
            most: domains.map_or(u32::MAX, |it| it.most(self.request.vms)),
            below: 0,
            up: self.dc.topology.wait_of_timers(node),
        });
        if self.dc.topology.is_host(node) {
            let least = self.kept_on(node);
            let fits = self.dc.vms_that_fit(node, self.request);
            self.steps.push(Step::Choose(self.candidates.len()));
            self.candidates.push(Candidate {
                host: node,
                site,
                least,
                most: fits.max(least).min(self.request.vms),
                near: u64::MAX,
                same: None,
                after: Totals::only(0, 0),
            });
        } else {
            let range = self.dc.topology.child_range(node);
            let first = above.partition_point(|node| node.0 < range.start);
            let end = above.partition_point(|node| node.0 < range.end);
            for child in &above[first..end] {
                self.add(*child, site, above);
            }
        }
        self.steps.push(Step::Close(site));
    }

    fn kept_on(&self, host: NodeId) -> u32 {
        let mut hosts = self.base.hosts().iter();
        hosts.find(|base| base.0 == host).map_or(0, |base| base.1)
    }

    /// Sets which candidates are near enough to each other.
    fn set_near(&mut self) {
        let limit = self.request.guarantee.and_then(|guarantee| guarantee.delay);
        let Some(limit) = limit.filter(|_| self.dc.policy() == Policy::Silo) else {
            return;
        };
        let hosts: Vec<NodeId> = self.candidates.iter().map(|it| it.host).collect();
        let topology = self.dc.topology.of_request(self.request);
        for candidate in &mut self.candidates {
            candidate.near = 0;
            for (bit, other) in hosts.iter().enumerate() {
                let there = topology.delay(candidate.host, *other);
                let back = topology.delay(*other, candidate.host);
                candidate.near |= u64::from(there.max(back) <= limit) << bit;
            }
        }
    }

    /// Marks candidates that are interchangeable with their predecessors.
    fn set_same(&mut self) {
        let dc = self.dc;
        let is_same = |one: &Candidate, other: &Candidate| {
            let (a, b) = (one.host, other.host);
            dc.topology.parent(a) == dc.topology.parent(b)
                && (one.least, one.most) == (other.least, other.most)
                && dc.topology.lateness(a) == dc.topology.lateness(b)
                && dc.free(a) == dc.free(b)
                && dc.offer(a) == dc.offer(b)
                && dc.promised(a) == dc.promised(b)
                && dc.host_cpu(a) == dc.host_cpu(b)
                && dc.reserved(a) == dc.reserved(b)
                && BOTH.into_iter().all(|direction| {
                    let [a, b] = [a, b].map(|node| PortId { node, direction });
                    let mut classes = 0..=Classes(dc).lowest();
                    dc.topology.port(a) == dc.topology.port(b)
                        && classes.all(|it| Classes(dc).sum(it, a) == Classes(dc).sum(it, b))
                })
        };
        for index in 1..self.candidates.len() {
            let [one, other] = [&self.candidates[index - 1], &self.candidates[index]];
            self.candidates[index].same = is_same(one, other).then_some(index - 1);
        }
    }

    /// Lowers what each host may get to what its own ports may carry, wherever the others are.
    fn set_most(&mut self) {
        for index in 0..self.candidates.len() {
            let Candidate {
                site, least, most, ..
            } = self.candidates[index];
            let passes = (least + 1..=most).rev().find(|count| {
                *count == self.request.vms
                    || self.looks > self.effort
                    || self.may_pass(site, *count, Wait::default())
            });
            self.candidates[index].most = passes.unwrap_or(least);
        }
    }

    /// Sets what the candidates after each may get together: hosts by themselves, and sites of
    /// which none is chosen yet as their own ports let them, wherever the others are.
    fn set_after(&mut self) {
        let vms = self.request.vms;
        if vms > MACHINES {
            let mut rest = 0_u32;
            for candidate in self.candidates.iter_mut().rev() {
                candidate.after = Totals::range(0..=rest, vms);
                rest = rest.saturating_add(candidate.most);
            }
            return;
        }
        let mut own = vec![Totals::only(0, vms); self.sites.len()];
        for candidate in &self.candidates {
            own[candidate.site] = Totals::range(candidate.least..=candidate.most, vms);
        }
        for site in (1..self.sites.len()).rev() {
            let Site {
                node, parent, most, ..
            } = self.sites[site];
            let is_host = self.dc.topology.is_host(node);
            let mut totals = own[site].clone();
            totals.retain(|below| {
                below == 0
                    || below == vms
                    || self.looks > self.effort
                    || below <= most && (is_host || self.may_pass(site, below, Wait::default()))
            });
            own[parent] = own[parent].plus(&totals);
            own[site] = totals;
        }
        self.follow(0, Totals::only(0, vms), &own);
    }

    /// Sets it below a site, behind which there is `after`.
    fn follow(&mut self, site: usize, mut after: Totals, own: &[Totals]) {
        if let Some(candidate) = self.candidates.iter_mut().find(|it| it.site == site) {
            candidate.after = after;
            return;
        }
        for child in (site + 1..self.sites.len()).rev() {
            if self.sites[child].parent == site {
                self.follow(child, after.clone(), own);
                after = own[child].plus(&after);
            }
        }
    }

    /// Continues from a step with `left` machines left. Returns whether to stop.
    fn walk(&mut self, step: usize, left: u32) -> bool {
        self.looks += 1;
        if self.looks > self.effort {
            return true;
        }
        match self.steps.get(step) {
            None => left == 0 && self.may_all_pass() && self.is_place(),
            Some(Step::Choose(index)) => self.choose(*index, step, left),
            Some(Step::Close(site)) => self.close(*site, step, left),
        }
    }

    fn choose(&mut self, index: usize, step: usize, left: u32) -> bool {
        let Candidate {
            site,
            least,
            most,
            near,
            same,
            ..
        } = self.candidates[index];
        let most = most
            .min(left)
            .min(same.map_or(u32::MAX, |same| self.chosen[same]));
        let is_near = self.placed & !near == 0;
        let before = self.placed;
        for count in (least..=most).rev() {
            if !self.candidates[index].after.has(left - count) || (count > 0 && !is_near) {
                continue;
            }
            self.chosen[index] = count;
            self.sites[site].below = count;
            self.placed = before | u64::from(count > 0) << index;
            if self.walk(step + 1, left - count) {
                return true;
            }
        }
        self.chosen[index] = 0;
        self.sites[site].below = 0;
        self.placed = before;
        false
    }

    fn close(&mut self, site: usize, step: usize, left: u32) -> bool {
        let Site {
            parent,
            below,
            up,
            most,
            ..
        } = self.sites[site];
        if below == 0 || below == self.request.vms {
            // Its ports carry nothing.
            return below <= most && self.walk_above(site, parent, step, left);
        }
        let waited = self.waited(site);
        if below > most || !self.may_pass(site, below, waited) {
            return false;
        }
        let wait = up.after(self.capacity(self.sites[site].node, Direction::Up));
        let had = self.sites[parent].clone();
        self.sites[parent].below += below;
        self.sites[parent].up = had.up.or(wait);
        let is_done = self.walk(step + 1, left);
        self.sites[parent] = had;
        is_done
    }

    /// Continues above a site whose ports carry nothing.
    fn walk_above(&mut self, site: usize, parent: usize, step: usize, left: u32) -> bool {
        let below = if parent == site {
            0
        } else {
            self.sites[site].below
        };
        self.sites[parent].below += below;
        let is_done = self.walk(step + 1, left);
        self.sites[parent].below -= below;
        is_done
    }

    /// Returns how long those that have a place outside a site may have waited before its port
    /// down.
    fn waited(&self, site: usize) -> Wait {
        let (mut longest, mut down) = (Wait::default(), Nanos::ZERO);
        let mut at = site;
        while self.sites[at].parent != at {
            at = self.sites[at].parent;
            // Nobody comes this way as long as none has a place there.
            if self.sites[at].below > 0 {
                longest = longest.or(self.sites[at].up.after(down));
            }
            down += self.capacity(self.sites[at].node, Direction::Down);
        }
        longest
    }

    /// Returns whether both ports of a site may carry what `below` machines there exchange with
    /// the others, which have waited so long at least.
    fn may_pass(&mut self, site: usize, below: u32, waited: Wait) -> bool {
        let Some(source) = self.source else {
            return true;
        };
        let Site { node, up, .. } = self.sites[site];
        let vms = self.request.vms;
        let rank = self.dc.topology.rank(self.request.class());
        let cut = Cut { below, vms };
        BOTH.into_iter().all(|direction| {
            let port = PortId { node, direction };
            let wait = match direction {
                Direction::Up => up,
                Direction::Down => waited,
            };
            let senders = cut.senders(direction);
            if let Some(known) = self.known.get(&(port, senders, wait)) {
                return *known;
            }
            self.looks += 1;
            let parts = self.dc.topology.port(port).parts;
            let load = source.across(senders, vms, wait, parts);
            let passes = self.dc.policy() == Policy::Locality
                || Classes(self.dc).may_carry(rank, &load, port, Links::Reported);
            self.known.insert((port, senders, wait), passes);
            passes
        })
    }

    /// Returns what ports were found to be too small for.
    fn refused(&self) -> Vec<(PortId, Crossing)> {
        let Some(source) = self.source else {
            return Vec::new();
        };
        let refused = self.known.iter().filter(|(_, passes)| !**passes);
        let crossing = |&(id, senders, waited): &(PortId, u32, Wait)| {
            let parts = self.dc.topology.port(id).parts;
            let vms = self.request.vms;
            let crossing = Crossing {
                source,
                senders,
                vms,
                waited,
                parts,
            };
            (id, crossing)
        };
        refused.map(|(look, _)| crossing(look)).collect()
    }

    /// Returns whether all ports may carry what was chosen.
    fn may_all_pass(&mut self) -> bool {
        let longest = self.longest_waits();
        (0..self.sites.len()).all(|site| {
            let below = self.sites[site].below;
            if below == 0 || below == self.request.vms {
                return true;
            }
            let waited = self.waited_in_all(site, &longest);
            self.may_pass(site, below, waited)
        })
    }

    /// Returns for each site the two longest ways that come up to it from different sites with
    /// machines, and the sites.
    fn longest_waits(&self) -> Vec<[Option<(Nanos, usize)>; 2]> {
        let mut longest = vec![[None; 2]; self.sites.len()];
        for (site, of) in self.sites.iter().enumerate() {
            if of.below == 0 || of.parent == site {
                continue;
            }
            let wait = Some((of.up.time + self.capacity(of.node, Direction::Up), site));
            let [first, second] = &mut longest[of.parent];
            if wait > *first {
                *second = std::mem::replace(first, wait);
            } else {
                *second = wait.max(*second);
            }
        }
        longest
    }

    /// Returns how long those that have a place outside a site may have waited before its port
    /// down, where all have theirs.
    fn waited_in_all(&self, site: usize, longest_waits: &[[Option<(Nanos, usize)>; 2]]) -> Wait {
        let (mut longest, mut down) = (Nanos::ZERO, Nanos::ZERO);
        let mut at = site;
        while self.sites[at].parent != at {
            let parent = self.sites[at].parent;
            let mut beside = longest_waits[parent].into_iter().flatten();
            if let Some((wait, _)) = beside.find(|(_, other)| *other != at) {
                longest = longest.max(wait + down);
            }
            down += self.capacity(self.sites[parent].node, Direction::Down);
            at = parent;
        }
        let topology = &self.dc.topology;
        let mut placed = self.candidates.iter().zip(&self.chosen);
        let late = placed.any(|(candidate, count)| {
            *count > 0
                && topology.lateness(candidate.host).is_some()
                && !topology.is_below(candidate.host, self.sites[site].node)
        });
        Wait {
            time: longest,
            late,
        }
    }

    fn capacity(&self, node: NodeId, direction: Direction) -> Nanos {
        let topology = self.dc.topology.of_request(self.request);
        topology.port(PortId { node, direction }).capacity
    }

    /// Keeps what was chosen if no rule is broken.
    fn is_place(&mut self) -> bool {
        let chosen = self.candidates.iter().zip(&self.chosen);
        let placement = Placement::new(chosen.map(|(candidate, count)| (candidate.host, *count)));
        self.looks += 4 * placement.hosts().len() as u32;
        let checked = self.dc.verify_network(self.request, &placement);
        let checked = checked.and_then(|()| self.dc.verify_links(self.request, &placement));
        self.best = checked.is_ok().then_some(placement);
        self.best.is_some()
    }
}

/// Returns the hosts with room for a machine, and those of `base`, in ascending order; None if
/// they are too many.
fn hosts_with_room(dc: &Datacentre, request: &Request, base: &Placement) -> Option<Vec<NodeId>> {
    let mut hosts: Vec<NodeId> = base.hosts().iter().map(|(host, _)| *host).collect();
    let mut rank = 0;
    let mut seen = 0;
    while let Some(next) = dc.slots[0].next(rank, 1) {
        rank = next + 1;
        seen += 1;
        if seen > HOSTS {
            return None;
        }
        let host = dc.topology.hosts()[next];
        if dc.vms_that_fit(host, request) > 0 {
            hosts.push(host);
        }
    }
    hosts.sort_unstable();
    hosts.dedup();
    (hosts.len() <= HOSTS).then_some(hosts)
}
