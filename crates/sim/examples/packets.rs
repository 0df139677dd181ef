//! Packet events per second of the simulator of messages on one core: an event is a frame whose
//! transmission over one link ends. Seconds are CPU time of this thread, as the kernel counts it,
//! so that other load on the computer has little influence.
//!
//! `cargo run --release -p tailbound-sim --example packets`

use std::fs;
use std::time::Duration;
use tailbound_experiment::{Loaded, Source};
use tailbound_sim::packets::{Messages, PacketsExperiment};

/// Number of runs; each figure is the best of them.
const RUNS: usize = 3;

/// 16 hosts at one switch, at half of their links.
const STAR: &str = r#"
duration = "500ms"
star = { hosts = 16, link = { rate = "1Gbit/s", delay = "20us" } }
flows = { every = "27ms", sizes = { empirical = "web-search" } }
"#;

/// 1,024 hosts in a fat tree, each with 16 peers, at a third of their links.
const TREE: &str = r#"
duration = "20ms"
flows = { every = "6ms", sizes = { pareto = { shape = 1.2, mean = "250KB", most = "1MB" } }, peers = { some = 16 } }
[messages.fat_tree]
pods = 16
edges = 8
hosts = 8
aggregations = 8
cores = 8
host = { rate = "1Gbit/s", delay = "5us" }
edge = { rate = "1Gbit/s", delay = "5us" }
core = { rate = "1Gbit/s", delay = "5us" }
"#;

const TRANSPORTS: [(&str, &str); 3] = [
    ("NewReno", "congestion = \"newreno\""),
    ("CUBIC", "congestion = \"cubic\""),
    ("DCTCP", "congestion = \"dctcp\""),
];

fn main() {
    println!(
        "{:<14} {:<8} {:>12} {:>8} {:>8} {:>12} {:>8}",
        "network", "TCP", "events", "lost", "s", "M events/s", "B/packet"
    );
    for (network, text) in [("star of 16", STAR), ("tree of 1,024", TREE)] {
        for (name, transport) in TRANSPORTS {
            let messages = messages(text, transport);
            let (mut least, mut totals) = (Duration::MAX, None);
            for _ in 0..RUNS {
                let start = on_the_cpu();
                let outcome = messages
                    .simulate(&messages.setting[0], 1)
                    .expect("no tenants");
                least = least.min(on_the_cpu().saturating_sub(start));
                totals = Some(outcome.totals);
            }
            let Some(totals) = totals else { continue };
            let seconds = least.as_secs_f64();
            println!(
                "{network:<14} {name:<8} {:>12} {:>8} {seconds:>8.3} {:>12.2} {:>8.0}",
                totals.packets,
                totals.dropped,
                totals.packets as f64 / seconds / 1e6,
                totals.memory as f64 / totals.flying.max(1) as f64,
            );
        }
    }
}

/// Returns the CPU time of this thread.
fn on_the_cpu() -> Duration {
    let told = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = told.split_whitespace().next();
    Duration::from_nanos(nanos.and_then(|it| it.parse().ok()).unwrap_or_default())
}

fn messages(text: &str, transport: &str) -> Messages {
    let source = Source {
        file: "packets".to_owned(),
        text: format!(
            r#"
name = "packets"
title = "packets"
source = "nowhere"
[messages]
{text}
[[messages.setting]]
name = "one"
transport = {{ {transport}, least_timeout = "10ms", delayed_ack = "1ms" }}
switches = {{ buffer = "375KB", mark_at = "30KB" }}
"#
        ),
    };
    let loaded = Loaded::<PacketsExperiment>::parse(&source);
    let loaded = loaded.unwrap_or_else(|error| panic!("{error}"));
    loaded.experiment.messages.expect("they are there")
}
