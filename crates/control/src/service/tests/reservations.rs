//! Reservations in time, across leaders, and between two schedulers.

use super::*;
use crate::ledger::reservations;
use tailbound_api::{
    MachineRequest, NewReservation, Operation, PinnedHost, Reservation, TenantRef,
};
use tailbound_units::Nanos;
use tokio::time::advance;

fn reserve(tenant: &str, host: &str, ttl: u64, machine: Option<String>) -> Call {
    call(Command::Reserve(Box::new(NewReservation {
        tenant: tenant.to_owned(),
        owner: Some("acme".to_owned()),
        request: Some(MachineRequest::default()),
        placement: vec![PinnedHost {
            host: host.to_owned(),
            vms: 1,
        }],
        ttl: Nanos::from_secs(ttl),
        machines: machine.into_iter().collect(),
        replace: false,
    })))
}

fn reservation(reply: Reply) -> Reservation {
    match reply {
        Reply::Reservation(reservation) => Arc::unwrap_or_clone(reservation),
        other => panic!("{other:?}"),
    }
}

fn used(service: &Service) -> u64 {
    service.read(|ledger| ledger.status(Role::Leader, None).used)
}

/// A service whose commits succeed without a wait.
async fn free() -> (Service, Arc<Mutex<Snapshot>>) {
    let Pair { service, kept, .. } = leader().await;
    (service, kept)
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn a_reservation_ends_after_its_time_and_a_confirmed_one_does_not() {
    let (service, _) = free().await;
    let short = reservation(
        service
            .call(reserve("web", "host-1", 10, None))
            .await
            .unwrap(),
    );
    let long = reservation(
        service
            .call(reserve("web", "host-2", 60, None))
            .await
            .unwrap(),
    );
    let kept = reservation(
        service
            .call(reserve("db", "host-3", 10, None))
            .await
            .unwrap(),
    );
    service.expire_reservations().await.unwrap();
    assert_eq!(service.time_left(short.id), Some(seconds(10)));
    service.call(call(Command::Confirm(kept.id))).await.unwrap();
    advance(seconds(9)).await;
    service.expire_reservations().await.unwrap();
    assert_eq!(used(&service), 3);
    advance(seconds(1)).await;
    service.expire_reservations().await.unwrap();
    assert_eq!(used(&service), 2);
    let open = service.read(|ledger| reservations::open_after(ledger, ReservationId(0)));
    assert_eq!(open.iter().map(|it| it.id).collect::<Vec<_>>(), [long.id]);
    advance(seconds(50)).await;
    service.expire_reservations().await.unwrap();
    assert_eq!(used(&service), 1, "what was confirmed stays");
    assert_eq!(service.time_left(long.id), Some(Duration::ZERO));
    service.expire_reservations().await.unwrap();
    assert_eq!(service.time_left(long.id), None, "it is forgotten");
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_counts_the_time_to_live_anew() {
    let (first, kept) = free().await;
    let made = reservation(
        first
            .call(reserve("web", "host-1", 10, None))
            .await
            .unwrap(),
    );
    first.expire_reservations().await.unwrap();
    advance(seconds(9)).await;
    // The first leader dies; another replica has read the store and is elected.
    drop(first);
    let ledger = Ledger::load(kept.lock().unwrap().clone()).unwrap();
    let service = Service::start(ledger, |_| {});
    service.expire_reservations().await.unwrap();
    assert_eq!(
        service.time_left(made.id),
        None,
        "a follower counts nothing"
    );
    let Pair { service, .. } = lead(service, kept, Arc::default()).await;
    service.expire_reservations().await.unwrap();
    assert_eq!(service.time_left(made.id), Some(seconds(10)));
    advance(seconds(9)).await;
    service.expire_reservations().await.unwrap();
    assert_eq!(
        used(&service),
        1,
        "it lives no shorter than its time to live"
    );
    advance(seconds(1)).await;
    service.expire_reservations().await.unwrap();
    assert_eq!(used(&service), 0);
}

#[tokio::test(start_paused = true)]
async fn expired_reservations_are_cancelled_after_a_failed_commit() {
    let Pair {
        service,
        gate,
        mut entered,
        ..
    } = leader().await;
    let made = spawn(&service, reserve("web", "host-1", 10, None));
    entered.recv().await.unwrap();
    gate.send(Ok(())).unwrap();
    made.await.unwrap().unwrap();
    service.expire_reservations().await.unwrap();
    advance(seconds(11)).await;
    gate.send(Err(StoreError::NoSpace)).unwrap();
    service.expire_reservations().await.unwrap_err();
    assert_eq!(used(&service), 1);
    gate.send(Ok(())).unwrap();
    service.expire_reservations().await.unwrap();
    assert_eq!(used(&service), 0);
}

#[tokio::test]
async fn a_batch_with_many_changes_has_a_commit_of_its_own() {
    let Pair {
        service,
        gate,
        mut entered,
        commits,
        ..
    } = leader().await;
    let first = spawn(&service, create("acme", "first", 1));
    entered.recv().await.unwrap();
    let others: Vec<_> = (0..10)
        .map(|number| spawn(&service, create("acme", &format!("web-{number}"), 1)))
        .collect();
    queued(&service, 10).await;
    let deletions = (0..95).map(|_| Operation::Delete(TenantRef::Name("acme/first".to_owned())));
    let batch = spawn(&service, call(Command::Batch(deletions.collect())));
    queued(&service, 11).await;
    drop(gate);
    first.await.unwrap().unwrap();
    for other in others {
        other.await.unwrap().unwrap();
    }
    let error = batch.await.unwrap().unwrap_err().to_string();
    assert!(
        error.starts_with("operation 1 of the batch: there is no tenant"),
        "{error}"
    );
    let calls: Vec<_> = commits.lock().unwrap().iter().map(|it| it.calls).collect();
    assert_eq!(calls, [1, 10, 1]);
}

/// Two schedulers that race, in turn for the last place of a host and for one pod. Each dies in some
/// of its turns after its reservation, which ends by its time to live.
async fn race(rounds: u64) {
    const OTHERS: u64 = 7;
    let (service, kept) = free().await;
    // Of the 8 places of this host, one is free.
    let mut others = create("acme", "others", OTHERS as u32);
    if let Command::Create(new) = &mut others.command {
        new.placement = vec![PinnedHost {
            host: "host-1".to_owned(),
            vms: OTHERS as u32,
        }];
    }
    service.call(others).await.unwrap();
    let mut confirmed = 0;
    for round in 0..rounds {
        let turns = [0, 1].map(|which| {
            let service = service.clone();
            let (host, pod) = if round % 2 == 0 {
                ("host-1", format!("pod-{round}-{which}"))
            } else {
                ("host-2", format!("pod-{round}"))
            };
            let dies = (round + which * 3).is_multiple_of(7);
            tokio::spawn(async move {
                let made = service.call(reserve("pods", host, 1, Some(pod))).await;
                let made = made.map(reservation).ok()?;
                if dies {
                    return None;
                }
                service.call(call(Command::Confirm(made.id))).await.unwrap();
                Some(made)
            })
        });
        let [one, other] = turns;
        let (one, other) = (one.await.unwrap(), other.await.unwrap());
        assert!(
            one.is_none() || other.is_none(),
            "round {round}: {one:?} {other:?}"
        );
        confirmed += u64::from(one.is_some() || other.is_some());
        if round % 4 < 3 {
            continue;
        }
        for _ in 0..2 {
            service.expire_reservations().await.unwrap();
            advance(seconds(2)).await;
        }
        service.expire_reservations().await.unwrap();
        // Confirmed machines and nothing else.
        assert_eq!(used(&service), OTHERS + confirmed, "round {round}");
        let pods = service.read(|ledger| ledger.tenant_named("acme", "pods").cloned());
        if let Some(tenant) = pods {
            let delete = Command::Delete { id: tenant.id };
            service.call(call(delete)).await.unwrap();
        }
        confirmed = 0;
    }
    let report = crate::audit::audit(&kept.lock().unwrap());
    assert_eq!(report.findings, Vec::new());
}

#[tokio::test(start_paused = true)]
async fn two_schedulers_never_get_one_place_or_one_pod_twice() {
    race(2_000).await;
}

#[tokio::test(start_paused = true)]
#[ignore = "takes a minute"]
async fn two_schedulers_never_get_one_place_or_one_pod_twice_in_100_000_races() {
    race(100_000).await;
}
