//! Sources of traffic: each guest, and the outside.

use super::NIL;
use crate::GuestId;
use crate::queue::turns::{TakesTurns, Turn, Turns};

/// A guest, or the outside, and its flows' turns.
#[derive(Debug)]
pub(super) struct Source {
    guest: Option<GuestId>,
    /// Memory of its frames.
    pub(super) memory: u64,
    turn: Turn,
    /// Its flows.
    pub(super) flows: Turns,
}

impl Source {
    const fn new(guest: Option<GuestId>) -> Self {
        Self {
            guest,
            memory: 0,
            turn: Turn::NONE,
            flows: Turns::NONE,
        }
    }
}

impl TakesTurns for Source {
    #[inline]
    fn turn(&self) -> &Turn {
        &self.turn
    }
    #[inline]
    fn turn_mut(&mut self) -> &mut Turn {
        &mut self.turn
    }
}

/// All sources so far; the outside is the first. A guest's slot is the key of its source; a source
/// whose slot belongs to another guest is reused after its last frame has left.
#[derive(Debug)]
pub(super) struct Sources {
    pub(super) all: Vec<Source>,
    by_slot: Vec<u32>,
    unused: Vec<u32>,
}

const OUTSIDE: u32 = 0;

impl Sources {
    pub(super) fn new() -> Self {
        Self {
            all: vec![Source::new(None)],
            by_slot: Vec::new(),
            unused: Vec::new(),
        }
    }

    /// Finds a source, or adds it.
    #[inline]
    pub(super) fn find(&mut self, guest: Option<GuestId>) -> u32 {
        let Some(id) = guest else { return OUTSIDE };
        let index = self.by_slot.get(id.slot()).copied().unwrap_or(NIL);
        match self.all.get(index as usize) {
            Some(source) if source.guest == guest => index,
            _ => self.add(id),
        }
    }

    #[cold]
    fn add(&mut self, guest: GuestId) -> u32 {
        let slot = guest.slot();
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot + 1, NIL);
        }
        let fresh = Source::new(Some(guest));
        let former = self.by_slot[slot];
        let idle = |source: &&mut Source| !source.turn.active;
        if let Some(source) = self.all.get_mut(former as usize).filter(idle) {
            *source = fresh;
            return former;
        }
        let index = self.unused.pop().unwrap_or(self.all.len() as u32);
        match self.all.get_mut(index as usize) {
            Some(unused) => *unused = fresh,
            None => self.all.push(fresh),
        }
        self.by_slot[slot] = index;
        index
    }

    /// Ends the turn of a source without frames. The source is reused if its slot belongs to
    /// another guest.
    #[inline(never)]
    pub(super) fn end_turn(&mut self, turns: &mut Turns, index: u32) {
        turns.end(&mut self.all, index);
        self.note_end(index);
    }

    /// Notes that a source may be idle: it is reused if its slot belongs to another guest.
    #[inline]
    pub(super) fn note_end(&mut self, index: u32) {
        let source = &self.all[index as usize];
        if let Some(guest) = source.guest
            && !source.turn.active
            && self.by_slot[guest.slot()] != index
        {
            self.unused.push(index);
        }
    }
}
