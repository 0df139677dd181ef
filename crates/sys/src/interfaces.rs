//! The interfaces of this thread's network namespace, their other ends, and the limits on them, as
//! rtnetlink lists them. Read-only; no privilege is needed within this namespace.

mod limits;

use crate::rtnetlink::{Attributes, GET_LINK, LINK_HEAD, Netlink, find, number, text};
use std::io;
use std::path::Path;

pub use limits::{Limit, LimitKind, limits};

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its index.
    pub index: u32,
    /// Its name. An administrator chose it; it may hold anything but `/` and white space.
    pub name: String,
    /// Its kind, such as `veth`, `netkit`, `tun`; `None` for hardware.
    pub kind: Option<String>,
    /// The interface that it is linked with: the peer of a veth or netkit, the parent of a VLAN.
    pub other_end: Option<OtherEnd>,
}

impl Interface {
    /// Returns true if all frames of its other end pass it.
    pub fn is_pair(&self) -> bool {
        matches!(self.kind.as_deref(), Some("veth" | "netkit"))
    }
}

/// The interface that another one is linked with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherEnd {
    /// Its index in its own network namespace.
    pub index: u32,
    /// The number of that namespace ([`namespace_number`]); `None` for this one.
    pub namespace: Option<i32>,
}

/// Returns all interfaces of this thread's network namespace.
///
/// # Errors
/// Netlink sockets are not available.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let all = Netlink::open()?.dump(GET_LINK, &[0; LINK_HEAD])?;
    Ok(all.iter().filter_map(|body| read(body)).collect())
}

/// Returns the number that the network namespace of this file (`/proc/PID/ns/net`) has in this
/// thread's. A namespace without a number has no end of a pair whose other end is here.
///
/// # Errors
/// The file is missing, is no network namespace, or that has no number here.
pub fn namespace_number(netns: &Path) -> io::Result<i32> {
    Netlink::open()?
        .number(netns)
        .and_then(|number| match number {
            0.. => Ok(number),
            _ => Err(io::ErrorKind::NotFound.into()),
        })
}

/// Reads the body of a message about an interface.
fn read(body: &[u8]) -> Option<Interface> {
    const NAME: u16 = 3;
    const LINK: u16 = 5;
    const INFO: u16 = 18;
    const KIND: u16 = 1;
    const NAMESPACE: u16 = 37;
    let index = number(body, 4)?;
    let (mut name, mut kind, mut other, mut namespace) = (None, None, None, None);
    for (attribute, value) in Attributes(body.get(LINK_HEAD..)?) {
        match attribute {
            NAME => name = Some(text(value)),
            INFO => kind = find(value, KIND).map(text),
            LINK => other = number(value, 0),
            NAMESPACE => namespace = value.first_chunk().map(|it| i32::from_ne_bytes(*it)),
            _ => {}
        }
    }
    // One that is linked with nothing names itself.
    let other = other.filter(|other| *other != 0 && (namespace.is_some() || *other != index));
    Some(Interface {
        index,
        name: name?,
        kind,
        other_end: other.map(|index| OtherEnd { index, namespace }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtnetlink::attribute;
    use proptest::prelude::*;

    fn message(index: u32, attributes: &[Vec<u8>]) -> Vec<u8> {
        let mut body = vec![0; 16];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        body.extend(attributes.concat());
        body
    }

    #[test]
    fn a_pair_has_its_other_end_and_hardware_has_none() {
        let info = attribute(18, &attribute(1, b"veth\0"));
        let body = message(
            7,
            &[
                attribute(3, b"veth1a\0"),
                attribute(5, &2_u32.to_ne_bytes()),
                attribute(37, &5_i32.to_ne_bytes()),
                info,
            ],
        );
        let seen = read(&body).unwrap();
        let other_end = Some(OtherEnd {
            index: 2,
            namespace: Some(5),
        });
        assert_eq!((seen.index, seen.name.as_str()), (7, "veth1a"));
        assert_eq!((seen.other_end, seen.is_pair()), (other_end, true));
        // A VLAN's parent is in this namespace; an index of its own is no other end.
        for (link, other) in [(3_u32, Some(3)), (7, None), (0, None)] {
            let attributes = [attribute(3, b"x\0"), attribute(5, &link.to_ne_bytes())];
            let seen = read(&message(7, &attributes)).unwrap();
            assert_eq!(seen.other_end.map(|end| end.index), other);
            assert!(!seen.is_pair());
        }
    }

    #[test]
    fn the_loopback_of_this_namespace_is_listed() {
        let all = interfaces().unwrap();
        let loopback = all.iter().find(|it| it.name == "lo").unwrap();
        assert_eq!((loopback.index, &loopback.other_end), (1, &None));
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }
    }
}
