//! Interfaces whose frames the kernel forwards, too, are refused: a container's veth that is a port
//! of a bridge got every packet twice, and frames that the daemon dropped.

mod support;

use support::{Daemon, Guest, Kind, METRICS, command, sandboxed, until};

/// Not a test of its own: the process of the daemons below.
#[test]
fn daemon_process() {
    support::daemon_process();
}

/// Returns the log of a daemon that refuses to start.
fn refusal(guest: &Guest) -> String {
    let daemon = Daemon::spawn(&format!("metrics = {METRICS:?}\n{}", guest.section()));
    until("the refusal", || {
        daemon.log().contains("would arrive twice")
    });
    assert!(daemon.metrics().is_none(), "it runs: {}", daemon.log());
    daemon.log()
}

#[test]
fn an_interface_that_the_kernel_forwards_is_refused_with_the_right_way() {
    sandboxed(
        "an_interface_that_the_kernel_forwards_is_refused_with_the_right_way",
        || {
            let guest = Guest::new(Kind::Veth, 1);
            command("ip", &["link", "add", "br0", "type", "bridge"]);
            command("ip", &["link", "set", "g1", "master", "br0"]);
            let log = refusal(&guest);
            assert!(log.contains("is a port of br0"), "{log}");
            assert!(log.contains("`tailbound adopt`"), "{log}");
            command("ip", &["link", "set", "g1", "nomaster"]);
            // A CNI plugin that routes gives the host's end the gateway's address.
            command("ip", &["address", "add", "10.77.0.254/32", "dev", "g1"]);
            let log = refusal(&guest);
            assert!(log.contains("has the host's address 10.77.0.254"), "{log}");
            command("ip", &["address", "flush", "dev", "g1"]);
            for step in [
                "qdisc add dev g1 clsact",
                "filter add dev g1 ingress u32 match u32 0 0 action mirred egress redirect dev lo",
            ] {
                command("tc", &step.split(' ').collect::<Vec<_>>());
            }
            let log = refusal(&guest);
            assert!(log.contains("has a classifier u32"), "{log}");
            command("tc", &["qdisc", "del", "dev", "g1", "clsact"]);
            // Then it is the daemon's.
            Daemon::start(&format!("metrics = {METRICS:?}\n{}", guest.section()));
        },
    );
}
