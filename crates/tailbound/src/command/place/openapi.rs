//! `tailbound place openapi`.

use crate::command::output;
use crate::exit::Exit;

/// Prints the document; no service is needed.
pub(super) fn show() -> Exit {
    output::print(&output::indented(&tailbound_control::server::document()));
    Exit::Holds
}
