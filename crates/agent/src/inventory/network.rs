//! The host's interfaces of guests: TAPs by the descriptors of a VMM, and the host's ends of the
//! pairs whose other end is in a guest's network namespace. No guest's namespace is entered.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use tailbound_sys::interfaces::{self, Interface, Limit, OtherEnd};
use tailbound_sys::root::Root;

/// Largest number of examined descriptors of one process.
const MAX_DESCRIPTORS: usize = 4_096;

/// The answers of rtnetlink. They are behind a trait so that a recorded host can repeat them.
pub trait Network: fmt::Debug + Send {
    /// Returns the interfaces of the host's network namespace.
    ///
    /// # Errors
    /// [`interfaces::interfaces`].
    fn interfaces(&self) -> io::Result<Vec<Interface>>;
    /// Returns the limits on them.
    ///
    /// # Errors
    /// [`interfaces::limits`].
    fn limits(&self) -> io::Result<Vec<Limit>>;
    /// Returns the number of a process's network namespace in the host's.
    ///
    /// # Errors
    /// [`interfaces::namespace_number`].
    fn number(&self, pid: u32) -> io::Result<i32>;
    /// Returns the names of network namespaces below `/run/netns`, by inode.
    fn names(&self) -> BTreeMap<u64, String>;
}

/// The running kernel.
#[derive(Debug)]
pub struct Kernel;

impl Network for Kernel {
    fn interfaces(&self) -> io::Result<Vec<Interface>> {
        interfaces::interfaces()
    }

    fn limits(&self) -> io::Result<Vec<Limit>> {
        interfaces::limits()
    }

    fn number(&self, pid: u32) -> io::Result<i32> {
        interfaces::namespace_number(Path::new(&format!("/proc/{pid}/ns/net")))
    }

    fn names(&self) -> BTreeMap<u64, String> {
        let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
        let named = entries.filter_map(|entry| {
            let inode = fs::metadata(entry.path()).ok()?.ino();
            Some((inode, entry.file_name().into_string().ok()?))
        });
        named.collect()
    }
}

/// The kind of the host's interface of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InterfaceKind {
    /// A TAP: the VMM has its file side.
    Tap,
    /// A macvtap: likewise, on top of another interface.
    Macvtap,
    /// The host's end of a veth or netkit pair.
    Pair,
}

/// The host's interface of a guest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostInterface {
    /// Its index in the host's network namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: InterfaceKind,
}

impl HostInterface {
    fn of(interface: &Interface, kind: InterfaceKind) -> Self {
        Self {
            index: interface.index,
            name: super::super::text::printable(&interface.name),
            kind,
        }
    }
}

/// Returns the host's ends of the pairs whose other ends are in the namespace with this number.
pub(super) fn pairs(all: &[Interface], number: i32) -> Vec<HostInterface> {
    let is_its = |interface: &&Interface| {
        let other = |end: OtherEnd| end.namespace == Some(number);
        interface.is_pair() && interface.other_end.is_some_and(other)
    };
    let its = all.iter().filter(is_its);
    its.map(|it| HostInterface::of(it, InterfaceKind::Pair))
        .collect()
}

/// Returns the TAPs and macvtaps among `all` whose file side a process has open.
pub(super) fn taps(root: &Root, pid: u32, all: &[Interface]) -> Vec<HostInterface> {
    let descriptors = fs::read_dir(root.path(format!("/proc/{pid}/fd")));
    let descriptors = descriptors.into_iter().flatten().take(MAX_DESCRIPTORS);
    let taps = descriptors.flatten().filter_map(|entry| {
        let device = fs::read_link(entry.path()).ok()?;
        let device = device.to_str()?;
        if device == "/dev/net/tun" {
            let number = entry.file_name().into_string().ok()?;
            let info = root.path(format!("/proc/{pid}/fdinfo/{number}"));
            let info = fs::read_to_string(info).ok()?;
            let name = info.lines().find_map(|line| line.strip_prefix("iff:"))?;
            let is_it = |it: &&Interface| it.name == name.trim();
            let interface = all.iter().find(is_it)?;
            let is_tap = interface.kind.as_deref() == Some("tun");
            return is_tap.then(|| HostInterface::of(interface, InterfaceKind::Tap));
        }
        let index: u32 = device.strip_prefix("/dev/tap")?.parse().ok()?;
        let interface = all.iter().find(|it| it.index == index)?;
        let is_macvtap = interface.kind.as_deref() == Some("macvtap");
        is_macvtap.then(|| HostInterface::of(interface, InterfaceKind::Macvtap))
    });
    let mut taps: Vec<_> = taps.collect();
    // Each queue has a descriptor.
    taps.sort();
    taps.dedup();
    taps
}
