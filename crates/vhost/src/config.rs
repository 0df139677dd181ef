//! The configuration of a port.

use crate::allowance::{Allowance, Part};
use crate::caller::MOST_PAIRS;
use crate::server::Mode;
use std::path::Path;

/// Configuration to open a port.
#[derive(Debug, Clone, Copy)]
pub struct VhostConfig<'p> {
    /// The allowance for guests' memory; `None` for no limit.
    pub allowance: Option<&'p Allowance>,
    /// The socket.
    pub socket: &'p Path,
    /// Side of the socket.
    pub mode: Mode,
    /// The user that the monitor may be of, beside this process's own and root.
    pub user: Option<u32>,
    /// Pairs of rings that a guest may use.
    pub queues: usize,
}

impl VhostConfig<'_> {
    /// Most pairs of rings.
    pub const MOST_QUEUES: usize = MOST_PAIRS;

    pub(crate) fn part(&self) -> Part {
        self.allowance.map_or_else(Part::unlimited, Allowance::part)
    }

    pub(crate) fn pairs(&self) -> usize {
        self.queues.clamp(1, Self::MOST_QUEUES)
    }
}
