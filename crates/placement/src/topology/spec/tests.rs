use super::*;
use proptest::prelude::*;
use tailbound_document::testing::assert_refused;

const UNEVEN: &str = r#"
frame = "1538B"

[[group]]
name = "rack-a"
parent = "pod"
uplink = { rate = "40Gbit/s", links = 2, spread = "frame", buffer = "500KB" }

[[group]]
name = "pod"
uplink = { rate = "100Gbit/s", buffer = "1MB" }

[[host]]
name = "a"
group = "rack-a"
count = 3
slots = 8
cpu = 16000
memory = "64GiB"
uplink = { rate = "10Gbit/s", buffer = "300KB", up_buffer = "62500B" }

[[host]]
name = "old"
group = "rack-a"
slots = 2
uplink = { rate = "1Gbit/s", buffer = "100KB" }

[[host]]
name = "storage"
slots = 4
uplink = { rate = "25Gbit/s", links = 2, buffer = "300KB" }
"#;

#[test]
fn an_uneven_tree_is_built_from_a_file() {
    let tree = Spec::from_toml(UNEVEN).unwrap().build().unwrap();
    let node = |name: &str| tree.find(name).unwrap();
    assert_eq!(tree.hosts().len(), 5);
    assert_eq!(tree.resources(NodeId::TOP).slots, 30);
    assert_eq!(tree.height(node("pod")), 2);
    assert_eq!(tree.parent(node("storage")), Some(NodeId::TOP));
    assert_eq!(tree.meeting(node("a-1"), node("old")), node("rack-a"));
    assert_eq!(tree.meeting(node("a-1"), node("storage")), NodeId::TOP);
    let port = |name: &str, direction| {
        *tree.port(super::super::PortId {
            node: node(name),
            direction,
        })
    };
    let up = port("a-1", super::super::Direction::Up);
    assert_eq!(
        (up.rate, up.capacity, up.feed),
        (10_000_000_000, Nanos::from_micros(50), None)
    );
    // Both links of the rack, for frames are spread; two of a host by flow are
    // no more than one.
    assert_eq!(
        port("rack-a", super::super::Direction::Up).rate,
        80_000_000_000
    );
    assert_eq!(
        port("storage", super::super::Direction::Up).rate,
        25_000_000_000
    );
    // To a-1: from a-2, a-3, old, and both links above.
    let feed = port("a-1", super::super::Direction::Down).feed.unwrap();
    assert_eq!(feed.rate, 101_000_000_000);
    assert_eq!(feed.burst, 5 * 1_538 * 8);
    // 50 us at a's NIC, 100 at the rack; down 80 at the pod, 100 at the rack,
    // 800 to the old one; what a file says in bytes.
    assert_eq!(
        tree.delay(node("a-1"), node("old")),
        Nanos::from_micros(50 + 800)
    );
    assert_eq!(
        tree.delay(node("storage"), node("a-1")),
        Nanos::from_micros(96 + 80 + 100 + 240)
    );
}

#[test]
fn a_description_is_the_same_in_json() {
    let spec = Spec::from_toml(UNEVEN).unwrap();
    let json = serde_json::to_string(&spec).unwrap();
    assert_eq!(serde_json::from_str::<Spec>(&json).unwrap(), spec);
}

/// Returns the error for the tree with one change.
fn wrong(from: &str, to: &str) -> String {
    assert!(UNEVEN.contains(from));
    build(&UNEVEN.replacen(from, to, 1))
        .unwrap_err()
        .to_string()
}

fn build(text: &str) -> Result<Topology, SpecError> {
    Spec::from_toml(text).and_then(|spec| spec.build())
}

#[test]
fn each_mistake_has_its_message() {
    assert_refused(
        UNEVEN,
        build,
        r#"
name = "old" => name = "pod"
    the name "pod" is there twice
name = "old" => name = "a-2"
    the name "a-2" is there twice
parent = "pod" => parent = "dop"
    "rack-a" has the group "dop"
parent = "pod" => parent = "rack-a"
    the group "rack-a" contains itself
parent = "pod"\n =>
    the group "pod" has no hosts
slots = 2 => slots = 0
    "old": number of slots of 0 is not between 1
slots = 2 => slots = 2\ncolour = 1
    26:1: unknown key `colour`
"1Gbit/s" => "1bit/s"
    "old": link rate of 1bit/s is not between
"1MB" => "1KB"
    "pod": buffer of 1KB is not between 1.538KB
"1MB" => "1MB", shared_buffer = "1MB"
    "pod": buffer less shared buffer of 0B is not between 1.538KB
links = 2 => links = 0
    "rack-a": number of links of 0
count = 3 => count = 2000000
    number of hosts and groups
"100KB" => "999MB"
    "old": delay to the top
frame = "1538B" => frame = "1B"
    "frame": size of 1B
frame = "1538B" => frame = "1538B"\npacket = "1537B"
    "packet": size of 1.537KB is not between 1.538KB and 1MB
frame = "1538B" => frame = "1538B"\nclasses = { fabric = "small" }
    unknown kind `small`; did you mean `small-flows-first`?
frame = "1538B" => frame = "1538B"\nclasses = { fabric = "guarantees-first", small = { dscp = 1, pcp = 1 } }
    a fabric of guarantees-first has no class `small`
"100KB" => "1000000000000000000B"
    "old": buffer of 1000000000GB is not between
"100KB" => "99999999999999999999B"
    26:39: 
"1Gbit/s" => "1000000000000000000bit/s"
    "old": link rate of 1000000000Gbit/s is not between
slots = 2 => slots = 4294967295
    "old": number of slots of 4294967295
slots = 2 => slots = -1
    25:9: 
links = 2 => links = 4000000000
    "rack-a": number of links of 4000000000
cpu = 16000 => cpu = 9223372036854775807
    "a": cpu of 9223372036854775807
"64GiB" => "1000000000000000000B"
    "a": memory of 1000000000GB
"#,
    );
    let nothing = build("frame = \"1538B\"").unwrap_err();
    assert_eq!(nothing, SpecError::NoHosts);
}

#[test]
fn a_name_can_stand_in_a_line() {
    let long = "x".repeat(129);
    for (name, message) in [
        ("", "\"\" cannot be a name: it is empty"),
        (
            "core",
            "\"core\" cannot be a name: the top of the tree is called so",
        ),
        ("a b", "\"a b\" cannot be a name: it has a space"),
        (
            "a\\tb",
            "\"a\\tb\" cannot be a name: it has a space or a control character",
        ),
        (
            long.as_str(),
            "cannot be a name: it is longer than 128 bytes",
        ),
    ] {
        let got = wrong("name = \"old\"", &format!("name = \"{name}\""));
        assert!(got.contains(message), "{got}\ninstead of {message}");
        assert!(got.len() < 120, "{got}");
    }
}

/// A group in a group, and so on; one host in the last.
fn nested(depth: usize) -> Spec {
    let uplink = UplinkSpec {
        rate: Rate(10_000_000_000),
        links: 1,
        spread: Spread::Flow,
        buffer: Bytes(100_000),
        up_buffer: None,
        shared_buffer: Bytes::ZERO,
    };
    let groups = (0..depth).map(|level| GroupSpec {
        name: format!("g{level}"),
        parent: level.checked_sub(1).map(|above| format!("g{above}")),
        uplink: uplink.clone(),
    });
    Spec {
        frame: Bytes(1_538),
        packet: None,
        classes: Classes::default().into(),
        delay_classes: Vec::new(),
        groups: groups.collect(),
        hosts: vec![HostSpec {
            name: "host".to_owned(),
            group: Some(format!("g{}", depth - 1)),
            count: 1,
            slots: 1,
            cpu: None,
            memory: None,
            lateness: None,
            uplink,
        }],
    }
}

#[test]
fn deep_and_large_trees_are_refused_in_words() {
    assert!(nested(15).build().is_ok());
    let deep = nested(50_000).build().unwrap_err().to_string();
    assert!(deep.contains("number of levels below it of 17"), "{deep}");
    // A chain whose end is its beginning: no walk goes round in it.
    let mut circle = nested(20_000);
    circle.groups[0].parent = Some("g19999".to_owned());
    assert_eq!(
        circle.build().unwrap_err(),
        SpecError::Cycle("g0".to_owned())
    );
    let mut flat = nested(1);
    let group = flat.groups[0].clone();
    flat.groups = (0..2_000_001)
        .map(|number| GroupSpec {
            name: format!("g{number}"),
            ..group.clone()
        })
        .collect();
    let many = flat.build().unwrap_err().to_string();
    assert!(
        many.contains("number of hosts and groups of 2000002"),
        "{many}"
    );
    flat.groups.truncate(100_000);
    let empty = flat.build().unwrap_err();
    assert!(matches!(empty, SpecError::Empty(_)), "{empty}");
}

proptest! {
    #[test]
    fn no_text_makes_reading_or_building_panic(
        at in 0..UNEVEN.len(),
        remove in 0_usize..20,
        insert in "[0-9a-z\"=\\[\\] .,{}\n-]{0,12}",
    ) {
        let end = (at + remove).min(UNEVEN.len());
        let text = format!("{}{insert}{}", &UNEVEN[..at], &UNEVEN[end..]);
        if let Ok(spec) = Spec::from_toml(&text) {
            let hosts: u64 = spec.hosts.iter().map(|host| u64::from(host.count)).sum();
            if hosts < 10_000 {
                let _ = spec.build();
            }
        }
    }
}
