//! Queries of rtnetlink about all devices of this thread's network namespace.

use super::{Address, Classifier, Device, Learned, Mac, Qdisc, Side};
use crate::rtnetlink::{
    Attributes, GET_ADDRESS, GET_FILTER, GET_LINK, GET_NEIGHBOUR, GET_QDISC, GET_ROUTE, LINK_HEAD,
    Netlink, TC_HEAD, find as attribute, number, tc_head, text,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd as _;

/// The depth to which filters nest actions: options, actions, one of these, its kind.
const DEPTH: u32 = 4;

/// Returns all devices.
///
/// # Errors
/// Netlink sockets are not available.
pub fn devices() -> io::Result<Vec<Device>> {
    let all = Netlink::open()?.dump(GET_LINK, &[0; LINK_HEAD])?;
    Ok(all.iter().filter_map(|body| device(body)).collect())
}

fn device(body: &[u8]) -> Option<Device> {
    const MAC: u16 = 1;
    const NAME: u16 = 3;
    const LINK: u16 = 5;
    const MASTER: u16 = 10;
    const QUEUE_LENGTH: u16 = 13;
    const INFO: u16 = 18;
    const KIND: u16 = 1;
    const QUEUES: u16 = 31;
    const NAMESPACE: u16 = 37;
    const XDP: u16 = 43;
    const PROGRAM: u16 = 4;
    const UP: u32 = 1;
    const LOOPBACK: u32 = 8;
    let index = number(body, 4)?;
    let flags = number(body, 8)?;
    let own = body.get(LINK_HEAD..)?;
    let of = |kind| attribute(own, kind);
    let word = |kind| of(kind).and_then(|value| number(value, 0));
    let is_other_elsewhere = of(NAMESPACE).is_some();
    let other = word(LINK).filter(|it| *it != 0 && (is_other_elsewhere || *it != index));
    Some(Device {
        index,
        name: of(NAME).map(text)?,
        kind: of(INFO).and_then(|info| attribute(info, KIND)).map(text),
        master: word(MASTER),
        other,
        is_other_elsewhere,
        mac: of(MAC).and_then(|value| value.try_into().ok()),
        is_up: flags & UP != 0,
        is_loopback: flags & LOOPBACK != 0,
        xdp: of(XDP)
            .and_then(|xdp| attribute(xdp, PROGRAM))
            .and_then(|value| number(value, 0))
            .filter(|program| *program != 0),
        queues: word(QUEUES).unwrap_or(1).max(1),
        queue_length: word(QUEUE_LENGTH).unwrap_or(0),
    })
}

/// Returns the queueing disciplines of all devices.
///
/// # Errors
/// Netlink sockets are not available, or the kernel has no traffic control.
pub fn qdiscs() -> io::Result<Vec<Qdisc>> {
    let all = Netlink::open()?.dump(GET_QDISC, &tc_head(0, 0, 0))?;
    Ok(all.iter().filter_map(|body| qdisc(body)).collect())
}

fn qdisc(body: &[u8]) -> Option<Qdisc> {
    const KIND: u16 = 1;
    const OPTIONS: u16 = 2;
    const FLOW_LIMIT: u16 = 2;
    let own = body.get(TC_HEAD..)?;
    let kind = attribute(own, KIND).map(text)?;
    let options = attribute(own, OPTIONS).filter(|_| kind == "fq");
    let flow_limit = options.and_then(|options| attribute(options, FLOW_LIMIT));
    Some(Qdisc {
        index: number(body, 4)?,
        handle: number(body, 8)?,
        parent: number(body, 12)?,
        flow_limit: flow_limit.and_then(|value| number(value, 0)),
        kind,
    })
}

/// Returns the classifiers at the `clsact` or `ingress` of a device; none if it has neither.
///
/// # Errors
/// Netlink sockets are not available.
pub fn classifiers(index: u32) -> io::Result<Vec<Classifier>> {
    const SIDES: [(Side, u32); 2] = [(Side::Ingress, 0xffff_fff2), (Side::Egress, 0xffff_fff3)];
    let netlink = Netlink::open()?;
    let mut found = Vec::new();
    for (side, parent) in SIDES {
        // A device without such a qdisc has no classifiers.
        let all = netlink.dump(GET_FILTER, &tc_head(index, 0, parent));
        let all = all.unwrap_or_default();
        found.extend(all.iter().filter_map(|body| classifier(side, body)));
    }
    Ok(found)
}

fn classifier(side: Side, body: &[u8]) -> Option<Classifier> {
    const KIND: u16 = 1;
    const OPTIONS: u16 = 2;
    const PROGRAM_NAME: u16 = 7;
    let own = body.get(TC_HEAD..)?;
    let kind = attribute(own, KIND).map(text)?;
    // Without options it is the head of a list.
    let options = attribute(own, OPTIONS)?;
    let program = attribute(options, PROGRAM_NAME).filter(|_| kind == "bpf");
    Some(Classifier {
        side,
        program: program.map(text),
        redirects: redirects(options, DEPTH),
        kind,
    })
}

/// Returns true if an action `mirred` is among nested attributes.
fn redirects(options: &[u8], depth: u32) -> bool {
    const KIND: u16 = 1;
    if attribute(options, KIND) == Some(b"mirred\0") {
        return true;
    }
    depth > 0 && Attributes(options).any(|(_, value)| redirects(value, depth - 1))
}

/// Returns all addresses.
///
/// # Errors
/// Netlink sockets are not available.
pub fn addresses() -> io::Result<Vec<Address>> {
    // `struct ifaddrmsg`.
    let all = Netlink::open()?.dump(GET_ADDRESS, &[0; 8])?;
    Ok(all.iter().filter_map(|body| address(body)).collect())
}

fn address(body: &[u8]) -> Option<Address> {
    const ADDRESS: u16 = 1;
    const LOCAL: u16 = 2;
    let own = body.get(8..)?;
    // Of a point-to-point device `ADDRESS` is the other end's.
    let value = attribute(own, LOCAL).or_else(|| attribute(own, ADDRESS))?;
    let ip = match value.len() {
        4 => IpAddr::V4(Ipv4Addr::from(*value.first_chunk::<4>()?)),
        16 => IpAddr::V6(Ipv6Addr::from(*value.first_chunk::<16>()?)),
        _ => return None,
    };
    Some(Address {
        index: number(body, 4)?,
        ip,
    })
}

/// Returns the index of the device of the IPv4 default route with the smallest metric, or else of
/// the IPv6 one.
///
/// # Errors
/// Netlink sockets are not available.
pub fn default_device() -> io::Result<Option<u32>> {
    const IPV4: u8 = 2;
    const IPV6: u8 = 10;
    for family in [IPV4, IPV6] {
        // `struct rtmsg`.
        let mut head = [0; 12];
        head[0] = family;
        let all = Netlink::open()?.dump(GET_ROUTE, &head)?;
        let routes = all.iter().filter_map(|body| default_route(family, body));
        if let Some((_, device)) = routes.min() {
            return Ok(Some(device));
        }
    }
    Ok(None)
}

/// Returns the metric and the device of a default route of the main table.
fn default_route(family: u8, body: &[u8]) -> Option<(u32, u32)> {
    const DEVICE: u16 = 4;
    const METRIC: u16 = 6;
    const MAIN: u8 = 254;
    const UNICAST: u8 = 1;
    let own = body.get(12..)?;
    let is_default = body[0] == family && body[1] == 0 && body[4] == MAIN && body[7] == UNICAST;
    let device = attribute(own, DEVICE).and_then(|value| number(value, 0));
    let metric = attribute(own, METRIC).and_then(|value| number(value, 0));
    device
        .filter(|_| is_default)
        .map(|device| (metric.unwrap_or(0), device))
}

/// Returns the stations that bridges have learned, without the addresses of the bridges and their
/// ports.
///
/// # Errors
/// Netlink sockets are not available.
pub fn learned() -> io::Result<Vec<Learned>> {
    const BRIDGE: u8 = 7;
    // `struct ndmsg`.
    let mut head = [0; 12];
    head[0] = BRIDGE;
    let all = Netlink::open()?.dump(GET_NEIGHBOUR, &head)?;
    Ok(all.iter().filter_map(|body| neighbour(body)).collect())
}

fn neighbour(body: &[u8]) -> Option<Learned> {
    const STATION: u16 = 2;
    /// `NUD_NOARP` and `NUD_PERMANENT`: an administrator or the kernel added it.
    const ADDED: u16 = 0xc0;
    let state = u16::from_ne_bytes(*body.get(8..)?.first_chunk()?);
    let mac = attribute(body.get(12..)?, STATION)?;
    let mac = Mac::try_from(mac).ok().filter(|_| state & ADDED == 0)?;
    Some(Learned {
        port: number(body, 4)?,
        mac,
    })
}

/// Returns the MAC and all IP addresses of a device of this thread's network namespace.
///
/// # Errors
/// There is no such device, or netlink sockets are not available.
pub fn station(name: &str) -> io::Result<(Mac, Vec<IpAddr>)> {
    let all = devices()?;
    let device = all.iter().find(|device| device.name == name);
    let device = device.ok_or(io::ErrorKind::NotFound)?;
    let mac = device.mac.ok_or(io::ErrorKind::Unsupported)?;
    let own = addresses()?.into_iter();
    let own = own.filter(|address| address.index == device.index);
    Ok((mac, own.map(|address| address.ip).collect()))
}

/// Returns a number of this thread's network namespace that no other one has until the next boot
/// (`SO_NETNS_COOKIE`, Linux 5.14).
///
/// # Errors
/// The kernel is older.
pub fn namespace() -> io::Result<u64> {
    let (family, kind) = (AddressFamily::INET, SocketType::DGRAM);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    let mut cookie = 0_u64;
    let mut len = size_of::<u64>() as libc::socklen_t;
    // SAFETY: SO_NETNS_COOKIE writes 8 bytes, which `cookie` has; `len` is its length.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut len,
        )
    };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(cookie)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_loopback_is_read_with_its_queue_and_its_addresses() {
        let all = devices().unwrap();
        let loopback = all.iter().find(|device| device.name == "lo").unwrap();
        assert_eq!((loopback.index, loopback.is_loopback), (1, true));
        assert_eq!((loopback.master, loopback.xdp), (None, None));
        assert_eq!(namespace().unwrap(), namespace().unwrap());
        assert!(classifiers(1).unwrap().is_empty());
        let (mac, _) = station("lo").unwrap();
        assert_eq!(mac, [0; 6]);
        for qdisc in qdiscs().unwrap() {
            assert!(all.iter().any(|device| device.index == qdisc.index));
        }
        assert!(learned().is_ok() && default_device().is_ok());
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (device(&bytes), qdisc(&bytes), address(&bytes), neighbour(&bytes));
            let _ = (default_route(2, &bytes), classifier(Side::Ingress, &bytes));
        }
    }
}
