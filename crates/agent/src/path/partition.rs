//! CPUs of the host's own packet path: a partition of cgroup v2, or exclusive cpusets of version 1.
//! The plan is computed from the observed state ([`Machine`]), without a system call.

use super::PathConfig;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use tailbound_sys::cpuset::Cpus;

/// The observed cpusets and interrupts of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its CPUs.
    pub online: Cpus,
    /// Name of another program that assigns CPUs.
    pub manager: Option<String>,
    /// Cpusets of the control groups.
    pub cpusets: Option<Cpusets>,
    /// The groups with CPUs of their own, by directory, except the path's group.
    pub confined: Vec<(PathBuf, Cpus)>,
    /// The interrupts of the path's NICs.
    pub interrupts: Vec<Interrupt>,
    /// NICs that have none that are known.
    pub without_interrupts: Vec<String>,
}

/// The hierarchy of cpusets, and the daemon's place in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cpusets {
    /// Version 2.
    Unified {
        /// The root of the hierarchy.
        root: PathBuf,
        /// The outermost group that the daemon is in.
        group: PathBuf,
        /// Other members.
        others: Vec<String>,
        /// True if groups below the root have cpusets.
        handed_down: bool,
        /// Its CPUs, as text.
        cpus: String,
    },
    /// Version 1.
    Legacy {
        /// The set that all are in.
        top: PathBuf,
        /// True if load is balanced over the whole set.
        balanced: bool,
    },
}

/// An interrupt of a NIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// Its NIC.
    pub nic: String,
    /// Its CPUs.
    pub cpus: Cpus,
}

/// A change for the host's own packet path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum PathStep {
    /// A group becomes a partition (cgroup v2).
    Partition {
        /// The group.
        group: PathBuf,
        /// Its CPUs.
        cpus: Cpus,
        /// Its CPUs before, as text.
        before: String,
        /// The root, where cpusets are handed down to groups for this.
        hand_down: Option<PathBuf>,
    },
    /// Moves all movable processes to a set of the other CPUs, and the daemon to a set of these
    /// (version 1).
    Sets {
        /// The set that all are in.
        top: PathBuf,
        /// The path's CPUs.
        cpus: Cpus,
        /// The others.
        rest: Cpus,
        /// True if load was balanced over all CPUs before.
        balanced: bool,
        /// The daemon's processes.
        daemon: Vec<u32>,
    },
    /// A NIC's interrupt is served elsewhere.
    Interrupt {
        /// Its number.
        number: u32,
        /// Its NIC.
        nic: String,
        /// Its CPUs before.
        before: Cpus,
        /// Its CPUs afterwards.
        after: Cpus,
    },
}

/// Reason why the host's own path has no CPUs of its own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The machine has not all of them, or no others.
    #[error(
        "the host's own path cannot have the CPUs {wanted} of {online}: name some of them, and \
         leave some to guests"
    )]
    Cpus {
        /// The requested CPUs.
        wanted: String,
        /// The online CPUs.
        online: String,
    },
    /// Another program assigns CPUs.
    #[error(
        "the host's own path gets no CPUs of its own: {0}; keep them from guests there, and leave \
         `cpus` of [path] out"
    )]
    Managed(String),
    /// Another group has some of them.
    #[error(
        "the host's own path gets no CPUs of its own: the control group {} has the CPUs {cpus} \
         ({}); take those of the path from it, or leave `cpus` of [path] out",
        group.display(),
        super::super::place::confiner(&group.to_string_lossy())
    )]
    Confined {
        /// The group.
        group: PathBuf,
        /// Its CPUs.
        cpus: String,
    },
    /// Others would have them too.
    #[error(
        "the host's own path gets no CPUs of its own: {} is in the control group {} as well; start \
         the daemon in a slice of its own, as contrib/tailbound-host.service does",
        others.join(", "),
        group.display()
    )]
    Shared {
        /// The outermost group that the daemon is in.
        group: PathBuf,
        /// Other members.
        others: Vec<String>,
    },
    /// A NIC that has no interrupts.
    #[error(
        "{0} has no interrupts of its own that could be served on the path's CPUs; name the \
         physical interface, or leave it out of `interrupts`"
    )]
    NoInterrupts(String),
    /// The kernel has no cpusets.
    #[error(
        "the host's own path gets no CPUs of its own: there are no cpusets here (CONFIG_CPUSETS), \
         or the daemon is in no group"
    )]
    None,
    /// The kernel refused a step; all before it was undone.
    #[error("{what}: {why}; everything is as it was before")]
    Kernel {
        /// The step, in words.
        what: String,
        /// The kernel's error.
        why: String,
    },
}

/// Returns what has to be done so that the path has `wanted` for itself, and its NICs' interrupts
/// are served there. `done` is in force already. `daemon` are its processes.
///
/// # Errors
/// Everything that stands in the way of CPUs of its own; the steps are then none.
pub fn plan(
    config: &PathConfig,
    machine: &Machine,
    done: &[PathStep],
    daemon: &[u32],
) -> Result<Vec<PathStep>, PathError> {
    let Some(wanted) = config.cpus else {
        return Ok(Vec::new());
    };
    if let Some(nic) = machine.without_interrupts.first() {
        return Err(PathError::NoInterrupts(nic.clone()));
    }
    let mut steps = Vec::new();
    if !has_cpus(done, wanted) {
        steps.push(own(wanted, machine, daemon)?);
    }
    let moved = |interrupt: u32| {
        let is = |step: &PathStep| matches!(step, PathStep::Interrupt { number, .. } if *number == interrupt);
        done.iter().any(is)
    };
    for one in &machine.interrupts {
        if one.cpus != wanted && !moved(one.number) {
            steps.push(PathStep::Interrupt {
                number: one.number,
                nic: one.nic.clone(),
                before: one.cpus,
                after: wanted,
            });
        }
    }
    Ok(steps)
}

/// Returns true if the completed steps reserve these CPUs for the path.
pub(crate) fn has_cpus(done: &[PathStep], wanted: Cpus) -> bool {
    done.iter().any(|step| step.takes() == Some(wanted))
}

/// Returns the step that reserves the path's CPUs.
fn own(wanted: Cpus, machine: &Machine, daemon: &[u32]) -> Result<PathStep, PathError> {
    let online = machine.online;
    let rest = online.without(&wanted);
    if wanted.is_empty() || rest.is_empty() || !online.covers(&wanted) {
        return Err(PathError::Cpus {
            wanted: wanted.to_string(),
            online: online.to_string(),
        });
    }
    if let Some(manager) = &machine.manager {
        return Err(PathError::Managed(manager.clone()));
    }
    let taken = |(_, cpus): &&(PathBuf, Cpus)| !cpus.and(&wanted).is_empty();
    if let Some((group, cpus)) = machine.confined.iter().find(taken) {
        return Err(PathError::Confined {
            group: group.clone(),
            cpus: cpus.to_string(),
        });
    }
    match machine.cpusets.as_ref().ok_or(PathError::None)? {
        Cpusets::Unified { group, others, .. } if !others.is_empty() => Err(PathError::Shared {
            group: group.clone(),
            others: others.clone(),
        }),
        Cpusets::Unified {
            root,
            group,
            handed_down,
            cpus,
            ..
        } => Ok(PathStep::Partition {
            group: group.clone(),
            cpus: wanted,
            before: cpus.clone(),
            hand_down: (!handed_down).then(|| root.clone()),
        }),
        Cpusets::Legacy { top, balanced } => Ok(PathStep::Sets {
            top: top.clone(),
            cpus: wanted,
            rest,
            balanced: *balanced,
            daemon: daemon.to_vec(),
        }),
    }
}

impl PathStep {
    /// Returns the CPUs that it takes from all others.
    pub fn takes(&self) -> Option<Cpus> {
        match self {
            Self::Partition { cpus, .. } | Self::Sets { cpus, .. } => Some(*cpus),
            Self::Interrupt { .. } => None,
        }
    }
}

impl fmt::Display for PathStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Partition { group, cpus, .. } => {
                write!(
                    f,
                    "group {}: a partition of the CPUs {cpus}",
                    group.display()
                )
            }
            Self::Sets {
                top, cpus, rest, ..
            } => write!(
                f,
                "cpusets in {}: the CPUs {cpus} for the host's own path, {rest} for all others",
                top.display()
            ),
            Self::Interrupt {
                number,
                nic,
                before,
                after,
            } => write!(f, "interrupt {number} ({nic}): CPUs {before} -> {after}"),
        }
    }
}
