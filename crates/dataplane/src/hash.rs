//! The hash of flows, stations and guests, with secret keys.

use crate::{Connection, FlowKey};
use std::hash::{BuildHasher, Hasher, RandomState};

/// The secret keys of a table of flows.
#[derive(Debug, Clone, Copy)]
pub struct HashKeys(pub(crate) [u64; 11]);

impl HashKeys {
    /// Digits of pi: the same in every run, for benchmarks that count instructions. A guest that
    /// knows the keys can choose destinations that collide.
    pub const FIXED: Self = Self([
        0x243f_6a88_85a3_08d3,
        0x1319_8a2e_0370_7344,
        0xa409_3822_299f_31d0,
        0x082e_fa98_ec4e_6c89,
        0x4528_21e6_38d0_1377,
        0xbe54_66cf_34e9_0c6c,
        0xc0ac_29b7_c97c_50dd,
        0x3f84_d5b5_b547_0917,
        0x9216_d5d9_8979_fb1b,
        0xd131_0ba6_98df_b5ac,
        0x2ffd_72db_d01a_dfb7,
    ]);

    /// Returns keys that no guest knows, from the standard library's random state.
    pub fn random() -> Self {
        let random = RandomState::new();
        Self(std::array::from_fn(|i| random.hash_one(i)))
    }
}

/// Multilinear hashing (Lemire and Kaser, "Strongly universal string hashing is fast", 2014; the
/// form with half the multiplications): 32-bit pieces are added to 64-bit secret keys, the sums are
/// multiplied in pairs, and the hash is the upper half of the total.
///
/// Any two different flows collide in a chain with the probability of a random function, over the
/// keys. A guest that does not know the keys cannot choose destinations that collide. (A slot has
/// one guest at a time; flows of earlier guests of the slot collide with its own to the same
/// destination until they are forgotten.) The keys change only the order inside the chains, so
/// results do not depend on them.
#[derive(Debug)]
pub(crate) struct MultilinearHash {
    /// For the source's slot and the lowest 32 bits of the destination.
    low: [u64; 2],
    /// For the upper 96 bits of the destination: added, and two pairs.
    high: [u64; 5],
    /// The sum over the upper 96 bits of every IPv4 address.
    ipv4: u64,
}

/// The bits of an IPv4-mapped address above its IPv4 address; those above are 0.
const IPV4: u64 = 0xffff;

impl MultilinearHash {
    pub(crate) fn new(HashKeys([a, b, rest @ ..]): HashKeys) -> Self {
        let mut hash = Self {
            low: [a, b],
            high: std::array::from_fn(|i| rest[i]),
            ipv4: 0,
        };
        hash.ipv4 = hash.of_high(0, IPV4);
        hash
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for every frame")]
    pub(crate) fn of(&self, key: FlowKey) -> u32 {
        let [upper, lower] = halves(key.destination);
        let low = pair((lower as u32, key.source.slot() as u32), self.low);
        let high = if upper == 0 && lower >> 32 == IPV4 {
            self.ipv4
        } else {
            self.of_high(upper, lower >> 32)
        };
        spread(high.wrapping_add(low))
    }

    fn of_high(&self, upper: u64, rest: u64) -> u64 {
        let [added, a, b, c, d] = self.high;
        added
            .wrapping_add(pair((upper as u32, (upper >> 32) as u32), [a, b]))
            .wrapping_add(pair((rest as u32, 0), [c, d]))
    }
}

/// Multilinear hashing of connections, whose keys have up to ten pieces.
///
/// Shorter keys count as padded with zeros; the first piece distinguishes the kinds of keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionHash {
    added: u64,
    keys: [[u64; 2]; 5],
    /// The sum over pieces that are 0, from each pair on.
    zeros: [u64; 6],
}

impl ConnectionHash {
    pub(crate) fn new(HashKeys([added, keys @ ..]): HashKeys) -> Self {
        let keys = std::array::from_fn(|i| [keys[2 * i], keys[2 * i + 1]]);
        let mut zeros = [0_u64; 6];
        for i in (0..5).rev() {
            zeros[i] = zeros[i + 1].wrapping_add(pair((0, 0), keys[i]));
        }
        Self { added, keys, zeros }
    }

    /// The hash of at most five pairs of pieces.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for every frame")]
    pub(crate) fn of<const N: usize>(&self, pieces: [(u32, u32); N]) -> Connection {
        const { assert!(N <= 5, "there are keys for five pairs") }
        let mut total = self.added.wrapping_add(self.zeros[N]);
        #[expect(
            clippy::needless_range_loop,
            reason = "the compiler unrolls it, and does not unroll an iterator over both"
        )]
        for at in 0..N {
            total = total.wrapping_add(pair(pieces[at], self.keys[at]));
        }
        Connection(spread(total))
    }
}

/// The golden ratio: multiplicative hashing (Knuth, 6.4).
const RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

/// Multilinear hashing of keys that are one number, for a hash map: MAC addresses, guests.
///
/// Any two numbers collide in a map with the probability of a random function, over the keys. Each
/// map has keys of its own by default.
#[derive(Debug, Clone, Copy)]
pub struct NumberHash {
    added: u64,
    keys: [u64; 2],
}

impl NumberHash {
    /// Creates the hash of these keys.
    pub const fn new(HashKeys([added, a, b, ..]): HashKeys) -> Self {
        Self {
            added,
            keys: [a, b],
        }
    }

    #[inline]
    fn of(self, number: u64) -> u64 {
        let pieces = (number as u32, (number >> 32) as u32);
        let upper = self.added.wrapping_add(pair(pieces, self.keys)) >> 32;
        // Numbers in a row are in a row under these keys, too, and a row can use few of the lowest
        // bits, by which a map takes a place. A bijection keeps the bound.
        let mixed = upper.wrapping_mul(RATIO);
        mixed ^ mixed >> 32
    }
}

impl Default for NumberHash {
    fn default() -> Self {
        Self::new(HashKeys::random())
    }
}

impl BuildHasher for NumberHash {
    type Hasher = NumberHasher;

    #[inline]
    fn build_hasher(&self) -> NumberHasher {
        NumberHasher {
            hash: *self,
            state: 0,
        }
    }
}

/// Hashes one number. Longer keys work, without a bound on their collisions.
#[derive(Debug)]
pub struct NumberHasher {
    hash: NumberHash,
    state: u64,
}

impl Hasher for NumberHasher {
    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.state = self.hash.of(self.state ^ number);
    }

    fn write(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(8) {
            let mut number = [0; 8];
            number[..piece.len()].copy_from_slice(piece);
            self.write_u64(u64::from_le_bytes(number));
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.state
    }
}

/// The upper half of a sum, with its lower bits changed by its upper ones.
///
/// Addresses in a row have hashes in a row, of which the lowest bits, the index of a chain, can
/// have few values: with one key of nine, a million peers had chains 13 times too long. This is a
/// bijection, so the probability of a collision stays.
#[inline]
const fn spread(total: u64) -> u32 {
    let upper = (total >> 32) as u32;
    upper ^ upper >> 16
}

#[inline]
fn pair(pieces: (u32, u32), keys: [u64; 2]) -> u64 {
    let first = keys[0].wrapping_add(pieces.0.into());
    first.wrapping_mul(keys[1].wrapping_add(pieces.1.into()))
}

/// The upper and the lower half of an address.
pub(crate) const fn halves(destination: u128) -> [u64; 2] {
    [(destination >> 64) as u64, destination as u64]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GuestId;
    use std::collections::HashSet;

    /// The mean length of the chains of these hashes, weighed by the members of each.
    fn mean_chain(hashes: impl ExactSizeIterator<Item = u32>) -> f64 {
        let len = hashes.len();
        let mut chains = vec![0_u32; len.next_power_of_two()];
        for hash in hashes {
            chains[hash as usize & (len.next_power_of_two() - 1)] += 1;
        }
        let squares: f64 = chains.iter().map(|n| f64::from(n * n)).sum();
        squares / len as f64
    }

    /// The keys of a generator (splitmix64) with this seed.
    fn seeded(seed: u64) -> HashKeys {
        let mut state = seed;
        HashKeys(std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        }))
    }

    /// The mean chains of peers in a row, by the hashes of connections and of flows.
    fn mean_chains(keys: HashKeys, shift: u32) -> [f64; 2] {
        let (connections, flows) = (ConnectionHash::new(keys), MultilinearHash::new(keys));
        let peers = (0..1_u32 << 14).map(|n| 0x0a00_0000_u32.wrapping_add(n << shift));
        let by_connection = peers.clone().map(|peer| {
            connections
                .of([(0x406, 0x0050_0009), (0x0a00_0001, peer)])
                .0
        });
        let by_flow = peers.map(|peer| {
            flows.of(FlowKey {
                source: GuestId::first(3),
                destination: u128::from(IPV4 << 32 | u64::from(peer)),
            })
        });
        [mean_chain(by_connection), mean_chain(by_flow)]
    }

    /// A mean chain is 2.0 for random hashes. A universal family bounds the mean over its keys, not
    /// each key: under some keys a row has few values.
    #[test]
    fn addresses_in_a_row_spread_over_chains() {
        for shift in [0, 8, 16] {
            let all = (0..100).map(|seed| mean_chains(seeded(seed), shift));
            let chains: Vec<f64> = all
                .chain([mean_chains(HashKeys::FIXED, shift)])
                .flatten()
                .collect();
            let mean = chains.iter().sum::<f64>() / chains.len() as f64;
            assert!(mean < 2.2, "{mean}");
        }
    }

    #[test]
    fn stations_spread_over_places_and_tags_under_any_keys() {
        for keys in [HashKeys::FIXED, HashKeys::random(), HashKeys::random()] {
            let hash = NumberHash::new(keys);
            // As a rack's, and the same in the other half of the number.
            for shift in [0, 16, 32] {
                let hashes = (0..4096_u64).map(|n| hash.hash_one(0x5254_0000_0000 ^ (n << shift)));
                let hashes: Vec<_> = hashes.collect();
                let places: HashSet<_> = hashes.iter().map(|hash| hash & 0xfff).collect();
                let tags: HashSet<_> = hashes.iter().map(|hash| hash >> 57).collect();
                // 63 % of the places, were they random.
                assert!(places.len() > 1800, "{} places", places.len());
                assert!(tags.len() > 60, "{} tags", tags.len());
            }
        }
    }

    #[test]
    fn other_keys_make_other_collisions() {
        let place = |hash: NumberHash, number: u64| hash.hash_one(number) & 0xff;
        let one = NumberHash::default();
        let colliding: Vec<_> = (0..100_000_u64).filter(|it| place(one, *it) == 0).collect();
        let other = NumberHash::default();
        let still = colliding
            .iter()
            .filter(|it| place(other, **it) == place(other, colliding[0]));
        assert!(still.count() < colliding.len() / 10);
    }
}
