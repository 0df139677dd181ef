//! Links, and where they are on a frame's way.

use serde::Deserialize;
use tailbound_experiment::Section;
use tailbound_units::{Bytes, Nanos, Rate};

/// A link, in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// How fast it is.
    pub rate: Rate,
    /// How long a frame's last bit takes from its sender to the next queue.
    pub delay: Nanos,
}

/// Where a queue is on a frame's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tier {
    /// In the host that sends.
    Host,
    /// Up from the first switch,
    EdgeUp,
    /// and from the one above it.
    AggregationUp,
    /// Down from the core,
    CoreDown,
    /// to the last switch,
    ToEdge,
    /// and to the host that receives; or in the host's own switch, to another of its machines.
    ToHost,
}

/// How many tiers there are.
pub(super) const TIERS: usize = 6;

/// The side of a link that sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sends {
    pub(super) line: Line,
    pub(super) tier: Tier,
    /// Its buffer, where the topology says that.
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

/// The most hosts: a way takes memory, and a seldom bad one.
pub(super) const MOST: usize = 16_384;

pub(super) fn check_line(key: &'static str, line: Line, section: &mut Section<'_>) {
    let mut section = section.table(key);
    let rates = Rate::from_mbit(1)..=Rate::from_mbit(400_000);
    section.range("rate", line.rate, rates);
    section.range("delay", line.delay, Nanos::ZERO..=Nanos::from_millis(100));
}
