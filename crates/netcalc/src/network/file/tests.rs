use super::*;
use proptest::prelude::*;

const RIGHT: &str = r#"
frame = "1500B"

[[port]]
name = "nic"
rate = "10Gbit/s"
latency = "2us"

[[port]]
name = "tor"
rate = "10Gbit/s"
buffer = "300KB"

[[flow]]
name = "vm1"
path = ["nic", "tor"]
rate = "1Gbit/s"
burst = "100KB"
burst_rate = "5Gbit/s"
deadline = "1ms"
"#;

fn parse(text: &str) -> Result<NetworkFile, String> {
    NetworkFile::parse(text.to_owned(), Path::new("n.toml")).map_err(|error| error.to_string())
}

/// The message for the right file with one part replaced.
fn error_with(old: &str, new: &str) -> String {
    assert!(RIGHT.contains(old), "{old}");
    let result = parse(&RIGHT.replacen(old, new, 1))
        .and_then(|file| file.bounds().map_err(|error| error.to_string()));
    result.map(|_| ()).expect_err("this is wrong")
}

#[test]
fn a_right_file_is_read_whole() {
    let file = parse(RIGHT).unwrap();
    let network = file.network();
    assert_eq!(network.frame(), Bytes(1_500));
    assert!(network.has_line_limit());
    assert_eq!(network.ports()[0].latency, Nanos(2_000));
    assert_eq!(network.ports()[1].buffer, Some(Bytes(300_000)));
    let flow = &network.flows()[0];
    assert_eq!(flow.burst_rate, Some(Rate(5_000_000_000)));
    assert_eq!(flow.priority, 0);
    assert_eq!(flow.deadline, Some(Nanos(1_000_000)));
    assert_eq!(network.port(flow.path[1]).name, "tor");
    file.bounds().unwrap();
}

/// A text of the right file, its replacement, and the message.
const MISTAKES: &[(&str, &str, &str)] = &[
    (
        r#"path = ["nic", "tor"]"#,
        r#"path = ["nic", "tow"]"#,
        r#"n.toml:16:16: unknown port "tow"; known here: nic, tor"#,
    ),
    (
        r#"path = ["nic", "tor"]"#,
        "path = []",
        r#"n.toml:16:8: flow "vm1" passes no port; `path` needs at least one"#,
    ),
    (
        r#"path = ["nic", "tor"]"#,
        r#"path = ["nic", "tor", "nic"]"#,
        "n.toml:16:8: the flows' paths make a cycle: ",
    ),
    (
        r#"rate = "1Gbit/s""#,
        r#"rate = "0Gbit/s""#,
        "n.toml:17:8: `rate` is zero, so nothing is ever sent; use a rate above zero",
    ),
    (
        r#"rate = "1Gbit/s""#,
        r#"rate = "20Gbit/s""#,
        "n.toml:19:14: flow \"vm1\" sends bursts at 5Gbit/s, slower than its average of \
             20Gbit/s; use at least the average for `burst_rate`",
    ),
    (
        r#"rate = "1Gbit/s""#,
        r#"rate = "9000000Gbit/s""#,
        "n.toml:17:8: `rate` is 9000000Gbit/s, which cannot be meant; use at most \
             1000000Gbit/s",
    ),
    (
        r#"burst = "100KB""#,
        r#"burst = "1000000000GB""#,
        "n.toml:18:9: `burst` is 1000000000GB, which cannot be meant; use at most 1000GB",
    ),
    (
        r#"burst = "100KB""#,
        r#"burst = "99000000000GB""#,
        "n.toml:18:9: ",
    ),
    (
        r#"burst = "100KB""#,
        r#"burst = "1499B""#,
        "n.toml:18:9: flow \"vm1\" may not send one frame of 1.5KB with a burst of 1.499KB; \
             use at least the frame for `burst`",
    ),
    (
        r#"burst = "100KB""#,
        "burst = 100000",
        "n.toml:18:9: invalid type: integer",
    ),
    (
        r#"burst = "100KB""#,
        r#"bursts = "100KB""#,
        "n.toml:18:1: unknown key `bursts`; did you mean `burst`?",
    ),
    (
        r#"burst = "100KB""#,
        "",
        "n.toml:14:1: the key `burst` is missing; add `burst = ...` here",
    ),
    (
        r#"frame = "1500B""#,
        "",
        "n.toml:1:1: the key `frame` is missing",
    ),
    (r#"latency = "2us""#, r#"latency = "2h""#, "n.toml:7:11: "),
    (
        r#"latency = "2us""#,
        r#"latency = "4000s""#,
        "n.toml:7:11: `latency` is 4000s, which cannot be meant; use at most 3600s",
    ),
    (
        r#"name = "tor""#,
        r#"name = "nic""#,
        "n.toml:10:8: there is a port \"nic\" already; each port needs a name of its own",
    ),
    (
        r#"name = "tor""#,
        r#"name = "to r""#,
        "n.toml:10:8: \"to r\" cannot name a port; use 1 to 64",
    ),
    (
        r#"name = "vm1""#,
        r#"name = """#,
        "n.toml:15:8: \"\" cannot name a flow; use 1 to 64",
    ),
    ("[[flow]]", "[[flow]", "n.toml:14:8: "),
    (
        "[[flow]]",
        "[flow]",
        "n.toml:14:2: `flow` is not a list; write `[[flow]]` before each flow",
    ),
    (
        r#"rate = "10Gbit/s""#,
        r#"rate = "999Mbit/s""#,
        "n.toml:6:8: port \"nic\" is not stable: flows of 1000000000 bit/s in all come to a \
             link of 999Mbit/s, 1000000 bit/s too many; set a higher rate or fewer flows",
    ),
];

#[test]
fn each_mistake_is_named_with_its_place_and_what_would_be_right() {
    for (old, new, expected) in MISTAKES {
        let error = error_with(old, new);
        assert!(
            error.contains(expected),
            "{new}\n found {error}\n wants {expected}"
        );
    }
}

#[test]
fn two_flows_of_one_name_are_refused() {
    let flow = &RIGHT[RIGHT.find("[[flow]]").unwrap()..];
    let error = parse(&format!("{RIGHT}{flow}")).unwrap_err();
    assert!(
        error.starts_with("n.toml:22:8: there is a flow \"vm1\" already"),
        "{error}"
    );
}

#[test]
fn a_network_without_flows_is_refused() {
    let error = parse("frame = \"0B\"\n").unwrap_err();
    assert!(
        error.starts_with("n.toml:1:1: the network has no flow"),
        "{error}"
    );
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = NetworkFile::load(Path::new("/nowhere/n.toml"))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("/nowhere/n.toml: cannot be read: "),
        "{error}"
    );
}

#[test]
fn columns_count_characters() {
    let error = parse("# é\nframe = \"é\"").unwrap_err();
    assert!(error.contains("\nn.toml:2:9: "), "{error}");
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(
        cut in 0..RIGHT.len(), length in 0..40_usize, insert in "[a-z0-9\"\\[\\]=. \n]{0,12}",
    ) {
        let end = (cut + length).min(RIGHT.len());
        let text = format!("{}{insert}{}", &RIGHT[..cut], &RIGHT[end..]);
        if let Ok(file) = parse(&text) {
            let _ = file.bounds();
        }
    }
}
