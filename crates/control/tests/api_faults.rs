//! Injected faults: each is named alone, by the list of faults and by the metric of the alerts.

use crate::api_running::{guaranteed, report, say, stream};
use crate::api_store::faulty;
use crate::api_support::{ACME, GLOBEX, OPERATOR, Place, Setup, TREE, agent, sha256, tokens_file};
use crate::api_tls::certificate_until;
use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tailbound_api::TIME_HEADER;
use tailbound_control::ledger::{Call, Command};
use tailbound_control::server::Expiry;
use tailbound_placement::Spec;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Time limit for a fault to be found.
const FOUND: Duration = Duration::from_secs(20);

/// Returns the kinds of all faults with their names.
fn found(place: &Place) -> Vec<(String, Vec<String>)> {
    let list = place.get(OPERATOR, "/v1/faults").json();
    let faults = list["faults"].as_array().unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    faults
        .iter()
        .map(|fault| {
            assert!(!text(&fault["why"]).is_empty(), "{fault}");
            assert!(fault["since"].as_u64().is_some_and(|it| it > 0), "{fault}");
            let names = fault["names"].as_array().unwrap();
            (text(&fault["kind"]), names.iter().map(text).collect())
        })
        .collect()
}

/// Waits until there is no fault.
fn has_none(place: &Place) {
    let begin = Instant::now();
    while !found(place).is_empty() {
        assert!(begin.elapsed() < FOUND, "{:?}", found(place));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until this is the only fault, and the metric counts it alone.
fn is_alone(place: &Place, kind: &str, names: &[&str]) {
    is_alone_within(place, kind, names, FOUND);
}

fn is_alone_within(place: &Place, kind: &str, names: &[&str], limit: Duration) {
    let wanted = [(
        kind.to_owned(),
        names.iter().map(|it| (*it).to_owned()).collect(),
    )];
    let begin = Instant::now();
    while found(place) != wanted {
        assert!(begin.elapsed() < limit, "{kind}: {:?}", found(place));
        std::thread::sleep(Duration::from_millis(50));
    }
    let metrics = String::from_utf8(place.get(OPERATOR, "/metrics").body).unwrap();
    let counts = metrics.lines().filter_map(|line| {
        let (label, count) = line
            .strip_prefix("tailbound_place_faults{")?
            .split_once("} ")?;
        (count != "0").then_some((label, count))
    });
    let label = format!("fault=\"{kind}\"");
    assert_eq!(
        counts.collect::<Vec<_>>(),
        [(&*label, &*names.len().to_string())]
    );
}

/// A fault of a host with a tenant of one machine, by its report.
fn by_report(kind: &str, text: impl Fn(u64) -> String) {
    let place = Place::start();
    let id = guaranteed(&place, "web", 1);
    is_alone(&place, "hosts-unheard", &["a-1"]);
    say(&place, "a-1", &report(id, ""));
    has_none(&place);
    say(&place, "a-1", &text(id));
    is_alone(&place, kind, &["a-1"]);
}

fn late(id: u64) -> String {
    report(id, "").replace(
        "\"subtree_bursts\"",
        "\"lateness\": {\"within\": \"50us\"}, \"subtree_bursts\"",
    )
}

fn refuses(id: u64) -> String {
    let refused =
        format!(r#", "refused": [{{"tenant": {id}, "vm": "acme/web/0", "why": "no room"}}]"#);
    report(id, &refused)
}

fn slow(id: u64) -> String {
    report(id, "").replace("10Gbit/s", "500Mbit/s")
}

fn unpromised(id: u64) -> String {
    let more = r#""share": 0, "unpromised": {"threads": 1, "cpu": 100}},
        "unpromised": [{"guest": "web", "what": "0.1 CPU"}]"#;
    report(id, &offered(500).replace("\"share\": 0}", more))
}

fn silent() {
    let place = Place::start();
    let id = guaranteed(&place, "web", 1);
    say(&place, "a-1", &report(id, ""));
    silence(&place);
    is_alone(&place, "hosts-silent", &["a-1"]);
    let list = place.get(OPERATOR, "/v1/faults").json();
    assert_eq!(
        list["faults"][0]["since"], 1_700_000_000,
        "the silence has a begin"
    );
}

fn store(failure: u8, kind: &str) {
    let (place, fault) = faulty(0, None);
    place.admit("web", 1);
    fault.store(failure, Ordering::Relaxed);
    let body = r#"{"name": "db", "vms": 1}"#;
    assert!(place.post(ACME, "/v1/tenants", body).status >= 500);
    is_alone(&place, kind, &["store"]);
    // It ends with the first commit that is kept.
    fault.store(0, Ordering::Relaxed);
    place.admit("db", 1);
    has_none(&place);
}

/// A disk that is full before the service starts, and no change that would fail.
fn full_at_the_start() {
    let (place, fault) = faulty(1, Some(Place::start().state()));
    is_alone(&place, "store-full", &["store"]);
    assert_eq!(place.get(ACME, "/v1/tenants").status, 200);
    // It ends once there is space, without a change.
    fault.store(0, Ordering::Relaxed);
    has_none(&place);
}

/// A commit finds damage: the service goes on with queries and a backup, from memory.
fn damaged() {
    let (place, fault) = faulty(0, None);
    place.admit("web", 1);
    fault.store(4, Ordering::Relaxed);
    let body = r#"{"name": "db", "vms": 1}"#;
    for _ in 0..2 {
        let answer = place.post(ACME, "/v1/tenants", body);
        let (code, detail) = answer.problem();
        assert_eq!((answer.status, &*code), (500, "store"));
        assert!(detail.contains("damaged: a page differs"), "{detail}");
    }
    is_alone(&place, "store-damaged", &["store"]);
    let backup = String::from_utf8(place.get(OPERATOR, "/v1/backup").body).unwrap();
    assert_eq!(backup.matches("\"tenant\":{").count(), 1, "{backup}");
    let ready = place.get("", "/readyz");
    assert!(ready.problem().1.contains("damaged"), "{ready:?}");
}

/// A store that hangs in the commit of a cancellation.
fn overdue() {
    let (place, fault) = faulty(0, None);
    let body = r#"{"tenant": "pods", "request": {}, "placement": [{"host": "a-1", "vms": 1}], "ttl": "1s"}"#;
    let made = place.post(ACME, "/v1/reservations", body);
    assert_eq!(made.status, 201, "{made:?}");
    fault.store(5, Ordering::Relaxed);
    let id = made.json()["id"].as_str().unwrap().to_owned();
    // It is late after ten seconds.
    let limit = FOUND + Duration::from_secs(10);
    is_alone_within(&place, "reservations-overdue", &[&id], limit);
    fault.store(0, Ordering::Relaxed);
    has_none(&place);
}

/// Sends a report with a clock that is this many seconds ahead.
fn say_at(place: &Place, text: &str, seconds: i64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let then = i64::try_from(now.as_millis()).unwrap() + seconds * 1_000;
    let headers = [(TIME_HEADER, &*then.to_string())];
    let path = "/v1/hosts/a-1/report";
    let answer = place.send(OPERATOR, "POST", path, &headers, Some(text.as_bytes()));
    assert_eq!(answer.status, 204, "{answer:?}");
}

fn wrong_clock(seconds: i64, why: &str) {
    let place = Place::start();
    let id = guaranteed(&place, "web", 1);
    say_at(&place, &report(id, ""), 0);
    has_none(&place);
    say_at(&place, &report(id, ""), seconds);
    is_alone(&place, "hosts-with-wrong-clock", &["a-1"]);
    let list = place.get(OPERATOR, "/v1/faults").json();
    let said = list["faults"][0]["why"].as_str().unwrap();
    assert!(said.ends_with(why), "{said}");
    say_at(&place, &report(id, ""), 0);
    has_none(&place);
    let headers = [(TIME_HEADER, "noon")];
    let path = "/v1/hosts/a-1/report";
    let text = report(id, "");
    let answer = place.send(OPERATOR, "POST", path, &headers, Some(text.as_bytes()));
    assert_eq!(answer.problem().0, "malformed");
}

/// A tenant with a quarter of a CPU on the only host that offers some.
fn with_cpu(place: &Place) -> u64 {
    say(place, "a-1", &report(0, &offered(500)));
    let body = r#"{"name": "web", "vms": 1, "guarantee": {"bandwidth": "1Gbit/s"},
        "cpu_reservation": {"runtime": "1ms", "deadline": "4ms", "period": "4ms"}}"#;
    let made = place.post(ACME, "/v1/tenants", body);
    assert_eq!(made.status, 201, "{made:?}");
    let id = made.json()["id"].as_u64().unwrap();
    say(place, "a-1", &report(id, &offered(500)));
    has_none(place);
    id
}

/// CPU of a host, in thousandths.
fn offered(reservable: u32) -> String {
    format!(
        r#", "cpu": {{"cpus": 2, "threads": 8, "largest": 500, "reservable": {reservable}, "overrun": "0ns",
        "interrupts": "100us", "steal": "0ns", "share": 0}}"#
    )
}

fn short_of_cpu() {
    let place = Place::start();
    let id = with_cpu(&place);
    say(&place, "a-1", &report(id, &offered(100)));
    is_alone(&place, "hosts-short-of-cpu", &["a-1"]);
    // A host that offers none any more is short, too.
    say(&place, "a-1", &report(id, ""));
    is_alone(&place, "hosts-short-of-cpu", &["a-1"]);
}

/// A silent host offers no CPU, which is a consequence.
fn silent_with_cpu() {
    let place = Place::start();
    with_cpu(&place);
    silence(&place);
    is_alone(&place, "hosts-silent", &["a-1"]);
}

fn silence(place: &Place) {
    let hosts = vec![("a-1".to_owned(), 1_700_000_000)];
    let call = Call::of_service(Command::Silence { hosts });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(place.service.call(call)).unwrap();
}

/// An owner with more long queries than may wait, while the threads answer longer ones of another owner.
/// The other owner hangs up, so that the service writes no long answer.
fn queries() {
    let place = Place::with(Setup {
        tree: Spec::from_toml(&TREE.replace("count = 2", "count = 1000")).unwrap(),
        ..Setup::default()
    });
    // A burst of one token would be served at five times its rate.
    let tokens = tokens_file() + "[requests]\ntenant = 100000\n";
    std::fs::write(&place.tokens, tokens).unwrap();
    place.server.reload().unwrap();
    let address = place.url.strip_prefix("http://").unwrap();
    let open = |token: &str, path: &str, body: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let each =
        r#"{"request": {"vms": 2, "guarantee": {"bandwidth": "100Mbit/s", "burst": "3KB"}}}"#;
    let long = format!(r#"{{"requests": [{}]}}"#, [each; 64].join(","));
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let longer: Vec<_> = (0..2 * threads)
        .map(|_| open(GLOBEX, "/v1/candidates", &long))
        .collect();
    let _open: Vec<_> = (0..90)
        .map(|_| open(ACME, "/v1/fit", r#"{"vms": 2}"#))
        .collect();
    is_alone(&place, "queries-refused", &["the owner \"acme\""]);
    // Until then they keep the threads busy: a query ends with its connection.
    drop(longer);
}

/// An issued token whose validity ends.
fn issued_token_expires() {
    let place = Place::start();
    let end = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(3);
    let end = Expiry::at(end.as_secs()).to_string();
    let body = format!(r#"{{"name": "short", "role": "viewer", "expires": "{end}"}}"#);
    assert_eq!(place.post(OPERATOR, "/v1/tokens", &body).status, 201);
    is_alone(&place, "tokens-expired", &["short"]);
}

fn tokens(more: &str, kind: &str, name: &str) {
    let place = Place::start();
    place.admit("web", 1);
    std::fs::write(&place.tokens, tokens_file() + more).unwrap();
    place.server.reload().unwrap();
    is_alone(&place, kind, &[name]);
}

fn expired_token() {
    let hash = sha256("old");
    let token = format!(
        "[[token]]\nname = \"old\"\nrole = \"viewer\"\nsha256 = \"{hash}\"\nexpires = \"2026-01-01T00:00:00Z\"\n"
    );
    tokens(&token, "tokens-expired", "old");
}

fn streams() {
    let place = Place::with(Setup {
        streams: 1,
        ..Setup::default()
    });
    let _open = stream(&place, "a-1");
    is_alone(&place, "streams-full", &["guarantees"]);
}

fn watches() {
    let place = Place::start();
    let _open: Vec<_> = (0..16)
        .map(|_| place.stream(OPERATOR, "/v1/changes/hosts"))
        .collect();
    is_alone(&place, "streams-full", &["operators"]);
}

fn ahead() {
    let place = Place::start();
    say(&place, "a-1", &report(4_000, ""));
    is_alone(&place, "hosts-ahead", &["a-1"]);
}

fn certificate_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (files, authority) = certificate_until(dir.path(), Duration::from_hours(48));
    let place = Place::with(Setup {
        tls: Some(files),
        ..Setup::default()
    });
    let root = Certificate::from_pem(&authority).unwrap().to_owned();
    let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&[root]));
    let agent = agent(tls.build());
    let begin = Instant::now();
    loop {
        let request = agent.get(format!("{}/v1/faults", place.url));
        let request = request.header("authorization", format!("Bearer {OPERATOR}"));
        let list: serde_json::Value = request.call().unwrap().body_mut().read_json().unwrap();
        let faults = list["faults"].as_array().unwrap();
        if let [fault] = &faults[..] {
            assert_eq!(fault["kind"], "certificate-expires");
            return;
        }
        assert!(begin.elapsed() < FOUND, "{list}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A store that another version filled, with queues in front of hosts that are too short.
fn overloaded() {
    let wide = Place::start();
    let mut last = 0;
    for name in ["web", "db"] {
        let body = format!(
            r#"{{"name": "{name}", "vms": 8, "guarantee": {{"bandwidth": "1Gbit/s", "burst": "15KB"}}}}"#
        );
        let made = wide.post(ACME, "/v1/tenants", &body);
        assert_eq!(made.status, 201);
        last = made.json()["id"].as_u64().unwrap();
    }
    for host in ["a-1", "a-2", "b-1", "b-2"] {
        say(&wide, host, &report(last, ""));
    }
    let mut snapshot = wide.state();
    let narrow = TREE.replace("300KB", "3KB");
    let topology = snapshot.topology.as_ref().unwrap();
    snapshot.topology = Some(std::sync::Arc::new(tailbound_api::TopologyState {
        spec: Spec::from_toml(&narrow).unwrap(),
        ..(**topology).clone()
    }));
    let place = Place::of(snapshot);
    let begin = Instant::now();
    let kinds = || {
        found(&place)
            .into_iter()
            .map(|(kind, _)| kind)
            .collect::<Vec<_>>()
    };
    while kinds() != ["ports-overloaded"] {
        assert!(begin.elapsed() < FOUND, "{:?}", found(&place));
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn each_injected_fault_is_named_alone() {
    type Fault = Box<dyn FnOnce() + Send>;
    let by = |kind: &'static str, text: fn(u64) -> String| -> Fault {
        Box::new(move || by_report(kind, text))
    };
    let faults: Vec<Fault> = vec![
        by("hosts-behind", |id| report(id - 1, "")),
        by("hosts-refuse", refuses),
        by("hosts-too-small", slow),
        by("hosts-unpaced", |id| {
            format!(r#"{{"revision": {id}, "change": {id}}}"#)
        }),
        by("hosts-late", late),
        by("hosts-of-other-classes", |id| {
            report(id, r#", "classes": {"fabric": "three-classes"}"#)
        }),
        by("hosts-with-unpromised-cpu", unpromised),
        Box::new(silent),
        Box::new(ahead),
        Box::new(|| store(1, "store-full")),
        Box::new(|| store(2, "store-fails")),
        Box::new(expired_token),
        Box::new(|| {
            tokens(
                "[[quota]]\nowner = \"acme\"\ntenants = 1\n",
                "quota-reached",
                "acme",
            );
        }),
        Box::new(streams),
        Box::new(watches),
        Box::new(certificate_ends),
        Box::new(overloaded),
        Box::new(full_at_the_start),
        Box::new(damaged),
        Box::new(overdue),
        Box::new(|| wrong_clock(60, "s ahead of the service's")),
        Box::new(|| wrong_clock(-3_600, "s behind the service's")),
        Box::new(short_of_cpu),
        Box::new(silent_with_cpu),
        Box::new(queries),
        Box::new(issued_token_expires),
    ];
    assert!(faults.len() >= 25, "{}", faults.len());
    let running: Vec<_> = faults.into_iter().map(std::thread::spawn).collect();
    for fault in running {
        fault.join().unwrap();
    }
}

#[test]
fn a_tenant_reads_no_faults() {
    let place = Place::start();
    assert_eq!(place.get(ACME, "/v1/faults").status, 403);
}
