use super::*;
use proptest::prelude::*;
use tailbound_dataplane::QueueConfig;

const WHOLE: &str = r#"
metrics = "127.0.0.1:9464"

[uplink]
port = { kind = "af-packet", interface = "eth0" }
pipeline = { meter = { rate = "10Mbit/s", burst = "30KB" }, segment = true, queue = { kind = "fq-codel" }, nic = { rate = "100Mbit/s", limit = "3750B" } }

[[guest]]
name = "A1"
mac = "02:00:00:00:00:01"
ip = ["10.77.0.1", "fd77::1"]
port = { kind = "tap", interface = "tap-a1", netns = "/run/netns/A1" }
vm = "acme/web/0"
[[guest]]
name = "A2"
mac = "02:00:00:00:00:02"
port = { kind = "pcap", write = "a2.pcap" }
anti_spoofing = false
pipeline = { queue = { kind = "fifo", packets = 10 } }
vm = "acme/web/1"
"#;

/// The mistakes in `text`, as `LINE:COLUMN: message`.
fn mistakes(text: &str) -> Vec<String> {
    let mistakes = Config::parse(text).expect_err("it is wrong");
    let show = |m: Mistake| m.to_string();
    mistakes.into_iter().map(show).collect()
}

/// The mistakes in [`WHOLE`] with `from` replaced by `to`.
fn mistakes_with(from: &str, to: &str) -> Vec<String> {
    assert!(WHOLE.contains(from), "{from}");
    mistakes(&WHOLE.replacen(from, to, 1))
}

#[test]
fn a_whole_configuration_is_read() {
    let config = Config::parse(WHOLE).expect("it is right");
    assert_eq!(config.guests.len(), 2);
    assert!(config.guests[0].anti_spoofing);
    assert!(!config.guests[1].anti_spoofing);
    let uplink = config.uplink.as_ref().expect("there is one");
    assert!(uplink.pipeline.segment);
    assert!(matches!(uplink.pipeline.queue, QueueConfig::FqCodel(_)));
    assert_eq!(config.summary(), "2 guests, uplink af-packet eth0");
}

#[test]
fn an_error_is_printed_with_file_line_and_column() {
    let path = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(path.path(), WHOLE.replace("af-packet", "af-paket")).expect("written");
    let error = Config::load(path.path())
        .expect_err("it is wrong")
        .to_string();
    let expected = format!(
        "{}:5:17: unknown kind `af-paket`; did you mean `af-packet`?",
        path.path().display()
    );
    assert_eq!(error, expected);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Config::load(Path::new("/nonexistent/host.toml")).expect_err("no file");
    assert!(
        error
            .to_string()
            .starts_with("/nonexistent/host.toml: cannot be read: ")
    );
}

#[test]
fn a_misspelt_key_is_shown_with_the_one_that_was_meant() {
    assert_eq!(
        mistakes_with("anti_spoofing", "antispoofing"),
        ["18:1: unknown key `antispoofing`; did you mean `anti_spoofing`?"]
    );
    assert_eq!(
        mistakes_with("[uplink]", "[uplnk]"),
        ["4:2: unknown key `uplnk`; did you mean `uplink`?"]
    );
    assert_eq!(
        mistakes_with("burst =", "brust ="),
        ["6:43: unknown key `brust`; did you mean `burst`?"]
    );
    // Inside of a tagged enum serde knows the table alone.
    assert_eq!(
        mistakes_with("packets = 10", "packet = 10"),
        ["19:39: unknown key `packet`; did you mean `packets`?"]
    );
    assert_eq!(
        mistakes_with("fq-codel", "red"),
        ["6:94: unknown kind `red`; known here: fifo, codel, fq-codel, priority"]
    );
}

#[test]
fn values_of_the_wrong_type_or_form_are_shown_at_their_place() {
    let found = mistakes_with("segment = true", "segment = 1");
    assert_eq!(
        found,
        ["6:71: invalid type: integer `1`; expected true or false"]
    );
    let found = mistakes_with("02:00:00:00:00:01", "02:00");
    assert!(
        found[0].starts_with("10:7: \"02:00\" is not a MAC address; write six"),
        "{found:?}"
    );
    let found = mistakes_with("100Mbit/s", "100mbps");
    assert!(found[0].contains("unknown unit"), "{found:?}");
    let found = mistakes_with("mac = \"02:00:00:00:00:02\"\n", "");
    assert_eq!(
        found,
        ["14:1: the key `mac` is missing; add `mac = ...` here"]
    );
}

#[test]
fn invalid_toml_is_reported_with_its_position() {
    let found = mistakes("metrics = \n[uplink\n");
    assert!(found.len() >= 2, "{found:?}");
    assert!(found[0].starts_with("1:11: not TOML: "), "{found:?}");
}

#[test]
fn a_bad_collector_address_and_a_host_section_are_explained() {
    let [otlp] = &mistakes("otlp = \"localhost:4318\"")[..] else {
        panic!("one mistake");
    };
    assert!(otlp.starts_with("1:8: \"localhost:4318\" is no address of a collector"));
    let [host] = &mistakes("[host]\n")[..] else {
        panic!("one mistake");
    };
    assert!(host.contains("the whole file is the host's"), "{host}");
    assert!(host.contains("metrics, otlp, cpu"), "{host}");
}

#[test]
fn every_section_reports_its_own_mistake() {
    let text = WHOLE
        .replace("segment = true", "segment = 1")
        .replace("anti_spoofing", "antispoofing")
        .replace("127.0.0.1:9464", "0.0.0.0:9464")
        .replace("02:00:00:00:00:01", "03:00:00:00:00:01");
    let lines: Vec<_> = mistakes(&text)
        .iter()
        .map(|found| {
            found
                .split(':')
                .next()
                .map(str::to_owned)
                .unwrap_or_default()
        })
        .collect();
    assert_eq!(lines, ["2", "6", "10", "18"]);
}

/// Returns the text at a mistake's place in `text`.
fn pointed_at<'t>(text: &'t str, mistake: &Mistake) -> &'t str {
    let line = text
        .lines()
        .nth(mistake.location.line - 1)
        .expect("the line is there");
    &line[mistake.location.column - 1..]
}

/// Checks that each change of [`WHOLE`] (from, to) is refused at one place, for one reason.
fn refused_where_it_stands(changes: &[(&str, &str, &str, &str)]) {
    for &(from, to, place, what) in changes {
        let text = WHOLE.replacen(from, to, 1);
        assert_ne!(text, WHOLE, "{from}");
        let found = Config::parse(&text).expect_err(from);
        assert_eq!(found.len(), 1, "{from}: {found:?}");
        assert!(found[0].message.contains(what), "{from}: {found:?}");
        let at = pointed_at(&text, &found[0]);
        assert!(at.starts_with(place), "{from}: points at {at}");
    }
}

#[test]
fn early_acknowledgement_is_read_and_refused_where_no_ring_is_seen() {
    let with = |port: &str, snoop: &str| {
        let text = WHOLE.replacen(
            r#"kind = "tap", interface = "tap-a1", netns = "/run/netns/A1" }"#,
            &format!("{port} }}\nsnoop = {snoop}"),
            1,
        );
        Config::parse(&text)
    };
    let card = r#"kind = "vhost-user", socket = "/run/a1.sock""#;
    let read = |snoop| with(card, snoop).expect("it is right").guests[0].snoop;
    assert_eq!(read("\"retaining\""), Some(SnoopConfig::default()));
    let strict = read("{ mode = \"strict\", flows = 9, window = \"64KiB\" }");
    let expected = SnoopConfig {
        mode: tailbound_dataplane::SnoopMode::Strict,
        flows: 9,
        window: tailbound_units::Bytes(64 << 10),
        ..SnoopConfig::default()
    };
    assert_eq!(strict, Some(expected));
    let whole = Config::parse(WHOLE).expect("it is right");
    assert_eq!(whole.guests[0].snoop, None, "off by default");
    let more = with(card, "\"retaining\"")
        .expect("it is right")
        .packet_memory()
        .0;
    let kept = more
        - with(card, "{ guest = \"4MiB\" }")
            .expect("it is right")
            .packet_memory()
            .0;
    assert_eq!(kept, 12 << 20, "what is kept counts");
    for (port, snoop, what) in [
        (card, "\"lazy\"", "unknown kind `lazy`"),
        (card, "{ flows = 0 }", "`flows` must be"),
        (card, "{ flow = \"99MiB\" }", "`flow` is more than `guest`"),
        (card, "7", "\"retaining\", \"strict\" or a table"),
        (
            r#"kind = "tap", interface = "t""#,
            "\"strict\"",
            "of kind \"tap\" hides a queue",
        ),
        (
            r#"kind = "af-packet", interface = "t""#,
            "\"strict\"",
            "of kind \"af-packet\"",
        ),
    ] {
        let found = with(port, snoop).expect_err(snoop);
        assert_eq!(found.len(), 1, "{snoop}: {found:?}");
        assert!(found[0].message.contains(what), "{snoop}: {found:?}");
    }
}

#[test]
fn conflicting_guests_are_refused_at_their_position() {
    refused_where_it_stands(&[
        ("\"A2\"", "\"A1\"", "\"A1\"", "use a different"),
        ("00:02", "00:01", "\"02:00:00:00:00:01\"", "use a different"),
        ("fd77::1", "10.77.0.1", "\"10.77.0.1\"]", "use different"),
        ("web/1", "web/0", "\"acme/web/0\"", "use a different"),
        ("acme/web/1", "web", "\"web\"", "write OWNER/NAME/NUMBER"),
        (
            "kind = \"pcap\", write = \"a2.pcap\"",
            r#"kind = "tap", interface = "tap-a1", netns = "/run/netns/A1""#,
            "\"tap-a1\"",
            "use a different",
        ),
        ("127.0.0.1", "192.0.2.1", "\"192", "other machines"),
        (
            "02:00:00:00:00:01",
            "ff:ff:ff:ff:ff:ff",
            "\"ff",
            "single station",
        ),
        ("10.77.0.1", "224.0.0.1", "\"224", "single station"),
        (
            r#"["10.77.0.1", "fd77::1"]"#,
            "[]",
            "[[guest]]",
            "no IP address to send from",
        ),
        (
            "tap-a1",
            "a-name-of-16-byt",
            "\"a-name",
            "cannot name an interface",
        ),
        (
            "\"A1\"\nmac",
            "\"uplink\"\nmac",
            "\"uplink\"",
            "another name",
        ),
        (
            "\"A1\"\nmac",
            "\"A 1\"\nmac",
            "\"A 1\"",
            "cannot name a guest",
        ),
    ]);
}

#[test]
fn invalid_pipelines_are_refused_at_their_position() {
    refused_where_it_stands(&[
        ("10Mbit/s", "0bit/s", "\"0bit/s\"", "tags everything low"),
        ("30KB", "1KB", "\"1KB\"", "less than a full frame"),
        ("100Mbit/s", "0bit/s", "\"0bit/s\"", "sends nothing"),
        ("3750B", "1513B", "\"1513B\"", "no full frame"),
        ("packets = 10", "packets = 0", "0 }", "at least 1"),
        (
            "\"fq-codel\"",
            "\"fq-codel\", target = \"1s\"",
            "\"1s\"",
            "RFC 8289",
        ),
        (
            ", write = \"a2.pcap\"",
            "",
            "{ kind = \"pcap\"",
            "without files",
        ),
    ]);
}

proptest! {
    #[test]
    fn no_text_panics_the_host_configuration_parser(text in "\\PC{0,200}") {
        let _ = Config::parse(&text);
    }

    #[test]
    fn no_edit_panics_the_host_configuration_parser(at in any::<prop::sample::Index>(), insert in "[\\PC\n]{0,6}", cut in 0usize..8) {
        let chars: Vec<char> = WHOLE.chars().collect();
        let at = at.index(chars.len());
        let rest = (at + cut).min(chars.len());
        let text: String = chars[..at].iter().copied().chain(insert.chars()).chain(chars[rest..].iter().copied()).collect();
        if let Err(mistakes) = Config::parse(&text) {
            prop_assert!(!mistakes.is_empty());
        }
    }
}

#[test]
fn an_af_xdp_port_requires_segmentation_and_a_queue() {
    let xdp = "kind = \"af-xdp\", interface = \"eth0\", mode = \"copy\", queues = 2";
    let whole = WHOLE.replace("kind = \"af-packet\", interface = \"eth0\"", xdp);
    let config = Config::parse(&whole).expect("it is right");
    assert_eq!(config.summary(), "2 guests, uplink af-xdp eth0");
    let wrong = mistakes(&whole.replace("segment = true, ", ""));
    assert!(
        matches!(&wrong[..], [one] if one.contains("af-xdp carries frames of one MTU")),
        "{wrong:?}"
    );
    let wrong = mistakes(&whole.replace("queues = 2", "queues = 0"));
    assert!(
        matches!(&wrong[..], [one] if one.contains("at least 1 receive queue")),
        "{wrong:?}"
    );
}

#[test]
fn the_txqueuelen_key_is_accepted_within_bounds() {
    let on = |packets: &str| {
        let uplink = "kind = \"af-packet\", interface = \"eth0\"";
        WHOLE.replace(uplink, &format!("{uplink}, txqueuelen = {packets}"))
    };
    let config = Config::parse(&on("64")).expect("it is right");
    assert!(matches!(
        config.uplink.expect("there is one").port,
        PortConfig::AfPacket {
            txqueuelen: Some(64),
            ..
        }
    ));
    for packets in ["0", "65537"] {
        let wrong = mistakes(&on(packets));
        assert!(
            matches!(&wrong[..], [one] if one.contains("choose 1 to 65536")),
            "{wrong:?}"
        );
    }
}

#[test]
fn a_machines_card_is_a_guests_and_has_a_socket_of_its_own() {
    let tap = "port = { kind = \"tap\", interface = \"tap-a1\" }";
    let card = |socket: &str, more: &str| {
        format!("port = {{ kind = \"vhost-user\", socket = \"{socket}\"{more} }}")
    };
    let one = |text: String| mistakes(&text).join("\n");
    let with = |socket: &str, more: &str| PACED.replace(tap, &card(socket, more));
    let whole = with("/run/a1", ", mode = \"client\", user = 64055, queues = 4");
    let config = Config::parse(&whole).expect("it is right");
    assert_eq!(config.guests[0].port.to_string(), "vhost-user /run/a1");
    let found = one(with("", ", queues = 65"));
    assert!(found.contains("cannot name a socket"), "{found}");
    assert!(found.contains("use 1 to 64"), "{found}");
    let found = one(with(&"s".repeat(97), ""));
    assert!(found.contains("use 1 to 96 bytes"), "{found}");
    let other = "port = { kind = \"tap\", interface = \"tap-a2\" }";
    let found = one(with("/run/a1", "").replace(other, &card("/run/a1", "")));
    assert!(found.contains("the socket /run/a1 is A1's"), "{found}");
    let uplink = "port = { kind = \"af-packet\", interface = \"eth0\" }";
    let found = one(PACED.replace(uplink, &card("/run/up", "")));
    assert!(
        found.contains("vhost-user serves a virtual machine"),
        "{found}"
    );
}

const PACED: &str = r#"
[uplink]
port = { kind = "af-packet", interface = "eth0" }
pacer = { link = "1Gbit/s" }

[[guest]]
name = "A1"
mac = "02:00:00:00:00:01"
port = { kind = "tap", interface = "tap-a1" }
guarantee = { bandwidth = "100Mbit/s", burst = "15KB", burst_rate = "1Gbit/s" }
ip = ["10.77.0.1"]
[[guest]]
name = "A2"
mac = "02:00:00:00:00:02"
port = { kind = "tap", interface = "tap-a2" }
guarantee = { bandwidth = "800Mbit/s", burst = "15KB", burst_rate = "1Gbit/s" }
ip = ["10.77.0.2"]
"#;

/// The mistakes in [`PACED`] with each pair's first text replaced by its second.
fn paced_mistakes(changes: &[(&str, &str)]) -> Vec<String> {
    let mut text = PACED.to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    mistakes(&text)
}

#[test]
fn a_paced_uplink_and_its_guarantees_are_read() {
    let config = Config::parse(PACED).expect("it is right");
    let uplink = config.uplink.expect("there is one");
    assert_eq!(uplink.pacer.map(|pacer| pacer.link.0), Some(1_000_000_000));
    let bandwidth = |guest: &GuestConfig| guest.guarantee.map(|terms| terms.bandwidth.0);
    let bandwidths: Vec<_> = config.guests.iter().map(bandwidth).collect();
    assert_eq!(bandwidths, [Some(100_000_000), Some(800_000_000)]);
}

#[test]
fn each_rule_of_a_guarantee_is_named_at_the_key_that_breaks_it() {
    for (from, to, expected) in [
        (
            "\"100Mbit/s\"",
            "\"0bit/s\"",
            "10:27: bandwidth is zero; leave the guarantee out for a guest of best effort",
        ),
        (
            "burst = \"15KB\"",
            "burst = \"1500B\"",
            "10:48: burst 1.5KB is below one frame on the wire, 1.538KB; use at least 1.538KB",
        ),
        (
            "burst_rate = \"1Gbit/s\"",
            "burst_rate = \"99Mbit/s\"",
            "10:69: burst rate 99Mbit/s is below the bandwidth, 100Mbit/s; use at least 100Mbit/s",
        ),
        (
            "burst_rate = \"1Gbit/s\"",
            "burst_rate = \"2Gbit/s\"",
            "10:69: rate 2Gbit/s is above the link's, 1Gbit/s; use at most 1Gbit/s",
        ),
        (
            "\"100Mbit/s\"",
            "\"300Mbit/s\"",
            "16:27: all bandwidths together would be 1.1Gbit/s, above the link's 1Gbit/s; \
             guarantee less, here or to the guests before",
        ),
        (
            "burst_rate = \"1Gbit/s\"",
            "burst_rate = \"1Gbit/s\", horizon = \"10us\"",
            "10:90: horizon 10us is not between a batch, 50us, and ",
        ),
        (
            "\"15KB\"",
            "\"18446744073709551615B\"",
            "10:48: burst 18446744073709551.615KB is too long at that rate; use a shorter one",
        ),
    ] {
        let found = paced_mistakes(&[(from, to)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(expected), "{found:?}");
    }
}

#[test]
fn all_mistakes_of_pacing_are_shown_at_once() {
    let found = paced_mistakes(&[
        (
            "pacer = { link = \"1Gbit/s\" }",
            "pipeline = { segment = true }\npriority_tag = true\npacer = { link = \"1Gbit/s\", \
             best_effort = { kind = \"fifo\", packets = 0 } }",
        ),
        ("\"100Mbit/s\"", "\"0bit/s\""),
        ("\"800Mbit/s\"", "\"2Gbit/s\""),
    ]);
    assert_eq!(found.len(), 5, "{found:#?}");
    assert!(found[0].starts_with("4:12: a pacer segments and queues by itself"));
    assert!(found[1].starts_with("5:16: with a tag a full frame takes 1.542KB of the wire"));
    assert!(found[2].starts_with("6:"), "{found:#?}");
    assert!(found[3].starts_with("12:27: bandwidth is zero"));
    assert!(
        found[4].starts_with("18:27: rate 2Gbit/s is above"),
        "{found:#?}"
    );
}

#[test]
fn a_flow_cannot_be_held_for_longer_than_a_second() {
    let paced = "pacer = { link = \"1Gbit/s\", work_conserving = false, drain = \"1001ms\" }";
    let found = paced_mistakes(&[("pacer = { link = \"1Gbit/s\" }", paced)]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("4:62: drain 1.001s is above 1s; use as long as frames of the lowest"),
        "{found:?}"
    );
}

#[test]
fn pacing_keys_without_a_pacer_are_refused() {
    let found = paced_mistakes(&[("pacer = { link = \"1Gbit/s\" }", "priority_tag = true")]);
    assert_eq!(found.len(), 3, "{found:#?}");
    assert!(found[0].starts_with("4:16: without a pacer there are no guarantees"));
    assert!(found[1].starts_with("10:13: nothing paces the uplink"));
    let found = paced_mistakes(&[(
        "kind = \"af-packet\", interface = \"eth0\"",
        "kind = \"tap\", interface = \"eth0\"",
    )]);
    assert!(found[0].contains("behind a TAP is no wire"), "{found:?}");
    let found = paced_mistakes(&[("1Gbit/s", "1kbit/s")]);
    assert_eq!(found.len(), 1, "the guests cannot be judged: {found:?}");
    assert!(
        found[0].starts_with("4:18: link 1kbit/s is not between"),
        "{found:?}"
    );
}

#[test]
fn the_configurations_in_the_manual_are_right() {
    let manual = include_str!("../../../../docs/reference/host.md");
    let mut blocks = manual.split("```toml\n").skip(1);
    let mut paced = 0;
    while let Some((text, _)) = blocks.next().and_then(|block| block.split_once("```")) {
        let config = Config::parse(text).unwrap_or_else(|wrong| panic!("{wrong:?} in {text}"));
        paced += usize::from(config.uplink.is_some_and(|uplink| uplink.pacer.is_some()));
    }
    assert_eq!(paced, 1);
}

#[test]
fn part_of_a_host_the_agent_has_no_metrics_of_its_own() {
    let text = "[vcpu]\nmetrics = \"127.0.0.1:1\"\n[[vcpu.guest]]\nname = \"a\"\n";
    let mistakes = Config::parse(text).unwrap_err();
    let places: Vec<_> = mistakes
        .iter()
        .map(|m| (m.location.line, m.location.column))
        .collect();
    assert_eq!(places, [(2, 11), (3, 1)], "{mistakes:?}");
}

#[test]
fn a_link_alone_is_a_pacer_and_a_batch_without_room_for_a_frame_is_none() {
    let with = |pacer: &str| {
        let text = format!(
            "[uplink]\nport = {{ kind = \"af-packet\", interface = \"eth0\" }}\npacer = {pacer}\n"
        );
        Config::parse(&text).map(|config| config.uplink.and_then(|uplink| uplink.pacer))
    };
    let slow = with("{ link = \"200Mbit/s\" }").expect("it is right");
    assert_eq!(slow.map(|pacer| pacer.batch.0), Some(61_520));
    let short = with("{ link = \"200Mbit/s\", batch = \"50us\" }").expect_err("it is wrong");
    let short: Vec<_> = short.iter().map(ToString::to_string).collect();
    let expected = "3:39: frame 1.538KB is not between 84B and what the link carries in a batch, \
                    1.25KB; use a batch of at least 61.52us";
    assert_eq!(short, [expected]);
    with("{ link = \"200Mbit/s\", batch = \"61.52us\" }").expect("the advice is right");
}

#[test]
fn all_mistakes_of_all_guests_and_of_the_uplink_are_shown_at_once() {
    let text = r#"metrics = "127.0.0.1:9464"
[uplink]
port = { kind = "af-paket", interface = "eth1" }
pacer = { link = "10Gb", frme = "1KB" }

[[guest]]
name = "web"
mac = "zz"
ip = ["10.9.0.1", "10.9.0.300", "x"]
colour = "red"
port = { kind = "tapp", interface = "t" }
guarantee = { bandwidth = "1Gb", burst = "15KB", burst_rate = "10Gbit/s" }
[[guest]]
name = 3
mca = "02:00:00:00:00:01"
port = { kind = "tap", interface = "t2" }
"#;
    let found = mistakes(text);
    let places: Vec<_> = found
        .iter()
        .map(|found| found.split(": ").next().unwrap_or_default())
        .collect();
    let expected = [
        "3:17", "4:18", "4:26", "8:7", "9:19", "9:33", "10:1", "11:17", "12:27", "14:8", "15:1",
    ];
    assert_eq!(places, expected, "{found:#?}");
    let unknown = "15:1: unknown key `mca`; did you mean `mac`? known here: name, mac, ip, ";
    assert!(found[10].starts_with(unknown), "{}", found[10]);
}

#[test]
fn a_mistake_of_form_hides_no_contradiction_of_the_keys_beside_it() {
    let found = paced_mistakes(&[
        ("pacer = {", "priority_tags = true\npacer = {"),
        ("name = \"A1\"", "name = \"A1\"\ncolour = \"red\""),
        ("\"100Mbit/s\"", "\"2Gbit/s\""),
        ("00:02", "00:01"),
        ("ip = [\"10.77.0.2\"]", "anti_spoofing = 1"),
    ]);
    let expected = [
        "4:1: unknown key `priority_tags`; did you mean `priority_tag`?",
        "9:1: unknown key `colour`; known here: ",
        "12:27: rate 2Gbit/s is above the link's, 1Gbit/s; use at most 1Gbit/s",
        "16:7: duplicate MAC address 02:00:00:00:00:01, which is A1's; ",
        "19:17: invalid type: integer `1`; expected true or false",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found} for {expected}");
    }
    // Without its link nothing can be judged of a guarantee.
    let found = paced_mistakes(&[("link =", "lnik ="), ("\"100Mbit/s\"", "\"2Gbit/s\"")]);
    assert!(
        matches!(&found[..], [one] if one.starts_with("4:11: unknown key `lnik`")),
        "{found:?}"
    );
    let found = paced_mistakes(&[(
        "pacer = { link = \"1Gbit/s\"",
        "pacr = 1\npacer = { link = \"1kbit/s\"",
    )]);
    assert!(found[0].starts_with("4:1: unknown key `pacr`"), "{found:?}");
    assert!(found[1].starts_with("5:18: link 1kbit/s"), "{found:?}");
    assert_eq!(found.len(), 2, "{found:?}");
}
