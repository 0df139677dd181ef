//! Workloads of hosts: senders, receivers, lengths and times of messages.

use super::peers::Peers;
use super::rounds::Rounds;
use super::sizes::{self, Kind, Sizes};
use super::streams::Streaming;
use super::talks::Talking;
use super::trace::Replaying;
use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;
use tailbound_experiment::Section;
use tailbound_units::{Bytes, Nanos};

/// Workload: one-way messages at random times.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flows {
    /// Mean interval of a host's messages (Poisson).
    pub every: Nanos,
    /// Lengths of the messages.
    pub sizes: Sizes,
    /// Peers of a host.
    #[serde(default)]
    pub peers: Peers,
    /// A connection per message, open from the start.
    #[serde(default)]
    pub own_connections: bool,
}

/// Workload: questions and answers at random times.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queries {
    /// Mean interval of a host's questions (Poisson).
    pub every: Nanos,
    /// Length of a question.
    pub question: Bytes,
    /// Lengths of the answers.
    pub answer: Sizes,
    /// Peers of a host.
    #[serde(default)]
    pub peers: Peers,
}

/// Workload: simultaneous bursts of all hosts to the first.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bursts {
    /// Interval of bursts.
    pub every: Nanos,
    /// Bytes per host.
    pub size: Bytes,
}

/// One of the workloads of an experiment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Load {
    Flows(Flows),
    Queries(Queries),
    Bursts(Bursts),
}

/// State of a workload.
#[derive(Debug)]
pub(super) enum Workload {
    /// Messages of hosts.
    Hosts(HostsLoad),
    /// Rounds of tenants.
    Tenants(Rounds),
    /// Talks of guests.
    Talks(Talking),
    /// Streams of a constant rate.
    Streams(Streaming),
    /// Messages of a file.
    Trace(Replaying),
}

/// State of the hosts' messages.
#[derive(Debug, Clone)]
pub(super) struct HostsLoad {
    load: Load,
    /// Connections that each host opens, by their first end.
    opened: Vec<Vec<u32>>,
    random: Pcg64Mcg,
    next: Nanos,
    /// End of the time in which messages begin.
    until: Nanos,
}

/// Shortest interval between messages that the checks accept.
const MIN_MESSAGE_INTERVAL: Nanos = Nanos(1_000);

fn check_every(every: Nanos, section: &mut Section<'_>) {
    section.range("every", every, MIN_MESSAGE_INTERVAL..=Nanos::from_secs(60));
}

impl Load {
    /// Checks the workload; `section` is its own.
    pub(super) fn check(&self, hosts: usize, section: &mut Section<'_>) {
        match self {
            Self::Flows(flows) => {
                check_every(flows.every, section);
                flows.sizes.check("sizes", section);
                flows.peers.check(hosts, section);
            }
            Self::Queries(queries) => {
                check_every(queries.every, section);
                section.range("question", queries.question, Bytes(1)..=Bytes(100_000_000));
                queries.answer.check("answer", section);
                queries.peers.check(hosts, section);
            }
            Self::Bursts(bursts) => {
                check_every(bursts.every, section);
                section.range("size", bursts.size, Bytes(1)..=Bytes(100_000_000));
            }
        }
    }

    /// Returns the key of the workload in an experiment.
    pub(super) const fn key(&self) -> &'static str {
        match self {
            Self::Flows(_) => "flows",
            Self::Queries(_) => "queries",
            Self::Bursts(_) => "bursts",
        }
    }

    /// Returns all connections: sending and receiving host.
    pub(super) fn connections(&self, hosts: usize, random: &mut Pcg64Mcg) -> Vec<(usize, usize)> {
        match self {
            Self::Flows(flows) => flows.peers.connections(hosts, random),
            Self::Queries(queries) => queries.peers.connections(hosts, random),
            Self::Bursts(_) => (1..hosts).map(|host| (host, 0)).collect(),
        }
    }

    /// Average rate of each host, in bits a second.
    pub(super) fn rate(&self, hosts: usize) -> f64 {
        let (every, size) = match self {
            Self::Flows(it) => (it.every, it.sizes.mean()),
            Self::Queries(it) => (it.every, it.question.0 as f64 + it.answer.mean()),
            Self::Bursts(it) => {
                let part = (hosts - 1) as f64 / hosts as f64;
                (it.every, it.size.0 as f64 * part)
            }
        };
        8.0 * size / every.as_secs_f64()
    }
}

impl Workload {
    /// Returns the time of the next message.
    pub(super) fn next_at(&self) -> Nanos {
        match self {
            Self::Hosts(load) => load.next,
            Self::Tenants(rounds) => rounds.next_at(),
            Self::Talks(talking) => talking.next_at(),
            Self::Streams(streaming) => streaming.next_at(),
            Self::Trace(replaying) => replaying.next_at(),
        }
    }

    /// Returns the messages that begin now: connection, kind and length.
    pub(super) fn begin(&mut self, begun: &mut Vec<(u32, Kind, u64)>) {
        match self {
            Self::Hosts(load) => load.begin(begun),
            Self::Tenants(rounds) => {
                rounds.begin(|end, size| begun.push((end, Kind::Flow, size)));
            }
            Self::Talks(talking) => talking.begin(begun),
            Self::Streams(streaming) => {
                let (end, size) = streaming.begin();
                begun.push((end, Kind::Flow, size));
            }
            Self::Trace(replaying) => replaying.begin(begun),
        }
    }

    /// True if each message has a connection of its own.
    pub(super) fn has_own_connections(&self) -> bool {
        match self {
            Self::Hosts(load) => matches!(load.load, Load::Flows(it) if it.own_connections),
            Self::Trace(replaying) => replaying.has_own_connections,
            Self::Tenants(_) | Self::Talks(_) | Self::Streams(_) => false,
        }
    }

    /// Handles the completion of a message of an owner.
    pub(super) fn end(&mut self, now: Nanos, owner: u32) {
        match self {
            Self::Hosts(_) | Self::Streams(_) | Self::Trace(_) => {}
            Self::Tenants(rounds) => rounds.end(now, owner),
            Self::Talks(talking) => talking.end(now, owner),
        }
    }
}

impl HostsLoad {
    /// Returns a workload that begins at time 0 and ends at `until`; `opened` are the connections
    /// of each host.
    pub(super) fn new(load: Load, opened: Vec<Vec<u32>>, until: Nanos, random: Pcg64Mcg) -> Self {
        let mut workload = Self {
            load,
            opened,
            random,
            next: Nanos::ZERO,
            until,
        };
        workload.plan();
        workload
    }

    fn plan(&mut self) {
        let hosts = self.opened.len() as f64;
        let pause = match self.load {
            // For all hosts together, which is a Poisson process, too.
            Load::Flows(Flows { every, .. }) | Load::Queries(Queries { every, .. }) => {
                sizes::pause(&mut self.random, every.0 as f64 / hosts)
            }
            Load::Bursts(bursts) => bursts.every.0,
        };
        self.next = self.next.saturating_add(Nanos(pause));
        if self.next >= self.until {
            self.next = Nanos::MAX;
        }
    }

    fn begin(&mut self, begun: &mut Vec<(u32, Kind, u64)>) {
        match self.load {
            Load::Flows(flows) => {
                let size = flows.sizes.draw(&mut self.random);
                begun.push((self.draw(), Kind::Flow, size));
            }
            Load::Queries(queries) => {
                let answer = queries.answer.draw(&mut self.random);
                begun.push((self.draw(), Kind::Question(answer), queries.question.0));
            }
            Load::Bursts(bursts) => {
                let all = self.opened.iter().flatten();
                begun.extend(all.map(|end| (*end, Kind::Flow, bursts.size.0)));
            }
        }
        self.plan();
    }

    /// Draws one of the connections.
    fn draw(&mut self) -> u32 {
        let host = self.random.random_range(0..self.opened.len());
        let opened = &self.opened[host];
        opened[self.random.random_range(0..opened.len())]
    }
}
