//! HULL: phantom queues, and a pacer in hosts.

use super::*;

/// Two hosts send to one, over links of 10 Gbit/s, with bursts of a window.
fn star(hull: &str) -> Messages {
    messages(&format!(
        r#"
[messages]
duration = "10ms"
star = {{ hosts = 3, link = {{ rate = "10Gbit/s", delay = "10us" }} }}
bursts = {{ every = "9ms", size = "8MB" }}
[[messages.setting]]
name = "one"
transport = {{ congestion = "dctcp", initial_window = 40, least_timeout = "10ms" }}
switches = {{ buffer = "1MB", phantom = {{ drain = 0.95, mark_at = "15KB" }} }}
{hull}
"#
    ))
}

/// Paced frames are queued in their host and not in the switch, and all messages are received.
#[test]
fn a_pacer_moves_the_wait_from_the_switch_to_the_host() {
    let outcome = |hull: &str| {
        let messages = star(hull);
        let outcome = messages.simulate(&messages.setting[0], 1).unwrap();
        assert_eq!((outcome.begun, outcome.ended), (2, 2));
        assert_eq!(outcome.totals.dropped, 0);
        for record in &outcome.records {
            let parts = record.parts.0.iter().map(|part| u64::from(*part));
            assert_eq!(parts.sum::<u64>(), record.took);
        }
        outcome
    };
    let (without, with) = (outcome(""), outcome("hull = {}"));
    // With a probability of 0 no flow is paced, and the outcome is the same as without a pacer.
    let never = outcome("hull = { chance = 0.0 }");
    assert_eq!(never.totals, without.totals);
    assert!(with.totals.marked > 0 && with.totals.marked != without.totals.marked);
    assert!(
        with.totals.peak <= without.totals.peak,
        "{} of {}",
        with.totals.peak,
        without.totals.peak
    );
}

#[test]
fn hulls_pacer_requires_dctcp() {
    let text = format!(
        "name = \"bad\"\ntitle = \"t\"\nsource = \"s\"\n{STAR}\
         bursts = {{ every = \"1ms\", size = \"1KB\" }}\n[[messages.setting]]\nname = \"one\"\n\
         hull = {{ gain = 2.0 }}\n"
    );
    let file = "bad.toml".to_owned();
    let error = Loaded::<PacketsExperiment>::parse(&Source { file, text }).err();
    let told = error.expect("it has mistakes").to_string();
    assert!(told.contains("gain 2: choose 0.001 to 1"), "{told}");
    assert!(
        told.contains("HULL is DCTCP with a pacer of its own"),
        "{told}"
    );
}
