//! Tables of several commands.

use super::request::machines;
use tailbound_api::{Affected, HostShare, PortState, Run};
use tailbound_placement::Guarantee;
use tailbound_report::{Paint, Table, human};
use tailbound_units::rounded_up::{size, time};

/// Table of VMs by host.
pub(super) fn placed(hosts: &[HostShare], paint: Paint) -> String {
    let mut table = Table::new(&["host", "machines"], &[]);
    for placed in hosts {
        table.row([placed.host.as_str(), &placed.vms.to_string()]);
    }
    table.render(paint)
}

/// Table of VMs by host, with their numbers.
pub(super) fn runs(runs: &[Run], paint: Paint) -> String {
    let mut table = Table::new(&["host", "machines", "numbers"], &[2]);
    for run in runs {
        let count = run.count.to_string();
        table.row([&*run.host, &count, &numbers(run.first, run.count)]);
    }
    table.render(paint)
}

/// Returns the guaranteed delay with its class, if it is not the ordinary one; None without both.
pub(super) fn delay(guarantee: &Guarantee) -> Option<String> {
    match (guarantee.delay, guarantee.class) {
        (delay, None) => Some(delay?.to_string()),
        (None, Some(class)) => Some(format!("class {class}")),
        (Some(delay), Some(class)) => Some(format!("{delay} (class {class})")),
    }
}

/// Returns `3`, or `3 to 7`.
pub(super) fn numbers(first: u32, count: u32) -> String {
    match count {
        0 | 1 => first.to_string(),
        _ => format!("{first} to {}", u64::from(first) + u64::from(count) - 1),
    }
}

/// Table of queues, their reserved and their free capacity.
pub(super) fn ports(ports: &[PortState], paint: Paint) -> String {
    let head = [
        "port",
        "link",
        "reserved",
        "waits at worst",
        "may wait",
        "holds at worst",
        "may hold",
        "left",
    ];
    let mut table = Table::new(&head, &[]);
    for port in ports {
        table.row([
            port.name.clone(),
            human(port.rate_bit_s as f64, "bit/s"),
            human(port.reserved_bit_s as f64, "bit/s"),
            time(port.bound_ns),
            time(port.capacity_ns),
            size(port.backlog_bytes),
            size(port.room_bytes),
            format!("{}.{}%", port.headroom / 10, port.headroom % 10),
        ]);
    }
    table.render(paint)
}

/// Table of tenants on closed hosts, and their possible destinations.
pub(super) fn affected(tenants: &[Affected], paint: Paint) -> String {
    let mut table = Table::new(&["tenant", "id", "here", "would all fit on"], &[3]);
    for tenant in tenants {
        let refit: Vec<_> = tenant
            .refit
            .iter()
            .map(|placed| format!("{} ({})", placed.host, machines(placed.vms)))
            .collect();
        let refit = match &tenant.refusal {
            Some(refusal) => format!("nowhere: {refusal}"),
            None => refit.join(", "),
        };
        table.row([
            format!("{}/{}", tenant.owner, tenant.name),
            tenant.tenant.0.to_string(),
            tenant.lost.to_string(),
            refit,
        ]);
    }
    table.render(paint)
}
