//! The `tailbound` command. Each subcommand is one file in `command`; its implementation is in the
//! crate of the same name.

// `command::print` detects lost output; the macros panic or ignore it.
#![deny(clippy::print_stdout)]

mod command;
mod exit;
mod journal;
#[cfg(any(feature = "host", feature = "place"))]
mod log;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use exit::{Exit, Failure};
use std::ffi::OsString;
use std::process::ExitCode;

/// Bounds the tail of network latency for virtual machines and containers that
/// share hosts, from the host alone.
#[derive(Debug, Parser)]
#[command(
    name = "tailbound",
    version = command::version(),
    max_term_width = 100,
    after_help = "Exit code of all commands: 0 the answer is yes, or the request is done; 1 \
    the answer is no, or the request is refused; 2 there is no answer: the command could not \
    run, or the measurement cannot be judged; 64 wrong arguments; 74 the output could not be \
    written. The help of each command has the details."
)]
struct Cli {
    /// Colours of the output: auto (on a terminal, unless `NO_COLOR` is set or `TERM` is dumb),
    /// always or never
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value_t,
        hide_default_value = true,
        hide_possible_values = true
    )]
    color: command::Color,
    #[command(subcommand)]
    command: command::Command,
}

fn main() -> ExitCode {
    let exit = run();
    match command::lost() {
        Some(error) => Failure::output_lost(error).report().into(),
        None => exit.into(),
    }
}

fn run() -> Exit {
    // A container runtime starts its plugin by another name, without arguments.
    #[cfg(feature = "host")]
    if command::cni::is_plugin(std::env::args_os().next().as_deref()) {
        return command::cni::run().unwrap_or_else(Failure::report);
    }
    Cli::try_parse().map_or_else(|error| refuse(&error), Cli::run)
}

impl Cli {
    fn run(self) -> Exit {
        self.color.choose();
        #[cfg(any(feature = "host", feature = "place"))]
        log::start(command::paints_log());
        self.command.run().unwrap_or_else(Failure::report)
    }
}

/// Prints the reason why the arguments are wrong, or the requested help or version.
fn refuse(error: &clap::Error) -> Exit {
    if !error.use_stderr() {
        command::print(&command::help(error));
        return Exit::Holds;
    }
    let arguments: Vec<_> = std::env::args_os().collect();
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(message) = negative(&arguments)
    {
        return Failure::wrong_arguments(message).report();
    }
    let missing = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(name)) => command::absent(name),
        _ => None,
    };
    if let Some(message) = missing {
        return Failure::new(message).report();
    }
    let text = error.render().to_string();
    let message = text.strip_prefix("error: ").unwrap_or(&text);
    Failure::wrong_arguments(message).report()
}

/// Returns the message for the first negative value, which clap takes for a flag.
fn negative(arguments: &[OsString]) -> Option<String> {
    let is_number = |text: &str| {
        let number = text
            .strip_prefix('-')
            .map(|rest| rest.trim_start_matches('.'));
        number.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    };
    let place = arguments
        .iter()
        .position(|it| it.to_str().is_some_and(is_number))?;
    let value = arguments[place].to_str()?;
    let flag = arguments[..place].last().and_then(|it| it.to_str());
    Some(match flag.filter(|flag| flag.starts_with("--")) {
        Some(flag) => format!(
            "{flag} {value}: a value below zero; {flag} takes none, write it without the minus sign"
        ),
        None => format!("{value} is below zero; write it without the minus sign"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_below_zero_is_named_with_its_flag() {
        for (line, said) in [
            ("place create x --vms -3", Some("--vms -3: ")),
            ("place create x --delay -1.5ms", Some("--delay -1.5ms: ")),
            ("place resize x -.5", Some("-.5 is below zero")),
            ("place create -x --vms 3", None),
            ("place list --nonsense", None),
        ] {
            let arguments: Vec<_> = line.split(' ').map(OsString::from).collect();
            let message = negative(&arguments);
            let is_said = message
                .as_ref()
                .map(|it| said.is_some_and(|said| it.starts_with(said)));
            assert_eq!(is_said, said.map(|_| true), "{line}: {message:?}");
        }
    }
}
