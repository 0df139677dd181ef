//! Golden records of the whole switch: the ports, times and contents of all sent frames, and the
//! counters, over pcap ports in manual time.
//!
//! A change without an effect on behaviour leaves `records/` unchanged. For a change with an
//! effect, `TAILBOUND_GOLDEN=write` makes the records anew, and their difference is part of the
//! commit.

mod bench;
mod frames;
mod record;

use bench::Bench;
use frames::{A, B, BROADCAST, C, Capture, FAR, arp, datagram, far, tagged, tcp, to, udp};
use tailbound_dataplane::{
    Classes, Coverage, EgressConfig, Fabric, FqCodelConfig, Guarantee, GuestId, MeterConfig,
    NicConfig, PacedPipelineConfig, PacerConfig, PipelineConfig, QueueConfig,
};
use tailbound_switch::{GuestConfig, Mac, SpoofFilter, SwitchConfig};
use tailbound_units::{Bytes, Nanos, Rate};

/// The uplink, and guests A and B that may send in their own names, and C that may
/// send in any.
fn config(uplink: EgressConfig) -> SwitchConfig {
    let guest = |name: &str, station: frames::Station| {
        let mac = Mac(station.mac);
        GuestConfig {
            filter: Some(SpoofFilter::new(mac, [station.ip.into()])),
            ..GuestConfig::new(name, mac)
        }
    };
    let classes = match &uplink {
        EgressConfig::Pipeline(pipeline) => pipeline.classes,
        EgressConfig::Pacer(paced) => Some(paced.classes),
    };
    SwitchConfig {
        outside: None,
        classes,
        uplink: Some(uplink),
        guests: vec![
            guest("a", A),
            guest("b", B),
            GuestConfig::new("c", Mac(C.mac)),
        ],
    }
}

/// A queue that marks and drops within a few milliseconds.
fn short_queue() -> QueueConfig {
    QueueConfig::FqCodel(FqCodelConfig {
        target: Nanos::from_micros(500),
        interval: Nanos::from_millis(5),
        packets: 150,
        ..FqCodelConfig::default()
    })
}

fn small_flows() -> MeterConfig {
    MeterConfig {
        rate: Rate::from_mbit(5),
        burst: Bytes(6000),
        recheck: Nanos::from_millis(10),
        ..MeterConfig::default()
    }
}

/// Makes a configuration of Small is Better, on a wire of 30 Mbit/s.
fn queued() -> SwitchConfig {
    config(EgressConfig::Pipeline(PipelineConfig {
        meter: Some(small_flows()),
        segment: true,
        queue: short_queue(),
        nic: Some(NicConfig {
            overhead: Bytes(24),
            ..NicConfig::new(Rate::from_mbit(30))
        }),
        classes: Some(Classes::of(Fabric::SmallFlowsFirst)),
        limit: None,
    }))
}

/// Makes traffic from outside: frames for guests in both classes, and frames without a route.
fn outside(millis: u64) -> Capture {
    let mut outside = Capture::default();
    let end = millis * 1000;
    outside.every(0..end, 3100, |n| datagram(FAR, A, n, 300, 46 << 2));
    outside.every(500..end, 4300, |n| udp(FAR, B, n, 1200));
    outside.every(900..end, 17_000, |n| arp(far(2), [A, B, C][n as usize % 3]));
    outside.at(1000, to([2, 8, 8, 8, 8, 8], &udp(FAR, A, 1, 50)));
    outside.at(1100, to([1, 0x80, 0xc2, 0, 0, 0], &udp(FAR, A, 2, 50)));
    outside.at(1200, udp(A, B, 3, 50));
    outside.at(1300, tagged(&udp(FAR, C, 4, 50), 5 << 13 | 7));
    outside
}

/// Makes the guests' traffic: bulk from A, small flows from B to it and to others, and C that
/// routes for others, tags, and floods.
fn guests(millis: u64) -> Vec<(&'static str, Capture)> {
    let end = millis * 1000;
    let (mut a, mut b, mut c) = (Capture::default(), Capture::default(), Capture::default());
    a.every(0..end, 2900, |n| tcp(A, FAR, n, 6));
    a.every(100..end, 7000, |n| udp(A, B, n, 1472));
    a.at(1500, udp(B, FAR, 0, 100));
    a.at(1600, vec![0; 20]);
    a.at(1700, tagged(&udp(A, FAR, 0, 100), 3));
    b.every(0..end, 900, |n| udp(B, far(2), n, 180));
    b.every(300..end, 5000, |n| udp(B, FAR, n, 1472));
    b.every(200..end, 9000, |_| arp(B, FAR));
    c.every(0..end, 1300, |n| udp(C, far(3), n, 1000));
    c.every(50..end, 6100, |n| tagged(&udp(C, FAR, n, 400), 1 << 13 | 9));
    let behind = frames::Station {
        mac: [2, 7, 7, 7, 7, 7],
        ..far(9)
    };
    c.every(70..end, 8100, |n| udp(behind, A, n, 90));
    c.at(2000, to(BROADCAST, &udp(C, FAR, 1, 70)));
    // More than there is room for, and more than half a burst in another's name.
    c.every(26_000..28_500, 10, |n| udp(C, far(4), n, 700));
    b.every(12_000..12_020, 1, |n| udp(A, FAR, n, 60));
    vec![("uplink", outside(millis)), ("a", a), ("b", b), ("c", c)]
}

#[test]
fn golden_queue() {
    let mut bench = Bench::new(&queued(), guests(60));
    bench.run(30);
    bench.set_room("uplink", Some(5));
    bench.run(33);
    bench.set_room("uplink", None);
    bench.run(80);
    bench.finish().compare("queue");
}

/// The wire of the paced scenarios.
fn wire() -> PacerConfig {
    PacerConfig {
        batch: Nanos::from_micros(300),
        frame: Bytes(1542),
        best_effort: short_queue(),
        ..PacerConfig::strict(Rate::from_mbit(60))
    }
}

fn pacing(pacer: PacerConfig) -> PacedPipelineConfig {
    PacedPipelineConfig {
        priority_tag: true,
        ..PacedPipelineConfig::new(pacer)
    }
}

fn guarantee(mbit: u64, burst: u64, burst_mbit: u64) -> Guarantee {
    Guarantee::new(
        Rate::from_mbit(mbit),
        Bytes(burst),
        Rate::from_mbit(burst_mbit),
    )
}

/// A and B with guarantees, on an uplink that is paced.
fn paced(pacing: PacedPipelineConfig) -> SwitchConfig {
    let mut config = config(EgressConfig::Pacer(pacing));
    config.guests[0].guarantee = Some(guarantee(16, 12_000, 40));
    config.guests[1].guarantee = Some(Guarantee {
        mark: None,
        ..guarantee(4, 3100, 60)
    });
    config
}

#[test]
fn golden_pacer() {
    let mut bench = Bench::new(&paced(pacing(wire())), guests(60));
    bench.run(20);
    // The wire does not accept due frames, and later it does.
    bench.set_room("uplink", Some(9));
    bench.run(23);
    bench.set_room("uplink", None);
    bench.run(35);
    let late = PacerConfig {
        catch_up: Nanos::from_micros(600),
        ..wire()
    };
    let metered = PacedPipelineConfig {
        classes: Classes::of(Fabric::ThreeClasses),
        meter: Some(small_flows()),
        priority_tag: false,
        ..pacing(late)
    };
    bench.reconfigure("a meter, no tags, and catching up", paced(metered.clone()));
    bench.set_room("uplink", Some(3));
    bench.run(37);
    bench.set_room("uplink", None);
    bench.run(45);
    let mut launched = metered;
    launched.pacer.voids = false;
    bench.reconfigure("launch times", paced(launched));
    bench.run(90);
    bench.finish().compare("pacer");
}

#[test]
fn golden_hose() {
    let mut config = paced(pacing(wire()));
    config.guests[0].coverage = Coverage::LimitedDestinations;
    config.guests[2].coverage = Coverage::LimitedDestinations;
    let mut bench = Bench::new(&config, guests(70));
    bench.run(5);
    bench.sample();
    let mbit = |mbit| Some(Rate::from_mbit(mbit));
    bench.limit(0, FAR, mbit(5));
    bench.run(12);
    bench.limit(0, B, mbit(1));
    bench.limit(1, far(2), mbit(1));
    bench.run(20);
    bench.limit(0, FAR, Some(Rate(0)));
    bench.run(28);
    bench.limit(0, FAR, mbit(12));
    bench.limit(1, far(2), Some(Rate(400_000)));
    bench.run(36);
    bench.limit(1, far(2), mbit(3));
    bench.limit(1, FAR, Some(Rate(0)));
    bench.run(44);
    bench.limit(0, FAR, mbit(2));
    bench.run(52);
    bench.limit(0, FAR, None);
    bench.limit(1, FAR, None);
    bench.run(100);
    bench.finish().compare("hose");
}

#[test]
fn golden_reload() {
    let mut bench = Bench::new(&queued(), guests(110));
    bench.run(8);
    bench.reconfigure("paced", paced(pacing(wire())));
    bench.run(16);
    let mut swapped = paced(pacing(wire()));
    let [a, b, _] = &mut swapped.guests[..] else {
        panic!("three guests");
    };
    std::mem::swap(&mut a.guarantee, &mut b.guarantee);
    let before = [a.guarantee, b.guarantee, None];
    bench.reconfigure("the guarantees change places", swapped);
    bench.run(24);
    let mut crowded = paced(pacing(wire()));
    crowded.guests[0].guarantee = Some(guarantee(59, 12_000, 59));
    bench.reconfigure("more than the wire carries", crowded);
    bench.run(28);
    let apply = |bench: &mut Bench, what: &str, guarantees: [Option<Guarantee>; 3]| {
        let guests = (0..3).map(GuestId::first);
        bench.switch.apply(bench.now(), guests.zip(guarantees));
        bench.note(format!("guarantees: {what}"));
    };
    let of_a = Guarantee {
        mark: None,
        ..guarantee(25, 6200, 30)
    };
    let of_c = guarantee(8, 9000, 60);
    apply(&mut bench, "a and c", [Some(of_a), before[1], Some(of_c)]);
    bench.run(36);
    let of_c = guarantee(58, 9000, 60);
    apply(
        &mut bench,
        "c would need more than is left, a has none",
        [None, before[1], Some(of_c)],
    );
    bench.run(44);
    apply(&mut bench, "none", before);
    bench.run(52);
    let faster = PacerConfig {
        link: Rate::from_mbit(90),
        batch: Nanos::from_micros(200),
        ..wire()
    };
    let mut of_faster = paced(pacing(faster));
    of_faster.guests[0].guarantee = None;
    of_faster.guests.swap(0, 2);
    bench.reconfigure(
        "a faster wire, A without a guarantee, ports in another order",
        of_faster,
    );
    bench.run(60);
    bench.reconfigure("queued", queued());
    bench.run(68);
    bench.reconfigure("paced again", paced(pacing(wire())));
    bench.run(76);
    let mut fewer = paced(pacing(wire()));
    fewer.uplink = None;
    bench.reconfigure("no uplink", fewer);
    bench.run(82);
    let mut back = paced(pacing(wire()));
    back.guests.remove(1);
    bench.reconfigure("an uplink again, and B gone", back);
    bench.run(90);
    bench.reconfigure("B back", paced(pacing(wire())));
    bench.run(140);
    bench.finish().compare("reload");
}
