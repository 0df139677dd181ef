//! The etcd store and its replicas, over a real etcd.

#[path = "etcd/changes.rs"]
mod changes;
#[path = "support/etcd.rs"]
mod etcd;
#[path = "support/proxy.rs"]
mod proxy;
#[path = "etcd/replicas.rs"]
mod replicas;

use changes::{applied, begin, hosts, long_answers};
use etcd::{Etcd, Tls};
use proxy::Proxy;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use replicas::{
    create, decide, faults, link, replica, replica_at, report, runtime, serve, three, until,
};
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tailbound_api::{AuditCaller, HostMachines, Role, Tenant, TokenRole};
use tailbound_control::ledger::{Call, Change, Command, Ledger, Reply, TokenHash, TokenRecord};
use tailbound_control::replica::{PROOF_LIFE, Replica};
use tailbound_control::service::{Service, ServiceError};
use tailbound_control::store::etcd::messages::{RangeRequest, RequestOp, TxnRequest, prefix_end};
use tailbound_control::store::etcd::{
    Deadline, EtcdStore, Keys, Layout, Link, Location, Term, load, snapshot,
};
use tailbound_control::store::{Store, StoreError};
use tailbound_placement::TenantId;
use tokio::runtime::Runtime;

/// Time limit for a call to etcd.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns a store that leads with a lease that does not end in this test.
fn lead(runtime: &Runtime, location: &Location) -> EtcdStore {
    let keys = Keys::new(&location.prefix);
    let mut link = Link::new(location, CALL_TIMEOUT).unwrap();
    let (term, layout) = runtime.block_on(async {
        let layout = load(&mut link, &keys).await.unwrap().layout;
        let lease = link
            .call(async |client| client.grant(600).await)
            .await
            .unwrap()
            .id;
        let (leader, commits) = (keys.leader(), keys.commits());
        let first = [
            // Another lease may hold it: then it is taken away.
            RequestOp::delete(leader.as_str()),
            RequestOp::put(commits, Term::commit(lease, 0)),
        ];
        let always = |ops: &[RequestOp]| TxnRequest {
            success: ops.to_vec(),
            ..TxnRequest::default()
        };
        let created = link
            .call(async |client| {
                client.txn(always(&first)).await?;
                let put = RequestOp::put(leader, "somebody");
                client.txn(always(&[put])).await
            })
            .await
            .unwrap()
            .header
            .unwrap()
            .revision;
        let deadline = Deadline::new(Instant::now() + Duration::from_mins(10));
        let term = Term {
            lease,
            created,
            deadline,
        };
        (term, layout)
    });
    EtcdStore::new(runtime.handle().clone(), link, keys, term, layout)
}

#[test]
fn many_long_documents_are_replaced_at_once() {
    let Some(etcd) = Etcd::start(1) else { return };
    let runtime = runtime();
    let location: Location = etcd.location("store").parse().unwrap();
    let mut store = lead(&runtime, &location);
    store.commit(&begin()).unwrap();
    // Each has a document and, of another key, parts.
    let (kept, gone) = long_answers(100);
    store.commit(&kept).unwrap();
    let parts = || {
        let found = etcd.etcdctl(0, &["get", "--prefix", "--keys-only", "/store/parts/"]);
        String::from_utf8(found).unwrap()
    };
    assert_eq!(parts().lines().filter(|line| !line.is_empty()).count(), 100);
    store.commit(&gone).unwrap();
    assert_eq!(snapshot(&location).unwrap().keys.len(), 0);
    // What there was no room for goes with the next one.
    store.commit(&begin()).unwrap();
    assert_eq!(parts().trim(), "");
}

#[test]
fn commits_are_read_back_long_documents_too() {
    let Some(etcd) = Etcd::start(1) else { return };
    let runtime = runtime();
    let location: Location = etcd.location("store").parse().unwrap();
    let mut store = lead(&runtime, &location);
    let mut all = begin();
    let mut last = 0;
    // Short, then in several parts, other parts, and short again.
    for bytes in [100, 6_000_000, 3_000_000, 100] {
        let change = hosts(bytes);
        let revision = store.commit(std::slice::from_ref(&change)).unwrap();
        assert!(revision > last);
        last = revision;
        all.push(change);
        store.commit(&begin()).unwrap();
        let mut read = snapshot(&location).unwrap();
        read.revision = 0;
        assert_eq!(read, applied(&all));
    }
    let parts = etcd.etcdctl(0, &["get", "--prefix", "--keys-only", "/store/parts/"]);
    assert_eq!(String::from_utf8(parts).unwrap().trim(), "");
}

#[test]
fn a_deposed_leader_writes_nothing() {
    let Some(etcd) = Etcd::start(1) else { return };
    let runtime = runtime();
    let location: Location = etcd.location("fence").parse().unwrap();
    let mut old = lead(&runtime, &location);
    old.commit(&begin()).unwrap();
    let mut new = lead(&runtime, &location);
    new.commit(&[Change::NextId(7)]).unwrap();
    // It still takes itself for the leader; neither a short change nor a part
    // of a long one gets through.
    assert_eq!(old.commit(&[Change::NextId(5)]), Err(StoreError::NotLeader));
    assert_eq!(old.commit(&[hosts(200_000)]), Err(StoreError::NotLeader));
    assert_eq!(snapshot(&location).unwrap().next_id, 7);
    let parts = etcd.etcdctl(0, &["get", "--prefix", "--keys-only", "/fence/parts/"]);
    assert_eq!(String::from_utf8(parts).unwrap().trim(), "");
    assert_eq!(new.commit(&[]), new.commit(&[]));
}

#[test]
fn a_leader_whose_lease_may_have_ended_answers_nothing() {
    let Some(etcd) = Etcd::start(1) else { return };
    let runtime = runtime();
    let location: Location = etcd.location("late").parse().unwrap();
    let keys = Keys::new(&location.prefix);
    let term = Term {
        lease: 1,
        created: 1,
        deadline: Deadline::new(Instant::now()),
    };
    let link = Link::new(&location, CALL_TIMEOUT).unwrap();
    let mut store = EtcdStore::new(
        runtime.handle().clone(),
        link,
        keys,
        term,
        Layout::default(),
    );
    assert_eq!(store.commit(&[]), Err(StoreError::NotLeader));
}

#[test]
fn a_commit_whose_answer_is_lost_is_made_once() {
    let Some(etcd) = Etcd::start(1) else { return };
    let runtime = runtime();
    let direct: Location = etcd.location("lost").parse().unwrap();
    let proxy = Proxy::start(direct.endpoints[0].trim_start_matches("http://"));
    let through: Location = format!("etcd://{}/lost", proxy.address()).parse().unwrap();
    let mut store = lead(&runtime, &through);
    let before = store.commit(&begin()).unwrap();
    proxy.swallow_answers();
    let revision = store.commit(&[Change::NextId(5)]).unwrap();
    // Nobody else writes, so each transaction counts the revision up by one.
    assert_eq!(revision, before + 1);
    let read = snapshot(&direct).unwrap();
    assert_eq!((read.next_id, read.revision), (5, revision));
    // And it goes on from there.
    assert!(store.commit(&[Change::NextId(6)]).unwrap() > revision);
    assert_eq!(snapshot(&direct).unwrap().next_id, 6);
}

#[test]
fn too_many_changes_at_once_are_refused_for_certain() {
    let Some(etcd) = Etcd::start(1) else { return };
    let runtime = runtime();
    let location: Location = etcd.location("many").parse().unwrap();
    let mut store = lead(&runtime, &location);
    store.commit(&begin()).unwrap();
    let many: Vec<Change> = (1..=128).map(|id| Change::Gone(TenantId(id))).collect();
    let error = store.commit(&many).unwrap_err();
    assert!(error.is_certain(), "{error}");
    store.commit(&many[1..]).unwrap();
}

/// A load balancer that looks at `/readyz` sends no change to a replica that cannot pass it on.
#[test]
fn a_follower_is_ready_while_it_proves_its_way_to_the_leader() {
    let Some(mut etcd) = Etcd::start(1) else {
        return;
    };
    let location: Location = etcd.location("way").parse().unwrap();
    runtime().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy::start(&listener.local_addr().unwrap().to_string());
        let leader = replica_at(&location, &format!("http://{}", proxy.address())).await;
        until("it leads", || leader.1.leadership().role == Role::Leader).await;
        assert_eq!(leader.1.check_ready(), Ok(()));
        let follower = replica_at(&location, "http://127.0.0.1:1").await;
        // The leader's server does not run yet.
        until("the way was tried", || {
            let why = follower.1.check_ready().unwrap_err();
            why.contains(&proxy.address().to_string()) && !why.contains("not tried")
        })
        .await;
        serve(listener, &leader);
        until("there is a way", || follower.1.check_ready().is_ok()).await;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let follows = listener.local_addr().unwrap().to_string();
        serve(listener, &follower);
        let only = |kind: &str| faults(&follows).is_some_and(|found| found == kind);
        until("it has no fault", || only("")).await;

        proxy.close();
        let begin = Instant::now();
        until("there is none", || follower.1.check_ready().is_err()).await;
        assert!(begin.elapsed() < PROOF_LIFE + Duration::from_secs(1));
        until("it is a fault", || only("leader-unreachable")).await;
        assert_eq!(leader.1.check_ready(), Ok(()), "the leader needs none");
        let knows = follower.1.leadership().leader;
        assert!(knows.is_some(), "etcd still names the leader");
        proxy.open();
        until("there is one again", || follower.1.check_ready().is_ok()).await;
        etcd.kill(0);
        until("its store is away", || only("replica-stale")).await;
    });
}

/// A replica that has resigned is no candidate, and its server goes on.
#[test]
fn a_replica_without_a_leader_names_that_alone() {
    let Some(etcd) = Etcd::start(1) else { return };
    let location: Location = etcd.location("headless").parse().unwrap();
    runtime().block_on(async {
        let one = replica(&location, 0).await;
        until("it leads", || one.1.leadership().role == Role::Leader).await;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        serve(listener, &one);
        let only = |kind: &str| faults(&address).is_some_and(|found| found == kind);
        until("it has no fault", || only("")).await;
        one.1.resign().await;
        until("the fault of a missing leader", || only("no-leader")).await;
    });
}

/// The address of the leader leads to a follower: no write would be done there.
#[test]
fn an_address_that_is_not_the_leaders_is_no_way() {
    let Some(etcd) = Etcd::start(1) else { return };
    let location: Location = etcd.location("astray").parse().unwrap();
    runtime().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let leader = replica_at(&location, &url).await;
        until("it leads", || leader.1.leadership().role == Role::Leader).await;
        let follower = replica_at(&location, "http://127.0.0.1:1").await;
        serve(listener, &follower);
        until("it says so", || {
            let why = follower.1.check_ready().unwrap_err();
            why.contains("503") && why.contains("not the leader's")
        })
        .await;
    });
}

#[test]
fn a_token_is_known_and_revoked_at_all_replicas_within_a_second() {
    let Some(etcd) = Etcd::start(1) else { return };
    let location: Location = etcd.location("tokens").parse().unwrap();
    runtime().block_on(async {
        let (one, two, three) = tokio::join!(
            replica(&location, 0),
            replica(&location, 1),
            replica(&location, 2)
        );
        let replicas = [one, two, three];
        let leader = decide(&replicas, "first").await;
        let token = TokenRecord {
            name: "ci".to_owned(),
            role: TokenRole::Viewer,
            owner: None,
            host: None,
            sha256: TokenHash([7; 32]),
            expires: None,
            issued: 1,
            issued_by: AuditCaller::default(),
        };
        let commands = [
            (Command::IssueToken(Arc::new(token)), 1),
            (Command::RevokeToken("ci".to_owned()), 0),
        ];
        for (command, expected) in commands {
            let mut changes: Vec<_> = replicas.iter().map(|it| it.0.watch_tokens()).collect();
            let call = Call::of_service(command);
            replicas[leader].0.call(call).await.unwrap();
            let begin = Instant::now();
            for ((service, _), change) in replicas.iter().zip(&mut changes) {
                change.changed().await.unwrap();
                let known = service.read(|ledger| ledger.snapshot().tokens.len());
                assert_eq!(known, expected);
            }
            let took = begin.elapsed();
            assert!(took < Duration::from_secs(1), "{took:?}");
            // One that starts later reads them from the store.
            let (service, _) = replica(&location, 3).await;
            let known = service.read(|ledger| ledger.snapshot().tokens.len());
            assert_eq!(known, expected);
        }
    });
}

#[test]
fn followers_replicate_commits_and_take_over_the_lead() {
    let Some(etcd) = Etcd::start(1) else { return };
    let location: Location = etcd.location("replicas").parse().unwrap();
    runtime().block_on(async {
        let mut replicas = three(&location).await;
        for left in (1..=3).rev() {
            let name = format!("tenant-{left}");
            let leader = decide(&replicas, &name).await;
            let leadership = replicas[leader].1.leadership();
            assert_eq!(leadership.role, Role::Leader);
            // What a host said before, to another leader, is known here.
            assert_eq!(
                link(&replicas[leader].0),
                (left < 3).then_some(left as u64 + 1)
            );
            replicas[leader].0.call(report(left as u64)).await.unwrap();
            for (service, replica) in &replicas {
                until("the tenant is there", || {
                    service.read(|ledger| ledger.snapshot().tenants.len()) == 4 - left
                })
                .await;
                until("what the host says", || link(service) == Some(left as u64)).await;
                until("the leader is known", || {
                    replica.leadership().leader == leadership.leader
                })
                .await;
            }
            let revisions = replicas
                .iter()
                .map(|(service, _)| service.read(Ledger::revision));
            assert_eq!(
                revisions.min(),
                replicas.iter().map(|(s, _)| s.read(Ledger::revision)).max()
            );
            let (service, replica) = replicas.remove(leader);
            replica.resign().await;
            assert_eq!(
                service.call(create("late")).await,
                Err(ServiceError::NotLeader)
            );
        }
    });
    let read = snapshot(&location).unwrap();
    assert_eq!((read.tenants.len(), read.keys.len()), (3, 3));
    assert_eq!(read.said["host-1"].silent_since, None);
}

/// Sets the number of a tenant's machines on a host.
async fn put(service: &Service, host: u32, vms: u32) -> Result<Reply, ServiceError> {
    let command = Command::PutHost {
        id: TenantId(1),
        host: format!("host-{host}"),
        machines: HostMachines {
            vms,
            remove: Vec::new(),
        },
    };
    service.call(Call::of_service(command)).await
}

/// A follower sees the machines that changed, and goes on with them when it leads.
#[test]
fn changes_of_single_machines_of_a_large_tenant_are_followed_and_taken_over() {
    let Some(etcd) = Etcd::start(1) else { return };
    let location: Location = etcd.location("large").parse().unwrap();
    runtime().block_on(async {
        let mut replicas = three(&location).await;
        let leads = |replicas: &[(Service, Replica)]| {
            let leads = |it: &(Service, Replica)| it.1.leadership().role == Role::Leader;
            replicas.iter().position(leads)
        };
        until("one leads", || leads(&replicas).is_some()).await;
        let mut new = create("large");
        if let Command::Create(new) = &mut new.command {
            new.vms = 40;
        }
        replicas[leads(&replicas).unwrap()]
            .0
            .call(new)
            .await
            .unwrap();
        let tenant = |service: &Service| {
            service.read(|ledger| ledger.tenant(TenantId(1)).map(|it| Tenant::clone(it)))
        };
        let mut whole = 0;
        for (round, left) in [3, 2, 1].into_iter().enumerate() {
            assert_eq!(replicas.len(), left);
            until("one leads", || leads(&replicas).is_some()).await;
            let leader = leads(&replicas).unwrap();
            let service = &replicas[leader].0;
            // Two commits in a row, of machines of different sections.
            for (host, vms) in [(8, round as u32 + 1), (1, 7 - round as u32)] {
                put(service, host, vms).await.unwrap();
            }
            let kept = tenant(service);
            for (other, _) in &replicas {
                until("it has it, too", || tenant(other) == kept).await;
            }
            let mut link = Link::new(&location, CALL_TIMEOUT).unwrap();
            let read = load(&mut link, &Keys::new(&location.prefix)).await;
            let read = read.unwrap().snapshot;
            assert_eq!(
                read.tenants.get(&TenantId(1)).map(|it| Tenant::clone(it)),
                kept
            );
            let stored = stored(&location).await;
            assert!(
                stored
                    .iter()
                    .any(|(key, _)| key.contains("/data/sections/")),
                "{stored:?}"
            );
            let document = stored
                .iter()
                .find(|(key, _)| key.contains("/data/tenants/"));
            let at = document.unwrap().1;
            assert!(
                round == 0 || at == whole,
                "the whole tenant was written again"
            );
            whole = at;
            let (_, replica) = replicas.remove(leader);
            replica.resign().await;
        }
    });
}

/// Returns all keys of a store with the revisions of their values.
async fn stored(location: &Location) -> Vec<(String, i64)> {
    let mut link = Link::new(location, CALL_TIMEOUT).unwrap();
    let key = Keys::new(&location.prefix).all().into_bytes();
    let request = RangeRequest {
        range_end: prefix_end(&key),
        key,
        ..RangeRequest::default()
    };
    let found = link.call(async |client| client.range(request).await).await;
    let kvs = found.unwrap().kvs.into_iter();
    kvs.map(|kv| (String::from_utf8(kv.key).unwrap(), kv.mod_revision))
        .collect()
}

/// Writes an authority, and a certificate by it for members and clients.
fn certificates(dir: &Path) -> Tls {
    let ca_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = params.self_signed(&ca_key).unwrap();
    let key = KeyPair::generate().unwrap();
    let names = vec!["127.0.0.1".to_owned()];
    let cert = CertificateParams::new(names)
        .unwrap()
        .signed_by(&key, &Issuer::new(params, ca_key))
        .unwrap();
    let write = |name: &str, text: String| {
        let path = dir.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    Tls {
        ca: write("ca.pem", ca.pem()),
        cert: write("cert.pem", cert.pem()),
        key: write("key.pem", key.serialize_pem()),
    }
}

#[test]
fn etcd_with_tls_and_a_user_limited_to_one_prefix_suffices() {
    let dir = tempfile::tempdir().unwrap();
    let tls = certificates(dir.path());
    let Some(etcd) = Etcd::start_with(1, Some(tls.clone())) else {
        return;
    };
    for arguments in [
        ["user", "add", "root:secret"].as_slice(),
        &["user", "grant-role", "root", "root"],
        &["role", "add", "place"],
        &[
            "role",
            "grant-permission",
            "--prefix=true",
            "place",
            "readwrite",
            "/own/",
        ],
        &["user", "add", "place:word"],
        &["user", "grant-role", "place", "place"],
        &["auth", "enable"],
    ] {
        assert!(!etcd.etcdctl(0, arguments).is_empty(), "{arguments:?}");
    }
    let password = dir.path().join("password");
    fs::write(&password, "word\n").unwrap();
    let at = |prefix: &str| -> Location {
        format!(
            "{}?ca={}&cert={}&key={}&user=place&password-file={}",
            etcd.location(prefix).replace("etcd://", "etcds://"),
            tls.ca.display(),
            tls.cert.display(),
            tls.key.display(),
            password.display()
        )
        .parse()
        .unwrap()
    };
    let runtime = runtime();
    runtime.block_on(async {
        let replicas = [replica(&at("own"), 0).await];
        decide(&replicas, "tenant").await;
        replicas[0].1.resign().await;
    });
    assert_eq!(snapshot(&at("own")).unwrap().tenants.len(), 1);
    let error = snapshot(&at("other")).unwrap_err().to_string();
    assert!(error.contains("permission denied"), "{error}");

    let location = at("own");
    let keys = Keys::new(&location.prefix);
    let mut link = Link::new(&location, CALL_TIMEOUT).unwrap();
    runtime.block_on(load(&mut link, &keys)).unwrap();
    // This ends all tokens, and leaves the connection as it is.
    for switch in ["disable", "enable"] {
        let arguments = ["--user", "root:secret", "auth", switch];
        assert!(!etcd.etcdctl(0, &arguments).is_empty(), "{switch}");
    }
    runtime.block_on(load(&mut link, &keys)).unwrap();
}
