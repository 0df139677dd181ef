//! `tailbound place topology`.

use super::request::read_topology;
use super::service::Service;
use crate::command::output::{self, paint};
use crate::exit::{Exit, Failure};
use std::fmt::Write as _;
use std::path::PathBuf;
use tailbound_api::TopologyDiff;
use tailbound_api::client::Client;
use tailbound_report::{Paint, Table};

/// Arguments of `tailbound place topology`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Print the current topology, in the format of `apply`
    Show(Show),
    /// Show the changes of a file, and the tenants whose guarantee would not hold
    Diff(Diff),
    /// Apply a file, if every guarantee still holds
    Apply(Apply),
}

impl Args {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        match self.action {
            Action::Show(show) => show.run(),
            Action::Diff(diff) => diff.run(),
            Action::Apply(apply) => apply.run(),
        }
    }
}

/// Arguments of `tailbound place topology show`.
#[derive(Debug, clap::Args)]
struct Show {
    #[command(flatten)]
    service: Service,
}

impl Show {
    fn run(self) -> Result<Exit, Failure> {
        let topology = self.service.ask(Client::topology)?;
        let file = toml::to_string(&topology.spec).map_err(Failure::new)?;
        self.service.print("place-topology", &topology, |_| {
            let policy = topology.policy.name();
            format!("# revision {}, policy {policy}\n{file}", topology.revision)
        });
        Ok(Exit::Holds)
    }
}

/// Arguments of `tailbound place topology diff`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code: 0 every guarantee would hold; 1 a guarantee would not hold; \
    2 failed."
)]
struct Diff {
    /// The topology file (JSON if the name ends in .json, otherwise TOML)
    file: PathBuf,
    #[command(flatten)]
    service: Service,
}

impl Diff {
    fn run(self) -> Result<Exit, Failure> {
        let spec = read_topology(&self.file)?;
        let diff = self.service.ask(|client| client.diff(&spec))?;
        self.service
            .print("place-topology-diff", &diff, |paint| text(&diff, paint));
        Ok(verdict(&diff))
    }
}

/// Arguments of `tailbound place topology apply`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Prints the changes, and applies them only if the topology has not changed in \
    between. Exit code: 0 applied; 1 a guarantee would not hold, nothing was changed; 2 \
    failed."
)]
struct Apply {
    /// The topology file (JSON if the name ends in .json, otherwise TOML)
    file: PathBuf,
    #[command(flatten)]
    service: Service,
}

impl Apply {
    fn run(self) -> Result<Exit, Failure> {
        let service = &self.service;
        let spec = read_topology(&self.file)?;
        let diff = service.ask(|client| client.diff(&spec))?;
        if !diff.broken.is_empty() {
            service.print("place-topology-diff", &diff, |paint| text(&diff, paint));
            return Ok(verdict(&diff));
        }
        if !service.for_programs() {
            output::print(&text(&diff, paint()));
        }
        let applied = service.ask(|client| client.apply(&spec, Some(diff.revision)))?;
        service.print("place-topology-apply", &applied, |paint| {
            let revision = applied.revision;
            if revision == diff.revision {
                return format!("revision {revision} stays in force\n");
            }
            let word = paint.good("APPLIED");
            format!("{word}  revision {revision} is in force\n")
        });
        Ok(Exit::Holds)
    }
}

fn verdict(diff: &TopologyDiff) -> Exit {
    Exit::holds(diff.broken.is_empty())
}

fn text(diff: &TopologyDiff, paint: Paint) -> String {
    let mut out = String::new();
    if diff.added.is_empty() && diff.removed.is_empty() && diff.changed.is_empty() {
        out += "nothing differs\n";
    }
    // Writing to a String does not fail.
    for names in ranges(diff.added.iter().map(|name| (name.as_str(), ""))) {
        let _ = writeln!(out, "{} {names}", paint.good("+"));
    }
    for names in ranges(diff.removed.iter().map(|name| (name.as_str(), ""))) {
        let _ = writeln!(out, "{} {names}", paint.bad("-"));
    }
    let changed = diff.changed.iter();
    for names in ranges(changed.map(|change| (change.name.as_str(), change.what.as_str()))) {
        let _ = writeln!(out, "{} {names}", paint.doubtful("~"));
    }
    if !diff.broken.is_empty() {
        let word = paint.bad("BREAKS");
        let count = diff.broken.len();
        let whose = if count == 1 {
            "tenant's promise"
        } else {
            "tenants' promises"
        };
        let _ = writeln!(out, "{word}  {count} {whose}\n");
        let mut table = Table::new(&["tenant", "id", "why"], &[2]);
        for broken in &diff.broken {
            let name = format!("{}/{}", broken.owner, broken.name);
            table.row([name.as_str(), &broken.tenant.0.to_string(), &broken.why]);
        }
        out += &table.render(paint);
    }
    out
}

/// Returns names with their changes, one line for consecutive names with the same change: `a-1 to
/// a-40: slots: 8, was 4`.
fn ranges<'d>(items: impl Iterator<Item = (&'d str, &'d str)>) -> Vec<String> {
    let mut ranges: Vec<(&str, &str, &str)> = Vec::new();
    for (name, text) in items {
        match ranges.last_mut() {
            Some((_, last, last_text)) if *last_text == text && follows(last, name) => *last = name,
            _ => ranges.push((name, name, text)),
        }
    }
    let line = |(first, last, text): (&str, &str, &str)| {
        let names = if first == last {
            first.to_owned()
        } else {
            format!("{first} to {last}")
        };
        if text.is_empty() {
            names
        } else {
            format!("{names}: {text}")
        }
    };
    ranges.into_iter().map(line).collect()
}

/// Returns true if `next` is the same name with the next number.
fn follows(name: &str, next: &str) -> bool {
    let stem = name.trim_end_matches(|last: char| last.is_ascii_digit());
    let number = name[stem.len()..].parse::<u64>();
    let after = number.ok().and_then(|number| number.checked_add(1));
    // Compared as text, so that `a-09` and `a-10` do not count as consecutive.
    after.is_some_and(|after| next == format!("{stem}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_names_with_equal_text_share_a_line() {
        let names = [
            "a-9", "a-10", "a-12", "b-13", "rack", "rack1", "rack2", "c-1", "c-2", "7", "8",
        ];
        let said = names.map(|name| (name, if name == "c-2" { "new" } else { "" }));
        assert_eq!(
            ranges(said.into_iter()),
            [
                "a-9 to a-10",
                "a-12",
                "b-13",
                "rack",
                "rack1 to rack2",
                "c-1",
                "c-2: new",
                "7 to 8"
            ]
        );
    }
}
