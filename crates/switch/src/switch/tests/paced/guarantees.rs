//! Changes of guarantees and of wires.

use super::*;

/// Returns the guarantee of a guest in the pacer, in Mbit/s.
fn held(bench: &Bench, guest: usize) -> Option<u64> {
    let id = GuestId::first((guest - A) as u32);
    let held = bench.switch.guarantee(id)?;
    Some(held.bandwidth.0 / 1_000_000)
}

fn apply(bench: &mut Bench, a: Option<Guarantee>, b: Option<Guarantee>) {
    let guests = [(GuestId::first(0), a), (GuestId::first(1), b)];
    bench.switch.apply(bench.now, guests);
}

/// Sets the guarantee of a guest; an error is the rule that refuses it.
fn set_one(bench: &mut Bench, guest: u32, guarantee: Option<Guarantee>) -> Result<(), PacerError> {
    let id = GuestId::first(guest);
    bench.switch.apply(bench.now, [(id, guarantee)]);
    let guest = bench.switch.guest(id).expect("it is there");
    guest.refusal().map_or(Ok(()), Err)
}

#[test]
fn a_guarantee_is_set_by_number_and_kept_until_the_uplink_is_paced() {
    let mut bench = Bench::new(&PipelineConfig::default());
    let set = set_one(&mut bench, 0, Some(guarantee(100)));
    assert_eq!(set, Ok(()));
    assert_eq!(held(&bench, A), None, "nothing is paced");
    // One that does not exist is skipped.
    bench.switch.apply(bench.now, [(GuestId::first(7), None)]);
    // As a reload does it: the configuration names the guarantee again.
    let config = paced(&wire(), Some(guarantee(100)), None);
    bench
        .switch
        .reconfigure(bench.now, config)
        .expect("no rule is broken");
    assert_eq!(held(&bench, A), Some(100));
    let set = set_one(&mut bench, 0, None);
    assert_eq!((set, held(&bench, A)), (Ok(()), None));
}

#[test]
fn a_guarantee_that_breaks_a_rule_is_counted_once_and_the_old_one_stays() {
    let mut bench = bench(paced(&wire(), Some(guarantee(100)), None));
    let short = Guarantee {
        burst: Bytes(100),
        ..guarantee(10)
    };
    for broken in [guarantee(1001), guarantee(0), short] {
        for _ in 0..2 {
            let set = set_one(&mut bench, 0, Some(broken));
            assert!(set.is_err());
        }
        apply(&mut bench, Some(broken), Some(guarantee(200)));
        assert_eq!((held(&bench, A), held(&bench, B)), (Some(100), Some(200)));
    }
    assert_eq!(bench.switch.snapshot(&mut bench.ports).refusals, 3);
    assert!(bench.guest_pacing(A).refused);
    // Together above the link, and each for itself not: one of them has to wait.
    apply(&mut bench, Some(guarantee(600)), Some(guarantee(600)));
    assert_eq!((held(&bench, A), held(&bench, B)), (Some(600), Some(200)));
    // They swap: what becomes less comes first.
    apply(&mut bench, Some(guarantee(300)), Some(guarantee(700)));
    assert_eq!((held(&bench, A), held(&bench, B)), (Some(300), Some(700)));
    apply(&mut bench, Some(guarantee(700)), Some(guarantee(300)));
    assert_eq!((held(&bench, A), held(&bench, B)), (Some(700), Some(300)));
    // Also where the one that gets less may send its bursts faster from now on.
    let slow = |mbit| {
        Some(Guarantee {
            burst_rate: Rate::from_mbit(mbit),
            ..guarantee(mbit)
        })
    };
    apply(&mut bench, slow(300), slow(700));
    apply(&mut bench, slow(700), slow(300));
    assert_eq!((held(&bench, A), held(&bench, B)), (Some(700), Some(300)));
    assert_eq!(bench.switch.snapshot(&mut bench.ports).refusals, 4);
}

#[test]
fn a_refused_guarantee_is_set_when_others_make_room() {
    let mut bench = bench(paced(&wire(), Some(guarantee(100)), Some(guarantee(600))));
    let set = set_one(&mut bench, 0, Some(guarantee(500)));
    assert!(set.is_err());
    assert_eq!(held(&bench, A), Some(100));
    let set = set_one(&mut bench, 1, Some(guarantee(300)));
    assert_eq!((set, held(&bench, A)), (Ok(()), Some(500)));
    assert!(!bench.guest_pacing(A).refused);
}

#[test]
fn a_wire_on_which_its_guests_do_not_fit_is_refused_and_nothing_changes() {
    let mut bench = bench(paced(&wire(), Some(guarantee(600)), None));
    let slow = PacerConfig {
        link: Rate::from_mbit(500),
        ..wire()
    };
    let config = paced(&slow, Some(guarantee(600)), None);
    let refused = bench
        .switch
        .reconfigure(bench.now, config)
        .expect_err("too slow");
    assert!(
        refused.to_string().contains("above the link's"),
        "{refused}"
    );
    assert_eq!(held(&bench, A), Some(600));
    let mut fits = guarantee(200);
    fits.burst_rate = slow.link;
    let config = paced(&slow, Some(fits), None);
    bench
        .switch
        .reconfigure(bench.now, config)
        .expect("it fits");
    assert_eq!(held(&bench, A), Some(200));
}

/// A reload to a faster or slower link, with limits of destinations that are slower than the new
/// link can represent, or faster than the link.
#[test]
fn a_reload_changes_a_link_on_which_destinations_have_limits() {
    for (from, to, limit) in [
        (1000, 10_000, 1000),
        (1000, 10_000, 0),
        (10_000, 1000, 5_000_000_000),
    ] {
        let on = |mbit| PacerConfig::strict(Rate::from_mbit(mbit));
        let mut bench = bench(paced(&on(from), Some(guarantee(100)), None));
        let now = bench.now;
        let far = FAR.to_ipv6_mapped().to_bits();
        let pacer = bench.switch.pacer().expect("the uplink is paced");
        pacer
            .set_destination(now, GuestId::first(0), far, Some(Rate(limit)))
            .expect("no rule is broken");
        let config = paced(&on(to), Some(guarantee(100)), None);
        bench
            .switch
            .reconfigure(now, config)
            .expect("no rule is broken");
        let uplink = bench
            .switch
            .parts
            .transmitter
            .uplink()
            .expect("there is one");
        let link = uplink.egress().paced().map(|paced| paced.wire().link);
        assert_eq!(link, Some(Rate::from_mbit(to)), "a limit of {limit} bit/s");
    }
}
