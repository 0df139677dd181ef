//! Benchmark of the store: admissions per second, and the duration of a start: `cargo run --release
//! -p tailbound-control --example store_bench`.
//!
//! Tenants are those of Silo's table 3, half of each class, of exponential size.
//! Two measurements:
//!
//! - `admissions`: `--clients N` (8) clients, one request each at a time, with
//!   idempotency keys, through the service to a file; `--requests N` (10000) in
//!   all, of 49 machines on average, in an empty data centre of `--hosts N`
//!   (100000).
//! - `start`: `--tenants N` (100000) tenants with a mean of `--machines N` (49) are written to a
//!   file. They are the tenants that fit among three times that number. The file is then opened and
//!   read, every promise is checked, and the service leads. `--hosts N` (1000000). The drain of a
//!   pod and the audit of the file are timed as well.
//!
//! Without a name it runs `admissions`, and `start` twice: with 1,000,000 hosts,
//! and with 100,000 hosts and small tenants. The file is in `--dir DIR`, by
//! default beside this program; take a real disk.

mod common;

use common::{Failure, TempFile, at, beside, flags, millis, tenant};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tailbound_api::HostState;
use tailbound_control::audit::audit;
use tailbound_control::ledger::{Call, Change, Command, Ledger, Reply};
use tailbound_control::service::{CommitReport, OnEnd, Service, ServiceError};
use tailbound_control::store::{Sqlite, Store};
use tailbound_placement::{Policy, Spread};
use tailbound_units::Nanos;

#[derive(Clone)]
struct Options {
    clients: u32,
    requests: u32,
    tenants: usize,
    machines: f64,
    hosts: Option<u32>,
    dir: PathBuf,
}

fn main() -> Result<(), Failure> {
    let (name, options) = options()?;
    match name.as_deref() {
        Some("admissions") => admissions(&options),
        Some("start") => start(&options, options.hosts.unwrap_or(1_000_000)),
        None => {
            admissions(&options)?;
            start(&options, options.hosts.unwrap_or(1_000_000))?;
            let small = Options {
                machines: 3.0,
                ..options
            };
            start(&small, 100_000)
        }
        Some(name) => Err(format!("no measurement {name:?}; see the top of the source").into()),
    }
}

fn admissions(options: &Options) -> Result<(), Failure> {
    let hosts = options.hosts.unwrap_or(100_000);
    let file = TempFile::new(&options.dir, "admissions");
    let (ledger, changes) = Ledger::new(common::spec(hosts, Spread::Frame), Policy::Silo)?;
    let mut store = Sqlite::open(&file.0)?;
    store.commit(&changes)?;
    let commits: Arc<Mutex<Vec<CommitReport>>> = Arc::default();
    let observed = Arc::clone(&commits);
    let service = Service::start(ledger, move |committed| {
        let commits = observed.lock();
        let mut commits = commits.unwrap_or_else(PoisonError::into_inner);
        commits.push(committed.clone());
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()?;
    let on_end: OnEnd = Box::new(|error| eprintln!("{error}"));
    runtime.block_on(service.lead(Box::new(store), on_end))?;
    let started = Instant::now();
    let clients: Vec<_> = (0..options.clients)
        .map(|client| {
            let service = service.clone();
            let count = options.requests / options.clients;
            runtime.spawn(async move {
                let mut random = Pcg64Mcg::seed_from_u64(u64::from(client));
                let mut times = Vec::new();
                for number in 0..count {
                    let name = format!("web-{client}-{number}");
                    let new = tenant(&mut random, &name, 49.0, 1);
                    let call = Call {
                        key: Some(name),
                        ..Call::of_service(Command::Create(new))
                    };
                    let start = Instant::now();
                    match service.call(call).await {
                        Ok(_) => times.push(start.elapsed()),
                        Err(ServiceError::Ledger(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(times)
            })
        })
        .collect();
    let mut times = Vec::new();
    for client in clients {
        times.extend(runtime.block_on(client)??);
    }
    let took = started.elapsed();
    times.sort_unstable();
    let commits = commits.lock().unwrap_or_else(PoisonError::into_inner);
    let stored: Duration = commits.iter().map(|commit| commit.took).sum();
    println!(
        "admissions: {} clients, {hosts} hosts, {}: {:.0} a second ({} of {} requests admitted)",
        options.clients,
        file.0.display(),
        times.len() as f64 / took.as_secs_f64(),
        times.len(),
        options.requests,
    );
    println!(
        "  answered after p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms; {} commits of {:.1} requests, \
         {:.2} ms each",
        millis(at(&times, 0.5)),
        millis(at(&times, 0.99)),
        millis(at(&times, 1.0)),
        commits.len(),
        f64::from(options.requests) / commits.len().max(1) as f64,
        millis(stored) / commits.len().max(1) as f64,
    );
    Ok(())
}

fn start(options: &Options, hosts: u32) -> Result<(), Failure> {
    let file = TempFile::new(&options.dir, "start");
    let (used, slots) = fill(&file.0, options, hosts)?;
    let started = Instant::now();
    let (store, opened) = timed(|| Sqlite::open_existing(&file.0));
    let mut store = store?;
    let (snapshot, read) = timed(|| store.load());
    let snapshot = snapshot?;
    let tenants = snapshot.tenants.len();
    let (ledger, restored) = timed(|| Ledger::load(snapshot));
    let service = Service::start(ledger?, |_| {});
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let on_end: OnEnd = Box::new(|error| eprintln!("{error}"));
    let (leads, led) = timed(|| runtime.block_on(service.lead(Box::new(store), on_end)));
    leads?;
    println!(
        "start: {tenants} tenants with {used} machines on {hosts} hosts of {slots} slots, a file \
         of {} MB: {:.2} s",
        std::fs::metadata(&file.0)?.len() / 1_000_000,
        started.elapsed().as_secs_f64(),
    );
    println!(
        "  open {opened:.2} s, read {read:.2} s, build and check every promise {restored:.2} s, \
         lead {led:.2} s; {} MB of memory at most",
        peak_memory_kb() / 1000,
    );
    let drain = Call::of_service(Command::SetHosts {
        node: "pod1".to_owned(),
        state: HostState::Drained,
    });
    let (drained, took) = timed(|| runtime.block_on(service.call(drain)));
    if let Reply::Hosts(change) = drained? {
        println!(
            "  drain of pod1, {} hosts, {} tenants refitted: {took:.2} s",
            change.hosts,
            change.affected.len(),
        );
    }
    let snapshot = service.read(Ledger::snapshot);
    drop(service);
    let (report, took) = timed(|| audit(&snapshot));
    println!(
        "  audit: {} tenants, {} ports, {} findings in {took:.2} s",
        report.tenants,
        report.ports,
        report.findings.len(),
    );
    Ok(())
}

/// Writes a file with tenants, and returns the number of machines and of slots.
fn fill(path: &Path, options: &Options, hosts: u32) -> Result<(u64, u64), Failure> {
    let (mut ledger, mut changes) = Ledger::new(common::spec(hosts, Spread::Frame), Policy::Silo)?;
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let (mut tenants, mut used) = (0, 0);
    for number in 0..3 * options.tenants {
        if tenants == options.tenants {
            break;
        }
        let name = format!("web-{number}");
        let new = tenant(&mut random, &name, options.machines, 1);
        let call = Call::of_service(Command::Create(new));
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        if let Ok(decision) = ledger.decide(&call, Nanos(now.as_nanos() as u64)) {
            for change in &decision.changes {
                if let Change::Tenant(tenant) = change {
                    used += u64::from(tenant.request.vms);
                }
            }
            changes.extend(decision.changes);
            tenants += 1;
        }
    }
    let status = ledger.status(tailbound_api::Role::Leader, None);
    Sqlite::open(path)?.commit(&changes)?;
    Ok((used, status.slots))
}

/// Returns the result of the work, and its duration in seconds.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let done = work();
    (done, start.elapsed().as_secs_f64())
}

fn options() -> Result<(Option<String>, Options), Failure> {
    let mut options = Options {
        clients: 8,
        requests: 10_000,
        tenants: 100_000,
        machines: 49.0,
        hosts: None,
        dir: beside()?,
    };
    let name = flags(|flag, value| {
        match flag {
            "--clients" => options.clients = value.parse::<u32>()?.max(1),
            "--requests" => options.requests = value.parse()?,
            "--tenants" => options.tenants = value.parse()?,
            "--machines" => options.machines = value.parse()?,
            "--hosts" => options.hosts = Some(value.parse()?),
            "--dir" => options.dir = value.into(),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok((name, options))
}

/// Returns the peak memory of this process in KB of 1024 bytes; 0 if the system does not report it.
fn peak_memory_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
