mod reservations;

use super::writer::CALLS;
use super::*;
use crate::ledger::testing::{bare_report, call, create, ledger};
use crate::ledger::{Command, Snapshot, TenantFilter};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::mpsc as sync;
use tailbound_api::{AuditEntry, AuditOutcome, HostState, Tenant};
use tailbound_placement::TenantId;

/// Store in memory. Each commit waits until the test sets its result.
struct Gated {
    kept: Arc<Mutex<Snapshot>>,
    entered: mpsc::UnboundedSender<()>,
    outcomes: sync::Receiver<Result<(), StoreError>>,
}

impl Store for Gated {
    fn load(&mut self) -> Result<Snapshot, StoreError> {
        Ok(self.kept.lock().unwrap().clone())
    }

    fn begin(&mut self, _tenants: &BTreeMap<TenantId, Arc<Tenant>>) {}

    fn commit(&mut self, changes: &[Change]) -> Result<u64, StoreError> {
        let _ = self.entered.send(());
        self.outcomes.recv().unwrap_or(Ok(()))?;
        let mut kept = self.kept.lock().unwrap();
        kept.apply(changes);
        kept.revision += 1;
        Ok(kept.revision)
    }
}

struct Pair {
    service: Service,
    kept: Arc<Mutex<Snapshot>>,
    /// Result of the next commit.
    gate: sync::Sender<Result<(), StoreError>>,
    /// Has one for each commit that has begun.
    entered: mpsc::UnboundedReceiver<()>,
    ended: oneshot::Receiver<StoreError>,
    commits: Arc<Mutex<Vec<CommitReport>>>,
}

async fn leader() -> Pair {
    let (ledger, changes) = ledger();
    let kept: Arc<Mutex<Snapshot>> = Arc::default();
    kept.lock().unwrap().apply(&changes);
    let commits: Arc<Mutex<Vec<CommitReport>>> = Arc::default();
    let observed = Arc::clone(&commits);
    let service = Service::start(ledger, move |commit| {
        observed.lock().unwrap().push(commit.clone());
    });
    lead(service, kept, commits).await
}

async fn lead(
    service: Service,
    kept: Arc<Mutex<Snapshot>>,
    commits: Arc<Mutex<Vec<CommitReport>>>,
) -> Pair {
    let (gate, outcomes) = sync::channel();
    let (sender, ended) = oneshot::channel();
    let (enters, entered) = mpsc::unbounded_channel();
    let store = Gated {
        kept: Arc::clone(&kept),
        entered: enters,
        outcomes,
    };
    let on_end: OnEnd = Box::new(move |error| drop(sender.send(error)));
    service.lead(Box::new(store), on_end).await.unwrap();
    Pair {
        service,
        kept,
        gate,
        entered,
        ended,
        commits,
    }
}

fn spawn(service: &Service, call: Call) -> tokio::task::JoinHandle<Result<Reply, ServiceError>> {
    let service = service.clone();
    tokio::spawn(async move { service.call(call).await })
}

/// Waits until `calls` calls are queued for the writer.
async fn queued(service: &Service, calls: usize) {
    while service.jobs.max_capacity() - service.jobs.capacity() < calls {
        tokio::task::yield_now().await;
    }
}

fn count(service: &Service) -> usize {
    let all = TenantFilter::default();
    service.read(|ledger| ledger.tenants(&all, None, 1_000).items.len())
}

#[tokio::test]
async fn changes_become_visible_only_after_their_commit() {
    let Pair {
        service,
        gate,
        mut entered,
        ..
    } = leader().await;
    let first = spawn(&service, create("acme", "first", 2));
    entered.recv().await.unwrap();
    let second = spawn(&service, create("acme", "second", 2));
    queued(&service, 1).await;
    assert!(!first.is_finished());
    assert_eq!(count(&service), 0);
    assert_eq!(
        service.read(|ledger| ledger.status(Role::Leader, None).used),
        0
    );
    gate.send(Ok(())).unwrap();
    assert!(matches!(first.await.unwrap(), Ok(Reply::Tenant(_))));
    assert!(!second.is_finished());
    assert_eq!(count(&service), 1);
    gate.send(Ok(())).unwrap();
    second.await.unwrap().unwrap();
    assert_eq!(count(&service), 2);
}

#[tokio::test]
async fn calls_that_wait_are_kept_in_few_commits() {
    let Pair {
        service,
        gate,
        mut entered,
        commits,
        kept,
        ..
    } = leader().await;
    let blocker = spawn(&service, create("acme", "blocker", 1));
    entered.recv().await.unwrap();
    let calls: Vec<_> = (0..41)
        .map(|number| {
            let call = Call {
                key: Some(number.to_string()),
                ..create("acme", &format!("web-{number}"), 1)
            };
            spawn(&service, call)
        })
        .collect();
    queued(&service, calls.len()).await;
    drop(gate);
    blocker.await.unwrap().unwrap();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    // Of 96 changes, three for each call.
    let commits: Vec<usize> = commits.lock().unwrap().iter().map(|it| it.calls).collect();
    assert_eq!(commits, [1, 32, 9]);
    let snapshot = service.read(Ledger::snapshot);
    assert_eq!(snapshot, *kept.lock().unwrap());
}

#[tokio::test]
async fn a_retry_at_the_same_time_reserves_once() {
    let Pair { service, gate, .. } = leader().await;
    drop(gate);
    let call = Call {
        key: Some("key".to_owned()),
        ..create("acme", "web", 3)
    };
    let all: Vec<_> = (0..20).map(|_| spawn(&service, call.clone())).collect();
    let mut replies = Vec::new();
    for one in all {
        replies.push(one.await.unwrap().unwrap());
    }
    assert!(replies.iter().all(|reply| *reply == replies[0]));
    assert_eq!(count(&service), 1);
}

#[tokio::test]
async fn a_commit_without_space_is_rolled_back_and_later_ones_pass() {
    let Pair {
        service,
        gate,
        mut entered,
        kept,
        ..
    } = leader().await;
    let blocker = spawn(&service, create("acme", "blocker", 2));
    entered.recv().await.unwrap();
    let batch = [
        create("acme", "most", 30),
        // These are refused because of the one before.
        create("acme", "more", 30),
        create("acme", "most", 1),
        call(Command::Delete { id: TenantId(1) }),
    ]
    .map(|call| spawn(&service, call));
    queued(&service, batch.len()).await;
    gate.send(Ok(())).unwrap();
    blocker.await.unwrap().unwrap();
    gate.send(Err(StoreError::NoSpace)).unwrap();
    for call in batch {
        let error = call.await.unwrap().unwrap_err();
        assert_eq!(error, ServiceError::Store(StoreError::NoSpace));
        assert_eq!(error.code(), Code::NoSpace);
    }
    assert_eq!(count(&service), 1);
    drop(gate);
    service.call(create("acme", "more", 30)).await.unwrap();
    let kept = kept.lock().unwrap().clone();
    assert_eq!(service.read(Ledger::snapshot), kept);
    assert_eq!((kept.tenants.len(), kept.revision), (2, 2));
    let entries = entries(&kept);
    let refused = entries[1..5].iter();
    assert!(
        refused
            .clone()
            .all(|it| it.outcome == AuditOutcome::Refused),
        "{entries:?}"
    );
    assert!(refused.clone().any(|it| it.after.contains("no space")));
    assert_eq!((entries.len(), entries[5].outcome), (6, AuditOutcome::Done));
}

#[tokio::test]
async fn a_leader_with_an_uncertain_commit_follows_until_it_reloads() {
    let Pair {
        service,
        gate,
        kept,
        ended,
        commits,
        ..
    } = leader().await;
    let call = Call {
        key: Some("key".to_owned()),
        ..create("acme", "web", 2)
    };
    let lost = spawn(&service, call.clone());
    gate.send(Err(StoreError::Uncertain("the line broke".to_owned())))
        .unwrap();
    let error = lost.await.unwrap().unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(matches!(ended.await.unwrap(), StoreError::Uncertain(_)));
    assert_eq!(service.role(), Role::Follower);
    assert_eq!(
        service.call(call.clone()).await,
        Err(ServiceError::NotLeader)
    );
    assert_eq!(count(&service), 0);
    // It was kept after all.
    let mut other = Ledger::load(kept.lock().unwrap().clone()).unwrap();
    let decision = other
        .decide(&call, tailbound_units::Nanos(u64::MAX / 2))
        .unwrap();
    kept.lock().unwrap().apply(&decision.changes);
    let loaded = Ledger::load(kept.lock().unwrap().clone()).unwrap();
    service.replace(loaded).await.unwrap();
    assert_eq!(count(&service), 1);
    let Pair { service, gate, .. } = lead(service, kept, commits).await;
    drop(gate);
    assert_eq!(service.call(call).await, Ok(decision.reply));
    assert_eq!(count(&service), 1);
}

fn entries(kept: &Snapshot) -> Vec<Arc<AuditEntry>> {
    let blocks = kept.audit.values();
    blocks.flat_map(|block| block.entries.clone()).collect()
}

#[tokio::test]
async fn refusals_are_kept_with_the_next_commit_or_on_request() {
    let Pair {
        service,
        gate,
        kept,
        ..
    } = leader().await;
    drop(gate);
    let number = || entries(&kept.lock().unwrap()).len();
    let done = service.audited(create("acme", "web", 2)).await;
    assert_eq!((done.entry.unwrap().number, number()), (1, 1));
    let refused = service.audited(create("acme", "web", 2)).await;
    assert_eq!(refused.entry.unwrap().outcome, AuditOutcome::Refused);
    assert_eq!(number(), 1);
    service.keep_refusals().await.unwrap();
    service.keep_refusals().await.unwrap();
    assert_eq!(number(), 2);
    service.call(create("acme", "web", 2)).await.unwrap_err();
    service.call(create("acme", "db", 2)).await.unwrap();
    let kept = kept.lock().unwrap().clone();
    // A refusal and a change in one transaction.
    assert_eq!((entries(&kept).len(), kept.audit.len()), (4, 3));
    assert_eq!(crate::audit::audit(&kept).findings, []);
    assert_eq!(service.read(Ledger::snapshot), kept);
}

/// Returns the content without the audit, which a follower gets from the leader.
fn without_audit(service: &Service) -> Snapshot {
    Snapshot {
        audit: std::collections::BTreeMap::new(),
        ..service.read(Ledger::snapshot)
    }
}

#[tokio::test]
async fn a_follower_applies_the_leaders_decisions() {
    let Pair { service, gate, .. } = leader().await;
    drop(gate);
    let (ledger, _) = ledger();
    let mut decider = ledger.clone();
    let follower = Service::start(ledger, |_| {});
    for (revision, vms) in [(1, 3), (2, 9), (3, 4)] {
        let call = create("acme", &format!("web-{vms}"), vms);
        let decision = decider.decide(&call, tailbound_units::Nanos(1)).unwrap();
        service.call(call).await.unwrap();
        let applied = follower.apply(decision.changes.clone(), revision).await;
        applied.unwrap().unwrap();
        assert_eq!(without_audit(&follower), without_audit(&service));
        // The same once more is no harm.
        let again = follower.apply(decision.changes, revision).await;
        again.unwrap().unwrap();
        assert_eq!(without_audit(&follower), without_audit(&service));
    }
    let error = follower.call(create("acme", "more", 1)).await;
    assert_eq!(error, Err(ServiceError::NotLeader));
    service.follow().await.unwrap();
    let error = service.call(create("acme", "more", 1)).await;
    assert_eq!(error, Err(ServiceError::NotLeader));
}

#[tokio::test]
async fn only_those_hosts_wake_whose_guarantees_changed() {
    let Pair { service, gate, .. } = leader().await;
    drop(gate);
    let mut all = service.watch();
    let mut first = service.watch_host("host-1");
    let mut last = service.watch_host("other-1");
    service.call(create("acme", "web", 2)).await.unwrap();
    assert!(first.has_changed().unwrap() && all.has_changed().unwrap());
    assert!(!last.has_changed().unwrap());
    first.mark_unchanged();
    // A tenant that grows elsewhere changes this host's guarantees as well.
    let id = TenantId(1);
    service.call(call(Command::resize(id, 30))).await.unwrap();
    assert!(first.has_changed().unwrap() && last.has_changed().unwrap());
    last.mark_unchanged();
    first.mark_unchanged();
    let drain = Command::SetHosts {
        node: "other-1".to_owned(),
        state: HostState::Drained,
    };
    service.call(call(drain)).await.unwrap();
    assert!(!first.has_changed().unwrap() && last.has_changed().unwrap());
    // Who is slow sees the last one only.
    let revision = service.read(Ledger::revision);
    assert_eq!((*all.borrow_and_update(), revision), (3, 3));
    service.call(call(Command::Delete { id })).await.unwrap();
    assert!(first.has_changed().unwrap());
    // A refusal is no change.
    all.mark_unchanged();
    service
        .call(call(Command::Delete { id }))
        .await
        .unwrap_err();
    let shown = service.read(|ledger| ledger.guarantees("host-1"));
    assert!(shown.unwrap().vms.is_empty());
}

/// While a long question runs, calls are decided and short questions are answered, and the next long
/// question sees all of it.
#[tokio::test]
async fn a_long_query_delays_only_other_long_queries() {
    let Pair { service, gate, .. } = leader().await;
    drop(gate);
    service.call(create("acme", "first", 2)).await.unwrap();
    let (begins, begun) = std::sync::mpsc::channel();
    let (ends, end) = std::sync::mpsc::channel::<()>();
    let asked = service.clone();
    let long = std::thread::spawn(move || {
        asked.question(|ledger| {
            begins.send(()).unwrap();
            let _ = end.recv();
            ledger.revision()
        })
    });
    begun.recv().unwrap();
    for name in ["second", "third"] {
        service.call(create("acme", name, 2)).await.unwrap();
    }
    assert_eq!(count(&service), 3);
    drop(ends);
    assert_eq!(long.join().unwrap(), 1);
    // It has what was durable before, by changes, by a new topology, and by a replacement.
    let equal = || {
        let original = service.read(Ledger::snapshot);
        assert_eq!(service.question(Ledger::snapshot), original);
    };
    equal();
    let spec = service.read(|ledger| ledger.topology().spec.clone());
    let topology = Command::SetTopology {
        spec: Box::new(spec),
        expected: None,
    };
    service.call(call(topology)).await.unwrap();
    equal();
    service.call(create("acme", "fourth", 1)).await.unwrap();
    equal();
    service.replace(ledger().0).await.unwrap();
    equal();
}

/// Sends more calls than a commit takes, then one of another payer: it is in the next commit.
async fn in_the_next_commit(flood: impl Fn(usize) -> Call, other: Call) {
    let Pair {
        service,
        gate,
        mut entered,
        ..
    } = leader().await;
    let first = spawn(&service, create("acme", "first", 1));
    entered.recv().await.unwrap();
    let flood: Vec<_> = (0..CALLS + 10)
        .map(|number| spawn(&service, flood(number)))
        .collect();
    queued(&service, CALLS + 10).await;
    let other = spawn(&service, other);
    queued(&service, CALLS + 11).await;
    gate.send(Ok(())).unwrap();
    first.await.unwrap().unwrap();
    entered.recv().await.unwrap();
    gate.send(Ok(())).unwrap();
    let soon = std::time::Duration::from_secs(20);
    let answer = tokio::time::timeout(soon, other).await;
    answer.expect("in the next commit").unwrap().unwrap();
    drop(gate);
    for call in flood {
        call.await.unwrap().unwrap_err();
    }
}

fn of_owner(owner: &str, name: &str, vms: u32) -> Call {
    Call {
        owner: Some(owner.to_owned()),
        ..create(owner, name, vms)
    }
}

#[tokio::test]
async fn calls_of_owners_are_decided_in_turn() {
    let flood = |number| of_owner("acme", &format!("web-{number}"), 0);
    in_the_next_commit(flood, of_owner("globex", "only", 1)).await;
}

#[tokio::test]
async fn reports_of_hosts_do_not_delay_operators() {
    let report = bare_report(0);
    let flood = |number| {
        call(Command::Report {
            host: format!("unknown-{number}"),
            report: Box::new(report.clone()),
        })
    };
    in_the_next_commit(flood, create("acme", "only", 1)).await;
}

/// A store with a defect.
struct Defect;

impl Store for Defect {
    fn load(&mut self) -> Result<Snapshot, StoreError> {
        Err(StoreError::Failed("not now".to_owned()))
    }

    fn begin(&mut self, _tenants: &BTreeMap<TenantId, Arc<Tenant>>) {}

    fn commit(&mut self, _: &[Change]) -> Result<u64, StoreError> {
        panic!("a defect")
    }
}

#[tokio::test]
async fn a_defect_of_the_thread_that_decides_ends_its_lead() {
    let service = Service::start(ledger().0, |_| {});
    let (sender, ended) = oneshot::channel();
    let on_end: OnEnd = Box::new(move |error| drop(sender.send(error)));
    service.lead(Box::new(Defect), on_end).await.unwrap();
    let call = create("acme", "web", 1);
    let error = service.call(call.clone()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(!ended.await.unwrap().is_certain());
    assert_eq!(service.role(), Role::Follower);
    assert_eq!(service.call(call).await, Err(ServiceError::NotLeader));
    assert_eq!(count(&service), 0);
}
