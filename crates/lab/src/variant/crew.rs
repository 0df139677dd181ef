//! The children of a variant: daemons, VMs, and programs in guests.

mod machines;

use super::{CLASSES, Context, GRACE, confinement};
use crate::LabError;
use crate::build;
use crate::class::{ClassGuard, PATHS, give_paths};
use crate::core_use::{CoreUse, CpuUse, ProcessUse};
use crate::experiment::{GuaranteesBy, LabExperiment, PathMode, Pipeline, Variant};
use crate::guest::{self, Work};
use crate::hosts;
use crate::monitor::VcpuOf;
use crate::place;
use crate::processes::{Rank, Ready, Start, Supervisor};
use crate::session::Phases;
use crate::tools::FIRST_PORT;
use crate::topology::Guest;
use crate::vm::GuestCommand;
use machines::RunningVm;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use tailbound_agent::guest::Role as ThreadRole;
use tailbound_agent::scan::Scanner;
use tailbound_experiment::Name;
use tailbound_sys::cgroup::Confinement;
use tailbound_sys::sched::Policy;
use tailbound_units::Nanos;

/// The class of a neighbour that is never preempted.
const UNINTERRUPTED: Policy = Policy::Fifo(1);
/// Output of `tailbound probe serve` when it is ready.
const SERVING: &str = "serving on";

/// Role of a child in a guest.
#[derive(Debug, Clone, Copy)]
pub(super) enum Role {
    /// Measures.
    Measures,
    /// Is load or answers requests.
    Serves,
    /// Measures frames elsewhere: with the highest priority, on a core that the other children do
    /// not need.
    Watches,
    /// Sends at its full speed, on a core of its own.
    Floods,
    /// Stands for a node: no other process on this computer preempts it or the processes that it
    /// waits for.
    Node,
    /// Uses CPU.
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

/// The children of a variant, and their places.
pub(super) struct Crew<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) variant: &'a Variant,
    pub(super) supervisor: Supervisor<'a>,
    /// Each host's daemon.
    daemons: BTreeMap<&'a str, usize>,
    /// The children in each guest.
    inside: BTreeMap<&'a str, Vec<usize>>,
    /// The guests that are VMs.
    machines: BTreeMap<&'a str, RunningVm>,
    /// Outcomes of servers, which count their requests by CPU.
    pub(super) served: BTreeMap<&'a str, Vec<PathBuf>>,
    next_port: u16,
    tasks: usize,
}

impl<'a> Crew<'a> {
    pub(super) fn new(context: &'a Context<'a>, variant: &'a Variant) -> Self {
        Self {
            context,
            variant,
            supervisor: context.session.supervisor(),
            daemons: BTreeMap::new(),
            inside: BTreeMap::new(),
            machines: BTreeMap::new(),
            served: BTreeMap::new(),
            next_port: FIRST_PORT,
            tasks: 0,
        }
    }

    pub(super) const fn experiment(&self) -> &'a LabExperiment {
        self.context.experiment
    }

    /// Returns the guest of that name; the experiment's checks have verified names.
    pub(super) fn guest(&self, name: &Name) -> Result<&'a Guest, LabError> {
        let guest = self.context.topology.guest(name.get_ref());
        guest.ok_or_else(|| LabError::io("the plan")(std::io::ErrorKind::NotFound.into()))
    }

    /// Returns the guests of the experiment's first series.
    fn about(&self) -> impl Iterator<Item = &'a Guest> {
        let topology = self.context.topology;
        let names = self.experiment().about(self.variant).into_iter();
        names.filter_map(move |name| topology.guest(name.get_ref()))
    }

    /// Returns the next port of a server.
    pub(super) const fn port(&mut self) -> u16 {
        self.next_port += 1;
        self.next_port - 1
    }

    pub(super) fn shares_core(&self, guest: &Guest) -> bool {
        let shared = self.experiment().shared_core.as_ref();
        shared.is_some_and(|shared| shared.guests.iter().any(|g| *g.get_ref() == guest.name))
    }

    /// Returns the process of a child.
    pub(super) fn pid(&self, child: usize) -> u32 {
        self.supervisor.member(child).child.id()
    }

    /// Returns the processes in a guest.
    pub(super) fn pids(&self, guest: &str) -> impl Iterator<Item = u32> {
        let children = self.inside.get(guest).into_iter().flatten();
        children.map(move |child| self.pid(*child))
    }

    /// Returns the threads that run the vCPUs of this variant's VMs.
    pub(super) fn vcpus(&self) -> Result<Vec<VcpuOf>, LabError> {
        if self.machines.is_empty() {
            return Ok(Vec::new());
        }
        let scanned = Scanner::new().and_then(|mut scanner| scanner.scan(&[]));
        let guests = scanned.map_err(LabError::io("looking for vCPUs"))?;
        let mut vcpu_threads = Vec::new();
        for name in self.machines.keys() {
            let pids: Vec<u32> = self.pids(name).collect();
            let machine = guests.iter().filter(|guest| pids.contains(&guest.pid));
            let threads = machine.flat_map(|guest| &guest.threads);
            let vcpus = threads.filter(|thread| matches!(thread.role, ThreadRole::Vcpu(_)));
            vcpu_threads.extend(vcpus.map(|thread| VcpuOf {
                guest: (*name).to_owned(),
                process: thread.id.pid,
                thread: thread.id.tid,
            }));
        }
        Ok(vcpu_threads)
    }

    /// Returns the daemons of these guests' hosts.
    pub(super) fn daemons_of<'n>(&self, guests: impl IntoIterator<Item = &'n Name>) -> Vec<usize> {
        let hosts: BTreeSet<&str> = guests
            .into_iter()
            .filter_map(|name| self.context.topology.guest(name.get_ref()))
            .map(|guest| guest.host.as_str())
            .collect();
        let daemons = hosts.into_iter().filter_map(|host| self.daemons.get(host));
        daemons.copied().collect()
    }

    /// Returns the child, unless its wait for a CPU is the subject of the measurement: it shares
    /// its core with computing guests in this variant.
    pub(super) fn unless_tested(&self, guest: &Guest, child: usize) -> Option<usize> {
        let mut hogs = self.variant.running(&self.experiment().hog);
        let contended = hogs.any(|hog| {
            let mut guests = hog.guests.iter().filter_map(|name| self.guest(name).ok());
            guests.any(|guest| self.shares_core(guest))
        });
        (!contended || !self.shares_core(guest)).then_some(child)
    }

    /// Returns whether a child is in a VM.
    pub(super) fn has_machines(&self) -> bool {
        !self.machines.is_empty()
    }

    /// Starts a program in a guest.
    pub(super) fn start(
        &mut self,
        guest: &'a Guest,
        purpose: &str,
        command: GuestCommand,
        role: Role,
    ) -> Result<usize, LabError> {
        let ends = matches!(role, Role::Foreign { ends: true });
        let ready = match role {
            Role::Node => Ready::Stdout(SERVING),
            _ => Ready::Silent,
        };
        self.start_child(guest, purpose, command, role, ready, ends)
    }

    /// Starts one of our own tasks in a guest; returns its index and the path of its outcome.
    pub(super) fn start_task(
        &mut self,
        guest: &'a Guest,
        purpose: &str,
        work: Work,
        role: Role,
    ) -> Result<(usize, PathBuf), LabError> {
        let ends = work.ends();
        let (path, outcome) = self.write_task(work)?;
        let ready = Ready::Stdout(guest::READY);
        let child =
            self.start_child(guest, purpose, GuestCommand::Task(path), role, ready, ends)?;
        Ok((child, outcome))
    }

    fn start_child(
        &mut self,
        guest: &'a Guest,
        purpose: &str,
        command: GuestCommand,
        role: Role,
        ready: Ready,
        ends: bool,
    ) -> Result<usize, LabError> {
        let (program, args) = self.command(guest, command)?;
        let session = self.context.session;
        let cpus = &session.cpus;
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
                Role::Node | Role::Computes { .. } | Role::Monopolizes | Role::Foreign { .. },
            ) => (cpus.others, Rank::Tested),
        };
        let policy = match role {
            Role::Monopolizes if !is_machine => Some(UNINTERRUPTED),
            Role::Node if session.real_time => Some(UNINTERRUPTED),
            Role::Computes { nice: nice @ 1.. } if !is_machine => Some(Policy::Share {
                nice: i32::from(nice),
                slice: Nanos::ZERO,
            }),
            _ => session.policy(rank),
        };
        let name = format!("guest {}'s {purpose}", guest.name);
        let child = self.supervisor.start(Start {
            args,
            policy,
            ready,
            ends,
            ..Start::new(name, program, &guest.name, cpus)
        })?;
        // A node's probe ends before any sample counts.
        let is_probe = matches!(role, Role::Node) && ends;
        if !is_machine && !is_probe {
            self.inside.entry(&guest.name).or_default().push(child);
        }
        Ok(child)
    }

    /// Writes a task; returns the paths of the task and of its outcome.
    pub(super) fn write_task(&mut self, work: Work) -> Result<(PathBuf, PathBuf), LabError> {
        self.tasks += 1;
        let stem = format!("{}-task{}", self.variant.name.get_ref(), self.tasks);
        let experiment = self.experiment();
        let phases = Phases {
            warmup: experiment.warmup,
            duration: experiment.counted_time(self.variant),
            grace: GRACE,
        };
        self.context.session.write_task(&stem, work, phases)
    }

    /// Returns the pipeline of the hosts; `None` if the variant does not use the network.
    fn pipeline(&self) -> Option<&'a Pipeline> {
        let name = self.variant.pipeline.as_ref()?;
        self.experiment().pipeline.get(name.get_ref())
    }

    pub(super) fn start_daemons(&mut self) -> Result<(), LabError> {
        let Some(pipeline) = self.pipeline() else {
            return Ok(());
        };
        let Context {
            experiment,
            topology,
            session,
            ..
        } = *self.context;
        let variant = self.variant;
        let nic_queue = hosts::nic_queue(pipeline, experiment.link_rate);
        build::shape(topology, experiment, variant.switch, nic_queue)?;
        // Separate hosts would not wait for each other: daemons of hosts that are not measured have
        // a lower priority.
        let about: BTreeSet<&str> = self.about().map(|guest| guest.host.as_str()).collect();
        let stands_behind = |host: &str| !about.is_empty() && !about.contains(host);
        let has_class = variant.path != PathMode::None;
        for host in &topology.hosts {
            let directory = session.directory();
            let text = hosts::config(topology, host, experiment, variant, pipeline, directory);
            let text = text.map_err(|error| {
                LabError::io("writing the pipeline")(std::io::Error::other(error))
            })?;
            let name = format!("host {host}'s daemon");
            let mut daemon = session.daemon(name, host, &format!("{host}.toml"), &text)?;
            daemon.args.extend(self.follows(host));
            if has_class && stands_behind(host) {
                daemon.policy = session.policy(Rank::Infrastructure);
            }
            let child = self.supervisor.start(daemon)?;
            self.daemons.insert(host, child);
        }
        self.supervisor.wait_ready(0)?;
        if !has_class {
            return Ok(());
        }
        let measured = self.daemons.iter().filter(|(host, _)| !stands_behind(host));
        let pids: Vec<_> = measured.map(|(_, child)| self.pid(*child)).collect();
        give_paths(&pids, session.real_time, &session.directory().join(PATHS))
    }

    /// Returns the arguments by which a host's daemon follows the placement service; empty if it
    /// does not.
    fn follows(&self, host: &str) -> Vec<String> {
        let mut followers = place::followers(self.experiment(), self.variant);
        let follows = self.variant.guarantees_by == GuaranteesBy::Service
            && followers.any(|follower| follower == host);
        if follows {
            place::follow(self.context.session.directory(), host)
        } else {
            Vec::new()
        }
    }

    /// Sets the classes of the guests on the shared core.
    pub(super) fn give_classes(&self) -> Result<Option<ClassGuard>, LabError> {
        let Some(shared) = &self.experiment().shared_core else {
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
            let guests = guests.into_iter();
            guests.flat_map(|name| self.pids(name.get_ref())).collect()
        };
        let session = self.context.session;
        let guard = ClassGuard::give(
            self.variant.vcpu,
            shared,
            [pids(guests), pids(neighbours)],
            &session.directory().join(CLASSES),
            &session.cpus,
            session.policy(Rank::Monitor),
        )?;
        Ok(Some(guard))
    }

    /// Limits the CPU time of the VMs with a quota in this variant, until all returned groups are
    /// dropped; `None` in a variant without a quota.
    pub(super) fn confine(&self) -> Result<Option<Vec<Confinement>>, LabError> {
        let quota = self.experiment().quota.as_ref();
        let Some(quota) = quota.filter(|_| self.variant.quota) else {
            return Ok(None);
        };
        let confine = |name: &Name| {
            let group = confinement(quota, name.get_ref())?;
            let mut pids = self.pids(name.get_ref());
            pids.try_for_each(|pid| group.take(pid))?;
            Ok(group)
        };
        let confined: std::io::Result<_> = quota.guests.iter().map(confine).collect();
        Ok(Some(
            confined.map_err(LabError::io("limiting machines' CPU time"))?,
        ))
    }

    /// Reads the use of the shared core; `None` if there is none, or if a process of its guests has
    /// ended.
    pub(super) fn core_use(&self) -> Option<CoreUse> {
        let shared = self.experiment().shared_core.as_ref()?;
        let guests = shared.guests.iter();
        let pids = guests.flat_map(|guest| self.pids(guest.get_ref()));
        CoreUse::read(self.context.session.cpus.shared_core, pids)
    }

    /// Reads the use of all CPUs.
    pub(super) fn cpu_use(&self) -> Option<CpuUse> {
        CpuUse::read(self.supervisor.children())
    }

    /// Reads the CPU time of each host's daemon.
    pub(super) fn daemon_use(&self) -> BTreeMap<&'a str, ProcessUse> {
        // The next check of children reports a dead daemon.
        let read =
            |(host, child): (&&'a str, &usize)| Some((*host, ProcessUse::read(self.pid(*child))?));
        self.daemons.iter().filter_map(read).collect()
    }
}
