//! Injected faults: each is named alone, by the list of faults and by the metric of the alerts.

use crate::api_running::{Moody, certificate_until, guaranteed, report, say, stream};
use crate::api_support::{ACME, OPERATOR, Place, Setup, TREE, agent, sha256, tokens_file};
use std::time::{Duration, Instant};
use tailbound_control::ledger::{Call, Command};
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

/// Waits until this is the only fault, and the metric counts it alone.
fn is_alone(place: &Place, kind: &str, names: &[&str]) {
    let wanted = [(
        kind.to_owned(),
        names.iter().map(|it| (*it).to_owned()).collect(),
    )];
    let begin = Instant::now();
    while found(place) != wanted {
        assert!(begin.elapsed() < FOUND, "{kind}: {:?}", found(place));
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
    let begin = Instant::now();
    while !found(&place).is_empty() {
        assert!(begin.elapsed() < FOUND, "{:?}", found(&place));
        std::thread::sleep(Duration::from_millis(20));
    }
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
    let cpu = r#", "cpu": {"cpus": 2, "threads": 8, "largest": 500, "reservable": 500, "overrun": "0ns",
        "interrupts": "100us", "steal": "0ns", "share": 0, "unpromised": {"threads": 1, "cpu": 100}},
        "unpromised": [{"guest": "web", "what": "0.1 CPU"}]"#;
    report(id, cpu)
}

fn silent() {
    let place = Place::start();
    let id = guaranteed(&place, "web", 1);
    say(&place, "a-1", &report(id, ""));
    let hosts = vec![("a-1".to_owned(), 1_700_000_000)];
    let call = Call::of_service(Command::Silence { hosts });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(place.service.call(call)).unwrap();
    is_alone(&place, "hosts-silent", &["a-1"]);
    let list = place.get(OPERATOR, "/v1/faults").json();
    assert_eq!(
        list["faults"][0]["since"], 1_700_000_000,
        "the silence has a begin"
    );
}

fn store(mood: u8, kind: &str) {
    let store = Moody::default();
    let moods = std::sync::Arc::clone(&store.mood);
    let place = Place::with(Setup {
        store: Some(Box::new(store)),
        ..Setup::default()
    });
    place.admit("web", 1);
    moods.store(mood, std::sync::atomic::Ordering::Relaxed);
    let body = r#"{"name": "db", "vms": 1}"#;
    assert!(place.post(ACME, "/v1/tenants", body).status >= 500);
    is_alone(&place, kind, &["store"]);
    // It ends with the first commit that is kept.
    moods.store(0, std::sync::atomic::Ordering::Relaxed);
    place.admit("db", 1);
    let begin = Instant::now();
    while !found(&place).is_empty() {
        assert!(begin.elapsed() < FOUND, "{:?}", found(&place));
        std::thread::sleep(Duration::from_millis(20));
    }
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
        .map(|_| crate::api_running::stream_at(&place, "/v1/changes/hosts"))
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
    for name in ["web", "db"] {
        let body = format!(
            r#"{{"name": "{name}", "vms": 8, "guarantee": {{"bandwidth": "1Gbit/s", "burst": "15KB"}}}}"#
        );
        assert_eq!(wide.post(ACME, "/v1/tenants", &body).status, 201);
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
    // Its hosts have not reported either.
    while kinds() != ["hosts-unheard", "ports-overloaded"] {
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
    ];
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
