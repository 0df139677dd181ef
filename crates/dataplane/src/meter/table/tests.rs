use super::*;
use crate::GuestId;
use proptest::prelude::*;

/// Uses a flow; returns its value, and the time since its last use.
fn touch<V: Copy, const GRAIN_BITS: u32>(
    table: &mut Table<V, GRAIN_BITS>,
    now: u64,
    key: FlowKey,
    fresh: V,
) -> (V, Nanos) {
    let touched = table.touch(Nanos(now), key, || fresh);
    let (found, first) = ((*touched.value, touched.since_last), touched.first);
    table.touched(Nanos(now), first);
    found
}

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
    fn the_flow_table_behaves_as_a_least_recently_used_list(
        capacity in 1usize..20,
        steps in prop::collection::vec((0u128..40, 1u64..5), 1..500),
    ) {
        let mut table = Table::<_, 0>::new(capacity, Nanos(20), HashKeys::random());
        let mut model: Vec<(u128, u64, u32)> = Vec::new();
        let (mut now, mut collected, mut evicted) = (0, 0, 0);
        for (serial, (destination, gap)) in steps.into_iter().enumerate() {
            now += gap;
            let fresh = serial as u32;
            let found = touch(&mut table, now, key(destination), fresh);
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

fn key_of(guest: u32, destination: u128) -> FlowKey {
    FlowKey {
        source: GuestId::first(guest),
        destination,
    }
}

/// 65,536 addresses of one guest once evicted the flows of all others.
#[test]
fn one_guest_with_many_flows_forgets_its_own_alone() {
    let mut table = Table::<_, 0>::new(64, Nanos::MAX, HashKeys::FIXED);
    table.share_among(4);
    for guest in 0..3 {
        for flow in 0..16 {
            touch(&mut table, 1, key_of(guest, flow), 'a');
        }
    }
    for flow in 0..65_536 {
        touch(&mut table, 2, key_of(3, flow), 'b');
    }
    let mut value = |guest, flow| touch(&mut table, 3, key_of(guest, flow), 'c').0;
    for guest in 0..3 {
        for flow in 0..16 {
            assert_eq!(value(guest, flow), 'a', "flow {flow} of guest {guest}");
        }
    }
    assert_eq!(value(3, 65_535), 'b');
    assert_eq!(value(3, 0), 'c');
}

/// A guest's flows, oldest first.
type Model = Vec<Vec<u128>>;

/// The flows that a full table may forget for one of `guest`'s, by the definition; of several
/// guests above their shares any may lose one.
fn victims(model: &Model, guest: usize, share: usize) -> Vec<(usize, u128)> {
    if model[guest].len() >= share {
        return vec![(guest, model[guest][0])];
    }
    let over = model
        .iter()
        .enumerate()
        .filter(|(_, flows)| flows.len() > share);
    over.map(|(guest, flows)| (guest, flows[0])).collect()
}

proptest! {
    /// For any use, and for any changes of the number of guests, no guest within its share loses a
    /// flow to another guest.
    #[test]
    fn a_guest_within_its_share_loses_no_flow_to_another(
        capacity in 4usize..30,
        steps in prop::collection::vec((0usize..4, 0u128..40, 0u8..40), 1..400),
    ) {
        let mut table = Table::<_, 0>::new(capacity, Nanos::MAX, HashKeys::FIXED);
        let mut model: Model = vec![Vec::new(); 4];
        let mut share = capacity / 4;
        table.share_among(4);
        for (at, (guest, flow, other)) in steps.into_iter().enumerate() {
            if other == 0 {
                let guests = 4 + at % 3;
                share = (capacity / guests).max(1);
                table.share_among(guests);
            }
            let full = table.len() == capacity;
            let known = model[guest].contains(&flow);
            touch(&mut table, at as u64, key_of(guest as u32, flow), ());
            if full && !known {
                // The remaining flows of each guest show the victim.
                let may = victims(&model, guest, share);
                let lost = may.iter().find(|(owner, _)| {
                    let left = table.owners[*owner].flows - usize::from(*owner == guest);
                    left < model[*owner].len()
                });
                let Some(&(owner, oldest)) = lost else {
                    return Err(TestCaseError::fail("a guest within its share lost a flow"));
                };
                model[owner].retain(|flow| *flow != oldest);
            }
            model[guest].retain(|known| *known != flow);
            model[guest].push(flow);
            for (owner, flows) in table.owners.iter().zip(&model) {
                prop_assert_eq!(owner.flows, flows.len());
                let mut slot = owner.order.oldest;
                for flow in flows {
                    prop_assert_eq!(table.slots[slot as usize].key().destination, *flow);
                    slot = table.own[slot as usize].newer;
                }
                prop_assert_eq!(slot, NIL);
            }
        }
    }
}

#[test]
fn within_a_grain_of_time_the_order_is_that_of_the_move() {
    // Grains of 16 ns.
    let mut table = Table::<_, 4>::new(2, Nanos::MAX, HashKeys::random());
    let mut touch = |at, flow, fresh| touch(&mut table, at, key(flow), fresh).0;
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
    assert_eq!(size_of::<Slot<super::super::Bucket>>(), 64);
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
fn the_flow_table_never_grows_after_its_creation() {
    let mut table = Table::<_, 0>::new(100, Nanos(50), HashKeys::random());
    let capacity = table.slots.capacity();
    for i in 0..10_000u32 {
        touch(&mut table, u64::from(i), key(u128::from(i)), i);
    }
    assert_eq!(table.slots.capacity(), capacity);
    assert!(table.slots.len() <= 100);
}

/// An evicted flow leaves its own hash chain, by both halves of its address.
#[test]
fn addresses_that_differ_in_their_first_bits_are_evicted_and_moved() {
    let addresses = [1 << 127, 1 << 126, 3 << 126].map(|upper: u128| upper | 5);
    let mut table = Table::<_, 0>::new(2, Nanos::MAX, HashKeys::FIXED);
    for (now, address) in (1..).zip(addresses) {
        touch(&mut table, now, key(address), now);
    }
    let mut moved = Table::<_, 0>::new(2, Nanos::MAX, HashKeys::FIXED);
    table.move_into(&mut moved);
    for table in [&mut table, &mut moved] {
        let mut value = |address| touch(table, 4, key(address), 9).0;
        assert_eq!([value(addresses[1]), value(addresses[2])], [2, 3]);
        assert_eq!(value(addresses[0]), 9);
    }
}
