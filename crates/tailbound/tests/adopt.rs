//! `tailbound adopt` and `release` on real devices: a bridge with containers, a TAP of a VM, and an
//! uplink, in a network namespace of their own. After a release all lists are as before.

#[path = "adopt/sandbox.rs"]
mod sandbox;

use sandbox::{isolate, mount_bpf, ping, run, sandboxed, without_timers};
use serde_json::Value;
use std::io::IoSliceMut;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tailbound_sys::tap::{Tap, VIRTIO_HEADER_LEN};

const VM: [u8; 6] = [2, 0, 0, 0, 0, 0x31];
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 0x32];

/// A container: a network namespace with a process, behind a veth in the bridge.
struct Container(Child);

impl Container {
    fn start(name: &str, number: u8) -> Self {
        run(&format!("ip netns add {name}"));
        run(&format!(
            "ip link add veth-{name} type veth peer name eth0 netns {name}"
        ));
        run(&format!("ip link set veth-{name} master br0 up"));
        run(&format!(
            "ip -n {name} link set eth0 address 02:00:00:00:00:0{number} up"
        ));
        run(&format!(
            "ip -n {name} address add 10.66.0.{number}/24 dev eth0"
        ));
        run(&format!("ip -n {name} route add default via 10.66.0.254"));
        let mut command = Command::new("ip");
        let command = command.args(["netns", "exec", name, "sleep", "600"]);
        Self(command.spawn().unwrap())
    }
}

/// A process that ends with the test, also if that fails: the runner waits for its output.
struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A host with a bridge, two containers, and a station behind the uplink `up0`.
struct Host {
    _containers: [Container; 2],
    directory: tempfile::TempDir,
}

impl Host {
    /// Builds it; `None` if this computer has no BPF file system.
    fn build(test: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        if !mount_bpf(directory.path(), test) {
            return None;
        }
        isolate();
        run("ip link add br0 type bridge");
        run("ip address add 10.66.0.254/24 dev br0");
        run("ip link set br0 address 02:00:00:00:00:fe up");
        // The rules of a firewall, as Docker's.
        if has_nft() {
            run("nft add table inet guests");
            run("nft add chain inet guests forward { type filter hook forward priority 0 ; }");
            run("nft add rule inet guests forward ip saddr 10.66.0.0/24 accept");
        }
        run("ip netns add outside");
        run("ip link add up0 type veth peer name eth0 netns outside");
        run("ip link set up0 master br0 up");
        run("ip -n outside link set eth0 address 02:00:00:00:00:09 up");
        run("ip -n outside address add 10.66.0.9/24 dev eth0");
        Some(Self {
            _containers: [Container::start("web", 1), Container::start("db", 2)],
            directory,
        })
    }

    fn pins(&self) -> PathBuf {
        self.directory.path().join("bpf/tailbound")
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tailbound"));
        command.args(arguments.split(' '));
        command
            .arg("--state")
            .arg(self.directory.path().join("state"));
        command.arg("--pins").arg(self.pins());
        command.stdin(Stdio::null());
        command
    }

    fn try_tailbound(&self, arguments: &str) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command that has to succeed, and returns its text.
    fn tailbound(&self, arguments: &str) -> String {
        let output = self.try_tailbound(arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments}: {text}{errors}");
        text
    }

    /// All lists that an administrator could look at.
    fn lists(&self) -> String {
        // The kernel reports the carrier of a new pair some milliseconds later.
        let end = Instant::now() + Duration::from_secs(10);
        while run("ip link").contains("NO-CARRIER") && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut lists = Vec::new();
        for list in ["ip -d link", "ip address", "bridge -d link", "tc -d qdisc"] {
            lists.push(without_timers(&run(list)));
        }
        for device in ["up0", "br0", "veth-web", "veth-db"] {
            for side in ["ingress", "egress"] {
                lists.push(run(&format!("tc filter show dev {device} {side}")));
            }
            let found = tailbound_sys::network::forwarding(device, None).unwrap();
            lists.push(format!("{device}: {:?}", found.unwrap().redirect));
        }
        if has_nft() {
            lists.push(run("nft list ruleset"));
        }
        let pins = std::fs::read_dir(self.directory.path().join("bpf")).unwrap();
        let pins = pins.map(|it| it.unwrap().file_name().into_string().unwrap());
        lists.extend(pins);
        lists.join("\n")
    }
}

fn has_nft() -> bool {
    Command::new("nft").arg("--version").output().is_ok()
}

#[test]
fn a_container_keeps_its_network_and_loses_the_names_of_others() {
    sandboxed(
        "a_container_keeps_its_network_and_loses_the_names_of_others",
        || {
            let Some(host) = Host::build("adopt") else {
                return;
            };
            let before = host.lists();
            let plan = host.tailbound("adopt web --dry-run");
            assert!(plan.contains("02:00:00:00:00:01 with 10.66.0.1"), "{plan}");
            assert!(
                plan.ends_with("nothing was changed (--dry-run)\n"),
                "{plan}"
            );
            assert_eq!(host.lists(), before);
            run("ip -n web address add 10.66.0.7/24 dev eth0");
            assert_eq!(ping("web", "10.66.0.2", "-I 10.66.0.7"), (3, 0));
            run("ip -n web address del 10.66.0.7/24 dev eth0");
            let adopted = host.tailbound("adopt web db --dscp 46");
            assert!(adopted.contains("undo: tailbound release web"), "{adopted}");
            let again = host.tailbound("adopt web --dscp 46");
            assert!(again.starts_with("web: unchanged"), "{again}");
            // The neighbour, the gateway and the station outside answer, once.
            for to in ["10.66.0.2", "10.66.0.254", "10.66.0.9"] {
                assert_eq!(ping("web", to, ""), (3, 0), "{to}");
                assert_eq!(ping("db", to, "").1, 0, "{to}");
            }
            assert_eq!(ping("outside", "10.66.0.1", ""), (3, 0));
            // The address of another guest, and one that no guest has.
            for address in ["10.66.0.2", "10.66.0.7"] {
                run(&format!("ip -n web address add {address}/24 dev eth0"));
                assert_eq!(ping("web", "10.66.0.9", &format!("-I {address}")), (0, 0));
                run(&format!("ip -n web address del {address}/24 dev eth0"));
            }
            let list = host.tailbound("adopt --list --output json");
            let list: Value = serde_json::from_str(&list).unwrap();
            let drops = list["guests"].as_array().unwrap();
            let web = drops.iter().find(|guest| guest["name"] == "web").unwrap();
            let dropped = web["drops"].as_object().unwrap().values();
            assert!(dropped.filter_map(Value::as_u64).sum::<u64>() >= 6, "{web}");
            run("ip -n web link set eth0 address 02:00:00:00:00:77");
            assert_eq!(ping("web", "10.66.0.9", ""), (0, 0));
            run("ip -n web link set eth0 address 02:00:00:00:00:01");
            host.tailbound("release web");
            assert!(host.pins().exists());
            host.tailbound("release --all");
            assert_eq!(host.lists(), before);
            assert_eq!(ping("web", "10.66.0.9", "").1, 0);
            let nothing = host.try_tailbound("release web");
            assert_eq!(nothing.status.code(), Some(2));
        },
    );
}

/// A frame of the VM's without an offload.
fn frame(source: [u8; 6], kind: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; VIRTIO_HEADER_LEN];
    bytes.extend([0xff; 6]);
    bytes.extend(source);
    bytes.extend(kind.to_be_bytes());
    bytes.extend(body);
    bytes.resize(bytes.len().max(VIRTIO_HEADER_LEN + 60), 0);
    bytes
}

fn arp(source: [u8; 6], sender: [u8; 4]) -> Vec<u8> {
    let mut body = vec![0, 1, 8, 0, 6, 4, 0, 1];
    body.extend(source);
    body.extend(sender);
    body.extend([0; 6]);
    body.extend([10, 66, 0, 254]);
    frame(source, 0x0806, &body)
}

/// An IPv4 datagram without a payload worth checking.
fn datagram(source: [u8; 6], from: [u8; 4], to: [u8; 4], ports: [u16; 2]) -> Vec<u8> {
    let mut body = vec![0x45, 0, 0, 36, 0, 0, 0, 0, 64, 17, 0, 0];
    body.extend(from);
    body.extend(to);
    let words = body
        .chunks(2)
        .map(|it| u32::from(u16::from_be_bytes([it[0], it[1]])));
    let sum: u32 = words.sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    body[10..12].copy_from_slice(&sum.to_be_bytes());
    body.extend(ports.map(u16::to_be_bytes).concat());
    body.extend([0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    frame(source, 0x0800, &body)
}

/// Returns the number of times that a frame arrives at a TAP.
fn arrivals(tap: &Tap, sent: &[u8]) -> usize {
    let end = Instant::now() + Duration::from_millis(200);
    let mut count = 0;
    let mut bytes = [0; 2048];
    while Instant::now() < end {
        match tap.receive(&mut [IoSliceMut::new(&mut bytes)]) {
            Ok(got) => {
                let frame = bytes.get(VIRTIO_HEADER_LEN..got).unwrap_or_default();
                // A bridge removes what follows an IP packet.
                let sent = &sent[VIRTIO_HEADER_LEN..];
                let is_it = frame.len() >= 42 && sent.starts_with(frame);
                count += usize::from(is_it);
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    count
}

#[test]
fn an_adopted_tap_drops_frames_with_spoofed_addresses() {
    sandboxed("an_adopted_tap_drops_frames_with_spoofed_addresses", || {
        let Some(host) = Host::build("adopt a TAP") else {
            return;
        };
        let vm = Tap::open("vnet0", None).unwrap();
        let peer = Tap::open("vnet1", None).unwrap();
        for tap in ["vnet0", "vnet1"] {
            run(&format!("ip link set {tap} master br0 up"));
        }
        let before = host.lists();
        let refused = host.try_tailbound("adopt vnet0");
        let text = String::from_utf8_lossy(&refused.stdout).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{text}");
        assert!(text.contains("MAC address of vnet0"), "{text}");
        host.tailbound("adopt vnet0 --mac 02:00:00:00:00:31 --ip 10.66.0.31");
        let own = [10, 66, 0, 31];
        let honest = [
            arp(VM, own),
            datagram(VM, own, [10, 66, 0, 32], [5000, 5001]),
            // A request of DHCP.
            datagram(VM, [0; 4], [255; 4], [68, 67]),
        ];
        for sent in &honest {
            vm.transmit(sent).unwrap();
            let count = arrivals(&peer, sent);
            assert_eq!(count, 1, "{sent:?} {}", host.tailbound("adopt --list"));
        }
        let spoofed = [
            arp(VM, [10, 66, 0, 254]),
            arp(PEER, own),
            datagram(VM, [10, 66, 0, 2], [10, 66, 0, 32], [5000, 5001]),
            datagram(PEER, own, [10, 66, 0, 32], [5000, 5001]),
            // An answer of a DHCP server.
            datagram(VM, own, [255; 4], [67, 68]),
        ];
        for sent in &spoofed {
            vm.transmit(sent).unwrap();
            assert_eq!(arrivals(&peer, sent), 0, "{sent:?}");
        }
        // Then they pass: it was the guard that dropped them.
        host.tailbound("release vnet0");
        assert_eq!(host.lists(), before);
        for sent in &spoofed[2..4] {
            vm.transmit(sent).unwrap();
            assert_eq!(arrivals(&peer, sent), 1, "{sent:?}");
        }
    });
}

#[test]
fn release_undoes_an_adoption_that_was_killed() {
    sandboxed("release_undoes_an_adoption_that_was_killed", || {
        let Some(host) = Host::build("kill amid an adoption") else {
            return;
        };
        let before = host.lists();
        let quick = Instant::now();
        host.tailbound("adopt web db");
        let whole = quick.elapsed();
        host.tailbound("release --all");
        assert_eq!(host.lists(), before);
        let mut unfinished = 0;
        for step in 0..12_u32 {
            let mut child = host
                .command("adopt web db")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(whole * step / 12);
            unfinished += usize::from(child.try_wait().unwrap().is_none());
            child.kill().unwrap();
            child.wait().unwrap();
            host.tailbound("release --all");
            assert_eq!(host.lists(), before, "killed after {:?}", whole * step / 12);
        }
        assert!(unfinished > 0, "each ended before its kill");
    });
}

#[test]
fn a_device_that_is_gone_or_replaced_is_forgotten() {
    sandboxed("a_device_that_is_gone_or_replaced_is_forgotten", || {
        let Some(host) = Host::build("a replaced device") else {
            return;
        };
        host.tailbound("adopt web");
        run("ip link del veth-web");
        run("ip link add veth-web type veth peer name eth0 netns web");
        run("ip link set veth-web master br0 up");
        run("ip -n web link set eth0 address 02:00:00:00:00:01 up");
        run("ip -n web address add 10.66.0.1/24 dev eth0");
        let before = host.lists();
        let text = host.tailbound("release web");
        assert!(text.contains("veth-web is gone"), "{text}");
        let pins = host.pins();
        assert!(!pins.exists(), "{}", pins.display());
        assert_eq!(
            host.lists().trim_end(),
            before.replace("\ntailbound", "").trim_end()
        );
        // After a restart of the guest, by its name.
        host.tailbound("adopt web");
        run("ip link del veth-web");
        run("ip link add veth-web type veth peer name eth0 netns web");
        run("ip link set veth-web master br0 up");
        run("ip -n web link set eth0 address 02:00:00:00:00:01 up");
        run("ip -n web address add 10.66.0.1/24 dev eth0");
        let again = host.tailbound("adopt --again");
        assert!(again.starts_with("web: adopted"), "{again}");
        assert_eq!(ping("web", "10.66.0.9", ""), (3, 0));
        host.tailbound("release --all");
        assert!(!pins.exists());
    });
}

#[test]
fn a_guest_that_cannot_be_adopted_is_refused_in_one_sentence() {
    sandboxed(
        "a_guest_that_cannot_be_adopted_is_refused_in_one_sentence",
        || {
            let Some(host) = Host::build("refusals") else {
                return;
            };
            let before = host.lists();
            let refusal = |arguments: &str, code: i32, sentence: &str| {
                let output = host.try_tailbound(arguments);
                let printed = [output.stdout, output.stderr].concat();
                let text = String::from_utf8_lossy(&printed);
                assert_eq!(output.status.code(), Some(code), "{arguments}: {text}");
                assert!(text.contains(sentence), "{arguments}: {text}");
                let words = text.split_ascii_whitespace().count();
                assert!(words < 60, "{arguments}: {text}");
            };
            refusal("adopt wob", 2, "did you mean \"web\"?");
            refusal(
                "adopt web db --mac 02:00:00:00:00:01",
                2,
                "are for one guest",
            );
            refusal("adopt br0", 2, "there is no guest \"br0\"");
            refusal("adopt web --interface eth7", 1, "it has veth-web");
            refusal("adopt web --dscp 64", 64, "64");
            refusal("adopt web --limit-out fast", 64, "fast");
            run("tc qdisc add dev veth-web root pfifo_fast");
            let fq = tailbound_sys::network::queue::try_fq().is_ok();
            if !fq {
                refusal("adopt db --limit-in 10Mbit/s", 1, "no fq");
            }
            run("tc qdisc del dev veth-web root");
            assert_eq!(host.lists(), before);
        },
    );
}

#[test]
fn a_wrong_section_of_rates_is_reported_before_a_missing_bpf_file_system() {
    let directory = tempfile::tempdir().unwrap();
    let (file, pins) = (directory.path().join("rates.toml"), directory.path());
    std::fs::write(&file, "[hose]\nhost = 7\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tailbound"))
        .args(["adopt", "--control", "http://127.0.0.1:1", "--link"])
        .args(["1Gbit/s", "--pins"])
        .arg(pins.join("pins"))
        .arg("--hose")
        .arg(&file)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("rates.toml:2:"), "{text}");
    assert!(!text.contains("BPF file system"), "{text}");
}

/// Waits until the list of adopted guests has these names.
fn until_listed(host: &Host, names: &[&str]) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let list = host.tailbound("adopt --list --output json");
        let list: Value = serde_json::from_str(&list).unwrap();
        let guests = list["guests"].as_array().unwrap().iter();
        let found: Vec<_> = guests.filter_map(|guest| guest["name"].as_str()).collect();
        if found == names {
            return;
        }
        assert!(Instant::now() < end, "{found:?}, not {names:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_policy_follows_guests_that_appear_and_go() {
    sandboxed("a_policy_follows_guests_that_appear_and_go", || {
        let Some(host) = Host::build("a policy") else {
            return;
        };
        let before = host.lists();
        let file = host.directory.path().join("policy.toml");
        let policy = "[[guest]]\nname = \"db\"\nadopt = false\n[[guest]]\ndscp = 10\n";
        std::fs::write(&file, policy).unwrap();
        let arguments = format!("adopt --policy {}", file.display());
        let plan = host.tailbound(&format!("{arguments} --dry-run"));
        assert!(
            plan.contains("web: planned") && !plan.contains("db: "),
            "{plan}"
        );
        // A person's guest stays a person's.
        host.tailbound("adopt db --dscp 46");
        let mut watch = host.command(&format!("{arguments} --watch"));
        let log = std::fs::File::create(host.directory.path().join("log")).unwrap();
        let mut watch = Background(watch.stderr(log).spawn().unwrap());
        until_listed(&host, &["db", "web"]);
        let cache = Container::start("cache", 3);
        until_listed(&host, &["cache", "db", "web"]);
        assert_eq!(ping("cache", "10.66.0.254", ""), (3, 0));
        // A mistake changes nothing.
        std::fs::write(&file, "[[guest]]\ndscp = 64\n").unwrap();
        let id = watch.0.id();
        let signal = |name: &str| run(&format!("kill -{name} {id}"));
        signal("HUP");
        let text = || std::fs::read_to_string(host.directory.path().join("log")).unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        while !text().contains("policy.toml:2:8: 64 is no DSCP") {
            assert!(Instant::now() < end, "{}", text());
            std::thread::sleep(Duration::from_millis(50));
        }
        drop(cache);
        run("ip netns del cache");
        until_listed(&host, &["db", "web"]);
        std::fs::write(&file, "[[guest]]\nadopt = false\n").unwrap();
        signal("HUP");
        until_listed(&host, &["db"]);
        signal("TERM");
        assert_eq!(watch.0.wait().unwrap().code(), Some(0), "{}", text());
        host.tailbound("release db");
        assert_eq!(host.lists(), before);
    });
}
