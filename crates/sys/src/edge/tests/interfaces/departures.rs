//! Departures from the BPF qdisc beside those of the exact buckets, for the same arrivals. `make edge-guest` has a
//! kernel with this qdisc.

use super::*;
use crate::departures::Log;
use crate::timer::{now, sleep_until};
use tailbound_units::WireBytes;
use tailbound_units::exact::{BYTE_IN_NANOS, TokenBucket};

const UPLINK: u32 = 78;
/// A station behind the uplink.
const FAR: &str = "02:00:00:00:00:09";
const GUARANTEED: Bucket = Bucket {
    rate: Rate::from_mbit(100),
    burst: Bytes(15_000),
};
const PEAK: Rate = Rate::from_mbit(1_000);
const FULL_FRAME: u64 = 1_538;
/// Bursts, the frames of each, and the pause between two.
const BURSTS: usize = 3;
const FRAMES: usize = 100;
const BURST_INTERVAL: Nanos = Nanos::from_millis(6);
/// Payloads, in turns.
const PAYLOADS: [usize; 3] = [1_472, 18, 700];
/// The longest delay behind the buckets, by a timer and what else the CPU does.
const MAX_LATENESS: Nanos = Nanos::from_millis(1);

/// A frame: the time before and after its sending, and its bytes on the wire.
#[derive(Debug, Clone, Copy)]
struct Sending {
    before: Nanos,
    after: Nanos,
    wire: u64,
}

impl Net {
    /// Connects the guest with an uplink that has the BPF qdisc; `None` without one.
    fn connect(&self, edge: &mut Edge) -> Option<()> {
        let name = &self.name;
        let guest = self.path("g");
        let silence = || std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
        netns::within(&guest, silence)
            .expect("a namespace")
            .expect("no IPv6");
        for command in [
            format!(
                "ip -n {name}h link add out index {UPLINK} type veth peer name far netns {name}g"
            ),
            format!("ip -n {name}g link set far up"),
            format!("ip -n {name}h link set out up"),
            format!(
                "ip -n {name}h link add switch type bridge stp_state 0 forward_delay 0 mcast_snooping 0"
            ),
            format!("ip -n {name}h link set switch up"),
            format!("ip -n {name}h link set port master switch"),
            format!("ip -n {name}h link set out master switch"),
            format!("bridge -n {name}h fdb replace {FAR} dev out master static"),
            format!("ip -n {name}g neigh replace 10.9.0.9 lladdr {FAR} dev eth0"),
        ] {
            assert!(run(&command), "{command}");
        }
        let queue = UplinkRules {
            mark: 0,
            queue: UplinkQueue::Bpf,
        };
        if let Err(error) = self.host(|| edge.attach_uplink(UPLINK, &queue)) {
            assert!(
                error.to_string().contains("this kernel has no bpf_"),
                "{error}"
            );
            return None;
        }
        let rules = GuestRules {
            guarantee: Some(Guarantee {
                bucket: GUARANTEED,
                peak: Some(PEAK),
                frame: Bytes(FULL_FRAME),
                packet: None,
            }),
            ..rules()
        };
        let attached = self.host(|| edge.attach_guest(INDEX, &rules));
        attached.expect("an interface");
        Some(())
    }
}

/// Sends all bursts.
fn send(sender: &UdpSocket) -> Vec<Sending> {
    let mut all = Vec::new();
    for _ in 0..BURSTS {
        for at in 0..FRAMES {
            let payload = PAYLOADS[at % PAYLOADS.len()];
            let before = now();
            sender.send(&vec![0; payload]).expect("a route");
            let (after, wire) = (now(), (payload as u64 + 42).max(60) + 24);
            all.push(Sending {
                before,
                after,
                wire,
            });
        }
        sleep_until(now() + BURST_INTERVAL);
    }
    all
}

/// Returns the departures of frames that arrive at these times, from full buckets that are charged at departures.
fn exact(frames: &[Sending], arrival: impl Fn(&Sending) -> Nanos) -> Vec<Nanos> {
    let full = |rate, burst| {
        let bucket = TokenBucket::<Nanos>::new(BYTE_IN_NANOS, rate, WireBytes(burst));
        bucket.expect("a rate").full()
    };
    let mut buckets = [
        full(GUARANTEED.rate, GUARANTEED.burst.0),
        full(PEAK, FULL_FRAME),
    ];
    let mut last = Nanos::ZERO;
    let frames = frames.iter().map(|frame| {
        let wire = WireBytes(frame.wire);
        let from = arrival(frame).max(last);
        let times = buckets.map(|bucket| bucket.leaves(from, wire));
        last = times[0].max(times[1]);
        for bucket in &mut buckets {
            bucket.charge(last, wire);
        }
        last
    });
    frames.collect()
}

#[test]
fn departures_of_the_bpf_qdisc_are_those_of_the_exact_buckets() {
    let Some(net) = Net::new() else { return };
    let Some(mut edge) = net.open() else { return };
    if net.connect(&mut edge).is_none() {
        return;
    }
    let mut log = Log::load(1_024).expect("a tracepoint");
    log.watch(UPLINK).expect("room");
    let guest = net.path("g");
    let sender = netns::within(&guest, || UdpSocket::bind((OWN, 9)).expect("an address"));
    let sender = sender.expect("a namespace");
    sender.connect("10.9.0.9:9").expect("a route");
    let (mut sent, mut left) = (Vec::new(), Vec::new());
    // The first round meets code that nothing has used yet.
    for _ in 0..2 {
        sleep_until(now() + Nanos::from_millis(50));
        log.clear().expect("a map");
        sent = send(&sender);
        sleep_until(now() + Nanos::from_millis(50));
        left = log.read().expect("a map");
    }
    left.retain(|it| it.interface == UPLINK);
    let lengths: Vec<_> = left.iter().map(|it| it.len.0.max(60) + 24).collect();
    let expected: Vec<_> = sent.iter().map(|it| it.wire).collect();
    assert_eq!(lengths, expected, "all frames, in their order");
    let earliest = exact(&sent, |frame| frame.before);
    let latest = exact(&sent, |frame| frame.after);
    let mut most = Nanos::ZERO;
    for (number, it) in left.iter().enumerate() {
        let (earliest, latest) = (earliest[number], latest[number]);
        assert!(
            it.time >= earliest,
            "{number}: {} before {earliest}",
            it.time
        );
        most = most.max(it.time.saturating_sub(latest));
    }
    assert!(most <= MAX_LATENESS, "{most} behind the buckets");
    // Many frames waited, so the buckets decided.
    let delayed = sent.iter().zip(&earliest);
    let delayed = delayed.filter(|(sent, leaves)| **leaves > sent.before);
    assert!(delayed.count() > sent.len() / 4);
    println!(
        "{} departures, at most {most} behind the buckets",
        left.len()
    );
}
