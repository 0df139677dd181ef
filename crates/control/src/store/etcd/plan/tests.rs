use super::*;
use crate::ledger::testing::{create, ledger};
use crate::store::etcd::{Layout, Patches};
use crate::store::sections::{Sections, join};
use proptest::prelude::*;
use std::collections::BTreeMap;
use tailbound_api::{Moving, ReservationId, ReservationRecord, ReservedMachine, Run};
use tailbound_units::Nanos;

/// A change of a tenant.
#[derive(Debug, Clone)]
enum Step {
    /// New machines from a number on, and their count.
    Grow(u32, u32),
    /// The machines with these numbers leave.
    Shrink(u32, u32),
    /// A machine moves.
    Move(u32, u8),
    /// The move ends: there, or not at all.
    End(bool),
    /// Marks the machines from a number on as reserved.
    Reserve(u32, u32),
    Confirm(usize),
    /// Another CPU of all machines, which is not in any section.
    Cpu(u64),
    Delete,
    /// Another leader, which knows the store from a read, or from the watch.
    Lead(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let vm = 0..150_u32;
    let step = prop_oneof![
        6 => (vm.clone(), 1..4_u32).prop_map(|(vm, count)| Step::Grow(vm, count)),
        1 => (vm.clone(), 1..150_u32).prop_map(|(vm, count)| Step::Grow(vm, count)),
        6 => (vm.clone(), 1..4_u32).prop_map(|(vm, count)| Step::Shrink(vm, count)),
        1 => (vm.clone(), 1..150_u32).prop_map(|(vm, count)| Step::Shrink(vm, count)),
        4 => (vm.clone(), 0..4_u8).prop_map(|(vm, host)| Step::Move(vm, host)),
        3 => any::<bool>().prop_map(Step::End),
        4 => (vm, 1..20_u32).prop_map(|(vm, count)| Step::Reserve(vm, count)),
        4 => (0..9_usize).prop_map(Step::Confirm),
        1 => (1..9_u64).prop_map(Step::Cpu),
        1 => Just(Step::Delete),
        2 => any::<bool>().prop_map(Step::Lead),
    ];
    prop::collection::vec(step, 1..60)
}

/// Machines by number with their hosts.
type Places = BTreeMap<u32, Arc<str>>;

fn places(tenant: &Tenant) -> Places {
    let numbers = |run: &Run| run.first..run.first + run.count;
    let of = |run: &Run| {
        numbers(run)
            .map(|vm| (vm, Arc::clone(&run.host)))
            .collect::<Vec<_>>()
    };
    tenant.runs.iter().flat_map(of).collect()
}

fn runs(places: &Places) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (vm, host) in places {
        match runs.last_mut() {
            Some(run) if run.host == *host && run.first + run.count == *vm => run.count += 1,
            _ => runs.push(Run {
                first: *vm,
                count: 1,
                host: Arc::clone(host),
            }),
        }
    }
    runs
}

/// A tenant after a step; None if it is gone.
fn after(tenant: &Tenant, step: &Step, number: u64) -> Option<Tenant> {
    let (mut new, mut places) = (tenant.clone(), places(tenant));
    new.change = number;
    match step {
        Step::Grow(from, count) => {
            let free = (*from..).filter(|vm| !places.contains_key(vm));
            let free: Vec<u32> = free.take(*count as usize).collect();
            places.extend(
                free.into_iter()
                    .map(|vm| (vm, format!("host-{}", vm % 5).into())),
            );
        }
        Step::Shrink(from, count) => places.retain(|vm, _| !(*from..from + count).contains(vm)),
        Step::Move(vm, host) => {
            new.moving = places.contains_key(vm).then(|| Moving {
                vm: *vm,
                to: format!("host-{host}"),
            });
        }
        Step::End(is_there) => {
            if let (Some(moving), true) = (new.moving.take(), is_there) {
                places.insert(moving.vm, moving.to.as_str().into());
            }
        }
        Step::Reserve(from, count) => {
            let machines = places
                .keys()
                .filter(|vm| (*from..from + count).contains(*vm));
            let machine = |number: &u32| ReservedMachine {
                number: *number,
                name: Some(format!("pod-{number}")),
            };
            new.reservations.push(ReservationRecord {
                id: ReservationId(number),
                ttl: Nanos::from_secs(30),
                is_confirmed: false,
                machines: machines.map(machine).collect(),
            });
        }
        // A confirmation raises no number.
        Step::Confirm(index) => {
            new.change = tenant.change;
            if let Some(record) = new.reservations.get_mut(*index) {
                record.is_confirmed = true;
            }
        }
        Step::Cpu(cpu) => new.request.cpu = *cpu,
        Step::Delete => return None,
        Step::Lead(_) => unreachable!("it changes no tenant"),
    }
    for record in &mut new.reservations {
        record
            .machines
            .retain(|machine| places.contains_key(&machine.number));
    }
    new.reservations
        .retain(|record| !record.machines.is_empty());
    new.moving = new.moving.filter(|moving| places.contains_key(&moving.vm));
    new.runs = runs(&places);
    new.request.vms = places.len() as u32;
    (!places.is_empty()).then_some(new)
}

/// A store in memory.
#[derive(Default)]
struct Documents(BTreeMap<String, Vec<u8>>);

/// The bytes that commits write to etcd.
pub(in crate::store) struct CommitSizes(Documents, StoredTenants);

impl CommitSizes {
    /// Begins with a store that has some changes.
    pub(in crate::store) fn new(changes: &[Change]) -> Self {
        let mut new = Self(Documents::default(), StoredTenants::default());
        new.commit(changes);
        new
    }

    /// Forgets what the store has.
    pub(in crate::store) fn forget(&mut self) {
        self.1 = StoredTenants::default();
    }

    /// Returns the bytes of the documents of a commit, with their names.
    pub(in crate::store) fn commit(&mut self, changes: &[Change]) -> usize {
        let written = self.0.commit(&mut self.1, changes, 127);
        let size = |(name, document): (&String, &Option<Vec<u8>>)| {
            name.len() + document.as_ref().map_or(0, Vec::len)
        };
        written.iter().map(size).sum()
    }
}

impl Documents {
    /// Reads everything, as another replica does.
    fn load(&self) -> (BTreeMap<TenantId, Arc<Tenant>>, Layout) {
        let (mut tenants, mut layout) = (BTreeMap::new(), Layout::default());
        let mut all: BTreeMap<TenantId, Sections> = BTreeMap::new();
        for (name, document) in &self.0 {
            layout.put(name, document, document);
            if let Some((id, number)) = keys::section_of(name) {
                let section = keys::read_section(document).unwrap();
                all.entry(id).or_default().insert(number, section);
            } else if let Ok(Change::Tenant(tenant)) = keys::change(name, Some(document)) {
                tenants.insert(tenant.id, tenant);
            }
        }
        for (id, sections) in all {
            if let Some(tenant) = tenants.get_mut(&id) {
                join(tenant, layout.digest(id).unwrap(), sections).unwrap();
            }
        }
        (tenants, layout)
    }

    /// Commits as a leader does with room for `room` operations, and returns the documents.
    fn commit(
        &mut self,
        stored: &mut StoredTenants,
        changes: &[Change],
        room: usize,
    ) -> BTreeMap<String, Option<Vec<u8>>> {
        let mut plan = Plan::new(stored, changes, room).unwrap();
        let documents = std::mem::take(&mut plan.documents);
        assert!(documents.len() <= room.max(changes.len()));
        let left = plan.ends.iter().skip(room.saturating_sub(documents.len()));
        let left: BTreeSet<TenantId> = left.copied().collect();
        for id in plan.ends.difference(&left) {
            let prefix = keys::sections_of(*id);
            assert!(
                documents.keys().all(|name| !name.starts_with(&prefix)),
                "twice"
            );
            self.0.retain(|name, _| !name.starts_with(&prefix));
        }
        for (name, document) in &documents {
            match document {
                Some(document) => drop(self.0.insert(name.clone(), document.clone())),
                None => drop(self.0.remove(name)),
            }
        }
        plan.note(stored, &left);
        documents
    }
}

/// Makes steps, and checks after each of them that the store has the tenant, for a reader of everything
/// and for a follower. Returns the number of sections that were written, and whether some are left over
/// at the end of the tenant.
fn check(machines: u32, steps: &[Step], room: usize) -> (usize, usize) {
    let new = || {
        let (mut ledger, _) = ledger();
        let _ = ledger.decide(&create("acme", "web", 3), Nanos(1)).unwrap();
        let tenant = Arc::unwrap_or_clone(ledger.tenant(TenantId(1)).unwrap().clone());
        after(&tenant, &Step::Grow(0, machines - 3), 1)
    };
    let (mut documents, mut stored) = (Documents::default(), StoredTenants::default());
    let mut tenant = new();
    let first = Change::Tenant(Arc::new(tenant.clone().unwrap()));
    documents.commit(&mut stored, &[first], room);
    let mut followed = Layout::default();
    let (mut in_sections, mut left_over) = (0, 0);
    for (number, step) in (10..).zip(steps) {
        if let Step::Lead(reads) = step {
            let (tenants, layout) = documents.load();
            let layout = if *reads { layout } else { followed.clone() };
            stored = layout.into_state().1;
            stored.begin(&tenants);
            continue;
        }
        let Some(old) = &tenant else {
            break;
        };
        let next = after(old, step, number).map(Arc::new);
        let change = next.clone().map_or(Change::Gone(old.id), Change::Tenant);
        let written = documents.commit(&mut stored, std::slice::from_ref(&change), room);
        let sections = written
            .keys()
            .filter(|name| keys::section_of(name).is_some());
        in_sections += sections.count();
        let mut patches = Patches::new(|_| Some(Arc::new(old.clone())));
        for (name, document) in &written {
            patches.add(name, document.as_deref()).unwrap();
            match document {
                Some(document) => followed.put(name, document, document),
                None => followed.remove(name),
            }
        }
        assert_eq!(patches.end(), Ok(vec![change]), "{step:?}");
        let (tenants, _) = documents.load();
        assert_eq!(tenants.values().next(), next.as_ref(), "{step:?}");
        left_over += usize::from(next.is_none() && documents.0.len() > 1);
        tenant = next.map(|tenant| Tenant::clone(&tenant));
    }
    (in_sections, left_over)
}

proptest! {
    #[test]
    fn a_store_of_sections_has_the_tenant_after_each_change(
        machines in 3..130_u32,
        steps in steps(),
        room in prop_oneof![Just(1_usize), Just(2), Just(127)],
    ) {
        check(machines, &steps, room);
    }

    /// Another program may write any section.
    #[test]
    fn any_section_is_a_change_or_an_error(
        number in prop_oneof![0..9_u32, any::<u32>()],
        runs in prop::collection::vec((0..150_u32, prop_oneof![0..20_u32, any::<u32>()]), 0..3),
        vms in any::<u32>(),
        vm in any::<Option<u8>>(),
    ) {
        let (mut ledger, _) = ledger();
        let _ = ledger.decide(&create("acme", "web", 40), Nanos(1)).unwrap();
        let runs: Vec<_> = runs
            .iter()
            .map(|(first, count)| serde_json::json!({"first": first, "count": count, "host": "host-1"}))
            .collect();
        let moving = vm.map(|vm| serde_json::json!({"vm": vm, "to": "other-1"}));
        let section = serde_json::json!(
            {"of": 1, "change": 9, "vms": vms, "runs": runs, "moving": moving}
        );
        let mut patches = Patches::new(|id| ledger.tenant(id).cloned());
        let name = keys::section(TenantId(1), number);
        patches.add(&name, Some(section.to_string().as_bytes())).unwrap();
        if let Ok(changes) = patches.end() {
            let before = ledger.snapshot();
            if ledger.apply(&changes).is_err() {
                prop_assert!(ledger.snapshot() == before, "half of it was applied");
            }
        }
    }
}

#[test]
fn one_machine_of_many_is_one_section() {
    let steps = [
        Step::Grow(200, 1),
        Step::Reserve(17, 2),
        Step::Confirm(0),
        Step::Move(40, 3),
        Step::End(true),
        Step::Shrink(77, 1),
    ];
    assert_eq!(check(100, &steps, 127), (steps.len(), 0));
    // A small tenant has none.
    assert_eq!(check(20, &steps, 127).0, 0);
}

/// A document that another program changed is not taken for one whose sections are left over.
#[test]
fn a_section_of_another_document_is_an_error_unless_it_is_older() {
    let (mut documents, mut stored) = (Documents::default(), StoredTenants::default());
    let (mut ledger, _) = ledger();
    let _ = ledger.decide(&create("acme", "web", 3), Nanos(1)).unwrap();
    let tenant = ledger.tenant(TenantId(1)).unwrap();
    let tenant = after(tenant, &Step::Grow(0, 97), 5).unwrap();
    documents.commit(
        &mut stored,
        &[Change::Tenant(Arc::new(tenant.clone()))],
        127,
    );
    let name = keys::name(crate::ledger::Subject::Tenant(tenant.id));
    let before = documents.0[&name].clone();
    let moved = after(&tenant, &Step::Move(9, 2), 6).unwrap();
    documents.commit(&mut stored, &[Change::Tenant(Arc::new(moved))], 127);
    let section = documents
        .0
        .keys()
        .find(|name| keys::section_of(name).is_some());
    let (id, number) = keys::section_of(section.unwrap()).unwrap();
    let read = |documents: &Documents| {
        let section = keys::read_section(&documents.0[&keys::section(id, number)]).unwrap();
        let Ok(Change::Tenant(mut tenant)) = keys::change(&name, Some(&documents.0[&name])) else {
            panic!("it is a tenant");
        };
        let of = keys::digest(&documents.0[&name]);
        join(&mut tenant, of, [(number, section)].into()).map(|()| tenant)
    };
    assert!(read(&documents).unwrap().moving.is_some());
    let changed = String::from_utf8(before)
        .unwrap()
        .replacen("acme", "acne", 1);
    documents.0.insert(name.clone(), changed.into_bytes());
    let why = read(&documents).unwrap_err();
    assert_eq!(
        why,
        format!("its section {number} is upon another document")
    );
    // Later than the section.
    let whole = after(&tenant, &Step::Cpu(3), 7).unwrap();
    documents
        .0
        .insert(name.clone(), serde_json::to_vec(&whole).unwrap());
    assert_eq!(*read(&documents).unwrap(), whole);
}
