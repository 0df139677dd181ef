//! Memory that a hostile guest has a real daemon hold, as the kernel counts it.

mod support;

use std::io::Write;
use std::time::{Duration, Instant};
use support::{Daemon, Guest, Kind, MEASURED, METRICS, command, sandboxed};
use tailbound_dataplane::testing::frames::{ethernet, ipv4, udp};

/// Not a test of its own: the process of the daemon below.
#[test]
fn daemon_process() {
    support::daemon_process();
}

/// The limit of the queue in front of the other guest's port, in KiB.
const BOUND: u64 = 16 * 1024;

/// A datagram of `len` bytes from guest 1 to guest 2.
fn datagram(to: &Guest, from: &Guest, len: u16, n: u16) -> Vec<u8> {
    // To 65,536 addresses behind one station.
    let [high, low] = n.to_be_bytes();
    let payload = udp(1, 2, &vec![7; usize::from(len) - 42]);
    let packet = ipv4(
        [10, 77, 0, 1].into(),
        [10, 78, high, low].into(),
        17,
        &payload,
    );
    ethernet(to.mac, from.mac, 0x0800, &packet)
}

#[test]
fn a_flood_holds_at_most_twice_its_queue_bound_and_frees_it() {
    let name = "a_flood_holds_at_most_twice_its_queue_bound_and_frees_it";
    sandboxed(name, || {
        let guests = [1, 2].map(|number| Guest::new(Kind::Veth, number));
        for guest in &guests {
            command("ip", &["link", "set", &guest.name, "mtu", "9000"]);
            guest.inside("ip", &["link", "set", "eth0", "mtu", "9000"]);
        }
        let [a, b] = guests;
        let config = |rate: &str| {
            format!(
                "metrics = {METRICS:?}\n{}{}pipeline = {{ nic = {{ rate = {rate:?}, limit = \
                 \"20KB\" }}, queue = {{ kind = \"fq-codel\", packets = 1000000, memory = \
                 \"{BOUND}KiB\" }} }}\n",
                a.section(),
                b.section()
            )
        };
        let daemon = Daemon::start(&config("10Mbit/s"));
        let mut nic = a.nic();
        // What it takes to receive at all, and its own code.
        for n in 0..64 {
            nic.send(&datagram(&b, &a, 2100, n));
        }
        std::thread::sleep(Duration::from_millis(200));
        let idle = daemon.resident();
        let mut most = 0;
        for len in [2100, 4200, 9000, 60] {
            for n in 0..15_000_u16 {
                nic.send(&datagram(&b, &a, len, n.wrapping_mul(41)));
                if n % 512 == 0 {
                    most = most.max(daemon.resident());
                }
            }
        }
        // What waits leaves at once now.
        daemon.configure(&config("10Gbit/s"));
        let start = Instant::now();
        let back = loop {
            let now = daemon.resident();
            if now < idle + 5 * 1024 || start.elapsed() > Duration::from_secs(15) {
                break now;
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        let took = start.elapsed();
        let said = format!(
            "{MEASURED}resident {idle} KiB idle, {most} KiB at most, {back} KiB {took:?} later"
        );
        let _ = writeln!(std::io::stderr(), "{said}");
        println!("{said}");
        assert!(most - idle <= 2 * BOUND, "{said}");
        assert!(most - idle >= BOUND / 2, "{said}: no test");
        assert!(back < idle + 5 * 1024, "{said}");
        assert!(took < Duration::from_secs(10), "{said}");
    });
}
