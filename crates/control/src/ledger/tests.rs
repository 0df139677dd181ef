mod bursts;
mod cases;
mod classes;
mod cpu;
mod large;
mod late;
mod limits;
mod moves;
mod named;
mod quotas;
mod races;
mod random;
mod recover;
mod scheduling;
mod tokens;

use super::testing::{TREE, bare_report, call, create, ledger};
use super::*;
use tailbound_api::{Host, HostGuarantees, HostReport, HostState, ReservationId, Tenant};
use tailbound_placement::{Direction, HostLimits, Lateness, Load, PortId, Resources};
use tailbound_units::{Bytes, Nanos, Rate};

/// All observable state of a ledger.
#[derive(Debug, PartialEq)]
struct Observed {
    snapshot: Snapshot,
    loads: Vec<[Load; 2]>,
    free: Vec<Resources>,
    hosts: Vec<Option<Host>>,
    guarantees: Vec<Option<HostGuarantees>>,
    owned: Vec<Vec<Arc<Tenant>>>,
    standings: Vec<Option<tailbound_api::TenantEnforcement>>,
    counts: (u64, u64),
    by_word: HostCounts,
    used: u64,
    overfull: Vec<NodeId>,
    open: Vec<OpenReservation>,
    usages: Vec<Usage>,
}

fn observe(ledger: &Ledger) -> Observed {
    let topology = ledger.datacentre().topology();
    let heights = 0..=topology.height(NodeId::TOP);
    let nodes: Vec<NodeId> = heights
        .flat_map(|height| topology.at_height(height))
        .copied()
        .collect();
    let names = || topology.hosts().iter().map(|host| topology.name(*host));
    let owned = |owner: &str| {
        let filter = TenantFilter {
            owner: Some(owner.to_owned()),
            ..TenantFilter::default()
        };
        ledger.tenants(&filter, None, usize::MAX).items
    };
    let ports = |node: &NodeId| {
        [Direction::Up, Direction::Down].map(|direction| {
            let node = *node;
            *ledger.datacentre().load(PortId { node, direction })
        })
    };
    Observed {
        snapshot: ledger.snapshot(),
        loads: nodes.iter().map(ports).collect(),
        free: nodes
            .iter()
            .map(|node| ledger.datacentre().free(*node))
            .collect(),
        hosts: names().map(|name| ledger.host(name)).collect(),
        guarantees: names().map(|name| ledger.guarantees(name)).collect(),
        owned: ["acme", "globex"].map(owned).into(),
        standings: ledger
            .tenants
            .keys()
            .map(|id| ledger.standing(*id, true))
            .collect(),
        counts: ledger.not_admitted(),
        by_word: ledger.hosts_by_word(),
        used: ledger.used,
        overfull: tailbound_placement::pinned::overfull(ledger.datacentre()).collect(),
        open: reservations::open_after(ledger, ReservationId(0)),
        usages: ["acme", "globex"]
            .map(|owner| ledger.owners.usage(owner))
            .into(),
    }
}

/// Returns the limits of a host with departures at their times, on a link of `mbit` Mbit/s.
fn limits_of_link(mbit: u64) -> HostLimits {
    HostLimits {
        link: Rate::from_mbit(mbit),
        reserved: Rate(0),
        frame: Bytes(1_538),
        slowest: Rate(10_000),
        subtree_bursts: true,
        inward_bursts: false,
        delay_classes: false,
        lateness: Lateness::Exact,
        packet: None,
    }
}

/// Returns the report of a host with these limits that follows the latest change of a tenant.
fn report_of(ledger: &Ledger, limits: HostLimits) -> HostReport {
    HostReport {
        limits: Some(limits),
        ..bare_report(ledger.next_id - 1)
    }
}

/// Sends a host's report, and returns the changes that it causes.
fn send_report(ledger: &mut Ledger, host: &str, report: HostReport) -> Vec<Change> {
    let (host, report) = (host.to_owned(), Box::new(report));
    let call = call(Command::Report { host, report });
    ledger.decide(&call, Nanos(1)).unwrap().changes
}

fn tenant(reply: &Reply) -> Arc<Tenant> {
    match reply {
        Reply::Tenant(tenant) => Arc::clone(tenant),
        other => panic!("{other:?}"),
    }
}
