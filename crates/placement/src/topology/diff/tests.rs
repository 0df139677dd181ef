use super::super::Spec;
use super::*;
use proptest::prelude::*;

const TREE: &str = r#"
frame = "1538B"

[[group]]
name = "rack1"
uplink = { rate = "40Gbit/s", buffer = "500KB" }

[[group]]
name = "rack2"
uplink = { rate = "40Gbit/s", buffer = "500KB" }

[[host]]
name = "a"
group = "rack1"
count = 2
slots = 8
cpu = 16000
uplink = { rate = "10Gbit/s", buffer = "300KB" }

[[host]]
name = "b"
group = "rack2"
slots = 4
memory = "64GiB"
uplink = { rate = "10Gbit/s", buffer = "300KB", up_buffer = "62500B" }
"#;

fn tree(changes: &[(&str, &str)]) -> Topology {
    let mut text = TREE.to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    Spec::from_toml(&text).unwrap().build().unwrap()
}

/// Everything in one text.
fn told(changes: &[(&str, &str)]) -> String {
    let diff = diff(&tree(&[]), &tree(changes));
    let mut lines: Vec<String> = diff.everywhere.iter().map(Difference::to_string).collect();
    lines.extend(diff.added.iter().map(|name| format!("+{name}")));
    lines.extend(diff.removed.iter().map(|name| format!("-{name}")));
    let nodes = diff.changed.iter();
    lines.extend(nodes.map(|node| format!("{} {node}", node.name)));
    lines.join("\n")
}

#[test]
fn each_difference_is_reported_with_the_old_value() {
    for (from, to, expected) in [
        ("count = 2", "count = 3", "+a-3"),
        ("count = 2", "count = 1", "+a\n-a-1\n-a-2"),
        ("slots = 4", "slots = 6", "b slots: 6, was 4"),
        (
            "\"b\"\ngroup = \"rack2\"",
            "\"c\"\ngroup = \"rack2\"",
            "+c\n-b",
        ),
        (
            "cpu = 16000",
            "cpu = 8000",
            "a-1 cpu: 8000, was 16000\na-2 cpu: 8000, was 16000",
        ),
        (
            "memory = \"64GiB\"\n",
            "",
            "b memory: not counted, was 64GiB",
        ),
        (
            "\"40Gbit/s\"",
            "\"100Gbit/s\"",
            "rack1 link rate: 100Gbit/s, was 40Gbit/s",
        ),
        (
            "\"40Gbit/s\"",
            "\"40Gbit/s\", links = 2, spread = \"frame\"",
            "rack1 links: 2, was 1; spread: frame, was flow",
        ),
        ("\"500KB\"", "\"400KB\"", "rack1 buffer: 400KB, was 500KB"),
        (
            "\"62500B\"",
            "\"125000B\"",
            "b up buffer: 125KB, was 62.5KB",
        ),
        (
            ", up_buffer = \"62500B\"",
            "",
            "b up buffer: 300KB, was 62.5KB",
        ),
        ("\"1538B\"", "\"9038B\"", "frame: 9.038KB, was 1.538KB"),
        (
            "\"1538B\"",
            "\"1538B\"\nclasses = { fabric = \"small-flows-first\" }",
            "classes: small-flows-first (small: DSCP 46, PCP 5; lowest: DSCP 0, PCP 0), was \
             guarantees-first (guaranteed: DSCP 46, PCP 5; lowest: DSCP 0, PCP 0)",
        ),
        (
            "\"500KB\"",
            "\"500KB\", shared_buffer = \"200KB\"",
            "rack1 shared buffer: 200KB, was 0B",
        ),
        (
            "name = \"rack2\"\n",
            "name = \"rack2\"\nparent = \"rack1\"\n",
            "rack2 place: rack1, was core",
        ),
    ] {
        assert_eq!(told(&[(from, to)]), expected, "{from} to {to}");
    }
    let swapped = told(&[
        ("group = \"rack1\"", "group = \"x\""),
        ("group = \"rack2\"", "group = \"rack1\""),
        ("group = \"x\"", "group = \"rack2\""),
    ]);
    assert_eq!(
        swapped,
        "b place: rack1, was rack2\na-1 place: rack2, was rack1\na-2 place: rack2, was rack1"
    );
}

#[test]
fn packets_of_a_frame_are_no_difference_of_their_own() {
    let limited = told(&[("\"1538B\"", "\"1538B\"\npacket = \"80KB\"")]);
    assert_eq!(limited, "packet: 80KB, was 1.538KB");
    let longer = told(&[("\"1538B\"", "\"9038B\"")]);
    assert_eq!(longer, "frame: 9.038KB, was 1.538KB");
}

#[test]
fn equivalent_spellings_are_no_difference() {
    assert!(diff(&tree(&[]), &tree(&[])).is_empty());
    let same = [
        (
            "\"300KB\" }",
            "\"300KB\", links = 1, up_buffer = \"300KB\" }",
        ),
        ("\"40Gbit/s\"", "\"40000Mbit/s\""),
    ];
    assert!(diff(&tree(&[]), &tree(&same)).is_empty());
}

#[test]
fn a_host_may_become_a_rack() {
    let rack = [
        ("name = \"b\"", "name = \"c\""),
        ("group = \"rack2\"", "group = \"b\""),
        ("name = \"rack2\"", "name = \"b\""),
    ];
    assert_eq!(
        told(&rack),
        "+c\n-rack2\nb kind: group, was host; place: core, was rack2; link rate: 40Gbit/s, was \
         10Gbit/s; buffer: 500KB, was 300KB; up buffer: 500KB, was 62.5KB"
    );
}

proptest! {
    /// The additions in one direction are the removals in the other, and applying a change twice
    /// yields no difference.
    #[test]
    fn diffs_of_both_directions_mirror_each_other(slots in 1_u32..9, count in 1_u32..5, mbit in 100_u64..90_000) {
        let slots = format!("slots = {slots}");
        let count = format!("count = {count}");
        let rate = format!("\"{mbit}Mbit/s\"");
        let changes = [("slots = 8", &*slots), ("count = 2", &*count), ("\"10Gbit/s\"", &*rate)];
        let (one, other) = (tree(&[]), tree(&changes));
        let (there, back) = (diff(&one, &other), diff(&other, &one));
        prop_assert_eq!(&there.added, &back.removed);
        prop_assert_eq!(&there.removed, &back.added);
        prop_assert_eq!(there.changed.len(), back.changed.len());
        for (there, back) in there.changed.iter().zip(&back.changed) {
            prop_assert_eq!(&there.name, &back.name);
            for (there, back) in there.changes.iter().zip(&back.changes) {
                prop_assert_eq!((&there.was, &there.now), (&back.now, &back.was));
            }
        }
        prop_assert!(diff(&other, &tree(&changes)).is_empty());
    }
}
