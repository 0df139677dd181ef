//! Commands that this build lacks. Commands of the package `tailbound-lab` replace this process by
//! its program; for all others the message names the package that has them.

#[cfg(all(
    feature = "operator",
    not(all(feature = "lab", feature = "sim", feature = "advise"))
))]
use crate::exit::{Exit, Failure};
#[cfg(all(
    feature = "operator",
    not(all(feature = "lab", feature = "sim", feature = "advise"))
))]
use std::{ffi::OsString, io::ErrorKind, os::unix::process::CommandExt as _, process::Command};

/// The commands of the whole program, each with the feature that it needs.
const COMMANDS: &[(&str, &str)] = &[
    ("adopt", "host"),
    ("advise", "advise"),
    ("calc", "calc"),
    ("check-config", "host"),
    ("cni", "host"),
    ("completions", "manual"),
    ("doctor", "host"),
    ("host", "host"),
    ("lab", "lab"),
    ("man", "manual"),
    ("place", "place"),
    ("probe", "probe"),
    ("release", "host"),
    ("report", "report"),
    ("reproduce", "sim"),
    ("select", "probe"),
    ("sim", "sim"),
    ("support-bundle", "look"),
    ("top", "top"),
    ("trace", "host"),
    ("vcpu", "host"),
    ("watch", "look"),
    ("why", "look"),
];

/// Returns the features of this build that imply the others.
fn built() -> Vec<&'static str> {
    let whole = [
        ("operator", cfg!(feature = "operator")),
        ("lab", cfg!(feature = "lab")),
        ("sim", cfg!(feature = "sim")),
    ];
    let parts = [
        ("host", cfg!(feature = "host")),
        ("probe", cfg!(feature = "probe")),
        ("report", cfg!(feature = "report")),
    ];
    let names = |of: &[(&'static str, bool)]| -> Vec<_> {
        let there = of.iter().filter(|(_, is_there)| *is_there);
        there.map(|(name, _)| *name).collect()
    };
    let command_names = names(&whole);
    if command_names.is_empty() {
        names(&parts)
    } else {
        command_names
    }
}

/// Returns the message for a command of the whole program that this build lacks; `None` if no build
/// of tailbound has a command of this name.
pub(crate) fn absent(name: &str) -> Option<String> {
    message(name, &built())
}

fn message(name: &str, built: &[&str]) -> Option<String> {
    let (name, feature) = COMMANDS.iter().find(|(command, _)| *command == name)?;
    let (target, package) = match *feature {
        "lab" | "sim" => ("build-all", "tailbound-lab"),
        _ => ("build", "tailbound"),
    };
    Some(format!(
        "`{name}` is not in this build (features: {}); run `make {target}`, which makes \
         target/release/tailbound, or install the package {package}",
        built.join(", ")
    ))
}

/// Arguments of a command that another program has: it reads them, and has their help.
#[cfg(all(
    feature = "operator",
    not(all(feature = "lab", feature = "sim", feature = "advise"))
))]
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Arguments of that program
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

#[cfg(all(
    feature = "operator",
    not(all(feature = "lab", feature = "sim", feature = "advise"))
))]
impl Args {
    /// Replaces this process by the program that has `command`; returns only with an error.
    pub(crate) fn run(self, command: &[&str]) -> Result<Exit, Failure> {
        // /usr/bin/tailbound and /usr/lib/tailbound/tailbound-lab, or both in another tree.
        let program = std::env::current_exe()?.with_file_name("../lib/tailbound/tailbound-lab");
        let error = Command::new(&program).args(command).args(self.rest).exec();
        Err(Failure::new(if error.kind() == ErrorKind::NotFound {
            format!(
                "`{}` is in the package tailbound-lab, which is not installed",
                command.join(" ")
            )
        } else {
            format!("{}: {error}", program.display())
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_command_names_the_build_that_has_it() {
        assert_eq!(
            message("place", &["lab"]).unwrap(),
            "`place` is not in this build (features: lab); run `make build`, which makes \
             target/release/tailbound, or install the package tailbound"
        );
        let of_the_lab = message("sim", &["probe"]).unwrap();
        assert!(of_the_lab.contains("features: probe"), "{of_the_lab}");
        assert!(of_the_lab.contains("`make build-all`"), "{of_the_lab}");
        assert!(of_the_lab.ends_with("tailbound-lab"), "{of_the_lab}");
        assert_eq!(message("plaec", &["lab"]), None);
        assert!(!built().is_empty());
    }

    /// A command that is added to the program has to be added here.
    #[cfg(feature = "all")]
    #[test]
    fn all_commands_are_listed() {
        use clap::CommandFactory as _;
        let command = crate::Cli::command();
        let there = command.get_subcommands().map(clap::Command::get_name);
        let mut there: Vec<_> = there.collect();
        there.sort_unstable();
        let listed: Vec<_> = COMMANDS.iter().map(|(name, _)| *name).collect();
        assert_eq!(there, listed);
    }
}
