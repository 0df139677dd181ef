//! Early acknowledgement in hosts: the data path's own, at guests' rings.

use super::*;

/// A client on host 0 sends 1 MB at a time to a server on host 1, whose vCPU shares its core with
/// two that compute; `rest` defines more of the machine, `transport` the transport.
fn transfers(rest: &str, transport: &str) -> String {
    format!(
        r#"
[messages]
duration = "1500ms"
star = {{ hosts = 2, link = {{ rate = "1Gbit/s", delay = "20us" }} }}
guest = [{{ name = "client", host = 0 }}, {{ name = "server", host = 1 }}]
[[messages.talk]]
name = "bulk"
from = "client"
to = "server"
every = "250ms"
message = {{ fixed = "1MB" }}
[[messages.machine]]
name = "busy"
scheduler = {{ name = "xen", credit = {{ version = "3.3" }} }}
neighbours = [
    {{ load = {{ kind = "bursts", work = "25ms", sleep = "5ms", jitter = "1ms" }} }},
    {{ load = {{ kind = "bursts", work = "25ms", sleep = "5ms", jitter = "1ms" }} }},
]
{rest}
[[messages.setting]]
name = "one"
on = [{{ host = 1, machine = "busy" }}]
transport = {{ {transport} }}
"#
    )
}

fn run(rest: &str, transport: &str) -> Outcome {
    let messages = messages(&transfers(rest, transport));
    messages.simulate(&messages.setting[0], 1).unwrap()
}

/// The paper's result: a receiver that waits for its vCPU acknowledges late, so its sender's window
/// grows late. The driver domain acknowledges immediately.
#[test]
fn early_acks_by_the_host_speed_up_transfers_to_a_busy_guest() {
    let transport = "slow_start = \"until-loss\"";
    let (without, with) = (run("", transport), run("snoop = {}", transport));
    let mean = |it: &Outcome| it.took[2].mean() / 1e6;
    assert_eq!((without.begun, with.begun), (without.ended, with.ended));
    let (early, all) = (with.totals.early, with.ended * 691);
    assert!(
        without.totals.early == 0 && early > all / 2,
        "{early} of {all}"
    );
    let (without, with) = (mean(&without), mean(&with));
    assert!(with < 0.75 * without, "{with} ms of {without}");
}

/// Each message is received completely despite losses in switches and full rings, also on
/// consecutive connections.
#[test]
fn every_message_arrives_despite_early_acks_and_drops() {
    for (sack, own) in [(true, false), (false, true)] {
        let flows = messages(&format!(
            r#"
[messages]
duration = "40ms"
stops = true
star = {{ hosts = 4, link = {{ rate = "1Gbit/s", delay = "20us" }} }}
flows = {{ every = "6ms", sizes = {{ fixed = "50KB" }}, own_connections = {own} }}
[[messages.machine]]
name = "busy"
scheduler = {{ name = "xen", credit = {{ version = "3.3" }} }}
neighbours = [{{ load = {{ kind = "bursts", work = "25ms", sleep = "5ms", jitter = "1ms" }} }}]
snoop = {{}}
[[messages.setting]]
name = "one"
machine = "busy"
transport = {{ sack = {sack}, least_timeout = "10ms" }}
switches = {{ buffer = "5KB" }}
"#
        ));
        let outcome = flows.simulate(&flows.setting[0], 1).unwrap();
        assert!(outcome.begun > 5);
        assert_eq!(outcome.begun, outcome.ended, "{:?}", outcome.totals);
        let totals = &outcome.totals;
        assert!(totals.early > 500 && totals.resent > 10, "{totals:?}");
    }
}

#[test]
fn settings_that_exclude_early_acknowledgement_are_refused() {
    for (rest, transport, expected) in [
        (
            "snoop = {}",
            "congestion = \"dctcp\"",
            "no early acknowledgement with marks",
        ),
        (
            "snoop = {}",
            "receive_window = \"16MiB\"",
            "early acknowledgement advertises",
        ),
        (
            "snoop = { flows = 0 }",
            "",
            "`flows` must be from 1 to 4194304",
        ),
        ("snoop = { size = 1 }", "", "unknown key `size`"),
    ] {
        let told = refused(&transfers(rest, transport));
        assert!(told.contains(expected), "{expected}: {told}");
    }
}
