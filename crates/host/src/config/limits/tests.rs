use super::*;

fn guest(more: &str) -> String {
    format!(
        "[uplink]\nport = {{ kind = \"pcap\", write = \"u.pcap\" }}\npacer = {{ link = \"1Gbit/s\" }}\n\
         [[guest]]\nname = \"web\"\nmac = \"02:00:00:00:00:01\"\nip = [\"10.0.0.1\"]\n\
         port = {{ kind = \"tap\", interface = \"web\" }}\n{more}\n"
    )
}

fn mistakes(more: &str) -> Vec<String> {
    let wrong = Config::parse(&guest(more)).expect_err("it is wrong");
    wrong.iter().map(ToString::to_string).collect()
}

const GUARANTEE: &str =
    "guarantee = { bandwidth = \"100Mbit/s\", burst = \"300KB\", burst_rate = \"1Gbit/s\" }";

#[test]
fn a_limit_is_read_in_both_directions() {
    let config = Config::parse(&guest(
        "limit = { out = { kind = \"smooth-window\", rate = \"4Mbit/s\", dmin = \"2ms\", \
         gains = { proportional = 0.5 } }, in = { rate = \"8Mbit/s\", depth = \"20KB\" } }",
    ));
    let config = config.expect("it is right");
    let limit = config.guests[0].limit.as_ref().expect("it is there");
    assert_eq!(
        limit.out.as_ref().map(ShaperConfig::rate),
        Some(Rate::from_mbit(4))
    );
    let pipeline = config.pipeline_of(&config.guests[0]);
    assert_eq!(pipeline.limit, limit.inward);
    assert!(matches!(
        pipeline.queue,
        tailbound_dataplane::QueueConfig::FqCodel(_)
    ));
    assert_eq!(
        config.explain_limits(),
        "limit of web: out 4Mbit/s (smooth window), before best effort under the pacer; in 8Mbit/s \
         (bucket), before its port\n"
    );
}

#[test]
fn invalid_limits_are_refused_at_their_position() {
    for (limit, place, wrong) in [
        ("{}", "9:", "it limits nothing"),
        (
            "{ out = { kind = \"bucket\", rate = \"0bit/s\" } }",
            "9:",
            "passes nothing",
        ),
        ("{ in = { rate = \"0bit/s\" } }", "9:", "passes nothing"),
        (
            "{ out = { kind = \"smooth-window\", rate = \"4Mbit/s\", dmin = \"200ms\" } }",
            "9:",
            "does not fit between a dmin of 200ms and a dmax of 100ms; use a dmax of at least 203ms",
        ),
        (
            "{ out = { kind = \"smooth-window\", rate = \"4Mbit/s\", gains = { integral = -1.0 } } }",
            "9:",
            "use 0 to 1000",
        ),
        (
            "{ out = { kind = \"smooth-window\", rate = \"4Mbit/s\", interval = \"2ms\" } }",
            "9:",
            "shorter than a full frame takes",
        ),
        (
            "{ out = { kind = \"window\", rate = \"4Mbit/s\" } }",
            "9:",
            "smooth-window",
        ),
    ] {
        let all = mistakes(&format!("limit = {limit}"));
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(
            all[0].contains(wrong) && all[0].starts_with(place),
            "{}",
            all[0]
        );
    }
}

#[test]
fn a_guarantee_has_room_in_its_limit() {
    for (limit, wrong) in [
        (
            "out = { kind = \"bucket\", rate = \"50Mbit/s\" }",
            "the limit out of 50Mbit/s is below the guaranteed 100Mbit/s; use at least 100Mbit/s",
        ),
        (
            "in = { rate = \"50Mbit/s\" }",
            "the limit in of 50Mbit/s is below the guaranteed 100Mbit/s",
        ),
        (
            "out = { kind = \"bucket\", rate = \"100Mbit/s\", depth = \"250KB\" }",
            "below the guaranteed burst",
        ),
        (
            "out = { kind = \"smooth-window\", rate = \"200Mbit/s\" }",
            "use kind \"bucket\"",
        ),
    ] {
        let all = mistakes(&format!("{GUARANTEE}\nlimit = {{ {limit} }}"));
        assert!(all[0].contains(wrong), "{all:?}");
    }
    let enough = "limit = { out = { kind = \"bucket\", rate = \"200Mbit/s\" } }";
    let config = Config::parse(&guest(&format!("{GUARANTEE}\n{enough}"))).expect("it is right");
    assert_eq!(
        config.explain_limits(),
        "limit of web: out 200Mbit/s (bucket), of which its guarantee of 100Mbit/s never waits\n"
    );
}
