//! Obstacles to a plan: each with its excess, and a request that would pass.

use super::class::{CPU, Class};
use std::path::PathBuf;
use tailbound_sys::cpuset::Cpus;
use tailbound_units::Nanos;

/// The largest reservation that would pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nearest {
    /// CPU time in each period.
    pub runtime: Nanos,
    /// The period, as it was asked for.
    pub period: Nanos,
}

/// Obstacle to a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The privilege is missing.
    #[error(
        "{name}: {} takes CAP_SYS_NICE in the initial user namespace, which this process lacks; \
         run as root, or in a service with AmbientCapabilities=CAP_SYS_NICE",
        if *ours { class.to_string() } else { format!("{class} for another user's thread") }
    )]
    Privilege {
        /// The thread.
        name: String,
        /// The class that needs it.
        class: Class,
        /// True if the thread belongs to this user.
        ours: bool,
    },
    /// Others would wait longer than the rule accepts.
    #[error(
        "{name}: with spare CPU time it may run for {} at a time, while all threads without a \
         reservation wait, and its rule accepts {accepted}; raise longest_excess, {} or leave \
         excess out",
        match longest {
            Some(longest) => longest.to_string(),
            None => "ever".to_owned(),
        },
        match longest {
            Some(_) => "use HRTICK_DL or a shorter period,",
            None => "set kernel.sched_rt_runtime_us below its period,",
        }
    )]
    Excess {
        /// The thread.
        name: String,
        /// Duration; None: without an end.
        longest: Option<Nanos>,
        /// The accepted value of the rule.
        accepted: Nanos,
    },
    /// A weight would be others' as well.
    #[error(
        "{name}: the control group {group} competes with other guests, and {others} would get \
            its weight as well; move the other threads out of the group, or use weight = 1 or a \
            reservation (periodic)",
        group = group.display()
    )]
    Weight {
        /// The thread.
        name: String,
        /// The group.
        group: PathBuf,
        /// Members other than the guest and its helpers.
        others: String,
    },
    /// The cpuset is narrower than the root domain.
    #[error(
        "{name}: its cpuset has the CPUs {allowed}, but the kernel admits a deadline only for \
            all CPUs of a root domain, here {domain}; make that cpuset a partition (cgroup v2: \
            echo root > cpuset.cpus.partition; v1: cpuset.cpu_exclusive = 1 and \
            cpuset.sched_load_balance = 0 in the parent), or extend it to {domain}"
    )]
    Cpuset {
        /// The thread.
        name: String,
        /// The CPUs that its cpuset leaves it.
        allowed: Cpus,
        /// The root domain.
        domain: Cpus,
    },
    /// The mask is narrower than the root domain, and must stay.
    #[error(
        "{name}: the thread is pinned to the CPUs {cpus} (taskset, libvirt's vcpupin), but the \
            kernel admits a deadline only for all CPUs of a root domain, here {domain}; permit a \
            wider mask (affinity = \"widen\"), or make {cpus} a cpuset partition"
    )]
    Affinity {
        /// The thread.
        name: String,
        /// The CPUs that it may run on.
        cpus: Cpus,
        /// The root domain.
        domain: Cpus,
    },
    /// The home CPU is outside its mask.
    #[error("{name}: its home CPU {home} is not in its root domain {domain}; use one of {domain}")]
    Home {
        /// The thread.
        name: String,
        /// The CPU that was asked for.
        home: u32,
        /// The root domain.
        domain: Cpus,
    },
    /// The kernel does not take the period.
    #[error(
        "{name}: a period of {period} is outside of {shortest} to {longest}; use one inside, or \
         change kernel.sched_deadline_period_min_us and _max_us"
    )]
    Period {
        /// The thread.
        name: String,
        /// The period that was asked for.
        period: Nanos,
        /// The shortest that it takes.
        shortest: Nanos,
        /// The longest that it takes.
        longest: Nanos,
    },
    /// The reservations do not fit.
    #[error(
        "{} {} {} of a CPU reserved in {domain}, where {} is free: {} too much ({} in all, {} \
         booked by others); {}",
        list(names),
        if names.len() == 1 { "wants" } else { "want" },
        cpus(*wanted),
        cpus(capacity.saturating_sub(*others)),
        cpus((wanted + others).saturating_sub(*capacity)),
        cpus(*capacity),
        cpus(*others),
        advice(*nearest)
    )]
    Admission {
        /// The threads.
        names: Vec<String>,
        /// The root domain.
        domain: Cpus,
        /// The requested CPU time, in units of 2^-20 CPUs.
        wanted: u64,
        /// The reservations of other threads.
        others: u64,
        /// The limit for all reservations.
        capacity: u64,
        /// The largest request that would pass; `None` if unknown.
        nearest: Option<Nearest>,
    },
}

/// Returns a bandwidth in CPUs.
fn cpus(bandwidth: u64) -> String {
    format!("{:.3}", bandwidth as f64 / CPU as f64)
}

fn advice(nearest: Option<Nearest>) -> String {
    match nearest {
        Some(Nearest { runtime, period }) => {
            format!("a runtime of {runtime} in {period} would pass, or fewer threads")
        }
        None => "use shorter runtimes, longer periods or fewer threads".to_owned(),
    }
}

/// Returns the first few names.
fn list(names: &[String]) -> String {
    match names {
        [one] => one.clone(),
        [first, second] => format!("{first} and {second}"),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
        [] => "nobody".to_owned(),
    }
}
