//! Ways past the bridge.

use super::*;
use std::time::{Duration, Instant};

/// The second guest: its port, address and MAC.
const SECOND: (u32, Ipv4Addr, [u8; 6]) = (78, Ipv4Addr::new(10, 9, 0, 4), [2, 0, 0, 0, 0, 4]);

impl Net {
    /// Puts the guest's port and another guest's into a bridge. The other guest is a namespace `x`.
    fn add_bridge(&self) -> Third {
        let (name, (index, address, _)) = (&self.name, SECOND);
        for command in [
            format!("ip netns add {name}x"),
            format!("ip -n {name}h link add sw type bridge"),
            format!("ip -n {name}h link set sw up"),
            format!("ip -n {name}h addr del {HOST}/24 dev port"),
            format!("ip -n {name}h addr add {HOST}/24 dev sw"),
            format!("ip -n {name}h link set port master sw"),
            format!(
                "ip -n {name}h link add other index {index} type veth peer name eth0 netns {name}x"
            ),
            format!("ip -n {name}x link set eth0 address 02:00:00:00:00:04"),
            format!("ip -n {name}x addr add {address}/24 dev eth0"),
            format!("ip -n {name}x link set eth0 up"),
            format!("ip -n {name}h link set other up"),
            format!("ip -n {name}h link set other master sw"),
        ] {
            assert!(run(&command), "{command}");
        }
        self.host(|| {
            for table in ["iptables", "ip6tables", "arptables"] {
                // Without br_netfilter there is none.
                let setting = format!("/proc/sys/net/bridge/bridge-nf-call-{table}");
                let _ = std::fs::write(setting, "0");
            }
        });
        Third(format!("{name}x"))
    }
}

struct Third(String);

impl std::ops::Drop for Third {
    fn drop(&mut self) {
        run(&format!("ip netns del {}", self.0));
    }
}

impl Third {
    /// Counts how many of `count` datagrams of the first guest arrive.
    fn arrive(&self, net: &Net, count: usize) -> usize {
        let receiver = netns::within(&Path::new("/run/netns").join(&self.0), || {
            UdpSocket::bind((SECOND.1, 0)).expect("an address")
        });
        let receiver = receiver.expect("a namespace");
        let to = receiver.local_addr().expect("an address");
        let wait = Some(Duration::from_millis(300));
        receiver.set_read_timeout(wait).expect("a timeout");
        let sender = netns::within(&net.path("g"), || UdpSocket::bind((OWN, 0)));
        let sender = sender.expect("a namespace").expect("an address");
        let mut arrived = 0;
        for _ in 0..count {
            sender.send_to(b"x", to).expect("a route");
            arrived += usize::from(receiver.recv(&mut [0; 8]).is_ok());
        }
        arrived
    }
}

/// The number of ways that were learned.
fn ways(edge: &Edge) -> usize {
    let ways = edge.maps.quick.ways.iter().map(|it| it.expect("a map"));
    ways.filter(|it| it[0] != 0).count()
}

#[test]
fn frames_between_guests_pass_the_bridge_as_long_as_it_passes_them_on() {
    const COUNT: usize = 200;
    let Some(net) = Net::new() else { return };
    let third = net.add_bridge();
    let Some(mut edge) = net.open() else { return };
    let direct = |mac, address| GuestRules {
        guard: Some(Guard::new(mac, [IpAddr::V4(address).into()])),
        is_direct: true,
        ..GuestRules::default()
    };
    let (index, address, mac) = SECOND;
    for (index, rules) in [(INDEX, direct(MAC, OWN)), (index, direct(mac, address))] {
        let attached = net.host(|| edge.attach_guest(index, &rules));
        attached.expect("a port of a bridge");
    }
    assert_eq!(third.arrive(&net, COUNT), COUNT);
    assert_eq!(ways(&edge), 2, "a way of each to the other");
    // A way ends within 25 ticks after the bridge stops to pass frames on.
    let name = &net.name;
    for port in ["port", "other"] {
        assert!(run(&format!(
            "bridge -n {name}h link set dev {port} isolated on"
        )));
    }
    let end = Instant::now() + Duration::from_secs(2);
    while third.arrive(&net, 1) > 0 {
        assert!(Instant::now() < end, "the way has no end");
    }
    assert_eq!(third.arrive(&net, 5), 0);
    for port in ["port", "other"] {
        assert!(run(&format!(
            "bridge -n {name}h link set dev {port} isolated off"
        )));
    }
    assert_eq!(third.arrive(&net, 5), 5);
    net.host(|| edge.remove()).expect("no obstacle");
    assert_eq!(third.arrive(&net, 5), 5);
}

#[test]
fn a_port_of_no_bridge_or_of_one_that_filters_vlans_is_refused() {
    let Some(net) = Net::new() else { return };
    let Some(mut edge) = net.open() else { return };
    let direct = GuestRules {
        is_direct: true,
        ..rules()
    };
    let mut refused = |why: &str| {
        let error = net.host(|| edge.attach_guest(INDEX, &direct));
        let error = error.expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(edge.attachments().expect("a map"), []);
    };
    refused("it is the port of no Linux bridge");
    let _third = net.add_bridge();
    let bridge = format!("ip -n {}h link set sw type bridge", net.name);
    // This kernel may lack either.
    for (setting, why) in [
        ("vlan_filtering", "the bridge filters VLANs"),
        ("nf_call_iptables", "br_netfilter shows"),
    ] {
        if run(&format!("{bridge} {setting} 1")) {
            refused(why);
            assert!(run(&format!("{bridge} {setting} 0")));
        }
    }
    let unchecked = GuestRules {
        guard: None,
        ..direct.clone()
    };
    let error = net.host(|| edge.attach_guest(INDEX, &unchecked));
    let error = error.expect_err("no guard").to_string();
    assert!(error.contains("addresses are checked"), "{error}");
}
