//! Bounds of guaranteed guests in each fabric, while best-effort guests send small flows at full
//! speed: hosts' own code, a switch with a queue for each class, and the calculus.

use std::collections::VecDeque;
use tailbound_dataplane::pipeline::{Coverage, Outgoing, PacedPipeline, PacedPipelineConfig};
use tailbound_dataplane::{
    Class, Classes, Fabric, Guarantee, GuestId, MeterConfig, PacerConfig, PacketRecord,
};
use tailbound_netcalc::{ArrivalCurve, ServiceCurve};
use tailbound_units::{Bytes, Nanos, Rate};

/// Rate of every link.
const LINK: Rate = Rate::from_mbit(1000);
/// A full frame on the wire.
const FRAME: Bytes = Bytes(1538);
/// Guarantee of one guest of each host: its burst is ten frames.
const BANDWIDTH: Rate = Rate::from_mbit(100);
const BURST: Bytes = Bytes(10 * FRAME.0);
const HOSTS: u32 = 4;
/// Time at which buckets are full.
const START: Nanos = Nanos::from_secs(1);
/// Interval of the guaranteed guest's bursts: the shortest possible.
const PERIOD: Nanos = Nanos(BURST.0 * 8 * 10);
const PERIODS: u64 = 180;
/// The guests of a host.
const GUARANTEED: u32 = 0;
const BEST_EFFORT: u32 = 1;

/// A frame at the switch, and the arrival of its last bit.
struct Arrival {
    at: Nanos,
    class: Class,
    frame: PacketRecord,
}

/// Measurements of guaranteed guests' frames.
#[derive(Debug)]
struct Outcome {
    /// Longest time from a frame's arrival at the switch to its last bit's departure.
    longest: Nanos,
    /// Frames that left in the lowest class.
    tagged_down: u64,
    frames: u64,
    /// Best-effort frames in the class for small flows.
    small: u64,
}

fn host(classes: Classes) -> PacedPipeline<PacketRecord> {
    let is_metered = classes.fabric().has(Class::Small);
    let pacer = PacerConfig {
        voids: false,
        ..PacerConfig::strict(LINK)
    };
    let mut host = PacedPipeline::new(PacedPipelineConfig {
        classes,
        meter: is_metered.then(|| MeterConfig {
            link: Some(LINK),
            ..MeterConfig::default()
        }),
        ..PacedPipelineConfig::new(pacer)
    })
    .expect("no rule is broken");
    host.set_guests(2);
    host.pacer_mut()
        .set_guest(
            Nanos::ZERO,
            GuestId::first(GUARANTEED),
            Some(&Guarantee::new(BANDWIDTH, BURST, LINK)),
        )
        .expect("no rule is broken");
    host
}

/// Returns the frames of a host until `PERIODS` are over: one guest sends its burst whenever
/// permitted, the other full frames at the link's rate, in turn to a thousand addresses.
fn sent(classes: Classes) -> Vec<Arrival> {
    const STEPS: u64 = 10;
    let mut host = host(classes);
    let (mut arrivals, mut free, mut id) = (Vec::new(), Nanos::ZERO, 0);
    for step in 0..STEPS * PERIODS {
        let now = START + Nanos(PERIOD.0 / STEPS * step);
        let mut push = |guest, destination| {
            id += 1;
            let frame = PacketRecord {
                id,
                guest,
                destination,
                cut: false,
                ..PacketRecord::on_wire(FRAME.0)
            };
            host.push(now, Some(frame), Coverage::AllDestinations);
        };
        if step % STEPS == 0 {
            (0..10).for_each(|_| push(GUARANTEED, 7));
        }
        (0..10).for_each(|n| push(BEST_EFFORT, 1_000 + u128::from((step * 10 + n) % 1_000)));
        let next = now + Nanos(PERIOD.0 / STEPS);
        while let Some(at) = host.poll_at().filter(|at| *at < next) {
            let wire = |outgoing: Outgoing<PacketRecord>, _| {
                let Outgoing::Frame { frame, launch_at } = outgoing else {
                    return;
                };
                let begin = free.max(launch_at.expect("there are no voids"));
                free = begin + LINK.time_for(FRAME);
                let mark = classes.mark(frame.class);
                let class = classes.class_by_mark(|other| other == mark);
                arrivals.push(Arrival {
                    at: free,
                    class,
                    frame,
                });
            };
            host.pull(at.max(now), wire, |_, _| {});
        }
    }
    arrivals
}

/// Sends the frames of all hosts to one port of a switch that serves each class before those below
/// it.
fn through_a_switch(classes: Classes) -> Outcome {
    let mut arrivals: Vec<_> = (0..HOSTS).flat_map(|_| sent(classes)).collect();
    arrivals.sort_by_key(|arrival| arrival.at);
    let of = |guest| arrivals.iter().filter(move |it| it.frame.guest == guest);
    let mut outcome = Outcome {
        longest: Nanos::ZERO,
        tagged_down: of(GUARANTEED)
            .filter(|it| it.class == Class::Lowest)
            .count() as u64,
        frames: of(GUARANTEED).count() as u64,
        small: of(BEST_EFFORT)
            .filter(|it| it.class == Class::Small)
            .count() as u64,
    };
    let mut queues = [const { VecDeque::new() }; Class::ALL.len()];
    let mut arrivals = arrivals.into_iter().peekable();
    let mut now = START;
    loop {
        while let Some(arrival) = arrivals.next_if(|arrival| arrival.at <= now) {
            queues[arrival.class as usize].push_back(arrival);
        }
        let Some(next) = queues.iter_mut().find_map(VecDeque::pop_front) else {
            match arrivals.peek() {
                Some(arrival) => now = arrival.at,
                None => return outcome,
            }
            continue;
        };
        now += LINK.time_for(FRAME);
        if next.frame.guest == GUARANTEED {
            outcome.longest = outcome.longest.max(now.since(next.at));
        }
    }
}

/// Returns the calculus' bound for the first class at that port: all bursts together, and a frame
/// of a lower class that has just begun. A frame counts on the arrival of its last bit, so one more
/// may arrive with the burst.
fn bound() -> Nanos {
    let guest = ArrivalCurve::token_bucket(BANDWIDTH, BURST + FRAME);
    let all = guest.times(u64::from(HOSTS)).expect("small numbers");
    let link = ServiceCurve::rate_latency(LINK, Nanos::ZERO)
        .left_over_priority(&ArrivalCurve::none(), FRAME)
        .expect("small numbers");
    let delay = all.delay(&link).expect("small numbers").finite();
    let delay = delay.expect("the link is fast enough");
    delay.to_nanos().expect("small numbers")
}

/// Best effort fills the port with small flows. A guaranteed frame is behind none of them, except
/// in a fabric that serves small flows first: no bound holds there, and the placement service
/// guarantees none.
#[test]
fn bounds_hold_beside_small_flows_where_guarantees_have_a_class() {
    let bound = bound();
    for fabric in Fabric::ALL {
        let outcome = through_a_switch(Classes::of(fabric));
        println!("{fabric}: {outcome:?}, bound {bound}");
        assert_eq!(outcome.frames, u64::from(HOSTS) * PERIODS * 10);
        if fabric.promises_delays() {
            assert_eq!(outcome.tagged_down, 0, "{fabric}");
            assert!(outcome.longest <= bound, "{fabric}: {outcome:?}");
            // Bursts of all hosts met.
            assert!(outcome.longest.0 > bound.0 / 2, "{fabric}: {outcome:?}");
        } else {
            // A meter decides here, and classifies conforming frames as bulk.
            let most = outcome.frames * 98 / 100;
            assert!(outcome.tagged_down > most, "{fabric}: {outcome:?}");
            assert!(outcome.longest.0 > 10 * bound.0, "{fabric}: {outcome:?}");
        }
        let has_small = fabric.has(Class::Small);
        assert_eq!(outcome.small > 0, has_small, "{fabric}: {outcome:?}");
    }
}
