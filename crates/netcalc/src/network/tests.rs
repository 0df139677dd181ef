use super::*;
use crate::testing::ratio;

mod properties;
mod published;
mod simulated;

/// A port without a buffer.
fn port(name: &str, rate: Rate, latency: Nanos) -> Port {
    Port {
        name: name.to_owned(),
        rate,
        latency,
        buffer: None,
    }
}

/// A flow of the first priority with an unlimited burst rate.
fn flow(name: &str, path: &[PortId], rate: Rate, burst: Bytes) -> Flow {
    Flow {
        name: name.to_owned(),
        path: path.to_vec(),
        rate,
        burst,
        burst_rate: None,
        priority: 0,
        deadline: None,
    }
}

/// Ports in a row, of 1 Mbit/s each.
fn row(count: usize) -> (Network, Vec<PortId>) {
    let mut network = Network::new(Bytes(0), true);
    let rate = Rate::from_mbit(1);
    let ports =
        (0..count).map(|index| network.add_port(port(&format!("p{index}"), rate, Nanos(0))));
    let ports = ports.collect();
    (network, ports)
}

#[test]
fn a_cycle_is_refused_and_named() {
    let (mut network, ports) = row(5);
    let paths: [(&str, &[usize]); 4] = [
        ("in", &[0, 1]),
        ("first", &[1, 2, 3]),
        ("second", &[3, 1]),
        ("out", &[3, 4]),
    ];
    for (name, path) in paths {
        let path: Vec<_> = path.iter().map(|&index| ports[index]).collect();
        network.add_flow(flow(name, &path, Rate(1), Bytes(1)));
    }
    let error = network.bounds().unwrap_err();
    let NetworkError::Cycle { ports, flow, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(ports.len(), 3, "{ports:?}");
    let steps: Vec<_> = (0..3)
        .map(|i| (ports[i].as_str(), ports[(i + 1) % 3].as_str()))
        .collect();
    for step in [("p1", "p2"), ("p2", "p3"), ("p3", "p1")] {
        assert!(steps.contains(&step), "{steps:?}");
    }
    assert!(["first", "second"].contains(&flow.as_str()));
    assert!(error.to_string().contains("p1 -> p2"), "{error}");
}

#[test]
fn a_port_that_feeds_itself_is_a_cycle() {
    let (mut network, ports) = row(1);
    network.add_flow(flow("loop", &[ports[0], ports[0]], Rate(1), Bytes(1)));
    let error = network.bounds().unwrap_err().to_string();
    assert!(error.contains("cycle: p0 -> p0;"), "{error}");
}

#[test]
fn a_hundred_thousand_ports_in_a_row_need_no_stack() {
    let (mut network, ports) = row(100_000);
    network.add_flow(flow("long", &ports, Rate(1_000), Bytes(125)));
    let bounds = network.bounds().unwrap();
    // 1000 bits at 1 Mbit/s take 1 ms; after the first link they come no faster
    // than they leave again.
    assert_eq!(
        bounds.flows[0].total_delay,
        Ratio::from(Nanos::from_millis(1))
    );
    assert_eq!(bounds.flows[0].delay(), Ratio::from(Nanos::from_millis(1)));
}

#[test]
fn a_cycle_of_a_hundred_thousand_ports_is_named_in_short() {
    let (mut network, mut ports) = row(100_000);
    ports.push(ports[0]);
    network.add_flow(flow("round", &ports, Rate(1), Bytes(1)));
    let error = network.bounds().unwrap_err().to_string();
    assert!(error.contains("(99992 more) -> "), "{error}");
}

#[test]
fn an_unstable_port_is_named_with_its_excess() {
    let (mut network, ports) = row(2);
    network.add_flow(flow("a", &ports, Rate(700_000), Bytes(1)));
    network.add_flow(flow("b", &ports[1..], Rate(300_007), Bytes(1)));
    let error = network.bounds().unwrap_err().to_string();
    assert_eq!(
        error,
        "port \"p1\" is not stable: flows of 1000007 bit/s in all come to a link of 1Mbit/s, 7 \
         bit/s too many; set a higher rate or fewer flows"
    );
}

#[test]
fn a_full_port_still_has_bounds() {
    let (mut network, ports) = row(1);
    network.add_flow(flow("a", &ports, Rate(700_000), Bytes(250)));
    network.add_flow(flow("b", &ports, Rate(300_000), Bytes(1_000)));
    let bounds = network.bounds().unwrap();
    assert_eq!(bounds.flows[0].delay(), Ratio::from(Nanos::from_millis(10)));
    assert_eq!(bounds.ports[0].backlog, Ratio::from(Bytes(1_250)));
}

#[test]
fn bounds_beyond_counting_are_an_error_at_their_port() {
    // Two flows on their own links meet again and again, with bursts that grow
    // each time.
    let mut network = Network::new(Bytes(0), false);
    let rate = Rate(1_000_000_000_000_000);
    let add = |network: &mut Network, name: String| {
        network.add_port(port(&name, rate, Nanos::from_secs(1)))
    };
    let mut paths = [Vec::new(), Vec::new()];
    for turn in 0..200 {
        let shared = add(&mut network, format!("s{turn}"));
        for (index, path) in paths.iter_mut().enumerate() {
            path.push(shared);
            path.push(add(&mut network, format!("own{index}.{turn}")));
        }
    }
    for (index, path) in paths.iter().enumerate() {
        let half = Rate(rate.0 / 2);
        network.add_flow(flow(&format!("f{index}"), path, half, Bytes(1_000_000)));
    }
    let error = network.bounds().unwrap_err();
    assert!(matches!(error, NetworkError::Overflow { .. }), "{error}");
}

#[test]
fn bursts_of_one_link_cannot_meet_again() {
    // Two flows share three links. Their bursts queue at the first one only.
    let (mut network, ports) = row(3);
    network.add_flow(flow("a", &ports, Rate(1_000), Bytes(125)));
    network.add_flow(flow("b", &ports, Rate(1_000), Bytes(250)));
    let bounds = network.bounds().unwrap();
    let delays: Vec<_> = bounds
        .ports
        .iter()
        .map(|port| port.classes[0].delay)
        .collect();
    assert_eq!(
        delays,
        [Ratio::from(Nanos::from_millis(3)), Ratio::ZERO, Ratio::ZERO]
    );
}

#[test]
fn whole_frames_are_stored_before_they_are_forwarded() {
    // One frame of 125 B, 1 ms on each of three links.
    let mut network = Network::new(Bytes(125), true);
    let rate = Rate::from_mbit(1);
    let ports: Vec<_> = ["a", "b", "c"]
        .iter()
        .map(|name| network.add_port(port(name, rate, Nanos(0))))
        .collect();
    network.add_flow(flow("one", &ports, Rate(10), Bytes(125)));
    let bounds = network.bounds().unwrap();
    // And the flow's own next bits: 10 bit/s for some milliseconds.
    let delay = bounds.flows[0].delay();
    assert!(delay >= Ratio::from(Nanos::from_millis(3)), "{delay:?}");
    assert!(delay < Ratio::from(Nanos(3_001_000)), "{delay:?}");
}

#[test]
fn the_first_priority_waits_for_one_frame_of_the_second_and_not_for_its_burst() {
    let mut network = Network::new(Bytes(125), true);
    let id = network.add_port(port("p", Rate::from_mbit(1), Nanos(0)));
    network.add_flow(flow("fast", &[id], Rate(100_000), Bytes(250)));
    network.add_flow(Flow {
        priority: 1,
        ..flow("slow", &[id], Rate(100_000), Bytes(12_500))
    });
    let bounds = network.bounds().unwrap();
    // 250 B and a frame of 125 B: 3 ms.
    assert_eq!(bounds.flows[0].delay(), Ratio::from(Nanos::from_millis(3)));
    // 12,750 B at what 900 kbit/s leave: 340/3 ms.
    let second = bounds.ports[0].classes[1];
    assert_eq!(second.delay, ratio(340_000_000, 3));
    assert_eq!(
        bounds.flows[1].delay(),
        second.delay.round_up(1_000).unwrap()
    );
    // Together they wait for no more than both their bursts.
    assert_eq!(bounds.ports[0].backlog, Ratio::from(Bytes(12_750)));
}

/// Silo's figure 7: a flow of half the link and a burst of one packet comes out of a port, at which
/// one of a quarter meets it, with a burst of two.
#[test]
fn a_port_doubles_the_burst_of_a_flow_that_meets_another() {
    const PACKET: Bytes = Bytes(1500);
    let link = Rate::from_mbit(10_000);
    let mut network = Network::new(PACKET, false);
    let [first, next] = ["s1", "next"].map(|name| network.add_port(port(name, link, Nanos(0))));
    network.add_flow(flow("f1", &[first, next], Rate(link.0 / 2), PACKET));
    network.add_flow(flow("f2", &[first], Rate(link.0 / 4), PACKET));
    let bounds = network.bounds().unwrap();
    assert_eq!(
        bounds.ports[next.index()].backlog,
        Ratio::from(PACKET + PACKET)
    );
}

#[test]
fn a_class_at_a_port_has_the_rates_of_its_flows_as_its_load() {
    let (mut network, ports) = row(1);
    network.add_flow(flow("a", &ports, Rate(300_000), Bytes(1)));
    network.add_flow(flow("b", &ports, Rate(200_000), Bytes(1)));
    let bounds = network.bounds().unwrap();
    let loads: Vec<_> = bounds.ports[0].classes.iter().map(|it| it.load).collect();
    assert_eq!(loads, [Ratio::from(Rate(500_000))]);
    assert!(network.has_line_limit());
    assert!(!Network::new(Bytes(0), false).has_line_limit());
}

#[test]
#[should_panic(expected = "a path is of this network")]
fn a_port_of_another_network_is_on_no_path() {
    let (_, others) = row(2);
    let (mut network, _) = row(1);
    network.add_flow(flow("a", &others[1..], Rate(1), Bytes(1)));
}

#[test]
fn one_frame_of_a_link_waits_at_the_next_port_of_the_same_rate() {
    let frame = Bytes(125);
    let mut network = Network::new(frame, true);
    let ports = ["a", "b"].map(|name| network.add_port(port(name, Rate::from_mbit(1), Nanos(0))));
    network.add_flow(flow("ten frames", &ports, Rate(10), Bytes(1_250)));
    let bounds = network.bounds().unwrap();
    let backlogs: Vec<_> = bounds.ports.iter().map(|port| port.backlog).collect();
    assert_eq!(backlogs, [Bytes(1_250), frame].map(Ratio::from));
}

/// Two flows share three ports: the burst of the other one delays a flow at one of them only.
#[test]
fn cross_traffic_over_several_ports_counts_where_it_joins() {
    let mut network = Network::new(Bytes(0), false);
    let rate = Rate(1_001_000);
    let ports = ["a", "b", "c"].map(|name| network.add_port(port(name, rate, Nanos(0))));
    network.add_flow(flow("one", &ports, Rate(1_000), Bytes(125)));
    network.add_flow(flow("other", &ports, Rate(1_000), Bytes(250)));
    let bounds = network.bounds().unwrap();
    // 375 B at what the other one's rate leaves of the link.
    assert_eq!(bounds.flows[0].delay(), Ratio::from(Nanos::from_millis(3)));
}
