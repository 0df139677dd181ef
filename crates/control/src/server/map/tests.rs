use super::*;
use crate::ledger::{Call, Command};
use proptest::prelude::*;
use tailbound_api::{NewTenant, VmLimit};
use tailbound_placement::{Policy, Spec, Uniform, UplinkSpec};
use tailbound_units::{Bytes, Nanos, Rate};

/// The topology that the documentation shows.
const TWO_PODS: &str = include_str!("../../../../../experiments/topologies/two-pods.toml");

fn two_pods() -> Ledger {
    let spec = Spec::from_toml(TWO_PODS).unwrap();
    Ledger::new(spec, Policy::Silo).unwrap().0
}

fn call(command: Command) -> Call {
    Call::of_service(command)
}

/// Creates a tenant, and returns whether it was admitted.
fn create(ledger: &mut Ledger, name: &str, vms: u32) -> bool {
    let guarantee = r#"{"bandwidth":"300Mbit/s","burst":"5KB","burst_rate":"1Gbit/s"}"#;
    create_with(ledger, name, vms, guarantee)
}

/// Does the same with this guarantee.
fn create_with(ledger: &mut Ledger, name: &str, vms: u32, guarantee: &str) -> bool {
    let command = Command::Create(NewTenant {
        name: name.to_owned(),
        owner: Some("acme".to_owned()),
        vms,
        guarantee: Some(serde_json::from_str(guarantee).unwrap()),
        cpu: 0,
        memory: Bytes::ZERO,
        domains: None,
        cpu_reservation: None,
        message: None,
        limit: VmLimit::default(),
        placement: Vec::new(),
    });
    ledger.decide(&call(command), Nanos::ZERO).is_ok()
}

fn show(ledger: &Ledger, name: &str, depth: u8) -> MapNode {
    map(ledger, ledger.node(name).unwrap(), depth)
}

fn set(ledger: &mut Ledger, node: &str, state: HostState) {
    let node = node.to_owned();
    let call = call(Command::SetHosts { node, state });
    let _ = ledger.decide(&call, Nanos::ZERO).unwrap();
}

#[test]
fn the_sample_is_as_its_comments_say() {
    let ledger = two_pods();
    let top = show(&ledger, "core", 3);
    assert_eq!((top.counts.hosts, top.slots, top.used), (74, 632, 0));
    assert_eq!(top.children.len(), 2);
    assert_eq!((top.headroom, top.least), (1000, 1000));
    let topology = ledger.datacentre().topology();
    let node = |name| ledger.node(name).unwrap();
    for (from, to, micros) in [
        ("a-1", "a-2", 290),
        ("a-1", "b-1", 690),
        ("a-1", "e-1", 1010),
    ] {
        let delay = topology.delay(node(from), node(to));
        assert_eq!(delay, Nanos(micros * 1000), "{from} to {to}");
    }
    let port = |name| {
        ledger.port(PortId {
            node: node(name),
            direction: Direction::Up,
        })
    };
    assert_eq!(port("store").rate_bit_s, 20_000_000_000, "both NICs");
    assert_eq!(port("pod1").rate_bit_s, 100_000_000_000, "one of two links");
}

#[test]
fn a_map_is_as_deep_as_was_asked_for() {
    let ledger = two_pods();
    let alone = show(&ledger, "rack8", 0);
    assert!(alone.children.is_empty());
    assert_eq!((alone.counts.hosts, alone.slots), (4, 64));
    assert_eq!(alone.ports.len(), 2, "those of the node asked for");
    let pods = show(&ledger, "core", 1);
    assert!(pods.ports.is_empty(), "the core has none");
    assert!(
        pods.children
            .iter()
            .all(|pod| pod.children.is_empty() && pod.ports.is_empty())
    );
    let racks = show(&ledger, "core", 2);
    assert!(racks.children.iter().all(|pod| pod.ports.len() == 2));
    let all = show(&ledger, "core", 9);
    let hosts: usize = all
        .children
        .iter()
        .flat_map(|pod| &pod.children)
        .map(|rack| rack.children.len())
        .sum();
    assert_eq!(hosts, 74);
    assert_eq!(show(&ledger, "a-1", 3).ports[1].name, "a-1 down");
}

#[test]
fn no_more_nodes_are_listed_than_a_browser_draws() {
    let link = |rate| UplinkSpec {
        rate: Rate(rate),
        links: 1,
        spread: tailbound_placement::Spread::default(),
        buffer: Bytes(300_000),
        up_buffer: None,
        shared_buffer: Bytes::ZERO,
    };
    let spec = Uniform {
        pods: 10,
        racks: 25,
        hosts: 40,
        slots: 4,
        host_link: link(10_000_000_000),
        rack_link: link(40_000_000_000),
        pod_link: link(100_000_000_000),
        frame: Bytes(1538),
    };
    let ledger = Ledger::new(spec.spec(), Policy::Silo).unwrap().0;
    let top = show(&ledger, "core", 3);
    assert_eq!(top.counts.hosts, 10_000);
    assert!(
        top.children
            .iter()
            .all(|pod| pod.children.iter().all(|rack| rack.children.is_empty()))
    );
    let pod = show(&ledger, "pod3", 3);
    assert_eq!(
        pod.children[0].children.len(),
        40,
        "a pod has room for its hosts"
    );
}

#[test]
fn closed_hosts_still_count_their_running_vms() {
    let mut ledger = two_pods();
    assert!(create(&mut ledger, "web", 40));
    let before = show(&ledger, "core", 2);
    assert_eq!(before.used, 40);
    assert!(before.least < 1000);
    set(&mut ledger, "rack1", HostState::Drained);
    set(&mut ledger, "a-1", HostState::Failed);
    let after = show(&ledger, "core", 3);
    assert_eq!((after.used, after.least), (40, before.least));
    assert_eq!(after.state, None, "some are closed");
    let pod = &after.children[0];
    assert_eq!(
        (pod.state, pod.children[0].state),
        (None, None),
        "drained and failed ones"
    );
    assert_eq!(pod.children[0].children[0].state, Some(HostState::Failed));
    assert_eq!(pod.children[0].children[1].state, Some(HostState::Drained));
    assert_eq!(pod.children[1].state, Some(HostState::Open));
}

#[test]
fn a_path_goes_up_and_leaves_the_core_out() {
    let ledger = two_pods();
    let topology = ledger.datacentre().topology();
    let of = |name| path(topology, ledger.node(name).unwrap());
    assert_eq!(of("store"), ["rack4", "pod1"]);
    assert_eq!(of("pod1"), [""; 0]);
    assert_eq!(of("core"), [""; 0]);
}

/// Compares a map's numbers of each node with those of its hosts and ports.
fn check(ledger: &Ledger, drawn: &MapNode) {
    let topology = ledger.datacentre().topology();
    let node = ledger.node(&drawn.name).unwrap();
    let below = |host: &&NodeId| topology.is_below(**host, node);
    let hosts: Vec<NodeId> = topology.hosts().iter().filter(below).copied().collect();
    assert_eq!(drawn.counts.hosts as usize, hosts.len(), "{}", drawn.name);
    let used: u32 = hosts.iter().map(|host| ledger.used(*host)).sum();
    assert_eq!(drawn.used, used, "{}", drawn.name);
    let headroom = |node| {
        let both = [Direction::Up, Direction::Down];
        both.map(|direction| ledger.port(PortId { node, direction }).headroom)
    };
    let mut least = 1000;
    for height in 0..topology.height(NodeId::TOP) {
        for inside in topology
            .at_height(height)
            .iter()
            .filter(|inside| topology.is_below(**inside, node))
        {
            least = least.min(headroom(*inside)[0]).min(headroom(*inside)[1]);
        }
    }
    assert_eq!(drawn.least, least, "{}", drawn.name);
    if node != NodeId::TOP {
        assert_eq!(drawn.headroom, headroom(node)[0].min(headroom(node)[1]));
    }
    for child in &drawn.children {
        check(ledger, child);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn every_map_node_aggregates_its_hosts_and_ports(
        sizes in prop::collection::vec(1_u32..60, 0..12),
        closed in prop::collection::vec((0_usize..74, any::<bool>()), 0..6),
        depth in 0_u8..4,
    ) {
        let mut ledger = two_pods();
        for (index, vms) in sizes.into_iter().enumerate() {
            create(&mut ledger, &format!("t{index}"), vms);
        }
        for (host, failed) in closed {
            let topology = ledger.datacentre().topology();
            let name = topology.name(topology.hosts()[host]).to_owned();
            set(&mut ledger, &name, if failed { HostState::Failed } else { HostState::Drained });
        }
        check(&ledger, &show(&ledger, "core", depth));
    }
}

#[test]
fn hosts_with_little_headroom_are_counted_in_all_that_they_are_in() {
    let mut ledger = two_pods();
    assert_eq!(show(&ledger, "core", 3).counts.tight, 0);
    let mut tenants = 0;
    let guarantee = r#"{"bandwidth":"1150Mbit/s","burst":"1538B"}"#;
    while create_with(&mut ledger, &format!("t{tenants}"), 16, guarantee) {
        tenants += 1;
    }
    let top = show(&ledger, "core", 9);
    let hosts = |node: &MapNode| {
        let racks = node.children.iter().flat_map(|pod| &pod.children);
        let hosts = racks.flat_map(|rack| &rack.children);
        hosts.filter(|host| host.headroom < 100).count() as u32
    };
    assert!(top.counts.tight > 0, "{tenants} tenants");
    assert_eq!(top.counts.tight, hosts(&top));
    let pods: u32 = top.children.iter().map(|pod| pod.counts.tight).sum();
    assert_eq!(pods, top.counts.tight);
}
