use super::*;
use crate::request::{Devices, UplinkQueue};
use crate::testing::FakeHost;

/// A bridge with a physical port and a guest, and what stands in the way of an uplink.
fn host() -> FakeHost {
    let mut host = FakeHost {
        default_device: Some(2),
        has_tcx: true,
        ..FakeHost::default()
    };
    host.add(2, "eth0", None, None);
    host.add(3, "br0", Some("bridge"), None);
    host.add(4, "eth1", None, Some(3));
    host.add_guest(11, "db-1", Some(3));
    host.add_guest(12, "web", None);
    host
}

fn limited() -> Request {
    Request {
        outward: Some("50Mbit/s".parse().unwrap()),
        ..Request::default()
    }
}

fn uplink(name: &str) -> Devices {
    Devices {
        uplink: Some(name.into()),
        ..Devices::default()
    }
}

/// The plan for one guest.
fn entry(world: &World, name: &str, request: &Request) -> Result<Entry, Refusal> {
    let selection = Selection::Patterns(vec![name.to_owned()]);
    let mut planned = plan(world, &selection, request, &[]).unwrap();
    assert_eq!(planned.len(), 1);
    planned.remove(0).entry
}

fn refusal(world: &World, name: &str, request: &Request) -> String {
    let refusal = entry(world, name, request).unwrap_err().to_string();
    assert_eq!(refusal.matches(". ").count(), 0, "one sentence: {refusal}");
    refusal
}

#[test]
fn the_uplink_is_the_bridges_port_or_that_of_the_default_route() {
    let host = host();
    let world = host.world();
    let bridged = entry(&world, "db-1", &limited()).unwrap();
    assert_eq!(bridged.uplink.unwrap(), "eth1 (the physical port of br0)");
    let mark = |entry: &Entry| match &entry.steps.last().unwrap().action {
        Action::Guest { rules } => rules.mark,
        Action::Uplink { .. } => None,
    };
    let routed = entry(&world, "web", &limited()).unwrap();
    assert_eq!(mark(&routed), Some(1));
    assert!(routed.uplink.unwrap().starts_with("eth0 "));
    // A guard alone needs none.
    let guarded = entry(&world, "web", &Request::default()).unwrap();
    assert_eq!((guarded.uplink, guarded.steps.len()), (None, 1));
    // The default route may be that of a bridge.
    let mut host = host;
    host.default_device = Some(3);
    let routed = entry(&host.world(), "web", &limited()).unwrap();
    assert!(routed.uplink.unwrap().starts_with("eth1 "));
}

#[test]
fn an_uplink_that_keeps_no_departure_times_is_refused() {
    for (kind, sentence) in [
        ("bond", "its ports send at their own times"),
        ("vlan", "the device below it"),
        ("vxlan", "it is a tunnel"),
        ("wireguard", "it is a tunnel"),
        ("macvlan", "the device below it"),
    ] {
        let mut host = host();
        host.ports.get_mut(&4).unwrap().kind = Some(kind.into());
        let text = refusal(&host.world(), "db-1", &limited());
        assert!(text.contains(sentence), "{kind}: {text}");
        // Without a limit there is no uplink.
        assert!(entry(&host.world(), "db-1", &Request::default()).is_ok());
    }
    let mut host = host();
    host.add(5, "eth2", None, Some(3));
    let text = refusal(&host.world(), "db-1", &limited());
    assert!(text.contains("eth1, eth2"), "{text}");
    let asked = Request {
        devices: uplink("eth2"),
        ..limited()
    };
    assert!(entry(&host.world(), "db-1", &asked).is_ok());
    let misspelt = Request {
        devices: uplink("etj2"),
        ..limited()
    };
    let text = refusal(&host.world(), "db-1", &misspelt);
    assert!(text.contains("did you mean \"eth2\"?"), "{text}");
    host.add(6, "bond0", Some("bond"), None);
    host.ports.get_mut(&5).unwrap().master = Some(6);
    let text = refusal(&host.world(), "db-1", &asked);
    assert!(text.contains("port of the bond bond0"), "{text}");
    host.default_device = None;
    let text = refusal(&host.world(), "web", &limited());
    assert!(text.contains("--uplink"), "{text}");
}

#[test]
fn a_device_without_a_place_for_programs_is_refused() {
    let mut world = host().world();
    world.driven.insert(11, "tailbound host (process 7)".into());
    let text = refusal(&world, "db-1", &Request::default());
    assert!(text.contains("forwards its frames itself"), "{text}");
    let changed = |change: fn(&mut PortState)| {
        let mut host = host();
        change(host.ports.get_mut(&11).unwrap());
        refusal(&host.world(), "db-1", &Request::default())
    };
    let text = changed(|port| port.xdp = Some(9));
    assert!(text.contains("XDP program (number 9)"), "{text}");
    let text = changed(|port| port.kind = Some("macvtap".into()));
    assert!(text.contains("is a macvtap"), "{text}");
    // Before tcx another program's classifiers come first.
    let mut host = host();
    host.ports.get_mut(&11).unwrap().classifiers = vec!["bpf".into()];
    assert!(entry(&host.world(), "db-1", &Request::default()).is_ok());
    host.has_tcx = false;
    let text = refusal(&host.world(), "db-1", &Request::default());
    assert!(text.contains("Linux 6.6"), "{text}");
    host.guests[0].devices[0].1 = None;
    host.has_tcx = true;
    let text = refusal(&host.world(), "db-1", &Request::default());
    assert!(text.contains("--mac"), "{text}");
    let mut world = host.world();
    world.kernel.fq = Err("no module sch_fq".into());
    let text = refusal(&world, "web", &limited());
    assert!(text.contains("no fq"), "{text}");
}

#[test]
fn a_limit_holds_for_one_device() {
    let mut host = host();
    let station = host.guests[0].devices[0].1.clone();
    host.add(13, "veth13", Some("veth"), Some(3));
    host.guests[0].devices.push((13, station));
    let text = refusal(&host.world(), "db-1", &limited());
    assert!(text.contains("veth11, veth13"), "{text}");
    let both = entry(&host.world(), "db-1", &Request::default()).unwrap();
    assert_eq!(both.steps.len(), 2);
    let one = Request {
        devices: Devices {
            interface: Some("veth13".into()),
            ..Devices::default()
        },
        ..limited()
    };
    assert_eq!(entry(&host.world(), "db-1", &one).unwrap().steps.len(), 2);
}

#[test]
fn guests_are_selected_by_name_key_pattern_and_device() {
    let mut host = host();
    host.add_guest(13, "db-2", Some(3));
    host.add_guest(17, "tap7", None);
    let mut world = host.world();
    let device = world.guests.iter_mut().find(|it| it.name == "tap7");
    let device = device.unwrap();
    device.key = "device/tap7".to_owned();
    device.is_plain = true;
    let names = |patterns: &[&str]| {
        let patterns = patterns.iter().map(|it| (*it).to_owned()).collect();
        let selected = select(&world, &Selection::Patterns(patterns));
        selected.map(|guests| guests.iter().map(|it| it.name.clone()).collect::<Vec<_>>())
    };
    assert_eq!(names(&["db-*"]).unwrap(), ["db-1", "db-2"]);
    assert_eq!(names(&["netns/web", "web"]).unwrap(), ["web"]);
    assert_eq!(names(&["veth13"]).unwrap(), ["db-2"]);
    // A device without a guest is meant by its name or its whole key alone.
    assert!(names(&["tap7"]).is_err());
    assert_eq!(names(&["device/tap7", "veth17"]).unwrap(), ["tap7"]);
    assert!(names(&["device/*"]).is_err());
    let text = names(&["db-3"]).unwrap_err().to_string();
    assert!(text.contains("did you mean \"db-"), "{text}");
    assert_eq!(select(&world, &Selection::All).unwrap().len(), 3);
    let one = Request {
        mac: Some("02:00:00:00:00:07".parse().unwrap()),
        ..Request::default()
    };
    let refused = plan(&world, &Selection::All, &one, &[]);
    assert_eq!(refused.unwrap_err(), Refusal::ForOne(3));
}

/// The programs on interfaces put no `fq` there for a guarantee alone, so an adoption must not wait for one.
#[test]
fn a_guarantee_alone_needs_fq_only_at_the_uplink() {
    let host = host();
    let bucket = Some("50Mbit/s".parse().unwrap());
    let queues = |request: Request| {
        let steps = entry(&host.world(), "db-1", &request).unwrap().steps;
        let queues = steps.iter().map(|step| step.action.needs_fq());
        queues.collect::<Vec<_>>()
    };
    let guaranteed = Request {
        guarantee: bucket,
        ..Request::default()
    };
    assert_eq!(queues(guaranteed), [true, false]);
    assert_eq!(queues(limited()), [true, true]);
}

#[test]
fn an_uplink_has_the_queue_that_was_asked_for_first() {
    let host = host();
    let mut world = host.world();
    let asked = |queue| Request {
        devices: Devices {
            qdisc: queue,
            ..Devices::default()
        },
        ..limited()
    };
    let queue = |entry: &Entry| entry.steps.iter().map(|step| step.action.queue()).max();
    let selection = Selection::Patterns(vec!["db-1".to_owned()]);
    let again = |queue, known: &[Entry]| {
        let mut planned = plan(&world, &selection, &asked(queue), known).unwrap();
        planned.remove(0).entry
    };
    let plain = again(None, &[]).unwrap();
    assert_eq!(queue(&plain), Some(UplinkQueue::Fq));
    let exact = again(Some(UplinkQueue::Bpf), &[]).unwrap();
    assert_eq!(queue(&exact), Some(UplinkQueue::Bpf));
    // Another adoption does not change it in silence.
    let known = [exact];
    assert_eq!(queue(&again(None, &known).unwrap()), Some(UplinkQueue::Bpf));
    let refused = again(Some(UplinkQueue::Fq), &known).unwrap_err();
    assert!(refused.to_string().contains("a BPF qdisc for other guests"));
    world.kernel.bpf_qdisc = Err("no BPF qdiscs".into());
    let text = refusal(&world, "db-1", &asked(Some(UplinkQueue::Bpf)));
    assert!(text.contains("no BPF qdiscs"), "{text}");
}
