//! Two concurrent schedulers that reserve, confirm, cancel and lose their memory.

use super::*;
use proptest::prelude::*;
use tailbound_api::{MachineRequest, NewReservation, PinnedHost};

/// A step of a scheduler.
#[derive(Debug, Clone, Copy)]
enum Act {
    /// Reserves a machine for this pod on this host.
    Reserve(u8, u8),
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

fn reserve(pod: u8, host: u8, key: String) -> Call {
    Call {
        key: Some(key),
        fingerprint: [pod; 32],
        ..call(Command::Reserve(Box::new(NewReservation {
            tenant: "pods".to_owned(),
            owner: Some("acme".to_owned()),
            request: Some(MachineRequest::default()),
            placement: vec![PinnedHost {
                host: format!("other-{}", host + 1),
                vms: 1,
            }],
            ttl: Nanos::from_secs(30),
            machines: vec![format!("pod-{pod}")],
        })))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// In any order of the schedulers' calls, a host has at most as many machines as slots, a pod
    /// has one machine, confirmed machines stay, and at the end nothing is reserved.
    #[test]
    fn no_order_of_calls_grants_twice_or_leaks(
        acts in prop::collection::vec((any::<bool>(), act()), 1..80),
    ) {
        let (mut ledger, changes) = ledger();
        let mut store = Snapshot::default();
        store.apply(&changes);
        let mut schedulers = [Scheduler::default(), Scheduler::default()];
        let mut bound = std::collections::BTreeSet::new();
        for (number, (which, act)) in acts.iter().enumerate() {
            let scheduler = &mut schedulers[usize::from(*which)];
            let call = match act {
                Act::Reserve(pod, host) => {
                    let call = reserve(*pod, *host, format!("{number}"));
                    scheduler.last = Some(call.clone());
                    call
                }
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
            let Ok(decision) = ledger.decide(&call, Nanos(number as u64)) else {
                if matches!(act, Act::Confirm) {
                    // It has expired meanwhile.
                    scheduler.holds = None;
                }
                continue;
            };
            store.apply(&decision.changes);
            match (act, &decision.reply) {
                (Act::Reserve(pod, _), Reply::Reservation(reservation)) => {
                    scheduler.holds = Some((reservation.id, *pod));
                }
                (Act::Confirm, Reply::Reservation(reservation)) => {
                    let (id, pod) = scheduler.holds.take().unwrap();
                    prop_assert_eq!(reservation.id, id);
                    prop_assert!(bound.insert(pod), "the pod was granted twice");
                }
                _ => {}
            }
            for host in ["other-1", "other-2"] {
                prop_assert!(ledger.host(host).unwrap().used <= 6);
            }
        }
        let open = reservations::open_after(&ledger, ReservationId(0));
        let all = open.iter().map(|it| it.id).collect();
        let _ = ledger.decide(&call(Command::Expire(all)), Nanos(1)).unwrap();
        prop_assert_eq!(ledger.used, bound.len() as u64, "a reservation leaked");
    }
}
