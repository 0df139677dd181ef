//! One trial of `tailbound adopt`: a guest behind a bridge, Open vSwitch or a TAP of vhost-net gets
//! limits, and floods; or a container that the CNI plugins bridge or ptp connect, by the plugin of
//! tailbound behind them. The rates on the wire are compared with the limits, and the lists of the
//! machine after the release with those before the adoption.
//!
//! `tailbound-kernel-bench adopt TOPOLOGY`, in the machine of `scripts/kernel-bench`, with the program
//! `tailbound` beside it. [`rates`] is the exchange of rates between hosts, [`loads`] loads of the lab. [`pod`] is a trial of its own: a pod by containerd, with the guarantee of its claim.

mod cni;
mod loads;
pub(crate) mod pod;
mod rates;

use crate::Outcome;
use crate::load::{now, sleep_until, socket};
use crate::network::{Guest, add_bridge, connect_by_flows, join, run as ip, silence};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use tailbound_sys::netns;
use tailbound_units::Nanos;

const TAILBOUND: &str = "/bin/tailbound";
/// The limits of frames of the guest, and to it, in bits a second.
const OUT: u64 = 40_000_000;
const IN: u64 = 20_000_000;
const PAYLOAD: [u8; 1472] = [0; 1472];
/// Bytes of a frame on the wire: headers, preamble, gap and check sequence.
const FRAME: u64 = 1472 + 28 + 14 + 24;
/// The time between two frames of a flood, which then has 123 Mbit/s.
const GAP: Nanos = Nanos::from_micros(100);
/// The time until the burst is over and no frame waits any more, above the horizon; and the time that is measured,
/// in which a frame is 0.2 % of the lower limit.
const SETTLE: Nanos = Nanos::from_millis(250);
const WINDOW: Nanos = Nanos::from_millis(400);
/// The time after which states of links are those of the present.
const LINK_STATES: Nanos = Nanos::from_secs(1);
/// The largest deviation of a rate from its limit, in thousandths.
const TOLERANCE: u64 = 10;

/// The guest, its neighbour, and the station behind the uplink.
struct Trial {
    guest: Guest,
    outside: Guest,
    monitor: Option<Child>,
}

/// Runs a trial; an error names what is wrong.
pub(crate) fn run(topology: &str) -> Outcome<()> {
    match topology {
        "cni-bridge" => cni::run("bridge"),
        "cni-ptp" => cni::run("ptp"),
        "rates" => rates::run(),
        "loads" => loads::run(),
        other => run_switched(other),
    }
}

fn run_switched(topology: &str) -> Outcome<()> {
    let mut trial = Trial {
        guest: Guest::numbered(1),
        outside: Guest::add(3)?,
        monitor: None,
    };
    let neighbour = Guest::add(2)?;
    match topology {
        "veth" | "ovs" => drop(Guest::add(1)?),
        "vhost" => trial.add_machine()?,
        _ => return Err("use one of veth, ovs, vhost, cni-bridge, cni-ptp, loads, rates".into()),
    }
    let all = [trial.guest, neighbour, trial.outside];
    for (at, one) in all.iter().enumerate() {
        let others = &all[at + 1..];
        others.iter().try_for_each(|other| one.introduce(*other))?;
    }
    if topology == "ovs" {
        connect_by_flows(&all)?;
    } else {
        add_bridge("switch")?;
        all.iter()
            .try_for_each(|it| join("switch", &it.port_name()))?;
    }
    let done = trial.measure();
    if let Some(monitor) = &mut trial.monitor {
        monitor.kill()?;
        monitor.wait()?;
    }
    done
}

impl Trial {
    /// A TAP that vhost-net holds, and another one for the guest's own kernel.
    fn add_machine(&mut self) -> Outcome<()> {
        let (space, port) = (self.guest.namespace_name(), self.guest.port_name());
        ip(&format!("ip netns add {space}"))?;
        netns::within(&self.guest.namespace(), silence)??;
        ip(&format!("ip -n {space} tuntap add eth0 mode tap vnet_hdr"))?;
        let mac = self.guest.mac_text();
        ip(&format!("ip -n {space} link set eth0 address {mac} up"))?;
        let address = self.guest.address();
        ip(&format!("ip -n {space} addr add {address}/24 dev eth0"))?;
        ip(&format!("ip tuntap add {port} mode tap vnet_hdr"))?;
        ip(&format!("ip link set {port} up"))?;
        let mut command = Command::new("/bin/program");
        let command = command.args(["role", "monitor", &port, &space, "wait"]);
        self.monitor = Some(command.stdin(Stdio::null()).spawn()?);
        Ok(())
    }

    fn measure(&self) -> Outcome<()> {
        let (guest, uplink) = (self.guest.port_name(), self.outside.port_name());
        let mac = self.guest.mac_text();
        let ends = Ends {
            out: socket(self.guest, &self.outside.address())?,
            inward: socket(self.outside, &self.guest.address())?,
            guest: guest.clone(),
            uplink: uplink.clone(),
        };
        let adopt = |out: u64| {
            tailbound(&format!(
                "adopt {guest} --mac {mac} --ip {} --uplink {uplink} --limit-out {out}bit/s \
                 --limit-in {IN}bit/s",
                self.guest.address()
            ))
        };
        ends.measure(&adopt, &|| tailbound(&format!("release {guest}")))
    }
}

/// The guest's and the outer end of a trial.
struct Ends {
    /// From the guest to the outside.
    out: UdpSocket,
    /// From the outside to the guest.
    inward: UdpSocket,
    /// The host's interface of the guest, and the uplink.
    guest: String,
    uplink: String,
}

impl Ends {
    /// Floods without a limit, with those of `adopt`, with one that is changed in place, and after
    /// `release`.
    fn measure(
        &self,
        adopt: &dyn Fn(u64) -> Outcome<()>,
        release: &dyn Fn() -> Outcome<()>,
    ) -> Outcome<()> {
        let (out, inward) = (&self.out, &self.inward);
        let (guest, uplink) = (&self.guest, &self.uplink);
        // Without a limit more than both limits passes.
        check("without a limit", flood(out, uplink)?, None)?;
        // The kernel renews states of links once a second.
        sleep_until(now().saturating_add(LINK_STATES));
        let before = lists()?;
        adopt(OUT)?;
        check("outward", flood(out, uplink)?, Some(OUT))?;
        check("inward", flood(inward, guest)?, Some(IN))?;
        adopt(2 * OUT)?;
        check("outward, changed", flood(out, uplink)?, Some(2 * OUT))?;
        release()?;
        let after = lists()?;
        if after != before {
            return Err(format!("before:\n{before}\nafter:\n{after}").into());
        }
        println!("the lists are as before");
        check("after the release", flood(out, uplink)?, None)
    }
}

/// Sends frames, and returns the rate at which the device sends them, in bits a second on the wire.
fn flood(socket: &UdpSocket, device: &str) -> Outcome<u64> {
    let sent = || -> Outcome<u64> {
        let file = format!("/sys/class/net/{device}/statistics/tx_packets");
        Ok(std::fs::read_to_string(file)?.trim().parse()?)
    };
    let begin = now();
    let (from, until) = (
        begin.saturating_add(SETTLE),
        begin.saturating_add(SETTLE).saturating_add(WINDOW),
    );
    let mut next = begin;
    let mut first = None;
    while next < until {
        sleep_until(next);
        if first.is_none() && now() >= from {
            first = Some((now(), sent()?));
        }
        // A full queue is no error of the trial.
        let _ = socket.send(&PAYLOAD);
        next = next.saturating_add(GAP);
    }
    let (from, before) = first.ok_or("the flood is too short")?;
    let (time, frames) = (now().since(from), sent()? - before);
    // The frames that wait leave before the next flood.
    sleep_until(now().saturating_add(SETTLE));
    Ok(frames * FRAME * 8 * 1_000_000 / (time.0 / 1_000))
}

fn check(what: &str, rate: u64, limit: Option<u64>) -> Outcome<()> {
    let limit_text = limit.map_or("none".to_owned(), |limit| limit.to_string());
    println!("{what}: {rate} bit/s, limit {limit_text}");
    let is_right = match limit {
        None => rate > 2 * OUT,
        Some(limit) => rate.abs_diff(limit) * 1_000 <= limit * TOLERANCE,
    };
    if is_right {
        return Ok(());
    }
    Err(format!("{what}: {rate} bit/s, and the limit is {limit_text}").into())
}

fn tailbound(arguments: &str) -> Outcome<()> {
    let words = arguments.split_ascii_whitespace();
    let output = Command::new(TAILBOUND)
        .args(words)
        .args(["--state", "/tmp/adopted"])
        .stdin(Stdio::null())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    print!("{text}");
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{arguments}: {text}{errors}").into());
    }
    Ok(())
}

/// Devices, queueing disciplines and classifiers, without timers and counters.
fn lists() -> Outcome<String> {
    let mut lists = String::new();
    let mut commands = vec!["ip -d link".to_owned(), "tc qdisc show".to_owned()];
    for device in ["port-1", "port-2", "port-3"] {
        let filters =
            ["ingress", "egress"].map(|side| format!("tc filter show dev {device} {side}"));
        commands.extend(filters);
    }
    for command in commands {
        let mut words = command.split(' ');
        let program = words.next().ok_or("no command")?;
        let output = Command::new(program).args(words).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut words = text.split_ascii_whitespace();
        while let Some(word) = words.next() {
            lists += word;
            lists.push(' ');
            if word.ends_with("_timer") {
                words.next();
            }
        }
        lists.push('\n');
    }
    let pins = std::fs::read_dir("/sys/fs/bpf")?.flatten();
    lists.extend(pins.map(|it| it.file_name().to_string_lossy().into_owned()));
    Ok(lists)
}
