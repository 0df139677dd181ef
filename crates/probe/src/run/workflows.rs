//! Workflows to a group of nodes, at random moments, each timed from its due moment, over one open
//! connection to each node. One thread runs all of them.

use super::client::{connect, gap};
use crate::wire::Size;
use crate::workflow::{CALLS, Counts, Fault, FinishedWorkflow, Work, Workflows};
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use rustix::event::{PollFd, PollFlags, poll};
use serde::Serialize;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use tailbound_sys::timer;
use tailbound_units::Nanos;

/// Calls of workflows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Ten calls to one node at random, one after the other, for 1, 2 or 4 KB each.
    Sequential,
    /// One call to each node in parallel, for 2 KB.
    FanOut,
}

impl Pattern {
    /// Returns the name of the pattern.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::FanOut => "fan-out",
        }
    }

    /// Returns the number of calls of a workflow that are counted in its rate.
    pub(super) const fn calls(self) -> u32 {
        match self {
            Self::Sequential => CALLS as u32,
            Self::FanOut => 1,
        }
    }
}

/// The workflows of one run.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Calls of each workflow.
    pub pattern: Pattern,
    /// Mean time between the due times of two workflows.
    pub mean_gap: Nanos,
    /// Time in which workflows are begun.
    pub duration: Nanos,
    /// Seed of all random moments, nodes and sizes.
    pub seed: u64,
}

/// Result of a run of workflows.
#[derive(Debug)]
pub struct LoadResult {
    /// Counts of workflows, and of those without an answer.
    pub counts: Counts,
    /// Nodes that were given up, with the reason.
    pub given_up: Vec<(usize, Fault)>,
}

/// Returns `count` of the nodes, at random.
pub(super) fn draw(nodes: &[String], count: usize, seed: u64) -> Vec<String> {
    let mut drawn = nodes.to_vec();
    drawn.shuffle(&mut Pcg64Mcg::seed_from_u64(seed));
    drawn.truncate(count);
    drawn
}

/// The connection to a node, and what it has no room for yet.
struct Peer {
    stream: TcpStream,
    unsent: Vec<u8>,
}

/// Runs workflows to these nodes, and calls `record` with each that was answered. A node that
/// cannot be reached counts as given up.
///
/// # Errors
/// The kernel refuses to poll the connections.
pub fn run(
    nodes: &[String],
    load: Load,
    record: &mut dyn FnMut(FinishedWorkflow),
) -> io::Result<LoadResult> {
    let mut random = Pcg64Mcg::seed_from_u64(load.seed);
    let tokens: Vec<u64> = nodes.iter().map(|_| random.random()).collect();
    let mut workflows = Workflows::new(&tokens);
    let mut peers = connect_all(nodes, &mut workflows);
    // Without it workflows begin up to 50 us later, which is charged to this side.
    let _ = timer::set_least_slack();
    let mut buffer = vec![0; 1 << 16];
    let start = timer::now();
    let end = start.saturating_add(load.duration);
    let mut due = start.saturating_add(gap(load.mean_gap, &mut random));
    loop {
        let mut now = timer::now();
        while due < end && due <= now {
            workflows.begin(now, due, work(load.pattern, nodes.len(), &mut random));
            send(&mut peers, &mut workflows);
            due = due.saturating_add(gap(load.mean_gap, &mut random));
            now = timer::now();
        }
        workflows.poll(now);
        if due >= end && workflows.is_idle() {
            break;
        }
        let next = workflows.poll_at().into_iter();
        let next = next.chain((due < end).then_some(due)).min();
        let ready = wait(&peers, &workflows, next.map(|next| next.since(now)))?;
        for node in ready {
            receive(&mut peers, node, &mut workflows, &mut buffer);
        }
        send(&mut peers, &mut workflows);
        workflows.drain_answered().for_each(&mut *record);
    }
    let fault = |node| workflows.fault(node).map(|fault| (node, fault.clone()));
    Ok(LoadResult {
        counts: workflows.counts(),
        given_up: (0..nodes.len()).filter_map(fault).collect(),
    })
}

fn work(pattern: Pattern, nodes: usize, random: &mut Pcg64Mcg) -> Work {
    match pattern {
        Pattern::FanOut => Work::FanOut,
        Pattern::Sequential => Work::Sequential {
            node: random.random_range(0..nodes),
            sizes: std::array::from_fn(|_| *Size::ALL.choose(random).unwrap_or(&Size::Middle)),
        },
    }
}

/// Connects to all nodes in parallel.
fn connect_all(nodes: &[String], workflows: &mut Workflows) -> Vec<Option<Peer>> {
    let open = |node: &str| -> io::Result<Peer> {
        let stream = connect(node)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let unsent = Vec::new();
        Ok(Peer { stream, unsent })
    };
    let peers: Vec<io::Result<Peer>> = std::thread::scope(|scope| {
        let start = |node| std::thread::Builder::new().spawn_scoped(scope, move || open(node));
        let started: Vec<_> = nodes.iter().map(|node| start(node.as_str())).collect();
        let ended = started.into_iter().map(|thread| match thread?.join() {
            Ok(peer) => peer,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ended.collect()
    });
    let peers = peers.into_iter().enumerate();
    let peers = peers.map(|(node, peer)| {
        let refused = |error| {
            let why = format!("cannot be reached: {error}");
            workflows.give_up(node, Fault::Connection(why));
        };
        peer.map_err(refused).ok()
    });
    peers.collect()
}

/// Waits until a node can be read from or written to, at most so long; returns which.
fn wait(
    peers: &[Option<Peer>],
    workflows: &Workflows,
    time: Option<Nanos>,
) -> io::Result<Vec<usize>> {
    let mut places = Vec::with_capacity(peers.len());
    let mut sockets = Vec::with_capacity(peers.len());
    for (node, peer) in peers.iter().enumerate() {
        if let (Some(peer), None) = (peer, workflows.fault(node)) {
            let mut wanted = PollFlags::IN;
            wanted.set(PollFlags::OUT, !peer.unsent.is_empty());
            places.push(node);
            sockets.push(PollFd::new(&peer.stream, wanted));
        }
    }
    let time = time.map(timer::timespec);
    match poll(&mut sockets, time.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let ready = places.into_iter().zip(&sockets);
    let ready = ready.filter(|(_, socket)| !socket.revents().is_empty());
    Ok(ready.map(|(node, _)| node).collect())
}

/// Reads once; remaining bytes cause another event.
fn receive(peers: &mut [Option<Peer>], node: usize, workflows: &mut Workflows, buffer: &mut [u8]) {
    let Some(peer) = &mut peers[node] else {
        return;
    };
    match peer.stream.read(buffer) {
        Ok(0) => workflows.give_up(node, broken(&io::ErrorKind::BrokenPipe.into())),
        Ok(length) => workflows.received(timer::now(), node, &buffer[..length]),
        Err(error) if is_later(&error) => {}
        Err(error) => workflows.give_up(node, broken(&error)),
    }
}

/// Returns the fault of a broken connection.
fn broken(error: &io::Error) -> Fault {
    let closed = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
    Fault::Connection(if closed.contains(&error.kind()) {
        "the node closed the connection".into()
    } else {
        error.to_string()
    })
}

/// Sends all that there is room for.
fn send(peers: &mut [Option<Peer>], workflows: &mut Workflows) {
    for call in workflows.drain_calls() {
        if let Some(peer) = &mut peers[call.node] {
            peer.unsent.extend_from_slice(&call.bytes);
        }
    }
    for (node, peer) in peers.iter_mut().enumerate() {
        let Some(peer) = peer.as_mut().filter(|peer| !peer.unsent.is_empty()) else {
            continue;
        };
        match peer.stream.write(&peer.unsent) {
            Ok(length) => drop(peer.unsent.drain(..length)),
            Err(error) if is_later(&error) => {}
            Err(error) => {
                peer.unsent.clear();
                workflows.give_up(node, broken(&error));
            }
        }
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
