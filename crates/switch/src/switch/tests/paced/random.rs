//! Random changes at random times.

use super::*;

#[derive(Debug, Clone)]
enum Event {
    Send(usize, u8),
    Wait(u64),
    /// Guarantees by number, some of them for guests that do not exist.
    Apply(Vec<(u32, Option<Guarantee>)>),
    File(Option<u64>, Option<u64>),
    Wire(u64, u64),
    /// Stops or starts pacing the uplink.
    Unpaced,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let other = (1u64..700, 1538u64..40_000).prop_map(|(mbit, burst)| Guarantee {
        burst: Bytes(burst),
        ..guarantee(mbit)
    });
    let other = prop::option::of(other);
    let event = prop_oneof![
        8 => (A..=B, 1u8..60).prop_map(|(guest, count)| Event::Send(guest, count)),
        8 => (1u64..3000).prop_map(Event::Wait),
        2 => prop::collection::vec((0u32..3, other), 0..3).prop_map(Event::Apply),
        2 => (prop::option::of(1u64..500), prop::option::of(1u64..500))
            .prop_map(|(a, b)| Event::File(a, b)),
        1 => (300u64..2000, 30u64..200).prop_map(|(link, batch)| Event::Wire(link, batch)),
        1 => Just(Event::Unpaced),
    ];
    prop::collection::vec(event, 1..40)
}

/// The frames that the present pacer has dropped for memory.
fn over_share(bench: &mut Bench) -> u64 {
    let pacer = bench.switch.pacer();
    pacer.map_or(0, |pacer| pacer.stats().drops.over_share)
}

/// Runs events. No frame overtakes another of its flow, and none is lost without elastic flows. An
/// elastic flow beyond its share of memory loses frames at its front, and they are counted.
fn check(events: Vec<Event>, work_conserving: bool) {
    let roomy = |mut wire: PacerConfig| {
        wire.work_conserving = work_conserving;
        wire.best_effort = QueueConfig::Fifo(FifoConfig {
            packets: 1 << 20,
            ..FifoConfig::default()
        });
        wire
    };
    let mut now_wire = roomy(wire());
    let (mut a, mut b) = (Some(guarantee(100)), None);
    let mut bench = bench(paced(&now_wire, a, b));
    let mut sent = [0, 0, 0];
    let mut dropped = 0;
    let mut seen = OnTheWire::default();
    for event in events {
        match event {
            Event::Send(guest, count) => {
                for _ in 0..count {
                    bench.send(guest, &full(guest, sent[guest]));
                    sent[guest] += 1;
                }
            }
            Event::Wait(micros) => {
                bench.run(bench.now + Nanos::from_micros(micros));
            }
            Event::Apply(guarantees) => {
                let guests = guarantees.into_iter();
                let guests = guests.map(|(guest, wanted)| (GuestId::first(guest), wanted));
                bench.switch.apply(bench.now, guests);
            }
            Event::File(first, second) => {
                (a, b) = (first.map(guarantee), second.map(guarantee));
                let config = paced(&now_wire, a, b);
                // Refused or not: nothing is lost.
                let _ = bench.switch.reconfigure(bench.now, config);
            }
            Event::Wire(link, batch) => {
                let mut wire = roomy(PacerConfig::new(Rate::from_mbit(link)));
                wire.batch = Nanos::from_micros(batch);
                if bench
                    .switch
                    .reconfigure(bench.now, paced(&wire, a, b))
                    .is_ok()
                {
                    now_wire = wire;
                }
            }
            Event::Unpaced => {
                // The next pacer counts from zero.
                dropped += over_share(&mut bench);
                let mut config = paced(&now_wire, a, b);
                config.uplink = Some(EgressConfig::Pipeline(PipelineConfig {
                    queue: now_wire.best_effort.clone(),
                    ..PipelineConfig::default()
                }));
                bench
                    .switch
                    .reconfigure(bench.now, config)
                    .expect("no rule is broken");
                bench.run(bench.now + Nanos::from_micros(1));
                let _ = bench.switch.reconfigure(bench.now, paced(&now_wire, a, b));
            }
        }
        seen.take(&bench);
    }
    bench.run(bench.now + Nanos::from_secs(30));
    seen.take(&bench);
    dropped += over_share(&mut bench);
    assert!(work_conserving || dropped == 0, "{dropped}");
    assert_eq!(lost(&seen, sent), dropped);
}

/// The number of sent frames that were not seen; those that were seen are in order.
fn lost(seen: &OnTheWire, sent: [u32; 3]) -> u64 {
    let lost = [A, B].map(|guest| {
        let numbers = seen.numbers(guest);
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        u64::from(sent[guest]) - numbers.len() as u64
    });
    lost.iter().sum()
}

#[test]
fn a_large_burst_of_a_guest_with_a_small_guarantee_is_lost_nowhere_uncounted() {
    let counts = [23, 40, 25, 59, 35, 48];
    let sent = counts.into_iter().map(|count| Event::Send(B, count));
    let changes = [Event::Wire(1000, 30), Event::File(None, Some(1))];
    let events: Vec<_> = sent.chain(changes).collect();
    for work_conserving in [false, true] {
        check(events.clone(), work_conserving);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// With any configurations of the file and the service, at any times.
    #[test]
    fn no_change_of_guarantees_or_of_the_wire_loses_or_reorders_a_frame(
        events in events(),
        work_conserving in any::<bool>(),
    ) {
        check(events, work_conserving);
    }
}
