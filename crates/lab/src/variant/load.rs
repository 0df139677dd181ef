//! Starts the load of a variant: servers first, then their clients.

mod paced;

use super::probe::UNINTERRUPTED;
use super::{GRACE, Late, Load, Output, Role, Run, Source};
use crate::LabError;
use crate::arrivals::seed_for;
use crate::cpus::l2_size;
use crate::experiment::{Bulk, BulkTool, Hog, Ping, PingTool, Query, QueryTool, Wakeup};
use crate::guest::{self, Protocol, Task, Work};
use crate::processes::{Rank, Ready, Start};
use crate::tools;
use crate::topology::{Guest, namespace_path};
use crate::vm::Asked;
use std::collections::BTreeSet;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use tailbound_experiment::Name;
use tailbound_sys::sched::Policy;
use tailbound_units::{Bytes, Nanos};

/// TCP's initial window: ten segments (RFC 6928).
const INITIAL_WINDOW: Bytes = Bytes(10 * 1448);
/// Output of `tailbound probe serve` when it is ready.
const SERVING: &str = "serving on";
/// Maximum of the passages of a request with an answer of at most that size through a thread: the
/// opening of a connection, if no connection is free, and the request itself, each in both
/// directions.
const PASSAGES: usize = 4;

impl<'a> Run<'a> {
    /// Starts servers, then clients.
    pub(super) fn start_load(&mut self) -> Result<(), LabError> {
        let (experiment, variant) = (self.context.experiment, self.variant);
        // Clients connect when they start: every server must be ready before. Servers of iperf3
        // start with the load.
        let first = self.daemons.len();
        let mut queries = Vec::new();
        for query in variant.running(&experiment.query) {
            queries.push((query, self.start_servers(query)?));
        }
        let mut bulks = Vec::new();
        for bulk in variant.running(&experiment.bulk) {
            bulks.push((bulk, self.start_receiver(bulk)?));
        }
        let mut etcs = Vec::new();
        for etc in variant.running(&experiment.etc) {
            etcs.push((etc, self.start_memcached(&etc.server)?));
        }
        self.start_nodes()?;
        self.supervisor.wait_ready(first)?;
        for (etc, server) in etcs {
            self.start_etc(etc, server)?;
        }
        for shuffle in variant.running(&experiment.shuffle) {
            self.start_shuffle(shuffle)?;
        }
        for (query, servers) in queries {
            self.start_query(query, &servers)?;
        }
        for (bulk, to) in bulks {
            self.start_sender(bulk, to)?;
        }
        for ping in variant.running(&experiment.ping) {
            self.start_ping(ping)?;
        }
        for hog in variant.running(&experiment.hog) {
            self.start_hogs(hog)?;
        }
        for wakeup in variant.running(&experiment.wakeup) {
            self.start_wakeup(wakeup)?;
        }
        self.start_traffic()?;
        self.start_probes()?;
        self.start_workflows()?;
        self.supervisor.wait_ready(first)
    }

    pub(super) fn guest(&self, name: &Name) -> Result<&'a Guest, LabError> {
        let guest = self.context.topology.guest(name.get_ref());
        guest.ok_or_else(|| LabError::io("the plan")(std::io::ErrorKind::NotFound.into()))
    }

    /// Returns the guests of the experiment's first series: a query's client and servers, memcached
    /// and its clients, or the two ends of a ping or of messages.
    pub(super) fn about(&self) -> impl Iterator<Item = &'a Guest> {
        let experiment = self.context.experiment;
        let variant = self.variant;
        let names: Vec<&Name> = if let Some(query) = variant.running(&experiment.query).next() {
            std::iter::once(&query.client)
                .chain(&query.servers)
                .collect()
        } else if let Some(etc) = variant.running(&experiment.etc).next() {
            std::iter::once(&etc.server).chain(&etc.clients).collect()
        } else if let Some(ping) = variant.running(&experiment.ping).next() {
            vec![&ping.from, &ping.to]
        } else if let Some(message) = variant.running(&experiment.message).next() {
            message.from.iter().chain(&message.to).collect()
        } else if let Some(transfer) = variant.running(&experiment.transfer).next() {
            vec![&transfer.from, &transfer.to]
        } else if let Some(rtp) = variant.running(&experiment.rtp).next() {
            vec![&rtp.from, &rtp.to]
        } else if let Some(nodes) = experiment.nodes.as_ref() {
            std::iter::once(&nodes.client)
                .chain(&nodes.guests)
                .collect()
        } else {
            Vec::new()
        };
        let topology = self.context.topology;
        names
            .into_iter()
            .filter_map(|name| topology.guest(name.get_ref()))
    }

    pub(super) fn port(&mut self) -> u16 {
        self.next_port += 1;
        self.next_port - 1
    }

    pub(super) fn shares_core(&self, guest: &Guest) -> bool {
        let shared = self.context.experiment.shared_core.as_ref();
        shared.is_some_and(|shared| shared.guests.iter().any(|g| *g.get_ref() == guest.name))
    }

    /// Starts a program in a guest.
    pub(super) fn start(
        &mut self,
        guest: &'a Guest,
        what: &str,
        asked: Asked,
        role: Role,
    ) -> Result<usize, LabError> {
        let (program, args) = self.command(guest, asked)?;
        let cpus = &self.context.session.cpus;
        let is_about = self.about().any(|other| other == guest);
        let is_machine = self.machines.contains_key(guest.name.as_str());
        let (cpus, rank) = match (self.shares_core(guest), role) {
            // It stands for a process in the VM.
            _ if is_machine => (cpus.others, Rank::Tested),
            (_, Role::Watches) => (cpus.shared(), Rank::Monitor),
            (_, Role::Floods) | (true, _) => (cpus.shared(), Rank::Tested),
            // memcached waits for requests and never spins. Without a class of its own it would
            // starve beside processes that have one.
            (false, Role::Measures | Role::Serves | Role::Foreign { ends: false }) if is_about => {
                (cpus.others, Rank::OnPath)
            }
            (false, Role::Measures) => (cpus.others, Rank::Infrastructure),
            (false, Role::Serves) => (cpus.others, Rank::Load),
            (
                false,
                Role::Node { .. }
                | Role::Computes { .. }
                | Role::Monopolizes
                | Role::Foreign { .. },
            ) => (cpus.others, Rank::Tested),
        };
        let place = self.supervisor.start(Start {
            name: format!("guest {}'s {what}", guest.name),
            program,
            args,
            netns: &guest.name,
            cpus,
            policy: match role {
                Role::Monopolizes if !is_machine => Some(UNINTERRUPTED),
                Role::Node { .. } if self.context.session.real_time => Some(UNINTERRUPTED),
                Role::Computes { nice: nice @ 1.. } if !is_machine => Some(Policy::Share {
                    nice: i32::from(nice),
                    slice: Nanos::ZERO,
                }),
                _ => self.context.session.policy(rank),
            },
            ready: match role {
                Role::Foreign { .. } => Ready::Silent,
                Role::Node { ends: false } => Ready::Stdout(SERVING),
                _ => Ready::Stdout(guest::READY),
            },
            ends: matches!(
                role,
                Role::Measures
                    | Role::Watches
                    | Role::Node { ends: true }
                    | Role::Foreign { ends: true }
            ),
        })?;
        // A node's probe ends before any sample counts.
        if !is_machine && !matches!(role, Role::Node { ends: true }) {
            self.inside.entry(&guest.name).or_default().push(place);
        }
        Ok(place)
    }

    /// Starts one of our own tasks in a guest; returns its index and the path of its outcome.
    pub(super) fn start_task(
        &mut self,
        guest: &'a Guest,
        what: &str,
        work: Work,
        role: Role,
    ) -> Result<(usize, PathBuf), LabError> {
        let (path, outcome) = self.write_task(work)?;
        let place = self.start(guest, what, Asked::Task(path), role)?;
        Ok((place, outcome))
    }

    /// Writes a task; returns the paths of the task and of its outcome.
    pub(super) fn write_task(&mut self, work: Work) -> Result<(PathBuf, PathBuf), LabError> {
        self.tasks += 1;
        let file = |extension: &str| {
            let name = format!(
                "{}-task{}.{extension}",
                self.variant.name.get_ref(),
                self.tasks
            );
            self.context.session.directory().join(name)
        };
        let (path, outcome) = (file("task.json"), file("outcome.json"));
        // The outcome of an earlier repeat.
        let _ = std::fs::remove_file(&outcome);
        let task = Task {
            work,
            warmup: self.context.experiment.warmup,
            duration: self.duration(),
            grace: GRACE,
            outcome: outcome.clone(),
        };
        task.write(&path)?;
        Ok((path, outcome))
    }

    fn start_servers(&mut self, query: &'a Query) -> Result<Vec<(SocketAddrV4, usize)>, LabError> {
        let mut servers = Vec::new();
        for name in &query.servers {
            servers.push(match query.tool {
                QueryTool::Own => {
                    let guest = self.guest(name)?;
                    let port = self.port();
                    let work = Work::Server { port };
                    let (place, outcome) = self.start_task(guest, "server", work, Role::Serves)?;
                    self.servers.entry(&guest.name).or_default().push(outcome);
                    (SocketAddrV4::new(guest.ip, port), place)
                }
                QueryTool::Memcached => self.start_memcached(name)?,
            });
        }
        Ok(servers)
    }

    fn start_query(
        &mut self,
        query: &'a Query,
        servers: &[(SocketAddrV4, usize)],
    ) -> Result<(), LabError> {
        let guest = self.guest(&query.client)?;
        let work = Work::Query(guest::Queries {
            servers: servers.iter().map(|(address, _)| *address).collect(),
            protocol: match query.tool {
                QueryTool::Own => Protocol::Own,
                QueryTool::Memcached => Protocol::Memcached,
            },
            answer: query.answer,
            mean_gap: query.gap(self.context.experiment.link_rate),
            connections: query.connections,
            seed: seed_for(self.context.seed, query.name.get_ref()),
        });
        let what = format!("client of {}", query.name.get_ref());
        let (place, outcome) = self.start_task(guest, &what, work, Role::Measures)?;
        let mut on_path = self.daemons_of(std::iter::once(&query.client).chain(&query.servers));
        on_path.extend(self.unless_tested(guest, place));
        for (name, (_, server)) in query.servers.iter().zip(servers) {
            on_path.extend(self.unless_tested(self.guest(name)?, *server));
        }
        let series = Output::Series(query.series.clone());
        let passages = (query.answer <= INITIAL_WINDOW).then_some(PASSAGES);
        self.requests(series, Source::Own(vec![outcome]), on_path, passages);
        Ok(())
    }

    /// Returns the daemons of these guests' hosts.
    pub(super) fn daemons_of<'n>(&self, guests: impl Iterator<Item = &'n Name>) -> Vec<usize> {
        let hosts: BTreeSet<&str> = guests
            .filter_map(|name| self.context.topology.guest(name.get_ref()))
            .map(|guest| guest.host.as_str())
            .collect();
        let daemons = hosts.into_iter().filter_map(|host| self.daemons.get(host));
        daemons.copied().collect()
    }

    /// Returns the child, unless its wait for a CPU is the subject of the measurement: it shares
    /// its core with computing guests in this variant.
    pub(super) fn unless_tested(&self, guest: &Guest, place: usize) -> Option<usize> {
        let mut hogs = self.variant.running(&self.context.experiment.hog);
        let contended = hogs.any(|hog| {
            let mut guests = hog.guests.iter().filter_map(|name| self.guest(name).ok());
            guests.any(|guest| self.shares_core(guest))
        });
        (!contended || !self.shares_core(guest)).then_some(place)
    }

    /// Adds a running load.
    pub(super) fn load(&mut self, output: Output, source: Source, on_path: Vec<usize>) {
        self.requests(output, source, on_path, None);
    }

    /// Adds a running load whose samples pass each child at most `passages` times.
    pub(super) fn requests(
        &mut self,
        output: Output,
        source: Source,
        on_path: Vec<usize>,
        passages: Option<usize>,
    ) {
        self.loads.push(Load {
            output,
            source,
            on_path,
            passages,
        });
    }

    fn start_receiver(&mut self, bulk: &'a Bulk) -> Result<(SocketAddrV4, PathBuf), LabError> {
        let guest = self.guest(&bulk.to)?;
        let port = self.port();
        let outcome = match bulk.tool {
            BulkTool::Own => {
                let work = Work::BulkReceiver { port };
                self.start_task(guest, "bulk receiver", work, Role::Serves)?
                    .1
            }
            BulkTool::Iperf3 => {
                let words = tools::iperf3_server(port);
                let role = Role::Foreign { ends: true };
                self.start(guest, "iperf3 server", Asked::Program(words), role)?;
                PathBuf::new()
            }
        };
        Ok((SocketAddrV4::new(guest.ip, port), outcome))
    }

    fn start_sender(
        &mut self,
        bulk: &'a Bulk,
        (to, outcome): (SocketAddrV4, PathBuf),
    ) -> Result<(), LabError> {
        let guest = self.guest(&bulk.from)?;
        let experiment = self.context.experiment;
        let source = match bulk.tool {
            BulkTool::Own => {
                let work = Work::BulkSender { to };
                self.start_task(guest, "bulk sender", work, Role::Serves)?;
                Source::Own(vec![outcome])
            }
            BulkTool::Iperf3 => {
                let receiver = self.guest(&bulk.to)?;
                let (warmup, duration) = (experiment.warmup, experiment.duration);
                self.late.push(Late {
                    load: self.loads.len(),
                    guest,
                    program: "iperf3",
                    args: tools::iperf3_client(receiver, to.port(), warmup, duration),
                });
                Source::Iperf3(usize::MAX)
            }
        };
        self.load(
            Output::Value(bulk.value.clone(), "bit/s"),
            source,
            Vec::new(),
        );
        if let Some(value) = &bulk.cpu_value {
            let daemon = Source::Daemon(guest.host.clone());
            self.load(Output::Value(value.clone(), "%"), daemon, Vec::new());
        }
        Ok(())
    }

    fn start_ping(&mut self, ping: &'a Ping) -> Result<(), LabError> {
        let (from, to) = (self.guest(&ping.from)?, self.guest(&ping.to)?);
        let mut on_path = self.daemons_of([&ping.from, &ping.to].into_iter());
        let experiment = self.context.experiment;
        let source = match ping.tool {
            PingTool::Own => {
                let work = Work::Echo {
                    to: to.ip,
                    every: ping.every,
                };
                let (place, outcome) =
                    self.start_task(from, "echo client", work, Role::Measures)?;
                on_path.extend(self.unless_tested(from, place));
                Source::Own(vec![outcome])
            }
            PingTool::Ping => {
                let requests = |time: Nanos| time.as_nanos() / ping.every.as_nanos();
                let counted = requests(experiment.duration);
                let all = requests(experiment.warmup + experiment.duration);
                self.late.push(Late {
                    load: self.loads.len(),
                    guest: from,
                    program: "ping",
                    args: tools::ping(to, ping.every, all),
                });
                Source::Ping(usize::MAX, counted)
            }
        };
        let series = Output::Series(ping.series.clone());
        self.requests(series, source, on_path, Some(PASSAGES));
        Ok(())
    }

    fn start_hogs(&mut self, hog: &'a Hog) -> Result<(), LabError> {
        let l2 = || Bytes(l2_size(self.context.session.cpus.shared_core));
        let block = hog.block.unwrap_or_else(l2);
        let mut outcomes = Vec::new();
        let count = self.variant.count().unwrap_or(hog.guests.len());
        for name in hog.guests.iter().take(count) {
            let guest = self.guest(name)?;
            let work = Work::Hog {
                scans: hog.scans,
                sleep: hog.sleep,
                block,
            };
            let role = Role::Computes { nice: hog.nice };
            outcomes.push(self.start_task(guest, "hog", work, role)?.1);
        }
        if let Some(value) = &hog.cpu_value {
            let share = Output::Value(value.clone(), "%");
            self.load(share, Source::Own(outcomes.clone()), Vec::new());
        }
        let scans = Output::Value(hog.value.clone(), "op/s");
        self.load(scans, Source::Own(outcomes), Vec::new());
        Ok(())
    }

    fn start_wakeup(&mut self, wakeup: &'a Wakeup) -> Result<(), LabError> {
        let guest = self.guest(&wakeup.guest)?;
        let work = Work::Wakeup {
            mean_gap: wakeup.mean_gap,
            seed: seed_for(self.context.seed, wakeup.name.get_ref()),
        };
        let (place, outcome) = self.start_task(guest, "sleeper", work, Role::Measures)?;
        self.servers
            .entry(&guest.name)
            .or_default()
            .push(outcome.clone());
        let on_path = self.unless_tested(guest, place).into_iter().collect();
        let series = Output::Series(wakeup.series.clone());
        self.load(series, Source::Own(vec![outcome]), on_path);
        Ok(())
    }
}
