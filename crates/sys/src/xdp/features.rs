//! XDP features of a driver, by the generic netlink family `netdev` (since Linux 6.3; features of
//! sending since 6.8).

use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::path::Path;

/// XDP features of an interface's driver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Features {
    /// Run an XDP program itself, and redirect frames from there.
    pub driver: bool,
    /// Receive and send from a socket's own memory.
    pub zero_copy: bool,
    /// Launch frames of zero-copy sockets at a given time, in order (since Linux
    /// 6.14).
    pub launch_time: bool,
}

impl Features {
    /// Queries the features of an interface of the network namespace `netns`, or of the caller's.
    ///
    /// # Errors
    /// There is no such interface, or the kernel is older than 6.3.
    pub fn of(interface: &str, netns: Option<&Path>) -> io::Result<Self> {
        match netns {
            None => Self::of_here(interface),
            Some(path) => crate::netns::within(path, || Self::of_here(interface))?,
        }
    }

    pub(super) fn of_here(interface: &str) -> io::Result<Self> {
        let kind = SocketType::RAW;
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            kind,
            SocketFlags::CLOEXEC,
            Some(GENERIC),
        )?;
        let index = rustix::net::netdevice::name_to_index(&socket, interface)?;
        let mut buffer = [0; 8192];
        let mut ask = |request: &[u8]| {
            let kernel = SocketAddrNetlink::new(0, 0);
            rustix::net::sendto(&socket, request, SendFlags::empty(), &kernel)?;
            let (len, _) = rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty())?;
            attributes(&buffer[..len]).map(<[u8]>::to_vec)
        };
        let name = attribute(FAMILY_NAME, b"netdev\0");
        let answer = ask(&message(CONTROL, GET_FAMILY, &name))?;
        let family = find(&answer, FAMILY_ID)
            .and_then(|value| value.first_chunk())
            .map(|id| u16::from_ne_bytes(*id))
            .ok_or(io::ErrorKind::Unsupported)?;
        let device = attribute(DEVICE_INDEX, &index.to_ne_bytes());
        Ok(Self::parse(&ask(&message(family, GET_DEVICE, &device))?))
    }

    fn parse(attributes: &[u8]) -> Self {
        let bits = |kind| {
            find(attributes, kind)
                .and_then(|value| value.first_chunk())
                .map_or(0, |bits| u64::from_ne_bytes(*bits))
        };
        let (xdp, sending) = (bits(XDP_FEATURES), bits(XSK_FEATURES));
        Self {
            driver: xdp & 3 == 3,
            zero_copy: xdp & 8 != 0,
            launch_time: sending & 4 != 0,
        }
    }
}

/// `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY` and its attributes.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// `NETDEV_CMD_DEV_GET` and its attributes.
const GET_DEVICE: u8 = 1;
const DEVICE_INDEX: u16 = 1;
const XDP_FEATURES: u16 = 3;
const XSK_FEATURES: u16 = 6;

/// `NLMSG_ERROR`, `NLM_F_REQUEST`.
const ERROR: u16 = 2;
const REQUEST: u16 = 1;
/// Sizes of `struct nlmsghdr`, `struct genlmsghdr` and `struct nlattr`.
const HEADER: usize = 16;
const GENERIC_HEADER: usize = 4;
const ATTRIBUTE_HEADER: usize = 4;
/// `NLA_TYPE_MASK`.
const TYPE_MASK: u16 = 0x3fff;

fn message(family: u16, command: u8, attributes: &[u8]) -> Vec<u8> {
    let len = (HEADER + GENERIC_HEADER + attributes.len()) as u32;
    let mut bytes = len.to_ne_bytes().to_vec();
    bytes.extend(family.to_ne_bytes());
    bytes.extend(REQUEST.to_ne_bytes());
    // Sequence number and port, which one question at a time does without.
    bytes.extend([0; 8]);
    bytes.extend([command, 1, 0, 0]);
    bytes.extend(attributes);
    bytes
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = (ATTRIBUTE_HEADER + value.len()) as u16;
    let mut bytes = len.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Returns the attributes of the first message of an answer, or its error.
fn attributes(answer: &[u8]) -> io::Result<&[u8]> {
    let cut = || io::Error::from(io::ErrorKind::InvalidData);
    let header: &[u8; HEADER] = answer.first_chunk().ok_or_else(cut)?;
    let [a, b, c, d, kind_low, kind_high, ..] = *header;
    let len = u32::from_ne_bytes([a, b, c, d]) as usize;
    let body = answer.get(HEADER..len).ok_or_else(cut)?;
    if u16::from_ne_bytes([kind_low, kind_high]) == ERROR {
        let code = body.first_chunk().ok_or_else(cut)?;
        let code = i32::from_ne_bytes(*code).saturating_neg();
        return Err(io::Error::from_raw_os_error(code));
    }
    body.get(GENERIC_HEADER..).ok_or_else(cut)
}

/// Returns the value of the first attribute of a kind.
fn find(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let [a, b, c, d] = *attributes.first_chunk::<ATTRIBUTE_HEADER>()?;
        let len = usize::from(u16::from_ne_bytes([a, b]));
        let value = attributes.get(ATTRIBUTE_HEADER..len)?;
        if u16::from_ne_bytes([c, d]) & TYPE_MASK == kind {
            return Some(value);
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::required::{Part, skipped};
    use proptest::prelude::*;

    #[test]
    fn a_driver_that_can_do_everything_is_understood() {
        let xdp = attribute(XDP_FEATURES, &0x7f_u64.to_ne_bytes());
        let sending = attribute(XSK_FEATURES, &7_u64.to_ne_bytes());
        let index = attribute(DEVICE_INDEX, &5_u32.to_ne_bytes());
        let answer = message(0x20, GET_DEVICE, &[index, xdp, sending].concat());
        let features = Features::parse(attributes(&answer).expect("whole"));
        let all = Features {
            driver: true,
            zero_copy: true,
            launch_time: true,
        };
        assert_eq!(features, all);
    }

    #[test]
    fn timestamps_and_checksums_alone_are_no_launch_time() {
        let sending = attribute(XSK_FEATURES, &3_u64.to_ne_bytes());
        assert_eq!(Features::parse(&sending), Features::default());
    }

    #[test]
    fn an_error_is_what_the_kernel_meant() {
        let mut answer = message(ERROR, 0, &[0; 16]);
        answer[HEADER..HEADER + 4].copy_from_slice(&(-libc::ENODEV).to_ne_bytes());
        let error = attributes(&answer).expect_err("an error");
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn the_loopback_interface_is_asked_about_where_the_kernel_can_be() {
        match Features::of_here("lo") {
            Ok(features) => assert!(!features.zero_copy),
            Err(error) => skipped(Part::NetdevFamily, error),
        }
        assert!(Features::of_here("no-such-if0").is_err());
    }

    proptest! {
        #[test]
        fn answers_of_any_bytes_are_read_without_harm(
            answer in prop::collection::vec(any::<u8>(), 0..200),
            kind in 0_u16..8,
        ) {
            if let Ok(found) = attributes(&answer) {
                find(found, kind);
            }
            find(&answer, kind);
            Features::parse(&answer);
        }

        #[test]
        fn an_attribute_is_found_behind_others(
            before in prop::collection::vec((10_u16..20, prop::collection::vec(any::<u8>(), 0..20)), 0..5),
            value in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let mut bytes: Vec<u8> =
                before.iter().flat_map(|(kind, value)| attribute(*kind, value)).collect();
            bytes.extend(attribute(7, &value));
            prop_assert_eq!(find(&bytes, 7), Some(&value[..]));
            prop_assert_eq!(find(&bytes, 8), None);
        }
    }
}
