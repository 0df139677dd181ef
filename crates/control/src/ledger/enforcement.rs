//! States of tenants' guarantees, by the reports of their hosts.
//!
//! A tenant is [`TenantState::Admitted`] while each of its hosts confirms its guarantees,
//! [`TenantState::Pending`] while a confirmation is missing, and [`TenantState::Degraded`] while a
//! host does not enforce a guarantee or is silent. The state follows from the rest of the ledger
//! ([`Ledger::trouble`]); this module caches it for all tenants that are not admitted.

pub(crate) mod faults;

use super::Ledger;
use super::change::ReceivedReport;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use tailbound_api::{
    Classes, Following, HostEnforcement, HostReport, HostWord, RefusedVm, Tenant,
    TenantEnforcement, TenantEvent, TenantState, UnenforcedGuarantee, UnpromisedGuest,
};
use tailbound_placement::{CpuUse, HostOffer, HostRule, NodeId, Placement, Request, TenantId};

/// Limit on the hosts of a tenant that a list or an event names, and on the named guests of a host.
const NAMED: usize = 16;
/// Limit in bytes on the text of a host that is stored with each refusal.
const WORDS: usize = 240;

/// Reports of hosts, and the states of tenants that follow from them.
#[derive(Debug, Clone, Default)]
pub(super) struct TenantStates {
    /// Last reports by node.
    last_reports: Vec<Option<Arc<ReceivedReport>>>,
    /// Reports of hosts that were removed from the topology, by name. A report is in force again
    /// when its host returns, until the host is found to be silent.
    absent: BTreeMap<String, Arc<ReceivedReport>>,
    /// The states of tenants that are not admitted.
    states: BTreeMap<TenantId, TenantState>,
    /// Hosts on which more is promised than they keep in all.
    overfull: BTreeSet<NodeId>,
    /// Tenants whose state was recomputed since the last call of [`Ledger::take_moves`], with their
    /// states before.
    moved: BTreeMap<TenantId, TenantState>,
}

/// Reason why a host does not, or not yet, keep its promises to a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble<'a> {
    Silent,
    Classes { host: Classes, fabric: Classes },
    Unpaced,
    Rule(HostRule),
    Refused(&'a RefusedVm),
    Unheard,
    Behind,
}

impl Trouble<'_> {
    const fn state(self) -> TenantState {
        match self {
            Self::Unheard | Self::Behind => TenantState::Pending,
            Self::Silent
            | Self::Classes { .. }
            | Self::Unpaced
            | Self::Rule(_)
            | Self::Refused(_) => TenantState::Degraded,
        }
    }

    /// Returns whether the trouble concerns a single tenant.
    const fn is_of_a_tenant(self) -> bool {
        matches!(self, Self::Rule(_) | Self::Refused(_) | Self::Behind)
    }
}

impl fmt::Display for Trouble<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent => formatter.write_str("it is silent"),
            Self::Classes { host, fabric } => write!(
                formatter,
                "it marks frames with the classes {host}, and the topology has {fabric}"
            ),
            Self::Unpaced => formatter.write_str("nothing paces its uplink"),
            Self::Rule(rule) => rule.fmt(formatter),
            Self::Refused(refused) => write!(formatter, "{}: {}", refused.vm, refused.why),
            Self::Unheard => formatter.write_str("it has never reported"),
            Self::Behind => formatter.write_str("it has not confirmed the last change yet"),
        }
    }
}

impl TenantStates {
    /// Makes the state for a tree of `nodes` nodes.
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            last_reports: vec![None; nodes],
            ..Self::default()
        }
    }

    /// The number of tenants in each state that is not `Admitted`: pending and degraded.
    fn counts(&self) -> (u64, u64) {
        let degraded = self.states.values();
        let degraded = degraded.filter(|state| **state == TenantState::Degraded);
        let degraded = degraded.count() as u64;
        (self.states.len() as u64 - degraded, degraded)
    }

    /// Returns the tenants above `after` that are not admitted, in ascending order.
    pub(super) fn not_admitted_after(&self, after: TenantId) -> impl Iterator<Item = TenantId> {
        let range = (Bound::Excluded(after), Bound::Unbounded);
        self.states.range(range).map(|(id, _)| *id)
    }

    pub(super) fn state(&self, id: TenantId) -> TenantState {
        let state = self.states.get(&id).copied();
        state.unwrap_or(TenantState::Admitted)
    }

    fn set(&mut self, id: TenantId, state: TenantState) {
        self.moved.entry(id).or_insert_with(|| {
            let before = self.states.get(&id).copied();
            before.unwrap_or(TenantState::Admitted)
        });
        match state {
            TenantState::Admitted => self.states.remove(&id),
            other => self.states.insert(id, other),
        };
    }
}

impl Ledger {
    /// Returns why a host does not keep what a tenant with machines there is promised.
    fn trouble(&self, host: NodeId, tenant: &Tenant) -> Option<Trouble<'_>> {
        let Request {
            guarantee,
            cpu_reservation,
            ..
        } = tenant.request;
        if guarantee.is_none() && cpu_reservation.is_none() {
            return None;
        }
        let last_report = self.last_report(host);
        if let Some(last_report) = last_report
            && let Some(trouble) = self.trouble_of_all(last_report)
            && (guarantee.is_some() || trouble == Trouble::Silent)
        {
            return Some(trouble);
        }
        if let Some(rule) = self.datacentre.broken_rule(host, &tenant.request) {
            return Some(Trouble::Rule(rule));
        }
        let Some(last_report) = last_report else {
            return Some(Trouble::Unheard);
        };
        let refused = &last_report.report.refused;
        let refused = refused.binary_search_by_key(&tenant.id, |refused| refused.tenant);
        if let Ok(place) = refused {
            return Some(Trouble::Refused(&last_report.report.refused[place]));
        }
        (last_report.report.change < tenant.change).then_some(Trouble::Behind)
    }

    /// Returns why a host keeps nothing at all.
    fn trouble_of_all(&self, last_report: &ReceivedReport) -> Option<Trouble<'static>> {
        if last_report.silent_since.is_some() {
            return Some(Trouble::Silent);
        }
        let fabric = self.classes();
        if let Some(host) = last_report.report.classes().filter(|host| *host != fabric) {
            return Some(Trouble::Classes { host, fabric });
        }
        last_report
            .report
            .limits
            .is_none()
            .then_some(Trouble::Unpaced)
    }

    /// Returns the capacity that placement may use by a host's report.
    fn offer_of(&self, last_report: Option<&ReceivedReport>) -> HostOffer {
        let Some(last_report) = last_report else {
            return HostOffer::Unknown;
        };
        match (self.trouble_of_all(last_report), last_report.report.limits) {
            (Some(Trouble::Classes { .. }), _) => HostOffer::Nothing,
            (None, Some(limits)) => HostOffer::Within(limits),
            _ => HostOffer::BestEffort,
        }
    }

    /// Returns the last report of a host.
    pub(super) fn last_report(&self, host: NodeId) -> Option<&Arc<ReceivedReport>> {
        self.standings.last_reports[host.index()].as_ref()
    }

    /// Returns the last report of each host in the topology, by name.
    fn host_reports(&self) -> impl Iterator<Item = (&str, &Arc<ReceivedReport>)> {
        let topology = self.datacentre.topology();
        let hosts = topology.hosts().iter();
        hosts.filter_map(|host| Some((topology.name(*host), self.last_report(*host)?)))
    }

    /// Returns the last reports of all hosts, including hosts that were removed from the topology.
    pub(super) fn all_reports(&self) -> impl Iterator<Item = (&str, &Arc<ReceivedReport>)> {
        let absent = self.standings.absent.iter();
        self.host_reports()
            .chain(absent.map(|(name, last_report)| (name.as_str(), last_report)))
    }

    /// Returns the last report of the host with this name.
    pub(super) fn report_by_name(&self, name: &str) -> Option<&Arc<ReceivedReport>> {
        match self.host_node(name) {
            Some(host) => self.last_report(host),
            None => self.standings.absent.get(name),
        }
    }

    /// Stores a host's report, or removes it.
    pub(super) fn put_report(&mut self, name: &str, last_report: Option<Arc<ReceivedReport>>) {
        let Some(host) = self.host_node(name) else {
            match last_report {
                Some(last_report) => self.standings.absent.insert(name.to_owned(), last_report),
                None => self.standings.absent.remove(name),
            };
            return;
        };
        let offer = self.offer_of(last_report.as_deref());
        self.datacentre.set_offer(host, offer);
        let speaks = last_report
            .as_ref()
            .filter(|last_report| last_report.silent_since.is_none());
        let cpu = speaks.and_then(|last_report| last_report.report.cpu);
        self.datacentre.set_host_cpu(host, cpu);
        self.standings.last_reports[host.index()] = last_report;
        self.note_sum(host);
        for id in self.index.at(host) {
            self.note_state(id);
        }
    }

    /// Records that a tenant was put on these hosts.
    pub(super) fn note_listed(&mut self, id: TenantId, placement: &Placement) {
        self.note_sums(placement);
        self.note_state(id);
    }

    /// Records that a tenant was removed from these hosts.
    pub(super) fn note_unlisted(&mut self, id: TenantId, placement: &Placement) {
        self.note_sums(placement);
        self.standings.set(id, TenantState::Admitted);
    }

    fn note_sums(&mut self, placement: &Placement) {
        for (host, _) in placement.hosts() {
            if self.note_sum(*host) {
                for id in self.index.at(*host) {
                    self.note_state(id);
                }
            }
        }
    }

    /// Checks whether a host keeps the sum of its promises; returns whether the result has changed.
    fn note_sum(&mut self, host: NodeId) -> bool {
        let overfull = &mut self.standings.overfull;
        match self.datacentre.check_all(host) {
            Ok(()) => overfull.remove(&host),
            Err(_) => overfull.insert(host),
        }
    }

    fn note_state(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get(&id) else {
            return;
        };
        let troubles = self
            .hosts_of(id)
            .filter_map(|host| self.trouble(host, tenant));
        let worst = troubles.map(Trouble::state).max();
        self.standings
            .set(id, worst.unwrap_or(TenantState::Admitted));
    }

    fn hosts_of(&self, id: TenantId) -> impl Iterator<Item = NodeId> {
        let tenant = self.datacentre.tenant(id).into_iter();
        tenant.flat_map(|tenant| tenant.placement.hosts().iter().map(|(host, _)| *host))
    }

    /// Replaces this ledger by `next`, which was made anew.
    pub(crate) fn replace_with(&mut self, mut next: Self) {
        let before = std::mem::take(&mut self.standings);
        next.standings.moved = before.moved;
        let all: BTreeSet<TenantId> = [&before.states, &next.standings.states]
            .into_iter()
            .flat_map(|states| states.keys().copied())
            .collect();
        for id in all {
            let state = before.states.get(&id).copied();
            let moved = next.standings.moved.entry(id);
            moved.or_insert(state.unwrap_or(TenantState::Admitted));
        }
        *self = next;
    }

    /// Forgets the recomputed states.
    pub(super) fn forget_moves(&mut self) {
        self.standings.moved.clear();
    }

    /// Takes the tenants whose state has changed since the last call.
    pub(crate) fn take_moves(&mut self) -> Vec<TenantEvent> {
        let moved = std::mem::take(&mut self.standings.moved);
        let moved = moved.into_iter();
        let moved = moved.filter(|(id, before)| self.standings.state(*id) != *before);
        moved.filter_map(|(id, _)| self.event(id)).collect()
    }

    /// Returns the tenants that are degraded now; with `owner`, only the tenants of this owner.
    pub fn degraded(&self, owner: Option<&str>) -> Vec<TenantEvent> {
        let states = self.standings.states.iter();
        let degraded = states.filter(|(_, state)| **state == TenantState::Degraded);
        let events = degraded.filter_map(|(id, _)| self.event(*id));
        events
            .filter(|event| owner.is_none_or(|owner| event.owner == owner))
            .collect()
    }

    fn event(&self, id: TenantId) -> Option<TenantEvent> {
        let tenant = self.tenants.get(&id)?;
        let TenantEnforcement { state, hosts, .. } = self.standing(id, false)?;
        Some(TenantEvent {
            tenant: id,
            owner: tenant.owner.clone(),
            name: tenant.name.clone(),
            state,
            hosts,
        })
    }

    /// Returns how it is with what a tenant is promised: on all of its hosts, or on some of those
    /// that do not keep it.
    pub fn standing(&self, id: TenantId, on_all: bool) -> Option<TenantEnforcement> {
        let tenant = self.tenants.get(&id)?;
        let state = self.standings.state(id);
        let all = self
            .hosts_of(id)
            .map(|host| self.host_standing(host, tenant));
        let hosts = if on_all {
            all.collect()
        } else if state == TenantState::Admitted {
            Vec::new()
        } else {
            all.filter(|host| host.state == state).take(NAMED).collect()
        };
        Some(TenantEnforcement {
            state,
            hosts,
            measured: None,
        })
    }

    fn host_standing(&self, host: NodeId, tenant: &Tenant) -> HostEnforcement {
        let trouble = self.trouble(host, tenant);
        let last_report = self.last_report(host);
        HostEnforcement {
            host: self.datacentre.topology().name(host).to_owned(),
            state: trouble.map_or(TenantState::Admitted, Trouble::state),
            why: trouble.map(|trouble| trouble.to_string()),
            revision: last_report.map(|last_report| last_report.report.revision),
            silent_since: last_report.and_then(|last_report| last_report.silent_since),
        }
    }

    /// Returns a tenant with its standing, as the API has it.
    pub fn with_standing(&self, tenant: &Tenant, on_all: bool) -> Tenant {
        Tenant {
            standing: self.standing(tenant.id, on_all),
            reservations: Vec::new(),
            misfit: false,
            ..tenant.clone()
        }
    }

    /// Returns a host's last report, with all guarantees that it refuses or the first one.
    pub(super) fn word(&self, host: NodeId, all: bool) -> HostWord {
        let most = if all { usize::MAX } else { 1 };
        let refused = self.refused(host, most);
        let last_report = self.last_report(host);
        let report = last_report.map(|last_report| &last_report.report);
        HostWord {
            following: match last_report {
                Some(last_report) if last_report.silent_since.is_some() => Following::Silent,
                _ if !refused.is_empty() => Following::Refuses,
                Some(_) => Following::Follows,
                None => Following::Unheard,
            },
            revision: report.map(|report| report.revision),
            silent_since: last_report.and_then(|last_report| last_report.silent_since),
            limits: report.and_then(|report| report.limits),
            cpu: report.and_then(|report| report.cpu),
            unpromised: match report {
                Some(report) if all => report.unpromised.clone(),
                _ => Vec::new(),
            },
            refused,
        }
    }

    /// Returns what a host does not keep.
    fn refused(&self, host: NodeId, most: usize) -> Vec<UnenforcedGuarantee> {
        let last_report = self.last_report(host);
        match last_report.and_then(|last_report| self.trouble_of_all(last_report)) {
            // Nobody is promised anything that it would not keep.
            Some(Trouble::Unpaced) if !self.promises_on(host) => return Vec::new(),
            Some(trouble) => {
                return vec![UnenforcedGuarantee {
                    tenant: None,
                    why: trouble.to_string(),
                }];
            }
            None => {}
        }
        let tenants = self.index.at(host).into_iter();
        let troubles = tenants.filter_map(|id| {
            let trouble = self.trouble(host, self.tenants.get(&id)?)?;
            let counts = trouble.is_of_a_tenant() && trouble.state() == TenantState::Degraded;
            counts.then(|| UnenforcedGuarantee {
                tenant: Some(id),
                why: trouble.to_string(),
            })
        });
        troubles.take(most).collect()
    }

    fn promises_on(&self, host: NodeId) -> bool {
        self.datacentre.promised(host).0 > 0
    }

    /// Returns the hosts that refuse something or are silent.
    pub(crate) fn troubled(&self) -> BTreeSet<NodeId> {
        let hosts = self.datacentre.topology().hosts().iter().copied();
        let mut troubled: BTreeSet<NodeId> = hosts
            .filter(|host| {
                let last_report = self.last_report(*host);
                match last_report.and_then(|last_report| self.trouble_of_all(last_report)) {
                    Some(Trouble::Unpaced) => self.promises_on(*host),
                    other => other.is_some(),
                }
            })
            .collect();
        for (id, state) in &self.standings.states {
            let Some(tenant) = self.tenants.get(id) else {
                continue;
            };
            if *state == TenantState::Degraded {
                troubled.extend(self.hosts_of(*id).filter(|host| {
                    let trouble = self.trouble(*host, tenant);
                    trouble.is_some_and(|trouble| trouble.state() == TenantState::Degraded)
                }));
            }
        }
        troubled
    }

    /// Returns whether a host follows its guarantees. `is_troubled` is the host's entry in
    /// `troubled`.
    pub(crate) fn following(&self, host: NodeId, is_troubled: bool) -> Following {
        match self.last_report(host) {
            Some(last_report) if last_report.silent_since.is_some() => Following::Silent,
            _ if is_troubled => Following::Refuses,
            Some(_) => Following::Follows,
            None => Following::Unheard,
        }
    }

    /// Returns the number of tenants that are pending, and of those that are degraded.
    pub fn not_admitted(&self) -> (u64, u64) {
        self.standings.counts()
    }

    /// Returns the hosts that have reported and are not silent.
    pub fn speaking(&self) -> impl Iterator<Item = &str> {
        let speaking = self.host_reports();
        let speaking = speaking.filter(|(_, last_report)| last_report.silent_since.is_none());
        speaking.map(|(name, _)| name)
    }

    /// Returns the stored part of a report: entries of tenants with machines on the host, by number
    /// and each once, without future changes.
    pub(super) fn stored_part_of(&self, host: NodeId, report: &HostReport) -> HostReport {
        let here: BTreeSet<TenantId> = self.index.at(host).into_iter().collect();
        let mut refused: BTreeMap<TenantId, RefusedVm> = BTreeMap::new();
        for refusal in report
            .refused
            .iter()
            .filter(|refusal| here.contains(&refusal.tenant))
        {
            refused.entry(refusal.tenant).or_insert_with(|| RefusedVm {
                tenant: refusal.tenant,
                vm: shortened(&refusal.vm),
                why: shortened(&refusal.why),
            });
        }
        let unpromised = report.unpromised.iter().take(NAMED);
        let unpromised = unpromised.map(|unpromised_guest| UnpromisedGuest {
            guest: shortened(&unpromised_guest.guest),
            what: shortened(&unpromised_guest.what),
        });
        HostReport {
            unpromised: unpromised.collect(),
            change: report.change.min(self.last_change()),
            refused: refused.into_values().collect(),
            // What follows is in the tenants.
            arrived: Vec::new(),
            // What was measured lately is of no use later.
            measured: None,
            ..report.clone()
        }
    }

    /// Returns whether a report differs from the last one of its host in more than the revision.
    pub fn is_news(&self, name: &str, report: &HostReport) -> bool {
        let Some(host) = self.host_node(name) else {
            return true;
        };
        let Some(last_report) = self
            .last_report(host)
            .filter(|last_report| last_report.silent_since.is_none())
        else {
            return true;
        };
        let (old, new) = (&last_report.report, self.stored_part_of(host, report));
        if (
            old.classes,
            old.limits,
            old.cpu,
            &old.refused,
            &old.unpromised,
        ) != (
            new.classes,
            new.limits,
            new.cpu,
            &new.refused,
            &new.unpromised,
        ) || self.arrivals(host, report).next().is_some()
        {
            return true;
        }
        self.index.at(host).iter().any(|id| {
            let change = self.tenants.get(id).map(|tenant| tenant.change);
            change.is_some_and(|change| (change <= old.change) != (change <= new.change))
        })
    }

    /// Returns how many hosts follow, refuse, are silent and were never heard, and how many have
    /// other classes.
    pub fn hosts_by_word(&self) -> HostCounts {
        let (troubled, fabric) = (self.troubled(), self.classes());
        let mut counts = HostCounts::default();
        for host in self.datacentre.topology().hosts() {
            *match self.following(*host, troubled.contains(host)) {
                Following::Follows => &mut counts.following,
                Following::Refuses => &mut counts.refusing,
                Following::Silent => &mut counts.silent,
                Following::Unheard => &mut counts.unheard,
            } += 1;
            let reserved = self.datacentre.reserved(*host);
            let keeps = self.datacentre.host_cpu(*host);
            counts.reserved_cpu += reserved.cpu;
            counts.reservable_cpu += keeps.map_or(0, |cpu| cpu.reservable);
            counts.unpromised_cpu += keeps.map_or(0, |cpu| cpu.unpromised.cpu);
            let over = keeps.is_some_and(|cpu| cpu.unpromised != CpuUse::default());
            counts.with_unpromised += u64::from(over);
            let is_short = self.datacentre.check_reserved(*host).is_err();
            counts.short_of_cpu += u64::from(is_short);
            counts.late += u64::from(is_late(self, *host));
            let classes = self
                .last_report(*host)
                .and_then(|last_report| last_report.report.classes());
            counts.other_classes += u64::from(classes.is_some_and(|classes| classes != fabric));
        }
        counts
    }
}

/// Returns whether frames leave a host later than the topology counts with, by its last report.
fn is_late(ledger: &Ledger, host: NodeId) -> bool {
    let speaks = ledger
        .last_report(host)
        .filter(|last_report| last_report.silent_since.is_none());
    let limits = speaks.and_then(|last_report| last_report.report.limits);
    let counted = ledger.datacentre.topology().lateness(host);
    let checked = limits.map_or(Ok(()), |limits| limits.lateness.check(counted));
    matches!(checked, Err(HostRule::Late { .. }))
}

/// Numbers of hosts by state, and sums of their reserved CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostCounts {
    /// Hosts that report and keep all their guarantees.
    pub following: u64,
    /// Hosts that report and do not keep all their guarantees.
    pub refusing: u64,
    /// Hosts whose last report is too old.
    pub silent: u64,
    /// Hosts that have never reported.
    pub unheard: u64,
    /// Hosts that mark frames with other classes than the topology's.
    pub other_classes: u64,
    /// Hosts whose frames leave later than the topology counts with.
    pub late: u64,
    /// Hosts with more reserved CPU than they keep.
    pub short_of_cpu: u64,
    /// Sum of the reserved CPU of all hosts, in thousandths of a CPU.
    pub reserved_cpu: u64,
    /// Sum of the CPU that reporting hosts keep for reservations, in thousandths of a CPU.
    pub reservable_cpu: u64,
    /// Sum of the CPU that guests have reserved beyond their promises, in thousandths of a CPU.
    pub unpromised_cpu: u64,
    /// Number of hosts with such guests.
    pub with_unpromised: u64,
}

/// A host's own words without control characters, and not too many of them.
fn shortened(text: &str) -> String {
    let mut short = String::new();
    for c in text.chars().filter(|c| !c.is_control()) {
        if short.len() + c.len_utf8() > WORDS {
            break;
        }
        short.push(c);
    }
    short
}
