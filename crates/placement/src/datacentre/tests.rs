//! The state against recomputation, decisions against an independent check.

mod asked;
mod cases;
mod check;
mod classes;
mod cpu;
mod exact;
mod late;
mod offers;
mod pinned;
mod random;
mod wide;

use super::*;
use crate::request::{FaultDomains, Guarantee};
use crate::topology::Direction;
use crate::topology::{GroupSpec, HostSpec, Spec, Spread, UplinkSpec};
use tailbound_classes::{Classes, Fabric};
use tailbound_units::{Bursts, Bytes, Nanos, Rate};

fn link(mbit: u64, buffer: u64) -> UplinkSpec {
    UplinkSpec {
        rate: Rate::from_mbit(mbit),
        links: 1,
        spread: Spread::Flow,
        buffer: Bytes(buffer),
        up_buffer: None,
        shared_buffer: Bytes::ZERO,
    }
}

fn host(name: &str, group: &str, count: u32, slots: u32, uplink: UplinkSpec) -> HostSpec {
    HostSpec {
        name: name.to_owned(),
        group: Some(group.to_owned()),
        count,
        slots,
        cpu: None,
        memory: None,
        lateness: None,
        uplink,
    }
}

fn group(name: &str, parent: Option<&str>, uplink: UplinkSpec) -> GroupSpec {
    GroupSpec {
        name: name.to_owned(),
        parent: parent.map(str::to_owned),
        uplink,
    }
}

/// Returns the request with an inward burst, between the least and the bursts of all other machines.
fn inwards(mut request: Request, thousandths: u64) -> Request {
    let asked = request;
    if let Some(guarantee) = &mut request.guarantee {
        let frame = Bytes(1_538);
        let least = asked.least_inward(frame).0;
        let most = asked.most_inward(frame).0;
        let burst_in = least + (most - least) * thousandths / 1_000;
        guarantee.burst_in = Some(guarantee.burst.max(Bytes(burst_in)));
    }
    request
}

fn request(vms: u32, mbit: u64, burst: u64) -> Request {
    Request {
        vms,
        guarantee: Some(Guarantee {
            bandwidth: Rate::from_mbit(mbit),
            burst: Bytes(burst),
            delay: None,
            burst_rate: None,
            bursts: None,
            burst_in: None,
            class: None,
        }),
        cpu: 0,
        memory: Bytes::ZERO,
        domains: None,
        cpu_reservation: None,
        message: None,
    }
}

/// Per receiver, or one to three into each subtree.
fn bursts() -> impl proptest::strategy::Strategy<Value = Option<Bursts>> {
    use proptest::strategy::Strategy as _;
    proptest::option::of((1_u32..4).prop_map(Bursts::PerSubtree))
}
