//! The API for outside schedulers over real HTTP.

use crate::api_support::{self, ACME, GLOBEX, HOST, OPERATOR, Place};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tailbound_control::audit::audit;

fn post(place: &Place, token: &str, path: &str, body: &Value) -> api_support::Answer {
    place.post(token, path, &body.to_string())
}

fn reservation(hosts: &Value, ttl: &str) -> Value {
    json!({
        "tenant": "pods",
        "request": {"guarantee": {"bandwidth": "100Mbit/s", "burst": "3KB"}},
        "placement": hosts,
        "ttl": ttl,
    })
}

#[test]
fn a_scheduler_gets_a_verdict_on_each_host() {
    let place = Place::start();
    let questions = json!({"requests": [
        {"request": {"vms": 2, "guarantee": {"bandwidth": "100Mbit/s", "burst": "3KB"}}},
        {"request": {"vms": 5}, "vms": 5, "hosts": ["a-2", "nowhere"]},
    ]});
    let asked = post(&place, ACME, "/v1/candidates", &questions);
    assert_eq!(asked.status, 200, "{asked:?}");
    let asked = asked.json();
    let first = asked["answers"][0]["candidates"].as_array().unwrap();
    let names: Vec<_> = first
        .iter()
        .map(|it| it["host"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["a-1", "a-2", "b-1", "b-2"]);
    assert!(first.iter().all(|it| it["fits"] == true), "{first:?}");
    assert_eq!(first[0]["headroom"]["bandwidth"], "10Gbit/s");
    let second = &asked["answers"][1]["candidates"];
    assert_eq!(second[0]["refusal"]["rule"], "slots");
    assert_eq!(second[0]["headroom"]["vms"], 4);
    assert_eq!(second[1]["refusal"]["rule"], "unknown-host");
    assert_eq!(place.content().tenants.len(), 0);
}

#[test]
fn a_reservation_is_confirmed_once_and_only_its_owner_sees_it() {
    let place = Place::start();
    let mut wanted = reservation(&json!([{"host": "a-1", "vms": 1}]), "1h");
    wanted["machines"] = json!(["uid-1"]);
    let made = post(&place, ACME, "/v1/reservations", &wanted);
    assert_eq!(made.status, 201, "{made:?}");
    let path = made.header("location").to_owned();
    let made = made.json();
    assert_eq!(
        path,
        format!("/v1/reservations/{}", made["id"].as_str().unwrap())
    );
    assert_eq!(made["machines"][0]["vm"], "acme/pods/0");
    assert_eq!(
        (&made["state"], &made["expires_in"]),
        (&json!("open"), &json!("3600s"))
    );
    assert!(made["revision"].as_u64().unwrap() >= 2);
    // The host has its guarantee before it starts.
    let guarantees = place.get(HOST, "/v1/hosts/a-1/guarantees").json();
    assert_eq!(guarantees["vms"][0]["vm"], "acme/pods/0");
    // An earlier client reads the tenant: it has no field that it does not know.
    let tenant = place
        .get(ACME, &format!("/v1/tenants/{}", made["tenant"]))
        .json();
    assert!(tenant.get("reservations").is_none() && tenant.get("misfit").is_none());
    assert_eq!(
        post(&place, ACME, "/v1/reservations", &wanted).problem().0,
        "exists"
    );

    let list = place.get(ACME, "/v1/reservations").json();
    assert_eq!(list["items"][0]["id"], made["id"]);
    assert_eq!(
        place.get(GLOBEX, "/v1/reservations").json()["items"],
        json!([])
    );
    assert_eq!(place.get(GLOBEX, &path).status, 404);
    let confirm = format!("{path}/confirm");
    assert_eq!(place.send(GLOBEX, "POST", &confirm, &[], None).status, 404);
    for _ in 0..2 {
        let confirmed = place.send(ACME, "POST", &confirm, &[], None);
        assert_eq!(confirmed.status, 200);
        assert_eq!(confirmed.json()["state"], "confirmed");
    }
    let refused = place.send(ACME, "DELETE", &path, &[], None);
    assert_eq!(
        (refused.status, refused.problem().0.as_str()),
        (409, "refused")
    );
    assert_eq!(
        place.get(ACME, "/v1/reservations").json()["items"],
        json!([])
    );
}

#[test]
fn machines_come_to_a_host_and_leave_it_by_name() {
    let place = Place::start();
    let mut wanted = reservation(&json!([{"host": "a-1", "vms": 1}]), "1h");
    wanted["machines"] = json!(["uid-1"]);
    let made = post(&place, ACME, "/v1/reservations", &wanted);
    let confirm = format!("{}/confirm", made.header("location"));
    assert_eq!(place.send(ACME, "POST", &confirm, &[], None).status, 200);
    let made = made.json();
    let put = format!("/v1/tenants/{}/hosts/a-1", made["tenant"]);
    let set = |body: Value, headers: &[(&str, &str)]| {
        place.send(
            ACME,
            "PUT",
            &put,
            headers,
            Some(body.to_string().as_bytes()),
        )
    };
    let more = set(json!({"vms": 3}), &[]);
    assert_eq!(more.status, 200, "{more:?}");
    assert_eq!(more.json()["request"]["vms"], 3);
    let outdated = set(json!({"vms": 1}), &[("if-match", "\"1\"")]);
    assert_eq!(outdated.problem().0, "changed");
    let fewer = set(
        json!({"vms": 2, "remove": ["uid-1"]}),
        &[("if-match", more.header("etag"))],
    );
    assert_eq!(fewer.json()["runs"][0]["first"], 1, "{fewer:?}");
    assert_eq!(set(json!({"vms": 0}), &[]).status, 204);
    assert_eq!(place.get(ACME, "/v1/tenants").json()["items"], json!([]));
}

#[test]
fn cancelled_and_expired_reservations_free_their_slots() {
    let place = Place::start();
    let hosts = json!([{"host": "b-1", "vms": 2}, {"host": "a-1", "vms": 1}]);
    let made = post(&place, ACME, "/v1/reservations", &reservation(&hosts, "1h"));
    let path = made.header("location").to_owned();
    for _ in 0..2 {
        assert_eq!(place.send(ACME, "DELETE", &path, &[], None).status, 204);
    }
    assert_eq!(place.get(ACME, &path).status, 404);
    let never = place.send(ACME, "DELETE", "/v1/reservations/999999", &[], None);
    assert_eq!(never.status, 404);
    let made = post(&place, ACME, "/v1/reservations", &reservation(&hosts, "1s"));
    assert_eq!(made.status, 201, "{made:?}");
    let (path, begin) = (made.header("location").to_owned(), Instant::now());
    while place.get(ACME, &path).status == 200 {
        assert!(begin.elapsed() < Duration::from_secs(20), "it does not end");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(
        begin.elapsed() >= Duration::from_millis(900),
        "it ended early"
    );
    let confirm = format!("{path}/confirm");
    assert_eq!(place.send(ACME, "POST", &confirm, &[], None).status, 404);
    let state = place.state();
    assert_eq!((state.tenants.len(), audit(&state).findings.len()), (0, 0));
}

#[test]
fn a_batch_is_one_change_and_pinned_tenants_are_where_they_were_put() {
    let place = Place::start();
    let pinned = |name: &str, vms: u32| json!({"name": name, "vms": vms, "placement": [{"host": "b-2", "vms": vms}]});
    let made = post(&place, ACME, "/v1/tenants", &pinned("web", 2));
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(made.json()["runs"][0]["host"], "b-2");
    let refused = post(&place, ACME, "/v1/tenants", &pinned("db", 3));
    let (code, detail) = refused.problem();
    assert_eq!(code, "refused");
    assert_eq!(detail, "host \"b-2\": 2 of its slots are free, not 3");
    let batch = |vms: u32| {
        json!({"operations": [
            {"create": pinned("db", 2)},
            {"put": {"tenant": "db", "host": "a-1", "vms": vms}},
            {"delete": "web"},
        ]})
    };
    let before = place.content();
    let refused = post(&place, ACME, "/v1/batch", &batch(5));
    let (code, detail) = refused.problem();
    assert_eq!(code, "refused");
    assert!(
        detail.starts_with("operation 1 of the batch: host \"a-1\""),
        "{detail}"
    );
    assert_eq!(place.content(), before);
    let done = post(&place, ACME, "/v1/batch", &batch(1));
    assert_eq!(done.status, 200, "{done:?}");
    let done = done.json();
    assert!(done["revision"].as_u64() <= Some(place.state().revision));
    assert_eq!(done["tenants"][1]["request"]["vms"], 3);
    assert_eq!(done["tenants"][2], Value::Null);
    for (body, code) in [
        (json!({"operations": []}), "absurd"),
        (
            json!({"operations": [{"delete": 1, "put": {}}]}),
            "malformed",
        ),
        (json!({"operations": [{"delete": "nobody"}]}), "not-found"),
        (
            json!({"operations": [{"create": {"name": "x", "owner": "globex", "vms": 1}}]}),
            "forbidden",
        ),
        (
            json!({"operations": vec![json!({"delete": "db"}); 101]}),
            "absurd",
        ),
    ] {
        assert_eq!(
            post(&place, ACME, "/v1/batch", &body).problem().0,
            code,
            "{body}"
        );
    }
}

#[test]
fn a_running_data_centre_is_adopted_by_an_operator() {
    let place = Place::start();
    let tenant = |name: &str, host: &str, vms: u32| {
        json!({"name": name, "owner": "acme", "vms": vms,
            "placement": [{"host": host, "vms": vms}]})
    };
    let all = json!({"tenants": [
        tenant("web", "a-1", 3), tenant("db", "a-1", 2), tenant("lost", "z-9", 1),
    ]});
    assert_eq!(
        post(&place, ACME, "/v1/adopt", &all).problem().0,
        "forbidden"
    );
    let adopted = post(&place, OPERATOR, "/v1/adopt", &all);
    assert_eq!(adopted.status, 200, "{adopted:?}");
    let report = adopted.json();
    assert_eq!(
        (&report["adopted"], &report["present"]),
        (&json!(2), &json!(0))
    );
    let misfits = report["misfits"].as_array().unwrap();
    assert_eq!(misfits[0]["tenant"], "acme/db");
    assert_eq!(
        (&misfits[0]["rule"], &misfits[0]["host"]),
        (&json!("slots"), &json!("a-1"))
    );
    assert_eq!(
        (&misfits[1]["rule"], &misfits[1]["adopted"]),
        (&json!("unknown-host"), &json!(false))
    );
    let again = post(&place, OPERATOR, "/v1/adopt", &all).json();
    assert_eq!(
        (&again["adopted"], &again["present"]),
        (&json!(0), &json!(2))
    );
    let report = audit(&place.state());
    assert_eq!(report.misfits, 1);
    assert_eq!(report.findings.len(), 1);
    assert!(report.findings[0].is_over, "{:?}", report.findings);
    let absurd = json!({"tenants": [tenant("web", "a-1", 0)]});
    assert_eq!(
        post(&place, OPERATOR, "/v1/adopt", &absurd).problem().0,
        "absurd"
    );
}

/// A machine's name, with what a path has to encode: `vm/1 e`.
const VM: &str = "vm%2F1%20e";

fn put(place: &Place, token: &str, name: &str, body: &Value) -> api_support::Answer {
    let path = format!("/v1/machines/{name}");
    place.send(token, "PUT", &path, &[], Some(body.to_string().as_bytes()))
}

fn delete(place: &Place, token: &str, path: &str, headers: &[(&str, &str)]) -> api_support::Answer {
    let path = format!("/v1/machines/{path}");
    place.send(token, "DELETE", &path, headers, None)
}

fn machine(place: &Place, token: &str, path: &str) -> api_support::Answer {
    place.get(token, &format!("/v1/machines/{path}"))
}

fn on(host: &str) -> Value {
    json!({"tenant": "pods", "owner": "acme", "host": host})
}

#[test]
fn a_host_starts_and_ends_machines_that_a_scheduler_reserved_by_name() {
    let place = Place::start();
    let name = VM;
    let mut wanted = reservation(&json!([{"host": "b-1", "vms": 1}]), "1h");
    wanted["machines"] = json!(["vm/1 e"]);
    wanted["replace"] = json!(true);
    for host in ["b-1", "a-1"] {
        wanted["placement"][0]["host"] = json!(host);
        let made = post(&place, ACME, "/v1/reservations", &wanted);
        assert_eq!(made.status, 201, "{made:?}");
    }
    let mut expected = json!({
        "name": "vm/1 e", "owner": "acme", "tenant": 1, "tenant_name": "pods",
        "vm": "acme/pods/0", "host": "a-1", "state": "reserved",
    });
    let found = machine(&place, ACME, name).json();
    expected["tenant"] = found["tenant"].clone();
    assert_eq!(found, expected, "it moved with the second attempt");
    let all = place.get(OPERATOR, "/v1/machines?limit=1").json();
    assert_eq!(all, json!({"items": [expected]}));
    assert_eq!(
        place.get(GLOBEX, "/v1/machines").json(),
        json!({"items": []})
    );
    assert_eq!(place.get(ACME, "/v1/machines?after=1").status, 400);
    assert_eq!(place.get(ACME, "/v1/machines?owner=globex").status, 403);
    // A host's token is for machines on this host, which are known.
    for (name, body, code) in [
        (name, on("a-2"), "forbidden"),
        ("other", on("a-1"), "forbidden"),
        (name, json!({"tenant": "pods", "host": "a-1"}), "absurd"),
        (
            name,
            json!({"tenant": "pods", "host": "a-1", "vm": 1}),
            "malformed",
        ),
    ] {
        assert_eq!(
            put(&place, HOST, name, &body).problem().0,
            code,
            "{name} {body}"
        );
    }
    assert_eq!(machine(&place, HOST, name).problem().0, "forbidden");
    let gone = format!("{name}?owner=acme&host=b-1");
    assert_eq!(delete(&place, HOST, &gone, &[]).problem().0, "forbidden");
    expected["state"] = json!("confirmed");
    for _ in 0..2 {
        let started = put(&place, HOST, name, &on("a-1"));
        assert_eq!((started.status, started.json()), (200, expected.clone()));
    }
}

#[test]
fn a_machine_is_put_and_deleted_by_its_owner_and_operators_only() {
    let place = Place::start();
    let name = VM;
    let gone = format!("{name}?owner=acme&host=");
    let mut first = on("a-1");
    first["request"] = json!({});
    assert_eq!(put(&place, OPERATOR, name, &first).status, 200);
    let elsewhere = json!({"tenant": "pods", "host": "b-2"});
    assert_eq!(
        put(&place, OPERATOR, name, &elsewhere).problem().0,
        "absurd"
    );
    assert_eq!(
        put(&place, GLOBEX, name, &on("b-2")).problem().0,
        "forbidden"
    );
    assert_eq!(
        put(&place, GLOBEX, name, &elsewhere).status,
        404,
        "it has no such tenant"
    );
    assert_eq!(put(&place, ACME, name, &elsewhere).json()["host"], "b-2");
    for (token, path, status) in [
        (OPERATOR, name.to_owned(), 422),
        (OPERATOR, format!("{name}?owner=acme"), 200),
        (ACME, format!("{name}?owner=acme"), 200),
        (ACME, format!("{name}?owner=globex"), 403),
        (ACME, format!("{name}?host=a-1"), 400),
        (ACME, "vm".to_owned(), 404),
        (GLOBEX, name.to_owned(), 404),
    ] {
        assert_eq!(machine(&place, token, &path).status, status, "{path}");
    }
    // The end on the old host is no end on the new one, also with the same key for another host.
    let key = [("idempotency-key", "1")];
    assert_eq!(
        delete(&place, HOST, &format!("{gone}a-1"), &key).status,
        204
    );
    assert_eq!(machine(&place, ACME, name).json()["host"], "b-2");
    let reused = delete(&place, ACME, &format!("{gone}b-2"), &key);
    assert_eq!(reused.problem().0, "key-reused");
    for _ in 0..2 {
        assert_eq!(delete(&place, ACME, &format!("{gone}b-2"), &[]).status, 204);
    }
    assert_eq!(
        delete(&place, ACME, name, &[]).status,
        400,
        "the host is missing"
    );
    let state = place.state();
    assert_eq!((state.tenants.len(), audit(&state).findings.len()), (0, 0));
}
