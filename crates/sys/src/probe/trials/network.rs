//! Trials of interfaces, queueing disciplines and drivers.

use super::{advice, command, module_or_kernel, root, text};
use crate::probe::{Remedy, TrialResult};
use crate::veth::{OtherEnd, other_end};
use crate::{packet, steering, tap, xdp};
use std::fs;
use std::io::ErrorKind;

pub(in crate::probe) fn tap() -> TrialResult {
    let driver = "/dev/net/tun";
    let opened = fs::OpenOptions::new().read(true).write(true).open(driver);
    if let Err(error) = opened {
        let remedy = match error.kind() {
            ErrorKind::NotFound => root("modprobe tun"),
            _ => root(format!("chmod 0666 {driver}")),
        };
        return TrialResult::lacks(format!("{driver}: {error}"), remedy);
    }
    match tap::Tap::open("tbprobe0", None) {
        Ok(_) => TrialResult::works("made one with checksum and TSO offload"),
        Err(error) => TrialResult::lacks(error.to_string(), module_or_kernel("tun", "TUN")),
    }
}

pub(in crate::probe) fn packet() -> TrialResult {
    // A packet socket wants an interface that is up.
    if let Err(error) = command("ip", "link set lo up") {
        return error.lacks(advice("run as root, or where user namespaces are allowed"));
    }
    match packet::Socket::open("lo", None) {
        Ok(_) => TrialResult::works("opened one with PACKET_VNET_HDR"),
        Err(error) => TrialResult::lacks(
            error.to_string(),
            advice("run as root, or where user namespaces are allowed"),
        ),
    }
}

pub(in crate::probe) fn veth() -> TrialResult {
    link("veth", "link add tbprobe1 type veth peer name tbprobe2")
}

/// Lists the veths whose other ends leave the segmentation of tunnels to this one, as far as these
/// ends can be seen.
pub(in crate::probe) fn tunnels() -> TrialResult {
    let interfaces = fs::read_dir("/sys/class/net").into_iter().flatten();
    let names = interfaces
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let ends = names.filter_map(|name| Some((other_end(&name, None).ok()?, name)));
    let (mut veths, mut leave, mut unseen) = (0, Vec::new(), 0);
    for (end, name) in ends {
        match end {
            OtherEnd::None => continue,
            OtherEnd::Cuts => {}
            OtherEnd::Unseen { .. } => unseen += 1,
            OtherEnd::Leaves(place) => leave.push((name, place.command())),
        }
        veths += 1;
    }
    let seen = format!("of {veths} veths here {unseen} have their other end out of sight");
    match leave.first() {
        None => TrialResult::works(format!("{seen}, no other leaves tunnels to be cut")),
        Some((name, command)) => TrialResult::lacks(
            format!(
                "{seen}; {} leave tunnels to be cut, {name} among them, which the host daemon \
                 switches off where it opens them",
                leave.len()
            ),
            Remedy::Root(command.clone()),
        ),
    }
}

/// Tries to move the receive work of a veth's other end to another CPU.
pub(in crate::probe) fn receive_steering() -> TrialResult {
    let cpus = match steering::receivers(None) {
        Ok(Some(cpus)) => cpus,
        Ok(None) => {
            return TrialResult::lacks(
                "there is one CPU, on which the packet loop runs",
                advice("add a second CPU to the host"),
            );
        }
        Err(error) => return TrialResult::lacks(error.to_string(), advice("mount sysfs at /sys")),
    };
    match steering::probe() {
        Ok(()) => TrialResult::works(format!("wrote to rps_cpus; guests would receive on {cpus}")),
        Err(error) => TrialResult::lacks(
            format!("a sysfs of its own: {error}"),
            advice("run as root, on a kernel with CONFIG_RPS"),
        ),
    }
}

pub(in crate::probe) fn bridge() -> TrialResult {
    link("bridge", "link add tbprobe3 type bridge")
}

fn link(module: &str, arguments: &str) -> TrialResult {
    match command("ip", arguments) {
        Ok(()) => TrialResult::works("made one"),
        Err(error) => error.lacks(module_or_kernel(module, &module.to_uppercase())),
    }
}

pub(in crate::probe) fn htb() -> TrialResult {
    qdisc("htb", "")
}

/// Classifies by DSCP, as the lab's switch does.
pub(in crate::probe) fn u32_filter() -> TrialResult {
    let steps = [
        "qdisc replace dev lo root handle 1: htb",
        "class replace dev lo parent 1: classid 1:1 htb rate 1mbit",
        "filter replace dev lo parent 1: protocol ip prio 1 u32 match ip dsfield 0xb8 0xfc flowid 1:1",
    ];
    match steps.iter().try_for_each(|step| command("tc", step)) {
        Ok(()) => TrialResult::works("set one up"),
        Err(error) => error.lacks(module_or_kernel("cls_u32", "NET_CLS_U32")),
    }
}

pub(in crate::probe) fn tbf() -> TrialResult {
    qdisc("tbf", "rate 1mbit burst 32k latency 50ms")
}

pub(in crate::probe) fn fq_codel() -> TrialResult {
    qdisc("fq_codel", "")
}

pub(in crate::probe) fn cake() -> TrialResult {
    qdisc("cake", "bandwidth 1mbit")
}

pub(in crate::probe) fn fq() -> TrialResult {
    qdisc("fq", "maxrate 1mbit")
}

fn qdisc(kind: &str, arguments: &str) -> TrialResult {
    match command(
        "tc",
        &format!("qdisc replace dev lo root {kind} {arguments}"),
    ) {
        Ok(()) => TrialResult::works("set one up"),
        Err(error) => error.lacks(module_or_kernel(
            &format!("sch_{kind}"),
            &format!("NET_SCH_{}", kind.to_uppercase()),
        )),
    }
}

/// Opens sockets on a veth as an uplink would, in the fastest mode.
pub(in crate::probe) fn af_xdp() -> TrialResult {
    let steps = [
        "link add tbprobe4 type veth peer name tbprobe5",
        "link set tbprobe4 up",
        "link set tbprobe5 up",
    ];
    if let Err(error) = steps.iter().try_for_each(|step| command("ip", step)) {
        return error.lacks(module_or_kernel("veth", "VETH"));
    }
    match xdp::Xdp::open("tbprobe4", None, xdp::AttachPreference::Any, None) {
        Ok(opened) => {
            let wakes = if opened.queues.iter().all(xdp::Queue::tells_when_to_wake) {
                "the kernel flags when it must be woken"
            } else {
                "the kernel is woken each time, it has no need-wakeup"
            };
            TrialResult::works(format!("on a veth: {}; {wakes}", opened.mode))
        }
        Err(xdp::XdpError::NoXdp) => TrialResult::lacks(
            "the kernel has no AF_XDP",
            advice("use a kernel with CONFIG_XDP_SOCKETS"),
        ),
        Err(error) => TrialResult::lacks(error.to_string(), advice("run as root")),
    }
}

pub(in crate::probe) fn zero_copy() -> TrialResult {
    by_driver("zero-copy", |features| features.zero_copy)
}

pub(in crate::probe) fn launch_time() -> TrialResult {
    by_driver("launch times", |features| features.launch_time)
}

/// Lists this computer's interfaces by their drivers' support of a feature.
fn by_driver(feature: &str, has: fn(&xdp::Features) -> bool) -> TrialResult {
    let table = text("/proc/thread-self/net/dev").unwrap_or_default();
    // Two lines of headings, then `NAME: counters`.
    let names = table
        .lines()
        .skip(2)
        .filter_map(|line| line.split_once(':'));
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for name in names
        .map(|(name, _)| name.trim())
        .filter(|name| *name != "lo")
    {
        match xdp::Features::of(name, None) {
            Ok(features) if has(&features) => with.push(name),
            Ok(_) => without.push(name),
            Err(error) => {
                return TrialResult::lacks(
                    format!("{name}: drivers cannot be asked ({error})"),
                    advice("use Linux >= 6.3"),
                );
            }
        }
    }
    if with.is_empty() {
        let whose = if without.is_empty() {
            "there is no interface here".to_owned()
        } else {
            format!("no driver has {feature}: {}", without.join(", "))
        };
        return TrialResult::lacks(whose, advice("use a NIC whose driver has it"));
    }
    TrialResult::works(with.join(", "))
}
