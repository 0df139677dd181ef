use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use tailbound_units::{Rate, WireBytes};

proptest! {
    #[test]
    fn it_is_a_map(steps in proptest::collection::vec((0..8_u8, 0..4_u32, 0..40_u128), 1..600)) {
        let rate = Rate::from_mbit(1);
        let bucket = TokenBucket::on_wire(rate, rate, WireBytes(1538)).expect("sound");
        let mut limits = Limits::new(HashKeys::random());
        let mut model = BTreeMap::new();
        for (moment, (kind, source, destination)) in (1..).map(Position).zip(steps) {
            let key = FlowKey { source: GuestId::first(source), destination };
            match (kind, limits.get_mut(key)) {
                (0, _) => {
                    let of_guest = |(guest, _): &(u32, u128), last: &mut Position| (*guest == source).then_some(*last);
                    let last = model.iter_mut().filter_map(|(key, last)| of_guest(key, last)).max();
                    prop_assert_eq!(limits.remove_all(key.source), last.unwrap_or(Position::ZERO));
                    model.retain(|(guest, _), _| *guest != source);
                }
                (1, _) => {
                    prop_assert_eq!(limits.remove(key), model.remove(&(source, destination)));
                }
                (_, Some(limit)) => {
                    prop_assert_eq!(model.insert((source, destination), moment), Some(limit.last_release));
                    limit.last_release = moment;
                }
                (_, None) => {
                    prop_assert_eq!(model.insert((source, destination), moment), None);
                    limits.insert(key, bucket, moment, None);
                }
            }
        }
        for source in 0..4 {
            for destination in 0..40 {
                let key = FlowKey { source: GuestId::first(source), destination };
                let limit = limits.get_mut(key).map(|limit| limit.last_release);
                prop_assert_eq!(limit, model.get(&(source, destination)).copied());
            }
        }
    }
}
