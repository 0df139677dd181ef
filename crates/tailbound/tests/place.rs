//! `tailbound place` and `tailbound host --control` against the real service.

#[path = "place/nova_hook.rs"]
mod nova_hook;
#[path = "place/support.rs"]
mod support;

use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use support::{CommandOutput, PROGRAM, Service, TREE, run, run_anywhere, tailbound, until};
use tailbound_api::{Explanation, HostGuarantees, Page, Problem, Tenant, TopologyState};

const WEB: &str = "create web --owner acme --vms 6 --bandwidth 1Gbit/s --burst 15KB --delay 1ms \
                   --burst-rate=10Gbit/s";

fn json<T: serde::de::DeserializeOwned>(said: CommandOutput) -> T {
    wire(&said.done())
}

/// The API's document in one that a command prints, which has a head, and nanoseconds beside texts.
fn wire<T: serde::de::DeserializeOwned>(printed: &str) -> T {
    let mut document: Value = serde_json::from_str(printed).unwrap();
    let fields = document.as_object_mut().unwrap();
    for head in ["schema", "kind", "version"] {
        assert!(fields.remove(head).is_some(), "{head}: {printed}");
    }
    without_nanoseconds(&mut document);
    serde_json::from_value(document).unwrap()
}

fn without_nanoseconds(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(without_nanoseconds),
        Value::Object(fields) => {
            let stands_beside = |key: &str| {
                let text = key.strip_suffix("_ns").and_then(|text| fields.get(text));
                text.is_some_and(Value::is_string)
            };
            let keys = fields.keys().filter(|key| stands_beside(key));
            for key in keys.cloned().collect::<Vec<_>>() {
                fields.remove(&key);
            }
            fields.values_mut().for_each(without_nanoseconds);
        }
        _ => {}
    }
}

#[test]
fn a_tenant_is_admitted_shown_resized_and_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let service = Service::open(directory.path());
    insta::assert_snapshot!("place-create", service.place(WEB).done());
    insta::assert_snapshot!("place-get", service.place("get web").done());
    insta::assert_snapshot!("place-list", service.place("list").done());
    let bound = service.place("bound acme/web 0 5").done();
    insta::assert_snapshot!("place-bound", bound);
    insta::assert_snapshot!("place-host", service.place("host a-1").done());
    insta::assert_snapshot!("place-guarantees", service.place("guarantees a-2").done());
    let resized = service.place("resize 1 --vms 7").done();
    assert!(
        resized.starts_with("RESIZED  acme/web, id 1: 7 machines"),
        "{resized}"
    );
    assert_eq!(service.place("delete web").done(), "DELETED  id 1\n");
    assert_eq!(service.place("list").done(), "no tenants\n");
    let gone = service.place("get acme/web").failed(2);
    assert!(
        gone.starts_with("tailbound: there is no tenant acme/web"),
        "{gone}"
    );
}

/// Some line of a refusal, typed as it stands, is admitted.
#[test]
fn the_flags_that_a_refusal_names_pass() {
    let directory = tempfile::tempdir().unwrap();
    let service = Service::open(directory.path());
    let big = "create web --owner acme --vms 9 --bandwidth 1Gbit/s --burst 100KB --delay 1ms \
               --burst-rate 10Gbit/s";
    let refused = service.place(big).ended(1);
    insta::assert_snapshot!("place-refused", refused.out);
    assert_eq!(refused.err, "");
    let nearest: Vec<_> = refused
        .out
        .lines()
        .filter_map(|line| Some(&line[line.find("--vms")?..]))
        .collect();
    assert!(!nearest.is_empty());
    for flags in nearest {
        let again = format!("create web --owner acme {flags}");
        service.place(&again).done();
        service.place("delete web").done();
    }
}

#[test]
fn programs_get_the_documents_of_the_wire_and_problems_too() {
    let directory = tempfile::tempdir().unwrap();
    let service = Service::open(directory.path());
    let ask = |line: &str| service.place(&format!("{line} --output json"));
    let tenant: Tenant = json(ask(WEB));
    let page: Page<Tenant> = json(ask("list --owner acme"));
    assert_eq!((page.items, page.next), (vec![tenant], None));
    let twice = ask(WEB);
    let problem: Problem = wire(&twice.out);
    assert_eq!((twice.code, problem.status), (Some(2), 409));
    let too_many = ask("explain --vms 100");
    let explanation: Explanation = wire(&too_many.out);
    assert_eq!((too_many.code, explanation.fits), (Some(1), false));
    let guarantees: HostGuarantees = json(ask("guarantees a-1"));
    assert_eq!(guarantees.vms[0].vm, "acme/web/0");
    let topology: TopologyState = json(ask("topology show"));
    assert_eq!(topology.revision, 1);
}

#[test]
fn hosts_are_drained_left_and_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let service = Service::open(directory.path());
    service.place(WEB).done();
    insta::assert_snapshot!("place-drain", service.place("drain rack1").done());
    let drained = service.place("hosts --state drained").done();
    insta::assert_snapshot!("place-hosts-drained", drained);
    let moved = service.place("relocate web").done();
    assert!(moved.contains("b-1") && !moved.contains("a-1"), "{moved}");
    let again = service.place("relocate web").done();
    assert_eq!(again, moved.replace("RELOCATED", "NOTHING TO MOVE"));
    service.place("drain rack2").done();
    let nowhere = service.place("relocate web").failed(1);
    assert!(
        nowhere.starts_with("tailbound: refused: 6 machines do not fit"),
        "{nowhere}"
    );
    service.place("restore rack2").done();
    let failed = service.place("fail a-1").done();
    assert_eq!(failed, "a-1: 1 host failed, no tenant has machines there\n");
    assert_eq!(
        service.place("restore rack1").done(),
        "rack1: 3 hosts open\n"
    );
    let nowhere = service.place("drain rack9").failed(2);
    assert!(nowhere.contains("rack9"), "{nowhere}");
}

#[test]
fn a_topology_is_compared_shown_and_applied_unless_a_promise_breaks() {
    let directory = tempfile::tempdir().unwrap();
    let service = Service::open(directory.path());
    service.place(WEB).done();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    let more = file("more.toml", &TREE.replace("slots = 4", "slots = 5"));
    insta::assert_snapshot!(
        "place-diff",
        service.place(&format!("topology diff {more}")).done()
    );
    let applied = service.place(&format!("topology apply {more}")).done();
    assert!(
        applied.ends_with("APPLIED  revision 2 is in force\n"),
        "{applied}"
    );
    let shown = service.place("topology show").done();
    let shown = file("shown.toml", &shown);
    let same = service.place(&format!("topology diff {shown}")).done();
    assert_eq!(same, "nothing differs\n");
    let same = service.place(&format!("topology apply {shown}")).done();
    assert_eq!(same, "nothing differs\nrevision 2 stays in force\n");

    let slow = TREE
        .replace("10Gbit/s", "100Mbit/s")
        .replace("300KB", "3KB");
    let slow = file("slow.toml", &slow.replace("62500B", "3KB"));
    for verb in ["diff", "apply"] {
        let broken = service.place(&format!("topology {verb} {slow}")).ended(1);
        assert!(
            broken.out.contains("BREAKS  1 tenant's promise"),
            "{broken:?}"
        );
    }
    let wrong = file("wrong.toml", "frame = \"1538B\"\nhosts = 1\n");
    let error = service.place(&format!("topology apply {wrong}")).failed(2);
    assert!(
        error.contains("wrong.toml:2:1: unknown key `hosts`"),
        "{error}"
    );
    let broken = file("broken.json", "{");
    let error = service.place(&format!("topology apply {broken}")).failed(2);
    assert!(error.contains("broken.json:1:1: EOF"), "{error}");
}

/// Makes a token; returns the file that holds its secret and the lines for the
/// service's file.
fn token(directory: &Path, name: &str, flags: &str) -> (PathBuf, String) {
    let said = run(directory, &format!("place token {flags}")).ended(0);
    let secret = said.err.lines().last().unwrap();
    assert!(!said.out.contains(secret));
    let path = directory.join(name);
    std::fs::write(&path, secret).unwrap();
    (path, said.out)
}

#[test]
fn a_token_permits_only_the_operations_of_its_role() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let (operator, first) = token(directory, "operator", "--role operator");
    let (acme, second) = token(directory, "acme", "--role tenant --owner acme");
    let (other, third) = token(directory, "other", "--role tenant --owner other");
    let (host, fourth) = token(directory, "host", "--role host --host a-1");
    let tokens = directory.join("tokens.toml");
    std::fs::write(tokens, [first, second, third, fourth].concat()).unwrap();
    let service = Service::start(directory, "127.0.0.1:0", "--tokens tokens.toml");

    let refused = service.place("list").failed(2);
    assert!(
        refused.contains("--token-file FILE, or TAILBOUND_TOKEN_FILE"),
        "{refused}"
    );
    service.place_as(&acme, "create web --vms 2").done();
    let listed = service.place_as(&operator, "list").done();
    assert!(listed.contains("acme/web"), "{listed}");
    assert_eq!(service.place_as(&other, "list").done(), "no tenants\n");
    service.place_as(&other, "get 1").failed(2);
    service.place_as(&other, "delete 1").failed(2);
    service.place_as(&acme, "drain a-1").failed(2);
    service.place_as(&host, "guarantees a-1").done();
    service.place_as(&host, "guarantees a-2").failed(2);
    let unknown = directory.join("unknown");
    std::fs::write(&unknown, "0000").unwrap();
    service.place_as(&unknown, "status").failed(2);
}

#[test]
fn an_issued_token_permits_its_role_until_revoked() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let (operator, entry) = token(directory, "operator", "--role operator");
    std::fs::write(directory.join("tokens.toml"), entry).unwrap();
    let service = Service::start(directory, "127.0.0.1:0", "--tokens tokens.toml");
    let create = "token create ci --role tenant --owner acme --valid-for 1h";
    let secret = service.place_as(&operator, create).done();
    assert_eq!(secret.len(), 65, "{secret}");
    let ci = directory.join("ci");
    std::fs::write(&ci, secret).unwrap();
    service.place_as(&ci, "create web --vms 2").done();
    service.place_as(&ci, "create acme/other --vms 1").done();
    let listed = service.place_as(&ci, "token list").done();
    assert!(listed.contains("tenant acme"), "{listed}");
    let refused = service.place_as(&ci, "token create up --role operator");
    let refused = refused.failed(2);
    assert!(
        refused.contains("role tenant and this owner only"),
        "{refused}"
    );
    let again = service.place_as(&operator, create).failed(2);
    assert!(again.contains("there is a token"), "{again}");
    let revoked = service.place_as(&operator, "token revoke ci").done();
    assert_eq!(revoked, "REVOKED  token ci\n");
    service.place_as(&ci, "list").failed(2);
    let none = service.place_as(&operator, "token list").done();
    assert_eq!(none, "no tokens were issued\n");
}

#[test]
fn connection_errors_distinguish_absent_and_wrong_services() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let ask = |url: &str| {
        let line = format!("place status --patience 0s --url {url}");
        run_anywhere(&line).failed(2)
    };
    let away = ask(&format!("http://{address}"));
    assert!(
        away.starts_with("tailbound: cannot reach the placement service"),
        "{away}"
    );
    assert!(
        away.contains("is it running (tailbound place serve)"),
        "{away}"
    );
    let no_url = ask("placement:7070");
    assert!(
        no_url.contains("must begin with http:// or https://"),
        "{no_url}"
    );
    let directory = tempfile::tempdir().unwrap();
    let service = Service::open(directory.path());
    let below = ask(&format!("{}other", service.url));
    assert!(
        below.starts_with("tailbound: there is nothing at /other/v1/status"),
        "{below}"
    );
    let tls = ask(&service.url.replace("http:", "https:"));
    assert!(tls.contains("is it http://?"), "{tls}");
    for line in ["list --what", "create", "resize web", "get A/B/C"] {
        service.place(line).failed(64);
    }
}

/// The test does not depend on the clock: a silent service ends after one minute.
#[test]
fn a_terminal_shows_that_the_service_does_not_answer() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let command = format!("exec {PROGRAM} place status --url {url} --patience 20s");
    let mut terminal = std::process::Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .env("TERM", "xterm")
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = Vec::new();
    let wanted = format!(
        "waiting for {url} to answer: it may take a minute; if it is away, it is tried again for 20s"
    );
    let mut bytes = BufReader::new(terminal.stdout.take().unwrap()).bytes();
    while !String::from_utf8_lossy(&said).contains(&wanted) {
        match bytes.next() {
            Some(byte) => said.push(byte.unwrap()),
            None => panic!("{}", String::from_utf8_lossy(&said)),
        }
    }
    terminal.kill().unwrap();
    terminal.wait().unwrap();
}

#[test]
fn an_audit_reads_the_store_once_the_service_has_left_it() {
    let directory = tempfile::tempdir().unwrap();
    let audit = || run(directory.path(), "place audit --store sqlite:place.db");
    let missing = audit().failed(2);
    assert!(missing.contains("there is no file"), "{missing}");
    let service = Service::open(directory.path());
    service.place(WEB).done();
    let busy = audit().failed(2);
    assert!(busy.contains("in use"), "{busy}");
    drop(service);
    let holds = audit().done();
    assert!(
        holds.starts_with("HOLDS  1 tenant, 6 machines, "),
        "{holds}"
    );
}

/// A host daemon, and where its metrics are.
struct Daemon {
    child: Child,
    metrics: String,
}

impl Daemon {
    fn start(directory: &Path, url: &str) -> Self {
        let config = directory.join("host.toml");
        let guest = "[[guest]]\nname = \"g1\"\nmac = \"02:00:00:00:00:01\"\nvm = \"acme/web/0\"\n\
                     anti_spoofing = false\nport = { kind = \"pcap\", write = \"g1.pcap\" }\n";
        let uplink = "[uplink]\nport = { kind = \"pcap\", write = \"up.pcap\" }\n\
                      pacer = { link = \"10Gbit/s\" }\n";
        let all = format!("metrics = \"127.0.0.1:0\"\n{uplink}{guest}");
        std::fs::write(&config, all).unwrap();
        let mut child = tailbound()
            .args(["host", "--config", "host.toml", "--control", url])
            .args(["--control-host", "a-1", "--control-state", "kept.json"])
            .current_dir(directory)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut metrics = None;
        let mut line = String::new();
        while metrics.is_none() && log.read_line(&mut line).unwrap() > 0 {
            metrics = line
                .split("metrics=")
                .nth(1)
                .map(|rest| rest.trim().to_owned());
            line.clear();
        }
        // So that it never waits for somebody to read its log.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self {
            child,
            metrics: metrics.expect("the daemon says where its metrics are"),
        }
    }

    fn metric(&self, sample: &str) -> Option<f64> {
        let mut stream = TcpStream::connect(&self.metrics).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(sample))?;
        line.trim().parse().ok()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_host_keeps_its_guarantees_while_the_service_is_down() {
    const CONNECTED: &str = "tailbound_control_connected{}";
    const BANDWIDTH: &str =
        "tailbound_guarantee_bandwidth_bits_per_second{guest=\"g1\",vm=\"acme/web/0\"}";
    let directory = tempfile::tempdir().unwrap();
    let service = Service::open(directory.path());
    let daemon = Daemon::start(directory.path(), &service.url);
    until("the service", || daemon.metric(CONNECTED) == Some(1.0));
    assert_eq!(daemon.metric(BANDWIDTH), None);
    service.place(WEB).done();
    until("the guarantee", || daemon.metric(BANDWIDTH) == Some(1e9));

    let listen = service.url.replace("http://", "").replace('/', "");
    drop(service);
    until("the loss", || daemon.metric(CONNECTED) == Some(0.0));
    assert_eq!(daemon.metric(BANDWIDTH), Some(1e9));
    let service = Service::start(directory.path(), &listen, "--insecure-loopback");
    until("the return", || daemon.metric(CONNECTED) == Some(1.0));
    assert_eq!(daemon.metric(BANDWIDTH), Some(1e9));
    service.place("delete web").done();
    until("the end of the promise", || {
        daemon.metric(BANDWIDTH).is_none()
    });
}

/// A limit of the service comes into force while the guest runs, and ends so.
#[test]
fn a_host_enforces_rate_limits_from_the_service() {
    const LIMIT: &str = "tailbound_limit_bits_per_second{guest=\"g1\"}";
    let directory = tempfile::tempdir().unwrap();
    let service = Service::open(directory.path());
    let daemon = Daemon::start(directory.path(), &service.url);
    let create = "create web --owner acme --vms 1 --limit-out 4Mbit/s --limit-kind smooth-window";
    let created = service.place(create).done();
    assert!(
        created.starts_with(
            "ADMITTED  acme/web, id 1: 1 machine, best effort, at most out 4Mbit/s (smooth-window)\n"
        ),
        "{created}"
    );
    until("the limit", || daemon.metric(LIMIT) == Some(4e6));
    let window = "tailbound_limit_window_least_seconds{guest=\"g1\"}";
    assert_eq!(daemon.metric(window), Some(0.0));
    let limit = |flags: &str| service.place(&format!("limit web {flags}"));
    let other = limit("--limit-out 8Mbit/s --limit-in 20Mbit/s").done();
    let expected = "LIMITED  acme/web, id 1: 1 machine, best effort, at most out 8Mbit/s (bucket), in 20Mbit/s";
    assert!(other.starts_with(expected), "{other}");
    until("the other limit", || daemon.metric(LIMIT) == Some(8e6));
    assert_eq!(daemon.metric(window), None);
    let guarantees = service.place("guarantees a-1").done();
    assert!(
        guarantees.contains("out 8Mbit/s (bucket), in 20Mbit/s"),
        "{guarantees}"
    );
    let refused = limit("--limit-out 100bit/s").failed(64);
    assert!(
        refused.contains("below one full frame a second"),
        "{refused}"
    );
    for wrong in ["", "--none --limit-in 1Mbit/s", "--limit-kind bucket"] {
        limit(wrong).failed(64);
    }
    let none = limit("--none").done();
    let expected = "UNLIMITED  acme/web, id 1: 1 machine, best effort\n";
    assert!(none.starts_with(expected), "{none}");
    until("the end of the limit", || daemon.metric(LIMIT).is_none());
}

#[test]
fn the_help_is_stable() {
    for (name, line) in [
        ("place-help", "place --help"),
        ("place-create-help", "place create -h"),
        ("host-help", "host --help"),
    ] {
        insta::assert_snapshot!(name, run_anywhere(line).done());
    }
}
