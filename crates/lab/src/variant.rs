//! One variant, from its daemons to its samples: [`load`] starts the load, [`probe`] starts probes
//! and their neighbours, [`collect`] reads the outcomes.

mod collect;
mod load;
mod machines;
mod placed;
mod probe;
mod rings;
mod traffic;
mod workflows;

use crate::LabError;
use crate::bounds::Promises;
use crate::build;
use crate::class::{ClassGuard, PATHS, give_paths};
use crate::core_use::{CoreUse, CpuUse, CpusTaken, ProcessUse};
use crate::cpus::Cpus;
use crate::experiment::{GuaranteesBy, LabExperiment, PathMode, Quota, Variant};
use crate::guest::{Sample, now};
use crate::hosts;
use crate::monitor::{self, Record};
use crate::noise::SampleClass;
use crate::place;
use crate::processes::{POLL, Rank, Ready, Start, Supervisor};
use crate::run_dir::RunDir;
use crate::tools::FIRST_PORT;
use crate::topology::{Guest, Topology, namespace_path};
use crate::vm::{Asked, Machines};
use hdrhistogram::Histogram;
use machines::Started;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tailbound_experiment::Name;
use tailbound_sys::cgroup::{self, Confinement};
use tailbound_sys::root::Root;
use tailbound_sys::sched::Policy;
use tailbound_units::{Nanos, Rate};

/// Longest wait for late answers.
const GRACE: Nanos = Nanos::from_secs(5);
/// Time from the start message to the start: all children receive the message in it.
const LEAD: Nanos = Nanos::from_millis(300);
/// The same time if a child in a VM receives the message.
const MACHINES_LEAD: Nanos = Nanos::from_secs(1);
/// Time limit for missing outcomes after the end of a run.
const PATIENCE: Nanos = Nanos::from_secs(10);
/// File in the run's directory: the vCPU agent's changes.
pub(crate) const CLASSES: &str = "classes.json";
/// Smallest share of the reserved guests' work on the shared core. With a smaller share, the
/// variant is flawed.
const SHARED_CORE_SHARE: f64 = 0.99;

/// Context that all variants of a run share.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) experiment: &'a LabExperiment,
    pub(crate) topology: &'a Topology,
    pub(crate) session: &'a Session,
    pub(crate) seed: u64,
    /// The VMs' shared files, if there are VMs.
    pub(crate) machines: Option<Machines>,
}

/// A running load: its figures, and the children on its path.
struct Load {
    output: Output,
    source: Source,
    /// The children whose waits for a CPU are disturbances.
    on_path: Vec<usize>,
    /// Maximum of a sample's passages through each child, if known.
    passages: Option<usize>,
}

/// Measurements of messages between VMs.
#[derive(Debug, Default)]
struct Rings {
    /// The series of times from ring to ring.
    ring: Option<String>,
    /// The series of the vCPUs' waits.
    vcpu_wait: Option<String>,
    /// Senders and receivers.
    ends: Vec<String>,
}

enum Output {
    /// The series; its source may also have values with fixed names.
    Series(String),
    Value(String, &'static str),
}

enum Source {
    /// Outcome files of our own tasks.
    Own(Vec<PathBuf>),
    /// Pauses in transfers, in the outcome file of their receiver.
    Pauses(PathBuf),
    /// Messages: outcomes of the senders and of the receivers.
    Messages {
        sent: Vec<PathBuf>,
        received: Vec<PathBuf>,
        /// Measurements of their rings.
        rings: Rings,
    },
    /// A meter's outcome and its expected rate.
    Metered(PathBuf, Rate),
    /// Outcome of the receiver of an RTP stream, and the interval of its packets.
    Rtp(PathBuf, Nanos),
    /// A watch's outcome.
    Watched(PathBuf),
    /// A probe's outcome.
    Probed(PathBuf),
    /// CPU share of a host's daemon.
    Daemon(String),
    /// The output of `iperf3 -J`: its rate, or its receiver's jitter.
    Iperf3(usize),
    /// The output of `ping -D`, and the number of requests that count.
    Ping(usize, u64),
}

/// Role of a child in a guest.
#[derive(Debug, Clone, Copy)]
enum Role {
    /// Measures, and ends after its measurement.
    Measures,
    /// Is load or answers requests, until it is killed.
    Serves,
    /// Measures frames elsewhere: with the highest priority, on a core that the other children do
    /// not need.
    Watches,
    /// Sends at its full speed until it is killed, on a core of its own.
    Floods,
    /// Stands for a node: no other process on this computer preempts it or the processes that it
    /// waits for.
    Node {
        /// True if it ends by itself.
        ends: bool,
    },
    /// Uses CPU until it is killed.
    Computes {
        /// Its nice value.
        nice: u8,
    },
    /// Uses CPU with the highest priority on its core.
    Monopolizes,
    /// Another program: it has no real-time class, because it may spin.
    Foreign {
        /// True if it ends by itself.
        ends: bool,
    },
}

/// A program that starts with the load, because it cannot wait for a start message.
struct Late<'a> {
    load: usize,
    guest: &'a Guest,
    program: &'static str,
    args: Vec<String>,
}

struct Run<'a> {
    context: &'a Context<'a>,
    variant: &'a Variant,
    supervisor: Supervisor<'a>,
    /// Each host's daemon.
    daemons: BTreeMap<&'a str, usize>,
    /// The children in each guest.
    inside: BTreeMap<&'a str, Vec<usize>>,
    loads: Vec<Load>,
    late: Vec<Late<'a>>,
    /// The guests that are VMs.
    machines: BTreeMap<&'a str, Started>,
    /// Outcomes of servers.
    servers: BTreeMap<&'a str, Vec<PathBuf>>,
    next_port: u16,
    tasks: usize,
    /// Number of moves of a guest that had used up its reservation.
    brought_back: u64,
    /// The share of the shared core that programs other than its guests used.
    foreign_share: Option<f64>,
    /// The shares taken of all CPUs while samples counted.
    cpus_taken: Option<CpusTaken>,
    /// CPU share of each host's daemon while samples counted.
    daemon_cpu: BTreeMap<&'a str, f64>,
    /// The placement service's promises, if the variant uses the service.
    promises: Option<Promises>,
    /// Time in which a quota throttled VMs.
    throttled: Option<Nanos>,
    /// Begin and end of the time in which samples count.
    counted: [Nanos; 2],
}

/// Runs a variant once and reports progress to `announce`.
pub(crate) fn run<'a>(
    context: &'a Context<'a>,
    variant: &'a Variant,
    announce: &mut dyn FnMut(&str),
) -> Result<Measurement, LabError> {
    let mut run = Run {
        context,
        variant,
        supervisor: context.session.supervisor(),
        daemons: BTreeMap::new(),
        inside: BTreeMap::new(),
        loads: Vec::new(),
        late: Vec::new(),
        machines: BTreeMap::new(),
        servers: BTreeMap::new(),
        next_port: FIRST_PORT,
        tasks: 0,
        brought_back: 0,
        foreign_share: None,
        cpus_taken: None,
        daemon_cpu: BTreeMap::new(),
        promises: None,
        throttled: None,
        counted: [Nanos::ZERO; 2],
    };
    announce("setting up");
    run.start_service()?;
    run.start_daemons()?;
    run.admit()?;
    run.start_machines()?;
    run.start_load()?;
    let record = run.measure(announce)?;
    let measured = run.collect(&record)?;
    announce("taking down");
    run.supervisor.end()?;
    Ok(measured)
}

/// Returns the CPU share of each daemon between two readings, in percent.
fn shares<'h>(
    first: &BTreeMap<&'h str, ProcessUse>,
    last: &BTreeMap<&'h str, ProcessUse>,
) -> BTreeMap<&'h str, f64> {
    let share =
        |(host, first): (&&'h str, &ProcessUse)| Some((*host, first.share(last.get(host)?)));
    first.iter().filter_map(share).collect()
}

/// Makes a control group for a guest's VM.
pub(crate) fn confinement(quota: &Quota, guest: &str) -> std::io::Result<Confinement> {
    let name = format!("tailbound-lab-{}-{guest}", std::process::id());
    let quota = cgroup::Quota {
        runtime: quota.runtime,
        period: quota.period,
    };
    Confinement::new(&Root::default(), &name, quota)
}

impl<'a> Run<'a> {
    fn start_daemons(&mut self) -> Result<(), LabError> {
        let experiment = self.context.experiment;
        let pipeline = self.variant.pipeline.as_ref();
        let Some(pipeline) = pipeline.and_then(|name| experiment.pipeline.get(name.get_ref()))
        else {
            return Ok(());
        };
        let link = experiment.link_rate;
        let nic_queue = hosts::nic_queue(pipeline, link);
        build::shape(
            self.context.topology,
            experiment,
            self.variant.switch,
            nic_queue,
        )?;
        // Separate hosts would not wait for each other: daemons of hosts that are not measured have
        // a lower priority.
        let about: BTreeSet<&str> = self.about().map(|guest| guest.host.as_str()).collect();
        let stands_behind = |host: &str| !about.is_empty() && !about.contains(host);
        let has_class = self.variant.path != PathMode::None;
        for host in &self.context.topology.hosts {
            let (topology, variant) = (self.context.topology, self.variant);
            let directory = self.context.session.directory();
            let text = hosts::config(topology, host, experiment, variant, pipeline, directory);
            let text = text.map_err(|error| {
                LabError::io("writing the pipeline")(std::io::Error::other(error))
            })?;
            let path = self.context.session.directory().join(format!("{host}.toml"));
            std::fs::write(&path, text).map_err(LabError::file("writing", &path))?;
            let place = self.supervisor.start(Start {
                name: format!("host {host}'s daemon"),
                program: self.context.session.program.clone(),
                args: [
                    vec!["host".into(), "--config".into(), path.display().to_string()],
                    self.follows(host),
                ]
                .concat(),
                netns: host,
                cpus: self.context.session.cpus.others,
                policy: (has_class && stands_behind(host))
                    .then(|| self.context.session.policy(Rank::Infrastructure))
                    .flatten(),
                ready: Ready::Stderr("ready"),
                ends: false,
            })?;
            self.daemons.insert(host, place);
        }
        self.supervisor.wait_ready(0)?;
        if !has_class {
            return Ok(());
        }
        let daemons = self.daemons.iter();
        let pids: Vec<_> = daemons
            .filter(|(host, _)| !stands_behind(host))
            .map(|(_, place)| self.supervisor.member(*place).child.id())
            .collect();
        let state = self.context.session.directory().join(PATHS);
        give_paths(&pids, self.context.session.real_time, &state)
    }

    /// Returns the arguments by which a host's daemon follows the placement service; empty if it
    /// does not.
    fn follows(&self, host: &str) -> Vec<String> {
        let (experiment, variant) = (self.context.experiment, self.variant);
        let mut followers = place::followers(experiment, variant);
        let follows = variant.guarantees_by == GuaranteesBy::Service
            && followers.any(|follower| follower == host);
        if follows {
            place::follow(self.context.session.directory(), host)
        } else {
            Vec::new()
        }
    }

    /// Sets the classes of the guests on the shared core.
    fn give_classes(&self) -> Result<Option<ClassGuard>, LabError> {
        let Some(shared) = &self.context.experiment.shared_core else {
            return Ok(None);
        };
        let other = self.variant.deadline.map(|time| shared.with_deadline(time));
        let shared = other.as_ref().unwrap_or(shared);
        let about = |guest: &&Name| {
            let mut guests = shared.periodic.guests.iter();
            guests.any(|other| other.get_ref() == guest.get_ref())
        };
        let (guests, neighbours): (Vec<&Name>, Vec<&Name>) = shared.guests.iter().partition(about);
        let pids = |guests: Vec<&Name>| {
            guests
                .into_iter()
                .flat_map(|name| self.pids(name))
                .collect()
        };
        let guard = ClassGuard::give(
            self.variant.vcpu,
            shared,
            [pids(guests), pids(neighbours)],
            &self.context.session.directory().join(CLASSES),
            &self.context.session.cpus,
            self.context.session.policy(Rank::Monitor),
        )?;
        Ok(Some(guard))
    }

    /// Limits the CPU time of the VMs with a quota in this variant, until all returned groups are
    /// dropped; `None` in a variant without a quota.
    fn confine(&self) -> Result<Option<Vec<Confinement>>, LabError> {
        let quota = self.context.experiment.quota.as_ref();
        let Some(quota) = quota.filter(|_| self.variant.quota) else {
            return Ok(None);
        };
        let confine = |name: &Name| {
            let group = confinement(quota, name.get_ref())?;
            self.pids(name).try_for_each(|pid| group.take(pid))?;
            Ok(group)
        };
        let confined: std::io::Result<_> = quota.guests.iter().map(confine).collect();
        Ok(Some(
            confined.map_err(LabError::io("limiting machines' CPU time"))?,
        ))
    }

    /// Returns the processes in a guest.
    fn pids(&self, guest: &Name) -> impl Iterator<Item = u32> {
        let places = self.inside.get(guest.get_ref().as_str()).into_iter();
        places
            .flatten()
            .map(|place| self.supervisor.member(*place).child.id())
    }

    /// Reads the use of the shared core; `None` if there is none, or if a process of its guests has
    /// ended.
    fn core_use(&self) -> Option<CoreUse> {
        let shared = self.context.experiment.shared_core.as_ref()?;
        let guests = shared.guests.iter().flat_map(|guest| self.pids(guest));
        CoreUse::read(self.context.session.cpus.shared_core, guests)
    }

    /// Reads the use of all CPUs.
    fn cpu_use(&self) -> Option<CpuUse> {
        CpuUse::read(self.supervisor.children())
    }

    /// Reads the CPU time of each host's daemon.
    fn daemon_use(&self) -> BTreeMap<&'a str, ProcessUse> {
        let daemons = self.daemons.iter().filter_map(|(host, place)| {
            let pid = self.supervisor.member(*place).child.id();
            // The next check of children reports a dead daemon.
            Some((*host, ProcessUse::read(pid)?))
        });
        daemons.collect()
    }

    /// Starts the load and waits for all outcomes.
    fn measure(&mut self, announce: &mut dyn FnMut(&str)) -> Result<Record, LabError> {
        let experiment = self.context.experiment;
        let on_way: BTreeSet<usize> = self
            .loads
            .iter()
            .flat_map(|load| &load.on_path)
            .copied()
            .collect();
        let pids: Vec<u32> = on_way
            .iter()
            .map(|place| self.supervisor.member(*place).child.id())
            .collect();
        let policy = self.context.session.policy(Rank::Monitor);
        let monitor = monitor::start(&pids, &self.vcpus()?, policy)
            .map_err(LabError::io("starting the monitor"))?;
        let lead = if self.machines.is_empty() {
            LEAD
        } else {
            MACHINES_LEAD
        };
        let start = now().saturating_add(lead);
        self.supervisor
            .start_at(&format!("{}\n", start.as_nanos()))?;
        self.supervisor.rest(start.since(now()).into())?;
        for late in std::mem::take(&mut self.late) {
            let mut words = vec![late.program.to_owned()];
            words.extend(late.args);
            let role = Role::Foreign { ends: true };
            let place = self.start(late.guest, late.program, Asked::Program(words), role)?;
            match &mut self.loads[late.load].source {
                Source::Iperf3(client) | Source::Ping(client, _) => *client = place,
                _ => {}
            }
        }
        // In the middle of the warm-up: a server that accepts all its connections would use up its
        // reservation, and move to another CPU at its replenishment.
        self.supervisor
            .rest(Nanos(experiment.warmup.as_nanos() / 2).into())?;
        let guard = self.give_classes()?;
        let confined = self.confine()?;
        let end = start + experiment.warmup + self.duration();
        self.counted = [start + experiment.warmup, end];
        self.watch_use(announce)?;
        announce("waiting for the last answers");
        self.await_outcomes(end)?;
        self.throttled = confined.map(|groups| {
            let times = groups.iter().map(|group| group.throttled().time);
            times.fold(Nanos::ZERO, |all, time| all + time)
        });
        if let Some(guard) = guard {
            self.brought_back = guard.take_back()?;
        }
        monitor
            .finish()
            .map_err(LabError::io("watching the machine"))
    }

    /// Waits for the end of the counted time, and measures the use of the CPUs in it.
    fn watch_use(&mut self, announce: &mut dyn FnMut(&str)) -> Result<(), LabError> {
        let [from, end] = self.counted;
        let read = |run: &Self| (run.core_use(), run.cpu_use(), run.daemon_use());
        let (mut core, mut cpus, mut of_daemons) = read(self);
        let mut last = None;
        while now() < end {
            if now() < from {
                (core, cpus, of_daemons) = read(self);
            }
            // Measuring children end with the time: then there is no other reading.
            last = self.core_use().or(last);
            let passed = now().since(from).as_secs_f64();
            let of = self.duration().as_secs_f64();
            announce(&format!("measuring, {passed:.0} s of {of:.0} s"));
            self.supervisor
                .rest(Duration::from_millis(200).min(end.since(now()).into()))?;
        }
        self.daemon_cpu = shares(&of_daemons, &self.daemon_use());
        let whole = core.zip(last);
        self.foreign_share = whole.and_then(|(first, last)| first.foreign(&last));
        let whole = cpus.zip(self.cpu_use());
        self.cpus_taken = whole.and_then(|(first, last)| first.taken(&last));
        Ok(())
    }

    /// Waits for all outcomes of a load whose tasks end by themselves.
    fn await_outcomes(&mut self, end: Nanos) -> Result<(), LabError> {
        let latest = end + GRACE + PATIENCE + self.probes_limit();
        while !(self.supervisor.all_ended()? && self.outcomes().all(|path| path.exists())) {
            if now() > latest {
                return Err(LabError::Child {
                    who: "the load".into(),
                    what: "did not come to an end".into(),
                    stderr: String::new(),
                });
            }
            self.supervisor.rest(POLL)?;
        }
        Ok(())
    }
}
