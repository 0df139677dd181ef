//! A machine moves from one host to another while others speak with it: two QEMUs and two
//! daemons of this machine, whose uplinks are plugged into a bridge.

#[path = "machines/machine.rs"]
mod machine;
#[path = "../../host/tests/support/mod.rs"]
mod support;

use machine::{Machine, PROGRAM, Process, kernel, until};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{Guest, Kind, MEASURED, Nic, command, sandboxed};
use tailbound_lab::vm::Machines;

const LISTEN: &str = "127.0.0.1:7070";
const URL: &str = "http://127.0.0.1:7070";

const TREE: &str = r#"
    frame = "1538B"
    [[host]]
    name = "h"
    count = 2
    slots = 4
    uplink = { rate = "1Gbit/s", buffer = "300KB" }
"#;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// A daemon, and the directory of its files.
struct Host {
    directory: PathBuf,
    _daemon: Process,
}

impl Host {
    /// The host of this number: the machine is a guest of it, as of the other one, and
    /// `more` is another guest's section.
    fn start(all: &Path, number: u8, more: &str) -> Self {
        let (directory, other) = (all.join(format!("host{number}")), 3 - number);
        fs::create_dir(&directory).unwrap();
        let config = format!(
            "[uplink]\nport = {{ kind = \"af-packet\", interface = \"u{number}\", \
             cuts_tunnels = true }}\npacer = {{ link = \"1Gbit/s\" }}\n\
             [hose]\nhost = \"h-{number}\"\nlisten = \"127.0.0.1:480{number}\"\n\
             key_file = \"{key}\"\n\
             [[hose.peer]]\nhost = \"h-{other}\"\naddress = \"127.0.0.1:480{other}\"\n\
             [[guest]]\nname = \"m1\"\nvm = \"acme/web/0\"\nmac = \"02:00:00:00:00:01\"\n\
             ip = [\"10.77.0.1\", \"fd77::1\"]\n\
             port = {{ kind = \"vhost-user\", socket = \"{card}\" }}\n{more}",
            key = all.join("key").display(),
            card = directory.join("m1.card").display(),
        );
        fs::write(directory.join("host.toml"), config).unwrap();
        let log = File::create(directory.join("log")).unwrap();
        let mut daemon = Self::tailbound(&directory, "");
        let name = format!("h-{number}");
        daemon.args(["--control", URL, "--control-host", &name]);
        daemon.arg("--control-state").arg(directory.join("state"));
        let daemon = daemon.stderr(log).spawn().unwrap();
        until("the card", || {
            directory.join("m1.card").exists().then_some(())
        });
        Self {
            directory,
            _daemon: Process(daemon),
        }
    }

    fn tailbound(directory: &Path, words: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg("host").args(words.split_whitespace());
        command.arg("--config").arg(directory.join("host.toml"));
        command.arg("--runtime-dir").arg(directory);
        command
    }

    /// Returns the daemon's state of the VM.
    fn machine(&self) -> Value {
        let mut show = Self::tailbound(&self.directory, "show --output json");
        let shown = show.output().unwrap();
        let mut shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
        let guests = shown["guests"].as_array_mut().unwrap();
        let found = guests.iter_mut().find(|guest| guest["name"] == "m1");
        found.unwrap().take()
    }

    fn wait_for(&self, link: &str) {
        until(link, || (self.machine()["link"] == link).then_some(()));
    }

    /// Returns the frames from or for the VM that were lost on this host, by reason.
    fn lost(&self) -> Value {
        self.machine()["drops"].take()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.directory.join("log"));
            eprintln!("{}:\n{}", self.directory.display(), log.unwrap_or_default());
        }
    }
}

/// Starts the placement service.
fn serve(directory: &Path) -> Process {
    fs::write(directory.join("tree.toml"), TREE).unwrap();
    let log = File::create(directory.join("service.log")).unwrap();
    let service = Command::new(PROGRAM)
        .args(["place", "serve", "--insecure-loopback"])
        .args(["--listen", LISTEN, "--topology", "tree.toml"])
        .current_dir(directory)
        .stderr(log)
        .spawn();
    let service = Process(service.unwrap());
    until("the service", || TcpStream::connect(LISTEN).ok());
    service
}

/// Returns the placement service's answer, which is yes.
fn ask(words: &str) -> String {
    let mut command = Command::new(PROGRAM);
    command.arg("place").args(words.split(' '));
    let asked = command.args(["--url", URL]).output().unwrap();
    let said = String::from_utf8_lossy(&asked.stdout).into_owned();
    let errors = String::from_utf8_lossy(&asked.stderr);
    assert!(asked.status.success(), "{words}: {said}{errors}");
    said
}

/// The host of the machine, and the one that it is on its way to.
fn place() -> (String, Option<String>) {
    let tenant: Value = serde_json::from_str(&ask("get acme/web --output json")).unwrap();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let host = text(&tenant["runs"][0]["host"]);
    (host.unwrap(), text(&tenant["moving"]["to"]))
}

/// Time limit of a migration with the shortest downtime. On a busy computer a downtime may never be
/// short enough.
const HURRY: Duration = Duration::from_secs(3);

/// The monitor of a machine, to be asked by QMP.
struct Monitor {
    stream: BufReader<UnixStream>,
    /// Events of the VM, and their times in seconds.
    events: Vec<(String, f64)>,
}

impl Monitor {
    fn of(socket: &Path) -> Self {
        let stream = until("a monitor", || UnixStream::connect(socket).ok());
        let mut monitor = Self {
            stream: BufReader::new(stream),
            events: Vec::new(),
        };
        monitor.ask("qmp_capabilities", &json!({}));
        monitor
    }

    fn ask(&mut self, what: &str, arguments: &Value) -> Value {
        let asked = json!({ "execute": what, "arguments": arguments });
        writeln!(self.stream.get_mut(), "{asked}").unwrap();
        loop {
            let mut line = String::new();
            let read = self.stream.read_line(&mut line).unwrap();
            assert!(read > 0, "{what}: it ended");
            let mut said: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(said["error"], Value::Null, "{what}");
            if let Some(event) = said["event"].as_str() {
                let part = |part: &str| said["timestamp"][part].as_f64().unwrap();
                let at = part("seconds") + part("microseconds") / 1e6;
                self.events.push((event.to_owned(), at));
            }
            if let Some(answer) = said.get_mut("return") {
                return answer.take();
            }
        }
    }

    /// Returns the time of the last event with this name, in seconds.
    fn when(&mut self, event: &str) -> f64 {
        until(event, || {
            self.ask("query-status", &json!({}));
            let events = self.events.iter().rev();
            let found = events.clone().find(|(name, _)| name == event);
            found.map(|(_, at)| *at)
        })
    }

    /// Migrates the VM to the process that listens at `to`; returns the downtime in milliseconds,
    /// as QEMU measures it.
    fn migrate(&mut self, to: &Path) -> u64 {
        let mut set = |name: &str, value: u64| {
            self.ask("migrate-set-parameters", &json!({ name: value }));
        };
        set("max-bandwidth", 1 << 30);
        // It stands still once what is left of its memory is thought to take no longer.
        set("downtime-limit", 10);
        let to = json!({ "uri": format!("unix:{}", to.display()) });
        self.ask("migrate", &to);
        let begun = Instant::now();
        until("the machine on the other side", || {
            if begun.elapsed() > HURRY {
                self.ask("migrate-set-parameters", &json!({ "downtime-limit": 300 }));
            }
            let known = self.ask("query-migrate", &json!({}));
            assert_ne!(known["status"], "failed", "{known}");
            (known["status"] == "completed").then(|| known["downtime"].as_u64().unwrap())
        })
    }
}

/// The downtime of a VM in its migration.
struct Stood {
    /// For how long, in milliseconds, as QEMU measures it.
    time: u64,
    /// From when to when, in seconds.
    between: [f64; 2],
}

/// Moves the machine between the monitors whose sockets are in a directory.
fn migrate(directory: &Path) -> Stood {
    let mut here = Monitor::of(&directory.join("here"));
    let mut there = Monitor::of(&directory.join("there"));
    let time = here.migrate(&directory.join("incoming"));
    Stood {
        time,
        between: [here.when("STOP"), there.when("RESUME")],
    }
}

/// Echoes that were asked for at a fixed rate.
struct Pings(Process);

/// Numbers of the answered echo requests, and the arrival of each answer in seconds.
type Echoes = Vec<(u32, f64)>;

impl Pings {
    /// From a guest of the second host, 50 a second.
    fn start(from: &Guest) -> Self {
        let net = format!("--net={}", from.netns().display());
        let child = Command::new("nsenter")
            .args([&net, "ping", "-n", "-D", "-i", "0.02", "10.77.0.1"])
            .stdout(Stdio::piped())
            .spawn();
        Self(Process(child.unwrap()))
    }

    /// Ends it; returns how many it asked for, and what came.
    fn end(mut self) -> (u32, Echoes) {
        let pid = rustix::process::Pid::from_child(&self.0.0);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let mut echoes = Echoes::new();
        let mut sent = 0;
        for line in BufReader::new(self.0.0.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            if let Some((count, _)) = line.split_once(" packets transmitted") {
                sent = count.parse().unwrap();
            }
            let time = line.strip_prefix('[').and_then(|line| line.split_once(']'));
            let number = line
                .split_once("icmp_seq=")
                .filter(|_| !line.contains("DUP"));
            if let (Some((time, _)), Some((_, number))) = (time, number) {
                let number = number.split(' ').next().unwrap();
                echoes.push((number.parse().unwrap(), time.parse().unwrap()));
            }
        }
        self.0.0.wait().unwrap();
        (sent, echoes)
    }
}

/// Returns the number of lost echoes, and the number of gaps. Echoes after the last answer are in
/// flight.
fn missing(echoes: &Echoes) -> (usize, usize) {
    let end = echoes.last().map_or(0, |(number, _)| *number);
    let lost: Vec<u32> = (1..=end)
        .filter(|number| echoes.iter().all(|(came, _)| came != number))
        .collect();
    let rows = lost.iter().filter(|number| !lost.contains(&(*number - 1)));
    (lost.len(), rows.count())
}

/// Uplinks `u1` and `u2`, and a bridge that is a station as well.
fn fabric() {
    let ip = |words: &str| command("ip", &words.split(' ').collect::<Vec<_>>());
    ip("link add br0 type bridge");
    ip("address add 10.77.0.9/24 dev br0");
    ip("link set br0 up");
    for number in [1, 2] {
        ip(&format!("link add u{number} type veth peer name b{number}"));
        ip(&format!("link set b{number} master br0 up"));
        ip(&format!("link set u{number} up"));
    }
}

/// Sends TCP at 1 Mbit/s for `seconds`, from behind the uplinks. The sender queries its peer at the
/// end, and would wait forever if the peer were gone.
fn stream(seconds: u32) -> Child {
    let words = format!("60 iperf3 -c 10.77.0.1 -J -b 1M -l 1000 -w 32K -t {seconds}");
    let child = Command::new("timeout")
        .args(words.split(' '))
        .stdout(Stdio::piped())
        .spawn();
    child.unwrap()
}

/// Returns the kind of a frame that announces the VM's position: reverse ARP (0), ARP (1) or an
/// advertisement (2).
fn tells(frame: &[u8]) -> Option<usize> {
    let body = frame.get(12..).filter(|_| frame[6..12] == MAC)?;
    [&[0x80, 0x35][..], &[8, 6], &[0x86, 0xdd]]
        .into_iter()
        .position(|kind| body.starts_with(kind) && frame[0] & 1 == 1)
}

/// Checks that TCP delivered all data, and that echoes were lost in one gap at most; prints the
/// measurements.
fn judge(
    report: &[u8],
    (sent, echoes): (u32, &Echoes),
    (accelerator, stood): (&str, &Stood),
    hosts: &[Host; 2],
) {
    let report: Value = serde_json::from_slice(report).unwrap();
    assert_eq!(report["error"], Value::Null, "{report}");
    let bytes = |end: &str| report["end"][end]["bytes"].as_u64().unwrap();
    let (offered, arrived) = (bytes("sum_sent"), bytes("sum_received"));
    // What both sockets hold may be on its way as the receiver counts: the kernel makes each
    // twice as long as is asked for.
    let under_way = 4 * 32 * 1024;
    assert!(
        (offered.saturating_sub(under_way)..=offered).contains(&arrived),
        "TCP carried all of it: {arrived} of {offered}"
    );
    let (missing, rows) = missing(echoes);
    let [stopped, resumed] = stood.between;
    let mut times = echoes.iter().map(|(_, at)| *at);
    let last = times.clone().take_while(|at| *at < resumed).last();
    let next = times.find(|at| *at >= resumed);
    let next = next.expect("it is heard where it is");
    let [dark, still, after] = [
        next - last.expect("it was heard where it was"),
        resumed - stopped,
        next - resumed,
    ]
    .map(|time| 1000.0 * time);
    let again = report["end"]["sum_sent"]["retransmits"].as_u64();
    eprintln!(
        "{MEASURED}a machine moved by {accelerator}: it stood for {} ms; its peer heard nothing \
         for {dark:.0} ms, {still:.0} from its stop to its start and {after:.0} after; {missing} of \
         {sent} echoes lost, {rows} times in a row; TCP: {arrived} B, {} segments again; \
         dropped: {} where it was, {} where it is",
        stood.time,
        again.unwrap_or_default(),
        hosts[0].lost(),
        hosts[1].lost(),
    );
    assert!(
        rows <= 1,
        "echoes were lost at one time at most: {echoes:?}"
    );
}

#[test]
fn a_machine_moves_while_others_speak_with_it() {
    let name = "a_machine_moves_while_others_speak_with_it";
    sandboxed(name, || {
        let Some(kernel) = kernel() else { return };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        fs::write(path.join("key"), "0123456789abcdef0123456789abcdef").unwrap();
        fs::set_permissions(path.join("key"), Permissions::from_mode(0o400)).unwrap();
        fabric();
        let peer = Guest::new(Kind::Veth, 2);
        peer.inside("ip", &["address", "add", "10.77.0.2/24", "dev", "eth0"]);
        let _service = serve(path);
        ask("create web --owner acme --vms 1 --bandwidth 50Mbit/s --burst 15KB");
        let hosts = [
            Host::start(path, 1, ""),
            Host::start(path, 2, &peer.section()),
        ];
        let tools = ["ip", "iperf3"];
        let machines = Machines::prepare(&kernel, Path::new(PROGRAM), &tools, path).unwrap();
        let qmp = |name| format!("unix:{},server=on,wait=off", path.join(name).display());
        let incoming_at = format!("unix:{}", path.join("incoming").display());
        let mac = "02:00:00:00:00:01";
        let start = |host: &Host, more: &[&str]| {
            Machine::start_with(&machines, "m1", mac, &host.directory, more)
        };
        let mut source = start(&hosts[0], &["-qmp", &qmp("here")]);
        let mut destination = start(
            &hosts[1],
            &["-incoming", &incoming_at, "-qmp", &qmp("there")],
        );
        source.boot(
            "link set lo up\nlink set eth0 up\naddress add 10.77.0.1/24 dev eth0\n\
             address add fd77::1/64 dev eth0 nodad\n",
        );
        let _server = source.serve("iperf3 -s --forceflush", "listening");
        hosts[0].wait_for("up");
        hosts[1].wait_for("away");

        let mut listener = Nic::open("br0", None);
        let tcp = stream(6);
        let pings = Pings::start(&peer);
        // It is reached from the host where it will be.
        let before = |host: &Host| host.machine()["received"]["packets"].as_u64();
        let so_far = before(&hosts[0]);
        until("traffic", || {
            (before(&hosts[0]) > so_far.map(|count| count + 100)).then_some(())
        });
        ask("move acme/web/0 --to h-2");
        assert_eq!(place(), ("h-1".into(), Some("h-2".into())));
        let stood = migrate(path);
        hosts[1].wait_for("up");
        hosts[0].wait_for("away");
        let report = tcp.wait_with_output().unwrap();
        // QEMU's emulator loses what a machine writes in one move of forty, without any card, too:
        // then the machine's kernel panics here.
        destination.must_run();
        peer.inside("ping", &["-n", "-c", "1", "-W", "30", "10.77.0.1"]);
        let (sent, echoes) = pings.end();

        until("its host's word", || {
            (place() == ("h-2".into(), None)).then_some(())
        });
        judge(
            &report.stdout,
            (sent, &echoes),
            (machines.accelerator.name(), &stood),
            &hosts,
        );
        let mut kinds = BTreeSet::new();
        until("what tells of it", || {
            let told = listener.receive();
            kinds.extend(told.iter().filter_map(|it| tells(it.bytes())));
            (kinds.len() == 3).then_some(())
        });
    });
}
