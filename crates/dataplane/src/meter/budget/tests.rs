use super::*;
use crate::meter::Meter;
use crate::{FlowKey, HashKeys};
use proptest::prelude::*;

const START: Nanos = Nanos::from_secs(5);
const LINK: Rate = Rate::from_mbit(1000);

fn meter(config: MeterConfig, guests: usize) -> Meter {
    let mut meter = Meter::with_keys(&config, HashKeys::FIXED);
    meter.set_guests(guests);
    meter
}

fn on_link() -> MeterConfig {
    MeterConfig {
        link: Some(LINK),
        ..MeterConfig::default()
    }
}

fn key(guest: u32, destination: u32) -> FlowKey {
    FlowKey {
        source: GuestId::first(guest),
        destination: 0xffff_0a00_0000 + u128::from(destination),
    }
}

#[test]
fn a_budget_is_an_even_part_of_a_quarter_of_the_link() {
    let of = |guests| on_link().share(guests).guest;
    assert_eq!(of(0), Some(Rate::from_mbit(250)));
    assert_eq!(of(1), Some(Rate::from_mbit(250)));
    assert_eq!(of(8), Some(Rate(31_250_000)));
    assert_eq!(of(25), Some(Rate::from_mbit(10)));
    assert_eq!(of(500), Some(Rate(500_000)));
    let own = |guests| on_link().share(guests).own;
    assert_eq!(own(8), Some(Rate(31_250_000)));
    assert_eq!(own(500), Some(Rate(500_000)));
    let given = MeterConfig {
        budget: Some(Rate::from_mbit(3)),
        ..on_link()
    };
    assert_eq!(given.share(8).guest, Some(Rate::from_mbit(3)));
    assert_eq!(given.share(8).own, Some(Rate::from_mbit(3)));
    assert_eq!(given.share(100).own, Some(Rate(2_500_000)));
    assert_eq!(given.share(8).all, Some(Rate::from_mbit(250)));
    let unknown = MeterConfig::default().share(8);
    assert_eq!((unknown.guest, unknown.all), (None, None));
}

/// Sends 192 Mbit/s of 1,200 B frames of one guest in turn to this number of addresses, for two
/// seconds beside another guest's small flow. Returns the part that was of small flows, and whether
/// the other's flow stayed small.
fn spread_over(addresses: u32) -> (f64, bool) {
    let mut meter = meter(on_link(), 8);
    let (mut small, mut other) = (0, 0);
    for n in 0..40_000 {
        let now = START + Nanos(u64::from(n) * 50_000);
        let is_small = meter.is_of_small_flow(now, key(0, n % addresses), 1200);
        small += u32::from(is_small);
        if n % 40 == 0 {
            let is_small = meter.is_of_small_flow(now, key(1, 0), 1200);
            other += u32::from(is_small);
        }
    }
    (f64::from(small) / 40_000.0, other == 1000)
}

/// Each of a hundred flows is within 10 Mbit/s, and all are 192 Mbit/s. Without a
/// budget all of it was of small flows from a hundred addresses on.
#[test]
fn a_sender_to_many_addresses_is_held_to_its_small_flow_budget() {
    // 31.25 of 192 Mbit/s, and a burst once.
    let most = 31.25 / 192.0 + 0.01;
    for addresses in [1, 10, 100, 1000, 40_000] {
        let (small, other) = spread_over(addresses);
        assert!(small <= most, "{small} with {addresses} addresses");
        assert!(other, "the other guest, with {addresses} addresses");
        let few = addresses <= 10;
        assert!(
            few || small > most - 0.05,
            "{small} with {addresses} addresses"
        );
    }
}

/// As before, and a flow that meets an empty budget does not change its class with
/// every frame: at most twice in a recheck.
#[test]
fn a_flow_without_a_budget_does_not_flap() {
    let mut meter = meter(on_link(), 8);
    let mut last = [None; 100];
    let mut changes = 0;
    for n in 0..40_000_u32 {
        let now = START + Nanos(u64::from(n) * 50_000);
        let is_small = meter.is_of_small_flow(now, key(0, n % 100), 1200);
        let before = last[n as usize % 100].replace(is_small);
        changes += u32::from(before.is_some_and(|before| before != is_small));
    }
    assert!(meter.stats().over_budget > 0);
    // Two seconds are twenty rechecks.
    assert!(changes <= 2 * 20 * 100, "{changes}");
}

/// A hundred guests have 2.5 Mbit/s each, and send far more.
#[test]
fn all_guests_together_have_a_quarter_of_the_link() {
    let mut meter = meter(on_link(), 100);
    let mut small = 0_u64;
    // 100 times 12 Mbit/s, each in flows of its own: ten times as many as it takes.
    for n in 0..200_000_u32 {
        let now = START + Nanos(u64::from(n) * 8_000);
        let is_small = meter.is_of_small_flow(now, key(n % 100, n / 100 % 12), 1200);
        small += u64::from(is_small) * 1200;
    }
    let time = Nanos(200_000 * 8_000);
    let of_link = Rate(LINK.0 / 4).bytes_in(time).0;
    let most = of_link + 100 * 60_000 + 1_250_000;
    assert!(small <= most, "{small} of {most}");
    assert!(small * 10 > of_link * 9, "{small} of {of_link}");
}

/// Each guest has its even part, 1.25 Mbit/s here, beside 199 others that send all they can.
#[test]
fn no_number_of_guests_takes_the_own_part_of_another() {
    let mut meter = meter(on_link(), 200);
    let (mut small, mut all) = (0, 0);
    for n in 0..400_000_u32 {
        let now = START + Nanos(u64::from(n) * 5_000);
        let other = 1 + n % 199;
        meter.is_of_small_flow(now, key(other, n / 199 % 40), 1200);
        // 1 Mbit/s.
        if n.is_multiple_of(1600) {
            all += 1;
            small += u32::from(meter.is_of_small_flow(now, key(0, n / 1600 % 4), 1000));
        }
    }
    assert_eq!(small, all, "of the quiet one");
}

#[test]
fn tokens_earned_at_an_old_rate_count_up_to_one_bucket() {
    let mut meter = meter(on_link(), 1);
    let drain = |meter: &mut Meter, now| {
        let mut small = 0;
        while meter.is_of_small_flow(now, key(0, small), 1200) {
            small += 1;
        }
        small * 1200
    };
    // Half of what 250 Mbit/s are in 10 ms, less what does not fill a frame.
    let first = drain(&mut meter, START);
    assert!((155_000..=156_250).contains(&first), "{first}");
    meter.set_guests(50);
    let later = START + Nanos::from_secs(1);
    let second = drain(&mut meter, later);
    // The burst of a flow, more than half of what 5 Mbit/s are in 10 ms.
    assert!((28_800..=30_000).contains(&second), "{second}");
}

proptest! {
    /// Over every interval, with running minima: a guest's small flows are at most its rate and
    /// burst, and the small flows of all guests are at most a quarter of the link, its burst, and
    /// the tokens of the guests' buckets.
    #[test]
    fn no_interval_has_more_than_the_budget(
        guests in 1u32..6,
        steps in prop::collection::vec((0u32..6, 0u32..40, 60usize..30_000, 0u64..400_000), 1..600),
    ) {
        let mut meter = meter(on_link(), guests as usize);
        let share = on_link().share(guests as usize);
        let (each, all) = (share.guest.expect("known"), share.all.expect("known"));
        let burst = |rate: Rate| i128::from(rate.bytes_in(BURST_TIME).0.max(60_000)) * 8_000_000_000;
        let held = i128::from(guests) * burst(each);
        let mut curves: Vec<_> = (0..guests).map(|_| (0_i128, 0_i128, each, burst(each))).collect();
        curves.push((0, 0, all, burst(all) + held));
        let mut now = START;
        for (guest, flow, len, gap) in steps {
            now += Nanos(gap);
            let guest = guest % guests;
            if !meter.is_of_small_flow(now, key(guest, flow), len) {
                continue;
            }
            for curve in [guest, guests] {
                let (sent, least, rate, burst) = &mut curves[curve as usize];
                let earned = i128::from(now.0 - START.0) * i128::from(rate.0);
                *least = (*least).min(*sent - earned);
                *sent += len as i128 * 8_000_000_000;
                prop_assert!(*sent - earned - *least <= *burst, "curve {}", curve);
            }
        }
    }
}

#[test]
fn a_packet_that_empties_a_bucket_fits_and_each_refusal_counts() {
    let mut budgets = Budgets::new(&on_link(), 60_000);
    let guest = GuestId::first(0);
    assert!(budgets.fill_and_take(START, guest, budgets.each.full));
    assert!(!budgets.fill_and_take(START, guest, 1));
    assert!(!budgets.fill_and_take(START, guest, 1));
    assert_eq!(budgets.refused, 2);
}

/// Otherwise a guest would send the burst of its former rate after a change.
#[test]
fn tokens_and_earnings_of_a_higher_rate_are_cut_to_the_new_buckets() {
    let mut budgets = Budgets::new(&on_link(), 30_000);
    let guest = GuestId::first(0);
    assert!(budgets.fill_and_take(START, guest, BYTE));
    assert!(budgets.fill_and_take(START + Nanos::from_secs(1), guest, BYTE));
    budgets.set_share(Share {
        guest: Some(Rate::from_mbit(5)),
        own: Some(Rate::from_mbit(4)),
        all: Some(Rate::from_mbit(100)),
    });
    let full = |bytes: i64| bytes * BYTE;
    assert_eq!(budgets.given, [full(30_000)]);
    assert_eq!(budgets.guests[0].earned, full(30_000));
    assert_eq!(budgets.guests[0].own, full(30_000));
    // Half of what 100 Mbit/s are in 10 ms.
    assert_eq!(budgets.tokens, full(62_500));
}

#[test]
fn each_packet_of_a_large_flow_is_counted() {
    let mut meter = meter(MeterConfig::default(), 1);
    let mut is_large = |n: u64| {
        let now = START + Nanos(n * 1_000);
        !meter.is_of_small_flow(now, key(0, 0), 1_500)
    };
    let large = (0..1_000).filter(|n| is_large(*n)).count();
    assert!(large > 900, "{large}");
    assert_eq!(meter.stats().bulk, large as u64);
}
