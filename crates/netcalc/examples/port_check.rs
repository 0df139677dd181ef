//! Cost of the check of one port: `cargo run --release -p tailbound-netcalc --example port_check`.
//!
//! A placement adds a tenant's curve to a port's curve, and checks millions of times whether the
//! queue stays within the buffer.

use std::hint::black_box;
use std::time::Instant;
use tailbound_netcalc::{ArrivalCurve, Guarantee, Overflow, ServiceCurve};
use tailbound_units::{Bursts, Bytes, Nanos, Rate};

const CHECKS: u32 = 1_000_000;
const FRAME: Bytes = Bytes(1_500);
const BUFFER: Bytes = Bytes(312_500);
const LINK: Rate = Rate(10_000_000_000);

fn main() -> Result<(), Overflow> {
    let tenant = Guarantee {
        bandwidth: Rate::from_mbit(250),
        burst: Bytes(15_000),
        burst_rate: Rate::from_mbit(1_000),
        bursts: Bursts::ONE,
        burst_in: None,
    };
    // The port carries other tenants already; what feeds it is four links.
    let others = ArrivalCurve::token_bucket(Rate::from_mbit(3_141), Bytes(123_457));
    let link = ServiceCurve::rate_latency(LINK, Nanos::ZERO);
    let feeding = Rate(4 * LINK.0).into();
    // What the buffer holds at the link's rate.
    let limit = LINK.time_for(BUFFER);
    // A different tenant each time, so that nothing can be computed beforehand.
    let tenants: Vec<_> = (1..49)
        .map(|senders| tenant.across(senders, 49, FRAME))
        .collect::<Result<_, _>>()?;
    let port = |tenant: &ArrivalCurve| others.sum(tenant)?.over_links(feeding, 4, FRAME);
    let ports: Vec<_> = tenants.iter().map(port).collect::<Result<_, _>>()?;

    measure("add a tenant's curve, limit it by the links", |index| {
        Ok(port(&tenants[index % tenants.len()])?.buckets().len() == 2)
    })?;
    measure("is the queue short enough? (no division)", |index| {
        ports[index % ports.len()].is_served_within(LINK, Nanos::ZERO, limit)
    })?;
    measure("the exact delay", |index| {
        Ok(ports[index % ports.len()].delay(&link)?.finite() <= Some(limit.into()))
    })?;
    measure("the exact backlog", |index| {
        Ok(ports[index % ports.len()].backlog(&link)?.finite() <= Some(BUFFER.into()))
    })
}

fn measure(
    what: &str,
    mut check: impl FnMut(usize) -> Result<bool, Overflow>,
) -> Result<(), Overflow> {
    let start = Instant::now();
    let mut yes = 0;
    for index in 0..CHECKS {
        yes += u32::from(check(black_box(index as usize))?);
    }
    let each = start.elapsed().as_nanos() / u128::from(CHECKS);
    println!("{each:5} ns  {what}: {yes} of {CHECKS} yes");
    Ok(())
}
