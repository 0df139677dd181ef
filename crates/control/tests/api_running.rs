//! Streams, reports and the end of the service.

use crate::api_support::{ACME, HOST, OPERATOR, Place, Setup, sha256, tokens_file};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tailbound_api::HostGuarantees;

/// Opens the stream of a host.
pub(crate) fn stream(place: &Place, host: &str) -> BufReader<TcpStream> {
    place.stream(OPERATOR, &format!("/v1/hosts/{host}/guarantees/stream"))
}

/// The next line of JSON; None at the stream's end.
fn next(stream: &mut BufReader<TcpStream>) -> Option<HostGuarantees> {
    let mut line = String::new();
    loop {
        line.clear();
        if stream.read_line(&mut line).unwrap() == 0 {
            return None;
        }
        if line.starts_with('{') {
            return Some(serde_json::from_str(&line).unwrap());
        }
        if line.trim() == "0" {
            return None;
        }
    }
}

fn names(state: &HostGuarantees) -> Vec<&str> {
    state.vms.iter().map(|vm| vm.vm.as_str()).collect()
}

#[test]
fn a_stream_gives_the_whole_state_at_once_and_after_each_change() {
    let place = Place::start();
    place.admit("web", 1);
    let mut stream = stream(&place, "a-1");
    assert_eq!(names(&next(&mut stream).unwrap()), ["acme/web/0"]);
    let id = place.admit("db", 2);
    let state = next(&mut stream).unwrap();
    assert_eq!(names(&state), ["acme/db/0", "acme/db/1", "acme/web/0"]);
    place.send(ACME, "DELETE", &format!("/v1/tenants/{id}"), &[], None);
    let later = next(&mut stream).unwrap();
    assert_eq!(names(&later), ["acme/web/0"]);
    assert!(later.revision > state.revision);
    place.post(OPERATOR, "/v1/hosts/a-1/drain", "");
    assert_eq!(
        next(&mut stream).unwrap().state,
        tailbound_api::HostState::Drained
    );
}

/// Returns a report of a host that keeps guarantees on a link of 10 Gbit/s.
pub(crate) fn report(change: u64, rest: &str) -> String {
    let limits = r#""limits": {"link": "10Gbit/s", "frame": "1538B", "slowest": "10kbit/s", "subtree_bursts": true}"#;
    format!(r#"{{"revision": {change}, "change": {change}, {limits}{rest}}}"#)
}

pub(crate) fn say(place: &Place, host: &str, report: &str) {
    let answer = place.post(OPERATOR, &format!("/v1/hosts/{host}/report"), report);
    assert_eq!(answer.status, 204, "{answer:?}");
}

fn state(place: &Place, id: u64) -> String {
    let tenant = place.get(ACME, &format!("/v1/tenants/{id}")).json();
    tenant["standing"]["state"].as_str().unwrap().to_owned()
}

/// A metric of the service.
fn metric(place: &Place, name: &str) -> String {
    let text = String::from_utf8(place.get(OPERATOR, "/metrics").body).unwrap();
    let name = format!("tailbound_place_{name} ");
    let mut found = text.lines().filter_map(|line| line.strip_prefix(&name));
    found.next().expect("it is there").to_owned()
}

pub(crate) fn guaranteed(place: &Place, name: &str, vms: u32) -> u64 {
    let body =
        format!(r#"{{"name": "{name}", "vms": {vms}, "guarantee": {{"bandwidth": "1Gbit/s"}}}}"#);
    let answer = place.post(ACME, "/v1/tenants", &body);
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(answer.json()["standing"]["state"], "pending");
    answer.json()["id"].as_u64().unwrap()
}

#[test]
fn measured_delays_appear_on_tenants_and_are_not_stored() {
    let place = Place::start();
    let id = guaranteed(&place, "web", 5);
    let measured = |late: u64, tenant: u64, far: u64| {
        let tail = |ns: u64| format!(r#"{{"packets": 20000, "p99_ns": 1000, "p99_9_ns": {ns}}}"#);
        format!(
            r#", "measured": {{"window_ns": 60000000000, "late": {},
                "waited": [{{"tenant": {tenant}, "tail": {}}}]}}"#,
            tail(late),
            tail(far)
        )
    };
    let revision = || place.get(OPERATOR, "/v1/status").json()["revision"].clone();
    say(&place, "a-1", &report(id, &measured(9_000, id, 17_000)));
    say(&place, "a-2", &report(id, &measured(2_000, id, 40_000)));
    let before = revision();
    // Nothing but what was measured is new, so that nothing is written.
    say(&place, "a-2", &report(id, &measured(2_000, id, 50_000)));
    assert_eq!(revision(), before);
    let tenant = place.get(ACME, &format!("/v1/tenants/{id}")).json();
    let found = &tenant["standing"]["measured"];
    assert_eq!(found["sending"]["host"], "a-1", "{tenant}");
    assert_eq!(found["sending"]["tail"]["p99_9_ns"], 9_000);
    assert_eq!(found["receiving"]["host"], "a-2");
    assert_eq!(found["receiving"]["tail"]["p99_9_ns"], 50_000);
    let listed = place.get(ACME, "/v1/tenants").json();
    assert_eq!(&listed["items"][0]["standing"]["measured"], found);
    // Of a tenant that is not there nothing is taken, and less than before is less than before.
    say(&place, "a-2", &report(id, &measured(2_000, 99, 50_000)));
    say(&place, "a-1", &report(id, ""));
    let tenant = place.get(ACME, &format!("/v1/tenants/{id}")).json();
    let found = &tenant["standing"]["measured"];
    assert_eq!(found["sending"]["host"], "a-2");
    assert!(found["receiving"].is_null(), "{tenant}");
    // Of best effort nothing is promised, so nothing is beside it.
    let body = r#"{"name": "cheap", "vms": 1}"#;
    let cheap = place.post(ACME, "/v1/tenants", body).json();
    assert!(cheap["standing"]["measured"].is_null(), "{cheap}");
    let high = report(id, &measured(1 << 53, id, 1));
    let answer = place.post(OPERATOR, "/v1/hosts/a-1/report", &high);
    assert_eq!(answer.status, 422, "{answer:?}");
}

#[test]
fn a_tenant_is_admitted_once_its_hosts_say_so_and_degraded_when_one_refuses() {
    let place = Place::start();
    let id = guaranteed(&place, "web", 5);
    let tenant = place.get(ACME, &format!("/v1/tenants/{id}")).json();
    let hosts = tenant["standing"]["hosts"].as_array().unwrap().clone();
    assert_eq!(hosts.len(), 2, "{tenant}");
    assert_eq!(hosts[0]["why"], "it has never reported");
    say(&place, "a-1", &report(id, ""));
    assert_eq!(state(&place, id), "pending", "the other host is unheard");
    // A change that it has not heard of.
    say(&place, "a-2", &report(id - 1, ""));
    assert_eq!(state(&place, id), "pending");
    say(&place, "a-2", &report(id, ""));
    assert_eq!(state(&place, id), "admitted");

    let refused = format!(
        r#", "refused": [{{"tenant": {id}, "vm": "acme/web/0", "why": "no room\u0007"}},
            {{"tenant": 99, "vm": "x/y/0", "why": "of nobody here"}}]"#
    );
    say(&place, "a-1", &report(id, &refused));
    assert_eq!(state(&place, id), "degraded");
    let host = place.get(OPERATOR, "/v1/hosts/a-1").json();
    assert_eq!(host["said"]["following"], "refuses");
    assert_eq!(host["said"]["revision"], id);
    assert_eq!(host["said"]["refused"].as_array().unwrap().len(), 1);
    assert_eq!(host["said"]["refused"][0]["why"], "acme/web/0: no room");
    let listed = place.get(ACME, "/v1/tenants").json();
    assert_eq!(listed["items"][0]["standing"]["hosts"][0]["host"], "a-1");
    assert_eq!(metric(&place, "tenants_degraded"), "1");
    assert_eq!(metric(&place, "hosts_refusing"), "1");
    assert_eq!(metric(&place, "hosts_following"), "1");
    assert_eq!(metric(&place, "hosts_unheard"), "2");
    let map = place.get(OPERATOR, "/v1/map?node=rack1&depth=1").json();
    assert_eq!(
        (&map["troubled"], &map["children"][0]["following"]),
        (&1.into(), &"refuses".into())
    );

    say(&place, "a-1", &report(id, ""));
    assert_eq!(state(&place, id), "admitted");
    // A slower link is told with what it means, and moved away from.
    let slow = report(id, "").replace("10Gbit/s", "500Mbit/s");
    say(&place, "a-1", &slow);
    let tenant = place.get(ACME, &format!("/v1/tenants/{id}")).json();
    assert_eq!(tenant["standing"]["state"], "degraded");
    let why = "a bandwidth of 1Gbit/s is above its link's 500Mbit/s";
    assert_eq!(tenant["standing"]["hosts"][0]["why"], why);
    let moved = place.post(OPERATOR, &format!("/v1/tenants/{id}/relocate"), "");
    assert_eq!(moved.status, 200, "{moved:?}");
    let runs = moved.json()["runs"].to_string();
    assert!(!runs.contains("a-1"), "{runs}");
}

#[test]
fn guarantees_that_hosts_cannot_keep_are_refused_with_the_rule() {
    let place = Place::start();
    let ask = |guarantee: &str| {
        let body = format!(r#"{{"name": "big", "vms": 3, "guarantee": {guarantee}}}"#);
        let answer = place.post(ACME, "/v1/tenants", &body);
        (answer.status, answer.problem().1)
    };
    let fast = r#"{"bandwidth": "100Gbit/s", "burst": "15KB"}"#;
    let (status, why) = ask(fast);
    assert_eq!(status, 409);
    assert!(
        why.contains("a bandwidth of 100Gbit/s is above its link's 10Gbit/s"),
        "{why}"
    );
    let (status, why) = ask(r#"{"bandwidth": "10Mbit/s", "burst": "100B", "delay": "1ms"}"#);
    assert_eq!(status, 409);
    assert!(
        why.contains("a burst of 100B is below one frame on its wire, 1.538KB"),
        "{why}"
    );
    for host in ["a-1", "a-2", "b-1", "b-2"] {
        say(&place, host, r#"{"revision": 0, "change": 0}"#);
    }
    let (status, why) = ask(r#"{"bandwidth": "10Mbit/s"}"#);
    assert_eq!(status, 409);
    assert!(why.contains("it keeps no guarantee"), "{why}");
    assert_eq!(metric(&place, "hosts_following"), "4");
    place.admit("plain", 4);
}

#[test]
fn a_host_of_other_classes_is_marked_and_gets_no_machines() {
    let place = Place::start();
    let classes = r#", "classes": {"fabric": "three-classes"}"#;
    say(&place, "a-1", &report(0, classes));
    let host = place.get(OPERATOR, "/v1/hosts/a-1").json();
    assert_eq!(host["other_classes"]["fabric"], "three-classes");
    assert_eq!(host["said"]["following"], "refuses");
    let listed = place.get(OPERATOR, "/v1/hosts").json();
    assert_eq!(
        listed["items"][0]["other_classes"]["fabric"],
        "three-classes"
    );
    assert_eq!(listed["items"][1]["other_classes"], serde_json::Value::Null);
    assert_eq!(metric(&place, "hosts_of_other_classes"), "1");
    let id = place.admit("plain", 4);
    let tenant = place.get(ACME, &format!("/v1/tenants/{id}")).json();
    assert_eq!(tenant["runs"][0]["host"], "a-2");
    assert_eq!(
        tenant["standing"]["state"], "admitted",
        "nothing is promised"
    );
    say(
        &place,
        "a-1",
        &report(0, r#", "classes": {"fabric": "guarantees-first"}"#),
    );
    assert_eq!(metric(&place, "hosts_of_other_classes"), "0");
    let wrong = report(0, r#", "classes": "three""#);
    let none = place.post(HOST, "/v1/hosts/a-1/report", &wrong);
    assert_eq!((none.status, none.problem().0.as_str()), (400, "malformed"));
    let others = place.post(HOST, "/v1/hosts/a-2/report", &report(0, ""));
    assert_eq!(
        (others.status, others.problem().0.as_str()),
        (403, "forbidden")
    );
    let high = report(1 << 53, "");
    let same = report(
        0,
        r#", "classes": {"fabric": "three-classes", "small": {"dscp": 0, "pcp": 0}}"#,
    );
    for wrong in [high, same] {
        let answer = place.post(HOST, "/v1/hosts/a-1/report", &wrong);
        assert_eq!(
            (answer.status, answer.problem().0.as_str()),
            (422, "absurd"),
            "{answer:?}"
        );
    }
}

#[test]
fn events_report_degraded_and_restored_guarantees() {
    let place = Place::start();
    let id = guaranteed(&place, "web", 1);
    let events = |token: &str| place.stream(token, "/v1/events");
    let line = |stream: &mut BufReader<TcpStream>| loop {
        let mut line = String::new();
        assert_ne!(stream.read_line(&mut line).unwrap(), 0, "it ended");
        if line.starts_with('{') {
            let event: tailbound_api::Event = serde_json::from_str(&line).unwrap();
            return event
                .tenant
                .map(|tenant| (tenant.name, tenant.state.word()));
        }
    };
    // A line without a tenant follows those of a revision.
    let told = |stream: &mut BufReader<TcpStream>| {
        let told = line(stream);
        assert!(told.is_none() || line(stream).is_none());
        told
    };
    let is = |state: &'static str| Some(("web".to_owned(), state));
    let (mut ours, mut theirs) = (events(ACME), events("globex-secret"));
    assert_eq!(
        (told(&mut ours), told(&mut theirs)),
        (None, None),
        "nothing is wrong"
    );
    say(&place, "a-1", &report(id, ""));
    assert_eq!(told(&mut ours), is("admitted"));
    say(
        &place,
        "a-1",
        &report(id, "").replace("10Gbit/s", "500Mbit/s"),
    );
    assert_eq!(told(&mut ours), is("degraded"));
    // Who comes later is told what is wrong, and that this is all.
    let mut later = events(OPERATOR);
    assert_eq!(told(&mut later), is("degraded"));
    say(&place, "a-1", &report(id, ""));
    assert_eq!(
        (told(&mut ours), told(&mut later)),
        (is("admitted"), is("admitted"))
    );
    let globex = place.post(
        "globex-secret",
        "/v1/tenants",
        r#"{"name": "web", "vms": 1, "guarantee": {"bandwidth": "1Gbit/s"}}"#,
    );
    let globex = globex.json()["id"].as_u64().unwrap();
    assert_eq!(
        (told(&mut theirs), told(&mut later)),
        (is("pending"), is("pending"))
    );
    place.send(ACME, "DELETE", &format!("/v1/tenants/{id}"), &[], None);
    say(&place, "a-1", &report(globex, ""));
    assert_eq!(
        (told(&mut theirs), told(&mut later)),
        (is("admitted"), is("admitted"))
    );
}

#[test]
fn streams_are_limited_and_a_closed_one_frees_its_slot() {
    let place = Place::with(Setup {
        streams: 2,
        ..Setup::default()
    });
    let mut first = stream(&place, "a-1");
    let mut second = stream(&place, "a-1");
    next(&mut first).unwrap();
    next(&mut second).unwrap();
    let path = "/v1/hosts/a-1/guarantees/stream";
    let third = place.get(HOST, path);
    assert_eq!((third.status, third.header("retry-after")), (503, "1"));
    assert_eq!(third.problem().0, "unavailable");
    drop(first);
    // It is noticed when the connection is.
    let begin = Instant::now();
    loop {
        let mut again = stream(&place, "a-1");
        let mut status = String::new();
        again.read_line(&mut status).unwrap();
        if status.contains(" 200 ") {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(10), "{status}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn one_host_takes_no_other_hosts_places() {
    let place = Place::with(Setup {
        streams: 64,
        ..Setup::default()
    });
    let mut streams: Vec<_> = (0..16).map(|_| stream(&place, "a-1")).collect();
    for stream in &mut streams {
        next(stream).unwrap();
    }
    let more = place.get(HOST, "/v1/hosts/a-1/guarantees/stream");
    assert_eq!((more.status, more.header("retry-after")), (503, "1"));
    assert!(
        more.problem().1.contains("this host already has"),
        "{more:?}"
    );
    assert!(next(&mut stream(&place, "a-2")).is_some());
}

#[test]
fn a_stream_ends_when_its_token_is_taken_away() {
    let place = Place::start();
    let mut stream = stream(&place, "a-1");
    next(&mut stream).unwrap();
    let drain = |token: &str| place.post(token, "/v1/hosts/a-1/drain", "").status;
    // Another secret of the same name.
    let other = tokens_file().replace(&sha256(OPERATOR), &sha256("other"));
    std::fs::write(&place.tokens, other).unwrap();
    place.server.reload().unwrap();
    assert_eq!((drain(OPERATOR), drain("other")), (401, 200));
    assert!(next(&mut stream).is_none());
}

#[test]
fn at_the_end_streams_are_closed_and_requests_in_progress_answered() {
    let mut place = Place::start();
    let mut stream = stream(&place, "a-1");
    next(&mut stream).unwrap();
    let address = place.url.strip_prefix("http://").unwrap().to_owned();
    let mut slow = TcpStream::connect(&address).unwrap();
    let body = r#"{"name": "late", "vms": 1}"#;
    write!(
        slow,
        "POST /v1/tenants HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {ACME}\r\n\
         content-type: application/json\r\nexpect: 100-continue\r\n\
         content-length: {}\r\n\r\n",
        body.len(),
    )
    .unwrap();
    // It says so when it begins to read the body.
    let mut slow = BufReader::new(slow);
    let mut line = String::new();
    slow.read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 100 "), "{line}");
    slow.read_line(&mut line).unwrap();
    place.server.stop();
    assert!(next(&mut stream).is_none());
    slow.get_mut().write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    place.stop();
    assert!(TcpStream::connect(&address).is_err());
    assert_eq!(place.state().tenants.len(), 1);
}

/// The replica answers its caller once it has applied the write, too.
#[test]
fn a_forwarded_writes_answer_carries_its_revision() {
    let place = Place::start();
    let body = Some(&br#"{"name": "web", "vms": 1}"#[..]);
    let forwarded = [("tailbound-forwarded", "1")];
    let answer = place.send(ACME, "POST", "/v1/tenants", &forwarded, body);
    assert_eq!(answer.status, 201);
    let revision = place.state().revision.to_string();
    assert_eq!(answer.header("tailbound-revision"), revision);
}
