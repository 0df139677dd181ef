//! Answers to scrapes, copied between packets.

use crate::metrics::{Scrape, Server};
use crate::socket::Reply;
use std::sync::mpsc::Receiver;
use tailbound_switch::port::Port;
use tailbound_switch::{PartialSnapshot, Snapshot, Switch};

/// Guests whose counters are copied in one turn, so that it delays no packet by more than
/// some 20 us: each has 2 KB of them, and a system call.
const GUESTS: usize = 16;

/// Who waits for a copy of all counters.
pub(super) enum Viewer {
    /// A scrape of metrics.
    Scrape(Scrape),
    /// Somebody at the control socket.
    Reply(Reply),
}

/// Who waits for a copy of all counters, and as much of it as there is.
pub(super) struct Scrapes {
    /// What the placement service is to hear of.
    reports: Receiver<Scrape>,
    waiting: Vec<Viewer>,
    partial: PartialSnapshot,
    /// Those that get the one after that.
    next: Vec<Viewer>,
    /// There may be new scrapes.
    asked: bool,
}

impl Scrapes {
    pub(super) fn new(reports: Receiver<Scrape>) -> Self {
        Self {
            reports,
            waiting: Vec::new(),
            partial: PartialSnapshot::default(),
            next: Vec::new(),
            asked: false,
        }
    }

    /// Somebody may have asked.
    pub(super) fn handle_woken(&mut self) {
        self.asked = true;
    }

    /// Somebody at the control socket has asked.
    pub(super) fn show(&mut self, reply: Reply) {
        self.next.push(Viewer::Reply(reply));
    }

    /// What was copied is of guests that may be gone: gives it away.
    pub(super) fn handle_reload(&mut self) -> PartialSnapshot {
        std::mem::take(&mut self.partial)
    }

    /// There is more to copy.
    pub(super) fn is_busy(&self) -> bool {
        !self.waiting.is_empty() || !self.next.is_empty()
    }

    /// Copies some counters where somebody asked. Returns them once they are whole, and
    /// who asked.
    pub(super) fn poll(
        &mut self,
        server: Option<&Server>,
        switch: &mut Switch,
        ports: &mut [Option<Box<dyn Port>>],
    ) -> Option<(Snapshot, Vec<Viewer>)> {
        // Those that ask from here on get the next one.
        if self.waiting.is_empty() {
            self.waiting.append(&mut self.next);
            if std::mem::take(&mut self.asked) {
                let scrapes = server.into_iter().flat_map(Server::scrapes);
                let scrapes = scrapes.chain(self.reports.try_iter());
                self.waiting.extend(scrapes.map(Viewer::Scrape));
            }
        }
        if self.waiting.is_empty() {
            return None;
        }
        let snapshot = switch.continue_snapshot(ports, &mut self.partial, GUESTS)?;
        self.asked = true;
        Some((snapshot, std::mem::take(&mut self.waiting)))
    }
}
