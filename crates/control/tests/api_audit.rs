//! The audit, streams that continue, and quotas as resources.

use crate::api_support::{ACME, GLOBEX, HOST, OPERATOR, Place, tokens_file};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The next line of a stream.
fn next(stream: &mut BufReader<TcpStream>) -> Value {
    loop {
        let mut line = String::new();
        assert_ne!(stream.read_line(&mut line).unwrap(), 0, "it ended");
        if line.starts_with('{') {
            let line: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(line["age_ms"], 0, "{line}");
            return line;
        }
    }
}

/// Waits until the audit has this number of entries.
fn entries(place: &Place, token: &str, number: usize) -> Vec<Value> {
    let begin = Instant::now();
    loop {
        let page = place.get(token, "/v1/audit").json();
        let items = page["items"].as_array().unwrap();
        if items.len() >= number {
            return items.clone();
        }
        assert!(begin.elapsed().as_secs() < 20, "{page}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn texts<'e>(entries: &'e [Value], field: &str) -> Vec<&'e str> {
    entries
        .iter()
        .map(|it| it[field].as_str().unwrap())
        .collect()
}

#[test]
fn the_audit_shows_changes_and_refusals_to_their_owners() {
    let place = Place::start();
    let body = r#"{"name": "web", "vms": 1}"#;
    let headers = [("x-request-id", "first"), ("idempotency-key", "key")];
    for _ in 0..2 {
        // The second one is the same request, and no change.
        let answer = place.send(ACME, "POST", "/v1/tenants", &headers, Some(body.as_bytes()));
        assert_eq!(answer.status, 201);
    }
    assert_eq!(place.post(ACME, "/v1/tenants", body).status, 409);
    assert_eq!(place.post(GLOBEX, "/v1/tenants", body).status, 201);
    assert_eq!(place.post(OPERATOR, "/v1/hosts/a-2/drain", "").status, 200);
    // Requests that no decision refused have no entries.
    assert_eq!(place.post(ACME, "/v1/hosts/a-2/fail", "").status, 403);
    let all = entries(&place, OPERATOR, 4);
    assert_eq!(all.len(), 4, "{all:?}");
    let refused = all.iter().filter(|it| it["outcome"] == "refused");
    assert_eq!(refused.count(), 1);
    let first = &all[0];
    assert_eq!(
        (&first["number"], &first["owners"][0]),
        (&1.into(), &"acme".into())
    );
    assert_eq!(first["caller"]["request"], "first");
    let ours = entries(&place, ACME, 2);
    assert_eq!(texts(&ours, "outcome"), ["done", "refused"]);
    assert_eq!(texts(&entries(&place, GLOBEX, 1), "what"), ["globex/web"]);
    assert_eq!(place.get(HOST, "/v1/audit").status, 403);
    // An operator's change of an owner's tenant is the owner's to see, without the token's name.
    let id = ours[0]["after"].as_str().unwrap();
    let id = id.strip_prefix("id ").and_then(|it| it.split(':').next());
    let path = format!("/v1/tenants/{}", id.unwrap());
    place.send(OPERATOR, "DELETE", &path, &[], None);
    let ours = entries(&place, ACME, 3);
    assert_eq!(
        (&ours[2]["caller"]["role"], &ours[2]["caller"]["token"]),
        (&"operator".into(), &"".into())
    );
    // Page by page, and as a stream.
    let mut numbers = Vec::new();
    let mut next_page = String::new();
    loop {
        let page = place
            .get(OPERATOR, &format!("/v1/audit?limit=2{next_page}"))
            .json();
        let items = page["items"].as_array().unwrap().iter();
        numbers.extend(items.map(|it| it["number"].as_u64().unwrap()));
        match page["next"].as_str() {
            Some(next) => next_page = format!("&since={next}"),
            None => break,
        }
    }
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    let mut lines = place.stream(ACME, "/v1/changes/audit?since=1");
    let seen = [next(&mut lines), next(&mut lines)];
    assert_eq!(seen.each_ref().map(|it| &it["entry"]), [&ours[1], &ours[2]]);
    place.admit("late", 1);
    let late = next(&mut lines);
    assert_eq!(
        (&late["entry"]["what"], &late["number"]),
        (&"acme/late".into(), &6.into())
    );
    let (code, detail) = place.get(OPERATOR, "/v1/audit?since=99").problem();
    assert!(
        code == "future" && detail.contains("at entry 6"),
        "{detail}"
    );
}

#[test]
fn streams_continue_where_they_ended_and_say_so_if_they_cannot() {
    let place = Place::start();
    let revision = |place: &Place| {
        let answer = place.get(OPERATOR, "/v1/tenants");
        answer.header("tailbound-revision").parse::<u64>().unwrap()
    };
    let begin = revision(&place);
    let mut lines = place.stream(ACME, &format!("/v1/changes/tenants?since={begin}"));
    let id = place.admit("web", 1);
    place.post(GLOBEX, "/v1/tenants", r#"{"name": "other", "vms": 1}"#);
    let mut line = next(&mut lines);
    while line["tenant"].is_null() {
        line = next(&mut lines);
    }
    assert_eq!(line["tenant"]["name"], "web");
    let mark = next(&mut lines);
    assert!(mark["tenant"].is_null() && mark["revision"].as_u64() > Some(begin));
    drop(lines);
    // Changes without a reader: the last state of each is sent.
    let path = format!("/v1/tenants/{id}");
    place.send(ACME, "DELETE", &path, &[], None);
    place.admit("new", 1);
    place.post(OPERATOR, "/v1/hosts/b-1/drain", "");
    let since = mark["revision"].as_u64().unwrap();
    let mut lines = place.stream(ACME, &format!("/v1/changes/tenants?since={since}"));
    let (gone, new) = (next(&mut lines), next(&mut lines));
    assert_eq!(
        (&gone["gone"], &new["tenant"]["name"]),
        (&id.into(), &"new".into())
    );
    let mut hosts = place.stream(OPERATOR, &format!("/v1/changes/hosts?since={begin}"));
    let host = next(&mut hosts);
    let (name, state) = (&host["host"]["name"], &host["host"]["state"]);
    assert_eq!((name, state), (&"b-1".into(), &"drained".into()));
    let ended = revision(&place);
    for path in ["/v1/changes/tenants", "/v1/changes/hosts", "/v1/events"] {
        let past = place.get(OPERATOR, &format!("{path}?since=0"));
        assert_eq!((past.status, past.problem().0.as_str()), (410, "expired"));
        let said = past.problem().1;
        assert!(
            said.contains(&format!("from revision {begin} or later")),
            "{said}"
        );
        let future = place.get(OPERATOR, &format!("{path}?since={}", ended + 1_000));
        assert_eq!(future.problem().0, "future");
    }
    let mut events = place.stream(ACME, &format!("/v1/events?since={begin}"));
    assert!(
        next(&mut events)["tenant"].is_null(),
        "no guarantee changed its state"
    );
    let mut guarantees = place.stream(HOST, "/v1/hosts/a-1/guarantees/stream");
    assert_eq!(next(&mut guarantees)["host"], "a-1");
}

#[test]
fn an_owner_reads_its_quota_and_its_use() {
    let place = Place::start();
    let quota = "[[quota]]\nowner = \"acme\"\nvms = 10\nbandwidth = \"3Gbit/s\"\n";
    std::fs::write(&place.tokens, format!("{}{quota}", tokens_file())).unwrap();
    place.server.reload().unwrap();
    place.admit("web", 3);
    let answer = place.get(ACME, "/v1/quota").json();
    let expected = serde_json::json!({
        "owner": "acme",
        "quota": {"vms": 10, "bandwidth": "3Gbit/s"},
        "used": {"tenants": 1, "vms": 3, "bandwidth": "0bit/s", "reservations": 0},
    });
    assert_eq!(answer, expected);
    let path = "/v1/quota?owner=acme";
    assert_eq!(place.get(OPERATOR, path).json(), expected);
    assert_eq!(place.get(GLOBEX, path).problem().0, "forbidden");
    let none = place.get(GLOBEX, "/v1/quota").json();
    assert_eq!(
        (&none["quota"], &none["used"]["vms"]),
        (&serde_json::json!({}), &0.into())
    );
    assert_eq!(place.get(OPERATOR, "/v1/quota").problem().0, "absurd");
}
