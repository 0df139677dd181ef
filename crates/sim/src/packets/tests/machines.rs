//! Hosts whose guests wait for CPUs.

use super::*;

/// Questions of a client on host 0 to a server on host 1; `rest` defines the hosts.
fn talk(duration: &str, message: &str, rest: &str) -> Messages {
    messages(&format!(
        r#"
[messages]
duration = "{duration}"
star = {{ hosts = 3, link = {{ rate = "1Gbit/s", delay = "20us" }} }}
guest = [{{ name = "client", host = 0 }}, {{ name = "server", host = 1 }}, {{ name = "other", host = 2 }}]
[[messages.talk]]
name = "query"
from = "client"
to = "server"
every = "10ms"
message = {{ fixed = "100B" }}
answer = {{ fixed = "1448B" }}
{message}
[[messages.machine]]
name = "idle"
scheduler = {{ name = "xen", credit = {{ version = "4.2" }} }}
[[messages.machine]]
name = "busy"
scheduler = {{ name = "xen", credit = {{ version = "4.2" }} }}
neighbours = [{{ load = {{ kind = "bursts", work = "25ms", sleep = "5ms", jitter = "1ms" }} }}]
[[messages.setting]]
name = "one"
{rest}
"#
    ))
}

#[test]
fn an_idle_host_adds_exactly_its_processing_steps() {
    let least = |rest: &str| {
        let messages = talk("4s", "", rest);
        let outcome = messages.simulate(&messages.setting[0], 1).unwrap();
        assert!(outcome.begun > 300 && outcome.begun == outcome.ended);
        outcome.messages().map(|it| it.took.0).min().unwrap()
    };
    // The guest writes in 2 us and the driver domain sends in 3.6; the NIC interrupts after 20 us,
    // the driver domain takes 3.6, the guest 2. The same back.
    let steps = 2 * (2_000 + 3_600 + 20_000 + 3_600 + 2_000);
    let more = least("machine = \"idle\"") - least("");
    assert!(more.abs_diff(steps) < 100, "{more} for {steps}");
}

/// For messages that wait for the server's vCPU, this wait is the difference to an idle host.
#[test]
fn latency_parts_add_up_and_include_the_vcpu_wait() {
    let messages = talk(
        "4s",
        "",
        "machine = \"idle\"\non = [{ host = 1, machine = \"busy\" }]",
    );
    let outcome = messages.simulate(&messages.setting[0], 1).unwrap();
    assert_eq!(outcome.begun, outcome.ended);
    let part = |record: &Record, name: &str| {
        let place = NAMES.iter().position(|it| *it == name).unwrap();
        u64::from(record.parts.0[place])
    };
    let mut late = 0;
    for record in &outcome.records {
        let parts: u64 = record.parts.0.iter().map(|it| u64::from(*it)).sum();
        assert_eq!(parts, record.took);
        let waited = part(record, "receiver_vcpu");
        if record.took > 10_000_000 {
            late += 1;
            assert!(
                waited + 1_000_000 > record.took,
                "{waited} of {}",
                record.took
            );
        }
        // The driver domain takes 3.6 us for each, and a guest 2 us until it writes.
        assert!(part(record, "ring") >= 7_200 && part(record, "sender_vcpu") >= 4_000);
        // No wait is longer than a burst, and the slice of 30 ms is longer.
        assert!(waited < 27_000_000, "{waited}");
    }
    // Five parts in six are busy, mostly in BOOST, so the wait for a vCPU is frequent.
    assert!(late > outcome.begun / 10, "{late} of {}", outcome.begun);
}

/// A message that follows the last one's end keeps its link busy; a guest that sends beside it
/// waits in the host, according to the attribution, too.
#[test]
fn bulk_without_a_pause_fills_the_link_of_its_receiver() {
    let bulk = |rest: &str| {
        let messages = talk(
            "500ms",
            r#"
[[messages.talk]]
name = "bulk"
from = "client"
to = "server"
message = { fixed = "1MB" }
"#,
            &format!("machine = \"idle\"\n{rest}"),
        );
        messages.simulate(&messages.setting[0], 1).unwrap()
    };
    let outcome = bulk("");
    let of = |owner| outcome.records.iter().filter(move |it| it.owner == owner);
    // Half a second of 1 Gbit/s, less headers and TCP's ramp-up.
    let carried = of(1).count();
    assert!((50..60).contains(&carried), "{carried} MB");
    let queue = NAMES.iter().position(|it| *it == "host_queue").unwrap();
    let waited = of(0).map(|it| u64::from(it.parts.0[queue])).sum::<u64>();
    let mean = waited / of(0).count() as u64;
    assert!((500_000..9_000_000).contains(&mean), "{mean} ns");
    let quiet = bulk("quiet = [\"bulk\"]");
    assert!(
        quiet
            .records
            .iter()
            .all(|it| it.owner == 0 && it.took < 300_000)
    );
}

#[test]
fn guest_and_machine_mistakes_are_reported() {
    let text = |guest: &str, load: &str, rest: &str| {
        format!(
            r#"{STAR}
guest = [{{ name = "a", host = 0 }}, {{ name = "b", host = {guest} }}]
machine = [{{ name = "m", scheduler = {{ name = "x", credit = {{ version = "4.2" }} }}, neighbours = [{load}] }}]
[[messages.talk]]
name = "t"
from = "a"
to = "b"
message = {{ fixed = "1KB" }}
[[messages.setting]]
name = "one"
{rest}
"#
        )
    };
    let endless = "{ load = { kind = \"endless\" } }";
    let cases = [
        (text("9", endless, ""), "host 9: choose 0 to 3"),
        (text("0", endless, ""), "is on the same host"),
        (
            text("1", endless, "machine = \"n\""),
            "n is no `machine`: name one",
        ),
        (
            text("1", endless, "on = [{ host = 4, machine = \"m\" }]"),
            "host 4: choose 0 to 3",
        ),
        (
            text("1", endless, "quiet = [\"u\"]"),
            "u is no `talk` and no class of `tenants`: name one",
        ),
        (
            text(
                "1",
                "{ load = { kind = \"bursts\", work = \"0ms\", sleep = \"1ms\", jitter = \"0ms\" } }",
                "",
            ),
            "work must not be zero",
        ),
    ];
    for (text, expected) in cases {
        let told = refused(&text);
        assert!(told.contains(expected), "{expected}: {told}");
    }
}
