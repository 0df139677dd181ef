//! Answers to scrapes, copied between packets.

use crate::metrics::{Scrape, Server};
use tailbound_switch::port::Port;
use tailbound_switch::{PartialSnapshot, Snapshot, Switch};

/// Guests whose counters are copied in one turn, so that it delays no packet by more than
/// some 20 us: each has 2 KB of them, and a system call.
const GUESTS: usize = 16;

/// The scrapes that wait for an answer, and as much of it as there is.
#[derive(Default)]
pub(super) struct Scrapes {
    waiting: Vec<Scrape>,
    partial: PartialSnapshot,
    /// There may be new ones.
    asked: bool,
}

impl Scrapes {
    /// Somebody may have asked.
    pub(super) fn handle_woken(&mut self) {
        self.asked = true;
    }

    /// What was copied is of guests that may be gone: gives it away.
    pub(super) fn handle_reload(&mut self) -> PartialSnapshot {
        std::mem::take(&mut self.partial)
    }

    /// There is more to copy.
    pub(super) fn is_busy(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Copies some counters where somebody asked. Returns them once they are whole, and
    /// who asked.
    pub(super) fn poll(
        &mut self,
        server: &Server,
        switch: &mut Switch,
        ports: &mut [Option<Box<dyn Port>>],
    ) -> Option<(Snapshot, Vec<Scrape>)> {
        // Those that ask from here on get the next one.
        if self.waiting.is_empty() && std::mem::take(&mut self.asked) {
            self.waiting.extend(server.scrapes());
        }
        if self.waiting.is_empty() {
            return None;
        }
        let snapshot = switch.continue_snapshot(ports, &mut self.partial, GUESTS)?;
        self.asked = true;
        Some((snapshot, std::mem::take(&mut self.waiting)))
    }
}
