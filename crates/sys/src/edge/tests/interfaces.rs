//! Programs on interfaces of a host, a network namespace of the test's own. Its guest is another one,
//! behind a veth.

mod attacks;
#[cfg(feature = "departures")]
mod codel;
#[cfg(feature = "departures")]
mod departures;
mod direct;
mod queue;
mod splitter;

use super::*;
use crate::netns;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tailbound_units::{Bytes, Nanos, Rate};

const HOST: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const OWN: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// An address that the guest has no right to.
const OTHERS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 3);
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const INDEX: u32 = 77;

/// A host and its guest.
struct Net {
    name: String,
    bpffs: Bpffs,
}

impl std::ops::Drop for Net {
    fn drop(&mut self) {
        for end in ["h", "g"] {
            run(&format!("ip netns del {}{end}", self.name));
        }
    }
}

impl Net {
    fn new() -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("ed{}-{number}", std::process::id());
        let bpffs = Bpffs::new()?;
        for end in ["h", "g"] {
            if !run(&format!("ip netns add {name}{end}")) {
                skipped(Part::NetworkNamespaces, "`ip netns add` as root fails");
                return None;
            }
        }
        let net = Self { name, bpffs };
        net.add_link();
        Some(net)
    }

    fn add_link(&self) {
        let name = &self.name;
        for command in [
            format!(
                "ip -n {name}h link add port index {INDEX} type veth peer name eth0 netns {name}g"
            ),
            format!("ip -n {name}g link set eth0 address 02:00:00:00:00:02"),
            format!("ip -n {name}h link set port up"),
            format!("ip -n {name}g link set eth0 up"),
            format!("ip -n {name}h addr add {HOST}/24 dev port"),
            format!("ip -n {name}g addr add {OWN}/24 dev eth0"),
            format!("ip -n {name}g addr add {OTHERS}/24 dev eth0"),
        ] {
            assert!(run(&command), "{command}");
        }
    }

    fn path(&self, end: &str) -> PathBuf {
        Path::new("/run/netns").join(format!("{}{end}", self.name))
    }

    /// Works on the host.
    fn host<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        netns::within(&self.path("h"), work).expect("a namespace")
    }

    /// Opens the data path on the host; `None`, and a skip, if the kernel refuses.
    fn open(&self) -> Option<Edge> {
        self.host(|| self.bpffs.open(Clock::Monotonic))
    }

    /// Returns true if a datagram of the guest from `source` reaches the host.
    fn reaches(&self, source: Ipv4Addr) -> bool {
        let receiver = self.host(|| UdpSocket::bind((HOST, 0)).expect("an address"));
        let to = receiver.local_addr().expect("an address");
        let wait = Some(Duration::from_millis(200));
        receiver.set_read_timeout(wait).expect("a timeout");
        let send = || {
            let sender = UdpSocket::bind((source, 0)).expect("an address");
            sender.send_to(b"x", to).expect("a route");
        };
        netns::within(&self.path("g"), send).expect("a namespace");
        receiver.recv(&mut [0; 8]).is_ok()
    }

    /// All that can be seen of the interface.
    fn state(&self) -> String {
        let name = format!("{}h", self.name);
        let mut state = String::new();
        for command in [
            "ip -d link show dev port",
            "tc qdisc show",
            "tc filter show dev port ingress",
            "tc filter show dev port egress",
        ] {
            let words = command.replacen(' ', &format!(" -n {name} "), 1);
            let mut words = words.split(' ');
            let output = Command::new(words.next().expect("a word"))
                .args(words)
                .output();
            state += &String::from_utf8_lossy(&output.expect("iproute2").stdout);
        }
        state
    }
}

fn rules() -> GuestRules {
    GuestRules {
        guard: Some(Guard::new(MAC, [IpAddr::V4(OWN).into()])),
        ..GuestRules::default()
    }
}

fn limit() -> Bucket {
    Bucket {
        rate: Rate::from_mbit(10),
        burst: Bytes(10_000),
    }
}

#[test]
fn a_guest_is_checked_until_it_is_released_without_a_trace() {
    let Some(net) = Net::new() else { return };
    let before = net.state();
    let Some(mut edge) = net.open() else { return };
    assert!(net.reaches(OTHERS));
    let attachment = net.host(|| edge.attach_guest(INDEX, &rules()));
    let attachment = attachment.expect("an interface without a qdisc");
    assert_eq!(edge.attachments().expect("a map"), [attachment]);
    assert!(net.reaches(OWN));
    assert!(!net.reaches(OTHERS));
    let counters = edge.counters(INDEX).expect("a guest");
    assert!(counters.drops(DropReason::SpoofedIp) > 0);
    // Attached again, it has the new rules and its counters.
    let mut wider = rules();
    wider.guard = Some(Guard::new(
        MAC,
        [OWN, OTHERS].map(|it| IpAddr::V4(it).into()),
    ));
    let again = net.host(|| edge.attach_guest(INDEX, &wider));
    assert_eq!(again.expect("the same interface"), attachment);
    assert!(net.reaches(OTHERS));
    assert_eq!(edge.counters(INDEX).expect("a guest"), counters);
    net.host(|| edge.set(INDEX, &rules())).expect("a guest");
    assert!(!net.reaches(OTHERS));
    net.host(|| edge.detach(INDEX)).expect("no obstacle");
    net.host(|| edge.detach(INDEX)).expect("nothing to do");
    assert!(net.reaches(OTHERS));
    assert!(edge.counters(INDEX).is_err());
    net.host(|| edge.remove()).expect("no obstacle");
    assert_eq!(net.state(), before);
    assert!(!net.bpffs.pin().exists());
}

#[test]
fn a_container_cuts_its_packets_until_it_is_released() {
    let Some(net) = Net::new() else { return };
    let Some(mut edge) = net.open() else { return };
    let segments = || {
        let guest = net.path("g");
        netns::within(&guest, || offload::segments("eth0"))
            .expect("a namespace")
            .expect("an interface")
    };
    let guaranteed = |packet| GuestRules {
        guarantee: Some(Guarantee {
            bucket: limit(),
            peak: None,
            frame: Bytes(1_538),
            packet,
        }),
        ..rules()
    };
    let before = segments();
    assert!(before > 1_000, "{before}");
    let attach = |edge: &mut Edge, packet: Option<u64>| {
        let rules = guaranteed(packet.map(Bytes));
        net.host(|| edge.attach_guest(INDEX, &rules))
            .expect("an interface");
        segments()
    };
    assert_eq!(attach(&mut edge, Some(1_538)), 1);
    // 64 KiB of full frames are 45.
    assert_eq!(attach(&mut edge, Some(80_000)), 51);
    assert_eq!(attach(&mut edge, None), before);
    assert_eq!(attach(&mut edge, Some(1_538)), 1);
    drop(edge);
    let mut edge = net.open().expect("what is pinned");
    net.host(|| edge.detach(INDEX)).expect("no obstacle");
    assert_eq!(segments(), before);
    // A limit that the container has itself stays, and so does one that it sets meanwhile.
    for own in [3, 7] {
        let set = || offload::set_segments("eth0", own);
        if own == 7 {
            assert_eq!(attach(&mut edge, Some(1_538)), 1);
        }
        netns::within(&net.path("g"), set)
            .expect("a namespace")
            .expect("a number");
        if own == 3 {
            assert_eq!(attach(&mut edge, Some(80_000)), 3);
        }
        net.host(|| edge.detach(INDEX)).expect("no obstacle");
        assert_eq!(segments(), own);
    }
    assert_eq!(edge.maps.offloads.keys().count(), 0);
}

/// The line of the loader at the end of its work.
const ATTACHED: &str = "the loader has attached";

/// The other process of [`programs_go_on_after_their_loader_is_killed`]; elsewhere it does nothing.
#[test]
fn loader_that_is_killed() {
    let (Some(pin), Some(netns)) = (std::env::var_os("EDGE_PIN"), std::env::var_os("EDGE_NETNS"))
    else {
        return;
    };
    let attach = || {
        let mut edge = Edge::open(Path::new(&pin)).expect("a bpffs");
        edge.attach_guest(INDEX, &rules()).expect("an interface");
        // Not by `println`, which the harness keeps to itself.
        writeln!(std::io::stdout(), "{ATTACHED}").expect("a reader");
        std::thread::sleep(Duration::from_mins(1));
    };
    netns::within(Path::new(&netns), attach).expect("a namespace");
}

/// Starts the other process, and waits until it has attached: killed earlier it leaves an attachment that
/// is begun.
fn start_loader(net: &Net) -> Child {
    let program = std::env::current_exe().expect("this program");
    let name = "edge::tests::interfaces::loader_that_is_killed";
    let mut loader = Command::new(program)
        .args([name, "--exact"])
        .env("EDGE_PIN", net.bpffs.pin())
        .env("EDGE_NETNS", net.path("h"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program");
    let output = BufReader::new(loader.stdout.take().expect("a pipe"));
    let mut lines = output.lines().map_while(Result::ok);
    assert!(
        lines.any(|line| line.ends_with(ATTACHED)),
        "the loader attaches nothing"
    );
    loader
}

#[test]
fn programs_go_on_after_their_loader_is_killed() {
    let Some(net) = Net::new() else { return };
    let Some(edge) = net.open() else { return };
    drop(edge);
    // The guest must know the host's MAC address before the check: it would ask for it in the name of
    // `OTHERS`, have no answer, and hold back its other datagrams until it asks again.
    assert!(net.reaches(OTHERS));
    let mut loader = start_loader(&net);
    loader.kill().expect("a child");
    loader.wait().expect("a child");
    for _ in 0..3 {
        assert!(net.reaches(OWN));
        assert!(!net.reaches(OTHERS));
    }
    let mut edge = net.open().expect("what is pinned");
    let attachment = edge.attachments().expect("a map")[0];
    assert_eq!(attachment.ifindex, INDEX);
    assert!(net.host(|| edge.is_attached(INDEX)).expect("a map"));
    assert!(edge.counters(INDEX).expect("a guest").dropped() >= 3);
    net.host(|| edge.set(INDEX, &GuestRules::default()))
        .expect("a guest");
    assert!(net.reaches(OTHERS));
    net.host(|| edge.remove()).expect("no obstacle");
}

#[test]
fn programs_of_others_stay_and_run() {
    if attach::way() == Way::Clsact {
        skipped(
            Part::BpfEdge,
            "filters of clsact have one place for tailbound",
        );
        return;
    }
    let Some(net) = Net::new() else { return };
    let Some(mut first) = net.open() else { return };
    let other = net.bpffs.0.path().join("other");
    let mut second = net.host(|| Edge::open(&other)).expect("a second directory");
    let all = GuestRules::default();
    net.host(|| second.attach_guest(INDEX, &rules()))
        .expect("an interface");
    net.host(|| first.attach_guest(INDEX, &all))
        .expect("an interface");
    // It is the last one, and decides.
    assert!(!net.reaches(OTHERS));
    net.host(|| first.detach(INDEX)).expect("no obstacle");
    assert!(!net.reaches(OTHERS));
    assert!(net.host(|| second.is_attached(INDEX)).expect("a map"));
    assert!(!net.host(|| first.is_attached(INDEX)).expect("a map"));
}

#[test]
fn a_qdisc_of_the_administrator_is_refused_and_stays() {
    let Some(net) = Net::new() else { return };
    let Some(mut edge) = net.open() else { return };
    let name = &net.name;
    assert!(run(&format!(
        "tc -n {name}h qdisc add dev port root handle 5: pfifo"
    )));
    let before = net.state();
    let limited = GuestRules {
        inward: Some(limit()),
        ..rules()
    };
    let error = net.host(|| edge.attach_guest(INDEX, &limited));
    let error = error.expect_err("a qdisc is in the way");
    assert!(
        matches!(&error, EdgeError::Qdisc { kind, .. } if kind == "pfifo"),
        "{error}"
    );
    let uplink = net.host(|| edge.attach_uplink(INDEX, &UplinkRules::default()));
    assert!(matches!(uplink, Err(EdgeError::Qdisc { .. })));
    assert_eq!(edge.attachments().expect("a map"), []);
    assert_eq!(net.state(), before);
    // Without a limit no frame waits, so the administrator's qdisc may stay; a limit needs its place.
    net.host(|| edge.attach_guest(INDEX, &rules()))
        .expect("an interface");
    assert!(net.host(|| edge.set(INDEX, &limited)).is_err());
    assert!(!net.reaches(OTHERS), "the rules from before");
}

#[test]
fn a_limit_has_a_queue_or_nothing_is_changed() {
    let Some(net) = Net::new() else { return };
    let Some(mut edge) = net.open() else { return };
    let before = net.state();
    let limited = GuestRules {
        inward: Some(limit()),
        ..rules()
    };
    match net.host(|| edge.attach_guest(INDEX, &limited)) {
        Ok(attachment) => {
            assert_eq!(attachment.queue, Queue::Fq);
            assert!(net.state().contains("qdisc fq 7b1d:"));
            net.host(|| edge.detach(INDEX)).expect("no obstacle");
        }
        // A kernel without `fq` refuses the limit; `make edge-guest` has kernels with it.
        Err(error) => {
            assert!(error.to_string().contains("no qdisc fq"), "{error}");
            assert_eq!(edge.attachments().expect("a map"), []);
        }
    }
    assert_eq!(net.state(), before);
    assert!(net.reaches(OTHERS));
}

#[test]
fn a_host_is_warmed_up_without_a_trace() {
    const COUNT: u64 = 10_000;
    let Some(net) = Net::new() else { return };
    let Some(mut edge) = net.open() else { return };
    let before = net.state();
    match net.host(|| edge.warm_up(COUNT)) {
        Ok(Some(lateness)) => {
            // The first burst is not among them.
            let counted = lateness.frames();
            assert!((COUNT..COUNT + 1_000).contains(&counted), "{counted}");
            assert!(lateness.max > Nanos::ZERO, "a timer is never exact");
        }
        Ok(None) => skipped(Part::BpfEdge, "this kernel does not measure lateness"),
        Err(error) => assert!(error.to_string().contains("no qdisc fq"), "{error}"),
    }
    assert_eq!(edge.attachments().expect("a map"), []);
    assert_eq!(net.state(), before);
    // The next guest finds a warm host, also by another process: nothing is sent again for it.
    let warm = edge.lateness().expect("a map");
    net.host(|| edge.attach_guest(INDEX, &rules()))
        .expect("an interface");
    drop(edge);
    let edge = net.open().expect("what is pinned");
    assert_eq!(edge.lateness().expect("a map"), warm);
}

#[test]
fn an_interface_that_has_gone_away_is_forgotten() {
    let Some(net) = Net::new() else { return };
    let Some(mut edge) = net.open() else { return };
    net.host(|| edge.attach_guest(INDEX, &rules()))
        .expect("an interface");
    let name = &net.name;
    assert!(run(&format!("ip -n {name}h link del port")));
    assert!(!net.host(|| edge.is_attached(INDEX)).expect("a map"));
    let error = net.host(|| edge.attach_guest(INDEX + 1, &rules()));
    let error = error.expect_err("no interface").to_string();
    assert!(
        error.contains("already") || error.contains("find interface"),
        "{error}"
    );
    // Another interface has the index.
    net.add_link();
    assert!(net.reaches(OTHERS));
    net.host(|| edge.attach_guest(INDEX, &rules()))
        .expect("an interface");
    assert!(!net.reaches(OTHERS));
    assert!(run(&format!("ip -n {name}h link del port")));
    net.host(|| edge.remove()).expect("no obstacle");
}

#[test]
fn clsact_is_shared_with_others_and_removed_with_the_last_filter() {
    let Some(net) = Net::new() else { return };
    let Some(mut edge) = net.open() else { return };
    let name = &net.name;
    let before = net.state();
    let raw = edge.check(INDEX, &rules()).expect("right rules");
    let attach = |edge: &mut Edge, adds_clsact| {
        let attachment = Attachment {
            ifindex: INDEX,
            is_uplink: false,
            way: Way::Clsact,
            adds_clsact,
            queue: Queue::Untouched,
        };
        net.host(|| {
            edge.note(attachment)?;
            edge.write(INDEX, &raw, None)?;
            edge.put_on(attachment)
        })
    };
    if let Err(error) = attach(&mut edge, true) {
        skipped(Part::BpfEdge, error);
        return;
    }
    assert!(net.host(|| edge.is_attached(INDEX)).expect("a map"));
    assert!(net.reaches(OWN) && !net.reaches(OTHERS));
    net.host(|| edge.detach(INDEX)).expect("no obstacle");
    assert!(net.reaches(OTHERS));
    assert_eq!(net.state(), before);
    // A filter of another owner.
    attach(&mut edge, true).expect("the same again");
    let other = format!("tc -n {name}h filter add dev port ingress prio 9 matchall action ok");
    let is_there = run(&other);
    net.host(|| edge.detach(INDEX)).expect("no obstacle");
    assert_eq!(net.state().contains("clsact"), is_there);
}

#[test]
fn an_attachment_that_was_interrupted_is_undone() {
    let Some(net) = Net::new() else { return };
    let Some(mut edge) = net.open() else { return };
    let before = net.state();
    let raw = edge.check(INDEX, &rules()).expect("right rules");
    for steps in 1..=4 {
        // A filter of clsact is not removed alone.
        let is_partial = steps == 3 && attach::way() == Way::Tcx;
        net.host(|| {
            let attachment = change::plan(INDEX, false, Queue::Untouched)?;
            edge.note(attachment)?;
            if steps > 1 {
                edge.write(INDEX, &raw, None)?;
            }
            if steps > 2 {
                edge.put_on(attachment)?;
            }
            if is_partial {
                edge.pins.remove_link(INDEX, "to_guest")?;
            }
            Ok::<_, EdgeError>(())
        })
        .expect("no obstacle");
        assert_eq!(
            net.host(|| edge.is_attached(INDEX)).expect("a map"),
            steps > 2 && !is_partial
        );
        net.host(|| edge.detach(INDEX)).expect("no obstacle");
        assert_eq!(net.state(), before, "{steps} steps");
        assert_eq!(edge.maps.guests.keys().count(), 0);
        assert_eq!(edge.maps.stations.keys().count(), 0);
        assert_eq!(edge.maps.configured.iter().count(), 0);
        assert_eq!(edge.attachments().expect("a map"), []);
    }
}

#[test]
fn a_guest_without_addresses_uses_any_ip_with_its_own_mac() {
    let Some(net) = Net::new() else { return };
    let Some(mut edge) = net.open() else { return };
    let mut any = rules();
    any.guard = Some(Guard::new(MAC, []));
    net.host(|| edge.attach_guest(INDEX, &any))
        .expect("an interface");
    assert!(net.reaches(OWN) && net.reaches(OTHERS));
    any.guard = Some(Guard::new([2; 6], []));
    net.host(|| edge.set(INDEX, &any)).expect("a guest");
    assert!(!net.reaches(OWN));
}
