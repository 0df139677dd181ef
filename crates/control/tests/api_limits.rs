//! Tests of quotas, rate limits, and the log of wrong tokens.

use crate::api_support::{ACME, GLOBEX, HOST, OPERATOR, Place, tokens_file};

/// A service whose tokens file ends with this.
fn place(more: &str) -> Place {
    let place = Place::start();
    std::fs::write(&place.tokens, format!("{}{more}", tokens_file())).unwrap();
    place.server.reload().unwrap();
    place
}

#[test]
fn an_owners_quota_is_enforced_and_leaves_room_for_others() {
    let place = place(
        "[[quota]]\nowner = \"acme\"\nvms = 10\n[[quota]]\ntenants = 1\nbandwidth = \"1Gbit/s\"\n",
    );
    let body = |name: &str, vms: u32| format!(r#"{{"name": "{name}", "vms": {vms}}}"#);
    let create = |token, name, vms| place.post(token, "/v1/tenants", &body(name, vms));
    assert_eq!(create(ACME, "all", 16).problem().0, "quota");
    assert_eq!(create(ACME, "some", 10).status, 201);
    let refused = create(ACME, "more", 1);
    assert_eq!(refused.status, 403);
    let (code, detail) = refused.problem();
    assert_eq!(code, "quota");
    let said = "acme would have 11 machines, and its quota is 10 (it has 10)";
    assert!(detail.starts_with(said), "{detail}");
    // Each other owner has the quota without a name.
    assert_eq!(create(GLOBEX, "one", 1).status, 201);
    assert_eq!(create(GLOBEX, "two", 1).problem().0, "quota");
    // An operator gives what it likes.
    let body = r#"{"owner": "acme", "name": "more", "vms": 1}"#;
    assert_eq!(place.post(OPERATOR, "/v1/tenants", body).status, 201);
    // A quota is another one after a reload.
    let more = "[[quota]]\nowner = \"acme\"\nvms = 12\n";
    std::fs::write(&place.tokens, format!("{}{more}", tokens_file())).unwrap();
    place.server.reload().unwrap();
    assert_eq!(create(ACME, "again", 1).status, 201);
}

#[test]
fn a_token_that_asks_too_often_waits_and_others_do_not() {
    let place = place("[requests]\ntenant = 1\nhost = 2\nstranger = 1\n");
    let times = |token: &str, path: &str, times: usize| {
        let mut answers = (0..times).map(|_| place.get(token, path));
        answers.rfind(|answer| answer.status == 429)
    };
    // Ten seconds' worth at once, and some of it comes again meanwhile.
    let limited = times(ACME, "/v1/status", 60).expect("sixty at once are too many");
    let (code, detail) = limited.problem();
    assert_eq!(code, "too-many");
    assert!(
        detail.starts_with("the token \"acme\" exceeds the rate limit"),
        "{detail}"
    );
    let wait: u64 = limited.header("retry-after").parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    // Not another token, nor an operator's.
    assert_eq!(place.get(GLOBEX, "/v1/status").status, 200);
    assert!(times(OPERATOR, "/v1/status", 200).is_none());
    assert!(times(HOST, "/v1/hosts/a-1/guarantees", 15).is_none());
    // Wrong tokens count by address, and a right one from the same address is answered.
    let stranger = times("wrong", "/v1/status", 60).expect("sixty at once are too many");
    assert!(
        stranger
            .problem()
            .1
            .starts_with("127.0.0.1, without a known token,")
    );
    assert_eq!(place.get(GLOBEX, "/v1/status").status, 200);
    let metrics = String::from_utf8(place.get(OPERATOR, "/metrics").body).unwrap();
    for by in ["token", "address"] {
        let name = format!("tailbound_place_requests_limited_total{{by=\"{by}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
        assert!(line.is_some_and(|count| count != "0"), "{by}: {metrics}");
    }
}

#[test]
fn mistakes_about_quotas_and_rates_are_reported_with_their_place() {
    let place = Place::start();
    let more = "[[quota]]\nowner = \"-a\"\n[[quota]]\nvms = 1\n[[quota]]\nvms = 2\n\
                [[quota]]\nbandwidth = \"fast\"\n[requests]\ntenant = 0\n";
    let text = format!("{}{more}", tokens_file());
    let first = text.lines().count() - more.lines().count();
    std::fs::write(&place.tokens, text).unwrap();
    let said = place.server.reload().unwrap_err().to_string();
    for (line, what) in [(8, "\"fast\""), (10, "zero")] {
        let at = format!(":{}:", first + line);
        let found = said.lines().find(|text| text.contains(&at));
        assert!(
            found.is_some_and(|text| text.contains(what)),
            "{at} {what}: {said}"
        );
    }
    std::fs::write(
        &place.tokens,
        format!(
            "{}{}",
            tokens_file(),
            &more[..more.find("[[quota]]\nband").unwrap()]
        ),
    )
    .unwrap();
    let said = place.server.reload().unwrap_err().to_string();
    assert!(said.contains("\"-a\" is no owner"), "{said}");
    assert!(said.contains("two quotas of all other owners"), "{said}");
}

#[test]
fn a_backup_is_made_while_it_runs_and_for_operators_alone() {
    let place = Place::start();
    place.admit("web", 3);
    let answer = place.get(OPERATOR, "/v1/backup");
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (200, "application/jsonl")
    );
    let text = String::from_utf8(answer.body).unwrap();
    assert_eq!(
        tailbound_control::backup::read(&text).unwrap(),
        place.state()
    );
    for token in [ACME, HOST] {
        assert_eq!(place.get(token, "/v1/backup").problem().0, "forbidden");
    }
}
