//! Benchmark of the service over HTTP: admissions and deletions per second, each durable in an
//! `SQLite` file, and the memory of the service: `make bench-service`.
//!
//! The service is a process of its own. `--clients N` (64) clients, each with one connection that
//! is kept and one request at a time, every admission with an idempotency key of its own, for
//! `--seconds N` (600). Tenants are those of Silo's table 3, half of each class, of exponential
//! size with a mean of 49 machines, in `--hosts N` (100000) hosts of 4 slots; a client deletes its
//! oldest tenant when it has more than `--keep N` (20), so that the data centre keeps room. The
//! file is in `--dir DIR`, by default beside this program; take a real disk.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tailbound_control::ledger::Ledger;
use tailbound_control::server::{Authentication, Config, Metrics, Server};
use tailbound_control::service::Service;
use tailbound_control::store::{Sqlite, Store as _};
use tailbound_placement::{Policy, Spread, Uniform, UplinkSpec};
use tailbound_units::{Bytes, Rate};

const MEAN_VMS: f64 = 49.0;
const HOSTS_IN_POD: u32 = 1_000;
/// Number of readings of the service's memory.
const READINGS: u32 = 10;
/// Argument that starts this program as the service.
const SERVE: &str = "--serve";

struct Options {
    is_service: bool,
    clients: u64,
    seconds: u64,
    hosts: u32,
    keep: usize,
    dir: PathBuf,
}

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let options = options()?;
    if options.is_service {
        serve(&options)
    } else {
        bench(&options)
    }
}

/// Serves until standard input ends. Prints the address first, and the writer's statistics at the
/// end.
fn serve(options: &Options) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    let dir = tempfile::tempdir_in(&options.dir)?;
    let mut store = Sqlite::open(&dir.path().join("place.db"))?;
    let (mut ledger, changes) = Ledger::new(uniform(options.hosts).spec(), Policy::Silo)?;
    ledger.set_revision(store.commit(&changes)?);

    let commits: Arc<[AtomicU64; 4]> = Arc::default();
    let seen = Arc::clone(&commits);
    let service = Service::start(ledger, move |committed| {
        seen[0].fetch_add(1, Ordering::Relaxed);
        seen[1].fetch_add(committed.calls as u64, Ordering::Relaxed);
        let took = committed.took.as_micros() as u64;
        seen[2].fetch_add(took, Ordering::Relaxed);
        seen[3].fetch_max(took, Ordering::Relaxed);
    });
    runtime.block_on(service.lead(Box::new(store), Box::new(|error| eprintln!("{error}"))))?;
    let config = Config {
        authentication: Authentication::InsecureLoopback,
        tls: None,
        streams: 1,
        connections: 1_000,
        hose: None,
        collector: None,
    };
    let server = Server::new(config, service, None, Metrics::new())?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("http://{}", listener.local_addr()?);
    std::io::stdout().flush()?;
    let running = server.clone();
    let running = runtime.spawn(async move { running.run(listener).await });
    std::io::stdin().read_to_end(&mut Vec::new())?;
    server.stop();
    runtime.block_on(running)??;
    let [transactions, calls, stored, longest] =
        [0, 1, 2, 3].map(|index| commits[index].load(Ordering::Relaxed));
    let each = |sum: u64| sum as f64 / transactions.max(1) as f64;
    println!(
        "{transactions} transactions of {:.1} calls; the store took {:.1} ms for each, {:.1} ms at most",
        each(calls),
        each(stored) / 1e3,
        longest as f64 / 1e3,
    );
    Ok(())
}

/// Measurements of a client.
#[derive(Default)]
struct ClientMeasurements {
    admitted: Vec<Duration>,
    deleted: Vec<Duration>,
    /// Refused requests by class and reason: their number, and their number of machines.
    refused: BTreeMap<(&'static str, String), (u64, u64)>,
}

fn bench(options: &Options) -> Result<(), Failure> {
    let mut service = Command::new(std::env::current_exe()?)
        .arg(SERVE)
        .args(["--hosts", &options.hosts.to_string(), "--dir"])
        .arg(&options.dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = BufReader::new(service.stdout.take().ok_or("it has no output")?);
    let mut url = String::new();
    said.read_line(&mut url)?;
    let url = url.trim_end();

    let begin = Instant::now();
    let mut seen = ClientMeasurements::default();
    let mut memory = Vec::new();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..options.clients)
            .map(|client| scope.spawn(move || calls(client, url, options)))
            .collect();
        for reading in 1..=READINGS {
            let at = Duration::from_secs(options.seconds) * reading / READINGS;
            std::thread::sleep(at.saturating_sub(begin.elapsed()));
            memory.push(resident(&service)?);
        }
        for client in clients {
            let one = client.join().map_err(|_| "a client panicked")??;
            seen.admitted.extend(one.admitted);
            seen.deleted.extend(one.deleted);
            for (why, (count, machines)) in one.refused {
                let all = seen.refused.entry(why).or_default();
                *all = (all.0 + count, all.1 + machines);
            }
        }
        Ok::<_, Failure>(())
    })?;
    let elapsed = begin.elapsed().as_secs_f64();
    drop(service.stdin.take());
    let mut transactions = String::new();
    said.read_to_string(&mut transactions)?;
    service.wait()?;

    let (admitted, deleted) = (seen.admitted.len(), seen.deleted.len());
    println!(
        "{} hosts, {} clients, {elapsed:.1} s: {:.0} durable changes a second; {admitted} admitted, \
         {deleted} deleted, {} refused",
        options.hosts,
        options.clients,
        (admitted + deleted) as f64 / elapsed,
        seen.refused.values().map(|(count, _)| count).sum::<u64>(),
    );
    for ((class, why), (count, machines)) in &seen.refused {
        let mean = *machines as f64 / *count as f64;
        println!("refused, class {class}, {mean:.0} machines on average: {count} times: {why}");
    }
    for (what, took) in [("admission", seen.admitted), ("deletion", seen.deleted)] {
        println!("{what}, request to answer: {}", percentiles(took));
    }
    let megabytes: Vec<_> = memory.iter().map(|kb| format!("{}", kb / 1_024)).collect();
    println!(
        "memory of the service, MiB, at each tenth: {}",
        megabytes.join(" ")
    );
    print!("{transactions}");
    Ok(())
}

fn percentiles(mut took: Vec<Duration>) -> String {
    took.sort_unstable();
    let at = |part: f64| {
        let index = (took.len().saturating_sub(1) as f64 * part) as usize;
        took.get(index).copied().unwrap_or_default()
    };
    format!("p50 {:?}, p99 {:?}, max {:?}", at(0.5), at(0.99), at(1.0))
}

/// The memory that a process has, in KiB.
fn resident(process: &Child) -> Result<u64, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.ok_or("the service is gone")?.parse()?)
}

/// Admits and deletes until the time is over.
fn calls(client: u64, url: &str, options: &Options) -> Result<ClientMeasurements, Failure> {
    let mut random = Pcg64Mcg::seed_from_u64(client);
    let agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .build()
        .new_agent();
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let mut seen = ClientMeasurements::default();
    let mut here: VecDeque<u64> = VecDeque::new();
    for number in 0_u64.. {
        if Instant::now() >= end {
            break;
        }
        let (class, vms, tenant) = tenant(client, number, &mut random);
        let begin = Instant::now();
        let mut answer = agent
            .post(format!("{url}/v1/tenants"))
            .header("idempotency-key", format!("{client}-{number}"))
            .send_json(&tenant)?;
        let body: Value = answer.body_mut().read_json()?;
        match answer.status().as_u16() {
            201 => {
                seen.admitted.push(begin.elapsed());
                here.extend(body["id"].as_u64());
            }
            409 => {
                let why = reason(body["detail"].as_str().unwrap_or_default());
                let refused = seen.refused.entry((class, why)).or_default();
                *refused = (refused.0 + 1, refused.1 + u64::from(vms));
            }
            _ => return Err(body.to_string().into()),
        }
        if here.len() > options.keep
            && let Some(id) = here.pop_front()
        {
            let begin = Instant::now();
            let answer = agent.delete(format!("{url}/v1/tenants/{id}")).call()?;
            if answer.status() != 204 {
                return Err(format!("tenant {id} was not deleted: {}", answer.status()).into());
            }
            seen.deleted.push(begin.elapsed());
        }
    }
    Ok(seen)
}

/// Returns the reason of a refusal, without the numbers of the request.
fn reason(detail: &str) -> String {
    let words = detail.split_whitespace().map(|word| {
        let is_number = word.starts_with(|first: char| first.is_ascii_digit());
        if is_number { "N" } else { word }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// A tenant's class, how many machines it has, and the request for it.
fn tenant(client: u64, number: u64, random: &mut Pcg64Mcg) -> (&'static str, u32, Value) {
    let uniform: f64 = random.random();
    let vms = (-MEAN_VMS * (1.0 - uniform).ln()).ceil().max(2.0) as u32;
    let (class, guarantee) = if random.random() {
        let burst_rate = "1Gbit/s";
        let with_delay = json!({
            "bandwidth": "250Mbit/s", "burst": "15KB", "delay": "1ms", "burst_rate": burst_rate,
        });
        ("A", with_delay)
    } else {
        ("B", json!({"bandwidth": "2Gbit/s", "burst": "1538B"}))
    };
    let request = json!({
        "owner": "bench",
        "name": format!("t{client}-{number}"),
        "vms": vms,
        "guarantee": guarantee,
    });
    (class, vms, request)
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
        is_service: false,
        clients: 64,
        seconds: 600,
        hosts: 100_000,
        keep: 20,
        dir: beside.parent().unwrap_or(&beside).to_owned(),
    };
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        if flag == SERVE {
            options.is_service = true;
            continue;
        }
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
