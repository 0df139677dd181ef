//! Commands that are in the package `tailbound-lab`: its program is run in place of this one.

use crate::exit::{Exit, Failure};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Arguments of a command that another program has: it reads them, and has their help.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What that program is to do
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

impl Args {
    /// Becomes the program that has `command`; returns only why it could not.
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
