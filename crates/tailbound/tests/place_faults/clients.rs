//! Clients that repeat each request until it is answered.

use crate::check::TenantAnswers;
use rand::{RngExt as _, SeedableRng};
use rand_pcg::Pcg64;
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};
use tailbound_api::Tenant;
use ureq::Agent;
use ureq::http::{Method, Request, StatusCode};

/// Time after which a request without an answer is sent again.
const TRY: Duration = Duration::from_secs(5);
/// Time limit of a request with all its repeats.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(2);
/// Tenants that one client keeps at most.
const KEPT: usize = 12;

/// Numbers of the clients' requests and answers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) admitted: usize,
    pub(crate) refused: usize,
    pub(crate) resized: usize,
    pub(crate) deleted: usize,
    /// Requests sent again because there was no answer, or a 503.
    pub(crate) retries: usize,
    /// Answered requests that were sent again, and received the same answer.
    pub(crate) replayed: usize,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.admitted += other.admitted;
        self.refused += other.refused;
        self.resized += other.resized;
        self.deleted += other.deleted;
        self.retries += other.retries;
        self.replayed += other.replayed;
    }
}

/// Clients at work.
pub(crate) struct Clients {
    threads: Vec<JoinHandle<(Tally, TenantAnswers)>>,
    /// Tenants that were admitted.
    admitted: Arc<AtomicUsize>,
    goal: usize,
}

impl Clients {
    /// Starts clients that send requests until `goal` tenants are admitted.
    pub(crate) fn start(round: usize, clients: usize, goal: usize, urls: &[String]) -> Self {
        let admitted = Arc::new(AtomicUsize::new(0));
        let threads = (0..clients)
            .map(|number| {
                let admitted = Arc::clone(&admitted);
                let mut client = Client::new(round, number, urls.to_vec());
                thread::spawn(move || {
                    while admitted.load(Ordering::Relaxed) < goal {
                        let before = client.tally.admitted;
                        client.step();
                        admitted.fetch_add(client.tally.admitted - before, Ordering::Relaxed);
                    }
                    (client.tally, client.told)
                })
            })
            .collect();
        Self {
            threads,
            admitted,
            goal,
        }
    }

    /// Waits until this part of the work is done, in thousandths.
    pub(crate) fn wait_for(&self, part: usize) {
        while self.admitted.load(Ordering::Relaxed) * 1000 < self.goal * part
            && self.threads.iter().any(|thread| !thread.is_finished())
        {
            sleep(Duration::from_millis(1));
        }
    }

    /// Waits for the end of the work.
    pub(crate) fn finish(self) -> (Tally, TenantAnswers) {
        let (mut tally, mut told) = (Tally::default(), TenantAnswers::default());
        for thread in self.threads {
            let (its, was_told) = thread.join().unwrap();
            tally += its;
            told.add(was_told);
        }
        (tally, told)
    }
}

struct Client {
    name: String,
    urls: Vec<String>,
    /// The service that answered last.
    service: usize,
    agent: Agent,
    random: Pcg64,
    tally: Tally,
    told: TenantAnswers,
    requests: usize,
}

impl Client {
    fn new(round: usize, number: usize, urls: Vec<String>) -> Self {
        Self {
            name: format!("client-{number}"),
            service: number % urls.len(),
            urls,
            agent: Agent::config_builder()
                .http_status_as_error(false)
                .proxy(None)
                .timeout_global(Some(TRY))
                .build()
                .new_agent(),
            random: Pcg64::seed_from_u64((round << 16 | number) as u64),
            tally: Tally::default(),
            told: TenantAnswers::default(),
            requests: 0,
        }
    }

    /// Requests a tenant, and in some steps changes one.
    fn step(&mut self) {
        self.create();
        if self.random.random_ratio(1, 4) {
            self.resize();
        }
        if self.told.len() > KEPT || self.random.random_ratio(1, 4) {
            self.delete();
        }
    }

    fn create(&mut self) {
        let name = format!("t{}", self.requests);
        let vms = self.random.random_range(1..=10);
        let guarantee = if self.random.random_ratio(1, 5) {
            String::new()
        } else {
            let mbit = self.random.random_range(50..=500);
            format!(
                r#","guarantee":{{"bandwidth":"{mbit}Mbit/s","burst":"15KB","delay":"1ms","burst_rate":"1Gbit/s"}}"#
            )
        };
        let owner = &self.name;
        let body = format!(r#"{{"name":"{name}","owner":"{owner}","vms":{vms}{guarantee}}}"#);
        let (status, answer) = self.ask(&Method::POST, "/v1/tenants", Some(&body));
        match status {
            StatusCode::CREATED => {
                let tenant = tenant(&answer);
                assert_eq!((&tenant.owner, &tenant.name), (&self.name, &name));
                assert_eq!(tenant.request.vms, vms);
                self.told.has(&tenant);
                self.tally.admitted += 1;
            }
            StatusCode::CONFLICT if answer.contains(r#""refused""#) => self.tally.refused += 1,
            // Such as `exists`: then an earlier try was forgotten, though it was
            // carried out.
            _ => self
                .told
                .amiss(format!("{} {name}: {status} {answer}", self.name)),
        }
    }

    fn resize(&mut self) {
        let Some(id) = self.told.any(&mut self.random) else {
            return;
        };
        let vms = self.random.random_range(1..=12);
        let body = format!(r#"{{"vms":{vms}}}"#);
        let (status, answer) = self.ask(&Method::PATCH, &format!("/v1/tenants/{id}"), Some(&body));
        match status {
            StatusCode::OK => {
                let tenant = tenant(&answer);
                assert_eq!((tenant.id.0, tenant.request.vms), (id, vms));
                self.told.has(&tenant);
                self.tally.resized += 1;
            }
            StatusCode::CONFLICT if answer.contains(r#""refused""#) => self.tally.refused += 1,
            _ => self
                .told
                .amiss(format!("resize of {id}: {status} {answer}")),
        }
    }

    fn delete(&mut self) {
        let Some(id) = self.told.any(&mut self.random) else {
            return;
        };
        let (status, answer) = self.ask(&Method::DELETE, &format!("/v1/tenants/{id}"), None);
        if status == StatusCode::NO_CONTENT {
            self.told.has_not(id);
            self.tally.deleted += 1;
        } else {
            self.told
                .amiss(format!("delete of {id}: {status} {answer}"));
        }
    }

    /// Sends a request with one idempotency key until it is answered; repeats some answered
    /// requests.
    fn ask(&mut self, method: &Method, path: &str, body: Option<&str>) -> (StatusCode, String) {
        self.requests += 1;
        let key = format!("{}-{}", self.name, self.requests);
        let first = self.answer(method, path, body, &key);
        if first.0.is_success() {
            self.told.done(key.clone());
        }
        if first.0.is_success() && self.random.random_ratio(1, 20) {
            self.tally.replayed += 1;
            self.service += 1;
            let again = self.answer(method, path, body, &key);
            if again != first {
                let (first, again) = (first.1.clone(), again.1);
                self.told
                    .amiss(format!("{key}: {first}, and again: {again}"));
            }
        }
        first
    }

    fn answer(
        &mut self,
        method: &Method,
        path: &str,
        body: Option<&str>,
        key: &str,
    ) -> (StatusCode, String) {
        let end = Instant::now() + REQUEST_TIMEOUT;
        loop {
            let url = format!("{}{path}", self.urls[self.service % self.urls.len()]);
            let request = Request::builder()
                .method(method)
                .uri(url)
                .header("idempotency-key", key)
                .header("x-request-id", key)
                .header("content-type", "application/json")
                .body(body.unwrap_or_default().to_owned())
                .unwrap();
            let answer = self
                .agent
                .run(request)
                .and_then(|mut answer| Ok((answer.status(), answer.body_mut().read_to_string()?)));
            match answer {
                Ok((status, text)) if !status.is_server_error() => return (status, text),
                Ok((status, text)) => {
                    let awaited = status == StatusCode::SERVICE_UNAVAILABLE;
                    assert!(awaited, "{method} {path}: {status} {text}");
                }
                Err(_) => {}
            }
            assert!(Instant::now() < end, "no answer to {method} {path}");
            self.tally.retries += 1;
            self.service += 1;
            let pause = self.random.random_range(10..100);
            sleep(Duration::from_millis(pause));
        }
    }
}

/// Returns a tenant without its state, which is not stored.
fn tenant(text: &str) -> Tenant {
    let tenant: Tenant = serde_json::from_str(text).unwrap();
    Tenant {
        moving: None,
        standing: None,
        ..tenant
    }
}
