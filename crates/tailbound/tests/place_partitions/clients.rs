//! Clients whose requests and answers become a history.

use crate::cluster::{Cluster, REPLICAS};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};
use ureq::Agent;
use ureq::http::{Method, Request};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Number of concurrent clients.
pub(crate) const CLIENTS: usize = 6;
/// Keys in use at one time.
const KEYS: usize = 3;
/// Time after which other keys are used, so that the history of each is short.
const EPOCH: Duration = Duration::from_secs(10);
/// Pause between two limits of the beacon.
const BEACON: Duration = Duration::from_millis(200);
/// Pause after each operation, in milliseconds.
const THINKING_MS: std::ops::Range<u64> = 5..60;
/// Time limit for one attempt.
const TRY: Duration = Duration::from_millis(1500);
/// Time limit for a request with all attempts; then its outcome is unknown.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The operations of all clients.
pub(crate) struct History {
    start: Instant,
    lines: Mutex<Vec<Value>>,
    /// The last known tenant of each key.
    tenants: Mutex<HashMap<String, TenantView>>,
    /// The times at which the limits of the beacon were answered, see [`Client::shine`].
    beacon: Mutex<Vec<Instant>>,
    is_over: AtomicBool,
}

impl History {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            lines: Mutex::default(),
            tenants: Mutex::default(),
            beacon: Mutex::default(),
            is_over: AtomicBool::new(false),
        }
    }

    /// Ends the clients after their operations in progress.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// The history, a line of JSON for each operation, as tools/linearizable reads it.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for line in self.lines.lock().unwrap().iter() {
            writeln!(text, "{line}").unwrap();
        }
        text
    }

    /// The number of operations, and of those without an answer.
    pub(crate) fn count(&self) -> (usize, usize) {
        let lines = self.lines.lock().unwrap();
        let open = lines.iter().filter(|line| line["end"].is_null()).count();
        (lines.len(), open)
    }

    /// The time at which a later limit of the beacon than this one was answered; now if none was.
    pub(crate) fn since_when_old(&self, limit: usize) -> Instant {
        let answered = self.beacon.lock().unwrap();
        answered.get(limit).copied().unwrap_or_else(Instant::now)
    }

    fn nanos(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap()
    }
}

/// A tenant, and the number of its last change, as a client knows them.
#[derive(Clone, Copy)]
struct TenantView {
    id: u64,
    change: u64,
}

/// The path of the beacon's limit.
pub(crate) struct Beacon(String);

/// An answer: its status and its body.
struct Answer {
    status: u16,
    body: Value,
}

/// A request.
#[derive(Debug, Clone)]
struct Call {
    method: Method,
    path: String,
    /// Empty for none.
    body: String,
    if_match: Option<String>,
    /// The idempotency key.
    once: Option<String>,
}

impl Call {
    fn new(method: Method, path: String) -> Self {
        Self {
            method,
            path,
            body: String::new(),
            if_match: None,
            once: None,
        }
    }

    fn with(self, body: &Value) -> Self {
        let body = body.to_string();
        Self { body, ..self }
    }
}

/// One client, which takes any replica for each attempt.
pub(crate) struct Client<'h> {
    number: usize,
    agent: Agent,
    authorization: String,
    random: Pcg64Mcg,
    requests: usize,
    history: &'h History,
}

impl<'h> Client<'h> {
    pub(crate) fn new(number: usize, seed: u64, cluster: &Cluster, history: &'h History) -> Self {
        Self {
            number,
            agent: agent(cluster),
            authorization: cluster.authorization(),
            random: Pcg64Mcg::seed_from_u64(seed << 8 | number as u64),
            requests: 0,
            history,
        }
    }

    /// Works until the history ends.
    pub(crate) fn run(mut self) {
        while !self.history.is_over() {
            self.step();
        }
    }

    /// Makes the beacon, a tenant on a host. The limit of its machine in a host's guarantees shows their
    /// age.
    pub(crate) fn make_beacon(&mut self, host: &str) -> Beacon {
        let placement = json!([{"host": host, "vms": 1}]);
        let body = json!({"owner": "beacon", "name": "web", "vms": 1, "placement": placement});
        let call = Call::new(Method::POST, "/v1/tenants".to_owned()).with(&body);
        let made = self.until_answered(call).expect("there is no fault yet");
        assert_eq!(made.status, 201, "{}", made.body);
        Beacon(format!("/v1/tenants/{}/limit", made.body["id"]))
    }

    /// Changes the limit of the beacon until the history ends: number N is N Mbit/s.
    pub(crate) fn shine(mut self, beacon: &Beacon) {
        for number in 1.. {
            let limit = json!({"out": {"rate": format!("{number}Mbit/s")}});
            let call = Call::new(Method::POST, beacon.0.clone()).with(&limit);
            if let Some(answer) = self.until_answered(call) {
                assert_eq!(answer.status, 200, "{}", answer.body);
            }
            // One without an answer is over as well: the next one replaces it.
            self.history.beacon.lock().unwrap().push(Instant::now());
            if self.history.is_over() {
                return;
            }
            sleep(BEACON);
        }
    }

    fn step(&mut self) {
        let epoch = self.history.start.elapsed().as_secs() / EPOCH.as_secs();
        let key = format!("owner-{epoch}-{}", self.random.random_range(0..KEYS));
        let known = self.history.tenants.lock().unwrap().get(&key).copied();
        let vms: u32 = self.random.random_range(1..=4);
        match (self.random.random_range(0..100), known) {
            (0..30, _) => self.read(&key),
            (30..75, Some(known)) => self.resize(&key, known, vms),
            (75..85, Some(known)) => self.delete(&key, known.id),
            _ => self.create(&key, vms),
        }
        sleep(Duration::from_millis(self.random.random_range(THINKING_MS)));
    }

    fn create(&mut self, key: &str, vms: u32) {
        let body = json!({"owner": key, "name": "web", "vms": vms});
        let operation = json!({"kind": "create", "vms": vms});
        let call = Call::new(Method::POST, "/v1/tenants".to_owned()).with(&body);
        self.change(key, operation, call);
    }

    fn resize(&mut self, key: &str, known: TenantView, vms: u32) {
        let mut operation = json!({"kind": "resize", "id": known.id, "vms": vms});
        let path = format!("/v1/tenants/{}", known.id);
        let mut call = Call::new(Method::PATCH, path).with(&json!({ "vms": vms }));
        if self.random.random() {
            operation["if_match"] = json!(known.change);
            call.if_match = Some(format!("\"{}\"", known.change));
        }
        self.change(key, operation, call);
    }

    fn delete(&mut self, key: &str, id: u64) {
        let operation = json!({"kind": "delete", "id": id});
        let call = Call::new(Method::DELETE, format!("/v1/tenants/{id}"));
        self.change(key, operation, call);
    }

    /// Sends a change and records it.
    fn change(&mut self, key: &str, mut operation: Value, call: Call) {
        let begin = self.history.nanos();
        let answer = self.until_answered(call);
        operation["end"] = json!(answer.as_ref().map(|_| self.history.nanos()));
        if let Some(Answer { status, body }) = answer {
            operation["answer"] = json!(match (status, body["code"].as_str()) {
                (200 | 201 | 204, _) => "done",
                (404, _) => "absent",
                (409, Some("exists")) => "exists",
                (412, Some("changed")) => "changed",
                _ => panic!("{operation}: {status} {body}"),
            });
            operation["found"] = found(&body);
        }
        self.record(key, begin, operation);
    }

    /// Sends a change with one idempotency key until it is answered; `None` without an answer in time.
    fn until_answered(&mut self, mut call: Call) -> Option<Answer> {
        self.requests += 1;
        call.once = Some(format!("{}-{}", self.number, self.requests));
        let end = Instant::now() + REQUEST_TIMEOUT;
        loop {
            match self.attempt(&call) {
                Some(answer) if answer.status < 500 => return Some(answer),
                _ if Instant::now() >= end => return None,
                _ => sleep(Duration::from_millis(self.random.random_range(10..100))),
            }
        }
    }

    /// Reads the newest state, by one attempt. A read without an answer has no effect, so it is not recorded.
    fn read(&mut self, key: &str) {
        let begin = self.history.nanos();
        let path = format!("/v1/tenants?owner={key}&min_revision=newest");
        let Some(answer) = self.attempt(&Call::new(Method::GET, path)) else {
            return;
        };
        if answer.status >= 500 {
            return;
        }
        assert_eq!(answer.status, 200, "{}", answer.body);
        let found = found(&answer.body["items"][0]);
        let operation = json!({
            "kind": "read",
            "end": self.history.nanos(),
            "answer": if found.is_null() { "absent" } else { "done" },
            "found": found,
        });
        self.record(key, begin, operation);
    }

    fn record(&mut self, key: &str, begin: u64, mut operation: Value) {
        let found = &operation["found"];
        if let (Some(id), Some(change)) = (found["id"].as_u64(), found["change"].as_u64()) {
            let mut tenants = self.history.tenants.lock().unwrap();
            tenants.insert(key.to_owned(), TenantView { id, change });
        }
        operation["key"] = json!(key);
        operation["client"] = json!(self.number);
        operation["begin"] = json!(begin);
        self.history.lines.lock().unwrap().push(operation);
    }

    /// Sends a request to any replica once.
    fn attempt(&mut self, call: &Call) -> Option<Answer> {
        let replica = REPLICAS[self.random.random_range(0..REPLICAS.len())];
        let mut request = Request::builder()
            .method(&call.method)
            .uri(Cluster::url(replica) + &call.path)
            .header("authorization", &self.authorization);
        if let Some(once) = &call.once {
            request = request.header("idempotency-key", once);
        }
        if let Some(change) = &call.if_match {
            request = request.header("if-match", change);
        }
        if !call.body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        let request = request.body(call.body.clone()).unwrap();
        let request = self.agent.configure_request(request);
        let request = request.timeout_global(Some(TRY)).build();
        let mut answer = self.agent.run(request).ok()?;
        let text = answer.body_mut().read_to_string().ok()?;
        Some(Answer {
            status: answer.status().as_u16(),
            body: serde_json::from_str(&text).unwrap_or_default(),
        })
    }
}

/// A client of HTTP that trusts the replicas' certificate.
pub(crate) fn agent(cluster: &Cluster) -> Agent {
    let ca = Certificate::from_pem(&fs::read(cluster.ca()).unwrap()).unwrap();
    let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&[ca]));
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .timeout_connect(Some(TRY))
        .tls_config(tls.build());
    config.build().new_agent()
}

/// The tenant in an answer, or null.
fn found(tenant: &Value) -> Value {
    match tenant["id"].as_u64() {
        Some(id) => {
            json!({"id": id, "vms": tenant["request"]["vms"], "change": tenant["change"]})
        }
        None => Value::Null,
    }
}
