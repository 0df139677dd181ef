//! Numbers that follow from a seed.

use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

/// The draws of a move.
#[derive(Debug, Clone)]
pub(crate) struct Random(Pcg64Mcg);

impl Random {
    /// The generator of one move, so that a move does not depend on what those before it drew.
    pub(crate) fn of_move(seed: u64, number: u64) -> Self {
        let seed = u128::from(seed) << 64 | u128::from(number);
        Self(Pcg64Mcg::from_seed(seed.to_le_bytes()))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `end`, which is not zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// A number that programs mistake: near zero, near a power of two, near the end, or any.
    pub(crate) fn word(&mut self) -> u64 {
        let near = self.below(5).wrapping_sub(2);
        match self.below(5) {
            0 => near,
            1 => (1_u64 << self.below(64)).wrapping_add(near),
            2 => self.next() >> self.below(64),
            3 => u64::MAX.wrapping_sub(self.below(5000)),
            _ => self.next(),
        }
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}
