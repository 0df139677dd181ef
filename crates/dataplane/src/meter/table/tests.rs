use super::*;
use crate::GuestId;
use proptest::prelude::*;

fn key(destination: u128) -> FlowKey {
    FlowKey {
        source: GuestId::first(0),
        destination,
    }
}

proptest! {
    /// Against a plain list in the order of last use. With grains of 1 ns every use
    /// is the first in its grain.
    #[test]
    fn it_is_a_list_in_the_order_of_last_use(
        capacity in 1usize..20,
        steps in prop::collection::vec((0u128..40, 1u64..5), 1..500),
    ) {
        let mut table = Table::<_, 0>::new(capacity, Nanos(20), HashKeys::random());
        let mut model: Vec<(u128, u64, u32)> = Vec::new();
        let (mut now, mut collected, mut evicted) = (0, 0, 0);
        for (serial, (destination, gap)) in steps.into_iter().enumerate() {
            now += gap;
            let fresh = serial as u32;
            let found = table.touch(Nanos(now), key(destination), fresh, |v, t| (*v, t));
            let known = model.iter().position(|m| m.0 == destination);
            let mut expected = (fresh, Nanos::ZERO);
            if let Some(at) = known {
                expected = (model[at].2, Nanos(now - model[at].1));
                model[at].1 = now;
            }
            let idle = model.iter().take_while(|m| now - m.1 >= 20).count().min(2);
            model.drain(..idle);
            collected += idle as u64;
            if let Some(at) = model.iter().position(|m| m.0 == destination) {
                model.remove(at);
            } else if model.len() == capacity {
                model.remove(0);
                evicted += 1;
            }
            model.push((destination, now, expected.0));
            prop_assert_eq!(found, expected);
            prop_assert_eq!(table.len(), model.len());
            prop_assert_eq!((table.collected, table.evicted), (collected, evicted));
        }
    }
}

#[test]
fn within_a_grain_of_time_the_order_is_that_of_the_move() {
    // Grains of 16 ns.
    let mut table = Table::<_, 4>::new(2, Nanos::MAX, HashKeys::random());
    let mut touch = |at, flow, fresh| table.touch(Nanos(at), key(flow), fresh, |v, _| *v);
    touch(0, 1, 'a');
    touch(1, 2, 'b');
    touch(15, 1, 'c');
    // Flow 1 did not move, so it goes, though flow 2 was used before.
    touch(15, 3, 'd');
    assert_eq!(touch(16, 2, 'e'), 'b');
    // Flow 2 moved, so flow 3 goes.
    touch(17, 4, 'f');
    assert_eq!(touch(18, 2, 'g'), 'b');
    assert_eq!(table.evicted, 2);
}

#[test]
fn a_slot_is_a_cache_line() {
    assert_eq!(size_of::<Slot<[u64; 2]>>(), 64);
}

/// Any two addresses meet as rarely as at random, over the keys: the definition of
/// a universal hash, for the patterns that addresses have.
#[test]
fn addresses_meet_in_a_chain_no_more_often_than_at_random() {
    const BITS: u32 = 10;
    let mut seed = 1u64;
    let mut random = || {
        // The finalizer of SplitMix64 over a counter.
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    };
    for stride in [1u128, 1 << 16, 1 << 31, 1 << 32, 1 << 64, 1 << 96, 1 << 127] {
        let (mut pairs, mut met) = (0, 0);
        for _ in 0..2000 {
            let hash = MultilinearHash::new(HashKeys(std::array::from_fn(|_| random())));
            let chain = |i: u128| hash.of(key(0xffff_0a00_0000 ^ i.wrapping_mul(stride)));
            for i in 1..30 {
                pairs += 1;
                met += u32::from((chain(0) ^ chain(i)).trailing_zeros() >= BITS);
            }
        }
        // Of those where the addresses differ at all; one in 1024 is expected.
        let expected = pairs >> BITS;
        let same = u32::from(stride == 1 << 127) * pairs / 2;
        assert!(
            met < 2 * expected + same,
            "{met} of {pairs} at stride {stride}"
        );
    }
}

#[test]
fn nothing_is_allocated_after_the_table_was_made() {
    let mut table = Table::<_, 0>::new(100, Nanos(50), HashKeys::random());
    let capacity = table.slots.capacity();
    for i in 0..10_000u32 {
        table.touch(Nanos(u64::from(i)), key(u128::from(i)), i, |_, _| ());
    }
    assert_eq!(table.slots.capacity(), capacity);
    assert!(table.slots.len() <= 100);
}
