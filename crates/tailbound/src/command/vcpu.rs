//! `tailbound vcpu`.

mod list;
mod select;
#[cfg(feature = "look")]
mod top;

#[cfg(feature = "look")]
pub(super) use top::Threads;

use super::address::address;
use super::output::{self, Output};
use crate::exit::{Exit, Failure};
use select::Select;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use tailbound_agent::budget::{DesiredStates, desired};
use tailbound_agent::guest::Guest;
use tailbound_agent::journal::DEFAULT_STATE;
use tailbound_agent::look::settle_once;
use tailbound_agent::path::{PathStep, path_of};
use tailbound_agent::plan::Plan;
use tailbound_agent::rule::rule_for;
use tailbound_agent::scan::Scanner;
use tailbound_agent::{Agent, AgentConfig, AgentError, ConfigSource, HostClaim, Restored};
use tailbound_host::watch_vcpus;

/// Arguments of `tailbound vcpu`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Show guests, the scheduling of their threads, and the threads' waits for a CPU
    List(list::List),
    /// Show live how long guests' threads wait for a CPU, and which threads run instead
    #[cfg(feature = "look")]
    Top(top::Top),
    /// Set the class of guests' threads once
    Apply(Apply),
    /// Keep the class of guests' threads until SIGTERM, and measure waits
    Watch(Watch),
    /// Restore the settings that `apply` or a killed `watch` changed
    Restore(Restore),
}

/// Arguments of `tailbound vcpu apply`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Changes all threads or none, and reads each change back. Exit code: 0 done; \
    1 refused: this host cannot guarantee the class beside the existing ones; 2 failed."
)]
struct Apply {
    #[command(flatten)]
    select: Select,
    /// Print the planned changes and change nothing
    #[arg(long)]
    dry_run: bool,
    /// The file that stores the previous settings [default: the path in the rules file]
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Arguments of `tailbound vcpu watch`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "SIGHUP reloads the file. At the end every thread gets its previous settings \
    back, except threads that another program has changed since. Exit code: 0 ended by a \
    signal; 2 failed."
)]
struct Watch {
    #[command(flatten)]
    select: Select,
    /// The file that stores the previous settings [default: the path in the rules file]
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// The address that serves metrics, if no rules file is given
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config", value_parser = address)]
    metrics: Option<std::net::SocketAddr>,
}

/// Arguments of `tailbound vcpu restore`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit code: 0 done; 1 a setting could not be restored; 2 failed.")]
struct Restore {
    /// The file that stores the previous settings
    #[arg(long, value_name = "FILE", default_value = DEFAULT_STATE)]
    state: PathBuf,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

impl Args {
    pub(crate) fn run(
        self,
        #[cfg(feature = "look")] open: super::screen::Open,
    ) -> Result<Exit, Failure> {
        match self.action {
            Action::List(list) => list.run(),
            #[cfg(feature = "look")]
            Action::Top(top) => top.run(open),
            Action::Apply(apply) => apply.run(),
            Action::Watch(watch) => watch.run(),
            Action::Restore(restore) => restore.run(),
        }
    }
}

/// JSON document of `apply --output json`.
#[derive(Debug, Serialize)]
struct Report<'p> {
    applied: bool,
    path: &'p [PathStep],
    plan: &'p Plan,
    exited: Vec<String>,
    guests: Vec<&'p str>,
}

impl Report<'_> {
    fn print(&self) {
        output::print(&output::json("vcpu-apply", 1, &output::timed(self)));
    }
}

impl Apply {
    fn run(self) -> Result<Exit, Failure> {
        let source = self.select.source()?;
        let config = source.load(self.state.as_deref())?;
        let mut scanner = Scanner::new()?;
        let mut guests = picked(&config, &mut scanner)?;
        let (mut agent, claim) = self.open(&config)?;
        let held_threads = &agent.changes().threads;
        let holds = |thread| held_threads.contains_key(&thread);
        let notes = settle_once(&mut guests, holds);
        let DesiredStates { desired, beyond } =
            desired(&config.rules, &guests, scanner.cpus()?, holds);
        let rules = config.rules;
        if !beyond.is_empty() {
            let beyond: Vec<_> = beyond.iter().map(ToString::to_string).collect();
            return Err(Failure::with(Exit::DoesNotHold, beyond.join("\n")));
        }
        let config = config.path.unwrap_or_default();
        let path = agent.plan_path(&config, &path_of(&rules, &guests));
        let path = path.map_err(refused)?;
        if !self.dry_run {
            agent.apply_path(&path).map_err(refused)?;
        }
        // Resources that the path takes from guests are part of the plan, or were taken already.
        let ahead: &[_] = if self.dry_run { &path } else { &[] };
        let planned = agent.plan_after(ahead, &desired);
        if planned.is_err() && !self.dry_run {
            agent.restore_path()?;
        }
        let mut plan = planned.map_err(refused)?;
        plan.notes.extend(notes);
        plan.notes
            .extend(scanner.missing_names().map(str::to_owned));
        plan.notes
            .extend(guests.iter().flat_map(|guest| guest.notes.iter().cloned()));
        let mut exited = plan.exited.clone();
        let mut back = Restored::default();
        if !self.dry_run {
            exited = agent.apply(&plan)?.exited;
            back = agent.restore_undesired(&guests, &desired)?;
        }
        drop(claim);
        let report = Report {
            applied: !self.dry_run,
            path: &path,
            plan: &plan,
            exited,
            guests: guests.iter().map(|guest| guest.name.as_str()).collect(),
        };
        match self.output {
            Output::Json => report.print(),
            Output::Text => output::print(&(report.text() + &restored_text(&back))),
        }
        Ok(Exit::holds(back.failed.is_empty()))
    }

    /// Opens the agent with the claim to the host's threads, or without it for a preview.
    fn open(&self, config: &AgentConfig) -> Result<(Agent, Option<HostClaim>), AgentError> {
        if self.dry_run {
            return Ok((Agent::preview(&config.state)?, None));
        }
        let claim = HostClaim::take(config)?;
        Ok((Agent::open(&config.state)?, claim))
    }
}

impl Report<'_> {
    fn text(&self) -> String {
        let plan = self.plan;
        let path: String = self.path.iter().map(|it| it.to_string() + "\n").collect();
        if !self.applied {
            return format!("{path}{plan}nothing was done (--dry-run)\n");
        }
        let late = self.exited.iter().filter(|it| !plan.exited.contains(it));
        let late: Vec<_> = late.map(|name| format!("exited: {name}\n")).collect();
        // A thread that exited meanwhile needs no change.
        let done = plan.steps().saturating_sub(late.len());
        format!(
            "{path}{}{}{done} changed, {} were as they should be\n",
            plan.listing(),
            late.concat(),
            plan.unchanged
        )
    }
}

/// Returns the failure of a refusal: a host that cannot guarantee the class is no failure of the
/// program.
fn refused(error: AgentError) -> Failure {
    match error {
        AgentError::Plan(_) | AgentError::Path(_) => Failure::with(Exit::DoesNotHold, error),
        error => Failure::new(error),
    }
}

/// Checks that processes with these numbers exist.
pub(super) fn all_run(pids: &[u32]) -> Result<(), Failure> {
    for pid in pids {
        if !Path::new("/proc").join(pid.to_string()).exists() {
            return Err(Failure::new(format!("no process {pid} is running")));
        }
    }
    Ok(())
}

/// Returns the guests that match the configuration's rules.
fn picked(config: &AgentConfig, scanner: &mut Scanner) -> Result<Vec<Guest>, Failure> {
    scanner.ask_runtime(config.cri.clone());
    let mut guests = scanner.scan(&config.rules)?;
    let names: Vec<_> = guests.iter().map(|guest| guest.name.clone()).collect();
    let note = |guest: &Guest, note: &String| format!("{}: {note}", guest.name);
    let mut why: Vec<_> = scanner.refusals().to_vec();
    let left = guests.iter().filter(|guest| guest.rule.is_none());
    why.extend(left.flat_map(|guest| guest.notes.iter().map(move |text| note(guest, text))));
    guests.retain(|guest| rule_for(&config.rules, guest).is_some());
    if !guests.is_empty() && scanner.refusals().is_empty() {
        return Ok(guests);
    }
    let why = why.join("\n");
    Err(match names.as_slice() {
        _ if !scanner.refusals().is_empty() => Failure::with(Exit::DoesNotHold, why),
        [] => Failure::new(
            "no guest is running here that can be recognised; pick one with --pid, --cgroup, \
             --container or --pod",
        ),
        names => {
            let mut message = format!("no guest is selected; running here: {}", names.join(", "));
            if !why.is_empty() {
                message = format!("{message}\n{why}");
            }
            Failure::new(message)
        }
    })
}

impl Watch {
    fn run(self) -> Result<Exit, Failure> {
        let source = match (self.select.source()?, self.metrics) {
            (ConfigSource::Given(mut config), metrics) => {
                config.metrics = metrics;
                ConfigSource::Given(config)
            }
            (file, _) => file,
        };
        watch_vcpus(&source, self.state.as_deref())?;
        Ok(Exit::Holds)
    }
}

impl Restore {
    fn run(self) -> Result<Exit, Failure> {
        let restored = if Path::new(&self.state).exists() {
            let mut agent = Agent::open(&self.state)?;
            agent.restore()?
        } else {
            Restored::default()
        };
        match self.output {
            Output::Json => output::print(&output::json(
                "vcpu-restore",
                1,
                &serde_json::json!({
                    "restored": restored.restored,
                    "exited": restored.exited,
                    "drifted": restored.drifted,
                    "failed": restored.failed,
                }),
            )),
            Output::Text if restored == Restored::default() => {
                output::print(&format!("{}: nothing to restore\n", self.state.display()));
            }
            Output::Text => output::print(&restored_text(&restored)),
        }
        Ok(Exit::holds(restored.failed.is_empty()))
    }
}

fn restored_text(restored: &Restored) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    for drift in &restored.drifted {
        let _ = writeln!(out, "drifted, stays as it is: {drift}");
    }
    for why in &restored.failed {
        let _ = writeln!(out, "not restored: {why}");
    }
    if restored.restored + restored.exited > 0 {
        let _ = writeln!(
            out,
            "{} restored, {} exited",
            restored.restored, restored.exited
        );
    }
    out
}
