//! Links, and their position on a frame's path.

use serde::Deserialize;
use tailbound_experiment::Section;
use tailbound_units::{Bytes, Nanos, Rate};

/// A link, both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Rate of the link.
    pub rate: Rate,
    /// Time of a frame's last bit to the next queue.
    pub delay: Nanos,
}

/// Position of a queue on a frame's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tier {
    /// In the sending host.
    Host,
    /// Up from the first switch.
    EdgeUp,
    /// Up from the switch above it.
    AggregationUp,
    /// Down from the core.
    CoreDown,
    /// Down to the last switch.
    ToEdge,
    /// Down to the receiving host; or in the host's own switch, to another of its machines.
    ToHost,
}

/// Number of tiers.
pub(super) const TIERS: usize = 6;

/// The sending side of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sends {
    pub(super) line: Line,
    pub(super) tier: Tier,
    /// Buffer of the port, if the topology defines it.
    pub(super) buffer: Option<Bytes>,
}

impl Sends {
    pub(super) const fn new(line: Line, tier: Tier) -> Self {
        Self {
            line,
            tier,
            buffer: None,
        }
    }
}

/// Largest number of hosts; each path needs memory.
pub(super) const MAX_HOSTS: usize = 16_384;

pub(super) fn check_line(key: &'static str, line: Line, section: &mut Section<'_>) {
    let mut section = section.table(key);
    let rates = Rate::from_mbit(1)..=Rate::from_mbit(400_000);
    section.range("rate", line.rate, rates);
    section.range("delay", line.delay, Nanos::ZERO..=Nanos::from_millis(100));
}
