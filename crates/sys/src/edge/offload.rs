//! Segmentation offload at a container's end of a veth or netkit: the container's kernel cuts packets that a
//! guarantee does not allow, so that the program of the uplink has none to drop.
//!
//! The state before is in a map that outlives the process. VMs and containers in namespaces that are not
//! visible here keep their own: their long packets are dropped.

use super::change::{delete, get, put};
use super::{Edge, EdgeError, name_of};
use crate::rtnetlink::{LINK_HEAD, Netlink, attribute, find, number};
use crate::veth::{self, Peer};
use std::io;

/// `RTM_SETLINK`.
const SET_LINK: u16 = 19;
/// `IFLA_GSO_MAX_SEGS`.
const OFFLOAD_SEGMENTS: u16 = 40;
/// The longest frame on the wire, with a VLAN tag.
const FRAME: u32 = 1_542;

/// Returns the index of an interface of this thread's network namespace.
pub(super) fn index_of(interface: &str) -> io::Result<u32> {
    let (family, kind) = (
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
    );
    let flags = rustix::net::SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, kind, flags, None)?;
    Ok(rustix::net::netdevice::name_to_index(socket, interface)?)
}

/// Returns the number of segments in the longest packet that senders leave to `interface` to segment
/// (`gso_max_segs`).
pub(super) fn segments(interface: &str) -> io::Result<u32> {
    let attributes = Netlink::open()?.link(index_of(interface)?)?;
    let segments = find(&attributes, OFFLOAD_SEGMENTS).and_then(|value| number(value, 0));
    segments.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Sets this number. The kernel itself segments longer packets before `interface`.
pub(super) fn set_segments(interface: &str, segments: u32) -> io::Result<()> {
    let mut head = [0; LINK_HEAD];
    head[4..8].copy_from_slice(&index_of(interface)?.to_ne_bytes());
    let segments = attribute(OFFLOAD_SEGMENTS, &segments.to_ne_bytes());
    Netlink::open()?.change(SET_LINK, 0, &[&head[..], &segments].concat())
}

/// Works at the other end of an interface; `None` if there is none, or it cannot be seen.
fn at_peer<T: Send>(ifindex: u32, work: impl FnOnce(&str) -> io::Result<T> + Send) -> Option<T> {
    let name = name_of(ifindex).ok()?;
    match veth::at_peer(&name, None, work) {
        Ok(Peer::There(done)) => Some(done),
        Ok(Peer::None | Peer::Unseen) | Err(_) => None,
    }
}

impl Edge {
    /// Lets the guest cut packets into parts of at most `longest` bytes on the wire, as far as its
    /// interface can be seen; 0 for any.
    pub(super) fn limit_offload(&mut self, ifindex: u32, longest: u32) -> Result<(), EdgeError> {
        if longest == 0 {
            return self.restore_offload(ifindex);
        }
        let known = get(&self.maps.offloads, ifindex)?;
        let Some(now) = at_peer(ifindex, segments) else {
            return Ok(());
        };
        // Another value than the last one was set by another one since, and may be the lower limit.
        let own = known.filter(|[_, made]| *made == now);
        let [before, _] = own.unwrap_or([now, now]);
        let wanted = (longest / FRAME).max(1);
        if own.is_some_and(|[_, made]| made == wanted) {
            return Ok(());
        }
        self.restore_offload(ifindex)?;
        if before <= wanted {
            return Ok(());
        }
        // Before the change, since the process may be killed after it.
        put(&mut self.maps.offloads, ifindex, [before, wanted])?;
        let set = |name: &str| set_segments(name, wanted);
        if at_peer(ifindex, set).is_none() {
            return delete(&mut self.maps.offloads, ifindex);
        }
        Ok(())
    }

    /// Restores what was there before the limit, unless another one has changed it.
    pub(super) fn restore_offload(&mut self, ifindex: u32) -> Result<(), EdgeError> {
        let Some([before, wanted]) = get(&self.maps.offloads, ifindex)? else {
            return Ok(());
        };
        at_peer(ifindex, |name| {
            if segments(name)? != wanted {
                return Ok(());
            }
            set_segments(name, before)
        });
        delete(&mut self.maps.offloads, ifindex)
    }
}
