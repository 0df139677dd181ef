//! Issued tokens: requests about them, and their rights, which are those of tokens of the file.

use crate::api_refusals::WHO;
use crate::api_support::{ACME, Answer, GLOBEX, HOST, OPERATOR, Place, sha256};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Issues a token by another one, and returns its secret.
fn issue(place: &Place, by: &str, request: &Value) -> String {
    let answer = place.post(by, "/v1/tokens", &request.to_string());
    assert_eq!(answer.status, 201, "{request}: {answer:?}");
    assert_eq!(answer.header("cache-control"), "no-store");
    let answer = answer.json();
    assert_eq!(answer["token"]["name"], request["name"]);
    answer["secret"].as_str().unwrap().to_owned()
}

fn refused(place: &Place, by: &str, request: &Value) -> String {
    let state = place.content();
    let answer = place.post(by, "/v1/tokens", &request.to_string());
    let (code, detail) = answer.problem();
    assert_eq!(place.content(), state, "{request}");
    format!("{} {code}: {detail}", answer.status)
}

fn names(answer: &Answer) -> Vec<String> {
    let items = answer.json()["items"].as_array().unwrap().clone();
    let name = |token: Value| token["name"].as_str().unwrap().to_owned();
    items.into_iter().map(name).collect()
}

#[test]
fn a_token_is_shown_once_kept_by_its_hash_and_gone_when_it_is_revoked() {
    let place = Place::start();
    let secret = issue(&place, OPERATOR, &json!({"name": "ci", "role": "viewer"}));
    assert_eq!(secret.len(), 64);
    assert_eq!(place.get(&secret, "/v1/hosts").status, 200);
    let kept = format!("{:?}", place.state());
    assert!(!kept.contains(&secret), "the secret is kept");
    let list = place.get(OPERATOR, "/v1/tokens");
    assert_eq!(names(&list), ["ci"]);
    let hash = sha256(&secret);
    let text = String::from_utf8(list.body).unwrap();
    assert!(!text.contains(&secret) && !text.contains(&hash), "{text}");
    let audit = place.get(OPERATOR, "/v1/audit").body;
    let audit = String::from_utf8(audit).unwrap();
    assert!(audit.contains("token ci (viewer)") && audit.contains("issue-token"));
    assert!(
        !audit.contains(&secret) && !audit.contains(&hash),
        "{audit}"
    );

    assert_eq!(
        place
            .send(OPERATOR, "DELETE", "/v1/tokens/ci", &[], None)
            .status,
        204
    );
    assert_eq!(place.get(&secret, "/v1/hosts").status, 401);
    assert_eq!(
        place
            .send(OPERATOR, "DELETE", "/v1/tokens/ci", &[], None)
            .status,
        404
    );
}

/// Sends the requests of a table. Each of its lines has a request, an arrow, and the begin of the
/// answer.
fn refused_alike(place: &Place, by: &str, table: &str) {
    for line in table.trim().lines() {
        let (request, why) = line.split_once(" => ").unwrap();
        let said = refused(place, by, &serde_json::from_str(request).unwrap());
        assert!(said.starts_with(why), "{request}: {said}");
    }
}

#[test]
fn no_token_issues_more_than_its_own_rights() {
    let place = Place::start();
    let own = issue(&place, ACME, &json!({"name": "own", "role": "tenant"}));
    let answer = place.post(&own, "/v1/tenants", r#"{"name": "web", "vms": 1}"#);
    assert_eq!(answer.json()["owner"], "acme");
    refused_alike(
        &place,
        ACME,
        r#"
{"name": "a", "role": "operator"} => 403 forbidden: a token of "acme"
{"name": "a", "role": "viewer"} => 403 forbidden
{"name": "a", "role": "host", "host": "a-1"} => 403 forbidden
{"name": "a", "role": "tenant", "owner": "globex"} => 403 forbidden
"#,
    );
    let own = r#"{"name": "a", "role": "host", "host": "a-1"} => 403 forbidden"#;
    refused_alike(&place, HOST, own);
    // A token that ends issues none that does not.
    let end = "2098-01-01T00:00:00Z";
    let short = json!({"name": "short", "role": "tenant", "owner": "acme", "expires": end});
    let short = issue(&place, OPERATOR, &short);
    let longer = json!({"name": "longer", "role": "tenant", "expires": "2099-01-01T00:00:00Z"});
    let said = refused(&place, &short, &longer);
    assert!(said.contains("outlive") && said.contains(end), "{said}");
    let child = r#"{"name": "child", "role": "tenant"}"#;
    let answer = place.post(&short, "/v1/tokens", child);
    assert_eq!(answer.json()["token"]["expires"], end);
}

#[test]
fn invalid_token_requests_are_refused_with_one_error() {
    let place = Place::start();
    issue(&place, OPERATOR, &json!({"name": "own", "role": "viewer"}));
    refused_alike(
        &place,
        OPERATOR,
        r#"
{"name": "a", "role": "tenant"} => 422 absurd: a tenant's token has
{"name": "a", "role": "king"} => 400 malformed: the body is not as it has to be: role: unknown variant `king`
{"name": "a", "role": ["viewer", "operator"]} => 400 malformed
{"name": "a", "role": "viewer", "owner": "acme"} => 422 absurd: only the roles tenant and host
{"name": "a", "role": "viewer", "expires": "2020-01-01T00:00:00Z"} => 422 absurd: the token would have expired at 2020-01-01T00:00:00Z
{"name": "a", "role": "viewer", "expires": "tomorrow"} => 422 absurd: "tomorrow" is no date
{"name": "-", "role": "viewer"} => 422 absurd: "-" cannot be
{"name": "own", "role": "viewer"} => 409 exists
{"name": "ops", "role": "viewer"} => 409 exists: the tokens file
"#,
    );
}

/// An owner sees and revokes its own tokens, also those that an operator issued.
#[test]
fn an_owner_has_its_tokens_and_no_others() {
    let place = Place::start();
    issue(&place, OPERATOR, &json!({"name": "a", "role": "viewer"}));
    let given = json!({"name": "given", "role": "tenant", "owner": "acme"});
    let given = issue(&place, OPERATOR, &given);
    issue(&place, ACME, &json!({"name": "own", "role": "tenant"}));
    assert_eq!(names(&place.get(ACME, "/v1/tokens")), ["given", "own"]);
    assert_eq!(
        names(&place.get(OPERATOR, "/v1/tokens?limit=1&after=a")),
        ["given"]
    );
    assert_eq!(names(&place.get(GLOBEX, "/v1/tokens")), [""; 0]);
    let items = &place.get(ACME, "/v1/tokens").json()["items"];
    let by = [&items[0]["issued_by"], &items[1]["issued_by"]];
    assert_eq!(by, [&json!(""), &json!("acme")]);
    let revoke = |by, name| {
        let path = format!("/v1/tokens/{name}");
        place.send(by, "DELETE", &path, &[], None).status
    };
    assert_eq!((revoke(GLOBEX, "given"), revoke(ACME, "a")), (404, 404));
    assert_eq!(revoke(ACME, "given"), 204);
    assert_eq!(place.get(&given, "/v1/tenants").status, 401);
}

#[test]
fn a_retry_does_not_show_the_secret_again() {
    let place = Place::start();
    let send = || {
        let headers = [("idempotency-key", "k")];
        let body = &br#"{"name": "ci", "role": "metrics"}"#[..];
        place.send(OPERATOR, "POST", "/v1/tokens", &headers, Some(body))
    };
    let first = send();
    assert_eq!(first.status, 201);
    let (code, detail) = send().problem();
    assert_eq!(code, "exists");
    assert!(
        detail.contains("an earlier request with this idempotency key"),
        "{detail}"
    );
    let secret = first.json()["secret"].as_str().unwrap().to_owned();
    assert_eq!(place.get(&secret, "/metrics").status, 200);
    assert_eq!(
        place.get(OPERATOR, "/v1/tokens").json()["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn the_end_of_a_token_is_by_the_clock_of_the_service() {
    let place = Place::start();
    let end = tailbound_control::server::Expiry::after(Duration::from_secs(2)).to_string();
    let token = json!({"name": "ci", "role": "viewer", "expires": end});
    let secret = issue(&place, OPERATOR, &token);
    let mut lines = place.stream(&secret, "/v1/events");
    assert_eq!(place.get(&secret, "/v1/hosts").status, 200);
    let begin = Instant::now();
    until_end(&mut lines);
    assert!(begin.elapsed() < Duration::from_secs(9), "its stream ends");
    let (code, detail) = place.get(&secret, "/v1/hosts").problem();
    assert_eq!(code, "unauthenticated");
    assert_eq!(detail, format!("the token expired at {end}"));
    // Its name is free.
    issue(&place, OPERATOR, &json!({"name": "ci", "role": "viewer"}));
}

/// The last chunk of a stream.
const END: &str = "0\r\n";

fn until_end(stream: &mut BufReader<TcpStream>) {
    let mut line = String::new();
    while line != END {
        line.clear();
        stream.read_line(&mut line).unwrap();
    }
}

#[test]
fn streams_of_a_revoked_token_end_and_others_go_on() {
    let place = Place::start();
    let [one, other] = ["one", "other"]
        .map(|name| issue(&place, OPERATOR, &json!({"name": name, "role": "viewer"})));
    let mut lines = place.stream(&one, "/v1/events");
    let mut others = place.stream(&other, "/v1/changes/tenants");
    let of_host = json!({"name": "host", "role": "host", "host": "a-1"});
    let of_host = issue(&place, OPERATOR, &of_host);
    let mut guarantees = place.stream(&of_host, "/v1/hosts/a-1/guarantees/stream");
    let mut head = String::new();
    lines.read_line(&mut head).unwrap();
    others.read_line(&mut head).unwrap();
    assert!(head.contains("200 OK"), "{head}");
    let begin = Instant::now();
    assert_eq!(
        place
            .send(OPERATOR, "DELETE", "/v1/tokens/one", &[], None)
            .status,
        204
    );
    until_end(&mut lines);
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    // Changes of others' tokens, and of tenants, do not end it.
    let web = r#"{"name": "web", "vms": 1, "placement": [{"host": "a-1", "vms": 1}]}"#;
    assert_eq!(place.post(ACME, "/v1/tenants", web).status, 201);
    for stream in [&mut others, &mut guarantees] {
        let mut line = String::new();
        while !line.contains("acme") {
            line.clear();
            stream.read_line(&mut line).unwrap();
            assert_ne!(line, END, "the other stream ended, too");
        }
    }
}

/// The operations of viewers and maintenance; written out again, as [`WHO`] is.
const VIEWED: &[&str] = &[
    "GET /v1/tenants",
    "GET /v1/tenants/{id}",
    "GET /v1/tenants/{id}/bound",
    "POST /v1/candidates",
    "GET /v1/reservations",
    "GET /v1/reservations/{id}",
    "GET /v1/machines",
    "GET /v1/machines/{name}",
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

/// Every operation with an issued token of each role has the outcome of the table, and another's
/// tenant or host is refused.
#[test]
fn issued_tokens_permit_only_their_roles_operations() {
    let place = Place::start();
    place.admit("web", 1);
    let roles = [
        json!({"name": "r-maintenance", "role": "maintenance"}),
        json!({"name": "r-viewer", "role": "viewer"}),
        json!({"name": "r-metrics", "role": "metrics"}),
        json!({"name": "r-tenant", "role": "tenant", "owner": "globex"}),
        json!({"name": "r-host", "role": "host", "host": "b-1"}),
        json!({"name": "r-operator", "role": "operator"}),
    ];
    for request in roles {
        let role = request["role"].as_str().unwrap();
        let secret = issue(&place, OPERATOR, &request);
        for (method, path, tenant, host) in WHO {
            let operation = format!("{method} {path}");
            let may = match role {
                "operator" => true,
                "tenant" => *tenant,
                "host" => *host,
                "metrics" => *path == "/metrics",
                _ if operation.contains("/events") || operation.contains("/changes/") => true,
                "viewer" => VIEWED.contains(&operation.as_str()),
                _ => {
                    let drains = ["/drain", "/restore"].iter().any(|end| path.ends_with(end));
                    drains || VIEWED.contains(&operation.as_str())
                }
            };
            if may
                && (path.contains("/stream")
                    || path.contains("/events")
                    || path.contains("/changes/"))
            {
                // It does not end.
                continue;
            }
            // The tenant of acme, and a host that is not this token's.
            let named = path.contains("/hosts/{name}") && role == "host";
            let path = path.replace("{id}", "1").replace("{host}", "a-1");
            let path = path.replace("{name}", "a-1");
            let report = &br#"{"revision": 0, "change": 0}"#[..];
            let body = path.ends_with("/report").then_some(report);
            let answer = place.send(&secret, method, &path, &[], body);
            let foreign = role == "tenant" && path.contains("/tenants/1") && may;
            let expected = match () {
                () if named => answer.status == 403,
                () if foreign => matches!(answer.status, 400 | 404 | 415),
                () if may => !matches!(answer.status, 401 | 403),
                () => answer.status == 403,
            };
            assert!(expected, "{role} {operation}: {answer:?}");
        }
    }
    let tenants = &place.state().tenants;
    assert_eq!(tenants.len(), 0, "the operator's deletion alone reaches it");
}
