//! The flows of all sources: their queues' state, found by source and hash.

use super::NIL;
use super::frames::Waiting;
use crate::GuestId;
use crate::queue::codel::Control;
use crate::queue::turns::{TakesTurns, Turn};

/// Frames of a guest's connections of one bucket, or of outside senders of one.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) waiting: Waiting,
    pub(super) control: Control,
    turn: Turn,
    key: Key,
    /// The next flow in its chain.
    chain: u32,
}

/// Key of a flow: never the same for two guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) source: Option<GuestId>,
    pub(super) bucket: u32,
}

impl Key {
    #[inline]
    fn chain(self) -> u32 {
        // The bucket is evenly distributed within each source; a guest contributes its slot, which
        // is the lower half of its number.
        let source = self.source.map_or(0, |guest| guest.get().get());
        self.bucket ^ (source as u32).wrapping_mul(0x9e37_79b9)
    }
}

impl TakesTurns for Flow {
    #[inline]
    fn turn(&self) -> &Turn {
        &self.turn
    }
    #[inline]
    fn turn_mut(&mut self) -> &mut Turn {
        &mut self.turn
    }
}

/// A table of flows in chains by hash. An idle flow stays, with the state of its control loop,
/// until its room is needed. Flows never far outnumber frames.
#[derive(Debug)]
pub(super) struct Flows {
    pub(super) all: Vec<Flow>,
    /// The first flow of each chain: the number of chains is a power of two, and at least that of
    /// flows.
    chains: Vec<u32>,
    /// Idle flows stay while there are at most this many flows.
    kept: usize,
    /// Position at which the search for an idle flow continues.
    hand: usize,
}

/// Number of flows that are searched for an idle one before a new one is added.
const SEARCH: usize = 8;

impl Flows {
    pub(super) fn new(kept: usize) -> Self {
        Self {
            all: Vec::new(),
            chains: vec![NIL],
            kept,
            hand: 0,
        }
    }

    /// Finds a flow, or adds it.
    #[inline]
    pub(super) fn find(&mut self, key: Key) -> u32 {
        let mut index = self.chains[self.place(key)];
        loop {
            match self.all.get(index as usize) {
                Some(flow) if flow.key == key => return index,
                Some(flow) => index = flow.chain,
                None => return self.add(key),
            }
        }
    }

    #[inline]
    fn place(&self, key: Key) -> usize {
        key.chain() as usize & (self.chains.len() - 1)
    }

    #[cold]
    fn add(&mut self, key: Key) -> u32 {
        let flow = Flow {
            waiting: Waiting::NONE,
            control: Control::NEW,
            turn: Turn::NONE,
            key,
            chain: NIL,
        };
        let idle = self.idle();
        let index = idle.unwrap_or(self.all.len());
        if idle.is_some() {
            self.unlink(index as u32);
            self.all[index] = flow;
        } else {
            self.all.push(flow);
            if self.all.len() > self.chains.len() {
                self.double_chains();
                return index as u32;
            }
        }
        self.link(index as u32);
        index as u32
    }

    /// Returns a flow that can be forgotten, if there are more flows than necessary.
    fn idle(&mut self) -> Option<usize> {
        if self.all.len() < self.kept {
            return None;
        }
        (0..SEARCH).find_map(|_| {
            self.hand = (self.hand + 1) % self.all.len();
            let flow = &self.all[self.hand];
            (!flow.turn.active).then_some(self.hand)
        })
    }

    fn link(&mut self, index: u32) {
        let place = self.place(self.all[index as usize].key);
        self.all[index as usize].chain = self.chains[place];
        self.chains[place] = index;
    }

    fn unlink(&mut self, index: u32) {
        let Flow { key, chain, .. } = self.all[index as usize];
        let place = self.place(key);
        if self.chains[place] == index {
            self.chains[place] = chain;
            return;
        }
        let mut before = self.chains[place];
        while let Some(flow) = self.all.get_mut(before as usize) {
            if flow.chain == index {
                flow.chain = chain;
                return;
            }
            before = flow.chain;
        }
    }

    fn double_chains(&mut self) {
        self.chains = vec![NIL; 2 * self.chains.len()];
        for index in 0..self.all.len() as u32 {
            self.link(index);
        }
    }
}
