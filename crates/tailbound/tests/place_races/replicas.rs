//! Schedulers at work while the leader of three replicas over etcd is killed again and again: each place has
//! one holder at a time, and no reservation stays.

use crate::etcd::Etcd;
use crate::services::Services;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};
use tailbound_api::client::{Client, ClientError, Settings};
use tailbound_api::{Code, MachineRequest, NewReservation, PinnedHost};
use tailbound_control::audit::audit;

/// Each has 8 places, of which one is free.
const HOSTS: [&str; 3] = ["rack0-host-1", "rack0-host-2", "rack1-host-1"];
const TAKEN: u32 = 7;
const OWNER: &str = "acme";
const SCHEDULERS: usize = 6;
/// The shortest time to live.
const TTL: Duration = Duration::from_secs(1);
/// Longest time without an answer; an election takes some seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(2);
/// Answers between two kills, so that each leader decides something.
const BETWEEN: usize = 30;

/// The holder of a host's free place.
struct Holder {
    pod: String,
    /// End of the time to live, after which another pod may get the place; `None` after a confirmation.
    until: Option<Instant>,
}

/// The holders of the free places, as the schedulers know them.
#[derive(Default)]
struct Places {
    holders: Mutex<BTreeMap<&'static str, Holder>>,
    answers: AtomicUsize,
    granted: AtomicUsize,
    confirmed: AtomicUsize,
    double: AtomicUsize,
}

impl Places {
    /// A scheduler got a place.
    fn hold(&self, host: &'static str, pod: &str, until: Option<Instant>) {
        let mut holders = self.holders.lock().unwrap();
        let holder = Holder {
            pod: pod.to_owned(),
            until,
        };
        let Some(other) = holders.insert(host, holder) else {
            return;
        };
        let is_over = other.until.is_some_and(|until| until <= Instant::now());
        if other.pod != pod && !is_over {
            eprintln!("{host} was granted to {pod} while {} has it", other.pod);
            self.double.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A scheduler is about to return a place.
    fn leave(&self, host: &'static str, pod: &str) {
        let mut holders = self.holders.lock().unwrap();
        if holders.get(host).is_some_and(|holder| holder.pod == pod) {
            holders.remove(host);
        }
    }

    fn count(number: &AtomicUsize) {
        number.fetch_add(1, Ordering::Relaxed);
    }
}

/// A scheduler: it reserves a place, and confirms it, cancels it, or forgets it as one that is killed.
struct Scheduler<'p> {
    client: Client,
    random: Pcg64Mcg,
    number: usize,
    places: &'p Places,
}

impl<'p> Scheduler<'p> {
    fn new(number: usize, urls: &str, places: &'p Places) -> Self {
        Self {
            client: client(urls),
            random: Pcg64Mcg::seed_from_u64(number as u64),
            number,
            places,
        }
    }

    fn step(&mut self, step: usize) {
        let host = HOSTS[self.random.random_range(0..HOSTS.len())];
        let pod = format!("pod-{}-{step}", self.number);
        let new = NewReservation {
            tenant: "pods".to_owned(),
            owner: Some(OWNER.to_owned()),
            request: Some(MachineRequest::default()),
            placement: pinned(host, 1),
            ttl: TTL.into(),
            machines: vec![pod.clone()],
            replace: false,
        };
        let sent = Instant::now();
        let made = self.client.reserve(&new);
        Places::count(&self.places.answers);
        let made = match made {
            Ok(made) => made,
            Err(error) if error.code() == Some(Code::Refused) => return,
            Err(error) => panic!("{pod}: {error}"),
        };
        Places::count(&self.places.granted);
        self.places.hold(host, &pod, Some(sent + TTL));
        match self.random.random_range(0..3) {
            // As a scheduler that is killed: the time to live ends it.
            0 => {}
            1 => {
                self.places.leave(host, &pod);
                self.client.cancel(made.id).unwrap();
            }
            _ => match self.client.confirm(made.id) {
                Ok(_) => {
                    Places::count(&self.places.confirmed);
                    self.places.hold(host, &pod, None);
                    self.places.leave(host, &pod);
                    let deleted = self.client.delete_machine(&pod, Some(OWNER), host);
                    deleted.unwrap();
                }
                Err(error) => assert!(is_gone(&error), "{pod}: {error}"),
            },
        }
    }
}

/// A reservation whose time to live was over before its confirmation came.
fn is_gone(error: &ClientError) -> bool {
    error.code() == Some(Code::NotFound)
}

fn client(urls: &str) -> Client {
    let mut settings = Settings::new(urls);
    settings.timeout = Duration::from_secs(5);
    settings.patience = ANSWER_TIMEOUT;
    Client::new(&settings).unwrap()
}

fn pinned(host: &str, vms: u32) -> Vec<PinnedHost> {
    let host = host.to_owned();
    vec![PinnedHost { host, vms }]
}

/// Fills the hosts up to one place each.
fn fill(client: &Client) {
    for (number, host) in HOSTS.into_iter().enumerate() {
        let tenant = serde_json::json!({
            "name": format!("others-{number}"), "owner": OWNER, "vms": TAKEN, "placement": pinned(host, TAKEN),
        });
        let tenant = serde_json::from_value(tenant).unwrap();
        client.create(&tenant).unwrap();
    }
}

/// Kills the leader this many times while schedulers work.
pub(crate) fn run(kills: usize) {
    let Some(etcd) = Etcd::start(1) else { return };
    let mut services = Services::over_etcd(&etcd.location("races"));
    let urls = services.urls().join(",");
    fill(&client(&urls));
    let places = Places::default();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..SCHEDULERS {
            let (urls, places, is_over) = (&urls, &places, &is_over);
            scope.spawn(move || {
                let mut scheduler = Scheduler::new(number, urls, places);
                let mut steps = 0..;
                while !is_over.load(Ordering::Relaxed) {
                    scheduler.step(steps.next().unwrap());
                }
            });
        }
        let mut random = Pcg64Mcg::seed_from_u64(1);
        for _ in 0..kills {
            let wanted = places.answers.load(Ordering::Relaxed) + BETWEEN;
            let end = Instant::now() + ANSWER_TIMEOUT;
            while places.answers.load(Ordering::Relaxed) < wanted && Instant::now() < end {
                sleep(Duration::from_millis(1));
            }
            sleep(Duration::from_millis(random.random_range(0..100)));
            let leader = services.leader();
            services.kill(leader);
            services.restart(leader);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    settle(&mut services, &places, kills);
}

/// Waits until all reservations have ended, and judges what is left in the store.
fn settle(services: &mut Services, places: &Places, kills: usize) {
    let client = client(&services.urls().join(","));
    let end = Instant::now() + ANSWER_TIMEOUT;
    while !client.reservations(None).unwrap().items.is_empty() {
        assert!(Instant::now() < end, "reservations do not end");
        sleep(Duration::from_millis(50));
    }
    services.stop();
    let snapshot = services.snapshot();
    let report = audit(&snapshot);
    let leaked = snapshot.tenants.values().filter(|it| it.name == "pods");
    let leaked: u32 = leaked.map(|tenant| tenant.request.vms).sum();
    let read = |number: &AtomicUsize| number.load(Ordering::Relaxed);
    let (answers, granted) = (read(&places.answers), read(&places.granted));
    let (confirmed, double) = (read(&places.confirmed), read(&places.double));
    println!(
        "{kills} kills of the leader: {answers} answers, {granted} granted, {confirmed} confirmed, \
         {double} granted twice, {leaked} leaked, {} findings",
        report.findings.len()
    );
    assert!(confirmed > 0, "nothing was confirmed");
    assert_eq!((double, leaked), (0, 0), "granted twice, leaked");
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}
