//! The latency of a tenant's messages, with the work at sender and receiver.

use super::Ledger;
use tailbound_api::{MessageBound, Tenant};
use tailbound_netcalc::Guarantee as Curve;
use tailbound_placement::{CpuLatency, Direction, HostRule, NodeId, Policy, PortId, Request};
use tailbound_units::{Bursts, Bytes, Nanos, Rate};

impl Ledger {
    /// Returns the longest delay of a tenant's message between machines on two hosts, under any
    /// traffic of other tenants. Returns None if the tenant did not declare its traffic. `capacity`
    /// is the sum of the capacities of the queues between the hosts.
    pub(super) fn message_bound(
        &self,
        tenant: &Tenant,
        [from, to]: [NodeId; 2],
        capacity: Nanos,
    ) -> Option<MessageBound> {
        let Request {
            guarantee, message, ..
        } = tenant.request;
        let (guarantee, message) = (guarantee?, message?);
        let frame = self.datacentre.topology().frame();
        let curve = Curve {
            bandwidth: guarantee.bandwidth,
            burst: guarantee.burst.max(frame),
            burst_rate: guarantee.burst_rate.unwrap_or_else(|| self.wire(from)),
            bursts: guarantee.counted_bursts(),
            burst_in: guarantee.burst_in,
        };
        let shares_bursts = shares_bursts(self, tenant, [from, to], curve.bursts);
        let part = guarantee.credit(tenant.request.vms);
        let part = part.map_or(curve.burst, |part| part.min(curve.burst));
        let burst = message.size.min(part);
        let at_burst_rate = curve.time_for(burst, frame);
        let others = u64::from(tenant.request.vms.saturating_sub(1));
        let at_share = |bytes| Nanos(curve.bandwidth.time_for(bytes).0.saturating_mul(others));
        let at_bandwidth = if part < curve.burst {
            // All others may send to the receiver.
            at_share(Bytes(message.size.0 - burst.0))
        } else {
            curve
                .time_for(message.size, frame)
                .saturating_sub(at_burst_rate)
        };
        let leaving = at_burst_rate.saturating_add(at_bandwidth);
        let delay = guarantee.delay.unwrap_or(capacity);
        let send = self.cpu_latency(from, &tenant.request, message.send);
        let receive = self.cpu_latency(to, &tenant.request, message.receive);
        let name = |host| self.datacentre.topology().name(host);
        let silo = if self.topology.policy == Policy::Silo {
            Ok(())
        } else {
            Err("the rules of admission bound no delay".to_owned())
        };
        let total = silo.and_then(|()| {
            let why = |host| move |rule: &HostRule| format!("{}: {rule}", name(host));
            let send = send.as_ref().map_err(why(from))?.total();
            let receive = receive.as_ref().map_err(why(to))?.total();
            let parts = [send, leaving, delay, receive];
            Ok(parts.into_iter().fold(Nanos::ZERO, Nanos::saturating_add))
        });
        Some(MessageBound {
            size: message.size,
            send: send.ok(),
            burst,
            at_burst_rate,
            at_bandwidth,
            after_bursts: shares_bursts.then(|| at_share(message.size)),
            delay,
            receive: receive.ok(),
            unbounded: total.as_ref().err().cloned(),
            total: total.ok(),
        })
    }

    /// Returns the rate of a host's link: the lower of the reported and the topology's rate.
    fn wire(&self, host: NodeId) -> Rate {
        let port = PortId {
            node: host,
            direction: Direction::Up,
        };
        let built = Rate(self.datacentre.topology().port(port).rate);
        let last_report = self
            .last_report(host)
            .and_then(|last_report| last_report.report.limits);
        last_report.map_or(built, |limits| limits.link.min(built))
    }

    fn cpu_latency(
        &self,
        host: NodeId,
        request: &Request,
        demand: Nanos,
    ) -> Result<CpuLatency, HostRule> {
        match &request.cpu_reservation {
            Some(reservation) if demand > Nanos::ZERO => {
                let cpu = self.datacentre.host_cpu(host).ok_or(HostRule::NoCpu)?;
                cpu.latency(reservation, demand)
            }
            // It needs none: that was checked.
            _ => Ok(CpuLatency::default()),
        }
    }
}

/// Returns whether a sender's bursts to other machines may use up those to a receiver: whether a
/// subtree with the receiver's host and without the sender's has more machines than bursts. The
/// rest of the tree outside of the sender's host, rack or pod is one, too, if it has fewer
/// machines of the tenant than the inside.
fn shares_bursts(
    ledger: &Ledger,
    tenant: &Tenant,
    [from, to]: [NodeId; 2],
    bursts: Bursts,
) -> bool {
    let topology = ledger.datacentre.topology();
    let scope = topology.meeting(from, to);
    let hosts = ledger.datacentre.tenant(tenant.id);
    let hosts = hosts.map_or(&[][..], |tenant| tenant.placement.hosts());
    let below = |node| -> u64 {
        let below = hosts
            .iter()
            .filter(|(host, _)| topology.is_below(*host, node));
        below.map(|(_, count)| u64::from(*count)).sum()
    };
    let all: u64 = below(NodeId::TOP);
    let has_more = |machines: u64| bursts.into_subtree(machines) < machines;
    let branch = |host| {
        std::iter::successors(Some(host), |node| topology.parent(*node))
            .take_while(move |node| *node != scope)
    };
    let outside = |node| {
        let inside = below(node);
        let outside = all.saturating_sub(inside);
        outside < inside && has_more(outside)
    };
    branch(to).any(|node| has_more(below(node))) || branch(from).any(outside)
}
