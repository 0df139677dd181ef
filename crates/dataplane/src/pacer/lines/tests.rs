use super::*;
use crate::GuestId;
use proptest::prelude::*;
use std::collections::BTreeMap;
use tailbound_units::exact::TokenBucket;
use tailbound_units::{Rate, WireBytes};

proptest! {
    #[test]
    fn the_paced_lines_behave_as_a_map(steps in proptest::collection::vec((0..4_u8, 0..4_u32, 0..40_u128), 1..600)) {
        let rate = Rate::from_mbit(1);
        let bucket = TokenBucket::on_wire(rate, rate, WireBytes(1538)).expect("sound");
        let (mut lines, mut used) = (Lines::new(HashKeys::random()), UsedLines::new());
        let change = RateChange::none(rate);
        let mut model = BTreeMap::new();
        let guest = |number: u32| GuestIndex::new(number as usize);
        let key = |source, destination| FlowKey { source: GuestId::first(source), destination };
        for (kind, source, destination) in steps {
            let flow = key(source, destination);
            let found = lines.find(flow);
            prop_assert_eq!(found, model.get(&(source, destination)).copied());
            match (kind, found) {
                (0, Some(index)) => {
                    lines.remove(index, &mut used);
                    model.remove(&(source, destination));
                }
                (1, Some(index)) => {
                    let limit = lines.limit_mut(index).expect("a limit");
                    limit.note(index, &mut used);
                },
                (2, _) => {
                    // Lines without a limit are no flow's.
                    lines.insert(Line::new(guest(source), 1, None));
                }
                (_, None) => {
                    let limit = Limit::new(flow, bucket, None, WireBytes::ZERO);
                    let index = lines.insert(Line::new(guest(source), 1, Some(limit)));
                    prop_assert!(model.values().all(|known| *known != index));
                    model.insert((source, destination), index);
                }
                _ => {
                    let mut flows = Vec::new();
                    lines.drain_used(&mut used, (Position::ZERO, &change), |used| flows.push(used.flow));
                    for flow in flows {
                        prop_assert!(model.contains_key(&(flow.source.slot() as u32, flow.destination)));
                    }
                }
            }
        }
        for source in 0..4 {
            for destination in 0..40 {
                let found = lines.find(key(source, destination));
                prop_assert_eq!(found, model.get(&(source, destination)).copied());
            }
        }
    }
}
