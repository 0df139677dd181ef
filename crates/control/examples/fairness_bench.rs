//! Benchmark of fairness between owners: the waits of one owner and of health checks, alone and
//! beside another owner at its limits, in a data centre that is nearly full: `make bench-fairness`.
//!
//! The service is a process of its own over an `SQLite` file, with tokens. `--hosts N` (100) hosts of
//! 4 slots are filled until `--full N` (98) percent of the slots are taken. A client of the owner
//! `quiet` admits and deletes a tenant 40 times a second, which is within its rate; another one reads
//! `/healthz` 1,000 times a second. After `--seconds N` (10) alone, there run as long each: 2 clients that `explain` a
//! request that is refused; 16 clients that create it; 16 clients that `fit` it. Each of these has an owner of its own,
//! so that each begins with the whole burst that an owner's rate allows.

mod common;

use common::{Failure, Running, at, beside, flags, uplink};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tailbound_control::server::Authentication;
use tailbound_placement::{Spread, Uniform};
use tailbound_units::Bytes;

/// A load beside the quiet owner.
struct Load {
    name: &'static str,
    /// The owner, and the secret of its token.
    owner: &'static str,
    path: &'static str,
    clients: u32,
}

const LOADS: [Load; 4] = [
    Load {
        name: "alone",
        owner: "greedy-none",
        path: "",
        clients: 0,
    },
    Load {
        name: "2 clients explain",
        owner: "greedy-explain",
        path: "/v1/explain",
        clients: 2,
    },
    Load {
        name: "16 refused creates",
        owner: "greedy-create",
        path: "/v1/tenants",
        clients: 16,
    },
    Load {
        name: "16 clients fit",
        owner: "greedy-fit",
        path: "/v1/fit",
        clients: 16,
    },
];

struct Options {
    seconds: u64,
    hosts: u32,
    full: u64,
    dir: PathBuf,
}

fn main() -> Result<(), Failure> {
    match options()? {
        (true, options) => serve(&options),
        (false, options) => bench(&options),
    }
}

fn tokens() -> String {
    let token = |name: &str, role: &str| {
        let mut hash = String::new();
        for byte in Sha256::digest(name) {
            // Writing to a String does not fail.
            let _ = write!(hash, "{byte:02x}");
        }
        format!("[[token]]\nname = \"{name}\"\n{role}\nsha256 = \"{hash}\"\n")
    };
    let owner = |name: &str| token(name, &format!("role = \"tenant\"\nowner = \"{name}\""));
    token("operator", "role = \"operator\"")
        + &owner("quiet")
        + &LOADS.map(|load| owner(load.owner)).concat()
}

/// Serves until standard input ends. Prints the address first.
fn serve(options: &Options) -> Result<(), Failure> {
    let dir = tempfile::tempdir_in(&options.dir)?;
    let file = dir.path().join("tokens.toml");
    std::fs::write(&file, tokens())?;
    let spec = uniform(options.hosts).spec();
    common::serve(spec, dir.path(), Authentication::Tokens(file), |_| {})
}

/// A caller of the service.
struct Caller<'u> {
    url: &'u str,
    token: &'static str,
    agent: ureq::Agent,
}

impl<'u> Caller<'u> {
    fn new(url: &'u str, token: &'static str) -> Self {
        Self {
            url,
            token,
            agent: common::agent(),
        }
    }

    /// Posts a document, and returns the status and the answer.
    fn post(&self, path: &str, body: &Value) -> Result<(u16, Value), Failure> {
        let request = self.agent.post(format!("{}{path}", self.url));
        let request = request.header("authorization", format!("Bearer {}", self.token));
        let mut answer = request.send_json(body)?;
        Ok((answer.status().as_u16(), answer.body_mut().read_json()?))
    }

    fn delete(&self, id: u64) -> Result<(), Failure> {
        let request = self.agent.delete(format!("{}/v1/tenants/{id}", self.url));
        let request = request.header("authorization", format!("Bearer {}", self.token));
        request.call()?;
        Ok(())
    }
}

fn bench(options: &Options) -> Result<(), Failure> {
    let service = Running::start(options.hosts, &options.dir)?;
    let url = service.url.as_str();
    let (used, slots) = fill(url, options)?;
    println!("{} hosts, {used} of {slots} slots taken", options.hosts);

    for load in LOADS {
        let run = measure(url, &load, options)?;
        let what = load.name;
        println!(
            "{what:18}  creates of another owner {}, {}; healthz {}; greedy {:5.0}/s",
            run.creates.len(),
            percentiles(run.creates, 0.99),
            percentiles(run.health, 0.999),
            run.greedy as f64 / options.seconds as f64,
        );
    }
    service.end().map(drop)
}

/// Admits tenants until the slots are taken, and returns how many of how many are.
fn fill(url: &str, options: &Options) -> Result<(u64, u64), Failure> {
    let operator = Caller::new(url, "operator");
    let mut random = Pcg64Mcg::seed_from_u64(1);
    for number in 0.. {
        let status = operator
            .agent
            .get(format!("{url}/v1/status"))
            .header("authorization", "Bearer operator")
            .call()?
            .body_mut()
            .read_json::<Value>()?;
        let (used, slots) = (&status["used"], &status["slots"]);
        let (Some(used), Some(slots)) = (used.as_u64(), slots.as_u64()) else {
            return Err(format!("the status has no slots: {status}").into());
        };
        if used * 100 >= slots * options.full {
            return Ok((used, slots));
        }
        let vms = random.random_range(1..=(slots - used).clamp(1, 8));
        let body = json!({
            "owner": "others", "name": format!("t{number}"), "vms": vms,
            "guarantee": {"bandwidth": "100Mbit/s", "burst": "3KB", "delay": "2ms", "burst_rate": "1Gbit/s"},
        });
        operator.post("/v1/tenants", &body)?;
        if number > 100_000 {
            return Err(format!("{used} of {slots} slots are as many as can be taken").into());
        }
    }
    unreachable!("the loop has no end but its returns")
}

struct Run {
    creates: Vec<Duration>,
    health: Vec<Duration>,
    greedy: u64,
}

fn measure(url: &str, load: &Load, options: &Options) -> Result<Run, Failure> {
    let (end, greedy) = (AtomicBool::new(false), AtomicU64::new(0));
    let is_over = || end.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        for client in 0..load.clients {
            let (greedy, path) = (&greedy, load.path);
            scope.spawn(move || {
                let caller = Caller::new(url, load.owner);
                for number in 0_u64.. {
                    if is_over() {
                        return Ok::<_, Failure>(());
                    }
                    let mut body = json!({
                        "vms": 49,
                        "guarantee": {"bandwidth": "250Mbit/s", "burst": "15KB", "delay": "1ms", "burst_rate": "1Gbit/s"},
                    });
                    if path == "/v1/tenants" {
                        body["name"] = format!("g{client}-{number}").into();
                    }
                    let (status, _) = caller.post(path, &body)?;
                    if status == 429 {
                        std::thread::sleep(Duration::from_millis(5));
                    } else {
                        greedy.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Ok(())
            });
        }
        let health = scope.spawn(|| health(url, is_over));
        let creates = scope.spawn(|| creates(url, is_over));
        std::thread::sleep(Duration::from_secs(options.seconds));
        end.store(true, Ordering::Relaxed);
        let failed = |_| "a client panicked";
        Ok(Run {
            creates: creates.join().map_err(failed)??,
            health: health.join().map_err(failed)??,
            greedy: greedy.load(Ordering::Relaxed),
        })
    })
}

fn creates(url: &str, is_over: impl Fn() -> bool) -> Result<Vec<Duration>, Failure> {
    let caller = Caller::new(url, "quiet");
    let mut took = Vec::new();
    while !is_over() {
        let body = json!({"name": format!("q{}", took.len()), "vms": 1});
        let begin = Instant::now();
        let (status, answer) = caller.post("/v1/tenants", &body)?;
        match (status, answer["id"].as_u64()) {
            (201, Some(id)) => {
                took.push(begin.elapsed());
                caller.delete(id)?;
            }
            _ => return Err(answer.to_string().into()),
        }
        std::thread::sleep(Duration::from_millis(25).saturating_sub(begin.elapsed()));
    }
    Ok(took)
}

fn health(url: &str, is_over: impl Fn() -> bool) -> Result<Vec<Duration>, Failure> {
    let caller = Caller::new(url, "operator");
    let mut took = Vec::new();
    while !is_over() {
        let begin = Instant::now();
        caller.agent.get(format!("{url}/healthz")).call()?;
        took.push(begin.elapsed());
        std::thread::sleep(Duration::from_millis(1).saturating_sub(begin.elapsed()));
    }
    Ok(took)
}

fn percentiles(mut took: Vec<Duration>, tail: f64) -> String {
    took.sort_unstable();
    let at = |part: f64| at(&took, part);
    format!("p50 {:.2?} p{:.1} {:.2?}", at(0.5), tail * 100.0, at(tail))
}

fn uniform(hosts: u32) -> Uniform {
    let link = |gbit: u64| uplink(gbit, 1, 800, Spread::Flow);
    Uniform {
        pods: hosts.div_ceil(100),
        racks: 5,
        hosts: 20,
        slots: 4,
        host_link: link(10),
        rack_link: link(40),
        pod_link: link(100),
        frame: Bytes(1_538),
    }
}

/// Returns the options, with true if this process is the service.
fn options() -> Result<(bool, Options), Failure> {
    let mut options = Options {
        seconds: 10,
        hosts: 100,
        full: 98,
        dir: beside()?,
    };
    let name = flags(|flag, value| {
        match flag {
            "--seconds" => options.seconds = value.parse()?,
            "--hosts" => options.hosts = value.parse()?,
            "--full" => options.full = value.parse()?,
            "--dir" => options.dir = value.into(),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok((name.is_some(), options))
}
