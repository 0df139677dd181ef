//! The parts of the kernel that forward or answer frames of a device, beside a process that reads it.

use super::{Side, addresses, classifiers};
use crate::bpf;
use crate::netns;
use crate::rtnetlink::{Netlink, find as attribute, number, text};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::net::IpAddr;
use std::path::Path;

/// The parts of the kernel that forward or answer a device's frames.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forwarding {
    /// The device that it is a port of: a bridge, a bond, Open vSwitch.
    pub master: Option<String>,
    /// An address of the host on it that is not link-local.
    pub address: Option<IpAddr>,
    /// The number of an XDP program.
    pub xdp: Option<u32>,
    /// A classifier or a BPF program that may redirect received frames, in words.
    pub redirect: Option<String>,
}

/// Returns the parts of the kernel that forward frames of `interface`, in the network namespace
/// `netns` or the caller's; `None` if there is no such interface.
///
/// # Errors
/// Netlink sockets are not available, or the namespace cannot be entered.
pub fn forwarding(interface: &str, netns: Option<&Path>) -> io::Result<Option<Forwarding>> {
    match netns {
        None => here(interface),
        Some(path) => netns::within(path, || here(interface))?,
    }
}

fn here(interface: &str) -> io::Result<Option<Forwarding>> {
    const NAME: u16 = 3;
    const MASTER: u16 = 10;
    const XDP: u16 = 43;
    const PROGRAM: u16 = 4;
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let Ok(index) = rustix::net::netdevice::name_to_index(&socket, interface) else {
        return Ok(None);
    };
    let netlink = Netlink::open()?;
    let link = netlink.link(index)?;
    let word = |bytes: &[u8], kind| attribute(bytes, kind).and_then(|value| number(value, 0));
    let master = match word(&link, MASTER) {
        None => None,
        // It may be out of sight, as may its name.
        Some(master) => {
            let name = netlink.link(master).unwrap_or_default();
            let name = attribute(&name, NAME).map(text);
            Some(name.unwrap_or_else(|| format!("interface {master}")))
        }
    };
    let own = addresses()?.into_iter();
    let mut own = own.filter(|address| address.index == index && !address.is_link_local());
    let xdp = attribute(&link, XDP).and_then(|xdp| word(xdp, PROGRAM));
    Ok(Some(Forwarding {
        master,
        address: own.next().map(|address| address.ip),
        xdp: xdp.filter(|program| *program != 0),
        redirect: redirect(index)?,
    }))
}

fn redirect(index: u32) -> io::Result<Option<String>> {
    let found = classifiers(index)?.into_iter().find(|classifier| {
        let may_redirect = classifier.redirects || classifier.kind == "bpf";
        classifier.side == Side::Ingress && may_redirect
    });
    if let Some(found) = found {
        let program = found.program.map(|name| format!(" ({name})"));
        let kind = found.kind;
        return Ok(Some(format!(
            "classifier {kind}{}",
            program.unwrap_or_default()
        )));
    }
    // Of kernels without tcx, and without the privilege, none is known.
    let programs = bpf::count_attached(index, bpf::TCX_INGRESS).unwrap_or(0);
    Ok((programs > 0).then(|| "BPF program (tcx)".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_an_address_if_it_is_up_and_no_master() {
        let found = forwarding("lo", None).unwrap().unwrap();
        assert_eq!(
            (found.master, found.xdp, found.redirect),
            (None, None, None)
        );
        assert_eq!(forwarding("nowhere", None).unwrap(), None);
    }
}
