//! Shared helpers for tests of the ledger, the service and the stores.

use super::{Call, Change, Command, Ledger};
use tailbound_api::{HostReport, NewTenant, VmLimit};
use tailbound_placement::{Guarantee, Policy, Spec};
use tailbound_units::{Bytes, Nanos, Rate};

/// Two racks of three hosts.
pub(crate) const TREE: &str = r#"
    frame = "1538B"
    [[group]]
    name = "left"
    uplink = { rate = "40Gbit/s", buffer = "500KB" }
    [[group]]
    name = "right"
    uplink = { rate = "40Gbit/s", buffer = "500KB" }
    [[host]]
    name = "host"
    group = "left"
    count = 3
    slots = 8
    uplink = { rate = "10Gbit/s", buffer = "300KB", up_buffer = "62500B" }
    [[host]]
    name = "other"
    group = "right"
    count = 3
    slots = 6
    uplink = { rate = "10Gbit/s", buffer = "300KB", up_buffer = "62500B" }
"#;

/// An empty ledger, and what a new store has to keep of it.
pub(crate) fn ledger() -> (Ledger, Vec<Change>) {
    Ledger::new(Spec::from_toml(TREE).unwrap(), Policy::Silo).unwrap()
}

/// An operator's command.
pub(crate) fn call(command: Command) -> Call {
    Call::of_service(command)
}

/// A tenant of some guarantees.
pub(crate) fn create(owner: &str, name: &str, vms: u32) -> Call {
    call(Command::Create(NewTenant {
        name: name.to_owned(),
        owner: Some(owner.to_owned()),
        vms,
        guarantee: Some(Guarantee {
            bandwidth: Rate::from_mbit(200),
            burst: Bytes(3_000),
            delay: Some(Nanos::from_millis(2)),
            burst_rate: Some(Rate::from_mbit(1_000)),
            bursts: None,
            burst_in: None,
            class: None,
        }),
        cpu: 0,
        memory: Bytes::ZERO,
        domains: None,
        cpu_reservation: None,
        message: None,
        limit: VmLimit::default(),
        placement: Vec::new(),
    }))
}

/// A report that limits and offers nothing, of a host that follows this change of a tenant.
pub(crate) fn bare_report(change: u64) -> HostReport {
    HostReport {
        revision: 1,
        change,
        classes: None,
        limits: None,
        cpu: None,
        refused: Vec::new(),
        unpromised: Vec::new(),
        arrived: Vec::new(),
        measured: None,
    }
}
