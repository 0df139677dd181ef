//! Five workloads of tenants, generated from fixed seeds.

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use tailbound_advise::{Kind, MachineId, Message, Traffic, wire_size};
use tailbound_units::{Bytes, Nanos};

/// A workload with the question of its user.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) question: &'static str,
    pub(crate) traffic: Traffic,
}

struct Generator {
    random: Pcg64Mcg,
    machines: u32,
    messages: Vec<Message>,
}

impl Generator {
    fn new(seed: u64, machines: u32) -> Self {
        Self {
            random: Pcg64Mcg::seed_from_u64(seed),
            machines,
            messages: Vec::new(),
        }
    }

    /// A number above zero and at most 1.
    fn unit(&mut self) -> f64 {
        1.0 - self.random.random::<f64>()
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }

    fn pareto(&mut self, shape: f64, mean: f64) -> f64 {
        let least = mean * (shape - 1.0) / shape;
        least * self.unit().powf(-1.0 / shape)
    }

    fn below(&mut self, most: u32) -> u32 {
        self.random.random_range(0..most)
    }

    /// Another machine than this one.
    fn other(&mut self, machine: u32) -> u32 {
        (machine + 1 + self.below(self.machines - 1)) % self.machines
    }

    /// Adds a message at a time in seconds, of a payload in bytes.
    fn send(&mut self, seconds: f64, from: u32, to: u32, payload: f64) {
        self.messages.push(Message {
            at: Nanos((seconds * 1e9) as u64),
            from: Some(MachineId::new(from)),
            to: Some(MachineId::new(to)),
            wire: wire_size(Bytes(payload as u64)),
            kind: Kind::Data,
        });
    }

    fn done(self, name: &'static str, question: &'static str) -> Workload {
        let names = (0..self.machines).map(|number| format!("vm{number}"));
        Workload {
            name,
            question,
            traffic: Traffic::new(names.collect(), self.messages),
        }
    }
}

/// Sixteen clients of eight caches, with the sizes of Facebook's pool ETC (Atikoglu et al.,
/// *Workload Analysis of a Large-Scale Key-Value Store*, SIGMETRICS 2012, 5).
pub(crate) fn key_value(seed: u64) -> Workload {
    let mut it = Generator::new(seed, 24);
    for client in 0..16 {
        let mut at = 0.0;
        while at < 20.0 {
            at += it.exponential(1.0 / 400.0);
            let server = 16 + it.below(8);
            // Generalized extreme value, and generalized Pareto.
            let key = 30.7984 + 8.20449 / 0.078_688 * ((-it.unit().ln()).powf(-0.078_688) - 1.0);
            let value = 214.476 / 0.348_238 * (it.unit().powf(-0.348_238) - 1.0);
            it.send(at, client, server, key.max(1.0) + 40.0);
            let service = it.exponential(50e-6);
            it.send(at + service, server, client, value.clamp(1.0, 1e6));
        }
    }
    it.done("key-value", "8 KB within 1 ms at 99.99 %")
}

/// Queries of a random machine to all 48 others, which answer together (Alizadeh et al., *Data
/// Center TCP*, SIGCOMM 2010, 2.1).
pub(crate) fn partition_aggregate(seed: u64) -> Workload {
    let mut it = Generator::new(seed, 49);
    let mut at = 0.0;
    while at < 20.0 {
        at += it.exponential(1.0 / 200.0);
        let aggregator = it.below(49);
        for worker in (0..49).filter(|worker| *worker != aggregator) {
            it.send(at, aggregator, worker, 400.0);
            let time = it.exponential(500e-6);
            let answer = 1_000.0 + 2_000.0 * it.unit();
            it.send(at + time, worker, aggregator, answer);
        }
    }
    it.done("partition-aggregate", "8 KB within 1 ms at 99.99 %")
}

/// Small remote calls beside transfers of 1 MB.
pub(crate) fn bulk_and_calls(seed: u64) -> Workload {
    let mut it = Generator::new(seed, 20);
    for machine in 0..20 {
        let mut at = 0.0;
        while at < 20.0 {
            at += it.exponential(1.0 / 300.0);
            let server = it.other(machine);
            it.send(at, machine, server, 1_000.0);
            let service = it.exponential(100e-6);
            it.send(at + service, server, machine, 4_000.0);
        }
        let mut at = 0.0;
        while at < 20.0 {
            at += it.exponential(0.5);
            let to = it.other(machine);
            it.send(at, machine, to, 1e6);
        }
    }
    it.done("bulk-and-calls", "8 KB within 1 ms at 99.99 %")
}

/// Sources with times of activity and of silence that have a heavy tail (Willinger et al.,
/// *Self-Similarity Through High-Variability*, SIGCOMM 1995).
pub(crate) fn on_and_off(seed: u64) -> Workload {
    let mut it = Generator::new(seed, 32);
    for machine in 0..32 {
        let mut at = it.exponential(0.1);
        while at < 40.0 {
            let end = at + it.pareto(1.5, 0.02).min(2.0);
            let to = it.other(machine);
            while at < end {
                it.send(at, machine, to, 4_000.0);
                at += it.exponential(1e-3);
            }
            at = end + it.pareto(1.5, 0.1);
        }
    }
    it.done("on-and-off", "8 KB within 1 ms at 99.99 %")
}

/// The flow sizes of a web search (DCTCP, figure 4), in bytes with their cumulative shares.
const WEB_SEARCH: [(f64, f64); 12] = [
    (1e3, 0.0),
    (6e3, 0.15),
    (13e3, 0.2),
    (19e3, 0.3),
    (33e3, 0.4),
    (53e3, 0.53),
    (133e3, 0.6),
    (667e3, 0.7),
    (1.333e6, 0.8),
    (3.333e6, 0.9),
    (6.667e6, 0.97),
    (20e6, 1.0),
];

/// Flows of a web search between random machines, 0.5 Gbit/s of each machine.
pub(crate) fn web_search(seed: u64) -> Workload {
    let mut it = Generator::new(seed, 20);
    let mut at = 0.0;
    while at < 300.0 {
        at += it.exponential(1.0 / 760.0);
        let place = it.unit();
        let next = WEB_SEARCH.partition_point(|(_, share)| *share < place);
        let ((low, before), (high, share)) = (WEB_SEARCH[next - 1], WEB_SEARCH[next]);
        let size = low + (high - low) * (place - before) / (share - before);
        let from = it.below(20);
        let to = it.other(from);
        it.send(at, from, to, size);
    }
    it.done("web-search", "20 KB within 10 ms at 99.99 %")
}
