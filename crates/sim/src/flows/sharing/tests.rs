use super::*;
use proptest::prelude::*;

/// Water-filling from a textbook: all rates rise together until a link is full; its flows keep
/// their rates, the others rise further.
fn brute_force(capacities: &[f64], flows: &[(Vec<LinkId>, u32)]) -> Vec<f64> {
    let mut rates = vec![None; flows.len()];
    let on = |link: usize, way: &[LinkId]| way.contains(&(link as u32));
    while rates.iter().any(Option::is_none) {
        let shares = (0..capacities.len()).filter_map(|link| {
            let (mut left, mut open) = (capacities[link], 0_u32);
            for ((way, count), rate) in flows.iter().zip(&rates) {
                match rate {
                    _ if !on(link, way) => {}
                    Some(rate) => left -= rate * f64::from(*count),
                    None => open += count,
                }
            }
            (open > 0).then(|| (left / f64::from(open), link))
        });
        let least = shares.min_by(|one, other| one.0.total_cmp(&other.0));
        let (share, link) = least.expect("each flow has a link");
        for ((way, _), rate) in flows.iter().zip(&mut rates) {
            if rate.is_none() && on(link, way) {
                *rate = Some(share);
            }
        }
    }
    rates.into_iter().flatten().collect()
}

fn network(capacities: &[f64]) -> Sharing {
    let mut sharing = Sharing::default();
    for capacity in capacities {
        sharing.open_link(*capacity);
    }
    sharing
}

fn is_close(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-6 * other.abs()
}

#[derive(Debug, Clone)]
enum Change {
    Come(Vec<LinkId>, u32),
    Go(prop::sample::Index),
}

fn changes(links: usize) -> impl Strategy<Value = Vec<Vec<Change>>> {
    let all: Vec<LinkId> = (0..links as u32).collect();
    let way = prop::sample::subsequence(all, 1..=links.min(4));
    let change = prop_oneof![
        3 => (way, 1..4_u32).prop_map(|(way, count)| Change::Come(way, count)),
        2 => any::<prop::sample::Index>().prop_map(Change::Go),
    ];
    // Several simultaneous changes, many times.
    prop::collection::vec(prop::collection::vec(change, 1..4), 1..40)
}

fn networks() -> impl Strategy<Value = (Vec<f64>, Vec<Vec<Change>>)> {
    // Few different capacities, so that many links are full at the same rate.
    let capacity = (1..6_u32).prop_map(f64::from);
    let capacities = prop::collection::vec(capacity, 1..9);
    capacities.prop_flat_map(|capacities| {
        let changes = changes(capacities.len());
        (Just(capacities), changes)
    })
}

proptest! {
    #[test]
    fn rates_equal_water_filling_after_any_flow_changes((capacities, moments) in networks()) {
        let mut sharing = network(&capacities);
        let mut here: Vec<(FlowId, (Vec<LinkId>, u32))> = Vec::new();
        for moment in moments {
            for change in moment {
                match change {
                    Change::Come(way, count) => {
                        here.push((sharing.add(&way, count), (way, count)));
                    }
                    Change::Go(which) if !here.is_empty() => {
                        sharing.update();
                        let (id, _) = here.swap_remove(which.index(here.len()));
                        sharing.remove(id);
                    }
                    Change::Go(_) => {}
                }
            }
            let before: Vec<f64> = here.iter().map(|(id, _)| sharing.rate(*id)).collect();
            let changed = sharing.update().to_vec();
            let flows: Vec<_> = here.iter().map(|(_, flow)| flow.clone()).collect();
            let right = brute_force(&capacities, &flows);
            let mut anew = network(&capacities);
            let ids: Vec<FlowId> = flows.iter().map(|(way, count)| anew.add(way, *count)).collect();
            anew.update();
            for (place, (id, _)) in here.iter().enumerate() {
                let rate = sharing.rate(*id);
                prop_assert!(is_close(rate, right[place]), "{rate} of {}", right[place]);
                let scratch = anew.rate(ids[place]);
                prop_assert!(is_close(rate, scratch), "{rate}, from nothing {scratch}");
                let is_told = changed.contains(id);
                let is_other = before[place].to_bits() != rate.to_bits();
                prop_assert_eq!(is_told, is_other);
            }
        }
    }
}

#[test]
fn flows_that_share_no_link_with_a_change_keep_their_rates() {
    // Two racks of two hosts, as links: flows without common links are not visited.
    let mut sharing = network(&[1.0; 4]);
    let near = sharing.add(&[0, 1], 1);
    let far = sharing.add(&[2, 3], 2);
    sharing.update();
    assert_eq!(sharing.reached(), 2);
    let second = sharing.add(&[1], 1);
    assert_eq!(sharing.update(), [second, near]);
    assert_eq!(sharing.reached(), 2);
    assert!(is_close(sharing.rate(near), 0.5));
    assert!(is_close(sharing.rate(far), 0.5));
    sharing.remove(second);
    assert_eq!(sharing.update(), [near]);
    assert!(is_close(sharing.rate(near), 1.0));
}

#[test]
fn bottlenecked_flows_leave_spare_bandwidth_to_others() {
    let mut sharing = network(&[10.0, 2.0]);
    let slow = sharing.add(&[0, 1], 2);
    let fast = sharing.add(&[0], 1);
    sharing.update();
    assert!(is_close(sharing.rate(slow), 1.0));
    assert!(is_close(sharing.rate(fast), 8.0));
}
