//! Packets that the other end of a veth leaves to this end to segment.
//!
//! A packet socket hands over packets of TCP and UDP that are not segmented yet
//! (`virtio_net_hdr_from_skb` in `include/linux/virtio_net.h`). It cannot report that a packet must
//! be segmented inside of a tunnel, or as SCTP or ESP. The sender's kernel segments those itself
//! unless the interface that they leave by, the other end, has certain features. The other end is
//! found by rtnetlink (`IFLA_LINK`, `IFLA_LINK_NETNSID`), in any network namespace that is mounted
//! here, or that a visible process has.

use crate::ethtool::Ethtool;
use crate::netns;
use crate::rtnetlink::{Attributes, Netlink};
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Features by which a kernel leaves packets to an interface that a packet socket cannot hand over.
pub const TUNNELS: [&str; 9] = [
    "tx-gre-segmentation",
    "tx-gre-csum-segmentation",
    "tx-ipxip4-segmentation",
    "tx-ipxip6-segmentation",
    "tx-udp_tnl-segmentation",
    "tx-udp_tnl-csum-segmentation",
    "tx-tunnel-remcsum-segmentation",
    "tx-sctp-segmentation",
    "tx-esp-segmentation",
];

/// State of the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OtherEnd {
    /// The interface is no veth.
    None,
    /// The other end segments tunnelled packets itself.
    Cuts,
    /// The other end leaves tunnelled packets to this end; its place.
    Leaves(Place),
    /// The other end cannot be queried: its network namespace is not visible here, or may not be
    /// entered.
    Unseen {
        /// The index of the interface there.
        index: u32,
        /// A name of the namespace, if that is visible.
        netns: Option<PathBuf>,
    },
}

/// Place of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// A name of the network namespace; `None`: that of the veth's end here.
    pub netns: Option<PathBuf>,
    /// The name of the interface there.
    pub interface: String,
}

impl Place {
    /// Returns the command that makes the interface segment tunnelled packets itself.
    pub fn command(&self) -> String {
        let enter = self
            .netns
            .as_ref()
            .map(|netns| format!("nsenter --net={} ", netns.display()));
        let off = TUNNELS.map(|name| format!(" {name} off")).concat();
        format!(
            "{}ethtool -K {}{off}",
            enter.unwrap_or_default(),
            self.interface
        )
    }
}

/// Queries the state of the other end of `interface`, which is in the network namespace `netns`, or
/// in the caller's.
///
/// # Errors
/// The interface or the namespace is missing, or may not be queried.
pub fn other_end(interface: &str, netns: Option<&Path>) -> io::Result<OtherEnd> {
    within(netns, || look(interface))
}

/// Returns true if senders by `interface` leave packets to it that a packet socket or a TAP cannot
/// hand over.
///
/// # Errors
/// The interface or the namespace is missing, or may not be queried.
pub fn takes_tunnels(interface: &str, netns: Option<&Path>) -> io::Result<bool> {
    within(netns, || {
        let (active, _) = Ethtool::open(interface)?.active(&TUNNELS)?;
        Ok(!active.is_empty())
    })
}

/// Makes the other end of `interface` segment tunnelled packets itself, if it does not. Returns its
/// state from now on.
///
/// # Errors
/// As [`other_end`].
pub fn switch_off(interface: &str, netns: Option<&Path>) -> io::Result<OtherEnd> {
    within(netns, || {
        let before = look(interface)?;
        let OtherEnd::Leaves(place) = &before else {
            return Ok(before);
        };
        let switched = within(place.netns.as_deref(), || {
            let ethtool = Ethtool::open(&place.interface)?;
            let (active, count) = ethtool.active(&TUNNELS)?;
            ethtool.switch_off(&active, count)
        });
        // The result is determined by a second query.
        if switched.is_err() {
            return Ok(before);
        }
        look(interface)
    })
}

fn within<T: Send>(
    netns: Option<&Path>,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    match netns {
        None => work(),
        Some(path) => netns::within(path, work)?,
    }
}

/// The place of the other end of an interface.
enum PeerPlace {
    /// The interface is no veth.
    None,
    /// In a namespace that is not visible here.
    Unseen { index: u32 },
    /// In the namespace of this name, or in this thread's.
    In { index: u32, netns: Option<PathBuf> },
}

/// Finds the other end of an interface of one of these drivers.
fn locate(interface: &str, drivers: &[&str]) -> io::Result<PeerPlace> {
    let ethtool = Ethtool::open(interface)?;
    // Whatever may be asked only where there is an other end.
    let driver = ethtool.driver()?;
    if driver.is_none_or(|driver| !drivers.contains(&driver.as_str())) {
        return Ok(PeerPlace::None);
    }
    let index = rustix::net::netdevice::name_to_index(ethtool.socket(), interface)?;
    let netlink = Netlink::open()?;
    let link = Link::read(&netlink.link(index)?);
    let Some(index) = link.other else {
        return Ok(PeerPlace::None);
    };
    let Some(id) = link.namespace else {
        return Ok(PeerPlace::In { index, netns: None });
    };
    Ok(match find(&netlink, id) {
        Some(path) => PeerPlace::In {
            index,
            netns: Some(path),
        },
        None => PeerPlace::Unseen { index },
    })
}

/// Returns the name of an interface of this thread's network namespace.
fn name_of(index: u32) -> io::Result<String> {
    let any = Ethtool::open("lo")?;
    Ok(rustix::net::netdevice::index_to_name(any.socket(), index)?)
}

/// The result of work at the other end of an interface.
#[derive(Debug)]
pub enum Peer<T> {
    /// The interface is no veth or netkit.
    None,
    /// None: its network namespace is not visible here, or may not be entered.
    Unseen,
    /// The result of the work.
    There(T),
}

/// Runs `work` with the name of the other end of `interface`, in the network namespace of that end.
///
/// # Errors
/// The interface or the namespace is missing, or `work` failed.
pub fn at_peer<T: Send>(
    interface: &str,
    netns: Option<&Path>,
    work: impl FnOnce(&str) -> io::Result<T> + Send,
) -> io::Result<Peer<T>> {
    within(netns, || {
        let (index, netns) = match locate(interface, &["veth", "netkit"])? {
            PeerPlace::None => return Ok(Peer::None),
            PeerPlace::Unseen { .. } => return Ok(Peer::Unseen),
            PeerPlace::In { index, netns } => (index, netns),
        };
        let done = within(netns.as_deref(), || work(&name_of(index)?));
        done.map(Peer::There)
    })
}

fn look(interface: &str) -> io::Result<OtherEnd> {
    let (other, netns) = match locate(interface, &["veth"])? {
        PeerPlace::None => return Ok(OtherEnd::None),
        PeerPlace::Unseen { index } => {
            return Ok(OtherEnd::Unseen { index, netns: None });
        }
        PeerPlace::In { index, netns } => (index, netns),
    };
    let end = within(netns.clone().as_deref(), || {
        let interface = name_of(other)?;
        Ok(if takes_tunnels(&interface, None)? {
            OtherEnd::Leaves(Place {
                netns: netns.clone(),
                interface,
            })
        } else {
            OtherEnd::Cuts
        })
    });
    match end {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(OtherEnd::Unseen {
            index: other,
            netns,
        }),
        end => end,
    }
}

/// The other end in a link's attributes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Link {
    /// The index of the other end, and the number of its namespace if that is another one.
    other: Option<u32>,
    namespace: Option<i32>,
}

/// Returns a name of the namespace that has this number here.
fn find(netlink: &Netlink, id: i32) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounted = mounts.lines().filter_map(mounted);
    let processes = || entries(Path::new("/proc"));
    let of_processes = processes().map(|process| process.join("ns/net"));
    // Of threads that left their process's.
    let threads = processes().flat_map(|process| entries(&process.join("task")));
    let of_threads = threads.map(|thread| thread.join("ns/net"));
    let mut seen = HashSet::new();
    let mut all = mounted.chain(of_processes).chain(of_threads);
    all.find(|path| {
        let inode = fs::metadata(path).map(|it| (it.dev(), it.ino()));
        inode.is_ok_and(|inode| seen.insert(inode)) && netlink.number(path).ok() == Some(id)
    })
}

/// Returns the mount point of a network namespace in a line of `mountinfo`
/// (`proc_pid_mountinfo(5)`).
fn mounted(line: &str) -> Option<PathBuf> {
    let mut fields = line.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    root.starts_with("net:[").then(|| unescaped(point))
}

/// Replaces the octal numbers in a path that stand for white space and backslashes.
fn unescaped(path: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *byte == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let number = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(number.unwrap_or(*byte));
        rest = after.get(3..).filter(|_| number.is_some()).unwrap_or(after);
    }
    OsString::from_vec(bytes).into()
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

impl Link {
    fn read(attributes: &[u8]) -> Self {
        const LINK: u16 = 5;
        const NAMESPACE: u16 = 37;
        let mut link = Self::default();
        for (kind, value) in Attributes(attributes) {
            match (kind, value.first_chunk()) {
                (LINK, Some(index)) => link.other = Some(u32::from_ne_bytes(*index)),
                (NAMESPACE, Some(id)) => link.namespace = Some(i32::from_ne_bytes(*id)),
                _ => {}
            }
        }
        link
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            Link::read(&bytes);
        }
    }

    #[test]
    fn the_command_names_all_features_and_where_to_run_it() {
        let place = Place {
            netns: Some("/run/netns/a".into()),
            interface: "eth0".to_owned(),
        };
        let command = place.command();
        assert!(command.starts_with("nsenter --net=/run/netns/a ethtool -K eth0 tx-gre-"));
        assert_eq!(command.matches(" off").count(), TUNNELS.len());
    }

    #[test]
    fn a_mounted_namespace_is_found_by_its_path() {
        let line = "95 27 0:4 net:[4026532008] /run/netns/a\\040b rw shared:1 - nsfs nsfs rw";
        assert_eq!(mounted(line), Some("/run/netns/a b".into()));
        let pid = line.replace("net:[", "pid:[");
        for other in [&pid, "22 1 8:1 / / rw - ext4 /dev/sda1 rw", "", "1 2 3"] {
            assert_eq!(mounted(other), None);
        }
        assert_eq!(unescaped("\\a\\04"), PathBuf::from("\\a\\04"));
    }

    #[test]
    fn an_interface_that_is_no_veth_has_no_peer() {
        assert_eq!(other_end("lo", None).expect("it is there"), OtherEnd::None);
        assert!(other_end("nowhere", None).is_err());
    }
}
