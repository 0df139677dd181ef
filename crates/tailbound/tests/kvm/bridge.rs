//! A domain on a bridge: its hook adopts it, without the daemon.

use super::hosts::Hosts;
use super::support::sandboxed;
use tailbound_sys::network::queue;
use tailbound_sys::probe::required::{Part, skipped};

/// The domain of the page with another interface and other metadata.
fn xml(metadata: &str) -> String {
    let own = include_str!("../../../../contrib/libvirt/web-0.xml");
    let between = |text: &str, from: &str, to: &str, new: &str| {
        let (before, rest) = text.split_once(from).expect(from);
        let (_, after) = rest.split_once(to).expect(to);
        format!("{before}{new}{after}")
    };
    let text = between(
        own,
        "<metadata>",
        "</metadata>",
        &format!("<metadata>{metadata}</metadata>"),
    );
    let card = "<interface type='bridge'><mac address='52:54:00:77:00:10'/><source bridge='br0'/>\
                <model type='virtio'/></interface>";
    let text = between(&text, "<interface type='vhostuser'>", "</interface>", card);
    super::hosts::emulated(&text)
}

fn own(attributes: &str) -> String {
    xml(&format!(
        "<tailbound:guarantee xmlns:tailbound='https://github.com/tailbound/tailbound' {attributes}/>"
    ))
}

fn define(hosts: &Hosts, xml: &str) {
    let line = format!(
        "cat >bridge.xml <<'END'\n{xml}\nEND\nvirsh undefine web-0 || :\nvirsh define bridge.xml"
    );
    hosts.does("h1", &line);
}

#[test]
fn a_domain_on_a_bridge_is_adopted_when_it_starts() {
    sandboxed(
        "bridge::a_domain_on_a_bridge_is_adopted_when_it_starts",
        || {
            let Some(hosts) = Hosts::start(1) else {
                return;
            };
            let mounted = hosts.run("h1", "mount -t bpf bpf /sys/fs/bpf");
            if !mounted.status.success() {
                skipped(Part::BpfEdge, "no BPF file system can be mounted");
                return;
            }
            hosts.does("h1", "cp -r contrib/libvirt/etc/libvirt /etc/");
            hosts.does("h1", "ip link add br0 type bridge");
            hosts.does("h1", "ip link set br0 up");
            hosts.does("h1", "systemctl restart libvirtd");
            define(&hosts, &own("ip='10.77.0.10' dscp='46'"));
            hosts.does("h1", "virsh start web-0");
            let list = hosts.does("h1", "tailbound adopt --list");
            assert!(list.starts_with("web-0\n"), "{list}");
            assert!(
                list.contains("source 52:54:00:77:00:10 with 10.77.0.10; DSCP 46"),
                "{list}"
            );
            // Its metadata may change while it runs.
            let change = "virsh dumpxml web-0 | sed \"s/dscp=.46./dscp='10'/\" | \
                      tailbound host libvirt-hook web-0 reconnect begin -";
            assert_eq!(hosts.does("h1", change), "");
            let list = hosts.does("h1", "tailbound adopt --list");
            assert!(list.contains("DSCP 10"), "{list}");
            hosts.does("h1", "virsh destroy web-0");
            assert_eq!(
                hosts.does("h1", "tailbound adopt --list"),
                "no guest is adopted\n"
            );
            hosts.does("h1", "test ! -e /sys/fs/bpf/tailbound");
            refused(&hosts);
        },
    );
}

/// A guarantee that cannot be kept is a start that fails, with the reason.
fn refused(hosts: &Hosts) {
    let nova = "<nova:instance xmlns:nova='http://openstack.org/xmlns/libvirt/nova/1.1'>\
                <nova:flavor name='a'><nova:extraSpecs><nova:extraSpec \
                name='tailbound:bandwidth'>50mbps</nova:extraSpec></nova:extraSpecs></nova:flavor>\
                </nova:instance>";
    let mut all = vec![
        (
            own("bandwidth='100Mb'"),
            "of its XML: bandwidth: \"100Mb\" has the unknown unit",
        ),
        (
            xml(nova),
            "of its XML: bandwidth: \"50mbps\" has the unknown unit",
        ),
    ];
    if queue::try_fq().is_err() {
        all.push((
            own("bandwidth='100Mbit/s'"),
            "domain web-0: this kernel has no fq",
        ));
    }
    for (xml, said) in all {
        define(hosts, &xml);
        let error = hosts.fails("h1", "virsh start web-0");
        assert!(error.contains(said), "{error}");
        assert_eq!(
            hosts.does("h1", "tailbound adopt --list"),
            "no guest is adopted\n"
        );
    }
}
