//! Sets the scheduling class of guests on the shared core that a variant measures, through the vCPU
//! agent's own library.

use crate::LabError;
use crate::cpus::Cpus;
use crate::experiment::{SharedCore, VcpuMode};
use crate::reservation;
use crate::watcher::Watcher;
use std::path::Path;
use tailbound_agent::plan::Plan;
use tailbound_agent::rule::thread_name;
use tailbound_agent::scan::Scanner;
use tailbound_agent::{Agent, AgentError, Aperiodic, Class, Desired, Periodic};
use tailbound_sys::probe::Capability;
use tailbound_sys::process::set_policies;
use tailbound_sys::procfs;
use tailbound_sys::sched::{Policy, probe, probe_slice};
use tailbound_units::Nanos;

/// The smallest possible share: 15 of the default's 1024. Raising nice needs no privilege, so
/// [`VcpuMode::Weight`] makes the neighbours' share small.
const NICEST: Policy = Policy::Share {
    nice: 19,
    slice: Nanos::ZERO,
};

/// File in a run's directory: the agent's changes of hosts' packet loops.
pub(crate) const PATHS: &str = "paths.json";

/// Returns the agent's class for this mode; `None` if the agent changes nothing.
fn class(mode: VcpuMode, shared: &SharedCore) -> Option<Class> {
    let slice = shared.slice;
    Some(match mode {
        VcpuMode::Default | VcpuMode::Weight => return None,
        VcpuMode::Slice => Class::Aperiodic(Aperiodic { slice, weight: 1 }),
        VcpuMode::Aperiodic => Class::Aperiodic(Aperiodic {
            slice,
            ..Aperiodic::default()
        }),
        VcpuMode::Periodic => {
            let periodic = &shared.periodic;
            Class::Periodic(Periodic {
                runtime: periodic.runtime,
                deadline: periodic.deadline,
                period: periodic.period,
            })
        }
    })
}

/// Returns the reason if guests cannot have their class on this computer; `None` if they can.
pub(crate) fn refusal(
    mode: VcpuMode,
    shared: &SharedCore,
    state: &Path,
) -> Result<Option<String>, AgentError> {
    let Some(class) = class(mode, shared) else {
        return Ok(None);
    };
    let mut agent = Agent::open(state)?;
    // A plan for this very process changes nothing.
    match plan(&mut agent, &[std::process::id()], class) {
        Ok(_) => Ok(match class {
            // A plan cannot detect a kernel that has lost count of bandwidth.
            Class::Periodic(periodic) => probe(Policy::Deadline(periodic.into()))
                .err()
                .map(|error| format!("the kernel refuses SCHED_DEADLINE: {error}")),
            // This mode sets a slice only; older kernels report no slice.
            _ if mode == VcpuMode::Slice => match probe_slice(Nanos::from_micros(300)) {
                Ok(Nanos::ZERO) => Some(Capability::CustomSlice.unsupported()),
                Ok(_) => None,
                Err(error) => Some(error.to_string()),
            },
            _ => None,
        }),
        Err(AgentError::Plan(errors)) => Ok(errors.first().map(ToString::to_string)),
        Err(error) => Err(error),
    }
}

fn plan(agent: &mut Agent, processes: &[u32], class: Class) -> Result<Plan, AgentError> {
    let mut desired: Vec<Desired> = Vec::new();
    let machines = Scanner::new().and_then(|mut scanner| scanner.scan(&[]));
    let machines = machines.map_err(AgentError::Observe)?;
    for pid in processes {
        if let Some(machine) = machines.iter().find(|machine| machine.pid == *pid) {
            desired.extend(machine.threads.iter().map(|thread| {
                let vcpu = thread.role.is_vcpu();
                Desired {
                    name: thread_name(machine, thread),
                    ..Desired::new(thread.id, if vcpu { class } else { class.for_helpers() })
                }
            }));
            continue;
        }
        let threads = procfs::threads(*pid).map_err(AgentError::Observe)?;
        let threads = threads.into_iter().filter_map(tailbound_agent::thread);
        desired.extend(threads.map(|thread| Desired {
            name: "the guest".into(),
            ..Desired::new(thread, class)
        }));
    }
    agent.plan(&desired)
}

/// Sets the class of these daemons' packet loops, as the agent does on a host, until the daemons
/// end. If no real-time class is available, the loops have a short slice, as the agent does it on
/// kernels that refuse that class. The agent records the previous classes in `state`.
pub(crate) fn give_paths(daemons: &[u32], real_time: bool, state: &Path) -> Result<(), LabError> {
    let class = if real_time {
        Class::RealTime
    } else {
        Class::Aperiodic(Aperiodic {
            weight: 1,
            ..Aperiodic::default()
        })
    };
    let loops = daemons
        .iter()
        .filter_map(|pid| tailbound_agent::thread(*pid));
    let desired: Vec<_> = loops.map(|thread| Desired::new(thread, class)).collect();
    let mut agent = Agent::open(state)?;
    let plan = agent.plan(&desired)?;
    agent.apply(&plan)?;
    Ok(())
}

/// Classes of guests until the guard restores the previous ones.
#[derive(Debug)]
pub(crate) struct ClassGuard {
    agent: Agent,
    keeper: Option<Watcher<u64>>,
}

impl ClassGuard {
    /// Sets the class of the processes of the measured guests, and the matching class of their
    /// neighbours. The agent records the previous classes in `state`; `priority` is the priority of
    /// the watching thread.
    pub(crate) fn give(
        mode: VcpuMode,
        shared: &SharedCore,
        [guests, neighbours]: [Vec<u32>; 2],
        state: &Path,
        cpus: &Cpus,
        priority: Option<Policy>,
    ) -> Result<Self, LabError> {
        if mode == VcpuMode::Weight {
            for pid in neighbours {
                set_policies(pid, NICEST).map_err(LabError::io("giving neighbours their share"))?;
            }
        }
        let mut agent = Agent::open(state)?;
        let mut keeper = None;
        if let Some(class) = class(mode, shared) {
            let plan = plan(&mut agent, &guests, class)?;
            agent.apply(&plan)?;
            if let Class::Periodic(periodic) = class {
                let started = reservation::start(guests, periodic.into(), cpus, priority);
                keeper = Some(started.map_err(LabError::io("keeping reservations"))?);
            }
        }
        Ok(Self { agent, keeper })
    }

    /// Restores the previous classes; returns how often a guest was moved back to the shared core.
    pub(crate) fn take_back(mut self) -> Result<u64, LabError> {
        let brought_back = self.keeper.take().map_or(Ok(0), Watcher::finish);
        self.agent.restore()?;
        brought_back.map_err(LabError::io("keeping reservations"))
    }
}

impl Drop for ClassGuard {
    /// Restores the classes after an error: a killed thread that has used up its reservation does
    /// not die before the next period, and the lab waits for the threads that it kills.
    fn drop(&mut self) {
        let _ = self.keeper.take().map(Watcher::finish);
        let _ = self.agent.restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};
    use tailbound_sys::probe::required::{Part, skipped};
    use tailbound_sys::thread::scheduling;

    const SHARED: &str = r#"
        guests = ["A1", "N1"]
        periodic = { guests = ["A1"], runtime = "1ms", deadline = "4ms", period = "4ms" }
        slice = "300us"
    "#;

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    #[test]
    fn a_slice_goes_to_the_guest_and_a_weight_is_taken_from_its_neighbour_alone() {
        let shared: SharedCore = toml::from_str(SHARED).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state.json");
        let cpus = Cpus::detect().unwrap();
        let slice = Nanos::from_micros(300);
        let inherited = scheduling(0).unwrap().nice;
        for (mode, guest_slice, neighbour_nice) in [
            (VcpuMode::Default, false, inherited),
            (VcpuMode::Slice, true, inherited),
            (VcpuMode::Weight, false, 19),
        ] {
            if let Some(why) = refusal(mode, &shared, &state).unwrap() {
                assert_eq!(mode, VcpuMode::Slice, "{why}");
                skipped(Part::CustomSlice, why);
                continue;
            }
            let (mut guest, mut neighbour) = (sleeper(), sleeper());
            let pids = [vec![guest.id()], vec![neighbour.id()]];
            let guard = ClassGuard::give(mode, &shared, pids, &state, &cpus, None).unwrap();
            let [of_guest, of_neighbour] =
                [&guest, &neighbour].map(|child| scheduling(child.id()).unwrap());
            assert_eq!(of_guest.runtime == slice, guest_slice, "{mode:?}");
            assert_eq!(of_guest.nice, inherited, "{mode:?}");
            assert_eq!(of_neighbour.nice, neighbour_nice, "{mode:?}");
            guard.take_back().unwrap();
            assert_ne!(scheduling(guest.id()).unwrap().runtime, slice, "{mode:?}");
            for child in [&mut guest, &mut neighbour] {
                child.kill().unwrap();
                child.wait().unwrap();
            }
        }
    }
}
