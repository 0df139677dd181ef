//! Order in which traffic passes the ports. The search is not recursive, so long chains of ports
//! need no stack.

use super::{FlowId, Network, NetworkError, PortId};
use std::collections::VecDeque;

/// Returns all ports in an order with each port after the ports that feed it.
pub(super) fn feed_forward(network: &Network) -> Result<Vec<PortId>, NetworkError> {
    let count = network.ports.len();
    // A step that several flows take counts for each of them, in both lists.
    let mut next = vec![Vec::new(); count];
    let mut feeders = vec![0_usize; count];
    for flow in &network.flows {
        for step in flow.path.windows(2) {
            next[step[0].0].push(step[1]);
            feeders[step[1].0] += 1;
        }
    }
    let mut ready: VecDeque<_> = (0..count).filter(|&port| feeders[port] == 0).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(port) = ready.pop_front() {
        order.push(PortId(port));
        for fed in &next[port] {
            feeders[fed.0] -= 1;
            if feeders[fed.0] == 0 {
                ready.push_back(fed.0);
            }
        }
    }
    match feeders.iter().position(|&left| left > 0) {
        None => Ok(order),
        Some(start) => Err(cycle(network, &feeders, start)),
    }
}

/// Returns a cycle behind `start`; `feeders` counts the edges from ports that were never reached.
fn cycle(network: &Network, feeders: &[usize], start: usize) -> NetworkError {
    // Each port left over is fed by another one, so that going back never ends:
    // it must come to a port a second time.
    let mut fed_by = vec![None; feeders.len()];
    for (index, flow) in network.flows.iter().enumerate() {
        for step in flow.path.windows(2) {
            if feeders[step[0].0] > 0 {
                fed_by[step[1].0] = Some((step[0], FlowId(index)));
            }
        }
    }
    let mut seen = vec![false; feeders.len()];
    let mut port = PortId(start);
    let mut trail = vec![port];
    let mut last = FlowId(0);
    while !seen[port.0] {
        seen[port.0] = true;
        let Some((from, flow)) = fed_by[port.0] else {
            break;
        };
        (port, last) = (from, flow);
        trail.push(port);
    }
    // The trail goes against the traffic and ends where the cycle closes.
    let first = trail.iter().position(|&other| other == port);
    let around = &trail[first.unwrap_or(0)..trail.len() - 1];
    let name = |port: &PortId| network.port(*port).name.clone();
    let mut ports = vec![name(&port)];
    ports.extend(around.iter().skip(1).rev().map(name));
    NetworkError::Cycle {
        ports,
        flow: network.flows[last.0].name.clone(),
        id: last,
    }
}
