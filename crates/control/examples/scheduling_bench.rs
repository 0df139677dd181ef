//! Benchmark of the operations for outside schedulers: `cargo run --release -p tailbound-control
//! --example scheduling_bench`.
//!
//! Tenants are those of Silo's table 3, half of each class, of exponential size, in racks of 40
//! hosts and pods of 25 racks. Two measurements:
//!
//! - `candidates`: `--questions N` (1000) questions for 100 hosts each, of `--hosts N` (100000) that
//!   have `--tenants N` (5000) tenants of 49 machines on average. Half of the questions are for one
//!   more machine of a tenant, half for a tenant that does not exist yet. CPU time of the thread.
//! - `adopt`: `--guests N` (100000) guests in tenants of 5 machines on average are placed, written as
//!   a request, and adopted by a new service with a file. Then the file is audited. Elapsed time.
//!
//! Without a name both run. The file is in `--dir DIR`, by default beside this program.

mod common;

use common::{Failure, TempFile, at, beside, flags, millis, tenant};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rustix::time::{ClockId, clock_gettime};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tailbound_api::{
    CandidateQuestion, CandidateQuestions, MAX_OPERATIONS, NewTenant, PinnedHost, TenantRef,
};
use tailbound_control::audit::audit;
use tailbound_control::ledger::{Call, Command, Ledger, Reply, candidates};
use tailbound_control::service::Service;
use tailbound_control::store::{Sqlite, Store as _};
use tailbound_placement::{Policy, Spread, TenantId};
use tailbound_units::Nanos;

/// The number of hosts of a question.
const ASKED: usize = 100;
/// The wanted CPU time of a question, at the 99th percentile.
const WANTED_P99: Duration = Duration::from_millis(2);
/// The wanted time of an adoption of 100,000 guests.
const WANTED_ADOPTION: Duration = Duration::from_secs(10);

struct Options {
    hosts: u32,
    tenants: usize,
    questions: usize,
    guests: u64,
    dir: PathBuf,
}

fn main() -> Result<(), Failure> {
    let (name, options) = options()?;
    match name.as_deref() {
        Some("candidates") => ask(&options),
        Some("adopt") => adopt(&options),
        None => {
            ask(&options)?;
            adopt(&options)
        }
        Some(name) => Err(format!("no measurement {name:?}; see the top of the source").into()),
    }
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn ask(options: &Options) -> Result<(), Failure> {
    let (mut ledger, _) = Ledger::new(common::spec(options.hosts, Spread::Frame), Policy::Silo)?;
    let mut random = Pcg64Mcg::seed_from_u64(1);
    for number in 0..options.tenants {
        let new = tenant(&mut random, &format!("web-{number}"), 49.0, 1);
        let _ = ledger.decide(&Call::of_service(Command::Create(new)), Nanos(1));
    }
    let last = ledger.last_change();
    let names: Vec<String> = (ledger.datacentre().topology().hosts().iter())
        .map(|host| ledger.datacentre().topology().name(*host).to_owned())
        .collect();
    let service = Service::start(ledger, |_| {});
    let (mut times, mut fits) = (Vec::new(), 0);
    for number in 0..options.questions {
        let hosts = (0..ASKED).map(|_| names[random.random_range(0..names.len())].clone());
        let hosts: Vec<String> = hosts.collect();
        let id = TenantId(random.random_range(1..=last));
        let exists = number % 2 == 0 && service.read(|ledger| ledger.tenant(id).is_some());
        let question = CandidateQuestion {
            tenant: exists.then_some(TenantRef::Id(id)),
            request: (!exists).then(|| tenant(&mut random, "new", 49.0, 1).request()),
            vms: 1,
            hosts: Some(hosts),
        };
        let questions = CandidateQuestions {
            requests: vec![question],
        };
        let begin = cpu_time();
        let found = service.question(|ledger| candidates(ledger, None, &questions))?;
        // The first question copies the ledger.
        if number > 0 {
            times.push(cpu_time().saturating_sub(begin));
        }
        let candidates = found.answers.iter().flat_map(|answer| &answer.candidates);
        fits += candidates.filter(|candidate| candidate.fits).count();
    }
    times.sort_unstable();
    println!(
        "candidates: {ASKED} of {} hosts: p50 {:.3} ms, p99 {:.3} ms (wanted: at most {:.0} ms for \
         100 of 100000), longest {:.3} ms of CPU; {fits} of {} fit",
        names.len(),
        millis(at(&times, 0.5)),
        millis(at(&times, 0.99)),
        millis(WANTED_P99),
        millis(at(&times, 1.0)),
        options.questions * ASKED,
    );
    Ok(())
}

fn adopt(options: &Options) -> Result<(), Failure> {
    let (mut placed, _) = Ledger::new(common::spec(options.hosts, Spread::Frame), Policy::Silo)?;
    let mut random = Pcg64Mcg::seed_from_u64(2);
    let (mut tenants, mut guests) = (Vec::new(), 0);
    while guests < options.guests {
        let new = tenant(&mut random, &format!("web-{}", tenants.len()), 5.0, 1);
        let call = Call::of_service(Command::Create(new.clone()));
        if let Ok(decision) = placed.decide(&call, Nanos(1))
            && let Reply::Tenant(tenant) = decision.reply
        {
            guests += u64::from(new.vms);
            let placement = tenant.runs.iter().map(|run| PinnedHost {
                host: run.host.to_string(),
                vms: run.count,
            });
            tenants.push(NewTenant {
                placement: placement.collect(),
                ..new
            });
        }
    }
    let file = TempFile::new(&options.dir, "adopt");
    let (ledger, changes) = Ledger::new(common::spec(options.hosts, Spread::Frame), Policy::Silo)?;
    let mut store = Sqlite::open(&file.0)?;
    store.commit(&changes)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()?;
    let service = Service::start(ledger, |_| {});
    let on_end = Box::new(|error| eprintln!("{error}"));
    runtime.block_on(service.lead(Box::new(store), on_end))?;
    let begin = Instant::now();
    let (mut adopted, mut misfits) = (0, 0);
    for some in tenants.chunks(MAX_OPERATIONS) {
        let call = Call::of_service(Command::Adopt(some.to_vec()));
        if let Reply::Adopted(report) = runtime.block_on(service.call(call))? {
            adopted += report.adopted;
            misfits += report.misfits.len();
        }
    }
    let took = begin.elapsed();
    runtime.block_on(service.follow())?;
    let snapshot = Sqlite::open_existing(&file.0)?.load()?;
    let report = audit(&snapshot);
    println!(
        "adopt: {guests} guests in {adopted} tenants in {:.2} s (wanted: at most {:.0} s for 100000), \
         {misfits} misfits; audit: {} machines, {} ports, {} findings (wanted: 0)",
        took.as_secs_f64(),
        WANTED_ADOPTION.as_secs_f64(),
        report.vms,
        report.ports,
        report.findings.len(),
    );
    Ok(())
}

fn options() -> Result<(Option<String>, Options), Failure> {
    let mut options = Options {
        hosts: 100_000,
        tenants: 5_000,
        questions: 1_000,
        guests: 100_000,
        dir: beside()?,
    };
    let name = flags(|flag, value| {
        match flag {
            "--hosts" => options.hosts = value.parse()?,
            "--tenants" => options.tenants = value.parse()?,
            "--questions" => options.questions = value.parse()?,
            "--guests" => options.guests = value.parse()?,
            "--dir" => options.dir = value.into(),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok((name, options))
}
