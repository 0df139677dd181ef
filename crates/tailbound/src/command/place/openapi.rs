//! `tailbound place openapi`.

use crate::command::output;
use std::process::ExitCode;

/// Prints the document; no service is needed.
pub(super) fn show() -> ExitCode {
    output::print(&output::json(&tailbound_control::server::document()));
    ExitCode::SUCCESS
}
