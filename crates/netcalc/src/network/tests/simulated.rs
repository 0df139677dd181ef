//! Frames on links, against the bounds.

use super::properties::{Plan, plans};
use super::*;
use proptest::prelude::*;

/// A frame: when its last bit comes, its flow, when it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Frame {
    comes: u128,
    flow: usize,
    sent: u128,
}

/// Returns the time of `bytes` at `rate` in picoseconds, rounded down. A wire that is faster by the
/// rounding must keep the bounds of the slower one, too.
fn wire(bytes: u64, rate: u64) -> u128 {
    u128::from(bytes) * 8_000_000_000_000 / u128::from(rate)
}

/// Returns the frames of a flow: each at the earliest permitted time, `pauses` nanoseconds after
/// the one before. Without pauses the sender is greedy.
fn send(flow: &Flow, index: usize, frame: u64, start: u128, pauses: &[u64]) -> Vec<Frame> {
    let mut times: Vec<u128> = Vec::new();
    for pause in pauses {
        let mut comes = times.last().copied().unwrap_or(start) + u128::from(*pause) * 1_000;
        // Both buckets must allow what comes from any frame up to this one.
        for (back, earlier) in times.iter().rev().enumerate() {
            let more = (back as u64 + 1) * frame;
            let over = (more + frame).saturating_sub(flow.burst.0);
            // One later, as waits are rounded down: a source that is early would
            // not keep to its curve.
            comes = comes.max(earlier + wire(over, flow.rate.0) + u128::from(over > 0));
            if let Some(fast) = flow.burst_rate {
                comes = comes.max(earlier + wire(more, fast.0) + 1);
            }
        }
        times.push(comes);
    }
    let frames = times.into_iter().map(|comes| Frame {
        comes,
        flow: index,
        sent: comes,
    });
    frames.collect()
}

/// Sends what comes to a port: by priority, then first come, first served; a
/// frame on the wire is not interrupted.
fn serve(network: &Network, id: usize, mut queue: Vec<Frame>) -> Vec<Frame> {
    let port = &network.ports[id];
    let latency = u128::from(port.latency.0) * 1_000;
    let takes = wire(network.frame.0, port.rate.0);
    queue.sort();
    let mut left = Vec::new();
    let mut free = 0;
    while !queue.is_empty() {
        let start = free.max(queue[0].comes + latency);
        let ready = queue
            .iter()
            .enumerate()
            .filter(|(_, frame)| frame.comes + latency <= start);
        let next = ready.min_by_key(|(place, frame)| (network.flows[frame.flow].priority, *place));
        let mut frame = queue.remove(next.map_or(0, |(place, _)| place));
        free = start + takes;
        frame.comes = free;
        left.push(frame);
    }
    left
}

/// The longest delay of each flow, in picoseconds.
fn simulate(network: &Network, starts: &[u64], pauses: &[u64]) -> Vec<u128> {
    let frame = network.frame.0;
    let mut at_port = vec![Vec::new(); network.ports.len()];
    for (index, flow) in network.flows.iter().enumerate() {
        let start = u128::from(starts[index % starts.len()]) * 1_000;
        at_port[flow.path[0].0].extend(send(flow, index, frame, start, pauses));
    }
    let mut longest = vec![0; network.flows.len()];
    for id in 0..network.ports.len() {
        for frame in serve(network, id, std::mem::take(&mut at_port[id])) {
            let path = &network.flows[frame.flow].path;
            let place = path.iter().position(|port| port.0 == id).unwrap();
            match path.get(place + 1) {
                Some(next) => at_port[next.0].push(frame),
                None => longest[frame.flow] = longest[frame.flow].max(frame.comes - frame.sent),
            }
        }
    }
    longest
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn no_frame_is_later_than_its_bounds(
        plan in plans(), starts in prop::collection::vec(0..2_000_000_u64, 7), spare in 0..30_u64,
        pauses in prop::collection::vec(prop_oneof![5 => Just(0), 1 => 0..20_000_000_u64], 25),
    ) {
        let plan = Plan { frame: 1_000, ..plan };
        let network = plan.network(spare * 1_000_000);
        let bounds = network.bounds().unwrap();
        let together: &[u64] = &[0];
        let greedy: &[u64] = &[0; 25];
        for (starts, pauses) in [(together, greedy), (&starts, greedy), (&starts, &pauses)] {
            let longest = simulate(&network, starts, pauses);
            for (longest, bounds) in longest.into_iter().zip(bounds.flows.iter()) {
                // Rounding times to picoseconds may cost one at each step.
                let longest = Ratio::new(longest.cast_signed() - 100, 1_000).unwrap();
                prop_assert!(longest <= bounds.total_delay, "total: {longest:?} {bounds:?}");
                prop_assert!(longest <= bounds.separated_delay, "separated: {longest:?} {bounds:?}");
                prop_assert!(longest <= bounds.concatenated_delay, "concatenated: {longest:?} {bounds:?}");
            }
        }
    }
}

#[test]
fn the_worst_case_of_one_queue_is_reached() {
    let mut network = Network::new(Bytes(1_000), true);
    let id = network.add_port(port("p", Rate::from_mbit(8), Nanos::from_micros(70)));
    for burst in [2_000, 5_000] {
        let name = format!("f{burst}");
        network.add_flow(flow(&name, &[id], Rate(1_000_000), Bytes(burst)));
    }
    let bound = network.bounds().unwrap().flows[1].delay();
    let longest = Ratio::new(simulate(&network, &[0], &[0; 25])[1].cast_signed(), 1_000).unwrap();
    assert_eq!(bound, Ratio::from(Nanos::from_micros(7_070)));
    assert_eq!(longest, bound);
}
