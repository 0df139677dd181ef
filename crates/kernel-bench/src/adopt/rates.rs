//! The exchange of rates of adopted guests: three hosts, each a network namespace with a bridge, an uplink, a guest and
//! a `tailbound adopt --control --hose` of its own, beside the placement service with a tenant of the three guests.
//!
//! Two guests send to the third one. They begin and end, and the process of one host is killed. The rates have to
//! follow, and all frames that arrive have to be below the curve of the receiver.

use super::TAILBOUND;
use crate::Outcome;
use crate::analysis::effective_burst;
use crate::load::{now, sleep_until, socket};
use crate::network::{Guest, add_bridge, join, run as ip, silence};
use std::fs::Permissions;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tailbound_sys::departures::{Departure, Log};
use tailbound_sys::netns;
use tailbound_units::{Bytes, Nanos, Rate};

/// The guarantee of each guest.
const RATE: Rate = Rate::from_mbit(40);
const BURST: Bytes = Bytes(15_380);
/// The largest lateness that the service admits. The emulated machine has one CPU for all three hosts.
const LATENESS: Nanos = Nanos::from_millis(2);
/// Payloads of the senders, by which their frames differ.
const PAYLOADS: [usize; 2] = [1_472, 1_400];
/// Headers of a datagram, with that of Ethernet, and what a frame has more on the wire.
const HEADERS: u64 = 42;
const OVERHEAD: u64 = 24;
/// The time between two frames of a sender, which is 60 Mbit/s.
const GAP: Nanos = Nanos::from_micros(200);
/// The time until rates have followed a change, and the time that is measured.
const SETTLE: Nanos = Nanos::from_millis(400);
const WINDOW: Nanos = Nanos::from_millis(500);
/// The longest time until the service and the hosts agree, and the pause between two requests.
const MAX_START: Nanos = Nanos::from_secs(90);
const REQUEST_INTERVAL: Nanos = Nanos::from_secs(1);
/// The service's address in all namespaces: it accepts requests without tokens from the loopback alone.
const SERVICE: &str = "127.0.0.1:7070";
const SECRET: &str = "/tmp/hose.secret";
/// Departures that the log holds.
const LOGGED: u32 = 1 << 17;

/// A host with its guest.
struct Host {
    guest: Guest,
    /// A process of the guest, by which the host knows the guest.
    resident: Child,
    /// `tailbound adopt --control`; `None` while it does not run.
    process: Option<Child>,
}

/// Runs the trial; an error names what is wrong.
pub(super) fn run() -> Outcome<()> {
    silence()?;
    add_bridge("fabric")?;
    let mut hosts = Vec::new();
    for number in 1..=3 {
        hosts.push(Host::add(number)?);
    }
    let guests: Vec<_> = hosts.iter().map(|host| host.guest).collect();
    for (at, one) in guests.iter().enumerate() {
        guests[at + 1..]
            .iter()
            .try_for_each(|other| one.introduce(*other))?;
    }
    std::fs::write("/tmp/dc.toml", topology())?;
    std::fs::write(SECRET, "0123456789abcdef".repeat(4))?;
    std::fs::set_permissions(SECRET, Permissions::from_mode(0o400))?;
    let service = "place serve --insecure-loopback --store sqlite:/tmp/place.db --topology /tmp/dc.toml --hose-secret";
    let mut service = Command::new(TAILBOUND)
        .args(service.split(' '))
        .arg(SECRET)
        .stdin(Stdio::null())
        .spawn()?;
    let done = admit(&mut hosts).and_then(|()| measure(&mut hosts));
    for host in hosts {
        for mut process in [Some(host.resident), host.process].into_iter().flatten() {
            process.kill()?;
            process.wait()?;
        }
    }
    service.kill()?;
    service.wait()?;
    done
}

fn topology() -> String {
    format!(
        "frame = '1538B'\n[[host]]\nname = 'h'\ncount = 3\nslots = 1\nlateness = '{}us'\n\
         uplink = {{ rate = '1Gbit/s', buffer = '300KB' }}\n",
        LATENESS.0 / 1_000
    )
}

impl Host {
    /// Adds a host with a guest behind its bridge, and a relay from its loopback to the service.
    fn add(number: u8) -> Outcome<Self> {
        let guest = Guest::add(number)?;
        let resident = Command::new("ip")
            .args(["netns", "exec", &guest.namespace_name(), "sleep", "100000"])
            .stdin(Stdio::null())
            .spawn()?;
        let host = Self {
            guest,
            resident,
            process: None,
        };
        let (name, port) = (host.name(), guest.port_name());
        ip(&format!("ip netns add {name}"))?;
        netns::within(&host.namespace(), silence)??;
        ip(&format!(
            "ip link add fabric-{number} type veth peer name up0 netns {name}"
        ))?;
        join("fabric", &format!("fabric-{number}"))?;
        ip(&format!("ip link set fabric-{number} up"))?;
        ip(&format!("ip link set {port} netns {name}"))?;
        let address = host.address();
        for command in [
            "link set lo up",
            "link add switch type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
            "link set switch up",
            "link set up0 master switch up",
            &format!("link set {port} master switch up"),
            &format!("addr add {address}/24 dev switch"),
        ] {
            ip(&format!("ip -n {name} {command}"))?;
        }
        let pins = host.directory();
        std::fs::create_dir_all(&pins)?;
        ip(&format!("mount -t bpf bpf {}", pins.display()))?;
        let listener = netns::within(&host.namespace(), || TcpListener::bind(SERVICE))??;
        std::thread::Builder::new().spawn(move || relay(&listener))?;
        Ok(host)
    }

    fn number(&self) -> u8 {
        self.guest.number()
    }

    /// Its name at the service, and that of its network namespace.
    fn name(&self) -> String {
        format!("h-{}", self.number())
    }

    fn namespace(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(self.name())
    }

    /// The BPF file system of its programs.
    fn directory(&self) -> PathBuf {
        PathBuf::from("/run").join(format!("bpf-{}", self.number()))
    }

    fn address(&self) -> String {
        format!("10.1.0.{}", self.number())
    }

    /// Runs `tailbound adopt` with more arguments on this host.
    fn adopt(&self, arguments: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(), TAILBOUND, "adopt"]);
        command.args(arguments.split(' '));
        let state = format!("/tmp/{}/adopted", self.name());
        let pins = self.directory().join("edge");
        command.args(["--state", &state, "--pins"]).arg(pins);
        command.stdin(Stdio::null());
        command
    }

    /// Adopts the guest as a machine of the tenant.
    fn adopt_guest(&self) -> Outcome<()> {
        let (guest, number) = (self.guest, self.number() - 1);
        let output = self
            .adopt(&format!(
                "{} --uplink up0 --vm acme/web/{number}",
                guest.namespace_name()
            ))
            .output()?;
        if output.status.success() {
            return Ok(());
        }
        let text = [output.stdout, output.stderr].concat();
        Err(String::from_utf8_lossy(&text).into())
    }

    /// Starts the process that follows the service and exchanges rates with all `hosts`.
    fn follow(&mut self, hosts: &[String]) -> Outcome<()> {
        let name = self.name();
        let mut section = format!(
            "[hose]\nhost = '{name}'\nlisten = '{}:4785'\nkeys = 'service'\ninterval = '5ms'\n",
            self.address()
        );
        for peer in hosts.iter().filter(|peer| !peer.contains(&name)) {
            section += peer;
        }
        let file = format!("/tmp/{name}.toml");
        std::fs::write(&file, section)?;
        let process = self
            .adopt(&format!(
                "--control http://{SERVICE} --control-host {name} --link 1Gbit/s --packet 1538B --hose {file}"
            ))
            .spawn()?;
        self.process = Some(process);
        Ok(())
    }
}

/// Passes connections on to the service of the machine's own network namespace.
fn relay(listener: &TcpListener) {
    let service: SocketAddr = SERVICE.parse().expect("an address");
    let connect = |client: TcpStream| -> io::Result<()> {
        let server = TcpStream::connect(service)?;
        for (mut from, mut to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
            std::thread::Builder::new().spawn(move || {
                // Either end may close the connection.
                let _ = io::copy(&mut from, &mut to);
                let _ = to.shutdown(std::net::Shutdown::Write);
            })?;
        }
        Ok(())
    };
    for client in listener.incoming().flatten() {
        if let Err(error) = connect(client) {
            eprintln!("a connection to the service: {error}");
        }
    }
}

/// Admits the tenant, adopts its guests, and waits until all hosts have confirmed their guarantees.
fn admit(hosts: &mut [Host]) -> Outcome<()> {
    let mut words = format!(
        "create acme/web --vms 3 --bandwidth {}bit/s --burst {}B",
        RATE.0, BURST.0
    );
    words += " --patience 30s";
    place(&words)?;
    let peer = |host: &Host| {
        let (name, address) = (host.name(), host.address());
        format!("[[hose.peer]]\nhost = '{name}'\naddress = '{address}:4785'\n")
    };
    let peers: Vec<_> = hosts.iter().map(peer).collect();
    for host in hosts.iter_mut() {
        host.adopt_guest()?;
        host.follow(&peers)?;
    }
    let end = now().saturating_add(MAX_START);
    loop {
        let tenant = place("get acme/web --output json")?;
        let is_open = ["pending", "degraded"].iter().any(|it| tenant.contains(it));
        if !is_open && tenant.contains("admitted") {
            println!("all hosts have confirmed after {}", now());
            return Ok(());
        }
        if now() > end {
            return Err(format!("not confirmed within {MAX_START}: {tenant}").into());
        }
        sleep_until(now().saturating_add(REQUEST_INTERVAL));
    }
}

/// Calls the placement service.
fn place(words: &str) -> Outcome<String> {
    let output = Command::new(TAILBOUND)
        .arg("place")
        .args(words.split(' '))
        .stdin(Stdio::null())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("place {words}: {text}{errors}").into());
    }
    Ok(text)
}

/// Two senders, and the log of what arrives at their receiver.
struct Trial {
    log: Log,
    receiver: Guest,
    senders: [UdpSocket; 2],
}

fn measure(hosts: &mut [Host]) -> Outcome<()> {
    let [receiver, one, other] = [0, 1, 2].map(|at| hosts[at].guest);
    let mut log = Log::load(LOGGED)?;
    log.watch(receiver.port())?;
    let _sink = sink(receiver)?;
    let sender = |from: Guest| -> Outcome<UdpSocket> {
        let sender = socket(from, &receiver.address())?;
        sender.set_nonblocking(true)?;
        Ok(sender)
    };
    // The bridges learn where each is.
    for to in [one, other] {
        let space = receiver.namespace();
        let hello = netns::within(&space, || UdpSocket::bind(("0.0.0.0", 0)))??;
        hello.send_to(&[0], (to.address(), 9))?;
    }
    let trial = Trial {
        log,
        receiver,
        senders: [sender(one)?, sender(other)?],
    };
    // A host is silent, and then grants nothing, for its first leases; pledges last 600 intervals.
    sleep_until(now().saturating_add(Nanos::from_secs(4)));
    trial.check("one sender", [true, false], [95..=101, 0..=0])?;
    trial.check("both", [true, true], [45..=52, 45..=52])?;
    trial.check("the other alone", [false, true], [0..=0, 95..=101])?;
    // Without a pause: a guest that is idle when its process dies has S alone until the pledge ends.
    trial.flood([false, true], SETTLE);
    let mut dead = hosts[2].process.take().ok_or("no process")?;
    dead.kill()?;
    dead.wait()?;
    trial.check("its process killed", [false, true], [0..=0, 45..=52])?;
    trial.check(
        "both, one without a process",
        [true, true],
        [45..=52, 45..=52],
    )?;
    trial.check_curve()
}

/// A socket that drops what it gets, so that the kernel sends no ICMP error.
fn sink(receiver: Guest) -> Outcome<UdpSocket> {
    socket(receiver, "10.0.0.254")
}

impl Trial {
    /// Lets some of the senders flood, and compares the rate of each with a range in percent of B.
    fn check(
        &self,
        what: &str,
        floods: [bool; 2],
        wanted: [std::ops::RangeInclusive<u64>; 2],
    ) -> Outcome<()> {
        self.flood(floods, SETTLE);
        let from = now();
        let until = from.saturating_add(WINDOW);
        self.flood(floods, WINDOW);
        let all = self.arrivals()?;
        for (at, (payload, wanted)) in PAYLOADS.into_iter().zip(wanted).enumerate() {
            let length = payload as u64 + HEADERS + OVERHEAD;
            let own = all.iter().filter(|it| it.len.0 == length);
            let own = own.filter(|it| (from..until).contains(&it.time)).count() as u64;
            let percent = own * length * 8 * 1_000_000_000 / WINDOW.0 * 100 / RATE.0;
            println!("{what}: sender {at} has {percent} % of B, wanted {wanted:?}");
            if !wanted.contains(&percent) {
                return Err(format!("{what}: sender {at} has {percent} % of B").into());
            }
        }
        Ok(())
    }

    /// Lets some of the senders flood for a time.
    fn flood(&self, floods: [bool; 2], time: Nanos) {
        let mut next = now();
        let until = next.saturating_add(time);
        while next < until {
            sleep_until(next);
            for (at, sender) in self.senders.iter().enumerate() {
                if floods[at] {
                    // A full queue is no error of the trial.
                    let _ = sender.send(&vec![0; PAYLOADS[at]]);
                }
            }
            next = next.saturating_add(GAP);
        }
    }

    /// All that has arrived at the receiver's port, in bytes on the wire.
    fn arrivals(&self) -> Outcome<Vec<Departure>> {
        let all = self.log.read()?.into_iter();
        let own = all.filter(|it| it.interface == self.receiver.port());
        let on_wire = |it: Departure| Departure {
            len: Bytes(it.len.0.max(60) + OVERHEAD),
            ..it
        };
        Ok(own.map(on_wire).collect())
    }

    /// Compares all arrivals with B and the bursts of both senders, with a frame of each and what is late.
    fn check_curve(&self) -> Outcome<()> {
        let all = self.arrivals()?;
        if all.len() as u64 != self.log.count()? {
            return Err("the log was too short".into());
        }
        let used = effective_burst(&all, RATE);
        let late = u128::from(RATE.0) * u128::from(LATENESS.0) / 8_000_000_000;
        let each = BURST.0 + 1_538 + u64::try_from(late)?;
        println!(
            "{} frames need a burst of {used}, at most {} are wanted",
            all.len(),
            2 * each
        );
        if used.0 > 2 * each {
            return Err(format!("{used} above B, of {} B", 2 * each).into());
        }
        Ok(())
    }
}
