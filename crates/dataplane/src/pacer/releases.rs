//! Lines that wait for their limit, by the release of their first frames.
//!
//! Lines wait in a [`Wheel`]. The wheel is up to a batch ahead of the wire after frames to guests
//! of this host were passed on, or lines were released whose guests wait for {B, S}. Lines that are
//! added later with an earlier release wait in a heap, so that no release is late.

use super::index::LineIndex;
use super::wheel::Wheel;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tailbound_units::Position;

/// Lines in the order of their releases. The module describes it.
#[derive(Debug)]
pub(super) struct Releases {
    wheel: Wheel<LineIndex>,
    /// Lines that are released before all in the wheel.
    early: BinaryHeap<Reverse<(Position, LineIndex)>>,
    /// The first release; the end of time without lines.
    first: Position,
}

impl Releases {
    pub(super) fn new() -> Self {
        Self {
            wheel: Wheel::new(),
            early: BinaryHeap::new(),
            first: Position::NEVER,
        }
    }

    /// Makes room for all lines below `count`.
    pub(super) fn reserve(&mut self, count: usize) {
        self.wheel.reserve(count);
    }

    /// The first release; the end of time if no line waits.
    #[inline(always)]
    pub(super) const fn first(&self) -> Position {
        self.first
    }

    /// The line with the first release; `None` if no line waits.
    pub(super) fn first_line(&self) -> Option<LineIndex> {
        let in_wheel = || (!self.wheel.is_empty()).then(|| self.wheel.first_number());
        let early = self.early.peek();
        early.map_or_else(in_wheel, |Reverse((_, line))| Some(*line))
    }

    /// Adds a line that does not wait, and for which there is room, until `release`. Lines that are
    /// added later are not released before `at`.
    #[inline(always)]
    pub(super) fn insert(&mut self, line: LineIndex, release: Position, at: Position) {
        if self.wheel.is_empty() {
            self.wheel.start_from(at);
        }
        if release < self.wheel.position() {
            return self.insert_early(line, release);
        }
        self.wheel.insert(line, release);
        self.first = self.first.min(release);
    }

    #[inline(never)]
    fn insert_early(&mut self, line: LineIndex, release: Position) {
        self.early.push(Reverse((release, line)));
        self.first = self.first.min(release);
    }

    /// Removes and returns the line with the first release. There must be one.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> LineIndex {
        if !self.early.is_empty() {
            return self.pop_early();
        }
        let line = self.wheel.pop();
        self.first = self.wheel.first();
        line
    }

    #[inline(never)]
    fn pop_early(&mut self) -> LineIndex {
        let line = self.early.pop().map(|Reverse((_, line))| line);
        self.find_first();
        line.unwrap_or_else(|| unreachable!("one was there"))
    }

    /// Removes a waiting line with any release.
    pub(super) fn remove(&mut self, line: LineIndex) {
        let before = self.early.len();
        self.early.retain(|Reverse((_, known))| *known != line);
        if self.early.len() == before {
            self.wheel.remove(line);
        }
        self.find_first();
    }

    fn find_first(&mut self) {
        let early = self.early.peek();
        self.first = early.map_or_else(|| self.wheel.first(), |Reverse((release, _))| *release);
    }
}
