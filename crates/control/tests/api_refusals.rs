//! Refusals of the API: each has a status, a code, and a description of the mistake, and changes
//! nothing.

use crate::api_support::{ACME, GLOBEX, HOST, OPERATOR, Place};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// A request, and the expected status, code, and a part of the detail.
struct Case<'a> {
    token: &'a str,
    method: &'a str,
    path: &'a str,
    headers: &'a [(&'a str, &'a str)],
    body: Option<&'a [u8]>,
    expected: (&'a str, &'a str),
}

/// Reads `METHOD PATH [BODY]` and `STATUS CODE`.
fn case<'a>(token: &'a str, request: &'a str, expected: (&'a str, &'a str)) -> Case<'a> {
    let (method, rest) = request.split_once(' ').unwrap();
    let (path, body) = rest.split_once(' ').unwrap_or((rest, ""));
    Case {
        token,
        method,
        path,
        headers: &[],
        body: (!body.is_empty()).then_some(body.as_bytes()),
        expected,
    }
}

/// Sends each to a service with the tenant 1 `acme/web` of 3 machines.
fn refused(cases: &[Case<'_>]) {
    let place = Place::start();
    place.admit("web", 3);
    let state = place.content();
    for case in cases {
        let Case {
            token,
            method,
            path,
            headers,
            body,
            expected,
        } = *case;
        let answer = place.send(token, method, path, headers, body);
        let what = format!(
            "{method} {path} {}: {}",
            String::from_utf8_lossy(body.unwrap_or_default()),
            String::from_utf8_lossy(&answer.body)
        );
        let (code, detail) = answer.problem();
        assert_eq!(format!("{} {code}", answer.status), expected.0, "{what}");
        assert!(detail.contains(expected.1), "{what}");
        assert!(place.content() == state, "{what}");
    }
}

/// Sends the requests of a table. Each of its lines has the end of a request, an arrow, and a part
/// of the detail; all requests begin alike, and have the same status and code.
fn refused_alike(token: &str, begin: &str, expected: &str, table: &str) {
    let lines = table.trim().lines().map(|line| {
        let (end, detail) = line.split_once(" => ").unwrap();
        (format!("{begin}{end}"), detail)
    });
    let lines: Vec<_> = lines.collect();
    let cases = lines
        .iter()
        .map(|(request, detail)| case(token, request, (expected, detail)));
    refused(&cases.collect::<Vec<_>>());
}

const POST: &str = "POST /v1/tenants ";

#[test]
fn malformed_bodies_are_refused_where_they_are_wrong() {
    refused_alike(
        ACME,
        POST,
        "400 malformed",
        r#"
{ => EOF while parsing an object at line 1 column 1
[1] => line 1 column
null => expected struct NewTenant
{"name": "a", "vms": 1} x => trailing characters at line 1 column 25
{"name": "a"} => missing field `vms`
{"name": "a", "vms": 1, "vm": 2} => unknown field `vm`
{"name": "a", "vms": 1, "vms": 2} => duplicate field `vms`
{"name": "a", "vms": "1"} => vms: invalid type: string "1", expected u32
{"name": "a", "vms": 1.5} => vms: invalid type: floating point `1.5`
{"name": "a", "vms": -1} => vms: invalid value: integer `-1`
{"name": "a", "vms": 4294967296} => vms: invalid value: integer `4294967296`
{"name": 5, "vms": 1} => name: invalid type: integer `5`
{"name": "a", "vms": 1, "guarantee": {"bandwidth": "1GB"}} => guarantee.bandwidth: "1GB" has the unknown unit "GB": use one of Gbit/s
{"name": "a", "vms": 1, "memory": "1000000000000000000GB"} => memory: "1000000000000000000GB" is more than
{"name": "a", "vms": 1, "guarantee": {"bandwidth": "1Gbit/s", "burst": "0.5B"}} => is not a whole number of bytes
"#,
    );
    let deep = "[".repeat(100_000);
    let bodies = [
        (&b"{\n \"name\": \"a\",\n \"vms\": }"[..], "line 3 column 9"),
        (b"", "EOF while parsing"),
        (b"{\"name\": \"\xff\xfe\"}", "line 1"),
        (deep.as_bytes(), "line 1 column"),
    ];
    refused(&bodies.map(|(body, detail)| Case {
        body: Some(body),
        ..case(ACME, POST.trim(), ("400 malformed", detail))
    }));
}

#[test]
fn zero_and_absurd_numbers_are_refused_by_name() {
    refused_alike(
        ACME,
        POST,
        "422 absurd",
        r#"
{"name": "a", "vms": 0} => at least 1 machine
{"name": "a", "vms": 2, "guarantee": {"bandwidth": "0bit/s"}} => bandwidth of 0bit/s is not between
{"name": "a", "vms": 2, "guarantee": {"bandwidth": "2000Gbit/s"}} => bandwidth of 2000Gbit/s
{"name": "a", "vms": 2, "guarantee": {"bandwidth": "1Gbit/s", "burst": "1000000000GB"}} => burst of 1000000000GB is not between 0B and 1GB
{"name": "a", "vms": 2, "guarantee": {"bandwidth": "1Gbit/s", "delay": "0ns"}} => delay of 0ns
{"name": "a", "vms": 2, "guarantee": {"bandwidth": "1Gbit/s", "burst_rate": "1Mbit/s"}} => burst rate of 1Mbit/s is below the bandwidth of 1Gbit/s
{"name": "a", "vms": 1, "cpu": 18446744073709551615} => cpu of
{"name": "a", "vms": 1, "memory": "1000000000GB"} => memory of
{"name": "a", "vms": 2, "domains": {"height": 1, "count": 3}} => number of fault domains of 3
{"name": "", "vms": 1} => name
{"name": "Web", "vms": 1} => name
{"name": "a/b", "vms": 1} => name
{"name": "-a", "vms": 1} => name
"#,
    );
}

#[test]
fn no_machines_and_no_owner_are_refused_wherever_they_stand() {
    refused(&[
        case(
            OPERATOR,
            r#"POST /v1/tenants {"name": "a", "vms": 1}"#,
            ("422 absurd", "owner"),
        ),
        case(
            ACME,
            r#"PATCH /v1/tenants/1 {"vms": 0}"#,
            ("422 absurd", "at least 1 machine"),
        ),
    ]);
    refused_alike(
        ACME,
        "POST /v1/",
        "422 absurd",
        r#"
fit {"vms": 0} => at least 1 machine
explain {"vms": 0} => at least 1 machine
"#,
    );
}

#[test]
fn requests_that_do_not_fit_or_already_exist_conflict() {
    let conflict = |request, code, detail| case(ACME, request, (code, detail));
    refused(&[
        conflict(
            r#"POST /v1/tenants {"name": "b", "vms": 14}"#,
            "409 refused",
            "13 slots are free",
        ),
        conflict(
            r#"POST /v1/tenants {"name": "web", "vms": 1}"#,
            "409 exists",
            "web",
        ),
        conflict(r#"PATCH /v1/tenants/1 {"vms": 17}"#, "409 refused", "slots"),
    ]);
}

/// Of each method of each path in the `OpenAPI` document, so that a new one is asked as well.
#[test]
fn no_route_takes_a_parameter_that_it_does_not_know() {
    let place = Place::start();
    place.admit("web", 3);
    let state = place.content();
    let document = serde_json::to_value(tailbound_control::server::document()).unwrap();
    let mut asked = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let method = method.to_uppercase();
            let path = path.replace("{id}", "1").replace("{name}", "a-1");
            let path = format!("{path}?nobody=1");
            let answer = place.send(OPERATOR, &method, &path, &[], None);
            let (code, detail) = answer.problem();
            assert_eq!(
                (answer.status, code.as_str()),
                (400, "malformed"),
                "{method} {path}: {detail}"
            );
            assert!(detail.contains("nobody"), "{method} {path}: {detail}");
            asked += 1;
        }
    }
    assert!(asked > 30, "only {asked} were asked");
    assert_eq!(place.content(), state, "something was changed");
}

#[test]
fn paths_and_queries_that_are_wrong_are_refused_as_such() {
    refused_alike(
        OPERATOR,
        "GET ",
        "400 malformed",
        r#"
/v1/tenants/abc => "abc" is not a tenant's number
/v1/tenants/-1 => not a tenant's number
/v1/tenants/+1 => not a tenant's number
/v1/tenants/99999999999999999999 => not a tenant's number
/v1/tenants/%ff => UTF-8
/v1/tenants?limit=0 => limit of 0 is not between 1 and 1000
/v1/tenants?limit=1001 => limit of 1001
/v1/tenants?limit=many => limit
/v1/tenants?limit=1&limit=2 => duplicate field
/v1/tenants?after=x => after
/v1/tenants?owner=A => owner
/v1/tenants?nam=web => the query is not as it has to be: nam: unknown field `nam`, expected one of
/v1/tenants/1?name=web => has no parameters; leave out ?name=web
/v1/hosts/a-1?x=1 => leave out ?x=1
/v1/status?verbose => leave out ?verbose
/metrics?x => leave out ?x
/v1/hosts?state=open,failed => state
/v1/tenants/1/bound => missing field
/v1/tenants/1/bound?from=0&to=x => to
"#,
    );
    refused_alike(
        OPERATOR,
        "",
        "404 not-found",
        r#"
GET /v1/tenants/2 => there is no tenant 2
GET /v1/tenants/1/bound?from=0&to=3 => machine acme/web/3
GET /v1/hosts/nowhere => "nowhere"
GET /v1/hosts/rack1 => "rack1"
GET /v1/hosts?after=nowhere => nowhere
GET /v1/hosts/nowhere/guarantees => nowhere
GET /v1/hosts/nowhere/guarantees/stream => nowhere
GET /v1/hosts/nowhere/hose-keys => nowhere
GET /v1/hosts/rack1/hose-keys => rack1
GET /v1/tenant => /openapi.json lists all paths
GET /v1/tenants/ => there is nothing at
GET /page/../secret => there is nothing at
POST /v1/hosts/nowhere/drain => nowhere
DELETE /v1/tenants/2 => tenant 2
"#,
    );
    refused(&[case(
        OPERATOR,
        "POST /v1/hosts/a-1/drain {}",
        ("413 too-large", "there is a body"),
    )]);
}

#[test]
fn another_method_is_refused_with_those_that_are_possible() {
    let place = Place::start();
    for (method, path, allow) in [
        ("PUT", "/v1/tenants", "POST, GET, HEAD"),
        ("POST", "/v1/tenants/1", "GET, HEAD, PATCH, DELETE"),
        ("OPTIONS", "/v1/fit", "POST"),
        ("BREW", "/v1/status", "GET, HEAD"),
        ("DELETE", "/", "GET, HEAD"),
    ] {
        let answer = place.send(OPERATOR, method, path, &[], None);
        assert_eq!(
            (answer.status, answer.header("allow")),
            (405, allow),
            "{method} {path}"
        );
        assert_eq!(answer.problem().0, "method-not-allowed");
    }
    let head = place.send(OPERATOR, "HEAD", "/v1/status", &[], None);
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn bodies_have_to_be_json_and_of_sensible_length() {
    let long = format!("{{\"name\": \"{}\"}}", "a".repeat(1_000_000));
    let small = r#"{"name": "a", "vms": 1}"#;
    let request = format!("{POST}{small}");
    let long = format!("{POST}{long}");
    let typed = |kind: &'static [(&str, &str)], detail| Case {
        headers: kind,
        ..case(ACME, &request, ("415 media-type", detail))
    };
    refused(&[
        case(ACME, &long, ("413 too-large", "more than 1000000 bytes")),
        typed(
            &[("content-type", "text/plain")],
            "\"text/plain\"; it has to be application/json",
        ),
        typed(
            &[("content-type", "application/x-www-form-urlencoded")],
            "application/json",
        ),
        typed(&[("content-type", "")], "missing"),
    ]);
    let place = Place::start();
    let headers = [("content-type", "Application/JSON; charset=utf-8")];
    let made = place.send(
        ACME,
        "POST",
        "/v1/tenants",
        &headers,
        Some(small.as_bytes()),
    );
    assert_eq!(made.status, 201);
}

/// Sends bytes and reads all that comes back.
fn raw(place: &Place, text: &str) -> String {
    let address = place.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn oversized_bodies_are_refused_with_or_without_a_length() {
    let place = Place::start();
    let head = |more: &str| {
        format!(
            "PUT /v1/topology HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {OPERATOR}\r\n\
             content-type: application/json\r\nconnection: close\r\n{more}\r\n\r\n"
        )
    };
    // Nobody waits for what is too long by its own word.
    let said = raw(&place, &head("content-length: 64000001"));
    assert!(said.starts_with("HTTP/1.1 413 "), "{said}");
    let absurd = raw(&place, &head("content-length: 99999999999999999999999"));
    assert!(absurd.starts_with("HTTP/1.1 400 "), "{absurd}");
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, "a".repeat(1 << 20));
    let chunked = format!(
        "POST /v1/tenants HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {ACME}\r\n\
         content-type: application/json\r\nconnection: close\r\n\
         transfer-encoding: chunked\r\n\r\n{chunk}0\r\n\r\n"
    );
    let unsaid = raw(&place, &chunked);
    assert!(unsaid.starts_with("HTTP/1.1 413 "), "{unsaid}");
}

#[test]
fn callers_without_a_known_token_are_unauthenticated() {
    let place = Place::start();
    let longest = "x".repeat(8_000);
    for header in [
        "",
        "Bearer",
        "Bearer ",
        "Basic b3A6c2VjcmV0",
        "Bearer wrong",
        OPERATOR,
        &longest,
        "Bearer operator-secret x",
    ] {
        let headers = [("authorization", header)];
        let answer = place.send("", "GET", "/v1/status", &headers, None);
        let (code, _) = answer.problem();
        assert_eq!(
            (answer.status, code.as_str()),
            (401, "unauthenticated"),
            "{header}"
        );
        assert_eq!(answer.header("www-authenticate"), "Bearer");
    }
    let headers = [("authorization", "bearer  operator-secret")];
    assert_eq!(
        place.send("", "GET", "/v1/status", &headers, None).status,
        200
    );
}

#[test]
fn a_tenant_cannot_read_or_change_other_owners_tenants() {
    refused_alike(
        GLOBEX,
        "",
        "404 not-found",
        r#"
GET /v1/tenants/1 => tenant 1
PATCH /v1/tenants/1 {"vms": 5} => tenant 1
DELETE /v1/tenants/1 => tenant 1
GET /v1/tenants/1/bound?from=0&to=1 => tenant 1
"#,
    );
    refused_alike(
        GLOBEX,
        "",
        "403 forbidden",
        r#"
GET /v1/tenants?owner=acme => globex
POST /v1/tenants {"name": "a", "owner": "acme", "vms": 1} => globex
POST /v1/tenants {"name": "a", "vms": 1, "limit": {"out": {"rate": "1Gbit/s"}}} => only an operator's token may limit machines
POST /v1/tenants/1/limit {} => only an operator's token
"#,
    );
    let place = Place::start();
    place.admit("web", 3);
    assert_eq!(
        place.get(GLOBEX, "/v1/tenants").json()["items"],
        serde_json::json!([])
    );
}

/// Every operation, and whether a tenant and a host may; written out again, so
/// that the table of the service is not compared with itself.
pub(crate) const WHO: &[(&str, &str, bool, bool)] = &[
    ("POST", "/v1/tenants", true, false),
    ("GET", "/v1/tenants", true, false),
    ("GET", "/v1/tenants/{id}", true, false),
    ("PATCH", "/v1/tenants/{id}", true, false),
    ("DELETE", "/v1/tenants/{id}", true, false),
    ("POST", "/v1/tenants/{id}/relocate", false, false),
    ("POST", "/v1/tenants/{id}/move", false, false),
    ("POST", "/v1/tenants/{id}/limit", false, false),
    ("GET", "/v1/tenants/{id}/bound", true, false),
    ("PUT", "/v1/tenants/{id}/hosts/{host}", true, false),
    ("POST", "/v1/candidates", true, false),
    ("POST", "/v1/reservations", true, false),
    ("GET", "/v1/reservations", true, false),
    ("GET", "/v1/reservations/{id}", true, false),
    ("DELETE", "/v1/reservations/{id}", true, false),
    ("POST", "/v1/reservations/{id}/confirm", true, false),
    ("GET", "/v1/machines", true, false),
    ("GET", "/v1/machines/{name}", true, false),
    ("PUT", "/v1/machines/{name}", true, true),
    ("DELETE", "/v1/machines/{name}", true, true),
    ("POST", "/v1/batch", true, false),
    ("POST", "/v1/adopt", false, false),
    ("POST", "/v1/fit", true, false),
    ("POST", "/v1/explain", true, false),
    ("GET", "/v1/hosts", false, false),
    ("GET", "/v1/hosts/{name}", false, false),
    ("POST", "/v1/hosts/{name}/drain", false, false),
    ("POST", "/v1/hosts/{name}/fail", false, false),
    ("POST", "/v1/hosts/{name}/restore", false, false),
    ("GET", "/v1/hosts/{name}/guarantees", false, true),
    ("GET", "/v1/hosts/{name}/guarantees/stream", false, true),
    ("GET", "/v1/hosts/{name}/hose-keys", false, true),
    ("POST", "/v1/hosts/{name}/report", false, true),
    ("GET", "/v1/events", true, false),
    ("GET", "/v1/changes/tenants", true, false),
    ("GET", "/v1/changes/hosts", false, false),
    ("GET", "/v1/changes/audit", true, false),
    ("GET", "/v1/audit", true, false),
    ("GET", "/v1/quota", true, false),
    ("POST", "/v1/tokens", true, false),
    ("GET", "/v1/tokens", true, false),
    ("DELETE", "/v1/tokens/{name}", true, false),
    ("GET", "/v1/topology", false, false),
    ("PUT", "/v1/topology", false, false),
    ("POST", "/v1/topology/diff", false, false),
    ("GET", "/v1/faults", false, false),
    ("GET", "/v1/map", false, false),
    ("GET", "/v1/map/paths", false, false),
    ("GET", "/v1/status", true, false),
    ("GET", "/v1/backup", false, false),
    ("GET", "/metrics", false, false),
];

#[test]
fn every_operation_admits_only_its_roles() {
    let place = Place::start();
    let document = place.get("", "/openapi.json").json();
    let open = ["/healthz", "/readyz", "/openapi.json"];
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let method = method.to_uppercase();
            let known = WHO.iter().any(|who| (who.0, who.1) == (&method, path));
            assert!(known || open.contains(&path.as_str()), "{method} {path}");
        }
    }
    for (method, path, tenant, host) in WHO {
        let operation = &document["paths"][path][method.to_lowercase()];
        assert!(
            operation.is_object(),
            "{method} {path} is not in the document"
        );
        // There is no such tenant; what comes behind the guard is not 401 or 403.
        let path = path.replace("{id}", "999").replace("{name}", "a-1");
        let path = path.replace("{host}", "a-1");
        for (token, may) in [
            ("", None),
            ("wrong", None),
            (OPERATOR, Some(true)),
            (ACME, Some(*tenant)),
            (HOST, Some(*host)),
        ] {
            let is_stream = [
                "stream",
                "events",
                "changes/tenants",
                "changes/hosts",
                "changes/audit",
            ];
            let is_stream = is_stream.iter().any(|end| path.ends_with(end));
            if is_stream && may == Some(true) {
                // It does not end; others test it.
                continue;
            }
            let answer = place.send(token, method, &path, &[], None);
            let expected = match may {
                None => answer.status == 401,
                Some(false) => answer.status == 403,
                Some(true) => !matches!(answer.status, 401 | 403),
            };
            assert!(expected, "{token:?} {method} {path}: {answer:?}");
            let declared = operation["responses"].as_object().unwrap();
            assert!(
                declared.contains_key(&answer.status.to_string()),
                "{method} {path}: {answer:?}"
            );
        }
    }
}

#[test]
fn keys_that_are_not_printable_or_too_long_are_refused() {
    let place = Place::start();
    let body = Some(&br#"{"name": "a", "vms": 1}"#[..]);
    let state = place.content();
    for key in ["\u{e9}".to_owned(), "a\tb".to_owned(), "k".repeat(129)] {
        let headers = [("idempotency-key", key.as_str())];
        let answer = place.send(ACME, "POST", "/v1/tenants", &headers, body);
        assert_eq!(
            (answer.status, answer.problem().0.as_str()),
            (400, "malformed"),
            "{key}"
        );
    }
    let twice = [("idempotency-key", "a"), ("idempotency-key", "b")];
    let answer = place.send(ACME, "POST", "/v1/tenants", &twice, body);
    assert_eq!(answer.status, 400);
    assert_eq!(place.content(), state);
}

#[test]
fn invalid_topologies_are_refused_with_the_reason() {
    let link = r#""uplink": {"rate": "10Gbit/s", "buffer": "300KB"}"#;
    let host =
        |name: &str, rest: &str| format!(r#"{{"name": "{name}", "slots": 4, {rest} {link}}}"#);
    let group =
        |name: &str, parent: &str| format!(r#"{{"name": "{name}", "parent": "{parent}", {link}}}"#);
    let tree = |groups: &str, hosts: &str| {
        format!(r#"{{"frame": "1538B", "group": [{groups}], "host": [{hosts}]}}"#)
    };
    let two = host("a", "") + ", " + &host("a", "");
    let absurd = [
        (
            tree(
                &(group("r", "s") + ", " + &group("s", "r")),
                &host("a", r#""group": "r","#),
            ),
            "contains itself",
        ),
        (tree("", &two), "twice"),
        (tree("", ""), "there are no hosts"),
        (
            tree("", &host("a", r#""group": "nowhere","#)),
            "does not exist",
        ),
        (tree("", &host("a", r#""count": 0,"#)), "count of 0"),
        (
            tree("", &host("a", r#""count": 4000000000,"#)),
            "count of 4000000000",
        ),
        (
            tree("", &host("a", "").replace("300KB", "1000000000000000000B")),
            "buffer of",
        ),
        (
            tree("", &host("a", "")).replace("1538B", "0B"),
            "size of 0B",
        ),
    ];
    for (body, detail) in &absurd {
        let requests = ["POST /v1/topology/diff", "PUT /v1/topology"];
        let requests = requests.map(|head| format!("{head} {body}"));
        let expected = ("422 absurd", *detail);
        refused(
            &requests
                .each_ref()
                .map(|request| case(OPERATOR, request, expected)),
        );
    }
    refused(&[case(
        OPERATOR,
        r#"PUT /v1/topology {"frame": "1538B", "hosts": []}"#,
        ("400 malformed", "unknown field `hosts`"),
    )]);
}
