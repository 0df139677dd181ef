//! One line on a terminal that says what happens; silence elsewhere.

use std::io::{IsTerminal, Write};

/// The line.
#[derive(Debug)]
pub(crate) struct Progress {
    terminal: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Puts `text` in place of what the line said.
    pub(crate) fn show(&mut self, text: &str) {
        if self.terminal {
            // A terminal that went away is no reason to stop.
            let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
        }
    }

    /// Empties the line.
    pub(crate) fn clear(&mut self) {
        self.show("");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
