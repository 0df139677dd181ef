//! One line on a terminal that says how far a run is; silence elsewhere.

use std::io::{Write as _, stderr};

/// Puts `text` in place of what the line said.
pub(super) fn show(terminal: bool, text: &str) {
    if terminal {
        // A terminal that went away is no reason to stop.
        let _ = write!(stderr(), "\r\x1b[K{text}");
    }
}
