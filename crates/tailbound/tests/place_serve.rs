//! `tailbound place serve`: how it starts, what it refuses to start with, and how
//! it ends.

#[path = "place_serve/backups.rs"]
mod backups;
mod program;

use program::{CommandOutput, Folder, PROGRAM, tailbound, words};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use tailbound_otlp::testing::{attribute, collector, number};

const TREE: &str = r#"
    frame = "1538B"
    [[host]]
    name = "a"
    count = 2
    slots = 4
    uplink = { rate = "10Gbit/s", buffer = "300KB" }
"#;

/// A directory with a tree, a file of tokens, and nothing else.
fn dir() -> Folder {
    let dir = Folder::new();
    dir.write("tree.toml", TREE);
    let hash = "a".repeat(64);
    dir.write(
        "tokens.toml",
        format!("[[token]]\nname = \"ops\"\nrole = \"operator\"\nsha256 = \"{hash}\"\n"),
    );
    dir
}

fn command(dir: &Folder, flags: &str) -> Command {
    let mut command = tailbound();
    command
        .args(["place", "serve"])
        .args(words(flags))
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if !flags.contains("--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    command
}

/// Flags of a service without authentication, and of a new one.
const OPEN: &str = "--insecure-loopback";
const NEW: &str = "--insecure-loopback --topology tree.toml";

/// A running service, and where it is.
struct Running {
    child: Child,
    address: String,
}

fn start(dir: &Folder, flags: &str) -> Running {
    Running::of(command(dir, flags).spawn().unwrap())
}

impl Running {
    /// Reads the address of a service that starts.
    fn of(mut child: Child) -> Self {
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line
            .trim()
            .strip_prefix("serving on http://")
            .and_then(|rest| rest.strip_suffix('/'));
        Self {
            address: address.unwrap_or_else(|| panic!("{line:?}")).to_owned(),
            child,
        }
    }

    fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Ends it as a supervisor does.
    fn end(self) -> CommandOutput {
        self.signal(rustix::process::Signal::TERM);
        CommandOutput::new(self.child.wait_with_output().unwrap())
    }
}

/// Checks that the service refuses to start: exit code 2 and one line with this reason.
fn refused(dir: &Folder, flags: &str, why: &str) {
    refused_with(2, dir, flags, why);
}

fn refused_with(code: i32, dir: &Folder, flags: &str, why: &str) {
    let output = command(dir, flags).output().unwrap();
    let output = CommandOutput::new(output).ended(code);
    let text = output.err;
    assert!(text.contains(why), "{why:?} is not in {text:?}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert_eq!(output.out, "");
}

#[test]
fn the_store_survives_a_restart_of_the_service() {
    let dir = dir();
    let first = start(&dir, NEW);
    assert!(first.ask("GET /readyz").starts_with("HTTP/1.1 200 "));
    let drained = first.ask("POST /v1/hosts/a-1/drain");
    assert!(drained.contains("\"drained\""), "{drained}");
    first.end().done();
    assert!(dir.join("tailbound-place.db").exists());

    let again = start(&dir, OPEN);
    let host = again.ask("GET /v1/hosts/a-1");
    assert!(host.contains("\"drained\""), "{host}");
    again.end().done();

    let other = TREE.replace("slots = 4", "slots = 8");
    dir.write("other.toml", other);
    refused(
        &dir,
        &format!("{OPEN} --topology other.toml"),
        "the store has another topology, at revision 1",
    );
    refused(
        &dir,
        &format!("{OPEN} --policy oktopus"),
        "the store admits by the rules of silo, not oktopus",
    );
}

#[test]
fn the_service_refuses_to_start_without_safe_authentication() {
    let dir = dir();
    let tree = "--topology tree.toml";
    refused_with(64, &dir, tree, "authentication is missing");
    for (flags, why) in [
        (
            "--insecure-loopback --listen 0.0.0.0:0",
            "without tokens every client would have all rights",
        ),
        (
            "--tokens tokens.toml --listen 0.0.0.0:0",
            "plain HTTP would expose the tokens",
        ),
        ("--tokens none.toml", "none.toml: cannot be read: "),
        (
            "--tls-cert tree.toml --tls-key tree.toml --tokens tokens.toml",
            "a certificate from tree.toml",
        ),
    ] {
        refused(&dir, &format!("{tree} {flags}"), why);
    }
    assert!(!dir.join("tailbound-place.db").exists());
}

#[test]
fn unusable_files_and_addresses_are_named() {
    let dir = dir();
    refused(&dir, OPEN, "the store is new");
    refused(&dir, &format!("{OPEN} --topology none.toml"), "none.toml: ");
    dir.write("bad.toml", "frame = \"1538B\"\nhosts = 1\n");
    refused(
        &dir,
        &format!("{OPEN} --topology bad.toml"),
        "bad.toml:2:1: unknown key `hosts`; did you mean `host`?",
    );
    dir.write("bad.json", "{\"frame\": 1538}");
    refused(
        &dir,
        &format!("{OPEN} --topology bad.json"),
        "bad.json:1:14: invalid type",
    );
    // The next start would take it for a new store.
    assert!(!dir.join("tailbound-place.db").exists());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(
        &dir,
        &format!("{OPEN} --topology tree.toml --listen {address}"),
        &format!("cannot listen on {address}"),
    );
    dir.write("text.db", "no database\n".repeat(1000));
    refused(
        &dir,
        &format!("{OPEN} --store sqlite:text.db"),
        "text.db is not a database",
    );
    let usage = command(&dir, &format!("{OPEN} --store mysql://x")).output();
    CommandOutput::new(usage.unwrap()).failed(64);
}

#[test]
fn two_services_do_not_share_a_file() {
    let dir = dir();
    let first = start(&dir, NEW);
    refused(&dir, NEW, "tailbound-place.db");
    first.end().done();
}

#[test]
fn a_hangup_keeps_the_old_tokens_where_the_new_ones_are_wrong() {
    let dir = dir();
    let mut running = start(&dir, "--tokens tokens.toml --topology tree.toml");
    dir.write("tokens.toml", "[[token]]\n");
    running.signal(rustix::process::Signal::HUP);
    let mut log = BufReader::new(running.child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("tokens and certificate stay as they were") {
        line.clear();
        assert_ne!(log.read_line(&mut line).unwrap(), 0, "it ended");
    }
    assert!(
        line.contains("tokens.toml:1:1: the key `name` is missing"),
        "{line}"
    );
    assert!(running.ask("GET /v1/status").starts_with("HTTP/1.1 401 "));
    running.end().done();
}

impl Running {
    /// Sends a document, and returns the answer.
    fn send(&self, request: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        write!(
            stream,
            "{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

#[test]
fn the_log_audits_each_change_with_its_caller() {
    let dir = dir();
    let running = start(&dir, NEW);
    let new = |vms| format!(r#"{{"owner": "acme", "name": "web", "vms": {vms}}}"#);
    let created = running.send("POST /v1/tenants", &new(2));
    assert!(created.starts_with("HTTP/1.1 201 "), "{created}");
    let id = created.split_once("x-request-id: ").map(|(_, rest)| rest);
    let id = id.and_then(|rest| rest.lines().next()).unwrap().to_owned();
    let again = running.send("POST /v1/tenants", &new(2));
    assert!(again.starts_with("HTTP/1.1 409 "), "{again}");
    let number = running.send(
        "POST /v1/tenants",
        r#"{"owner": "acme", "name": "1", "vms": 1}"#,
    );
    assert!(number.contains("taken for an id"), "{number}");
    running.send("PATCH /v1/tenants/1", r#"{"vms": 3}"#);
    running.ask("POST /v1/hosts/a-2/drain");
    running.ask("DELETE /v1/tenants/1");
    let log = running.end().err;
    let lines: Vec<_> = log
        .lines()
        .filter(|line| line.contains(" audit by="))
        .collect();
    let expected: [&[&str]; 6] = [
        &[
            "create",
            "acme/web",
            "by=\"loopback\"",
            "2 machines on a-1",
            "done",
            &id,
        ],
        &["create", "acme/web", "already", "refused"],
        &["create", "acme/1", "taken for an id", "refused"],
        &[
            "resize",
            "acme/web (id 1) to 3 machines",
            "before=\"2 machines",
            "3 machines",
        ],
        &[
            "hosts",
            "a-2 to drained",
            "before=\"open\"",
            "1 hosts drained",
        ],
        &["delete", "acme/web (id 1)", "before=\"3 machines", "gone"],
    ];
    assert_eq!(lines.len(), expected.len(), "{log}");
    for (line, words) in lines.iter().zip(expected) {
        for word in words {
            assert!(line.contains(word), "{word:?} is not in {line}");
        }
    }
}

/// Returns the time of a request beside half-open connections to a service with 512 descriptors;
/// `None` without an answer.
fn answered_beside(half_open: usize) -> Option<std::time::Duration> {
    let dir = dir();
    let child = Command::new("sh")
        .args(["-c", "ulimit -n 512 && exec \"$0\" \"$@\"", PROGRAM])
        .args(words("place serve --listen 127.0.0.1:0"))
        .args(words(NEW))
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let running = Running::of(child);
    let silent: Vec<_> = (0..half_open)
        .map(|_| {
            let mut stream = TcpStream::connect(&running.address).unwrap();
            // It may have been told to go already.
            let _ = stream.write_all(b"GET /v1/status HTTP/1.1\r\nho");
            stream
        })
        .collect();
    let begin = std::time::Instant::now();
    let answer = running.ask("GET /v1/status");
    let took = begin.elapsed();
    drop(silent);
    let log = running.end().err;
    assert!(log.contains("connections run short"), "{log}");
    answer.starts_with("HTTP/1.1 200 ").then_some(took)
}

#[test]
fn half_open_connections_do_not_block_requests() {
    let mut took = (0..10).map(|_| answered_beside(600).expect("it is answered each time"));
    // The best of ten: the machine may be busy.
    assert!(took.any(|took| took <= std::time::Duration::from_secs(1)));
}

/// Creates a tenant, as part of a trace.
fn post(address: &str, body: &str, traceparent: &str) -> String {
    let head = format!(
        "POST /v1/tenants HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\
         traceparent: {traceparent}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_collector_receives_spans_of_requests_and_decisions() {
    let (endpoint, requests) = collector(&[]);
    let dir = dir();
    let running = start(&dir, &format!("{NEW} --otlp {endpoint}"));
    let body = r#"{"owner": "acme", "name": "web", "vms": 2}"#;
    let (trace, caller) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let answer = post(&running.address, body, &format!("00-{trace}-{caller}-01"));
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    running.ask("GET /v1/tenants/7");
    running.ask("GET /healthz");
    let url = format!("http://{}", running.address);
    running.end().done();

    let told: Vec<_> = requests.try_iter().collect();
    let traces = told.iter().filter(|request| !request.spans.is_empty());
    let spans = traces.flat_map(|request| {
        let resource = |name| attribute(&request.resource, name);
        assert_eq!(resource("service.name").as_deref(), Some("tailbound-place"));
        assert_eq!(resource("service.instance.id").as_ref(), Some(&url));
        &request.spans
    });
    let spans: Vec<_> = spans.collect();
    let named = |name: &str| {
        let span = spans.iter().find(|span| span.name == name).copied();
        let span = span.unwrap_or_else(|| panic!("no {name} in {spans:?}"));
        let of = move |name: &str| attribute(&span.attributes, name).unwrap();
        (span, of)
    };
    let hex = |id: &[u8]| {
        id.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    };
    let (create, of_create) = named("POST /v1/tenants");
    let ids = (hex(&create.trace_id), hex(&create.parent_span_id));
    assert_eq!(ids, (trace.to_owned(), caller.to_owned()));
    assert_eq!(of_create("http.response.status_code"), "201");
    let (decide, of_decide) = named("decide create");
    assert_eq!(decide.trace_id, create.trace_id);
    assert_eq!(decide.parent_span_id, create.span_id);
    assert_eq!(of_decide("tailbound.outcome"), "ok");
    let (absent, of_absent) = named("GET /v1/tenants/{id}");
    assert_eq!(of_absent("http.response.status_code"), "404");
    assert_ne!(absent.trace_id, create.trace_id);
    assert!(absent.parent_span_id.is_empty());
    assert_eq!(spans.len(), 3, "{spans:?}");

    let metrics = told.iter().find(|request| !request.metrics.is_empty());
    let metrics = metrics.expect("at the end");
    let tenants = metrics.points("tailbound_place_tenants");
    assert_eq!(tenants.iter().map(number).collect::<Vec<_>>(), [1.0]);
}

#[test]
fn an_address_that_is_no_collectors_is_refused() {
    let dir = dir();
    let refused = command(&dir, "--otlp 127.0.0.1:4318").output();
    let text = CommandOutput::new(refused.unwrap()).failed(64);
    let why = "is no address of a collector: write http:// or https://";
    assert!(text.contains(why), "{text}");
}
