//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).

/// The one's complement sum of `bytes`, folded to 16 bits and not inverted.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    // The sum is the same in any byte order (RFC 1071, 2 B), so words are added as they lie in
    // memory, eight bytes at a time, each with the carry of the one before (RFC 1071, 2 C), and
    // swapped once at the end.
    let mut total = Total::default();
    // Each step costs two instructions for a word and nine for the loop and its carry.
    let (steps, rest) = bytes.as_chunks::<256>();
    for step in steps {
        total.add_all(step);
    }
    let (steps, rest) = rest.as_chunks::<64>();
    for step in steps {
        total.add_all(step);
    }
    let (words, rest) = rest.as_chunks();
    for word in words {
        total.add(*word);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        total.add(last);
    }
    // The last carry may itself carry.
    let (low, carry) = total.sum.carrying_add(0, total.carry);
    u16::from_be(fold_words(low + u64::from(carry)))
}

/// A sum of words, and the carry that goes into the next.
#[derive(Default)]
struct Total {
    sum: u64,
    carry: bool,
}

impl Total {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "one chain of additions with carry")]
    fn add_all(&mut self, bytes: &[u8]) {
        let (words, _) = bytes.as_chunks();
        for word in words {
            self.add(*word);
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for eight bytes")]
    fn add(&mut self, word: [u8; 8]) {
        (self.sum, self.carry) = self.sum.carrying_add(u64::from_ne_bytes(word), self.carry);
    }
}

/// Folds a sum of 32-bit words, each of which is two of 16 bits.
#[inline]
pub(crate) const fn fold_words(total: u64) -> u16 {
    let (sum, carry) = (total as u32).overflowing_add((total >> 32) as u32);
    fold(sum + carry as u32)
}

/// Adds the carries of a sum of 16-bit words back into it.
#[inline]
pub(crate) const fn fold(total: u32) -> u16 {
    // Both halves of the result are the sum of both halves of `total`, and the carry of the lower
    // one goes into the upper one.
    (total.wrapping_add(total.rotate_left(16)) >> 16) as u16
}

/// The checksum after one 16-bit word under it changed from `old` to `new`
/// (RFC 1624, equation 3: HC' = ~(~HC + ~m + m')).
///
/// In one's complement `~m + m'` is the difference, and a carry or borrow comes
/// back in at the lower end.
pub(crate) const fn update(checksum: u16, old: u16, new: u16) -> u16 {
    let (difference, borrow) = new.overflowing_sub(old);
    let difference = difference.wrapping_sub(borrow as u16);
    let (total, carry) = (!checksum).overflowing_add(difference);
    !total.wrapping_add(carry as u16)
}

/// The sum of a pseudo-header (RFC 9293, 3.1; RFC 8200, 8.1) without the length.
///
/// `addresses` is source and destination in the order of the IP header.
pub(crate) fn pseudo_header(addresses: &[u8], protocol: u8) -> u32 {
    u32::from(sum(addresses)) + u32::from(protocol)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::frames::plain_sum;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_rfc_1071_sums_to_ddf2() {
        assert_eq!(
            sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]),
            0xddf2
        );
    }

    #[test]
    fn an_update_of_nothing_changes_nothing() {
        assert_eq!(update(0, 5, 5), 0);
        assert_eq!(update(0xffff, 5, 5), 0xffff);
    }

    #[test]
    fn the_example_of_rfc_1624_gives_zero() {
        // Section 4: HC = 0xdd2f, m = 0x5555, m' = 0x3285.
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    proptest! {
        #[test]
        fn the_sum_is_the_plain_sum(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert_eq!(sum(&bytes), plain_sum(&bytes, 0));
        }

        #[test]
        fn an_update_equals_a_new_sum(
            mut bytes in prop::collection::vec(any::<u8>(), 20..60),
            new in any::<u16>(),
        ) {
            bytes[0] = 0x45; // an IPv4 header is never all zero
            bytes.truncate(bytes.len() & !1);
            let old = u16::from_be_bytes([bytes[2], bytes[3]]);
            let before = !sum(&bytes);
            bytes[2..4].copy_from_slice(&new.to_be_bytes());
            prop_assert_eq!(update(before, old, new), !sum(&bytes));
        }
    }
}
