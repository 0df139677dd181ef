//! `tailbound place openapi`.

use super::Failure;
use crate::command::output;
use std::process::ExitCode;

/// Arguments of `tailbound place openapi`.
#[derive(Debug, clap::Args)]
pub(super) struct Openapi {}

impl Openapi {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        output::print(&output::json(&tailbound_control::server::document()));
        Ok(ExitCode::SUCCESS)
    }
}
