//! Scrapes of the counters, which are copied between packets.

use crate::metrics::{Scrape, Server};
use crate::socket::Reply;
use std::sync::mpsc::Receiver;
use tailbound_switch::port::Port;
use tailbound_switch::{PartialSnapshot, Snapshot, Switch};

/// Guests whose counters are copied per turn, so that a packet is delayed by at most some 20 us:
/// each guest has 2 KB of them, and takes a system call.
const GUESTS: usize = 16;

/// A receiver of a copy of all counters.
pub(super) enum Viewer {
    /// A scrape of metrics.
    Scrape(Scrape),
    /// A request at the control socket.
    Reply(Reply),
}

/// The receivers of a copy of all counters, and the copy so far.
pub(super) struct Scrapes {
    /// Requests of the reports to the placement service.
    reports: Receiver<Scrape>,
    waiting: Vec<Viewer>,
    partial: PartialSnapshot,
    /// The receivers of the copy after that.
    next: Vec<Viewer>,
    /// True if there may be new scrapes.
    has_news: bool,
}

impl Scrapes {
    pub(super) fn new(reports: Receiver<Scrape>) -> Self {
        Self {
            reports,
            waiting: Vec::new(),
            partial: PartialSnapshot::default(),
            next: Vec::new(),
            has_news: false,
        }
    }

    /// Notes that there may be new scrapes.
    pub(super) fn handle_woken(&mut self) {
        self.has_news = true;
    }

    /// Adds a request of the control socket.
    pub(super) fn show(&mut self, reply: Reply) {
        self.next.push(Viewer::Reply(reply));
    }

    /// Returns the copy so far, whose guests may be gone, and starts anew.
    pub(super) fn handle_reload(&mut self) -> PartialSnapshot {
        std::mem::take(&mut self.partial)
    }

    /// Returns true if there is more to copy.
    pub(super) fn is_busy(&self) -> bool {
        !self.waiting.is_empty() || !self.next.is_empty()
    }

    /// Copies some counters if a receiver waits. Returns the copy and its receivers once it is
    /// complete.
    pub(super) fn poll(
        &mut self,
        server: Option<&Server>,
        switch: &mut Switch,
        ports: &mut [Option<Box<dyn Port>>],
    ) -> Option<(Snapshot, Vec<Viewer>)> {
        // Those that ask from here on get the next one.
        if self.waiting.is_empty() {
            self.waiting.append(&mut self.next);
            if std::mem::take(&mut self.has_news) {
                let scrapes = server.into_iter().flat_map(Server::scrapes);
                let scrapes = scrapes.chain(self.reports.try_iter());
                self.waiting.extend(scrapes.map(Viewer::Scrape));
            }
        }
        if self.waiting.is_empty() {
            return None;
        }
        let snapshot = switch.continue_snapshot(ports, &mut self.partial, GUESTS)?;
        self.has_news = true;
        Some((snapshot, std::mem::take(&mut self.waiting)))
    }
}
