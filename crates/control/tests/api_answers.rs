//! The parts of answers that programs decide by: refusals by their rule, revisions and ages, and the
//! changes of a host's keys.

use crate::api_support::{ACME, HOST, OPERATOR, Place, sha256};
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tailbound_api::{HoseKeys, HostLine, Problem};
use tailbound_control::server::Expiry;

const GREEDY: &str = r#"{"name": "web", "vms": 9, "guarantee": {"bandwidth": "1Gbit/s",
    "burst": "100KB", "delay": "1ms", "burst_rate": "10Gbit/s"}}"#;

#[test]
fn a_refusal_has_its_rule_and_details_on_request() {
    let place = Place::start();
    let answer = place.post(ACME, "/v1/tenants", GREEDY);
    assert_eq!(answer.status, 409);
    answer.problem();
    let plain: Problem = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(plain.kind, "urn:tailbound:problem:refused");
    assert_eq!(plain.title, "No placement keeps every guarantee");
    let refusal = answer.json()["refusal"].clone();
    assert_eq!(refusal, serde_json::json!({"rule": "queue"}));

    let answer = place.post(ACME, "/v1/tenants?explain=true", GREEDY);
    let refusal = &answer.json()["refusal"];
    assert_eq!(answer.status, 409);
    assert_eq!(refusal["rule"], "queue");
    // The entries of refusals are kept later.
    assert!(refusal["revision"].as_u64() <= Some(place.state().revision));
    let request = GREEDY.replace(r#""name": "web", "#, "");
    let why = place.post(ACME, "/v1/explain", &request).json();
    assert_eq!(refusal["port"], why["overload"]["port"]);
    assert_eq!(refusal["nearest"], why["nearest"]);
    let excess = refusal["excess"].as_str().expect("a size");
    assert!(excess.ends_with('B'), "{excess}");
    // A near miss is no miss.
    let mut nearest = refusal["nearest"][0]["request"].clone();
    nearest["name"] = "web".into();
    let admitted = place.post(ACME, "/v1/tenants", &nearest.to_string());
    assert_eq!(admitted.status, 201, "{admitted:?}");
}

#[test]
fn each_refusal_by_a_rule_has_the_rule_and_its_place() {
    let place = Place::start();
    let refusal = |token, path: &str, body: &str| -> Value {
        let answer = place.post(token, path, body);
        assert_eq!(answer.status, 409, "{answer:?}");
        answer.json()["refusal"].clone()
    };
    let slots = refusal(ACME, "/v1/tenants", r#"{"name": "web", "vms": 17}"#);
    assert_eq!(
        (&slots["rule"], &slots["excess"]),
        (&"slots".into(), &"1 machine".into())
    );
    let pinned = r#"{"name": "web", "vms": 5, "placement": [{"host": "a-1", "vms": 5}]}"#;
    let pinned = refusal(ACME, "/v1/tenants", pinned);
    assert_eq!(
        (&pinned["rule"], &pinned["host"]),
        (&"slots".into(), &"a-1".into())
    );
    let batch = r#"{"operations": [
        {"create": {"name": "one", "vms": 1}}, {"create": {"name": "web", "vms": 17}}]}"#;
    let batch = refusal(ACME, "/v1/batch", batch);
    assert_eq!(
        (&batch["rule"], &batch["operation"]),
        (&"slots".into(), &1.into())
    );
    // Errors of other kinds have a type, and no rule.
    place.admit("web", 1);
    let taken = place.post(ACME, "/v1/tenants", r#"{"name": "web", "vms": 1}"#);
    assert_eq!(taken.json()["type"], "urn:tailbound:problem:exists");
    assert_eq!(taken.json()["refusal"], Value::Null);
}

#[test]
fn each_answer_has_its_revision_and_age_and_a_query_can_demand_one() {
    let place = Place::start();
    let made = place.post(ACME, "/v1/tenants", r#"{"name": "web", "vms": 1}"#);
    let revision: u64 = made.header("tailbound-revision").parse().unwrap();
    assert_eq!(revision, place.state().revision);
    assert_eq!(made.header("tailbound-age-ms"), "0");
    for path in [
        "/v1/status",
        "/v1/tenants",
        "/v1/tenants?limit=1",
        "/v1/topology",
    ] {
        let and = if path.contains('?') { '&' } else { '?' };
        let at =
            |revision: u64| place.get(OPERATOR, &format!("{path}{and}min_revision={revision}"));
        let present = at(revision);
        assert_eq!(present.status, 200, "{present:?}");
        assert_eq!(present.header("tailbound-revision"), revision.to_string());
        // This replica leads, so it waits for nothing that it has not issued.
        let (code, detail) = at(revision + 1).problem();
        assert_eq!(code, "future");
        assert!(
            detail.contains(&format!("is at revision {revision} ")),
            "{detail}"
        );
    }
    let wrong = place.get(OPERATOR, "/v1/status?min_revision=soon");
    assert_eq!(
        (wrong.status, wrong.problem().0.as_str()),
        (400, "malformed")
    );
    // A change names no revision.
    let write = place.post(
        ACME,
        "/v1/tenants?min_revision=1",
        r#"{"name": "db", "vms": 1}"#,
    );
    assert_eq!(
        (write.status, write.problem().0.as_str()),
        (400, "malformed")
    );
}

/// The stream of the host a-1, which has the keys of a mark.
struct HostStream(BufReader<TcpStream>);

impl HostStream {
    fn open(place: &Place, mark: &str) -> Self {
        Self::with(place, HOST, mark)
    }

    fn with(place: &Place, token: &str, mark: &str) -> Self {
        let address = place.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let patience = Some(Duration::from_secs(20));
        stream.set_read_timeout(patience).unwrap();
        let path = "/v1/hosts/a-1/guarantees/stream";
        let token = format!("authorization: Bearer {token}");
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: x\r\n{token}\r\nhose-keys: {mark}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        Self(BufReader::new(stream))
    }

    /// Reads to the end; returns the number of lines of JSON.
    fn read_to_end(mut self) -> usize {
        let mut lines = 0;
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap() == 0 || line.trim() == "0" {
                return lines;
            }
            lines += usize::from(line.starts_with('{'));
        }
    }

    /// Applies the next change of keys.
    fn follow(&mut self, keys: &mut HoseKeys) {
        loop {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "the stream ended");
            if !line.starts_with('{') {
                continue;
            }
            match serde_json::from_str(&line).unwrap() {
                HostLine::Keys(update) => return assert!(keys.apply(update)),
                HostLine::Guarantees(guarantees) => assert_eq!(guarantees.host, "a-1"),
            }
        }
    }
}

#[test]
fn the_changes_of_keys_come_on_the_stream_of_guarantees() {
    let place = Place::start();
    let requested = || {
        let answer = place.get(HOST, "/v1/hosts/a-1/hose-keys");
        serde_json::from_slice::<HoseKeys>(&answer.body).unwrap()
    };
    let mut keys = HoseKeys::none("a-1");
    let mut stream = HostStream::open(&place, &keys.mark);
    stream.follow(&mut keys);
    assert_eq!((keys.epochs.len(), keys.epochs[0].keys.len()), (2, 0));
    let id = place.admit("web", 16);
    stream.follow(&mut keys);
    assert_eq!(keys.epochs, requested().epochs);
    assert_eq!(keys.epochs[0].keys.len(), 3);
    // A host that comes again with all keys receives the next change only.
    let mut stream = HostStream::open(&place, &keys.mark);
    place.send(OPERATOR, "DELETE", &format!("/v1/tenants/{id}"), &[], None);
    stream.follow(&mut keys);
    assert_eq!(
        (&keys.mark, keys.epochs[0].keys.len()),
        (&requested().mark, 0)
    );
    // One with others receives all.
    place.admit("web", 16);
    let mut keys = HoseKeys::none("a-1");
    HostStream::open(&place, "other").follow(&mut keys);
    assert_eq!(keys.epochs, requested().epochs);
}

/// Within a second, and not with the next line of the stream.
#[test]
fn a_token_ends_at_its_time_and_so_do_its_streams() {
    let place = Place::start();
    let add = |name: &str, secret: &str, expires: &str| {
        let mut file = std::fs::read_to_string(&place.tokens).unwrap();
        let hash = sha256(secret);
        writeln!(
            file,
            "\n[[token]]\nname = \"{name}\"\nrole = \"host\"\nhost = \"a-1\"\n\
             sha256 = \"{hash}\"\nexpires = \"{expires}\""
        )
        .expect("it is in memory");
        std::fs::write(&place.tokens, file).unwrap();
        place.server.reload().unwrap();
    };
    add("old", "old-secret", "2020-01-31T00:00:00+02:00");
    let path = "/v1/hosts/a-1/guarantees";
    let (code, detail) = place.get("old-secret", path).problem();
    assert_eq!(code, "unauthenticated");
    assert_eq!(detail, "the token expired at 2020-01-30T22:00:00Z");
    let (validity, begin) = (Duration::from_secs(3), Instant::now());
    add(
        "short",
        "short-secret",
        &Expiry::after(validity).to_string(),
    );
    assert_eq!(place.get("short-secret", path).status, 200);
    let stream = HostStream::with(&place, "short-secret", "none");
    assert_eq!(stream.read_to_end(), 2);
    // The end is a whole second, so it may be up to one earlier.
    let took = begin.elapsed();
    assert!(took + Duration::from_secs(1) >= validity, "{took:?}");
    assert!(took < validity + Duration::from_secs(2), "{took:?}");
    assert_eq!(place.get("short-secret", path).status, 401);
}

#[test]
fn a_stream_ends_at_once_when_its_token_is_removed() {
    let place = Place::start();
    let mut stream = HostStream::open(&place, "none");
    stream.follow(&mut HoseKeys::none("a-1"));
    let file = std::fs::read_to_string(&place.tokens).unwrap();
    let begin = Instant::now();
    std::fs::write(
        &place.tokens,
        file.replace(&sha256(HOST), &sha256("another")),
    )
    .unwrap();
    place.server.reload().unwrap();
    assert_eq!(stream.read_to_end(), 0);
    assert!(
        begin.elapsed() < Duration::from_secs(2),
        "{:?}",
        begin.elapsed()
    );
}
