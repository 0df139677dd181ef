use super::*;
use crate::ledger::{Change, TokenHash, TokenRecord};
use crate::replica::{Leadership, STALE};
use crate::server::guarantees::tests::server;
use tailbound_api::{AuditCaller, Role, TokenRole};
use tokio::sync::watch;

fn record(name: &str, role: TokenRole, host: Option<&str>) -> Change {
    Change::Token(Arc::new(TokenRecord {
        name: name.to_owned(),
        role,
        owner: None,
        host: host.map(str::to_owned),
        sha256: TokenHash(hash_of(name.as_bytes())),
        expires: None,
        issued: 1,
        issued_by: AuditCaller::default(),
    }))
}

/// The replica does not know whether a token was revoked. A host needs its keys all the same.
#[tokio::test]
async fn a_replica_that_is_cut_off_accepts_no_issued_tokens_but_those_of_hosts() {
    let (_leadership, replica) = watch::channel(Leadership {
        role: Role::Follower,
        leader: Some("http://127.0.0.1:1".to_owned()),
    });
    let (proof, proved) = watch::channel(std::time::Instant::now());
    let server = server(Some(Replica::of(replica, proved)));
    let app = &server.app;
    let viewer = record("viewer", TokenRole::Viewer, None);
    let host = record("host", TokenRole::Host, Some("a"));
    app.service
        .apply(vec![viewer, host], 2)
        .await
        .unwrap()
        .unwrap();
    let name = |token: &str| {
        let identity = issued(app, token.as_bytes());
        identity.map(|identity| identity.map(|it| it.name))
    };
    assert_eq!(name("viewer").unwrap().as_deref(), Some("viewer"));
    assert_eq!(name("unknown").unwrap(), None);
    let long = std::time::Instant::now().checked_sub(STALE).unwrap();
    proof.send_replace(long);
    assert_eq!(name("viewer").unwrap_err().code(), Code::Unavailable);
    assert_eq!(name("host").unwrap().as_deref(), Some("host"));
    assert_eq!(name("unknown").unwrap(), None);
    proof.send_replace(std::time::Instant::now());
    assert!(name("viewer").is_ok());
}

fn allowed(caller: &Caller) -> Vec<String> {
    let rules = RULES.iter().filter(|rule| rule.access != Access::Open);
    rules
        .filter(|rule| rule.allows(caller).is_ok())
        .map(|rule| format!("{} {}", rule.method, rule.path))
        .collect()
}

/// Each role may do exactly this.
#[test]
fn each_role_has_its_operations_and_no_others() {
    assert_eq!(allowed(&Caller::Metrics), ["GET /metrics"]);
    let viewer = [
        "GET /v1/tenants",
        "GET /v1/tenants/{id}",
        "GET /v1/tenants/{id}/bound",
        "POST /v1/candidates",
        "GET /v1/reservations",
        "GET /v1/reservations/{id}",
        "GET /v1/machines",
        "GET /v1/machines/{name}",
        "GET /v1/events",
        "GET /v1/changes/tenants",
        "GET /v1/changes/hosts",
        "GET /v1/changes/audit",
        "GET /v1/audit",
        "GET /v1/quota",
        "GET /v1/faults",
        "GET /v1/tokens",
        "POST /v1/fit",
        "POST /v1/explain",
        "GET /v1/hosts",
        "GET /v1/hosts/{name}",
        "GET /v1/topology",
        "POST /v1/topology/diff",
        "GET /v1/map",
        "GET /v1/map/paths",
        "GET /v1/status",
        "GET /metrics",
    ];
    assert_eq!(allowed(&Caller::Viewer), viewer);
    let maintenance = allowed(&Caller::Maintenance);
    let more = maintenance
        .iter()
        .filter(|rule| !viewer.contains(&rule.as_str()));
    let drains = [
        "POST /v1/hosts/{name}/drain",
        "POST /v1/hosts/{name}/restore",
    ];
    assert_eq!(more.collect::<Vec<_>>(), drains);
    let host = Caller::Host {
        host: "a".to_owned(),
    };
    let own = [
        "PUT /v1/machines/{name}",
        "DELETE /v1/machines/{name}",
        "GET /v1/hosts/{name}/guarantees",
        "GET /v1/hosts/{name}/guarantees/stream",
        "GET /v1/hosts/{name}/hose-keys",
        "POST /v1/hosts/{name}/report",
    ];
    assert_eq!(allowed(&host), own);
    let tenant = Caller::Tenant {
        owner: "acme".to_owned(),
    };
    let of_tenants = |rule: &&Rule| matches!(rule.access, Access::Tenant | Access::Machine);
    let of_tenants = RULES.iter().filter(of_tenants);
    assert_eq!(allowed(&tenant).len(), of_tenants.count());
    assert!(
        allowed(&tenant)
            .iter()
            .all(|rule| !rule.contains("/v1/hosts"))
    );
    assert!(!allowed(&tenant).contains(&"POST /v1/adopt".to_owned()));
    let closed = RULES.iter().filter(|rule| rule.access != Access::Open);
    assert_eq!(allowed(&Caller::Operator).len(), closed.count());
}
