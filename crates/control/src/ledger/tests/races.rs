//! Two concurrent schedulers that reserve, confirm, cancel and lose their memory, and hosts that
//! start and end what was reserved on them.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use tailbound_api::{MachinePut, MachineRequest, MachineState, NewReservation, PinnedHost};

/// A step of a scheduler.
#[derive(Debug, Clone, Copy)]
enum Act {
    /// Reserves a machine for this pod on this host.
    Reserve(u8, u8),
    /// The same, wherever the pod is.
    Replace(u8, u8),
    /// A host starts the pod.
    Put(u8, u8),
    /// A host ends the pod.
    Leave(u8, u8),
    /// Repeats its last request, as after a lost answer.
    Repeat,
    Confirm,
    Cancel,
    /// Forgets its reservation, as after `kill -9`.
    Die,
    /// The time to live of all open reservations ends.
    Expire,
    /// Another leader reads the store.
    Elect,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0_u8..12, 0_u8..2).prop_map(|(pod, host)| Act::Reserve(pod, host)),
        6 => (0_u8..12, 0_u8..4).prop_map(|(pod, place)| Act::Replace(pod, place)),
        4 => (0_u8..12, 0_u8..4).prop_map(|(pod, place)| Act::Put(pod, place)),
        2 => (0_u8..12, 0_u8..2).prop_map(|(pod, host)| Act::Leave(pod, host)),
        2 => Just(Act::Repeat),
        4 => Just(Act::Confirm),
        2 => Just(Act::Cancel),
        1 => Just(Act::Die),
        1 => Just(Act::Expire),
        1 => Just(Act::Elect),
    ]
}

/// A scheduler with at most one reservation in its memory.
#[derive(Debug, Default)]
struct Scheduler {
    last: Option<Call>,
    holds: Option<(ReservationId, u8)>,
}

/// The tenant and the host of one of four places.
fn place(place: u8) -> (String, String) {
    let tenant = ["pods", "jobs"][usize::from(place / 2)];
    (tenant.to_owned(), format!("other-{}", place % 2 + 1))
}

fn reserve(pod: u8, at: u8, replace: bool, key: String) -> Call {
    let (tenant, host) = place(at);
    Call {
        key: Some(key),
        fingerprint: [pod; 32],
        ..call(Command::Reserve(Box::new(NewReservation {
            tenant,
            owner: Some("acme".to_owned()),
            request: Some(MachineRequest::default()),
            placement: vec![PinnedHost { host, vms: 1 }],
            ttl: Nanos::from_secs(30),
            machines: vec![format!("pod-{pod}")],
            replace,
        })))
    }
}

fn named(pod: u8) -> NamedMachine {
    NamedMachine {
        owner: "acme".to_owned(),
        name: format!("pod-{pod}"),
    }
}

fn put(pod: u8, at: u8) -> Call {
    let (tenant, host) = place(at);
    call(Command::PutMachine(Box::new(PutMachine {
        machine: named(pod),
        put: MachinePut {
            tenant: Some(tenant),
            owner: None,
            host,
            request: Some(MachineRequest::default()),
        },
        caller: Caller::Owner,
    })))
}

fn leave(pod: u8, host: u8) -> Call {
    call(Command::DeleteMachine {
        machine: named(pod),
        host: place(host).1,
        caller: Caller::Host,
    })
}

/// The confirmed places of each pod, and all its places, as the tenants have them.
fn places(ledger: &Ledger) -> BTreeMap<String, (usize, usize)> {
    let mut places: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let records = ledger.tenants.values().flat_map(|it| &it.reservations);
    for record in records {
        for machine in &record.machines {
            let name = machine.name.clone().unwrap_or_default();
            let (confirmed, all) = places.entry(name).or_default();
            *confirmed += usize::from(record.is_confirmed);
            *all += 1;
        }
    }
    places
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// In any order of the calls, a host has at most as many machines as slots, a pod has at most
    /// one confirmed machine and at most two in all, confirmed machines stay until they leave, and
    /// at the end nothing is reserved.
    #[test]
    fn no_order_of_calls_grants_twice_or_leaks(
        acts in prop::collection::vec((any::<bool>(), act()), 1..100),
    ) {
        let (mut ledger, changes) = ledger();
        let mut store = Snapshot::default();
        store.apply(&changes);
        let mut schedulers = [Scheduler::default(), Scheduler::default()];
        let mut bound = std::collections::BTreeSet::new();
        for (number, (which, act)) in acts.iter().enumerate() {
            let scheduler = &mut schedulers[usize::from(*which)];
            let call = match act {
                Act::Reserve(pod, at) | Act::Replace(pod, at) => {
                    let replace = matches!(act, Act::Replace(..));
                    let call = reserve(*pod, *at, replace, format!("{number}"));
                    scheduler.last = Some(call.clone());
                    call
                }
                Act::Put(pod, at) => put(*pod, *at),
                Act::Leave(pod, host) => leave(*pod, *host),
                Act::Repeat => match &scheduler.last {
                    Some(call) => call.clone(),
                    None => continue,
                },
                Act::Confirm => match scheduler.holds {
                    Some((id, _)) => call(Command::Confirm(id)),
                    None => continue,
                },
                Act::Cancel => match scheduler.holds.take() {
                    Some((id, _)) => call(Command::Cancel(id)),
                    None => continue,
                },
                Act::Die => {
                    *scheduler = Scheduler::default();
                    continue;
                }
                Act::Expire => {
                    let open = reservations::open_after(&ledger, ReservationId(0));
                    call(Command::Expire(open.iter().map(|it| it.id).collect()))
                }
                Act::Elect => {
                    ledger = Ledger::load(store.clone()).unwrap();
                    continue;
                }
            };
            let before = ledger.clone();
            let Ok(decision) = ledger.decide(&call, Nanos(number as u64)) else {
                prop_assert_eq!(observe(&ledger), observe(&before), "a refusal changed something");
                prop_assert!(ledger.owners == before.owners);
                if matches!(act, Act::Confirm) {
                    // It has expired meanwhile.
                    scheduler.holds = None;
                }
                continue;
            };
            store.apply(&decision.changes);
            match (act, &decision.reply) {
                (Act::Reserve(pod, _) | Act::Replace(pod, _), Reply::Reservation(it)) => {
                    scheduler.holds = Some((it.id, *pod));
                }
                (Act::Confirm, Reply::Reservation(reservation)) => {
                    let (id, pod) = scheduler.holds.take().unwrap();
                    prop_assert_eq!(reservation.id, id);
                    bound.insert(pod);
                }
                (Act::Put(pod, at), Reply::Machine(machine)) => {
                    let is = (machine.tenant_name.clone(), machine.host.clone());
                    prop_assert_eq!(is, place(*at));
                    prop_assert_eq!(machine.state, MachineState::Confirmed);
                    bound.insert(*pod);
                }
                (Act::Leave(pod, _), _)
                    if places(&ledger).get(&named(*pod).name).is_none_or(|it| it.0 == 0) =>
                {
                    bound.remove(pod);
                }
                _ => {}
            }
            let places = places(&ledger);
            for (pod, (confirmed, all)) in &places {
                prop_assert!(*confirmed <= 1, "{} was granted twice", pod);
                prop_assert!(*all <= 2 && all - confirmed <= 1, "{} is reserved twice", pod);
            }
            let confirmed = places.values().map(|it| it.0).sum::<usize>();
            prop_assert_eq!(confirmed, bound.len(), "a confirmed machine was lost");
            prop_assert!(ledger.owners == Ledger::load(ledger.snapshot()).unwrap().owners);
            for host in ["other-1", "other-2"] {
                prop_assert!(ledger.host(host).unwrap().used <= 6);
            }
        }
        let open = reservations::open_after(&ledger, ReservationId(0));
        let all = open.iter().map(|it| it.id).collect();
        let _ = ledger.decide(&call(Command::Expire(all)), Nanos(1)).unwrap();
        prop_assert_eq!(ledger.used, bound.len() as u64, "a reservation leaked");
        let report = crate::audit::audit(&ledger.snapshot());
        prop_assert_eq!(report.findings, Vec::new());
    }
}
