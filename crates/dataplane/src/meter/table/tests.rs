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
    /// Against a plain list in the order of last use.
    #[test]
    fn it_is_a_list_in_the_order_of_last_use(
        capacity in 1usize..20,
        steps in prop::collection::vec((0u128..40, 1u64..5, any::<bool>()), 1..500),
    ) {
        let mut table = Table::new(capacity, 0);
        let mut model: Vec<(u128, u64, u32)> = Vec::new();
        let mut now = 0;
        for (serial, (destination, gap, collect)) in steps.into_iter().enumerate() {
            now += gap;
            if collect {
                let before = table.collected as usize;
                table.collect(Nanos(now), Nanos(20), 2);
                let collected = table.collected as usize - before;
                let idle = model.iter().take_while(|m| now - m.1 >= 20).count().min(2);
                prop_assert_eq!(collected, idle);
                model.drain(..idle);
            }
            let fresh = serial as u32;
            let evicted = table.evicted;
            let (value_found, since_last) = table.touch(Nanos(now), key(destination), fresh);
            let value_found = *value_found;
            let evicted = table.evicted - evicted;
            let known = model.iter().position(|m| m.0 == destination);
            let (value, last) = if let Some(at) = known {
                let (_, last, value) = model.remove(at);
                (value, last)
            } else {
                prop_assert_eq!(evicted == 1, model.len() == capacity);
                if model.len() == capacity {
                    model.remove(0);
                }
                (fresh, now)
            };
            prop_assert_eq!(value_found, value);
            prop_assert_eq!(since_last, Nanos(now - last));
            model.push((destination, now, value));
            prop_assert_eq!(table.len(), model.len());
        }
    }
}

#[test]
fn within_a_grain_of_time_the_order_is_that_of_the_move() {
    // Grains of 16 ns.
    let mut table = Table::new(2, 4);
    table.touch(Nanos(0), key(1), 'a');
    table.touch(Nanos(1), key(2), 'b');
    table.touch(Nanos(15), key(1), 'a');
    // Flow 1 did not move, so it goes, though flow 2 was used before.
    table.touch(Nanos(15), key(3), 'c');
    assert_eq!(*table.touch(Nanos(16), key(2), 'd').0, 'b');
    // Flow 2 moved, so flow 3 goes.
    table.touch(Nanos(17), key(4), 'e');
    assert_eq!(*table.touch(Nanos(18), key(2), 'd').0, 'b');
    assert_eq!(table.evicted, 2);
}

#[test]
fn a_slot_is_a_cache_line() {
    assert_eq!(size_of::<Slot<[u64; 2]>>(), 64);
}

#[test]
fn consecutive_addresses_spread_over_the_chains() {
    let table: Table<u32> = Table::new(65_536, 0);
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
    let mut table = Table::new(100, 0);
    let capacity = table.slots.capacity();
    for i in 0..10_000u32 {
        table.touch(Nanos(u64::from(i)), key(u128::from(i)), i);
        table.collect(Nanos(u64::from(i)), Nanos(50), 2);
    }
    assert_eq!(table.slots.capacity(), capacity);
    assert!(table.slots.len() <= 100);
}
