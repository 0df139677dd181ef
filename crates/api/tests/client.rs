//! The client against servers that drop, cut, stall and talk nonsense.

mod support;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{Server, Step, answer, read, stream, url_without_listener, with_connections};
use tailbound_api::client::{Client, ClientError, Settings, SettingsError, TenantFilter};
use tailbound_api::{Code, NewTenant, Tenant, VmLimit};
use tailbound_classes::Classes;
use tailbound_placement::{Spec, TenantId};

const TENANT: &str = r#"{"id":7,"owner":"acme","name":"web","request":{"vms":2,"cpu":0,
    "memory":"0B"},"runs":[{"first":0,"count":2,"host":"a-1"}]}"#;
const SILENCE: Duration = Duration::from_secs(20);

fn settings(url: &str) -> Settings {
    Settings {
        patience: Duration::from_secs(3),
        timeout: Duration::from_secs(2),
        ..Settings::new(url)
    }
}

fn client(url: &str) -> Client {
    Client::new(&settings(url)).unwrap()
}

fn web() -> NewTenant {
    NewTenant {
        name: "web".into(),
        owner: Some("acme".into()),
        vms: 2,
        guarantee: None,
        cpu: 0,
        memory: tailbound_units::Bytes::ZERO,
        domains: None,
        cpu_reservation: None,
        message: None,
        limit: VmLimit::default(),
        placement: Vec::new(),
    }
}

fn problem(code: &str, status: u16) -> Vec<u8> {
    let body = format!(r#"{{"code":"{code}","status":{status},"detail":"because"}}"#);
    answer(status, &body)
}

#[test]
fn a_change_is_tried_again_with_its_first_key_until_it_is_answered_whole() {
    let half = answer(201, TENANT)[..120].to_vec();
    let server = Server::start(vec![
        Step::Drop,
        Step::Raw(problem("unavailable", 503)),
        Step::Raw(half),
        Step::Raw(answer(201, TENANT)),
    ]);
    let tenant: Tenant = client(&server.url).create(&web()).unwrap();
    assert_eq!(tenant.id, TenantId(7));
    let asked: Vec<_> = server.asked.try_iter().collect();
    assert_eq!(asked.len(), 4);
    let key = asked[0].header("idempotency-key").unwrap();
    assert_eq!(key.len(), 32);
    for again in &asked {
        assert_eq!(again.line, "POST /v1/tenants HTTP/1.1");
        assert_eq!(again.header("idempotency-key"), Some(key));
        assert_eq!(again.body, asked[0].body);
        assert_eq!(again.header("authorization"), None);
    }
}

#[test]
fn each_change_has_its_own_idempotency_key_and_reads_none() {
    let steps = [TENANT; 3].map(|body| Step::Raw(answer(200, body)));
    let server = Server::start(steps.to_vec());
    let client = client(&server.url);
    client.create(&web()).unwrap();
    client.create(&web()).unwrap();
    client.tenant(TenantId(7)).unwrap();
    let asked: Vec<_> = server.asked.try_iter().collect();
    let keys: Vec<_> = asked
        .iter()
        .map(|asked| asked.header("idempotency-key"))
        .collect();
    assert_ne!(keys[0], keys[1]);
    assert_eq!(keys[2], None);
}

#[test]
fn a_refusal_is_not_tried_again_and_keeps_its_kind() {
    let server = Server::start(vec![Step::Raw(problem("refused", 409))]);
    let error = client(&server.url).create(&web()).unwrap_err();
    assert_eq!(error.code(), Some(Code::Refused));
    assert_eq!(error.to_string(), "because");
    assert_eq!(server.asked.try_iter().count(), 1);
}

#[test]
fn a_service_that_stays_away_is_given_up_within_the_patience() {
    let start = Instant::now();
    let url = url_without_listener();
    let error = client(&url).status().unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{text}");
    let head = format!("cannot reach the placement service at {url}: ");
    assert!(text.starts_with(&head), "{text}");
    assert!(start.elapsed() < Duration::from_secs(6));
}

#[test]
fn a_service_without_a_leader_returns_unavailable() {
    let steps = vec![Step::Raw(problem("unavailable", 503)); 20];
    let server = Server::start(steps);
    let error = client(&server.url).delete(TenantId(1)).unwrap_err();
    assert_eq!(error.code(), Some(Code::Unavailable));
    assert!((2..20).contains(&server.asked.try_iter().count()));
}

#[test]
fn an_answer_that_does_not_come_is_waited_for_a_bounded_time() {
    let server = Server::start(vec![Step::Hang(b"HTTP/1.1 200 OK\r\n".to_vec()); 3]);
    let mut settings = settings(&server.url);
    settings.timeout = Duration::from_millis(200);
    settings.patience = Duration::ZERO;
    let start = Instant::now();
    let error = Client::new(&settings).unwrap().status().unwrap_err();
    assert!(
        error.to_string().contains("no answer within 200ms"),
        "{error}"
    );
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_wrong_service_is_distinguished_from_an_absent_one() {
    let moved = b"HTTP/1.1 301 Moved\r\nlocation: https://x/\r\ncontent-length: 0\r\n\r\n".to_vec();
    for (step, what) in [
        (
            Step::Raw(answer(200, "<html>hello</html>")),
            "<html>hello</html>",
        ),
        (Step::Raw(answer(404, "nope")), "HTTP status 404, \"nope\""),
        (Step::Raw(moved), "it redirects to \"https://x/\""),
        (
            Step::Raw(b"SSH-2.0-x\r\n\r\n".to_vec()),
            "it does not speak HTTP",
        ),
        (
            Step::Raw(answer(418, r#"{"code":"new","status":418}"#)),
            "418",
        ),
    ] {
        let server = Server::start(vec![step.clone()]);
        let error = client(&server.url).status().unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error, ClientError::Unexpected { .. }),
            "{step:?}: {text}"
        );
        assert!(text.contains(what), "{text}");
    }
}

fn both(one: &str, other: &str) -> String {
    format!("{one}, {other}/")
}

#[test]
fn the_next_replica_is_asked_when_one_is_away_and_first_from_then_on() {
    let second = Server::start(vec![Step::Raw(answer(200, TENANT)); 2]);
    let first = Server::start(vec![Step::Drop, Step::Raw(answer(200, TENANT))]);
    let client = client(&both(&first.url, &second.url));
    client.tenant(TenantId(7)).unwrap();
    client.clone().tenant(TenantId(7)).unwrap();
    assert_eq!(first.asked.try_iter().count(), 1);
    assert_eq!(second.asked.try_iter().count(), 2);
}

#[test]
fn every_replica_is_tried_once_even_without_patience() {
    let second = Server::start(vec![Step::Raw(answer(200, TENANT))]);
    let hangs = Server::start(vec![Step::Hang(Vec::new())]);
    let mut settings = settings(&both(&hangs.url, &second.url));
    settings.timeout = Duration::from_millis(200);
    settings.patience = Duration::ZERO;
    let client = Client::new(&settings).unwrap();
    assert!(client.tenant(TenantId(7)).is_ok());
}

#[test]
fn a_write_whose_answer_is_lost_has_the_same_key_at_the_next_replica() {
    for lost in [
        Step::Drop,
        Step::Raw(answer(201, TENANT)[..120].to_vec()),
        Step::Raw(problem("unavailable", 503)),
        Step::Raw(answer(502, "a proxy's words")),
    ] {
        let first = Server::start(vec![lost]);
        let second = Server::start(vec![Step::Raw(answer(201, TENANT))]);
        let client = client(&both(&first.url, &second.url));
        client.create(&web()).unwrap();
        let [one, other] = [first, second].map(|server| server.asked.try_recv().unwrap());
        assert!(one.header("idempotency-key").is_some());
        assert_eq!(
            one.header("idempotency-key"),
            other.header("idempotency-key")
        );
        assert_eq!((&one.line, &one.body), (&other.line, &other.body));
    }
}

#[test]
fn a_refusal_of_one_replica_is_that_of_all() {
    let first = Server::start(vec![Step::Raw(problem("refused", 409))]);
    let second = Server::start(vec![Step::Raw(answer(201, TENANT))]);
    let error = client(&both(&first.url, &second.url)).create(&web());
    assert_eq!(error.unwrap_err().code(), Some(Code::Refused));
    assert_eq!(second.asked.try_iter().count(), 0);
}

#[test]
fn all_unreachable_replicas_are_named_unless_one_answers() {
    let mut settings = settings(&both(&url_without_listener(), &url_without_listener()));
    settings.patience = Duration::ZERO;
    let error = Client::new(&settings).unwrap().status().unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ClientError::Unreachable(all) if all.len() == 2));
    for url in settings.urls() {
        let url = url.trim_end_matches('/');
        assert!(text.contains(&format!("at {url}: ")), "{text}");
    }
    let leaderless = Server::start(vec![Step::Raw(problem("unavailable", 503))]);
    settings.url = format!(
        "{},{},{}",
        url_without_listener(),
        leaderless.url,
        url_without_listener()
    );
    let error = Client::new(&settings).unwrap().status().unwrap_err();
    assert_eq!(error.code(), Some(Code::Unavailable));
}

#[test]
fn a_stream_that_breaks_goes_on_at_the_next_replica() {
    let first = Server::start(vec![
        Step::Raw(stream(&guarantees("h", 1))),
        Step::Raw(answer(200, TENANT)),
    ]);
    let second = Server::start(vec![Step::Raw(stream(&guarantees("h", 2)))]);
    let client = client(&both(&first.url, &second.url));
    for revision in [1, 2] {
        let mut lines = client.follow("h", SILENCE).unwrap();
        assert_eq!(lines.next().unwrap().unwrap().revision, revision);
        assert!(lines.next().is_none());
        assert!(lines.next().is_none());
    }
    // The first is the next again.
    client.tenant(TenantId(7)).unwrap();
    assert_eq!(first.asked.try_iter().count(), 2);
}

#[test]
fn names_are_encoded_and_a_revision_becomes_a_condition() {
    let diff = r#"{"revision":4,"added":[],"removed":[],"changed":[],"broken":[]}"#;
    let page = r#"{"items":[]}"#;
    let server = Server::start(vec![
        Step::Raw(answer(404, "{}")),
        Step::Raw(answer(200, page)),
        Step::Raw(answer(200, diff)),
    ]);
    let client = client(&format!("{}/below/", server.url));
    let _ = client.host("a b/../c?d=é");
    let filter = TenantFilter {
        owner: Some("a&b".into()),
        name: None,
        state: None,
    };
    client.tenants(&filter, Some("17")).unwrap();
    let spec = Spec {
        frame: tailbound_units::Bytes(1538),
        packet: None,
        classes: Classes::default().into(),
        delay_classes: Vec::new(),
        groups: Vec::new(),
        hosts: Vec::new(),
    };
    client.apply(&spec, Some(3)).unwrap();
    let asked: Vec<_> = server.asked.try_iter().collect();
    let line = "GET /below/v1/hosts/a%20b%2F..%2Fc%3Fd%3D%C3%A9 HTTP/1.1";
    assert_eq!(asked[0].line, line);
    let line = "GET /below/v1/tenants?limit=500&after=17&owner=a%26b HTTP/1.1";
    assert_eq!(asked[1].line, line);
    assert_eq!(asked[2].header("if-match"), Some("\"3\""));
}

fn guarantees(host: &str, revision: u64) -> String {
    format!("{{\"host\":{host:?},\"state\":\"open\",\"revision\":{revision},\"vms\":[]}}\n")
}

#[test]
fn a_stream_gives_line_after_line_and_ends_with_the_connection() {
    let body = guarantees("h", 1) + &guarantees("h", 2);
    let server = Server::start(vec![Step::Raw(stream(&body))]);
    let lines = client(&server.url).follow("h", SILENCE).unwrap();
    let revisions: Vec<_> = lines.map(|line| line.unwrap().revision).collect();
    assert_eq!(revisions, [1, 2]);
    let asked = server.asked.recv().unwrap();
    assert_eq!(asked.line, "GET /v1/hosts/h/guarantees/stream HTTP/1.1");
}

#[test]
fn a_truncated_or_invalid_guarantee_stream_ends_with_an_error() {
    for (body, what) in [
        (guarantees("h", 1) + "{\"host\"", "ended within a line"),
        (
            guarantees("h", 1) + &guarantees("x", 2),
            "of \"x\", not of \"h\"",
        ),
        (guarantees("h", 1) + "{}\n", "missing field"),
        (guarantees("h", 1) + "\u{0}\u{1}\n", "a line that is none"),
    ] {
        let server = Server::start(vec![Step::Raw(stream(&body))]);
        let mut lines = client(&server.url).follow("h", SILENCE).unwrap();
        assert_eq!(lines.next().unwrap().unwrap().revision, 1);
        let error = lines.next().unwrap().unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        assert!(lines.next().is_none());
    }
}

#[test]
fn a_stream_that_falls_silent_or_only_trickles_is_given_up() {
    let trickle = stream(&guarantees("h", 1));
    for step in [
        Step::Hang(stream("")),
        Step::Trickle(trickle, Duration::from_millis(60)),
    ] {
        let server = Server::start(vec![step]);
        let mut lines = client(&server.url)
            .follow("h", Duration::from_millis(300))
            .unwrap();
        let error = lines.next().unwrap().unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, ClientError::Unreachable { .. }), "{text}");
        assert!(text.contains("300ms"), "{text}");
    }
}

#[test]
fn a_stream_ends_at_once_when_its_client_is_shut_down() {
    let server = Server::start(vec![Step::Hang(stream(&guarantees("h", 1)))]);
    let client = client(&server.url);
    let mut lines = client.follow("h", SILENCE).unwrap();
    lines.next().unwrap().unwrap();
    let start = Instant::now();
    let waiting = std::thread::spawn(move || lines.next().is_none_or(|line| line.is_err()));
    client.shutdown();
    assert!(waiting.join().unwrap());
    assert!(start.elapsed() < SILENCE / 2);
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

#[test]
fn a_token_is_sent_without_its_white_space_and_never_in_the_clear_to_others() {
    let files = Files::new();
    let token = files.write("token", " secret\n");
    let server = Server::start(vec![Step::Raw(answer(200, TENANT))]);
    let mut settings = settings(&server.url);
    settings.token_file = Some(token);
    let client = Client::new(&settings).unwrap();
    client.tenant(TenantId(7)).unwrap();
    let asked = server.asked.recv().unwrap();
    assert_eq!(asked.header("authorization"), Some("Bearer secret"));

    for url in [
        "http://10.0.0.1:7070",
        "http://localhost.evil.example",
        "http://[fd00::1]",
        "https://a.example,http://10.0.0.1:7070",
    ] {
        settings.url = url.into();
        let error = Client::new(&settings).unwrap_err();
        assert!(matches!(error, SettingsError::PlainToken { .. }), "{url}");
    }
    for url in [
        "http://127.9.9.9:1",
        "http://[::1]:1",
        "http://localhost",
        "https://a.example",
        "https://a.example, https://b.example",
    ] {
        settings.url = url.into();
        assert!(Client::new(&settings).is_ok(), "{url}");
    }
}

#[test]
fn unusable_client_settings_are_named() {
    let files = Files::new();
    let empty = files.write("empty", "\n");
    let two = files.write("two", "one two");
    for (url, token, ca, what) in [
        (
            "host:7070",
            None,
            None,
            "must begin with http:// or https://",
        ),
        ("", None, None, "it is no URL"),
        ("http://x,", None, None, "it is no URL"),
        (
            "http://x,y:7070",
            None,
            None,
            "\"y:7070\" is no address of a placement service",
        ),
        ("ftp://x", None, None, "must begin with http:// or https://"),
        ("http://x?y=1", None, None, "it has a query"),
        ("https://a:b@x", None, None, "belongs in a file"),
        (
            "https://x",
            Some(files.0.path().join("no")),
            None,
            "cannot read the token",
        ),
        ("https://x", Some(empty.clone()), None, "no token"),
        ("https://x", Some(two), None, "no token"),
        ("https://x", None, Some(empty), "no certificate"),
    ] {
        let mut settings = settings(url);
        settings.token_file = token;
        settings.ca_file = ca;
        let error = Client::new(&settings).unwrap_err().to_string();
        assert!(error.contains(what), "{url}: {error}");
    }
}

/// A TLS service for this computer, and its certificate.
fn tls() -> (u16, String) {
    tls_with(&["localhost", "127.0.0.1"], |_| {})
}

/// A TLS service with a certificate for these names, and that certificate.
fn tls_with(names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> (u16, String) {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    change(&mut params);
    let signing_key = KeyPair::generate().unwrap();
    let cert = params.self_signed(&signing_key).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let port = with_connections(move |stream| {
        let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut tls = rustls::StreamOwned::new(connection, stream);
        let asked = read(&mut tls);
        if asked.line.starts_with("GET ") {
            let _ = tls.write_all(&answer(200, TENANT));
            tls.conn.send_close_notify();
            let _ = tls.flush();
        }
    });
    (port, cert.pem())
}

#[test]
fn tls_is_accepted_only_from_servers_of_the_given_ca() {
    let files = Files::new();
    let (port, pem) = tls();
    let (_, other) = tls();
    let ask = |url: String, ca: Option<PathBuf>| {
        let mut settings = settings(&url);
        settings.ca_file = ca;
        Client::new(&settings).unwrap().tenant(TenantId(7))
    };
    let https = format!("https://127.0.0.1:{port}");
    let right = files.write("right.pem", &pem);
    assert!(ask(https.clone(), Some(right.clone())).is_ok());
    let start = Instant::now();
    for ca in [None, Some(files.write("other.pem", &other))] {
        let error = ask(https.clone(), ca).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, ClientError::Tls { .. }), "{text}");
        assert!(text.contains("pass that CA's certificate"), "{text}");
    }
    // Not tried again: it would not help.
    assert!(start.elapsed() < Duration::from_secs(2));

    let error = ask(format!("http://127.0.0.1:{port}"), None).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ClientError::Unexpected { .. }), "{text}");
    assert!(text.contains("is it https://?"), "{text}");

    let plain = with_connections(|mut stream| {
        let _ = stream.write_all(&answer(400, "no HTTP"));
    });
    let url = format!("https://127.0.0.1:{plain}");
    let error = ask(url, Some(right)).unwrap_err().to_string();
    assert!(error.contains("is it http://?"), "{error}");
}

#[test]
fn a_certificate_that_cannot_be_used_is_named_with_its_remedy() {
    let files = Files::new();
    let local = ["localhost", "127.0.0.1"];
    let authority = tls_with(&local, |params| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    });
    let elsewhere = tls_with(&["place.example"], |_| {});
    let expired = tls_with(&local, |params| {
        params.not_after = date_time_ymd(2001, 1, 1);
    });
    let early = tls_with(&local, |params| {
        params.not_before = date_time_ymd(4000, 1, 1);
    });
    for ((port, pem), remedy) in [
        (
            authority,
            "presents the certificate of a certificate authority itself; make a server certificate",
        ),
        (elsewhere, "; use an address that is in its certificate"),
        (expired, "; make a new one, and send SIGHUP to the service"),
        (early, "; set the clock of this computer"),
    ] {
        let mut settings = settings(&format!("https://127.0.0.1:{port}"));
        settings.ca_file = Some(files.write("ca.pem", &pem));
        let error = Client::new(&settings)
            .unwrap()
            .tenant(TenantId(7))
            .unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, ClientError::Tls { .. }), "{text}");
        assert!(text.contains(remedy), "{text}");
        assert!(!text.contains("CaUsedAsEndEntity"), "{text}");
    }
}
