//! Random commands against a ledger made anew of what was kept.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use tailbound_api::{
    Classes, Fabric, HostMachines, HostPut, InLimit, LimitKind, MachineRequest, MoveStep, MoveVm,
    NewReservation, Operation, OutLimit, PinnedHost, RefusedVm, TenantRef, VmLimit,
};
use tailbound_placement::{Guarantee, Spec};
use tailbound_units::{Bytes, Rate};

/// A command whose tenant is chosen among those there are.
#[derive(Debug, Clone)]
enum Step {
    Create(bool, u8, u32),
    Resize(usize, u32),
    /// Of which tenant, and its new bandwidth in Mbit/s.
    Guarantee(usize, u64),
    Delete(usize),
    Relocate(usize),
    /// Of which tenant, which machine, and where to, or how it ends.
    Move(usize, u32, Result<usize, bool>),
    /// Of which tenant, and Mbit/s in each direction.
    Limit(usize, Option<u64>, Option<u64>),
    SetHosts(usize, HostState),
    SetTopology(usize),
    Report(usize, Word),
    Silence(usize),
    /// Of which tenant, on which host, and how many machines.
    PutHost(usize, usize, u32),
    /// Of which owner and name, on which host, and how many machines.
    Reserve(bool, u8, usize, u32),
    Confirm(usize),
    Cancel(usize),
    Expire(usize),
    /// Of which owner and name, on which host, and how many machines.
    Adopt(bool, u8, usize, u32),
    /// Deletes a tenant, creates one, and sets the machines of another on a host.
    Batch(usize, u8, usize, u32),
}

/// Report of a host.
#[derive(Debug, Clone)]
enum Word {
    /// Distance from the last change, and the link's rate in Mbit/s.
    Keeps(u64, u64),
    Refuses(usize),
    /// All machines on their way to the host have arrived.
    Arrived,
    OtherClasses,
    Unpaced,
}

const NODES: [&str; 6] = ["host-1", "host-3", "other-2", "left", "right", "core"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let state = prop_oneof![
        3 => Just(HostState::Open),
        1 => Just(HostState::Drained),
        1 => Just(HostState::Failed)
    ];
    let step = prop_oneof![
        6 => (any::<bool>(), 0_u8..20, 1_u32..9).prop_map(|(a, b, c)| Step::Create(a, b, c)),
        3 => (any::<usize>(), 0_u32..12).prop_map(|(a, b)| Step::Resize(a, b)),
        3 => (any::<usize>(), prop_oneof![Just(50_u64), Just(300), Just(900)])
            .prop_map(|(a, b)| Step::Guarantee(a, b)),
        2 => any::<usize>().prop_map(Step::Delete),
        2 => any::<usize>().prop_map(Step::Relocate),
        4 => (any::<usize>(), 0_u32..4, any::<usize>())
            .prop_map(|(a, b, c)| Step::Move(a, b, Ok(c))),
        3 => (any::<usize>(), 0_u32..4, any::<bool>())
            .prop_map(|(a, b, c)| Step::Move(a, b, Err(c))),
        3 => (any::<usize>(), limits(), limits()).prop_map(|(a, b, c)| Step::Limit(a, b, c)),
        2 => (0..NODES.len(), state).prop_map(|(a, b)| Step::SetHosts(a, b)),
        1 => (0_usize..4).prop_map(Step::SetTopology),
        6 => (any::<usize>(), words()).prop_map(|(a, b)| Step::Report(a, b)),
        1 => any::<usize>().prop_map(Step::Silence),
        4 => (any::<usize>(), any::<usize>(), 0_u32..5)
            .prop_map(|(a, b, c)| Step::PutHost(a, b, c)),
        5 => (any::<bool>(), 0_u8..20, any::<usize>(), 1_u32..5)
            .prop_map(|(a, b, c, d)| Step::Reserve(a, b, c, d)),
        3 => any::<usize>().prop_map(Step::Confirm),
        2 => any::<usize>().prop_map(Step::Cancel),
        1 => any::<usize>().prop_map(Step::Expire),
        1 => (any::<bool>(), 0_u8..20, any::<usize>(), 1_u32..10)
            .prop_map(|(a, b, c, d)| Step::Adopt(a, b, c, d)),
        2 => (any::<usize>(), 0_u8..20, any::<usize>(), 0_u32..5)
            .prop_map(|(a, b, c, d)| Step::Batch(a, b, c, d)),
    ];
    proptest::collection::vec(step, 1..40)
}

/// Some below what is guaranteed.
fn limits() -> impl Strategy<Value = Option<u64>> {
    proptest::option::of(prop_oneof![Just(100_u64), Just(200), Just(400)])
}

fn words() -> impl Strategy<Value = Word> {
    prop_oneof![
        6 => (0_u64..3, prop_oneof![Just(100_u64), Just(1_000), Just(10_000)])
            .prop_map(|(behind, mbit)| Word::Keeps(behind, mbit)),
        1 => any::<usize>().prop_map(Word::Refuses),
        3 => Just(Word::Arrived),
        1 => Just(Word::OtherClasses),
        1 => Just(Word::Unpaced),
    ]
}

/// All hosts of the widest tree.
fn host(index: usize) -> String {
    let names = [
        "host-1", "host-2", "host-3", "other-1", "other-2", "other-3",
    ];
    names[index % names.len()].to_owned()
}

fn report(ledger: &Ledger, word: &Word) -> HostReport {
    let keeps = |behind: u64, mbit| HostReport {
        change: (ledger.next_id - 1).saturating_sub(behind),
        ..report_of(ledger, limits_of_link(mbit))
    };
    match word {
        Word::Keeps(behind, mbit) => keeps(*behind, *mbit),
        Word::Refuses(index) => {
            let tenants: Vec<_> = ledger.tenants.keys().collect();
            let place = index.checked_rem(tenants.len());
            let refused = place.map(|place| RefusedVm {
                tenant: *tenants[place],
                vm: "acme/web/0".to_owned(),
                why: "no room".to_owned(),
            });
            HostReport {
                refused: refused.into_iter().collect(),
                ..keeps(0, 10_000)
            }
        }
        Word::Arrived => HostReport {
            arrived: ledger
                .tenants
                .values()
                .filter_map(|tenant| {
                    let Tenant { owner, name, .. } = &**tenant;
                    let number = tenant.moving.as_ref()?.vm;
                    Some(format!("{owner}/{name}/{number}"))
                })
                .collect(),
            ..keeps(0, 10_000)
        },
        Word::OtherClasses => HostReport {
            classes: Some(Classes::of(Fabric::ThreeClasses).into()),
            ..keeps(0, 10_000)
        },
        Word::Unpaced => HostReport {
            limits: None,
            ..keeps(0, 0)
        },
    }
}

/// The tree of all tests, and others with less or more.
fn tree(which: usize) -> Spec {
    let mut spec = Spec::from_toml(TREE).unwrap();
    match which {
        1 => spec.hosts[0].count = 2,
        2 => spec.hosts[1].slots = 9,
        3 => spec.groups[1].uplink.rate = tailbound_units::Rate::from_mbit(5_000),
        _ => {}
    }
    spec
}

/// One of the tenants, or one that is none.
fn some_tenant(ledger: &Ledger, index: usize) -> TenantId {
    let ids: Vec<TenantId> = ledger.tenants.keys().copied().collect();
    let place = index.checked_rem(ids.len());
    place.map_or(TenantId(7_000), |place| ids[place])
}

fn command(ledger: &Ledger, step: &Step) -> Command {
    let some = |index: usize| some_tenant(ledger, index);
    match step {
        Step::Create(owner, name, vms) => {
            let owner = if *owner { "acme" } else { "globex" };
            create(owner, &format!("name-{name}"), *vms).command
        }
        Step::Resize(index, vms) => Command::resize(some(*index), *vms),
        Step::Guarantee(index, mbit) => Command::Change {
            id: some(*index),
            vms: None,
            guarantee: Some(Guarantee {
                bandwidth: Rate::from_mbit(*mbit),
                burst: Bytes(3_000),
                delay: None,
                burst_rate: None,
                bursts: None,
                burst_in: None,
                class: None,
            }),
        },
        Step::Delete(index) => Command::Delete { id: some(*index) },
        Step::Relocate(index) => Command::Relocate { id: some(*index) },
        Step::Move(index, vm, step) => Command::Move {
            id: some(*index),
            step: MoveVm {
                vm: *vm,
                step: match step {
                    Ok(to) => MoveStep::Begin { to: host(*to) },
                    Err(true) => MoveStep::Done,
                    Err(false) => MoveStep::Cancel,
                },
            },
        },
        Step::Limit(index, out, inward) => Command::Limit {
            id: some(*index),
            limit: VmLimit {
                out: out.map(|mbit| OutLimit {
                    kind: LimitKind::default(),
                    rate: Rate::from_mbit(mbit),
                }),
                inward: inward.map(|mbit| InLimit {
                    rate: Rate::from_mbit(mbit),
                }),
            },
        },
        Step::SetHosts(node, state) => Command::SetHosts {
            node: NODES[*node].to_owned(),
            state: *state,
        },
        Step::Report(index, word) => Command::Report {
            host: host(*index),
            report: Box::new(report(ledger, word)),
        },
        Step::Silence(index) => Command::Silence {
            hosts: vec![(host(*index), 5), (host(index / 7), 9)],
        },
        Step::SetTopology(which) => Command::SetTopology {
            spec: Box::new(tree(*which)),
            expected: None,
        },
        scheduling => scheduling_command(ledger, scheduling),
    }
}

/// Returns the command of a step of an outside scheduler.
fn scheduling_command(ledger: &Ledger, step: &Step) -> Command {
    let some = |index: usize| some_tenant(ledger, index);
    match step {
        Step::PutHost(index, to, vms) => Command::PutHost {
            id: some(*index),
            host: host(*to),
            machines: HostMachines {
                vms: *vms,
                remove: Vec::new(),
            },
        },
        Step::Reserve(owner, name, to, vms) => {
            let Command::Create(new) = pinned(*owner, *name, *to, *vms) else {
                unreachable!("it is one");
            };
            Command::Reserve(Box::new(NewReservation {
                tenant: new.name,
                owner: new.owner,
                request: Some(MachineRequest {
                    guarantee: new.guarantee,
                    ..MachineRequest::default()
                }),
                placement: new.placement,
                ttl: Nanos::from_secs(30),
                machines: Vec::new(),
                replace: false,
            }))
        }
        Step::Confirm(index) => Command::Confirm(reservation(ledger, *index)),
        Step::Cancel(index) => Command::Cancel(reservation(ledger, *index)),
        Step::Expire(index) => Command::Expire(vec![
            reservation(ledger, *index),
            reservation(ledger, index / 7),
        ]),
        Step::Adopt(owner, name, to, vms) => {
            let Command::Create(new) = pinned(*owner, *name, *to, *vms) else {
                unreachable!("it is one");
            };
            Command::Adopt(vec![new])
        }
        Step::Batch(index, name, to, vms) => {
            let Command::Create(new) = pinned(true, *name, *to, 1) else {
                unreachable!("it is one");
            };
            Command::Batch(vec![
                Operation::Delete(TenantRef::Id(some(*index))),
                Operation::Create(Box::new(new)),
                Operation::Put(HostPut {
                    tenant: TenantRef::Id(some(index / 7)),
                    host: host(*to),
                    vms: *vms,
                    remove: Vec::new(),
                }),
            ])
        }
        other => unreachable!("{other:?} is not one of a scheduler"),
    }
}

/// A tenant whose machines are on one host.
fn pinned(owner: bool, name: u8, to: usize, vms: u32) -> Command {
    let owner = if owner { "acme" } else { "globex" };
    let mut call = create(owner, &format!("name-{name}"), vms);
    if let Command::Create(new) = &mut call.command {
        new.placement = vec![PinnedHost {
            host: host(to),
            vms,
        }];
    }
    call.command
}

/// One of the reservations, open or not, or one that is none.
fn reservation(ledger: &Ledger, index: usize) -> ReservationId {
    let tenants = ledger.tenants.values();
    let all: Vec<_> = tenants
        .flat_map(|tenant| tenant.reservations.iter().map(|record| record.id))
        .collect();
    let place = index.checked_rem(all.len());
    place.map_or(ReservationId(7_000), |place| all[place])
}

/// Checks that each reserved machine is a machine of its tenant, of one reservation only.
fn reservations_have_machines(ledger: &Ledger) {
    let mut ids = std::collections::BTreeSet::new();
    for tenant in ledger.tenants.values() {
        let mut numbers = std::collections::BTreeSet::new();
        for record in &tenant.reservations {
            assert!(ids.insert(record.id) && record.id.0 < ledger.next_id);
            assert!(!record.machines.is_empty());
            for machine in &record.machines {
                assert!(runs::host_of(&tenant.runs, machine.number).is_some());
                assert!(numbers.insert(machine.number));
            }
        }
    }
}

/// Every machine that is where it was has the number that it had, and moved ones
/// keep theirs as well.
fn numbers_stay(old: &Tenant, new: &Tenant) {
    let machines = |tenant: &Tenant| -> BTreeMap<u32, String> {
        let runs = tenant.runs.iter();
        runs.flat_map(|run| (run.first..run.first + run.count).map(|n| (n, run.host.to_string())))
            .collect()
    };
    let moving = old.moving.clone();
    let (old, new) = (machines(old), machines(new));
    if let Some(moving) = moving {
        // One machine at most is elsewhere.
        for (number, host) in &new {
            let stays = old.get(number) == Some(host);
            assert!(stays || (*number == moving.vm && *host == moving.to));
        }
        assert_eq!(old.len(), new.len());
        return;
    }
    let stayed = old
        .iter()
        .filter(|(n, host)| new.get(n) == Some(host))
        .count();
    let mut most = 0;
    for host in old.values().collect::<std::collections::BTreeSet<_>>() {
        let on = |all: &BTreeMap<u32, String>| all.values().filter(|h| *h == host).count();
        most += on(&old).min(on(&new));
    }
    assert_eq!(stayed, most, "{old:?} became {new:?}");
    if new.len() >= old.len() {
        assert!(old.keys().all(|number| new.contains_key(number)));
    }
}

/// Checks that a moving machine is announced to both of its hosts, and that each has a place for
/// it.
fn both_hosts_have_a_place(ledger: &Ledger) {
    let mut ends = 0;
    let topology = ledger.datacentre().topology();
    for host in topology
        .hosts()
        .iter()
        .map(|host| topology.name(*host).to_owned())
    {
        let of_tenant = |tenant: &Arc<Tenant>| -> BTreeSet<String> {
            tenant.hosts().map(str::to_owned).collect()
        };
        let tenants = ledger.tenants.values().map(of_tenant);
        let shared = tenants.filter(|hosts| hosts.contains(&host)).flatten();
        let shared: BTreeSet<String> = shared.filter(|other| *other != host).collect();
        assert_eq!(ledger.peers(&host), Some(shared));
        let told = ledger.guarantees(&host).unwrap();
        let shown = ledger.host(&host).unwrap();
        assert_eq!(told.vms.len() as u32, shown.used, "{host}");
        let here = ledger.tenants_at(&host);
        let has_misfit = here.iter().any(|id| ledger.tenants[id].misfit);
        assert!(shown.used <= shown.slots || has_misfit);
        ends += told.vms.iter().filter(|vm| vm.moves.is_some()).count();
    }
    let moving = ledger.tenants.values().filter(|it| it.moving.is_some());
    assert_eq!(ends, 2 * moving.count());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_ledger_loaded_from_stored_changes_equals_the_leaders(steps in steps()) {
        let (mut leader, changes) = ledger();
        let mut kept = Snapshot::default();
        kept.apply(&changes);
        let mut follower = leader.clone();
        for (number, step) in steps.iter().enumerate() {
            let call = Call {
                key: (number % 3 == 0).then(|| format!("key-{number}")),
                ..call(command(&leader, step))
            };
            let before = observe(&leader);
            match leader.decide(&call, Nanos(number as u64)) {
                Err(denied) => {
                    prop_assert_eq!(observe(&leader), before, "{}", denied);
                }
                Ok(decision) => {
                    if let Reply::Tenant(new) = &decision.reply
                        && let Some(old) = before.snapshot.tenants.get(&new.id)
                    {
                        numbers_stay(old, new);
                    }
                    kept.apply(&decision.changes);
                    follower.apply(&decision.changes).unwrap();
                    let after = observe(&leader);
                    prop_assert_eq!(&observe(&Ledger::load(kept.clone()).unwrap()), &after);
                    prop_assert_eq!(&observe(&follower), &after);
                    both_hosts_have_a_place(&leader);
                    reservations_have_machines(&leader);
                    if decision.changes.is_empty() {
                        prop_assert_eq!(&after, &before);
                    }
                    // The same call with its key changes nothing more.
                    if call.key.is_some() {
                        let again = leader.decide(&call, Nanos(number as u64)).unwrap();
                        prop_assert_eq!(again.reply, decision.reply);
                        prop_assert!(again.changes.is_empty());
                    }
                }
            }
        }
    }

    #[test]
    fn a_batch_taken_back_leaves_no_trace_and_one_applied_makes_an_equal_ledger(
        first in steps(),
        second in steps(),
    ) {
        let (mut leader, _) = ledger();
        for step in &first {
            let call = call(command(&leader, step));
            let _ = leader.decide(&call, Nanos(1));
        }
        let mut follower = leader.clone();
        let before = observe(&leader);
        let mut undos = Vec::new();
        let mut changes = Vec::new();
        for (number, step) in second.iter().enumerate() {
            let call = Call {
                key: Some(format!("key-{}", number % 5)),
                fingerprint: [(number % 5) as u8; 32],
                ..call(command(&leader, step))
            };
            if let Ok(decision) = leader.decide(&call, Nanos(1)) {
                changes.extend(decision.changes);
                undos.push(decision.undo);
            }
        }
        follower.apply(&changes).unwrap();
        prop_assert_eq!(observe(&follower), observe(&leader));
        for undo in undos.into_iter().rev() {
            leader.undo(undo).unwrap();
        }
        prop_assert_eq!(observe(&leader), before);
    }
}
