//! Bounds for every flow of a feed-forward network of FIFO queues.
//!
//! [`Network`] is what is computed with, [`NetworkFile`] what a file says.
//! `order` finds the order in which ports are computed, or the cycle that
//! forbids one; `total` is total flow analysis, `separated` separated flow
//! analysis, `concatenated` what both miss of ports behind each other.

mod concatenated;
mod file;
mod order;
mod separated;
mod total;

pub use file::NetworkFile;

use crate::arrival::ArrivalCurve;
use crate::ratio::{Overflow, Ratio};
use concatenated::Concatenation;
use tailbound_units::{Bytes, Nanos, Rate};

/// A port of a [`Network`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(usize);

impl PortId {
    /// Its place in [`Network::ports`].
    pub const fn index(self) -> usize {
        self.0
    }
}

/// A flow of a [`Network`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(usize);

/// An output port: a queue and the link behind it.
///
/// Of several priorities the lowest number is served first and a frame is never
/// interrupted; within a priority the queue is FIFO.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its name, unique in the network.
    pub name: String,
    /// The link's rate; above zero.
    pub rate: Rate,
    /// How long the port may leave a frame waiting though the link is idle.
    pub latency: Nanos,
    /// How much it can hold. No bound depends on it, but all hold only while no
    /// frame is lost.
    pub buffer: Option<Bytes>,
}

/// A flow: what a sender puts into the network, and its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// Its name, unique in the network.
    pub name: String,
    /// The ports that it passes, in order.
    pub path: Vec<PortId>,
    /// Its average rate; above zero.
    pub rate: Rate,
    /// How much it may send at once, or at the burst rate; at least a frame.
    pub burst: Bytes,
    /// The rate at which it sends a burst; at once by default.
    pub burst_rate: Option<Rate>,
    /// 0 is served first.
    pub priority: u8,
    /// How long its frames may take; no bound depends on it.
    pub deadline: Option<Nanos>,
}

impl Flow {
    /// What it may send, in frames that come whole.
    fn curve(&self, frame: Bytes) -> Result<ArrivalCurve, Overflow> {
        match self.burst_rate {
            Some(fast) => ArrivalCurve::burst_limited(self.rate, self.burst, fast, frame),
            None => Ok(ArrivalCurve::token_bucket(self.rate, self.burst)),
        }
    }
}

/// Output ports and the flows through them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    frame: Bytes,
    line_limit: bool,
    ports: Vec<Port>,
    flows: Vec<Flow>,
}

/// The bounds of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortBounds {
    /// What waits and is being sent, in nanobits; as large a buffer loses no
    /// frame.
    pub backlog: Ratio,
    /// Its priorities that have flows, the first served first.
    pub classes: Vec<ClassBounds>,
}

impl Default for PortBounds {
    /// A port without flows.
    fn default() -> Self {
        Self {
            backlog: Ratio::ZERO,
            classes: Vec::new(),
        }
    }
}

/// The bounds of a port for the flows of one priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassBounds {
    /// The priority of the flows.
    pub priority: u8,
    /// Their average rates together, in bits a second.
    pub load: Ratio,
    /// From the arrival of a frame's last bit until its last bit has left, in
    /// nanoseconds.
    pub delay: Ratio,
    /// What waits and is being sent, in nanobits.
    pub backlog: Ratio,
}

/// The bounds of a flow, from its first port to its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowBounds {
    /// The delay by total flow analysis: the sum over its ports, nanoseconds.
    pub total_delay: Ratio,
    /// What it has in the network under that delay, nanobits.
    pub total_backlog: Ratio,
    /// The delay by separated flow analysis, nanoseconds.
    pub separated_delay: Ratio,
    /// What it has in the network by separated flow analysis, nanobits.
    pub separated_backlog: Ratio,
    /// The least delay by either, or by paying once for others, with ports behind each other as
    /// one server for the others, too; nanoseconds.
    pub concatenated_delay: Ratio,
    /// What it has in the network by the same, nanobits.
    pub concatenated_backlog: Ratio,
}

impl FlowBounds {
    /// All delays are bounds, so the least is.
    pub fn delay(&self) -> Ratio {
        let before = self.total_delay.min(self.separated_delay);
        before.min(self.concatenated_delay)
    }

    /// All backlogs are bounds, so the least is.
    pub fn backlog(&self) -> Ratio {
        let before = self.total_backlog.min(self.separated_backlog);
        before.min(self.concatenated_backlog)
    }
}

/// All bounds of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// One for each port, in the network's order.
    pub ports: Vec<PortBounds>,
    /// One for each flow, in the network's order.
    pub flows: Vec<FlowBounds>,
}

/// Why a network has no bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// Ports feed each other in a circle. The analyses go from port to port in
    /// the order of the traffic; in a circle there is none.
    #[error(
        "the flows' paths make a cycle: {}; bounds exist here for feed-forward networks only, so \
         route flow {flow:?} another way", chain(.ports)
    )]
    Cycle {
        /// The ports in order; the last one feeds the first.
        ports: Vec<String>,
        /// A flow that takes a step of it.
        flow: String,
        /// The same flow.
        id: FlowId,
    },
    /// More comes to a port than it can serve, so its queue grows for ever.
    #[error(
        "port {port:?} is not stable: flows of {load} bit/s in all come to a link of {rate}, \
         {excess} bit/s too many; give it a higher rate or fewer flows"
    )]
    Unstable {
        /// The port's name.
        port: String,
        /// The port.
        id: PortId,
        /// The flows' average rates together, bits a second.
        load: u128,
        /// The link's rate.
        rate: Rate,
        /// By how much the load is too much, bits a second.
        excess: u128,
    },
    /// The numbers grow beyond what can be computed with.
    #[error("the bounds at port {port:?} are too large to be counted: {source}")]
    Overflow {
        /// The port's name.
        port: String,
        /// The port.
        id: PortId,
        /// The error itself.
        source: Overflow,
    },
}

/// `a -> b -> a`, shortened where it is long.
fn chain(ports: &[String]) -> String {
    const SHOWN: usize = 8;
    let mut names: Vec<_> = ports.iter().take(SHOWN).cloned().collect();
    if let Some(more) = ports.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        names.push(format!("({more} more)"));
    }
    names.extend(ports.first().cloned());
    names.join(" -> ")
}

impl Network {
    /// A network without ports.
    ///
    /// No frame is longer than `frame`. Switches here store a frame before they
    /// forward it; with a frame of zero bytes traffic is a fluid, as it is in
    /// textbooks. With `line_limit` a port never sends faster than its rate, so
    /// what it feeds gets no more than that; without, a rate is only what a
    /// server guarantees.
    pub fn new(frame: Bytes, line_limit: bool) -> Self {
        Self {
            frame,
            line_limit,
            ports: Vec::new(),
            flows: Vec::new(),
        }
    }

    /// Adds a port.
    ///
    /// # Panics
    /// Its rate is zero.
    pub fn add_port(&mut self, port: Port) -> PortId {
        assert!(port.rate.0 > 0, "a link has a rate");
        self.ports.push(port);
        PortId(self.ports.len() - 1)
    }

    /// Adds a flow.
    ///
    /// # Panics
    /// Its rate is zero, its burst is below a frame, or its path is empty or has
    /// a port of another network.
    pub fn add_flow(&mut self, flow: Flow) -> FlowId {
        assert!(flow.rate.0 > 0, "a flow has a rate");
        assert!(flow.burst >= self.frame, "a flow may send a frame");
        assert!(!flow.path.is_empty(), "a flow passes a port");
        let known = |port: &PortId| port.0 < self.ports.len();
        assert!(flow.path.iter().all(known), "a path is of this network");
        self.flows.push(flow);
        FlowId(self.flows.len() - 1)
    }

    /// The ports, in the order in which they were added.
    pub fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// The flows, in the order in which they were added.
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// The port of this id.
    pub fn port(&self, id: PortId) -> &Port {
        &self.ports[id.0]
    }

    /// The longest frame.
    pub fn frame(&self) -> Bytes {
        self.frame
    }

    /// Whether a port feeds the next ones at no more than its rate.
    pub fn has_line_limit(&self) -> bool {
        self.line_limit
    }

    /// The bounds of all ports and flows, by total flow analysis, by separated flow analysis, and
    /// by servers behind each other as one.
    pub fn bounds(&self) -> Result<Bounds, NetworkError> {
        let order = order::feed_forward(self)?;
        self.check_stability()?;
        let total = total::analyse(self, &order)?;
        let mut flows = Vec::with_capacity(self.flows.len());
        let mut concatenation = Concatenation::new(self, &total);
        for (index, (flow, hops)) in self.flows.iter().zip(&total.hops).enumerate() {
            let bounds = separated::bounds(self, flow, hops);
            // A sum along a path overflows at no port in particular.
            let bounds = bounds.map_err(|source| self.overflow(flow.path[0], source))?;
            // Where its numbers grow too long, the bounds without it are bounds.
            let better = concatenation.improve(FlowId(index), &bounds);
            flows.push(better.unwrap_or(bounds));
        }
        Ok(Bounds {
            ports: total.ports,
            flows,
        })
    }

    fn check_stability(&self) -> Result<(), NetworkError> {
        let mut loads = vec![0_u128; self.ports.len()];
        for flow in &self.flows {
            for port in &flow.path {
                loads[port.0] += u128::from(flow.rate.0);
            }
        }
        for (index, (port, load)) in self.ports.iter().zip(loads).enumerate() {
            if let Some(excess) = load.checked_sub(u128::from(port.rate.0))
                && excess > 0
            {
                return Err(NetworkError::Unstable {
                    port: port.name.clone(),
                    id: PortId(index),
                    load,
                    rate: port.rate,
                    excess,
                });
            }
        }
        Ok(())
    }

    fn overflow(&self, id: PortId, source: Overflow) -> NetworkError {
        NetworkError::Overflow {
            port: self.port(id).name.clone(),
            id,
            source,
        }
    }
}

#[cfg(test)]
mod tests;
