use super::*;
use crate::GuestId;
use proptest::prelude::*;
use std::collections::HashSet;

fn key(destination: u128) -> FlowKey {
    FlowKey {
        source: GuestId(0),
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
        let mut table = Table::<_, 0>::new(capacity, Nanos(20));
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
    let mut table = Table::<_, 4>::new(2, Nanos::MAX);
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

#[test]
fn consecutive_addresses_spread_over_the_chains() {
    let table = Table::<u32, 0>::new(65_536, Nanos::MAX);
    for stride in [1u128, 1 << 16, 1 << 32, 1 << 64, 1 << 96] {
        let chains: HashSet<_> = (0..10_000u128)
            .map(|i| table.chain_of(key(i.wrapping_mul(stride))))
            .collect();
        // 10,000 in 131,072 at random fill 9,630; with any keys, far more than
        // half of that.
        assert!(chains.len() > 5_000, "{} at stride {stride}", chains.len());
    }
}

#[test]
fn nothing_is_allocated_after_the_table_was_made() {
    let mut table = Table::<_, 0>::new(100, Nanos(50));
    let capacity = table.slots.capacity();
    for i in 0..10_000u32 {
        table.touch(Nanos(u64::from(i)), key(u128::from(i)), i, |_, _| ());
    }
    assert_eq!(table.slots.capacity(), capacity);
    assert!(table.slots.len() <= 100);
}
