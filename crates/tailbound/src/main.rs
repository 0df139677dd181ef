//! The `tailbound` command. Each subcommand is one file in `command`; what it
//! does lives in the crate of the same name.

mod command;

use clap::Parser;
use std::process::ExitCode;

/// Bounds the tail of network latency for virtual machines and containers that
/// share hosts, from the host alone.
#[derive(Debug, Parser)]
#[command(name = "tailbound", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: command::Command,
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return command::refuse(&error),
    };
    #[cfg(feature = "full")]
    log();
    cli.command.run()
}

#[cfg(feature = "full")]
fn log() {
    use std::io::IsTerminal as _;
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("TAILBOUND_LOG")
                .unwrap_or_else(|_| "info".into()),
        )
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
}
