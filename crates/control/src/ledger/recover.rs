//! Rebuilds the content of a lost store from the guarantees that hosts hold.
//!
//! Each host keeps the last guarantees that it received: its machines with their tenants' numbers,
//! guarantees, CPU reservations and limits. [`recover`] merges them. If two hosts contradict each
//! other, the one that knew the later change counts, and a [`Finding`] names both. Nothing is
//! assumed about what no host holds: a tenant has the machines that hosts have, and no CPUs, memory,
//! fault domains or messages.

use super::change::{Hosts, Snapshot};
use super::checks::{check_limit, check_names};
use super::{Ledger, runs};
use serde::Deserialize;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;
use tailbound_api::{
    HostGuarantees, HostState, MoveEnd, Moving, Tenant, VmGuarantee, VmLimit, VmName,
};
use tailbound_placement::pinned::{MAX_VMS, check};
use tailbound_placement::{Guarantee, Policy, Request, Spec, SpecError, TenantId};
use tailbound_units::Bytes;

/// The highest number that a service issues.
const MAX_NUMBER: u64 = (1 << 53) - 1;
/// Limit on the hosts without guarantees that a finding names.
const NAMED: usize = 5;

/// A recovered store.
#[derive(Debug)]
pub struct Recovery {
    /// The content.
    pub snapshot: Snapshot,
    /// The hosts whose guarantees were used.
    pub hosts: usize,
    /// The contradictions, misfits and gaps.
    pub findings: Vec<Finding>,
}

/// Reason why nothing can be recovered.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The topology cannot be built.
    #[error("the topology: {0}")]
    Spec(#[from] SpecError),
    /// There are more machines than a data centre has.
    #[error("the hosts have {0} machines, and a data centre has at most {MAX_VMS}")]
    TooMany(u64),
}

/// A contradiction, a misfit or a gap in the guarantees of hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// Two documents are of one host; that with the earlier revision was left out.
    Twice(String),
    /// The topology has no such host; its machines were left out.
    UnknownHost {
        /// The host.
        host: String,
        /// The number of its machines.
        vms: usize,
    },
    /// These hosts hold nothing. Tenants that have machines on them alone are lost.
    Missing {
        /// Some of the hosts.
        some: Vec<String>,
        /// The number of hosts.
        count: usize,
    },
    /// A number or a name of a host's document cannot be a service's; the machine was left out.
    Absurd {
        /// The host.
        host: String,
        /// The machine or the number.
        what: String,
    },
    /// The host has a machine of an earlier tenant of this name, or of a tenant whose number is
    /// another's; it was left out.
    Outdated {
        /// The host.
        host: String,
        /// The machine.
        vm: String,
        /// The tenant that counts.
        instead: String,
    },
    /// Two hosts have one machine; it was recovered on the host that knew the later change.
    OnTwoHosts {
        /// The machine.
        vm: String,
        /// The host that counts.
        host: String,
        /// The other one.
        other: String,
    },
    /// The machine moves, and one end of its move holds nothing about it; it was recovered on this
    /// host, and its move was forgotten.
    HalfMoved {
        /// The machine.
        vm: String,
        /// The host.
        host: String,
    },
    /// Hosts have different guarantees, reservations or limits of a tenant; those of the host that
    /// knew the latest change count.
    Differs {
        /// The tenant.
        tenant: String,
        /// The host that counts.
        host: String,
        /// A host with others.
        other: String,
    },
    /// Fewer or more machines were found than the tenant had; it was recovered with those found.
    Machines {
        /// The tenant.
        tenant: String,
        /// The number of machines that were found.
        found: u32,
        /// The number of machines that the tenant had.
        of: u32,
    },
    /// The tenant makes no sense by itself, and was left out.
    NoTenant {
        /// The tenant.
        tenant: String,
        /// The reason.
        why: String,
    },
    /// The tenant does not fit where its machines run. It was recovered, and its hosts get no
    /// further machine until they fit.
    Misfit {
        /// The tenant.
        tenant: String,
        /// The rule that refuses it, with the excess.
        why: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Twice(host) => write!(
                f,
                "host {host:?} is there twice; the guarantees with the earlier revision are left out"
            ),
            Self::UnknownHost { host, vms } => write!(
                f,
                "host {host:?} is not in the topology; its {vms} machines are left out"
            ),
            Self::Missing { some, count } => {
                let more = count - some.len();
                let more = match more {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                write!(
                    f,
                    "{count} hosts hold nothing: {}{more}; tenants that are on these alone are lost",
                    some.join(", ")
                )
            }
            Self::Absurd { host, what } => {
                write!(
                    f,
                    "host {host:?}: {what} cannot be a service's; it is left out"
                )
            }
            Self::Outdated { host, vm, instead } => write!(
                f,
                "host {host:?} has {vm} of an earlier time; {instead} counts, and it is left out"
            ),
            Self::OnTwoHosts { vm, host, other } => write!(
                f,
                "{vm} is on {host:?} and on {other:?}; {host:?} knew the later change and counts"
            ),
            Self::HalfMoved { vm, host } => write!(
                f,
                "{vm} moves, and only {host:?} holds it; it is there, and the move is forgotten"
            ),
            Self::Differs {
                tenant,
                host,
                other,
            } => write!(
                f,
                "{tenant}: {host:?} and {other:?} have different guarantees; {host:?} knew the later \
                 change and counts"
            ),
            Self::Machines { tenant, found, of } => {
                write!(f, "{tenant}: {found} machines were found, and it had {of}")
            }
            Self::NoTenant { tenant, why } => write!(f, "{tenant} is left out: {why}"),
            Self::Misfit { tenant, why } => {
                write!(f, "{tenant} does not fit where it runs, and is kept: {why}")
            }
        }
    }
}

/// The state file of a host (`tailbound host --control-state`).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StateFile {
    schema: u32,
    said: HostGuarantees,
}

/// Reads the state file of a host.
///
/// # Errors
/// The text is no state file, or one of another version.
pub fn read_state(text: &[u8]) -> Result<HostGuarantees, String> {
    /// The version of the file.
    const SCHEMA: u32 = 2;
    let state: StateFile = serde_json::from_slice(text)
        .map_err(|error| format!("this is no state file of `tailbound host`: {error}"))?;
    if state.schema != SCHEMA {
        return Err(format!(
            "a state file of version {}, and this tailbound knows {SCHEMA}",
            state.schema
        ));
    }
    Ok(state.said)
}

/// A machine of a host.
#[derive(Clone, Copy)]
struct Sighting<'g> {
    host: &'g str,
    /// The last change that the host knew.
    change: u64,
    vm: &'g VmGuarantee,
    number: u32,
}

impl Sighting<'_> {
    /// Later sightings are greater.
    const fn age(&self) -> (u64, &str) {
        (self.change, self.host)
    }
}

/// The owner and the name of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    owner: String,
    name: String,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

/// The machines of the tenants.
type Sightings<'g> = BTreeMap<Name, Vec<Sighting<'g>>>;

/// Rebuilds the content of a store. The order of the documents does not matter.
///
/// # Errors
/// The topology is wrong, or there are too many machines. Everything else is a [`Finding`].
pub fn recover(
    spec: Spec,
    policy: Policy,
    host_states: Vec<HostGuarantees>,
) -> Result<Recovery, RecoverError> {
    let (mut ledger, _) = Ledger::new(spec, policy)?;
    let mut findings = Vec::new();
    let host_states = newest(host_states, &mut findings);
    let known: Vec<_> = host_states
        .values()
        .filter(|it| is_usable(&ledger, it, &mut findings))
        .collect();
    note_missing(&ledger, &known, &mut findings);
    let hosts: Hosts = known
        .iter()
        .filter(|it| it.state != HostState::Open)
        .map(|it| (it.host.clone(), it.state))
        .collect();
    let mut sightings = sightings(&known, &mut findings);
    let sum: usize = sightings.values().map(Vec::len).sum();
    if sum as u64 > MAX_VMS {
        return Err(RecoverError::TooMany(sum as u64));
    }
    keep_newest_tenants(&mut sightings, &mut findings);
    let tenants = sightings.iter();
    let mut tenants: Vec<_> = tenants
        .filter_map(|(name, all)| tenant(name, all, &mut findings))
        .collect();
    tenants.sort_by_key(|tenant| tenant.id);
    let latest = known.iter().map(|it| it.change).max().unwrap_or(0);
    let highest = tenants.last().map_or(0, |tenant| tenant.id.0);
    ledger.next_id = latest.max(highest) + 1;
    for tenant in tenants {
        put(&mut ledger, tenant, &mut findings);
    }
    // After the tenants, which fit on a closed host, too.
    let hosts = ledger.set_hosts(Arc::new(hosts));
    debug_assert_eq!(hosts, Ok(()), "only hosts of the topology");
    ledger.set_revision(known.iter().map(|it| it.revision).max().unwrap_or(0));
    Ok(Recovery {
        hosts: known.len(),
        snapshot: ledger.snapshot(),
        findings,
    })
}

/// Returns the newest guarantees of each host.
fn newest(
    host_states: Vec<HostGuarantees>,
    findings: &mut Vec<Finding>,
) -> BTreeMap<String, HostGuarantees> {
    let mut newest: BTreeMap<String, HostGuarantees> = BTreeMap::new();
    for one in host_states {
        let age = |it: &HostGuarantees| (it.change, it.revision);
        match newest.get_mut(&one.host) {
            None => {
                newest.insert(one.host.clone(), one);
            }
            Some(other) if *other == one => {}
            Some(other) => {
                findings.push(Finding::Twice(one.host.clone()));
                if age(&one) > age(other) {
                    *other = one;
                }
            }
        }
    }
    newest
}

/// Returns whether the document is of a host of the topology, and its numbers are possible.
fn is_usable(ledger: &Ledger, host_state: &HostGuarantees, findings: &mut Vec<Finding>) -> bool {
    if ledger.host_node(&host_state.host).is_none() {
        findings.push(Finding::UnknownHost {
            host: host_state.host.clone(),
            vms: host_state.vms.len(),
        });
        return false;
    }
    let largest = host_state.revision.max(host_state.change);
    if largest > MAX_NUMBER {
        findings.push(Finding::Absurd {
            host: host_state.host.clone(),
            what: format!("the revision or change {largest}"),
        });
    }
    largest <= MAX_NUMBER
}

fn note_missing(ledger: &Ledger, known: &[&HostGuarantees], findings: &mut Vec<Finding>) {
    let known: HashSet<&str> = known.iter().map(|it| it.host.as_str()).collect();
    let topology = ledger.datacentre.topology();
    let names = topology.hosts().iter().map(|host| topology.name(*host));
    let missing: Vec<_> = names.filter(|name| !known.contains(name)).collect();
    if !missing.is_empty() {
        findings.push(Finding::Missing {
            some: missing
                .iter()
                .take(NAMED)
                .map(|it| (*it).to_owned())
                .collect(),
            count: missing.len(),
        });
    }
}

fn sightings<'g>(known: &[&'g HostGuarantees], findings: &mut Vec<Finding>) -> Sightings<'g> {
    let mut sightings = Sightings::new();
    for host_state in known {
        for vm in &host_state.vms {
            let name = vm.vm.parse::<VmName>();
            let Some(name) = name
                .ok()
                .filter(|name| vm.tenant.0 <= MAX_NUMBER && name.number < u32::MAX)
            else {
                findings.push(Finding::Absurd {
                    host: host_state.host.clone(),
                    what: format!("the machine {:?} of the tenant {}", vm.vm, vm.tenant.0),
                });
                continue;
            };
            let of = Name {
                owner: name.owner,
                name: name.tenant,
            };
            let of_tenant = sightings.entry(of).or_default();
            of_tenant.push(Sighting {
                host: &host_state.host,
                change: host_state.change,
                vm,
                number: name.number,
            });
        }
    }
    sightings
}

/// Removes machines of deleted tenants, whose names or numbers later tenants have.
fn keep_newest_tenants(sightings: &mut Sightings<'_>, findings: &mut Vec<Finding>) {
    /// The last change that a host with a machine of the tenant knew, and this host.
    type Age = (u64, String);
    let mut outdated = |sighting: &Sighting<'_>, instead: String| {
        findings.push(Finding::Outdated {
            host: sighting.host.to_owned(),
            vm: sighting.vm.vm.clone(),
            instead,
        });
    };
    let mut of_ids: BTreeMap<TenantId, Vec<(Age, Name)>> = BTreeMap::new();
    for (name, all) in sightings.iter_mut() {
        let Some(id) = all.iter().map(|it| it.vm.tenant).max() else {
            continue;
        };
        all.retain(|sighting| {
            let is_kept = sighting.vm.tenant == id;
            if !is_kept {
                outdated(sighting, format!("the tenant {}", id.0));
            }
            is_kept
        });
        let last = all.iter().map(Sighting::age).max();
        let last = last.map(|(change, host)| (change, host.to_owned()));
        let last = last.unwrap_or_default();
        of_ids.entry(id).or_default().push((last, name.clone()));
    }
    for names in of_ids.values_mut().filter(|names| names.len() > 1) {
        names.sort();
        let Some((_, newest)) = names.pop() else {
            continue;
        };
        for (_, name) in names {
            for sighting in sightings.remove(name).into_iter().flatten() {
                outdated(&sighting, format!("{newest} has its number and"));
            }
        }
    }
}

/// Makes a tenant of its machines. Returns None if it makes no sense by itself.
fn tenant(name: &Name, all: &[Sighting<'_>], findings: &mut Vec<Finding>) -> Option<Tenant> {
    let shown = name.to_string();
    let last = all.iter().max_by_key(|it| it.age())?;
    let guarantee = guarantee(all);
    if let Some(other) = all.iter().find(|it| differs(it, last, guarantee)) {
        findings.push(Finding::Differs {
            tenant: shown.clone(),
            host: last.host.to_owned(),
            other: other.host.to_owned(),
        });
    }
    let (places, moving) = places(&shown, all, findings);
    let numbers: Vec<_> = places
        .iter()
        .map(|(number, host)| (*number, host))
        .collect();
    let vms = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
    if vms != last.vm.tenant_vms {
        findings.push(Finding::Machines {
            tenant: shown.clone(),
            found: vms,
            of: last.vm.tenant_vms,
        });
    }
    let request = Request {
        vms,
        guarantee,
        cpu: 0,
        memory: Bytes::ZERO,
        domains: None,
        cpu_reservation: last.vm.cpu_reservation,
        message: None,
    };
    let checked = check_names(&name.owner, &name.name)
        .and_then(|()| Ok(request.check()?))
        .and_then(|()| check_limit(&last.vm.limit, &request));
    if let Err(why) = checked {
        findings.push(Finding::NoTenant {
            tenant: shown,
            why: why.to_string(),
        });
        return None;
    }
    Some(Tenant {
        id: last.vm.tenant,
        owner: name.owner.clone(),
        name: name.name.clone(),
        request,
        limit: last.vm.limit,
        runs: runs::joined(&numbers),
        change: last.change.max(last.vm.tenant.0),
        moving,
        standing: None,
        reservations: Vec::new(),
        misfit: false,
    })
}

/// Returns the last guarantee that a host enforces. A host that cannot enforce it has none.
fn guarantee(all: &[Sighting<'_>]) -> Option<Guarantee> {
    let with = all.iter().filter(|it| it.vm.guarantee.is_some());
    with.max_by_key(|it| it.age())?.vm.guarantee
}

/// Returns whether a host has another guarantee, reservation or limit than the last one.
fn differs(one: &Sighting<'_>, last: &Sighting<'_>, guarantee: Option<Guarantee>) -> bool {
    let limit: &VmLimit = &one.vm.limit;
    (one.vm.guarantee.is_some() && one.vm.guarantee != guarantee)
        || one.vm.cpu_reservation != last.vm.cpu_reservation
        || *limit != last.vm.limit
}

/// Returns the host of each machine, and the machine that moves.
fn places(
    shown: &str,
    all: &[Sighting<'_>],
    findings: &mut Vec<Finding>,
) -> (BTreeMap<u32, Arc<str>>, Option<Moving>) {
    let mut of_numbers: BTreeMap<u32, Vec<&Sighting<'_>>> = BTreeMap::new();
    for sighting in all {
        of_numbers
            .entry(sighting.number)
            .or_default()
            .push(sighting);
    }
    let (mut places, mut moving) = (BTreeMap::new(), None);
    for (number, mut some) in of_numbers {
        let vm = format!("{shown}/{number}");
        some.sort_by_key(|it| it.age());
        let arrives = |it: &&&Sighting<'_>| it.vm.moves == Some(MoveEnd::Arrives);
        let to = some.iter().rfind(arrives).copied();
        let mut here = some.iter().filter(|it| !arrives(it)).copied();
        let Some(at) = here.next_back().or(to) else {
            continue;
        };
        for other in here {
            findings.push(Finding::OnTwoHosts {
                vm: vm.clone(),
                host: at.host.to_owned(),
                other: other.host.to_owned(),
            });
        }
        places.insert(number, Arc::from(at.host));
        let leaves = at.vm.moves == Some(MoveEnd::Leaves);
        match to.filter(|to| to.host != at.host) {
            Some(to) if moving.is_none() && (leaves || to.change > at.change) => {
                moving = Some(Moving {
                    vm: number,
                    to: to.host.to_owned(),
                });
            }
            None if at.vm.moves.is_none() => {}
            _ => findings.push(Finding::HalfMoved {
                vm,
                host: at.host.to_owned(),
            }),
        }
    }
    (places, moving)
}

/// Adds a tenant, and notes whether it fits.
fn put(ledger: &mut Ledger, mut tenant: Tenant, findings: &mut Vec<Finding>) {
    let shown = format!("{}/{}", tenant.owner, tenant.name);
    let placement = match ledger.placement(&tenant) {
        Ok(placement) => placement,
        Err(why) => {
            findings.push(Finding::NoTenant {
                tenant: shown,
                why: why.to_string(),
            });
            return;
        }
    };
    if let Err(why) = check(&ledger.datacentre, &tenant.reserved(), &placement) {
        tenant.misfit = true;
        findings.push(Finding::Misfit {
            tenant: shown.clone(),
            why: why.to_string(),
        });
    }
    let mut tenant = Arc::new(tenant);
    super::names::share(ledger.datacentre.topology(), &mut tenant);
    if let Err(why) = ledger.put_tenant(tenant) {
        findings.push(Finding::NoTenant {
            tenant: shown,
            why: why.to_string(),
        });
    }
}
