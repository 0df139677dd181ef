//! The devices whose frames a process forwards itself: it has their packet sockets or the file side
//! of their TAPs. A packet socket receives a frame before the programs on the device, so a guard would
//! count a frame as dropped that such a process forwards.

use std::collections::BTreeMap;
use std::fs;
use tailbound_sys::network::Device;

/// The names of processes that forward frames, with what they are.
const PROGRAMS: [(&str, &str); 3] = [
    ("tailbound", "tailbound host"),
    ("ovs-vswitchd", "Open vSwitch's userspace datapath"),
    ("vpp_main", "VPP"),
];

/// Returns the daemon of each device that has one, in words, by the device's index.
pub(super) fn driven(devices: &[Device]) -> BTreeMap<u32, String> {
    let sockets = fs::read_to_string("/proc/net/packet").unwrap_or_default();
    let sockets: BTreeMap<u64, u32> = sockets.lines().filter_map(packet_socket).collect();
    let mut driven = BTreeMap::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
    for pid in pids.filter(|pid| *pid != std::process::id()) {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let mut programs = PROGRAMS.into_iter();
        if let Some((_, what)) = programs.find(|(name, _)| *name == comm.trim_end()) {
            let found = opened(pid, &sockets, devices);
            driven.extend(found.map(|index| (index, format!("{what} (process {pid})"))));
        }
    }
    driven
}

/// Returns the inode and the device of a bound socket in a line of `/proc/net/packet`.
fn packet_socket(line: &str) -> Option<(u64, u32)> {
    let mut fields = line.split_ascii_whitespace();
    let device = fields.nth(4)?.parse().ok().filter(|device| *device != 0)?;
    let inode = fields.nth(3)?.parse().ok()?;
    Some((inode, device))
}

/// Returns the devices that a process reads.
fn opened<'a>(
    pid: u32,
    sockets: &'a BTreeMap<u64, u32>,
    devices: &'a [Device],
) -> impl Iterator<Item = u32> + 'a {
    let files = fs::read_dir(format!("/proc/{pid}/fd"));
    let files = files.into_iter().flatten().flatten();
    files.filter_map(move |file| {
        let target = fs::read_link(file.path()).ok()?;
        let target = target.to_str()?;
        if target == "/dev/net/tun" {
            let number = file.file_name().into_string().ok()?;
            let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).ok()?;
            let name = info.lines().find_map(|line| line.strip_prefix("iff:"))?;
            let device = devices.iter().find(|device| device.name == name.trim());
            return device.map(|device| device.index);
        }
        let inode = target.strip_prefix("socket:[")?.strip_suffix(']')?;
        sockets.get(&inode.parse().ok()?).copied()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_packet_socket_has_its_device() {
        let line = "ffff8881 3      3    0003   7     1 0      0      48213";
        assert_eq!(packet_socket(line), Some((48213, 7)));
        let unbound = "ffff8881 3      3    0003   0     1 0      0      48213";
        for none in [
            "sk       RefCnt Type Proto  Iface R Rmem   User   Inode",
            "",
            unbound,
        ] {
            assert_eq!(packet_socket(none), None);
        }
    }
}
