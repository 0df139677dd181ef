//! Early acknowledgement in hosts: the data path's own, at guests' rings.

use super::*;

/// A client on host 0 sends 1 MB at a time to a server on host 1, whose vCPU shares its core with two
/// that compute; `rest` says more of the machine, `transport` of what carries it.
fn transfers(rest: &str, transport: &str) -> String {
    format!(
        r#"
[messages]
duration = "8s"
star = {{ hosts = 2, link = {{ rate = "1Gbit/s", delay = "20us" }} }}
guest = [{{ name = "client", host = 0 }}, {{ name = "server", host = 1 }}]
[[messages.talk]]
name = "bulk"
from = "client"
to = "server"
every = "400ms"
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

/// What the paper is about: a receiver that waits for its vCPU acknowledges late, so its sender's
/// window grows late. The driver domain acknowledges at once.
#[test]
fn a_transfer_to_a_guest_that_waits_for_its_cpu_is_faster_where_its_host_acknowledges() {
    let transport = "slow_start = \"until-loss\"";
    let (without, with) = (run("", transport), run("snoop = {}", transport));
    let mean = |it: &Outcome| it.took[2].mean() / 1e6;
    println!("{} {} {} {}", without.ended, mean(&without), mean(&with), with.totals.early);
    println!("{:?}\n{:?}", without.totals, with.totals);
}
