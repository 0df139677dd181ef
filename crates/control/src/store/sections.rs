//! The documents of a tenant: one of all its machines, and sections that were written later.
//!
//! A change of few machines of a large tenant writes only the sections that have them: the machines
//! with [`MACHINES`] consecutive numbers. A section counts instead of these machines in the tenant's
//! document. Any other change writes the whole document, and its sections end.
//!
//! A section names the document that it is upon by a digest. No document comes back once another one
//! was written, since each change raises a tenant's number or confirms a reservation. So a section that
//! is left over from an earlier document is known as such, and its deletion may wait.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tailbound_api::{Moving, ReservationId, ReservationRecord, Run, Tenant};
use tailbound_placement::TenantId;

/// The number of machines of a section.
const MACHINES: u32 = 16;
/// Limit on the sections of one change; with more the whole document is written.
pub(super) const MAX_SECTIONS: usize = 8;

/// The machines of a tenant whose numbers, divided by [`MACHINES`], are the number of the section.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Section {
    /// Digest of the tenant's document that this section is upon.
    of: u64,
    /// The tenant's last change when the section was written.
    change: u64,
    /// The number of all machines of the tenant after that change.
    vms: u32,
    runs: Vec<Run>,
    /// The machine that moves, if the section has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    moving: Option<Moving>,
    /// The reservations, each with its machines of the section.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    reservations: Vec<ReservationRecord>,
}

/// The sections of one tenant by their numbers.
pub(super) type Sections = BTreeMap<u32, Section>;

/// The tenants that a store has, by which it knows the sections that differ.
#[derive(Debug, Clone, Default)]
pub(super) struct StoredTenants(HashMap<TenantId, StoredTenant>);

/// A tenant that a store has.
#[derive(Debug, Clone, Default)]
struct StoredTenant {
    /// Digest of its document; None if it is not known.
    of: Option<u64>,
    /// The tenant with all its sections; None if it is not known.
    tenant: Option<Arc<Tenant>>,
    /// False if there are certainly no sections of it, not even of an earlier document.
    may_have_sections: bool,
}

impl StoredTenants {
    /// Makes the tenants of a store with documents of these digests, which [`Self::begin`] completes.
    pub(super) fn new(digests: &HashMap<TenantId, u64>) -> Self {
        let stored_tenant = |of: &u64| StoredTenant {
            of: Some(*of),
            tenant: None,
            may_have_sections: true,
        };
        Self(
            digests
                .iter()
                .map(|(id, of)| (*id, stored_tenant(of)))
                .collect(),
        )
    }

    /// Notes the tenants that the store has.
    pub(super) fn begin(&mut self, tenants: &BTreeMap<TenantId, Arc<Tenant>>) {
        for (id, tenant) in tenants {
            let stored_tenant = self.0.entry(*id).or_default();
            stored_tenant.tenant = Some(Arc::clone(tenant));
            // One that became small was written as a whole.
            stored_tenant.may_have_sections = most_sections(tenant) > 0;
        }
    }

    /// Returns the sections that make the kept tenant this one; None if its document has to be written:
    /// the tenant is small, or differs elsewhere or in more than `most` sections.
    pub(super) fn sections(&self, tenant: &Tenant, most: usize) -> Option<Sections> {
        let stored_tenant = self.0.get(&tenant.id)?;
        let (of, old) = (stored_tenant.of?, stored_tenant.tenant.as_ref()?);
        let most = most.min(most_sections(tenant));
        if most == 0 {
            return None;
        }
        let sections = differing(of, old, tenant);
        let is_few = (1..=most).contains(&sections.len());
        // Sections cannot express all changes of a tenant; the others write the whole document.
        (is_few && with(old, &sections) == *tenant).then_some(sections)
    }

    /// Returns whether the store has the tenant.
    pub(super) fn has(&self, id: TenantId) -> bool {
        self.0.contains_key(&id)
    }

    /// Returns whether the store may have sections of the tenant.
    pub(super) fn may_have_sections(&self, id: TenantId) -> bool {
        self.0.get(&id).is_some_and(|kept| kept.may_have_sections)
    }

    /// Notes that sections of a tenant were written.
    pub(super) fn put_sections(&mut self, tenant: &Arc<Tenant>) {
        let stored_tenant = self.0.entry(tenant.id).or_default();
        stored_tenant.tenant = Some(Arc::clone(tenant));
        stored_tenant.may_have_sections = true;
    }

    /// Notes that a tenant's document of this digest was written, and whether sections are left over.
    pub(super) fn put_whole(&mut self, tenant: &Arc<Tenant>, of: u64, are_left: bool) {
        let stored_tenant = StoredTenant {
            of: Some(of),
            tenant: Some(Arc::clone(tenant)),
            may_have_sections: are_left,
        };
        self.0.insert(tenant.id, stored_tenant);
    }

    /// Notes that a tenant is gone.
    pub(super) fn remove(&mut self, id: TenantId) {
        self.0.remove(&id);
    }
}

/// Returns the largest number of sections that are written instead of a tenant's document: half of its
/// machines.
const fn most_sections(tenant: &Tenant) -> usize {
    (tenant.request.vms / (2 * MACHINES)) as usize
}

/// Puts sections into a tenant that was read from its document of this digest. Sections that were left over
/// from earlier documents do not count.
///
/// # Errors
/// The sections are not upon the document, or have machines of others.
pub(super) fn join(
    tenant: &mut Arc<Tenant>,
    of: u64,
    mut sections: Sections,
) -> Result<(), String> {
    let whole = tenant.change;
    sections.retain(|_, section| section.of == of || section.change > whole);
    if sections.is_empty() {
        return Ok(());
    }
    if let Some((number, _)) = sections
        .iter()
        .find(|(_, it)| it.of != of || it.change < whole)
    {
        return Err(format!("its section {number} is upon another document"));
    }
    check(&sections)?;
    *tenant = Arc::new(with(tenant, &sections));
    Ok(())
}

/// Returns a tenant after a later change of some sections.
///
/// # Errors
/// The sections are older than the tenant, or have machines of others.
pub(super) fn patched(tenant: &Tenant, sections: &Sections) -> Result<Tenant, String> {
    if let Some((number, _)) = sections.iter().find(|(_, it)| it.change < tenant.change) {
        return Err(format!("its section {number} is older"));
    }
    check(sections)?;
    Ok(with(tenant, sections))
}

/// Checks that each section has only machines with its numbers.
fn check(sections: &Sections) -> Result<(), String> {
    for (number, section) in sections {
        let from = u64::from(*number) * u64::from(MACHINES);
        let has = |first: u32, count: u32| {
            let end = u64::from(first) + u64::from(count);
            from <= u64::from(first) && end <= from + u64::from(MACHINES)
        };
        let reserved = section.reservations.iter().flat_map(|it| &it.machines);
        let moving = section.moving.iter().map(|moving| moving.vm);
        let mut single = reserved.map(|machine| machine.number).chain(moving);
        if !section.runs.iter().all(|run| has(run.first, run.count)) || !single.all(|vm| has(vm, 1))
        {
            return Err(format!(
                "its section {number} has machines of another section"
            ));
        }
    }
    Ok(())
}

/// Returns a tenant with sections instead of its own machines with the same numbers.
fn with(tenant: &Tenant, sections: &Sections) -> Tenant {
    let mut new = Tenant {
        runs: Vec::new(),
        reservations: Vec::new(),
        ..tenant.clone()
    };
    if let Some(last) = sections.values().max_by_key(|section| section.change) {
        new.change = tenant.change.max(last.change);
        new.request.vms = last.vms;
    }
    let own = |vm: u32| !sections.contains_key(&(vm / MACHINES));
    new.moving = new.moving.filter(|moving| own(moving.vm));
    new.moving = new
        .moving
        .or_else(|| sections.values().find_map(|section| section.moving.clone()));
    for run in &tenant.runs {
        outside(run, sections, &mut new.runs);
    }
    new.runs.extend(
        sections
            .values()
            .flat_map(|section| section.runs.iter().cloned()),
    );
    new.runs.sort_by_key(|run| run.first);
    new.runs = joined(new.runs);
    let mut records: BTreeMap<ReservationId, ReservationRecord> = BTreeMap::new();
    let reserved = sections
        .values()
        .flat_map(|section| section.reservations.iter().cloned());
    let old = tenant.reservations.iter().cloned().map(|mut record| {
        record.machines.retain(|machine| own(machine.number));
        record
    });
    // Of a record in both, the section's counts.
    for record in old
        .filter(|record| !record.machines.is_empty())
        .chain(reserved)
    {
        match records.get_mut(&record.id) {
            None => drop(records.insert(record.id, record)),
            Some(all) => {
                (all.ttl, all.is_confirmed) = (record.ttl, record.is_confirmed);
                all.machines.extend(record.machines);
                all.machines.sort_by_key(|machine| machine.number);
            }
        }
    }
    new.reservations = records.into_values().collect();
    new
}

/// Adds the pieces of a run that are outside all sections.
fn outside(run: &Run, sections: &Sections, pieces: &mut Vec<Run>) {
    let mut at = u64::from(run.first);
    let end = at + u64::from(run.count);
    let mut piece = |from: u64, end: u64| {
        if from < end {
            pieces.push(Run {
                first: u32::try_from(from).unwrap_or(u32::MAX),
                count: u32::try_from(end - from).unwrap_or(u32::MAX),
                host: Arc::clone(&run.host),
            });
        }
    };
    for number in sections
        .range(run.first / MACHINES..)
        .map(|(number, _)| *number)
    {
        let from = u64::from(number) * u64::from(MACHINES);
        if end <= from {
            break;
        }
        piece(at, from);
        at = at.max(from + u64::from(MACHINES));
    }
    piece(at, end);
}

/// Joins neighbouring numbers on one host to one run.
fn joined(runs: Vec<Run>) -> Vec<Run> {
    let mut joined: Vec<Run> = Vec::with_capacity(runs.len());
    for run in runs {
        match joined.last_mut() {
            Some(last)
                if last.host == run.host
                    && last.first.checked_add(last.count) == Some(run.first) =>
            {
                last.count = last.count.saturating_add(run.count);
            }
            _ => joined.push(run),
        }
    }
    joined.shrink_to_fit();
    joined
}

/// Returns the sections of the new tenant that differ from those of the old one.
fn differing(of: u64, old: &Tenant, new: &Tenant) -> Sections {
    let had = all(of, new, old);
    let mut has = all(of, new, new);
    for (number, section) in had {
        if has.get(&number) == Some(&section) {
            has.remove(&number);
        } else {
            has.entry(number).or_insert_with(|| empty(of, new));
        }
    }
    has
}

/// Returns a section without machines, as it is written after a change of a tenant.
fn empty(of: u64, tenant: &Tenant) -> Section {
    Section {
        of,
        change: tenant.change,
        vms: tenant.request.vms,
        runs: Vec::new(),
        moving: None,
        reservations: Vec::new(),
    }
}

/// Returns all sections of a tenant as they are written after a change that makes it `after`.
fn all(of: u64, after: &Tenant, tenant: &Tenant) -> Sections {
    let mut sections = Sections::new();
    let mut at = |vm: u32, put: &mut dyn FnMut(&mut Section)| {
        put(sections
            .entry(vm / MACHINES)
            .or_insert_with(|| empty(of, after)));
    };
    for run in &tenant.runs {
        let mut first = run.first;
        let end = run.first.saturating_add(run.count);
        while first < end {
            let next = (first / MACHINES + 1).saturating_mul(MACHINES).min(end);
            let piece = Run {
                first,
                count: next - first,
                host: Arc::clone(&run.host),
            };
            at(first, &mut |section| section.runs.push(piece.clone()));
            first = next;
        }
    }
    for record in &tenant.reservations {
        for machine in &record.machines {
            at(
                machine.number,
                &mut |section| match section.reservations.last_mut() {
                    Some(last) if last.id == record.id => last.machines.push(machine.clone()),
                    _ => section.reservations.push(ReservationRecord {
                        machines: vec![machine.clone()],
                        ..*record
                    }),
                },
            );
        }
    }
    if let Some(moving) = &tenant.moving {
        at(moving.vm, &mut |section| {
            section.moving = Some(moving.clone());
        });
    }
    sections
}
