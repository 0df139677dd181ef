//! Rejected configurations, which change no state.

use super::harness::{LINK, Record, frame};
use super::*;

const B: Rate = Rate::from_mbit(1000);

fn fresh() -> Pacer<Record> {
    Pacer::new(&PacerConfig::strict(LINK)).expect("sound")
}

fn refuse(change: impl FnOnce(&mut Guarantee)) -> PacerError {
    let mut pacer = fresh();
    let mut guarantee = Guarantee::new(B, Bytes(30_000), LINK);
    pacer
        .set_guest(Nanos(5), GuestId::first(0), Some(&guarantee))
        .expect("sound");
    change(&mut guarantee);
    let refused = pacer
        .set_guest(Nanos(5), GuestId::first(0), Some(&guarantee))
        .expect_err("a rule is broken");
    let kept = Guarantee::new(B, Bytes(30_000), LINK);
    assert_eq!(pacer.guarantee(GuestId::first(0)), Some(&kept), "{refused}");
    refused
}

#[test]
fn a_guarantee_is_refused_with_the_rule_it_breaks() {
    assert_eq!(refuse(|g| g.bandwidth = Rate(0)), PacerError::NoBandwidth);
    assert_eq!(
        refuse(|g| g.burst = Bytes(1537)).to_string(),
        "burst 1.537KB is below one frame on the wire, 1.538KB"
    );
    assert_eq!(
        refuse(|g| g.burst_rate = Rate::from_mbit(999)).to_string(),
        "burst rate 999Mbit/s is below the bandwidth, 1Gbit/s"
    );
    assert_eq!(
        refuse(|g| g.burst_rate = Rate(0)).to_string(),
        "burst rate 0bit/s is below the bandwidth, 1Gbit/s"
    );
    assert_eq!(
        refuse(|g| g.burst_rate = Rate(LINK.0 + 1)).to_string(),
        "rate 10000000.001kbit/s is above the link's, 10Gbit/s"
    );
    assert_eq!(
        refuse(|g| (g.bandwidth, g.burst_rate) = (Rate(u64::MAX), Rate(u64::MAX))),
        PacerError::AboveLink {
            rate: Rate(u64::MAX),
            link: LINK
        }
    );
    assert!(matches!(
        refuse(|g| g.bandwidth = Rate(9_999)),
        PacerError::TooSlow { .. }
    ));
    assert!(matches!(
        refuse(|g| g.burst = Bytes(u64::MAX)),
        PacerError::BurstTooLong(_)
    ));
    for horizon in [Nanos(0), Nanos(49_999), Nanos::from_secs(60), Nanos::MAX] {
        let refused = refuse(|g| g.horizon = horizon);
        assert!(matches!(refused, PacerError::Horizon { .. }), "{refused}");
    }
}

#[test]
fn all_guarantees_together_fit_the_link() {
    let mut pacer = fresh();
    let guarantee = Guarantee::new(Rate::from_mbit(4000), Bytes(30_000), LINK);
    let mut set = |id, guarantee: Option<&Guarantee>| {
        pacer.set_guest(Nanos(0), GuestId::first(id), guarantee)
    };
    set(0, Some(&guarantee)).expect("4 of 10");
    set(1, Some(&guarantee)).expect("8 of 10");
    assert_eq!(
        set(2, Some(&guarantee)).expect_err("12 of 10").to_string(),
        "all bandwidths together would be 12Gbit/s, above the link's 10Gbit/s"
    );
    set(1, Some(&guarantee)).expect("its own share does not count twice");
    set(0, None).expect("it may leave");
    set(0, None).expect("twice as well");
    set(2, Some(&guarantee)).expect("8 of 10 again");
}

#[test]
fn a_configuration_is_refused_with_the_rule_it_breaks() {
    let refuse = |change: fn(&mut PacerConfig)| {
        let mut config = PacerConfig::strict(LINK);
        change(&mut config);
        Pacer::<Record>::new(&config)
            .expect_err("a rule is broken")
            .to_string()
    };
    assert_eq!(
        refuse(|c| c.link = Rate(0)),
        "link 0bit/s is not between 1Mbit/s and 1Tbit/s"
    );
    assert!(refuse(|c| c.link = Rate(u64::MAX)).starts_with("link "));
    assert!(refuse(|c| c.frame = Bytes(83)).starts_with("frame 83B is not between 84B"));
    assert!(refuse(|c| c.frame = Bytes(u64::MAX)).starts_with("frame "));
    assert!(refuse(|c| c.batch = Nanos(0)).starts_with("frame "));
    assert!(refuse(|c| c.batch = Nanos(1230)).ends_with("in a batch, 1.537KB"));
}

#[test]
fn a_destination_needs_a_guaranteed_guest_and_a_sound_rate() {
    let mut pacer = fresh();
    let set = |pacer: &mut Pacer<_>, guest, rate| {
        pacer.set_destination(Nanos(0), GuestId::first(guest), 1, rate)
    };
    assert_eq!(
        set(&mut pacer, 0, Some(B)),
        Err(PacerError::NotGuaranteed(GuestId::first(0)))
    );
    let guarantee = Guarantee::new(B, Bytes(30_000), LINK);
    pacer
        .set_guest(Nanos(0), GuestId::first(3), Some(&guarantee))
        .expect("sound");
    assert_eq!(
        set(&mut pacer, 2, Some(B)),
        Err(PacerError::NotGuaranteed(GuestId::first(2)))
    );
    assert!(matches!(
        set(&mut pacer, 3, Some(Rate(9_999))),
        Err(PacerError::TooSlow { .. })
    ));
    assert!(matches!(
        set(&mut pacer, 3, Some(Rate(LINK.0 + 1))),
        Err(PacerError::AboveLink { .. })
    ));
    assert_eq!(set(&mut pacer, 3, Some(B)), Ok(()));
    assert_eq!(set(&mut pacer, 3, None), Ok(()));
    assert_eq!(set(&mut pacer, 3, None), Ok(()));
    let huge = pacer.set_guest(Nanos(0), GuestId::first(u32::MAX), Some(&guarantee));
    assert_eq!(huge, Err(PacerError::Guest(u32::MAX as usize)));
}

#[test]
fn oversized_frames_are_dropped_and_counted() {
    let mut pacer = fresh();
    let guarantee = Guarantee::new(B, Bytes(30_000), LINK);
    pacer
        .set_guest(Nanos(0), GuestId::first(0), Some(&guarantee))
        .expect("sound");
    for (dropped, guest) in [(1, 0), (2, 1)] {
        let mut long = frame(1, guest, 1539);
        long.cut = false;
        pacer.enqueue(Nanos(1), long);
        assert_eq!(pacer.stats().drops.oversized, dropped);
        assert_eq!((pacer.waiting(), pacer.best_effort().packets), (0, 0));
    }
    let stats = pacer.guest_stats(GuestId::first(0)).expect("guaranteed");
    assert_eq!((stats.taken.packets, stats.dropped), (0, 1));
}

#[test]
fn a_configuration_is_read_from_text() {
    let config: PacerConfig = serde_json::from_str(r#"{"link": "10Gbit/s"}"#).expect("sound");
    assert_eq!(config, PacerConfig::new(LINK));
    let guarantee: Guarantee = serde_json::from_str(
        r#"{"bandwidth": "1Gbit/s", "burst": "30KB", "burst_rate": "10Gbit/s"}"#,
    )
    .expect("sound");
    assert_eq!(guarantee, Guarantee::new(B, Bytes(30_000), LINK));
    assert!(serde_json::from_str::<Guarantee>(r#"{"bandwith": "1Gbit/s"}"#).is_err());
}

#[test]
fn the_default_batch_holds_a_frame_on_every_link() {
    let read = |keys: &str| -> PacerConfig {
        serde_json::from_str(&format!("{{{keys}}}")).expect("it is right")
    };
    for (keys, micros) in [
        (r#""link": "10Gbit/s""#, 50.0),
        (r#""link": "247Mbit/s""#, 50.0),
        (r#""link": "200Mbit/s""#, 61.52),
        (r#""link": "10Mbit/s""#, 1230.4),
        (r#""link": "1Mbit/s""#, 12_304.0),
        (r#""link": "1Gbit/s", "frame": "9038B""#, 72.304),
    ] {
        let config = read(keys);
        assert_eq!(config.batch, Nanos((micros * 1000.0) as u64), "{keys}");
        assert!(Pacer::<Record>::new(&config).is_ok(), "{keys}");
        let written = serde_json::to_string(&config).expect("it is data");
        let again: PacerConfig = serde_json::from_str(&written).expect("it is right");
        assert_eq!(again, config);
    }
    assert_eq!(
        read(r#""link": "200Mbit/s""#),
        PacerConfig::new(Rate(200_000_000))
    );
    let short = read(r#""link": "200Mbit/s", "batch": "50us""#);
    assert_eq!(short.least_batch(), Nanos(61_520));
    assert!(Pacer::<Record>::new(&short).is_err());
    let too_short = PacerConfig {
        batch: Nanos(61_519),
        ..short
    };
    assert!(Pacer::<Record>::new(&too_short).is_err());
}
