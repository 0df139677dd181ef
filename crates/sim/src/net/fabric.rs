//! Networks of senders and ports: a description as data, and its run.

use super::{
    Frame, Node, NodeId, Observer, Port, PortConfig, PortStats, Simulation, Source, SourceConfig,
    Time,
};
use tailbound_units::Bytes;

/// A flow: its sender, and its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowConfig {
    /// The sender.
    pub source: SourceConfig,
    /// The ports that it passes, as positions in [`Fabric::ports`].
    pub path: Vec<usize>,
}

/// A network as data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fabric {
    /// Ports of the network.
    pub ports: Vec<PortConfig>,
    /// Flows of the network. Frames sent at the same instant are ordered by flow.
    pub flows: Vec<FlowConfig>,
}

/// Statistics of a flow's frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowStats {
    /// Number of frames that arrived.
    pub frames: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// Longest time of a frame, from its arrival at the first port until its last bit arrived at
    /// the sink.
    pub longest: Time,
    /// Number of the first frame with that time.
    pub slowest: u32,
    /// Number of frames that overtook one of the same flow: zero, if queues are FIFOs.
    pub overtook: u64,
    last: Option<u32>,
}

impl FlowStats {
    fn take(&mut self, now: Time, frame: &Frame) {
        let took = now.since(frame.sent);
        if self.frames == 0 || took > self.longest {
            self.longest = took;
            self.slowest = frame.number;
        }
        self.frames += 1;
        self.bytes += frame.size;
        self.overtook += u64::from(self.last.is_some_and(|last| last > frame.number));
        self.last = Some(frame.number);
    }
}

/// Receiver of all frames.
#[derive(Debug, Clone, Default)]
pub struct Sink {
    flows: Vec<FlowStats>,
}

impl Node for Sink {
    fn poll_at(&self) -> Time {
        Time::NEVER
    }

    fn poll(&mut self, _: Time, _: &mut Vec<Frame>) {}

    fn receive(&mut self, now: Time, frame: Frame, _: &mut Vec<Frame>) {
        self.flows[frame.flow as usize].take(now, &frame);
    }
}

/// The kinds of nodes of a [`FabricRun`].
#[derive(Debug, Clone)]
enum Element {
    Source(Box<Source>),
    Port(Box<Port>),
    Sink(Sink),
}

impl Node for Element {
    fn poll_at(&self) -> Time {
        match self {
            Self::Source(source) => source.poll_at(),
            Self::Port(port) => port.poll_at(),
            Self::Sink(sink) => sink.poll_at(),
        }
    }

    fn poll(&mut self, now: Time, out: &mut Vec<Frame>) {
        match self {
            Self::Source(source) => source.poll(now, out),
            Self::Port(port) => port.poll(now, out),
            Self::Sink(sink) => sink.poll(now, out),
        }
    }

    fn receive(&mut self, now: Time, frame: Frame, out: &mut Vec<Frame>) {
        match self {
            Self::Source(source) => source.receive(now, frame, out),
            Self::Port(port) => port.receive(now, frame, out),
            Self::Sink(sink) => sink.receive(now, frame, out),
        }
    }
}

/// A network during a run. Its nodes are the flows' senders, then the ports, then one sink.
#[derive(Debug, Clone)]
pub struct FabricRun {
    simulation: Simulation<Element>,
    flows: usize,
    ports: usize,
}

impl Fabric {
    /// Starts the network at time 0. Random decisions follow from `seed`.
    ///
    /// # Panics
    /// A path has a port that does not exist, a rate is zero, a class is unknown or a burst is
    /// shorter than a frame.
    pub fn start(&self, seed: u64) -> FabricRun {
        let (flows, ports) = (self.flows.len(), self.ports.len());
        let sink = NodeId((flows + ports) as u32);
        let mut routes = Vec::new();
        let mut nodes = Vec::with_capacity(flows + ports + 1);
        for (index, flow) in self.flows.iter().enumerate() {
            assert!(
                usize::from(flow.source.class) < super::CLASSES,
                "the class is known"
            );
            let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index as u64;
            let source = Source::new(flow.source, index as u32, routes.len() as u32, seed);
            nodes.push(Element::Source(Box::new(source)));
            for &port in &flow.path {
                assert!(port < ports, "a path is of this network");
                routes.push(NodeId((flows + port) as u32));
            }
            routes.push(sink);
        }
        let all_ports = self.ports.iter();
        nodes.extend(all_ports.map(|port| Element::Port(Box::new(Port::new(*port)))));
        nodes.push(Element::Sink(Sink {
            flows: vec![FlowStats::default(); flows],
        }));
        FabricRun {
            simulation: Simulation::new(nodes, routes),
            flows,
            ports,
        }
    }
}

impl FabricRun {
    /// Runs until no event is due at or before `end`; with [`Time::NEVER`], until every sender has
    /// stopped and every frame has arrived.
    pub fn run(&mut self, end: Time, observer: &mut impl Observer) {
        self.simulation.run(end, observer);
    }

    /// Statistics of each flow's frames.
    pub fn flows(&self) -> &[FlowStats] {
        match self.simulation.nodes().last() {
            Some(Element::Sink(sink)) => &sink.flows,
            _ => &[],
        }
    }

    /// Statistics of each port.
    pub fn ports(&self) -> impl Iterator<Item = &PortStats> {
        let nodes = &self.simulation.nodes()[self.flows..self.flows + self.ports];
        nodes.iter().filter_map(|node| match node {
            Element::Port(port) => Some(port.stats()),
            _ => None,
        })
    }

    /// Number of frames that each sender has sent.
    pub fn sent(&self) -> impl Iterator<Item = u32> {
        let nodes = &self.simulation.nodes()[..self.flows];
        nodes.iter().filter_map(|node| match node {
            Element::Source(source) => Some(source.sent()),
            _ => None,
        })
    }

    /// Number of events.
    pub fn events(&self) -> u64 {
        self.simulation.events()
    }
}
