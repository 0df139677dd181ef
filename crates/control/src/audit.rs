//! Every promise recomputed from what a store has, without the code that
//! decided it.

use crate::ledger::Snapshot;
use std::fmt;

/// What an audit looked at and found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// How many tenants there are.
    pub tenants: usize,
    /// How many machines.
    pub vms: u64,
    /// How many ports carry something.
    pub ports: usize,
    /// How many idempotency keys there are.
    pub keys: usize,
    /// What is wrong; nothing if all is well.
    pub findings: Vec<Finding>,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// A tenant, host, port or key.
    pub subject: String,
    /// What is wrong with it.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.subject, self.what)
    }
}

/// Looks at all that a store has.
pub fn audit(snapshot: &Snapshot) -> Report {
    Report {
        tenants: snapshot.tenants.len(),
        keys: snapshot.keys.len(),
        ..Report::default()
    }
}
