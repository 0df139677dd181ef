//! One variant, from its daemons to its samples.

use crate::LabError;
use crate::arrivals::seed_for;
use crate::build;
use crate::cpus::{Cpus, l2_size};
use crate::experiment::{
    Bulk, BulkTool, Experiment, Hog, Name, Ping, PingTool, Query, QueryTool, Variant, VcpuMode,
    Wakeup,
};
use crate::guest::{self, Outcome, Protocol, Sample, Task, Work, now};
use crate::hosts;
use crate::monitor::{CPUS_EVERY, Monitor, Record, THREADS_EVERY};
use crate::noise::{Fate, Losses, judge};
use crate::processes::{Nursery, POLL, Rank, Ready, Start};
use crate::reservation::Keeper;
use crate::run_dir::RunDir;
use crate::tools::{self, FIRST_PORT};
use crate::topology::{Guest, Topology, namespace_path};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tailbound_sys::sched::{Deadline, Policy};
use tailbound_units::{Bytes, Nanos};

/// How long answers that are late are waited for.
const GRACE: Nanos = Nanos::from_secs(5);
/// From the word to start to the start: long enough for everybody to hear it.
const LEAD: Nanos = Nanos::from_millis(300);
/// How long after its end a run may still lack an outcome.
const PATIENCE: Nanos = Nanos::from_secs(10);
/// Less of the reserved guests' work than this on the shared core means that
/// the variant did not show what it says.
const SHARED_CORE_SHARE: f64 = 0.99;

/// What all variants of a run have in common.
#[derive(Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) experiment: &'a Experiment,
    pub(crate) topology: &'a Topology,
    pub(crate) cpus: Cpus,
    /// Whether real-time classes may be set.
    pub(crate) real_time: bool,
    pub(crate) run_dir: &'a RunDir,
    /// This very program.
    pub(crate) program: PathBuf,
    pub(crate) seed: u64,
    /// The signal that asked this process to end, or 0.
    pub(crate) signal: Arc<AtomicUsize>,
}

impl Scene<'_> {
    /// The scheduling class of a rank.
    fn policy(&self, rank: Rank) -> Option<Policy> {
        if self.real_time {
            rank.real_time()
        } else {
            rank.share()
        }
    }
}

/// What one run of a variant measured.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) series: BTreeMap<String, MeasuredSeries>,
    pub(crate) values: BTreeMap<String, (&'static str, f64)>,
    /// Time that the hypervisor below took from all CPUs together.
    pub(crate) stolen: Nanos,
    /// Why the figures do not show what the variant says.
    pub(crate) flaw: Option<String>,
}

/// The samples of a series and the fate of each.
#[derive(Debug, Default)]
pub(crate) struct MeasuredSeries {
    pub(crate) samples: Vec<Sample>,
    pub(crate) fates: Vec<Fate>,
    pub(crate) unanswered: u64,
}

/// A load that runs: what it measures, and who is on its way.
struct Load {
    output: Output,
    source: Source,
    /// The children whose waiting for a CPU is our fault.
    way: Vec<usize>,
}

enum Output {
    Series(String),
    Value(String, &'static str),
}

enum Source {
    /// Outcome files of our own tasks.
    Own(Vec<PathBuf>),
    /// The output of `iperf3 -J`.
    Iperf3(usize),
    /// The output of `ping -D`, and how many requests were to count.
    Ping(usize, u64),
}

/// What a child in a guest is there for.
#[derive(Debug, Clone, Copy)]
enum Role {
    /// It measures, and ends when it has.
    Measures,
    /// It is load, or answers, until it is killed.
    Serves,
    /// It uses CPU, until it is killed.
    Computes,
    /// Another program: it gets no real-time class, for it may spin.
    Foreign {
        /// Whether it ends by itself.
        ends: bool,
    },
}

/// What starts only when the load does, because it cannot wait for the word.
struct Late<'a> {
    load: usize,
    guest: &'a Guest,
    program: &'static str,
    args: Vec<String>,
}

struct Run<'a> {
    scene: &'a Scene<'a>,
    variant: &'a Variant,
    nursery: Nursery<'a>,
    /// Each host's daemon.
    daemons: BTreeMap<&'a str, usize>,
    /// The children in each guest.
    inside: BTreeMap<&'a str, Vec<usize>>,
    loads: Vec<Load>,
    late: Vec<Late<'a>>,
    /// Outcomes of servers.
    servers: BTreeMap<&'a str, Vec<PathBuf>>,
    next_port: u16,
    tasks: usize,
    /// How often a guest had used its reservation up and was moved.
    brought_back: u64,
}

/// Runs a variant once. `announce` is told what happens.
pub(crate) fn run<'a>(
    scene: &'a Scene<'a>,
    variant: &'a Variant,
    announce: &mut dyn FnMut(&str),
) -> Result<Measured, LabError> {
    let mut run = Run {
        scene,
        variant,
        nursery: Nursery::new(scene.run_dir, Arc::clone(&scene.signal)),
        daemons: BTreeMap::new(),
        inside: BTreeMap::new(),
        loads: Vec::new(),
        late: Vec::new(),
        servers: BTreeMap::new(),
        next_port: FIRST_PORT,
        tasks: 0,
        brought_back: 0,
    };
    announce("setting up");
    run.start_daemons()?;
    run.start_load()?;
    let record = run.measure(announce)?;
    let measured = run.collect(&record)?;
    announce("taking down");
    run.nursery.end()?;
    Ok(measured)
}

impl<'a> Run<'a> {
    fn start_daemons(&mut self) -> Result<(), LabError> {
        let experiment = self.scene.experiment;
        let pipeline = self.variant.pipeline.as_ref();
        let Some(pipeline) = pipeline.and_then(|name| experiment.pipeline.get(name.get_ref()))
        else {
            return Ok(());
        };
        let link = experiment.link_rate;
        let nic_queue = hosts::nic_queue(pipeline, link);
        build::shape(
            self.scene.topology,
            experiment,
            self.variant.switch,
            nic_queue,
        )?;
        let way: BTreeSet<&str> = self.about().map(|guest| guest.host.as_str()).collect();
        for host in &self.scene.topology.hosts {
            let text = hosts::config(self.scene.topology, host, pipeline, link);
            let text = text.map_err(|error| {
                LabError::io("writing the pipeline")(std::io::Error::other(error))
            })?;
            let path = self.scene.run_dir.path().join(format!("{host}.toml"));
            std::fs::write(&path, text).map_err(LabError::file("writing", &path))?;
            let place = self.nursery.start(Start {
                name: format!("host {host}'s daemon"),
                program: self.scene.program.clone(),
                args: vec!["host".into(), "--config".into(), path.display().to_string()],
                netns: &namespace_path(host),
                cpus: self.scene.cpus.others,
                policy: self.scene.policy(if way.contains(host.as_str()) {
                    Rank::Way
                } else {
                    Rank::Infrastructure
                }),
                ready: Ready::Stderr("ready"),
                ends: false,
            })?;
            self.daemons.insert(host, place);
        }
        self.nursery.wait_ready(0)
    }

    /// Starts servers, then clients.
    fn start_load(&mut self) -> Result<(), LabError> {
        let experiment = self.scene.experiment;
        // Clients connect when they start: every server must be ready before.
        let first = self.daemons.len();
        let mut queries = Vec::new();
        for query in &experiment.query {
            if !self.runs(&query.name) {
                continue;
            }
            queries.push((query, self.start_servers(query)?));
        }
        let mut bulks = Vec::new();
        for bulk in &experiment.bulk {
            if !self.runs(&bulk.name) {
                continue;
            }
            bulks.push((bulk, self.start_receiver(bulk)?));
        }
        self.nursery.wait_ready(first)?;
        for (query, servers) in queries {
            self.start_query(query, &servers)?;
        }
        for (bulk, to) in bulks {
            self.start_sender(bulk, to)?;
        }
        for ping in &experiment.ping {
            if !self.runs(&ping.name) {
                continue;
            }
            self.start_ping(ping)?;
        }
        for hog in &experiment.hog {
            if !self.runs(&hog.name) {
                continue;
            }
            self.start_hogs(hog)?;
        }
        for wakeup in &experiment.wakeup {
            if !self.runs(&wakeup.name) {
                continue;
            }
            self.start_wakeup(wakeup)?;
        }
        self.nursery.wait_ready(first)
    }

    fn guest(&self, name: &Name) -> Result<&'a Guest, LabError> {
        let guest = self.scene.topology.guest(name.get_ref());
        guest.ok_or_else(|| LabError::io("the plan")(std::io::ErrorKind::NotFound.into()))
    }

    /// The guests whose samples the experiment is about: those of its first
    /// series, a query's client and servers or a ping's two ends.
    fn about(&self) -> impl Iterator<Item = &'a Guest> {
        let experiment = self.scene.experiment;
        let query = experiment.query.iter().find(|load| self.runs(&load.name));
        let ping = experiment.ping.iter().find(|load| self.runs(&load.name));
        let names: Vec<&Name> = match (query, ping) {
            (Some(query), _) => std::iter::once(&query.client)
                .chain(&query.servers)
                .collect(),
            (None, Some(ping)) => vec![&ping.from, &ping.to],
            (None, None) => Vec::new(),
        };
        let topology = self.scene.topology;
        names
            .into_iter()
            .filter_map(|name| topology.guest(name.get_ref()))
    }

    fn port(&mut self) -> u16 {
        self.next_port += 1;
        self.next_port - 1
    }

    fn shares_core(&self, guest: &Guest) -> bool {
        let shared = self.scene.experiment.shared_core.as_ref();
        shared.is_some_and(|shared| shared.guests.iter().any(|g| *g.get_ref() == guest.name))
    }

    /// Starts a program in a guest.
    fn start(
        &mut self,
        guest: &'a Guest,
        what: &str,
        program: PathBuf,
        args: Vec<String>,
        role: Role,
    ) -> Result<usize, LabError> {
        let cpus = &self.scene.cpus;
        let is_about = self.about().any(|other| other == guest);
        let (cpus, rank) = match (self.shares_core(guest), role) {
            (true, _) => (cpus.shared(), Rank::Tested),
            (false, Role::Measures | Role::Serves) if is_about => (cpus.others, Rank::Way),
            (false, Role::Measures) => (cpus.others, Rank::Infrastructure),
            (false, Role::Serves) => (cpus.others, Rank::Load),
            (false, Role::Computes | Role::Foreign { .. }) => (cpus.others, Rank::Tested),
        };
        let place = self.nursery.start(Start {
            name: format!("guest {}'s {what}", guest.name),
            program,
            args,
            netns: &namespace_path(&guest.name),
            cpus,
            policy: self.scene.policy(rank),
            ready: match role {
                Role::Foreign { .. } => Ready::Silent,
                _ => Ready::Stdout(guest::READY),
            },
            ends: matches!(role, Role::Measures | Role::Foreign { ends: true }),
        })?;
        self.inside.entry(&guest.name).or_default().push(place);
        Ok(place)
    }

    /// Starts one of our own tasks in a guest; returns its place and where its
    /// outcome will be.
    fn start_task(
        &mut self,
        guest: &'a Guest,
        what: &str,
        work: Work,
        role: Role,
    ) -> Result<(usize, PathBuf), LabError> {
        self.tasks += 1;
        let file = |extension: &str| {
            let name = format!(
                "{}-task{}.{extension}",
                self.variant.name.get_ref(),
                self.tasks
            );
            self.scene.run_dir.path().join(name)
        };
        let (path, outcome) = (file("task.json"), file("outcome.json"));
        // Of an earlier repeat.
        let _ = std::fs::remove_file(&outcome);
        let task = Task {
            work,
            warmup: self.scene.experiment.warmup,
            duration: self.scene.experiment.duration,
            grace: GRACE,
            outcome: outcome.clone(),
        };
        task.write(&path)?;
        let args = vec!["lab".into(), "guest".into(), path.display().to_string()];
        let program = self.scene.program.clone();
        let place = self.start(guest, what, program, args, role)?;
        Ok((place, outcome))
    }

    fn start_servers(&mut self, query: &'a Query) -> Result<Vec<(SocketAddrV4, usize)>, LabError> {
        let mut servers = Vec::new();
        for name in &query.servers {
            let guest = self.guest(name)?;
            let port = self.port();
            let place = match query.tool {
                QueryTool::Own => {
                    let work = Work::Server { port };
                    let (place, outcome) = self.start_task(guest, "server", work, Role::Serves)?;
                    self.servers.entry(&guest.name).or_default().push(outcome);
                    place
                }
                QueryTool::Memcached => {
                    let args = tools::memcached(port);
                    let program = PathBuf::from("memcached");
                    self.start(
                        guest,
                        "memcached",
                        program,
                        args,
                        Role::Foreign { ends: false },
                    )?
                }
            };
            servers.push((SocketAddrV4::new(guest.ip, port), place));
        }
        Ok(servers)
    }

    fn start_query(
        &mut self,
        query: &'a Query,
        servers: &[(SocketAddrV4, usize)],
    ) -> Result<(), LabError> {
        let guest = self.guest(&query.client)?;
        let work = Work::Query {
            servers: servers.iter().map(|(address, _)| *address).collect(),
            protocol: match query.tool {
                QueryTool::Own => Protocol::Own,
                QueryTool::Memcached => Protocol::Memcached,
            },
            answer: query.answer,
            mean_gap: query.gap(self.scene.experiment.link_rate),
            connections: query.connections,
            seed: seed_for(self.scene.seed, query.name.get_ref()),
        };
        let what = format!("client of {}", query.name.get_ref());
        let (place, outcome) = self.start_task(guest, &what, work, Role::Measures)?;
        let mut way = self.daemons_of(std::iter::once(&query.client).chain(&query.servers));
        way.extend(self.unless_tested(guest, place));
        for (name, (_, server)) in query.servers.iter().zip(servers) {
            way.extend(self.unless_tested(self.guest(name)?, *server));
        }
        self.loads.push(Load {
            output: Output::Series(query.series.clone()),
            source: Source::Own(vec![outcome]),
            way,
        });
        Ok(())
    }

    /// The daemons of these guests' hosts.
    fn daemons_of<'n>(&self, guests: impl Iterator<Item = &'n Name>) -> Vec<usize> {
        let hosts: BTreeSet<&str> = guests
            .filter_map(|name| self.scene.topology.guest(name.get_ref()))
            .map(|guest| guest.host.as_str())
            .collect();
        let daemons = hosts.into_iter().filter_map(|host| self.daemons.get(host));
        daemons.copied().collect()
    }

    /// A child, unless its waiting for a CPU is what is measured: it shares its
    /// core with guests that compute in this variant.
    fn unless_tested(&self, guest: &Guest, place: usize) -> Option<usize> {
        let hogs = self.scene.experiment.hog.iter();
        let contended = hogs.filter(|hog| self.runs(&hog.name)).any(|hog| {
            let mut guests = hog.guests.iter().filter_map(|name| self.guest(name).ok());
            guests.any(|guest| self.shares_core(guest))
        });
        (!contended || !self.shares_core(guest)).then_some(place)
    }

    fn runs(&self, load: &Name) -> bool {
        self.variant
            .loads
            .iter()
            .any(|name| name.get_ref() == load.get_ref())
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
                let args = tools::iperf3_server(port);
                let role = Role::Foreign { ends: true };
                self.start(guest, "iperf3 server", "iperf3".into(), args, role)?;
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
        let experiment = self.scene.experiment;
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
        self.loads.push(Load {
            output: Output::Value(bulk.value.clone(), "bit/s"),
            source,
            way: Vec::new(),
        });
        Ok(())
    }

    fn start_ping(&mut self, ping: &'a Ping) -> Result<(), LabError> {
        let (from, to) = (self.guest(&ping.from)?, self.guest(&ping.to)?);
        let mut way = self.daemons_of([&ping.from, &ping.to].into_iter());
        let experiment = self.scene.experiment;
        let source = match ping.tool {
            PingTool::Own => {
                let work = Work::Echo {
                    to: to.ip,
                    every: ping.every,
                };
                let (place, outcome) =
                    self.start_task(from, "echo client", work, Role::Measures)?;
                way.extend(self.unless_tested(from, place));
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
        self.loads.push(Load {
            output: Output::Series(ping.series.clone()),
            source,
            way,
        });
        Ok(())
    }

    fn start_hogs(&mut self, hog: &'a Hog) -> Result<(), LabError> {
        let block = Bytes(l2_size(self.scene.cpus.shared_core));
        let mut outcomes = Vec::new();
        for name in &hog.guests {
            let guest = self.guest(name)?;
            let work = Work::Hog {
                scans: hog.scans,
                sleep: hog.sleep,
                block,
            };
            outcomes.push(self.start_task(guest, "hog", work, Role::Computes)?.1);
        }
        self.loads.push(Load {
            output: Output::Value(hog.value.clone(), "op/s"),
            source: Source::Own(outcomes),
            way: Vec::new(),
        });
        Ok(())
    }

    fn start_wakeup(&mut self, wakeup: &'a Wakeup) -> Result<(), LabError> {
        let guest = self.guest(&wakeup.guest)?;
        let work = Work::Wakeup {
            mean_gap: wakeup.mean_gap,
            seed: seed_for(self.scene.seed, wakeup.name.get_ref()),
        };
        let (place, outcome) = self.start_task(guest, "sleeper", work, Role::Measures)?;
        self.servers
            .entry(&guest.name)
            .or_default()
            .push(outcome.clone());
        let way = self.unless_tested(guest, place).into_iter().collect();
        self.loads.push(Load {
            output: Output::Series(wakeup.series.clone()),
            source: Source::Own(vec![outcome]),
            way,
        });
        Ok(())
    }

    /// Gives the guests that have one their reservation.
    fn reserve(&self) -> Result<Option<Keeper>, LabError> {
        let shared = self.scene.experiment.shared_core.as_ref();
        let (VcpuMode::Periodic, Some(shared)) = (self.variant.vcpu, shared) else {
            return Ok(None);
        };
        let periodic = &shared.periodic;
        let deadline = Deadline {
            runtime: periodic.runtime,
            deadline: periodic.deadline,
            period: periodic.period,
        };
        let guests = periodic.guests.iter();
        let inside = guests.filter_map(|guest| self.inside.get(guest.get_ref().as_str()));
        let pids = inside
            .flatten()
            .map(|place| self.nursery.member(*place).child.id());
        let priority = self.scene.policy(Rank::Monitor);
        Keeper::start(pids.collect(), deadline, &self.scene.cpus, priority)
            .map(Some)
            .map_err(LabError::io("giving guests their reservation"))
    }

    /// Lets the load run and waits for all outcomes.
    fn measure(&mut self, announce: &mut dyn FnMut(&str)) -> Result<Record, LabError> {
        let experiment = self.scene.experiment;
        let on_way: BTreeSet<usize> = self
            .loads
            .iter()
            .flat_map(|load| &load.way)
            .copied()
            .collect();
        let pids: Vec<u32> = on_way
            .iter()
            .map(|place| self.nursery.member(*place).child.id())
            .collect();
        let policy = self.scene.policy(Rank::Monitor);
        let monitor =
            Monitor::start(&pids, policy).map_err(LabError::io("starting the monitor"))?;
        let start = now().saturating_add(LEAD);
        self.nursery.start_at(&format!("{}\n", start.as_nanos()))?;
        self.nursery.rest(start.since(now()).into())?;
        for late in std::mem::take(&mut self.late) {
            let program = PathBuf::from(late.program);
            let role = Role::Foreign { ends: true };
            let place = self.start(late.guest, late.program, program, late.args, role)?;
            match &mut self.loads[late.load].source {
                Source::Iperf3(client) | Source::Ping(client, _) => *client = place,
                Source::Own(_) => {}
            }
        }
        // In mid warm-up: a server that accepts all its connections would use its
        // reservation up, and be moved to another CPU when it gets it back.
        self.nursery
            .rest(Nanos(experiment.warmup.as_nanos() / 2).into())?;
        let keeper = self.reserve()?;
        let end = start + experiment.warmup + experiment.duration;
        while now() < end {
            let passed = now().since(start + experiment.warmup).as_secs_f64();
            let of = experiment.duration.as_secs_f64();
            announce(&format!("measuring, {passed:.0} s of {of:.0} s"));
            self.nursery
                .rest(Duration::from_millis(200).min(end.since(now()).into()))?;
        }
        announce("waiting for the last answers");
        let latest = end + GRACE + PATIENCE;
        while !(self.nursery.all_ended()? && self.outcomes().all(|path| path.exists())) {
            if now() > latest {
                return Err(LabError::Child {
                    who: "the load".into(),
                    what: "did not come to an end".into(),
                    stderr: String::new(),
                });
            }
            self.nursery.rest(POLL)?;
        }
        if let Some(keeper) = keeper {
            let brought_back = keeper.finish();
            self.brought_back = brought_back.map_err(LabError::io("keeping reservations"))?;
        }
        monitor
            .finish()
            .map_err(LabError::io("watching the machine"))
    }

    fn outcomes(&self) -> impl Iterator<Item = &PathBuf> {
        let of_loads = self.loads.iter().flat_map(|load| match &load.source {
            Source::Own(outcomes) => outcomes.as_slice(),
            Source::Iperf3(_) | Source::Ping(..) => &[],
        });
        of_loads.chain(self.servers.values().flatten())
    }

    fn collect(&self, record: &Record) -> Result<Measured, LabError> {
        let stolen = Losses {
            lost: record.stolen.values().collect(),
            margin: CPUS_EVERY,
        };
        let mut measured = Measured {
            stolen: Nanos(stolen.lost.iter().map(|lost| lost.total().as_nanos()).sum()),
            ..Measured::default()
        };
        for load in &self.loads {
            match &load.output {
                Output::Series(name) => {
                    let (samples, unanswered) = self.samples(&load.source)?;
                    let pids = load
                        .way
                        .iter()
                        .map(|place| self.nursery.member(*place).child.id());
                    let ours = Losses {
                        lost: pids
                            .filter_map(|pid| record.waited.get(&pid))
                            .flatten()
                            .collect(),
                        margin: THREADS_EVERY,
                    };
                    let fates = judge(&samples, &stolen, &ours);
                    let series = MeasuredSeries {
                        samples,
                        fates,
                        unanswered,
                    };
                    measured.series.insert(name.clone(), series);
                }
                Output::Value(name, unit) => {
                    let value = self.value(&load.source, unit)?;
                    measured.values.insert(name.clone(), (unit, value));
                }
            }
        }
        if self.variant.vcpu == VcpuMode::Periodic {
            self.check_shared_core(&mut measured)?;
        }
        Ok(measured)
    }

    fn samples(&self, source: &Source) -> Result<(Vec<Sample>, u64), LabError> {
        match source {
            Source::Own(outcomes) => {
                let (mut samples, mut unanswered) = (Vec::new(), 0);
                for path in outcomes {
                    let outcome = Outcome::read(path)?;
                    samples.extend(outcome.samples);
                    unanswered += outcome.unanswered;
                }
                Ok((samples, unanswered))
            }
            Source::Ping(place, counted) => {
                let output = self.output(*place)?;
                let mut samples = tools::ping_samples(&output, clocks_apart());
                // The first ones are the warm-up's.
                let all = samples.len() as u64;
                samples.drain(..all.saturating_sub(*counted) as usize);
                let unanswered = counted.saturating_sub(samples.len() as u64);
                Ok((samples, unanswered))
            }
            Source::Iperf3(_) => Ok((Vec::new(), 0)),
        }
    }

    fn value(&self, source: &Source, unit: &str) -> Result<f64, LabError> {
        match source {
            Source::Own(outcomes) => {
                let mut sum = 0.0;
                for path in outcomes {
                    sum += Outcome::read(path)?.rate();
                }
                Ok(if unit == "bit/s" { sum * 8.0 } else { sum })
            }
            Source::Iperf3(place) => {
                let output = self.output(*place)?;
                tools::iperf3_rate(&output).ok_or_else(|| LabError::Child {
                    who: "iperf3".into(),
                    what: "reports no rate".into(),
                    stderr: output,
                })
            }
            Source::Ping(..) => Ok(0.0),
        }
    }

    fn output(&self, place: usize) -> Result<String, LabError> {
        let path = &self.nursery.member(place).stdout;
        std::fs::read_to_string(path).map_err(LabError::file("reading", path))
    }

    /// How much of the reserved guests' work was done on the core they share.
    fn check_shared_core(&self, measured: &mut Measured) -> Result<(), LabError> {
        let shared_core = self.scene.cpus.shared_core;
        let (mut there, mut all) = (0, 0);
        let periodic = self.scene.experiment.shared_core.iter();
        for guest in periodic.flat_map(|shared| &shared.periodic.guests) {
            for path in self
                .servers
                .get(guest.get_ref().as_str())
                .into_iter()
                .flatten()
            {
                let served = Outcome::read(path)?.served;
                there += served.get(&shared_core).copied().unwrap_or(0);
                all += served.values().sum::<u64>();
            }
        }
        if all == 0 {
            return Ok(());
        }
        let share = there as f64 / all as f64;
        measured
            .values
            .insert("shared_core_share".into(), ("", share));
        let overruns = self.brought_back as f64;
        measured
            .values
            .insert("reservation_overruns".into(), ("", overruns));
        if share < SHARED_CORE_SHARE {
            measured.flaw = Some(format!(
                "the kernel ran the guest with the reservation elsewhere: only {:.1} % of its work was done on the shared core",
                share * 100.0
            ));
        }
        Ok(())
    }
}

/// How far the wall clock is ahead of the monotonic one.
fn clocks_apart() -> Nanos {
    let wall = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(Nanos::ZERO, Nanos::from);
    wall.since(now())
}
