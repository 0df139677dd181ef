//! A sandbox for tests that need interfaces: its own network namespace, as root
//! or as an ordinary user in a user namespace. A guest is one more namespace.

// Each test file uses its own part of this.
#![allow(dead_code)]

pub(crate) mod process;

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tailbound_dataplane::testing::frames::{ethernet, ipv4, udp};
use tailbound_dataplane::{Buffer, Packet, Pool};
use tailbound_host::Instance;
use tailbound_host::control::ControlConfig;
use tailbound_host::socket::{Client, ClientError};
use tailbound_sys::packet::{Batch, Socket};
use tailbound_sys::probe::required::{Part, skipped};

const INSIDE: &str = "TAILBOUND_TEST_SANDBOX";
const CONFIG: &str = "TAILBOUND_TEST_CONFIG";
const CONTROL: &str = "TAILBOUND_TEST_CONTROL";
const STATE: &str = "TAILBOUND_TEST_STATE";
const RUNTIME: &str = "TAILBOUND_TEST_RUNTIME";

/// Time limit for any step on a busy computer.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);

/// Returns true inside of the sandbox.
pub(crate) fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs `test`, the body of the test called `name`, in a sandbox, or prints why there is none.
pub(crate) fn sandboxed(name: &str, test: impl FnOnce()) {
    if is_inside() {
        command("ip", &["link", "set", "lo", "up"]);
        return test();
    }
    let mut unshare = vec!["--net", "--mount", "--kill-child"];
    if !rustix::process::geteuid().is_root() {
        unshare.extend(["--user", "--map-root-user"]);
    }
    let probe = Command::new("unshare")
        .args(&unshare)
        .args(["ip", "link"])
        .output();
    match probe {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            return skipped(Part::NetworkNamespaces, why.trim());
        }
        Err(error) => {
            let why = format!("unshare (util-linux) is missing: {error}");
            return skipped(Part::NetworkNamespaces, why);
        }
    }
    let output = Command::new("unshare")
        .args(&unshare)
        .arg(std::env::current_exe().expect("a test has a file"))
        .args(["--exact", name, "--nocapture", "--include-ignored"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare was there a moment ago");
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    for line in printed.lines() {
        // Counted inside already.
        if line.starts_with("skipped: ") || line.starts_with(MEASURED) {
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
    assert!(
        output.status.success(),
        "{name} failed in its sandbox:\n{printed}"
    );
}

/// The prefix of the lines that a passing test prints.
pub(crate) const MEASURED: &str = "measured: ";

/// Runs a command that must succeed.
pub(crate) fn command(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {stderr}");
}

/// Calls `done` until it returns true.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(
            start.elapsed() < STEP_TIMEOUT,
            "{what}: not after {STEP_TIMEOUT:?}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until the kernel has noticed that both ends of a veth are up; `device` is the end that was
/// set up first. Until then the kernel silently drops frames.
pub(crate) fn plugged_in(device: &str, netns: Option<&Path>) {
    let ip = |arguments: &[&str]| {
        let (program, inside) = match netns {
            Some(netns) => (
                "nsenter",
                vec![format!("--net={}", netns.display()), "ip".into()],
            ),
            None => ("ip", Vec::new()),
        };
        Command::new(program).args(inside).args(arguments).output()
    };
    until("the cable", || {
        ip(&["-brief", "link", "show", device]).is_ok_and(|output| {
            String::from_utf8_lossy(&output.stdout)
                .split_whitespace()
                .any(|word| word == "UP")
        })
    });
    // The state changes before frames may pass, under a lock that this waits for.
    let again = ip(&["link", "set", device, "up"]).expect("it ran a moment ago");
    assert!(again.status.success());
}

/// The attachment of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// By a TAP.
    Tap,
    /// By a veth, whose other end is a packet socket's.
    Veth,
}

/// Returns the kinds that this computer permits.
pub(crate) fn kinds() -> Vec<Kind> {
    match tailbound_sys::tap::Tap::open("probe", None) {
        Ok(_) => vec![Kind::Tap, Kind::Veth],
        Err(error) => {
            skipped(Part::Tap, error);
            vec![Kind::Veth]
        }
    }
}

/// A namespace with one interface, `eth0` in it if it is a veth.
pub(crate) struct Guest {
    pub(crate) name: String,
    pub(crate) mac: [u8; 6],
    kind: Kind,
    holder: Child,
}

impl Guest {
    /// Makes the guest number `number`, with 10.77.0.NUMBER. A veth exists from then on, a TAP once
    /// a daemon has opened it.
    pub(crate) fn new(kind: Kind, number: u8) -> Self {
        let holder = Command::new("unshare")
            .args(["--net", "sleep", "7200"])
            .spawn()
            .expect("unshare was there a moment ago");
        let guest = Self {
            name: format!("g{number}"),
            mac: [2, 0, 0, 0, 0, number],
            kind,
            holder,
        };
        let ours = std::fs::read_link("/proc/self/ns/net").expect("there is /proc");
        until("a namespace for the guest", || {
            std::fs::read_link(guest.netns()).is_ok_and(|theirs| theirs != ours)
        });
        if kind == Kind::Veth {
            guest.plug();
        }
        guest
    }

    pub(crate) fn netns(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.holder.id()).into()
    }

    /// Makes the veth.
    pub(crate) fn plug(&self) {
        let pid = self.holder.id().to_string();
        let mac = self.mac.map(|byte| format!("{byte:02x}")).join(":");
        let outer = &self.name;
        command(
            "ip",
            &[
                "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", &pid,
            ],
        );
        self.inside("ip", &["link", "set", "eth0", "address", &mac, "up"]);
        command("ip", &["link", "set", outer, "up"]);
        plugged_in("eth0", Some(&self.netns()));
    }

    /// Removes the interface.
    pub(crate) fn unplug(&self) {
        let (device, inside) = self.device();
        if inside {
            self.inside("ip", &["link", "delete", device]);
        } else {
            command("ip", &["link", "delete", &self.name]);
        }
    }

    /// Returns the guest's interface, and true if it is deleted inside of the guest's namespace.
    pub(crate) fn device(&self) -> (&'static str, bool) {
        match self.kind {
            Kind::Tap => ("tap0", true),
            Kind::Veth => ("eth0", false),
        }
    }

    pub(crate) fn inside(&self, program: &str, arguments: &[&str]) {
        let net = format!("--net={}", self.netns().display());
        command("nsenter", &[&[net.as_str(), program], arguments].concat());
    }

    /// The guest's section in a configuration.
    pub(crate) fn section(&self) -> String {
        let port = match self.kind {
            Kind::Tap => format!(
                "kind = \"tap\", interface = \"tap0\", netns = \"{}\"",
                self.netns().display()
            ),
            Kind::Veth => format!("kind = \"af-packet\", interface = {:?}", self.name),
        };
        format!(
            "[[guest]]\nname = {:?}\nmac = \"{}\"\nip = [\"10.77.0.{}\"]\nport = {{ {port} }}\n",
            self.name,
            self.mac.map(|byte| format!("{byte:02x}")).join(":"),
            self.mac[5],
        )
    }

    /// Returns the guest's own end of the link, once it exists and is up.
    pub(crate) fn nic(&self) -> Nic {
        let (device, _) = self.device();
        if self.kind == Kind::Tap {
            until("the TAP", || {
                let net = format!("--net={}", self.netns().display());
                let up = ["ip", "link", "set", device, "up"];
                Command::new("nsenter")
                    .arg(net)
                    .args(up)
                    .stderr(Stdio::null())
                    .status()
                    .is_ok_and(|s| s.success())
            });
        }
        Nic::open(device, Some(&self.netns()))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Sends and receives frames on an interface, from its own side.
pub(crate) struct Nic {
    socket: Socket,
    batch: Batch,
    pool: Pool,
    heads: Vec<Buffer>,
    tails: Vec<Buffer>,
    /// The VLAN tags that the kernel removed from received frames.
    pub(crate) tags: Vec<[u8; 4]>,
}

const OFFSET: usize = Packet::HEADROOM - 10;

impl Nic {
    pub(crate) fn open(device: &str, netns: Option<&Path>) -> Self {
        let pool = Pool::new();
        Self {
            socket: Socket::open(device, netns).expect("the interface is there and up"),
            batch: Batch::new(),
            heads: (0..Batch::LEN).map(|_| pool.buffer(Pool::SMALL)).collect(),
            tails: (0..Batch::LEN).map(|_| pool.buffer(Pool::LARGE)).collect(),
            pool,
            tags: Vec::new(),
        }
    }

    /// Sends a frame behind a virtio header.
    pub(crate) fn send_with(&mut self, header: [u8; 10], frame: &[u8]) {
        let wire = [&header[..], frame].concat();
        until("room to send", || {
            self.socket
                .transmit(&mut self.batch, std::iter::once(&wire[..]))
                .is_ok()
        });
    }

    pub(crate) fn send(&mut self, frame: &[u8]) {
        self.send_with([0; 10], frame);
    }

    /// Returns the packets since the last call.
    pub(crate) fn receive(&mut self) -> Vec<Packet> {
        let mut received = Vec::new();
        let result = self.socket.receive(
            &mut self.batch,
            OFFSET,
            &mut self.heads,
            &mut self.tails,
            &mut received,
        );
        if result.is_err() {
            return Vec::new();
        }
        let mut packets = Vec::new();
        for (i, frame) in received.iter().enumerate() {
            self.tags.extend(frame.vlan_tag);
            let mut buffer = self.pool.buffer(Pool::LARGE);
            let head = self.heads[i].len();
            buffer[OFFSET..head].copy_from_slice(&self.heads[i][OFFSET..]);
            let end = (OFFSET + frame.len).max(head);
            buffer[head..end].copy_from_slice(&self.tails[i][head..end]);
            let virtio = buffer[OFFSET..].first_chunk().copied();
            packets.extend(Packet::new(
                buffer,
                Packet::HEADROOM,
                frame.len - 10,
                virtio,
                None,
            ));
        }
        packets
    }

    /// From now on no frames to groups come.
    pub(crate) fn only_stations(&self) {
        self.socket.only_stations().expect("a filter of four steps");
    }

    /// Readable when something has come.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Waits for `frame`, and ignores others.
    pub(crate) fn expect(&mut self, frame: &[u8]) {
        until("a frame", || {
            self.receive().iter().any(|packet| packet.bytes() == frame)
        });
    }
}

/// Makes a datagram between guests, recognized by `n`: a frame with a local experimental
/// `EtherType` would not pass the guard.
pub(crate) fn datagram(to: &Guest, from: &Guest, n: u16) -> Vec<u8> {
    datagram_of(to.mac, from.mac, [10, 77, 0, from.mac[5]], n)
}

pub(crate) fn datagram_of(to: [u8; 6], from: [u8; 6], source: [u8; 4], n: u16) -> Vec<u8> {
    long_datagram(to, from, source, n, 60)
}

/// Makes such a datagram in a frame of `len` bytes.
pub(crate) fn long_datagram(
    to: [u8; 6],
    from: [u8; 6],
    source: [u8; 4],
    n: u16,
    len: usize,
) -> Vec<u8> {
    let mut payload = n.to_be_bytes().to_vec();
    payload.resize(len - 42, 0);
    let destination = [10, 77, 0, to[5]];
    let packet = ipv4(source.into(), destination.into(), 17, &udp(1, 2, &payload));
    ethernet(to, from, 0x0800, &packet)
}

/// A running daemon.
pub(crate) struct Daemon {
    child: Child,
    address: SocketAddr,
    pub(crate) directory: tempfile::TempDir,
}

impl Daemon {
    /// Starts one and waits until its metrics answer.
    pub(crate) fn start(config: &str) -> Self {
        let daemon = Self::spawn(config);
        until("the daemon", || daemon.metrics().is_some());
        daemon
    }

    pub(crate) fn spawn(config: &str) -> Self {
        Self::spawn_with(config, &[])
    }

    /// Starts a daemon as systemd does, with a watchdog of `micros` at this socket.
    pub(crate) fn watched(config: &str, socket: &Path, micros: &str) -> Self {
        let socket = socket.to_str().expect("a name in UTF-8");
        let environment = [("NOTIFY_SOCKET", socket), ("WATCHDOG_USEC", micros)];
        let daemon = Self::spawn_with(config, &environment);
        until("the daemon", || daemon.metrics().is_some());
        daemon
    }

    /// Starts one that follows the placement service at `url`, as the host `h`.
    pub(crate) fn follow(config: &str, url: &str, state: &Path) -> Self {
        let state = state.to_str().expect("a name in UTF-8");
        let daemon = Self::spawn_with(config, &[(CONTROL, url), (STATE, state)]);
        until("the daemon", || daemon.metrics().is_some());
        daemon
    }

    fn spawn_with(config: &str, environment: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("host.toml"), config).expect("written");
        let child = Self::process(directory.path(), environment);
        // More than one may run at a time, each with metrics of its own.
        let metrics = config
            .split('"')
            .nth(1)
            .filter(|_| config.starts_with("metrics"));
        let address = metrics.unwrap_or(METRICS).parse().expect("an address");
        Self {
            child,
            address,
            directory,
        }
    }

    /// Starts a process, whose log continues another's.
    fn process(directory: &Path, environment: &[(&str, &str)]) -> Child {
        let mut log = File::options();
        let log = log.create(true).append(true).open(directory.join("log"));
        Command::new(std::env::current_exe().expect("a test has a file"))
            .args(["--exact", "daemon_process", "--nocapture"])
            .env(CONFIG, directory.join("host.toml"))
            .env(RUNTIME, directory.join("run"))
            .envs(environment.iter().copied())
            .stdout(Stdio::null())
            .stderr(log.expect("created"))
            .spawn()
            .expect("it is our own file")
    }

    /// Starts a daemon that takes over, and waits for the end of the one before.
    pub(crate) fn take_over(&mut self) {
        let successor = Self::process(self.directory.path(), &[]);
        let mut before = std::mem::replace(&mut self.child, successor);
        let mut status = None;
        until("the end of the one before", || {
            status = before.try_wait().expect("it is our child");
            status.is_some()
        });
        let status = status.expect("it ended");
        assert!(status.success(), "{status}: {}", self.log());
        until("the daemon", || self.metrics().is_some());
    }

    pub(crate) fn configure(&self, config: &str) {
        std::fs::write(self.directory.path().join("host.toml"), config).expect("written");
        self.signal(rustix::process::Signal::HUP);
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("it runs");
    }

    /// Stops the daemon, and returns when none of its threads is running: after the signal, a
    /// thread runs until its processor receives the interrupt.
    pub(crate) fn stop(&self) {
        use rustix::process::{WaitId, WaitIdOptions, waitid};
        self.signal(rustix::process::Signal::STOP);
        let pid = rustix::process::Pid::from_child(&self.child);
        let stopped = waitid(
            WaitId::Pid(pid),
            WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT,
        );
        stopped.expect("it is our child");
    }

    /// The directory of the packet loop's thread below `/proc`.
    pub(crate) fn packet_loop(&self) -> PathBuf {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let tasks = tasks
            .expect("it runs")
            .map(|task| task.expect("read").path());
        // Those that it began later without a name have its own.
        let named = tasks.filter(|task| {
            std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "tailbound-loop\n")
        });
        let number = |task: &PathBuf| task.file_name()?.to_str()?.parse::<u32>().ok();
        named.min_by_key(number).expect("it has a packet loop")
    }

    /// Returns the names of the daemon's threads.
    pub(crate) fn threads(&self) -> Vec<String> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let tasks = tasks.expect("it runs").filter_map(Result::ok);
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.map(|name| name.trim_end().to_owned()).collect()
    }

    /// Returns the daemon's resident memory, in KiB.
    pub(crate) fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next());
        kib.and_then(|kib| kib.parse().ok()).expect("it has memory")
    }

    /// Returns the number of the daemon's open descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.child.id()));
        open.expect("it runs").count()
    }

    /// A client of its control socket.
    pub(crate) fn client(&self) -> Result<Client, ClientError> {
        let directory = self.directory.path();
        Client::connect(&directory.join("host.toml"), Some(&directory.join("run")))
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// The value of a sample, by its name and labels.
    pub(crate) fn metric(&self, sample: &str) -> Option<f64> {
        let text = self.metrics()?;
        let line = text.lines().find_map(|line| line.strip_prefix(sample))?;
        line.trim().parse().ok()
    }

    pub(crate) fn metrics(&self) -> Option<String> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(STEP_TIMEOUT)).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        text.contains("# EOF").then_some(text)
    }

    /// Waits for the end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        until("the daemon's end", || {
            status = self.child.try_wait().expect("it is our child");
            status.is_some()
        });
        status.expect("it ended")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address of daemons' metrics; each sandbox has its own loopback.
pub(crate) const METRICS: &str = "127.0.0.1:9464";

/// The daemon, in the process that [`Daemon::spawn`] starts.
pub(crate) fn daemon_process() {
    let Some(config) = std::env::var_os(CONFIG) else {
        return;
    };
    let control = std::env::var(CONTROL).ok().map(|url| ControlConfig {
        service: tailbound_api::client::Settings::new(url),
        host: "h".to_owned(),
        state: std::env::var_os(STATE).unwrap_or_default().into(),
    });
    let config = Path::new(&config);
    let runtime = std::env::var_os(RUNTIME).unwrap_or_default();
    let instance = Instance::claim(config, Some(Path::new(&runtime)), true);
    let ended = match instance {
        Ok(instance) => tailbound_host::run(config, control.as_ref(), Some(instance))
            .map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    if let Err(error) = ended {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
