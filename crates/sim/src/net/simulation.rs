//! The engine: nodes, the frames between them, and time.

use super::{NodeId, Time, TournamentQueue};
use tailbound_units::Bytes;

/// A frame in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Number of its flow in the network.
    pub flow: u32,
    /// Its number in the flow, from 0.
    pub number: u32,
    /// Its length on the wire, including all overhead.
    pub size: Bytes,
    /// Priority, below [`super::CLASSES`]; 0 is served first.
    pub class: u8,
    /// Time of its arrival at the first queue.
    pub sent: Time,
    /// The node that receives it next, as a position in the simulation's routes.
    pub next: u32,
}

/// A packet between nodes, which carries its route.
pub trait Travels: Copy {
    /// Returns the position of the receiving node in the simulation's routes, and advances it by
    /// one.
    fn step(&mut self) -> usize;
}

impl Travels for Frame {
    fn step(&mut self) -> usize {
        self.next += 1;
        self.next as usize - 1
    }
}

/// A component of a simulation: a sender, a port, a sink.
///
/// A node has the same interface as all mechanisms of the data path: time is an argument, and
/// `poll_at` returns the time of the next call. A host or a switch that runs them is therefore one
/// more kind of node.
pub trait Node<F = Frame> {
    /// Returns the time of the next poll; [`Time::NEVER`] if the node waits for a frame. The engine
    /// calls it again after each call of the other two methods.
    fn poll_at(&self) -> Time;

    /// Rank of the event at [`Node::poll_at`] among simultaneous ones; the lower one is first.
    fn rank(&self) -> u32 {
        0
    }

    /// Handles the events that are due by `now`. Frames pushed to `out` are delivered to the next
    /// node of their route immediately.
    fn poll(&mut self, now: Time, out: &mut Vec<F>);

    /// Receives a frame, whose last bit arrives `now`.
    fn receive(&mut self, now: Time, frame: F, out: &mut Vec<F>);
}

/// Observer of a simulation.
pub trait Observer<F = Frame> {
    /// Handles the arrival of a frame at a node, whose position in the routes is one before
    /// [`Frame::next`]. A full node may still drop it.
    fn arrives(&mut self, now: Time, node: NodeId, frame: &F);
}

/// Ignores all arrivals.
impl<F> Observer<F> for () {
    fn arrives(&mut self, _: Time, _: NodeId, _: &F) {}
}

/// A whole simulation: a value that shares nothing with other simulations.
///
/// Simultaneous events are handled in the order of their ranks ([`Node::rank`]), then of the nodes,
/// so the nodes alone determine the outcome.
#[derive(Debug, Clone)]
pub struct Simulation<N, F = Frame> {
    nodes: Vec<N>,
    queue: TournamentQueue,
    /// All routes, concatenated; frames have positions in it.
    routes: Vec<NodeId>,
    now: Time,
    events: u64,
    /// Frames that are delivered now; kept to save its memory.
    out: Vec<F>,
}

impl<N: Node<F>, F: Travels> Simulation<N, F> {
    /// Returns a simulation at time 0. Frames' paths ([`Travels`]) are positions in `routes`.
    pub fn new(nodes: Vec<N>, routes: Vec<NodeId>) -> Self {
        let mut queue = TournamentQueue::new(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            queue.set_ranked(NodeId(index as u32), node.poll_at(), node.rank());
        }
        Self {
            nodes,
            queue,
            routes,
            now: Time::ZERO,
            events: 0,
            out: Vec::new(),
        }
    }

    /// Runs until no event is due at or before `end`. A simulation whose nodes come to rest may run
    /// to [`Time::NEVER`].
    pub fn run(&mut self, end: Time, observer: &mut impl Observer<F>) {
        loop {
            let (time, id) = self.queue.first();
            if time > end || time == Time::NEVER {
                break;
            }
            self.now = time;
            self.events += 1;
            let node = &mut self.nodes[id.index()];
            node.poll(time, &mut self.out);
            self.queue.set_ranked(id, node.poll_at(), node.rank());
            self.hand_on(observer);
        }
    }

    /// Delivers each frame in `out` to its next node, whose frames are delivered after it.
    fn hand_on(&mut self, observer: &mut impl Observer<F>) {
        let mut done = 0;
        while let Some(frame) = self.out.get_mut(done) {
            done += 1;
            let id = self.routes[frame.step()];
            let frame = *frame;
            observer.arrives(self.now, id, &frame);
            let node = &mut self.nodes[id.index()];
            node.receive(self.now, frame, &mut self.out);
            let (next, rank) = (node.poll_at(), node.rank());
            if !self.queue.has(id, next, rank) {
                self.queue.set_ranked(id, next, rank);
            }
        }
        self.out.clear();
    }

    /// Changes a node from outside, at the time of the last event or later.
    pub fn change<R>(&mut self, id: NodeId, change: impl FnOnce(&mut N) -> R) -> R {
        let node = &mut self.nodes[id.index()];
        let result = change(node);
        self.queue.set_ranked(id, node.poll_at(), node.rank());
        result
    }

    /// Returns the time of the last event.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Number of polls of nodes.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Returns the nodes, in their order.
    pub fn nodes(&self) -> &[N] {
        &self.nodes
    }
}
