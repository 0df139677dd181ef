//! The tutorials for virtual machines, command by command as their pages have them, with
//! libvirt and QEMU, by emulation.

#[path = "kvm/bridge.rs"]
mod bridge;
#[path = "kvm/hosts.rs"]
mod hosts;
#[path = "kvm/page.rs"]
mod page;
#[path = "../../host/tests/support/mod.rs"]
mod support;

use hosts::Hosts;
use page::commands;
use serde_json::Value;
use support::sandboxed;

const KVM: &str = include_str!("../../../docs/how-to/kvm.md");
const QEMU: &str = include_str!("../../../docs/how-to/qemu.md");

/// Returns a guest's state as its daemon shows it.
fn shown(hosts: &Hosts, host: &str, guest: &str) -> Value {
    let text = hosts.does(host, "tailbound host show --output json");
    let mut shown: Value = serde_json::from_str(&text).expect("JSON");
    let guests = shown["guests"].as_array_mut().expect("a list");
    let found = guests.iter_mut().find(|it| it["name"] == guest);
    found.map_or(Value::Null, Value::take)
}

/// Returns the enforced bandwidth of a guest, in bit/s.
fn bandwidth(hosts: &Hosts, host: &str, guest: &str) -> Option<u64> {
    shown(hosts, host, guest)["guarantee"]["bandwidth_bit_s"].as_u64()
}

/// Waits until the guest on a host receives frames of the other guest.
fn hears(hosts: &Hosts, host: &str, guest: &str, other: &str) {
    let console = format!("/var/log/libvirt/qemu/{guest}.console");
    hosts.until(host, &format!("cat {console}"), |text| {
        text.contains(&format!("bytes from {other}"))
    });
}

/// Runs the commands of a section.
fn follow(hosts: &Hosts, heading: &str) {
    for command in commands(KVM, heading) {
        for host in &command.hosts {
            let printed = hosts.does(host, &command.line);
            assert_eq!(command.lacks(&printed), None, "{}\n{printed}", command.line);
        }
    }
}

/// The metadata of a domain with another bandwidth, as a command.
fn metadata(domain: &str, bandwidth: &str) -> String {
    format!(
        "virsh metadata {domain} --uri https://github.com/tailbound/tailbound --key tailbound --live \
         --set '<guests><guest>vm = \"acme/web/0\"\nip = [\"10.77.0.10\"]\nguarantee = {{ bandwidth = \
         \"{bandwidth}\", burst = \"15KB\", burst_rate = \"1Gbit/s\" }}</guest></guests>'"
    )
}

#[test]
fn ten_commands_take_two_hosts_to_a_tenant_with_a_guarantee() {
    let name = "ten_commands_take_two_hosts_to_a_tenant_with_a_guarantee";
    sandboxed(name, || {
        let Some(hosts) = Hosts::start(2) else {
            return;
        };
        assert_eq!(commands(KVM, "## Ten commands").len(), 10);
        follow(&hosts, "## Ten commands");
        hears(&hosts, "h1", "web-0", "10.77.0.11");
        hears(&hosts, "h2", "web-1", "10.77.0.10");
        assert_eq!(bandwidth(&hosts, "h1", "web-0"), Some(100_000_000));
        assert_eq!(bandwidth(&hosts, "h2", "web-1"), Some(100_000_000));
        follow(&hosts, "## Changing what is guaranteed");
        hosts.until("h1", "tailbound host show", |shown| {
            shown.contains("200 Mbit/s")
        });
        wrong_calls_leave_guests_unchanged(&hosts);
        follow(&hosts, "## Renaming");
        assert_eq!(shown(&hosts, "h1", "web-0"), Value::Null);
        assert_eq!(bandwidth(&hosts, "h1", "front"), Some(200_000_000));
        // Its console's file keeps its name.
        hears(&hosts, "h1", "web-0", "10.77.0.11");
        a_daemon_that_dies_is_back(&hosts);
        follow(&hosts, "## Moving");
        assert_eq!(shown(&hosts, "h1", "front"), Value::Null);
        assert_eq!(bandwidth(&hosts, "h2", "front"), Some(200_000_000));
        hears_more(&hosts, "h2", "web-0", "10.77.0.11");
        hears_more(&hosts, "h2", "web-1", "10.77.0.10");
    });
}

#[test]
fn machines_of_one_host_need_no_libvirt() {
    sandboxed("machines_of_one_host_need_no_libvirt", || {
        let Some(hosts) = Hosts::start(1) else {
            return;
        };
        let commands = commands(QEMU, "## Two machines, and a third");
        assert_eq!(commands.len(), 6);
        for command in commands {
            let printed = hosts.does("h1", &hosts::emulated(&command.line));
            assert_eq!(command.lacks(&printed), None, "{}\n{printed}", command.line);
        }
        for (guest, other) in [("a", "10.77.0.11"), ("b", "10.77.0.10")] {
            hosts.until("h1", &format!("cat /run/{guest}.console"), |text| {
                text.contains(&format!("bytes from {other}"))
            });
            assert_eq!(shown(&hosts, "h1", guest)["link"], "up");
        }
        assert_eq!(shown(&hosts, "h1", "c")["kept"], "socket");
    });
}

/// A hook that is called out of order, metadata with wrong units, a start that is refused.
fn wrong_calls_leave_guests_unchanged(hosts: &Hosts) {
    let hook =
        |what: &str| format!("virsh dumpxml web-0 | tailbound host libvirt-hook web-0 {what}");
    let before = |hosts: &Hosts| (bandwidth(hosts, "h1", "web-0"), hosts.does("h1", ADDED));
    let so_far = before(hosts);
    let said = hosts.fails("h1", &hook("stopped end -"));
    assert!(
        said.contains("domain web-0: the card of guest web-0 is in use still"),
        "{said}"
    );
    for _ in 0..2 {
        assert_eq!(hosts.does("h1", &hook("start begin -")), "");
    }
    assert_eq!(before(hosts), so_far);
    // Wrong units, live: the guest keeps what it has.
    hosts.does("h1", &metadata("web-0", "300mbps"));
    let log = "grep -c 'domain web-0, line\\|domain web-0: line' /var/log/tailbound-libvirt.log";
    hosts.until("h1", log, |count| count.trim() == "1");
    assert_eq!(before(hosts), so_far);
    hosts.does("h1", &metadata("web-0", "200Mbit/s"));
    // A domain that would have more than there is: libvirt says why it does not start.
    let other = "sed 's/web-0/more/; s/web\\/0/web\\/2/; s/:10/:12/; s/77.0.10\"/77.0.12\"/; \
                 s/100Mbit/900Mbit/; s/host\\/web-0/host\\/more/' contrib/libvirt/web-0.xml >more.xml";
    hosts.does("h1", other);
    hosts.does("h1", "virsh define more.xml");
    let said = hosts.fails("h1", "virsh start more");
    assert!(said.contains("domain more: line "), "{said}");
    assert!(said.contains("above the link's"), "{said}");
    assert_eq!(before(hosts), so_far);
    hosts.does("h1", "virsh undefine more");
}

/// Command that prints the stored guests of a host with libvirt.
const ADDED: &str = "cat /var/lib/tailbound/*.guests.toml";

/// Guests come back by themselves.
fn a_daemon_that_dies_is_back(hosts: &Hosts) {
    hosts.does("h1", "kill -9 $(cat /run/tailbound-host.pid)");
    // What systemd does of its own accord.
    hosts.does("h1", "systemctl restart tailbound-host");
    hosts.until("h1", "tailbound host show", |shown| {
        shown
            .lines()
            .any(|line| line.contains("front") && line.contains(" up "))
    });
    assert_eq!(bandwidth(hosts, "h1", "front"), Some(200_000_000));
    hears_more(hosts, "h1", "web-0", "10.77.0.11");
}

/// Waits until the guest on a host receives new frames of the other guest.
fn hears_more(hosts: &Hosts, host: &str, guest: &str, other: &str) {
    // It says 0 where there is none, and fails.
    let count = format!("grep -c 'bytes from {other}' /var/log/libvirt/qemu/{guest}.console || :");
    let number = |text: &str| text.trim().parse().unwrap_or(0_u64);
    let heard = number(&hosts.does(host, &count));
    hosts.until(host, &count, |text| number(text) > heard + 1);
}
