//! Replicas of the placement service over etcd, amid partitions of one or both directions, pauses, crashes
//! and jumps of clocks: all changes and newest reads are linearizable, and hosts' guarantees do not get old.
//!
//! The judge of histories is not ours: tools/linearizable searches an order by porcupine. The short
//! version runs with all tests; `TAILBOUND_PARTITIONS` has the seconds and `TAILBOUND_PARTITIONS_SEED` the
//! seed of others.

#[path = "place_partitions/clients.rs"]
mod clients;
#[path = "place_partitions/cluster.rs"]
mod cluster;
#[path = "place_partitions/faults.rs"]
mod faults;
#[path = "place_partitions/hosts.rs"]
mod hosts;
#[path = "place_partitions/network.rs"]
mod network;

use clients::{CLIENTS, Client, History};
use cluster::{Cluster, MEMBERS, REPLICAS};
use network::{Network, sandboxed};
use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;
use std::process::{Command, Output};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};
use tailbound_sys::probe::required::{Part, skipped};

/// The host of the beacon. All other tenants are on the other one, which has room for all of them.
const HOST: &str = "beacon";
const TOPOLOGY: &str = r#"
frame = "1538B"
[[host]]
name = "beacon"
slots = 1
uplink = { rate = "100Gbit/s", buffer = "3MB" }
[[host]]
name = "others"
slots = 100000
uplink = { rate = "100Gbit/s", buffer = "3MB" }
"#;
/// The oldest guarantees that a host may have while a replica is good.
const OLDEST: Duration = Duration::from_secs(15);
/// The directory of the judge.
const JUDGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/linearizable");
/// Time limit for the start of all processes.
const START: Duration = Duration::from_mins(1);

#[test]
fn histories_amid_partitions_are_linearizable() {
    let tools = [
        (Part::Etcd, "etcd"),
        (Part::Go, "go"),
        (Part::Openssl, "openssl"),
    ];
    for (part, tool) in tools {
        if let Err(error) = Command::new(tool).arg("version").output() {
            return skipped(part, format!("{tool}: {error}"));
        }
    }
    sandboxed("histories_amid_partitions_are_linearizable", || {
        let seconds = variable("TAILBOUND_PARTITIONS").unwrap_or(15);
        let seed = variable("TAILBOUND_PARTITIONS_SEED").unwrap_or(1);
        run(Duration::from_secs(seconds), seed);
    });
}

#[test]
fn the_judge_of_histories_refuses_wrong_ones() {
    match Command::new("go")
        .args(["test", "."])
        .current_dir(JUDGE)
        .output()
    {
        Ok(output) => assert!(output.status.success(), "{}", text(&output)),
        Err(error) => skipped(Part::Go, format!("go: {error}")),
    }
}

fn variable<T: FromStr>(name: &str) -> Option<T> {
    let value = std::env::var(name).ok()?;
    let Ok(value) = value.parse() else {
        panic!("{name} is {value:?}, which is no whole number");
    };
    Some(value)
}

fn run(time: Duration, seed: u64) {
    let network = Network::new(&[MEMBERS, REPLICAS].concat());
    let mut cluster = Cluster::start(TOPOLOGY);
    await_leader(&cluster);
    let history = History::new();
    let mut keeper = Client::new(CLIENTS, seed, &cluster, &history);
    let beacon = keeper.make_beacon(HOST);
    let (faults, oldest) = thread::scope(|scope| {
        for number in 0..CLIENTS {
            let client = Client::new(number, seed, &cluster, &history);
            scope.spawn(|| client.run());
        }
        let history = &history;
        scope.spawn(|| keeper.shine(&beacon));
        let hosts = [0, 1, 2].map(|first| {
            let follower = hosts::Follower::new(HOST, first, &cluster);
            scope.spawn(move || follower.run(history))
        });
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let faults = faults::during(time, &network, &mut cluster, &mut random);
        history.end();
        let ages = hosts.map(|host| host.join().unwrap());
        (faults, ages.into_iter().max().unwrap())
    });
    let (operations, open) = history.count();
    let verdict = judge(&history);
    eprintln!(
        "{} s, seed {seed}: {faults}; {operations} operations, {open} without an answer; hosts' guarantees at \
         most {:.1} s old; {}",
        time.as_secs(),
        oldest.as_secs_f64(),
        verdict.as_ref().unwrap_or_else(|wrong| wrong),
    );
    assert!(verdict.is_ok(), "not linearizable: {}", cluster.log());
    assert!(oldest <= OLDEST, "{oldest:?} old: {}", cluster.log());
    assert!(operations > 50, "too few operations: {}", cluster.log());
}

/// Waits until a replica leads.
fn await_leader(cluster: &Cluster) {
    let agent = clients::agent(cluster);
    let end = Instant::now() + START;
    let leads = |url: String| {
        let request = agent.get(format!("{url}/v1/status"));
        let request = request.header("authorization", cluster.authorization());
        let answer = request.call().ok()?.body_mut().read_to_string().ok()?;
        answer.contains(r#""role":"leader""#).then_some(())
    };
    while !REPLICAS
        .iter()
        .any(|replica| leads(Cluster::url(*replica)).is_some())
    {
        assert!(Instant::now() < end, "no replica leads: {}", cluster.log());
        thread::sleep(Duration::from_millis(50));
    }
}

/// Has porcupine judge a history. Returns its last words; an error if there is no order.
fn judge(history: &History) -> Result<String, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), history.text()).unwrap();
    let output = Command::new("go")
        .args(["run", "."])
        .arg(file.path())
        .current_dir(JUDGE)
        .output()
        .unwrap();
    let text = text(&output);
    if output.status.success() {
        Ok(text)
    } else {
        Err(text)
    }
}

/// Returns the output of a command.
fn text(output: &Output) -> String {
    let printed = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&printed).trim().to_owned()
}
