//! How many admissions a second the service answers over HTTP, each durable in a
//! file of `SQLite` before: `cargo run --release -p tailbound-control --example
//! http_bench`.
//!
//! `--clients N` (8) clients, each with one connection that is kept and one
//! request at a time, every admission with an idempotency key of its own, for
//! `--seconds N` (10). Tenants are those of Silo's table 3, half of each class,
//! of exponential size with a mean of 49 machines, in `--hosts N` (100000) hosts
//! of 4 slots; a client deletes its oldest tenant when it has more than
//! `--keep N` (100). The file is in `--dir DIR`, by default beside this program;
//! take a real disk.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::error::Error;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tailbound_control::ledger::Ledger;
use tailbound_control::server::{Authentication, Config, Metrics, Server};
use tailbound_control::service::{Committed, Service};
use tailbound_control::store::{Sqlite, Store as _};
use tailbound_placement::{Policy, Spread, Uniform, UplinkSpec};
use tailbound_units::{Bytes, Rate};

const MEAN_VMS: f64 = 49.0;
const HOSTS_IN_POD: u32 = 1_000;

struct Options {
    clients: u64,
    seconds: u64,
    hosts: u32,
    keep: usize,
    dir: PathBuf,
}

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let options = options()?;
    let runtime = tokio::runtime::Runtime::new()?;
    let dir = tempfile::tempdir_in(&options.dir)?;
    let mut store = Sqlite::open(&dir.path().join("place.db"))?;
    let (mut ledger, changes) = Ledger::new(uniform(options.hosts).spec(), Policy::Silo)?;
    ledger.set_revision(store.commit(&changes)?);

    let commits: Arc<Mutex<Vec<Committed>>> = Arc::default();
    let seen = Arc::clone(&commits);
    let service = Service::start(ledger, move |committed| {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push(committed.clone());
    });
    runtime.block_on(service.lead(Box::new(store), Box::new(|error| eprintln!("{error}"))))?;
    let config = Config {
        authentication: Authentication::InsecureLoopback,
        tls: None,
        streams: 1,
        connections: 1_000,
        hose: None,
    };
    let server = Server::new(config, service, None, Metrics::new())?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    let running = server.clone();
    let running = runtime.spawn(async move { running.run(listener).await });

    let begin = Instant::now();
    let refused = AtomicU64::new(0);
    let mut took = std::thread::scope(|scope| {
        let (url, options, refused) = (&url, &options, &refused);
        let clients: Vec<_> = (0..options.clients)
            .map(|client| scope.spawn(move || calls(client, url, options, refused)))
            .collect();
        let mut all = Vec::new();
        for client in clients {
            all.extend(client.join().map_err(|_| "a client panicked")??);
        }
        Ok::<_, Failure>(all)
    })?;
    let elapsed = begin.elapsed();
    server.stop();
    runtime.block_on(running)??;

    took.sort_unstable();
    let admitted = took.len();
    let at = |part: f64| {
        let index = (admitted.saturating_sub(1) as f64 * part) as usize;
        took.get(index).copied().unwrap_or_default()
    };
    let commits = commits.lock().unwrap_or_else(PoisonError::into_inner);
    let calls: usize = commits.iter().map(|committed| committed.calls).sum();
    println!(
        "{} hosts, {} clients, {:.1} s: {admitted} admitted, {:.0} a second; {} refused",
        options.hosts,
        options.clients,
        elapsed.as_secs_f64(),
        admitted as f64 / elapsed.as_secs_f64(),
        refused.load(Ordering::Relaxed),
    );
    println!(
        "admission, request to answer: p50 {:?}, p99 {:?}, max {:?}",
        at(0.5),
        at(0.99),
        at(1.0)
    );
    println!(
        "{} transactions of {:.1} calls",
        commits.len(),
        calls as f64 / commits.len().max(1) as f64
    );
    Ok(())
}

/// Admits and deletes until the time is over, and returns how long each admission took.
fn calls(
    client: u64,
    url: &str,
    options: &Options,
    refused: &AtomicU64,
) -> Result<Vec<Duration>, Failure> {
    let mut random = Pcg64Mcg::seed_from_u64(client);
    let agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .build()
        .new_agent();
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let mut took = Vec::new();
    let mut here: VecDeque<u64> = VecDeque::new();
    for number in 0_u64.. {
        if Instant::now() >= end {
            break;
        }
        let begin = Instant::now();
        let mut answer = agent
            .post(format!("{url}/v1/tenants"))
            .header("idempotency-key", format!("{client}-{number}"))
            .send_json(tenant(client, number, &mut random))?;
        let body: Value = answer.body_mut().read_json()?;
        match answer.status().as_u16() {
            201 => {
                took.push(begin.elapsed());
                here.extend(body["id"].as_u64());
            }
            409 => {
                refused.fetch_add(1, Ordering::Relaxed);
            }
            _ => return Err(body.to_string().into()),
        }
        if here.len() > options.keep
            && let Some(id) = here.pop_front()
        {
            agent.delete(format!("{url}/v1/tenants/{id}")).call()?;
        }
    }
    Ok(took)
}

fn tenant(client: u64, number: u64, random: &mut Pcg64Mcg) -> Value {
    let uniform: f64 = random.random();
    let vms = (-MEAN_VMS * (1.0 - uniform).ln()).ceil().max(2.0) as u32;
    let guarantee = if random.random() {
        json!({"bandwidth": "250Mbit/s", "burst": "15KB", "delay": "1ms", "burst_rate": "1Gbit/s"})
    } else {
        json!({"bandwidth": "2Gbit/s", "burst": "1538B"})
    };
    json!({
        "owner": "bench",
        "name": format!("t{client}-{number}"),
        "vms": vms,
        "guarantee": guarantee,
    })
}

/// As in the placement's microbenchmark: racks of 40, 1:5 oversubscribed twice.
fn uniform(hosts: u32) -> Uniform {
    let link = |gbit: u64, kb: u64, up_buffer| UplinkSpec {
        rate: Rate(gbit * 1_000_000_000),
        links: 1,
        spread: Spread::Flow,
        buffer: Bytes(kb * 1_000),
        up_buffer,
        shared_buffer: Bytes::ZERO,
    };
    Uniform {
        pods: hosts.div_ceil(HOSTS_IN_POD),
        racks: 25,
        hosts: 40,
        slots: 4,
        host_link: link(10, 800, Some(Bytes(62_500))),
        rack_link: link(80, 500, None),
        pod_link: link(400, 500, None),
        frame: Bytes(1_538),
    }
}

fn options() -> Result<Options, Failure> {
    let beside = std::env::current_exe()?;
    let mut options = Options {
        clients: 8,
        seconds: 10,
        hosts: 100_000,
        keep: 100,
        dir: beside.parent().unwrap_or(&beside).to_owned(),
    };
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let value = args.next().ok_or_else(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--clients" => options.clients = value.parse()?,
            "--seconds" => options.seconds = value.parse()?,
            "--hosts" => options.hosts = value.parse()?,
            "--keep" => options.keep = value.parse()?,
            "--dir" => options.dir = value.into(),
            _ => return Err(format!("{flag} is not known; see the top of the source").into()),
        }
    }
    Ok(options)
}
