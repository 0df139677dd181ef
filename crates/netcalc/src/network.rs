//! Bounds for every flow of a feed-forward network of FIFO queues.
//!
//! [`Network`] is the model, [`NetworkFile`] reads one from a file. `order` finds the order of
//! computation, or the cycle that excludes one. `total` is total flow analysis, `separated`
//! separated flow analysis, and `concatenated` treats ports behind each other as one server.

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
    /// Returns the position in [`Network::ports`].
    pub const fn index(self) -> usize {
        self.0
    }
}

/// A flow of a [`Network`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(usize);

/// An output port: a queue and the link behind it.
///
/// The lowest number is the highest priority. A frame is never preempted. Within a priority the
/// queue is FIFO.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its name, unique in the network.
    pub name: String,
    /// The link's rate; above zero.
    pub rate: Rate,
    /// Longest wait of a frame while the link is idle.
    pub latency: Nanos,
    /// Capacity of the queue. No bound depends on it, but all bounds assume that no frame is lost.
    pub buffer: Option<Bytes>,
}

/// The traffic of a sender, and its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// Its name, unique in the network.
    pub name: String,
    /// The ports that it passes, in order.
    pub path: Vec<PortId>,
    /// Its average rate; above zero.
    pub rate: Rate,
    /// Burst, sent instantly or at the burst rate; at least a frame.
    pub burst: Bytes,
    /// Rate of a burst; instant by default.
    pub burst_rate: Option<Rate>,
    /// Priority; 0 is the highest.
    pub priority: u8,
    /// Permitted end-to-end delay; no bound depends on it.
    pub deadline: Option<Nanos>,
}

impl Flow {
    /// Returns the arrival curve, in whole frames.
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
    /// Backlog in nanobits, waiting and in service. A buffer of this size loses no frame.
    pub backlog: Ratio,
    /// Priorities with flows, the highest first.
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
    /// Sum of the average rates, in bits a second.
    pub load: Ratio,
    /// Delay from the arrival of a frame's last bit to its departure, in nanoseconds.
    pub delay: Ratio,
    /// Backlog in nanobits, waiting and in service.
    pub backlog: Ratio,
}

/// The bounds of a flow, from its first port to its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowBounds {
    /// Delay by total flow analysis: the sum over its ports, in nanoseconds.
    pub total_delay: Ratio,
    /// The flow's data in the network with that delay, in nanobits.
    pub total_backlog: Ratio,
    /// Delay by separated flow analysis, in nanoseconds.
    pub separated_delay: Ratio,
    /// The flow's data in the network by separated flow analysis, in nanobits.
    pub separated_backlog: Ratio,
    /// Least delay of both analyses and of concatenated servers, where cross traffic is counted
    /// once, in nanoseconds.
    pub concatenated_delay: Ratio,
    /// The flow's data in the network by the same analysis, in nanobits.
    pub concatenated_backlog: Ratio,
}

impl FlowBounds {
    /// Returns the least delay. All delays are bounds, so the least is a bound.
    pub fn delay(&self) -> Ratio {
        let before = self.total_delay.min(self.separated_delay);
        before.min(self.concatenated_delay)
    }

    /// Returns the least backlog. All backlogs are bounds, so the least is a bound.
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

/// Reason why a network has no bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// Ports feed each other in a cycle. The analyses follow the order of the traffic, which a
    /// cycle does not have.
    #[error(
        "the flows' paths make a cycle: {}; bounds exist here for feed-forward networks only, so \
         route flow {flow:?} another way", chain(.ports)
    )]
    Cycle {
        /// The ports in order; the last one feeds the first.
        ports: Vec<String>,
        /// A flow on an edge of the cycle.
        flow: String,
        /// The same flow.
        id: FlowId,
    },
    /// The load of a port exceeds its rate, so its queue grows without limit.
    #[error(
        "port {port:?} is not stable: flows of {load} bit/s in all come to a link of {rate}, \
         {excess} bit/s too many; set a higher rate or fewer flows"
    )]
    Unstable {
        /// The port's name.
        port: String,
        /// The port.
        id: PortId,
        /// Sum of the flows' average rates, in bits a second.
        load: u128,
        /// The link's rate.
        rate: Rate,
        /// Excess load, in bits a second.
        excess: u128,
    },
    /// The numbers overflow.
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

/// Returns `a -> b -> a`, shortened if it is long.
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
    /// `frame` is the longest frame. Switches store a frame before they forward it; with a frame of
    /// zero bytes traffic is a fluid, as in textbooks. With `line_limit` a port never sends faster
    /// than its rate, which bounds the traffic to the next port. Without it, a rate is only a
    /// guarantee.
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

    /// Returns the port of this id.
    pub fn port(&self, id: PortId) -> &Port {
        &self.ports[id.0]
    }

    /// The longest frame.
    pub fn frame(&self) -> Bytes {
        self.frame
    }

    /// Returns whether a port's rate bounds its output.
    pub fn has_line_limit(&self) -> bool {
        self.line_limit
    }

    /// Returns the bounds of all ports and flows, by total flow analysis, separated flow analysis,
    /// and concatenated servers.
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
