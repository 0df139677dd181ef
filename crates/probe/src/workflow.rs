//! Workflows of several calls (Bobtail, 5.2 and 5.3): ten calls in sequence to one node, or one
//! call to each node in parallel, of which the slowest counts.
//!
//! [`Workflows`] has the state of all open workflows. The caller passes received answers with their
//! time, and gets the next messages. A workflow is timed from its due moment, even if earlier ones
//! are open (open loop).
//!
//! Nodes are not trusted. A node with a wrong answer, or no answer within [`ANSWER`], is given up:
//! the workflows that call it count as lost. A workflow without all answers in that time has timed
//! out. So a node cannot increase the memory, and a run ends at most [`ANSWER`] after the start of
//! its last workflow.

use crate::network::ANSWER;
use crate::wire::{HEADER, Header, Kind, REQUEST, Size, WireError};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use tailbound_units::Nanos;

/// Number of calls of a sequential workflow.
pub const CALLS: usize = 10;
/// Numbers of nodes of one client in the paper.
pub const GROUPS: [usize; 3] = [10, 20, 40];

/// Calls of a workflow. Nodes are identified by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// One node, one call after the other, for answers of these sizes.
    Sequential {
        /// Index of the node.
        node: usize,
        /// Size of the answer to each call.
        sizes: [Size; CALLS],
    },
    /// One call to each node in parallel, for 2 KB from each.
    FanOut,
}

/// Counts of workflows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Workflows that were due.
    pub workflows: u64,
    /// Workflows whose first call was sent late, by at least half of their duration.
    pub ours: u64,
    /// Workflows without all of their answers within 5 s.
    pub timed_out: u64,
    /// Workflows that called a node that was given up, or could not be reached.
    pub lost: u64,
}

impl Counts {
    /// Returns how many were answered, of those that have ended.
    pub const fn answered(&self) -> u64 {
        let unanswered = self.timed_out.saturating_add(self.lost);
        self.workflows.saturating_sub(unanswered)
    }
}

/// Reason why a node was given up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The node does not speak the protocol.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// Its answer has the number, the token or the size of another call.
    #[error("the answer is to another call")]
    OtherCall,
    /// The node sent bytes after the answers to all calls.
    #[error("the node answers more than it was asked")]
    Unasked,
    /// An answer is missing for 5 s.
    #[error("no answer for 5 s")]
    Silent,
    /// The connection could not be made, or broke.
    #[error("{0}")]
    Connection(String),
}

/// A call to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Index of the receiving node.
    pub node: usize,
    /// Bytes of the call.
    pub bytes: [u8; HEADER + REQUEST],
}

/// A workflow that has all of its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinishedWorkflow {
    /// Due time of the workflow.
    pub due: Nanos,
    /// The time from then to its last answer.
    pub took: Nanos,
}

/// A workflow under way.
#[derive(Debug)]
struct Flow {
    due: Nanos,
    begun: Nanos,
    /// The calls that have no answer yet.
    open: usize,
    /// The calls of a sequence that are still to be made, the last one first.
    rest: Vec<Size>,
}

/// A call that has no answer yet.
#[derive(Debug)]
struct PendingCall {
    flow: u64,
    header: Header,
    since: Nanos,
}

/// The connection to a node.
#[derive(Debug)]
struct Line {
    token: u64,
    made: u64,
    owed: VecDeque<PendingCall>,
    /// The header of the answer that is coming.
    head: [u8; HEADER],
    /// Number of received bytes of that answer.
    have: usize,
    fault: Option<Fault>,
}

/// The workflows to a group of nodes.
#[derive(Debug)]
pub struct Workflows {
    lines: Vec<Line>,
    /// Under way, in the order in which they began.
    flows: BTreeMap<u64, Flow>,
    counts: Counts,
    answered: Vec<FinishedWorkflow>,
    calls: Vec<Call>,
}

impl Workflows {
    /// Returns the state of workflows to as many nodes as there are tokens; a node's answers have
    /// to repeat its token.
    pub fn new(tokens: &[u64]) -> Self {
        let line = |token: &u64| Line {
            token: *token,
            made: 0,
            owed: VecDeque::new(),
            head: [0; HEADER],
            have: 0,
            fault: None,
        };
        Self {
            lines: tokens.iter().map(line).collect(),
            flows: BTreeMap::new(),
            counts: Counts::default(),
            answered: Vec::new(),
            calls: Vec::new(),
        }
    }

    /// Begins a workflow that was due at that moment.
    pub fn begin(&mut self, now: Nanos, due: Nanos, work: Work) {
        let flow = self.counts.workflows;
        self.counts.workflows += 1;
        let lost = match work {
            Work::Sequential { node, .. } => self.lines[node].fault.is_some(),
            Work::FanOut => self.lines.iter().any(|line| line.fault.is_some()),
        };
        if lost {
            self.counts.lost += 1;
        } else {
            let (open, rest) = match work {
                Work::Sequential { sizes, .. } => (1, sizes[1..].iter().rev().copied().collect()),
                Work::FanOut => (self.lines.len(), Vec::new()),
            };
            let begun = Flow {
                due,
                begun: now,
                open,
                rest,
            };
            self.flows.insert(flow, begun);
        }
        match work {
            Work::Sequential { node, sizes } => self.call(now, node, flow, sizes[0]),
            // The others are called all the same, so that their load does not depend on it.
            Work::FanOut => {
                (0..self.lines.len()).for_each(|node| self.call(now, node, flow, Size::Middle));
            }
        }
    }

    fn call(&mut self, now: Nanos, node: usize, flow: u64, size: Size) {
        let line = &mut self.lines[node];
        if line.fault.is_some() {
            return;
        }
        let header = Header {
            kind: Kind::Request(size),
            number: line.made,
            token: line.token,
        };
        line.made += 1;
        let answer = Header {
            kind: Kind::Response(size),
            ..header
        };
        line.owed.push_back(PendingCall {
            flow,
            header: answer,
            since: now,
        });
        let bytes = header.call();
        self.calls.push(Call { node, bytes });
    }

    /// Handles bytes from a node that was not given up.
    pub fn received(&mut self, now: Nanos, node: usize, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.lines[node].fault.is_none() {
            match self.lines[node].take(&mut bytes) {
                Ok(None) => {}
                Ok(Some(flow)) => self.answered(now, node, flow),
                Err(fault) => self.give_up(node, fault),
            }
        }
    }

    fn answered(&mut self, now: Nanos, node: usize, number: u64) {
        // A workflow that has timed out is gone.
        let Some(flow) = self.flows.get_mut(&number) else {
            return;
        };
        if let Some(size) = flow.rest.pop() {
            self.call(now, node, number, size);
            return;
        }
        flow.open -= 1;
        if flow.open > 0 {
            return;
        }
        let took = now.since(flow.due);
        let lag = flow.begun.since(flow.due).as_nanos();
        self.counts.ours += u64::from(lag >= took.as_nanos().div_ceil(2));
        let due = flow.due;
        self.answered.push(FinishedWorkflow { due, took });
        self.flows.remove(&number);
    }

    /// Gives up a node. The first reason is kept.
    pub fn give_up(&mut self, node: usize, fault: Fault) {
        let line = &mut self.lines[node];
        line.fault.get_or_insert(fault);
        for owed in line.owed.drain(..) {
            self.counts.lost += u64::from(self.flows.remove(&owed.flow).is_some());
        }
    }

    /// Ends what has waited for too long.
    pub fn poll(&mut self, now: Nanos) {
        let overdue = |since: Nanos| now.since(since) >= ANSWER;
        while let Some(first) = self.flows.first_entry()
            && overdue(first.get().begun)
        {
            first.remove();
            self.counts.timed_out += 1;
        }
        for node in 0..self.lines.len() {
            let owed = self.lines[node].owed.front();
            if owed.is_some_and(|owed| overdue(owed.since)) {
                self.give_up(node, Fault::Silent);
            }
        }
    }

    /// Returns when [`Self::poll`] has something to do, if nothing comes before.
    pub fn poll_at(&self) -> Option<Nanos> {
        let flows = self.flows.values().take(1).map(|flow| flow.begun);
        let lines = self.lines.iter().filter_map(|line| line.owed.front());
        let first = flows.chain(lines.map(|owed| owed.since)).min()?;
        Some(first.saturating_add(ANSWER))
    }

    /// Returns whether no workflow is in progress.
    pub fn is_idle(&self) -> bool {
        self.flows.is_empty()
    }

    /// Returns the calls to send, and clears them.
    pub fn drain_calls(&mut self) -> impl Iterator<Item = Call> {
        self.calls.drain(..)
    }

    /// Returns the workflows that were answered since, and forgets them.
    pub fn drain_answered(&mut self) -> impl Iterator<Item = FinishedWorkflow> {
        self.answered.drain(..)
    }

    /// Returns the counts so far.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns why a node was given up; `None` while it was not.
    pub fn fault(&self, node: usize) -> Option<&Fault> {
        self.lines[node].fault.as_ref()
    }
}

impl Line {
    /// Handles bytes of the incoming answer; returns its workflow once it is complete.
    fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<u64>, Fault> {
        let owed = self.owed.front().ok_or(Fault::Unasked)?;
        let whole = HEADER + owed.header.kind.payload();
        let until = if self.have < HEADER { HEADER } else { whole };
        let (taken, rest) = bytes.split_at(bytes.len().min(until - self.have));
        if self.have < HEADER {
            self.head[self.have..self.have + taken.len()].copy_from_slice(taken);
        }
        self.have += taken.len();
        *bytes = rest;
        if self.have == HEADER && Header::decode(&self.head)? != owed.header {
            return Err(Fault::OtherCall);
        }
        if self.have < whole {
            return Ok(None);
        }
        self.have = 0;
        Ok(self.owed.pop_front().map(|owed| owed.flow))
    }
}

#[cfg(test)]
mod tests;
