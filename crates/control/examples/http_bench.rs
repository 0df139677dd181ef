//! Benchmark of the service over HTTP: admissions and deletions per second, each durable in an
//! `SQLite` file, and the memory of the service: `make bench-service`.
//!
//! The service is a process of its own. `--clients N` (64) clients, each with one connection that
//! is kept and one request at a time, every admission with an idempotency key of its own, for
//! `--seconds N` (600). Tenants are those of Silo's table 3, half of each class, of exponential
//! size with a mean of 49 machines, in `--hosts N` (100000) hosts of 4 slots; a client deletes its
//! oldest tenant when it has more than `--keep N` (20), so that the data centre keeps room. The
//! file is in `--dir DIR`, by default beside this program; take a real disk.

mod common;

use common::{Failure, Running, at, beside, flags, tenant};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tailbound_control::server::Authentication;
use tailbound_placement::Spread;

const MEAN_VMS: f64 = 49.0;
/// Number of readings of the service's memory.
const READINGS: u32 = 10;
struct Options {
    clients: u64,
    seconds: u64,
    hosts: u32,
    keep: usize,
    dir: PathBuf,
}

fn main() -> Result<(), Failure> {
    match options()? {
        (true, options) => serve(&options),
        (false, options) => bench(&options),
    }
}

/// Serves until standard input ends. Prints the address first, and the writer's statistics at the
/// end.
fn serve(options: &Options) -> Result<(), Failure> {
    let commits: Arc<[AtomicU64; 4]> = Arc::default();
    let seen = Arc::clone(&commits);
    let spec = common::spec(options.hosts, Spread::Flow);
    common::serve(
        spec,
        &options.dir,
        Authentication::InsecureLoopback,
        move |committed| {
            seen[0].fetch_add(1, Ordering::Relaxed);
            seen[1].fetch_add(committed.calls as u64, Ordering::Relaxed);
            let took = committed.took.as_micros() as u64;
            seen[2].fetch_add(took, Ordering::Relaxed);
            seen[3].fetch_max(took, Ordering::Relaxed);
        },
    )?;
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
    let service = Running::start(options.hosts, &options.dir)?;
    let url = service.url.as_str();

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
            memory.push(resident(&service.process)?);
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
    let transactions = service.end()?;

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
    let at = |part: f64| at(&took, part);
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
    let agent = common::agent();
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let mut seen = ClientMeasurements::default();
    let mut here: VecDeque<u64> = VecDeque::new();
    for number in 0_u64.. {
        if Instant::now() >= end {
            break;
        }
        let tenant = tenant(&mut random, &format!("t{client}-{number}"), MEAN_VMS, 2);
        let is_class_a = tenant.guarantee.is_some_and(|it| it.delay.is_some());
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
                let refused = seen
                    .refused
                    .entry((if is_class_a { "A" } else { "B" }, why))
                    .or_default();
                *refused = (refused.0 + 1, refused.1 + u64::from(tenant.vms));
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

/// Returns the options, with true if this process is the service.
fn options() -> Result<(bool, Options), Failure> {
    let mut options = Options {
        clients: 64,
        seconds: 600,
        hosts: 100_000,
        keep: 20,
        dir: beside()?,
    };
    let name = flags(|flag, value| {
        match flag {
            "--clients" => options.clients = value.parse()?,
            "--seconds" => options.seconds = value.parse()?,
            "--hosts" => options.hosts = value.parse()?,
            "--keep" => options.keep = value.parse()?,
            "--dir" => options.dir = value.into(),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok((name.is_some(), options))
}
