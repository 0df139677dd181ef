//! The data on the screen of `tailbound top`, from one look to the next: pure.

use crate::End;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use tailbound_host::socket::{Guest, HostStatus, Link, Port, Waits};

/// A column that guests can be sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Column {
    /// By name
    Name,
    /// By the sent rate
    Sends,
    /// By the received rate
    Receives,
    /// By the guarantee
    Guarantee,
    /// By the backlog
    Backlog,
    /// By the wait of sent packets
    Wait,
    /// By dropped packets
    Drops,
}

impl Column {
    /// Returns the column of a key.
    fn of_key(key: char) -> Option<Self> {
        Some(match key {
            'n' => Self::Name,
            's' => Self::Sends,
            'r' => Self::Receives,
            'g' => Self::Guarantee,
            'b' => Self::Backlog,
            'w' => Self::Wait,
            'd' => Self::Drops,
            _ => return None,
        })
    }
}

/// A guest, or the uplink, over one interval. Unknown figures are `None`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// Bit/s that its port received from it, and sent to it.
    pub(crate) sends: Option<f64>,
    pub(crate) receives: Option<f64>,
    /// Guaranteed rate in bit/s.
    pub(crate) guarantee: Option<u64>,
    /// Bytes queued for its port, and its own bytes in the pacer.
    pub(crate) backlog: u64,
    /// The 99th percentile of the waits of its sent packets, and of its received ones, in
    /// nanoseconds: the upper bound of a bucket, infinite beyond all.
    pub(crate) wait: Option<f64>,
    pub(crate) wait_to: Option<f64>,
    /// Packets a second.
    pub(crate) drops: Option<f64>,
    pub(crate) state: &'static str,
}

/// The shown data.
#[derive(Debug)]
pub struct State {
    /// The previous look.
    last: Option<HostStatus>,
    pub(crate) uplink: Option<Line>,
    guests: Vec<Line>,
    pub(crate) sort: Column,
    /// Reverses the order.
    pub(crate) is_reversed: bool,
    /// Number of guests above the first shown one.
    pub(crate) above: usize,
    /// The reason why the last look failed.
    pub(crate) error: Option<String>,
}

impl State {
    /// Returns a state without data.
    pub fn new(sort: Column) -> Self {
        Self {
            last: None,
            uplink: None,
            guests: Vec::new(),
            sort,
            is_reversed: false,
            above: 0,
            error: None,
        }
    }

    /// Takes a look: rates cover the time since the previous look, if that was at the same daemon.
    pub fn update(&mut self, now: HostStatus) {
        let last = self.last.take();
        let last = last.filter(|last| last.pid == now.pid && last.uptime_ns < now.uptime_ns);
        let seconds = last.as_ref().map(|last| {
            let nanos = now.uptime_ns - last.uptime_ns;
            nanos as f64 / 1e9
        });
        let before = last.iter().flat_map(|last| &last.guests);
        let before: HashMap<_, _> = before
            .map(|guest| (guest.port.name.as_str(), guest))
            .collect();
        let guests = now.guests.iter().map(|guest| {
            let before = before.get(guest.port.name.as_str());
            Line::of_guest(guest, before.copied().zip(seconds))
        });
        self.guests = guests.collect();
        self.uplink = now.uplink.as_ref().map(|port| {
            let before = last.as_ref().and_then(|last| last.uplink.as_ref());
            Line::of(port, before.zip(seconds))
        });
        self.error = None;
        self.last = Some(now);
        self.arrange();
    }

    /// Records that a look failed.
    pub(crate) fn fail(&mut self, error: String) {
        self.error = Some(error);
    }

    pub(crate) fn handle_key(&mut self, key: KeyEvent) -> Option<End> {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return Some(End::Quit),
            KeyCode::Char('q') | KeyCode::Esc => return Some(End::Quit),
            KeyCode::Tab => return Some(End::NextView),
            KeyCode::Down => self.above += 1,
            KeyCode::Up => self.above = self.above.saturating_sub(1),
            KeyCode::Home => self.above = 0,
            KeyCode::Char(key) => {
                if let Some(column) = Column::of_key(key) {
                    self.is_reversed = column == self.sort && !self.is_reversed;
                    self.sort = column;
                }
            }
            _ => {}
        }
        self.arrange();
        None
    }

    /// Returns the guests, sorted.
    pub(crate) fn guests(&self) -> &[Line] {
        &self.guests
    }

    /// Returns the last look at the daemon.
    pub(crate) fn last(&self) -> Option<&HostStatus> {
        self.last.as_ref()
    }

    fn arrange(&mut self) {
        let most = |a: Option<f64>, b: Option<f64>| {
            let known = |it: Option<f64>| it.unwrap_or(-1.0);
            known(b).total_cmp(&known(a))
        };
        let by = |a: &Line, b: &Line| match self.sort {
            Column::Name => Ordering::Equal,
            Column::Sends => most(a.sends, b.sends),
            Column::Receives => most(a.receives, b.receives),
            Column::Guarantee => b.guarantee.cmp(&a.guarantee),
            Column::Backlog => b.backlog.cmp(&a.backlog),
            Column::Wait => most(a.wait, b.wait),
            Column::Drops => most(a.drops, b.drops),
        };
        // Names make the order unique among equal figures.
        self.guests
            .sort_by(|a, b| by(a, b).then_with(|| a.name.cmp(&b.name)));
        if self.is_reversed {
            self.guests.reverse();
        }
        self.above = self.above.min(self.guests.len().saturating_sub(1));
    }
}

impl Line {
    fn of(port: &Port, before: Option<(&Port, f64)>) -> Self {
        let rate = |count: fn(&Port) -> u64| {
            let (before, seconds) = before?;
            Some(count(port).saturating_sub(count(before)) as f64 / seconds)
        };
        Self {
            name: port.name.clone(),
            sends: rate(|port| 8 * port.received.bytes),
            receives: rate(|port| 8 * port.sent.bytes),
            guarantee: None,
            backlog: port.backlog.bytes,
            wait: None,
            wait_to: None,
            drops: rate(Port::dropped),
            state: port.link.word(),
        }
    }

    fn of_guest(guest: &Guest, before: Option<(&Guest, f64)>) -> Self {
        let port = before.map(|(before, seconds)| (&before.port, seconds));
        let line = Self::of(&guest.port, port);
        let wait = |direction| {
            let (before, _) = before?;
            percentile(&guest.waits, &before.waits, direction)
        };
        Self {
            guarantee: guest.guarantee.map(|held| held.bandwidth_bit_s),
            backlog: line.backlog + guest.paced_bytes,
            wait: wait("sent"),
            wait_to: wait("received"),
            state: match (guest.port.link, guest.drained, guest.guarantee_refused) {
                (Link::Up, true, _) => "drained",
                (Link::Up, _, true) => "refused",
                (port, ..) => port.word(),
            },
            ..line
        }
    }
}

/// Returns the 99th percentile of the waits of a direction between two looks, in nanoseconds;
/// `None` if no packet waited.
fn percentile(now: &[Waits], before: &[Waits], direction: &str) -> Option<f64> {
    let mut counts = BTreeMap::<u64, i128>::new();
    for (waits, sign) in [(now, 1), (before, -1)] {
        let waits = waits.iter().filter(|waits| waits.direction == direction);
        for bucket in waits.flat_map(|waits| &waits.buckets) {
            let bound = bucket.up_to_ns.unwrap_or(u64::MAX);
            *counts.entry(bound).or_default() += sign * i128::from(bucket.count);
        }
    }
    let total: i128 = counts.values().sum();
    let rank = (99 * total + 99) / 100;
    let mut below = 0;
    let bound = counts.into_iter().find_map(|(bound, count)| {
        below += count;
        (total > 0 && below >= rank).then_some(bound)
    })?;
    Some(if bound == u64::MAX {
        f64::INFINITY
    } else {
        bound as f64
    })
}

#[cfg(test)]
mod tests;
