//! Numbers that follow from a seed.

/// A generator of the kind `SplitMix64`.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// The generator of one move, so that a move does not depend on what those before it drew.
    pub(crate) fn of_move(seed: u64, number: u64) -> Self {
        let mut random = Self(seed ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93));
        random.next();
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
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
