use super::*;
use proptest::prelude::*;
use tailbound_document::testing::assert_refused;

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
    // A burst of one frame is enough.
    assert!(parse(&RIGHT.replace("100KB", "1500B")).is_ok());
}

#[test]
fn each_file_mistake_is_reported_with_its_place_and_a_remedy() {
    let bounds = |text: &str| parse(text)?.bounds().map_err(|error| error.to_string());
    assert_refused(
        RIGHT,
        bounds,
        r#"
path = ["nic", "tor"] => path = ["nic", "tow"]
    n.toml:16:16: unknown port "tow"; known here: nic, tor
path = ["nic", "tor"] => path = []
    n.toml:16:8: flow "vm1" passes no port; `path` needs at least one
path = ["nic", "tor"] => path = ["nic", "tor", "nic"]
    n.toml:16:8: the flows' paths make a cycle: 
rate = "1Gbit/s" => rate = "0Gbit/s"
    n.toml:17:8: `rate` is zero, so nothing is ever sent; use a rate above zero
rate = "1Gbit/s" => rate = "20Gbit/s"
    n.toml:19:14: flow "vm1" sends bursts at 5Gbit/s, slower than its average of 20Gbit/s; use at least the average for `burst_rate`
rate = "1Gbit/s" => rate = "9000000Gbit/s"
    n.toml:17:8: `rate` is 9000000Gbit/s, which cannot be meant; use at most 1000000Gbit/s
burst = "100KB" => burst = "1000000000GB"
    n.toml:18:9: `burst` is 1000000000GB, which cannot be meant; use at most 1000GB
burst = "100KB" => burst = "99000000000GB"
    n.toml:18:9: 
burst = "100KB" => burst = "1499B"
    n.toml:18:9: flow "vm1" may not send one frame of 1.5KB with a burst of 1.499KB; use at least the frame for `burst`
burst = "100KB" => burst = 100000
    n.toml:18:9: invalid type: integer
burst = "100KB" => bursts = "100KB"
    n.toml:18:1: unknown key `bursts`; did you mean `burst`?
burst = "100KB" =>
    n.toml:14:1: the key `burst` is missing; add `burst = ...` here
frame = "1500B" =>
    n.toml:1:1: the key `frame` is missing
latency = "2us" => latency = "2h"
    n.toml:7:11: 
latency = "2us" => latency = "4000s"
    n.toml:7:11: `latency` is 4000s, which cannot be meant; use at most 3600s
name = "tor" => name = "nic"
    n.toml:10:8: there is a port "nic" already; each port needs a name of its own
name = "tor" => name = "to r"
    n.toml:10:8: "to r" cannot name a port; use 1 to 64
name = "vm1" => name = ""
    n.toml:15:8: "" cannot name a flow; use 1 to 64
[[flow]] => [[flow]
    n.toml:14:8: 
[[flow]] => [flow]
    n.toml:14:2: `flow` is not a list; write `[[flow]]` before each flow
rate = "10Gbit/s" => rate = "999Mbit/s"
    n.toml:6:8: port "nic" is not stable: flows of 1000000000 bit/s in all come to a link of 999Mbit/s, 1000000 bit/s too many; set a higher rate or fewer flows
"#,
    );
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
