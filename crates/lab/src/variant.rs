//! One variant, from its daemons to its samples: [`load`] starts who makes the
//! load, [`probe`] what concerns the probe, [`collect`] takes in what they leave.

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

/// How long answers that are late are waited for.
const GRACE: Nanos = Nanos::from_secs(5);
/// From the word to start to the start: long enough for everybody to hear it.
const LEAD: Nanos = Nanos::from_millis(300);
/// The same where somebody hears it in a machine.
const MACHINES_LEAD: Nanos = Nanos::from_secs(1);
/// How long after its end a run may still lack an outcome.
const PATIENCE: Nanos = Nanos::from_secs(10);
/// In the run's directory: what the vCPU agent has changed.
pub(crate) const CLASSES: &str = "classes.json";
/// The value of the share of the shared core that others than its guests used.
pub(crate) const FOREIGN_SHARE: &str = "foreign_share";
/// Less of the reserved guests' work than this on the shared core means that
/// the variant did not show what it says.
const SHARED_CORE_SHARE: f64 = 0.99;

/// What all variants of a run have in common.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) experiment: &'a LabExperiment,
    pub(crate) topology: &'a Topology,
    pub(crate) cpus: Cpus,
    /// Whether real-time classes may be set.
    pub(crate) real_time: bool,
    pub(crate) run_dir: &'a RunDir,
    /// This very program.
    pub(crate) program: PathBuf,
    pub(crate) seed: u64,
    /// What machines share, where there are any.
    pub(crate) machines: Option<Machines>,
    /// The signal that asked this process to end, or 0.
    pub(crate) signal: Arc<AtomicUsize>,
}

impl Context<'_> {
    /// The scheduling class of a rank.
    fn policy(&self, rank: Rank) -> Option<Policy> {
        rank.policy(self.real_time)
    }
}

/// What one run of a variant measured.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) series: BTreeMap<String, MeasuredSeries>,
    pub(crate) values: BTreeMap<String, (&'static str, f64)>,
    /// Time that the hypervisor below took from all CPUs together.
    pub(crate) stolen: Nanos,
    /// What was taken of a CPU, as the vCPU agent measures it.
    pub(crate) taken: tailbound_agent::taken::Measured,
    /// Why the figures do not show what the variant says.
    pub(crate) flaw: Option<String>,
    /// The values that rest on what the machine spoiled, and how it did.
    pub(crate) spoiled: Option<(&'static str, String)>,
    /// The shares taken of all CPUs while samples counted.
    pub(crate) cpus_taken: Option<CpusTaken>,
    /// Why it has no figures, where a computer that others use was too slow for it.
    pub(crate) lost: Option<String>,
    /// What the probe said, in a line.
    pub(crate) line: Option<String>,
    /// What the placement service promised, where it was asked.
    pub(crate) promises: Option<Promises>,
}

impl Measured {
    pub(crate) fn value(&mut self, name: &str, unit: &'static str, value: f64) {
        self.values.insert(name.to_owned(), (unit, value));
    }
}

/// The samples of a series and the class of each.
#[derive(Debug, Default)]
pub(crate) struct MeasuredSeries {
    pub(crate) samples: Vec<Sample>,
    pub(crate) classes: Vec<SampleClass>,
    pub(crate) unanswered: u64,
    /// More samples, of which only this is known.
    pub(crate) counted: Option<Histogram<u64>>,
}

/// A load that runs: what it measures, and who is on its path.
struct Load {
    output: Output,
    source: Source,
    /// The children whose waiting for a CPU is our fault.
    on_path: Vec<usize>,
    /// How often what is measured passes each of them at most, where that is known.
    passages: Option<usize>,
}

/// What is measured where messages go between machines.
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
    /// The series; its source may also have values of fixed names.
    Series(String),
    Value(String, &'static str),
}

enum Source {
    /// Outcome files of our own tasks.
    Own(Vec<PathBuf>),
    /// Pauses in transfers, in the outcome file of their receiver.
    Pauses(PathBuf),
    /// Messages: what the senders and what the receivers say.
    Messages {
        sent: Vec<PathBuf>,
        received: Vec<PathBuf>,
        /// What is measured of their rings.
        rings: Rings,
    },
    /// A meter's outcome and what it should have found.
    Metered(PathBuf, Rate),
    /// What the receiver of a stream of RTP left, and how far its packets are apart.
    Rtp(PathBuf, Nanos),
    /// A watch's outcome.
    Watched(PathBuf),
    /// A probe's outcome.
    Probed(PathBuf),
    /// What a host's daemon used of a CPU.
    Daemon(String),
    /// The output of `iperf3 -J`: its rate, or the jitter that its receiver saw.
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
    /// It measures what passes elsewhere: before all others, on a core that they do
    /// not need.
    Watches,
    /// It sends as fast as it can until it is killed, on a core of its own.
    Floods,
    /// It stands for a node: nobody interrupts whom it waits for, nor it. What else this machine
    /// does goes behind.
    Node {
        /// Whether it ends by itself.
        ends: bool,
    },
    /// It uses CPU, until it is killed.
    Computes {
        /// How little of it beside others.
        nice: u8,
    },
    /// It does so before all others on its core.
    Monopolizes,
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
    context: &'a Context<'a>,
    variant: &'a Variant,
    supervisor: Supervisor<'a>,
    /// Each host's daemon.
    daemons: BTreeMap<&'a str, usize>,
    /// The children in each guest.
    inside: BTreeMap<&'a str, Vec<usize>>,
    loads: Vec<Load>,
    late: Vec<Late<'a>>,
    /// The guests that are machines.
    machines: BTreeMap<&'a str, Started>,
    /// Outcomes of servers.
    servers: BTreeMap<&'a str, Vec<PathBuf>>,
    next_port: u16,
    tasks: usize,
    /// How often a guest had used its reservation up and was moved.
    brought_back: u64,
    /// The share of the shared core that others than its guests used.
    foreign_share: Option<f64>,
    /// The shares taken of all CPUs while samples counted.
    cpus_taken: Option<CpusTaken>,
    /// What each host's daemon used of a CPU while samples counted.
    daemon_cpu: BTreeMap<&'a str, f64>,
    /// What the placement service promised, where it was asked.
    promises: Option<Promises>,
    /// How long machines with a quota could not run for that.
    throttled: Option<Nanos>,
    /// When samples begin and cease to count, and when the last may end.
    counted: [Nanos; 2],
}

/// Runs a variant once. `announce` is told what happens.
pub(crate) fn run<'a>(
    context: &'a Context<'a>,
    variant: &'a Variant,
    announce: &mut dyn FnMut(&str),
) -> Result<Measured, LabError> {
    let mut run = Run {
        context,
        variant,
        supervisor: Supervisor::new(context.run_dir, Arc::clone(&context.signal)),
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

/// The share of a CPU that each daemon had from one reading to another, in percent.
fn shares<'h>(
    first: &BTreeMap<&'h str, ProcessUse>,
    last: &BTreeMap<&'h str, ProcessUse>,
) -> BTreeMap<&'h str, f64> {
    let share =
        |(host, first): (&&'h str, &ProcessUse)| Some((*host, first.share(last.get(host)?)));
    first.iter().filter_map(share).collect()
}

/// Makes a control group for a guest's machine.
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
        // Hosts of their own would not wait for each other: those that the experiment is not about
        // stand behind.
        let about: BTreeSet<&str> = self.about().map(|guest| guest.host.as_str()).collect();
        let stands_behind = |host: &str| !about.is_empty() && !about.contains(host);
        let has_class = self.variant.path != PathMode::None;
        for host in &self.context.topology.hosts {
            let (topology, variant) = (self.context.topology, self.variant);
            let directory = self.context.run_dir.path();
            let text = hosts::config(topology, host, experiment, variant, pipeline, directory);
            let text = text.map_err(|error| {
                LabError::io("writing the pipeline")(std::io::Error::other(error))
            })?;
            let path = self.context.run_dir.path().join(format!("{host}.toml"));
            std::fs::write(&path, text).map_err(LabError::file("writing", &path))?;
            let place = self.supervisor.start(Start {
                name: format!("host {host}'s daemon"),
                program: self.context.program.clone(),
                args: [
                    vec!["host".into(), "--config".into(), path.display().to_string()],
                    self.follows(host),
                ]
                .concat(),
                netns: &namespace_path(host),
                cpus: self.context.cpus.others,
                policy: (has_class && stands_behind(host))
                    .then(|| self.context.policy(Rank::Infrastructure))
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
        let state = self.context.run_dir.path().join(PATHS);
        give_paths(&pids, self.context.real_time, &state)
    }

    /// What has a host's daemon follow the placement service, where it is to.
    fn follows(&self, host: &str) -> Vec<String> {
        let (experiment, variant) = (self.context.experiment, self.variant);
        let mut followers = place::followers(experiment, variant);
        let follows = variant.guarantees_by == GuaranteesBy::Service
            && followers.any(|follower| follower == host);
        if follows {
            place::follow(self.context.run_dir.path(), host)
        } else {
            Vec::new()
        }
    }

    /// Gives the guests on the shared core their classes.
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
            &self.context.run_dir.path().join(CLASSES),
            &self.context.cpus,
            self.context.policy(Rank::Monitor),
        )?;
        Ok(Some(guard))
    }

    /// Limits the CPU time of the machines that have a quota in this variant, until all that is
    /// returned is dropped; `None` in a variant without.
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

    /// The processes in a guest.
    fn pids(&self, guest: &Name) -> impl Iterator<Item = u32> {
        let places = self.inside.get(guest.get_ref().as_str()).into_iter();
        places
            .flatten()
            .map(|place| self.supervisor.member(*place).child.id())
    }

    /// Who has used the shared core so far; `None` where there is none, or one of
    /// its guests' processes has ended.
    fn core_use(&self) -> Option<CoreUse> {
        let shared = self.context.experiment.shared_core.as_ref()?;
        let guests = shared.guests.iter().flat_map(|guest| self.pids(guest));
        CoreUse::read(self.context.cpus.shared_core, guests)
    }

    /// A reading of the use of all CPUs.
    fn cpu_use(&self) -> Option<CpuUse> {
        CpuUse::read(self.supervisor.children())
    }

    /// What each host's daemon has computed so far.
    fn daemon_use(&self) -> BTreeMap<&'a str, ProcessUse> {
        let daemons = self.daemons.iter().filter_map(|(host, place)| {
            let pid = self.supervisor.member(*place).child.id();
            // Of one that died another look says so.
            Some((*host, ProcessUse::read(pid)?))
        });
        daemons.collect()
    }

    /// Lets the load run and waits for all outcomes.
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
        let policy = self.context.policy(Rank::Monitor);
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
        // In mid warm-up: a server that accepts all its connections would use its
        // reservation up, and be moved to another CPU when it gets it back.
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

    /// Waits for the end of the counted time, and sees who uses the CPUs in it.
    fn watch_use(&mut self, announce: &mut dyn FnMut(&str)) -> Result<(), LabError> {
        let [from, end] = self.counted;
        let read = |run: &Self| (run.core_use(), run.cpu_use(), run.daemon_use());
        let (mut core, mut cpus, mut of_daemons) = read(self);
        let mut last = None;
        while now() < end {
            if now() < from {
                (core, cpus, of_daemons) = read(self);
            }
            // Those that measure end with the time: then there is no other reading.
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

    /// Waits for all outcomes of a load that ends so.
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
