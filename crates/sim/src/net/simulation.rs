//! The engine: nodes, the frames between them, and time.

use super::{NodeId, Time, TournamentQueue};
use tailbound_units::Bytes;

/// A frame on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Its flow, a number of the network's.
    pub flow: u32,
    /// Its number in the flow, from 0.
    pub number: u32,
    /// Its length, with all that goes over the wire.
    pub size: Bytes,
    /// 0 is served first; below [`super::CLASSES`].
    pub class: u8,
    /// When it came to the first queue.
    pub sent: Time,
    /// The node that it is handed to next, as a place in the simulation's routes.
    pub next: u32,
}

/// What nodes hand to each other: it knows its way.
pub trait Travels: Copy {
    /// The place in the simulation's routes of the node that it is handed to now; it goes on
    /// by one.
    fn step(&mut self) -> usize;
}

impl Travels for Frame {
    fn step(&mut self) -> usize {
        self.next += 1;
        self.next as usize - 1
    }
}

/// What takes part in a simulation: a sender, a port, a sink.
///
/// It has the shape of all mechanisms of the data path: time is an argument,
/// and `poll_at` says when to come back. So a host or a switch that runs them is
/// one more kind of node.
pub trait Node<F = Frame> {
    /// When it is to be polled next; [`Time::NEVER`] if only a frame can bring
    /// it to act. Asked again after every call of the other two.
    fn poll_at(&self) -> Time;

    /// Does what is due by `now`. Frames pushed to `out` go on along their route
    /// at once.
    fn poll(&mut self, now: Time, out: &mut Vec<F>);

    /// Takes a frame, all of which is here `now`.
    fn receive(&mut self, now: Time, frame: F, out: &mut Vec<F>);
}

/// Who looks on.
pub trait Observer<F = Frame> {
    /// A frame has come to a node, which stands in the routes one place before
    /// [`Frame::next`]. A node that is full may still lose it.
    fn arrives(&mut self, now: Time, node: NodeId, frame: &F);
}

/// Nobody looks on.
impl<F> Observer<F> for () {
    fn arrives(&mut self, _: Time, _: NodeId, _: &F) {}
}

/// A whole simulation: a value, which shares nothing with any other.
///
/// What happens at the same time happens in the order of the nodes, so the nodes
/// alone decide the outcome.
#[derive(Debug, Clone)]
pub struct Simulation<N, F = Frame> {
    nodes: Vec<N>,
    queue: TournamentQueue,
    /// All routes behind each other; frames point into it.
    routes: Vec<NodeId>,
    now: Time,
    events: u64,
    /// What is handed on right now; kept to save its memory.
    out: Vec<F>,
}

impl<N: Node<F>, F: Travels> Simulation<N, F> {
    /// A simulation at time 0. Frames' ways ([`Travels`]) are places in `routes`.
    pub fn new(nodes: Vec<N>, routes: Vec<NodeId>) -> Self {
        let mut queue = TournamentQueue::new(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            queue.set(NodeId(index as u32), node.poll_at());
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

    /// Goes on until nothing is due at or before `end`. A simulation whose nodes
    /// come to rest may run to [`Time::NEVER`].
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
            self.queue.set(id, node.poll_at());
            self.hand_on(observer);
        }
    }

    /// Gives each frame in `out` to the next node, whose frames come after it.
    fn hand_on(&mut self, observer: &mut impl Observer<F>) {
        let mut done = 0;
        while let Some(frame) = self.out.get_mut(done) {
            done += 1;
            let id = self.routes[frame.step()];
            let frame = *frame;
            observer.arrives(self.now, id, &frame);
            let node = &mut self.nodes[id.index()];
            node.receive(self.now, frame, &mut self.out);
            let next = node.poll_at();
            if next != self.queue.time_of(id) {
                self.queue.set(id, next);
            }
        }
        self.out.clear();
    }

    /// Changes a node from outside, at the time of the last event or later.
    pub fn change<R>(&mut self, id: NodeId, change: impl FnOnce(&mut N) -> R) -> R {
        let node = &mut self.nodes[id.index()];
        let result = change(node);
        self.queue.set(id, node.poll_at());
        result
    }

    /// The time of the last event.
    pub fn now(&self) -> Time {
        self.now
    }

    /// How often a node was polled.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The nodes, in their order.
    pub fn nodes(&self) -> &[N] {
        &self.nodes
    }
}
