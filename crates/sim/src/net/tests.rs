//! Networks small enough to be computed by hand, and properties of any.

use super::*;
use proptest::prelude::*;
use tailbound_units::{Bytes, Nanos, Rate};

/// Records every arrival.
#[derive(Debug, Default)]
struct Trace(Vec<(Time, NodeId, Frame)>);

impl Observer for Trace {
    fn arrives(&mut self, now: Time, node: NodeId, frame: &Frame) {
        self.0.push((now, node, *frame));
    }
}

const GBIT: u64 = 1_000_000_000;

fn port(rate: u64) -> PortConfig {
    PortConfig {
        rate: Rate(rate),
        latency: Nanos::ZERO,
        propagation: Nanos::ZERO,
        buffer: [None; CLASSES],
    }
}

/// A greedy sender of frames of 1000 B that stops immediately.
fn burst(frames: u64) -> SourceConfig {
    SourceConfig {
        envelope: Envelope {
            rate: Rate(GBIT),
            burst: Bytes(frames * 1000),
            burst_rate: None,
            frame: Bytes(1000),
        },
        pattern: Pattern::Greedy,
        start: Time::ZERO,
        stop: Time::ZERO,
        class: 0,
    }
}

fn flow(source: SourceConfig, path: &[usize]) -> FlowConfig {
    FlowConfig {
        source,
        path: path.to_vec(),
    }
}

fn run(fabric: &Fabric) -> FabricRun {
    let mut run = fabric.start(1);
    run.run(Time::NEVER, &mut ());
    run
}

#[test]
fn each_port_stores_a_frame_before_it_forwards_it() {
    // 1000 B take 8 us, 800 ns and 80 ns. Latency counts before, propagation
    // after.
    let mut fabric = Fabric {
        ports: vec![port(GBIT), port(10 * GBIT), port(100 * GBIT)],
        flows: vec![flow(burst(1), &[0, 1, 2])],
    };
    assert_eq!(run(&fabric).flows()[0].longest, Time(8_880_000));
    fabric.ports[1].latency = Nanos(50);
    fabric.ports[2].propagation = Nanos(7);
    assert_eq!(run(&fabric).flows()[0].longest, Time(8_937_000));
}

#[test]
fn a_burst_waits_where_the_links_become_slower() {
    // Five frames leave the first port every 800 ns and the second every 8 us:
    // the last one at 800 ns + 5 · 8 us.
    let fabric = Fabric {
        ports: vec![port(10 * GBIT), port(GBIT)],
        flows: vec![flow(burst(5), &[0, 1])],
    };
    let run = run(&fabric);
    assert_eq!(run.flows()[0].longest, Time(40_800_000));
    assert_eq!(run.flows()[0].slowest, 4);
    let peaks: Vec<_> = run.ports().map(|port| port.peak[0]).collect();
    // At 4 us the fifth has come and 3.2 us of the first have been sent: 400 B.
    assert_eq!(peaks, [5000, 4600].map(|bytes| bytes * 8_000_000_000_000));
}

#[test]
fn a_port_serves_frames_in_arrival_order() {
    // The second sender comes while the first frame of the first is on the wire,
    // the third together with it.
    let mut fabric = Fabric {
        ports: vec![port(8 * GBIT)],
        flows: vec![
            flow(burst(2), &[0]),
            flow(burst(1), &[0]),
            flow(burst(1), &[0]),
        ],
    };
    for flow in &mut fabric.flows[1..] {
        flow.source.start = Time(300_000);
        flow.source.stop = Time(300_000);
    }
    let longest: Vec<_> = run(&fabric)
        .flows()
        .iter()
        .map(|flow| flow.longest)
        .collect();
    assert_eq!(longest, [2_000_000, 2_700_000, 3_700_000].map(Time));
}

#[test]
fn guarantees_go_before_best_effort_and_wait_for_one_frame_of_it() {
    let mut fabric = Fabric {
        ports: vec![port(8 * GBIT)],
        flows: vec![flow(burst(4), &[0]), flow(burst(1), &[0])],
    };
    fabric.flows[0].source.class = 1;
    fabric.flows[1].source.start = Time(100_000);
    fabric.flows[1].source.stop = Time(100_000);
    let run = run(&fabric);
    // Begun at 1 us, when the first frame of best effort is out.
    assert_eq!(run.flows()[1].longest, Time(1_900_000));
    assert_eq!(run.flows()[0].longest, Time(5_000_000));
}

#[test]
fn a_full_buffer_drops_and_counts_arriving_frames() {
    let mut fabric = Fabric {
        ports: vec![port(8 * GBIT)],
        flows: vec![flow(burst(5), &[0]), flow(burst(3), &[0])],
    };
    fabric.ports[0].buffer = [Some(Bytes(3_500)), Some(Bytes(1_000))];
    fabric.flows[1].source.class = 1;
    let run = run(&fabric);
    let stats = run.ports().next().unwrap();
    let lost = |frames: u64| Drops {
        frames,
        bytes: Bytes(frames * 1000),
    };
    assert_eq!(stats.dropped, [lost(2), lost(2)]);
    assert_eq!(stats.sent, [3, 1]);
    assert_eq!(stats.peak[0], 3_000 * 8_000_000_000_000);
    assert_eq!(stats.peak_of_all, 4_000 * 8_000_000_000_000);
    assert_eq!(run.flows()[0].frames, 3);
}

#[test]
fn transmission_times_never_drift_at_any_rate() {
    for rate in [1, 7 * GBIT, 999_999_937, 100 * GBIT, 3_333_333_333] {
        let mut wire = Wire::new(Rate(rate));
        let mut sum = 0_u128;
        for size in (64..2_000)
            .cycle()
            .take(if rate == 1 { 20 } else { 10_000 })
        {
            sum += size * 8_000_000_000_000;
            let end = wire.send(Time::ZERO, Bytes(size as u64));
            // The last end is rounded down to a picosecond.
            assert_eq!(u128::from(end.0), sum / u128::from(rate));
        }
        // After a pause the remainder is reset.
        let later = Time(wire.send(Time::ZERO, Bytes(1)).0 + 5);
        let size = u128::from(8_000_000_000_000 / rate);
        assert_eq!(u128::from((wire.send(later, Bytes(1)) - later).0), size);
    }
    assert!(Wire::is_whole(Rate(100 * GBIT)) && !Wire::is_whole(Rate(7 * GBIT)));
}

#[test]
fn a_greedy_sender_sends_its_burst_at_its_burst_rate_and_then_its_average() {
    // 4000 B at 8 Gbit/s, 1 Gbit/s on average: frames each 1 us, until burst and
    // what is earned meanwhile are used up; then each 8 us.
    let mut source = burst(4);
    source.envelope.burst_rate = Some(Rate(8 * GBIT));
    source.stop = Time::from(Nanos(40_000));
    let fabric = Fabric {
        ports: vec![port(100 * GBIT)],
        flows: vec![flow(source, &[0])],
    };
    let mut trace = Trace::default();
    fabric.start(1).run(Time::NEVER, &mut trace);
    let sent = trace.0.iter().filter(|(_, node, _)| *node == NodeId(1));
    let sent: Vec<_> = sent
        .map(|(now, _, frame)| (now.0 / 1_000, frame.size.0))
        .collect();
    // At 3 us: 4000 + 375 - 4000. The rest of it goes at 3.375 us.
    let expected = [
        (0, 1000),
        (1000, 1000),
        (2000, 1000),
        (3000, 1000),
        (3375, 375),
    ];
    assert_eq!(sent[..5], expected);
    // 375 B more are earned by 3.375 us + 7.625 us: 4000 B + t·B = 5375 B at 11 us.
    assert_eq!(
        sent[5..],
        [
            (11_000, 1000),
            (19_000, 1000),
            (27_000, 1000),
            (35_000, 1000)
        ]
    );
}

#[test]
fn bursts_repeat_when_the_token_bucket_is_full() {
    let mut source = burst(4);
    source.pattern = Pattern::Bursts { pause: Nanos(500) };
    source.stop = Time::from(Nanos(70_000));
    let fabric = Fabric {
        ports: vec![port(100 * GBIT)],
        flows: vec![flow(source, &[0])],
    };
    let mut trace = Trace::default();
    fabric.start(1).run(Time::NEVER, &mut trace);
    let sent = trace.0.iter().filter(|(_, node, _)| *node == NodeId(1));
    let sent: Vec<_> = sent.map(|(now, _, _)| now.0 / 1_000).collect();
    // 4000 B at 1 Gbit/s: 32 us.
    let times = [0, 32_500, 65_000].iter().flat_map(|time| [*time; 4]);
    assert_eq!(sent, times.collect::<Vec<_>>());
}

/// True if frames conform to an envelope: every interval of them, by the definition.
fn conforms(envelope: &Envelope, frames: &[(Time, Bytes)]) -> bool {
    let bits = |size: u64| u128::from(size) * 8_000_000_000_000;
    (0..frames.len()).all(|first| {
        let mut sum = 0;
        frames[first..].iter().all(|(time, size)| {
            sum += size.0;
            let took = u128::from((*time - frames[first].0).0);
            let under =
                |rate: Rate, burst: Bytes| bits(sum) <= u128::from(rate.0) * took + bits(burst.0);
            under(envelope.rate, envelope.burst)
                && envelope
                    .burst_rate
                    .is_none_or(|rate| under(rate, envelope.frame))
        })
    })
}

#[test]
fn the_checker_of_envelopes_sees_a_picosecond() {
    let mut envelope = burst(2).envelope;
    envelope.burst_rate = Some(Rate(8 * GBIT));
    let frames = |times: [u64; 3]| times.map(|time| (Time(time), Bytes(1000)));
    assert!(conforms(&envelope, &frames([0, 1_000_000, 8_000_000])));
    assert!(!conforms(&envelope, &frames([0, 999_999, 8_000_000])));
    assert!(!conforms(&envelope, &frames([0, 1_000_000, 7_999_999])));
}

fn envelopes() -> impl Strategy<Value = Envelope> {
    (
        1_000_u64..40 * GBIT,
        0..60_000_u64,
        1..9_000_u64,
        prop::option::of(1..20_u64),
    )
        .prop_map(|(rate, burst, frame, fast)| Envelope {
            rate: Rate(rate),
            burst: Bytes(frame + burst),
            burst_rate: fast.map(|fast| Rate(rate * fast)),
            frame: Bytes(frame),
        })
}

fn patterns() -> impl Strategy<Value = Pattern> {
    prop_oneof![
        Just(Pattern::Greedy),
        (0..1_000_000_u64).prop_map(|pause| Pattern::Bursts {
            pause: Nanos(pause)
        }),
        Just(Pattern::Random),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_sender_keeps_to_its_envelope_and_a_greedy_one_uses_it(
        envelope in envelopes(), pattern in patterns(), start in 0..1_000_000_u64, seed: u64,
    ) {
        let mut source = Source::new(
            SourceConfig { envelope, pattern, start: Time(start), stop: Time::NEVER, class: 0 },
            0, 0, seed,
        );
        let mut frames = Vec::new();
        let mut out = Vec::new();
        while frames.len() < 150 && source.poll_at() < Time::NEVER {
            let now = source.poll_at();
            // Bursts without a burst rate are sent in one poll.
            source.poll(now, &mut out);
            frames.extend(out.drain(..).map(|frame| (frame.sent, frame.size)));
        }
        prop_assert!(conforms(&envelope, &frames));
        prop_assert_eq!(frames[0].0, Time(start));
        if pattern == Pattern::Greedy {
            // No frame could have come a picosecond earlier, but for the first
            // and for the rest of the burst and what follows it.
            for (index, _) in frames.iter().enumerate().skip(1) {
                let mut earlier = frames[..=index].to_vec();
                if earlier[index].0 == earlier[index - 1].0 {
                    continue;
                }
                earlier[index].0.0 -= 1;
                earlier[index].1 = envelope.frame;
                prop_assert!(!conforms(&envelope, &earlier), "{index} of {frames:?}");
            }
        }
    }

    #[test]
    fn one_seed_gives_one_outcome_and_frames_of_a_class_keep_their_order(
        sources in prop::collection::vec((envelopes(), patterns(), 0..3_u8, 0..2_u8), 1..6),
        seed: u64,
    ) {
        let fabric = Fabric {
            ports: vec![port(10 * GBIT), port(7 * GBIT), port(40 * GBIT)],
            flows: sources.iter().map(|(envelope, pattern, first, class)| FlowConfig {
                source: SourceConfig {
                    envelope: *envelope,
                    pattern: *pattern,
                    start: Time::ZERO,
                    stop: Time(20_000_000),
                    class: *class,
                },
                path: (usize::from(*first)..3).collect(),
            }).collect(),
        };
        let outcome = || {
            let mut trace = Trace::default();
            let mut run = fabric.start(seed);
            run.run(Time::NEVER, &mut trace);
            (run, trace)
        };
        let (one, trace) = outcome();
        let (other, same) = outcome();
        prop_assert_eq!(&trace.0, &same.0);
        prop_assert_eq!(one.events(), other.events());
        for (flow, sent) in one.flows().iter().zip(one.sent()) {
            prop_assert_eq!(flow.frames, u64::from(sent));
            prop_assert_eq!(flow.overtook, 0);
        }
        // At each port, what came first leaves first: in its class.
        let ports = fabric.flows.len() as u32;
        for at in ports..ports + 2 {
            for class in 0..2 {
                let came: Vec<_> = trace.0.iter()
                    .filter(|(_, node, frame)| node.0 == at && frame.class == class)
                    .map(|(_, _, frame)| (frame.flow, frame.number)).collect();
                let next: Vec<_> = trace.0.iter()
                    .filter(|(_, node, frame)| node.0 == at + 1 && frame.class == class)
                    .filter(|(_, _, frame)| came.contains(&(frame.flow, frame.number)))
                    .map(|(_, _, frame)| (frame.flow, frame.number)).collect();
                prop_assert_eq!(came, next);
            }
        }
    }
}

mod experiments {
    use crate::Threads;
    use crate::net::NetExperiment;
    use crate::testing::{assert_mistakes, assert_outlined};
    use tailbound_experiment::{Experiment as _, Loaded};
    use tailbound_report::{Results, Verdict};
    use tailbound_units::Nanos;

    /// An embedded experiment, with fewer networks.
    fn load(name: &str) -> Loaded<NetExperiment> {
        let source = NetExperiment::CATALOGUE.source(name).unwrap();
        let shorten = |experiment: &mut NetExperiment| {
            if let Some(random) = &mut experiment.random {
                random.networks = 12;
            }
            if let Some(admitted) = &mut experiment.admitted {
                admitted.centres = 1;
                admitted.targeted_runs = 1;
                admitted.shuffles = 1;
                admitted.hosts = 4;
                admitted.time = Nanos(600_000);
            }
        };
        Loaded::parse_changed(&source, shorten).unwrap()
    }

    fn short(name: &str, seed: u64, threads: usize) -> Results {
        load(name)
            .run(seed, &Threads(threads), &mut |_| {})
            .unwrap()
    }

    #[test]
    fn every_experiment_passes_and_its_bytes_depend_on_the_seed_alone() {
        for name in NetExperiment::CATALOGUE.names() {
            let one = short(name, 3, 1);
            assert_eq!(one.verdict, Verdict::Pass, "{}", one.summary(false));
            assert!(tailbound_report::page(&one).is_ok(), "{name}");
            assert_outlined(&load(name), &one);
        }
        let [one, many] = [1, 2].map(|threads| short("random-networks", 3, threads).to_json());
        assert_eq!(one, many);
        assert_ne!(one, short("random-networks", 4, 2).to_json());
    }

    #[test]
    fn a_check_with_an_unknown_name_is_refused_before_the_run() {
        assert_mistakes::<NetExperiment>(
            "silo-figure5",
            r#"
at = ["a"] => at = ["c"]
    unknown variant `c`
of = "violations" => of = "violation"
    did you mean `violations`?
"#,
        );
        assert_mistakes::<NetExperiment>(
            "random-networks",
            r#"
of = "delay_violations" => of = "x"
    unknown value `x`
"#,
        );
        assert_mistakes::<NetExperiment>(
            "admitted-bursts",
            r#"
"locality"]\nat_least => "local"]\nat_least
    unknown variant `local`
of = "lost_frames" => of = "lost.p50"
    unknown series `lost`
"#,
        );
    }
}
