use super::*;
use crate::socket::{Bucket, Count, Guarantee, GuaranteedBy, GuestSource, PacketLoop, Port, Waits};

/// A guest with a guarantee of 100 Mbit/s.
fn guest(name: &str) -> Guest {
    Guest {
        port: Port {
            name: name.to_owned(),
            ..Port::default()
        },
        kept: GuestSource::File,
        vm: None,
        mac: None,
        ipv4: None,
        drained: false,
        guarantee: Some(Guarantee {
            bandwidth_bit_s: 100_000_000,
            burst_bytes: 15_000,
            burst_rate_bit_s: 1_000_000_000,
            by: GuaranteedBy::Configuration,
        }),
        limit: None,
        guarantee_refused: false,
        paced_bytes: 0,
        waits: Vec::new(),
    }
}

/// A daemon with this guest after `seconds` seconds.
fn shown(seconds: u64, guest: Guest) -> HostStatus {
    HostStatus {
        pid: 1,
        uptime_ns: seconds * 1_000_000_000,
        config: "host.toml".into(),
        added: "added.toml".into(),
        service: None,
        reloads_refused: 0,
        packet_loop: None,
        uplink: None,
        guests: vec![guest],
    }
}

/// Ten seconds, after which `after` has changed the guest.
fn looked(name: &str, after: impl FnOnce(&mut Guest)) -> Readings {
    let mut then = guest(name);
    after(&mut then);
    Readings {
        before: shown(5, guest(name)),
        after: shown(15, then),
    }
}

/// A guest that sent this number of bytes, with packets that waited for less than 100 us, and for
/// up to 5 ms.
fn sent(bytes: u64, soon: u64, late: u64) -> Readings {
    looked("a", |guest| {
        guest.port.received = Count { packets: 1, bytes };
        guest.waits = waited("sent", "guaranteed", soon, late);
    })
}

fn received(bytes: u64, soon: u64, late: u64) -> Readings {
    looked("b", |guest| {
        guest.port.sent = Count { packets: 1, bytes };
        guest.waits = waited("received", "guaranteed", soon, late);
    })
}

fn waited(direction: &str, class: &str, soon: u64, late: u64) -> Vec<Waits> {
    let bucket = |up_to, count| Bucket {
        up_to_ns: Some(up_to),
        count,
    };
    vec![Waits {
        direction: direction.to_owned(),
        class: class.to_owned(),
        buckets: vec![
            bucket(100_000, soon),
            bucket(1_000_000, 0),
            bucket(5_000_000, late),
        ],
    }]
}

/// Checks that are broken, and those that could not be judged.
fn broken(sender: &Readings, receiver: Option<&Readings>) -> Vec<(Side, CheckOutcome)> {
    let receiver = receiver.map(|looked| (looked, "b"));
    let checks = judge(sender, "a", receiver, Nanos::from_millis(1)).unwrap();
    let not = checks
        .iter()
        .filter(|check| check.found != CheckOutcome::Holds);
    not.map(|check| (check.side, check.found)).collect()
}

#[test]
fn complete_and_timely_delivery_breaks_no_guarantee() {
    assert_eq!(
        broken(
            &sent(10_000_000, 5_000, 3),
            Some(&received(10_000_000, 5_000, 0))
        ),
        []
    );
}

#[test]
fn the_side_that_broke_it_is_named() {
    let (sender, fine) = (Side::SendingHost, received(10_000_000, 5_000, 0));
    // Packets wait although the guest sends 8 of 100 Mbit/s.
    let late = sent(10_000_000, 5_000, 500);
    assert_eq!(broken(&late, Some(&fine)), [(sender, CheckOutcome::Broken)]);
    // Packets are always queued, and the guest gets half.
    let mut half = sent(62_500_000, 50_000, 0);
    half.before.guests[0].paced_bytes = 1_000;
    half.after.guests[0].paced_bytes = 1_000;
    assert_eq!(broken(&half, None), [(sender, CheckOutcome::Broken)]);
    // Packets wait because the guest exceeds its guarantee.
    let more = sent(125_000_000, 50_000, 40_000);
    assert_eq!(broken(&more, None), []);
    // The guarantee is refused.
    let refused = looked("a", |guest| guest.guarantee_refused = true);
    assert_eq!(broken(&refused, None), [(sender, CheckOutcome::Broken)]);
    let fine = sent(10_000_000, 5_000, 0);
    let lost = received(9_000_000, 4_500, 0);
    assert_eq!(
        broken(&fine, Some(&lost)),
        [(Side::Between, CheckOutcome::Broken)]
    );
    let mut full = received(9_000_000, 4_500, 0);
    full.after.guests[0].port.drops = [("overrun".to_owned(), 700)].into();
    assert_eq!(
        broken(&fine, Some(&full)),
        [
            (Side::Between, CheckOutcome::NotJudged),
            (Side::ReceivingHost, CheckOutcome::Broken)
        ]
    );
    let slow = received(10_000_000, 4_000, 1_000);
    assert_eq!(
        broken(&fine, Some(&slow)),
        [(Side::ReceivingHost, CheckOutcome::Broken)]
    );
}

#[test]
fn too_few_frames_are_not_judged() {
    let little = broken(&sent(1_000, 3, 0), None);
    assert_eq!(little, [(Side::SendingHost, CheckOutcome::NotJudged)]);
    let mut again = sent(10_000_000, 5_000, 0);
    again.after.pid = 2;
    let said = |looked: &Readings, name| {
        let error = judge(looked, name, None, Nanos::from_millis(1)).unwrap_err();
        error.to_string()
    };
    let again = said(&again, "a");
    assert!(again.contains("started again"), "{again}");
    let best_effort = said(&looked("a", |guest| guest.guarantee = None), "a");
    let start = "nothing is guaranteed to a, ";
    assert!(best_effort.starts_with(start), "{best_effort}");
    let other = said(&sent(1, 1, 1), "x");
    assert!(other.contains("has no guest \"x\"; it has: a"), "{other}");
}

#[test]
fn a_loop_that_was_late_for_more_than_a_hundredth_of_the_time_is_broken() {
    let after = |stood: Option<u64>, real_time| {
        let mut looked = sent(12_000_000, 1_000, 0);
        let state = |frozen_ns| PacketLoop {
            real_time,
            frozen_ns,
        };
        looked.before.packet_loop = stood.map(|_| state(7));
        looked.after.packet_loop = stood.map(|stood| state(7 + stood));
        let checks = judge(&looked, "a", None, Nanos::from_millis(1)).unwrap();
        let mut checks = checks.into_iter();
        checks.find(|check| check.what.starts_with("the packet loop"))
    };
    assert_eq!(after(None, true), None);
    assert_eq!(
        after(Some(100_000_000), false).unwrap().found,
        CheckOutcome::Holds
    );
    let late = after(Some(100_000_001), false).unwrap();
    assert_eq!(
        (late.found, late.side),
        (CheckOutcome::Broken, Side::SendingHost)
    );
    assert!(
        late.why.ends_with("(`loop_class`, `tailbound doctor`)"),
        "{}",
        late.why
    );
    assert!(
        after(Some(1 << 40), true)
            .unwrap()
            .why
            .contains("it needs a CPU")
    );
}
