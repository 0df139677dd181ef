//! Selection of guests and of their class: from a file or from flags.

use crate::exit::Failure;
use std::path::PathBuf;
use tailbound_agent::rule::GuestRule;
use tailbound_agent::{
    Affinity, AgentConfig, Aperiodic, Bandwidth, Class, ConfigSource, Level, Periodic, Uuid, Vmid,
};
use tailbound_units::Nanos;

/// A file of rules, or one rule in flags.
#[derive(Debug, clap::Args)]
pub(super) struct Select {
    /// Rules for guests (TOML, see docs/reference/vcpu.md)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rule", "class", "level"])]
    config: Option<PathBuf>,
    #[command(flatten)]
    rule: Rule,
    /// The class of the vCPU threads, as a level
    #[arg(long, value_enum, conflicts_with = "class")]
    level: Option<LevelName>,
    /// The class of the vCPU threads
    #[arg(long, value_enum)]
    class: Option<ClassName>,
    /// periodic: CPU time in each period
    #[arg(long, value_name = "TIME", requires = "class")]
    runtime: Option<Nanos>,
    /// periodic: the deadline after a wake-up [default: the period]
    #[arg(long, value_name = "TIME", requires = "class")]
    deadline: Option<Nanos>,
    /// periodic: the period
    #[arg(long, value_name = "TIME", requires = "class")]
    period: Option<Nanos>,
    /// aperiodic: the time slice
    #[arg(long, value_name = "TIME", requires = "class")]
    slice: Option<Nanos>,
    /// aperiodic: the share, in multiples of the default
    #[arg(long, value_name = "N", requires = "class")]
    weight: Option<u32>,
    /// The UID that the guest must have; required for guests that no manager names
    #[arg(long, value_name = "N")]
    uid: Option<u32>,
    /// The executable that the guest must run, compared by inode
    #[arg(long, value_name = "PATH")]
    exe: Option<PathBuf>,
    /// The maximum number of threads that get a class [default: 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_threads: Option<u32>,
    /// The maximum number of CPUs to reserve [default: half of this host's]
    #[arg(long, value_name = "CPUS")]
    max_cpus: Option<Bandwidth>,
    /// Do not change the class of the other threads (emulator, iothreads, vhost)
    #[arg(long)]
    vcpus_only: bool,
    /// Refuse a deadline class for a pinned vCPU if its CPU mask would have to be widened
    #[arg(long)]
    keep_affinity: bool,
    /// The CPU to which vCPU threads with a deadline are moved
    #[arg(long, value_name = "CPU")]
    home: Option<u32>,
    /// The QMP socket of a QEMU that does not name its vCPUs
    #[arg(long, value_name = "PATH")]
    qmp: Option<PathBuf>,
}

/// Selection of a guest.
#[derive(Debug, clap::Args)]
#[group(id = "rule", multiple = false)]
pub(super) struct Rule {
    /// Guests of this name; * matches any text
    #[arg(long, value_name = "NAME")]
    guest: Option<String>,
    /// The libvirt domain with this UUID
    #[arg(long, value_name = "UUID")]
    uuid: Option<Uuid>,
    /// The Proxmox VE VM with this number
    #[arg(long, value_name = "N")]
    vmid: Option<Vmid>,
    /// The process with this PID
    #[arg(long)]
    pid: Option<u32>,
    /// The processes of this control group
    #[arg(long, value_name = "PATH")]
    cgroup: Option<String>,
    /// The container whose ID begins with this text
    #[arg(long, value_name = "ID")]
    container: Option<String>,
    /// The pod with this UID
    #[arg(long, value_name = "UID")]
    pod: Option<String>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum LevelName {
    /// The settings from before
    Normal,
    /// aperiodic: a short time slice and a large share
    High,
    /// periodic: a reservation of 1 ms in 4 ms
    Top,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ClassName {
    /// The settings from before
    Normal,
    /// A short time slice and a large share
    Aperiodic,
    /// A reservation (`SCHED_DEADLINE`)
    Periodic,
}

impl Select {
    /// Returns the source of the configuration.
    pub(super) fn source(&self) -> Result<ConfigSource, Failure> {
        if let Some(path) = &self.config {
            return Ok(ConfigSource::File(path.clone()));
        }
        let Rule {
            guest,
            uuid,
            vmid,
            pid,
            cgroup,
            container,
            pod,
        } = &self.rule;
        let level = self.level.map(|level| match level {
            LevelName::Normal => Level::Normal,
            LevelName::High => Level::High,
            LevelName::Top => Level::Top,
        });
        let rule = GuestRule {
            name: guest.clone(),
            uuid: *uuid,
            vmid: *vmid,
            pid: *pid,
            cgroup: cgroup.clone(),
            container: container.clone(),
            pod: pod.clone(),
            uid: self.uid,
            exe: self.exe.clone(),
            max_threads: self.max_threads,
            max_cpus: self.max_cpus,
            qmp: self.qmp.clone(),
            level,
            class: self.class()?,
            helpers: self.vcpus_only.then_some(Class::Normal),
            affinity: if self.keep_affinity {
                Affinity::Keep
            } else {
                Affinity::Widen
            },
            home: self.home,
            ..GuestRule::default()
        };
        if rule.target().is_none() {
            return Err(Failure::wrong_arguments(
                "the guest is missing: use --guest, --uuid, --vmid, --pid, --cgroup, \
                    --container, --pod, or --config with rules",
            ));
        }
        if rule.level.is_none() && rule.class.is_none() {
            return Err(Failure::wrong_arguments(
                "the class is missing: use --level high, --level top, or --class",
            ));
        }
        super::all_run(rule.pid.as_slice())?;
        let mistakes = rule.class.iter().flat_map(Class::mistakes);
        let mistakes: Vec<_> = mistakes
            .map(|(parameter, message)| format!("--{parameter}: {message}"))
            .collect();
        if !mistakes.is_empty() {
            return Err(Failure::wrong_arguments(mistakes.join("\n")));
        }
        Ok(ConfigSource::Given(Box::new(AgentConfig {
            rules: vec![rule],
            ..AgentConfig::default()
        })))
    }

    fn class(&self) -> Result<Option<Class>, Failure> {
        let Some(name) = self.class else {
            return Ok(None);
        };
        let periodic = [
            ("runtime", self.runtime.is_some()),
            ("deadline", self.deadline.is_some()),
            ("period", self.period.is_some()),
        ];
        let aperiodic = [
            ("slice", self.slice.is_some()),
            ("weight", self.weight.is_some()),
        ];
        let foreign: &[_] = match name {
            ClassName::Normal => &[&periodic[..], &aperiodic[..]].concat(),
            ClassName::Aperiodic => &periodic,
            ClassName::Periodic => &aperiodic,
        };
        if let Some((flag, _)) = foreign.iter().find(|(_, given)| *given) {
            return Err(Failure::wrong_arguments(format!(
                "--{flag} does not go with that class"
            )));
        }
        Ok(Some(match name {
            ClassName::Normal => Class::Normal,
            ClassName::Aperiodic => {
                let default = Aperiodic::default();
                Class::Aperiodic(Aperiodic {
                    slice: self.slice.unwrap_or(default.slice),
                    weight: self.weight.unwrap_or(default.weight),
                })
            }
            ClassName::Periodic => {
                let (Some(runtime), Some(period)) = (self.runtime, self.period) else {
                    return Err(Failure::wrong_arguments(
                        "--class periodic takes --runtime and --period, for example --runtime \
                         500us --period 3ms",
                    ));
                };
                Class::Periodic(Periodic {
                    runtime,
                    deadline: self.deadline.unwrap_or(period),
                    period,
                })
            }
        }))
    }
}
