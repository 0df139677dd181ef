//! Independent check of all promises: from the paths between all pairs of machines, with the exact
//! curves of the other crate, port by port.

use super::*;
use tailbound_netcalc::{ArrivalCurve, Guarantee as Curve, Ratio, TokenBucket};

/// The ports from a host to another one, in order.
pub(super) fn path(topology: &Topology, from: NodeId, to: NodeId) -> Vec<PortId> {
    let above = |mut node: NodeId| {
        let mut all = vec![node];
        while let Some(parent) = topology.parent(node) {
            all.push(parent);
            node = parent;
        }
        all
    };
    let (one, other) = (above(from), above(to));
    let up = one.iter().filter(|node| !other.contains(node));
    let down = other.iter().rev().filter(|node| !one.contains(node));
    up.map(|node| (*node, Direction::Up))
        .chain(down.map(|node| (*node, Direction::Down)))
        .map(|(node, direction)| PortId { node, direction })
        .collect()
}

/// Returns what machines of a tenant on these hosts send to the others, behind the queues of each.
/// Hosts with departure times negotiate no rates, so nothing but the senders' own guarantees limits
/// them.
fn sent(
    topology: &Topology,
    guarantee: Curve,
    vms: u64,
    senders: &BTreeMap<NodeId, (u32, Nanos)>,
) -> ArrivalCurve {
    let frame = topology.frame();
    if senders
        .keys()
        .all(|host| topology.lateness(*host).is_none())
    {
        let longest = senders.values().map(|(_, waited)| *waited).max();
        let senders = senders.values().map(|(count, _)| u64::from(*count)).sum();
        let all = guarantee.across(senders, vms, frame).unwrap();
        return all.delayed(longest.unwrap().into()).unwrap();
    }
    let each = senders.iter().map(|(host, (count, waited))| {
        let one = match topology.lateness(*host) {
            Some(lateness) => guarantee.late(lateness, frame),
            None => guarantee.curve(frame),
        };
        let all = one.unwrap().times(u64::from(*count)).unwrap();
        all.delayed((*waited).into()).unwrap()
    });
    let each: Vec<ArrivalCurve> = each.collect();
    ArrivalCurve::total(&each).unwrap()
}

/// Panics if a promise of Silo may break, however the senders time their
/// frames; links are used by flow.
pub(super) fn all_promises_hold(dc: &Datacentre) {
    let topology = dc.topology();
    let lowest = topology.delay_classes().len();
    let mut curves: BTreeMap<PortId, Vec<Vec<ArrivalCurve>>> = BTreeMap::new();
    for (_, tenant) in dc.tenants() {
        let Some(guarantee) = tenant.request.guarantee else {
            continue;
        };
        let of_class = topology.of_class(guarantee.class).expect("it was admitted");
        let rank = guarantee
            .class
            .map_or(lowest, |class| usize::from(class) - 1);
        // Who sends through each port, to whom, and how late they may be.
        let mut used: BTreeMap<PortId, BTreeMap<NodeId, (u32, Nanos)>> = BTreeMap::new();
        for &(from, count) in tenant.placement.hosts() {
            for &(to, _) in tenant.placement.hosts() {
                let mut waited = Nanos::ZERO;
                let ports = path(topology, from, to);
                assert_eq!(topology.path(from, to), ports);
                let is_out = !ports.is_empty();
                for port in ports {
                    used.entry(port).or_default().insert(from, (count, waited));
                    waited += of_class.port(port).capacity;
                }
                let lateness = topology.lateness(from).filter(|_| is_out);
                let waited = waited + lateness.unwrap_or_default();
                assert!(guarantee.delay.is_none_or(|delay| waited <= delay));
            }
        }
        let curve = Curve {
            bandwidth: guarantee.bandwidth,
            burst: guarantee.burst.max(topology.frame()),
            burst_rate: guarantee.burst_rate.unwrap_or(Rate(1_000_000_000_000_000)),
            bursts: guarantee.counted_bursts(),
            burst_in: guarantee.burst_in,
        };
        for (port, senders) in used {
            let curve = sent(topology, curve, u64::from(tenant.request.vms), &senders);
            let of_port = curves
                .entry(port)
                .or_insert_with(|| vec![Vec::new(); lowest + 1]);
            of_port[rank].push(curve);
        }
    }
    for (id, curves) in curves {
        let mut higher = ArrivalCurve::none();
        for (rank, own) in curves.iter().enumerate() {
            let own = ArrivalCurve::total(own).unwrap();
            let class = (rank < lowest).then_some(rank as u8 + 1);
            class_holds(dc, id, class, [&own, &higher]);
            higher = higher.sum(&own).unwrap();
        }
    }
}

/// Panics unless the frames of a class with this curve, beside those of higher ones, leave a port in
/// time.
fn class_holds(dc: &Datacentre, id: PortId, class: Option<u8>, curves: [&ArrivalCurve; 2]) {
    let topology = dc.topology();
    let [own, higher] = curves;
    {
        let port = topology.of_class(class).expect("there is one").port(id);
        let links = port.feed.map(|feed| TokenBucket {
            rate: Ratio::whole(i128::from(feed.rate)),
            burst: Ratio::whole(i128::from(feed.burst) * 1_000_000_000),
        });
        let sum = own.behind(higher, port.capacity, links).unwrap();
        // A frame of best effort that is on the wire is finished first.
        let latency = Rate(port.rate).time_for(topology.frame());
        let late = Nanos(1);
        let limit = Nanos(port.capacity.0) + late;
        assert!(
            sum.is_served_within(Rate(port.rate), latency, limit)
                .unwrap(),
            "{} carries {:?}",
            topology.port_name(id),
            curves
        );
        if class.is_some() {
            return;
        }
        let bound = dc.bound(id).unwrap();
        assert!(bound.delay <= port.capacity && bound.backlog <= port.backlog_limit);
        assert!(
            sum.is_served_within(Rate(port.rate), latency, bound.delay + late)
                .unwrap(),
            "{} is said to be within {bound:?}",
            topology.port_name(id)
        );
    }
}

/// Panics unless all that is kept is what follows from tenants and closed hosts.
pub(super) fn state_is_as_recomputed(dc: &Datacentre) {
    let mut new = Datacentre::new(dc.topology.clone(), dc.policy);
    for (id, tenant) in dc.tenants.iter().rev() {
        new.reserve(*id, tenant.request, tenant.placement.clone());
    }
    for host in dc.topology.hosts() {
        if dc.is_closed(*host) {
            new.close(*host);
        }
        new.set_offer(*host, dc.offer(*host));
        new.set_host_cpu(*host, dc.host_cpu(*host).copied());
    }
    assert_eq!(DatacentreState::of(dc), DatacentreState::of(&new));
}

/// All that changes.
#[derive(Debug, PartialEq)]
pub(super) struct DatacentreState<'a> {
    loads: &'a [[Load; 2]],
    urgent: Vec<&'a [[Load; 2]]>,
    free: &'a FreeResources,
    closed: &'a [bool],
    promised: &'a [u64],
    reserved: &'a [CpuUse],
    slots: &'a [Largest],
    summaries: &'a [Vec<Summary>],
    parts: &'a [Vec<Parts>],
    tenants: &'a BTreeMap<TenantId, Tenant>,
}

impl<'a> DatacentreState<'a> {
    pub(super) fn of(dc: &'a Datacentre) -> Self {
        Self {
            loads: &dc.loads.ordinary,
            urgent: dc.loads.urgent.iter().map(|sums| &sums.loads[..]).collect(),
            free: &dc.free,
            closed: &dc.closed,
            promised: &dc.promised,
            reserved: &dc.reserved,
            slots: &dc.slots,
            summaries: &dc.summaries,
            parts: &dc.parts,
            tenants: &dc.tenants,
        }
    }
}
