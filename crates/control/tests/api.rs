//! The API over real HTTP: what it does when all is well.

use crate::api_support::{ACME, GLOBEX, HOSE_SECRET, HOST, OPERATOR, Place, Setup, TREE};
use serde_json::json;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use tailbound_api::HoseKeys;
use tailbound_hose::{KeyEpoch, Secret};
use tailbound_placement::Spec;

#[test]
fn a_tenant_is_created_read_resized_and_deleted() {
    let place = Place::start();
    let made = place.post(ACME, "/v1/tenants", r#"{"name": "web", "vms": 3}"#);
    assert_eq!(made.status, 201);
    let tenant = made.json();
    assert_eq!(tenant["owner"], "acme");
    assert_eq!(tenant["request"]["vms"], 3);
    let path = made.header("location").to_owned();
    assert_eq!(path, format!("/v1/tenants/{}", tenant["id"]));

    assert_eq!(place.get(ACME, &path).json(), tenant);
    let resized = place.send(ACME, "PATCH", &path, &[], Some(br#"{"vms": 5}"#));
    assert_eq!(resized.status, 200);
    assert_eq!(resized.json()["request"]["vms"], 5);
    assert_eq!(place.get(OPERATOR, &path).json(), resized.json());

    let deleted = place.send(ACME, "DELETE", &path, &[], None);
    assert_eq!((deleted.status, deleted.body.len()), (204, 0));
    assert_eq!(place.get(ACME, &path).status, 404);
}

#[test]
fn a_list_comes_in_pages_each_tenant_once() {
    let place = Place::start();
    let ids: Vec<u64> = (0..5).map(|i| place.admit(&format!("t{i}"), 1)).collect();
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = place
            .get(ACME, &format!("/v1/tenants?limit=2{after}"))
            .json();
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 2);
        seen.extend(items.iter().map(|tenant| tenant["id"].as_u64().unwrap()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ids);
    let named = place.get(OPERATOR, "/v1/tenants?owner=acme&name=t3").json();
    assert_eq!(named["items"].as_array().unwrap().len(), 1);
    let closed = place.get(OPERATOR, "/v1/hosts?state=drained").json();
    assert_eq!(closed["items"], json!([]));
    let hosts = place.get(OPERATOR, "/v1/hosts?limit=3").json();
    assert_eq!(hosts["next"], "b-1");
    let rest = place.get(OPERATOR, "/v1/hosts?limit=3&after=b-1").json();
    assert_eq!(rest["items"][0]["name"], "b-2");
}

#[test]
fn a_retry_with_the_same_key_does_nothing_and_gets_the_same_answer() {
    let place = Place::start();
    let key = [("idempotency-key", "k 1")];
    let body = br#"{"name": "web", "vms": 2}"#;
    let first = place.send(ACME, "POST", "/v1/tenants", &key, Some(body));
    assert_eq!(first.status, 201);
    let state = place.content();
    let again = place.send(ACME, "POST", "/v1/tenants", &key, Some(body));
    assert_eq!((again.status, &again.body), (201, &first.body));
    assert_eq!(again.header("location"), first.header("location"));

    // Another body, another method and another path are other requests.
    let path = first.header("location");
    for (method, path, body) in [
        (
            "POST",
            "/v1/tenants",
            Some(&br#"{"name": "web", "vms": 3}"#[..]),
        ),
        ("DELETE", path, None),
    ] {
        let other = place.send(ACME, method, path, &key, body);
        assert_eq!(
            (other.status, other.problem().0.as_str()),
            (422, "key-reused")
        );
    }
    assert_eq!(place.content(), state);

    // Each owner has its own keys.
    let theirs = place.send(GLOBEX, "POST", "/v1/tenants", &key, Some(body));
    assert_eq!(theirs.status, 201);
    assert_ne!(theirs.body, first.body);

    let key = [("idempotency-key", "k2")];
    for _ in 0..2 {
        let deleted = place.send(ACME, "DELETE", path, &key, None);
        assert_eq!(deleted.status, 204);
    }
    assert_eq!(place.send(ACME, "DELETE", path, &[], None).status, 404);
}

#[test]
fn a_refusal_is_not_remembered_under_its_key() {
    let place = Place::start();
    let filler = place.admit("filler", 16);
    let key = [("idempotency-key", "later")];
    let body = Some(&br#"{"name": "web", "vms": 2}"#[..]);
    let refused = place.send(ACME, "POST", "/v1/tenants", &key, body);
    assert_eq!(
        (refused.status, refused.problem().0.as_str()),
        (409, "refused")
    );
    let freed = place.send(ACME, "DELETE", &format!("/v1/tenants/{filler}"), &[], None);
    assert_eq!(freed.status, 204);
    let admitted = place.send(ACME, "POST", "/v1/tenants", &key, body);
    assert_eq!(admitted.status, 201);
}

#[test]
fn a_guarantee_changes_in_place_only_with_a_current_etag() {
    let place = Place::start();
    let id = place.admit("web", 3);
    let url = format!("/v1/tenants/{id}");
    let read = place.get(ACME, &url);
    let etag = read.header("etag").to_owned();
    let patch = |etag: &str, body: &str| {
        let headers = [("if-match", etag)];
        place.send(ACME, "PATCH", &url, &headers, Some(body.as_bytes()))
    };
    let body = r#"{"guarantee": {"bandwidth": "20Mbit/s", "burst": "3KB"}}"#;
    let changed = patch(&etag, body);
    assert_eq!(changed.status, 200, "{}", changed.json());
    let tenant = changed.json();
    assert_eq!(tenant["request"]["guarantee"]["bandwidth"], "20Mbit/s");
    assert_eq!(tenant["runs"], read.json()["runs"]);
    let newer = changed.header("etag");
    assert_ne!(newer, etag);
    // By the old ETag nothing is changed or deleted.
    for (method, body) in [("PATCH", Some(&br#"{"vms": 2}"#[..])), ("DELETE", None)] {
        let old = place.send(ACME, method, &url, &[("if-match", etag.as_str())], body);
        assert_eq!((old.status, old.problem().0.as_str()), (412, "changed"));
    }
    assert_eq!(place.get(ACME, &url).json(), tenant);
    assert_eq!(patch(newer, "{}").problem().0, "absurd");
    let refused = patch(newer, r#"{"guarantee": {"bandwidth": "400Gbit/s"}}"#);
    assert_eq!(refused.problem().0, "refused");
    let deleted = place.send(ACME, "DELETE", &url, &[("if-match", newer)], None);
    assert_eq!(deleted.status, 204);
}

#[test]
fn a_topology_is_replaced_only_if_it_is_the_one_that_was_looked_at() {
    let place = Place::start();
    let now = place.get(OPERATOR, "/v1/topology");
    let etag = now.header("etag").to_owned();
    assert_eq!(etag, "\"1\"");
    let mut spec = now.json()["spec"].clone();
    spec["host"][0]["slots"] = json!(8);
    let spec = spec.to_string();
    let diff = place.post(OPERATOR, "/v1/topology/diff", &spec).json();
    assert_eq!(diff["changed"].as_array().unwrap().len(), 2, "{diff}");

    let put = |etag: &str, spec: &str| {
        let headers = [("if-match", etag)];
        place.send(
            OPERATOR,
            "PUT",
            "/v1/topology",
            &headers,
            Some(spec.as_bytes()),
        )
    };
    let old = put("\"7\"", &spec);
    assert_eq!((old.status, old.problem().0.as_str()), (412, "changed"));
    let done = put(&etag, &spec);
    assert_eq!((done.status, done.header("etag")), (200, "\"2\""));
    assert_eq!(put("W/\"2\"", &spec).problem().0, "malformed");

    // All 24 places are taken; 16 would be left.
    place.admit("all", 24);
    let before = serde_json::to_string(&Spec::from_toml(TREE).unwrap()).unwrap();
    let state = place.content();
    let broken = put("*", &before);
    assert_eq!(
        (broken.status, broken.problem().0.as_str()),
        (409, "breaks")
    );
    assert_eq!(place.content(), state);
}

#[test]
fn hosts_are_drained_and_their_tenants_moved() {
    let place = Place::start();
    let id = place.admit("web", 4);
    let drained = place.post(OPERATOR, "/v1/hosts/rack1/drain", "").json();
    assert_eq!(
        (&drained["hosts"], &drained["state"]),
        (&json!(2), &json!("drained"))
    );
    assert_eq!(drained["affected"][0]["name"], "web");
    let moved = place.post(OPERATOR, &format!("/v1/tenants/{id}/relocate"), "");
    assert_eq!(moved.json()["runs"][0]["host"], "b-1");
    let opened = place.post(OPERATOR, "/v1/hosts/rack1/restore", "").json();
    assert_eq!(opened["affected"], json!([]));
    let failed = place.post(OPERATOR, "/v1/hosts/b-1/fail", "").json();
    assert_eq!(failed["affected"][0]["refit"][0]["host"], "a-1");
    assert_eq!(
        place.get(OPERATOR, "/v1/hosts/b-1").json()["vms"][0]["count"],
        4
    );
}

#[test]
fn questions_reserve_nothing() {
    let place = Place::start();
    let state = place.content();
    let fits = place.post(ACME, "/v1/fit", r#"{"vms": 3}"#).json();
    assert_eq!(
        (&fits["fits"], &fits["hosts"][0]["vms"]),
        (&json!(true), &json!(3))
    );
    let asked = r#"{"vms": 9, "guarantee": {"bandwidth": "1Gbit/s", "burst": "100KB",
        "delay": "1ms", "burst_rate": "10Gbit/s"}}"#;
    let why = place.post(ACME, "/v1/explain", asked).json();
    assert_eq!(why["fits"], false);
    assert!(why["overload"]["late_ns"].as_u64() > Some(0), "{why}");
    assert!(!why["nearest"].as_array().unwrap().is_empty());
    assert_eq!(place.content(), state);
}

#[test]
fn a_pair_of_machines_has_a_bound() {
    let place = Place::start();
    let asked = r#"{"name": "web", "vms": 6, "guarantee": {"bandwidth": "100Mbit/s",
        "burst": "3KB", "delay": "1ms"}}"#;
    let id = place.post(ACME, "/v1/tenants", asked).json()["id"].clone();
    let bound = place.get(ACME, &format!("/v1/tenants/{id}/bound?from=0&to=5"));
    assert_eq!(bound.status, 200, "{bound:?}");
    assert_eq!(bound.json()["promised"], "1ms");
    assert_eq!(bound.json()["ports"].as_array().unwrap().len(), 2);
    let theirs = place.get(GLOBEX, &format!("/v1/tenants/{id}/bound?from=0&to=5"));
    assert_eq!(theirs.problem().0, "not-found");
}

#[test]
fn the_metrics_count_requests_decisions_and_commits() {
    let place = Place::start();
    place.admit("web", 3);
    place.post(ACME, "/v1/tenants", "{");
    let metrics = place.get(OPERATOR, "/metrics");
    let text = String::from_utf8(metrics.body).unwrap();
    for line in [
        "tailbound_place_tenants 1",
        "tailbound_place_slots 16",
        "tailbound_place_slots_used 3",
        "tailbound_place_leader 1",
        r#"tailbound_place_requests_total{method="POST",route="/v1/tenants",status="201"} 1"#,
        r#"tailbound_place_requests_total{method="POST",route="/v1/tenants",status="400"} 1"#,
        r#"tailbound_place_decision_seconds_count{command="create",outcome="ok"} 1"#,
        r#"tailbound_place_commit_seconds_count{outcome="ok"} 1"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[test]
fn a_tokenless_loopback_service_refuses_cross_site_requests() {
    let place = Place::with(Setup {
        tokens: false,
        ..Setup::default()
    });
    let body = br#"{"name": "web", "owner": "acme", "vms": 1}"#;
    assert_eq!(
        place
            .send("", "POST", "/v1/tenants", &[], Some(body))
            .status,
        201
    );
    let own = place.url.clone();
    for (headers, status) in [
        ([("origin", "https://evil.example"), ("host", "")], 403),
        ([("origin", "null"), ("host", "")], 403),
        ([("origin", own.as_str()), ("host", "")], 200),
        ([("host", "evil.example"), ("origin", "")], 403),
        (
            [
                ("host", "evil.example:7070"),
                ("origin", "http://evil.example:7070"),
            ],
            403,
        ),
        ([("host", "localhost:7070"), ("origin", "")], 200),
        ([("host", "[::1]:7070"), ("origin", "")], 200),
    ] {
        let path = "/v1/hosts/a-1/drain";
        let answer = place.send("", "POST", path, &headers, None);
        assert_eq!(answer.status, status, "{headers:?} {answer:?}");
        place.send("", "POST", "/v1/hosts/a-1/restore", &[], None);
    }
}

#[test]
fn a_host_reads_only_its_own_guarantees() {
    let place = Place::start();
    place.admit("web", 2);
    let own = place.get(HOST, "/v1/hosts/a-1/guarantees").json();
    assert_eq!(own["vms"][1]["vm"], "acme/web/1");
    for path in [
        "/v1/hosts/a-2/guarantees",
        "/v1/hosts/a-2/guarantees/stream",
        "/v1/hosts/a-2/hose-keys",
    ] {
        let other = place.get(HOST, path);
        assert_eq!(
            (other.status, other.problem().0.as_str()),
            (403, "forbidden")
        );
    }
}

#[test]
fn a_host_gets_the_keys_of_hosts_with_common_tenants_and_no_others() {
    let place = Place::start();
    let keys = |host: &str| {
        let answer = place.get(OPERATOR, &format!("/v1/hosts/{host}/hose-keys"));
        serde_json::from_slice::<HoseKeys>(&answer.body).unwrap()
    };
    let admit = |name: &str, hosts: [&str; 2]| {
        let [one, other] = hosts;
        let body = format!(
            r#"{{"owner": "acme", "name": "{name}", "vms": 2, "placement":
                [{{"host": "{one}", "vms": 1}}, {{"host": "{other}", "vms": 1}}]}}"#
        );
        let answer = place.post(OPERATOR, "/v1/tenants", &body);
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()["id"].as_u64().unwrap()
    };
    let path = "/v1/hosts/a-1/hose-keys";
    assert!(keys("a-1").epochs.iter().all(|of| of.keys.is_empty()));
    admit("web", ["a-1", "b-1"]);
    let db = admit("db", ["a-2", "b-1"]);
    let own = place.get(HOST, path);
    assert_eq!(own.header("cache-control"), "no-store");
    let own: HoseKeys = serde_json::from_slice(&own.body).unwrap();
    let [former, latest] = &own.epochs[..] else {
        panic!("{own:?}");
    };
    assert_eq!(former.epoch + 1, latest.epoch);
    let names: Vec<_> = latest.keys.keys().map(String::as_str).collect();
    assert_eq!(names, ["b-1"]);
    // By what docs/explanation/hose.md says of them.
    let secret = Secret::new(HOSE_SECRET.as_bytes()).unwrap();
    let expected = secret.pair_key(KeyEpoch(latest.epoch), "b-1", "a-1");
    assert_eq!(latest.keys["b-1"].0, expected.to_hex());
    assert_eq!(keys("b-1").epochs[1].keys["a-1"], latest.keys["b-1"]);
    assert_ne!(keys("b-1").epochs[1].keys["a-2"], latest.keys["b-1"]);
    // A host that has them gets none again.
    let has = place.send(HOST, "GET", path, &[("hose-keys", &own.mark)], None);
    let has: HoseKeys = serde_json::from_slice(&has.body).unwrap();
    assert_eq!((has.epochs, has.mark), (Vec::new(), own.mark.clone()));
    place.send(OPERATOR, "DELETE", &format!("/v1/tenants/{db}"), &[], None);
    assert_eq!(keys("b-1").epochs[1].keys.len(), 1);

    // Another secret counts from the next reload on; one that is no secret changes nothing.
    let write = |text: &str| {
        std::fs::remove_file(&place.secret).unwrap();
        std::fs::write(&place.secret, text).unwrap();
        std::fs::set_permissions(&place.secret, Permissions::from_mode(0o400)).unwrap();
        place.server.reload()
    };
    let refused = write("too short").unwrap_err().to_string();
    assert!(refused.contains("hose.key: has 9 B"), "{refused}");
    assert_eq!(keys("a-1").epochs[1].keys, latest.keys);
    write(&HOSE_SECRET.replace('0', "1")).unwrap();
    assert_ne!(keys("a-1").epochs[1].keys["b-1"], latest.keys["b-1"]);
}
