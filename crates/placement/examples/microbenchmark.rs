//! How long a decision takes in a full data centre: `cargo run --release -p
//! tailbound-placement --example microbenchmark`.
//!
//! Tenants of Silo's table 3, half of each class, with 49 machines on average
//! (exponential), come until 90 % of the slots are taken. Then some leave
//! whenever it is more, and others come: 100,000 requests, of which only those
//! after the first fill are measured. Arguments: `--hosts N` (100000),
//! `--requests N` (100000), `--policy silo|oktopus|oktopus-bursts|locality`,
//! `--buffer KB` of each port to a host (800), `--bandwidth-b MBIT` of class B
//! (2000), `--fill PERCENT` (90), `--seed N` (1).

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tailbound_placement::{
    AdmitError, Datacentre, Guarantee, NodeId, Policy, Refusal, Request, Spread, TenantId, Uniform,
    UplinkSpec,
};
use tailbound_units::{Bytes, Nanos, Rate};

const MEAN_VMS: f64 = 49.0;
const HOSTS_IN_POD: u32 = 1_000;

struct Options {
    hosts: u32,
    requests: u32,
    policy: Policy,
    buffer_kb: u64,
    bandwidth_b: u64,
    fill: u64,
    seed: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = options()?;
    let started = Instant::now();
    let topology = uniform(&options).spec().build()?;
    let slots = u64::from(topology.resources(NodeId::TOP).slots);
    println!(
        "{} hosts, {slots} slots, {:?}, built in {:.1} s",
        topology.hosts().len(),
        options.policy,
        started.elapsed().as_secs_f64()
    );
    let mut dc = Datacentre::new(topology, options.policy);
    let mut random = Pcg64Mcg::seed_from_u64(options.seed);
    let mut here: Vec<TenantId> = Vec::new();
    let mut next = 0;
    let mut results = Results::default();
    let mut full_at = None;
    while full_at.is_none_or(|full| next < full + u64::from(options.requests)) {
        let used = slots - u64::from(dc.free(NodeId::TOP).slots);
        if full_at.is_none() && (used * 100 >= slots * options.fill || next > 20 * slots / 49) {
            full_at = Some(next);
            results.summary("first fill", used, slots);
            results = Results::default();
        }
        // Whoever leaves is chosen at random.
        while full_at.is_some()
            && (slots - u64::from(dc.free(NodeId::TOP).slots)) * 100 > slots * options.fill
        {
            let leaving = here.swap_remove(random.random_range(0..here.len()));
            let start = Instant::now();
            dc.release(leaving)?;
            results.releases.push(start.elapsed());
        }
        let (class, request) = request(&mut random, &options);
        let id = TenantId(next);
        next += 1;
        let start = Instant::now();
        let answer = dc.admit(id, &request);
        let took = start.elapsed();
        match answer {
            Ok(_) => {
                here.push(id);
                results.admitted[class].push(took);
                results.vms += u64::from(request.vms);
            }
            Err(AdmitError::Refused(refusal)) => {
                results.rejected[class].push(took);
                *results.reasons.entry(reason(&refusal)).or_default() += 1;
            }
            Err(error) => return Err(error.into()),
        }
    }
    let used = slots - u64::from(dc.free(NodeId::TOP).slots);
    results.summary("measured, with churn", used, slots);
    results.print();
    println!("memory: {} MB at most", peak_memory_kb() / 1000);
    Ok(())
}

#[derive(Default)]
struct Results {
    admitted: [Vec<Duration>; 2],
    rejected: [Vec<Duration>; 2],
    releases: Vec<Duration>,
    vms: u64,
    reasons: BTreeMap<&'static str, u64>,
}

impl Results {
    fn summary(&self, what: &str, used: u64, slots: u64) {
        let admitted = self.admitted.iter().map(Vec::len).sum::<usize>();
        println!(
            "{what}: {:.1} % of slots taken, {admitted} admitted of {:.1} machines on average; \
             rejected {:.1} % of A, {:.1} % of B: {:?}",
            100.0 * used as f64 / slots as f64,
            self.vms as f64 / admitted.max(1) as f64,
            self.share(0),
            self.share(1),
            self.reasons,
        );
    }

    fn share(&self, class: usize) -> f64 {
        let rejected = self.rejected[class].len();
        let all = rejected + self.admitted[class].len();
        100.0 * rejected as f64 / all.max(1) as f64
    }

    fn print(self) {
        let [a, b] = self.admitted;
        let [ra, rb] = self.rejected;
        let all: Vec<Duration> = [&a, &b, &ra, &rb].into_iter().flatten().copied().collect();
        println!(
            "                    count       p50       p90       p99     p99.9       max  decisions/s"
        );
        line("admitted", [a, b].concat());
        line("rejected", [ra, rb].concat());
        line("all decisions", all);
        line("releases", self.releases);
    }
}

fn line(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let Some(last) = times.last() else {
        return;
    };
    let total: Duration = times.iter().sum();
    let at = |part: f64| {
        let index = (times.len() as f64 * part) as usize;
        format!(
            "{:.1} us",
            times[index.min(times.len() - 1)].as_secs_f64() * 1e6
        )
    };
    println!(
        "{name:15} {:9} {:>9} {:>9} {:>9} {:>9} {:>9} {:12.0}",
        times.len(),
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        format!("{:.2} ms", last.as_secs_f64() * 1e3),
        times.len() as f64 / total.as_secs_f64(),
    );
}

fn reason(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Slots { .. } => "slots",
        Refusal::Delay { .. } => "delay",
        Refusal::Ports => "ports",
        Refusal::Domains => "domains",
        Refusal::Effort { .. } => "effort",
    }
}

/// Table 3 of Silo: class A asks all of one and gets answers at once, class B
/// moves data.
fn request(random: &mut Pcg64Mcg, options: &Options) -> (usize, Request) {
    let uniform: f64 = random.random();
    let vms = (-MEAN_VMS * (1.0 - uniform).ln())
        .ceil()
        .clamp(1.0, 1_000.0) as u32;
    let class = usize::from(random.random::<bool>());
    let guarantee = [
        Guarantee {
            bandwidth: Rate::from_mbit(250),
            burst: Bytes(15_000),
            delay: Some(Nanos::from_millis(1)),
            burst_rate: Some(Rate::from_mbit(1_000)),
        },
        Guarantee {
            bandwidth: Rate::from_mbit(options.bandwidth_b),
            burst: Bytes(1_500),
            delay: None,
            burst_rate: None,
        },
    ][class];
    let request = Request {
        vms,
        guarantee: Some(guarantee),
        cpu: 0,
        memory: Bytes::ZERO,
        domains: None,
    };
    (class, request)
}

/// Racks of 40 hosts, pods of 25 racks, each five times oversubscribed.
fn uniform(options: &Options) -> Uniform {
    let link = |gbit: u64, links: u32, buffer_kb: u64, up_buffer: Option<Bytes>| UplinkSpec {
        rate: Rate::from_mbit(1_000 * gbit),
        links,
        spread: Spread::Frame,
        buffer: Bytes(1_000 * buffer_kb),
        up_buffer,
    };
    Uniform {
        pods: options.hosts.div_ceil(HOSTS_IN_POD),
        racks: 25,
        hosts: 40,
        slots: 4,
        // The pacer keeps the host's own queue at 50 us.
        host_link: link(10, 1, options.buffer_kb, Some(Bytes(62_500))),
        rack_link: link(40, 2, 500, None),
        pod_link: link(100, 4, 500, None),
        frame: Bytes(1_538),
    }
}

fn options() -> Result<Options, Box<dyn std::error::Error>> {
    let mut options = Options {
        hosts: 100_000,
        requests: 100_000,
        policy: Policy::Silo,
        buffer_kb: 800,
        bandwidth_b: 2_000,
        fill: 90,
        seed: 1,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments
            .next()
            .ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--hosts" => options.hosts = value.parse()?,
            "--requests" => options.requests = value.parse()?,
            "--buffer" => options.buffer_kb = value.parse()?,
            "--bandwidth-b" => options.bandwidth_b = value.parse()?,
            "--fill" => options.fill = value.parse()?,
            "--seed" => options.seed = value.parse()?,
            "--policy" => {
                options.policy = match value.as_str() {
                    "silo" => Policy::Silo,
                    "oktopus" => Policy::Oktopus,
                    "oktopus-bursts" => Policy::OktopusBursts,
                    "locality" => Policy::Locality,
                    _ => return Err(format!("no policy {value:?}").into()),
                };
            }
            _ => return Err(format!("no option {name:?}; see the top of the source").into()),
        }
    }
    Ok(options)
}

/// The most memory that this process ever had, in KB of 1024 bytes; 0 where the
/// system does not say.
fn peak_memory_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
