//! The guests of hosts in directories, and one of this host's own network namespaces.

#[allow(dead_code, reason = "the tests of identities use more of it")]
#[path = "identity/machine.rs"]
mod machine;

use machine::{Machine, Process, qemu};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use tailbound_agent::inventory::{Guest, Inventory, Network, Owner, ThreadOwner};
use tailbound_sys::interfaces::{Interface, Limit, LimitKind, OtherEnd};
use tailbound_sys::probe::required::{Part, skipped};
use tailbound_sys::root::Root;
use tailbound_sys::thread::PolicyNumber;
use tailbound_sys::waits::Run;
use tailbound_units::{Nanos, Rate};

const ID: &str = "4fa64fa64fa64fa64fa64fa64fa64fa64fa64fa64fa64fa64fa64fa64fa64fa6";
const UID: &str = "3f0c7ad2-1111-2222-3333-444455556666";
/// The network namespace of every host here.
const HOST: u64 = 1;

/// Interfaces, and the numbers of processes' network namespaces.
#[derive(Debug, Clone, Default)]
struct Links {
    interfaces: Vec<Interface>,
    limits: Vec<Limit>,
    numbers: BTreeMap<u32, i32>,
    names: BTreeMap<u64, String>,
}

impl Network for Links {
    fn interfaces(&self) -> io::Result<Vec<Interface>> {
        Ok(self.interfaces.clone())
    }
    fn limits(&self) -> io::Result<Vec<Limit>> {
        Ok(self.limits.clone())
    }
    fn number(&self, pid: u32) -> io::Result<i32> {
        let number = self.numbers.get(&pid);
        number
            .copied()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
    fn names(&self) -> BTreeMap<u64, String> {
        self.names.clone()
    }
}

impl Links {
    /// A pair whose other end is in the namespace with this number.
    fn pair(&mut self, index: u32, name: &str, number: i32) {
        self.interfaces.push(Interface {
            index,
            name: name.to_owned(),
            kind: Some("veth".to_owned()),
            other_end: Some(OtherEnd {
                index: 2,
                namespace: Some(number),
            }),
        });
    }

    fn tap(&mut self, index: u32, name: &str) {
        self.interfaces.push(Interface {
            index,
            name: name.to_owned(),
            kind: Some("tun".to_owned()),
            other_end: None,
        });
    }
}

fn link(machine: &Machine, path: &str, target: &str) {
    let path = machine.directory.path().join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(target, path).unwrap();
}

/// Starts a process in a network namespace.
fn start(machine: &mut Machine, process: &Process<'_>, netns: u64) {
    machine.start(process);
    let path = format!("proc/{}/ns/net", process.pid);
    link(machine, &path, &format!("net:[{netns}]"));
}

fn host() -> Machine {
    let machine = Machine::new();
    link(&machine, "proc/self/ns/net", &format!("net:[{HOST}]"));
    machine
}

fn look(machine: &Machine, links: &Links) -> Inventory {
    let root = Root::at(machine.directory.path());
    let (calls, links) = (machine.answers.clone(), links.clone());
    let mut inventory = Inventory::on(root, 0, Box::new(calls), Box::new(links)).unwrap();
    inventory.look(Instant::now()).unwrap();
    inventory
}

fn task(pid: u32, group: &str) -> Process<'_> {
    Process {
        comm: "server",
        arguments: &["server", "-name", "db-3"],
        threads: &["server", "worker"],
        nested: true,
        group,
        ..qemu(pid, 0)
    }
}

fn names(inventory: &Inventory) -> Vec<(String, String)> {
    let of = |guest: &Guest| (guest.key.to_string(), guest.name.clone());
    inventory.guests().iter().map(of).collect()
}

fn interfaces(guest: &Guest) -> Vec<&str> {
    guest.interfaces.iter().map(|it| it.name.as_str()).collect()
}

#[test]
fn libvirt_domains_are_found_by_state_file_with_their_taps() {
    let mut machine = host();
    let group = r"/machine.slice/machine-qemu\x2d3\x2ddb\x2d3.scope";
    let libvirts = Process {
        group,
        ..qemu(300, 107)
    };
    start(&mut machine, &libvirts, HOST);
    link(&machine, "proc/300/fd/30", "/dev/net/tun");
    link(&machine, "proc/300/fd/31", "/dev/net/tun");
    link(&machine, "proc/300/fd/4", "socket:[1]");
    machine.write("/proc/300/fdinfo/30", "pos:\t0\nflags:\t02\niff:\tvnet0\n");
    machine.write("/proc/300/fdinfo/31", "pos:\t0\nflags:\t02\niff:\tvnet0\n");
    machine.write(
        "/run/libvirt/qemu/db 3.xml",
        &format!(
            "<domstatus state='running' pid='300'><domain><name>db 3</name><uuid>{UID}</uuid>"
        ),
    );
    let mut links = Links::default();
    links.tap(7, "vnet0");
    links.tap(8, "vnet1");
    let limit = |index, rate| Limit {
        index,
        kind: LimitKind::Class,
        rate: Rate::from_mbit(rate),
        drops: 0,
        overlimits: 0,
        backlog: 0,
    };
    links.limits = vec![limit(7, 50), limit(8, 60)];
    let inventory = look(&machine, &links);
    let guest = inventory.find("db 3").unwrap();
    assert_eq!(&*guest.key, format!("domain/{UID}"));
    assert_eq!(interfaces(guest), ["vnet0"]);
    assert_eq!(guest.limits, [limit(7, 50)]);
    assert_eq!(
        guest.threads.iter().filter(|it| it.role.is_vcpu()).count(),
        2
    );
    // A TAP that two VMMs claim belongs to neither, so no guest is shown a neighbour's traffic.
    start(&mut machine, &qemu(400, 1000), HOST);
    link(&machine, "proc/400/fd/3", "/dev/net/tun");
    machine.write("/proc/400/fdinfo/3", "iff:\tvnet0\n");
    let inventory = look(&machine, &links);
    for guest in inventory.guests() {
        assert_eq!(interfaces(guest), Vec::<&str>::new());
        assert!(
            guest.notes.join(" ").contains("several VMMs"),
            "{:?}",
            guest.notes
        );
    }
}

#[test]
fn an_unmanaged_vmm_is_keyed_by_its_process() {
    let mut machine = host();
    start(&mut machine, &qemu(300, 1000), HOST);
    let inventory = look(&machine, &Links::default());
    let expected = [("process/300.100".to_owned(), "qemu-300".to_owned())];
    assert_eq!(names(&inventory), expected);
    // Its number is used again.
    let next = Process {
        start: 200,
        ..qemu(300, 1000)
    };
    machine.start(&next);
    let inventory = look(&machine, &Links::default());
    assert_eq!(names(&inventory)[0].0, "process/300.200");
}

#[test]
fn the_containers_of_a_pod_are_one_guest_with_one_network() {
    let mut machine = host();
    let pod = format!("/kubepods/burstable/pod{UID}");
    let groups = ["4fa6", "5fa6"].map(|id| format!("{pod}/{}", id.repeat(16)));
    let mut links = Links::default();
    links.pair(9, "cali1", 5);
    for (pid, group) in [300, 310].into_iter().zip(&groups) {
        start(&mut machine, &task(pid, group), 77);
        links.numbers.insert(pid, 5);
    }
    for directory in [&groups[1], &pod] {
        machine.write(
            &format!("/sys/fs/cgroup{directory}/cpu.max"),
            "20000 100000\n",
        );
    }
    machine.write(&format!("/sys/fs/cgroup{pod}/cgroup.controllers"), "cpu\n");
    let stat = "nr_throttled 3\nthrottled_usec 250\n";
    machine.write(&format!("/sys/fs/cgroup{}/cpu.stat", groups[1]), stat);
    let inventory = look(&machine, &links);
    let expected = [(format!("pod/{UID}"), format!("pod-{UID}"))];
    assert_eq!(names(&inventory), expected);
    assert!(inventory.notes().join(" ").contains("names of pods"));
    let guest = &inventory.guests()[0];
    assert_eq!(interfaces(guest), ["cali1"]);
    assert_eq!((guest.containers.len(), guest.threads.len()), (2, 4));
    let throttled: Vec<_> = guest.quotas.iter().map(|it| it.throttled.periods).collect();
    assert_eq!(throttled, [0, 3], "{:?}", guest.quotas);
    // The kubelet's logs have the names without any socket.
    machine.write(&format!("/var/log/pods/shop_cart-0_{UID}/app/0.log"), "");
    let log = format!("/var/log/containers/cart-0_shop_app-{ID}.log");
    machine.write(&log, "");
    let inventory = look(&machine, &links);
    let guest = inventory.find("shop/cart-0").unwrap();
    assert_eq!(guest.containers[ID].as_deref(), Some("app"));
    assert_eq!(inventory.notes(), [] as [String; 0]);
}

#[test]
fn containers_have_their_runtimes_names_and_one_network_is_counted_once() {
    let mut machine = host();
    let other = "5fb6".repeat(16);
    let groups = [
        format!("/system.slice/docker-{ID}.scope"),
        format!("/machine.slice/libpod-{other}.scope"),
    ];
    let mut links = Links::default();
    links.pair(9, "veth9", 5);
    links.pair(10, "veth10", 6);
    for (pid, group) in [300, 310].into_iter().zip(&groups) {
        start(&mut machine, &task(pid, group), 77);
        links.numbers.insert(pid, 5);
    }
    machine.write(
        &format!("/var/lib/docker/containers/{ID}/config.v2.json"),
        r#"{"Name":"/web-7"}"#,
    );
    let inventory = look(&machine, &links);
    let expected = [
        ("container/4fa64fa64fa6".to_owned(), "web-7".to_owned()),
        (
            "container/5fb65fb65fb6".to_owned(),
            "5fb65fb65fb6".to_owned(),
        ),
    ];
    assert_eq!(names(&inventory), expected);
    let [web, beside] = inventory.guests() else {
        panic!()
    };
    assert_eq!(
        (web.identity.kind(), beside.identity.kind()),
        ("docker", "podman")
    );
    assert_eq!(
        (interfaces(web), interfaces(beside)),
        (vec!["veth9"], vec![])
    );
    assert!(
        beside.notes.join(" ").contains("network of web-7"),
        "{:?}",
        beside.notes
    );
}

#[test]
fn a_group_that_a_user_made_is_no_container() {
    let mut machine = host();
    let group = format!("/user.slice/docker-{ID}.scope");
    let directory = format!("/sys/fs/cgroup{group}");
    machine.answers.unguarded.insert(directory.into());
    start(&mut machine, &task(300, &group), HOST);
    assert_eq!(names(&look(&machine, &Links::default())), []);
}

#[test]
fn a_namespace_is_a_guest_if_it_has_a_name_or_an_interface_of_the_hosts() {
    let mut machine = host();
    for (pid, netns) in [(300, 70), (310, 80), (320, 90)] {
        start(&mut machine, &task(pid, "/"), netns);
    }
    let mut links = Links::default();
    links.names.insert(70, "blue".to_owned());
    links.pair(9, "veth9", 5);
    links.numbers.insert(310, 5);
    let inventory = look(&machine, &links);
    let keys: Vec<_> = names(&inventory).into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["netns/80", "netns/blue"]);
}

/// A run of a real-time thread with a name of its own choice.
fn run(tid: u32, seconds: u64, group: u64) -> Run {
    Run {
        from: Nanos::ZERO,
        until: Nanos::from_secs(seconds),
        tid,
        name: "\x1bx".to_owned(),
        group,
        policy: PolicyNumber::FIFO,
        stolen: Nanos::ZERO,
        interrupted: Nanos::ZERO,
    }
}

#[test]
fn a_thread_that_came_and_went_belongs_to_its_control_group() {
    let mut machine = host();
    let group = format!("/docker/{ID}");
    start(&mut machine, &task(300, &group), 77);
    let directory = machine.directory.path().join("sys/fs/cgroup");
    let inode = |path: &str| std::fs::metadata(directory.join(path)).unwrap().ino();
    let (own, docker) = (inode(&group[1..]), inode("docker"));
    let mut inventory = look(&machine, &Links::default());
    let owner = |inventory: &mut Inventory, group| inventory.owner(&run(4_000, 9, group)).owner;
    let expected = Owner::Guest("container/4fa64fa64fa6".into());
    assert_eq!(owner(&mut inventory, own), expected);
    let name = r"\u{1b}x".to_owned();
    assert_eq!(owner(&mut inventory, docker), Owner::Program(name.clone()));
    // A guest without a group of its own may have had it.
    start(&mut machine, &qemu(500, 1000), HOST);
    let mut inventory = look(&machine, &Links::default());
    assert_eq!(owner(&mut inventory, docker), Owner::Exited(name));
}

#[test]
fn an_exited_threads_runs_stay_with_its_guest_despite_tid_reuse() {
    let mut machine = host();
    let group = format!("/docker/{ID}");
    start(&mut machine, &task(300, &group), 77);
    let beside = Process {
        comm: "tar",
        group: "/system.slice/backup.service",
        ..task(500, "/")
    };
    start(&mut machine, &beside, HOST);
    let mut inventory = look(&machine, &Links::default());
    let key = "container/4fa64fa64fa6";
    let owner = |inventory: &mut Inventory, tid, seconds| {
        let ThreadOwner {
            owner,
            is_real_time,
        } = inventory.owner(&run(tid, seconds, 0));
        assert!(is_real_time);
        owner
    };
    // They started 1 s after boot.
    assert_eq!(owner(&mut inventory, 301, 9), Owner::Guest(key.into()));
    assert_eq!(
        owner(&mut inventory, 500, 9),
        Owner::Program("tar (backup.service)".into())
    );
    let exited = Owner::Exited(r"\u{1b}x".into());
    assert_eq!(owner(&mut inventory, 7, 9), exited);
    // The thread 300 has exited, and another program has its number since second 50.
    let next = Process {
        start: 5_000,
        comm: "other",
        group: "/",
        ..task(300, "/")
    };
    machine.start(&next);
    assert_eq!(owner(&mut inventory, 300, 9), Owner::Guest(key.into()));
    assert_eq!(
        owner(&mut inventory, 300, 60),
        Owner::Program("other".into())
    );
}

/// A process in a network namespace that is named, with a pair to this one.
struct Blue {
    name: String,
    process: Child,
}

fn ip(arguments: &str) -> bool {
    let mut command = Command::new("ip");
    let command = command.args(arguments.split(' ')).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

impl Blue {
    fn start() -> Option<Self> {
        let name = format!("tbi{}", std::process::id());
        if !ip(&format!("netns add {name}")) {
            return None;
        }
        let enter = ["netns", "exec", &name, "sleep", "60"];
        let process = Command::new("ip").args(enter).spawn().ok()?;
        let blue = Self { name, process };
        let name = &blue.name;
        ip(&format!(
            "link add {name} type veth peer name eth0 netns {name}"
        ))
        .then_some(blue)
    }
}

impl Drop for Blue {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        ip(&format!("link del {}", self.name));
        ip(&format!("netns del {}", self.name));
    }
}

#[test]
fn the_hosts_end_of_a_named_namespaces_pair_is_found_with_its_limit() {
    let Some(blue) = Blue::start() else {
        skipped(
            Part::Ip,
            "the_hosts_end_of_a_named_namespaces_pair_is_found_with_its_limit",
        );
        return;
    };
    let name = &blue.name;
    let mut tc = Command::new("tc");
    let tc = tc
        .args(["qdisc", "add", "dev", name, "root"])
        .args(["tbf", "rate", "8mbit", "burst", "10kb", "latency", "50ms"]);
    let limited = tc.status().is_ok_and(|status| status.success());
    let mut inventory = Inventory::new().unwrap();
    // `ip` enters the namespace after its start.
    for _ in 0..100 {
        inventory.look(Instant::now()).unwrap();
        if inventory
            .find(name)
            .is_ok_and(|it| !it.interfaces.is_empty())
        {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let guest = inventory.find(name).unwrap();
    assert_eq!(&*guest.key, format!("netns/{name}"));
    assert_eq!(interfaces(guest), [name]);
    assert_eq!(guest.processes[0].pid, blue.process.id());
    if limited {
        let [limit] = guest.limits.as_slice() else {
            panic!("{:?}", guest.limits)
        };
        let expected = (LimitKind::TokenBucket, Rate::from_mbit(8));
        assert_eq!((limit.kind, limit.rate), expected);
    }
}
