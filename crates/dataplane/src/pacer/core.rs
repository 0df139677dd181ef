//! The guests, their lines, and the chain of buckets that their frames pass.

use super::chain::Chain;
use super::config::{PacerConfig, PacerError};
use super::guests::Guests;
use super::index::{GuestIndex, LineIndex};
use super::line::Line;
use super::lines::Lines;
use super::wire::Wire;
use crate::{Frame, HashKeys};
use tailbound_units::{Nanos, Position};

/// All state of guaranteed frames. Best effort and elastic flows are beside it.
#[derive(Debug)]
pub(super) struct Core<F> {
    pub(super) config: PacerConfig,
    pub(super) guests: Guests,
    pub(super) lines: Lines,
    pub(super) chain: Chain<F>,
}

impl<F: Frame> Core<F> {
    /// Creates a core without guests.
    ///
    /// # Errors
    /// The rule that the configuration breaks.
    pub(super) fn new(config: &PacerConfig, keys: HashKeys) -> Result<Self, PacerError> {
        Ok(Self {
            config: config.clone(),
            guests: Guests::new(config.memory),
            lines: Lines::new(keys),
            chain: Chain::new(Wire::new(config)?),
        })
    }

    /// Advances virtual time to `now`, and returns the position at which a frame may begin that
    /// comes now.
    #[inline(always)]
    pub(super) fn start_at(&mut self, now: Nanos) -> Position {
        self.chain.advance(now);
        self.chain.wire.start()
    }

    /// Adds a line without frames.
    pub(super) fn insert_line(&mut self, line: Line) -> LineIndex {
        let index = self.lines.insert(line);
        self.chain.releases.reserve(self.lines.count());
        self.chain.links.reserve(self.lines.count());
        index
    }

    /// Sets the condition that the first frame of a line waits for: see `Chain::set_head`.
    pub(super) fn set_head(&mut self, index: LineIndex, at: Position) {
        let line = self.lines.at_mut(index);
        let guest = self.guests.at_mut(line.guest);
        self.chain.set_head((guest, line), index, at);
    }

    /// Permits reading a guest's ring again when few of its frames wait for {B, S}.
    #[inline(never)]
    pub(super) fn read_again(&mut self, number: GuestIndex) {
        let lines = &self.lines;
        self.guests.read_again(number, |line| lines.at(line).memory);
    }
}
