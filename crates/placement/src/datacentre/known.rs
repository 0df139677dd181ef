//! Results that a search has computed, for nodes in the same state.

use crate::load::{Interval, Load, Wait, Waits};
use crate::topology::Port;

/// Results of the search for hosts, valid for others in the same state.
#[derive(Debug, Default)]
pub(super) struct KnownHosts {
    /// The height for which it was computed last that no host may take any number, and the answer.
    pub(super) hopeless: Option<(u8, bool)>,
    pub(super) range: Option<(Hosts, Option<Interval<u32>>)>,
    pub(super) host: Option<(HostState, u32)>,
}

/// The state of the hosts below a node, as its summary has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hosts {
    pub(super) slots: u32,
    pub(super) lightest: [Load; 2],
    pub(super) ports: [Port; 2],
    pub(super) waits: [Waits; 2],
}

/// The state of a host, and the limit `most` on its machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostState {
    pub(super) most: u32,
    pub(super) loads: [Load; 2],
    pub(super) ports: [Port; 2],
    pub(super) waits: [Wait; 2],
}
